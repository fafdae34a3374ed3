//! Keys that move and edit.

use super::*;

#[test]
fn words_wrap_and_the_cursor_has_a_cell_after_each_row() {
    let mut fixture = Fixture::typed("The login test still fails");
    assert_eq!(
        fixture.drawn(14, 9),
        (vec!["› The login".into(), "  test still".into(), "  fails".into()], (7, 2))
    );
    fixture.acts(&[Action::LineStart]);
    assert_eq!(fixture.drawn(14, 9).1, (2, 0));
}

#[test]
fn a_word_longer_than_a_row_is_broken_between_graphemes() {
    let fixture = Fixture::typed("ab日本語日本語日本語");
    assert_eq!(fixture.drawn(10, 9).0, ["› ab日本", "  語日本", "  語日本", "  語"]);
}

#[test]
fn the_cursor_moves_over_graphemes_of_any_width() {
    let mut fixture = Fixture::typed("a👩‍👩‍👧e\u{301}日");
    assert_eq!(fixture.drawn(40, 9), (vec!["› a👩‍👩‍👧e\u{301}日".into()], (8, 0)));
    let mut columns = vec![];
    for _ in 0..4 {
        fixture.key(KeyCode::Left);
        columns.push(fixture.drawn(40, 9).1.0);
    }
    assert_eq!(columns, [6, 5, 3, 2]);
    fixture.key(KeyCode::Delete);
    fixture.key(KeyCode::Delete);
    assert_eq!(fixture.text(), "e\u{301}日");
    fixture.key(KeyCode::Right);
    fixture.key(KeyCode::Backspace);
    assert_eq!(fixture.text(), "日");
}

#[test]
fn the_ends_of_lines_and_words_are_reached() {
    let mut fixture = Fixture::typed("one two\nthree");
    let at = |fixture: &mut Fixture, action| {
        fixture.act(action);
        fixture.prompt.editor.cursor()
    };
    assert_eq!(at(&mut fixture, Action::LineStart), 8);
    assert_eq!(at(&mut fixture, Action::WordLeft), 4);
    assert_eq!(at(&mut fixture, Action::WordLeft), 0);
    assert_eq!(at(&mut fixture, Action::WordRight), 3);
    assert_eq!(at(&mut fixture, Action::LineEnd), 7);
    assert_eq!(at(&mut fixture, Action::WordRight), 13);
    fixture.key_with(KeyCode::Home, KeyModifiers::CONTROL);
    assert_eq!(fixture.prompt.editor.cursor(), 0);
    fixture.key(KeyCode::End);
    assert_eq!(fixture.prompt.editor.cursor(), 7);
    fixture.key(KeyCode::Home);
    assert_eq!(fixture.prompt.editor.cursor(), 0);
    fixture.key_with(KeyCode::Right, KeyModifiers::ALT);
    assert_eq!(fixture.prompt.editor.cursor(), 3);
}

#[test]
fn deleted_words_and_lines_are_put_back_in_their_order() {
    let mut fixture = Fixture::typed("one two three\nfour");
    fixture.acts(&[Action::DeleteWord, Action::DeleteToStart]);
    assert_eq!(fixture.text(), "one two three");
    fixture.acts(&[Action::DeleteWord, Action::DeleteWord]);
    assert_eq!(fixture.text(), "one ");
    fixture.act(Action::PutBack);
    assert_eq!(fixture.text(), "one two three\nfour");
    fixture.key_with(KeyCode::Home, KeyModifiers::CONTROL);
    fixture.key_with(KeyCode::Char('d'), KeyModifiers::ALT);
    fixture.acts(&[Action::DeleteToEnd, Action::DeleteToEnd]);
    assert_eq!(fixture.text(), "four");
    fixture.acts(&[Action::LineEnd, Action::PutBack]);
    assert_eq!(fixture.text(), "fourone two three\n");
}

#[test]
fn a_word_for_ctrl_w_ends_at_a_space_and_for_alt_backspace_at_a_sign() {
    let mut fixture = Fixture::typed("see src/main.rs");
    fixture.key_with(KeyCode::Backspace, KeyModifiers::ALT);
    assert_eq!(fixture.text(), "see src/main.");
    fixture.act(Action::DeleteWord);
    assert_eq!(fixture.text(), "see ");
}

#[test]
fn typed_words_are_undone_one_by_one_and_redone() {
    let mut fixture = Fixture::typed("one two ");
    fixture.type_text("three");
    fixture.act(Action::Undo);
    assert_eq!(fixture.text(), "one two ");
    fixture.act(Action::Undo);
    assert_eq!(fixture.text(), "one ");
    fixture.acts(&[Action::Redo, Action::Redo]);
    assert_eq!(fixture.text(), "one two three");
    for _ in 0..5 {
        fixture.key(KeyCode::Backspace);
    }
    assert_eq!(fixture.text(), "one two ");
    fixture.act(Action::Undo);
    assert_eq!(fixture.text(), "one two three");
    assert_eq!(fixture.prompt.editor.cursor(), 13);
}

#[test]
fn rows_of_the_screen_are_moved_over_and_the_column_is_kept() {
    let mut fixture = Fixture::typed("abcdefgh\nxy\nabcdefgh ijkl");
    fixture.drawn(12, 9);
    let mut places = vec![];
    for _ in 0..3 {
        fixture.act(Action::Up);
        places.push(fixture.drawn(12, 9).1);
    }
    assert_eq!(places, [(6, 2), (4, 1), (6, 0)]);
    fixture.acts(&[Action::Down, Action::Down, Action::Down]);
    assert_eq!(fixture.drawn(12, 9).1, (6, 3));
}

#[test]
fn the_end_of_a_wrapped_row_is_reached_by_moving_up() {
    let mut fixture = Fixture::typed("aaaa bbbb");
    assert_eq!(fixture.drawn(10, 9).0, ["› aaaa", "  bbbb"]);
    fixture.act(Action::Up);
    // After the space would be the next row.
    assert_eq!(fixture.drawn(10, 9).1, (6, 0));
}

#[test]
fn every_way_to_break_a_line_works_and_enter_sends() {
    let mut fixture = Fixture::typed("a");
    fixture.act(Action::Newline);
    fixture.key_with(KeyCode::Enter, KeyModifiers::ALT);
    fixture.key_with(KeyCode::Enter, KeyModifiers::SHIFT);
    fixture.type_text("b\\");
    assert_eq!(fixture.key(KeyCode::Enter), PromptOutcome::Done);
    assert_eq!(fixture.text(), "a\n\n\nb\n");
    assert_eq!(fixture.key(KeyCode::Enter), PromptOutcome::Send);
    assert_eq!(fixture.act(Action::Queue), PromptOutcome::Queue);
    assert_eq!(fixture.prompt.take(&mut fixture.history), "a\n\n\nb\n");
    assert!(fixture.prompt.is_empty());
}

#[test]
fn two_backslashes_at_the_end_are_text() {
    let mut fixture = Fixture::typed("C:\\\\");
    assert_eq!(fixture.key(KeyCode::Enter), PromptOutcome::Send);
    assert_eq!(fixture.text(), "C:\\\\");
}

#[test]
fn a_blank_prompt_is_not_sent() {
    let mut fixture = Fixture::typed(" ");
    fixture.act(Action::Newline);
    assert_eq!(fixture.key(KeyCode::Enter), PromptOutcome::Done);
}

#[test]
fn control_characters_are_kept_and_shown_by_their_pictures() {
    let mut fixture = Fixture::default();
    fixture.prompt.paste("a\x1b[2Jb\x07\tc\u{202e}d\u{200b}e\r\nf\rg");
    assert_eq!(fixture.text(), "a\x1b[2Jb\x07\tc\u{202e}d\u{200b}e\nf\ng");
    assert_eq!(fixture.drawn(60, 9).0, ["› a␛[2Jb␇ c<U+202E>d<U+200B>e", "  f", "  g"]);
}

#[test]
fn the_box_grows_to_its_limit_and_then_scrolls_with_the_cursor() {
    let mut fixture = Fixture::typed("1\n2\n3\n4\n5");
    assert_eq!(fixture.drawn(20, 3), (vec!["  3".into(), "  4".into(), "  5".into()], (3, 2)));
    fixture.acts(&[Action::Up, Action::Up]);
    assert_eq!(fixture.drawn(20, 3), (vec!["  3".into(), "  4".into(), "  5".into()], (3, 0)));
    fixture.act(Action::Up);
    assert_eq!(fixture.drawn(20, 3), (vec!["  2".into(), "  3".into(), "  4".into()], (3, 0)));
    assert_eq!(fixture.drawn(20, 1), (vec!["  2".into()], (3, 0)));
    assert_eq!(fixture.drawn(20, 9).0.len(), 5);
}

#[test]
fn escape_changes_no_text() {
    let mut fixture = Fixture::typed("text");
    assert_eq!(fixture.key(KeyCode::Esc), PromptOutcome::Ignored);
    assert_eq!(fixture.text(), "text");
}

#[test]
fn a_tiny_area_is_drawn() {
    let fixture = Fixture::typed("日本 text");
    for width in 1..5 {
        let (rows, (x, _)) = fixture.drawn(width, 3);
        assert!(x < width, "{rows:?}");
    }
    let mut buffer = Buffer::empty(Rect::new(0, 0, 4, 4));
    assert_eq!(fixture.prompt.draw(Rect::new(9, 9, 4, 4), &mut buffer, &THEME), None);
}
