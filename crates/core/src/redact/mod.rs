//! Masking of secrets in text that leaves azureal: exports, logs, output for other people.
//!
//! Five detectors look at a text: the values of the user's own secret environment variables, the user's own
//! patterns, private keys ([`private_key`]), the shapes of well-known keys and tokens ([`shapes`]), and values with
//! a secret name, such as `DB_PASSWORD=…` ([`named`]). `docs/redaction.md` says what they find and what they miss.
//!
//! Masking is a net. It reduces accidents, and is no protection against a user who hides a secret on purpose.

mod guard;
mod json;
mod named;
mod private_key;
mod shapes;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use memchr::memmem;
use regex::{Regex, RegexBuilder};

use self::named::NamedValues;
use self::shapes::Shapes;
use crate::Event;
use crate::control_sequences::Uncoloured;

/// The beginning of every mask.
const OPEN: &str = "[redacted: ";
/// The longest label of a mask, in bytes.
const LONGEST_LABEL: usize = 80;
/// The longest pattern of the user, in bytes.
const LONGEST_PATTERN: usize = 4096;
/// The limit of a compiled pattern of the user, in bytes.
const LARGEST_PATTERN: usize = 1 << 20;
/// A mask can move the beginning of a word. So a masked text is looked at again, at most so often.
const MOST_PASSES: usize = 4;

/// Replaces secrets in a text by masks such as `[redacted: github token]`.
///
/// Cheap to clone. A redacted text stays as it is when it is redacted again.
///
/// ```
/// use azureal_core::Redactor;
///
/// let redactor = Redactor::new([("CI_TOKEN", "f00dcafe1234")], &[r"ACME-\d{6}"])?;
/// assert_eq!(redactor.redact("ACME-123456, f00dcafe1234"), "[redacted: own pattern], [redacted: value of CI_TOKEN]");
/// assert_eq!(redactor.redact("DB_PASSWORD=hunter2"), "DB_PASSWORD=[redacted: password]");
/// assert_eq!(redactor.redact("let token = parser.next_token();"), "let token = parser.next_token();");
/// # Ok::<(), azureal_core::RedactError>(())
/// ```
#[derive(Clone)]
pub struct Redactor(Arc<Rules>);

struct Rules {
    exact: Vec<ExactValue>,
    own: Vec<Regex>,
    shapes: Shapes,
    named: NamedValues,
}

/// The value of a secret environment variable.
struct ExactValue {
    label: String,
    finder: memmem::Finder<'static>,
}

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedactError {
    /// It is no regular expression, or too large a one.
    #[error("the pattern `{pattern}` cannot be used: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The reason.
        reason: String,
    },
    /// There are too many patterns.
    #[error("there are {0} patterns; allowed are {most}", most = Redactor::MOST_PATTERNS)]
    TooMany(usize),
}

/// A secret in a text. Of two that overlap, the label of the lower rank is shown.
struct Found<'r> {
    range: Range<usize>,
    label: &'r str,
    rank: Rank,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Exact,
    PrivateKey,
    Shape,
    Own,
    Named,
}

impl Redactor {
    /// The largest number of patterns of the user.
    pub const MOST_PATTERNS: usize = 64;

    /// Creates a redactor from the user's environment and own patterns.
    ///
    /// Of the environment, only variables with secret names count, such as `API_TOKEN`, and passwords in URLs. A short value or
    /// one that is an ordinary word is not used: it would mask that word everywhere.
    ///
    /// A pattern is a regular expression. If it has a group, only the first group is masked.
    pub fn new<'a, P: AsRef<str>>(
        environment: impl IntoIterator<Item = (&'a str, &'a str)>,
        patterns: &[P],
    ) -> Result<Self, RedactError> {
        if patterns.len() > Self::MOST_PATTERNS {
            return Err(RedactError::TooMany(patterns.len()));
        }
        let own = patterns.iter().map(|pattern| own_pattern(pattern.as_ref())).collect::<Result<_, _>>()?;
        let built_in = |error: regex::Error| RedactError::Pattern {
            pattern: "built-in".to_owned(),
            reason: reason_of(&error),
        };
        let shapes = Shapes::new().map_err(built_in)?;
        let named = NamedValues::new().map_err(built_in)?;
        Ok(Self(Arc::new(Rules { exact: exact_values(environment), own, shapes, named })))
    }

    /// Masks the secrets in a text. Borrows the text if there is none. Takes time that is linear in its length.
    ///
    /// A JSON text stays JSON: no built-in rule removes one side of a quotation mark or of an escape sequence. A pattern of the user can;
    /// [`redact_event_json`](Self::redact_event_json) is safe from that.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(mut masked) = self.pass(text) else { return Cow::Borrowed(text) };
        for _ in 1..MOST_PASSES {
            match self.pass(&masked) {
                Some(more) => masked = more,
                None => break,
            }
        }
        Cow::Owned(masked)
    }

    /// Masks the secrets in an event, inputs of tools included. Borrows the event if there is none.
    pub fn redact_event<'e>(&self, event: &'e Event) -> Cow<'e, Event> {
        let text = event.to_json();
        match self.redact_event_json(&text) {
            Cow::Borrowed(_) => Cow::Borrowed(event),
            // A pattern of the user can match a word that an event needs. The secret stays out all the same.
            Cow::Owned(masked) => Cow::Owned(Event::from_json(&masked).unwrap_or_else(|_| {
                Event::error("redacted", format!("the masks make this {} unreadable", event.kind()))
            })),
        }
    }

    /// Masks the secrets in the JSON text of an event: in every string, each decoded first. The names of the event's kind and fields stay.
    ///
    /// Everything else stays as it is, byte for byte. A text that is no JSON is masked like any other text.
    pub fn redact_event_json<'t>(&self, text: &'t str) -> Cow<'t, str> {
        json::redact(self, text)
    }

    /// Masks once; `None` if there is no secret.
    fn pass(&self, text: &str) -> Option<String> {
        let mut found = self.find(text);
        if found.is_empty() {
            return None;
        }
        let masks = masks_in(text);
        found.sort_by_key(|secret| secret.range.start);
        let mut run = Run::default();
        found.retain_mut(|secret| {
            run.continue_to(text, secret.range.start);
            secret.range = without_half_escapes(text, secret.range.clone(), run.length);
            !secret.range.is_empty()
        });
        found.sort_by_key(|secret| (secret.range.start, secret.rank));
        let mut masked = String::with_capacity(text.len());
        let mut done = 0;
        for secret in merged(found) {
            for piece in outside(&secret.range, &masks) {
                masked.push_str(text.get(done..piece.start)?);
                masked.push_str(OPEN);
                masked.push_str(secret.label);
                masked.push(']');
                done = piece.end;
            }
        }
        if done == 0 {
            return None;
        }
        masked.push_str(text.get(done..)?);
        Some(masked)
    }

    /// Finds the secrets in a text as it is, and as a terminal shows it: a colour can stand before a secret, in its name or in itself.
    fn find<'r>(&'r self, text: &str) -> Vec<Found<'r>> {
        let mut found = self.find_in(text);
        if let Some(plain) = Uncoloured::of(text) {
            let shown = self.find_in(&plain.text).into_iter();
            found.extend(shown.map(|secret| Found { range: plain.range_in_whole(secret.range), ..secret }));
        }
        found
    }

    fn find_in<'r>(&'r self, text: &str) -> Vec<Found<'r>> {
        let rules = &*self.0;
        let mut found = Vec::new();
        for value in &rules.exact {
            let length = value.finder.needle().len();
            found.extend(value.finder.find_iter(text.as_bytes()).map(|start| Found {
                range: start..start + length,
                label: &value.label,
                rank: Rank::Exact,
            }));
        }
        for own in &rules.own {
            // A group is looked for only where there is one: that is slower.
            let ranges = own.captures_iter(text).filter_map(|captures| {
                captures.iter().flatten().nth(usize::from(own.captures_len() > 1)).map(|found| found.range())
            });
            found.extend(ranges.filter(|range| !range.is_empty()).map(|range| Found {
                range,
                label: "own pattern",
                rank: Rank::Own,
            }));
        }
        let keys = private_key::find(text).into_iter();
        found.extend(keys.map(|range| Found { range, label: "private key", rank: Rank::PrivateKey }));
        rules.shapes.find(text, |range, label| found.push(Found { range, label, rank: Rank::Shape }));
        rules.named.find(text, |range, label| found.push(Found { range, label, rank: Rank::Named }));
        found
    }
}

impl fmt::Debug for Redactor {
    /// Says nothing of the values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rules { exact, own, .. } = &*self.0;
        f.debug_struct("Redactor").field("exact", &exact.len()).field("own", own).finish_non_exhaustive()
    }
}

/// Checks a pattern of the user as [`Redactor::new`] does.
pub fn check_pattern(pattern: &str) -> Result<(), RedactError> {
    own_pattern(pattern).map(drop)
}

fn own_pattern(pattern: &str) -> Result<Regex, RedactError> {
    let unusable = |reason: String| RedactError::Pattern { pattern: pattern.to_owned(), reason };
    if pattern.len() > LONGEST_PATTERN {
        return Err(unusable(format!("it has {} bytes; allowed are {LONGEST_PATTERN}", pattern.len())));
    }
    let compiled = RegexBuilder::new(pattern)
        .size_limit(LARGEST_PATTERN)
        .dfa_size_limit(LARGEST_PATTERN)
        .build()
        .map_err(|error| unusable(reason_of(&error)))?;
    if compiled.is_match("") {
        return Err(unusable("it matches an empty text".to_owned()));
    }
    Ok(compiled)
}

/// Returns the reason in one line: the last of the error's text, which draws the pattern before it.
fn reason_of(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(limit) => format!("it is larger than {limit} bytes when compiled"),
        other => {
            let text = other.to_string();
            text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    }
}

/// Returns the values to look for.
fn exact_values<'a>(environment: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<ExactValue> {
    let mut values: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: &str| {
        if !guard::is_worth_looking_for(value) {
            return;
        }
        let is_plain =
            name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let label = if is_plain { format!("value of {name}") } else { "environment value".to_owned() };
        // As it stands in a JSON text.
        let escaped = serde_json::Value::from(value).to_string();
        let escaped = escaped.trim_matches('"').to_owned();
        for form in [value.to_owned(), escaped] {
            if values.iter().all(|(_, known)| *known != form) {
                values.push((label.clone(), form));
            }
        }
    };
    for (name, value) in environment {
        if named::is_secret_variable(name) {
            add(name, value.trim());
        }
        for password in shapes::passwords_in_urls(value) {
            add(name, password);
        }
    }
    let exact = |(label, value): (String, String)| ExactValue {
        label,
        finder: memmem::Finder::new(&value).into_owned(),
    };
    values.into_iter().map(exact).collect()
}

/// Joins secrets that overlap. They are sorted by their start.
fn merged(found: Vec<Found<'_>>) -> Vec<Found<'_>> {
    let mut merged: Vec<Found<'_>> = Vec::with_capacity(found.len());
    for secret in found {
        match merged.last_mut() {
            Some(last) if secret.range.start < last.range.end => {
                last.range.end = last.range.end.max(secret.range.end);
                if secret.rank < last.rank {
                    (last.label, last.rank) = (secret.label, secret.rank);
                }
            }
            _ => merged.push(secret),
        }
    }
    merged
}

/// Returns the masks that are in a text already.
fn masks_in(text: &str) -> Vec<Range<usize>> {
    memmem::find_iter(text.as_bytes(), OPEN)
        .filter_map(|start| Some(start..start + length_of_mask(text.get(start..)?)?))
        .collect()
}

/// Returns the length of the mask at the beginning of a text.
fn length_of_mask(text: &str) -> Option<usize> {
    let label = text.strip_prefix(OPEN)?;
    let length = label.bytes().take(LONGEST_LABEL + 1).position(|byte| byte == b']')?;
    let may_stand = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b' ' | b'-' | b'.');
    (length > 0 && label.bytes().take(length).all(may_stand)).then_some(OPEN.len() + length + 1)
}

/// Returns the parts of a range that are outside of all masks, which are sorted.
fn outside(range: &Range<usize>, masks: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = range.start;
    let first = masks.partition_point(|mask| mask.end <= range.start);
    for mask in masks.iter().skip(first).take_while(|mask| mask.start < range.end) {
        if mask.start > start {
            pieces.push(start..mask.start);
        }
        start = start.max(mask.end);
    }
    if start < range.end {
        pieces.push(start..range.end);
    }
    pieces
}

/// The backslashes before a position of a text.
#[derive(Default)]
struct Run {
    position: usize,
    length: usize,
}

impl Run {
    /// Counts those before a later position. A run with many secrets in it is counted once.
    fn continue_to(&mut self, text: &str, position: usize) {
        let between = text.as_bytes().get(self.position..position).unwrap_or_default();
        let length = backslashes_at_end(between);
        self.length = if length == between.len() { self.length + length } else { length };
        self.position = position;
    }
}

fn backslashes_at_end(bytes: &[u8]) -> usize {
    bytes.iter().rev().take_while(|byte| **byte == b'\\').count()
}

/// Leaves out the part of a range that belongs to an escape sequence of JSON, of which the rest is outside. There are so many
/// backslashes before the range.
fn without_half_escapes(
    text: &str,
    Range { mut start, mut end }: Range<usize>,
    before: usize,
) -> Range<usize> {
    if before % 2 == 1 {
        start += text.get(start..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    }
    if start < end && text.as_bytes().get(start..end).map_or(0, backslashes_at_end) % 2 == 1 {
        end -= 1;
    }
    start..end.max(start)
}
