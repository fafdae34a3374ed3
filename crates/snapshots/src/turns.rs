//! The turns that run in a worktree, so that the changes of one can name the others.
//!
//! Each turn has a file, locked by the process that runs it: a lock ends with its process. Beginnings and ends are numbered, not timed:
//! clocks jump.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

use azureal_files::{Folder, HeldFolder};
use rustix::fs::{FlockOperation, OFlags};

use crate::error::{At, Error};
use crate::worktree::Worktree;

const FOLDER: &str = "turns";
/// The bound on a file.
const LIMIT: u64 = 4096;
/// The time to wait for another process that changes the list.
const WAIT: Duration = Duration::from_secs(2);

/// A turn that runs in a worktree, until [`Worktree::end_turn`]. If this process dies, the turn no longer counts as running.
#[derive(Debug)]
pub struct TurnMark {
    session: String,
    begin: u64,
    name: OsString,
    file: File,
}

/// A turn that runs in a worktree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunningTurn {
    /// Its session.
    pub session: String,
    /// Its run.
    pub run: String,
}

/// A file of the list.
struct Noted {
    turn: RunningTurn,
    name: OsString,
    begin: u64,
    /// `None` if it runs, or if its process died.
    end: Option<u64>,
    is_running: bool,
}

impl Noted {
    /// Returns whether the turn ran at any time since a beginning.
    fn ran_since(&self, begin: u64) -> bool {
        self.is_running || self.end.is_none_or(|end| end > begin)
    }
}

impl Worktree {
    /// Notes that a turn of a session begins in this worktree.
    ///
    /// # Errors
    ///
    /// Our folder in the git directory cannot be used.
    pub fn begin_turn(&self, session: &str, run: &str) -> Result<TurnMark, Error> {
        let (folder, _lock) = self.turns()?;
        let noted = read(&folder);
        // What nobody can ask for any more.
        let running: Vec<u64> = noted.iter().filter(|turn| turn.is_running).map(|turn| turn.begin).collect();
        for turn in &noted {
            if !turn.is_running && !running.iter().any(|begin| turn.ran_since(*begin)) {
                folder.remove(&turn.name).at(&folder.join(&turn.name))?;
            }
        }
        let begin = next(&noted);
        let name = OsString::from(format!("{begin:012}"));
        let mut file = folder.create_file(&name, OFlags::RDWR).at(&folder.join(&name))?;
        // A reader may hold it for a moment.
        rustix::fs::flock(&file, FlockOperation::LockExclusive).at(&folder.join(&name))?;
        let word = |text: &str| text.split_whitespace().collect::<String>();
        writeln!(file, "{} {}", word(session), word(run)).at(&folder.join(&name))?;
        Ok(TurnMark { session: session.to_owned(), begin, name, file })
    }

    /// Notes the end of a turn. Returns the other sessions that had a turn in this worktree at any time since its beginning.
    ///
    /// # Errors
    ///
    /// Our folder in the git directory cannot be used.
    pub fn end_turn(&self, mark: TurnMark) -> Result<Vec<String>, Error> {
        let TurnMark { session, begin, name, mut file } = mark;
        let (folder, _lock) = self.turns()?;
        let noted = read(&folder);
        writeln!(file, "{}", next(&noted)).at(&folder.join(&name))?;
        // Not by closing it: for a moment, any process that another thread starts has it open too.
        rustix::fs::flock(&file, FlockOperation::Unlock).at(&folder.join(&name))?;
        let during = noted.into_iter().filter(|turn| turn.name != name && turn.ran_since(begin));
        let others: BTreeSet<String> = during.map(|turn| turn.turn.session).collect();
        Ok(others.into_iter().filter(|other| *other != session).collect())
    }

    /// Lists the turns that run in this worktree now.
    pub fn running(&self) -> Vec<RunningTurn> {
        let folder = self.home.join("worktrees").join(self.places.name()).join(FOLDER);
        let Ok(folder) = Folder::open(&folder) else { return Vec::new() };
        let mut running: Vec<_> =
            read(&folder).into_iter().filter(|turn| turn.is_running).map(|turn| turn.turn).collect();
        running.sort();
        running
    }

    fn turns(&self) -> Result<(Folder, HeldFolder), Error> {
        let home = self.open_home()?;
        let path = home.own.join(FOLDER);
        let folder = home.own.open_or_create_folder(OsStr::new(FOLDER)).at(&path)?;
        let again = home.own.open_folder(OsStr::new(FOLDER)).at(&path)?;
        match again.hold(WAIT) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Err(Error::Busy),
            held => Ok((folder, held.at(&path)?)),
        }
    }
}

fn next(noted: &[Noted]) -> u64 {
    noted.iter().map(|turn| turn.end.unwrap_or(0).max(turn.begin)).max().unwrap_or(0) + 1
}

fn read(folder: &Folder) -> Vec<Noted> {
    let names = folder.names().unwrap_or_default();
    names.into_iter().filter_map(|name| note(folder, name)).collect()
}

fn note(folder: &Folder, name: OsString) -> Option<Noted> {
    let begin = name.to_str()?.parse().ok()?;
    let mut file = folder.open_file(&name, OFlags::RDONLY).ok()?;
    let mut text = String::new();
    (&mut file).take(LIMIT).read_to_string(&mut text).ok()?;
    let mut lines = text.lines();
    // The line of a process that died at once is empty.
    let (session, run) = lines.next().unwrap_or("").split_once(' ').unwrap_or_default();
    let turn = RunningTurn { session: session.to_owned(), run: run.to_owned() };
    let end = lines.next().and_then(|end| end.parse().ok());
    // Shared, so that two processes that look at once do not see each other.
    let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
    let is_running = end.is_none() && locked.is_err();
    rustix::fs::flock(&file, FlockOperation::Unlock).ok();
    Some(Noted { turn, name, begin, end, is_running })
}
