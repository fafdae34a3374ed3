//! Hearing of what others write to a store in a file, and of the turns that run in it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::scratch::{self, Project, append, new_session, options, read_all, wait, worker};
use azureal_store::core::{Event, SessionId, SessionStore, StoreError, Watch};
use azureal_store::sqlite::{Journal, SqliteOptions, SqliteStore, StoreFolders};

/// Longer than anything takes to be heard.
const LONG: Duration = Duration::from_secs(30);
/// So short that it is over soon.
const SHORT: Duration = Duration::from_millis(100);

#[test]
fn a_watched_file_tells_of_another_process_and_of_nothing_else() {
    let test = "sqlite_watch::a_watched_file_tells_of_another_process_and_of_nothing_else";
    let first = SessionId::new(1).unwrap();
    if let Some((_, path)) = scratch::role() {
        append(&SqliteStore::open(path, SqliteOptions::default()).unwrap(), first, [Event::user("other")]);
        return;
    }
    let project = Project::new();
    let store = project.store();
    assert!(wait(store.watch_all()).unwrap().is_none(), "there is no file yet");
    assert_eq!(new_session(&store), first);
    let mut watch = wait(store.watch_all()).unwrap().unwrap();
    fs::write(project.path().with_file_name("azufig.toml"), "").unwrap();
    read_all(&store, first);
    assert!(!wait(watch.changed(SHORT)).unwrap(), "nothing was written to the store");

    let other = worker(test, "any", &project.path()).spawn().unwrap();
    assert!(wait(watch.changed(LONG)).unwrap());
    assert_eq!(read_all(&store, first).len(), 1, "whoever hears of it finds it");
    let output = other.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", scratch::text(&output));

    // With a write-ahead log a change is visible a moment after its last write, so it is said again.
    let logged = SqliteStore::open(
        project.path(),
        SqliteOptions { journal: Journal::Wal, ..SqliteOptions::default() },
    );
    let logged = logged.unwrap();
    for number in 2..12 {
        append(&logged, first, [Event::user("logged")]);
        while read_all(&store, first).len() < number {
            assert!(wait(watch.changed(LONG)).unwrap(), "event {number}");
        }
    }
    drop(logged);

    // Where the folder is gone nothing can be heard, and that is said.
    while wait(watch.changed(SHORT)).unwrap() {}
    fs::remove_dir_all(project.path().parent().unwrap()).unwrap();
    for _ in 0..3 {
        assert!(wait(watch.changed(SHORT)).unwrap());
    }
    wait(store.close()).unwrap();
    assert!(matches!(wait(watch.changed(SHORT)), Err(StoreError::Closed)));
}

/// Waits until there is nothing more to hear.
fn settle(watch: &mut dyn Watch) {
    while wait(watch.changed(SHORT)).unwrap() {}
}

#[test]
fn a_turn_that_begins_changes_or_ends_is_heard() {
    for project in [Project::new(), Project::in_git()] {
        turns_are_heard(&project);
    }
}

fn turns_are_heard(project: &Project) {
    let store = project.store();
    new_session(&store);
    let mut watch = wait(store.watch_all()).unwrap().unwrap();
    let spools = StoreFolders::of(&project.path(), options(&project.path()).in_git.as_deref()).spools;
    let file = |name: &str| spools.join(name);
    let add = |name: &str| {
        let mut text = fs::read(file(name)).unwrap();
        text.push(b'x');
        fs::write(file(name), text).unwrap();
    };
    // Twice: whoever removes the folder removes its watch.
    for _ in 0..2 {
        settle(&mut *watch);
        fs::create_dir(&spools).unwrap();
        assert!(wait(watch.changed(LONG)).unwrap(), "the folder of the first turn");
        let steps: [(&str, &dyn Fn()); 8] = [
            ("a lease", &|| fs::write(file("S1.lease"), "").unwrap()),
            ("its holder", &|| add("S1.lease")),
            ("an output", &|| fs::write(file("1.jsonl"), "").unwrap()),
            ("a header that is written", &|| fs::write(file("1.new"), "").unwrap()),
            ("a turn", &|| fs::rename(file("1.new"), file("1.turn")).unwrap()),
            ("its process", &|| add("1.turn")),
            ("its end", &|| fs::remove_file(file("1.turn")).unwrap()),
            ("a released lease", &|| fs::remove_file(file("S1.lease")).unwrap()),
        ];
        for (what, step) in steps {
            settle(&mut *watch);
            step();
            assert!(wait(watch.changed(LONG)).unwrap(), "{what}");
        }
        settle(&mut *watch);
        add("1.jsonl");
        assert!(!wait(watch.changed(SHORT)).unwrap(), "output is followed, not watched");
        fs::remove_dir_all(&spools).unwrap();
        assert!(wait(watch.changed(LONG)).unwrap(), "the folder is gone");
    }
}

#[test]
fn our_folder_in_a_git_directory_that_is_created_later_is_heard() {
    let project = Project::new();
    new_session(&project.store());
    fs::create_dir(project.folder.path().join(".git")).unwrap();
    let store = project.store();
    let mut watch = wait(store.watch_all()).unwrap().unwrap();
    settle(&mut *watch);
    let spools = project.second_name().with_file_name("spool");
    fs::write(project.folder.path().join(".git/index"), "").unwrap();
    assert!(!wait(watch.changed(SHORT)).unwrap(), "git's own files are not ours");
    fs::create_dir_all(&spools).unwrap();
    assert!(wait(watch.changed(LONG)).unwrap(), "the folder of the first turn");
    settle(&mut *watch);
    fs::write(spools.join("1.turn"), "").unwrap();
    assert!(wait(watch.changed(LONG)).unwrap(), "a turn");
    fs::write(spools.with_file_name("other"), "").unwrap();
    settle(&mut *watch);
    fs::write(spools.with_file_name("other"), "x").unwrap();
    assert!(!wait(watch.changed(SHORT)).unwrap(), "other files of ours are no turns");
}

#[test]
fn a_watch_hears_the_end_of_a_turn_that_began_before_it() {
    let project = Project::new();
    let store = project.store();
    new_session(&store);
    let spools = StoreFolders::of(&project.path(), None).spools;
    fs::create_dir(&spools).unwrap();
    fs::write(spools.join("1.turn"), "").unwrap();
    let mut watch = wait(store.watch_all()).unwrap().unwrap();
    settle(&mut *watch);
    fs::remove_file(spools.join("1.turn")).unwrap();
    assert!(wait(watch.changed(LONG)).unwrap());
}

#[test]
fn a_link_in_the_place_of_the_spool_folder_is_not_followed() {
    let project = Project::new();
    let store = project.store();
    new_session(&store);
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), StoreFolders::of(&project.path(), None).spools).unwrap();
    let mut watch = wait(store.watch_all()).unwrap().unwrap();
    settle(&mut *watch);
    fs::write(elsewhere.path().join("1.turn"), "").unwrap();
    assert!(!wait(watch.changed(SHORT)).unwrap());
}

#[test]
fn each_store_of_a_folder_has_its_own_spool_folder() {
    for (file, expected) in [
        ("/p/.azureal/sessions.azs", "/p/.azureal/spool"),
        ("/p/other.azs", "/p/other.azs.spool"),
        ("other", "other.spool"),
    ] {
        assert_eq!(StoreFolders::of(Path::new(file), None).spools, Path::new(expected));
    }
}
