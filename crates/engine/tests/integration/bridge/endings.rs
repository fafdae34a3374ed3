//! How turns behind a bridge end: cancel, death, garbage and floods.

use super::*;

#[test]
fn a_cancel_asks_the_agent_first_and_leaves_nothing() {
    for script in ["wait", "stubborn"] {
        for by_front_end in [true, false] {
            let project = Project::new();
            let mut run = String::new();
            let finished = project.run_with(&Bridge::new(script), "hi", |running| {
                run.clone_from(&running.run);
                running.wait_for_half();
                // One that becomes another program carries no marker for a moment.
                until("the bridge, the agent and its tool run", || {
                    (processes(&running.run).len() >= 3).then_some(())
                });
                if by_front_end {
                    running.control.cancel().unwrap();
                } else {
                    running.handle.cancel();
                }
            });
            assert_eq!(finished.complete.outcome, Some(Outcome::Cancelled), "{script} {}", project.error());
            assert_eq!(project.history()[1], Message::assistant("half"));
            assert!(project.path("heard-cancel").exists(), "{script}");
            project.nothing_is_left_of(&run);
        }
    }
}

#[test]
fn an_agent_that_dies_is_told_of_with_its_exit_status() {
    for (script, error) in [
        ("die", "bridged: the agent exited before its turn was over; it was ended by signal 9 (SIGKILL)"),
        ("exit", "bridged: the agent exited before its turn was over; it exited with code 3"),
        (
            "mute",
            "bridged: the agent closed its output before its turn was over; it was ended by signal 2 (SIGINT)",
        ),
    ] {
        let project = Project::new();
        let finished = project.run(&Bridge::new(script), "hi");
        assert_eq!(finished.complete.outcome, Some(Outcome::Interrupted), "{script}");
        assert_eq!(project.error(), error);
        assert!(project.history()[1].first_text().unwrap().starts_with("half"));
        assert_eq!(project.run(&Bridge::new("answer"), "again").complete.outcome, Some(Outcome::Done));
    }
}

#[test]
fn a_bridge_that_is_killed_leaves_no_process_and_what_came_is_stored() {
    let project = Project::new();
    let mut run = String::new();
    let finished = project.run_with(&Bridge::new("wait"), "hi", |running| {
        run.clone_from(&running.run);
        running.wait_for_half();
        kill(running.process.pid);
    });
    assert_eq!(finished.complete.outcome, Some(Outcome::Interrupted));
    assert!(project.history()[1].first_text().unwrap().starts_with("half"));
    project.nothing_is_left_of(&run);
}

#[test]
fn garbage_of_an_agent_is_kept_as_evidence_and_the_turn_goes_on() {
    let project = Project::new();
    let finished = project.run(&Bridge::new("garbage"), "hi");
    assert_eq!(finished.complete.outcome, Some(Outcome::Done));
    let unreadable = project.events().into_iter().filter_map(|event| match event {
        Event::Error(error) => Some(error.message),
        _ => None,
    });
    let unreadable: Vec<String> = unreadable.collect();
    assert_eq!(unreadable.len(), 3, "{unreadable:?}");
    assert_eq!(unreadable[0], "bridged sent a message of 14 bytes that is no JSON: no json at all");
    assert!(unreadable[2].starts_with("bridged sent a message of 3145728 bytes that is no JSON: xxx"));
}

#[test]
fn an_agent_that_prints_without_end_is_stopped() {
    let project = Project::new();
    let options =
        TurnOptions { output_limit: OutputLimit::of_mib(8), ..Project::options(&Bridge::new("flood")) };
    let finished = project.submit("hi", options).result().unwrap();
    assert_eq!(finished.complete.outcome, Some(Outcome::Failed));
    assert!(project.error().starts_with("bridged was stopped because of its output"), "{}", project.error());
}
