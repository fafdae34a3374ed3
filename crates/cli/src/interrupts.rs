//! Ctrl-C, and the other ways to ask a program to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::failure::Failure;

/// The time that the reaction to the first signal has to note in the spool that the turn is cancelled. A second signal that
/// comes earlier waits for that, so that the turn is stored as cancelled.
const NOTED_WITHIN: Duration = Duration::from_millis(200);

/// What the first signal does.
type Reaction = Box<dyn FnOnce() + Send>;

/// Handles signals: the first during a task ends the task; a second one, or one at another time, ends the program.
pub(crate) struct Interrupts {
    reaction: Arc<Mutex<Option<Reaction>>>,
}

/// Says whether an interrupt has come.
pub(crate) struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    pub(crate) fn has_happened(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Interrupts {
    /// Begins to listen.
    pub(crate) fn listen() -> Result<Self, Failure> {
        // `nohup` has it ignored, and means us. Of the others that says nothing: a shell has its background ignore SIGINT,
        // and a sender that signals us then means us too.
        let heard =
            [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| *signal != SIGHUP || !is_ignored(SIGHUP));
        let mut signals = Signals::new(heard)
            .map_err(|error| Failure::new("signals", format!("signals cannot be heard: {error}")))?;
        let reaction: Arc<Mutex<Option<Reaction>>> = Arc::default();
        let heard = Arc::clone(&reaction);
        thread::spawn(move || {
            let mut reacted: Option<Instant> = None;
            for signal in signals.forever() {
                let reaction = lock(&heard).take();
                match reaction {
                    // On a thread of its own, so that a second signal is heard while it takes its time.
                    Some(react) => {
                        reacted = Some(Instant::now());
                        thread::spawn(react);
                    }
                    // What is printed so far is in the spool: the next start stores it.
                    None => {
                        let since = reacted.map_or(NOTED_WITHIN, |reacted| reacted.elapsed());
                        thread::sleep(NOTED_WITHIN.saturating_sub(since));
                        drop(emulate_default_handler(signal));
                    }
                }
            }
        });
        Ok(Self { reaction })
    }

    /// From now on the first signal does this.
    pub(crate) fn on_interrupt(&self, react: impl FnOnce() + Send + 'static) -> Interrupted {
        let happened = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&happened);
        *lock(&self.reaction) = Some(Box::new(move || {
            noted.store(true, Ordering::SeqCst);
            react();
        }));
        Interrupted(happened)
    }

    /// What went on is over.
    pub(crate) fn rest(&self) {
        *lock(&self.reaction) = None;
    }
}

/// Says whether a signal is ignored. Where the system does not tell, none is.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask.checked_shr(u32::try_from(signal - 1).unwrap_or(u32::MAX)).is_some_and(|rest| rest & 1 == 1)
}

fn lock(reaction: &Mutex<Option<Reaction>>) -> MutexGuard<'_, Option<Reaction>> {
    reaction.lock().unwrap_or_else(PoisonError::into_inner)
}
