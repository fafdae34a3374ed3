//! The thread that talks to a child: it writes the input and reads the output.
//!
//! It does both at once, or a child that writes before it reads would block for ever. It ends with the child:
//! processes that the child left behind may hold the other ends open, and must not hold a thread and a prompt with
//! them.

use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::process::ChildStdin;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};

use crate::excerpt::Gathering;

/// As much as a pipe holds on Linux by default.
const PIECE: usize = 64 * 1024;
/// The bytes that are read after the child's end: all that a pipe can hold, but not the output of processes that
/// continue.
const LAST: usize = 1024 * 1024;

/// What the thread has in hand.
pub(crate) struct Feed<'a> {
    pub(crate) input: Vec<u8>,
    pub(crate) stdin: Option<ChildStdin>,
    /// Standard output and standard error.
    pub(crate) sources: [Source<'a>; 2],
    /// Closed on its other side when the child has ended.
    pub(crate) ended: &'a PipeReader,
}

/// Something that the child writes, and what is kept of it.
pub(crate) struct Source<'a> {
    /// Nothing once it is over, or where it goes to a file.
    pipe: Option<File>,
    gathering: &'a Mutex<Gathering>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(pipe: Option<OwnedFd>, gathering: &'a Mutex<Gathering>) -> Self {
        Self { pipe: pipe.map(File::from), gathering }
    }

    /// Reads what there is now, and says how much that was.
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

impl Feed<'_> {
    /// Continues until the child has read its input and written all output, or has ended.
    pub(crate) fn run(mut self) {
        if self.input.is_empty() {
            self.stdin = None;
        }
        let stdin = self.stdin.as_ref().map(|stdin| rustix::io::ioctl_fionbio(stdin, true));
        let pipes = self.sources.iter().filter_map(|source| source.pipe.as_ref());
        let sources = pipes.map(|pipe| rustix::io::ioctl_fionbio(pipe, true));
        if stdin.into_iter().chain(sources).any(|set| set.is_err()) {
            // Cannot happen to a pipe. The child then sees them closed.
            return;
        }
        let mut written = 0;
        let mut piece = vec![0; PIECE];
        while self.stdin.is_some() || self.sources.iter().any(|source| source.pipe.is_some()) {
            let Ok(ready) = self.wait() else {
                return;
            };
            if ready.stdin && !self.write(&mut written) {
                self.stdin = None;
                self.input = Vec::new();
            }
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
        polled.extend(self.stdin.as_ref().map(|stdin| PollFd::new(stdin, PollFlags::OUT)));
        polled.extend(pipes.iter().flatten().map(|pipe| PollFd::new(*pipe, PollFlags::IN)));
        while let Err(error) = poll(&mut polled, None) {
            if error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
        }
        let mut ready = polled.iter().map(|polled| !polled.revents().is_empty());
        // In the order in which they were put there; who was not there is not ready.
        let mut next = |is_there: bool| is_there && ready.next().unwrap_or(false);
        Ok(Ready {
            ended: next(true),
            stdin: next(self.stdin.is_some()),
            sources: pipes.map(|pipe| next(pipe.is_some())),
        })
    }

    /// Writes what the child takes now; returns whether there is more to write.
    fn write(&mut self, written: &mut usize) -> bool {
        let Some(stdin) = &mut self.stdin else {
            return false;
        };
        let rest = self.input.get(*written..).unwrap_or_default();
        match stdin.write(rest.get(..PIECE).unwrap_or(rest)) {
            Ok(bytes) => {
                *written += bytes;
                *written < self.input.len()
            }
            // That the child closed its input is its own affair: not every prompt is read to its end.
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }
}

struct Ready {
    ended: bool,
    stdin: bool,
    sources: [bool; 2],
}
