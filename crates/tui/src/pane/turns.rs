//! The number of the turn.

use azureal::Seq;

use super::Pane;

/// The turns of a session, counted once and kept up to date.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The number of turns, and the prompt of the last one; `None` until they are counted.
    counted: Option<(u64, Seq)>,
    /// The prompts that were stored since the session was opened.
    prompts: Vec<Seq>,
}

impl Turns {
    /// Returns the turns of a session without any.
    pub(super) fn none() -> Self {
        Self { counted: Some((0, Seq::START)), prompts: Vec::new() }
    }

    pub(super) fn set(&mut self, count: u64, last: Seq) {
        self.counted = Some((count, last));
        self.prompts.retain(|prompt| *prompt > last);
    }

    /// Adds the prompt of a turn that was stored.
    pub(super) fn add(&mut self, prompt: Seq) {
        let is_known = self.counted.is_some_and(|(_, last)| prompt <= last);
        if !is_known && !self.prompts.contains(&prompt) {
            self.prompts.push(prompt);
        }
    }

    /// Returns the number of stored turns, if it is known.
    fn count(&self) -> Option<u64> {
        self.counted.map(|(count, _)| count.saturating_add(self.prompts.len() as u64))
    }
}

impl Pane {
    /// Returns the number of the running turn, else of the last one; `None` if there is none, or it is not known yet.
    pub fn turn_number(&self) -> Option<u64> {
        let live = self.live.as_ref().filter(|live| live.begins_turn && live.first.is_some());
        let count = self.turns.count()?.saturating_add(u64::from(live.is_some()));
        (count > 0).then_some(count)
    }
}
