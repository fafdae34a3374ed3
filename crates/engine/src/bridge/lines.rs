//! Reading the messages of an agent, each bounded.

use std::io::{self, BufRead};

/// The bytes that are kept of a message that is too long.
pub(crate) const HEAD: usize = 2 << 10;

/// One message, before anybody knows whether it is JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Received {
    /// Its bytes.
    Message(Vec<u8>),
    /// It is longer than the limit; only its beginning is kept.
    TooLong {
        /// Its length.
        bytes: u64,
        /// Its beginning.
        head: Vec<u8>,
    },
}

impl Received {
    /// An empty message.
    pub(crate) fn new() -> Self {
        Self::Message(Vec::new())
    }

    /// Adds bytes, and drops all but the beginning once there are more than `limit`.
    pub(crate) fn push(&mut self, piece: &[u8], limit: u64) {
        match self {
            Self::Message(bytes) if bytes.len() as u64 + piece.len() as u64 <= limit => {
                bytes.extend_from_slice(piece);
            }
            Self::Message(bytes) => {
                let total = bytes.len() as u64 + piece.len() as u64;
                let mut head = std::mem::take(bytes);
                head.extend_from_slice(piece.get(..HEAD).unwrap_or(piece));
                head.truncate(HEAD);
                head.shrink_to_fit();
                *self = Self::TooLong { bytes: total, head };
            }
            Self::TooLong { bytes, .. } => *bytes += piece.len() as u64,
        }
    }

    /// Returns whether there is no text in it.
    pub(crate) fn is_blank(&self) -> bool {
        matches!(self, Self::Message(bytes) if bytes.trim_ascii().is_empty())
    }
}

/// Reads the next line, without its line break; `None` at the end. A last line without a line break counts.
pub(crate) fn read_line(reader: &mut impl BufRead, limit: u64) -> io::Result<Option<Received>> {
    let mut line = Received::new();
    let mut has_begun = false;
    loop {
        let piece = match reader.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if piece.is_empty() {
            return Ok(has_begun.then_some(line));
        }
        has_begun = true;
        let end = piece.iter().position(|byte| *byte == b'\n');
        line.push(piece.get(..end.unwrap_or(piece.len())).unwrap_or_default(), limit);
        let used = end.map_or(piece.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn lines_come_whole_whatever_the_pieces_and_long_ones_as_their_beginning() {
        let long = "x".repeat(5000);
        let text = format!("one\n\n{long}\ntwo\r\nlast");
        for capacity in [1, 3, 4096] {
            let mut reader = BufReader::with_capacity(capacity, text.as_bytes());
            let mut next = || read_line(&mut reader, 4000).unwrap();
            assert_eq!(next(), Some(Received::Message(b"one".to_vec())));
            assert!(next().unwrap().is_blank());
            assert_eq!(next(), Some(Received::TooLong { bytes: 5000, head: vec![b'x'; HEAD] }));
            assert_eq!(next(), Some(Received::Message(b"two\r".to_vec())));
            assert_eq!(next(), Some(Received::Message(b"last".to_vec())));
            assert_eq!(next(), None);
        }
    }
}
