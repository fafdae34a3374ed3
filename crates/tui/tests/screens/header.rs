//! The header of the session.

use azureal::core::event::Complete;
use azureal::desk::{News, TurnNews};
use azureal::{Event, Seq};

use crate::harness::{COLOURS, Screen};
use crate::world::*;

fn header(screen: &mut Screen) -> String {
    screen.text().lines().find(|line| line.contains("S12")).unwrap().to_owned()
}

#[test]
fn the_header_counts_the_turns() {
    let mut screen = Screen::new((80, 24), COLOURS);
    in_session(&mut screen);
    assert!(header(&mut screen).contains("turn 6 · $1.22"), "{}", header(&mut screen));
    // Another process stores a turn.
    let events = [Event::user("Theirs"), Event::assistant("Done.")];
    let events = (121..).zip(&events).map(|(seq, event)| stored(seq, event)).collect();
    screen.news(News::Appended { pane: PANE, events });
    assert!(header(&mut screen).contains("turn 7"), "{}", header(&mut screen));
    screen.keys("'Go' enter").news(accepted(PANE, 12)).news(began(PANE, "Go", 123));
    assert!(header(&mut screen).contains("turn 8"), "{}", header(&mut screen));
    let (first, last, complete) = (Some(Seq(123)), Some(Seq(124)), Box::new(Complete::default()));
    let end = TurnNews::Stored { session: id(12), first, last, complete, refused: Vec::new() };
    screen.news(turn(PANE, end)).news(over(PANE));
    assert!(header(&mut screen).contains("turn 8"), "{}", header(&mut screen));
    // A count that was made before those turns adds nothing.
    screen.news(News::Counted { pane: PANE, turns: 6, last: Seq(115) });
    assert!(header(&mut screen).contains("turn 8"), "{}", header(&mut screen));
    screen.news(News::Counted { pane: PANE, turns: 8, last: Seq(123) });
    assert!(header(&mut screen).contains("turn 8"), "{}", header(&mut screen));
}

#[test]
fn a_turn_that_is_not_stored_is_not_counted() {
    let mut screen = Screen::new((80, 24), COLOURS);
    in_turn(&mut screen);
    assert!(header(&mut screen).contains("turn 7"), "{}", header(&mut screen));
    let error = Some(azureal::Error::new("failed", "the output is lost"));
    screen.news(turn(PANE, TurnNews::Over { is_ours: true, error, unsent: None }));
    assert!(header(&mut screen).contains("turn 6"), "{}", header(&mut screen));
}

#[test]
fn the_first_turn_of_a_new_conversation_is_turn_1() {
    let mut screen = Screen::new((80, 24), COLOURS);
    screen.news(agents()).news(sessions());
    screen.keys("'Go' enter");
    assert!(!screen.text().contains("turn 1"), "{}", screen.text());
    screen.news(accepted(PANE, 12)).news(began(PANE, "Go", 1));
    assert!(header(&mut screen).contains("turn 1"), "{}", header(&mut screen));
}

#[test]
fn turn_and_cost_give_way_before_the_agent_and_the_agent_before_the_name() {
    let mut shown = Vec::new();
    for columns in (60..=90).rev() {
        let mut screen = Screen::new((columns, 24), COLOURS);
        in_session(&mut screen);
        let header = header(&mut screen);
        let has = |text: &str| header.contains(text);
        shown.push((has("$1.22"), has("turn 6"), has("gpt-5.5"), has("fix-login-race")));
    }
    shown.dedup();
    let (all, turn, agent) =
        ((true, true, true, true), (false, true, true, true), (false, false, true, true));
    assert_eq!(shown, [all, turn, agent]);
}
