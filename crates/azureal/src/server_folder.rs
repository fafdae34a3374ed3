//! The folder in which this machine keeps what belongs to a store on a server: turns that are not stored yet, and their outputs.
//!
//! It is named by the id of the store, so that a turn is found again when the server has another address. A copy of a database has
//! the same id. So the folder records the addresses that are known to be the store's: the first one, and those that were confirmed.
//! Under another one the store has a folder that is named by the address, for its turns, and turns of the one wait for a yes under the
//! other.

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
/// The endings of leases.
const LEASES: [&str; 2] = ["lease", "compaction"];

/// The folder of a store on a server.
#[derive(Debug, Clone)]
pub(crate) struct ServerFolder {
    place: Place,
    /// The place of the outputs.
    originals: Place,
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
    /// The addresses that are known to be the store's, without passwords.
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

impl WaitingTurns {
    /// Returns nothing if no turn waits.
    fn of(turns: &[TurnsElsewhere], address: String) -> Option<Self> {
        let mut known_as: Vec<String> = turns
            .iter()
            .filter_map(|turns| turns.record.as_ref())
            .flat_map(|it| it.addresses.clone())
            .collect();
        known_as.sort();
        known_as.dedup();
        let runs = turns.iter().flat_map(|turns| turns.runs.clone()).collect();
        turns.first().map(|first| Self { address, known_as, runs, folder: first.folder.clone() })
    }
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

    fn name(&self) -> Option<&OsStr> {
        self.path.file_name()
    }

    fn make(&self) -> Result<(), Error> {
        if self.is_in_git {
            return Folder::open_or_create(&self.path)
                .map(drop)
                .map_err(|error| Error::file(&self.path, &error));
        }
        make_folder_of(&self.path)?;
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(Error::file(&self.path, &error)),
            Ok(()) | Err(_) => Ok(()),
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

/// Returns the folder of a store on a server. `kept_as` is the name of the project there. Of the turns that wait under another
/// address, those of the runs in `taken` are taken.
///
/// Each store has one of its own in the project, since sessions of every store have the same numbers.
pub(crate) fn folder<A: Address>(
    address: &A,
    id: Option<Uuid>,
    kept_as: &str,
    project: &Project,
    taken: &[String],
) -> Result<ServerFolder, Error> {
    let shown = address.to_string();
    // Also the name of folders from before stores had ids.
    let hash = blake3::hash(format!("{shown} {} {kept_as}", address.part()).as_bytes()).to_hex();
    let by_address = Place::of(&format!("{}-{}", A::KIND, hash.get(..16).unwrap_or(&hash)), project);
    let Some(id) = id else {
        let originals = by_address.clone();
        return Ok(ServerFolder { place: by_address, originals, id: None, record: None, waiting: None });
    };
    let digits = id.simple().to_string();
    let by_id = Place::of(&format!("{}-{}", A::KIND, digits.get(..16).unwrap_or(&digits)), project);
    let mut waiting = turns_of(id, &by_address, project);
    let new = || StoreRecord { id: id.to_string(), project: kept_as.to_owned(), addresses: Vec::new() };
    let known = by_id.record();
    let is_known = known.as_ref().is_none_or(|record| record.addresses.contains(&shown));
    let (own, theirs): (Vec<_>, _) = waiting
        .into_iter()
        .partition(|turns| turns.folder.parent().and_then(Path::file_name) == by_id.name());
    let mut own_runs = own.iter().flat_map(|turns| &turns.runs).peekable();
    // Who takes all of its turns says that it is that store.
    let is_confirmed = own_runs.peek().is_some() && own_runs.all(|run| taken.contains(run));
    let is_by_id = is_known || is_confirmed;
    waiting = if is_by_id { theirs } else { own.into_iter().chain(theirs).collect() };
    let (place, mut record) = match is_by_id {
        true => (by_id.clone(), known.unwrap_or_else(new)),
        false => (by_address.clone(), new()),
    };
    if !record.addresses.contains(&shown) {
        record.addresses.push(shown.clone());
    }
    let mut folder =
        ServerFolder { place, originals: by_id, id: Some(id), record: Some(record), waiting: None };
    if is_confirmed && !is_known {
        folder.make()?;
    }
    folder.take(&mut waiting, taken)?;
    if is_by_id {
        adopt(&by_address, &folder.place);
    }
    if !waiting.is_empty() {
        info!(%id, "turns wait under another address of the store");
        folder.waiting = WaitingTurns::of(&waiting, shown);
    }
    Ok(folder)
}

/// Moves what is in a folder that was named by the address to the one that is named by the id, unless a turn runs there. What
/// cannot be moved stays for the next time.
fn adopt(by_address: &Place, by_id: &Place) {
    if !by_address.path.is_dir() {
        return;
    }
    // What cannot be looked at may run.
    let Ok(states) = by_address.spools().inspect() else { return };
    if states.iter().any(|state| matches!(state, SpoolState::Running(_) | SpoolState::Leased(_))) {
        return;
    }
    let moved = match by_id.path.exists() {
        false => fs::rename(&by_address.path, &by_id.path),
        true => move_all(&by_address.path, &by_id.path),
    };
    match moved {
        Ok(()) => info!(from = ?by_address.path, to = ?by_id.path, "moved the folder of a store"),
        Err(error) => warn!(%error, from = ?by_address.path, "the folder of a store stays where it is"),
    }
}

/// Moves what is in a folder to another one.
fn move_all(from: &Path, to: &Path) -> io::Result<()> {
    if from.join(SPOOLS).is_dir() {
        move_turns(&from.join(SPOOLS), &to.join(SPOOLS), |_| true)?;
    }
    drop(fs::remove_dir(from.join(SPOOLS)));
    drop(fs::remove_file(from.join(RECORD)));
    if from.join(ORIGINALS).is_dir() && !to.join(ORIGINALS).exists() {
        fs::rename(from.join(ORIGINALS), to.join(ORIGINALS))?;
    }
    // Outputs of both stay where they are: each has its own sessions.
    drop(fs::remove_dir(from));
    Ok(())
}

/// Moves the files of turns, the header of each last: a turn without its header is not looked for. A lease stays, since its holder
/// holds the file.
fn move_turns(from: &Path, to: &Path, is_meant: impl Fn(&str) -> bool) -> io::Result<()> {
    let has = |file: &Path, kind: &str| file.extension() == Some(OsStr::new(kind));
    Folder::open_or_create(to)?;
    let mut files: Vec<PathBuf> =
        fs::read_dir(from)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.sort_by_key(|file| has(file, HEADER));
    for file in files {
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if !LEASES.iter().any(|kind| has(&file, kind)) && is_meant(name) {
            fs::rename(&file, to.join(name))?;
        }
    }
    Ok(())
}

/// Returns the interrupted turns of a store under the other addresses, or names of folders, that it has.
fn turns_of(id: Uuid, besides: &Place, project: &Project) -> Vec<TurnsElsewhere> {
    let id = id.to_string();
    let is_its = |path: &Path, record: Option<&StoreRecord>| {
        path.file_name() != besides.name() && record.is_some_and(|record| record.id == id)
    };
    ended_turns(project, is_its)
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
    record: Option<StoreRecord>,
    pub(crate) runs: Vec<String>,
}

impl TurnsElsewhere {
    /// Describes the store.
    pub(crate) fn store(&self) -> String {
        match &self.record {
            Some(record) => {
                format!("{}, project {}", record.addresses.join(" or "), quoted(&record.project))
            }
            None => "a store on a server".to_owned(),
        }
    }
}

/// Returns the interrupted turns of the project's stores on servers, but for the one that is `open`.
pub(crate) fn turns_elsewhere(project: &Project, open: Option<&ServerFolder>) -> Vec<TurnsElsewhere> {
    ended_turns(project, |path, _| open.is_none_or(|open| open.place.name() != path.file_name()))
}

/// Returns the turns that have ended, of the folders that are meant.
fn ended_turns(
    project: &Project,
    is_meant: impl Fn(&Path, Option<&StoreRecord>) -> bool,
) -> Vec<TurnsElsewhere> {
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
            if !is_folder_name(name) {
                continue;
            }
            let record = StoreRecord::read(&path);
            if !is_meant(&path, record.as_ref()) {
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
            found.push(TurnsElsewhere { folder: path.join(SPOOLS), record, runs });
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
        self.originals.path.join(ORIGINALS)
    }

    /// Returns its name, which no other store has.
    pub(crate) fn name(&self) -> Option<&OsStr> {
        self.place.name()
    }

    /// Returns the id of the store.
    pub(crate) fn store_id(&self) -> Option<Uuid> {
        self.id
    }

    /// Returns the turns that wait for a yes.
    pub(crate) fn waiting(&self) -> Option<&WaitingTurns> {
        self.waiting.as_ref()
    }

    /// Takes over the turns of these runs that wait elsewhere; what is left in `waiting` waits on.
    fn take(&self, waiting: &mut Vec<TurnsElsewhere>, runs: &[String]) -> Result<(), Error> {
        for turns in &mut *waiting {
            let (taken, left) =
                std::mem::take(&mut turns.runs).into_iter().partition(|run| runs.contains(run));
            turns.runs = left;
            let taken: Vec<String> = taken;
            if taken.is_empty() {
                continue;
            }
            self.make()?;
            let is_of = |name: &str, run: &String| {
                name.strip_prefix(run.as_str()).is_some_and(|rest| rest.starts_with('.'))
            };
            move_turns(&turns.folder, &self.spools(), |name| taken.iter().any(|run| is_of(name, run)))
                .map_err(|error| Error::file(&turns.folder, &error))?;
        }
        waiting.retain(|turns| !turns.runs.is_empty());
        Ok(())
    }

    /// Makes the folders, and the one around them as the project's own store would, and records the store in the one of its turns.
    pub(crate) fn make(&self) -> Result<(), Error> {
        self.place.make()?;
        if self.originals != self.place {
            self.originals.make()?;
        }
        self.record.as_ref().map_or(Ok(()), |record| record.write(&self.place.path))
    }
}
