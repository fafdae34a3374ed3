//! Notifications of changes to the file, by inotify.
//!
//! The watch is on the folder and not on the file: the file may be replaced, and other files of SQLite are beside it.
//! SQLite writes to the file under a lock that excludes readers, so a reader after the notification sees the change.
//! A journal is removed when the change is committed; writing it is not a change yet. The last write to a write-ahead
//! log comes shortly before readers see the change, so that is reported a second time.
//!
//! Running turns are in the [spool folder](super::StoreFolders::spools) until they are in the store, so the begin or end of
//! one is a change, too. The output of agents is not: it grows all the time, and its viewers follow the file. The
//! death of a process writes no file, so it is not reported.
//!
//! The wait is on its own thread, which only polls for readability. The caller reads, so dropping the future loses no
//! change.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use azureal_core::{StoreError, Watch, async_trait};
use futures_channel::oneshot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::error;

/// Holds many events; their names are short.
const BUFFER: usize = 16 << 10;
/// The delay of the second report of a change in a write-ahead log: its last write is synced in between.
const LOG_DELAY: Duration = Duration::from_millis(500);

/// The suffixes of files that hold the output of an agent.
const OUTPUTS: [&[u8]; 2] = [b".jsonl", b".err"];
/// The events of both folders.
const EVENTS: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR);

/// The subject of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Store,
    Log,
    Journal,
}

/// A watch of a store's file, and of the turns that run.
pub(super) struct FileWatch {
    watching: Arc<OwnedFd>,
    /// The names to listen for in the folder of the store.
    names: [(Vec<u8>, About); 3],
    /// The number of the watch of the store's folder.
    folder: i32,
    /// The path of the store, for errors.
    path: Box<Path>,
    spool_folder: PathBuf,
    /// The number of the watch of the spool folder, while there is one.
    spools: Option<i32>,
    /// The watches of the folders above it, the nearest first, to hear of its creation.
    above: [Option<i32>; 2],
    is_closed: Arc<AtomicBool>,
    /// The time of the second report of a change.
    again_at: Option<Instant>,
    /// The identity of the watched folder: a folder in its place is not watched.
    watched: (u64, u64),
}

impl FileWatch {
    /// Watches the folder of this file; `None` if the system cannot, as when all its watches are in use.
    pub(super) fn start(file: &Path, spool_folder: PathBuf, is_closed: Arc<AtomicBool>) -> Option<Self> {
        let (folder, name) = (file.parent()?, file.file_name()?);
        let watching = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let watched = identity(folder)?;
        let folder = inotify::add_watch(&watching, folder, EVENTS).ok()?;
        let of_store = |end: &str| [name.as_bytes(), end.as_bytes()].concat();
        let names = [
            (of_store(""), About::Store),
            (of_store("-wal"), About::Log),
            (of_store("-journal"), About::Journal),
        ];
        let mut watch = Self {
            watching: Arc::new(watching),
            names,
            folder,
            path: file.into(),
            spool_folder,
            spools: None,
            above: [None; 2],
            is_closed,
            again_at: None,
            watched,
        };
        watch.watch_spools();
        Some(watch)
    }

    /// Watches the spool folder, if there is one, and the folders above it. A link in its place, or in that of
    /// our folder above, is not followed.
    fn watch_spools(&mut self) {
        let add = |folder: &Path, flags: WatchFlags| inotify::add_watch(&*self.watching, folder, flags).ok();
        let mut above = self.spool_folder.ancestors().skip(1);
        // From the outside: a folder that is created meanwhile is heard of.
        let [parent, outer] = [above.next(), above.next()];
        // The folder above that of the store never needs to be watched: the store is in ours already.
        let is_apart = parent != self.path.parent();
        let outer = outer.filter(|_| is_apart).and_then(|folder| add(folder, EVENTS));
        let parent = parent
            .and_then(|folder| add(folder, if is_apart { EVENTS | WatchFlags::DONT_FOLLOW } else { EVENTS }));
        self.above = [parent, outer];
        self.spools = add(&self.spool_folder, EVENTS | WatchFlags::DONT_FOLLOW);
    }

    /// Returns whether an event is about a folder that leads to the spools: created, removed or replaced.
    fn leads_to_spools(&self, watch: i32, name: &[u8]) -> bool {
        let names = self.spool_folder.ancestors().map(Path::file_name);
        let is_it = |(above, ours): (&Option<i32>, Option<&OsStr>)| {
            *above == Some(watch) && ours.is_some_and(|ours| ours.as_bytes() == name)
        };
        self.above.iter().zip(names).any(is_it)
    }

    /// Reads the events; returns whether any of them is about the store.
    fn read(&mut self) -> Result<bool, StoreError> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let watching = Arc::clone(&self.watching);
        let mut reader = inotify::Reader::new(&*watching, &mut buffer);
        let mut is_heard = false;
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => return Ok(is_heard),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(error::from_io(&self.path, errno.into())),
            };
            let events = event.events();
            let Some(name) = event.file_name() else {
                // About a folder, or too much has happened.
                is_heard = true;
                continue;
            };
            if Some(event.wd()) == self.spools {
                let is_output = OUTPUTS.iter().any(|end| name.to_bytes().ends_with(end));
                is_heard |= !(is_output && events.contains(ReadFlags::MODIFY));
                continue;
            }
            if self.leads_to_spools(event.wd(), name.to_bytes()) {
                // The caller reads the content of the folder after this.
                self.watch_spools();
                is_heard = true;
                continue;
            }
            if event.wd() != self.folder {
                continue;
            }
            let about = self.names.iter().find(|(ours, _)| ours == name.to_bytes()).map(|(_, about)| *about);
            is_heard |= match about {
                Some(About::Store) => true,
                Some(About::Log) => {
                    self.again_at = Some(Instant::now() + LOG_DELAY);
                    true
                }
                Some(About::Journal) => events.contains(ReadFlags::DELETE),
                None => false,
            };
        }
    }

    /// Returns whether changes may be missed: the folder is gone, or the spool folder cannot be watched.
    fn is_deaf(&self) -> bool {
        let is_folder = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        self.path.parent().and_then(identity) != Some(self.watched)
            || (self.spools.is_none() && is_folder(&self.spool_folder))
    }

    /// Waits until there is something to read, and not longer than `at_most`.
    async fn wait(&self, at_most: Duration) -> Result<(), StoreError> {
        let watching = Arc::clone(&self.watching);
        let (waited, waits) = oneshot::channel();
        let wait = move || {
            poll_for(&watching, at_most);
            // The caller may have stopped waiting.
            waited.send(()).ok();
        };
        std::thread::Builder::new()
            .name("azureal-sqlite-watch".to_owned())
            .spawn(wait)
            .map_err(|error| error::from_io(&self.path, error))?;
        // Ends when the thread does.
        waits.await.ok();
        Ok(())
    }
}

/// Returns the identity of the folder at a path.
fn identity(folder: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(folder).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Waits until there are events to read. The reader gets any error again.
fn poll_for(watching: &OwnedFd, at_most: Duration) {
    let began = Instant::now();
    loop {
        let left = Timespec::try_from(at_most.saturating_sub(began.elapsed()));
        let mut watched = [PollFd::new(watching, PollFlags::IN)];
        // A time that is too long for the system is none.
        match poll(&mut watched, left.ok().as_ref()) {
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

#[async_trait]
impl Watch for FileWatch {
    async fn changed(&mut self, at_most: Duration) -> Result<bool, StoreError> {
        let began = Instant::now();
        loop {
            if self.is_closed.load(Ordering::Acquire) {
                return Err(StoreError::Closed);
            }
            if self.read()? || self.again_at.take_if(|at| *at <= Instant::now()).is_some() {
                return Ok(true);
            }
            let left = at_most.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(self.is_deaf());
            }
            let to_again = self.again_at.map(|at| at.saturating_duration_since(Instant::now()));
            self.wait(to_again.unwrap_or(left).min(left)).await?;
        }
    }
}
