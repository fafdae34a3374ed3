//! The project's index and the ignore rules change between snapshots.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use azureal_snapshots::{Limits, SkipReason, Taken, Worktree};

use crate::place::{Place, SESSION, shown, take};

fn changes(worktree: &Worktree, work: impl FnOnce()) -> Vec<String> {
    let before = take(worktree);
    work();
    let after = take(worktree);
    shown(&worktree.compare(&before.tree, &after.tree).unwrap())
}

/// Takes a snapshot as a turn does at its beginning.
fn take_before(worktree: &Worktree) {
    let limits = Limits { drops_ignored: true, ..Limits::default() };
    assert!(matches!(worktree.take(SESSION, &limits, &|| false).unwrap(), Taken::Whole(_)));
}

#[test]
fn a_tracked_file_that_is_ignored_is_recorded_whenever_it_was_added() {
    let place = Place::new();
    place.write(".gitignore", "dist\n").write("dist/first", "1\n");
    place.git(&["add", "-f", "dist/first"]);
    place.commit();
    let worktree = place.worktree();
    assert_eq!(
        changes(&worktree, || {
            place.write("dist/first", "2\n");
        }),
        ["M dist/first +1 -1"]
    );
    // Added to the index after the first snapshot.
    place.write("dist/second", "1\n").write("dist/private", "1\n");
    place.git(&["add", "-f", "dist/second"]);
    take(&worktree);
    let both = || {
        place.write("dist/second", "2\n").write("dist/private", "2\n");
    };
    assert_eq!(changes(&worktree, both), ["M dist/second +1 -1"]);
    // Deleted and back again.
    assert_eq!(
        changes(&worktree, || fs::remove_file(place.path("dist/first")).unwrap()),
        ["D dist/first +0 -1"]
    );
    // It may have been there, as it is ignored: it is named, and never deleted.
    assert_eq!(
        changes(&worktree, || {
            place.write("dist/first", "3\n");
        }),
        ["A dist/first ? ?"]
    );
    assert_eq!(
        changes(&worktree, || {
            place.write("dist/first", "4\n");
        }),
        ["M dist/first +1 -1"]
    );
    assert_eq!(changes(&worktree, || ()), [] as [String; 0]);
}

#[test]
fn a_file_that_is_ignored_later_is_recorded_no_more() {
    let place = Place::new();
    place.write(".env", "SECRET=1\n");
    let worktree = place.worktree();
    let first = take(&worktree);
    place.write(".gitignore", ".env\n");
    // After the turn that ignores it, it does not seem to be deleted.
    assert_eq!(shown(&worktree.compare(&first.tree, &take(&worktree).tree).unwrap()), ["A .gitignore +1 -0"]);
    take_before(&worktree);
    assert_eq!(
        changes(&worktree, || {
            place.write(".env", "SECRET=2\n");
        }),
        [] as [String; 0]
    );
    // By a rule outside the tree.
    place.write("notes", "1\n");
    take(&worktree);
    fs::write(place.path(".git/info/exclude"), "notes\n").unwrap();
    take_before(&worktree);
    assert_eq!(
        changes(&worktree, || {
            place.write("notes", "2\n");
        }),
        [] as [String; 0]
    );
}

#[test]
fn a_large_file_that_is_tracked_by_now_has_the_limit_of_tracked_files() {
    let place = Place::new();
    let limits = Limits { new_file: 1_000, known_file: 100_000, ..Limits::default() };
    let worktree = place.worktree();
    let take = || match worktree.take(SESSION, &limits, &|| false).unwrap() {
        Taken::Whole(snapshot) => snapshot,
        other => panic!("{other:?}"),
    };
    place.write("large", "x".repeat(5_000));
    assert_eq!(take().skipped.len(), 1);
    place.commit();
    let before = take();
    assert_eq!(before.skipped, []);
    place.write("large", "y".repeat(5_000));
    assert_eq!(shown(&worktree.compare(&before.tree, &take().tree).unwrap()), ["M large +1 -1"]);
}

#[test]
fn a_staged_file_survives_a_reset_and_gc() {
    let place = Place::new();
    place.write("staged", "precious\n");
    place.git(&["add", "staged"]);
    let worktree = place.worktree();
    let gone = changes(&worktree, || {
        place.git(&["reset", "-q", "--hard"]);
        place.git(&["gc", "-q", "--prune=now"]);
    });
    assert_eq!(gone, ["D staged +0 -1"]);
    // Unstaged and removed from the project between two turns, and then from the disk.
    place.write("second", "precious too\n");
    place.git(&["add", "second"]);
    take(&worktree);
    place.git(&["reset", "-q", "second"]);
    place.git(&["gc", "-q", "--prune=now"]);
    let before = take(&worktree);
    fs::remove_file(place.path("second")).unwrap();
    let after = take(&worktree);
    worktree.undo(SESSION, &before.tree, &after.tree, false).unwrap();
    assert_eq!(fs::read_to_string(place.path("second")).unwrap(), "precious too\n");
}

#[test]
fn a_folder_that_cannot_be_entered_is_named_and_ends_nothing() {
    if rustix::process::geteuid().is_root() {
        // Root enters every folder.
        return;
    }
    let place = Place::new();
    place.write("closed/file", "1\n");
    fs::set_permissions(place.path("closed"), fs::Permissions::from_mode(0o400)).unwrap();
    let snapshot = place.take();
    fs::set_permissions(place.path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(snapshot.skipped.iter().any(|skipped| skipped.why == SkipReason::Unreadable), "{snapshot:?}");
}
