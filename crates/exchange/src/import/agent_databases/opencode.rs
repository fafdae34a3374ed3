//! The database of opencode, `opencode.db` in its folder of data.
//!
//! Sessions of opencode 2 are in another table, `session_message`. They are reported, and not read.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use azureal_agents::native::{
    NativeError, NativeHead, NativeHome, NativeSession, NativeSource, NativeTurn, NativeTurns,
};
use azureal_agents::opencode::{NAME, OpencodeReader};
use azureal_store::sqlite::rusqlite::{self, Connection};
use serde_json::Value;

use super::{
    AgentDatabase, LONGEST_NAME, Listed, MOST_ROWS, RowSize, Rows, data_folder, is_database, number, text,
};

/// The sessions of opencode.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpencodeSessions;

const FILE: &str = "opencode.db";
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
        let database = AgentDatabase::open(&file, temporary, "session", list)?;
        let has = |table| database.has_table(table);
        let (has_messages, has_newer) = (has("message") && has("part"), has("session_message"));
        Ok(Box::new(OpencodeHome { database, has_messages, has_newer }))
    }
}

/// Lists the sessions. A message changes with its parts.
fn list(connection: &Connection) -> rusqlite::Result<Vec<Listed>> {
    let has_parts = has_table(connection, "message")? && has_table(connection, "part")?;
    let (changed, rows) = match has_parts {
        true => (
            "(SELECT max(m.time_updated) FROM message m WHERE m.session_id = s.id)",
            "(SELECT count(*) FROM part p WHERE p.session_id = s.id)",
        ),
        false => ("0", "0"),
    };
    let sql = format!(
        "SELECT s.id, substr(s.directory, 1, {LONGEST_NAME}), substr(s.title, 1, {LONGEST_NAME}), s.parent_id IS NOT NULL,
            s.time_created, s.time_updated, {changed}, {rows}
        FROM session s WHERE typeof(s.id) = 'text' ORDER BY s.time_created, s.id LIMIT {MOST_ROWS}"
    );
    let mut statement = connection.prepare(&sql)?;
    let listed = statement.query_map([], |row| {
        Ok(Listed {
            id: text(row, 0)?,
            cwd: text(row, 1)?,
            title: Some(text(row, 2)?).filter(|title| !title.starts_with(UNNAMED)),
            is_subagent: number(row, 3)? != 0,
            created: number(row, 4)?,
            changed: number(row, 5)?.max(number(row, 6)?),
            rows: number(row, 7)?,
        })
    })?;
    listed.collect()
}

fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    connection.query_row(sql, [name], |row| row.get::<_, i64>(0)).map(|count| count > 0)
}

struct OpencodeHome {
    database: AgentDatabase,
    has_messages: bool,
    /// Whether it has the table of opencode 2.
    has_newer: bool,
}

impl NativeHome for OpencodeHome {
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
        const MESSAGES: &str =
            "SELECT id, octet_length(data) FROM message WHERE session_id = ?1 ORDER BY time_created, id";
        let head = self.database.head(session)?;
        let rows = self.database.rows(session)?;
        let mut messages = match self.has_messages {
            true => rows.list(MESSAGES, &session.id)?,
            false => Vec::new(),
        };
        let newer = match self.has_newer {
            true => rows.count("SELECT count(*) FROM session_message WHERE session_id = ?1")?,
            false => 0,
        };
        if messages.is_empty() && newer > 0 {
            return Err(NativeError::Unreadable {
                path: session.path.clone(),
                reason: format!(
                    "the session `{}` is in the format of opencode 2, which azureal cannot read",
                    session.id
                ),
            });
        }
        let cwd = head.cwd.unwrap_or_default();
        let mut reader = OpencodeReader::new(&session.id, &cwd.to_string_lossy());
        if newer > 0 {
            reader
                .problem(&format!("{newer} entries in the format of opencode 2"), "azureal cannot read them");
        }
        if let Some(place) =
            reverted(&rows)?.and_then(|id| messages.iter().position(|row| row.id.to_string() == id))
        {
            reader.problem(
                &format!("{} of its messages", messages.len() - place),
                "the user went back from them",
            );
            messages.truncate(place);
        }
        Ok(Box::new(OpencodeTurns { rows, messages: messages.into_iter(), reader, has_ended: false }))
    }
}

/// Returns the first message that the user went back from. The program removes it with the next prompt.
fn reverted(rows: &Rows) -> Result<Option<String>, NativeError> {
    let sql = "SELECT substr(revert, 1, 65536) FROM session WHERE id = ?1";
    let found = rows.connection.query_row(sql, [&rows.session], |row| text(row, 0));
    let found: Value = serde_json::from_str(&found.map_err(|error| rows.error(error))?).unwrap_or_default();
    // Only a part of the message may be gone; then the message stays.
    let is_whole = found.get("partID").is_none_or(Value::is_null);
    Ok(found.get("messageID").and_then(Value::as_str).filter(|_| is_whole).map(str::to_owned))
}

/// Reads the messages of a session, one after the other.
struct OpencodeTurns {
    rows: Rows,
    messages: std::vec::IntoIter<RowSize>,
    reader: OpencodeReader,
    has_ended: bool,
}

impl OpencodeTurns {
    fn read_message(&mut self, message: &RowSize) -> Result<(), NativeError> {
        const PARTS: &str = "SELECT id, octet_length(data) FROM part WHERE message_id = ?1 ORDER BY id";
        let id = message.id.to_string();
        match self.rows.row("SELECT data FROM message WHERE id = ?1", message, |row| text(row, 0)) {
            Ok(data) => self.reader.message(&id, &data),
            Err(reason) => {
                self.reader.problem(&id, reason);
                return Ok(());
            }
        }
        for part in self.rows.list(PARTS, &id)? {
            let id = part.id.to_string();
            match self.rows.row("SELECT data FROM part WHERE id = ?1", &part, |row| text(row, 0)) {
                Ok(data) => self.reader.part(&id, &data),
                Err(reason) => self.reader.problem(&id, reason),
            }
        }
        Ok(())
    }
}

impl NativeTurns for OpencodeTurns {
    fn next_turn(&mut self) -> Result<Option<NativeTurn>, NativeError> {
        loop {
            if let Some(turn) = self.reader.take() {
                return Ok(Some(turn));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.messages.next() {
                Some(message) => self.read_message(&message)?,
                None => {
                    self.has_ended = true;
                    self.reader.finish();
                }
            }
        }
    }
}
