//! The place where events of the terminal and news of the desk wait for the loop.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use azureal::desk::News;

use super::backlog::Backlog;
use crate::terminal::TerminalEvent;

/// Events of the terminal and news of the desk, each in their order. Any thread adds, the loop takes.
#[derive(Debug, Default)]
pub struct Inbox {
    waiting: Mutex<Waiting>,
    is_filled: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<TerminalEvent>,
    news: Backlog,
    is_woken: bool,
}

impl Inbox {
    /// Adds an event of the terminal.
    pub fn add_event(&self, event: TerminalEvent) {
        let mut waiting = self.lock();
        // In a storm of sizes only the last one counts, and it is asked for when the event is handled.
        if event != TerminalEvent::Resized || waiting.events.back() != Some(&TerminalEvent::Resized) {
            waiting.events.push_back(event);
        }
        self.is_filled.notify_one();
    }

    /// Adds news of the desk.
    pub fn add_news(&self, news: News) {
        self.lock().news.add(news);
        self.is_filled.notify_one();
    }

    /// Wakes the loop.
    pub fn wake(&self) {
        self.lock().is_woken = true;
        self.is_filled.notify_one();
    }

    pub(crate) fn next_event(&self) -> Option<TerminalEvent> {
        self.lock().events.pop_front()
    }

    pub(crate) fn next_news(&self) -> Option<News> {
        self.lock().news.next()
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.lock().events.is_empty()
    }

    /// Waits until something is there, or until a time. Without a time and with nothing to do, the thread sleeps.
    pub(crate) fn wait(&self, until: Option<Instant>) {
        self.wait_while(until, |waiting| waiting.events.is_empty() && waiting.news.is_empty());
    }

    /// Waits until news are there, the loop is woken, or until a time. Events of the terminal wait.
    pub(crate) fn wait_for_news(&self, until: Option<Instant>) {
        self.wait_while(until, |waiting| waiting.news.is_empty());
    }

    fn wait_while(&self, until: Option<Instant>, is_empty: impl Fn(&Waiting) -> bool) {
        let mut waiting = self.lock();
        while is_empty(&waiting) && !waiting.is_woken {
            let Some(until) = until else {
                waiting = self.is_filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            waiting = self.is_filled.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.is_woken = false;
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
