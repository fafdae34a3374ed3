//! Outputs as text that a person can review: one line each, long texts shortened.

use azureal_core::agent::AgentOutput;
use azureal_core::event::{Complete, Usage};
use azureal_core::{Event, compact_event};

/// Renders outputs, one line each.
pub(crate) fn render(outputs: &[AgentOutput]) -> String {
    outputs.iter().map(|output| line(output) + "\n").collect()
}

fn line(output: &AgentOutput) -> String {
    match output {
        AgentOutput::Event(event) => event_line(event),
        AgentOutput::Delta(text) => format!("  delta {}", quoted(text)),
        AgentOutput::Usage(usage) => format!("  usage {}", tokens(usage)),
        AgentOutput::Notice(text) => format!("  notice {}", quoted(text)),
        AgentOutput::Retry(text) => format!("  retry {}", quoted(text)),
        AgentOutput::Cache(seen) => format!("  cache {seen:?}"),
        AgentOutput::Refused(tools) => format!("  refused {}", tools.join(", ")),
        AgentOutput::Question(question) => format!("  question {question:?}"),
        AgentOutput::Answered(answered) => format!("  answered {answered:?}"),
    }
}

fn event_line(event: &Event) -> String {
    let kind = event.kind();
    let by = |subagent: &Option<String>| {
        subagent.as_ref().map_or_else(String::new, |call| format!(" (subagent of {call})"))
    };
    match event {
        Event::Init(init) => {
            let session = init.agent_session.as_deref().unwrap_or("-");
            let agent = init.agent.as_deref().unwrap_or("-");
            format!("{kind} {agent} model={} cwd={} session={session}", init.model, init.cwd)
        }
        Event::AssistantText(said) => format!("{kind}{} {}", by(&said.subagent), quoted(&said.text)),
        Event::Reasoning(thought) => format!("{kind}{} {}", by(&thought.subagent), quoted(&thought.text)),
        Event::ToolCall(call) => {
            let path = call.file_path.as_ref().map_or_else(String::new, |path| format!(" [{path}]"));
            let input = shortened(call.input.as_str());
            format!("{kind}{} {} {}{path} {input}", by(&call.subagent), call.tool_use_id, call.tool_name)
        }
        Event::ToolResult(result) => {
            let path = result.file_path.as_ref().map_or_else(String::new, |path| format!(" [{path}]"));
            let failed = if result.is_error { " FAILED" } else { "" };
            let content = quoted(&result.content);
            let id = &result.tool_use_id;
            let detail = detail_lines(event);
            format!(
                "{kind}{} {id} {}{path}{failed} {content}{detail}",
                by(&result.subagent),
                result.tool_name
            )
        }
        Event::Error(error) => format!("{kind} {}: {}", error.kind, quoted(&error.message)),
        Event::Complete(Complete { success, duration_ms, cost_usd, outcome, usage, .. }) => {
            let usage = usage.as_ref().map_or_else(|| "not counted".to_owned(), tokens);
            format!("{kind} success={success} outcome={outcome:?} {duration_ms}ms ${cost_usd} {usage}")
        }
        Event::Hook(hook) => format!("{kind} {} {}", hook.name, quoted(&hook.output)),
        other => shortened(&other.to_json()),
    }
}

fn tokens(usage: &Usage) -> String {
    let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, context_tokens } = usage;
    let context = context_tokens.map_or_else(String::new, |tokens| format!(" context={tokens}"));
    format!(
        "in={input_tokens} out={output_tokens} cached={cache_read_tokens} written={cache_write_tokens}{context}"
    )
}

fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}

fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= 160 {
        return text.to_owned();
    }
    let head: String = text.chars().take(100).collect();
    let tail: String = text.chars().skip(count - 40).collect();
    format!("{head} …{count}… {tail}")
}

/// Returns the detail of an event as it is stored, in lines of its own.
fn detail_lines(event: &Event) -> String {
    let stored = compact_event(event.clone());
    let lines =
        stored.detail().unwrap_or_default().lines().map(|line| format!("\n    | {}", shortened(line)));
    lines.collect()
}
