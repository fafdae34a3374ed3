//! What an agent promises: a program that answers one prompt, described without running it.
//!
//! An agent says what to run and reads what was printed. It starts nothing, waits for nothing and keeps
//! nothing: the same description serves a turn that runs now, one whose output was found after a crash, and a
//! test that feeds it a recording.

use std::path::PathBuf;
use std::time::Duration;

use crate::bridge::{Answered, Exchange, Question};
use crate::event::{Outcome, Usage};
use crate::{ContextFrame, Event};

/// Who answers prompts: a program that answers one and exits, or one behind a [bridge](crate::bridge).
pub trait Agent: Send + Sync {
    /// Returns the name that it is chosen by, such as `claude`.
    fn name(&self) -> &'static str;

    /// Returns the program that is run.
    fn program(&self) -> Program;

    /// Says whether the agent answers for this model, so that a model's name is enough to choose it.
    fn answers_for(&self, model: &str) -> bool;

    /// Returns models that the agent is known for, to be offered to a person. It may have more.
    fn models(&self) -> &'static [&'static str] {
        &[]
    }

    /// Describes what the program needs besides being installed; `None` if it needs nothing else.
    fn needs(&self) -> Option<Needs> {
        None
    }

    /// Says what to run for a turn, and what to write to its standard input.
    fn command(&self, turn: &AgentRequest) -> Result<AgentCommand, AgentError>;

    /// Makes a reader for the output of one run.
    fn parser(&self) -> Box<dyn AgentParser>;

    /// Says whether the agent is behind a [bridge](crate::bridge): whether its commands have an exchange.
    fn is_bridged(&self) -> bool {
        false
    }

    /// Describes the record that the program itself keeps of its runs; nothing if it keeps none.
    fn own_record(&self) -> Option<OwnRecord> {
        None
    }

    /// Says whether the program itself puts a git status in front of what it is given. Every changed file then changes what
    /// stands before the history, and no prompt cache recognises it.
    fn tells_git_status(&self) -> bool {
        false
    }

    /// Says which file of the program's own settings [`command`](Self::command) wants to know; nothing if it needs none.
    fn own_settings(&self) -> Option<OwnSettings> {
        None
    }
}

/// What an agent's program needs before it can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The oldest version whose output the parser was tested with, such as `[2, 0, 77]`.
    pub version: &'static [u64],
    /// How it is seen whether a person has logged in.
    pub login: Login,
}

/// The traces that a login leaves, so that it can be seen without running the program. Each one is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Login {
    /// Variables that hold a key, or that choose another way to log in.
    pub variables: &'static [&'static str],
    /// The variable that says where the program keeps its files.
    pub variable: &'static str,
    /// Where it keeps them without that variable, below the home directory.
    pub home: &'static str,
    /// Files in there, from that folder, which exist after a login. An absolute path is taken as it is.
    pub files: &'static [&'static str],
    /// Words in settings files, from that folder, that configure another way to log in.
    pub settings: &'static [(&'static str, &'static [&'static str])],
    /// Whether macOS keeps the login in its keychain, where it cannot be seen.
    pub in_keychain: bool,
    /// What a person does to log in.
    pub how: &'static str,
}

/// A file with the settings of an agent's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnSettings {
    /// The variable that says where the program keeps its files.
    pub variable: &'static str,
    /// Where it keeps them without that variable, below the home directory.
    pub home: &'static str,
    /// The file in there.
    pub file: &'static str,
}

/// The record that an agent's program keeps of its runs, one file each: read when what it printed is lost.
#[derive(Clone, Copy)]
pub struct OwnRecord {
    /// What it is called, for people.
    pub name: &'static str,
    /// The variable that says where the program keeps its files.
    pub variable: &'static str,
    /// Where it keeps them without that variable, below the home directory.
    pub home: &'static str,
    /// The folder of records in there.
    pub folder: &'static str,
    /// How many folders lie between that one and a record.
    pub depth: usize,
    /// Says whether a file of this name is the record of the run that the agent calls so.
    pub is_of: fn(file_name: &str, run: &str) -> bool,
    /// Returns the folders below `folder` that can hold the record of a run, if its name tells; otherwise none, and only
    /// a search of all folders finds it.
    pub folders_of: fn(run: &str) -> Vec<PathBuf>,
    /// Reads the tokens of a run and of its last request from the last part of its record: for an agent whose output does
    /// not have both. `None` if they are not in there.
    pub last_usage: fn(end: &[u8]) -> Option<Usage>,
    /// Makes a reader of one. Unlike what is printed, a record holds the prompt: as [`Event::UserMessage`], with
    /// the context still on it.
    pub reader: fn() -> Box<dyn AgentParser>,
}

/// Which program an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// One of this name, found on the path.
    Named(&'static str),
    /// Our own: the agent is built in.
    Ourselves,
}

/// What is asked of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentRequest {
    /// The history, this turn's context and the prompt.
    pub frame: ContextFrame,
    /// The model; the agent's own choice without one.
    pub model: Option<String>,
    /// What the agent may do; its own safe default without one, never a bypass.
    pub permission: Option<Permission>,
    /// Whether the directory that it runs in belongs to a git repository.
    pub in_git: bool,
    /// What the program's own settings say, where that was looked up: [`Agent::own_settings`].
    pub settings: Option<String>,
    /// Further arguments for the program, as the user typed them.
    pub arguments: Vec<String>,
    /// How the history is sent.
    pub cache: PromptCache,
}

/// How a history is sent, for the sake of the provider's prompt cache. An agent whose provider caches by tokens makes no
/// difference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PromptCache {
    /// In one piece.
    #[default]
    Off,
    /// In its sealed segments. The program sets as many breakpoints as a request may have, or it is not known yet which kind
    /// it sets.
    Segments,
    /// In its sealed segments, the last of them with a breakpoint.
    Breakpoint(CacheLifetime),
}

/// How long a provider's prompt cache keeps what ends at a breakpoint. All breakpoints of a request have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheLifetime {
    /// Five minutes.
    FiveMinutes,
    /// An hour.
    OneHour,
}

/// What the output of a run says of the provider's prompt cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheSeen {
    /// Why a request was refused because of its breakpoints, if one was.
    pub refusal: Option<CacheRefusal>,
    /// How long what was written is kept, if anything was.
    pub lifetime: Option<CacheLifetime>,
}

/// Why a provider refuses breakpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheRefusal {
    /// There are more than a request may have.
    TooMany,
    /// Something else, such as their lifetimes.
    Other,
}

impl CacheSeen {
    /// Takes what further output says.
    pub fn add(&mut self, more: Self) {
        self.refusal = more.refusal.or(self.refusal);
        self.lifetime = match (self.lifetime, more.lifetime) {
            // A breakpoint may have a shorter lifetime than those before it, never a longer one.
            (Some(CacheLifetime::FiveMinutes), _) => Some(CacheLifetime::FiveMinutes),
            (seen, more) => more.or(seen),
        };
    }
}

/// What an agent may do, in one vocabulary for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Answer from what it is told, without tools and without leaving a session of its own behind.
    Answer,
    /// Look.
    Read,
    /// Look, and change files of the project.
    Edit,
    /// Everything, without asking.
    All,
}

/// How to run a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentCommand {
    /// Its arguments. Never a prompt: an argument is limited in length and visible to everybody.
    pub args: Vec<String>,
    /// What is set in its environment, besides what it inherits.
    pub env: Vec<(String, String)>,
    /// What it is given on standard input, which is then closed. Not used with an exchange.
    pub stdin: Vec<u8>,
    /// The exchange that a bridge has with the agent; `None` for a program that answers one prompt and exits. Each
    /// [`AgentParser::line`] is then a [`BridgeLine`](crate::bridge::BridgeLine).
    pub exchange: Option<Exchange>,
}

/// Reads the output of one run.
///
/// The same lines give the same outputs, however they were cut into pieces on the way here. A line that
/// cannot be read becomes an event that says so; the stream goes on.
pub trait AgentParser: Send {
    /// Reads one whole line, without its line break.
    fn line(&mut self, line: &[u8]) -> Vec<AgentOutput>;

    /// Reads how the run ended. The last output is the one [`Event::Complete`] of the run.
    fn end(&mut self, ending: &Ending) -> Vec<AgentOutput>;
}

/// What a line of output says.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentOutput {
    /// A fact, to be stored.
    Event(Event),
    /// Text as it is being written. Shown, and replaced by the finished [`Event::AssistantText`].
    Delta(String),
    /// Tokens so far, as the provider counts them.
    Usage(Usage),
    /// Something worth showing and not worth storing.
    Notice(String),
    /// The same, of a request to the model that failed and is sent again.
    Retry(String),
    /// What became of breakpoints for the provider's prompt cache.
    Cache(CacheSeen),
    /// Tools that the model wanted to use and the agent's program did not allow, one entry for each call.
    Refused(Vec<String>),
    /// A permission question is open: the run waits for an answer. To be shown as the control channel returns it.
    Question(Question),
    /// A permission question is closed.
    Answered(Answered),
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ending {
    /// How the program exited; nothing if nobody saw it.
    pub exit: Option<Exit>,
    /// The end of what it wrote to standard error.
    pub stderr: String,
    /// A last line without its line break: evidence, never an event.
    pub fragment: Vec<u8>,
    /// How long it ran. An estimate if `exit` is `None`: a parser prefers what the output says.
    pub duration: Duration,
    /// Why we ended it, if we did: [`Outcome::Cancelled`], [`Outcome::Timeout`], [`Outcome::Failed`] because it printed
    /// more than it may, or [`Outcome::Interrupted`] to compact the session and continue.
    pub stopped: Option<Outcome>,
}

/// How a program exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Why an agent cannot be asked this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// The prompt with its context is longer than the agent takes.
    #[error("{agent} takes at most {limit} characters, and this prompt with its history has {found}")]
    TooLong {
        /// The agent.
        agent: &'static str,
        /// What it takes.
        limit: usize,
        /// What there is.
        found: usize,
    },
    /// The agent has no model of this name. Only an agent that knows all of its models can say so.
    #[error("{agent} has no model {model:?}; there are {known}")]
    NoSuchModel {
        /// The agent.
        agent: &'static str,
        /// What was asked for.
        model: String,
        /// What there is.
        known: &'static str,
    },
    /// The agent has no program that takes arguments.
    #[error("{agent} takes no arguments")]
    NoArguments {
        /// The agent.
        agent: &'static str,
    },
    /// The agent refuses to run where there is no git repository.
    #[error("{agent} does not run outside a git repository, unless it may only read")]
    NeedsGit {
        /// The agent.
        agent: &'static str,
    },
}

impl AgentError {
    /// Returns what a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "compact the session with `azureal compact`, or use another agent",
            Self::NoSuchModel { .. } => "leave the model out, and the agent chooses",
            Self::NoArguments { .. } => "leave out what stands after `--`",
            Self::NeedsGit { .. } => "run `git init`, or use `--permission read`",
        }
    }
}
