//! The search over all sessions: keys, requests and answers.

use azureal::core::PAGE_EVENTS;
use azureal::desk::{News, PaneId, Request, SearchNews};
use azureal::search::{SearchRole, Total};
use azureal::{Event, Seq};

use crate::harness::{COLOURS, Screen};
use crate::world::*;

fn started() -> Screen {
    let mut screen = Screen::new((80, 24), COLOURS);
    in_session(&mut screen);
    screen.asked();
    screen
}

fn search(text: &str) -> Request {
    Request::Search { text: text.to_owned() }
}

#[test]
fn every_key_searches_and_esc_ends_it() {
    let mut screen = started();
    screen.keys("f4 'to'");
    assert_eq!(screen.asked(), [search("t"), search("to")]);
    assert!(screen.text().contains("searching"), "{}", screen.text());
    screen.keys("down left");
    assert_eq!(screen.asked(), [], "the text is the same");
    screen.keys("esc");
    assert_eq!(screen.asked(), [search("")]);
    screen.news(search_found("to"));
    assert!(!screen.text().contains("Search all sessions"), "{}", screen.text());
}

#[test]
fn two_slashes_search_all_sessions_and_one_searches_this_one() {
    for keys in ["tab / /", "f3 / /", "ctrl-x /", "'/search' enter"] {
        let mut screen = started();
        screen.keys(keys);
        assert!(screen.text().contains("Search all sessions"), "{keys}: {}", screen.text());
    }
    let mut screen = started();
    screen.keys("tab / 'a' / ");
    assert!(screen.text().contains("Search the session"), "{}", screen.text());
    let mut screen = started();
    screen.keys("f3 / 'a' /");
    assert!(!screen.text().contains("Search all sessions"), "{}", screen.text());
}

#[test]
fn only_the_answer_to_the_typed_text_is_shown() {
    let mut screen = started();
    screen.keys("f4 'token'").news(search_found("tok"));
    assert!(!screen.text().contains("4 hits"), "{}", screen.text());
    screen.news(search_found("token"));
    assert!(screen.text().contains("Search all sessions: 4 hits"), "{}", screen.text());
    // Until the next answer the hits stay.
    screen.keys("'s'");
    let text = screen.text();
    assert!(text.contains("searching") && text.contains("S9 "), "{text}");
    screen.news(no_hits("tokens"));
    assert!(screen.text().contains("no hit"), "{}", screen.text());
}

#[test]
fn enter_opens_the_session_at_the_hit() {
    let mut screen = started();
    screen.keys("f4 'token'").news(search_found("token")).keys("down down").asked();
    screen.keys("enter");
    let pane = PaneId(2);
    let asked = screen.asked();
    assert!(
        matches!(asked[..], [Request::Open { pane: opened, session, .. }, Request::Search { .. }] if opened == pane && session == id(9)),
        "{asked:?}"
    );
    screen.take_requests();
    screen.news(opened(pane, 9));
    let from = Seq(31_u64.saturating_sub(PAGE_EVENTS as u64 / 2));
    let asked = screen.take_requests();
    assert!(asked.iter().any(|request| matches!(request, Request::ReadAfter { pane: read, after, .. } if (*read, *after) == (pane, Seq(0).max(from)))), "{asked:?}");
    let events = (1..=90).map(|seq| match seq {
        31 => stored(seq, &Event::assistant("A token bucket has one row per user.")),
        seq => stored(seq, &Event::assistant(format!("line {seq}"))),
    });
    screen.news(News::Page { pane, from: Seq(0).max(from), backwards: false, events: events.collect() });
    let text = screen.text();
    assert!(text.contains("A token bucket has one row per user.") && !text.contains("line 90"), "{text}");
}

#[test]
fn enter_goes_to_a_hit_of_an_open_session() {
    let mut screen = started();
    screen.keys("f4 'token'").news(search_found("token")).asked();
    screen.keys("enter");
    let asked = screen.take_requests();
    assert!(
        matches!(asked[..], [Request::ReadAfter { pane: PANE, .. }, Request::Search { .. }]),
        "{asked:?}"
    );
    assert!(!screen.text().contains("Search all sessions"), "{}", screen.text());
}

#[test]
fn what_is_left_and_what_is_wrong_are_told() {
    let mut screen = started();
    screen.keys("f4 'a b'");
    let news = |problem: Option<&str>, not_searched, damaged| {
        let problem = problem.map(str::to_owned);
        let total = Total { events: 0, is_least: not_searched > 0 };
        let is_over = not_searched == 0;
        News::SearchFound(Box::new(SearchNews {
            text: "a b".into(),
            hits: Vec::new(),
            total,
            not_searched,
            damaged,
            problem,
            is_over,
        }))
    };
    screen.news(news(None, 0, 2));
    assert!(screen.text().contains("no hit; 2 events cannot be read"), "{}", screen.text());
    screen.news(news(None, 3, 0));
    assert!(screen.text().contains("3 sessions are still being read"), "{}", screen.text());
    screen.news(news(Some("there is no word to search for\u{7}"), 0, 0));
    assert!(screen.text().contains("there is no word to search for"), "{}", screen.text());
    screen.keys("enter");
    assert!(screen.text().contains("Search all sessions"), "Enter without a hit does nothing");
}

#[test]
fn a_hit_does_not_act_on_the_terminal() {
    let mut screen = started();
    let hits =
        vec![hit(7, 2, SearchRole::Tool, Some("\u{1b}c"), "\u{1b}[31m token\u{202e} row\u{9b}2J", "token")];
    screen.keys("f4 'token'").news(found("token", hits, Total { events: 1, is_least: false }));
    let text = screen.text();
    assert!(
        text.contains("␛[31m token")
            && !text.chars().any(|c| c != '\n' && azureal::core::acts_on_terminal(c)),
        "{text:?}"
    );
}
