//! The turns that this desk has started.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use azureal_engine::{Began, Control, TurnControls};

use crate::turns::ActiveTurn;

/// The turns that are not over yet.
#[derive(Default)]
pub(super) struct RunningTurns {
    turns: Mutex<Vec<OwnTurn>>,
    is_over: Condvar,
}

/// A turn that this desk has started.
#[derive(Clone, Default)]
pub(super) struct OwnTurn(Arc<Mutex<OwnState>>);

#[derive(Default)]
struct OwnState {
    controls: Option<TurnControls>,
    /// Whether it was cancelled before it had controls.
    is_cancelled: bool,
    /// Answers the questions of its agent.
    control: Option<Control>,
    run: Option<String>,
    active: Option<ActiveTurn>,
}

impl OwnTurn {
    fn lock(&self) -> MutexGuard<'_, OwnState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels it, also if it has not begun yet.
    pub(super) fn cancel(&self) {
        let mut state = self.lock();
        match &state.controls {
            Some(controls) => controls.cancel(),
            None => state.is_cancelled = true,
        }
    }

    /// Returns whether it was cancelled before it had controls.
    pub(super) fn is_cancelled(&self) -> bool {
        self.lock().is_cancelled
    }

    /// Takes the controls, once it was submitted.
    pub(super) fn submitted(&self, controls: TurnControls) {
        let mut state = self.lock();
        if state.is_cancelled {
            controls.cancel();
        }
        state.controls = Some(controls);
    }

    /// Notes that its agent runs.
    pub(super) fn began(&self, agent: &str, model: Option<String>, began: &Began) {
        let mut state = self.lock();
        state.control.clone_from(&began.control);
        state.run = Some(began.run.clone());
        state.active = Some(ActiveTurn::ours(agent, model, began));
    }

    pub(super) fn control(&self) -> Option<Control> {
        self.lock().control.clone()
    }
}

impl RunningTurns {
    fn lock(&self) -> MutexGuard<'_, Vec<OwnTurn>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self) -> OwnTurn {
        let turn = OwnTurn::default();
        self.lock().push(turn.clone());
        turn
    }

    pub(super) fn end(&self, turn: &OwnTurn) {
        self.lock().retain(|running| !Arc::ptr_eq(&running.0, &turn.0));
        self.is_over.notify_all();
    }

    /// Returns whether one of them has a run of this name.
    pub(super) fn has_run(&self, run: &str) -> bool {
        self.lock().iter().any(|turn| turn.lock().run.as_deref() == Some(run))
    }

    /// Returns those whose agent runs.
    pub(super) fn active(&self) -> Vec<ActiveTurn> {
        self.lock().iter().filter_map(|turn| turn.lock().active.clone()).collect()
    }

    pub(super) fn cancel_all(&self) {
        self.lock().iter().for_each(OwnTurn::cancel);
    }

    /// Waits until all are over; returns whether they are.
    pub(super) fn wait(&self, deadline: Instant) -> bool {
        let mut turns = self.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if turns.is_empty() || left.is_zero() {
                return turns.is_empty();
            }
            let waited = self.is_over.wait_timeout(turns, left);
            turns = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
