//! An agent that still runs though its azureal is gone: followed until it ends, or stopped.

use std::thread;
use std::time::Duration;

use azureal_agents::registry;
use azureal_core::SessionId;
use azureal_engine::{OutputLimit, RUN_MARKER, Recovered, SpooledTurn, Spools};
use azureal_process::{Marker, Patience, ProcessIdentity, stop};
use futures_executor::block_on;

use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::live::Live;
use crate::output::{Output, tell};
use crate::recovery::{orphan_of, recover};
use crate::turn::Keep;
use azureal::Workspace;

/// How long to wait until looking again whether all has ended.
const PAUSE: Duration = Duration::from_millis(200);

/// Follows the agent of a session that runs in the background, and returns when its turn is stored: the history would
/// miss the rest of it. On a terminal, its output is shown. An interrupt stops the agent, and is then the error.
pub(crate) fn follow(
    place: &Workspace,
    spools: &Spools,
    interrupts: &Interrupts,
    found: &[Recovered],
    session: SessionId,
    limit: OutputLimit,
    out: &mut Output,
) -> Result<(), Failure> {
    let Some((turn, process)) = orphan_of(found, session) else { return Ok(()) };
    let (at_interrupt, running) = ((spools.clone(), turn.clone(), process.clone()), process);
    let cancelled = interrupts.on_interrupt(move || {
        let (spools, turn, process) = at_interrupt;
        // What cannot be ended goes on, and is waited for.
        drop(end(&spools, &turn, &process));
    });
    // Only now, when it is so.
    tell("waiting until it ends; Ctrl-C stops it");
    let shown = thread::scope(|scope| {
        scope.spawn(|| guard(spools, turn, running, limit));
        if out.is_terminal() && !out.is_json() { show(spools, turn, running, out) } else { Ok(()) }
    });
    // What it started may write on for a while.
    let mut found = block_on(recover(place));
    while let Some((_, process)) = orphan_of(&found, session) {
        process.wait_timeout(PAUSE);
        found = block_on(recover(place));
    }
    interrupts.rest();
    if cancelled.has_happened() {
        return Err(Failure::cancelled(format!(
            "the turn of {session} was cancelled, and your prompt was not sent"
        ))
        .with_hint(format!("`azureal show {session}` shows its output so far")));
    }
    shown
}

/// Waits for an agent to end, and ends it when it has printed more than it may.
fn guard(spools: &Spools, turn: &SpooledTurn, process: &ProcessIdentity, limit: OutputLimit) {
    while !process.wait_timeout(PAUSE) {
        if spools.printed(turn) >> 20 > limit.mib() {
            tell(&format!("{} has printed more than {} MiB: it is stopped", turn.agent, limit.mib()));
            if end(spools, turn, process).is_err() {
                // It cannot be ended; it is waited for.
                while !process.wait_timeout(PAUSE) {}
            }
        }
    }
}

/// Shows what an agent prints until it ends.
fn show(
    spools: &Spools,
    turn: &SpooledTurn,
    process: &ProcessIdentity,
    out: &mut Output,
) -> Result<(), Failure> {
    let Ok(agent) = registry::find(&turn.agent) else { return Ok(()) };
    // Not being able to watch it does not stop it, nor the waiting.
    let Ok(mut watcher) = spools.watch(turn, agent, Some(process.clone())) else { return Ok(()) };
    let mut live = Live::new(out, agent.name(), Keep::Session);
    while let Ok(Some(outputs)) = watcher.next_outputs() {
        outputs.iter().try_for_each(|output| live.take(output))?;
    }
    live.leave()
}

/// Ends the agent of a turn and everything that it started.
pub(crate) fn end(spools: &Spools, turn: &SpooledTurn, process: &ProcessIdentity) -> Result<(), Failure> {
    let marker = Marker::new(RUN_MARKER, turn.run.clone())
        .map_err(|error| Failure::new("unreadable", error.to_string()))?;
    spools.note_cancel(turn).map_err(|error| Failure::file(&error.path, &error.source))?;
    let report = stop(process, &marker, &Patience::default());
    match report.survivors.first() {
        None => Ok(()),
        Some(survivor) => {
            Err(Failure::new("not_stopped", format!("process {} could not be ended", survivor.pid))
                .with_hint("it may belong to somebody else, or hang in the system"))
        }
    }
}
