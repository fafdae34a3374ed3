//! What agents may do, and what is said when they may not.

use std::process::Command;

use crate::run::RECORDED;
use crate::world::{Ran, World};

const DENIED: &str =
    include_str!("../../../agents/tests/fixtures/claude/current/permission-denied/stdout.jsonl");
const READ_ONLY: &str =
    include_str!("../../../agents/tests/fixtures/codex/current/sandbox-read-only/stdout.jsonl");
const READ_ONLY_ERRORS: &str =
    include_str!("../../../agents/tests/fixtures/codex/current/sandbox-read-only/stderr.txt");

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
