//! A sign of life on a terminal while one waits.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use azureal_core::visible_line;

const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const PACE: Duration = Duration::from_millis(100);

/// Turns on standard error while nothing else is written; does nothing where that is no terminal.
pub(crate) struct Spinner {
    shared: Option<Arc<Shared>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    label: String,
    since: Instant,
    shown: bool,
    turns: bool,
    ended: bool,
}

impl Spinner {
    /// Starts to turn, with this word beside it.
    pub(crate) fn start(label: &str) -> Self {
        if !io::stderr().is_terminal() {
            return Self { shared: None };
        }
        let state = State {
            label: visible_line(label).into_owned(),
            since: Instant::now(),
            shown: false,
            turns: true,
            ended: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let turning = Arc::clone(&shared);
        thread::spawn(move || turning.turn());
        Self { shared: Some(shared) }
    }

    /// Clears the line, so that something else can be written.
    pub(crate) fn hide(&self) {
        self.change(|state| {
            state.clear();
            state.turns = false;
        });
    }

    /// Goes on turning: the cursor stands at the beginning of a line.
    pub(crate) fn show(&self) {
        self.change(|state| state.turns = true);
    }

    /// Says what is waited for from now on.
    pub(crate) fn label(&self, label: &str) {
        self.change(|state| state.since = Instant::now());
        self.relabel(label);
    }

    /// Says what is still waited for.
    pub(crate) fn relabel(&self, label: &str) {
        self.change(|state| state.label = visible_line(label).into_owned());
    }

    /// Says whether anybody sees it.
    pub(crate) fn is_seen(&self) -> bool {
        self.shared.is_some()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        if let Some(shared) = &self.shared {
            change(&mut shared.lock());
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.change(|state| {
            state.clear();
            state.ended = true;
        });
        if let Some(shared) = &self.shared {
            shared.changed.notify_all();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) {
        let mut state = self.lock();
        for frame in FRAMES.into_iter().cycle() {
            if state.ended {
                return;
            }
            if state.turns {
                state.shown = true;
                let seconds = state.since.elapsed().as_secs();
                write_error(&format!("\r{frame} {} {seconds} s\x1b[K", state.label));
            }
            state = self.changed.wait_timeout(state, PACE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            write_error("\r\x1b[K");
        }
    }
}

/// How many characters a bar has.
const BAR: u64 = 20;

/// Returns a bar that shows how much of something is done, and how many hundredths that is.
pub(crate) fn bar(done: u64, total: u64) -> String {
    // Of nothing, all is done; and what is counted anew may be more than was known before.
    let (done, total) = (done.min(total).max(u64::from(total == 0)), total.max(1));
    let part = |of: u64| usize::try_from(u128::from(done) * u128::from(of) / u128::from(total)).unwrap_or(0);
    let full = part(BAR);
    format!("{}{} {:3} %", "█".repeat(full), "░".repeat(BAR as usize - full), part(100))
}

fn write_error(text: &str) {
    let mut stderr = io::stderr();
    // It is an ornament: where it cannot be written, it is not missed.
    drop(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_grows_with_what_is_done() {
        for (done, total, expected) in [
            (0, 7, "░░░░░░░░░░░░░░░░░░░░   0 %"),
            (1, 2, "██████████░░░░░░░░░░  50 %"),
            (99, 100, "███████████████████░  99 %"),
            (7, 7, "████████████████████ 100 %"),
            (8, 7, "████████████████████ 100 %"),
            (0, 0, "████████████████████ 100 %"),
            (u64::MAX, u64::MAX, "████████████████████ 100 %"),
        ] {
            assert_eq!(bar(done, total), expected);
        }
    }
}
