//! Rows of the original program that look like prompts and are none.
//!
//! Its builds of March to May 2026 stored two more kinds of text as prompts of the user: the instructions that Codex adds to a conversation, and
//! prompts with the injected history in front. Its later builds hide both. Such a row is read here without them; the
//! file is not changed.
//!
//! Its rows can be told from ours: their `char_len` is the number of bytes of the text, ours that of the characters of the JSON.

use azureal_core::event::{Hook, UserMessage};
use azureal_core::{Event, strip_context};
use rusqlite::types::ValueRef;

/// The beginning of the instructions that Codex adds, and a tag in them.
const INSTRUCTIONS: (&str, &str) = ("# AGENTS.md instructions for ", "<INSTRUCTIONS>");
/// The name of the tag around an injected history.
const CONTEXT: &str = "azureal-session-context>";

/// Returns the event of a row in place of its JSON; `None` if the JSON is what it is.
pub(super) fn corrected(json: &str, char_len: ValueRef<'_>) -> Option<Event> {
    let may_be_hidden = json.contains(INSTRUCTIONS.0) || json.contains(CONTEXT);
    let ValueRef::Integer(char_len) = char_len else { return None };
    if !may_be_hidden || char_len == json.chars().count().cast_signed() as i64 {
        return None;
    }
    let Ok(Event::UserMessage(UserMessage { content, starts })) = Event::from_json(json) else { return None };
    if content.len().cast_signed() as i64 != char_len {
        return None;
    }
    let text = content.trim_start();
    let hidden = |name: &str| Some(Event::Hook(Hook { name: name.to_owned(), output: content.clone() }));
    if text.starts_with(INSTRUCTIONS.0) && text.contains(INSTRUCTIONS.1) {
        return hidden("AGENTS.md");
    }
    let prompt = strip_context(text);
    if prompt.trim().is_empty() || prompt.starts_with(&format!("<{CONTEXT}")) {
        // Cut off before the prompt.
        return hidden("context");
    }
    let is_wrapped = prompt.len() < text.len();
    is_wrapped.then(|| Event::UserMessage(UserMessage { content: prompt.to_owned(), starts }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_original(content: &str) -> Option<Event> {
        let json = Event::user(content).to_json();
        corrected(&json, ValueRef::Integer(content.len() as i64))
    }

    #[test]
    fn instructions_and_injected_history_are_no_prompts() {
        let instructions = "# AGENTS.md instructions for /tmp/p\n<INSTRUCTIONS>\nKeep it.\n</INSTRUCTIONS>";
        let Some(Event::Hook(hook)) = of_original(instructions) else { panic!() };
        assert_eq!((hook.name.as_str(), hook.output.as_str()), ("AGENTS.md", instructions));
        let wrapped = "<azureal-session-context>\n## User\nold\n</azureal-session-context>\n\nthe prompt";
        assert_eq!(of_original(wrapped), Some(Event::user("the prompt")));
        let cut = "<azureal-session-context>\n## User\nold";
        assert!(matches!(of_original(cut), Some(Event::Hook(_))));
        for prompt in [
            "Read the # AGENTS.md instructions for <INSTRUCTIONS>",
            "What is <azureal-session-context>?",
            "# AGENTS.md instructions for me",
        ] {
            assert_eq!(of_original(prompt), None, "{prompt}");
        }
    }

    #[test]
    fn a_row_of_ours_is_what_it_is() {
        for prompt in [
            "# AGENTS.md instructions for x <INSTRUCTIONS>",
            "<azureal-session-context>a</azureal-session-context>b",
        ] {
            let json = Event::user(prompt).to_json();
            assert_eq!(corrected(&json, ValueRef::Integer(json.chars().count() as i64)), None);
            assert_eq!(corrected(&json, ValueRef::Null), None);
        }
    }
}
