//! A direct request to a model: one completion from messages.
//!
//! Agents are programs that do a whole turn; a transport is one question and one answer. That is enough to write a
//! summary, so a caller with its own model implements this.

use std::collections::VecDeque;
use std::error::Error;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use async_trait::async_trait;

use crate::Message;

/// Answers messages with one message.
///
/// ```
/// use azureal_core::{Message, Transport, TransportError, async_trait};
///
/// struct Echo;
///
/// #[async_trait]
/// impl Transport for Echo {
///     fn model(&self) -> &str {
///         "echo"
///     }
///     async fn complete(&self, messages: &[Message]) -> Result<Message, TransportError> {
///         let last = messages.last().and_then(Message::first_text).ok_or("nothing was asked")?;
///         Ok(Message::assistant(last))
///     }
/// }
///
/// # futures_executor::block_on(async {
/// assert_eq!(Echo.complete(&[Message::user("Hello")]).await.unwrap(), Message::assistant("Hello"));
/// assert_eq!(Echo.context_window(), None);
/// # });
/// ```
#[async_trait]
pub trait Transport: Send + Sync {
    /// Returns the name of the model that answers.
    fn model(&self) -> &str;

    /// Returns the size of the model's context window in tokens, if it is known.
    fn context_window(&self) -> Option<u64> {
        None
    }

    /// Asks the model, and returns its answer. A leading message of role system instructs it.
    async fn complete(&self, messages: &[Message]) -> Result<Message, TransportError>;
}

/// A pointer to a transport is a transport, so that several users can share one.
macro_rules! forward_to_inner {
    ($pointer:ty) => {
        #[async_trait]
        impl<T: Transport + ?Sized> Transport for $pointer {
            fn model(&self) -> &str {
                (**self).model()
            }
            fn context_window(&self) -> Option<u64> {
                (**self).context_window()
            }
            async fn complete(&self, messages: &[Message]) -> Result<Message, TransportError> {
                (**self).complete(messages).await
            }
        }
    };
}

forward_to_inner!(Box<T>);
forward_to_inner!(std::sync::Arc<T>);

/// The reason why a model gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("the model gave no answer")]
pub struct TransportError {
    #[from]
    source: Box<dyn Error + Send + Sync>,
}

impl From<&str> for TransportError {
    fn from(why: &str) -> Self {
        Self { source: why.into() }
    }
}

/// A transport for tests: it gives these answers in order, and then an error.
///
/// It records its requests, and can delay its answers so that something else happens meanwhile.
///
/// ```
/// # futures_executor::block_on(async {
/// use azureal_core::{Message, StubTransport, Transport};
///
/// let transport = StubTransport::new(["A summary."]);
/// assert_eq!(transport.complete(&[Message::user("?")]).await.unwrap(), Message::assistant("A summary."));
/// assert!(transport.complete(&[]).await.is_err());
/// assert_eq!(transport.requests(), [vec![Message::user("?")], vec![]]);
/// # });
/// ```
#[derive(Debug, Default)]
pub struct StubTransport {
    state: Mutex<StubState>,
    context_window: Option<u64>,
    pauses: usize,
}

#[derive(Debug, Default)]
struct StubState {
    answers: VecDeque<String>,
    requests: Vec<Vec<Message>>,
}

impl StubTransport {
    /// Gives these answers.
    pub fn new<T: Into<String>>(answers: impl IntoIterator<Item = T>) -> Self {
        let answers = answers.into_iter().map(Into::into).collect();
        Self { state: Mutex::new(StubState { answers, requests: Vec::new() }), ..Self::default() }
    }

    /// Sets the size of the context window in tokens.
    #[must_use]
    pub fn with_context_window(mut self, tokens: u64) -> Self {
        self.context_window = Some(tokens);
        self
    }

    /// Makes each answer pending this many times before it is ready.
    #[must_use]
    pub fn with_pauses(mut self, pauses: usize) -> Self {
        self.pauses = pauses;
        self
    }

    /// Returns what was asked so far.
    pub fn requests(&self) -> Vec<Vec<Message>> {
        self.state().requests.clone()
    }

    fn state(&self) -> MutexGuard<'_, StubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Transport for StubTransport {
    fn model(&self) -> &str {
        "stub"
    }

    fn context_window(&self) -> Option<u64> {
        self.context_window
    }

    async fn complete(&self, messages: &[Message]) -> Result<Message, TransportError> {
        self.state().requests.push(messages.to_vec());
        let mut pauses = self.pauses;
        poll_fn(|context| match pauses.checked_sub(1) {
            Some(left) => {
                pauses = left;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(()),
        })
        .await;
        let answer = self.state().answers.pop_front();
        answer.map(Message::assistant).ok_or_else(|| "the stub has no answer left".into())
    }
}
