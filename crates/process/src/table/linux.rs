//! The processes of Linux, as `/proc` shows them.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::{fs, io, iter};

use super::Entry;
use crate::identity::ProcessIdentity;
use crate::marker::Marker;

/// Returns the process that has this number, if there is one.
pub(crate) fn look(pid: u32) -> io::Result<Option<Entry>> {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(bytes) => {
            let stat = String::from_utf8_lossy(&bytes);
            parse_stat(&stat, boot()).map(Some).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat: {stat}"))
            })
        }
        // Without /proc no process can be found.
        Err(error) if error.kind() == io::ErrorKind::NotFound && Path::new("/proc/self/stat").exists() => {
            Ok(None)
        }
        // It ended between opening and reading.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns all processes that can be seen.
pub(crate) fn all() -> Vec<Entry> {
    pids().filter_map(|pid| look(pid).ok().flatten()).collect()
}

/// Returns whether a process has a file open; `None` if that may not be looked at.
pub(crate) fn holds_open(pid: u32, file: &Path) -> Option<bool> {
    let wanted = fs::metadata(file).ok()?;
    let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let is_it = |found: fs::Metadata| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino());
    Some(open.filter_map(|entry| fs::metadata(entry.ok()?.path()).ok()).any(is_it))
}

/// Returns the processes that run with `marker` in their environment, without this one.
///
/// Each is returned as soon as it is found: some are gone before the whole list is searched.
pub(crate) fn marked(marker: &Marker) -> impl Iterator<Item = ProcessIdentity> {
    let entry = marker.entry();
    newest_first().filter(|pid| *pid != std::process::id()).filter_map(move |pid| {
        // Looked at before and after, so that the environment is of the process that is named.
        let before = look(pid).ok().flatten().filter(|process| process.runs)?;
        // Another user's process, or gone.
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let is_marked = environment.split(|byte| *byte == 0).any(|one| one == entry.as_bytes());
        (is_marked && before.identity.is_there()).then_some(before.identity)
    })
}

/// Returns the entries `KEY=VALUE` of these keys in the environments of all processes, without this one.
pub(crate) fn environments_with(keys: &[&str]) -> BTreeSet<String> {
    let is_wanted = |entry: &[u8]| {
        keys.iter().any(|key| entry.strip_prefix(key.as_bytes()).is_some_and(|rest| rest.starts_with(b"=")))
    };
    let mut found = BTreeSet::new();
    for pid in newest_first().filter(|pid| *pid != std::process::id()) {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let entries = environment.split(|byte| *byte == 0).filter(|entry| is_wanted(entry));
        found.extend(entries.map(|entry| String::from_utf8_lossy(entry).into_owned()));
    }
    found
}

fn pids() -> impl Iterator<Item = u32> {
    let folder = fs::read_dir("/proc").into_iter().flatten();
    folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Returns all processes, the newest first, and then those that were started meanwhile.
///
/// The list is of one moment, and to go through it takes longer than some processes live. One that always
/// starts another before it ends would never be met at the end of the list.
fn newest_first() -> impl Iterator<Item = u32> {
    let mut seen = BTreeSet::new();
    let mut next = Vec::new();
    let mut lists = 0;
    iter::from_fn(move || {
        // A machine that always starts processes must not keep us here for ever.
        if next.is_empty() && lists < 20 {
            lists += 1;
            next.extend(pids().filter(|pid| seen.insert(*pid)));
            next.sort_unstable();
        }
        next.pop()
    })
}

/// Returns the identity of this boot.
///
/// Start times of processes count from the boot, so without it a process could be mistaken for one before a restart.
fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        id.trim().to_owned()
    })
}

/// Reads the line of `/proc/PID/stat`; proc_pid_stat(5) numbers its fields.
fn parse_stat(stat: &str, boot: &str) -> Option<Entry> {
    let (pid, rest) = stat.split_once(" (")?;
    // The name of the program may hold anything, brackets and spaces included; what follows it does not.
    let (_, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let state = field(3)?;
    let threads: u32 = field(20)?.parse().ok()?;
    // A first thread that has ended looks like a process that has, while other threads continue.
    let runs = !matches!(state, "Z" | "X" | "x") || threads > 1;
    Some(Entry {
        identity: ProcessIdentity { pid: pid.parse().ok()?, started: format!("{boot}.{}", field(22)?) },
        parent: field(4)?.parse().ok()?,
        group: field(5)?.parse().ok()?,
        runs,
        stopped: matches!(state, "T"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_read_whatever_the_program_is_called() {
        let rest = "7 40 40 0 -1 4194560 103 0 0 0 0 0 0 0 20 0 1 0 8312 3133440 399";
        let threads = "7 40 40 0 -1 4194560 103 0 0 0 0 0 0 0 20 0 2 0 8312 3133440 399";
        let expected = |runs, stopped| Entry {
            identity: ProcessIdentity { pid: 41, started: "b.8312".into() },
            parent: 7,
            group: 40,
            runs,
            stopped,
        };
        for (stat, entry) in [
            (format!("41 (sleep) S {rest}"), Some(expected(true, false))),
            (format!("41 (a) Z 1 (b) R {rest}\n"), Some(expected(true, false))),
            (format!("41 (sh) T {rest}"), Some(expected(true, true))),
            (format!("41 (sh) Z {rest}"), Some(expected(false, false))),
            (format!("41 (sh) Z {threads}"), Some(expected(true, false))),
            ("41 (sh) S 7 40".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(parse_stat(&stat, "b"), entry, "{stat}");
        }
    }

    #[test]
    fn no_process_has_a_number_that_is_too_high() {
        assert_eq!(look(u32::MAX).unwrap(), None);
    }
}
