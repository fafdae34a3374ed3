//! The contract of an agent: a program that answers one prompt, described without running it.
//!
//! An agent describes the command and parses the output. It starts no process, never blocks and has no state. So the
//! same description serves a running turn, one whose output was found after a crash, and a test with a recording.

use std::path::PathBuf;
use std::time::Duration;

use crate::bridge::{Answered, Exchange, Question};
use crate::event::{ErrorEvent, Outcome, Usage};
use crate::{ContextFrame, Event, Seq, SessionId};

/// The name of the built-in agent, which has no model behind it. The names that it gives its models mean nothing elsewhere.
pub const OFFLINE_AGENT: &str = "offline";

/// An agent: a program that answers one prompt and exits, or one behind a [bridge](crate::bridge).
pub trait Agent: Send + Sync {
    /// Returns the name that it is chosen by, such as `claude`.
    fn name(&self) -> &'static str;

    /// Returns the program that is run.
    fn program(&self) -> Program;

    /// Returns whether the agent answers for this model, so that a model's name is enough to choose it.
    fn answers_for(&self, model: &str) -> bool;

    /// Returns models that the agent is known for, to be offered to a person. It may have more.
    fn models(&self) -> &'static [&'static str] {
        &[]
    }

    /// Describes the requirements of the program besides being installed; `None` if there are none.
    fn needs(&self) -> Option<Needs> {
        None
    }

    /// Returns the command of a turn, and its standard input.
    fn command(&self, turn: &AgentRequest) -> Result<AgentCommand, AgentError>;

    /// Checks what is wrong with a turn whatever its prompt and its context are. A turn that is refused stores nothing.
    /// [`command`](Self::command) returns the same error.
    fn check(&self, _turn: &AgentRequest) -> Result<(), AgentError> {
        Ok(())
    }

    /// Creates a parser for the output of one run.
    fn parser(&self) -> Box<dyn AgentParser>;

    /// Returns the version of the parser: raised when the same output gives other events. It is kept with the output of a turn.
    fn parser_version(&self) -> u32 {
        1
    }

    /// Returns whether the agent is behind a [bridge](crate::bridge): whether its commands have an exchange.
    fn is_bridged(&self) -> bool {
        false
    }

    /// Describes the program's own transcripts of its runs; `None` if it has none.
    fn own_record(&self) -> Option<OwnRecord> {
        None
    }

    /// Returns whether the program itself puts a git status in front of what it is given. Every changed file then changes what
    /// stands before the history, and no prompt cache recognises it.
    fn tells_git_status(&self) -> bool {
        false
    }

    /// Names the file of the program's own settings that [`command`](Self::command) needs; `None` if it needs none.
    fn own_settings(&self) -> Option<OwnSettings> {
        None
    }
}

/// The requirements of an agent's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The oldest version whose output the parser was tested with, such as `[2, 0, 77]`.
    pub version: &'static [u64],
    /// The oldest version that runs without a transcript of its own: [`AgentRequest::is_ephemeral`].
    pub ephemeral: &'static [u64],
    /// Traces of a login.
    pub login: Login,
}

/// The traces that a login leaves, so that it can be seen without running the program. Each one is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Login {
    /// Variables that hold a key, or that choose another way to log in.
    pub variables: &'static [&'static str],
    /// The variable that names the folder of the program's files.
    pub variable: &'static str,
    /// The folder without that variable, below the home directory.
    pub home: &'static str,
    /// Files in there, from that folder, which exist after a login. An absolute path is taken as it is.
    pub files: &'static [&'static str],
    /// Words in settings files of that folder that configure another way to log in.
    pub settings: &'static [(&'static str, &'static [&'static str])],
    /// Whether macOS stores the login in its keychain, where azureal cannot see it.
    pub in_keychain: bool,
    /// Kinds of errors, or parts of their messages, that mean a missing or refused login.
    pub errors: &'static [&'static str],
    /// The command to log in.
    pub command: &'static str,
}

impl Login {
    /// Returns whether an error means a missing or refused login.
    pub fn is_missing_in(&self, error: &ErrorEvent) -> bool {
        self.errors.iter().any(|mark| error.kind == *mark || error.message.contains(mark))
    }
}

/// A file with the settings of an agent's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnSettings {
    /// The variable that names the folder of the program's files.
    pub variable: &'static str,
    /// The folder without that variable, below the home directory.
    pub home: &'static str,
    /// The file in there.
    pub file: &'static str,
}

/// The own transcripts of an agent's program, one file per run: read if its output is lost.
#[derive(Clone, Copy)]
pub struct OwnRecord {
    /// The name, for people.
    pub name: &'static str,
    /// The variable that names the folder of the program's files.
    pub variable: &'static str,
    /// The folder without that variable, below the home directory.
    pub home: &'static str,
    /// The folder of records in there.
    pub folder: &'static str,
    /// The number of folders between that one and a transcript.
    pub depth: usize,
    /// Returns whether a file of this name is the record of the run that the agent calls so.
    pub is_of: fn(file_name: &str, run: &str) -> bool,
    /// Returns the folders below `folder` that can hold the transcript of a run, if the run's name shows them.
    /// Otherwise empty, and only a search of all folders finds it.
    pub folders_of: fn(run: &str) -> Vec<PathBuf>,
    /// Reads the tokens of a run and of its last request from the last part of its record: for an agent whose output does
    /// not have both. `None` if they are not in there.
    pub last_usage: fn(end: &[u8]) -> Option<Usage>,
    /// Reads the model of a run from a part of its record: for an agent whose output does not name it.
    pub model: fn(part: &[u8]) -> Option<String>,
    /// Creates a parser of a transcript. Unlike the output, a transcript holds the prompt: as [`Event::UserMessage`],
    /// with the context still on it. If it holds several turns, each ends with [`Event::Complete`], before the next prompt.
    pub reader: fn() -> Box<dyn AgentParser>,
    /// The files in which the program keeps large outputs beside a transcript; `None` if it keeps none.
    pub kept_outputs: Option<KeptOutputs>,
}

/// The files in which an agent's program keeps the outputs of tools that are too large for its transcript.
///
/// The place of the transcript decides where they are. A line names a file in that folder, never a path: a transcript of
/// somebody else could name the user's credentials.
#[derive(Clone, Copy)]
pub struct KeptOutputs {
    /// Returns the folder of a session's files, as the names of folders below that of its transcript, by the name of the transcript.
    /// `None` if that is no name of a session.
    pub folder: fn(transcript: &str) -> Option<Vec<String>>,
    /// Returns the files that a line names, of the program's output or of a transcript.
    pub named: fn(line: &[u8]) -> Vec<KeptOutput>,
}

/// A file with the whole output of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptOutput {
    /// The call of the tool.
    pub tool_use_id: String,
    /// The name of the file.
    pub file: String,
    /// The turn that it belongs to, in a transcript with several; empty if the line does not say it.
    pub turn: String,
}

/// The program of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// One of this name, found on the path.
    Named(&'static str),
    /// Our own: the agent is built in.
    Ourselves,
}

/// A request to an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentRequest {
    /// The history, this turn's context and the prompt.
    pub frame: ContextFrame,
    /// The model; the agent's own choice without one.
    pub model: Option<String>,
    /// The permission of the agent. `None` is the agent's own safe default, never a bypass.
    pub permission: Option<Permission>,
    /// Whether the directory that it runs in belongs to a git repository.
    pub in_git: bool,
    /// The program's own settings, if they were read: [`Agent::own_settings`].
    pub settings: Option<String>,
    /// Further arguments for the program, as the user typed them.
    pub arguments: Vec<String>,
    /// The form in which the history is sent.
    pub cache: PromptCache,
    /// Whether the program is to keep no transcript of the run, nor copies of what the run reads or changes.
    pub is_ephemeral: bool,
    /// The server that the program starts to look things up in the stored sessions; `None` if it has none.
    pub recall: Option<RecallServer>,
}

/// A server of the Model Context Protocol with tools that only read. An agent starts it for one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecallServer {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
}

impl RecallServer {
    /// The name of the server in the configuration of an agent.
    pub const NAME: &str = "azureal";

    /// Returns the note behind a compacted context: the summarised events can be read.
    ///
    /// It is part of the turn and not of the summary: whether there are tools is not known to a context that is stored or cached.
    pub fn note(session: SessionId, covered: Seq) -> String {
        format!(
            "The summary in the record covers events 1 to {covered} of session {session}. They are not lost: the tool read_session of the server {name} reads them \
             (session={session}, from, to; original=true for the whole output of commands and tools), and search_sessions with session={session} searches them.",
            name = Self::NAME,
        )
    }
}

/// The form in which a history is sent, for the provider's prompt cache. It makes no difference for an agent whose
/// provider caches by tokens.
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

/// The time that a provider's prompt cache stores the text up to a breakpoint. All breakpoints of a request have the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheLifetime {
    /// Five minutes.
    FiveMinutes,
    /// An hour.
    OneHour,
}

/// The provider's prompt cache, as the output of a run shows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheSeen {
    /// The reason why a request was refused because of its breakpoints, if one was.
    pub refusal: Option<CacheRefusal>,
    /// The lifetime of the text that was written to the cache, if any was.
    pub lifetime: Option<CacheLifetime>,
}

/// The reason why a provider refuses breakpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheRefusal {
    /// There are more than a request may have.
    TooMany,
    /// Something else, such as their lifetimes.
    Other,
}

impl CacheSeen {
    /// Adds the findings of further output.
    pub fn add(&mut self, more: Self) {
        self.refusal = more.refusal.or(self.refusal);
        self.lifetime = match (self.lifetime, more.lifetime) {
            // A breakpoint may have a shorter lifetime than those before it, never a longer one.
            (Some(CacheLifetime::FiveMinutes), _) => Some(CacheLifetime::FiveMinutes),
            (seen, more) => more.or(seen),
        };
    }
}

/// The permissions of an agent, in one vocabulary for all agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Answer from the context, without tools.
    Answer,
    /// Look.
    Read,
    /// Look, and change files of the project.
    Edit,
    /// Everything, without asking.
    All,
}

/// A program's arguments, environment and input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentCommand {
    /// Its arguments. Never a prompt: an argument is limited in length and visible to every user.
    pub args: Vec<String>,
    /// The variables that are set in addition to the inherited ones.
    pub env: Vec<(String, String)>,
    /// Its standard input, which is then closed. Not used with an exchange.
    pub stdin: Vec<u8>,
    /// The exchange that a bridge has with the agent; `None` for a program that answers one prompt and exits. Each
    /// [`AgentParser::line`] is then a [`BridgeLine`](crate::bridge::BridgeLine).
    pub exchange: Option<Exchange>,
}

/// Parses the output of one run.
///
/// The same lines give the same outputs, however they were split on the way here. An unreadable line becomes an event
/// with the error, and the parser continues.
pub trait AgentParser: Send {
    /// Reads one whole line, without its line break.
    fn line(&mut self, line: &[u8]) -> Vec<AgentOutput>;

    /// Reads how the run ended. The last output is the one [`Event::Complete`] of the run.
    fn end(&mut self, ending: &Ending) -> Vec<AgentOutput>;
}

/// The meaning of a line of output.
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
    /// A request to the model that failed and is sent again, as a text for people.
    Retry(String),
    /// The effect of breakpoints for the provider's prompt cache.
    Cache(CacheSeen),
    /// Tool calls that the agent's program refused, one entry per call.
    Refused(Vec<String>),
    /// A permission question is open: the run waits for an answer. To be shown as the control channel returns it.
    Question(Question),
    /// A permission question is closed.
    Answered(Answered),
}

/// The end of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ending {
    /// The exit status of the program; `None` if it is unknown.
    pub exit: Option<Exit>,
    /// The end of what it wrote to standard error.
    pub stderr: String,
    /// A last line without its line break: evidence, never an event.
    pub fragment: Vec<u8>,
    /// The duration of the run. An estimate if `exit` is `None`: a parser prefers the output's own value.
    pub duration: Duration,
    /// The reason why azureal ended the run, if it did: [`Outcome::Cancelled`], [`Outcome::Timeout`],
    /// [`Outcome::Failed`] because of too much output, or [`Outcome::Interrupted`] to compact the session and
    /// continue.
    pub stopped: Option<Outcome>,
}

/// The exit of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// The reason why an agent cannot take a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// The prompt with its context is longer than the agent takes.
    #[error("{agent} takes at most {limit} characters, and this prompt with its history has {found}")]
    TooLong {
        /// The agent.
        agent: &'static str,
        /// The limit.
        limit: usize,
        /// The actual size.
        found: usize,
    },
    /// The agent has no model of this name. Only an agent that knows all of its models can say so.
    #[error("{agent} has no model {model:?}; there are {known}")]
    NoSuchModel {
        /// The agent.
        agent: &'static str,
        /// The requested model.
        model: String,
        /// The known models.
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
