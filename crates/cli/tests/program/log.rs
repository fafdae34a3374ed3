//! The log: who gets one, what is in it, and what never is.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::run::fake_claude;
use crate::world::{Ran, World};

/// Runs the program with a log of this kind.
fn run(world: &World, log: &str, arguments: &[&str]) -> Ran {
    let mut command = world.with_programs(arguments);
    command.env("HOME", world.path("home")).env("AZUREAL_LOG", log);
    world.ran(command.output().unwrap())
}

const LOG: &str = "home/.local/state/azureal/azureal.log";

#[test]
fn nothing_is_logged_unless_it_is_asked_for() {
    let world = World::new();
    for log in ["", " "] {
        let ran = run(&world, log, &["run", "-a", "offline", "hi"]);
        assert_eq!((ran.code, ran.stderr.contains("warning")), (0, false), "{ran}");
    }
    assert!(!world.path("home").exists());
}

#[test]
fn a_turn_is_logged_without_a_word_of_what_was_said() {
    let world = World::new();
    let context = "[[context_commands]]\nname = 'facts'\ncommand = 'echo a-secret-fact'\n";
    world.file("home/.config/azureal/azufig.toml", context);
    fake_claude(&world, "echo a-secret-on-standard-error >&2");
    let ran = run(&world, "trace", &["run", "-s", "a-secret-name", "-a", "claude", "a-secret-prompt"]);
    assert_eq!(ran.code, 0, "{ran}");
    let log = fs::read_to_string(world.path(LOG)).unwrap();
    for part in ["azureal starts", "acquired the lease", "started the agent session=S1", "stored the turn"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(log.lines().all(|line| line.contains(" azureal")), "only what is ours: {log}");
    assert!(!log.contains("a-secret"), "{log}");
    assert!(!log.contains("Finished streaming"), "nor of what was answered: {log}");
    assert_eq!(fs::metadata(world.path(LOG)).unwrap().mode() & 0o777, 0o600);

    // At a higher level there is less, and it is added to the same file.
    let ran = run(&world, "error", &["list"]);
    assert_eq!((ran.code, fs::read_to_string(world.path(LOG)).unwrap()), (0, log), "{ran}");
}

#[test]
fn a_password_of_a_store_is_not_logged() {
    let world = World::new();
    let store = "postgres://ada:a-secret-password@127.0.0.1:1/sessions?project=p";
    let mut command = world.command(&["list", "--store", store]);
    command.env("AZUREAL_LOG", world.path("x.log"));
    assert_eq!(world.ran(command.output().unwrap()).code, 1);
    let log = fs::read_to_string(world.path("x.log")).unwrap();
    assert!(log.contains("the command failed kind=") && !log.contains("a-secret"), "{log}");
}

#[test]
fn a_wrong_value_is_an_error_and_a_file_that_cannot_be_written_a_warning() {
    let world = World::new();
    insta::assert_snapshot!(run(&world, "verbose", &["list"]), @r"
    exit code 2
    --- stderr
    error: `AZUREAL_LOG` is `verbose`; allowed is one of error, warn, info, debug, trace, an absolute path, or both as `debug:/path`
    ");
    fs::create_dir(world.path("folder")).unwrap();
    insta::assert_snapshot!(run(&world, world.path("folder").to_str().unwrap(), &["list"]), @r"
    exit code 0
    --- stderr
    warning: nothing is logged: [folder]/folder: is a directory
    no sessions yet; `azureal import --from all --all-projects` imports those that agents keep, of all projects
    ");
}
