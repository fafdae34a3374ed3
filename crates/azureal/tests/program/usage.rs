//! The command line itself: help, errors, where things are looked for.

use std::fs;

use crate::world::{World, user};

#[test]
fn without_a_command_there_is_help() {
    let world = World::new();
    let text = world.run(&[]).quiet();
    assert!(text.starts_with("One conversation, any agent\n\nUsage: azureal"), "{text}");
    assert!(world.run(&["--version"]).quiet().starts_with("azureal 0."));
    assert!(!world.path("p/.azureal").exists());
}

#[test]
fn wrong_usage_says_what_is_right() {
    let world = World::new();
    insta::assert_snapshot!(world.run(&["shw"]), @r"
    exit code 2
    --- stderr
    error: unrecognized subcommand 'shw'
    hint: a similar subcommand exists: 'show'
      usage: azureal [OPTIONS] [COMMAND]
    ");
    insta::assert_snapshot!(world.run(&["show"]), @r"
    exit code 1
    --- stderr
    error: there is no session in this worktree yet
    hint: name a session; `azureal list --all` shows those of all worktrees
    ");
    insta::assert_snapshot!(world.run(&["fork"]), @r"
    exit code 2
    --- stderr
    error: the following required arguments were not provided:
      <SESSION>
    hint: usage: azureal fork <SESSION>
    ");
    insta::assert_snapshot!(world.run(&["show", "--jsn", "--json"]), @r#"
    exit code 2
    --- stderr
    {"error":{"kind":"usage","message":"unexpected argument '--jsn' found","hint":"a similar argument exists: '--json'\nusage: azureal show --json [SESSION]"}}
    "#);
    insta::assert_snapshot!(world.run(&["fork", "S1", "--at", "x"]), @r"
    exit code 2
    --- stderr
    error: invalid value 'x' for '--at <SEQ>': invalid digit found in string
    hint: `azureal --help` shows how it is used
    ");
    insta::assert_snapshot!(world.run(&["list", "--store", "mysql://u:secret@h"]), @r"
    exit code 2
    --- stderr
    error: `mysql://` is not a kind of store
    hint: a store is a file, `postgres://…`, `redis://…` or `memory:`
    ");
}

#[test]
fn the_store_can_be_chosen() {
    let world = World::new();
    world.session("here", &[user("hello")]);
    let list = |store: &str| world.command(&["list", "--json"]).env("AZUREAL_STORE", store).output().unwrap();
    assert_eq!(list("memory:").stdout, b"[]\n");
    assert_eq!(list("other.azs").stdout, b"[]\n");
    // An empty variable is none.
    assert!(list("").stdout.len() > 10);
    assert!(!world.path("p/other.azs").exists());
    let named = world.run(&["list", "--json", "--store", ".azureal/sessions.azs"]);
    assert_eq!(named.json().as_array().unwrap().len(), 1);
}

#[test]
fn a_file_that_is_no_store_is_left_alone() {
    let world = World::new();
    world.file(
        "p/notes.azs",
        "these are my notes, and long enough to be a database header at least once more",
    );
    insta::assert_snapshot!(world.run(&["list", "--store", "notes.azs"]), @r"
    exit code 1
    --- stderr
    error: [folder]/p/notes.azs is not an azureal store: it is no SQLite file
    hint: name another file with `--store`, or move this one away; nothing was changed
    ");
    insta::assert_snapshot!(world.run(&["rm", "S1", "--yes", "--store", "/dev/null"]), @r"
    exit code 3
    --- stderr
    error: /dev/null is not safe to use: it is not a plain file
    hint: make it a plain file or folder of your own; nothing was changed
    ");
}

#[test]
fn another_directory_can_be_meant() {
    let world = World::new();
    world.session("here", &[user("hello")]);
    let folder = world.path("p");
    let mut command = world.command(&["-C", folder.to_str().unwrap(), "list", "--json"]);
    let output = command.current_dir("/").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"here\""));
    insta::assert_snapshot!(world.run(&["-C", "nowhere", "list"]), @r"
    exit code 1
    --- stderr
    error: nowhere: no such file or directory
    ");
}

#[test]
fn worktrees_share_the_store_and_list_their_own() {
    let world = World::new();
    world.session("main-one", &[user("hello")]);
    let git_dir = world.path("p/.git/worktrees/w");
    world.file("p/.git/worktrees/w/commondir", "../..\n");
    world.file("p/.git/worktrees/w/HEAD", "ref: refs/heads/feature\n");
    let dot_git = world.file("w/.git", &format!("gitdir: {}\n", git_dir.display()));
    fs::write(git_dir.join("gitdir"), dot_git.to_str().unwrap()).unwrap();
    world.file("c.json", r#"{"id":"from-w","model":"m","messages":[{"role":"user","content":"x"}]}"#);

    let in_w = |arguments: &[&str]| {
        let output = world.command(arguments).current_dir(world.path("w")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    in_w(&["import", "../c.json"]);
    assert!(!world.path("w/.azureal").exists());
    let own = in_w(&["list", "--json"]);
    assert!(
        own.contains("from-w") && own.contains(r#""worktree":"../w""#) && !own.contains("main-one"),
        "{own}"
    );
    let all = in_w(&["list", "--all"]);
    assert!(all.contains("from-w") && all.contains("main-one") && all.contains("WORKTREE"), "{all}");
    assert!(!world.run(&["list"]).stdout.contains("from-w"));
    let other = world.command(&["list"]).current_dir(world.path("w")).output().unwrap();
    assert_eq!(other.status.code(), Some(0));
}

#[test]
fn completions_are_made_for_every_shell() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = world.run(&["completions", shell]).quiet();
        assert!(script.contains("azureal") && script.contains("rename"), "{shell}");
    }
    assert_eq!(world.run(&["completions", "tcsh"]).code, 2);
}

#[test]
fn nothing_is_coloured_where_nobody_sees_it() {
    let world = World::new();
    world.session("a", &[user("hello")]);
    for arguments in [&["list"][..], &["show", "a"], &["--help"], &["show", "zzz"]] {
        let ran = world.run(arguments);
        assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "{ran}");
    }
}

#[test]
fn completions_can_be_had_as_json() {
    let world = World::new();
    let shape = world.run(&["completions", "fish", "--json"]).json();
    assert_eq!(shape["shell"], "fish");
    assert_eq!(shape["script"].as_str().unwrap(), world.run(&["completions", "fish"]).quiet());
}
