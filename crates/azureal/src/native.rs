//! The sessions that agents' programs keep themselves: finding and importing them.
//!
//! A session belongs to the project around the directory that it ran in. Its file is only read. A copy of it becomes the
//! original of the imported session, because the programs delete their files after a while.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

pub use azureal_agents::native::NativeSource;
use azureal_agents::native::{self, NativeError, NativeHead, NativeHome, NativeSession};
use azureal_core::{
    ORIGINAL_PIECE, OpenOriginal, Original, OriginalReader, Seq, SessionId, SessionStore, StoreError, Uuid,
    async_trait,
};
use azureal_engine::ImportedRecord;
pub use azureal_exchange::StoredRuns;
use azureal_exchange::{
    ImportError, NativeCandidate, NativeImport, NativeImported, NativeReady, NativeStep, finish_native_run,
    forget_native, has_finished_native_run, recognise_native, was_deleted,
};

use futures_executor::block_on;

use crate::error::{Error, shown};
use crate::project::Project;
use crate::workspace::Workspace;

/// The largest source that is kept as the original of its session: 512 MiB.
const LARGEST_ORIGINAL: u64 = 512 << 20;
/// The number of sessions by which the format of a folder is recognised.
const PROBES: usize = 8;
/// The first bytes of an SQLite database.
const SQLITE: &[u8] = b"SQLite format 3\0";

/// The sources of all agents.
pub fn sources() -> &'static [&'static dyn NativeSource] {
    azureal_exchange::native_sources()
}

/// Native sessions that were found, and what was left out.
#[derive(Default)]
pub struct NativeSessions {
    homes: Vec<OpenHome>,
    found: Vec<FoundSession>,
    left_out: Vec<LeftOutSession>,
    /// The number of sessions of other projects.
    elsewhere: u64,
}

struct OpenHome {
    source: &'static dyn NativeSource,
    home: Box<dyn NativeHome>,
}

/// A native session.
pub struct FoundSession {
    home: usize,
    session: NativeSession,
    head: NativeHead,
    /// The project around its directory; `None` if the directory is not known or gone.
    project: Option<Project>,
    /// Whether the user named its file.
    is_named: bool,
}

/// A native session that cannot be imported.
#[derive(Debug)]
pub struct LeftOutSession {
    /// Its file, or the folder.
    pub path: PathBuf,
    /// The reason, for people.
    pub reason: LeftOutReason,
}

/// The reason why a native session is left out before it is imported.
#[derive(Debug)]
pub enum LeftOutReason {
    /// It cannot be read, for this reason.
    Unreadable(String),
    /// It has no message.
    NoConversation,
    /// It does not say in which directory it ran, and only the sessions of one project are wanted.
    NoDirectory,
}

impl fmt::Display for LeftOutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable(reason) => reason,
            Self::NoConversation => "it has no conversation",
            Self::NoDirectory => "it does not say in which folder it ran",
        })
    }
}

/// A selection of native sessions.
#[derive(Clone, Copy)]
pub enum NativeScope<'a> {
    /// Those of a project.
    Project(&'a Project),
    /// All of them.
    All,
}

impl NativeSessions {
    /// Finds the sessions of agents in their homes. Reads the beginning of each. The ones that were changed last are last.
    pub fn find(
        sources: &[&'static dyn NativeSource],
        workspace: &Workspace,
        scope: NativeScope<'_>,
    ) -> Self {
        let mut sessions = Self::default();
        for source in sources {
            for home in homes_of(*source, workspace) {
                sessions.add_place(*source, &home, workspace);
            }
        }
        if let NativeScope::Project(project) = scope {
            for found in std::mem::take(&mut sessions.found) {
                if found.is_of(project) {
                    sessions.found.push(found);
                } else if found.directory().is_some() {
                    sessions.elsewhere += 1;
                } else {
                    let (path, reason) = (found.session.path, LeftOutReason::NoDirectory);
                    sessions.left_out.push(LeftOutSession { path, reason });
                }
            }
        }
        sessions.found.sort_by_key(|found| found.session.changed);
        sessions
    }

    /// Finds the sessions in a file or folder that the user named; `None` if it is in none of these formats. `source` is the
    /// format, if it is known.
    pub fn in_place(
        place: &Path,
        source: Option<&'static dyn NativeSource>,
        workspace: &Workspace,
    ) -> Result<Option<Self>, Error> {
        let recognise =
            || recognise_native(place, &workspace.environment().temporary()).map_err(ImportError::from);
        let source = match source {
            Some(source) if place.is_dir() => Some(source),
            Some(source) => {
                match recognise()? {
                    Some(found) if found.agent() != source.agent() => {
                        let (path, found_in, asked) = (shown(place), found.program(), source.program());
                        let what = format!("{path} is a session of {found_in}, not of {asked}");
                        let hint = format!("leave `--format` out, or pass `--format {}`", found.agent());
                        return Err(Error::new("not_recognised", what).with_hint(hint));
                    }
                    Some(_) => {}
                    // The beginning does not show a format. The user may know it.
                    None if has_turn(source, place, workspace) => {}
                    None => {
                        return Err(
                            ImportError::UnknownFormat { path: place.to_owned(), source: None }.into()
                        );
                    }
                }
                Some(source)
            }
            None if place.is_dir() => source_of_folder(place, workspace),
            None => recognise()?,
        };
        let Some(source) = source else { return Ok(None) };
        let mut sessions = Self::default();
        sessions.add_place(source, place, workspace);
        // A database may have others that the user does not think of.
        if let ([found], false) = (sessions.found.as_mut_slice(), place.is_dir()) {
            found.is_named = true;
        }
        sessions.found.sort_by_key(|found| found.session.changed);
        Ok(Some(sessions))
    }

    fn add_place(&mut self, source: &'static dyn NativeSource, place: &Path, workspace: &Workspace) {
        self.add_some(source, place, workspace, |_| true);
    }

    /// Adds the sessions of a place that are wanted, by their names and metadata.
    fn add_some(
        &mut self,
        source: &'static dyn NativeSource,
        place: &Path,
        workspace: &Workspace,
        is_wanted: impl Fn(&NativeSession) -> bool,
    ) {
        let left_out = |error: NativeError| match error {
            NativeError::NoConversation { path } => {
                LeftOutSession { path, reason: LeftOutReason::NoConversation }
            }
            error => {
                let reason = LeftOutReason::Unreadable(error.to_string());
                LeftOutSession { path: place.to_owned(), reason }
            }
        };
        let home = match source.open(place, &workspace.environment().temporary()) {
            Ok(home) => home,
            Err(error) => return self.left_out.push(left_out(error)),
        };
        let mut projects: HashMap<PathBuf, Option<Project>> = HashMap::new();
        let wanted = |found: &Result<NativeSession, _>| found.as_ref().map_or(true, &is_wanted);
        for session in home.sessions(None).filter(wanted) {
            let read = session.and_then(|session| Ok((home.head(&session)?, session)));
            let (head, session) = match read {
                Ok(read) => read,
                Err(error) => {
                    self.left_out.push(left_out(error));
                    continue;
                }
            };
            let project = head
                .cwd
                .as_ref()
                .and_then(|cwd| projects.entry(cwd.clone()).or_insert_with(|| project_around(cwd)).clone());
            self.found.push(FoundSession { home: self.homes.len(), session, head, project, is_named: false });
        }
        self.homes.push(OpenHome { source, home });
    }

    /// Returns the sessions.
    pub fn found(&self) -> &[FoundSession] {
        &self.found
    }

    /// Returns what cannot be imported.
    pub fn left_out(&self) -> &[LeftOutSession] {
        &self.left_out
    }

    /// Returns the number of sessions of other projects, which were not asked for.
    pub fn elsewhere(&self) -> u64 {
        self.elsewhere
    }

    /// Adds other sessions.
    pub fn extend(&mut self, other: Self) {
        let before = self.homes.len();
        self.homes.extend(other.homes);
        self.found
            .extend(other.found.into_iter().map(|found| FoundSession { home: found.home + before, ..found }));
        self.left_out.extend(other.left_out);
        self.elsewhere += other.elsewhere;
    }

    /// Returns the agent's source of a session.
    pub fn source_of(&self, found: &FoundSession) -> Option<&'static dyn NativeSource> {
        self.homes.get(found.home).map(|home| home.source)
    }

    /// Finds the session that is in a file of this format.
    pub(crate) fn in_file(file: &Path, source: &'static dyn NativeSource, workspace: &Workspace) -> Self {
        let mut sessions = Self::default();
        sessions.add_place(source, file, workspace);
        sessions
    }

    /// Finds the session of this id in a home.
    pub(crate) fn of_id(
        id: &str,
        source: &'static dyn NativeSource,
        home: &Path,
        workspace: &Workspace,
    ) -> Self {
        let mut sessions = Self::default();
        sessions.add_some(source, home, workspace, |session| session.id == id);
        sessions
    }

    /// Notes that a native session was written from a session of the store: [`NativeImport::adopt`].
    pub(crate) async fn adopt(
        &self,
        found: &FoundSession,
        id: SessionId,
        target: &NativeTarget<'_>,
    ) -> Result<(), Error> {
        Ok(target.import(false).adopt(self.candidate(found)?, id).await?)
    }

    /// Forgets a session that was adopted, and is not there any more.
    pub(crate) async fn forget(source: &dyn NativeSource, id: &str, from: &Workspace) -> Result<(), Error> {
        Ok(forget_native(&*from.store, source.agent(), id).await?)
    }

    /// Returns whether an import would add nothing of a session, as far as that can be told without reading it.
    pub async fn adds_nothing(&self, found: &FoundSession, target: &NativeTarget<'_>) -> Result<bool, Error> {
        let import = NativeImport { again: target.again || found.is_named, ..target.import(false) };
        Ok(import.adds_nothing(self.candidate(found)?).await?)
    }

    /// Imports a session, or what is new of it, at once.
    pub async fn import_now(
        &self,
        found: &FoundSession,
        target: &mut NativeTarget<'_>,
    ) -> Result<NativeImported, Error> {
        let imported = match self.step(found, target, false).await? {
            NativeStep::Done(imported) => imported,
            NativeStep::Ready(_) | NativeStep::Alone => {
                return Err(Error::new("import", "the session was not stored"));
            }
        };
        self.keep(found, &imported, target).await?;
        Ok(imported)
    }

    /// Imports a session, or what is new of it. A new session may be returned to be stored with others:
    /// [`store_all`](Self::store_all).
    pub async fn import(
        &self,
        found: &FoundSession,
        target: &mut NativeTarget<'_>,
    ) -> Result<NativeStep, Error> {
        let step = self.step(found, target, true).await?;
        if let NativeStep::Done(imported) = &step {
            self.keep(found, imported, target).await?;
        }
        Ok(step)
    }

    /// Stores new sessions that were read, in one transaction if the store can.
    pub async fn store_all(
        &self,
        ready: Vec<(&FoundSession, NativeReady)>,
        target: &mut NativeTarget<'_>,
    ) -> Result<Vec<NativeImported>, Error> {
        let (found, ready): (Vec<&FoundSession>, Vec<NativeReady>) = ready.into_iter().unzip();
        let all = match target.import(true).create_all(ready).await? {
            Some(all) => all,
            // Another process imports the same sessions.
            None => {
                let mut all = Vec::new();
                for found in &found {
                    if let NativeStep::Done(imported) = self.step(found, target, false).await? {
                        all.push(imported);
                    }
                }
                all
            }
        };
        for (found, imported) in found.iter().zip(&all) {
            self.keep(found, imported, target).await?;
        }
        Ok(all)
    }

    async fn step(
        &self,
        found: &FoundSession,
        target: &NativeTarget<'_>,
        in_batches: bool,
    ) -> Result<NativeStep, Error> {
        let worktree = found.worktree_in(&target.into.project);
        let mut import = target.import(in_batches);
        import.again |= found.is_named;
        Ok(import.import(self.candidate(found)?, &worktree).await?)
    }

    fn candidate<'a>(&'a self, found: &'a FoundSession) -> Result<NativeCandidate<'a>, Error> {
        let Some(OpenHome { source, home }) = self.homes.get(found.home) else {
            return Err(Error::new("import", "the home of the session is not open"));
        };
        let (agent, home) = (source.agent(), &**home);
        Ok(NativeCandidate { agent, home, session: &found.session, head: &found.head })
    }

    /// Keeps the source of an imported session as its original. The one of an unchanged session is missing if its import was killed.
    async fn keep(
        &self,
        found: &FoundSession,
        imported: &NativeImported,
        target: &mut NativeTarget<'_>,
    ) -> Result<(), Error> {
        let Some(session) = imported.outcome.session() else { return Ok(()) };
        let Some(source) = self.source_of(found).filter(|_| target.keeps_sources()) else { return Ok(()) };
        let range = match &imported.kept_by {
            Some((run, last)) => {
                match target.originals.missing(&target.into.store, session, run, *last).await {
                    Ok(range) => range,
                    // The session is in the store all the same.
                    Err(error) => {
                        not_kept(&target.originals.problems, &found.session.path, &error);
                        None
                    }
                }
            }
            None => imported.range,
        };
        if let Some(range) = range {
            target.originals.write(NewSource {
                store: Arc::clone(&target.into.store),
                session,
                range,
                agent: source.agent(),
                id: found.head.id.clone(),
                path: found.session.path.clone(),
                size: found.session.size,
                // What is missing can be more than what was added last.
                read_before: if imported.kept_by.is_some() { 0 } else { imported.read_before },
            });
        }
        Ok(())
    }
}

/// The store that sessions are imported into.
pub struct NativeTarget<'a> {
    /// The workspace of the store.
    pub into: &'a Workspace,
    /// The runs that the store has.
    pub runs: &'a StoredRuns,
    /// Keeps the sources.
    pub originals: &'a mut OriginalWriter,
    /// Whether nothing is stored.
    pub is_dry: bool,
    /// Whether sessions come back that were deleted from the store. One whose file the user named always does.
    pub again: bool,
    /// Whether no program can be running the last turn of a session, though it has no end.
    pub is_over: bool,
    /// The place in which the store records a session that gets turns as the last one used.
    pub used_in: Option<&'a str>,
}

impl NativeTarget<'_> {
    fn import(&self, in_batches: bool) -> NativeImport<'_> {
        let (store, runs, is_dry, used_in) = (&*self.into.store, self.runs, self.is_dry, self.used_in);
        let now = (!self.is_over).then(SystemTime::now);
        let run = if self.keeps_sources() { self.originals.run.as_str() } else { "" };
        NativeImport { store, runs, is_dry, again: self.again, in_batches, now, used_in, run }
    }

    fn keeps_sources(&self) -> bool {
        self.into.keeps_originals() && !self.is_dry
    }
}

impl FoundSession {
    /// Returns its file or database.
    pub fn path(&self) -> &Path {
        &self.session.path
    }

    /// Returns the agent's own id of the session.
    pub fn id(&self) -> &str {
        &self.head.id
    }

    /// Returns its size in bytes.
    pub fn size(&self) -> u64 {
        self.session.size
    }

    /// Returns the directory that it ran in.
    pub fn directory(&self) -> Option<&Path> {
        self.head.cwd.as_deref()
    }

    /// Returns the project around that directory; `None` if the directory is not known or gone.
    pub fn project(&self) -> Option<&Project> {
        self.project.as_ref()
    }

    /// Returns whether azureal itself may have run it.
    pub fn may_be_ours(&self) -> bool {
        self.head.is_headless && !self.head.is_subagent
    }

    /// Returns whether it is a session of a project. One whose directory is gone is, if the directory was in the project.
    fn is_of(&self, project: &Project) -> bool {
        match &self.project {
            Some(own) => own.root() == project.root(),
            None => self.directory().is_some_and(|cwd| {
                cwd.is_absolute()
                    && [project.root(), project.directory()].iter().any(|root| cwd.starts_with(root))
            }),
        }
    }

    /// Returns the worktree of the session in a project: its own, or its directory if it belongs elsewhere.
    fn worktree_in(&self, project: &Project) -> String {
        match (&self.project, self.directory()) {
            (Some(own), _) if own.root() == project.root() => own.worktree(),
            (_, Some(cwd)) if !self.is_of(project) && cwd.is_absolute() => cwd.to_string_lossy().into_owned(),
            _ => project.worktree(),
        }
    }
}

/// Returns the project around a directory; `None` if that is gone.
fn project_around(cwd: &Path) -> Option<Project> {
    (cwd.is_absolute() && cwd.is_dir()).then(|| Project::of_any_owner(cwd))
}

/// Returns the homes of an agent's program that exist.
fn homes_of(source: &dyn NativeSource, workspace: &Workspace) -> Vec<PathBuf> {
    let variable = |name: &str| workspace.environment().value(name).map(ToOwned::to_owned);
    source.homes(&variable).into_iter().filter(|home| home.exists()).collect()
}

/// Finds the source whose sessions a folder has.
fn source_of_folder(folder: &Path, workspace: &Workspace) -> Option<&'static dyn NativeSource> {
    let is_of = |source: &&&'static dyn NativeSource| {
        let Ok(home) = source.open(folder, &workspace.environment().temporary()) else { return false };
        let is_of_source = |session: NativeSession| {
            recognise_native(&session.path, &workspace.environment().temporary())
                .is_ok_and(|found| found.is_some_and(|found| found.agent() == source.agent()))
        };
        home.sessions(None).take(PROBES).filter_map(Result::ok).any(is_of_source)
    };
    sources().iter().find(is_of).copied()
}

/// Returns whether a file has a turn in a format.
fn has_turn(source: &dyn NativeSource, file: &Path, workspace: &Workspace) -> bool {
    let Ok(home) = source.open(file, &workspace.environment().temporary()) else { return false };
    let has_turn = |session: NativeSession| {
        let Ok(mut turns) = home.turns(&session) else { return false };
        std::iter::from_fn(|| turns.next_turn().ok().flatten()).any(|turn| !turn.events.is_empty())
    };
    home.sessions(None).filter_map(Result::ok).any(has_turn)
}

/// The number of threads that write originals. They wait for the disk most of the time, and it syncs several files in one go.
const WRITERS: usize = 12;

/// Keeps the sources of imported sessions as their originals, on threads of its own.
pub struct OriginalWriter {
    jobs: Option<SyncSender<NewSource>>,
    threads: Vec<JoinHandle<()>>,
    problems: Arc<Mutex<Vec<LeftOutSession>>>,
    /// The name of this run of the import.
    run: String,
    /// Whether earlier runs have kept all their sources.
    finished: HashMap<String, bool>,
    /// The stores, each with a session of this run.
    stores: Vec<(Arc<dyn SessionStore>, SessionId)>,
}

/// A source that becomes an original.
struct NewSource {
    store: Arc<dyn SessionStore>,
    session: SessionId,
    range: (Seq, Seq),
    agent: &'static str,
    id: String,
    path: PathBuf,
    size: u64,
    read_before: u64,
}

impl OriginalWriter {
    /// Prepares the writer. It starts threads when they are needed.
    pub fn new() -> Self {
        let run = Uuid::new_v4().simple().to_string();
        let (threads, finished, stores) = (Vec::new(), HashMap::new(), Vec::new());
        Self { jobs: None, threads, problems: Arc::default(), run, finished, stores }
    }

    /// Returns the events of a session whose source an earlier run was to keep, and has not, because it was killed.
    async fn missing(
        &mut self,
        store: &Arc<dyn SessionStore>,
        session: SessionId,
        run: &str,
        last: Seq,
    ) -> Result<Option<(Seq, Seq)>, Error> {
        let is_finished = match self.finished.get(run) {
            Some(is_finished) => *is_finished,
            None => has_finished_native_run(&**store, run).await?,
        };
        self.finished.insert(run.to_owned(), is_finished);
        let Some(originals) = store.originals().filter(|_| !is_finished) else { return Ok(None) };
        let kept = originals.list(session).await?;
        if kept.iter().any(|original| original.covers(last)) {
            return Ok(None);
        }
        let before = kept.iter().map(|original| original.last).filter(|kept| *kept < last).max();
        Ok(Some((before.unwrap_or(Seq::START).next(), last)))
    }

    fn write(&mut self, source: NewSource) {
        if !self.stores.iter().any(|(store, _)| Arc::ptr_eq(store, &source.store)) {
            self.stores.push((Arc::clone(&source.store), source.session));
        }
        if self.jobs.is_none() {
            let (sender, receiver) = mpsc::sync_channel(WRITERS);
            let receiver = Arc::new(Mutex::new(receiver));
            for _ in 0..WRITERS {
                let (receiver, problems) = (Arc::clone(&receiver), Arc::clone(&self.problems));
                self.threads.push(thread::spawn(move || write_all(&receiver, &problems)));
            }
            self.jobs = Some(sender);
        }
        if let Some(jobs) = &self.jobs {
            // The threads end with the sender, so they receive it.
            jobs.send(source).ok();
        }
    }

    /// Waits until all of them are written, and returns those that could not be, with the reasons. The next import of a session tries
    /// again.
    pub async fn finish(mut self) -> Vec<LeftOutSession> {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has lost its source, which is still where it was.
            thread.join().ok();
        }
        let problems = std::mem::take(&mut *self.problems.lock().unwrap_or_else(PoisonError::into_inner));
        if problems.is_empty() {
            for (store, session) in &self.stores {
                // Without the mark, the next import looks for the originals.
                finish_native_run(&**store, &self.run, *session).await.ok();
            }
        }
        problems
    }
}

impl Default for OriginalWriter {
    fn default() -> Self {
        Self::new()
    }
}

fn write_all(jobs: &Mutex<Receiver<NewSource>>, problems: &Mutex<Vec<LeftOutSession>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(source) = next else { return };
        if let Err(error) = block_on(source.put()) {
            not_kept(problems, &source.path, &error);
        }
    }
}

fn not_kept(problems: &Mutex<Vec<LeftOutSession>>, path: &Path, error: &Error) {
    let reason = LeftOutReason::Unreadable(format!("its file is not kept as its original: {error}"));
    let problem = LeftOutSession { path: path.to_owned(), reason };
    problems.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
}

impl NewSource {
    /// Keeps the source: all of it, or what was added since it was read before.
    async fn put(&self) -> Result<(), Error> {
        let path = &self.path;
        let Some(originals) = self.store.originals() else { return Ok(()) };
        if self.size > LARGEST_ORIGINAL {
            return Err(Error::new("too_large", format!("it has {} MiB", self.size >> 20)));
        }
        let open = || native::open_content(path).map_err(ImportError::from);
        let mut content = open()?;
        let failed = |error: io::Error| Error::file(path, &error);
        // A database has other sessions too.
        if content.fill_buf().map_err(failed)?.starts_with(SQLITE) {
            return Ok(());
        }
        let is_compressed = path.extension().is_some_and(|extension| extension == "zst");
        if self.read_before > 0 && !is_compressed {
            let mut last = Vec::new();
            io::copy(&mut content.by_ref().take(self.read_before - 1), &mut io::sink()).map_err(failed)?;
            content.by_ref().take(1).read_to_end(&mut last).map_err(failed)?;
            if last != b"\n" {
                content = open()?;
            }
        }
        let (agent, bytes) = (self.agent, self.size);
        let record = ImportedRecord { agent: agent.to_owned(), file: path.clone(), bytes };
        let header = record.header().map_err(failed)?;
        let run = blake3::hash(format!("{agent} {} {bytes}", self.id).as_bytes()).to_hex();
        let run = run.get(..32).unwrap_or(&run).to_owned();
        let (first, last) = self.range;
        let original = Original { run, first, last, bytes };
        let output = Box::new(SourceReader { content, path: path.clone() });
        originals.copy(self.session, &original, OpenOriginal { header, output }).await?;
        Ok(())
    }
}

/// Reads a source as an original.
struct SourceReader {
    content: Box<dyn BufRead + Send>,
    path: PathBuf,
}

#[async_trait]
impl OriginalReader for SourceReader {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let mut piece = Vec::new();
        let read = self.content.by_ref().take(ORIGINAL_PIECE as u64).read_to_end(&mut piece);
        read.map_err(|error| StoreError::other(format!("{}: {error}", self.path.display())))?;
        Ok((!piece.is_empty()).then_some(piece))
    }
}

/// The native sessions of one agent's program that belong to a project, as far as they were counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedSessions {
    /// The agent.
    pub agent: &'static str,
    /// The name of the program, for people.
    pub program: &'static str,
    /// The number of sessions. It can be 0 if there may be more.
    pub sessions: u64,
    /// Whether there may be more, because the count was stopped.
    pub is_least: bool,
}

/// The time that a count may take while the user waits for something else.
pub const COUNT_AT_MOST: Duration = Duration::from_millis(15);

/// The number of sessions of a home that are looked at even if the time is over: a list of thousands alone can take longer.
const LOOKED_AT_LEAST: usize = 16;

/// Counts the native sessions of a project, for about so long. Sessions of a program that shows the directory in a name are
/// counted by names alone. Sessions that were deleted from the store do not count.
pub async fn count_sessions(workspace: &Workspace, at_most: Duration) -> Vec<CountedSessions> {
    let end = Instant::now() + at_most;
    let mut counted = Vec::new();
    for source in sources() {
        let mut count = CountedSessions {
            agent: source.agent(),
            program: source.program(),
            sessions: 0,
            is_least: false,
        };
        for home in homes_of(*source, workspace) {
            count_home(*source, &home, workspace, end, &mut count).await;
        }
        if count.sessions > 0 || count.is_least {
            counted.push(count);
        }
    }
    counted
}

async fn count_home(
    source: &dyn NativeSource,
    home: &Path,
    workspace: &Workspace,
    end: Instant,
    count: &mut CountedSessions,
) {
    let Ok(home) = source.open(home, &workspace.environment().temporary()) else { return };
    let project = &workspace.project;
    let mut projects: HashMap<PathBuf, bool> = HashMap::new();
    for (place, session) in home.sessions(Some(project.root())).filter_map(Result::ok).enumerate() {
        if place >= LOOKED_AT_LEAST && Instant::now() >= end {
            count.is_least = true;
            return;
        }
        let Ok(head) = home.head(&session) else { continue };
        let is_of_project = head.cwd.clone().filter(|_| !head.is_subagent).is_some_and(|cwd| {
            *projects.entry(cwd).or_insert_with_key(|cwd| match project_around(cwd) {
                Some(own) => own.root() == project.root(),
                None => cwd.is_absolute() && cwd.starts_with(project.root()),
            })
        });
        // An import would leave out a deleted one.
        if is_of_project
            && !was_deleted(&*workspace.store, source.agent(), &head.id).await.unwrap_or_default()
        {
            count.sessions += 1;
        }
    }
}

/// Says how many sessions were counted and which command imports them; `None` if there are none.
pub fn import_hint(counted: &[CountedSessions]) -> Option<String> {
    let command = match counted {
        [] => return None,
        [only] => only.agent,
        _ => "all",
    };
    let (found, unknown): (Vec<_>, Vec<_>) = counted.iter().partition(|count| count.sessions > 0);
    if found.is_empty() {
        let have = if unknown.len() > 1 { "have" } else { "has" };
        let programs = list(unknown.iter().map(|count| count.program.to_owned()).collect());
        return Some(format!(
            "{programs} {have} many sessions: `azureal import --from {command}` imports those of this project"
        ));
    }
    let one = |count: &&CountedSessions| {
        let least = if count.is_least { "at least " } else { "" };
        format!("{least}{} of {}", azureal_core::counted(count.sessions, "session"), count.program)
    };
    let found = list(found.iter().map(one).collect());
    Some(format!("found {found} for this project: `azureal import --from {command}` imports them"))
}

/// Returns words as a list: `a, b and c`.
fn list(mut words: Vec<String>) -> String {
    let Some(last) = words.pop() else { return String::new() };
    if words.is_empty() { last } else { format!("{} and {last}", words.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_the_command_for_what_was_found() {
        let count =
            |agent, program, sessions, is_least| CountedSessions { agent, program, sessions, is_least };
        let claude = count("claude", "Claude Code", 12, false);
        let codex = count("codex", "Codex", 1, true);
        assert_eq!(import_hint(&[]), None);
        assert_eq!(
            import_hint(std::slice::from_ref(&claude)).unwrap(),
            "found 12 sessions of Claude Code for this project: `azureal import --from claude` imports them"
        );
        assert_eq!(
            import_hint(&[claude.clone(), codex]).unwrap(),
            "found 12 sessions of Claude Code and at least 1 session of Codex for this project: `azureal import --from all` imports them"
        );
        // Those that were looked at before the time was over are of other projects.
        let many = |agent, program| count(agent, program, 0, true);
        assert_eq!(
            import_hint(&[many("codex", "Codex")]).unwrap(),
            "Codex has many sessions: `azureal import --from codex` imports those of this project"
        );
        assert_eq!(
            import_hint(&[many("codex", "Codex"), many("gemini", "Gemini CLI")]).unwrap(),
            "Codex and Gemini CLI have many sessions: `azureal import --from all` imports those of this project"
        );
        assert_eq!(
            import_hint(&[claude, many("codex", "Codex")]).unwrap(),
            "found 12 sessions of Claude Code for this project: `azureal import --from all` imports them"
        );
    }
}
