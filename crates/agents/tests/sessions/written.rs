//! Sessions that are written in the formats of the agents, and read again.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use azureal_agents::native::{self, NativeConversation, NativeTurn, NativeWriter, Placement};
use azureal_agents::opencode::OpencodeReader;
use azureal_core::event::{ToolCall, ToolResult};
use azureal_core::{Block, Event, MediaType, Message, OutputPart, Role, ToolOutput, Uuid, compact_event};
use azureal_testkit::thorough;
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::cases;

const CWD: &str = "/dev-home/project";

/// What a conversation consists of, as the reader of each format finds it.
#[derive(Debug, PartialEq)]
enum Found {
    Prompt(String),
    Text(String),
    Call { id: String, tool: String, input: Value },
    Result { id: String, content: String, is_error: bool },
}

fn started() -> Timestamp {
    "2026-01-31T09:30:00Z".parse().unwrap()
}

fn session<'a>(id: &'a str, messages: &'a [Message]) -> NativeConversation<'a> {
    NativeConversation {
        id,
        cwd: Path::new(CWD),
        started: started(),
        updated: started(),
        title: Some("The title"),
        settings: Some("model_provider = \"mine\""),
        messages,
    }
}

fn written(writer: &dyn NativeWriter, session: &NativeConversation<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    writer.write(session, &mut out).unwrap();
    out
}

/// Returns the parts of a conversation that its messages have.
fn expected(messages: &[Message]) -> Vec<Found> {
    let mut found = Vec::new();
    let mut tools = HashMap::new();
    for message in messages {
        let mut said: Vec<String> = Vec::new();
        for block in &message.content {
            match block {
                Block::Text { text } if message.role == Role::User => said.push(text.clone()),
                Block::Text { text } => match found.last_mut() {
                    Some(Found::Text(before)) => *before = format!("{before}\n\n{text}"),
                    _ => found.push(Found::Text(text.clone())),
                },
                Block::ToolUse { id, name, input } => {
                    tools.insert(id, name);
                    let (tool_use_id, tool_name) = (id.clone(), name.clone());
                    let call =
                        ToolCall { tool_use_id, tool_name, input: input.clone(), ..ToolCall::default() };
                    found.extend(of_event(compact_event(Event::ToolCall(call))));
                }
                Block::ToolResult { tool_use_id, content, is_error } => {
                    let result = ToolResult {
                        tool_use_id: tool_use_id.clone(),
                        tool_name: tools[tool_use_id].clone(),
                        content: content.text().into_owned(),
                        is_error: *is_error,
                        ..ToolResult::default()
                    };
                    found.extend(of_event(compact_event(Event::ToolResult(result))));
                }
                Block::Image(_) => {}
            }
        }
        if !said.is_empty() {
            found.push(Found::Prompt(said.join("\n\n")));
        }
    }
    found
}

fn of_event(event: Event) -> Option<Found> {
    Some(match event {
        Event::UserMessage(message) => Found::Prompt(message.content),
        Event::AssistantText(said) => Found::Text(said.text),
        Event::ToolCall(call) => {
            Found::Call { id: call.tool_use_id, tool: call.tool_name, input: call.input.read().unwrap() }
        }
        Event::ToolResult(result) => {
            Found::Result { id: result.tool_use_id, content: result.content, is_error: result.is_error }
        }
        _ => return None,
    })
}

/// Writes a session into a home, and reads it from there.
fn round_trip(writer: &dyn NativeWriter, messages: &[Message]) -> Vec<Found> {
    let id = writer.session_id(Uuid::from_u128(0x0123_4567_89ab_4def_8123_4567_89ab_cdef));
    let session = session(&id, messages);
    let bytes = written(writer, &session);
    assert_eq!(bytes, written(writer, &session), "a session has the same bytes again");
    let home = tempfile::tempdir().unwrap();
    let turns = match writer.placement(home.path(), &session).unwrap() {
        Placement::File(path) => {
            let mut files = writer.companions(&path, &session);
            files.push((path.clone(), bytes));
            for (path, content) in files {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            let source = native::recognise(&path).unwrap().unwrap();
            assert_eq!(source.agent(), writer.agent());
            let home = cases::open(writer.agent(), home.path());
            let found: Vec<_> = home.sessions(Some(Path::new(CWD))).map(|found| found.unwrap()).collect();
            assert_eq!(found.len(), 1);
            let head = home.head(&found[0]).unwrap();
            assert_eq!((head.id.as_str(), head.cwd), (id.as_str(), Some(PathBuf::from(CWD))));
            assert_eq!(head.started, Some(started()));
            assert!(!head.is_headless && !head.is_subagent);
            if writer.agent() != "codex" {
                assert_eq!(head.title.as_deref(), Some("The title"));
            }
            cases::read(&*home, &found[0])
        }
        Placement::Import(_) => imported(&id, &bytes),
    };
    for turn in &turns {
        assert!(turn.problems.is_empty(), "{:?}", turn.problems);
        let other = writer.session_id(Uuid::from_u128(7));
        assert!(writer.wrote(&id, &turn.id) && !writer.wrote(&other, &turn.id), "{}", turn.id);
    }
    turns.into_iter().flat_map(|turn| turn.events).filter_map(of_event).collect()
}

/// Reads what opencode imports, as its database has it then.
fn imported(id: &str, bytes: &[u8]) -> Vec<NativeTurn> {
    let export: Value = serde_json::from_slice(bytes).unwrap();
    assert_eq!(export["info"]["id"], id);
    assert_eq!(export["info"]["directory"], CWD);
    assert_eq!(export["info"]["title"], "The title");
    let mut reader = OpencodeReader::new(id, CWD);
    let mut ids = HashSet::new();
    for message in export["messages"].as_array().unwrap() {
        let name = message["info"]["id"].as_str().unwrap();
        assert!(ids.insert(name.to_owned()));
        reader.message(name, &message["info"].to_string());
        for part in message["parts"].as_array().unwrap() {
            let name = part["id"].as_str().unwrap();
            assert!(ids.insert(name.to_owned()));
            reader.part(name, &part.to_string());
        }
    }
    reader.finish();
    std::iter::from_fn(|| reader.take()).collect()
}

/// A text: lines, words that a program may take for commands, and any characters. It begins with none that belongs to a tag.
fn text() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "[a-z]{1,8}",
        Just("@hello.txt".to_owned()),
        Just("/help".to_owned()),
        Just("$HOME".to_owned()),
        Just("<b>\"\\\u{1b}[0m".to_owned()),
        "\\PC{1,5}",
    ];
    let words = prop::collection::vec((word, prop_oneof![Just(" "), Just("\n"), Just("\n\n")]), 0..6);
    ("[a-zA-Z@/$]", words).prop_map(|(first, words)| {
        let rest: String = words.into_iter().map(|(word, space)| format!("{word}{space}")).collect();
        format!("{first}{rest}").trim_end().to_owned()
    })
}

/// A call, and its result.
fn call() -> impl Strategy<Value = Call> {
    let tool = prop_oneof![
        Just(("Bash", json!({"command": "cargo test"}))),
        Just(("Read", json!({"file_path": "/dev-home/project/a.rs"}))),
        Just(("Grep", json!({"pattern": "x"}))),
        Just(("mcp__files__list", json!({"path": "a"}))),
    ];
    (tool, "[a-z0-9 ]{1,20}[a-z]", any::<bool>(), any::<bool>()).prop_map(
        |((tool, input), content, is_error, has_code)| {
            let content = match tool == "Bash" && is_error && has_code {
                true => format!("Exit code 3\n{content}"),
                false => content,
            };
            (tool, input, content, is_error)
        },
    )
}

/// The tool of a call, its input, its result and whether that is an error.
type Call = (&'static str, Value, String, bool);
/// A prompt, calls with a text before them, and an answer.
type Turn = (String, Vec<(Option<String>, Vec<Call>)>, String);

fn turn() -> impl Strategy<Value = Turn> {
    let step = (prop::option::of(text()), prop::collection::vec(call(), 1..3));
    (text(), prop::collection::vec(step, 0..3), text())
}

/// A conversation as providers require it.
fn conversation() -> impl Strategy<Value = Vec<Message>> {
    prop::collection::vec(turn(), 1..4).prop_map(|turns| {
        let mut messages = Vec::new();
        let mut count = 0;
        for (prompt, steps, answer) in turns {
            messages.push(Message::user(prompt));
            for (said, calls) in steps {
                let mut asked: Vec<Block> = said.map(Block::text).into_iter().collect();
                let mut results = Vec::new();
                for (tool, input, content, is_error) in calls {
                    count += 1;
                    let tool_use_id = format!("call_{count}");
                    asked.push(Block::tool_use(tool_use_id.clone(), tool, input));
                    results.push(Block::ToolResult {
                        tool_use_id,
                        content: ToolOutput::Text(content),
                        is_error,
                    });
                }
                messages.push(Message::new(Role::Assistant, asked));
                messages.push(Message::new(Role::User, results));
            }
            messages.push(Message::assistant(answer));
        }
        messages
    })
}

#[test]
fn what_is_written_is_read_again() {
    let mut runner =
        TestRunner::new(Config { cases: thorough(40, 500), failure_persistence: None, ..Config::default() });
    let checked = runner.run(&conversation(), |messages| {
        for writer in native::writers() {
            let mut expected = expected(&messages);
            if writer.agent() == "codex" {
                // A rollout has no field for the failure of a tool but a command.
                mark_failures(&mut expected);
            }
            prop_assert_eq!(paired(round_trip(*writer, &messages)), paired(expected), "{}", writer.agent());
        }
        Ok(())
    });
    checked.unwrap();
}

/// Puts each result behind its call: some formats have no order between calls of the same answer and their results.
fn paired(found: Vec<Found>) -> Vec<Found> {
    let (results, others): (Vec<Found>, Vec<Found>) =
        found.into_iter().partition(|found| matches!(found, Found::Result { .. }));
    let mut results: HashMap<String, Found> = results
        .into_iter()
        .map(|found| match &found {
            Found::Result { id, .. } => (id.clone(), found),
            _ => unreachable!(),
        })
        .collect();
    let mut all = Vec::new();
    for found in others {
        let result = match &found {
            Found::Call { id, .. } => results.remove(id),
            _ => None,
        };
        all.push(found);
        all.extend(result);
    }
    all.extend(results.into_values());
    all
}

fn mark_failures(found: &mut [Found]) {
    let commands: Vec<String> = found
        .iter()
        .filter_map(|found| match found {
            Found::Call { id, tool, .. } if tool == "Bash" => Some(id.clone()),
            _ => None,
        })
        .collect();
    for found in found {
        if let Found::Result { id, content, is_error } = found
            && *is_error
            && !commands.contains(id)
        {
            (*content, *is_error) = (format!("Error: {content}"), false);
        }
    }
}

#[test]
fn pictures_and_a_prompt_behind_results_are_kept() {
    let picture = || Block::image(MediaType::Png, *b"\x89PNG");
    let shown = ToolOutput::Parts(vec![
        OutputPart::Text("seen".to_owned()),
        OutputPart::Image(azureal_core::Image { media_type: MediaType::Png, data: b"\x89PNG".to_vec() }),
    ]);
    let messages = [
        Message::new(Role::User, [Block::text("Look"), picture(), Block::image(MediaType::Wav, *b"RIFF")]),
        Message::new(
            Role::Assistant,
            [
                Block::text("a"),
                Block::text("b"),
                Block::tool_use("t", "Read", json!({"file_path": "/a.png"})),
            ],
        ),
        Message::new(
            Role::User,
            [
                Block::ToolResult { tool_use_id: "t".to_owned(), content: shown, is_error: false },
                Block::text("[system: it broke]"),
                Block::text("Again"),
            ],
        ),
        Message::assistant("Yes."),
    ];
    for writer in native::writers() {
        let id = writer.session_id(Uuid::from_u128(7));
        let file = String::from_utf8(written(*writer, &session(&id, &messages))).unwrap();
        assert_eq!(file.matches("iVBORw==").count(), 2, "{}: {file}", writer.agent());
        assert!(file.contains("[audio: audio/wav, 4 bytes]"), "{file}");
        let found = round_trip(*writer, &messages);
        let prompts: Vec<&str> = found
            .iter()
            .filter_map(|found| match found {
                Found::Prompt(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert!(prompts[0].starts_with("Look"), "{}: {prompts:?}", writer.agent());
        assert_eq!(prompts[1..], ["[system: it broke]\n\nAgain"], "{}", writer.agent());
        assert!(found.contains(&Found::Text("a\n\nb".to_owned())), "{}: {found:?}", writer.agent());
        assert_eq!(found.last(), Some(&Found::Text("Yes.".to_owned())));
    }
}

#[test]
fn a_rollout_has_the_configured_provider_and_no_empty_text() {
    let writer = native::writer("codex").unwrap();
    let messages =
        [Message::new(Role::User, [Block::image(MediaType::Png, *b"\x89PNG")]), Message::assistant("A dot.")];
    let provider = |settings| {
        let bytes = written(writer, &NativeConversation { settings, ..session("0123456789", &messages) });
        let lines: Vec<Value> = bytes.split(|byte| *byte == b'\n').flat_map(serde_json::from_slice).collect();
        let prompt = lines.iter().find(|line| line["payload"]["role"] == "user").unwrap();
        let content = prompt["payload"]["content"].as_array().unwrap();
        assert_eq!((content.len(), &content[0]["type"]), (1, &json!("input_image")), "{prompt}");
        lines[0]["payload"]["model_provider"].clone()
    };
    assert_eq!(provider(Some("model_provider = \"mine\"")), "mine");
    for settings in [None, Some(""), Some("no TOML")] {
        assert_eq!(provider(settings), "openai");
    }
}

#[test]
fn a_folder_is_named_as_javascript_counts_characters() {
    let messages = [Message::user("Hello")];
    for (agent, folder) in [("claude", "projects/-p----x"), ("qwen", "projects/-p----x/chats")] {
        let cwd = Path::new("/p\u{1f600}\u{e9}/x");
        let session = NativeConversation { cwd, ..session("1", &messages) };
        let placement = native::writer(agent).unwrap().placement(Path::new("/home"), &session).unwrap();
        let file = Path::new("/home").join(folder).join("1.jsonl");
        assert_eq!(placement, Placement::File(file), "{agent}");
    }
}

#[test]
fn a_project_of_gemini_keeps_its_folder() {
    let home = tempfile::tempdir().unwrap();
    let tmp = home.path().join("tmp");
    let writer = native::writer("gemini").unwrap();
    let messages = [Message::user("Hello")];
    let session = session("0123456789", &messages);
    let place = || match writer.placement(home.path(), &session).unwrap() {
        Placement::File(path) => path,
        Placement::Import(_) => unreachable!(),
    };
    let name = "session-1769851800000-01234567-azureal.jsonl";
    assert_eq!(place(), tmp.join("project/chats").join(name));
    assert_eq!(writer.companions(&place(), &session), [(tmp.join("project/.project_root"), CWD.into())]);
    // A folder of another project.
    fs::create_dir_all(tmp.join("project")).unwrap();
    fs::write(tmp.join("project/.project_root"), "/dev-home/other/project").unwrap();
    assert_eq!(place(), tmp.join("project-1/chats").join(name));
    // A folder of its own, under any name.
    fs::create_dir_all(tmp.join("abc")).unwrap();
    fs::write(tmp.join("abc/.project_root"), CWD).unwrap();
    assert_eq!(place(), tmp.join("abc/chats").join(name));
    fs::write(home.path().join("projects.json"), json!({"projects": {CWD: "listed"}}).to_string()).unwrap();
    assert_eq!(place(), tmp.join("listed/chats").join(name));
    fs::write(home.path().join("projects.json"), json!({"projects": {CWD: "../../up"}}).to_string()).unwrap();
    assert_eq!(place(), tmp.join("abc/chats").join(name));
}
