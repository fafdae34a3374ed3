//! Sessions of agents that keep them in SQLite databases. The parsers of their messages are in `azureal-agents`.
//!
//! Messages are read from a private copy, so nothing changes in the folder of the program, also while the program writes. A value
//! that is too large is left out before it is read.

mod goose;
mod opencode;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use azureal_agents::native::{
    self, NativeError, NativeHead, NativeHome, NativeSession, NativeSource, NativeTotal, NativeTurn,
    NativeTurns,
};
use azureal_store::sqlite::rusqlite::types::ValueRef;
use azureal_store::sqlite::rusqlite::{self, Connection, OptionalExtension, Row, ToSql};

use super::ImportError;
use super::database_copy::{DatabaseCopy, look};
use goose::GooseSessions;
use opencode::OpencodeSessions;

/// The first bytes of every SQLite file.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// The number of sessions of a database, and of messages of a session, that are read.
const MOST_ROWS: usize = 1_000_000;
/// The largest value that is read: 32 MiB, as for lines of files.
const LARGEST_VALUE: i64 = 32 << 20;
/// The longest title and path that is read, in characters.
const LONGEST_NAME: u32 = 4096;

static SOURCES: LazyLock<Vec<&'static dyn NativeSource>> = LazyLock::new(|| {
    let mut sources = native::sources().to_vec();
    sources.extend([&OpencodeSessions as &dyn NativeSource, &GooseSessions]);
    sources.sort_by_key(|source| source.agent());
    sources
});

/// Returns the sources of the native sessions of all agents, in files and in databases, by the names of the agents.
pub fn native_sources() -> &'static [&'static dyn NativeSource] {
    &SOURCES
}

/// Finds the source whose format a file has; `None` if it has none of them. A database is copied to a private folder in
/// `temporary`, because its tables may still be in its log.
pub fn recognise_native(
    path: &Path,
    temporary: &Path,
) -> Result<Option<&'static dyn NativeSource>, NativeError> {
    if let Some(source) = native::recognise(path)? {
        return Ok(Some(source));
    }
    let failed = |source| NativeError::File { path: path.to_owned(), source };
    let mut beginning = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(SQLITE.len() as u64).read_to_end(&mut beginning).map_err(failed)?;
    if beginning != SQLITE {
        return Ok(None);
    }
    let copy = DatabaseCopy::of(path, temporary).map_err(|error| in_native(path, error))?;
    let connection = copy.connect().map_err(|error| in_native(path, error))?;
    let has = |sql: &str| connection.prepare(sql).is_ok();
    let opencode =
        ["session", "session_v2"].map(|table| format!("SELECT directory, time_updated FROM {table}"));
    Ok(if opencode.iter().any(|sql| has(sql)) {
        Some(&OpencodeSessions)
    } else if has("SELECT working_dir, content_json FROM sessions, messages") {
        Some(&GooseSessions)
    } else {
        None
    })
}

/// Returns whether a file is an SQLite database of this name. Its tables may be in its log.
fn is_database(path: &Path, beginning: &[u8], is_name: fn(&str) -> bool) -> bool {
    beginning.starts_with(SQLITE) && path.file_name().and_then(|name| name.to_str()).is_some_and(is_name)
}

/// Returns a folder of the user's data.
fn data_folder(variable: &dyn Fn(&str) -> Option<OsString>, below: &str) -> Vec<PathBuf> {
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share")));
    data.map(|data| data.join(below)).into_iter().collect()
}

/// A database, and its sessions.
struct AgentDatabase {
    path: PathBuf,
    temporary: PathBuf,
    /// The copy, once it is needed. A list of sessions is read in place if that leaves no trace, because a database can have
    /// gigabytes.
    copy: OnceCell<Arc<DatabaseCopy>>,
    sessions: Vec<(NativeSession, NativeHead)>,
    tables: BTreeSet<String>,
}

impl AgentDatabase {
    /// Opens a database, and lists its sessions. It has one of these tables.
    fn open(
        path: &Path,
        temporary: &Path,
        any_of: &[&str],
        list: fn(&Connection) -> rusqlite::Result<Vec<Listed>>,
    ) -> Result<Self, NativeError> {
        let found = look(path).map_err(|error| in_native(path, error))?;
        let has_any = |tables: &BTreeSet<String>| any_of.iter().any(|table| tables.contains(*table));
        let found = found.and_then(|connection| {
            let tables = tables(&connection).ok().filter(has_any)?;
            Some((tables, list(&connection).ok()?))
        });
        let copy = OnceCell::new();
        let (tables, listed) = match found {
            Some(found) => found,
            None => {
                let made = DatabaseCopy::of(path, temporary).map_err(|error| in_native(path, error))?;
                let connection = made.connect().map_err(|error| in_native(path, error))?;
                let failed = |error| in_native(path, made.sqlite_error(error));
                let tables = tables(&connection).map_err(failed)?;
                if !has_any(&tables) {
                    let reason = "it has no table of sessions, or is of a version that azureal does not know";
                    return Err(NativeError::Unreadable { path: path.to_owned(), reason: reason.to_owned() });
                }
                let found = (tables, list(&connection).map_err(failed)?);
                copy.set(Arc::new(made)).ok();
                found
            }
        };
        let sessions = listed.into_iter().map(|listed| listed.session(path)).collect();
        Ok(Self { path: path.to_owned(), temporary: temporary.to_owned(), copy, sessions, tables })
    }

    fn has_table(&self, name: &str) -> bool {
        self.tables.contains(name)
    }

    fn copy(&self) -> Result<Arc<DatabaseCopy>, NativeError> {
        if let Some(copy) = self.copy.get() {
            return Ok(Arc::clone(copy));
        }
        let made =
            DatabaseCopy::of(&self.path, &self.temporary).map_err(|error| in_native(&self.path, error))?;
        Ok(Arc::clone(self.copy.get_or_init(|| Arc::new(made))))
    }

    /// Lists the sessions that ran in a project.
    fn sessions<'a>(&'a self, project: Option<&'a Path>) -> impl Iterator<Item = NativeSession> + 'a {
        let is_of = move |head: &NativeHead| {
            project.zip(head.cwd.as_deref()).is_none_or(|(project, cwd)| cwd.starts_with(project))
        };
        self.sessions.iter().filter(move |(_, head)| is_of(head)).map(|(session, _)| session.clone())
    }

    fn head(&self, session: &NativeSession) -> Result<NativeHead, NativeError> {
        let found = self.sessions.iter().find(|(known, _)| known.id == session.id);
        found.map(|(_, head)| head.clone()).ok_or_else(|| NativeError::Unreadable {
            path: session.path.clone(),
            reason: format!("it has no session `{}`", session.id),
        })
    }

    /// Opens a session, to read its messages.
    fn rows(&self, session: &NativeSession) -> Result<Rows, NativeError> {
        let copy = self.copy()?;
        let connection = copy.connect().map_err(|error| in_native(&session.path, error))?;
        Ok(Rows { path: session.path.clone(), session: session.id.clone(), connection, copy })
    }
}

/// Opens a session of a database to read its turns.
type OpenTurns = fn(&AgentDatabase, &NativeSession) -> Result<Box<dyn NativeTurns>, NativeError>;

/// A database of an agent as a home.
struct DatabaseHome {
    database: AgentDatabase,
    turns: OpenTurns,
}

impl NativeHome for DatabaseHome {
    fn sessions<'a>(
        &'a self,
        project: Option<&'a Path>,
    ) -> Box<dyn Iterator<Item = Result<NativeSession, NativeError>> + 'a> {
        Box::new(self.database.sessions(project).map(Ok))
    }

    fn head(&self, session: &NativeSession) -> Result<NativeHead, NativeError> {
        self.database.head(session)
    }

    fn turns(&self, session: &NativeSession) -> Result<Box<dyn NativeTurns>, NativeError> {
        (self.turns)(&self.database, session)
    }
}

/// Reads the messages of one agent's sessions.
trait MessageReader: Send {
    /// Reads a message by its row.
    fn read(&mut self, rows: &Rows, message: &RowSize) -> Result<(), NativeError>;

    /// Ends the last turn.
    fn finish(&mut self);

    /// Takes the next turn that has ended.
    fn take(&mut self) -> Option<NativeTurn>;

    /// Returns the tokens and the cost of the whole session, if turns have none.
    fn total(&self) -> Option<NativeTotal> {
        None
    }
}

/// Reads the messages of a session, one after the other.
struct DatabaseTurns<R> {
    rows: Rows,
    messages: std::vec::IntoIter<RowSize>,
    reader: R,
    has_ended: bool,
}

impl<R: MessageReader> DatabaseTurns<R> {
    fn new(rows: Rows, messages: Vec<RowSize>, reader: R) -> Self {
        Self { rows, messages: messages.into_iter(), reader, has_ended: false }
    }
}

impl<R: MessageReader> NativeTurns for DatabaseTurns<R> {
    fn next_turn(&mut self) -> Result<Option<NativeTurn>, NativeError> {
        loop {
            if let Some(turn) = self.reader.take() {
                return Ok(Some(turn));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.messages.next() {
                Some(message) => self.reader.read(&self.rows, &message)?,
                None => {
                    self.has_ended = true;
                    self.reader.finish();
                }
            }
        }
    }

    fn total(&self) -> Option<NativeTotal> {
        self.reader.total()
    }
}

fn tables(connection: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    let mut statement = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
    let names = statement.query_map([], |row| text(row, 0))?;
    names.collect()
}

/// A session of a list.
struct Listed {
    id: String,
    cwd: String,
    title: Option<String>,
    is_subagent: bool,
    /// When it began, and when it was changed, in milliseconds.
    created: i64,
    changed: i64,
    /// The number of its rows.
    rows: i64,
}

impl Listed {
    fn session(self, path: &Path) -> (NativeSession, NativeHead) {
        let since = u64::try_from(self.changed).ok().filter(|since| *since > 0);
        let session = NativeSession {
            path: path.to_owned(),
            id: self.id.clone(),
            changed: since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(since))),
            size: u64::try_from(self.rows).unwrap_or(0),
        };
        let head = NativeHead {
            id: self.id,
            cwd: Some(PathBuf::from(self.cwd)).filter(|cwd| cwd.is_absolute()),
            title: self.title.filter(|title| !title.is_empty()),
            started: jiff::Timestamp::from_millisecond(self.created).ok().filter(|_| self.created > 0),
            ended: None,
            first: None,
            copied_from: None,
            is_subagent: self.is_subagent,
            is_headless: false,
        };
        (session, head)
    }
}

/// The rows of a session.
struct Rows {
    path: PathBuf,
    session: String,
    connection: Connection,
    /// Lives as long as it is read.
    copy: Arc<DatabaseCopy>,
}

/// The id of a row, and the size of its values in bytes.
struct RowSize {
    id: RowId,
    size: i64,
}

/// The id of a row: a text or a number.
#[derive(Debug, Clone)]
enum RowId {
    Text(String),
    Number(i64),
}

impl ToSql for RowId {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self {
            Self::Text(text) => text.to_sql(),
            Self::Number(number) => number.to_sql(),
        }
    }
}

impl std::fmt::Display for RowId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "message {number}"),
        }
    }
}

impl Rows {
    fn error(&self, error: rusqlite::Error) -> NativeError {
        in_native(&self.path, self.copy.sqlite_error(error))
    }

    /// Counts the rows of a query with the id of the session.
    fn count(&self, sql: &str) -> Result<i64, NativeError> {
        let count = self.connection.query_row(sql, [&self.session], |row| row.get(0));
        count.map_err(|error| self.error(error))
    }

    /// Lists rows by a query that returns an id and a size. A row with an id of another type is left out.
    fn list(&self, sql: &str, of: &str) -> Result<Vec<RowSize>, NativeError> {
        let read = || -> rusqlite::Result<Vec<RowSize>> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query([of])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()?.filter(|_| found.len() < MOST_ROWS) {
                let id = match row.get_ref(0)? {
                    ValueRef::Text(text) => RowId::Text(String::from_utf8_lossy(text).into_owned()),
                    ValueRef::Integer(number) => RowId::Number(number),
                    _ => continue,
                };
                found.push(RowSize { id, size: number(row, 1)? });
            }
            Ok(found)
        };
        read().map_err(|error| self.error(error))
    }

    /// Reads a row by its id. Returns the reason if it cannot be read.
    fn row<T>(
        &self,
        sql: &str,
        RowSize { id, size }: &RowSize,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, String> {
        if *size > LARGEST_VALUE {
            return Err(format!("it has {} MiB", size >> 20));
        }
        let found = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row([id], read).optional());
        match found {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err("it is gone".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Reads a text; empty if the column has another type. A broken character costs itself only.
fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    })
}

/// Reads a number; 0 if the column has another type.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<i64> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => number,
        _ => 0,
    })
}

/// Converts an error of the copy of a database to one of a native session.
fn in_native(path: &Path, error: ImportError) -> NativeError {
    match error {
        ImportError::File { path, source } => NativeError::File { path, source },
        ImportError::Native(error) => error,
        error => {
            let reason = error.to_string();
            let place = format!("{}: ", path.display());
            let reason = reason.strip_prefix(&place).map_or_else(|| reason.clone(), str::to_owned);
            NativeError::Unreadable { path: path.to_owned(), reason }
        }
    }
}
