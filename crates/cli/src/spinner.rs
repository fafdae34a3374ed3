//! The status line: a spinner, what is waited for, and for how long. Above it are the last lines of a text that is being written.
//!
//! It takes exactly one row of the terminal, as does each of those lines. The terminal is measured at every frame, because a person may resize it at
//! any time, and a line that wraps scrolls the terminal with every frame.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use azureal_core::visible_line;
use unicode_width::UnicodeWidthStr;

use crate::marks::{is_ascii, with_marks};
use crate::output::fit;

const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const ASCII_FRAMES: [char; 4] = ['|', '/', '-', '\\'];
const PACE: Duration = Duration::from_millis(100);
/// The size of a terminal that does not say how large it is.
const USUAL_COLUMNS: usize = 80;
const USUAL_ROWS: usize = 24;

/// Lines that may still change.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draft {
    /// The lines, safe to show.
    pub(crate) lines: Vec<String>,
    /// The width that they were laid out for. A narrower terminal does not show them.
    pub(crate) width: usize,
}

/// Draws the status line on standard error while no other output is written. Does nothing if that is not a terminal, or
/// one that cannot move its cursor (`TERM=dumb`).
pub(crate) struct Spinner {
    shared: Option<Arc<Shared>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    label: String,
    draft: Draft,
    since: Instant,
    shown: bool,
    turns: bool,
    ended: bool,
}

impl Spinner {
    /// Starts to draw, with this label.
    pub(crate) fn start(label: &str) -> Self {
        if !can_draw() {
            return Self { shared: None };
        }
        let state = State {
            label: visible_line(label).into_owned(),
            draft: Draft::default(),
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

    /// Erases the line, so that other output can be written.
    pub(crate) fn hide(&self) {
        self.change(|state| {
            state.clear();
            state.turns = false;
        });
    }

    /// Draws again. The cursor must be at the beginning of a line.
    pub(crate) fn show(&self) {
        self.change(|state| state.turns = true);
    }

    /// Replaces the label and restarts the clock.
    pub(crate) fn label(&self, label: &str) {
        self.change(|state| state.since = Instant::now());
        self.relabel(label);
    }

    /// Changes the label to the step of some work, which continues.
    pub(crate) fn step(&self, label: &str) -> ControlFlow<()> {
        self.relabel(label);
        ControlFlow::Continue(())
    }

    /// Replaces the label. The clock continues.
    pub(crate) fn relabel(&self, label: &str) {
        self.change(|state| state.label = visible_line(label).into_owned());
    }

    /// Replaces the lines above the status line.
    pub(crate) fn draft(&self, draft: Draft) {
        self.change(|state| state.draft = draft);
    }

    /// Returns whether the line is drawn at all.
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
        let frames: &[char] = if is_ascii() { &ASCII_FRAMES } else { &FRAMES };
        for frame in frames.iter().copied().cycle() {
            if state.ended {
                return;
            }
            if state.turns {
                state.shown = true;
                let seconds = state.since.elapsed().as_secs();
                let (columns, height) = size();
                let line = status_line(frame, &state.label, seconds, columns);
                write_error(&frame_text(&state.draft, &with_marks(&line), columns, height));
            }
            state = self.changed.wait_timeout(state, PACE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            write_error("\r\x1b[J");
        }
    }
}

fn can_draw() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Measures the terminal: its columns and its rows.
fn size() -> (usize, usize) {
    let size = terminal_size::terminal_size_of(io::stderr());
    size.map_or((USUAL_COLUMNS, USUAL_ROWS), |(width, height)| (usize::from(width.0), usize::from(height.0)))
}

/// Renders what is written for a frame: the lines of the draft that fit on the screen, and the status line.
fn frame_text(draft: &Draft, status: &str, columns: usize, height: usize) -> String {
    let room = if draft.width <= columns { height.saturating_sub(2) } else { 0 };
    let lines = draft.lines.get(draft.lines.len().saturating_sub(room)..).unwrap_or_default();
    // Erased first: behind a line that fills its row, the cursor may still be in its last column.
    let mut text = "\r".to_owned();
    text.extend(lines.iter().map(|line| format!("\x1b[K{line}\r\n")));
    // The cursor goes back to the first column of the first row. A terminal that becomes narrower breaks the old lines into
    // several rows, and keeps the cursor in the first of them: the next frame starts there, and erases the others.
    text.push_str(&format!("{status}\x1b[J\r"));
    if !lines.is_empty() {
        text.push_str(&format!("\x1b[{}A", lines.len()));
    }
    text
}

/// Renders a frame for a terminal of so many columns. The label is truncated before the time is.
fn status_line(frame: char, label: &str, seconds: u64, columns: usize) -> String {
    // The last column stays empty: a terminal that has filled it may have wrapped already.
    let room = columns.saturating_sub(1);
    let time = format!(" {seconds} s");
    let label = fit(label, room.saturating_sub(2 + time.width()));
    fit(&format!("{frame} {label}{time}"), room)
}

/// How many characters a bar has.
const BAR: u64 = 20;

/// Renders a progress bar and its percentage.
pub(crate) fn bar(done: u64, total: u64) -> String {
    // A total of 0 is complete; and a total that was counted again may be exceeded.
    let (done, total) = (done.min(total).max(u64::from(total == 0)), total.max(1));
    let part = |of: u64| usize::try_from(u128::from(done) * u128::from(of) / u128::from(total)).unwrap_or(0);
    let full = part(BAR);
    format!("{}{} {:3} %", "█".repeat(full), "░".repeat(BAR as usize - full), part(100))
}

fn write_error(text: &str) {
    let mut stderr = io::stderr();
    // The line is only decoration: an error changes nothing.
    drop(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_every_terminal() {
        let label = "Bash cargo test 修复登录页面的错误";
        assert_eq!(status_line('⠋', label, 7, 80), "⠋ Bash cargo test 修复登录页面的错误 7 s");
        assert_eq!(status_line('⠋', label, 7, 30), "⠋ Bash cargo test 修复登… 7 s");
        assert_eq!(status_line('⠋', label, 7, 9), "⠋ B… 7 s");
        for columns in 0..50 {
            for label in [label, "", "修"] {
                let line = status_line('⠋', label, 12_345, columns);
                assert!(line.width() < columns.max(1), "{columns}: {line}");
            }
        }
    }

    #[test]
    fn a_draft_takes_no_more_than_the_screen_and_the_cursor_returns_to_its_first_row() {
        let draft = Draft { lines: ["a", "b", "c"].map(str::to_owned).to_vec(), width: 40 };
        assert_eq!(
            frame_text(&draft, "⠋ x", 40, 24),
            "\r\x1b[Ka\r\n\x1b[Kb\r\n\x1b[Kc\r\n⠋ x\x1b[J\r\x1b[3A"
        );
        assert_eq!(frame_text(&draft, "⠋ x", 40, 3), "\r\x1b[Kc\r\n⠋ x\x1b[J\r\x1b[1A");
        // It was laid out for a wider terminal: its lines would wrap.
        assert_eq!(frame_text(&draft, "⠋ x", 39, 24), "\r⠋ x\x1b[J\r");
        assert_eq!(frame_text(&Draft::default(), "⠋ x", 39, 24), "\r⠋ x\x1b[J\r");
    }

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
