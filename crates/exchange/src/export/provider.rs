//! What the message lists of providers have in common.
//!
//! Providers refuse a call without a result, a result elsewhere than after its call, a failure with pictures or without a text, a picture in an answer or without
//! data, an empty text, an id that is used twice, and names with other characters than these. A list that is made here has none of them, and its roles alternate.

use std::collections::{HashSet, VecDeque};

use azureal_core::{Block, Event, Fold, Json, Message, OutputPart, Role, ToolOutput};

use super::masking::Masking;
use super::paired::paired;
use super::{ExportError, Source, each_event};
use crate::DamagedEvents;

/// The result of a call that failed without one.
const FAILED: &str = "The tool failed without output.";
/// The longest id of a call, and the longest name of a tool.
const LONGEST_ID: usize = 40;
const LONGEST_NAME: usize = 64;

/// The conversation of a session, as providers take it.
pub(super) struct Conversation {
    /// The system message that it begins with; empty if it has none.
    pub(super) system: String,
    /// Messages of the user and the assistant in turns, the user first. A later system message is a text of the user.
    pub(super) messages: Vec<Message>,
}

/// Reads the conversation of a session.
pub(super) async fn conversation(
    source: &Source<'_>,
    record: &azureal_core::SessionRecord,
    masking: &mut Masking<'_>,
) -> Result<(Conversation, DamagedEvents), ExportError> {
    let mut fold = Fold::default();
    let damaged = each_event(source, record.id, masking, |_, event: Event| {
        fold.push(event);
        Ok(())
    })
    .await?;
    Ok((of_messages(fold.finish(), None), damaged))
}

/// Returns messages as providers take them. `unanswered` is put between a prompt without an answer and the next one, which would else become one.
pub(super) fn of_messages(messages: Vec<Message>, unanswered: Option<&str>) -> Conversation {
    let mut messages: VecDeque<Message> = messages.into();
    let mut system = Vec::new();
    while let Some(message) = messages.pop_front_if(|message| message.role == Role::System) {
        system.extend(message.content.iter().filter_map(Block::as_text).map(str::to_owned));
    }
    system.retain(|text| !text.trim().is_empty());
    // Only the assistant calls tools.
    for message in messages.iter_mut().filter(|message| message.role != Role::Assistant) {
        for block in &mut message.content {
            if let Block::ToolUse { name, input, .. } = block {
                *block = Block::text(format!("[tool call: {name} {}]", input.as_str()));
            }
        }
    }
    let mut ids = Ids::default();
    let mut list: Vec<Message> = Vec::new();
    let mut is_answered = true;
    for Message { role, content } in paired(messages.into()) {
        let mut content: Vec<Block> =
            content.into_iter().filter_map(|block| ids.usable(role, block)).collect();
        if content.is_empty() {
            continue;
        }
        if role == Role::User && !is_answered && !matches!(content.first(), Some(Block::ToolResult { .. })) {
            list.extend(unanswered.map(Message::assistant));
        }
        // A system message is no answer, and asks for none.
        if role != Role::System {
            is_answered = role == Role::Assistant;
        }
        let role = match role {
            Role::System => {
                for block in &mut content {
                    if let Block::Text { text } = block {
                        *text = format!("[system: {text}]");
                    }
                }
                Role::User
            }
            role => role,
        };
        match list.last_mut() {
            Some(last) if last.role == role => last.content.append(&mut content),
            None if role == Role::Assistant => {
                list.push(Message::user("[The conversation begins with an answer.]"));
                list.push(Message { role, content });
            }
            _ => list.push(Message { role, content }),
        }
    }
    Conversation { system: system.join("\n\n"), messages: list }
}

/// The ids of calls, in a form that providers accept.
#[derive(Default)]
struct Ids {
    used: HashSet<String>,
    /// The new ids of the calls without a result. Results follow their calls in the same order.
    open: VecDeque<String>,
    count: usize,
}

impl Ids {
    /// Returns a block in a form that providers accept; `None` if nothing of it is left.
    fn usable(&mut self, role: Role, block: Block) -> Option<Block> {
        Some(match block {
            Block::Text { text } if text.trim().is_empty() => return None,
            Block::Image(image) if role == Role::Assistant || image.data.is_empty() => {
                Block::text(image.note())
            }
            Block::ToolUse { id, name, input } => {
                let new = self.new_id(&id);
                self.open.push_back(new.clone());
                Block::ToolUse { id: new, name: usable_name(&name), input: object(input) }
            }
            Block::ToolResult { tool_use_id, content, is_error } => {
                let tool_use_id = self.open.pop_front().unwrap_or(tool_use_id);
                let content = match content {
                    _ if is_error && content.text().trim().is_empty() => ToolOutput::Text(FAILED.to_owned()),
                    // A failure is text alone.
                    ToolOutput::Parts(_) if is_error => ToolOutput::Text(content.text().into_owned()),
                    ToolOutput::Parts(mut parts) => {
                        for part in &mut parts {
                            if let OutputPart::Image(image) = part
                                && image.data.is_empty()
                            {
                                *part = OutputPart::Text(image.note());
                            }
                        }
                        parts
                            .retain(|part| !matches!(part, OutputPart::Text(text) if text.trim().is_empty()));
                        ToolOutput::Parts(parts)
                    }
                    text @ ToolOutput::Text(_) => text,
                };
                Block::ToolResult { tool_use_id, content, is_error }
            }
            other => other,
        })
    }

    fn new_id(&mut self, id: &str) -> String {
        let is_usable = !id.is_empty() && id.len() <= LONGEST_ID && id.chars().all(is_plain);
        let mut new = id.to_owned();
        if !is_usable {
            new.clear();
        }
        while new.is_empty() || !self.used.insert(new.clone()) {
            self.count += 1;
            new = format!("call_{}", self.count);
        }
        new
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn usable_name(name: &str) -> String {
    let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(LONGEST_NAME).collect();
    if name.is_empty() { "tool".to_owned() } else { name }
}

/// Returns the input of a call as an object.
fn object(input: Json) -> Json {
    if input.is_object() {
        return input;
    }
    let value: serde_json::Value = serde_json::from_str(input.as_str()).unwrap_or_default();
    if value.is_null() { Json::empty_object() } else { serde_json::json!({ "input": value }).into() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failed(id: &str, text: &str) -> Block {
        Block::ToolResult {
            tool_use_id: id.to_owned(),
            content: ToolOutput::Text(text.to_owned()),
            is_error: true,
        }
    }

    #[test]
    fn a_conversation_is_what_providers_take() {
        let messages = vec![
            Message::system("Be brief."),
            Message::assistant("Hi"),
            Message::user("a"),
            Message::system("it broke"),
            Message::user(" \n"),
            Message::new(
                Role::Assistant,
                [Block::text(""), Block::tool_use("item 1", "my tool", json!([1]))],
            ),
            Message::new(Role::User, [failed("item 1", " \n")]),
            Message::new(
                Role::Assistant,
                [Block::tool_use("t", "Bash", json!({})), Block::tool_use("t", "Bash", json!({}))],
            ),
        ];
        let Conversation { system, messages } = of_messages(messages, None);
        assert_eq!(system, "Be brief.");
        let interrupted = |id: &str| failed(id, "The call was interrupted and has no result.");
        assert_eq!(
            messages,
            [
                Message::user("[The conversation begins with an answer.]"),
                Message::assistant("Hi"),
                Message::new(Role::User, [Block::text("a"), Block::text("[system: it broke]")]),
                Message::new(Role::Assistant, [Block::tool_use("call_1", "my_tool", json!({"input": [1]}))]),
                Message::new(Role::User, [failed("call_1", "The tool failed without output.")]),
                Message::new(
                    Role::Assistant,
                    [Block::tool_use("t", "Bash", json!({})), Block::tool_use("call_2", "Bash", json!({}))]
                ),
                Message::new(Role::User, [interrupted("t"), interrupted("call_2")]),
            ]
        );
    }

    #[test]
    fn prompts_without_an_answer_stay_apart() {
        let call = |id: &str| Message::new(Role::Assistant, [Block::tool_use(id, "Bash", json!({}))]);
        let results = |id: &str| Message::new(Role::User, [Block::tool_result(id, "ok")]);
        let messages = vec![
            Message::user("One"),
            Message::system("overloaded"),
            Message::user("Two"),
            Message::assistant("Yes"),
            Message::system("a note"),
            Message::user("Three"),
            call("a"),
            results("a"),
            Message::user("Four"),
            call("b"),
            Message::user("Five"),
            call("c"),
            Message::new(Role::User, [Block::tool_result("c", "ok"), Block::text("and")]),
        ];
        let list = of_messages(messages, Some("None.")).messages;
        let none = Message::assistant("None.");
        assert_eq!(
            list,
            [
                Message::new(Role::User, [Block::text("One"), Block::text("[system: overloaded]")]),
                none.clone(),
                Message::user("Two"),
                Message::assistant("Yes"),
                Message::new(Role::User, [Block::text("[system: a note]"), Block::text("Three")]),
                call("a"),
                results("a"),
                none.clone(),
                Message::user("Four"),
                call("b"),
                Message::new(Role::User, [failed("b", "The call was interrupted and has no result.")]),
                none,
                Message::user("Five"),
                call("c"),
                Message::new(Role::User, [Block::tool_result("c", "ok"), Block::text("and")]),
            ]
        );
    }
}
