//! Parses replies of the server into values of a store.
//!
//! Our scripts wrote the values. If another program changed them, that is an error or a damaged event, and no panic.

use std::vec::IntoIter;

use azureal_core::{
    Compaction, Damage, Seq, SessionId, SessionRecord, StoredEvent, Tokens, Tombstone, normal_timestamp,
};
use redis::Value;

use super::error::Fault;

/// The prefix of an event's place, before its number (`keys.lua` has the reason).
const NEVER: &str = "9999999999999999-";

/// Returns the place of an event in the stream of its session.
pub(super) fn place(seq: Seq) -> String {
    format!("{NEVER}{}", seq.0)
}

/// The fields of a session, in the order in which [`session`] reads them.
pub(super) const SESSION: [&str; 30] = [
    "name",
    "worktree",
    "created_at",
    "completed",
    "duration_ms",
    "cost_usd",
    "tokens_in",
    "tokens_out",
    "cache_read",
    "cache_write",
    "last_seq",
    "messages",
    "preview",
    "agent",
    "model",
    "told",
    "covered",
    "context_tokens",
    "last_prompt",
    "answered",
    "requested_model",
    "uuid",
    "forked_from",
    "last_active",
    "opening",
    "changes",
    "generation",
    "details",
    "covered_details",
    "named_at",
];

/// The answer of a script: how it went, and values.
pub(super) struct Answer {
    pub(super) outcome: String,
    values: IntoIter<Value>,
}

impl Answer {
    pub(super) fn of(answer: Value) -> Result<Self, Fault> {
        let mut values = list(answer)?.into_iter();
        let outcome = values.next().ok_or_else(|| missing("an answer"))?;
        Ok(Self { outcome: text(outcome)?, values })
    }

    pub(super) fn next(&mut self) -> Result<Value, Fault> {
        self.values.next().ok_or_else(|| missing("a value"))
    }

    pub(super) fn next_text(&mut self) -> Result<String, Fault> {
        text(self.next()?)
    }

    pub(super) fn next_seq(&mut self) -> Result<Seq, Fault> {
        Ok(Seq(number(&self.next_text()?)?))
    }

    pub(super) fn next_session(&mut self) -> Result<SessionId, Fault> {
        session_id(&self.next_text()?)
    }

    /// Returns the values that are left.
    pub(super) fn rest(self) -> IntoIter<Value> {
        self.values
    }
}

/// Reads a session from the values of [`SESSION`]; `None` if there is none.
pub(super) fn session(id: SessionId, values: Value) -> Result<Option<SessionRecord>, Fault> {
    let mut values = list(values)?.into_iter().map(optional_text);
    let mut next = move || values.next().unwrap_or(Ok(None));
    let Some(name) = next()? else { return Ok(None) };
    let mut record = SessionRecord {
        name,
        worktree: next()?.unwrap_or_default(),
        created_at: normal_timestamp(&next()?.unwrap_or_default()),
        completed: match next()?.as_deref() {
            Some("1") => Some(true),
            Some("0") => Some(false),
            Some(_) | None => None,
        },
        ..SessionRecord::new(id)
    };
    let mut next_number = || next()?.map_or(Ok(0), |text| number(&text));
    record.duration_ms = next_number()?;
    let cost = next()?;
    record.cost_usd = cost.map_or(Some(0.0), |cost| cost.parse().ok()).ok_or_else(|| missing("a cost"))?;
    let mut next_number = || next()?.map_or(Ok(0), |text| number(&text));
    record.tokens = Tokens {
        input: next_number()?,
        output: next_number()?,
        cache_read: next_number()?,
        cache_write: next_number()?,
    };
    (record.counts.events, record.counts.messages) = (next_number()?, next_number()?);
    (record.counts.preview, record.counts.agent, record.counts.model) = (next()?, next()?, next()?);
    let mut next_number = || next()?.map_or(Ok(0), |text| number(&text));
    (record.counts.rendered_chars, record.covered) = (next_number()?, next_number()?);
    let tokens = next()?.filter(|tokens| !tokens.is_empty());
    record.counts.context_tokens = tokens.map(|tokens| number(&tokens)).transpose()?;
    (record.counts.last_prompt, record.counts.answered) = (next()?, next()?.is_some());
    record.counts.requested_model = next()?;
    let uuid =
        |text: Option<String>| text.map(|text| text.parse().map_err(|_| missing("an identity"))).transpose();
    (record.uuid, record.forked_from) = (uuid(next()?)?, uuid(next()?)?);
    record.last_active = normal_timestamp(&next()?.unwrap_or_default());
    let mut next_number = || next()?.map_or(Ok(0), |text| number(&text));
    record.opening = next_number()?;
    record.revision = next_number()?.saturating_add(record.counts.events);
    // The details are those of this generation, and of what the newest summary covers, unless an older client has changed
    // that since.
    let generation = next_number()?;
    record.generation = generation;
    let (counted, covered) =
        (details(next()?.as_deref(), generation), details(next()?.as_deref(), record.covered));
    record.counts.rendered_chars = record.counts.rendered_chars.saturating_add_signed(counted);
    record.covered = record.covered.saturating_add_signed(covered);
    record.named_at = normal_timestamp(&next()?.unwrap_or_default());
    Ok(Some(record))
}

/// Reads what details add to a size: a number behind the one that it belongs to. 0 if it belongs to another.
fn details(value: Option<&str>, belongs_to: u64) -> i64 {
    let parsed = value.and_then(|value| {
        let (to, details) = value.split_once(' ')?;
        Some((to.parse::<u64>().ok()?, details.parse::<i64>().ok()?))
    });
    parsed.filter(|(to, _)| *to == belongs_to).map_or(0, |(_, details)| details)
}

/// Reads an event from an entry of a stream: its place, and fields with their values.
pub(super) fn event(entry: Value) -> Result<StoredEvent, Fault> {
    let mut entry = list(entry)?.into_iter();
    let (Some(place), Some(fields)) = (entry.next(), entry.next()) else { return Err(missing("an event")) };
    let place = text(place)?;
    let seq = Seq(number(place.strip_prefix(NEVER).unwrap_or_default())?);
    let mut fields = list(fields)?.into_iter();
    let mut event = StoredEvent::new(seq, "", Err(Damage("its text is missing".to_owned())));
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        match name {
            Value::BulkString(name) if name == b"kind" => event.kind = text(value)?,
            Value::BulkString(name) if name == b"json" => {
                event.json = text(value).map_err(|_| Damage("its text is not UTF-8".to_owned()));
            }
            Value::BulkString(name) if name == b"entry" => event.entry = Some(text(value)?),
            Value::BulkString(name) if name == b"removed_at" => event.removed_at = Some(text(value)?),
            _ => {}
        }
    }
    Ok(event)
}

/// Reads a tombstone from its entry (`tombstones.lua`).
pub(super) fn tombstone(entry: Value) -> Result<Tombstone, Fault> {
    let entry = text(entry)?;
    let mut parts = entry.split(' ');
    let mut next = || parts.next().ok_or_else(|| missing("a tombstone"));
    let uuid = next()?.parse().map_err(|_| missing("an identity"))?;
    let (deleted_at, events, revived_at) = (normal_timestamp(next()?), number(next()?)?, next()?);
    let revived_at = (revived_at != "-").then(|| normal_timestamp(revived_at));
    Ok(Tombstone { uuid, deleted_at, events, revived_at })
}

/// Reads summaries from fields with their values: a summary stands at its place, and what else is known of it at
/// `PLACE:…`.
pub(super) fn compactions(fields: Value) -> Result<Vec<Compaction>, Fault> {
    let mut compactions: Vec<Compaction> = Vec::new();
    let mut fields = list(fields)?.into_iter();
    while let (Some(field), Some(value)) = (fields.next(), fields.next()) {
        let (field, value) = (text(field)?, text(value)?);
        let (place, about) = field.split_once(':').map_or((field.as_str(), None), |(a, b)| (a, Some(b)));
        let after_seq = Seq(number(place)?);
        let known = compactions.iter().position(|one| one.after_seq == after_seq).unwrap_or_else(|| {
            compactions.push(Compaction::new(after_seq, ""));
            compactions.len() - 1
        });
        if let Some(compaction) = compactions.get_mut(known) {
            match about {
                None => compaction.summary = value,
                Some("at") => compaction.created_at = value,
                Some("writer") => compaction.writer = Some(value),
                Some("opening") => compaction.opening_chars = Some(number(&value)?),
                Some(_) => {}
            }
        }
    }
    compactions.sort_by_key(|compaction| compaction.after_seq);
    Ok(compactions)
}

pub(super) fn list(value: Value) -> Result<Vec<Value>, Fault> {
    match value {
        Value::Array(values) => Ok(values),
        Value::Nil => Ok(Vec::new()),
        _ => Err(missing("a list")),
    }
}

pub(super) fn texts(value: Value) -> Result<Vec<String>, Fault> {
    list(value)?.into_iter().map(text).collect()
}

pub(super) fn text(value: Value) -> Result<String, Fault> {
    optional_text(value)?.ok_or_else(|| missing("a text"))
}

pub(super) fn optional_text(value: Value) -> Result<Option<String>, Fault> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => {
            let text = String::from_utf8(bytes);
            text.map(Some).map_err(|_| Fault::Answer("a text in it is not UTF-8".to_owned()))
        }
        Value::SimpleString(text) => Ok(Some(text)),
        Value::Int(number) => Ok(Some(number.to_string())),
        _ => Err(missing("a text")),
    }
}

pub(super) fn number(text: &str) -> Result<u64, Fault> {
    text.parse().map_err(|_| Fault::Answer("there is something else where a number should be".to_owned()))
}

pub(super) fn session_id(text: &str) -> Result<SessionId, Fault> {
    let id = text.parse().ok().and_then(SessionId::new);
    id.ok_or_else(|| missing("the number of a session"))
}

fn missing(what: &str) -> Fault {
    Fault::Answer(format!("{what} is missing where it should be"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_scripts() {
        assert!(include_str!("scripts/keys.lua").contains(&format!("local never = '{NEVER}'\n")));
        assert_eq!(place(Seq(3)), "9999999999999999-3");
    }
}
