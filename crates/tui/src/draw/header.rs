//! The header of the project and the header of the session.

use azureal::desk::NextAgent;
use azureal::transcript::Tone;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::areas::is_small;
use super::meter;
use super::text::{Piece, fit, width, write_both};
use crate::keys::{Action, Context};
use crate::list::title;
use crate::pane::Phase;
use crate::state::clock::running;
use crate::state::{Slot, State};
use crate::theme::Mark;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws the header of the project.
pub(super) fn project(state: &State, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let dot = theme.mark(Mark::Dot);
    let mut right: Vec<Piece> = Vec::new();
    let mut counts = Vec::new();
    match state.running() {
        0 => {}
        count => counts.push(format!("{count} running")),
    }
    match state.unread() {
        0 => {}
        count => counts.push(format!("{count} unread")),
    }
    right.push((counts.join(&format!(" {dot} ")), Style::new()));
    if let Some(help) = state.keys.hint(Context::Anywhere, Action::Help) {
        right.push((format!("   {help} "), Style::new()));
    }
    let taken: u16 = right.iter().map(|(text, _)| width(text)).sum();
    let room = area.width.saturating_sub(taken).saturating_sub(12);
    let place = match &state.settings.branch {
        Some(branch) => format!("{} {dot} {branch}", state.settings.project),
        None => state.settings.project.clone(),
    };
    let left = [(" azureal  ".to_owned(), BOLD), (fit(&place, room, theme), Style::new())];
    write_both(buf, area, 0, &left, &right);
}

/// Draws the header of the session: number, name, agent and model, state, context usage.
pub(super) fn session(state: &State, slot: &Slot, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let is_small = is_small(state);
    let lead = if is_small || area.x > 0 { "" } else { " " };
    let mut right: Vec<Piece> = Vec::new();
    if let Some(text) = turn_state(state, slot) {
        let mark = spinner(state);
        let gap = if is_small { "" } else { " " };
        right.push((format!(" {mark}{gap}{text}"), theme.tone(Tone::Good).add_modifier(Modifier::BOLD)));
    }
    let agent = agent_of(slot);
    if is_small && !agent.is_empty() {
        let name = agent.split(' ').next().unwrap_or_default();
        right.push((format!(" {}", fit(name, 10, theme)), Style::new()));
    }
    if let Some(size) = slot.pane.meter() {
        right.push(("  ".to_owned(), Style::new()));
        right.extend(meter::pieces(state, size, if is_small { 0 } else { 10 }));
        if !is_small {
            right.push((" context ".to_owned(), Style::new()));
        }
    }
    let taken: u16 = right.iter().map(|(text, _)| width(text)).sum();
    let mut room = area.width.saturating_sub(taken).saturating_sub(width(lead));
    let (number, name) = match slot.pane.record() {
        Some(record) => (format!("{} ", record.id), title(record).to_owned()),
        None => (String::new(), "new conversation".to_owned()),
    };
    room = room.saturating_sub(width(&number));
    let agent =
        if is_small || agent.is_empty() { String::new() } else { format!("   {}", fit(&agent, 30, theme)) };
    // The name is more important than the model.
    let agent = if room > width(&agent).saturating_add(12) { agent } else { String::new() };
    let name = fit(&name, room.saturating_sub(width(&agent)), theme);
    let left = [(lead.to_owned(), Style::new()), (number, BOLD), (name, BOLD), (agent, Style::new())];
    write_both(buf, area, 0, &left, &right);
}

/// Returns the agent and model: of the running turn, else of the next one.
fn agent_of(slot: &Slot) -> String {
    let next = slot.pane.next_agent();
    let turn = slot.pane.turn().filter(|turn| !turn.agent.is_empty());
    let agent = match turn {
        Some(turn) => &NextAgent { agent: Some(turn.agent.clone()), model: turn.model.clone() },
        None => next,
    };
    match (&agent.agent, &agent.model) {
        (Some(agent), Some(model)) => format!("{agent} {model}"),
        (Some(agent), None) => agent.clone(),
        _ => String::new(),
    }
}

/// Returns the state of the turn in words or as a running time; `None` if none runs.
pub(super) fn turn_state(state: &State, slot: &Slot) -> Option<String> {
    if !slot.is_running() {
        return None;
    }
    let Some(turn) = slot.pane.turn() else { return Some("sending".to_owned()) };
    if slot.cancelled.is_some() {
        return Some("cancelling".to_owned());
    }
    if turn.question.is_some() {
        return Some("asks".to_owned());
    }
    Some(match (&turn.phase, turn.since_ms) {
        (Phase::Waiting(_), _) => "waiting".to_owned(),
        (Phase::Compacting(_), _) => "compacting".to_owned(),
        (Phase::Running, Some(since)) => running(state.now_ms.saturating_sub(since)),
        (Phase::Preparing(_) | Phase::Running, _) => "starting".to_owned(),
    })
}

/// Returns the mark of the running turn. It moves if that is wanted, and only when the screen is drawn anyway.
fn spinner(state: &State) -> &'static str {
    if !state.settings.has_motion {
        return state.theme.mark(Mark::Running);
    }
    let frame = state.now_ms / 250 % 4;
    match (state.theme.is_ascii, frame) {
        (false, 0) => "⠋",
        (false, 1) => "⠙",
        (false, 2) => "⠴",
        (false, _) => "⠦",
        (true, 0) => "|",
        (true, 1) => "/",
        (true, 2) => "-",
        (true, _) => "\\",
    }
}
