//! Tests of imports into a store in memory.

use std::sync::Arc;

use azureal_core::event::{Complete, Usage};
use azureal_core::{ListQuery, SessionRecord, append_events};
use azureal_store::MemoryStore;
use futures_executor::block_on;

use super::*;
use crate::identity::SessionIdentity;
use crate::import::event_texts::{EventTexts, PIECE_EVENTS};
use crate::import::{Difference, SourceStore};
use crate::verify::verify;

fn incoming(texts: &[&str]) -> IncomingSession {
    IncomingSession {
        label: "test".into(),
        identity: SessionIdentity::of_origin("test:1".into()),
        name: Some("n".into()),
        named_at: None,
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
fn an_export_that_went_through_a_formatter_is_the_same_session() {
    let store = MemoryStore::default();
    let import = |texts: &[&str]| {
        let texts = EventTexts::in_memory(texts.iter().map(|text| (*text).to_owned()).collect());
        import_all(&store, &mut IncomingSession { texts, ..incoming(&[]) })
    };
    let plain = r#"{"ToolCall":{"tool_use_id":"t","tool_name":"Bash","input":{"b":1.0,"a":"é"}}}"#;
    let formatted = "{ \"ToolCall\": {\n  \"input\": {\"a\": \"\\u00e9\", \"b\": 1},\n  \"tool_name\": \"Bash\",\n  \"tool_use_id\": \"t\"\n} }";
    assert_eq!(import(&[plain, plain]), new(1, 2));
    assert_eq!(import(&[formatted, formatted]), unchanged(1));
    assert_eq!(import(&[formatted, formatted, plain]), continued(1, 1));
    let texts = block_on(store.read(id(1), Page::last(9))).unwrap();
    assert!(texts.iter().all(|stored| stored.json.as_deref() == Ok(plain)), "{texts:?}");
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

/// Stores with a copy of one session, each of which was continued with other turns.
fn continued_copies(turns: &[&[&str]]) -> Vec<Arc<MemoryStore>> {
    let first = MemoryStore::default();
    block_on(first.create(NewSession::default())).unwrap();
    say(&first, 1, &["base"]);
    let first = Arc::new(first);
    let copy = |turns: &&[&str]| {
        let store = MemoryStore::default();
        merge(&first, &store);
        say(&store, 1, turns);
        Arc::new(store)
    };
    turns.iter().map(copy).collect()
}

/// Appends turns, each of which takes 10 tokens, 8 milliseconds and 0.5 dollars.
fn say(store: &MemoryStore, number: u32, prompts: &[&str]) {
    for prompt in prompts {
        let usage = Some(Usage { input_tokens: 10, ..Usage::default() });
        let complete = Complete { usage, cost_usd: 0.5, duration_ms: 8, ..Complete::default() };
        let events = vec![Event::user(*prompt).into(), Event::Complete(complete).into()];
        let turn = NewTurn { events, tokens: Tokens::new(10, 0), ..NewTurn::default() };
        block_on(store.append(id(number), turn)).unwrap();
    }
}

/// Returns the number of turns that the sessions of a store count.
fn counted_turns(store: &MemoryStore) -> u64 {
    let records = block_on(store.list(&ListQuery::default())).unwrap();
    let sum = |of: fn(&SessionRecord) -> u64| records.iter().map(of).sum::<u64>();
    let turns = sum(|record| record.tokens.input) / 10;
    assert_eq!(sum(|record| record.duration_ms), turns * 8);
    assert_eq!(sum(|record| (record.cost_usd * 2.0) as u64), turns);
    turns
}

/// Imports all sessions of a store into another one.
fn merge(from: &Arc<MemoryStore>, to: &MemoryStore) {
    let source = Arc::new(SourceStore::in_place(Arc::clone(from) as Arc<dyn SessionStore>, "other".into()));
    for record in block_on(source.sessions()).unwrap() {
        let mut session = block_on(source.session(&record)).unwrap();
        import_all(to, &mut session);
    }
}

/// Returns the texts of all sessions, sorted, and their UUIDs.
fn logs(store: &MemoryStore) -> Vec<(String, Uuid)> {
    let text = |record: SessionRecord| {
        let events = block_on(store.read(record.id, Page::last(99))).unwrap();
        let texts = events.iter().filter_map(|stored| match stored.event().unwrap() {
            Event::UserMessage(message) => Some(message.content),
            _ => None,
        });
        (texts.collect::<Vec<_>>().join(" "), record.uuid.unwrap())
    };
    let mut logs: Vec<_> =
        block_on(store.list(&ListQuery::default())).unwrap().into_iter().map(text).collect();
    logs.sort();
    logs
}

fn texts_of(store: &MemoryStore) -> Vec<String> {
    logs(store).into_iter().map(|(text, _)| text).collect()
}

/// Returns all orders of the numbers below `count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
    let shorter = orders(last).into_iter();
    let longer = |order: Vec<usize>| {
        (0..count).map(move |place| {
            let mut order = order.clone();
            order.insert(place, last);
            order
        })
    };
    shorter.flat_map(longer).collect()
}

#[test]
fn three_stores_that_are_merged_in_any_order_have_each_log_once() {
    let merges = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
    for order in orders(merges.len()) {
        let stores = continued_copies(&[&["a"], &["b"], &["c"]]);
        let merge_all = || {
            order.iter().for_each(|number| {
                let (from, to) = merges[*number];
                merge(&stores[from], &stores[to]);
            });
        };
        for round in 0..2 {
            merge_all();
            for store in &stores {
                assert_eq!(texts_of(store), ["base a", "base b", "base c"], "{order:?}, round {round}");
                assert_eq!(counted_turns(store), 4, "{order:?}, round {round}");
            }
        }
        // The logs grow: one in the store that it comes from, one elsewhere.
        let fork = |store: &MemoryStore, text: &str| {
            let (_, uuid) = logs(store).into_iter().find(|(log, _)| log == text).unwrap();
            block_on(store.find_uuid(uuid)).unwrap().unwrap().number()
        };
        say(&stores[0], 1, &["more"]);
        say(&stores[2], fork(&stores[2], "base b"), &["more"]);
        for round in 2..4 {
            merge_all();
            if round == 2 {
                continue;
            }
            for store in &stores {
                assert_eq!(
                    texts_of(store),
                    ["base a more", "base b more", "base c"],
                    "{order:?}, round {round}"
                );
                assert_eq!(counted_turns(store), 6, "{order:?}, round {round}");
            }
        }
    }
}

#[test]
fn copies_that_were_continued_in_steps_have_each_log_once() {
    // The second and the third have a part that the first does not have.
    for order in orders(4) {
        let stores = continued_copies(&[&["a"], &["x", "b"], &["x", "c"], &["x"]]);
        for round in 0..2 {
            for to in &order {
                order.iter().filter(|from| *from != to).for_each(|from| merge(&stores[*from], &stores[*to]));
            }
            for store in &stores {
                assert_eq!(texts_of(store), ["base a", "base x b", "base x c"], "{order:?}, round {round}");
                assert_eq!(counted_turns(store), 5, "{order:?}, round {round}");
            }
        }
    }
}

#[test]
fn a_fork_that_an_import_made_is_the_same_one_in_every_store() {
    let stores = continued_copies(&[&["a"], &["b"], &["c"]]);
    for to in [0, 2] {
        merge(&stores[1], &stores[to]);
    }
    let uuid = |store: usize| logs(&stores[store]).into_iter().find(|(log, _)| log == "base b").unwrap().1;
    assert_eq!(uuid(0), uuid(2));
    assert_ne!(uuid(0), uuid(1));
    // The UUID is not used twice, also if its session has another log by now.
    block_on(stores[0].clear(id(2))).unwrap();
    say(&stores[0], 2, &["else"]);
    merge(&stores[1], &stores[0]);
    assert_eq!(texts_of(&stores[0]), ["base a", "base b", "else"]);
    assert_ne!(uuid(0), uuid(2));
    merge(&stores[1], &stores[0]);
    assert_eq!(texts_of(&stores[0]).len(), 3);
}
