//! The growth of a session's history during a turn.

use azureal_core::{Event, compact_event, rendered_chars};

/// Measures the rendered length of a turn that continues.
pub(crate) struct Growth {
    /// The characters that may still be added.
    room: u64,
    taken: u64,
    /// The number of calls without a result.
    open_calls: u64,
}

impl Growth {
    /// Begins with so much room.
    pub(crate) fn new(room: u64) -> Self {
        Self { room, taken: 0, open_calls: 0 }
    }

    /// Takes an event, and returns whether to compact now: there is no room left, the agent uses tools and so is not
    /// about to end, and no tool is running that would be stopped in the middle. A tool that never ends does not
    /// delay it for ever.
    pub(crate) fn is_full_with(&mut self, event: &Event) -> bool {
        let uses_tools = match event {
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
        self.taken = self.taken.saturating_add(added_chars(event));
        let too_much = self.room.saturating_add(self.room / 4);
        uses_tools && (self.taken > too_much || (self.taken > self.room && self.open_calls == 0))
    }
}

/// The size from which a text is counted instead of rendered, in bytes.
const LARGE_TEXT: usize = 1 << 20;

/// Returns the characters that an event adds to the context once it is stored. For a very long text it is a little
/// less: rendering it would copy it.
pub fn added_chars(event: &Event) -> u64 {
    match event {
        Event::ToolCall(_) | Event::ToolResult(_) => rendered_chars(&compact_event(event.clone())),
        Event::AssistantText(said) if said.text.len() > LARGE_TEXT => said.text.chars().count() as u64,
        _ => rendered_chars(event),
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
        assert!(!growth.is_full_with(&text(5_000)));
        assert!(!growth.is_full_with(&call("a")));
        assert!(!growth.is_full_with(&text(5_000)), "a tool is at work");
        assert!(!growth.is_full_with(&call("b")));
        assert!(!growth.is_full_with(&result("a")));
        assert!(growth.is_full_with(&result("b")));

        let mut growth = Growth::new(10_000);
        assert!(!growth.is_full_with(&call("a")));
        assert!(!growth.is_full_with(&text(12_501)), "it may be the last");
        assert!(growth.is_full_with(&call("b")));
    }
    #[test]
    fn a_long_text_is_counted_as_it_is_rendered_but_for_its_heading() {
        let text = |chars: usize| Event::assistant("ü".repeat(chars));
        let (small, large) = (text(100_000), text(1_000_000));
        assert_eq!(added_chars(&small), rendered_chars(&small));
        let difference = rendered_chars(&large) - added_chars(&large);
        assert!(difference < 100, "{difference}");
    }
}
