//! A session as it grows, by whoever's hand.
//!
//! A store that can tell is listened to. Any other is asked again and again, and so is one that has said nothing for a
//! while. A question reads the last event that was seen and what came after it, by its place: one small query of a
//! server, and of a file less than a millisecond, which is a thousandth of a core. No lock is held in between, so it
//! stops no writer.

use std::thread;
use std::time::{Duration, Instant};

use azureal_core::{PAGE_EVENTS, Page, Seq, SessionId, SessionStore, StoreError, StoredEvent, Watch};

use crate::error::Error;

/// How often a store that sends no notifications is polled.
const PACE: Duration = Duration::from_millis(300);
/// How long a store that tells is believed that there is nothing to tell.
const SILENCE: Duration = Duration::from_secs(2);

/// Follows a session: returns what is added to it, by any process.
pub struct Follower<'a> {
    store: &'a dyn SessionStore,
    id: SessionId,
    /// What tells that there may be more, where the store can.
    watch: Option<Box<dyn Watch>>,
    /// The last event that was seen.
    seen: Option<StoredEvent>,
    /// When the session was last read.
    checked: Option<Instant>,
}

/// A change of a session.
pub enum News {
    /// It has these events more.
    Events(Vec<StoredEvent>),
    /// What was seen of it is not there any more: it begins anew.
    Cleared,
}

impl<'a> Follower<'a> {
    /// Follows a session from the event that was seen last.
    pub async fn start(
        store: &'a dyn SessionStore,
        id: SessionId,
        seen: Option<StoredEvent>,
    ) -> Result<Self, Error> {
        let watch = match store.watch(id).await {
            Err(StoreError::NoSuchSession(_)) => return Err(deleted(id)),
            watch => watch?,
        };
        Ok(Self { store, id, watch, seen, checked: None })
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
        let is_due = self.checked.is_none_or(|checked| checked.elapsed() >= SILENCE);
        if (is_due || self.watch.is_none())
            && let Some(news) = self.look().await?
        {
            return Ok(Some(news));
        }
        let may_have_changed = match &mut self.watch {
            Some(watch) => watch.changed(PACE).await?,
            None => {
                thread::sleep(PACE);
                false
            }
        };
        if may_have_changed { self.look().await } else { Ok(None) }
    }

    /// Reads what is new. What was seen last is read with it: if it is another one now, the session was cleared, also
    /// if it has become longer since than it was.
    async fn look(&mut self) -> Result<Option<News>, Error> {
        self.checked = Some(Instant::now());
        let before = self.seen.as_ref().map_or(Seq::START, |seen| Seq(seen.seq.0.saturating_sub(1)));
        let mut events = match self.store.read(self.id, Page::After(before, PAGE_EVENTS)).await {
            Err(StoreError::NoSuchSession(_)) => return Err(deleted(self.id)),
            events => events?,
        };
        if let Some(seen) = &self.seen {
            if events.first() != Some(seen) {
                self.seen = None;
                return Ok(Some(News::Cleared));
            }
            events.remove(0);
        }
        let Some(last) = events.last() else { return Ok(None) };
        self.seen = Some(last.clone());
        Ok(Some(News::Events(events)))
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
    fn a_session_that_was_cleared_begins_anew_however_long_it_has_become() {
        let store = MemoryStore::default();
        let id = block_on(store.create(NewSession::default())).unwrap();
        let append = |texts: &[&str]| {
            block_on(store.append(id, NewTurn::verbatim(texts.iter().map(|text| Event::user(*text)))))
                .unwrap();
        };
        let mut follower = block_on(Follower::start(&store, id, None)).unwrap();
        let mut news = || match block_on(follower.look()).map_err(|error| error.kind()) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(News::Cleared)) => "cleared".to_owned(),
            Ok(Some(News::Events(events))) => {
                let texts = events.iter().map(|stored| match stored.event().unwrap() {
                    Event::UserMessage(message) => message.content,
                    _ => unreachable!(),
                });
                texts.collect::<Vec<_>>().join(" ")
            }
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
        let store = MemoryStore::default();
        let id = block_on(store.create(NewSession::default())).unwrap();
        let events = (0..PAGE_EVENTS * 2 + 1).map(|n| Event::user(n.to_string()));
        block_on(store.append(id, NewTurn::verbatim(events))).unwrap();
        let mut follower = block_on(Follower::start(&store, id, None)).unwrap();
        let mut numbers = Vec::new();
        while let Some(News::Events(events)) = block_on(follower.look()).unwrap() {
            numbers.extend(events.iter().map(|stored| stored.seq.0));
        }
        assert_eq!(numbers, (1..=PAGE_EVENTS as u64 * 2 + 1).collect::<Vec<_>>());
    }
}
