//! What a caller asks of the engine.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use azureal_core::agent::{Agent, AgentRequest, CacheSeen, Permission, PromptCache};
use azureal_core::{
    Beginning, ContextCommand, Keep, NewSession, SessionId, SessionRecord, SessionSnapshot, StoredEvent,
    Threshold,
};

use crate::changes::RecordChanges;
use crate::output_limit::OutputLimit;
use crate::recall::Recall;

/// A turn to run: a prompt, the session it belongs to, and how it is run.
#[derive(Clone)]
pub struct TurnRequest {
    /// The session.
    pub session: SessionTarget,
    /// The prompt.
    pub prompt: String,
    /// Where the store remembers the session as the last one used; `None` if it does not.
    pub used_in: Option<String>,
    /// Whether to wait while another process runs a turn in the session. Otherwise that is an error.
    pub waits: bool,
    /// How it is run.
    pub plan: TurnPlan,
}

impl TurnRequest {
    /// Creates the request of a turn with these options, which does not wait for others.
    pub fn new(session: impl Into<SessionTarget>, prompt: impl Into<String>, options: TurnOptions) -> Self {
        Self {
            session: session.into(),
            prompt: prompt.into(),
            used_in: None,
            waits: false,
            plan: Arc::new(move |_| Ok(options.clone())),
        }
    }
}

/// The session of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionTarget {
    /// This one.
    Existing(SessionId),
    /// A new one. If another session has its name, the turn does not begin.
    New(NewSession),
    /// The session of this name, which is created if there is none.
    Named(NewSession),
}

impl From<SessionId> for SessionTarget {
    fn from(session: SessionId) -> Self {
        Self::Existing(session)
    }
}

impl From<NewSession> for SessionTarget {
    fn from(new: NewSession) -> Self {
        Self::New(new)
    }
}

/// Chooses the options of a turn by the session. It is called before anything is created or acquired, and again if the session
/// has changed until its lease was acquired.
pub type TurnPlan = Arc<dyn Fn(&TurnStart<'_>) -> Result<TurnOptions, PlanError> + Send + Sync>;

/// An error of a [`TurnPlan`].
pub type PlanError = Box<dyn Error + Send + Sync>;

/// The session as a turn finds it.
#[derive(Debug, Clone, Copy)]
pub struct TurnStart<'a> {
    snapshot: Option<&'a SessionSnapshot>,
}

impl<'a> TurnStart<'a> {
    pub(crate) fn of(snapshot: Option<&'a SessionSnapshot>) -> Self {
        Self { snapshot }
    }

    /// Returns the record of the session; `None` if the session is not created yet.
    pub fn record(&self) -> Option<&'a SessionRecord> {
        self.snapshot.map(|snapshot| &snapshot.record)
    }

    /// Returns whether the session has a system message, and context in that.
    pub fn beginning(&self) -> Beginning {
        self.snapshot.map_or(Beginning::Nothing, |snapshot| snapshot.beginning)
    }

    /// Returns all events, if they have been read anyway.
    pub fn events(&self) -> Option<&'a [StoredEvent]> {
        self.snapshot.map_or(Some(&[]), SessionSnapshot::events)
    }
}

/// How a turn is run.
#[derive(Clone)]
pub struct TurnOptions {
    /// The agent.
    pub agent: &'static dyn Agent,
    /// The agent's program.
    pub program: PathBuf,
    /// The model; `None` for the agent's own choice.
    pub model: Option<String>,
    /// What the agent may do; `None` for its own default.
    pub permission: Option<Permission>,
    /// The longest time that the turn may take.
    pub timeout: Option<Duration>,
    /// How much the agent may print.
    pub output_limit: OutputLimit,
    /// What the agent receives besides the history.
    pub briefing: Briefing,
    /// How the session is compacted when it becomes too long; `None` if it is not.
    pub compaction: Option<CompactionOptions>,
    /// Further arguments for the agent's program, as the user typed them. Summaries are asked for without them.
    pub arguments: Vec<String>,
    /// How the history is sent.
    pub cache: PromptCache,
    /// Whether the git status follows a long history, if the agent's program would otherwise put it before the history.
    pub moves_git_status: bool,
    /// Called once with what became of breakpoints for the provider's prompt cache, when the turn is over.
    pub learn_cache: Option<LearnCache>,
    /// Whether the files that change are recorded.
    pub changes: RecordChanges,
    /// How the agent looks things up in the stored sessions; `None` if it cannot.
    pub recall: Option<Recall>,
    /// What the user should know of the choices. Reported before the turn is accepted.
    pub notices: Vec<String>,
}

/// Takes what became of breakpoints for the provider's prompt cache.
pub type LearnCache = Arc<dyn Fn(CacheSeen) + Send + Sync>;

impl TurnOptions {
    /// Returns what the agent is asked, without context and prompt.
    pub(crate) fn request(&self, in_git: bool) -> AgentRequest {
        AgentRequest {
            model: self.model.clone(),
            permission: self.permission,
            in_git,
            arguments: self.arguments.clone(),
            cache: self.cache,
            is_ephemeral: self.briefing.keeping == Keeping::Ephemeral,
            ..AgentRequest::default()
        }
    }

    /// Creates the options of a turn with an agent, everything else by default: no model is named, no timeout, no context
    /// commands, no compaction.
    pub fn new(agent: &'static dyn Agent, program: impl Into<PathBuf>) -> Self {
        Self {
            agent,
            program: program.into(),
            model: None,
            permission: None,
            timeout: None,
            output_limit: OutputLimit::default(),
            briefing: Briefing::default(),
            compaction: None,
            arguments: Vec::new(),
            cache: PromptCache::Off,
            moves_git_status: false,
            learn_cache: None,
            changes: RecordChanges::default(),
            recall: None,
            notices: Vec::new(),
        }
    }
}

/// What agents receive besides the history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Briefing {
    /// The prompt that a session begins with.
    pub system: Option<String>,
    /// The commands whose output belongs into the context.
    pub commands: Vec<ContextCommand>,
    /// Where it goes.
    pub keeping: Keeping,
}

/// Whether the beginning of a session is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keeping {
    /// As the first event of the session.
    #[default]
    Stored,
    /// Not at all: it stands in front of the prompt, like the output of every other command. The agent's program is to keep
    /// no transcript either.
    Ephemeral,
}

/// How a session is compacted.
#[derive(Clone)]
pub struct CompactionOptions {
    /// How large a session may become.
    pub threshold: Threshold,
    /// What stays as it is.
    pub keep: Keep,
    /// The agents that are asked for the summary, one after the other; without any, the digest is the summary.
    pub summarisers: Vec<Summariser>,
    /// The longest time that one agent may take.
    pub timeout: Duration,
}

/// An agent that can be asked for a summary.
#[derive(Clone)]
pub struct Summariser {
    /// The agent.
    pub agent: &'static dyn Agent,
    /// Its program.
    pub program: PathBuf,
    /// The model; `None` for the agent's own choice.
    pub model: Option<String>,
    /// The settings of its program, if the agent wants to know them.
    pub settings: Option<String>,
}
