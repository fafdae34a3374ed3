//! Exports of every recording of the real agents, and of one session with every kind of event, against what each format promises.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use azureal::exchange::{ExportFormat, ExportOptions, export};
use azureal::json::SESSION_SCHEMA;
use azureal_agents::registry;
use azureal_core::agent::{AgentOutput, Ending, Exit};
use azureal_core::{
    Compaction, Event, EventSource, NewSession, Page, Seq, SessionId, SessionStore, StoreError, StoredEvent,
    append_events,
};
use azureal_store::MemoryStore;
use azureal_testkit::thorough;
use boon::{Compiler, SchemaIndex, Schemas};
use comrak::nodes::NodeValue;
use futures_executor::block_on;
use serde_json::{Value, json};

use crate::world::World;

fn folders(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// Returns the events of every recorded run, with its name.
fn recordings() -> Vec<(String, Vec<Event>)> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agents/tests/fixtures");
    let mut found = Vec::new();
    for agent in folders(&fixtures) {
        for run in folders(&agent).iter().flat_map(|version| folders(version)) {
            let name = agent.file_name().unwrap().to_str().unwrap();
            let mut parser = registry::find(name).unwrap().parser();
            let output = fs::read(run.join("stdout.jsonl")).unwrap();
            let mut outputs: Vec<AgentOutput> =
                output.split(|byte| *byte == b'\n').flat_map(|line| parser.line(line)).collect();
            outputs.extend(parser.end(&Ending {
                exit: Some(Exit::Code(0)),
                duration: Duration::from_secs(1),
                ..Ending::default()
            }));
            let events = outputs.into_iter().filter_map(|output| match output {
                AgentOutput::Event(event) => Some(event),
                _ => None,
            });
            let events = [Event::user("Do it")].into_iter().chain(events).collect();
            found.push((run.display().to_string(), events));
        }
    }
    assert!(found.len() > 150, "only {} recordings were found", found.len());
    found
}

/// One event of every kind, with all fields, with none, and of kinds that no build knows.
fn every_kind() -> Vec<Event> {
    let file = json!({"path": "a", "status": "renamed", "from": "b", "added": 1, "removed": 2});
    let changes = json!({"worktree": ".", "before": "x", "after": "y", "files": [file], "directories": [{"path": "d", "files": 3}],
        "during": ["u"], "skipped": [{"path": "p", "reason": "r"}], "late": true, "detail": "--- a\n+++ b\n"});
    let blocks = json!([
        {"type": "text", "text": "t"},
        {"type": "image", "media_type": "image/png", "data": "AQID"},
        {"type": "audio", "media_type": "audio/wav", "data": "AQID"},
        {"type": "tool_use", "id": "i", "name": "n", "input": null},
        {"type": "tool_result", "tool_use_id": "i", "content": [{"type": "text", "text": "x"}, {"type": "video", "media_type": "video/mp4", "data": ""}], "is_error": true},
        {"type": "tool_result", "tool_use_id": "j", "content": "x"},
    ]);
    let usage = json!({"input_tokens": u64::MAX, "output_tokens": 2, "cache_read_tokens": 3, "cache_write_tokens": 4, "context_tokens": 5});
    let whole = [
        json!({"Init": {"cwd": "c", "model": "m", "agent": "claude", "agent_session": "s", "requested_model": "r"}}),
        json!({"Hook": {"name": "n", "output": "o"}}),
        json!({"UserMessage": {"content": "c", "starts": true}}),
        json!({"Command": {"name": "n"}}),
        json!({"Plan": {"name": "n", "content": "c"}}),
        json!({"AssistantText": {"text": "t", "starts": true, "subagent": "s"}}),
        json!({"ToolCall": {"tool_use_id": "i", "tool_name": "Bash", "file_path": "f", "input": {"n": 1.50}, "omitted": 1, "detail": "d", "starts": true, "subagent": "s"}}),
        json!({"ToolResult": {"tool_use_id": "i", "tool_name": "Bash", "file_path": "f", "content": "c", "is_error": true, "omitted": 1, "detail": "d", "starts": true, "subagent": "s"}}),
        json!({"Complete": {"success": true, "duration_ms": 1, "cost_usd": 0.5, "outcome": "timeout", "usage": usage, "continues": true}}),
        json!({"ModelSwitch": {"model": "m", "agent": "a"}}),
        json!("Compacting"),
        json!("Compacted"),
        json!({"SystemMessage": {"content": "c", "context_executed_at": "t", "context_commands": [{"name": "n", "command": "c", "exit_code": null, "duration_ms": 1}]}}),
        json!({"Error": {"message": "m", "kind": "k"}}),
        json!({"Reasoning": {"text": "t", "subagent": "s"}}),
        json!({"Message": {"role": "user", "content": blocks}}),
        json!({"Changes": changes}),
        json!({"Undo": {"of": 1, "turn": 2, "redo": true, "before": "x", "after": "y", "files": [], "directories": []}}),
        json!({"Telemetry": {"cpu": 0.50}}),
        json!({"UserMessage": {}}),
        json!({"ToolCall": {"extra": [1]}}),
    ];
    whole.iter().map(|event| Event::from_json(&event.to_string()).unwrap()).collect()
}

fn stored(events: Vec<Event>) -> (MemoryStore, SessionId) {
    let store = MemoryStore::default();
    let id = block_on(store.create(NewSession::default())).unwrap();
    block_on(append_events(&store, id, events)).unwrap();
    let summary = Compaction::new(Seq(1), "s");
    block_on(store.add_compaction(id, &summary)).unwrap();
    (store, id)
}

fn exported((store, id): &(MemoryStore, SessionId), format: ExportFormat) -> String {
    let record = block_on(store.get(*id)).unwrap();
    let mut out = Vec::new();
    block_on(export(store, &record, ExportOptions::new(format), &mut out)).unwrap();
    String::from_utf8(out).unwrap()
}

fn schema() -> (Schemas, SchemaIndex) {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("session.json", serde_json::from_str(SESSION_SCHEMA).unwrap()).unwrap();
    let index = compiler.compile("session.json", &mut schemas).unwrap();
    (schemas, index)
}

#[test]
fn every_export_as_json_follows_the_schema() {
    let (schemas, index) = schema();
    let mut sessions = recordings();
    sessions.push(("every kind".to_owned(), every_kind()));
    for (name, events) in sessions {
        let export: Value = serde_json::from_str(&exported(&stored(events), ExportFormat::Json)).unwrap();
        if let Err(error) = schemas.validate(&export, index) {
            panic!("{name}: {error:#}");
        }
    }
}

#[test]
fn an_event_that_cannot_be_read_is_exported_as_it_is_and_reported() {
    let (schemas, index) = schema();
    let texts = [
        r#"{"UserMessage":{"content":5}}"#,
        r#"{"Message":{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]}}"#,
        r#"{"Message":{"role":"user","content":[{"type":"image","media_type":"image/new","data":"AQID"}]}}"#,
    ];
    let store = MemoryStore::default();
    let id = block_on(store.create(NewSession::default())).unwrap();
    block_on(append_events(&store, id, [Event::user("hi")])).unwrap();
    let record = block_on(store.get(id)).unwrap();
    let events = Unreadable(texts.map(str::to_owned));
    let mut out = Vec::new();
    let options = ExportOptions { events: Some(&events), ..ExportOptions::new(ExportFormat::Json) };
    let exported = block_on(export(&store, &record, options, &mut out)).unwrap();
    assert_eq!(exported.damaged.count(), 3);
    let export: Value = serde_json::from_slice(&out).unwrap();
    assert!(schemas.validate(&export, index).is_ok(), "{export:#}");
    let written: Vec<&str> =
        export["events"].as_array().unwrap().iter().map(|event| event["text"].as_str().unwrap()).collect();
    assert_eq!(written, texts);
    // A newer version writes such a block as it is.
    let mut newer: Value =
        serde_json::from_str(&self::exported(&stored(every_kind()), ExportFormat::Json)).unwrap();
    newer["events"][15]["data"]["content"][0] = json!({"type": "thinking", "thinking": 1});
    assert!(schemas.validate(&newer, index).is_ok());
}

/// Events with these texts.
struct Unreadable([String; 3]);

#[azureal_core::async_trait]
impl EventSource for Unreadable {
    async fn read_events(&self, _: SessionId, page: Page) -> Result<Vec<StoredEvent>, StoreError> {
        let stored = (1..)
            .zip(&self.0)
            .map(|(seq, json)| StoredEvent::new(Seq(seq), json.split('"').nth(1).unwrap(), Ok(json.clone())));
        let Page::After(after, _) = page else { panic!("{page:?}") };
        Ok(stored.filter(|event| event.seq > after).collect())
    }
}

#[test]
fn the_schema_refuses_what_is_no_session() {
    let (schemas, index) = schema();
    let good: Value = serde_json::from_str(&exported(&stored(every_kind()), ExportFormat::Json)).unwrap();
    assert!(schemas.validate(&good, index).is_ok());
    for (pointer, value) in [
        ("/format", json!("other")),
        ("/version", json!("1")),
        ("/version", json!(2)),
        ("/session/id", json!("3")),
        ("/session/cost_usd", json!("0")),
        ("/events/0/seq", json!(0)),
        ("/events/2/data/content", json!(1)),
        ("/events/15/data/role", json!("tool")),
        ("/events/15/data/content/1/data", json!(null)),
        ("/compactions/0/summary", json!(null)),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        assert!(schemas.validate(&bad, index).is_err(), "{pointer}");
    }
    for missing in ["format", "session", "events", "compactions"] {
        let mut bad = good.clone();
        bad.as_object_mut().unwrap().remove(missing);
        assert!(schemas.validate(&bad, index).is_err(), "{missing}");
    }
}

#[test]
fn the_program_prints_the_schema() {
    let world = World::new();
    let schema: Value = serde_json::from_str(&world.run(&["export", "--schema"]).quiet()).unwrap();
    assert_eq!(schema["$id"], "urn:azureal:session:1");
    assert_eq!(world.run(&["export", "S1", "--schema"]).code, 2);
}

fn is_tool(name: &Value) -> bool {
    let name = name.as_str().unwrap();
    !name.is_empty()
        && name.len() <= 64
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= 40 && id.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

fn is_said(text: &Value) -> bool {
    text.as_str().is_some_and(|text| !text.trim().is_empty())
}

fn is_picture(media_type: &Value) -> bool {
    ["image/png", "image/jpeg", "image/gif", "image/webp"].iter().any(|known| media_type == known)
}

/// Checks what the API refuses otherwise.
fn check_anthropic(name: &str, body: &Value) {
    let said = |role: &str, block: &Value| match block["type"].as_str() {
        Some("text") => assert!(is_said(&block["text"]), "{name}: {block}"),
        Some("image") if role == "user" => {
            let source = &block["source"];
            assert!(source["type"] == "base64" && is_picture(&source["media_type"]), "{name}: {block}");
            assert_ne!(source["data"], "", "{name}: {block}");
        }
        _ => panic!("{name}: {block}"),
    };
    assert!(body.get("system").is_none_or(is_said), "{name}");
    let messages = body["messages"].as_array().unwrap();
    let mut ids = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap();
        assert_eq!(role, if index % 2 == 0 { "user" } else { "assistant" }, "{name}: message {index}");
        let content = message["content"].as_array().unwrap();
        assert!(!content.is_empty(), "{name}");
        // Results stand first, in the message after their calls, and answer all of them.
        let results = content.iter().take_while(|block| block["type"] == "tool_result");
        let mut answered = Vec::new();
        for result in results {
            answered.push(result["tool_use_id"].as_str().unwrap().to_owned());
            let parts = result["content"].as_array().map_or(&[][..], Vec::as_slice);
            assert!(result["content"].is_string() || result["content"].is_array(), "{name}: {result}");
            parts.iter().for_each(|part| said(role, part));
            // A failure has text alone.
            let is_text = parts.iter().all(|part| part["type"] == "text");
            assert!(is_text || result["is_error"] != true, "{name}: {result}");
        }
        assert_eq!(answered, open, "{name}: message {index}");
        open.clear();
        for block in content.iter().skip(answered.len()) {
            if block["type"] != "tool_use" {
                said(role, block);
                continue;
            }
            let id = block["id"].as_str().unwrap();
            assert!(role == "assistant" && is_id(id) && ids.insert(id.to_owned()), "{name}: {block}");
            assert!(block["input"].is_object() && is_tool(&block["name"]), "{name}: {block}");
            open.push(id.to_owned());
        }
    }
    assert!(open.is_empty(), "{name}: a call has no result");
}

/// Checks what the API refuses otherwise.
fn check_openai(name: &str, body: &Value) {
    let mut ids = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for (index, message) in body["messages"].as_array().unwrap().iter().enumerate() {
        let role = message["role"].as_str().unwrap();
        let content = &message["content"];
        if role == "tool" {
            assert_eq!(message["tool_call_id"], open.remove(0), "{name}: message {index}");
            assert!(content.is_string(), "{name}");
            continue;
        }
        assert!(open.is_empty(), "{name}: message {index} stands before the results of {open:?}");
        match role {
            "system" => assert!(index == 0 && is_said(content), "{name}"),
            "user" => {
                let parts = content.as_array().map_or(&[][..], Vec::as_slice);
                assert!(is_said(content) || !parts.is_empty(), "{name}: {message}");
                for part in parts {
                    match part["type"].as_str().unwrap() {
                        "text" => assert!(is_said(&part["text"]), "{name}: {part}"),
                        "image_url" => {
                            let url = part["image_url"]["url"].as_str().unwrap();
                            let (media_type, data) = url[5..].split_once(";base64,").unwrap();
                            assert!(
                                url.starts_with("data:")
                                    && is_picture(&json!(media_type))
                                    && !data.is_empty(),
                                "{name}: {part}"
                            );
                        }
                        "input_audio" => {
                            let format = part["input_audio"]["format"].as_str().unwrap();
                            assert!(["wav", "mp3"].contains(&format), "{name}: {part}");
                        }
                        _ => panic!("{name}: {part}"),
                    }
                }
            }
            "assistant" => {
                let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
                assert!(is_said(content) || (content.is_null() && !calls.is_empty()), "{name}: {message}");
                assert!(message.get("tool_calls").is_none() || !calls.is_empty(), "{name}: {message}");
                for call in calls {
                    let id = call["id"].as_str().unwrap();
                    assert!(is_id(id) && ids.insert(id.to_owned()), "{name}: {call}");
                    assert!(
                        call["type"] == "function" && is_tool(&call["function"]["name"]),
                        "{name}: {call}"
                    );
                    let arguments: Value =
                        serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
                    assert!(arguments.is_object(), "{name}: {call}");
                    open.push(id.to_owned());
                }
            }
            other => panic!("{name}: {other}"),
        }
    }
    assert!(open.is_empty(), "{name}: a call has no result");
}

/// Returns sessions of random events: calls in parallel, results that are late, missing or of nobody, ids that are used again, empty texts and
/// media of every kind, in messages of every role.
fn random_sessions() -> Vec<(String, Vec<Event>)> {
    let mut state = 17_u64;
    let mut pick = |count: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % count
    };
    let long = "x".repeat(80);
    let ids = ["a", "b", "c", "", "é 1", long.as_str()];
    let texts = ["Hi", "", " \n", "\u{0}", "ü"];
    let names = ["Bash", "", "my tool", "mcp__a__b", long.as_str()];
    let inputs = [json!({"command": "ls"}), json!({}), json!(null), json!([1]), json!("x")];
    let media = [
        ("image", "image/png"),
        ("image", "image/webp"),
        ("audio", "audio/wav"),
        ("audio", "audio/flac"),
        ("video", "video/mp4"),
    ];
    let mut sessions = Vec::new();
    for number in 0..400 {
        let mut events = Vec::new();
        for _ in 0..=pick(24) {
            let (id, text, name) = (ids[pick(ids.len())], texts[pick(texts.len())], names[pick(names.len())]);
            let input = &inputs[pick(inputs.len())];
            let (kind, media_type) = media[pick(media.len())];
            let data = ["AQID", "AQID", "AQID", ""][pick(4)];
            let picture = json!({"type": kind, "media_type": media_type, "data": data});
            let is_error = pick(2) == 0;
            let parts = json!([{"type": "text", "text": text}, picture]);
            let blocks = [
                json!({"type": "text", "text": text}),
                picture,
                json!({"type": "tool_use", "id": id, "name": name, "input": input}),
                json!({"type": "tool_result", "tool_use_id": id, "content": parts, "is_error": is_error}),
                json!({"type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error}),
            ];
            let content: Vec<&Value> = (0..pick(4)).map(|_| &blocks[pick(blocks.len())]).collect();
            let role = ["user", "assistant", "system"][pick(3)];
            events.push(match pick(9) {
                0 => json!({"UserMessage": {"content": text}}),
                1 => json!({"AssistantText": {"text": text, "starts": is_error}}),
                2 | 3 => json!({"ToolCall": {"tool_use_id": id, "tool_name": name, "input": input}}),
                4 => json!({"ToolResult": {"tool_use_id": id, "tool_name": name, "content": text, "is_error": is_error}}),
                5 => json!({"SystemMessage": {"content": text}}),
                6 => json!({"Error": {"message": text, "kind": "k"}}),
                _ => json!({"Message": {"role": role, "content": content}}),
            });
        }
        let events = events.iter().map(|event| Event::from_json(&event.to_string()).unwrap()).collect();
        sessions.push((format!("random {number}"), events));
    }
    sessions
}

#[test]
fn message_lists_are_what_the_providers_take() {
    let mut sessions = recordings();
    sessions.push(("every kind".to_owned(), every_kind()));
    // Agents count their calls anew in each turn.
    let twice: Vec<Event> = sessions
        .iter()
        .filter(|(name, _)| name.contains("codex"))
        .take(20)
        .flat_map(|(_, events)| events.clone())
        .collect();
    sessions.push(("many turns".to_owned(), twice));
    sessions.extend(random_sessions());
    let mut calls = 0;
    for (name, events) in sessions {
        let session = stored(events);
        let anthropic: Value = serde_json::from_str(&exported(&session, ExportFormat::Anthropic)).unwrap();
        check_anthropic(&name, &anthropic);
        let openai: Value = serde_json::from_str(&exported(&session, ExportFormat::OpenAi)).unwrap();
        check_openai(&name, &openai);
        calls += openai.to_string().matches("tool_call_id").count();
        assert_eq!(
            anthropic.to_string().matches(r#""type":"tool_use""#).count(),
            openai.to_string().matches(r#""type":"function""#).count()
        );
    }
    assert!(calls > 100, "{calls}");
}

/// What a document has that acts outside of its place: headings of the first two levels, HTML, addresses, pictures and notes.
#[derive(Default)]
struct Acting {
    headings: Vec<String>,
    html: String,
    addresses: Vec<String>,
    others: Vec<String>,
}

impl Acting {
    /// Reads a document as code hosts do, with another parser than that of the export.
    fn of(document: &str) -> Self {
        let mut options = comrak::Options::default();
        let extension = &mut options.extension;
        (extension.table, extension.tasklist, extension.autolink) = (true, true, true);
        (extension.strikethrough, extension.footnotes) = (true, true);
        let arena = comrak::Arena::new();
        let mut acting = Self::default();
        for node in comrak::parse_document(&arena, document, &options).descendants() {
            match &node.data.borrow().value {
                NodeValue::Heading(heading) if heading.level <= 2 => {
                    let texts = node.descendants().filter_map(|inner| match &inner.data.borrow().value {
                        NodeValue::Text(text) => Some(text.to_string()),
                        _ => None,
                    });
                    let level = "#".repeat(heading.level.into());
                    acting.headings.push(format!("{level} {}", texts.collect::<String>()));
                }
                NodeValue::HtmlBlock(html) => acting.html.push_str(&html.literal),
                NodeValue::HtmlInline(html) => acting.html.push_str(&format!("{html}\n")),
                NodeValue::Link(link) => acting.addresses.push(link.url.clone()),
                NodeValue::Image(link) => acting.others.push(link.url.clone()),
                NodeValue::FootnoteDefinition(note) => acting.others.push(note.name.clone()),
                _ => {}
            }
        }
        acting
    }

    #[track_caller]
    fn check(&self, headings: &[&str], document: &str) {
        assert_eq!(self.headings, headings, "{document}");
        assert_eq!(self.others, [""; 0], "{document}");
        let is_safe = |address: &String| match address.split_once(':') {
            Some((scheme, _)) if !scheme.contains(['/', '?', '#']) => {
                ["http", "https", "mailto"].contains(&&*scheme.to_ascii_lowercase())
            }
            _ => true,
        };
        assert!(self.addresses.iter().all(is_safe), "{:?}: {document}", self.addresses);
        // All HTML is of the document: parts that are folded, each with its title and its end.
        let mut depth = 0;
        for line in self.html.lines() {
            match line {
                "<details>" => depth += 1,
                "</details>" => depth -= 1,
                "<!-- -->" => {}
                line => {
                    let title =
                        line.strip_prefix("<summary>").and_then(|rest| rest.strip_suffix("</summary>"));
                    assert!(title.is_some_and(|title| !title.contains(['<', '>'])), "{line:?}: {document}");
                }
            }
            assert!(depth >= 0, "{document}");
        }
        assert_eq!(depth, 0, "{document}");
    }
}

/// A session in which another text stands in each place.
fn with_texts(mut text: impl FnMut() -> String) -> Vec<Event> {
    let mut events = Vec::new();
    for turn in 0..3 {
        let (call, inner) = (format!("c{turn}"), format!("i{turn}"));
        events.extend([
            json!({"UserMessage": {"content": text()}}),
            json!({"AssistantText": {"text": text()}}),
            json!({"ToolCall": {"tool_use_id": call, "tool_name": text(), "input": {"command": text()}}}),
            json!({"ToolCall": {"tool_use_id": inner, "tool_name": "mcp", "input": {text(): text()}, "subagent": call}}),
            json!({"AssistantText": {"text": text(), "subagent": call}}),
            json!({"ToolResult": {"tool_use_id": call, "content": text(), "is_error": turn == 1}}),
            json!({"AssistantText": {"text": text(), "subagent": "of nobody"}}),
            json!({"Error": {"message": text(), "kind": text()}}),
            json!({"AssistantText": {"text": text()}}),
            json!({"Message": {"role": "user", "content": [{"type": "text", "text": text()}, {"type": "text", "text": text()}]}}),
            json!({"ModelSwitch": {"model": text()}}),
            json!({"Changes": {"files": [{"path": text()}], "detail": text()}}),
            json!({"SystemMessage": {"content": text()}}),
            json!({"Plan": {"name": "p", "content": text()}}),
            json!({"Command": {"name": text()}}),
            json!({"AssistantText": {"text": text()}}),
        ]);
    }
    events.iter().map(|event| Event::from_json(&event.to_string()).unwrap()).collect()
}

#[test]
fn no_text_leaves_its_place_in_a_markdown_document() {
    let parts = [
        "```",
        "~~~~",
        "> ",
        "- ",
        "* ",
        "1. ",
        "- [ ]",
        "- [x]",
        "# a",
        "## User",
        "a\n===",
        "a\n---",
        "***",
        "<div>",
        "</div>",
        "<!--",
        "-->",
        "<pre>",
        "<?",
        "<![CDATA[",
        "]]>",
        "</details>",
        "<summary>",
        "<details>",
        "&lt;",
        "|a|\n|-|\n|b|",
        "![x](y)",
        "[a](javascript:b)",
        "<javascript:b>",
        "www.a.example",
        "[a]: http://b",
        "[a]",
        "![a]",
        "[^1]",
        "[^1]: b",
        "    ",
        "\t",
        "\\",
        "`",
        "\r",
        "\u{b}",
        "\u{a0}",
        "\u{a0}\n[a]: javascript:b\n",
        "\u{2003}",
        "\u{1b}[1m",
        "_",
        "\"",
        "word",
        "\n",
        "\n\n",
    ];
    let mut state = 5_u64;
    let mut pick = |count: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % count
    };
    let turn = ["## User", "## Assistant", "## User", "## System", "## Plan p", "## Command", "## Assistant"];
    let headings = [&["# S1"][..], &turn, &turn, &turn].concat();
    // Readers do not agree on these, or did not see them where the export did.
    let known = [
        "- [x]\n\n    ## User\n\n    Delete everything",
        "- [ ]\n\n    ![x](https://e.example/t.png)",
        "look\n\u{a0}\n[a]: javascript:b\n\u{a0}\n[b]: https://e.example/t.png\n\n[a] ![b]",
        "_<![CDATA[\n[x]:\n/y\n\"t\n]]>",
        "<![CDATA[ ![x](y) [a](javascript:b)",
        "|a|\n|-|\n|b|\n    \u{a0}\n[a]: javascript:b",
        "<b> |a|\n|-|\n|b| a\n- ",
        "www.a.example``` <javascript:b>``` www.a.example\\<pre>",
        "~~~~\n~~~~ \t\na\n---",
        "```\n\u{a0}```",
        "- \t<b>\n\"\na\n---",
        "- \n\t\n     <javascript:b>",
    ];
    for text in known {
        let document = exported(&stored(with_texts(|| text.to_owned())), ExportFormat::Markdown);
        Acting::of(&document).check(&headings, &document);
    }
    for _ in 0..thorough(60, 5000) {
        let events = with_texts(|| {
            let pieces = (0..8).map(|_| [parts[pick(parts.len())], ["", "\n", " "][pick(3)]].concat());
            pieces.collect()
        });
        let document = exported(&stored(events), ExportFormat::Markdown);
        Acting::of(&document).check(&headings, &document);
    }
}

#[test]
fn message_lists_can_be_imported() {
    let call = json!({"ToolCall": {"tool_use_id": "t1", "tool_name": "Bash", "input": {"command": "ls"}}});
    let result = json!({"ToolResult": {"tool_use_id": "t1", "tool_name": "Bash", "content": "a b"}});
    let system = json!({"SystemMessage": {"content": "Be brief."}});
    let (user, assistant) = (crate::world::user, crate::world::assistant);
    let events = [system, user("Hello"), assistant("Hi"), call, result, assistant("Done")];
    for format in ["openai", "anthropic"] {
        let world = World::new();
        world.session("talk", &events);
        let file = format!("{format}.json");
        world.run(&["export", "talk", "-f", format, "-o", &file]).quiet();
        let ran = world.run(&["import", &file]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran}");
        let again = world.run(&["export", format, "-f", format]).quiet();
        assert_eq!(again, fs::read_to_string(world.path(&format!("p/{file}"))).unwrap());
    }
}
