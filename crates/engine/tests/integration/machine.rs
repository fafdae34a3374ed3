//! The machine that all tests of this program share: who needs it, and who uses up much of it.

use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What runs now.
struct Load {
    busy: usize,
    is_alone: bool,
}

static LOAD: Mutex<Load> = Mutex::new(Load { busy: 0, is_alone: false });
static CHANGED: Condvar = Condvar::new();

fn wait_until(is_free: impl Fn(&Load) -> bool) -> MutexGuard<'static, Load> {
    let load = LOAD.lock().unwrap_or_else(PoisonError::into_inner);
    CHANGED.wait_while(load, |load| !is_free(load)).unwrap_or_else(PoisonError::into_inner)
}

fn change(change: impl FnOnce(&mut Load)) {
    change(&mut LOAD.lock().unwrap_or_else(PoisonError::into_inner));
    CHANGED.notify_all();
}

/// Held by a test that measures time, which nobody busy may share.
#[must_use]
pub(crate) struct Alone(());

/// Waits until no busy test runs.
pub(crate) fn alone() -> Alone {
    wait_until(|load| load.busy == 0 && !load.is_alone).is_alone = true;
    Alone(())
}

impl Drop for Alone {
    fn drop(&mut self) {
        change(|load| load.is_alone = false);
    }
}

/// Held by a test that keeps a core busy for long. A test may hold several, and many tests may hold one.
#[must_use]
pub(crate) struct Busy(());

/// Waits until no test runs that needs the machine for itself.
pub(crate) fn busy() -> Busy {
    wait_until(|load| !load.is_alone).busy += 1;
    Busy(())
}

impl Drop for Busy {
    fn drop(&mut self) {
        change(|load| load.busy -= 1);
    }
}

/// Runs a test again in a process of its own, where no other test uses memory. Returns whether this is that process,
/// which then does the work. The name starts with the module.
#[must_use]
pub(crate) fn is_own_process(test: &str) -> bool {
    const OWN: &str = "AZUREAL_TEST_OWN_PROCESS";
    if std::env::var_os(OWN).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(OWN, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    // A name that no test has would pass without a test.
    assert!(output.status.success() && text[0].contains("1 passed"), "{}\n{}", text[0], text[1]);
    false
}

/// Returns a number of bytes from what the system says of this process; `None` where there is no `/proc`.
pub(crate) fn own_memory(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let rest = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of this name");
    let kib: u64 = rest.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap();
    Some(kib * 1024)
}
