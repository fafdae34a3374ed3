//! Streams that are broken in every way that a disk, a crash or a new version could break them.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use azureal_core::Event;
use azureal_core::agent::{AgentOutput, Ending, Exit};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cases::{self, Case};
use crate::random::Random;

const STREAMS: usize = 10_000;

#[test]
fn broken_streams_cost_no_line_and_no_panic() {
    let cases: Vec<Case> =
        cases::all().into_iter().filter(|case| (1..16 * 1024).contains(&case.stdout.len())).collect();
    let mut random = Random(0x5EED);
    for number in 0..STREAMS {
        let case = &cases[random.below(cases.len())];
        let mut stream = case.stdout.clone();
        for _ in 0..=random.below(6) {
            mutate(&mut stream, &mut random);
        }
        play(case, &stream, number);
    }
}

fn mutate(stream: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(stream.len());
    match random.below(9) {
        0 if !stream.is_empty() => stream[at] ^= 1 << random.below(8),
        1 => stream.truncate(at),
        2 => {
            stream.insert(at, [0, 0xFF, b'\n', b'"', b'{', b'\\'][random.below(6)]);
        }
        3 => {
            let end = (at + random.below(200)).min(stream.len());
            stream.drain(at..end);
        }
        4 => replace(stream, b":100", b":99999999999999999999999999999999999999999", random),
        5 => replace(stream, b":0", b":-1e999", random),
        6 => replace(stream, b":null", b":{\"x\":[[[]]],\"x\":1}", random),
        7 => replace(stream, b"\"text\"", b"\"novel\"", random),
        _ => double_or_drop_a_line(stream, random),
    }
}

fn replace(stream: &mut Vec<u8>, from: &[u8], to: &[u8], random: &mut Random) {
    let places: Vec<usize> = stream
        .windows(from.len())
        .enumerate()
        .filter(|(_, found)| *found == from)
        .map(|(at, _)| at)
        .collect();
    if !places.is_empty() {
        let at = places[random.below(places.len())];
        stream.splice(at..at + from.len(), to.iter().copied());
    }
}

fn double_or_drop_a_line(stream: &mut Vec<u8>, random: &mut Random) {
    let mut lines: Vec<Vec<u8>> = stream.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    if lines.is_empty() {
        return;
    }
    let at = random.below(lines.len());
    match random.below(3) {
        0 => {
            lines.remove(at);
        }
        1 => lines.insert(at, lines[at].clone()),
        _ => {
            let to = random.below(lines.len());
            lines.swap(at, to);
        }
    }
    *stream = lines.concat();
}

fn play(case: &Case, stream: &[u8], number: usize) {
    let mut parser = case.agent.parser();
    let mut known = Known::default();
    let mut rest = stream;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        let outputs = parser.line(line);
        let must_speak = known.must_speak(case, line);
        if outputs.is_empty() && must_speak {
            panic!("stream {number} ({}) lost {}", case.name, String::from_utf8_lossy(line));
        }
        assert!(!outputs.iter().any(is_complete), "{number}: an end before the end");
    }
    let ending = Ending {
        exit: [None, Some(Exit::Code(0)), Some(Exit::Code(1)), Some(Exit::Signal(9))][number % 4],
        stderr: String::new(),
        fragment: rest.to_vec(),
        duration: Duration::from_millis(5),
        stopped: None,
    };
    let outputs = parser.end(&ending);
    assert!(outputs.last().is_some_and(is_complete), "{number}: no end");
    assert_eq!(outputs.iter().filter(|output| is_complete(output)).count(), 1, "{number}: two ends");
    for output in outputs {
        if let AgentOutput::Event(event) = output {
            assert_eq!(Event::from_json(&event.to_json()).unwrap(), event, "{number}");
        }
    }
}

fn is_complete(output: &AgentOutput) -> bool {
    matches!(output, AgentOutput::Event(Event::Complete(_)))
}

/// What was printed so far, as far as it allows silence.
#[derive(Default)]
struct Known {
    items: HashSet<String>,
    reconnected: bool,
    started: bool,
}

impl Known {
    /// Says whether a line must give an output: it cannot be read, or holds a part of the conversation.
    fn must_speak(&mut self, case: &Case, line: &[u8]) -> bool {
        if line.trim_ascii().is_empty() {
            return false;
        }
        let line = String::from_utf8_lossy(line);
        if serde_json::from_str::<BTreeMap<String, &RawValue>>(&line).is_err() {
            return true;
        }
        // A number that is too large makes the line unreadable for this test, not for a parser.
        let Ok(object) = serde_json::from_str::<Value>(&line.replace("-1e999", "0")) else {
            return false;
        };
        let kind = text(&object["type"]);
        if case.name.starts_with("claude") {
            return claude_must_speak(kind, &object);
        }
        match kind {
            "error" => {
                self.reconnected |= text(&object["message"]).starts_with("Reconnecting");
                false
            }
            "thread.started" => !std::mem::replace(&mut self.started, true),
            "turn.failed" => true,
            "item.completed" => {
                let item = &object["item"];
                let seen = !self.items.insert(text(&item["id"]).to_owned());
                let is_text = ["agent_message", "reasoning"].contains(&text(&item["type"]));
                let silent = seen
                    || (is_text && (self.reconnected || item["text"] == ""))
                    || !["agent_message", "reasoning", "command_execution", "mcp_tool_call"]
                        .contains(&text(&item["type"]));
                !silent
            }
            _ => false,
        }
    }
}

fn claude_must_speak(kind: &str, line: &Value) -> bool {
    let blocks = line["message"]["content"].as_array().cloned().unwrap_or_default();
    match kind {
        "" | "result" => true,
        "assistant" if text(&line["message"]["model"]) == "<synthetic>" => false,
        "assistant" => blocks.iter().any(|block| match text(&block["type"]) {
            "text" => block["text"] != "",
            "thinking" => block["thinking"] != "",
            "tool_use" => true,
            _ => false,
        }),
        "user" => blocks.iter().any(|block| text(&block["type"]) == "tool_result"),
        "system" => ["api_retry", "hook_response", "compact_boundary"].contains(&text(&line["subtype"])),
        _ => false,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}
