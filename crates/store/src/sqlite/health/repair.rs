//! Repairs of the rows of a store, in one transaction. A row that is taken out or overwritten is set aside first.

use std::collections::BTreeSet;
use std::path::Path;

use azureal_core::event::Hook;
use azureal_core::{Event, Seq, SessionId, SessionProblem, StoredEvent, Tally, Uuid};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::codec::Codec;
use super::super::error::Fault;
use super::super::schema::{self, IS_USABLE, SessionColumns};
use super::super::values::{self, guarded};
use super::super::{connection, counts, events, sessions};
use super::former_uuid::FormerUuids;
use super::rows::{self, ORPHAN, known_columns, session_id, wrong_columns};
use super::set_aside::SetAside;
use super::{NewUuid, Progress, StoreProblem};
use crate::timestamp::now;

/// A repair can show further problems: events of a session that cannot be one are then without a session.
const ROUNDS: usize = 5;
/// The kind of the error in the place of an event that cannot be decoded.
const DAMAGED: &str = "damaged";
/// The name of the notes in the place of missing events.
const NOTE: &str = "azureal doctor";
const MISSING: &str = "an event is missing here";
/// The events of a session whose number is none.
const WITHOUT_PLACE: &str = "SELECT id FROM events WHERE session_id = ?1
  AND NOT (typeof(seq) = 'integer' AND seq >= 1 AND seq < 9223372036854775807)";
/// The number that an event had, if it has another, and this one is free and follows that of all rows before its own, and the rows after it go on from there.
const PLACE: &str = "
WITH others AS (SELECT id, seq FROM events WHERE session_id = ?1 AND id <> ?2
                  AND typeof(seq) = 'integer' AND seq >= 1 AND seq < 9223372036854775806),
     neighbours AS (SELECT ifnull((SELECT max(seq) FROM others WHERE id < ?2), 0) + 1 AS place,
                           (SELECT min(seq) FROM others WHERE id > ?2) AS next)
SELECT place FROM neighbours
WHERE (next IS NULL OR next = place + 1) AND place NOT IN (SELECT seq FROM others)
  AND place IS NOT (SELECT seq FROM events WHERE id = ?2)";

/// The result of a repair.
#[derive(Debug, Default)]
pub(super) struct RowRepair {
    pub(super) repaired: Vec<StoreProblem>,
    pub(super) new_uuids: Vec<NewUuid>,
}

/// Repairs all rows, in one transaction. The file is of the newest version.
pub(super) fn repair(
    connection: &mut Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    originals: &[&Path],
    aside: &mut SetAside,
    progress: Progress<'_>,
) -> Result<RowRepair, Fault> {
    // Deleting the row of a session must not delete its events.
    connection.pragma_update(None, "foreign_keys", false)?;
    let repaired = repair_all(connection, columns, codec, originals, aside, progress);
    connection.pragma_update(None, "foreign_keys", true)?;
    repaired
}

fn repair_all(
    connection: &mut Connection,
    columns: &SessionColumns,
    codec: &mut Codec,
    originals: &[&Path],
    aside: &mut SetAside,
    progress: Progress<'_>,
) -> Result<RowRepair, Fault> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    schema::check_versions(&transaction)?;
    let mut repair = Repair {
        connection: &transaction,
        codec,
        aside,
        former: FormerUuids::in_folders(originals),
        changed: BTreeSet::new(),
        done: RowRepair::default(),
    };
    for _ in 0..ROUNDS {
        let found = rows::check(&transaction, columns, repair.codec, progress)?;
        let fixable: Vec<StoreProblem> =
            found.problems.into_iter().filter(|problem| problem.repair().is_some()).collect();
        if fixable.is_empty() {
            break;
        }
        // An event that is back in its place fills a gap.
        let mut are_placed = false;
        for problem in &fixable {
            if repair.restore_places(problem)? {
                repair.done.repaired.push(problem.clone());
                are_placed = true;
            }
        }
        if are_placed {
            repair.recount()?;
            continue;
        }
        for problem in fixable {
            repair.fix(&problem)?;
            repair.done.repaired.push(problem);
        }
        repair.recount()?;
    }
    let Repair { done, .. } = repair;
    // What others have appended, and sessions without a place in the list. Of a damaged file, also those that were never counted.
    sessions::fill_uuids(&transaction)?;
    counts::catch_up(&transaction, codec)?;
    aside.sync()?;
    connection::commit(transaction)?;
    Ok(done)
}

struct Repair<'a> {
    connection: &'a Connection,
    codec: &'a mut Codec,
    aside: &'a mut SetAside,
    former: FormerUuids<'a>,
    /// The sessions whose events are counted again.
    changed: BTreeSet<i64>,
    done: RowRepair,
}

impl Repair<'_> {
    fn fix(&mut self, problem: &StoreProblem) -> Result<(), Fault> {
        let why = problem.to_string();
        match problem {
            StoreProblem::Session(id, problem) => self.fix_session(*id, problem, &why),
            StoreProblem::WithoutPlace { session, .. } => {
                self.take_out("events", WITHOUT_PLACE, *session, &why)
            }
            StoreProblem::EventCells { session, .. } => self.rewrite_cells(*session),
            StoreProblem::Summaries { session, .. } => {
                let sql = format!("SELECT id FROM compactions WHERE session_id = ?1 AND NOT ({IS_USABLE})");
                self.take_out("compactions", &sql, *session, &why)
            }
            StoreProblem::Orphans { session, events, .. } => match session.parse::<i64>().ok() {
                Some(number) if *events > 0 && session_id(number).is_some() => self.adopt(number),
                _ => self.take_out_orphans(session, &why),
            },
            StoreProblem::Numbers { .. } => {
                let rows = "SELECT id FROM sessions WHERE id < 1 OR id > 4294967295";
                self.take_out_rows("sessions", rows, &why)
            }
            StoreProblem::Meta { .. } => {
                let rows = "SELECT rowid FROM meta WHERE typeof(key) <> 'text' OR typeof(value) <> 'text'";
                self.take_out_rows("meta", rows, &why)
            }
            StoreProblem::LastNumber { .. } => self.set_last_number(&why),
            StoreProblem::Unusable(_) | StoreProblem::WithoutRows { .. } | StoreProblem::Structure(_) => {
                Ok(())
            }
        }
    }

    fn fix_session(&mut self, id: SessionId, problem: &SessionProblem, why: &str) -> Result<(), Fault> {
        let session = i64::from(id.number());
        match problem {
            SessionProblem::Undecodable { seq, why } => self.replace(session, *seq, why),
            SessionProblem::SharedPlace { seq } => {
                // The first of them stays.
                let sql = format!(
                    "SELECT id FROM events WHERE session_id = ?1 AND seq = {} ORDER BY id LIMIT -1 OFFSET 1",
                    events::integer(*seq)
                );
                self.take_out("events", &sql, id, why)
            }
            SessionProblem::Gap { after, next } => self.fill(session, *after, *next),
            SessionProblem::Counts { .. } => {
                self.changed.insert(session);
                Ok(())
            }
            SessionProblem::Values { .. } => self.rewrite_values(session, why),
            SessionProblem::Summary { after_seq } => {
                let sql = format!(
                    "SELECT id FROM compactions WHERE session_id = ?1 AND {IS_USABLE} AND max(after_seq, 0) = {}",
                    events::integer(*after_seq)
                );
                self.take_out("compactions", &sql, id, why)
            }
            SessionProblem::NoUuid => {
                self.aside.add_row(self.connection, "sessions", session, why)?;
                let uuid = self.former.of(self.connection, session)?.unwrap_or_else(Uuid::new_v4);
                self.set_uuid(session, uuid)
            }
            SessionProblem::SharedUuid { uuid, with } => {
                for number in [session, i64::from(with.number())] {
                    if let Some(former) = self.former.of(self.connection, number)? {
                        self.aside.add_row(self.connection, "sessions", number, why)?;
                        return self.set_uuid(number, former);
                    }
                }
                let new = Uuid::new_v4();
                let sql =
                    "UPDATE sessions SET uuid = ?2, forked_from = ifnull(forked_from, ?3) WHERE id = ?1";
                self.connection.execute(sql, params![session, new.to_string(), uuid.to_string()])?;
                self.done.new_uuids.push(NewUuid { session: id, former: *uuid, uuid: new });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Gives events that have no place of their own the one that they had, where their neighbours show it: the rows of a session are in the
    /// order of its events. Returns whether there was such an event.
    fn restore_places(&mut self, problem: &StoreProblem) -> Result<bool, Fault> {
        let (id, sql) = match problem {
            StoreProblem::WithoutPlace { session, .. } => (session, WITHOUT_PLACE.to_owned()),
            StoreProblem::Session(session, SessionProblem::SharedPlace { seq }) => {
                let seq = events::integer(*seq);
                (session, format!("SELECT id FROM events WHERE session_id = ?1 AND seq = {seq} ORDER BY id"))
            }
            _ => return Ok(false),
        };
        let session = i64::from(id.number());
        let why = problem.to_string();
        let mut are_placed = false;
        for row in self.rows_of(&sql, session)? {
            let place = self.connection.query_row(PLACE, [session, row], |row| row.get(0));
            let place: Option<i64> = place.optional()?;
            if let Some(place) = place {
                self.aside.add_row(self.connection, "events", row, &why)?;
                self.connection.execute("UPDATE events SET seq = ?2 WHERE id = ?1", [row, place])?;
                self.changed.insert(session);
                are_placed = true;
            }
        }
        Ok(are_placed)
    }

    fn rows_of(&self, sql: &str, session: i64) -> rusqlite::Result<Vec<i64>> {
        self.connection.prepare(sql)?.query_map([session], |row| row.get(0))?.collect()
    }

    fn set_uuid(&self, session: i64, uuid: Uuid) -> Result<(), Fault> {
        let sql = "UPDATE sessions SET uuid = ?2 WHERE id = ?1";
        self.connection.execute(sql, params![session, uuid.to_string()])?;
        Ok(())
    }

    /// Sets the rows aside that a query of a session finds, and deletes them.
    fn take_out(&mut self, table: &str, sql: &str, id: SessionId, why: &str) -> Result<(), Fault> {
        let session = i64::from(id.number());
        let rows = self.rows_of(sql, session)?;
        self.delete(table, &rows, why)?;
        self.changed.insert(session);
        Ok(())
    }

    fn take_out_rows(&mut self, table: &str, sql: &str, why: &str) -> Result<(), Fault> {
        let rows: Vec<i64> = self
            .connection
            .prepare(sql)?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        self.delete(table, &rows, why)
    }

    fn delete(&mut self, table: &str, rows: &[i64], why: &str) -> Result<(), Fault> {
        for row in rows {
            self.aside.add_row(self.connection, table, *row, why)?;
            self.connection.execute(&format!("DELETE FROM {table} WHERE rowid = ?1"), [row])?;
        }
        Ok(())
    }

    /// Sets the last number of a session aside, and notes the highest one in use instead.
    fn set_last_number(&mut self, why: &str) -> Result<(), Fault> {
        self.take_out_rows(
            "sqlite_sequence",
            "SELECT rowid FROM sqlite_sequence WHERE name = 'sessions'",
            why,
        )?;
        let sql = "INSERT INTO sqlite_sequence (name, seq)
                   SELECT 'sessions', ifnull(max(id), 0) FROM
                     (SELECT id FROM sessions UNION ALL SELECT session_id FROM events UNION ALL SELECT session_id FROM compactions)
                   WHERE typeof(id) = 'integer' AND id <= 4294967295";
        self.connection.execute(sql, [])?;
        Ok(())
    }

    /// Sets the orphans aside that cannot belong to a session, or of which there are only summaries.
    fn take_out_orphans(&mut self, session: &str, why: &str) -> Result<(), Fault> {
        for table in ["events", "compactions"] {
            // By its text, which is not that of a value that is not UTF-8.
            let orphans: Vec<(i64, String)> = self
                .connection
                .prepare(&format!(
                    "SELECT id, {ORPHAN} FROM {table}
                     WHERE session_id IS NULL OR session_id NOT IN (SELECT id FROM sessions)"
                ))?
                .query_map([], |row| Ok((row.get(0)?, values::text(row.get_ref(1)?).unwrap_or_default())))?
                .collect::<rusqlite::Result<_>>()?;
            let of_session = orphans.into_iter().filter(|(_, found)| found == session);
            self.delete(table, &of_session.map(|(row, _)| row).collect::<Vec<_>>(), why)?;
        }
        Ok(())
    }

    /// Creates the session that events belong to.
    fn adopt(&mut self, session: i64) -> Result<(), Fault> {
        let now = now();
        let uuid = self.former.of(self.connection, session)?.unwrap_or_else(Uuid::new_v4);
        self.connection.execute(
            "INSERT INTO sessions (id, name, worktree, created, last_active, uuid, active)
             VALUES (?1, ?2, '.', ?3, ?3, ?4, ?5)",
            params![
                session,
                format!("recovered-S{session}"),
                now,
                uuid.to_string(),
                counts::next_tick(self.connection)?
            ],
        )?;
        self.changed.insert(session);
        Ok(())
    }

    /// Puts an error in the place of an event that cannot be decoded. Readers show it as one before the repair, too.
    fn replace(&mut self, session: i64, seq: Seq, why: &str) -> Result<(), Fault> {
        let sql = "SELECT id FROM events WHERE session_id = ?1 AND seq = ?2";
        let row: Option<i64> = self
            .connection
            .query_row(sql, params![session, events::integer(seq)], |row| row.get(0))
            .optional()?;
        let Some(row) = row else { return Ok(()) };
        self.aside.add_row(self.connection, "events", row, why)?;
        let event = Event::error(DAMAGED, format!("this event could not be read and was set aside: {why}"));
        let (data, length) = self.packed(&event)?;
        self.connection.execute(
            "UPDATE events SET kind = ?2, data = ?3, char_len = ?4 WHERE id = ?1",
            params![row, event.kind(), data, length],
        )?;
        self.changed.insert(session);
        Ok(())
    }

    fn packed(&mut self, event: &Event) -> Result<(Vec<u8>, i64), Fault> {
        let json = event.to_json();
        let data = self.codec.pack(&json)?;
        let length = json.chars().count().cast_signed() as i64;
        Ok((data, length))
    }

    /// Puts notes in the place of missing events. They are no message and not part of the context.
    fn fill(&mut self, session: i64, after: Seq, next: Seq) -> Result<(), Fault> {
        let event = Event::Hook(Hook { name: NOTE.to_owned(), output: MISSING.to_owned() });
        let (data, length) = self.packed(&event)?;
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO events (session_id, seq, kind, data, char_len) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        for seq in after.0 + 1..next.0 {
            insert.execute(params![session, seq.cast_signed(), event.kind(), data, length])?;
        }
        self.changed.insert(session);
        Ok(())
    }

    /// Writes kind and length of events again, as far as they can be decoded.
    fn rewrite_cells(&mut self, id: SessionId) -> Result<(), Fault> {
        let session = i64::from(id.number());
        let ids = self.rows_of("SELECT id FROM events WHERE session_id = ?1", session)?;
        let sql = format!(
            "SELECT kind, {}, typeof(kind) = 'text' AND typeof(char_len) = 'integer' AND char_len >= 0 FROM events WHERE id = ?1",
            events::DATA
        );
        for row in ids {
            let (kind, data, has_types): (String, Value, bool) =
                self.connection.prepare_cached(&sql)?.query_row([row], |row| {
                    Ok((values::text(row.get_ref(0)?).unwrap_or_default(), row.get(1)?, row.get(2)?))
                })?;
            let json = self.codec.unpack(ValueRef::from(&data));
            let stored = StoredEvent::new(Seq::START, kind, json);
            if has_types && !rows::has_other_kind(&stored) {
                continue;
            }
            // One that cannot be decoded is replaced.
            let (kind, length) = match (stored.event(), &stored.json) {
                (Ok(event), Ok(json)) => (event.kind().to_owned(), json.chars().count()),
                _ => (String::new(), 0),
            };
            self.aside.add_row(self.connection, "events", row, "kind or length is wrong")?;
            self.connection.execute(
                "UPDATE events SET kind = ?2, char_len = ?3 WHERE id = ?1",
                params![row, kind, length.cast_signed() as i64],
            )?;
        }
        Ok(())
    }

    /// Writes the values of a session that have a wrong type as they are read.
    fn rewrite_values(&mut self, session: i64, why: &str) -> Result<(), Fault> {
        self.aside.add_row(self.connection, "sessions", session, why)?;
        let wrong = wrong_columns(self.connection, session)?;
        for (column, kind) in known_columns(self.connection)? {
            if !wrong.iter().any(|wrong| wrong == column) {
                continue;
            }
            let sql = format!("SELECT {} FROM sessions WHERE id = ?1", guarded(column));
            let value: Value = self.connection.query_row(&sql, [session], |row| {
                let value = row.get_ref(0)?;
                Ok(match kind {
                    "INTEGER" => values::integer(value)
                        .filter(|number| *number >= 0)
                        .map_or(Value::Null, Value::Integer),
                    "REAL" => Value::Null,
                    _ => Value::Text(values::text(value).unwrap_or_default()),
                })
            })?;
            self.connection.execute(
                &format!("UPDATE sessions SET {column} = ?2 WHERE id = ?1"),
                params![session, value],
            )?;
        }
        self.changed.insert(session);
        Ok(())
    }

    /// Counts the changed sessions again. Their places in the list stay.
    fn recount(&mut self) -> Result<(), Fault> {
        let changed = std::mem::take(&mut self.changed);
        if changed.is_empty() {
            return Ok(());
        }
        for session in changed {
            let mut tally = Tally::default();
            counts::count_rest(self.connection, self.codec, session, &mut tally, Seq::END)?;
            counts::forget_before_compaction(self.connection, session, &mut tally)?;
            // The revision never falls, though there may be fewer events now.
            self.connection.execute(
                "UPDATE sessions SET changes = min(max(ifnull(changes, 0), 0) + max(ifnull(event_count, 0), 0) + 1,
                                                   9223372036854775807)
                 WHERE id = ?1",
                [session],
            )?;
            let last: Option<i64> = self.connection.query_row(
                "SELECT max(id) FROM events WHERE session_id = ?1",
                [session],
                |row| row.get(0),
            )?;
            counts::write(self.connection, session, &tally, last)?;
        }
        // New events have the greatest ids, and all of them are counted: the newest session says so for the whole file.
        self.connection.execute(
            "UPDATE sessions SET last_event = (SELECT max(id) FROM events)
             WHERE id = (SELECT id FROM sessions WHERE typeof(last_event) = 'integer' AND active <= 9223372036854775807
                         ORDER BY active DESC LIMIT 1)",
            [],
        )?;
        Ok(())
    }
}

/// Upgrades a file of an older version before it is repaired.
pub(super) fn upgrade(
    path: &Path,
    connection: &mut Connection,
    columns: SessionColumns,
    codec: &mut Codec,
) -> Result<SessionColumns, Fault> {
    if columns.are_complete() {
        return Ok(columns);
    }
    Ok(schema::upgrade(path, connection, codec)?)
}
