//! Slots, the list, keys and the mouse.

use std::collections::BTreeMap;

use azureal::desk::{AgentLine, News, PaneId, Request, SessionLine, TurnNews};
use azureal_tui::keys::Keys;
use azureal_tui::{Effect, Message, Settings};
use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use crate::harness::{COLOURS, Screen, settings};
use crate::scenes::in_two_slots;
use crate::world::*;

const SIZE: (u16, u16) = (80, 24);

fn screen(before: fn(&mut Screen)) -> Screen {
    let mut screen = Screen::new(SIZE, COLOURS);
    before(&mut screen);
    screen.asked();
    screen
}

/// Returns the second row: the header of the session.
fn title(screen: &mut Screen) -> String {
    screen.text().lines().nth(1).unwrap_or_default().trim().to_owned()
}

#[test]
fn a_session_that_is_open_is_shown_and_not_opened_again() {
    let mut screen = screen(in_two_slots);
    assert!(title(&mut screen).starts_with("S12"));
    screen.keys("f3 g down enter");
    assert_eq!(screen.asked(), []);
    assert!(title(&mut screen).starts_with("S14"));
}

#[test]
fn a_session_is_opened_in_the_agents_own_interface_and_a_new_conversation_is_not() {
    for keys in ["tab O", "ctrl-x O"] {
        let mut screen = screen(in_changed_session);
        screen.keys(keys);
        let request = Request::OpenInAgent { pane: PANE };
        assert!(request.needs_terminal());
        assert_eq!(screen.asked(), [request], "{keys}");
        screen.keys("ctrl-x n");
        screen.asked();
        screen.keys("ctrl-x O");
        assert_eq!(screen.asked(), []);
        assert!(screen.text().contains("a new conversation has nothing to open"), "{}", screen.text());
    }
}

#[test]
fn slots_are_shown_by_number_and_one_after_the_other() {
    let mut screen = screen(in_two_slots);
    screen.keys("alt-2");
    assert!(title(&mut screen).starts_with("S14"));
    screen.keys("tab ]");
    assert!(title(&mut screen).starts_with("S12"));
    screen.keys("[ ctrl-x 1 alt-7");
    assert!(screen.text().contains("there is no slot 7"));
    assert!(title(&mut screen).starts_with("S12"));
}

#[test]
fn a_closed_slot_keeps_its_text_and_its_turn() {
    let mut screen = screen(in_two_slots);
    screen.keys("'draft' ctrl-x x");
    assert_eq!(screen.asked(), [Request::Close { pane: PANE }]);
    assert!(title(&mut screen).starts_with("S14"));
    screen.keys("f3 g enter");
    assert_eq!(screen.asked(), [Request::Open { pane: PaneId(3), session: id(12), last: 64 }]);
    screen.news(opened(PaneId(3), 12));
    assert!(screen.text().contains("› draft"));
}

#[test]
fn a_closed_slot_keeps_the_text_that_was_left_for_the_history() {
    let mut screen = screen(in_session);
    screen.keys("'old' ctrl-c 'mine' up '!'").news(News::Deleted { pane: PANE }).keys("up");
    assert!(screen.text().contains("› mine"), "{}", screen.text());
}

#[test]
fn more_than_nine_slots_close_an_idle_one() {
    let mut screen = screen(in_two_slots);
    screen.keys("f3 G enter").news(opened(PaneId(3), 7));
    for _ in 4..=9 {
        screen.keys("ctrl-x n 'x'");
    }
    screen.asked();
    screen.keys("ctrl-x n");
    assert_eq!(
        screen.asked(),
        [Request::Close { pane: PaneId(3) }],
        "the only one without a turn and without text"
    );
    screen.keys("'x' ctrl-x n 'x'");
    assert_eq!(screen.asked(), [], "if none is idle, there are more");
}

#[test]
fn the_last_running_turn_is_shown_some_time_after_the_shown_one_has_ended() {
    let mut screen = screen(in_two_slots);
    screen.news(over(PANE)).wait(19_900);
    assert!(title(&mut screen).starts_with("S12"));
    assert!(
        screen.text().contains("S14 still runs and is shown in 20 s; any key stays"),
        "{}",
        screen.text()
    );
    screen.wait(100);
    assert!(title(&mut screen).starts_with("S14"));
    let text = screen.text();
    assert!(text.contains("S12 fix-login-race has ended") && text.contains("Alt-1"), "{text}");
    assert!(text.contains("1 running · 1 unread") && text.contains("1 S12◐ 2 S14●"), "{text}");
    screen.keys("alt-1");
    assert!(!screen.text().contains("unread"));
}

#[test]
fn anything_that_the_user_does_stops_the_switch_for_good() {
    for keys in ["left", "'x' backspace", "f1 esc", "tab i"] {
        let mut screen = screen(in_two_slots);
        screen.news(over(PANE)).wait(5_000).keys(keys);
        assert!(!screen.text().contains("any key stays"), "{keys}");
        screen.wait(60_000);
        assert!(title(&mut screen).starts_with("S12"), "{keys}");
    }
    let mut screen = screen(in_two_slots);
    screen.news(over(PANE));
    mouse(&mut screen, MouseEventKind::ScrollUp, 10, 5);
    screen.wait(60_000);
    assert!(title(&mut screen).starts_with("S12"));
    let mut screen = self::screen(in_two_slots);
    screen.news(over(PANE)).message(Message::Paste("text".into())).wait(60_000);
    assert!(title(&mut screen).starts_with("S12"));
    let mut screen = self::screen(in_two_slots);
    screen.news(over(PANE)).news(over(PaneId(2))).wait(60_000);
    assert!(title(&mut screen).starts_with("S12"), "the other turn has ended too");
}

#[test]
fn a_prompt_that_is_sent_right_after_the_switch_stays_in_the_box() {
    let mut screen = screen(in_two_slots);
    screen.news(over(PANE)).wait(20_000);
    screen.asked();
    screen.keys("'Thanks' enter");
    assert_eq!(screen.asked(), [], "neither sent nor cancelled");
    let text = screen.text();
    assert!(text.contains("› Thanks") && text.contains("↵ does nothing for 2 s"), "{text}");
    screen.wait(2_000).keys("enter");
    assert_eq!(screen.asked(), [Request::Cancel { pane: PaneId(2) }]);
}

#[test]
fn the_turn_of_another_process_is_not_shown_by_itself() {
    let mut screen = screen(in_turn);
    screen.keys("f3 g down enter").news(opened(PaneId(2), 14));
    let (prompt, first) = (Some("Port the lexer.".into()), azureal::Seq(141));
    let since_ms = screen.now_ms;
    screen.news(turn(PaneId(2), TurnNews::Began { prompt, first, since_ms, is_ours: false })).keys("alt-1");
    screen.news(over(PANE)).wait(60_000);
    assert!(title(&mut screen).starts_with("S12"));
}

#[test]
fn a_user_who_types_or_reads_or_does_not_want_it_stays_where_they_are() {
    for keys in ["'x'", "tab", "f1", "f3"] {
        let mut screen = screen(in_two_slots);
        screen.keys(keys).news(over(PANE)).wait(30_000);
        screen.keys("esc");
        assert!(title(&mut screen).starts_with("S12"), "{keys}");
    }
    let settings = Settings { auto_switch: false, ..settings() };
    let mut screen = Screen::with(SIZE, COLOURS, settings, Keys::default());
    in_two_slots(&mut screen);
    screen.news(over(PANE)).wait(30_000);
    assert!(title(&mut screen).starts_with("S12"));
    // A prompt that waits is sent, and its turn is shown.
    let mut screen = self::screen(in_two_slots);
    screen.keys("'Next.' ctrl-t").news(over(PANE)).wait(30_000);
    assert!(title(&mut screen).starts_with("S12"));
}

#[test]
fn a_turn_that_is_not_shown_goes_on_and_is_unread_when_it_ends() {
    let mut screen = screen(in_two_slots);
    screen.news(delta(PaneId(2), " And the parser."));
    screen.news(over(PaneId(2)));
    assert!(title(&mut screen).starts_with("S12"));
    assert!(screen.text().contains("1 S12● 2 S14◐"));
    let error = azureal::Error::new("x", "the disk is full");
    screen.keys("alt-2").news(turn(PANE, TurnNews::Over { is_ours: true, error: Some(error), unsent: None }));
    assert!(screen.text().contains("S12 fix-login-race: the disk is full"));
}

#[test]
fn what_other_processes_do_appears_by_itself() {
    let mut screen = screen(in_session);
    assert!(screen.text().contains("1 running"));
    let mut lines = vec![line(7), line(12)];
    lines[0].record.name = "renamed elsewhere".into();
    screen.news(News::Sessions(lines)).keys("f3");
    let text = screen.text();
    assert!(
        text.contains("renamed elsewhere") && !text.contains("running") && !text.contains("S14"),
        "{text}"
    );
}

#[test]
fn a_session_is_renamed_forked_and_deleted_after_a_question() {
    let mut screen = screen(|screen| {
        screen.news(sessions());
    });
    screen.keys("f3 down down r ctrl-u 'notes' enter");
    assert_eq!(screen.asked(), [Request::Rename { session: id(11), name: "notes".into() }]);
    screen.keys("r ctrl-u enter f n d esc d x");
    assert_eq!(screen.asked(), [], "an empty name, no, and keys that are no answer change nothing");
    screen.keys("y");
    assert_eq!(screen.asked(), [Request::Delete { session: id(11) }]);
    screen.keys("f y");
    assert_eq!(screen.asked(), [Request::Fork { session: id(11), at: azureal::Seq(110) }]);
    screen.news(News::Forked { session: id(15), from: id(11) });
    assert_eq!(screen.asked(), [Request::Open { pane: PANE, session: id(15), last: 64 }]);
    screen.keys("f3 g down d");
    assert!(screen.text().contains("a turn is running in S14: cancel it before you delete the session"));
}

#[test]
fn a_deleted_session_closes_its_slot() {
    let mut screen = screen(in_two_slots);
    screen.news(News::Deleted { pane: PANE });
    assert!(title(&mut screen).starts_with("S14"));
    screen.news(News::Deleted { pane: PaneId(2) });
    assert!(title(&mut screen).starts_with("new conversation"));
}

#[test]
fn who_deletes_a_shown_session_in_the_list_stays_in_the_list() {
    let mut screen = screen(in_session);
    screen.keys("f3 d y");
    assert_eq!(screen.asked(), [Request::Delete { session: id(12) }]);
    let News::Sessions(mut lines) = sessions() else { panic!("the sessions") };
    lines.remove(0);
    screen.news(News::Deleted { pane: PANE }).news(News::Sessions(lines));
    let text = screen.text();
    assert!(text.contains("↵ open") && !text.contains("S12"), "{text}");
    screen.asked();
    screen.keys("enter");
    assert!(matches!(screen.asked().as_slice(), [Request::Open { session, .. }] if *session == id(14)));
}

#[test]
fn a_session_without_a_name_is_called_by_its_first_prompt() {
    let mut screen = screen(|screen| {
        screen.news(agents()).news(News::Sessions(Vec::new()));
    });
    screen.keys("'Why is the sky blue?' enter");
    assert!(title(&mut screen).starts_with("Why is the sky blue?"), "{}", title(&mut screen));
    let mut new = record(9);
    (new.counts.preview, new.counts.last_prompt) = (None, None);
    let accepted = TurnNews::Accepted { record: Box::new(new.clone()), agent: "codex".into(), model: None };
    screen.news(turn(PANE, accepted)).news(began(PANE, "Why is the sky blue?", 1));
    assert!(title(&mut screen).starts_with("S9 Why is the sky blue?"), "{}", title(&mut screen));
    (new.counts.preview, new.counts.last_prompt) =
        (Some("Why is the sky blue?".into()), Some("And the sea?".into()));
    screen.news(News::Sessions(vec![SessionLine { record: new, ..line(9) }])).keys("f3");
    let text = screen.text();
    assert!(text.contains("Why is the sky") && !text.contains("And the sea?"), "{text}");
    screen.keys("r");
    assert!(screen.text().contains("name\n"), "the name is empty: {}", screen.text());
}

#[test]
fn the_header_says_which_agent_gets_the_next_prompt() {
    let mut screen = screen(|screen| {
        screen.news(agents()).news(sessions());
    });
    assert_eq!(title(&mut screen), "new conversation   claude");
    assert!(screen.text().contains("5 sessions: F3"), "{}", screen.text());
    screen.keys("f2 'gpt' enter");
    assert_eq!(title(&mut screen), "new conversation   codex gpt-5.5");
    let mut screen = self::screen(in_turn);
    screen.keys("f2 'sonnet' enter");
    assert!(title(&mut screen).contains("   next: claude sonnet "), "{}", title(&mut screen));
    screen.message(Message::Resize(100, 24));
    assert!(title(&mut screen).contains("codex gpt-5.5, next: claude sonnet"), "{}", title(&mut screen));
}

#[test]
fn the_question_before_a_fork_names_the_turn() {
    let mut screen = screen(in_session);
    screen.draw();
    screen.keys("tab { { f");
    let text = screen.text();
    assert!(text.contains("into a new session, up to the end of this"), "{text}");
    assert!(
        text.contains("Turn: Why do users have to log in twice?") && !text.contains("event 110"),
        "{text}"
    );
    screen.keys("n i ctrl-x f");
    assert!(screen.text().contains("with all its stored"), "{}", screen.text());
}

#[test]
fn the_help_moves_by_what_is_visible() {
    let mut screen = screen(in_session);
    screen.keys("f1");
    let text = screen.text();
    let rows: Vec<&str> = text.lines().collect();
    // Above the line of keys is an empty row.
    let foot = rows.iter().rposition(|row| row.contains("PgUp PgDn")).unwrap();
    let before = rows[foot - 2].to_owned();
    screen.keys("pagedown");
    let rows: Vec<String> = screen.text().lines().map(str::to_owned).collect();
    assert!(!rows.contains(&before), "nothing of the page before is left");
    screen.keys("up");
    assert!(screen.text().contains(&before), "nothing is skipped");
}

#[test]
fn the_models_of_an_agent_can_be_told_apart_on_a_small_screen() {
    let mut screen = Screen::new((40, 12), COLOURS);
    let agent = |name: &str, version: &str, models: &[&str]| AgentLine {
        name: name.into(),
        version: Some(version.into()),
        models: models.iter().map(ToString::to_string).collect(),
        hint: None,
    };
    screen.news(News::Agents(vec![
        agent("claude", "2.1.197 (Claude Code)", &["claude-opus-4-1", "claude-opus-4-5"]),
        agent("codex", "codex-cli 0.166.0", &["gpt-5.5"]),
    ]));
    screen.keys("f2");
    let text = screen.text();
    assert!(text.contains("claude-opus-4-1") && text.contains("claude-opus-4-5"), "{text}");
    assert!(!text.contains("2.1.197"), "{text}");
    screen.message(Message::Resize(80, 24));
    let text = screen.text();
    assert!(text.contains("✓ 2.1.197\n") && text.contains("✓ 0.166.0\n"), "{text}");
}

#[test]
fn a_filter_narrows_the_list_until_esc() {
    let mut screen = screen(|screen| {
        screen.news(sessions());
    });
    screen.keys("f3 / 'tokio'");
    let text = screen.text();
    assert!(text.contains("S7") && !text.contains("S12"), "{text}");
    screen.keys("enter");
    assert_eq!(screen.asked(), [Request::Open { pane: PANE, session: id(7), last: 64 }]);
    screen.keys("f3 esc");
    assert!(screen.text().contains("S12"), "the first Esc shows all sessions");
    screen.keys("esc");
    assert_eq!(title(&mut screen), "new conversation");
}

#[test]
fn keys_of_the_configuration_are_used_and_shown() {
    let keys = Keys::new(&BTreeMap::from([("queue".to_owned(), vec!["f6".to_owned()])])).unwrap();
    let mut screen = Screen::with(SIZE, COLOURS, settings(), keys);
    in_turn(&mut screen);
    screen.keys("'Later.'");
    assert!(screen.text().contains("F6 queues"));
    screen.keys("f6");
    assert!(screen.text().contains("queued for after this turn: Later."));
    screen.keys("f1");
    assert!(screen.text().contains("F6"));
}

#[test]
fn nothing_ticks_while_nothing_happens() {
    let mut screen = screen(in_session);
    screen.news(News::Sessions(vec![line(12)]));
    screen.wait(60_000);
    assert_eq!(screen.state.next_tick(), None);
    screen.keys("'xyz'");
    assert!(screen.state.next_tick().is_some(), "the draft is to be written");
    screen.wait(2_000);
    assert_eq!(screen.state.next_tick(), None);
    screen.keys("enter");
    screen.wait(2_000);
    assert!(screen.state.next_tick().is_some_and(|tick| tick - screen.now_ms <= 1_000), "a clock runs");
}

#[test]
fn the_menu_appears_only_if_its_key_does_not_come_at_once() {
    let mut screen = screen(in_session);
    screen.keys("ctrl-x");
    assert!(!screen.text().contains("agent, model"));
    assert_eq!(screen.state.next_tick().map(|tick| tick - screen.now_ms), Some(300));
    screen.wait(300);
    assert!(screen.text().contains("agent, model"));
    screen.keys("z");
    assert!(screen.text().contains("Ctrl-X z is no command"));
}

#[test]
fn copies_go_to_the_clipboard_or_to_the_terminal() {
    let mut screen = screen(in_session);
    screen.keys("tab y");
    assert!(matches!(screen.asked().as_slice(), [Request::Copy { .. }]));
    screen.news(News::Copied { by: Some("wl-copy".into()), text: "abc".into() });
    assert!(screen.text().contains("3 characters copied with wl-copy"));
    screen.news(News::Copied { by: None, text: "abc".into() });
    assert_eq!(screen.effects, [Effect::Copy("abc".into())]);
}

fn mouse(screen: &mut Screen, kind: MouseEventKind, column: u16, row: u16) {
    screen.message(Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
}

fn click(screen: &mut Screen, column: u16, row: u16) {
    mouse(screen, MouseEventKind::Down(MouseButton::Left), column, row);
    mouse(screen, MouseEventKind::Up(MouseButton::Left), column, row);
}

#[test]
fn the_wheel_scrolls_and_a_click_focuses_and_opens() {
    let mut screen = Screen::new((120, 16), COLOURS);
    in_session(&mut screen);
    screen.draw();
    mouse(&mut screen, MouseEventKind::ScrollUp, 60, 5);
    assert!(screen.text().contains("event "), "the view has left the end:\n{}", screen.text());
    click(&mut screen, 60, 5);
    assert!(screen.text().contains("i write"), "reading");
    click(&mut screen, 60, 14);
    assert!(screen.text().contains("↵ send"), "the prompt");
    screen.asked();
    click(&mut screen, 5, 3);
    assert_eq!(screen.asked(), [Request::Open { pane: PaneId(2), session: id(11), last: 64 }]);
}

#[test]
fn a_drag_leaves_the_mouse_to_the_terminal_until_the_next_key() {
    let mut screen = screen(in_session);
    mouse(&mut screen, MouseEventKind::Down(MouseButton::Left), 10, 5);
    mouse(&mut screen, MouseEventKind::Up(MouseButton::Left), 30, 5);
    assert_eq!(screen.effects, [Effect::Mouse(false)]);
    assert!(screen.text().contains("the mouse selects text until the next key"));
    screen.keys("x");
    assert_eq!(screen.effects, [Effect::Mouse(false), Effect::Mouse(true)]);
    screen.effects.clear();
    screen.keys("f9");
    assert_eq!(screen.effects, [Effect::Mouse(false)]);
}
