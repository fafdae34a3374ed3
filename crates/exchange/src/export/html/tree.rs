//! Events as a tree: a call has its result, and the work of its subagent.

use std::collections::HashMap;

use azureal_core::event::ToolResult;
use azureal_core::{Event, Seq};

/// The deepest nesting of subagents that is shown as such.
const DEPTH: usize = 6;

/// An event, with what belongs to it.
pub(super) struct Node {
    pub(super) seq: Seq,
    pub(super) event: Event,
    /// The result of a call.
    pub(super) result: Option<ToolResult>,
    /// The events of the subagent of a call.
    pub(super) children: Vec<usize>,
    depth: usize,
}

/// The events of a session.
#[derive(Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    top: Vec<usize>,
    /// The newest call of each id. Ids may be used again.
    calls: HashMap<String, usize>,
}

impl Tree {
    pub(super) fn add(&mut self, seq: Seq, event: Event) {
        if let Event::ToolResult(result) = &event
            && let Some(call) = self.calls.get(&result.tool_use_id).and_then(|call| self.nodes.get_mut(*call))
            && call.result.is_none()
        {
            call.result = Some(result.clone());
            return;
        }
        let subagent = match &event {
            Event::AssistantText(text) => text.subagent.as_deref(),
            Event::ToolCall(call) => call.subagent.as_deref(),
            Event::ToolResult(result) => result.subagent.as_deref(),
            Event::Reasoning(reasoning) => reasoning.subagent.as_deref(),
            _ => None,
        };
        let index = self.nodes.len();
        // A parent stands before its children, so there is no circle.
        let parent = subagent.and_then(|id| self.calls.get(id)).copied();
        let depth =
            match parent.and_then(|parent| self.nodes.get_mut(parent)).filter(|node| node.depth < DEPTH) {
                Some(node) => {
                    node.children.push(index);
                    node.depth + 1
                }
                None => {
                    self.top.push(index);
                    0
                }
            };
        if let Event::ToolCall(call) = &event {
            self.calls.insert(call.tool_use_id.clone(), index);
        }
        self.nodes.push(Node { seq, event, result: None, children: Vec::new(), depth });
    }

    /// Returns the events that belong to no other.
    pub(super) fn top(&self) -> impl Iterator<Item = &Node> {
        self.nodes_at(&self.top)
    }

    /// Returns the events of the subagent of a call.
    pub(super) fn children<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        self.nodes_at(&node.children)
    }

    fn nodes_at<'a>(&'a self, indices: &'a [usize]) -> impl Iterator<Item = &'a Node> {
        indices.iter().filter_map(|index| self.nodes.get(*index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(json: &str) -> Event {
        Event::from_json(json).unwrap()
    }

    #[test]
    fn a_call_has_its_result_and_its_subagent() {
        let mut tree = Tree::default();
        for (seq, json) in [
            r#"{"ToolCall":{"tool_use_id":"a","tool_name":"Task"}}"#,
            r#"{"ToolCall":{"tool_use_id":"b","tool_name":"Bash","subagent":"a"}}"#,
            r#"{"ToolResult":{"tool_use_id":"b","content":"inner","subagent":"a"}}"#,
            r#"{"AssistantText":{"text":"found","subagent":"a"}}"#,
            r#"{"ToolResult":{"tool_use_id":"a","content":"outer"}}"#,
            r#"{"ToolResult":{"tool_use_id":"a","content":"late"}}"#,
            r#"{"AssistantText":{"text":"x","subagent":"unknown"}}"#,
        ]
        .iter()
        .enumerate()
        {
            tree.add(Seq(seq as u64 + 1), event(json));
        }
        let top: Vec<&Node> = tree.top().collect();
        assert_eq!(top.iter().map(|node| node.seq.0).collect::<Vec<_>>(), [1, 6, 7]);
        assert_eq!(top[0].result.as_ref().unwrap().content, "outer");
        let children: Vec<&Node> = tree.children(top[0]).collect();
        assert_eq!(children.iter().map(|node| node.seq.0).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(children[0].result.as_ref().unwrap().content, "inner");
    }

    #[test]
    fn subagents_of_subagents_have_an_end() {
        let mut tree = Tree::default();
        for number in 0..100 {
            let parent = number - 1;
            tree.add(
                Seq(1),
                event(&format!(
                    r#"{{"ToolCall":{{"tool_use_id":"{number}","tool_name":"Task","subagent":"{parent}"}}}}"#
                )),
            );
        }
        assert!(tree.nodes.iter().all(|node| node.depth <= DEPTH));
        assert!(tree.top().count() > 1);
    }
}
