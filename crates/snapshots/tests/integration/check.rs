//! Checks of snapshots, and their repair.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use azureal_snapshots::{Error, RepairedSnapshots, SnapshotCheck, Worktree};

use crate::place::{Place, SESSION, shown, take};

/// Writes a file of ours, which may be read-only.
fn damage(path: &Path, bytes: &[u8]) {
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    fs::write(path, bytes).unwrap();
}

fn files_with(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.to_string_lossy().ends_with(ending)).collect()
}

fn objects_of(worktree: &Worktree) -> Vec<PathBuf> {
    let folders =
        fs::read_dir(worktree.folder().join("objects")).unwrap().map(|folder| folder.unwrap().path());
    let fan_outs = folders.filter(|folder| folder.file_name().unwrap().len() == 2);
    fan_outs.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path()).collect()
}

#[test]
fn notes_that_cannot_be_read_and_lost_snapshots_are_found() {
    let place = Place::new();
    let worktree = place.worktree();
    assert_eq!(worktree.check_snapshots().unwrap(), SnapshotCheck::default());
    assert!(!worktree.folder().exists(), "a check creates nothing");
    place.write("a", "one");
    take(&worktree);
    place.write("a", "two");
    let kept = take(&worktree);
    let sound = worktree.check_snapshots().unwrap();
    assert_eq!(sound, SnapshotCheck { snapshots: 2, size: worktree.size(), ..SnapshotCheck::default() });
    let packs = worktree.folder().join("objects/pack");
    let notes = packs.join(format!("notes-{SESSION}"));
    assert_eq!(fs::read_to_string(&notes).unwrap().lines().count(), 2, "one file for each session");
    OpenOptions::new().append(true).open(&notes).unwrap().write_all(b"no note\n").unwrap();
    let lost = packs.join("notes-lost");
    fs::write(&lost, format!("1 {} -\n", "1".repeat(40))).unwrap();
    fs::set_permissions(&lost, Permissions::from_mode(0o600)).unwrap();
    let unreadable = packs.join("notes-folder");
    fs::create_dir(&unreadable).unwrap();
    let check = worktree.check_snapshots().unwrap();
    assert_eq!(check.unreadable, std::slice::from_ref(&unreadable));
    assert_eq!((check.damaged_notes, check.lost), (vec![notes], vec![("lost".to_owned(), 1)]));
    assert!(worktree.prune(u64::MAX).is_err(), "what cannot be read is no reason to remove objects");
    fs::remove_dir(unreadable).unwrap();
    let repaired = worktree.repair_snapshots().unwrap();
    assert_eq!(repaired, RepairedSnapshots { lost: 1, notes: 1, ..RepairedSnapshots::default() });
    assert_eq!(worktree.check_snapshots().unwrap(), sound);
    worktree.prune(u64::MAX).unwrap();
    assert_eq!(shown(&worktree.compare(&kept.tree, &take(&worktree).tree).unwrap()), [""; 0]);
}

#[test]
fn a_damaged_pack_is_named_and_what_can_be_read_of_it_is_kept() {
    let place = Place::new();
    let worktree = place.worktree();
    let mut trees = vec![take(&worktree).tree];
    for turn in ["one\n", "two\n", "three\n"] {
        place.write("a", turn.repeat(2_000));
        trees.push(take(&worktree).tree);
        worktree.make_durable(SESSION, &trees[trees.len() - 2], trees.last().unwrap()).unwrap();
    }
    let packs = worktree.folder().join("objects/pack");
    let indexes = files_with(&packs, ".idx");
    // An index is created again.
    damage(&indexes[0], b"");
    fs::remove_file(&indexes[1]).unwrap();
    assert_eq!(place.worktree().check_snapshots().unwrap().packs.len(), 2);
    let repaired = place.worktree().repair_snapshots().unwrap();
    assert_eq!(repaired, RepairedSnapshots { indexed: 2, ..RepairedSnapshots::default() });
    for pair in trees.windows(2) {
        place.worktree().check_whole(&pair[0], &pair[1]).unwrap();
    }
    // Of a cut pack, the objects before the cut are kept.
    let cut = files_with(&packs, ".pack")[0].clone();
    let bytes = fs::read(&cut).unwrap();
    damage(&cut, &bytes[..bytes.len() - 30]);
    let errors = trees.windows(2).filter(|pair| {
        matches!(place.worktree().diff(&pair[0], &pair[1], 1 << 20), Err(Error::Damaged { .. }))
    });
    assert!(errors.count() > 0, "a damaged pack is not taken for snapshots of another machine");
    assert_eq!(place.worktree().check_snapshots().unwrap().packs, [cut]);
    let repaired = place.worktree().repair_snapshots().unwrap();
    assert_eq!((repaired.salvaged, repaired.indexed), (1, 0));
    let check = place.worktree().check_snapshots().unwrap();
    assert_eq!((check.packs.len(), check.objects.len(), check.indexes.len()), (0, 0, 0));
    // Recording continues.
    let (before, worktree) = (take(&place.worktree()).tree, place.worktree());
    place.write("a", "four\n");
    let after = take(&worktree).tree;
    worktree.make_durable(SESSION, &before, &after).unwrap();
    place.worktree().undo(SESSION, &before, &after, false).unwrap();
    assert_eq!(fs::read_to_string(place.path("a")).unwrap(), "three\n".repeat(2_000));
}

#[test]
fn damaged_indexes_and_objects_are_named_and_removed() {
    let place = Place::new();
    let worktree = place.worktree();
    take(&worktree);
    place.write("a", "one");
    take(&worktree);
    let index = worktree.folder().join("worktrees/main/index");
    damage(&index, b"DIRC");
    let object = objects_of(&worktree).remove(0);
    damage(&object, b"");
    let check = place.worktree().check_snapshots().unwrap();
    assert_eq!((check.indexes, check.objects), (vec![index.clone()], vec![object.clone()]));
    let repaired = place.worktree().repair_snapshots().unwrap();
    assert_eq!((repaired.indexes, repaired.objects), (1, 1));
    assert!(!index.exists() && !object.exists());
    assert_eq!(place.worktree().check_snapshots().unwrap().objects, [] as [PathBuf; 0]);
}

#[test]
fn a_damaged_index_is_made_again_and_the_snapshot_is_that_of_the_files() {
    let place = Place::new();
    place.write("large", vec![b'x'; 11_000_000]).write("untracked", "untracked\n");
    let mut last = place.take().tree;
    let index = place.worktree().folder().join("worktrees/main/index");
    let whole = fs::read(&index).unwrap();
    let mut holed = whole.clone();
    holed[100..260].fill(0);
    for (turn, bytes) in
        [&b""[..], &whole[..whole.len() / 2], &whole[..30], b"garbage".as_slice(), &holed].iter().enumerate()
    {
        damage(&index, bytes);
        let before = place.take();
        assert_eq!(before.tree, last, "after damage {turn}");
        place.write("untracked", format!("{turn}\n"));
        last = place.take().tree;
        assert_eq!(shown(&place.worktree().compare(&before.tree, &last).unwrap()), ["M untracked +1 -1"]);
    }
}

#[test]
fn a_damaged_object_is_written_again() {
    for damaged in ["empty", "cut", "garbage", "missing"] {
        let place = Place::new();
        take(&place.worktree());
        place.write("a", "one\n".repeat(1_000)).write("folder/b", "b\n");
        let before = take(&place.worktree()).tree;
        // As a power loss leaves them before the turn is stored: the index is whole.
        for object in objects_of(&place.worktree()) {
            let bytes = fs::read(&object).unwrap();
            match damaged {
                "empty" => damage(&object, b""),
                "cut" => damage(&object, &bytes[..bytes.len() / 2]),
                "garbage" => damage(&object, b"garbage"),
                _ => fs::remove_file(&object).unwrap(),
            }
        }
        let worktree = place.worktree();
        assert_eq!(take(&worktree).tree, before, "{damaged}");
        place.write("a", "two\n").write("folder/b", "c\n");
        let after = take(&worktree).tree;
        worktree.make_durable(SESSION, &before, &after).unwrap();
        worktree.check_whole(&before, &after).unwrap();
        place.worktree().undo(SESSION, &before, &after, false).unwrap();
        assert_eq!(fs::read_to_string(place.path("a")).unwrap(), "one\n".repeat(1_000), "{damaged}");
        assert_eq!(place.worktree().check_snapshots().unwrap().objects.len(), 0);
    }
}

#[test]
fn an_index_that_is_older_or_newer_than_its_state_makes_no_wrong_snapshot() {
    let place = Place::new();
    let own = place.worktree().folder().join("worktrees/main");
    place.write("a", "1\n");
    let first = place.take().tree;
    let of_first = ["index", "state"].map(|name| fs::read(own.join(name)).unwrap());
    place.write("a", "2\n");
    let second = place.take().tree;
    let of_second = ["index", "state"].map(|name| fs::read(own.join(name)).unwrap());
    for (index, state) in [(&of_first[0], &of_second[1]), (&of_second[0], &of_first[1])] {
        damage(&own.join("index"), index);
        damage(&own.join("state"), state);
        assert_eq!(place.take().tree, second);
    }
    assert_ne!(first, second);
}

#[test]
fn an_object_that_an_index_newer_than_its_state_refers_to_is_written_again() {
    let place = Place::new();
    let own = place.worktree().folder().join("worktrees/main");
    place.write("a", "1\n");
    let (worktree, first) = (place.worktree(), place.take().tree);
    place.write("a", "2\n");
    let second = place.take().tree;
    worktree.make_durable(SESSION, &first, &second).unwrap();
    let state = fs::read(own.join("state")).unwrap();
    assert!(String::from_utf8_lossy(&state).contains("durable 1"));
    place.write("b", "a person's words\n");
    place.take();
    // A power loss keeps the index and the tree, and not the state and the file's object.
    damage(&own.join("state"), &state);
    let id = place.git(&["hash-object", "b"]);
    fs::remove_file(worktree.folder().join("objects").join(&id[..2]).join(id[2..].trim())).unwrap();
    let before = place.take().tree;
    place.write("b", "other words\n");
    let after = place.take().tree;
    place.worktree().undo(SESSION, &before, &after, false).unwrap();
    assert_eq!(fs::read_to_string(place.path("b")).unwrap(), "a person's words\n");
}

#[test]
fn a_folder_of_objects_stays_when_its_objects_are_packed() {
    let place = Place::new();
    let worktree = place.worktree();
    let before = take(&worktree).tree;
    place.write("a", "new\n");
    let after = take(&worktree).tree;
    let folders = objects_of(&worktree);
    worktree.make_durable(SESSION, &before, &after).unwrap();
    assert!(objects_of(&worktree).is_empty());
    assert!(!folders.is_empty());
    // Git in another process creates a folder, and then a file in it.
    assert!(folders.iter().all(|object| object.parent().unwrap().is_dir()));
}

#[test]
fn a_damaged_object_is_no_reason_to_remove_the_index_of_a_worktree_that_is_in_use() {
    let place = Place::new();
    let linked = place.folder.path().join("linked");
    place.git(&["worktree", "add", "-q", linked.to_str().unwrap(), "-b", "other"]);
    let other = Worktree::open(&linked, &place.program()).unwrap().unwrap();
    take(&other);
    let folder = other.folder().join("worktrees/linked-linked");
    let in_use = fs::File::open(&folder).unwrap();
    in_use.lock().unwrap();
    for is_in_use in [true, false] {
        place.write("new", format!("{is_in_use}"));
        take(&place.worktree());
        let object = objects_of(&other).remove(0);
        let bytes = fs::read(&object).unwrap();
        damage(&object, b"");
        take(&place.worktree());
        assert_ne!(fs::read(&object).ok(), Some(Vec::new()), "it is removed, or written again");
        assert_eq!(folder.join("index").exists(), is_in_use);
        restore(&object, &bytes);
        in_use.unlock().unwrap();
    }
}

/// Writes a file that may be gone.
fn restore(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).ok();
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o400)).unwrap();
}
