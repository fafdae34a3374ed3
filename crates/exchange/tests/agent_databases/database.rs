//! Databases with the recorded rows.

use std::fs;
use std::path::{Path, PathBuf};

use azureal_agents::native::{NativeError, NativeHome, NativeSource, NativeTurn};
use azureal_exchange::native_sources;
use azureal_store::sqlite::rusqlite::Connection;
use tempfile::TempDir;

pub(crate) const AGENTS: [&str; 2] = ["opencode", "goose"];

/// A home of an agent with a database.
pub(crate) struct Home {
    pub(crate) agent: &'static str,
    pub(crate) folder: TempDir,
    temporary: TempDir,
}

impl Home {
    /// Writes the recorded database, in WAL mode as the programs have it.
    pub(crate) fn new(agent: &'static str) -> Self {
        let home =
            Self { agent, folder: tempfile::tempdir().unwrap(), temporary: tempfile::tempdir().unwrap() };
        fs::create_dir_all(home.file().parent().unwrap()).unwrap();
        home.change(&fs::read_to_string(fixtures().join(format!("{agent}.sql"))).unwrap());
        home
    }

    /// Writes a database of opencode 2: `fixtures/opencode-2.sql`.
    pub(crate) fn of_opencode_2() -> Self {
        let home = Self::new("opencode");
        home.change("DELETE FROM session; DELETE FROM message; DELETE FROM part;");
        home.change(&fs::read_to_string(fixtures().join("opencode-2.sql")).unwrap());
        home
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join(if self.agent == "goose" { "sessions/sessions.db" } else { "opencode.db" })
    }

    /// Opens the database as the agent's program does.
    pub(crate) fn connect(&self) -> Connection {
        let connection = Connection::open(self.file()).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        connection
    }

    pub(crate) fn change(&self, sql: &str) {
        self.connect().execute_batch(sql).unwrap();
    }

    pub(crate) fn open(&self) -> Result<Box<dyn NativeHome>, NativeError> {
        source(self.agent).open(self.folder.path(), self.temporary.path())
    }

    /// Reads all turns of the only session.
    pub(crate) fn turns(&self) -> Vec<NativeTurn> {
        let home = self.open().unwrap();
        let session = home.sessions(None).next().unwrap().unwrap();
        let mut turns = home.turns(&session).unwrap();
        std::iter::from_fn(|| turns.next_turn().unwrap()).collect()
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        let turns = self.turns();
        turns.iter().flat_map(|turn| &turn.problems).map(ToString::to_string).collect()
    }

    /// Returns whether no copy was left behind.
    pub(crate) fn has_no_copies(&self) -> bool {
        fs::read_dir(self.temporary.path()).unwrap().count() == 0
    }
}

pub(crate) fn source(agent: &str) -> &'static dyn NativeSource {
    native_sources().iter().copied().find(|source| source.agent() == agent).unwrap()
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent_databases/fixtures")
}
