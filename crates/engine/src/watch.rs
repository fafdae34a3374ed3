//! Watching a turn: reading its spool as it grows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use azureal_core::agent::{Agent, AgentOutput, AgentParser};
use azureal_core::{Event, agent, compact_event};
use azureal_process::{Follow, FollowError, Line, ProcessIdentity, Progress};

use crate::header::SpooledTurn;
use crate::turn_parser::TurnParser;

/// The interval at which a busy reader checks whether the writer has ended.
const CHECK_PACE: Duration = Duration::from_millis(50);
/// The largest unread output at the end of the agent, for a watcher. A longer one is a flood: reading it would take
/// longer than storing it, and the stored events can be shown instead.
const LARGEST_BACKLOG: u64 = 16 << 20;
/// The part of a finished output that is read, in bytes and with [`LINE_COST`] per line: a second or two. The rest
/// stays unread, except for its end.
const READ_BUDGET: u64 = 512 << 20;
/// The cost of a line besides its bytes.
const LINE_COST: u64 = 512;
/// The bytes that are read from the end of an output over the budget: there the agent prints its outcome.
const TAIL: u64 = 4 << 20;
/// The length from which a line is read by one reader at a time, and its events are cut down at once.
const LARGE_LINE: u64 = 4 << 20;

/// Held while a large line is in memory. Two readers watch a running turn; lines are up to 64 MiB long, and each is in
/// memory as text and as an event.
static LARGE: Mutex<()> = Mutex::new(());

/// Follows the output of a run from its beginning, at its own pace.
///
/// It holds the file open, so the output can still be read when the turn is stored and the file is removed.
pub struct Watcher {
    follow: Box<Follow>,
    parser: LineParser,
    /// The writer, while it runs.
    process: Option<ProcessIdentity>,
    /// The end of the output, once the writer has ended. Processes that it left behind may still write.
    end: Option<u64>,
    /// When the writer was last checked.
    checked: Instant,
    /// Whether the writer ended and left more unread than a watcher reads.
    left_behind: bool,
    /// The cost of the lines so far: see [`READ_BUDGET`].
    cost: u64,
    /// The number of bytes that were skipped.
    skipped: u64,
    /// The latest end of the writer's output, as the driver knows it.
    bound: Option<Arc<AtomicU64>>,
}

/// The result of one poll of an output.
pub(crate) enum Look {
    /// The outputs of the next line.
    Outputs(Vec<AgentOutput>),
    /// The line has not ended yet, and there is more to read.
    Reading,
    /// Everything is read.
    Waiting,
}

impl Watcher {
    /// Opens the output of a turn; without a process it is finished.
    pub(crate) fn of_turn(
        output: &std::path::Path,
        agent: &dyn Agent,
        turn: &SpooledTurn,
        process: Option<ProcessIdentity>,
    ) -> Result<Self, FollowError> {
        Self::of_run(output, 0, agent, turn, process)
    }

    /// Opens the output of a turn where its program was started, which may have been a second time.
    pub(crate) fn of_run(
        output: &std::path::Path,
        from: u64,
        agent: &dyn Agent,
        turn: &SpooledTurn,
        process: Option<ProcessIdentity>,
    ) -> Result<Self, FollowError> {
        azureal_files::check(output)
            .map_err(|source| FollowError::Unreadable { path: output.to_owned(), source })?;
        let mut parser = TurnParser::new(agent, turn);
        if from > 0 {
            parser.has_switched();
        }
        let mut watcher = Self::with_parser(output, Box::new(parser), process)?;
        *watcher.follow = Follow::open(output, from)?;
        Ok(watcher)
    }

    /// Reads no further than to this place, which may be set while the writer runs.
    pub(crate) fn ending_at(mut self, bound: &Arc<AtomicU64>) -> Self {
        self.bound = Some(Arc::clone(bound));
        self
    }

    /// Opens a file that another parser reads.
    pub(crate) fn with_parser(
        file: &std::path::Path,
        parser: Box<dyn AgentParser>,
        process: Option<ProcessIdentity>,
    ) -> Result<Self, FollowError> {
        let mut watcher = Self::growing(file, parser)?;
        if process.is_none() {
            watcher.end_here()?;
        }
        Ok(Self { process, ..watcher })
    }

    /// Opens a file whose writer the caller looks after: see [`look`](Self::look).
    pub(crate) fn growing(file: &std::path::Path, parser: Box<dyn AgentParser>) -> Result<Self, FollowError> {
        Ok(Self {
            follow: Box::new(Follow::open(file, 0)?),
            parser: LineParser::new(parser),
            process: None,
            end: None,
            checked: Instant::now(),
            left_behind: false,
            cost: 0,
            skipped: 0,
            bound: None,
        })
    }

    /// Reads the next line, without waiting for it and in a bounded time.
    pub(crate) fn look(&mut self) -> Result<Look, FollowError> {
        let bytes = match self.follow.poll()? {
            Progress::Line { bytes } => bytes,
            Progress::Reading => return Ok(Look::Reading),
            Progress::Waiting => return Ok(Look::Waiting),
        };
        let is_large = bytes > LARGE_LINE;
        let _alone = is_large.then(|| LARGE.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(line) = self.follow.take_line()? else { return Ok(Look::Waiting) };
        let outputs = self.read_line(&line);
        if !is_large {
            return Ok(Look::Outputs(outputs));
        }
        drop(line);
        let cut = |output| match output {
            AgentOutput::Event(event) => AgentOutput::Event(compact_event(event)),
            other => other,
        };
        Ok(Look::Outputs(outputs.into_iter().map(cut).collect()))
    }

    /// Waits for the next line and returns its outputs; `None` if the program has ended and all is read, or too much
    /// is left to read.
    pub fn next_outputs(&mut self) -> Result<Option<Vec<AgentOutput>>, FollowError> {
        loop {
            if let Poll::Ready(outputs) = self.poll_outputs()? {
                return Ok(outputs);
            }
        }
    }

    /// Does the same, but waits only for a short while: [`Poll::Pending`] if the line is not there by then.
    pub(crate) fn poll_outputs(&mut self) -> Result<Poll<Option<Vec<AgentOutput>>>, FollowError> {
        loop {
            if self.process.is_some() && self.checked.elapsed() >= CHECK_PACE {
                self.check_writer(Duration::ZERO)?;
            }
            if self.left_behind {
                return Ok(Poll::Ready(None));
            }
            match self.look()? {
                Look::Outputs(outputs) => return Ok(Poll::Ready(Some(outputs))),
                Look::Reading => {}
                Look::Waiting if self.process.is_none() => return Ok(Poll::Ready(None)),
                Look::Waiting => {
                    self.check_writer(self.follow.pause())?;
                    return Ok(Poll::Pending);
                }
            }
        }
    }

    /// Returns the outputs of the next line; `None` if the line is not there yet. Never waits.
    pub fn try_outputs(&mut self) -> Result<Option<Vec<AgentOutput>>, FollowError> {
        loop {
            match self.look()? {
                Look::Outputs(outputs) => return Ok(Some(outputs)),
                Look::Reading => {}
                Look::Waiting => return Ok(None),
            }
        }
    }

    /// Waits for the writer to end, at most `pause`.
    fn check_writer(&mut self, pause: Duration) -> Result<(), FollowError> {
        let has_ended = self.process.as_ref().is_some_and(|process| process.wait_timeout(pause));
        self.checked = Instant::now();
        if has_ended {
            self.process = None;
            let end = self.end_here()?;
            self.left_behind = end.saturating_sub(self.follow.offset()) > LARGEST_BACKLOG;
        }
        Ok(())
    }

    /// Sets the end of reading to the current length of the file, and returns it.
    fn end_here(&mut self) -> Result<u64, FollowError> {
        let bound = self.bound.as_ref().map_or(u64::MAX, |bound| bound.load(Ordering::SeqCst));
        let end = self.follow.length()?.min(bound);
        self.follow.end_at(end);
        self.end = Some(end);
        Ok(end)
    }

    /// Returns the number of unreadable lines that were not reported, because there are too many.
    pub fn untold(&self) -> u64 {
        self.parser.unreadable.saturating_sub(MANY_UNREADABLE)
    }

    /// Returns the number of bytes that [`read_to_end`](Self::read_to_end) skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Reads all the rest of a finished output, hands each output on, and returns what was left without a line break.
    ///
    /// Of more than half a GiB it reads the beginning and the end.
    pub fn read_to_end(&mut self, mut take: impl FnMut(AgentOutput)) -> Result<Vec<u8>, FollowError> {
        while let Some(outputs) = self.next_outputs()? {
            outputs.into_iter().for_each(&mut take);
            if self.cost > READ_BUDGET && self.skipped == 0 {
                let tail = self.end.unwrap_or_default().saturating_sub(TAIL);
                if let Some(skipped @ 1..) = tail.checked_sub(self.follow.offset()) {
                    self.skipped = skipped;
                    self.follow.skip_to(tail);
                }
            }
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
        self.cost = self.cost.saturating_add(LINE_COST);
        if let Line::Bytes(bytes) = line {
            self.cost = self.cost.saturating_add(bytes.len() as u64);
        }
        self.parser.line(line)
    }

    /// Takes the end of the run, and returns the outputs that follow from it.
    pub fn end(&mut self, ending: &agent::Ending) -> Vec<AgentOutput> {
        self.parser.agent.end(ending)
    }
}

/// Parses the lines of an output, of which some may not be readable.
pub(crate) struct LineParser {
    agent: Box<dyn AgentParser>,
    /// The number of lines that could not be read.
    unreadable: u64,
}

impl LineParser {
    pub(crate) fn new(agent: Box<dyn AgentParser>) -> Self {
        Self { agent, unreadable: 0 }
    }

    pub(crate) fn line(&mut self, line: &Line) -> Vec<AgentOutput> {
        let mut outputs = match line {
            Line::Bytes(bytes) => self.agent.line(bytes),
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
}

/// The number of unreadable lines that are reported one by one. An agent that prints garbage prints a lot of it.
const MANY_UNREADABLE: u64 = 20;
/// The kind of the error that stands for a line which cannot be read.
const UNREADABLE: &str = "unreadable_line";

/// The kind of the error that stands for a line which is too long to be read.
pub(crate) const OVERSIZED: &str = "oversized_line";

fn oversized(bytes: u64) -> Event {
    Event::error(OVERSIZED, format!("a line of {bytes} bytes was not read; the output of the turn is kept"))
}
