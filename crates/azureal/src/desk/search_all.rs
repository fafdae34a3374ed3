//! The search over all sessions while the user types: a newer one takes the place of an older one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use futures_executor::block_on;

use super::News;
use super::news::SearchNews;
use super::shared::Shared;
use crate::error::Error;
use crate::search::{SearchOptions, Total, typed};

/// The most hits that are shown.
const MOST_HITS: usize = 100;
/// How long the next key is waited for.
const PAUSE: Duration = Duration::from_millis(40);
/// The time for the first answer: for bringing the index up to date, and for reading what it does not have.
const FIRST_ANSWER: Duration = Duration::from_millis(150);

/// The search that is asked for.
#[derive(Default)]
pub(super) struct Searches {
    state: Mutex<State>,
    /// The number of the newest one.
    newest: AtomicU64,
}

#[derive(Default)]
struct State {
    wanted: Option<String>,
    is_running: bool,
}

impl Searches {
    /// Searches on a thread of its own. An empty text only ends the search before.
    pub(super) fn search(shared: &Arc<Shared>, text: String) {
        let searches = &shared.searches;
        let mut state = searches.state.lock().unwrap_or_else(PoisonError::into_inner);
        searches.newest.fetch_add(1, Ordering::Relaxed);
        state.wanted = Some(text);
        if std::mem::replace(&mut state.is_running, true) {
            return;
        }
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            while let Some((text, number)) = shared.searches.next() {
                // Without the pause, every letter of a word would be searched for.
                thread::sleep(PAUSE);
                shared.search_typed(&text, number);
            }
        });
    }

    /// Returns the text that is searched for, and its number; without one, the thread ends.
    fn next(&self) -> Option<(String, u64)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = state.wanted.take();
        state.is_running = wanted.is_some();
        Some((wanted?, self.newest.load(Ordering::Relaxed)))
    }
}

impl Shared {
    /// Searches, and sends what is found: at first what is found soon, then all.
    fn search_typed(&self, text: &str, number: u64) {
        let is_wanted = || self.searches.newest.load(Ordering::Relaxed) == number && !self.outbox.is_left();
        if !is_wanted() || text.trim().is_empty() {
            return;
        }
        let mut time = FIRST_ANSWER;
        loop {
            let news = self.search_for(text, time, &is_wanted);
            if !is_wanted() {
                return;
            }
            let is_partial = news.not_searched > 0 && news.problem.is_none();
            let is_last = !is_partial || time > FIRST_ANSWER;
            self.outbox.send(News::SearchFound(Box::new(SearchNews { is_over: is_last, ..news })));
            if is_last {
                return;
            }
            time = Duration::from_secs(600);
        }
    }

    fn search_for(&self, text: &str, time: Duration, is_wanted: &(dyn Fn() -> bool + Sync)) -> SearchNews {
        let none = SearchNews {
            text: text.to_owned(),
            hits: Vec::new(),
            total: Total::default(),
            not_searched: 0,
            damaged: 0,
            problem: None,
            is_over: true,
        };
        let failed = |error: Error| SearchNews { problem: Some(error.message().to_owned()), ..none.clone() };
        let (query, filters) = match typed(text) {
            Ok(typed) => typed,
            Err(error) => return failed(error),
        };
        let options = SearchOptions {
            limit: Some(MOST_HITS),
            catch_up: time,
            scan: time,
            is_wanted,
            ..SearchOptions::default()
        };
        match block_on(self.workspace.search(&query, &filters, &options, |_| ())) {
            Ok(found) => SearchNews {
                hits: found.hits,
                total: found.total,
                not_searched: found.not_searched,
                damaged: found.damaged,
                ..none
            },
            Err(error) => failed(error),
        }
    }
}
