//! Whole turns: a real process, a real spool, a real store.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::own_environment;
use azureal_agents::offline::Offline;
use azureal_core::agent::{
    Agent, AgentCommand, AgentError, AgentOutput, AgentParser, Program, PromptCache, TurnRequest,
};
use azureal_core::event::Outcome;
use azureal_core::{
    CrashNotes, Event, Message, NewSession, Page, Role, SessionId, SessionStore, StoreError, Tokens,
    read_history,
};
use azureal_engine::{
    Briefing, Controls, Driver, FoundSpool, Homes, Ingested, Notice, OutputLimit, RUN_MARKER, Recovered,
    Setup, SpooledProcess, SpooledTurn, Spools, recover,
};
use azureal_process::{Marker, Spawn, Stream, find_marked};
use azureal_store::SqliteStore;
use azureal_store::sqlite::SqliteOptions;
use futures_executor::block_on;
use tempfile::TempDir;

use crate::machine::{busy, is_own_process, own_memory};

/// An agent that is a shell script; it prints events as our built-in agent does.
struct Script(String);

impl Agent for Script {
    fn name(&self) -> &'static str {
        "script"
    }
    fn program(&self) -> Program {
        Program::Named("sh")
    }
    fn answers_for(&self, _: &str) -> bool {
        false
    }
    fn command(&self, turn: &TurnRequest) -> Result<AgentCommand, AgentError> {
        Ok(AgentCommand {
            args: vec!["-c".into(), self.0.clone()],
            stdin: turn.frame.clone().into_text().into_bytes(),
            ..AgentCommand::default()
        })
    }
    fn parser(&self) -> Box<dyn AgentParser> {
        Offline.parser()
    }
}

/// A project with a store and one session.
struct Project {
    folder: TempDir,
    store: SqliteStore,
    spools: Spools,
    session: SessionId,
    briefing: Briefing,
}

impl Project {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store =
            SqliteStore::open(folder.path().join(".azureal/sessions.azs"), SqliteOptions::default()).unwrap();
        let session = block_on(store.create(NewSession::default())).unwrap();
        let spools = Spools::new(folder.path().join(".azureal/spool"));
        Self { folder, store, spools, session, briefing: Briefing::default() }
    }

    fn setup<'a>(&'a self, agent: &'a dyn Agent, program: &'a Path) -> Setup<'a> {
        Setup {
            store: &self.store,
            spools: &self.spools,
            agent,
            program,
            lease: None,
            session: self.session,
            used_in: None,
            switches_model: false,
            model: None,
            permission: None,
            directory: self.folder.path(),
            environment: own_environment(),
            in_git: false,
            timeout: None,
            output_limit: OutputLimit::default(),
            briefing: &self.briefing,
            compaction: None,
            homes: &Homes::NONE,
            arguments: &[],
            cache: PromptCache::Off,
            moves_git_status: false,
        }
    }

    fn run(&self, script: &str, prompt: &str) -> Ingested {
        let agent = Script(script.to_owned());
        let (driver, _) = Driver::new(self.setup(&agent, Path::new("/bin/sh")));
        driver.run(prompt, &mut |_| {}).unwrap().unwrap()
    }

    fn events(&self) -> Vec<Event> {
        let page = block_on(self.store.read(self.session, Page::last(1000))).unwrap();
        page.iter().map(|stored| stored.event().unwrap()).collect()
    }

    fn history(&self) -> Vec<Message> {
        block_on(read_history(&self.store, self.session)).unwrap()
    }

    fn spool_files(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.folder.path().join(".azureal/spool")) else { return vec![] };
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

/// A line that the script prints: what the agent says.
fn says(text: &str) -> String {
    format!("printf '%s\\n' '{}'", Event::assistant(text).to_json())
}

const DONE: &str = r#"printf '%s\n' '{"Complete":{"success":true,"duration_ms":1,"cost_usd":0.5,"outcome":"done","usage":{"input_tokens":3,"output_tokens":4,"cache_read_tokens":2,"cache_write_tokens":1}}}'"#;

/// Runs a script that leaves a file behind if nobody stops it before it has printed a gigabyte, under a limit of 8 MiB.
fn run_limited(project: &Project, script: &str) -> Ingested {
    let agent = Script(format!("ulimit -f 2097152; {script}; touch not-stopped; sleep 600"));
    let setup = Setup {
        output_limit: OutputLimit::of_mib(8),
        timeout: Some(Duration::from_secs(60)),
        ..project.setup(&agent, Path::new("/bin/sh"))
    };
    let ingested = Driver::new(setup).0.run("Go", &mut |_| {}).unwrap().unwrap();
    assert!(!project.folder.path().join("not-stopped").exists(), "it printed a gigabyte");
    ingested
}

#[test]
fn an_agent_that_prints_more_than_it_may_is_stopped_and_what_came_is_stored() {
    let _busy = busy();
    // To standard output, without any line break, to standard error, and by somebody who does not want to stop.
    let ignores = "trap '' INT TERM; while :; do head -c 1000000 /dev/zero || touch not-stopped; done";
    for flood in ["yes '{\"notice\":\"x\"}'", "cat /dev/zero", "cat /dev/zero >&2", ignores] {
        let project = Project::new();
        let ingested = run_limited(&project, &format!("{}; {flood}", says("hello")));
        assert_eq!(ingested.complete.outcome, Some(Outcome::Failed), "{flood}");
        let events = project.events();
        assert!(events.contains(&Event::assistant("hello")), "{flood}: {events:?}");
        let Event::Error(error) = &events[events.len() - 2] else { panic!("{flood}: {events:?}") };
        assert_eq!(error.kind, "output_limit", "{flood}");
        assert!(
            error.message.starts_with("script was stopped because of its output: it had printed "),
            "{flood}"
        );
    }
}

#[test]
fn a_long_output_is_told_of_before_it_is_too_long() {
    let project = Project::new();
    let piece = "head -c 3000000 /dev/zero; echo";
    let agent = Script(format!("{}; {piece}; sleep 0.3; {DONE}", says("hello")));
    let setup = Setup { output_limit: OutputLimit::of_mib(8), ..project.setup(&agent, Path::new("/bin/sh")) };
    let mut told = Vec::new();
    let ingested = Driver::new(setup).0.run("Go", &mut |notice| {
        if let Notice::Tell(text) = notice {
            told.push(text.to_owned());
        }
    });
    assert_eq!(ingested.unwrap().unwrap().complete.outcome, Some(Outcome::Done));
    assert_eq!(told, ["script has printed 2 MiB; it is stopped at 8 MiB"]);
}

#[test]
fn a_turn_is_stored_and_nothing_is_left_beside_it() {
    let project = Project::new();
    let ingested = project.run(&format!("{}; {DONE}", says("hello")), "hi");
    assert_eq!(ingested.complete.outcome, Some(Outcome::Done));
    assert_eq!(project.history(), [Message::user("hi"), Message::assistant("hello")]);
    let record = block_on(project.store.get(project.session)).unwrap();
    assert_eq!((record.completed, record.cost_usd), (Some(true), 0.5));
    assert_eq!(record.tokens, Tokens { input: 3, output: 4, cache_read: 2, cache_write: 1 });
    assert_eq!(project.spool_files(), [] as [PathBuf; 0]);
    assert_eq!(block_on(project.store.noted_runs()).unwrap(), []);
}

#[test]
fn the_first_prompt_is_sent_as_it_is_and_the_next_with_what_happened() {
    let project = Project::new();
    let script = format!("cat > \"$PWD/got\"; {}; {DONE}", says("hello"));
    let got = || std::fs::read_to_string(project.folder.path().join("got")).unwrap();
    project.run(&script, "first");
    assert_eq!(got(), "first");
    project.run(&script, "second");
    let sent = got();
    assert!(sent.starts_with("<azureal-session-context>\n") && sent.ends_with("\n\nsecond"), "{sent}");
    assert!(sent.contains("## User\nfirst") && sent.contains("## Assistant\nhello"), "{sent}");
    assert_eq!(sent.matches("</azureal-session-context>").count(), 1);
    let users: Vec<_> = project.history().into_iter().filter(|message| message.role == Role::User).collect();
    assert_eq!(users, [Message::user("first"), Message::user("second")]);
}

/// Runs a turn and does something while the agent runs.
fn run_while(
    project: &Project,
    script: &str,
    timeout: Option<Duration>,
    act: impl FnOnce(&Controls) + Send,
) -> Vec<String> {
    let agent = Script(script.to_owned());
    let setup = Setup { timeout, ..project.setup(&agent, Path::new("/bin/sh")) };
    let (driver, controls) = Driver::new(setup);
    let (runs, act) = (Mutex::new(Vec::new()), Mutex::new(Some(act)));
    driver
        .run("first", &mut |notice| {
            if let Notice::Began { run, mut watcher, .. } = notice {
                runs.lock().unwrap().push(run.to_owned());
                // The agent has said something, so it runs.
                while !matches!(&watcher.next_outputs().unwrap().unwrap()[..], [AgentOutput::Event(_)]) {}
                if let Some(act) = act.lock().unwrap().take() {
                    act(&controls);
                }
            }
        })
        .unwrap()
        .unwrap();
    runs.into_inner().unwrap()
}

fn outcomes(project: &Project) -> Vec<Outcome> {
    project
        .events()
        .iter()
        .filter_map(|event| match event {
            Event::Complete(complete) => complete.outcome,
            _ => None,
        })
        .collect()
}

fn no_survivor(run: &str) {
    assert_eq!(find_marked(&Marker::new(RUN_MARKER, run).unwrap()), []);
}

#[test]
fn a_cancel_ends_everything_of_the_run_and_keeps_what_came() {
    let project = Project::new();
    let script = format!("{}; setsid sleep 1000 & sleep 1000", says("half"));
    let runs = run_while(&project, &script, None, Controls::cancel);
    no_survivor(&runs[0]);
    assert_eq!(outcomes(&project), [Outcome::Cancelled]);
    assert!(project.history().contains(&Message::assistant("half")));
    assert_eq!(block_on(project.store.get(project.session)).unwrap().completed, Some(false));
    assert_eq!(project.spool_files(), [] as [PathBuf; 0]);
}

#[test]
fn a_prompt_while_a_turn_runs_cancels_it_and_is_sent_with_it_in_its_context() {
    let project = Project::new();
    // The second run finds the first in its input, and ends by itself.
    let script = format!(
        "input=$(cat); case $input in *half*) {}; {DONE};; *) {}; sleep 1000;; esac",
        says("whole"),
        says("half")
    );
    run_while(&project, &script, None, |controls| controls.submit("second"));
    assert_eq!(outcomes(&project), [Outcome::Cancelled, Outcome::Done]);
    let texts: Vec<_> = project.history().iter().filter_map(|m| m.first_text().map(str::to_owned)).collect();
    assert_eq!(texts, ["first", "half", "second", "whole"]);
}

#[test]
fn the_agents_own_name_of_a_run_is_noted_while_it_runs() {
    let project = Project::new();
    let init =
        r#"printf '%s\n' '{"Init":{"cwd":"/","model":"m","agent":"script","agent_session":"uuid-1"}}'"#;
    let script = format!("{init}; while [ ! -e gate ]; do sleep 0.02; done; {DONE}");
    run_while(&project, &script, Some(Duration::from_secs(20)), |_| {
        // The driver hears of it only when it waits again, so another thread looks.
        let (store, session) = (project.folder.path().join(".azureal/sessions.azs"), project.session);
        let gate = project.folder.path().join("gate");
        std::thread::spawn(move || {
            let store = SqliteStore::open(store, SqliteOptions::default()).unwrap();
            let deadline = Instant::now() + Duration::from_secs(10);
            let noted = || block_on(store.noted_runs()).unwrap();
            while noted() != [(session, "uuid-1".to_owned())] && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            if Instant::now() < deadline {
                std::fs::write(gate, "").unwrap();
            }
        });
    });
    assert_eq!(outcomes(&project), [Outcome::Done], "it was not noted");
    assert_eq!(block_on(project.store.noted_runs()).unwrap(), [], "it is stored, and so no longer noted");
}

#[test]
fn a_turn_that_takes_too_long_is_stopped() {
    let project = Project::new();
    let script = format!("{}; sleep 1000", says("half"));
    let runs = run_while(&project, &script, Some(Duration::from_millis(700)), |_| {});
    no_survivor(&runs[0]);
    assert_eq!(outcomes(&project), [Outcome::Timeout]);
}

#[test]
fn an_agent_that_dies_leaves_what_it_said_and_the_next_prompt_works() {
    let project = Project::new();
    project.run(&format!("{}; kill -9 $$", says("half")), "first");
    assert_eq!(outcomes(&project), [Outcome::Interrupted]);
    assert!(project.events().iter().any(|event| matches!(event, Event::Error(_))));
    project.run(&format!("{}; {DONE}", says("whole")), "second");
    assert_eq!(outcomes(&project), [Outcome::Interrupted, Outcome::Done]);
}

#[test]
fn an_agent_that_is_killed_leaves_no_process_that_works_on_unseen() {
    let project = Project::new();
    let runs =
        run_while(&project, &format!("{}; setsid sleep 1000 & kill -9 $$", says("half")), None, |_| {});
    no_survivor(&runs[0]);
    assert_eq!(outcomes(&project), [Outcome::Interrupted]);
}

#[test]
fn a_program_that_is_not_there_is_told_and_the_prompt_is_kept() {
    let project = Project::new();
    let agent = Script(String::new());
    let (driver, _) = Driver::new(project.setup(&agent, Path::new("/nowhere/agent")));
    let ingested = driver.run("hi", &mut |_| {}).unwrap().unwrap();
    assert_eq!(ingested.complete.outcome, Some(Outcome::Failed));
    assert_eq!(project.history()[0], Message::user("hi"));
    assert!(project.history()[1].first_text().unwrap().contains("/nowhere/agent"));
    assert_eq!(project.spool_files(), [] as [PathBuf; 0]);
}

#[test]
fn an_agent_that_prints_without_end_is_bounded_and_nothing_is_lost() {
    let _busy = busy();
    if !is_own_process("turns::an_agent_that_prints_without_end_is_bounded_and_nothing_is_lost") {
        return;
    }
    let before = own_memory("VmHWM");
    for (script, bytes) in [
        // One line of a quarter of a gigabyte; and many lines that are no events.
        (r"head -c 268435456 /dev/zero | tr '\0' x; echo", 268_435_456),
        ("yes 'this is no event at all, and there is a lot of it' | head -c 16777216; echo", 16_777_216),
    ] {
        let project = Project::new();
        let ingested = project.run(&format!("{script}; {DONE}"), "go");
        let kept = ingested.kept.expect("the spool is kept");
        assert!(std::fs::metadata(&kept).unwrap().len() >= bytes);
        assert!(project.events().iter().any(
            |event| matches!(event, Event::Error(error) if error.message.contains("kept in the spool"))
        ));
        assert_eq!(outcomes(&project).len(), 1, "{script}");
        assert!(recovered(&project).is_empty());
    }
    if let Some((before, after)) = before.zip(own_memory("VmHWM")) {
        assert!(after - before < 200 << 20, "grew from {before} to {after} bytes");
    }
}

#[test]
fn a_session_that_is_gone_keeps_the_spool() {
    let project = Project::new();
    let agent = Script(format!("{}; {DONE}", says("late")));
    let (driver, _) = Driver::new(project.setup(&agent, Path::new("/bin/sh")));
    let outcome = driver
        .run("hi", &mut |notice| {
            if matches!(notice, Notice::Began { .. }) {
                block_on(project.store.delete(project.session)).unwrap();
            }
        })
        .unwrap();
    assert!(
        matches!(&outcome, Err(azureal_engine::IngestError::Store(StoreError::NoSuchSession(_)))),
        "{outcome:?}"
    );
    assert!(!project.spool_files().is_empty(), "what was printed is lost");
}

fn spooled(project: &Project, run: &str) -> SpooledTurn {
    SpooledTurn {
        run: run.into(),
        session: project.session.number(),
        session_made: String::new(),
        prompt: "before the crash".into(),
        goes_on: false,
        agent: "offline".into(),
        model: None,
        switches_model: false,
        used_in: None,
        directory: project.folder.path().into(),
        started_at: "2026-01-31T09:30:00Z".into(),
    }
}

/// Returns the name of a run that has processes. No other test run on this machine has it: markers are searched everywhere.
fn run_of_our_own(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn recovered(project: &Project) -> Vec<Recovered> {
    let homes = Homes::NONE;
    block_on(recover(&project.store, &project.spools, &[&Offline], &homes)).unwrap()
}

#[test]
fn a_turn_whose_azureal_died_is_found_when_its_agent_has_ended_and_stored_once() {
    let project = Project::new();
    let run = run_of_our_own("aa");
    let mut spool = project.spools.begin(spooled(&project, &run)).unwrap();
    let marker = Marker::new(RUN_MARKER, run).unwrap();
    let mut spawn = Spawn::new(
        "/bin/sh",
        project.folder.path(),
        own_environment().clone(),
        spool.output().unwrap(),
        marker,
    );
    let gate = project.folder.path().join("gate");
    let script = format!("{}; while [ ! -e gate ]; do sleep 0.02; done; {DONE}", says("survived"));
    spawn.args = vec!["-c".into(), script.into()];
    spawn.stderr = Stream::File(spool.errors().unwrap());
    let child = spawn.start().unwrap();
    spool.note_process(SpooledProcess { pid: child.pid(), began: child.identity().started.clone() }).unwrap();
    assert!(matches!(&recovered(&project)[..], [Recovered::Running(..)]), "its owner lives");
    drop(spool); // azureal dies
    assert!(matches!(&recovered(&project)[..], [Recovered::Orphan(..)]), "the agent still runs");
    std::fs::write(gate, "").unwrap();
    child.wait();
    assert!(matches!(&recovered(&project)[..], [Recovered::Stored(..)]));
    assert!(recovered(&project).is_empty());
    assert_eq!(project.history(), [Message::user("before the crash"), Message::assistant("survived")]);
    assert_eq!(outcomes(&project), [Outcome::Done]);
}

/// Stores an orphaned turn with this output, last written at this second of the clock, and returns its duration.
fn recovered_duration(agent: &str, output: &str, written: u64) -> u64 {
    let project = Project::new();
    let turn = SpooledTurn { agent: agent.into(), ..spooled(&project, "dd") };
    let mut spool = project.spools.begin(turn).unwrap();
    spool.note_process(SpooledProcess { pid: 999_999, began: "long ago".into() }).unwrap();
    let mut file = spool.output().unwrap();
    std::io::Write::write_all(&mut file, output.as_bytes()).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(written)).unwrap();
    drop(spool);
    let homes = Homes::NONE;
    let agents = azureal_agents::registry::all();
    let found = block_on(recover(&project.store, &project.spools, agents, &homes)).unwrap();
    let [Recovered::Stored(_, ingested)] = &found[..] else { panic!("{found:?}") };
    ingested.complete.duration_ms
}

#[test]
fn a_recovered_turn_took_as_long_as_its_agent_says_or_its_output_grew() {
    // 2026-01-31T09:30:00Z, when the turn of `spooled` began.
    const BEGAN: u64 = 1_769_851_800;
    let text = Event::assistant("half").to_json() + "\n";
    let result = r#"{"type":"result","subtype":"success","is_error":false,"duration_ms":994,"result":"Hi"}"#;
    let one_result = format!("{result}\n");
    // Each result counts its own part, without the wait for background work between them.
    let two_results = format!("{result}\n{result}\n");
    for (agent, output, written, expected) in [
        ("offline", text.as_str(), BEGAN + 42, 42_000),
        ("offline", &text, BEGAN - 5, 0),
        ("claude", &one_result, BEGAN + 42, 994),
        ("claude", &two_results, BEGAN + 42, 42_000),
    ] {
        assert_eq!(recovered_duration(agent, output, written), expected, "{agent} {output}");
    }
}

#[test]
fn a_turn_that_was_stored_and_not_removed_is_only_removed() {
    let project = Project::new();
    let spool = project.spools.begin(spooled(&project, "bb")).unwrap();
    std::io::Write::write_all(
        &mut spool.output().unwrap(),
        format!("{}\n", Event::assistant("once").to_json()).as_bytes(),
    )
    .unwrap();
    // Azureal dies after the commit and before the removal: copies of the spool stand for that.
    let folder = project.folder.path().join(".azureal/spool");
    let copies: Vec<(PathBuf, Vec<u8>)> =
        project.spool_files().into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    let mark = azureal_core::NewMark { name: "run:bb".into(), note: String::new() };
    drop(spool);
    assert!(matches!(&recovered(&project)[..], [Recovered::Stored(..)]));
    block_on(project.store.append(
        project.session,
        azureal_core::NewTurn { mark: Some(mark), ..azureal_core::NewTurn::default() },
    ))
    .unwrap();
    // An older release removed the note of the run after the commit.
    block_on(project.store.note_run(project.session, Some("run-bb"))).unwrap();
    for (path, bytes) in copies {
        assert!(path.starts_with(&folder));
        // The output goes first, so that it may be gone already.
        if path.extension().is_some_and(|kind| kind == "jsonl") {
            continue;
        }
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let before = project.events();
    assert!(
        matches!(&recovered(&project)[..], [Recovered::Stored(_, ingested)] if ingested.appended.is_none())
    );
    assert_eq!(project.events(), before);
    assert_eq!(project.spool_files(), [] as [PathBuf; 0]);
    assert_eq!(block_on(project.store.mark("run:bb")).unwrap(), None);
    assert_eq!(block_on(project.store.noted_runs()).unwrap(), []);
}

#[test]
fn output_that_is_kept_stays_though_its_header_comes_back() {
    let project = Project::new();
    let spool = project.spools.begin(spooled(&project, "kk")).unwrap();
    let line = "x".repeat(65 << 20) + "\n";
    std::io::Write::write_all(&mut spool.output().unwrap(), line.as_bytes()).unwrap();
    let (output, header) = (spool.output_path().to_owned(), spool.output_path().with_extension("turn"));
    drop(spool);
    let (before, mode) = (std::fs::read(&header).unwrap(), std::fs::metadata(&header).unwrap().permissions());
    assert!(matches!(&recovered(&project)[..], [Recovered::Stored(_, ingested)] if ingested.kept.is_some()));
    let events = project.events();
    // The removal of the header was not durable when the power failed.
    std::fs::write(&header, before).unwrap();
    std::fs::set_permissions(&header, mode).unwrap();
    assert!(matches!(&recovered(&project)[..], [Recovered::Stored(_, ingested)] if ingested.kept.is_some()));
    assert_eq!(project.spool_files(), [output]);
    assert_eq!(project.events(), events, "the turn is stored once");
}

#[test]
fn what_an_agent_left_running_for_the_user_does_not_hold_its_turn_up() {
    let project = Project::new();
    let run = run_of_our_own("dd");
    let mut spool = project.spools.begin(spooled(&project, &run)).unwrap();
    let marker = Marker::new(RUN_MARKER, run).unwrap();
    let mut spawn = Spawn::new(
        "/bin/sh",
        project.folder.path(),
        own_environment().clone(),
        spool.output().unwrap(),
        marker.clone(),
    );
    let script = format!("{}; {DONE}; sleep 1000 >/dev/null 2>&1 & echo $! > pid", says("done"));
    spawn.args = vec!["-c".into(), script.into()];
    spawn.stderr = Stream::File(spool.errors().unwrap());
    let child = spawn.start().unwrap();
    let noted = SpooledProcess { pid: child.pid(), began: child.identity().started.clone() };
    spool.note_process(noted).unwrap();
    child.wait();
    drop(spool);
    assert_eq!(find_marked(&marker).len(), 1, "it is still there");
    assert!(matches!(&recovered(&project)[..], [Recovered::Stored(..)]));
    assert_eq!(outcomes(&project), [Outcome::Done]);
    assert_eq!(find_marked(&marker).len(), 1, "and stays, as after any other turn");
    azureal_process::end_marked(&marker, &azureal_process::Patience::default());
}

#[test]
fn a_turn_does_not_go_to_another_session_of_the_same_number() {
    let project = Project::new();
    let turn = SpooledTurn { session_made: "2020-01-01T00:00:00Z".into(), ..spooled(&project, "ee") };
    drop(project.spools.begin(turn).unwrap());
    assert!(matches!(&recovered(&project)[..], [Recovered::Failed(..)]));
    assert_eq!(project.events(), []);
}

#[test]
fn one_spool_that_cannot_be_looked_at_does_not_hide_the_others() {
    let project = Project::new();
    drop(project.spools.begin(spooled(&project, "ff")).unwrap());
    let folder = project.folder.path().join(".azureal/spool");
    std::fs::create_dir(folder.join("bad.turn")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.join("worse.turn")).unwrap();
    let found = recovered(&project);
    let unreadable = found.iter().filter(|found| matches!(found, Recovered::Unreadable(_))).count();
    let stored = found.iter().filter(|found| matches!(found, Recovered::Stored(..))).count();
    assert_eq!((unreadable, stored), (2, 1), "{found:?}");
}

#[test]
fn a_spool_that_was_laid_there_by_others_is_not_read() {
    let project = Project::new();
    let mut spool = project.spools.begin(spooled(&project, "gg")).unwrap();
    spool.note_process(SpooledProcess { pid: 999_999, began: "long ago".into() }).unwrap();
    drop(spool);
    let folder = project.folder.path().join(".azureal/spool");
    let secret = project.folder.path().join("secret");
    std::fs::write(&secret, "my key\n").unwrap();
    for (part, target) in [("gg.err", secret.as_path()), ("gg.jsonl", Path::new("/dev/zero"))] {
        std::fs::remove_file(folder.join(part)).unwrap();
        std::os::unix::fs::symlink(target, folder.join(part)).unwrap();
    }
    assert!(matches!(&recovered(&project)[..], [Recovered::Failed(..)]));
    assert_eq!(project.events(), []);
    // As git checks out what somebody has committed.
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = project.spools.find().unwrap_err().to_string();
    assert!(error.contains("is open to others"), "{error}");
}

#[test]
fn a_turn_that_never_began_is_stored_as_interrupted() {
    let project = Project::new();
    drop(project.spools.begin(spooled(&project, "cc")).unwrap());
    assert!(matches!(&project.spools.find().unwrap()[..], [FoundSpool::Orphan(_)]));
    assert!(matches!(&recovered(&project)[..], [Recovered::Stored(..)]));
    assert_eq!(outcomes(&project), [Outcome::Interrupted]);
    assert_eq!(project.history()[0], Message::user("before the crash"));
}

#[test]
fn eight_turns_at_once_in_eight_sessions_all_end_right() {
    let project = Project::new();
    let sessions: Vec<SessionId> =
        (0..8).map(|_| block_on(project.store.create(NewSession::default())).unwrap()).collect();
    std::thread::scope(|scope| {
        for session in &sessions {
            let project = &project;
            scope.spawn(move || {
                let agent = Script(format!("{}; sleep 0.2; {DONE}", says(&session.to_string())));
                let setup = Setup { session: *session, ..project.setup(&agent, Path::new("/bin/sh")) };
                let (driver, _) = Driver::new(setup);
                driver.run("go", &mut |_| {}).unwrap().unwrap();
            });
        }
    });
    for session in sessions {
        let history = block_on(read_history(&project.store, session)).unwrap();
        assert_eq!(history, [Message::user("go"), Message::assistant(session.to_string())]);
    }
}
