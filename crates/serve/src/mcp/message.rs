//! The messages of a client: one JSON value per line, of a bounded size.

use std::io::{self, BufRead, Read};

use serde_json::Value;

/// The longest message of a client, in bytes. A call of these tools has a few hundred.
const LONGEST: u64 = 1 << 20;

/// What a client sent.
pub(super) enum Incoming {
    Message(Value),
    /// It is no message, for this reason. The next line may be one.
    Unreadable(String),
}

/// Reads messages.
pub(super) struct MessageReader<R> {
    input: R,
}

impl<R: BufRead> MessageReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input }
    }

    /// Returns the next message; `None` at the end of the input.
    pub(super) fn next_message(&mut self) -> io::Result<Option<Incoming>> {
        loop {
            let mut line = Vec::new();
            // One byte more, to see that a line is too long.
            self.input.by_ref().take(LONGEST + 1).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(None);
            }
            if line.len() as u64 > LONGEST && !line.ends_with(b"\n") {
                self.skip_line()?;
                let why = format!("a message is longer than {LONGEST} bytes");
                return Ok(Some(Incoming::Unreadable(why)));
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            return Ok(Some(match serde_json::from_slice(&line) {
                Ok(message) => Incoming::Message(message),
                Err(error) => Incoming::Unreadable(format!("not JSON: {error}")),
            }));
        }
    }

    /// Skips the rest of a line without keeping it.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let piece = self.input.fill_buf()?;
            if piece.is_empty() {
                return Ok(());
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let skipped = end.map_or(piece.len(), |end| end + 1);
            self.input.consume(skipped);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}
