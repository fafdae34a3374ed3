//! Random turns that are killed in their undo, and random turns of two sessions at the same time.

use super::*;

/// Returns the files after an undo: those of the turn as they were before it, the others as they are.
fn expected(now: &Files, before: &Files, after: &Files) -> Files {
    let mut expected = now.clone();
    for path in before.keys().chain(after.keys()).filter(|path| before.get(*path) != after.get(*path)) {
        match before.get(path) {
            Some(file) => expected.insert(path.clone(), file.clone()),
            None => expected.remove(path),
        };
    }
    expected
}

/// A snapshot, and the files then.
fn taken(place: &Place, session: &str) -> (String, Files) {
    let limits = Limits { time: WAIT, ..Limits::default() };
    match place.worktree.take(session, &limits, &|| false).unwrap() {
        Taken::Whole(snapshot) => (snapshot.tree, place.files()),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(Config { cases: 32, failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_undo_of_any_turn_that_is_killed_at_any_step_is_whole_or_never_was(
        turn in prop::collection::vec(change(), 1..12),
        kill in 0_usize..60,
        second in 0_usize..40,
    ) {
        let place = Place::new();
        let original = place.files();
        let before = place.take();
        turn.iter().for_each(|change| make(&place.root, change));
        let after = place.take();
        let changed = place.files();
        if !place.worktree.plan_undo(&before, &after).unwrap().conflicts.is_empty() {
            return Ok(());
        }
        let was_killed = place.undo_killed(&before, &after, kill);
        if was_killed {
            place.recover_killed(second);
        }
        let recovered = place.recover();
        let files = place.files();
        let is_undone = files == original;
        prop_assert!(is_undone || files == changed, "{files:?}");
        if original != changed {
            prop_assert!(was_killed || is_undone);
            prop_assert_eq!(recovered.is_some_and(|it| it.is_undone), is_undone);
        }
    }

    #[test]
    fn turns_of_two_sessions_in_one_worktree_are_undone_to_the_byte_or_not_at_all(
        first in prop::collection::vec(change(), 0..5),
        both in prop::collection::vec(change(), 1..6),
        last in prop::collection::vec(change(), 0..5),
        begins_with_second in any::<bool>(),
    ) {
        let place = Place::new();
        let one_mark = place.worktree.begin_turn("one", "run-1").unwrap();
        let one_before = taken(&place, "one");
        first.iter().for_each(|change| make(&place.root, change));
        let two_mark = place.worktree.begin_turn("two", "run-2").unwrap();
        let two_before = taken(&place, "two");
        both.iter().for_each(|change| make(&place.root, change));
        let one_after = taken(&place, "one");
        prop_assert_eq!(place.worktree.end_turn(one_mark).unwrap(), ["two"]);
        last.iter().for_each(|change| make(&place.root, change));
        let two_after = taken(&place, "two");
        prop_assert_eq!(place.worktree.end_turn(two_mark).unwrap(), ["one"]);

        let mut turns = [("one", one_before, one_after), ("two", two_before, two_after)];
        if begins_with_second {
            turns.reverse();
        }
        for (session, (before, files_before), (after, files_after)) in &turns {
            let now = place.files();
            match place.worktree.undo(session, before, after, false) {
                Ok(undone) => {
                    let expected = expected(&now, files_before, files_after);
                    prop_assert_eq!(place.files(), expected.clone());
                    // It can be taken back, and done again.
                    place.worktree.undo(session, &undone.before, &undone.after, false).unwrap();
                    prop_assert_eq!(place.files(), now);
                    place.worktree.undo(session, before, after, false).unwrap();
                    prop_assert_eq!(place.files(), expected);
                }
                Err(Error::Conflicts(_)) => prop_assert_eq!(place.files(), now),
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }
    }
}
