//! One turn per session at a time, and one compaction, across the processes of a machine.
//!
//! A lease is a lock on a small file. The system frees it when its holder dies, so nobody waits for a ghost;
//! what the file says of its holder is only for the message to whoever comes second. Beside that it names the lease that
//! was last had from the store: whoever has the lock knows that the holder of that one is no more.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use azureal_core::{Holder, LeaseId, SessionId};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::private::Folder;
use crate::spool::{SpoolError, Spools, at};

/// How long whoever takes a lease may take to say who that is.
const A_MOMENT: Duration = Duration::from_millis(200);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The right to run a turn in a session, or to compact it, as long as it is held.
#[derive(Debug)]
pub struct Lease {
    /// Locked as long as it is open.
    file: File,
    path: PathBuf,
    said: Said,
}

/// What the file says.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    #[serde(flatten)]
    holder: Holder,
    /// The lease of the store that was last had here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store_lease: Option<LeaseId>,
}

/// Returns who this process is: somebody who asks an agent, from now on. The person is known by number.
pub fn this_process(agent: &str) -> Holder {
    Holder {
        user: format!("user {}", rustix::process::getuid().as_raw()),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: std::process::id(),
        agent: agent.to_owned(),
        since: crate::clock::now_text(),
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
        self.lease_file(&format!("{session}.lease"), holder)
    }

    /// Takes the right to compact a session, if nobody has it. Does not wait. A turn may run meanwhile: it
    /// only adds to what is there.
    pub fn lease_compaction(&self, session: SessionId, holder: &Holder) -> Result<Leased, SpoolError> {
        self.lease_file(&format!("{session}.compaction"), holder)
    }

    fn lease_file(&self, name: &str, holder: &Holder) -> Result<Leased, SpoolError> {
        let folder = self.open_folder()?;
        let path = folder.join(name);
        let mut file = open_or_create(&folder, name.as_ref()).map_err(at(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return read_holder(&mut file).map(Leased::Theirs).map_err(at(&path));
            }
            Err(TryLockError::Error(error)) => return Err(at(&path)(error)),
        }
        // The file stays when the lease ends: removing it would race with whoever opens it now.
        let store_lease = read(&mut file).map_err(at(&path))?.and_then(|before| before.store_lease);
        let mut lease = Lease { file, path, said: Said { holder: holder.clone(), store_lease } };
        lease.write()?;
        Ok(Leased::Ours(lease))
    }
}

impl Lease {
    /// Returns the lease of the store that was last had here, by whoever had this lock before.
    pub(crate) fn store_lease(&self) -> Option<&LeaseId> {
        self.said.store_lease.as_ref()
    }

    /// Notes the lease of the store that is had now.
    pub(crate) fn note_store_lease(&mut self, lease: LeaseId) -> Result<(), SpoolError> {
        self.said.store_lease = Some(lease);
        self.write()
    }

    fn write(&mut self) -> Result<(), SpoolError> {
        let at = || at(&self.path);
        let text = serde_json::to_string(&self.said).map_err(|error| at()(error.into()))?;
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(at())?;
        self.file.write_all(text.as_bytes()).map_err(at())
    }
}

/// Reads at most this much of a lease file.
const LARGEST: u64 = 64 * 1024;

/// Reads the content of a lease file. `None` if it is not, or not yet, one of ours.
fn read(file: &mut File) -> io::Result<Option<Said>> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(LARGEST).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text).ok())
}

/// Reads who holds a lease. Whoever has only just taken it is given a moment to say so.
fn read_holder(file: &mut File) -> io::Result<Option<Holder>> {
    let deadline = Instant::now() + A_MOMENT;
    loop {
        match read(file)? {
            Some(said) => return Ok(Some(said.holder)),
            None if Instant::now() < deadline => thread::sleep(LOOK_AGAIN),
            None => return Ok(None),
        }
    }
}

/// Opens a file of ours, and creates it if there is none.
fn open_or_create(folder: &Folder, name: &OsStr) -> io::Result<File> {
    loop {
        match folder.open_file(name, OFlags::RDWR) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        match folder.create_file(name, OFlags::RDWR) {
            // Another process was faster, and has created the same.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    use super::*;
    use crate::header::SpooledTurn;

    #[test]
    fn a_lease_is_not_taken_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        std::fs::write(&precious, "keep").unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        spools.open_folder().unwrap();
        std::os::unix::fs::symlink(&precious, spools.folder().join("S1.lease")).unwrap();
        let error = spools.lease(SessionId::new(1).unwrap(), &this_process("x")).unwrap_err();
        assert!(error.to_string().contains("is no plain file"), "{error}");
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "keep");
    }

    /// `.azureal` is swapped for a link to another folder, and back, while leases are taken and turns begin.
    #[test]
    fn a_folder_that_is_swapped_for_a_link_gets_no_file_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for folder in [".azureal", "outside", "outside/spool"] {
            std::fs::create_dir(path(folder)).unwrap();
            std::fs::set_permissions(path(folder), std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        std::os::unix::fs::symlink("outside", path("link")).unwrap();
        let spools = Spools::new(path(".azureal/spool"));
        let is_done = AtomicBool::new(false);
        let (mut taken, mut refused) = (0, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (one, other) = (path(".azureal"), path("link"));
                while !is_done.load(Ordering::Relaxed) {
                    renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                }
            });
            // Until there was a race: on a busy machine the other thread may come late.
            for number in 1..=10_000 {
                if number > 400 && taken > 0 && refused > 0 {
                    break;
                }
                let session = SessionId::new(number).unwrap();
                let turn = SpooledTurn { run: number.to_string(), ..crate::spool::tests::turn("") };
                for is_ok in [spools.lease(session, &this_process("x")).is_ok(), spools.begin(turn).is_ok()] {
                    *(if is_ok { &mut taken } else { &mut refused }) += 1;
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
        assert!(taken > 0 && refused > 0, "there was no race: {taken} taken, {refused} refused");
        assert_eq!(std::fs::read_dir(path("outside/spool")).unwrap().count(), 0);
        assert_eq!(std::fs::read_dir(path("outside")).unwrap().count(), 1);
    }

    #[test]
    fn a_lease_file_is_read_up_to_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let session = SessionId::new(1).unwrap();
        let Leased::Ours(lease) = spools.lease(session, &this_process("x")).unwrap() else { panic!() };
        lease.file.set_len(20 << 30).unwrap();
        let started = Instant::now();
        assert!(matches!(spools.lease(session, &this_process("y")).unwrap(), Leased::Theirs(None)));
        drop(lease);
        assert!(matches!(spools.lease(session, &this_process("y")).unwrap(), Leased::Ours(_)));
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }

    #[test]
    fn a_session_is_leased_to_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let holder = |pid| Holder { pid, ..this_process("claude") };
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
