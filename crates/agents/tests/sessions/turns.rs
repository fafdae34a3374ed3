//! Every recorded session gives the turns that are beside it.

use azureal_agents::native::NativeTurn;
use azureal_core::Event;
use azureal_core::event::Complete;

use crate::cases::{self, Case};

#[test]
fn every_recorded_session_gives_its_turns() {
    for case in Case::all() {
        let home = case.open();
        let mut text = String::new();
        for session in case.sessions() {
            let head = home.head(&session).unwrap();
            let cwd = head.cwd.map_or_else(|| "?".to_owned(), |cwd| cwd.display().to_string());
            text += &format!("session {} in {cwd}\n", head.id);
            for turn in cases::read(&*home, &session) {
                text += &render(&turn);
            }
        }
        insta::with_settings!({
            snapshot_path => &case.recorded,
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            insta::allow_duplicates! { insta::assert_snapshot!("turns", text) }
        });
    }
}

#[test]
fn a_session_is_read_the_same_way_every_time() {
    for case in Case::all() {
        assert_eq!(case.turns(), case.turns());
    }
}

#[test]
fn every_turn_has_one_start_and_one_end_and_counts_its_tokens() {
    for case in Case::all() {
        for turn in case.turns() {
            let count = |kind: &str| turn.events.iter().filter(|event| event.kind() == kind).count();
            // The user may type while the agent works.
            assert!((1, 1) == (count("Init"), count("Complete")) && count("UserMessage") >= 1, "{turn:?}");
            assert!(matches!(turn.events.last(), Some(Event::Complete(_))));
            assert!(!turn.id.is_empty() && turn.started.is_some() && !turn.is_ours);
        }
    }
}

/// Renders a turn, one line per event.
fn render(turn: &NativeTurn) -> String {
    let is_open = if turn.is_open { ", open" } else { "" };
    let mut text = format!("turn {}{is_open}\n", turn.id);
    for event in &turn.events {
        text += &match event {
            Event::ToolResult(result) => {
                let detail = result.detail.as_deref().unwrap_or_default();
                let detail: String = detail.lines().map(|line| format!("\n      | {line}")).collect();
                let failed = if result.is_error { " FAILED" } else { "" };
                format!(
                    "  result {} {}{failed} {:?}{detail}\n",
                    result.tool_use_id, result.tool_name, result.content
                )
            }
            Event::Complete(Complete { duration_ms, outcome, usage, .. }) => {
                format!("  complete {outcome:?} {duration_ms} ms {usage:?}\n")
            }
            other => format!("  {}\n", other.to_json()),
        };
    }
    for problem in &turn.problems {
        text += &format!("  problem: {problem}\n");
    }
    text
}
