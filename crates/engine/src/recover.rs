//! Recovery: the next azureal stores turns whose azureal died, exactly once.

use std::collections::HashSet;
use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use azureal_core::agent::{Agent, Ending};
use azureal_core::event::Outcome;
use azureal_core::{SessionId, SessionStore, visible_line};
use azureal_process::{
    FollowError, Marker, MarkersInUse, ProcessIdentity, StopTimeouts, end_marked, find_marked,
};
use tracing::{debug, info, warn};

use crate::bridge;
use crate::changes::{ChangeRecorder, TurnChanges, snapshot_owner};
use crate::engine::EngineOptions;
use crate::find_spools::{FoundSpool, OrphanSpool};
use crate::gather::end_commands;
use crate::header::{SpooledProcess, SpooledTurn};
use crate::ingest::{Destination, IngestError, Ingested, ingest, ingest_unstarted};
use crate::launch::{RUN_MARKER, STDERR_BYTES};
use crate::original_run::clear_own_note;
use crate::own_record::{Noted, recover_noted};
use crate::spool::{SESSION_MARKER, Spool, SpoolError};

/// A spool that was found, and what became of it.
#[derive(Debug)]
pub enum Recovered {
    /// Its agent had ended; the turn is in the store now.
    Stored(SpooledTurn, Ingested),
    /// Its agent is still running in the background.
    Orphan(SpooledTurn, ProcessIdentity),
    /// Another process runs or stores it.
    Running(SpooledTurn, Option<SpooledProcess>),
    /// It cannot be stored now. It is kept.
    Failed(SpooledTurn, IngestError),
    /// Its header cannot be read. It is kept.
    Unreadable(PathBuf),
    /// It is of an agent that this build does not have. It is kept.
    UnknownAgent(SpooledTurn),
    /// An agent wrote a summary for an azureal that has ended. It is stopped.
    SummaryStopped(SpooledTurn),
    /// There is no spool, but a note that there was a run which the agent calls so.
    Noted(SessionId, String, Result<Noted, IngestError>),
}

/// Describes it in one line, without a hint.
impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = |f: &mut fmt::Formatter<'_>, session: &dyn fmt::Display, ingested: &Ingested| {
            let how = match ingested.complete.outcome {
                Some(Outcome::Done) => "complete".to_owned(),
                Some(Outcome::Interrupted) | None => "incomplete".to_owned(),
                Some(outcome) => outcome.to_string(),
            };
            write!(f, "recovered the last turn of {session} ({how})")?;
            ingested.not_recorded.iter().try_for_each(|why| write!(f, "; {why}"))
        };
        if let Self::Noted(session, run, noted) = self {
            let run = visible_line(run);
            return match noted {
                Ok(Noted::Stored(ingested, record)) => {
                    stored(f, session, ingested)?;
                    write!(f, " from {record}")
                }
                Ok(Noted::WasStored) => write!(f, "the last turn of {session} is in the history already"),
                Ok(Noted::Busy) => write!(
                    f,
                    "an agent of {session} is still running, but the file with its output is gone. Its turn `{run}` is \
                     not stored unless you wait until it has ended"
                ),
                Ok(Noted::Running) => write!(f, "a turn of {session} is running"),
                Ok(Noted::Missing) => write!(
                    f,
                    "an interrupted turn of {session} was never stored. Neither its output nor the agent's own \
                     transcript `{run}` is on this machine"
                ),
                Err(error) => write!(
                    f,
                    "the interrupted turn of {session} could not be recovered from the agent's own transcript `{run}`: \
                     {error}"
                ),
            };
        }
        let turn = match self {
            Self::SummaryStopped(turn) => Some(turn),
            other => other.turn(),
        };
        let session = turn.map(|turn| format!("S{}", turn.session)).unwrap_or_default();
        match self {
            Self::Stored(_, ingested) => stored(f, &session, ingested),
            Self::Orphan(turn, _) => {
                write!(f, "{session}: {} is still running in the background", visible_line(&turn.agent))
            }
            Self::Running(turn, _) => write!(f, "{session}: {} is running", visible_line(&turn.agent)),
            Self::Failed(turn, IngestError::Output(FollowError::Unreadable { path, source }))
                if source.kind() == ErrorKind::NotFound =>
            {
                let path = path.to_string_lossy();
                write!(
                    f,
                    "the interrupted turn of {session} is not stored: its output `{}` was deleted. Its prompt is in `{}.turn` \
                     beside it",
                    visible_line(&path),
                    visible_line(&turn.run)
                )
            }
            Self::Failed(_, error) => {
                write!(f, "the interrupted turn of {session} could not be stored and is kept: {error}")
            }
            Self::Unreadable(path) => {
                let path = path.to_string_lossy();
                write!(f, "`{}` does not say which turn it belongs to. It is kept", visible_line(&path))
            }
            Self::UnknownAgent(turn) => write!(
                f,
                "the interrupted turn of {session} is kept: its agent `{}` is unknown to this version of azureal",
                visible_line(&turn.agent)
            ),
            Self::SummaryStopped(turn) => write!(
                f,
                "stopped {}: it wrote a summary of {session} for an azureal that has ended",
                visible_line(&turn.agent)
            ),
            Self::Noted(..) => Ok(()),
        }
    }
}

/// The number of notes of lost runs that one command handles. Each is a search of the agents' folders. A store with
/// more was not written by azureal.
const MOST_NOTES: usize = 200;

/// Checks every spool and stores those whose agent has ended. Then searches the transcripts of noted runs without a
/// spool. Never waits for an agent.
pub async fn recover(engine: &EngineOptions) -> Result<Vec<Recovered>, SpoolError> {
    // Before the spools: a run that begins meanwhile has its spool before its note. An unreadable store has no place
    // for recovered turns, and another call reports it.
    let noted = engine.store.noted_runs().await.unwrap_or_default();
    let mut recovered = recover_spools(engine).await?;
    let turns = recovered.iter().filter_map(Recovered::turn);
    let have_spools: HashSet<SessionId> = turns.filter_map(SpooledTurn::session_id).collect();
    let is_lost = |session: &SessionId| !have_spools.contains(session);
    let ours = noted.iter().filter_map(|(session, note)| Some((*session, engine.run_of(note)?)));
    let mut lost = ours.filter(|(session, _)| is_lost(session)).collect::<Vec<_>>();
    // The newest sessions.
    let lost = lost.split_off(lost.len().saturating_sub(MOST_NOTES));
    if lost.is_empty() {
        return Ok(recovered);
    }
    let in_use = MarkersInUse::of(&[SESSION_MARKER]);
    for (session, run) in lost {
        let noted = recover_noted(engine, session, run, &in_use).await;
        if matches!(noted, Ok(Noted::Missing | Noted::Busy)) && !is_still_noted(engine, session, run).await {
            // Its own azureal has stored it since the notes were read.
            continue;
        }
        let noted = Recovered::Noted(session, run.to_owned(), noted);
        noted.log();
        recovered.push(noted);
    }
    Ok(recovered)
}

/// Returns whether a run is noted still; also where the store does not say.
async fn is_still_noted(engine: &EngineOptions, session: SessionId, run: &str) -> bool {
    let is_it = |(id, note): &(SessionId, String)| *id == session && engine.run_of(note) == Some(run);
    engine.store.noted_runs().await.map_or(true, |noted| noted.iter().any(is_it))
}

/// Does the same with the spools alone. Where there is none, the store is not asked.
async fn recover_spools(engine: &EngineOptions) -> Result<Vec<Recovered>, SpoolError> {
    let lost = engine.spools.stop_lost_summaries()?;
    let mut recovered: Vec<Recovered> = lost.into_iter().map(Recovered::SummaryStopped).collect();
    recovered.iter().for_each(Recovered::log);
    for found in engine.spools.find()? {
        recovered.extend(recover_found(engine, found).await);
    }
    Ok(recovered)
}

/// Stores the turn of a spool that was found, if its agent has ended; `None` if another process has done so since. Takes
/// this one spool, and no longer than for that.
pub(crate) async fn recover_found(engine: &EngineOptions, found: FoundSpool) -> Option<Recovered> {
    let found = match found {
        FoundSpool::Owned(turn, process, _) => Recovered::Running(*turn, process),
        FoundSpool::Unreadable(path) => Recovered::Unreadable(path),
        FoundSpool::Orphan(orphan) => recover_orphan(engine, *orphan).await?,
    };
    if let Recovered::Stored(turn, _) = &found {
        engine.spools.remove_sockets(&turn.run);
    }
    found.log();
    Some(found)
}

impl Recovered {
    fn log(&self) {
        let turn = self.turn().map(|turn| (turn.session, turn.run.as_str(), turn.agent.as_str()));
        match self {
            Self::Stored(_, ingested) => {
                info!(?turn, session = %ingested.session, outcome = ?ingested.complete.outcome, "recovered a turn");
            }
            Self::Orphan(_, process) => info!(?turn, pid = process.pid, "an agent runs without its azureal"),
            Self::Running(..) => debug!(?turn, "another process runs a turn"),
            Self::Failed(_, error) => warn!(?turn, error = ?error.to_string(), "a turn cannot be stored now"),
            Self::Unreadable(path) => warn!(?path, "ignored: a spool whose header cannot be read"),
            Self::UnknownAgent(_) => warn!(?turn, "ignored: a turn of an unknown agent"),
            Self::SummaryStopped(_) => info!(?turn, "stopped an agent that wrote a summary for nobody"),
            Self::Noted(session, run, noted) => {
                info!(%session, run, found = noted.is_ok(), "looked for the transcript of a noted run");
            }
        }
    }

    /// Returns the turn of a spool whose header could be read.
    pub fn turn(&self) -> Option<&SpooledTurn> {
        match self {
            Self::Stored(turn, _)
            | Self::Orphan(turn, _)
            | Self::Running(turn, _)
            | Self::Failed(turn, _)
            | Self::UnknownAgent(turn) => Some(turn),
            // It is no turn.
            Self::SummaryStopped(_) => None,
            Self::Unreadable(_) | Self::Noted(..) => None,
        }
    }
}

async fn recover_orphan(engine: &EngineOptions, orphan: OrphanSpool) -> Option<Recovered> {
    let turn = orphan.turn().clone();
    if orphan.may_be_gathering() {
        // Its azureal died while they ran, so their output is not needed.
        end_commands(&turn);
    }
    if let Some(process) = orphan.living_process() {
        return Some(Recovered::Orphan(turn, process));
    }
    let Some(agent) = engine.agents.iter().find(|agent| agent.name() == turn.agent) else {
        return orphan.is_there().then_some(Recovered::UnknownAgent(turn));
    };
    match orphan.take() {
        Ok(Some(spool)) => Some(store_orphan(engine, *agent, turn, spool).await),
        // Another process has stored it, or does so now.
        Ok(None) => engine.spools.turn_of(&turn.run).map(|(turn, process)| Recovered::Running(turn, process)),
        Err(error) => Some(Recovered::Unreadable(error.path)),
    }
}

async fn store_orphan(
    engine: &EngineOptions,
    agent: &dyn Agent,
    turn: SpooledTurn,
    mut spool: Spool,
) -> Recovered {
    let EngineOptions { store, environment, changes, .. } = engine;
    let store = &**store;
    if agent.is_bridged() && !spool.is_idle() && !bridge::has_ended(spool.output_path()) {
        // Its bridge was killed: no process reads the agent's output or answers it.
        if let Ok(marker) = Marker::new(RUN_MARKER, turn.run.clone()) {
            end_marked(&marker, &StopTimeouts::default());
        }
    }
    let is_unstarted = spool.process().is_none() && is_empty(&spool);
    let (ending, noted) = spool.close(estimated_ending(&spool, is_unstarted));
    if let Err(error) = noted {
        // A cancel that comes from now on may be confirmed, and not heeded.
        warn!(error = ?error.to_string(), "the end of a recovered turn is not noted");
    }
    let ingested = if is_unstarted {
        let outcome = ending.stopped.unwrap_or(Outcome::Interrupted);
        ingest_unstarted(store, agent, spool, outcome, &ending.stderr, &Destination::Recovered).await
    } else {
        let mut not_recorded = None;
        let changes = match changes {
            Some(recorder) => recorded(recorder, store, &spool, &mut not_recorded).await,
            None => None,
        };
        ingest(store, agent, spool, ending, &Destination::Recovered, environment, changes)
            .await
            .map(|ingested| Ingested { not_recorded: not_recorded.map(String::into_boxed_str), ..ingested })
    };
    match ingested {
        Ok(ingested) => {
            if let Some(session) = turn.session_id() {
                // The turn is stored. A note that stays is looked at when the session continues.
                drop(clear_own_note(store, session, &ingested).await);
            }
            Recovered::Stored(turn, ingested)
        }
        Err(error) => Recovered::Failed(turn, error),
    }
}

/// Returns the end of a turn whose azureal died before it could note one.
fn estimated_ending(spool: &Spool, is_unstarted: bool) -> Ending {
    if is_unstarted {
        return Ending {
            stderr: "azureal ended before the agent was started".to_owned(),
            stopped: Some(Outcome::Interrupted),
            ..Ending::default()
        };
    }
    Ending {
        stderr: spool.errors_text(STDERR_BYTES),
        duration: estimated_duration(spool),
        ..Ending::default()
    }
}

/// Returns the changes since a recovered turn began, or why they are not recorded.
async fn recorded(
    recorder: &ChangeRecorder,
    store: &dyn SessionStore,
    spool: &Spool,
    not_recorded: &mut Option<String>,
) -> Option<TurnChanges> {
    let noted = spool.process()?.before.as_ref()?;
    let before = recorder.noted(noted)?;
    let session = store.get(spool.turn().session_id()?).await.ok()?;
    recorder.after(&snapshot_owner(&session), before, &mut |notice| {
        debug!(notice);
        *not_recorded = Some(notice);
    })
}

/// Finds the process of a run, also where azureal died between starting and noting it.
pub(crate) fn living_process(spool: &Spool) -> Option<ProcessIdentity> {
    if let Some(process) = spool.process().map(SpooledProcess::identity)
        && process.is_alive()
    {
        return Some(process);
    }
    // If the wrapper has exited, processes that it started may still write.
    if spool.ended().is_some() || spool.is_idle() {
        return None;
    }
    // Only one that could still write: what an agent has left running for the user is not the agent.
    let marker = Marker::new(RUN_MARKER, spool.turn().run.clone()).ok()?;
    let writes = |process: &ProcessIdentity| process.holds_open(spool.output_path()).unwrap_or(true);
    let found: Vec<ProcessIdentity> = find_marked(&marker).into_iter().filter(writes).collect();
    // The one that started the others: each of those may end long before it does.
    let is_first = |process: &&ProcessIdentity| {
        !found.iter().any(|other| other != *process && other.is_ancestor_of(process.pid) == Some(true))
    };
    found.iter().filter(is_first).find(|process| process.is_alive()).or(found.first()).cloned()
}

/// Returns the time from the start of a turn to the last write of its output; zero if either is unknown.
fn estimated_duration(spool: &Spool) -> Duration {
    let began = spool.turn().started_at.parse::<jiff::Timestamp>().ok().map(SystemTime::from);
    let written = std::fs::symlink_metadata(spool.output_path()).and_then(|found| found.modified()).ok();
    let duration = began.zip(written).and_then(|(began, written)| written.duration_since(began).ok());
    duration.unwrap_or_default()
}

fn is_empty(spool: &Spool) -> bool {
    std::fs::symlink_metadata(spool.output_path()).is_ok_and(|found| found.is_file() && found.len() == 0)
}
