//! The limit of an agent's output on disk.
//!
//! The agent writes to a file itself, so that no output is lost if azureal is slow or dies. But then nothing slows
//! the agent down: one that prints without end fills the disk. So the size of the file is checked while the agent
//! runs.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::launch::AgentRun;

/// The interval at which the size is checked.
const PACE: Duration = Duration::from_millis(50);
/// The output that every turn may print, even on a full disk.
const LEAST: u64 = 64 << 20;

/// The limit of an agent's output in one turn, standard output and standard error together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimit(u64);

impl Default for OutputLimit {
    /// 4 GiB: far more than a turn that works prints, and less than most disks have left.
    fn default() -> Self {
        Self::of_mib(4096)
    }
}

impl OutputLimit {
    /// A limit of so many MiB.
    pub const fn of_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1 << 20))
    }

    /// Returns the limit in MiB.
    pub const fn mib(self) -> u64 {
        self.0 >> 20
    }

    /// Returns the limit for a file in `folder`: at most half of what is free there, so that the turn can be stored.
    pub(crate) fn on_disk_of(self, folder: &Path) -> Self {
        let free = rustix::fs::statvfs(folder).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        free.map_or(self, |free| self.with_free(free))
    }

    fn with_free(self, bytes: u64) -> Self {
        Self(self.0.min((bytes / 2).max(LEAST)))
    }

    /// Returns the size at which the user is notified.
    fn notice(self) -> u64 {
        self.0 / 4
    }

    /// Returns the size from which an agent that was asked to stop is killed: it continues printing.
    pub(crate) fn kill(self) -> u64 {
        self.0.saturating_add(self.0 / 8)
    }
}

/// The meaning of a size for the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Printed {
    /// It is worth a notice. The agent has printed so many bytes.
    Much(u64),
    /// The limit is reached.
    TooMuch,
}

/// Waits for an agent to end and reports, once each, what its output has grown to.
pub(crate) fn guard(
    agent: &AgentRun,
    output: &[File; 2],
    limit: OutputLimit,
    mut report: impl FnMut(Printed),
) {
    let (mut is_noticed, mut is_reached) = (false, false);
    while !agent.has_ended_within(PACE) {
        let printed: u64 = output.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum();
        if printed > limit.0 && !is_reached {
            is_reached = true;
            report(Printed::TooMuch);
        } else if printed > limit.notice() && !is_noticed && !is_reached {
            is_noticed = true;
            report(Printed::Much(printed));
        }
        if printed > limit.kill() {
            agent.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_takes_at_most_half_of_what_is_free() {
        let limit = OutputLimit::default();
        assert_eq!(limit.mib(), 4096);
        assert_eq!(limit.with_free(100 << 30), limit);
        assert_eq!(limit.with_free(2 << 30).mib(), 1024);
        assert_eq!(limit.with_free(0).mib(), 64, "what a turn needs that works");
        assert_eq!(OutputLimit::of_mib(10).with_free(0).mib(), 10);
        assert!(limit.notice() < limit.0 && limit.0 < limit.kill());
        assert_eq!(OutputLimit::of_mib(u64::MAX).kill(), u64::MAX);
    }
}
