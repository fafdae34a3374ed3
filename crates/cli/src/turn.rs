//! One turn with an agent, driven and shown.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use azureal_core::agent::{CacheSeen, Permission};
use azureal_core::event::Outcome;
use azureal_core::{Event, LeaseId, Page, Seq, SessionId, SessionStore};
use azureal_engine::{
    AutoCompaction, Briefing, CommandProgress, Driver, IngestError, Ingested, Notice, OutputLimit, Setup,
    Spools, Watcher,
};
use futures_executor::block_on;

use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::live::Live;
use crate::output::{Output, tell, warn};
use crate::refusals::refusals;
use azureal::Workspace;
use azureal::agents::AgentChoice;
use azureal::agents::prompt_cache::{self, CacheChoice};
use azureal::config::Caching;
use azureal::meter::Meter;

/// How many events are read at once.
const PAGE: usize = 100;

/// What is asked, of whom and in which session.
pub(crate) struct Ask<'a> {
    pub(crate) session: SessionId,
    /// The model that was announced though none is asked for. Another one that answers is told.
    pub(crate) expected_model: Option<&'a str>,
    /// Where the store remembers the session as the last one used; `None` if it does not.
    pub(crate) used_in: Option<&'a str>,
    /// Whether another model is asked for than in the turn before.
    pub(crate) switches_model: bool,
    /// The lease of the store that allows it.
    pub(crate) lease: Option<&'a LeaseId>,
    pub(crate) choice: &'a AgentChoice,
    pub(crate) prompt: &'a str,
    pub(crate) permission: Option<Permission>,
    pub(crate) timeout: Option<Duration>,
    /// How much the agent may print.
    pub(crate) output_limit: OutputLimit,
    /// What the agent is told besides the history.
    pub(crate) briefing: &'a Briefing,
    /// What is done about a history that becomes too long.
    pub(crate) compaction: Option<&'a AutoCompaction<'a>>,
    pub(crate) keep: Keep,
    /// Further arguments for the agent's program.
    pub(crate) arguments: &'a [String],
    /// Whether the history is sent to Claude Code for the provider's prompt cache.
    pub(crate) claude_cache: Caching,
}

/// What is kept of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It goes to a session that there was before.
    Session,
    /// It goes to a session that was made for it, which goes again if the turn does not begin.
    NewSession,
    /// Nothing: the session is gone with the store.
    Nothing,
}

/// What the driver says while it drives.
enum Heard {
    Command(CommandProgress),
    Summary(String),
    NotGathered(String),
    Began(Watcher),
    Stored(Ingested),
    Told(String),
}

/// Takes a turn, shows it, and returns how it ended once it is stored.
///
/// The turn is driven on a thread of its own, so that neither a slow terminal nor a closed pipe can hold it up.
pub(crate) fn take_turn(
    place: &Workspace,
    spools: &Spools,
    interrupts: &Interrupts,
    ask: &Ask<'_>,
    out: &mut Output,
) -> Result<Ingested, Failure> {
    let directory = place.project.directory();
    let environment = place.environment();
    let homes = environment.homes();
    let program = &ask.choice.program;
    let is_claude = ask.choice.agent.name() == "claude";
    let CacheChoice { cache, moves_git_status } = match is_claude {
        true => prompt_cache::choose(ask.claude_cache, program, ask.arguments, environment),
        false => CacheChoice::OFF,
    };
    let (driver, controls) = Driver::new(Setup {
        store: &*place.store,
        spools,
        agent: ask.choice.agent,
        program,
        session: ask.session,
        used_in: ask.used_in,
        switches_model: ask.switches_model,
        lease: ask.lease,
        model: ask.choice.model.as_deref(),
        permission: ask.permission,
        directory,
        environment: environment.for_children(),
        in_git: place.project.is_in_git(),
        timeout: ask.timeout,
        output_limit: ask.output_limit,
        briefing: ask.briefing,
        compaction: ask.compaction,
        homes: &homes,
        arguments: ask.arguments,
        cache,
        moves_git_status,
    });
    let mut live = Live::new(out, ask.choice.agent.name(), ask.keep).expecting(ask.expected_model);
    let mut not_gathered = None;
    // What is in the store, until it is known whether that was all.
    let mut stored = None;
    // Where the turn begins: before a compaction, if there was one in the middle of it.
    let mut first = None;
    // The tools that were refused, before and after a compaction.
    let mut refused = Vec::new();
    let mut cache_seen = CacheSeen::default();
    if let Some(meter) = meter(place, ask, ask.session)? {
        live.measure(meter);
    }
    let mut shown = live.prompt(ask.prompt);
    interrupts.on_interrupt(move || controls.cancel());
    let driven = thread::scope(|scope| {
        let (sender, heard) = mpsc::channel();
        let driving = scope.spawn(move || {
            driver.run(ask.prompt, &mut |notice| {
                let heard = match notice {
                    Notice::Command(progress) => Heard::Command(progress.clone()),
                    Notice::Summary(agent) => Heard::Summary(agent.to_owned()),
                    Notice::NotGathered(why) => Heard::NotGathered(why.to_owned()),
                    Notice::Began { watcher, .. } => Heard::Began(watcher),
                    Notice::Tell(text) => Heard::Told(text.to_owned()),
                    Notice::Stored(ingested) => Heard::Stored(ingested.clone()),
                };
                // Whoever does not listen any more does not want to know.
                drop(sender.send(heard));
            })
        });
        // What came while a run was being watched, and can wait.
        let mut waiting = VecDeque::new();
        while let Some(next) = waiting.pop_front().or_else(|| heard.recv().ok()) {
            match next {
                Heard::Command(progress) => live.command(&progress),
                // Once part of the turn is stored, the turn has begun: it was stopped to compact the session.
                Heard::NotGathered(why) if first.is_none() => not_gathered = Some(why),
                Heard::NotGathered(_) => {}
                Heard::Summary(agent) => live.summary(&agent),
                Heard::Began(watcher) if shown.is_ok() => {
                    let meter = meter(place, ask, ask.session);
                    shown = match stored.take() {
                        // It goes on after a compaction.
                        Some(before) => show_rest(&*place.store, &before, &mut live)
                            .and(meter)
                            .and_then(|meter| live.go_on(meter)),
                        // It may have been compacted before it began.
                        None => meter.map(|meter| live.begin(meter, ask.prompt)),
                    }
                    .and_then(|()| watch(watcher, &mut live, &heard, &mut waiting));
                }
                Heard::Began(_) => {}
                Heard::Stored(mut ingested) => {
                    refused.append(&mut ingested.refused);
                    cache_seen.add(ingested.cache);
                    first = first.or(ingested.appended.map(|appended| appended.first));
                    stored = Some(ingested);
                }
                Heard::Told(text) => live.tell(&azureal_core::visible(&text)),
            }
        }
        driving.join()
    });
    interrupts.rest();
    if is_claude {
        prompt_cache::learn(program, cache, cache_seen, ask.arguments, environment);
    }
    let ingested = match driven {
        Ok(Some(Ok(ingested))) => ingested,
        Ok(Some(Err(IngestError::NotBegun(why)))) if first.is_some() => {
            // The agent was stopped to compact the session, and could not be started again.
            let session = ask.session;
            return Err(Failure::new("not_continued", format!("the turn could not be continued: {why}")).with_hint(
                format!("what came is stored: `azureal show {session}` shows it, and `azureal run -s {session}` continues"),
            ));
        }
        Ok(Some(Err(IngestError::NotBegun(why)))) => {
            take_back(place, ask);
            return Err(Failure::new("not_begun", format!("the turn could not be begun: {why}")).with_hint(
                "your prompt was not sent and is not kept; free some room, or see to the file's rights",
            ));
        }
        Ok(Some(Err(error))) => {
            return Err(Failure::new("not_stored", format!("the turn could not be stored: {error}"))
                .with_hint("what the agent printed is kept, and the next azureal tries again"));
        }
        Ok(None) | Err(_) => return Err(Failure::new("failed", "the turn was lost")),
    };
    if let Some(why) = not_gathered.filter(|_| ask.keep != Keep::Session) {
        return Err(not_begun(place, ask, &ingested, &why));
    }
    // Before any complaint of the output: the turn is stored, whoever reads it.
    shown?;
    show_rest(&*place.store, &ingested, &mut live)?;
    live.end(&ingested, first, meter(place, ask, ingested.session)?, refused.len())?;
    match &ingested.kept {
        Some(_) if ask.keep == Keep::Nothing => {
            warn("not all that was printed could be read; nothing of it is kept");
        }
        Some(path) => warn(&kept(path)),
        None => {}
    }
    let failure = failure_of(&ingested, ask, &live);
    // Last, because it says what to do next.
    if let Some(hint) = refusals(ask.choice.agent.name(), &refused, ask.permission) {
        tell(&hint);
    }
    match failure {
        Some(failure) => Err(failure),
        None => Ok(ingested),
    }
}

/// Says where the output lies that could not be stored whole.
pub(crate) fn kept(path: &Path) -> String {
    format!("not all that was printed could be stored; it is kept as {}", path.display())
}

/// Measures how full the session is, if it is kept.
fn meter(place: &Workspace, ask: &Ask<'_>, session: SessionId) -> Result<Option<Meter>, Failure> {
    let Some(auto) = ask.compaction else { return Ok(None) };
    Ok(Some(Meter::of(&block_on(place.store.get(session))?, auto.threshold)))
}

/// Shows the output of a run until it has ended, and notices for the user meanwhile.
fn watch(
    mut watcher: Watcher,
    live: &mut Live<'_>,
    heard: &Receiver<Heard>,
    waiting: &mut VecDeque<Heard>,
) -> Result<(), Failure> {
    loop {
        for next in heard.try_iter() {
            match next {
                Heard::Told(text) => live.tell(&azureal_core::visible(&text)),
                other => waiting.push_back(other),
            }
        }
        match watcher.next_outputs() {
            Ok(Some(outputs)) => outputs.iter().try_for_each(|output| live.take(output))?,
            Ok(None) => return Ok(()),
            Err(error) => {
                // The turn goes on, and what was not shown is shown when it is stored.
                live.tell(&azureal_core::visible(&error.to_string()));
                return Ok(());
            }
        }
    }
}

/// Shows the events that are known only since the run has ended: all but the prompt, what was shown, and the end.
fn show_rest(store: &dyn SessionStore, ingested: &Ingested, live: &mut Live<'_>) -> Result<(), Failure> {
    let Some(appended) = ingested.appended else { return Ok(()) };
    let shown = Seq(appended.first.0.saturating_add(live.events()));
    // Of a flood more may have been shown than is stored. The last event before the end then says why.
    let is_flood = ingested.kept.is_some() && shown >= appended.last;
    let mut after = shown.min(Seq(appended.last.0.saturating_sub(2)));
    while after < appended.last {
        let page = block_on(store.read(ingested.session, Page::After(after, PAGE)))?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for stored in page.iter().take_while(|stored| stored.seq < appended.last) {
            if let Ok(event) = stored.event()
                && (stored.seq > shown || (is_flood && matches!(event, Event::Error(_))))
            {
                live.event(&event)?;
            }
        }
    }
    Ok(())
}

/// Says why a turn did not begin, and takes back the session that was made for it.
fn not_begun(place: &Workspace, ask: &Ask<'_>, ingested: &Ingested, why: &str) -> Failure {
    take_back(place, ask);
    let failure = match ingested.complete.outcome {
        Some(Outcome::Cancelled) => Failure::cancelled("cancelled while the context commands ran"),
        Some(Outcome::Timeout) => Failure::new("timeout", "the context commands took too long"),
        _ => Failure::new("context", why),
    };
    failure.with_hint("the agent was not asked, and nothing was stored")
}

/// Deletes the session that was made for a turn which does not take place.
fn take_back(place: &Workspace, ask: &Ask<'_>) {
    if ask.keep == Keep::NewSession
        && let Err(error) = block_on(place.store.delete(ask.session))
    {
        warn(&format!("{} was made for this turn and could not be deleted: {error}", ask.session));
    }
}

fn failure_of(ingested: &Ingested, ask: &Ask<'_>, live: &Live<'_>) -> Option<Failure> {
    let session = ingested.session;
    let why = live.last_error().map(|error| format!(": {error}")).unwrap_or_default();
    let (turn, shown) = match ask.keep {
        Keep::Session | Keep::NewSession => (
            format!("the turn of {session}"),
            format!("`azureal show {session}` shows what came, and the session can go on"),
        ),
        Keep::Nothing => ("the turn".to_owned(), "nothing of it was stored".to_owned()),
    };
    if let Some(meant_for) = ingested.instead_of {
        // How the turn ended is in there. That it is not where it was meant to be matters more.
        let place =
            format!("the turn is not in {meant_for} but in {session}, a fork from where the turn began");
        return Some(Failure::new("fenced", place).with_hint(format!(
            "nothing of it is lost: go on with `azureal run -s {session}`, or in {meant_for} without it"
        )));
    }
    match ingested.complete.outcome {
        Some(Outcome::Done) => None,
        None if ingested.complete.success => None,
        Some(Outcome::Cancelled) => {
            Some(Failure::cancelled(format!("{turn} was cancelled")).with_hint(shown))
        }
        Some(Outcome::Timeout) => {
            let limit = ask
                .timeout
                .map_or_else(String::new, |limit| format!(": longer than {} s", limit.as_secs_f64()));
            Some(Failure::new("timeout", format!("{turn} took too long{limit}")).with_hint(shown))
        }
        Some(Outcome::Interrupted) => {
            Some(Failure::new("interrupted", format!("{turn} was interrupted{why}")).with_hint(shown))
        }
        Some(Outcome::Failed) | None => {
            Some(Failure::new("failed", format!("{turn} failed{why}")).with_hint(shown))
        }
    }
}
