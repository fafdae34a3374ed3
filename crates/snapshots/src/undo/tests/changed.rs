//! Files that the user changes while an undo runs, or between a crash and the recovery.

use std::io::Write as _;

use super::*;

const USER: &[u8] = b"by the user, with another length\n";
/// The files of the turn: edited, deleted and created.
const CHANGED: [&str; 3] = ["a", "d/b", "new"];

/// The way in which the user writes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edit {
    InPlace,
    /// As most editors do.
    ByRename,
    /// A program has the file open since before the undo.
    OpenSince,
}

fn edit(place: &Place, name: &str, how: Edit, open: &mut Option<fs::File>) {
    let path = place.root.join(name);
    match (how, open) {
        (Edit::OpenSince, Some(file)) => file.write_all(USER).unwrap(),
        (Edit::ByRename, _) => {
            fs::write(place.root.join("ignored/temporary"), USER).unwrap();
            fs::rename(place.root.join("ignored/temporary"), path).unwrap();
        }
        _ => fs::write(path, USER).unwrap(),
    }
}

/// Sets the files to those after the turn.
fn reset(place: &Place) -> Files {
    for name in CHANGED {
        fs::remove_file(place.root.join(name)).ok();
        fs::remove_file(place.root.join(format!("{name}.before-undo"))).ok();
    }
    fs::write(place.root.join("a"), "changed\n").unwrap();
    fs::write(place.root.join("new"), "new\n").unwrap();
    place.files()
}

/// Checks that the version of the user is there, and that all other files are of one whole result.
fn check(place: &Place, name: &str, changed: &Files, original: &Files, is_undone: bool, when: &str) {
    let mut files = place.files();
    let path = place.root.join(name);
    let beside = place.root.join(format!("{name}.before-undo"));
    let has_users = |file: Option<&(Vec<u8>, u32)>| file.is_some_and(|file| file.0.ends_with(USER));
    assert!(has_users(files.get(&path)) || has_users(files.get(&beside)), "{when}: {files:?}");
    let expected = if is_undone { original } else { changed };
    let mut expected = expected.clone();
    for path in [&path, &beside] {
        files.remove(path);
        expected.remove(path);
    }
    assert_eq!(files, expected, "{when}");
}

#[test]
fn an_edit_at_any_moment_of_an_undo_is_kept() {
    let place = Place::new();
    let original = place.files();
    let before = place.take();
    fs::remove_file(place.root.join("d/b")).unwrap();
    let changed = reset(&place);
    let after = place.take();
    let home = place.worktree.open_home().unwrap();
    let (mut taken_back, mut finished) = (0, 0);
    let cases = CHANGED.into_iter().flat_map(|name| [(name, Edit::InPlace), (name, Edit::ByRename)]);
    for (name, how) in cases.chain([("a", Edit::OpenSince)]) {
        for moment in 1.. {
            assert_eq!(reset(&place), changed);
            let prepared = place.worktree.prepare(&home, &before, &after, None).unwrap();
            assert_eq!(prepared.plan.conflicts, []);
            let mut open = fs::OpenOptions::new().append(true).open(place.root.join("a")).ok();
            let (mut count, mut removals, mut is_edited) = (0, 0, false);
            let mut hook = |what: &str| {
                count += 1;
                removals += usize::from(what == "remove");
                // A file without a name is gone, also for a program that has it open.
                if count == moment && !(how == Edit::OpenSince && removals > 1) {
                    edit(&place, name, how, &mut open);
                    is_edited = true;
                }
                Ok(())
            };
            let done = Journal::new(prepared.steps, prepared.began).carry_out(
                &place.worktree,
                &home,
                &prepared.blobs,
                &mut hook,
            );
            if !is_edited {
                break;
            }
            let when = format!("{name} {how:?} at {moment}: {done:?}");
            check(&place, name, &changed, &original, done.is_ok(), &when);
            match done {
                Ok(_) => finished += 1,
                Err(Error::ChangedMeanwhile { path, .. }) => {
                    assert_eq!(path, Path::new(name), "{when}");
                    taken_back += 1;
                }
                Err(error) => panic!("{when}: {error}"),
            }
        }
    }
    assert!(taken_back > 30 && finished > 20, "{taken_back} {finished}");
}

#[test]
fn an_edit_between_a_crash_and_the_recovery_is_kept() {
    let place = Place::new();
    let original = place.files();
    let before = place.take();
    fs::remove_file(place.root.join("d/b")).unwrap();
    let changed = reset(&place);
    let after = place.take();
    let (mut taken_back, mut finished, mut beside) = (0, 0, 0);
    // An obstacle makes the undo go back, and it is killed on that way too.
    for (has_obstacle, name) in [false, true].into_iter().flat_map(|it| CHANGED.map(|name| (it, name))) {
        for (kill, how) in (0..60).flat_map(|kill| [(kill, Edit::InPlace), (kill, Edit::ByRename)]) {
            assert_eq!(reset(&place), changed);
            let home = place.worktree.open_home().unwrap();
            let prepared = place.worktree.prepare(&home, &before, &after, None).unwrap();
            let mut count = 0;
            let obstacle = place.root.join("d/b");
            let mut hook = |what: &str| {
                count += 1;
                if has_obstacle && what == "move to its path" && !obstacle.exists() {
                    fs::write(&obstacle, USER).unwrap();
                }
                if count > kill { Err(moves::Killed) } else { Ok(()) }
            };
            let done = Journal::new(prepared.steps, prepared.began).carry_out(
                &place.worktree,
                &home,
                &prepared.blobs,
                &mut hook,
            );
            if count <= kill {
                break;
            }
            assert!(done.is_err());
            edit(&place, name, how, &mut None);
            let recovered = place.recover().unwrap_or_default();
            let when = format!("{name} {how:?} killed at {kill}: {recovered:?}");
            if has_obstacle && obstacle.exists() && name != "d/b" && fs::read(&obstacle).unwrap() == USER {
                fs::remove_file(&obstacle).unwrap();
            }
            check(&place, name, &changed, &original, recovered.is_undone, &when);
            for kept in &recovered.kept {
                beside += 1;
                assert_eq!(kept, Path::new(&format!("{name}.before-undo")), "{when}");
                assert!(place.root.join(kept).exists(), "{when}");
            }
            if recovered.is_undone {
                finished += 1;
            } else {
                taken_back += 1;
            }
            assert_eq!(place.recover(), None, "{when}");
        }
    }
    assert!(taken_back > 30 && finished > 30 && beside > 5, "{taken_back} {finished} {beside}");
}

#[test]
fn a_version_that_was_put_beside_its_file_is_told_also_after_a_kill_in_the_recovery() {
    let place = Place::new();
    let before = place.take();
    let changed = reset(&place);
    let after = place.take();
    let beside = place.root.join("a.before-undo");
    // The user edits the file at every moment, and the recovery is killed at every step.
    let mut told = 0;
    for kill in 0..40 {
        for second in 0..40 {
            assert_eq!(reset(&place), changed);
            if !place.undo_killed(&before, &after, kill) {
                assert!(place.recover().is_some());
                break;
            }
            edit(&place, "a", Edit::InPlace, &mut None);
            let was_killed = place.recover_killed(second);
            let recovered = place.recover().unwrap_or_default();
            let expected: &[PathBuf] = if beside.exists() { &["a.before-undo".into()] } else { &[] };
            assert_eq!(recovered.kept, expected, "killed at {kill} and at {second}");
            told += usize::from(beside.exists());
            if !was_killed {
                break;
            }
        }
    }
    assert!(told > 20, "{told}");
}
