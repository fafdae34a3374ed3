//! What the tests of the SQLite store share: scratch files, turns, and the original program's hand.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use azureal_store::core::{Event, NewSession, NewTurn, Page, Seq, SessionId, SessionStore, StoredEvent};
use azureal_store::sqlite::rusqlite::Connection;
use azureal_store::sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    futures_executor::block_on(future)
}

/// A folder that looks like a project, and where its store lies.
pub(crate) struct Project {
    pub(crate) folder: TempDir,
}

impl Project {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(".azureal/sessions.azs")
    }

    /// A project in a git repository, so that its store has a second name.
    pub(crate) fn in_git() -> Self {
        let project = Self::new();
        std::fs::create_dir(project.folder.path().join(".git")).unwrap();
        project
    }

    /// The second name of the store in a git repository.
    pub(crate) fn second_name(&self) -> PathBuf {
        self.folder.path().join(".git/azureal/sessions.azs")
    }

    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::open(self.path(), options(&self.path())).unwrap()
    }

    /// Opens the file as any SQLite client would.
    pub(crate) fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// Makes a file as the original program does, and returns a connection set up like its own.
    pub(crate) fn original(&self) -> Connection {
        std::fs::create_dir_all(self.path().parent().unwrap()).unwrap();
        let original = self.raw();
        original.execute_batch(ORIGINAL_OPEN).unwrap();
        original
    }

    pub(crate) fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path().parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// Returns the options of a store, with its folder in git if there is a git directory.
pub(crate) fn options(path: &Path) -> SqliteOptions {
    let git = path.ancestors().nth(2).map(|project| project.join(".git")).filter(|git| git.is_dir());
    SqliteOptions { in_git: git.map(|git| git.join("azureal")), ..SqliteOptions::default() }
}

/// What the original program does whenever it opens a file, version 3.
pub(crate) const ORIGINAL_OPEN: &str = "
PRAGMA journal_mode=DELETE; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;
CREATE TABLE IF NOT EXISTS sessions (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL DEFAULT '', worktree TEXT NOT NULL DEFAULT '',
  created TEXT NOT NULL DEFAULT (datetime('now')), completed INTEGER, duration_ms INTEGER, cost_usd REAL,
  last_claude_uuid TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
  seq INTEGER NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL, char_len INTEGER NOT NULL DEFAULT 0,
  UNIQUE(session_id, seq));
CREATE INDEX IF NOT EXISTS idx_events_session ON events(session_id, seq);
CREATE TABLE IF NOT EXISTS compactions (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
  after_seq INTEGER NOT NULL, summary TEXT NOT NULL, created TEXT NOT NULL DEFAULT (datetime('now')));
CREATE INDEX IF NOT EXISTS idx_compactions_session ON compactions(session_id);
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT OR IGNORE INTO meta (key, value) VALUES ('schema_version', '3');
UPDATE meta SET value='3' WHERE key='schema_version';
";

pub(crate) fn original_session(original: &Connection, worktree: &str) -> i64 {
    original.execute("INSERT INTO sessions (worktree) VALUES (?1)", [worktree]).unwrap();
    original.last_insert_rowid()
}

/// Appends as the original program does: the next number from the table, no counts.
pub(crate) fn original_append(original: &Connection, session: i64, events: &[Event]) {
    for event in events {
        let json = event.to_json();
        let data = azureal_store_zstd(json.as_bytes());
        original
            .execute(
                "INSERT INTO events (session_id, seq, kind, data, char_len)
                 VALUES (?1, (SELECT ifnull(max(seq), 0) + 1 FROM events WHERE session_id = ?1), ?2, ?3, ?4)",
                (session, event.kind(), data, 0),
            )
            .unwrap();
    }
}

/// A frame without a size in its header, as the original program writes them.
fn azureal_store_zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 3).unwrap()
}

pub(crate) fn new_session(store: &SqliteStore) -> SessionId {
    wait(store.create(NewSession { name: None, worktree: ".".into(), ..NewSession::default() })).unwrap()
}

pub(crate) fn append(store: &SqliteStore, id: SessionId, events: impl IntoIterator<Item = Event>) -> Seq {
    wait(store.append(id, NewTurn::verbatim(events))).unwrap().last
}

pub(crate) fn read_all(store: &SqliteStore, id: SessionId) -> Vec<StoredEvent> {
    let mut all: Vec<StoredEvent> = Vec::new();
    loop {
        let after = all.last().map_or(Seq::START, |last| last.seq);
        let page = wait(store.read(id, Page::After(after, 700))).unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// Runs one test of this very program in a process of its own, as a worker: `role` and `path` reach it by
/// its environment.
pub(crate) fn worker(test: &str, role: &str, path: &Path) -> Command {
    worker_of(&std::env::current_exe().unwrap(), test, role, path)
}

/// The same, with another copy of this program.
pub(crate) fn worker_of(program: &Path, test: &str, role: &str, path: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("AZUREAL_TEST_ROLE", role)
        .env("AZUREAL_TEST_PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Returns the role and the path that a worker was given; nothing in the test itself.
pub(crate) fn role() -> Option<(String, PathBuf)> {
    let role = std::env::var("AZUREAL_TEST_ROLE").ok()?;
    Some((role, PathBuf::from(std::env::var_os("AZUREAL_TEST_PATH")?)))
}

/// Returns whether a program is there. Where it must be and is not, the test fails; otherwise it is skipped
/// with a word that nobody can miss.
pub(crate) fn have(program: &str) -> bool {
    let found = Command::new(program)
        .arg("-V")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        assert!(
            std::env::var_os("AZUREAL_REQUIRE_TOOLS").is_none(),
            "{program} is missing, and this run may skip nothing"
        );
        eprintln!("\n*** SKIPPED: {program} is missing, so this test was not run ***\n");
    }
    found
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
