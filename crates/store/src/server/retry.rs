//! Retries with backoff: a server restarts, or another one takes its place.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

/// The first and the longest delay between attempts.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const LONGEST_DELAY: Duration = Duration::from_millis(500);

/// Whether to retry an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    No,
    /// Without a delay.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "only PostgreSQL has such errors"))]
    AtOnce,
    AfterDelay,
}

/// The error of an attempt.
pub(crate) trait Transient {
    /// Returns the kind of the error, for the log. Its message may hold values that were sent to the server.
    fn kind(&self) -> &'static str;

    /// Returns whether it may go away by itself.
    fn is_transient(&self) -> bool;

    /// Returns whether a retry may help. `is_retry` is whether the attempt was one already.
    fn retry(&self, _is_retry: bool) -> Retry {
        if self.is_transient() { Retry::AfterDelay } else { Retry::No }
    }
}

/// Repeats an attempt while a retry may help and the budget lasts. The argument of `attempt` is whether it is a
/// retry. An error comes with the time that was spent.
pub(crate) async fn retry_with_backoff<R, E: Transient, A>(
    budget: Duration,
    attempt: impl Fn(bool) -> A,
) -> Result<R, (E, Duration)>
where
    A: Future<Output = Result<R, E>>,
{
    let started = Instant::now();
    let (mut delay, mut is_retry) = (FIRST_DELAY, false);
    loop {
        let error = match attempt(is_retry).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let spent = started.elapsed();
        match error.retry(is_retry) {
            Retry::AtOnce => debug!(error = error.kind(), "retries a store call at once"),
            Retry::AfterDelay if spent + delay <= budget => {
                let (delay_ms, spent_ms) = (delay.as_millis(), spent.as_millis());
                warn!(error = error.kind(), delay_ms, spent_ms, "retries a store call after a delay");
                // With jitter, so that clients that were disconnected together do not reconnect together.
                sleep(delay.mul_f64(0.5 + jitter())).await;
                delay = (delay * 2).min(LONGEST_DELAY);
            }
            Retry::AfterDelay => {
                warn!(error = error.kind(), spent_ms = spent.as_millis(), "the retry budget is spent");
                return Err((error, spent));
            }
            Retry::No => {
                debug!(error = error.kind(), "does not retry a store call: the error is not transient");
                return Err((error, spent));
            }
        }
        is_retry = true;
    }
}

/// Returns a random number from 0 to 1.
fn jitter() -> f64 {
    f64::from(RandomState::new().build_hasher().finish() as u32) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::runtime::Builder;

    use super::*;

    /// An error with what it says about retries.
    #[derive(Debug, PartialEq)]
    struct Says(Retry);

    impl Transient for Says {
        fn kind(&self) -> &'static str {
            "test"
        }

        fn is_transient(&self) -> bool {
            self.0 != Retry::No
        }

        fn retry(&self, is_retry: bool) -> Retry {
            if self.0 == Retry::AtOnce && is_retry { Retry::No } else { self.0 }
        }
    }

    /// Runs attempts whose errors are these, then ones that succeed, on a clock that waits for nobody. Returns the outcome,
    /// the attempts with whether each was a retry, and the time that all took.
    fn attempts(budget: Duration, errors: &[Retry]) -> (Result<(), (Says, Duration)>, Vec<bool>, Duration) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (began, made) = (Instant::now(), RefCell::new(Vec::new()));
            let outcome = retry_with_backoff(budget, |is_retry| {
                let error = errors.get(made.borrow().len()).copied();
                made.borrow_mut().push(is_retry);
                async move { error.map_or(Ok(()), |retry| Err(Says(retry))) }
            })
            .await;
            (outcome, made.into_inner(), began.elapsed())
        })
    }

    #[test]
    fn a_transient_error_is_retried_until_it_is_gone() {
        let (outcome, made, took) = attempts(Duration::from_secs(30), &[Retry::AfterDelay; 3]);
        assert_eq!((outcome, made), (Ok(()), vec![false, true, true, true]));
        // 20, 40 and 80 ms, each with a jitter of one half.
        assert!((70..=220).contains(&took.as_millis()), "{took:?}");
    }

    #[test]
    fn retries_end_with_the_budget() {
        let (outcome, made, took) = attempts(Duration::from_secs(10), &[Retry::AfterDelay; 1000]);
        let (error, spent) = outcome.unwrap_err();
        assert_eq!(error, Says(Retry::AfterDelay));
        assert!(spent <= took && took <= Duration::from_secs(11), "{spent:?} {took:?}");
        assert!(spent >= Duration::from_secs(9) && made.len() > 13, "{spent:?}, {} attempts", made.len());
        let (outcome, made, _) = attempts(Duration::ZERO, &[Retry::AfterDelay]);
        assert_eq!((outcome.is_err(), made), (true, vec![false]));
    }

    #[test]
    fn retries_and_their_end_are_logged() {
        let log = azureal_testkit::captured_log(|| {
            drop(attempts(Duration::from_millis(50), &[Retry::AfterDelay; 10]));
        });
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(r#"error="test""#)).collect();
        let (last, retries) = lines.split_last().unwrap();
        assert!(last.contains("WARN") && last.contains("the retry budget is spent"), "{log}");
        assert!(!retries.is_empty(), "{log}");
        assert!(retries.iter().all(|line| line.contains("retries a store call after a delay")), "{log}");
    }

    #[test]
    fn an_error_that_stays_is_not_retried() {
        let (outcome, made, took) = attempts(Duration::from_secs(30), &[Retry::No]);
        assert_eq!((outcome.is_err(), made, took), (true, vec![false], Duration::ZERO));
    }

    #[test]
    fn a_retry_at_once_needs_no_time_and_no_budget() {
        let (outcome, made, took) = attempts(Duration::ZERO, &[Retry::AtOnce]);
        assert_eq!((outcome, made, took), (Ok(()), vec![false, true], Duration::ZERO));
        let (outcome, made, _) = attempts(Duration::ZERO, &[Retry::AtOnce, Retry::AtOnce]);
        assert_eq!((outcome.is_err(), made), (true, vec![false, true]));
    }
}
