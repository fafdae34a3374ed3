//! What a turn reports while it runs, and its result.

use std::path::PathBuf;

use azureal_core::agent::{AgentError, AgentOutput, CacheSeen};
use azureal_core::event::{Complete, Outcome};
use azureal_core::{Holder, Seq, SessionId, SessionRecord, StoreError};
use azureal_process::{FollowError, ProcessIdentity};
use futures_channel::oneshot;

use crate::bridge::Control;
use crate::context_commands::CommandProgress;
use crate::gather::GatherError;
use crate::header::SpooledTurn;
use crate::ingest::IngestError;
use crate::own_record::Noted;
use crate::recover::Recovered;
use crate::request::{PlanError, TurnOptions};
use crate::session_lease::LeaseError;
use crate::spool::SpoolError;

/// Something that happens to a turn.
///
/// The order is: waiting and recovery, [`Accepted`](Self::Accepted), the context commands and a compaction, then
/// [`Began`](Self::Began), the outputs and [`Stored`](Self::Stored), once for each start of the agent. Notices come at any time.
#[derive(Debug)]
#[non_exhaustive]
pub enum TurnEvent {
    /// Another process runs a turn in the session. Repeated while this turn waits.
    Waiting(Busy),
    /// An interrupted turn was found, and perhaps stored.
    Recovered(Box<Recovered>),
    /// An agent of the session still runs, though its azureal does not. This turn waits for it; a cancel stops it. The outputs
    /// that follow are this agent's.
    Following(Box<SpooledTurn>),
    /// The original AZUREAL program noted a run in the session.
    OriginalRun(Box<OriginalRunEvent>),
    /// The turn has its session and its lease, and the agent is chosen.
    Accepted(Box<Accepted>),
    /// Progress of the context commands.
    Command(Box<CommandProgress>),
    /// The session is too long, and this agent is asked for a summary.
    Summarising {
        /// The agent.
        agent: String,
    },
    /// This agent gave no usable summary.
    NotSummarised {
        /// The agent.
        agent: String,
        /// The reason.
        why: String,
    },
    /// The agent runs.
    Began(Box<Began>),
    /// The output of the agent: a fact that is stored, or something that is only shown.
    Output(Box<AgentOutput>),
    /// The turn, or its first part before a compaction, is in the store.
    Stored(Box<FinishedTurn>),
    /// Something that the user should know.
    Notice(String),
}

/// A turn with its session and its lease.
#[derive(Debug)]
pub struct Accepted {
    /// The session.
    pub record: SessionRecord,
    /// Whether the session was created for this turn.
    pub is_new: bool,
    /// The name of the agent.
    pub agent: &'static str,
    /// The model that is asked for; `None` for the agent's own choice.
    pub model: Option<String>,
    /// The model that will probably answer though none is asked for: the one that answered last.
    pub expected_model: Option<String>,
}

/// A run of an agent.
#[derive(Debug)]
pub struct Began {
    /// The name of the run.
    pub run: String,
    /// The prompt that the agent answers, as the user typed it; if it continues, what it is sent instead.
    pub prompt: String,
    /// The agent's process.
    pub process: ProcessIdentity,
    /// Answers its questions; `None` for an agent that asks none.
    pub control: Option<Control>,
    /// Whether it continues a turn after a compaction.
    pub continues: bool,
    /// The session, without this turn.
    pub record: SessionRecord,
}

/// A run that the original AZUREAL program noted and never stored.
#[derive(Debug)]
pub enum OriginalRunEvent {
    /// It may still be running: its transcript changed so long ago.
    Running {
        /// The session.
        session: SessionId,
        /// The age of the last change.
        idle: std::time::Duration,
    },
    /// It was abandoned. The turn waits for an answer whether to recover it; a dropped question is a no.
    Abandoned {
        /// The session.
        session: SessionId,
        /// The age of the last change.
        idle: std::time::Duration,
        /// The kind of transcript that it can be recovered from.
        record: &'static str,
        /// Takes the answer.
        answer: oneshot::Sender<bool>,
    },
    /// It was recovered, or not, as the user wanted.
    Recovered {
        /// The session.
        session: SessionId,
        /// What came of it.
        noted: Result<Noted, IngestError>,
    },
}

/// A turn of another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// The session.
    pub session: SessionId,
    /// The holder of the lease, if it is known.
    pub holder: Option<Holder>,
    /// The place where it runs.
    pub place: BusyPlace,
}

/// The place of a turn of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusyPlace {
    /// This machine.
    Here,
    /// An agent's own interface on this machine, in which the session is open.
    Interface,
    /// Another machine, or another folder of spools on this one.
    Elsewhere,
}

/// A turn that is in the store.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedTurn {
    /// The session that it is in.
    pub session: SessionId,
    /// The session that it was meant for, if another process acquired that one meanwhile: it is in a fork of it.
    pub instead_of: Option<SessionId>,
    /// Its first event, before a compaction in the middle of it if there was one; `None` if it had been stored before.
    pub first: Option<Seq>,
    /// Its last event.
    pub last: Option<Seq>,
    /// How it ended.
    pub complete: Complete,
    /// The file with the whole output, kept because not all of it could be stored.
    pub kept: Option<PathBuf>,
    /// The tools that the agent was refused, one entry for each call.
    pub refused: Vec<String>,
    /// What became of breakpoints for the provider's prompt cache.
    pub cache: CacheSeen,
    /// The size of the session's context with this turn, in characters.
    pub context_chars: u64,
    /// The same in tokens, if the provider counted them.
    pub context_tokens: Option<u64>,
}

/// Why a turn is not in the store, or not where it belongs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The folder of the spools cannot be used.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The options could not be chosen.
    #[error(transparent)]
    Plan(PlanError),
    /// The agent needs a bridge, and no program is named that can be one.
    #[error("{agent} needs a bridge, and no program is named that can be one")]
    NoBridge {
        /// The agent.
        agent: &'static str,
    },
    /// The agent cannot run so. Nothing was stored.
    #[error(transparent)]
    Refused(#[from] AgentError),
    /// Another session has the name.
    #[error("{session} is already called {name:?}")]
    NameTaken {
        /// The name.
        name: String,
        /// The session that has it.
        session: SessionId,
    },
    /// Another process runs a turn in the session.
    #[error("a turn of {} is running", .0.session)]
    Busy(Busy),
    /// The turn was cancelled while it waited for another one.
    #[error("cancelled while a turn of {} was running", .0.session)]
    GaveUpWaiting(Busy),
    /// The agent that was still running in the session was stopped by a cancel, and the turn did not begin.
    #[error("the turn of {session} was cancelled")]
    Stopped {
        /// The session.
        session: SessionId,
    },
    /// An earlier turn of the session is not stored, and may be stored later: then it would stand behind this one, which did not
    /// begin.
    #[error("an earlier turn of {session} is not stored: {}", reason(.source))]
    Unstored {
        /// The session.
        session: SessionId,
        /// The output of the earlier turn.
        spool: PathBuf,
        /// The reason.
        source: IngestError,
    },
    /// A context command refused the turn, or the gathering of the first turn of a session was stopped. Nothing was stored.
    #[error("the context could not be gathered")]
    NotGathered {
        /// The outcome of the turn, if it was stopped meanwhile.
        outcome: Option<Outcome>,
        /// The reason.
        source: GatherError,
    },
    /// The turn did not begin: nothing was sent, and the prompt is not kept.
    #[error("the turn could not be begun")]
    NotBegun(#[source] GatherError),
    /// The agent was stopped to compact the session, and could not be started again.
    #[error("the turn could not be continued")]
    NotContinued {
        /// The session.
        session: SessionId,
        /// The reason.
        source: GatherError,
    },
    /// The turn is not in the store. Its output is kept.
    #[error(transparent)]
    NotStored(IngestError),
    /// The turn is not in the store, and its output was deleted.
    #[error(transparent)]
    OutputLost(IngestError),
    /// The thread of the turn ended without a result.
    #[error("the turn was lost")]
    Lost,
}

/// Returns why a turn is not stored, with what the system says of a file that cannot be read.
fn reason(error: &IngestError) -> String {
    match error {
        IngestError::Output(FollowError::Unreadable { source, .. }) => format!("{error}: {source}"),
        _ => error.to_string(),
    }
}

impl From<LeaseError> for TurnError {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::Spool(error) => Self::Spool(error),
            LeaseError::Store(error) => Self::Store(error),
        }
    }
}

impl Accepted {
    pub(crate) fn of(record: &SessionRecord, is_new: bool, options: &TurnOptions) -> Self {
        let agent = options.agent.name();
        let counts = &record.counts;
        let asks_none = counts.requested_model.is_none() && options.model.is_none();
        let answered_last = counts.agent.as_deref() == Some(agent) && asks_none;
        Self {
            is_new,
            agent,
            model: options.model.clone(),
            expected_model: counts.model.clone().filter(|_| answered_last && !is_new),
            record: record.clone(),
        }
    }
}
