//! Gathering what a turn tells its agent: the history, and what context commands print.
//!
//! Where each output goes is decided by how the session begins. One without events is being made: its system
//! message is stored now, as its first event and with a record of the commands, and they never run again.
//! One that has begun without such a record is told the same at every turn, unstored. Commands that are dynamic
//! are told at every turn in any case. All commands of a turn run at the same time, beside the reading of the
//! history.

use std::path::Path;
use std::thread;

use azureal_core::event::SystemMessage;
use azureal_core::{
    Beginning, ContextCommand, ContextFrame, Event, Seq, SessionId, SessionStore, StoreError, Turn,
    read_beginning, read_context, system_message,
};
use azureal_process::{InvalidMarker, Marker, Patience, end_marked};
use futures_executor::block_on;

use crate::context_commands::{
    CONTEXT_MARKER, CommandProgress, CommandRun, CommandStop, CommandsEnded, run_commands,
};
use crate::spool::{CancelNote, SpooledTurn};

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
    pub(crate) directory: &'a Path,
    pub(crate) briefing: &'a Briefing,
    /// The run's name.
    pub(crate) run: &'a str,
    pub(crate) stop: &'a CommandStop,
    /// Where somebody else says that it is to end, who then has ended the commands.
    pub(crate) cancel_note: &'a CancelNote,
}

impl Gather<'_> {
    /// Gathers everything that is sent with a prompt. Blocks until all commands have ended.
    pub(crate) fn frame(
        &self,
        prompt: &str,
        progress: &mut (dyn FnMut(CommandProgress) + Send),
    ) -> Result<ContextFrame, GatherError> {
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
                    let turn =
                        Turn { after: Some(Seq::START), ..Turn::verbatim([Event::SystemMessage(system)]) };
                    block_on(self.store.append(self.session, turn))?;
                }
                let history = block_on(read_context(self.store, self.session))?;
                Ok(ContextFrame::new(&history, &turn_context(None, &dynamic), prompt))
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
        progress: &mut (dyn FnMut(CommandProgress) + Send),
    ) -> Result<ContextFrame, GatherError> {
        let (ran, history) = thread::scope(|scope| {
            let history = scope.spawn(|| block_on(read_context(self.store, self.session)));
            (self.run(commands, progress), history.join())
        });
        let (ran, history) = (ran?, history.map_err(|_| GatherError::NoHistory)??);
        Ok(ContextFrame::new(&history, &turn_context(system, &ran), prompt))
    }

    fn run(
        &self,
        commands: &[ContextCommand],
        progress: &mut (dyn FnMut(CommandProgress) + Send),
    ) -> Result<Vec<CommandRun>, GatherError> {
        let marker = Marker::new(CONTEXT_MARKER, self.run)?;
        let ran = run_commands(commands, self.directory, &marker, self.stop, progress);
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
        return content.map(|content| SystemMessage { content, ..SystemMessage::default() });
    }
    Some(SystemMessage {
        // Commands that left nothing have run all the same.
        content: content.unwrap_or_default(),
        context_executed_at: Some(jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        context_commands: Some(ran.iter().map(CommandRun::record).collect()),
    })
}

fn turn_context(prompt: Option<&str>, ran: &[CommandRun]) -> String {
    system_message(prompt, blocks(ran)).unwrap_or_default()
}

fn blocks(ran: &[CommandRun]) -> impl Iterator<Item = String> {
    ran.iter().filter_map(CommandRun::block)
}
