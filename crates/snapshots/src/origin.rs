//! The age of folders, which no snapshot has: an undo leaves a folder that was empty before the turn.
//!
//! Times of files decide nothing else. They change with each copy, and no file is lost by a wrong answer here.

use std::time::Duration;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::beneath::Beneath;
use crate::error::Error;
use crate::notes::{Pin, pins};
use crate::worktree::{Home, Worktree};

/// File systems give a file the time of the last clock tick.
const TICK: Duration = Duration::from_millis(10);

/// The time of a snapshot, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Began(pub(crate) Option<Duration>);

impl Began {
    /// Returns whether a folder was created after the snapshot. `None` if it is unknown.
    pub(crate) fn is_before(self, path: &[u8], beneath: &mut Beneath) -> rustix::io::Result<Option<bool>> {
        let Some(began) = self.0 else { return Ok(None) };
        let (folder, name) = match beneath.parent(path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            parent => parent?,
        };
        match born(&folder, name) {
            Err(Errno::NOENT) => Ok(None),
            born => Ok(born?.map(|born| born + TICK >= began)),
        }
    }
}

/// Returns the time at which a folder was created. A rename does not change it. If the file system has none, returns the time of
/// the last change of its status.
#[cfg(target_os = "linux")]
fn born(folder: &std::os::fd::OwnedFd, name: &std::ffi::OsStr) -> rustix::io::Result<Option<Duration>> {
    use rustix::fs::StatxFlags;
    let mask = StatxFlags::BTIME | StatxFlags::CTIME;
    match rustix::fs::statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, mask) {
        // Linux before 4.11.
        Err(Errno::NOSYS) => {
            let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            #[allow(clippy::useless_conversion, reason = "its width differs between systems")]
            let (seconds, part) = (i64::from(stat.st_ctime), u32::try_from(stat.st_ctime_nsec));
            Ok(since_epoch(seconds, part.unwrap_or(0)))
        }
        found => {
            let found = found?;
            let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0 && found.stx_btime.tv_sec != 0;
            let time = if has_birth { found.stx_btime } else { found.stx_ctime };
            Ok(since_epoch(time.tv_sec, time.tv_nsec))
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn born(folder: &std::os::fd::OwnedFd, name: &std::ffi::OsStr) -> rustix::io::Result<Option<Duration>> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    #[cfg(target_vendor = "apple")]
    let (seconds, part) = (stat.st_birthtime, stat.st_birthtime_nsec);
    #[cfg(not(target_vendor = "apple"))]
    let (seconds, part) = (stat.st_ctime, stat.st_ctime_nsec);
    #[allow(clippy::useless_conversion, reason = "its width differs between systems")]
    Ok(since_epoch(i64::from(seconds), u32::try_from(part).unwrap_or(0)))
}

/// A time before 1970 is no time of a file.
fn since_epoch(seconds: i64, part: u32) -> Option<Duration> {
    Some(Duration::new(u64::try_from(seconds).ok()?, part))
}

impl Worktree {
    /// Finds the time of the earlier of two snapshots: the last one before the later one, as a tree may be taken many times.
    pub(crate) fn began(&self, home: &Home, before: &str, after: &str) -> Result<Began, Error> {
        let pins = pins(home)?;
        let last = pins.iter().filter(|pin| pin.tree == after).filter_map(Pin::time).max();
        let times = pins.iter().filter(|pin| pin.tree == before).filter_map(Pin::time);
        Ok(Began(times.filter(|time| last.is_none_or(|last| *time < last)).max()))
    }
}
