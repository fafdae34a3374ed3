//! The places of the messages in a session of Gemini CLI.
//!
//! The file is a log. A message is written again when it grows, under the same id: the last version counts, at the place of the
//! first. `{"$rewindTo": id}` removes a message and all after it.
//!
//! `{"$set": {"messages": […]}}` has the context of the model, when a session is continued or its context was compressed. Its
//! messages lack times, models, tokens and results, and it lacks messages that were compressed. So it only adds messages that
//! have no line of their own, and removes none.
//!
//! Older versions write one value with all messages.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::native::lines::{Line, Lines, beginning, open_plain};
use crate::native::{NativeError, NativePlace, NativeProblem};
use crate::unreadable::excerpt;
use crate::wire::{Fields, elements, lenient, read};

/// The number of messages that are read.
const MOST_MESSAGES: usize = 1_000_000;
/// The largest session as one value: 32 MiB.
const LARGEST_VALUE: u64 = 32 << 20;
/// The number of problems that are listed one by one.
const MOST_PROBLEMS: usize = 100;

/// The facts about a session.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) session_id: String,
    #[serde(default, deserialize_with = "lenient")]
    project_hash: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) start_time: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) kind: String,
    /// A name that the program wrote.
    #[serde(default, deserialize_with = "lenient")]
    pub(super) summary: Option<String>,
}

impl Metadata {
    pub(super) fn is_header(&self) -> bool {
        !self.session_id.is_empty() && !self.project_hash.is_empty()
    }

    /// Adds later facts. The time of the first beginning stays.
    pub(super) fn add(&mut self, later: Self) {
        let replace = |old: &mut String, new: String| {
            if !new.is_empty() {
                *old = new;
            }
        };
        replace(&mut self.session_id, later.session_id);
        replace(&mut self.project_hash, later.project_hash);
        replace(&mut self.kind, later.kind);
        if self.start_time.is_empty() {
            self.start_time = later.start_time;
        }
        self.summary = later.summary.or(self.summary.take());
    }
}

/// A line of a session.
pub(super) enum Record<'a> {
    Metadata(Box<Metadata>),
    /// A message, or its next version.
    Message {
        id: String,
    },
    /// All messages, and facts.
    Messages(Vec<&'a RawValue>, Box<Metadata>),
    /// The message that the user went back to: it is removed with all after it.
    Rewind(String),
    Unknown,
}

impl<'a> Record<'a> {
    /// Reads a line; `None` if it is no object.
    pub(super) fn of(line: &'a str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Keys<'a> {
            #[serde(rename = "$rewindTo", default, deserialize_with = "lenient")]
            rewind_to: Option<String>,
            #[serde(default, deserialize_with = "lenient")]
            id: Option<String>,
            #[serde(rename = "$set", default, borrow)]
            set: Option<&'a RawValue>,
            #[serde(default, borrow)]
            messages: Option<&'a RawValue>,
        }
        let fields = Fields::of(line)?;
        let keys: Keys<'_> = fields.read()?;
        if let Some(id) = keys.rewind_to {
            return Some(Self::Rewind(id));
        }
        if let Some(id) = keys.id {
            return Some(Self::Message { id });
        }
        let (metadata, messages) = match keys.set {
            Some(set) => {
                let set = Fields::of(set.get())?;
                (set.read::<Metadata>()?, set.read::<Keys<'_>>()?.messages)
            }
            None => {
                (fields.read::<Metadata>().filter(Metadata::is_header).unwrap_or_default(), keys.messages)
            }
        };
        Some(match messages.and_then(elements) {
            Some(messages) => Self::Messages(messages, Box::new(metadata)),
            None if keys.set.is_some() || metadata.is_header() => Self::Metadata(Box::new(metadata)),
            None => Self::Unknown,
        })
    }
}

/// The place of a message in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) length: usize,
    pub(super) line: u64,
    /// Whether the message has a line of its own, and is not in a list.
    is_own: bool,
}

/// The messages of a session, in their order.
#[derive(Default)]
pub(super) struct Index {
    pub(super) metadata: Metadata,
    pub(super) messages: Vec<Place>,
    pub(super) problems: Vec<NativeProblem>,
    /// The id of each message.
    ids: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, usize>,
    further_problems: u64,
}

impl Index {
    /// Reads all lines of a session once.
    pub(super) fn read(path: &Path) -> Result<Self, NativeError> {
        let mut index = Self::default();
        if is_one_value(path)? {
            index.read_value(path)?;
        } else {
            index.read_lines(path)?;
        }
        if index.further_problems > 0 {
            let reason = format!("{} more lines cannot be read", index.further_problems);
            index
                .problems
                .push(NativeProblem { place: NativePlace::Entry("the session".to_owned()), reason });
        }
        index.numbers = HashMap::new();
        Ok(index)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn read_lines(&mut self, path: &Path) -> Result<(), NativeError> {
        let mut lines = Lines::open(path)?;
        let mut offset = 0;
        let failed = NativeError::file(path);
        loop {
            let number = lines.number() + 1;
            let Some(line) = lines.next().map_err(&failed)? else { return Ok(()) };
            let (bytes, newline) = match line {
                Line::Whole(bytes) => (bytes, 1),
                Line::Unfinished(bytes) => (bytes, 0),
                Line::Oversized { bytes } => {
                    offset += bytes;
                    self.problem(number, format!("it has {} MiB", bytes >> 20));
                    continue;
                }
            };
            self.read_line(number, offset, bytes, newline == 0);
            offset += bytes.len() as u64 + newline;
        }
    }

    fn read_line(&mut self, number: u64, offset: u64, bytes: &[u8], is_last: bool) {
        if bytes.trim_ascii().is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(bytes);
        match Record::of(&text) {
            None if is_last => self.problem(number, format!("it is cut off after {} bytes", bytes.len())),
            None => self.problem(number, format!("it is no JSON object: {}", excerpt(bytes))),
            Some(Record::Message { id }) => {
                self.put(id, Place { offset, length: bytes.len(), line: number, is_own: true });
            }
            Some(Record::Metadata(metadata)) => self.metadata.add(*metadata),
            Some(Record::Messages(..)) if str::from_utf8(bytes).is_err() => {
                // The places in it are counted in bytes.
                self.problem(number, "it is not UTF-8");
            }
            Some(Record::Messages(messages, metadata)) => {
                self.metadata.add(*metadata);
                self.put_all(number, offset, &text, &messages);
            }
            Some(Record::Rewind(id)) => self.rewind(number, &id),
            Some(Record::Unknown) => self.problem(number, "it is of an unknown kind"),
        }
    }

    /// Reads a session that is one value.
    fn read_value(&mut self, path: &Path) -> Result<(), NativeError> {
        let (file, metadata) = open_plain(path)?;
        let unreadable = |reason: String| NativeError::Unreadable { path: path.to_owned(), reason };
        if metadata.len() > LARGEST_VALUE {
            return Err(unreadable(format!("it is one value of {} MiB", metadata.len() >> 20)));
        }
        let mut bytes = Vec::new();
        file.take(LARGEST_VALUE).read_to_end(&mut bytes).map_err(NativeError::file(path))?;
        let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8".to_owned()))?;
        match Record::of(&text) {
            Some(Record::Messages(messages, metadata)) => {
                self.metadata.add(*metadata);
                self.put_all(1, 0, &text, &messages);
                Ok(())
            }
            _ => Err(unreadable("it is no session of Gemini CLI, or is cut off".to_owned())),
        }
    }

    fn put(&mut self, id: String, place: Place) {
        if let Some(known) = self.numbers.get(id.as_str()).and_then(|number| self.messages.get_mut(*number)) {
            if place.is_own || !known.is_own {
                *known = place;
            }
        } else if self.messages.len() < MOST_MESSAGES {
            let id = Arc::from(id);
            self.ids.push(Arc::clone(&id));
            self.numbers.insert(id, self.messages.len());
            self.messages.push(place);
        } else {
            self.problem(place.line, format!("the session has more than {MOST_MESSAGES} messages"));
        }
    }

    fn put_all(&mut self, line: u64, offset: u64, text: &str, messages: &[&RawValue]) {
        #[derive(Deserialize)]
        struct Id {
            #[serde(default, deserialize_with = "lenient")]
            id: Option<String>,
        }
        for raw in messages {
            let before = raw.get().as_ptr().addr().saturating_sub(text.as_ptr().addr());
            let place =
                Place { offset: offset + before as u64, length: raw.get().len(), line, is_own: false };
            match read::<Id>(raw).and_then(|message| message.id) {
                Some(id) => self.put(id, place),
                None => self.problem(line, "a message in it has no id"),
            }
        }
    }

    fn rewind(&mut self, line: u64, id: &str) {
        let Some(number) = self.numbers.get(id).copied() else {
            return self.problem(line, "it removes a message that is not in the session");
        };
        self.messages.truncate(number);
        // Only what is removed is looked at: a session can have many of both.
        for removed in self.ids.drain(number..) {
            self.numbers.remove(&removed);
        }
    }

    fn problem(&mut self, line: u64, reason: impl Into<String>) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(NativeProblem { place: NativePlace::Line(line), reason: reason.into() });
        } else {
            self.further_problems += 1;
        }
    }
}

/// Returns whether a session is one value, as older versions write it.
pub(super) fn is_one_value(path: &Path) -> Result<bool, NativeError> {
    let is_json = path.extension().is_some_and(|ending| ending == "json");
    let head = beginning(path, 64)?;
    if head.is_empty() {
        return Err(NativeError::Empty { path: path.to_owned() });
    }
    // Its first line is not an object yet.
    Ok(is_json || head.split(|byte| *byte == b'\n').next().is_some_and(|first| first.trim_ascii() == b"{"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn index(text: &str) -> (Vec<String>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session-x.jsonl");
        fs::write(&path, text).unwrap();
        let index = Index::read(&path).unwrap();
        let at = |place: &Place| {
            let begin = usize::try_from(place.offset).unwrap();
            text.get(begin..begin + place.length).unwrap().to_owned()
        };
        (index.messages.iter().map(at).collect(), index.problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_last_version_of_a_message_counts_at_the_place_of_the_first() {
        let text = "{\"sessionId\":\"s\",\"projectHash\":\"h\"}\n{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"a\",\"x\":1}\n";
        assert_eq!(index(text).0, [r#"{"id":"a","x":1}"#, r#"{"id":"b"}"#]);
    }

    #[test]
    fn a_list_of_messages_adds_those_without_a_line_of_their_own_and_removes_none() {
        let text = "{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"$set\":{\"messages\":[ {\"id\":\"b\",\"x\":2}, 7, {\"id\":\"ü\"}, {\"id\":\"c\"}]}}\n{\"id\":\"d\"}";
        let (messages, problems) = index(text);
        assert_eq!(
            messages,
            [r#"{"id":"a"}"#, r#"{"id":"b"}"#, r#"{"id":"ü"}"#, r#"{"id":"c"}"#, r#"{"id":"d"}"#]
        );
        assert_eq!(problems, ["line 3 was left out: a message in it has no id"]);
    }

    #[test]
    fn going_back_removes_a_message_and_all_after_it() {
        let text = "{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"c\"}\n{\"$rewindTo\":\"b\"}\n{\"id\":\"d\"}\n{\"id\":\"b\",\"x\":1}\n{\"$rewindTo\":\"z\"}\n";
        let (messages, problems) = index(text);
        assert_eq!(messages, [r#"{"id":"a"}"#, r#"{"id":"d"}"#, r#"{"id":"b","x":1}"#]);
        assert_eq!(problems, ["line 7 was left out: it removes a message that is not in the session"]);
    }

    #[test]
    fn damaged_lines_are_reported_with_their_numbers() {
        let (messages, problems) = index("nonsense\n{\"id\":\"a\"}\n\n[1]\n{\"novel\":1}\n{\"id\":\"b");
        assert_eq!(messages, [r#"{"id":"a"}"#]);
        assert_eq!(
            problems,
            [
                "line 1 was left out: it is no JSON object: nonsense",
                "line 4 was left out: it is no JSON object: [1]",
                "line 5 was left out: it is of an unknown kind",
                "line 6 was left out: it is cut off after 8 bytes",
            ]
        );
    }
}
