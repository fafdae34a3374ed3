//! Pipes in the place of files that git reads in a worktree.
//!
//! Git opens such a pipe and waits for a writer. As soon as there is one it sees that the pipe has no size, and continues as with an empty file. So a
//! snapshot that waits for git looks for these pipes, and opens each for writing for a moment.

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Dir, FileType, Mode, OFlags};

use crate::beneath::Beneath;

/// Git is mostly ready before. Only after this time the worktree is searched.
const PATIENCE: Duration = Duration::from_millis(300);
/// The most entries of folders that are looked at.
const MOST: usize = 500_000;
const NAMES: [&[u8]; 2] = [b".gitignore", b".gitattributes"];

pub(crate) struct Pipes<'a> {
    root: &'a Path,
    began: Instant,
    found: RefCell<Option<Found>>,
}

struct Found {
    beneath: Beneath,
    paths: Vec<Vec<u8>>,
}

impl<'a> Pipes<'a> {
    pub(crate) fn new(root: &'a Path) -> Self {
        Self { root, began: Instant::now(), found: RefCell::new(None) }
    }

    /// Lets a git continue that waits for a writer. Called repeatedly.
    pub(crate) fn release(&self) {
        if self.began.elapsed() < PATIENCE {
            return;
        }
        let mut found = self.found.borrow_mut();
        if found.is_none() {
            *found = search(self.root);
        }
        let Some(Found { beneath, paths }) = found.as_mut() else { return };
        for path in paths {
            let Ok((folder, name)) = beneath.parent(path) else { continue };
            // An error unless a program waits for a writer.
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if rustix::fs::openat(&folder, name, flags, Mode::empty()).is_ok() {
                tracing::debug!(path = %String::from_utf8_lossy(path), "git reads a pipe as an empty file");
            }
        }
    }
}

/// Finds the pipes of a worktree. `None` if its top cannot be opened.
fn search(root: &Path) -> Option<Found> {
    let mut beneath = Beneath::open(root).ok()?;
    let (mut folders, mut paths, mut seen) = (vec![Vec::new()], Vec::new(), 0);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = beneath.open_folder(&folder).and_then(|opened| Dir::read_from(&opened)) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            seen += 1;
            if seen > MOST {
                return Some(Found { beneath, paths });
            }
            let path = if folder.is_empty() { name.to_vec() } else { [&folder, &b"/"[..], name].concat() };
            match entry.file_type() {
                FileType::Directory if !matches!(name, b"." | b".." | b".git") => folders.push(path),
                FileType::Fifo if NAMES.contains(&name) => paths.push(path),
                _ => {}
            }
        }
    }
    Some(Found { beneath, paths })
}
