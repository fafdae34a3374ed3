//! A terminal that nobody sits at.

use std::fs::{File, OpenOptions};
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

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

    /// Opens the side that a program is given.
    pub(crate) fn side_of_the_program(&self) -> Stdio {
        OpenOptions::new().read(true).write(true).open(&self.name).unwrap().into()
    }

    pub(crate) fn into_our_side(self) -> File {
        self.ours
    }
}
