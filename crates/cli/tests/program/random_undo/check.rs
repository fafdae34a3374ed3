//! What must hold after an undo, a refusal and a comparison.

use std::collections::BTreeSet;

use super::Case;
use super::state::{Entry, Files, Kind, State, changed, is_nested, shown, shown_entry};

/// Changes that a session has: of a turn, or of an undo.
pub(super) struct Recorded {
    pub(super) session: usize,
    /// The number of the turn.
    pub(super) turn: usize,
    pub(super) seq: u64,
    /// The changes that it took back, by their place in the list.
    pub(super) of: Option<usize>,
    pub(super) before: State,
    pub(super) after: State,
    /// It was interrupted, or another session ran meanwhile.
    pub(super) needs_force: bool,
}

/// The reasons of docs/changes.md.
const REASONS: [&str; 7] = [
    "changed since turn",
    "cannot be restored",
    "ran in this worktree during turn",
    "was interrupted: its recorded changes",
    "is undone already",
    "there is nothing to undo",
    "nothing was undone",
];

impl Recorded {
    /// Returns whether a snapshot before and one after it say that the turn created a file.
    fn is_created(&self, path: &[u8]) -> bool {
        !self.before.files.contains_key(path)
            && (self.of.is_some() || (self.after.is_recorded(path) && !self.before.may_be_ignored(path)))
    }

    /// Returns whether an undo must restore a file.
    fn is_restored(&self, path: &[u8]) -> bool {
        self.before.files.contains_key(path) && (self.of.is_some() || self.before.is_recorded(path))
    }

    /// Returns whether a snapshot has the change of a file.
    fn is_recorded(&self, path: &[u8]) -> bool {
        self.is_restored(path) || self.is_created(path)
    }

    /// Returns whether each changed file is recorded as it is, or is of no concern to an undo.
    fn is_plain(&self) -> bool {
        let is_usual = |files: &Files, path: &[u8]| {
            files.get(path).is_none_or(|entry| matches!(entry.kind, Kind::File | Kind::Link))
        };
        let paths = changed(&self.before.files, &self.after.files);
        let usual = paths.iter().all(|path| {
            is_usual(&self.before.files, path) && is_usual(&self.after.files, path) && !is_nested(path)
        });
        // A file that is not ignored any more was there.
        let shows = |path: &Vec<u8>| {
            self.after.is_recorded(path) && !self.before.is_recorded(path) && !self.is_created(path)
        };
        let is_known = self.before.git.is_some() && self.after.git.is_some();
        usual && is_known && (self.of.is_some() || !self.after.files.keys().any(shows))
    }
}

impl Case {
    /// Returns whether changes are undone, and that was not undone itself.
    fn is_undone(&self, chosen: usize) -> bool {
        let undos = self.recorded.iter().enumerate().filter(|(_, other)| other.of == Some(chosen));
        undos.into_iter().any(|(place, _)| !self.is_undone(place))
    }

    /// Checks the files after an undo.
    pub(super) fn check_undone(&self, chosen: usize, before: &State, after: &State, force: bool) {
        let undone = &self.recorded[chosen];
        let in_question = changed(&undone.before.files, &undone.after.files);
        let fail = |path: &[u8], what: &str| -> ! {
            let files = [&undone.before, &undone.after, before, after]
                .map(|state| shown_entry(state.files.get(path)));
            let [turn_before, turn_after, undo_before, undo_after] = files;
            panic!(
                "{}: {what}\nbefore the turn: {turn_before}\nafter the turn: {turn_after}\nbefore the undo: {undo_before}\nafter the undo: {undo_after}",
                shown(path)
            )
        };
        for path in changed(&before.files, &after.files) {
            // A pipe is in no snapshot.
            let recorded = |entry: &&Entry| entry.kind != Kind::Pipe;
            let wanted = undone.before.files.get(&path).filter(recorded);
            if !in_question.contains(&path) {
                fail(&path, "the undo changed it, and the turn did not");
            }
            if after.files.get(&path) != wanted {
                fail(&path, "it is not as it was before the turn");
            }
            let left = undone.after.files.get(&path).filter(recorded);
            if !force && before.files.get(&path) != left {
                fail(&path, "it was changed since the turn");
            }
            let was_ignored = undone.before.git.as_ref().is_some_and(|git| git.ignored.contains(&path));
            if wanted.is_none() && undone.of.is_none() && was_ignored {
                fail(&path, "it was ignored when the turn began");
            }
        }
        if force || self.ignores_case() || undone.before.git.is_none() || undone.after.git.is_none() {
            return;
        }
        for path in &in_question {
            if undone.is_recorded(path) && after.files.get(path) != undone.before.files.get(path) {
                fail(path, "the undo did not restore it");
            }
        }
    }

    /// Checks that a refused undo has changed nothing, and has a reason.
    pub(super) fn check_refused(
        &self,
        chosen: usize,
        before: &State,
        after: &State,
        force: bool,
        said: &str,
    ) {
        assert!(before.files == after.files, "a refused undo changed files");
        assert!(REASONS.iter().any(|reason| said.contains(reason)), "an undo was refused: {said}");
        let undone = &self.recorded[chosen];
        let paths = changed(&undone.before.files, &undone.after.files);
        let is_as_left = paths.iter().all(|path| before.files.get(path) == undone.after.files.get(path));
        let is_free = is_as_left && undone.is_plain() && before.files == undone.after.files;
        let has_nothing =
            said.contains("there is nothing to undo") && !paths.iter().any(|path| undone.is_recorded(path));
        let has_reason =
            self.is_undone(chosen) || (undone.needs_force && !force) || self.ignores_case() || has_nothing;
        assert!(!is_free || has_reason, "an undo was refused without a reason: {said}");
    }

    fn ignores_case(&self) -> bool {
        self.log.iter().any(|line| line.contains("core.ignoreCase true"))
    }

    /// Checks that the diff of a turn has no content of a file that was ignored before it.
    pub(super) fn check_diff(&mut self, chosen: usize) {
        let Recorded { session, turn, of: None, before, after, .. } = &self.recorded[chosen] else { return };
        if before.git.is_none() || after.git.is_none() || self.ignores_case() {
            return;
        }
        let tokens_of = |state: &State, is_one: &dyn Fn(&[u8]) -> bool| -> BTreeSet<String> {
            let files = state.files.iter().filter(|(path, _)| is_one(path));
            files.flat_map(|(_, entry)| tokens(&entry.bytes)).collect()
        };
        let open = tokens_of(before, &|path| before.is_recorded(path));
        let was_ignored = |path: &[u8]| before.git.as_ref().is_some_and(|git| git.ignored.contains(path));
        let is_new = |path: &[u8]| !before.files.contains_key(path) && !was_ignored(path);
        let new = tokens_of(after, &|path| is_new(path) || before.is_recorded(path));
        let hidden = tokens_of(before, &|path| !before.is_recorded(path) && !is_nested(path));
        let (name, number) = (format!("S{}", session + 1), turn.to_string());
        let diff = self.program("azureal", &["diff", &name, "--turn", &number, "--json"]).output().unwrap();
        let diff = String::from_utf8_lossy(&diff.stdout).into_owned();
        for token in hidden.iter().filter(|token| !open.contains(*token) && !new.contains(*token)) {
            assert!(
                !diff.contains(token.as_str()),
                "the diff has {token} of a file that was ignored: {diff}"
            );
        }
    }
}

/// Returns the words of a content that only one file had when it was written.
fn tokens(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| word.starts_with("token") && word.len() == 21).map(str::to_owned).collect()
}
