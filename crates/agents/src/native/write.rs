//! Sessions written in the agents' own formats, so that their programs resume them.
//!
//! A [`NativeWriter`] is the counterpart of a [`NativeSource`](super::NativeSource): what it writes, the source of the same agent reads.
//! It starts no process. A session of a program that keeps a database is a file that the program imports itself.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use azureal_core::{Message, Uuid};
use jiff::Timestamp;

use super::pieces::is_stamped;

/// The writer of one agent's format.
pub trait NativeWriter: Send + Sync {
    /// Returns the name of the agent, as its source and its events have it: `claude`.
    fn agent(&self) -> &'static str;

    /// Returns a session id in the form that the program expects.
    fn session_id(&self, uuid: Uuid) -> String;

    /// Writes a session.
    fn write(&self, session: &NativeConversation<'_>, out: &mut dyn Write) -> io::Result<()>;

    /// Returns whether a turn of a session was written by this: the ids of its records follow from that of the session.
    fn wrote(&self, session: &str, turn: &str) -> bool {
        is_stamped(session, turn)
    }

    /// Returns how the program gets to know a session that was written. `home` is one of the
    /// [homes](super::NativeSource::homes) of its source.
    fn placement(&self, home: &Path, session: &NativeConversation<'_>) -> io::Result<Placement>;

    /// Returns the files that the program needs beside a [file](Placement::File) of a session, with their content. Those that
    /// exist stay as they are.
    fn companions(&self, _file: &Path, _session: &NativeConversation<'_>) -> Vec<(PathBuf, Vec<u8>)> {
        Vec::new()
    }

    /// Returns the arguments that start the program's own interface on a session in a home.
    fn resume(&self, home: &Path, id: &str) -> Vec<OsString>;

    /// Returns the arguments with which the program deletes a session; empty if it cannot, so that its file is deleted.
    fn delete(&self, _id: &str) -> Vec<String> {
        Vec::new()
    }

    /// Returns the files and folders that belong to a session beside its file, whether they exist or not.
    fn leftovers(&self, _file: &Path) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns whether a turn may continue in a background process of the home when the user has quit the interface.
    fn may_outlive_interface(&self, _home: &Path) -> bool {
        false
    }
}

/// How a program gets to know a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// It reads this file, which is to be created.
    File(PathBuf),
    /// It imports a file: these are its arguments before the name of the file. It runs in the directory of the session.
    Import(Vec<OsString>),
}

/// A conversation that becomes a session of an agent's program.
///
/// Roles alternate, the user begins, each call has its result in the next message, and ids of calls are unique, as providers
/// require it.
#[derive(Debug, Clone, Copy)]
pub struct NativeConversation<'a> {
    /// The program's id of the session.
    pub id: &'a str,
    /// The directory that the program is started in.
    pub cwd: &'a Path,
    /// When the session began.
    pub started: Timestamp,
    /// When it was last active. Programs delete sessions that were not for a while.
    pub updated: Timestamp,
    /// Its name.
    pub title: Option<&'a str>,
    /// The program's own settings, if they were read: [`Agent::own_settings`](azureal_core::agent::Agent::own_settings).
    pub settings: Option<&'a str>,
    /// The messages.
    pub messages: &'a [Message],
}
