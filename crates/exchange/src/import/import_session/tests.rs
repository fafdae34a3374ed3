//! Tests of imports into a store in memory.

use azureal_core::{Event, SessionRecord, append_events};
use azureal_store::MemoryStore;
use futures_executor::block_on;

use super::*;
use crate::identity::SessionIdentity;
use crate::import::Difference;
use crate::import::event_texts::{EventTexts, PIECE_EVENTS};
use crate::verify::verify;

fn incoming(texts: &[&str]) -> IncomingSession {
    IncomingSession {
        label: "test".into(),
        identity: SessionIdentity::of_origin("test:1".into()),
        name: Some("n".into()),
        worktree: None,
        created_at: None,
        last_active: None,
        texts: EventTexts::in_memory(texts.iter().map(|text| Event::user(*text).to_json()).collect()),
        compactions: Vec::new(),
        tokens: Tokens::new(texts.len() as u64 * 10, 0),
        totals: TurnTotals::default(),
        notices: Vec::new(),
        problems: Vec::new(),
    }
}

fn import_all(store: &MemoryStore, session: &mut IncomingSession) -> ImportOutcome {
    block_on(import_session(store, ".", session, &|_| ControlFlow::Continue(()))).unwrap()
}

struct Bench(MemoryStore);

impl Bench {
    fn import(&self, texts: &[&str]) -> ImportOutcome {
        import_all(&self.0, &mut incoming(texts))
    }

    fn get(&self, id: SessionId) -> SessionRecord {
        block_on(self.0.get(id)).unwrap()
    }
}

fn id(number: u32) -> SessionId {
    SessionId::new(number).unwrap()
}

fn new(number: u32, events: usize) -> ImportOutcome {
    ImportOutcome::New { id: id(number), events }
}

fn unchanged(number: u32) -> ImportOutcome {
    ImportOutcome::Unchanged { id: id(number) }
}

fn continued(number: u32, events: usize) -> ImportOutcome {
    ImportOutcome::Continued { id: id(number), added: Added { events, ..Added::default() } }
}

#[test]
fn the_same_thing_twice_changes_nothing() {
    let bench = Bench(MemoryStore::default());
    assert_eq!(bench.import(&["a", "b"]), new(1, 2));
    assert_eq!(bench.import(&["a", "b"]), unchanged(1));
    // An older state of the same source changes nothing either.
    assert_eq!(bench.import(&["a"]), unchanged(1));
    assert_eq!(bench.import(&[]), unchanged(1));
}

#[test]
fn a_source_that_has_grown_continues_its_session() {
    let bench = Bench(MemoryStore::default());
    bench.import(&["a"]);
    assert_eq!(bench.import(&["a", "b", "c"]), continued(1, 2));
    assert_eq!(bench.import(&["a", "b", "c"]), unchanged(1));
    let record = bench.get(id(1));
    assert_eq!((record.counts.events, record.tokens.input), (3, 30));
}

#[test]
fn a_session_that_went_on_here_is_left_alone() {
    let bench = Bench(MemoryStore::default());
    bench.import(&["a"]);
    block_on(append_events(&bench.0, id(1), [Event::user("mine")])).unwrap();
    assert_eq!(bench.import(&["a"]), unchanged(1));
    assert_eq!(bench.import(&["a", "b"]), new(2, 2));
    assert_eq!(bench.import(&["a", "b"]), unchanged(2));
    assert_eq!(bench.import(&["a", "b", "c"]), continued(2, 1));
    assert_eq!(bench.get(id(1)).counts.events, 2);
}

#[test]
fn two_sources_of_one_origin_do_not_push_each_other_out() {
    let bench = Bench(MemoryStore::default());
    assert_eq!(bench.import(&["x", "1"]), new(1, 2));
    assert_eq!(bench.import(&["x", "2"]), new(2, 2));
    assert_eq!(bench.import(&["x", "1"]), unchanged(1));
    assert_eq!(bench.import(&["x", "2"]), unchanged(2));
}

#[test]
fn what_was_deleted_can_be_imported_again() {
    let bench = Bench(MemoryStore::default());
    bench.import(&["a"]);
    block_on(bench.0.delete(id(1))).unwrap();
    assert_eq!(bench.import(&["a"]), new(2, 1));
    assert_eq!(bench.import(&["a"]), unchanged(2));
}

#[test]
fn what_was_cleared_comes_back() {
    let bench = Bench(MemoryStore::default());
    bench.import(&["a", "b"]);
    block_on(bench.0.clear(id(1))).unwrap();
    assert_eq!(bench.import(&["a", "b"]), continued(1, 2));
    assert_eq!(bench.import(&["a", "b"]), unchanged(1));
    // Clearing leaves the totals, so they are not added a second time.
    assert_eq!((bench.get(id(1)).counts.events, bench.get(id(1)).tokens.input), (2, 20));
    block_on(bench.0.clear(id(1))).unwrap();
    assert_eq!(bench.import(&["a", "b", "c"]), continued(1, 3));
    assert_eq!((bench.get(id(1)).counts.events, bench.get(id(1)).tokens.input), (3, 30));
    // One that went on after it was cleared is left alone.
    block_on(bench.0.clear(id(1))).unwrap();
    block_on(append_events(&bench.0, id(1), [Event::user("mine")])).unwrap();
    assert_eq!(bench.import(&["a", "b", "c"]), new(2, 3));
    assert_eq!(bench.get(id(1)).counts.events, 1);
}

#[test]
fn a_cleared_session_is_not_filled_with_another() {
    let bench = Bench(MemoryStore::default());
    bench.import(&["x", "1"]);
    block_on(bench.0.clear(id(1))).unwrap();
    assert_eq!(bench.import(&["x", "2"]), new(2, 2));
}

#[test]
fn summaries_that_came_later_are_added() {
    let bench = Bench(MemoryStore::default());
    bench.import(&["a"]);
    let summary = |after, text: &str| Compaction::new(Seq(after), text);
    let mut grown = incoming(&["a"]);
    grown.compactions = vec![summary(0, "nothing"), summary(1, "first"), summary(1, "second")];
    let added = Added { summaries: 1, ..Added::default() };
    assert_eq!(import_all(&bench.0, &mut grown), ImportOutcome::Continued { id: id(1), added });
    assert_eq!(import_all(&bench.0, &mut grown), unchanged(1));
    assert_eq!(block_on(bench.0.compactions(id(1))).unwrap()[0].summary, "second");
}

#[test]
fn a_long_session_that_was_interrupted_goes_on() {
    let bench = Bench(MemoryStore::default());
    let long: Vec<String> = (0..PIECE_EVENTS * 3 + 5).map(|n| n.to_string()).collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    let mut whole = incoming(&long);
    whole.totals = TurnTotals { completed: Some(true), duration_ms: 70, cost_usd: 0.5 };
    let covers = [PIECE_EVENTS, PIECE_EVENTS * 2];
    whole.compactions = covers.map(|covers| Compaction::new(Seq(covers as u64), "s")).into();
    for pieces in 1..=3 {
        let stop = |events| {
            if events == pieces * PIECE_EVENTS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let stopped = block_on(import_session(&bench.0, ".", &mut whole, &stop));
        assert!(matches!(stopped, Err(ImportError::ImportStopped)));
        let record = bench.get(id(1));
        assert_eq!(record.counts.events as usize, pieces * PIECE_EVENTS);
        assert_eq!((record.completed, record.duration_ms, record.tokens.input), (None, 0, 0));
    }
    let added = Added { events: 5, summaries: 1, tokens: 0 };
    assert_eq!(import_all(&bench.0, &mut whole), ImportOutcome::Continued { id: id(1), added });
    assert_eq!(import_all(&bench.0, &mut whole), unchanged(1));
    let record = bench.get(id(1));
    assert_eq!((record.completed, record.duration_ms, record.cost_usd), (Some(true), 70, 0.5));
    assert_eq!(record.tokens.input, long.len() as u64 * 10);
    assert_eq!(block_on(bench.0.compactions(id(1))).unwrap().len(), 2);
    block_on(verify(&bench.0, &whole, id(1))).unwrap();
}

#[test]
fn a_session_that_differs_from_its_source_is_found() {
    let bench = Bench(MemoryStore::default());
    bench.import(&["a", "b"]);
    let differs = |incoming: &IncomingSession| match block_on(verify(&bench.0, incoming, id(1))) {
        Err(ImportError::Differs { difference, .. }) => difference,
        other => panic!("{other:?}"),
    };
    block_on(verify(&bench.0, &incoming(&["a", "b"]), id(1))).unwrap();
    // A session that has gone on here still holds it.
    block_on(verify(&bench.0, &incoming(&["a"]), id(1))).unwrap();
    for (other, difference) in [
        (&["a", "c"][..], Difference::EventTexts),
        (&["a", "b", "c"], Difference::EventCount { copied: 2, source: 3 }),
        (&["ab"], Difference::EventTexts),
    ] {
        assert_eq!(differs(&incoming(other)), difference);
    }
    let mut summarised = incoming(&["a", "b"]);
    summarised.compactions = vec![Compaction::new(Seq(1), "s")];
    assert_eq!(differs(&summarised), Difference::Summary { events: 1 });
}
