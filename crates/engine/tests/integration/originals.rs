//! The originals of turns: what an agent printed, and the full form of its events.

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azureal_agents::registry;
use azureal_core::agent::{
    Agent, AgentCommand, AgentError, AgentOutput, AgentParser, AgentRequest, Ending, Program,
};
use azureal_core::event::{ToolCall, ToolResult};
use azureal_core::{
    Event, Json, NewSession, OpenOriginal, Original, Page, Seq, SessionId, SessionStore, StoredEvent,
};
use azureal_engine::{
    EngineOptions, FullEvent, FullEvents, OriginalLines, Recovered, SpooledTurn, Spools, each_line, recover,
};
use azureal_process::{ChildEnvironment, Line};
use azureal_store::SqliteStore;
use azureal_store::sqlite::SqliteOptions;
use futures_executor::block_on;
use tempfile::TempDir;

use crate::harness::{DONE, Project, Script, leak, own_environment, says};

/// A store that keeps originals, and the spools of its project.
struct World {
    store: Arc<dyn SessionStore>,
    spools: Spools,
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join(".azureal");
        let options = SqliteOptions { originals: Some(own.join("originals")), ..SqliteOptions::default() };
        let store = Arc::new(SqliteStore::open(own.join("sessions.azs"), options).unwrap());
        Self { store, spools: Spools::new(own.join("spool")), folder }
    }

    fn session(&self) -> SessionId {
        block_on(self.store.create(NewSession::default())).unwrap()
    }

    /// Stores the output of an agent as the turn of a session.
    fn store_turn(&self, session: SessionId, run: &str, agent: &'static dyn Agent, output: &[u8]) {
        let spool = self.spools.begin(turn(session, run, agent.name())).unwrap();
        spool.output().unwrap().write_all(output).unwrap();
        drop(spool);
        let found = self.recover(agent);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    fn recover(&self, agent: &'static dyn Agent) -> Vec<Recovered> {
        self.recover_in(agent, own_environment().clone())
    }

    fn recover_in(&self, agent: &'static dyn Agent, environment: ChildEnvironment) -> Vec<Recovered> {
        let engine = EngineOptions {
            agents: leak([agent]),
            environment,
            ..EngineOptions::new(Arc::clone(&self.store), self.spools.clone(), self.folder.path())
        };
        block_on(recover(&engine)).unwrap()
    }

    fn events(&self, session: SessionId) -> Vec<StoredEvent> {
        block_on(self.store.read(session, Page::After(Seq::START, 10_000))).unwrap()
    }

    fn full_events(&self, session: SessionId, agents: &'static [&'static dyn Agent]) -> FullEvents {
        block_on(FullEvents::open(Arc::clone(&self.store), agents, session)).unwrap()
    }

    fn originals(&self, session: SessionId) -> Vec<Original> {
        block_on(self.store.originals().unwrap().list(session)).unwrap()
    }

    fn finish(&self) {
        block_on(self.store.originals().unwrap().finish()).unwrap();
    }
}

fn turn(session: SessionId, run: &str, agent: &str) -> SpooledTurn {
    SpooledTurn {
        run: run.into(),
        session: session.number(),
        session_made: String::new(),
        after: 0,
        generation: None,
        prompt: "do it".into(),
        goes_on: false,
        agent: agent.into(),
        model: None,
        switches_model: false,
        used_in: None,
        directory: "/p".into(),
        started_at: "2026-01-31T09:30:00Z".into(),
    }
}

fn lines(original: OpenOriginal) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    block_on(each_line(original, |line| {
        let Line::Bytes(bytes) = line else { panic!("{line:?}") };
        lines.push(bytes);
        ControlFlow::Continue(())
    }))
    .unwrap();
    lines
}

/// The recorded outputs of the real programs.
fn recordings() -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agents/tests/fixtures");
    let mut found = Vec::new();
    let mut folders = vec![fixtures];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().unwrap() == "stdout.jsonl" {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() > 150, "only {} recordings were found", found.len());
    found
}

/// The start of a run is completed by the engine, so it differs from the recording.
fn is_start(event: &Event) -> bool {
    matches!(event, Event::Init(_) | Event::ModelSwitch(_))
}

/// The number of whole outputs that an agent keeps elsewhere.
fn named_files(agent: &dyn Agent, output: &[u8]) -> usize {
    let kept = agent.own_record().and_then(|record| record.kept_outputs);
    kept.map_or(0, |kept| output.split(|byte| *byte == b'\n').map(|line| (kept.named)(line).len()).sum())
}

fn remove_note_of_missing(event: &mut Event) -> bool {
    let Event::ToolResult(result) = event else { return false };
    let note = "\n[the whole output is not kept: its file does not exist any more]";
    let content = result.content.strip_suffix(note).map(str::to_owned);
    let is_missing = content.is_some();
    result.content = content.unwrap_or(std::mem::take(&mut result.content));
    is_missing
}

#[test]
fn full_events_of_every_recording_are_those_of_the_recording() {
    let world = World::new();
    let (mut short, mut compared) = (0, 0);
    for (number, path) in recordings().iter().enumerate() {
        let output = fs::read(path).unwrap();
        let agent = path.components().rev().nth(3).unwrap().as_os_str().to_str().unwrap();
        let agent = registry::find(agent).unwrap();
        let mut parser = agent.parser();
        let whole = output.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
        let expected: Vec<Event> = whole
            .flat_map(|line| parser.line(line))
            .filter_map(|output| match output {
                AgentOutput::Event(event) if !is_start(&event) => Some(event),
                _ => None,
            })
            .collect();
        let session = world.session();
        world.store_turn(session, &format!("run{number}"), agent, &output);
        if number % 2 == 0 {
            world.finish();
        }
        let mut full_events = world.full_events(session, registry::all());
        let mut found = Vec::new();
        for stored in world.events(session).iter().skip(1) {
            let event = stored.event().unwrap();
            if is_start(&event) {
                continue;
            }
            found.push(match block_on(full_events.full(stored)).unwrap() {
                FullEvent::Stored => event,
                FullEvent::Found(full) => {
                    short += 1;
                    *full
                }
                other => panic!("{}: {event:?}: {other:?}", path.display()),
            });
        }
        found.truncate(expected.len());
        let names_files = named_files(agent, &output);
        if names_files > 0 {
            // The files are on another machine.
            let missing =
                found.iter_mut().map(remove_note_of_missing).filter(|is_missing| *is_missing).count();
            assert_eq!(missing, names_files, "{}", path.display());
        }
        assert_eq!(found, expected, "{}", path.display());
        compared += found.len();
        // The original is the recording, byte for byte.
        if output.is_empty() {
            assert_eq!(world.originals(session), []);
            continue;
        }
        let [original] = &world.originals(session)[..] else { panic!("{}", path.display()) };
        let open = block_on(world.store.originals().unwrap().open(session, &original.run)).unwrap().unwrap();
        let mut stored = lines(open);
        // Those of azureal, which say that the files are missing.
        stored.truncate(stored.len() - names_files);
        let stored = stored.join(&b'\n');
        assert!(output == stored || output == [stored, b"\n".to_vec()].concat(), "{}", path.display());
    }
    assert!(short > 50 && compared > 400, "{short} of {compared} events were short");
}

/// An agent whose parser is another one now: it reads the same lines and returns these events.
struct Changed(fn() -> Vec<Event>);

struct ChangedParser(fn() -> Vec<Event>, bool);

impl Agent for Changed {
    fn name(&self) -> &'static str {
        "script"
    }
    fn program(&self) -> Program {
        Program::Named("sh")
    }
    fn answers_for(&self, _: &str) -> bool {
        false
    }
    fn command(&self, _: &AgentRequest) -> Result<AgentCommand, AgentError> {
        Ok(AgentCommand::default())
    }
    fn parser(&self) -> Box<dyn AgentParser> {
        Box::new(ChangedParser(self.0, false))
    }
    fn parser_version(&self) -> u32 {
        2
    }
}

impl AgentParser for ChangedParser {
    fn line(&mut self, _: &[u8]) -> Vec<AgentOutput> {
        let is_first = !std::mem::replace(&mut self.1, true);
        let events = if is_first { (self.0)() } else { Vec::new() };
        events.into_iter().map(AgentOutput::Event).collect()
    }
    fn end(&mut self, _: &Ending) -> Vec<AgentOutput> {
        Vec::new()
    }
}

fn call() -> Event {
    Event::ToolCall(ToolCall {
        tool_use_id: "t1".into(),
        tool_name: "Bash".into(),
        input: Json::from_fields([
            ("command", serde_json::json!("seq 9")),
            ("description", serde_json::json!("counts")),
        ]),
        ..ToolCall::default()
    })
}

fn result() -> Event {
    Event::ToolResult(ToolResult {
        tool_use_id: "t1".into(),
        tool_name: "Bash".into(),
        content: (1..=9).map(|number| format!("{number}\n")).collect(),
        ..ToolResult::default()
    })
}

#[test]
fn a_parser_that_has_changed_finds_a_call_by_its_id_and_else_shows_the_lines() {
    let world = World::new();
    let session = world.session();
    let output: String =
        [call(), result(), Event::assistant("done")].iter().map(|event| event.to_json() + "\n").collect();
    world.store_turn(session, "a", Script::new(""), output.as_bytes());
    let events = world.events(session);
    let of = |kind: &str| events.iter().find(|stored| stored.kind == kind).unwrap().clone();
    let (stored_call, stored_result) = (of("ToolCall"), of("ToolResult"));
    assert_ne!(stored_result.event().unwrap(), result(), "it is stored in short");
    let full = |agents: &'static [&'static dyn Agent], stored: &StoredEvent| {
        let mut full_events = world.full_events(session, agents);
        block_on(async {
            (full_events.full(stored).await.unwrap(), full_events.lines_of(stored).await.unwrap())
        })
    };
    let [original] = &world.originals(session)[..] else { panic!() };

    // The same parser: by its place.
    let (found, from) = full(leak([Script::new("") as &dyn Agent]), &stored_result);
    assert_eq!(found, FullEvent::Found(Box::new(result())));
    assert_eq!(from, Some(OriginalLines::Lines(original.clone(), vec![1])));

    // One that also returns what it skipped before: by the id, the call and its result.
    let shifted = leak([leak(Changed(|| vec![Event::assistant("more"), call(), result()])) as &dyn Agent]);
    assert_eq!(full(shifted, &stored_call).0, FullEvent::Found(Box::new(call())));
    assert_eq!(full(shifted, &stored_result).0, FullEvent::Found(Box::new(result())));

    // One that knows nothing of it: the lines, and that they are not matched.
    let blind = leak([leak(Changed(Vec::new)) as &dyn Agent]);
    let (found, from) = full(blind, &stored_result);
    assert_eq!(found, FullEvent::Unmatched(original.clone()));
    assert_eq!(from, Some(OriginalLines::Unmatched(original.clone())));

    // A build without the agent.
    let (found, _) = full(&[], &stored_result);
    assert!(matches!(found, FullEvent::Unreadable(why) if why.contains("`script` is unknown")));

    // Without its original, a short event says so.
    block_on(world.store.originals().unwrap().delete(session)).unwrap();
    assert_eq!(full(shifted, &stored_result), (FullEvent::Missing, None));
}

#[test]
fn the_header_of_an_original_names_the_parser_and_the_place() {
    let world = World::new();
    let session = world.session();
    for run in ["a", "b"] {
        world.store_turn(session, run, Script::new(""), (result().to_json() + "\n").as_bytes());
    }
    world.finish();
    let originals = world.originals(session);
    let [first, second] = &originals[..] else { panic!("{originals:?}") };
    let count = world.events(session).len() as u64;
    assert_eq!((first.first, second.first, second.last), (Seq(1), first.last.next(), Seq(count)));
    let open = block_on(world.store.originals().unwrap().open(session, "b")).unwrap().unwrap();
    let bytes = result().to_json().len() + 1;
    let stored = format!(
        "{{\"stored\":{{\"first\":{},\"last\":{count},\"parser\":1,\"bytes\":{bytes}}}}}\n",
        second.first
    );
    assert!(open.header.ends_with(&stored), "{}", open.header);
    assert!(open.header.starts_with("{\"turn\":{\"run\":\"b\""), "{}", open.header);
}

#[test]
fn a_turn_that_was_compacted_in_the_middle_has_several_originals() {
    let world = World::new();
    let session = world.session();
    let agent: &'static dyn Agent = Script::new("");
    let output = call().to_json() + "\n" + &result().to_json() + "\n";
    for (run, goes_on) in [("a", false), ("b", true)] {
        let spool = world.spools.begin(SpooledTurn { goes_on, ..turn(session, run, agent.name()) }).unwrap();
        spool.output().unwrap().write_all(output.as_bytes()).unwrap();
        drop(spool);
        world.recover(agent);
    }
    let originals = world.originals(session);
    assert_eq!(originals.iter().map(|original| original.run.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let mut full_events = world.full_events(session, leak([agent]));
    let events = world.events(session);
    assert_eq!(events.iter().filter(|stored| stored.kind == "Compacted").count(), 1);
    let results: Vec<&StoredEvent> = events.iter().filter(|stored| stored.kind == "ToolResult").collect();
    assert_eq!(results.len(), 2);
    for (stored, original) in results.into_iter().zip(&originals) {
        assert!(original.covers(stored.seq));
        assert_eq!(block_on(full_events.full(stored)).unwrap(), FullEvent::Found(Box::new(result())));
    }
}

#[test]
fn a_recovered_turn_has_the_whole_outputs_that_its_agent_keeps() {
    let world = World::new();
    let home = world.folder.path().join("claude");
    let outputs = home.join("projects/p/run1/tool-results");
    fs::create_dir_all(&outputs).unwrap();
    fs::write(home.join("projects/p/run1.jsonl"), "{}\n").unwrap();
    fs::write(outputs.join("b1.txt"), "the whole output").unwrap();
    let session = world.session();
    let spool = world.spools.begin(turn(session, "a", "claude")).unwrap();
    let output = [
        r#"{"type":"system","subtype":"init","session_id":"run1","model":"m","cwd":"/p"}"#,
        r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"call","name":"Bash","input":{"command":"x"}}]}}"#,
        r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"call","content":"cut"}]},"tool_use_result":{"stdout":"cut","persistedOutputPath":"/elsewhere/b1.txt"}}"#,
        r#"{"type":"result","subtype":"success","is_error":false,"result":"Done."}"#,
    ];
    spool.output().unwrap().write_all(output.map(|line| format!("{line}\n")).concat().as_bytes()).unwrap();
    // An attempt to store the turn was interrupted.
    fs::write(spool.output_path().with_extension("more"), "{\"azureal\":{\"outp").unwrap();
    drop(spool);
    let mut environment = own_environment().clone();
    environment.set("CLAUDE_CONFIG_DIR", &home);
    let found = world.recover_in(registry::find("claude").unwrap(), environment);
    assert!(matches!(&found[..], [Recovered::Stored(..)]), "{found:?}");
    assert_eq!(fs::read_dir(world.folder.path().join(".azureal/spool")).unwrap().count(), 0);
    fs::remove_dir_all(&home).unwrap();
    let mut full_events = world.full_events(session, registry::all());
    let results: Vec<String> = world
        .events(session)
        .iter()
        .filter(|stored| stored.kind == "ToolResult")
        .map(|stored| match block_on(full_events.full(stored)).unwrap() {
            FullEvent::Found(event) => match *event {
                Event::ToolResult(result) => result.content,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(results, ["the whole output"]);
}

#[test]
fn a_turn_leaves_its_output_compressed_and_no_spool() {
    let world = World::new();
    let project = Project::at(world.folder.path(), Arc::clone(&world.store));
    let finished = project.run(&format!("{}\n{DONE}", says("hello")), "hi");
    let uuid = block_on(world.store.get(project.session)).unwrap().uuid.unwrap();
    let folder = world.folder.path().join(".azureal/originals").join(uuid.to_string());
    world.finish();
    let [original] = &world.originals(project.session)[..] else { panic!() };
    assert_eq!((Some(original.first), Some(original.last)), (finished.first, finished.last));
    let name = format!("{}-{}-{}.zst", original.first, original.last, original.run);
    assert!(folder.join(name).exists());
    assert_eq!(fs::read_dir(world.folder.path().join(".azureal/spool")).unwrap().count(), 0);
}
