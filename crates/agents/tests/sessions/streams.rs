//! A recorded session has the same texts, calls and tokens as the output of the program in the same turns.

use std::fs;

use azureal_agents::native::NativeTurn;
use azureal_core::Event;
use serde_json::Value;

use crate::cases::{self, Case};

/// What the agent did in a turn: its texts and the ids of its calls, in their order.
type Said = Vec<String>;

#[test]
fn a_session_of_gemini_says_what_its_streams_say() {
    compare("gemini/three-turns", gemini);
    // The program continued sessions of files in its format in the last three, and wrote them again.
    for case in ["multi-tool", "chats-folder", "session-file-json", "session-file-jsonl"] {
        compare_last(&format!("gemini/{case}"), gemini);
    }
}

fn gemini(line: &Value, said: &mut Said) {
    match text(line, "/type") {
        "message" if text(line, "/role") == "assistant" => match said.last_mut() {
            // A text comes in pieces.
            Some(last) if last.starts_with("text ") => last.push_str(text(line, "/content")),
            _ => said.push(format!("text {}", text(line, "/content"))),
        },
        "tool_use" => said.push(format!("call {}", text(line, "/tool_id"))),
        "result" => said.push(format!(
            "tokens {} {}",
            number(line, "/stats/input_tokens"),
            number(line, "/stats/output_tokens")
        )),
        _ => {}
    }
}

#[test]
fn a_session_of_qwen_says_what_its_streams_say() {
    compare("qwen/three-turns", qwen);
    compare_last("qwen/chats-folder", qwen);
}

/// The tokens of the stream include those of a request that looks for memories, which is not of the turn.
fn qwen(line: &Value, said: &mut Said) {
    let blocks = line.pointer("/message/content").and_then(Value::as_array);
    for block in blocks.into_iter().flatten().filter(|_| text(line, "/type") == "assistant") {
        match text(block, "/type") {
            "text" => said.push(format!("text {}", text(block, "/text"))),
            "tool_use" => said.push(format!("call {}", text(block, "/id"))),
            _ => {}
        }
    }
}

#[test]
fn a_session_of_copilot_says_what_its_streams_say() {
    compare("copilot/three-turns", copilot);
    compare_last("copilot/multi-tool", copilot);
}

fn copilot(line: &Value, said: &mut Said) {
    if text(line, "/type") != "assistant.message" {
        return;
    }
    let content = text(line, "/data/content");
    if !content.is_empty() {
        said.push(format!("text {content}"));
    }
    let requests = line.pointer("/data/toolRequests").and_then(Value::as_array).unwrap();
    said.extend(requests.iter().map(|request| format!("call {}", text(request, "/toolCallId"))));
}

/// Compares the turns of a session with the streams of its three turns.
fn compare(case: &str, read: fn(&Value, &mut Said)) {
    let case = Case::named(case);
    let turns = case.turns();
    assert_eq!(turns.len(), 3);
    for (turn, number) in turns.iter().zip(1..) {
        let mut said = said(&case, &format!("stdout{number}.jsonl"), read);
        // A call that was running when Gemini was stopped is not in its session.
        if case.agent == "gemini" && number == 3 {
            assert!(said.pop().is_some_and(|last| last.starts_with("call ")), "{said:?}");
        }
        assert_eq!(recorded(turn, &said), said, "turn {number}");
    }
}

/// Compares the last turn of the session that was written last with its stream.
fn compare_last(case: &str, read: fn(&Value, &mut Said)) {
    let case = Case::named(case);
    let (home, sessions) = (case.open(), case.sessions());
    let turns = sessions.iter().filter_map(|session| cases::read(&*home, session).pop());
    let last = turns.max_by_key(|turn| turn.started).unwrap();
    let said = said(&case, "stdout.jsonl", read);
    assert_eq!(recorded(&last, &said), said, "{}", case.recorded.display());
}

fn said(case: &Case, stream: &str, read: fn(&Value, &mut Said)) -> Said {
    let stream = fs::read_to_string(case.recorded.join(stream)).unwrap();
    let mut said = Said::new();
    for line in stream.lines() {
        read(&serde_json::from_str(line).unwrap(), &mut said);
    }
    said
}

/// Returns what a turn of a session says, with tokens if the stream has them.
fn recorded(turn: &NativeTurn, stream: &Said) -> Said {
    let has_tokens = stream.iter().any(|line| line.starts_with("tokens"));
    let line = |event: &Event| match event {
        Event::AssistantText(said) => Some(format!("text {}", said.text)),
        Event::ToolCall(call) => Some(format!("call {}", call.tool_use_id)),
        Event::Complete(complete) if has_tokens => {
            complete.usage.map(|usage| format!("tokens {} {}", usage.input_tokens, usage.output_tokens))
        }
        _ => None,
    };
    turn.events.iter().filter_map(line).collect()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap()
}
