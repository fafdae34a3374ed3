//! A session in the own interface of an agent's program, and back.
//!
//! [`Workspace::open_in_agent`] writes the session under a new id into the home of the program. The front end starts the program. Then
//! [`InterfaceRun::take_back`] imports what was added to that id as turns of the session, and deletes the written session.
//!
//! The ledger of the import makes that exactly once: the written session counts as imported before the program starts, and the transaction
//! that adds the turns also sets the new ledger. If azureal is killed, its note stays ([`azureal_engine::OpenedSessions`]), and
//! [`Workspace::recover`] does the rest when the program has ended.

mod taken;
mod written;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use azureal_agents::native::{self, NativeConversation, NativeSource, NativeWriter, Placement};
use azureal_core::{SessionId, SessionRecord, Uuid};
use azureal_engine::{
    FoundNote, OpenedNote, OpenedSession, OpenedSessions, RUN_MARKER, SessionLease, clock, without_withheld,
};
use azureal_exchange::native_history;
use azureal_process::{ChildEnvironment, ProcessIdentity};
use tracing::info;

use crate::agents::{on_path, own_settings_of};
use crate::error::Error;
use crate::native::{NativeSessions, NativeTarget, OriginalWriter, StoredRuns};
use crate::sessions::called;
use crate::workspace::Workspace;

pub use taken::{KeptSession, TakenBack};

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

/// The result of [`InterfaceRun::take_back`].
pub enum TakeBack<'a> {
    /// What was added is in the store.
    Done(TakenBack),
    /// A process of the program still runs.
    Running(Box<InterfaceRun<'a>>),
}

impl Workspace {
    /// Returns the notes of the store's sessions that are open in an agent's own interface; `None` for a store in memory, or if the
    /// user has no folder for them.
    pub(crate) fn opened_sessions(&self) -> Option<OpenedSessions> {
        Some(OpenedSessions::new(self.state_path("opened", "")?))
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
        self.check_stored(record.id)?;
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
        let this_process = ProcessIdentity::of(std::process::id());
        let mut note = notes.begin(OpenedSession {
            run: run.clone(),
            group: this_process.as_ref().and_then(ProcessIdentity::group),
            session: record.id.number(),
            session_made: record.created_at.clone(),
            events: record.counts.events,
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
            written::place(&placement, &command, writer, &conversation, self)?;
            self.adopt(note.opened(), source, record.id).await
        };
        if let Err(error) = placed.await {
            self.discard(note).await;
            return Err(error);
        }
        info!(session = %record.id, agent = command.agent, "wrote a session into the home of an agent");
        // Until the program is noted, this process counts: the note must not look finished.
        if let Some(process) = this_process {
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
            let left_out = written.left_out().first();
            let reason = left_out.map_or("it is not found".to_owned(), |left| left.reason.to_string());
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

    /// Takes back what was added, when the process that was [`started`](Self::started) has ended. It may be a launcher that ended before the
    /// program, or the program may run a turn in a background process: then call this again later.
    pub async fn take_back(self) -> Result<TakeBack<'a>, Error> {
        if self.note.is_running() {
            return Ok(TakeBack::Running(Box::new(self)));
        }
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

fn source_of(writer: &dyn NativeWriter) -> Result<&'static dyn NativeSource, Error> {
    let source = crate::native::sources().iter().copied().find(|source| source.agent() == writer.agent());
    source
        .ok_or_else(|| Error::new("unknown_agent", format!("sessions of {} cannot be read", writer.agent())))
}
