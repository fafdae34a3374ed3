//! What a turn does to the counts of its session, for every state that the session may be in.
//!
//! How many messages a turn adds depends on the message that is open at the end of the session, and its preview
//! on whether there is one yet. To ask first would be another round trip, and a conflict whenever somebody else
//! appends in between. There are four states, with and without a preview: so all eight outcomes are sent along,
//! and the database takes the one that holds.

use azureal_core::fold::Open;
use azureal_core::{Counts, Seq, Tally, Turn};

use super::text::escaped;

/// The eight outcomes, in the order of [`Open::ALL`] and in pairs: without a preview so far, and with one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    /// How many messages are added.
    pub(super) added: Vec<i64>,
    /// Which message is open afterwards.
    pub(super) opens: Vec<i16>,
    /// The preview, where this turn brings it.
    pub(super) previews: Vec<Option<String>>,
    /// The agent, if the turn names one.
    pub(super) agent: Option<String>,
    /// The model, if the turn names one.
    pub(super) model: Option<String>,
}

impl Outcomes {
    pub(super) fn of(turn: &Turn) -> Self {
        let mut outcomes = Self::default();
        for open in Open::ALL {
            for preview in [None, Some(String::new())] {
                let had_preview = preview.is_some();
                let counts = Counts { preview, ..Counts::default() };
                let mut tally = Tally { open, counts, ..Tally::default() };
                turn.count_into(&mut tally, Seq::START);
                let Counts { messages, preview, agent, model, .. } = tally.counts;
                outcomes.added.push(messages.cast_signed());
                outcomes.opens.push(number_of(tally.open));
                let preview = preview.filter(|_| !had_preview);
                outcomes.previews.push(preview.map(|preview| escaped(&preview).into_owned()));
                // These depend on no state.
                outcomes.agent = agent.map(|agent| escaped(&agent).into_owned());
                outcomes.model = model.map(|model| escaped(&model).into_owned());
            }
        }
        outcomes
    }
}

/// Returns the number that stands for an open message: its place in [`Open::ALL`], from 1.
pub(super) fn number_of(open: Open) -> i16 {
    match open {
        Open::Nothing => 1,
        Open::Prompt => 2,
        Open::Results => 3,
        Open::Assistant => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azureal_core::Event;
    use azureal_core::event::{ToolResult, UserMessage};

    /// Counts in two turns what [`Tally`] counts in one, by taking the outcome that holds.
    fn counted_by_outcomes(first: &[Event], second: &[Event]) -> (i64, i16, Option<String>) {
        let mut state = (0, number_of(Open::Nothing), None);
        for events in [first, second] {
            let outcomes = Outcomes::of(&Turn::verbatim(events.to_vec()));
            let place = Open::ALL.iter().position(|open| number_of(*open) == state.1).unwrap();
            let chosen = 2 * place + usize::from(state.2.is_some());
            state = (
                state.0 + outcomes.added[chosen],
                outcomes.opens[chosen],
                outcomes.previews[chosen].clone().or(state.2),
            );
        }
        state
    }

    #[test]
    fn the_outcome_that_holds_is_what_counting_on_gives() {
        let goes_on = |content: &str| {
            Event::UserMessage(UserMessage { content: content.to_owned(), starts: Some(false) })
        };
        let result = Event::ToolResult(ToolResult::default());
        let events = [
            Event::Compacting,
            result.clone(),
            goes_on("same"),
            Event::user("hello"),
            goes_on("more"),
            Event::assistant("hi"),
            Event::assistant("ho"),
            result,
            Event::user("again"),
        ];
        for from in 0..events.len() {
            for cut in from..=events.len() {
                let mut tally = Tally::default();
                for (event, number) in events[from..].iter().zip(1..) {
                    tally.add(Seq(number), Some(event));
                }
                let expected =
                    (tally.counts.messages.cast_signed(), number_of(tally.open), tally.counts.preview);
                assert_eq!(counted_by_outcomes(&events[from..cut], &events[cut..]), expected, "{from} {cut}");
            }
        }
    }
}
