//! Turns that are not stored yet when the next one of their session is sent: it waits for them.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use azureal_core::agent::Ending;
use azureal_core::event::{Complete, Outcome};
use azureal_core::{Event, NewSession};
use azureal_engine::{
    CancelResult, FoundSpool, RUN_MARKER, Recovered, Spool, SpooledProcess, SpooledTurn, Spools, TurnError,
    TurnEvent, cancel_running,
};
use azureal_process::{Child, Marker, Spawn, Stream};
use futures_executor::block_on;

use crate::harness::{DONE, Project, Script, drive, own_environment, says, waits_for};

/// Becomes the owner of the one spool of a session, as another process does that stores it.
fn taken(spools: &Spools, session: u32) -> Spool {
    let of_session = |found: FoundSpool| match found {
        FoundSpool::Orphan(orphan) if orphan.turn().session == session => orphan.take().unwrap(),
        _ => None,
    };
    spools.find().unwrap().into_iter().find_map(of_session).expect("there is one")
}

fn run_of_our_own(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// Leaves the spool of a turn that has ended.
fn leave_a_turn(project: &Project, session: u32, run: &str) {
    let turn = SpooledTurn { session, ..project.spooled(&run_of_our_own(run)) };
    let spool = project.spools.begin(turn).unwrap();
    let done = Complete { success: true, ..Complete::default() };
    for event in [Event::assistant("what the first one said"), Event::Complete(done)] {
        spool.output().unwrap().write_all((event.to_json() + "\n").as_bytes()).unwrap();
    }
}

#[test]
fn a_turn_waits_while_another_process_stores_the_last_one() {
    let project = Project::in_memory();
    leave_a_turn(&project, project.session.number(), "stored");
    let mut storing = Some(taken(&project.spools, project.session.number()));
    storing.as_mut().unwrap().note_ended(&Ending::default()).unwrap();
    let script = format!("cat > got; {}; {DONE}", says("second"));
    let mut began_beside = false;
    let handle = project.submit("the second prompt", Script::options(script));
    let finished = drive(handle, |event, _| match event {
        TurnEvent::Notice(text) if text.contains("another command stores") => drop(storing.take()),
        TurnEvent::Began(_) => began_beside |= storing.is_some(),
        _ => {}
    });
    assert_eq!(finished.unwrap().complete.outcome, Some(Outcome::Done));
    assert!(!began_beside, "it began beside a turn that was not stored");
    let got = std::fs::read_to_string(project.path("got")).unwrap();
    assert!(got.contains("what the first one said"), "{got}");
    assert_eq!(
        project.texts(),
        ["before the crash", "what the first one said", "the second prompt", "second"]
    );
}

#[test]
fn a_turn_does_not_begin_beside_one_whose_output_cannot_be_read_now() {
    let set_mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let project = Project::in_memory();
    let session = project.session.number();
    let script = || format!("touch asked; {}; {DONE}", says("second"));
    for (round, is_link) in [(1, false), (2, true)] {
        leave_a_turn(&project, session, &format!("unreadable{round}"));
        let path = taken(&project.spools, session).output_path().to_owned();
        let backup = project.path("backup");
        if is_link {
            std::fs::hard_link(&path, &backup).unwrap();
        } else {
            set_mode(&path, 0o644);
        }
        let before = project.texts();
        let refused = project.submit("the second prompt", Script::options(script())).result();
        assert!(
            matches!(&refused, Err(TurnError::Unstored { spool, .. }) if *spool == path),
            "{is_link}: {refused:?}"
        );
        assert_eq!((project.texts(), project.path("asked").exists()), (before.clone(), false));
        if is_link {
            std::fs::remove_file(backup).unwrap();
        } else {
            set_mode(&path, 0o600);
        }
        project.submit("the second prompt", Script::options(script())).result().unwrap();
        std::fs::remove_file(project.path("asked")).unwrap();
        let texts = project.texts();
        let told = ["before the crash", "what the first one said", "the second prompt", "second"];
        assert_eq!(texts[before.len()..], told);
    }
}

/// Starts an agent that works without an azureal until there is a file `gate`.
fn leave_an_agent(project: &Project, session: u32) -> Child {
    let run = run_of_our_own(
        &format!("works-{}", project.directory.file_name().unwrap().display()).replace('.', "x"),
    );
    let turn = SpooledTurn { session, ..project.spooled(&run) };
    let mut spool = project.spools.begin(turn).unwrap();
    let marker = Marker::new(RUN_MARKER, run).unwrap();
    let mut spawn =
        Spawn::new("/bin/sh", &project.directory, own_environment().clone(), spool.output().unwrap(), marker);
    spawn.args = vec!["-c".into(), format!("{}; {}; {DONE}", waits_for("gate"), says("survived")).into()];
    spawn.stderr = Stream::File(spool.errors().unwrap());
    let child = spawn.start().unwrap();
    let began = child.identity().started.clone();
    spool.note_process(SpooledProcess { pid: child.pid(), began, before: None }).unwrap();
    child
}

#[test]
fn an_agent_in_the_background_is_followed_while_another_process_stores_another_session() {
    let project = Project::in_memory();
    let other = block_on(project.store.create(NewSession::default())).unwrap();
    leave_a_turn(&project, other.number(), "large");
    let child = leave_an_agent(&project, project.session.number());
    // It found both spools, and stores the first one for a while.
    let storing = taken(&project.spools, other.number());
    let mut is_followed = false;
    let script = format!("{}; {DONE}", says("second"));
    let handle = project.submit("the second prompt", Script::options(script));
    let finished = drive(handle, |event, _| match event {
        TurnEvent::Following(_) => {
            is_followed = true;
            std::fs::write(project.path("gate"), "").unwrap();
        }
        TurnEvent::Began(_) => assert!(is_followed, "it began beside an agent that works"),
        _ => {}
    });
    child.wait();
    assert_eq!(finished.unwrap().complete.outcome, Some(Outcome::Done));
    assert_eq!(project.texts(), ["before the crash", "survived", "the second prompt", "second"]);
    drop(storing);
    assert!(matches!(&project.recover()[..], [Recovered::Stored(..)]));
}

#[test]
fn an_agent_in_the_background_is_cancelled_by_a_process_that_knows_nothing_of_it() {
    let project = Project::in_memory();
    let child = leave_an_agent(&project, project.session.number());
    let result = cancel_running(&project.spools, project.session, None).unwrap();
    assert!(matches!(result, CancelResult::Cancelled(run) if run.is_orphan));
    child.wait();
    assert!(matches!(&project.recover()[..], [Recovered::Stored(..)]));
    assert_eq!(project.outcomes(), [Outcome::Cancelled]);
}

#[test]
fn a_cancel_ends_the_waiting_for_a_turn_that_another_process_stores() {
    let project = Project::in_memory();
    leave_a_turn(&project, project.session.number(), "waited");
    let _storing = taken(&project.spools, project.session.number());
    let result = drive(project.submit("never sent", Script::options(DONE)), |event, controls| {
        if matches!(event, TurnEvent::Notice(_)) {
            controls.cancel();
        }
    });
    assert!(matches!(result, Err(TurnError::Stopped { .. })), "{result:?}");
    assert!(project.events().is_empty());
}
