//! What a store keeps for exchanges with others: its id, tombstones, times of names, and facts beside events.

use azureal_core::{ListQuery, NewEvent, Tombstone, Uuid};

use super::*;

pub(super) async fn a_store_has_one_id_from_its_first_write(store: Store) {
    let before = store.store_id().await.unwrap();
    let id = store.create(unnamed()).await.unwrap();
    let written = store.store_id().await.unwrap();
    assert!(before.is_none() || before == written, "{before:?} became {written:?}");
    store.append(id, prompt("hello")).await.unwrap();
    store.clear(id).await.unwrap();
    store.delete(id).await.unwrap();
    assert_eq!(store.store_id().await.unwrap(), written);
}

/// Returns whether the store keeps tombstones: one with an id of its own does.
async fn keeps_tombstones(store: &Store) -> bool {
    store.create(unnamed()).await.unwrap();
    store.store_id().await.unwrap().is_some()
}

async fn all_tombstones(store: &Store) -> Vec<Tombstone> {
    store.tombstones(None, 100).await.unwrap()
}

fn is_time(text: &str) -> bool {
    // A store without a clock has none.
    text.is_empty() || (text.len() == 20 && text.ends_with('Z'))
}

pub(super) async fn a_deleted_session_leaves_a_tombstone(store: Store) {
    if !keeps_tombstones(&store).await {
        return;
    }
    let [id, empty] = [session_of_prompts(&store, 3).await, store.create(unnamed()).await.unwrap()];
    let uuid = async |id| store.get(id).await.unwrap().uuid.unwrap();
    let mut expected = vec![(uuid(id).await, 3), (uuid(empty).await, 0)];
    assert_eq!(all_tombstones(&store).await, []);
    store.clear(session_of_prompts(&store, 1).await).await.unwrap();
    assert_eq!(all_tombstones(&store).await, [], "a cleared session is still there");
    store.delete(id).await.unwrap();
    store.delete(empty).await.unwrap();
    expected.sort();
    let found = all_tombstones(&store).await;
    assert!(found.iter().all(|each| is_time(&each.deleted_at) && each.revived_at.is_none()), "{found:?}");
    let found: Vec<(Uuid, u64)> = found.iter().map(|each| (each.uuid, each.events)).collect();
    assert_eq!(found, expected);
}

pub(super) async fn tombstones_are_read_in_pages(store: Store) {
    if !keeps_tombstones(&store).await {
        return;
    }
    for _ in 0..5 {
        let id = store.create(unnamed()).await.unwrap();
        store.delete(id).await.unwrap();
    }
    let all = all_tombstones(&store).await;
    assert_eq!(all.len(), 5);
    assert!(all.windows(2).all(|pair| pair[0].uuid < pair[1].uuid), "{all:?}");
    let (mut read, mut after) = (Vec::new(), None);
    loop {
        let page = store.tombstones(after, 2).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some(last.uuid);
        read.extend(page);
    }
    assert_eq!(read, all);
    assert_eq!(store.tombstones(None, 0).await.unwrap(), []);
}

pub(super) async fn a_session_that_comes_back_revives_its_tombstone(store: Store) {
    if !keeps_tombstones(&store).await {
        return;
    }
    let of = |uuid| NewSession { uuid: Some(uuid), ..unnamed() };
    let (uuid, other) = (Uuid::from_u128(7), Uuid::from_u128(8));
    let mut times = Vec::new();
    for events in [1, 2] {
        let id = store.create_with(of(uuid), prompt("hello"), vec![]).await.unwrap();
        for _ in 1..events {
            store.append(id, prompt("more")).await.unwrap();
        }
        store.delete(id).await.unwrap();
        let [tombstone] = all_tombstones(&store).await.try_into().unwrap();
        assert_eq!((tombstone.uuid, tombstone.events, tombstone.revived_at), (uuid, events, None));
        times.push(tombstone.deleted_at);
        // Another session is no revival of this one.
        store.create(of(other)).await.unwrap();
        assert_eq!(all_tombstones(&store).await[0].revived_at, None);
        if events == 1 {
            let id = store.create(of(uuid)).await.unwrap();
            let [tombstone] = all_tombstones(&store).await.try_into().unwrap();
            times.push(tombstone.revived_at.unwrap());
            store.delete(id).await.unwrap();
            times.push(all_tombstones(&store).await[0].deleted_at.clone());
        }
    }
    // Each is later than the one before, however coarse the clock is.
    assert!(times.iter().all(|time| is_time(time)), "{times:?}");
    assert!(times.windows(2).all(|pair| pair[0].is_empty() || pair[0] < pair[1]), "{times:?}");
}

pub(super) async fn a_session_of_two_with_one_uuid_leaves_no_tombstone(store: Store) {
    if !keeps_tombstones(&store).await {
        return;
    }
    let twin = || NewSession { uuid: Some(Uuid::from_u128(7)), ..unnamed() };
    let first = store.create_with(twin(), prompt("hello"), vec![]).await.unwrap();
    let second = store.create(twin()).await.unwrap();
    store.delete(second).await.unwrap();
    assert_eq!(all_tombstones(&store).await, [], "the other one is still there");
    assert!(matches!(store.delete(second).await, Err(StoreError::NoSuchSession(_))));
    store.delete(first).await.unwrap();
    let [tombstone] = all_tombstones(&store).await.try_into().unwrap();
    assert_eq!((tombstone.uuid, tombstone.events), (Uuid::from_u128(7), 1));
    // One of two that came back is not deleted again either.
    let [third, fourth] = [store.create(twin()).await.unwrap(), store.create(twin()).await.unwrap()];
    let revived = all_tombstones(&store).await;
    store.delete(third).await.unwrap();
    assert_eq!(all_tombstones(&store).await, revived);
    store.delete(fourth).await.unwrap();
    assert_eq!(all_tombstones(&store).await[0].revived_at, None);
}

pub(super) async fn each_session_that_comes_back_does_so_later_than_the_one_before(store: Store) {
    if !keeps_tombstones(&store).await {
        return;
    }
    let of = || NewSession { uuid: Some(Uuid::from_u128(7)), ..unnamed() };
    let id = store.create(of()).await.unwrap();
    store.delete(id).await.unwrap();
    let mut last = all_tombstones(&store).await[0].deleted_at.clone();
    for _ in 0..3 {
        store.create(of()).await.unwrap();
        let [tombstone] = all_tombstones(&store).await.try_into().unwrap();
        let next = tombstone.revived_at.unwrap();
        assert!(is_time(&next) && (next.is_empty() || next > last), "{next} after {last}");
        last = next;
    }
}

pub(super) async fn a_name_has_the_time_at_which_it_was_given(store: Store) {
    let named_at = async |id| store.get(id).await.unwrap().named_at;
    let nameless = store.create(unnamed()).await.unwrap();
    assert_eq!(named_at(nameless).await, "");
    let given = "2024-02-29T12:00:00Z";
    let from_elsewhere = |name: &str| NewSession { named_at: Some(given.to_owned()), ..named(name) };
    let created = store.create(from_elsewhere("a")).await.unwrap();
    let imported = store.create_with(from_elsewhere("b"), prompt("hello"), vec![]).await.unwrap();
    let without = NewSession { name: None, ..from_elsewhere("") };
    let unnamed_with_time = store.create(without).await.unwrap();
    assert_eq!(named_at(created).await, given);
    assert_eq!(named_at(imported).await, given);
    assert_eq!(named_at(unnamed_with_time).await, "", "there is no name");
    assert_eq!(store.list(&ListQuery::named("a")).await.unwrap()[0].named_at, given);
    let new = store.create(named("c")).await.unwrap();
    let mut last = named_at(new).await;
    assert!(is_time(&last), "{last}");
    for name in ["d", "e", "d"] {
        store.rename(new, name).await.unwrap();
        let next = named_at(new).await;
        assert!(is_time(&next) && (next.is_empty() || next > last), "{next} after {last}");
        last = next;
    }
    store.append(new, prompt("hello")).await.unwrap();
    store.clear(new).await.unwrap();
    assert_eq!(named_at(new).await, last, "only a rename changes it");
}

pub(super) async fn a_session_from_elsewhere_keeps_its_last_activity_without_events(store: Store) {
    let at = |time: &str| NewSession { last_active: Some(time.to_owned()), ..unnamed() };
    let [days, hours] = ["2024-02-25T12:00:00Z", "2024-02-29T10:00:00Z"];
    let newer = store.create(at(hours)).await.unwrap();
    let older = store.create_with(at(days), NewTurn::default(), vec![]).await.unwrap();
    for (id, time) in [(newer, hours), (older, days)] {
        assert_eq!(store.get(id).await.unwrap().last_active, time);
    }
    assert_eq!(list_ids(&store).await, [newer, older]);
    let now = store.create(unnamed()).await.unwrap();
    assert_eq!(list_ids(&store).await, [now, newer, older]);
}

pub(super) async fn a_new_generation_begins_with_each_clear(store: Store) {
    let id = session_of_prompts(&store, 2).await;
    let generation = async |id| store.get(id).await.unwrap().generation;
    let first = generation(id).await;
    store.append(id, prompt("more")).await.unwrap();
    store.rename(id, "a name").await.unwrap();
    store.add_compaction(id, &Compaction::new(Seq(1), "summary")).await.unwrap();
    assert_eq!(generation(id).await, first);
    store.clear(id).await.unwrap();
    assert_eq!(generation(id).await, first + 1);
    store.clear(id).await.unwrap();
    assert_eq!(generation(id).await, first + 2);
    let fork = store.fork(id, Seq::END, unnamed()).await.unwrap();
    assert_eq!(generation(fork).await, 0);
    assert_eq!(store.list(&ListQuery::named("a name")).await.unwrap()[0].generation, first + 2);
}

pub(super) async fn an_event_keeps_its_entry_and_the_time_of_its_removal(store: Store) {
    let removed_at = "2024-02-29T12:00:00Z";
    let events = || {
        let with_entry = NewEvent::from(Event::user("a")).with_entry(Some("call_1".to_owned()));
        let removed = NewEvent::from(Event::assistant("b")).with_removed_at(Some(removed_at.to_owned()));
        vec![with_entry, removed, Event::assistant("c").into()]
    };
    let turn = || NewTurn { events: events(), ..NewTurn::default() };
    let facts = async |id| -> Vec<_> {
        read_all(&store, id).await.into_iter().map(|each| (each.entry, each.removed_at)).collect()
    };
    let expected = [(Some("call_1".to_owned()), None), (None, Some(removed_at.to_owned())), (None, None)];
    let id = store.create(unnamed()).await.unwrap();
    store.append(id, turn()).await.unwrap();
    let imported = store.create_with(unnamed(), turn(), vec![]).await.unwrap();
    let fork = store.fork(id, Seq::END, unnamed()).await.unwrap();
    for id in [id, imported, fork] {
        assert_eq!(facts(id).await, expected);
    }
    let prompts = store.read_prompts(id, Seq::END, 9).await.unwrap();
    assert_eq!(prompts[0].entry.as_deref(), Some("call_1"));
    let long = NewEvent::from(Event::user("a")).with_entry(Some("x".repeat(1001)));
    let refused = store.append(id, NewTurn { events: vec![long], ..NewTurn::default() }).await;
    assert!(matches!(refused, Err(StoreError::NotSupported(_))), "{refused:?}");
}
