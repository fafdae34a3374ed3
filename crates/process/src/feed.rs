//! The thread that talks to a child: its input out, its errors in.
//!
//! Both at once, or a child that writes before it reads would wait for us for ever. Neither end outlasts the
//! child: what it left behind may hold the other ends open for as long as it likes, and must not hold a
//! thread and a prompt with them.

use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::process::{ChildStderr, ChildStdin};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};

use crate::excerpt::Gathering;

/// As much as a pipe holds on Linux unless told otherwise.
const PIECE: usize = 64 * 1024;
/// How much is read after the child's end: all that a pipe can hold, but not what others go on writing.
const LAST: usize = 1024 * 1024;

/// What the thread has in hand.
pub(crate) struct Feed<'a> {
    pub(crate) input: Vec<u8>,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stderr: Option<ChildStderr>,
    pub(crate) gathering: &'a Mutex<Gathering>,
    /// Closed on its other side when the child has ended.
    pub(crate) ended: &'a PipeReader,
}

impl Feed<'_> {
    /// Goes on until the child has read and said everything, or has ended.
    pub(crate) fn run(mut self) {
        if self.input.is_empty() {
            self.stdin = None;
        }
        let stdin = self.stdin.as_ref().map(|stdin| rustix::io::ioctl_fionbio(stdin, true));
        let stderr = self.stderr.as_ref().map(|stderr| rustix::io::ioctl_fionbio(stderr, true));
        if [stdin, stderr].into_iter().flatten().any(|set| set.is_err()) {
            // Cannot happen to a pipe. The child then sees them closed.
            return;
        }
        let mut written = 0;
        let mut piece = vec![0; PIECE];
        while self.stdin.is_some() || self.stderr.is_some() {
            let Ok(ready) = self.wait() else {
                return;
            };
            if ready.stdin && !self.write(&mut written) {
                self.stdin = None;
                self.input = Vec::new();
            }
            if ready.stderr && self.read(&mut piece) == Reading::Over {
                self.stderr = None;
            }
            if ready.ended {
                break;
            }
        }
        let mut last = 0;
        while last < LAST && self.stderr.is_some() {
            match self.read(&mut piece) {
                Reading::Got(bytes) => last += bytes,
                Reading::Nothing | Reading::Over => break,
            }
        }
    }

    fn wait(&self) -> io::Result<Ready> {
        let mut polled = vec![PollFd::new(self.ended, PollFlags::IN)];
        polled.extend(self.stdin.as_ref().map(|stdin| PollFd::new(stdin, PollFlags::OUT)));
        polled.extend(self.stderr.as_ref().map(|stderr| PollFd::new(stderr, PollFlags::IN)));
        while let Err(error) = poll(&mut polled, None) {
            if error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
        }
        let mut ready = polled.iter().map(|polled| !polled.revents().is_empty());
        Ok(Ready {
            ended: ready.next().unwrap_or(false),
            stdin: self.stdin.is_some() && ready.next().unwrap_or(false),
            stderr: self.stderr.is_some() && ready.next().unwrap_or(false),
        })
    }

    /// Writes what the child takes now; says whether there is more to write.
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

    fn read(&mut self, piece: &mut [u8]) -> Reading {
        let Some(stderr) = &mut self.stderr else {
            return Reading::Over;
        };
        match stderr.read(piece) {
            Ok(0) => Reading::Over,
            Ok(bytes) => {
                let read = piece.get(..bytes).unwrap_or_default();
                self.gathering.lock().unwrap_or_else(PoisonError::into_inner).push(read);
                Reading::Got(bytes)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Reading::Nothing
            }
            Err(_) => Reading::Over,
        }
    }
}

struct Ready {
    ended: bool,
    stdin: bool,
    stderr: bool,
}

#[derive(PartialEq, Eq)]
enum Reading {
    Got(usize),
    Nothing,
    Over,
}
