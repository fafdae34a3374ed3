//! The terminal is restored, whatever ends or stops the interface.

use std::process::Command;
use std::time::{Duration, Instant};

use azureal_testkit::pty::{Modes, PtyProgram};
use azureal_testkit::until;

use crate::place::Place;

/// The modes while the interface is shown.
const SHOWN: Modes = Modes {
    alternate_screen: true,
    hidden_cursor: false,
    bracketed_paste: true,
    mouse: true,
    focus: true,
    no_wrap: true,
    keyboard: 1,
    open_frame: false,
};

/// A shell on a terminal, in the project.
fn shell(place: &Place) -> PtyProgram {
    let azureal = place.command(&[]);
    let mut shell = Command::new("/bin/bash");
    shell.args(["--norc", "--noprofile", "-i"]).current_dir(place.path("p")).env("PS1", "ready> ");
    for (name, value) in azureal.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    let shell = PtyProgram::start(&shell, 80, 24);
    shell.wait_for("ready>");
    shell
}

/// Starts the interface in a shell.
fn start_in(shell: &PtyProgram, arguments: &str) {
    shell.send(&format!("{} {arguments}\r", env!("CARGO_BIN_EXE_azureal")));
    shell.wait_for("›");
    shell.wait_for_modes(SHOWN);
}

/// Returns the modes and attributes of a shell that waits for a command: it uses bracketed paste, and edits lines itself.
fn at_prompt(shell: &PtyProgram) -> (Modes, String) {
    shell.send("\r");
    let now = || (shell.modes(), shell.attributes());
    let mut before = now();
    until("a shell that waits", || {
        std::thread::sleep(Duration::from_millis(200));
        let is_still = std::mem::replace(&mut before, now()) == before;
        let is_editing = before.0.bracketed_paste && !before.1.contains("ICANON");
        (is_still && is_editing && shell.screen().trim_end().ends_with("ready>")).then_some(())
    });
    before
}

#[test]
fn a_signal_ends_the_interface_and_the_terminal_is_as_before() {
    for (signal, name) in [("TERM", "Terminated"), ("HUP", "Hangup"), ("INT", "Interrupt")] {
        let place = Place::new();
        let mut program = PtyProgram::start(&place.command(&[]), 80, 24);
        program.wait_for("›");
        program.wait_for_modes(SHOWN);
        program.kill(signal);
        assert_eq!(program.wait_for_exit(), None, "{signal}");
        assert_eq!(program.signal(), Some(name));
        program.wait_for_modes(Modes::default());
        let attributes = program.attributes();
        for flag in ["ICANON", "ECHO", "ISIG", "OPOST", "ICRNL"] {
            assert!(attributes.contains(flag), "{signal}: {flag} is off: {attributes}");
        }
        program.assert_listed();
    }
}

#[test]
fn quitting_leaves_the_terminal_as_before() {
    let place = Place::new();
    place.session("greeting", &["Hello?", "Hello to **you**."]);
    let shell = shell(&place);
    let before = at_prompt(&shell);
    start_in(&shell, "-s greeting");
    shell.send("\x03\x03");
    shell.wait_for("Hello to you.");
    shell.wait_for("azureal -s S1");
    assert_eq!(at_prompt(&shell), before);
    shell.assert_listed();
}

#[test]
fn quitting_prints_the_beginning_of_a_long_answer() {
    let place = Place::new();
    let answer: Vec<String> = (1..=30).map(|number| format!("- item {number}")).collect();
    place.session("long", &["Hello?", &answer.join("\n")]);
    let shell = shell(&place);
    start_in(&shell, "-s long");
    shell.send("\x03\x03");
    shell.wait_for("… 18 more lines: `azureal show S1`");
    let screen = shell.screen();
    assert!(screen.contains("item 12") && !screen.contains("item 13"), "{screen}");
    shell.wait_for("azureal -s S1");
}

#[test]
fn ctrl_z_returns_to_the_shell_and_fg_comes_back() {
    let place = Place::new();
    let shell = shell(&place);
    let before = at_prompt(&shell);
    start_in(&shell, "");
    shell.send("half a prompt");
    shell.wait_for("half a prompt");
    for _ in 0..3 {
        shell.send("\x1a");
        shell.wait_for("Stopped");
        assert_eq!(at_prompt(&shell), before);
        // The shell has the keys.
        shell.send("echo $((20 + 3))\r");
        shell.wait_for("23");
        shell.send("clear; fg\r");
        shell.wait_for("half a prompt");
        shell.wait_for_modes(SHOWN);
    }
    shell.send(" and the rest");
    shell.wait_for("half a prompt and the rest");
    shell.assert_listed();
}

#[test]
fn a_process_that_is_stopped_from_outside_gives_the_terminal_back_too() {
    let place = Place::new();
    let shell = shell(&place);
    let before = at_prompt(&shell);
    start_in(&shell, "");
    let kill = |signal: &str| {
        let status = Command::new("pkill").args([signal, "-P", &shell.pid().to_string()]).status().unwrap();
        assert!(status.success());
    };
    kill("-TSTP");
    shell.wait_for("Stopped");
    assert_eq!(at_prompt(&shell), before);
    shell.send("fg\r");
    shell.wait_for_modes(SHOWN);
    // A process that is stopped without being asked cannot give anything back, but comes back whole.
    kill("-STOP");
    shell.wait_until("the shell", |screen| screen.contains("Stopped"));
    shell.send("fg\r");
    shell.send("here I am");
    shell.wait_for("here I am");
    shell.wait_for_modes(SHOWN);
}

#[test]
fn without_a_shell_ctrl_z_says_so() {
    let place = Place::new();
    let program = place.open(&[]);
    program.send("\x1a");
    program.wait_for("no shell to return to");
    program.send("still here");
    program.wait_for("still here");
}

#[test]
fn a_storm_of_sizes_ends_with_the_last_one() {
    let place = Place::new();
    place.session("story", &["Tell me a story", &"once upon a time ".repeat(400)]);
    let program = place.open(&["-s", "story"]);
    program.send("my prompt");
    program.wait_for("my prompt");
    for step in 0..300_u16 {
        program.resize(20 + step * 7 % 150, 4 + step * 5 % 60);
    }
    program.resize(100, 30);
    program.wait_for("my prompt");
    program.wait_until("rows of 100 columns", |screen| {
        screen.lines().any(|line| line.chars().count() > 80) && screen.lines().count() == 30
    });
    program.assert_listed();
    // Drawn again from nothing, it is the same.
    let mut before = program.screen();
    until("a screen that stays", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = program.screen();
        (std::mem::replace(&mut before, now.clone()) == now).then_some(())
    });
    let frames = program.frames().len();
    program.send("\x0c");
    until("another frame", || (program.frames().len() > frames).then_some(()));
    // Erased cells and blanks look the same.
    let rows = |screen: &str| screen.lines().map(|row| row.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(rows(&program.screen()), rows(&before));
}

#[test]
fn a_paste_of_five_megabytes_is_one_line_and_arrives_whole() {
    let place = Place::new();
    place.agent();
    let program = place.open(&[]);
    let text = "all work and no play makes a long text\n".repeat(5_000_000 / 39);
    let began = Instant::now();
    program.paste(&text.replace('\n', "\r"));
    program.wait_for("[pasted");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    program.send(" and this");
    program.wait_for("and this");
    program.assert_listed();
}

#[test]
fn a_paste_without_an_end_does_not_swallow_the_keys_that_follow() {
    let place = Place::new();
    let program = place.open(&[]);
    program.send("\x1b[200~half a paste");
    program.wait_for("› half a paste");
    program.send(" and keys");
    program.wait_for("› half a paste and keys");
    program.send("\x03");
    program.wait_for("cleared");
}

#[test]
fn a_terminal_that_answers_nothing_works_too() {
    let place = Place::new();
    let program = PtyProgram::start_on_silent_terminal(&place.command(&[]), 80, 24);
    program.wait_for("›");
    program.wait_for_modes(Modes { keyboard: 0, ..SHOWN });
    program.send("typed");
    program.wait_for("typed");
}

#[test]
fn an_error_before_the_interface_is_on_the_normal_screen() {
    let place = Place::new();
    let mut program = PtyProgram::start(&place.command(&["-s", "S99"]), 80, 24);
    assert_eq!(program.wait_for_exit(), Some(1));
    program.wait_for("S99");
    assert_eq!(program.modes(), Modes::default());
    assert_eq!(program.frames(), Vec::<usize>::new());
}

#[test]
fn without_a_terminal_there_is_no_interface() {
    let place = Place::new();
    let output = place.run(&[]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("Commands:"));
    let output = place.run(&["-s", "S1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the interface needs a terminal"));
}
