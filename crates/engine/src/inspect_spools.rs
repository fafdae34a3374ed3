//! A look at spools and leases that changes nothing: for checks.

use std::ffi::{OsStr, OsString};
use std::fs::TryLockError;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use azureal_files::Folder;
use rustix::fs::OFlags;

use crate::header::{Header, SpooledTurn};
use crate::lease::{is_lease, open_leftover};
use crate::spool::{HEADER, OUTPUT, SpoolError, Spools, UNFINISHED, at, is_there};
use crate::summary_note::SUMMARY;

/// A spool or a lease, as it is found.
#[derive(Debug)]
#[non_exhaustive]
pub enum SpoolState {
    /// A process runs the turn, or its agent continues in the background.
    Running(Box<SpooledTurn>),
    /// The turn has ended, and is not stored yet. Recovery stores it.
    Ended(Box<SpooledTurn>),
    /// The header cannot be read. The output may be there.
    Unreadable(PathBuf),
    /// An output without a header.
    WithoutHeader(PathBuf),
    /// An agent writes a summary for an azureal that has ended. The next command stops it.
    LostSummary(Box<SpooledTurn>),
    /// A process holds the lease: it runs a turn, or compacts the session.
    Leased(PathBuf),
    /// A lease whose holder has ended. The next process removes it.
    StaleLease(PathBuf),
}

impl Spools {
    /// Finds all spools and leases. Takes, removes and changes none.
    pub fn inspect(&self) -> Result<Vec<SpoolState>, SpoolError> {
        let mut found = Vec::new();
        for path in self.folders() {
            let folder = match Folder::open(path) {
                Ok(folder) => folder,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(at(path)(error)),
            };
            let mut names = folder.names().map_err(at(path))?;
            names.sort();
            for name in &names {
                // A file that was removed meanwhile is none.
                found.extend(look_at(&folder, path, name, &names).unwrap_or_else(
                    |error| match error.kind() {
                        ErrorKind::NotFound => None,
                        _ => Some(SpoolState::Unreadable(path.join(name))),
                    },
                ));
            }
        }
        Ok(found)
    }
}

fn look_at(folder: &Folder, path: &Path, name: &OsStr, names: &[OsString]) -> io::Result<Option<SpoolState>> {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    if is_lease(name) {
        let file = path.join(name);
        if let Some(leftover) = open_leftover(folder, name)? {
            // A new holder creates the file before it locks it.
            let is_new = leftover.metadata()?.len() == 0;
            return Ok((!is_new).then_some(SpoolState::StaleLease(file)));
        }
        let is_held = !is_free(&folder.open_file(name, OFlags::RDONLY)?)?;
        return Ok(is_held.then_some(SpoolState::Leased(file)));
    }
    match extension {
        Some(HEADER) => {
            let header = folder.open_file(name, OFlags::RDONLY)?;
            let is_free = is_free(&header)?;
            let Header { turn, process, .. } = Header::read(&header)?;
            let is_its_own = |turn: &SpooledTurn| Path::new(name).file_stem() == Some(OsStr::new(&turn.run));
            let Some(turn) = turn.filter(is_its_own) else {
                return Ok(Some(SpoolState::Unreadable(path.join(name))));
            };
            let is_alive = process.is_some_and(|process| process.identity().is_alive());
            let turn = Box::new(turn);
            Ok(Some(if is_free && !is_alive { SpoolState::Ended(turn) } else { SpoolState::Running(turn) }))
        }
        Some(SUMMARY) => {
            let note = folder.open_file(name, OFlags::RDONLY)?;
            let is_lost = is_free(&note)?;
            let turn = Header::read(&note)?.turn.filter(|_| is_lost);
            Ok(turn.map(|turn| SpoolState::LostSummary(Box::new(turn))))
        }
        Some(OUTPUT) => {
            let has = |kind: &str| {
                let header = Path::new(name).with_extension(kind);
                names.iter().any(|name| *name == header.as_os_str()) || is_there(&folder.join(&header))
            };
            // It may just have been created or removed: the unfinished header becomes the header, which is removed last.
            let is_left = !has(UNFINISHED) && !has(HEADER) && is_there(&folder.join(name));
            Ok(is_left.then(|| SpoolState::WithoutHeader(path.join(name))))
        }
        _ => Ok(None),
    }
}

/// Returns whether no process holds a file. Shared and for a moment: two processes that look at once do not see each other.
fn is_free(file: &std::fs::File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => {
            file.unlock()?;
            Ok(true)
        }
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::SessionId;

    use super::*;
    use crate::lease::{Leased, this_process};

    #[test]
    fn a_look_at_spools_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        assert!(spools.inspect().unwrap().is_empty());
        let running = spools.begin(crate::spool::tests::turn("running")).unwrap();
        let ended =
            spools.begin(SpooledTurn { run: "b".into(), ..crate::spool::tests::turn("ended") }).unwrap();
        drop(ended);
        let Leased::Ours(lease) = spools.lease(SessionId::new(7).unwrap(), &this_process("x")).unwrap()
        else {
            panic!()
        };
        let write = |name: &str, text: &str| {
            let spool = Folder::open(&folder.path().join("spool")).unwrap();
            let mut file = spool.create_file(name.as_ref(), OFlags::WRONLY).unwrap();
            io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        };
        write("c.turn", "not json");
        write("d.jsonl", "{}\n");
        write("S9.lease", "{}");
        // As between the two steps of a new holder.
        write("S10.lease", "");
        let names = || {
            let mut names = Folder::open(&folder.path().join("spool")).unwrap().names().unwrap();
            names.sort();
            names
        };
        let before = names();
        let found = spools.inspect().unwrap();
        assert_eq!(names(), before);
        let count = |is: fn(&SpoolState) -> bool| found.iter().filter(|state| is(state)).count();
        assert_eq!(count(|state| matches!(state, SpoolState::Running(_))), 1, "{found:?}");
        assert_eq!(count(|state| matches!(state, SpoolState::Ended(_))), 1, "{found:?}");
        assert_eq!(count(|state| matches!(state, SpoolState::Unreadable(_))), 1, "{found:?}");
        assert_eq!(count(|state| matches!(state, SpoolState::WithoutHeader(_))), 1, "{found:?}");
        assert_eq!(count(|state| matches!(state, SpoolState::Leased(_))), 1, "{found:?}");
        assert_eq!(count(|state| matches!(state, SpoolState::StaleLease(_))), 1, "{found:?}");
        drop((running, lease));
    }
}
