//! Trust in the configuration files of projects.
//!
//! A configuration file that comes with a repository can run commands and instruct agents. So it has no effect until
//! the user has seen it. An approval is for exactly these files with exactly this content in exactly this place. It
//! is stored under the fingerprint of all of that, outside the repository, one small file each. That is safe with
//! many processes at once, because approvals are only created and removed, never changed. One changed byte gives
//! another fingerprint, which is not approved.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::{Config, describe};
use crate::environment::Environment;
use crate::error::{Error, shown};
use crate::project::Project;

/// Reads at most this much of an approval. Only its time is shown, and only if all of it could be read.
const LARGEST: u64 = 64 * 1024;

/// The user's decision about the files of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// There is no file with a setting.
    NoFiles,
    /// They may.
    Trusted {
        /// The time of the approval, as it is shown.
        since: String,
    },
    /// Others may, that have been here before.
    Changed,
    /// They are not trusted.
    Untrusted,
}

impl Standing {
    pub(super) fn is_trusted(&self) -> bool {
        match self {
            Self::NoFiles | Self::Trusted { .. } => true,
            Self::Changed | Self::Untrusted => false,
        }
    }
}

/// The content of an approval, for people: only its name counts.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    worktree: String,
    files: Vec<RecordedFile>,
    approved_at: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct RecordedFile {
    path: String,
    blake3: String,
}

/// A decision that only the user can make: whether the files of a project may take effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustRequired {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Whether other contents of them were trusted before.
    pub has_changed: bool,
    /// All that they say, safe to show.
    pub content: String,
    /// The files that are not trusted, in one sentence without its end.
    pub message: String,
}

/// Returns the decision that is open; `None` if the files of the project are trusted, or there are none.
pub fn required(config: &Config) -> Option<TrustRequired> {
    (!config.standing.is_trusted()).then(|| TrustRequired {
        files: config.project_files().map(|file| file.path().to_owned()).collect(),
        has_changed: config.standing == Standing::Changed,
        content: shown_whole(config),
        message: state_of(config),
    })
}

/// Trusts the files of the project as they were read.
pub fn approve(config: &mut Config) -> Result<(), Error> {
    let since = Approvals::of(&config.environment).add(config)?;
    config.standing = Standing::Trusted { since };
    Ok(())
}

/// Revokes every approval of a worktree, and returns their number. Does not read the worktree's files, because their
/// content does not matter for that.
pub fn revoke(project: &Project, environment: &Environment) -> Result<usize, Error> {
    Approvals::of(environment).remove_all(project.directory())
}

/// Returns the user's decision about the files of the project.
pub fn standing(config: &Config) -> &Standing {
    &config.standing
}

/// Returns the whole content of the project's files, for the user who is to trust it.
pub fn shown_whole(config: &Config) -> String {
    config.project_files().map(describe).collect()
}

/// Names the files that are not trusted.
fn state_of(config: &Config) -> String {
    let names: Vec<String> = config.project_files().map(|file| shown(file.path())).collect();
    let (is, has) = if names.len() == 1 { ("is", "has") } else { ("are", "have") };
    let names = names.join(", ");
    match config.standing {
        Standing::Changed => format!("{names} {has} changed since this project was trusted"),
        Standing::Untrusted | Standing::NoFiles | Standing::Trusted { .. } => {
            format!("{names} {is} not trusted")
        }
    }
}

/// The stored approvals.
pub(super) struct Approvals {
    /// `None` if the user has no home.
    folder: Option<PathBuf>,
}

impl Approvals {
    pub(super) fn of(environment: &Environment) -> Self {
        Self { folder: folder_of(environment) }
    }

    /// Finds the user's decision about the files of a project.
    pub(super) fn standing_of(&self, config: &Config) -> Standing {
        if config.project_files().next().is_none() {
            return Standing::NoFiles;
        }
        let Some(folder) = &self.folder else { return Standing::Untrusted };
        match read_own(&folder.join(name_of(config))) {
            Ok(bytes) => {
                let record = serde_json::from_slice::<Record>(&bytes);
                Standing::Trusted {
                    since: record.map_or_else(|_| String::new(), |record| record.approved_at),
                }
            }
            Err(_) if self.of_worktree(&config.worktree).is_ok_and(|found| !found.is_empty()) => {
                Standing::Changed
            }
            Err(_) => Standing::Untrusted,
        }
    }

    /// Keeps an approval, and returns the time of it.
    fn add(&self, config: &Config) -> Result<String, Error> {
        let record = Record {
            worktree: config.worktree.to_string_lossy().into_owned(),
            files: config
                .project_files()
                .map(|file| RecordedFile {
                    path: file.path().to_string_lossy().into_owned(),
                    blake3: file.hash().to_string(),
                })
                .collect(),
            approved_at: now(),
        };
        keep(self.folder.as_deref(), &name_of(config), &record)?;
        Ok(record.approved_at)
    }

    fn remove_all(&self, worktree: &Path) -> Result<usize, Error> {
        let mut removed = 0;
        for path in self.of_worktree(worktree)? {
            removed += usize::from(remove(&path)?);
        }
        Ok(removed)
    }

    /// Finds all approvals that a worktree ever had.
    fn of_worktree(&self, worktree: &Path) -> Result<Vec<PathBuf>, Error> {
        let Some(folder) = &self.folder else { return Ok(Vec::new()) };
        let prefix = prefix_of(worktree);
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::file(folder, &error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| Error::file(folder, &error))?;
            if entry.file_name().as_bytes().starts_with(prefix.as_bytes()) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }
}

/// Returns the folder that approvals are stored in. `None` if the user has no home.
pub(super) fn folder_of(environment: &Environment) -> Option<PathBuf> {
    environment.data().map(|data| data.join("trust"))
}

/// Stores an approval: the whole file or none.
pub(super) fn keep(folder: Option<&Path>, name: &str, record: &impl Serialize) -> Result<(), Error> {
    let Some(folder) = folder else {
        return Err(Error::new("no_home", "there is no folder to keep approvals in")
            .with_hint("set HOME or XDG_DATA_HOME to a folder of your own"));
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .and_then(|()| {
            let mut file = NamedTempFile::new_in(folder)?;
            serde_json::to_writer_pretty(&mut file, record)?;
            file.flush()?;
            file.as_file().sync_all()?;
            file.persist(folder.join(name)).map_err(|error| error.error)?;
            Ok(())
        })
        .map_err(|error| Error::file(folder, &error))
}

/// Removes an approval, and returns whether there was one.
pub(super) fn remove(path: &Path) -> Result<bool, Error> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        // Another process was faster.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::file(path, &error)),
    }
}

/// Returns the time of an approval that is given now.
pub(super) fn now() -> String {
    azureal_engine::clock::now_text()
}

/// Reads an approval of this user. The file appears whole or not at all, so its existence is the approval. One that
/// another user has put there does not count.
pub(super) fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if file.metadata()?.uid() != rustix::process::geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the name of an approval: where the files are, and which they are with which content.
fn name_of(config: &Config) -> String {
    let mut all = blake3::Hasher::new();
    for file in config.project_files() {
        let path = file.path().as_os_str().as_bytes();
        // With its length, so that where a path ends and a hash begins cannot be argued about.
        all.update(&(path.len() as u64).to_le_bytes()).update(path).update(file.hash().as_bytes());
    }
    format!("{}{}.json", prefix_of(&config.worktree), all.finalize())
}

fn prefix_of(worktree: &Path) -> String {
    format!("{}-", blake3::hash(worktree.as_os_str().as_bytes()))
}
