//! Removing snapshots.

use std::fs;
use std::time::Duration;

use azureal_snapshots::{Error, Limits, Pruned, Taken, Worktree};

use crate::place::{Place, SESSION, shown, take};

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
    linked.remove_session(SESSION).unwrap();
    place.git(&["worktree", "remove", "--force", "../linked"]);
    let pruned = main.prune(u64::MAX).unwrap();
    assert!(pruned.size < 5_000, "{pruned:?}");
    assert!(!main.folder().join("worktrees/linked-linked").exists());
}

/// The packs and the objects in no pack.
fn files(worktree: &Worktree) -> (usize, usize) {
    let (mut packs, mut loose) = (0, 0);
    for folder in fs::read_dir(worktree.folder().join("objects")).unwrap() {
        let folder = folder.unwrap().path();
        let is_fan_out = folder.file_name().unwrap().len() == 2;
        for file in fs::read_dir(&folder).unwrap() {
            packs += usize::from(file.unwrap().path().extension().is_some_and(|end| end == "pack"));
            loose += usize::from(is_fan_out);
        }
    }
    (packs, loose)
}

#[test]
fn packs_of_many_turns_are_combined_in_steps_and_no_snapshot_is_lost() {
    let place = Place::new();
    let worktree = place.worktree();
    let first = take(&worktree);
    let mut trees = vec![first.tree.clone()];
    for turn in 0..45u64 {
        place.write("src/a.rs", noise(turn, 3_000)).write("untracked", format!("{turn}\n"));
        let next = take(&worktree).tree;
        worktree.make_durable(SESSION, trees.last().unwrap(), &next).unwrap();
        assert_eq!(files(&worktree).1, 0, "all objects of a turn are in its pack");
        worktree.combine().unwrap();
        assert!(files(&worktree).0 <= 20);
        trees.push(next);
    }
    for pair in trees.windows(2) {
        assert_eq!(worktree.compare(&pair[0], &pair[1]).unwrap().len(), 2);
    }
    worktree.undo(SESSION, &trees[44], &trees[45], false).unwrap();
    assert_eq!(fs::read_to_string(place.path("src/a.rs")).unwrap(), noise(43, 3_000));
}

#[test]
fn a_pack_without_an_index_does_not_keep_others_from_being_combined() {
    let place = Place::new();
    let worktree = place.worktree();
    let mut last = take(&worktree).tree;
    // What a process leaves that dies between the names of the two files.
    let orphan = worktree.folder().join(format!("objects/pack/pack-{}.pack", "1".repeat(40)));
    for turn in 0..22u64 {
        place.write("untracked", format!("{turn}\n"));
        let next = take(&worktree).tree;
        worktree.make_durable(SESSION, &last, &next).unwrap();
        last = next;
    }
    fs::write(&orphan, "PACK").unwrap();
    let before = files(&worktree).0;
    worktree.combine().unwrap();
    assert!(orphan.exists() && before > 20 && files(&worktree).0 <= 20);
}

#[test]
fn no_turn_waits_for_the_packing_of_a_first_snapshot_of_many_files() {
    let place = Place::new();
    for number in 0..2_100 {
        place.write(&format!("many/{number}"), format!("many {number}\n"));
    }
    let worktree = place.worktree();
    let before = take(&worktree).tree;
    place.write("many/7", "edited\n");
    let after = take(&worktree).tree;
    worktree.make_durable(SESSION, &before, &after).unwrap();
    let (packs, loose) = files(&worktree);
    assert!(packs == 1 && loose > 2_000, "{packs} packs, {loose} loose objects");
    worktree.combine().unwrap();
    assert_eq!(files(&worktree), (2, 0));
    assert_eq!(shown(&worktree.compare(&before, &after).unwrap()), ["M many/7 +1 -1"]);
}

#[test]
fn no_worktree_begins_while_all_are_locked() {
    let place = Place::new();
    take(&place.worktree());
    let linked = place.folder.path().join("linked");
    place.git(&["worktree", "add", "-q", linked.to_str().unwrap(), "-b", "other"]);
    let other = Worktree::open(&linked, &place.program()).unwrap().unwrap();
    let worktrees = fs::File::open(other.folder().join("worktrees")).unwrap();
    worktrees.lock().unwrap();
    let limits = Limits::default();
    assert_eq!(other.take(SESSION, &limits, &|| false).unwrap(), Taken::TooSlow { now_off: false });
    assert!(!other.folder().join("worktrees/linked-linked").exists());
    assert!(matches!(place.worktree().repair_snapshots(), Err(Error::Busy)));
    // A worktree that has its folder does not wait.
    take(&place.worktree());
    worktrees.unlock().unwrap();
    take(&other);
}

#[test]
fn a_turn_can_take_snapshots_while_old_ones_are_removed() {
    let place = Place::new();
    let worktree = place.worktree();
    for turn in 0..40 {
        place.write("src/a.rs", noise(turn, 40_000));
        take_for(&worktree, if turn % 2 == 0 { "old" } else { "kept" });
    }
    worktree.remove_session("old").unwrap();
    let (stop, mut pairs) = (std::sync::atomic::AtomicBool::new(false), Vec::new());
    std::thread::scope(|threads| {
        let pruning = threads.spawn(|| {
            let pruner = place.worktree();
            for _ in 0..5 {
                pruner.remove_session("old").unwrap();
                assert!(!matches!(pruner.prune(u64::MAX), Err(error) if !matches!(error, Error::Busy)));
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut turn = 100;
        let mut before = take_for(&worktree, "kept");
        while !stop.load(std::sync::atomic::Ordering::Relaxed) || turn < 105 {
            place.write("src/a.rs", noise(turn, 40_000));
            let after = take_for(&worktree, "kept");
            worktree.make_durable("kept", &before, &after).unwrap();
            pairs.push((before, after.clone()));
            (before, turn) = (after, turn + 1);
        }
        pruning.join().unwrap();
    });
    for (before, after) in &pairs {
        worktree.check_whole(before, after).unwrap();
        assert_eq!(worktree.compare(before, after).unwrap().len(), 1);
    }
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
    worktree.combine().unwrap();
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
