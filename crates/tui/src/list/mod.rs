//! The list of sessions.

use azureal::desk::SessionLine;
use azureal::{SessionId, SessionRecord};

use crate::overlay::Input;

/// The list of sessions: its lines, the selected one, and the filter.
#[derive(Debug, Default)]
pub(crate) struct SessionList {
    lines: Vec<SessionLine>,
    /// Whether the sessions are known.
    pub(crate) is_loaded: bool,
    selected: Option<SessionId>,
    /// The first row that is drawn.
    offset: usize,
    /// The words that the shown sessions contain.
    pub(crate) filter: Input,
    /// Whether the filter is being typed.
    pub(crate) is_filtering: bool,
    /// Whether sessions of other worktrees are listed.
    pub(crate) all_worktrees: bool,
}

impl SessionList {
    /// Takes the sessions.
    pub(crate) fn set(&mut self, lines: Vec<SessionLine>) {
        // A selected session that was deleted gives its place to the one after it.
        let place = self.place();
        self.lines = lines;
        self.is_loaded = true;
        if let Some(place) = place
            && self.place().is_none()
        {
            self.select_at(place);
        }
    }

    /// Returns all sessions.
    pub(crate) fn lines(&self) -> &[SessionLine] {
        &self.lines
    }

    /// Returns the line of a session.
    pub(crate) fn line(&self, session: SessionId) -> Option<&SessionLine> {
        self.lines.iter().find(|line| line.record.id == session)
    }

    /// Returns the sessions that match the filter.
    pub(crate) fn shown(&self) -> Vec<&SessionLine> {
        let filter = self.filter.text().to_lowercase();
        let words: Vec<&str> = filter.split_whitespace().collect();
        self.lines.iter().filter(|line| matches(&line.record, &words)).collect()
    }

    /// Returns the selected session.
    pub(crate) fn selected(&self) -> Option<&SessionLine> {
        let shown = self.shown();
        let selected = shown.iter().find(|line| Some(line.record.id) == self.selected);
        selected.or_else(|| shown.first()).copied()
    }

    /// Returns the row of the selected session.
    fn place(&self) -> Option<usize> {
        let selected = self.selected?;
        self.shown().iter().position(|line| line.record.id == selected)
    }

    /// Selects a session.
    pub(crate) fn select(&mut self, session: SessionId) {
        self.selected = Some(session);
    }

    /// Selects the session in a row, or in the last one.
    pub(crate) fn select_at(&mut self, row: usize) {
        let shown = self.shown();
        let line = shown.get(row).or_else(|| shown.last());
        self.selected = line.map(|line| line.record.id);
    }

    /// Moves the selection by rows.
    pub(crate) fn step(&mut self, rows: isize) {
        let place = self.place().unwrap_or(0);
        self.select_at(place.saturating_add_signed(rows));
    }

    /// Scrolls so that the selected row is within a height.
    pub(crate) fn scroll_to_selected(&mut self, height: usize) {
        let place = self.place().unwrap_or(0);
        let last = self.shown().len().saturating_sub(height);
        let lowest = place.saturating_add(1).saturating_sub(height);
        self.offset = self.offset.clamp(lowest, place.max(lowest)).min(last);
    }

    /// Returns the first row that is drawn.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Returns whether a turn runs in any session.
    pub(crate) fn is_any_running(&self) -> bool {
        self.lines.iter().any(|line| line.active.is_some())
    }

    /// Returns the number of sessions with a running turn that are not open.
    pub(crate) fn running_besides(&self, is_open: impl Fn(SessionId) -> bool) -> usize {
        self.lines.iter().filter(|line| line.active.is_some() && !is_open(line.record.id)).count()
    }
}

/// Returns whether a session contains all words, in any case.
fn matches(record: &SessionRecord, words: &[&str]) -> bool {
    if words.is_empty() {
        return true;
    }
    let counts = &record.counts;
    let parts = [
        Some(record.id.to_string()),
        Some(record.name.clone()),
        counts.preview.clone(),
        counts.last_prompt.clone(),
        counts.agent.clone(),
        counts.model.clone(),
    ];
    let text = parts.into_iter().flatten().collect::<Vec<_>>().join(" ").to_lowercase();
    words.iter().all(|word| text.contains(word))
}

/// Returns the title of a session: its name, or its first prompt if it has no name of its own.
pub(crate) fn title(record: &SessionRecord) -> &str {
    let counts = &record.counts;
    let first = counts.preview.as_deref().filter(|preview| !preview.trim().is_empty());
    let prompt = first.or(counts.last_prompt.as_deref());
    if record.name == record.id.to_string() { prompt.unwrap_or_default() } else { &record.name }
}

#[cfg(test)]
mod tests {
    use azureal::core::{Counts, Threshold};
    use azureal::meter::Meter;

    use super::*;

    fn line(number: u32, name: &str) -> SessionLine {
        let counts = Counts { agent: Some("codex".into()), ..Counts::default() };
        let id = SessionId::new(number).unwrap();
        let record = SessionRecord { name: name.into(), counts, ..SessionRecord::new(id) };
        SessionLine { meter: Meter::of(&record, Threshold::default()), record, active: None }
    }

    fn list(names: &[(u32, &str)]) -> SessionList {
        let mut list = SessionList::default();
        list.set(names.iter().map(|(number, name)| line(*number, name)).collect());
        list
    }

    fn selected(list: &SessionList) -> u32 {
        list.selected().map_or(0, |line| line.record.id.number())
    }

    #[test]
    fn the_selection_stays_with_its_session_when_the_order_changes() {
        let mut list = list(&[(3, "c"), (2, "b"), (1, "a")]);
        list.step(1);
        assert_eq!(selected(&list), 2);
        list.set(vec![line(2, "b"), line(3, "c"), line(1, "a")]);
        assert_eq!(selected(&list), 2);
        list.set(vec![line(3, "c"), line(1, "a")]);
        assert_eq!(selected(&list), 3, "the session in its place");
    }

    #[test]
    fn a_filter_finds_words_in_any_case_and_order() {
        let mut list = list(&[(12, "Fix login race"), (2, "flaky CI")]);
        list.filter.insert("codex LOGIN");
        assert_eq!(list.shown().len(), 1);
        assert_eq!(selected(&list), 12);
        list.filter.insert(" nowhere");
        assert!(list.selected().is_none());
        list.step(1);
        assert!(list.selected().is_none());
    }

    #[test]
    fn the_selected_row_is_always_in_view() {
        let names: Vec<(u32, String)> = (1..=50).map(|number| (number, format!("n{number}"))).collect();
        let mut list = list(&names.iter().map(|(number, name)| (*number, name.as_str())).collect::<Vec<_>>());
        for step in [49, -3, 10, -40, 7] {
            list.step(step);
            list.scroll_to_selected(10);
            let place = list.place().unwrap();
            assert!((list.offset()..list.offset() + 10).contains(&place), "{} {place}", list.offset());
        }
    }
}
