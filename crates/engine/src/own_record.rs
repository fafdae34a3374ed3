//! The last resort: a turn whose spool is gone is recovered from the agent's own transcript.
//!
//! While a run is not in the store, its session has a note with the agent's own name of the run. If a note has no
//! spool, the output is lost, but the agent's program may have a transcript. Events of that turn that are in the
//! store already are not stored again.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use azureal_core::agent::{Agent, AgentOutput, Ending, OwnRecord};
use azureal_core::event::{Complete, Init, Usage};
use azureal_core::{
    Event, Holder, LeaseId, NewTurn, PAGE_EVENTS, Page, Seq, SessionId, SessionStore, StoreError,
    compact_event, strip_context,
};
use azureal_process::{ChildEnvironment, MarkersInUse};
use rustix::fs::OFlags;

use crate::engine::EngineOptions;
use crate::ingest::{IngestError, Ingested, LARGEST_TURN, cost};
use crate::lease::{Leased, this_process};
use crate::session_lease::{InStore, LeaseError, take};
use crate::start::GO_ON;
use crate::watch::{OVERSIZED, Watcher};

/// The number of events that are searched backwards for the beginning of a partly stored turn.
const FAR_ENOUGH: usize = 5_000;

/// The result of recovering a noted run without a spool.
#[derive(Debug)]
pub enum Noted {
    /// Its turn is in the store now, from the record named so.
    Stored(Box<Ingested>, &'static str),
    /// All of it was in the store already.
    WasStored,
    /// Its agent is still running, or another process has just begun another turn.
    Busy,
    /// Another process holds the lease of the session, and stores the turn itself.
    Running,
    /// There is no record of it.
    Missing,
}

/// Returns the folder of an agent's transcripts: from its variable, or below the home directory.
fn records_folder(record: &OwnRecord, environment: &ChildEnvironment) -> Option<PathBuf> {
    let folder = |name: &str| environment.get(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let own = folder(record.variable);
    let base = own.or_else(|| Some(folder("HOME").filter(|home| home.is_absolute())?.join(record.home)))?;
    Some(base.join(record.folder))
}

/// The most that is read of a record to find its last count of tokens, in bytes: the longest last message, and some more.
const LAST_PART: u64 = 256 << 10;

/// What an agent's own record has of a run, and its output may not.
#[derive(Default)]
pub(crate) struct RunFacts {
    pub(crate) usage: Option<Usage>,
    pub(crate) model: Option<String>,
}

/// Returns what the agent's own record has of a run, from its beginning and its end, if the record's place is known. Costs the same
/// however long the record is, and however many there are of other days.
pub(crate) fn run_facts(agent: &dyn Agent, environment: &ChildEnvironment, run: &str) -> Option<RunFacts> {
    let record = agent.own_record()?;
    let records = records_folder(&record, environment)?;
    let days = (record.folders_of)(run).into_iter().map(|folder| records.join(folder));
    let path = find_in(days, &record, run)?;
    let mut file =
        File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path).ok()?;
    let found = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let mut part = |start: u64| {
        file.seek(SeekFrom::Start(start)).ok()?;
        let mut part = Vec::new();
        Read::by_ref(&mut file).take(LAST_PART).read_to_end(&mut part).ok()?;
        Some(part)
    };
    let end_at = found.len().saturating_sub(LAST_PART);
    let end = part(end_at)?;
    let model = (record.model)(&end);
    let model = if model.is_none() && end_at > 0 { (record.model)(&part(0)?) } else { model };
    Some(RunFacts { usage: (record.last_usage)(&end), model })
}

/// Returns whether a note is that of a run, whichever machine noted it.
pub(crate) fn is_note_of(note: &str, run: &str) -> bool {
    note.strip_prefix(run).is_some_and(|machine| machine.is_empty() || machine.starts_with(' '))
}

/// Stores the turn of a noted run from the agent's own record.
pub(crate) async fn recover_noted(
    engine: &EngineOptions,
    session: SessionId,
    run: &str,
    in_use: &MarkersInUse,
) -> Result<Noted, IngestError> {
    let noted = look_for_noted(engine, session, run, in_use).await?;
    if !matches!(noted, Noted::Busy | Noted::Missing) {
        return Ok(noted);
    }
    // A turn that another process runs is no loss. Its spool may be in a folder that this one does not know.
    let Some(leases) = engine.store.leases() else { return Ok(noted) };
    let own = this_process("recovery");
    let is_ours = |holder: &Holder| (holder.pid, &holder.host) == (own.pid, &own.host);
    let held = leases.held().await?;
    let is_held = held.iter().any(|(id, holder)| *id == session && !is_ours(holder));
    Ok(if is_held { Noted::Running } else { noted })
}

async fn look_for_noted(
    engine: &EngineOptions,
    session: SessionId,
    run: &str,
    in_use: &MarkersInUse,
) -> Result<Noted, IngestError> {
    let EngineOptions { store, spools, agents, environment, .. } = engine;
    let store = &**store;
    // Without a folder no turn ran here: the run is that of another worktree.
    let markers = spools.session_markers(session);
    if markers.is_empty() {
        return Ok(Noted::Missing);
    }
    if markers.iter().any(|marker| in_use.contains(marker)) {
        return Ok(Noted::Busy);
    }
    // First, and without a lock: where a store is shared, most runs are another machine's, and so are their records.
    let Some((record, path)) = find_record(agents, environment, run) else { return Ok(Noted::Missing) };
    let holder = this_process("recovery");
    // Held until it is stored, so that no other process runs a turn or recovers this one meanwhile.
    let Leased::Ours(mut lock) = spools.lease(session, &holder)? else { return Ok(Noted::Busy) };
    let still_noted =
        store.noted_runs().await?.iter().any(|(id, note)| *id == session && engine.run_of(note) == Some(run));
    if !still_noted {
        return Ok(Noted::Busy);
    }
    let lease = match take(store, &mut lock, session, &holder).await? {
        InStore::Ours(lease) => Some(lease),
        InStore::NotNeeded => None,
        InStore::Theirs(_) => return Ok(Noted::Running),
    };
    let noted = store_record(store, session, run, &record, &path, lease.clone()).await;
    if let (Some(lease), Some(leases)) = (lease, store.leases()) {
        // It ends by itself if this fails.
        if leases.release(session, &lease).await.is_ok() {
            lock.forget_store_lease();
        }
    }
    noted
}

/// Stores the missing part of the turn in a transcript. The lease is not renewed meanwhile: if this takes that long,
/// the next recovery does it.
pub(crate) async fn store_record(
    store: &dyn SessionStore,
    session: SessionId,
    run: &str,
    record: &OwnRecord,
    path: &Path,
    lease: Option<LeaseId>,
) -> Result<Noted, IngestError> {
    let events = read(record, path)?;
    let (mut events, last) = without_stored(store, session, run, events).await?;
    keep_requested_model(store, session, &mut events).await?;
    if events.is_empty() {
        store.note_run(session, None).await?;
        return Ok(Noted::WasStored);
    }
    let complete = events.iter().rev().find_map(complete_of).unwrap_or_default();
    let usage = complete.usage.unwrap_or_default();
    let turn = NewTurn {
        tokens: usage.into(),
        after: Some(last),
        lease,
        ends_run: true,
        ..NewTurn::verbatim(events)
    };
    let appended = Some(store.append(session, turn).await?);
    Ok(Noted::Stored(Box::new(Ingested { appended, ..Ingested::new(session, complete) }), record.name))
}

/// Fills in the requested model, which a transcript does not hold: it was the session's, unless the agent was another.
async fn keep_requested_model(
    store: &dyn SessionStore,
    session: SessionId,
    events: &mut [Event],
) -> Result<(), StoreError> {
    let counts = store.get(session).await?.counts;
    for event in events {
        if let Event::Init(init) = event
            && init.agent == counts.agent
        {
            init.requested_model.clone_from(&counts.requested_model);
        }
    }
    Ok(())
}

impl From<LeaseError> for IngestError {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::Spool(error) => error.into(),
            LeaseError::Store(error) => error.into(),
        }
    }
}

fn complete_of(event: &Event) -> Option<Complete> {
    match event {
        Event::Complete(complete) => Some(complete.clone()),
        _ => None,
    }
}

/// Finds the record of a run, whichever agent's it is.
pub(crate) fn find_record(
    agents: &[&dyn Agent],
    environment: &ChildEnvironment,
    run: &str,
) -> Option<(OwnRecord, PathBuf)> {
    let records = agents.iter().filter_map(|agent| agent.own_record());
    records.filter_map(|record| Some((record, find(&record, environment, run)?))).next()
}

/// Finds the file of a run.
pub(crate) fn find(record: &OwnRecord, environment: &ChildEnvironment, run: &str) -> Option<PathBuf> {
    let mut folders = vec![records_folder(record, environment)?];
    for _ in 0..record.depth {
        folders = folders.iter().flat_map(|folder| entries(folder)).filter(|path| path.is_dir()).collect();
    }
    find_in(folders, record, run)
}

fn find_in(folders: impl IntoIterator<Item = PathBuf>, record: &OwnRecord, run: &str) -> Option<PathBuf> {
    let is_of = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| (record.is_of)(name, run)) && path.is_file()
    };
    folders.into_iter().flat_map(|folder| entries(&folder)).find(is_of)
}

/// Returns the entries of a folder; empty if it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// Reads the first turn of a record. Later ones belong to a user who continued in the agent's own program.
fn read(record: &OwnRecord, path: &Path) -> Result<Vec<Event>, IngestError> {
    let mut watcher = Watcher::with_parser(path, (record.reader)(), None)?;
    let event = |output| match output {
        AgentOutput::Event(event) => Some(event),
        _ => None,
    };
    let mut events: Vec<Event> = Vec::new();
    let mut size = 0;
    'lines: while let Some(outputs) = watcher.next_outputs()? {
        for event in outputs.into_iter().filter_map(event) {
            let event = as_kept(event);
            size += cost(&event);
            if size > LARGEST_TURN {
                let why = "the record is longer than a turn can hold: the rest of it is not stored";
                events.push(Event::error(OVERSIZED, why));
                break 'lines;
            }
            events.push(event);
            // A second turn follows.
            if matches!(events.last(), Some(Event::Complete(_))) {
                return Ok(events);
            }
        }
    }
    let fragment = watcher.read_to_end(|_| {})?;
    let ending = Ending { fragment, ..Ending::default() };
    events.extend(watcher.end(&ending).into_iter().filter_map(event).map(as_kept));
    Ok(events)
}

/// Returns an event as it is stored: the prompt as it was typed, results cut down.
fn as_kept(event: Event) -> Event {
    match event {
        Event::UserMessage(message) => match strip_context(&message.content) {
            GO_ON => Event::Compacted,
            prompt => Event::user(prompt),
        },
        other => compact_event(other),
    }
}

/// Removes the events of the same turn that the store has, and returns the event after which the rest belongs.
async fn without_stored(
    store: &dyn SessionStore,
    session: SessionId,
    run: &str,
    events: Vec<Event>,
) -> Result<(Vec<Event>, Seq), StoreError> {
    let (stored, last) = last_turns(store, session).await?;
    if stored.iter().any(|turn| is_whole(turn, &events)) {
        return Ok((Vec::new(), last));
    }
    let mut there: HashMap<String, usize> = HashMap::new();
    for turn in stored.iter().filter(|turn| is_same(turn, run, &events)) {
        for event in turn {
            *there.entry(key(event)).or_default() += 1;
        }
    }
    let is_new = |event: &Event| match there.get_mut(&key(event)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    Ok((events.into_iter().filter(is_new).collect(), last))
}

/// Returns the last events of a session turn by turn, and the place of the last.
async fn last_turns(
    store: &dyn SessionStore,
    session: SessionId,
) -> Result<(Vec<Vec<Event>>, Seq), StoreError> {
    let mut events = Vec::new();
    let (mut before, mut last) = (Seq::END, Seq::START);
    while events.len() < FAR_ENOUGH {
        let page = store.read(session, Page::Before(before, PAGE_EVENTS)).await?;
        let (Some(first), Some(end)) = (page.first(), page.last()) else { break };
        last = last.max(end.seq);
        before = first.seq;
        events.extend(page.iter().rev().filter_map(|stored| stored.event().ok()));
    }
    let mut turns = Vec::new();
    let mut turn = Vec::new();
    for event in events {
        let is_first = matches!(event, Event::UserMessage(_));
        turn.push(event);
        if is_first {
            turns.push(std::mem::take(&mut turn));
        }
    }
    turns.push(turn);
    Ok((turns, last))
}

/// Returns whether one of the last turns of a session names this run.
pub(crate) async fn is_stored(
    store: &dyn SessionStore,
    session: SessionId,
    run: &str,
) -> Result<bool, StoreError> {
    let (turns, _) = last_turns(store, session).await?;
    Ok(turns.iter().flatten().any(|event| is_named(event, run)))
}

fn is_named(event: &Event, run: &str) -> bool {
    matches!(event, Event::Init(Init { agent_session: Some(name), .. }) if name == run)
}

/// Returns whether a stored turn is that of the run: it has the agent's name of the run, or a call of it. If the
/// program that stored it records neither, it has the same prompt and no end.
fn is_same(turn: &[Event], run: &str, events: &[Event]) -> bool {
    let calls = |event: &Event| match event {
        Event::ToolCall(call) => Some(call.tool_use_id.clone()),
        _ => None,
    };
    let names_another = |event: &Event| matches!(event, Event::Init(Init { agent_session: Some(_), .. }));
    let shares_a_call = || {
        let ids: Vec<String> = events.iter().filter_map(calls).collect();
        turn.iter().filter_map(calls).any(|id| ids.contains(&id))
    };
    let is_open_and_alike = || {
        let prompt = events.first();
        prompt.is_some_and(|prompt| turn.contains(prompt))
            && !turn.iter().any(|event| complete_of(event).is_some() || names_another(event))
    };
    turn.iter().any(|event| is_named(event, run)) || shares_a_call() || is_open_and_alike()
}

/// Returns whether a stored turn that names no run is all of these events: it has an end, the same prompt, and all texts.
fn is_whole(turn: &[Event], events: &[Event]) -> bool {
    let mut texts = events.iter().filter(|event| matches!(event, Event::AssistantText(_))).peekable();
    let names_a_run = |event: &Event| matches!(event, Event::Init(Init { agent_session: Some(_), .. }));
    texts.peek().is_some()
        && events.first().is_some_and(|prompt| turn.contains(prompt))
        && texts.all(|text| turn.contains(text))
        && turn.iter().any(|event| complete_of(event).is_some())
        && !turn.iter().any(names_a_run)
}

/// Returns the identity of an event, also if two sources word it differently.
fn key(event: &Event) -> String {
    match event {
        Event::ToolCall(call) => format!("call {}", call.tool_use_id),
        Event::ToolResult(result) => format!("result {}", result.tool_use_id),
        Event::Init(_) => "init".to_owned(),
        Event::Complete(_) => "complete".to_owned(),
        other => other.to_json(),
    }
}
