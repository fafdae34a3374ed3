//! The event after which a summary ends and the record continues.
//!
//! The newest prompts and everything after them stay as they are; older events are summarised. The commonest session
//! that is too long is one long turn, so the boundary may be inside the last turn.

use std::fmt;

use crate::pairs::Pairs;
use crate::prompts::{begins_turn, continues_turn};
use crate::session_context::is_system;
use crate::{Block, Event, Seq, rendered_chars};

/// The size of a session's record at which it is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    /// So many characters of context.
    Chars(u64),
    /// This many tokens. Without a count of the provider, four characters are one token.
    Tokens(u64),
}

impl Threshold {
    /// Returns it in characters.
    pub fn chars(self) -> u64 {
        match self {
            Self::Chars(chars) => chars,
            Self::Tokens(tokens) => tokens.saturating_mul(4),
        }
    }
}

impl Threshold {
    /// Returns whether a session with a record of so many characters is over it. A limit in tokens is compared with the
    /// provider's count, if there is one.
    pub fn is_exceeded_by(self, record_chars: u64, counted_tokens: Option<u64>) -> bool {
        match (self, counted_tokens) {
            (Self::Tokens(limit), Some(tokens)) => tokens > limit,
            _ => record_chars > self.chars(),
        }
    }
}

impl Default for Threshold {
    fn default() -> Self {
        Self::Chars(400_000)
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chars(count) => write!(f, "{count} characters"),
            Self::Tokens(count) => write!(f, "{count} tokens"),
        }
    }
}

/// The part that stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keep {
    /// The last three prompts and everything after them. Fewer prompts, or only a part of the last turn, if there
    /// would be no event to summarise or more than half of the threshold would stay.
    #[default]
    Usual,
    /// Exactly so many prompts and all after the first of them.
    Prompts(usize),
}

/// The end of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary {
    /// The last event that it covers.
    pub after_seq: Seq,
    /// Whether the turn that it ends in continues after it. Then the context carries the turn's whole prompt.
    pub inside_turn: bool,
}

/// The number of prompts that stay, in order of preference.
const PROMPTS: [usize; 3] = [3, 2, 1];

/// Finds the event at which a summary of `events` should end. `None` if there is no event to summarise. `events` are
/// those since the last compaction.
///
/// It never separates a tool call from its result, and never ends behind an open call of an unfinished turn.
///
/// ```
/// use azureal_core::{Event, Keep, Seq, Threshold, boundary};
///
/// let log = ["one", "two", "three", "four"].map(Event::user);
/// let log: Vec<_> = (1..).map(Seq).zip(log).collect();
/// let found = boundary(&log, Threshold::default(), Keep::Usual).unwrap();
/// assert_eq!((found.after_seq, found.inside_turn), (Seq(1), false)); // three prompts stay
/// assert_eq!(boundary(&log[..1], Threshold::default(), Keep::Usual), None);
/// ```
pub fn boundary(events: &[(Seq, Event)], threshold: Threshold, keep: Keep) -> Option<Boundary> {
    let log = Log::of(events);
    let cut = match keep {
        Keep::Usual => log.usual_cut(threshold.chars()),
        Keep::Prompts(count) => log.keeping(count).filter(|cut| log.covers_anything(*cut)),
    }?;
    let (covered, rest) = events.split_at_checked(cut)?;
    let after_seq = covered.last()?.0;
    Some(Boundary { after_seq, inside_turn: continues_turn(rest.iter().map(|(_, event)| event)) })
}

/// Events as far as a cut depends on them.
struct Log {
    /// The characters that each event adds to the context. The session's system message counts as 0 because every
    /// context has it.
    sizes: Vec<u64>,
    prompts: Vec<usize>,
    pairs: Pairs,
    /// No cut may be behind this index: a call that waits for its result.
    end: usize,
}

impl Log {
    fn of(events: &[(Seq, Event)]) -> Self {
        let mut log =
            Self { sizes: Vec::new(), prompts: Vec::new(), pairs: Pairs::default(), end: events.len() };
        // Where the turn begins that is not over. What stands before any prompt belongs to one that began
        // before.
        let mut unfinished = Some(0);
        let mut begins = true;
        for (index, (_, event)) in events.iter().enumerate() {
            let told = rendered_chars(event);
            log.sizes.push(if begins && is_system(event) { 0 } else { told });
            begins &= told == 0;
            log.pair(index, event);
            if begins_turn(event) {
                log.prompts.push(index);
                unfinished = Some(index);
            }
            if matches!(event, Event::Complete(_)) {
                unfinished = None;
            }
        }
        if let Some(open) = unfinished.and_then(|begin| log.pairs.first_open(begin)) {
            log.end = open;
        }
        log
    }

    fn pair(&mut self, index: usize, event: &Event) {
        match event {
            Event::ToolCall(call) => self.pairs.call(index, &call.tool_use_id),
            Event::ToolResult(result) => self.pairs.result(index, &result.tool_use_id),
            Event::Message(message) => {
                for block in &message.content {
                    match block {
                        Block::ToolUse { id, .. } => self.pairs.call(index, id),
                        Block::ToolResult { tool_use_id, .. } => self.pairs.result(index, tool_use_id),
                        Block::Text { .. } | Block::Image(_) => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn usual_cut(&self, threshold: u64) -> Option<usize> {
        let cuts = || PROMPTS.into_iter().filter_map(|count| self.keeping(count));
        cuts()
            .find(|cut| self.covers_anything(*cut) && self.left_after(*cut) <= threshold / 2)
            .or_else(|| self.cut_inside_last_turn(threshold / 4))
            // One that leaves much is better than none.
            .or_else(|| cuts().rev().find(|cut| self.covers_anything(*cut)))
    }

    /// Returns the cut that leaves so many prompts; `None` if there are not more.
    fn keeping(&self, prompts: usize) -> Option<usize> {
        let first_kept = match prompts {
            0 => self.sizes.len(),
            count => *self.prompts.get(self.prompts.len().checked_sub(count)?)?,
        };
        Some(self.pairs.cut_before(first_kept.min(self.end)))
    }

    /// Returns the cut inside the last turn that leaves the newest events, at most `room` characters of them,
    /// yet at least the last; `None` if there is no such cut that covers more than the prompt.
    fn cut_inside_last_turn(&self, room: u64) -> Option<usize> {
        let begin = self.prompts.last().map_or(0, |prompt| prompt + 1);
        let mut left = room;
        let fitting = self.sizes.iter().rev().take_while(|size| match left.checked_sub(**size) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        });
        let wanted = self.sizes.len() - fitting.count();
        let cut = self.pairs.cut_after(wanted);
        let last = self.sizes.iter().rposition(|size| *size > 0)?;
        let cut = if cut > last || cut > self.end { self.pairs.cut_before(last.min(self.end)) } else { cut };
        let covers_more = self.sizes.get(begin..cut)?.iter().any(|size| *size > 0);
        covers_more.then_some(cut)
    }

    fn covers_anything(&self, cut: usize) -> bool {
        self.sizes.iter().take(cut).any(|size| *size > 0)
    }

    fn left_after(&self, cut: usize) -> u64 {
        self.sizes.iter().skip(cut).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Complete;

    fn call(id: &str) -> Event {
        let json = format!(r#"{{"ToolCall":{{"tool_use_id":"{id}","tool_name":"Bash","input":{{}}}}}}"#);
        Event::from_json(&json).unwrap()
    }

    fn result(id: &str, length: usize) -> Event {
        let content = "x".repeat(length);
        let json =
            format!(r#"{{"ToolResult":{{"tool_use_id":"{id}","tool_name":"Bash","content":"{content}"}}}}"#);
        Event::from_json(&json).unwrap()
    }

    fn done() -> Event {
        Event::Complete(Complete::default())
    }

    #[track_caller]
    fn check(events: &[Event], threshold: u64, keep: Keep, expected: Option<(u64, bool)>) {
        let log: Vec<_> = (1..).map(Seq).zip(events.iter().cloned()).collect();
        let found = boundary(&log, Threshold::Chars(threshold), keep);
        assert_eq!(found.map(|found| (found.after_seq.0, found.inside_turn)), expected);
    }

    #[test]
    fn three_prompts_stay_then_two_then_one() {
        let turn = |text: &str| [Event::user(text), Event::assistant("ok"), done()];
        let turns: Vec<Event> = ["1", "2", "3", "4", "5"].into_iter().flat_map(turn).collect();
        check(&turns, 10_000, Keep::Usual, Some((6, false)));
        check(&turns[..9], 10_000, Keep::Usual, Some((3, false)));
        check(&turns[..6], 10_000, Keep::Usual, Some((3, false)));
        check(&turns[..3], 10_000, Keep::Usual, None);
        check(&turns, 10_000, Keep::Prompts(1), Some((12, false)));
        check(&turns, 10_000, Keep::Prompts(0), Some((15, false)));
        check(&turns, 10_000, Keep::Prompts(5), None);
        check(&[], 10_000, Keep::Prompts(0), None);
    }

    #[test]
    fn a_system_message_alone_is_nothing_to_summarise() {
        let system =
            Event::SystemMessage(crate::event::SystemMessage { content: "s".into(), ..Default::default() });
        check(&[system.clone(), Event::user("1")], 10_000, Keep::Usual, None);
        check(&[system, Event::user("1"), Event::user("2")], 10_000, Keep::Usual, Some((2, false)));
    }

    #[test]
    fn one_long_turn_is_cut_inside_and_calls_keep_their_results() {
        let mut turn = vec![Event::user("go")];
        for number in 0..20 {
            turn.extend([call(&number.to_string()), result(&number.to_string(), 100)]);
        }
        // Each pair has about 150 characters; a quarter of 2 400 leaves four of them, less what the headings
        // take.
        let log: Vec<_> = (1..).map(Seq).zip(turn.clone()).collect();
        let found = boundary(&log, Threshold::Chars(2_400), Keep::Usual).unwrap();
        assert!(found.inside_turn);
        assert!(found.after_seq.0 % 2 == 1 && (31..41).contains(&found.after_seq.0), "{found:?}");
        // What a tool has not answered yet is not covered, whatever the size.
        turn.truncate(2);
        turn.extend((0..20).map(|number| Event::assistant(format!("{number} {}", "y".repeat(200)))));
        check(&turn, 2_400, Keep::Usual, None);
        turn.push(result("0", 10));
        check(&turn, 2_400, Keep::Prompts(0), Some((23, false)));
    }

    #[test]
    fn a_long_last_turn_is_cut_although_there_are_others() {
        let long = |number: usize| Event::assistant(format!("{number}{}", "y".repeat(500)));
        let mut log = vec![Event::user("first"), Event::assistant("ok"), done(), Event::user("second")];
        log.extend((0..20).map(long));
        check(&log, 4_000, Keep::Usual, Some((23, true)));
    }
}
