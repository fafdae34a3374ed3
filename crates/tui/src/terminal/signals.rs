//! Signals: another size, suspend and continue, and the end.

use std::io;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, getpgid, getpgrp, getppid, getsid};
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
pub(super) fn has_shell() -> bool {
    let Ok(session) = getsid(None) else { return false };
    let group = getpgrp();
    let mut parent = getppid();
    // A shell is the first ancestor in another group of this session. Wrappers of ours are in our group.
    for _ in 0..16 {
        let Some(pid) = parent else { return false };
        let Ok(its_group) = getpgid(Some(pid)) else { return false };
        if its_group != group {
            return getsid(Some(pid)).is_ok_and(|its_session| its_session == session);
        }
        parent = parent_of(pid);
    }
    false
}

/// Returns the parent of a process, where the system tells.
fn parent_of(pid: Pid) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    Pid::from_raw(parent.trim().parse().ok()?)
}

/// Returns whether a signal is ignored. Where the system does not tell, none is.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask.checked_shr(u32::try_from(signal - 1).unwrap_or(u32::MAX)).is_some_and(|rest| rest & 1 == 1)
}
