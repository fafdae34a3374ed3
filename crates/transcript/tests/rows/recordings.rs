//! Turns of the real agents.
//!
//! The files in `tests/fixtures` are the events of recordings in `crates/agents/tests/fixtures`, one a line, in a directory of another name.

use std::fs;
use std::path::Path;

use super::*;

fn recordings() -> Vec<(String, Vec<Event>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        let events = text.lines().map(|line| Event::from_json(line).unwrap()).collect();
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), events)
    };
    files.iter().map(|path| read(path)).collect()
}

#[test]
fn recorded_turns_are_shown_at_each_width() {
    let recordings = recordings();
    assert!(recordings.len() >= 13);
    for (name, mut events) in recordings {
        events.insert(0, Event::user("Do it."));
        let transcript = folded(&events);
        let mut shown = String::new();
        for width in [120, 80, 40] {
            for fold in [Fold::Closed, Fold::Preview, Fold::Open] {
                for block in transcript.blocks() {
                    check(block, &layout(width, fold));
                }
            }
            let rows = screen(transcript.blocks(), &layout(width, Fold::Preview));
            shown.push_str(&format!("{:─<1$}\n{2}", "", usize::from(width), text(&rows)));
        }
        insta::assert_snapshot!(name, shown);
    }
}

#[test]
fn a_stored_turn_looks_as_it_did_live_but_for_its_output() {
    for (name, events) in recordings() {
        let stored: Vec<Event> = events.iter().cloned().map(azureal_core::compact_event).collect();
        let heads = |events: &[Event]| -> Vec<String> {
            let heads = folded(events);
            heads.blocks().iter().map(|block| rows(block, &layout(100, Fold::Closed))[0].text()).collect()
        };
        let (live, stored) = (heads(&events), heads(&stored));
        assert_eq!(live.len(), stored.len(), "{name}");
        for (live, stored) in live.iter().zip(&stored) {
            assert_eq!(live, stored, "{name}");
        }
    }
}
