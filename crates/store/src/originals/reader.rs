//! Reading an original: piece by piece, without blocking an executor.

use std::io::{self, Read};

use azureal_core::{ORIGINAL_PIECE, OriginalReader, StoreError, async_trait};
use futures_channel::oneshot;
use futures_executor::block_on;

use super::error_at;

/// A part of an original, or all of it.
pub(super) type Part = Box<dyn Read + Send>;

/// Reads the output of an original on threads of its own: no call blocks an executor.
pub(crate) struct PartReader {
    place: String,
    reader: Option<Part>,
}

impl PartReader {
    /// `place` is the folder or the server, for errors.
    pub(crate) fn new(place: String, reader: impl Read + Send + 'static) -> Self {
        Self { place, reader: Some(Box::new(reader)) }
    }
}

#[async_trait]
impl OriginalReader for PartReader {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(mut reader) = self.reader.take() else { return Ok(None) };
        let read = on_thread(move || {
            let mut piece = Vec::new();
            let read = reader.by_ref().take(ORIGINAL_PIECE as u64).read_to_end(&mut piece);
            (read.map(|_| piece), reader)
        });
        let (piece, reader) = read.await?;
        let piece = piece.map_err(|error| error_at(&self.place, &error))?;
        if piece.is_empty() {
            return Ok(None);
        }
        self.reader = Some(reader);
        Ok(Some(piece))
    }
}

#[cfg(any(feature = "redis", feature = "sqlite"))]
/// The content of another store's original, as it is compressed: header, empty line, output.
pub(crate) struct Unpacked {
    header: io::Cursor<Vec<u8>>,
    output: OutputReader,
}

#[cfg(any(feature = "redis", feature = "sqlite"))]
impl Unpacked {
    pub(crate) fn new(original: azureal_core::OpenOriginal) -> Self {
        let header = io::Cursor::new(super::pack::framed(original.header).into_bytes());
        Self { header, output: OutputReader::new(original.output) }
    }
}

#[cfg(any(feature = "redis", feature = "sqlite"))]
impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.header.read(buffer)? {
            0 => self.output.read(buffer),
            read => Ok(read),
        }
    }
}

/// The output of another store's original. Blocks.
pub(super) struct OutputReader {
    piece: io::Cursor<Vec<u8>>,
    output: Box<dyn OriginalReader>,
}

impl OutputReader {
    pub(super) fn new(output: Box<dyn OriginalReader>) -> Self {
        Self { piece: io::Cursor::default(), output }
    }
}

impl Read for OutputReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            match block_on(self.output.next()).map_err(io::Error::other)? {
                Some(piece) => self.piece = io::Cursor::new(piece),
                None => return Ok(0),
            }
        }
    }
}

/// Runs a job that reads or writes files on a thread of its own.
pub(crate) async fn on_thread<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    let (sender, answer) = oneshot::channel();
    std::thread::Builder::new()
        .name("azureal-originals".to_owned())
        .spawn(move || {
            // The caller may have stopped waiting. The work is done either way.
            drop(sender.send(job()));
        })
        .map_err(StoreError::other)?;
    answer.await.map_err(|_| StoreError::other("the thread that reads originals panicked"))
}
