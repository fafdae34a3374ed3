//! A snapshot of a session says what the functions say that read the same one by one.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use azureal_core::event::{Complete, Init, MessageEvent, SystemMessage};
use azureal_core::{
    Beginning, LedgerCache, LedgerKey, Message, PAGE_EVENTS, SessionSnapshot, Threshold, Tokens,
    read_beginning, read_context, read_context_for, read_record_chars, system_message, wrap_context,
};
use serde_json::json;

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
            snapshot.context(&**store, Threshold::default(), None).await.unwrap(),
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

/// Keeps the last ledger, and counts how often one was found and kept.
#[derive(Default)]
struct LastLedger {
    last: Mutex<Option<(LedgerKey, String)>>,
    found: AtomicUsize,
    kept: AtomicUsize,
}

impl LastLedger {
    fn counts(&self) -> (usize, usize) {
        (self.found.load(Relaxed), self.kept.load(Relaxed))
    }
}

impl LedgerCache for LastLedger {
    fn get(&self, key: &LedgerKey) -> Option<String> {
        let (known, ledger) = self.last.lock().unwrap().clone()?;
        let found = (known == *key).then_some(ledger);
        self.found.fetch_add(usize::from(found.is_some()), Relaxed);
        found
    }

    fn put(&self, key: &LedgerKey, ledger: &str) {
        *self.last.lock().unwrap() = Some((key.clone(), ledger.to_owned()));
        self.kept.fetch_add(1, Relaxed);
    }
}

/// A turn that runs a command.
fn commanding(command: &str) -> Vec<Event> {
    let call = json!({"ToolCall": {"tool_use_id": "1", "tool_name": "Bash", "input": {"command": command}}});
    let result = json!({"ToolResult": {"tool_use_id": "1", "tool_name": "Bash", "content": "ok"}});
    let decoded = [call, result].map(|json| Event::from_json(&json.to_string()).unwrap());
    [Event::user("go")].into_iter().chain(decoded).chain([Event::Complete(Complete::default())]).collect()
}

pub(super) async fn a_cached_ledger_is_that_of_the_events_and_is_found_until_the_session_is_changed(
    store: Store,
) {
    let cache = LastLedger::default();
    let told = async |id: SessionId, threshold: Threshold| {
        let mut snapshot = SessionSnapshot::read(&*store, id).await.unwrap();
        let context = snapshot.context(&*store, threshold, Some(&cache)).await.unwrap();
        assert_eq!(context, read_context_for(&*store, id, threshold).await.unwrap());
        context.into_string()
    };
    let (usual, small) = (Threshold::default(), Threshold::Chars(9_000));
    let id = session_of(&store, commanding("make one")).await;
    store.add_compaction(id, &Compaction::new(Seq(4), "They met.")).await.unwrap();
    assert!(told(id, usual).await.contains("`make one`: ok"));
    assert_eq!(cache.counts(), (0, 1));
    for number in 1..=3 {
        let tokens = Tokens::new(10, 2);
        let turn = NewTurn { tokens, ..NewTurn::verbatim(commanding("make more")) };
        store.append(id, turn).await.unwrap();
        told(id, usual).await;
        assert_eq!(cache.counts(), (number, 1), "a turn changes no ledger");
    }
    told(id, small).await;
    assert_eq!(cache.counts(), (3, 2), "another threshold");
    // The same numbers of events, and other events.
    store.clear(id).await.unwrap();
    store.append(id, NewTurn::verbatim(commanding("make two"))).await.unwrap();
    store.add_compaction(id, &Compaction::new(Seq(4), "They met.")).await.unwrap();
    assert!(told(id, small).await.contains("`make two`: ok"));
    let fork = store.fork(id, Seq::END, unnamed()).await.unwrap();
    assert!(told(fork, small).await.contains("`make two`: ok"));
    assert_eq!(cache.counts(), (3, 4));
}

pub(super) async fn the_size_of_an_opening_is_stored_again_when_the_threshold_is_another(store: Store) {
    let events = (0..200).flat_map(|number| commanding(&format!("make target number {number}")));
    let id =
        session_of(&store, [system("Be </azureal-session-context> kind.")].into_iter().chain(events)).await;
    let written = Compaction { writer: Some("digest".into()), ..Compaction::new(Seq(797), "They met.") };
    store.add_compaction(id, &written).await.unwrap();
    let written = store.compactions(id).await.unwrap();
    let mut sizes = Vec::new();
    for threshold in [Threshold::default(), Threshold::Chars(20_000), Threshold::default()] {
        for _ in 0..2 {
            let mut snapshot = SessionSnapshot::read(&*store, id).await.unwrap();
            let context = snapshot.context(&*store, threshold, None).await.unwrap();
            snapshot.store_opening(&*store, &context).await.unwrap();
            let record = store.get(id).await.unwrap();
            assert_eq!(record.context_chars(), wrap_context(&context).chars().count() as u64);
            assert_eq!(snapshot.record.opening, record.opening);
            sizes.push((record.opening, record.revision));
        }
    }
    let [(usual, first), (_, second), (small, third), (_, fourth), (again, _), _] = sizes[..] else {
        panic!()
    };
    assert!(usual == again && usual > 2 * small, "{sizes:?}");
    assert_eq!((second, fourth), (first, third), "a size that is the same is not written: {sizes:?}");
    let kept = store.compactions(id).await.unwrap();
    assert_eq!(kept.iter().map(|kept| &kept.created_at).collect::<Vec<_>>(), [&written[0].created_at]);
    assert_eq!((kept[0].writer.as_deref(), kept[0].summary.as_str()), (Some("digest"), "They met."));
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
        assert_eq!(snapshot.context(&*store, Threshold::default(), None).await.unwrap(), context);
    }
}
