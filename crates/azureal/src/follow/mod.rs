//! Following a session: the events that any process adds to it.
//!
//! A turn that runs on this machine is shown from its spool as its agent prints it, and then from the store, without
//! showing an event twice. Turns of other machines appear when they are stored.
//!
//! A store with a watch notifies the follower: of its events, and a file also of turns that begin and end on this machine. Other
//! stores are polled, and so is a watch that has been silent for a while. A poll reads the last event that was seen and the events after it, by their numbers: one small query of a
//! server, less than a millisecond of a file. No lock is held between two polls, so a follower stops no writer.

mod live;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use azureal_core::agent::AgentOutput;
use azureal_core::{
    PAGE_EVENTS, Page, Seq, SessionId, SessionRecord, SessionStore, StoreError, StoredEvent, Watch,
};
use azureal_engine::{SpooledTurn, Spools};

use self::live::{LiveTurns, Stored};
use crate::error::Error;

/// How often a store that sends no notifications is polled.
const PACE: Duration = Duration::from_millis(300);
/// How often the output of a running turn is read.
const LIVE_PACE: Duration = Duration::from_millis(100);
/// How long a store that tells is believed that there is nothing to tell.
const SILENCE: Duration = Duration::from_secs(2);

/// Follows a session: returns what is added to it, by any process.
pub struct Follower {
    store: Arc<dyn SessionStore>,
    id: SessionId,
    /// What tells that there may be more, where the store can.
    watch: Option<Box<dyn Watch>>,
    /// The last event that was seen.
    seen: Option<StoredEvent>,
    /// When the session was last read.
    checked: Option<Instant>,
    /// The turns that run on this machine, if they are followed.
    live: Option<LiveTurns>,
    /// What has not been returned yet.
    queue: VecDeque<News>,
}

/// A change of a session.
#[derive(Debug, PartialEq)]
pub enum News {
    /// It has these events more.
    Events(Vec<StoredEvent>),
    /// A turn runs on this machine. It begins with [`SpooledTurn::opening`].
    Began(Box<SpooledTurn>),
    /// Its agent has printed this. The events are not stored yet, and are not returned again when they are.
    Live(Vec<AgentOutput>),
    /// It is being stored, and has these events besides.
    Rest(Vec<StoredEvent>),
    /// A turn whose events were returned live is stored: its end, and the number of its first event.
    Complete(StoredEvent, Seq),
    /// The agent of a running turn has ended, and no process stores the turn. [`Workspace::recover`](crate::Workspace::recover)
    /// does.
    Abandoned,
    /// A turn whose events were returned live is over and is not in this session: it is stored in a fork, or its spool was
    /// removed.
    StoredElsewhere,
    /// The session was cleared: its events begin at 1 again.
    Cleared,
}

impl Follower {
    /// Follows a session from the event that was seen last.
    pub async fn start(
        store: Arc<dyn SessionStore>,
        id: SessionId,
        seen: Option<StoredEvent>,
    ) -> Result<Self, Error> {
        let watch = match store.watch(id).await {
            Err(StoreError::NoSuchSession(_)) => return Err(deleted(id)),
            Ok(None) => store.watch_all().await?,
            watch => watch?,
        };
        Ok(Self { watch, ..Self::polled(store, id, seen) })
    }

    /// Follows a session from the event that was seen last, for a caller that learns of changes itself, and calls
    /// [`poll`](Self::poll).
    pub(crate) fn polled(store: Arc<dyn SessionStore>, id: SessionId, seen: Option<StoredEvent>) -> Self {
        Self { store, id, watch: None, seen, checked: None, live: None, queue: VecDeque::new() }
    }

    /// Follows the running turns of this machine too.
    #[must_use]
    pub fn with_live_turns(mut self, spools: Option<Spools>, record: &SessionRecord) -> Self {
        self.live = spools.map(|spools| LiveTurns::new(spools, record));
        self
    }

    /// Says whether the store sends no notifications, so that it is polled.
    pub fn is_polling(&self) -> bool {
        self.watch.is_none()
    }

    /// Waits for what comes next, for a while; `None` if nothing came. A session that was deleted is an error.
    ///
    /// A front end calls it in a loop, and checks between two calls whether its reader is still there. It blocks the calling thread
    /// if the store sends no notifications.
    pub async fn next(&mut self) -> Result<Option<News>, Error> {
        if let Some(news) = self.step(self.is_due()).await? {
            return Ok(Some(news));
        }
        let pause = if self.is_reading() { LIVE_PACE } else { PACE };
        let may_have_changed = match &mut self.watch {
            Some(watch) => watch.changed(pause).await?,
            None => {
                thread::sleep(pause);
                false
            }
        };
        if may_have_changed {
            self.look().await?;
        }
        Ok(self.queue.pop_front())
    }

    /// Returns what comes next, if it is there. Reads the store if it may have changed since the last call.
    pub(crate) async fn poll(&mut self, may_have_changed: bool) -> Result<Option<News>, Error> {
        let is_due = may_have_changed || self.checked.is_none();
        self.step(is_due).await
    }

    async fn step(&mut self, is_due: bool) -> Result<Option<News>, Error> {
        if let Some(news) = self.queue.pop_front() {
            return Ok(Some(news));
        }
        self.look_live().await?;
        if self.queue.is_empty() && is_due {
            self.look().await?;
        }
        Ok(self.queue.pop_front())
    }

    /// Says whether a turn is read while it runs, so that the caller polls.
    pub(crate) fn is_reading(&self) -> bool {
        self.live.as_ref().is_some_and(LiveTurns::is_reading)
    }

    /// Returns the number of the last event that was seen.
    pub(crate) fn last_seen(&self) -> Seq {
        self.seen.as_ref().map_or(Seq::START, |seen| seen.seq)
    }

    /// Continues after this event: the caller has those before it.
    pub(crate) fn skip_to(&mut self, seen: StoredEvent) {
        self.seen = Some(seen);
    }

    /// Returns whether the store is to be read without a notification.
    fn is_due(&self) -> bool {
        let pace = if self.watch.is_none() { PACE } else { SILENCE };
        self.checked.is_none_or(|checked| checked.elapsed() >= pace)
    }

    /// Reads what a running turn has printed, or finds one.
    async fn look_live(&mut self) -> Result<(), Error> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let outputs = live.read();
        if !outputs.is_empty() {
            self.queue.push_back(News::Live(outputs));
            return Ok(());
        }
        let gone = live.gone();
        if !gone.is_empty() {
            while self.look().await? {}
            let is_elsewhere = self.live.as_mut().is_some_and(|live| live.give_up(&gone));
            if is_elsewhere {
                self.queue.push_back(News::StoredElsewhere);
            }
            return Ok(());
        }
        if live.is_abandoned() {
            self.queue.push_back(News::Abandoned);
            return Ok(());
        }
        let Some((turn, process)) = live.find() else { return Ok(()) };
        // What was stored before it comes first.
        while self.look().await? {}
        let begun = self.live.as_mut().and_then(|live| live.begin(turn, process));
        self.queue.extend(begun.map(|turn| News::Began(Box::new(turn))));
        Ok(())
    }

    /// Reads what is new, and returns whether there was anything. What was seen last is read with it: if it is another one
    /// now, the session was cleared, also if it has become longer since than it was.
    async fn look(&mut self) -> Result<bool, Error> {
        self.checked = Some(Instant::now());
        let before = self.seen.as_ref().map_or(Seq::START, |seen| Seq(seen.seq.0.saturating_sub(1)));
        let mut events = match self.store.read(self.id, Page::After(before, PAGE_EVENTS)).await {
            Err(StoreError::NoSuchSession(_)) => return Err(deleted(self.id)),
            events => events?,
        };
        if let Some(seen) = &self.seen {
            if events.first() != Some(seen) {
                self.seen = None;
                self.queue.push_back(News::Cleared);
                return Ok(true);
            }
            events.remove(0);
        }
        let Some(last) = events.last() else { return Ok(false) };
        self.seen = Some(last.clone());
        self.take(events);
        if self.queue.is_empty() {
            // All of it was shown live: there may be more after it.
            self.checked = None;
        }
        Ok(true)
    }

    /// Queues stored events, without those that were returned live.
    fn take(&mut self, events: Vec<StoredEvent>) {
        let Some(live) = &mut self.live else {
            self.queue.push_back(News::Events(events));
            return;
        };
        for stored in events {
            let news = match live.take(stored) {
                None => continue,
                Some(Stored::New(stored)) => News::Events(vec![stored]),
                Some(Stored::Rest(stored)) => News::Rest(vec![stored]),
                Some(Stored::End(stored, first)) => News::Complete(stored, first),
            };
            match (self.queue.back_mut(), news) {
                (Some(News::Events(events)), News::Events(mut more))
                | (Some(News::Rest(events)), News::Rest(mut more)) => events.append(&mut more),
                (_, news) => self.queue.push_back(news),
            }
        }
    }
}

fn deleted(id: SessionId) -> Error {
    Error::new("not_found", format!("session {id} was deleted meanwhile"))
        .with_hint("what is above is all that there was")
}

#[cfg(test)]
mod tests {
    use azureal_core::{Event, NewSession, NewTurn};
    use azureal_store::MemoryStore;
    use futures_executor::block_on;

    use super::*;

    #[test]
    fn a_session_that_was_cleared_begins_again_however_long_it_has_become() {
        let store = Arc::new(MemoryStore::default());
        let id = block_on(store.create(NewSession::default())).unwrap();
        let append = |texts: &[&str]| {
            block_on(store.append(id, NewTurn::verbatim(texts.iter().map(|text| Event::user(*text)))))
                .unwrap();
        };
        let mut follower = block_on(Follower::start(store.clone(), id, None)).unwrap();
        let mut news = || match block_on(follower.look())
            .map(|_| follower.queue.pop_front())
            .map_err(|error| error.kind())
        {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(News::Cleared)) => "cleared".to_owned(),
            Ok(Some(News::Events(events))) => {
                let texts = events.iter().map(|stored| match stored.event().unwrap() {
                    Event::UserMessage(message) => message.content,
                    _ => unreachable!(),
                });
                texts.collect::<Vec<_>>().join(" ")
            }
            Ok(Some(other)) => panic!("{other:?}"),
            Err(kind) => kind.to_owned(),
        };
        assert_eq!(news(), "nothing");
        append(&["a", "b"]);
        assert_eq!((news(), news()), ("a b".into(), "nothing".into()));
        append(&["c"]);
        assert_eq!(news(), "c");
        block_on(store.clear(id)).unwrap();
        assert_eq!((news(), news()), ("cleared".into(), "nothing".into()));
        append(&["d"]);
        assert_eq!(news(), "d");
        block_on(store.clear(id)).unwrap();
        append(&["e", "f", "g"]);
        assert_eq!((news(), news()), ("cleared".into(), "e f g".into()));
        block_on(store.delete(id)).unwrap();
        assert_eq!(news(), "not_found");
    }

    #[test]
    fn more_than_a_page_comes_in_pages() {
        let store = Arc::new(MemoryStore::default());
        let id = block_on(store.create(NewSession::default())).unwrap();
        let events = (0..PAGE_EVENTS * 2 + 1).map(|n| Event::user(n.to_string()));
        block_on(store.append(id, NewTurn::verbatim(events))).unwrap();
        let mut follower = block_on(Follower::start(store.clone(), id, None)).unwrap();
        let mut numbers = Vec::new();
        while block_on(follower.look()).unwrap() {
            let Some(News::Events(events)) = follower.queue.pop_front() else { panic!("no events") };
            numbers.extend(events.iter().map(|stored| stored.seq.0));
        }
        assert_eq!(numbers, (1..=PAGE_EVENTS as u64 * 2 + 1).collect::<Vec<_>>());
    }
}
