//! The values in the stream of a Redis server: lines, texts of a length, and lists of a length.

use crate::server::{Framing, PER_PART};

/// The longest line that holds a length.
const LONGEST_LENGTH: usize = 24;

/// The position of the stream in a value.
#[derive(Debug, Default)]
pub(super) struct Values {
    /// The beginning of the line that is being read.
    line: Vec<u8>,
    /// The bytes of a text that are still to come, with the end of its line.
    text: usize,
    /// The number of values that a reply still lacks.
    missing: usize,
}

impl Values {
    /// Takes the end of a line; returns the memory of what it announces.
    fn end_line(&mut self) -> usize {
        let length = |from: usize| {
            let digits = self.line.get(from..).and_then(|line| std::str::from_utf8(line).ok());
            // A length that cannot be read is the largest, which ends the connection.
            digits.map_or(usize::MAX, |digits| match digits.trim().parse::<i64>() {
                Ok(length) => usize::try_from(length).unwrap_or(0),
                Err(_) => usize::MAX,
            })
        };
        let (values, text) = match self.line.first() {
            Some(b'$' | b'=' | b'!') => (0, length(1)),
            Some(b'*' | b'~' | b'>') => (length(1), 0),
            Some(b'%' | b'|') => (length(1).saturating_mul(2), 0),
            _ => (0, 0),
        };
        let is_text =
            matches!(self.line.as_slice(), [b'$' | b'=' | b'!', digit, ..] if digit.is_ascii_digit());
        self.line.clear();
        self.missing = self.missing.saturating_sub(1).saturating_add(values);
        self.text = if is_text { text.saturating_add(2) } else { 0 };
        values.saturating_mul(PER_PART).saturating_add(text)
    }
}

impl Framing for Values {
    fn announced(&mut self, mut bytes: &[u8]) -> usize {
        let mut announced: usize = 0;
        while let Some((first, rest)) = bytes.split_first() {
            if self.text > 0 {
                let (_, rest) = bytes.split_at(self.text.min(bytes.len()));
                self.text -= bytes.len() - rest.len();
                bytes = rest;
                continue;
            }
            if self.missing == 0 {
                self.missing = 1;
                announced = announced.saturating_add(PER_PART);
            }
            bytes = rest;
            announced = announced.saturating_add(1);
            if *first == b'\n' {
                announced = announced.saturating_add(self.end_line());
            } else if self.line.len() < LONGEST_LENGTH {
                self.line.push(*first);
            }
        }
        announced
    }

    fn is_between(&self) -> bool {
        self.missing == 0 && self.text == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_with_its_last_value_however_it_is_cut() {
        for stream in [
            "+OK\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "*0\r\n",
            "*-1\r\n",
            "*2\r\n$5\r\n*9\r\nx\r\n:7\r\n",
            "*2\r\n*1\r\n$3\r\nabc\r\n-ERR no\r\n",
            "%1\r\n+a\r\n*2\r\n_\r\n,1.5\r\n",
        ] {
            let stream = stream.as_bytes();
            let mut whole = Values::default();
            let announced = whole.announced(stream);
            for cut in 0..stream.len() {
                let (mut values, (one, other)) = (Values::default(), stream.split_at(cut));
                let first = values.announced(one);
                assert_eq!(values.is_between(), cut == 0, "{cut} of {stream:?}");
                assert_eq!(first + values.announced(other), announced, "{cut} of {stream:?}");
                assert!(values.is_between(), "{cut} of {stream:?}");
            }
        }
        for huge in ["$3000000000\r\n", "*2000000000\r\n", "$99999999999999999999999999999\r\n"] {
            assert!(Values::default().announced(huge.as_bytes()) >= 3_000_000_000, "{huge}");
        }
    }
}
