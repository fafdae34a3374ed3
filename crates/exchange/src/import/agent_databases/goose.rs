//! The database of goose, `sessions/sessions.db` in its folder of data.
//!
//! Older versions have a file per session. goose itself moves their sessions to its database.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use azureal_agents::goose::{GooseMessage, GooseReader, NAME};
use azureal_agents::native::{
    NativeError, NativeHome, NativeSession, NativeSource, NativeTotal, NativeTurn, NativeTurns,
};
use azureal_core::event::Usage;
use azureal_store::sqlite::rusqlite::{self, Connection};
use serde_json::Value;

use super::{
    AgentDatabase, DatabaseHome, DatabaseTurns, LONGEST_NAME, Listed, MOST_ROWS, MessageReader, RowSize,
    Rows, data_folder, is_database, number, text,
};

/// The sessions of goose.
#[derive(Debug, Clone, Copy)]
pub(super) struct GooseSessions;

const FILES: [&str; 2] = ["sessions/sessions.db", "sessions.db"];

impl NativeSource for GooseSessions {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn program(&self) -> &'static str {
        "goose"
    }

    fn homes(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
        let root = variable("GOOSE_PATH_ROOT").map(PathBuf::from).filter(|root| root.is_absolute());
        match root {
            Some(root) => vec![root.join("data/sessions/sessions.db")],
            None => data_folder(variable, "goose/sessions/sessions.db"),
        }
    }

    fn recognises(&self, path: &Path, beginning: &[u8]) -> bool {
        is_database(path, beginning, |name| name == "sessions.db")
    }

    fn open(&self, place: &Path, temporary: &Path) -> Result<Box<dyn NativeHome>, NativeError> {
        let file = match place.is_dir() {
            true => {
                let [usual, beside] = FILES.map(|file| place.join(file));
                if beside.exists() { beside } else { usual }
            }
            false => place.to_owned(),
        };
        let database = AgentDatabase::open(&file, temporary, &["sessions"], list)?;
        Ok(Box::new(DatabaseHome { database, turns }))
    }
}

/// Lists the sessions.
fn list(connection: &Connection) -> rusqlite::Result<Vec<Listed>> {
    let sql = format!(
        "SELECT s.id, substr(s.working_dir, 1, {LONGEST_NAME}), substr(s.name, 1, {LONGEST_NAME}), s.session_type,
            unixepoch(s.created_at), unixepoch(s.updated_at),
            (SELECT count(*) FROM messages m WHERE m.session_id = s.id), s.user_set_name
        FROM sessions s WHERE typeof(s.id) = 'text' ORDER BY s.created_at, s.id LIMIT {MOST_ROWS}"
    );
    let mut statement = connection.prepare(&sql)?;
    let listed = statement.query_map([], |row| {
        Ok(Listed {
            id: text(row, 0)?,
            cwd: text(row, 1)?,
            title: Some(text(row, 2)?).filter(|_| number(row, 7).is_ok_and(|is_set| is_set != 0)),
            is_subagent: text(row, 3)? == "sub_agent",
            created: number(row, 4)?.saturating_mul(1000),
            changed: number(row, 5)?.saturating_mul(1000),
            rows: number(row, 6)?,
        })
    })?;
    listed.collect()
}

fn turns(database: &AgentDatabase, session: &NativeSession) -> Result<Box<dyn NativeTurns>, NativeError> {
    const MESSAGES: &str =
        "SELECT id, coalesce(octet_length(content_json), 0) + coalesce(octet_length(metadata_json), 0)
        FROM messages WHERE session_id = ?1 ORDER BY created_timestamp, id";
    let head = database.head(session)?;
    let rows = database.rows(session)?;
    let messages = rows.list(MESSAGES, &session.id)?;
    let sql = "SELECT substr(model_config_json, 1, 65536) FROM sessions WHERE id = ?1";
    let model = rows.connection.query_row(sql, [&session.id], |row| text(row, 0));
    let model: Value = serde_json::from_str(&model.map_err(|error| rows.error(error))?).unwrap_or_default();
    let model = model.get("model_name").and_then(Value::as_str).unwrap_or_default();
    let cwd = head.cwd.unwrap_or_default();
    let messages_reader = GooseReader::new(&session.id, &cwd.to_string_lossy(), model);
    let reader = GooseMessages { reader: messages_reader, total: total(&rows) };
    Ok(Box::new(DatabaseTurns::new(rows, messages, reader)))
}

/// Reads what goose counted for the whole session; `None` if it counted nothing, or the version has other columns.
fn total(rows: &Rows) -> Option<NativeTotal> {
    const CACHED: &str = "accumulated_cache_read_tokens, accumulated_cache_write_tokens";
    let read = |cached: &str| {
        let sql = format!(
            "SELECT accumulated_input_tokens, accumulated_output_tokens, accumulated_cost, {cached}
            FROM sessions WHERE id = ?1"
        );
        rows.connection.query_row(&sql, [&rows.session], |row| {
            let count = |column| Ok::<_, rusqlite::Error>(u64::try_from(number(row, column)?).unwrap_or(0));
            let usage = Usage {
                input_tokens: count(0)?,
                output_tokens: count(1)?,
                cache_read_tokens: count(3)?,
                cache_write_tokens: count(4)?,
                context_tokens: None,
            };
            let cost_usd = row.get::<_, f64>(2).ok().filter(|cost| cost.is_finite() && *cost >= 0.0);
            Ok(NativeTotal { usage, cost_usd: cost_usd.unwrap_or(0.0) })
        })
    };
    // Older versions have no columns for the cache.
    let total = read(CACHED).or_else(|_| read("0, 0")).ok()?;
    (total != NativeTotal::default()).then_some(total)
}

/// Reads the messages of a session.
struct GooseMessages {
    reader: GooseReader,
    total: Option<NativeTotal>,
}

impl MessageReader for GooseMessages {
    fn read(&mut self, rows: &Rows, message: &RowSize) -> Result<(), NativeError> {
        const MESSAGE: &str = "SELECT coalesce(message_id, ''), role, content_json, coalesce(metadata_json, ''), created_timestamp
            FROM messages WHERE id = ?1";
        let name = message.id.to_string();
        let read = rows.row(MESSAGE, message, |row| {
            Ok((text(row, 0)?, text(row, 1)?, text(row, 2)?, text(row, 3)?, number(row, 4)?))
        });
        match read {
            Ok((id, role, content, metadata, created)) => self.reader.message(GooseMessage {
                id: if id.is_empty() { &name } else { &id },
                row: &name,
                role: &role,
                content: &content,
                metadata: &metadata,
                created,
            }),
            Err(reason) => self.reader.problem(&name, reason),
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.reader.finish();
    }

    fn take(&mut self) -> Option<NativeTurn> {
        self.reader.take()
    }

    fn total(&self) -> Option<NativeTotal> {
        self.total
    }
}
