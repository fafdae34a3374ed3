//! A turn whose spool is gone, taken from the record that the agent's program keeps itself.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use azureal_agents::registry;
use azureal_core::event::{Complete, Init, Outcome};
use azureal_core::{
    Event, NewSession, NewTurn, Page, Seq, SessionId, SessionStore, Tokens, build_context_prompt,
};
use azureal_engine::{
    EngineOptions, Leased, Noted, Recovered, SpooledProcess, SpooledTurn, Spools, recover, this_process,
};
use azureal_process::{ChildEnvironment, find_marked};
use azureal_store::MemoryStore;
use azureal_testkit::until;
use futures_executor::block_on;
use tempfile::TempDir;

const CLAUDE_RUN: &str = "b5dbbb09-bcd8-4938-9e74-73eda8efacfe";
const CODEX_RUN: &str = "01a1de0a-5596-7d22-bdc3-814fdd26c168";

/// A store with a session, and the home of the agents' programs.
struct Project {
    home: TempDir,
    store: Arc<dyn SessionStore>,
    spools: Spools,
    session: SessionId,
}

impl Project {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::default());
        let session = block_on(store.create(NewSession::default())).unwrap();
        let spools = Spools::new(home.path().join("spool"));
        Self { home, store, spools, session }
    }

    /// Puts a recorded run where its program would have written it.
    fn record(&self, path: &str, recording: &str, change: impl FnOnce(String) -> String) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agents/tests/fixtures");
        let text = fs::read_to_string(source.join(recording).join("record.jsonl")).unwrap();
        let path = self.home.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, change(text)).unwrap();
        path
    }

    fn claude_record(&self) -> PathBuf {
        let path = format!(".claude/projects/-home-dev-project/{CLAUDE_RUN}.jsonl");
        self.record(&path, "claude/current/multi-tool", |text| text)
    }

    fn note(&self, run: &str) {
        block_on(self.store.note_run(self.session, Some(run))).unwrap();
    }

    fn noted(&self) -> Vec<(SessionId, String)> {
        block_on(self.store.noted_runs()).unwrap()
    }

    fn recover(&self) -> Vec<Recovered> {
        self.recover_on(None)
    }

    /// Recovers on a machine that shares the store.
    fn recover_on(&self, machine: Option<&str>) -> Vec<Recovered> {
        let environment = ChildEnvironment::from_iter([("HOME", self.home.path())]);
        let engine = EngineOptions {
            agents: registry::all(),
            environment,
            machine: machine.map(str::to_owned),
            ..EngineOptions::new(Arc::clone(&self.store), self.spools.clone(), self.home.path())
        };
        block_on(recover(&engine)).unwrap()
    }

    fn recover_one(&self) -> Noted {
        match <[Recovered; 1]>::try_from(self.recover()) {
            Ok([Recovered::Noted(session, _, Ok(noted))]) if session == self.session => noted,
            other => panic!("{other:?}"),
        }
    }

    fn events(&self) -> Vec<Event> {
        let page = block_on(self.store.read(self.session, Page::After(Seq::START, 1000))).unwrap();
        page.iter().map(|stored| stored.event().unwrap()).collect()
    }

    fn append(&self, events: &[Event]) {
        block_on(self.store.append(self.session, NewTurn::verbatim(events.to_vec()))).unwrap();
    }
}

fn kinds(events: &[Event]) -> String {
    events.iter().map(Event::kind).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_lost_turn_of_claude_comes_from_its_transcript_once() {
    let project = Project::new();
    project.claude_record();
    project.note(CLAUDE_RUN);
    let Noted::Stored(ingested, record) = project.recover_one() else { panic!() };
    assert_eq!((ingested.complete.outcome, record), (Some(Outcome::Done), "Claude Code's transcript"));
    let events = project.events();
    assert_eq!(events.first(), Some(&Event::user("Tidy the project")));
    assert!(kinds(&events).starts_with("UserMessage Init Reasoning AssistantText ToolCall ToolResult"));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::ToolCall(_))).count(), 11);
    assert!(events.contains(&Event::assistant("All done.")));
    let record = block_on(project.store.get(project.session)).unwrap();
    let expected = Tokens { cache_read: 900, cache_write: 50, ..Tokens::new(3050, 225) };
    assert_eq!(record.tokens, expected);

    assert_eq!(project.noted(), []);
    assert!(project.recover().is_empty());
    assert_eq!(project.events(), events);
}

#[test]
fn a_record_that_is_longer_than_a_turn_can_hold_is_stored_in_part() {
    let project = Project::new();
    let path = format!(".claude/projects/-home-dev-project/{CLAUDE_RUN}.jsonl");
    project.record(&path, "claude/current/multi-tool", |text| {
        let said = "word ".repeat(200_000);
        let line = format!(
            r#"{{"type":"assistant","message":{{"id":"m","model":"m","content":[{{"type":"text","text":"{said}"}}]}}}}"#
        );
        text + &format!("{line}\n").repeat(70)
    });
    project.note(CLAUDE_RUN);
    assert!(matches!(project.recover_one(), Noted::Stored(..)));
    let events = project.events();
    assert_eq!(events.first(), Some(&Event::user("Tidy the project")));
    let said = events.iter().filter(|event| event.to_json().len() > 1_000_000).count();
    assert!((60..70).contains(&said), "{said} of 70 MB are stored");
    assert!(
        events.iter().any(|event| matches!(event, Event::Error(error) if error.kind == "oversized_line"))
    );
}

#[test]
fn a_lost_turn_of_codex_comes_from_its_rollout() {
    let project = Project::new();
    let path = format!(".codex/sessions/2026/11/15/rollout-2026-11-15T07-09-41-{CODEX_RUN}.jsonl");
    project.record(&path, "codex/current/multi-tool", |text| text);
    project.note(CODEX_RUN);
    let Noted::Stored(ingested, record) = project.recover_one() else { panic!() };
    assert_eq!((ingested.complete.outcome, record), (Some(Outcome::Done), "Codex's rollout"));
    assert_eq!(project.events().first(), Some(&Event::user("Tidy the project")));
}

#[test]
fn what_claude_says_after_background_work_reported_belongs_to_the_turn() {
    let project = Project::new();
    let run = "c218e525-5373-4e20-929c-92c0ae64ffc8";
    let path = format!(".claude/projects/-home-dev-project/{run}.jsonl");
    project.record(&path, "claude/current/two-background", |text| text);
    project.note(run);
    let Noted::Stored(ingested, _) = project.recover_one() else { panic!() };
    assert_eq!(ingested.complete.outcome, Some(Outcome::Done));
    let events = project.events();
    let said: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::AssistantText(said) => Some(said.text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(said, ["Both started.", "One reported.", "Two reported."]);
    assert_eq!(events.iter().filter(|event| matches!(event, Event::UserMessage(_))).count(), 1);
}

/// Stores a turn of Codex that has this output, and returns how it ended.
fn complete_of(project: &Project, output: &str) -> Complete {
    let turn = SpooledTurn {
        run: "aa".into(),
        session: project.session.number(),
        session_made: String::new(),
        after: 0,
        generation: None,
        prompt: "Tidy the project".into(),
        goes_on: false,
        agent: "codex".into(),
        model: None,
        switches_model: false,
        used_in: None,
        directory: "/p".into(),
        started_at: "2026-11-15T07:09:41Z".into(),
    };
    let mut spool = project.spools.begin(turn).unwrap();
    spool.note_process(SpooledProcess { pid: 999_999, began: "long ago".into(), before: None }).unwrap();
    spool.output().unwrap().write_all(output.as_bytes()).unwrap();
    drop(spool);
    match <[Recovered; 1]>::try_from(project.recover()) {
        Ok([Recovered::Stored(_, ingested)]) => ingested.complete,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_size_of_codexs_last_request_comes_from_its_rollout() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agents/tests/fixtures");
    let output = fs::read_to_string(source.join("codex/current/multi-tool/stdout.jsonl")).unwrap();
    let cut_off: String = output.lines().take(4).map(|line| format!("{line}\n")).collect();
    let with_last = |text: String| {
        let last = r#""last_token_usage":{"input_tokens":"#;
        let at = text.rfind(last).unwrap() + last.len();
        format!("{}777{}", &text[..at], text[at..].trim_start_matches(|c: char| c.is_ascii_digit()))
    };
    let path = format!("rollout-2026-11-15T07-09-41-{CODEX_RUN}.jsonl");
    // A day's folder is local time, so that it may be the one before or after that in UTC.
    for (day, printed, expected) in [
        ("15", &output, Some((600, 120, Some(797)))),
        ("14", &output, Some((600, 120, Some(797)))),
        ("16", &cut_off, Some((600, 120, Some(797)))),
        ("17", &output, Some((600, 120, None))),
        ("17", &cut_off, None),
    ] {
        let project = Project::new();
        let path = format!(".codex/sessions/2026/11/{day}/{path}");
        project.record(&path, "codex/current/multi-tool", with_last);
        let usage = complete_of(&project, printed).usage;
        let found = usage.map(|usage| (usage.input_tokens, usage.output_tokens, usage.context_tokens));
        assert_eq!(found, expected, "{day}");
        assert_eq!(
            block_on(project.store.get(project.session)).unwrap().counts.context_tokens,
            expected.and_then(|(_, _, context)| context)
        );
    }
}

#[test]
fn a_rollout_of_any_size_or_kind_does_not_hold_a_turn_up() {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../agents/tests/fixtures/codex/current/multi-tool");
    let output = fs::read_to_string(source.join("stdout.jsonl")).unwrap();
    let context = |prepare: fn(&Path, &Path)| {
        let project = Project::new();
        let path = format!(".codex/sessions/2026/11/15/rollout-2026-11-15T07-09-41-{CODEX_RUN}.jsonl");
        let path = project.home.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        prepare(&path, &source.join("record.jsonl"));
        let began = Instant::now();
        let complete = complete_of(&project, &output);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(complete.outcome, Some(Outcome::Done));
        complete.usage.unwrap().context_tokens
    };
    // A hole of 64 GB, which takes no room on the disk.
    let huge = context(|path, record| {
        let mut file = fs::File::create(path).unwrap();
        file.set_len(64 << 30).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"\n").unwrap();
        file.write_all(&fs::read(record).unwrap()).unwrap();
    });
    assert_eq!(huge, Some(120));
    let endless = context(|path, _| {
        let made = Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    });
    assert_eq!(endless, None);
    assert_eq!(context(|path, _| fs::create_dir(path).unwrap()), None);
    assert_eq!(context(|path, _| fs::write(path, b"\n{\"token_count\"\n\0\xff").unwrap()), None);
    assert_eq!(context(|_, _| {}), None);
}

#[test]
fn the_context_comes_off_the_prompt_and_later_turns_of_others_are_not_taken() {
    let project = Project::new();
    let path = format!(".claude/projects/p/{CLAUDE_RUN}.jsonl");
    project.record(&path, "claude/current/multi-tool", |text| {
        let sent = build_context_prompt("## User\nBefore", "Tidy the project");
        let with_context = text.replacen(
            r#"{"role":"user","content":"Tidy the project"}"#,
            &serde_json::json!({"role":"user","content":[{"type":"text","text":sent}]}).to_string(),
            1,
        );
        assert_ne!(with_context, text);
        let later = r#"{"type":"user","timestamp":"2026-12-24T00:00:00Z","message":{"role":"user","content":"Later, by hand"},"isSidechain":false}"#;
        let answer = r#"{"type":"assistant","message":{"id":"m","model":"x","stop_reason":"tool_use","usage":{"input_tokens":7000},"content":[{"type":"text","text":"Later answer"}]}}"#;
        format!("{with_context}{later}\n{answer}\n")
    });
    project.note(CLAUDE_RUN);
    let Noted::Stored(ingested, _) = project.recover_one() else { panic!() };
    let complete = ingested.complete;
    assert_eq!(complete.outcome, Some(Outcome::Done), "the later turn did not end");
    assert!(complete.duration_ms < 60_000, "{complete:?}");
    assert_eq!(complete.usage.map(|usage| usage.input_tokens), Some(3050));
    let events = project.events();
    assert_eq!(events.first(), Some(&Event::user("Tidy the project")));
    assert!(!events.contains(&Event::assistant("Later answer")));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::UserMessage(_))).count(), 1);
}

#[test]
fn what_the_store_has_of_the_turn_is_not_stored_again() {
    let whole = {
        let project = Project::new();
        project.claude_record();
        project.note(CLAUDE_RUN);
        project.recover_one();
        project.events()
    };
    for stored in 0..=whole.len() {
        let project = Project::new();
        project.claude_record();
        // An earlier turn that is alike is another one.
        let before =
            [Event::user("Tidy the project"), Event::assistant("All done."), whole[whole.len() - 1].clone()];
        project.append(&before);
        if stored > 0 {
            project.append(&whole[..stored]);
        }
        project.note(CLAUDE_RUN);
        let noted = project.recover_one();
        assert_eq!(matches!(noted, Noted::WasStored), stored == whole.len(), "{stored}: {noted:?}");
        assert_eq!(project.events()[before.len()..], whole, "{stored} were there");
        assert_eq!(project.noted(), []);
    }
}

#[test]
fn a_turn_that_names_no_run_is_recognised_by_its_prompt_and_its_calls() {
    let project = Project::new();
    project.claude_record();
    let init = Event::Init(Init { cwd: "/p".into(), model: "m".into(), ..Init::default() });
    project.append(&[Event::user("Tidy the project"), init, Event::assistant("Let me look at the files.")]);
    project.note(CLAUDE_RUN);
    assert!(matches!(project.recover_one(), Noted::Stored(..)));
    let events = project.events();
    for once in [Event::user("Tidy the project"), Event::assistant("Let me look at the files.")] {
        assert_eq!(events.iter().filter(|event| **event == once).count(), 1, "{once:?}");
    }
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Init(_))).count(), 1);
}

#[test]
fn a_run_without_a_record_stays_noted() {
    let project = Project::new();
    for run in ["gone", "../../etc/passwd", "*", ""] {
        project.note(run);
        match run {
            "" => assert!(project.recover().is_empty()),
            _ => assert!(matches!(project.recover_one(), Noted::Missing), "{run}"),
        }
    }
    assert_eq!(project.events(), []);
}

#[test]
fn only_runs_of_this_machine_are_looked_for() {
    let project = Project::new();
    project.claude_record();
    for note in [format!("{CLAUDE_RUN} theirs"), CLAUDE_RUN.to_owned(), "ours".to_owned()] {
        project.note(&note);
        let found = project.recover_on(Some("ours"));
        assert!(found.is_empty(), "{note}: {found:?}");
        assert_eq!(project.noted(), [(project.session, note)]);
    }
    project.note(&format!("{CLAUDE_RUN} ours"));
    let found = project.recover_on(Some("ours"));
    assert!(
        matches!(&found[..], [Recovered::Noted(_, run, Ok(Noted::Stored(..)))] if run == CLAUDE_RUN),
        "{found:?}"
    );
}

#[test]
fn a_run_whose_agent_goes_on_is_left_alone_until_it_ends() {
    let project = Project::new();
    project.claude_record();
    project.note(CLAUDE_RUN);
    let marker = project.spools.session_marker(project.session).unwrap();
    let mut agent = Command::new("sleep")
        .arg("1000")
        .env(marker.key(), marker.value())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    // A process that has just been started has no variables yet.
    until("the marker of the agent", || (!find_marked(&marker).is_empty()).then_some(()));
    assert!(matches!(project.recover_one(), Noted::Busy));
    agent.kill().unwrap();
    agent.wait().unwrap();
    let lease = project.spools.lease(project.session, &this_process("claude")).unwrap();
    assert!(matches!(lease, Leased::Ours(_)));
    assert!(matches!(project.recover_one(), Noted::Busy), "somebody runs a turn");
    drop(lease);
    assert!(matches!(project.recover_one(), Noted::Stored(..)));
}
