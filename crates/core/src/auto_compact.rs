//! A conversation that compacts itself.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::compact_context::{compacted, covered_messages, summarise};
use crate::{
    CompactError, ContextStore, KEEP_RECENT, Laid, Message, SUMMARY_PROMPT, SessionInfo, SessionKey,
    StoreError, Transport,
};

/// The part of a model's context window that may be used before a conversation is compacted.
const THRESHOLD: f64 = 0.75;
/// The context window of a model that does not say.
const UNKNOWN_WINDOW: u64 = 128_000;

/// Wraps any [`ContextStore`] and summarises its older part when the context has become large.
///
/// An agent loop reports the input tokens of each iteration with
/// [`add_context_tokens`](ContextStore::add_context_tokens): they are the size of the sent context. If they exceed
/// the limit, the call compacts the conversation before it returns.
///
/// ```
/// # futures_executor::block_on(async {
/// use std::sync::Arc;
/// use azureal_core::{AutoCompactStore, ContextStore, MemoryContextStore, Message, StubTransport};
///
/// # let transport = Arc::new(StubTransport::new(["They built a rate limiter."]));
/// let store = AutoCompactStore::new(MemoryContextStore::default(), transport) // that of the agent
///     .keep_recent(6) // this many messages stay verbatim
///     .threshold(0.75); // compacts at 75 % of the context window
/// for i in 0..20 {
///     store.append(Message::user(format!("Message {i}"))).await?;
/// }
/// store.add_context_tokens(96_000, 500).await?; // 75 % of 128 000, the window of a model that does not say
/// assert_eq!(store.get_history().await?.len(), 20);
/// store.add_context_tokens(96_001, 500).await?;
/// assert_eq!(store.get_history().await?.len(), 8); // summary, acknowledgement, and 6 messages
/// assert_eq!(store.get_context_tokens().await?, (192_001, 1000));
/// # Ok::<(), azureal_core::StoreError>(())
/// # }).unwrap();
/// ```
///
/// `max_tokens` sets the limit directly:
///
/// ```
/// use std::sync::Arc;
/// use azureal_core::{AutoCompactStore, MemoryContextStore, StubTransport};
///
/// let inner_store = MemoryContextStore::default();
/// let transport = Arc::new(StubTransport::default());
/// let store = AutoCompactStore::new(inner_store, transport).max_tokens(60_000);
/// # drop(store);
/// ```
///
/// **No message is lost.** The messages of the inner store are never removed or rewritten. A store with summaries of
/// its own, such as a [`SessionContext`](crate::SessionContext), stores the summary
/// ([`lay_summary`](ContextStore::lay_summary)). For any other the summary is held here, with the number of messages
/// that it covers. The summary is written from a copy, so callers can append meanwhile. If the summary fails, the
/// conversation stays as it is and no call fails; [`last_failure`](Self::last_failure) returns the error.
pub struct AutoCompactStore<C: ContextStore> {
    inner: C,
    settings: Settings,
    overlay: Mutex<Option<Overlay>>,
    compacting: AtomicBool,
    last_failure: Mutex<Option<CompactError>>,
}

#[derive(Clone)]
struct Settings {
    transport: Arc<dyn Transport>,
    keep_recent: usize,
    threshold: f64,
    max_tokens: Option<u64>,
    system_prompt: Arc<str>,
}

/// A summary that stands for the first messages of the inner store.
#[derive(Debug, Clone)]
struct Overlay {
    summary: String,
    covered: usize,
}

impl<C: ContextStore> AutoCompactStore<C> {
    /// Wraps a store. `transport` writes the summaries; one that is used elsewhere too is passed as an `Arc`.
    pub fn new(inner: C, transport: impl Transport + 'static) -> Self {
        let settings = Settings {
            transport: Arc::new(transport),
            keep_recent: KEEP_RECENT,
            threshold: THRESHOLD,
            max_tokens: None,
            system_prompt: SUMMARY_PROMPT.into(),
        };
        Self::with(inner, settings, None)
    }

    fn with(inner: C, settings: Settings, overlay: Option<Overlay>) -> Self {
        Self {
            inner,
            settings,
            overlay: Mutex::new(overlay),
            compacting: AtomicBool::new(false),
            last_failure: Mutex::new(None),
        }
    }

    /// Sets the number of newest messages that stay as they are.
    #[must_use]
    pub fn keep_recent(mut self, messages: usize) -> Self {
        self.settings.keep_recent = messages;
        self
    }

    /// Sets the part of the model's context window that may be used.
    #[must_use]
    pub fn threshold(mut self, part: f64) -> Self {
        self.settings.threshold = part;
        self
    }

    /// Sets the limit of input tokens, regardless of the model and the threshold.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u64) -> Self {
        self.settings.max_tokens = Some(tokens);
        self
    }

    /// Sets the prompt of the model that writes the summary.
    #[must_use]
    pub fn system_prompt(mut self, prompt: &str) -> Self {
        self.settings.system_prompt = prompt.into();
        self
    }

    /// Creates a fork with the same settings and the same summary. [`ContextStore::fork`] returns the same without its type.
    pub async fn fork_compacting(&self) -> Result<AutoCompactStore<Box<dyn ContextStore>>, StoreError> {
        let overlay = lock(&self.overlay).clone();
        let inner = self.inner.fork().await?;
        Ok(AutoCompactStore::with(inner, self.settings.clone(), overlay))
    }

    /// Returns why the last compaction did not happen, once.
    pub fn last_failure(&self) -> Option<CompactError> {
        lock(&self.last_failure).take()
    }

    /// Compacts the conversation now, at any size; returns whether there was anything to summarise.
    ///
    /// One compaction runs at a time: if another one is running, that one counts.
    pub async fn compact(&self) -> Result<bool, CompactError> {
        if self.compacting.swap(true, Ordering::SeqCst) {
            return Ok(false);
        }
        // Also when this future is dropped half-way.
        let _ended = Ended(&self.compacting);
        let Settings { transport, keep_recent, system_prompt, .. } = &self.settings;
        let (messages, overlay) = self.read().await?;
        let history = shown(messages.clone(), overlay.as_ref());
        let Some(covered) = covered_messages(&history, *keep_recent) else { return Ok(false) };
        let summary = summarise(&history, covered, transport.as_ref(), system_prompt).await?;
        let beginning = history.get(..covered).unwrap_or(&history);
        match self.inner.lay_summary(beginning, &summary).await? {
            Laid::Kept => return Ok(true),
            Laid::Changed => return Err(CompactError::Changed),
            Laid::NotSupported => {}
        }
        // Counted from the end: what stays as it is, is the same in both views.
        let stay = history.len() - covered;
        let covered = messages.len() - stay.min(messages.len());
        let now = self.inner.get_history().await?;
        if now.get(..covered) != messages.get(..covered) {
            return Err(CompactError::Changed);
        }
        *lock(&self.overlay) = Some(Overlay { summary, covered });
        Ok(true)
    }

    /// Reads the inner messages, and what is laid over them.
    async fn read(&self) -> Result<(Vec<Message>, Option<Overlay>), StoreError> {
        // In this order: an overlay stays true when messages are added.
        let overlay = lock(&self.overlay).clone();
        let messages = self.inner.get_history().await?;
        // The inner store was cleared: the summary covers no messages any more.
        let overlay = overlay.filter(|overlay| overlay.covered <= messages.len());
        Ok((messages, overlay))
    }

    fn limit(&self) -> u64 {
        let Settings { transport, threshold, max_tokens, .. } = &self.settings;
        let window = transport.context_window().unwrap_or(UNKNOWN_WINDOW);
        // Saturates, and no number at all is 0: then every iteration is one too many, which is seen at once.
        max_tokens.unwrap_or((window as f64 * threshold) as u64)
    }
}

fn shown(messages: Vec<Message>, overlay: Option<&Overlay>) -> Vec<Message> {
    match overlay {
        Some(Overlay { summary, covered }) => compacted(messages, *covered, summary),
        None => messages,
    }
}

/// Marks the compaction as finished when it is dropped.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Locks a mutex. No code panics while it holds a lock, so the state of a poisoned one is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl<C: ContextStore> ContextStore for AutoCompactStore<C> {
    async fn append(&self, message: Message) -> Result<(), StoreError> {
        self.inner.append(message).await
    }

    async fn get_history(&self) -> Result<Vec<Message>, StoreError> {
        let (messages, overlay) = self.read().await?;
        Ok(shown(messages, overlay.as_ref()))
    }

    fn session_key(&self) -> Option<&SessionKey> {
        self.inner.session_key()
    }

    fn session_id(&self) -> Cow<'_, str> {
        self.inner.session_id()
    }

    async fn clear(&self) -> Result<(), StoreError> {
        self.inner.clear().await?;
        *lock(&self.overlay) = None;
        Ok(())
    }

    async fn fork(&self) -> Result<Box<dyn ContextStore>, StoreError> {
        Ok(Box::new(self.fork_compacting().await?))
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }

    async fn set_context_tokens(&self, input: u64, output: u64) -> Result<(), StoreError> {
        self.inner.set_context_tokens(input, output).await
    }

    async fn get_context_tokens(&self) -> Result<(u64, u64), StoreError> {
        self.inner.get_context_tokens().await
    }

    async fn add_context_tokens(&self, input: u64, output: u64) -> Result<(), StoreError> {
        self.inner.add_context_tokens(input, output).await?;
        if input > self.limit()
            && let Err(failure) = self.compact().await
        {
            *lock(&self.last_failure) = Some(failure);
        }
        Ok(())
    }

    async fn list_sessions(&self) -> Result<Vec<SessionInfo>, StoreError> {
        self.inner.list_sessions().await
    }

    async fn lay_summary(&self, beginning: &[Message], summary: &str) -> Result<Laid, StoreError> {
        self.inner.lay_summary(beginning, summary).await
    }
}
