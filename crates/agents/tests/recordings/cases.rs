//! Finding the recordings, and playing them to a parser.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use azureal_agents::registry;
use azureal_core::agent::{Agent, AgentOutput, Ending, Exit};

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
        let mut parser = self.agent.parser();
        let mut outputs = Vec::new();
        let mut lines = Lines::default();
        for piece in pieces {
            lines.feed(piece, |line| outputs.extend(parser.line(line)));
        }
        let ending = Ending {
            exit: self.exit,
            stderr: self.stderr.clone(),
            fragment: lines.rest,
            duration: Duration::from_millis(1234),
            stopped: None,
        };
        outputs.extend(parser.end(&ending));
        outputs
    }
}

/// Cuts a stream into lines.
#[derive(Default)]
pub(crate) struct Lines {
    pub(crate) rest: Vec<u8>,
}

impl Lines {
    pub(crate) fn feed(&mut self, piece: &[u8], mut line: impl FnMut(&[u8])) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(part);
            if let Some(whole) = self.rest.strip_suffix(b"\n") {
                line(whole);
                self.rest.clear();
            }
        }
    }
}
