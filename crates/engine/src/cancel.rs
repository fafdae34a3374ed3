//! The one answer to whether a run is cancelled.
//!
//! Every process of this machine can cancel a turn: it appends a line to the header of the spool ([`Spools::cancel`]). The
//! process that stores the turn appends a line with its end ([`Spool::close`]). A header only grows, and both read it after
//! their own line. So the order of the lines decides: a cancel before the end is heeded, and confirmed; one after it is too late,
//! and the process that wanted it is told so.
//!
//! The owner of a run reads it before each effect that starts or stores something, and after each start: a process that cancels
//! finds the agent in the header, or the owner finds the cancel there.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use azureal_core::SessionId;
use azureal_core::agent::Ending;
use azureal_core::event::Outcome;
use azureal_files::Folder;
use rustix::fs::OFlags;

use crate::find_spools::SpooledRun;
use crate::header::{Header, HeaderLine, SpooledProcess, SpooledTurn};
use crate::launch::{StopError, stop_turn};
use crate::spool::{HEADER, READ_AND_APPEND, Spool, SpoolError, Spools, add_line, at};

/// What became of a cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelNoted {
    /// It is noted before the end of the turn. If there is a process, it is still to be stopped.
    InTime(Option<SpooledProcess>),
    /// The turn has ended: it is being stored.
    TooLate,
    /// There is no such spool any more.
    Gone,
}

/// Whether a run is cancelled, by its own process or by another one. Clones are the same sign.
#[derive(Debug, Clone)]
pub(crate) struct CancelSign(Arc<Sign>);

#[derive(Debug)]
struct Sign {
    header: File,
    /// Where the lines after the first one begin, which may have a prompt of megabytes.
    from: u64,
    is_ours: AtomicBool,
    /// How many lines of the header are ours.
    our_lines: AtomicU32,
}

impl CancelSign {
    /// Opens the header again, to read the lines from this place on: a copy of the owner's handle would hold its lock.
    pub(crate) fn of(folder: &Folder, header: &OsStr, from: u64) -> io::Result<Self> {
        let header = folder.open_file(header, OFlags::RDONLY)?;
        Ok(Self(Arc::new(Sign {
            header,
            from,
            is_ours: AtomicBool::default(),
            our_lines: AtomicU32::default(),
        })))
    }

    /// Returns the sign of a header that was written again.
    pub(crate) fn written_again(&self, folder: &Folder, header: &OsStr) -> io::Result<Self> {
        let header = folder.open_file(header, OFlags::RDONLY)?;
        let Sign { from, is_ours, our_lines, .. } = &*self.0;
        let (is_ours, our_lines) = (is_ours.load(Ordering::SeqCst), our_lines.load(Ordering::SeqCst));
        Ok(Self(Arc::new(Sign { header, from: *from, is_ours: is_ours.into(), our_lines: our_lines.into() })))
    }

    /// Returns whether the run is cancelled.
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_ours.load(Ordering::SeqCst) || self.lines() > 0
    }

    /// Returns whether another process has cancelled it.
    pub(crate) fn is_set_by_another(&self) -> bool {
        self.lines() > self.0.our_lines.load(Ordering::SeqCst)
    }

    fn lines(&self) -> u32 {
        let Sign { header, from, .. } = &*self.0;
        Header::read(ReadAt { file: header, at: *from }).map_or(0, |header| header.cancels)
    }
}

/// Reads a file from a place, without moving the position that its writer has.
struct ReadAt<'a> {
    file: &'a File,
    at: u64,
}

impl Read for ReadAt<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The result of [`cancel_running`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelResult {
    /// This run is cancelled, and all its processes have ended. The process that owns it stores it as cancelled, or the next
    /// recovery does.
    Cancelled(Box<SpooledRun>),
    /// No turn of the session runs on this machine.
    NotRunning,
    /// The turn has ended and is being stored, for longer than this waits.
    Storing,
}

/// How long a cancel waits while a turn can be neither cancelled nor said to be over.
const STORED_WITHIN: Duration = Duration::from_secs(15);
/// The time between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Cancels the turn of a session that runs on this machine, in whichever process, and stops its agent. Blocks until that has ended.
/// `known` is the turn as it was found a moment ago.
///
/// A turn that is compacted in mid-turn has two runs. While the first one is stored, this waits for the second.
pub fn cancel_running(
    spools: &Spools,
    session: SessionId,
    known: Option<SpooledRun>,
) -> Result<CancelResult, StopError> {
    let deadline = Instant::now() + STORED_WITHIN;
    let mut running = match known {
        Some(run) => Some(run),
        None => spools.running_turn(session)?,
    };
    loop {
        if let Some(run) = running.take() {
            if stop_turn(spools, &run.turn, run.process.as_ref())? {
                return Ok(CancelResult::Cancelled(Box::new(run)));
            }
        } else if !spools.is_leased(session)? {
            return Ok(CancelResult::NotRunning);
        }
        // The holder of the lease stores the first part of a turn and may continue it, or is about to begin one.
        if Instant::now() >= deadline {
            return Ok(CancelResult::Storing);
        }
        thread::sleep(LOOK_PAUSE);
        running = spools.running_turn(session)?;
    }
}

impl Spools {
    /// Notes that a turn is to end, whichever process runs it, and returns whether that was in time. Its process is not
    /// stopped.
    pub fn cancel(&self, turn: &SpooledTurn) -> Result<CancelNoted, SpoolError> {
        let name = format!("{}.{HEADER}", turn.run);
        let folder = self.folder_of(turn);
        let path = folder.join(&name);
        let mut header =
            match Folder::open(folder).and_then(|folder| folder.open_file(name.as_ref(), READ_AND_APPEND)) {
                Ok(header) => header,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(CancelNoted::Gone),
                Err(error) => return Err(at(&path)(error)),
            };
        // One write, so that it does not fall into a line of the owner.
        add_line(&mut header, &HeaderLine::Cancel, &path)?;
        header.rewind().map_err(at(&path))?;
        let Header { cancels, process, .. } = Header::read(&header).map_err(at(&path))?;
        Ok(if cancels > 0 { CancelNoted::InTime(process) } else { CancelNoted::TooLate })
    }
}

impl Spool {
    /// Returns whether the turn is cancelled, for another thread to poll.
    pub(crate) fn cancel_sign(&self) -> &CancelSign {
        &self.cancel
    }

    /// Returns whether the turn is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_set()
    }

    /// Cancels the turn for its own process, and notes it for the next azureal, should this one end before the turn is stored.
    pub(crate) fn cancel(&mut self) -> Result<(), SpoolError> {
        let Sign { is_ours, our_lines, .. } = &*self.cancel.0;
        is_ours.store(true, Ordering::SeqCst);
        our_lines.fetch_add(1, Ordering::SeqCst);
        let noted = self.write(&HeaderLine::Cancel);
        if noted.is_err() {
            self.cancel.0.our_lines.fetch_sub(1, Ordering::SeqCst);
        }
        noted
    }

    /// Notes how the turn ended, unless that is noted already, and returns it: as cancelled, if it was cancelled before. From then
    /// on a cancel is too late. An ending that cannot be noted is the one that is returned, all the same.
    pub(crate) fn close(&mut self, ending: Ending) -> (Ending, Result<(), SpoolError>) {
        let (ending, noted) = match self.ended() {
            Some(ended) => (ended, Ok(())),
            None => {
                let noted = self.note_ended(&ending);
                (ending, noted)
            }
        };
        let stopped = if self.is_cancelled() { Some(Outcome::Cancelled) } else { ending.stopped };
        (Ending { stopped, ..ending }, noted)
    }
}
