//! A running turn, as its caller sees it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use azureal_core::agent::AgentOutput;
use azureal_core::{PAGE_EVENTS, Page, Seq, SessionId, SessionStore};
use futures_channel::mpsc;
use futures_core::Stream;
use futures_executor::block_on;
use futures_util::{SinkExt, StreamExt};

use crate::drive::Message;
use crate::ingest::Late;
use crate::turn_event::{FinishedTurn, TurnError, TurnEvent};
use crate::turn_machine::Input;
use crate::watch::Watcher;

/// How many events wait for a caller who is slow. The agent's output is read no faster than the caller takes it.
const WAITING_EVENTS: usize = 64;

/// A turn that was submitted.
///
/// It runs on threads of its own, and continues when the handle is dropped. Its events are a [`Stream`]; without an executor,
/// [`next_event`](Self::next_event) blocks. A caller who does not read them does not hold up the turn.
pub struct TurnHandle {
    controls: TurnControls,
    events: mpsc::Receiver<TurnEvent>,
    /// Whether the last event was taken.
    is_over: bool,
    result: TurnResult,
    session: Arc<OnceLock<SessionId>>,
}

/// Stops a turn, or sends the next prompt after it.
#[derive(Debug, Clone)]
pub struct TurnControls {
    /// `None` when the turn is over.
    inbox: Arc<Mutex<Option<Sender<Message>>>>,
}

/// The result, once there is one.
#[derive(Clone, Default)]
pub(crate) struct TurnResult(Arc<ResultPlace>);

#[derive(Default)]
struct ResultPlace {
    result: Mutex<Option<Result<FinishedTurn, TurnError>>>,
    is_set: Condvar,
}

impl TurnResult {
    pub(crate) fn set(&self, result: Result<FinishedTurn, TurnError>) {
        *self.0.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.0.is_set.notify_all();
    }

    /// Waits for the result, and takes it.
    fn take(&self) -> Result<FinishedTurn, TurnError> {
        let result = self.0.result.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.0.is_set.wait_while(result, |result| result.is_none());
        result.unwrap_or_else(PoisonError::into_inner).take().unwrap_or(Err(TurnError::Lost))
    }
}

impl TurnControls {
    pub(crate) fn new(sender: Sender<Message>) -> Self {
        Self { inbox: Arc::new(Mutex::new(Some(sender))) }
    }

    /// Cancels the turn. What came until then is stored, and prompts that are staged are not sent. A turn that is over stays as
    /// it is.
    pub fn cancel(&self) {
        self.send(Input::Cancel);
    }

    /// Stages a prompt: the turn is stopped and stored, then this prompt is sent. Prompts that are staged keep their order.
    ///
    /// Returns `false` if the turn is over: then the prompt is not sent, and can be submitted as a turn of its own. After a
    /// turn that has an error for its result, staged prompts are not sent either.
    #[must_use]
    pub fn stage(&self, prompt: impl Into<String>) -> bool {
        self.send(Input::Submit(prompt.into()))
    }

    fn send(&self, input: Input) -> bool {
        self.lock().as_ref().is_some_and(|inbox| inbox.send(Message::Input(input)).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sender<Message>>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next prompt that was staged and not received yet. Without one the turn is over, and no prompt can be
    /// staged any more.
    pub(crate) fn last_staged(&self, received: &Receiver<Message>) -> Option<String> {
        let mut inbox = self.lock();
        while let Ok(message) = received.try_recv() {
            if let Message::Input(Input::Submit(prompt)) = message {
                return Some(prompt);
            }
        }
        *inbox = None;
        None
    }
}

impl TurnHandle {
    pub(crate) fn new(
        controls: TurnControls,
        events: mpsc::Receiver<TurnEvent>,
        result: TurnResult,
        session: Arc<OnceLock<SessionId>>,
    ) -> Self {
        Self { controls, events, is_over: false, result, session }
    }

    /// Returns the session; `None` until the turn has created it.
    pub fn session(&self) -> Option<SessionId> {
        self.session.get().copied()
    }

    /// Returns what stops the turn, or sends the next prompt after it: for another thread, or a signal handler.
    pub fn controls(&self) -> TurnControls {
        self.controls.clone()
    }

    /// Cancels the turn. What came until then is stored.
    pub fn cancel(&self) {
        self.controls.cancel();
    }

    /// Stages a prompt: the turn is stopped and stored, then this prompt is sent. Returns `false` if the turn is over.
    #[must_use]
    pub fn stage(&self, prompt: impl Into<String>) -> bool {
        self.controls.stage(prompt)
    }

    /// Waits for the next event; `None` when the turn is over.
    pub fn next_event(&mut self) -> Option<TurnEvent> {
        // After the last event there is none to wait for, so this can be called on an executor.
        if self.is_over { None } else { block_on(self.next()) }
    }

    /// Waits for the next event, at most so long; [`Poll::Pending`] if none came meanwhile.
    pub fn next_event_within(&mut self, at_most: Duration) -> Poll<Option<TurnEvent>> {
        let deadline = Instant::now() + at_most;
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        while !self.is_over {
            if let Poll::Ready(next) = self.poll_next_unpin(&mut context) {
                return Poll::Ready(next);
            }
            match deadline.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Poll::Pending,
                left => thread::park_timeout(left),
            }
        }
        Poll::Ready(None)
    }

    /// Returns the result. Blocks until the turn is over, and drops the events that were not taken; after the last event it
    /// does not block.
    pub fn result(mut self) -> Result<FinishedTurn, TurnError> {
        while self.next_event().is_some() {}
        // It is there when the events end, unless the thread that reports them has panicked.
        self.result.take()
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Stream for TurnHandle {
    type Item = TurnEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<TurnEvent>> {
        let next = Pin::new(&mut self.events).poll_next(context);
        self.is_over |= matches!(next, Poll::Ready(None));
        next
    }
}

/// A message of the thread that runs a turn to the one that reports it.
pub(crate) enum Posted {
    Event(TurnEvent),
    /// The output of the agent can be read here.
    Watch(Watcher),
    /// The turn is stored. These events of it are not in the output.
    Stored(Late, Box<FinishedTurn>),
}

/// Reports a turn: reads its output as fast as the caller takes it.
pub(crate) struct Reporter {
    store: Arc<dyn SessionStore>,
    posted: Receiver<Posted>,
    /// Messages that came while an output was read, and wait for its end.
    waiting: VecDeque<Posted>,
    events: mpsc::Sender<TurnEvent>,
    /// How many stored events of this run were reported.
    reported: u64,
}

/// The caller has gone.
struct Gone;

impl Reporter {
    /// Starts to report on a thread of its own, which ends with the turn.
    pub(crate) fn start(store: Arc<dyn SessionStore>, posted: Receiver<Posted>) -> mpsc::Receiver<TurnEvent> {
        let (events, receiver) = mpsc::channel(WAITING_EVENTS);
        let mut reporter = Self { store, posted, waiting: VecDeque::new(), events, reported: 0 };
        thread::spawn(move || reporter.report());
        receiver
    }

    fn report(&mut self) {
        while let Some(next) = self.waiting.pop_front().or_else(|| self.posted.recv().ok()) {
            let reported = match next {
                Posted::Event(event) => {
                    if matches!(event, TurnEvent::Accepted(_)) {
                        // The output of an agent that was followed before does not count for this turn. That of a start that
                        // was refused does.
                        self.reported = 0;
                    }
                    self.send(event)
                }
                Posted::Watch(watcher) => self.watch(watcher),
                Posted::Stored(late, finished) => self.stored(late, finished),
            };
            if reported.is_err() {
                return;
            }
        }
    }

    fn send(&mut self, event: TurnEvent) -> Result<(), Gone> {
        block_on(self.events.send(event)).map_err(|_| Gone)
    }

    fn output(&mut self, output: AgentOutput) -> Result<(), Gone> {
        self.reported += u64::from(matches!(output, AgentOutput::Event(_)));
        self.send(TurnEvent::Output(Box::new(output)))
    }

    /// Reports the output of a run until it has ended, and notices meanwhile.
    fn watch(&mut self, mut watcher: Watcher) -> Result<(), Gone> {
        loop {
            while let Ok(next) = self.posted.try_recv() {
                match next {
                    Posted::Event(event @ TurnEvent::Notice(_)) => self.send(event)?,
                    other => self.waiting.push_back(other),
                }
            }
            match watcher.poll_outputs() {
                // A notice does not wait for the next line of a silent agent.
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(Some(outputs))) => {
                    outputs.into_iter().try_for_each(|output| self.output(output))?;
                }
                Ok(Poll::Ready(None)) => return Ok(()),
                // The turn continues. The events that were not reported are, when it is stored.
                Err(error) => return self.send(TurnEvent::Notice(error.to_string())),
            }
        }
    }

    /// Reports the events that were not in the output, or were not read there.
    fn stored(&mut self, late: Late, finished: Box<FinishedTurn>) -> Result<(), Gone> {
        let reported = std::mem::take(&mut self.reported);
        if let Some((first, end)) = late.missed(reported) {
            self.read(&finished, first, end)?;
        }
        for event in late.events {
            self.send(TurnEvent::Output(Box::new(AgentOutput::Event(event))))?;
        }
        self.send(TurnEvent::Stored(finished))
    }

    /// Reports stored events, from `first` to before `end`.
    fn read(&mut self, finished: &FinishedTurn, first: Seq, end: Seq) -> Result<(), Gone> {
        let mut after = Seq(first.0.saturating_sub(1));
        while after.next() < end {
            let page = match block_on(self.store.read(finished.session, Page::After(after, PAGE_EVENTS))) {
                Ok(page) => page,
                Err(error) => return self.send(TurnEvent::Notice(error.to_string())),
            };
            let Some(last) = page.last() else { break };
            after = last.seq;
            for stored in page.iter().take_while(|stored| stored.seq < end) {
                if let Ok(event) = stored.event() {
                    self.send(TurnEvent::Output(Box::new(AgentOutput::Event(event))))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_prompt_is_staged_or_refused_and_never_lost() {
        let (sender, received) = mpsc::channel();
        let controls = TurnControls::new(sender);
        controls.cancel();
        assert!(controls.stage("a") && controls.stage("b"));
        // The turn has ended meanwhile, without having received them.
        let staged: Vec<String> = std::iter::from_fn(|| controls.last_staged(&received)).collect();
        assert_eq!(staged, ["a", "b"]);
        assert!(!controls.clone().stage("c"), "the turn is over");
        assert!(received.try_recv().is_err());
    }
}
