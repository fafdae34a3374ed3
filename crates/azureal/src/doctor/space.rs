//! The room on the disk.

use std::fs;
use std::path::Path;

use super::{Finding, Severity};

/// The room that a turn may need, beside a copy of the store.
const TURN: u64 = 64 << 20;

/// Checks that there is room for a copy of the store and a turn.
pub(super) fn check(file: &Path) -> Option<Finding> {
    let folder = file.ancestors().skip(1).find(|folder| folder.is_dir())?;
    let found = rustix::fs::statvfs(folder).ok()?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let needed = fs::metadata(file).map_or(0, |found| found.len()).saturating_add(TURN);
    (free < needed).then(|| {
        let message = format!(
            "{} MiB are free; a copy of the store and a turn need {} MiB",
            free >> 20,
            needed.div_ceil(1 << 20)
        );
        Finding::at("disk_space", Severity::Warning, folder, message).advise("free some space on this disk")
    })
}
