//! Masking of an original on its way to a server, line by line.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::Arc;

/// Masks secrets in a line of an original. The result has no line break.
pub type Mask = Arc<dyn for<'t> Fn(&'t str) -> Cow<'t, str> + Send + Sync>;

/// The longest line that is masked in one piece. A longer one is masked in pieces of this size.
const LONGEST_LINE: u64 = 64 << 20;

/// Content with its lines masked. A line that is not UTF-8 is made so.
pub(super) struct Masked<R> {
    content: BufReader<R>,
    mask: Mask,
    line: Cursor<Vec<u8>>,
}

impl<R: Read> Masked<R> {
    pub(super) fn new(content: R, mask: Mask) -> Self {
        Self { content: BufReader::new(content), mask, line: Cursor::default() }
    }
}

impl<R: Read> Read for Masked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.line.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let mut line = std::mem::take(&mut self.line).into_inner();
            line.clear();
            if self.content.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
                return Ok(0);
            }
            self.line = Cursor::new(masked(line, &self.mask));
        }
    }
}

fn masked(mut line: Vec<u8>, mask: &Mask) -> Vec<u8> {
    let is_ended = line.ends_with(b"\n");
    if is_ended {
        line.pop();
    }
    // The empty line after the header stays one.
    if !line.is_empty() {
        let masked = match String::from_utf8_lossy(&line) {
            Cow::Borrowed(text) => match mask(text) {
                Cow::Borrowed(same) if same.len() == text.len() => None,
                masked => Some(masked.into_owned()),
            },
            Cow::Owned(text) => Some(mask(&text).into_owned()),
        };
        line = masked.map_or(line, String::into_bytes);
    }
    if is_ended {
        line.push(b'\n');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_masked_and_the_rest_stays() {
        let mask: Mask = Arc::new(|line| match line.contains("secret") {
            true => Cow::Owned(line.replace("secret", "***")),
            false => Cow::Borrowed(line),
        });
        let of = |content: &[u8]| {
            let mut masked = Vec::new();
            Masked::new(content, Arc::clone(&mask)).read_to_end(&mut masked).unwrap();
            String::from_utf8(masked).unwrap()
        };
        assert_eq!(
            of(b"{\"a\":1}\n\nsecret one\nother\nlast secret"),
            "{\"a\":1}\n\n*** one\nother\nlast ***"
        );
        assert_eq!(of(b"secret \xff\nplain\xff\n\n"), "*** \u{fffd}\nplain\u{fffd}\n\n");
        assert_eq!(of(b""), "");
    }
}
