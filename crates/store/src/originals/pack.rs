//! The compressed form of an original: one zstd frame over its header, an empty line and its output.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};

use azureal_core::LARGEST_ORIGINAL_HEADER;
use zstd::stream::{read, write};

const LEVEL: i32 = 3;
/// The largest window of a frame that is read, as a power of two.
const WINDOW_LOG: u32 = 26;

/// Writes header and output.
pub(super) fn pack(header: impl Read, mut output: impl Read, file: &File) -> io::Result<()> {
    let header = framed(read_header(header)?);
    pack_reader(&mut header.as_bytes().chain(&mut output), file)
}

/// Returns a header with the empty line after it.
pub(super) fn framed(header: String) -> String {
    let mut header = without_empty_lines(header);
    header.push('\n');
    header
}

/// Removes empty lines, which say nothing, and ends the last line: an empty line is the end of a header.
fn without_empty_lines(header: String) -> String {
    let is_clean =
        header.is_empty() || header.ends_with('\n') && !header.starts_with('\n') && !header.contains("\n\n");
    if is_clean {
        return header;
    }
    let mut clean = String::with_capacity(header.len() + 1);
    for line in header.split('\n').filter(|line| !line.is_empty()) {
        clean.push_str(line);
        clean.push('\n');
    }
    clean
}

/// Writes the content of another original.
pub(super) fn pack_reader(content: &mut dyn Read, file: &File) -> io::Result<()> {
    let mut encoder = write::Encoder::new(file, LEVEL)?;
    // So that a flipped bit on a disk is found instead of believed.
    encoder.include_checksum(true)?;
    io::copy(content, &mut encoder)?;
    encoder.finish()?.flush()
}

/// Reads a header whole, up to its bound.
pub(super) fn read_header(header: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    header.take(LARGEST_ORIGINAL_HEADER as u64).read_to_end(&mut bytes)?;
    Ok(without_empty_lines(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Reads a compressed original.
pub(super) struct Unpacker<R> {
    content: BufReader<read::Decoder<'static, BufReader<R>>>,
}

impl<R: Read> Unpacker<R> {
    pub(super) fn new(packed: R) -> io::Result<Self> {
        let mut decoder = read::Decoder::new(packed)?;
        decoder.window_log_max(WINDOW_LOG)?;
        Ok(Self { content: BufReader::new(decoder) })
    }

    /// Reads the header, after which the output follows.
    pub(super) fn header(&mut self) -> io::Result<String> {
        let mut header = Vec::new();
        loop {
            let before = header.len();
            let left = LARGEST_ORIGINAL_HEADER.saturating_sub(before);
            let read = self.content.by_ref().take(left as u64).read_until(b'\n', &mut header)?;
            if header.get(before..) == Some(b"\n".as_slice()) || read == 0 {
                header.truncate(before);
                let is_whole = read > 0;
                let header = String::from_utf8(header).ok().filter(|_| is_whole);
                return header.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "has no header"));
            }
        }
    }
}

impl<R: Read> Read for Unpacker<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.content.read(buffer)
    }
}
