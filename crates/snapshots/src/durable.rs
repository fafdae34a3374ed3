//! Makes snapshots durable: the objects that a turn needs, and the notes of its session.
//!
//! Taking a snapshot syncs nothing. Before a turn is stored with the names of its snapshots, their new objects become one pack: a sync of the pack,
//! of its index, of the notes, and of the folder of all three. `syncfs` would wait for the pages of all other programs (decision 9).
//!
//! The index of a worktree, and the files beside it, are never synced. They are caches: what a power loss leaves of them is checked.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use azureal_files::Folder;
use tracing::{info, warn};

use crate::error::{At, Error};
use crate::git::{Deadline, PATIENT};
use crate::import::NAME;
use crate::loose::{Condition, Loose, loose, remove};
use crate::notes::{pins, sync_notes};
use crate::packs::{Effort, is_much};
use crate::places::read_start;
use crate::project_index::{ProjectIndex, hex};
use crate::state::State;
use crate::take::LOCK;
use crate::worktree::{Home, Worktree};

/// The bound on an index.
const INDEX: u64 = 1024 * 1024 * 1024;

impl Worktree {
    /// Makes two snapshots of a session durable: what differs between them, and their notes. They survive a power loss when this returns.
    ///
    /// # Errors
    ///
    /// Git reports an error, or our folder in the git directory cannot be used.
    pub fn make_durable(&self, session: &str, before: &str, after: &str) -> Result<(), Error> {
        let home = self.open_home()?;
        self.sync_snapshots(&home, session, before, after)?;
        // Another process may take a snapshot: the next one then checks the objects of the index.
        if let Ok(_lock) = home.lock(LOCK) {
            note_durable(&home)?;
        }
        Ok(())
    }

    /// Checks that all that differs between two snapshots is stored. A power loss may leave a part of what was not durable yet.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if it is not.
    pub fn check_whole(&self, before: &str, after: &str) -> Result<(), Error> {
        let deadline = Deadline::after(PATIENT);
        let differing = self.differing(before, after, deadline).map_err(|error| error.of_objects(before))?;
        match self.sizes(&self.borrowing(), differing, deadline)?.missing.len() {
            0 => Ok(()),
            count => Err(Error::Damaged {
                tree: before.to_owned(),
                why: format!("{count} of its objects are missing"),
            }),
        }
    }

    /// Does the same as [`make_durable`](Self::make_durable) for a caller that holds the lock of the worktree.
    pub(crate) fn make_durable_held(
        &self,
        home: &Home,
        session: &str,
        before: &str,
        after: &str,
    ) -> Result<(), Error> {
        self.sync_snapshots(home, session, before, after)?;
        note_durable(home)
    }

    fn sync_snapshots(&self, home: &Home, session: &str, before: &str, after: &str) -> Result<(), Error> {
        let mut found = loose(&home.objects)?;
        if is_much(&found) {
            // As after a first snapshot of many files. The others are packed when nobody waits.
            let mut needed = self.differing(before, after, Deadline::after(PATIENT))?;
            let named = pins(home)?.into_iter().filter(|pin| pin.tree == before || pin.tree == after);
            needed.extend(named.filter_map(|pin| pin.rules));
            found.retain(|object| needed.contains(&object.id));
        }
        let pack = |found: &[Loose]| {
            self.write_pack(home, found.iter().map(|object| object.id.as_str()), Effort::Quick)
        };
        if let Err(error @ Error::Git { .. }) = pack(&found) {
            // Another process has removed some, or they are damaged.
            warn!(%error, "packs the objects of a turn again");
            let is_left =
                |object: &Loose| matches!(object.condition(Deadline::after(PATIENT)), Ok(Condition::Sound));
            found.retain(is_left);
            pack(&found)?;
        }
        sync_notes(home, session)?;
        home.packs.sync().at(&home.packs.join(""))?;
        remove(&found)
    }

    /// Makes the folders durable that lead to the packs, and to the journal of an undo.
    pub(crate) fn sync_folders(&self, home: &Home) -> Result<(), Error> {
        let path = home.repository.join("worktrees");
        let worktrees = home.repository.open_folder(OsStr::new("worktrees")).at(&path)?;
        for (folder, name) in [(&home.objects, "objects"), (&worktrees, "worktrees"), (&home.repository, "")]
        {
            folder.sync().at(&self.home.join(name))?;
        }
        // The folder of azureal, and the git directory.
        for above in self.home.ancestors().skip(1).take(2) {
            fs::File::open(above).and_then(|folder| folder.sync_all()).at(above)?;
        }
        Ok(())
    }

    /// Checks what an earlier process has left: after a power loss, files that were not synced are empty, cut or missing. What is damaged is
    /// removed, so that it is written again.
    pub(crate) fn check_caches(
        &self,
        home: &Home,
        state: &mut State,
        deadline: Deadline<'_>,
    ) -> Result<(), Error> {
        let index = home.own.join(NAME);
        if state.index != stamp(&index) {
            // Its objects may be others than those that the state knows of.
            (state.is_current, state.is_durable) = (false, false);
            if index.exists() && self.index_ids(&index).is_none() {
                warn!("the index of the snapshots is damaged, and is made again");
                home.own.remove(OsStr::new(NAME)).at(&index)?;
            }
        }
        if self.is_checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let damaged = damaged(&home.objects, deadline)?;
        if !damaged.is_empty() {
            warn!(objects = damaged.len(), "objects of snapshots are damaged, and are written again");
            self.remove_free_indexes(home)?;
            damaged.iter().try_for_each(Loose::remove)?;
        } else if !state.is_durable
            && let Some(ids) = self.index_ids(&index)
            && !self.sizes(&self.borrowing(), ids, deadline)?.missing.is_empty()
        {
            info!("objects of the index of the snapshots are missing, so it is made again");
            home.own.remove(OsStr::new(NAME)).at(&index)?;
        }
        state.is_current &= state.is_durable && damaged.is_empty();
        self.is_checked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes our index, and those of other worktrees that no process uses: each may refer to an object that is removed. Without its index, a
    /// snapshot that is being taken would have no file. It asks for each object itself, and is taken again if one is missing.
    fn remove_free_indexes(&self, home: &Home) -> Result<(), Error> {
        home.own.remove(OsStr::new(NAME)).at(&home.own.join(NAME))?;
        let path = home.repository.join("worktrees");
        let worktrees = home.repository.open_folder(OsStr::new("worktrees")).at(&path)?;
        for name in worktrees.names().at(&path)?.into_iter().filter(|name| *name != self.places.name()) {
            let Ok(worktree) = worktrees.open_folder(&name) else { continue };
            let lock = match worktrees.open_folder(&name).at(&path)?.hold(Duration::ZERO) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                lock => lock.at(&path)?,
            };
            worktree.remove(OsStr::new(NAME)).at(&worktree.join(NAME))?;
            drop(lock);
        }
        Ok(())
    }

    /// Returns the ids of the files in an index of ours. `None` if it is damaged.
    pub(crate) fn index_ids(&self, index: &Path) -> Option<std::collections::BTreeSet<String>> {
        let (bytes, format) = (read_start(index, INDEX)?, self.places.format);
        let index = ProjectIndex::parse(&bytes, format, &mut |_: &[u8]| true, |_| false).ok()?;
        index.is_sound().then(|| index.entries.iter().map(|entry| hex(entry.id(format))).collect())
    }
}

/// Finds the damaged ones of the objects that are in no pack.
pub(crate) fn damaged(objects: &Folder, deadline: Deadline<'_>) -> Result<Vec<Loose>, Error> {
    let mut damaged = Vec::new();
    for object in loose(objects)? {
        if object.condition(deadline)? == Condition::Damaged {
            damaged.push(object);
        }
    }
    Ok(damaged)
}

/// Removes the indexes of all worktrees: each may refer to an object that is removed. The caller holds the locks of all.
pub(crate) fn remove_indexes(home: &Home) -> Result<(), Error> {
    let path = home.repository.join("worktrees");
    let worktrees = home.repository.open_folder(OsStr::new("worktrees")).at(&path)?;
    for name in worktrees.names().at(&path)? {
        if let Ok(worktree) = worktrees.open_folder(&name) {
            worktree.remove(OsStr::new(NAME)).at(&worktree.join(NAME))?;
        }
    }
    Ok(())
}

/// Notes that all objects of our index are durable, if none is left in a file of its own.
fn note_durable(home: &Home) -> Result<(), Error> {
    let state = State::read(home);
    if state.is_durable || !loose(&home.objects)?.is_empty() {
        return Ok(());
    }
    State { is_durable: true, ..state }.write(home)
}

/// Returns a text that differs if an index was replaced or changed. `None` if there is none.
pub(crate) fn stamp(index: &Path) -> Option<String> {
    let found = fs::metadata(index).ok()?;
    Some(format!("{}:{}:{}.{}", found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}
