//! Finding the recordings, and playing them to a parser.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use azureal_agents::registry;
use azureal_core::agent::{Agent, AgentOutput, Ending, Exit};
use azureal_process::{Follow, Line};
use tempfile::NamedTempFile;

/// One recorded run.
pub(crate) struct Case {
    /// `claude/current/plain`.
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) agent: &'static dyn Agent,
    pub(crate) stdout: Vec<u8>,
    pub(crate) exit: Option<Exit>,
    pub(crate) stderr: String,
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Returns every recording.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for agent in folders(&fixtures()) {
        for version in folders(&agent) {
            cases.extend(folders(&version).iter().map(|folder| load(folder)));
        }
    }
    assert!(cases.len() > 150, "only {} recordings were found", cases.len());
    cases
}

/// Returns the recording of this name.
pub(crate) fn named(name: &str) -> Case {
    load(&fixtures().join(name))
}

fn folders(parent: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(parent)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

fn load(folder: &Path) -> Case {
    let name = folder.strip_prefix(fixtures()).unwrap().to_str().unwrap().to_owned();
    let read =
        |file: &str| fs::read(folder.join(file)).unwrap_or_else(|error| panic!("{name}/{file}: {error}"));
    let text = |file: &str| String::from_utf8(read(file)).unwrap();
    let exit = match text("exit_code").trim() {
        signal if signal.starts_with("signal ") => Some(Exit::Signal(signal[7..].parse().unwrap())),
        code => Some(Exit::Code(code.parse().unwrap())),
    };
    Case {
        agent: registry::find(name.split('/').next().unwrap()).unwrap(),
        stdout: read("stdout.jsonl"),
        exit,
        stderr: text("stderr.txt"),
        folder: folder.to_owned(),
        name,
    }
}

impl Case {
    /// Plays the recording in one piece.
    pub(crate) fn play(&self) -> Vec<AgentOutput> {
        self.play_in_pieces([self.stdout.as_slice()])
    }

    /// Plays the recording as it arrives: cut anywhere.
    pub(crate) fn play_in_pieces<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<AgentOutput> {
        let joined = Growing::new().join(pieces);
        let mut parser = self.agent.parser();
        let mut outputs: Vec<AgentOutput> = joined.lines.iter().flat_map(|line| parser.line(line)).collect();
        let ending = Ending {
            exit: self.exit,
            stderr: self.stderr.clone(),
            fragment: joined.fragment,
            duration: Duration::from_millis(1234),
            stopped: None,
        };
        outputs.extend(parser.end(&ending));
        outputs
    }
}

/// How large a file may grow before another takes its place.
const FILE_SIZE: u64 = 16 << 20;

/// A file that grows piece by piece and is followed meanwhile, as the output of a live run is.
pub(crate) struct Growing {
    file: NamedTempFile,
    follow: Follow,
}

/// What was read of such a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) lines: Vec<Vec<u8>>,
    /// What stood behind the last line break.
    pub(crate) fragment: Vec<u8>,
}

impl Growing {
    pub(crate) fn new() -> Self {
        let file = NamedTempFile::new().unwrap();
        let follow = Follow::open(file.path(), 0).unwrap();
        Self { file, follow }
    }

    /// Appends the pieces, one after the other, and reads after each as far as there are lines.
    pub(crate) fn join<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Joined {
        let mut joined = Joined::default();
        for piece in pieces {
            self.file.write_all(piece).unwrap();
            while let Some(line) = self.follow.try_line().unwrap() {
                joined.lines.push(bytes(line));
            }
        }
        joined.fragment = self.follow.remaining_fragment().unwrap().map(bytes).unwrap_or_default();
        // An empty file for every cut would take minutes; the next one can only begin where a line does.
        if !joined.fragment.is_empty() || self.follow.offset() > FILE_SIZE {
            *self = Self::new();
        }
        joined
    }
}

fn bytes(line: Line) -> Vec<u8> {
    match line {
        Line::Bytes(bytes) => bytes,
        Line::Oversized { bytes } => panic!("a line of {bytes} bytes in a recording"),
    }
}
