//! Searches in a session, which a newer search ends.

use azureal_core::event::MessageEvent;
use azureal_core::{
    Block, Event, OutputPart, PAGE_EVENTS, Page, Role, Seq, SessionId, SessionStore, StoredEvent, ToolOutput,
};
use futures_executor::block_on;

use crate::error::Error;

/// The number of prompts that are read at a time.
const PROMPTS: usize = 64;

/// A search in a session. It ends without an answer when it is not wanted any more.
pub(super) struct Search<'a> {
    pub(super) store: &'a dyn SessionStore,
    pub(super) session: SessionId,
    /// The event to search from, which is not searched itself.
    pub(super) from: Seq,
    pub(super) backwards: bool,
    pub(super) is_wanted: &'a dyn Fn() -> bool,
}

impl Search<'_> {
    /// Finds the next prompt; the outer `None` if the search is not wanted any more.
    pub(super) fn prompt(&self) -> Result<Option<Option<Seq>>, Error> {
        let mut until = if self.backwards { Seq(self.from.0.saturating_sub(1)) } else { Seq::END };
        // Only the way back has an index. So the first one after an event is the last one on the way back to it.
        let mut nearest = None;
        while (self.is_wanted)() {
            let page = block_on(self.store.read_prompts(self.session, until, PROMPTS))?;
            let Some(oldest) = page.last().map(|stored| stored.seq) else { return Ok(Some(nearest)) };
            for stored in &page {
                if !self.backwards && stored.seq <= self.from {
                    return Ok(Some(nearest));
                }
                if stored.event().is_ok_and(|event| is_prompt(&event)) {
                    if self.backwards {
                        return Ok(Some(Some(stored.seq)));
                    }
                    nearest = Some(stored.seq);
                }
            }
            until = Seq(oldest.0.saturating_sub(1));
        }
        Ok(None)
    }

    /// Finds the next event with a text, ignoring case; the outer `None` if the search is not wanted any more.
    pub(super) fn text(&self, text: &str) -> Result<Option<Option<Seq>>, Error> {
        let wanted = text.to_lowercase();
        if wanted.is_empty() {
            return Ok(Some(None));
        }
        let mut from = self.from;
        while (self.is_wanted)() {
            let page = match self.backwards {
                true => Page::Before(from, PAGE_EVENTS),
                false => Page::After(from, PAGE_EVENTS),
            };
            let page = block_on(self.store.read(self.session, page))?;
            let has_text = |stored: &&StoredEvent| has_text(stored, &wanted);
            let (found, last) = match self.backwards {
                true => (page.iter().rev().find(has_text), page.first()),
                false => (page.iter().find(has_text), page.last()),
            };
            if let Some(found) = found {
                return Ok(Some(Some(found.seq)));
            }
            let Some(last) = last else { return Ok(Some(None)) };
            from = last.seq;
        }
        Ok(None)
    }
}

/// Returns whether a user's message begins here.
fn is_prompt(event: &Event) -> bool {
    match event {
        Event::UserMessage(message) => message.starts != Some(false),
        Event::Message(MessageEvent { role: Role::User, content }) => {
            content.iter().any(|block| matches!(block, Block::Text { .. } | Block::Image(_)))
        }
        _ => false,
    }
}

/// Returns whether an event has a text, which is in lower case, in what is shown of it.
fn has_text(stored: &StoredEvent, wanted: &str) -> bool {
    let has = |text: &str| contains(text, wanted);
    match stored.event() {
        Ok(Event::UserMessage(message)) => has(&message.content),
        Ok(Event::AssistantText(said)) => has(&said.text),
        Ok(Event::Reasoning(reasoning)) => has(&reasoning.text),
        Ok(Event::Plan(plan)) => has(&plan.name) || has(&plan.content),
        Ok(Event::Command(command)) => has(&command.name),
        Ok(Event::ToolCall(call)) => has(&call.tool_name) || has_in_json(call.input.as_str(), wanted),
        Ok(Event::ToolResult(result)) => has(&result.content) || result.detail.as_deref().is_some_and(has),
        Ok(Event::Error(error)) => has(&error.message),
        Ok(Event::SystemMessage(message)) => has(&message.content),
        Ok(Event::ModelSwitch(switch)) => has(&switch.model),
        Ok(Event::Message(message)) => message.content.iter().any(|block| has_in_block(block, wanted)),
        _ => false,
    }
}

fn has_in_block(block: &Block, wanted: &str) -> bool {
    match block {
        Block::Text { text } => contains(text, wanted),
        Block::ToolUse { name, input, .. } => contains(name, wanted) || has_in_json(input.as_str(), wanted),
        Block::ToolResult { content: ToolOutput::Text(text), .. } => contains(text, wanted),
        Block::ToolResult { content: ToolOutput::Parts(parts), .. } => parts.iter().any(|part| match part {
            OutputPart::Text(text) => contains(text, wanted),
            OutputPart::Image(_) => false,
        }),
        Block::Image(_) => false,
    }
}

/// Searches the strings of a JSON text, without their escapes.
fn has_in_json(json: &str, wanted: &str) -> bool {
    match serde_json::from_str::<serde_json::Value>(json) {
        Ok(value) => has_in_value(&value, wanted),
        Err(_) => contains(json, wanted),
    }
}

fn has_in_value(value: &serde_json::Value, wanted: &str) -> bool {
    match value {
        serde_json::Value::String(text) => contains(text, wanted),
        serde_json::Value::Array(items) => items.iter().any(|item| has_in_value(item, wanted)),
        serde_json::Value::Object(fields) => fields.values().any(|field| has_in_value(field, wanted)),
        other => contains(&other.to_string(), wanted),
    }
}

fn contains(text: &str, wanted: &str) -> bool {
    text.to_lowercase().contains(wanted)
}

#[cfg(test)]
mod tests {
    use azureal_core::{NewSession, NewTurn};
    use azureal_store::MemoryStore;

    use super::*;

    #[test]
    fn a_search_goes_both_ways_and_ends_when_it_is_not_wanted() {
        let store = MemoryStore::default();
        let session = block_on(store.create(NewSession::default())).unwrap();
        let call =
            r#"{"ToolCall":{"tool_use_id":"a","tool_name":"Bash","input":{"command":"a \"Quoted\" word"}}}"#;
        let mut events = vec![Event::user("one ÄPFEL"), Event::assistant("two"), Event::user("three äpfel")];
        events.extend((0..2_000).map(|_| Event::assistant("x")));
        events.extend([Event::from_json(call).unwrap(), Event::user("last")]);
        block_on(store.append(session, NewTurn::verbatim(events))).unwrap();
        let search = |from, backwards, is_wanted: &dyn Fn() -> bool, text: Option<&str>| {
            let search = Search { store: &store, session, from: Seq(from), backwards, is_wanted };
            let found = text.map_or_else(|| search.prompt(), |text| search.text(text)).unwrap();
            found.map(|found| found.map(|seq| seq.0))
        };
        let (yes, no) = (&|| true, &|| false);
        assert_eq!(search(0, false, yes, Some("Äpfel")), Some(Some(1)));
        assert_eq!(search(1, false, yes, Some("Äpfel")), Some(Some(3)));
        assert_eq!(search(3, false, yes, Some("Äpfel")), Some(None));
        assert_eq!(search(Seq::END.0, true, yes, Some("äpfel")), Some(Some(3)));
        assert_eq!(search(3, true, yes, Some("äpfel")), Some(Some(1)));
        assert_eq!(search(1, false, yes, Some("\"quoted\" w")), Some(Some(2_004)));
        assert_eq!(search(0, false, yes, Some("")), Some(None));
        assert_eq!(search(0, false, no, Some("last")), None);
        for (from, backwards, expected) in [
            (0, false, Some(1)),
            (1, false, Some(3)),
            (3, false, Some(2_005)),
            (2_005, false, None),
            (2_005, true, Some(3)),
            (3, true, Some(1)),
            (1, true, None),
        ] {
            assert_eq!(search(from, backwards, yes, None), Some(expected), "{from} {backwards}");
        }
        assert_eq!(search(0, false, no, None), None);
    }
}
