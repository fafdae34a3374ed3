//! Finding spools: those that run, those whose azureal died, and what killed processes have left.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::fs::TryLockError;
use std::io::{self, ErrorKind, Seek};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use azureal_core::SessionId;
use azureal_files::Folder;
use azureal_process::{Marker, MarkersInUse, ProcessIdentity};
use rustix::fs::OFlags;

use crate::cancel::CancelSign;
use crate::context_commands::CONTEXT_MARKER;
use crate::header::{Header, SpooledProcess, SpooledTurn};
use crate::launch::RUN_MARKER;
use crate::lease::remove_leftovers;
use crate::ledger_cache::remove_old;
use crate::recover::living_process;
use crate::spool::{
    COPY, ERRORS, HEADER, OUTPUT, READ_AND_APPEND, Spool, SpoolError, Spools, UNFINISHED, at, is_there,
    name_of,
};

/// The time for which processes that only look may keep another one from taking a spool.
const A_MOMENT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A spool in the folder.
#[derive(Debug)]
pub enum FoundSpool {
    /// It has no owner: its azureal has ended. It is not taken by being found.
    Orphan(Box<OrphanSpool>),
    /// Another process owns it.
    Owned(Box<SpooledTurn>, Option<SpooledProcess>, SpoolOwner),
    /// Its header cannot be read. It is left where it is.
    Unreadable(PathBuf),
}

/// What the owner of a spool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpoolOwner {
    /// It runs the turn.
    Runs,
    /// It stores the turn: the end is noted in the header.
    Stores,
}

/// A spool without an owner. To look at it takes no lock that lasts: any number of processes look at once.
#[derive(Debug)]
pub struct OrphanSpool(Spool);

impl OrphanSpool {
    /// Returns the turn.
    pub fn turn(&self) -> &SpooledTurn {
        self.0.turn()
    }

    /// Returns the process that still works on the turn.
    pub(crate) fn living_process(&self) -> Option<ProcessIdentity> {
        living_process(&self.0)
    }

    /// Returns whether a process may be left that gathered the context of the turn.
    pub(crate) fn may_be_gathering(&self) -> bool {
        self.0.process().is_none() && !self.0.is_idle()
    }

    /// Returns whether the spool is still there.
    pub(crate) fn is_there(&self) -> bool {
        self.0.folder.has(name_of(&self.0.header_path), &self.0.header)
    }

    /// Becomes the owner; `None` if another process is, or if the spool is gone.
    pub fn take(self) -> Result<Option<Spool>, SpoolError> {
        let path = self.0.header_path.clone();
        self.take_it().map_err(at(&path))
    }

    fn take_it(self) -> io::Result<Option<Spool>> {
        let Self(mut spool) = self;
        let deadline = Instant::now() + A_MOMENT;
        while let Err(error) = spool.header.try_lock() {
            if let TryLockError::Error(error) = error {
                return Err(error);
            }
            match spool.header.try_lock_shared() {
                // There is no owner, but processes that look, or another one that tries the same.
                Ok(()) => spool.header.unlock()?,
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(POLL_INTERVAL);
        }
        if !spool.folder.has(name_of(&spool.header_path), &spool.header) {
            return Ok(None);
        }
        // An owner since the look may have come further.
        spool.header.rewind()?;
        let Header { process, ended, stored, .. } = Header::read(&spool.header)?;
        (spool.process, spool.ended, spool.stored) = (process, ended, stored);
        Ok(Some(spool))
    }
}

/// A turn that is running, as its spool shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpooledRun {
    /// The turn.
    pub turn: SpooledTurn,
    /// The process of its agent; `None` if none was started yet.
    pub process: Option<ProcessIdentity>,
    /// Whether the agent continues in the background, without an azureal.
    pub is_orphan: bool,
}

/// A turn whose spool is there.
#[derive(Debug)]
pub struct FoundTurn {
    /// Its session.
    pub session: SessionId,
    /// Whether another process runs or stores it, or its agent continues in the background.
    pub is_running: bool,
    /// Its spool, unless it is another process's.
    spool: Option<Box<OrphanSpool>>,
}

impl FoundTurn {
    /// Returns whether its agent continues in the background, without an azureal.
    pub fn is_orphan(&self) -> bool {
        self.is_running && self.spool.is_some()
    }

    /// Removes the spool of a turn that does not run: its session is deleted. Returns whether it is gone; not so if another
    /// process stores it now.
    pub fn discard(self) -> Result<bool, SpoolError> {
        let Some(orphan) = self.spool.filter(|_| !self.is_running) else { return Ok(false) };
        let path = orphan.0.header_path.clone();
        match orphan.take()? {
            Some(spool) => spool.remove().map(|_| true),
            None => Ok(!is_there(&path)),
        }
    }
}

impl Spools {
    /// Returns the spools of sessions, with whether their turns run. The others could not be stored or settled.
    pub fn found_turns(&self) -> Result<Vec<FoundTurn>, SpoolError> {
        let turn = |found: FoundSpool| match found {
            FoundSpool::Orphan(spool) => {
                let is_running = spool.living_process().is_some();
                Some(FoundTurn { session: spool.turn().session_id()?, is_running, spool: Some(spool) })
            }
            FoundSpool::Owned(turn, ..) => {
                Some(FoundTurn { session: turn.session_id()?, is_running: true, spool: None })
            }
            FoundSpool::Unreadable(_) => None,
        };
        Ok(self.find()?.into_iter().filter_map(turn).collect())
    }

    /// Returns the turn of a session that a process runs or stores, or whose agent continues without one. `None` if there is none.
    pub fn running_turn(&self, session: SessionId) -> Result<Option<SpooledRun>, SpoolError> {
        let of_session = |turn: &SpooledTurn| turn.session_id() == Some(session);
        Ok(self.find()?.into_iter().find_map(|found| match found {
            FoundSpool::Owned(turn, process, _) if of_session(&turn) => {
                let process = process.map(|process| process.identity());
                Some(SpooledRun { turn: *turn, process, is_orphan: false })
            }
            FoundSpool::Orphan(orphan) if of_session(orphan.turn()) => {
                let process = Some(orphan.living_process()?);
                Some(SpooledRun { turn: orphan.turn().clone(), process, is_orphan: true })
            }
            _ => None,
        }))
    }

    /// Returns the names of the runs that have a spool, without taking one.
    pub fn runs(&self) -> Result<Vec<String>, SpoolError> {
        let mut runs = Vec::new();
        for path in self.folders() {
            let folder = match Folder::open(path) {
                Ok(folder) => folder,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(at(path)(error)),
            };
            let names = folder.names().map_err(at(path))?;
            let run =
                |name: &OsString| Some(name.to_str()?.strip_suffix(HEADER)?.strip_suffix('.')?.to_owned());
            runs.extend(names.iter().filter_map(run));
        }
        Ok(runs)
    }

    /// Returns the turn of a run, and its process if one was started. `None` if there is no such spool any more, or if its
    /// header cannot be read.
    pub fn turn_of(&self, run: &str) -> Option<(SpooledTurn, Option<SpooledProcess>)> {
        let name = format!("{run}.{HEADER}");
        let open = |path: &Path| Folder::open(path).ok()?.open_file(name.as_ref(), OFlags::RDONLY).ok();
        let header = self.folders().find_map(open)?;
        let Header { turn, process, .. } = Header::read(&header).ok()?;
        Some((turn.filter(|turn| turn.run == run)?, process))
    }

    /// Finds every spool, the oldest first, and takes none. Removes leftover lease files, and the folder of earlier versions
    /// once it is empty.
    pub fn find(&self) -> Result<Vec<FoundSpool>, SpoolError> {
        let mut headers = headers_in(&self.folder)?;
        if let Some(former) = &self.former
            && is_there(former)
        {
            headers.append(&mut headers_in(former)?);
            // Not if there is a file in it.
            drop(fs::remove_dir(former));
        }
        headers.sort_by(|one, other| (one.modified, &one.path).cmp(&(other.modified, &other.path)));
        // One that cannot be looked at does not hide the others.
        let look = |FoundHeader { folder, path, .. }: FoundHeader| {
            self.look_at(&folder, &path).unwrap_or(Some(FoundSpool::Unreadable(path)))
        };
        let mut found: Vec<FoundSpool> = headers.into_iter().filter_map(look).collect();
        note_idle(&mut found);
        Ok(found)
    }

    fn look_at(&self, folder: &Folder, header_path: &Path) -> io::Result<Option<FoundSpool>> {
        let name = name_of(header_path);
        let header = match folder.open_file(name, READ_AND_APPEND) {
            Ok(header) => header,
            // Its owner was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // Shared, and not longer than this look: an owner has it alone.
        let is_orphan = match header.try_lock_shared() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        if is_orphan && !folder.has(name, &header) {
            // The owner stored it and removed it between our two steps.
            return Ok(None);
        }
        let output_path = header_path.with_extension(OUTPUT);
        if is_orphan && header.metadata()?.len() == 0 && is_empty(folder, name_of(&output_path)) {
            // A loss of power left the names and none of the content: this turn has never begun. If another process looks too, one
            // of both removes it, or the next.
            if header.try_lock().is_ok() && folder.has(name, &header) {
                for path in [&output_path, &header_path.with_extension(ERRORS), &header_path.to_owned()] {
                    folder.remove(name_of(path))?;
                }
            }
            return Ok(None);
        }
        let Header { turn, process, ended, stored, .. } = Header::read(&header)?;
        if is_orphan {
            header.unlock()?;
        }
        // The names of its other files come from the run: a forged header could name another turn's.
        let is_its_own = |turn: &SpooledTurn| header_path.file_stem() == Some(OsStr::new(&turn.run));
        let Some(turn) = turn.filter(is_its_own) else {
            return Ok(Some(FoundSpool::Unreadable(header_path.to_owned())));
        };
        if !is_orphan {
            let owner = if ended.is_some() { SpoolOwner::Stores } else { SpoolOwner::Runs };
            return Ok(Some(FoundSpool::Owned(Box::new(turn), process, owner)));
        }
        let cancel = match CancelSign::of(folder, name, 0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            cancel => cancel?,
        };
        Ok(Some(FoundSpool::Orphan(Box::new(OrphanSpool(Spool {
            header,
            folder: folder.clone(),
            header_path: header_path.to_owned(),
            output_path,
            output_file: None,
            turn,
            cancel,
            process,
            ended,
            stored,
            is_idle: false,
            keeps_original: self.keeps_originals,
        })))))
    }
}

/// The header of a spool in a folder.
struct FoundHeader {
    folder: Folder,
    path: PathBuf,
    modified: i64,
}

/// Finds the headers in a folder, and removes leftover lease files.
fn headers_in(path: &Path) -> Result<Vec<FoundHeader>, SpoolError> {
    let folder = match Folder::open(path) {
        Ok(folder) => folder,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(at(path)(error)),
    };
    let mut names = folder.names().map_err(at(path))?;
    remove_leftovers(&folder, &names);
    if remove_unfinished(&folder, &names) {
        names = folder.names().map_err(at(path))?;
    }
    remove_old(&folder, &names);
    let is_header = |name: &OsStr| Path::new(name).extension().is_some_and(|found| found == HEADER);
    let headers = names.into_iter().filter(|name| is_header(name)).map(|name| FoundHeader {
        folder: folder.clone(),
        path: folder.join(&name),
        modified: folder.modified(&name),
    });
    Ok(headers.collect())
}

/// Removes what processes have left that died while they created a spool, so that no agent was started, or while they removed one. A
/// file that cannot be removed is left for the next time. Returns whether a header has got its name: its process died while it put
/// the spool back.
fn remove_unfinished(folder: &Folder, names: &[OsString]) -> bool {
    // Not while another process creates a header, and locks it next. If it does now, there is a next time.
    let Ok(_cleanup) = folder.try_lock() else { return false };
    let mut is_put_back = false;
    for name in
        names.iter().filter(|name| Path::new(name).extension().is_some_and(|found| found == UNFINISHED))
    {
        let Ok(header) = folder.open_file(name, READ_AND_APPEND) else { continue };
        if header.try_lock().is_err() || !folder.has(name, &header) {
            continue;
        }
        let other = |kind: &str| Path::new(name).with_extension(kind);
        if folder.size(other(OUTPUT).as_os_str()) > 0 {
            // Of a spool that was being put back: its agent has printed something, and the output is the only copy.
            let is_whole = || Header::read(&header).is_ok_and(|header| header.turn.is_some());
            if is_there(&folder.join(other(HEADER))) {
                drop(folder.remove(name));
            } else if is_whole() {
                is_put_back |= folder.rename(name, other(HEADER).as_os_str()).is_ok();
            }
            continue;
        }
        // The header last: it leads to the others.
        for kind in [OUTPUT, ERRORS, UNFINISHED] {
            drop(folder.remove(other(kind).as_os_str()));
        }
    }
    let is_copy = |name: &&OsString| Path::new(name).extension().is_some_and(|found| found == COPY);
    for name in names.iter().filter(is_copy) {
        let has = |kind: &str| is_there(&folder.join(Path::new(name).with_extension(kind)));
        // Its owner has one of both as long as it copies.
        if !has(UNFINISHED) && !has(HEADER) {
            drop(folder.remove(name));
        }
    }
    for name in names.iter().filter(|name| Path::new(name).extension().is_some_and(|found| found == ERRORS)) {
        let has = |kind: &str| is_there(&folder.join(Path::new(name).with_extension(kind)));
        // An unfinished header gets its name in between, not the other way round.
        if !has(UNFINISHED) && !has(HEADER) {
            drop(folder.remove(name));
        }
    }
    is_put_back
}

/// Marks the orphans whose run has no process. One search of the process table for any number of orphans.
fn note_idle(found: &mut [FoundSpool]) {
    let mut in_use = None;
    for found in found {
        if let FoundSpool::Orphan(orphan) = found {
            let OrphanSpool(spool) = &mut **orphan;
            let in_use = in_use.get_or_insert_with(|| MarkersInUse::of(&[RUN_MARKER, CONTEXT_MARKER]));
            let is_carried = |key: &str| match Marker::new(key, spool.turn.run.clone()) {
                Ok(marker) => in_use.contains(&marker),
                // No process was ever started with it.
                Err(_) => false,
            };
            spool.is_idle = !is_carried(RUN_MARKER) && !is_carried(CONTEXT_MARKER);
        }
    }
}

/// Returns whether a file is missing or empty.
fn is_empty(folder: &Folder, name: &OsStr) -> bool {
    match folder.open_file(name, OFlags::RDONLY).and_then(|file| file.metadata()) {
        Ok(found) => found.len() == 0,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}
