//! The identity of a file, which changes with every edit.

use rustix::fs::Stat;

/// The numbers that tell whether a file is still the same one with the same content. Links are compared by those of the link.
///
/// The number of its device is not among them: it may change when the machine starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    inode: u64,
    mode: u32,
    size: i64,
    /// In seconds and nanoseconds.
    modified: (i64, i64),
    /// Also changed by a rename.
    changed: (i64, i64),
}

impl Identity {
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_fallible_conversions,
        reason = "the widths differ between systems"
    )]
    pub(crate) fn of(stat: &Stat) -> Self {
        let nanoseconds = |part| i64::try_from(part).unwrap_or(0);
        Self {
            inode: u64::from(stat.st_ino),
            mode: u32::from(stat.st_mode),
            size: i64::from(stat.st_size),
            modified: (i64::from(stat.st_mtime), nanoseconds(stat.st_mtime_nsec)),
            changed: (i64::from(stat.st_ctime), nanoseconds(stat.st_ctime_nsec)),
        }
    }

    /// Returns the number that all names of a file share.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns whether this file is the other one, which may have been renamed meanwhile.
    pub(crate) fn is_renamed(&self, other: &Self) -> bool {
        Self { changed: other.changed, ..*self } == *other
    }

    /// Returns the numbers as words.
    pub(crate) fn to_text(self) -> String {
        let Self { inode, mode, size, modified, changed } = self;
        format!("{inode} {mode} {size} {} {} {} {}", modified.0, modified.1, changed.0, changed.1)
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let words: Vec<&str> = std::str::from_utf8(text).ok()?.split(' ').collect();
        let [inode, mode, size, modified, modified_part, changed, changed_part] = words.as_slice() else {
            return None;
        };
        Some(Self {
            inode: inode.parse().ok()?,
            mode: mode.parse().ok()?,
            size: size.parse().ok()?,
            modified: (modified.parse().ok()?, modified_part.parse().ok()?),
            changed: (changed.parse().ok()?, changed_part.parse().ok()?),
        })
    }
}
