//! Tool calls with their results, as providers require them: each result is in the message after its call, each call has one, and no result is
//! without a call.

use std::collections::HashMap;

use azureal_core::{Block, Message, Role, ToolOutput};

/// The result of a call that has none.
const INTERRUPTED: &str = "The call was interrupted and has no result.";

/// The place of a block: its message, and its number there.
type Place = (usize, usize);

/// A message without the results of calls.
struct Rest {
    role: Role,
    had_results: bool,
    blocks: Vec<(usize, Block)>,
}

/// Moves each result to the message after its call: one with results, or a new one, so that a prompt stays a message of its own. A call without a
/// result gets an error as its result; a result without a call becomes text.
pub(super) fn paired(messages: Vec<Message>) -> Vec<Message> {
    let answers = answers(&messages);
    let mut results: HashMap<Place, Block> = HashMap::new();
    let rest: Vec<Rest> = messages
        .into_iter()
        .enumerate()
        .map(|(index, Message { role, content })| {
            let mut rest = Rest { role, had_results: false, blocks: Vec::new() };
            for (number, block) in content.into_iter().enumerate() {
                match block {
                    Block::ToolResult { content, .. } if !answers.results.contains_key(&(index, number)) => {
                        rest.blocks.push((number, Block::text(format!("[tool result]\n{}", content.text()))));
                    }
                    result @ Block::ToolResult { .. } => {
                        results.insert((index, number), result);
                        rest.had_results = role == Role::User;
                    }
                    other => rest.blocks.push((number, other)),
                }
            }
            rest
        })
        .collect();
    let mut paired: Vec<Message> = Vec::new();
    let mut pending = Vec::new();
    for (index, Rest { role, had_results, blocks }) in rest.into_iter().enumerate() {
        let mut content = if had_results { std::mem::take(&mut pending) } else { Vec::new() };
        if !pending.is_empty() && !blocks.is_empty() {
            paired.push(Message::new(Role::User, std::mem::take(&mut pending)));
        }
        for (number, block) in blocks {
            if let Block::ToolUse { id, .. } = &block {
                let answer = answers.calls.get(&(index, number)).and_then(|place| results.remove(place));
                pending.push(answer.unwrap_or_else(|| Block::ToolResult {
                    tool_use_id: id.clone(),
                    content: ToolOutput::Text(INTERRUPTED.to_owned()),
                    is_error: true,
                }));
            }
            content.push(block);
        }
        // A message of results that belong elsewhere has no content.
        if !content.is_empty() {
            paired.push(Message { role, content });
        }
    }
    if !pending.is_empty() {
        paired.push(Message::new(Role::User, pending));
    }
    paired
}

/// The calls that have a result, and the results that have a call.
#[derive(Default)]
struct Answers {
    calls: HashMap<Place, Place>,
    results: HashMap<Place, Place>,
}

/// Finds the result of each call: the next one with its id. Ids may be used again.
fn answers(messages: &[Message]) -> Answers {
    let mut answers = Answers::default();
    let mut open: HashMap<&str, Place> = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        for (number, block) in message.content.iter().enumerate() {
            match block {
                Block::ToolUse { id, .. } => {
                    open.insert(id, (index, number));
                }
                Block::ToolResult { tool_use_id, .. } => {
                    if let Some(call) = open.remove(tool_use_id.as_str()) {
                        answers.calls.insert(call, (index, number));
                        answers.results.insert((index, number), call);
                    }
                }
                Block::Text { .. } | Block::Image(_) => {}
            }
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str) -> Block {
        Block::tool_use(id, "Bash", json!({}))
    }

    fn interrupted(id: &str) -> Block {
        Block::ToolResult {
            tool_use_id: id.to_owned(),
            content: ToolOutput::Text(INTERRUPTED.to_owned()),
            is_error: true,
        }
    }

    #[test]
    fn what_is_paired_stays_as_it_is() {
        let messages = vec![
            Message::user("go"),
            Message::new(Role::Assistant, [Block::text("so"), call("a"), call("b")]),
            Message::new(
                Role::User,
                [Block::tool_result("a", "1"), Block::tool_result("b", "2"), Block::text("and")],
            ),
            Message::new(Role::Assistant, [call("a")]),
            Message::new(Role::User, [Block::tool_result("a", "3")]),
            Message::assistant("done"),
        ];
        assert_eq!(paired(messages.clone()), messages);
    }

    #[test]
    fn a_late_result_moves_to_its_call() {
        let messages = vec![
            Message::new(Role::Assistant, [call("a"), call("b")]),
            Message::new(Role::User, [Block::tool_result("b", "2")]),
            Message::assistant("meanwhile"),
            Message::new(Role::User, [Block::tool_result("a", "1")]),
            Message::assistant("done"),
        ];
        assert_eq!(
            paired(messages),
            [
                Message::new(Role::Assistant, [call("a"), call("b")]),
                Message::new(Role::User, [Block::tool_result("a", "1"), Block::tool_result("b", "2")]),
                Message::assistant("meanwhile"),
                Message::assistant("done"),
            ]
        );
    }

    #[test]
    fn an_interrupted_call_gets_an_error_and_a_stray_result_is_text() {
        let messages = vec![
            Message::new(Role::Assistant, [call("a")]),
            Message::user("again"),
            Message::new(Role::User, [Block::tool_result("x", "lost")]),
            Message::new(Role::Assistant, [call("b")]),
            Message::assistant("next"),
            Message::new(Role::Assistant, [call("c")]),
        ];
        assert_eq!(
            paired(messages),
            [
                Message::new(Role::Assistant, [call("a")]),
                Message::new(Role::User, [interrupted("a")]),
                Message::user("again"),
                Message::user("[tool result]\nlost"),
                Message::new(Role::Assistant, [call("b")]),
                Message::new(Role::User, [interrupted("b")]),
                Message::assistant("next"),
                Message::new(Role::Assistant, [call("c")]),
                Message::new(Role::User, [interrupted("c")]),
            ]
        );
    }
}
