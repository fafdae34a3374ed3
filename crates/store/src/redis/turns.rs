//! A turn on its way to the server: what the script must know of it, and its events, which follow the script.

use std::borrow::Cow;

use azureal_core::{NewTurn, PROMPT_KINDS, SessionId, Tokens};

use uuid::Uuid;

use super::countable;
use super::keys::Keys;
use super::scripts::Call;
use crate::server::{FoldCase, FoldCases, number_of, stored_cost};
use crate::timestamp::{happened_at_or_now, seconds};

/// Adds what a turn does to its session to a call, in the order in which `turn.lua` takes it.
pub(super) fn with_turn(call: Call, turn: &NewTurn, texts: &[Cow<'_, str>]) -> Call {
    let mut call = call.with(turn.events.len());
    if !turn.events.is_empty() {
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        call = call.with(longest).with(places_of_prompts(turn));
        let FoldCases { cases, alone, details, model } = FoldCases::of(turn);
        for FoldCase { added, opens, preview } in cases {
            let (sign, preview) = preview.map_or(("", String::new()), |preview| ("+", preview));
            call = call.with(format!("{added} {} {sign}{preview}", number_of(opens)));
        }
        let totals = turn.totals();
        call = call
            .with(totals.completed.map_or("", |completed| if completed { "1" } else { "0" }))
            .with(countable(totals.duration_ms))
            .with(format!("{:?}", stored_cost(totals.cost_usd)))
            .with(countable(alone.rendered_chars.saturating_add_signed(details.saturating_neg())))
            .with(details)
            .with(alone.context_tokens.map_or_else(String::new, |tokens| countable(tokens).to_string()))
            .with_optional(alone.agent)
            .with_optional(model.first_agent);
        call = match model.of_same {
            Some(set) => call.with_optional(set),
            None => call.with("="),
        };
        let last_active = happened_at_or_now(turn);
        call = call
            .with_optional(model.of_other)
            .with_optional(alone.requested_model)
            .with_optional(alone.last_prompt)
            .with_optional(Some(&last_active))
            .with(seconds(&last_active))
            .with_optional(alone.answered.then_some(1));
    }
    call = with_tokens(call, turn.tokens).with_optional(turn.used_in.as_deref());
    match &turn.mark {
        Some(mark) => call.with_optional(Some(&mark.name)).with(mark.note.as_str()),
        None => call.with_optional(None::<&str>),
    }
}

/// Adds tokens to a call, in the order in which every script takes them.
pub(super) fn with_tokens(call: Call, tokens: Tokens) -> Call {
    let Tokens { input, output, cache_read, cache_write } = tokens;
    [input, output, cache_read, cache_write].into_iter().fold(call, |call, count| call.with(countable(count)))
}

/// Returns which events of a turn can hold a prompt, counted from 1.
fn places_of_prompts(turn: &NewTurn) -> String {
    let events = turn.events.iter().zip(1_u64..);
    let prompts = events.filter(|(new, _)| PROMPT_KINDS.contains(&new.event().kind()));
    prompts.map(|(_, place)| format!("{place} ")).collect()
}

/// Adds the events of a turn to a call that lets the turn in: they go to the stream that it lays aside, and if it lays
/// none there, nowhere.
pub(super) fn with_events(
    mut call: Call,
    keys: &Keys,
    operation: Uuid,
    id: SessionId,
    turn: &NewTurn,
    texts: &[Cow<'_, str>],
) -> Call {
    if turn.events.is_empty() {
        return call;
    }
    let aside = keys.aside(operation);
    for (new, text) in turn.events.iter().zip(texts) {
        let mut add = redis::cmd("XADD");
        add.arg(&aside).arg(&["NOMKSTREAM", "*"]).arg("kind").arg(new.event().kind()).arg("json").arg(text);
        for (name, fact) in [("entry", new.entry()), ("removed_at", new.removed_at())] {
            if let Some(fact) = fact {
                add.arg(name).arg(fact);
            }
        }
        call = call.followed_by(add, text.len());
    }
    let mut put_back = redis::cmd("RENAME");
    put_back.arg(&aside).arg(keys.events(id));
    call.followed_by(put_back, 0)
}
