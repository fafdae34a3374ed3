//! The processes of systems without `/proc`, as the program `ps` shows them.

#![cfg_attr(
    target_os = "linux",
    allow(dead_code, reason = "on Linux it is only compiled for its tests, `ps` being about the same there")
)]

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Entry;
use crate::identity::ProcessIdentity;
use crate::marker::Marker;

const COLUMNS: &str = "pid=,ppid=,pgid=,stat=,lstart=";

/// Returns the process that has this number, if there is one.
pub(crate) fn look(pid: u32) -> io::Result<Option<Entry>> {
    let text = ps(&["-o", COLUMNS, "-p", &pid.to_string()])?;
    Ok(text.lines().find_map(parse_line).filter(|entry| entry.identity.pid == pid))
}

/// Returns whether a process has a file open; always `None`, since `ps` does not show it.
pub(crate) fn holds_open(_: u32, _: &Path) -> Option<bool> {
    None
}

/// Returns all processes that can be seen.
pub(crate) fn all() -> Vec<Entry> {
    ps(&["-ax", "-o", COLUMNS]).map(|text| text.lines().filter_map(parse_line).collect()).unwrap_or_default()
}

/// Returns the processes that run with `marker` in their environment, without this one.
pub(crate) fn marked(marker: &Marker) -> impl Iterator<Item = ProcessIdentity> {
    let text = ps(&["-axEww", "-o", "pid=,command="]).unwrap_or_default();
    let entry = marker.entry();
    let pids: Vec<u32> = text.lines().filter_map(|line| parse_marked(line, &entry)).collect();
    pids.into_iter()
        .filter(|pid| *pid != std::process::id())
        .filter_map(|pid| look(pid).ok().flatten())
        .filter(|entry| entry.runs)
        .map(|entry| entry.identity)
}

/// Returns the entries `KEY=VALUE` of these keys in the environments of all processes, without this one.
pub(crate) fn environments_with(keys: &[&str]) -> BTreeSet<String> {
    let text = ps(&["-axEww", "-o", "pid=,command="]).unwrap_or_default();
    let of_others = text.lines().filter_map(|line| line.trim_start().split_once(' '));
    let of_others = of_others.filter(|(pid, _)| pid.parse() != Ok(std::process::id()));
    let is_wanted = |word: &&str| word.split_once('=').is_some_and(|(key, _)| keys.contains(&key));
    of_others.flat_map(|(_, rest)| rest.split(' ')).filter(is_wanted).map(str::to_owned).collect()
}

/// Runs `ps` with times that neither a language, nor a place, nor summer changes.
fn ps(arguments: &[&str]) -> io::Result<String> {
    let output = Command::new("ps")
        .args(arguments)
        .env_clear()
        .env("PATH", "/bin:/usr/bin")
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()?;
    // It exits with 1 and prints no output if there is no such process.
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn parse_line(line: &str) -> Option<Entry> {
    let mut words = line.split_ascii_whitespace();
    let pid = words.next()?.parse().ok()?;
    let parent = words.next()?.parse().ok()?;
    let group = words.next()?.parse().ok()?;
    let state = words.next()?;
    let started: Vec<&str> = words.collect();
    let started = (started.len() == 5).then(|| started.join(" "))?;
    Some(Entry {
        identity: ProcessIdentity { pid, started },
        parent,
        group,
        runs: !state.starts_with('Z'),
        stopped: state.starts_with('T'),
    })
}

/// Returns the process of a line of number, arguments and environment, if it carries `entry`.
///
/// Arguments and environment cannot be distinguished here. No other process is expected to have our marker as an
/// argument.
fn parse_marked(line: &str, entry: &str) -> Option<u32> {
    let (pid, rest) = line.trim_start().split_once(' ')?;
    rest.split(' ').any(|word| word == entry).then(|| pid.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ps_are_read() {
        let entry = |runs, stopped| Entry {
            identity: ProcessIdentity { pid: 41, started: "Mon Nov 16 10:41:00 2026".into() },
            parent: 7,
            group: 40,
            runs,
            stopped,
        };
        for (line, expected) in [
            ("   41     7    40 Ss   Mon Nov 16 10:41:00 2026    ", Some(entry(true, false))),
            ("41 7 40 T Mon Nov 16 10:41:00 2026", Some(entry(true, true))),
            ("41 7 40 Z+ Mon Nov 16 10:41:00 2026", Some(entry(false, false))),
            ("41 7 40 S Mon Nov", None),
            ("", None),
        ] {
            assert_eq!(parse_line(line), expected, "{line}");
        }
    }

    #[test]
    fn a_marker_is_a_whole_word() {
        for (line, expected) in [
            ("  41 sleep 1000 A=1 HOME=/ RUN=x", Some(41)),
            ("41 sleep RUN=x A=1", Some(41)),
            ("41 sleep RUN=xy", None),
            ("41 sleep OTHER_RUN=x", None),
            ("", None),
        ] {
            assert_eq!(parse_marked(line, "RUN=x"), expected, "{line}");
        }
    }

    #[test]
    fn this_process_is_found_by_its_number() {
        let pid = std::process::id();
        let Ok(Some(entry)) = look(pid) else {
            // `ps` is not there on every small Linux, where nothing else needs it either.
            assert_eq!(std::env::consts::OS, "linux");
            return;
        };
        assert_eq!((entry.identity.pid, entry.runs, entry.stopped), (pid, true, false));
        assert!(all().contains(&entry));
    }
}
