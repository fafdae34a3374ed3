//! Watching a turn: reading its spool as it grows.

use std::time::Duration;

use azureal_core::agent::{Agent, AgentOutput, AgentParser};
use azureal_core::{Event, agent};
use azureal_process::{Follow, FollowError, Line, ProcessIdentity};

use crate::private;
use crate::spool::SpooledTurn;
use crate::turn_parser::TurnParser;

/// Follows the output of a run from its beginning, at a pace of its own.
///
/// It holds the file open, so what was printed can still be read when the turn is stored and the file gone.
pub struct Watcher {
    follow: Follow,
    parser: Box<dyn AgentParser>,
    process: Option<ProcessIdentity>,
    /// How many lines could not be read.
    unreadable: u64,
}

impl Watcher {
    /// Opens the output of a run; without a process it is finished.
    pub fn open(
        output: &std::path::Path,
        agent: &dyn Agent,
        process: Option<ProcessIdentity>,
    ) -> Result<Self, FollowError> {
        private::check(output)
            .map_err(|source| FollowError::Unreadable { path: output.to_owned(), source })?;
        Self::with_parser(output, agent.parser(), process)
    }

    /// Opens the output of a turn; without a process it is finished.
    pub(crate) fn of_turn(
        output: &std::path::Path,
        agent: &dyn Agent,
        turn: &SpooledTurn,
        process: Option<ProcessIdentity>,
    ) -> Result<Self, FollowError> {
        private::check(output)
            .map_err(|source| FollowError::Unreadable { path: output.to_owned(), source })?;
        Self::with_parser(output, Box::new(TurnParser::new(agent, turn)), process)
    }

    /// Opens a file that another reader understands.
    pub(crate) fn with_parser(
        file: &std::path::Path,
        parser: Box<dyn AgentParser>,
        process: Option<ProcessIdentity>,
    ) -> Result<Self, FollowError> {
        Ok(Self { follow: Follow::open(file, 0)?, parser, process, unreadable: 0 })
    }

    /// Waits for the next line and returns what it says; nothing when the program has ended and all is read.
    pub fn next_outputs(&mut self) -> Result<Option<Vec<AgentOutput>>, FollowError> {
        let ended = |pause: Duration| self.process.as_ref().is_none_or(|process| process.wait_timeout(pause));
        Ok(self.follow.next_line(ended)?.map(|line| self.read_line(&line)))
    }

    /// Returns how many lines could not be read and were not told of, because there are so many.
    pub fn untold(&self) -> u64 {
        self.unreadable.saturating_sub(MANY_UNREADABLE)
    }

    /// Reads all the rest, hands each output on, and returns what was left without a line break.
    pub fn read_to_end(&mut self, mut take: impl FnMut(AgentOutput)) -> Result<Vec<u8>, FollowError> {
        while let Some(outputs) = self.next_outputs()? {
            outputs.into_iter().for_each(&mut take);
        }
        Ok(match self.follow.remaining_fragment()? {
            Some(Line::Bytes(bytes)) => bytes,
            Some(Line::Oversized { bytes }) => {
                take(AgentOutput::Event(oversized(bytes)));
                Vec::new()
            }
            None => Vec::new(),
        })
    }

    fn read_line(&mut self, line: &Line) -> Vec<AgentOutput> {
        let mut outputs = match line {
            Line::Bytes(bytes) => self.parser.line(bytes),
            Line::Oversized { bytes } => vec![AgentOutput::Event(oversized(*bytes))],
        };
        outputs.retain(|output| {
            let is_unreadable =
                matches!(output, AgentOutput::Event(Event::Error(error)) if error.kind == UNREADABLE);
            self.unreadable += u64::from(is_unreadable);
            !is_unreadable || self.unreadable <= MANY_UNREADABLE
        });
        outputs
    }

    /// Says how the run ended, and returns what follows from it.
    pub fn end(&mut self, ending: &agent::Ending) -> Vec<AgentOutput> {
        self.parser.end(ending)
    }
}

/// How many lines that cannot be read are told one by one. An agent that prints garbage prints a lot of it.
const MANY_UNREADABLE: u64 = 20;
/// The kind of the error that stands for a line which cannot be read.
const UNREADABLE: &str = "unreadable_line";

/// The kind of the error that stands for a line which is too long to be read.
pub(crate) const OVERSIZED: &str = "oversized_line";

fn oversized(bytes: u64) -> Event {
    Event::error(OVERSIZED, format!("a line of {bytes} bytes was not read; it is kept in the spool"))
}
