//! Several threads at one store.

use std::thread;

use azureal_core::Tokens;
use futures_executor::block_on;

use super::*;

const THREADS: u64 = 4;
const TURNS: u64 = 8;

/// Runs `work` on several threads at once and returns the result of each.
fn at_once<T: Send>(work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        // All are started before the first is waited for.
        let running: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub(super) async fn sessions_made_at_once_have_numbers_of_their_own(store: Store) {
    let made = at_once(|_| {
        let each = (0..TURNS).map(|_| block_on(store.create(unnamed())).unwrap());
        each.collect::<Vec<_>>()
    });
    let mut made: Vec<SessionId> = made.into_iter().flatten().collect();
    made.sort_unstable();
    made.dedup();
    assert_eq!(made.len() as u64, THREADS * TURNS);
    let mut listed = list_ids(&store).await;
    listed.sort_unstable();
    assert_eq!(listed, made);
}

pub(super) async fn one_session_is_made_however_many_ask_for_its_name(store: Store) {
    for round in 0..TURNS {
        let name = format!("round {round}");
        let found = at_once(|_| block_on(store.find_or_create(named(&name))).unwrap());
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:?}");
        assert_eq!(store.find(&name).await.unwrap(), [found[0]]);
    }
    assert_eq!(list_ids(&store).await.len() as u64, TURNS);
}

pub(super) async fn turns_appended_at_once_stay_whole(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    const EVENTS: u64 = 3;
    let said = |thread: u64, turn: u64, event: u64| Event::user(format!("{thread}.{turn}.{event}"));
    let places = at_once(|thread| {
        let each = (0..TURNS).map(|turn| {
            let events = (0..EVENTS).map(|event| said(thread, turn, event));
            block_on(store.append(id, NewTurn::verbatim(events))).unwrap()
        });
        each.collect::<Vec<_>>()
    });
    let read = read_all(&store, id).await;
    let numbers: Vec<u64> = read.iter().map(|event| event.seq.0).collect();
    assert_eq!(numbers, (1..=THREADS * TURNS * EVENTS).collect::<Vec<_>>());
    // Each turn is at the place that its append returned, in one piece; so no two are in one place.
    for (thread, turns) in (0..).zip(places) {
        for (turn, place) in (0..).zip(turns) {
            let expected: Vec<Event> = (0..EVENTS).map(|event| said(thread, turn, event)).collect();
            let stands: Vec<Event> = read
                .iter()
                .filter(|event| event.seq >= place.first && event.seq <= place.last)
                .map(|event| event.event().unwrap())
                .collect();
            assert_eq!(stands, expected);
        }
    }
    let events: Vec<Event> = read.iter().map(|event| event.event().unwrap()).collect();
    assert_eq!(store.get(id).await.unwrap().counts, counts_of(&events));
}

pub(super) async fn tokens_added_at_once_all_count(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let one = Tokens { input: 4, output: 2, cache_read: 3, cache_write: 1 };
    at_once(|_| {
        for _ in 0..TURNS {
            block_on(store.add_tokens(id, one)).unwrap();
            let turn = NewTurn { tokens: one, ..prompt("hello") };
            block_on(store.append(id, turn)).unwrap();
        }
    });
    let added = 2 * THREADS * TURNS;
    let expected = Tokens { input: 4 * added, output: 2 * added, cache_read: 3 * added, cache_write: added };
    assert_eq!(store.get(id).await.unwrap().tokens, expected);
}
