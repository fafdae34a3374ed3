//! A session in the own interface of an agent's program, and back.
//!
//! [`Workspace::open_in_agent`] writes the session under a new id into the home of the program. The front end starts the program. Then
//! [`InterfaceRun::take_back`] imports what was added to that id as turns of the session, and deletes the written session.
//!
//! The ledger of the import makes that exactly once: the written session counts as imported before the program starts, and the transaction
//! that adds the turns also sets the new ledger. If azureal is killed, its note stays ([`azureal_engine::OpenedSessions`]), and
//! [`Workspace::recover`] does the rest when the program has ended.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use azureal_agents::native::{self, NativeConversation, NativeSource, NativeWriter, Placement};
use azureal_core::{SessionId, SessionRecord, Uuid, counted};
use azureal_engine::{
    FoundNote, OpenedNote, OpenedSession, OpenedSessions, RUN_MARKER, SessionLease, clock, without_withheld,
};
use azureal_exchange::{NativeImported, NativeOutcome, TemporaryFolder, native_history, native_mark};
use azureal_files::as_argument;
use azureal_process::{ChildEnvironment, Exit, Marker, ProcessIdentity, Spawn, StopTimeouts, Stream};
use tracing::{info, warn};

use crate::agents::{on_path, own_settings_of};
use crate::error::{Error, shown};
use crate::native::{NativeSessions, NativeTarget, OriginalWriter, StoredRuns};
use crate::sessions::called;
use crate::workspace::{Notice, Workspace};

/// The time limit of a program that imports or deletes a session.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);
/// How much of its output is kept, for an error.
const OUTPUT_BYTES: usize = 4096;

/// A session that is written into the home of an agent's program. The session's lease is held until this is dropped.
pub struct InterfaceRun<'a> {
    workspace: &'a Workspace,
    note: OpenedNote,
    /// What the front end starts.
    pub command: InterfaceCommand,
    _lease: SessionLease,
}

/// The program to start on the terminal of the user.
#[derive(Debug, Clone)]
pub struct InterfaceCommand {
    /// The agent.
    pub agent: &'static str,
    /// The name of the program, for people.
    pub name: &'static str,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The directory to start it in.
    pub directory: PathBuf,
    /// All its variables.
    pub environment: ChildEnvironment,
}

/// What was taken back from the program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TakenBack {
    /// The session that was opened.
    pub session: SessionId,
    /// The number of turns that were added.
    pub turns: u64,
    /// The number of their events.
    pub events: u64,
    /// The session that has them, if it is another one: the user went back in the program, or the session was continued meanwhile.
    pub other: Option<SessionId>,
    /// The file in the home of the program, if it stays.
    pub kept: Option<PathBuf>,
    /// What could not be taken back or deleted, for people.
    pub problems: Vec<String>,
}

/// The result of [`InterfaceRun::take_back`].
pub enum TakeBack<'a> {
    /// What was added is in the store.
    Done(TakenBack),
    /// A turn still runs, in a background process of the program.
    Running(Box<InterfaceRun<'a>>),
}

impl Workspace {
    /// Returns the notes of the store's sessions that are open in an agent's own interface; `None` for a store in memory, or if the
    /// user has no folder for them.
    pub(crate) fn opened_sessions(&self) -> Option<OpenedSessions> {
        let folder = self.environment().state()?.join("opened").join(self.store_identity()?);
        Some(OpenedSessions::new(folder))
    }

    /// Writes a session into the home of an agent's program. `agent` is by default that of the session's last turn, else the configured
    /// one, else the first that is installed. With `keep` the written session stays there. `arguments` are added to those of the program.
    pub async fn open_in_agent(
        &self,
        record: &SessionRecord,
        agent: Option<&str>,
        keep: bool,
        arguments: &[OsString],
    ) -> Result<InterfaceRun<'_>, Error> {
        let config = self.load_config()?;
        let (writer, program) =
            self.choose_interface(agent, [record.counts.agent.as_deref(), config.agent()])?;
        let Some(notes) = self.opened_sessions() else {
            return Err(match self.is_ephemeral() {
                true => Error::usage("a store in memory has no session to open"),
                false => Error::new("no_home", "neither `HOME` nor `XDG_STATE_HOME` names a folder"),
            });
        };
        let lease = self.lease(record.id, writer.agent()).await?;
        // It may have been extended since it was found.
        let record = self.store.get(record.id).await?;
        let (history, _) = native_history(&*self.store, &record, config.compaction_threshold()).await?;
        if history.messages.is_empty() {
            return Err(Error::new("empty", format!("{} has no message yet", called(&record))).with_hint(
                format!("start {} itself, and import its session with `azureal import`", writer.agent()),
            ));
        }
        let id = writer.session_id(Uuid::new_v4());
        // Programs name the folders of their sessions by the directory without links.
        let directory = fs::canonicalize(self.project.directory());
        let directory = &directory.map_err(|error| Error::file(self.project.directory(), &error))?;
        let settings = own_settings_of(writer.agent(), self.environment());
        // Programs delete sessions that were not used for a while.
        let conversation = NativeConversation {
            updated: clock::now(),
            ..history.conversation(&id, directory, settings.as_deref())
        };
        let source = source_of(writer)?;
        let home = self.home_of(source)?;
        let placement = writer.placement(&home, &conversation).map_err(|error| Error::file(&home, &error))?;
        let file = match &placement {
            Placement::File(file) => Some(file.clone()),
            Placement::Import(_) => None,
        };
        let run = Uuid::new_v4().simple().to_string();
        let mut note = notes.begin(OpenedSession {
            run: run.clone(),
            session: record.id.number(),
            session_made: record.created_at.clone(),
            id: id.clone(),
            file,
            program: program.clone(),
            delete: writer.delete(&id),
            directory: directory.to_owned(),
            keep,
            used_in: self.used_in(),
            holder: self.holder(writer.agent()),
        })?;
        let mut command = InterfaceCommand {
            agent: writer.agent(),
            name: source.program(),
            program,
            arguments: writer.resume(&home, &id),
            directory: directory.to_owned(),
            environment: without_withheld(self.environment().for_children()),
        };
        command.arguments.extend_from_slice(arguments);
        command.environment.set(RUN_MARKER, &run);
        if let Some(marker) = self.spools().and_then(|spools| spools.session_marker(record.id)) {
            command.environment.set(marker.key(), marker.value());
        }
        let placed = async {
            match &placement {
                Placement::File(file) => {
                    write_file(file, writer, &conversation)?;
                    add_companions(file, writer, &conversation)?;
                }
                Placement::Import(arguments) => {
                    self.import_into_program(&command, arguments, writer, &conversation)?;
                }
            }
            self.adopt(note.opened(), source, record.id).await
        };
        if let Err(error) = placed.await {
            self.discard(note).await;
            return Err(error);
        }
        info!(session = %record.id, agent = command.agent, "wrote a session into the home of an agent");
        // Until the program is noted, this process counts: the note must not look finished.
        if let Some(process) = ProcessIdentity::of(std::process::id()) {
            note.note_process(process)?;
        }
        Ok(InterfaceRun { workspace: self, note, command, _lease: lease })
    }

    /// Chooses the agent whose interface is started, and finds its program: the one that is named, else the first of the usual ones and of all
    /// that is installed.
    fn choose_interface(
        &self,
        agent: Option<&str>,
        usual: [Option<&str>; 2],
    ) -> Result<(&'static dyn NativeWriter, PathBuf), Error> {
        let program = |name: &str| on_path(name, self.environment().value("PATH"));
        let names = || native::writers().iter().map(|writer| writer.agent());
        if let Some(agent) = agent {
            let Some(writer) = native::writer(agent) else {
                let known: Vec<String> = names().map(|name| format!("`{name}`")).collect();
                let message = format!("no session can be opened in {}", crate::error::quoted(agent));
                return Err(Error::usage(message).with_hint(format!("one of {}", known.join(", "))));
            };
            let program = program(agent).ok_or_else(|| {
                Error::new("not_installed", format!("{agent} is not installed: it is not on the PATH"))
                    .with_hint("install it, or name another with `-a`")
            })?;
            return Ok((writer, program));
        }
        let found = usual
            .into_iter()
            .flatten()
            .chain(names())
            .find_map(|name| Some((native::writer(name)?, program(name)?)));
        found.ok_or_else(|| {
            let names: Vec<&str> = names().collect();
            Error::new("not_installed", format!("none of {} is installed", names.join(", ")))
                .with_hint("install one of them; `azureal run` works without")
        })
    }

    /// Returns the home of an agent's program: the first one that exists, else the first.
    fn home_of(&self, source: &dyn NativeSource) -> Result<PathBuf, Error> {
        let variable = |name: &str| self.environment().value(name).map(ToOwned::to_owned);
        let homes = source.homes(&variable);
        let home = homes.iter().find(|home| home.exists()).or(homes.first()).cloned();
        home.ok_or_else(|| Error::new("no_home", format!("the home of {} is not known", source.program())))
    }

    /// Notes that all turns of the written session are turns of the session that it was written from.
    async fn adopt(
        &self,
        opened: &OpenedSession,
        source: &'static dyn NativeSource,
        session: SessionId,
    ) -> Result<(), Error> {
        let written = self.written(opened, source)?;
        let [found] = written.found() else {
            let reason = written.left_out().first().map_or("it is not found", |left| left.reason.as_str());
            let message =
                format!("the session that was written for {} cannot be read: {reason}", source.program());
            return Err(Error::new("not_written", message));
        };
        let (runs, mut originals) = (StoredRuns::default(), OriginalWriter::new());
        written.adopt(found, session, &self.target(opened, &runs, &mut originals, true)).await
    }

    fn target<'a>(
        &'a self,
        opened: &'a OpenedSession,
        runs: &'a StoredRuns,
        originals: &'a mut OriginalWriter,
        is_over: bool,
    ) -> NativeTarget<'a> {
        let used_in = Some(opened.used_in.as_str());
        NativeTarget { into: self, runs, originals, is_dry: false, again: false, is_over, used_in }
    }

    /// Finds the written session in the home of the program.
    fn written(
        &self,
        opened: &OpenedSession,
        source: &'static dyn NativeSource,
    ) -> Result<NativeSessions, Error> {
        match &opened.file {
            Some(file) => Ok(NativeSessions::in_file(file, source, self)),
            None => Ok(NativeSessions::of_id(&opened.id, source, &self.home_of(source)?, self)),
        }
    }

    /// Has the program import the written session.
    fn import_into_program(
        &self,
        command: &InterfaceCommand,
        import: &[OsString],
        writer: &dyn NativeWriter,
        conversation: &NativeConversation<'_>,
    ) -> Result<(), Error> {
        let temporary = self.environment().temporary();
        let folder = TemporaryFolder::create_in(&temporary);
        let folder = folder.map_err(|error| Error::file(&temporary, &error))?;
        let file = folder.path().join("session.json");
        write_file(&file, writer, conversation)?;
        let mut arguments = import.to_vec();
        arguments.push(file.into());
        run_program(command, arguments).map_err(|reason| {
            Error::new("not_written", format!("{} does not import the session: {reason}", command.name))
        })
    }

    /// Imports what was added, and deletes the written session. `None` if a turn still runs.
    async fn take_back(&self, opened: &OpenedSession) -> Result<Option<TakenBack>, Error> {
        let Some(session) = opened.session_id() else {
            return Err(Error::new("unreadable", "the note of an open session names no session"));
        };
        let (writer, source) = match native::writer(&opened.holder.agent) {
            Some(writer) => (writer, source_of(writer)?),
            None => {
                let agent = crate::error::quoted(&opened.holder.agent);
                return Err(Error::new("unknown_agent", format!("the agent {agent} is unknown")));
            }
        };
        let mut taken =
            TakenBack { session, turns: 0, events: 0, other: None, kept: None, problems: Vec::new() };
        let written = self.written(opened, source)?;
        let mark = self.store.mark(&native_mark(source.agent(), &opened.id)).await?;
        let is_same = match self.store.get(session).await {
            Ok(record) => {
                record.created_at == opened.session_made && mark.is_some_and(|mark| mark.session == session)
            }
            Err(azureal_core::StoreError::NoSuchSession(_)) => false,
            Err(error) => return Err(error.into()),
        };
        let mut keep = opened.keep;
        match written.found() {
            // The user deleted it in the program.
            [] => {
                let left = written.left_out().iter().filter(|left| left.path.exists());
                if let Some(left) = left.into_iter().next() {
                    return Err(Error::new("not_taken_back", left.reason.clone()));
                }
            }
            [..] if !is_same => {
                let kept = opened.file.clone();
                let how = kept.as_deref().map_or(String::new(), |file| {
                    format!(
                        "; `azureal import {}` imports what is in {}",
                        as_argument(file),
                        source.program()
                    )
                });
                taken.problems.push(format!("{session} is not in this store any more{how}"));
                taken.kept = kept;
                return Ok(Some(taken));
            }
            [found, ..] => {
                let runs = StoredRuns::default();
                let mut originals = OriginalWriter::new();
                let is_over = !writer.may_outlive_interface(&self.home_of(source)?);
                let mut target = self.target(opened, &runs, &mut originals, is_over);
                let imported = written.import_now(found, &mut target).await?;
                if imported.is_running {
                    drop(originals.finish());
                    return Ok(None);
                }
                taken.add(&imported);
                let not_kept = originals.finish();
                // Without an original, the written session is all that has the whole output of the turns.
                keep |= !not_kept.is_empty();
                taken.problems.extend(not_kept.into_iter().map(|problem| problem.reason));
            }
        }
        match keep {
            true => taken.kept.clone_from(&opened.file),
            false => {
                taken.problems.extend(self.delete_written(opened, writer));
                NativeSessions::forget(source, &opened.id, self).await?;
            }
        }
        Ok(Some(taken))
    }

    /// Deletes the written session from the home of the program. Returns what stays.
    fn delete_written(&self, opened: &OpenedSession, writer: &dyn NativeWriter) -> Option<String> {
        let mut failed = None;
        if !opened.delete.is_empty() {
            let command = InterfaceCommand {
                agent: writer.agent(),
                name: writer.agent(),
                program: opened.program.clone(),
                arguments: Vec::new(),
                directory: opened.directory.clone(),
                environment: without_withheld(self.environment().for_children()),
            };
            failed = run_program(&command, opened.delete.iter().map(Into::into).collect()).err();
        }
        let Some(file) = &opened.file else {
            return failed.map(|reason| {
                format!("{} keeps a copy of the session as {}: {reason}", writer.agent(), opened.id)
            });
        };
        let removed =
            writer.leftovers(file).iter().try_for_each(|path| remove(path)).and_then(|()| remove(file));
        removed.err().map(|error| format!("{} stays: {error}", shown(file)))
    }

    /// Takes back an opening that did not come about.
    async fn discard(&self, note: OpenedNote) {
        let opened = note.opened();
        if let Some(writer) = native::writer(&opened.holder.agent) {
            if let Some(problem) = self.delete_written(opened, writer) {
                warn!(problem, "a session that was written for an agent stays");
            }
            let forgotten = match source_of(writer) {
                Ok(source) => NativeSessions::forget(source, &opened.id, self).await,
                Err(error) => Err(error),
            };
            if let Err(error) = forgotten {
                warn!(kind = error.kind(), "the ledger of a session that was not opened stays");
            }
        }
        if let Err(error) = note.remove() {
            warn!(?error, "the note of a session that was not opened stays");
        }
    }

    /// Takes back what was added to sessions whose azureal was killed, if the program has ended, and tells the user.
    pub(crate) async fn recover_opened(&self) -> Result<(), Error> {
        let Some(notes) = self.opened_sessions() else { return Ok(()) };
        for note in notes.find()? {
            let FoundNote::Ended(note) = note else { continue };
            let opened = note.opened().clone();
            let Some(session) = opened.session_id() else { continue };
            // A turn or another recovery comes first.
            let lease = match self.store.get(session).await {
                Ok(_) => match self.lease(session, &opened.holder.agent).await {
                    Ok(lease) => Some(lease),
                    Err(_) => continue,
                },
                Err(_) => None,
            };
            if note.process().is_none() {
                // The program was never started.
                self.discard(*note).await;
                continue;
            }
            let notice = match self.take_back(&opened).await {
                Ok(None) => continue,
                Ok(Some(taken)) => {
                    note.remove()?;
                    taken.recovered(&opened.holder.agent)
                }
                Err(error) => Some(format!(
                    "{session} was open in {}, and what was added there is not taken back yet: {}",
                    opened.holder.agent,
                    error.message()
                )),
            };
            drop(lease);
            notice.into_iter().for_each(|notice| self.add_notice(Notice::Opened(notice)));
        }
        Ok(())
    }

    /// Returns the sessions that are open in an agent's own interface, each with its agent, process and time.
    pub(crate) fn opened_now(&self) -> Vec<(OpenedSession, Option<ProcessIdentity>)> {
        let found = self.opened_sessions().and_then(|notes| notes.find().ok()).unwrap_or_default();
        let open = found.into_iter().filter_map(|note| match note {
            FoundNote::Open(opened, process) => Some((*opened, process)),
            // Recovery has looked at it and could not finish it.
            FoundNote::Ended(_) => None,
        });
        open.collect()
    }
}

impl<'a> InterfaceRun<'a> {
    /// Notes the process of the program, which was started.
    pub fn started(&mut self, pid: u32) -> Result<(), Error> {
        match ProcessIdentity::of(pid) {
            Some(process) => Ok(self.note.note_process(process)?),
            // It has ended already.
            None => Ok(()),
        }
    }

    /// Takes back what was added. The program has ended. If a turn still runs in a background process of it, call it again later.
    pub async fn take_back(self) -> Result<TakeBack<'a>, Error> {
        let taken = self.workspace.take_back(self.note.opened()).await;
        let taken = taken.map_err(|error: Error| {
            error.with_hint("the next azureal command tries again; nothing is lost")
        })?;
        let Some(mut taken) = taken else { return Ok(TakeBack::Running(Box::new(self))) };
        if let Err(error) = self.note.remove() {
            taken.problems.push(format!("the note of the open session stays: {error}"));
        }
        Ok(TakeBack::Done(taken))
    }

    /// Takes back the opening: the program did not start.
    pub async fn discard(self) {
        self.workspace.discard(self.note).await;
    }
}

impl TakenBack {
    fn add(&mut self, imported: &NativeImported) {
        (self.turns, self.events) = imported.outcome.added();
        self.other = match imported.outcome {
            NativeOutcome::Forked { id, .. } | NativeOutcome::New { id, .. } => id,
            _ => None,
        };
        self.problems.extend(imported.messages());
    }

    /// Says what was taken back, for people. `name` is that of the session.
    pub fn message(&self, name: &str, program: &str) -> String {
        let turns = counted(self.turns, "turn");
        match self.other {
            _ if self.turns == 0 => format!("{name}: no turn was added in {program}"),
            // The program may have told the user how to resume it there.
            None if self.kept.is_none() => {
                format!("{name}: {turns} added in {program}, whose copy is deleted")
            }
            None => format!("{name}: {turns} added in {program}"),
            Some(other) => format!(
                "{name}: {turns} of {program} are in {other}, as they do not follow the last turn of {name}"
            ),
        }
    }

    /// Says what recovery has taken back; `None` if there is nothing to say.
    fn recovered(&self, program: &str) -> Option<String> {
        let mut parts = Vec::new();
        if self.turns > 0 {
            parts.push(format!("recovered {}", self.message(&self.session.to_string(), program)));
        }
        parts.extend(self.problems.iter().cloned());
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

fn source_of(writer: &dyn NativeWriter) -> Result<&'static dyn NativeSource, Error> {
    let source = crate::native::sources().iter().copied().find(|source| source.agent() == writer.agent());
    source
        .ok_or_else(|| Error::new("unknown_agent", format!("sessions of {} cannot be read", writer.agent())))
}

/// Writes a session to a new file that only the user can read.
fn write_file(
    file: &Path,
    writer: &dyn NativeWriter,
    conversation: &NativeConversation<'_>,
) -> Result<(), Error> {
    let write = || -> io::Result<()> {
        if let Some(folder) = file.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let created = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
        let mut out = BufWriter::new(created);
        writer.write(conversation, &mut out)?;
        out.flush()?;
        out.get_ref().sync_all()
    };
    write().map_err(|error| Error::file(file, &error))
}

/// Adds the files that the program needs beside that of a session, unless they exist.
fn add_companions(
    file: &Path,
    writer: &dyn NativeWriter,
    conversation: &NativeConversation<'_>,
) -> Result<(), Error> {
    for (path, content) in writer.companions(file, conversation) {
        match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(mut created) => created.write_all(&content).map_err(|error| Error::file(&path, &error))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::file(&path, &error)),
        }
    }
    Ok(())
}

/// Removes a file, or a folder with all that is in it, for good: without its ledger, a session that comes back after a loss of power would
/// be imported again. What is not there is as good as removed.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    let synced = removed.and_then(|()| fs::File::open(path.parent().unwrap_or(path))?.sync_all());
    synced.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Runs the program with other arguments and without a terminal. Returns why it failed.
fn run_program(command: &InterfaceCommand, arguments: Vec<OsString>) -> Result<(), String> {
    let marker =
        Marker::new(RUN_MARKER, Uuid::new_v4().simple().to_string()).map_err(|error| error.to_string())?;
    let InterfaceCommand { program, directory, environment, .. } = command;
    let mut spawn = Spawn::new(program, directory, environment.clone(), Stream::Keep(OUTPUT_BYTES), marker);
    spawn.args = arguments;
    let child = spawn.start().map_err(|error| error.to_string())?;
    let exit = child.wait_timeout(PROGRAM_LIMIT);
    child.stop(&StopTimeouts::default());
    let output = || {
        let (printed, errors) = (child.stdout().to_string(), child.stderr().to_string());
        let last = errors.lines().chain(printed.lines()).rfind(|line| !line.trim().is_empty());
        last.map_or(String::new(), |line| format!(" ({})", azureal_core::visible_line(line.trim())))
    };
    match exit {
        Some(Exit::Code(0)) => Ok(()),
        Some(Exit::Code(code)) => Err(format!("exit code {code}{}", output())),
        Some(_) => Err(format!("it was killed{}", output())),
        None => Err(format!("it took more than {} s", PROGRAM_LIMIT.as_secs())),
    }
}
