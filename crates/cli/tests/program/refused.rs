//! Turns that are refused before the agent starts, and turns that fail without an answer: what is stored, and what `-c` continues.

use std::fs;

use crate::world::{Ran, World};

/// A project outside of git, with agents that must not start.
fn outside_git() -> World {
    let world = World::new();
    fs::create_dir(world.path("plain")).unwrap();
    world.program("codex", &format!("touch '{}'", world.path("started").display()));
    world
}

fn run_in(world: &World, folder: &str, arguments: &[&str]) -> Ran {
    let mut command = world.with_programs(arguments);
    command.env("HOME", world.path("person")).current_dir(world.path(folder));
    world.ran(command.output().unwrap())
}

#[test]
fn codex_outside_of_git_stores_nothing_and_uses_up_no_number() {
    let world = outside_git();
    let ask = |arguments: &[&str]| run_in(&world, "plain", &[&["run"], arguments].concat());
    for arguments in
        [&["-a", "codex", "Hi"][..], &["-s", "topic", "-a", "codex", "--permission", "edit", "Hi"]]
    {
        let ran = ask(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{ran}");
        assert!(ran.stderr.contains("error: codex does not run outside a git repository"), "{ran}");
        assert!(!world.path("plain/.azureal/sessions.azs").exists(), "no store is created");
    }
    let first = ask(&["-a", "offline", "First"]);
    assert!(first.code == 0 && first.stderr.starts_with("S1 · offline"), "{first}");
    // Nor is it a try of a session that is there.
    let second = ask(&["--name", "second", "-a", "offline", "Second"]);
    assert!(second.stderr.starts_with("S2 second"), "{second}");
    let before = run_in(&world, "plain", &["show", "S1", "--json"]).quiet();
    assert_eq!(ask(&["-s", "S1", "-a", "codex", "Hi"]).code, 1);
    assert_eq!(run_in(&world, "plain", &["show", "S1", "--json"]).quiet(), before);
    let continued = ask(&["-c", "-a", "offline", "Third"]);
    assert!(continued.stderr.starts_with("S2 second"), "{continued}");
    assert!(!world.path("started").exists());
}

#[test]
fn a_first_turn_without_an_answer_is_the_one_that_is_continued() {
    let world = World::new();
    world.program("claude", "cat > /dev/null\necho 'API Error: 403' >&2\nexit 3");
    let ask = |arguments: &[&str]| run_in(&world, "p", &[&["run"], arguments].concat());
    assert_eq!(ask(&["-a", "offline", "Older"]).code, 0);
    let failed = ask(&["-a", "claude", "Newer"]);
    assert!(failed.code == 1 && failed.stderr.starts_with("S2 · claude"), "{failed}");
    let continued = ask(&["-c", "-a", "offline", "Go on"]);
    let said = "S2 · offline\nno agent has answered in S2 yet: its earlier turns failed\n";
    assert!(continued.code == 0 && continued.stderr.starts_with(said), "{continued}");
    let prompts: Vec<String> = run_in(&world, "p", &["show", "S2", "--json"])
        .json_lines()
        .into_iter()
        .filter(|event| event["kind"] == "UserMessage")
        .map(|event| event["data"]["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(prompts, ["Newer", "Go on"]);
    // It has an answer now.
    let again = ask(&["-c", "-a", "offline", "And on"]);
    assert!(
        again.stderr.starts_with("S2 · offline") && !again.stderr.contains("no agent has answered"),
        "{again}"
    );
    // Commands that only read show it too.
    let world = World::new();
    world.program("claude", "cat > /dev/null\nexit 3");
    let run = |arguments: &[&str]| run_in(&world, "p", arguments);
    assert_eq!(run(&["run", "-a", "claude", "Only"]).code, 1);
    assert!(run(&["show"]).stdout.contains("Only"));
}
