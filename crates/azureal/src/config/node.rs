//! A configuration file as a tree whose nodes know their position.
//!
//! Both formats become this tree, so that the meaning of a key and the error of a wrong value are written once.

use std::fmt;

use azureal_core::visible_line;

use crate::error::quoted;

/// The characters of a text that an error repeats.
const REPEATED: usize = 40;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: ConfigPosition,
}

/// A value in a configuration file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Nothing,
    Switch(bool),
    Integer(i64),
    Fraction(f64),
    Text(String),
    /// Something that no key takes, and what it is.
    Other(&'static str),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key of a table, and what it is set to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: ConfigPosition,
    pub(super) node: Node,
}

/// A line and a column, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConfigPosition {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl ConfigPosition {
    /// The beginning of a file, for errors of the file as a whole.
    pub(super) const START: Self = Self { line: 1, column: 1 };
}

/// A text whose lines have been found, so that finding a place in it does not mean reading it again.
pub(super) struct Lines<'a> {
    text: &'a str,
    /// The start of each line.
    starts: Vec<usize>,
}

/// The part of a line in which characters are counted; beyond it, bytes. A line of a mebibyte would be counted
/// repeatedly.
const COUNTED: usize = 1000;

impl<'a> Lines<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let after_breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(after_breaks).collect() }
    }

    /// Finds the place of a byte.
    pub(super) fn place(&self, byte: usize) -> ConfigPosition {
        let line = self.starts.partition_point(|start| *start <= byte);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let before = self.text.get(start..byte).filter(|before| before.len() <= COUNTED);
        let column = before.map_or(byte.saturating_sub(start), |before| before.chars().count());
        ConfigPosition { line, column: column + 1 }
    }
}

impl fmt::Display for ConfigPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// An error in a file, and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) place: ConfigPosition,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(place: ConfigPosition, message: impl Into<String>) -> Self {
        Self { place, message: message.into() }
    }
}

impl Node {
    /// Returns the error of a value of another kind.
    pub(super) fn is_not(&self, key: &str, allowed: &str) -> Problem {
        Problem::new(self.place, format!("{} is {}; allowed is {allowed}", quoted(key), self.value))
    }

    /// Reads a text that is not empty.
    pub(super) fn text(&self, key: &str) -> Result<&str, Problem> {
        match &self.value {
            Value::Text(text) if !text.trim().is_empty() => Ok(text),
            _ => Err(self.is_not(key, "a text")),
        }
    }

    /// Reads yes or no.
    pub(super) fn switch(&self, key: &str) -> Result<bool, Problem> {
        match self.value {
            Value::Switch(is_on) => Ok(is_on),
            _ => Err(self.is_not(key, "true or false")),
        }
    }

    /// Reads a list; a missing value is an empty one.
    pub(super) fn list(&self, key: &str) -> Result<&[Self], Problem> {
        match &self.value {
            Value::List(nodes) => Ok(nodes),
            Value::Nothing => Ok(&[]),
            _ => Err(self.is_not(key, "a list")),
        }
    }

    /// Reads a table; a missing value is an empty one.
    pub(super) fn table(&self, key: &str) -> Result<&[Entry], Problem> {
        match &self.value {
            Value::Table(entries) => Ok(entries),
            Value::Nothing => Ok(&[]),
            _ => Err(self.is_not(key, "a table of keys and values")),
        }
    }
}

/// A description for the author of the file.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("empty"),
            Self::Switch(is_on) => write!(f, "{is_on}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Fraction(number) => write!(f, "{number}"),
            Self::Text(text) if text.trim().is_empty() => f.write_str("an empty text"),
            Self::Text(text) => {
                let start: String = text.chars().take(REPEATED).collect();
                let more = if start.len() < text.len() { "…" } else { "" };
                write!(f, "the text \"{}{more}\"", visible_line(&start))
            }
            Self::Other(what) => f.write_str(what),
            Self::List(_) => f.write_str("a list"),
            Self::Table(_) => f.write_str("a table"),
        }
    }
}
