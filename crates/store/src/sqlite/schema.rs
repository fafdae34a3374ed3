//! The four tables, upgrades from other versions, and checks of foreign files.
//!
//! The tables and their first columns are those of the original program, which may have the same file open: it writes
//! `schema_version` 3 at every start and does not know our columns. So ours are optional, our version is separate in
//! `azureal_format`, and counts record how far they were counted.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use azureal_core::{ListOrder, StoreError, Uuid};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use tracing::{debug, info};

use super::codec::Codec;
use super::error::Fault;
use super::{connection, counts, error, sessions, tokens, values};

/// The version that the original program writes.
const SCHEMA_VERSION: u32 = 3;
/// The version of what we add.
const FORMAT: u32 = 1;

/// The columns that the original program has, some of them only in its later versions.
const SHARED_COLUMNS: [(&str, &str); 8] = [
    ("id", "INTEGER PRIMARY KEY AUTOINCREMENT"),
    ("name", "TEXT NOT NULL DEFAULT ''"),
    ("worktree", "TEXT NOT NULL DEFAULT ''"),
    ("created", "TEXT NOT NULL DEFAULT (datetime('now'))"),
    ("completed", "INTEGER"),
    ("duration_ms", "INTEGER"),
    ("cost_usd", "REAL"),
    ("last_claude_uuid", "TEXT NOT NULL DEFAULT ''"),
];

/// The columns that every version of every program has, by table. A file that lacks one has a damaged definition.
const NEEDED_COLUMNS: [(&str, &[&str]); 4] = [
    ("sessions", &["id", "name", "worktree", "created"]),
    ("events", &["session_id", "seq", "kind", "data"]),
    ("compactions", &["session_id", "after_seq", "summary"]),
    ("meta", &["key", "value"]),
];

/// The columns that we add to a session.
///
/// Never `context_tokens`, `output_tokens` or `context_window`: the original program drops columns of these names.
/// [`azureal_core::Counts`] and [`super::counts`] describe their values.
const OUR_COLUMNS: [(&str, &str); 29] = [
    ("tokens_in", "INTEGER"),
    ("tokens_out", "INTEGER"),
    ("counted_seq", "INTEGER"),
    ("event_count", "INTEGER"),
    ("message_count", "INTEGER"),
    ("open_message", "TEXT"),
    ("preview", "TEXT"),
    ("agent", "TEXT"),
    ("model", "TEXT"),
    ("told", "INTEGER"),
    ("model_tokens", "INTEGER"),
    ("last_event", "INTEGER"),
    ("active", "INTEGER"),
    ("uuid", "TEXT"),
    ("forked_from", "TEXT"),
    ("last_active", "TEXT"),
    ("run", "TEXT"),
    ("last_prompt", "TEXT"),
    ("answered", "INTEGER"),
    ("requested_model", "TEXT"),
    ("tallied_seq", "INTEGER"),
    (CACHE_COLUMNS[0], "INTEGER"),
    (CACHE_COLUMNS[1], "INTEGER"),
    (CHANGES, "INTEGER"),
    (DETAIL_COLUMNS[0], "INTEGER"),
    (DETAIL_COLUMNS[1], "INTEGER"),
    (COPIED, "INTEGER"),
    (NAMED_AT, "TEXT"),
    (GENERATION, "INTEGER"),
];

/// Columns that came after the second release: the totals of the cache.
const CACHE_COLUMNS: [&str; 2] = ["cache_read", "cache_write"];
/// Another: the changes of a session that added no events.
const CHANGES: &str = "changes";
/// Others: what details add to the counted size, and the last event that this is true of. The older `told` is without them.
const DETAIL_COLUMNS: [&str; 2] = ["details", "detailed_seq"];
/// Another: the last event that a fork has from its origin. Unknown of an older fork.
const COPIED: &str = "copied_seq";
/// Others: when a session got its name, and how often its log was cleared.
const NAMED_AT: &str = "named_at";
const GENERATION: &str = "generation";
/// The same as of details, of the part that a summary covers, beside the older `covers`.
const COVERED_DETAILS: &str = "covered_details";

/// Returns whether a file of the second release, or one since, may lack this column. Without it, the counts of such a file are
/// complete.
fn is_later(column: &str) -> bool {
    [CHANGES, COPIED, NAMED_AT, GENERATION].contains(&column)
        || CACHE_COLUMNS.contains(&column)
        || DETAIL_COLUMNS.contains(&column)
}

/// The columns that we add to a compaction.
const OUR_COMPACTION_COLUMNS: [(&str, &str); 4] =
    [("covers", "INTEGER"), ("writer", "TEXT"), ("opening", "INTEGER"), (COVERED_DETAILS, "INTEGER")];

/// The columns that we add to an event: the id of the operation that appended it (of the first and the last event of a turn), the
/// agent's own id of its entry, and when its content was removed.
pub(super) const OUR_EVENT_COLUMNS: [(&str, &str); 3] =
    [("operation", "TEXT"), ("entry", "TEXT"), ("removed", "TEXT")];

/// The tables beside `sessions`.
///
/// The ids of events need no AUTOINCREMENT: that would write one more page with every turn.
const OTHER_TABLES: &str = "
CREATE TABLE IF NOT EXISTS events (
  id         INTEGER PRIMARY KEY,
  session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
  seq        INTEGER NOT NULL,
  kind       TEXT NOT NULL,
  data       TEXT NOT NULL,
  char_len   INTEGER NOT NULL DEFAULT 0,
  operation  TEXT,
  entry      TEXT,
  removed    TEXT,
  UNIQUE (session_id, seq)
);
CREATE TABLE IF NOT EXISTS compactions (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
  after_seq  INTEGER NOT NULL,
  summary    TEXT NOT NULL,
  created    TEXT NOT NULL DEFAULT (datetime('now')),
  covers     INTEGER,
  writer     TEXT,
  opening    INTEGER,
  covered_details INTEGER
);
CREATE INDEX IF NOT EXISTS idx_compactions_session ON compactions(session_id);
CREATE TABLE IF NOT EXISTS meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
);
";

/// The indexes that we add.
///
/// That of prompts holds one entry per turn and not one per event:
/// `docs/decisions/0004-prompts-beside-the-summary.md`. That of stale counts is empty unless an older azureal has
/// appended: see [`super::counts`].
pub(super) const OUR_INDEXES: &str = "
CREATE INDEX IF NOT EXISTS idx_sessions_active ON sessions(active);
CREATE INDEX IF NOT EXISTS idx_sessions_last_active ON sessions(last_active, active);
CREATE INDEX IF NOT EXISTS idx_sessions_name ON sessions(name);
CREATE INDEX IF NOT EXISTS idx_sessions_uuid ON sessions(uuid);
CREATE INDEX IF NOT EXISTS idx_sessions_noted_run ON sessions(run) WHERE run <> '';
CREATE INDEX IF NOT EXISTS idx_sessions_stale ON sessions(id) WHERE tallied_seq IS NOT counted_seq;
CREATE INDEX IF NOT EXISTS idx_events_prompts ON events(session_id, seq) WHERE kind IN ('UserMessage', 'Message');
CREATE INDEX IF NOT EXISTS idx_events_operation ON events(operation) WHERE operation IS NOT NULL;
";

/// Returns a query for each of our indexes that reads all of it, with the name of the index.
pub(super) fn whole_indexes() -> impl Iterator<Item = (&'static str, String)> {
    OUR_INDEXES.split(';').filter_map(|definition| {
        let (name, place) =
            definition.trim().strip_prefix("CREATE INDEX IF NOT EXISTS ")?.split_once(" ON ")?;
        let (table, rest) = place.split_once('(')?;
        let condition = rest.split_once(" WHERE ").map_or("1", |(_, condition)| condition);
        Some((name, format!("SELECT count(*) FROM {table} INDEXED BY {name} WHERE {condition}")))
    })
}

/// Returns the columns of sessions, with their types.
pub(super) fn session_columns() -> impl Iterator<Item = (&'static str, &'static str)> {
    SHARED_COLUMNS.into_iter().chain(OUR_COLUMNS)
}

/// Names the columns of an event that every version has.
const EVENTS: &str = "SELECT session_id, seq, kind, data FROM events";
/// Names those that we add.
const ALL_OF_EVENTS: &str = "SELECT operation, entry, removed FROM events";
/// Cannot be prepared where the index is missing.
const NAMES_PROMPTS_INDEX: &str =
    "SELECT seq FROM events INDEXED BY idx_events_prompts WHERE kind IN ('UserMessage', 'Message')";
/// Likewise. A file without this index came before it, and its sessions may have no time of their last activity.
const NAMES_ACTIVITY_INDEX: &str = "SELECT id FROM sessions INDEXED BY idx_sessions_last_active";
/// Likewise.
const NAMES_OPERATIONS_INDEX: &str =
    "SELECT id FROM events INDEXED BY idx_events_operation WHERE operation IS NOT NULL";

/// Creates the tables in a new file.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    let columns: Vec<String> =
        SHARED_COLUMNS.iter().chain(&OUR_COLUMNS).map(|(name, kind)| format!("{name} {kind}")).collect();
    connection.execute_batch(&format!("CREATE TABLE sessions ({});", columns.join(", ")))?;
    connection.execute_batch(OTHER_TABLES)?;
    connection.execute_batch(OUR_INDEXES)?;
    set_versions(connection)
}

pub(super) fn set_versions(connection: &Connection) -> rusqlite::Result<()> {
    let mut set = connection.prepare("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?;
    set.execute(("schema_version", SCHEMA_VERSION.to_string()))?;
    set.execute(("azureal_format", FORMAT.to_string()))?;
    if store_id(connection)?.is_none() {
        set_store_id(connection, Uuid::new_v4())?;
    }
    Ok(())
}

pub(super) fn set_store_id(connection: &Connection, id: Uuid) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?
        .execute((STORE_ID, id.to_string()))
        .map(drop)
}

/// The key of the id of a store.
const STORE_ID: &str = "store_uuid";

/// Returns the id of the store; `None` if nobody with ids has written to the file yet.
pub(super) fn store_id(connection: &Connection) -> rusqlite::Result<Option<Uuid>> {
    let id = connection
        .prepare_cached("SELECT substr(value, 1, 100) FROM meta WHERE key = ?1")?
        .query_row([STORE_ID], |row| Ok(values::text(row.get_ref(0)?)))
        .optional()?;
    Ok(id.flatten().and_then(|id| id.parse().ok()))
}

/// Returns the versions of the file, unless they are newer than ours. Read in each transaction that writes: a newer azureal may have
/// upgraded the file since it was opened.
pub(super) fn check_versions(connection: &Connection) -> Result<[Option<u64>; 2], Fault> {
    let found: [Option<String>; 2] = connection
        .prepare_cached(
            "SELECT (SELECT substr(value, 1, 100) FROM meta WHERE key = 'schema_version'),
                    (SELECT substr(value, 1, 100) FROM meta WHERE key = 'azureal_format')",
        )?
        .query_row([], |row| Ok([values::text(row.get_ref(0)?), values::text(row.get_ref(1)?)]))?;
    let place = || connection.path().unwrap_or_default().to_owned();
    let check = |what: &'static str, found: Option<String>, known: u32| match found {
        None => Ok(None),
        Some(found) => match found.parse::<u64>() {
            Ok(number) if number <= u64::from(known) => Ok(Some(number)),
            Ok(_) => Err(StoreError::Newer { place: place(), what, found, known }),
            // Every version is a number.
            Err(_) => {
                let why = format!("its {what} is no number: {}", azureal_core::quoted(found));
                Err(StoreError::Corrupt { place: place(), why })
            }
        },
    };
    let [schema_version, format] = found;
    Ok([check("schema_version", schema_version, SCHEMA_VERSION)?, check("azureal_format", format, FORMAT)?])
}

/// The state of a file's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It has all that we need.
    Ours,
    /// One of the second release or since, which lacks only [later](is_later) columns and an index.
    LacksLater,
    /// A version that came before.
    Older,
}

/// Checks that this build may use the file, and returns its columns. Writes nothing: an older file is read as it is,
/// and [upgraded](upgrade) before its first change.
pub(super) fn prepare(path: &Path, connection: &Connection) -> Result<SessionColumns, StoreError> {
    // One snapshot for both questions: taking and leaving the lock costs more than they do.
    let snapshot = connection.unchecked_transaction().map_err(|error| error::from_sqlite(path, error))?;
    let standing = standing(path, &snapshot)?;
    debug!(?standing, schema_version = SCHEMA_VERSION, format = FORMAT, "opened the store file");
    if standing == Standing::Ours {
        return Ok(SessionColumns::complete());
    }
    let found = columns(&snapshot, "sessions").map_err(|error| error::from_sqlite(path, error))?;
    let has_all_of_events = snapshot.prepare(ALL_OF_EVENTS).is_ok();
    Ok(SessionColumns::of(&found, has_all_of_events, standing == Standing::LacksLater))
}

fn standing(path: &Path, connection: &Connection) -> Result<Standing, StoreError> {
    let place = || path.display().to_string();
    let sqlite = |error| error::from_sqlite(path, error);
    // Preparing a statement is the quickest way to ask whether all that it names is there.
    let has = |of_sessions: &str, of_compactions: &str| {
        let others = [EVENTS, of_compactions, NAMES_PROMPTS_INDEX, "SELECT key, value FROM meta"];
        std::iter::once(of_sessions).chain(others).all(|sql| connection.prepare(sql).is_ok())
    };
    let has_all = [NAMES_ACTIVITY_INDEX, NAMES_OPERATIONS_INDEX, ALL_OF_EVENTS]
        .iter()
        .all(|sql| connection.prepare(sql).is_ok())
        && has(&ALL_COLUMNS, "SELECT summary, covers, writer, opening, covered_details FROM compactions")
        && store_id(connection).map_err(sqlite)?.is_some();
    let lacks_later =
        !has_all && has(&ALL_BUT_LATER, "SELECT summary, covers, writer, opening FROM compactions");
    if !has_all && !lacks_later && !has_our_tables(connection).map_err(sqlite)? {
        let why = "it is an SQLite file of another kind".to_owned();
        return Err(StoreError::NotAStore { place: place(), why });
    }
    if !has_all
        && !lacks_later
        && let Some(missing) = missing_column(connection).map_err(sqlite)?
    {
        return Err(StoreError::Corrupt { place: place(), why: format!("it has no column `{missing}`") });
    }
    let versions = check_versions(connection).map_err(|fault| fault.at(path))?;
    Ok(match versions == [Some(SCHEMA_VERSION.into()), Some(FORMAT.into())] {
        true if has_all => Standing::Ours,
        true if lacks_later => Standing::LacksLater,
        true | false => Standing::Older,
    })
}

fn has_our_tables(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT count(*) = 4 FROM sqlite_schema
         WHERE type = 'table' AND name IN ('sessions', 'events', 'compactions', 'meta')",
        [],
        |row| row.get(0),
    )
}

/// Returns a column that every store has, and this file does not.
fn missing_column(connection: &Connection) -> rusqlite::Result<Option<&'static str>> {
    for (table, needed) in NEEDED_COLUMNS {
        let found = columns(connection, table)?;
        if let Some(missing) = needed.iter().find(|column| !found.contains(**column)) {
            return Ok(Some(missing));
        }
    }
    Ok(None)
}

/// Adds what an older file lacks, in one transaction, and returns the columns of the upgraded file.
pub(super) fn upgrade(
    path: &Path,
    connection: &mut Connection,
    codec: &mut Codec,
) -> Result<SessionColumns, StoreError> {
    // With foreign keys on, dropping the old table of sessions would delete all events. The switch has no effect
    // inside a transaction.
    let switch = |connection: &Connection, on: bool| {
        connection.pragma_update(None, "foreign_keys", on).map_err(|error| error::from_sqlite(path, error))
    };
    switch(connection, false)?;
    let upgraded = upgrade_tables(connection, codec).map_err(|fault| fault.at(path));
    switch(connection, true)?;
    upgraded.map(|()| {
        info!(schema_version = SCHEMA_VERSION, format = FORMAT, "upgraded the store file");
        SessionColumns::complete()
    })
}

fn upgrade_tables(connection: &mut Connection, codec: &mut Codec) -> Result<(), Fault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    check_versions(&transaction)?;
    // If another process has upgraded meanwhile, the rest has no effect.
    let definition: String = transaction.query_row(
        "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = 'sessions'",
        [],
        |row| row.get(0),
    )?;
    if !definition.to_ascii_uppercase().contains("AUTOINCREMENT") {
        number_once(&transaction)?;
    }
    let present = columns(&transaction, "sessions")?;
    for (name, kind) in SHARED_COLUMNS.iter().chain(&OUR_COLUMNS) {
        if !present.contains(*name) {
            transaction.execute_batch(&format!("ALTER TABLE sessions ADD COLUMN {name} {kind};"))?;
        }
    }
    let has = columns(&transaction, "compactions")?;
    for (name, kind) in OUR_COMPACTION_COLUMNS {
        if !has.contains(name) {
            transaction.execute_batch(&format!("ALTER TABLE compactions ADD COLUMN {name} {kind};"))?;
        }
    }
    let of_events = columns(&transaction, "events")?;
    for (name, kind) in OUR_EVENT_COLUMNS {
        if !of_events.contains(name) {
            transaction.execute_batch(&format!("ALTER TABLE events ADD COLUMN {name} {kind};"))?;
        }
    }
    transaction.execute_batch(OUR_INDEXES)?;
    set_versions(&transaction)?;
    sessions::fill_uuids(&transaction)?;
    let lacks = |name: &str| !present.contains(name);
    let lacked_counts = OUR_COLUMNS.iter().any(|(name, _)| lacks(name) && !is_later(name));
    if lacked_counts {
        // A column that was missing has no counts yet.
        transaction.execute("UPDATE sessions SET tallied_seq = NULL WHERE counted_seq IS NOT NULL", [])?;
    }
    if DETAIL_COLUMNS.into_iter().any(lacks) {
        // Versions without these columns write no details.
        transaction.execute_batch(
            "UPDATE sessions SET details = 0, detailed_seq = counted_seq WHERE counted_seq IS NOT NULL;
             UPDATE compactions SET covered_details = 0 WHERE covers IS NOT NULL;",
        )?;
    }
    counts::catch_up(&transaction, codec)?;
    sessions::fill_last_active(&transaction)?;
    if lacked_counts || !has.contains("covers") {
        // Measured by the rules that the sessions are counted by now.
        counts::measure_summaries(&transaction, codec)?;
    }
    if CACHE_COLUMNS.into_iter().any(lacks) {
        tokens::sum_cache(&transaction, codec)?;
    }
    Ok(connection::commit(transaction)?)
}

/// Makes the numbers of sessions unique for ever, for the original program too: AUTOINCREMENT cannot be added to a
/// table, so the table is created again with every column that it has.
///
/// No text of the file becomes SQL: columns that we know get our definitions, others only their quoted names.
/// Types and defaults of a hostile file could hold statements.
fn number_once(connection: &Connection) -> rusqlite::Result<()> {
    let present = columns(connection, "sessions")?;
    let known = || SHARED_COLUMNS.iter().chain(&OUR_COLUMNS);
    let definitions: Vec<String> = present
        .iter()
        .map(|name| match known().find(|(known, _)| known == name) {
            Some((name, kind)) => format!("{name} {kind}"),
            None => quoted(name),
        })
        .collect();
    let names: Vec<String> = present.iter().map(|name| quoted(name)).collect();
    let names = names.join(", ");
    // Another definition may have allowed NULL.
    let values: Vec<String> = present
        .iter()
        .map(|name| {
            let kind = known().find(|(known, _)| known == name).map_or("", |(_, kind)| kind);
            match kind.split_once(" NOT NULL DEFAULT ") {
                Some((_, default)) => format!("ifnull({}, {default})", quoted(name)),
                None => quoted(name),
            }
        })
        .collect();
    let values = values.join(", ");
    connection.execute_batch(&format!(
        "DROP TABLE IF EXISTS sessions_numbered;
         CREATE TABLE sessions_numbered ({});
         INSERT INTO sessions_numbered ({names}) SELECT {values} FROM sessions ORDER BY id;
         DROP TABLE sessions;
         ALTER TABLE sessions_numbered RENAME TO sessions;",
        definitions.join(", ")
    ))?;
    // A client without foreign keys may have left events behind. Their number is not to be given again: a row
    // that comes and goes is what AUTOINCREMENT remembers.
    let (session, left): (i64, i64) = connection.query_row(
        "SELECT (SELECT ifnull(max(id), 0) FROM sessions),
                max((SELECT ifnull(max(session_id), 0) FROM events WHERE typeof(session_id) = 'integer'),
                    (SELECT ifnull(max(session_id), 0) FROM compactions WHERE typeof(session_id) = 'integer'))",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if left > session {
        connection.execute("INSERT INTO sessions (id) VALUES (?1)", [left])?;
        connection.execute("DELETE FROM sessions WHERE id = ?1", [left])?;
    }
    Ok(())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(super) fn columns(connection: &Connection, table: &str) -> rusqlite::Result<BTreeSet<String>> {
    let mut info = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    info.query_map([table], |row| row.get(0))?.collect()
}

/// Names every column of a session.
static ALL_COLUMNS: LazyLock<String> = LazyLock::new(|| selecting(|_| true));
/// Names every column that a session had in the second release.
static ALL_BUT_LATER: LazyLock<String> = LazyLock::new(|| selecting(|name| !is_later(name)));

fn selecting(is_meant: fn(&str) -> bool) -> String {
    let names = SHARED_COLUMNS.iter().chain(&OUR_COLUMNS).map(|(name, _)| *name);
    format!("SELECT {} FROM sessions", names.filter(|name| is_meant(name)).collect::<Vec<_>>().join(", "))
}

/// The columns of a session that are listed, in the order in which [`super::sessions`] reads them.
const LISTED: [&str; 31] = [
    "id",
    "name",
    "worktree",
    "created",
    "completed",
    "duration_ms",
    "cost_usd",
    "tokens_in",
    "tokens_out",
    "event_count",
    "message_count",
    "preview",
    "agent",
    "model",
    "told",
    "model_tokens",
    "last_prompt",
    "answered",
    "requested_model",
    "uuid",
    "forked_from",
    "last_active",
    "last_claude_uuid",
    "cache_read",
    "cache_write",
    CHANGES,
    DETAIL_COLUMNS[0],
    DETAIL_COLUMNS[1],
    "counted_seq",
    NAMED_AT,
    GENERATION,
];

/// The covered size of the newest summary of a session and the size of its opening, behind the listed columns. Both
/// are NULL without a summary. The first is -1 if it was not recorded, the second the summary itself if it was not
/// measured.
///
/// An older release records the size without details. That is all of it if the session has none.
const SUMMARY: [&str; 2] = [
    "ifnull(iif(typeof(covers) = 'integer',
                covers + iif(typeof(covered_details) = 'integer', covered_details, iif(sessions.details = 0, 0, NULL)),
                covers), -1)",
    "iif(typeof(opening) = 'integer', opening, summary)",
];
/// The same expressions for a file without details.
const SUMMARY_WITHOUT_DETAILS: [&str; 2] =
    ["ifnull(covers, -1)", "iif(typeof(opening) = 'integer', opening, summary)"];
/// The same expressions for a file that lacks these columns.
const UNMEASURED_SUMMARY: [&str; 2] = ["-1", "summary"];

/// A compaction that can be used: a text with a place. Any other is as if it were not there, and is reported.
///
/// SQLite loads no more of the summary than its type and its length for this.
pub(super) const IS_USABLE: &str =
    "typeof(after_seq) = 'integer' AND typeof(summary) = 'text' AND octet_length(summary) <= 67108864";

/// Returns two values of the newest compaction of a session, for a `SELECT`.
fn of_newest_summary(values: [&str; 2]) -> String {
    let of_newest = values.map(|value| {
        format!(
            "(SELECT {value} FROM compactions WHERE session_id = sessions.id AND {IS_USABLE}
              ORDER BY after_seq DESC, id DESC LIMIT 1)"
        )
    });
    of_newest.join(", ")
}

/// The listed columns, for a `SELECT`; those that an older file lacks read as NULL.
#[derive(Debug, Clone)]
pub(super) struct SessionColumns {
    list: String,
    guarded: String,
    of_events: &'static str,
    keep_counts: bool,
    are_complete: bool,
}

/// What we add to an event and read with it. SQLite does not load an entry that is too large.
const READ_OF_EVENTS: &str = "CASE WHEN octet_length(entry) > 1000 THEN NULL ELSE entry END,
    CASE WHEN octet_length(removed) > 1000 THEN NULL ELSE removed END";

impl SessionColumns {
    /// All of them.
    fn complete() -> Self {
        let summary = of_newest_summary(SUMMARY);
        Self {
            list: format!("{}, {summary}", LISTED.join(", ")),
            guarded: format!("{}, {summary}", LISTED.map(values::guarded).join(", ")),
            of_events: READ_OF_EVENTS,
            keep_counts: true,
            are_complete: true,
        }
    }

    fn of(present: &BTreeSet<String>, has_all_of_events: bool, keep_counts: bool) -> Self {
        let summary = of_newest_summary(match keep_counts {
            true if present.contains(DETAIL_COLUMNS[0]) => SUMMARY,
            true => SUMMARY_WITHOUT_DETAILS,
            false => UNMEASURED_SUMMARY,
        });
        let listed = |column: fn(&str) -> String| {
            LISTED.map(|name| match present.contains(name) {
                true => column(name),
                // Such a file has no details, so they are all counted.
                false if name == DETAIL_COLUMNS[1] && keep_counts => {
                    format!("{} AS {name}", column("counted_seq"))
                }
                false => format!("NULL AS {name}"),
            })
        };
        Self {
            list: format!("{}, {summary}", listed(str::to_owned).join(", ")),
            guarded: format!("{}, {summary}", listed(values::guarded).join(", ")),
            of_events: if has_all_of_events { READ_OF_EVENTS } else { "NULL, NULL" },
            keep_counts,
            are_complete: false,
        }
    }

    /// Returns the list, to stand behind `SELECT`.
    pub(super) fn as_str(&self) -> &str {
        &self.list
    }

    /// Returns the list such that no value is loaded that is too large, which costs more.
    pub(super) fn guarded(&self) -> &str {
        &self.guarded
    }

    /// Returns the columns of a compaction, to stand behind `SELECT`.
    pub(super) fn of_compactions(&self) -> &'static str {
        if self.keep_counts {
            "after_seq, summary, created, writer, opening"
        } else {
            "after_seq, summary, created, NULL, NULL"
        }
    }

    /// Returns what is read of an event beside its place, kind and data, to stand behind `SELECT`.
    pub(super) fn of_events(&self) -> &'static str {
        self.of_events
    }

    /// Returns whether the file has counts.
    pub(super) fn keep_counts(&self) -> bool {
        self.keep_counts
    }

    /// Returns whether the file has them all; if not, it is upgraded before its first change.
    pub(super) fn are_complete(&self) -> bool {
        self.are_complete
    }

    /// Returns the order of a listing, to stand behind `ORDER BY`.
    pub(super) fn in_order(&self, order: ListOrder) -> &'static str {
        match order {
            // Such a file has neither times nor a clock: the caller orders the sessions by their events.
            _ if !self.keep_counts => "id DESC",
            ListOrder::Activity => "last_active DESC, active DESC, id DESC",
            ListOrder::Changes => "active DESC, id DESC",
        }
    }
}
