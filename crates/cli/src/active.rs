//! Running turns, described for people.

use std::time::Duration;

use azureal::turns::ActiveTurn;
use azureal_core::visible_line;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::output::fit;

/// The longest prompt that is shown where any width would do.
const LONGEST_PROMPT: usize = 200;

/// Describes a running turn in one line of at most `width` columns: agent, time, process, place and prompt.
pub(crate) fn describe(turn: &ActiveTurn, now: Timestamp, width: Option<usize>) -> String {
    let process = turn.pid.map_or_else(|| "starting".to_owned(), |pid| format!("process {pid}"));
    let place = match (&turn.user, &turn.host) {
        (Some(user), Some(host)) => format!(", run by {user} on {host}"),
        _ if turn.orphan => ", in the background".to_owned(),
        _ => String::new(),
    };
    with_prompt(turn, &format!("{}, {process}{place}", who(turn, now)), width)
}

/// Describes a running turn in one line of at most `width` columns: agent, time, machine and prompt.
pub(crate) fn describe_briefly(turn: &ActiveTurn, now: Timestamp, width: Option<usize>) -> String {
    let place = turn.host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
    with_prompt(turn, &format!("{}{place}", who(turn, now)), width)
}

fn who(turn: &ActiveTurn, now: Timestamp) -> String {
    let model = turn.model.as_deref().map(|model| format!("/{model}")).unwrap_or_default();
    format!("{}{model} since {}", turn.agent, since(&turn.since, now, &TimeZone::system()))
}

fn with_prompt(turn: &ActiveTurn, who: &str, width: Option<usize>) -> String {
    let prompt = prompt(turn).map(|prompt| format!(": \"{prompt}\"")).unwrap_or_default();
    fit(&format!("{}{prompt}", visible_line(who)), width.unwrap_or(usize::MAX))
}

/// Returns the prompt on one line.
fn prompt(turn: &ActiveTurn) -> Option<String> {
    // A prompt may be megabytes long.
    let start: String = turn.prompt.as_ref()?.chars().take(4 * LONGEST_PROMPT).collect();
    let words: Vec<&str> = start.split_whitespace().collect();
    Some(fit(&visible_line(&words.join(" ")), LONGEST_PROMPT)).filter(|prompt| !prompt.is_empty())
}

/// Returns a time on the user's clock and how long ago that was: `14:02 (12 s)`. An older time has its date. A time that
/// cannot be read stays as it is.
fn since(time: &str, now: Timestamp, zone: &TimeZone) -> String {
    let Ok(began) = time.parse::<Timestamp>() else { return time.to_owned() };
    let elapsed = Duration::try_from(now.duration_since(began)).unwrap_or_default();
    let format = if elapsed < Duration::from_secs(86_400) { "%H:%M" } else { "%Y-%m-%d %H:%M" };
    format!("{} ({})", began.to_zoned(zone.clone()).strftime(format), in_words(elapsed))
}

/// Returns a length of time in its largest unit: 12 s, 3 min, 5 h, 2 days.
pub(crate) fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds @ 3_600..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_local_and_relative() {
        let now = "2026-01-31T12:30:00Z".parse().unwrap();
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        for (time, expected) in [
            ("2026-01-31T12:29:48Z", "14:29 (12 s)"),
            ("2026-01-31T09:02:00Z", "11:02 (3 h)"),
            ("2026-01-28T23:30:00Z", "2026-01-29 01:30 (2 days)"),
            // Clocks differ; a time is never in the future.
            ("2026-01-31T12:31:00Z", "14:31 (0 s)"),
            ("yesterday", "yesterday"),
        ] {
            assert_eq!(since(time, now, &zone), expected);
        }
    }
}
