//! Copies of source text, and the place of a fork.

use azureal::Seq;
use azureal::desk::Request;
use azureal::transcript::{Author, Content};

use super::act::{Outcome, is_prompt};
use super::{Pane, PromptFor};

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
        let codes = match &block.content {
            Content::Text(text) => fenced_code(&text.source),
            _ => Vec::new(),
        };
        let at_cursor = || {
            let at = self.cursor?.at?;
            codes.iter().position(|(end, _)| at < *end)
        };
        let number = match self.copied {
            Some((copied, number)) if copied == key && number + 1 < codes.len() => number + 1,
            Some((copied, _)) if copied == key => 0,
            _ => at_cursor().unwrap_or(0),
        };
        let Some((_, code)) = codes.get(number) else {
            return Outcome { note: Some("no code block here".to_owned()), ..Outcome::default() };
        };
        self.copied = Some((key, number));
        let note = Some(format!("code block {} of {}", number + 1, codes.len()));
        Outcome { note, ..Self::copied(code.clone()) }
    }

    /// Names the end of the turn at the reading cursor.
    pub(super) fn fork_here(&mut self) -> Outcome {
        let note = |text: &str| Outcome { note: Some(text.to_owned()), ..Outcome::default() };
        let Some((_, last)) = self.turn_at_cursor() else { return note("no turn to fork at") };
        let next = self.blocks.get(last + 1).filter(|block| is_prompt(block)).map(|block| block.seq);
        let at = match next {
            Some(next) => Seq(next.0.saturating_sub(1)),
            None if !self.window.is_at_end => {
                // The end of the turn is not held: it is before the next prompt.
                let Some(from) = self.window.last() else { return note("no turn to fork at") };
                self.asked.prompt = Some(PromptFor::Fork);
                return vec![Request::FindPrompt { pane: self.id, from, backwards: false }].into();
            }
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

/// Returns the fenced code in a text: where it ends, and the code without fences and without their indentation.
fn fenced_code(text: &str) -> Vec<(usize, String)> {
    struct Open {
        mark: char,
        length: usize,
        indent: usize,
        code: String,
    }
    let mut found = Vec::new();
    let mut open: Option<Open> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        at += line.len();
        let content = line.trim();
        let mark = content.chars().next().unwrap_or(' ');
        let length = content.chars().take_while(|c| *c == mark).count();
        let is_fence = matches!(mark, '`' | '~') && length >= 3;
        let indent = line.len() - line.trim_start().len();
        match open.take() {
            None if is_fence => open = Some(Open { mark, length, indent, code: String::new() }),
            None => {}
            Some(fence) if fence.mark == mark && length >= fence.length && content.len() == length => {
                found.push((at, fence.code));
            }
            Some(mut fence) => {
                let code = line.trim_start_matches(' ');
                let kept = (line.len() - code.len()).saturating_sub(fence.indent);
                fence.code.extend(std::iter::repeat_n(' ', kept));
                fence.code.push_str(code);
                open = Some(fence);
            }
        }
    }
    found.extend(open.map(|fence| (at, fence.code)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_copied_without_fences_and_their_indentation() {
        let code = |text: &str| fenced_code(text).into_iter().map(|(_, code)| code).collect::<Vec<_>>();
        assert_eq!(code("a\n```rust\nlet x;\n  y\n```\nb"), ["let x;\n  y\n"]);
        assert_eq!(code("- item\n\n  ```\n  a\n    b\n  ```\n"), ["a\n  b\n"]);
        assert_eq!(code("~~~\n```\n~~~\n````\n```\n````"), ["```\n", "```\n"]);
        assert_eq!(code("```\nnot closed"), ["not closed"]);
        assert!(code("no `code` here").is_empty());
    }
}
