//! Counts over the events of a session, stored in its row.
//!
//! The original program appends events without counting them. Two facts show that:
//!
//! - `last_event` is the id of the last counted event of its session. The transaction that sets it has counted
//!   every event of the file up to that id.
//! - `active` is a logical clock that advances whenever a session is created or appended to. So the newest session
//!   with events holds the greatest `last_event` of all.
//!
//! So one probe at either end of two indexes shows whether everything is counted, for any number of sessions. Wall
//! clocks are not used.
//!
//! The first release of azureal counts, but not everything that is counted today. It moves `counted_seq` and leaves
//! `tallied_seq`; an index holds the sessions where the two differ, and those are counted again from their beginning.
//!
//! Earlier releases know no details. `told` and `covers` are the sizes without them, for these releases; `details` and
//! `covered_details` have the difference. An event of an earlier release has no detail, so `details` stays right when it
//! appends. `detailed_seq` shows the other cases: it is NULL in a session that such a release created, perhaps as a fork,
//! and greater than `counted_seq` in one that it cleared. Those are counted again from their beginning.

use azureal_core::fold::Open;
use azureal_core::{Counts, Event, Seq, SessionRecord, Tally};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::codec::Codec;
use super::values::{Cells, integer, is_too_large, number, unsigned};
use super::{events, original_prompts, schema, sessions};
use crate::timestamp::now;

/// A session whose counts have been brought up to date.
pub(super) struct Recounted {
    pub(super) session: i64,
    pub(super) tally: Tally,
    /// The id of its last event; `None` if it has none.
    pub(super) last_event: Option<i64>,
    /// Its totals, if another program has appended.
    pub(super) totals: Option<Totals>,
}

/// Duration and cost of all turns. The original program overwrites the sums in the row with those of its last turn, so they are added up again
/// from the events that end turns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Totals {
    duration_ms: u64,
    cost_usd: f64,
}

impl Totals {
    /// Adds up the turns of a session; `None` if it is not known which are its own.
    pub(super) fn of(
        connection: &Connection,
        codec: &mut Codec,
        session: i64,
    ) -> rusqlite::Result<Option<Self>> {
        let Some(copied) = copied_seq(connection, session)? else { return Ok(None) };
        let mut ends = connection.prepare_cached(&format!(
            "SELECT {} FROM events WHERE session_id = ?1 AND kind = 'Complete' AND seq > ?2",
            events::DATA
        ))?;
        let mut rows = ends.query([session, copied])?;
        let mut totals: Option<Self> = None;
        while let Some(row) = rows.next()? {
            let json = codec.unpack(row.get_ref(0)?).ok();
            if let Some(Event::Complete(complete)) = json.and_then(|json| Event::from_json(&json).ok()) {
                // Without the end of a turn there is nothing to add up, and the row stays as it is.
                let totals = totals.get_or_insert_default();
                totals.duration_ms = totals.duration_ms.saturating_add(complete.duration_ms);
                totals.cost_usd += complete.cost_usd;
            }
        }
        Ok(totals)
    }

    /// Corrects a record. An imported session may have greater sums than its events tell of.
    pub(super) fn correct(self, record: &mut SessionRecord) {
        record.duration_ms = record.duration_ms.max(self.duration_ms);
        record.cost_usd = record.cost_usd.max(self.cost_usd);
    }

    fn write(self, connection: &Connection, session: i64) -> rusqlite::Result<()> {
        connection
            .prepare_cached(
                "UPDATE sessions SET duration_ms = ?2
                 WHERE id = ?1 AND (typeof(duration_ms) <> 'integer' OR duration_ms < ?2)",
            )?
            .execute(params![session, self.duration_ms.min(i64::MAX as u64).cast_signed()])?;
        connection
            .prepare_cached(
                "UPDATE sessions SET cost_usd = ?2
                 WHERE id = ?1 AND (typeof(cost_usd) NOT IN ('real', 'integer') OR cost_usd < ?2)",
            )?
            .execute(params![session, self.cost_usd])?;
        Ok(())
    }
}

/// Returns the last event that a session has from its origin, 0 if it is no fork; `None` if that is not known.
fn copied_seq(connection: &Connection, session: i64) -> rusqlite::Result<Option<i64>> {
    let select = |copied: &str| {
        let sql = format!("SELECT iif(forked_from IS NULL, 0, {copied}) FROM sessions WHERE id = ?1");
        connection.prepare_cached(&sql)
    };
    match select("copied_seq").or_else(|_| select("NULL")) {
        Ok(mut copied) => {
            copied.query_row([session], |row| Ok(integer(row.get_ref(0)?))).optional().map(Option::flatten)
        }
        // A file of the original program has no such column, and no forks. One of the first release has forks, and does not say which sessions are some.
        Err(_) => Ok(connection.prepare_cached("SELECT counted_seq FROM sessions").is_err().then_some(0)),
    }
}

/// The progress of the counting, and of the clock.
struct Progress {
    /// The greatest id that was counted.
    counted: Option<i64>,
    /// The greatest id that there is.
    last: Option<i64>,
    /// Whether there are sessions without a value of the clock.
    has_unclocked: bool,
    /// The newest session's value of the clock.
    newest: Option<i64>,
    /// Whether an older azureal has counted some session.
    has_stale: bool,
}

impl Progress {
    fn is_complete(&self) -> bool {
        self.counted == self.last && !self.has_unclocked && !self.has_stale
    }
}

/// Reads the progress. Each value is one probe at the end of an index.
fn progress(connection: &Connection) -> rusqlite::Result<Progress> {
    connection
        .prepare_cached(
            // Texts and BLOBs, which stand on no clock, are greater than all numbers.
            "SELECT (SELECT last_event FROM sessions
                     WHERE typeof(last_event) = 'integer' AND active <= 9223372036854775807
                     ORDER BY active DESC LIMIT 1),
                    (SELECT max(id) FROM events),
                    EXISTS (SELECT 1 FROM sessions WHERE active IS NULL)
                      OR EXISTS (SELECT 1 FROM sessions WHERE active > 9223372036854775807),
                    (SELECT max(active) FROM sessions WHERE active <= 9223372036854775807),
                    EXISTS (SELECT 1 FROM sessions WHERE tallied_seq IS NOT counted_seq)",
        )?
        .query_row([], |row| {
            Ok(Progress {
                counted: row.get(0)?,
                last: row.get(1)?,
                has_unclocked: row.get(2)?,
                newest: number(row, 3)?,
                has_stale: row.get(4)?,
            })
        })
}

/// Returns the tick after this one.
pub(super) fn after(newest: Option<i64>) -> i64 {
    newest.map_or(1, |newest| newest.saturating_add(1))
}

/// Returns whether every session is counted to its last event and stands on the clock.
pub(super) fn are_current(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(progress(connection)?.is_complete())
}

/// Returns the next tick of the clock.
pub(super) fn next_tick(connection: &Connection) -> rusqlite::Result<i64> {
    Ok(after(progress(connection)?.newest))
}

/// Counts what others have appended, in the order in which they were active.
pub(super) fn recount(connection: &Connection, codec: &mut Codec) -> rusqlite::Result<Vec<Recounted>> {
    // Sessions with uncounted events, and those that the original program created.
    let counted = progress(connection)?.counted.unwrap_or(0);
    let mut behind = connection.prepare(
        "SELECT session_id, max(id) AS last FROM events WHERE id > ?1 GROUP BY session_id
         UNION ALL
         SELECT id, NULL FROM sessions
           WHERE (active IS NULL OR active > 9223372036854775807)
             AND id NOT IN (SELECT session_id FROM events WHERE id > ?1)
         ORDER BY last, session_id",
    )?;
    let behind = behind.query_map([counted], session_and_last)?.collect::<rusqlite::Result<Vec<_>>>()?;
    if !behind.is_empty() {
        tracing::debug!(sessions = behind.len(), "counts the events that another program has appended");
    }
    behind
        .into_iter()
        .map(|(session, last_event)| {
            let mut tally = state(connection, session)?.map(|state| state.tally).unwrap_or_default();
            count_rest(connection, codec, session, &mut tally, Seq::END)?;
            let totals = if last_event.is_some() { Totals::of(connection, codec, session)? } else { None };
            Ok(Recounted { session, tally, last_event, totals })
        })
        .collect()
}

/// Reads a session's number and the id of its last event. Events whose session is no number belong to number 0, which no
/// session has.
fn session_and_last(row: &Row<'_>) -> rusqlite::Result<(i64, Option<i64>)> {
    Ok((row.get_ref(0)?.as_i64().unwrap_or(0), row.get(1)?))
}

/// Counts every session from its beginning, in a file that has no place for counts.
pub(super) fn recount_all(connection: &Connection, codec: &mut Codec) -> rusqlite::Result<Vec<Recounted>> {
    let mut active = connection
        .prepare("SELECT session_id, max(id) AS last FROM events GROUP BY session_id ORDER BY last")?;
    let active = active.query_map([], session_and_last)?.collect::<rusqlite::Result<Vec<_>>>()?;
    active
        .into_iter()
        .map(|(session, last_event)| {
            let mut tally = Tally::default();
            count_rest(connection, codec, session, &mut tally, Seq::END)?;
            forget_before_compaction(connection, session, &mut tally)?;
            let totals = Totals::of(connection, codec, session)?;
            Ok(Recounted { session, tally, last_event, totals })
        })
        .collect()
}

/// Counts the sessions again that an older azureal has counted. Their order in the list stays.
pub(super) fn recount_stale(connection: &Connection, codec: &mut Codec) -> rusqlite::Result<Vec<Recounted>> {
    let mut stale =
        connection.prepare_cached("SELECT id FROM sessions WHERE tallied_seq IS NOT counted_seq")?;
    let stale = stale.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
    stale
        .into_iter()
        .map(|session| {
            let mut tally = Tally::default();
            count_rest(connection, codec, session, &mut tally, Seq::END)?;
            forget_before_compaction(connection, session, &mut tally)?;
            Ok(Recounted { session, tally, last_event: None, totals: None })
        })
        .collect()
}

/// Removes the provider's count of the last request, if the session was compacted: the log does not show whether that
/// was before or after the request.
pub(super) fn forget_before_compaction(
    connection: &Connection,
    session: i64,
    tally: &mut Tally,
) -> rusqlite::Result<()> {
    let is_compacted =
        connection.prepare_cached("SELECT 1 FROM compactions WHERE session_id = ?1")?.exists([session])?;
    if is_compacted {
        tally.counts.context_tokens = None;
    }
    Ok(())
}

/// Measures the part that each summary of an older azureal covers, which did not record it.
pub(super) fn measure_summaries(connection: &Connection, codec: &mut Codec) -> rusqlite::Result<()> {
    let sql = format!(
        "SELECT id, session_id, after_seq FROM compactions WHERE typeof(session_id) = 'integer' AND {}",
        schema::IS_USABLE
    );
    let mut summaries = connection.prepare(&sql)?;
    let summaries = summaries
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<Vec<(i64, i64, i64)>>>()?;
    for (id, session, after_seq) in summaries {
        let covered = rendered_through(connection, codec, session, events::seq(after_seq))?;
        connection.execute(
            "UPDATE compactions SET covers = ?2, covered_details = ?3 WHERE id = ?1",
            (id, covered.plain.cast_signed(), covered.details),
        )?;
    }
    Ok(())
}

/// The rendered length of the part of a session that a summary covers, in characters.
pub(super) struct Covered {
    /// Without details.
    pub(super) plain: u64,
    /// What details add.
    pub(super) details: i64,
}

impl Covered {
    /// Returns the length with details.
    pub(super) fn rendered(&self) -> u64 {
        self.plain.saturating_add_signed(self.details)
    }
}

/// Returns the rendered length of a session up to a place, in characters: all that was counted, less what comes
/// after.
pub(super) fn rendered_through(
    connection: &Connection,
    codec: &mut Codec,
    session: i64,
    seq: Seq,
) -> rusqlite::Result<Covered> {
    let mut all = state(connection, session)?.map(|state| state.tally).unwrap_or_default();
    count_rest(connection, codec, session, &mut all, Seq::END)?;
    let mut after = Tally { through: seq, ..Tally::default() };
    count_rest(connection, codec, session, &mut after, Seq::END)?;
    Ok(Covered {
        plain: all.plain_chars().saturating_sub(after.plain_chars()),
        details: all.detail_chars.saturating_sub(after.detail_chars),
    })
}

/// Counts what others have appended and stores it. Part of every transaction that appends. Returns where the
/// newest session stands on the clock.
pub(super) fn catch_up(connection: &Connection, codec: &mut Codec) -> rusqlite::Result<Option<i64>> {
    let Progress { newest, .. } = match progress(connection)? {
        progress if progress.is_complete() => return Ok(progress.newest),
        progress => progress,
    };
    for Recounted { session, tally, last_event, .. } in recount_stale(connection, codec)? {
        write(connection, session, &tally, last_event)?;
    }
    let mut newest = newest;
    for Recounted { session, tally, last_event, totals } in recount(connection, codec)? {
        let tick = after(newest);
        write(connection, session, &tally, last_event)?;
        set_tick(connection, session, tick)?;
        if last_event.is_some() {
            // Without a time it was never counted, and may be as old as its file.
            connection
                .prepare_cached("UPDATE sessions SET last_active = ?2 WHERE id = ?1 AND last_active <> ''")?
                .execute(params![session, now()])?;
        }
        if let Some(totals) = totals {
            totals.write(connection, session)?;
        }
        newest = Some(tick);
    }
    sessions::fill_last_active(connection)?;
    Ok(newest)
}

/// Counts the events of a session from where `tally` ends, at most up to `until`.
pub(super) fn count_rest(
    connection: &Connection,
    codec: &mut Codec,
    session: i64,
    tally: &mut Tally,
    until: Seq,
) -> rusqlite::Result<()> {
    let mut rest = connection.prepare_cached(&format!(
        "SELECT seq, {}, char_len FROM events WHERE session_id = ?1 AND seq > ?2 AND seq <= ?3
           AND seq < 9223372036854775807 ORDER BY seq",
        events::DATA
    ))?;
    let mut rows = rest.query(params![session, events::integer(tally.through), events::integer(until)])?;
    while let Some(row) = rows.next()? {
        let seq = events::place(row.get_ref(0)?, f64::ceil);
        let json = codec.unpack(row.get_ref(1)?).ok();
        let corrected = match &json {
            Some(json) => original_prompts::corrected(json, row.get_ref(2)?),
            None => None,
        };
        let event = corrected.or_else(|| Event::from_json(json.as_ref()?).ok());
        tally.add(seq, event.as_ref());
    }
    Ok(())
}

/// The state of a session's events, from its row.
pub(super) struct State {
    pub(super) tally: Tally,
    /// Its value of the clock.
    pub(super) active: Option<i64>,
}

/// Reads the counts; `None` if there is no such session.
pub(super) fn state(connection: &Connection, session: i64) -> rusqlite::Result<Option<State>> {
    let select = |details: &str| {
        connection.prepare_cached(&format!(
            "SELECT counted_seq, open_message, event_count, message_count, preview, agent, model, told, model_tokens,
                    active, last_prompt, answered, requested_model, tallied_seq, {details}
             FROM sessions WHERE id = ?1"
        ))
    };
    // A file that is only read may lack these columns, and then has no details.
    select("details, detailed_seq")
        .or_else(|_| select("0, counted_seq"))?
        .query_row([session], |row| {
            let mut cells = Cells::of(row);
            let (counted, tallied) = (cells.integer(0), cells.integer(13));
            let (details, detailed) = (cells.integer(14).unwrap_or(0), cells.integer(15));
            let tally = Tally {
                through: events::seq(counted.unwrap_or(0)),
                open: cells.text(1).as_deref().map(Open::named).unwrap_or_default(),
                detail_chars: details,
                counts: Counts {
                    events: cells.count(2),
                    messages: cells.count(3),
                    preview: cells.text(4),
                    agent: cells.text(5),
                    model: cells.text(6),
                    rendered_chars: cells.count(7).saturating_add_signed(details),
                    context_tokens: cells.integer(8).map(|tokens| unsigned(Some(tokens))),
                    last_prompt: cells.text(10),
                    answered: cells.integer(11).is_some_and(|answered| answered != 0),
                    requested_model: cells.text(12),
                },
            };
            let is_damaged = !cells.damaged.is_empty();
            let active = cells.integer(9);
            // What was counted by an older azureal, or cannot be read, is counted again from the beginning.
            let is_current = counted == tallied && has_details(counted, detailed);
            let tally = if is_current && !is_damaged { tally } else { Tally::default() };
            Ok(State { tally, active })
        })
        .optional()
        .or_else(|error| match is_too_large(&error) {
            true => Ok(Some(State { tally: Tally::default(), active: None })),
            false => Err(error),
        })
}

/// Reads the counts of a session that is about to change, and counts again what its row does not say.
pub(super) fn current(
    connection: &Connection,
    codec: &mut Codec,
    session: i64,
) -> rusqlite::Result<Option<State>> {
    let mut state = state(connection, session)?;
    if let Some(State { tally, .. }) = &mut state
        && tally.through == Seq::START
    {
        count_rest(connection, codec, session, tally, Seq::END)?;
        forget_before_compaction(connection, session, tally)?;
    }
    Ok(state)
}

/// Returns whether the size of details is known, from `counted_seq` and `detailed_seq`.
pub(super) fn has_details(counted: Option<i64>, detailed: Option<i64>) -> bool {
    match (counted, detailed) {
        (None, _) => true,
        (Some(counted), Some(detailed)) => detailed <= counted,
        (Some(counted), None) => counted == 0,
    }
}

/// Stores the counts of a session.
pub(super) fn write(
    connection: &Connection,
    session: i64,
    tally: &Tally,
    last_event: Option<i64>,
) -> rusqlite::Result<()> {
    let Tally { through, open, counts, detail_chars } = tally;
    connection
        .prepare_cached(
            "UPDATE sessions SET counted_seq = ?2, tallied_seq = ?2, open_message = ?3, event_count = ?4, message_count = ?5,
                    preview = ?6, agent = ?7, model = ?8, told = ?9, model_tokens = ?10,
                    last_event = ifnull(?11, last_event), last_prompt = ?12, answered = ?13, requested_model = ?14,
                    details = ?15, detailed_seq = ?2
             WHERE id = ?1",
        )?
        .execute(params![
            session,
            events::integer(*through),
            open.as_str(),
            counts.events.cast_signed(),
            counts.messages.cast_signed(),
            counts.preview,
            counts.agent,
            counts.model,
            tally.plain_chars().cast_signed(),
            counts.context_tokens.map(u64::cast_signed),
            last_event,
            counts.last_prompt,
            counts.answered,
            counts.requested_model,
            detail_chars,
        ])?;
    Ok(())
}

/// Puts a session at a tick of the clock.
pub(super) fn set_tick(connection: &Connection, session: i64, tick: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE sessions SET active = ?2 WHERE id = ?1")?
        .execute([session, tick])
        .map(drop)
}

/// Sets the time of a session's last activity, if it is another than before.
pub(super) fn set_last_active(connection: &Connection, session: i64, time: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE sessions SET last_active = ?2 WHERE id = ?1 AND last_active IS NOT ?2")?
        .execute(params![session, time])
        .map(drop)
}
