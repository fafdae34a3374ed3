//! Streams that are broken in every way that a disk, a crash or a new version could break them.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use azureal_core::Event;
use azureal_core::agent::{AgentOutput, Ending, Exit};
use azureal_testkit::thorough;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cases::{self, Case};
use crate::random::Random;

#[test]
fn broken_streams_cost_no_line_and_no_panic() {
    let cases: Vec<Case> =
        cases::all().into_iter().filter(|case| (1..16 * 1024).contains(&case.stdout.len())).collect();
    let mut random = Random(0x5EED);
    for number in 0..thorough(10_000, 200_000) {
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
    match random.below(11) {
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
        8 => {
            let broken = [&b"\xC3\x28"[..], b"\xED\xA0\x80", b"\xF0\x9F\xA6", b"\x80"][random.below(4)];
            stream.splice(at..at, broken.iter().copied());
        }
        9 => replace(
            stream,
            b":{",
            &[b":", &nested([3, 120, 4000][random.below(3)])[..], b",\"y\":{"].concat(),
            random,
        ),
        _ => double_or_drop_a_line(stream, random),
    }
}

/// Makes JSON that is so deep.
fn nested(depth: usize) -> Vec<u8> {
    [vec![b'['; depth], vec![b']'; depth]].concat()
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
    let (mut said, mut readable) = (Vec::new(), Vec::new());
    let mut rest = stream;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        let outputs = parser.line(line);
        let lost = match known.duty(case, line) {
            Duty::None => false,
            Duty::Speak => outputs.is_empty(),
            Duty::Say(texts) => !texts.iter().all(|text| outputs.iter().any(|output| says(output, text))),
        };
        assert!(!lost, "stream {number} ({}) lost {}", case.name, String::from_utf8_lossy(line));
        assert!(!outputs.iter().any(is_complete), "{number}: an end before the end");
        if !is_unreadable(line) {
            readable.extend_from_slice(line);
            readable.push(b'\n');
        }
        said.extend(outputs);
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
    said.extend(outputs);
    for output in &said {
        if let AgentOutput::Event(event) = output {
            assert_eq!(Event::from_json(&event.to_json()).unwrap(), *event, "{number}");
        }
    }

    // A line that cannot be read costs itself: all others say what they say without it.
    said.retain(|output| !tells_of_no_object(output));
    let mut parser = case.agent.parser();
    let lines = readable.split_inclusive(|byte| *byte == b'\n').map(|line| &line[..line.len() - 1]);
    let mut without: Vec<AgentOutput> = lines.flat_map(|line| parser.line(line)).collect();
    without.extend(parser.end(&ending));
    assert!(said == without, "stream {number} ({}): a broken line changed others", case.name);
}

/// Returns whether no parser can read a line: it is no JSON object.
fn is_unreadable(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    !line.trim_ascii().is_empty() && serde_json::from_str::<BTreeMap<String, &RawValue>>(&line).is_err()
}

fn tells_of_no_object(output: &AgentOutput) -> bool {
    matches!(output, AgentOutput::Event(Event::Error(error)) if error.message.contains("is not a JSON object"))
}

fn says(output: &AgentOutput, text: &str) -> bool {
    match output {
        AgentOutput::Event(Event::AssistantText(said)) => said.text == text,
        AgentOutput::Event(Event::Reasoning(thought)) => thought.text == text,
        AgentOutput::Event(Event::ToolCall(call)) => call.tool_use_id == text,
        AgentOutput::Event(Event::ToolResult(result)) => result.tool_use_id == text,
        AgentOutput::Event(Event::Error(error)) => error.message == text,
        _ => false,
    }
}

fn is_complete(output: &AgentOutput) -> bool {
    matches!(output, AgentOutput::Event(Event::Complete(_)))
}

/// What a line has to lead to.
enum Duty {
    /// Nothing: the parser passes over it, or may.
    None,
    /// Some output: an error if nothing else.
    Speak,
    /// The events with these texts, or with these ids of tool calls.
    Say(Vec<String>),
}

/// What was printed so far, as far as it allows silence.
#[derive(Default)]
struct Known {
    items: HashSet<String>,
    reconnected: bool,
    started: bool,
}

impl Known {
    fn duty(&mut self, case: &Case, line: &[u8]) -> Duty {
        if line.trim_ascii().is_empty() {
            return Duty::None;
        }
        if is_unreadable(line) {
            return Duty::Speak;
        }
        // A number that is too large and what is too deep are unreadable for this test, not for a parser.
        let line = String::from_utf8_lossy(line).replace("-1e999", "0");
        let line = line
            .replace(str::from_utf8(&nested(4000)).unwrap(), "[]")
            .replace(str::from_utf8(&nested(120)).unwrap(), "[]");
        let Ok(object) = serde_json::from_str::<Value>(&line) else {
            return Duty::None;
        };
        let kind = text(&object["type"]);
        if case.name.starts_with("claude") {
            return claude_duty(kind, &object);
        }
        match kind {
            "error" => {
                self.reconnected |= text(&object["message"]).starts_with("Reconnecting");
                Duty::None
            }
            "thread.started" if !std::mem::replace(&mut self.started, true) => Duty::Speak,
            "turn.failed" => Duty::Speak,
            "item.completed" => self.item_duty(&object["item"]),
            _ => Duty::None,
        }
    }

    fn item_duty(&mut self, item: &Value) -> Duty {
        let id = text(&item["id"]);
        if !self.items.insert(id.to_owned()) {
            return Duty::None;
        }
        match text(&item["type"]) {
            // What comes again after a broken connection is not said twice.
            "agent_message" | "reasoning" if self.reconnected || item["text"] == "" => Duty::None,
            "agent_message" | "reasoning" => said_or_told(&item["text"]),
            "command_execution" | "mcp_tool_call" if id.is_empty() => Duty::Speak,
            "command_execution" | "mcp_tool_call" => Duty::Say(vec![id.to_owned()]),
            _ => Duty::None,
        }
    }
}

fn claude_duty(kind: &str, line: &Value) -> Duty {
    let blocks = line["message"]["content"].as_array().cloned().unwrap_or_default();
    let of_blocks = |duty: fn(&Value) -> Duty| {
        let mut texts = Vec::new();
        let mut speaks = false;
        for block in &blocks {
            match duty(block) {
                Duty::None => {}
                Duty::Speak => speaks = true,
                Duty::Say(said) => texts.extend(said),
            }
        }
        match (texts.is_empty(), speaks) {
            (false, _) => Duty::Say(texts),
            (true, true) => Duty::Speak,
            (true, false) => Duty::None,
        }
    };
    match kind {
        "" | "result" => Duty::Speak,
        // What the program says itself waits for what comes after it.
        "assistant" if text(&line["message"]["model"]) == "<synthetic>" => Duty::None,
        "assistant" => of_blocks(|block| match text(&block["type"]) {
            "text" if block["text"] != "" => said_or_told(&block["text"]),
            "thinking" if block["thinking"] != "" => said_or_told(&block["thinking"]),
            "tool_use" => said_or_told(&block["id"]),
            _ => Duty::None,
        }),
        "user" => of_blocks(|block| match text(&block["type"]) {
            "tool_result" => said_or_told(&block["tool_use_id"]),
            _ => Duty::None,
        }),
        "system" if ["api_retry", "hook_response", "compact_boundary"].contains(&text(&line["subtype"])) => {
            Duty::Speak
        }
        _ => Duty::None,
    }
}

/// A text is said as it is; in the place of something else there is at least an error.
fn said_or_told(value: &Value) -> Duty {
    value.as_str().map_or(Duty::Speak, |text| Duty::Say(vec![text.to_owned()]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}
