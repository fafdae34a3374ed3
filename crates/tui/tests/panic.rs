//! A panic leaves the terminal as it was, with its message on the normal screen.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test starts itself again, and prints"
)]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

use azureal_testkit::pty::{Modes, PtyProgram};
use azureal_tui::terminal::{Terminal, TerminalEvent, TerminalSettings};

/// Starts a test of this file on a terminal.
fn start(test: &str) -> PtyProgram {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]).env("TERM", "xterm-256color");
    PtyProgram::start(&command, 80, 24)
}

#[test]
fn a_panic_restores_the_terminal_before_it_is_reported() {
    let mut program = start("panics_with_the_terminal");
    assert_eq!(program.wait_for_exit(), Some(101));
    program.wait_for("the interface has a bug");
    program.wait_for_modes(Modes::default());
    let attributes = program.attributes();
    assert!(attributes.contains("ICANON") && attributes.contains("ECHO"), "{attributes}");
}

#[test]
fn a_panic_of_another_thread_is_an_event_and_not_on_the_screen() {
    let mut program = start("panics_on_another_thread");
    assert_eq!(program.wait_for_exit(), Some(0));
    program.wait_for("it was reported: true");
    assert!(!program.screen().contains("the desk has a bug"), "{}", program.screen());
}

#[test]
#[ignore = "started by another test, on a terminal"]
fn panics_with_the_terminal() {
    let settings = TerminalSettings { uses_mouse: true, ..TerminalSettings::default() };
    let mut terminal = Terminal::take(settings, |_| {}).unwrap();
    terminal.draw(|frame| frame.set_cursor_position((1, 1))).unwrap();
    panic!("the interface has a bug");
}

#[test]
#[ignore = "started by another test, on a terminal"]
fn panics_on_another_thread() {
    let (send, events) = channel();
    let terminal =
        Terminal::take(TerminalSettings::default(), move |event| send.send(event).unwrap()).unwrap();
    assert!(thread::spawn(|| panic!("the desk has a bug")).join().is_err());
    let event = events.recv().unwrap();
    drop(terminal);
    let is_reported = matches!(event, TerminalEvent::Panicked(text) if text.contains("the desk has a bug"));
    println!("it was reported: {is_reported}");
}
