//! Moving the rows of a damaged file to a new one.
//!
//! The rows are read page by page ([`super::pages`]): first those that the tables of the file lead to, then those on pages that no
//! table leads to any more, by their shape. A row that does not fit into the new file is set aside.
//!
//! What is on a free page was deleted, unless the list of these pages is damaged. So such a row is used only if the others show that
//! it is missing, and is set aside otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;

use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use super::super::definitions;
use super::super::error::Fault;
use super::super::schema;
use super::pages::{Pages, RawRow};
use super::set_aside::SetAside;
use super::{Progress, step};

/// The result of a salvage.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Salvaged {
    /// The number of rows that were moved, without those of the table `meta`.
    rows: u64,
    /// The number of cells that cannot be read.
    pub(super) unreadable: u64,
}

impl Salvaged {
    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }
}

/// The tables of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    Sessions,
    Events,
    Compactions,
    Meta,
}

const TABLES: [Table; 4] = [Table::Sessions, Table::Events, Table::Compactions, Table::Meta];
/// The table in which SQLite keeps the numbers that were used.
const SEQUENCE: &str = "sqlite_sequence";
const SCHEMA_ROOT: u32 = 1;

impl Table {
    fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Events => "events",
            Self::Compactions => "compactions",
            Self::Meta => "meta",
        }
    }

    /// Returns the columns that this version creates, in their order.
    fn own_columns(self) -> Vec<String> {
        let names = match self {
            Self::Sessions => return schema::session_columns().map(|(name, _)| name.to_owned()).collect(),
            Self::Events => {
                &["id", "session_id", "seq", "kind", "data", "char_len", "operation", "entry", "removed"][..]
            }
            Self::Compactions => &[
                "id",
                "session_id",
                "after_seq",
                "summary",
                "created",
                "covers",
                "writer",
                "opening",
                "covered_details",
            ],
            Self::Meta => &["key", "value"],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Returns the columns by the definition in the damaged file. In the place of a name that is not ours is the own column of that place, if no other
    /// place has its name: then the name is damaged.
    fn columns_by(self, name: &str, sql: &Value) -> Vec<String> {
        let own = self.own_columns();
        let Some(mut columns) = defined_columns(name, sql) else { return own };
        for (index, column) in own.iter().enumerate() {
            if !columns.contains(column)
                && let Some(found) = columns.get_mut(index).filter(|found| !own.contains(found))
            {
                found.clone_from(column);
            }
        }
        columns
    }

    /// Recognises the table of a row by its shape.
    fn of_shape(values: &[Value]) -> Option<Self> {
        use Value::{Blob, Integer, Null, Text};
        match values {
            [Text(_), Text(_)] => Some(Self::Meta),
            [Null, Integer(_), Integer(_), Text(_), Blob(_), Integer(_), rest @ ..] if rest.len() <= 3 => {
                Some(Self::Events)
            }
            // The JSON itself, as the first versions of the original program wrote it.
            [Null, Integer(_), Integer(_), Text(_), Text(data), Integer(_), rest @ ..]
                if data.starts_with(['{', '"']) && rest.len() <= 3 =>
            {
                Some(Self::Events)
            }
            [Null, Integer(_), Integer(_), Text(_), Text(_), rest @ ..] if rest.len() <= 4 => {
                Some(Self::Compactions)
            }
            [Null, Text(_), Text(_), Text(_), _, _, _, _, ..] => Some(Self::Sessions),
            _ => None,
        }
    }
}

/// Returns whether rows of a table that is meant can be read, whatever leads to them. A row of `meta` is two texts, as in many files.
pub(super) fn has_rows(damaged: &File, is_meant: fn(Table) -> bool) -> io::Result<bool> {
    let pages = Pages::open(damaged)?;
    let is_ours = |row: &RawRow| {
        Table::of_shape(&row.values).is_some_and(|table| table != Table::Meta && is_meant(table))
    };
    Ok((1..=pages.count).any(|number| pages.is_leaf(number) && pages.rows(number).rows.iter().any(is_ours)))
}

/// Returns whether the first page names the tables of a store.
pub(super) fn has_tables(damaged: &File) -> io::Result<bool> {
    let pages = Pages::open(damaged)?;
    let tables = roots(&pages, &mut BTreeSet::new());
    Ok(pages.has_header && TABLES.iter().all(|table| tables.iter().any(|root| root.name == table.name())))
}

/// Returns the greatest number that a session of a damaged file has, or had as far as SQLite has noted it.
pub(super) fn greatest_number(damaged: &File) -> io::Result<Option<i64>> {
    let pages = Pages::open(damaged)?;
    let number = |row: &RawRow| match &row.values[..] {
        [Value::Text(table), Value::Integer(number)] if table == "sessions" => Some(*number),
        values if Table::of_shape(values) == Some(Table::Sessions) => Some(row.rowid),
        _ => None,
    };
    let leaves = (1..=pages.count).filter(|page| pages.is_leaf(*page));
    let found = leaves.flat_map(|page| pages.rows(page).rows).filter_map(|row| number(&row));
    // A damaged cell must not use up all numbers.
    Ok(found.filter(|number| (1..i64::from(u32::MAX)).contains(number)).max())
}

/// A table of a damaged file.
struct Root {
    name: String,
    page: u32,
    /// Its definition.
    sql: Value,
}

/// Returns the tables that the first page leads to, and adds the pages that name them to `seen`.
fn roots(pages: &Pages<'_>, seen: &mut BTreeSet<u32>) -> Vec<Root> {
    let mut roots = Vec::new();
    for leaf in pages.leaves(SCHEMA_ROOT) {
        seen.insert(leaf);
        for row in pages.rows(leaf).rows {
            if let [Value::Text(kind), Value::Text(name), _, Value::Integer(page), sql] = &row.values[..]
                && kind == "table"
                && let Ok(page) = u32::try_from(*page)
            {
                roots.push(Root { name: name.clone(), page, sql: sql.clone() });
            }
        }
    }
    roots
}

/// Moves all rows that can be read to a new file, whose tables are there and empty.
pub(super) fn salvage(
    damaged: &File,
    new: &Connection,
    aside: &mut SetAside,
    progress: Progress<'_>,
) -> Result<Salvaged, Fault> {
    let pages = Pages::open(damaged)?;
    let mut salvage = Salvage { new, aside, columns: BTreeMap::new(), numbers: 0, done: Salvaged::default() };
    // The versions of the new file are written at the end.
    new.execute_batch("PRAGMA foreign_keys = OFF; BEGIN; DELETE FROM meta")?;
    let mut seen = BTreeSet::from([SCHEMA_ROOT]);
    if pages.has_header {
        salvage.read_tables(&pages, &mut seen)?;
    }
    let free = pages.free();
    for number in 1..=pages.count {
        if number % 1_000 == 0 {
            step(progress, &format!("page {number} of {}", pages.count))?;
        }
        if seen.contains(&number) || free.contains(&number) || !pages.is_leaf(number) {
            continue;
        }
        let found = pages.rows(number);
        salvage.done.unreadable += found.unreadable as u64;
        for row in found.rows {
            match Table::of_shape(&row.values) {
                Some(table) => salvage.add(table, row)?,
                None => salvage.add_unknown(row)?,
            }
        }
    }
    // Sessions first: they say which events are missing.
    for is_turn in [|table| table == Table::Sessions, |table| table != Table::Sessions] {
        for number in free.iter().filter(|number| !seen.contains(number) && pages.is_leaf(**number)) {
            salvage.read_free(&pages, *number, is_turn)?;
        }
    }
    salvage.keep_numbers()?;
    let done = salvage.done;
    schema::set_versions(new)?;
    new.execute_batch("COMMIT")?;
    Ok(done)
}

struct Salvage<'a> {
    new: &'a Connection,
    aside: &'a mut SetAside,
    /// The columns of the tables of the damaged file.
    columns: BTreeMap<Table, Vec<String>>,
    /// The greatest number that a session had.
    numbers: i64,
    done: Salvaged,
}

impl Salvage<'_> {
    /// Moves the rows that the tables of the file lead to.
    fn read_tables(&mut self, pages: &Pages<'_>, seen: &mut BTreeSet<u32>) -> Result<(), Fault> {
        let mut roots = roots(pages, seen);
        // Sessions first, so that no event is without one for a while.
        roots.sort_by_key(|root| root.name != "sessions");
        let of_name = |name: &str| TABLES.into_iter().find(|table| table.name() == name);
        for Root { name, sql, .. } in &roots {
            if let Some(table) = of_name(name) {
                self.columns.insert(table, table.columns_by(name, sql));
            }
        }
        for Root { name, page, .. } in roots {
            let table = of_name(&name);
            for leaf in pages.leaves(page) {
                if !seen.insert(leaf) {
                    continue;
                }
                let found = pages.rows(leaf);
                self.done.unreadable += found.unreadable as u64;
                for row in found.rows {
                    let shape = Table::of_shape(&row.values);
                    match table {
                        // A page of another table can be in the place of this one's, with all that it leads to.
                        Some(table) => self.add(shape.unwrap_or(table), row)?,
                        None => {
                            // The name is damaged, or the page.
                            let is_sequence = name == SEQUENCE;
                            match shape.filter(|shape| is_sequence || !self.columns.contains_key(shape)) {
                                Some(table) => self.add(table, row)?,
                                None if is_sequence => self.note_number(&row),
                                None => self.set_aside(&name, "the table is not ours", &[], row)?,
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Moves the rows of a free page that are missing, of the tables whose turn it is. The others were deleted: they are set aside.
    fn read_free(&mut self, pages: &Pages<'_>, number: u32, is_turn: fn(Table) -> bool) -> Result<(), Fault> {
        for row in pages.rows(number).rows {
            let Some(table) = Table::of_shape(&row.values).filter(|table| is_turn(*table)) else { continue };
            if self.is_missing(table, &row)? {
                self.add(table, row)?;
            } else {
                let columns = self.columns_of(table);
                self.set_aside(
                    table.name(),
                    "it is on a free page, so it may have been deleted",
                    &columns,
                    row,
                )?;
            }
        }
        Ok(())
    }

    /// Returns whether other rows show that a row is missing: events belong to a session that is not there, or a session counts an event
    /// that is not there.
    fn is_missing(&self, table: Table, row: &RawRow) -> Result<bool, Fault> {
        let columns = self.columns_of(table);
        let value = |name: &str| {
            let at = columns.iter().position(|column| column == name)?;
            row.values.get(at)
        };
        Ok(match (table, value("session_id"), value("seq")) {
            (Table::Sessions, ..) => {
                let sql = "SELECT EXISTS (SELECT 1 FROM events WHERE session_id = ?1)
                             AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = ?1)";
                self.new.prepare_cached(sql)?.query_row([row.rowid], |row| row.get(0))?
            }
            (Table::Events, Some(session), Some(seq)) => {
                let sql = "SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?1 AND counted_seq >= ?2)
                             AND NOT EXISTS (SELECT 1 FROM events WHERE session_id = ?1 AND seq = ?2)";
                self.new.prepare_cached(sql)?.query_row([session, seq], |row| row.get(0))?
            }
            _ => false,
        })
    }

    fn columns_of(&self, table: Table) -> Vec<String> {
        self.columns.get(&table).cloned().unwrap_or_else(|| table.own_columns())
    }

    fn note_number(&mut self, row: &RawRow) {
        if let [Value::Text(table), Value::Integer(number)] = &row.values[..]
            && table == "sessions"
        {
            self.numbers = self.numbers.max(*number);
        }
    }

    /// Adds a row to its table. One whose place is taken, or that the table refuses, is set aside.
    fn add(&mut self, table: Table, row: RawRow) -> Result<(), Fault> {
        let columns = self.columns_of(table);
        let known = table.own_columns();
        let (mut names, mut values) = (Vec::new(), Vec::new());
        let mut has_unknown = row.values.len() > columns.len();
        for (column, value) in columns.iter().zip(&row.values) {
            if column == "id" {
                names.push("id".to_owned());
                values.push(Value::Integer(row.rowid));
            } else if known.contains(column) {
                // The default of a column is not NULL in some.
                if *value != Value::Null {
                    names.push(column.clone());
                    values.push(value.clone());
                }
            } else if *value != Value::Null {
                has_unknown = true;
            }
        }
        if names.is_empty() {
            return self.set_aside(table.name(), "it has no values", &columns, row);
        }
        let places: Vec<String> = (1..=names.len()).map(|number| format!("?{number}")).collect();
        let sql =
            format!("INSERT INTO {} ({}) VALUES ({})", table.name(), names.join(", "), places.join(", "));
        match self.new.prepare_cached(&sql)?.execute(params_from_iter(values)) {
            Ok(_) if has_unknown => {
                self.set_aside(table.name(), "it has columns that are not ours", &columns, row)?;
            }
            Ok(_) => {}
            Err(error) if is_refused(&error) => {
                return self.set_aside(table.name(), &error.to_string(), &columns, row);
            }
            Err(error) => return Err(error.into()),
        }
        self.done.rows += u64::from(table != Table::Meta);
        Ok(())
    }

    fn add_unknown(&mut self, row: RawRow) -> Result<(), Fault> {
        self.note_number(&row);
        let is_internal = matches!(&row.values[..], [Value::Text(table), Value::Integer(_)] if table == "sessions")
            || matches!(&row.values[..], [Value::Text(kind), Value::Text(_), Value::Text(_), Value::Integer(_), _]
                if kind == "table" || kind == "index");
        if is_internal { Ok(()) } else { self.set_aside("", "its table is not known", &[], row) }
    }

    fn set_aside(&mut self, table: &str, why: &str, columns: &[String], row: RawRow) -> Result<(), Fault> {
        let mut cells = vec![("rowid".to_owned(), Value::Integer(row.rowid))];
        let name =
            |index: usize| columns.get(index).cloned().unwrap_or_else(|| format!("column {}", index + 1));
        cells.extend(row.values.into_iter().enumerate().map(|(index, value)| (name(index), value)));
        Ok(self.aside.add(table, why, &cells)?)
    }

    /// Keeps numbers of deleted sessions from being used again: a row that comes and goes is what AUTOINCREMENT remembers.
    fn keep_numbers(&self) -> rusqlite::Result<()> {
        let greatest: i64 =
            self.new.query_row("SELECT ifnull(max(id), 0) FROM sessions", [], |row| row.get(0))?;
        if (greatest + 1..=i64::from(u32::MAX)).contains(&self.numbers) {
            self.new.execute("INSERT INTO sessions (id) VALUES (?1)", params![self.numbers])?;
            self.new.execute("DELETE FROM sessions WHERE id = ?1", params![self.numbers])?;
        }
        Ok(())
    }
}

fn is_refused(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            rusqlite::ErrorCode::ConstraintViolation
                | rusqlite::ErrorCode::TypeMismatch
                | rusqlite::ErrorCode::TooBig
        )
    )
}

/// Reads the columns of a table from its definition in the damaged file. `None` if the definition is not one that azureal
/// executes.
fn defined_columns(table: &str, sql: &Value) -> Option<Vec<String>> {
    let Value::Text(sql) = sql else { return None };
    if definitions::foreign_part(sql.as_bytes(), schema::OUR_INDEXES).is_some() {
        return None;
    }
    let scratch = Connection::open_in_memory().ok()?;
    scratch.execute_batch(sql).ok()?;
    let mut columns = scratch.prepare("SELECT name FROM pragma_table_info(?1) ORDER BY cid").ok()?;
    let columns: Vec<String> = columns.query_map([table], |row| row.get(0)).ok()?.flatten().collect();
    (!columns.is_empty()).then_some(columns)
}
