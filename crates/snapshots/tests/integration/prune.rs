//! Removing snapshots.

use std::fs;
use std::time::Duration;

use azureal_snapshots::{Error, Limits, Pruned, Taken, Worktree};

use crate::place::{Place, shown, take};

/// Text that does not compress.
fn noise(seed: u64, length: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'!' + u8::try_from(state % 90).unwrap())
    };
    (0..length).map(|_| next()).collect()
}

fn take_for(worktree: &Worktree, session: &str) -> String {
    let limits = Limits { time: Duration::from_secs(60), ..Limits::default() };
    match worktree.take(session, &limits, &|| false).unwrap() {
        Taken::Whole(snapshot) => snapshot.tree,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_snapshots_of_a_removed_session_are_removed() {
    let place = Place::new();
    let worktree = place.worktree();
    assert_eq!(worktree.prune(0).unwrap(), Pruned::default());
    worktree.remove_session("none").unwrap();
    let first = take_for(&worktree, "one");
    place.write("src/a.rs", noise(1, 50_000));
    let second = take_for(&worktree, "one");
    place.write("src/a.rs", noise(2, 50_000));
    let third = take_for(&worktree, "two");
    place.write("src/a.rs", noise(3, 50_000));
    let fourth = take_for(&worktree, "two");
    let full = worktree.size();
    assert!(full > 100_000, "{full}");
    let pruned = worktree.prune(u64::MAX).unwrap();
    assert_eq!((pruned.snapshots, pruned.size), (0, full));
    worktree.remove_session("one").unwrap();
    let pruned = worktree.prune(u64::MAX).unwrap();
    assert!(pruned.size < full && pruned.size == worktree.size(), "{pruned:?} {full}");
    assert!(matches!(worktree.compare(&second, &third), Err(Error::Gone(gone)) if gone == second));
    assert_eq!(shown(&worktree.compare(&third, &fourth).unwrap()), ["M src/a.rs +1 -1"]);
    // The first one is the commit's.
    assert!(worktree.compare(&first, &third).is_ok());
    worktree.undo("two", &third, &fourth, false).unwrap();
    assert_eq!(fs::read_to_string(place.path("src/a.rs")).unwrap(), noise(2, 50_000));
}

#[test]
fn the_oldest_snapshots_go_first() {
    let place = Place::new();
    let worktree = place.worktree();
    let mut trees = vec![take_for(&worktree, "s")];
    for turn in 1..=10 {
        place.write("src/a.rs", noise(turn, 20_000)).write("untracked", noise(turn + 100, 20_000));
        trees.push(take_for(&worktree, "s"));
    }
    let full = worktree.size();
    let pruned = worktree.prune(full / 2).unwrap();
    assert!(pruned.size <= full / 2 && pruned.size > full / 5 && !pruned.turned_off, "{pruned:?} of {full}");
    assert!((4..10).contains(&pruned.snapshots), "{pruned:?}");
    let last: Vec<&String> = trees.iter().rev().take(3).collect();
    assert_eq!(worktree.compare(last[2], last[0]).unwrap().len(), 2);
    assert!(matches!(worktree.compare(&trees[1], last[0]), Err(Error::Gone(_))));
    // The next snapshot works as before, and can be undone.
    let before = take(&worktree);
    assert_eq!(before.tree, *last[0]);
    place.write("untracked", "new\n");
    let after = take(&worktree);
    worktree.undo("s", &before.tree, &after.tree, false).unwrap();
    assert_eq!(fs::read_to_string(place.path("untracked")).unwrap(), noise(110, 20_000));
    // If even the files of now are too large, snapshots are off.
    let pruned = worktree.prune(1000).unwrap();
    assert!(pruned.turned_off && pruned.size == 0, "{pruned:?}");
    let limits = Limits::default();
    assert_eq!(worktree.take("s", &limits, &|| false).unwrap(), Taken::Off);
    worktree.turn_on().unwrap();
    take(&worktree);
}

#[test]
fn the_objects_of_other_worktrees_stay() {
    let place = Place::new();
    place.git(&["worktree", "add", "-q", "../linked"]);
    let root = place.folder.path().join("linked");
    let linked = Worktree::open(&root, &place.program()).unwrap().unwrap();
    let main = place.worktree();
    fs::write(root.join("untracked"), noise(1, 20_000)).unwrap();
    take_for(&main, "main");
    take_for(&linked, "linked");
    main.remove_session("linked").unwrap();
    main.prune(u64::MAX).unwrap();
    // The index of the linked worktree refers to the file.
    let before = take(&linked);
    fs::write(root.join("untracked"), "x").unwrap();
    let after = take(&linked);
    assert_eq!(linked.plan_undo(&before.tree, &after.tree).unwrap().conflicts, []);
    // Once the worktree is gone, nothing does.
    linked.remove_session(crate::place::SESSION).unwrap();
    place.git(&["worktree", "remove", "--force", "../linked"]);
    let pruned = main.prune(u64::MAX).unwrap();
    assert!(pruned.size < 5_000, "{pruned:?}");
    assert!(!main.folder().join("worktrees/linked-linked").exists());
}

#[test]
fn many_packs_and_many_objects_need_a_prune() {
    let place = Place::new();
    for number in 0..25 {
        place.write(&format!("file{number}"), format!("{number}\n"));
    }
    place.commit();
    place.git(&["gc", "-q"]);
    let worktree = place.worktree();
    let first = take(&worktree);
    assert!(!worktree.needs_prune(u64::MAX));
    place.write("README", "edited\n");
    take(&worktree);
    assert!(!worktree.needs_prune(worktree.size()) && worktree.needs_prune(worktree.size() - 1));
    // The version of the project is copied into a pack each time.
    for number in 0..25 {
        place.write(&format!("file{number}"), "edited\n");
        take(&worktree);
    }
    assert!(worktree.needs_prune(u64::MAX));
    worktree.prune(u64::MAX).unwrap();
    assert!(!worktree.needs_prune(u64::MAX));
    for number in 0..2_100 {
        place.write(&format!("many/{number}"), format!("many {number}\n"));
    }
    let last = take(&worktree);
    assert!(worktree.needs_prune(u64::MAX));
    worktree.prune(u64::MAX).unwrap();
    assert!(!worktree.needs_prune(u64::MAX));
    assert_eq!(worktree.compare(&first.tree, &last.tree).unwrap().len(), 2_126);
}

#[test]
fn nothing_outside_the_repository_is_removed() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let place = Place::new();
    let victims = place.folder.path().join("documents");
    fs::create_dir(&victims).unwrap();
    for number in 0..2_100 {
        fs::write(victims.join(format!("{number:038x}")), "x").unwrap();
    }
    // As a download could have it: modes and owner are as they should be.
    let objects = place.path(".git/azureal/snapshots/objects");
    fs::create_dir_all(&objects).unwrap();
    for folder in [&objects, &place.path(".git/azureal/snapshots"), &place.path(".git/azureal")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
    symlink(&victims, objects.join("zz")).unwrap();
    let worktree = place.worktree();
    assert!(!worktree.needs_prune(u64::MAX));
    take_for(&worktree, "s");
    worktree.remove_session("s").unwrap();
    worktree.prune(0).unwrap();
    assert_eq!(fs::read_dir(&victims).unwrap().count(), 2_100);
    // A link in the place of a folder that git writes to.
    symlink(&victims, objects.join("00")).unwrap();
    assert!(worktree.prune(0).is_err());
    assert!(worktree.take("s", &Limits::default(), &|| false).is_err());
    assert_eq!(fs::read_dir(&victims).unwrap().count(), 2_100);
}
