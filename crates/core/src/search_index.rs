//! The search index of a store: which events have which words, or which parts of a text.
//!
//! An index is a cache. It holds tokens and the places of events, not the text; what it finds is read from the store and compared with
//! the query. So an index that is behind, or wrong, costs time and never an answer. `azureal-search` makes the tokens, and brings an
//! index up to date.

use async_trait::async_trait;

use crate::{Seq, SessionId, StoreError, WorktreeFilter};

/// An index of the tokens of events.
#[async_trait]
pub trait SearchIndex: Send + Sync {
    /// Returns the sort of its tokens.
    fn kind(&self) -> IndexKind {
        IndexKind::Words
    }

    /// Returns the number of sessions that are indexed, as far as they are.
    async fn sessions(&self) -> Result<u64, StoreError>;

    /// Returns how far sessions are indexed: these, or all. Sessions that are not indexed are left out.
    async fn states(
        &self,
        sessions: Option<&[SessionId]>,
    ) -> Result<Vec<(SessionId, IndexState)>, StoreError>;

    /// Adds parts of sessions, each whole or not at all, and returns for each whether it was added. A part is left out if the state of
    /// its session is not [`IndexPart::before`]: another process was faster.
    async fn put(&self, parts: Vec<IndexPart>) -> Result<Vec<bool>, StoreError>;

    /// Removes sessions.
    async fn remove(&self, sessions: &[SessionId]) -> Result<(), StoreError>;

    /// Returns events that may match, the ones that were indexed last first. No event that matches is left out, up to the limit.
    async fn find(&self, query: &IndexQuery) -> Result<Vec<IndexHit>, StoreError>;

    /// Returns whether every event that [`find`](Self::find) returns for this query matches, as far as the index is up to date.
    fn is_exact(&self, _query: &IndexQuery) -> bool {
        true
    }

    /// Returns when all sessions were last compared with the store, in seconds since 1970; `None` if that is unknown.
    async fn checked(&self) -> Result<Option<u64>, StoreError>;

    /// Compares the index with itself. Returns an error if it lacks events that it had: they are to be indexed again.
    async fn check(&self) -> Result<(), StoreError>;

    /// Notes that all sessions were compared with the store.
    async fn set_checked(&self, now: u64) -> Result<(), StoreError>;
}

/// The sorts of tokens that an index may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IndexKind {
    /// Words, in their order.
    Words,
    /// All three characters that follow each other, without their order.
    Substrings,
}

/// How far a session is indexed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexState {
    /// A hash of the session's record when its last event was indexed; 0 if events are left.
    pub stamp: u64,
    /// The last event that is indexed.
    pub through: Seq,
    /// A hash of that event.
    pub last: u64,
    /// [`SessionRecord::revision`](crate::SessionRecord::revision) without the events: a session that was cleared has a larger one.
    pub changes: u64,
    /// The agent that answered last.
    pub agent: Option<String>,
    /// The time of the session's last activity, in seconds since 1970.
    pub active: i64,
    /// The worktree of the session, as it is stored.
    pub worktree: String,
}

/// Events to be indexed: the next ones of a session, or its first ones.
#[derive(Debug, Clone)]
pub struct IndexPart {
    /// The session.
    pub session: SessionId,
    /// The state that the session must have; its events so far stay. `None` removes what is indexed of the session.
    pub before: Option<IndexState>,
    /// The state of the session with these events.
    pub after: IndexState,
    /// The events.
    pub events: Vec<IndexedEvent>,
}

/// The tokens of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedEvent {
    /// Its place in the session.
    pub seq: Seq,
    /// The role of its author.
    pub role: &'static str,
    /// The tool that it is about, in lower case.
    pub tool: Option<String>,
    /// The agent that ran, in lower case.
    pub agent: Option<String>,
    /// The tokens, with a space before and after each.
    pub tokens: String,
}

/// The version of the tokens. An index of another version is not used.
pub const TOKENS_VERSION: u32 = 3;

/// A query of an index. All conditions must hold.
#[derive(Debug, Clone)]
pub struct IndexQuery {
    /// The tokens. An index may return events in which the tokens of a phrase do not follow each other.
    pub condition: IndexCondition,
    /// One of these roles; all if empty.
    pub roles: Vec<&'static str>,
    /// One of these tools, in lower case; all if empty.
    pub tools: Vec<String>,
    /// None of these tools, in lower case.
    pub without_tools: Vec<String>,
    /// One of these agents, in lower case; all if empty.
    pub agents: Vec<String>,
    /// One of these sessions; all if `None`.
    pub sessions: Option<Vec<SessionId>>,
    /// Not this session.
    pub without: Option<SessionId>,
    /// A session of this worktree.
    pub worktree: Option<WorktreeFilter>,
    /// A session that was active at this time or later, in seconds since 1970.
    pub since: Option<i64>,
    /// At most so many events.
    pub limit: usize,
}

/// The tokens that an event must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexCondition {
    /// A phrase.
    Phrase(IndexPhrase),
    /// All of these, at least one.
    All(Vec<Self>),
    /// One of these.
    Any(Vec<Self>),
}

impl IndexCondition {
    /// Writes the condition as an expression with parentheses: a function writes a phrase, and these two words join conditions.
    pub fn write(&self, and: &str, or: &str, phrase: &dyn Fn(&IndexPhrase) -> String) -> String {
        let joined = |conditions: &[Self], word: &str| {
            let parts: Vec<String> =
                conditions.iter().map(|condition| condition.write(and, or, phrase)).collect();
            format!("({})", parts.join(word))
        };
        match self {
            Self::Phrase(wanted) => phrase(wanted),
            Self::All(conditions) => joined(conditions, and),
            Self::Any(conditions) => joined(conditions, or),
        }
    }

    /// Returns whether a test holds for one of the phrases.
    pub fn has(&self, test: &dyn Fn(&IndexPhrase) -> bool) -> bool {
        match self {
            Self::Phrase(phrase) => test(phrase),
            Self::All(conditions) | Self::Any(conditions) => {
                conditions.iter().any(|condition| condition.has(test))
            }
        }
    }
}

/// Tokens that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexPhrase {
    /// The tokens.
    pub tokens: Vec<String>,
    /// Whether the last one is the beginning of a token.
    pub is_prefix: bool,
}

/// An event that may match.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexHit {
    /// Its session.
    pub session: SessionId,
    /// Its place in the session.
    pub seq: Seq,
    /// The agent that ran, if it is known.
    pub agent: Option<String>,
    /// The time of the session's last activity, in seconds since 1970.
    pub active: i64,
    /// How well it matches, larger is better.
    pub score: f64,
}
