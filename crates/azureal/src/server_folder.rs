//! The folder in which this machine keeps what belongs to a store on a server: turns that are not stored yet, and their outputs.
//!
//! It is named by the id of the store, so that a turn is found again when the server has another address. A copy of a database has
//! the same id. So the folder records the addresses under which the store was used, and under another one its turns wait for a yes.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use azureal_engine::{SpoolState, Spools};
use azureal_files::Folder;
use azureal_store::core::Uuid;
use azureal_store::postgres::PostgresAddress;
use azureal_store::redis::RedisAddress;
use azureal_store::sqlite::make_folder_of;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::error::{Error, quoted, shown};
use crate::git_folder;
use crate::project::Project;
use crate::server_store::Address;

const SPOOLS: &str = "spool";
const ORIGINALS: &str = "originals";
/// The file that says which store a folder belongs to.
const RECORD: &str = "store.json";
/// The largest record that is read, in bytes.
const LARGEST_RECORD: u64 = 1 << 20;
/// The ending of the header of a turn, without which its other files are not looked at.
const HEADER: &str = "turn";

/// The folder of a store on a server.
#[derive(Debug, Clone)]
pub(crate) struct ServerFolder {
    place: Place,
    id: Option<Uuid>,
    /// What the folder is to record; `None` where the store has no id.
    record: Option<StoreRecord>,
    waiting: Option<WaitingTurns>,
}

impl PartialEq for ServerFolder {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

/// Which store a folder belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreRecord {
    id: String,
    project: String,
    /// The addresses under which it was used here, without passwords.
    addresses: Vec<String>,
}

/// Interrupted turns that were kept for a store under another address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingTurns {
    /// The address under which the store is open now.
    pub address: String,
    /// The addresses under which it was used before.
    pub known_as: Vec<String>,
    /// The runs of the turns, as `--recover` takes them.
    pub runs: Vec<String>,
    /// The folder that has their files.
    pub folder: PathBuf,
}

impl fmt::Display for WaitingTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turns = match self.runs.len() {
            1 => "an interrupted turn waits".to_owned(),
            many => format!("{many} interrupted turns wait"),
        };
        write!(
            f,
            "{turns} in {} for the store that was {} here. {} has the same id: it is that store, or a copy of it",
            shown(&self.folder),
            self.known_as.join(", "),
            self.address
        )
    }
}

/// Where a folder is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    path: PathBuf,
    /// The folder that processes use that cannot write to the git directory, or can, if it is another one.
    former: Option<PathBuf>,
    is_in_git: bool,
}

impl Place {
    /// Returns the place of a folder of this name: in the git directory of the project, as far as the project's own store has a
    /// folder there.
    fn of(name: &str, project: &Project) -> Self {
        let own = project.store_path();
        let (beside, in_git) = (own.with_file_name(name), git_folder::of_store(&own));
        let Ok(in_git) = in_git.map(|folder| folder.join(name)) else {
            return Self { path: beside, former: None, is_in_git: false };
        };
        match git_folder::check_usable(in_git.parent().unwrap_or(&in_git)) {
            Ok(()) => Self { path: in_git, former: Some(beside), is_in_git: true },
            Err(why) => Self { path: beside, former: why.is_readable().then_some(in_git), is_in_git: false },
        }
    }

    fn spools(&self) -> Spools {
        let former = self.former.as_ref().map(|former| former.join(SPOOLS));
        Spools::new(self.path.join(SPOOLS)).with_former(former)
    }

    fn record(&self) -> Option<StoreRecord> {
        [Some(&self.path), self.former.as_ref()]
            .into_iter()
            .flatten()
            .find_map(|path| StoreRecord::read(path))
    }
}

impl StoreRecord {
    fn read(folder: &Path) -> Option<Self> {
        let mut text = String::new();
        File::open(folder.join(RECORD)).ok()?.take(LARGEST_RECORD).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Writes it whole or not at all.
    fn write(&self, folder: &Path) -> Result<(), Error> {
        if Self::read(folder).as_ref() == Some(self) {
            return Ok(());
        }
        let path = folder.join(RECORD);
        let unfinished = folder.join(format!("{RECORD}.{}", std::process::id()));
        let written = || -> io::Result<()> {
            let text = serde_json::to_string(self)?;
            let mut file =
                File::options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)
        };
        written().map_err(|error| Error::file(&path, &error))
    }
}

/// Returns the folder of a store on a server. `kept_as` is the name of the project there. With `takes_waiting`, turns that wait
/// under another address are taken.
///
/// Each store has one of its own in the project, since sessions of every store have the same numbers.
pub(crate) fn folder<A: Address>(
    address: &A,
    id: Option<Uuid>,
    kept_as: &str,
    project: &Project,
    takes_waiting: bool,
) -> Result<ServerFolder, Error> {
    let shown = address.to_string();
    // Also the name of folders from before stores had ids.
    let hash = blake3::hash(format!("{shown} {} {kept_as}", address.part()).as_bytes()).to_hex();
    let by_address = Place::of(&format!("{}-{}", A::KIND, hash.get(..16).unwrap_or(&hash)), project);
    let Some(id) = id else {
        return Ok(ServerFolder { place: by_address, id: None, record: None, waiting: None });
    };
    let digits = id.simple().to_string();
    let place = Place::of(&format!("{}-{}", A::KIND, digits.get(..16).unwrap_or(&digits)), project);
    let new = || StoreRecord { id: id.to_string(), project: kept_as.to_owned(), addresses: Vec::new() };
    let known = place.record();
    let mut record = known.clone().unwrap_or_else(new);
    let is_known = known.is_none() || record.addresses.contains(&shown);
    if !is_known {
        let waiting = WaitingTurns {
            address: shown.clone(),
            known_as: record.addresses.clone(),
            runs: runs_in(&place),
            folder: place.path.join(SPOOLS),
        };
        if !waiting.runs.is_empty() && !takes_waiting {
            info!(%id, runs = waiting.runs.len(), "turns wait under another address of the store");
            return Ok(ServerFolder {
                place: by_address,
                id: Some(id),
                record: None,
                waiting: Some(waiting),
            });
        }
    }
    if !record.addresses.contains(&shown) {
        record.addresses.push(shown);
    }
    let folder = ServerFolder { place, id: Some(id), record: Some(record), waiting: None };
    if takes_waiting && !is_known {
        folder.make()?;
    }
    adopt(&by_address, &folder.place);
    Ok(folder)
}

/// Returns the runs of the turns in a folder that have ended, or whose azureal has.
fn runs_in(place: &Place) -> Vec<String> {
    let states = place.spools().inspect().unwrap_or_default();
    let run = |state| match state {
        SpoolState::Ended(turn) | SpoolState::Running(turn) => Some(turn.run),
        _ => None,
    };
    states.into_iter().filter_map(run).collect()
}

/// Moves what is in a folder that was named by the address to the one that is named by the id, unless a turn runs there. What
/// cannot be moved stays for the next time.
fn adopt(by_address: &Place, by_id: &Place) {
    if !by_address.path.is_dir() {
        return;
    }
    let states = by_address.spools().inspect().unwrap_or_default();
    if states.iter().any(|state| matches!(state, SpoolState::Running(_) | SpoolState::Leased(_))) {
        return;
    }
    let moved = match by_id.path.exists() {
        false => fs::rename(&by_address.path, &by_id.path),
        true => move_turns(&by_address.path, &by_id.path),
    };
    match moved {
        Ok(()) => info!(from = ?by_address.path, to = ?by_id.path, "moved the folder of a store"),
        Err(error) => warn!(%error, from = ?by_address.path, "the folder of a store stays where it is"),
    }
}

/// Moves the files of turns, the header of each last: a turn without its header is not looked for.
fn move_turns(from: &Path, to: &Path) -> io::Result<()> {
    let (from_spools, to_spools) = (from.join(SPOOLS), to.join(SPOOLS));
    fs::create_dir_all(&to_spools)?;
    let mut files: Vec<PathBuf> =
        fs::read_dir(&from_spools)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.sort_by_key(|file| file.extension() == Some(OsStr::new(HEADER)));
    for file in files {
        if let Some(name) = file.file_name() {
            fs::rename(&file, to_spools.join(name))?;
        }
    }
    fs::remove_dir(&from_spools)?;
    if from.join(ORIGINALS).is_dir() && !to.join(ORIGINALS).exists() {
        fs::rename(from.join(ORIGINALS), to.join(ORIGINALS))?;
    }
    // Outputs of both stay where they are: each has its own sessions.
    drop(fs::remove_dir(from));
    Ok(())
}

/// Returns whether a folder may be that of a store on a server, by its name.
pub(crate) fn is_folder_name(name: &str) -> bool {
    let hash = [PostgresAddress::KIND, RedisAddress::KIND]
        .iter()
        .find_map(|kind| name.strip_prefix(kind)?.strip_prefix('-'));
    hash.is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Interrupted turns of a store that is not open.
pub(crate) struct TurnsElsewhere {
    pub(crate) folder: PathBuf,
    /// The store, as far as the folder says which one it is.
    pub(crate) store: String,
    pub(crate) runs: Vec<String>,
}

/// Returns the interrupted turns of the project's stores on servers, but for the one that is `open`.
pub(crate) fn turns_elsewhere(project: &Project, open: Option<&ServerFolder>) -> Vec<TurnsElsewhere> {
    let own = project.store_path();
    let in_git = git_folder::of_store(&own).ok();
    let folders = own.parent().map(Path::to_owned).into_iter().chain(in_git);
    let mut found = Vec::new();
    for folder in folders {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            if !is_folder_name(name) || open.is_some_and(|open| open.name() == path.file_name()) {
                continue;
            }
            let states = Spools::new(path.join(SPOOLS)).inspect().unwrap_or_default();
            let ended = states.into_iter().filter_map(|state| match state {
                SpoolState::Ended(turn) => Some(turn.run),
                _ => None,
            });
            let runs: Vec<String> = ended.collect();
            if runs.is_empty() {
                continue;
            }
            let store = match StoreRecord::read(&path) {
                Some(record) => {
                    format!("{}, project {}", record.addresses.join(" or "), quoted(&record.project))
                }
                None => "a store on a server".to_owned(),
            };
            found.push(TurnsElsewhere { folder: path.join(SPOOLS), store, runs });
        }
    }
    found
}

impl ServerFolder {
    pub(crate) fn spools(&self) -> PathBuf {
        self.place.path.join(SPOOLS)
    }

    pub(crate) fn former_spools(&self) -> Option<PathBuf> {
        self.place.former.as_ref().map(|former| former.join(SPOOLS))
    }

    /// Returns the folder of the output of turns, as far as it is on this machine.
    pub(crate) fn originals(&self) -> PathBuf {
        self.place.path.join(ORIGINALS)
    }

    /// Returns its name, which no other store has.
    pub(crate) fn name(&self) -> Option<&OsStr> {
        self.place.path.file_name()
    }

    /// Returns the id of the store.
    pub(crate) fn store_id(&self) -> Option<Uuid> {
        self.id
    }

    /// Returns the turns that wait for a yes.
    pub(crate) fn waiting(&self) -> Option<&WaitingTurns> {
        self.waiting.as_ref()
    }

    /// Makes the folder, and the one around it as the project's own store would, and records the store in it.
    pub(crate) fn make(&self) -> Result<(), Error> {
        let folder = &self.place.path;
        if self.place.is_in_git {
            Folder::open_or_create(folder).map_err(|error| Error::file(folder, &error))?;
        } else {
            make_folder_of(folder)?;
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(Error::file(folder, &error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        self.record.as_ref().map_or(Ok(()), |record| record.write(folder))
    }
}
