//! A session that is read from another program or store.

use azureal_core::{Compaction, Tokens, TurnTotals};

use super::Counted;
use super::event_texts::EventTexts;
use super::problem::{ImportNotice, ImportProblem};
use crate::identity::SessionIdentity;

/// A session from another program or store, as [`import_session`](super::import_session()) takes it.
#[derive(Debug)]
pub struct IncomingSession {
    /// The file or store, and the session in it.
    pub(crate) label: String,
    pub(crate) identity: SessionIdentity,
    /// The name in the source. After the import, the name in the store.
    pub(crate) name: Option<String>,
    /// The time at which it got this name, in the format of the source; `None` if the source does not have it.
    pub(crate) named_at: Option<String>,
    /// The worktree of the session, in azureal's own formats.
    pub(crate) worktree: Option<String>,
    /// The creation time, in the format of the source.
    pub(crate) created_at: Option<String>,
    /// The time of the last activity, in the format of the source; `None` if the source does not have it.
    pub(crate) last_active: Option<String>,
    pub(crate) texts: EventTexts,
    /// Summaries. The place of each is a number of readable events.
    pub(crate) compactions: Vec<Compaction>,
    pub(crate) tokens: Tokens,
    /// The outcome of the last turn, and the sums over all turns.
    pub(crate) totals: TurnTotals,
    pub(crate) notices: Vec<ImportNotice>,
    pub(crate) problems: Vec<ImportProblem>,
}

impl IncomingSession {
    /// Returns the file or store, and the session in it, for people.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the number of events.
    pub fn events(&self) -> usize {
        self.texts.count
    }

    /// Returns the sums over all turns.
    pub(super) fn counted(&self) -> Counted {
        Counted::new(self.tokens, self.totals.cost_usd, self.totals.duration_ms)
    }

    /// Returns the deliberate changes of the import.
    pub fn notices(&self) -> &[ImportNotice] {
        &self.notices
    }

    /// Returns the parts that cannot be imported as they are.
    pub fn problems(&self) -> &[ImportProblem] {
        &self.problems
    }
}
