//! Turns of several sessions in one worktree.

use std::process::Command;
use std::thread;
use std::time::Duration;

use azureal_snapshots::{Limits, Taken};

use crate::place::{Place, SESSION};

#[test]
fn a_turn_names_the_sessions_that_ran_meanwhile() {
    let place = Place::new();
    let worktree = place.worktree();
    assert_eq!(worktree.running(), []);
    let before = worktree.begin_turn("before", "1").unwrap();
    assert_eq!(worktree.end_turn(before).unwrap(), [""; 0]);
    let long = worktree.begin_turn("long", "2").unwrap();
    let a = worktree.begin_turn("a", "3").unwrap();
    let running: Vec<_> = worktree.running().into_iter().map(|turn| (turn.session, turn.run)).collect();
    assert_eq!(running, [("a".to_owned(), "3".to_owned()), ("long".to_owned(), "2".to_owned())]);
    assert_eq!(worktree.end_turn(a).unwrap(), ["long"]);
    let b = worktree.begin_turn("b", "4").unwrap();
    assert_eq!(worktree.end_turn(b).unwrap(), ["long"], "a ended before b began");
    // Another turn of the same session is not another session.
    let again = worktree.begin_turn("long", "5").unwrap();
    assert_eq!(worktree.end_turn(long).unwrap(), ["a", "b"]);
    assert_eq!(worktree.end_turn(again).unwrap(), [""; 0]);
    let later = worktree.begin_turn("later", "6").unwrap();
    assert_eq!(worktree.end_turn(later).unwrap(), [""; 0]);
    let files = worktree.folder().join("worktrees/main/turns").read_dir().unwrap().count();
    assert_eq!(files, 1, "ended turns are forgotten");
}

#[test]
fn a_turn_whose_process_died_does_not_run() {
    let place = Place::new();
    let worktree = place.worktree();
    let mine = worktree.begin_turn("mine", "1").unwrap();
    drop(worktree.begin_turn("dead", "2").unwrap());
    assert_eq!(worktree.running().len(), 1);
    assert_eq!(worktree.end_turn(mine).unwrap(), ["dead"], "it may have run until now");
    let next = worktree.begin_turn("next", "3").unwrap();
    assert_eq!(worktree.end_turn(next).unwrap(), [""; 0]);
}

#[test]
fn two_sessions_take_snapshots_at_the_same_time() {
    let place = Place::new();
    let worktree = place.worktree();
    let limits = Limits { time: Duration::from_secs(60), ..Limits::default() };
    thread::scope(|scope| {
        for session in ["one", "two", "three"] {
            let (worktree, limits, place) = (&worktree, &limits, &place);
            scope.spawn(move || {
                for round in 0..4 {
                    place.write(&format!("{session}-{round}"), "x");
                    let taken = worktree.take(session, limits, &|| false).unwrap();
                    assert!(matches!(taken, Taken::Whole(_)), "{taken:?}");
                }
            });
        }
    });
    let last = place.take();
    let empty = place.git(&["rev-parse", "HEAD^{tree}"]);
    assert_eq!(worktree.compare(empty.trim(), &last.tree).unwrap().len(), 12);
}

#[test]
fn a_slow_snapshot_is_given_up_and_continues_in_the_background() {
    let place = Place::new();
    for file in 0..1500 {
        place.write(&format!("many/{}/{file}", file % 10), format!("{file}\n").repeat(50));
    }
    let worktree = place.worktree();
    // Enough to list the files, not to hash them.
    let limits = Limits { time: Duration::from_millis(60), ..Limits::default() };
    let mut hashed = false;
    for _ in 0..2 {
        match worktree.take(SESSION, &limits, &|| false).unwrap() {
            Taken::TooSlow { now_off } => assert!(!now_off),
            Taken::Whole(_) => hashed = true,
            other => panic!("{other:?}"),
        }
    }
    // Whatever was reached in time, a patient snapshot has all of it.
    let wait = Limits { time: Duration::from_secs(60), ..Limits::default() };
    let snapshot = loop {
        match worktree.take(SESSION, &wait, &|| false).unwrap() {
            Taken::Whole(snapshot) => break snapshot,
            Taken::TooSlow { .. } if !hashed => thread::sleep(Duration::from_millis(20)),
            other => panic!("{other:?}"),
        }
    };
    let first = place.git(&["rev-parse", "HEAD^{tree}"]);
    assert_eq!(worktree.compare(first.trim(), &snapshot.tree).unwrap().len(), 1500);
}

#[test]
fn three_slow_snapshots_in_a_row_turn_them_off() {
    let place = Place::new();
    let worktree = place.worktree();
    let patient = Limits { time: Duration::from_secs(60), ..Limits::default() };
    // More than can be stored is not tried, and counts like one that takes too long.
    let little = Limits { total: 10, ..patient.clone() };
    let take = |limits: &Limits| worktree.take(SESSION, limits, &|| false).unwrap();
    take(&patient);
    place.write("x", "more than ten bytes");
    assert_eq!(take(&little), Taken::TooSlow { now_off: false });
    assert_eq!(take(&little), Taken::TooSlow { now_off: false });
    assert!(matches!(take(&patient), Taken::Whole(_)), "the row is interrupted");
    place.write("x", "other than the last bytes");
    assert_eq!(take(&little), Taken::TooSlow { now_off: false });
    assert_eq!(take(&little), Taken::TooSlow { now_off: false });
    assert_eq!(take(&little), Taken::TooSlow { now_off: true });
    assert_eq!(take(&patient), Taken::Off);
    worktree.turn_on().unwrap();
    assert!(matches!(take(&patient), Taken::Whole(_)));
    // A caller that no longer waits is no slow snapshot.
    place.write("x", "once more, another text");
    for _ in 0..4 {
        assert_eq!(worktree.take(SESSION, &little, &|| true).unwrap(), Taken::Cancelled);
    }
    assert!(matches!(take(&patient), Taken::Whole(_)));
}

#[test]
fn a_killed_git_leaves_no_lock() {
    let place = Place::new();
    let worktree = place.worktree();
    place.take();
    let lock = worktree.folder().join("worktrees/main/index.lock");
    Command::new("touch").arg(&lock).status().unwrap();
    place.write("x", "y");
    place.take();
    assert!(!lock.exists());
}
