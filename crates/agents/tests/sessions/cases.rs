//! The recorded sessions, in temporary homes.

use std::fs;
use std::path::{Path, PathBuf};

use azureal_agents::native::{self, NativeHome, NativeSession, NativeTurn, NativeTurns};
use tempfile::TempDir;

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions/fixtures")
}

/// A case, copied to a folder of its own.
pub(crate) struct Case {
    pub(crate) agent: String,
    /// The folder in `fixtures`.
    pub(crate) recorded: PathBuf,
    copy: TempDir,
}

impl Case {
    /// Copies a case, such as `gemini/three-turns`. The name of a hidden file begins with `dot-` there.
    pub(crate) fn named(name: &str) -> Self {
        let recorded = fixtures().join(name);
        let copy = tempfile::tempdir().unwrap();
        copy_folder(&recorded, copy.path());
        Self { agent: name.split('/').next().unwrap().to_owned(), recorded, copy }
    }

    /// Returns every case.
    pub(crate) fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for agent in entries(&fixtures()) {
            for case in entries(&agent) {
                let name = case.strip_prefix(fixtures()).unwrap().to_str().unwrap().to_owned();
                cases.push(Self::named(&name));
            }
        }
        assert!(cases.len() >= 7, "only {} cases were found", cases.len());
        cases
    }

    /// Returns the agent's home, or the folder of files.
    pub(crate) fn place(&self) -> PathBuf {
        let home = self.copy.path().join(format!(".{}", self.agent));
        if home.is_dir() { home } else { self.copy.path().to_owned() }
    }

    pub(crate) fn open(&self) -> Box<dyn NativeHome> {
        open(&self.agent, &self.place())
    }

    /// Returns the sessions that have a conversation.
    pub(crate) fn sessions(&self) -> Vec<NativeSession> {
        let home = self.open();
        let found: Vec<NativeSession> = home.sessions(None).map(|found| found.unwrap()).collect();
        found.into_iter().filter(|session| home.head(session).is_ok()).collect()
    }

    /// Returns the file of the first session.
    pub(crate) fn file(&self) -> PathBuf {
        self.sessions()[0].path.clone()
    }

    /// Returns the turns of the first session.
    pub(crate) fn turns(&self) -> Vec<NativeTurn> {
        read(&*self.open(), &self.sessions()[0])
    }
}

pub(crate) fn open(agent: &str, place: &Path) -> Box<dyn NativeHome> {
    // Only databases are copied to the temporary folder.
    native::source(agent).unwrap().open(place, Path::new("/dev/null")).unwrap()
}

/// Reads all turns of a session.
pub(crate) fn read(home: &dyn NativeHome, session: &NativeSession) -> Vec<NativeTurn> {
    all(&mut *home.turns(session).unwrap())
}

pub(crate) fn all(turns: &mut dyn NativeTurns) -> Vec<NativeTurn> {
    std::iter::from_fn(|| turns.next_turn().unwrap()).collect()
}

/// Reads all turns of a file that the user named.
pub(crate) fn read_file(agent: &str, path: &Path) -> Vec<NativeTurn> {
    let home = open(agent, path);
    let session = home.sessions(None).next().unwrap().unwrap();
    read(&*home, &session)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in entries(from) {
        let name = entry.file_name().unwrap().to_str().unwrap();
        let name = name.strip_prefix("dot-").map_or_else(|| name.to_owned(), |hidden| format!(".{hidden}"));
        let target = to.join(&name);
        if entry.is_dir() {
            fs::create_dir(&target).unwrap();
            copy_folder(&entry, &target);
        } else if !name.starts_with("stdout") && !name.ends_with(".snap") {
            fs::copy(&entry, &target).unwrap();
        }
    }
}
