//! Errors, with messages that a person can act on.

use std::io;
use std::path::PathBuf;

/// The reason why a program was not started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no such program.
    #[error("there is no program `{}`", program.display())]
    ProgramNotFound {
        /// As it was asked for.
        program: PathBuf,
    },
    /// The program is a script, and what it names in its first line is not there.
    #[error("`{}` is there, but not the program that it is run by", program.display())]
    InterpreterNotFound {
        /// The script.
        program: PathBuf,
    },
    /// There is such a file, and it cannot be run.
    #[error("`{}` cannot be run", program.display())]
    NotExecutable {
        /// As it was asked for.
        program: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The folder to run in is not there.
    #[error("there is no folder {}", directory.display())]
    DirectoryNotFound {
        /// The folder.
        directory: PathBuf,
    },
    /// The folder to run in is something else, or closed to us.
    #[error("{} is not a folder that can be entered", directory.display())]
    DirectoryNotEntered {
        /// The folder.
        directory: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Arguments and environment together are more than the system takes.
    #[error("the arguments of `{}` are longer than the system takes", program.display())]
    ArgumentsTooLong {
        /// The program.
        program: PathBuf,
    },
    /// The program was started and killed again, because its process could not be identified.
    #[error("the list of processes cannot be read")]
    Unidentified {
        /// The error of the system.
        source: io::Error,
    },
    /// The input cannot be kept for the child: no more memory, no room in the temporary folder, or no program `cat`.
    #[error("the input of the program cannot be kept for it: {source}")]
    NoInput {
        /// The error of the system.
        source: io::Error,
    },
    /// Anything else, such as no more memory or processes.
    #[error("`{}` was not started", program.display())]
    Other {
        /// The program.
        program: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl SpawnError {
    /// Returns what the person can do, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::ProgramNotFound { .. } => Some("install it, or add its folder to PATH"),
            Self::InterpreterNotFound { .. } => Some(
                "its first line names the program that runs it: install that one, or add its folder to PATH",
            ),
            Self::NotExecutable { .. } => Some("`chmod +x` if it is a program, and for this kind of machine"),
            Self::DirectoryNotFound { .. } => Some("the folder may have been moved or deleted"),
            Self::DirectoryNotEntered { .. } => Some("`ls -ld` shows what it is and whose"),
            Self::ArgumentsTooLong { .. } => Some("long text goes through standard input"),
            Self::Unidentified { .. } => {
                Some("on Linux /proc must be mounted; elsewhere `ps` must be in PATH")
            }
            Self::NoInput { .. } | Self::Other { .. } => None,
        }
    }
}

/// The reason why a file can be followed no further.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The file has become shorter than what was read of it.
    #[error("{} has been cut to {found} bytes, and {read} of it were read", path.display())]
    Shrunk {
        /// The file.
        path: PathBuf,
        /// The position up to which it was read.
        read: u64,
        /// Its current length.
        found: u64,
    },
    /// The file cannot be opened or read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl FollowError {
    /// Returns what the person can do, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Shrunk { .. } => {
                Some("something else writes to that file: what was read before is not lost")
            }
            Self::Unreadable { .. } => None,
        }
    }
}
