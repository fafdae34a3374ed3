//! Prompts that wait for the end of a turn.

use std::collections::VecDeque;

use azureal::transcript::Tone;
use azureal::visible_line;
use ratatui::buffer::{Buffer, CellWidth};
use ratatui::layout::Rect;

use super::layout::cut;
use super::{History, PromptBox};
use crate::theme::Theme;

/// The characters of a waiting prompt that a row can show.
const SHOWN: usize = 400;

/// Prompts that wait for the end of the running turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Prompts that the user has sent: they go out first, whatever happens to the queue. The running turn may be cancelled for the first one.
    staged: VecDeque<String>,
    /// Prompts for after the turn, in order.
    queued: VecDeque<String>,
    /// Whether the queue waits for a key.
    is_held: bool,
}

impl Waiting {
    /// Returns all prompts in the order in which they go out.
    pub fn kept(&self) -> Vec<String> {
        self.staged.iter().chain(&self.queued).cloned().collect()
    }

    /// Returns whether no prompt waits.
    pub fn is_empty(&self) -> bool {
        self.staged.is_empty() && self.queued.is_empty()
    }

    /// Returns the number of prompts.
    pub fn len(&self) -> usize {
        self.staged.len() + self.queued.len()
    }

    /// Returns whether a prompt goes out without a key.
    pub fn has_next(&self) -> bool {
        !self.staged.is_empty() || (!self.is_held && !self.queued.is_empty())
    }

    /// Stages a prompt. If there is a staged one, both go out in the order in which they were typed.
    pub fn stage(&mut self, prompt: String) {
        match self.staged.is_empty() || self.is_held {
            true => self.staged.push_back(prompt),
            false => self.queued.push_back(prompt),
        }
    }

    /// Queues a prompt.
    pub fn queue(&mut self, prompt: String) {
        self.is_held &= !self.queued.is_empty();
        self.queued.push_back(prompt);
    }

    /// Puts a prompt before the others: it was to go out already.
    pub fn put_back(&mut self, prompt: String) {
        self.staged.push_front(prompt);
    }

    /// Queues prompts that go out only by a key. Those that are to go out do so.
    pub fn offer(&mut self, prompts: &[String]) {
        if !self.is_held {
            self.staged.append(&mut self.queued);
        }
        self.queued.extend(prompts.iter().cloned());
        self.is_held = !self.queued.is_empty();
    }

    /// Lets all prompts wait for a key.
    pub fn hold(&mut self) {
        self.staged.append(&mut self.queued);
        std::mem::swap(&mut self.staged, &mut self.queued);
        self.is_held = !self.queued.is_empty();
    }

    /// Lets the prompts go out.
    pub fn release(&mut self) {
        self.is_held = false;
    }

    /// Takes the prompt that goes out next, unless it waits for a key.
    pub fn take_next(&mut self) -> Option<String> {
        let queue = if self.is_held { None } else { Some(&mut self.queued) };
        self.staged.pop_front().or_else(|| queue?.pop_front())
    }

    /// Moves the last waiting prompt into the box. The text of the box becomes the newest entry of the history. Returns whether there was a
    /// waiting prompt.
    pub fn edit_last(&mut self, prompt: &mut PromptBox, history: &mut History) -> bool {
        let Some(last) = self.queued.pop_back().or_else(|| self.staged.pop_back()) else { return false };
        prompt.clear_into(history);
        prompt.set_text(&last);
        true
    }

    /// Returns the rows that the prompts need, at most `most`.
    pub fn height(&self, most: u16) -> u16 {
        u16::try_from(self.len()).unwrap_or(most).min(most)
    }

    /// Draws one row for each prompt. If there are more than rows, the last row has their number. `edit` is the hint of the key that edits
    /// the last one.
    pub fn draw(&self, area: Rect, edit: &str, buf: &mut Buffer, theme: &Theme) {
        let area = area.intersection(buf.area);
        if area.width < 4 {
            return;
        }
        let total = self.len();
        let staged = self
            .staged
            .iter()
            .map(|prompt| ("staged, goes out when this turn has ended:", "staged:", prompt));
        let (long, short) = match self.is_held {
            true => ("held until you send it:", "held:"),
            false => ("queued for after this turn:", "queued:"),
        };
        let queued = self.queued.iter().map(|prompt| (long, short, prompt));
        for (index, (y, (long, short, prompt))) in
            (area.y..area.bottom()).zip(staged.chain(queued)).enumerate()
        {
            let is_cut = y + 1 == area.bottom() && index + 1 < total;
            let hint = if index + 1 == total || is_cut { edit } else { "" };
            let title = if area.width >= 70 { long } else { short };
            let line = match is_cut {
                true => format!("{} more prompts wait", total - index),
                false => format!("{title} {}", first_line(prompt, theme)),
            };
            draw_row(Rect { y, height: 1, ..area }, &line, title.len(), hint, buf, theme);
        }
    }
}

/// Returns the beginning of a prompt in one line.
fn first_line(prompt: &str, theme: &Theme) -> String {
    let mut chars = prompt.trim_start().chars();
    let start: String = chars.by_ref().take(SHOWN).collect();
    let is_whole = chars.next().is_none();
    let more = if theme.is_ascii { '~' } else { '…' };
    let mut lines = start.lines();
    let line = visible_line(lines.next().unwrap_or_default()).replace('\u{2409}', " ");
    if is_whole && lines.all(|line| line.trim().is_empty()) { line } else { format!("{line} {more}") }
}

fn draw_row(area: Rect, line: &str, title: usize, hint: &str, buf: &mut Buffer, theme: &Theme) {
    // The prompt is more important than the key.
    let hint = if line.cell_width().min(20) + hint.cell_width() + 2 > area.width { "" } else { hint };
    let hint_width = if hint.is_empty() { 0 } else { hint.cell_width() + 2 };
    let free = area.width - hint_width;
    let line = if line.cell_width() > free { cut(line, free, theme) } else { line.to_owned() };
    let (title, prompt) = line.split_at(line.floor_char_boundary(title));
    let (x, _) = buf.set_stringn(area.x, area.y, title, free.into(), theme.tone(Tone::Caution));
    buf.set_stringn(x, area.y, prompt, (area.x + free - x).into(), theme.tone(Tone::Plain));
    let x = area.right() - hint_width.saturating_sub(2);
    buf.set_stringn(x, area.y, hint, hint_width.into(), theme.tone(Tone::Quiet));
}
