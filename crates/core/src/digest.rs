//! The summary that needs no model: what was asked, decided and answered, gathered under headings.
//!
//! The same events give the same text on every machine. It is what a compaction falls back to when no agent
//! writes a summary, and it never fails. Files, commands and failures are in the [`Ledger`](crate::Ledger), which stands beside every
//! summary.

use std::collections::VecDeque;

use crate::decision::decisions;
use crate::event::{Complete, Outcome};
use crate::prompts::{prompt_text, shortened};
use crate::{Block, Event, Role};

/// The longest digest, in characters.
const MOST_CHARS: usize = 4_000;
/// The number of items of one sort that are kept; the newest count.
const REMEMBERED: usize = 128;
/// A section with less room than this is left out: its lines would be marks.
const LEAST_SECTION: usize = 100;
/// The longest quotation of one item, in characters.
const QUOTED: usize = 200;

/// Words that make a sentence of the user a constraint.
const CONSTRAINTS: [&str; 14] = [
    "must", "never", "always", "don't", "dont", "only", "without", "should", "avoid", "keep", "ensure",
    "cannot", "require", "instead",
];
/// Gathers what matters from the events of a session, one at a time.
///
/// ```
/// use azureal_core::{Digest, Event};
///
/// let mut digest = Digest::default();
/// digest.push(&Event::user("Fix the login. You must not touch the tests."));
/// digest.push(&Event::assistant("The login works again."));
/// let text = digest.finish();
/// assert!(text.contains("Fix the login") && text.contains("must not touch the tests"));
/// assert!(text.ends_with("The login works again."));
/// ```
#[derive(Debug, Default)]
pub struct Digest {
    earlier: Option<String>,
    first_goal: Option<String>,
    goals: Newest<String>,
    constraints: Newest<String>,
    decisions: Newest<String>,
    last_answer: String,
    last_end: Option<Complete>,
}

impl Digest {
    /// Continues an earlier summary.
    pub fn after(summary: &str) -> Self {
        Self { earlier: Some(summary.to_owned()), ..Self::default() }
    }

    /// Takes the next event.
    pub fn push(&mut self, event: &Event) {
        if let Some(prompt) = prompt_text(event) {
            self.asked(&prompt);
            return;
        }
        match event {
            Event::AssistantText(said) if said.subagent.is_none() => self.answered(&said.text),
            Event::Plan(plan) => {
                self.decisions.add(format!("plan {}: {}", plan.name, one_line(&plan.content)));
            }
            Event::Complete(complete) => self.last_end = Some(complete.clone()),
            Event::Message(message) if message.role == Role::Assistant => {
                message.content.iter().filter_map(Block::as_text).for_each(|text| self.answered(text));
            }
            Event::AssistantText(_)
            | Event::Message(_)
            | Event::ToolCall(_)
            | Event::ToolResult(_)
            | Event::Error(_)
            | Event::UserMessage(_)
            | Event::SystemMessage(_)
            | Event::Command(_)
            | Event::Init(_)
            | Event::Hook(_)
            | Event::ModelSwitch(_)
            | Event::Compacting
            | Event::Compacted
            | Event::Reasoning(_)
            | Event::Changes(_)
            | Event::Undo(_)
            | Event::Unknown(_) => {}
        }
    }

    /// Returns the digest, at most 4 000 characters.
    pub fn finish(&self) -> String {
        self.finish_within(MOST_CHARS)
    }

    /// Returns the digest, at most so many characters. Its sections shrink in proportion.
    pub fn finish_within(&self, most: usize) -> String {
        // An earlier summary is the only source of its facts, so there is room for it.
        let most = most.min(MOST_CHARS);
        let room = |of_all: usize| {
            let room = of_all * most / MOST_CHARS;
            if self.earlier.is_some() { room * 2 / 3 } else { room }
        };
        let mut page = Page { text: String::new(), most };
        let first = self.first_goal.as_ref().map(|first| format!("first: “{first}”"));
        let first = first.as_deref().map(|first| shortened(first, room(250)));
        page.section(
            "What the user asked",
            first.as_deref(),
            &self.goals.lines(|goal| quoted(goal)),
            room(500),
        );
        let constraints = self.constraints.lines(|constraint| quoted(constraint));
        page.section("Constraints, in the user's words", None, &constraints, room(450));
        page.section("Decisions", None, &self.decisions.lines(String::clone), room(2_350));
        let mut stands = Lines::default();
        stands.shown.extend(self.last_end.as_ref().and_then(ending));
        if !self.last_answer.is_empty() {
            stands.shown.push(format!("last answer: {}", shortened(&self.last_answer, room(400).max(80))));
        }
        page.section("Where the work stands", None, &stands, room(450).max(150));
        match &self.earlier {
            Some(earlier) => page.below("Before that", earlier),
            None => page.text,
        }
    }

    fn asked(&mut self, prompt: &str) {
        let goal = one_line(prompt);
        if self.first_goal.is_none() && self.goals.is_empty() {
            self.first_goal = Some(goal);
        } else {
            self.goals.add(goal);
        }
        sentences(prompt).filter(|sentence| has_word(sentence, &CONSTRAINTS)).for_each(|sentence| {
            self.constraints.add(one_line(sentence));
        });
        // A new turn has begun.
        self.last_end = None;
    }

    fn answered(&mut self, text: &str) {
        decisions(text).for_each(|sentence| self.decisions.add_or_move(one_line(sentence)));
        self.last_answer =
            shortened(&text.split_whitespace().collect::<Vec<_>>().join(" "), 400).into_owned();
    }
}

/// Describes the end of a turn. `None` if it succeeded.
fn ending(complete: &Complete) -> Option<String> {
    let how = match complete.outcome {
        Some(Outcome::Done) => return None,
        _ if complete.continues => return None,
        None if complete.success => return None,
        Some(Outcome::Failed) | None => "failed",
        Some(Outcome::Cancelled) => "was cancelled",
        Some(Outcome::Timeout) => "took too long",
        Some(Outcome::Interrupted) => "was interrupted",
    };
    Some(format!("the last turn {how}"))
}

/// The newest things of a sort.
#[derive(Debug)]
struct Newest<T> {
    things: VecDeque<T>,
    /// The number of items before them.
    forgotten: usize,
}

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Self { things: VecDeque::new(), forgotten: 0 }
    }
}

impl<T: PartialEq> Newest<T> {
    fn add(&mut self, thing: T) {
        if self.things.len() == REMEMBERED {
            self.things.pop_front();
            self.forgotten += 1;
        }
        self.things.push_back(thing);
    }

    fn add_or_move(&mut self, thing: T) {
        self.things.retain(|known| *known != thing);
        self.add(thing);
    }

    fn is_empty(&self) -> bool {
        self.things.is_empty()
    }

    /// Renders the items.
    fn lines(&self, line: impl Fn(&T) -> String) -> Lines {
        Lines { shown: self.things.iter().map(line).collect(), before: self.forgotten }
    }
}

/// The lines of a section, and the number of items before them.
#[derive(Debug, Default)]
struct Lines {
    shown: Vec<String>,
    before: usize,
}

/// A text of sections, each within its own bound, so that none crowds out another.
#[derive(Debug)]
struct Page {
    text: String,
    most: usize,
}

impl Page {
    /// Adds a section of a first line that always stays, and of the newest lines that fit, in their order; of the newest at
    /// least its beginning.
    fn section(&mut self, heading: &str, first: Option<&str>, lines: &Lines, most: usize) {
        if most < LEAST_SECTION {
            return;
        }
        let mut left = most;
        let mut fits = |line: &str| match left.checked_sub(line.chars().count() + "- \n".len()) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        };
        let mut body: Vec<String> = Vec::new();
        if let Some(first) = first {
            fits(first);
            body.push(format!("- {first}"));
        }
        let fitting = lines.shown.iter().rev().take_while(|line| fits(line)).count();
        let (left_out, shown) = lines.shown.split_at(lines.shown.len() - fitting);
        let cut = left_out.last().filter(|_| shown.is_empty());
        let before = lines.before + left_out.len() - usize::from(cut.is_some());
        if before > 0 {
            body.push(format!("- … {before} before"));
        }
        body.extend(cut.map(|newest| format!("- {}", shortened(newest, (most / 2).saturating_sub(40)))));
        body.extend(shown.iter().map(|line| format!("- {line}")));
        if !body.is_empty() {
            self.add(heading, &body.join("\n"));
        }
    }

    /// Returns the page below another section, which gets all the room that is left.
    fn below(self, heading: &str, body: &str) -> String {
        const CUT: usize = "… [9999999 more characters]".len();
        let taken = self.text.chars().count() + heading.chars().count() + ":\n\n\n".len() + CUT;
        let room = self.most.saturating_sub(taken);
        if room < LEAST_SECTION {
            return self.text;
        }
        let body = shortened(body.trim(), room).into_owned();
        let mut page = Self { text: String::new(), most: self.most };
        page.add(heading, &body);
        if !self.text.is_empty() {
            page.text.push_str("\n\n");
            page.text.push_str(&self.text);
        }
        page.text
    }

    fn add(&mut self, heading: &str, body: &str) {
        let separator = if self.text.is_empty() { "" } else { "\n\n" };
        let section = format!("{separator}{heading}:\n{body}");
        if self.text.chars().count() + section.chars().count() <= self.most {
            self.text.push_str(&section);
        }
    }
}

fn quoted(text: &str) -> String {
    format!("“{text}”")
}

/// Returns the beginning of a text on one line.
fn one_line(text: &str) -> String {
    // Only as much as can be shown is put together, however long the text is.
    let line = text.split_whitespace().take(QUOTED).collect::<Vec<_>>().join(" ");
    shortened(&line, QUOTED).into_owned()
}

/// Takes a text apart where sentences and lines end. A dot inside a word, as in `main.rs`, ends none.
pub(crate) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n')
        .flat_map(|line| line.split_inclusive(". ").flat_map(|part| part.split_inclusive(['!', '?'])))
        .map(str::trim)
}

fn has_word(sentence: &str, words: &[&str]) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '\'' || c == '’';
    sentence
        .split(|c: char| !is_letter(c))
        .any(|word| words.contains(&word.replace('’', "'").to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(log: &[&str]) -> String {
        let mut digest = Digest::default();
        log.iter().for_each(|json| digest.push(&Event::from_json(json).unwrap()));
        digest.finish()
    }

    #[test]
    fn it_says_what_was_asked_decided_and_where_the_work_stands() {
        let text = digest(&[
            r#"{"UserMessage":{"content":"Make the login work.\nYou must not change main.rs. Thanks!"}}"#,
            r#"{"ToolCall":{"tool_use_id":"2","tool_name":"Bash","input":{"command":"cargo test"}}}"#,
            r#"{"ToolResult":{"tool_use_id":"2","tool_name":"Bash","content":"Exit code 101\nx","is_error":true}}"#,
            r#"{"AssistantText":{"text":"I decided to hash the token. The login works."}}"#,
            r#"{"Complete":{"success":true,"duration_ms":1,"cost_usd":0,"outcome":"done"}}"#,
            r#"{"UserMessage":{"content":"And now the logout"}}"#,
            r#"{"Complete":{"success":false,"duration_ms":1,"cost_usd":0,"outcome":"cancelled"}}"#,
        ]);
        assert_eq!(
            text,
            "What the user asked:\n\
             - first: “Make the login work. You must not change main.rs. Thanks!”\n\
             - “And now the logout”\n\n\
             Constraints, in the user's words:\n\
             - “You must not change main.rs.”\n\n\
             Decisions:\n\
             - I decided to hash the token.\n\n\
             Where the work stands:\n\
             - the last turn was cancelled\n\
             - last answer: I decided to hash the token. The login works."
        );
    }

    #[test]
    fn it_is_bounded_and_keeps_every_section() {
        let long = "You must never do that because it was decided instead. ".repeat(300);
        let mut digest = Digest::after(&long);
        for number in 0..300 {
            digest.push(&Event::user(format!("{number} {long}")));
            digest.push(&Event::assistant(&long));
        }
        let text = digest.finish();
        assert!(text.chars().count() <= MOST_CHARS, "{}", text.chars().count());
        for heading in ["Before that", "What the user", "Constraints", "Decisions", "Where"] {
            assert!(text.contains(heading), "{heading} is missing: {text}");
        }
        assert!(text.contains("- first: “0 You must"), "{text}");
        assert!(text.contains("“299 You must") && text.contains(" before\n"), "{text}");
        for most in [2_000, 555, 222, 0] {
            let text = digest.finish_within(most);
            assert!(text.chars().count() <= most, "{most}: {text}");
        }
    }

    #[test]
    fn an_earlier_summary_gets_the_room_that_is_left() {
        let earlier = format!("{} The last fact.", "A fact of some length. ".repeat(60));
        let mut short = Digest::after(&earlier);
        short.push(&Event::user("Go on"));
        assert_eq!(
            short.finish(),
            format!("Before that:\n{}\n\nWhat the user asked:\n- first: “Go on”", earlier.trim())
        );
        let mut crowded = Digest::after(&earlier.repeat(4));
        (0..300)
            .for_each(|number| crowded.push(&Event::user(format!("{number} You must {}", "x".repeat(300)))));
        let text = crowded.finish();
        let kept = text.split("What the user").next().unwrap().chars().count();
        assert!(kept > 1_500 && text.chars().count() <= MOST_CHARS, "{kept}: {text}");
    }

    #[test]
    fn nothing_happened_is_an_empty_digest() {
        assert_eq!(digest(&[]), "");
    }
}
