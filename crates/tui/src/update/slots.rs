//! Slots: which conversations are open, and which one is shown.

use azureal::desk::{PaneId, Request};
use azureal::{Seq, SessionId};
use crossterm::event::KeyCode;

use crate::keys::{Action, Context, Key};
use crate::overlay::{Input, Layer, SearchLayer};
use crate::state::{FIRST_EVENTS, Focus, Slot, State};

/// The most slots. Beyond it, an idle one gives way.
const MOST_SLOTS: usize = 9;
/// The rows of a page in the list.
const PAGE: isize = 10;

/// Returns whether a turn of a pane runs.
pub(super) fn is_running(state: &State, pane: PaneId) -> bool {
    state.slots.get(&pane).is_some_and(Slot::is_running)
}

/// Returns the panes whose turn runs and was started here.
pub(super) fn running_here(state: &State) -> Vec<PaneId> {
    let ours = |slot: &Slot| slot.is_running() && slot.pane.turn().is_none_or(|turn| turn.is_ours);
    state.slots.iter().filter(|(_, slot)| ours(slot)).map(|(pane, _)| *pane).collect()
}

/// Shows a pane.
pub(super) fn show(state: &mut State, pane: PaneId) {
    if !state.slots.contains_key(&pane) {
        return;
    }
    if state.focus == Focus::List {
        state.focus = Focus::Prompt;
    }
    if pane == state.shown {
        return;
    }
    if let Some(slot) = state.slot_mut() {
        slot.pane.set_shown(false);
        slot.pane.set_reading(false);
    }
    state.shown = pane;
    state.focus = Focus::Prompt;
    if let Some(slot) = state.slot_mut() {
        slot.pane.set_shown(true);
        slot.is_unread = false;
    }
    saw_shown(state);
    state.keeper.touch(state.now_ms);
}

/// Notes that the user sees the shown session.
pub(super) fn saw_shown(state: &mut State) {
    if let Some(record) = state.slots.get(&state.shown).and_then(|slot| slot.pane.record()) {
        state.keeper.saw(record, state.now_ms);
    }
}

/// Shows the slot with a number.
pub(super) fn show_number(state: &mut State, number: usize) {
    match state.order.get(number.wrapping_sub(1)) {
        Some(pane) => show(state, *pane),
        None => state.inform(&format!("there is no slot {number}")),
    }
}

/// Shows the slot after the shown one, or before it.
pub(super) fn step(state: &mut State, by: isize) {
    let count = state.order.len();
    let at = state.order.iter().position(|pane| *pane == state.shown).unwrap_or(0);
    let next = at.saturating_add(count).saturating_add_signed(by).checked_rem(count).unwrap_or(0);
    if let Some(pane) = state.order.get(next).copied() {
        let focus = state.focus;
        show(state, pane);
        state.focus = focus;
    }
}

/// Opens a session, or shows the pane that has it.
pub(super) fn open(state: &mut State, session: SessionId) -> Vec<Request> {
    if let Some(pane) = state.pane_of(session) {
        show(state, pane);
        return Vec::new();
    }
    let mut requests = Vec::new();
    let pane = if state.slot().is_some_and(Slot::is_untouched) {
        show(state, state.shown);
        state.shown
    } else {
        add(state, &mut requests)
    };
    requests.push(Request::Open { pane, session, last: FIRST_EVENTS });
    requests
}

/// Opens a session at an event, and marks a text in it.
pub(crate) fn open_at(state: &mut State, session: SessionId, seq: Seq, text: &str) -> Vec<Request> {
    let mut requests = open(state, session);
    state.focus = Focus::Reading;
    if let Some(slot) = state.slot_mut() {
        requests.extend(slot.pane.show_event(session, seq, text));
    }
    requests
}

/// Opens a new conversation.
pub(super) fn open_new(state: &mut State) -> Vec<Request> {
    let mut requests = Vec::new();
    let untouched =
        state.order.iter().copied().find(|pane| state.slots.get(pane).is_some_and(Slot::is_untouched));
    match untouched {
        Some(pane) => show(state, pane),
        None => drop(add(state, &mut requests)),
    }
    state.focus = Focus::Prompt;
    requests
}

/// Adds a slot and shows it.
fn add(state: &mut State, requests: &mut Vec<Request>) -> PaneId {
    while state.order.len() >= MOST_SLOTS
        && let Some(idle) = idle_slot(state)
    {
        requests.extend(remove(state, idle));
    }
    let last = state.slots.keys().next_back().map_or(0, |pane| pane.0);
    let pane = PaneId(last.max(state.last_pane).saturating_add(1));
    state.last_pane = pane.0;
    state.slots.insert(pane, Slot::new(pane, &state.settings.places));
    state.order.push(pane);
    show(state, pane);
    pane
}

/// Returns a slot that can give way: not shown, nothing runs, nothing typed, nothing unread.
fn idle_slot(state: &State) -> Option<PaneId> {
    let is_idle = |pane: &&PaneId| {
        **pane != state.shown
            && state.slots.get(*pane).is_some_and(|slot| {
                !slot.is_running() && slot.prompt.is_empty() && slot.waiting.is_empty() && !slot.has_unread()
            })
    };
    state.order.iter().find(is_idle).copied()
}

/// Closes the shown slot. Its turn continues, its text is kept.
pub(super) fn close_shown(state: &mut State) -> Vec<Request> {
    let pane = state.shown;
    let slot = state.slot();
    let is_new_with_text = slot.is_some_and(|slot| {
        slot.pane.session().is_none()
            && (slot.is_running() || !slot.prompt.is_empty() || !slot.waiting.is_empty())
    });
    if is_new_with_text {
        state.inform("the prompt of this new conversation is not sent yet");
        return Vec::new();
    }
    close(state, pane)
}

/// Closes a slot and shows the one before it.
pub(super) fn close(state: &mut State, pane: PaneId) -> Vec<Request> {
    let mut requests = Vec::new();
    if !state.slots.contains_key(&pane) {
        return requests;
    }
    if state.order.len() <= 1 {
        add(state, &mut requests);
    } else if pane == state.shown {
        let at = state.order.iter().position(|other| *other == pane).unwrap_or(0);
        let next = if at == 0 { 1 } else { at.saturating_sub(1) };
        if let Some(next) = state.order.get(next).copied() {
            show(state, next);
        }
    }
    requests.extend(remove(state, pane));
    requests
}

fn remove(state: &mut State, pane: PaneId) -> Vec<Request> {
    state.order.retain(|other| *other != pane);
    let Some(slot) = state.slots.remove(&pane) else { return Vec::new() };
    // Texts that the user left for an entry of the history.
    for text in slot.prompt.other_drafts() {
        state.history.add(&text);
    }
    state.keeper.put_draft(&slot);
    state.keeper.touch(state.now_ms);
    vec![Request::Close { pane }]
}

/// Opens the selected session of the list.
pub(super) fn open_selected(state: &mut State) -> Vec<Request> {
    let selected = state.list.selected().map(|line| line.record.id);
    selected.map(|session| open(state, session)).unwrap_or_default()
}

/// Moves in the list.
pub(super) fn move_in_list(state: &mut State, action: Action) {
    let rows = match action {
        Action::RowUp => -1,
        Action::RowDown => 1,
        Action::PageUp => -PAGE,
        Action::PageDown => PAGE,
        Action::Top => isize::MIN / 2,
        Action::Bottom => isize::MAX / 2,
        _ => return,
    };
    state.list.step(rows);
}

/// Takes a key of the filter of the list.
pub(super) fn filter(state: &mut State, key: Key) -> Vec<Request> {
    match state.keys.action(Context::Prompt, key) {
        Some(Action::Back | Action::Cancel) => {
            state.list.is_filtering = false;
            state.list.filter = Input::default();
        }
        Some(Action::Up) => state.list.step(-1),
        Some(Action::Down) => state.list.step(1),
        _ if key.is(KeyCode::Enter) => {
            state.list.is_filtering = false;
            return open_selected(state);
        }
        _ if key.is(KeyCode::Tab) => state.list.is_filtering = false,
        _ if key.character() == Some('/') && state.list.filter.is_empty() => {
            state.list.is_filtering = false;
            state.layers.push(Layer::Search(SearchLayer::default()));
        }
        _ => {
            state.list.filter.press(key, &state.keys);
        }
    }
    Vec::new()
}

/// Returns the name of the session of a pane for people.
pub(super) fn name(state: &State, pane: PaneId) -> String {
    let title = state.slots.get(&pane).map(Slot::title).filter(|title| !title.is_empty());
    let number = short_name(state, pane);
    title.map_or(number.clone(), |title| format!("{number} {title}"))
}

/// Returns the number of the session of a pane.
pub(super) fn short_name(state: &State, pane: PaneId) -> String {
    let session = state.slots.get(&pane).and_then(|slot| slot.pane.session());
    session.map_or_else(|| "the new conversation".to_owned(), |session| session.to_string())
}
