//! The file with what interfaces keep: one for each store, of this user alone.
//!
//! Several interfaces may have one store. Each applies its own changes to what is in the file, under a lock, so that none overwrites the
//! drafts of another.

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use azureal_files::Folder;
use rustix::fs::OFlags;
use tracing::warn;

use super::Kept;
use super::News;
use super::outbox::Outbox;
use crate::error::shown;

/// The shortest time between two writes.
const PACE: Duration = Duration::from_millis(500);
/// The time for another interface to write.
const LOCK_TIME: Duration = Duration::from_secs(2);
/// The largest file that is read: drafts and history, with every character escaped.
const LARGEST: u64 = 128 << 20;

/// Writes what an interface keeps, on a thread of its own.
pub(super) struct Keep {
    /// `None` if nothing is kept: the store is in memory, or the user has no folder for it.
    file: Option<PathBuf>,
    outbox: Arc<Outbox>,
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
    is_closed: bool,
    /// Whether the user knows that nothing can be written.
    is_told: bool,
}

impl Keep {
    pub(super) fn new(file: Option<PathBuf>, outbox: Arc<Outbox>) -> Arc<Self> {
        Arc::new(Self { file, outbox, state: Mutex::default(), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what was kept, and what the user should know about that. A damaged file is set aside.
    pub(super) fn restore(&self) -> (Kept, Option<String>) {
        let Some((folder, name)) = self.open(false).ok().flatten() else { return (Kept::default(), None) };
        let (kept, notice) = match read(&folder, &name) {
            Ok(kept) => (kept.unwrap_or_default(), None),
            Err(error) => {
                let aside = set_aside(&folder, &name);
                let path = shown(&folder.join(&name));
                let kept = aside.map_or_else(String::new, |aside| format!("; it is kept as `{aside}`"));
                (Kept::default(), Some(format!("drafts and history in {path} cannot be read: {error}{kept}")))
            }
        };
        self.lock().written.clone_from(&kept);
        (kept, notice)
    }

    /// Takes what is to be kept from now on. It is written within a second.
    pub(super) fn put(self: &Arc<Self>, kept: Kept) {
        if self.file.is_none() {
            return;
        }
        let mut state = self.lock();
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
        drop(self.write(state));
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
        state.written_at = Some(Instant::now());
        match stored {
            Ok(()) => state.written = kept,
            Err(error) => {
                warn!(error = ?error.to_string(), "what was typed is not kept");
                state.written = written;
                state.pending.get_or_insert(kept);
                if !std::mem::replace(&mut state.is_told, true) {
                    let path = self.file.as_deref().map(shown).unwrap_or_default();
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
        let Some((folder, name)) = self.open(true)? else { return Ok(()) };
        let _lock = folder.lock(LOCK_TIME)?;
        let mut kept = match read(&folder, &name) {
            Ok(kept) => kept.unwrap_or_default(),
            Err(_) => {
                set_aside(&folder, &name);
                Kept::default()
            }
        };
        kept.merge(before, after);
        let mut new = name.clone();
        new.push(".new");
        folder.remove(&new)?;
        let mut file = folder.create_file(&new, OFlags::WRONLY)?;
        file.write_all(&serde_json::to_vec(&kept)?)?;
        folder.rename(&new, &name)
    }

    /// Opens the folder, and returns it with the name of the file; `None` if there is none.
    fn open(&self, creates: bool) -> io::Result<Option<(Folder, OsString)>> {
        let Some(file) = &self.file else { return Ok(None) };
        let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else { return Ok(None) };
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
            Ok(folder) => Ok(Some((folder, name.to_owned()))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Reads a file; `None` if there is none.
fn read(folder: &Folder, name: &OsStr) -> io::Result<Option<Kept>> {
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
