//! The state of an interface, and those that it talks to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use azureal::desk::{Desk, News, Request};

use super::{Inbox, Pace};
use crate::{Message, State, update};

/// The state, and those that it talks to.
pub(crate) struct Conversation<'a> {
    pub(crate) state: State,
    pub(crate) desk: &'a Desk,
    pub(crate) inbox: &'a Inbox,
    /// Requests that need the terminal, in order.
    pub(crate) for_terminal: Vec<Request>,
    pub(super) pace: Pace,
}

impl<'a> Conversation<'a> {
    pub(crate) fn new(state: State, desk: &'a Desk, inbox: &'a Inbox) -> Self {
        Self { state, desk, inbox, for_terminal: Vec::new(), pace: Pace::default() }
    }

    pub(crate) fn update(&mut self, message: Message) {
        let requests = update(&mut self.state, message, now_ms());
        self.perform(requests);
    }

    pub(crate) fn perform(&mut self, requests: Vec<Request>) {
        for request in requests {
            self.pace.note_request(&request);
            if request.needs_terminal() {
                self.for_terminal.push(request);
            } else {
                self.desk.perform(request);
            }
        }
    }

    pub(crate) fn take_one(&mut self, news: News) {
        self.pace.note_news(&news, self.state.shown);
        self.update(Message::News(news));
    }

    pub(crate) fn inform(&mut self, notice: String) {
        self.update(Message::News(News::Notice(notice)));
        self.pace.hurry();
    }

    /// Tells the state the time, if it has asked for that.
    pub(crate) fn tick(&mut self) {
        if self.state.next_tick().is_some_and(|tick| tick <= now_ms()) {
            self.update(Message::Tick);
            self.pace.hurry();
        }
    }

    /// Returns whether the list and the first sessions are there.
    pub(crate) fn is_ready(&self) -> bool {
        self.pace.is_ready()
    }

    /// Performs a request that needs the terminal. News are handled meanwhile.
    pub(crate) fn perform_in_terminal(&mut self, request: Request) {
        let (desk, inbox) = (self.desk, self.inbox);
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                desk.perform_in_terminal(request);
                is_done.store(true, Ordering::SeqCst);
                inbox.wake();
            });
            while !is_done.load(Ordering::SeqCst) {
                self.inbox.wait_for_news(self.next_tick());
                while let Some(news) = self.inbox.next_news() {
                    self.take_one(news);
                }
                self.tick();
            }
        });
    }

    /// Writes what must not be lost.
    pub(crate) fn keep(&mut self) {
        self.state.keeper.hurry(now_ms());
        self.update(Message::Tick);
    }

    /// Returns when the state wants to know the time; `None` if nothing changes by itself.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let tick = self.state.next_tick()?;
        Some(Instant::now() + Duration::from_millis(tick.saturating_sub(now_ms())))
    }
}

pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
