//! Undoing turns.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use azureal_snapshots::{ConflictReason, Error, UndoAction, UndoPlan, Worktree};

use crate::place::{Place, SESSION, link, os, take};

fn conflicts(plan: &UndoPlan) -> Vec<(&str, ConflictReason)> {
    plan.conflicts.iter().map(|conflict| (conflict.path.to_str().unwrap(), conflict.why)).collect()
}

#[test]
fn a_turn_is_undone_and_the_undo_too() {
    let place = Place::new();
    let worktree = place.worktree();
    let original = place.files();
    let before = take(&worktree);
    place.write("src/a.rs", "edited\n").write("new/deep/file", "x").write("bin", [0u8, 255, 13, 10]);
    fs::rename(place.path("README"), place.path("moved")).unwrap();
    let after = take(&worktree);
    let edited = place.files();
    let plan = worktree.plan_undo(&before.tree, &after.tree).unwrap();
    let actions: Vec<_> = plan.files.iter().map(|file| (file.path.to_str().unwrap(), file.action)).collect();
    let (restore, delete) = (UndoAction::Restore, UndoAction::Delete);
    let expected = [
        ("README", restore),
        ("bin", delete),
        ("moved", delete),
        ("new/deep/file", delete),
        ("src/a.rs", restore),
    ];
    assert_eq!((actions.as_slice(), plan.conflicts.as_slice()), (&expected[..], &[][..]));
    let undone = worktree.undo(SESSION, &before.tree, &after.tree, false).unwrap();
    // Without the empty folders, too.
    assert_eq!(place.files(), original);
    assert_eq!((&undone.before, &undone.after), (&after.tree, &before.tree));
    assert_eq!(undone.files, plan.files);
    // Nothing is left to do.
    let again = worktree.undo(SESSION, &before.tree, &after.tree, false).unwrap();
    assert_eq!(again.files, []);
    worktree.undo(SESSION, &undone.before, &undone.after, false).unwrap();
    assert_eq!(place.files(), edited);
}

#[test]
fn files_that_were_changed_since_are_not_overwritten_unless_it_is_forced() {
    let place = Place::new();
    let worktree = place.worktree();
    let before = take(&worktree);
    place.write("src/a.rs", "by the turn\n").write("src/b.rs", "by the turn\n").write("new", "by the turn\n");
    fs::remove_file(place.path("README")).unwrap();
    let after = take(&worktree);
    // By the user.
    place.write("src/a.rs", "by the user\n").write("README", "again\n").write("unrelated", "mine\n");
    fs::remove_file(place.path("src/b.rs")).unwrap();
    fs::set_permissions(place.path("new"), Permissions::from_mode(0o755)).unwrap();
    let now = place.files();
    let plan = worktree.plan_undo(&before.tree, &after.tree).unwrap();
    let expected = [
        ("README", ConflictReason::CreatedSince),
        ("new", ConflictReason::ChangedSince),
        ("src/a.rs", ConflictReason::ChangedSince),
        ("src/b.rs", ConflictReason::DeletedSince),
    ];
    assert_eq!(conflicts(&plan), expected);
    assert!(matches!(worktree.undo(SESSION, &before.tree, &after.tree, false), Err(Error::Conflicts(4))));
    assert_eq!(place.files(), now);
    let undone = worktree.undo(SESSION, &before.tree, &after.tree, true).unwrap();
    assert_eq!(undone.left, []);
    assert_eq!(fs::read_to_string(place.path("src/a.rs")).unwrap(), "fn a() {}\n");
    assert_eq!(fs::read_to_string(place.path("README")).unwrap(), "read\n");
    assert_eq!(fs::read_to_string(place.path("unrelated")).unwrap(), "mine\n");
    assert!(place.path("src/b.rs").exists() && !place.path("new").exists());
    // What it overwrote is in the snapshot before it.
    worktree.undo(SESSION, &undone.before, &undone.after, false).unwrap();
    assert_eq!(place.files(), now);
}

#[test]
fn an_undo_does_not_write_through_links_or_over_other_files() {
    let place = Place::new();
    let worktree = place.worktree();
    let outside = place.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a.rs"), "outside\n").unwrap();
    let before = take(&worktree);
    place.write("src/a.rs", "by the turn\n").write("made/x", "1\n");
    fs::remove_file(place.path("README")).unwrap();
    let after = take(&worktree);
    // The user moves the folder away and puts a link to another one in its place.
    fs::rename(place.path("src"), place.path("kept")).unwrap();
    link(&outside, &place.path("src"));
    fs::create_dir(place.path("README")).unwrap();
    place.write("README/mine", "x\n");
    let plan = worktree.plan_undo(&before.tree, &after.tree).unwrap();
    let expected = [("README", ConflictReason::InTheWay), ("src/a.rs", ConflictReason::InTheWay)];
    assert_eq!(conflicts(&plan), expected);
    let undone = worktree.undo(SESSION, &before.tree, &after.tree, true).unwrap();
    assert_eq!(plan.forced, undone.files, "the plan knows what a forced undo does");
    let cannot: Vec<_> =
        plan.conflicts.into_iter().filter(|conflict| !conflict.why.can_be_forced()).collect();
    assert_eq!(cannot, undone.left);
    let left: Vec<_> =
        undone.left.iter().map(|conflict| (conflict.path.to_str().unwrap(), conflict.why)).collect();
    assert_eq!(left, [("README", ConflictReason::InTheWay), ("src/a.rs", ConflictReason::InTheWay)]);
    assert_eq!(fs::read_to_string(outside.join("a.rs")).unwrap(), "outside\n");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(place.path("README/mine").exists() && !place.path("made").exists());
}

#[test]
fn a_repository_that_the_turn_created_is_not_deleted() {
    let place = Place::new();
    let worktree = place.worktree();
    let before = take(&worktree);
    fs::remove_file(place.path("README")).unwrap();
    fs::create_dir(place.path("README")).unwrap();
    place.git_in(&place.path("README"), &["init", "-q"]);
    let after = take(&worktree);
    let plan = worktree.plan_undo(&before.tree, &after.tree).unwrap();
    assert_eq!(conflicts(&plan), [("README", ConflictReason::InTheWay)]);
    let undone = worktree.undo(SESSION, &before.tree, &after.tree, true).unwrap();
    assert_eq!(undone.left.len(), 1);
    assert!(place.path("README/.git/HEAD").exists());
}

#[test]
fn an_undo_needs_no_object_of_the_project() {
    let place = Place::new();
    place.write("deep/er/file", "old\n");
    place.commit();
    let worktree = place.worktree();
    let original = place.files();
    let before = take(&worktree);
    place.write("deep/er/file", "new\n");
    fs::remove_file(place.path("README")).unwrap();
    let after = take(&worktree);
    fs::remove_dir_all(place.path(".git/refs/heads")).unwrap();
    fs::create_dir(place.path(".git/refs/heads")).unwrap();
    place.git(&["read-tree", "--empty"]);
    place.git(&["reflog", "expire", "--expire=now", "--all"]);
    place.git(&["gc", "-q", "--prune=now"]);
    worktree.undo(SESSION, &before.tree, &after.tree, false).unwrap();
    assert_eq!(place.files(), original);
}

#[test]
fn bytes_names_and_permissions_are_restored() {
    let place = Place::new();
    place
        .write(".gitattributes", "* text=auto eol=crlf\n*.id ident\n")
        .write("crlf", "a\r\nb\r\n")
        .write("key.id", "$Id$\n");
    place.commit();
    let odd = place.root.join(os(b"new\nline\xff"));
    fs::write(&odd, "odd\n").unwrap();
    place.write("private", "secret\n").write("run", "x\n");
    fs::set_permissions(place.path("private"), Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(place.path("run"), Permissions::from_mode(0o4755)).unwrap();
    let worktree = place.worktree();
    let original = place.files();
    let before = take(&worktree);
    place
        .write("crlf", "a\nb\n")
        .write("key.id", "$Id: x $\n")
        .write("private", "other\n")
        .write("run", "y\n");
    fs::remove_file(&odd).unwrap();
    let after = take(&worktree);
    worktree.undo(SESSION, &before.tree, &after.tree, false).unwrap();
    let mode = |name: &str| fs::metadata(place.path(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("private"), 0o600);
    assert_eq!(mode("run"), 0o755, "a set-id bit is not restored");
    let mut restored = place.files();
    let run: PathBuf = place.path("run");
    restored.get_mut(&run).unwrap().1 |= 0o4000;
    assert_eq!(restored, original);
}

#[test]
fn a_file_that_was_not_stored_is_a_conflict() {
    let place = Place::new();
    let worktree = place.worktree();
    let limits = azureal_snapshots::Limits {
        new_file: 10,
        time: std::time::Duration::from_secs(60),
        ..Default::default()
    };
    let take = || match worktree.take(SESSION, &limits, &|| false).unwrap() {
        azureal_snapshots::Taken::Whole(snapshot) => snapshot.tree,
        other => panic!("{other:?}"),
    };
    place.write("large", "more than ten bytes\n");
    let before = take();
    place.write("large", "more than ten other bytes\n").write("src/a.rs", "x\n");
    let after = take();
    let plan = worktree.plan_undo(&before, &after).unwrap();
    assert_eq!(conflicts(&plan), [("large", ConflictReason::NotStored)]);
    assert!(matches!(worktree.undo(SESSION, &before, &after, false), Err(Error::Conflicts(1))));
    assert_eq!(fs::read_to_string(place.path("src/a.rs")).unwrap(), "x\n");
    worktree.undo(SESSION, &before, &after, true).unwrap();
    assert_eq!(fs::read_to_string(place.path("src/a.rs")).unwrap(), "fn a() {}\n");
    assert_eq!(fs::read_to_string(place.path("large")).unwrap(), "more than ten other bytes\n");
}

#[test]
fn a_forced_undo_leaves_files_whose_content_no_snapshot_has() {
    let place = Place::new();
    let worktree = place.worktree();
    let before = take(&worktree);
    for name in ["large", "ignored", "edited"] {
        place.write(name, "by the turn\n");
    }
    fs::remove_file(place.path("README")).unwrap();
    let after = take(&worktree);
    // By the user: too large for a snapshot, ignored, and plain.
    let large = vec![b'x'; 51_000_000];
    place.write("large", &large).write("ignored", "mine\n").write("edited", "mine\n");
    place.write(".gitignore", "ignored\nREADME\n").write("README", "mine too\n");
    place.git(&["rm", "-q", "--cached", "README"]);
    let plan = worktree.plan_undo(&before.tree, &after.tree).unwrap();
    let undone = worktree.undo(SESSION, &before.tree, &after.tree, true).unwrap();
    assert_eq!(plan.forced, undone.files, "the plan knows what a forced undo does");
    let left: Vec<_> =
        undone.left.iter().map(|conflict| (conflict.path.to_str().unwrap(), conflict.why)).collect();
    assert!(left.contains(&("large", ConflictReason::NotKept)), "{left:?}");
    assert!(!place.path("edited").exists());
    assert!(fs::read(place.path("large")).unwrap() == large);
    for (name, text) in [("ignored", "mine\n"), ("README", "mine too\n")] {
        let is_left = left.contains(&(name, ConflictReason::NotKept));
        let now = fs::read_to_string(place.path(name)).unwrap_or_default();
        assert_eq!(now == text, is_left, "{name}: {now:?}");
    }
    // All that it changed can be brought back.
    worktree.undo(SESSION, &undone.before, &undone.after, false).unwrap();
    for (name, text) in [("ignored", "mine\n"), ("README", "mine too\n"), ("edited", "mine\n")] {
        assert_eq!(fs::read_to_string(place.path(name)).unwrap(), text);
    }
}

#[test]
fn a_folder_that_was_empty_before_the_turn_stays() {
    let place = Place::new();
    fs::create_dir_all(place.path("logs/old")).unwrap();
    let worktree = place.worktree();
    let before = take(&worktree);
    place.write("logs/old/new/file", "1\n").write("logs/x", "2\n").write("made/by/turn", "3\n");
    let after = take(&worktree);
    worktree.undo(SESSION, &before.tree, &after.tree, false).unwrap();
    assert!(place.path("logs/old").is_dir());
    assert!(!place.path("logs/old/new").exists() && !place.path("logs/x").exists());
    assert!(!place.path("made").exists());
}

#[test]
fn the_journal_of_another_worktree_is_not_ours() {
    let place = Place::new();
    let linked = place.folder.path().join("linked");
    place.git(&["worktree", "add", "-q", linked.to_str().unwrap()]);
    take(&place.worktree());
    let other = Worktree::open(&linked, &place.program()).unwrap().unwrap();
    take(&other);
    assert!(!Worktree::has_interrupted_undo(&place.root) && !Worktree::has_interrupted_undo(&linked));
    fs::write(other.folder().join("worktrees/linked-linked/undo.forward"), "").unwrap();
    assert!(!Worktree::has_interrupted_undo(&place.root) && Worktree::has_interrupted_undo(&linked));
    assert!(!Worktree::has_interrupted_undo(place.folder.path()));
    fs::write(other.folder().join("worktrees/main/undo.done"), "").unwrap();
    assert!(Worktree::has_interrupted_undo(&place.root));
}

#[test]
fn two_names_of_one_file_are_both_restored() {
    let place = Place::new();
    place.write("one", "before\n");
    fs::hard_link(place.path("one"), place.path("two")).unwrap();
    place.commit();
    let worktree = place.worktree();
    let before = take(&worktree);
    place.write("one", "after\n").write("new", "new\n");
    fs::hard_link(place.path("new"), place.path("newer")).unwrap();
    let after = take(&worktree);
    worktree.undo(SESSION, &before.tree, &after.tree, false).unwrap();
    for name in ["one", "two"] {
        assert_eq!(fs::read_to_string(place.path(name)).unwrap(), "before\n", "{name}");
    }
    assert!(!place.path("new").exists() && !place.path("newer").exists());
}
