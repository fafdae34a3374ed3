//! Takes a snapshot.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use azureal_process::ProcessIdentity;
use rustix::fs::{FlockOperation, OFlags};
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use tracing::{debug, info};

use crate::align::{Alignment, write_forced};
use crate::beneath::Beneath;
use crate::durable::stamp;
use crate::error::{At, Error};
use crate::git::{Deadline, args};
use crate::import::NAME;
use crate::pipes::Pipes;
use crate::scan::{Skipped, Update};
use crate::state::State;
use crate::worktree::{Home, Worktree, write};

/// The list of files that are being hashed. Locked as long as git reads it, also by a git that outlives us.
pub(crate) const PENDING: &str = "pending";
/// That git, and when it was left in the background.
const PENDING_GIT: &str = "pending.git";
/// The time that a short change of the state waits for a process that takes a snapshot.
pub(crate) const LOCK: Duration = Duration::from_secs(2);
/// The longest time that it may take.
const LONGEST_HASHING: Duration = Duration::from_secs(600);
/// The errors of that git.
const PENDING_ERRORS: &str = "pending.errors";
const INDEX_LOCK: &str = "index.lock";
/// After so many snapshots in a row that took too long, no more are taken.
const TOO_SLOW: u32 = 3;
/// The priority of work that no turn waits for.
const NICE: i32 = 19;

/// The limits of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The time that a turn waits: 1.9 s, so that with all around it a turn is not delayed by more than 2 s.
    pub time: Duration,
    /// The size of a file that the snapshots do not know yet: 10 MB.
    pub new_file: u64,
    /// The size of a file that the project or an earlier snapshot has: 50 MB.
    pub known_file: u64,
    /// The size of all files that changed since the last snapshot: 1 GB.
    pub total: u64,
    /// Whether a turn begins with the snapshot. Then files that are ignored by now, and not tracked, leave the snapshots, and the names of what is ignored are
    /// recorded. After a turn these files stay, or they would seem to be deleted by it.
    pub drops_ignored: bool,
    /// The first snapshot of the turn that ends. What it has is recorded again, also if it is ignored by now.
    pub since: Option<String>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_millis(1_900),
            new_file: 10_000_000,
            known_file: 50_000_000,
            total: 1_000_000_000,
            drops_ignored: false,
            since: None,
        }
    }
}

/// The files of a worktree at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The id of the tree, which names the snapshot.
    pub tree: String,
    /// Files that are named and not stored, and folders that are left out; at most 1,000.
    pub skipped: Vec<Skipped>,
}

/// The result of [`Worktree::take`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// A snapshot of all files.
    Whole(Snapshot),
    /// It took too long, and was given up. The files are hashed in the background, so that the next one is quick.
    TooSlow {
        /// It was the third in a row: from now on none are taken in this worktree.
        now_off: bool,
    },
    /// No snapshots are taken in this worktree: [`Worktree::turn_on`] resumes them.
    Off,
    /// The caller no longer waits.
    Cancelled,
}

impl Worktree {
    /// Takes a snapshot for a session, which keeps it until [it is removed](Self::remove_session) or pruned.
    ///
    /// # Errors
    ///
    /// Git reports an error, or our folder in the git directory cannot be used.
    pub fn take(&self, session: &str, limits: &Limits, cancelled: &dyn Fn() -> bool) -> Result<Taken, Error> {
        let started = Instant::now();
        let home = match self.open_home() {
            Err(Error::Busy) => return Ok(Taken::TooSlow { now_off: false }),
            home => home?,
        };
        let _lock = match home.lock(limits.time) {
            Err(Error::Busy) => return Ok(Taken::TooSlow { now_off: false }),
            lock => lock?,
        };
        self.recover_held(&home)?;
        if State::read(&home).is_off {
            return Ok(Taken::Off);
        }
        let left = Limits { time: limits.time.saturating_sub(started.elapsed()), ..limits.clone() };
        self.take_held(&home, Some(session), &left, cancelled)
    }

    /// Takes a snapshot, also if they are off. The caller holds the lock of the worktree. Without a session, nobody keeps it.
    pub(crate) fn take_held(
        &self,
        home: &Home,
        session: Option<&str>,
        limits: &Limits,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Taken, Error> {
        let started = SystemTime::now();
        let pipes = Pipes::new(&self.places.root);
        let is_cancelled = || {
            pipes.release();
            cancelled()
        };
        let deadline = Deadline { started: Instant::now(), limit: limits.time, cancelled: &is_cancelled };
        let mut state = State::read(home);
        let Some(pending) = self.begin(home)? else { return Ok(Taken::TooSlow { now_off: false }) };
        let mut taken = self.take_locked(home, &mut state, &pending, limits, deadline);
        for is_last in [false, true] {
            if !matches!(taken, Err(Error::Git { .. })) {
                break;
            }
            // A file can vanish or change its kind while git reads it.
            debug!(error = ?taken, "takes the snapshot again");
            // Git leaves it if it dies of a file that becomes shorter while it is read.
            home.own.remove(OsStr::new(INDEX_LOCK)).at(&home.own.join(INDEX_LOCK))?;
            if is_last {
                // Git refuses our index, which is a cache.
                home.own.remove(OsStr::new(NAME)).at(&home.own.join(NAME))?;
            }
            taken = self.take_locked(home, &mut state, &pending, limits, deadline);
        }
        let now = UNIX_EPOCH.elapsed().unwrap_or_default();
        match taken {
            Ok(Some((snapshot, rules))) => {
                set_time(home, started)?;
                state.slow = 0;
                state.index = stamp(&home.own.join(NAME));
                if state != State::read(home) {
                    state.write(home)?;
                }
                if let Some(session) = session {
                    self.pin(home, session, now, &snapshot.tree, Some(rules))?;
                }
                debug!(ms = deadline.started.elapsed().as_millis(), tree = snapshot.tree, "took a snapshot");
                Ok(Taken::Whole(snapshot))
            }
            Ok(None) | Err(Error::Slow { .. } | Error::TooMuch { .. }) if !cancelled() => {
                state.slow += 1;
                state.is_off = state.slow >= TOO_SLOW;
                state.write(home)?;
                info!(slow = state.slow, off = state.is_off, "gave up a snapshot");
                Ok(Taken::TooSlow { now_off: state.is_off })
            }
            Ok(None) | Err(Error::Slow { .. } | Error::TooMuch { .. }) => Ok(Taken::Cancelled),
            Err(error) => Err(error),
        }
    }

    /// Takes snapshots again in this worktree, after they were too slow.
    ///
    /// # Errors
    ///
    /// Our folder in the git directory cannot be used.
    pub fn turn_on(&self) -> Result<(), Error> {
        let home = self.open_home()?;
        let _lock = home.lock(LOCK)?;
        State { is_off: false, slow: 0, ..State::read(&home) }.write(&home)
    }

    /// Locks the list of files to hash. `None` if a git in the background still reads it.
    fn begin(&self, home: &Home) -> Result<Option<Pending>, Error> {
        let name = OsStr::new(PENDING);
        let path = home.own.join(name);
        let file = match home.own.open_file(name, OFlags::RDWR) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => home.own.create_file(name, OFlags::RDWR),
            opened => opened,
        };
        let file = file.at(&path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                end_stuck(home);
                return Ok(None);
            }
            locked => locked.at(&path)?,
        }
        // A git that was killed left it.
        home.own.remove(OsStr::new(INDEX_LOCK)).at(&home.own.join(INDEX_LOCK))?;
        Ok(Some(Pending { file, is_shared: Cell::new(false) }))
    }

    /// Takes the snapshot. `None` if hashing takes longer than a turn waits.
    fn take_locked(
        &self,
        home: &Home,
        state: &mut State,
        pending: &Pending,
        limits: &Limits,
        deadline: Deadline<'_>,
    ) -> Result<Option<(Snapshot, String)>, Error> {
        let mut beneath = Beneath::open(&self.places.root).at(&self.places.root)?;
        self.check_caches(home, state, deadline)?;
        let index = home.own.join(NAME);
        // Since that snapshot none has changed our index.
        let since = limits.since.as_deref().filter(|since| state.tree.as_deref() != Some(*since));
        let (update, known) = if index.exists() {
            let listing = self.scan(home, &index, state.is_current, limits, deadline)?;
            let mut aligned = self.align(home, &index, &listing, state, limits, deadline)?;
            let dropped = self.dropped_since(since, &index, deadline)?;
            if !dropped.is_empty() {
                state.aligned = None;
                aligned.forced.extend(dropped);
            }
            (listing.update(&mut beneath, &[], &aligned)?, state.tree.clone().filter(|_| state.is_current))
        } else {
            self.first_update(home, &mut beneath, state, limits, deadline)?
        };
        if update.is_empty()
            && let Some(tree) = known
        {
            return self.finish(state, tree, update, limits, deadline).map(Some);
        }
        if update.bytes > limits.total {
            info!(bytes = update.bytes, "too much has changed for a snapshot");
            return Ok(None);
        }
        (state.is_current, state.is_durable) = (false, false);
        state.write(home)?;
        if !self.apply(home, &update, pending, deadline)? {
            return Ok(None);
        }
        if update.is_partial {
            return self.take_locked(home, state, pending, limits, deadline);
        }
        let git = self.borrowing().with("GIT_INDEX_FILE", &index);
        let empty = self.places.format.empty_tree();
        let written = has_entries(&index).and_then(|has_entries| {
            let output = git.run(&args(["write-tree"]), Vec::new(), deadline)?;
            // Of an index that is not there, git writes the tree without files, and an index without entries.
            if has_entries && output.starts_with(empty.as_bytes()) {
                Err(index_is_gone())
            } else {
                Ok(output)
            }
        });
        if matches!(written, Err(Error::Git { .. })) {
            // The project's git removed objects that our index refers to: it is copied again. Or another process removed our index.
            home.own.remove(OsStr::new(NAME)).at(&index)?;
        }
        let output = written?;
        let tree = String::from_utf8_lossy(&output).trim().to_owned();
        if !crate::is_id(&tree) {
            return Err(Error::NoSnapshot(tree));
        }
        self.finish(state, tree, update, limits, deadline).map(Some)
    }

    /// Copies the project's index as our first one. Returns what to change in it, and its tree if that is known.
    fn first_update(
        &self,
        home: &Home,
        beneath: &mut Beneath,
        state: &mut State,
        limits: &Limits,
        deadline: Deadline<'_>,
    ) -> Result<(Update, Option<String>), Error> {
        // It refers to objects of the project.
        (state.is_current, state.is_durable) = (false, true);
        let draft = self.import(home, beneath, deadline)?;
        let forced = self.start_ignored(home, &draft.path)?;
        let listing = self.scan(home, &draft.path, true, limits, deadline)?;
        state.aligned = Some(self.stamp(home));
        write_forced(home, &forced.finish(deadline)?)?;
        self.keep_loose(&draft.index, limits.known_file, deadline);
        let forced = self.dropped_since(limits.since.as_deref(), &draft.path, deadline)?;
        if !forced.is_empty() {
            state.aligned = None;
        }
        let aligned = Alignment { forced, ..Alignment::default() };
        let imported = draft.finish(self, home, deadline)?;
        Ok((listing.update(beneath, &imported.converted, &aligned)?, imported.tree))
    }

    /// Records that our index has the files of a tree, and keeps the objects that it needs. Returns the snapshot, and the id of the
    /// rules by which it leaves files out.
    fn finish(
        &self,
        state: &mut State,
        tree: String,
        update: Update,
        limits: &Limits,
        deadline: Deadline<'_>,
    ) -> Result<(Snapshot, String), Error> {
        let rules = self.start_storing(&self.present_rules(&update)?)?.finish(deadline)?;
        if let Some(before) = state.tree.as_ref().filter(|before| **before != tree) {
            match self.keep(before, &tree, limits.known_file, deadline) {
                // The project's git removed objects of the snapshot before: this one begins a new row.
                Err(Error::Git { command, message }) => debug!(command, message, "the last snapshot is gone"),
                kept => kept?,
            }
        }
        state.tree = Some(tree.clone());
        state.is_current = true;
        Ok((Snapshot { tree, skipped: update.skipped }, rules))
    }

    /// Changes our index. Returns whether it was done in time; git continues in the background if not.
    fn apply(
        &self,
        home: &Home,
        update: &Update,
        pending: &Pending,
        deadline: Deadline<'_>,
    ) -> Result<bool, Error> {
        update.write_large(home)?;
        let git = self.in_worktree(&home.own.join(NAME));
        if !update.entries.is_empty() {
            let command = args(["update-index", "-z", "--index-info"]);
            git.run(&command, update.entries.clone(), deadline)?;
        }
        if update.files.is_empty() {
            return Ok(true);
        }
        let path = home.own.join(PENDING);
        let mut list = &pending.file;
        let written = list.rewind().and_then(|()| list.set_len(0));
        written.and_then(|()| list.write_all(&update.files)).and_then(|()| list.rewind()).at(&path)?;
        home.own.remove(OsStr::new(PENDING_ERRORS)).at(&home.own.join(PENDING_ERRORS))?;
        let errors = home.own.create_file(OsStr::new(PENDING_ERRORS), OFlags::RDWR | OFlags::APPEND);
        let errors = errors.at(&home.own.join(PENDING_ERRORS))?;
        let command = args(["update-index", "-z", "--add", "--remove", "--replace", "--stdin"]);
        // Files, so that git continues when this process ends. The child shares the lock of the list.
        let running =
            git.start_apart(&command, pending.file.try_clone().at(&path)?, errors.try_clone().at(&path)?)?;
        if !running.ends_within(deadline) {
            let pid = i32::try_from(running.child.pid()).ok().and_then(Pid::from_raw);
            // It has ended meanwhile, if there is an error.
            setpriority_process(pid, NICE).ok();
            pending.is_shared.set(true);
            note_running(home, running.child.pid())?;
            return Ok(false);
        }
        if !running.child.wait().success() {
            let message = azureal_process::Excerpt::of_file(&errors, 4096).at(&path)?.to_string();
            return Err(Error::Git {
                command: "update-index".to_owned(),
                message: message.trim().to_owned(),
            });
        }
        Ok(true)
    }
}

/// Returns whether our index has an entry. It is an error if there is no index: the snapshot is taken again.
fn has_entries(index: &Path) -> Result<bool, Error> {
    // A mark, the version, and the number of entries.
    let mut header = [0; 12];
    let read = File::open(index).and_then(|mut file| file.read_exact(&mut header));
    read.map_err(|_| index_is_gone())?;
    Ok(header.last_chunk::<4>() != Some(&[0; 4]))
}

fn index_is_gone() -> Error {
    Error::Git { command: "write-tree".to_owned(), message: "the index was removed".to_owned() }
}

/// Notes a git that continues in the background.
fn note_running(home: &Home, pid: u32) -> Result<(), Error> {
    let Some(ProcessIdentity { pid, started }) = ProcessIdentity::of(pid) else { return Ok(()) };
    write(&home.own, PENDING_GIT, format!("{pid} {started}").as_bytes()).at(&home.own.join(PENDING_GIT))
}

/// Kills a git in the background that takes too long: it may wait for a file that never ends.
fn end_stuck(home: &Home) {
    let noted_at = home.own.modified(OsStr::new(PENDING_GIT));
    let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let age = now.saturating_sub(u64::try_from(noted_at).unwrap_or(0));
    let note = home.read(PENDING_GIT).and_then(|note| String::from_utf8(note).ok()).unwrap_or_default();
    let Some((pid, started)) = note.split_once(' ') else { return };
    let Ok(pid) = pid.parse() else { return };
    let identity = ProcessIdentity { pid, started: started.to_owned() };
    if age > LONGEST_HASHING.as_secs()
        && identity.is_alive()
        && let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
    {
        info!(age, "ends a git in the background that takes too long");
        // It has ended meanwhile, if there is an error.
        kill_process(pid, Signal::KILL).ok();
    }
}

/// The list of files to hash, locked.
struct Pending {
    file: File,
    /// A git in the background reads it.
    is_shared: Cell<bool>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Not by closing it: for a moment, any process that another thread starts has it open too.
        if !self.is_shared.get() {
            rustix::fs::flock(&self.file, FlockOperation::Unlock).ok();
        }
    }
}

/// Sets the time of our index back to the beginning of the snapshot. Git then reads files with a later time again, as a change after
/// they were hashed need not show in their time.
fn set_time(home: &Home, started: SystemTime) -> Result<(), Error> {
    let name = OsStr::new(NAME);
    let file = home.own.open_file(name, OFlags::RDWR).at(&home.own.join(name))?;
    file.set_modified(started).at(&home.own.join(name))
}
