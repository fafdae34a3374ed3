//! Whole screens.

use ratatui::style::Color;

use super::*;

/// Returns the text of the screen, then the same with a letter for the style of each cell that has one.
fn styled(desk: &mut Desk) -> String {
    desk.frame();
    let buffer = desk.buffer();
    let letter = |x: u16, y: u16| {
        let cell = &buffer[(x, y)];
        let letter = match cell.fg {
            Color::Reset => ' ',
            Color::Cyan => 'c',
            Color::Yellow => 'y',
            Color::Green => 'g',
            Color::Red => 'r',
            Color::Magenta => 'm',
            other => panic!("{other:?}"),
        };
        match (cell.modifier.is_empty(), letter) {
            (true, letter) => letter,
            (false, ' ') => '*',
            (false, letter) => letter.to_ascii_uppercase(),
        }
    };
    let styles = (0..buffer.area.height)
        .map(|y| (0..buffer.area.width).map(|x| letter(x, y)).collect::<String>().trim_end().to_owned());
    let rows = (0..buffer.area.height).map(|y| line(&buffer, y));
    let rows: Vec<String> = rows.chain(["-- styles --".to_owned()]).chain(styles).collect();
    rows.join("\n")
}

fn edit_session() -> Vec<Event> {
    let mut events = turn(1);
    events.extend([
        Event::user("The login test still fails when two tabs refresh."),
        init(),
        Event::assistant("Two refreshes race on the same token row. I will lock it."),
        call("r", "Read", r#"{"file_path":"/p/src/auth/token.rs"}"#),
        result("r", "Read", "fn find() {}\nfn lock() {}"),
        call(
            "e",
            "Edit",
            r#"{"file_path":"/p/src/auth/token.rs","old_string":"let row = self.find(id)?;","new_string":"let row = self.find_for_update(id)?;"}"#,
        ),
        result("e", "Edit", "updated"),
        call("b", "Bash", r#"{"command":"cargo test -p api login"}"#),
        Event::ToolResult(ToolResult {
            tool_use_id: "b".into(),
            tool_name: "Bash".into(),
            content: "Exit code 101\nthread 'login::two_tabs' panicked at tests/login.rs:41".into(),
            is_error: true,
            ..ToolResult::default()
        }),
        complete(),
    ]);
    events
}

#[test]
fn a_session_is_shown_at_three_sizes() {
    for (width, height) in [(120, 40), (80, 24), (40, 12)] {
        let mut desk = Desk::open(edit_session(), width, height);
        insta::assert_snapshot!(format!("session_{width}x{height}"), styled(&mut desk));
    }
}

#[test]
fn an_opened_edit_shows_its_diff() {
    let mut desk = Desk::open(edit_session(), 80, 24);
    let row = desk.screen().iter().position(|row| row.contains("Edit")).unwrap();
    desk.pane.click(u16::try_from(row).unwrap(), 3);
    insta::assert_snapshot!("edit_open_80x24", styled(&mut desk));
}

#[test]
fn a_running_turn_is_shown_at_three_sizes() {
    for (width, height) in [(120, 40), (80, 24), (40, 12)] {
        let mut desk = Desk::open(turn(1), width, height);
        desk.pane.set_now(29_000);
        desk.pane.sent("Also check logout.");
        desk.turn(TurnNews::Accepted { record: Box::new(desk.record()), agent: "codex".into(), model: None });
        desk.turn(TurnNews::Began {
            prompt: Some("Also check logout.".into()),
            first: Seq(7),
            since_ms: 18_000,
            is_ours: true,
        });
        desk.outputs(vec![
            AgentOutput::Event(init()),
            AgentOutput::Event(call("c", "Bash", r#"{"command":"cargo test logout"}"#)),
            AgentOutput::Delta("Logout uses the **same** row".into()),
        ]);
        insta::assert_snapshot!(format!("running_{width}x{height}"), styled(&mut desk));
    }
}

#[test]
fn a_new_conversation_says_what_to_do() {
    let mut desk = Desk::new_session(40, 12);
    assert_eq!(desk.text(), " type a prompt and press ↵");
    let mut desk = Desk::new_session(20, 3);
    assert_eq!(desk.text(), " type a prompt and p");
}

#[test]
fn the_narrowest_pane_shows_words() {
    let mut desk = Desk::open(edit_session(), 20, 12);
    insta::assert_snapshot!("session_20x12", styled(&mut desk));
}
