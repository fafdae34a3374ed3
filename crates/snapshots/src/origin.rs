//! The files that were there before a turn, though the snapshot before it does not have them.
//!
//! A turn can make old files visible: it changes the ignore rules, renames an ignored file, or removes the `.git` of a nested
//! repository. A file that was created before the snapshot was not created by the turn, whatever its name was.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::beneath::Beneath;
use crate::compare::{MARKED, RENAMES, diff_tree, raw_fields};
use crate::error::{At, Error};
use crate::git::{Deadline, args};
use crate::prune::{Pin, pins};
use crate::worktree::{Home, Worktree};

/// File systems give a file the time of the last clock tick.
const TICK: Duration = Duration::from_millis(10);

/// The time of a snapshot, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Began(pub(crate) Option<Duration>);

impl Began {
    /// Returns whether a file or folder was created after the snapshot. `None` if it is unknown.
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

/// Returns the time at which a file was created. A rename does not change it. If the file system has none, returns the time of
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

    /// Returns which of these files that only the later snapshot has were not created after the earlier one. With `began`
    /// unknown, these are all. Files whose content the earlier snapshot has, by whatever name, were only renamed.
    pub(crate) fn were_there(
        &self,
        before: &str,
        after: &str,
        began: Began,
        added: BTreeSet<Vec<u8>>,
    ) -> Result<BTreeSet<Vec<u8>>, Error> {
        let mut beneath = Beneath::open(&self.places.root).at(&self.places.root)?;
        let mut old = BTreeSet::new();
        for path in added {
            let is_new = began.is_before(&path, &mut beneath).at(&crate::undo::path(&path))?;
            if is_new != Some(true) {
                old.insert(path);
            }
        }
        if old.is_empty() {
            return Ok(old);
        }
        let git = self.borrowing();
        let mut command = args(["ls-tree", "-r", "-z", "--full-tree"]);
        command.push(before.into());
        let listed = git.run(&command, Vec::new(), Deadline::after(self.time))?;
        let ids: BTreeSet<&[u8]> = listed
            .split(|byte| *byte == 0)
            .filter_map(|entry| entry.split(|byte| *byte == b'\t').next()?.split(|byte| *byte == b' ').nth(2))
            .collect();
        let mut command = diff_tree();
        command.extend(args(["-z", "--raw", "-M", RENAMES]));
        command.extend([before.into(), after.into()]);
        let renamed = match git.run(&command, Vec::new(), Deadline::after(self.time)) {
            // The project's git removed an object that is needed to compare contents.
            Err(Error::Git { .. }) => {
                command.retain(|word| word != "-M" && word != RENAMES);
                git.run(&command, Vec::new(), Deadline::after(self.time))?
            }
            output => output?,
        };
        let mut fields = renamed.split(|byte| *byte == 0).peekable();
        while let Some((raw, from, path)) = raw_fields(&mut fields) {
            let is_known = raw
                .after
                .as_ref()
                .is_some_and(|version| version.mode != MARKED && ids.contains(version.id.as_bytes()));
            if from.is_some() || is_known {
                old.remove(path);
            }
        }
        Ok(old)
    }
}
