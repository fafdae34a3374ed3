//! The header of the project and the header of the session.

use azureal::transcript::{Tone, cost_text};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::areas::is_small;
use super::meter;
use super::text::{Piece, fit, width, write_both};
use crate::keys::{Action, Context};
use crate::pane::Phase;
use crate::state::clock::running;
use crate::state::{Slot, State};
use crate::theme::Mark;

/// Before the agent of the next turn, if it is not that of the running one.
const NEXT: &str = "next: ";

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

/// Draws the header of the session: number, name, agent and model, turn and cost, state, context usage.
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
    let agents = agents_of(state, slot);
    if let Some(agent) = agents.last().filter(|agent| is_small && !agent.is_empty()) {
        let name = agent.trim_start_matches(NEXT).split(' ').next().unwrap_or_default();
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
        Some(record) => (format!("{} ", record.id), slot.title()),
        None => {
            let title = Some(slot.title()).filter(|title| !title.is_empty());
            (String::new(), title.unwrap_or_else(|| "new conversation".to_owned()))
        }
    };
    room = room.saturating_sub(width(&number));
    // The name is more important than the model.
    let has_room = |agent: &String| !is_small && room > width(agent).saturating_add(12);
    let agents = agents.iter().filter(|agent| !agent.is_empty());
    let agent =
        agents.map(|agent| format!("   {}", fit(agent, 50, theme))).find(has_room).unwrap_or_default();
    room = room.saturating_sub(width(&agent));
    let name = fit(&name, room, theme);
    // The turn and the cost give way before anything else is cut.
    let fits = |facts: &String| !is_small && room > width(facts).saturating_add(width(&name));
    let facts = facts_of(state, slot).into_iter().find(fits).unwrap_or_default();
    let plain = [agent, facts].map(|text| (text, Style::new()));
    let left: Vec<Piece> =
        [(lead.to_owned(), Style::new()), (number, BOLD), (name, BOLD)].into_iter().chain(plain).collect();
    write_both(buf, area, 0, &left, &right);
}

/// Returns the turn and the cost of the session, in a long and in a short form.
fn facts_of(state: &State, slot: &Slot) -> Vec<String> {
    let turn = slot.pane.turn_number().map(|turn| format!("turn {turn}"));
    let cost = slot.pane.record().map(|record| cost_text(record.cost_usd)).filter(|cost| !cost.is_empty());
    let dot = state.theme.mark(Mark::Dot);
    let both: Vec<String> = turn.iter().cloned().chain(cost).collect();
    let forms = [both.join(&format!(" {dot} ")), turn.unwrap_or_default()];
    forms.into_iter().filter(|form| !form.is_empty()).map(|form| format!("   {form}")).collect()
}

/// Returns the agent and model, in a long and in a short form: of the running turn, and of the next one if the user chose another.
fn agents_of(state: &State, slot: &Slot) -> Vec<String> {
    let words = |agent: &str, model: Option<&String>| match model {
        Some(model) => format!("{agent} {model}"),
        None => agent.to_owned(),
    };
    let next = slot.pane.next_agent();
    // Without a choice, a new conversation is with the first agent that is installed.
    let first = || state.agents.iter().flatten().find(|line| line.version.is_some()).map(|line| &line.name);
    let next_agent =
        next.agent.as_ref().or_else(|| if slot.pane.session().is_none() { first() } else { None });
    let next = next_agent.map(|agent| words(agent, next.model.as_ref())).unwrap_or_default();
    let Some(turn) = slot.pane.turn().filter(|turn| !turn.agent.is_empty()) else { return vec![next] };
    let now = words(&turn.agent, turn.model.as_ref());
    if slot.chosen.is_none() || next == now {
        return vec![now];
    }
    let next = format!("{NEXT}{next}");
    vec![format!("{now}, {next}"), next]
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
