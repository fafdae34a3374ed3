//! The context commands of a session that is not created yet, where one of them decides whether it is.
//!
//! A command with `on_failure = fail` refuses the turn: nothing is stored, no number is used up, and no store is created. So such
//! commands run before a new session is created, and what they print is its beginning. All other sessions exist when their
//! commands run (`gather.rs`), so that a turn whose azureal is killed meanwhile is stored as interrupted.

use std::thread;
use std::time::{Duration, Instant};

use azureal_core::OnFailure;
use azureal_core::event::Outcome;
use azureal_process::Marker;
use futures_executor::block_on;

use crate::context_commands::{CONTEXT_MARKER, CommandRun, CommandStop, CommandsEnded, run_commands};
use crate::gather::GatherError;
use crate::handle::Posted;
use crate::prepare::Preparation;
use crate::request::{Keeping, SessionTarget, TurnOptions, TurnRequest};
use crate::turn_event::{TurnError, TurnEvent};

/// The time between two looks at commands that run.
const PAUSE: Duration = Duration::from_millis(10);

impl Preparation {
    /// Runs the commands of a session that does not exist yet, if one of them may refuse the turn; `None` if there is none.
    pub(crate) fn run_first_commands(
        &self,
        request: &TurnRequest,
        options: &TurnOptions,
        staged: &mut Vec<String>,
    ) -> Result<Option<Vec<CommandRun>>, TurnError> {
        let briefing = &options.briefing;
        let may_refuse = briefing.commands.iter().any(|command| command.on_failure == OnFailure::Fail);
        if !may_refuse
            || briefing.keeping == Keeping::Ephemeral
            || !self.is_to_be_created(&request.session)?
        {
            return Ok(None);
        }
        let not_gathered = |outcome, source| TurnError::NotGathered { outcome: Some(outcome), source };
        let run = uuid::Uuid::new_v4().simple().to_string();
        let marker = Marker::new(CONTEXT_MARKER, run)
            .map_err(|error| not_gathered(Outcome::Failed, GatherError::Marker(error)))?;
        let deadline = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (stop, mut stopped) = (CommandStop::default(), Outcome::Cancelled);
        let (engine, poster) = (&*self.engine, self.poster.clone());
        let (marker, stop_commands) = (&marker, &stop);
        let ran = thread::scope(|scope| {
            let commands = scope.spawn(move || {
                let (directory, environment) = (&engine.directory, &engine.environment);
                let report = &mut |progress| {
                    let event = TurnEvent::Command(Box::new(progress));
                    // The receiver may be dropped.
                    drop(poster.send(Posted::Event(event)));
                };
                run_commands(&briefing.commands, directory, environment, marker, stop_commands, report)
            });
            while !commands.is_finished() {
                if self.is_cancelled_within(PAUSE, staged) {
                    stop.stop();
                } else if deadline.is_some_and(|deadline| deadline <= Instant::now()) && !stop.is_stopped() {
                    stopped = Outcome::Timeout;
                    stop.stop();
                }
            }
            commands.join()
        });
        match ran {
            // The cancel came when the last command had just ended.
            Ok(Ok(_)) if stop.is_stopped() => Err(not_gathered(stopped, GatherError::Stopped)),
            Ok(Ok(ran)) => Ok(Some(ran)),
            Ok(Err(CommandsEnded::ByFailure(run))) => {
                Err(not_gathered(Outcome::Failed, GatherError::of_failure(*run)))
            }
            Ok(Err(CommandsEnded::ByStop)) => Err(not_gathered(stopped, GatherError::Stopped)),
            Err(_) => Err(TurnError::Lost),
        }
    }

    /// Returns whether a turn creates its session.
    fn is_to_be_created(&self, target: &SessionTarget) -> Result<bool, TurnError> {
        Ok(match target {
            SessionTarget::Existing(_) => false,
            SessionTarget::New(_) => true,
            SessionTarget::Named(new) => match &new.name {
                Some(name) => block_on(self.engine.store.find(name))?.is_empty(),
                None => true,
            },
        })
    }
}
