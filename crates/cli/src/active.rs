//! Running turns, described for people.

use azureal::turns::ActiveTurn;
use azureal_core::visible_line;

use crate::output::fit;
use crate::times::Clock;

/// The longest prompt that is shown where any width would do.
const LONGEST_PROMPT: usize = 200;

/// Describes a running turn in one line of at most `width` columns: agent, time, process, place and prompt.
pub(crate) fn describe(turn: &ActiveTurn, clock: &Clock, width: Option<usize>) -> String {
    let process = turn.pid.map_or_else(|| "starting".to_owned(), |pid| format!("process {pid}"));
    let place = match (&turn.user, &turn.host) {
        (Some(user), Some(host)) => format!(", run by {user} on {host}"),
        _ if turn.orphan => ", in the background".to_owned(),
        _ if turn.interface => ", in its own interface".to_owned(),
        _ => String::new(),
    };
    with_prompt(turn, &format!("{}, {process}{place}", who(turn, clock)), width)
}

/// Describes a running turn in one line of at most `width` columns: agent, time, machine and prompt.
pub(crate) fn describe_briefly(turn: &ActiveTurn, clock: &Clock, width: Option<usize>) -> String {
    let place = turn.host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
    with_prompt(turn, &format!("{}{place}", who(turn, clock)), width)
}

fn who(turn: &ActiveTurn, clock: &Clock) -> String {
    let model = turn.model.as_deref().map(|model| format!("/{model}")).unwrap_or_default();
    format!("{}{model} since {}", turn.agent, clock.since(&turn.since))
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
