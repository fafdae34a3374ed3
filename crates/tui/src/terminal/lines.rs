//! Lines of a terminal that edits them itself, or of a file.

use std::time::Duration;

use super::decode::{Input, PASTE_LIMIT};
use super::input::Parse;

/// Cuts bytes into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    waiting: Vec<u8>,
}

impl Parse for Lines {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<Input>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = PASTE_LIMIT.saturating_sub(self.waiting.len());
            self.waiting.extend(piece.iter().take(room));
            if piece.ends_with(b"\n") {
                self.end_line(out);
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// The last line of a file may have no end.
    fn give_up(&mut self, out: &mut Vec<Input>) {
        if !self.waiting.is_empty() {
            self.end_line(out);
        }
    }
}

impl Lines {
    fn end_line(&mut self, out: &mut Vec<Input>) {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.waiting)).into_owned();
        out.push(Input::Line(line.trim_end_matches(['\n', '\r']).to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_lines() {
        let mut lines = Lines::default();
        let mut out = Vec::new();
        lines.push(b"one\r\ntw", &mut out);
        lines.push(b"o\n\nthr", &mut out);
        lines.push(b"ee", &mut out);
        lines.give_up(&mut out);
        assert_eq!(out, ["one", "two", "", "three"].map(|line| Input::Line(line.to_owned())));
    }
}
