//! Rows that are taken out of a store: kept in a file beside it, one JSON object per line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, params};

/// The file of rows that were taken out. It is created with the first one.
pub(super) struct SetAside {
    path: PathBuf,
    file: Option<File>,
    rows: u64,
}

impl SetAside {
    /// Uses this file, which does not exist.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None, rows: 0 }
    }

    /// Returns the file and the number of its rows; `None` if there is none.
    pub(super) fn written(&self) -> Option<(&Path, u64)> {
        self.file.as_ref().map(|_| (self.path.as_path(), self.rows))
    }

    /// Makes all rows survive a loss of power. Call it before they are deleted.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_all)
    }

    /// Adds a row.
    pub(super) fn add(&mut self, table: &str, why: &str, cells: &[(String, Value)]) -> io::Result<()> {
        let mut line = format!("{{\"table\":{},\"why\":{},\"row\":{{", json_text(table), json_text(why));
        for (index, (column, value)) in cells.iter().enumerate() {
            if index > 0 {
                line.push(',');
            }
            line.push_str(&format!("{}:{}", json_text(column), json_value(value)));
        }
        line.push_str("}}\n");
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            self.file = Some(options.append(true).create_new(true).mode(0o600).open(&self.path)?);
        }
        if let Some(file) = &mut self.file {
            file.write_all(line.as_bytes())?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Adds a row of the store, by its row number. A value that is too large to be loaded is cut.
    pub(super) fn add_row(
        &mut self,
        connection: &Connection,
        table: &str,
        rowid: i64,
        why: &str,
    ) -> rusqlite::Result<()> {
        let columns: Vec<String> = connection
            .prepare("SELECT name FROM pragma_table_info(?1)")?
            .query_map([table], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let quoted = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
        let select = |cell: &dyn Fn(&String) -> String| {
            let cells: Vec<String> = columns.iter().map(cell).collect();
            let sql = format!("SELECT {} FROM {table} WHERE rowid = ?1", cells.join(", "));
            let values = |row: &Row<'_>| (0..columns.len()).map(|index| row.get::<_, Raw>(index)).collect();
            connection.prepare(&sql)?.query_row(params![rowid], values)
        };
        let cut = |name: &String| {
            let name = quoted(name);
            format!(
                "CASE WHEN octet_length({name}) > 67141632 THEN substr({name}, 1, 1000000) ELSE {name} END"
            )
        };
        let values: Vec<Raw> = select(&quoted).or_else(|_| select(&cut))?;
        let mut cells = vec![("rowid".to_owned(), Value::Integer(rowid))];
        cells.extend(columns.into_iter().zip(values).map(|(column, Raw(value))| (column, value)));
        self.add(table, why, &cells).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
    }
}

/// A value of any type. Text that is not UTF-8 is a BLOB.
struct Raw(Value);

impl rusqlite::types::FromSql for Raw {
    fn column_result(value: ValueRef<'_>) -> rusqlite::types::FromSqlResult<Self> {
        Ok(Self(match value {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::Integer(number),
            ValueRef::Real(number) => Value::Real(number),
            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Value::Text(text.to_owned()),
                Err(_) => Value::Blob(bytes.to_vec()),
            },
            ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
        }))
    }
}

fn json_value(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) if number.is_finite() => format!("{number:?}"),
        Value::Real(number) => json_text(&number.to_string()),
        Value::Text(text) => json_text(text),
        Value::Blob(bytes) => {
            let mut hex = String::with_capacity(bytes.len() * 2 + 10);
            hex.push_str("{\"hex\":\"");
            for byte in bytes {
                for digit in [byte >> 4, byte & 15] {
                    hex.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
                }
            }
            hex.push_str("\"}");
            hex
        }
    }
}

fn json_text(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if u32::from(c) < 0x20 => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_row_that_is_set_aside_can_be_read_as_json() {
        let folder = tempfile::tempdir().unwrap();
        let mut aside = SetAside::new(folder.path().join("aside.jsonl"));
        assert!(aside.written().is_none());
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE TABLE t (a, \"b\"\"c\", d, e); INSERT INTO t VALUES ('x\"\n\\', x'00ff', 1.5, NULL)",
            )
            .unwrap();
        aside.add_row(&connection, "t", 1, "why not").unwrap();
        aside.sync().unwrap();
        let (path, rows) = aside.written().unwrap();
        assert_eq!(rows, 1);
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        let line: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let row =
            serde_json::json!({"rowid": 1, "a": "x\"\n\\", "b\"c": {"hex": "00ff"}, "d": 1.5, "e": null});
        assert_eq!(line, serde_json::json!({"table": "t", "why": "why not", "row": row}));
    }
}
