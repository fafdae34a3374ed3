//! The lines that a bridge writes to its standard output, which is the spool.

use std::fs::File;
use std::io::{self, Write};

use azureal_core::bridge::{BridgeLine, UnreadableMessage};
use serde_json::value::RawValue;

use super::lines::{HEAD, Received};

/// The spool, and the number of bytes in it.
pub(crate) struct Output {
    file: File,
    written: u64,
    messages: u64,
}

impl Output {
    pub(crate) fn new(file: File) -> Self {
        Self { file, written: 0, messages: 0 }
    }

    /// Returns the number of bytes that were written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the number of messages that arrived.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Writes what arrived, and returns it if it is JSON.
    pub(crate) fn record(&mut self, received: &Received) -> io::Result<Option<String>> {
        self.messages += 1;
        let (bytes, length) = match received {
            Received::Message(bytes) => (bytes, bytes.len() as u64),
            Received::TooLong { bytes, head } => {
                self.unreadable(head, *bytes, "is too long")?;
                return Ok(None);
            }
        };
        let Ok(raw) = serde_json::from_slice::<&RawValue>(bytes) else {
            self.unreadable(bytes, length, "is no JSON")?;
            return Ok(None);
        };
        // In JSON a line break can only be between two tokens, so a space is equivalent.
        let text = raw.get().replace(['\n', '\r'], " ");
        // Not through `BridgeLine`, which would copy it again.
        self.write_line(&format!("{{\"message\":{text}}}\n"))?;
        Ok(Some(text))
    }

    fn unreadable(&mut self, bytes: &[u8], length: u64, why: &str) -> io::Result<()> {
        let head = bytes.get(..HEAD).unwrap_or(bytes);
        let text = String::from_utf8_lossy(head).into_owned();
        self.write(&BridgeLine::Unreadable(UnreadableMessage { bytes: length, why: why.to_owned(), text }))
    }

    /// Writes a line of the bridge itself.
    pub(crate) fn write(&mut self, line: &BridgeLine) -> io::Result<()> {
        let text = serde_json::to_string(line)?;
        self.write_line(&format!("{text}\n"))
    }

    fn write_line(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(line.as_bytes())?;
        self.written += line.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_one_line_and_raw() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut output = Output::new(File::create(&path).unwrap());
        let mut record = |bytes: &[u8]| output.record(&Received::Message(bytes.to_vec())).unwrap();
        assert_eq!(record(b" {\"a\":\r\n1.50,\n\"a\":2}").as_deref(), Some("{\"a\":  1.50, \"a\":2}"));
        assert_eq!(record(b"{\"a\":1}}\n{\"end\":{}}"), None);
        assert_eq!(record(b"\"\xff\""), None);
        let long = Received::TooLong { bytes: 9, head: b"xx".to_vec() };
        assert_eq!(output.record(&long).unwrap(), None);
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "{\"message\":{\"a\":  1.50, \"a\":2}}");
        assert_eq!(lines.len(), 4);
        for line in &lines[1..] {
            assert!(
                matches!(BridgeLine::read(line.as_bytes()).unwrap(), BridgeLine::Unreadable(_)),
                "{line}"
            );
        }
        assert_eq!((output.messages(), output.written()), (4, text.len() as u64));
    }
}
