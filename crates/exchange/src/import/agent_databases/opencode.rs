//! The database of opencode, `opencode.db` in its folder of data.
//!
//! opencode 2 has tables of its own in the same file, `session_v2` and `session_message`. It takes over the sessions of earlier
//! versions under their ids, and leaves their tables as they were.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use azureal_agents::native::{NativeError, NativeHome, NativeSession, NativeSource, NativeTurn, NativeTurns};
use azureal_agents::opencode::{NAME, OpencodeReader};
use azureal_core::counted;
use azureal_store::sqlite::rusqlite::{self, Connection, OptionalExtension};
use serde_json::Value;

use super::{
    AgentDatabase, DatabaseHome, DatabaseTurns, LONGEST_NAME, Listed, MOST_ROWS, MessageReader, RowSize,
    Rows, data_folder, is_database, number, tables, text,
};

/// The sessions of opencode.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpencodeSessions;

const FILE: &str = "opencode.db";
/// The table of messages of opencode 2.
const ENTRIES: &str = "session_message";
/// The beginning of the title of a session without one.
const UNNAMED: &str = "New session - ";

impl NativeSource for OpencodeSessions {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn program(&self) -> &'static str {
        "opencode"
    }

    fn homes(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
        data_folder(variable, "opencode/opencode.db")
    }

    fn recognises(&self, path: &Path, beginning: &[u8]) -> bool {
        let is_name = |name: &str| name.starts_with("opencode") && name.ends_with(".db");
        is_database(path, beginning, is_name)
    }

    fn open(&self, place: &Path, temporary: &Path) -> Result<Box<dyn NativeHome>, NativeError> {
        let file = if place.is_dir() { place.join(FILE) } else { place.to_owned() };
        let database = AgentDatabase::open(&file, temporary, &SESSIONS, list)?;
        Ok(Box::new(DatabaseHome { database, turns }))
    }
}

/// The tables of sessions: of opencode 2, and of earlier versions. A session that opencode 2 took over is in both.
const SESSIONS: [&str; 2] = ["session_v2", "session"];

/// Lists the sessions. A message changes with its parts.
fn list(connection: &Connection) -> rusqlite::Result<Vec<Listed>> {
    let tables = tables(connection)?;
    let has = |table: &str| tables.contains(table);
    let mut changed = vec!["s.time_updated".to_owned()];
    let mut rows = Vec::new();
    for (changing, counted) in [("message", "part"), (ENTRIES, ENTRIES)] {
        if has(changing) && has(counted) {
            let max = "(SELECT ifnull(max(m.time_updated), 0) FROM";
            changed.push(format!("{max} {changing} m WHERE m.session_id = s.id)"));
            rows.push(format!("(SELECT count(*) FROM {counted} p WHERE p.session_id = s.id)"));
        }
    }
    let changed = match changed.len() {
        1 => changed.concat(),
        _ => format!("max({})", changed.join(", ")),
    };
    let rows = if rows.is_empty() { "0".to_owned() } else { rows.join(" + ") };
    let mut listed: Vec<Listed> = Vec::new();
    let mut known = BTreeSet::new();
    for table in SESSIONS.into_iter().filter(|table| has(table)) {
        let sql = format!(
            "SELECT s.id, substr(s.directory, 1, {LONGEST_NAME}), substr(s.title, 1, {LONGEST_NAME}), s.parent_id IS NOT NULL,
                s.time_created, {changed}, {rows}
            FROM {table} s WHERE typeof(s.id) = 'text' ORDER BY s.time_created, s.id LIMIT {MOST_ROWS}"
        );
        let mut statement = connection.prepare(&sql)?;
        let found = statement.query_map([], |row| {
            Ok(Listed {
                id: text(row, 0)?,
                cwd: text(row, 1)?,
                title: Some(text(row, 2)?).filter(|title| !title.starts_with(UNNAMED)),
                is_subagent: number(row, 3)? != 0,
                created: number(row, 4)?,
                changed: number(row, 5)?,
                rows: number(row, 6)?,
            })
        })?;
        for found in found {
            let found = found?;
            if known.insert(found.id.clone()) {
                listed.push(found);
            }
        }
    }
    Ok(listed)
}

/// The messages of a session, by their table.
enum Messages {
    /// With their parts in another table.
    Parted(Vec<RowSize>),
    /// Of opencode 2.
    Whole(Vec<RowSize>),
}

impl Messages {
    /// Lists the messages. Earlier versions write those of opencode 2 too, for a trial: of a session that is not in the table of
    /// opencode 2, these count only if there are no others.
    fn of(database: &AgentDatabase, rows: &Rows) -> Result<Self, NativeError> {
        const PARTED: &str =
            "SELECT id, octet_length(data) FROM message WHERE session_id = ?1 ORDER BY time_created, id";
        const WHOLE: &str = "SELECT id, octet_length(data) FROM session_message WHERE session_id = ?1 ORDER BY seq, time_created, id";
        let [newer, _] = SESSIONS;
        let is_newer = database.has_table(newer)
            && rows.count(&format!("SELECT count(*) FROM {newer} WHERE id = ?1"))? > 0;
        let list =
            |is_there: bool, sql| if is_there { rows.list(sql, &rows.session) } else { Ok(Vec::new()) };
        let whole = || list(database.has_table(ENTRIES), WHOLE);
        let parted = || list(database.has_table("message") && database.has_table("part"), PARTED);
        if is_newer {
            let whole = whole()?;
            return Ok(if whole.is_empty() { Self::Parted(parted()?) } else { Self::Whole(whole) });
        }
        let parted = parted()?;
        Ok(if parted.is_empty() { Self::Whole(whole()?) } else { Self::Parted(parted) })
    }
}

fn turns(database: &AgentDatabase, session: &NativeSession) -> Result<Box<dyn NativeTurns>, NativeError> {
    let head = database.head(session)?;
    let rows = database.rows(session)?;
    let messages = Messages::of(database, &rows)?;
    let is_parted = matches!(messages, Messages::Parted(_));
    let (Messages::Parted(mut messages) | Messages::Whole(mut messages)) = messages;
    let cwd = head.cwd.unwrap_or_default();
    let mut reader = OpencodeReader::new(&session.id, &cwd.to_string_lossy());
    if let Some(place) =
        reverted(database, &rows)?.and_then(|id| messages.iter().position(|row| row.id.to_string() == id))
    {
        let left = counted((messages.len() - place) as u64, "message");
        reader.problem(&format!("the end ({left})"), "the user went back in the program");
        messages.truncate(place);
    }
    Ok(Box::new(DatabaseTurns::new(rows, messages, OpencodeMessages { reader, is_parted })))
}

/// Returns the first message that the user went back from. The program removes it with the next prompt.
fn reverted(database: &AgentDatabase, rows: &Rows) -> Result<Option<String>, NativeError> {
    for table in SESSIONS.into_iter().filter(|table| database.has_table(table)) {
        let sql = format!("SELECT substr(revert, 1, 65536) FROM {table} WHERE id = ?1");
        let found = rows.connection.query_row(&sql, [&rows.session], |row| text(row, 0)).optional();
        let Some(found) = found.map_err(|error| rows.error(error))? else { continue };
        let found: Value = serde_json::from_str(&found).unwrap_or_default();
        // Only a part of the message may be gone; then the message stays.
        let is_whole = found.get("partID").is_none_or(Value::is_null);
        return Ok(found.get("messageID").and_then(Value::as_str).filter(|_| is_whole).map(str::to_owned));
    }
    Ok(None)
}

/// Reads the messages of a session.
struct OpencodeMessages {
    reader: OpencodeReader,
    /// Whether the parts of a message are in another table.
    is_parted: bool,
}

impl MessageReader for OpencodeMessages {
    fn read(&mut self, rows: &Rows, message: &RowSize) -> Result<(), NativeError> {
        const PARTS: &str = "SELECT id, octet_length(data) FROM part WHERE message_id = ?1 ORDER BY id";
        let id = message.id.to_string();
        if !self.is_parted {
            let sql = "SELECT type, data FROM session_message WHERE id = ?1";
            match rows.row(sql, message, |row| Ok((text(row, 0)?, text(row, 1)?))) {
                Ok((kind, data)) => self.reader.entry(&id, &kind, &data),
                Err(reason) => self.reader.problem(&id, reason),
            }
            return Ok(());
        }
        match rows.row("SELECT data FROM message WHERE id = ?1", message, |row| text(row, 0)) {
            Ok(data) => self.reader.message(&id, &data),
            Err(reason) => {
                self.reader.problem(&id, reason);
                return Ok(());
            }
        }
        for part in rows.list(PARTS, &id)? {
            let id = part.id.to_string();
            match rows.row("SELECT data FROM part WHERE id = ?1", &part, |row| text(row, 0)) {
                Ok(data) => self.reader.part(&id, &data),
                Err(reason) => self.reader.problem(&id, reason),
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.reader.finish();
    }

    fn take(&mut self) -> Option<NativeTurn> {
        self.reader.take()
    }
}
