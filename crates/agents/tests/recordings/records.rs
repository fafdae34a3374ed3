//! The records that the programs keep themselves give the same conversation as what they print.

use azureal_core::Event;
use azureal_core::agent::{AgentOutput, Ending};

use crate::cases::{self, Case};
use crate::render::render;

/// A recording, and the record that its run left.
fn recorded() -> Vec<(Case, Vec<u8>)> {
    let with_record = |case: Case| {
        let record = std::fs::read(case.folder.join("record.jsonl")).ok()?;
        Some((case, record))
    };
    let cases: Vec<_> = cases::all().into_iter().filter_map(with_record).collect();
    assert!(cases.len() > 20, "only {} records were found", cases.len());
    cases
}

/// Plays the record of a run.
pub(crate) fn play(case: &Case, record: &[u8]) -> Vec<AgentOutput> {
    let mut reader = (case.agent.own_record().unwrap().reader)();
    let mut outputs = Vec::new();
    for line in record.split(|byte| *byte == b'\n') {
        outputs.extend(reader.line(line));
    }
    outputs.extend(reader.end(&Ending::default()));
    outputs
}

#[test]
fn every_record_gives_its_events() {
    for (case, record) in recorded() {
        let text = render(&play(&case, &record));
        insta::with_settings!({
            snapshot_path => &case.folder,
            prepend_module_to_snapshot => false,
            omit_expression => true,
            description => case.name.as_str(),
        }, {
            insta::allow_duplicates! { insta::assert_snapshot!("record", text) }
        });
    }
}

/// What was said and done, without what only one of the two sources knows: ids of Codex's calls, times, costs.
fn conversation(outputs: &[AgentOutput]) -> Vec<String> {
    let events = outputs.iter().filter_map(|output| match output {
        AgentOutput::Event(event) => Some(event),
        _ => None,
    });
    let mut told: Vec<String> = events
        .filter_map(|event| match event {
            Event::AssistantText(said) if said.subagent.is_none() => Some(format!("says {}", said.text)),
            Event::ToolCall(call) if call.subagent.is_none() => Some(format!("calls {}", call.tool_name)),
            // What came of a change of files is told in other words.
            Event::ToolResult(result) if matches!(result.tool_name.as_str(), "Write" | "Edit" | "Delete") => {
                Some(format!("gets {} {}", result.tool_name, result.is_error))
            }
            Event::ToolResult(result) if result.subagent.is_none() => {
                Some(format!("gets {} {} {}", result.tool_name, result.is_error, result.content))
            }
            _ => None,
        })
        .collect();
    // Calls that run at once begin and end in any order.
    told.sort();
    told
}

#[test]
fn a_record_tells_what_was_printed() {
    for (case, record) in recorded() {
        let (printed, recorded) = (conversation(&case.play()), conversation(&play(&case, &record)));
        let missing: Vec<_> = printed.iter().filter(|told| !recorded.contains(told)).collect();
        // Interrupted in a tool, Claude Code prints what it told the model and does not write it down.
        let known = match case.name.as_str() {
            "claude/current/sigint-in-tool" => "gets Bash true The user doesn't want to proceed",
            _ => "",
        };
        let is_known = |told: &String| !known.is_empty() && told.starts_with(known);
        let missing: Vec<_> = missing.into_iter().filter(|told| !is_known(told)).collect();
        assert!(missing.is_empty(), "{}: {missing:#?} of {printed:#?}", case.name);
    }
}

#[test]
fn only_the_users_own_prompts_are_user_messages() {
    for (case, record) in recorded() {
        let outputs = play(&case, &record);
        let prompts = outputs
            .iter()
            .filter(|output| matches!(output, AgentOutput::Event(Event::UserMessage(_))))
            .collect::<Vec<_>>();
        let most = if case.name.contains("resumed") { 2 } else { 1 };
        assert!(prompts.len() <= most, "{} has other prompts: {prompts:#?}", case.name);
    }
}

#[test]
fn a_call_that_failed_is_an_error_in_every_version_of_the_rollout() {
    let failed = |name: &str| -> Vec<String> {
        let case = cases::named(name);
        let record = std::fs::read(case.folder.join("record.jsonl")).unwrap();
        let outputs = play(&case, &record);
        outputs
            .iter()
            .filter_map(|output| match output {
                AgentOutput::Event(Event::ToolResult(result)) if result.is_error => {
                    Some(format!("{} {}", result.tool_name, result.content.lines().next().unwrap_or("")))
                }
                _ => None,
            })
            .collect()
    };
    for version in ["0.36.0", "0.50.0"] {
        assert_eq!(failed(&format!("codex/{version}/multi-tool")), ["Bash Exit code 2"], "{version}");
    }
    let found = failed("codex/0.80.0/multi-tool");
    assert_eq!((found.len(), found[0].as_str()), (2, "Bash Exit code 2"));
    assert!(found[1].starts_with("Edit apply_patch verification failed"), "{found:?}");
    assert_eq!(failed("codex/current/patch-fails").len(), 1);
    assert_eq!(failed("codex/current/sigint-in-tool"), ["Bash Wall time: 1.2 seconds"]);
}
