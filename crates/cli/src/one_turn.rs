//! One turn runs in a session at a time. Whoever comes second is told who runs it, or waits.

use std::thread;
use std::time::Duration;

use azureal_core::{Holder, SessionId, visible_line};
use azureal_engine::{LeaseError, SessionLease, SessionLeased, Spools, lease_session};
use futures_executor::block_on;

use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::output::tell;
use crate::spinner::Spinner;
use azureal::Workspace;

/// How often whoever waits asks again: a question to a server that others work with.
const PAUSE: Duration = Duration::from_millis(500);

/// Takes the right to run a turn in a session; an error if somebody else has it.
pub(crate) async fn lease(
    place: &Workspace,
    spools: &Spools,
    session: SessionId,
    agent: &str,
) -> Result<SessionLease, Failure> {
    ask(place, spools, session, agent).await?.map_err(|busy| {
        let Busy { message, end } = busy;
        Failure::new("busy", message).with_hint(format!(
            "wait for it (`run` does with `--wait`), end it with `azureal cancel {session}`{end}, or go on beside it \
             with `azureal fork {session}`"
        ))
    })
}

/// Takes that right as soon as nobody else has it. An interrupt ends the waiting, and is then the error.
pub(crate) fn wait_for_lease(
    place: &Workspace,
    spools: &Spools,
    interrupts: &Interrupts,
    session: SessionId,
    agent: &str,
) -> Result<SessionLease, Failure> {
    let mut spinner: Option<Spinner> = None;
    let interrupted = interrupts.on_interrupt(|| {});
    let leased = loop {
        let busy = match block_on(ask(place, spools, session, agent)) {
            Ok(Err(busy)) => busy,
            Ok(Ok(lease)) => break Ok(lease),
            Err(failure) => break Err(failure),
        };
        if interrupted.has_happened() {
            break Err(Failure::cancelled(format!("gave up waiting: {}", busy.message))
                .with_hint("your prompt was not sent"));
        }
        match &spinner {
            // Somebody else may have it by now.
            Some(spinner) => spinner.relabel(&busy.message),
            None => {
                let started = Spinner::start(&busy.message);
                if !started.is_seen() {
                    tell(&format!("waiting: {}", busy.message));
                }
                spinner = Some(started);
            }
        }
        thread::sleep(PAUSE);
    };
    interrupts.rest();
    leased
}

/// Somebody else has it.
struct Busy {
    /// Who, and since when.
    message: String,
    /// Where the turn can be ended, if not here.
    end: &'static str,
}

async fn ask(
    place: &Workspace,
    spools: &Spools,
    session: SessionId,
    agent: &str,
) -> Result<Result<SessionLease, Busy>, Failure> {
    let (who, end) = match lease_session(&place.store, spools, session, &place.holder(agent)).await {
        Ok(SessionLeased::Ours(lease)) => return Ok(Ok(lease)),
        Ok(SessionLeased::Here(None)) => (String::new(), ""),
        Ok(SessionLeased::Here(Some(Holder { pid, agent, since, .. }))) => {
            let (agent, since) = (visible_line(&agent), visible_line(&since));
            (format!(": {agent} since {since}, run by process {pid}"), "")
        }
        Ok(SessionLeased::Elsewhere(holder)) => (format!(": {}", elsewhere(&holder)), " where it runs"),
        Err(LeaseError::Spool(error)) => return Err(Failure::file(&error.path, &error.source)),
        Err(LeaseError::Store(error)) => return Err(error.into()),
    };
    Ok(Err(Busy { message: format!("a turn of {session} is running{who}"), end }))
}

/// Says who runs a turn that does not run here.
pub(crate) fn elsewhere(holder: &Holder) -> String {
    let Holder { user, host, pid, agent, since } = holder;
    let line = format!("{agent} since {since}, run by {user} on {host}, process {pid}");
    visible_line(&line).into_owned()
}
