//! The lines of a file that another program wrote, plain or compressed with zstd.
//!
//! The file is opened read-only and without following a link in its last part. Only plain files are read: a pipe would block,
//! and a device may have no end. A line over the limit is skipped and counted, so memory is bounded.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::OFlags;

use super::NativeError;
use crate::wire::Fields;

/// The longest line that is read: 32 MiB.
const LINE_LIMIT: u64 = 32 << 20;
/// The window of a compressed file, as a power of two: 128 MiB, the default limit of zstd's own program.
const WINDOW_LOG: u32 = 27;
/// The first bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const PIECE: usize = 64 << 10;

/// Opens a plain file for reading.
pub(crate) fn open_plain(path: &Path) -> Result<(File, Metadata), NativeError> {
    // Without blocking, because a pipe in its place would wait for a writer.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let not_plain = || NativeError::NotAPlainFile { path: path.to_owned() };
    let file = match opened {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(not_plain());
        }
        opened => opened.map_err(NativeError::file(path))?,
    };
    let found = file.metadata().map_err(NativeError::file(path))?;
    if found.is_file() { Ok((file, found)) } else { Err(not_plain()) }
}

/// Opens the content of a plain file for reading, decompressed.
pub fn open_content(path: &Path) -> Result<Box<dyn BufRead + Send>, NativeError> {
    let (file, _) = open_plain(path)?;
    let mut reader = BufReader::with_capacity(PIECE, file);
    let failed = NativeError::file(path);
    let is_compressed = reader.fill_buf().map_err(&failed)?.starts_with(&ZSTD_MAGIC);
    if !is_compressed {
        return Ok(Box::new(reader));
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(reader).map_err(&failed)?;
    decoder.window_log_max(WINDOW_LOG).map_err(&failed)?;
    Ok(Box::new(BufReader::with_capacity(PIECE, decoder)))
}

/// A line of a file, without its newline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// Its bytes.
    Whole(&'a [u8]),
    /// The last line, which has no newline: it may be cut off.
    Unfinished(&'a [u8]),
    /// It is longer than the limit and was skipped.
    Oversized {
        /// Its length.
        bytes: u64,
    },
}

/// Reads a file line by line.
pub(crate) struct Lines {
    reader: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    /// Opens a file, which may be compressed.
    pub(crate) fn open(path: &Path) -> Result<Self, NativeError> {
        Ok(Self::of(open_content(path)?))
    }

    pub(crate) fn of(reader: Box<dyn BufRead + Send>) -> Self {
        Self { reader, line: Vec::new(), number: 0 }
    }

    /// Returns the number of the last line, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Reads the next line; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.next_within(LINE_LIMIT)
    }

    fn next_within(&mut self, limit: u64) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        // A long line must not keep its memory for all later ones.
        self.line.shrink_to(PIECE);
        let read = Read::by_ref(&mut self.reader).take(limit + 1).read_until(b'\n', &mut self.line)? as u64;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.line.pop_if(|last| *last == b'\n').is_some() {
            return Ok(Some(Line::Whole(&self.line)));
        }
        if read <= limit {
            return Ok(Some(Line::Unfinished(&self.line)));
        }
        self.line = Vec::new();
        let skipped = self.skip_line()?;
        Ok(Some(Line::Oversized { bytes: read + skipped }))
    }

    /// Skips the rest of a line, and returns its length.
    fn skip_line(&mut self) -> io::Result<u64> {
        let mut skipped = 0;
        loop {
            let piece = self.reader.fill_buf()?;
            if piece.is_empty() {
                return Ok(skipped);
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(piece.len(), |end| end + 1);
            self.reader.consume(used);
            skipped += used as u64;
            if end.is_some() {
                return Ok(skipped);
            }
        }
    }
}

/// Reads the first bytes of a file, decompressed; at most so many.
pub(crate) fn beginning(path: &Path, most: usize) -> Result<Vec<u8>, NativeError> {
    let mut bytes = Vec::new();
    open_content(path)?.take(most as u64).read_to_end(&mut bytes).map_err(NativeError::file(path))?;
    Ok(bytes)
}

/// Returns the last `timestamp` in the end of a file of JSON lines; `None` if the end has none or is compressed.
pub(crate) fn last_time(path: &Path) -> Option<Timestamp> {
    const END: u64 = 16 << 10;
    const NAME: &str = "\"timestamp\":\"";
    let (mut file, found) = open_plain(path).ok()?;
    file.seek(SeekFrom::Start(found.len().saturating_sub(END))).ok()?;
    let mut end = Vec::new();
    file.take(END).read_to_end(&mut end).ok()?;
    let end = String::from_utf8_lossy(&end);
    // A text that has such a field has it with escaped quotes.
    let (_, value) = end.rsplit_once(NAME)?;
    value.split_once('"')?.0.parse().ok()
}

/// Reads the JSON objects among the first lines of a file, until one is enough.
pub(crate) fn first_objects(
    path: &Path,
    most: u64,
    mut take: impl FnMut(&Fields<'_>) -> ControlFlow<()>,
) -> Result<(), NativeError> {
    let mut lines = Lines::open(path)?;
    while lines.number() < most {
        let Some(line) = lines.next().map_err(NativeError::file(path))? else { break };
        let (Line::Whole(line) | Line::Unfinished(line)) = line else { continue };
        let text = String::from_utf8_lossy(line);
        if Fields::of(&text).is_some_and(|fields| take(&fields).is_break()) {
            break;
        }
    }
    Ok(())
}

/// Returns whether one of the JSON objects in the beginning of a file is of a kind.
pub(crate) fn any_object(beginning: &[u8], is_of_kind: impl Fn(&Fields<'_>) -> bool) -> bool {
    beginning.split(|byte| *byte == b'\n').any(|line| {
        let text = String::from_utf8_lossy(line);
        Fields::of(&text).is_some_and(|fields| is_of_kind(&fields))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn read(content: &[u8], limit: u64) -> Vec<String> {
        let mut lines = Lines::of(Box::new(io::Cursor::new(content.to_vec())));
        let mut read = Vec::new();
        while let Some(line) = lines.next_within(limit).unwrap() {
            read.push(match line {
                Line::Whole(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Line::Unfinished(bytes) => format!("cut {}", String::from_utf8_lossy(bytes)),
                Line::Oversized { bytes } => format!("{bytes} bytes"),
            });
        }
        assert_eq!(lines.number(), read.len() as u64);
        read
    }

    #[test]
    fn a_line_over_the_limit_is_skipped_and_the_next_one_read() {
        assert_eq!(read(b"a\n12345\n123456\nb", 5), ["a", "12345", "7 bytes", "cut b"]);
        assert_eq!(read(b"123456", 5), ["6 bytes"]);
        assert_eq!(read(b"\n\n", 5), ["", ""]);
        assert!(read(b"", 5).is_empty());
    }

    #[test]
    fn a_compressed_file_has_the_same_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl.zst");
        std::fs::write(&path, zstd::encode_all(&b"one\ntwo\n"[..], 3).unwrap()).unwrap();
        let mut lines = Lines::open(&path).unwrap();
        assert_eq!(lines.next().unwrap(), Some(Line::Whole(b"one")));
        assert_eq!(lines.next().unwrap(), Some(Line::Whole(b"two")));
        assert_eq!(lines.next().unwrap(), None);
        assert_eq!(beginning(&path, 5).unwrap(), b"one\nt");
    }

    #[test]
    fn the_last_time_is_that_of_the_last_entry_that_has_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let of = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            last_time(&path).map(|time| time.to_string())
        };
        let line = |time: &str, text: &str| format!("{{\"timestamp\":\"{time}\",\"text\":{text:?}}}\n");
        let (first, last) =
            (line("2026-11-15T07:05:00Z", "a"), line("2026-11-15T07:06:00Z", "\"timestamp\":\"x\""));
        let text = format!("{first}{last}{{\"mode\":\"x\"}}\n");
        assert_eq!(of(text.as_bytes()).unwrap(), "2026-11-15T07:06:00Z", "not what a text says");
        assert_eq!(of(format!("{first}{}", "x".repeat(20_000)).as_bytes()), None, "only the end is read");
        assert_eq!(of(&zstd::encode_all(text.as_bytes(), 3).unwrap()), None);
        assert_eq!(of(b""), None);
    }

    #[test]
    fn only_plain_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("plain"), "x").unwrap();
        symlink(path("plain"), path("link")).unwrap();
        symlink("/dev/zero", path("device")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        assert!(open_plain(&path("plain")).is_ok());
        for name in ["link", "device", "pipe", "."] {
            assert!(
                matches!(open_plain(&path(name)), Err(NativeError::NotAPlainFile { .. })),
                "{name} was opened"
            );
        }
        assert!(matches!(open_plain(&path("none")), Err(NativeError::File { .. })));
    }
}
