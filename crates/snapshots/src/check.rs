//! Checks of snapshots. They change nothing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use azureal_files::Folder;

use crate::error::{At, Error};
use crate::git::Deadline;
use crate::worktree::{Worktree, read};

/// The time limit of the check.
const TIME: Duration = Duration::from_secs(60);

/// The result of [`Worktree::check_snapshots`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotCheck {
    /// The number of snapshots whose note can be read.
    pub snapshots: usize,
    /// The size of all objects, in bytes.
    pub size: u64,
    /// Notes of snapshots that cannot be read.
    pub unreadable: Vec<PathBuf>,
    /// Notes of snapshots whose objects are gone, so that their changes cannot be shown or undone.
    pub lost: Vec<PathBuf>,
}

impl Worktree {
    /// Checks the snapshots of all worktrees of the repository.
    ///
    /// # Errors
    ///
    /// Our folder in the git directory, or git, cannot be used.
    pub fn check_snapshots(&self) -> Result<SnapshotCheck, Error> {
        let mut check = SnapshotCheck::default();
        let path = self.home.join("sessions");
        let sessions =
            match Folder::open(&self.home).and_then(|home| home.open_folder(OsStr::new("sessions"))) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(check),
                sessions => sessions.at(&path)?,
            };
        let mut notes = Vec::new();
        for session in sessions.names().at(&path)? {
            let Ok(folder) = sessions.open_folder(&session) else {
                check.unreadable.push(path.join(&session));
                continue;
            };
            for name in folder.names().at(&path)? {
                let tree = name.to_str().and_then(|name| read(&folder, name));
                let tree =
                    tree.and_then(|tree| String::from_utf8(tree).ok()).filter(|tree| crate::is_id(tree));
                let note = path.join(&session).join(&name);
                match tree {
                    Some(tree) => notes.push((tree, note)),
                    // It was removed meanwhile.
                    None if !note.exists() => {}
                    None => check.unreadable.push(note),
                }
            }
        }
        check.snapshots = notes.len();
        check.size = self.size();
        if !notes.is_empty() {
            let trees: BTreeSet<String> = notes.iter().map(|(tree, _)| tree.clone()).collect();
            let missing = self.sizes(&self.borrowing(), trees, Deadline::after(TIME))?.missing;
            let lost = notes.into_iter().filter(|(tree, note)| missing.contains(tree) && note.exists());
            check.lost = lost.map(|(_, note)| note).collect();
        }
        check.unreadable.sort();
        check.lost.sort();
        Ok(check)
    }
}
