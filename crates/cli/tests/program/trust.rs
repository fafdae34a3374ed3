//! Files of a project say nothing until they are trusted, and nothing of them runs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::terminal::answering;
use crate::world::{Ran, World, user};

/// A project whose files want to run something.
fn world() -> World {
    let world = World::new();
    world.file(
        "p/Cllmfile.yml",
        "context_commands:\n  - name: Status\n    command: touch ../ran-cllmfile\n    timeout: 2\n",
    );
    world.file(
        "p/.azureal/azufig.toml",
        "agent = \"codex\"\ndefault_system_message = \"Obey.\"\n[[context_commands]]\nname = \"Own\"\ncommand = \"touch ../ran-azufig\"\n",
    );
    world
}

fn command(world: &World, arguments: &[&str]) -> Command {
    let mut command = world.command(arguments);
    command.env("HOME", world.path("own"));
    command
}

fn run(world: &World, arguments: &[&str]) -> Ran {
    world.ran(command(world, arguments).output().unwrap())
}

/// Runs a command on a terminal at which somebody types `answer`; returns its exit code and what was shown.
fn run_on_terminal(world: &World, arguments: &[&str], answer: &str) -> (i32, String) {
    answering(command(world, arguments), answer)
}

/// What `trust --show` says of the project.
#[track_caller]
fn state(world: &World) -> String {
    state_in(world, "p")
}

#[track_caller]
fn state_in(world: &World, folder: &str) -> String {
    let output =
        command(world, &["trust", "--show", "--json"]).current_dir(world.path(folder)).output().unwrap();
    let json: Value = world.ran(output).json();
    json["state"].as_str().unwrap().to_owned()
}

fn approvals(world: &World) -> Vec<PathBuf> {
    let folder = world.path("own/.local/share/azureal/trust");
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn where_nobody_can_be_asked_nothing_is_trusted() {
    let world = world();
    insta::assert_snapshot!(run(&world, &["trust"]), @r"
    exit code 3
    --- stderr
    error: [folder]/p/.azureal/azufig.toml, [folder]/p/Cllmfile.yml are not trusted; nothing was run
    hint: on a terminal this asks; `--yes` trusts without asking
    ");
    let ran = run(&world, &["trust", "--json"]);
    assert!(ran.stderr.starts_with(r#"{"error":{"kind":"untrusted","#), "{ran}");
    assert_eq!(state(&world), "untrusted");
    assert_eq!(approvals(&world), [""; 0].map(PathBuf::from));
}

#[test]
fn what_is_trusted_is_shown_whole() {
    let world = world();
    insta::assert_snapshot!(run(&world, &["trust", "--yes"]), @r#"
    exit code 0
    --- stdout
    [folder]/p/.azureal/azufig.toml
      agent: codex
      default system message
        | Obey.
      context command "Own": once per session, up to 10 s, on failure warn
        | touch ../ran-azufig
    [folder]/p/Cllmfile.yml
      context command "Status": once per session, up to 2 s, on failure warn
        | touch ../ran-cllmfile
    [folder]/p/.azureal/azufig.toml
    [folder]/p/Cllmfile.yml
    trusted since [time]
    "#);
    insta::assert_snapshot!(run(&world, &["trust"]), @r"
    exit code 0
    --- stdout
    [folder]/p/.azureal/azufig.toml
    [folder]/p/Cllmfile.yml
    trusted since [time]
    ");
    let config = run(&world, &["config", "--json"]).json();
    assert_eq!(config["agent"]["value"], "codex");
    assert_eq!(config["context_commands"][0]["name"], "Own");
    assert_eq!(config["context_commands"][1]["name"], "Status");
}

#[test]
fn on_a_terminal_it_is_shown_and_asked() {
    for (answer, code, after) in [
        ("y\n", 0, "trusted"),
        ("YES\n", 0, "trusted"),
        ("\n", 3, "untrusted"),
        ("yikes\n", 3, "untrusted"),
        ("\u{4}", 3, "untrusted"),
    ] {
        let world = world();
        let (ended, shown) = run_on_terminal(&world, &["trust"], answer);
        assert_eq!((ended, state(&world).as_str()), (code, after), "{answer:?}: {shown}");
        // An answer is no error, and needs no hint.
        assert!(!shown.contains("error:") && !shown.contains("hint:"), "{shown}");
        let command_at = shown.find("    | touch ../ran-cllmfile").unwrap_or_else(|| panic!("{shown}"));
        assert!(command_at < shown.find("[y/N]").unwrap_or_else(|| panic!("{shown}")), "{shown}");
    }
}

#[test]
fn one_changed_byte_asks_again() {
    let world = world();
    run(&world, &["trust", "--yes"]);
    for file in ["p/Cllmfile.yml", "p/.azureal/azufig.toml"] {
        let path = world.path(file);
        let before = fs::read(&path).unwrap();
        let mut after = before.clone();
        after.push(b'\n');
        fs::write(&path, after).unwrap();
        assert_eq!(state(&world), "changed", "{file}");
        insta::allow_duplicates! {
            insta::assert_snapshot!(run(&world, &["trust"]), @r"
            exit code 3
            --- stderr
            error: [folder]/p/.azureal/azufig.toml, [folder]/p/Cllmfile.yml have changed since this project was trusted; nothing was run
            hint: on a terminal this asks; `--yes` trusts without asking
            ");
        }
        // Nothing of any of them counts, not only of the one that changed.
        let config = run(&world, &["config", "--json"]).json();
        assert_eq!(config["agent"]["value"], Value::Null);
        assert_eq!(config["context_commands"], serde_json::json!([]));
        fs::write(&path, before).unwrap();
        assert_eq!(state(&world), "trusted", "{file}");
    }
}

#[test]
fn one_more_file_asks_again_and_one_that_says_nothing_does_not() {
    let world = world();
    run(&world, &["trust", "--yes"]);
    world.file("p/.cllm/Cllmfile.yml", "model: gpt-4\n# nothing for us\n");
    assert_eq!(state(&world), "trusted");
    world.file("p/.cllm/Cllmfile.yml", "variables: {A: 1}\n");
    assert_eq!(state(&world), "changed");
    fs::remove_file(world.path("p/.cllm/Cllmfile.yml")).unwrap();
    assert_eq!(state(&world), "trusted");
    fs::remove_file(world.path("p/Cllmfile.yml")).unwrap();
    assert_eq!(state(&world), "changed");
}

#[test]
fn a_folder_that_moved_is_another() {
    let world = world();
    run(&world, &["trust", "--yes"]);
    fs::rename(world.path("p"), world.path("q")).unwrap();
    assert_eq!(state_in(&world, "q"), "untrusted");
    fs::rename(world.path("q"), world.path("p")).unwrap();
    // The same content under another of the names that are read.
    fs::create_dir(world.path("p/.cllm")).unwrap();
    fs::rename(world.path("p/Cllmfile.yml"), world.path("p/.cllm/Cllmfile.yml")).unwrap();
    assert_eq!(state(&world), "changed");
}

#[test]
fn each_worktree_is_trusted_for_itself() {
    let world = world();
    world.file("p/.git/worktrees/w/commondir", "../..\n");
    world.file("p/.git/worktrees/w/HEAD", "ref: refs/heads/w\n");
    let git_dir = world.path("p/.git/worktrees/w");
    let dot_git = world.file("w/.git", &format!("gitdir: {}\n", git_dir.display()));
    fs::write(git_dir.join("gitdir"), dot_git.to_str().unwrap()).unwrap();
    fs::copy(world.path("p/Cllmfile.yml"), world.path("w/Cllmfile.yml")).unwrap();
    fs::remove_dir_all(world.path("p/.azureal")).unwrap();
    run(&world, &["trust", "--yes"]);
    assert_eq!((state(&world), state_in(&world, "w")), ("trusted".into(), "untrusted".into()));
    let output = command(&world, &["trust", "--yes"]).current_dir(world.path("w")).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    run(&world, &["trust", "--revoke"]);
    assert_eq!((state(&world), state_in(&world, "w")), ("untrusted".into(), "trusted".into()));
}

#[test]
fn it_can_be_taken_back_whatever_the_files_say_now() {
    let world = world();
    run(&world, &["trust", "--yes"]);
    world.file("p/Cllmfile.yml", "variables: {A: 1}\n");
    run(&world, &["trust", "--yes"]);
    world.file("p/Cllmfile.yml", "broken: [");
    assert_eq!(run(&world, &["trust", "--revoke"]).quiet(), "took back 2 approvals\n");
    assert_eq!(run(&world, &["trust", "--revoke"]).quiet(), "nothing was trusted here\n");
    world.file("p/Cllmfile.yml", "variables: {A: 1}\n");
    assert_eq!(state(&world), "untrusted");
    assert_eq!(run(&world, &["trust", "--revoke", "--json"]).json()["revoked"], 0);
}

#[test]
fn approvals_are_private_and_outside_the_project() {
    let world = world();
    let before = world.snapshot("p");
    run(&world, &["trust", "--yes"]);
    assert_eq!(world.snapshot("p"), before);
    let approvals = approvals(&world);
    assert_eq!(approvals.len(), 1);
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&approvals[0]), 0o600);
    assert_eq!(mode(&world.path("own/.local/share/azureal/trust")), 0o700);
    // Somewhere else where the user says so, and then those here do not count.
    let mut elsewhere = command(&world, &["trust", "--show", "--json"]);
    let output = elsewhere.env("XDG_DATA_HOME", world.path("data")).output().unwrap();
    assert_eq!(world.ran(output).json()["state"], "untrusted");
    // Without any home there is nowhere to keep them.
    let ran = world.run(&["trust", "--yes"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("set HOME or XDG_DATA_HOME"), "{ran}");
}

#[test]
fn the_approval_of_another_does_not_count() {
    let world = world();
    run(&world, &["trust", "--yes"]);
    // Only the superuser can put a file in somebody else's name; others cannot try this.
    if std::os::unix::fs::chown(&approvals(&world)[0], Some(12345), None).is_ok() {
        assert_eq!(state(&world), "changed");
    }
}

#[test]
fn many_may_approve_and_take_back_at_once() {
    let world = world();
    let start = |arguments: &[&str]| command(&world, arguments).output().unwrap();
    std::thread::scope(|scope| {
        for index in 0..16 {
            scope.spawn(move || {
                let arguments = if index % 4 == 3 { ["trust", "--revoke"] } else { ["trust", "--yes"] };
                let output = start(&arguments);
                assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
            });
        }
    });
    run(&world, &["trust", "--yes"]);
    assert_eq!(state(&world), "trusted");
    assert_eq!(approvals(&world).len(), 1);
}

#[test]
fn a_link_is_shown_with_where_it_leads() {
    let world = World::new();
    world.file("p/conf/elsewhere.yml", "default_system_message: hello\n");
    symlink("conf/elsewhere.yml", world.path("p/Cllmfile.yml")).unwrap();
    let shown = run(&world, &["trust", "--yes"]).quiet();
    assert!(
        shown.starts_with("[folder]/p/Cllmfile.yml\n  leads to [folder]/p/conf/elsewhere.yml\n"),
        "{shown}"
    );
    assert_eq!(state(&world), "trusted");
    world.file("p/conf/elsewhere.yml", "default_system_message: hallo\n");
    assert_eq!(state(&world), "changed");
    // The same name and content, and no link any more: that is what was trusted.
    fs::remove_file(world.path("p/Cllmfile.yml")).unwrap();
    world.file("p/Cllmfile.yml", "default_system_message: hello\n");
    assert_eq!(state(&world), "trusted");
}

#[test]
fn a_link_that_leads_out_of_the_project_is_not_read() {
    for (name, target) in [
        ("Cllmfile.yml", "../own/token"),
        (".azureal/azufig.toml", "../../own/token"),
        (".cllm", "../own/folder"),
    ] {
        let world = World::new();
        world.session("one", &[user("hello")]);
        world.file("own/token", "ghp_verysecret\n");
        world.file("own/folder/Cllmfile.yml", "ghp_verysecret\n");
        symlink(target, world.path("p").join(name)).unwrap();
        for (arguments, code) in [
            (&["list"][..], 0),
            (&["show", "one"], 0),
            (&["context", "one", "--stats"], 0),
            (&["run", "-a", "offline", "x"], 3),
            (&["config"], 3),
            (&["trust"], 3),
            (&["trust", "--yes"], 3),
        ] {
            let ran = run(&world, arguments);
            assert_eq!(ran.code, code, "{name} {arguments:?}: {ran}");
            assert!(!format!("{ran}").contains("verysecret"), "{name} {arguments:?}: {ran}");
        }
        insta::allow_duplicates! {
            let ran = run(&world, &["config"]);
            let hint = ran.stderr.lines().nth(1).unwrap();
            insta::assert_snapshot!(hint, @"hint: replace the link by a plain file; nothing of it was read");
        }
    }
}

#[test]
fn what_cannot_be_read_of_an_untrusted_file_is_not_repeated() {
    let world = World::new();
    world.session("one", &[user("hello")]);
    for (name, text) in [
        ("Cllmfile.yml", "ghp_verysecret\n"),
        ("Cllmfile.yml", "variables: verysecret\n"),
        ("Cllmfile.yml", "context_commands: [{name: x, verysecret: 1}]\n"),
        (".azureal/azufig.toml", "verysecret\n"),
        (".azureal/azufig.toml", "agent = verysecret\n"),
        (".azureal/azufig.toml", "verysecret = 1\n"),
    ] {
        let path = world.file(&format!("p/{name}"), text);
        for arguments in [&["list"][..], &["run", "-a", "offline", "x"], &["context", "one", "--stats"]] {
            let ran = run(&world, arguments);
            assert!(!format!("{ran}").contains("verysecret"), "{text} {arguments:?}: {ran}");
        }
        let ran = run(&world, &["run", "-a", "offline", "x"]);
        let place = ran.stderr.strip_prefix(&format!("error: [folder]/p/{name}:1:"));
        assert!(
            place.is_some_and(|rest| rest
                .contains(": this is not a configuration that azureal understands\nhint: `azureal config`")),
            "{ran}"
        );
        // Whoever asks to see the file is told.
        let ran = run(&world, &["config"]);
        assert_eq!(ran.code, 1, "{ran}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn nothing_that_is_shown_acts_on_a_terminal_or_passes_for_ours() {
    let hostile = "a\u{1b}[2J\u{1b}]52;c;eA==\u{7}\u{9b}31m\u{202e}txt\u{2066}\u{2028}\u{7f}\r\u{8}z";
    let world = World::new();
    // YAML takes such characters only in this form.
    let text = |text: &str| {
        let escaped: String = text.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
        format!("\"{escaped}\"")
    };
    let yaml = format!(
        "default_system_message: {0}\nvariables: {{A: {0}}}\ncontext_commands:\n- name: x\n  command: {1}\n",
        text(hostile),
        text(&format!("{hostile}\nTrust this, so that it is in effect? [y/N] y\ntrusted since ever\n"))
    );
    world.file("p/Cllmfile.yml", &yaml);
    let (code, shown) = run_on_terminal(&world, &["trust"], "\n");
    assert_eq!(code, 3);
    let acting: Vec<char> = shown.chars().filter(|c| azureal_core::acts_on_terminal(*c)).collect();
    assert!(acting.iter().all(|c| matches!(c, '\n' | '\r')), "{shown:?}");
    for (arguments, code) in [
        (&["config"][..], 0),
        (&["config", "--json"], 0),
        (&["trust"], 3),
        (&["trust", "--yes"], 0),
        (&["trust", "--show"], 0),
        (&["trust", "--show", "--json"], 0),
        (&["config"], 0),
        (&["config", "--json"], 0),
    ] {
        let ran = run(&world, arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {ran}");
        for text in [&ran.stdout, &ran.stderr] {
            let acting =
                text.chars().find(|c| azureal_core::acts_on_terminal(*c) && !matches!(c, '\n' | '\t'));
            assert_eq!(acting, None, "{arguments:?}: {text:?}");
            assert!(!text.lines().any(|line| line.starts_with("Trust this") || line == "trusted since ever"));
        }
    }
}

#[test]
fn nothing_of_a_project_runs_before() {
    let world = world();
    world.session("one", &[user("hello")]);
    for arguments in [
        &["list"][..],
        &["show", "one"],
        &["context", "one"],
        &["fork", "one"],
        &["export", "one"],
        &["ps"],
        &["agents"],
        &["completions", "bash"],
        &["config"],
        &["trust", "--show"],
        &["--help"],
        &[],
    ] {
        let ran = run(&world, arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran}");
    }
    // Nor are they asked for, nor stopped by files that cannot be read.
    world.file("p/Cllmfile.yml", "broken: [");
    assert_eq!(run(&world, &["list"]).code, 0);
    assert!(!world.path("ran-cllmfile").exists() && !world.path("ran-azufig").exists());
}

#[test]
fn the_hint_about_a_named_configuration_trusts_that_one() {
    let world = World::new();
    world.file("p/.cllm/review.Cllmfile.yml", "context_commands:\n  - name: a\n    command: echo a\n");
    let turn = || run(&world, &["run", "--cllm-config", "review", "-a", "offline", "x"]);
    let refused = turn();
    assert_eq!(refused.code, 3, "{refused}");
    assert!(refused.stderr.contains("`azureal trust --cllm-config review` shows"), "{refused}");
    assert_eq!(run(&world, &["trust", "--cllm-config", "review", "--yes"]).code, 0);
    let ran = turn();
    assert_eq!(ran.code, 0, "{ran}");
}
