//! Turns and events by their numbers: `show --last` and `fork --at`.

use serde_json::{Value, json};

use crate::world::{World, assistant, user};

/// A session of four turns; the second has calls that overlap, the fourth begins with a picture.
fn four_turns() -> World {
    let call = |id: &str| json!({"ToolCall": {"tool_use_id": id, "tool_name": "Bash", "input": {"command": format!("run {id}")}}});
    let result = |id: &str| json!({"ToolResult": {"tool_use_id": id, "tool_name": "Bash", "content": format!("ran {id}"), "is_error": false}});
    let image = json!({"type": "image", "media_type": "image/png", "data": "iVBORw0KGgo="});
    let world = World::new();
    world.session(
        "work",
        &[
            json!({"SystemMessage": {"content": "Be brief."}}),
            user("one"),
            assistant("first"),
            user("two"),
            call("t1"),
            call("t2"),
            result("t1"),
            // It holds results alone, so no turn begins with it.
            json!({"Message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t2", "content": [image.clone()], "is_error": false}]}}),
            assistant("second"),
            user("three"),
            assistant("third"),
            json!({"Message": {"role": "user", "content": [{"type": "text", "text": "four"}, image]}}),
            assistant("fourth"),
        ],
    );
    world
}

fn shown(world: &World, last: &str) -> Vec<u64> {
    let lines = world.run(&["show", "work", "--last", last, "--json"]).json_lines();
    lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect()
}

#[test]
fn the_last_turns_are_shown_from_their_prompt_on() {
    let world = four_turns();
    for (last, first) in [("1", 12), ("2", 10), ("3", 4), ("4", 1), ("5", 1), ("18446744073709551615", 1)] {
        assert_eq!(shown(&world, last), (first..=13).collect::<Vec<_>>(), "--last {last}");
    }
    assert_eq!(shown(&world, "0"), [0; 0]);
    insta::assert_snapshot!(world.run(&["show", "work", "--last", "2"]), @r"
    exit code 0
    --- stdout
    S1 · work · created [time] · active just now · 12 messages

    ## User  turn 3, event 10
    three

    ## Assistant
    third

    ## User  turn 4, event 12
    four

    [image: image/png, 8 bytes]

    ## Assistant
    fourth
    ");
}

#[test]
fn a_damaged_prompt_does_not_change_the_numbers_of_turns() {
    let world = four_turns();
    let database = rusqlite::Connection::open(world.store()).unwrap();
    database.execute("UPDATE events SET data = x'00ff00' WHERE seq IN (3, 8, 10)", []).unwrap();
    drop(database);
    assert_eq!(shown(&world, "2"), [10, 11, 12, 13]);
    let ran = world.run(&["show", "work"]);
    assert!(ran.stdout.contains("## User  turn 2, event 4\n"), "{ran}");
    assert!(ran.stdout.contains("## User  turn 4, event 12\n"), "{ran}");
    assert_eq!(world.run(&["fork", "work", "--at", "turn:3", "--json"]).json()["event_count"], 11);
}

#[test]
fn a_fork_is_made_at_an_event_or_at_the_end_of_a_turn() {
    let world = four_turns();
    for (at, events) in [("4", 4), ("13", 13), ("turn:1", 3), ("turn:2", 9), ("turn:3", 11), ("turn:4", 13)] {
        let fork = world.run(&["fork", "work", "--at", at, "--json"]).json();
        assert_eq!(fork["event_count"], Value::from(events), "--at {at}");
    }
    insta::assert_snapshot!(world.run(&["fork", "work", "--at", "turn:9"]), @r"
    exit code 1
    --- stderr
    error: S1 work has no turn 9: it has 4 turns
    hint: `azureal show S1` shows the turns with their numbers
    ");
    insta::assert_snapshot!(world.run(&["fork", "work", "--at", "turn:x"]), @r"
    exit code 2
    --- stderr
    error: `turn:x` is not a value of `--at <PLACE>`: it takes the number of an event (42) or of a turn (turn:5), from 1 on
    hint: `azureal help fork` shows its options
    ");
    insta::assert_snapshot!(world.run(&["fork", "work", "--at", "14"]), @r"
    exit code 1
    --- stderr
    error: session S1 has no event 14: its last is 13
    hint: `azureal show --json` shows the events with their numbers
    ");
}
