use std::str::FromStr;

use azureal_core::{Seq, SessionRecord, TurnIndex};
use serde_json::json;

use super::SessionArg;
use crate::failure::Failure;
use crate::output::{Output, counted, warn};
use azureal::sessions::{called, resolve};
use azureal::{Forked, Workspace};

/// Copy a session's history up to a point into a new session
///
/// The new session belongs to the current worktree and gets a number of its own. Summaries that lie within
/// the copied history are copied too; cost, duration and tokens begin at zero. The original is not changed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal fork S3                         all of it
  azureal fork S3 --at turn:5             up to the end of turn 5; `azureal show S3` shows the numbers
  azureal fork S3 --at 12 --name try-two  up to event 12; `azureal show S3 --json` shows all events")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Copy up to this event (42), or up to the end of this turn (turn:5)
    #[arg(long, value_name = "PLACE")]
    at: Option<Place>,
    /// Name the new session
    #[arg(long)]
    name: Option<String>,
}

/// The end of the history that is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// An event, which is copied.
    Event(u64),
    /// The last event of a turn.
    Turn(usize),
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let place = match text.strip_prefix("turn:") {
            Some(turn) => turn.parse().ok().filter(|turn| *turn > 0).map(Self::Turn),
            None => text.parse().ok().filter(|seq| *seq > 0).map(Self::Event),
        };
        place.ok_or("it takes the number of an event (42) or of a turn (turn:5), from 1 on")
    }
}

/// Returns the last event to copy.
async fn last_event(place: &Workspace, record: &SessionRecord, at: Option<Place>) -> Result<Seq, Failure> {
    let turn = match at {
        None => return Ok(Seq::END),
        Some(Place::Event(seq)) => return Ok(Seq(seq)),
        Some(Place::Turn(turn)) => turn,
    };
    let turns = TurnIndex::read(&*place.store, record.id).await?;
    turns.last_event(turn).ok_or_else(|| {
        let count = counted(turns.count() as u64, "turn");
        Failure::new("not_found", format!("{} has no turn {turn}: it has {count}", called(record)))
            .with_hint(format!("`azureal show {}` shows the turns with their numbers", record.id))
    })
}

pub(crate) async fn run(args: &Args, place: &Workspace, out: &mut Output) -> Result<(), Failure> {
    let original = resolve(&*place.store, &args.session.session).await?;
    let at = last_event(place, &original, args.at).await?;
    let Forked { record: fork, lacks_originals } =
        place.fork_session(original.id, at, args.name.as_deref()).await?;
    if lacks_originals {
        warn(&format!("the output of its turns was not copied whole; {} has it", called(&original)));
    }
    if out.is_json() {
        out.json(&json!({
            "id": fork.id.to_string(),
            "name": fork.name,
            "from": original.id.to_string(),
            "event_count": fork.counts.events,
        }))
    } else {
        out.line(&format!(
            "{} is a fork of {} with {}",
            called(&fork),
            called(&original),
            counted(fork.counts.events, "event")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_event_or_a_turn() {
        assert_eq!("42".parse(), Ok(Place::Event(42)));
        assert_eq!("turn:5".parse(), Ok(Place::Turn(5)));
        for text in
            ["", "0", "turn:0", "turn:", "turn:-1", "-1", "Turn:1", "5.", "turn: 5", "99999999999999999999"]
        {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
