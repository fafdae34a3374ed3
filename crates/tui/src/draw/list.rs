//! The list of sessions.

use azureal::desk::SessionLine;
use azureal::transcript::{Tone, cost_text};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};

use super::areas::Areas;
use super::meter;
use super::text::{Piece, one_line, pad, pad_left, style_row, wrap, write};
use crate::keys::{Action, Context};
use crate::list::title;
use crate::state::clock::{ago, parse_ms, running};
use crate::state::{Focus, State};
use crate::theme::Mark;

/// From this width on, a row has the model, the cost and the context usage too.
const FULL_WIDTH: u16 = 70;

/// The rows of an empty list that say what agents' programs keep.
const MOST_FOUND_ROWS: usize = 8;

/// Draws the list. Returns the place of the cursor in the filter.
pub(super) fn draw(state: &State, areas: &Areas, buf: &mut Buffer) -> Option<Position> {
    let area = areas.list?;
    let mut cursor = None;
    if let Some(filter) = areas.filter {
        let text = one_line(&state.list.filter.text());
        let x =
            write(buf, filter, 0, &[(" / ".to_owned(), state.theme.tone(Tone::User)), (text, Style::new())]);
        if state.list.is_filtering && filter.width > 0 && filter.height > 0 {
            let column = filter.x.saturating_add(3).saturating_add(state.list.filter.column());
            cursor = Some(Position { x: column.min(x).min(filter.right().saturating_sub(1)), y: filter.y });
        }
    }
    let shown = state.list.shown();
    if shown.is_empty() {
        let text = match (state.list.is_loaded, state.list.lines().is_empty()) {
            (false, _) => " reading the sessions",
            (true, true) => " no sessions yet",
            (true, false) => " no session has these words",
        };
        write(buf, area, 0, &[(text.to_owned(), Style::new())]);
        let found = state.settings.found_elsewhere.as_ref();
        if let Some(found) = found.filter(|_| state.list.is_loaded && state.list.lines().is_empty()) {
            let columns = area.width.saturating_sub(1);
            for (row, line) in (2_u16..).zip(wrap(found, columns, MOST_FOUND_ROWS, &state.theme)) {
                write(buf, area, row, &[(format!(" {line}"), Style::new())]);
            }
        }
    }
    let selected = state.list.selected().map(|line| line.record.id);
    let rows = shown.into_iter().skip(state.list.offset()).take(area.height.into());
    for (row, line) in (0_u16..).zip(rows) {
        let is_selected = state.focus == Focus::List && selected == Some(line.record.id);
        let is_shown = state.shown_session() == Some(line.record.id);
        write(buf, area, row, &pieces(state, line, area.width, is_selected, is_shown));
        if is_selected {
            style_row(buf, area, row, state.theme.chosen());
        }
    }
    details(state, areas.details, buf);
    cursor
}

/// Returns the mark of a session, its tone, and its word.
pub(super) fn state_of(state: &State, line: &SessionLine) -> (Option<Mark>, Tone, &'static str) {
    let record = &line.record;
    let slot = state.pane_of(record.id).and_then(|pane| state.slots.get(&pane));
    let is_unread = slot.map_or_else(|| state.keeper.is_unread(record), crate::state::Slot::has_unread);
    if line.active.is_some() || slot.is_some_and(crate::state::Slot::is_running) {
        (Some(Mark::Running), Tone::Good, "running")
    } else if is_unread {
        (Some(Mark::Unread), Tone::Caution, "unread")
    } else {
        match record.completed {
            Some(true) => (Some(Mark::Good), Tone::Good, "done"),
            Some(false) => (Some(Mark::Bad), Tone::Bad, "failed"),
            None => (None, Tone::Plain, "no finished turn"),
        }
    }
}

/// Returns when something happened in a session last: for how long its turn runs, or how long ago it was active.
fn activity(state: &State, line: &SessionLine) -> String {
    let slot = state.pane_of(line.record.id).and_then(|pane| state.slots.get(&pane));
    let since = slot.and_then(|slot| slot.pane.turn()).and_then(|turn| turn.since_ms);
    let since = since.or_else(|| parse_ms(&line.active.as_ref()?.since));
    match since {
        Some(since) => running(state.now_ms.saturating_sub(since)),
        None => parse_ms(line.record.active_at()).map(|time| ago(time, state.now_ms)).unwrap_or_default(),
    }
}

fn pieces(state: &State, line: &SessionLine, width: u16, is_selected: bool, is_shown: bool) -> Vec<Piece> {
    let theme = &state.theme;
    let record = &line.record;
    let (mark, tone, _) = state_of(state, line);
    let weight = if is_shown { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
    let number = record.id.to_string();
    let number_width = u16::try_from(number.len()).unwrap_or(0).max(4);
    let lead = if is_selected { theme.mark(Mark::Chosen) } else { " " };
    // Of a session whose first turn runs, only the turn is known.
    let active = line.active.as_ref();
    let agent = record.counts.agent.as_deref().or(active.map(|turn| turn.agent.as_str())).unwrap_or_default();
    let model = record.counts.model.as_deref().unwrap_or_default();
    let is_full = width >= FULL_WIDTH;
    let (agent, agent_width) = match width {
        _ if is_full => (format!("{agent} {model}"), 20),
        0..36 => (String::new(), 0),
        _ => (agent.to_owned(), 7),
    };
    let time_width = 7;
    let extra = if is_full { 8 + 12 } else { 0 };
    let fixed = 1 + number_width + 1 + 2 + agent_width + 1 + time_width + extra;
    let name_width = width.saturating_sub(fixed);
    let slot = state.pane_of(record.id).and_then(|pane| state.slots.get(&pane));
    let name = Some(title(record)).filter(|title| !title.is_empty());
    let name = name.map(str::to_owned).or_else(|| slot.map(crate::state::Slot::title));
    let name = name.or_else(|| active?.prompt.clone()).unwrap_or_default();
    let mut out = vec![
        (lead.to_owned(), weight),
        (pad(&number, number_width, theme), weight),
        (" ".to_owned(), weight),
        (mark.map_or(" ", |mark| theme.mark(mark)).to_owned(), theme.tone(tone)),
        (" ".to_owned(), weight),
        (pad(&name, name_width, theme), weight),
    ];
    if agent_width > 0 {
        out.push((format!(" {}", pad(&agent, agent_width, theme)), Style::new()));
    }
    out.push((pad_left(&activity(state, line), time_width, theme), Style::new()));
    if is_full {
        out.push((pad_left(&cost_text(record.cost_usd), 8, theme), Style::new()));
        out.push(("  ".to_owned(), Style::new()));
        out.extend(meter::pieces(state, &line.meter, 5));
    }
    out
}

/// Draws the facts of the selected session, and the keys of the list.
fn details(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let indent = |text: String| [(" ".to_owned(), Style::new()), (text, Style::new())];
    let width = area.width.saturating_sub(1);
    let last = area.height.saturating_sub(1);
    if state.focus != Focus::List {
        let hint = state.keys.hint(Context::Anywhere, Action::Sessions).unwrap_or_default();
        write(buf, area, last, &indent(hint));
        return;
    }
    let Some(line) = state.list.selected() else { return };
    let dot = format!(" {} ", theme.mark(Mark::Dot));
    let (_, _, word) = state_of(state, line);
    let mut facts = vec![word.to_owned(), format!("{} messages", line.record.counts.messages)];
    facts.extend(Some(cost_text(line.record.cost_usd)).filter(|cost| !cost.is_empty()));
    facts.push(format!("{}% context", line.meter.percent));
    let facts = wrap(&facts.join(&dot), width, if area.height > 1 { 2 } else { 1 }, theme);
    let of = |action| state.keys.hint(Context::List, action);
    use Action::{Delete, Filter, Fork, New, Open, Rename};
    let keys: Vec<String> = [Open, New, Rename, Fork, Delete, Filter].into_iter().filter_map(of).collect();
    // The keys are in the line of keys too, if there is no room here.
    let keys = if area.height > 4 { wrap(&keys.join("  "), width, 2, theme) } else { Vec::new() };
    for (row, text) in (u16::from(area.height > 1)..).zip(facts.into_iter().chain(keys)) {
        write(buf, area, row, &indent(text));
    }
}
