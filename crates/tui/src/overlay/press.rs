//! Keys in overlays.

use azureal::Seq;
use azureal::desk::{EditPurpose, Request};
use azureal::search::Hit;
use crossterm::event::KeyCode;

use super::questions::QUIT_ANSWERS;
use super::{ChangesLayer, Confirm, Layer, Picker, SearchLayer, agents, changes, palette};
use crate::keys::{Action, Context, Key};
use crate::state::{Effect, State};
use crate::update;

/// Takes a key for the topmost layer.
pub(crate) fn press(state: &mut State, key: Key) -> Vec<Request> {
    match state.keys.action(Context::Anywhere, key) {
        Some(Action::Back | Action::Cancel) => {
            let is_search = matches!(state.layers.last(), Some(Layer::Search(_)));
            close(state);
            // What is still searched for is not wanted any more.
            return is_search.then(|| Request::Search { text: String::new() }).into_iter().collect();
        }
        Some(Action::Suspend) => {
            state.effect(Effect::Suspend);
            return Vec::new();
        }
        Some(Action::Help) if !matches!(state.layers.last(), Some(Layer::Help { .. })) => {
            state.layers.push(Layer::Help { scroll: 0 });
            return Vec::new();
        }
        Some(Action::Redraw) => {
            state.effect(Effect::Redraw);
            return Vec::new();
        }
        _ => {}
    }
    let Some(layer) = state.layers.pop() else { return Vec::new() };
    match layer {
        Layer::Help { .. } => {
            let closes = key.character() == Some('q')
                || state.keys.action(Context::Anywhere, key) == Some(Action::Help);
            if !closes {
                state.layers.push(layer);
                scroll_by_key(state, key);
            }
            Vec::new()
        }
        Layer::Context { pane, context, scroll } => {
            let whole = match &context {
                Some(context) if key.character() == Some('v') => Some(context.text.clone()),
                _ => None,
            };
            state.layers.push(Layer::Context { pane, context, scroll });
            scroll_by_key(state, key);
            whole.map(|text| Request::Edit { text, purpose: EditPurpose::Look }).into_iter().collect()
        }
        Layer::Changes(layer) => changes::press(state, key, layer),
        Layer::Undo { pane, question, scroll } => changes::answer(state, key, pane, question, scroll),
        Layer::Trust { scroll } => trust(state, key, scroll),
        Layer::Confirm(confirm) => answer(state, key, confirm),
        Layer::Quit { chosen } => quit(state, key, chosen),
        Layer::Question { .. } => question(state, key, layer),
        Layer::Agents(picker) => pick_agent(state, key, picker),
        Layer::Palette(picker) => pick_action(state, key, picker),
        Layer::Rename { session, mut name } => {
            if key.is(KeyCode::Enter) {
                let text = name.text().trim().to_owned();
                return if text.is_empty() {
                    Vec::new()
                } else {
                    vec![Request::Rename { session, name: text }]
                };
            }
            name.press(key, &state.keys);
            state.layers.push(Layer::Rename { session, name });
            Vec::new()
        }
        Layer::Find(mut text) => {
            if key.is(KeyCode::Enter) {
                let text = text.text();
                return state.slot_mut().map(|slot| slot.pane.search(&text)).unwrap_or_default();
            }
            if text.is_empty() && key.character() == Some('/') {
                state.layers.push(Layer::Search(SearchLayer::default()));
                return Vec::new();
            }
            text.press(key, &state.keys);
            state.layers.push(Layer::Find(text));
            Vec::new()
        }
        Layer::Search(layer) => search(state, key, layer),
        Layer::Menu { .. } => match state.keys.action(Context::Menu, key) {
            Some(action) => update::perform(state, action),
            None => {
                let menu = state.keys.label(Context::Anywhere, Action::Menu).unwrap_or_default();
                state.inform(&format!("{menu} {} is no command", state.keys.shown(key)));
                Vec::new()
            }
        },
    }
}

fn search(state: &mut State, key: Key, mut layer: SearchLayer) -> Vec<Request> {
    if key.is(KeyCode::Enter) {
        if let Some(hit) = layer.chosen_hit() {
            let (session, seq, text) = (hit.session.id, hit.seq, first_match(hit));
            let mut requests = update::open_at(state, session, seq, &text);
            requests.push(Request::Search { text: String::new() });
            return requests;
        }
        state.layers.push(Layer::Search(layer));
        return Vec::new();
    }
    let before = layer.picker.input.text();
    let count = layer.hit_count();
    edit_picker(state, key, &mut layer.picker, count);
    let requests = layer.asked(&before);
    state.layers.push(Layer::Search(layer));
    requests
}

/// Returns the text of the first match, to be marked in the session.
fn first_match(hit: &Hit) -> String {
    let pieces = &hit.snippet.pieces;
    pieces.iter().find(|piece| piece.is_match).map(|piece| piece.text.clone()).unwrap_or_default()
}

/// Closes the topmost layer.
pub(crate) fn close(state: &mut State) {
    if let Some(Layer::Question { .. }) = state.layers.pop()
        && let Some(key) = state.keys.label(Context::Anywhere, Action::Answer)
    {
        state.inform(&format!("the question is still open: {key} shows it again"));
    }
}

/// Pastes into the topmost layer. Returns whether it takes text, with the requests that follow.
pub(crate) fn paste(state: &mut State, text: &str) -> Option<Vec<Request>> {
    match state.layers.last_mut() {
        Some(Layer::Search(layer)) => {
            let before = layer.picker.input.text();
            layer.picker.input.insert(text);
            return Some(layer.asked(&before));
        }
        Some(Layer::Agents(picker) | Layer::Palette(picker)) => picker.input.insert(text),
        Some(Layer::Rename { name: input, .. } | Layer::Find(input)) => input.insert(text),
        Some(_) => {}
        None => return None,
    }
    Some(Vec::new())
}

/// Scrolls the topmost layer by rows.
pub(crate) fn scroll(state: &mut State, rows: i32) {
    let most = crate::draw::overlay_scroll_end(state);
    if let Some(
        Layer::Help { scroll }
        | Layer::Context { scroll, .. }
        | Layer::Trust { scroll }
        | Layer::Undo { scroll, .. }
        | Layer::Changes(ChangesLayer { scroll, .. }),
    ) = state.layers.last_mut()
    {
        let wanted = i32::from(*scroll).saturating_add(rows).clamp(0, i32::from(most));
        *scroll = u16::try_from(wanted).unwrap_or(most);
    }
}

/// Scrolls by a key. The keys are those of reading.
pub(super) fn scroll_by_key(state: &mut State, key: Key) -> bool {
    let page = i32::from(crate::draw::overlay_rows(state).max(1));
    let rows = match state.keys.action(Context::Reading, key) {
        Some(Action::RowUp) => -1,
        Some(Action::RowDown) => 1,
        Some(Action::HalfUp) => -(page / 2).max(1),
        Some(Action::HalfDown) => (page / 2).max(1),
        Some(Action::PageUp) => -page,
        Some(Action::PageDown | Action::Fold) => page,
        Some(Action::Top) => i32::MIN / 2,
        Some(Action::Bottom) => i32::MAX / 2,
        _ => return false,
    };
    scroll(state, rows);
    true
}

/// Returns the row that a key chooses: one up, one down.
fn stepped(state: &State, key: Key, chosen: usize, count: usize) -> Option<usize> {
    let last = count.saturating_sub(1);
    match state.keys.action(Context::Prompt, key) {
        Some(Action::Up) => Some(chosen.min(last).saturating_sub(1)),
        Some(Action::Down) => Some(chosen.saturating_add(1).min(last)),
        _ => None,
    }
}

fn trust(state: &mut State, key: Key, scroll: u16) -> Vec<Request> {
    match key.character() {
        Some('y') if state.untrusted.take().is_some() => {
            state.inform("the configuration of the project is trusted from the next turn on");
            vec![Request::Trust]
        }
        Some('n') => Vec::new(),
        _ => {
            state.layers.push(Layer::Trust { scroll });
            scroll_by_key(state, key);
            Vec::new()
        }
    }
}

fn answer(state: &mut State, key: Key, confirm: Confirm) -> Vec<Request> {
    match key.character() {
        Some('y') => vec![confirm.request],
        Some('n') => Vec::new(),
        _ => {
            state.layers.push(Layer::Confirm(confirm));
            Vec::new()
        }
    }
}

fn quit(state: &mut State, key: Key, chosen: usize) -> Vec<Request> {
    let count = QUIT_ANSWERS.len();
    let letter = key.character();
    let picked = QUIT_ANSWERS.iter().position(|(answer, _)| Some(*answer) == letter);
    match (picked, stepped(state, key, chosen, count)) {
        (Some(picked), _) => update::quit_answered(state, picked),
        (None, Some(chosen)) => {
            state.layers.push(Layer::Quit { chosen });
            Vec::new()
        }
        (None, None) if key.is(KeyCode::Enter) => update::quit_answered(state, chosen),
        (None, None) => {
            state.layers.push(Layer::Quit { chosen });
            Vec::new()
        }
    }
}

fn question(state: &mut State, key: Key, layer: Layer) -> Vec<Request> {
    let Layer::Question { pane, question, chosen } = layer else { return Vec::new() };
    let digit = key.character().and_then(|c| c.to_digit(10)).and_then(|digit| usize::try_from(digit).ok());
    let picked = match digit {
        Some(number) => question.options.get(number.wrapping_sub(1)),
        None if key.is(KeyCode::Enter) => question.options.get(chosen),
        None => None,
    };
    if let Some(option) = picked {
        let option = Some(option.id.clone());
        return vec![Request::Answer { pane, question: question.id, option }];
    }
    if key.character() == Some('n') || (key.is(KeyCode::Enter) && question.options.is_empty()) {
        return vec![Request::Answer { pane, question: question.id, option: None }];
    }
    let chosen = stepped(state, key, chosen, question.options.len()).unwrap_or(chosen);
    state.layers.push(Layer::Question { pane, question, chosen });
    Vec::new()
}

/// Takes a key for a picker: typed text starts from the first row again.
fn edit_picker(state: &State, key: Key, picker: &mut Picker, count: usize) {
    match stepped(state, key, picker.chosen, count) {
        Some(chosen) => picker.chosen = chosen,
        None => {
            if picker.input.press(key, &state.keys) {
                picker.chosen = 0;
            }
        }
    }
}

fn pick_agent(state: &mut State, key: Key, mut picker: Picker) -> Vec<Request> {
    let mut options = agents::options(state, &picker);
    let last = options.len().saturating_sub(1);
    if key.is(KeyCode::Enter) && !options.is_empty() {
        let option = options.swap_remove(picker.chosen.min(last));
        return update::choose_agent(state, option.next);
    }
    edit_picker(state, key, &mut picker, options.len());
    state.layers.push(Layer::Agents(picker));
    Vec::new()
}

fn pick_action(state: &mut State, key: Key, mut picker: Picker) -> Vec<Request> {
    let entries = palette::entries(state, &picker);
    let count = entries.len();
    if key.is(KeyCode::Enter) {
        let chosen = entries.get(picker.chosen.min(count.saturating_sub(1)));
        let Some((action, context)) = chosen.map(|entry| (entry.action, entry.context)) else {
            return Vec::new();
        };
        return update::perform_in(state, action, context);
    }
    edit_picker(state, key, &mut picker, count);
    state.layers.push(Layer::Palette(picker));
    Vec::new()
}

/// Asks whether a session is to be forked after an event, the end of a turn that begins with a text.
pub(crate) fn ask_fork(state: &mut State, session: azureal::SessionId, at: Seq, turn: Option<&str>) {
    let name =
        state.list.line(session).map(|line| crate::list::title(&line.record).to_owned()).unwrap_or_default();
    state.layers.push(Layer::Confirm(Confirm::fork(session, at, &name, turn)));
}
