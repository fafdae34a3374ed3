//! A turn in a session whose agent still runs though its azureal was killed: it is followed first.

use super::*;

/// Tell the azureal that is killed which project it works in, and what its agent does at the end.
const PROJECT: &str = "AZUREAL_TEST_FOLLOWED_PROJECT";
const LAST: &str = "AZUREAL_TEST_FOLLOWED_LAST";

/// Opens a project whose scripts are recovered.
fn open(folder: &Path) -> Project {
    let agents = leak([Script::new("") as &dyn Agent]);
    Project { agents, ..Project::at(folder, open_store(folder)) }
}

#[test]
#[ignore = "is started by other tests, as the azureal that is killed"]
fn submits_a_turn_until_it_is_killed() {
    let (Ok(folder), Ok(last)) = (std::env::var(PROJECT), std::env::var(LAST)) else { return };
    let script = format!("{}; {}; {}; {last}", says("one"), waits_for("gate"), says("two"));
    open(Path::new(&folder)).run(&script, "before the crash");
}

/// A project with an agent that has said something and waits for a file `gate`, and whose azureal was killed.
fn project_with_orphan(last: &str) -> Project {
    let folder = tempfile::tempdir().unwrap();
    let project = open(folder.path());
    let mut azureal = Command::new(std::env::current_exe().unwrap())
        .args(["submits_a_turn_until_it_is_killed", "--ignored", "--nocapture"])
        .env(PROJECT, folder.path())
        .env(LAST, last)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the agent has said something", || {
        let output = project
            .spool_files()
            .into_iter()
            .find(|path| path.extension().is_some_and(|end| end == "jsonl"))?;
        std::fs::read_to_string(output).ok()?.contains("one").then_some(())
    });
    azureal.kill().unwrap();
    azureal.wait().unwrap();
    Project { temporary: Some(folder), ..project }
}

fn is_orphan(event: &TurnEvent) -> bool {
    matches!(event, TurnEvent::Recovered(found) if matches!(**found, Recovered::Orphan(..)))
}

/// Takes events until the agent is followed and has said its first word. Returns the name of its run.
fn follow(handle: &mut TurnHandle) -> String {
    let mut events = take_until(handle, |event| matches!(event, TurnEvent::Following(_)));
    let Some(TurnEvent::Following(turn)) = events.pop() else { panic!("{events:?}") };
    assert!(events.iter().any(is_orphan), "{events:?}");
    assert_eq!((turn.prompt.as_str(), turn.agent.as_str()), ("before the crash", "script"));
    take_until(handle, |event| is_text(event, "one"));
    assert!(!processes(&turn.run).is_empty());
    turn.run
}

#[test]
fn an_agent_whose_azureal_was_killed_is_followed_and_then_the_turn_runs() {
    let project = project_with_orphan(DONE);
    // More than a reader catches up with who stops reading: none of it is mistaken for what the other agent said.
    let options = Script::options(format!("cat > got; {}; {DONE}", floods(2_000, 12_000)));
    let mut handle = project.submit("second", options);
    let _cancel = CancelOnPanic(handle.controls());
    let run = follow(&mut handle);
    assert_eq!(project.last(), Seq::START);
    std::fs::write(project.path("gate"), "").unwrap();
    take_until(&mut handle, |event| is_text(event, "two"));
    let recovered = take_until(&mut handle, |event| matches!(event, TurnEvent::Accepted(_)));
    assert!(
        recovered.iter().any(|event| matches!(event, TurnEvent::Recovered(found)
            if matches!(&**found, Recovered::Stored(turn, stored)
                if turn.run == run && stored.complete.outcome == Some(Outcome::Done)))),
        "{recovered:?}"
    );
    let Some(TurnEvent::Accepted(accepted)) = recovered.last() else { panic!("{recovered:?}") };
    let before = Seq(accepted.record.counts.events);
    until("the turn is stored", || (project.last() > before).then_some(()));
    let own = take_until(&mut handle, |event| matches!(event, TurnEvent::Stored(_)));
    assert!(reported(&own) == stored_after(&project, before));
    assert_eq!(handle.result().unwrap().first, Some(before.next()));
    assert_eq!(project.outcomes(), [Outcome::Done, Outcome::Done]);
    assert_eq!(project.texts()[..3], ["before the crash", "one", "second"]);
    assert!(project.events().contains(&Event::assistant("two")));
    let sent = std::fs::read_to_string(project.path("got")).unwrap();
    assert!(sent.contains("two") && sent.ends_with("second"), "{sent}");
    assert_eq!(processes(&run), []);
}

#[test]
fn a_cancel_while_an_agent_is_followed_stops_it_and_the_turn_does_not_begin() {
    let project = project_with_orphan(DONE);
    let mut handle = project.submit("second", Script::options("touch asked"));
    let run = follow(&mut handle);
    handle.cancel();
    let error = handle.result().unwrap_err();
    assert!(matches!(&error, TurnError::Stopped { session } if *session == project.session), "{error:?}");
    assert_eq!(project.outcomes(), [Outcome::Cancelled]);
    assert_eq!(project.texts(), ["before the crash", "one"]);
    assert!(!project.path("asked").exists());
    assert_eq!(processes(&run), []);
    assert_eq!(project.spool_files(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn a_cancel_stops_also_what_a_followed_agent_has_left_behind() {
    let project = project_with_orphan("sleep 1000 & exit");
    let mut handle = project.submit("second", Script::options("touch asked"));
    let run = follow(&mut handle);
    std::fs::write(project.path("gate"), "").unwrap();
    take_until(&mut handle, |event| is_text(event, "two"));
    // The agent has ended, and what it started could still write.
    take_until(&mut handle, is_orphan);
    handle.cancel();
    let error = handle.result().unwrap_err();
    assert!(matches!(&error, TurnError::Stopped { .. }), "{error:?}");
    assert_eq!(project.outcomes(), [Outcome::Cancelled]);
    assert!(!project.path("asked").exists());
    assert_eq!(processes(&run), []);
}
