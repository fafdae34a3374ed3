//! A cache of facts about programs, in files of the user.
//!
//! An entry is valid while the program's file is the same: path, identity, size and times. A cache that cannot be
//! read, or that other users could have written, counts as empty.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tracing::debug;

/// The longest cache that is read.
const CACHE_BYTES: u64 = 64 * 1024;
/// The number of programs in a cache.
const ENTRIES: usize = 16;

/// The file of a program, and the state in which it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Package managers set the time of modification to that of the package. This one they cannot set.
    changed: (i64, i64),
}

impl ProgramFile {
    /// Describes the file that a path leads to; `None` if there is none.
    pub fn of(program: &Path) -> Option<Self> {
        let path = fs::canonicalize(program).ok()?;
        let found = fs::metadata(&path).ok()?;
        Some(Self {
            path,
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// A cache of what is known of programs.
#[derive(Debug)]
pub(super) struct ProgramCache<T> {
    folder: Option<PathBuf>,
    name: &'static str,
    /// The newest last.
    entries: Vec<Entry<T>>,
}

/// An entry of a [`ProgramCache`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry<T> {
    program: ProgramFile,
    known: T,
}

impl<T: Serialize + DeserializeOwned> ProgramCache<T> {
    /// Reads the cache of this name in a folder. Without a folder there is no caching.
    pub(super) fn load(folder: Option<PathBuf>, name: &'static str) -> Self {
        let read = |folder: &Path| Ok(serde_json::from_slice(&read_private(&folder.join(name))?)?);
        let entries = folder.as_deref().map(read).transpose().unwrap_or_else(|error: io::Error| {
            debug!(cache = name, reason = %error.kind(), "ignored a cache");
            None
        });
        let entries = entries.unwrap_or_default();
        Self { folder, name, entries }
    }

    /// Returns what is known of a program that has not changed since.
    pub(super) fn get(&self, program: &ProgramFile) -> Option<&T> {
        let found = self.entries.iter().rev().find(|entry| entry.program == *program);
        found.map(|entry| &entry.known)
    }

    /// Adds what is known of a program, and forgets what was known before.
    pub(super) fn add(&mut self, program: ProgramFile, known: T) {
        self.entries.retain(|entry| entry.program.path != program.path);
        self.entries.push(Entry { program, known });
        let too_many = self.entries.len().saturating_sub(ENTRIES);
        self.entries.drain(..too_many);
    }

    /// Writes the cache. A cache that cannot be written is not missed.
    pub(super) fn save(&self) {
        if let Some(folder) = &self.folder
            && let Err(error) = self.write_to(folder)
        {
            debug!(cache = self.name, reason = %error.kind(), "could not write a cache");
        }
    }

    fn write_to(&self, folder: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // Only the user can read it, and it appears whole.
        let mut file = NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&mut file, &self.entries)?;
        file.flush()?;
        file.persist(folder.join(self.name))?;
        Ok(())
    }
}

/// Reads a file that belongs to the user and that no other user can write.
fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    let is_private = found.is_file()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() & 0o022 == 0
        && found.len() <= CACHE_BYTES;
    if !is_private {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    file.take(CACHE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Describes a program of this path that need not be there.
    pub(in crate::agents) fn program(path: &str) -> ProgramFile {
        let path = PathBuf::from(path);
        ProgramFile { path, device: 1, inode: 2, size: 3, modified: (4, 5), changed: (6, 7) }
    }

    fn load(folder: &Path) -> ProgramCache<String> {
        ProgramCache::load(Some(folder.to_owned()), "known.json")
    }

    #[test]
    fn what_is_known_holds_until_the_program_changes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        let mut cache = load(&folder);
        cache.add(program("/a"), "1.0".to_owned());
        cache.save();
        let cache = load(&folder);
        assert_eq!(cache.get(&program("/a")).map(String::as_str), Some("1.0"));
        assert_eq!(cache.get(&program("/b")), None);
        assert_eq!(cache.get(&ProgramFile { changed: (6, 8), ..program("/a") }), None);
        assert_eq!(cache.get(&ProgramFile { size: 4, ..program("/a") }), None);
        for (path, mode) in [(folder.join("known.json"), 0o600), (folder.clone(), 0o700)] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode);
        }
    }

    #[test]
    fn a_cache_that_is_not_ours_counts_as_empty() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("known.json");
        let mut cache = load(folder.path());
        cache.add(program("/a"), "1.0".to_owned());
        cache.save();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(load(folder.path()).entries, []);
        for text in ["", "[", "{}", "[{\"path\":1}]", &"[".repeat(100_000)] {
            fs::remove_file(&file).unwrap();
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(load(folder.path()).entries, [], "{text:.20}");
        }
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert_eq!(load(folder.path()).entries, []);
        // It is replaced, not written through.
        cache.save();
        assert_eq!(load(folder.path()).entries, cache.entries);
        assert!(ProgramCache::<String>::load(None, "known.json").entries.is_empty());
    }

    #[test]
    fn the_cache_does_not_grow() {
        let mut cache = ProgramCache::load(None, "known.json");
        for number in 0..100 {
            cache.add(program(&format!("/{number}")), "1.0".to_owned());
            cache.add(program("/same"), "1.0".to_owned());
        }
        assert_eq!(cache.entries.len(), ENTRIES);
    }
}
