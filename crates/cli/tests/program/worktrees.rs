//! Where a project's store is, as git itself lays out repositories.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::world::{World, exported, user};

/// A folder to make repositories in; nothing where there is no git.
fn world() -> Option<World> {
    let has_git = Command::new("git").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has_git {
        let required = std::env::var_os("AZUREAL_REQUIRE_TOOLS").is_some();
        assert!(!required, "git is needed for this test, and AZUREAL_REQUIRE_TOOLS is set");
        eprintln!("SKIPPED: there is no git");
        return None;
    }
    let world = World::new();
    fs::remove_dir_all(world.path("p")).unwrap();
    Some(world)
}

#[track_caller]
fn git(world: &World, directory: &str, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]);
    command.args(arguments).current_dir(world.path(directory));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_")) {
        command.env_remove(name);
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A repository with one commit.
fn repository(world: &World, path: &str, init: &[&str]) {
    let mut arguments = vec!["init", "-q"];
    arguments.extend(init);
    arguments.push(path);
    git(world, ".", &arguments);
    git(world, path, &["commit", "-q", "--allow-empty", "-m", "x"]);
}

/// Makes a session in `directory`, and says what was said and where the store is that it went to.
#[track_caller]
fn store_of(world: &World, directory: &str) -> (String, String) {
    fn stores(folder: &Path, found: &mut Vec<String>, top: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with(".azureal") {
                found.push(folder.strip_prefix(top).unwrap().to_str().unwrap().to_owned());
                fs::remove_dir_all(path).unwrap();
            } else if path.ends_with("azureal") {
                // In a git directory: the next store is not to be found there.
                fs::remove_dir_all(path).unwrap();
            } else if path.is_dir() && !path.is_symlink() {
                stores(&path, found, top);
            }
        }
    }
    let file = world.file("session.json", &exported("a", &[user("x")]).to_string());
    let mut command = world.command(&["import", file.to_str().unwrap()]);
    let output = command.current_dir(world.path(directory)).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let mut found = Vec::new();
    stores(&world.path(""), &mut found, &world.path(""));
    assert_eq!(found.len(), 1, "{found:?}");
    (found.remove(0), stderr)
}

#[track_caller]
fn check(world: &World, directory: &str, store: &str) {
    assert_eq!(store_of(world, directory), (store.to_owned(), String::new()), "{directory}");
}

#[test]
fn a_submodule_and_its_linked_worktrees_share_a_store() {
    let Some(world) = world() else { return };
    repository(&world, "up", &[]);
    repository(&world, "main", &[]);
    git(&world, "main", &["submodule", "add", "-q", "../up", "sub"]);
    git(&world, "main/sub", &["worktree", "add", "-q", "../../linked"]);
    check(&world, "main", "main");
    check(&world, "main/sub", "main/sub");
    check(&world, "linked", "main/sub");
    // Without the submodule's folder there is only the worktree's own.
    fs::remove_dir_all(world.path("main/sub")).unwrap();
    check(&world, "linked", "linked");
}

#[test]
fn a_git_directory_elsewhere_gets_no_store() {
    let Some(world) = world() else { return };
    let elsewhere = world.path("elsewhere.git");
    let separate = format!("--separate-git-dir={}", elsewhere.display());
    repository(&world, "main", &[&separate]);
    git(&world, "main", &["worktree", "add", "-q", "../linked"]);
    check(&world, "main", "main");
    // Nothing says where the main worktree is.
    check(&world, "linked", "linked");
    let main = world.path("main");
    git(&world, "main", &["config", "core.worktree", main.to_str().unwrap()]);
    check(&world, "linked", "main");
    // A main worktree that has moved is not where it was.
    fs::rename(&main, world.path("moved")).unwrap();
    check(&world, "linked", "linked");
    check(&world, "moved", "moved");
    git(&world, ".", &["--git-dir=elsewhere.git", "config", "core.worktree", "../moved"]);
    check(&world, "linked", "moved");
}

#[test]
fn a_bare_repository_stands_for_its_main_worktree() {
    let Some(world) = world() else { return };
    repository(&world, "up", &[]);
    git(&world, ".", &["clone", "-q", "--bare", "up", "bare.git"]);
    git(&world, "bare.git", &["worktree", "add", "-q", "../one"]);
    check(&world, "one", "bare.git");
    fs::create_dir(world.path("q")).unwrap();
    git(&world, "q", &["clone", "-q", "--bare", "../up", ".bare"]);
    git(&world, "q/.bare", &["worktree", "add", "-q", "../two"]);
    check(&world, "q/two", "q");
}

#[test]
fn a_worktree_whose_repository_is_gone_says_so() {
    let Some(world) = world() else { return };
    repository(&world, "main", &[]);
    git(&world, "main", &["worktree", "add", "-q", "../linked"]);
    check(&world, "linked", "main");
    fs::rename(world.path("main"), world.path("moved")).unwrap();
    let (store, stderr) = store_of(&world, "linked");
    assert_eq!(store, "linked");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("warning: ") && stderr.contains("which is not there"), "{stderr}");
}

#[test]
fn a_store_of_the_original_program_in_a_linked_worktree_is_offered() {
    let Some(world) = world() else { return };
    repository(&world, "p", &[]);
    git(&world, "p", &["worktree", "add", "-q", "../linked"]);
    fs::create_dir(world.path("linked/.azureal")).unwrap();
    let file = world.path("linked/.azureal/sessions.azs");
    let linked = world.path("linked");
    let run = |arguments: &[&str]| world.run(&[&["-C", linked.to_str().unwrap()], arguments].concat());
    let session = world.file("x.json", &exported("x", &[user("Hello")]).to_string());
    let made = run(&["import", "--store", file.to_str().unwrap(), session.to_str().unwrap()]);
    assert_eq!(made.code, 0, "{made}");
    // It has the branch in this column.
    let store = rusqlite::Connection::open(&file).unwrap();
    store.execute("UPDATE sessions SET worktree = 'linked'", []).unwrap();
    drop(store);
    let before = fs::read(&file).unwrap();
    insta::assert_snapshot!(run(&["list"]), @r"
    exit code 0
    --- stderr
    no sessions yet; the original AZUREAL program has a store of its own here: `azureal import [folder]/linked/.azureal/sessions.azs` imports its sessions
    ");
    insta::assert_snapshot!(run(&["import", ".azureal/sessions.azs"]), @r"
    exit code 0
    --- stdout
    S1 x with 1 event, from .azureal/sessions.azs S1
    ");
    assert_eq!(fs::read(&file).unwrap(), before, "the source is as it was");
    assert!(run(&["list"]).stdout.contains("Hello"));
}
