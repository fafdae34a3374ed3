//! A turn, shown while it runs.

use std::path::Path;
use std::time::Duration;

use azureal::agents::{known_name, login_hint};
use azureal::core::agent::Permission;
use azureal::core::event::{ErrorEvent, Outcome};
use azureal::core::{Threshold, visible, visible_line};
use azureal::engine::{
    Accepted, Busy, CommandProgress, FinishedTurn, Recovered, SpooledTurn, TurnEvent, TurnHandle,
};
use azureal::json::{TurnLine, TurnLines};
use azureal::transcript::Places;
use azureal::turns::describe_busy;

use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::live::Live;
use crate::output::{Output, tell, warn};
use crate::recovery::{Told, answer_original_run};
use crate::refusals::refusals;
use crate::spinner::Spinner;

/// What of a turn is shown, and how.
pub(crate) struct TurnView<'a> {
    pub(crate) prompt: &'a str,
    /// What was found and reported when the program started.
    pub(crate) found: &'a [Recovered],
    /// Whether the turn is stored.
    pub(crate) is_kept: bool,
    /// The threshold that the context is measured against; `None` if it is not measured.
    pub(crate) threshold: Option<Threshold>,
    pub(crate) permission: Option<Permission>,
    pub(crate) timeout: Option<Duration>,
    /// The directories that paths are shown relative to.
    pub(crate) places: Places,
}

impl TurnView<'_> {
    /// Shows a turn until it is over. An interrupt cancels it.
    pub(crate) fn show(
        &self,
        mut handle: TurnHandle,
        interrupts: &Interrupts,
        out: &mut Output,
        introduce: impl FnOnce(&Accepted, &TurnLine<'_>, &mut Output) -> Result<(), Failure>,
    ) -> Result<FinishedTurn, Failure> {
        let mut commands = Vec::new();
        let shown = match self.show_preparation(&mut handle, interrupts, out, &mut commands) {
            Ok(Some(accepted)) => self.show_run(&mut handle, &accepted, &commands, out, introduce),
            Ok(None) => Ok(None),
            Err(failure) => Err(failure),
        };
        // The turn is stored, whether its output could be shown or not.
        let finished = handle.result();
        interrupts.rest();
        let finished = finished.map_err(azureal::Error::from)?;
        let Some(shown) = shown? else {
            return Err(Failure::new("failed", "the turn was lost"));
        };
        match &finished.kept {
            Some(_) if !self.is_kept => {
                warn("not all that was printed could be read; nothing of it is kept");
            }
            Some(path) => warn(&kept(path)),
            None => {}
        }
        let failure = self.failure_of(&finished, &shown, out.is_json());
        // Last, because it says what to do next.
        if let Some(hint) = refusals(shown.agent, &finished.refused, self.permission) {
            tell(&hint);
        }
        failure.map_or(Ok(finished), Err)
    }

    /// Shows what happens before the agent is asked. Returns how the turn is run; `None` if it is not. Keeps the progress of `commands`
    /// that run before the session is created.
    fn show_preparation(
        &self,
        handle: &mut TurnHandle,
        interrupts: &Interrupts,
        out: &mut Output,
        commands: &mut Vec<CommandProgress>,
    ) -> Result<Option<Box<Accepted>>, Failure> {
        let controls = handle.controls();
        let cancel_on_interrupt = || {
            let controls = controls.clone();
            interrupts.on_interrupt(move || controls.cancel());
        };
        cancel_on_interrupt();
        let mut waiting: Option<Spinner> = None;
        let mut told = Told::new(self.found);
        let mut next = handle.next_event();
        while let Some(event) = next.take() {
            if !matches!(event, TurnEvent::Waiting(_) | TurnEvent::Command(_)) {
                waiting = None;
            }
            match event {
                TurnEvent::Waiting(busy) => show_waiting(&mut waiting, &busy),
                TurnEvent::Recovered(found) => told.report(*found),
                TurnEvent::Following(turn) => next = self.follow(handle, &turn, out)?,
                TurnEvent::OriginalRun(run) => {
                    // At a question, an interrupt ends the program.
                    interrupts.rest();
                    answer_original_run(*run);
                    cancel_on_interrupt();
                }
                TurnEvent::Notice(text) => tell(&visible(&text)),
                TurnEvent::Command(progress) => {
                    if let CommandProgress::Began(names) = &*progress {
                        waiting =
                            Some(Spinner::start(&format!("context: {}", visible_line(&names.join(", ")))));
                    }
                    commands.push(*progress);
                }
                TurnEvent::Accepted(accepted) => {
                    told.warn_of_lost(accepted.record.id);
                    return Ok(Some(accepted));
                }
                _ => {}
            }
            next = next.or_else(|| handle.next_event());
        }
        Ok(None)
    }

    /// Shows the agent at work.
    fn show_run(
        &self,
        handle: &mut TurnHandle,
        accepted: &Accepted,
        commands: &[CommandProgress],
        out: &mut Output,
        introduce: impl FnOnce(&Accepted, &TurnLine<'_>, &mut Output) -> Result<(), Failure>,
    ) -> Result<Option<Shown>, Failure> {
        let mut lines = TurnLines::new(self.prompt, self.threshold);
        if !self.is_kept {
            lines = lines.ephemeral();
        }
        let [first, prompt] = lines.accepted(accepted);
        introduce(accepted, &first, out)?;
        let mut live = Live::new(out, accepted.agent, self.is_kept, &self.places)
            .expecting(accepted.expected_model.as_deref());
        live.lines([prompt])?;
        commands.iter().for_each(|progress| live.command(progress));
        let mut finished = None;
        while let Some(event) = handle.next_event() {
            live.lines(lines.take(&event))?;
            match event {
                TurnEvent::Command(progress) => live.command(&progress),
                TurnEvent::Summarising { agent } => live.summary(&agent),
                TurnEvent::Began(began) if began.continues => live.go_on()?,
                TurnEvent::Output(output) => live.take(&output, lines.meter())?,
                TurnEvent::Stored(stored) => finished = Some(stored),
                TurnEvent::Notice(text) => live.tell(&visible(&text)),
                _ => {}
            }
        }
        let Some(finished) = finished else { return Ok(None) };
        live.lines(lines.end())?;
        live.end(&finished, lines.meter())?;
        Ok(Some(Shown { agent: accepted.agent, last_error: live.last_error().cloned() }))
    }

    /// Shows the output of an agent that still runs in the background, on a terminal. Returns the event after it.
    fn follow(
        &self,
        handle: &mut TurnHandle,
        turn: &SpooledTurn,
        out: &mut Output,
    ) -> Result<Option<TurnEvent>, Failure> {
        tell("waiting until it ends; Ctrl-C stops it");
        let is_shown = out.is_terminal() && !out.is_json();
        let mut live = known_name(&turn.agent)
            .filter(|_| is_shown)
            .map(|agent| Live::new(out, agent, true, &self.places));
        let next = loop {
            match handle.next_event() {
                Some(TurnEvent::Output(output)) => {
                    live.as_mut().map_or(Ok(()), |live| live.take(&output, None))?;
                }
                Some(TurnEvent::Notice(text)) => match &mut live {
                    Some(live) => live.tell(&visible(&text)),
                    None => tell(&visible(&text)),
                },
                other => break other,
            }
        };
        live.map_or(Ok(()), Live::leave)?;
        Ok(next)
    }

    fn failure_of(&self, finished: &FinishedTurn, shown: &Shown, as_json: bool) -> Option<Failure> {
        let session = finished.session;
        // People have seen it: errors are shown as they come.
        let why = shown.last_error.as_ref().filter(|_| as_json);
        let why = why.map(|error| format!(": {}", error.message)).unwrap_or_default();
        let login = shown.last_error.as_ref().and_then(|error| login_hint(shown.agent, error));
        let (turn, shown) = match self.is_kept {
            true => (
                format!("the turn of {session}"),
                format!("`azureal show {session}` shows what came, and the session can be continued"),
            ),
            false => ("the turn".to_owned(), "nothing of it was stored".to_owned()),
        };
        if let Some(meant_for) = finished.instead_of {
            // How the turn ended is in there. That it is not where it was meant to be matters more.
            let place =
                format!("the turn is not in {meant_for} but in {session}, a fork from where the turn began");
            return Some(Failure::new("fenced", place).with_hint(format!(
                "nothing of it is lost: continue with `azureal run -s {session}`, or in {meant_for} without it"
            )));
        }
        match finished.complete.outcome {
            Some(Outcome::Done) => None,
            None if finished.complete.success => None,
            Some(Outcome::Cancelled) => {
                Some(Failure::cancelled(format!("{turn} was cancelled")).with_hint(shown))
            }
            Some(Outcome::Timeout) => {
                let limit =
                    self.timeout.map_or_else(String::new, |limit| format!(" of {} s", limit.as_secs_f64()));
                let message = format!("{turn} exceeded its time limit{limit}");
                Some(Failure::new("timeout", message).with_hint(shown))
            }
            Some(Outcome::Interrupted) => {
                Some(Failure::new("interrupted", format!("{turn} was interrupted{why}")).with_hint(shown))
            }
            Some(Outcome::Failed) | None => {
                let hint = match login {
                    Some(login) if self.is_kept => {
                        format!("{login}; then `azureal run -s {session}` continues")
                    }
                    Some(login) => login,
                    None => shown,
                };
                Some(Failure::new("failed", format!("{turn} failed{why}")).with_hint(hint))
            }
        }
    }
}

/// A turn that was shown to its end.
struct Shown {
    agent: &'static str,
    last_error: Option<ErrorEvent>,
}

/// Shows that another process runs a turn in the session.
fn show_waiting(waiting: &mut Option<Spinner>, busy: &Busy) {
    let message = describe_busy(busy);
    match waiting {
        // Another process may have it by now.
        Some(spinner) => spinner.relabel(&message),
        None => {
            let started = Spinner::start(&message);
            if !started.is_seen() {
                tell(&format!("waiting: {message}"));
            }
            *waiting = Some(started);
        }
    }
}

/// Says where the output lies that could not be stored whole.
pub(crate) fn kept(path: &Path) -> String {
    format!("not all that was printed could be stored; it is kept as {}", path.display())
}
