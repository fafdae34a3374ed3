//! The mouse: the wheel scrolls, a click focuses and folds.

use azureal::desk::Request;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::slots;
use crate::draw::areas::Areas;
use crate::keys::Action;
use crate::overlay;
use crate::state::{Effect, Focus, State};

/// The rows of a step of the wheel.
const WHEEL: i32 = 3;

/// Takes an event of the mouse.
pub(super) fn take(state: &mut State, event: MouseEvent) -> Vec<Request> {
    let at = Position { x: event.column, y: event.row };
    match event.kind {
        MouseEventKind::ScrollUp => scroll(state, at, -WHEEL),
        MouseEventKind::ScrollDown => scroll(state, at, WHEEL),
        MouseEventKind::Down(MouseButton::Left) => {
            state.mouse.down = Some(at);
            Vec::new()
        }
        MouseEventKind::Up(MouseButton::Left) => match state.mouse.down.take() {
            Some(down) if down == at => click(state, at),
            Some(_) => let_go(state),
            None => Vec::new(),
        },
        MouseEventKind::Down(MouseButton::Right | MouseButton::Middle) | MouseEventKind::Drag(_) => {
            let_go(state)
        }
        _ => Vec::new(),
    }
}

/// Leaves the mouse to the terminal until the next key: the user tries to select or to paste.
fn let_go(state: &mut State) -> Vec<Request> {
    state.mouse.down = None;
    state.mouse.is_let_go = true;
    state.effect(Effect::Mouse(false));
    state.inform("the mouse selects text until the next key; with Shift it always does");
    Vec::new()
}

fn scroll(state: &mut State, at: Position, rows: i32) -> Vec<Request> {
    if !state.layers.is_empty() {
        overlay::scroll(state, rows);
        return Vec::new();
    }
    let areas = Areas::of(state);
    if areas.list.is_some_and(|list| list.contains(at)) {
        state.list.step(if rows < 0 { -1 } else { 1 });
        return Vec::new();
    }
    let action = if rows < 0 { Action::RowUp } else { Action::RowDown };
    let Some(slot) = state.slot_mut() else { return Vec::new() };
    (0..rows.abs()).flat_map(|_| slot.pane.act(action).requests).collect()
}

fn click(state: &mut State, at: Position) -> Vec<Request> {
    if !state.layers.is_empty() {
        return Vec::new();
    }
    let areas = Areas::of(state);
    let row_in = |area: Rect| at.y.saturating_sub(area.y);
    if let Some(list) = areas.list.filter(|list| list.contains(at)) {
        let row = usize::from(row_in(list)).saturating_add(state.list.offset());
        if row >= state.list.shown().len() {
            state.focus = Focus::List;
            return Vec::new();
        }
        state.list.select_at(row);
        return slots::open_selected(state);
    }
    if areas.prompt.contains(at) {
        state.focus = Focus::Prompt;
    } else if areas.pane.contains(at) {
        state.focus = Focus::Reading;
        let (row, column) = (row_in(areas.pane), at.x.saturating_sub(areas.pane.x));
        return state.slot_mut().map(|slot| slot.pane.click(row, column)).unwrap_or_default();
    }
    Vec::new()
}
