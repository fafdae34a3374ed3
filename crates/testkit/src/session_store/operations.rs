//! Appends that are sent again.

use azureal_core::{Appended, NewMark, Operation, Tokens, Uuid};
use futures_util::future::join_all;

use super::*;

/// Returns the operation of a turn that is about to be sent.
async fn operation(store: &Store, id: SessionId) -> Operation {
    Operation::new(Uuid::new_v4(), &store.get(id).await.unwrap())
}

fn with(operation: Operation, turn: NewTurn) -> NewTurn {
    NewTurn { operation: Some(operation), ..turn }
}

fn turn() -> NewTurn {
    NewTurn {
        tokens: Tokens::new(1, 2),
        ..NewTurn::verbatim([Event::user("pay"), Event::assistant("paid"), Event::assistant("bye")])
    }
}

pub(super) async fn an_operation_that_is_sent_again_is_appended_once(store: Store) {
    let id = session_of_prompts(&store, 2).await;
    let (first, second) = (operation(&store, id).await, operation(&store, id).await);
    let appended = store.append(id, with(first, turn())).await.unwrap();
    assert_eq!(appended, Appended { first: Seq(3), last: Seq(5) });
    let record = store.get(id).await.unwrap();
    for _ in 0..2 {
        assert_eq!(store.append(id, with(first, turn())).await.unwrap(), appended);
    }
    assert_eq!(store.get(id).await.unwrap(), record, "a repeat changes nothing");
    // An operation that begins earlier than it could have is the same one.
    let earlier = Operation { after: Seq::START, ..first };
    assert_eq!(store.append(id, with(earlier, turn())).await.unwrap(), appended);
    // Another one is another turn, also of one event.
    let one = store.append(id, with(second, prompt("pay"))).await.unwrap();
    assert_eq!(one, Appended { first: Seq(6), last: Seq(6) });
    assert_eq!(store.append(id, with(second, prompt("pay"))).await.unwrap(), one);
    assert_eq!(texts(&store, id).await.len(), 6);
}

pub(super) async fn a_repeat_is_answered_whatever_came_after_it(store: Store) {
    let id = session_of_prompts(&store, 1).await;
    let sent = operation(&store, id).await;
    let once = || NewTurn { after: Some(Seq(1)), ..with(sent, turn()) };
    let appended = store.append(id, once()).await.unwrap();
    store.append(id, prompt("later")).await.unwrap();
    store.append(id, with(operation(&store, id).await, turn())).await.unwrap();
    store.rename(id, "another name").await.unwrap();
    let before = store.get(id).await.unwrap();
    // The place that it was to come after has moved since, by itself.
    let mark = Some(NewMark { name: "done".to_owned(), note: String::new() });
    assert_eq!(store.append(id, NewTurn { mark, ends_run: true, ..once() }).await.unwrap(), appended);
    assert_eq!(store.get(id).await.unwrap(), before);
    assert_eq!(store.mark("done").await.unwrap(), None, "a repeat sets no mark");
}

pub(super) async fn an_operation_is_refused_after_a_clear(store: Store) {
    let id = session_of_prompts(&store, 1).await;
    let (stored, never_sent) = (operation(&store, id).await, operation(&store, id).await);
    store.append(id, with(stored, turn())).await.unwrap();
    store.clear(id).await.unwrap();
    for again in [stored, never_sent] {
        let refused = store.append(id, with(again, turn())).await;
        assert!(matches!(refused, Err(StoreError::Cleared(of)) if of == id), "{refused:?}");
    }
    for number in 0..4 {
        store.append(id, prompt(&number.to_string())).await.unwrap();
    }
    let refused = store.append(id, with(stored, turn())).await;
    assert!(matches!(refused, Err(StoreError::Cleared(_))), "the session is as long as before: {refused:?}");
    assert_eq!(texts(&store, id).await.len(), 4);
    let anew = with(operation(&store, id).await, turn());
    assert_eq!(store.append(id, anew).await.unwrap().first, Seq(5));
}

pub(super) async fn an_operation_goes_with_its_session_and_not_to_its_fork(store: Store) {
    let id = session_of_prompts(&store, 1).await;
    let sent = operation(&store, id).await;
    store.append(id, with(sent, turn())).await.unwrap();
    let fork = store.fork(id, Seq::END, unnamed()).await.unwrap();
    let other = store.create(unnamed()).await.unwrap();
    for (session, first) in [(fork, 5), (other, 1)] {
        let of_session = Operation { generation: 0, after: Seq::START, ..sent };
        let appended = store.append(session, with(of_session, turn())).await.unwrap();
        assert_eq!(appended.first, Seq(first), "it was sent to another session");
    }
    store.delete(id).await.unwrap();
    assert_no_such_session(&store.append(id, with(sent, turn())).await, id);
}

pub(super) async fn an_operation_needs_an_event(store: Store) {
    let id = session_of_prompts(&store, 1).await;
    let before = store.get(id).await.unwrap();
    let empty = NewTurn { tokens: Tokens::new(1, 2), ..NewTurn::default() };
    let refused = store.append(id, with(operation(&store, id).await, empty)).await;
    assert!(matches!(refused, Err(StoreError::NotSupported(_))), "{refused:?}");
    assert_eq!(store.get(id).await.unwrap(), before);
}

pub(super) async fn an_operation_that_is_sent_at_once_by_many_is_appended_once(store: Store) {
    let id = session_of_prompts(&store, 1).await;
    let sent = operation(&store, id).await;
    let appended = join_all((0..8).map(|_| store.append(id, with(sent, turn())))).await;
    let places: Vec<Appended> = appended.into_iter().map(Result::unwrap).collect();
    assert!(places.iter().all(|place| *place == Appended { first: Seq(2), last: Seq(4) }), "{places:?}");
    assert_eq!(texts(&store, id).await.len(), 4);
}
