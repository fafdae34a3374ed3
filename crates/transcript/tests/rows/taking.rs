//! Blocks that are taken out of a transcript to be printed once.

use azureal_core::event::{ToolCall, ToolResult};
use azureal_core::{Event, Seq};
use azureal_transcript::{Block, CallState, Content, Places, Transcript, printed_rows, rows};

use crate::{Fold, layout};

fn call(id: &str) -> Event {
    Event::ToolCall(ToolCall {
        tool_use_id: id.into(),
        tool_name: "Bash".into(),
        input: serde_json::json!({"command": id, "timeout": 5}).into(),
        ..ToolCall::default()
    })
}

fn result(id: &str) -> Event {
    let (tool_use_id, content) = (id.into(), format!("of {id}"));
    Event::ToolResult(ToolResult { tool_use_id, content, ..ToolResult::default() })
}

fn push(transcript: &mut Transcript, events: &[Event]) {
    for event in events {
        let next = transcript.last().unwrap_or(Seq::START).next();
        transcript.push(next, event);
    }
}

fn named(blocks: &[Block]) -> Vec<String> {
    blocks.iter().map(|block| block.source().lines().next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_block_is_taken_once_nothing_can_change_it() {
    let mut transcript = Transcript::new(Places::default());
    push(
        &mut transcript,
        &[Event::user("hi"), Event::assistant("a"), call("one"), call("two"), result("two")],
    );
    assert_eq!(named(&transcript.take_stable()), ["hi", "a"]);
    assert!(transcript.take_stable().is_empty());
    // The second call overtakes the first, whose result still finds it.
    assert_eq!(named(&transcript.take_finished()), ["two"]);
    push(&mut transcript, &[result("one"), Event::assistant("b")]);
    let taken = transcript.take_stable();
    assert_eq!(named(&taken), ["one", "b"]);
    let Content::Call(answered) = &taken[0].content else { panic!("{taken:?}") };
    assert_eq!((answered.state, answered.output.as_str()), (CallState::Done, "of one"));
    // The heading above the text that was taken counts for the next one.
    assert!(matches!(&taken[1].content, Content::Text(text) if !text.has_heading));
    push(&mut transcript, &[call("three")]);
    assert_eq!(named(&transcript.take_all()), ["three"]);
    assert!(transcript.blocks().is_empty());
}

#[test]
fn printed_rows_have_no_mark_of_a_fold_and_an_open_call_has_all_arguments() {
    let mut transcript = Transcript::new(Places::default());
    push(&mut transcript, &[call("ls"), result("ls")]);
    let block = &transcript.blocks()[0];
    let texts = |rows: Vec<azureal_transcript::Row>| {
        rows.iter().map(azureal_transcript::Row::text).collect::<Vec<_>>()
    };
    assert_eq!(texts(rows(block, &layout(30, Fold::Preview))), ["▾ ✓ Bash ls             1 line", "  of ls"]);
    assert_eq!(
        texts(printed_rows(block, &layout(30, Fold::Open))),
        ["✓ Bash ls               1 line", "    timeout: 5", "  of ls"]
    );
}
