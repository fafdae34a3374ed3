//! A session as documents for people show it: a call has its result and the work of its subagent, and summaries stand between the events.

use std::collections::HashMap;
use std::iter;

use azureal_core::event::{MessageEvent, ToolCall, ToolResult};
use azureal_core::{Block, Compaction, Event, Role, Seq, SessionRecord, ToolOutput};

use super::masking::Masking;
use super::{ExportError, Source, each_event};
use crate::DamagedEvents;

/// The deepest nesting of subagents that is shown as such.
const DEPTH: usize = 6;

/// An event, with what belongs to it. A message with calls is several: each call, and what stands between them.
pub(super) struct Node {
    /// The number of the event; [`Seq::START`] if another part of the event has it.
    pub(super) seq: Seq,
    pub(super) event: Event,
    /// The result of a call.
    pub(super) result: Option<Answer>,
    /// The events of the subagent of a call.
    children: Vec<usize>,
    depth: usize,
}

/// The result of a call, as an event or as a part of a message.
pub(super) struct Answer {
    /// As that of a node.
    pub(super) seq: Seq,
    pub(super) output: ToolOutput,
    pub(super) is_error: bool,
    /// What is shown in place of the output.
    pub(super) detail: Option<String>,
    pub(super) omitted: Option<u64>,
}

impl Node {
    /// Returns whether the event belongs to a call.
    pub(super) fn is_inner(&self) -> bool {
        self.depth > 0
    }
}

impl Answer {
    pub(super) fn of(seq: Seq, result: ToolResult) -> Self {
        let ToolResult { content, is_error, detail, omitted, .. } = result;
        Self { seq, output: ToolOutput::Text(content), is_error, detail, omitted }
    }
}

/// A part of the document.
pub(super) enum Part<'a> {
    Node(&'a Node),
    Summary(&'a Compaction),
}

/// The events and summaries of a session.
#[derive(Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    top: Vec<usize>,
    /// The newest call of each id. Ids may be used again.
    calls: HashMap<String, usize>,
    summaries: Vec<Compaction>,
}

impl Tree {
    pub(super) async fn read(
        source: &Source<'_>,
        record: &SessionRecord,
        masking: &mut Masking<'_>,
    ) -> Result<(Self, DamagedEvents), ExportError> {
        let mut tree = Self::default();
        let damaged = each_event(source, record.id, masking, |seq, event| {
            tree.add(seq, event);
            Ok(())
        })
        .await?;
        for mut summary in source.store.compactions(record.id).await? {
            summary.summary = masking.text(&summary.summary).into_owned();
            summary.writer = summary.writer.map(|writer| masking.name(&writer).into_owned());
            tree.summaries.push(summary);
        }
        Ok((tree, damaged))
    }

    pub(super) fn add(&mut self, seq: Seq, event: Event) {
        match event {
            Event::Message(MessageEvent { role, content }) => self.add_message(seq, role, content),
            Event::ToolResult(result) => match self.open_call(&result.tool_use_id) {
                Some(call) => call.result = Some(Answer::of(seq, result)),
                None => self.push(seq, Event::ToolResult(result)),
            },
            event => self.push(seq, event),
        }
    }

    fn add_message(&mut self, seq: Seq, role: Role, content: Vec<Block>) {
        // The first part has the number.
        let mut seqs = iter::once(seq).chain(iter::repeat(Seq::START));
        let mut next_seq = || seqs.next().unwrap_or(Seq::START);
        let mut rest = Vec::new();
        let message = |content| Event::Message(MessageEvent { role, content });
        for block in content {
            match block {
                Block::ToolUse { id, name, input } => {
                    if !rest.is_empty() {
                        self.push(next_seq(), message(std::mem::take(&mut rest)));
                    }
                    let call = ToolCall { tool_use_id: id, tool_name: name, input, ..ToolCall::default() };
                    self.push(next_seq(), Event::ToolCall(call));
                }
                Block::ToolResult { tool_use_id, content, is_error } => match self.open_call(&tool_use_id) {
                    Some(call) => {
                        let (detail, omitted) = (None, None);
                        call.result =
                            Some(Answer { seq: next_seq(), output: content, is_error, detail, omitted });
                    }
                    None => rest.push(Block::ToolResult { tool_use_id, content, is_error }),
                },
                block => rest.push(block),
            }
        }
        if !rest.is_empty() {
            self.push(next_seq(), message(rest));
        }
    }

    /// Returns the newest call of an id, if it has no result yet.
    fn open_call(&mut self, id: &str) -> Option<&mut Node> {
        let call = self.calls.get(id).and_then(|call| self.nodes.get_mut(*call));
        call.filter(|call| call.result.is_none())
    }

    fn push(&mut self, seq: Seq, event: Event) {
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

    /// Returns the events that belong to no other, and each summary behind the events that it covers.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let mut nodes = self.top().peekable();
        let mut summaries = self.summaries.iter().peekable();
        iter::from_fn(move || {
            let next = nodes.peek().map(|node| node.seq);
            match summaries.next_if(|summary| next.is_none_or(|seq| summary.after_seq < seq)) {
                Some(summary) => Some(Part::Summary(summary)),
                None => nodes.next().map(Part::Node),
            }
        })
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
        let result = |node: &Node| {
            node.result.as_ref().map(|result| (result.seq.0, result.output.text().into_owned()))
        };
        assert_eq!(result(top[0]), Some((5, "outer".to_owned())));
        let children: Vec<&Node> = tree.children(top[0]).collect();
        assert_eq!(children.iter().map(|node| node.seq.0).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(result(children[0]), Some((3, "inner".to_owned())));
    }

    #[test]
    fn calls_and_results_in_messages_belong_together() {
        let mut tree = Tree::default();
        for (seq, json) in [
            r#"{"Message":{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"a","name":"Look","input":{}},{"type":"tool_use","id":"b","name":"Look","input":{}}]}}"#,
            r#"{"ToolResult":{"tool_use_id":"b","content":"B"}}"#,
            r#"{"Message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"image","media_type":"image/png","data":"AQID"}]},{"type":"tool_result","tool_use_id":"a","content":"late"},{"type":"text","text":"y"}]}}"#,
        ]
        .iter()
        .enumerate()
        {
            tree.add(Seq(seq as u64 + 1), event(json));
        }
        let shown: Vec<String> = tree
            .top()
            .map(|Node { seq, event, result, .. }| {
                let result =
                    result.as_ref().map(|result| format!(", {}: {}", result.seq, result.output.text()));
                format!("{seq}: {}{}", event.kind(), result.unwrap_or_default())
            })
            .collect();
        assert_eq!(
            shown,
            ["1: Message", "0: ToolCall, 3: [image: image/png, 3 bytes]", "0: ToolCall, 2: B", "0: Message"]
        );
    }

    #[test]
    fn a_summary_stands_behind_what_it_covers() {
        let mut tree = Tree::default();
        for seq in 1..=3 {
            tree.add(Seq(seq), Event::user("x"));
        }
        tree.summaries = [0, 2, 9].map(|seq| Compaction::new(Seq(seq), "s")).into();
        let order: Vec<String> = tree
            .parts()
            .map(|part| match part {
                Part::Node(node) => node.seq.to_string(),
                Part::Summary(summary) => format!("until {}", summary.after_seq),
            })
            .collect();
        assert_eq!(order, ["until 0", "1", "2", "until 2", "3", "until 9"]);
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
