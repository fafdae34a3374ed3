//! Times and what is said of them, in the way of the raw limit, so that the two can be compared.

use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the processor time that this process has used, in seconds, all of its threads together.
pub(crate) fn processor_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// Returns the time below which this part of `times` lies; nothing where there are none.
pub(crate) fn percentile(times: &[f64], part: f64) -> Option<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * part).round() as usize).copied()
}

pub(crate) fn median(times: &[f64]) -> Option<f64> {
    percentile(times, 0.5)
}

/// Does `work` so many times and returns the median of the milliseconds, with what the last one gave.
///
/// What `work` drops is part of its time, as it is part of the limit's.
pub(crate) fn repeated<T>(times: usize, mut work: impl FnMut() -> Result<T>) -> Result<(f64, T)> {
    let mut taken = Vec::with_capacity(times);
    loop {
        let start = Instant::now();
        let result = work()?;
        taken.push(milliseconds(start.elapsed()));
        if taken.len() >= times {
            return Ok((median(&taken).unwrap_or(f64::NAN), result));
        }
    }
}

/// The times of many turns in a row.
pub(crate) struct Appending {
    started: Instant,
    processor: f64,
    turns: Vec<f64>,
}

impl Appending {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), processor: processor_seconds(), turns: Vec::new() }
    }

    /// Takes the time of one turn.
    pub(crate) fn turn<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = work()?;
        self.turns.push(milliseconds(start.elapsed()));
        Ok(result)
    }

    /// Returns what the table shows, up to now.
    pub(crate) fn report(&self) -> Value {
        let total = self.started.elapsed().as_secs_f64();
        let processor = processor_seconds() - self.processor;
        let turns = &self.turns;
        let around = |from: usize, to: usize| turns.get(from..to).and_then(median);
        json!({
            "turns": turns.len(),
            "total_s": total,
            "turns_per_s": turns.len() as f64 / total,
            "p50_ms": median(turns),
            "p99_ms": percentile(turns, 0.99),
            "max_ms": percentile(turns, 1.0),
            "at100_ms": around(80, 120),
            "at500_ms": around(480, 520),
            "at1000_ms": around(980, 1020),
            "at2000_ms": around(1960, 2000),
            "cpu_s": processor,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_limit() {
        let times = [4.0, 1.0, 3.0, 2.0, 5.0];
        assert_eq!(median(&times), Some(3.0));
        assert_eq!(percentile(&times, 0.99), Some(5.0));
        assert_eq!(percentile(&[1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn work_is_repeated_as_often_as_was_asked() {
        let mut calls = 0;
        let (_, last) = repeated(3, || {
            calls += 1;
            Ok(calls)
        })
        .unwrap();
        assert_eq!((calls, last), (3, 3));
    }
}
