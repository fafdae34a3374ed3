//! Events about files: the changes of a turn, and their undo.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::visible::visible_line;

#[cfg(doc)]
use super::Event;

/// The fields of [`Event::Changes`]: the difference of two snapshots of the worktree, whatever changed the files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Changes {
    /// The worktree, by its path relative to the root of the project; empty if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub worktree: String,
    /// The snapshot before the turn: an object of the project's snapshots.
    pub before: String,
    /// The snapshot after the turn.
    pub after: String,
    /// The files, [`MOST_FILES`](Self::MOST_FILES) at most.
    pub files: Vec<FileChange>,
    /// The number of further files, by directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<DirectoryChanges>,
    /// The UUIDs of other sessions that ran in this worktree during the turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub during: Vec<String>,
    /// Files and repositories that the snapshots do not have, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedPath>,
    /// Whether the second snapshot was taken when the turn was recovered, so that later changes are in it too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// Unified diffs that no other event of the turn has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Changes {
    /// The most files that are named.
    pub const MOST_FILES: usize = 200;

    /// Returns the counts in words: `3 files changed, +40 −12`. Names files that changed and are not recorded.
    pub fn summary(&self) -> String {
        let is_empty = self.files.is_empty() && self.directories.is_empty();
        match self.unrecorded() {
            Some(unrecorded) if is_empty => unrecorded,
            Some(unrecorded) => format!("{}; {unrecorded}", changes_summary(&self.files, &self.directories)),
            None => changes_summary(&self.files, &self.directories),
        }
    }

    /// Returns the files that changed and are not recorded, in words: `changed, not recorded: .env, a.key and 3 more`. `None` if there are none.
    pub fn unrecorded(&self) -> Option<String> {
        const NAMED: usize = 3;
        let changed: Vec<&str> = self
            .skipped
            .iter()
            .filter(|skipped| skipped.changed)
            .map(|skipped| skipped.path.as_str())
            .collect();
        let named: Vec<_> = changed.iter().take(NAMED).map(|path| visible_line(path)).collect();
        let more = match changed.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!changed.is_empty()).then(|| format!("changed, not recorded: {}{more}", named.join(", ")))
    }
}

fn changes_summary(files: &[FileChange], directories: &[DirectoryChanges]) -> String {
    let further = directories.iter().map(|directory| directory.files).fold(0, u64::saturating_add);
    let count = further.saturating_add(files.len() as u64);
    let sum =
        |lines: fn(&FileChange) -> Option<u64>| files.iter().filter_map(lines).fold(0, u64::saturating_add);
    let (added, removed) = (sum(|file| file.added), sum(|file| file.removed));
    let files = if count == 1 { "1 file changed".to_owned() } else { format!("{count} files changed") };
    // Of files that are only counted, the lines are not known.
    let of = if further > 0 { " or more" } else { "" };
    if added == 0 && removed == 0 { files } else { format!("{files}, +{added} −{removed}{of}") }
}

/// A file that changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileChange {
    /// The path below the root of the worktree, with `/`. Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// What happened to it.
    pub status: FileStatus,
    /// The path before it was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The number of lines added; `None` for a binary file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    /// The number of lines removed; `None` for a binary file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
}

/// For people: `modified src/a.rs +3 −1`.
impl fmt::Display for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, status, from, added, removed } = self;
        write!(f, "{status} ")?;
        if let Some(from) = from {
            write!(f, "{from} to ")?;
        }
        f.write_str(path)?;
        match (added, removed) {
            (None | Some(0), None | Some(0)) if *status != FileStatus::Modified => Ok(()),
            (None, None) => Ok(()),
            (added, removed) => write!(f, " +{} −{}", added.unwrap_or(0), removed.unwrap_or(0)),
        }
    }
}

/// The change of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileStatus {
    /// It is new.
    Added,
    /// It was deleted.
    Deleted,
    /// It has another name.
    Renamed,
    /// Only its mode changed.
    Mode,
    /// Its content changed, or its type; an unknown word is read as this.
    #[default]
    #[serde(other)]
    Modified,
}

impl fmt::Display for FileStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Added => "added",
            Self::Deleted => "deleted",
            Self::Renamed => "renamed",
            Self::Mode => "mode of",
            Self::Modified => "modified",
        })
    }
}

/// Changed files that are counted, not named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectoryChanges {
    /// The directory below the root of the worktree; `.` for the root.
    pub path: String,
    /// The number of files.
    pub files: u64,
}

/// A path that is not part of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SkippedPath {
    /// The path below the root of the worktree.
    pub path: String,
    /// The reason, for people.
    pub reason: String,
    /// Whether it changed or was deleted during the turn. Its content from before is not recorded, so no undo restores it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
}

/// For people: `changed, not recorded: .env (ignored)`.
impl fmt::Display for SkippedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = if self.changed { "changed, " } else { "" };
        write!(f, "{changed}not recorded: {} ({})", self.path, self.reason)
    }
}

/// The fields of [`Event::Undo`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Undo {
    /// The event whose changes were undone: [`Changes`], or another undo.
    pub of: u64,
    /// The number of its turn.
    pub turn: u64,
    /// Whether this takes back an undo, so that the changes of the turn are there again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub redo: bool,
    /// The snapshot before the undo.
    pub before: String,
    /// The snapshot after it.
    pub after: String,
    /// The files that were restored, [`Changes::MOST_FILES`] at most.
    pub files: Vec<FileChange>,
    /// The number of further files, by directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<DirectoryChanges>,
}

impl Undo {
    /// Returns what was done in words: `undid turn 2: 3 files changed, +12 −40`.
    pub fn summary(&self) -> String {
        let done = if self.redo { "took back the undo of" } else { "undid" };
        format!("{done} turn {}: {}", self.turn, changes_summary(&self.files, &self.directories))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    #[test]
    fn changes_and_undos_are_written_as_the_contract_says_and_read_back() {
        for (event, json) in [
            (
                Event::Changes(Changes {
                    before: "b0".into(),
                    after: "a1".into(),
                    files: vec![
                        FileChange {
                            path: "src/a.rs".into(),
                            added: Some(3),
                            removed: Some(1),
                            ..FileChange::default()
                        },
                        FileChange {
                            path: "b.png".into(),
                            status: FileStatus::Renamed,
                            from: Some("a.png".into()),
                            ..FileChange::default()
                        },
                    ],
                    during: vec!["u".into()],
                    detail: Some("+x".into()),
                    ..Changes::default()
                }),
                r#"{"Changes":{"before":"b0","after":"a1","files":[{"path":"src/a.rs","status":"modified","added":3,"removed":1},{"path":"b.png","status":"renamed","from":"a.png"}],"during":["u"],"detail":"+x"}}"#,
            ),
            (
                Event::Undo(Undo {
                    of: 9,
                    turn: 2,
                    before: "a1".into(),
                    after: "b0".into(),
                    files: vec![FileChange {
                        path: "x".into(),
                        status: FileStatus::Deleted,
                        ..FileChange::default()
                    }],
                    ..Undo::default()
                }),
                r#"{"Undo":{"of":9,"turn":2,"before":"a1","after":"b0","files":[{"path":"x","status":"deleted"}]}}"#,
            ),
        ] {
            assert_eq!(event.to_json(), json);
            assert_eq!(Event::from_json(json).unwrap(), event);
            assert!(json.contains(event.kind()));
        }
    }

    #[test]
    fn files_that_changed_and_are_not_recorded_are_named() {
        let skipped =
            |path: &str, changed| SkippedPath { path: path.into(), reason: "ignored".into(), changed };
        let changes = |paths: &[&str], files: usize| Changes {
            skipped: paths.iter().map(|path| skipped(path, true)).chain([skipped("sub", false)]).collect(),
            files: vec![FileChange::default(); files],
            ..Changes::default()
        };
        assert_eq!(changes(&[], 1).summary(), "1 file changed");
        assert_eq!(changes(&[".env"], 2).summary(), "2 files changed; changed, not recorded: .env");
        let many = changes(&["a", "b\u{1b}", "c", "d", "e"], 0).summary();
        assert!(
            many.starts_with("changed, not recorded: a, b") && many.ends_with(", c and 2 more"),
            "{many}"
        );
        assert!(!many.contains('\u{1b}'));
        assert_eq!(skipped(".env", true).to_string(), "changed, not recorded: .env (ignored)");
        assert_eq!(skipped("sub", false).to_string(), "not recorded: sub (ignored)");
    }

    #[test]
    fn a_change_of_an_unknown_sort_is_a_modification() {
        let event = Event::from_json(r#"{"Changes":{"files":[{"path":"a","status":"copied"}]}}"#).unwrap();
        let Event::Changes(changes) = event else { panic!("{event:?}") };
        assert_eq!(changes.files[0].status, FileStatus::Modified);
    }
}
