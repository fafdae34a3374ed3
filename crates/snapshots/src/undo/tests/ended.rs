//! The end of an undo, until the caller knows of it.

use super::*;

/// A place with an undo of one file that was killed at a step.
fn killed_at(kill: usize) -> (Place, String, String) {
    let place = Place::new();
    let before = place.take();
    make(&place.root, &Change::Write(0, b"changed\n".to_vec()));
    let after = place.take();
    assert!(place.undo_killed(&before, &after, kill));
    (place, before, after)
}

#[test]
fn the_end_is_the_same_whoever_finds_the_undo() {
    type Find = fn(&Place, &str, &str);
    let ways: [Find; 4] = [
        |_, _, _| {},
        |place, _, _| drop(place.take()),
        |place, before, after| drop(place.worktree.plan_undo(before, after).unwrap()),
        |place, before, after| match place.worktree.begin_undo(SESSION, before, after, true) {
            Err(Error::Unsettled) => {}
            other => panic!("{:?}", other.map(|_| ())),
        },
    ];
    let mut ends = BTreeSet::new();
    for kill in 1..9 {
        let found = ways.map(|find| {
            let (place, before, after) = killed_at(kill);
            find(&place, &before, &after);
            let recovered = place.recover().unwrap();
            let text = fs::read_to_string(place.root.join("a")).unwrap();
            (recovered.is_undone, recovered.note, recovered.kept, text)
        });
        assert!(found.iter().all(|end| *end == found[0]), "{kill}: {found:?}");
        assert_eq!(found[0].3 == "one\n", found[0].0);
        ends.insert(found[0].0);
    }
    assert_eq!(ends.len(), 2, "some are finished, some taken back");
}

#[test]
fn an_undo_with_a_note_is_there_until_it_is_forgotten() {
    let place = Place::new();
    let before = place.take();
    make(&place.root, &Change::Write(0, b"changed\n".to_vec()));
    let after = place.take();
    let ready = place.worktree.begin_undo(SESSION, &before, &after, false).unwrap();
    assert_eq!((ready.before(), ready.after()), (&*after, &*before));
    let undone = ready.carry_out(NOTE).unwrap();
    assert!(Worktree::has_interrupted_undo(&place.root));
    assert!(matches!(place.worktree.undo(SESSION, &after, &before, true), Err(Error::Unsettled)));
    // Another undo is not meant.
    place.worktree.forget_undo("1-2").unwrap();
    let recovered = place.worktree.recover().unwrap().unwrap();
    let expected = Recovered { id: undone.id.clone(), is_undone: true, kept: Vec::new(), note: NOTE.into() };
    assert_eq!(recovered, expected);
    place.worktree.forget_undo(&undone.id).unwrap();
    place.assert_no_journal();
    place.worktree.undo(SESSION, &undone.before, &undone.after, false).unwrap();
    assert_eq!(fs::read_to_string(place.root.join("a")).unwrap(), "changed\n");
    place.assert_no_journal();
}

#[test]
fn a_journal_of_the_former_version_is_recovered() {
    let (mut finished, mut taken_back) = (0, 0);
    for kill in 1..9 {
        let (place, _, _) = killed_at(kill);
        let home = place.worktree.open_home().unwrap();
        let names = home.own.names().unwrap();
        for name in names.iter().filter(|name| name.to_string_lossy().starts_with("undo.")) {
            let bytes = fs::read(home.own.join(name)).unwrap();
            let mut fields: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
            if fields.len() < 6 {
                continue;
            }
            fields.drain(3..6);
            fields[0] = b"azureal undo 2";
            fs::write(home.own.join(name), fields.join(&0)).unwrap();
        }
        let recovered = place.recover().unwrap();
        assert_eq!(recovered.note, "");
        let is_undone = fs::read_to_string(place.root.join("a")).unwrap() == "one\n";
        assert_eq!(recovered.is_undone, is_undone, "killed at {kill}");
        *(if is_undone { &mut finished } else { &mut taken_back }) += 1;
    }
    assert!(finished > 1 && taken_back > 1, "{finished} {taken_back}");
}

#[test]
fn the_snapshot_after_an_undo_has_no_change_of_another_program() {
    let place = Place::new();
    let before = place.take();
    make(&place.root, &Change::Write(0, b"changed\n".to_vec()));
    let after = place.take();
    let ready = place.worktree.begin_undo(SESSION, &before, &after, false).unwrap();
    fs::write(place.root.join("d/b"), "by another program\n").unwrap();
    let undone = ready.carry_out("").unwrap();
    let changes = place.worktree.compare(&undone.before, &undone.after).unwrap();
    assert_eq!(changes.iter().map(|change| change.path.to_str().unwrap()).collect::<Vec<_>>(), ["a"]);
    place.worktree.undo(SESSION, &undone.before, &undone.after, false).unwrap();
    assert_eq!(fs::read_to_string(place.root.join("d/b")).unwrap(), "by another program\n");
}

#[test]
fn a_prune_keeps_the_snapshot_after_an_undo_that_was_interrupted() {
    let place = Place::new();
    let before = place.take();
    make(&place.root, &Change::Write(0, b"changed\n".to_vec()));
    let after = place.take();
    let ready = place.worktree.begin_undo(SESSION, &before, &after, false).unwrap();
    let expected = ready.after().to_owned();
    ready.carry_out(NOTE).unwrap();
    place.worktree.remove_session(SESSION).unwrap();
    place.worktree.prune(u64::MAX).unwrap();
    place.worktree.check(&[&expected]).unwrap();
}
