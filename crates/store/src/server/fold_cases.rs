//! The effect of a turn on the counts of its session, for every state that the session may be in.
//!
//! The number of messages that a turn adds depends on the open message at the end of the session, and its preview on
//! whether there is one yet. Asking the server first would be another round trip, and a conflict whenever another
//! client appends in between. There are four states, with and without a preview. So all eight outcomes are sent
//! along, and the server takes the one that applies.

use azureal_core::fold::Open;
use azureal_core::{Counts, Event, NewEvent, NewTurn, Seq, Tally};

/// The eight outcomes, and what depends on no state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoldCases {
    /// In the order of [`Open::ALL`] and in pairs: without a preview so far, and with one.
    pub(crate) cases: Vec<FoldCase>,
    /// The counts of an empty session after this turn. Only some apply to any other session too: the agent and the
    /// requested model, the last prompt, `answered`, `rendered_chars` (added) and the tokens of the context.
    pub(crate) alone: Counts,
    /// The part of `rendered_chars` that details add: see [`Tally::detail_chars`].
    pub(crate) details: i64,
    pub(crate) model: ModelOutcome,
}

/// The effect of a turn on the model of its session. It depends on the agent that ran last, because the model of one
/// agent has no meaning for another.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelOutcome {
    /// The first agent that the turn names.
    pub(crate) first_agent: Option<String>,
    /// The model, if that is the agent that ran last or the turn names none; the outer `None` leaves it as it is.
    pub(crate) of_same: Option<Option<String>>,
    /// The model, if another agent ran last, or none.
    pub(crate) of_other: Option<String>,
}

impl ModelOutcome {
    fn of(turn: &NewTurn) -> Self {
        let first_agent = turn.events.iter().find_map(|new| match new.event() {
            Event::Init(init) => init.agent.clone(),
            Event::ModelSwitch(switch) => switch.agent.clone(),
            _ => None,
        });
        let after = |agent: Option<&str>, model: Option<&str>| {
            let (agent, model) = (agent.map(str::to_owned), model.map(str::to_owned));
            let mut tally =
                Tally { counts: Counts { agent, model, ..Counts::default() }, ..Tally::default() };
            let events = turn.events.iter().map(NewEvent::event);
            for event in events.filter(|event| matches!(event, Event::Init(_) | Event::ModelSwitch(_))) {
                tally.add(Seq(1), Some(event));
            }
            tally.counts.model
        };
        let (without, with) =
            (after(first_agent.as_deref(), None), after(first_agent.as_deref(), Some("any")));
        let of_same = (without == with).then_some(without);
        Self { of_same, of_other: after(None, None), first_agent }
    }
}

/// The effect of a turn in one state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoldCase {
    /// The number of messages that are added.
    pub(crate) added: u64,
    /// The message that is open afterwards.
    pub(crate) opens: Open,
    /// The preview, where this turn brings it.
    pub(crate) preview: Option<String>,
}

impl FoldCases {
    pub(crate) fn of(turn: &NewTurn) -> Self {
        let mut alone = Tally::default();
        turn.count_into(&mut alone, Seq::START);
        let details = alone.detail_chars;
        let mut outcomes =
            Self { alone: alone.counts, details, model: ModelOutcome::of(turn), ..Self::default() };
        for open in Open::ALL {
            for preview in [None, Some(String::new())] {
                let had_preview = preview.is_some();
                let counts = Counts { preview, ..Counts::default() };
                let mut tally = Tally { open, counts, ..Tally::default() };
                for new in &turn.events {
                    tally.add_to_messages(new.event());
                }
                outcomes.cases.push(FoldCase {
                    added: tally.counts.messages,
                    opens: tally.open,
                    preview: tally.counts.preview.filter(|_| !had_preview),
                });
            }
        }
        outcomes
    }
}

/// Returns the number that stands for an open message: its place in [`Open::ALL`], from 1.
pub(crate) fn number_of(open: Open) -> u8 {
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
    use azureal_core::event::{Init, ModelSwitch, ToolResult, UserMessage};

    /// Counts in two turns what [`Tally`] counts in one, by taking the outcome that holds.
    fn counted_by_outcomes(first: &[Event], second: &[Event]) -> (u64, Open, Option<String>) {
        let mut state = (0, Open::Nothing, None);
        for events in [first, second] {
            let outcomes = FoldCases::of(&NewTurn::verbatim(events.to_vec()));
            let chosen = 2 * usize::from(number_of(state.1) - 1) + usize::from(state.2.is_some());
            let FoldCase { added, opens, preview } = &outcomes.cases[chosen];
            state = (state.0 + added, *opens, preview.clone().or(state.2));
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
                let expected = (tally.counts.messages, tally.open, tally.counts.preview);
                assert_eq!(counted_by_outcomes(&events[from..cut], &events[cut..]), expected, "{from} {cut}");
            }
        }
    }

    #[test]
    fn the_model_depends_on_the_agent_that_ran_last() {
        let init = |agent: Option<&str>, model: &str| {
            let (agent, model) = (agent.map(str::to_owned), model.to_owned());
            Event::Init(Init { agent, model, ..Init::default() })
        };
        let switch = Event::ModelSwitch(ModelSwitch::reported("switched"));
        let events = [
            init(Some("a"), "one"),
            init(Some("b"), ""),
            init(None, "two"),
            switch,
            Event::ModelSwitch(ModelSwitch::chosen("b", Some("chosen".to_owned()))),
            init(Some("a"), ""),
            Event::ModelSwitch(ModelSwitch::chosen("a", None)),
            init(None, ""),
            Event::user("hello"),
        ];
        for from in 0..events.len() {
            for cut in from..=events.len() {
                let mut tally = Tally::default();
                for event in &events[from..cut] {
                    tally.add(tally.through.next(), Some(event));
                }
                let Counts { agent, model, .. } = tally.counts.clone();
                for event in &events[cut..] {
                    tally.add(tally.through.next(), Some(event));
                }
                let outcome = ModelOutcome::of(&NewTurn::verbatim(events[cut..].to_vec()));
                let found = match outcome.of_same {
                    _ if outcome.first_agent.is_some() && outcome.first_agent != agent => outcome.of_other,
                    Some(set) => set,
                    None => model,
                };
                assert_eq!(found, tally.counts.model, "{from} {cut}");
            }
        }
    }
}
