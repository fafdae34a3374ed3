//! The memory store keeps the contract, and so do the conversations that need no other store.

use std::sync::Arc;

use azureal_core::{ContextStore, MemoryContextStore, NewSession, SessionContext, SessionStore};
use azureal_store::MemoryStore;
use azureal_testkit::{
    Runs, Sequence, context_store_contract, context_store_from_history, long_sequence_agrees,
    random_operations_agree, session_store_contract, thorough,
};

session_store_contract!(memory, async { (MemoryStore::default(), ()) });

context_store_contract!(memory_context, async { (MemoryContextStore::default(), ()) });

context_store_contract!(session_of_memory, async { (session(), ()) });

// A fork is opened by its number, and lives by the same rules.
context_store_contract!(fork_in_memory, async { (session().fork().await.unwrap(), ()) });

fn session() -> SessionContext<MemoryStore> {
    SessionContext::open(Arc::new(MemoryStore::default()), "my-session").unwrap()
}

#[test]
fn a_conversation_in_memory_is_made_from_another() {
    futures_executor::block_on(context_store_from_history::<MemoryContextStore>());
}

/// What is checked here is the suite: a store that did not agree with itself would show that it looks at
/// something which is not the store's to decide.
#[test]
fn random_operations_have_one_outcome() {
    let fresh = || async { (MemoryStore::default(), ()) };
    random_operations_agree(fresh, fresh, Runs::random(thorough(64, 640)));
}

/// A suite that could not fail would show nothing.
#[test]
#[should_panic(expected = "other and first: lists after operation 10,")]
fn a_store_that_has_one_session_more_is_found_out() {
    let stores = [MemoryStore::default(), MemoryStore::default()].map(Arc::new);
    let [first, other] = &stores;
    futures_executor::block_on(other.create(NewSession::default())).unwrap();
    long_sequence_agrees(
        &[("first", first.clone()), ("other", other.clone())],
        Sequence { operations: 10, seed: 1, lists_every: 10, all_every: 10 },
    );
}
