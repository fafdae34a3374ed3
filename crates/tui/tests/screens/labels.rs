//! Keys that the screen names are those of the key table.

use std::collections::BTreeMap;

use azureal_tui::keys::Keys;

use crate::harness::{COLOURS, Screen, settings};
use crate::world::*;

const SIZE: (u16, u16) = (80, 24);

/// An interface with changed keys.
fn screen(changes: &[(&str, &str)], before: fn(&mut Screen)) -> Screen {
    let changes: BTreeMap<String, Vec<String>> =
        changes.iter().map(|(name, key)| ((*name).to_owned(), vec![(*key).to_owned()])).collect();
    let mut screen = Screen::with(SIZE, COLOURS, settings(), Keys::new(&changes).unwrap());
    before(&mut screen);
    screen
}

#[test]
fn the_key_that_edits_a_waiting_prompt_is_the_configured_one() {
    let mut screen = screen(&[("edit-waiting", "f7")], in_turn);
    screen.keys("'Later.' ctrl-t");
    let text = screen.text();
    assert!(text.contains("F7 edit") && !text.contains("Alt-↑"), "{text}");
    screen.keys("f7");
    assert!(screen.text().contains("› Later."), "{}", screen.text());
}

#[test]
fn overlays_name_the_configured_keys() {
    let keys = [("back", "f10"), ("up", "f7"), ("down", "f8"), ("page-up", "f6"), ("find-next", "x")];
    for (open, named) in [
        ("f1", "F6 PgDn scroll · F10 back"),
        ("f2", "F7 F8 choose"),
        ("tab /", "x N next, previous · F10 back"),
    ] {
        let mut screen = screen(&keys, in_session);
        screen.keys(open);
        let text = screen.text();
        assert!(text.contains(named) && !text.contains("Esc"), "{open}: {text}");
    }
}

#[test]
fn the_key_that_follows_again_is_one_that_works_where_the_focus_is() {
    let mut screen = screen(&[], in_turn);
    screen.keys("pageup pageup");
    screen.news(delta(PANE, "More."));
    assert!(screen.text().contains("· G follows"), "{}", screen.text());
    screen.keys("i");
    let text = screen.text();
    assert!(text.contains("· Tab G follows"), "{text}");
    screen.keys("tab G");
    assert!(!screen.text().contains("follows"), "{}", screen.text());
}

#[test]
fn slash_keys_opens_the_help() {
    let mut screen = screen(&[], in_session);
    screen.keys("'/keys' enter");
    let text = screen.text();
    assert!(text.contains("Keys") && text.contains("Send the prompt"), "{text}");
}
