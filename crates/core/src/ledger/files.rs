//! The files of a ledger, and how each was touched.

use std::collections::{BTreeMap, HashMap};

/// One way in which a file was touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Touch {
    Read,
    Edited,
    Written,
    Created,
    Deleted,
    Mode,
    RenamedFrom(String),
    /// The user undid the changes of a turn. `of` is the event that was undone.
    Undone {
        turn: u64,
        of: u64,
    },
    /// The user undid an undo.
    Redone,
}

/// The files, newest first.
#[derive(Debug, Default)]
pub(super) struct Files {
    touched: Vec<(String, Vec<Touch>)>,
    known: HashMap<String, usize>,
    /// The directories that the agents ran in.
    roots: Vec<String>,
    /// The number of further files by directory.
    further: BTreeMap<String, u64>,
    /// The number of further files of each undo.
    further_undone: Vec<FurtherUndone>,
}

/// The further files of an undo in a directory. `of` is the event that was undone.
#[derive(Debug)]
struct FurtherUndone {
    directory: String,
    files: u64,
    turn: u64,
    of: u64,
}

/// A file as it is rendered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileLine {
    pub(super) directory: String,
    pub(super) name: String,
    /// How it was touched, in the order of time.
    pub(super) how: String,
    pub(super) is_changed: bool,
}

impl Files {
    /// Adds an earlier touch of a file. Returns by how many characters the ledger grows, roughly.
    pub(super) fn touch(&mut self, path: &str, how: Touch) -> usize {
        let path = path.strip_prefix("./").unwrap_or(path);
        if let Some(known) = self.known.get(path) {
            if let Some((_, touches)) = self.touched.get_mut(*known)
                && !touches.iter().any(|touch| same_kind(touch, &how))
            {
                touches.push(how);
                return 8;
            }
            return 0;
        }
        self.known.insert(path.to_owned(), self.touched.len());
        self.touched.push((path.to_owned(), vec![how]));
        path.rsplit('/').next().unwrap_or(path).chars().count() + 10
    }

    pub(super) fn count_further(&mut self, directory: &str, files: u64) -> usize {
        let count = self.further.entry(directory.to_owned()).or_default();
        let grows = if *count == 0 { directory.chars().count() + 24 } else { 0 };
        *count = count.saturating_add(files);
        grows
    }

    /// Counts further files of the undo of an event.
    pub(super) fn count_further_undone(&mut self, directory: &str, files: u64, turn: u64, of: u64) -> usize {
        let directory = directory.to_owned();
        let grows = directory.chars().count() + 36;
        self.further_undone.push(FurtherUndone { directory, files, turn, of });
        grows
    }

    /// Notes a directory that an agent ran in.
    pub(super) fn root(&mut self, directory: &str) {
        let directory = directory.trim_end_matches('/');
        if directory.starts_with('/') && !self.roots.iter().any(|root| root == directory) {
            self.roots.push(directory.to_owned());
        }
    }

    /// Replaces the marks of an undo of this event by marks that it was undone. Returns whether there was one.
    pub(super) fn redo(&mut self, seq: u64) -> bool {
        self.further_undone.retain(|undone| undone.of != seq);
        let mut found = false;
        for touch in self.touched.iter_mut().flat_map(|(_, touches)| touches) {
            if matches!(touch, Touch::Undone { of, .. } if *of == seq) {
                *touch = Touch::Redone;
                found = true;
            }
        }
        found
    }

    /// Removes the marks of an undo of this event. Returns whether there was one.
    pub(super) fn forget_undo(&mut self, seq: u64) -> bool {
        self.further_undone.retain(|undone| undone.of != seq);
        let mut found = false;
        for (_, touches) in &mut self.touched {
            touches.retain(|touch| {
                let is_it = matches!(touch, Touch::Undone { of, .. } if *of == seq);
                found |= is_it;
                !is_it
            });
        }
        found
    }

    pub(super) fn is_empty(&self) -> bool {
        self.touched.is_empty() && self.further.is_empty() && self.further_undone.is_empty()
    }

    /// Returns the directories with further files: how many, and what was done to them.
    pub(super) fn further(&self) -> impl Iterator<Item = (&str, u64, String)> {
        let changed = self.further.iter();
        let changed = changed.map(|(directory, files)| (directory.as_str(), *files, "changed".to_owned()));
        let undone = self.further_undone.iter();
        changed
            .chain(undone.map(|it| (it.directory.as_str(), it.files, format!("undone (turn {})", it.turn))))
    }

    /// Returns the files, newest first, with paths below the directory of the session.
    pub(super) fn lines(&self) -> Vec<FileLine> {
        let root = self.common_root();
        let relative = |path: &str| match &root {
            Some(root) => path
                .strip_prefix(root.as_str())
                .and_then(|rest| rest.strip_prefix('/'))
                .unwrap_or(path)
                .to_owned(),
            None => path.to_owned(),
        };
        // A tool has the absolute path and a snapshot the relative one.
        let mut merged: Vec<(String, Vec<&Touch>)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (path, touches) in &self.touched {
            let path = relative(path);
            let place = *places.entry(path.clone()).or_insert(merged.len());
            match merged.get_mut(place) {
                Some((_, known)) => {
                    for touch in touches {
                        if !known.iter().any(|other| same_kind(other, touch)) {
                            known.push(touch);
                        }
                    }
                }
                None => merged.push((path, touches.iter().collect())),
            }
        }
        merged.into_iter().map(|(path, touches)| line(&path, &touches, &relative)).collect()
    }

    /// Returns the directory that relative paths are below: one that an agent ran in, else the one in which most of the
    /// absolute paths have the relative path of a snapshot.
    fn common_root(&self) -> Option<String> {
        if let Some(root) = self.roots.iter().min_by_key(|root| root.len()) {
            return Some(root.clone());
        }
        let (absolute, below): (Vec<&String>, Vec<&String>) =
            self.touched.iter().map(|(path, _)| path).partition(|path| path.starts_with('/'));
        let mut by_name: HashMap<&str, Vec<&str>> = HashMap::new();
        for path in below {
            by_name.entry(file_name(path)).or_default().push(path);
        }
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for path in absolute {
            for relative in by_name.get(file_name(path)).into_iter().flatten().take(8) {
                if let Some(root) = path.strip_suffix(relative).and_then(|root| root.strip_suffix('/')) {
                    *votes.entry(root).or_default() += 1;
                }
            }
        }
        let most = votes.into_iter().rev().max_by_key(|(_, count)| *count)?;
        Some(most.0.to_owned())
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn same_kind(one: &Touch, other: &Touch) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

fn line(path: &str, newest_first: &[&Touch], relative: &dyn Fn(&str) -> String) -> FileLine {
    let is_changed = newest_first.iter().any(|touch| !matches!(touch, Touch::Read));
    let has_created = newest_first.iter().any(|touch| matches!(touch, Touch::Created));
    let words: Vec<String> = newest_first
        .iter()
        .rev()
        .filter(|touch| match touch {
            // Who changes a file has read it.
            Touch::Read => !is_changed,
            Touch::Written => !has_created,
            _ => true,
        })
        .map(|touch| match touch {
            Touch::Read => "read".to_owned(),
            Touch::Edited => "edited".to_owned(),
            Touch::Written => "written".to_owned(),
            Touch::Created => "created".to_owned(),
            Touch::Deleted => "deleted".to_owned(),
            Touch::Mode => "mode changed".to_owned(),
            Touch::RenamedFrom(from) => format!("renamed from {}", super::line::listed_name(&relative(from))),
            Touch::Undone { turn, .. } => format!("undone (turn {turn})"),
            Touch::Redone => "restored".to_owned(),
        })
        .collect();
    let (directory, name) = path.rsplit_once('/').map_or((".", path), |(directory, name)| match directory {
        "" => ("/", name),
        directory => (directory, name),
    });
    FileLine { directory: directory.to_owned(), name: name.to_owned(), how: words.join(", "), is_changed }
}
