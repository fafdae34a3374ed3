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
pub(super) fn framed(mut header: String) -> String {
    if !header.is_empty() && !header.ends_with('\n') {
        header.push('\n');
    }
    header.push('\n');
    header
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
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a compressed original.
pub(super) struct Unpacker {
    content: BufReader<read::Decoder<'static, BufReader<File>>>,
}

impl Unpacker {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let mut decoder = read::Decoder::new(file)?;
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

impl Read for Unpacker {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.content.read(buffer)
    }
}
