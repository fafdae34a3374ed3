//! Gathering what a turn tells its agent: the history, and what context commands print.
//!
//! Where each output goes is decided by how the session begins. One without events is being made: its system
//! message is stored now, as its first event and with a record of the commands, and they never run again.
//! One that has begun without such a record is told the same at every turn, unstored. Commands that are dynamic
//! are told at every turn in any case. All commands of a turn run at the same time, beside the reading of the
//! history.
//!
//! A history that has become too long is compacted first.

use std::thread;

use azureal_core::agent::RecallServer;
use azureal_core::event::SystemMessage;
use azureal_core::{
    Beginning, Context, ContextCommand, ContextFrame, Event, LeaseId, NewTurn, Seq, SessionId,
    SessionSnapshot, StoreError, Threshold, context_block, system_message,
};
use azureal_process::{InvalidMarker, Marker, StopTimeouts, end_marked};
use futures_executor::block_on;
use tracing::debug;

use crate::cancel::CancelSign;
use crate::compact::{CompactionError, Compactor, Summarised, compact};
use crate::context_commands::{
    CONTEXT_MARKER, CommandProgress, CommandRun, CommandStop, CommandsEnded, run_commands,
};
use crate::engine::EngineOptions;
use crate::git_status;
use crate::header::SpooledTurn;
use crate::request::{Briefing, Keeping, TurnOptions};
use crate::spool::SpoolError;
use crate::turn_event::TurnEvent;

/// Why the context of a turn cannot be gathered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatherError {
    /// A command failed that must not.
    #[error("the context command `{name}` failed: {why}")]
    Command {
        /// The name of the command.
        name: String,
        /// How it ended.
        why: String,
    },
    /// The user cancelled the turn, or its time was up.
    #[error("stopped while the context was gathered")]
    Stopped,
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The spool of the turn cannot be created.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The name of the run cannot mark its processes.
    #[error(transparent)]
    Marker(#[from] InvalidMarker),
    /// The thread that read the history panicked.
    #[error("the history could not be read")]
    NoHistory,
}

impl GatherError {
    /// Returns the error of a command that must not fail.
    pub(crate) fn of_failure(run: CommandRun) -> Self {
        let why = run.failure().unwrap_or_default();
        Self::Command { name: run.command.name, why }
    }
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

/// Ends the context commands of a turn, in any process.
pub(crate) fn end_commands(turn: &SpooledTurn) {
    if let Ok(marker) = Marker::new(CONTEXT_MARKER, turn.run.clone()) {
        end_marked(&marker, &StopTimeouts::default());
    }
}

/// The turn that is gathered for.
pub(crate) struct Gather<'a> {
    pub(crate) engine: &'a EngineOptions,
    pub(crate) options: &'a TurnOptions,
    pub(crate) session: SessionId,
    /// The lease of the store that allows the turn.
    pub(crate) lease: Option<&'a LeaseId>,
    /// The run's name.
    pub(crate) run: &'a str,
    pub(crate) stop: &'a CommandStop,
    pub(crate) cancel: &'a CancelSign,
    /// Whether the session may be compacted: not twice for one prompt.
    pub(crate) may_compact: bool,
    /// Whether the agent can look things up in the stored sessions.
    pub(crate) has_recall: bool,
    /// The commands that ran before the session was created, if they did.
    pub(crate) first: Option<Vec<CommandRun>>,
}

/// Everything that is sent with a prompt, and the session as it is then.
pub(crate) struct Gathered {
    pub(crate) frame: ContextFrame,
    pub(crate) session: SessionSnapshot,
    /// Whether the session was compacted for it, or that was tried.
    pub(crate) was_compacted: bool,
}

type Report<'a> = &'a mut (dyn FnMut(TurnEvent) + Send);

impl Gather<'_> {
    /// Gathers everything that is sent with a prompt. Blocks until all commands have ended.
    pub(crate) fn gather(
        &self,
        mut session: SessionSnapshot,
        prompt: &str,
        report: Report<'_>,
    ) -> Result<Gathered, GatherError> {
        let Briefing { system, commands, keeping } = &self.options.briefing;
        let gathered = |frame, session| Gathered { frame, session, was_compacted: false };
        if *keeping == Keeping::Ephemeral {
            let ran = self.run(commands, report)?;
            let frame = ContextFrame::plain(&turn_context(system.as_deref(), &ran), prompt);
            return Ok(gathered(frame, session));
        }
        match session.beginning {
            Beginning::Nothing => {
                let ran = match &self.first {
                    Some(ran) => ran.clone(),
                    None => self.run(commands, report)?,
                };
                let (dynamic, fixed): (Vec<_>, Vec<_>) = ran.into_iter().partition(|run| run.command.dynamic);
                let history = match beginning(system.as_deref(), &fixed) {
                    Some(system) => self.store_beginning(&mut session, system)?,
                    None => Context::default(),
                };
                let git_status = match self.is_long(history.chars().count() as u64) {
                    true => self.run(&[git_status::command()], &mut |_| {})?.pop(),
                    false => None,
                };
                let frame = frame(history, None, blocks(&dynamic).collect(), git_status.as_ref(), prompt);
                Ok(gathered(frame, session))
            }
            Beginning::SystemMessage { has_context: true } => {
                let dynamic: Vec<ContextCommand> =
                    commands.iter().filter(|command| command.dynamic).cloned().collect();
                self.beside_history(session, None, &dynamic, prompt, report)
            }
            Beginning::SystemMessage { has_context: false } => {
                self.beside_history(session, None, commands, prompt, report)
            }
            Beginning::NoSystemMessage => {
                self.beside_history(session, system.as_deref(), commands, prompt, report)
            }
        }
    }

    /// Stores the system message of a new session, and returns the context with it.
    fn store_beginning(
        &self,
        session: &mut SessionSnapshot,
        system: SystemMessage,
    ) -> Result<Context, GatherError> {
        self.check()?;
        let event = Event::SystemMessage(system);
        // As the first event or not at all, if another process has begun the session without a lease.
        let turn = NewTurn {
            after: Some(Seq::START),
            lease: self.lease.cloned(),
            ..NewTurn::verbatim([event.clone()])
        };
        block_on(self.engine.store.append(self.session, turn))?;
        Ok(session.begin_with(&event))
    }

    /// Runs commands for this turn alone, while the history is read.
    fn beside_history(
        &self,
        mut session: SessionSnapshot,
        system: Option<&str>,
        commands: &[ContextCommand],
        prompt: &str,
        report: Report<'_>,
    ) -> Result<Gathered, GatherError> {
        let tells_git_status = self.is_long(session.record.context_chars());
        let mut commands = commands.to_vec();
        commands.extend(tells_git_status.then(git_status::command));
        let (ran, history) = thread::scope(|scope| {
            let history = scope.spawn(|| self.history(&mut session));
            (self.run(&commands, report), history.join())
        });
        let (mut ran, mut history) = (ran?, history.map_err(|_| GatherError::NoHistory)??);
        let git_status = if tells_git_status { ran.pop() } else { None };
        let compacted = self.compact(&session, report)?;
        let was_compacted = compacted.is_some();
        if let Some(true) = compacted {
            session = block_on(SessionSnapshot::read(&*self.engine.store, self.session))?;
            history = self.history(&mut session)?;
        }
        let mut blocks: Vec<String> = blocks(&ran).collect();
        if let Some(covered) = session.covered().filter(|_| self.has_recall) {
            blocks.push(context_block("Recall", &RecallServer::note(self.session, covered)));
        }
        let frame = frame(history, system, blocks, git_status.as_ref(), prompt);
        Ok(Gathered { frame, session, was_compacted })
    }

    /// Reads the context of the session.
    fn history(&self, session: &mut SessionSnapshot) -> Result<Context, StoreError> {
        let store = &*self.engine.store;
        let context = block_on(session.context(store, self.threshold(), Some(&self.engine.spools)))?;
        // It is for lists and meters. A turn does not depend on it.
        if let Err(error) = block_on(session.store_opening(store, &context)) {
            let error = error.to_string();
            debug!(session = %self.session, ?error, "ignored: the size of the opening is not stored");
        }
        Ok(context)
    }

    /// Returns the threshold that limits what stands beside a summary.
    fn threshold(&self) -> Threshold {
        self.options.compaction.as_ref().map_or_else(Threshold::default, |options| options.threshold)
    }

    /// Says whether a history of so many characters takes the git status along.
    fn is_long(&self, history: u64) -> bool {
        let moves_git_status =
            self.options.moves_git_status && self.engine.in_git && self.options.agent.tells_git_status();
        moves_git_status && history > git_status::LONG_HISTORY
    }

    /// Compacts a session that is too long. Returns whether it was compacted; `None` if it is not too long.
    ///
    /// A compaction that fails does not stop the turn: the agent receives the history as it is.
    fn compact(&self, session: &SessionSnapshot, report: Report<'_>) -> Result<Option<bool>, GatherError> {
        let Some(options) = self.options.compaction.as_ref().filter(|_| self.may_compact) else {
            return Ok(None);
        };
        let chars = session.record_chars();
        if !options.threshold.is_exceeded_by(chars, session.record.counts.context_tokens) {
            return Ok(None);
        }
        let is_cancelled = || self.is_to_stop();
        let compactor =
            Compactor { engine: self.engine, session: self.session, options, is_cancelled: &is_cancelled };
        let mut failed = Vec::new();
        let done = compact(&compactor, &mut |event| match event {
            // Told in one line, when it is known what came of it.
            TurnEvent::NotSummarised { agent, why } => failed.push((agent, why)),
            other => report(other),
        });
        self.check()?;
        report(TurnEvent::Notice(told(self.session, chars, &done, &failed)));
        Ok(Some(matches!(done, Ok(Some(_)))))
    }

    /// Returns whether the turn is cancelled, or is stopped for another reason.
    fn is_to_stop(&self) -> bool {
        self.stop.is_stopped() || self.cancel.is_set()
    }

    fn check(&self) -> Result<(), GatherError> {
        if self.is_to_stop() { Err(GatherError::Stopped) } else { Ok(()) }
    }

    fn run(&self, commands: &[ContextCommand], report: Report<'_>) -> Result<Vec<CommandRun>, GatherError> {
        self.check()?;
        let marker = Marker::new(CONTEXT_MARKER, self.run)?;
        // Nobody has asked for the git status, so nobody is told of it.
        let progress = &mut |command| match command {
            CommandProgress::Began(mut names) => {
                names.truncate(commands.iter().filter(|command| !git_status::is(command)).count());
                if !names.is_empty() {
                    report(TurnEvent::Command(Box::new(CommandProgress::Began(names))));
                }
            }
            CommandProgress::Ended(run) if git_status::is(&run.command) => {}
            other => report(TurnEvent::Command(Box::new(other))),
        };
        let EngineOptions { directory, environment, .. } = self.engine;
        let ran = run_commands(commands, directory, environment, &marker, self.stop, progress);
        if self.cancel.is_set() {
            return Err(GatherError::Stopped);
        }
        ran.map_err(|ended| match ended {
            CommandsEnded::ByFailure(run) => GatherError::of_failure(*run),
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
    blocks: Vec<String>,
    git_status: Option<&CommandRun>,
    prompt: &str,
) -> ContextFrame {
    let git_status = git_status.map(git_status::block);
    let has_git_status = git_status.is_some();
    let turn = system_message(system, blocks.into_iter().chain(git_status)).unwrap_or_default();
    ContextFrame { has_git_status, ..ContextFrame::new(history, &turn, prompt) }
}

fn turn_context(prompt: Option<&str>, ran: &[CommandRun]) -> String {
    system_message(prompt, blocks(ran)).unwrap_or_default()
}

fn blocks(ran: &[CommandRun]) -> impl Iterator<Item = String> {
    ran.iter().filter_map(CommandRun::block)
}
