//! The thread that reads the output of a child which is kept in memory.
//!
//! It ends with the child: processes that the child left behind may hold the other ends open, and must not hold a thread.

use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};

use crate::excerpt::Gathering;

/// As much as a pipe holds on Linux by default.
const PIECE: usize = 64 * 1024;
/// The bytes that are read after the child's end: all that a pipe can hold, but not the output of processes that
/// continue.
const LAST: usize = 1024 * 1024;

/// The state of the thread.
pub(crate) struct Reading<'a> {
    /// Standard output and standard error.
    pub(crate) sources: [Source<'a>; 2],
    /// Closed on its other side when the child has ended.
    pub(crate) ended: &'a PipeReader,
}

/// An output of the child, and what is kept of it.
pub(crate) struct Source<'a> {
    /// `None` once it has ended, or if it goes to a file.
    pipe: Option<File>,
    gathering: &'a Mutex<Gathering>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(pipe: Option<OwnedFd>, gathering: &'a Mutex<Gathering>) -> Self {
        Self { pipe: pipe.map(File::from), gathering }
    }

    /// Reads what there is now, and returns how much that was.
    fn read(&mut self, piece: &mut [u8]) -> usize {
        let Some(pipe) = &mut self.pipe else {
            return 0;
        };
        match pipe.read(piece) {
            Ok(bytes @ 1..) => {
                let read = piece.get(..bytes).unwrap_or_default();
                self.gathering.lock().unwrap_or_else(PoisonError::into_inner).push(read);
                bytes
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Ok(_) | Err(_) => {
                self.pipe = None;
                0
            }
        }
    }
}

impl Reading<'_> {
    /// Continues until the child has closed both outputs, or has ended.
    pub(crate) fn run(mut self) {
        let mut pipes = self.sources.iter().filter_map(|source| source.pipe.as_ref());
        if pipes.any(|pipe| rustix::io::ioctl_fionbio(pipe, true).is_err()) {
            // Cannot happen to a pipe. The child then sees them closed.
            return;
        }
        let mut piece = vec![0; PIECE];
        while self.sources.iter().any(|source| source.pipe.is_some()) {
            let Ok(ready) = self.wait() else {
                return;
            };
            for (source, ready) in self.sources.iter_mut().zip(ready.sources) {
                if ready {
                    source.read(&mut piece);
                }
            }
            if ready.ended {
                break;
            }
        }
        for source in &mut self.sources {
            let mut last = 0;
            while last < LAST {
                match source.read(&mut piece) {
                    0 => break,
                    bytes => last += bytes,
                }
            }
        }
    }

    fn wait(&self) -> io::Result<Ready> {
        let pipes = self.sources.each_ref().map(|source| source.pipe.as_ref());
        let mut polled = vec![PollFd::new(self.ended, PollFlags::IN)];
        polled.extend(pipes.iter().flatten().map(|pipe| PollFd::new(*pipe, PollFlags::IN)));
        while let Err(error) = poll(&mut polled, None) {
            if error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
        }
        let mut ready = polled.iter().map(|polled| !polled.revents().is_empty());
        // In the order in which they were added; a missing one is not ready.
        let mut next = |is_there: bool| is_there && ready.next().unwrap_or(false);
        Ok(Ready { ended: next(true), sources: pipes.map(|pipe| next(pipe.is_some())) })
    }
}

struct Ready {
    ended: bool,
    sources: [bool; 2],
}
