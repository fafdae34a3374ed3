//! One turn per session at a time, and one compaction, across the processes of a machine.
//!
//! A lease is an exclusive lock on a small file. The system frees the lock when the holder dies, so a dead holder blocks
//! nobody. The file's text is for the message to other processes: it describes the holder. It also names the holder's lease
//! of the store, so that the next holder of the lock can replace that lease if its holder died.
//!
//! The file exists only while the lease is held. Four rules make the removal safe:
//!
//! - A process that has locked a file checks that the name still leads to it. If not, the lock means nothing and the process
//!   starts again.
//! - The holder removes the file before it frees the lock.
//! - The cleanup of leftover files takes a shared lock, which it gets only if there is no holder. A process that wants the lease
//!   and gets no exclusive lock tries a shared one: if it gets that, there is no holder, and it retries.
//! - One cleanup runs at a time.

use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use azureal_core::{Holder, LeaseId, SessionId};
use azureal_files::Folder;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tracing::debug;

use crate::spool::{SpoolError, Spools, at};

/// The time for a new holder to write its text, and for a cleanup to check one file.
const A_MOMENT: Duration = Duration::from_millis(200);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The time for which a leftover file stays that names a lease of the store. The lease itself expires long before,
/// even if the turn took most of a day and its holder died just now.
const NOTE_LASTS: Duration = Duration::from_secs(24 * 60 * 60);

/// The kinds of leases, as the files end.
const TURN: &str = "lease";
const COMPACTION: &str = "compaction";

/// The right to run a turn in a session, or to compact it, as long as it is held.
#[derive(Debug)]
pub struct Lease {
    /// Locked as long as it is open.
    file: File,
    folder: Folder,
    name: OsString,
    content: Content,
}

/// The content of a lease file.
#[derive(Debug, Serialize, Deserialize)]
struct Content {
    #[serde(flatten)]
    holder: Holder,
    /// A lease of the store that its holder may not have released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store_lease: Option<LeaseId>,
}

/// Returns this process as a holder, which runs a turn of an agent from now on. The user is identified by number.
pub fn this_process(agent: &str) -> Holder {
    Holder {
        user: format!("user {}", rustix::process::getuid().as_raw()),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: std::process::id(),
        agent: agent.to_owned(),
        since: crate::clock::now_text(),
    }
}

/// The result of trying to acquire a lease.
#[derive(Debug)]
pub enum Leased {
    /// It is ours.
    Ours(Lease),
    /// Another process holds it, and may not have written yet who it is.
    Theirs(Option<Holder>),
}

impl Spools {
    /// Tries to acquire a session's turn lease. Does not wait for another holder.
    pub fn lease(&self, session: SessionId, holder: &Holder) -> Result<Leased, SpoolError> {
        self.lease_file(&format!("{session}.{TURN}"), holder)
    }

    /// Tries to acquire the right to compact a session. Does not wait for another holder. A turn may run meanwhile: it
    /// only adds to the session.
    pub fn lease_compaction(&self, session: SessionId, holder: &Holder) -> Result<Leased, SpoolError> {
        self.lease_file(&format!("{session}.{COMPACTION}"), holder)
    }

    /// Blocks until no process of this machine holds a session's turn lease. Acquires nothing, so that another process may
    /// be first.
    ///
    /// The system wakes this thread when the holder releases the lock or dies.
    pub fn wait_for_lease(&self, session: SessionId) -> Result<(), SpoolError> {
        let folder = self.open_folder()?;
        let name = OsString::from(format!("{session}.{TURN}"));
        wait_for_release(&folder, &name).map_err(at(&folder.join(&name)))
    }

    /// Returns whether a process of this machine holds the turn lease of a session.
    pub fn is_leased(&self, session: SessionId) -> Result<bool, SpoolError> {
        let name = format!("{session}.{TURN}");
        for folder in self.folders() {
            if holder_in(folder, name.as_ref()).map_err(at(&folder.join(&name)))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn lease_file(&self, name: &str, holder: &Holder) -> Result<Leased, SpoolError> {
        let folder = self.open_folder()?;
        let taken = take(&folder, name.as_ref(), holder).map_err(at(&folder.join(name)))?;
        let (Leased::Ours(_), Some(former)) = (&taken, self.former_folder()) else { return Ok(taken) };
        // After ours is held: two of this version cannot both find the former one free.
        match holder_in(former, name.as_ref()).map_err(at(&former.join(name)))? {
            Some(held) => Ok(held),
            None => Ok(taken),
        }
    }
}

/// Returns the holder of a lease in a folder, if there is one.
fn holder_in(former: &Path, name: &OsStr) -> io::Result<Option<Leased>> {
    let file = Folder::open(former).and_then(|folder| folder.open_file(name, OFlags::RDONLY));
    let mut file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(Leased::Theirs(read_holder(&mut file)?))),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn take(folder: &Folder, name: &OsStr, holder: &Holder) -> io::Result<Leased> {
    let deadline = Instant::now() + A_MOMENT;
    loop {
        let mut file = open_or_create(folder, name)?;
        match file.try_lock() {
            Ok(()) if folder.has(name, &file) => {
                let store_lease = read(&mut file)?.and_then(|before| before.store_lease);
                let content = Content { holder: holder.clone(), store_lease };
                let mut lease = Lease { file, folder: folder.clone(), name: name.to_owned(), content };
                lease.write()?;
                debug!(?name, replaces = lease.content.store_lease.is_some(), "acquired the lease");
                return Ok(Leased::Ours(lease));
            }
            // Its holder, or a cleanup, removed it after we had opened it.
            Ok(()) => debug!(?name, "the lease file was removed meanwhile"),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => match file.try_lock_shared() {
                // There is no holder, but a cleanup, or another process that tries the same.
                Ok(()) if Instant::now() < deadline => {
                    drop(file);
                    thread::sleep(POLL_INTERVAL);
                }
                Ok(()) => return Ok(Leased::Theirs(None)),
                Err(TryLockError::WouldBlock) => {
                    let holder = read_holder(&mut file)?;
                    debug!(?name, pid = holder.as_ref().map(|holder| holder.pid), "the lease is held");
                    return Ok(Leased::Theirs(holder));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            },
        }
    }
}

/// Blocks until a lease has no holder.
fn wait_for_release(folder: &Folder, name: &OsStr) -> io::Result<()> {
    loop {
        let file = match folder.open_file(name, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        // A shared lock, which whoever wants the lease tries to get over.
        match file.lock_shared() {
            Ok(()) if folder.has(name, &file) => return Ok(()),
            // The holder removed its file. The next holder has another one.
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes the files of leases without a holder: those of processes that died, and of earlier versions, which never
/// removed any. A file that cannot be removed is left for the next time; it does no harm.
pub(crate) fn remove_leftovers(folder: &Folder, names: &[OsString]) {
    let mut leases = names.iter().filter(|name| is_lease(name)).peekable();
    if leases.peek().is_none() {
        return;
    }
    // If another process cleans up, there is nothing to do.
    let Ok(_cleanup) = folder.try_lock() else { return };
    for name in leases {
        // A refused file is not ours to remove.
        if let Err(error) = remove_leftover(folder, name) {
            debug!(?name, error = ?error.to_string(), "ignored: a leftover lease that cannot be removed");
        }
    }
}

pub(crate) fn is_lease(name: &OsStr) -> bool {
    let Some((session, kind)) = name.to_str().and_then(|name| name.split_once('.')) else { return false };
    [TURN, COMPACTION].contains(&kind) && session.parse::<SessionId>().is_ok()
}

fn remove_leftover(folder: &Folder, name: &OsStr) -> io::Result<()> {
    // The lock is held until the file is closed, after it is removed.
    if let Some(_file) = open_leftover(folder, name)? {
        folder.remove(name)?;
        debug!(?name, "removed a leftover lease");
    }
    Ok(())
}

/// Opens and locks the file of a lease without a holder; `None` if it has one, or if it is still needed.
pub(crate) fn open_leftover(folder: &Folder, name: &OsStr) -> io::Result<Option<File>> {
    let mut file = folder.open_file(name, OFlags::RDONLY)?;
    if file.try_lock_shared().is_err() || !folder.has(name, &file) {
        return Ok(None);
    }
    let is_noted = read(&mut file)?.is_some_and(|content| content.store_lease.is_some());
    // A time in the future counts as old.
    let age = SystemTime::now().duration_since(file.metadata()?.modified()?).unwrap_or(Duration::MAX);
    Ok((!is_noted || age >= NOTE_LASTS).then_some(file))
}

impl Lease {
    /// Returns the lease of the store that an earlier holder of this lock may not have released.
    pub(crate) fn store_lease(&self) -> Option<&LeaseId> {
        self.content.store_lease.as_ref()
    }

    /// Notes the lease of the store that is held now.
    pub(crate) fn note_store_lease(&mut self, lease: LeaseId) -> Result<(), SpoolError> {
        self.content.store_lease = Some(lease);
        self.write().map_err(at(&self.folder.join(&self.name)))
    }

    /// Removes the store's lease from the file: it was released, or another process holds it. The file can be
    /// removed.
    pub(crate) fn forget_store_lease(&mut self) {
        self.content.store_lease = None;
    }

    fn write(&mut self) -> io::Result<()> {
        let text = serde_json::to_string(&self.content)?;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The lock is held until the file is closed, which is after this. If the file stays, the cleanup removes it.
        if self.content.store_lease.is_none() && self.folder.has(&self.name, &self.file) {
            drop(self.folder.remove(&self.name));
        }
    }
}

/// Reads at most this much of a lease file.
const LARGEST: u64 = 64 * 1024;

/// Reads the content of a lease file. `None` if it is not, or not yet, one of ours.
fn read(file: &mut File) -> io::Result<Option<Content>> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(LARGEST).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text).ok())
}

/// Reads who holds a lease. A holder that has only just acquired it gets a moment to write that.
fn read_holder(file: &mut File) -> io::Result<Option<Holder>> {
    let deadline = Instant::now() + A_MOMENT;
    loop {
        match read(file)? {
            Some(content) => return Ok(Some(content.holder)),
            None if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
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
        let mut file = lease.file.try_clone().unwrap();
        assert!(read(&mut file).unwrap().is_none());
        assert_eq!(file.stream_position().unwrap(), LARGEST);
        drop(file);
        assert!(matches!(spools.lease(session, &this_process("y")).unwrap(), Leased::Theirs(None)));
        drop(lease);
        assert!(matches!(spools.lease(session, &this_process("y")).unwrap(), Leased::Ours(_)));
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

    #[test]
    fn a_wait_for_a_lease_ends_with_its_last_holder_and_keeps_nobody_from_it() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let session = SessionId::new(1).unwrap();
        spools.wait_for_lease(session).unwrap();
        let take = || match spools.lease(session, &this_process("claude")).unwrap() {
            Leased::Ours(lease) => lease,
            Leased::Theirs(holder) => panic!("{holder:?}"),
        };
        let mut lease = take();
        let waiting = thread::scope(|scope| {
            let waiting = scope.spawn(|| spools.wait_for_lease(session));
            // Each removes its file, and the next one has another.
            for _ in 0..100 {
                drop(lease);
                lease = take();
            }
            drop(lease);
            waiting.join().unwrap()
        });
        waiting.unwrap();
        // A holder that died leaves its file.
        let mut lease = take();
        lease.note_store_lease(LeaseId::random()).unwrap();
        drop(lease);
        spools.wait_for_lease(session).unwrap();
    }

    #[test]
    fn a_lease_of_an_earlier_version_is_respected_and_its_empty_folder_removed() {
        let folder = tempfile::tempdir().unwrap();
        let former = Spools::new(folder.path().join("former"));
        let spools = Spools::new(folder.path().join("spool")).with_former(former.folder().to_owned());
        let session = SessionId::new(1).unwrap();
        let old = Holder { pid: 7, ..this_process("claude") };
        let Leased::Ours(lease) = former.lease(session, &old).unwrap() else { panic!() };
        let turn = former.begin(crate::spool::tests::turn("a")).unwrap();
        let Leased::Theirs(Some(found)) = spools.lease(session, &this_process("x")).unwrap() else {
            panic!()
        };
        assert_eq!(found, old);
        // Its turn is found, cancelled and read where it is.
        spools.cancel(turn.turn()).unwrap();
        assert!(turn.is_cancelled());
        let mut output = turn.output().unwrap();
        output.write_all(b"line\n").unwrap();
        assert_eq!(spools.printed(turn.turn()), 5);
        drop(lease);
        assert!(matches!(spools.lease(session, &this_process("x")).unwrap(), Leased::Ours(_)));
        drop(turn);
        let newer = spools.begin(crate::spool::tests::turn("b")).unwrap();
        assert!(newer.output_path().starts_with(spools.folder()));
        let mut found = spools.find().unwrap();
        assert_eq!(found.len(), 2);
        let Some(crate::FoundSpool::Orphan(orphan)) = found.drain(..).next() else { panic!() };
        orphan.take().unwrap().unwrap().remove().unwrap();
        assert!(former.folder().exists());
        assert_eq!(spools.find().unwrap().len(), 1);
        assert!(!former.folder().exists(), "it was empty");
    }

    /// Returns the names of all files that lie in the folder.
    fn files(spools: &Spools) -> Vec<OsString> {
        let mut names = spools.open_folder().unwrap().names().unwrap();
        names.sort();
        names
    }

    #[test]
    fn a_thousand_sessions_leave_no_file_behind() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        for number in 1..=1_000 {
            let session = SessionId::new(number).unwrap();
            let turn = spools.lease(session, &this_process("x")).unwrap();
            let compaction = spools.lease_compaction(session, &this_process("x")).unwrap();
            assert!(matches!((turn, compaction), (Leased::Ours(_), Leased::Ours(_))));
        }
        assert_eq!(files(&spools), [] as [&str; 0]);
    }

    /// Writes a lease file as earlier versions did, which left every one behind.
    fn leave(folder: &Folder, name: &str, content: &str, age: Duration) {
        let mut file = folder.create_file(name.as_ref(), OFlags::RDWR).unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    const HOLDER: &str = r#""user":"ada","host":"h","pid":7,"agent":"claude","since":"2026-11-15T09:00:00Z""#;

    #[test]
    fn leases_that_nobody_holds_are_cleaned_up_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        const COUNT: u32 = 400;
        let open = spools.open_folder().unwrap();
        let (plain, noted) = (format!("{{{HOLDER}}}"), format!(r#"{{{HOLDER},"store_lease":"abc"}}"#));
        for number in 1..=COUNT {
            leave(&open, &format!("S{number}.lease"), &plain, Duration::ZERO);
            leave(&open, &format!("S{number}.compaction"), "", Duration::ZERO);
            leave(&open, &format!("S{number}0000.lease"), &noted, NOTE_LASTS);
        }
        // The next turn of this session replaces the noted lease at once, while another machine has to wait for its end.
        leave(&open, "S3000.lease", &noted, NOTE_LASTS - Duration::from_secs(60));
        leave(&open, "notes.lease", "mine", NOTE_LASTS);
        std::os::unix::fs::symlink("/dev/zero", open.join("S3001.lease")).unwrap();
        let held = spools.lease(SessionId::new(3002).unwrap(), &this_process("x")).unwrap();
        let compacting = spools.lease_compaction(SessionId::new(5).unwrap(), &this_process("x")).unwrap();
        assert!(spools.find().unwrap().is_empty());
        let left = ["S3000.lease", "S3001.lease", "S3002.lease", "S5.compaction", "notes.lease"];
        assert_eq!(files(&spools), left);
        drop((held, compacting));
        assert!(spools.find().unwrap().is_empty());
        assert_eq!(files(&spools), ["S3000.lease", "S3001.lease", "notes.lease"]);
    }

    #[test]
    fn a_lease_of_the_store_that_may_not_be_released_is_noted_for_the_next_holder() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let take = || match spools.lease(SessionId::new(1).unwrap(), &this_process("x")).unwrap() {
            Leased::Ours(lease) => lease,
            Leased::Theirs(holder) => panic!("{holder:?}"),
        };
        let id = LeaseId::random();
        take().note_store_lease(id.clone()).unwrap();
        assert!(spools.find().unwrap().is_empty());
        let mut next = take();
        assert_eq!(next.store_lease(), Some(&id));
        next.forget_store_lease();
        drop(next);
        assert_eq!((files(&spools), take().store_lease()), (Vec::<OsString>::new(), None));
    }

    #[test]
    fn one_process_cleans_up_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let open = spools.open_folder().unwrap();
        leave(&open, "S1.lease", "", Duration::ZERO);
        let cleanup = open.try_lock().unwrap();
        assert!(spools.find().unwrap().is_empty());
        assert_eq!(files(&spools), ["S1.lease"]);
        drop(cleanup);
        assert!(spools.find().unwrap().is_empty());
        assert_eq!(files(&spools), [] as [&str; 0]);
    }

    #[test]
    fn a_cleanup_of_another_process_is_not_taken_for_a_holder() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let open = spools.open_folder().unwrap();
        leave(&open, "S1.lease", &format!("{{{HOLDER}}}"), Duration::ZERO);
        let looked_at = open.open_file("S1.lease".as_ref(), OFlags::RDONLY).unwrap();
        looked_at.lock_shared().unwrap();
        let session = SessionId::new(1).unwrap();
        thread::scope(|scope| {
            let asker = scope.spawn(|| spools.lease(session, &this_process("x")).unwrap());
            thread::sleep(A_MOMENT / 4);
            open.remove("S1.lease".as_ref()).unwrap();
            drop(looked_at);
            assert!(matches!(asker.join().unwrap(), Leased::Ours(_)));
        });
    }
}
