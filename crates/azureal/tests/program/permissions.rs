//! What agents may do, how long turns may take, and further arguments: from the command line, the environment and files.

use std::fs;
use std::process::Command;

use crate::run::RECORDED;
use crate::world::{Ran, World};

const DENIED: &str =
    include_str!("../../../agents/tests/fixtures/claude/current/permission-denied/stdout.jsonl");
const READ_ONLY: &str =
    include_str!("../../../agents/tests/fixtures/codex/current/sandbox-read-only/stdout.jsonl");
const READ_ONLY_ERRORS: &str =
    include_str!("../../../agents/tests/fixtures/codex/current/sandbox-read-only/stderr.txt");
const USERS_FILE: &str = "h/.config/azureal/azufig.toml";

/// Puts an agent on the path that notes its arguments and prints a recording.
fn agent(world: &World, name: &str, printed: &str, errors: &str) {
    let (out, err) =
        (world.file(&format!("{name}.out"), printed), world.file(&format!("{name}.err"), errors));
    let notes = world.path("arguments");
    let (out, err, notes) = (out.display(), err.display(), notes.display());
    world.program(name, &format!("echo \"$*\" >> '{notes}'; cat > /dev/null; cat '{err}' >&2; cat '{out}'"));
}

fn command(world: &World, arguments: &[&str]) -> Command {
    let mut command = world.with_programs(arguments);
    command.env("HOME", world.path("h"));
    command
}

fn run(world: &World, arguments: &[&str]) -> Ran {
    world.ran(command(world, &[&["run"], arguments].concat()).output().unwrap())
}

/// Returns the arguments of the last run.
fn noted(world: &World) -> String {
    fs::read_to_string(world.path("arguments")).unwrap().lines().last().unwrap().to_owned()
}

#[test]
fn refused_tools_end_with_the_option_that_allows_them() {
    let world = World::new();
    agent(&world, "claude", DENIED, "");
    agent(&world, "codex", READ_ONLY, READ_ONLY_ERRORS);
    for (arguments, expected) in [
        (
            &["-a", "claude", "hi"][..],
            "claude was refused Write, Bash and WebFetch. Allow edits with `--permission edit`, commands too with \
             `--permission all`",
        ),
        (
            &["-a", "claude", "--permission", "edit", "hi"],
            "claude was refused Write, Bash and WebFetch. Allow everything with `--permission all`",
        ),
        (
            &["-a", "codex", "--permission", "read", "hi"],
            "codex was refused Edit. Allow edits with `--permission edit`",
        ),
    ] {
        let ran = run(&world, arguments);
        assert_eq!((ran.code, ran.stderr.lines().last().unwrap()), (0, expected), "{ran}");
        let closing = ran.stderr.lines().rev().nth(1).unwrap();
        assert!(closing.starts_with("! done in ") && closing.contains(" refused · S"), "{closing}");
        assert!(!ran.stderr.contains('✓'), "{ran}");
        let json = run(&world, &[arguments, &["--json"]].concat());
        assert_eq!(json.stderr.lines().last().unwrap(), expected, "{json}");
    }
}

#[test]
fn a_turn_without_refusals_says_nothing_of_permissions() {
    let world = World::new();
    agent(&world, "claude", RECORDED, "");
    let ran = run(&world, &["-a", "claude", "hi"]);
    assert!(ran.stderr.contains("✓ done in ") && !ran.stderr.contains("permission"), "{ran}");
}

#[test]
fn arguments_after_two_dashes_go_to_the_agents_program() {
    let world = World::new();
    agent(&world, "claude", RECORDED, "");
    agent(&world, "codex", READ_ONLY, "");
    assert_eq!(run(&world, &["-a", "claude", "hi", "--", "--max-turns", "3"]).code, 0);
    assert!(noted(&world).ends_with(" --max-turns 3"), "{}", noted(&world));
    assert_eq!(run(&world, &["-a", "codex", "hi", "--", "-c", "x=1"]).code, 0);
    assert!(noted(&world).ends_with(" -c x=1 -"), "{}", noted(&world));
    // The prompt is still that of the command line.
    let shown = world.run(&["show", "S1", "--json"]).json_lines();
    assert_eq!(shown[0]["data"]["content"], "hi");
    let ran = run(&world, &["-a", "offline", "hi", "--", "--max-turns", "3"]);
    assert_eq!(
        (ran.code, ran.stderr.lines().next()),
        (2, Some("error: offline takes no arguments")),
        "{ran}"
    );
    assert_eq!(world.run(&["list", "--json"]).json().as_array().unwrap().len(), 2, "no session was created");
}

#[test]
fn arguments_for_the_agent_are_not_used_for_summaries() {
    let world = World::new();
    agent(&world, "claude", RECORDED, "");
    world.file(USERS_FILE, "[compaction]\nthreshold_characters = 4000\n");
    for _ in 0..4 {
        let prompt = "long ".repeat(500);
        assert_eq!(run(&world, &["-s", "work", "-a", "claude", &prompt, "--", "--max-turns", "3"]).code, 0);
    }
    let noted = fs::read_to_string(world.path("arguments")).unwrap();
    let (summaries, turns): (Vec<&str>, Vec<&str>) = noted.lines().partition(|line| line.contains("--tools"));
    assert!(!summaries.is_empty() && turns.len() == 4, "{noted}");
    assert!(summaries.iter().all(|line| !line.contains("--max-turns")), "{noted}");
    assert!(turns.iter().all(|line| line.ends_with(" --max-turns 3")), "{noted}");
}
