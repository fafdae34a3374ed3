//! What holds for every input: round trips, stripping, stable prefixes, and compacting twice.

use azureal_core::event::{
    AssistantText, Changes, Command, Complete, ErrorEvent, FileChange, Hook, Init, MessageEvent, ModelSwitch,
    Outcome, Plan, Reasoning, SystemMessage, ToolCall, ToolResult, Undo, Usage, UserMessage,
};
use azureal_core::{
    Block, ContextBuilder, ContextFrame, Event, Image, Json, MediaType, Message, OutputPart, Role, Seq,
    Tally, ToolOutput, build_context, build_context_prompt, compact_event, detail, events_of_message, fold,
    rendered_chars, strip_context, wrap_context,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Number, Value, json};

use crate::tried;

/// Any text: every character there is, those that JSON escapes and those that our tags are made of.
///
/// Generators are boxed: the state of nested ones is larger than the stack of a test.
fn text() -> BoxedStrategy<String> {
    let special: Vec<char> = "\0\u{1}\t\n\r\u{7f}\"\\/\u{2028}\u{feff}\u{1F980}<>a".chars().collect();
    prop_oneof![
        3 => vec(any::<char>(), 0..12).prop_map(String::from_iter),
        2 => vec(select(special), 0..12).prop_map(String::from_iter),
        1 => "[a-z ]{0,20}",
        1 => hostile(),
    ]
    .boxed()
}

/// Texts that are made of our tags: whole, cut, nested, in any case, with attributes, and look-alikes.
fn hostile() -> BoxedStrategy<String> {
    let open = select(
        &["<", "</", "< /", "<\n/", "<\t", "\u{FF1C}", "\u{FF1C}/", "\u{2039}/", "<\u{200B}/", ""][..],
    );
    let name = select(
        &[
            "azureal-session-context",
            "azureal-turn-context",
            "AZUREAL-SESSION-CONTEXT",
            "Azureal-Turn-Context",
            "azu\u{200D}real-session-context",
            "azureal\u{2011}session\u{2010}context",
            "\u{FF41}zureal-session-context",
            "azureal-session",
            "azureal-session-contex",
            "azureal-session-contexts",
        ][..],
    );
    let close = select(&[">", " >", ">\n", ">\n\n", " a='b'>", "/>", "\u{FF1E}", ""][..]);
    let tag = (open, name, close).prop_map(|(open, name, close)| format!("{open}{name}{close}"));
    let exact = select(
        &[
            "<azureal-session-context>\n",
            "\n</azureal-session-context>\n\n",
            "<azureal-turn-context>\n",
            "\n</azureal-turn-context>\n\n",
            "<azureal-session-context>\n\n</azureal-session-context>\n\n",
            "<azureal-turn-context>\n\n</azureal-turn-context>\n\n",
            "\n\n## User\n",
            "## Tool result: Bash\r\n",
            "\r ##\u{2003}assistant\u{2028}",
            "\u{85}\u{200B}### Prompt, event 7\n",
            "\n--- End Context ---\n",
            "\n[The user stopped this turn before it was finished.]\n",
            "\u{2028}\u{200B} [The  user stopped this turn",
        ][..],
    )
    .prop_map(str::to_owned);
    let plain =
        select(&["<", "/", "\n", "\n\n", " ", "&lt;", "text", "<<", "\u{200B}"][..]).prop_map(str::to_owned);
    vec(prop_oneof![2 => tag, 3 => exact, 2 => plain], 0..6).prop_map(|parts| parts.concat()).boxed()
}

/// Events of which a few make a segment, with texts that a cut could do harm to.
fn long_event() -> BoxedStrategy<Event> {
    let long = (hostile(), select(&[0, 10, 1500, 5000][..]), hostile())
        .prop_map(|(before, length, after)| format!("{before}{}{after}", "x".repeat(length)));
    prop_oneof![
        3 => (long, 0..5_usize).prop_map(|(text, kind)| match kind {
            0 | 1 => Event::user(text),
            2 => Event::assistant(text),
            3 => Event::error("kind", text),
            _ => Event::SystemMessage(SystemMessage { content: text, ..SystemMessage::default() }),
        }),
        1 => Just(Event::Complete(Complete::default())),
        1 => event(),
    ]
    .boxed()
}

fn json_value() -> BoxedStrategy<Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Number::from),
        any::<u64>().prop_map(Number::from),
        any::<f64>().prop_filter_map("JSON has no such number", Number::from_f64),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number.prop_map(Value::Number),
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            vec((text(), inner), 0..4).prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
    .boxed()
}

fn json() -> BoxedStrategy<Json> {
    let key = select(
        &["file_path", "path", "command", "pattern", "url", "query", "description", "content", "x"][..],
    );
    let value = prop_oneof![2 => output().prop_map(Value::String), 1 => json_value()];
    let as_it_came = [
        r#"{"n": 123456789012345678901234567890}"#,
        r#"{ "a" : [ 1.10 , -0 ] }"#,
        r#"{"command":"first","command":"second"}"#,
        r#"{"lone":"\ud800"}"#,
    ];
    prop_oneof![
        2 => json_value().prop_map(Json::from),
        // The fields that rules look at, with any value.
        4 => vec((key, value), 0..4).prop_map(|fields| {
            let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
            Json::from(Value::Object(Map::from_iter(fields)))
        }),
        // What a tree would change: long numbers, white space, a key twice.
        1 => select(as_it_came.to_vec()).prop_map(|text| text.parse().unwrap()),
    ]
    .boxed()
}

fn image() -> BoxedStrategy<Image> {
    let bytes = vec(any::<u8>(), 0..40);
    (select(&MediaType::ALL[..]), bytes).prop_map(|(media_type, data)| Image { media_type, data }).boxed()
}

fn tool_output() -> BoxedStrategy<ToolOutput> {
    let part = prop_oneof![text().prop_map(OutputPart::Text), image().prop_map(OutputPart::Image),];
    prop_oneof![text().prop_map(ToolOutput::Text), vec(part, 0..4).prop_map(ToolOutput::Parts),].boxed()
}

fn block() -> BoxedStrategy<Block> {
    let result = (text(), tool_output(), any::<bool>());
    prop_oneof![
        3 => text().prop_map(Block::text),
        1 => image().prop_map(Block::Image),
        2 => (text(), text(), json()).prop_map(|(id, name, input)| Block::tool_use(id, name, input)),
        2 => result.prop_map(|(tool_use_id, content, is_error)| Block::ToolResult {
            tool_use_id,
            content,
            is_error,
        }),
    ]
    .boxed()
}

/// A message; often one of the plain ones, whose events lean on each other.
fn message() -> BoxedStrategy<Message> {
    let result = (text(), text()).prop_map(|(id, content)| Block::tool_result(id, content));
    let call = (text(), text(), json()).prop_map(|(id, name, input)| Block::tool_use(id, name, input));
    let of_user = prop_oneof![text().prop_map(Block::text), result];
    let of_assistant = prop_oneof![text().prop_map(Block::text), call];
    prop_oneof![
        vec(of_user, 0..4).prop_map(|content| Message::new(Role::User, content)),
        vec(of_assistant, 0..4).prop_map(|content| Message::new(Role::Assistant, content)),
        text().prop_map(Message::system),
        (select(&Role::ALL[..]), vec(block(), 0..4)).prop_map(|(role, content)| Message::new(role, content)),
    ]
    .boxed()
}

fn tool_name() -> BoxedStrategy<String> {
    let known = [
        "Read",
        "Write",
        "Edit",
        "MultiEdit",
        "NotebookEdit",
        "LS",
        "Bash",
        "Grep",
        "Glob",
        "Task",
        "Agent",
        "WebFetch",
        "WebSearch",
    ];
    let in_any_case = (select(known.to_vec()), any::<u32>()).prop_map(|(name, upper)| {
        let letters = name.chars().enumerate().map(|(index, letter)| match upper >> index & 1 {
            0 => letter.to_ascii_lowercase(),
            _ => letter.to_ascii_uppercase(),
        });
        letters.collect::<String>()
    });
    prop_oneof![
        6 => in_any_case,
        1 => select(&["TaskCreate", "mcp__x", ""][..]).prop_map(str::to_owned),
        1 => text(),
    ]
    .boxed()
}

/// Output of tools: lines that end in every way, few and many.
fn output() -> BoxedStrategy<String> {
    let line = prop_oneof![
        "[a-z]{0,5}",
        Just("[2 lines omitted]".to_owned()),
        Just("No files found".to_owned()),
        Just("\r".to_owned()),
        text(),
        // Around the length from which a line is shortened, in characters of one to four bytes.
        (select(&['x', 'ü', '✓', '\u{1F980}'][..]), prop_oneof![1_990..2_010_usize, Just(5_000)])
            .prop_map(|(c, count)| String::from_iter(std::iter::repeat_n(c, count))),
    ];
    let ending = select(&["\n", "\n", "\r\n", "\n\n"][..]);
    let lines = vec((line, ending), 0..9).prop_map(|lines| {
        let lines = lines.into_iter().map(|(line, ending)| line + ending);
        lines.collect::<String>()
    });
    prop_oneof![
        12 => (lines, text()).prop_map(|(lines, last)| lines + &last),
        1 => (0..2000_usize, "[a-z]{0,9}").prop_map(|(count, line)| format!("{line}\r\n").repeat(count)),
    ]
    .boxed()
}

fn tool_result() -> BoxedStrategy<ToolResult> {
    (tool_name(), output(), prop::bool::weighted(0.2))
        .prop_map(|(tool_name, content, is_error)| ToolResult {
            tool_use_id: "t".to_owned(),
            tool_name,
            content,
            is_error,
            ..ToolResult::default()
        })
        .boxed()
}

fn tool_call() -> BoxedStrategy<ToolCall> {
    (tool_name(), json(), option::of(text()))
        .prop_map(|(tool_name, input, file_path)| ToolCall {
            tool_use_id: "t".to_owned(),
            tool_name,
            file_path,
            input,
            ..ToolCall::default()
        })
        .boxed()
}

/// An event of any kind.
fn event() -> BoxedStrategy<Event> {
    prop_oneof![3 => said(), 1 => silent()].boxed()
}

fn detail() -> BoxedStrategy<Option<String>> {
    option::weighted(0.3, prop_oneof![hostile(), output()]).boxed()
}

/// An event that is part of the conversation.
fn said() -> BoxedStrategy<Event> {
    let starts = || option::of(any::<bool>());
    let subagent = || option::weighted(0.2, text());
    let omitted = option::weighted(0.2, any::<u64>());
    prop_oneof![
        (text(), starts()).prop_map(|(content, starts)| Event::UserMessage(UserMessage { content, starts })),
        (text(), starts(), subagent()).prop_map(|(text, starts, subagent)| {
            Event::AssistantText(AssistantText { text, starts, subagent })
        }),
        (tool_call(), starts(), subagent(), detail()).prop_map(|(call, starts, subagent, detail)| {
            Event::ToolCall(ToolCall { starts, subagent, detail, ..call })
        }),
        (tool_result(), starts(), subagent(), omitted, detail()).prop_map(
            |(result, starts, subagent, omitted, detail)| {
                Event::ToolResult(ToolResult { starts, subagent, omitted, detail, ..result })
            }
        ),
        (text(), text()).prop_map(|(name, content)| Event::Plan(Plan { name, content })),
        text().prop_map(|content| {
            Event::SystemMessage(SystemMessage { content, ..SystemMessage::default() })
        }),
        message().prop_map(|Message { role, content }| Event::Message(MessageEvent { role, content })),
        (text(), text()).prop_map(|(message, kind)| Event::Error(ErrorEvent { message, kind })),
    ]
    .boxed()
}

/// An event that folds to no message.
fn silent() -> BoxedStrategy<Event> {
    let complete = (any::<bool>(), any::<u64>(), -1e9..1e9_f64, any::<bool>());
    prop_oneof![
        (text(), text(), option::of(text())).prop_map(|(cwd, model, agent)| {
            Event::Init(Init {
                cwd,
                model,
                agent_session: agent.clone(),
                requested_model: agent.clone(),
                agent,
            })
        }),
        (text(), text()).prop_map(|(name, output)| Event::Hook(Hook { name, output })),
        text().prop_map(|name| Event::Command(Command { name })),
        (text(), option::of(text()))
            .prop_map(|(model, agent)| Event::ModelSwitch(ModelSwitch { model, agent })),
        (text(), option::of(text()))
            .prop_map(|(text, subagent)| Event::Reasoning(Reasoning { text, subagent })),
        complete.prop_map(|(success, duration_ms, cost_usd, with_usage)| {
            Event::Complete(Complete {
                success,
                duration_ms,
                cost_usd,
                outcome: with_usage.then_some(match duration_ms % 3 {
                    0 => Outcome::Cancelled,
                    1 => Outcome::Timeout,
                    _ => Outcome::Interrupted,
                }),
                usage: with_usage.then_some(Usage { input_tokens: duration_ms, ..Usage::default() }),
                continues: duration_ms % 5 == 0,
                started_at: (duration_ms % 7 == 0).then(|| "2026-01-31T09:30:00Z".to_owned()),
            })
        }),
        (text(), detail()).prop_map(|(path, detail)| {
            let files = vec![FileChange { path, ..FileChange::default() }];
            Event::Changes(Changes { files, detail, ..Changes::default() })
        }),
        (text(), any::<u64>()).prop_map(|(path, turn)| {
            let files = vec![FileChange { path, ..FileChange::default() }];
            Event::Undo(Undo { turn, files, ..Undo::default() })
        }),
        Just(Event::Compacting),
        Just(Event::Compacted),
        unknown().prop_map(|(text, _)| Event::from_json(&text).unwrap()),
    ]
    .boxed()
}

/// The text of an event of a kind that nobody knows, and that kind.
fn unknown() -> BoxedStrategy<(String, String)> {
    let space = || select(&["", " ", "\n", "\t \r\n"][..]);
    let known = [
        "Init",
        "Hook",
        "UserMessage",
        "Command",
        "Plan",
        "AssistantText",
        "ToolCall",
        "ToolResult",
        "Complete",
        "ModelSwitch",
        "SystemMessage",
        "Error",
        "Reasoning",
        "Message",
        "Compacting",
        "Compacted",
    ];
    let kind = prop_oneof![text(), "[A-Z][a-z]{3,8}"]
        .prop_filter("a kind that is known", move |kind| !known.contains(&kind.as_str()));
    (kind, json(), space(), space(), any::<bool>())
        .prop_map(|(kind, payload, a, b, bare)| {
            let name = Value::from(kind.as_str());
            let text = if bare {
                format!("{a}{name}{b}")
            } else {
                format!("{a}{{{b}{name}{a}:{b}{}{a}}}{b}", payload.as_str())
            };
            (text, kind)
        })
        .boxed()
}

proptest! {
    #![proptest_config(tried(1000))]

    #[test]
    fn a_block_is_read_back_as_it_was(block in block()) {
        let json = serde_json::to_string(&block).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Block>(&json).unwrap(), &block);
        // By way of a tree too, where a program has one. A lone surrogate is kept as text; no tree holds it.
        if let Ok(tree) = serde_json::from_str::<Value>(&json) {
            prop_assert_eq!(&serde_json::from_value::<Block>(tree).unwrap(), &block);
        }
    }

    #[test]
    fn a_message_is_read_back_as_it_was(message in message()) {
        let json = serde_json::to_string(&message).unwrap();
        prop_assert!(!json.contains('\n'), "{}", json);
        prop_assert_eq!(serde_json::from_str::<Message>(&json).unwrap(), message);
    }

    #[test]
    fn messages_to_events_to_messages_are_the_same(messages in vec(message(), 0..8)) {
        let events: Vec<Event> = messages.iter().cloned().flat_map(events_of_message).collect();
        prop_assert_eq!(&fold(events.clone()), &messages);
        let stored = events.iter().map(|event| Event::from_json(&event.to_json()).unwrap());
        prop_assert_eq!(&fold(stored), &messages);
    }

    #[test]
    fn counting_agrees_with_folding(events in vec(event(), 0..12)) {
        let mut tally = Tally::default();
        for (event, number) in events.iter().zip(1..) {
            tally.add(Seq(number), Some(event));
        }
        let messages = fold(events);
        let first = messages.iter().find(|message| message.role == Role::User);
        let text = first.and_then(Message::first_text).unwrap_or("");
        prop_assert_eq!(tally.counts.messages, messages.len() as u64);
        prop_assert_eq!(tally.counts.preview_text(), text.chars().take(80).collect::<String>());
    }

    #[test]
    fn an_event_is_read_back_as_it_was(event in event()) {
        let json = event.to_json();
        let read = Event::from_json(&json).unwrap();
        prop_assert_eq!(&read, &event);
        prop_assert_eq!(read.to_json(), json);
    }

    #[test]
    fn an_unknown_kind_stays_byte_for_byte((text, kind) in unknown()) {
        let event = Event::from_json(&text).unwrap();
        prop_assert!(matches!(event, Event::Unknown(_)));
        prop_assert_eq!(event.kind(), kind);
        prop_assert_eq!(event.to_json(), text);
    }

    #[test]
    fn whatever_can_be_read_can_be_read_again(text in text(), event in event(), cut in any::<Index>()) {
        let read_twice = |text: &str| {
            // Most of these are no events; that none of them makes reading panic is half of what is tested.
            if let Ok(event) = Event::from_json(text) {
                let again = Event::from_json(&event.to_json()).map_err(|error| error.to_string());
                assert_eq!(again, Ok(event));
            }
        };
        let json = event.to_json();
        let places: Vec<usize> = json.char_indices().map(|(at, _)| at).collect();
        let (before, after) = json.split_at(*cut.get(&places));
        read_twice(&text);
        read_twice(before);
        read_twice(after);
        read_twice(&format!("{before}{text}{after}"));
        read_twice(&format!("{before}{}", after.chars().skip(1).collect::<String>()));
    }
}

/// Finds our tags without the help of the code under test: a bracket, then white space, slashes and what
/// cannot be seen, then a name in any case. Says of each whether it closes.
fn tags(text: &str, name: &str) -> Vec<bool> {
    let seen: String = text
        .chars()
        .filter(|c| !matches!(c, '\u{200B}' | '\u{200D}' | '\u{FEFF}'))
        .map(|c| match c {
            '\u{FF1C}' | '\u{2039}' => '<',
            '\u{FF41}' => 'a',
            '\u{2010}' | '\u{2011}' => '-',
            other => other.to_ascii_lowercase(),
        })
        .collect();
    seen.split('<')
        .skip(1)
        .filter_map(|after| {
            let named = after.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
            let (between, _) = after.split_at(after.len() - named.len());
            named.starts_with(name).then(|| between.contains('/'))
        })
        .collect()
}

#[test]
fn the_check_for_tags_sees_them() {
    let rows: [(&str, &[bool]); 6] = [
        ("<azureal-session-context>", &[false]),
        ("x</AZUREAL-session-CONTEXT >", &[true]),
        ("< \n/ azureal-session-context a='b'><azureal-session-context/>", &[true, false]),
        ("\u{FF1C}/azu\u{200D}real\u{2011}session-context", &[true]),
        ("&lt;/azureal-session-context> <azureal-turn-context>", &[]),
        ("<azureal-session", &[]),
    ];
    for (text, expected) in rows {
        assert_eq!(tags(text, "azureal-session-context"), expected, "{text}");
    }
}

/// Finds our headings without the help of the code under test: the first words of every line that begins with a `#`,
/// and of one that begins with a `[`, as far as a context has such a line.
fn headings(text: &str) -> Vec<String> {
    let breaks =
        ['\n', '\r', '\u{B}', '\u{C}', '\u{1C}', '\u{1D}', '\u{1E}', '\u{85}', '\u{2028}', '\u{2029}'];
    let names = [
        "tool result",
        "tool error",
        "tool call",
        "system message",
        "summary of what happened before",
        "plan",
        "command",
        "what the user asked in that part",
        "changes during this turn",
        "undo",
        "prompt",
        "user",
        "assistant",
        "error",
        "system",
    ];
    let stopped = "the user stopped this turn";
    text.split(breaks)
        .filter_map(|line| {
            let hidden =
                |c: char| c.is_whitespace() || c.is_control() || matches!(c, '\u{200B}' | '\u{FEFF}');
            let line = line.trim_start_matches(hidden);
            let mark = line.chars().next().filter(|mark| ['#', '['].contains(mark))?;
            let words: Vec<&str> = line.trim_start_matches(mark).split_whitespace().collect();
            let line = words.join(" ").to_lowercase();
            if mark == '[' {
                return line.starts_with(stopped).then(|| stopped.to_owned());
            }
            let name = names.into_iter().find(|name| line.starts_with(name))?;
            let ends = !line[name.len()..].trim_start().starts_with(char::is_alphanumeric);
            ends.then(|| name.to_owned())
        })
        .collect()
}

#[test]
fn the_check_for_headings_sees_them() {
    let text = "## User\n\u{200B} ##  tool\u{2003}Result: x\r### Prompt, event 7\n## User guide\nx ## User\n\\## User\n [The user stopped this turn.]";
    assert_eq!(headings(text), ["user", "tool result", "prompt", "the user stopped this turn"]);
}

fn stripped(sent: &str) -> String {
    strip_context(sent).to_owned()
}

proptest! {
    #![proptest_config(tried(4000))]

    #[test]
    fn stripping_gives_the_prompt_back(
        session in prop_oneof![hostile(), text()],
        turn in prop_oneof![hostile(), text()],
        prompt in prop_oneof![3 => hostile(), 1 => text()],
    ) {
        let sent = build_context_prompt(&session, &prompt);
        prop_assert_eq!(stripped(&sent), prompt.clone());
        let frame = ContextFrame::new(session.as_str(), &turn, &prompt);
        prop_assert_eq!(&frame.prompt, &prompt);
        prop_assert_eq!(stripped(&frame.into_text()), prompt.clone());
        // What was sent once may be pasted as a prompt.
        prop_assert_eq!(stripped(&build_context_prompt(&turn, &sent)), sent.clone());
        prop_assert_eq!(stripped(&ContextFrame::new("", &turn, &sent).into_text()), sent);
    }
}

proptest! {
    #![proptest_config(tried(600))]

    #[test]
    fn a_history_has_one_pair_of_tags(
        events in vec(event(), 0..8),
        system in option::of(hostile()),
        summary in option::of(hostile()),
    ) {
        let context = build_context(system.as_deref(), summary.as_deref(), &events);
        let wrapped = wrap_context(&context);
        let expected: &[bool] = if context.is_empty() { &[] } else { &[false, true] };
        prop_assert_eq!(tags(&wrapped, "azureal-session-context"), expected, "{}", wrapped);
        prop_assert_eq!(tags(&wrapped, "azureal-turn-context"), Vec::<bool>::new(), "{}", wrapped);
        if !context.is_empty() {
            prop_assert!(wrapped.starts_with("<azureal-session-context>\n"));
            prop_assert!(wrapped.ends_with("\n</azureal-session-context>"));
        }
    }

    #[test]
    fn the_headings_of_a_history_are_ours_alone(
        said in vec((0..10_usize, prop_oneof![3 => hostile(), 1 => text()]), 0..8),
        system in option::of(hostile()),
        summary in option::of(hostile()),
    ) {
        let events: Vec<(Event, &str)> = said.iter().cloned().map(|(kind, text)| match kind {
            0 => (Event::user(text), "user"),
            1 => (Event::assistant(text), "assistant"),
            2 => (Event::error("kind", text), "error"),
            3 => (Event::Plan(Plan { name: text.clone(), content: text }), "plan"),
            4 => {
                let call = json!({ "ToolCall": { "tool_name": text, "input": { "command": text } } });
                (Event::from_json(&call.to_string()).unwrap(), "tool call")
            }
            5 => {
                let complete = Complete { outcome: Some(Outcome::Cancelled), ..Complete::default() };
                (Event::Complete(complete), "the user stopped this turn")
            }
            6 => {
                let result = ToolResult { tool_name: text.clone(), content: text, ..ToolResult::default() };
                (Event::ToolResult(result), "tool result")
            }
            7 => {
                let result = ToolResult { detail: Some(text), is_error: true, ..ToolResult::default() };
                (Event::ToolResult(result), "tool error")
            }
            8 => {
                let call = ToolCall { tool_name: "Edit".into(), detail: Some(text), ..ToolCall::default() };
                (Event::ToolCall(call), "tool call")
            }
            _ => {
                let files = vec![FileChange { path: text.clone(), ..FileChange::default() }];
                let changes = Changes { files, detail: Some(text), ..Changes::default() };
                (Event::Changes(changes), "changes during this turn")
            }
        }).collect();
        let context =
            build_context(system.as_deref(), summary.as_deref(), events.iter().map(|(event, _)| event));
        let mut expected = Vec::new();
        expected.extend(system.filter(|system| !system.is_empty()).map(|_| "system message"));
        expected.extend(summary.map(|_| "summary of what happened before"));
        expected.extend(events.iter().map(|(_, heading)| *heading));
        prop_assert_eq!(headings(&context), expected, "{}", context);
        // Each is counted with what it adds to what is sent.
        let mut length = wrap_context(&build_context(None, Some("s"), [])).chars().count() as u64;
        length += events.iter().map(|(event, _)| rendered_chars(event)).sum::<u64>();
        let all = wrap_context(&build_context(None, Some("s"), events.iter().map(|(event, _)| event)));
        prop_assert_eq!(length, all.chars().count() as u64);
    }

    #[test]
    fn a_context_begins_with_the_one_before_it(
        events in vec(event(), 1..10),
        system in option::of(text()),
        summary in option::of(text()),
    ) {
        let build = |count: usize| {
            let events = events.iter().take(count);
            build_context(system.as_deref(), summary.as_deref(), events)
        };
        for count in 0..events.len() {
            let (earlier, later) = (build(count), build(count + 1));
            prop_assert!(later.starts_with(&earlier), "{:?}\n{:?}", earlier, later);
            let (earlier, later) = (wrap_context(&earlier), wrap_context(&later));
            let told = earlier.strip_suffix("</azureal-session-context>").unwrap_or("");
            // The line break before the closing tag is where the next event continues.
            prop_assert!(later.starts_with(told), "{:?}\n{:?}", earlier, later);
            prop_assert!(!told.is_empty() || earlier.is_empty());
        }
    }

    #[test]
    fn sealed_segments_never_change_and_joined_they_are_the_text(
        events in vec(long_event(), 0..12),
        system in option::of(hostile()),
        summary in option::of(hostile()),
        turn in hostile(),
        prompt in hostile(),
    ) {
        let build = |count: usize| {
            let mut context = ContextBuilder::new(system.as_deref(), summary.as_deref());
            events.iter().take(count).for_each(|event| context.push(event));
            context.finish()
        };
        let all = build(events.len());
        let sealed: Vec<&str> = all.sealed().collect();
        for count in 0..=events.len() {
            let context = build(count);
            let earlier: Vec<&str> = context.sealed().collect();
            prop_assert!(sealed.starts_with(&earlier), "after {} events", count);
            prop_assert_eq!(earlier.concat() + context.rest(), context.as_str());
            prop_assert!(earlier.iter().all(|segment| segment.len() >= 4096));
            // As it is sent, too: what looks like a tag is escaped the same in pieces.
            let whole = ContextFrame::new(context.as_str(), &turn, &prompt);
            prop_assert_eq!(&whole.sealed, &Vec::<String>::new());
            let frame = ContextFrame::new(context, &turn, &prompt);
            let later = ContextFrame::new(all.clone(), &turn, &prompt);
            prop_assert!(later.sealed.starts_with(&frame.sealed), "after {} events", count);
            prop_assert_eq!(frame.into_text(), whole.into_text());
        }
    }

    #[test]
    fn compacting_twice_is_compacting_once(event in event(), call in tool_call(), result in tool_result()) {
        for event in [event, Event::ToolCall(call), Event::ToolResult(result)] {
            let once = compact_event(event.clone());
            prop_assert_eq!(&compact_event(once.clone()), &once);
            let stored = Event::from_json(&once.to_json()).unwrap();
            prop_assert_eq!(&compact_event(stored), &once);
            if !matches!(event, Event::ToolCall(_) | Event::ToolResult(_)) {
                prop_assert_eq!(once, event);
            }
        }
    }

    #[test]
    fn each_tool_keeps_of_its_result_what_its_rule_says(result in tool_result()) {
        let Event::ToolResult(kept) = compact_event(Event::ToolResult(result.clone())) else {
            panic!("a result became something else")
        };
        prop_assert!(kept.content.chars().count() <= 5 * 2_000 + 100, "however long it was");
        let (content, omitted) = expected_result(&result);
        prop_assert_eq!(&kept.content, &content);
        prop_assert_eq!(kept.omitted, omitted);
        if let Some(detail) = &kept.detail {
            prop_assert!(result.is_error || result.content.starts_with("Exit code "), "of a call that failed");
            prop_assert!(detail.chars().count() <= detail::MOST_CHARS);
            prop_assert!(detail != &content);
        }
        let rest = ToolResult { content: result.content.clone(), omitted: None, detail: None, ..kept };
        prop_assert_eq!(rest, result);
    }

    #[test]
    fn each_tool_keeps_of_its_call_what_its_rule_says(call in tool_call()) {
        let Event::ToolCall(kept) = compact_event(Event::ToolCall(call.clone())) else {
            panic!("a call became something else")
        };
        // A lone surrogate is kept as text, and there is no tree to compare with.
        let Ok(before) = call.input.read::<Value>() else { return Ok(()) };
        let after: Value = kept.input.read().unwrap();
        match call.tool_name.to_ascii_lowercase().as_str() {
            "edit" | "multiedit" => {
                prop_assert_eq!(after, before);
                prop_assert_eq!(kept.omitted, None);
            }
            "write" if before.get("content").is_some_and(Value::is_string) => {
                let content = before.get("content").and_then(Value::as_str).unwrap();
                let lines = content.lines().count();
                let first = content.lines().map(str::trim).find(|line| line.contains(char::is_alphanumeric));
                let path = key_field(&before, &["file_path", "path"]);
                let first = short(first.unwrap_or(""));
                let counted = [("line_count", Value::from(lines)), ("first_line", first.into())];
                let expected = path.into_iter().chain(counted);
                prop_assert_eq!(after, object(expected));
                prop_assert_eq!(kept.omitted, Some(lines as u64));
            }
            tool => {
                let names: &[&'static str] = match tool {
                    "read" | "write" | "notebookedit" | "ls" => &["file_path", "path"],
                    "bash" => &["command"],
                    "grep" | "glob" => &["pattern"],
                    "webfetch" => &["url"],
                    "websearch" => &["query"],
                    "task" | "agent" => &["description"],
                    _ => &["file_path", "path", "command", "query", "pattern", "url"],
                };
                prop_assert_eq!(after, object(key_field(&before, names)));
                prop_assert_eq!(kept.omitted, None);
            }
        }
    }
}

/// Returns the first of these fields that an input has.
fn key_field(input: &Value, names: &[&'static str]) -> Option<(&'static str, Value)> {
    names.iter().find_map(|name| Some((*name, input.get(name)?.clone())))
}

fn object(fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
    Value::Object(fields.collect())
}

/// What the rule of a tool leaves of its result, and how much it says was left out. Written from the rules,
/// by splitting at `\n` rather than with the function that the code uses.
fn expected_result(result: &ToolResult) -> (String, Option<u64>) {
    let lines = lines(&result.content);
    let (head, tail) = match result.tool_name.to_ascii_lowercase().as_str() {
        "glob" if !result.is_error => {
            let none = result.content.trim().eq_ignore_ascii_case("no files found");
            let files = if none { 0 } else { lines.iter().filter(|line| !line.trim().is_empty()).count() };
            let plural = if files == 1 { "" } else { "s" };
            return (format!("{files} file{plural}"), Some(files as u64));
        }
        "read" => (1, 1),
        "bash" => (0, 2),
        "task" | "agent" => (5, 0),
        _ => (3, 0),
    };
    let count = lines.len();
    if count <= head + tail {
        if lines.iter().all(|line| short(line) == *line) {
            return (result.content.clone(), None);
        }
        return (lines.iter().map(|line| short(line)).collect::<Vec<_>>().join("\n"), Some(0));
    }
    let omitted = count - head - tail;
    let plural = if omitted == 1 { "" } else { "s" };
    let marker = format!("[{omitted} line{plural} omitted]");
    let kept: Vec<String> = lines
        .iter()
        .take(head)
        .copied()
        .chain([marker.as_str()])
        .chain(lines.iter().skip(count - tail).copied())
        .map(short)
        .collect();
    (kept.join("\n"), Some(omitted as u64))
}

/// A line of more than 2,000 characters without its middle.
fn short(line: &str) -> String {
    let chars: Vec<char> = line.chars().collect();
    if chars.len() <= 2_000 {
        return line.to_owned();
    }
    let head: String = chars.iter().take(900).collect();
    let tail: String = chars.iter().skip(chars.len() - 900).collect();
    format!("{head}[{} characters omitted]{tail}", chars.len() - 1_800)
}

/// Splits a text into lines. A carriage return before a line break belongs to it, and what stands after the
/// last break is a line only if it is not empty.
fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    let rest = lines.pop().filter(|rest| !rest.is_empty());
    lines.into_iter().map(|line| line.strip_suffix('\r').unwrap_or(line)).chain(rest).collect()
}
