//! A snapshot of a session says what the functions say that read the same one by one.

use azureal_core::event::{Complete, Init, MessageEvent, SystemMessage};
use azureal_core::{
    Beginning, Message, PAGE_EVENTS, SessionSnapshot, Threshold, read_beginning, read_context,
    read_record_chars, system_message,
};

use super::*;

/// Checks a snapshot against everything else that reads the session.
async fn check(store: &Store, id: SessionId, what: &str) -> SessionSnapshot {
    let record = store.get(id).await.unwrap();
    let mut snapshot = SessionSnapshot::read(&**store, id).await.unwrap();
    assert_eq!(snapshot.record, record, "{what}");
    assert_eq!(snapshot.beginning, read_beginning(&**store, id).await.unwrap(), "{what}");
    assert_eq!(snapshot.record_chars(), read_record_chars(&**store, &record).await.unwrap(), "{what}");
    if let Some(events) = snapshot.events() {
        assert!(events == read_all(store, id).await, "{what}: they are all events, or none");
    }
    let context = read_context(&**store, id).await.unwrap();
    for time in ["once", "again"] {
        assert_eq!(
            snapshot.context(&**store, Threshold::default()).await.unwrap(),
            context,
            "{what}, {time}"
        );
    }
    SessionSnapshot::of(&**store, record).await.unwrap()
}

fn system(content: &str) -> Event {
    Event::SystemMessage(SystemMessage { content: content.to_owned(), ..SystemMessage::default() })
}

async fn session_of(store: &Store, events: impl IntoIterator<Item = Event>) -> SessionId {
    store.create_with(unnamed(), NewTurn::verbatim(events), Vec::new()).await.unwrap()
}

fn turn(number: usize) -> [Event; 4] {
    [
        Event::user(format!("prompt {number}")),
        Event::Init(Init { model: "m".to_owned(), ..Init::default() }),
        Event::assistant(format!("answer {number}")),
        Event::Complete(Complete { success: true, ..Complete::default() }),
    ]
}

pub(super) async fn a_snapshot_of_an_empty_session_is_empty(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let snapshot = check(&store, id, "empty").await;
    assert_eq!((snapshot.beginning, snapshot.record_chars()), (Beginning::Nothing, 0));
    assert_eq!(snapshot.events(), Some(&[][..]));
    store.append(id, NewTurn::verbatim([Event::user("hello")])).await.unwrap();
    store.clear(id).await.unwrap();
    assert_eq!(check(&store, id, "cleared").await.events(), Some(&[][..]));
    store.delete(id).await.unwrap();
    assert_no_such_session(&SessionSnapshot::read(&*store, id).await, id);
}

pub(super) async fn a_snapshot_tells_the_beginning_of_a_session(store: Store) {
    let block = system_message(None, ["--- Context: time ---\nnow\n--- End Context ---".to_owned()]).unwrap();
    let init = || Event::Init(Init::default());
    let Message { role, content, .. } = Message::system("Be kind.");
    let of_message = Event::Message(MessageEvent { role, content });
    let has = |has_context| Beginning::SystemMessage { has_context };
    for (what, events, beginning) in [
        ("a system message", vec![system("Be kind.")], has(false)),
        ("with context", vec![system(&block), Event::user("a")], has(true)),
        ("after a start", vec![init(), system("Be kind."), Event::user("a")], has(false)),
        ("as a message", vec![of_message, Event::assistant("b")], has(false)),
        ("none", turn(1).to_vec(), Beginning::NoSystemMessage),
        ("a late one", vec![Event::user("a"), system("Be kind.")], Beginning::NoSystemMessage),
        ("nothing to tell", vec![init(), Event::Complete(Complete::default())], Beginning::NoSystemMessage),
    ] {
        let id = session_of(&store, events.clone()).await;
        let snapshot = check(&store, id, what).await;
        assert_eq!(snapshot.beginning, beginning, "{what}");
        assert_eq!(snapshot.events().map(<[_]>::len), Some(events.len()), "{what}");
    }
}

pub(super) async fn a_snapshot_of_a_long_session_reads_it_whole(store: Store) {
    for count in [PAGE_EVENTS - 1, PAGE_EVENTS, PAGE_EVENTS + 1, 2 * PAGE_EVENTS + 1] {
        let events = (0..count).flat_map(turn).take(count);
        let id = session_of(&store, [system("Be kind.")].into_iter().chain(events).take(count)).await;
        let snapshot = check(&store, id, &format!("{count} events")).await;
        assert_eq!(snapshot.events().is_some(), count <= PAGE_EVENTS, "{count}");
    }
    // A page of large events has fewer of them.
    let large = (0..8).map(|number| Event::assistant(number.to_string().repeat(1 << 20)));
    check(&store, session_of(&store, large).await, "large events").await;
}

pub(super) async fn a_snapshot_of_a_compacted_session_begins_with_its_summary(store: Store) {
    let events = || [system("Be kind.")].into_iter().chain((1..=150).flat_map(turn));
    let with_system = session_of(&store, events()).await;
    let without = session_of(&store, (1..=10).flat_map(turn)).await;
    for id in [with_system, without] {
        // Between two turns, in the middle of one, and at the end.
        for after_seq in [9, 11, 40] {
            store.add_compaction(id, &Compaction::new(Seq(after_seq), "They met.")).await.unwrap();
            let snapshot = check(&store, id, &format!("{id} to {after_seq}")).await;
            assert_eq!(snapshot.events(), None);
        }
        let measured = Compaction { opening_chars: Some(70), ..Compaction::new(Seq(40), "They met again.") };
        store.add_compaction(id, &measured).await.unwrap();
        check(&store, id, "measured").await;
        store.append(id, NewTurn::verbatim(turn(200))).await.unwrap();
        check(&store, id, "and a turn after it").await;
        for after_seq in [40, 11, 9] {
            assert!(store.remove_compaction(id, Seq(after_seq)).await.unwrap());
            check(&store, id, &format!("{id}, taken off again: {after_seq}")).await;
        }
    }
    // A summary that says nothing, and one that covers nothing that is told.
    for (events, summary) in [
        (vec![Event::user("a"), Event::user("b")], ""),
        (vec![Event::Init(Init::default()), Event::user("b")], "Nothing."),
    ] {
        let id = session_of(&store, events).await;
        store.add_compaction(id, &Compaction::new(Seq(1), summary)).await.unwrap();
        check(&store, id, "an odd summary").await;
    }
}

pub(super) async fn a_snapshot_takes_the_first_event_that_is_appended(store: Store) {
    for first in [system("Be kind."), Event::user("hello")] {
        let id = store.create(unnamed()).await.unwrap();
        let mut snapshot = SessionSnapshot::read(&*store, id).await.unwrap();
        store.append(id, NewTurn::verbatim([first.clone()])).await.unwrap();
        let context = snapshot.begin_with(&first);
        assert_eq!(context, read_context(&*store, id).await.unwrap());
        let expected = check(&store, id, "the first event").await;
        assert_eq!(snapshot.record.counts, expected.record.counts);
        assert_eq!(snapshot.beginning, expected.beginning);
        assert_eq!(snapshot.record_chars(), expected.record_chars());
        assert_eq!(snapshot.context(&*store, Threshold::default()).await.unwrap(), context);
    }
}
