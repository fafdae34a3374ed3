//! Files of other programs.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::{DIRECTORY, NO_FILE, open_folder, plain, refused};

/// Opens a plain file of this user to read it, in folders below `base`, whose names come first. No name is followed through a
/// link; `base` itself may be reached through links.
///
/// Unlike a file of ours it may be open to others, and may have further names: other programs create files with the usual modes,
/// and Claude Code links its outputs.
pub fn open_foreign(base: &Path, folders: &[&OsStr], file: &OsStr) -> io::Result<File> {
    let mut folder = rustix::fs::openat(CWD, base, DIRECTORY, Mode::empty())?;
    for name in folders {
        folder = open_folder(&folder, plain(name)?)?;
    }
    // A pipe in its place would block until its other end is opened.
    let careful = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(&folder, plain(file)?, careful, Mode::empty()) {
        Ok(handle) => File::from(handle),
        Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Err(refused(NO_FILE)),
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(refused(NO_FILE));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("belongs to another user"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::NO_FOLDER;

    #[test]
    fn files_of_other_programs_are_opened_without_following_a_link_below_their_base() {
        let temporary = tempfile::tempdir().unwrap();
        let path = |name: &str| temporary.path().join(name);
        fs::create_dir_all(path("base/session/outputs")).unwrap();
        fs::create_dir(path("elsewhere")).unwrap();
        for file in ["base/session/outputs/a.txt", "elsewhere/a.txt", "secret"] {
            fs::write(path(file), "x").unwrap();
        }
        symlink(path("secret"), path("base/session/outputs/link")).unwrap();
        symlink(path("elsewhere"), path("base/session/linked")).unwrap();
        symlink(path("base"), path("base link")).unwrap();
        rustix::fs::mknodat(
            CWD,
            path("base/session/outputs/pipe"),
            rustix::fs::FileType::Fifo,
            Mode::RWXU,
            0,
        )
        .unwrap();
        let open = |base: &str, folder: &str, file: &str| {
            let folders = ["session".as_ref(), folder.as_ref()];
            open_foreign(&path(base), &folders, file.as_ref()).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(open("base", "outputs", "a.txt"), Ok(()));
        assert_eq!(open("base link", "outputs", "a.txt"), Ok(()), "the folders above are the user's");
        let refused = |why: &str| Err(why.to_owned());
        assert_eq!(open("base", "linked", "a.txt"), refused(NO_FOLDER));
        assert_eq!(open("base", "outputs", "link"), refused(NO_FILE));
        assert_eq!(open("base", "outputs", "pipe"), refused(NO_FILE));
        assert_eq!(open("base", "outputs", "../../../secret"), refused("is no name of a file"));
        assert_eq!(open("base", "..", "secret"), refused("is no name of a file"));
    }
}
