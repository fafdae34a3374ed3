//! Events as blocks.

use azureal_core::event::{
    AssistantText, Complete, Init, ModelSwitch, Outcome, Plan, Reasoning, ToolCall, ToolResult,
};
use azureal_transcript::{CallState, Content};

use super::*;

fn call(id: &str, tool: &str, input: serde_json::Value) -> Event {
    Event::ToolCall(ToolCall {
        tool_use_id: id.into(),
        tool_name: tool.into(),
        input: input.into(),
        ..ToolCall::default()
    })
}

fn result(id: &str, content: &str, is_error: bool) -> Event {
    Event::ToolResult(ToolResult {
        tool_use_id: id.into(),
        content: content.into(),
        is_error,
        ..ToolResult::default()
    })
}

fn turn() -> Vec<Event> {
    let path = |name: &str| serde_json::json!({"file_path": format!("/users/dev/project/{name}")});
    vec![
        Event::user("The login test still fails when two tabs refresh."),
        Event::Init(Init {
            cwd: "/users/dev/project".into(),
            model: "gpt-5.5".into(),
            agent: Some("codex".into()),
            ..Init::default()
        }),
        Event::Reasoning(Reasoning { text: "**Looking**\n\nat it".into(), ..Reasoning::default() }),
        Event::assistant("Two refreshes race on the same token row. I will lock it."),
        call("a", "Read", path("src/auth/token.rs")),
        call("b", "Bash", serde_json::json!({"command": "cargo test -p api login"})),
        result(
            "b",
            "Exit code 101\nrunning 3 tests\nthread 'login::two_tabs' panicked at tests/login.rs:41\n",
            true,
        ),
        result("a", &(1..=12).map(|n| format!("{n}\tx\n")).collect::<String>(), false),
        call(
            "c",
            "Edit",
            serde_json::json!({"file_path": "/users/dev/project/src/auth/token.rs",
            "old_string": "    let row = self.find(id)?;\n    row", "new_string": "    let row = self.find_for_update(id)?;\n    row"}),
        ),
        result("c", "Updated:\n   118→    let row = self.find_for_update(id)?;\n   119→    row\n", false),
        call("d", "Grep", serde_json::json!({"pattern": "find_for_update"})),
        result("d", "a:1\nb:2", false),
        call("e", "Write", serde_json::json!({"file_path": "/users/dev/notes", "content": "one\ntwo\n"})),
        result("e", "File created", false),
        call("f", "Edit", path("x")),
        result("f", "<tool_use_error>String to replace not found in file.</tool_use_error>", true),
        Event::AssistantText(AssistantText {
            text: "I looked.".into(),
            subagent: Some("g".into()),
            ..AssistantText::default()
        }),
        call("h", "Bash", serde_json::json!({"command": "sleep 9\necho done"})),
        Event::Plan(Plan { name: "Mend".into(), content: "1. a\n2. b".into() }),
        Event::ModelSwitch(ModelSwitch::reported("gpt-6")),
        Event::assistant("Done."),
        Event::Complete(Complete {
            success: true,
            duration_ms: 12_000,
            cost_usd: 0.04,
            ..Complete::default()
        }),
    ]
}

#[test]
fn a_turn_is_shown_at_each_width_and_fold() {
    let transcript = folded(&turn());
    for width in [120, 80, 40] {
        for fold in [Fold::Closed, Fold::Preview, Fold::Open] {
            let layout = layout(width, fold);
            for block in transcript.blocks() {
                check(block, &layout);
            }
            insta::assert_snapshot!(
                format!("turn_{width}_{fold:?}"),
                text(&screen(transcript.blocks(), &layout))
            );
        }
    }
    insta::assert_snapshot!("turn_styles", styled(&screen(transcript.blocks(), &layout(80, Fold::Preview))));
    let ascii = Layout { is_ascii: true, ..layout(60, Fold::Preview) };
    insta::assert_snapshot!("turn_ascii", text(&screen(transcript.blocks(), &ascii)));
}

#[test]
fn stored_events_do_not_repeat_those_that_were_shown_live() {
    let events = turn();
    let mut transcript = folded(&events);
    let before = transcript.blocks().to_vec();
    for (event, seq) in events.iter().zip(1..) {
        transcript.push(Seq(seq), &azureal_core::compact_event(event.clone()));
    }
    assert_eq!(transcript.blocks(), before);
}

#[test]
fn full_events_take_the_place_of_short_ones() {
    let events = turn();
    let short: Vec<Event> = events.iter().cloned().map(azureal_core::compact_event).collect();
    let mut transcript = folded(&short);
    for (event, seq) in events.iter().zip(1..) {
        transcript.replace(Seq(seq), event);
    }
    let content = |transcript: &Transcript| -> Vec<Content> {
        transcript.blocks().iter().map(|block| block.content.clone()).collect()
    };
    assert_eq!(content(&transcript), content(&folded(&events)));
    for (event, seq) in events.iter().zip(1..) {
        assert!(!transcript.replace(Seq(seq), event), "event {seq} changed again");
    }
}

fn with_detail(event: Event, detail: &str) -> Event {
    match event {
        Event::ToolResult(result) => Event::ToolResult(ToolResult { detail: Some(detail.into()), ..result }),
        other => other,
    }
}

#[test]
fn an_edit_has_the_line_numbers_and_the_lines_around_it_live_and_stored() {
    let diff = "--- a/a.rs\n+++ b/a.rs\n@@ -9,3 +9,4 @@\n fn a() {\n-    b();\n+    c();\n+    d();\n }";
    let input = serde_json::json!({"file_path": "a.rs", "old_string": "b()", "new_string": "c();\n    d()"});
    let live = [call("e", "Edit", input), with_detail(result("e", "updated", false), diff)];
    let stored: Vec<Event> = live.iter().cloned().map(azureal_core::compact_event).collect();
    let shown = |events: &[Event]| text(&screen(folded(events).blocks(), &layout(60, Fold::Open)));
    assert_eq!(
        shown(&live).lines().skip(1).collect::<Vec<_>>(),
        ["   9   fn a() {", "  10 -     b();", "  10 +     c();", "  11 +     d();", "  12   }"]
    );
    assert!(shown(&live).lines().next().unwrap().ends_with("+2 −1"), "{}", shown(&live));
    assert_eq!(shown(&stored), shown(&live));
    // The call may be on an earlier page.
    let (mut earlier, mut later) = (Transcript::new(places()), Transcript::new(places()));
    earlier.push(Seq(1), &stored[0]);
    later.push(Seq(2), &stored[1]);
    later.prepend(earlier);
    assert_eq!(text(&screen(later.blocks(), &layout(60, Fold::Open))), shown(&live));
}

#[test]
fn a_long_file_is_shown_as_far_as_it_is_stored_until_its_call_is_there_in_full() {
    let content: String = (1..=900).map(|n| format!("line {n}\n")).collect();
    let input = serde_json::json!({"file_path": "a.txt", "content": content});
    let diff = azureal_core::detail::of_edit("Write", &input.clone().into(), "", "").unwrap();
    let full = [call("w", "Write", input), with_detail(result("w", "created", false), &diff)];
    let stored: Vec<Event> = full.iter().cloned().map(azureal_core::compact_event).collect();
    let mut transcript = folded(&stored);
    let shown = |transcript: &Transcript| text(&screen(transcript.blocks(), &layout(60, Fold::Open)));
    let short = shown(&transcript);
    assert!(short.lines().next().unwrap().ends_with("+900"), "{short}");
    let left = 900 - diff.lines().filter(|line| line.starts_with("+line")).count();
    assert!(short.trim_end().ends_with(&format!("{left} more lines")), "{short}");
    for (event, seq) in full.iter().zip(1..) {
        transcript.replace(Seq(seq), event);
    }
    assert_eq!(shown(&transcript), shown(&folded(&full)));
    assert!(shown(&transcript).contains("line 900"));
}

#[test]
fn a_failed_command_shows_the_part_of_its_output_that_matters() {
    let output = format!("Exit code 101\n{}error: it broke\n{}", "ok\n".repeat(50), "after\n".repeat(30));
    let live = [call("b", "Bash", serde_json::json!({"command": "make"})), result("b", &output, true)];
    let mut named = live.clone();
    if let Event::ToolResult(result) = &mut named[1] {
        result.tool_name = "Bash".into();
    }
    let stored: Vec<Event> = named.iter().cloned().map(azureal_core::compact_event).collect();
    let shown = |events: &[Event]| text(&screen(folded(events).blocks(), &layout(60, Fold::Open)));
    let (live, stored) = (shown(&named), shown(&stored));
    assert_eq!(live.lines().next(), stored.lines().next());
    assert!(stored.lines().next().unwrap().ends_with("exit 101 · 81 lines"), "{stored}");
    assert!(stored.contains("error: it broke") && stored.contains("lines omitted]"), "{stored}");
}

#[test]
fn earlier_events_can_be_put_in_front_at_any_place() {
    let mut events = turn();
    events.extend(turn());
    let whole = folded(&events);
    for cut in 0..events.len() {
        let (mut earlier, mut later) = (Transcript::new(places()), Transcript::new(places()));
        for (event, seq) in events.iter().zip(1..) {
            let half = if seq <= cut { &mut earlier } else { &mut later };
            half.push(Seq(seq as u64), event);
        }
        later.prepend(earlier);
        let shown = |transcript: &Transcript| -> Vec<(Seq, u16, Seq, Content)> {
            transcript
                .blocks()
                .iter()
                .map(|block| (block.seq, block.part, block.last, block.content.clone()))
                .collect()
        };
        assert_eq!(shown(&later), shown(&whole), "cut at {cut}");
    }
}

#[test]
fn a_text_that_is_being_written_is_replaced_by_the_finished_one() {
    let mut transcript = folded(&[Event::user("Hi")]);
    transcript.push_delta(Seq(2), "Hel");
    transcript.push_delta(Seq(2), "lo");
    assert!(!transcript.blocks()[1].is_stable());
    assert_eq!(transcript.blocks()[1].source(), "Hello");
    // An event of a subagent comes between.
    transcript.push(Seq(2), &call("a", "Bash", serde_json::json!({"command": "ls"})));
    assert_eq!(transcript.blocks().len(), 3);
    assert_eq!(transcript.blocks()[2].seq, Seq(3));
    transcript.push_delta(Seq(3), " you");
    let version = transcript.blocks()[2].version;
    transcript.push(Seq(3), &Event::assistant("Hello, you"));
    let block = &transcript.blocks()[2];
    assert!(block.is_stable() && block.version > version);
    assert_eq!(block.source(), "Hello, you");
    transcript.push_delta(Seq(4), "never finished");
    transcript.push(Seq(4), &Event::Complete(Complete::default()));
    assert_eq!(transcript.blocks().len(), 4);
    let Content::Call(call) = &transcript.blocks()[1].content else { unreachable!() };
    assert_eq!(call.state, CallState::NoResult);
}

#[test]
fn a_text_that_is_being_written_is_bounded() {
    let mut transcript = Transcript::default();
    for n in 0..30_000 {
        transcript.push_delta(
            Seq(1),
            &format!("line {n} of a text without an end, which an agent may well write é\n"),
        );
    }
    let source = transcript.blocks()[0].source();
    assert!(source.len() <= 1 << 20, "{}", source.len());
    assert!(source.starts_with("line 0 ") && source.contains("line 29999 ") && source.contains(" left out]"));
}

#[test]
fn ids_that_are_used_again_belong_to_the_last_call() {
    let transcript = folded(&[
        call("item_1", "Bash", serde_json::json!({"command": "first"})),
        Event::user("again"),
        call("item_1", "Bash", serde_json::json!({"command": "second"})),
        result("item_1", "ok", false),
    ]);
    let states: Vec<CallState> = transcript
        .blocks()
        .iter()
        .filter_map(|block| match &block.content {
            Content::Call(call) => Some(call.state),
            _ => None,
        })
        .collect();
    assert_eq!(states, [CallState::NoResult, CallState::Done]);
}

#[test]
fn a_copy_is_the_source_without_decoration() {
    let transcript = folded(&[
        call("a", "Bash", serde_json::json!({"command": "ls\t-l"})),
        result("a", "one\ttwo\n\u{1b}[1mthree", false),
    ]);
    assert_eq!(transcript.blocks()[0].source(), "ls\t-l\none\ttwo\n\u{1b}[1mthree");
}

#[test]
fn damaged_rows_and_unknown_kinds_are_notices() {
    let mut transcript = Transcript::default();
    transcript.damaged(Seq(1), "Tool\u{1b}Call", "not JSON");
    transcript.damaged(Seq(1), "again", "ignored");
    transcript.push(Seq(2), &Event::from_json(r#"{"Telemetry":{}}"#).unwrap());
    transcript.push(Seq(3), &Event::from_json(r#"{"Message":{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","media_type":"image/png","data":"AAAA"}]}}"#).unwrap());
    insta::assert_snapshot!(text(&screen(transcript.blocks(), &layout(80, Fold::Closed))), @r"
    ✗ event 1 (Tool␛Call) cannot be read: not JSON
    ! unknown event Telemetry

    you
      look

    · [image: image/png, 3 bytes]
    ");
}

#[test]
fn a_turn_that_continues_after_a_compaction_has_one_end() {
    let stopped = Complete { outcome: Some(Outcome::Interrupted), continues: true, ..Complete::default() };
    let done = Complete { success: true, outcome: Some(Outcome::Done), ..Complete::default() };
    let events = [
        Event::user("go"),
        Event::Compacting,
        Event::Complete(stopped),
        Event::Compacted,
        Event::assistant("Done."),
        Event::Complete(done),
    ];
    let mut transcript = Transcript::default();
    (1..).zip(&events).for_each(|(seq, event)| transcript.push(Seq(seq), event));
    let ends = transcript.blocks().iter().filter_map(|block| match &block.content {
        Content::End(end) => Some(end.ending()),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [Outcome::Done]);
}
