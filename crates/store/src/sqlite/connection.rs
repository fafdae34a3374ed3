//! A connection to a store's file: no code of the file runs, waits are short, and a commit is durable.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use azureal_core::{LARGEST_EVENT, StoreError};
use rusqlite::config::DbConfig;
use rusqlite::ffi::SQLITE_IOERR_DELETE_NOENT;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, Transaction};
use tracing::{debug, warn};

use super::definitions::{self, Strictness};
use super::{Journal, error, schema};

/// The time that a call waits for the lock before the store is reported as busy.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens the file for reading and writing, or read-only if that is all that is allowed. Does not change it.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let configure = || -> rusqlite::Result<()> {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
        // FULL does not sync the folder after the journal is removed, and so loses acknowledged commits
        // when the power fails. What is deleted is overwritten: history is private.
        connection.execute_batch(
            "PRAGMA synchronous = EXTRA; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY;",
        )?;
        Ok(())
    };
    configure().map_err(|error| error::from_sqlite(path, error))?;
    check_definitions(path, &connection, Strictness::Store)?;
    Ok(connection)
}

/// Refuses a file that would make SQLite evaluate expressions that are not ours.
fn check_definitions(path: &Path, connection: &Connection, strictness: Strictness) -> Result<(), StoreError> {
    let found = definitions::find_foreign(connection, schema::OUR_INDEXES, strictness)
        .map_err(|error| error::from_sqlite(path, error))?;
    match found {
        Some(what) => Err(StoreError::UnknownDefinition { place: path.display().to_string(), what }),
        None => Ok(()),
    }
}

/// Sets the journal mode. Only once the file is known to be ours: this writes to it.
pub(super) fn use_journal(path: &Path, connection: &Connection, journal: Journal) -> Result<(), StoreError> {
    match journal {
        Journal::Delete => Ok(()),
        Journal::Wal => connection
            .pragma_update(None, "journal_mode", "wal")
            .map_err(|error| error::from_sqlite(path, error)),
    }
}

/// Opens another program's SQLite file read-only, such that no code in it runs.
pub fn open_foreign(path: &Path) -> Result<Connection, StoreError> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Opens another program's SQLite file that no process uses, read-only and without locks: no file is created beside it. A process
/// that begins to write meanwhile makes reading wrong, so this is for a short look only.
pub fn open_foreign_unused(path: &Path) -> Result<Connection, StoreError> {
    open_uri(path, "immutable=1")
}

/// Opens another program's SQLite file that a process uses in WAL mode, such that the index of its log stays as it is too. Reading
/// fails if no process uses it any more.
pub fn open_foreign_used(path: &Path) -> Result<Connection, StoreError> {
    open_uri(path, "readonly_shm=1")
}

fn open_uri(path: &Path, parameter: &str) -> Result<Connection, StoreError> {
    let mut uri = OsString::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' => uri.push(format!("%{byte:02x}")),
            byte => uri.push(OsStr::from_bytes(&[*byte])),
        }
    }
    uri.push("?");
    uri.push(parameter);
    connect(Path::new(&uri), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
}

/// Opens a SQLite file of ours that is no store, such that no code in it runs. In WAL mode, reading needs write access.
pub fn open_cache(path: &Path) -> Result<Connection, StoreError> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

/// Refuses a file of another program whose columns SQLite would compute while they are read.
pub fn check_foreign(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    check_definitions(path, connection, Strictness::ReadOnly)
}

/// The largest value and the largest row: an event, and what its frame and its row add.
const LARGEST_ROW: i32 = LARGEST_EVENT as i32 + (64 << 10);

/// Limits that no statement of ours reaches. They bound a foreign file when SQLite parses its definitions.
const LIMITS: [(Limit, i32); 6] = [
    (Limit::SQLITE_LIMIT_LENGTH, LARGEST_ROW),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 20),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 100),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 10),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 10),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
];

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, StoreError> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connect = || -> rusqlite::Result<Connection> {
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_handler(Some(wait_for_lock))?;
        // A file from elsewhere must not act: no triggers, no views, no functions that the schema names.
        for (config, on) in [
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
            (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
            (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
            (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
        ] {
            connection.set_db_config(config, on)?;
        }
        for (limit, value) in LIMITS {
            connection.set_limit(limit, value)?;
        }
        connection.execute_batch("PRAGMA cell_size_check = ON;")?;
        connection.set_prepared_statement_cache_capacity(32);
        Ok(connection)
    };
    connect().map_err(|error| error::from_sqlite(path, error))
}

/// Commits a change.
///
/// A journal that another program has deleted meanwhile, as `git clean` does, is no error: the change is in the file, and
/// nothing is left that would undo it. The file may be deleted as well: see [`take_journal_loss`].
pub(super) fn commit(transaction: Transaction<'_>) -> rusqlite::Result<()> {
    match transaction.commit() {
        Err(error)
            if error.sqlite_error().is_some_and(|found| found.extended_code == SQLITE_IOERR_DELETE_NOENT) =>
        {
            JOURNAL_WAS_LOST.set(true);
            Ok(())
        }
        committed => committed,
    }
}

/// Returns whether a journal was lost on this thread since the last call.
pub(super) fn take_journal_loss() -> bool {
    JOURNAL_WAS_LOST.take()
}

/// Closes the connection, and leaves the file without companions if no other process has it open.
///
/// A store in WAL mode returns to DELETE when the last process closes it. While others have it open SQLite refuses,
/// and the last of them does it.
pub(super) fn close(connection: Connection) -> rusqlite::Result<()> {
    let has_log = connection.path().is_some_and(|path| Path::new(&format!("{path}-wal")).exists());
    if has_log {
        connection.busy_timeout(Duration::ZERO)?;
        match connection.pragma_update(None, "journal_mode", "delete") {
            Err(error) if error.sqlite_error_code() != Some(rusqlite::ErrorCode::DatabaseBusy) => {
                return Err(error);
            }
            Ok(()) => {}
            Err(_) => debug!("leaves the store in WAL mode: another process has it open"),
        }
    }
    connection.close().map_err(|(_, error)| error)
}

/// Writes all that is in a write-ahead log to the file; returns whether it did. The names of both may be deleted: the
/// connection has them open.
pub(super) fn save_log(connection: &Connection) -> bool {
    let is_busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
    matches!(is_busy, Ok(false))
}

thread_local! {
    static JOURNAL_WAS_LOST: Cell<bool> = const { Cell::new(false) };
    static WAITING_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Whether the log has this wait already.
    static IS_WAIT_LOGGED: Cell<bool> = const { Cell::new(false) };
}

/// A wait that takes longer is logged.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// Waits a little for the holder of the lock, and returns whether to retry.
///
/// SQLite's own backoff grows to a tenth of a second: under load some writers starve for seconds. Short waits with
/// jitter cost little next to a disk sync, and every writer gets a turn.
fn wait_for_lock(attempt: i32) -> bool {
    let now = Instant::now();
    if attempt == 0 {
        WAITING_SINCE.set(Some(now));
        IS_WAIT_LOGGED.set(false);
    }
    let waited = WAITING_SINCE.get().map_or(Duration::ZERO, |since| now - since);
    if waited > LOCK_TIMEOUT {
        warn!(waited_s = waited.as_secs(), "gives up waiting for the lock of the store");
        return false;
    }
    if waited >= LONG_WAIT && !IS_WAIT_LOGGED.replace(true) {
        warn!("another process holds the lock of the store: waits");
    }
    let jitter = RandomState::new().build_hasher().finish();
    let micros = if waited < LONG_WAIT { 200 + jitter % 700 } else { 1_000 + jitter % 9_000 };
    std::thread::sleep(Duration::from_micros(micros));
    true
}
