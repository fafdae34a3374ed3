//! Follows a file line by line while another process writes it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memchr::memchr;

use crate::error::FollowError;

/// The longest line by default: 64 MiB.
pub const LINE_LIMIT: u64 = 64 * 1024 * 1024;

/// The number of bytes that are read at a time.
const PIECE: usize = 64 * 1024;
/// The number of bytes that one [`poll`](Follow::poll) searches for the end of a line: 4 MiB.
const STRETCH: u64 = 4 * 1024 * 1024;
/// The pauses between two polls of a file that does not grow: short after new output, then longer.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(15);

/// A line of a file, without its newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Its bytes, as they are: not necessarily UTF-8, perhaps with a carriage return.
    Bytes(Vec<u8>),
    /// It is longer than the limit and was skipped.
    Oversized {
        /// Its length.
        bytes: u64,
    },
}

/// The result of one poll of a growing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The next line is whole, and so long. [`Follow::take_line`] returns it.
    Line {
        /// Its length.
        bytes: u64,
    },
    /// There is more to read, and the line has not ended yet. Poll again, after other checks.
    Reading,
    /// Everything up to here is read.
    Waiting,
}

/// Reads a growing file line by line.
///
/// A line is returned once its newline is there; never a part of one. An unfinished line stays in the file: memory
/// holds one piece of the file and the returned line, however long a line grows.
///
/// The opened file is followed to its end, even if it is renamed, deleted or replaced meanwhile. Truncating it is an
/// error. If it is truncated and grows beyond the position between two polls, that is not detected.
///
/// Polling a file that does not grow costs two system calls, at most 15 ms apart while [`next_line`](Self::next_line)
/// waits. Inotify would save those, but not every system has it.
#[derive(Debug)]
pub struct Follow {
    path: PathBuf,
    file: File,
    limit: u64,
    /// The start of the next line.
    line_start: u64,
    /// The position up to which there is no newline after `line_start`.
    scanned: u64,
    /// The end of the line at `line_start`, once it is known.
    line_end: Option<u64>,
    /// No line that begins here or later is read.
    end: Option<u64>,
    /// Whether `line_start` is in the middle of a line, which is then skipped.
    in_mid_line: bool,
    /// A piece of the file, and where it begins.
    piece: Box<[u8]>,
    piece_start: u64,
    piece_length: usize,
    grew_at: Instant,
}

impl Follow {
    /// Opens a file to be read from `offset`, which is where a line begins.
    ///
    /// # Errors
    ///
    /// The file is not there or cannot be read, or is shorter than `offset`.
    pub fn open(path: impl AsRef<Path>, offset: u64) -> Result<Self, FollowError> {
        let path = path.as_ref().to_owned();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(source) => return Err(FollowError::Unreadable { path, source }),
        };
        let follow = Self {
            path,
            file,
            limit: LINE_LIMIT,
            line_start: offset,
            scanned: offset,
            line_end: None,
            end: None,
            in_mid_line: false,
            piece: vec![0; PIECE].into(),
            piece_start: offset,
            piece_length: 0,
            grew_at: Instant::now(),
        };
        follow.check_length()?;
        Ok(follow)
    }

    /// Gives lines of up to `bytes` bytes, instead of [`LINE_LIMIT`].
    #[must_use]
    pub fn with_limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// Returns where the next line begins: after all lines that were given. Another one can be opened there.
    pub fn offset(&self) -> u64 {
        self.line_start
    }

    /// Returns the current length of the file.
    ///
    /// # Errors
    ///
    /// The file was cut, or cannot be read.
    pub fn length(&self) -> Result<u64, FollowError> {
        self.check_length()
    }

    /// Reads no line that begins at `end` or after it: a file that others still write has no other end.
    pub fn end_at(&mut self, end: u64) {
        self.end = Some(end);
    }

    /// Continues at `offset`, with the next line that begins after it.
    pub fn skip_to(&mut self, offset: u64) {
        self.line_start = offset;
        self.scanned = offset;
        self.line_end = None;
        self.in_mid_line = true;
        self.piece_start = offset;
        self.piece_length = 0;
    }

    /// Searches for the next line, in a bounded time: the caller gets to its own checks even if the writer is fast
    /// and writes no newline.
    ///
    /// # Errors
    ///
    /// The file was cut, or cannot be read.
    pub fn poll(&mut self) -> Result<Progress, FollowError> {
        let began = self.scanned;
        loop {
            if let Some(end) = self.line_end {
                return Ok(Progress::Line { bytes: end - self.line_start });
            }
            if self.end.is_some_and(|end| self.line_start >= end) {
                return Ok(Progress::Waiting);
            }
            if let Some(end) = self.scan() {
                if std::mem::take(&mut self.in_mid_line) {
                    self.line_start = end + 1;
                } else {
                    self.line_end = Some(end);
                }
                continue;
            }
            if self.end.is_some_and(|end| self.scanned >= end) {
                return Ok(Progress::Waiting);
            }
            if self.scanned - began >= STRETCH {
                return Ok(Progress::Reading);
            }
            if !self.read_piece()? {
                return Ok(Progress::Waiting);
            }
        }
    }

    /// Returns the line that [`poll`](Self::poll) found; `None` if it found none.
    ///
    /// # Errors
    ///
    /// The file was cut, or cannot be read.
    pub fn take_line(&mut self) -> Result<Option<Line>, FollowError> {
        let Some(end) = self.line_end else { return Ok(None) };
        let line = self.take(self.line_start, end)?;
        self.line_start = end + 1;
        self.line_end = None;
        Ok(Some(line))
    }

    /// Returns the next line if it is whole, without waiting for it.
    ///
    /// # Errors
    ///
    /// The file was cut, or cannot be read.
    pub fn try_line(&mut self) -> Result<Option<Line>, FollowError> {
        let mut there = None;
        loop {
            match self.poll()? {
                Progress::Line { .. } => return self.take_line(),
                Progress::Waiting => return Ok(None),
                // As much as there was at the call: the writer may be faster than this reader.
                Progress::Reading => {
                    let length = self.length()?;
                    if self.scanned >= *there.get_or_insert(length) {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Returns the pause before the next poll of a file that does not grow.
    pub fn pause(&self) -> Duration {
        // An eighth of the silence so far: not noticeable, and hardly a look when it is long.
        (self.grew_at.elapsed() / 8).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }

    /// Returns the next line, and waits until it is complete. `None` if the writer has ended and there are no more
    /// lines.
    ///
    /// `writer_ended` waits for the given time or until the writer has ended, and returns whether it has. Lines that
    /// were written before the end are still returned. So the end is noticed at once:
    ///
    /// ```
    /// # use azureal_process::{Child, Follow, FollowError, Line, ProcessIdentity};
    /// # fn child(mut follow: Follow, child: Child) -> Result<Option<Line>, FollowError> {
    /// follow.next_line(|pause| child.wait_timeout(pause).is_some())
    /// # }
    /// # fn found(mut follow: Follow, identity: ProcessIdentity) -> Result<Option<Line>, FollowError> {
    /// # let _ =
    /// follow.next_line(|pause| identity.wait_timeout(pause)) // the child of another process
    /// # ;
    /// # let _ =
    /// follow.next_line(|_| true) // a file that is finished
    /// # ;
    /// # Ok(None) }
    /// ```
    ///
    /// # Errors
    ///
    /// The file was cut, or cannot be read.
    pub fn next_line(
        &mut self,
        mut writer_ended: impl FnMut(Duration) -> bool,
    ) -> Result<Option<Line>, FollowError> {
        let mut ended = false;
        loop {
            if let Some(line) = self.try_line()? {
                return Ok(Some(line));
            }
            if ended {
                return Ok(None);
            }
            ended = writer_ended(self.pause());
        }
    }

    /// Returns what was read after the last newline, if anything.
    ///
    /// To be asked for when the writer has ended and there are no more lines: it is what was cut off, and evidence
    /// rather than a line.
    ///
    /// # Errors
    ///
    /// The file was cut, or cannot be read.
    pub fn remaining_fragment(&mut self) -> Result<Option<Line>, FollowError> {
        if self.scanned <= self.line_start || self.in_mid_line {
            return Ok(None);
        }
        self.take(self.line_start, self.scanned).map(Some)
    }

    /// Looks for the next newline in the piece at hand; returns where it is.
    fn scan(&mut self) -> Option<u64> {
        let skip = usize::try_from(self.scanned - self.piece_start).ok()?;
        let unscanned = self.piece.get(skip..self.piece_length)?;
        match memchr(b'\n', unscanned) {
            Some(at) => {
                let end = self.scanned + at as u64;
                self.scanned = end + 1;
                Some(end)
            }
            None => {
                self.scanned += unscanned.len() as u64;
                None
            }
        }
    }

    /// Reads the piece after what was scanned; returns whether there is one.
    fn read_piece(&mut self) -> Result<bool, FollowError> {
        self.piece_start = self.scanned;
        self.piece_length = 0;
        self.piece_length = loop {
            match self.file.read_at(&mut self.piece, self.scanned) {
                Ok(length) => break length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.unreadable(source)),
            }
        };
        if self.piece_length == 0 {
            self.check_length()?;
            return Ok(false);
        }
        self.grew_at = Instant::now();
        Ok(true)
    }

    /// Returns what stands between two places, unless it is too long to be held.
    fn take(&self, start: u64, end: u64) -> Result<Line, FollowError> {
        let bytes = end - start;
        if bytes > self.limit {
            return Ok(Line::Oversized { bytes });
        }
        let in_piece = start.checked_sub(self.piece_start).and_then(|skip| {
            let skip = usize::try_from(skip).ok()?;
            self.piece.get(..self.piece_length)?.get(skip..skip + usize::try_from(bytes).ok()?)
        });
        if let Some(line) = in_piece {
            return Ok(Line::Bytes(line.to_vec()));
        }
        let length = usize::try_from(bytes).map_err(|error| self.unreadable(io::Error::other(error)))?;
        let mut line = vec![0; length];
        match self.file.read_exact_at(&mut line, start) {
            Ok(()) => Ok(Line::Bytes(line)),
            Err(source) => {
                // It was truncated after the length was checked.
                self.check_length()?;
                Err(self.unreadable(source))
            }
        }
    }

    /// Returns the length of the file; an error if that is less than was read.
    fn check_length(&self) -> Result<u64, FollowError> {
        let found = self.file.metadata().map_err(|source| self.unreadable(source))?.len();
        if found < self.scanned {
            return Err(FollowError::Shrunk { path: self.path.clone(), read: self.scanned, found });
        }
        Ok(found)
    }

    fn unreadable(&self, source: io::Error) -> FollowError {
        FollowError::Unreadable { path: self.path.clone(), source }
    }
}
