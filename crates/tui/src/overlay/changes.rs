//! The changes of a turn: its files and their diff, and the question before an undo.

use azureal::core::counted;
use azureal::core::event::{FileChange, FileStatus};
use azureal::desk::{FileChanges, PaneId, Request, UndoQuestion};
use azureal::transcript::{Tone, ascii_marks};
use azureal::{Seq, visible_line};
use crossterm::event::KeyCode;

use super::Layer;
use super::press::scroll_by_key;
use super::view::{View, back, hint, keys, paragraph, plain, scrolls, toned};
use crate::draw::text::{fit, hard_wrap, pad, width, wrap};
use crate::keys::{Action, Context, Key};
use crate::state::State;
use crate::theme::Theme;

/// The most rows that are laid out.
const MOST_ROWS: usize = 50_000;
/// The most rows of a line of a diff.
const LINE_ROWS: usize = 200;
/// The most conflicts that a question names.
const NAMED_CONFLICTS: usize = 10;
/// The most rows of a sentence.
const SENTENCE_ROWS: usize = 4;
/// The columns of the status of a file.
const STATUS_WIDTH: u16 = 9;

/// The changes of a turn.
#[derive(Debug)]
pub(crate) struct ChangesLayer {
    /// The pane.
    pub(crate) pane: PaneId,
    /// The event that they were asked for by.
    pub(crate) at: Option<Seq>,
    /// The first row that is drawn.
    pub(crate) scroll: u16,
    /// Whether the undo is to be asked for when the changes are known.
    asks_undo: bool,
    /// The changes; `None` until they are known.
    shown: Option<Box<FileChanges>>,
    laid: Laid,
}

/// The rows at a width.
#[derive(Debug, Default)]
struct Laid {
    width: u16,
    is_ascii: bool,
    rows: Vec<LaidRow>,
}

type LaidRow = Vec<(String, Tone)>;

impl ChangesLayer {
    /// Creates the layer, before the changes are known.
    pub(crate) fn new(pane: PaneId, at: Option<Seq>, asks_undo: bool) -> Self {
        Self { pane, at, scroll: 0, asks_undo, shown: None, laid: Laid::default() }
    }

    /// Takes the changes. Returns the request that the user waits for.
    pub(crate) fn take(&mut self, changes: Box<FileChanges>) -> Option<Request> {
        let asks_undo = std::mem::take(&mut self.asks_undo);
        let request = asks_undo.then(|| Request::PlanUndo { pane: self.pane, of: changes.undo_of() });
        self.shown = Some(changes);
        self.laid = Laid::default();
        request
    }

    /// Lays the rows out, unless that is done for this width.
    pub(crate) fn lay(&mut self, width: u16, theme: &Theme) {
        let Some(shown) = &self.shown else { return };
        if (self.laid.width, self.laid.is_ascii) == (width, theme.is_ascii) && !self.laid.rows.is_empty() {
            return;
        }
        self.laid = Laid { width, is_ascii: theme.is_ascii, rows: rows(shown, width, theme) };
    }

    /// Returns what is shown.
    pub(super) fn view(&self, state: &State) -> View {
        let Some(shown) = &self.shown else {
            return View {
                title: "Changes".to_owned(),
                rows: vec![vec![plain("They are being read.")]],
                keys: keys(state, &[&back(state, "back")]),
                ..View::default()
            };
        };
        let words = if shown.changes.undone_by.is_some() { "take the undo back" } else { "undo" };
        let undo = hint(state.keys.label(Context::Reading, Action::UndoTurn), words);
        let whole = if shown.diff.is_ok() { "v whole diff" } else { "" };
        // Only rows near those on the screen: there may be very many.
        let (count, screen) = (self.laid.rows.len(), usize::from(state.size.1));
        let first = count.min(self.scroll.into()).saturating_sub(screen);
        let near = self.laid.rows.iter().skip(first).take(screen.saturating_mul(2));
        let styled =
            |row: &LaidRow| row.iter().map(|(text, tone)| toned(state, text.as_str(), *tone)).collect();
        View {
            title: marked(&title(shown), &state.theme),
            first,
            count: Some(count),
            rows: near.map(styled).collect(),
            scroll: self.scroll,
            keys: keys(state, &[&undo, whole, &back(state, "back"), &scrolls(state)]),
            ..View::default()
        }
    }
}

/// Takes a key for the changes of a turn.
pub(super) fn press(state: &mut State, key: Key, layer: ChangesLayer) -> Vec<Request> {
    let pane = layer.pane;
    let request = layer.shown.as_ref().and_then(|shown| {
        if state.keys.action(Context::Reading, key) == Some(Action::UndoTurn) {
            return Some(Request::PlanUndo { pane, of: shown.undo_of() });
        }
        let is_whole = key.character() == Some('v') && shown.diff.is_ok();
        is_whole.then_some(Request::ReadChanges { pane, of: shown.of })
    });
    state.layers.push(Layer::Changes(layer));
    if request.is_none() {
        scroll_by_key(state, key);
    }
    request.into_iter().collect()
}

/// Takes a key for the question before an undo. One that overwrites later changes has a key of its own.
pub(super) fn answer(
    state: &mut State,
    key: Key,
    pane: PaneId,
    question: Box<UndoQuestion>,
    scroll: u16,
) -> Vec<Request> {
    let needs_force = !question.obstacles.is_empty();
    let letter = key.character();
    let (is_enter, is_no) = (key.is(KeyCode::Enter), letter == Some('n'));
    let is_yes = if needs_force { letter == Some('f') } else { letter == Some('y') || is_enter };
    if is_yes {
        // What becomes of it is a notice, which the layer would cover.
        close(state, pane);
        let turn = question.turn;
        state.inform(&format!("restoring the files of turn {turn}"));
        return vec![Request::Undo { pane, question, force: needs_force }];
    }
    if !is_no && !is_enter {
        state.layers.push(Layer::Undo { pane, question, scroll });
        scroll_by_key(state, key);
    }
    Vec::new()
}

/// Closes the changes of a pane.
pub(crate) fn close(state: &mut State, pane: PaneId) {
    state.layers.retain(|layer| !matches!(layer, Layer::Changes(changes) if changes.pane == pane));
}

/// Returns the question before an undo.
pub(super) fn question(state: &State, question: &UndoQuestion, width: u16, scroll: u16) -> View {
    let UndoQuestion { session, turn, restored, deleted, obstacles, conflicts, .. } = question;
    let takes_back = matches!(question.of, azureal::changes::ChangesOf::Event(_));
    let (title, asked) = match takes_back {
        true => ("Take an undo back", format!("Take back the undo of turn {turn} of {session}?")),
        false => ("Undo", format!("Undo the changes of turn {turn} of {session}?")),
    };
    let mut rows = paragraph(state, &asked, width, SENTENCE_ROWS);
    rows.extend(paragraph(state, &effect(*restored, *deleted), width, SENTENCE_ROWS));
    for obstacle in obstacles {
        let lines = wrap(obstacle, width.saturating_sub(2), SENTENCE_ROWS, &state.theme);
        for (index, line) in lines.into_iter().enumerate() {
            let mark = if index == 0 { "! " } else { "  " };
            rows.push(vec![toned(state, format!("{mark}{line}"), Tone::Caution)]);
        }
    }
    let (note, yes, no) = match obstacles.is_empty() {
        true => ("The session keeps its events. This can be taken back.", "↵ y", "n back"),
        false => (
            "f overwrites files that were changed since, and leaves out those that it cannot restore. This can be taken back.",
            "f",
            "↵ n back",
        ),
    };
    rows.extend(paragraph(state, note, width, SENTENCE_ROWS));
    if !conflicts.is_empty() {
        rows.push(Vec::new());
    }
    rows.extend(conflicts.iter().take(NAMED_CONFLICTS).map(|(path, why)| {
        // The reason is always seen: a long path gives way.
        let why = format!(": {why}");
        let room = width.saturating_sub(2).saturating_sub(crate::draw::text::width(&why));
        vec![plain("  "), plain(fit(&visible_line(path), room.max(8), &state.theme)), plain(why)]
    }));
    if let Some(more @ 1..) = conflicts.len().checked_sub(NAMED_CONFLICTS) {
        rows.push(vec![plain(format!("  and {more} more"))]);
    }
    let verb = if takes_back { "take it back" } else { "undo" };
    let force = if obstacles.is_empty() { "" } else { " all the same" };
    let scrolls = if conflicts.is_empty() { String::new() } else { scrolls(state) };
    let keys = keys(state, &[&format!("{yes} {verb}{force}"), no, &scrolls]);
    View { title: title.to_owned(), rows, scroll, keys, ..View::default() }
}

/// Says what an undo does.
fn effect(restored: usize, deleted: usize) -> String {
    let files = |count: usize| counted(count as u64, "file");
    let are = |count: usize| if count == 1 { "is" } else { "are" };
    match (restored, deleted) {
        (0, 0) => "No file has to be changed for it.".to_owned(),
        (restored, 0) => format!("{} {} restored.", files(restored), are(restored)),
        (0, deleted) => format!("{} {} deleted.", files(deleted), are(deleted)),
        (restored, deleted) => {
            format!(
                "{} {} restored, {} {} deleted.",
                files(restored),
                are(restored),
                files(deleted),
                are(deleted)
            )
        }
    }
}

/// Returns a text of ours with marks that the theme has.
fn marked(text: &str, theme: &Theme) -> String {
    if theme.is_ascii { ascii_marks(text) } else { text.to_owned() }
}

fn title(shown: &FileChanges) -> String {
    let changes = &shown.changes;
    let (session, turn, summary) = (changes.session, changes.turn, changes.summary());
    match shown.is_undo() {
        true => format!("{session}, undo of turn {turn}: {summary}"),
        false => format!("{session}, turn {turn}: {summary}"),
    }
}

/// Lays out what is known about the changes, the files and the diff.
fn rows(shown: &FileChanges, width: u16, theme: &Theme) -> Vec<LaidRow> {
    let changes = &shown.changes;
    let mut rows = Vec::new();
    let mut note = |text: &str| {
        rows.extend(
            wrap(text, width, SENTENCE_ROWS, theme).into_iter().map(|row| vec![(row, Tone::Caution)]),
        );
    };
    if changes.undone_by.is_some() {
        note(if shown.is_undo() { "Taken back." } else { "Undone." });
    }
    if !changes.during.is_empty() {
        let sessions = counted(changes.during.len() as u64, "other session");
        note(&format!("{sessions} ran in this worktree meanwhile, and may have made the changes."));
    }
    if changes.late {
        note("The turn was interrupted: these are the changes until it was recovered.");
    }
    rows.extend(changes.files.iter().map(|file| file_row(file, width, theme)));
    rows.extend(changes.directories.iter().map(|directory| {
        let text = format!("{} in {}", counted(directory.files, "more file"), directory.path);
        vec![(fit(&visible_line(&text), width, theme), Tone::Plain)]
    }));
    rows.push(Vec::new());
    match &shown.diff {
        Ok(diff) => diff_rows(&mut rows, &diff.text(), diff.left_out, width, theme),
        Err(error) => {
            let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
            let text = format!("There is no diff: {}{hint}", error.message());
            let lines = wrap(&text, width, SENTENCE_ROWS.saturating_mul(2), theme);
            rows.extend(lines.into_iter().map(|row| vec![(row, Tone::Caution)]));
        }
    }
    rows
}

/// Returns the row of a file: status, path, and the number of lines.
fn file_row(file: &FileChange, columns: u16, theme: &Theme) -> LaidRow {
    let counts: LaidRow = match (file.added, file.removed) {
        (None | Some(0), None | Some(0)) if matches!(file.status, FileStatus::Renamed | FileStatus::Mode) => {
            Vec::new()
        }
        (None, None) => vec![(" binary".to_owned(), Tone::Plain)],
        (added, removed) => vec![
            (format!(" +{}", added.unwrap_or(0)), Tone::Good),
            (marked(&format!(" −{}", removed.unwrap_or(0)), theme), Tone::Bad),
        ],
    };
    let status = match file.status {
        FileStatus::Mode => "mode".to_owned(),
        status => status.to_string(),
    };
    let path = match &file.from {
        Some(from) => format!("{from} to {}", file.path),
        None => file.path.clone(),
    };
    let taken: u16 = counts.iter().map(|(text, _)| width(text)).sum();
    let room = columns.saturating_sub(STATUS_WIDTH).saturating_sub(taken).max(8);
    let mut row = vec![
        (pad(&status, STATUS_WIDTH, theme), Tone::Plain),
        (fit(&visible_line(&path), room, theme), Tone::Name),
    ];
    row.extend(counts);
    row
}

/// Lays out a diff, as far as there is room for it.
fn diff_rows(rows: &mut Vec<LaidRow>, text: &str, left_out: u64, width: u16, theme: &Theme) {
    let (mut is_header, mut left_out) = (false, left_out);
    for line in text.split_terminator('\n') {
        if rows.len() >= MOST_ROWS {
            left_out = left_out.saturating_add(line.len() as u64).saturating_add(1);
            continue;
        }
        let is_first = line.starts_with("diff --git ");
        // Lines of a file begin with another character.
        is_header = is_first || (is_header && !line.starts_with('@'));
        let tone = match line.bytes().next() {
            _ if is_first => Tone::Name,
            _ if is_header => Tone::Quiet,
            Some(b'+') => Tone::Added,
            Some(b'-') => Tone::Removed,
            _ => Tone::Quiet,
        };
        if is_first && rows.last().is_some_and(|row| !row.is_empty()) {
            rows.push(Vec::new());
        }
        rows.extend(hard_wrap(line, width, LINE_ROWS, theme).into_iter().map(|row| vec![(row, tone)]));
    }
    if left_out > 0 {
        rows.push(Vec::new());
        let text = format!("{} more are left out: v shows the whole diff.", size(left_out));
        rows.extend(
            wrap(&text, width, SENTENCE_ROWS, theme).into_iter().map(|row| vec![(row, Tone::Caution)]),
        );
    }
}

/// Returns a number of bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => counted(bytes, "byte"),
        1_024..1_048_576 => format!("{} KB", bytes / 1_024),
        _ => format!("{} MB", bytes / 1_048_576),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEME: Theme = Theme { has_colours: true, background: None, is_ascii: false };

    fn laid(text: &str, left_out: u64) -> Vec<LaidRow> {
        let mut rows = Vec::new();
        diff_rows(&mut rows, text, left_out, 40, &THEME);
        rows
    }

    #[test]
    fn lines_of_a_file_that_look_like_a_header_are_changes() {
        let diff =
            "diff --git a/x b/x\nindex 1..2\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- old\n+++ new\n same\n";
        let tones: Vec<Tone> = laid(diff, 0).iter().map(|row| row[0].1).collect();
        let (first, quiet) = (Tone::Name, Tone::Quiet);
        let expected = [first, quiet, quiet, quiet, quiet, Tone::Removed, Tone::Added, quiet];
        assert_eq!(tones, expected);
    }

    #[test]
    fn a_long_diff_is_cut_and_says_how_much_is_missing() {
        let rows = laid(&"+\n".repeat(500_000), 3 << 20);
        let last: Vec<&str> = rows[MOST_ROWS + 1..].iter().map(|row| row[0].0.as_str()).collect();
        assert_eq!(last.join(" "), "3 MB more are left out: v shows the whole diff.");
        let one = laid(&"x".repeat(1 << 20), 0);
        assert_eq!(one.len(), LINE_ROWS, "a line has a limit of its own");
        assert_eq!(laid("", 0), Vec::<LaidRow>::new());
    }

    #[test]
    fn the_effect_of_an_undo_is_a_sentence() {
        assert_eq!(effect(1, 0), "1 file is restored.");
        assert_eq!(effect(2, 1), "2 files are restored, 1 file is deleted.");
        assert_eq!(effect(0, 3), "3 files are deleted.");
    }
}
