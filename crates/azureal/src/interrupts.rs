//! Ctrl-C, and the other ways to ask a program to end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use azureal_engine::Controls;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::failure::Failure;

/// Hears signals: the first during a turn cancels it; a second one, or one outside of a turn, ends the program.
pub(crate) struct Interrupts {
    turn: Arc<Mutex<Option<Controls>>>,
}

impl Interrupts {
    /// Begins to listen.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| Failure::new("signals", format!("signals cannot be heard: {error}")))?;
        let turn: Arc<Mutex<Option<Controls>>> = Arc::default();
        let heard = Arc::clone(&turn);
        thread::spawn(move || {
            for signal in signals.forever() {
                match lock(&heard).take() {
                    Some(controls) => controls.cancel(),
                    // What is printed so far is in the spool: the next start stores it.
                    None => drop(emulate_default_handler(signal)),
                }
            }
        });
        Ok(Self { turn })
    }

    /// From now on the first signal cancels this turn.
    pub(crate) fn cancel(&self, controls: Controls) {
        *lock(&self.turn) = Some(controls);
    }

    /// The turn is over.
    pub(crate) fn rest(&self) {
        *lock(&self.turn) = None;
    }
}

fn lock(turn: &Mutex<Option<Controls>>) -> MutexGuard<'_, Option<Controls>> {
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}
