//! Notifications of changes to any session of a store. A store without them is polled, and there is nothing to check.

use std::time::Instant;

use azureal_core::Watch;

use super::watch::{LONG, SHORT, hears, settled};
use super::*;

/// Watches a store once notifications arrive; `None` if it has none.
async fn watch_all(store: &Store) -> Option<Box<dyn Watch>> {
    // A store in a file may need its file first.
    store.create(unnamed()).await.unwrap();
    settled(store.watch_all().await.unwrap()?).await
}

pub(super) async fn whatever_is_done_in_a_watched_store_is_heard(store: Store) {
    let Some(mut watch) = watch_all(&store).await else { return };
    let id = store.create(unnamed()).await.unwrap();
    hears(&mut *watch, "a new session").await;
    macro_rules! heard {
        ($($what:literal: $change:expr),+ $(,)?) => {
            $(
                // The second notification of one change may come late.
                while watch.changed(SHORT).await.unwrap() {}
                $change.await.unwrap();
                hears(&mut *watch, $what).await;
            )+
        };
    }
    heard! {
        "a turn": store.append(id, prompt("hello")),
        "a turn without events": store.append(id, NewTurn { tokens: azureal_core::Tokens::new(1, 1), ..NewTurn::default() }),
        "a name": store.rename(id, "name"),
        "tokens": store.add_tokens(id, azureal_core::Tokens::new(1, 1)),
        "other tokens": store.set_tokens(id, azureal_core::Tokens::new(1, 1)),
        "a summary": store.add_compaction(id, &Compaction::new(Seq(1), "summary")),
        "a removed summary": store.remove_compaction(id, Seq(1)),
        "a session by name": store.find_or_create(named("other")),
        "a history": store.create_with(named("history"), prompt("hello"), vec![]),
        "a fork": store.fork(id, Seq::END, unnamed()),
        "a clear": store.clear(id),
        "a deletion": store.delete(id),
    }
}

pub(super) async fn a_wait_for_any_change_ends_when_its_time_is_over(store: Store) {
    let Some(mut watch) = watch_all(&store).await else { return };
    let began = Instant::now();
    // It may report a change without a reason, but not for ever.
    watch.changed(SHORT).await.unwrap();
    assert!(began.elapsed() < LONG / 2, "it waited for {:?}", began.elapsed());
}

pub(super) async fn each_of_several_who_watch_a_store_hears(store: Store) {
    let Some(mut one) = watch_all(&store).await else { return };
    let Some(mut other) = watch_all(&store).await else { return };
    while one.changed(SHORT).await.unwrap() || other.changed(SHORT).await.unwrap() {}
    store.create(unnamed()).await.unwrap();
    hears(&mut *one, "a new session").await;
    hears(&mut *other, "a new session").await;
}
