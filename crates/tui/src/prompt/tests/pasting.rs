//! Pastes: placeholders, the limit, and terminals that do not mark pastes.

use super::*;

fn lines(count: usize) -> String {
    (0..count).map(|n| format!("line {n}\n")).collect()
}

#[test]
fn a_small_paste_is_text_and_a_large_one_is_a_placeholder() {
    let mut fixture = Fixture::typed("see ");
    fixture.prompt.paste(&"x".repeat(1_000));
    assert_eq!(fixture.text().len(), 1_004);
    assert!(fixture.prompt.height(80, 40) > 10);
    let mut fixture = Fixture::typed("see ");
    fixture.prompt.paste(&lines(10));
    assert_eq!(fixture.drawn(40, 20).0.len(), 11);
    let mut fixture = Fixture::typed("see ");
    fixture.prompt.paste(&lines(312));
    fixture.type_text(" and mend it");
    assert_eq!(fixture.drawn(60, 20).0, ["› see [pasted 312 lines, 3 kB] and mend it"]);
    assert_eq!(fixture.text(), format!("see {} and mend it", lines(312)));
}

#[test]
fn a_placeholder_is_one_unit_for_the_cursor_and_for_deletion() {
    let mut fixture = Fixture::typed("a");
    fixture.prompt.paste(&lines(20));
    fixture.type_text("b");
    fixture.key(KeyCode::Left);
    fixture.key(KeyCode::Left);
    assert_eq!(fixture.drawn(60, 9).1, (3, 0));
    fixture.key(KeyCode::Right);
    assert_eq!(fixture.drawn(60, 9).1, (31, 0));
    fixture.key(KeyCode::Backspace);
    assert_eq!(fixture.text(), "ab");
    fixture.act(Action::Undo);
    assert_eq!(fixture.text(), format!("a{}b", lines(20)));
    assert_eq!(fixture.drawn(60, 9).0, ["› a[pasted 20 lines, 150 bytes]b"]);
}

#[test]
fn a_deleted_placeholder_is_put_back_elsewhere() {
    let mut fixture = Fixture::default();
    fixture.prompt.paste(&lines(20));
    fixture.act(Action::DeleteWord);
    assert!(fixture.prompt.is_empty());
    fixture.type_text("see ");
    fixture.act(Action::PutBack);
    assert_eq!(fixture.text(), format!("see {}", lines(20)));
    assert_eq!(fixture.drawn(60, 9).0.len(), 1);
}

#[test]
fn two_pastes_of_the_same_text_are_two() {
    let mut fixture = Fixture::default();
    fixture.prompt.paste(&lines(20));
    fixture.prompt.paste(&lines(20));
    assert_eq!(fixture.text(), lines(20).repeat(2));
    fixture.key(KeyCode::Backspace);
    assert_eq!(fixture.text(), lines(20));
}

#[test]
fn the_stand_in_character_of_a_user_is_a_character() {
    let mut fixture = Fixture::typed("\u{FFFC}");
    fixture.prompt.paste(&lines(20));
    fixture.type_text("\u{FFFC}\u{301}");
    assert_eq!(fixture.text(), format!("\u{FFFC}{}\u{FFFC}\u{301}", lines(20)));
    fixture.key(KeyCode::Backspace);
    assert_eq!(fixture.text(), format!("\u{FFFC}{}", lines(20)));
}

#[test]
fn a_combining_character_does_not_join_a_placeholder() {
    let mut fixture = Fixture::default();
    fixture.prompt.paste(&lines(20));
    fixture.type_text("\u{301}");
    fixture.key(KeyCode::Backspace);
    assert_eq!(fixture.text(), lines(20));
}

#[test]
fn a_placeholder_wider_than_the_box_is_cut() {
    let mut fixture = Fixture::typed("a ");
    fixture.prompt.paste(&lines(20));
    assert_eq!(fixture.drawn(12, 9), (vec!["› a".into(), "  [pasted …".into()], (11, 1)));
}

#[test]
fn a_paste_of_5_mb_costs_no_more_to_draw_than_a_small_one() {
    let work = |size: usize| {
        let mut fixture = Fixture::typed("see ");
        fixture.prompt.paste(&"0123456789 abc\n".repeat(size / 15));
        steps(|| {
            fixture.drawn(80, 20);
            fixture.acts(&[Action::Up, Action::Down, Action::WordLeft, Action::LineStart]);
            fixture.type_text("x");
            fixture.drawn(80, 20);
        })
    };
    let small = work(2_000);
    assert_eq!(work(5_000_000), small);
    assert!(small < 200, "{small} units");
}

#[test]
fn many_small_pastes_stay_cheap_to_draw() {
    let mut fixture = Fixture::default();
    for _ in 0..1_000 {
        fixture.prompt.paste(&"x".repeat(900));
    }
    assert_eq!(fixture.text().len(), 900_000);
    let steps = steps(|| drop(fixture.drawn(80, 20)));
    assert!(steps < 3 * MOST_INLINE, "{steps} units");
}

#[test]
fn a_paste_over_the_limit_is_refused_and_changes_nothing() {
    let mut fixture = Fixture::typed("mine");
    let outcome = fixture.prompt.paste(&"x".repeat(LARGEST - 3));
    assert_eq!(
        outcome,
        PromptOutcome::Refused("the prompt would be longer than 10 MiB; name the file instead".into())
    );
    assert_eq!(fixture.text(), "mine");
    assert_eq!(fixture.prompt.paste(&"x".repeat(LARGEST - 4)), PromptOutcome::Done);
    assert!(matches!(fixture.prompt.insert('y'), PromptOutcome::Refused(_)));
    assert!(matches!(fixture.act(Action::Newline), PromptOutcome::Refused(_)));
    assert_eq!(fixture.text().len(), LARGEST);
}

#[test]
fn a_draft_comes_back_whole_and_a_large_one_as_a_placeholder() {
    let mut fixture = Fixture::typed("one\ntwo");
    let draft = fixture.prompt.draft();
    fixture = Fixture::default();
    fixture.prompt.set_text(&draft);
    assert_eq!(fixture.drawn(40, 9).0, ["› one", "  two"]);
    fixture.prompt.set_text(&lines(1_000));
    assert_eq!(fixture.text(), lines(1_000));
    assert_eq!(fixture.drawn(40, 9).0, ["› [pasted 1000 lines, 9 kB]"]);
    fixture.act(Action::Undo);
    assert_eq!(fixture.text(), "one\ntwo");
}

/// Types keys with times, as a terminal without marked pastes does. Returns the prompts that were sent.
fn keys_at(fixture: &mut Fixture, keys: &[(u64, char)]) -> Vec<String> {
    let mut sent = vec![];
    let take = |fixture: &mut Fixture, outcome, sent: &mut Vec<String>| {
        if outcome == PromptOutcome::Send {
            sent.push(fixture.prompt.take(&mut fixture.history));
        }
    };
    for (now_ms, key) in keys {
        let outcome = fixture.prompt.tick(*now_ms);
        take(fixture, outcome, &mut sent);
        let outcome =
            if *key == '\n' { fixture.key(KeyCode::Enter) } else { fixture.key(KeyCode::Char(*key)) };
        if let PromptOutcome::Wait { until_ms } = outcome {
            assert!(until_ms > *now_ms && until_ms <= now_ms + 20);
        }
        take(fixture, outcome, &mut sent);
    }
    let outcome = fixture.prompt.tick(keys.last().map_or(0, |(ms, _)| ms + 1_000));
    take(fixture, outcome, &mut sent);
    sent
}

fn at_once(text: &str) -> Vec<(u64, char)> {
    text.chars().enumerate().map(|(n, c)| (1_000 + n as u64 / 50, c)).collect()
}

#[test]
fn an_enter_between_fast_characters_is_a_line_break() {
    let mut fixture = Fixture::default();
    let sent = keys_at(&mut fixture, &at_once("a\nb\n\nfn main() {\n}\n"));
    assert_eq!(sent, Vec::<String>::new());
    assert_eq!(fixture.text(), "a\nb\n\nfn main() {\n}\n");
    assert_eq!(keys_at(&mut fixture, &[(9_000, '\n')]), ["a\nb\n\nfn main() {\n}\n"]);
}

#[test]
fn an_enter_after_characters_that_a_program_types_sends() {
    let mut fixture = Fixture::default();
    assert_eq!(keys_at(&mut fixture, &at_once("hello\n")), ["hello"]);
}

#[test]
fn an_enter_after_typed_characters_sends_at_once() {
    let mut fixture = Fixture::default();
    fixture.prompt.tick(0);
    fixture.key(KeyCode::Char('a'));
    fixture.prompt.tick(40);
    assert_eq!(fixture.key(KeyCode::Enter), PromptOutcome::Send);
}

#[test]
fn a_held_enter_before_another_key_is_a_line_break() {
    let mut fixture = Fixture::default();
    fixture.prompt.tick(0);
    fixture.type_text("ab");
    assert!(matches!(fixture.key(KeyCode::Enter), PromptOutcome::Wait { .. }));
    fixture.key(KeyCode::Left);
    assert_eq!(fixture.text(), "ab\n");
    assert_eq!(fixture.prompt.tick(1_000), PromptOutcome::Ignored);
}

#[test]
fn backslashes_and_paths_in_a_burst_are_text() {
    let mut fixture = Fixture::default();
    fixture.prompt.tick(1_000);
    fixture.type_text("cp \\\\ @s");
    fixture.prompt.paths("s", vec!["src/".into()]);
    let text = "cp \\\\ @s";
    assert_eq!(fixture.prompt.layer(), Layer::Paths);
    assert!(matches!(fixture.key(KeyCode::Enter), PromptOutcome::Wait { .. }));
    fixture.type_text("x");
    assert_eq!(fixture.text(), format!("{text}\nx"));
    let mut fixture = Fixture::default();
    assert_eq!(keys_at(&mut fixture, &at_once("cc a.c \\\n  b.c")), Vec::<String>::new());
    assert_eq!(fixture.text(), "cc a.c \\\n  b.c");
    let mut fixture = Fixture::default();
    assert_eq!(keys_at(&mut fixture, &at_once("a\\\n")), Vec::<String>::new());
    assert_eq!(fixture.text(), "a\n", "a program types a line break as a user does");
}

#[test]
fn a_large_burst_becomes_a_placeholder_with_all_of_its_text() {
    let mut fixture = Fixture::typed("see ");
    let text = lines(10_000);
    assert_eq!(keys_at(&mut fixture, &at_once(&text)), Vec::<String>::new());
    assert_eq!(fixture.text(), format!("see {text}"));
    assert_eq!(fixture.drawn(60, 9).0, ["› see [pasted 10000 lines, 99 kB]"]);
    fixture.key(KeyCode::Backspace);
    assert_eq!(fixture.text(), "see ");
}

#[test]
fn a_terminal_that_marks_pastes_is_not_watched_for_bursts() {
    let mut fixture = Fixture::default();
    fixture.prompt.paste("x");
    assert_eq!(keys_at(&mut fixture, &at_once("a\nb")), ["xa"]);
    assert_eq!(fixture.text(), "b");
}
