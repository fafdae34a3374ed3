//! Copies of source text, and the place of a fork.

use std::ops::Range;

use azureal::Seq;
use azureal::transcript::{Author, Block, Content};

use super::Pane;
use super::act::{Outcome, is_prompt};

impl Pane {
    fn copied(text: String) -> Outcome {
        if text.trim().is_empty() {
            return Outcome { note: Some("nothing to copy here".to_owned()), ..Outcome::default() };
        }
        Outcome { copy: Some(text), ..Outcome::default() }
    }

    /// Copies the source of the block at the reading cursor.
    pub(super) fn copy_block(&mut self) -> Outcome {
        let block = self.cursor_index().and_then(|index| self.blocks.get(index));
        Self::copied(block.map(|block| block.source().into_owned()).unwrap_or_default())
    }

    /// Copies the prompt and the answers of the turn at the reading cursor.
    pub(super) fn copy_turn(&mut self) -> Outcome {
        let Some((first, last)) = self.turn_at_cursor() else { return Self::copied(String::new()) };
        let texts: Vec<&str> = (first..=last)
            .filter_map(|index| match &self.blocks.get(index)?.content {
                Content::Text(text) if matches!(text.author, Author::User | Author::Agent | Author::Plan) => {
                    Some(text.source.trim_end())
                }
                _ => None,
            })
            .collect();
        let is_cut = !self.blocks.get(first).is_some_and(is_prompt) && !self.window.is_at_start
            || last + 1 == self.blocks.len() && !self.window.is_at_end;
        let note = is_cut.then(|| "copied the part of the turn that is loaded".to_owned());
        Outcome { note, ..Self::copied(texts.join("\n\n")) }
    }

    /// Copies the code block at the reading cursor; the next time, the next one.
    pub(super) fn copy_code(&mut self) -> Outcome {
        let Some(index) = self.cursor_index() else { return Self::copied(String::new()) };
        let Some(block) = self.blocks.get(index) else { return Self::copied(String::new()) };
        let key = (block.seq, block.part);
        let source = block.source().into_owned();
        let codes = code_blocks(block);
        if codes.is_empty() {
            let note = Some("no code block here".to_owned());
            return Outcome { note, ..Outcome::default() };
        }
        let at_cursor = || {
            let cursor = self.cursor?;
            codes.iter().position(|code| cursor.at.is_some_and(|at| at < code.end))
        };
        let number = match self.copied {
            Some((copied, number)) if copied == key => (number + 1) % codes.len(),
            _ => at_cursor().unwrap_or(0),
        };
        self.copied = Some((key, number));
        let text = codes.get(number).and_then(|code| source.get(code.clone())).unwrap_or_default();
        let note = Some(format!("code block {} of {}", number + 1, codes.len()));
        Outcome { note, ..Self::copied(text.to_owned()) }
    }

    /// Names the end of the turn at the reading cursor.
    pub(super) fn fork_here(&mut self) -> Outcome {
        let note = |text: &str| Outcome { note: Some(text.to_owned()), ..Outcome::default() };
        let Some((_, last)) = self.turn_at_cursor() else { return note("no turn to fork at") };
        let next = self.blocks.get(last + 1).filter(|block| is_prompt(block)).map(|block| block.seq);
        let at = match next {
            Some(next) => Seq(next.0.saturating_sub(1)),
            None if !self.window.is_at_end => return note("go to the end of the turn to fork at it"),
            None => self.stored,
        };
        // A running turn cannot be copied.
        let at = at.min(self.stored);
        if at == Seq::START || self.session().is_none() {
            return note("no stored turn to fork at");
        }
        Outcome { fork_at: Some(at), ..Outcome::default() }
    }

    /// Returns the first and the last block of the turn at the reading cursor.
    fn turn_at_cursor(&mut self) -> Option<(usize, usize)> {
        let cursor = self.cursor_index()?;
        let is_prompt = |index: &usize| self.blocks.get(*index).is_some_and(is_prompt);
        let first = (0..=cursor).rev().find(is_prompt).unwrap_or(0);
        let next = (cursor + 1..self.blocks.len()).find(is_prompt);
        Some((first, next.map_or(self.blocks.len(), |next| next) - 1))
    }
}

/// Returns the places of the fenced code in the source of a block, without the fences.
fn code_blocks(block: &Block) -> Vec<Range<usize>> {
    let Content::Text(text) = &block.content else { return Vec::new() };
    let mut blocks = Vec::new();
    let mut open: Option<(char, usize, usize)> = None;
    let mut at = 0;
    for line in text.source.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let content = line.trim();
        let mark = content.chars().next().unwrap_or(' ');
        let length = content.chars().take_while(|c| *c == mark).count();
        let is_fence = matches!(mark, '`' | '~') && length >= 3;
        match open {
            None if is_fence => open = Some((mark, length, at)),
            Some((opened, least, from))
                if is_fence && mark == opened && length >= least && content.len() == length =>
            {
                blocks.push(from..start);
                open = None;
            }
            _ => {}
        }
    }
    if let Some((_, _, from)) = open {
        blocks.push(from.min(text.source.len())..text.source.len());
    }
    blocks
}
