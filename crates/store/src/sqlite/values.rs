//! Stored values of any type.
//!
//! SQLite stores a value of any type in any column. Another program, a hostile file or a damaged page can leave a
//! text in place of a number, or hundreds of megabytes in place of a name. Such a cell must not make other rows
//! unreadable: it reads as its nearest valid value, and is reported.

use azureal_core::Uuid;
use rusqlite::types::ValueRef;
use rusqlite::{Row, RowIndex};
use tracing::debug;

/// The largest value of a column that holds a name, a number or a line of text.
pub(super) const LARGEST_VALUE: usize = 1 << 20;

/// The cells of one row.
pub(super) struct Cells<'row, 'statement> {
    row: &'row Row<'statement>,
    /// The columns whose value has the wrong type.
    pub(super) damaged: Vec<String>,
}

impl<'row, 'statement> Cells<'row, 'statement> {
    pub(super) fn of(row: &'row Row<'statement>) -> Self {
        Self { row, damaged: Vec::new() }
    }

    fn get(&self, index: usize) -> ValueRef<'row> {
        // Fails only for an index that the statement does not have.
        self.row.get_ref(index).unwrap_or(ValueRef::Null)
    }

    fn report(&mut self, index: usize) {
        let name = self.row.as_ref().column_name(index).unwrap_or("a value");
        debug!(column = name, "a damaged value is read as its default");
        self.damaged.push(name.to_owned());
    }

    pub(super) fn text(&mut self, index: usize) -> Option<String> {
        let value = self.get(index);
        if !matches!(value, ValueRef::Null | ValueRef::Text(_)) || value.as_str_or_null().is_err() {
            self.report(index);
        }
        text(value)
    }

    pub(super) fn integer(&mut self, index: usize) -> Option<i64> {
        let value = self.get(index);
        if !matches!(value, ValueRef::Null | ValueRef::Integer(_)) {
            self.report(index);
        }
        integer(value)
    }

    /// Returns a count; `None` and what cannot be a count is zero.
    pub(super) fn count(&mut self, index: usize) -> u64 {
        unsigned(self.integer(index))
    }

    pub(super) fn real(&mut self, index: usize) -> f64 {
        match self.get(index) {
            ValueRef::Real(number) if number.is_finite() => number,
            ValueRef::Integer(number) => number as f64,
            ValueRef::Null => 0.0,
            ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => {
                self.report(index);
                0.0
            }
        }
    }

    pub(super) fn uuid(&mut self, index: usize) -> Option<Uuid> {
        let before = self.damaged.len();
        let text = self.text(index)?;
        let uuid = text.parse().ok();
        if uuid.is_none() && self.damaged.len() == before {
            self.report(index);
        }
        uuid
    }
}

/// Returns the text of a cell of any type; `None` for NULL.
pub(super) fn text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Null => None,
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
    }
}

/// Returns the number in a cell; `None` if it holds none.
pub(super) fn integer(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(number) => Some(number),
        // Saturates, and takes NaN for zero.
        ValueRef::Real(number) => Some(number as i64),
        ValueRef::Null | ValueRef::Text(_) | ValueRef::Blob(_) => None,
    }
}

/// Returns the number in a column; `None` if it holds none.
pub(super) fn number(row: &Row<'_>, index: impl RowIndex) -> rusqlite::Result<Option<i64>> {
    row.get_ref(index).map(integer)
}

/// Returns a count from SQLite's integer; `None` and what cannot be a count is zero.
pub(super) fn unsigned(integer: Option<i64>) -> u64 {
    integer.and_then(|integer| u64::try_from(integer).ok()).unwrap_or(0)
}

/// SQLite has signed integers; totals that large do not occur.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a column for a `SELECT` such that SQLite does not load a value that is too large: it reads as an empty BLOB,
/// which is no value of any column.
pub(super) fn guarded(column: &str) -> String {
    format!("CASE WHEN octet_length({column}) > {LARGEST_VALUE} THEN x'' ELSE {column} END AS {column}")
}

/// Returns whether SQLite met a value that is larger than it may load.
pub(super) fn is_too_large(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::TooBig)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn a_damaged_value_is_logged_by_its_column() {
        let connection = Connection::open_in_memory().unwrap();
        let log = azureal_testkit::captured_log(|| {
            let read = |row: &Row<'_>| Ok(Cells::of(row).count(0));
            assert_eq!(connection.query_row("SELECT 'a-secret' AS tokens_in", [], read), Ok(0));
        });
        assert!(log.contains(r#"a damaged value is read as its default column="tokens_in""#), "{log}");
        assert!(!log.contains("a-secret"), "{log}");
    }
}
