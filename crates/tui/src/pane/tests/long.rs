//! Long sessions: memory and work are bounded by the screen.

use super::*;
use crate::pane::window::{MOST_BYTES, MOST_EVENTS};

const EVENTS: u64 = 100_000;

fn event_of(seq: u64) -> Event {
    match seq % 5 {
        1 => Event::user(format!("Prompt of event {seq}")),
        2 => Event::assistant(format!("Answer of event {seq}\n\n{}", "words and more words ".repeat(40))),
        3 => call(&format!("t{seq}"), "Bash", r#"{"command":"cargo test"}"#),
        4 => result(&format!("t{}", seq - 1), "Bash", "running 3 tests\ntest result: ok"),
        _ => complete(),
    }
}

/// Fails if more is held than the bounds allow.
fn check(desk: &Desk) {
    let window = &desk.pane.window;
    assert!(window.len() <= MOST_EVENTS && window.bytes() <= MOST_BYTES);
    assert!(desk.pane.cache.bytes() < 1 << 20, "{}", desk.pane.cache.bytes());
}

#[test]
fn a_session_of_100_000_events_is_scrolled_through_with_bounded_memory_and_work() {
    let mut desk = Desk::open_long(EVENTS, event_of, 80, 24);
    assert!(desk.pane.window.len() <= 3 * PAGE_EVENTS);
    let mut most = 0;
    for _ in 0..3_000 {
        let (layouts, requests) = (desk.pane.cache.layouts, desk.requests);
        desk.act(Action::PageUp);
        most = most.max(desk.pane.cache.layouts - layouts);
        assert!(desk.requests - requests <= 2);
        check(&desk);
    }
    // A screen is at most 24 blocks.
    assert!(most <= 3 * 24, "{most} blocks were laid out for one key");
    let position = desk.pane.position();
    assert!(
        !position.is_following && position.seq < Seq(EVENTS - 10_000) && position.events == EVENTS,
        "{position:?}"
    );
    for _ in 0..100 {
        desk.act(Action::PageDown);
        check(&desk);
    }
}

#[test]
fn both_ends_of_a_long_session_are_one_key_away() {
    let mut desk = Desk::open_long(EVENTS, event_of, 80, 24);
    for _ in 0..3 {
        let (layouts, requests) = (desk.pane.cache.layouts, desk.requests);
        desk.act(Action::Top);
        assert!(desk.text().contains("Prompt of event 1\n"), "{}", desk.text());
        desk.act(Action::Bottom);
        assert!(desk.text().ends_with("done in 42 s"));
        assert!(desk.pane.cache.layouts - layouts < 200);
        assert!(desk.requests - requests <= 6, "{}", desk.requests - requests);
        check(&desk);
    }
}

#[test]
fn a_frame_without_changes_lays_nothing_out() {
    let mut desk = Desk::open_long(EVENTS, event_of, 80, 24);
    let layouts = desk.pane.cache.layouts;
    desk.frame();
    desk.frame();
    assert_eq!(desk.pane.cache.layouts, layouts);
    desk.append(&[Event::user("One more")]);
    assert!(desk.pane.cache.layouts - layouts <= 2);
}

#[test]
fn a_followed_session_that_grows_without_end_is_bounded() {
    let mut desk = Desk::open_long(1_000, event_of, 80, 24);
    for n in 0..2_000 {
        let layouts = desk.pane.cache.layouts;
        desk.append(&[Event::user(format!("More {n}"))]);
        assert!(desk.pane.cache.layouts - layouts <= 3);
    }
    check(&desk);
    assert!(desk.text().ends_with("More 1999"));
}
