//! The recordings that matter most, and what a person who knows the programs expects of them.

use azureal_core::Event;
use azureal_core::agent::AgentOutput;
use azureal_core::event::{Complete, Outcome};

use crate::cases;

struct Expected {
    case: &'static str,
    outcome: Outcome,
    /// What the agent said itself, joined by ` | `.
    text: &'static str,
    /// The tools in the order of their calls; `!` where one failed, `?` where none answered, `(…)` in a subagent.
    tools: &'static str,
    /// Input and output.
    tokens: Option<(u64, u64)>,
    cost_usd: f64,
    /// The kinds of errors.
    errors: &'static str,
}

fn table() -> Vec<Expected> {
    use Outcome::{Done, Failed, Interrupted};
    let row = |case, outcome, text, tools, tokens, cost_usd, errors| Expected {
        case,
        outcome,
        text,
        tools,
        tokens,
        cost_usd,
        errors,
    };
    vec![
        row("claude/current/plain", Done, "Hello from the model.", "", Some((100, 20)), 0.001, ""),
        row(
            "claude/current/multi-tool",
            Done,
            "Let me look at the files. | Creating a file. | All done.",
            "Bash Read Glob! Grep! Write Edit Edit! Read NotebookEdit Bash! Read!",
            Some((3050, 225)),
            0.0168875,
            "",
        ),
        row(
            "claude/current/parallel-tools",
            Done,
            "Running three. | All three ran.",
            "Read Read Bash Bash Bash!",
            Some((200, 40)),
            0.002,
            "",
        ),
        row(
            "claude/current/api-500-mid-turn",
            Failed,
            "Working.",
            "Bash",
            Some((100, 20)),
            0.001,
            "server_error",
        ),
        row("claude/current/api-401", Failed, "", "", Some((0, 0)), 0.0, "authentication_failed"),
        row("claude/current/api-404-model", Failed, "", "", Some((0, 0)), 0.0, "model_not_found"),
        row("claude/current/api-400-too-long", Failed, "", "", Some((0, 0)), 0.0, "invalid_request"),
        row("claude/1.0.128/api-400", Failed, "", "", Some((0, 0)), 0.0, "api_error"),
        row("claude/current/api-429-recovers", Done, "Back again.", "", Some((100, 20)), 0.001, ""),
        row(
            "claude/current/api-529-fallback",
            Done,
            "Answer of the fallback model.",
            "",
            Some((100, 20)),
            0.000_600_000_000_000_000_1,
            "",
        ),
        row(
            "claude/current/subagent",
            Done,
            "Delegating. | The subagent says three lines.",
            "Agent (Bash) (Read)",
            Some((500, 100)),
            0.005,
            "",
        ),
        row(
            "claude/current/subagent-background",
            Done,
            "Started it; waiting. | The background agent reported.",
            "Agent (Bash)",
            Some((500, 100)),
            0.005,
            "",
        ),
        row(
            "claude/current/bash-background",
            Done,
            "It runs in the background. | The background job ended.",
            "Bash",
            Some((300, 60)),
            0.003,
            "",
        ),
        row(
            "claude/current/max-turns",
            Failed,
            "Again. | Again.",
            "Bash Bash",
            Some((200, 40)),
            0.002,
            "error_max_turns",
        ),
        row("claude/current/empty-answer", Done, "", "", Some((200, 40)), 0.002, ""),
        row(
            "claude/current/sigint-in-tool",
            Interrupted,
            "Starting a long job.",
            "Bash!",
            Some((100, 20)),
            0.001,
            "interrupted",
        ),
        row("claude/current/sigint-midstream", Interrupted, "one two", "", Some((0, 0)), 0.0, "interrupted"),
        row(
            "claude/current/sigterm-in-tool",
            Interrupted,
            "Starting a long job.",
            "Bash?",
            None,
            0.0,
            "signal",
        ),
        row(
            "claude/current/sigterm-partial",
            Interrupted,
            "one two three",
            "",
            Some((100, 1)),
            0.0,
            "signal",
        ),
        row("claude/current/sigkill-midstream", Interrupted, "", "", None, 0.0, "signal"),
        row(
            "claude/current/stream-cut-in-tool",
            Failed,
            "Running now.",
            "",
            Some((100, 1)),
            0.000_525,
            "server_error",
        ),
        row(
            "claude/current/stream-cut-partial-flag",
            Done,
            "Second attempt, seen by deltas.",
            "",
            Some((100, 20)),
            0.001,
            "",
        ),
        row(
            "claude/current/input-stream-json-interrupt",
            Done,
            "one two three | After the interrupt.",
            "",
            Some((100, 20)),
            0.001,
            "",
        ),
        row(
            "claude/current/thinking-interleaved",
            Done,
            "Part one. | Part two.",
            "Bash",
            Some((200, 40)),
            0.002,
            "",
        ),
        row(
            "claude/current/usage-cache",
            Done,
            "Answer.",
            "",
            Some((17212, 340)),
            0.029_809_999_999_999_996,
            "",
        ),
        row(
            "claude/current/session-resume-unknown",
            Failed,
            "",
            "",
            Some((0, 0)),
            0.0,
            "error_during_execution",
        ),
        row("claude/current/stdin-empty", Failed, "", "", None, 0.0, "exit"),
        row(
            "claude/current/permission-denied",
            Done,
            "I was not allowed.",
            "Write! Bash! WebFetch!",
            Some((300, 60)),
            0.003,
            "",
        ),
        row(
            "claude/2.0.77/multi-tool",
            Done,
            "Looking. | Done.",
            "Bash Glob Write TodoWrite Task (Bash)",
            Some((1200, 240)),
            0.0056,
            "",
        ),
        row("codex/current/plain", Done, "Hello from the model.", "", Some((1234, 56)), 0.0, ""),
        row(
            "codex/current/multi-tool",
            Done,
            "Let me look at the files. | Patching. | All done.",
            "Bash Bash Bash Edit Write Delete Bash! Bash",
            Some((600, 120)),
            0.0,
            "",
        ),
        row("codex/current/parallel-commands", Done, "All ran.", "Bash Bash! Bash", Some((200, 40)), 0.0, ""),
        row(
            "codex/current/stream-cut-repeats-items",
            Done,
            "Chapter one. | Chapter two, complete.",
            "",
            Some((100, 20)),
            0.0,
            "",
        ),
        row("codex/current/api-500-mid-turn", Failed, "Working.", "Bash", None, 0.0, "turn_failed"),
        row("codex/current/api-401", Failed, "", "", None, 0.0, "turn_failed"),
        row("codex/current/api-500-recovers", Done, "Recovered.", "", Some((100, 20)), 0.0, ""),
        row(
            "codex/current/background-left-running",
            Done,
            "It is running.",
            "Bash?",
            Some((200, 40)),
            0.0,
            "",
        ),
        row("codex/current/sigint-in-tool", Interrupted, "Starting a long job.", "Bash?", None, 0.0, "exit"),
        row(
            "codex/current/sigterm-in-tool",
            Interrupted,
            "Starting a long job.",
            "Bash?",
            None,
            0.0,
            "signal",
        ),
        row("codex/current/empty-answer", Done, "", "", Some((100, 20)), 0.0, ""),
        row("codex/current/web-search", Done, "Found it.", "WebSearch", Some((100, 20)), 0.0, ""),
        row(
            "codex/current/mcp-tools",
            Done,
            "Five.",
            "mcp__calc__add mcp__calc__fail! mcp__calc__picture",
            Some((400, 80)),
            0.0,
            "",
        ),
        row("codex/current/no-git", Failed, "", "", None, 0.0, "exit"),
        row("codex/current/stdin-1050k", Failed, "", "", None, 0.0, "exit"),
        row(
            "codex/0.36.0/multi-tool",
            Done,
            "Looking. | Done.",
            "Bash! Write TodoWrite",
            Some((400, 80)),
            0.0,
            "",
        ),
        row(
            "codex/0.50.0/multi-tool",
            Done,
            "Looking. | Done.",
            "Bash! Write TodoWrite",
            Some((400, 80)),
            0.0,
            "",
        ),
    ]
}

#[test]
fn the_recordings_that_matter_most_say_what_happened() {
    for expected in table() {
        let outputs = cases::named(expected.case).play();
        let events: Vec<&Event> = outputs
            .iter()
            .filter_map(|output| match output {
                AgentOutput::Event(event) => Some(event),
                _ => None,
            })
            .collect();
        let Some(Event::Complete(Complete { success, outcome, cost_usd, usage, .. })) = events.last() else {
            panic!("{} has no end", expected.case)
        };
        let tokens = usage.map(|usage| (usage.input_tokens, usage.output_tokens));
        let found = (
            *outcome,
            *success,
            texts(&events),
            tools(&events),
            tokens,
            cost_usd.to_string(),
            errors(&events),
        );
        let wanted = (
            Some(expected.outcome),
            expected.outcome == Outcome::Done,
            expected.text.to_owned(),
            expected.tools.to_owned(),
            expected.tokens,
            expected.cost_usd.to_string(),
            expected.errors.to_owned(),
        );
        assert_eq!(found, wanted, "{}", expected.case);
    }
}

fn texts(events: &[&Event]) -> String {
    let said: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::AssistantText(said) if said.subagent.is_none() => Some(said.text.as_str()),
            _ => None,
        })
        .collect();
    said.join(" | ")
}

fn tools(events: &[&Event]) -> String {
    let mut calls = Vec::new();
    for event in events {
        let Event::ToolCall(call) = event else { continue };
        let answers: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::ToolResult(result) if result.tool_use_id == call.tool_use_id => Some(result),
                _ => None,
            })
            .collect();
        assert!(answers.len() <= 1, "{} was answered twice", call.tool_use_id);
        for answer in &answers {
            assert_eq!((&answer.tool_name, &answer.file_path), (&call.tool_name, &call.file_path));
            assert_eq!(answer.subagent, call.subagent);
        }
        let mark = answers.first().map_or("?", |answer| if answer.is_error { "!" } else { "" });
        let name = format!("{}{mark}", call.tool_name);
        calls.push(if call.subagent.is_some() { format!("({name})") } else { name });
    }
    calls.join(" ")
}

fn errors(events: &[&Event]) -> String {
    let kinds: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::Error(error) => Some(error.kind.as_str()),
            _ => None,
        })
        .collect();
    kinds.join(" ")
}
