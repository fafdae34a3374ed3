//! Trying again while that may help: a server is restarted, or another one takes its place.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// The waits between attempts, from the first to those that follow each other until patience ends.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Why an attempt did not work.
pub(crate) trait MayPass {
    /// Says whether it may go away by itself.
    fn is_passing(&self) -> bool;
}

/// Repeats an attempt while its fault may pass and patience lasts. A fault comes with how long it was tried.
pub(crate) async fn again_and_again<R, F: MayPass, A>(
    patience: Duration,
    attempt: impl Fn() -> A,
) -> Result<R, (F, Duration)>
where
    A: Future<Output = Result<R, F>>,
{
    let started = Instant::now();
    let mut wait = SHORTEST_WAIT;
    loop {
        let fault = match attempt().await {
            Ok(answer) => return Ok(answer),
            Err(fault) => fault,
        };
        let waited = started.elapsed();
        if !fault.is_passing() || waited + wait > patience {
            return Err((fault, waited));
        }
        // Uneven, so that clients that were thrown out together do not come back together.
        tokio::time::sleep(wait.mul_f64(0.5 + chance())).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Returns something between 0 and 1.
fn chance() -> f64 {
    f64::from(RandomState::new().build_hasher().finish() as u32) / f64::from(u32::MAX)
}
