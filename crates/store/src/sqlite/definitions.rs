//! The definitions in a store's file: which of them may be there.
//!
//! A file from elsewhere can define expressions that SQLite evaluates when we read or write a table: generated columns,
//! CHECK constraints, defaults, indexes on expressions, partial indexes, triggers, views, virtual tables. A file of 57 KB
//! can take minutes and gigabytes that way. So a file is used only if all its expressions are ours or the original
//! program's. Plain tables, columns and indexes that we do not know stay and are ignored.
//!
//! The check reads the text of each definition, which is what SQLite itself executes when it opens the file: the pragmas
//! do not show CHECK constraints, and the other columns of `sqlite_schema` can contradict the text.

use std::borrow::Cow;

use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// The part of a file's schema that must be ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    /// For reading and writing: every expression.
    Store,
    /// For reading tables of another program: it may have its own constraints and triggers, but no column that is computed.
    ReadOnly,
}

/// Indexes with a condition that earlier versions of azureal created.
const EARLIER_INDEXES: &str = "
CREATE INDEX idx_sessions_run ON sessions(last_claude_uuid) WHERE last_claude_uuid <> '';
CREATE INDEX idx_events_prompts ON events(session_id, seq) WHERE kind IN ('UserMessage', 'Message');
";

/// Returns the first definition in the file that is not ours, such as "the trigger `x`"; `None` if all are.
///
/// `ours` are the statements that create what we define.
pub(super) fn find_foreign(
    connection: &Connection,
    ours: &str,
    strictness: Strictness,
) -> rusqlite::Result<Option<String>> {
    let mut statement = connection.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (ValueRef::Text(sql) | ValueRef::Blob(sql)) = row.get_ref(0)? else { continue };
        let found = match strictness {
            Strictness::Store => foreign_part(sql, ours),
            Strictness::ReadOnly => computed_column(&tokens(sql)),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// A token of SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// A keyword, a name or a number, without quotes.
    Word(&'a [u8]),
    /// A string or a name in quotes, with them.
    Quoted(&'a [u8]),
    Sign(u8),
}

impl Token<'_> {
    fn is(self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword.as_bytes()))
    }

    fn is_name(self) -> bool {
        matches!(self, Self::Word(_) | Self::Quoted(_))
    }

    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Word(text) => String::from_utf8_lossy(text),
            Self::Quoted([_, text @ .., _]) => String::from_utf8_lossy(text),
            Self::Quoted(_) => Cow::Borrowed(""),
            Self::Sign(sign) => Cow::Owned(char::from(*sign).to_string()),
        }
    }

    /// Returns whether two tokens mean the same to SQLite: case counts only in quotes.
    fn means(self, other: Token<'_>) -> bool {
        match (self, other) {
            (Self::Word(a), Token::Word(b)) => a.eq_ignore_ascii_case(b),
            (a, b) => a == b,
        }
    }
}

/// Splits a statement as SQLite does, without spaces and comments.
fn tokens(sql: &[u8]) -> Vec<Token<'_>> {
    /// SQLite takes a byte order mark in front of a token for a space.
    const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
    let is_in_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
    let mut tokens = Vec::new();
    let mut rest = sql;
    while let [first, after @ ..] = rest {
        let length = match first {
            b' ' | b'\t' | b'\n' | b'\x0c' | b'\r' => {
                rest = after;
                continue;
            }
            b'-' if after.starts_with(b"-") => {
                rest = behind(rest, b"\n");
                continue;
            }
            b'/' if after.starts_with(b"*") => {
                rest = behind(after.get(1..).unwrap_or_default(), b"*/");
                continue;
            }
            _ if rest.starts_with(BYTE_ORDER_MARK) => {
                rest = rest.get(BYTE_ORDER_MARK.len()..).unwrap_or_default();
                continue;
            }
            b'\'' | b'"' | b'`' => quoted_length(rest, *first),
            b'[' => rest.len() - behind(rest, b"]").len(),
            byte if is_in_word(byte) => rest.iter().take_while(|byte| is_in_word(byte)).count(),
            _ => 1,
        };
        let (token, behind) = rest.split_at(length);
        tokens.push(match first {
            b'\'' | b'"' | b'`' | b'[' => Token::Quoted(token),
            byte if is_in_word(byte) => Token::Word(token),
            sign => Token::Sign(*sign),
        });
        rest = behind;
    }
    tokens
}

/// Returns what follows the first `end`; empty if there is none.
fn behind<'a>(text: &'a [u8], end: &[u8]) -> &'a [u8] {
    let at = text.windows(end.len()).position(|part| part == end);
    at.and_then(|at| text.get(at + end.len()..)).unwrap_or_default()
}

/// Returns the length of the string at the beginning, where a doubled quote is an escaped quote.
fn quoted_length(text: &[u8], quote: u8) -> usize {
    let mut bytes = text.iter().enumerate().skip(1).peekable();
    while let Some((at, byte)) = bytes.next() {
        if *byte == quote && bytes.next_if(|(_, next)| **next == quote).is_none() {
            return at + 1;
        }
    }
    text.len()
}

/// Returns what a definition has that is not ours.
pub(super) fn foreign_part(sql: &[u8], ours: &str) -> Option<String> {
    let tokens = tokens(sql);
    match tokens.as_slice() {
        [create, table, name, rest @ ..] if create.is("CREATE") && table.is("TABLE") => {
            expression_in_table(rest).map(|what| format!("{what} in the table `{}`", name.text()))
        }
        [create, rest @ ..] if create.is("CREATE") => {
            let rest = match rest {
                [unique, rest @ ..] if unique.is("UNIQUE") => rest,
                rest => rest,
            };
            match rest {
                [index, name, on, _, columns @ ..] if index.is("INDEX") && on.is("ON") => {
                    let is_ours = is_among(&tokens, ours) || is_among(&tokens, EARLIER_INDEXES);
                    let is_foreign = !is_plain(columns) && !is_ours;
                    is_foreign.then(|| format!("an expression in the index `{}`", name.text()))
                }
                [virtual_, table, name, ..] if virtual_.is("VIRTUAL") && table.is("TABLE") => {
                    Some(format!("the virtual table `{}`", name.text()))
                }
                [kind, name, ..] => Some(format!("the {} `{}`", kind.text().to_lowercase(), name.text())),
                _ => Some("a definition that is not whole".to_owned()),
            }
        }
        _ => Some("a definition that is none".to_owned()),
    }
}

/// Returns the first expression in the definition of a table that is not ours.
fn expression_in_table(tokens: &[Token<'_>]) -> Option<&'static str> {
    /// The only expression that we and the original program have in tables.
    const NOW: &[u8] = b"(datetime('now'))";
    let now = self::tokens(NOW);
    // These three are reserved: without quotes they are never the name of a column.
    tokens.iter().enumerate().find_map(|(at, token)| {
        if token.is("AS") {
            return Some("a generated column");
        }
        if token.is("CHECK") {
            return Some("a CHECK constraint");
        }
        let value = tokens.get(at + 1..).filter(|_| token.is("DEFAULT"))?;
        let is_expression = value.first() == Some(&Token::Sign(b'('));
        (is_expression && !starts_with(value, &now)).then_some("a computed default")
    })
}

/// Returns the table of a definition that has a generated column.
fn computed_column(tokens: &[Token<'_>]) -> Option<String> {
    match tokens {
        [create, table, name, rest @ ..]
            if create.is("CREATE") && table.is("TABLE") && rest.iter().any(|token| token.is("AS")) =>
        {
            Some(format!("a generated column in the table `{}`", name.text()))
        }
        _ => None,
    }
}

/// Returns whether an index holds only columns, and no expressions.
fn is_plain(columns: &[Token<'_>]) -> bool {
    let [Token::Sign(b'('), columns @ .., Token::Sign(b')')] = columns else { return false };
    columns.split(|token| *token == Token::Sign(b',')).all(|column| {
        let column = match column {
            [column @ .., order] if order.is("ASC") || order.is("DESC") => column,
            column => column,
        };
        match column {
            [name] => name.is_name(),
            [name, collate, collation] => name.is_name() && collate.is("COLLATE") && collation.is_name(),
            _ => false,
        }
    })
}

/// Returns whether a definition is one of these statements.
fn is_among(definition: &[Token<'_>], statements: &str) -> bool {
    // SQLite stores them without.
    let statements = statements.replace("IF NOT EXISTS", "");
    statements.split(';').any(|statement| {
        let statement = tokens(statement.as_bytes());
        statement.len() == definition.len() && starts_with(definition, &statement)
    })
}

fn starts_with(tokens: &[Token<'_>], beginning: &[Token<'_>]) -> bool {
    tokens.len() >= beginning.len() && tokens.iter().zip(beginning).all(|(a, b)| a.means(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "CREATE INDEX IF NOT EXISTS ours ON t(a) WHERE a <> '';";

    #[track_caller]
    fn check(sql: &str, expected: Option<&str>) {
        assert_eq!(foreign_part(sql.as_bytes(), OURS).as_deref(), expected, "{sql}");
    }

    #[test]
    fn plain_definitions_are_ours_or_ignored() {
        for sql in [
            "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, a TEXT NOT NULL DEFAULT '', UNIQUE (id, a))",
            "CREATE TABLE t (a TEXT DEFAULT (datetime('now')), b TEXT DEFAULT ( DATETIME ( 'now' ) ))",
            "CREATE TABLE t (a DEFAULT -1.5e3, b VARCHAR(80) DEFAULT NULL, c DEFAULT CURRENT_TIMESTAMP)",
            "create table \"as\" (\"check\" text, [default (] text, `as` int, 'generated' int) without rowid, strict",
            "CREATE TABLE t (a TEXT, -- CHECK (a) AS\n b /* AS ( */ TEXT DEFAULT 'it''s AS (x)')",
            "CREATE TABLE t (a REFERENCES s(id) ON DELETE CASCADE, ascii TEXT, checks TEXT, generated TEXT)",
            "CREATE INDEX i ON t(a)",
            "CREATE UNIQUE INDEX i ON t(\"a b\" COLLATE NOCASE DESC, b ASC)",
            "CREATE INDEX ours ON t(a) WHERE a <> ''",
            "create index OURS on T (A) where A<>''",
        ] {
            check(sql, None);
        }
    }

    #[test]
    fn expressions_of_others_are_found() {
        for (sql, expected) in [
            ("CREATE TABLE t (a AS (hex(zeroblob(9))))", "a generated column in the table `t`"),
            ("CREATE TABLE t (a TEXT GENERATED ALWAYS AS (1) STORED)", "a generated column in the table `t`"),
            ("CREATE TABLE t (a TEXT /**/\u{feff}as/**/(1))", "a generated column in the table `t`"),
            ("CREATE TABLE \"it\"\"s\" (a CHECK(a > 0))", "a CHECK constraint in the table `it\"\"s`"),
            ("CREATE TABLE t (a, CONSTRAINT x check (a))", "a CHECK constraint in the table `t`"),
            ("CREATE TABLE t (a DEFAULT (1))", "a computed default in the table `t`"),
            ("CREATE TABLE t (a DEFAULT (datetime('now', a)))", "a computed default in the table `t`"),
            (
                "CREATE TABLE t (a DEFAULT 'it''s', b DEFAULT(random()))",
                "a computed default in the table `t`",
            ),
            ("CREATE INDEX i ON t(lower(a))", "an expression in the index `i`"),
            ("CREATE INDEX i ON t(a, b || 'x')", "an expression in the index `i`"),
            ("CREATE INDEX i ON t(a) WHERE b", "an expression in the index `i`"),
            ("CREATE INDEX ours ON t(a) WHERE a <> ' '", "an expression in the index `ours`"),
            ("CREATE INDEX ours ON t(a) WHERE a <> '' AND hex(a)", "an expression in the index `ours`"),
            ("CREATE VIEW v AS SELECT 1", "the view `v`"),
            ("CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END", "the trigger `g`"),
            ("CREATE VIRTUAL TABLE v USING fts5(a)", "the virtual table `v`"),
            ("CREATE", "a definition that is not whole"),
            ("crash", "a definition that is none"),
        ] {
            check(sql, Some(expected));
        }
    }

    #[test]
    fn any_text_is_split() {
        for text in ["", "'", "''", "'''", "\"a", "[", "[]", "/*", "/**", "--", "-", "\u{feff}", "ü€", "\0a"]
        {
            let joined: usize = tokens(text.as_bytes())
                .iter()
                .map(|token| match token {
                    Token::Word(text) | Token::Quoted(text) => text.len(),
                    Token::Sign(_) => 1,
                })
                .sum();
            assert!(joined <= text.len(), "{text}");
        }
    }
}
