//! Files beneath a directory handle, reached without following a link.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// The top of a worktree, open. Remembers the folders of the last path, as lists of files are sorted.
pub(crate) struct Beneath {
    root: Arc<OwnedFd>,
    last: Vec<(Vec<u8>, Arc<OwnedFd>)>,
}

/// What is at a path.
#[derive(Debug)]
pub(crate) enum Found {
    /// No file.
    Missing,
    /// One of its folders is a link or a file.
    Blocked,
    /// A plain file.
    File(Stat),
    /// A plain file that this user cannot read.
    Unreadable(Stat),
    /// A symbolic link.
    Link(Stat),
    /// A folder.
    Folder,
    /// A pipe, socket or device.
    Other(Stat),
}

impl Found {
    /// Returns the status of a file, a link or a device: of all that an undo can move aside.
    pub(crate) fn file(&self) -> Option<&Stat> {
        match self {
            Self::File(stat) | Self::Unreadable(stat) | Self::Link(stat) | Self::Other(stat) => Some(stat),
            Self::Missing | Self::Blocked | Self::Folder => None,
        }
    }
}

impl Beneath {
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, root, flags, Mode::empty())?;
        Ok(Self { root: Arc::new(root), last: Vec::new() })
    }

    /// Opens a folder; the empty path is the top.
    pub(crate) fn open_folder(&mut self, path: &[u8]) -> rustix::io::Result<Arc<OwnedFd>> {
        if path.is_empty() {
            return Ok(Arc::clone(&self.root));
        }
        let (parent, name) = self.parent(path)?;
        Ok(Arc::new(rustix::fs::openat(&parent, name, DIRECTORY, Mode::empty())?))
    }

    /// Opens the folder of a path, and returns it with the name in it.
    pub(crate) fn parent<'a>(&mut self, path: &'a [u8]) -> rustix::io::Result<(Arc<OwnedFd>, &'a OsStr)> {
        let mut parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let name = parts.pop().unwrap_or_default();
        if parts.iter().chain([&name]).any(|part| part.is_empty() || *part == b"." || *part == b"..") {
            return Err(Errno::INVAL);
        }
        let shared = self.last.iter().zip(&parts).take_while(|((last, _), part)| last == *part).count();
        self.last.truncate(shared);
        for part in parts.into_iter().skip(shared) {
            let folder = self.last.last().map_or(&self.root, |(_, folder)| folder);
            let opened = rustix::fs::openat(folder, OsStr::from_bytes(part), DIRECTORY, Mode::empty())?;
            self.last.push((part.to_vec(), Arc::new(opened)));
        }
        let folder = self.last.last().map_or(&self.root, |(_, folder)| folder);
        Ok((Arc::clone(folder), OsStr::from_bytes(name)))
    }

    /// Returns whether a file has exactly this name in its folder. Where names that differ by case are one file, another name finds it too.
    pub(crate) fn is_named(&mut self, path: &[u8]) -> rustix::io::Result<bool> {
        let (folder, name) = match self.parent(path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            parent => parent?,
        };
        for entry in Dir::read_from(&folder)? {
            if entry?.file_name().to_bytes() == name.as_bytes() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Forgets the folders of the last path, which may have been replaced.
    pub(crate) fn forget(&mut self) {
        self.last.clear();
    }

    /// Looks at a path.
    pub(crate) fn look(&mut self, path: &[u8]) -> rustix::io::Result<Found> {
        let found = self.parent(path).and_then(|(folder, name)| {
            let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok((stat, folder, name))
        });
        let (stat, folder, name) = match found {
            Err(Errno::NOENT) => return Ok(Found::Missing),
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Found::Blocked),
            found => found?,
        };
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let readable = rustix::fs::accessat(&folder, name, Access::READ_OK, AtFlags::EACCESS);
                if readable.is_ok() { Found::File(stat) } else { Found::Unreadable(stat) }
            }
            FileType::Symlink => Found::Link(stat),
            FileType::Directory => Found::Folder,
            _ => Found::Other(stat),
        })
    }
}

/// Returns whether a path names a file that no snapshot has and no undo writes: of git, or of azureal.
///
/// Case-insensitive and Windows file systems have other names for `.git`; git refuses those too.
pub(crate) fn is_forbidden(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|part| {
        // Most names need no closer look, and there may be many.
        let is_plain = part.first().is_some_and(|first| !matches!(first, b'.' | b'g' | b'G' | b' '));
        if is_plain && part.iter().all(|byte| byte.is_ascii() && *byte != b'\\') {
            return is_of_store(part);
        }
        // HFS+ ignores these characters in names.
        let visible: String = String::from_utf8_lossy(part).chars().filter(|c| !is_ignored(*c)).collect();
        // NTFS ends a name at a colon, and ignores dots and spaces at its end.
        let name =
            visible.split([':', '\\']).next().unwrap_or("").trim_end_matches([' ', '.']).to_lowercase();
        let has_backslash = visible.split('\\').skip(1).any(|part| is_forbidden_name(&part.to_lowercase()));
        is_forbidden_name(&name) || has_backslash || part.is_empty() || part == b"." || part == b".."
    })
}

fn is_forbidden_name(name: &str) -> bool {
    matches!(name, ".git" | "git~1" | azureal_files::OURS) || is_of_store(name.as_bytes())
}

/// Returns whether a name is of a store, or of a file or folder beside it: `a.azs`, `a.azs-journal`, `a.azs.spool`. A store may be
/// anywhere in a project, and an undo must not overwrite the history.
fn is_of_store(name: &[u8]) -> bool {
    const END: &[u8] = b".azs";
    let is_end = |(at, part): (usize, &[u8])| {
        part.eq_ignore_ascii_case(END) && matches!(name.get(at + END.len()), None | Some(b'.' | b'-'))
    };
    name.windows(END.len()).enumerate().any(is_end)
}

fn is_ignored(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_of_git_and_of_azureal_are_forbidden_in_all_their_forms() {
        for path in [
            "sessions.azs",
            "a/old.AZS-journal",
            "a.azs.spool/x.jsonl",
            ".a.azs",
            ".git/config",
            "a/.GIT/hooks/x",
            ".Git",
            ".git ",
            ".git.",
            ".git. .",
            "git~1",
            "a/GIT~1/x",
            ".git::$INDEX_ALLOCATION/x",
            ".g\u{200c}it/x",
            ".azureal",
            ".AZUREAL/sessions.azs",
            "a/.azureal/x",
            "a\\.git\\x",
            ".git\\x",
            "..",
            "a/../b",
            "a//b",
            "",
        ] {
            assert!(is_forbidden(path.as_bytes()), "{path:?}");
        }
        for path in
            [".gitignore", ".gitattributes", "git", "a.git", ".git2", "azureal", "...", ".azureal2", "git~10"]
        {
            assert!(!is_forbidden(path.as_bytes()), "{path:?}");
        }
    }

    #[test]
    fn nothing_is_found_behind_a_link() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("real/deep")).unwrap();
        fs::write(top.path().join("real/deep/file"), "x").unwrap();
        symlink("real", top.path().join("link")).unwrap();
        symlink("/etc/passwd", top.path().join("out")).unwrap();
        let mut beneath = Beneath::open(top.path()).unwrap();
        assert!(matches!(beneath.look(b"real/deep/file").unwrap(), Found::File(_)));
        assert!(matches!(beneath.look(b"link/deep/file").unwrap(), Found::Blocked));
        assert!(matches!(beneath.look(b"real/none/file").unwrap(), Found::Missing));
        assert!(matches!(beneath.look(b"real/deep/file/x").unwrap(), Found::Blocked));
        assert!(matches!(beneath.look(b"out").unwrap(), Found::Link(_)));
        assert!(matches!(beneath.look(b"real/deep").unwrap(), Found::Folder));
        assert!(beneath.look(b"real/../real").is_err());
        assert!(beneath.look(b"/etc/passwd").is_err());
    }
}
