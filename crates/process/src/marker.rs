//! The variable by which a run's processes are found.

use std::collections::BTreeSet;

use crate::identity::ProcessIdentity;
use crate::table;

/// A variable that a run's child has in its environment, and everything that it starts inherits.
///
/// ```
/// use azureal_process::Marker;
///
/// let marker = Marker::new("AZUREAL_RUN_ID", "run-7f3a")?;
/// assert_eq!((marker.key(), marker.value()), ("AZUREAL_RUN_ID", "run-7f3a"));
/// assert!(Marker::new("AZUREAL_RUN_ID", "").is_err());
/// # Ok::<(), azureal_process::InvalidMarker>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    key: String,
    value: String,
}

impl Marker {
    /// Creates a marker. The value should be of one run only: every process that carries it ends with the run.
    ///
    /// # Errors
    ///
    /// The key is not the name of a variable (letters, digits and `_`), or the value is empty or not of visible ASCII
    /// characters. An empty value would match by accident; a space could not be distinguished from the end of the
    /// value in the output of `ps`.
    pub fn new(key: impl Into<String>, value: impl Into<String>) -> Result<Self, InvalidMarker> {
        let (key, value) = (key.into(), value.into());
        let is_name = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && key.bytes().next().is_some_and(|first| !first.is_ascii_digit());
        let is_value = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
        if is_name && is_value { Ok(Self { key, value }) } else { Err(InvalidMarker { key, value }) }
    }

    /// Returns the name of the variable.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns its value.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns it as it stands in an environment.
    pub(crate) fn entry(&self) -> String {
        format!("{}={}", self.key, self.value)
    }
}

/// The key or the value cannot stand in an environment, or could not be recognised there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}={value}` cannot mark a process")]
pub struct InvalidMarker {
    /// The key that was given.
    pub key: String,
    /// The value that was given.
    pub value: String,
}

impl InvalidMarker {
    /// Returns what the caller can do.
    pub fn hint(&self) -> Option<&'static str> {
        Some("a key of letters, digits and `_`, and a value of visible ASCII characters")
    }
}

/// Returns the running processes with `marker` in their environment, whichever process started them.
///
/// This process is never among them, nor a zombie. Processes whose environment may not be read are left out: on Linux
/// those of other users, elsewhere also those of the system.
pub fn find_marked(marker: &Marker) -> Vec<ProcessIdentity> {
    table::marked(marker).collect()
}

/// The markers that processes carry at one moment.
///
/// For many runs at once: each [`find_marked`] searches all processes. A marker that no process carries can appear
/// later only if another process starts the run.
#[derive(Debug, Clone)]
pub struct MarkersInUse {
    entries: BTreeSet<String>,
}

impl MarkersInUse {
    /// Looks at all processes for variables of these names.
    pub fn of(keys: &[&str]) -> Self {
        Self { entries: table::environments_with(keys) }
    }

    /// Returns whether a process carried this marker.
    pub fn contains(&self, marker: &Marker) -> bool {
        self.entries.contains(&marker.entry())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_can_be_told_from_what_stands_around_it() {
        for (key, value) in [("A", "1"), ("_", "x"), ("AZUREAL_RUN_ID", "a-b.c=d")] {
            assert_eq!(Marker::new(key, value).unwrap().entry(), format!("{key}={value}"));
        }
        for (key, value) in [
            ("", "1"),
            ("1A", "1"),
            ("A=B", "1"),
            ("A\0", "1"),
            ("A", ""),
            ("A", "a b"),
            ("A", "ä"),
            ("A", "\0"),
        ] {
            let expected = InvalidMarker { key: key.into(), value: value.into() };
            assert_eq!(Marker::new(key, value), Err(expected));
        }
    }
}
