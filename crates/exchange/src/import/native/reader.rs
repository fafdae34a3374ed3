//! Reads the turns of a session in pieces, each of which is stored in one transaction.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use azureal_agents::native::{NativeError, NativeProblem, NativeSession, NativeTurn, NativeTurns};
use azureal_core::event::Complete;
use azureal_core::{Event, NewEvent, PREVIEW_CHARS, Seq, Tokens, prompt_text};
use jiff::Timestamp;

use super::super::counted::Counted;
use super::ledger::{LastTurn, Ledger, milliseconds};
use super::outcome::{LeftOut, NativeImported, NativeOutcome};
use super::{ImportError, NativeCandidate, add_landmark, stored_time};

/// The number of events and of bytes that end a piece, which is stored in one transaction.
const PIECE_EVENTS: usize = 4096;
const PIECE_BYTES: usize = 8 << 20;
/// The time after its last change in which a turn without an end counts as running.
const MAY_RUN: Duration = Duration::from_secs(10 * 60);
/// The number of problems of a session that are reported one by one.
const MOST_PROBLEMS: usize = 100;

/// Whether the turns of a ledger are in a source.
pub(super) enum Skipped {
    All,
    /// The source ends before the last of them.
    Ended,
    /// Another turn is in the place of the last of them.
    Other,
}

/// Events that are stored in one transaction.
#[derive(Default)]
pub(super) struct Piece {
    pub(super) events: Vec<NewEvent>,
    /// About the size of the events, in bytes.
    pub(super) size: usize,
    pub(super) turns: u64,
    pub(super) tokens: Tokens,
    /// The time of the first turn that no other session counts.
    pub(super) begun: Option<Timestamp>,
    /// The time of the last turn.
    pub(super) happened_at: Option<Timestamp>,
    /// Summaries, each with the number of events of the piece that it covers.
    pub(super) summaries: Vec<(usize, String)>,
}

/// Removes from the end of a turn what another session counts.
fn leave_uncounted(complete: &mut Complete) {
    (complete.usage, complete.cost_usd, complete.duration_ms) = (None, 0.0, 0);
}

/// Reads the turns of a session in pieces.
pub(super) struct Reader {
    turns: Box<dyn NativeTurns>,
    /// The turns that were read ahead.
    pub(super) ahead: VecDeque<NativeTurn>,
    may_run: bool,
    /// When the session began: a turn before that is one of its origin. `None` if all that follow are its own.
    begun: Option<Timestamp>,
    /// The landmarks of the sessions of the store that have the same beginning, as far as it was read. They count its turns.
    pub(super) counted: Vec<Vec<u64>>,
    /// The number of turns that were taken, and the last one of them.
    read: u64,
    last: LastTurn,
    /// The part of the next turn that was imported before.
    before: Option<LastTurn>,
    /// The tokens and the cost of the turns before the last one, if the source counts them for the whole session only.
    earlier: Counted,
    pub(super) is_running: bool,
    /// Whether azureal wrote the source: tags of ours in its prompts do not mean that azureal ran them.
    pub(super) is_written: bool,
    ours: u64,
    /// The beginning of the first prompt that is imported; empty as long as there is none.
    preview: String,
    problems: Vec<NativeProblem>,
    further_problems: u64,
}

impl Reader {
    pub(super) fn new(candidate: NativeCandidate<'_>, now: Option<SystemTime>) -> Result<Self, ImportError> {
        let changed = candidate.session.changed.filter(|_| now.is_some());
        let age = changed.zip(now).and_then(|(changed, now)| now.duration_since(changed).ok());
        let mut reader = Self {
            turns: candidate.home.turns(candidate.session)?,
            ahead: VecDeque::new(),
            // A source whose time is in the future was changed just now.
            may_run: changed.is_some() && age.is_none_or(|age| age < MAY_RUN),
            begun: candidate.head.started,
            counted: Vec::new(),
            read: 0,
            last: LastTurn::default(),
            before: None,
            earlier: Counted::default(),
            is_running: false,
            is_written: false,
            ours: 0,
            preview: String::new(),
            problems: Vec::new(),
            further_problems: 0,
        };
        reader.read_ahead(1)?;
        Ok(reader)
    }

    pub(super) fn title(&self) -> Option<String> {
        self.turns.title().map(str::to_owned)
    }

    /// Reads turns, and takes their problems, until so many are ahead.
    fn read_ahead(&mut self, count: usize) -> Result<(), NativeError> {
        while self.ahead.len() < count {
            let Some(mut turn) = self.turns.next_turn()? else { break };
            for problem in std::mem::take(&mut turn.problems) {
                if self.problems.len() < MOST_PROBLEMS {
                    self.problems.push(problem);
                } else {
                    self.further_problems += 1;
                }
            }
            if let (Some(started), Some(Event::Complete(complete))) = (turn.started, turn.events.last_mut()) {
                complete.started_at = Some(stored_time(started));
                // A fork begins with turns of its origin, which counts them.
                if self.begun.is_some_and(|begun| started < begun) {
                    leave_uncounted(complete);
                }
            }
            if !turn.events.is_empty() {
                self.ahead.push_back(turn);
            }
        }
        Ok(())
    }

    /// Takes the next turn; `None` at the end, or if it seems to run.
    pub(super) fn take(&mut self) -> Result<Option<NativeTurn>, NativeError> {
        self.read_ahead(2)?;
        let is_last = self.ahead.len() == 1;
        if is_last && self.may_run && self.ahead.front().is_some_and(|turn| turn.is_open) {
            self.is_running = true;
            return Ok(None);
        }
        let Some(mut turn) = self.ahead.pop_front() else { return Ok(None) };
        if self.is_counted(&turn)
            && let Some(Event::Complete(complete)) = turn.events.last_mut()
        {
            leave_uncounted(complete);
        }
        // A count of the whole session cannot be told apart from that of the turns that azureal ran.
        let total = self.turns.total().filter(|_| is_last && self.ours == 0 && !turn.is_ours);
        if let (Some(total), Some(Event::Complete(complete))) = (total, turn.events.last_mut()) {
            Counted::new(total.usage.into(), total.cost_usd, 0).minus(self.earlier).put(complete);
        }
        self.read += 1;
        self.last = LastTurn::of(&turn);
        Ok(Some(turn))
    }

    /// Returns whether another session of the store has the next turn too, after the same turns.
    fn is_counted(&mut self, turn: &NativeTurn) -> bool {
        if self.counted.is_empty() || turn.is_ours {
            return false;
        }
        let mut landmarks = Vec::new();
        turn.events.iter().for_each(|event| add_landmark(&mut landmarks, event));
        self.counted.retain_mut(|counted| {
            let is_same = counted.starts_with(&landmarks);
            counted.drain(..if is_same { landmarks.len() } else { 0 });
            is_same
        });
        !self.counted.is_empty()
    }

    /// Skips the turns of the ledger. Events that the last of them got since stay.
    pub(super) fn skip(&mut self, ledger: &Ledger) -> Result<Skipped, NativeError> {
        self.earlier = ledger.earlier;
        self.is_written = ledger.is_written;
        // Turns that follow those of the ledger are the session's own.
        self.begun = None;
        while self.read < ledger.turns {
            let Some(turn) = self.take()? else {
                // The last one may run again.
                let is_last = self.is_running && self.read + 1 == ledger.turns;
                return Ok(if is_last { Skipped::All } else { Skipped::Ended });
            };
            if self.read < ledger.turns {
                continue;
            }
            let known = &ledger.last;
            if !known.id.is_empty() && turn.id != known.id {
                return Ok(Skipped::Other);
            }
            // The end of the turn was stored. If it has more events now, these follow, with their own end.
            if !known.id.is_empty() && self.last.events > known.events && !turn.is_ours {
                self.read -= 1;
                self.before = Some(known.clone());
                self.ahead.push_front(turn);
                break;
            }
            if self.last.events < known.events {
                self.last = known.clone();
            }
            self.earlier = self.earlier.plus(known.counted);
        }
        // What was imported before is not reported again.
        self.problems.clear();
        self.further_problems = 0;
        Ok(Skipped::All)
    }

    /// Skips the turns that azureal wrote. Returns their number and the last one; `None` if there is none.
    pub(super) fn skip_written(
        &mut self,
        wrote: impl Fn(&str) -> bool,
    ) -> Result<Option<(u64, NativeTurn)>, NativeError> {
        self.is_written = true;
        let mut last = None;
        while self.ahead.front().is_some_and(|turn| wrote(&turn.id)) {
            let Some(turn) = self.take()? else { break };
            last = Some(turn);
        }
        Ok(last.map(|turn| (self.read, turn)))
    }

    /// Returns the next events to store; `None` at the end.
    pub(super) fn piece(&mut self) -> Result<Option<Piece>, NativeError> {
        let mut piece = Piece::default();
        while piece.events.len() < PIECE_EVENTS && piece.size < PIECE_BYTES {
            let Some(mut turn) = self.take()? else { break };
            if turn.is_ours && !self.is_written {
                self.ours += 1;
                continue;
            }
            let before = self.before.take().unwrap_or_default();
            if let Some(Event::Complete(complete)) = turn.events.last_mut() {
                before.leave_new(complete);
            }
            if self.counted.is_empty() {
                piece.begun = piece.begun.or(turn.started);
            }
            piece.turns += 1;
            piece.tokens = piece.tokens + self.last.counted.minus(before.counted).tokens();
            piece.happened_at = turn.started.or(piece.happened_at);
            piece.size += turn.size;
            let begun = piece.events.len();
            let new = turn.summaries.into_iter().filter(|summary| summary.after > before.events);
            piece.summaries.extend(new.map(|summary| (begun + summary.after - before.events, summary.text)));
            let events = turn.events.into_iter().skip(before.events);
            piece.events.extend(events.inspect(|event| self.look_for_preview(event)).map(NewEvent::from));
        }
        Ok((!piece.events.is_empty()).then_some(piece))
    }

    fn look_for_preview(&mut self, event: &Event) {
        if self.preview.is_empty()
            && let Some(prompt) = prompt_text(event)
        {
            self.preview = prompt.chars().take(PREVIEW_CHARS).collect();
        }
    }

    /// Returns the ledger of what was read so far.
    pub(super) fn ledger(&self, session: &NativeSession, events: u64, run: &str) -> Ledger {
        // Until everything is read, the next import has to look at the source.
        let is_whole = self.ahead.is_empty() && !self.is_running;
        Ledger {
            turns: self.read,
            last: self.last.clone(),
            earlier: self.earlier,
            events,
            size: if is_whole { session.size } else { 0 },
            changed: if is_whole { milliseconds(session.changed) } else { 0 },
            is_written: self.is_written,
            run: run.to_owned(),
        }
    }

    /// Returns the result for a session without any turn to import.
    pub(super) fn nothing(self) -> NativeImported {
        let why = match () {
            () if self.is_running => LeftOut::Running,
            () if self.ours > 0 => LeftOut::Ours,
            () => LeftOut::Empty,
        };
        self.finished(NativeOutcome::LeftOut(why), None, 0)
    }

    pub(super) fn finished(
        self,
        outcome: NativeOutcome,
        range: Option<(Seq, Seq)>,
        read_before: u64,
    ) -> NativeImported {
        let Self { problems, further_problems, is_running, ours, preview, .. } = self;
        NativeImported {
            outcome,
            range,
            read_before,
            problems,
            further_problems,
            is_running,
            ours,
            preview,
            kept_by: None,
        }
    }
}
