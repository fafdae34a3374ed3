//! agents: which can be used, why others cannot, and asking them for their version.

use std::fs;
use std::process::{Command, Stdio};

use azureal_process::ProcessIdentity;
use serde_json::json;

use crate::run::wait_until;
use crate::world::{Ran, World};

/// The command with a home of its own.
fn command(world: &World, arguments: &[&str]) -> Command {
    fs::create_dir_all(world.path("home")).unwrap();
    let mut command = world.with_programs(arguments);
    command.env("HOME", world.path("home"));
    command
}

fn agents(world: &World, arguments: &[&str]) -> Ran {
    world.ran(command(world, &[&["agents"], arguments].concat()).output().unwrap())
}

#[test]
fn agents_say_whether_they_can_be_used_and_why_not() {
    let world = World::new();
    insta::assert_snapshot!(agents(&world, &[]), @r"
    exit code 0
    --- stdout
    ✗ claude   not installed
    ✗ codex    not installed
    ✓ offline  built in
    ");
    world.program("claude", "echo; echo '2.0 (Claude\u{1b}[2J Code)'");
    world.program("codex", "echo codex-cli 0.35.9");
    insta::assert_snapshot!(agents(&world, &[]), @r"
    exit code 0
    --- stdout
    ✗ claude   2.0 (Claude␛[2J Code)  [folder]/bin/claude
               no login found: run `claude /login`
    ✗ codex    codex-cli 0.35.9       [folder]/bin/codex
               too old: at least version 0.36.0 works
    ✓ offline  built in
    ");
    world.program("codex", "echo codex-cli 0.166.0");
    world.file("home/.codex/auth.json", "{}");
    world.file("home/.claude/.credentials.json", "{}");
    insta::assert_snapshot!(agents(&world, &[]), @r"
    exit code 0
    --- stdout
    ✓ claude   2.0 (Claude␛[2J Code)  [folder]/bin/claude
    ✓ codex    codex-cli 0.166.0      [folder]/bin/codex
    ✓ offline  built in
    ");
    world.program("codex", "echo broken >&2; exit 1");
    let shown = agents(&world, &["--json"]).json();
    let state = |index: usize| {
        let line = &shown[index];
        json!([line["agent"], line["installed"], line["built_in"], line["usable"], line["problem"]])
    };
    assert_eq!(state(0), json!(["claude", true, false, true, null]));
    assert_eq!(state(1), json!(["codex", true, false, false, "no_version"]));
    assert_eq!(state(2), json!(["offline", true, true, true, null]));
    assert_eq!(shown[1]["version"], json!(null));
}

#[test]
fn a_program_that_hangs_is_killed_with_its_children() {
    let world = World::new();
    let note = |name: &str| world.path(name).display().to_string();
    // One child in its group, and one that has left it.
    let script = format!(
        "echo $$ > '{}'\nsleep 1000 & echo $! > '{}'\nsetsid sh -c 'echo $$ > \"{}\"; exec sleep 1000' &\nwait",
        note("self"),
        note("child"),
        note("elsewhere")
    );
    world.program("claude", &script);
    let ran = agents(&world, &[]);
    assert!(ran.stdout.contains("✗ claude   unknown version  [folder]/bin/claude\n"), "{ran}");
    assert!(ran.stdout.contains("no answer to `--version` within 3 s\n"), "{ran}");
    for name in ["self", "child", "elsewhere"] {
        assert!(!is_running(&world, name), "{name} is still running");
    }
}

#[test]
fn an_interrupt_ends_the_programs_that_were_asked() {
    let world = World::new();
    world.program("claude", &format!("echo $$ > '{}'\nexec sleep 1000", world.path("self").display()));
    let mut command = command(&world, &["agents"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the question", || {
        fs::read_to_string(world.path("self")).is_ok_and(|pid| pid.ends_with('\n'))
    });
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ran = world.ran(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{ran}");
    assert!(!is_running(&world, "self"));
}

/// Says whether the process runs whose number is in a file.
fn is_running(world: &World, name: &str) -> bool {
    let pid = fs::read_to_string(world.path(name)).unwrap().trim().parse().unwrap();
    ProcessIdentity::of(pid).is_some_and(|process| process.is_alive())
}

#[test]
fn a_program_is_asked_again_only_when_it_has_changed() {
    let world = World::new();
    let asked = world.path("asked");
    let script = |version: &str| format!("echo x >> '{}'; echo '{version} (Claude Code)'", asked.display());
    let times = || fs::read_to_string(&asked).unwrap_or_default().lines().count();
    let version = || agents(&world, &["--json"]).json()[0]["version"].clone();
    world.program("claude", &script("2.1.0"));
    assert_eq!((version(), version()), (json!("2.1.0 (Claude Code)"), json!("2.1.0 (Claude Code)")));
    assert_eq!(times(), 1);
    world.program("claude", &script("2.2.0"));
    assert_eq!(
        (version(), version(), times()),
        (json!("2.2.0 (Claude Code)"), json!("2.2.0 (Claude Code)"), 2)
    );
    let cache = world.path("home/.cache/azureal/agent-versions.json");
    fs::write(&cache, "[{]").unwrap();
    assert_eq!(
        (version(), version(), times()),
        (json!("2.2.0 (Claude Code)"), json!("2.2.0 (Claude Code)"), 3)
    );
    // A cache that cannot be written costs time and nothing else.
    fs::remove_dir_all(world.path("home/.cache")).unwrap();
    world.file("home/.cache", "");
    assert_eq!((version(), times()), (json!("2.2.0 (Claude Code)"), 4));
}
