//! The parts of a call: turns, sessions, pages.

use std::borrow::Cow;

use azureal_core::{
    Compaction, ListOrder, ListQuery, NameFilter, NewEvent, NewSession, NewTurn, Page, StoreError, Tokens,
    TurnTotals, Uuid,
};
use tokio_postgres::types::Type;

use super::connection::Call;
use super::rows;
use super::text::escaped;
use crate::server::{FoldCases, check_turn_size, number_of, stored_cost};
use crate::timestamp::{given_or_now, happened_at_or_now, last_active_or_now, now};

/// Returns the statement that reads a page: one row of NULLs if the session has no such events, and no row if there
/// is no such session. The length of a text is known without reading it, so events that do not fit on the page cost
/// nothing.
pub(super) fn page_sql(page: Page) -> &'static str {
    match page {
        Page::After(..) => {
            "SELECT page.seq, page.kind, page.json, page.entry, page.removed_at FROM @schema@.sessions LEFT JOIN LATERAL (
               SELECT * FROM (
                 SELECT seq, kind, json, entry, removed_at, sum(octet_length(json)) OVER (ORDER BY seq) - octet_length(json) AS before
                 FROM @schema@.events WHERE project = $1 AND session = $2 AND seq > $3 ORDER BY seq LIMIT $4
               ) AS sized WHERE before <= $5
             ) AS page ON true WHERE sessions.project = $1 AND sessions.session = $2 ORDER BY page.seq"
        }
        Page::Before(..) => {
            "SELECT page.seq, page.kind, page.json, page.entry, page.removed_at FROM @schema@.sessions LEFT JOIN LATERAL (
               SELECT * FROM (
                 SELECT seq, kind, json, entry, removed_at, sum(octet_length(json)) OVER (ORDER BY seq DESC) - octet_length(json) AS before
                 FROM @schema@.events WHERE project = $1 AND session = $2 AND seq < $3 ORDER BY seq DESC LIMIT $4
               ) AS sized WHERE before <= $5
             ) AS page ON true WHERE sessions.project = $1 AND sessions.session = $2 ORDER BY page.seq"
        }
    }
}

/// The statement that reads the events up to a place that can hold a prompt, the newest first, in the way of
/// [`page_sql`].
pub(super) const PROMPTS: &str =
    "SELECT page.seq, page.kind, page.json, page.entry, page.removed_at FROM @schema@.sessions LEFT JOIN LATERAL (
   SELECT * FROM (
     SELECT seq, kind, json, entry, removed_at, sum(octet_length(json)) OVER (ORDER BY seq DESC) - octet_length(json) AS before
     FROM @schema@.events
     WHERE project = $1 AND session = $2 AND seq <= $3 AND kind IN ('UserMessage', 'Message')
     ORDER BY seq DESC LIMIT $4
   ) AS sized WHERE before <= $5
 ) AS page ON true WHERE sessions.project = $1 AND sessions.session = $2 ORDER BY page.seq DESC";

/// The statement that reads the events after a place that say what turns used, in the way of [`page_sql`].
pub(super) const USAGE: &str =
    "SELECT page.seq, page.kind, page.json, page.entry, page.removed_at FROM @schema@.sessions LEFT JOIN LATERAL (
   SELECT * FROM (
     SELECT seq, kind, json, entry, removed_at, sum(octet_length(json)) OVER (ORDER BY seq) - octet_length(json) AS before
     FROM @schema@.events
     WHERE project = $1 AND session = $2 AND seq > $3 AND kind IN ('Complete', 'Init', 'ModelSwitch')
     ORDER BY seq LIMIT $4
   ) AS sized WHERE before <= $5
 ) AS page ON true WHERE sessions.project = $1 AND sessions.session = $2 ORDER BY page.seq";

/// Returns the statement that lists sessions. [`with_filters`] adds its values.
pub(super) fn list_sql(query: &ListQuery) -> String {
    let mut filters = String::new();
    // What `WorktreeFilter::matches` and `NameFilter::matches` say, where the limit can stop the search.
    if query.worktree.is_some() {
        filters += " AND (worktree = ANY ($3)
          OR (worktree LIKE '/%' AND regexp_replace(rtrim(worktree, '/'), '^.*/', '') = $4))";
    }
    // The numbers of its values follow those of the worktree.
    let [first, second, third] = if query.worktree.is_some() { [5, 6, 7] } else { [3, 4, 5] };
    match &query.name {
        Some(NameFilter::Exact(_)) => {
            filters += &format!(" AND md5(name) = md5(${first}) AND name = ${first}");
        }
        Some(NameFilter::Prefix(_)) => {
            filters += &format!(
                " AND {NAME_BEGINNING} >= ${second} AND (${third} IS NULL OR {NAME_BEGINNING} < ${third})
                  AND left(name, length(${first})) = ${first} AND name <> 'S' || session"
            );
        }
        None => {}
    }
    let order = match query.order {
        ListOrder::Activity => "last_active COLLATE \"C\" DESC, active DESC",
        ListOrder::Changes => "active DESC",
    };
    let columns = rows::SESSION;
    format!("SELECT {columns} FROM @schema@.sessions WHERE project = $1{filters} ORDER BY {order} LIMIT $2")
}

/// The beginning of a name as the index `sessions_by_prefix` has it: a name may be longer than an index can hold.
const NAME_BEGINNING: &str = "(left(name, 100) COLLATE \"C\")";
/// The number of characters in it.
const BEGINNING_CHARS: usize = 100;

/// Adds the values of [`list_sql`] to its call.
pub(super) fn with_filters(call: Call, query: &ListQuery) -> Call {
    let text = |text: &str| escaped(text).into_owned();
    let mut call = call.with(Type::INT8, query.limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX)));
    if let Some(worktree) = &query.worktree {
        let names: Vec<String> = worktree.names.iter().map(|name| text(name)).collect();
        call = call.with(Type::TEXT_ARRAY, names).with(Type::TEXT, text(&worktree.last_part));
    }
    match &query.name {
        Some(NameFilter::Exact(name)) => call.with(Type::TEXT, text(name)),
        Some(NameFilter::Prefix(prefix)) => {
            let prefix = text(prefix);
            let begin: String = prefix.chars().take(BEGINNING_CHARS).collect();
            let end = NameFilter::end_of_prefix(&begin);
            call.with(Type::TEXT, prefix).with(Type::TEXT, begin).with(Type::TEXT, end)
        }
        None => call,
    }
}

/// Returns the texts of a turn's events, each written once; refuses what could not be stored, or not be sent.
pub(super) fn texts_of(turn: &NewTurn, place: &str) -> Result<Vec<String>, StoreError> {
    let texts: Vec<String> = turn.texts()?.into_iter().map(Cow::into_owned).collect();
    let bytes: usize = texts.iter().map(String::len).sum();
    check_turn_size(bytes, place).map(|()| texts)
}

/// The argument for the time of a session's last activity.
pub(super) const LAST_ACTIVE: &str = "in_last_active";

/// Adds the parts of a turn to a call.
pub(super) fn with_turn(call: Call, turn: &NewTurn, texts: Vec<String>) -> Call {
    // Older versions, which know of no details, do not use tables of this version. So all of the size is one number.
    let FoldCases { cases, alone, details: _, model } = FoldCases::of(turn);
    let text = |text: String| escaped(&text).into_owned();
    let call = call.sending(texts.iter().map(String::len).sum());
    let added: Vec<i64> = cases.iter().map(|case| rows::signed(case.added)).collect();
    let opens: Vec<i16> = cases.iter().map(|case| i16::from(number_of(case.opens))).collect();
    let previews: Vec<Option<String>> = cases.into_iter().map(|case| case.preview.map(text)).collect();
    // Without events the turn has no cost.
    let totals = if turn.events.is_empty() { TurnTotals::default() } else { turn.totals() };
    let kinds: Vec<String> = turn.events.iter().map(|new| escaped(new.event().kind()).into_owned()).collect();
    let (mark, note) = match &turn.mark {
        Some(mark) => (Some(escaped(&mark.name).into_owned()), escaped(&mark.note).into_owned()),
        None => (None, String::new()),
    };
    let call = call
        .named("in_kinds", Type::TEXT_ARRAY, kinds)
        .named("in_events", Type::TEXT_ARRAY, texts)
        .named("in_added", Type::INT8_ARRAY, added)
        .named("in_opens", Type::INT2_ARRAY, opens)
        .named("in_previews", Type::TEXT_ARRAY, previews)
        .named("in_entries", Type::TEXT_ARRAY, beside(turn, NewEvent::entry))
        .named("in_removed", Type::TEXT_ARRAY, beside(turn, NewEvent::removed_at))
        .named("in_agent", Type::TEXT, alone.agent.map(text))
        .named("in_first_agent", Type::TEXT, model.first_agent.map(text))
        .named("in_keeps_model", Type::BOOL, model.of_same.is_none())
        .named("in_model", Type::TEXT, model.of_same.flatten().map(text))
        .named("in_other_model", Type::TEXT, model.of_other.map(text))
        .named("in_requested_model", Type::TEXT, alone.requested_model.map(text))
        .named("in_last_prompt", Type::TEXT, alone.last_prompt.map(text))
        .named("in_answered", Type::BOOL, alone.answered)
        .named(LAST_ACTIVE, Type::TEXT, happened_at_or_now(turn))
        .named("in_told", Type::INT8, rows::signed(alone.rendered_chars))
        .named("in_context_tokens", Type::INT8, alone.context_tokens.map(rows::signed))
        .named("in_completed", Type::BOOL, totals.completed)
        .named("in_duration_ms", Type::INT8, rows::signed(totals.duration_ms))
        .named("in_cost_usd", Type::FLOAT8, stored_cost(totals.cost_usd));
    with_tokens(call, turn.tokens)
        .named("in_used_in", Type::TEXT, turn.used_in.as_deref().map(|used_in| escaped(used_in).into_owned()))
        .named("in_mark", Type::TEXT, mark)
        .named("in_note", Type::TEXT, note)
}

/// Returns a fact beside each event; `None` if no event has one.
fn beside(turn: &NewTurn, fact: impl Fn(&NewEvent) -> Option<&str>) -> Option<Vec<Option<String>>> {
    let facts: Vec<Option<String>> =
        turn.events.iter().map(|new| fact(new).map(|text| escaped(text).into_owned())).collect();
    facts.iter().any(Option::is_some).then_some(facts)
}

/// Adds tokens to a call.
pub(super) fn with_tokens(call: Call, tokens: Tokens) -> Call {
    call.named("in_tokens_in", Type::INT8, rows::signed(tokens.input))
        .named("in_tokens_out", Type::INT8, rows::signed(tokens.output))
        .named("in_cache_read", Type::INT8, rows::signed(tokens.cache_read))
        .named("in_cache_write", Type::INT8, rows::signed(tokens.cache_write))
}

/// Adds what a session is created with to a call. `last_active` is the argument for the time of its creation.
pub(super) fn with_session(call: Call, new: &NewSession, last_active: &'static str) -> Call {
    call.named("in_name", Type::TEXT, new.name.as_deref().map(|name| escaped(name).into_owned()))
        .named("in_worktree", Type::TEXT, escaped(&new.worktree).into_owned())
        .named("in_created_at", Type::TEXT, new.created_at.clone().unwrap_or_else(now))
        .named("in_uuid", Type::UUID, new.uuid.unwrap_or_else(Uuid::new_v4))
        .named("in_forked_from", Type::UUID, new.forked_from)
        .named(last_active, Type::TEXT, last_active_or_now(new))
        .named("in_named_at", Type::TEXT, new.named_at.clone())
}

/// Adds the properties of a fork to a call. It has a new identity; the database adds the one of its origin.
pub(super) fn with_fork(call: Call, new: &NewSession) -> Call {
    call.named("in_name", Type::TEXT, new.name.as_deref().map(|name| escaped(name).into_owned()))
        .named("in_worktree", Type::TEXT, escaped(&new.worktree).into_owned())
        .named("in_created_at", Type::TEXT, new.created_at.clone().unwrap_or_else(now))
        .named("in_uuid", Type::UUID, Uuid::new_v4())
        .named("in_named_at", Type::TEXT, new.named_at.clone())
        .named(LAST_ACTIVE, Type::TEXT, now())
}

/// Adds summaries to a call, each column as an array.
pub(super) fn with_compactions(call: Call, turn: &NewTurn, compactions: &[Compaction]) -> Call {
    let places: Vec<i64> = compactions.iter().map(|one| rows::integer(one.after_seq)).collect();
    let summaries: Vec<String> = compactions.iter().map(|one| escaped(&one.summary).into_owned()).collect();
    let times: Vec<String> = compactions.iter().map(|one| given_or_now(&one.created_at)).collect();
    let covers: Vec<i64> = compactions
        .iter()
        .map(|one| rows::signed(turn.count_through(one.after_seq).counts.rendered_chars))
        .collect();
    let writers: Vec<Option<String>> = compactions.iter().map(writer_of).collect();
    let measured: Vec<Option<i64>> =
        compactions.iter().map(|one| one.opening_chars.map(rows::signed)).collect();
    let openings: Vec<i64> = compactions.iter().map(|one| rows::signed(one.opening())).collect();
    call.named("in_after_seqs", Type::INT8_ARRAY, places)
        .named("in_summaries", Type::TEXT_ARRAY, summaries)
        .named("in_compacted_at", Type::TEXT_ARRAY, times)
        .named("in_covers", Type::INT8_ARRAY, covers)
        .named("in_writers", Type::TEXT_ARRAY, writers)
        .named("in_opening_chars", Type::INT8_ARRAY, measured)
        .named("in_openings", Type::INT8_ARRAY, openings)
}

/// Adds one summary to a call.
pub(super) fn with_compaction(call: Call, compaction: &Compaction, covers: u64) -> Call {
    call.named("in_after_seq", Type::INT8, rows::integer(compaction.after_seq))
        .named("in_summary", Type::TEXT, escaped(&compaction.summary).into_owned())
        .named("in_created_at", Type::TEXT, given_or_now(&compaction.created_at))
        .named("in_covers", Type::INT8, rows::signed(covers))
        .named("in_writer", Type::TEXT, writer_of(compaction))
        .named("in_opening_chars", Type::INT8, compaction.opening_chars.map(rows::signed))
        .named("in_opening", Type::INT8, rows::signed(compaction.opening()))
}

fn writer_of(compaction: &Compaction) -> Option<String> {
    compaction.writer.as_deref().map(|writer| escaped(writer).into_owned())
}

#[cfg(test)]
mod tests {
    use azureal_core::PROMPT_KINDS;

    #[test]
    fn the_kinds_of_prompts_are_those_of_the_index() {
        let kinds = PROMPT_KINDS.map(|kind| format!("'{kind}'")).join(", ");
        let condition = format!("kind IN ({kinds})");
        assert!(super::PROMPTS.contains(&condition));
        assert!(include_str!("schema/0001.sql").contains(&condition));
        let kinds = azureal_core::USAGE_KINDS.map(|kind| format!("'{kind}'")).join(", ");
        assert!(super::USAGE.contains(&format!("kind IN ({kinds})")));
    }
}
