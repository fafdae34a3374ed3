//! A program on the terminal of this process.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid};
use signal_hook::consts::SIGTSTP;
use signal_hook::low_level::raise;

/// Waits for a child in the process group of this process. If the child stops, this process stops too: a program that stops only itself at
/// Ctrl-Z would leave the user without a shell, which waits for us.
pub(crate) fn wait_in_foreground(mut child: Child) -> io::Result<ExitStatus> {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return child.wait() };
    loop {
        match waitpid(Some(pid), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => stop_with(pid)?,
            Ok(Some((_, status))) => return Ok(ExitStatus::from_raw(status.as_raw())),
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Stops this process, and continues the child with it.
fn stop_with(child: Pid) -> io::Result<()> {
    // A signal to the whole group has stopped us too, and we are continued with it.
    if has_continued(child) {
        return Ok(());
    }
    // Ignored where no shell could continue us: then the child continues at once.
    raise(SIGTSTP)?;
    if !has_continued(child) {
        kill_process(child, Signal::CONT)?;
    }
    Ok(())
}

fn has_continued(child: Pid) -> bool {
    matches!(waitid(WaitId::Pid(child), WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG), Ok(Some(_)))
}
