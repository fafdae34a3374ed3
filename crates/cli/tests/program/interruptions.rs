//! Turns that are stopped, and what the next agent is told of it.

use std::fs;
use std::process::Command;
use std::process::{Child, Stdio};

use crate::run::{fake_claude, signal, wait_for_beginning, wait_until};
use crate::world::World;

const STOPPED: &str = "\n\n[The user stopped this turn before it was finished.]\n</azureal-session-context>";

fn start(world: &World, arguments: &[&str]) -> Child {
    world.with_programs(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Returns the outcome of the last turn, and what the next agent receives.
fn told(world: &World) -> (String, String) {
    let events = world.run(&["show", "S1", "--json"]).json_lines();
    let outcome = events.last().unwrap()["data"]["outcome"].as_str().unwrap().to_owned();
    (outcome, world.run(&["context", "S1"]).stdout)
}

#[test]
fn one_interrupt_and_two_are_told_in_the_same_line() {
    let mut contexts = Vec::new();
    for interrupts in [1, 2] {
        let world = World::new();
        let gate = world.path("gate");
        // It takes its time, whatever it is asked.
        fake_claude(&world, &format!("trap '' INT\nuntil test -e '{}'; do sleep 0.02; done", gate.display()));
        let mut child = start(&world, &["run", "Do it"]);
        wait_for_beginning(&world);
        if interrupts == 1 {
            signal(&child, "-INT");
            assert_eq!(child.wait().unwrap().code(), Some(130));
        } else {
            // By one process: on a busy machine the start of a second one takes longer than the first signal.
            let twice = ["-c", "kill -INT $0; sleep 0.1; kill -INT $0", &child.id().to_string()];
            assert!(Command::new("sh").args(twice).status().unwrap().success());
            assert_eq!(child.wait().unwrap().code(), None, "it ends at once, by the signal");
            let listed = world.run(&["list"]);
            assert!(listed.stderr.contains("claude is still running in the background"), "{listed}");
            fs::write(&gate, "").unwrap();
            wait_until("the recovery", || world.run(&["list"]).stderr.starts_with("recovered"));
        }
        let (outcome, context) = told(&world);
        assert_eq!(outcome, "cancelled");
        assert!(context.ends_with(STOPPED), "{context}");
        contexts.push(context);

        // It stays where it is.
        assert_eq!(world.run(&["run", "-c", "-a", "offline", "Go on"]).code, 0);
        let (_, later) = told(&world);
        let before = contexts.last().unwrap().strip_suffix("\n</azureal-session-context>").unwrap();
        assert!(later.starts_with(before), "{later}");
        assert_eq!(later.matches("stopped this turn").count(), 1, "{later}");
    }
    let last_lines: Vec<_> = contexts.iter().map(|context| context.lines().nth_back(1).unwrap()).collect();
    assert_eq!(last_lines[0], last_lines[1]);
}

#[test]
fn a_turn_whose_time_was_up_or_that_was_killed_is_told() {
    let world = World::new();
    fake_claude(&world, "sleep 1000");
    let ended = start(&world, &["run", "--timeout", "0.5", "Do it"]).wait().unwrap();
    assert_eq!(ended.code(), Some(1));
    let (outcome, context) = told(&world);
    assert_eq!(outcome, "timeout");
    assert!(
        context.ends_with("\n\n[This turn was stopped after its time limit.]\n</azureal-session-context>"),
        "{context}"
    );
    fake_claude(&world, "kill -9 $$");
    start(&world, &["run", "-c", "Again"]).wait().unwrap();
    let (outcome, context) = told(&world);
    assert_eq!(outcome, "interrupted");
    let note = "(SIGKILL)\n\n[This turn was interrupted before it was finished.]\n</azureal-session-context>";
    assert!(context.ends_with(note), "{context}");
}
