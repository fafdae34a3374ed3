//! Deleting everything that azureal keeps of a project.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use azureal_agents::registry;
use azureal_core::{ListQuery, SessionId};
use azureal_engine::{FoundTurn, Spools, Transcript, transcripts_of};
use azureal_files::OURS;
use azureal_store::sqlite::{COMPANIONS, with_suffix};

use crate::backup::staged;
use crate::error::{Error, shown};
use crate::server_folder;
use crate::workspace::Workspace;

/// The number of the agents' own transcripts that are looked for. Each is a search of the agents' folders.
const MOST_TRANSCRIPTS: usize = 200;
/// The beginnings of what follows the name of the store in the names of files that repairs and restores keep.
const KEPT_BESIDE: [&str; 3] = [".backup-", ".damaged-", ".before-restore-"];
/// The prefix of a store that was set aside in the git directory.
const SET_ASIDE: &str = "sessions-";

/// Everything that azureal keeps of a project, and what the agents keep of it themselves.
#[derive(Debug)]
pub struct Purge {
    /// The number of sessions.
    pub sessions: u64,
    /// What is deleted, in the order of deletion.
    pub parts: Vec<PurgePart>,
    /// Transcripts of the agents' programs. They are not deleted.
    pub transcripts: Vec<Transcript>,
}

/// A part of what is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgePart {
    /// What it is, for people.
    pub what: &'static str,
    /// The files and folders.
    pub paths: Vec<PathBuf>,
    /// Their size.
    pub bytes: u64,
}

impl Purge {
    /// Returns the size of everything that is deleted.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Deletes it, and closes the store. If this is interrupted, another purge deletes the rest.
    ///
    /// # Errors
    ///
    /// A turn runs. It may have begun since the purge was prepared; sessions without one are deleted by then.
    pub async fn run(&self, workspace: &Workspace) -> Result<(), Error> {
        workspace.check_idle()?;
        // One by one, as `rm` does. Another process that has the file open writes it again when it is gone: then without any session.
        for record in workspace.store.list(&ListQuery::default()).await? {
            let _lease = workspace.lease(record.id, "purge").await?;
            workspace.store.delete(record.id).await?;
        }
        workspace.check_idle()?;
        workspace.store.close().await?;
        for path in workspace.purge_parts().iter().flat_map(|part| &part.paths) {
            remove(path).map_err(|error| Error::file(path, &error))?;
        }
        Ok(())
    }
}

impl Workspace {
    /// Finds everything that is kept of the project. Deletes nothing.
    ///
    /// # Errors
    ///
    /// The store is not a file, or a turn runs.
    pub async fn purge(&self) -> Result<Purge, Error> {
        if self.file().is_none() {
            return Err(Error::usage("only a store in a file can be purged")
                .with_hint("`azureal rm` deletes single sessions of a store on a server"));
        }
        self.check_idle()?;
        let mut transcripts = Vec::new();
        let records = self.store.list(&ListQuery::default()).await?;
        for record in &records {
            if transcripts.len() < MOST_TRANSCRIPTS {
                transcripts.append(&mut self.transcripts(record.id).await?);
            }
        }
        let (sessions, parts) = (records.len() as u64, self.purge_parts());
        Ok(Purge { sessions, parts, transcripts })
    }

    /// Returns what there is to delete now.
    fn purge_parts(&self) -> Vec<PurgePart> {
        let Some((file, folders)) = self.file() else { return Vec::new() };
        let own = file.parent().filter(|own| !own.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let with_companions = |path: &Path| {
            COMPANIONS.iter().map(|end| with_suffix(path, end)).chain([path.to_owned()]).collect::<Vec<_>>()
        };
        // The second name first: it would bring the first one back. The files of the database before it: without the file they
        // would belong to the next one.
        let store = folders.second_name.iter().cloned().chain(with_companions(file)).collect();
        let spools = [Some(folders.spools.clone()), folders.former_spools.clone()].into_iter().flatten();
        let originals =
            [Some(folders.originals.clone()), folders.former_originals.clone(), Some(staged(folders))]
                .into_iter()
                .flatten();
        let unfinished = format!("{}.new-", file.file_name().unwrap_or_default().to_string_lossy());
        let parts = [
            ("sessions", store),
            ("output of turns", originals.collect()),
            ("search index", vec![folders.search.clone()]),
            ("versions of files, for diff and undo", self.snapshot_folder().into_iter().collect()),
            ("unfinished turns", spools.collect()),
            ("stores that were set aside", self.stores_set_aside()),
            ("unfinished turns of stores on servers", self.server_folders()),
            ("copies of the store, and what was set aside", self.copies_beside(own)),
            ("leftovers", named(own, |name| name.starts_with(&unfinished))),
        ];
        let parts = parts.into_iter().map(|(what, paths)| PurgePart::of(what, paths));
        parts.filter(|part| !part.paths.is_empty()).collect()
    }

    /// Returns what repairs and restores have kept beside either name of the store.
    fn copies_beside(&self, own: &Path) -> Vec<PathBuf> {
        let Some(file) = self.file().and_then(|(file, _)| file.file_name()?.to_str()) else {
            return Vec::new();
        };
        let is_copy = |name: &str| {
            let rest = name.strip_prefix(file).unwrap_or_default();
            KEPT_BESIDE.iter().any(|kept| rest.starts_with(kept))
        };
        let second_name = self.file().and_then(|(_, folders)| folders.second_name.as_deref());
        let in_git = second_name.and_then(Path::parent).map(|folder| named(folder, is_copy));
        named(own, is_copy).into_iter().chain(in_git.unwrap_or_default()).collect()
    }

    /// Returns the stores that were set aside in the git directory. They may have copies of sessions.
    pub fn stores_set_aside(&self) -> Vec<PathBuf> {
        let second_name = self.file().and_then(|(_, folders)| folders.second_name.as_deref());
        let in_git = second_name.and_then(Path::parent);
        in_git.map(|folder| named(folder, |name| name.starts_with(SET_ASIDE))).unwrap_or_default()
    }

    /// Returns the folders that this machine keeps for stores on servers, if the store is a project's own.
    fn server_folders(&self) -> Vec<PathBuf> {
        let Some((file, folders)) = self.file() else { return Vec::new() };
        let own = file.parent().filter(|folder| folder.file_name() == Some(OsStr::new(OURS)));
        let in_git = folders.second_name.as_deref().and_then(Path::parent);
        own.into_iter()
            .chain(in_git)
            .flat_map(|folder| named(folder, server_folder::is_folder_name))
            .collect()
    }

    /// Refuses if a turn runs.
    fn check_idle(&self) -> Result<(), Error> {
        let of_servers = self.server_folders().into_iter().map(|folder| Spools::new(folder.join("spool")));
        for spools in self.spools().into_iter().chain(of_servers) {
            let turns = spools.found_turns().map_err(|error| Error::file(&error.path, &error.source))?;
            if let Some(FoundTurn { session, .. }) = turns.iter().find(|turn| turn.is_running) {
                return Err(Error::new("busy", format!("a turn of {session} is running")).with_hint(
                    format!(
                        "wait for it, or end it with `azureal cancel {session}`; nothing more was deleted"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Finds the agents' own transcripts of a session's turns. azureal does not delete them.
    pub async fn transcripts(&self, session: SessionId) -> Result<Vec<Transcript>, Error> {
        let environment = self.environment().for_children();
        Ok(transcripts_of(&*self.store, session, registry::all(), environment, MOST_TRANSCRIPTS).await?)
    }
}

impl PurgePart {
    fn of(what: &'static str, paths: Vec<PathBuf>) -> Self {
        let paths: Vec<PathBuf> =
            paths.into_iter().filter(|path| fs::symlink_metadata(path).is_ok()).collect();
        // Both names of the store are one file.
        let mut counted = Vec::new();
        let bytes = paths.iter().map(|path| size(path, &mut counted)).sum();
        Self { what, paths, bytes }
    }
}

/// Returns the size of a file, or of a folder with everything in it. Counts a file with two names once.
fn size(path: &Path, counted: &mut Vec<(u64, u64)>) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(found) = fs::symlink_metadata(path) else { return 0 };
    if found.is_dir() {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        return entries.map(|entry| size(&entry.path(), counted)).sum();
    }
    let identity = (found.dev(), found.ino());
    if found.nlink() > 1 && counted.contains(&identity) {
        return 0;
    }
    counted.push(identity);
    found.len()
}

/// Returns the entries of a folder with such a name.
fn named(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(&is_wanted))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

/// Removes a file or a folder, and makes that survive a loss of power. A link is removed, not followed.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        removed => removed?,
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

/// Describes a transcript that an agent's program keeps.
pub fn describe_transcript(transcript: &Transcript) -> String {
    format!("{} stays: {}", transcript.name, shown(&transcript.path))
}
