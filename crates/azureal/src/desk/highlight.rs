//! The tones of code, found on one thread: they are never urgent.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use azureal_core::Seq;
use azureal_transcript::Highlighter;

use super::News;
use super::outbox::OpenPane;
use super::shared::Shared;

/// The most pieces of code that wait. The oldest are dropped: they are not on the screen any more.
const MOST_WAITING: usize = 256;

/// The grammars, and the code that waits.
#[derive(Default)]
pub(super) struct Highlights {
    highlighter: Highlighter,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Code>,
    is_running: bool,
}

/// A piece of code in a block of a pane.
pub(super) struct Code {
    pub(super) pane: OpenPane,
    pub(super) block: (Seq, u16),
    /// The place of the code in the source of the block, in bytes.
    pub(super) at: usize,
    pub(super) language: String,
    pub(super) code: String,
}

impl Highlights {
    /// Finds the tones of code, on a thread of its own. What was asked for last comes first.
    pub(super) fn find(shared: &Arc<Shared>, code: Code) {
        let mut state = shared.highlights.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.push(code);
        let most = state.waiting.len().saturating_sub(MOST_WAITING);
        state.waiting.drain(..most);
        if std::mem::replace(&mut state.is_running, true) {
            return;
        }
        let own = Arc::clone(shared);
        let run = move || {
            while let Some(code) = own.highlights.next() {
                own.highlight(code);
            }
        };
        let builder = thread::Builder::new().name("azureal-desk-code".to_owned());
        // Without a thread there are no colours.
        state.is_running = builder.spawn(run).is_ok();
    }

    /// Returns what was asked for last; without any, the thread ends.
    fn next(&self) -> Option<Code> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let next = state.waiting.pop();
        state.is_running = next.is_some();
        next
    }
}

impl Shared {
    fn highlight(&self, Code { pane, block, at, language, code }: Code) {
        if !self.outbox.is_open(pane) {
            return;
        }
        let mut tones = self.highlights.highlighter.tones(&language, &code);
        if tones.is_empty() {
            return;
        }
        for (range, _) in &mut tones {
            *range = range.start.saturating_add(at)..range.end.saturating_add(at);
        }
        self.outbox.send_to(pane, News::Highlighted { pane: pane.id, block, at, tones });
    }
}
