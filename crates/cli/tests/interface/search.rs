//! The search over all sessions, to the hit.

use crate::place::Place;

const F4: &str = "\x1bOS";

#[test]
fn a_hit_of_another_session_is_opened_where_it_is() {
    let place = Place::new();
    let mut long: Vec<String> = (1..=600).map(|number| format!("Message number {number}.")).collect();
    long[99] = "The token row is locked here.".to_owned();
    place.session("long", &long.iter().map(String::as_str).collect::<Vec<_>>());
    place.session("short", &["Nothing to see.", "A token bucket."]);
    let program = place.open(&[]);
    program.wait_for("F1 help");
    program.send(F4);
    program.wait_for("Search all sessions");
    program.send("token");
    program.wait_for("Search all sessions: 2 hits");
    program.wait_for("A token bucket.");
    // A phrase, and the beginning of a word.
    program.send("\x15\"token row\" loc");
    program.wait_for("Search all sessions: 1 hit");
    program.send("\r");
    program.wait_for_no("Search all sessions");
    program.wait_for("The token row is locked here.");
    program.wait_for("Message number 99.");
    program.wait_for_no("Message number 600.");
    // The list and `//` lead there too, and nothing is left of the search after Esc.
    program.send("//");
    program.wait_for("Search all sessions");
    program.send("zzzz");
    program.wait_for("no hit");
    program.send("\x1b");
    program.wait_for_no("Search all sessions");
    program.wait_for("The token row is locked here.");
    program.assert_listed();
}
