//! Notifications of changes. A store without them is polled, and there is nothing to check.

use std::thread;
use std::time::{Duration, Instant};

use azureal_core::Watch;
use futures_executor::block_on;

use super::*;

/// Longer than any case takes: after that there was no notification.
pub(super) const LONG: Duration = Duration::from_secs(60);
/// More waits than a watch needs until notifications arrive.
const MOST_WAITS: usize = 600;
/// So short that it is over soon.
pub(super) const SHORT: Duration = Duration::from_millis(100);

/// Watches a session once notifications arrive; `None` if the store has none.
async fn watch(store: &Store, id: SessionId) -> Option<Box<dyn Watch>> {
    settled(store.watch(id).await.unwrap()?).await
}

/// Waits until notifications arrive and all are read.
pub(super) async fn settled(mut watch: Box<dyn Watch>) -> Option<Box<dyn Watch>> {
    // A watch that is not ready yet reports a possible change at the end of each wait.
    for _ in 0..MOST_WAITS {
        if !watch.changed(SHORT).await.unwrap() {
            return Some(watch);
        }
    }
    panic!("nothing happens, and it never says so");
}

/// Waits for a notification, and checks that the wait did not time out.
pub(super) async fn hears(watch: &mut dyn Watch, what: &str) {
    let began = Instant::now();
    assert!(watch.changed(LONG).await.unwrap(), "{what} was not heard");
    assert!(began.elapsed() < LONG / 2, "{what} was not heard, only looked for");
}

pub(super) async fn what_is_done_to_a_watched_session_is_heard(store: Store) {
    let id = session_of_prompts(&store, 1).await;
    let Some(mut watch) = watch(&store, id).await else { return };
    store.append(id, prompt("hello")).await.unwrap();
    hears(&mut *watch, "an event").await;
    store.clear(id).await.unwrap();
    hears(&mut *watch, "a clear").await;
    store.delete(id).await.unwrap();
    hears(&mut *watch, "a deletion").await;
}

pub(super) async fn a_change_is_heard_while_waiting_for_it(store: Store) {
    let id = session_of_prompts(&store, 1).await;
    let Some(mut watch) = watch(&store, id).await else { return };
    for number in 0..10 {
        let other = Arc::clone(&store);
        let appending = thread::spawn(move || block_on(other.append(id, prompt("hello"))).unwrap());
        hears(&mut *watch, &format!("event {number}")).await;
        appending.join().unwrap();
    }
}

pub(super) async fn a_wait_ends_when_its_time_is_over(store: Store) {
    let id = session_of_prompts(&store, 1).await;
    let other = session_of_prompts(&store, 1).await;
    let Some(mut watch) = watch(&store, id).await else { return };
    store.append(other, prompt("hello")).await.unwrap();
    let began = Instant::now();
    // It may report a change without a reason, but not for ever.
    watch.changed(SHORT).await.unwrap();
    assert!(began.elapsed() < LONG / 2, "it waited for {:?}", began.elapsed());
}

pub(super) async fn each_of_several_who_watch_hears(store: Store) {
    let id = session_of_prompts(&store, 1).await;
    let Some(mut one) = watch(&store, id).await else { return };
    let Some(mut other) = watch(&store, id).await else { return };
    let third = watch(&store, id).await;
    // Dropping one watch does not affect the others.
    drop(third);
    while one.changed(SHORT).await.unwrap() || other.changed(SHORT).await.unwrap() {}
    store.append(id, prompt("hello")).await.unwrap();
    hears(&mut *one, "an event").await;
    hears(&mut *other, "an event").await;
}
