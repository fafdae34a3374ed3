//! A turn that the interface has started, on a thread of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use azureal_core::agent::AgentOutput;
use azureal_core::{Event, OnFailure, Seq, SessionId, visible_line};
use azureal_engine::{
    Accepted, Began, CommandProgress, FinishedTurn, OriginalRunEvent, Recovered, SessionTarget, TurnError,
    TurnEvent, TurnHandle, clock,
};
use futures_executor::block_on;
use tracing::warn;

use super::TurnNews;
use super::following::Following;
use super::hub::HubMessage;
use super::outbox::OpenPane;
use super::pane::PaneMessage;
use super::questions::open_question;
use super::running::OwnTurn;
use super::shared::Shared;
use crate::agents::login_hint;
use crate::error::{Error, shown};
use crate::meter::{Meter, TurnMeter};
use crate::turns::{Prompt, TurnSettings, describe_busy};

/// The shortest time between two outputs that are sent: about thirty a second.
const PACE: Duration = Duration::from_millis(33);
/// The most outputs that are sent at a time.
const MOST_OUTPUTS: usize = 1_024;
/// How long a thread waits for an event without anything else to do.
const LONG: Duration = Duration::from_secs(3_600);

/// A turn to be run.
pub(super) struct Turn {
    pub(super) shared: Arc<Shared>,
    pub(super) pane: OpenPane,
    pub(super) following: Arc<Mutex<Following>>,
    pub(super) thread: Sender<PaneMessage>,
    pub(super) own: OwnTurn,
    pub(super) target: SessionTarget,
    pub(super) prompt: String,
    pub(super) settings: TurnSettings,
}

impl Turn {
    pub(super) fn start(self) {
        let turn = Arc::new(self);
        let run = Arc::clone(&turn);
        let builder = thread::Builder::new().name("azureal-desk-turn".to_owned());
        if let Err(error) = builder.spawn(move || run.run()) {
            let error = Error::new("failed", format!("no thread could be started: {error}"));
            turn.end(Some(error), false);
        }
    }

    fn run(&self) {
        // The interface waits for the end of the turn, whatever happens.
        let (error, has_begun) = catch_unwind(AssertUnwindSafe(|| self.submit()))
            .unwrap_or_else(|_| (Some(TurnError::Lost.into()), false));
        self.end(error, has_begun);
        if let Err(error) = block_on(self.shared.workspace.finish_originals()) {
            warn!(error = ?error.to_string(), "the output of a turn is not compressed yet");
        }
    }

    /// Runs the turn. Returns why it is not stored, and whether the prompt was sent.
    fn submit(&self) -> (Option<Error>, bool) {
        self.shared.wait_for_recovery();
        // Before its turn begins, the prompt is in no queue: it is sent once, also if this process is killed.
        self.shared.keep.flush();
        // Another process may have been killed since. The agent should know of the undo.
        self.shared.workspace.recover_undo_before_turn();
        let prompt = Prompt::new(self.target.clone(), self.prompt.clone());
        let submitted = self.shared.workspace.submit(&self.shared.config(), prompt, self.settings.clone());
        let mut handle = match submitted {
            Ok(handle) => handle,
            Err(error) => return (Some(error), false),
        };
        self.own.submitted(handle.controls());
        let mut reporter = Reporter::new(self);
        reporter.report(&mut handle);
        let has_begun = reporter.has_begun;
        match handle.result() {
            Ok(_) => (None, true),
            // Its output is kept, and the next azureal stores it.
            Err(error @ (TurnError::NotStored(_) | TurnError::OutputLost(_))) => (Some(error.into()), true),
            Err(error) => (Some(error.into()), has_begun),
        }
    }

    fn end(&self, error: Option<Error>, has_begun: bool) {
        let unsent = (!has_begun).then(|| self.prompt.clone());
        let (sent, is_sent) = mpsc::channel();
        let over = Box::new(TurnNews::Over { is_ours: true, error, unsent });
        // The thread of the pane sends it, so that its other news come before or after.
        self.thread.send(PaneMessage::Ended { over, sent }).ok();
        // Without an answer the pane is closed.
        is_sent.recv().ok();
        self.shared.turns.end(&self.own);
        self.shared.tell_hub(HubMessage::Changed);
    }

    fn following(&self) -> MutexGuard<'_, Following> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the events of a turn as news.
struct Reporter<'a> {
    turn: &'a Turn,
    meter: TurnMeter,
    sent_meter: Option<Meter>,
    outputs: Vec<AgentOutput>,
    sent_at: Instant,
    agent: &'static str,
    model: Option<String>,
    /// Whether the outputs are of an agent that ran before.
    is_following: bool,
    has_begun: bool,
    /// How to log in, if that is what the agent lacks.
    login: Option<String>,
}

impl<'a> Reporter<'a> {
    fn new(turn: &'a Turn) -> Self {
        Self {
            turn,
            meter: TurnMeter::new(turn.shared.threshold()),
            sent_meter: None,
            outputs: Vec::new(),
            sent_at: Instant::now(),
            agent: "",
            model: None,
            is_following: false,
            has_begun: false,
            login: None,
        }
    }

    fn report(&mut self, handle: &mut TurnHandle) {
        loop {
            let pause = match self.outputs.is_empty() {
                true => LONG,
                false => PACE.saturating_sub(self.sent_at.elapsed()),
            };
            match handle.next_event_within(pause) {
                Poll::Ready(Some(event)) => self.take(event),
                Poll::Ready(None) => return self.flush(),
                Poll::Pending => self.flush(),
            }
        }
    }

    fn take(&mut self, event: TurnEvent) {
        self.meter.take(&event);
        let event = match event {
            TurnEvent::Output(_) if self.is_following => return,
            TurnEvent::Output(output) => return self.add(*output),
            other => other,
        };
        self.flush();
        match event {
            TurnEvent::Waiting(busy) => self.send(TurnNews::Waiting(describe_busy(&busy))),
            TurnEvent::Recovered(found) => self.recovered(&found),
            TurnEvent::Following(turn) => {
                self.is_following = true;
                self.send(TurnNews::Waiting(format!(
                    "{} of an earlier turn is still running; your prompt is sent when it has ended",
                    visible_line(&turn.agent)
                )));
            }
            TurnEvent::OriginalRun(run) => self.original_run(&run),
            TurnEvent::Accepted(accepted) => self.accepted(*accepted),
            TurnEvent::Command(progress) => self.command(&progress),
            TurnEvent::Summarising { agent } => self.send(TurnNews::Compacting { agent }),
            TurnEvent::NotSummarised { agent, why } => {
                self.notice(format!("{agent} wrote no summary: {}", visible_line(&why)));
            }
            TurnEvent::Began(began) => self.began(&began),
            TurnEvent::Stored(finished) => self.stored(*finished),
            TurnEvent::Notice(text) => self.notice(text),
            _ => {}
        }
    }

    /// Takes an output. It is sent with others, unless there was none for a while.
    fn add(&mut self, output: AgentOutput) {
        if let AgentOutput::Event(Event::Error(error)) = &output {
            self.login = login_hint(self.agent, error).or(self.login.take());
        }
        match (self.outputs.last_mut(), output) {
            (Some(AgentOutput::Delta(text)), AgentOutput::Delta(more)) => text.push_str(&more),
            (_, output) => self.outputs.push(output),
        }
        if self.outputs.len() >= MOST_OUTPUTS || self.sent_at.elapsed() >= PACE {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.outputs.is_empty() {
            return;
        }
        self.sent_at = Instant::now();
        let mut outputs = std::mem::take(&mut self.outputs);
        let question = open_question(&mut outputs, self.turn.own.control().as_ref());
        if !outputs.is_empty() {
            self.send(TurnNews::Output(outputs));
        }
        if let Some(question) = question {
            self.send(TurnNews::Question(question));
        }
        self.send_meter();
    }

    fn send_meter(&mut self) {
        let meter = self.meter.meter();
        if meter != self.sent_meter.as_ref()
            && let Some(meter) = meter.cloned()
        {
            self.sent_meter = Some(meter.clone());
            self.send(TurnNews::Meter(meter));
        }
    }

    fn accepted(&mut self, accepted: Accepted) {
        self.is_following = false;
        self.meter.accepted(&accepted, &self.turn.prompt);
        self.turn.following().catch_up(&accepted.record);
        let Accepted { record, agent, model, expected_model, .. } = accepted;
        (self.agent, self.model) = (agent, model.clone());
        self.send(TurnNews::Accepted {
            record: Box::new(record),
            agent: agent.to_owned(),
            model: model.or(expected_model),
        });
        self.send_meter();
    }

    fn began(&mut self, began: &Began) {
        self.has_begun = true;
        self.turn.own.began(self.agent, self.model.clone(), began);
        // Such as the system message of a new session.
        self.turn.following().catch_up(&began.record);
        self.send(TurnNews::Began {
            prompt: (!began.continues).then(|| began.prompt.clone()),
            first: Seq(began.record.counts.events).next(),
            since_ms: u64::try_from(clock::now().as_millisecond()).unwrap_or(0),
            is_ours: true,
        });
        self.send_meter();
        self.turn.shared.tell_hub(HubMessage::Changed);
    }

    fn stored(&mut self, finished: FinishedTurn) {
        self.has_begun = true;
        let FinishedTurn { session, instead_of, first, last, complete, kept, refused, .. } = finished;
        if let Some((first, last)) = first.zip(last) {
            self.turn.following().stored(session, first, last);
        }
        if let Some(meant_for) = instead_of {
            self.notice(fenced(meant_for, session));
        }
        if let Some(path) = kept {
            self.notice(format!("not all that was printed could be stored; it is kept as {}", shown(&path)));
        }
        if let Some(login) = self.login.take() {
            self.notice(login);
        }
        self.send_meter();
        self.send(TurnNews::Stored { session, first, last, complete: Box::new(complete), refused });
    }

    fn command(&self, progress: &CommandProgress) {
        match progress {
            CommandProgress::Began(names) => {
                self.send(TurnNews::Progress(format!("context: {}", visible_line(&names.join(", ")))));
            }
            CommandProgress::Ended(run) => {
                // One that must not fail is the reason why the turn does not begin.
                if let (Some(why), OnFailure::Warn) = (run.failure(), run.command.on_failure) {
                    let name = visible_line(&run.command.name);
                    self.notice(format!("the context command `{name}` failed: {why}"));
                }
            }
            CommandProgress::Survived(count) => {
                self.notice(format!("{count} processes of the context commands could not be ended"));
            }
        }
    }

    fn recovered(&self, found: &Recovered) {
        let is_news = match found {
            Recovered::Stored(_, ingested) => ingested.appended.is_some(),
            Recovered::Orphan(..) | Recovered::Running(..) => false,
            _ => true,
        };
        if is_news {
            self.notice(found.to_string());
        }
    }

    /// Reports a run of the original program. There is nobody to ask: without an answer it is not recovered.
    fn original_run(&self, run: &OriginalRunEvent) {
        match run {
            OriginalRunEvent::Running { session, .. } => self.notice(format!(
                "{session}: the original AZUREAL program may still be running a turn here, which is not part of the history yet"
            )),
            OriginalRunEvent::Abandoned { session, record, .. } => self.notice(format!(
                "{session}: the original AZUREAL program noted a run that it never stored; `azureal run -s {session}` \
                 recovers it from {record}"
            )),
            OriginalRunEvent::Recovered { .. } => {}
        }
    }

    fn notice(&self, text: String) {
        self.send(TurnNews::Notice(text));
    }

    fn send(&self, news: TurnNews) {
        self.turn.shared.outbox.turn(self.turn.pane, news);
    }
}

/// Says that a turn is not in the session that it was meant for.
fn fenced(meant_for: SessionId, session: SessionId) -> String {
    format!(
        "another process took {meant_for} over: the turn is in {session}, a fork from where the turn began"
    )
}
