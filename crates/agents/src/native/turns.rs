//! Puts the outputs of a parser together to turns.

use std::collections::HashSet;

use azureal_core::agent::AgentOutput;
use azureal_core::event::{Complete, Outcome};
use azureal_core::{Event, compact_event, strip_context};
use jiff::Timestamp;

use super::{NativePlace, NativeProblem, NativeSummary, NativeTurn};

/// The size of a turn, in bytes of JSON with [`EVENT_COST`] per event: 32 MiB.
const LARGEST_TURN: usize = 32 << 20;
/// The cost of an event besides its text.
const EVENT_COST: usize = 512;
/// The number of problems that a turn lists one by one.
const MOST_PROBLEMS: usize = 100;

/// A turn while it is read.
///
/// The parser begins it with the prompt and ends it with [`Event::Complete`]. Texts are bounded like those of a turn that azureal
/// runs: results are cut down at once, and events beyond the size of a turn are counted and left out.
#[derive(Default)]
pub(crate) struct TurnBuilder {
    turn: NativeTurn,
    size: usize,
    /// The calls without a result.
    open: HashSet<String>,
    left_out: u64,
    further_problems: u64,
}

impl TurnBuilder {
    /// Begins a turn.
    pub(crate) fn begin(&mut self, id: impl Into<String>, started: Option<Timestamp>) {
        self.turn.id = id.into();
        self.turn.started = started;
    }

    /// Returns whether the turn has events.
    pub(crate) fn has_events(&self) -> bool {
        !self.turn.events.is_empty()
    }

    /// Adds the user's prompt, as the agent got it.
    pub(crate) fn prompt(&mut self, sent: &str) {
        let typed = strip_context(sent);
        self.turn.is_ours |= typed.len() != sent.len();
        self.event(Event::user(typed));
    }

    /// Adds an event of the agent. Returns the turn, if the event is its end.
    pub(crate) fn event(&mut self, event: Event) -> Option<NativeTurn> {
        let event = compact_event(event);
        if let Event::Complete(_) = event {
            return Some(self.complete(event));
        }
        let size = event.to_json().len() + EVENT_COST;
        if self.size + size > LARGEST_TURN {
            self.left_out += 1;
        } else {
            self.size += size;
            match &event {
                Event::ToolCall(call) => self.open.insert(call.tool_use_id.clone()),
                Event::ToolResult(result) => self.open.remove(&result.tool_use_id),
                _ => false,
            };
            self.turn.events.push(event);
        }
        None
    }

    /// Adds an output of a parser. Returns the turn, if the output is its end.
    pub(crate) fn output(&mut self, output: AgentOutput) -> Option<NativeTurn> {
        match output {
            AgentOutput::Event(Event::UserMessage(message)) => {
                self.prompt(&message.content);
                None
            }
            AgentOutput::Event(event) => self.event(event),
            _ => None,
        }
    }

    /// Adds a part that could not be read.
    pub(crate) fn problem(&mut self, place: NativePlace, reason: impl Into<String>) {
        if self.turn.problems.len() < MOST_PROBLEMS {
            self.turn.problems.push(NativeProblem { place, reason: reason.into() });
        } else {
            self.further_problems += 1;
        }
    }

    /// Adds the summary of a compaction that covers everything so far, in place of one that covers the same. One that would part a call
    /// from its result is left out, and so is one beyond the size of a turn.
    pub(crate) fn summary(&mut self, text: String) {
        if !self.open.is_empty() || text.trim().is_empty() {
            return;
        }
        let after = self.turn.events.len();
        let is_same = |last: &mut NativeSummary| last.after == after;
        self.size -= self.turn.summaries.pop_if(is_same).map_or(0, |same| same.text.len());
        if self.size + text.len() > LARGEST_TURN {
            self.left_out += 1;
        } else {
            self.size += text.len();
            self.turn.summaries.push(NativeSummary { after, text });
        }
    }

    /// Ends a turn of which no end was read. `None` if there is no turn.
    pub(crate) fn interrupt(&mut self) -> Option<NativeTurn> {
        if !self.has_events() {
            return self.rest();
        }
        self.turn.is_open = true;
        Some(self.complete(Event::Complete(Complete {
            outcome: Some(Outcome::Interrupted),
            ..Complete::default()
        })))
    }

    /// Returns problems that belong to no turn.
    pub(crate) fn rest(&mut self) -> Option<NativeTurn> {
        let turn = std::mem::take(self).turn;
        (!turn.problems.is_empty()).then_some(turn)
    }

    fn complete(&mut self, complete: Event) -> NativeTurn {
        let Self { mut turn, size, left_out, further_problems, open: _ } = std::mem::take(self);
        turn.size = size;
        if left_out > 0 {
            let why =
                format!("the turn is larger than a turn can be: {left_out} of its events were left out");
            turn.events.push(Event::error("oversized_turn", why));
        }
        if further_problems > 0 {
            let place = NativePlace::Entry("the turn".to_owned());
            let reason = format!("{further_problems} more parts cannot be read");
            turn.problems.push(NativeProblem { place, reason });
        }
        turn.events.push(complete);
        turn
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::build_context_prompt;
    use azureal_core::event::{ToolCall, ToolResult};

    use super::*;

    #[test]
    fn a_turn_ends_with_its_complete_and_has_the_prompt_as_typed() {
        let mut builder = TurnBuilder::default();
        builder.begin("a", None);
        builder.prompt(&build_context_prompt("## User\nHello", "Go on"));
        assert!(builder.event(Event::assistant("Done.")).is_none());
        let turn = builder.event(Event::Complete(Complete::default())).unwrap();
        assert_eq!(turn.events[..2], [Event::user("Go on"), Event::assistant("Done.")]);
        assert!(turn.is_ours && !turn.is_open && turn.events.len() == 3);
        assert!(builder.interrupt().is_none(), "the next turn has not begun");
        builder.begin("b", None);
        builder.prompt("Go on");
        let turn = builder.interrupt().unwrap();
        assert_eq!((turn.id.as_str(), turn.is_ours, turn.is_open), ("b", false, true));
    }

    #[test]
    fn of_summaries_at_one_place_the_last_counts_and_none_parts_a_call_from_its_result() {
        let mut builder = TurnBuilder::default();
        builder.prompt("x");
        for text in ["a", "b", " "] {
            builder.summary(text.to_owned());
        }
        let call = |id: &str| Event::ToolCall(ToolCall { tool_use_id: id.to_owned(), ..ToolCall::default() });
        builder.event(call("1"));
        builder.summary("between".to_owned());
        builder.event(Event::ToolResult(ToolResult { tool_use_id: "1".to_owned(), ..ToolResult::default() }));
        builder.summary("d".to_owned());
        let turn = builder.interrupt().unwrap();
        let found: Vec<(usize, &str)> =
            turn.summaries.iter().map(|summary| (summary.after, summary.text.as_str())).collect();
        assert_eq!(found, [(1, "b"), (3, "d")]);
    }

    #[test]
    fn summaries_are_bounded_with_the_rest_of_a_turn() {
        let mut builder = TurnBuilder::default();
        builder.prompt("x");
        let size = |turn: &NativeTurn| turn.summaries.iter().map(|summary| summary.text.len()).sum::<usize>();
        for _ in 0..40 {
            builder.summary("y".repeat(1 << 20));
            assert!(size(&builder.turn) <= 1 << 20, "only the last one at a place");
        }
        for _ in 0..40 {
            builder.event(Event::assistant("z"));
            builder.summary("y".repeat(1 << 20));
        }
        assert!((30 << 20..=LARGEST_TURN).contains(&size(&builder.turn)));
    }

    #[test]
    fn a_turn_is_bounded_and_says_what_it_lost() {
        let mut builder = TurnBuilder::default();
        builder.prompt("x");
        for _ in 0..40 {
            builder.event(Event::assistant("y".repeat(1 << 20)));
        }
        for line in 0..MOST_PROBLEMS as u64 + 5 {
            builder.problem(NativePlace::Line(line), "is damaged");
        }
        let turn = builder.interrupt().unwrap();
        let [.., Event::Error(error), Event::Complete(_)] = turn.events.as_slice() else {
            panic!("{:?}", turn.events.len())
        };
        assert!(error.message.ends_with("9 of its events were left out"), "{}", error.message);
        assert_eq!(turn.problems.len(), MOST_PROBLEMS + 1);
        assert_eq!(turn.problems[100].to_string(), "the turn was left out: 5 more parts cannot be read");
    }
}
