//! The file with what interfaces keep: one for each store, of this user alone.
//!
//! Several interfaces may have one store. Each applies its own changes to what is in the file, under a lock, so that none overwrites the
//! drafts of another.
//!
//! Queued prompts go out by themselves, so each belongs to one interface: the one that holds the lock of the file `owner-<name>`. The
//! system frees that lock when the interface ends or dies. Then the next interface that opens the session takes its queue.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use azureal_files::Folder;
use rustix::fs::OFlags;
use tracing::warn;

use super::kept::KeptFile;
use super::outbox::Outbox;
use super::{Kept, News, Offer};
use crate::error::shown;
use crate::workspace::Workspace;

/// The shortest time between two writes.
const PACE: Duration = Duration::from_millis(500);
/// The time for another interface to write.
const LOCK_TIME: Duration = Duration::from_secs(2);
/// The beginning of the name of an interface's own file. The name of the store is not in it: that changes when the store gets its id.
const OWNER: &str = "owner-";
/// How long a turn waits until what was typed is written without its prompt.
const FLUSH_TIME: Duration = Duration::from_secs(3);
/// The largest file that is read: drafts, queues and history, with every character escaped.
const LARGEST: u64 = 384 << 20;

/// Writes what an interface keeps, on a thread of its own.
pub(super) struct Keep {
    /// `None` if nothing is kept: the store is in memory, or the user has no folder for it.
    folder: Option<PathBuf>,
    workspace: Arc<Workspace>,
    outbox: Arc<Outbox>,
    /// The name of this interface as the owner of its queue.
    owner: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What this interface had when it last wrote.
    written: Kept,
    pending: Option<Kept>,
    written_at: Option<Instant>,
    /// Whether this interface keeps anything.
    is_used: bool,
    has_thread: bool,
    is_writing: bool,
    /// Whether somebody waits for the next write.
    is_urgent: bool,
    /// The number of writes, also of those that failed.
    writes: u64,
    is_closed: bool,
    /// Prompts that the interface has not received yet, with their sessions.
    offers: Vec<(String, Offer)>,
    last_offer: u64,
    /// Locked as long as this interface runs and may have a queue.
    owner_lock: Option<File>,
    /// Whether the user knows that nothing can be written.
    is_told: bool,
}

impl Keep {
    pub(super) fn new(workspace: Arc<Workspace>, outbox: Arc<Outbox>) -> Arc<Self> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let owner = format!("{}-{}", std::process::id(), now.as_nanos());
        let folder = workspace.desk_folder();
        Arc::new(Self { folder, workspace, outbox, owner, state: Mutex::default(), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what was kept, and what the user should know about that. A damaged file is set aside.
    pub(super) fn restore(&self) -> (Kept, Option<String>) {
        let Some(folder) = self.open(false).ok().flatten() else { return (Kept::default(), None) };
        // What is there is read in any case: another interface that holds the lock replaces the file as a whole.
        let lock = folder.lock(LOCK_TIME);
        let Some(name) = self.name() else { return (Kept::default(), None) };
        let (kept, notice) = match read(&folder, &name) {
            Ok(file) => (file.unwrap_or_default().kept, None),
            Err(error) => {
                let aside = set_aside(&folder, &name);
                let path = shown(&folder.join(&name));
                let kept = aside.map_or_else(String::new, |aside| format!("; it is kept as `{aside}`"));
                (Kept::default(), Some(format!("drafts and history in {path} cannot be read: {error}{kept}")))
            }
        };
        drop(lock);
        self.lock().written.clone_from(&kept);
        (kept, notice)
    }

    /// Takes what is to be kept from now on. It is written within a second.
    pub(super) fn put(self: &Arc<Self>, mut kept: Kept) {
        if self.folder.is_none() {
            return;
        }
        let mut state = self.lock();
        state.offers.retain(|(_, offer)| !kept.offers.contains(&offer.number));
        for (key, offer) in &state.offers {
            offer.add_to(&mut kept, key);
        }
        (state.pending, state.is_used) = (Some(kept), true);
        if !state.has_thread && !state.is_closed {
            let keep = Arc::clone(self);
            let thread = thread::Builder::new().name("azureal-desk-keep".to_owned());
            state.has_thread = thread.spawn(move || keep.run()).is_ok();
        }
        self.changed.notify_all();
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.is_closed {
            let pause = state.written_at.map_or(Duration::ZERO, |at| PACE.saturating_sub(at.elapsed()));
            let pause = if state.is_urgent { Duration::ZERO } else { pause };
            if state.pending.is_none() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if !pause.is_zero() {
                let waited = self.changed.wait_timeout(state, pause);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else {
                state = self.write(state);
            }
        }
    }

    /// Waits until what was put is written: a prompt that is being sent is in no queue any more, whatever happens to this process.
    pub(super) fn flush(&self) {
        let deadline = Instant::now() + FLUSH_TIME;
        let mut state = self.lock();
        // A write that has begun may have an earlier state.
        let enough = state.writes + 1 + u64::from(state.is_writing);
        while state.has_thread
            && !state.is_closed
            && (state.pending.is_some() || state.is_writing)
            && state.writes < enough
            && Instant::now() < deadline
        {
            state.is_urgent = true;
            self.changed.notify_all();
            let left = deadline.saturating_duration_since(Instant::now());
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_urgent = false;
    }

    /// Takes over the prompts that interfaces which have ended left queued in a session. Another interface that asks gets none of them.
    pub(super) fn take_queue(&self, key: &str) -> Option<Offer> {
        let prompts = self.try_take_queue(key).unwrap_or_else(|error| {
            warn!(error = ?error.to_string(), "queued prompts of an ended interface are not read");
            Vec::new()
        });
        (!prompts.is_empty()).then(|| self.offer(key, prompts))
    }

    /// Makes prompts a part of what this interface has, though it does not know of them yet.
    fn offer(&self, key: &str, prompts: Vec<String>) -> Offer {
        let mut state = self.lock();
        while state.is_writing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_used = true;
        state.last_offer += 1;
        let offer = Offer { number: state.last_offer, prompts };
        offer.add_to(&mut state.written, key);
        if let Some(pending) = &mut state.pending {
            offer.add_to(pending, key);
        }
        state.offers.push((key.to_owned(), offer.clone()));
        offer
    }

    fn try_take_queue(&self, key: &str) -> io::Result<Vec<String>> {
        let Some(folder) = self.open(false)? else { return Ok(Vec::new()) };
        let _lock = folder.lock(LOCK_TIME)?;
        let Some(name) = self.name() else { return Ok(Vec::new()) };
        let Some(mut file) = read(&folder, &name)? else { return Ok(Vec::new()) };
        let has_ended = |owner: &str| has_ended(&folder, &owner_file(owner));
        let taken = file.take_queue(&self.owner, key, has_ended);
        if !taken.is_empty() {
            self.own_queue(&folder)?;
            write(&folder, &name, &file, true)?;
        }
        remove_ended(&folder)?;
        Ok(taken)
    }

    /// Locks the file that says that this interface runs, and creates it if there is none.
    fn own_queue(&self, folder: &Folder) -> io::Result<()> {
        let mut state = self.lock();
        if state.owner_lock.is_none() {
            let file = folder.create_file(&owner_file(&self.owner), OFlags::RDONLY)?;
            file.try_lock()?;
            state.owner_lock = Some(file);
        }
        Ok(())
    }

    /// Writes what was not written yet, and nothing after that. The session that is shown now is the last one, whatever other interfaces
    /// have shown since this one came to it: the user returns to what they have left last.
    pub(super) fn write_now(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        while state.is_writing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_used {
            if state.pending.is_none() {
                state.pending = Some(state.written.clone());
            }
            state.written.shown = None;
        }
        let mut state = self.write(state);
        // A queue that is left can be taken from now on.
        state.owner_lock = None;
        drop(state);
        self.changed.notify_all();
    }

    /// Writes what was not written yet. The state is not locked meanwhile: another interface may be writing, too.
    fn write<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(kept) = state.pending.take() else { return state };
        let written = std::mem::take(&mut state.written);
        state.is_writing = true;
        drop(state);
        let stored = self.store(&written, &kept);
        let mut state = self.lock();
        state.is_writing = false;
        state.writes += 1;
        state.written_at = Some(Instant::now());
        match stored {
            Ok(()) => state.written = kept,
            Err(error) => {
                warn!(error = ?error.to_string(), "what was typed is not kept");
                state.written = written;
                state.pending.get_or_insert(kept);
                if !std::mem::replace(&mut state.is_told, true) {
                    let path = self.folder.as_deref().map(shown).unwrap_or_default();
                    let notice = format!("what you type is not kept for the next time: {path}: {error}");
                    self.outbox.send(News::Notice(notice));
                }
            }
        }
        self.changed.notify_all();
        state
    }

    /// Applies the changes of this interface to the file.
    fn store(&self, before: &Kept, after: &Kept) -> io::Result<()> {
        let Some(folder) = self.open(true)? else { return Ok(()) };
        let _lock = folder.lock(LOCK_TIME)?;
        let Some(name) = self.name() else { return Ok(()) };
        let mut file = match read(&folder, &name) {
            Ok(file) => file.unwrap_or_default(),
            Err(_) => {
                set_aside(&folder, &name);
                KeptFile::default()
            }
        };
        let is_queue_changed = file.merge(&self.owner, before, after);
        if file.has_queue_of(&self.owner) {
            self.own_queue(&folder)?;
        }
        write(&folder, &name, &file, is_queue_changed)
    }

    /// Opens the folder; `None` if there is none.
    fn open(&self, creates: bool) -> io::Result<Option<Folder>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let opened = match creates {
            true => {
                if let Some(above) = folder.parent() {
                    DirBuilder::new().recursive(true).mode(0o700).create(above)?;
                }
                Folder::open_or_create(folder)
            }
            false => Folder::open(folder),
        };
        match opened {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the name of the file. To be called with the folder locked.
    fn name(&self) -> Option<OsString> {
        self.workspace.desk_file()?.file_name().map(OsStr::to_owned)
    }
}

impl Offer {
    fn add_to(&self, kept: &mut Kept, key: &str) {
        kept.drafts.entry(key.to_owned()).or_default().queued.extend_from_slice(&self.prompts);
    }
}

/// Returns the name of the file that an interface has locked.
fn owner_file(owner: &str) -> OsString {
    format!("{OWNER}{owner}").into()
}

/// Returns whether the interface that has locked this file has ended.
fn has_ended(folder: &Folder, owner: &OsStr) -> bool {
    match folder.open_file(owner, OFlags::RDONLY) {
        Ok(file) => file.try_lock_shared().is_ok(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Removes the files of interfaces that have ended: one without its file has ended too. To be called with the folder locked.
fn remove_ended(folder: &Folder) -> io::Result<()> {
    for file in folder.names()? {
        if file.to_str().is_some_and(|file| file.starts_with(OWNER)) && has_ended(folder, &file) {
            folder.remove(&file)?;
        }
    }
    Ok(())
}

/// Replaces a file. A queue has to survive a loss of power: a prompt that was sent must not be offered again.
fn write(folder: &Folder, name: &OsStr, content: &KeptFile, is_durable: bool) -> io::Result<()> {
    let mut new = name.to_owned();
    new.push(".new");
    folder.remove(&new)?;
    let mut file = folder.create_file(&new, OFlags::WRONLY)?;
    file.write_all(&serde_json::to_vec(content)?)?;
    if is_durable {
        file.sync_data()?;
    }
    folder.rename(&new, name)?;
    if is_durable { folder.sync() } else { Ok(()) }
}

/// Reads a file; `None` if there is none.
fn read(folder: &Folder, name: &OsStr) -> io::Result<Option<KeptFile>> {
    let file = match folder.open_file(name, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut content = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LARGEST {
        return Err(io::Error::new(ErrorKind::InvalidData, "it is too large"));
    }
    Ok(Some(serde_json::from_slice(&content)?))
}

/// Gives a file that cannot be read another name, and returns that.
fn set_aside(folder: &Folder, name: &OsStr) -> Option<String> {
    (1..1_000_u32).find_map(|number| {
        let mut aside = name.to_owned();
        aside.push(format!(".damaged-{number}"));
        match folder.rename_new(name, &aside) {
            Ok(()) => Some(Some(aside.to_string_lossy().into_owned())),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
            Err(_) => Some(None),
        }
    })?
}
