//! The ledger: what a second import adds.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use azureal_agents::native::{NativeSource, source};
use azureal_core::{NewEvent, Page, append_events, build_context_prompt};
use azureal_store::MemoryStore;
use azureal_store::sqlite::{SqliteOptions, SqliteStore};
use futures_executor::block_on;
use tempfile::TempDir;

use super::*;

const ID: &str = "11111111-2222-4333-8444-555555555555";

/// A home of Claude Code with one session, and a store.
struct World {
    folder: TempDir,
    store: Box<dyn SessionStore>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("projects/-p")).unwrap();
        let store = SqliteStore::open(folder.path().join("store.azs"), SqliteOptions::default()).unwrap();
        Self { folder, store: Box::new(store) }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join(format!("projects/-p/{ID}.jsonl"))
    }

    /// Writes the transcript: lines as `prompt N`, `answer N`, `call N` or `result N`, each a child of the one before, or of the
    /// line that a second number names.
    fn write(&self, lines: &[&str]) {
        let mut text = String::new();
        for (place, line) in lines.iter().enumerate() {
            let words: Vec<&str> = line.split(' ').collect();
            let (kind, id) = (words[0], words[1]);
            // A result has the number of its call.
            let uuid = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
                ["result", id, ..] => format!("r{id}"),
                [_, id, ..] => id.to_owned(),
                _ => panic!("{line}"),
            };
            let parent = match words.get(2) {
                Some(parent) => format!("{parent:?}"),
                None if place == 0 => "null".to_owned(),
                None => format!("{:?}", uuid(lines[place - 1])),
            };
            let uuid = uuid(line);
            let (kind, message) = match kind {
                "prompt" => ("user", format!(r#"{{"role":"user","content":"Prompt {id}"}}"#)),
                "ours" => {
                    let prompt = serde_json::to_string(&build_context_prompt("x", "Prompt")).unwrap();
                    ("user", format!(r#"{{"role":"user","content":{prompt}}}"#))
                }
                "answer" => (
                    "assistant",
                    format!(
                        r#"{{"id":"m{id}","role":"assistant","model":"opus","stop_reason":"end_turn","usage":{{"input_tokens":10,"output_tokens":1}},"content":[{{"type":"text","text":"Answer {id}"}}]}}"#
                    ),
                ),
                "call" => (
                    "assistant",
                    format!(
                        r#"{{"id":"m{id}","role":"assistant","model":"opus","stop_reason":"tool_use","usage":{{"input_tokens":10,"output_tokens":1}},"content":[{{"type":"tool_use","id":"t{id}","name":"Bash","input":{{"command":"ls"}}}}]}}"#
                    ),
                ),
                _ => (
                    "user",
                    format!(
                        r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{id}","content":"ok"}}]}}"#
                    ),
                ),
            };
            text.push_str(&format!(
                r#"{{"type":"{kind}","uuid":"{uuid}","parentUuid":{parent},"sessionId":"{ID}","timestamp":"2026-11-15T07:05:{place:02}Z","cwd":"/p","message":{message}}}"#
            ));
            text.push('\n');
        }
        fs::write(self.file(), text).unwrap();
    }

    fn import_at(&self, now: SystemTime, is_dry: bool) -> NativeImported {
        self.import_as(now, is_dry, false)
    }

    fn import_as(&self, now: SystemTime, is_dry: bool, again: bool) -> NativeImported {
        let runs = block_on(StoredRuns::of(&*self.store)).unwrap();
        let home = claude().open(self.folder.path(), self.folder.path()).unwrap();
        let session = home.sessions(None).next().unwrap().unwrap();
        let head = home.head(&session).unwrap();
        let candidate =
            NativeCandidate { agent: "claude", home: &*home, session: &session, head: &head, family: &[] };
        let (store, now, used_in) = (&*self.store, Some(now), None);
        let import =
            NativeImport { store, runs: &runs, is_dry, again, in_batches: true, now, used_in, run: "" };
        match block_on(import.import(candidate, ".")).unwrap() {
            NativeStep::Done(imported) => imported,
            NativeStep::Ready(ready) => block_on(import.create_all(vec![*ready])).unwrap().unwrap().remove(0),
            NativeStep::Alone => {
                match block_on(NativeImport { in_batches: false, ..import }.import(candidate, ".")) {
                    Ok(NativeStep::Done(imported)) => imported,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Imports an hour later, and returns the outcome.
    fn import(&self) -> NativeOutcome {
        self.import_at(SystemTime::now() + Duration::from_secs(3600), false).outcome
    }

    /// Returns the prompts and answers of a session, and `end` for each end of a turn.
    fn texts(&self, number: u32) -> Vec<String> {
        let id = SessionId::new(number).unwrap();
        let events = block_on(self.store.read(id, Page::After(Seq::START, 500))).unwrap();
        let text = |event: Event| match event {
            Event::UserMessage(message) => Some(message.content),
            Event::AssistantText(text) => Some(text.text),
            Event::ToolCall(_) => Some("call".to_owned()),
            Event::ToolResult(_) => Some("result".to_owned()),
            Event::Complete(complete) => Some(format!("{:?}", complete.outcome.unwrap())),
            _ => None,
        };
        events.into_iter().filter_map(|stored| text(stored.event().unwrap())).collect()
    }

    fn created_at(&self, number: u32) -> String {
        block_on(self.store.get(session(number))).unwrap().created_at
    }

    fn tokens(&self, number: u32) -> u64 {
        block_on(self.store.get(SessionId::new(number).unwrap())).unwrap().tokens.input
    }
}

fn claude() -> &'static dyn NativeSource {
    source("claude").unwrap()
}

fn session(number: u32) -> SessionId {
    SessionId::new(number).unwrap()
}

#[test]
fn a_second_import_adds_nothing_and_a_session_that_grew_gets_its_new_turns() {
    let world = World::new();
    world.write(&["prompt 1", "answer 2"]);
    assert_eq!(world.import(), NativeOutcome::New { id: Some(session(1)), turns: 1, events: 4 });
    assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(1) });
    // Another time of the same content.
    world.write(&["prompt 1", "answer 2"]);
    assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(1) });
    world.write(&["prompt 1", "answer 2", "prompt 3", "answer 4", "prompt 5", "answer 6"]);
    assert_eq!(world.import(), NativeOutcome::Continued { id: session(1), turns: 2, events: 8 });
    assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(1) });
    let expected =
        ["Prompt 1", "Answer 2", "Done", "Prompt 3", "Answer 4", "Done", "Prompt 5", "Answer 6", "Done"];
    assert_eq!(world.texts(1), expected);
    assert_eq!(world.tokens(1), 30);
    let record = block_on(world.store.get(session(1))).unwrap();
    assert_eq!(
        (record.created_at.as_str(), record.last_active.as_str()),
        ("2026-11-15T07:05:00Z", "2026-11-15T07:05:04Z")
    );
}

#[test]
fn a_dry_run_stores_nothing() {
    let world = World::new();
    world.write(&["prompt 1", "answer 2"]);
    let now = SystemTime::now() + Duration::from_secs(3600);
    let outcome = world.import_at(now, true).outcome;
    assert_eq!(outcome, NativeOutcome::New { id: None, turns: 1, events: 4 });
    assert!(!world.folder.path().join("store.azs").exists());
    world.import();
    world.write(&["prompt 1", "answer 2", "prompt 3", "answer 4"]);
    let outcome = world.import_at(now, true).outcome;
    assert_eq!(outcome, NativeOutcome::Continued { id: session(1), turns: 1, events: 4 });
    assert_eq!(world.texts(1).len(), 3);
}

#[test]
fn new_turns_of_a_session_that_was_continued_here_go_into_a_fork() {
    let world = World::new();
    world.write(&["prompt 1", "answer 2"]);
    world.import();
    block_on(append_events(&*world.store, session(1), [Event::user("Here")])).unwrap();
    assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(1) });
    world.write(&["prompt 1", "answer 2", "prompt 3", "answer 4"]);
    let forked = NativeOutcome::Forked { id: Some(session(2)), from: session(1), turns: 1, events: 4 };
    assert_eq!(world.import(), forked);
    assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(2) });
    assert_eq!(world.texts(1).last().unwrap(), "Here");
    assert_eq!(world.texts(2), ["Prompt 1", "Answer 2", "Done", "Prompt 3", "Answer 4", "Done"]);
    assert_eq!((world.tokens(2), world.created_at(2).as_str()), (10, "2026-11-15T07:05:02Z"), "its own turn");
}

#[test]
fn a_turn_that_was_not_over_gets_its_rest() {
    let world = World::new();
    world.write(&["prompt 1", "answer 2", "prompt 3", "call 4"]);
    // It may still run.
    let imported = world.import_at(SystemTime::now(), false);
    assert_eq!(imported.outcome, NativeOutcome::New { id: Some(session(1)), turns: 1, events: 4 });
    assert!(imported.is_running);
    assert_eq!(imported.messages(), ["its last turn was left out: it seems to run; the next import adds it"]);
    // It does not any more.
    assert!(matches!(world.import(), NativeOutcome::Continued { turns: 1, .. }));
    assert_eq!(world.texts(1)[3..], ["Prompt 3", "call", "Interrupted"]);
    assert_eq!(world.tokens(1), 20);
    // It was resumed.
    world.write(&["prompt 1", "answer 2", "prompt 3", "call 4", "result 4 4", "answer 6"]);
    assert!(matches!(world.import(), NativeOutcome::Continued { turns: 1, .. }));
    assert_eq!(world.texts(1)[3..], ["Prompt 3", "call", "Interrupted", "result", "Answer 6", "Done"]);
    assert_eq!(world.tokens(1), 30);
    let events = block_on(world.store.read(session(1), Page::After(Seq::START, 99))).unwrap();
    let usage = events.iter().filter_map(|stored| match stored.event() {
        Ok(Event::Complete(complete)) => complete.usage,
        _ => None,
    });
    assert_eq!(usage.map(|usage| usage.input_tokens).collect::<Vec<_>>(), [10, 10, 10], "counted once");
    assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(1) });
}

#[test]
fn a_session_whose_user_went_back_is_another_one() {
    let world = World::new();
    world.write(&["prompt 1", "answer 2", "prompt 3", "answer 4"]);
    world.import();
    world.write(&["prompt 1", "answer 2", "prompt 3", "answer 4", "prompt 5 2", "answer 6"]);
    let imported = world.import_at(SystemTime::now() + Duration::from_secs(3600), false);
    assert_eq!(
        imported.outcome,
        NativeOutcome::Forked { id: Some(session(2)), from: session(1), turns: 2, events: 8 }
    );
    assert_eq!(imported.messages().len(), 1, "{:?}", imported.messages());
    assert_eq!(world.texts(2), ["Prompt 1", "Answer 2", "Done", "Prompt 5", "Answer 6", "Done"]);
    assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(2) });
    let (first, second) =
        (block_on(world.store.get(session(1))).unwrap(), block_on(world.store.get(session(2))).unwrap());
    assert_eq!(second.forked_from, first.uuid);
}

#[test]
fn a_turn_that_several_branches_have_is_counted_once() {
    let world = World::new();
    let first = ["prompt 1", "answer 2", "prompt 3", "answer 4", "prompt 9", "answer 10"];
    world.write(&first);
    world.import();
    let second = [&first[..], &["prompt 5 2", "answer 6"]].concat();
    world.write(&second);
    assert!(matches!(world.import(), NativeOutcome::Forked { turns: 2, .. }));
    // Back to the first branch: another of its turns is known.
    world.write(&[&second[..], &["prompt 7 4", "answer 8", "prompt 11", "answer 12"]].concat());
    let forked = NativeOutcome::Forked { id: Some(session(3)), from: session(2), turns: 4, events: 16 };
    assert_eq!(world.import(), forked);
    assert_eq!([1, 2, 3].map(|number| world.tokens(number)), [30, 10, 20], "of six prompts");
    assert_eq!(
        [2, 3].map(|number| world.created_at(number)),
        ["2026-11-15T07:05:06Z", "2026-11-15T07:05:08Z"]
    );
    assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(3) });
}

#[test]
fn a_source_with_a_beginning_of_what_was_imported_adds_nothing() {
    let world = World::new();
    let whole = ["prompt 1", "answer 2", "prompt 3", "answer 4", "prompt 5", "answer 6"];
    world.write(&whole);
    world.import();
    for _ in 0..2 {
        // A backup of the session, which is found under the same id, and the session.
        world.write(&whole[..4]);
        assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(1) });
        world.write(&whole[..3]);
        assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(1) });
        world.write(&whole);
        assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(1) });
    }
    assert_eq!(world.tokens(1), 30);
    // The backup was made in the middle of the last turn.
    let turn = ["prompt 1", "answer 2", "prompt 3", "call 4", "result 4 4", "answer 6"];
    let world = World::new();
    world.write(&turn);
    world.import();
    for _ in 0..2 {
        world.write(&turn[..4]);
        assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(1) });
        world.write(&turn);
        assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(1) });
    }
}

#[test]
fn two_sources_with_one_id_become_two_sessions_and_no_more() {
    let world = World::new();
    let one = ["prompt 1", "answer 2", "prompt 3", "answer 4", "prompt 5", "answer 6"];
    let other = ["prompt 1", "answer 2", "prompt 7", "answer 8"];
    world.write(&one);
    world.import();
    world.write(&other);
    assert!(matches!(world.import(), NativeOutcome::Forked { id: Some(id), .. } if id == session(2)));
    for _ in 0..2 {
        world.write(&one);
        assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(1) });
        world.write(&other);
        assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(2) });
    }
    world.write(&[&one[..], &["prompt 9", "answer 10"]].concat());
    assert_eq!(world.import(), NativeOutcome::Continued { id: session(1), turns: 1, events: 4 });
    world.write(&[&other[..], &["prompt 9", "answer 10"]].concat());
    assert_eq!(world.import(), NativeOutcome::Continued { id: session(2), turns: 1, events: 4 });
    // The newest one decides whether the session stays deleted.
    block_on(world.store.delete(session(1))).unwrap();
    assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(2) });
    block_on(world.store.delete(session(2))).unwrap();
    assert_eq!(world.import(), NativeOutcome::LeftOut(LeftOut::Deleted));
    let later = SystemTime::now() + Duration::from_secs(3600);
    assert!(matches!(world.import_as(later, false, true).outcome, NativeOutcome::New { turns: 3, .. }));
    block_on(forget_native(&*world.store, "claude", ID)).unwrap();
    assert!(block_on(world.store.mark(&native_mark("claude", ID))).unwrap().is_none());
}

#[test]
fn a_cleared_session_gets_its_turns_back() {
    let world = World::new();
    world.write(&["prompt 1", "answer 2"]);
    world.import();
    block_on(world.store.clear(session(1))).unwrap();
    assert!(matches!(world.import(), NativeOutcome::Continued { turns: 1, .. }));
    assert_eq!(world.texts(1), ["Prompt 1", "Answer 2", "Done"]);
}

#[test]
fn the_turns_that_a_fork_has_from_its_origin_are_not_counted_again() {
    let world = World::new();
    world.write(&["prompt 1", "answer 2", "prompt 3", "answer 4"]);
    let copied = fs::read_to_string(world.file()).unwrap();
    let first = r#"{"type":"queue-operation","operation":"enqueue","timestamp":"2026-11-15T07:05:02Z"}"#;
    fs::write(world.file(), format!("{first}\n{copied}")).unwrap();
    assert!(matches!(world.import(), NativeOutcome::New { turns: 2, .. }));
    assert_eq!(world.tokens(1), 10);
}

#[test]
fn a_deleted_session_stays_deleted_until_it_is_wanted_again() {
    let world = World::new();
    world.write(&["prompt 1", "answer 2"]);
    world.import();
    let deleted = || block_on(was_deleted(&*world.store, "claude", ID)).unwrap();
    assert!(!deleted());
    block_on(world.store.delete(session(1))).unwrap();
    assert!(deleted());
    let left_out = NativeOutcome::LeftOut(LeftOut::Deleted);
    assert_eq!(world.import(), left_out);
    world.write(&["prompt 1", "answer 2", "prompt 3", "answer 4"]);
    assert_eq!(world.import(), left_out, "also if the source has grown");
    let later = SystemTime::now() + Duration::from_secs(3600);
    let new = |id| NativeOutcome::New { id, turns: 2, events: 8 };
    assert_eq!(world.import_as(later, true, true).outcome, new(None));
    assert_eq!(world.import(), left_out, "a dry run changes nothing");
    assert_eq!(world.import_as(later, false, true).outcome, new(Some(session(2))));
    assert!(!deleted());
    assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(2) });
}

#[test]
fn a_deleted_session_that_came_back_by_another_store_is_continued() {
    let world = World::new();
    world.write(&["prompt 1", "answer 2"]);
    world.import();
    let uuid = block_on(world.store.get(session(1))).unwrap().uuid;
    let events = block_on(world.store.read(session(1), Page::last(9))).unwrap();
    block_on(world.store.delete(session(1))).unwrap();
    let copy = NewSession { uuid, ..NewSession::default() };
    let events = events.iter().map(|stored| NewEvent::from(stored.event().unwrap())).collect();
    let turn = NewTurn { events, ..NewTurn::default() };
    block_on(world.store.create_with(copy, turn, Vec::new())).unwrap();
    world.write(&["prompt 1", "answer 2", "prompt 3", "answer 4"]);
    assert!(matches!(world.import(), NativeOutcome::Continued { id, turns: 1, .. } if id == session(2)));
}

#[test]
fn turns_that_azureal_ran_are_left_out() {
    let world = World::new();
    world.write(&["ours 1", "answer 2"]);
    assert_eq!(world.import(), NativeOutcome::LeftOut(LeftOut::Ours));
    // The user went on in the agent's own program.
    world.write(&["ours 1", "answer 2", "prompt 3", "answer 4"]);
    assert!(matches!(world.import(), NativeOutcome::New { turns: 1, .. }));
    assert_eq!(world.texts(1), ["Prompt 3", "Answer 4", "Done"]);
}

#[test]
fn a_run_without_a_context_is_known_by_its_name() {
    let world = World::new();
    let text = |entrypoint: &str| {
        world.write(&["prompt 1", "answer 2"]);
        let text = fs::read_to_string(world.file()).unwrap();
        fs::write(world.file(), text.replace("\"cwd\"", &format!("\"entrypoint\":\"{entrypoint}\",\"cwd\"")))
            .unwrap();
    };
    let id = block_on(world.store.create(NewSession::default())).unwrap();
    let init = azureal_core::event::Init { agent_session: Some(ID.into()), ..Default::default() };
    block_on(append_events(&*world.store, id, [Event::user("Prompt 1"), Event::Init(init)])).unwrap();
    text("sdk-cli");
    assert_eq!(world.import(), NativeOutcome::LeftOut(LeftOut::Ours));
    // Runs of the interface are never ours.
    text("cli");
    assert!(matches!(world.import(), NativeOutcome::New { .. }));
}

#[test]
fn a_session_that_came_by_another_store_is_continued() {
    let world = World::new();
    world.write(&["prompt 1", "answer 2"]);
    world.import();
    // A copy of the store has the session, but not the mark.
    let mark = format!("native:claude:{ID}");
    assert!(block_on(world.store.remove_mark(&mark)).unwrap());
    world.write(&["prompt 1", "answer 2", "prompt 3", "answer 4"]);
    assert!(matches!(world.import(), NativeOutcome::Continued { turns: 1, .. }));
    assert_eq!(world.texts(1), ["Prompt 1", "Answer 2", "Done", "Prompt 3", "Answer 4", "Done"]);
    assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(1) });
}

#[test]
fn a_store_without_marks_imports_too() {
    let mut world = World::new();
    world.store = Box::new(MemoryStore::default());
    world.write(&["prompt 1", "answer 2"]);
    assert!(matches!(world.import(), NativeOutcome::New { .. }));
    assert_eq!(world.import(), NativeOutcome::Unchanged { id: session(1) });
}

#[test]
fn the_uuid_of_a_session_follows_from_its_agent_and_id() {
    let uuid = native_uuid("claude", ID);
    assert_eq!(uuid, native_uuid("claude", ID));
    assert_ne!(uuid, native_uuid("codex", ID));
    assert!(is_derived(uuid) && !is_derived(Uuid::new_v4()));
    assert_eq!(uuid.get_variant(), Uuid::new_v4().get_variant());
}

#[test]
fn a_session_that_is_imported_by_several_processes_at_once_is_there_once() {
    let world = World::new();
    world.write(&["prompt 1", "answer 2", "prompt 3", "answer 4"]);
    let path = world.folder.path().join("store.azs");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
                let home = claude().open(world.folder.path(), world.folder.path()).unwrap();
                let session = home.sessions(None).next().unwrap().unwrap();
                let head = home.head(&session).unwrap();
                let candidate = NativeCandidate {
                    agent: "claude",
                    home: &*home,
                    session: &session,
                    head: &head,
                    family: &[],
                };
                let now = SystemTime::now() + Duration::from_secs(3600);
                let runs = StoredRuns::default();
                let import = NativeImport {
                    store: &store,
                    runs: &runs,
                    is_dry: false,
                    again: false,
                    in_batches: true,
                    now: Some(now),
                    used_in: None,
                    run: "",
                };
                let NativeStep::Ready(ready) = block_on(import.import(candidate, ".")).unwrap() else {
                    return;
                };
                if block_on(import.create_all(vec![*ready])).unwrap().is_none() {
                    let alone = NativeImport { in_batches: false, ..import };
                    let step = block_on(alone.import(candidate, ".")).unwrap();
                    assert!(matches!(step, NativeStep::Done(_)));
                }
            });
        }
    });
    assert_eq!(block_on(world.store.list(&ListQuery::default())).unwrap().len(), 1);
    assert_eq!(world.texts(1).len(), 6);
}
