//! The running turn of a session, read from its spool while it is not stored yet.
//!
//! A stored turn has the events that its spool had, in the same order: the prompt, what the agent printed, and how it
//! ended. So the events that were shown live are the first ones of the stored turn, and are not shown again.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use azureal_agents::registry;
use azureal_core::agent::AgentOutput;
use azureal_core::{Event, Seq, SessionRecord, StoredEvent};
use azureal_engine::{SpooledTurn, Spools, Watcher};
use azureal_process::ProcessIdentity;

/// The most outputs that are read at a time, so that the reader of a flood still looks at other things.
const MOST_OUTPUTS: usize = 512;
/// The time that an azureal has to store a turn whose agent has ended. After it, the turn is taken for abandoned.
const STORED_WITHIN: Duration = Duration::from_secs(2);

/// The running turns of one session on this machine.
pub(super) struct LiveTurns {
    spools: Spools,
    session: u32,
    /// The time at which the session was created: in another store, another session has its number.
    created_at: String,
    /// The turn that is read.
    current: Option<LiveTurn>,
    /// The runs that are not to be read: of other sessions, or read already.
    done: HashSet<String>,
    /// The turns that were shown and are not stored yet, in order.
    awaited: VecDeque<Shown>,
}

/// A turn that is read as it runs.
struct LiveTurn {
    turn: SpooledTurn,
    watcher: Watcher,
    process: ProcessIdentity,
    /// When its agent was first seen to have ended, or when that was last reported.
    ended: Option<Instant>,
}

/// A turn that was shown live.
struct Shown {
    run: String,
    opening: Event,
    /// The number of its first event, once it is stored.
    first: Option<Seq>,
    /// The kinds of the events that were shown after the opening.
    kinds: VecDeque<String>,
}

/// What became of a stored event.
pub(super) enum Stored {
    /// It is new.
    New(StoredEvent),
    /// It belongs to a turn that was shown live, and was not shown.
    Rest(StoredEvent),
    /// It is the end of a turn that was shown live, and that begins with this event.
    End(StoredEvent, Seq),
}

impl LiveTurns {
    pub(super) fn new(spools: Spools, record: &SessionRecord) -> Self {
        Self {
            spools,
            session: record.id.number(),
            created_at: record.created_at.clone(),
            current: None,
            done: HashSet::new(),
            awaited: VecDeque::new(),
        }
    }

    /// Returns whether a turn is read.
    pub(super) fn is_reading(&self) -> bool {
        self.current.is_some()
    }

    /// Finds a turn that runs and is not read yet. The caller then reads the store before it calls
    /// [`begin`](Self::begin): the turns before this one are stored, and shown first.
    pub(super) fn find(&mut self) -> Option<(SpooledTurn, ProcessIdentity)> {
        if self.current.is_some() {
            return None;
        }
        // A folder that cannot be read has no news. Commands that write report it.
        let runs = self.spools.runs().unwrap_or_default();
        self.done.retain(|run| runs.contains(run));
        for run in runs {
            if self.done.contains(&run) {
                continue;
            }
            let Some((turn, process)) = self.spools.turn_of(&run) else { continue };
            let is_of_session = turn.session == self.session
                && (turn.session_made.is_empty() || turn.session_made == self.created_at);
            if !is_of_session || registry::find(&turn.agent).is_err() {
                self.done.insert(run);
            } else if let Some(process) = process {
                return Some((turn, process.identity()));
            }
        }
        None
    }

    /// Begins to read a turn, and returns it. `None` if its agent has ended: then it may be stored already, and is shown when
    /// it is.
    pub(super) fn begin(&mut self, turn: SpooledTurn, process: ProcessIdentity) -> Option<SpooledTurn> {
        self.done.insert(turn.run.clone());
        if !process.is_alive() {
            return None;
        }
        let agent = registry::find(&turn.agent).ok()?;
        let watcher = self.spools.watch(&turn, agent, Some(process.clone())).ok()?;
        self.awaited.push_back(Shown {
            run: turn.run.clone(),
            opening: turn.opening(),
            first: None,
            kinds: VecDeque::new(),
        });
        self.current = Some(LiveTurn { turn: turn.clone(), watcher, process, ended: None });
        Some(turn)
    }

    /// Reads what has been printed. Never waits.
    pub(super) fn read(&mut self) -> Vec<AgentOutput> {
        let mut outputs = Vec::new();
        let Some(live) = &mut self.current else { return outputs };
        while outputs.len() < MOST_OUTPUTS {
            // An output that cannot be read any more is read when the turn is stored.
            let Ok(Some(mut next)) = live.watcher.try_outputs() else { break };
            outputs.append(&mut next);
        }
        if let Some(shown) = self.awaited.iter_mut().find(|shown| shown.run == live.turn.run) {
            shown.kinds.extend(outputs.iter().filter_map(|output| match output {
                AgentOutput::Event(event) => Some(event.kind().to_owned()),
                _ => None,
            }));
        }
        outputs
    }

    /// Returns whether the agent has ended and nobody has stored its turn for a while: its azureal is gone.
    pub(super) fn is_abandoned(&mut self) -> bool {
        let Some(live) = &mut self.current else { return false };
        match live.ended {
            None => {
                live.ended = (!live.process.is_alive()).then(Instant::now);
                false
            }
            Some(ended) if ended.elapsed() < STORED_WITHIN => false,
            Some(_) => {
                live.ended = Some(Instant::now());
                true
            }
        }
    }

    /// Returns the turns whose spool is gone. A turn is stored before its spool is removed, so they are stored, or never
    /// will be.
    pub(super) fn gone(&self) -> Vec<String> {
        if self.awaited.is_empty() {
            return Vec::new();
        }
        let Ok(runs) = self.spools.runs() else { return Vec::new() };
        let awaited = self.awaited.iter().map(|shown| &shown.run);
        awaited.filter(|run| !runs.contains(run)).cloned().collect()
    }

    /// Stops waiting for turns that are gone, once the store was read after [`gone`](Self::gone). Returns whether one of
    /// them is not in this session.
    pub(super) fn give_up(&mut self, gone: &[String]) -> bool {
        let is_gone = |run: &String| gone.contains(run);
        self.current.take_if(|live| is_gone(&live.turn.run));
        let before = self.awaited.len();
        self.awaited.retain(|shown| shown.first.is_some() || !is_gone(&shown.run));
        self.awaited.len() < before
    }

    /// Decides about a stored event; `None` if it was shown live.
    pub(super) fn take(&mut self, stored: StoredEvent) -> Option<Stored> {
        let open = self.awaited.front().is_some_and(|shown| shown.first.is_some());
        if !open {
            let event = stored.event().ok();
            let found = self.awaited.iter().position(|shown| event.as_ref() == Some(&shown.opening));
            let Some(index) = found else { return Some(Stored::New(stored)) };
            // Turns of a session are stored in the order in which they ran: those before it are not stored here.
            self.awaited.drain(..index);
        }
        let Some(shown) = self.awaited.front_mut() else { return Some(Stored::New(stored)) };
        let Some(first) = shown.first else {
            shown.first = Some(stored.seq);
            // What is not shown yet is read from the store.
            let run = &shown.run;
            self.current.take_if(|live| live.turn.run == *run);
            return None;
        };
        if stored.kind == "Complete" {
            self.awaited.pop_front();
            return Some(Stored::End(stored, first));
        }
        if shown.kinds.pop_front().as_deref() == Some(stored.kind.as_str()) {
            return None;
        }
        // From here on the stored turn is another than the one that was shown, or has more.
        shown.kinds.clear();
        Some(Stored::Rest(stored))
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::SessionId;
    use azureal_core::event::Complete;

    use super::*;

    fn live() -> LiveTurns {
        let spools = Spools::new("/no/such/folder");
        LiveTurns::new(spools, &SessionRecord::new(SessionId::new(1).unwrap()))
    }

    /// Says that a turn was shown: its opening, and so many texts of the agent.
    fn show(live: &mut LiveTurns, run: &str, opening: Event, texts: usize) {
        let kinds = std::iter::repeat_n("AssistantText".to_owned(), texts).collect();
        live.awaited.push_back(Shown { run: run.to_owned(), opening, first: None, kinds });
    }

    /// Stores events, and returns those that are shown now.
    fn store(live: &mut LiveTurns, first: u64, events: &[Event]) -> Vec<String> {
        let stored = events
            .iter()
            .zip(first..)
            .map(|(event, seq)| StoredEvent::new(Seq(seq), event.kind(), Ok(event.to_json())));
        stored
            .filter_map(|stored| live.take(stored))
            .map(|taken| match taken {
                Stored::New(stored) => format!("{} {}", stored.seq.0, stored.kind),
                Stored::Rest(stored) => format!("{} rest {}", stored.seq.0, stored.kind),
                Stored::End(stored, first) => format!("{} ends {}", stored.seq.0, first.0),
            })
            .collect()
    }

    fn end() -> Event {
        Event::Complete(Complete::default())
    }

    #[test]
    fn what_was_shown_live_is_not_shown_again_and_the_rest_is() {
        let mut live = live();
        show(&mut live, "a", Event::user("go"), 1);
        // The turn of another machine comes in between.
        let other = [Event::user("other"), Event::assistant("x"), end()];
        assert_eq!(store(&mut live, 1, &other), ["1 UserMessage", "2 AssistantText", "3 Complete"]);
        let turn =
            [Event::user("go"), Event::assistant("a"), Event::assistant("b"), Event::error("k", "m"), end()];
        assert_eq!(store(&mut live, 4, &turn), ["6 rest AssistantText", "7 rest Error", "8 ends 4"]);
        assert_eq!(store(&mut live, 9, &turn).len(), 5, "the same again is another turn");
    }

    #[test]
    fn a_turn_that_was_compacted_in_the_middle_is_two() {
        let mut live = live();
        show(&mut live, "a", Event::user("go"), 1);
        show(&mut live, "b", Event::Compacted, 2);
        let first = [Event::user("go"), Event::assistant("a"), Event::Compacting, end()];
        assert_eq!(store(&mut live, 1, &first), ["3 rest Compacting", "4 ends 1"]);
        let second = [Event::Compacted, Event::assistant("b"), Event::assistant("c"), end()];
        assert_eq!(store(&mut live, 5, &second), ["8 ends 5"]);
        assert!(live.awaited.is_empty());
    }

    #[test]
    fn a_stored_turn_that_differs_from_the_shown_one_is_shown_from_there() {
        let mut live = live();
        show(&mut live, "a", Event::user("go"), 3);
        let turn =
            [Event::user("go"), Event::assistant("a"), Event::error("k", "m"), Event::assistant("b"), end()];
        assert_eq!(store(&mut live, 1, &turn), ["3 rest Error", "4 rest AssistantText", "5 ends 1"]);
        // One with less than was shown ends as well.
        show(&mut live, "b", Event::user("go"), 3);
        assert_eq!(store(&mut live, 6, &[Event::user("go"), end()]), ["7 ends 6"]);
    }

    #[test]
    fn a_turn_that_is_stored_elsewhere_is_not_waited_for() {
        let mut live = live();
        show(&mut live, "a", Event::user("go"), 1);
        let gone = live.gone();
        assert_eq!(gone, ["a"]);
        assert!(live.give_up(&gone));
        assert_eq!(store(&mut live, 1, &[Event::user("go"), end()]), ["1 UserMessage", "2 Complete"]);
        // Another way to notice: the next turn is stored.
        show(&mut live, "b", Event::user("one"), 1);
        show(&mut live, "c", Event::user("two"), 1);
        let turn = [Event::user("two"), Event::assistant("x"), end()];
        assert_eq!(store(&mut live, 3, &turn), ["5 ends 3"]);
        assert!(live.awaited.is_empty());
        // One whose stored events are being read is complete when its spool is gone.
        show(&mut live, "d", Event::user("go"), 1);
        assert!(store(&mut live, 6, &[Event::user("go"), Event::assistant("x")]).is_empty());
        let gone = live.gone();
        assert!(!live.give_up(&gone));
        assert_eq!(store(&mut live, 8, &[end()]), ["8 ends 6"]);
    }
}
