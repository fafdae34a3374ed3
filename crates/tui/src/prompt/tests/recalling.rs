//! History, its search, paths and waiting prompts.

use super::*;

#[test]
fn the_history_is_browsed_at_the_edges_and_the_own_text_comes_back() {
    let mut fixture = Fixture::with_history(&["first", "second\nline"]);
    fixture.type_text("own");
    fixture.act(Action::Up);
    assert_eq!(fixture.text(), "second\nline");
    fixture.act(Action::Up);
    assert_eq!(fixture.text(), "second\nline", "the cursor was in the second row");
    fixture.act(Action::Up);
    assert_eq!(fixture.text(), "first");
    assert_eq!(fixture.act(Action::Up), PromptOutcome::Ignored);
    fixture.acts(&[Action::Down, Action::Down]);
    assert_eq!(fixture.text(), "own");
    assert_eq!(fixture.act(Action::Down), PromptOutcome::Ignored);
    fixture.act(Action::Undo);
    assert_eq!(fixture.text(), "", "the changes of the own text came back too");
}

#[test]
fn changed_entries_are_kept_until_something_is_sent_and_then_are_in_the_history() {
    let mut fixture = Fixture::with_history(&["first", "second"]);
    fixture.type_text("own");
    fixture.act(Action::Up);
    fixture.type_text(" changed");
    fixture.act(Action::Up);
    assert_eq!(fixture.text(), "first");
    assert_eq!(fixture.prompt.draft(), "own");
    assert_eq!(fixture.prompt.other_drafts(), ["second changed"]);
    fixture.act(Action::Down);
    assert_eq!(fixture.text(), "second changed");
    assert_eq!(fixture.prompt.draft(), "second changed");
    assert_eq!(fixture.prompt.other_drafts(), ["own"]);
    fixture.act(Action::Up);
    assert_eq!(fixture.prompt.take(&mut fixture.history), "first");
    assert_eq!(fixture.history.kept(), ["second", "second changed", "own", "first"]);
    assert!(fixture.prompt.is_empty());
    assert_eq!(fixture.act(Action::Down), PromptOutcome::Ignored);
}

#[test]
fn entries_of_other_boxes_do_not_move_the_place() {
    let mut fixture = Fixture::with_history(&["first", "second"]);
    fixture.act(Action::Up);
    fixture.history.add("third");
    fixture.act(Action::Up);
    assert_eq!(fixture.text(), "first");
    fixture.acts(&[Action::Down, Action::Down]);
    assert_eq!(fixture.text(), "third");
}

#[test]
fn a_cleared_text_is_the_newest_entry() {
    let mut fixture = Fixture::with_history(&["first"]);
    fixture.type_text("do not lose me");
    assert!(fixture.prompt.clear_into(&mut fixture.history));
    assert!(fixture.prompt.is_empty());
    assert!(!fixture.prompt.clear_into(&mut fixture.history));
    fixture.act(Action::Up);
    assert_eq!(fixture.text(), "do not lose me");
}

#[test]
fn a_cleared_paste_of_5_mb_is_retrievable_as_a_placeholder() {
    let mut fixture = Fixture::with_history(&["first"]);
    let paste = "0123456789\n".repeat(500_000);
    fixture.prompt.paste(&paste);
    fixture.prompt.clear_into(&mut fixture.history);
    fixture.act(Action::Up);
    assert_eq!(fixture.drawn(60, 9).0, ["› [pasted 500000 lines, 5.5 MB]"]);
    assert_eq!(fixture.text(), paste);
    assert_eq!(fixture.history.len(), 2);
}

#[test]
fn the_search_finds_the_newest_entry_then_older_ones_and_enter_takes_it() {
    let mut fixture = Fixture::with_history(&["fix the Login", "login again", "other"]);
    fixture.type_text("own");
    fixture.act(Action::HistorySearch);
    fixture.type_text("login");
    assert_eq!(fixture.prompt.layer(), Layer::Search);
    assert_eq!(fixture.drawn(40, 9), (vec!["history: login".into(), "› login again".into()], (14, 0)));
    fixture.act(Action::HistorySearch);
    assert_eq!(fixture.drawn(40, 9).0, ["history: login", "› fix the Login"]);
    fixture.act(Action::HistorySearch);
    assert_eq!(fixture.drawn(40, 9).0, ["history, no more: login", "› fix the Login"]);
    fixture.act(Action::Down);
    assert_eq!(fixture.drawn(40, 9).0, ["history: login", "› login again"]);
    assert_eq!(fixture.text(), "own", "the box is not changed by a search");
    assert_eq!(fixture.key(KeyCode::Enter), PromptOutcome::Done);
    assert_eq!((fixture.text().as_str(), fixture.prompt.layer()), ("login again", Layer::Text));
    fixture.acts(&[Action::Down, Action::Down]);
    assert_eq!(fixture.text(), "own");
}

#[test]
fn escape_in_the_search_returns_to_the_text() {
    let mut fixture = Fixture::with_history(&["fix the login"]);
    fixture.type_text("own");
    fixture.act(Action::HistorySearch);
    fixture.type_text("fixx");
    assert_eq!(fixture.drawn(40, 9).0, ["history, no more: fixx", "› fix the login"]);
    fixture.key(KeyCode::Backspace);
    assert_eq!(fixture.drawn(40, 9).0, ["history: fix", "› fix the login"]);
    assert_eq!(fixture.drawn(40, 1).0, ["history: fix  fix the login"]);
    assert_eq!(fixture.key(KeyCode::Esc), PromptOutcome::Done);
    assert_eq!(fixture.text(), "own");
    assert_eq!(fixture.key(KeyCode::Esc), PromptOutcome::Ignored);
}

#[test]
fn a_motion_in_the_search_takes_the_entry_and_moves_in_it() {
    let mut fixture = Fixture::with_history(&["fix the login"]);
    fixture.act(Action::HistorySearch);
    fixture.act(Action::WordLeft);
    fixture.type_text("new ");
    assert_eq!(fixture.text(), "fix the new login");
    fixture.act(Action::HistorySearch);
    fixture.key(KeyCode::Left);
    assert_eq!(fixture.prompt.layer(), Layer::Text);
}

#[test]
fn a_search_in_an_empty_history_finds_nothing_and_takes_nothing() {
    let mut fixture = Fixture::typed("own");
    fixture.act(Action::HistorySearch);
    assert_eq!(fixture.drawn(40, 9).0, ["history, none:"]);
    fixture.key(KeyCode::Enter);
    assert_eq!(fixture.text(), "own");
}

fn paths(fixture: &mut Fixture, prefix: &str, paths: &[&str]) {
    fixture.prompt.paths(prefix, paths.iter().map(|path| (*path).to_owned()).collect());
}

fn asks(prefix: &str) -> PromptOutcome {
    PromptOutcome::Complete { prefix: prefix.to_owned() }
}

#[test]
fn a_path_is_asked_for_chosen_and_taken() {
    let mut fixture = Fixture::typed("see ");
    assert_eq!(fixture.key(KeyCode::Char('@')), asks(""));
    assert_eq!(fixture.key(KeyCode::Char('s')), asks("s"));
    paths(&mut fixture, "", &["late"]);
    assert_eq!(fixture.prompt.popup_height(), 0);
    paths(&mut fixture, "s", &["src/", "src/main.rs", "my songs.txt"]);
    assert_eq!((fixture.prompt.popup_height(), fixture.prompt.layer()), (3, Layer::Paths));
    assert_eq!(fixture.key(KeyCode::Enter), asks("src/"), "a folder stays open");
    assert_eq!(fixture.text(), "see @src/");
    paths(&mut fixture, "src/", &["src/lib.rs", "src/main.rs"]);
    fixture.act(Action::Down);
    assert_eq!(fixture.key(KeyCode::Tab), PromptOutcome::Done);
    assert_eq!(fixture.text(), "see @src/main.rs ");
    assert_eq!(fixture.prompt.layer(), Layer::Text);
    fixture.act(Action::Undo);
    assert_eq!(fixture.text(), "see @src/");
}

#[test]
fn a_path_with_spaces_is_quoted_and_completed_inside_its_quotes() {
    let mut fixture = Fixture::typed("@m");
    paths(&mut fixture, "m", &["my files/"]);
    assert_eq!(fixture.key(KeyCode::Tab), asks("my files/"));
    assert_eq!(fixture.text(), "@\"my files/");
    assert_eq!(fixture.key(KeyCode::Char('a')), asks("my files/a"));
    assert_eq!(fixture.key(KeyCode::Char(' ')), asks("my files/a "));
    paths(&mut fixture, "my files/a ", &["my files/a b"]);
    fixture.key(KeyCode::Tab);
    assert_eq!(fixture.text(), "@\"my files/a b\" ");
    assert_eq!(fixture.key(KeyCode::Char('x')), PromptOutcome::Done);
}

#[test]
fn escape_closes_the_list_only_and_it_stays_closed_for_this_path() {
    let mut fixture = Fixture::typed("@s");
    paths(&mut fixture, "s", &["src/"]);
    assert_eq!(fixture.key(KeyCode::Esc), PromptOutcome::Done);
    assert_eq!((fixture.text().as_str(), fixture.prompt.layer()), ("@s", Layer::Text));
    assert_eq!(fixture.key(KeyCode::Char('r')), PromptOutcome::Done);
    assert_eq!(fixture.act(Action::CompletePath), asks("sr"), "a key opens it again");
    fixture.type_text(" ");
    assert_eq!(fixture.key(KeyCode::Char('@')), asks(""), "another path opens it again");
}

#[test]
fn an_at_sign_inside_a_word_is_no_path() {
    let mut fixture = Fixture::typed("me");
    assert_eq!(fixture.key(KeyCode::Char('@')), PromptOutcome::Done);
    assert_eq!(fixture.key(KeyCode::Char('x')), PromptOutcome::Done);
    assert_eq!(fixture.act(Action::CompletePath), PromptOutcome::Ignored);
}

#[test]
fn a_path_typed_in_full_is_sent_by_enter() {
    let mut fixture = Fixture::typed("@src/lib.rs");
    paths(&mut fixture, "src/lib.rs", &["src/lib.rs"]);
    assert_eq!(fixture.prompt.popup_height(), 0);
    assert_eq!(fixture.key(KeyCode::Enter), PromptOutcome::Send);
    paths(&mut fixture, "src/lib.rs", &["src/lib.rs", "src/lib.rs.orig"]);
    assert_eq!(fixture.prompt.popup_height(), 2);
    assert_eq!(fixture.key(KeyCode::Enter), PromptOutcome::Send);
    fixture.act(Action::Down);
    fixture.key(KeyCode::Enter);
    assert_eq!(fixture.text(), "@src/lib.rs.orig ");
}

#[test]
fn paths_that_still_fit_are_shown_until_the_answer_comes() {
    let mut fixture = Fixture::typed("@s");
    paths(&mut fixture, "s", &["src/", "setup", "docs/s"]);
    fixture.type_text("e");
    assert_eq!(fixture.prompt.popup_height(), 1);
    fixture.type_text("x");
    assert_eq!(fixture.prompt.popup_height(), 0);
}

#[test]
fn waiting_prompts_go_out_in_their_order_and_the_last_one_is_edited() {
    let mut fixture = Fixture::typed("in the box");
    let mut waiting = Waiting::default();
    waiting.queue("queued".into());
    waiting.stage("staged".into());
    waiting.stage("staged again".into());
    assert_eq!(waiting.kept(), ["staged", "queued", "staged again"]);
    assert!(waiting.edit_last(&mut fixture.prompt, &mut fixture.history));
    assert_eq!(
        (fixture.text().as_str(), fixture.history.kept()),
        ("staged again", vec!["in the box".into()])
    );
    assert_eq!(waiting.take_next().as_deref(), Some("staged"));
    assert_eq!(waiting.take_next().as_deref(), Some("queued"));
    assert_eq!(waiting.take_next(), None);
    assert!(!waiting.edit_last(&mut fixture.prompt, &mut fixture.history));
    assert_eq!(fixture.text(), "staged again");
}
