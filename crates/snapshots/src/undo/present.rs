//! A file as it is now.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Dir, Mode, OFlags};

use crate::beneath::{Beneath, Found};
use crate::compare::Version;
use crate::places::Case;

use super::blobs::Blobs;
use super::identity::Identity;

/// The number of files that are looked at in a folder that has to go.
const MOST: usize = 100_000;
const EXECUTABLE: u32 = 0o100;
const LINK: u32 = 0o120_000;

/// A file as it is now, and its identity from before it was read.
pub(crate) struct Now {
    pub(crate) present: Present,
    /// `None` if there is no file.
    pub(crate) identity: Option<Identity>,
}

/// The content of a file as it is now.
pub(crate) enum Present {
    Missing,
    Folder,
    File {
        file: File,
        length: u64,
        is_executable: bool,
    },
    Link(Vec<u8>),
    /// Something that no snapshot has.
    Other,
}

impl Now {
    pub(crate) fn of(path: &[u8], case: Case, beneath: &mut Beneath) -> io::Result<Self> {
        let found = match beneath.look(path)? {
            // It is another path of the snapshots.
            found if case.is_one_file && found.file().is_some() && !beneath.is_named(path)? => Found::Missing,
            found => found,
        };
        let identity = found.file().map(Identity::of);
        let present = match found {
            Found::Missing | Found::Blocked => Present::Missing,
            Found::Folder => Present::Folder,
            Found::Unreadable(_) | Found::Other(_) => Present::Other,
            Found::Link(_) => {
                let (folder, name) = beneath.parent(path)?;
                Present::Link(rustix::fs::readlinkat(&folder, name, Vec::new())?.into_bytes())
            }
            Found::File(_) => {
                let (folder, name) = beneath.parent(path)?;
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = File::from(rustix::fs::openat(&folder, name, flags, Mode::empty())?);
                let stat = rustix::fs::fstat(&file)?;
                let length = u64::try_from(stat.st_size).unwrap_or(0);
                #[allow(clippy::useless_conversion, reason = "its width differs between systems")]
                let is_executable = u32::from(stat.st_mode) & EXECUTABLE != 0;
                Present::File { file, length, is_executable }
            }
        };
        Ok(Self { present, identity })
    }
}

impl Present {
    /// Returns whether the file is this version; `None` stands for no file.
    pub(crate) fn is(&self, version: Option<&Version>, blobs: &Blobs) -> io::Result<bool> {
        match (self, version) {
            (Self::Missing, None) => Ok(true),
            (Self::Link(target), Some(version)) if version.mode == LINK => {
                Ok(blobs.read(&version.id)? == *target)
            }
            (Self::File { file, length, is_executable }, Some(version)) if version.mode != LINK => {
                if *is_executable != (version.mode & EXECUTABLE != 0) {
                    return Ok(false);
                }
                let mut file = file;
                io::Seek::rewind(&mut file)?;
                blobs.is_content_of(&version.id, &mut file, *length)
            }
            _ => Ok(false),
        }
    }
}

/// Returns whether a folder has no files but those in `moved`.
pub(crate) fn is_emptied(
    folder: &[u8],
    moved: &BTreeSet<Vec<u8>>,
    beneath: &mut Beneath,
) -> io::Result<bool> {
    let mut folders = vec![folder.to_vec()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        let opened = beneath.open_folder(&folder)?;
        for entry in Dir::read_from(&opened)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            seen += 1;
            let path = [&folder, &b"/"[..], name].concat();
            match beneath.look(&path)? {
                // Also of a nested repository.
                Found::Folder if seen < MOST && name != std::ffi::OsStr::new(".git").as_bytes() => {
                    folders.push(path);
                }
                _ if moved.contains(&path) => {}
                _ => return Ok(false),
            }
        }
    }
    Ok(true)
}
