//! What the pane shows before there is a conversation.

use azureal::transcript::Tone;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::text::{Piece, one_line, width, wrap, write};
use crate::keys::{Action, Context};
use crate::overlay::version_number;
use crate::state::State;
use crate::theme::Mark;

/// Draws the agents, the store and how to begin.
pub(super) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let area = Rect { x: area.x.saturating_add(1), width: area.width.saturating_sub(2), ..area };
    let mut rows: Vec<Vec<Piece>> = Vec::new();
    let text = |rows: &mut Vec<Vec<Piece>>, text: &str, style: Style| {
        for line in wrap(text, area.width, 4, &state.theme) {
            rows.push(vec![(line, style)]);
        }
    };
    let label = |action| state.keys.label(Context::Prompt, action).unwrap_or_default();
    let is_first = state.list.is_loaded && state.list.lines().is_empty();
    if is_first {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        text(&mut rows, "azureal keeps your conversations with coding agents: one history, any agent.", bold);
        rows.push(Vec::new());
    }
    let begin = format!("Type a prompt and press {}.", label(Action::Send));
    text(&mut rows, &begin, Style::new());
    let count = state.list.lines().len();
    if count > 0 {
        let words = if count == 1 { "session" } else { "sessions" };
        text(&mut rows, &format!("{count} {words}: {}", label(Action::Sessions)), Style::new());
    }
    let mut keys = vec![format!("{} agent and model", label(Action::Agents))];
    if count == 0 {
        keys.push(format!("{} sessions", label(Action::Sessions)));
    }
    keys.push(format!("{} all keys", label(Action::Help)));
    text(&mut rows, &keys.join("   "), Style::new());
    if let Some(found) = state.settings.found_elsewhere.as_ref().filter(|_| is_first) {
        rows.push(Vec::new());
        text(&mut rows, found, Style::new());
    }
    rows.push(Vec::new());
    agents(state, area.width, &mut rows);
    if is_first && !state.settings.store.is_empty() {
        let store = format!("store   {} (created with the first prompt)", state.settings.store);
        text(&mut rows, &store, Style::new());
    }
    if state.untrusted.is_some() {
        let note = format!(
            "!       the configuration of this project is not trusted: {} shows it",
            label(Action::Trust)
        );
        text(&mut rows, &note, state.theme.tone(Tone::Caution));
    }
    for agent in state.agents.iter().flatten().filter(|agent| agent.version.is_none()) {
        if let Some(hint) = agent.hint.as_ref().filter(|hint| *hint != "not installed") {
            text(&mut rows, &format!("{}: {hint}", agent.name), Style::new());
        }
    }
    // From the top if there is little room, else with some space above.
    let free = area.height.saturating_sub(u16::try_from(rows.len()).unwrap_or(area.height));
    let top = free.min(2) / 2;
    for (row, pieces) in (top..).zip(&rows) {
        write(buf, area, row, pieces);
    }
}

/// Adds the rows of the agents.
fn agents(state: &State, columns: u16, rows: &mut Vec<Vec<Piece>>) {
    const LABEL: &str = "agents  ";
    let theme = &state.theme;
    let mut row = vec![(LABEL.to_owned(), Style::new())];
    let mut taken = width(LABEL);
    let Some(agents) = &state.agents else {
        row.push(("looking for them".to_owned(), Style::new()));
        rows.push(row);
        return;
    };
    if agents.is_empty() {
        row.push(("none".to_owned(), theme.tone(Tone::Bad)));
    }
    for agent in agents {
        let (mark, tone, version) = match &agent.version {
            Some(version) => (theme.mark(Mark::Good), Tone::Good, version_number(version)),
            None => (theme.mark(Mark::Bad), Tone::Bad, "not installed"),
        };
        let pieces = [
            (one_line(&format!("{} {version} ", agent.name)), Style::new()),
            (format!("{mark}   "), theme.tone(tone)),
        ];
        let needed: u16 = pieces.iter().map(|(text, _)| width(text)).sum();
        if taken.saturating_add(needed) > columns.saturating_add(3) {
            rows.push(std::mem::replace(&mut row, vec![(" ".repeat(LABEL.len()), Style::new())]));
            taken = width(LABEL);
        }
        taken = taken.saturating_add(needed);
        row.extend(pieces);
    }
    rows.push(row);
}
