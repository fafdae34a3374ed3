//! A conversation that is retrieved by keywords: a `ContextStore` of two methods, with the suite run on it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use azureal_core::{Block, ContextStore, Message, Role, StoreError, async_trait};

/// How many of the newest messages are always given back.
const NEWEST: usize = 32;

/// Gives back the newest messages, and the older ones that have to do with the question.
#[derive(Default)]
struct KeywordStore {
    messages: Mutex<Vec<Message>>,
}

#[async_trait]
impl ContextStore for KeywordStore {
    async fn append(&self, message: Message) -> Result<(), StoreError> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.push(message);
        Ok(())
    }

    async fn get_history(&self) -> Result<Vec<Message>, StoreError> {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let question = messages.iter().rfind(|message| message.role == Role::User);
        let wanted = question.map(keywords).unwrap_or_default();
        let (older, newest) = messages.split_at(messages.len().saturating_sub(NEWEST));
        let related = older.iter().filter(|message| !keywords(message).is_disjoint(&wanted));
        Ok(related.chain(newest).cloned().collect())
    }
}

/// Returns the words of a message that are long enough to mean something.
fn keywords(message: &Message) -> HashSet<String> {
    message
        .content
        .iter()
        .filter_map(Block::as_text)
        .flat_map(|text| text.split(|c: char| !c.is_alphanumeric()))
        .filter(|word| word.chars().count() > 3)
        .map(str::to_lowercase)
        .collect()
}

#[expect(clippy::disallowed_macros, reason = "an example prints")]
fn main() -> Result<(), StoreError> {
    // The suite, case by case; in a crate of your own it is
    // `context_store_contract!(keyword, async { (KeywordStore::default(), ()) })`.
    futures_executor::block_on(async {
        for case in azureal_testkit::CONTEXT_STORE_CASES {
            println!("{}", case.name());
            case.run(Arc::new(KeywordStore::default())).await;
        }
        azureal_testkit::context_store_from_history::<KeywordStore>().await;

        // And what the store is for.
        let store = KeywordStore::default();
        store.append(Message::user("The capital of France is Paris")).await?;
        store.append(Message::user("Crabs walk sideways")).await?;
        for number in 0..NEWEST {
            store.append(Message::assistant(format!("step {number}"))).await?;
        }
        store.append(Message::user("What was the capital again?")).await?;
        let history = store.get_history().await?;
        assert_eq!(history.len(), NEWEST + 1);
        assert_eq!(history.first(), Some(&Message::user("The capital of France is Paris")));
        Ok(())
    })
}

#[cfg(test)]
azureal_testkit::context_store_contract!(keyword, async { (KeywordStore::default(), ()) });
