//! An index in a file of its own: SQLite with FTS5.
//!
//! The table of tokens is contentless: it has tokens and places, not the text. Its rows are numbered in the order in which events were
//! indexed, so that the newest come first without sorting. A block is a run of rows that are events of one session with one agent.

mod find;
mod labels;
mod rows;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use azureal_core::{
    IndexHit, IndexKind, IndexPart, IndexQuery, IndexState, SearchIndex, SessionId, StoreError,
    TOKENS_VERSION, async_trait,
};
use azureal_files::Folder;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior};
use rustix::fs::OFlags;

/// The version of the tables. A file of another version is made again.
const TABLES_VERSION: u32 = 3;

const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];

/// The longest wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);

/// The tables beside the one of the tokens.
const TABLES: [(&str, &str); 4] = [
    ("about", "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"),
    (
        "sessions",
        "CREATE TABLE sessions (id INTEGER PRIMARY KEY, stamp INTEGER NOT NULL, through INTEGER NOT NULL, \
         last INTEGER NOT NULL, changes INTEGER NOT NULL, agent TEXT, active INTEGER NOT NULL, worktree TEXT NOT NULL)",
    ),
    (
        "blocks",
        "CREATE TABLE blocks (first INTEGER PRIMARY KEY, count INTEGER NOT NULL, session INTEGER NOT NULL, \
         seq INTEGER NOT NULL, agent TEXT, indexed INTEGER NOT NULL)",
    ),
    ("blocks_of_session", "CREATE INDEX blocks_of_session ON blocks (session)"),
];
const TOKENS: &str = "tokens";
/// The tables that FTS5 creates for the one of the tokens.
const SHADOWS: [&str; 4] = ["tokens_data", "tokens_idx", "tokens_docsize", "tokens_config"];

/// Returns all tables, with their definitions. The tokenizer splits at ASCII characters that are neither letters nor digits. Of these, tokens
/// have none.
fn tables(kind: IndexKind) -> impl Iterator<Item = (&'static str, &'static str)> {
    let tokens = match kind {
        IndexKind::Words => {
            "CREATE VIRTUAL TABLE tokens USING fts5(text, labels, content='', contentless_delete=1, tokenize='ascii')"
        }
        // Without the places of tokens, which would take several times the space.
        IndexKind::Substrings => {
            "CREATE VIRTUAL TABLE tokens USING fts5(text, labels, content='', contentless_delete=1, detail=none, tokenize='ascii')"
        }
    };
    TABLES.into_iter().chain([(TOKENS, tokens)])
}

fn file_of(kind: IndexKind) -> &'static str {
    match kind {
        IndexKind::Words => "words.sqlite",
        IndexKind::Substrings => "substrings.sqlite",
    }
}

/// A search index in a file.
pub struct FileIndex {
    kind: IndexKind,
    connection: Mutex<Connection>,
}

impl FileIndex {
    /// The kinds of indexes that a folder may have.
    pub const KINDS: [IndexKind; 2] = [IndexKind::Words, IndexKind::Substrings];

    /// Opens an index in a folder, and creates both if they are missing. `store` tells the store from others: an index of another
    /// store, of another version or with foreign tables is removed and created again.
    pub fn open(folder: &Path, kind: IndexKind, store: &str) -> Result<Self, StoreError> {
        let folder = Folder::open_or_create(folder).map_err(|error| file_error(folder, error))?;
        match Self::open_in(&folder, kind, store) {
            Ok(Some(index)) => return Ok(index),
            Err(error) if !is_damage(&error) => return Err(error),
            Ok(None) | Err(_) => {}
        }
        Self::remove_in(&folder, kind)?;
        match Self::open_in(&folder, kind, store)? {
            Some(index) => Ok(index),
            None => Err(StoreError::other("the search index cannot be created")),
        }
    }

    /// Returns the file of an index in a folder.
    pub fn path(folder: &Path, kind: IndexKind) -> PathBuf {
        folder.join(file_of(kind))
    }

    /// Removes an index in a folder, if there is one, and the folder if it is empty then.
    pub fn delete(folder: &Path, kind: IndexKind) -> Result<(), StoreError> {
        match Folder::open(folder) {
            Ok(open) => {
                Self::remove_in(&open, kind)?;
                std::fs::remove_dir(folder).or_else(|error| match error.kind() {
                    // Something else is in it.
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound => Ok(()),
                    _ => Err(file_error(folder, error)),
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(file_error(folder, error)),
        }
    }

    fn remove_in(folder: &Folder, kind: IndexKind) -> Result<(), StoreError> {
        for suffix in ["-wal", "-shm", "-journal", ""] {
            let name = format!("{}{suffix}", file_of(kind));
            match folder.remove(OsStr::new(&name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(file_error(&folder.join(&name), error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Opens the file; `None` if it is not one of ours.
    fn open_in(folder: &Folder, kind: IndexKind, store: &str) -> Result<Option<Self>, StoreError> {
        let file = file_of(kind);
        let path = folder.join(file);
        let failed = |error| file_error(&path, error);
        match folder.open_file(OsStr::new(file), OFlags::RDWR) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // SQLite would create it for everybody to read.
                match folder.create_file(OsStr::new(file), OFlags::RDWR) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
                    _ => {}
                }
            }
            Err(error) => return Err(failed(error)),
        }
        for companion in COMPANIONS {
            match folder.open_file(OsStr::new(&format!("{file}{companion}")), OFlags::RDWR) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        // The folder may be reached through a link, which SQLite would refuse.
        let real = std::fs::canonicalize(&path).map_err(failed)?;
        let connection = Connection::open_with_flags(real, flags).map_err(fault)?;
        prepare(&connection).map_err(fault)?;
        let version = i64::from(TABLES_VERSION * 1000 + TOKENS_VERSION);
        let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fault)?;
        if found == 0 && is_empty(&connection).map_err(fault)? {
            create(&connection, kind, version, store).map_err(fault)?;
        } else if found != version || !is_ours(&connection, kind, store).map_err(fault)? {
            return Ok(None);
        }
        Ok(Some(Self { kind, connection: Mutex::new(connection) }))
    }

    /// Returns whether blocks, sessions and tokens of an index have the same numbers of events.
    pub fn is_consistent(index: &Connection) -> rusqlite::Result<bool> {
        index.query_row(
            "SELECT (SELECT coalesce(sum(through), 0) FROM sessions) = (SELECT coalesce(sum(count), 0) FROM blocks)
                AND (SELECT coalesce(sum(indexed), 0) FROM blocks) = (SELECT count(*) FROM tokens_docsize)",
            [],
            |row| row.get(0),
        )
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn file_error(path: &Path, error: io::Error) -> StoreError {
    let path = azureal_core::visible_line(&path.to_string_lossy()).into_owned();
    StoreError::Other { place: format!("the search index {path}"), source: error.into() }
}

fn fault(error: rusqlite::Error) -> StoreError {
    StoreError::Other { place: "the search index".to_owned(), source: error.into() }
}

/// Returns whether an error may mean that the file is damaged, so that it should be made again. Another process that holds it, a full
/// disk or a folder that cannot be written are no damage.
pub fn is_damage(error: &StoreError) -> bool {
    use rusqlite::ErrorCode as Code;
    let StoreError::Other { source, .. } = error else { return false };
    match source.downcast_ref::<rusqlite::Error>() {
        Some(rusqlite::Error::SqliteFailure(failure, _)) => !matches!(
            failure.code,
            Code::DatabaseBusy
                | Code::DatabaseLocked
                | Code::DiskFull
                | Code::ReadOnly
                | Code::PermissionDenied
                | Code::CannotOpen
                | Code::OutOfMemory
        ),
        Some(_) => true,
        None => false,
    }
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(PATIENCE)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    // Readers do not wait for a writer. After a loss of power the file is as it was at some commit, which is enough for a cache.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    connection.pragma_update(None, "cache_size", -16_000)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))
}

fn create(connection: &Connection, kind: IndexKind, version: i64, store: &str) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    if is_empty(&transaction)? {
        for (_, sql) in tables(kind) {
            transaction.execute_batch(sql)?;
        }
        // So much is collected before it is written, which makes fewer pieces to merge.
        transaction.execute("INSERT INTO tokens (tokens, rank) VALUES ('hashsize', 8388608)", [])?;
        transaction.execute("INSERT INTO about VALUES ('store', ?1)", [store])?;
        transaction.pragma_update(None, "user_version", version)?;
    }
    transaction.commit()
}

/// Returns whether the file has exactly our tables, and is that of the store.
fn is_ours(connection: &Connection, kind: IndexKind, store: &str) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare("SELECT name, sql FROM sqlite_schema")?;
    let mut rows = statement.query([])?;
    let mut found = 0;
    while let Some(row) = rows.next()? {
        let (name, sql): (String, Option<String>) = (row.get(0)?, row.get(1)?);
        match tables(kind).find(|(table, _)| *table == name) {
            Some((_, expected)) if sql.as_deref() == Some(expected) => found += 1,
            Some(_) => return Ok(false),
            // An index of SQLite itself has no definition.
            None if sql.is_none() || SHADOWS.contains(&name.as_str()) => {}
            None => return Ok(false),
        }
    }
    let about = "SELECT value FROM about WHERE name = 'store'";
    let named: Option<String> = if found == tables(kind).count() {
        connection.query_row(about, [], |row| row.get(0)).optional()?
    } else {
        None
    };
    Ok(named.as_deref() == Some(store))
}

#[async_trait]
impl SearchIndex for FileIndex {
    fn kind(&self) -> IndexKind {
        self.kind
    }

    async fn sessions(&self) -> Result<u64, StoreError> {
        let connection = self.lock();
        let count = connection.query_row("SELECT count(*) FROM sessions", [], |row| row.get(0));
        count.map(i64::cast_unsigned).map_err(fault)
    }

    async fn states(
        &self,
        sessions: Option<&[SessionId]>,
    ) -> Result<Vec<(SessionId, IndexState)>, StoreError> {
        let connection = self.lock();
        match sessions {
            None => rows::all_states(&connection).map_err(fault),
            Some(sessions) => {
                let mut states = Vec::with_capacity(sessions.len());
                for session in sessions {
                    let state = rows::state_of(&connection, *session).map_err(fault)?;
                    states.extend(state.map(|state| (*session, state)));
                }
                Ok(states)
            }
        }
    }

    async fn put(&self, parts: Vec<IndexPart>) -> Result<Vec<bool>, StoreError> {
        let connection = self.lock();
        rows::put(&connection, &parts).map_err(fault)
    }

    async fn remove(&self, sessions: &[SessionId]) -> Result<(), StoreError> {
        let connection = self.lock();
        let removed = || {
            let transaction = Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
            for session in sessions {
                rows::remove(&transaction, *session)?;
            }
            transaction.commit()
        };
        removed().map_err(fault)
    }

    async fn find(&self, query: &IndexQuery) -> Result<Vec<IndexHit>, StoreError> {
        let connection = self.lock();
        // One state of the file for all that is read.
        let find = || {
            let transaction = Transaction::new_unchecked(&connection, TransactionBehavior::Deferred)?;
            let found = find::find(&transaction, self.kind, query)?;
            transaction.finish()?;
            Ok(found)
        };
        find().map_err(fault)
    }

    fn is_exact(&self, _query: &IndexQuery) -> bool {
        self.kind == IndexKind::Words
    }

    async fn checked(&self) -> Result<Option<u64>, StoreError> {
        let connection = self.lock();
        let sql = "SELECT value FROM about WHERE name = 'checked'";
        let checked: Option<String> =
            connection.query_row(sql, [], |row| row.get(0)).optional().map_err(fault)?;
        Ok(checked.and_then(|checked| checked.parse().ok()))
    }

    async fn check(&self) -> Result<(), StoreError> {
        match Self::is_consistent(&self.lock()).map_err(fault)? {
            true => Ok(()),
            // An error of SQLite would be the same: the file is made again.
            false => Err(fault(rusqlite::Error::InvalidQuery)),
        }
    }

    async fn set_checked(&self, now: u64) -> Result<(), StoreError> {
        let connection = self.lock();
        let sql = "INSERT INTO about VALUES ('checked', ?1) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        connection.execute(sql, [now.to_string()]).map(drop).map_err(fault)
    }
}
