//! The running turn.

use super::*;
use crate::pane::Phase;
use crate::pane::live::{LIVE_BYTES, LIVE_EVENTS};

fn began(prompt: Option<&str>, first: u64) -> TurnNews {
    TurnNews::Began { prompt: prompt.map(str::to_owned), first: Seq(first), since_ms: 18_000, is_ours: true }
}

fn stored(first: u64, last: u64) -> TurnNews {
    let Event::Complete(complete) = complete() else { unreachable!() };
    TurnNews::Stored {
        session: session(),
        first: Some(Seq(first)),
        last: Some(Seq(last)),
        complete: Box::new(complete),
        refused: Vec::new(),
    }
}

fn over() -> TurnNews {
    TurnNews::Over { is_ours: true, error: None, unsent: None }
}

fn event(event: Event) -> AgentOutput {
    AgentOutput::Event(event)
}

#[test]
fn a_prompt_is_shown_as_typed_from_the_first_moment() {
    let mut desk = Desk::new_session(60, 20);
    desk.pane.sent("Fix `it`\nnow");
    assert!(desk.text().starts_with(" you\n   Fix `it`\n   now\n"), "{}", desk.text());
    desk.turn(TurnNews::Waiting("codex runs in it since 14:02".into()));
    assert!(desk.text().contains("waiting: codex runs in it since 14:02"));
    desk.turn(TurnNews::Accepted { record: Box::new(desk.record()), agent: "codex".into(), model: None });
    desk.turn(TurnNews::Progress("context command `git status`".into()));
    assert!(desk.text().contains("context command `git status`"));
    desk.turn(TurnNews::Compacting { agent: "claude".into() });
    assert!(
        desk.text().contains("\n ── compacting: summary by claude · your prompts stay · F5 ─"),
        "{}",
        desk.text()
    );
    desk.turn(began(Some("Fix `it`\nnow"), 1));
    let text = desk.text();
    assert_eq!(text.matches("Fix `it`").count(), 1, "{text}");
    assert_eq!(desk.pane.turn().unwrap().phase, Phase::Running);
    assert!(text.contains("codex is running 0:42"), "{text}");
}

#[test]
fn a_prompt_that_waits_stays_below_what_others_store() {
    let mut desk = Desk::open(turns(1), 60, 40);
    desk.pane.sent("Mine");
    desk.turn(TurnNews::Waiting("another process".into()));
    desk.append(&[Event::user("Theirs"), Event::assistant("Answer.")]);
    let text = desk.text();
    assert!(text.find("Theirs").unwrap() < text.find("Mine").unwrap(), "{text}");
    desk.turn(began(Some("Mine"), 9));
    let text = desk.text();
    assert!(text.find("Answer.").unwrap() < text.find("Mine").unwrap(), "{text}");
    assert_eq!(text.matches("Mine").count(), 1, "{text}");
}

#[test]
fn a_finished_text_takes_the_place_of_the_one_that_was_written() {
    let mut desk = Desk::open(turns(1), 60, 30);
    desk.pane.sent("Go");
    desk.turn(began(Some("Go"), 7));
    for delta in ["Two ", "refreshes ", "race."] {
        desk.outputs(vec![AgentOutput::Delta(delta.into())]);
    }
    assert!(desk.text().contains("Two refreshes race."));
    assert_eq!(desk.pane.last_line(), "Two refreshes race.");
    desk.outputs(vec![event(Event::assistant("Two refreshes race.")), AgentOutput::Delta("And".into())]);
    let text = desk.text();
    assert_eq!(text.matches("Two refreshes race.").count(), 1, "{text}");
    assert!(text.contains("And"));
}

#[test]
fn blocks_stay_in_their_place_when_the_turn_is_stored() {
    let mut desk = Desk::open(turns(1), 60, 40);
    desk.pane.set_reading(false);
    desk.pane.sent("Go");
    desk.turn(began(Some("Go"), 7));
    desk.outputs(turn(2).into_iter().skip(1).take(4).map(event).collect());
    let before = desk.screen();
    let requests = desk.requests;
    desk.turn(stored(7, 12));
    desk.turn(over());
    let after = desk.screen();
    let call = before.iter().rposition(|row| row.contains("Bash")).unwrap();
    assert_eq!(before[..call], after[..call]);
    assert!(before[call].starts_with(" ▸ ✓ Bash"), "{}", before[call]);
    // Of the last command, some output is shown from now on.
    let end = [" ▾ ✓ Bash", "   running 3 tests", "   test result: ok", "", " ✓ done in 42 s"];
    assert!(after[call..].iter().zip(end).all(|(row, start)| row.starts_with(start)), "{after:?}");
    assert!(desk.pane.turn().is_none());
    assert_eq!(desk.requests, requests, "nothing is read again");
    assert_eq!(desk.pane.last_stored(), Seq(12));
}

#[test]
fn a_turn_whose_end_is_shown_is_not_shown_as_running() {
    let mut desk = Desk::open(turns(1), 60, 40);
    desk.pane.sent("Go");
    desk.turn(began(Some("Go"), 7));
    desk.outputs(turn(2).into_iter().skip(1).take(4).map(event).collect());
    assert!(desk.text().contains("is running"));
    desk.turn(stored(7, 12));
    let text = desk.text();
    assert!(text.ends_with("done in 42 s") && !text.contains("is running"), "{text}");
}

#[test]
fn an_error_is_wrapped_at_words() {
    let message = "another process runs a turn in S1: claude on this host since 14:02";
    let hint = "wait for it (`run` does with `--wait`), end it with `azureal cancel S1` where it runs, or continue in a copy with `azureal fork S1`";
    for width in 26..100 {
        let mut desk = Desk::open(turns(1), width, 40);
        desk.pane.sent("Do it");
        let error = azureal::Error::new("busy", message).with_hint(hint);
        desk.turn(TurnNews::Over { is_ours: true, error: Some(error), unsent: None });
        let words: Vec<String> = desk.text().split_whitespace().map(str::to_owned).collect();
        for word in message.split_whitespace().chain(hint.split_whitespace()) {
            assert!(words.iter().any(|shown| shown == word), "{width} {word}: {}", desk.text());
        }
    }
}

#[test]
fn a_turn_that_is_stored_differently_is_read_again() {
    let mut desk = Desk::open(turns(1), 60, 40);
    desk.pane.sent("Go");
    desk.turn(began(Some("Go"), 7));
    desk.outputs(vec![event(init()), event(Event::assistant("shown live"))]);
    let mut events = turns(1);
    events.extend(vec![
        Event::user("Go"),
        init(),
        Event::assistant("as it is stored"),
        Event::error("k", "m"),
        complete(),
    ]);
    desk.stored = 11;
    desk.events = Box::new(move |seq| events[seq as usize - 1].clone());
    desk.turn(stored(7, 11));
    desk.turn(over());
    let text = desk.text();
    assert!(text.contains("as it is stored") && !text.contains("shown live"), "{text}");
    assert_eq!(text.matches("Go").count(), 1, "{text}");
}

#[test]
fn an_error_is_shown_once_and_the_prompt_comes_back() {
    let mut desk = Desk::open(turns(1), 60, 40);
    desk.pane.sent("Do it");
    let error = azureal::Error::new("agent", "codex is not logged in").with_hint("run `codex login`");
    desk.turn(TurnNews::Over { is_ours: true, error: Some(error), unsent: Some("Do it".into()) });
    let text = desk.text();
    assert!(text.contains("✗ codex is not logged in · run `codex login`"), "{text}");
    assert!(!text.contains("Do it"), "{text}");
    assert_eq!(desk.pane.take_unsent().as_deref(), Some("Do it"));
    assert_eq!(desk.pane.take_unsent(), None);
    assert!(desk.pane.turn().is_none());
}

#[test]
fn a_system_message_that_was_stored_before_the_turn_is_read() {
    let mut desk = Desk::new_session(60, 20);
    desk.pane.sent("Go");
    desk.turn(TurnNews::Accepted { record: Box::new(desk.record()), agent: "codex".into(), model: None });
    desk.stored = 1;
    desk.events = Box::new(|_| {
        Event::SystemMessage(azureal::core::event::SystemMessage {
            content: "Be kind.".into(),
            ..Default::default()
        })
    });
    desk.turn(began(Some("Go"), 2));
    let text = desk.text();
    assert!(text.find("Be kind.").unwrap() < text.find("Go").unwrap(), "{text}");
}

#[test]
fn a_turn_continues_after_a_compaction() {
    let mut desk = Desk::open(turns(1), 60, 40);
    desk.pane.sent("Go");
    desk.turn(began(Some("Go"), 7));
    desk.outputs(vec![event(init()), event(Event::assistant("First half."))]);
    desk.turn(stored(7, 10));
    desk.turn(TurnNews::Compacting { agent: "claude".into() });
    assert!(desk.text().contains("compacting"));
    desk.turn(began(None, 11));
    desk.outputs(vec![event(init()), event(Event::assistant("Second half."))]);
    let text = desk.text();
    assert!(text.find("First half.").unwrap() < text.find("Second half.").unwrap(), "{text}");
    assert_eq!(text.matches("Go").count(), 1);
}

#[test]
fn a_retry_is_one_line_that_goes_with_the_next_output() {
    let mut desk = Desk::open(turns(1), 60, 40);
    desk.turn(began(Some("Go"), 7));
    desk.outputs(vec![AgentOutput::Retry("retry 1 of 10".into())]);
    desk.outputs(vec![AgentOutput::Retry("retry 2 of 10".into())]);
    let text = desk.text();
    assert!(text.contains("retry 2") && !text.contains("retry 1"), "{text}");
    desk.outputs(vec![event(init())]);
    assert!(!desk.text().contains("retry"));
}

#[test]
fn a_reader_is_not_moved_by_a_running_turn() {
    let mut desk = Desk::open(turns(10), 60, 12);
    desk.pane.sent("Go");
    desk.turn(began(Some("Go"), 61));
    desk.frame();
    desk.acts(&[Action::PageUp, Action::PageUp]);
    let before = desk.screen();
    for n in 0..50 {
        desk.outputs(vec![AgentOutput::Delta(format!("word {n}\n\n"))]);
        assert_eq!(desk.screen(), before);
    }
    desk.outputs(vec![event(Event::assistant("all of it")), event(call("a", "Bash", r#"{"command":"ls"}"#))]);
    assert_eq!(desk.screen(), before);
    assert_eq!(desk.pane.position().new_events, 2);
}

#[test]
fn a_running_turn_that_is_not_shown_is_bounded_and_not_laid_out() {
    let mut desk = Desk::open(turns(10), 60, 12);
    desk.pane.set_shown(false);
    let layouts = desk.pane.cache.layouts;
    desk.turn(began(Some("Go"), 61));
    let large = "x ".repeat(200_000);
    for n in 0..3_000_u32 {
        let id = n.to_string();
        let output = if n % 100 == 0 { &large } else { "fine" };
        desk.outputs(vec![
            event(call(&id, "Bash", r#"{"command":"ls"}"#)),
            event(result(&id, "Bash", output)),
        ]);
    }
    desk.outputs(vec![AgentOutput::Delta(large)]);
    let live = desk.pane.live.as_ref().unwrap();
    assert!(live.events.len() <= LIVE_EVENTS);
    assert!(live.events.iter().map(crate::pane::window::Held::bytes).sum::<usize>() <= LIVE_BYTES);
    assert_eq!(live.next, Seq(6_062));
    assert_eq!(desk.pane.cache.layouts, layouts);
    desk.pane.set_shown(true);
    assert!(desk.text().contains("is running"));
}

#[test]
fn a_question_is_open_until_it_is_answered() {
    let mut desk = Desk::open(turns(1), 60, 40);
    desk.turn(began(Some("Go"), 7));
    let question = azureal::core::bridge::Question {
        id: "q".into(),
        title: "Run `rm`".into(),
        kind: "execute".into(),
        input: "{}".into(),
        options: Vec::new(),
    };
    desk.turn(TurnNews::Question(question.clone()));
    assert_eq!(desk.pane.turn().unwrap().question, Some(question));
    assert!(desk.text().contains("waits for your answer"));
    desk.turn(over());
    assert!(desk.pane.turn().is_none());
}

#[test]
fn refused_tools_are_named_once() {
    let mut desk = Desk::open(turns(1), 60, 40);
    desk.turn(TurnNews::Accepted { record: Box::new(desk.record()), agent: "claude".into(), model: None });
    desk.turn(began(Some("Go"), 7));
    let TurnNews::Stored { session, first, complete, .. } = stored(7, 8) else { unreachable!() };
    let refused = vec!["Bash".into(), "Edit".into(), "Bash".into()];
    desk.turn(TurnNews::Stored { session, first, last: Some(Seq(8)), complete, refused });
    assert!(desk.text().contains("claude was refused Bash (2×), Edit"), "{}", desk.text());
}

#[test]
fn a_history_that_was_changed_is_read_again() {
    let mut desk = Desk::open(turns(3), 60, 40);
    desk.events = Box::new(|_| Event::user("all new"));
    desk.stored = 1;
    let requests = desk.pane.news(&News::Changed { pane: PaneId(1) });
    desk.perform(requests);
    let text = desk.text();
    assert!(text.contains("all new") && !text.contains("Prompt"), "{text}");
}

#[test]
fn a_turn_that_did_not_begin_moves_no_reader_when_the_next_one_begins() {
    let tall = Event::user((1..40).map(|n| format!("row {n}\n")).collect::<String>());
    let mut desk = Desk::open(vec![tall], 40, 6);
    desk.pane.sent("Never begins\nsecond\nthird\nfourth\nfifth\nsixth\nseventh");
    desk.frame();
    desk.act(Action::RowUp);
    assert!(desk.text().contains("sixth"), "the prompt is read: {}", desk.text());
    desk.turn(over());
    desk.act(Action::RowUp);
    let before = desk.text();
    assert!(before.contains("row 36"), "the end is shown instead of a prompt that is gone: {before}");
    desk.turn(began(Some("Another"), 2));
    assert_eq!(desk.text(), before);
}

#[test]
fn a_reader_of_a_notice_goes_with_it_when_its_turn_is_not_stored() {
    let mut desk = Desk::open(turns(1), 40, 4);
    desk.turn(began(Some("Go"), 7));
    desk.outputs(vec![AgentOutput::Notice("an important notice".into())]);
    let rows = (1..20).map(|n| format!("- item {n}\n")).collect::<String>();
    desk.outputs(vec![event(Event::assistant(rows))]);
    while !desk.screen()[0].contains("an important notice") {
        desk.act(Action::RowUp);
    }
    desk.turn(TurnNews::Notice("a\nb\nc\nd\ne\nf".into()));
    desk.turn(over());
    assert!(desk.screen()[0].contains("an important notice"), "{}", desk.text());
    desk.turn(began(Some("Another"), 7));
    assert!(desk.screen()[0].contains("an important notice"), "{}", desk.text());
}

#[test]
fn the_last_command_of_a_finished_turn_shows_some_output_until_it_is_folded() {
    let output: String = (1..=9).map(|n| format!("line {n}\n")).collect();
    let command = |id: &str| call(id, "Bash", r#"{"command":"make"}"#);
    let of_subagent = |mut event: Event| {
        if let Event::ToolCall(call) = &mut event {
            call.subagent = Some("s".into());
        }
        event
    };
    let events = vec![
        Event::user("Go"),
        init(),
        command("a"),
        result("a", "Bash", &output),
        command("b"),
        result("b", "Bash", &output),
        of_subagent(command("c")),
        result("c", "Bash", &output),
        Event::assistant("Built."),
        complete(),
    ];
    let mut desk = Desk::open(events, 60, 30);
    let text = desk.text();
    assert_eq!(text.matches("▾ ✓ Bash").count(), 1, "{text}");
    assert_eq!((text.matches("line 1\n").count(), text.matches("line 9\n").count()), (1, 1), "{text}");
    assert!(text.contains("… 5 more lines"), "{text}");
    while desk.pane.cursor.is_none_or(|cursor| cursor.key.0 != Seq(5)) {
        desk.act(Action::RowUp);
    }
    desk.act(Action::Fold);
    assert!(desk.text().contains("line 5"), "{}", desk.text());
    desk.act(Action::Fold);
    assert!(!desk.text().contains("line 5") && desk.text().contains("line 9"), "{}", desk.text());
}
