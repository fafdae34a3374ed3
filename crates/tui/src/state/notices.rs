//! Notices: what the user should know, for some seconds.

use azureal::Error;
use azureal::transcript::Level;

/// How long a notice is shown.
const INFO_MS: u64 = 6_000;
/// How long an error is shown.
const ERROR_MS: u64 = 30_000;
/// The most notices that are kept.
const MOST: usize = 20;
/// The longest notice, in characters.
const LONGEST: usize = 2_000;

/// A notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Its weight.
    pub(crate) level: Level,
    /// Its text.
    pub(crate) text: String,
    until_ms: u64,
}

/// The notices, oldest first. The newest one is shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notices {
    notices: Vec<Notice>,
}

impl Notices {
    /// Adds a notice.
    pub(crate) fn add(&mut self, level: Level, text: &str, now_ms: u64) {
        let text: String = text.chars().take(LONGEST).collect();
        let lasts = if level == Level::Info { INFO_MS } else { ERROR_MS };
        self.notices.retain(|notice| notice.text != text);
        self.notices.push(Notice { level, text, until_ms: now_ms.saturating_add(lasts) });
        if self.notices.len() > MOST {
            self.notices.remove(0);
        }
    }

    /// Adds a notice that is shown until a time.
    pub(crate) fn add_until(&mut self, text: &str, until_ms: u64) {
        self.add(Level::Info, text, until_ms.saturating_sub(INFO_MS));
    }

    /// Removes a notice.
    pub(crate) fn remove(&mut self, text: &str) {
        self.notices.retain(|notice| notice.text != text);
    }

    /// Removes the notices that begin with a text.
    pub(crate) fn remove_all(&mut self, beginning: &str) {
        self.notices.retain(|notice| !notice.text.starts_with(beginning));
    }

    /// Adds an error with its hint.
    pub(crate) fn add_error(&mut self, error: &Error, now_ms: u64) {
        let text = match error.hint() {
            Some(hint) => format!("{} ({hint})", error.message()),
            None => error.message().to_owned(),
        };
        self.add(Level::Error, &text, now_ms);
    }

    /// Removes notices whose time is over.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        self.notices.retain(|notice| notice.until_ms > now_ms);
    }

    /// Takes all notices, oldest first.
    pub(crate) fn take_all(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Removes all notices, and returns whether there were any.
    pub(crate) fn dismiss(&mut self) -> bool {
        !std::mem::take(&mut self.notices).is_empty()
    }

    /// Returns the notice that is shown: the newest error, else the newest.
    pub(crate) fn shown(&self) -> Option<&Notice> {
        let error = self.notices.iter().rev().find(|notice| notice.level == Level::Error);
        error.or_else(|| self.notices.last())
    }

    /// Returns when the next one ends.
    pub(crate) fn next_end(&self) -> Option<u64> {
        self.notices.iter().map(|notice| notice.until_ms).min()
    }
}
