//! What was ignored when a turn began: no undo deletes it, and nothing shows its content.

use std::fs;
use std::path::Path;

use azureal_snapshots::{ConflictReason, Limits, Worktree};

use crate::place::{Place, SESSION, begin, end, patient, shown, taken};

/// Returns the paths of a comparison that are hidden, and the other changes.
fn split(worktree: &Worktree, before: &str, after: &str) -> (Vec<String>, Vec<String>) {
    let (hidden, files): (Vec<_>, Vec<_>) =
        worktree.compare(before, after).unwrap().into_iter().partition(|file| file.ignored_before);
    (hidden.iter().map(|file| file.path.display().to_string()).collect(), shown(&files))
}

/// Undoes a turn with force, and checks that these files stay, and that no diff has their content.
#[track_caller]
fn check_kept(place: &Place, before: &str, after: &str, kept: &[&str]) {
    let worktree = place.worktree();
    let diff = worktree.diff(before, after, 1 << 20).unwrap();
    assert!(!diff.text().contains("SECRET"), "{}", diff.text());
    let contents = || kept.iter().map(|name| fs::read(place.path(name)).unwrap()).collect::<Vec<_>>();
    let now = contents();
    worktree.undo(SESSION, before, after, true).unwrap();
    assert_eq!(contents(), now);
}

fn empty() -> Place {
    let place = Place::new();
    for name in ["README", "src"] {
        place.git(&["rm", "-rqf", name]);
    }
    place.git(&["commit", "-qm", "empty"]);
    place
}

#[test]
fn rules_that_ignore_themselves_and_leave_the_snapshots_count_for_the_turn() {
    let place = empty();
    place.write(".gitignore", "*.env\n").write("secret", "SECRET\n").write("src/a", "a\n");
    let worktree = place.worktree();
    let first = begin(&worktree);
    place.write(".gitignore", "*\n!src\n");
    end(&worktree, &first);
    // Now `.gitignore` and `secret` are ignored, and were recorded.
    let before = begin(&worktree);
    fs::rename(place.path(".gitignore"), place.path("x")).unwrap();
    place.write(".gitignore", "lib/*\n");
    let after = end(&worktree, &before);
    let (hidden, files) = split(&worktree, &before, &after);
    assert_eq!(hidden, [".gitignore", "secret", "src/a", "x"]);
    assert_eq!(files, Vec::<String>::new());
    check_kept(&place, &before, &after, &[".gitignore", "secret", "src/a", "x"]);
}

#[test]
fn what_was_there_and_ignored_is_not_deleted_though_no_rule_is_known() {
    let place = empty();
    place.write(".gitignore", "*.key\ncache/\n").write("a.key", "SECRET\n").write("cache/data", "SECRET\n");
    place.commit();
    let worktree = place.worktree();
    let before = begin(&worktree);
    place.write(".gitignore", "");
    let after = end(&worktree, &before);
    // The rules of the turn are lost, its names are not.
    place.write("new", "1\n");
    let (hidden, files) = split(&worktree, &before, &after);
    assert_eq!(hidden, ["a.key", "cache/data"]);
    assert_eq!(files, ["M .gitignore +0 -2"]);
    check_kept(&place, &before, &after, &["a.key", "cache/data"]);
}

#[test]
fn the_rules_of_a_snapshot_are_those_of_its_own_turn() {
    let place = empty();
    place.write("kept", "1\n");
    let worktree = place.worktree();
    place.write(".git/info/exclude", "*.key\n").write("a.key", "SECRET\n");
    let before = begin(&worktree);
    place.write(".git/info/exclude", "");
    let after = end(&worktree, &before);
    let expected = (vec!["a.key".to_owned()], Vec::new());
    assert_eq!(split(&worktree, &before, &after), expected);
    fs::remove_file(place.path("a.key")).unwrap();
    // The same files are recorded under many other rules.
    for turn in 0..20 {
        place.write(".git/info/exclude", format!("{turn}\n"));
        assert_eq!(begin(&worktree), before);
    }
    assert_eq!(split(&worktree, &before, &after), expected);
}

#[test]
fn a_file_that_the_first_snapshot_has_stays_recorded_to_the_end_of_the_turn() {
    let place = empty();
    place.write("notes", "mine\n").write("gone", "mine\n");
    let worktree = place.worktree();
    let before = begin(&worktree);
    place.write(".gitignore", "notes\ngone\n").write("notes", "edited\n");
    fs::remove_file(place.path("gone")).unwrap();
    // A turn of another session begins, to which the file is ignored.
    begin(&worktree);
    let after = end(&worktree, &before);
    let (_, files) = split(&worktree, &before, &after);
    assert_eq!(files, ["A .gitignore +2 -0", "D gone +0 -1", "M notes +1 -1"]);
    let undone = worktree.undo(SESSION, &before, &after, false).unwrap();
    assert_eq!(fs::read_to_string(place.path("notes")).unwrap(), "mine\n");
    assert!(place.path("gone").exists());
    // Back and forth.
    let of_undo = worktree.of_undo(true);
    for _ in 0..2 {
        let redone = of_undo.undo(SESSION, &undone.before, &undone.after, false).unwrap();
        assert_eq!(fs::read_to_string(place.path("notes")).unwrap(), "edited\n");
        assert!(!place.path("gone").exists());
        of_undo.undo(SESSION, &redone.before, &redone.after, false).unwrap();
        assert_eq!(fs::read_to_string(place.path("notes")).unwrap(), "mine\n");
    }
}

#[test]
fn an_undo_of_a_file_that_is_ignored_by_now_can_be_undone() {
    let place = empty();
    place.write("notes", "1\n");
    let worktree = place.worktree();
    let before = begin(&worktree);
    place.write("notes", "2\n");
    let after = end(&worktree, &before);
    place.write(".git/info/exclude", "notes\n");
    // No snapshot has it from now on.
    begin(&worktree);
    let undone = worktree.undo(SESSION, &before, &after, false).unwrap();
    assert_eq!(fs::read_to_string(place.path("notes")).unwrap(), "1\n");
    let of_undo = worktree.of_undo(true);
    assert_eq!(shown(&of_undo.compare(&undone.before, &undone.after).unwrap()), ["M notes +1 -1"]);
    of_undo.undo(SESSION, &undone.before, &undone.after, false).unwrap();
    assert_eq!(fs::read_to_string(place.path("notes")).unwrap(), "2\n");
}

#[test]
fn what_is_ignored_at_the_end_and_was_not_recorded_before_is_no_change() {
    let place = empty();
    place.write("a", "1\n");
    let worktree = place.worktree();
    let before = begin(&worktree);
    place.write("a", "2\n").write("made.log", "SECRET\n");
    // As the undo of another session or a second part of the turn does it.
    taken(&worktree, &patient());
    place.write(".git/info/exclude", "*.log\n");
    let after = end(&worktree, &before);
    assert_eq!(split(&worktree, &before, &after), (Vec::new(), vec!["M a +1 -1".to_owned()]));
    let plan = worktree.plan_undo(&before, &after).unwrap();
    assert_eq!((plan.files.len(), plan.conflicts.len()), (1, 0));
    worktree.undo(SESSION, &before, &after, false).unwrap();
    assert!(place.path("made.log").exists());
}

#[test]
fn a_file_that_is_ignored_after_its_turn_is_a_change_of_the_turn() {
    let place = empty();
    let worktree = place.worktree();
    let before = begin(&worktree);
    place.write("a", "1\n");
    let after = end(&worktree, &before);
    place.write(".git/info/exclude", "a\n");
    // The same files, under other rules.
    assert_eq!(taken(&worktree, &patient()), after);
    assert_eq!(split(&worktree, &before, &after), (Vec::new(), vec!["A a +1 -0".to_owned()]));
    worktree.undo(SESSION, &before, &after, false).unwrap();
    assert!(!place.path("a").exists());
}

#[test]
fn many_repositories_and_many_ignored_names_are_all_known() {
    let place = empty();
    // More than are named to the user.
    for number in 0..1_005 {
        fs::create_dir_all(place.path(&format!("r/{number:04}/.git/refs"))).unwrap();
        fs::create_dir_all(place.path(&format!("r/{number:04}/.git/objects"))).unwrap();
        place.write(&format!("r/{number:04}/.git/HEAD"), "ref: refs/heads/main\n");
        place.write(&format!("r/{number:04}/file"), "SECRET\n");
    }
    place.write(".gitignore", "*.key\n").write("few/a.key", "SECRET\n");
    for number in 0..10_001 {
        place.write(&format!("many/{number}.key"), "SECRET\n");
    }
    place.commit_file(".gitignore");
    let worktree = place.worktree();
    let before = begin(&worktree);
    for number in 0..1_005 {
        fs::remove_dir_all(place.path(&format!("r/{number:04}/.git"))).unwrap();
    }
    place.write("many/new", "1\n").write("few/new", "1\n");
    let after = end(&worktree, &before);
    let (hidden, files) = split(&worktree, &before, &after);
    // Of a folder with too many names, none counts as new.
    assert_eq!((hidden.len(), files), (1_006, vec!["A few/new +1 -0".to_owned()]));
    assert!(hidden.contains(&"r/1004/file".to_owned()) && hidden.contains(&"many/new".to_owned()));
}

#[test]
fn ignored_files_that_changed_during_a_turn_are_known_by_name() {
    let place = empty();
    place.write(".gitignore", "*.key\nbuilt/\n").write("a.key", "SECRET\n").write("b.key", "SECRET\n");
    place.write("c.key", "SECRET\n").write("d.key", "SECRET\n").write("built/out", "SECRET\n");
    let worktree = place.worktree();
    let before = begin(&worktree);
    let changed = || {
        let changed = worktree.changed_ignored(SESSION, &before).unwrap();
        changed.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(changed(), Vec::<String>::new());
    place.write("a.key", "OTHER SECRET\n").write("new.key", "SECRET\n").write("built/out", "OTHER\n");
    fs::remove_file(place.path("b.key")).unwrap();
    fs::remove_file(place.path("c.key")).unwrap();
    std::os::unix::fs::symlink("d.key", place.path("c.key")).unwrap();
    end(&worktree, &before);
    assert_eq!(changed(), ["a.key", "b.key", "c.key"]);
    assert_eq!(worktree.changed_ignored("another-session", &before).unwrap(), Vec::<&Path>::new());
}

#[test]
fn a_large_file_that_becomes_a_folder_is_deleted_and_the_folder_is_new() {
    let place = empty();
    place.write("large", "0123456789").write("kept", "1\n");
    let worktree = place.worktree();
    let limits = Limits { new_file: 5, known_file: 5, ..patient() };
    let before = taken(&worktree, &Limits { drops_ignored: true, ..limits.clone() });
    fs::remove_file(place.path("large")).unwrap();
    place.write("large/a", "1\n").write("large/b/c", "2\n");
    let after = taken(&worktree, &Limits { since: Some(before.clone()), ..limits });
    let (_, files) = split(&worktree, &before, &after);
    assert_eq!(files, ["D large ? ? not stored", "A large/a +1 -0", "A large/b/c +1 -0"]);
    let plan = worktree.plan_undo(&before, &after).unwrap();
    assert_eq!(plan.conflicts.len(), 1);
    assert_eq!(plan.conflicts[0].why, ConflictReason::NotStored);
}
