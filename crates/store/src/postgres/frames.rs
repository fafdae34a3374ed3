//! The messages in the stream of a PostgreSQL server: a letter, a length, and a body.

use crate::server::{Framing, PER_PART};

/// The letter and the length.
const HEADER: usize = 5;

/// The position of the stream in a message.
#[derive(Debug, Default)]
pub(super) struct Messages {
    header: [u8; HEADER],
    /// The bytes of the header that have been read.
    read: usize,
    /// The bytes of the body that are still to come.
    body: usize,
}

impl Framing for Messages {
    fn announced(&mut self, mut bytes: &[u8]) -> usize {
        let mut announced: usize = 0;
        while let Some((first, rest)) = bytes.split_first() {
            if self.body > 0 {
                let (_, rest) = bytes.split_at(self.body.min(bytes.len()));
                self.body -= bytes.len() - rest.len();
                bytes = rest;
                continue;
            }
            if let Some(place) = self.header.get_mut(self.read) {
                *place = *first;
            }
            self.read += 1;
            bytes = rest;
            if self.read == HEADER {
                let [_, length @ ..] = self.header;
                // The length counts itself.
                self.body = usize::try_from(i32::from_be_bytes(length)).unwrap_or(0).saturating_sub(4);
                self.read = 0;
                announced = announced.saturating_add(self.body).saturating_add(PER_PART);
            }
        }
        announced
    }

    fn is_between(&self) -> bool {
        self.read == 0 && self.body == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_known_by_its_header_however_it_is_cut() {
        let stream = [b"Z\0\0\0\x05I".as_slice(), b"D\0\0\0\x06\0\0", b"1\0\0\0\x04"].concat();
        for cut in 0..=stream.len() {
            let mut messages = Messages::default();
            let (one, other) = stream.split_at(cut);
            assert_eq!(messages.announced(one) + messages.announced(other), 3 * PER_PART + 3, "{cut}");
            assert!(messages.is_between());
        }
        let mut messages = Messages::default();
        assert_eq!(messages.announced(b"D\x7f\xff\xff\xff"), PER_PART + 0x7fff_fffb);
        assert!(!messages.is_between());
    }
}
