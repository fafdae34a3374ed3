//! A store that is sound passes the check of its sessions, whatever was done to them.

use std::ops::ControlFlow;

use azureal_core::event::{Complete, Init};
use azureal_core::{SessionProblem, check_sessions};

use super::*;

async fn problems(store: &Store) -> Vec<(SessionId, SessionProblem)> {
    check_sessions(&**store, |_, _| ControlFlow::Continue(())).await.unwrap()
}

pub(super) async fn a_sound_store_passes_its_check(store: Store) {
    assert_eq!(problems(&store).await, []);
    let empty = store.create(named("empty")).await.unwrap();
    let long = store.create(unnamed()).await.unwrap();
    for number in 0..21 {
        let events = [
            Event::user(format!("prompt {number}")),
            Event::Init(Init { agent: Some("claude".into()), model: "m".into(), ..Init::default() }),
            Event::assistant(format!("answer {number}")),
            Event::Complete(Complete { success: true, ..Complete::default() }),
        ];
        store.append(long, NewTurn::verbatim(events)).await.unwrap();
    }
    let texts = NewTurn::verbatim(odd_texts().into_iter().map(Event::user));
    let odd = store.create_with(unnamed(), texts, Vec::new()).await.unwrap();
    let fork = store.fork(long, Seq(7), unnamed()).await.unwrap();
    store.add_compaction(long, &Compaction::new(Seq(8), "They talked.")).await.unwrap();
    store.append(fork, prompt("and now?")).await.unwrap();
    store.rename(odd, "odd").await.unwrap();
    let cleared = session_of_prompts(&store, 3).await;
    store.clear(cleared).await.unwrap();
    store.append(cleared, prompt("again")).await.unwrap();
    store.delete(session_of_prompts(&store, 2).await).await.unwrap();
    assert_eq!(problems(&store).await, [], "{empty} {long} {odd} {fork} {cleared}");
}

pub(super) async fn sessions_with_one_uuid_are_found_by_the_check(store: Store) {
    let first = store.create(unnamed()).await.unwrap();
    let uuid = store.get(first).await.unwrap().uuid;
    let second = store.create(NewSession { uuid, ..unnamed() }).await.unwrap();
    let shared = SessionProblem::SharedUuid { uuid: uuid.unwrap(), with: first };
    assert_eq!(problems(&store).await, [(second, shared)]);
}
