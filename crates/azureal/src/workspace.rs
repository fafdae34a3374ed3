//! An opened project.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use azureal_agents::registry;
use azureal_core::{
    Holder, IndexKind, Redactor, SessionId, SessionRecord, SessionStore, StoreError, Uuid, visible_line,
};
use azureal_engine::{ChangeRecorder, Engine, FullEvents, FullHistory, Recovered, Spools, this_process};
use azureal_files::as_argument;
use azureal_search::FileIndex;
use azureal_store::postgres::{Mask, PostgresAddress, PostgresOptions};
use azureal_store::redis::{RedisAddress, RedisOptions};
use azureal_store::sqlite::{
    COMPANIONS, FileNotice, FileNotices, SqliteOptions, StoreFolders, Work, with_suffix,
};
use azureal_store::{MemoryStore, PostgresStore, RedisStore, ServerStore, SqliteStore};
use futures_executor::block_on;

use crate::config::{self, Config, KeepOriginals, OriginalsChoice};
use crate::environment::Environment;
use crate::error::{Error, quoted, shown};
use crate::git_folder::StoreLayout;
use crate::project::Project;
use crate::recall::RecallService;
use crate::server_folder::{self, ServerFolder, WaitingTurns};
use crate::server_store;

/// The folder of what interfaces keep, in the user's folder for state.
const DESK: &str = "desk";

/// An opened project: its configuration is found and its store open.
pub struct Workspace {
    /// The store.
    pub store: Arc<dyn SessionStore>,
    /// The project.
    pub project: Project,
    environment: Environment,
    location: Location,
    /// The store as the user named it; `None` for the project's own.
    named_store: Option<PathBuf>,
    originals: OriginalsChoice,
    notices: Vec<Notice>,
    /// What happened since it was opened.
    later_notices: Mutex<Vec<Notice>>,
    /// Why the last call of `recover` could not end an undo, said once.
    undo_trouble: Mutex<Option<String>>,
    /// What happens to the file of the store from now on.
    file_notices: FileNotices,
    /// Created with the first turn.
    pub(crate) engine: OnceLock<Engine>,
    /// Created with the engine.
    pub(crate) recorder: OnceLock<Option<ChangeRecorder>>,
    /// Created with the first text to mask.
    redactor: OnceLock<Redactor>,
    /// Known once the store has one.
    store_id: OnceLock<Uuid>,
    /// Each is opened with the first search that needs it.
    pub(crate) search_indexes: Mutex<BTreeMap<IndexKind, Arc<FileIndex>>>,
    /// Answers agents whose server cannot open the store.
    pub(crate) recall_service: Option<RecallService>,
}

/// How a workspace is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The store: a file, `postgres://…`, `redis://…` or `memory:`. `None` or an empty path is the project's own file.
    pub store: Option<PathBuf>,
    /// The answer to [`ProjectNameRequired`](crate::ProjectNameRequired), if it was asked for.
    pub former_project_is_ours: Option<bool>,
    /// Whether calls of a store in a file may block the thread that makes them. For programs that do one thing after the other: it saves a thread.
    /// Otherwise no call blocks an executor.
    pub may_block: bool,
    /// The answer to [`Workspace::waiting_turns`]: the runs whose turns are stored. Who takes all of them confirms that the address is
    /// that of the store.
    pub takes_waiting_turns: Vec<String>,
    /// Called while opening waits for another client of a server, with the reason in one line.
    pub report_wait: Option<fn(&str)>,
}

/// Something that the user should know, though it is no error.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// The project is not where it seems to be.
    Project(String),
    /// A server may lose what it has acknowledged.
    Durability {
        /// Its address.
        address: String,
        /// What it may lose.
        warning: String,
    },
    /// A file with passwords is not used: others can read it.
    OpenPasswordFile(PathBuf),
    /// A file with passwords cannot be read.
    UnreadablePasswordFile(Error),
    /// Something has happened to the file of the store.
    File(FileNotice),
    /// An undo that was interrupted has been finished or taken back.
    Undo(String),
    /// The versions of files that turns change.
    Snapshots(String),
    /// A session that was open in an agent's own interface when azureal died.
    Opened(String),
    /// Interrupted turns wait for a store under another address.
    WaitingTurns(WaitingTurns),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project(warning)
            | Self::Undo(warning)
            | Self::Snapshots(warning)
            | Self::Opened(warning) => f.write_str(warning),
            Self::Durability { address, warning } => {
                write!(f, "{address} {warning}; `loss=accepted` in its URL says that this is known")
            }
            Self::OpenPasswordFile(path) => {
                write!(
                    f,
                    "{} is not used: others can read it (`chmod 600` takes that from them)",
                    shown(path)
                )
            }
            Self::UnreadablePasswordFile(error) => f.write_str(error.message()),
            Self::WaitingTurns(waiting) => {
                write!(f, "{waiting}")?;
                let run = waiting.runs.first().map_or("", String::as_str);
                write!(f, "; `azureal list --recover {}` stores them there", visible_line(run))
            }
            Self::File(notice) => {
                write!(f, "{notice}")?;
                match notice {
                    FileNotice::OtherFile { kept, .. } => {
                        write!(f, "; `azureal import {}` adds its sessions", as_argument(kept))
                    }
                    FileNotice::Damaged { kept, .. } => write!(
                        f,
                        "; `azureal --store {kept} doctor --fix` saves what can be read, and `azureal import {kept}` adds that",
                        kept = as_argument(kept)
                    ),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// The place of a store.
#[derive(Clone)]
enum Location {
    /// In this process, and gone with it.
    Memory,
    /// In this file, with these folders.
    File(PathBuf, StoreFolders),
    /// On a server. What this machine keeps for it is in this folder.
    Server(ServerFolder),
}

impl Workspace {
    /// Finds the project around a directory and opens its store, or the one that is asked for. No file is made by that.
    ///
    /// # Errors
    ///
    /// One with [`ProjectNameRequired`](crate::ProjectNameRequired) as its source is a question for the user: the answer goes into the options.
    pub fn open(directory: &Path, environment: &Environment, options: &Options) -> Result<Self, Error> {
        let project = Project::around(directory, environment)?;
        let mut notices = Vec::new();
        let originals = OriginalsChoice::of_user(environment);
        match open_store(&project, environment, options, originals, &mut notices) {
            Ok(Opened { store, location, file_notices }) => {
                notices.extend(file_notices.take().into_iter().map(Notice::File));
                Ok(Self {
                    store,
                    project,
                    environment: environment.clone(),
                    location,
                    named_store: options.store.clone().filter(|store| !store.as_os_str().is_empty()),
                    originals,
                    notices,
                    later_notices: Mutex::default(),
                    undo_trouble: Mutex::default(),
                    file_notices,
                    engine: OnceLock::new(),
                    recorder: OnceLock::new(),
                    redactor: OnceLock::new(),
                    store_id: OnceLock::new(),
                    search_indexes: Mutex::default(),
                    recall_service: None,
                })
            }
            Err(error) => Err(error.with_notices(notices)),
        }
    }

    /// Returns the interrupted turns that wait for the store under another address, which may be that of a copy. They are not
    /// stored unless the workspace is opened with [`Options::takes_waiting_turns`].
    pub fn waiting_turns(&self) -> Option<&WaitingTurns> {
        self.server_folder()?.waiting()
    }

    pub(crate) fn server_folder(&self) -> Option<&ServerFolder> {
        match &self.location {
            Location::Server(folder) => Some(folder),
            Location::Memory | Location::File(..) => None,
        }
    }

    /// Returns what the user should know of how it was opened.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Returns what the user should know of what has happened since it was opened, or since the last call.
    pub fn take_notices(&self) -> Vec<Notice> {
        let mut notices = std::mem::take(&mut *self.lock_notices());
        notices.extend(self.file_notices.take().into_iter().map(Notice::File));
        notices
    }

    pub(crate) fn add_notice(&self, notice: Notice) {
        self.lock_notices().push(notice);
    }

    fn lock_notices(&self) -> MutexGuard<'_, Vec<Notice>> {
        self.later_notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the environment that it was opened with.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Reads the configuration of the user and the project. Files of a project take effect only if the user
    /// [trusts](crate::config::trust) them.
    pub fn load_config(&self) -> Result<Config, Error> {
        Config::load(&self.project, &self.environment)
    }

    /// Returns the redactor for text that leaves azureal: with the secrets of the environment and the patterns of the user's own
    /// configuration. Every text for other people should go through it, unless the user asks for the raw text.
    pub fn redactor(&self) -> Result<&Redactor, Error> {
        if let Some(redactor) = self.redactor.get() {
            return Ok(redactor);
        }
        let redactor = config::redactor(&self.environment)?;
        Ok(self.redactor.get_or_init(|| redactor))
    }

    /// Stores interrupted turns, as far as that can be done, and returns what was found. Call it before running a turn.
    ///
    /// A store in memory has none. What cannot be stored is kept, and found again by the next call.
    pub async fn recover(&self) -> Result<Vec<Recovered>, Error> {
        if self.is_ephemeral() {
            return Ok(Vec::new());
        }
        if let Some((file, folders)) = self.file() {
            crate::backup::finish_restore(file, folders)?;
        }
        // No reason to leave turns where they are.
        self.tell_undo_trouble(self.recover_undo().await.err());
        if let Err(error) = self.recover_opened().await {
            self.add_notice(Notice::Opened(format!(
                "sessions that are open in an agent's own interface are not looked at: {}",
                error.message()
            )));
        }
        let found = self.engine()?.recover().await;
        found.map_err(|error| Error::new("spool", error.to_string()).with_source(error))
    }

    /// Tells once why an undo that was interrupted cannot end.
    fn tell_undo_trouble(&self, error: Option<Error>) {
        let trouble = error.map(|error| {
            format!(
                "an undo that was interrupted is neither finished nor taken back yet: {}",
                error.message()
            )
        });
        let mut told = self.undo_trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != trouble {
            told.clone_from(&trouble);
            drop(told);
            trouble.into_iter().for_each(|trouble| self.add_notice(Notice::Undo(trouble)));
        }
    }

    /// Returns who runs a turn here: this process, with the name of the user.
    pub fn holder(&self, agent: &str) -> Holder {
        let holder = this_process(agent);
        Holder { user: self.user().unwrap_or(holder.user), ..holder }
    }

    /// Returns the name of the user, if it is known.
    pub(crate) fn user(&self) -> Option<String> {
        let named = ["USER", "LOGNAME"].iter().find_map(|name| self.environment.variable(name));
        named.filter(|name| !name.is_empty()).map(str::to_owned)
    }

    /// Returns an id of this machine and the user's home on it, which says nothing about them.
    pub(crate) fn machine(&self) -> String {
        let holder = this_process("");
        let home = self.environment.home().unwrap_or_default();
        let home = home.as_os_str().as_bytes();
        let text = [holder.host.as_bytes(), holder.user.as_bytes(), home].join(&b'\0');
        let hash = blake3::hash(&text).to_hex();
        hash.get(..16).unwrap_or(&hash).to_owned()
    }

    /// Returns the same workspace with a store that is empty, and gone afterwards.
    #[must_use]
    pub fn ephemeral(&self) -> Self {
        self.with_store(memory(), Location::Memory)
    }

    /// Returns a workspace with the same store, for another thread.
    pub(crate) fn shared(&self) -> Self {
        self.with_store(Arc::clone(&self.store), self.location.clone())
    }

    fn with_store(&self, store: Arc<dyn SessionStore>, location: Location) -> Self {
        Self {
            store,
            project: self.project.clone(),
            environment: self.environment.clone(),
            location,
            named_store: self.named_store.clone(),
            originals: self.originals,
            notices: Vec::new(),
            later_notices: Mutex::default(),
            undo_trouble: Mutex::default(),
            file_notices: FileNotices::default(),
            engine: OnceLock::new(),
            recorder: OnceLock::new(),
            redactor: OnceLock::new(),
            store_id: OnceLock::new(),
            search_indexes: Mutex::default(),
            recall_service: self.recall_service,
        }
    }

    /// Returns the store for a child of azureal's own that runs in another directory; `None` for the project's own.
    pub(crate) fn store_for_child(&self) -> Option<PathBuf> {
        match self.file() {
            Some((file, _)) if self.named_store.is_some() => std::path::absolute(file).ok(),
            _ => self.named_store.clone(),
        }
    }

    /// Returns whether the store is in memory, and gone with this workspace.
    pub fn is_ephemeral(&self) -> bool {
        matches!(self.location, Location::Memory)
    }

    /// Returns the folder that keeps the output of running turns; `None` for a store in memory.
    pub fn spools(&self) -> Option<Spools> {
        let spools = match &self.location {
            Location::Memory => return None,
            Location::Server(folder) => Spools::new(folder.spools()).with_former(folder.former_spools()),
            Location::File(_, folders) => {
                Spools::new(&folders.spools).with_former(folders.former_spools.clone())
            }
        };
        let spools = spools.with_bridges(self.environment.bridges()).with_opened(self.opened_sessions());
        Some(if self.keeps_originals() { spools } else { spools.without_originals() })
    }

    /// Returns whether the output of turns is kept. A store on a server gets it only if the user says so.
    pub fn keeps_originals(&self) -> bool {
        if self.is_on_server() {
            return self.originals.reach_servers();
        }
        self.originals.keep != KeepOriginals::Off
    }

    /// Finds the full form of the events of a session, in the output of its turns.
    pub async fn full_events(&self, session: SessionId) -> Result<FullEvents, Error> {
        Ok(FullEvents::open(Arc::clone(&self.store), registry::all(), session).await?)
    }

    /// Returns the events of a session in their full form, from the output of its turns.
    pub async fn full_history(&self, session: SessionId) -> Result<FullHistory, Error> {
        Ok(FullHistory::open(Arc::clone(&self.store), registry::all(), session).await?)
    }

    /// Compresses the output of turns that were stored since, deletes what is older than the user keeps it, and removes the oldest
    /// versions of files if there are too many. Call it when the user waits for nothing: large outputs take a while. What is
    /// interrupted is done by the next call.
    pub async fn finish_originals(&self) -> Result<(), Error> {
        self.prune_snapshots();
        let Some(originals) = self.store.originals() else { return Ok(()) };
        originals.finish().await?;
        if let KeepOriginals::Days(days) = self.originals.keep {
            originals.expire(days).await?;
        }
        Ok(())
    }

    /// Returns the key under which the store remembers the last session: the worktree, on a server of this user.
    pub fn used_in(&self) -> String {
        let worktree = self.project.worktree();
        match self.location {
            Location::Memory | Location::File(..) => worktree,
            Location::Server(_) => format!("{} {worktree}", self.holder("").user),
        }
    }

    /// Returns a word for the store that no other store of this user has on this machine; `None` for a store in memory. It follows from
    /// the id of the store, which stays when the project is moved; without an id, from its place.
    pub(crate) fn store_identity(&self) -> Option<String> {
        match (self.store_id(), &self.location) {
            (_, Location::Memory) => None,
            (Some(id), _) => Some(id.simple().to_string()),
            (None, _) => self.identity_by_place(),
        }
    }

    fn store_id(&self) -> Option<Uuid> {
        if let Some(id) = self.store_id.get() {
            return Some(*id);
        }
        let id = match &self.location {
            Location::Memory => None,
            Location::Server(folder) => folder.store_id(),
            Location::File(..) => on_own_thread(self.store.store_id()).ok().flatten(),
        }?;
        Some(*self.store_id.get_or_init(|| id))
    }

    fn identity_by_place(&self) -> Option<String> {
        let identity = match &self.location {
            Location::Memory => return None,
            Location::File(file, _) => {
                let folder = folder_of(file);
                let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
                real.join(file.file_name().unwrap_or_default())
            }
            Location::Server(folder) => folder.spools(),
        };
        let hash = blake3::hash(identity.as_os_str().as_bytes()).to_hex();
        Some(hash.get(..32).unwrap_or(&hash).to_owned())
    }

    /// Returns the path of something that the user's folder has for the store. What was put there before the store had an id is moved.
    pub(crate) fn state_path(&self, folder: &str, ending: &str) -> Option<PathBuf> {
        let folder = self.environment.state()?.join(folder);
        let path = folder.join(format!("{}{ending}", self.store_identity()?));
        let before = folder.join(format!("{}{ending}", self.identity_by_place()?));
        if before != path && before.exists() && !path.exists() {
            // If that fails, it is found by the next command.
            drop(fs::rename(&before, &path));
        }
        Some(path)
    }

    /// Returns the folder in which interfaces keep what the user has typed, outside of the project; `None` for a store in memory, or
    /// if the user has no folder for it.
    pub(crate) fn desk_folder(&self) -> Option<PathBuf> {
        self.identity_by_place()?;
        Some(self.environment.state()?.join(DESK))
    }

    /// Returns the file there that is this store's. It may get another name when the store gets its id, so it is to be called with the
    /// folder locked, each time.
    pub(crate) fn desk_file(&self) -> Option<PathBuf> {
        self.state_path(DESK, ".json")
    }

    /// Returns the folder of the search indexes: beside a store in a file, in the user's cache for one on a server. `None` for a store in
    /// memory, for a file that does not exist yet, or if the user has no folder for it.
    pub(crate) fn search_folder(&self) -> Option<PathBuf> {
        match &self.location {
            Location::Memory => None,
            Location::File(file, folders) => file.exists().then(|| folders.search.clone()),
            Location::Server(folder) => Some(self.environment.cache()?.join("search").join(folder.name()?)),
        }
    }

    /// Returns the file of the store and its folders; `None` if it is in memory or on a server.
    pub(crate) fn file(&self) -> Option<(&Path, &StoreFolders)> {
        match &self.location {
            Location::File(file, folders) => Some((file, folders)),
            Location::Memory | Location::Server(_) => None,
        }
    }

    /// Returns the store as a user names it: a file, relative to the project if it is in it.
    pub fn store_text(&self) -> String {
        match &self.location {
            Location::Memory => "memory:".to_owned(),
            Location::File(path, _) => shown(path.strip_prefix(self.project.directory()).unwrap_or(path)),
            Location::Server(_) => "on a server".to_owned(),
        }
    }

    /// Returns the file of the store if it does not exist yet.
    pub(crate) fn missing_file(&self) -> Option<PathBuf> {
        match &self.location {
            Location::File(file, _) if !file.exists() => Some(file.clone()),
            _ => None,
        }
    }

    /// Says whether other machines may have the same store.
    pub fn is_on_server(&self) -> bool {
        matches!(self.location, Location::Server(_))
    }

    /// Makes the folder that turns are about to be kept in. A store in a file has made it with its first session.
    pub fn prepare_spools(&self) -> Result<(), Error> {
        match &self.location {
            Location::Memory | Location::File(..) => Ok(()),
            Location::Server(folder) => folder.make(),
        }
    }
}

/// Opens the store that the options name, or else the project's.
fn open_store(
    project: &Project,
    environment: &Environment,
    options: &Options,
    originals: OriginalsChoice,
    notices: &mut Vec<Notice>,
) -> Result<Opened, Error> {
    let is_ours = options.former_project_is_ours;
    let choice = options.store.as_deref().filter(|choice| !choice.as_os_str().is_empty());
    let opened = match choice.map(StoreChoice::of).transpose()? {
        Some(StoreChoice::Memory) => Opened::new(memory(), Location::Memory),
        Some(StoreChoice::File(path)) => in_file(path, options.may_block, originals.keep)?,
        Some(StoreChoice::Postgres(mut address)) => {
            server_store::complete(&mut *address, project, environment, notices)?;
            let usual = PostgresOptions::default();
            let server_options =
                PostgresOptions { report_wait: options.report_wait.unwrap_or(usual.report_wait), ..usual };
            let mut store = on_own_thread(PostgresStore::open(&address, server_options))?;
            server_store::settle_name(&mut store, &*address, is_ours)?;
            let id = on_own_thread(store.store_id())?;
            let folder =
                server_folder::folder(&*address, id, store.project(), project, &options.takes_waiting_turns)?;
            notices.extend(folder.waiting().cloned().map(Notice::WaitingTurns));
            // What goes to a server is masked. Not before it is needed: a redactor takes milliseconds to build.
            let mask = match originals.reach_servers() {
                true => Some(mask_with(config::redactor(environment)?)),
                false => None,
            };
            let store = store.with_originals(folder.originals(), originals.reach_servers(), mask);
            Opened::new(Arc::new(store), Location::Server(folder))
        }
        Some(StoreChoice::Redis(mut address)) => {
            server_store::complete(&mut *address, project, environment, notices)?;
            let mut store = on_own_thread(RedisStore::open(&address, RedisOptions::default()))?;
            server_store::settle_name(&mut store, &*address, is_ours)?;
            let id = on_own_thread(store.store_id())?;
            let folder =
                server_folder::folder(&*address, id, store.project(), project, &options.takes_waiting_turns)?;
            notices.extend(folder.waiting().cloned().map(Notice::WaitingTurns));
            if let Some(warning) = store.durability().warning().filter(|_| !address.accepts_loss()) {
                let (address, warning) = (address.to_string(), warning.to_string());
                notices.push(Notice::Durability { address, warning });
            }
            let store = store.with_originals(folder.originals(), originals.reach_servers());
            Opened::new(Arc::new(store), Location::Server(folder))
        }
        None => {
            notices.extend(project.warning().map(|warning| Notice::Project(warning.to_owned())));
            in_file(project.store_path(), options.may_block, originals.keep)?
        }
    };
    Ok(opened)
}

/// Masks lines of an output, which are mostly JSON.
fn mask_with(redactor: Redactor) -> Mask {
    Arc::new(move |line| redactor.redact_event_json(line))
}

/// Waits for a future on a thread of its own: the calling thread may be one of an executor, which must not wait.
pub(crate) fn on_own_thread<T: Send>(
    future: impl Future<Output = Result<T, StoreError>> + Send,
) -> Result<T, StoreError> {
    thread::scope(|scope| scope.spawn(|| block_on(future)).join())
        .unwrap_or_else(|_| Err(StoreError::other("the thread that opened the store panicked")))
}

fn memory() -> Arc<dyn SessionStore> {
    Arc::new(MemoryStore::default())
}

/// Returns the folders that belong to a store in a file.
pub fn store_folders(file: &Path) -> StoreFolders {
    StoreLayout::of(file).folders
}

/// A store that is open.
struct Opened {
    store: Arc<dyn SessionStore>,
    location: Location,
    file_notices: FileNotices,
}

impl Opened {
    fn new(store: Arc<dyn SessionStore>, location: Location) -> Self {
        Self { store, location, file_notices: FileNotices::default() }
    }
}

fn in_file(path: PathBuf, may_block: bool, keep: KeepOriginals) -> Result<Opened, Error> {
    // A project of another user has its second name there all the same, which must not be taken for a foreign link.
    let StoreLayout { in_git, folders, .. } = StoreLayout::of(&path);
    let (spools, originals) = (Some(folders.spools.clone()), Some(folders.originals.clone()));
    let former_originals = folders.former_originals.clone();
    let adds_no_originals = keep == KeepOriginals::Off;
    let mut options = SqliteOptions {
        in_git,
        spools,
        originals,
        former_originals,
        adds_no_originals,
        ..SqliteOptions::default()
    };
    if may_block {
        options.work = Work::WhereCalled;
    }
    let store = SqliteStore::open(&path, options)?;
    let file_notices = store.notices();
    Ok(Opened { store: Arc::new(store), location: Location::File(path, folders), file_notices })
}

impl Workspace {
    /// Returns the directory of a session: its worktree, or the worktree of this workspace if that is gone.
    pub fn directory_of(&self, record: &SessionRecord) -> PathBuf {
        let own = self.project.root().join(&record.worktree);
        // Without links and `.`, as the programs of agents see it.
        let found = fs::canonicalize(own).ok().filter(|directory| directory.is_dir());
        found.unwrap_or_else(|| self.project.directory().to_owned())
    }

    /// Says whether a path leads to the store or to a file that belongs to it, however it is spelt.
    pub fn owns(&self, path: &Path) -> bool {
        let Location::File(store, _) = &self.location else {
            return false;
        };
        is_same_file(path, store)
            || COMPANIONS.iter().any(|companion| is_same_file(path, &with_suffix(store, companion)))
    }
}

impl Workspace {
    /// Says whether both are the same store of a server, as far as its address tells.
    pub fn is_same_server_store(&self, other: &Self) -> bool {
        matches!((&self.location, &other.location), (Location::Server(one), Location::Server(other)) if one == other)
    }
}

/// Says whether two paths lead to one file, or would if it were there.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let is_same = |one: &Metadata, other: &Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => is_same(&one, &other),
        // A companion that is not there now may be in a moment.
        (Err(_), Err(_)) if one.file_name() == other.file_name() => {
            let folders = (fs::metadata(folder_of(one)), fs::metadata(folder_of(other)));
            matches!(folders, (Ok(one), Ok(other)) if is_same(&one, &other))
        }
        _ => false,
    }
}

/// Returns the folder of a file.
fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// The store that a user names.
#[derive(Debug)]
pub enum StoreChoice {
    /// `memory:`.
    Memory,
    /// A file.
    File(PathBuf),
    /// A database of PostgreSQL.
    Postgres(Box<PostgresAddress>),
    /// A Redis server or cluster.
    Redis(Box<RedisAddress>),
}

impl StoreChoice {
    /// Reads what the user named: a URL or a path.
    pub fn of(choice: &Path) -> Result<Self, Error> {
        let Some(text) = choice.to_str() else {
            return Ok(Self::File(choice.to_owned()));
        };
        if text == "memory:" {
            return Ok(Self::Memory);
        }
        // Only the scheme is repeated: what follows may hold a password.
        match text.split_once("://") {
            Some(("postgres" | "postgresql", _)) => match text.parse() {
                Ok(address) => Ok(Self::Postgres(Box::new(address))),
                Err(error) => Err(server_store::misread::<PostgresAddress>(&error)),
            },
            Some(("redis" | "rediss", _)) => match text.parse() {
                Ok(address) => Ok(Self::Redis(Box::new(address))),
                Err(error) => Err(server_store::misread::<RedisAddress>(&error)),
            },
            Some((scheme, _)) if !scheme.contains('/') => {
                Err(Error::usage(format!("{} is not a kind of store", quoted(format_args!("{scheme}://"))))
                    .with_hint("a store is a file, `postgres://…`, `redis://…` or `memory:`"))
            }
            None if ["postgres:", "postgresql:", "redis:", "rediss:"]
                .iter()
                .any(|scheme| text.starts_with(scheme)) =>
            {
                let scheme = text.split(':').next().unwrap_or_default();
                Err(Error::usage(format!("the URL of a store begins with `{scheme}://`"))
                    .with_hint(format!("for a file of that name, `./{scheme}:…`")))
            }
            _ => Ok(Self::File(choice.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_file_a_server_or_memory() {
        for (text, expected) in [
            ("memory:", "memory"),
            ("a/b.azs", "file a/b.azs"),
            ("memory", "file memory"),
            ("./x://y", "file ./x://y"),
            ("postgres://u:secret@h/d", "postgres://h:5432/d"),
            ("rediss://:secret@h", "rediss://h:6379/0"),
        ] {
            let choice = match StoreChoice::of(Path::new(text)).unwrap() {
                StoreChoice::Memory => "memory".to_owned(),
                StoreChoice::File(path) => format!("file {}", path.display()),
                StoreChoice::Postgres(address) => address.to_string(),
                StoreChoice::Redis(address) => address.to_string(),
            };
            assert_eq!(choice, expected);
        }
    }

    #[test]
    fn a_password_is_not_repeated() {
        for url in
            ["postgres://u:secret@h:x/d", "redis://:secret@h:x", "mysql://u:secret@h", "postgres:u:secret@h"]
        {
            let failure = StoreChoice::of(Path::new(url)).unwrap_err();
            assert!(!failure.message().contains("secret"), "{}", failure.message());
        }
    }
}
