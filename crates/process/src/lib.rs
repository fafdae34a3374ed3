//! Runs a program that writes lines, and ends it so that nothing is left.
//!
//! | | |
//! |---|---|
//! | [`Spawn`] | starts a [`Child`] in a session of its own, without a terminal: the whole input is there when it starts, output to a file or kept |
//! | [`ChildEnvironment`] | the variables that a child starts with: all of them |
//! | [`Follow`] | reads that file line by line while it grows, with a bound |
//! | [`Child::stop`], [`stop`] | interrupts, terminates, kills, and then ends whatever the run left behind |
//! | [`Child::kill`], [`end_marked`] | for many short commands at once: each killed when its time is up, and one sweep after all |
//! | [`adopt_orphans`], [`collect_adopted`] | keep descendants together whose parents have ended |
//! | [`ProcessIdentity`] | a process that can be recognised later, also by another program |
//! | [`Marker`], [`find_marked`] | the variable in the environment by which a run's processes are found |
//!
//! The room knows nothing of agents, sessions or lines' meaning. What it does is decided by how coding agents
//! behave:
//!
//! - **An agent's standard output is a file, never a pipe.** Some agents exit without writing what a pipe did
//!   not take. A file also outlives us: when this program dies, the agent continues and its file is followed
//!   by the next one.
//! - **The input goes through standard input**, whatever its size: arguments are limited and everybody can
//!   read them. All of it is there before the child starts, in the pipe and in a process that
//!   feeds the rest: an agent that outlives us receives the whole prompt.
//! - **A child has no terminal.** A program that asks there for a password would write over the screen, and stop its whole
//!   group until an answer comes. It gets an error instead.
//! - **Ending only the child leaves its tools alive.** They run in sessions of their own, where no signal to a group
//!   reaches them. The interrupt comes first since it makes agents clean up; what still lives
//!   after that is found by the marker.
//!
//! # Blocking
//!
//! Everything here blocks or returns at once; there is no async runtime. A [`Child`] costs two threads while it
//! runs: one that reads what is kept of its output and one that waits for it, so that there is never a zombie, even of a child that
//! nobody waits for. An async caller puts [`Follow::next_line`], [`Child::wait`] and [`Child::stop`] on
//! threads for blocking work; a [`Child`] can be cloned for that.
//!
//! # Limits
//!
//! Linux and macOS. Elsewhere than on Linux, processes are found by `ps`, which does not show the
//! environment of programs that belong to the system: there a process is only found if it is a descendant of the
//! child, or in its group, at the moment of stopping. Everywhere, one that has
//! left the family *and* cleared its environment is not found.
//!
//! # Example
//!
//! ```
//! use azureal_process::{ChildEnvironment, Exit, Follow, Line, Marker, Spawn};
//!
//! let folder = tempfile::tempdir()?;
//! let spool = folder.path().join("run.jsonl");
//! let output = std::fs::File::options().create(true).append(true).open(&spool)?;
//!
//! let marker = Marker::new("AZUREAL_RUN_ID", "run-7f3a")?;
//! let environment = ChildEnvironment::from_iter([("PATH", "/usr/bin:/bin")]);
//! let mut spawn = Spawn::new("/bin/sh", folder.path(), environment, output, marker);
//! spawn.args = vec!["-c".into(), "cat; echo done".into()];
//! spawn.stdin = b"hello\n".to_vec();
//! let child = spawn.start()?;
//!
//! let mut lines = Vec::new();
//! let mut follow = Follow::open(&spool, 0)?;
//! while let Some(line) = follow.next_line(|pause| child.wait_timeout(pause).is_some())? {
//!     lines.push(line);
//! }
//! assert_eq!(lines, [Line::Bytes(b"hello".to_vec()), Line::Bytes(b"done".to_vec())]);
//! assert_eq!(child.wait(), Exit::Code(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(not(unix))]
compile_error!(
    "azureal-process is not supported on this system yet: it needs the signals and process groups of Unix"
);

mod adopt;
mod child;
mod environment;
mod error;
mod excerpt;
mod follow;
mod identity;
mod input;
mod marker;
mod reading;
mod spawn;
mod stop;
mod table;

pub use adopt::{adopt_orphans, collect_adopted};
pub use child::{Child, Exit};
pub use environment::ChildEnvironment;
pub use error::{FollowError, SpawnError};
pub use excerpt::Excerpt;
pub use follow::{Follow, LINE_LIMIT, Line, Progress};
pub use identity::ProcessIdentity;
pub use marker::{InvalidMarker, Marker, MarkersInUse, find_marked};
pub use spawn::{STDERR_LIMIT, Spawn, Stream};
pub use stop::{StopReport, StopTimeouts, Stopped, end_marked, stop};
