//! A terminal that nobody sits at.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A terminal with two sides: what the program writes to its own can be read from ours.
pub(crate) struct Terminal {
    ours: File,
    name: String,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        Self { ours: File::from(ours), name }
    }

    /// Sets how many columns it has.
    pub(crate) fn resize(&self, columns: u16) {
        Self::resize_side(&self.ours, columns);
    }

    /// Does the same to a terminal of which only [our side](Self::into_our_side) is left.
    pub(crate) fn resize_side(side: &File, columns: u16) {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(side, size).unwrap();
    }

    /// Opens the side that a program is given.
    pub(crate) fn side_of_the_program(&self) -> Stdio {
        OpenOptions::new().read(true).write(true).open(&self.name).unwrap().into()
    }

    pub(crate) fn into_our_side(self) -> File {
        self.ours
    }
}

/// Runs a command whose output is a terminal of so many columns, without colours. Returns what it showed.
pub(crate) fn shown_on(mut command: Command, columns: u16) -> String {
    let terminal = Terminal::open();
    terminal.resize(columns);
    command.env("NO_COLOR", "1").stdout(terminal.side_of_the_program());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut shown = Vec::new();
    drop(terminal.into_our_side().read_to_end(&mut shown));
    assert!(child.wait().unwrap().success());
    String::from_utf8_lossy(&shown).replace("\r\n", "\n")
}

/// Runs a command on a terminal at which somebody types `answer`. Returns its exit code and what the terminal showed.
pub(crate) fn answering(mut command: Command, answer: &str) -> (i32, String) {
    let terminal = Terminal::open();
    command
        .stdin(terminal.side_of_the_program())
        .stderr(terminal.side_of_the_program())
        .stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    // Only the child may hold the other side: when it ends, the terminal has no more to show.
    drop(command);
    let mut ours = terminal.into_our_side();
    // A terminal keeps what is typed until it is read.
    ours.write_all(answer.as_bytes()).unwrap();
    let mut shown = Vec::new();
    // The end of a terminal is an error on some systems.
    drop(ours.read_to_end(&mut shown));
    (child.wait().unwrap().code().unwrap_or(-1), String::from_utf8_lossy(&shown).into_owned())
}
