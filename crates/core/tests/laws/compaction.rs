//! What holds for every history that is compacted.

use std::collections::HashMap;

use azureal_core::event::{Complete, MessageEvent, ToolCall, ToolResult};
use azureal_core::{
    AutoCompactStore, Block, Boundary, ContextStore, Digest, Event, Json, Keep, MemoryContextStore, Message,
    Role, SUMMARY_PROMPT, Seq, StoreError, StubTransport, Threshold, boundary, build_context,
    compact_context, events_of_message,
};
use futures_executor::block_on;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::tried;

fn text() -> BoxedStrategy<String> {
    prop_oneof![
        4 => (0..900_usize).prop_map(|length| "word ".repeat(length / 5)),
        1 => vec(any::<char>(), 0..40).prop_map(String::from_iter),
    ]
    .boxed()
}

/// Few, so that they are used again and answered twice.
fn id() -> BoxedStrategy<String> {
    (0..4_u8).prop_map(|id| id.to_string()).boxed()
}

fn block() -> BoxedStrategy<Block> {
    prop_oneof![
        text().prop_map(Block::text),
        id().prop_map(|id| Block::tool_use(id, "Bash", Json::empty_object())),
        (id(), text()).prop_map(|(id, text)| Block::tool_result(id, text)),
    ]
    .boxed()
}

fn message() -> BoxedStrategy<Message> {
    let role = prop_oneof![5 => Just(Role::User), 5 => Just(Role::Assistant), 1 => Just(Role::System)];
    (role, vec(block(), 0..3)).prop_map(|(role, content)| Message::new(role, content)).boxed()
}

/// An event of a conversation without tools.
fn said() -> BoxedStrategy<Event> {
    prop_oneof![
        3 => text().prop_map(Event::user),
        4 => text().prop_map(Event::assistant),
        2 => Just(Event::Complete(Complete { success: true, ..Complete::default() })),
        1 => text().prop_map(|text| Event::error("kind", text)),
        1 => Just(Event::Compacting),
    ]
    .boxed()
}

fn event() -> BoxedStrategy<Event> {
    prop_oneof![
        5 => said(),
        3 => (id(), text()).prop_map(|(tool_use_id, text)| Event::ToolCall(ToolCall {
            tool_use_id,
            tool_name: "Bash".into(),
            input: serde_json::json!({"command": text}).into(),
            ..ToolCall::default()
        })),
        3 => (id(), text(), any::<bool>()).prop_map(|(tool_use_id, content, is_error)| {
            Event::ToolResult(ToolResult { tool_use_id, content, is_error, ..ToolResult::default() })
        }),
        1 => message().prop_map(|Message { role, content }| Event::Message(MessageEvent { role, content })),
    ]
    .boxed()
}

fn keep() -> BoxedStrategy<Keep> {
    prop_oneof![3 => Just(Keep::Usual), 1 => (0..6_usize).prop_map(Keep::Prompts)].boxed()
}

fn found(events: &[Event], threshold: u64, keep: Keep) -> Option<Boundary> {
    let log: Vec<_> = (1..).map(Seq).zip(events.iter().cloned()).collect();
    boundary(&log, Threshold::Chars(threshold), keep)
}

fn index(boundary: Boundary) -> usize {
    usize::try_from(boundary.after_seq.0).unwrap()
}

/// Returns the calls and the results in a part of a history, in their order.
fn tools(content: &[Block]) -> Vec<(bool, &str)> {
    let tools = content.iter().filter_map(|block| match block {
        Block::ToolUse { id, .. } => Some((true, id.as_str())),
        Block::ToolResult { tool_use_id, .. } => Some((false, tool_use_id.as_str())),
        Block::Text { .. } | Block::Image(_) => None,
    });
    tools.collect()
}

/// Returns whether a cut lies between a call and its result: the newest call of the id before it.
fn parts_a_pair<'a>(parts: impl IntoIterator<Item = Vec<(bool, &'a str)>>, cut: usize) -> bool {
    let mut calls = HashMap::new();
    for (index, part) in parts.into_iter().enumerate() {
        for (is_call, id) in part {
            if is_call {
                calls.insert(id, index);
            } else if calls.get(id).is_some_and(|call| *call < cut && index >= cut) {
                return true;
            }
        }
    }
    false
}

fn tools_of_event(event: &Event) -> Vec<(bool, &str)> {
    match event {
        Event::ToolCall(call) => vec![(true, call.tool_use_id.as_str())],
        Event::ToolResult(result) => vec![(false, result.tool_use_id.as_str())],
        Event::Message(message) => tools(&message.content),
        _ => Vec::new(),
    }
}

fn chars(events: &[Event]) -> usize {
    build_context(None, None, events).chars().count()
}

fn prompts(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::UserMessage(_))).count()
}

proptest! {
    #![proptest_config(tried(2_000))]

    #[test]
    fn a_boundary_covers_something_and_parts_no_call_from_its_result(
        events in vec(event(), 0..40),
        threshold in 100..20_000_u64,
        keep in keep(),
    ) {
        let Some(boundary) = found(&events, threshold, keep) else { return Ok(()) };
        let cut = index(boundary);
        prop_assert!((1..=events.len()).contains(&cut));
        prop_assert!(chars(&events[..cut]) > 0, "something is summarised");
        prop_assert!(!parts_a_pair(events.iter().map(tools_of_event), cut));
    }

    #[test]
    fn the_newest_prompts_stay_and_not_too_much_of_them(
        events in vec(said(), 0..60),
        threshold in 400..20_000_u64,
    ) {
        let limit = |part: u64| usize::try_from(threshold / part).unwrap();
        // The note that a record follows is not counted with the events.
        let room = chars(&[Event::user("")]);
        let boundary = found(&events, threshold, Keep::Usual);
        let fits = [3, 2, 1].into_iter().any(|count| {
            let first = events.iter().enumerate().filter(|(_, event)| matches!(event, Event::UserMessage(_))).rev().nth(count - 1);
            first.is_some_and(|(index, _)| chars(&events[..index]) > 0 && chars(&events[index..]) + room < limit(2))
        });
        let Some(boundary) = boundary else {
            prop_assert!(!fits, "there was a boundary");
            return Ok(());
        };
        let rest = &events[index(boundary)..];
        if fits {
            prop_assert!(chars(rest) <= limit(2) + room);
        }
        if boundary.inside_turn {
            prop_assert_eq!(prompts(rest), 0);
            let last = rest.iter().map(|event| chars(std::slice::from_ref(event))).max().unwrap_or(0);
            prop_assert!(chars(rest) <= limit(4).max(last) + room, "{} of {threshold}", chars(rest));
        } else if !rest.is_empty() {
            prop_assert!(prompts(rest) <= 3, "{rest:?}");
        }
    }

    #[test]
    fn a_digest_is_bounded_and_always_the_same(events in vec(event(), 0..40), earlier in proptest::option::of(text())) {
        let digest = || {
            let mut digest = earlier.as_deref().map(Digest::after).unwrap_or_default();
            events.iter().for_each(|event| digest.push(event));
            digest.finish()
        };
        prop_assert!(digest().chars().count() <= 4_000);
        prop_assert_eq!(digest(), digest());
    }

    #[test]
    fn a_compacted_conversation_is_system_message_summary_and_the_newest(
        messages in vec(message(), 0..16),
        keep in 0..18_usize,
    ) {
        let store = MemoryContextStore::new(messages.clone());
        let transport = StubTransport::new(["the summary"]);
        let compacted = block_on(compact_context(&store, &transport).keep_recent(keep).into_future()).unwrap();
        let system = messages.iter().take(1).filter(|first| first.role == Role::System).count();
        let Some(compacted) = compacted else {
            // Too short, or one long chain of calls.
            let cuts = system + 1..=messages.len().saturating_sub(keep);
            prop_assert!(cuts.into_iter().all(|cut| parts_a_pair(messages.iter().map(|m| tools(&m.content)), cut)));
            return Ok(());
        };
        let stay = compacted.len() - system - 2;
        prop_assert!(stay >= keep.min(messages.len()));
        prop_assert_eq!(&compacted[..system], &messages[..system]);
        prop_assert!(compacted[system].first_text().unwrap().ends_with("the summary"));
        prop_assert_eq!(&compacted[system + 2..], &messages[messages.len() - stay..]);
        prop_assert!(!parts_a_pair(messages.iter().map(|m| tools(&m.content)), messages.len() - stay));
        // All that is covered, and nothing that stays, was told to the model.
        let told: Vec<Event> = messages[system..messages.len() - stay].iter().cloned().flat_map(events_of_message).collect();
        let expected = [Message::system(SUMMARY_PROMPT), Message::user(build_context(None, None, &told))];
        prop_assert_eq!(transport.requests(), vec![expected.to_vec()]);
        prop_assert_eq!(block_on(store.get_history()).unwrap(), messages);
    }
}

/// A store of two methods that reads a file, with `?` on the errors of other crates.
struct FileStore(std::path::PathBuf);

#[azureal_core::async_trait]
impl ContextStore for FileStore {
    async fn append(&self, message: Message) -> Result<(), StoreError> {
        let mut messages = self.get_history().await?;
        messages.push(message);
        Ok(std::fs::write(&self.0, serde_json::to_string(&messages)?)?)
    }

    async fn get_history(&self) -> Result<Vec<Message>, StoreError> {
        let bytes = std::fs::read(&self.0)?;
        Ok(serde_json::from_str(std::str::from_utf8(&bytes).map_err(StoreError::other)?)?)
    }
}

#[test]
fn a_store_of_two_methods_needs_no_more() {
    let path = std::env::temp_dir().join(format!("azureal-two-methods-{}", std::process::id()));
    let store = FileStore(path.clone());
    let missing = block_on(store.get_history()).unwrap_err();
    assert_eq!(missing.kind(), "store");
    assert!(std::error::Error::source(&missing).is_some(), "the system's own error is kept");
    std::fs::write(&path, "[]").unwrap();
    block_on(store.append(Message::user("Hello"))).unwrap();
    assert_eq!(block_on(store.get_history()).unwrap(), [Message::user("Hello")]);
    assert_eq!((store.session_id().len(), store.session_id()), (32, store.session_id()));
    let other = FileStore(path.clone());
    assert_ne!(store.session_id(), other.session_id());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_fork_can_be_compacted_and_asked_why_it_was_not() {
    let transport = std::sync::Arc::new(StubTransport::new(["the summary"]));
    let store = AutoCompactStore::new(MemoryContextStore::default(), std::sync::Arc::clone(&transport));
    for number in 0..20 {
        block_on(store.append(Message::user(format!("Message {number}")))).unwrap();
    }
    block_on(store.set_context_tokens(5, 7)).unwrap();
    let fork = block_on(store.fork_compacting()).unwrap();
    assert_eq!(block_on(fork.get_context_tokens()).unwrap(), (5, 7));
    assert!(block_on(fork.compact()).unwrap());
    assert!(fork.last_failure().is_none());
    assert_eq!(block_on(fork.get_history()).unwrap().len(), 8);
    assert_eq!(block_on(store.get_history()).unwrap().len(), 20);
}
