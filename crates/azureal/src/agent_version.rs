//! The versions of the agents' programs, as the programs themselves say them.
//!
//! Starting such a program takes a tenth of a second and more, so the answers are cached: by path, identity, size and
//! times of the file. An answer expires too, since a file may only be a wrapper that starts another program. The cache is
//! a file of the user's own; one that cannot be read, or that others could have written, counts as empty.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use azureal_process::{Exit, Marker, Patience, Spawn, Stream};
use jiff::Timestamp;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::interrupts::Interrupted;

/// How long a program may take to say its version.
pub(crate) const LIMIT: Duration = Duration::from_secs(3);
/// How often a waiting thread looks for an interrupt.
const PAUSE: Duration = Duration::from_millis(50);
/// How much of the output of a program is kept.
const OUTPUT_BYTES: usize = 4096;
/// How long a version may be, in characters.
const VERSION_CHARS: usize = 200;
/// The name of the cache in its folder.
const FILE: &str = "agent-versions.json";
/// The longest cache that is read.
const CACHE_BYTES: u64 = 64 * 1024;
/// How many answers the cache holds.
const ENTRIES: usize = 16;
/// How long an answer is used, in seconds.
const EXPIRY: i64 = 3600;

/// What a program answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The first line that it printed.
    Version(String),
    /// It exited with an error, or printed nothing.
    Failed,
    /// It did not exit within [`LIMIT`], and was killed.
    TooSlow,
}

/// A program, and the state in which it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    path: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Package managers set the time of modification to that of the package. This one they cannot set.
    changed: (i64, i64),
}

impl Asked {
    /// Describes the file that a path leads to; `None` if there is none.
    pub(crate) fn of(program: &Path) -> Option<Self> {
        let path = fs::canonicalize(program).ok()?;
        let found = fs::metadata(&path).ok()?;
        Some(Self {
            path,
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    program: Asked,
    asked_at: i64,
    version: String,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct Versions {
    folder: Option<PathBuf>,
    /// The newest last.
    entries: Vec<Entry>,
    now: i64,
}

impl Versions {
    /// Reads the cache in a folder. Without one, nothing is cached.
    pub(crate) fn load(folder: Option<PathBuf>) -> Self {
        let bytes = folder.as_deref().and_then(|folder| read_private(&folder.join(FILE)).ok());
        let entries = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Self { folder, entries, now: Timestamp::now().as_second() }
    }

    /// Returns the version of a program that was asked lately and has not changed since.
    pub(crate) fn get(&self, program: &Asked) -> Option<String> {
        let is_current = |entry: &&Entry| {
            entry.program == *program && (0..EXPIRY).contains(&self.now.saturating_sub(entry.asked_at))
        };
        self.entries.iter().rev().find(is_current).map(|entry| entry.version.clone())
    }

    /// Adds an answer.
    pub(crate) fn add(&mut self, program: Asked, version: String) {
        self.entries.retain(|entry| entry.program.path != program.path);
        self.entries.push(Entry { program, asked_at: self.now, version });
        let too_many = self.entries.len().saturating_sub(ENTRIES);
        self.entries.drain(..too_many);
    }

    /// Writes the cache. A cache that cannot be written is not missed.
    pub(crate) fn save(&self) {
        if let Some(folder) = &self.folder {
            drop(self.write_to(folder));
        }
    }

    fn write_to(&self, folder: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // Only the user can read it, and it appears whole.
        let mut file = NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&mut file, &self.entries)?;
        file.flush()?;
        file.persist(folder.join(FILE))?;
        Ok(())
    }
}

/// Reads a file that belongs to the user and that nobody else can write.
fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    let is_private = found.is_file()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() & 0o022 == 0
        && found.len() <= CACHE_BYTES;
    if !is_private {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    file.take(CACHE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Asks a program for its version. Whatever it started has ended when this returns.
pub(crate) fn ask(program: &Path, interrupted: &Interrupted) -> Answer {
    let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let run = format!("{}-{}", std::process::id(), Timestamp::now().as_nanosecond());
    let Ok(marker) = Marker::new("AZUREAL_VERSION_RUN", run) else { return Answer::Failed };
    let mut spawn = Spawn::new(program, directory, Stream::Keep(OUTPUT_BYTES), marker);
    spawn.args = vec!["--version".into()];
    let Ok(child) = spawn.start() else { return Answer::Failed };
    let deadline = Instant::now() + LIMIT;
    let exit = loop {
        match child.wait_timeout(PAUSE) {
            None if Instant::now() < deadline && !interrupted.has_happened() => {}
            exit => break exit,
        }
    };
    let now = Duration::ZERO;
    child.stop(&Patience { interrupt: now, terminate: now, strays: now, ..Patience::default() });
    match exit {
        Some(Exit::Code(0)) => {
            first_line(&child.stdout().to_string()).map_or(Answer::Failed, Answer::Version)
        }
        Some(_) => Answer::Failed,
        None => Answer::TooSlow,
    }
}

fn first_line(output: &str) -> Option<String> {
    let line = output.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(VERSION_CHARS).collect())
}

/// Reads the numbers of a version out of what a program says, such as `codex-cli 0.36.0`; `None` if there are none.
pub(crate) fn numbers(version: &str) -> Option<Vec<u64>> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut words = version.split(|c| !is_number(c));
    let word = words.find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))?;
    word.split('.').filter(|part| !part.is_empty()).map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn asked(name: &str) -> Asked {
        let path = PathBuf::from(name);
        Asked { path, device: 1, inode: 2, size: 3, modified: (4, 5), changed: (6, 7) }
    }

    #[test]
    fn a_version_is_cached_until_the_program_changes_or_the_answer_expires() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        let load = || Versions::load(Some(folder.clone()));
        let mut versions = load();
        versions.add(asked("/a"), "1.0".to_owned());
        versions.save();
        let mut versions = load();
        assert_eq!(versions.get(&asked("/a")).as_deref(), Some("1.0"));
        assert_eq!(versions.get(&asked("/b")), None);
        assert_eq!(versions.get(&Asked { changed: (6, 8), ..asked("/a") }), None);
        assert_eq!(versions.get(&Asked { size: 4, ..asked("/a") }), None);
        let asked_at = versions.now;
        for (now, is_known) in
            [(asked_at + EXPIRY - 1, true), (asked_at + EXPIRY, false), (asked_at - 1, false)]
        {
            versions.now = now;
            assert_eq!(versions.get(&asked("/a")).is_some(), is_known, "{now}");
        }
        for (path, mode) in [(folder.join(FILE), 0o600), (folder.clone(), 0o700)] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode);
        }
    }

    #[test]
    fn a_cache_that_is_not_ours_counts_as_empty() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        let load = || Versions::load(Some(folder.path().to_owned()));
        let mut versions = load();
        versions.add(asked("/a"), "1.0".to_owned());
        versions.save();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(load().entries, []);
        for text in ["", "[", "{}", "[{\"path\":1}]", &"[".repeat(100_000)] {
            fs::remove_file(&file).unwrap();
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(load().entries, [], "{text:.20}");
        }
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert_eq!(load().entries, []);
        // It is replaced, not written through.
        versions.save();
        assert_eq!(load().entries, versions.entries);
        assert!(Versions::load(None).entries.is_empty());
    }

    #[test]
    fn the_cache_does_not_grow() {
        let mut versions = Versions::load(None);
        for number in 0..100 {
            versions.add(asked(&format!("/{number}")), "1.0".to_owned());
            versions.add(asked("/same"), "1.0".to_owned());
        }
        assert_eq!(versions.entries.len(), ENTRIES);
    }

    #[test]
    fn the_numbers_of_a_version_are_found() {
        for (text, expected) in [
            ("2.1.197 (Claude Code)", Some(&[2, 1, 197][..])),
            ("codex-cli 0.166.0", Some(&[0, 166, 0])),
            ("codex-cli 0.167.0-alpha.3", Some(&[0, 167, 0])),
            ("v20.1", Some(&[20, 1])),
            ("2 of 3, version 1.2.", Some(&[1, 2])),
            ("unknown", None),
            ("", None),
            ("99999999999999999999.1", None),
        ] {
            assert_eq!(numbers(text).as_deref(), expected, "{text}");
        }
        assert!(numbers("1.0.127 (Claude Code)").unwrap().as_slice() < &[1, 0, 128]);
        assert!(numbers("2.0").unwrap().as_slice() > &[1, 0, 128]);
    }

    #[test]
    fn a_version_is_one_short_line() {
        assert_eq!(first_line("\n  1.0 \n2.0").as_deref(), Some("1.0"));
        assert_eq!(first_line(" \n"), None);
        assert_eq!(first_line(&"x".repeat(1000)).map(|line| line.len()), Some(VERSION_CHARS));
    }
}
