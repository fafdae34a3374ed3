//! Gathering what a turn tells its agent: the history, and what context commands print.
//!
//! Where each output goes is decided by how the session begins. One without events is being made: its system
//! message is stored now, as its first event and with a record of the commands, and they never run again.
//! One that has begun without such a record is told the same at every turn, unstored. Commands that are dynamic
//! are told at every turn in any case. All commands of a turn run at the same time, beside the reading of the
//! history.
//!
//! A history that has become too long is compacted first.

use std::path::Path;
use std::thread;
use std::time::Duration;

use azureal_core::event::SystemMessage;
use azureal_core::{
    Beginning, Context, ContextCommand, ContextFrame, Event, Keep, LeaseId, NewTurn, Seq, SessionId,
    SessionStore, StoreError, Threshold, read_beginning, read_context, read_record_chars, system_message,
};
use azureal_process::{ChildEnvironment, InvalidMarker, Marker, Patience, end_marked};
use futures_executor::block_on;

use crate::compact::{CompactNotice, CompactSetup, CompactionError, Summarised, Summariser, compact};
use crate::context_commands::{
    CONTEXT_MARKER, CommandProgress, CommandRun, CommandStop, CommandsEnded, run_commands,
};
use crate::git_status;
use crate::header::SpooledTurn;
use crate::spool::{CancelNote, Spools};

/// What agents are told besides the history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Briefing {
    /// The prompt that a session begins with.
    pub system: Option<String>,
    /// The commands whose output belongs into the context.
    pub commands: Vec<ContextCommand>,
    /// Where it goes.
    pub keeping: Keeping,
}

/// Whether what a session begins with is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keeping {
    /// As the first event of the session.
    #[default]
    Stored,
    /// Not at all: it stands in front of the prompt, like the output of every other command.
    Ephemeral,
}

/// Why there is nothing to send.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatherError {
    /// A command failed that must not.
    #[error("the context command `{name}` failed: {why}")]
    Command { name: String, why: String },
    /// The person does not want it any more.
    #[error("stopped while the context was gathered")]
    Stopped,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Marker(#[from] InvalidMarker),
    /// The thread that read it has gone.
    #[error("the history could not be read")]
    NoHistory,
}

/// Compactions that are made by themselves, when a session has become too long.
#[derive(Clone, Copy)]
pub struct AutoCompaction<'a> {
    /// How large a session may become.
    pub threshold: Threshold,
    /// Who is asked for the summary, one after the other.
    pub summarisers: &'a [Summariser<'a>],
    /// How long one of them may take.
    pub timeout: Duration,
}

/// How much of the reason why an agent wrote no summary is told.
const REASON_CHARS: usize = 200;

/// Says in one line what came of a compaction; `failed` are the agents that wrote none, with the reason.
fn told(
    session: SessionId,
    chars: u64,
    done: &Result<Option<Summarised>, CompactionError>,
    failed: &[(String, String)],
) -> String {
    let mut line = match done {
        Ok(Some(summarised)) => format!(
            "compacted {session}: {} instead of {} characters, summary by {}",
            summarised.chars_after,
            summarised.chars_before,
            summarised.agent.as_deref().unwrap_or("azureal's own digest"),
        ),
        Ok(None) => format!("{session} is long ({chars} characters), and a summary would gain nothing"),
        Err(error) => format!("{session} is long ({chars} characters), and was not compacted: {error}"),
    };
    for (agent, why) in failed {
        let first = why.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
        let mut short: String = first.chars().take(REASON_CHARS).collect();
        if short.len() < first.len() {
            short.push('…');
        }
        line.push_str(&format!(" ({agent} wrote none: {short})"));
    }
    if matches!(done, Ok(Some(summarised)) if summarised.frees_little()) {
        line.push_str("; little was freed, and it is not tried again before the next prompt");
    }
    line
}

/// Ends the context commands of a turn, whoever runs it.
pub fn end_commands(turn: &SpooledTurn) {
    if let Ok(marker) = Marker::new(CONTEXT_MARKER, turn.run.clone()) {
        end_marked(&marker, &Patience::default());
    }
}

/// The turn that is gathered for.
pub(crate) struct Gather<'a> {
    pub(crate) store: &'a dyn SessionStore,
    pub(crate) session: SessionId,
    /// The lease of the store that allows the turn.
    pub(crate) lease: Option<&'a LeaseId>,
    pub(crate) directory: &'a Path,
    pub(crate) environment: &'a ChildEnvironment,
    pub(crate) briefing: &'a Briefing,
    /// The run's name.
    pub(crate) run: &'a str,
    pub(crate) stop: &'a CommandStop,
    /// Where somebody else says that it is to end, who then has ended the commands.
    pub(crate) cancel_note: &'a CancelNote,
    /// What is done about a history that is too long.
    pub(crate) compaction: Option<&'a AutoCompaction<'a>>,
    pub(crate) spools: &'a Spools,
    pub(crate) in_git: bool,
    /// Whether a long history takes the git status along, which the agent's program then need not tell.
    pub(crate) tells_git_status: bool,
}

/// What is worth telling while a turn is gathered.
#[derive(Debug)]
pub(crate) enum Gathering {
    /// How far the commands are.
    Command(CommandProgress),
    /// Who is being asked for a summary.
    Summary(String),
    /// What came of a compaction, in one line.
    Compacted(String),
}

type Progress<'a> = &'a mut (dyn FnMut(Gathering) + Send);

impl Gather<'_> {
    /// Gathers everything that is sent with a prompt. Blocks until all commands have ended.
    pub(crate) fn frame(&self, prompt: &str, progress: Progress<'_>) -> Result<ContextFrame, GatherError> {
        let Briefing { system, commands, keeping } = self.briefing;
        if *keeping == Keeping::Ephemeral {
            let ran = self.run(commands, progress)?;
            return Ok(ContextFrame::plain(&turn_context(system.as_deref(), &ran), prompt));
        }
        match block_on(read_beginning(self.store, self.session))? {
            Beginning::Nothing => {
                let ran = self.run(commands, progress)?;
                let (dynamic, fixed): (Vec<_>, Vec<_>) = ran.into_iter().partition(|run| run.command.dynamic);
                if let Some(system) = beginning(system.as_deref(), &fixed) {
                    // As the first event or not at all, should somebody have begun the session without a lease.
                    let turn = NewTurn {
                        after: Some(Seq::START),
                        lease: self.lease.cloned(),
                        ..NewTurn::verbatim([Event::SystemMessage(system)])
                    };
                    block_on(self.store.append(self.session, turn))?;
                }
                let history = block_on(read_context(self.store, self.session))?;
                let git_status = match self.is_long(history.chars().count() as u64) {
                    true => self.run(&[git_status::command()], &mut |_| {})?.pop(),
                    false => None,
                };
                Ok(frame(history, None, &dynamic, git_status.as_ref(), prompt))
            }
            Beginning::SystemMessage { has_context: true } => {
                let dynamic: Vec<ContextCommand> =
                    commands.iter().filter(|command| command.dynamic).cloned().collect();
                self.beside_history(None, &dynamic, prompt, progress)
            }
            Beginning::SystemMessage { has_context: false } => {
                self.beside_history(None, commands, prompt, progress)
            }
            Beginning::NoSystemMessage => self.beside_history(system.as_deref(), commands, prompt, progress),
        }
    }

    /// Runs commands for this turn alone, while the history is read.
    fn beside_history(
        &self,
        system: Option<&str>,
        commands: &[ContextCommand],
        prompt: &str,
        progress: Progress<'_>,
    ) -> Result<ContextFrame, GatherError> {
        let record = block_on(self.store.get(self.session))?;
        let tells_git_status = self.is_long(record.context_chars());
        let mut commands = commands.to_vec();
        commands.extend(tells_git_status.then(git_status::command));
        let (ran, history) = thread::scope(|scope| {
            let history = scope.spawn(|| block_on(read_context(self.store, self.session)));
            (self.run(&commands, progress), history.join())
        });
        let (mut ran, history) = (ran?, history.map_err(|_| GatherError::NoHistory)??);
        let git_status = if tells_git_status { ran.pop() } else { None };
        let history = self.compacted(history, progress)?;
        Ok(frame(history, system, &ran, git_status.as_ref(), prompt))
    }

    /// Says whether a history of so many characters takes the git status along.
    fn is_long(&self, history: u64) -> bool {
        self.tells_git_status && history > git_status::LONG_HISTORY
    }

    /// Returns the history as it is told, after a compaction if it is too long.
    ///
    /// One that fails does not stop the turn: the agent is told what there is.
    fn compacted(&self, history: Context, progress: Progress<'_>) -> Result<Context, GatherError> {
        let Some(auto) = self.compaction else { return Ok(history) };
        let session = block_on(self.store.get(self.session))?;
        let chars = block_on(read_record_chars(self.store, &session))?;
        if !auto.threshold.is_exceeded_by(chars, session.counts.context_tokens) {
            return Ok(history);
        }
        let is_cancelled = || self.stop.is_stopped() || self.cancel_note.is_there();
        let setup = CompactSetup {
            store: self.store,
            spools: self.spools,
            session: self.session,
            summarisers: auto.summarisers,
            directory: self.directory,
            environment: self.environment,
            in_git: self.in_git,
            threshold: auto.threshold,
            keep: Keep::Usual,
            timeout: auto.timeout,
            is_cancelled: &is_cancelled,
        };
        let mut failed = Vec::new();
        let done = compact(&setup, &mut |notice| match notice {
            CompactNotice::Asking(agent) => progress(Gathering::Summary(agent.to_owned())),
            CompactNotice::Failed { agent, why } => failed.push((agent.to_owned(), why.to_owned())),
        });
        if is_cancelled() {
            return Err(GatherError::Stopped);
        }
        progress(Gathering::Compacted(told(self.session, chars, &done, &failed)));
        match done {
            Ok(Some(_)) => Ok(block_on(read_context(self.store, self.session))?),
            Ok(None) | Err(_) => Ok(history),
        }
    }

    fn run(
        &self,
        commands: &[ContextCommand],
        progress: Progress<'_>,
    ) -> Result<Vec<CommandRun>, GatherError> {
        let marker = Marker::new(CONTEXT_MARKER, self.run)?;
        // Nobody has asked for the git status, so nobody is told of it.
        let progress = &mut |command| match command {
            CommandProgress::Began(mut names) => {
                names.truncate(commands.iter().filter(|command| !git_status::is(command)).count());
                if !names.is_empty() {
                    progress(Gathering::Command(CommandProgress::Began(names)));
                }
            }
            CommandProgress::Ended(run) if git_status::is(&run.command) => {}
            other => progress(Gathering::Command(other)),
        };
        let ran = run_commands(commands, self.directory, self.environment, &marker, self.stop, progress);
        if self.cancel_note.is_there() {
            return Err(GatherError::Stopped);
        }
        ran.map_err(|ended| match ended {
            CommandsEnded::ByFailure(run) => {
                let why = run.failure().unwrap_or_default();
                GatherError::Command { name: run.command.name, why }
            }
            CommandsEnded::ByStop => GatherError::Stopped,
        })
    }
}

/// Returns what a session begins with; nothing if nothing was configured.
fn beginning(prompt: Option<&str>, ran: &[CommandRun]) -> Option<SystemMessage> {
    let content = system_message(prompt, blocks(ran));
    if ran.is_empty() {
        // An empty record: whatever the text looks like, no command has printed it.
        let record = Some(Vec::new());
        return content.map(|content| SystemMessage {
            content,
            context_commands: record,
            ..SystemMessage::default()
        });
    }
    Some(SystemMessage {
        // Commands that left nothing have run all the same.
        content: content.unwrap_or_default(),
        context_executed_at: Some(crate::clock::now_text()),
        context_commands: Some(ran.iter().map(CommandRun::record).collect()),
    })
}

/// Puts everything together that is sent.
fn frame(
    history: Context,
    system: Option<&str>,
    ran: &[CommandRun],
    git_status: Option<&CommandRun>,
    prompt: &str,
) -> ContextFrame {
    let git_status = git_status.map(git_status::block);
    let has_git_status = git_status.is_some();
    let turn = system_message(system, blocks(ran).chain(git_status)).unwrap_or_default();
    ContextFrame { has_git_status, ..ContextFrame::new(history, &turn, prompt) }
}

fn turn_context(prompt: Option<&str>, ran: &[CommandRun]) -> String {
    system_message(prompt, blocks(ran)).unwrap_or_default()
}

fn blocks(ran: &[CommandRun]) -> impl Iterator<Item = String> {
    ran.iter().filter_map(CommandRun::block)
}
