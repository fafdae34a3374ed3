//! Messages as a view of the event log, in both directions.
//!
//! Appending a message appends events ([`events_of_message`]); reading the history folds events into
//! messages ([`fold`]). Messages to events to messages gives equal messages.
//!
//! The kind of an event usually shows where a message begins. A prompt is a message. Texts and tool calls of an agent
//! are one message until a tool answers, and the answers are a user message. For two messages of one role in a row,
//! or two texts in one message, the event has an explicit `starts`.

use crate::event::{AssistantText, MessageEvent, SystemMessage, ToolCall, ToolResult, UserMessage};
use crate::{Block, Event, Message, Role, ToolOutput};

/// The message at the end of a log, as far as later events may continue it.
///
/// This is all that has to be remembered to count messages without reading the log again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Open {
    /// No message, or one that no later event continues.
    #[default]
    Nothing,
    /// A prompt.
    Prompt,
    /// Results of tools.
    Results,
    /// Texts and tool calls of an agent.
    Assistant,
}

impl Open {
    /// Every state there is.
    pub const ALL: [Self; 4] = [Self::Nothing, Self::Prompt, Self::Results, Self::Assistant];

    /// Returns the name that is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Prompt => "prompt",
            Self::Results => "results",
            Self::Assistant => "assistant",
        }
    }

    /// Returns the state of this name. After an unknown name the next event starts a message.
    pub fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|open| open.as_str() == name).unwrap_or_default()
    }

    /// Returns the position of `event` and advances to the state after it.
    pub fn place(&mut self, event: &Event) -> MessagePosition {
        let (next, continues) = match event {
            Event::UserMessage(UserMessage { starts, .. }) => {
                (Self::Prompt, *starts == Some(false) && matches!(self, Self::Prompt | Self::Results))
            }
            Event::ToolResult(ToolResult { starts, subagent: None, .. }) => {
                let continues = match starts {
                    Some(true) => false,
                    Some(false) => matches!(self, Self::Prompt | Self::Results),
                    None => *self == Self::Results,
                };
                (Self::Results, continues)
            }
            Event::AssistantText(AssistantText { starts, subagent: None, .. })
            | Event::ToolCall(ToolCall { starts, subagent: None, .. }) => {
                (Self::Assistant, *starts != Some(true) && *self == Self::Assistant)
            }
            Event::Plan(_) => (Self::Assistant, *self == Self::Assistant),
            Event::SystemMessage(_) | Event::Error(_) | Event::Message(_) => (Self::Nothing, false),
            // The result of the call that started a subagent summarises its work.
            Event::AssistantText(_)
            | Event::ToolCall(_)
            | Event::ToolResult(_)
            | Event::Init(_)
            | Event::Hook(_)
            | Event::Command(_)
            | Event::Complete(_)
            | Event::ModelSwitch(_)
            | Event::Compacting
            | Event::Compacted
            | Event::Reasoning(_)
            | Event::Changes(_)
            | Event::Undo(_)
            | Event::Unknown(_) => return MessagePosition::Nowhere,
        };
        *self = next;
        if continues { MessagePosition::Continues } else { MessagePosition::Starts }
    }
}

/// The position of an event in the list of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessagePosition {
    /// It is the first of a new message.
    Starts,
    /// It belongs to the message before it.
    Continues,
    /// It is part of no message.
    Nowhere,
}

/// Folds events into messages, one event at a time.
#[derive(Debug, Default)]
pub struct Fold {
    open: Open,
    messages: Vec<Message>,
}

impl Fold {
    /// Takes the next event.
    pub fn push(&mut self, event: Event) {
        let place = self.open.place(&event);
        let Some(mut message) = message_of_event(event) else {
            return;
        };
        match (place, self.messages.last_mut()) {
            (MessagePosition::Continues, Some(last)) => last.content.append(&mut message.content),
            (MessagePosition::Starts, _) | (MessagePosition::Continues, None) => self.messages.push(message),
            (MessagePosition::Nowhere, _) => {}
        }
    }

    /// Returns the messages.
    pub fn finish(self) -> Vec<Message> {
        self.messages
    }
}

/// Folds events into messages.
///
/// ```
/// use azureal_core::{Event, Message, fold};
///
/// let log = [Event::user("Hello"), Event::assistant("Hi!")];
/// assert_eq!(fold(log), [Message::user("Hello"), Message::assistant("Hi!")]);
/// ```
pub fn fold(events: impl IntoIterator<Item = Event>) -> Vec<Message> {
    let mut fold = Fold::default();
    for event in events {
        fold.push(event);
    }
    fold.finish()
}

/// Returns the message, or the part of one, that an event stands for.
fn message_of_event(event: Event) -> Option<Message> {
    let (role, block) = match event {
        Event::UserMessage(UserMessage { content, .. }) => (Role::User, Block::text(content)),
        Event::AssistantText(AssistantText { text, .. }) => (Role::Assistant, Block::text(text)),
        Event::Plan(plan) => (Role::Assistant, Block::text(plan.content)),
        Event::ToolCall(call) => (
            Role::Assistant,
            Block::ToolUse { id: call.tool_use_id, name: call.tool_name, input: call.input },
        ),
        Event::ToolResult(result) => (
            Role::User,
            Block::ToolResult {
                tool_use_id: result.tool_use_id,
                content: ToolOutput::Text(result.content),
                is_error: result.is_error,
            },
        ),
        Event::SystemMessage(SystemMessage { content, .. }) => (Role::System, Block::text(content)),
        Event::Error(error) => (Role::System, Block::text(error.message)),
        Event::Message(MessageEvent { role, content }) => return Some(Message { role, content }),
        Event::Init(_)
        | Event::Hook(_)
        | Event::Command(_)
        | Event::Complete(_)
        | Event::ModelSwitch(_)
        | Event::Compacting
        | Event::Compacted
        | Event::Reasoning(_)
        | Event::Changes(_)
        | Event::Undo(_)
        | Event::Unknown(_) => return None,
    };
    Some(Message::new(role, [block]))
}

/// Returns the events that stand for a message, so that [`fold`] gives an equal message back.
pub fn events_of_message(message: Message) -> Vec<Event> {
    let Message { role, content } = message;
    if !is_expressible(role, &content) {
        return vec![Event::Message(MessageEvent { role, content })];
    }
    content.into_iter().enumerate().map(|(index, block)| event_of_block(role, block, index == 0)).collect()
}

/// Returns whether each block can be stored as an event of its own kind, in this role and beside the other blocks.
fn is_expressible(role: Role, content: &[Block]) -> bool {
    let each = content.iter().all(|block| {
        matches!(
            (role, block),
            (_, Block::Text { .. })
                | (Role::Assistant, Block::ToolUse { .. })
                | (Role::User, Block::ToolResult { content: ToolOutput::Text(_), .. })
        )
    });
    // A system message is one event, so that its record of context commands has one place.
    each && !content.is_empty() && (role != Role::System || content.len() == 1)
}

/// Creates the event of one block; `first` is whether its message starts with it.
fn event_of_block(role: Role, block: Block, first: bool) -> Event {
    match (role, block) {
        // By default a prompt starts a message, and an agent's event continues one.
        (Role::User, Block::Text { text }) => {
            Event::UserMessage(UserMessage { content: text, starts: (!first).then_some(false) })
        }
        (Role::Assistant, Block::Text { text }) => {
            Event::AssistantText(AssistantText { text, starts: first.then_some(true), subagent: None })
        }
        (Role::System, Block::Text { text }) => {
            Event::SystemMessage(SystemMessage { content: text, ..SystemMessage::default() })
        }
        (Role::Assistant, Block::ToolUse { id, name, input }) => Event::ToolCall(ToolCall {
            tool_use_id: id,
            tool_name: name,
            input,
            starts: first.then_some(true),
            ..ToolCall::default()
        }),
        (Role::User, Block::ToolResult { tool_use_id, content: ToolOutput::Text(content), is_error }) => {
            Event::ToolResult(ToolResult {
                tool_use_id,
                content,
                is_error,
                starts: Some(first),
                ..ToolResult::default()
            })
        }
        (role, block) => Event::Message(MessageEvent { role, content: vec![block] }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str) -> Event {
        Event::ToolCall(ToolCall {
            tool_use_id: id.into(),
            tool_name: "Bash".into(),
            input: json!({"command": "ls"}).into(),
            ..ToolCall::default()
        })
    }

    fn result(id: &str, subagent: Option<&str>) -> Event {
        Event::ToolResult(ToolResult {
            tool_use_id: id.into(),
            content: "ok".into(),
            subagent: subagent.map(Into::into),
            ..ToolResult::default()
        })
    }

    #[test]
    fn what_an_agent_did_becomes_messages_by_its_kinds() {
        let log = [
            Event::user("go"),
            Event::assistant("first"),
            call("a"),
            call("b"),
            result("a", None),
            Event::Compacting,
            result("inner", Some("a")),
            result("b", None),
            Event::assistant("done"),
            Event::Complete(crate::event::Complete::default()),
            Event::user("again"),
            Event::user("and again"),
            Event::error("agent", "it broke"),
        ];
        let bash = |id: &str| Block::tool_use(id, "Bash", json!({"command": "ls"}));
        assert_eq!(
            fold(log),
            [
                Message::user("go"),
                Message::new(Role::Assistant, [Block::text("first"), bash("a"), bash("b")]),
                Message::new(Role::User, [Block::tool_result("a", "ok"), Block::tool_result("b", "ok")]),
                Message::assistant("done"),
                Message::user("again"),
                Message::user("and again"),
                Message::system("it broke"),
            ]
        );
    }

    #[test]
    fn messages_of_one_role_in_a_row_stay_apart_and_their_blocks_together() {
        let messages = [
            Message::assistant("one"),
            Message::new(Role::Assistant, [Block::text("two"), Block::text("three")]),
            Message::new(Role::User, [Block::tool_result("a", "x"), Block::text("and this")]),
            Message::new(Role::User, [Block::text("p"), Block::text("q"), Block::tool_result("b", "y")]),
            Message::new(Role::User, [Block::tool_result("c", "z")]),
            Message::new(Role::User, []),
            Message::new(Role::System, [Block::text("s"), Block::text("t")]),
            Message::new(Role::User, [Block::tool_use("odd", "Bash", json!({}))]),
        ];
        let events = messages.iter().cloned().flat_map(events_of_message);
        assert_eq!(fold(events), messages);
    }
}
