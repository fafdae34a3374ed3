//! The program that runs bridges, and the folder of the control channels.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use azureal_files::{Folder, OURS};

use super::control::check_path;

/// The sockets of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Open questions, answers, cancel.
    Control,
    /// What the agent looks up in the stored sessions.
    Recall,
}

/// The program and the folder of bridges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeHost {
    /// A program that calls [`bridge_main`](crate::bridge_main) when its first argument is
    /// [`BRIDGE_SUBCOMMAND`](crate::BRIDGE_SUBCOMMAND).
    pub program: PathBuf,
    /// The folder for control channels: of this user alone, and outside of every worktree. The runtime directory of the user
    /// is the place for it. It is created if it is missing.
    pub control: PathBuf,
}

/// The reason why the folder of the control channels cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ControlFolderError {
    /// It is in a folder that the agent may write to.
    #[error("the control channels must not be in {}: the agent may write there", worktree.display())]
    InWorktree {
        /// The folder of the agent.
        worktree: PathBuf,
    },
    /// It cannot be created, is open to others, or its path is too long.
    #[error("{}: {source}", path.display())]
    Unusable {
        /// The folder, or the socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl ControlFolderError {
    /// Returns what a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some("set `XDG_RUNTIME_DIR` to a short path of your own, outside of the project")
    }
}

impl BridgeHost {
    /// Returns a socket of a run; `None` if the run's name cannot be that of a file.
    pub(crate) fn socket(&self, run: &str, channel: Channel) -> Option<PathBuf> {
        let is_plain =
            !run.is_empty() && run.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let kind = match channel {
            Channel::Control => "sock",
            Channel::Recall => "mcp",
        };
        is_plain.then(|| self.control.join(format!("{run}.{kind}")))
    }

    /// Creates the folder, checks it, and returns a socket of a run. `own` are folders of the worktree.
    pub(crate) fn prepare(
        &self,
        run: &str,
        channel: Channel,
        own: &[&Path],
    ) -> Result<PathBuf, ControlFolderError> {
        let unusable = |source| ControlFolderError::Unusable { path: self.control.clone(), source };
        let no_name = || unusable(io::Error::new(io::ErrorKind::InvalidInput, "the run has no plain name"));
        let socket = self.socket(run, channel).ok_or_else(no_name)?;
        check_path(&socket)
            .map_err(|source| ControlFolderError::Unusable { path: socket.clone(), source })?;
        if let Some(parent) = self.control.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(unusable)?;
        }
        Folder::open_or_create(&self.control).map_err(unusable)?;
        let control = self.control.canonicalize().map_err(unusable)?;
        for folder in own {
            // Our own folder in a project shows where the worktree begins.
            let worktree = match folder.parent() {
                Some(parent) if parent.file_name() == Some(OsStr::new(OURS)) => {
                    parent.parent().unwrap_or(folder)
                }
                _ => folder,
            };
            // A missing worktree contains no folder.
            let Ok(worktree) = worktree.canonicalize() else { continue };
            if control.starts_with(&worktree) {
                return Err(ControlFolderError::InWorktree { worktree });
            }
        }
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_folder_is_private_and_outside_of_the_worktree() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for made in ["p/src", "p/.azureal/spool"] {
            fs::create_dir_all(path(made)).unwrap();
        }
        let host = |control: &str| BridgeHost { program: "x".into(), control: path(control) };
        let (directory, spools) = (path("p/src"), path("p/.azureal/spool"));
        let own = [directory.as_path(), spools.as_path()];
        let socket = host("run/azureal").prepare("ab12", Channel::Control, &own).unwrap();
        assert_eq!(socket, path("run/azureal/ab12.sock"));
        assert_eq!(fs::metadata(path("run/azureal")).unwrap().permissions().mode() & 0o777, 0o700);
        for inside in ["p/src/control", "p/control", "p/.azureal/control"] {
            let error = host(inside).prepare("ab12", Channel::Control, &own).unwrap_err();
            assert!(matches!(error, ControlFolderError::InWorktree { .. }), "{inside}: {error}");
        }
        std::os::unix::fs::symlink(path("p/src"), path("link")).unwrap();
        assert!(
            host("link/control").prepare("ab12", Channel::Control, &own).is_err(),
            "whatever it is called"
        );
        for run in ["", "../x", "a/b", "a.b"] {
            assert!(host("run/azureal").prepare(run, Channel::Control, &own).is_err(), "{run}");
        }
        fs::set_permissions(path("run/azureal"), fs::Permissions::from_mode(0o755)).unwrap();
        let error = host("run/azureal").prepare("ab12", Channel::Control, &own).unwrap_err().to_string();
        assert!(error.contains("is open to others"), "{error}");
    }
}
