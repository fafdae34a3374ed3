//! The versions of the agents' programs, as the programs print them.
//!
//! Starting such a program takes a tenth of a second and more, so the answers are cached. An answer expires, since a file may
//! only be a wrapper that starts another program.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use azureal_process::{Exit, Marker, Spawn, StopTimeouts, Stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::program_cache::{ProgramCache, ProgramFile};
use crate::environment::Environment;

/// The time limit of a program to print its version.
pub const LIMIT: Duration = Duration::from_secs(3);
/// The interval at which a waiting thread checks for an interrupt.
const PAUSE: Duration = Duration::from_millis(50);
/// The bytes of a program's output that are kept.
const OUTPUT_BYTES: usize = 4096;
/// The longest version, in characters.
const VERSION_CHARS: usize = 200;
/// The name of the cache in its folder.
const FILE: &str = "agent-versions.json";
/// The time for which an answer is used, in seconds.
const EXPIRY: i64 = 3600;

/// The answer of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The first line that it printed.
    Version(String),
    /// It exited with an error, or printed no output.
    Failed,
    /// It did not exit within [`LIMIT`], and was killed.
    TooSlow,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Answered {
    asked_at: i64,
    version: String,
}

/// The cache.
#[derive(Debug)]
pub struct Versions {
    cache: ProgramCache<Answered>,
    now: i64,
}

impl Versions {
    /// Reads the cache in a folder. Without a folder there is no caching.
    pub fn load(folder: Option<PathBuf>) -> Self {
        Self { cache: ProgramCache::load(folder, FILE), now: Timestamp::now().as_second() }
    }

    /// Returns the version of a program that was asked lately and has not changed since.
    pub fn get(&self, program: &ProgramFile) -> Option<String> {
        let answered = self.cache.get(program)?;
        let is_current = (0..EXPIRY).contains(&self.now.saturating_sub(answered.asked_at));
        is_current.then(|| answered.version.clone())
    }

    /// Adds an answer.
    pub fn add(&mut self, program: ProgramFile, version: String) {
        self.cache.add(program, Answered { asked_at: self.now, version });
    }

    /// Writes the cache. A cache that cannot be written is not missed.
    pub fn save(&self) {
        self.cache.save();
    }
}

/// Asks a program for its version. Whatever it started has ended when this returns.
pub fn ask(
    program: &Path,
    directory: &Path,
    environment: &Environment,
    is_cancelled: &dyn Fn() -> bool,
) -> Answer {
    let run = format!("{}-{}", std::process::id(), Timestamp::now().as_nanosecond());
    let Ok(marker) = Marker::new("AZUREAL_VERSION_RUN", run) else { return Answer::Failed };
    let mut spawn = Spawn::new(
        program,
        directory,
        environment.for_children().clone(),
        Stream::Keep(OUTPUT_BYTES),
        marker,
    );
    spawn.args = vec!["--version".into()];
    let Ok(child) = spawn.start() else { return Answer::Failed };
    let deadline = Instant::now() + LIMIT;
    let exit = loop {
        match child.wait_timeout(PAUSE) {
            None if Instant::now() < deadline && !is_cancelled() => {}
            exit => break exit,
        }
    };
    let now = Duration::ZERO;
    child.stop(&StopTimeouts { interrupt: now, terminate: now, strays: now, ..StopTimeouts::default() });
    match exit {
        Some(Exit::Code(0)) => {
            first_line(&child.stdout().to_string()).map_or(Answer::Failed, Answer::Version)
        }
        Some(_) => Answer::Failed,
        None => Answer::TooSlow,
    }
}

/// Returns the version of a program: from the cache, else its own answer; `None` if it gives none.
pub fn find(program: &Path, directory: &Path, environment: &Environment) -> Option<String> {
    let file = ProgramFile::of(program);
    let mut cache = Versions::load(environment.cache());
    if let Some(version) = file.as_ref().and_then(|file| cache.get(file)) {
        return Some(version);
    }
    let Answer::Version(version) = ask(program, directory, environment, &|| false) else { return None };
    if let Some(file) = file {
        cache.add(file, version.clone());
        cache.save();
    }
    Some(version)
}

fn first_line(output: &str) -> Option<String> {
    let line = output.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(VERSION_CHARS).collect())
}

/// Parses the numbers of a version from the output of a program, such as `codex-cli 0.36.0`; `None` if there are
/// none.
pub fn numbers(version: &str) -> Option<Vec<u64>> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut words = version.split(|c| !is_number(c));
    let word = words.find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))?;
    word.split('.').filter(|part| !part.is_empty()).map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::program_cache::tests::program;

    #[test]
    fn an_answer_expires() {
        let mut versions = Versions::load(None);
        versions.add(program("/a"), "1.0".to_owned());
        let asked_at = versions.now;
        for (now, is_known) in
            [(asked_at + EXPIRY - 1, true), (asked_at + EXPIRY, false), (asked_at - 1, false)]
        {
            versions.now = now;
            assert_eq!(versions.get(&program("/a")).is_some(), is_known, "{now}");
        }
        assert_eq!(versions.get(&program("/b")), None);
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
