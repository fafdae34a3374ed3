//! The plain view: lines instead of a screen.

use std::io::Write;
use std::process::{Output, Stdio};

use azureal_testkit::pty::{Modes, PtyProgram};

use crate::place::Place;

/// Runs the plain view with these lines as its input.
fn plain(place: &Place, arguments: &[&str], lines: &str) -> String {
    let mut command = place.command(arguments);
    command.arg("--plain").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[test]
fn a_conversation_is_lines_with_authors() {
    let place = Place::new();
    place.agent();
    place.let_answer(1);
    let printed = plain(&place, &[], "What is this? \\\nAnd that?\n");
    assert_eq!(place.prompts("S1"), ["What is this? \nAnd that?"]);
    for line in ["claude: Working on 1.", "claude: Answer 1.", "turn done\x07"] {
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
    assert!(!printed.contains('\x1b'), "{printed:?}");
}

#[test]
fn menus_are_numbered_and_answered_by_numbers() {
    let place = Place::new();
    place.session("one", &["Hello?", "Hello from one."]);
    place.session("two", &["Hello?", "Files:\n\n| Name | Lines |\n|---|---|\n| a.rs | 3 |"]);
    let printed = plain(&place, &["-s", "two"], "/sessions\n/nonsense\n/help\n");
    for line in ["you: Hello?", "Name: a.rs, Lines: 3.", "/sessions: List of sessions"] {
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
    assert!(printed.contains("There is no command /nonsense."), "{printed}");
    assert_eq!(printed.matches("/slot").count(), 1, "{printed}");
    assert!(!printed.contains("> "), "nobody types: {printed}");
    let number = printed.lines().find(|line| line.contains("S1 one")).unwrap().split('.').next().unwrap();

    let terminal = PtyProgram::start(&place.command(&["--plain"]), 80, 24);
    terminal.wait_for("plain view");
    terminal.wait_for("\n>");
    terminal.send("/sessions\r");
    terminal.wait_for("> /sessions");
    terminal.wait_for("S1 one");
    terminal.send(&format!("{number}\r"));
    terminal.wait_for("Hello from one.");
    terminal.send("/slot 9\r");
    terminal.wait_for("> /slot 9");
    terminal.wait_for("there is no slot 9");
    terminal.send("/rename\r");
    terminal.wait_for("Type the new name.");
    terminal.send("better\r");
    azureal_testkit::until("the name", || {
        let list = place.run(&["list"]);
        String::from_utf8_lossy(&list.stdout).contains("better").then_some(())
    });
    terminal.assert_listed();
    assert_eq!(terminal.modes(), Modes::default());
}

#[test]
fn a_dumb_terminal_and_a_variable_give_the_plain_view() {
    for (name, value) in [("TERM", "dumb"), ("AZUREAL_PLAIN", "1")] {
        let place = Place::new();
        let mut command = place.command(&[]);
        command.env(name, value);
        let mut terminal = PtyProgram::start(&command, 80, 24);
        terminal.wait_for("plain view");
        terminal.send("/quit\r");
        assert_eq!(terminal.wait_for_exit(), Some(0));
    }
}

#[test]
fn ctrl_c_cancels_the_turn_and_then_quits() {
    let place = Place::new();
    place.agent();
    let mut terminal = PtyProgram::start(&place.command(&["--plain"]), 80, 24);
    terminal.wait_for("plain view");
    terminal.send("Take your time\r");
    terminal.wait_for("Working on 1.");
    terminal.send("\x03");
    terminal.wait_for("turn done");
    terminal.send("\x03");
    terminal.wait_for("again quits");
    terminal.send("\x03");
    assert_eq!(terminal.wait_for_exit(), Some(0));
    assert_eq!(place.prompts("S1"), ["Take your time"]);
}
