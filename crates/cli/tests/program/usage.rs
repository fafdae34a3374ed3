//! The command line itself: help, errors, where things are looked for.

use std::fs;
use std::process::Command;

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
fn help_lists_the_actions_of_the_interface_with_their_keys() {
    let world = World::new();
    let text = world.run(&["help", "keys"]).quiet();
    for entry in azureal_tui::keys::TABLE {
        let is_row = |line: &str| {
            let mut words = line.split_whitespace();
            words.next() == Some(entry.name) && line.ends_with(entry.long)
        };
        assert!(text.lines().any(is_row), "{}: {text}", entry.name);
    }
    assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
    assert!(world.run(&["help", "keys", "--json"]).quiet().starts_with("{\"command\":\"keys\""));
}

#[test]
fn a_key_of_no_action_is_an_error_that_names_the_action_meant() {
    let world = World::new();
    for (action, hint) in [
        ("qeue", "did you mean `queue`? `azureal help keys` lists the actions and their keys"),
        ("frobnicate", "`azureal help keys` lists the actions and their keys"),
    ] {
        world.file("own/.config/azureal/azufig.toml", &format!("[keys]\n{action} = [\"f6\"]\n"));
        let ran = world.ran(world.command(&["--plain"]).env("HOME", world.path("own")).output().unwrap());
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains(&format!(": no action is called `{action}`\nhint: {hint}\n")), "{ran}");
    }
}

#[test]
fn wrong_usage_says_what_is_right() {
    let world = World::new();
    insta::assert_snapshot!(world.run(&["shw"]), @r"
    exit code 2
    --- stderr
    error: no command `shw`
    hint: did you mean `azureal show`?
    ");
    insta::assert_snapshot!(world.run(&["resume", "--json"]), @r#"
    exit code 2
    --- stderr
    {"error":{"kind":"usage","message":"no command `resume`","hint":"did you mean `azureal run -c`?"}}
    "#);
    insta::assert_snapshot!(world.run(&["frobnicate"]), @r"
    exit code 2
    --- stderr
    error: no command `frobnicate`
    hint: `azureal help` lists the commands
    ");
    insta::assert_snapshot!(world.run(&["Why does it fail?"]), @r#"
    exit code 2
    --- stderr
    error: no command `Why does it fail?`
    hint: a prompt follows `run`, as in `azureal run "Why does the test fail?"`
    "#);
    insta::assert_snapshot!(world.run(&["run", "fix", "the", "test"]), @r#"
    exit code 2
    --- stderr
    error: unexpected argument `the`
    hint: put the whole prompt in quotes, as in `azureal run "Fix the test"`
    "#);
    insta::assert_snapshot!(world.run(&["--resume"]), @r"
    exit code 2
    --- stderr
    error: no option `--resume`
    hint: did you mean `azureal run -c`?
    ");
    insta::assert_snapshot!(world.run(&["-c", "Fix it"]), @r"
    exit code 2
    --- stderr
    error: `-c` is an option of `azureal run`
    hint: `azureal run -c`
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
    error: missing `<SESSION>`
    hint: usage: azureal fork <SESSION>
    ");
    insta::assert_snapshot!(world.run(&["show", "--jsn", "--json"]), @r#"
    exit code 2
    --- stderr
    {"error":{"kind":"usage","message":"unexpected argument `--jsn`","hint":"did you mean `--json`?"}}
    "#);
    insta::assert_snapshot!(world.run(&["fork", "S1", "--at", "x"]), @r"
    exit code 2
    --- stderr
    error: `x` is not a value of `--at <PLACE>`: it takes the number of an event (42) or of a turn (turn:5), from 1 on
    hint: `azureal help fork` shows its options
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
fn nothing_is_coloured_where_nobody_sees_it() {
    let world = World::new();
    world.session("a", &[user("hello")]);
    for arguments in [&["list"][..], &["show", "a"], &["--help"], &["show", "zzz"]] {
        let ran = world.run(arguments);
        assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "{ran}");
    }
}

#[test]
fn help_is_a_command_too() {
    let world = World::new();
    assert_eq!(world.run(&["help"]).quiet(), world.run(&["--help"]).quiet());
    for command in ["run", "list", "ls", "help"] {
        assert_eq!(world.run(&["help", command]).quiet(), world.run(&[command, "--help"]).quiet());
    }
    let shape = world.run(&["help", "run", "--json"]).json();
    assert_eq!(shape["command"], "azureal run");
    insta::assert_snapshot!(world.run(&["help", "rnu"]), @r"
    exit code 2
    --- stderr
    error: no command `rnu`
    hint: did you mean `azureal run`?
    ");
    assert_eq!(world.run(&["help", "__offline"]).code, 2);
}

#[test]
fn there_is_a_man_page_for_every_command() {
    let world = World::new();
    let folder = world.path("man/man1");
    let ran = world.run(&["help", "--man", folder.to_str().unwrap()]);
    assert_eq!(ran.quiet(), "wrote 26 man pages to [folder]/man/man1\n");
    let mut pages: Vec<_> = fs::read_dir(&folder).unwrap().map(|page| page.unwrap().path()).collect();
    pages.sort();
    assert_eq!(pages.len(), 26);
    assert!(folder.join("azureal.1").exists() && folder.join("azureal-run.1").exists());
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.contains(".TH azureal") && text.contains(".SH NAME"), "{}", page.display());
        assert!(!text.contains("__offline") && !text.contains("\\-\\-prompt"), "{}", page.display());
    }
    let page = fs::read_to_string(folder.join("azureal-help.1")).unwrap();
    assert!(page.contains(".SH EXAMPLES\n.nf\n  azureal help\n"), "{page}");
    insta::assert_snapshot!(world.run(&["help", "--man", "/dev/null/x"]), @r"
    exit code 1
    --- stderr
    error: /dev/null/x: not a directory
    ");
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let world = World::new();
    let closed = |arguments: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("'{}' {arguments} >&-", env!("CARGO_BIN_EXE_azureal"))]);
        world.ran(
            shell.current_dir(world.path("p")).env_clear().env("PATH", "/usr/bin:/bin").output().unwrap(),
        )
    };
    // The turn is stored all the same.
    assert_eq!(closed("run -a offline hello").code, 1);
    assert_eq!(world.run(&["list", "--json"]).json()[0]["completed"], true);
    for arguments in
        ["list", "list --json", "show", "tokens", "help", "--help", "--version", "completions bash"]
    {
        let ran = closed(arguments);
        assert_eq!(ran.code, 1, "{arguments}: {ran}");
        assert!(
            ran.stderr.contains("the output cannot be written: standard output is closed"),
            "{arguments}: {ran}"
        );
    }
    // A caller that discards the output is another matter, also one that opens it for both.
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    let mut list = world.command(&["list"]);
    assert!(list.stdout(null).status().unwrap().success());
}

#[test]
fn the_program_can_be_a_bridge_and_is_one_only_when_asked_first() {
    let world = World::new();
    let bridge = world.run(&["__bridge"]);
    assert_eq!(bridge.code, 1, "its task is empty");
    assert!(
        bridge.stdout.starts_with(r#"{"end":{"outcome":"failed","reason":"the task of the bridge"#),
        "{}",
        bridge.stdout
    );
    assert_eq!(world.run(&["--json", "__bridge"]).code, 2);
    assert_eq!(world.run(&["__offline", "eliza"]).code, 2);
}
