//! The beginning and the end of a text that may be endless.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::{fmt, io};

/// The beginning and the end of an output, and the number of bytes that are missing between them.
///
/// Displayed, it is the text with a line for the missing part. Escape sequences and broken characters are unchanged.
///
/// ```
/// use azureal_process::Excerpt;
///
/// let excerpt = Excerpt { beginning: b"one\n".to_vec(), left_out: 7, end: b"nine\n".to_vec() };
/// assert_eq!(excerpt.to_string(), "one\n[7 bytes left out]\nnine\n");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// The first bytes; all of them if none was left out.
    pub beginning: Vec<u8>,
    /// The number of missing bytes.
    pub left_out: u64,
    /// The last bytes.
    pub end: Vec<u8>,
}

impl Excerpt {
    /// Reads at most `limit` bytes of a file, half of them from its end.
    ///
    /// For a run whose standard error is a [file](crate::Stream::File), however long that has become.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn of_file(file: &File, limit: usize) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let limit = limit as u64;
        if length <= limit {
            return Ok(Self { beginning: read_at_most(file, 0, length)?, ..Self::default() });
        }
        let half = limit / 2;
        Ok(Self {
            beginning: read_at_most(file, 0, half)?,
            left_out: length - 2 * half,
            end: read_at_most(file, length - half, half)?,
        })
    }

    /// Returns whether the output is empty.
    pub fn is_empty(&self) -> bool {
        self.beginning.is_empty() && self.left_out == 0 && self.end.is_empty()
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beginning = String::from_utf8_lossy(&self.beginning);
        f.write_str(&beginning)?;
        if self.left_out > 0 {
            let newline = if beginning.is_empty() || beginning.ends_with('\n') { "" } else { "\n" };
            writeln!(f, "{newline}[{} bytes left out]", self.left_out)?;
        }
        f.write_str(&String::from_utf8_lossy(&self.end))
    }
}

fn read_at_most(file: &File, at: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Gathers an [`Excerpt`] of what arrives piece by piece, in memory that does not grow with it.
#[derive(Debug)]
pub(crate) struct Gathering {
    beginning: Vec<u8>,
    beginning_limit: usize,
    end: VecDeque<u8>,
    end_limit: usize,
    left_out: u64,
}

impl Gathering {
    pub(crate) fn new(limit: usize) -> Self {
        let beginning_limit = limit / 2;
        Self {
            beginning: Vec::new(),
            beginning_limit,
            end: VecDeque::new(),
            end_limit: limit - beginning_limit,
            left_out: 0,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = self.beginning_limit - self.beginning.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.beginning.extend_from_slice(first);
        // Of a piece that is longer than the end may be, only its own end can stay.
        let (skipped, last) = rest.split_at(rest.len().saturating_sub(self.end_limit));
        let too_many = (self.end.len() + last.len()).saturating_sub(self.end_limit);
        self.end.drain(..too_many);
        self.end.extend(last);
        self.left_out += (skipped.len() + too_many) as u64;
    }

    pub(crate) fn excerpt(&self) -> Excerpt {
        let mut excerpt = Excerpt {
            beginning: self.beginning.clone(),
            left_out: self.left_out,
            end: self.end.iter().copied().collect(),
        };
        if excerpt.left_out == 0 {
            excerpt.beginning.append(&mut excerpt.end);
        }
        excerpt
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn both_ends_stay_however_the_text_arrives() {
        let text: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for limit in [0, 1, 2, 7, 64, 999, 1000, 1001] {
            let half = limit / 2;
            let expected = if text.len() <= limit {
                Excerpt { beginning: text.clone(), ..Excerpt::default() }
            } else {
                Excerpt {
                    beginning: text[..half].to_vec(),
                    left_out: (text.len() - limit) as u64,
                    end: text[text.len() - (limit - half)..].to_vec(),
                }
            };
            for piece in [1, 3, 64, 1000] {
                let mut gathering = Gathering::new(limit);
                text.chunks(piece).for_each(|piece| gathering.push(piece));
                assert_eq!(gathering.excerpt(), expected, "limit {limit}, in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_file_gives_its_ends() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let whole = Excerpt { beginning: b"0123456789".to_vec(), ..Excerpt::default() };
        assert_eq!(Excerpt::of_file(&file, 10).unwrap(), whole);
        let ends = Excerpt { beginning: b"01".to_vec(), left_out: 6, end: b"89".to_vec() };
        assert_eq!(Excerpt::of_file(&file, 5).unwrap(), ends);
        assert!(Excerpt::of_file(&tempfile::tempfile().unwrap(), 5).unwrap().is_empty());
    }
}
