//! What a shell is told when somebody presses the key for completion.

use std::path::Path;
use std::process::Command;

use crate::world::{World, user};

/// Asks the program as the script of a shell does, and returns its candidates with their descriptions.
#[track_caller]
fn described(world: &World, words: &[&str]) -> Vec<(String, String)> {
    let mut command = world.command(&[&["--", "azureal"], words].concat());
    let ran = world.ran(command.env("AZUREAL_COMPLETE", "fish").output().unwrap()).quiet();
    let lines = ran.lines().map(|line| line.split_once('\t').unwrap_or((line, "")));
    lines.map(|(value, description)| (value.to_owned(), description.to_owned())).collect()
}

#[track_caller]
fn candidates(world: &World, words: &[&str]) -> Vec<String> {
    described(world, words).into_iter().map(|(value, _)| value).collect()
}

fn world() -> World {
    let world = World::new();
    world.session("fix-login", &[user("Why does the login test fail?")]);
    world.session("two words", &[user("hello")]);
    world.session("$(reboot)", &[user("a\u{1b}[2J\nb")]);
    world
}

#[test]
fn sessions_are_completed_by_number_and_name() {
    let world = world();
    let all = ["S3", "S2", "S1", "fix-login"];
    for words in [
        &["show", ""][..],
        &["context", ""],
        &["tokens", ""],
        &["compact", ""],
        &["rename", ""],
        &["rm", "S1", ""],
        &["fork", ""],
        &["export", ""],
        &["cancel", ""],
        &["run", "-s", ""],
        &["run", "--session", ""],
        &["copy", "--session", ""],
        &["-C", ".", "show", ""],
        &["--store", ".azureal/sessions.azs", "--json", "show", ""],
    ] {
        assert_eq!(candidates(&world, words), all, "{words:?}");
    }
    assert_eq!(candidates(&world, &["show", "fix"]), ["fix-login"]);
    assert_eq!(candidates(&world, &["run", "--session=fix"]), ["--session=fix-login"]);
    assert_eq!(candidates(&world, &["show", "--store", "none.azs", "S"]), [""; 0]);
    assert_eq!(
        described(&world, &["show", "S"]),
        [
            ("S3".to_owned(), "$(reboot): a␛[2J␊b".to_owned()),
            ("S2".to_owned(), "two words: hello".to_owned()),
            ("S1".to_owned(), "fix-login: Why does the login test fail?".to_owned()),
        ]
    );
}

#[test]
fn agents_and_models_are_completed() {
    let world = World::new();
    assert_eq!(candidates(&world, &["run", "-a", ""]), ["claude", "codex", "offline"]);
    assert_eq!(candidates(&world, &["compact", "S1", "--agent", "c"]), ["claude", "codex"]);
    assert_eq!(candidates(&world, &["run", "-a", "offline/"]), ["offline/ada", "offline/ben"]);
    assert_eq!(candidates(&world, &["run", "-m", "op"]), ["opus"]);
    // A model that answered here is offered too.
    world.run(&["run", "-a", "offline/ben", "hello"]);
    assert!(candidates(&world, &["run", "-m", ""]).contains(&"ben".to_owned()));
}

#[test]
fn commands_are_completed_without_the_hidden_ones() {
    let world = World::new();
    let commands = candidates(&world, &[""]);
    assert!(commands.contains(&"run".to_owned()) && commands.contains(&"help".to_owned()), "{commands:?}");
    assert!(!commands.iter().any(|command| command.starts_with(['_', '-'])), "{commands:?}");
    assert_eq!(candidates(&world, &["he"]), ["help"]);
    assert_eq!(candidates(&world, &["__"]), [""; 0]);
    assert_eq!(candidates(&world, &["run", "--pr"]), [""; 0]);
    assert_eq!(candidates(&world, &["help", "to"]), ["tokens"]);
    // Where there is nothing else, options are offered.
    let options = candidates(&world, &["run", ""]);
    assert!(options.contains(&"--permission".to_owned()), "{options:?}");
    assert!(!options.contains(&"--prompt".to_owned()), "{options:?}");
    assert_eq!(candidates(&world, &["run", "--permission", ""]), ["read", "edit", "all"]);
}

#[test]
fn whatever_is_wrong_a_completion_is_silent_and_changes_nothing() {
    let world = world();
    world.file(
        "p/broken.azs",
        "this is no database, and long enough to be looked at as if it were one, or so",
    );
    let before = world.snapshot("p");
    for (shell, words) in [
        ("fish", &["--", "azureal", "show", "--store", "broken.azs", ""][..]),
        ("fish", &["--", "azureal", "show", "--store", "postgres://nobody:secret@localhost:1/x", ""]),
        ("fish", &["--", "azureal", "-C", "nowhere", "show", ""]),
        ("fish", &["--", "azureal", "frobnicate", ""]),
        ("fish", &["--"]),
        ("fish", &[]),
        ("bash", &["--", "azureal"]),
        ("tcsh", &["--", "azureal", "show", ""]),
    ] {
        let mut command = world.command(words);
        let ran = world.ran(command.env("AZUREAL_COMPLETE", shell).output().unwrap());
        let answer = (ran.code, ran.stderr.as_str(), ran.stdout.contains("S1"));
        assert_eq!(answer, (0, "", false), "{shell} {words:?}");
    }
    candidates(&world, &["show", ""]);
    assert_eq!(world.snapshot("p"), before);
}

#[test]
fn bash_completes_with_the_script() {
    let world = world();
    let script = world.file("azureal.bash", &world.run(&["completions", "bash"]).quiet());
    let complete = |words: &str, word: &str| {
        let test = format!(
            "source '{}'; COMP_WORDS=({words} '{word}'); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_TYPE=9; \
             _clap_complete_azureal azureal '{word}' x; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let program = Path::new(env!("CARGO_BIN_EXE_azureal")).parent().unwrap();
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &test]).current_dir(world.path("p")).env_clear();
        bash.env("PATH", format!("{}:/usr/bin:/bin", program.display()));
        world.ran(bash.output().unwrap()).quiet()
    };
    assert_eq!(complete("azureal show", "f"), "fix-login\n");
    assert_eq!(complete("azureal show", ""), "S3\nS2\nS1\nfix-login\n");
    assert_eq!(complete("azureal run -a", "of"), "offline\n");
    assert_eq!(complete("azureal", "tok"), "tokens\n");
}

#[test]
fn there_is_a_script_for_every_shell() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = world.run(&["completions", shell]).quiet();
        assert!(script.contains("azureal") && script.contains("AZUREAL_COMPLETE"), "{shell}: {script}");
        let shape = world.run(&["completions", shell, "--json"]).json();
        assert_eq!((shape["shell"].as_str(), shape["script"].as_str()), (Some(shell), Some(script.as_str())));
    }
    // What zsh loads from its folder of functions must begin so, and complete when it is loaded.
    let script = world.run(&["completions", "zsh"]).quiet();
    assert!(script.starts_with("#compdef azureal\n") && script.contains("$funcstack[1]"), "{script}");
    assert_eq!(world.run(&["completions", "tcsh"]).code, 2);
}
