//! Reader for the database of axio, in all three of its schemas.
//!
//! It has no table of sessions: a session exists through its messages. The reader finds columns by name, because their
//! order depends on the history of a file.

use std::io::Read;

use azureal_core::{Json, Tokens};
use azureal_store::sqlite::rusqlite::types::ValueRef;
use azureal_store::sqlite::rusqlite::{self, Connection, OptionalExtension, Row};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::MultiGzDecoder;

use super::axio::Conversation;
use super::blocks::Fields;
use super::database_copy::DatabaseCopy;
use super::problem::Reason;
use super::{ImportError, IncomingSession};
use crate::identity::SessionIdentity;

/// The largest size of a decompressed message: a few compressed bytes can expand to any number.
const LARGEST_MESSAGE: u64 = 256 * 1024 * 1024;

/// The names of the tables in one of the schemas.
#[derive(Debug, Clone, Copy)]
struct Tables {
    messages: &'static str,
    tokens: &'static str,
}

const TABLES: [Tables; 2] = [
    Tables { messages: "axio_context_messages", tokens: "axio_context_tokens" },
    Tables { messages: "messages", tokens: "context_tokens" },
];

/// The columns that every table of messages of axio has.
const COLUMNS: [&str; 5] = ["session_id", "position", "role", "content", "created_at"];

/// The sessions of a database, oldest first.
pub(super) struct AxioSessions {
    connection: Connection,
    sessions: std::vec::IntoIter<AxioSession>,
    database: DatabaseCopy,
}

struct AxioSession {
    tables: Tables,
    id: String,
    created_at: String,
    last_active: String,
}

impl AxioSessions {
    pub(super) fn open(database: DatabaseCopy) -> Result<Self, ImportError> {
        let connection = database.connect()?;
        let mut sessions = Vec::new();
        let mut is_axio = false;
        for tables in TABLES {
            if database.has_table(tables.messages)
                && has_columns(&connection, tables).map_err(|error| database.sqlite_error(error))?
            {
                let mut found =
                    sessions_in(&connection, tables).map_err(|error| database.sqlite_error(error))?;
                sessions.append(&mut found);
                is_axio = true;
            }
        }
        if !is_axio {
            return Err(super::recognise::unknown(database.source()));
        }
        if sessions.is_empty() {
            return Err(ImportError::NoMessages { path: database.source().to_owned() });
        }
        Ok(Self { connection, sessions: sessions.into_iter(), database })
    }

    pub(super) fn next(&mut self) -> Option<Result<IncomingSession, ImportError>> {
        let session = self.sessions.next()?;
        Some(self.read(&session))
    }

    fn read(&self, session: &AxioSession) -> Result<IncomingSession, ImportError> {
        let mut conversation = Conversation::default();
        self.read_messages(session, &mut conversation).map_err(|error| self.database.sqlite_error(error))?;
        let tokens = self.read_tokens(session).map_err(|error| self.database.sqlite_error(error))?;
        let (texts, totals, problems) = conversation.finish();
        Ok(IncomingSession {
            label: format!("{} {}", self.database.source().display(), session.id),
            identity: SessionIdentity::of_origin(format!("axio:{}@{}", session.id, session.created_at)),
            name: Some(session.id.clone()),
            named_at: None,
            worktree: None,
            created_at: Some(session.created_at.clone()),
            last_active: Some(session.last_active.clone()),
            texts,
            compactions: Vec::new(),
            totals,
            tokens,
            notices: Vec::new(),
            problems,
        })
    }

    fn read_messages(&self, session: &AxioSession, conversation: &mut Conversation) -> rusqlite::Result<()> {
        let sql =
            format!("SELECT * FROM {} WHERE session_id = ?1 ORDER BY position", session.tables.messages);
        let mut statement = self.connection.prepare(&sql)?;
        let mut rows = statement.query([&session.id])?;
        while let Some(row) = rows.next()? {
            let position: i64 = row.get("position")?;
            let message = text(row, "role").and_then(|role| {
                let content = unpacked(&text(row, "content")?)?;
                let content: Json = content.parse()?;
                Ok((role, content))
            });
            match message {
                Ok((role, content)) => {
                    conversation.add(position as u64, &role, Some(&content), Fields::new());
                }
                Err(reason) => conversation.left_out(position as u64, reason),
            }
            // A column that only newer files have.
            if row.get_ref("provenance").is_ok_and(|value| value != ValueRef::Null) {
                conversation.without_form("`provenance` of a message, left out");
            }
        }
        Ok(())
    }

    fn read_tokens(&self, session: &AxioSession) -> rusqlite::Result<Tokens> {
        if !self.database.has_table(session.tables.tokens) {
            return Ok(Tokens::default());
        }
        let sql = format!(
            "SELECT input_tokens, output_tokens FROM {} WHERE session_id = ?1",
            session.tables.tokens
        );
        let mut statement = self.connection.prepare(&sql)?;
        let mut rows = statement.query_map([&session.id], |row| {
            Ok(Tokens::new(row.get::<_, i64>(0)?.max(0) as u64, row.get::<_, i64>(1)?.max(0) as u64))
        })?;
        // One row for each project that the session was used in.
        rows.try_fold(Tokens::default(), |sum, tokens| Ok(sum + tokens?))
    }
}

fn has_columns(connection: &Connection, tables: Tables) -> rusqlite::Result<bool> {
    for column in COLUMNS {
        let known: Option<i64> = connection
            .prepare_cached("SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2")?
            .query_row([tables.messages, column], |row| row.get(0))
            .optional()?;
        if known.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn sessions_in(connection: &Connection, tables: Tables) -> rusqlite::Result<Vec<AxioSession>> {
    let sql = format!(
        "SELECT session_id, MIN(created_at) AS created, MAX(created_at) FROM {} GROUP BY session_id ORDER BY created, MIN(rowid)",
        tables.messages
    );
    let mut statement = connection.prepare(&sql)?;
    let sessions = statement.query_map([], |row| {
        Ok(AxioSession { tables, id: row.get(0)?, created_at: row.get(1)?, last_active: row.get(2)? })
    })?;
    sessions.collect()
}

/// Reads a column as text. In a foreign file it may have any type.
fn text(row: &Row<'_>, column: &str) -> Result<String, Reason> {
    let value = row.get_ref(column)?;
    let bytes = match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => return Err(format!("its {column} is not text").into()),
    };
    String::from_utf8(bytes.to_vec()).map_err(|_| format!("its {column} is not UTF-8").into())
}

/// Decompresses the content of a message.
fn unpacked(content: &str) -> Result<String, Reason> {
    if let Some(packed) = content.strip_prefix("gzip:") {
        let bytes = BASE64.decode(packed)?;
        let mut text = String::new();
        let mut reader = MultiGzDecoder::new(bytes.as_slice()).take(LARGEST_MESSAGE + 1);
        reader.read_to_string(&mut text)?;
        if text.len() as u64 > LARGEST_MESSAGE {
            return Err(format!("it is larger than {LARGEST_MESSAGE} bytes").into());
        }
        return Ok(text);
    }
    Ok(content.strip_prefix("plain:").unwrap_or(content).to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn every_packing_is_taken_off() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::new(6));
        gzip.write_all(b"[1]").unwrap();
        let gzip = format!("gzip:{}", BASE64.encode(gzip.finish().unwrap()));
        for content in ["[1]", "plain:[1]", &gzip] {
            assert_eq!(unpacked(content).unwrap(), "[1]");
        }
        for broken in ["gzip:%", "gzip:AAAA", "gzip:"] {
            assert!(unpacked(broken).is_err(), "{broken}");
        }
    }
}
