//! What the pane shows before there is a conversation.

use azureal::transcript::Tone;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::text::{Piece, wrap, write};
use crate::keys::{Action, Context};
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
    rows.push(agents(state));
    if is_first {
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
    if let Some(agents) = &state.agents {
        for agent in agents.iter().filter(|agent| agent.version.is_none()) {
            if let Some(hint) = &agent.hint {
                text(&mut rows, &format!("{}: {hint}", agent.name), Style::new());
            }
        }
    }
    rows.push(Vec::new());
    let begin = format!("Type a prompt and press {}.", label(Action::Send));
    text(&mut rows, &begin, Style::new());
    let keys = format!(
        "{} agent and model   {} sessions   {} all keys",
        label(Action::Agents),
        label(Action::Sessions),
        label(Action::Help)
    );
    text(&mut rows, &keys, Style::new());
    // From the top if there is little room, else with some space above.
    let free = area.height.saturating_sub(u16::try_from(rows.len()).unwrap_or(area.height));
    let top = free.min(2) / 2;
    for (row, pieces) in (top..).zip(&rows) {
        write(buf, area, row, pieces);
    }
}

/// Returns the line of the agents.
fn agents(state: &State) -> Vec<Piece> {
    let theme = &state.theme;
    let mut pieces = vec![("agents  ".to_owned(), Style::new())];
    let Some(agents) = &state.agents else {
        pieces.push(("looking for them".to_owned(), Style::new()));
        return pieces;
    };
    if agents.is_empty() {
        pieces.push(("none".to_owned(), theme.tone(Tone::Bad)));
    }
    for agent in agents {
        let (mark, tone, version) = match &agent.version {
            Some(version) => (theme.mark(Mark::Good), Tone::Good, version.as_str()),
            None => (theme.mark(Mark::Bad), Tone::Bad, "not installed"),
        };
        pieces.push((format!("{} {version} ", agent.name), Style::new()));
        pieces.push((format!("{mark}   "), theme.tone(tone)));
    }
    pieces
}
