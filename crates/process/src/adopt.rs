//! Keeping the descendants of this process together.

use std::io;

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, waitid, waitpid};

use crate::child::Child;
use crate::table;

/// Makes this process the parent of each descendant whose own parent ends, so that none leaves the family by forking
/// twice.
///
/// The caller then calls [`collect_adopted`] now and then. Linux only; elsewhere it has no effect.
///
/// # Errors
///
/// The system refuses.
pub fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Collects the adopted processes that have ended, so that the system can forget them. Never `own`, a child whose end is
/// waited for elsewhere.
pub fn collect_adopted(own: &Child) {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    // One call, as long as there is none.
    if !matches!(waitid(WaitId::All, ended), Ok(Some(_))) {
        return;
    }
    let this = std::process::id();
    let is_adopted = |entry: &table::Entry| {
        entry.parent == this && !entry.runs && entry.identity.pid != own.identity().pid
    };
    for entry in table::all().into_iter().filter(is_adopted) {
        let pid = i32::try_from(entry.identity.pid).ok().and_then(Pid::from_raw);
        // It has ended, so this does not block.
        let _ = pid.map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
    }
}
