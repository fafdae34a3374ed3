//! Reading: scrolling, folds, search, copies.

use super::*;
use Action::*;

fn top(desk: &mut Desk) -> String {
    desk.screen()[0].clone()
}

#[test]
fn the_end_is_shown_first_and_followed() {
    let mut desk = Desk::open(turns(20), 80, 10);
    assert!(desk.text().ends_with("done in 42 s"), "{}", desk.text());
    assert!(desk.pane.position().is_following);
    desk.append(&turn(21));
    assert!(desk.screen().iter().any(|row| row.contains("find_for_update(21)")), "{}", desk.text());
}

#[test]
fn a_reader_is_not_moved_by_what_is_added() {
    let mut desk = Desk::open(turns(20), 80, 10);
    desk.acts(&[PageUp, PageUp, RowUp]);
    let before = desk.screen();
    assert_eq!(desk.pane.position().new_events, 0);
    desk.append(&turn(21));
    desk.append(&turn(22));
    assert_eq!(desk.screen(), before);
    let position = desk.pane.position();
    assert_eq!((position.is_following, position.new_events, position.events), (false, 12, 132));
    desk.act(Bottom);
    assert!(desk.pane.position().is_following);
}

#[test]
fn scrolling_down_to_the_end_follows_again() {
    let mut desk = Desk::open(turns(20), 80, 10);
    let end = desk.screen();
    desk.acts(&[PageUp, RowUp, HalfUp]);
    assert!(!desk.pane.position().is_following);
    desk.acts(&[PageDown, HalfDown, RowDown]);
    assert!(desk.pane.position().is_following);
    assert_eq!(desk.screen(), end);
}

#[test]
fn home_and_end_read_what_is_not_there() {
    let mut desk = Desk::open(turns(200), 80, 10);
    desk.act(Top);
    assert!(desk.screen()[1].contains("Prompt 1:"), "{}", desk.text());
    desk.acts(&[PageDown; 60]);
    assert!(!desk.pane.position().is_following);
    desk.act(Bottom);
    assert!(desk.screen().iter().any(|row| row.contains("find_for_update(200)")), "{}", desk.text());
}

#[test]
fn prompts_are_found_within_the_window_and_beyond_it() {
    let mut desk = Desk::open(turns(60), 80, 10);
    for prompt in (30..=60).rev() {
        desk.act(PromptBefore);
        assert!(desk.screen()[1].contains(&format!("Prompt {prompt}:")), "{prompt}: {}", desk.text());
    }
    desk.act(PromptAfter);
    assert!(desk.screen()[1].contains("Prompt 31:"), "{}", desk.text());
    desk.act(Top);
    assert_eq!(desk.act(PromptBefore).note.as_deref(), Some("no earlier prompt"));
}

#[test]
fn a_fold_keeps_the_block_in_its_place_and_a_second_one_undoes_it() {
    let output: String = (1..=30).map(|n| format!("line {n}\n")).collect();
    let mut events = turns(3);
    events.extend([
        Event::user("Go"),
        init(),
        call("x", "Bash", r#"{"command":"make"}"#),
        result("x", "Bash", &output),
        Event::assistant("Done."),
    ]);
    events.extend(turns(3));
    let mut desk = Desk::open(events, 80, 12);
    desk.acts(&[PromptBefore; 4]);
    desk.acts(&[RowDown; 3]);
    let before = desk.screen();
    let row = before.iter().position(|row| row.contains("make")).unwrap();
    assert!(before[row].contains('▸') && before[row].starts_with('▌'), "{before:#?}");
    desk.act(Fold);
    let open = desk.screen();
    assert!(open[row].contains('▾'), "{open:#?}");
    assert!(open[row + 1].contains("line"), "{open:#?}");
    assert_eq!(open[..row], before[..row]);
    desk.act(Fold);
    assert_eq!(desk.screen(), before);
    desk.act(FoldAll);
    assert!(desk.screen()[row].contains('▾'));
    desk.act(FoldAll);
    assert_eq!(desk.screen(), before);
}

#[test]
fn an_open_call_whose_event_is_short_asks_for_the_full_form() {
    let mut events = turns(1);
    events.extend([call("x", "Bash", r#"{"command":"make"}"#), {
        let Event::ToolResult(short) = result("x", "Bash", "[2 lines omitted]\nthree\nfour") else {
            panic!()
        };
        Event::ToolResult(ToolResult { omitted: Some(2), ..short })
    }]);
    let mut desk = Desk::open(events, 80, 24);
    desk.full = vec![(Seq(8), result("x", "Bash", "alpha\nbeta\nthree\nfour"))];
    assert!(!desk.text().contains("alpha"));
    desk.act(Fold);
    let text = desk.text();
    assert!(text.contains("alpha\n") && text.contains("beta\n") && !text.contains("omitted"), "{text}");
    let requests = desk.requests;
    desk.acts(&[Fold, Fold]);
    assert_eq!(desk.requests, requests, "it is asked for once");
}

#[test]
fn a_failed_call_whose_event_is_short_shows_what_its_full_form_says() {
    let failed = |content: &str, omitted| {
        let Event::ToolResult(short) = result("x", "Bash", content) else { panic!() };
        Event::ToolResult(ToolResult { is_error: true, omitted, ..short })
    };
    let lines: String = (1..=12).map(|n| format!("line {n}\n")).collect();
    let mut events = turns(1);
    events.extend([
        call("x", "Bash", r#"{"command":"make"}"#),
        failed("[11 lines omitted]\nline 11\nline 12", Some(11)),
    ]);
    let mut desk = Desk::open(events, 80, 24);
    desk.full = vec![(Seq(8), failed(&format!("Exit code 3\n{lines}"), None))];
    desk.pane.asked.full.clear();
    let text = desk.text();
    assert!(text.contains("exit 3 · 12 lines") && !text.contains("omitted"), "{text}");
    assert!(text.contains("▸ ✗ Bash"), "{text}");
}

#[test]
fn an_edit_shows_the_beginning_of_its_diff_until_it_is_opened() {
    let new: String = (1..=9).map(|n| format!("new {n}\\n")).collect();
    let input = format!(r#"{{"file_path":"/p/a.rs","old_string":"old\n","new_string":"{new}"}}"#);
    let mut events = turns(1);
    events.extend([call("x", "Edit", &input), result("x", "Edit", "updated")]);
    let mut desk = Desk::open(events, 80, 40);
    let text = desk.text();
    assert!(text.contains("- old\n") && text.contains("+ new 4\n"), "{text}");
    assert!(!text.contains("new 5") && text.contains("… 5 more lines"), "{text}");
    desk.act(Fold);
    assert!(desk.text().contains("+ new 9"), "{}", desk.text());
    desk.act(Fold);
    assert_eq!(desk.text(), text);
    desk.search("new 8");
    assert!(desk.text().contains("+ new 8"), "{}", desk.text());
}

#[test]
fn the_reading_cursor_is_on_a_block_with_a_visible_row() {
    let mut desk = Desk::open(turns(40), 40, 9);
    let is_marked = |desk: &mut Desk| desk.screen().iter().any(|row| row.starts_with('▌'));
    for first in [Bottom, PromptBefore, Top] {
        for action in [RowUp, HalfUp, PageUp, RowDown, HalfDown, PageDown] {
            desk.act(first);
            for _ in 0..30 {
                desk.act(action);
                assert!(is_marked(&mut desk), "{first:?} {action:?}: {}", desk.text());
            }
        }
    }
    // No blank row stops it.
    desk.act(Top);
    desk.acts(&[RowDown; 1_000]);
    assert!(desk.pane.position().is_following);
}

#[test]
fn a_full_form_does_not_move_a_reader_in_the_middle_of_the_output() {
    let lines = |range: std::ops::Range<u32>| range.map(|n| format!("line {n}\n")).collect::<String>();
    let mut events = turns(1);
    events.extend([call("x", "Read", r#"{"file_path":"/p/a"}"#), {
        let Event::ToolResult(short) = result("x", "Read", &lines(100..160)) else { panic!() };
        Event::ToolResult(ToolResult { omitted: Some(100), ..short })
    }]);
    let mut desk = Desk::open(events, 80, 10);
    let full = vec![(Seq(8), result("x", "Read", &lines(0..160)))];
    desk.acts(&[Fold]);
    desk.acts(&[RowDown; 20]);
    let before = desk.screen();
    assert!(before[0].contains("line 1"), "{before:#?}");
    desk.pane.news(&News::Full { pane: PaneId(1), events: full });
    assert_eq!(desk.screen(), before);
    for _ in 0..13 {
        desk.act(PageUp);
    }
    assert!(desk.text().contains("line 9\n"), "{}", desk.text());
}

#[test]
fn tones_of_code_arrive_later_and_move_no_row() {
    let mut desk = Desk::open(turns(2), 80, 20);
    desk.pane.set_reading(false);
    let before = desk.screen();
    let colour = |desk: &Desk, text: &str| {
        let buffer = desk.buffer();
        let row = (0..20).rfind(|y| line(&buffer, *y).contains(text)).unwrap();
        let column = line(&buffer, row).find(text).unwrap();
        buffer[(u16::try_from(column).unwrap(), row)].fg
    };
    let plain = colour(&desk, "let row");
    let Some(Request::Highlight { block, at, code, language, .. }) = desk.highlights.last().cloned() else {
        panic!("{:?}", desk.highlights)
    };
    assert_eq!((language.as_str(), code.as_str()), ("rust", "let row = self.find_for_update(2)?;\n"));
    let tones = vec![(0..3, azureal::transcript::Tone::Keyword)];
    desk.pane.news(&News::Highlighted { pane: PaneId(1), block, at, tones });
    assert_eq!(desk.screen(), before);
    assert_eq!(colour(&desk, "let row"), ratatui::style::Color::Magenta);
    assert_eq!(colour(&desk, "row = "), plain);
    let asked = desk.highlights.len();
    desk.resize(60, 20);
    assert_eq!(colour(&desk, "let row"), ratatui::style::Color::Magenta, "the tones stay");
    assert_eq!(desk.highlights.len(), asked, "and are asked for once");
}

#[test]
fn a_hit_is_found_marked_and_gone_to_also_outside_the_window() {
    let mut desk = Desk::open(turns(200), 80, 12);
    desk.search("find_FOR_update(7)");
    let screen = desk.screen();
    let row =
        screen.iter().position(|row| row.contains("find_for_update(7)")).expect("the hit is on the screen");
    assert!(row > 0, "there are rows above it");
    let before = &screen[row][..screen[row].find("find").unwrap()];
    let column = u16::try_from(before.chars().count()).unwrap();
    let buffer = desk.buffer();
    let is_marked = |x: u16| {
        let modifier = buffer[(x, u16::try_from(row).unwrap())].modifier;
        modifier.contains(ratatui::style::Modifier::REVERSED)
    };
    assert!(is_marked(column) && is_marked(column + 17) && !is_marked(column - 1) && !is_marked(column + 18));
    desk.search("no such words");
    assert_eq!(desk.pane.take_note().as_deref(), Some("no hit for `no such words`"));
}

#[test]
fn n_goes_on_down_and_shift_n_goes_up() {
    let mut desk = Desk::open(turns(100), 80, 12);
    desk.act(Top);
    desk.search("Prompt");
    let shown = |desk: &mut Desk, n: u64| {
        let text = desk.text();
        assert!(text.contains(&format!("Prompt {n}:")), "{n}: {text}");
    };
    shown(&mut desk, 1);
    assert_eq!(desk.act(FindPrevious).note.as_deref(), Some("no hit above"));
    for n in 2..=100 {
        desk.act(FindNext);
        shown(&mut desk, n);
    }
    assert_eq!(desk.act(FindNext).note.as_deref(), Some("no hit below"));
    for n in (1..100).rev() {
        desk.act(FindPrevious);
        shown(&mut desk, n);
    }
}

#[test]
fn n_goes_on_up_after_a_search_that_has_hits_only_above() {
    let mut desk = Desk::open(turns(100), 80, 12);
    let shown = |desk: &mut Desk, n: u64| {
        let text = desk.text();
        assert!(text.contains(&format!("find_for_update({n})")), "{n}: {text}");
    };
    desk.search("find_for_update(9");
    shown(&mut desk, 99);
    for n in (90..99).rev() {
        desk.act(FindNext);
        shown(&mut desk, n);
    }
    for n in 91..=99 {
        desk.act(FindPrevious);
        shown(&mut desk, n);
    }
    assert_eq!(desk.act(FindPrevious).note.as_deref(), Some("no hit below"));
}

#[test]
fn copies_are_of_the_source() {
    let mut desk = Desk::open(turns(2), 40, 12);
    desk.act(PromptBefore);
    let prompt = "Prompt 2: why does the login test fail when two tabs refresh at the same time?";
    assert_eq!(desk.act(CopyBlock).copy.as_deref(), Some(prompt));
    let copied = desk.act(CopyTurn).copy.unwrap();
    assert!(copied.starts_with(prompt) && copied.ends_with("Then the test passes."), "{copied}");
    assert!(!copied.contains("cargo test"));
    assert_eq!(desk.act(CopyCode).note.as_deref(), Some("no code block here"));
    while !desk.pane.blocks.get(desk.pane.cursor_index().unwrap()).unwrap().source().starts_with("Answer") {
        desk.act(RowDown);
    }
    assert_eq!(desk.act(CopyCode).copy.as_deref(), Some("let row = self.find_for_update(2)?;\n"));
}

#[test]
fn a_fork_is_at_the_end_of_the_turn_of_the_cursor() {
    let mut desk = Desk::open(turns(3), 80, 12);
    assert_eq!(desk.act(ForkHere).fork_at, Some(Seq(18)));
    desk.act(PromptBefore);
    assert_eq!(desk.act(ForkHere).fork_at, Some(Seq(18)));
    desk.act(PromptBefore);
    assert_eq!(desk.act(ForkHere).fork_at, Some(Seq(12)));
}

#[test]
fn a_fork_finds_the_end_of_a_turn_that_is_not_held() {
    let event =
        |seq| if seq % 400 == 1 { Event::user(format!("Prompt {seq}")) } else { Event::assistant("a") };
    for (from, end) in [(Top, 400), (Bottom, 1_000)] {
        let mut desk = Desk::open_long(1_000, event, 80, 12);
        desk.act(from);
        desk.act(if from == Top { RowDown } else { PromptBefore });
        assert!(!desk.pane.window.is_at_end, "{from:?}");
        let outcome = desk.act(ForkHere);
        assert_eq!((outcome.fork_at, outcome.note), (None, None));
        assert_eq!(desk.pane.take_fork_at(), Some(Seq(end)), "{from:?}");
        assert_eq!(desk.pane.take_fork_at(), None);
    }
}

#[test]
fn the_first_event_on_the_screen_is_known_while_the_end_is_not_followed() {
    let mut desk = Desk::open(turns(20), 80, 10);
    assert_eq!(desk.pane.first_shown(), None);
    desk.acts(&[PromptBefore, PromptBefore]);
    assert_eq!(desk.pane.first_shown(), Some(Seq(109)));
}

#[test]
fn a_resize_keeps_the_text_at_the_top() {
    let mut desk = Desk::open(turns(20), 80, 10);
    desk.acts(&[PageUp, PageUp, PromptBefore, RowDown]);
    let before = top(&mut desk);
    assert!(before.contains("Prompt"), "{before}");
    desk.resize(30, 10);
    assert!(top(&mut desk).contains("Prompt"), "{}", desk.text());
    desk.resize(80, 10);
    assert_eq!(top(&mut desk), before);
}

#[test]
fn a_failed_page_is_not_asked_for_until_the_user_acts() {
    let mut desk = Desk::open(turns(100), 80, 10);
    for _ in 0..8 {
        desk.pane.act(PageUp);
    }
    desk.pane.act(Top);
    let error = azureal::Error::new("store", "gone");
    desk.pane.news(&News::Failed { pane: Some(PaneId(1)), error, unsent: None });
    let is_page =
        |request: &Request| matches!(request, Request::ReadBefore { .. } | Request::ReadAfter { .. });
    assert!(!desk.pane.prepare().iter().any(is_page));
    assert!(!desk.pane.act(Top).requests.is_empty());
}

#[test]
fn a_pane_that_is_not_shown_keeps_its_place_and_no_rows() {
    let mut desk = Desk::open(turns(100), 80, 10);
    desk.acts(&[PageUp; 12]);
    let before = desk.screen();
    desk.pane.set_shown(false);
    assert_eq!(desk.pane.cache.bytes(), 0);
    assert!(desk.pane.window.len() <= 128);
    let layouts = desk.pane.cache.layouts;
    desk.append(&turn(101));
    assert!(desk.pane.has_unread());
    assert_eq!(desk.pane.cache.layouts, layouts);
    assert!(desk.pane.last_line().contains("Bash cargo test"), "{}", desk.pane.last_line());
    desk.pane.set_shown(true);
    assert!(!desk.pane.has_unread());
    assert_eq!(desk.screen(), before);
}
