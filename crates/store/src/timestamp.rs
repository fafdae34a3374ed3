//! Times, as every store writes them.

use std::time::SystemTime;

#[cfg(any(feature = "redis", feature = "sqlite"))]
use azureal_core::normal_timestamp;
use azureal_core::{NewSession, NewTurn};
use jiff::Timestamp;

fn present() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::MAX)
}

fn written(time: Timestamp) -> String {
    time.strftime(azureal_core::TIMESTAMP_FORMAT).to_string()
}

/// Returns the present: UTC, to the second. A clock that is set beyond the year 9999 stands still there.
pub(crate) fn now() -> String {
    written(present())
}

/// Returns a time that was given; the present where none was.
pub(crate) fn given_or_now(time: &str) -> String {
    if time.is_empty() { now() } else { time.to_owned() }
}

/// Returns a time from elsewhere; `None` if it is none, or in the future. That is the time of a wrong clock, and its session would be
/// the first of the list until then.
fn past(time: Option<&str>) -> Option<String> {
    let given = time?.parse().ok();
    given.filter(|given| *given <= present()).map(written)
}

/// Returns the time of a turn from elsewhere; `None` if the turn happens now.
pub(crate) fn happened_at(turn: &NewTurn) -> Option<String> {
    past(turn.happened_at.as_deref())
}

/// Returns the time of the last activity of a new session; the present if it is not from elsewhere.
pub(crate) fn last_active_or_now(new: &NewSession) -> String {
    past(new.last_active.as_deref()).unwrap_or_else(now)
}

/// Returns the present, or the second after a time that is not before it: the clock may have been set back.
#[cfg(feature = "sqlite")]
pub(crate) fn later_than(time: &str) -> String {
    let next =
        time.parse().ok().and_then(|time: Timestamp| time.checked_add(jiff::Span::new().seconds(1)).ok());
    next.map_or_else(now, |next| written(next.max(present())))
}

/// Returns a time in seconds since 1970; that of a text that is none is 0.
#[cfg(feature = "redis")]
pub(crate) fn seconds(time: &str) -> i64 {
    time.parse::<Timestamp>().map_or(0, Timestamp::as_second)
}

/// Returns the time of a turn.
pub(crate) fn happened_at_or_now(turn: &NewTurn) -> String {
    happened_at(turn).unwrap_or_else(now)
}

/// The times of the sessions of a store, which are taken in the order of their changes. Other programs and earlier versions record none.
#[cfg(any(feature = "redis", feature = "sqlite"))]
pub(crate) struct ActivityTimes {
    now: String,
    latest: String,
}

#[cfg(any(feature = "redis", feature = "sqlite"))]
impl ActivityTimes {
    pub(crate) fn new() -> Self {
        Self { now: now(), latest: String::new() }
    }

    /// Returns the time of the next session's last activity. One without a time was active no earlier than it was created, nor than
    /// the sessions before it; a creation in the future says nothing.
    pub(crate) fn next(&mut self, last_active: &str, created: &str) -> String {
        let time = normal_timestamp(if last_active.is_empty() { created } else { last_active });
        if time <= self.now && time > self.latest {
            self.latest.clone_from(&time);
        }
        if last_active.is_empty() { self.latest.clone() } else { time }
    }
}
