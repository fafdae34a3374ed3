//! Errors, with messages that a person can act on.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why snapshots cannot be taken, compared or undone.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no git program. The project works without; a notice is enough.
    #[error("there is no program `{}`: changes of turns are not recorded", program.display())]
    NoGit {
        /// As it was asked for.
        program: PathBuf,
    },
    /// The git program is older than 2.32. The project works without; a notice is enough.
    #[error("git {version} is too old to record the changes of turns: they need git 2.32")]
    OldGit {
        /// Its version.
        version: String,
    },
    /// A git command ended with an error.
    #[error("`git {command}`: {message}")]
    Git {
        /// Its subcommand.
        command: String,
        /// The end of its standard error.
        message: String,
    },
    /// A git command did not end in time, and was killed.
    #[error("`git {command}` took longer than {} s", after.as_secs())]
    Slow {
        /// Its subcommand.
        command: String,
        /// The time limit.
        after: std::time::Duration,
    },
    /// A git command printed more than we read.
    #[error("`git {command}` printed more than {limit} bytes")]
    TooMuch {
        /// Its subcommand.
        command: String,
        /// The bound.
        limit: usize,
    },
    /// A snapshot is no longer there: it was pruned, or the project's git removed objects that it borrows.
    #[error("the snapshot `{0}` is no longer stored")]
    Gone(String),
    /// A snapshot is noted, and its objects are missing or damaged.
    #[error("the snapshot `{tree}` cannot be read: {why}")]
    Damaged {
        /// The snapshot.
        tree: String,
        /// The message of git, or what is missing.
        why: String,
    },
    /// The text is no object id.
    #[error("`{0}` is no snapshot")]
    NoSnapshot(String),
    /// The project's index is damaged, or of a format that we do not know.
    #[error("{} cannot be read: {why}", path.display())]
    BadIndex {
        /// The index.
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// Another process uses the snapshots of the worktree, and did not finish in time.
    #[error("another azureal uses the snapshots of this worktree")]
    Busy,
    /// A journal of an undo is damaged.
    #[error("the journal of an undo cannot be read: {0}")]
    BadJournal(&'static str),
    /// An undo has ended, and the caller has not confirmed yet that it knows.
    #[error("an earlier undo in this worktree is not in the history of its session yet")]
    Unsettled,
    /// The undo would overwrite other work.
    #[error("{0} files were changed since: the undo changed nothing")]
    Conflicts(usize),
    /// A file was changed while the undo ran. The undo was taken back.
    #[error("`{}` was changed during the undo: the undo changed nothing{}", path.display(), beside(kept))]
    ChangedMeanwhile {
        /// The file.
        path: PathBuf,
        /// Versions that could not be moved back to their places, and are beside their files.
        kept: Vec<PathBuf>,
    },
    /// A file or a folder cannot be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl Error {
    /// Takes an error of git for damaged objects of a snapshot.
    pub(crate) fn of_objects(self, tree: &str) -> Self {
        match self {
            error @ Self::Git { .. } => Self::Damaged { tree: tree.to_owned(), why: error.to_string() },
            error => error,
        }
    }
}

fn beside(kept: &[PathBuf]) -> String {
    let kept: Vec<String> = kept.iter().map(|path| format!("`{}`", path.display())).collect();
    if kept.is_empty() { String::new() } else { format!("; it put older versions into {}", kept.join(", ")) }
}

/// Adds a path to an error of the system.
pub(crate) trait At<T> {
    fn at(self, path: &Path) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::Io { path: path.to_owned(), source: source.into() })
    }
}
