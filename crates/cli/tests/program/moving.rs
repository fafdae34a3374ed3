//! A store that is copied to another place lists and continues its sessions, and two stores become one without doubles.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::world::{Ran, World};

fn run_in(world: &World, folder: &str, arguments: &[&str]) -> Ran {
    world.ran(world.command(arguments).current_dir(world.path(folder)).output().unwrap())
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A project with a session in its main worktree and one in a linked worktree.
fn project() -> World {
    let world = World::new();
    let git_dir = world.path("p/.git/worktrees/w");
    world.file("p/.git/worktrees/w/commondir", "../..\n");
    world.file("p/.git/worktrees/w/HEAD", "ref: refs/heads/feature\n");
    let dot_git = world.file("w/.git", &format!("gitdir: {}\n", git_dir.display()));
    fs::write(git_dir.join("gitdir"), dot_git.to_str().unwrap()).unwrap();
    assert_eq!(run_in(&world, "p", &["run", "-s", "here", "-a", "offline", "one"]).code, 0);
    assert_eq!(run_in(&world, "w", &["run", "-s", "there", "-a", "offline", "two"]).code, 0);
    world
}

fn names(ran: &Ran) -> Vec<Value> {
    ran.json().as_array().unwrap().iter().map(|session| session["name"].clone()).collect()
}

#[test]
fn a_copied_store_lists_and_continues_its_sessions() {
    let world = project();
    // Another repository, and a folder that is none. The linked worktree is in neither.
    world.file("deep/er/q/.git/HEAD", "ref: refs/heads/main\n");
    world.file("plain/x", "");
    for folder in ["deep/er/q", "plain"] {
        copy_folder(&world.path("p/.azureal"), &world.path(folder).join(".azureal"));
        let run = |arguments: &[&str]| run_in(&world, folder, arguments);
        assert_eq!(names(&run(&["list", "--all", "--json"])), ["there", "here"], "{folder}");
        assert_eq!(names(&run(&["list", "--json"])), ["here"], "{folder}");
        assert!(run(&["show", "there"]).stdout.contains("two"), "{folder}");
        // Continued by its worktree, by its name, and one whose worktree is not there.
        for arguments in [
            ["run", "-c", "-a", "offline", "next"].as_slice(),
            &["run", "-s", "here", "-a", "offline", "next"],
            &["run", "-s", "there", "-a", "offline", "next"],
        ] {
            let ran = run(arguments);
            assert_eq!(ran.code, 0, "{folder} {arguments:?}: {ran}");
        }
        let context = run(&["context", "there"]).stdout;
        assert!(context.contains("two") && context.contains("next"), "{folder}: {context}");
        let doctor = run(&["doctor", "--json"]);
        assert_eq!((doctor.code, &doctor.json()["findings"]), (0, &json!([])), "{folder}: {doctor}");
    }
    // The first one has not changed.
    assert!(!run_in(&world, "p", &["show", "there"]).stdout.contains("next"));
}

#[test]
fn copies_that_were_continued_become_one_store_without_doubles() {
    let world = project();
    copy_folder(&world.path("p"), &world.path("q"));
    // It has the same number in both: the output of a turn names its session by number and second.
    assert_eq!(run_in(&world, "q", &["run", "-s", "new", "-a", "offline", "new in q"]).code, 0);
    for (folder, prompt) in [("p", "in p"), ("q", "in q")] {
        assert_eq!(run_in(&world, folder, &["run", "-s", "here", "-a", "offline", prompt]).code, 0);
    }
    assert_eq!(run_in(&world, "q", &["run", "-s", "there", "-a", "offline", "only in q"]).code, 0);
    let import = || run_in(&world, "p", &["import", "../q/.azureal/sessions.azs", "--json"]);
    let ran = import();
    assert_eq!(ran.code, 0, "{ran}");
    // One side grew: continued. Both did: a fork. A new one is new.
    let sessions = run_in(&world, "p", &["list", "--all", "--json"]).json();
    assert_eq!(sessions.as_array().unwrap().len(), 4, "{sessions}");
    assert!(run_in(&world, "p", &["show", "there"]).stdout.contains("only in q"));
    let here = run_in(&world, "p", &["show", "here"]).stdout;
    assert!(here.contains("in p") && !here.contains("in q"), "{here}");
    let fork = run_in(&world, "p", &["show", "here-2"]).stdout;
    assert!(fork.contains("in q") && !fork.contains("in p"), "{fork}");
    // Again, and the other way round: nothing is doubled.
    let before = run_in(&world, "p", &["list", "--all", "--json"]).stdout;
    assert_eq!(import().code, 0);
    assert_eq!(run_in(&world, "p", &["list", "--all", "--json"]).stdout, before);
    assert_eq!(run_in(&world, "q", &["import", "../p/.azureal/sessions.azs"]).code, 0);
    assert_eq!(run_in(&world, "q", &["list", "--all", "--json"]).json().as_array().unwrap().len(), 4);
    for folder in ["p", "q"] {
        let doctor = run_in(&world, folder, &["doctor", "--json"]);
        let findings = doctor.json()["findings"].clone();
        let is_name = |finding: &Value| finding["kind"] == "second_name";
        assert!(findings.as_array().unwrap().iter().all(is_name), "{folder}: {doctor}");
    }
}

#[test]
fn a_session_keeps_its_times() {
    let world = project();
    let q = world.path("q/.azureal/sessions.azs");
    copy_folder(&world.path("p/.azureal"), q.parent().unwrap());
    let connection = rusqlite::Connection::open(&q).unwrap();
    connection
        .execute_batch(
            "UPDATE sessions SET created = '2026-01-02T03:04:05Z', last_active = '2026-02-03T04:05:06Z'",
        )
        .unwrap();
    drop(connection);
    let exported = world.path("here.json");
    let arguments = ["export", "here", "--format", "json", "-o", exported.to_str().unwrap()];
    assert_eq!(run_in(&world, "q", &arguments).code, 0);
    for (number, source) in ["../q/.azureal/sessions.azs", "../here.json"].into_iter().enumerate() {
        let folder = format!("r{number}");
        world.file(&format!("{folder}/.git/HEAD"), "ref: refs/heads/main\n");
        let import = || run_in(&world, &folder, &["import", source]);
        let ran = import();
        assert_eq!(ran.code, 0, "{ran}");
        let check = |when: &str| {
            let store =
                rusqlite::Connection::open(world.path(&folder).join(".azureal/sessions.azs")).unwrap();
            let mut statement = store.prepare("SELECT created, last_active FROM sessions").unwrap();
            let times = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            let times: Vec<(String, String)> = times.map(Result::unwrap).collect();
            let kept = ("2026-01-02T03:04:05Z".to_owned(), "2026-02-03T04:05:06Z".to_owned());
            assert!(
                !times.is_empty() && times.iter().all(|times| *times == kept),
                "{source}, {when}: {times:?}"
            );
        };
        check("imported");
        assert_eq!(import().code, 0);
        check("imported again");
    }
}
