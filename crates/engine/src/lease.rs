//! One turn per session at a time, across processes.
//!
//! A lease is a lock on a small file. The system frees it when its holder dies, so nobody waits for a ghost;
//! what the file says is only for the message to whoever comes second.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::thread;
use std::time::{Duration, Instant};

use azureal_core::SessionId;
use serde::{Deserialize, Serialize};

use crate::spool::{SpoolError, Spools, at};

/// How long whoever takes a lease may take to say who that is.
const A_MOMENT: Duration = Duration::from_millis(200);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The right to run a turn in a session, as long as it is held.
#[derive(Debug)]
pub struct Lease {
    /// Locked as long as it is open.
    _file: File,
}

/// Who runs a turn in a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process of azureal that runs it.
    pub pid: u32,
    /// The agent that answers.
    pub agent: String,
    /// Since when.
    pub since: String,
}

impl Holder {
    /// Returns this process, which has just begun.
    pub fn of_this_process(agent: &str) -> Self {
        let since = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Self { pid: std::process::id(), agent: agent.to_owned(), since }
    }
}

/// What came of asking for a lease.
#[derive(Debug)]
pub enum Leased {
    /// It is ours.
    Ours(Lease),
    /// Somebody else runs a turn there, who may not have said yet who it is.
    Theirs(Option<Holder>),
}

impl Spools {
    /// Takes the right to run a turn in a session, if nobody has it. Does not wait.
    pub fn lease(&self, session: SessionId, holder: &Holder) -> Result<Leased, SpoolError> {
        self.make_folder()?;
        let path = self.folder().join(format!("{session}.lease"));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(at(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return read_holder(&mut file).map(Leased::Theirs).map_err(at(&path));
            }
            Err(TryLockError::Error(error)) => return Err(at(&path)(error)),
        }
        // The file stays when the lease ends: removing it would race with whoever opens it now.
        let text = serde_json::to_string(holder).map_err(|error| at(&path)(error.into()))?;
        file.set_len(0).and_then(|()| file.rewind()).map_err(at(&path))?;
        file.write_all(text.as_bytes()).map_err(at(&path))?;
        Ok(Leased::Ours(Lease { _file: file }))
    }
}

/// Reads who holds a lease. Whoever has only just taken it is given a moment to say so.
fn read_holder(file: &mut File) -> io::Result<Option<Holder>> {
    let deadline = Instant::now() + A_MOMENT;
    loop {
        let mut text = String::new();
        file.rewind()?;
        file.read_to_string(&mut text)?;
        match serde_json::from_str(&text) {
            Ok(holder) => return Ok(Some(holder)),
            Err(_) if Instant::now() < deadline => thread::sleep(LOOK_AGAIN),
            Err(_) => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_leased_to_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let holder = |pid| Holder { pid, agent: "claude".into(), since: "now".into() };
        let [one, two] = [1, 2].map(|number| SessionId::new(number).unwrap());
        let Leased::Ours(lease) = spools.lease(one, &holder(7)).unwrap() else { panic!() };
        assert!(
            matches!(spools.lease(one, &holder(8)).unwrap(), Leased::Theirs(Some(found)) if found == holder(7))
        );
        assert!(matches!(spools.lease(two, &holder(8)).unwrap(), Leased::Ours(_)), "another session is free");
        drop(lease);
        assert!(matches!(spools.lease(one, &holder(8)).unwrap(), Leased::Ours(_)));
    }
}
