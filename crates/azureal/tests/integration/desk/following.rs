//! What other processes do.

use std::fs;

use azureal::desk::{Kept, News, Request, TurnNews};
use azureal::{Event, block_on};
use azureal_core::NewTurn;
use azureal_testkit::until;

use super::{PANE, WAITING_CLAUDE, World, said, session};

#[test]
fn events_of_another_process_are_appended_to_an_open_session_and_the_list_is_sent_again() {
    let world = World::new("");
    let other = world.workspace();
    let id = block_on(other.create_session("first")).unwrap();
    let append = |text: &str| {
        block_on(other.store.append(id, NewTurn::verbatim([Event::user(text)]))).unwrap();
    };
    append("one");
    let desk = world.desk();
    desk.desk.perform(Request::List { all_worktrees: false, limit: 50 });
    desk.open(id);
    let opened = desk.until("opened session", |news| match news {
        News::Opened(opened) => Some(opened),
        _ => None,
    });
    assert_eq!((opened.record.name.as_str(), opened.events.len()), ("first", 1));
    append("two");
    let (mut events, mut listed) = (Vec::new(), 0);
    desk.until("both", |news| {
        match news {
            News::Appended { events: more, .. } => events.extend(more),
            News::Sessions(lines) => listed = lines[0].record.counts.events,
            _ => {}
        }
        (events.len() == 1 && listed == 2).then_some(())
    });
    assert_eq!(events[0].seq.0, 2);
    block_on(other.store.clear(id)).unwrap();
    desk.until("change", |news| matches!(news, News::Changed { pane: PANE }).then_some(()));
    append("three");
    desk.until("event", |news| match news {
        News::Appended { events, .. } => (events[0].seq.0 == 1).then_some(()),
        _ => None,
    });
    block_on(other.store.delete(id)).unwrap();
    desk.until("deletion", |news| matches!(news, News::Deleted { pane: PANE }).then_some(()));
    desk.until("empty list", |news| matches!(news, News::Sessions(lines) if lines.is_empty()).then_some(()));
}

#[test]
fn a_turn_of_another_desk_is_shown_live_and_stored_once() {
    let world = World::new(WAITING_CLAUDE);
    let (ours, other) = (world.desk(), world.desk());
    ours.send("Why?");
    until("the agent runs", || world.path("running").exists().then_some(()));
    other.open(session(1));
    other.until_turn("live output", |news| match news {
        TurnNews::Output(outputs) => (said(&outputs) == ["Half."]).then_some(()),
        _ => None,
    });
    other.desk.perform(Request::Send { pane: PANE, prompt: "Too early".into(), agent: None, model: None });
    other.until("refusal", |news| match news {
        News::Failed { unsent, .. } => {
            assert_eq!(unsent.as_deref(), Some("Too early"));
            Some(())
        }
        _ => None,
    });
    world.release();
    let mut texts = Vec::new();
    let mut words = Vec::new();
    other.until_turn("end", |news| {
        words.push(super::word(&news));
        if let TurnNews::Output(outputs) = &news {
            texts.extend(said(outputs));
        }
        matches!(news, TurnNews::Over { error: None, .. }).then_some(())
    });
    assert_eq!(texts, ["Whole."]);
    assert!(words.contains(&"stored S1 1-5 done".to_owned()), "{words:?}");
    ours.turn();
    assert_eq!(other.rest(), [""; 0], "nothing is shown twice");
    assert_eq!(ours.texts(session(1)), ["Why?", "Half.", "Whole.", "(done)"]);
}

#[test]
fn a_turn_of_another_process_can_be_cancelled() {
    let world = World::new(WAITING_CLAUDE);
    let (ours, other) = (world.desk(), world.desk());
    ours.send("Why?");
    until("the agent runs", || world.path("running").exists().then_some(()));
    other.open(session(1));
    other.until_turn("begin", |news| matches!(news, TurnNews::Began { is_ours: false, .. }).then_some(()));
    other.desk.perform(Request::Cancel { pane: PANE });
    let told = other.turn();
    assert!(told.contains(&"stored S1 1-4 cancelled".to_owned()), "{told:?}");
    let told = ours.turn();
    assert!(told.contains(&"stored S1 1-4 cancelled".to_owned()), "{told:?}");
    other.desk.perform(Request::Cancel { pane: PANE });
    other.until("refusal", |news| match news {
        News::Failed { error, .. } => (error.kind() == "not_running").then_some(()),
        _ => None,
    });
}

#[test]
fn the_lease_of_a_session_is_reported_free_when_its_turn_has_ended() {
    let world = World::new(WAITING_CLAUDE);
    let (ours, other) = (world.desk(), world.desk());
    ours.send("Why?");
    until("the agent runs", || world.path("running").exists().then_some(()));
    other.open(session(1));
    other.until_turn("begin", |news| matches!(news, TurnNews::Began { is_ours: false, .. }).then_some(()));
    other.desk.perform(Request::AwaitLease { pane: PANE });
    other.desk.perform(Request::AwaitLease { pane: PANE });
    assert!(!other.rest().iter().any(|news| news.starts_with("LeaseFree")));
    world.release();
    let is_free = |news: News| matches!(news, News::LeaseFree { pane: PANE }).then_some(());
    other.until("free lease", is_free);
    // Asked twice, it is reported once.
    assert!(!other.rest().iter().any(|news| news.starts_with("LeaseFree")));
    other.send("And now?");
    let told = other.turn();
    assert!(told.contains(&"over".to_owned()), "{told:?}");
    other.desk.perform(Request::AwaitLease { pane: PANE });
    other.until("free lease", is_free);
}

#[test]
fn a_queue_belongs_to_its_desk_and_then_to_the_one_that_opens_the_session_next() {
    let world = World::new(WAITING_CLAUDE);
    world.release();
    let one = world.desk();
    one.send("Why?");
    one.turn();
    let opened = |desk: &super::Listener| {
        desk.open(session(1));
        desk.until("session", |news| match news {
            News::Opened(opened) => Some(*opened),
            _ => None,
        })
    };
    let record = opened(&one).record;
    let queue = |prompts: &[&str], offers: &[u64]| {
        let mut kept = Kept { offers: offers.to_vec(), ..Kept::default() };
        let draft = kept.drafts.entry(Kept::key(&record)).or_default();
        draft.queued = prompts.iter().map(ToString::to_string).collect();
        Request::Keep(Box::new(kept))
    };
    one.desk.perform(queue(&["First.", "Second."], &[]));
    let kept =
        || fs::read_to_string(desk_files(&world).into_iter().find(|file| file.ends_with(".json"))?).ok();
    until("the queue is written", || kept()?.contains("Second.").then_some(()));
    let two = world.desk();
    let offer = |desk: &super::Listener| opened(desk).offer;
    assert_eq!(offer(&two), None, "its desk is there");
    one.desk.leave();
    let taken = offer(&two).unwrap();
    assert_eq!(taken.prompts, ["First.", "Second."]);
    let three = world.desk();
    assert_eq!(offer(&three), None, "one taker");
    // An interface that does not know of the offer yet does not delete it.
    two.desk.perform(queue(&[], &[]));
    two.desk.leave();
    let taken = offer(&three).unwrap();
    assert_eq!(taken.prompts, ["First.", "Second."]);
    // What it has sent is not offered again.
    three.desk.perform(queue(&[], &[taken.number]));
    three.desk.leave();
    let four = world.desk();
    assert_eq!(offer(&four), None);
    assert_eq!(desk_files(&world).len(), 1, "no lock is left behind");
}

/// Returns the files that desks keep.
fn desk_files(world: &World) -> Vec<String> {
    let files = fs::read_dir(world.path("home/.local/state/azureal/desk")).into_iter().flatten().flatten();
    files.map(|file| file.path().display().to_string()).collect()
}

#[test]
fn drafts_are_restored_by_the_next_desk_and_those_of_two_are_merged() {
    let world = World::new("");
    let restored = |desk: &super::Listener| {
        desk.until("what was kept", |news| match news {
            News::Restored(kept) => Some(*kept),
            _ => None,
        })
    };
    let (one, two) = (world.desk(), world.desk());
    let (mut first, mut second) = (restored(&one), restored(&two));
    assert_eq!(first, second);
    first.drafts.entry("a".into()).or_default().text = "of one".into();
    second.drafts.entry("b".into()).or_default().text = "of two".into();
    (first.shown, second.shown) = (Some("a".into()), Some("b".into()));
    // A process that is killed now has lost nothing.
    let folder = world.path("home/.local/state/azureal/desk");
    let written = |text: &str| {
        let files = fs::read_dir(&folder).ok()?.flatten();
        files
            .filter_map(|file| fs::read_to_string(file.path()).ok())
            .any(|kept| kept.contains(text))
            .then_some(())
    };
    one.desk.perform(Request::Keep(Box::new(first)));
    until("the draft of one is written", || written("of one"));
    two.desk.perform(Request::Keep(Box::new(second)));
    until("the drafts are written", || written("of one").and(written("of two")));
    two.desk.leave();
    one.desk.leave();
    let three = world.desk();
    let kept = restored(&three);
    assert_eq!(kept.shown.as_deref(), Some("a"), "the session that was left last");
    let drafts: Vec<(&str, &str)> =
        kept.drafts.iter().map(|(key, draft)| (key.as_str(), draft.text.as_str())).collect();
    assert_eq!(drafts, [("a", "of one"), ("b", "of two")]);

    // A damaged file is set aside, and said.
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    fs::write(&file, "{").unwrap();
    let four = world.desk();
    assert_eq!(restored(&four).drafts.len(), 0);
    four.until("notice", |news| match news {
        News::Notice(text) => text.contains("damaged-1").then_some(()),
        _ => None,
    });
    assert!(!file.exists());
}
