//! Waits for the creation of a store's file, by inotify.
//!
//! The file and its folder may be missing: the nearest folder that exists is watched.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

/// Holds many events; their names are short.
const BUFFER: usize = 4 << 10;
/// The events of a folder that may lead to the file, and its own removal.
const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Waits until a file exists, at most for a time. Returns whether it does.
///
/// # Errors
///
/// The system has no watch left, or the folder cannot be watched.
pub(super) fn wait_for(file: &Path, at_most: Duration) -> io::Result<bool> {
    let limit = Timespec { tv_sec: at_most.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: 0 };
    while !file.exists() {
        let watching = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let folder = nearest_folder(file).ok_or(io::ErrorKind::NotFound)?;
        inotify::add_watch(&watching, &folder, EVENTS)?;
        // Created before the watch.
        if nearest_folder(file).as_ref() != Some(&folder) || file.exists() {
            continue;
        }
        loop {
            match poll(&mut [PollFd::new(&watching, PollFlags::IN)], Some(&limit)) {
                Ok(0) => return Ok(file.exists()),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            if leads_to(&watching, file, &folder)? {
                break;
            }
        }
    }
    Ok(true)
}

/// Returns the nearest folder above a file that exists.
fn nearest_folder(file: &Path) -> Option<PathBuf> {
    file.ancestors().skip(1).find(|folder| folder.is_dir()).map(Path::to_owned)
}

/// Reads the events that are there. Returns whether one is about the next part of the path, or about the folder itself.
fn leads_to(watching: &impl AsFd, file: &Path, folder: &Path) -> io::Result<bool> {
    let next = file.strip_prefix(folder).ok().and_then(|rest| rest.iter().next());
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut reader = inotify::Reader::new(watching, &mut buffer);
    let mut leads = false;
    loop {
        match reader.next() {
            Ok(event) => {
                let name = event.file_name().map(std::ffi::CStr::to_bytes);
                leads |= name.is_none() || name == next.map(OsStrExt::as_bytes);
            }
            Err(Errno::WOULDBLOCK) => return Ok(leads),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_file_is_noticed_when_its_folders_are_created_one_after_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/b/file");
        let waiting = {
            let file = file.clone();
            thread::spawn(move || wait_for(&file, Duration::from_secs(30)).unwrap())
        };
        for create in ["other", "a", "a/other", "a/b", "a/b/other"] {
            thread::sleep(Duration::from_millis(20));
            std::fs::create_dir(folder.path().join(create)).unwrap();
        }
        assert!(!waiting.is_finished());
        std::fs::write(&file, "").unwrap();
        assert!(waiting.join().unwrap());
        assert!(wait_for(&file, Duration::ZERO).unwrap(), "it exists");
    }

    #[test]
    fn a_folder_that_is_removed_meanwhile_is_waited_for_again() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a");
        std::fs::create_dir(&inner).unwrap();
        let file = inner.join("file");
        let waiting = {
            let file = file.clone();
            thread::spawn(move || wait_for(&file, Duration::from_secs(30)).unwrap())
        };
        thread::sleep(Duration::from_millis(50));
        std::fs::remove_dir(&inner).unwrap();
        thread::sleep(Duration::from_millis(50));
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(&file, "").unwrap();
        assert!(waiting.join().unwrap());
        assert!(!wait_for(&inner.join("never"), Duration::ZERO).unwrap());
    }
}
