//! A process that can be recognised later.

use std::fmt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::table::{self, Entry};

/// One process: its number and when it was started.
///
/// Numbers are used again. Together with the start, one says for ever whether the process that
/// has the number now is the one that was meant, also in another program and after a restart of the machine.
/// Nothing in this room signals a process without looking at both.
///
/// Keep both fields to write it down; `started` is opaque and only ever compared.
///
/// ```
/// use azureal_process::ProcessIdentity;
///
/// let this = ProcessIdentity::of(std::process::id()).expect("this process runs");
/// assert!(this.is_alive());
///
/// let another = ProcessIdentity { started: "long ago".to_owned(), ..this };
/// assert!(!another.is_alive());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessIdentity {
    /// The number of the process.
    pub pid: u32,
    /// When it was started, as the system has it: on Linux the start of the machine and the clock ticks since then,
    /// elsewhere the second, in UTC.
    pub started: String,
}

/// How often a process that is not our child is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How many generations of processes are looked at.
const MOST_ANCESTORS: usize = 4096;

impl ProcessIdentity {
    /// Returns the process that has this number now.
    pub fn of(pid: u32) -> Option<Self> {
        table::look(pid).ok().flatten().map(|entry| entry.identity)
    }

    /// Returns whether this very process runs, whatever its parent is.
    ///
    /// One that has ended and only waits to be collected does not run. Where the system does not
    /// let us look, a process of this number counts as this one.
    pub fn is_alive(&self) -> bool {
        match self.entry() {
            Ok(entry) => entry.is_some_and(|entry| entry.runs),
            // Waiting for a foreign process is better than taking a run that still writes for ended.
            Err(_) => to_pid(self.pid).is_some_and(|pid| test_kill_process(pid).is_ok()),
        }
    }

    /// Returns whether the process holds a file open; `None` if the system does not tell.
    pub fn holds_open(&self, file: &Path) -> Option<bool> {
        let holds = table::holds_open(self.pid, file)?;
        // Looked at afterwards, so that it was this one.
        Some(holds && self.is_there())
    }

    /// Finds a process other than this one that holds a file open. Processes that the system does not show are left out.
    pub fn holding(file: &Path) -> Option<Self> {
        let others = table::all().into_iter().map(|entry| entry.identity);
        others
            .filter(|process| process.pid != std::process::id())
            .find(|process| process.holds_open(file) == Some(true))
    }

    /// Returns whether the process that has this number now was started by this one, directly or through others; `None`
    /// where the system does not tell, or there is no such process.
    ///
    /// A process whose parent has ended belongs to another one from then on. On Linux that is this process if it has
    /// asked for it: `PR_SET_CHILD_SUBREAPER`.
    pub fn is_ancestor_of(&self, pid: u32) -> Option<bool> {
        let mut current = pid;
        // Parents are older than their children, so this ends; a bound is cheaper than a proof.
        for _ in 0..MOST_ANCESTORS {
            let entry = table::look(current).ok().flatten()?;
            if entry.identity == *self {
                return Some(true);
            }
            if entry.parent <= 1 {
                return Some(false);
            }
            current = entry.parent;
        }
        None
    }

    /// Returns the process group of this very process; `None` if it has ended, or if the system does not tell.
    pub fn group(&self) -> Option<u32> {
        self.entry().ok().flatten().map(|entry| entry.group)
    }

    /// Waits until this process has ended, at most `timeout`; returns whether it has.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            if !self.is_alive() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::sleep(left.min(POLL_INTERVAL));
        }
    }

    /// Returns what is known of this very process, also when it has ended and nobody has collected it.
    pub(crate) fn entry(&self) -> std::io::Result<Option<Entry>> {
        Ok(table::look(self.pid)?.filter(|entry| entry.identity == *self))
    }

    /// Sends a signal to this very process and to no other; returns whether it was sent.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = to_pid(self.pid) else {
            return false;
        };
        #[cfg(target_os = "linux")]
        {
            use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
            // The descriptor stands for the process that has the number now. If that one turns out to be the
            // right one, the signal can reach no other.
            if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
                return self.is_there() && pidfd_send_signal(process, signal).is_ok();
            }
        }
        self.is_there() && kill_process(pid, signal).is_ok()
    }

    /// Sends a signal, and makes a process that is stopped continue, without which it would not notice.
    pub(crate) fn signal_and_wake(&self, signal: Signal) {
        if self.signal(signal) && self.entry().is_ok_and(|entry| entry.is_some_and(|entry| entry.stopped)) {
            self.signal(Signal::CONT);
        }
    }

    /// Returns whether this process is certainly there. Unlike [`Self::is_alive`], doubt means no.
    pub(crate) fn is_there(&self) -> bool {
        self.entry().is_ok_and(|entry| entry.is_some())
    }
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} (started {})", self.pid, self.started)
    }
}

/// Returns the number of a process that may be signalled: neither the first one, nor this one, nor a group.
pub(crate) fn to_pid(pid: u32) -> Option<Pid> {
    let raw = i32::try_from(pid).ok()?;
    (raw > 1 && pid != std::process::id()).then(|| Pid::from_raw(raw)).flatten()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn another_process_of_the_same_number_is_never_signalled() {
        let mut sleeper = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let identity = ProcessIdentity::of(sleeper.id()).unwrap();
        let recycled = ProcessIdentity { started: format!("{}0", identity.started), ..identity.clone() };

        assert!(!recycled.is_alive());
        assert!(!recycled.signal(Signal::KILL));
        assert!(identity.is_alive());
        assert!(sleeper.try_wait().unwrap().is_none());

        assert!(identity.signal(Signal::KILL));
        assert!(identity.wait_timeout(Duration::from_secs(10)), "ended, though nobody has collected it yet");
        assert!(identity.is_there(), "and the number is still its own");
        sleeper.wait().unwrap();
        assert!(!identity.is_there());
        assert!(!identity.signal(Signal::KILL));
    }

    #[test]
    fn a_descendant_is_told_from_others() {
        let this = ProcessIdentity::of(std::process::id()).unwrap();
        let mut shell =
            Command::new("sh").args(["-c", "sleep 1000 & wait"]).stdin(Stdio::piped()).spawn().unwrap();
        let of_shell = ProcessIdentity::of(shell.id()).unwrap();
        let grandchild = loop {
            let found = table::all().into_iter().find(|entry| entry.parent == shell.id());
            if let Some(found) = found {
                break found.identity;
            }
            thread::sleep(POLL_INTERVAL);
        };
        assert_eq!(this.is_ancestor_of(shell.id()), Some(true));
        assert_eq!(this.is_ancestor_of(grandchild.pid), Some(true));
        assert_eq!(of_shell.is_ancestor_of(grandchild.pid), Some(true));
        assert_eq!(of_shell.is_ancestor_of(this.pid), Some(false));
        assert_eq!(this.is_ancestor_of(u32::MAX), None);
        grandchild.signal(Signal::KILL);
        shell.wait().unwrap();
        assert_eq!(this.is_ancestor_of(shell.id()), None);
    }

    #[test]
    fn what_must_live_is_never_signalled() {
        for pid in [0, 1, std::process::id(), u32::MAX, i32::MAX as u32 + 1] {
            assert_eq!(to_pid(pid), None, "{pid}");
        }
    }
}
