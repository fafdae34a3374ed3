//! Whole turns: a real process, a real spool, a real store.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use azureal_core::agent::AgentOutput;
use azureal_core::event::Outcome;
use azureal_core::{Event, Message, NewSession, Role, SessionId, StoreError, Tokens, read_history};
use azureal_engine::{
    FinishedTurn, FoundSpool, IngestError, OutputLimit, RUN_MARKER, Recovered, SpooledProcess, SpooledTurn,
    TurnControls, TurnError, TurnEvent, TurnOptions, TurnRequest,
};
use azureal_process::{Marker, Spawn, Stream, find_marked};
use futures_executor::block_on;

use crate::harness::{DONE, Project, Script, drive, own_environment, processes, says, waits_for};
use crate::machine::{busy, is_own_process, own_memory};

/// Runs a script that leaves a file behind if nobody stops it before it has printed a gigabyte, under a limit of 8 MiB.
fn run_limited(project: &Project, script: &str) -> FinishedTurn {
    let options = TurnOptions {
        output_limit: OutputLimit::of_mib(8),
        timeout: Some(Duration::from_secs(60)),
        ..Script::options(format!("ulimit -f 2097152; {script}; touch not-stopped; sleep 600"))
    };
    let finished = project.submit("Go", options).result().unwrap();
    assert!(!project.path("not-stopped").exists(), "it printed a gigabyte");
    finished
}

#[test]
fn an_agent_that_prints_more_than_it_may_is_stopped_and_what_came_is_stored() {
    let _busy = busy();
    // To standard output, without any line break, to standard error, and by somebody who does not want to stop.
    let ignores = "trap '' INT TERM; while :; do head -c 1000000 /dev/zero || touch not-stopped; done";
    for flood in ["yes '{\"notice\":\"x\"}'", "cat /dev/zero", "cat /dev/zero >&2", ignores] {
        let project = Project::new();
        let finished = run_limited(&project, &format!("{}; {flood}", says("hello")));
        assert_eq!(finished.complete.outcome, Some(Outcome::Failed), "{flood}");
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
    let options = TurnOptions {
        output_limit: OutputLimit::of_mib(8),
        ..Script::options(format!("{}; {piece}; sleep 0.3; {DONE}", says("hello")))
    };
    let mut told = Vec::new();
    let finished = drive(project.submit("Go", options), |event, _| {
        if let TurnEvent::Notice(text) = event {
            told.push(text);
        }
    });
    assert_eq!(finished.unwrap().complete.outcome, Some(Outcome::Done));
    assert_eq!(told, ["script has printed 2 MiB; it is stopped at 8 MiB"]);
}

#[test]
fn a_turn_is_stored_and_nothing_is_left_beside_it() {
    let project = Project::new();
    let finished = project.run(&format!("{}; {DONE}", says("hello")), "hi");
    assert_eq!(finished.complete.outcome, Some(Outcome::Done));
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
    let got = || std::fs::read_to_string(project.path("got")).unwrap();
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

/// Runs a turn and does something while the agent runs. Returns the names of the runs.
fn run_while(
    project: &Project,
    script: &str,
    timeout: Option<Duration>,
    act: impl FnOnce(&TurnControls),
) -> Vec<String> {
    let options = TurnOptions { timeout, ..Script::options(script) };
    let (mut runs, mut act) = (Vec::new(), Some(act));
    let finished = drive(project.submit("first", options), |event, controls| match event {
        TurnEvent::Began(began) => runs.push(began.run),
        // The agent has said something, so it runs.
        TurnEvent::Output(output) if matches!(*output, AgentOutput::Event(_)) => {
            if let Some(act) = act.take() {
                act(controls);
            }
        }
        _ => {}
    });
    finished.unwrap();
    assert!(act.is_none(), "the agent has said nothing");
    runs
}

fn no_survivor(run: &str) {
    assert_eq!(processes(run), []);
}

#[test]
fn a_cancel_ends_everything_of_the_run_and_keeps_what_came() {
    let project = Project::new();
    let script = format!("{}; setsid sleep 1000 & sleep 1000", says("half"));
    let runs = run_while(&project, &script, None, TurnControls::cancel);
    no_survivor(&runs[0]);
    assert_eq!(project.outcomes(), [Outcome::Cancelled]);
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
    run_while(&project, &script, None, |controls| assert!(controls.stage("second")));
    assert_eq!(project.outcomes(), [Outcome::Cancelled, Outcome::Done]);
    assert_eq!(project.texts(), ["first", "half", "second", "whole"]);
}

#[test]
fn a_turn_is_found_by_its_session_from_its_submission_to_its_end() {
    let project = Project::new();
    let engine = project.engine();
    let script = format!("{}; {}; {DONE}", says("a"), waits_for("gate"));
    let request = TurnRequest::new(project.session, "first", Script::options(script));
    let handle = engine.submit(request);
    assert_eq!(handle.session(), Some(project.session));
    let controls = engine.clone().turn(project.session).unwrap();
    assert!(engine.turn(SessionId::new(1_000).unwrap()).is_none());
    controls.cancel();
    drop(drive(handle, |_, _| {}));
    assert!(engine.turn(project.session).is_none());
    assert!(!controls.stage("second"), "the turn is over");
}

#[test]
fn a_prompt_that_is_staged_when_the_agent_has_ended_is_sent() {
    let project = Project::new();
    let mut is_staged = false;
    let finished = drive(project.submit("first", Script::options(DONE)), |event, controls| match event {
        // Reported while the driver may still listen, or not any more.
        TurnEvent::Stored(_) if !is_staged => is_staged = controls.stage("second"),
        _ => {}
    });
    finished.unwrap();
    let expected = if is_staged { 2 } else { 1 };
    assert_eq!(project.outcomes().len(), expected, "sent if and only if it was taken");
}

#[test]
fn the_agents_own_name_of_a_run_is_noted_while_it_runs() {
    let project = Project::new();
    let init =
        r#"printf '%s\n' '{"Init":{"cwd":"/","model":"m","agent":"script","agent_session":"uuid-1"}}'"#;
    let script = format!("{init}; {}; {DONE}", waits_for("gate"));
    run_while(&project, &script, Some(Duration::from_secs(20)), |_| {
        let deadline = Instant::now() + Duration::from_secs(10);
        let noted = || block_on(project.store.noted_runs()).unwrap();
        while noted() != [(project.session, "uuid-1".to_owned())] && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        if Instant::now() < deadline {
            std::fs::write(project.path("gate"), "").unwrap();
        }
    });
    assert_eq!(project.outcomes(), [Outcome::Done], "it was not noted");
    assert_eq!(block_on(project.store.noted_runs()).unwrap(), [], "it is stored, and so no longer noted");
}

#[test]
fn a_turn_that_takes_too_long_is_stopped() {
    let project = Project::new();
    let script = format!("{}; sleep 1000", says("half"));
    let runs = run_while(&project, &script, Some(Duration::from_millis(700)), |_| {});
    no_survivor(&runs[0]);
    assert_eq!(project.outcomes(), [Outcome::Timeout]);
}

#[test]
fn an_agent_that_dies_leaves_what_it_said_and_the_next_prompt_works() {
    let project = Project::new();
    project.run(&format!("{}; kill -9 $$", says("half")), "first");
    assert_eq!(project.outcomes(), [Outcome::Interrupted]);
    assert!(project.events().iter().any(|event| matches!(event, Event::Error(_))));
    project.run(&format!("{}; {DONE}", says("whole")), "second");
    assert_eq!(project.outcomes(), [Outcome::Interrupted, Outcome::Done]);
}

#[test]
fn an_agent_that_is_killed_leaves_no_process_that_works_on_unseen() {
    let project = Project::new();
    let runs =
        run_while(&project, &format!("{}; setsid sleep 1000 & kill -9 $$", says("half")), None, |_| {});
    no_survivor(&runs[0]);
    assert_eq!(project.outcomes(), [Outcome::Interrupted]);
}

#[test]
fn a_program_that_is_not_there_is_told_and_the_prompt_is_kept() {
    let project = Project::new();
    let options = TurnOptions::new(Script::new(""), "/nowhere/agent");
    let finished = project.submit("hi", options).result().unwrap();
    assert_eq!(finished.complete.outcome, Some(Outcome::Failed));
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
        let finished = project.run(&format!("{script}; {DONE}"), "go");
        let kept = finished.kept.expect("the spool is kept");
        assert!(std::fs::metadata(&kept).unwrap().len() >= bytes);
        assert!(project.events().iter().any(
            |event| matches!(event, Event::Error(error) if error.message.contains("output of the turn is kept"))
        ));
        assert_eq!(project.outcomes().len(), 1, "{script}");
        assert!(project.recover().is_empty());
    }
    if let Some((before, after)) = before.zip(own_memory("VmHWM")) {
        assert!(after - before < 200 << 20, "grew from {before} to {after} bytes");
    }
}

#[test]
fn a_session_that_is_gone_keeps_the_spool() {
    let project = Project::new();
    let script = format!("{}; {}; {DONE}", says("late"), waits_for("gate"));
    let result = drive(project.submit("hi", Script::options(script)), |event, _| {
        if matches!(event, TurnEvent::Began(_)) {
            block_on(project.store.delete(project.session)).unwrap();
            std::fs::write(project.path("gate"), "").unwrap();
        }
    });
    assert!(
        matches!(&result, Err(TurnError::NotStored(IngestError::Store(StoreError::NoSuchSession(_))))),
        "{result:?}"
    );
    assert!(!project.spool_files().is_empty(), "what was printed is lost");
}

/// Returns the name of a run that has processes. No other test run on this machine has it: markers are searched everywhere.
fn run_of_our_own(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

#[test]
fn a_turn_whose_azureal_died_is_found_when_its_agent_has_ended_and_stored_once() {
    let project = Project::new();
    let run = run_of_our_own("aa");
    let mut spool = project.spools.begin(project.spooled(&run)).unwrap();
    let marker = Marker::new(RUN_MARKER, run).unwrap();
    let mut spawn =
        Spawn::new("/bin/sh", &project.directory, own_environment().clone(), spool.output().unwrap(), marker);
    let gate = project.path("gate");
    let script = format!("{}; {}; {DONE}", says("survived"), waits_for("gate"));
    spawn.args = vec!["-c".into(), script.into()];
    spawn.stderr = Stream::File(spool.errors().unwrap());
    let child = spawn.start().unwrap();
    spool
        .note_process(SpooledProcess {
            pid: child.pid(),
            began: child.identity().started.clone(),
            before: None,
        })
        .unwrap();
    assert!(matches!(&project.recover()[..], [Recovered::Running(..)]), "its owner lives");
    drop(spool); // azureal dies
    assert!(matches!(&project.recover()[..], [Recovered::Orphan(..)]), "the agent still runs");
    std::fs::write(gate, "").unwrap();
    child.wait();
    assert!(matches!(&project.recover()[..], [Recovered::Stored(..)]));
    assert!(project.recover().is_empty());
    assert_eq!(project.history(), [Message::user("before the crash"), Message::assistant("survived")]);
    assert_eq!(project.outcomes(), [Outcome::Done]);
}

/// Stores an orphaned turn with this output, last written at this second of the clock, and returns its duration.
fn recovered_duration(agent: &str, output: &str, written: u64) -> u64 {
    let project = Project { agents: azureal_agents::registry::all(), ..Project::new() };
    let turn = SpooledTurn { agent: agent.into(), ..project.spooled("dd") };
    let mut spool = project.spools.begin(turn).unwrap();
    spool.note_process(SpooledProcess { pid: 999_999, began: "long ago".into(), before: None }).unwrap();
    let mut file = spool.output().unwrap();
    std::io::Write::write_all(&mut file, output.as_bytes()).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(written)).unwrap();
    drop(spool);
    let found = project.recover();
    let [Recovered::Stored(_, ingested)] = &found[..] else { panic!("{found:?}") };
    ingested.complete.duration_ms
}

#[test]
fn a_turn_that_was_cancelled_before_its_azureal_died_is_recovered_as_cancelled() {
    for (is_cancelled, printed) in [(true, ""), (true, "not a line of ours"), (false, "")] {
        let project = Project::new();
        let spool = project.spools.begin(project.spooled("lost")).unwrap();
        std::fs::write(spool.output_path(), printed).unwrap();
        if is_cancelled {
            project.spools.cancel(spool.turn()).unwrap();
        }
        drop(spool);
        assert!(matches!(&project.recover()[..], [Recovered::Stored(..)]));
        let outcome = if is_cancelled { Outcome::Cancelled } else { Outcome::Interrupted };
        assert_eq!(project.outcomes(), [outcome], "{printed:?}");
    }
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
    let spool = project.spools.begin(project.spooled("bb")).unwrap();
    std::io::Write::write_all(
        &mut spool.output().unwrap(),
        format!("{}\n", Event::assistant("once").to_json()).as_bytes(),
    )
    .unwrap();
    // Azureal dies after the commit and before the removal: copies of the spool stand for that.
    let folder = project.path(".azureal/spool");
    let copies: Vec<(PathBuf, Vec<u8>)> =
        project.spool_files().into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    let mark = azureal_core::NewMark { name: "run:bb".into(), note: String::new() };
    drop(spool);
    assert!(matches!(&project.recover()[..], [Recovered::Stored(..)]));
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
        matches!(&project.recover()[..], [Recovered::Stored(_, ingested)] if ingested.appended.is_none())
    );
    assert_eq!(project.events(), before);
    assert_eq!(project.spool_files(), [] as [PathBuf; 0]);
    assert_eq!(block_on(project.store.mark("run:bb")).unwrap(), None);
    assert_eq!(block_on(project.store.noted_runs()).unwrap(), []);
}

#[test]
fn output_that_is_kept_stays_though_its_header_comes_back() {
    let project = Project::new();
    let spool = project.spools.begin(project.spooled("kk")).unwrap();
    let line = "x".repeat(65 << 20) + "\n";
    std::io::Write::write_all(&mut spool.output().unwrap(), line.as_bytes()).unwrap();
    let (output, header) = (spool.output_path().to_owned(), spool.output_path().with_extension("turn"));
    drop(spool);
    let (before, mode) = (std::fs::read(&header).unwrap(), std::fs::metadata(&header).unwrap().permissions());
    assert!(matches!(&project.recover()[..], [Recovered::Stored(_, ingested)] if ingested.kept.is_some()));
    let events = project.events();
    // The removal of the header was not durable when the power failed.
    std::fs::write(&header, before).unwrap();
    std::fs::set_permissions(&header, mode).unwrap();
    assert!(matches!(&project.recover()[..], [Recovered::Stored(_, ingested)] if ingested.kept.is_some()));
    assert_eq!(project.spool_files(), [output]);
    assert_eq!(project.events(), events, "the turn is stored once");
}

#[test]
fn what_an_agent_left_running_for_the_user_does_not_hold_its_turn_up() {
    let project = Project::new();
    let run = run_of_our_own("dd");
    let mut spool = project.spools.begin(project.spooled(&run)).unwrap();
    let marker = Marker::new(RUN_MARKER, run).unwrap();
    let mut spawn = Spawn::new(
        "/bin/sh",
        &project.directory,
        own_environment().clone(),
        spool.output().unwrap(),
        marker.clone(),
    );
    let script = format!("{}; {DONE}; sleep 1000 >/dev/null 2>&1 & echo $! > pid", says("done"));
    spawn.args = vec!["-c".into(), script.into()];
    spawn.stderr = Stream::File(spool.errors().unwrap());
    let child = spawn.start().unwrap();
    let noted = SpooledProcess { pid: child.pid(), began: child.identity().started.clone(), before: None };
    spool.note_process(noted).unwrap();
    child.wait();
    drop(spool);
    assert_eq!(find_marked(&marker).len(), 1, "it is still there");
    assert!(matches!(&project.recover()[..], [Recovered::Stored(..)]));
    assert_eq!(project.outcomes(), [Outcome::Done]);
    assert_eq!(find_marked(&marker).len(), 1, "and stays, as after any other turn");
    azureal_process::end_marked(&marker, &azureal_process::StopTimeouts::default());
}

#[test]
fn a_turn_does_not_go_to_another_session_of_the_same_number() {
    let project = Project::new();
    let turn = SpooledTurn { session_made: "2020-01-01T00:00:00Z".into(), ..project.spooled("ee") };
    drop(project.spools.begin(turn).unwrap());
    assert!(matches!(&project.recover()[..], [Recovered::Failed(..)]));
    assert_eq!(project.events(), []);
}

#[test]
fn one_spool_that_cannot_be_looked_at_does_not_hide_the_others() {
    let project = Project::new();
    drop(project.spools.begin(project.spooled("ff")).unwrap());
    let folder = project.path(".azureal/spool");
    std::fs::create_dir(folder.join("bad.turn")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.join("worse.turn")).unwrap();
    let found = project.recover();
    let unreadable = found.iter().filter(|found| matches!(found, Recovered::Unreadable(_))).count();
    let stored = found.iter().filter(|found| matches!(found, Recovered::Stored(..))).count();
    assert_eq!((unreadable, stored), (2, 1), "{found:?}");
}

#[test]
fn a_spool_that_was_laid_there_by_others_is_not_read() {
    let project = Project::new();
    let mut spool = project.spools.begin(project.spooled("gg")).unwrap();
    spool.note_process(SpooledProcess { pid: 999_999, began: "long ago".into(), before: None }).unwrap();
    drop(spool);
    let folder = project.path(".azureal/spool");
    let secret = project.path("secret");
    std::fs::write(&secret, "my key\n").unwrap();
    for (part, target) in [("gg.err", secret.as_path()), ("gg.jsonl", Path::new("/dev/zero"))] {
        std::fs::remove_file(folder.join(part)).unwrap();
        std::os::unix::fs::symlink(target, folder.join(part)).unwrap();
    }
    assert!(matches!(&project.recover()[..], [Recovered::Failed(..)]));
    assert_eq!(project.events(), []);
    // As git checks out what somebody has committed.
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = project.spools.find().unwrap_err().to_string();
    assert!(error.contains("is open to others"), "{error}");
}

#[test]
fn a_turn_that_never_began_is_stored_as_interrupted() {
    let project = Project::new();
    drop(project.spools.begin(project.spooled("cc")).unwrap());
    assert!(matches!(&project.spools.find().unwrap()[..], [FoundSpool::Orphan(_)]));
    assert!(matches!(&project.recover()[..], [Recovered::Stored(..)]));
    assert_eq!(project.outcomes(), [Outcome::Interrupted]);
    assert_eq!(project.history()[0], Message::user("before the crash"));
}

#[test]
fn eight_turns_at_once_in_eight_sessions_all_end_right() {
    let project = Project::new();
    let sessions: Vec<SessionId> =
        (0..8).map(|_| block_on(project.store.create(NewSession::default())).unwrap()).collect();
    let engine = project.engine();
    let turn = |session: &SessionId| {
        let script = format!("{}; sleep 0.2; {DONE}", says(&session.to_string()));
        engine.submit(TurnRequest::new(*session, "go", Script::options(script)))
    };
    let handles: Vec<_> = sessions.iter().map(turn).collect();
    for handle in handles {
        handle.result().unwrap();
    }
    for session in sessions {
        let history = block_on(read_history(&*project.store, session)).unwrap();
        assert_eq!(history, [Message::user("go"), Message::assistant(session.to_string())]);
    }
}
