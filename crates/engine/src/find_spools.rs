//! Finding spools: those that run, those whose azureal died, and what killed processes have left.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::fs::TryLockError;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use azureal_core::SessionId;
use azureal_files::Folder;
use azureal_process::{Marker, MarkersInUse};
use rustix::fs::OFlags;

use crate::context_commands::CONTEXT_MARKER;
use crate::header::{Header, SpooledProcess, SpooledTurn};
use crate::launch::RUN_MARKER;
use crate::lease::remove_leftovers;
use crate::ledger_cache::remove_old;
use crate::recover::living_process;
use crate::spool::{
    ERRORS, HEADER, OUTPUT, READ_AND_APPEND, Spool, SpoolError, Spools, UNFINISHED, at, is_there, name_of,
};

/// A spool in the folder.
#[derive(Debug)]
pub enum FoundSpool {
    /// It had no owner; now this process owns it.
    Orphan(Box<Spool>),
    /// Another process runs or stores it.
    Owned(Box<SpooledTurn>, Option<SpooledProcess>),
    /// Its header cannot be read. It is left where it is.
    Unreadable(PathBuf),
}

/// A turn whose spool is there.
#[derive(Debug)]
pub struct FoundTurn {
    /// Its session.
    pub session: SessionId,
    /// Whether another process runs it, or its agent continues in the background.
    pub is_running: bool,
    /// Its spool, unless it is another process's.
    spool: Option<Box<Spool>>,
}

impl FoundTurn {
    /// Returns whether its agent continues in the background, without an azureal.
    pub fn is_orphan(&self) -> bool {
        self.is_running && self.spool.is_some()
    }

    /// Removes the spool of a turn that does not run: its session is deleted.
    pub fn discard(self) -> Result<(), SpoolError> {
        match self.spool.filter(|_| !self.is_running) {
            Some(spool) => spool.remove().map(drop),
            None => Ok(()),
        }
    }
}

impl Spools {
    /// Returns the spools of sessions, with whether their turns run. The others could not be stored or settled.
    pub fn found_turns(&self) -> Result<Vec<FoundTurn>, SpoolError> {
        let turn = |found: FoundSpool| match found {
            FoundSpool::Orphan(spool) => {
                let is_running = living_process(&spool).is_some();
                Some(FoundTurn { session: spool.turn().session_id()?, is_running, spool: Some(spool) })
            }
            FoundSpool::Owned(turn, _) => {
                Some(FoundTurn { session: turn.session_id()?, is_running: true, spool: None })
            }
            FoundSpool::Unreadable(_) => None,
        };
        Ok(self.find()?.into_iter().filter_map(turn).collect())
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

    /// Finds every spool, the oldest first, and takes those without an owner. Removes leftover lease files, and the folder
    /// of earlier versions once it is empty.
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
        let is_ours = match header.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        if is_ours && !folder.has(name, &header) {
            // The owner stored it and removed it between our two steps.
            return Ok(None);
        }
        let output_path = header_path.with_extension(OUTPUT);
        if is_ours && header.metadata()?.len() == 0 && is_empty(folder, name_of(&output_path)) {
            // A loss of power left the names and none of the content: this turn has never begun.
            for path in [&output_path, &header_path.with_extension(ERRORS), &header_path.to_owned()] {
                folder.remove(name_of(path))?;
            }
            return Ok(None);
        }
        let Header { turn, process, ended, stored, .. } = Header::read(&header)?;
        // The names of its other files come from the run: a forged header could name another turn's.
        let is_its_own = |turn: &SpooledTurn| header_path.file_stem() == Some(OsStr::new(&turn.run));
        let Some(turn) = turn.filter(is_its_own) else {
            return Ok(Some(FoundSpool::Unreadable(header_path.to_owned())));
        };
        if !is_ours {
            return Ok(Some(FoundSpool::Owned(Box::new(turn), process)));
        }
        let (folder, header_path) = (folder.clone(), header_path.to_owned());
        let spool = Spool {
            header,
            folder,
            header_path,
            output_path,
            output_file: None,
            turn,
            process,
            ended,
            stored,
            is_idle: false,
            keeps_original: self.keeps_originals,
        };
        Ok(Some(FoundSpool::Orphan(Box::new(spool))))
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
    let names = folder.names().map_err(at(path))?;
    remove_leftovers(&folder, &names);
    remove_unfinished(&folder, &names);
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
/// file that cannot be removed is left for the next time.
fn remove_unfinished(folder: &Folder, names: &[OsString]) {
    for name in
        names.iter().filter(|name| Path::new(name).extension().is_some_and(|found| found == UNFINISHED))
    {
        let Ok(header) = folder.open_file(name, READ_AND_APPEND) else { continue };
        if header.try_lock().is_err() || !folder.has(name, &header) {
            continue;
        }
        // The header last: it leads to the others.
        for kind in [OUTPUT, ERRORS, UNFINISHED] {
            drop(folder.remove(Path::new(name).with_extension(kind).as_os_str()));
        }
    }
    for name in names.iter().filter(|name| Path::new(name).extension().is_some_and(|found| found == ERRORS)) {
        let has = |kind: &str| is_there(&folder.join(Path::new(name).with_extension(kind)));
        // An unfinished header gets its name in between, not the other way round.
        if !has(UNFINISHED) && !has(HEADER) {
            drop(folder.remove(name));
        }
    }
}

/// Marks the orphans whose run has no process. One search of the process table for any number of orphans.
fn note_idle(found: &mut [FoundSpool]) {
    let mut in_use = None;
    for found in found {
        if let FoundSpool::Orphan(spool) = found {
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
