//! Files and folders that nobody but us has made.
//!
//! A repository can bring along whatever it likes, also where our own files are to lie: a link to the user's keys, a
//! device that never ends, a turn that nobody took. So nothing is opened through a link, and what others could have
//! written, or what git laid there with its usual modes, is refused.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// What nobody else may do.
const OTHERS: u32 = 0o077;

/// Opens a file of ours that is there.
pub(crate) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    check(path)?;
    let file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)?;
    check_file(&file.metadata()?)?;
    Ok(file)
}

/// Says whether what lies there is a file of ours.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    check_file(&fs::symlink_metadata(path)?)
}

fn check_file(found: &Metadata) -> io::Result<()> {
    if !found.is_file() {
        return Err(refused("is no plain file"));
    }
    check_owner(found)
}

/// Says whether a folder is ours alone.
pub(crate) fn check_folder(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() {
        return Err(refused("is no folder"));
    }
    check_owner(&found)
}

fn check_owner(found: &Metadata) -> io::Result<()> {
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("belongs to somebody else"));
    }
    if found.mode() & OTHERS != 0 {
        return Err(refused(
            "is open to others, so azureal has not made it; remove it, or close it with `chmod go=` if it is yours",
        ));
    }
    Ok(())
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_files_of_our_own_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, mode) in [("ours", 0o600), ("open", 0o644)] {
            fs::write(path(name), "x").unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink(path("ours"), path("link")).unwrap();
        symlink("/dev/zero", path("device")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        let opens =
            |name: &str| open(&path(name), OpenOptions::new().read(true)).map_err(|error| error.to_string());
        assert!(opens("ours").is_ok());
        for (name, why) in [
            ("open", "is open to others"),
            ("link", "is no plain file"),
            ("device", "is no plain file"),
            ("folder", "is no plain file"),
        ] {
            let error = opens(name).unwrap_err();
            assert!(error.starts_with(why), "{name}: {error}");
        }
        assert_eq!(
            open(&path("none"), OpenOptions::new().read(true)).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        fs::set_permissions(path("folder"), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(check_folder(&path("folder")).is_ok());
        assert!(check_folder(&path("link")).is_err());
        fs::set_permissions(path("folder"), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(check_folder(&path("folder")).is_err());
    }
}
