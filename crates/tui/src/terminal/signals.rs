//! Signals: another size, suspend and continue, and the end.

use std::io;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, raise};

use super::modes;

/// Time that the loop has to end after a signal, before the process is ended.
const END_WITHIN: Duration = Duration::from_secs(2);

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// The terminal has another size.
    Resized,
    /// The process was stopped and continues: its terminal may show anything.
    Continued,
    /// The process shall end, by this signal.
    End(i32),
    /// Ctrl-C on a terminal that edits lines itself.
    Interrupt,
}

/// Handles signals on a thread of their own.
pub(super) fn listen(send: impl Fn(Asked) + Send + 'static) -> io::Result<()> {
    let ignores_hangup = is_ignored(SIGHUP);
    let handled = [SIGWINCH, SIGCONT, SIGTSTP, SIGTERM, SIGINT, SIGHUP];
    // `nohup` has it ignored.
    let mut signals =
        Signals::new(handled.into_iter().filter(|signal| *signal != SIGHUP || !ignores_hangup))?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGWINCH => send(Asked::Resized),
                SIGCONT => send(Asked::Continued),
                SIGTSTP => stop(),
                // Another program has the terminal: it is for that one.
                SIGINT if !modes::is_ours() => {}
                signal => {
                    send(Asked::End(signal));
                    thread::Builder::new().name("end".to_owned()).spawn(move || end(signal)).ok();
                }
            }
        }
    })?;
    Ok(())
}

/// Handles the signals of a program that leaves its terminal as it is.
pub(super) fn listen_to_ends(send: impl Fn(Asked) + Send + 'static) -> io::Result<()> {
    let ignores_hangup = is_ignored(SIGHUP);
    let handled = [SIGTERM, SIGINT, SIGHUP].into_iter();
    let mut signals = Signals::new(handled.filter(|signal| *signal != SIGHUP || !ignores_hangup))?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGINT {
                send(Asked::Interrupt);
                continue;
            }
            send(Asked::End(signal));
            thread::Builder::new().name("end".to_owned()).spawn(move || end(signal)).ok();
        }
    })?;
    Ok(())
}

/// Ends the process if the loop does not.
fn end(signal: i32) {
    thread::sleep(END_WITHIN);
    modes::give_back();
    drop(emulate_default_handler(signal));
}

/// Stops this process, as SIGTSTP does for a program without a handler. Returns when it continues.
fn stop() {
    if has_shell() {
        modes::give_back();
        drop(raise(signal_hook::consts::SIGSTOP));
    }
}

/// Returns whether a shell can continue this process group: the system stops no group without one, and neither do we.
#[cfg(target_os = "linux")]
pub(super) fn has_shell() -> bool {
    std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| Job::parse(&stat)).is_some_and(|own| {
        own.has_shell(|pid| Job::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
    })
}

/// Returns whether a shell can continue this process group: a shell is the leader of our session.
#[cfg(not(target_os = "linux"))]
pub(super) fn has_shell() -> bool {
    rustix::process::getsid(None).is_ok_and(|session| session != rustix::process::getpid())
}

/// A process as job control has it. In a container, 0 is a process, a group or a session outside it; rustix panics there.
#[cfg(any(target_os = "linux", test))]
#[derive(Clone, Copy)]
struct Job {
    parent: u32,
    group: u32,
    session: u32,
}

#[cfg(any(target_os = "linux", test))]
impl Job {
    /// Reads a line of `/proc/PID/stat`. The name in it may contain anything.
    fn parse(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace().skip(1).map(str::parse);
        let mut next = || fields.next()?.ok();
        Some(Self { parent: next()?, group: next()?, session: next()? })
    }

    /// Returns whether the first ancestor in another group, which is the shell, is in the same session. Wrappers of ours
    /// are in our group.
    fn has_shell(self, job_of: impl Fn(u32) -> Option<Self>) -> bool {
        let ancestors = std::iter::successors(job_of(self.parent), |job| job_of(job.parent));
        let shell = ancestors.take(16).find(|job| job.group != self.group);
        shell.is_some_and(|shell| shell.session == self.session)
    }
}

/// Returns whether a signal is ignored. Where the system does not tell, none is.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask.checked_shr(u32::try_from(signal - 1).unwrap_or(u32::MAX)).is_some_and(|rest| rest & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::Job;

    /// Processes as `/proc/PID/stat` has them: number, parent, group, session.
    fn has_shell(processes: &[[u32; 4]]) -> bool {
        let job_of = |wanted: u32| {
            let &[pid, parent, group, session] = processes.iter().find(|[pid, ..]| *pid == wanted)?;
            Job::parse(&format!("{pid} (a) S (b) S {parent} {group} {session} 34816 1 4194304"))
        };
        job_of(9).unwrap().has_shell(job_of)
    }

    #[test]
    fn the_shell_is_the_first_ancestor_in_another_group_of_the_session() {
        assert!(has_shell(&[[9, 5, 9, 5], [5, 1, 5, 5]]));
        assert!(has_shell(&[[9, 8, 8, 5], [8, 5, 8, 5], [5, 1, 5, 5]]), "behind a wrapper");
        assert!(!has_shell(&[[9, 5, 9, 9], [5, 1, 5, 5]]), "a session of its own");
        assert!(!has_shell(&[[9, 5, 9, 9]]), "a parent that is gone");
    }

    #[test]
    fn a_parent_outside_the_container_is_no_shell() {
        assert!(!has_shell(&[[9, 0, 9, 9]]));
        assert!(!has_shell(&[[9, 5, 9, 9], [5, 1, 0, 0]]));
        assert!(!has_shell(&[[9, 1, 0, 0], [1, 0, 0, 0]]));
    }

    #[test]
    fn a_line_that_is_cut_is_no_job() {
        assert!(Job::parse("9 (a) S 1 2").is_none());
        assert!(Job::parse("").is_none());
    }
}
