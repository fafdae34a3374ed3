//! `git clean -fdx`, which deletes everything in a worktree that git does not track: what becomes of the history.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::run::{fake_claude, wait_until};
use crate::world::{Ran, World};

/// Runs git with nothing of the user's configuration.
fn git(directory: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    for (name, value) in [("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")] {
        command.env(name, value);
    }
    for setting in ["user.name=x", "user.email=x@example.org", "protocol.file.allow=always"] {
        command.args(["-c", setting]);
    }
    let output = command.args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The path of git, for agents that run it.
fn git_program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|folder| folder.join("git")).find(|program| program.is_file()).unwrap()
}

fn clean(directory: &Path) {
    git(directory, &["clean", "-fdxq"]);
    assert!(!directory.join(".azureal").exists(), "the clean reaches the store");
}

/// A world whose project is a repository with a commit.
fn repository() -> World {
    let world = World::new();
    git(&world.path("p"), &["init", "-q"]);
    git(&world.path("p"), &["commit", "-q", "--allow-empty", "-m", "first"]);
    world
}

/// Runs the program in a folder of the world.
fn run_in(world: &World, directory: &str, arguments: &[&str]) -> Ran {
    world.ran(world.with_programs(arguments).current_dir(world.path(directory)).output().unwrap())
}

#[track_caller]
fn turn(world: &World, directory: &str, prompt: &str) -> Ran {
    let ran = run_in(world, directory, &["run", "-s", "topic", "-a", "offline", prompt]);
    assert_eq!(ran.code, 0, "{ran}");
    ran
}

/// Returns the prompts of the session.
#[track_caller]
fn prompts(world: &World, directory: &str) -> Vec<String> {
    let shown = run_in(world, directory, &["show", "topic", "--json"]);
    assert_eq!(shown.code, 0, "{shown}");
    let events = shown.json_lines();
    let prompts = events.iter().filter(|event| event["kind"] == "UserMessage");
    prompts.map(|event| event["data"]["content"].as_str().unwrap().to_owned()).collect()
}

fn links(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().nlink()
}

#[test]
fn a_clean_before_and_between_turns_loses_nothing() {
    let world = repository();
    clean_nothing(&world);
    turn(&world, "p", "one");
    clean(&world.path("p"));
    let listed = world.run(&["list"]);
    let file = "[folder]/p/.azureal/sessions.azs";
    assert_eq!(listed.stderr, format!("warning: {file} was deleted, and is back with all its sessions\n"));
    clean(&world.path("p"));
    turn(&world, "p", "two");
    assert_eq!(prompts(&world, "p"), ["one", "two"]);
    assert_eq!(links(&world.store()), 2);
    assert_eq!(run_in(&world, "p", &["show", "topic"]).stderr, "", "it is said once");
    assert_eq!(fs::read_dir(world.path("p/.git/azureal/spool")).unwrap().count(), 0);
}

/// Nothing is there before the first session, and nothing is created by looking.
fn clean_nothing(world: &World) {
    git(&world.path("p"), &["clean", "-fdxq"]);
    assert_eq!(world.run(&["list", "--json"]).quiet(), "[]\n");
    assert!(!world.path("p/.azureal").exists() && !world.path("p/.git/azureal").exists());
}

#[test]
fn an_agent_that_cleans_the_project_loses_neither_its_turn_nor_earlier_ones() {
    let world = repository();
    turn(&world, "p", "one");
    fake_claude(&world, &format!("'{}' clean -fdxq", git_program().display()));
    for prompt in ["two", "three"] {
        let ran = run_in(&world, "p", &["run", "-s", "topic", "-a", "claude", prompt]);
        assert_eq!(ran.code, 0, "{ran}");
        assert!(ran.stderr.contains("was deleted, and is back with all its sessions"), "{ran}");
    }
    assert_eq!(prompts(&world, "p"), ["one", "two", "three"]);
    let events = run_in(&world, "p", &["show", "topic", "--json"]).json_lines();
    assert_eq!(events.iter().filter(|event| event["kind"] == "ToolResult").count(), 2);
    assert!(events.iter().all(|event| event["kind"] != "Error"), "{events:?}");
}

#[test]
fn a_turn_whose_agent_cleans_and_whose_azureal_is_killed_is_recovered() {
    let world = repository();
    turn(&world, "p", "one");
    let (cleaned, gate) = (world.path("cleaned"), world.path("gate"));
    fake_claude(
        &world,
        &format!(
            "'{}' clean -fdxq\n: > '{}'\nwhile ! test -e '{}'; do sleep 0.02; done",
            git_program().display(),
            cleaned.display(),
            gate.display()
        ),
    );
    let mut command = world.with_programs(&["run", "-s", "topic", "-a", "claude", "two"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the agent has cleaned", || cleaned.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    fs::write(&gate, "").unwrap();
    let mut reports = String::new();
    wait_until("the turn is recovered", || {
        reports.push_str(&run_in(&world, "p", &["list"]).stderr);
        reports.contains("recovered the last turn of S1 (complete)")
    });
    assert_eq!(prompts(&world, "p"), ["one", "two"]);
    run_in(&world, "p", &["list"]).quiet();
}

/// A repository whose git directory does not say which worktree it has: nothing may be written there.
fn unconfirmed() -> World {
    let world = World::new();
    fs::remove_dir_all(world.path("p")).unwrap();
    git(&world.path(""), &["init", "-q", "--separate-git-dir", world.path("git").to_str().unwrap(), "p"]);
    world
}

#[test]
fn a_git_directory_elsewhere_is_used_if_it_names_the_project() {
    let world = unconfirmed();
    turn(&world, "p", "one");
    assert!(!world.path("git/azureal").exists());
    assert!(world.path("p/.azureal/spool").exists());
    let config = run_in(&world, "p", &["config"]);
    assert!(
        config.stdout.contains(
            "The store has no second name in a git directory: [folder]/git does not say that this is its worktree"
        ),
        "{config}"
    );
    git(&world.path("p"), &["config", "core.worktree", world.path("p").to_str().unwrap()]);
    turn(&world, "p", "two");
    assert_eq!(links(&world.path("git/azureal/sessions.azs")), 2);
    assert!(
        !world.path("p/.azureal/spool").exists(),
        "the folder of earlier turns is removed once it is empty"
    );
    clean(&world.path("p"));
    assert_eq!(prompts(&world, "p"), ["one", "two"]);
    assert!(!run_in(&world, "p", &["config"]).stdout.contains("second name"));
}

#[test]
fn without_a_second_name_the_turn_that_runs_and_the_open_store_are_put_back() {
    let world = unconfirmed();
    turn(&world, "p", "one");
    // A clean stops at a journal that is gone when it gets there, and leaves the spools.
    let script = format!("'{}' clean -fdxq || rm -rf .azureal/spool", git_program().display());
    fake_claude(&world, &script);
    let ran = run_in(&world, "p", &["run", "-s", "topic", "-a", "claude", "two"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(
        ran.stderr.contains("the file with the agent's output was deleted, and was written again"),
        "{ran}"
    );
    assert!(ran.stderr.contains("was deleted while it was open, and was written again"), "{ran}");
    assert_eq!(prompts(&world, "p"), ["one", "two"]);
    run_in(&world, "p", &["list"]).quiet();
    // A clean that no azureal sees leaves nothing, and nothing is said to be kept.
    clean(&world.path("p"));
    let listed = run_in(&world, "p", &["list"]);
    assert!(listed.code == 0 && !listed.stderr.contains("kept"), "{listed}");
}

/// Runs the program with a `.git` that is mounted read-only. `None` if this user cannot mount.
fn run_read_only(world: &World, arguments: &[&str]) -> Option<Ran> {
    let mount = "mount --bind .git .git && mount -o remount,ro,bind .git";
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).current_dir(world.path("p"));
        command
    };
    if !unshare(mount).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return None;
    }
    let program = world.with_programs(arguments);
    let mut command = unshare(&format!("{mount} && exec \"$0\" \"$@\""));
    command.arg(program.get_program()).args(program.get_args()).env_clear();
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // The paths of the system's own programs.
    let path = [world.path("bin").to_str().unwrap(), "/usr/sbin", "/usr/bin", "/sbin", "/bin"].join(":");
    Some(world.ran(command.env("PATH", path).output().unwrap()))
}

#[test]
fn a_read_only_git_directory_is_no_reason_not_to_run_a_turn() {
    let world = repository();
    let arguments = ["run", "-s", "topic", "-a", "offline"];
    let Some(ran) = run_read_only(&world, &[&arguments[..], &["one"]].concat()) else { return };
    assert!(ran.code == 0 && !ran.stderr.contains("warning"), "{ran}");
    assert_eq!(links(&world.store()), 1);
    let config = run_read_only(&world, &["config"]).unwrap();
    let why = "The store has no second name in a git directory: [folder]/p/.git is read-only\n";
    assert!(config.stdout.contains(why), "{config}");
    assert!(!world.path("p/.git/azureal").exists());
    turn(&world, "p", "two");
    assert_eq!(links(&world.store()), 2);
    // The folder exists now, and has a turn that runs.
    let (begun, gate) = (world.path("begun"), world.path("gate"));
    let script =
        format!(": > '{}'\nwhile ! test -e '{}'; do sleep 0.02; done", begun.display(), gate.display());
    fake_claude(&world, &script);
    let mut child = world.with_programs(&["run", "-s", "topic", "-a", "claude", "three"]);
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the agent has begun", || begun.exists());
    let refused = run_read_only(&world, &[&arguments[..], &["four"]].concat()).unwrap();
    assert!(refused.code != 0 && refused.stderr.contains("S1"), "{refused}");
    fs::write(&gate, "").unwrap();
    assert!(child.wait().unwrap().success());
    let ran = run_read_only(&world, &[&arguments[..], &["five"]].concat()).unwrap();
    assert!(ran.code == 0 && !ran.stderr.contains("warning"), "{ran}");
    assert_eq!(prompts(&world, "p"), ["one", "two", "three", "five"]);
    assert!(!run_read_only(&world, &["config"]).unwrap().stdout.contains("second name"));
}

#[test]
fn a_folder_in_git_that_is_open_to_others_is_named_with_the_command_that_closes_it() {
    let world = repository();
    let folder = world.path("p/.git/azureal");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    turn(&world, "p", "one");
    assert!(world.path("p/.azureal/spool").exists() && fs::read_dir(&folder).unwrap().count() == 0);
    let command = "`chmod go= [folder]/p/.git/azureal`";
    let config = run_in(&world, "p", &["config"]);
    assert!(config.stdout.contains(&format!("nothing there is used; {command} closes it")), "{config}");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    turn(&world, "p", "two");
    // The second name is the only copy: the command that closes the folder is all that is said.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    clean(&world.path("p"));
    let listed = run_in(&world, "p", &["list"]);
    assert!(listed.code != 0 && listed.stderr.contains(&format!("; {command} closes it")), "{listed}");
    assert!(!listed.stderr.contains("remove"), "{listed}");
    shell(&world, "chmod go= p/.git/azureal");
    assert_eq!(prompts(&world, "p"), ["one", "two"]);
}

#[test]
fn a_clean_in_one_worktree_leaves_the_store_of_all() {
    let world = repository();
    let [main, linked] = ["p", "linked"];
    git(&world.path(main), &["worktree", "add", "-q", world.path(linked).to_str().unwrap()]);
    turn(&world, linked, "one");
    git(&world.path(linked), &["clean", "-fdxq"]);
    assert_eq!(prompts(&world, linked), ["one"]);
    clean(&world.path(main));
    turn(&world, linked, "two");
    assert_eq!(prompts(&world, main), ["one", "two"]);
    assert_eq!(links(&world.path("p/.git/azureal/sessions.azs")), 2);
    // Also by the path of the store, from a folder that is in no repository.
    clean(&world.path(main));
    fs::create_dir(world.path("outside")).unwrap();
    let store = world.store();
    let listed = run_in(&world, "outside", &["--store", store.to_str().unwrap(), "list", "--all", "--json"]);
    assert_eq!(listed.json().as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(links(&store), 2);
}

#[test]
fn a_submodule_and_a_bare_repository_keep_their_stores() {
    let world = repository();
    git(&world.path("p"), &["submodule", "add", "-q", world.path("p").to_str().unwrap(), "sub"]);
    turn(&world, "p/sub", "one");
    assert_eq!(links(&world.path("p/.git/modules/sub/azureal/sessions.azs")), 2);
    clean(&world.path("p/sub"));
    assert_eq!(prompts(&world, "p/sub"), ["one"]);
    assert!(!world.path("p/.git/azureal").exists());

    git(&world.path(""), &["clone", "-q", "--bare", world.path("p").to_str().unwrap(), "bare.git"]);
    git(&world.path("bare.git"), &["worktree", "add", "-q", world.path("w").to_str().unwrap()]);
    turn(&world, "w", "one");
    git(&world.path("w"), &["clean", "-fdxq"]);
    fs::remove_dir_all(world.path("bare.git/.azureal")).unwrap();
    assert_eq!(prompts(&world, "w"), ["one"]);
    assert_eq!(links(&world.path("bare.git/azureal/sessions.azs")), 2);
}

/// Copies or moves the project with a command of the system.
fn shell(world: &World, command: &str) {
    assert!(Command::new("sh").args(["-c", command]).current_dir(world.path("")).status().unwrap().success());
}

#[test]
fn copies_of_a_project_have_their_own_history_and_lose_none() {
    let world = repository();
    turn(&world, "p", "one");
    shell(&world, "cp -a p archived; cp -r p copied; mv p moved; cp -a moved p");
    git(&world.path(""), &["clone", "-q", world.path("p").to_str().unwrap(), "cloned"]);
    assert_eq!(run_in(&world, "cloned", &["list", "--json"]).json(), Value::Array(Vec::new()));
    for directory in ["archived", "moved"] {
        assert_eq!(turn(&world, directory, "two").stderr.matches("warning").count(), 0);
        clean(&world.path(directory));
        assert_eq!(prompts(&world, directory), ["one", "two"], "{directory}");
    }
    // The two names of such a copy are two files.
    let ran = turn(&world, "copied", "two");
    assert!(
        ran.stderr.contains("led to another file, as after copying a project. That file is kept as"),
        "{ran}"
    );
    let commands: Vec<&str> =
        ran.stderr.split('`').filter(|part| part.starts_with("azureal import ")).collect();
    let [command] = commands[..] else { panic!("{ran}") };
    let kept = command
        .strip_prefix("azureal import ")
        .unwrap()
        .replace("[folder]", world.path("").to_str().unwrap());
    let imported = run_in(&world, "cloned", &["import", &kept]);
    assert_eq!(imported.code, 0, "{imported}");
    assert_eq!(prompts(&world, "cloned"), ["one"]);
    clean(&world.path("copied"));
    assert_eq!(prompts(&world, "copied"), ["one", "two"]);
    assert_eq!(prompts(&world, "p"), ["one"]);
}

#[test]
fn a_store_that_was_replaced_and_then_only_read_is_the_one_that_is_put_back() {
    let world = repository();
    turn(&world, "p", "old");
    shell(&world, "cp p/.azureal/sessions.azs restored.azs");
    let restored = world.path("restored.azs");
    let restored = restored.to_str().unwrap();
    let ran = run_in(&world, "p", &["--store", restored, "run", "-a", "offline", "only restored"]);
    assert_eq!(ran.code, 0, "{ran}");
    shell(&world, "mv restored.azs p/.azureal/sessions.azs");
    let listed = run_in(&world, "p", &["list"]);
    assert!(listed.stderr.contains("led to another file") && listed.stdout.contains("S2"), "{listed}");
    clean(&world.path("p"));
    let listed = run_in(&world, "p", &["list"]);
    assert!(listed.stderr.contains("is back with all its sessions"), "{listed}");
    assert!(listed.stdout.contains("S2"), "{listed}");
}

#[test]
fn sessions_of_a_cleaned_project_are_copied() {
    let world = repository();
    turn(&world, "p", "one");
    clean(&world.path("p"));
    fs::create_dir(world.path("outside")).unwrap();
    let store = world.store();
    let arguments = ["copy", "--from", store.to_str().unwrap(), "--to", "copy.azs"];
    let copied = run_in(&world, "outside", &arguments);
    assert_eq!(copied.code, 0, "{copied}");
    assert!(copied.stderr.contains("is back with all its sessions"), "{copied}");
    let shown = run_in(&world, "outside", &["--store", "copy.azs", "show", "topic"]);
    assert!(shown.stdout.contains("one"), "{shown}");
    assert_eq!(links(&store), 2);
}

#[test]
fn a_copy_that_shares_its_files_is_refused_until_they_are_parted() {
    let world = repository();
    turn(&world, "p", "one");
    shell(&world, "cp -al p linked");
    let ran = run_in(&world, "linked", &["run", "-s", "topic", "-a", "offline", "two"]);
    assert_eq!(ran.code, 3, "{ran}");
    let command = ran.stderr.split('`').find(|part| part.starts_with("cp -p ")).unwrap();
    shell(&world, &command.replace("[folder]", world.path("").to_str().unwrap()));
    turn(&world, "linked", "two");
    turn(&world, "p", "other");
    assert_eq!(prompts(&world, "linked"), ["one", "two"]);
    assert_eq!(prompts(&world, "p"), ["one", "other"]);
    for directory in ["p", "linked"] {
        assert_eq!(links(&world.path(directory).join(".azureal/sessions.azs")), 2);
    }
}

#[test]
fn eight_that_find_the_store_missing_at_once_put_it_back_once() {
    let world = repository();
    turn(&world, "p", "one");
    for _ in 0..3 {
        clean(&world.path("p"));
        let children: Vec<_> = (0..8).map(|_| world.start(&["show", "topic", "--json"])).collect();
        let ran: Vec<Ran> =
            children.into_iter().map(|child| world.ran(child.wait_with_output().unwrap())).collect();
        for ran in &ran {
            assert!(ran.code == 0 && ran.stdout.contains("one"), "{ran}");
        }
        let told = ran.iter().filter(|ran| ran.stderr.contains("was deleted, and is back")).count();
        assert_eq!(told, 1);
        assert_eq!(links(&world.store()), 2);
    }
}

#[test]
fn what_is_in_the_place_of_our_folder_in_git_is_neither_read_nor_written() {
    let world = repository();
    turn(&world, "p", "one");
    let (ours, outside) = (world.path("p/.git/azureal"), world.path("outside"));
    fs::rename(&ours, &outside).unwrap();
    symlink(&outside, &ours).unwrap();
    // The names are in the place that they should be in, but behind a link.
    let before = world.snapshot("outside");
    let ran = run_in(&world, "p", &["run", "-s", "topic", "-a", "offline", "two"]);
    assert!(ran.code != 0 && ran.stderr.contains(".git/azureal"), "{ran}");
    assert_eq!(world.snapshot("outside"), before);
    clean(&world.path("p"));
    let ran = run_in(&world, "p", &["list"]);
    assert!(ran.code != 0 && ran.stderr.contains("cannot be put back from"), "{ran}");
    fs::remove_file(&ours).unwrap();
    fs::rename(&outside, &ours).unwrap();
    assert_eq!(prompts(&world, "p"), ["one"]);
}

#[test]
fn an_output_that_was_deleted_is_not_said_to_be_kept() {
    let world = repository();
    let (begun, gate) = (world.path("begun"), world.path("gate"));
    let script =
        format!(": > '{}'\nwhile ! test -e '{}'; do sleep 0.02; done", begun.display(), gate.display());
    fake_claude(&world, &script);
    let mut command = world.with_programs(&["run", "-s", "topic", "-a", "claude", "one"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the agent has begun", || begun.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    for entry in fs::read_dir(world.path("p/.git/azureal/spool")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            fs::remove_file(path).unwrap();
        }
    }
    fs::write(&gate, "").unwrap();
    let mut report = String::new();
    wait_until("the agent has ended", || {
        report = run_in(&world, "p", &["list"]).stderr;
        !report.contains("still running")
    });
    assert!(
        report
            .contains("the interrupted turn of S1 is not stored: its output `[folder]/p/.git/azureal/spool/"),
        "{report}"
    );
    assert!(!report.contains("kept"), "{report}");
}
