//! How much a turn adds to the history of its session while it runs.

use azureal_core::{Event, compact_event, told_chars};

/// Measures what the next agent would be told of a turn that goes on.
pub(crate) struct Growth {
    /// How much may still come, in characters.
    room: u64,
    taken: u64,
    /// How many calls have no result yet.
    open_calls: u64,
}

impl Growth {
    /// Begins with so much room.
    pub(crate) fn new(room: u64) -> Self {
        Self { room, taken: 0, open_calls: 0 }
    }

    /// Takes an event, and says whether it is time to compact: there is no room left, the agent uses tools and so is not
    /// about to end, and none is at work that would be stopped in the middle. One that never ends does not keep it off
    /// for ever.
    pub(crate) fn is_full_with(&mut self, event: Event) -> bool {
        let uses_tools = match &event {
            Event::ToolCall(_) => {
                self.open_calls += 1;
                true
            }
            Event::ToolResult(_) => {
                self.open_calls = self.open_calls.saturating_sub(1);
                true
            }
            _ => false,
        };
        self.taken = self.taken.saturating_add(told_chars(&compact_event(event)));
        let too_much = self.room.saturating_add(self.room / 4);
        uses_tools && (self.taken > too_much || (self.taken > self.room && self.open_calls == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_at_work_is_not_stopped_unless_it_takes_far_too_much() {
        let event = |json: String| Event::from_json(&json).unwrap();
        let call = |id: &str| {
            event(format!(r#"{{"ToolCall":{{"tool_use_id":"{id}","tool_name":"Bash","input":{{}}}}}}"#))
        };
        let result = |id: &str| {
            event(format!(
                r#"{{"ToolResult":{{"tool_use_id":"{id}","tool_name":"Bash","content":"","is_error":false}}}}"#
            ))
        };
        let text = |chars: usize| Event::assistant("x".repeat(chars));

        let mut growth = Growth::new(10_000);
        assert!(!growth.is_full_with(text(5_000)));
        assert!(!growth.is_full_with(call("a")));
        assert!(!growth.is_full_with(text(5_000)), "a tool is at work");
        assert!(!growth.is_full_with(call("b")));
        assert!(!growth.is_full_with(result("a")));
        assert!(growth.is_full_with(result("b")));

        let mut growth = Growth::new(10_000);
        assert!(!growth.is_full_with(call("a")));
        assert!(!growth.is_full_with(text(12_501)), "it may be the last");
        assert!(growth.is_full_with(call("b")));
    }
}
