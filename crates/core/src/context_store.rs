//! One conversation as a list of messages: the seam that other programs implement.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use async_trait::async_trait;

use crate::{Message, Role, StoreError, Tokens};

/// One conversation, as messages.
///
/// Two methods must be written. The others have defaults that suit a store that only stores messages. Override a
/// default if the store can do better.
///
/// ```
/// # futures_executor::block_on(async {
/// use std::sync::Mutex;
/// use azureal_core::{ContextStore, Message, StoreError, async_trait};
///
/// #[derive(Default)]
/// struct MyContextStore {
///     messages: Mutex<Vec<Message>>,
/// }
///
/// #[async_trait]
/// impl ContextStore for MyContextStore {
///     async fn append(&self, message: Message) -> Result<(), StoreError> {
///         self.messages.lock().unwrap().push(message);
///         Ok(())
///     }
///     async fn get_history(&self) -> Result<Vec<Message>, StoreError> {
///         Ok(self.messages.lock().unwrap().clone())
///     }
/// }
///
/// let store = MyContextStore::default();
/// assert_eq!(store.session_id().len(), 32); // a UUID
/// assert!(store.clear().await.is_err());
/// # });
/// ```
///
/// A Rust trait has no fields, so the default id is derived from the value's address in memory. It stays the same
/// until the store is moved, and a later store at the same address gets the same id. For an id that moves with the
/// store, hold a [`SessionKey`] and return it from [`session_key`](Self::session_key).
///
/// Errors of other crates become [`StoreError::Other`]: those of the standard library and of `serde_json` by `?` alone, any other by
/// `map_err(StoreError::other)?`.
#[async_trait]
pub trait ContextStore: Send + Sync {
    /// Appends a message.
    async fn append(&self, message: Message) -> Result<(), StoreError>;

    /// Returns the messages, oldest first.
    async fn get_history(&self) -> Result<Vec<Message>, StoreError>;

    /// Returns the field that holds the conversation's id. By default there is none.
    fn session_key(&self) -> Option<&SessionKey> {
        None
    }

    /// Returns the conversation's id, which stays the same.
    fn session_id(&self) -> Cow<'_, str> {
        match self.session_key() {
            Some(key) => Cow::Borrowed(key.as_str()),
            None => Cow::Owned(id_of_place(std::ptr::from_ref(self).cast::<()>().addr())),
        }
    }

    /// Removes all messages and sets the token totals to 0. By default this is not supported.
    async fn clear(&self) -> Result<(), StoreError> {
        Err(StoreError::NotSupported("clear"))
    }

    /// Creates an independent conversation of the same messages and token totals, with a new id. By default it is in
    /// memory.
    async fn fork(&self) -> Result<Box<dyn ContextStore>, StoreError> {
        let fork = MemoryContextStore::new(self.get_history().await?);
        let (input, output) = self.get_context_tokens().await?;
        fork.set_context_tokens(input, output).await?;
        Ok(Box::new(fork))
    }

    /// Releases the resources of the store. By default there are none.
    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Overwrites the token totals. By default they are not stored. A store that also counts cached tokens sets those
    /// to 0, because the share of cached input is unknown.
    async fn set_context_tokens(&self, _input_tokens: u64, _output_tokens: u64) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the token totals, input and output. By default both are 0.
    async fn get_context_tokens(&self) -> Result<(u64, u64), StoreError> {
        Ok((0, 0))
    }

    /// Adds to the token totals, by way of getting and setting them. A store that also counts tokens of a cache should
    /// leave those as they are: the added input was not cached.
    async fn add_context_tokens(&self, input_tokens: u64, output_tokens: u64) -> Result<(), StoreError> {
        let (input, output) = self.get_context_tokens().await?;
        self.set_context_tokens(input.saturating_add(input_tokens), output.saturating_add(output_tokens))
            .await
    }

    /// Returns the conversations of the store, newest first. By default it knows only this one.
    async fn list_sessions(&self) -> Result<Vec<SessionInfo>, StoreError> {
        let history = self.get_history().await?;
        let (input_tokens, output_tokens) = self.get_context_tokens().await?;
        Ok(vec![SessionInfo {
            session_id: self.session_id().into_owned(),
            message_count: history.len() as u64,
            preview: preview(&history),
            created_at: String::new(),
            input_tokens,
            output_tokens,
        }])
    }

    /// Puts a summary over the beginning of the conversation: from then on [`get_history`](Self::get_history) returns
    /// the summary instead. `beginning` is the summarised part, as `get_history` returned it. By default a store has
    /// no summaries.
    ///
    /// Changes nothing if the conversation no longer begins with `beginning`.
    async fn lay_summary(&self, _beginning: &[Message], _summary: &str) -> Result<Laid, StoreError> {
        Ok(Laid::NotSupported)
    }

    /// Creates a store that holds these messages.
    ///
    /// ```
    /// # futures_executor::block_on(async {
    /// use azureal_core::{ContextStore, MemoryContextStore, Message};
    ///
    /// let ctx = MemoryContextStore::from_history([Message::user("hello")].to_vec()).await?;
    /// let ctx2 = MemoryContextStore::from_context(&ctx).await?;
    /// assert_eq!(ctx2.get_history().await?, ctx.get_history().await?);
    /// # Ok::<(), azureal_core::StoreError>(())
    /// # }).unwrap();
    /// ```
    async fn from_history(messages: Vec<Message>) -> Result<Self, StoreError>
    where
        Self: Sized + Default,
    {
        let store = Self::default();
        for message in messages {
            store.append(message).await?;
        }
        Ok(store)
    }

    /// Creates a store that holds the messages of another.
    async fn from_context(other: &dyn ContextStore) -> Result<Self, StoreError>
    where
        Self: Sized + Default,
    {
        Self::from_history(other.get_history().await?).await
    }
}

/// The result of putting a summary over a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Laid {
    /// It is kept, and shown from now on.
    Kept,
    /// The store has no summaries.
    NotSupported,
    /// The conversation no longer begins with the summarised messages.
    Changed,
}

/// Returns the id of a store without a key: a UUID of this process and the store's address.
fn id_of_place(address: usize) -> String {
    static PROCESS: OnceLock<u128> = OnceLock::new();
    let process = PROCESS.get_or_init(|| uuid::Uuid::new_v4().as_u128());
    uuid::Uuid::from_u128(process ^ address as u128).simple().to_string()
}

/// A conversation's id: a given one, or a UUID that is created at its first use.
#[derive(Debug, Default)]
pub struct SessionKey(OnceLock<String>);

impl SessionKey {
    /// Holds this id.
    pub fn of(id: impl Into<String>) -> Self {
        Self(OnceLock::from(id.into()))
    }

    /// Returns the id.
    pub fn as_str(&self) -> &str {
        self.0.get_or_init(|| uuid::Uuid::new_v4().simple().to_string())
    }
}

/// A conversation as it is listed.
///
/// ```
/// use azureal_core::SessionInfo;
///
/// let info = SessionInfo {
///     session_id: "abc123".into(),
///     message_count: 10,
///     preview: "What is the capital of France?".into(),
///     created_at: "2024-01-15 10:30:00".into(),
///     input_tokens: 1500,
///     output_tokens: 300,
/// };
/// assert_eq!(info.session_id, "abc123");
/// assert_eq!(info.message_count, 10);
/// assert_eq!(SessionInfo::default().input_tokens, 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionInfo {
    /// The conversation's id.
    pub session_id: String,
    /// The number of messages.
    pub message_count: u64,
    /// The beginning of the first user message, at most 80 characters; empty if there is none.
    pub preview: String,
    /// The time of its creation, in ISO 8601; empty in the memory store.
    pub created_at: String,
    /// Tokens sent, in all.
    pub input_tokens: u64,
    /// Tokens received, in all.
    pub output_tokens: u64,
}

fn preview(history: &[Message]) -> String {
    history
        .iter()
        .find(|message| message.role == Role::User)
        .and_then(Message::first_text)
        .map(|text| text.chars().take(80).collect())
        .unwrap_or_else(String::new)
}

/// A conversation in memory, which ends with the process. For tests, prototypes and short runs.
///
/// ```
/// # futures_executor::block_on(async {
/// use azureal_core::{ContextStore, MemoryContextStore, Message, Role};
///
/// let ctx = MemoryContextStore::default();
/// ctx.append(Message::user("Hello")).await?;
/// ctx.append(Message::assistant("Hi!")).await?;
/// let history = ctx.get_history().await?;
/// assert_eq!(history.len(), 2);
/// assert_eq!(history[0].role, Role::User);
///
/// let fork = ctx.fork().await?;
/// fork.append(Message::user("(branch)")).await?;
/// assert_eq!(ctx.get_history().await?.len(), 2); // the original is unchanged
/// assert_eq!(fork.get_history().await?.len(), 3);
///
/// ctx.add_context_tokens(100, 50).await?;
/// ctx.add_context_tokens(200, 80).await?;
/// assert_eq!(ctx.get_context_tokens().await?, (300, 130));
/// ctx.close().await?;
/// # Ok::<(), azureal_core::StoreError>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct MemoryContextStore {
    key: SessionKey,
    state: Mutex<MemoryState>,
}

#[derive(Debug, Default)]
struct MemoryState {
    messages: Vec<Message>,
    tokens: Tokens,
}

impl MemoryContextStore {
    /// Creates a conversation of these messages.
    pub fn new(messages: Vec<Message>) -> Self {
        Self {
            key: SessionKey::default(),
            state: Mutex::new(MemoryState { messages, tokens: Tokens::default() }),
        }
    }

    /// Locks the state. No code panics while it holds the lock, so the state of a poisoned lock is whole.
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ContextStore for MemoryContextStore {
    fn session_key(&self) -> Option<&SessionKey> {
        Some(&self.key)
    }

    async fn append(&self, message: Message) -> Result<(), StoreError> {
        self.state().messages.push(message);
        Ok(())
    }

    async fn get_history(&self) -> Result<Vec<Message>, StoreError> {
        Ok(self.state().messages.clone())
    }

    async fn clear(&self) -> Result<(), StoreError> {
        *self.state() = MemoryState::default();
        Ok(())
    }

    async fn set_context_tokens(&self, input: u64, output: u64) -> Result<(), StoreError> {
        self.state().tokens = Tokens::new(input, output);
        Ok(())
    }

    async fn get_context_tokens(&self) -> Result<(u64, u64), StoreError> {
        let Tokens { input, output, .. } = self.state().tokens;
        Ok((input, output))
    }

    async fn add_context_tokens(&self, input: u64, output: u64) -> Result<(), StoreError> {
        // In one step, unlike the default: two who add at once both count.
        let mut state = self.state();
        state.tokens = state.tokens + Tokens::new(input, output);
        Ok(())
    }
}

/// A pointer to a store is a store, so that a program can choose one at run time.
macro_rules! forward_to_inner {
    ($pointer:ty) => {
        #[async_trait]
        impl<C: ContextStore + ?Sized> ContextStore for $pointer {
            async fn append(&self, message: Message) -> Result<(), StoreError> {
                (**self).append(message).await
            }
            async fn get_history(&self) -> Result<Vec<Message>, StoreError> {
                (**self).get_history().await
            }
            fn session_key(&self) -> Option<&SessionKey> {
                (**self).session_key()
            }
            fn session_id(&self) -> Cow<'_, str> {
                (**self).session_id()
            }
            async fn clear(&self) -> Result<(), StoreError> {
                (**self).clear().await
            }
            async fn fork(&self) -> Result<Box<dyn ContextStore>, StoreError> {
                (**self).fork().await
            }
            async fn close(&self) -> Result<(), StoreError> {
                (**self).close().await
            }
            async fn set_context_tokens(&self, input: u64, output: u64) -> Result<(), StoreError> {
                (**self).set_context_tokens(input, output).await
            }
            async fn get_context_tokens(&self) -> Result<(u64, u64), StoreError> {
                (**self).get_context_tokens().await
            }
            async fn add_context_tokens(&self, input: u64, output: u64) -> Result<(), StoreError> {
                (**self).add_context_tokens(input, output).await
            }
            async fn list_sessions(&self) -> Result<Vec<SessionInfo>, StoreError> {
                (**self).list_sessions().await
            }
            async fn lay_summary(&self, beginning: &[Message], summary: &str) -> Result<Laid, StoreError> {
                (**self).lay_summary(beginning, summary).await
            }
        }
    };
}

forward_to_inner!(Box<C>);
forward_to_inner!(std::sync::Arc<C>);
