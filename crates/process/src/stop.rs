//! Ends a run with all of its processes.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process_group};
use tracing::{debug, info, warn};

use crate::identity::{ProcessIdentity, to_pid};
use crate::marker::Marker;
use crate::table::{self, Entry};

/// The pauses between two searches for processes that a run left behind.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The time that each step of [`stop`] waits before the next, harder one.
///
/// By default all steps take at most three seconds, unless a process cannot even be killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopTimeouts {
    /// For the child to exit after SIGINT, while agents clean up: 2 s.
    pub interrupt: Duration,
    /// For the child to exit after SIGTERM: 500 ms.
    pub terminate: Duration,
    /// For the processes that the child left behind to exit after SIGTERM: 250 ms.
    pub strays: Duration,
    /// For killed processes to be gone, which takes long only if they hang in the kernel: 2 s.
    pub kill: Duration,
}

impl Default for StopTimeouts {
    fn default() -> Self {
        Self {
            interrupt: Duration::from_secs(2),
            terminate: Duration::from_millis(500),
            strays: Duration::from_millis(250),
            kill: Duration::from_secs(2),
        }
    }
}

/// The signal that ended a run's first process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// None: it had ended before.
    Already,
    /// SIGINT, to it alone.
    Interrupted,
    /// SIGTERM, to it and to its direct children.
    Terminated,
    /// SIGKILL, to it and to its group.
    Killed,
}

/// The result of [`stop`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopReport {
    /// The step that ended the run's first process.
    pub stopped: Stopped,
    /// The number of other processes that were still running after it, and were ended.
    pub strays: usize,
    /// Processes that survived the kill: they hang in the kernel, or belong to another user. Usually empty.
    pub survivors: Vec<ProcessIdentity>,
}

/// Ends a run that is not a child of this process, such as one that was found after a crash.
///
/// For a child of this process, use [`Child::stop`](crate::Child::stop), which does the same. It returns when all
/// processes are gone, or when the last time limit is over. The steps:
///
/// 1. SIGINT to the run's first process alone. Agents then end their tools and write what they still have.
/// 2. SIGTERM to it and to its direct children: below a wrapper it is the child that matters.
/// 3. SIGKILL to it and to its process group.
/// 4. All other processes of the run: SIGTERM, then SIGKILL until none is left. These are all processes that carry
///    `marker`, and all descendants of the first process and members of its group.
///
/// A step is skipped if the first process has ended before it; the last never is. Stopped processes are continued, or
/// they would not notice a signal. A process is signalled only if its id *and* its start time match, so never one
/// that has got the id since. This process is never signalled, even if it runs inside the run.
pub fn stop(identity: &ProcessIdentity, marker: &Marker, timeouts: &StopTimeouts) -> StopReport {
    stop_run(identity, identity, marker, timeouts)
}

/// The first process of a run: a child of ours or of another process.
pub(crate) trait Leader {
    /// Sends a signal, and wakes it if it is stopped.
    fn signal(&self, signal: Signal);
    /// Kills its whole group at once, without a gap through which a process that forks could slip.
    fn kill_group(&self);
    /// Waits for its end; returns whether it has ended.
    fn ended_within(&self, timeout: Duration) -> bool;
}

impl Leader for ProcessIdentity {
    fn signal(&self, signal: Signal) {
        self.signal_and_wake(signal);
    }

    fn kill_group(&self) {
        // While its first process is there, the number of a group cannot be another's.
        let leads = self.entry().is_ok_and(|entry| entry.is_some_and(|entry| entry.group == self.pid));
        if let Some(pid) = to_pid(self.pid).filter(|_| leads) {
            // The group is empty, or belongs to another user: the search for survivors shows both.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    fn ended_within(&self, timeout: Duration) -> bool {
        self.wait_timeout(timeout)
    }
}

pub(crate) fn stop_run(
    leader: &dyn Leader,
    identity: &ProcessIdentity,
    marker: &Marker,
    timeouts: &StopTimeouts,
) -> StopReport {
    let mut family = Family { leader: Some(identity), marker, known: BTreeSet::new() };
    let stopped = stop_leader(leader, &mut family, timeouts);
    let mut report = family.end_strays(timeouts);
    report.stopped = stopped;
    if !leader.ended_within(Duration::ZERO) {
        report.survivors.insert(0, identity.clone());
    }
    let (strays, survivors) = (report.strays, report.survivors.len());
    info!(pid = identity.pid, ?stopped, strays, survivors, "stopped the run");
    report
}

/// Kills the first process of a run, its group and all its descendants, and does not wait for their end.
pub(crate) fn kill_run(leader: &dyn Leader, identity: &ProcessIdentity, marker: &Marker) {
    let mut family = Family { leader: Some(identity), marker, known: BTreeSet::new() };
    // Before the kill: once a parent has ended, its children can no longer be attributed to it.
    let members = family.look().running;
    leader.kill_group();
    leader.signal(Signal::KILL);
    for member in members {
        member.signal(Signal::KILL);
    }
}

/// Ends all processes that carry `marker`, whichever process started them: SIGTERM, then SIGKILL until none is left.
///
/// For the processes that several runs of one marker left behind. [`stop`] or [`Child::stop`](crate::Child::stop) end
/// a single run.
pub fn end_marked(marker: &Marker, timeouts: &StopTimeouts) -> StopReport {
    Family { leader: None, marker, known: BTreeSet::new() }.end_strays(timeouts)
}

fn stop_leader(leader: &dyn Leader, family: &mut Family<'_>, timeouts: &StopTimeouts) -> Stopped {
    if leader.ended_within(Duration::ZERO) {
        return Stopped::Already;
    }
    let pid = family.leader.map(|leader| leader.pid);
    debug!(pid, "sends SIGINT");
    // Before each signal: once a parent has ended, its children can no longer be attributed to it.
    family.look();
    leader.signal(Signal::INT);
    if leader.ended_within(timeouts.interrupt) {
        return Stopped::Interrupted;
    }
    let waited_ms = timeouts.interrupt.as_millis();
    warn!(pid, waited_ms, "still running after SIGINT: sends SIGTERM");
    let children = family.look().children;
    leader.signal(Signal::TERM);
    for child in children {
        child.signal_and_wake(Signal::TERM);
    }
    if leader.ended_within(timeouts.terminate) {
        return Stopped::Terminated;
    }
    let waited_ms = timeouts.terminate.as_millis();
    warn!(pid, waited_ms, "still running after SIGTERM: kills the process group");
    family.look();
    leader.kill_group();
    leader.signal(Signal::KILL);
    leader.ended_within(timeouts.kill);
    Stopped::Killed
}

/// The result of one search of the process table.
#[derive(Default)]
struct Seen {
    /// Direct children of the leader.
    children: Vec<ProcessIdentity>,
    /// All members that run.
    running: BTreeSet<ProcessIdentity>,
}

/// The processes of a run.
struct Family<'a> {
    /// The first process, where there is one such.
    leader: Option<&'a ProcessIdentity>,
    marker: &'a Marker,
    /// All known descendants of the leader and members of its group, running or not.
    known: BTreeSet<ProcessIdentity>,
}

impl Family<'_> {
    /// Looks at all processes, and for members that are not known yet.
    fn look(&mut self) -> Seen {
        if self.leader.is_none() && self.known.is_empty() {
            return Seen::default();
        }
        let entries = table::all();
        let is_leader = |entry: &Entry| self.leader == Some(&entry.identity);
        // Its number, as long as it is its own.
        let leader = entries.iter().find(|entry| is_leader(entry)).map(|entry| entry.identity.pid);
        let mut pids: BTreeSet<u32> = entries
            .iter()
            .filter(|entry| is_leader(entry) || self.known.contains(&entry.identity))
            .map(|entry| entry.identity.pid)
            .collect();
        let is_other = |entry: &Entry| entry.runs && !self.is_apart(&entry.identity);
        let others: Vec<&Entry> = entries.iter().filter(|entry| is_other(entry)).collect();
        // Parents may stand after their children.
        loop {
            let before = pids.len();
            for entry in &others {
                let in_group = leader == Some(entry.group);
                if in_group || pids.contains(&entry.parent) {
                    pids.insert(entry.identity.pid);
                }
            }
            if pids.len() == before {
                break;
            }
        }
        let mut seen = Seen::default();
        for member in others.into_iter().filter(|entry| pids.contains(&entry.identity.pid)) {
            if leader == Some(member.parent) {
                seen.children.push(member.identity.clone());
            }
            seen.running.insert(member.identity.clone());
        }
        self.known.extend(seen.running.iter().cloned());
        seen
    }

    /// Returns whether a process is never a stray: the leader, or this process.
    fn is_apart(&self, identity: &ProcessIdentity) -> bool {
        self.leader == Some(identity) || identity.pid == std::process::id()
    }

    /// Calls `meet` with every running member and every other process that carries the marker, as soon as it is
    /// found; returns them.
    fn strays(&mut self, mut meet: impl FnMut(&ProcessIdentity)) -> BTreeSet<ProcessIdentity> {
        let mut strays = BTreeSet::new();
        for marked in table::marked(self.marker).filter(|marked| !self.is_apart(marked)) {
            meet(&marked);
            strays.insert(marked);
        }
        for member in self.look().running {
            meet(&member);
            strays.insert(member);
        }
        strays
    }

    fn end_strays(&mut self, timeouts: &StopTimeouts) -> StopReport {
        let kill_at = Instant::now() + timeouts.strays;
        let give_up_at = kill_at + timeouts.kill;
        let mut met = BTreeSet::new();
        let mut pause = SHORTEST_PAUSE;
        let mut empty_looks = 0;
        let mut is_killing = false;
        let survivors = loop {
            let kill = Instant::now() >= kill_at;
            if kill && !is_killing && empty_looks == 0 && !met.is_empty() {
                is_killing = true;
                let waited_ms = timeouts.strays.as_millis();
                warn!(strays = met.len(), waited_ms, "strays are still running after SIGTERM: kills them");
            }
            let strays = self.strays(|stray| {
                let is_new = met.insert(stray.clone());
                if kill {
                    stray.signal(Signal::KILL);
                } else if is_new {
                    stray.signal_and_wake(Signal::TERM);
                }
            });
            empty_looks = if strays.is_empty() { empty_looks + 1 } else { 0 };
            // A process carries no marker for a moment during exec, so one search is not enough. If there was one
            // that starts others, not even two are.
            let enough = if met.is_empty() { 2 } else { 3 };
            if empty_looks == enough || Instant::now() >= give_up_at {
                break strays;
            }
            thread::sleep(pause);
            // One that is always about to start the next must be met before it has.
            pause = if kill { SHORTEST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        };
        let survivors: Vec<ProcessIdentity> = survivors.into_iter().collect();
        if !survivors.is_empty() {
            warn!(survivors = survivors.len(), "gave up on processes that cannot be killed");
        }
        StopReport { stopped: Stopped::Already, strays: met.len() - survivors.len(), survivors }
    }
}
