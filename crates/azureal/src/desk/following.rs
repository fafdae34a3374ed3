//! What happens to the session of a pane: events that other processes store, and turns that they run.

use std::sync::Arc;
use std::time::Duration;

use azureal_core::agent::AgentOutput;
use azureal_core::{Event, PAGE_EVENTS, Page, Seq, SessionId, SessionRecord, StoredEvent};
use azureal_engine::{Control, SpooledTurn, added_chars};
use futures_executor::block_on;
use jiff::Timestamp;

use super::hub::HubMessage;
use super::outbox::OpenPane;
use super::questions::open_question;
use super::shared::Shared;
use super::{News, TurnNews};
use crate::error::Error;
use crate::follow::{Follower, News as Change};
use crate::meter::Meter;

/// How often the output of a turn of another process is read.
pub(super) const LIVE_PACE: Duration = Duration::from_millis(100);

/// The session of a pane, as it is followed.
pub(super) struct Following {
    shared: Arc<Shared>,
    pane: OpenPane,
    follower: Option<(SessionId, Follower)>,
    foreign: Option<Foreign>,
    /// The places of turns that this pane has shown itself.
    own: Vec<(Seq, Seq)>,
}

/// A turn of another process, or of another pane.
struct Foreign {
    meter: Meter,
    agent: String,
    control: Option<Control>,
}

impl Following {
    pub(super) fn new(shared: Arc<Shared>, pane: OpenPane) -> Self {
        Self { shared, pane, follower: None, foreign: None, own: Vec::new() }
    }

    /// Follows a session from the event that was seen last.
    pub(super) fn start(&mut self, record: &SessionRecord, seen: Option<StoredEvent>) {
        // One that still runs is found again.
        self.over();
        let workspace = &self.shared.workspace;
        let follower = Follower::polled(Arc::clone(&workspace.store), record.id, seen);
        self.follower = Some((record.id, follower.with_live_turns(workspace.spools(), record)));
        self.own.clear();
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        self.follower.as_ref().map(|(session, _)| *session)
    }

    /// Returns whether a turn of another process is shown.
    pub(super) fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// Returns what answers the questions of that turn's agent.
    pub(super) fn control(&self) -> Option<Control> {
        self.foreign.as_ref()?.control.clone()
    }

    /// Returns whether the output of a turn is read, so that this is to be polled.
    pub(super) fn is_reading(&self) -> bool {
        self.follower.as_ref().is_some_and(|(_, follower)| follower.is_reading())
    }

    /// Sends what is new.
    pub(super) fn poll(&mut self, mut may_have_changed: bool) {
        while let Some((session, follower)) = &mut self.follower {
            let session = *session;
            match block_on(follower.poll(may_have_changed)) {
                Ok(Some(change)) => self.take(session, change),
                Ok(None) => return,
                Err(error) => return self.lost(error),
            }
            may_have_changed = false;
        }
    }

    /// Sends the events that were stored before a turn of this pane begins, and no later ones: a fast agent may have answered by now.
    pub(super) fn catch_up(&mut self, record: &SessionRecord) {
        if self.session() != Some(record.id) {
            self.start(record, None);
        }
        while let Some((session, follower)) = &mut self.follower {
            let after = follower.last_seen();
            let missing = usize::try_from(record.counts.events.saturating_sub(after.0)).unwrap_or(usize::MAX);
            if missing == 0 {
                return;
            }
            let page = Page::After(after, missing.min(PAGE_EVENTS));
            let events = match block_on(self.shared.workspace.store.read(*session, page)) {
                Ok(events) => events,
                Err(error) => return self.lost(error.into()),
            };
            let Some(last) = events.last() else { return };
            follower.skip_to(last.clone());
            self.send(News::Appended { pane: self.pane.id, events });
        }
    }

    /// Notes the place of a turn that this pane has shown itself.
    pub(super) fn stored(&mut self, session: SessionId, first: Seq, last: Seq) {
        let Some((followed, follower)) = &mut self.follower else { return };
        if *followed != session {
            return;
        }
        if follower.last_seen().next() == first {
            let store = &self.shared.workspace.store;
            let before = Seq(last.0.saturating_sub(1));
            let found = block_on(store.read(session, Page::After(before, 1)));
            if let Some(seen) = found.ok().and_then(|mut events| events.pop()) {
                return follower.skip_to(seen);
            }
        }
        self.own.push((first, last));
    }

    fn take(&mut self, session: SessionId, change: Change) {
        match change {
            Change::Events(mut events) => {
                events.retain(|stored| {
                    !self.own.iter().any(|(first, last)| (*first..=*last).contains(&stored.seq))
                });
                if !events.is_empty() {
                    self.send(News::Appended { pane: self.pane.id, events });
                }
            }
            Change::Began(turn) => self.began(session, &turn),
            Change::Live(outputs) => self.live(outputs),
            Change::Rest(events) => {
                let events = events.iter().filter_map(|stored| stored.event().ok());
                self.live(events.map(AgentOutput::Event).collect());
            }
            Change::Complete(stored, first) => {
                let complete = match stored.event() {
                    Ok(Event::Complete(complete)) => Box::new(complete),
                    _ => Box::default(),
                };
                let (first, last) = (Some(first), Some(stored.seq));
                self.turn(TurnNews::Stored { session, first, last, complete, refused: Vec::new() });
                self.over();
            }
            // Its azureal is gone, and nobody else stores it.
            Change::Abandoned => self.shared.tell_hub(HubMessage::Look),
            Change::StoredElsewhere => {
                let notice = format!(
                    "the turn is not stored in {session}: it is in a fork, or its output was deleted"
                );
                self.turn(TurnNews::Notice(notice));
                self.over();
            }
            Change::Cleared => {
                self.over();
                // First: what is stored after this point is reported, and what is before it is read again.
                self.restart(session);
                self.send(News::Changed { pane: self.pane.id });
            }
        }
    }

    /// Follows the session from its end on: the interface reads all of it again.
    fn restart(&mut self, session: SessionId) {
        let store = &self.shared.workspace.store;
        let read = || -> Result<_, Error> {
            let record = block_on(store.get(session))?;
            Ok((record, block_on(store.read(session, Page::last(1)))?.pop()))
        };
        match read() {
            Ok((record, seen)) => self.start(&record, seen),
            Err(error) => self.lost(error),
        }
    }

    fn began(&mut self, session: SessionId, turn: &SpooledTurn) {
        self.over();
        let Ok(record) = block_on(self.shared.workspace.store.get(session)) else { return };
        let mut meter = Meter::of(&record, self.shared.threshold());
        meter.estimate();
        meter.add(added_chars(&turn.opening()));
        let last = self.follower.as_ref().map_or(Seq::START, |(_, follower)| follower.last_seen());
        let began = turn.started_at.parse::<Timestamp>().map_or(0, Timestamp::as_millisecond);
        let control = self.shared.workspace.spools().and_then(|spools| spools.control(&turn.run));
        self.foreign = Some(Foreign { meter: meter.clone(), agent: turn.agent.clone(), control });
        self.turn(TurnNews::Accepted {
            record: Box::new(record),
            agent: turn.agent.clone(),
            model: turn.model.clone(),
        });
        self.turn(TurnNews::Began {
            prompt: (!turn.goes_on).then(|| turn.prompt.clone()),
            first: last.next(),
            since_ms: u64::try_from(began).unwrap_or(0),
            is_ours: false,
        });
        self.turn(TurnNews::Meter(meter));
    }

    fn live(&mut self, mut outputs: Vec<AgentOutput>) {
        let Some(foreign) = &mut self.foreign else { return };
        let before = foreign.meter.clone();
        for output in &outputs {
            match output {
                AgentOutput::Event(event) => foreign.meter.add(added_chars(event)),
                AgentOutput::Usage(usage) => {
                    if let Some(tokens) = usage.context_tokens {
                        foreign.meter.count(tokens, &foreign.agent);
                    }
                }
                _ => {}
            }
        }
        let meter = Some(foreign.meter.clone()).filter(|meter| *meter != before);
        let question = open_question(&mut outputs, foreign.control.as_ref());
        if !outputs.is_empty() {
            self.turn(TurnNews::Output(outputs));
        }
        if let Some(question) = question {
            self.turn(TurnNews::Question(question));
        }
        if let Some(meter) = meter {
            self.turn(TurnNews::Meter(meter));
        }
    }

    /// Ends the turn of another process, if one is shown.
    fn over(&mut self) {
        if self.foreign.take().is_some() {
            self.turn(TurnNews::Over { is_ours: false, error: None, unsent: None });
        }
    }

    /// Stops following a session that is deleted. Other errors may pass.
    fn lost(&mut self, error: Error) {
        if error.kind() == "not_found" {
            self.over();
            self.follower = None;
            self.send(News::Deleted { pane: self.pane.id });
        } else {
            self.shared.outbox.failed(self.pane, error);
        }
    }

    fn send(&self, news: News) {
        self.shared.outbox.send_to(self.pane, news);
    }

    fn turn(&self, news: TurnNews) {
        self.shared.outbox.turn(self.pane, news);
    }
}
