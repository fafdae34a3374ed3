//! The changes of a turn and their undo: keys, requests and answers.

use azureal::changes::ChangesOf;
use azureal::core::event::{Changes, FileChange};
use azureal::desk::{Diff, FileChanges, News, Request};
use azureal::{Error, Event, Seq};

use crate::harness::{COLOURS, Screen};
use crate::world::*;

fn started(before: fn(&mut Screen)) -> Screen {
    let mut screen = Screen::new((80, 24), COLOURS);
    before(&mut screen);
    screen
}

fn plan(of: ChangesOf) -> Request {
    Request::PlanUndo { pane: PANE, of }
}

#[test]
fn the_changes_are_those_of_the_turn_that_is_read() {
    let mut screen = started(in_changed_session);
    let mut asked = |keys: &str| {
        screen.keys(keys);
        let asked = screen.asked();
        screen.keys("esc");
        asked
    };
    let request = |at: Option<u64>| vec![Request::Changes { pane: PANE, at: at.map(Seq) }];
    assert_eq!(asked("tab d"), request(None), "at the end");
    assert_eq!(asked("k d"), request(Some(120)), "the line of changes names itself");
    assert_eq!(asked("k k d"), request(None), "in the last turn");
    assert_eq!(asked("{ { d"), request(Some(107)), "an earlier turn");
    assert_eq!(asked("G i ctrl-x d"), request(None), "the menu");
    assert_eq!(asked("'/diff' enter"), request(None));
    assert_eq!(asked("'/changes' enter"), request(None));
    assert_eq!(asked("tab : 'diff' enter"), request(None), "the palette");
}

#[test]
fn a_prompt_that_is_sent_ends_the_place_of_the_reader() {
    let mut screen = started(in_changed_session);
    screen.keys("tab { { i 'Next.' enter");
    screen.news(accepted(PANE, 12)).news(began(PANE, "Next.", 122)).asked();
    screen.keys("tab d");
    assert_eq!(screen.asked(), [Request::Changes { pane: PANE, at: None }]);
}

#[test]
fn a_new_conversation_has_no_changes() {
    let mut screen = started(|_| ());
    screen.asked();
    screen.keys("tab d");
    assert_eq!(screen.asked(), []);
    assert!(screen.text().contains("a new conversation has no changes yet"), "{}", screen.text());
}

#[test]
fn changes_that_are_not_there_are_a_notice_with_its_hint() {
    let mut screen = started(in_changed_session);
    screen.keys("tab d");
    assert!(screen.text().contains("They are being read."), "{}", screen.text());
    let error = Error::new("not_recorded", "no changes of S12 are recorded").with_hint("run it in git");
    screen.news(News::Changes { pane: PANE, at: None, changes: Err(error) });
    let text = screen.text();
    assert!(text.contains("no changes of S12 are recorded (run it in git)"), "{text}");
    assert!(!text.contains("being read"), "{text}");
}

#[test]
fn changes_of_another_question_are_not_shown() {
    let mut screen = started(in_changed_session);
    screen.keys("tab d").news(changes(Some(3), file_changes()));
    assert!(screen.text().contains("They are being read."), "{}", screen.text());
    screen.keys("esc").news(changes(None, file_changes()));
    assert!(!screen.text().contains("diff --git"), "{}", screen.text());
}

#[test]
fn the_whole_diff_is_read_in_the_pager() {
    let mut screen = started(in_changes);
    screen.keys("v");
    let request = Request::ReadChanges { pane: PANE, of: ChangesOf::Turn(6) };
    assert!(request.needs_terminal());
    assert_eq!(screen.asked(), [request]);
    assert!(screen.text().contains("diff --git"), "the layer stays");
    screen.news(changes(None, file_changes()));
    let error = Error::new("not_started", "`less` could not be started");
    screen.news(News::Failed { pane: Some(PANE), error, unsent: None });
    let text = screen.text();
    assert!(text.contains("`less` could not be started") && !text.contains("diff --git"), "{text}");
}

#[test]
fn an_undo_is_asked_for_and_done_by_y_or_enter() {
    for key in ["y", "enter"] {
        let mut screen = started(in_changes);
        screen.keys("u");
        assert_eq!(screen.asked(), [plan(ChangesOf::Turn(6))]);
        screen.news(planned(undo_question()));
        let text = screen.text();
        assert!(text.contains("Undo the changes of turn 6 of S12?"), "{text}");
        assert!(text.contains("3 files are restored, 2 files are deleted."), "{text}");
        screen.keys("x");
        assert_eq!(screen.asked(), [], "another key is no answer");
        screen.keys(key);
        let question = Box::new(undo_question());
        assert_eq!(screen.asked(), [Request::Undo { pane: PANE, question, force: false }]);
        screen.news(News::Undone { pane: PANE, summary: "undid turn 6: 4 files changed".into() });
        let text = screen.text();
        assert!(text.contains("undid turn 6: 4 files changed; u takes it back"), "{text}");
        assert!(!text.contains("diff --git"), "nothing covers the notice: {text}");
    }
}

#[test]
fn an_undo_that_overwrites_later_changes_needs_a_key_of_its_own() {
    for key in ["enter", "n", "esc"] {
        let mut screen = started(in_changes);
        screen.keys("u").news(planned(conflicting_undo()));
        screen.asked();
        screen.keys("y");
        assert!(screen.text().contains("f undo all the same"), "{}", screen.text());
        screen.keys(key);
        assert_eq!(screen.asked(), [], "{key}");
        assert!(screen.text().contains("diff --git"), "{key} goes back to the changes: {}", screen.text());
    }
    let mut screen = started(in_changes);
    screen.keys("u").news(planned(conflicting_undo()));
    let text = screen.keys("end").text();
    assert!(text.contains("part_10.rs: changed since the turn") && text.contains("and 2 more"), "{text}");
    assert!(!text.contains("part_11.rs"), "{text}");
    screen.asked();
    screen.keys("f");
    let question = Box::new(conflicting_undo());
    assert_eq!(screen.asked(), [Request::Undo { pane: PANE, question, force: true }]);
}

#[test]
fn the_undo_key_takes_the_undo_of_an_undone_turn_back() {
    let mut screen = started(in_changed_session);
    let mut shown = file_changes();
    shown.changes.undone_by = Some(Seq(122));
    screen.keys("tab d").news(changes(None, shown));
    assert!(screen.text().contains("u take the undo back"), "{}", screen.text());
    screen.asked();
    screen.keys("u");
    let of = ChangesOf::Event(Seq(122));
    assert_eq!(screen.asked(), [plan(of)]);
    let question = azureal::desk::UndoQuestion { of, ..undo_question() };
    screen.news(planned(question));
    assert!(screen.text().contains("Take back the undo of turn 6 of S12?"), "{}", screen.text());
}

#[test]
fn the_undo_key_asks_while_reading_too() {
    for keys in ["tab u", "ctrl-x u", "'/undo' enter"] {
        let mut screen = started(in_changed_session);
        screen.keys(keys);
        assert_eq!(screen.asked(), [Request::Changes { pane: PANE, at: None }], "{keys}");
        screen.news(changes(None, file_changes()));
        assert_eq!(screen.asked(), [plan(ChangesOf::Turn(6))], "{keys}");
        screen.news(planned(undo_question()));
        assert!(screen.text().contains("Undo the changes of turn 6"), "{keys}: {}", screen.text());
    }
}

#[test]
fn what_is_wrong_with_an_undo_is_a_notice_that_nothing_covers() {
    let mut screen = started(in_changes);
    screen.keys("u");
    let error = Error::new("busy", "a turn runs in this worktree").with_hint("wait for it");
    screen.news(News::Failed { pane: Some(PANE), error, unsent: None });
    let text = screen.text();
    assert!(text.contains("a turn runs in this worktree (wait for it)"), "{text}");
    // And a question that comes too late is not asked.
    screen.news(planned(undo_question()));
    assert!(!screen.text().contains("Undo the changes"), "{}", screen.text());
}

#[test]
fn a_diff_of_a_megabyte_is_scrolled_at_once() {
    let mut screen = started(in_changed_session);
    let diff = Ok(Diff { bytes: "+x\n".repeat(350_000).into_bytes(), left_out: 63 << 20 });
    screen.keys("tab d").news(changes(None, FileChanges { diff, ..file_changes() }));
    let begin = std::time::Instant::now();
    for _ in 0..200 {
        screen.keys("pagedown").draw();
    }
    assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    screen.keys("G");
    let text = screen.text();
    assert!(text.contains("63 MB more are left out: v shows the whole diff."), "{text}");
    // A narrow screen has other rows, and the end is still the end.
    screen.message(azureal_tui::Message::Resize(40, 12)).keys("G");
    assert!(screen.text().contains("are left out"), "{}", screen.text());
}

#[test]
fn the_line_of_changes_names_the_key_that_is_configured() {
    let mut screen = started(in_changed_session);
    assert!(screen.text().contains("4 files changed, +2 −4 · Ctrl-X d shows them"), "{}", screen.text());
    screen.keys("tab");
    assert!(screen.text().contains("4 files changed, +2 −4 · d shows them"), "{}", screen.text());
    let keys = [("changes".to_owned(), vec!["D".to_owned()])].into();
    let keys = azureal_tui::keys::Keys::new(&keys).unwrap();
    let mut screen = Screen::with((80, 24), COLOURS, crate::harness::settings(), keys);
    in_changed_session(&mut screen);
    screen.keys("tab");
    assert!(screen.text().contains("· D shows them"), "{}", screen.text());
}

#[test]
fn changes_of_a_turn_that_runs_are_named_as_they_are_stored() {
    let mut screen = started(in_turn);
    let files = vec![FileChange { path: "a".into(), added: Some(1), ..FileChange::default() }];
    let event = Event::Changes(Changes { files, ..Changes::default() });
    let output = vec![azureal::AgentOutput::Event(event)];
    screen.news(turn(PANE, azureal::desk::TurnNews::Output(output)));
    assert!(screen.text().contains("1 file changed, +1 −0 · Ctrl-X d shows them"), "{}", screen.text());
}
