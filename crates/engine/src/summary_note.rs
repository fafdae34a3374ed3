//! The note of an agent that writes a summary, as long as it runs.
//!
//! A summary is no turn: it has no spool, and its output has no name. If the azureal that asked for it is killed, nothing would
//! lead to the agent, which would work on, and cost. So its run is noted as the run of a turn is: in a file of the spool folder
//! that azureal keeps locked. A note without a lock belongs to an agent that works for nobody: the next command stops it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use azureal_files::Folder;
use azureal_process::{Marker, StopTimeouts, end_marked, stop};
use tracing::warn;

use crate::header::{Header, HeaderLine, SpooledProcess, SpooledTurn};
use crate::launch::RUN_MARKER;
use crate::spool::{READ_AND_APPEND, SpoolError, Spools, add_line, at, create_locked};

/// The ending of a note.
pub(crate) const SUMMARY: &str = "summary";
/// The ending of the output, until it loses its name.
pub(crate) const ANSWER: &str = "answer";

/// For an agent whose work is of no use to anybody: it has nothing to clean up, and would go on asking its model while it is given
/// time to.
pub(crate) const AT_ONCE: StopTimeouts = StopTimeouts {
    interrupt: Duration::ZERO,
    terminate: Duration::ZERO,
    strays: Duration::from_millis(250),
    kill: Duration::from_secs(2),
};

/// The note of a summary that this process asks for. Dropped, it is removed.
pub(crate) struct SummaryNote {
    /// Locked as long as it is open.
    file: File,
    folder: Folder,
    name: OsString,
}

impl SummaryNote {
    /// Notes the agent, once it is started.
    pub(crate) fn note_process(&mut self, process: SpooledProcess) -> Result<(), SpoolError> {
        add_line(&mut self.file, &HeaderLine::Process(process), &self.folder.join(&self.name))
    }
}

impl Drop for SummaryNote {
    fn drop(&mut self) {
        // One that stays is removed by the next command.
        drop(self.folder.remove(&self.name));
    }
}

impl Spools {
    /// Notes that an agent is about to write a summary.
    pub(crate) fn note_summary(&self, turn: SpooledTurn) -> Result<SummaryNote, SpoolError> {
        let folder = self.open_folder()?;
        let name = OsString::from(format!("{}.{SUMMARY}", turn.run));
        let path = folder.join(&name);
        let file = create_locked(&folder, &path)?;
        let mut note = SummaryNote { file, folder, name };
        add_line(&mut note.file, &HeaderLine::Turn(turn), &path)?;
        Ok(note)
    }

    /// Stops the agents that write summaries for an azureal that has ended, and returns them.
    pub(crate) fn stop_lost_summaries(&self) -> Result<Vec<SpooledTurn>, SpoolError> {
        let folder = match Folder::open(self.folder()) {
            Ok(folder) => folder,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(at(self.folder())(error)),
        };
        let names = folder.names().map_err(at(self.folder()))?;
        let is_note = |name: &&OsString| Path::new(name).extension().is_some_and(|found| found == SUMMARY);
        Ok(names.iter().filter(is_note).filter_map(|name| stop_lost(&folder, name)).collect())
    }
}

/// Stops the agent of a note whose azureal has ended, and removes the note.
fn stop_lost(folder: &Folder, name: &OsStr) -> Option<SpooledTurn> {
    let note = folder.open_file(name, READ_AND_APPEND).ok()?;
    if note.try_lock().is_err() || !folder.has(name, &note) {
        return None;
    }
    let Header { turn, process, .. } = Header::read(&note).ok()?;
    let stem = Path::new(name).file_stem()?;
    // The note of another run is not believed; a note that was cut has its run in its name.
    let turn = turn.filter(|turn| stem == OsStr::new(&turn.run));
    let marker = Marker::new(RUN_MARKER, stem.to_str()?).ok()?;
    let stopped = match process.filter(|_| turn.is_some()) {
        Some(process) => stop(&process.identity(), &marker, &AT_ONCE),
        None => end_marked(&marker, &AT_ONCE),
    };
    if let Some(survivor) = stopped.survivors.first() {
        warn!(pid = survivor.pid, "a summariser cannot be stopped");
        return None;
    }
    for name in [Path::new(name).with_extension(ANSWER).as_os_str(), name] {
        drop(folder.remove(name));
    }
    // A process that had ended by itself is no news.
    let is_news = stopped.strays > 0 || stopped.stopped != azureal_process::Stopped::Already;
    turn.filter(|_| is_news)
}
