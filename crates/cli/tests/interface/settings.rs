//! Settings of the user, and stores that cannot be written.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use azureal_testkit::pty::PtyProgram;
use azureal_testkit::until;

use crate::place::Place;

/// The marks of a running turn that moves.
const MOVING: [char; 4] = ['⠋', '⠙', '⠴', '⠦'];

/// Runs a silent turn for some seconds. Returns its frames and how long it took.
fn silent_turn(place: &Place, turn: usize) -> (Vec<String>, usize, Duration) {
    let program = place.open(&[]);
    program.record();
    program.send("Be silent\r");
    program.wait_for(&format!("Working on {turn}."));
    program.wait_for("0:01");
    let (before, began) = (program.frames().len(), Instant::now());
    thread::sleep(Duration::from_secs(3));
    let (frames, took) = (program.frames().len() - before, began.elapsed());
    place.let_answer(turn);
    program.wait_for(&format!("Answer {turn}."));
    program.assert_listed();
    (program.screens(), frames, took)
}

#[test]
fn without_motion_a_silent_turn_moves_its_clock_and_nothing_else() {
    let place = Place::new();
    place.agent();
    let moves = |screens: &[String]| screens.iter().any(|screen| screen.contains(MOVING));
    let (screens, frames, took) = silent_turn(&place, 1);
    assert!(moves(&screens), "by default it does");
    // The clock: a frame a second.
    let most = took.as_secs() as usize + 2;
    assert!(frames <= most, "{frames} frames in {took:?}");
    place.file("home/.config/azureal/azufig.toml", "[ui]\nmotion = false\n");
    let (screens, frames, took) = silent_turn(&place, 2);
    assert!(!moves(&screens), "{screens:#?}");
    assert!(frames <= took.as_secs() as usize + 2, "{frames} frames in {took:?}");
}

#[test]
fn the_marks_of_the_interface_are_ascii_where_the_user_or_the_locale_says_so() {
    let place = Place::new();
    place.session("work", &["Hello?", "Hello."]);
    let is_ascii = |locale: &str, mark: &str| {
        let mut command = place.command(&["-s", "work"]);
        command.env("LANG", locale);
        let program = PtyProgram::start(&command, 80, 24);
        program.wait_for("Hello.");
        program.wait_for(mark);
        program.screen().is_ascii()
    };
    assert!(!is_ascii("C.UTF-8", "\n›"));
    assert!(is_ascii("C", "\n>"));
    place.file("home/.config/azureal/azufig.toml", "[ui]\nascii = true\n");
    assert!(is_ascii("C.UTF-8", "\n>"));
}

#[test]
fn the_marks_of_commands_are_ascii_too() {
    let place = Place::new();
    place.agent();
    place.file("home/.config/azureal/azufig.toml", "[ui]\nascii = true\n");
    place.file("gate/answer-1", "");
    for arguments in [&["run", "-a", "claude", "hi"][..], &["show", "S1"], &["list"]] {
        let mut command = place.command(arguments);
        command.env("PAGER", "cat");
        let mut program = PtyProgram::start(&command, 80, 24);
        program.record();
        assert_eq!(program.wait_for_exit(), Some(0));
        program.wait_for(if arguments == ["list"] { "S1  +" } else { "Answer 1." });
        for screen in program.screens() {
            assert!(screen.is_ascii(), "{arguments:?}: {screen}");
        }
    }
}

/// Returns the program in a project whose files cannot be written; `None` if this user cannot mount.
fn read_only(place: &Place, arguments: &[&str]) -> Option<Command> {
    let mount = "mount --bind . . && mount -o remount,ro,bind . && cd .";
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).current_dir(place.path("p"));
        command
    };
    if !unshare(mount).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return None;
    }
    let program = place.command(arguments);
    let folder = place.path("p");
    let mut command = unshare(&format!("{mount} && cd '{}' && exec \"$0\" \"$@\"", folder.display()));
    command.arg(program.get_program()).args(program.get_args()).env_clear();
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("PATH", format!("{}:/usr/sbin:/sbin", place.programs()));
    Some(command)
}

#[test]
fn a_store_that_cannot_be_written_is_shown_and_says_so_when_a_prompt_is_sent() {
    let place = Place::new();
    place.agent();
    place.session("work", &["Hello?", "Hello."]);
    let Some(command) = read_only(&place, &["-s", "work"]) else { return };
    let mut program = PtyProgram::start(&command, 80, 24);
    program.wait_for("Hello.");
    program.wait_for("›");
    program.send("A prompt for nobody\r");
    program.wait_for("read-only");
    // It is not lost, and the session can be read.
    program.wait_for("A prompt for nobody");
    program.send("\x03\x03\x03");
    assert_eq!(program.wait_for_exit(), Some(0));
    program.assert_listed();
    assert_eq!(place.prompts("work"), ["Hello?"]);
}

#[test]
fn a_turn_streams_on_while_the_terminal_changes_its_size() {
    let place = Place::new();
    place.stream(200, 3);
    let program = place.open(&[]);
    program.send("Stream\r");
    program.wait_for("streamed line ");
    let sizes = [(120, 40), (40, 12), (80, 24), (60, 16), (100, 30)];
    let (mut size, mut resizes) = (sizes[0], 0_usize);
    while !program.screen().contains("The stream is over.") && resizes < 400 {
        size = sizes[resizes % sizes.len()];
        program.resize(size.0, size.1);
        thread::sleep(Duration::from_millis(30));
        resizes += 1;
    }
    assert!(resizes > 10, "{resizes}");
    program.wait_for("The stream is over.");
    program.resize(100, 30);
    until("the stored turn", || (place.prompts("S1") == ["Stream"]).then_some(()));
    program.wait_until("the end in the last size", |screen| {
        let last = screen.contains("streamed line 599 ") && screen.contains("The stream is over.");
        last && screen.lines().count() == 30 && screen.contains('›')
    });
    // Drawn again from nothing, it is the same.
    let rows = |screen: &str| screen.lines().map(|row| row.trim_end().to_owned()).collect::<Vec<_>>();
    let mut before = String::new();
    until("a screen that stays", || {
        thread::sleep(Duration::from_millis(1_500));
        (std::mem::replace(&mut before, program.screen()) == before).then_some(())
    });
    let frames = program.frames().len();
    program.send("\x0c");
    until("another frame", || (program.frames().len() > frames).then_some(()));
    assert_eq!(rows(&program.screen()), rows(&before), "{size:?}");
    program.assert_listed();
}
