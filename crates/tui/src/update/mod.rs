//! What a message changes, and the requests that follow from it.

mod actions;
mod commands;
mod mouse;
mod news;
mod prompting;
mod slots;
mod switching;

pub(crate) use actions::{perform, perform_in};
pub(crate) use prompting::{choose_agent, quit_answered, send};
pub(crate) use slots::open_at;
pub(crate) use switching::Switch;

use azureal::desk::Request;
use crossterm::event::{KeyEvent, KeyEventKind};

use crate::draw::areas::Areas;
use crate::keys::{Action, Context, Key};
use crate::message::Message;
use crate::overlay;
use crate::pane::Labels;
use crate::state::{Effect, Focus, State};

/// Takes a message. Returns the requests for the desk, in their order.
///
/// `now_ms` is the time in milliseconds since 1970.
pub fn update(state: &mut State, message: Message, now_ms: u64) -> Vec<Request> {
    state.now_ms = now_ms.max(state.now_ms);
    let now_ms = state.now_ms;
    if matches!(message, Message::Key(_) | Message::Paste(_) | Message::Mouse(_)) {
        switching::stay(state);
    }
    let mut requests = match message {
        Message::Key(key) => press(state, key),
        Message::Paste(text) => prompting::paste(state, &text),
        Message::Mouse(event) => mouse::take(state, event),
        Message::Resize(width, height) => {
            state.size = (width, height);
            Vec::new()
        }
        Message::Focus(has_focus) => {
            state.has_focus = has_focus;
            Vec::new()
        }
        Message::Background(background) => {
            state.theme.background = Some(background);
            Vec::new()
        }
        Message::News(news) => news::take(state, news),
        Message::Tick => Vec::new(),
    };
    requests.extend(prompting::tick(state));
    switching::tick(state);
    state.notices.expire(now_ms);
    if state.quit_until_ms.is_some_and(|until| until <= now_ms) {
        state.quit_until_ms = None;
    }
    requests.extend(arrange(state));
    if let Some(kept) = state.keeper.due(&state.slots, state.shown, &state.history, now_ms) {
        // Before a prompt is sent: it is kept in no queue any more.
        requests.insert(0, Request::Keep(Box::new(kept)));
    }
    requests
}

/// Lays out what [`draw`](crate::draw()) shows. To be called once before it, after all messages that are there: so a frame costs one layout.
pub fn prepare(state: &mut State) -> Vec<Request> {
    arrange(state);
    state.slot_mut().map(|slot| slot.pane.prepare()).unwrap_or_default()
}

/// Gives the parts their sizes, which depend on the others.
fn arrange(state: &mut State) -> Vec<Request> {
    let areas = Areas::of(state);
    if let Some(list) = areas.list {
        state.list.scroll_to_selected(usize::from(list.height));
    }
    let is_reading = state.focus == Focus::Reading;
    let (is_ascii, now_ms) = (state.theme.is_ascii, state.now_ms);
    let label = |action| state.keys.label(Context::Prompt, action);
    let changes = state.keys.label(actions::context(state), Action::Changes);
    let labels = Labels { send: label(Action::Send), context: label(Action::Context), changes };
    let (code_width, theme) = (crate::draw::code_width(state), state.theme);
    for layer in &mut state.layers {
        if let overlay::Layer::Changes(layer) = layer {
            layer.lay(code_width, &theme);
        }
    }
    let Some(slot) = state.slot_mut() else { return Vec::new() };
    slot.pane.set_reading(is_reading);
    slot.pane.set_ascii(is_ascii);
    slot.pane.set_labels(labels);
    slot.pane.set_now(now_ms);
    slot.pane.set_size(areas.pane.width, areas.pane.height)
}

/// Takes a key: the topmost layer has it first, then the part of the screen with the focus.
fn press(state: &mut State, event: KeyEvent) -> Vec<Request> {
    if event.kind == KeyEventKind::Release {
        return Vec::new();
    }
    if state.mouse.is_let_go {
        state.mouse.is_let_go = false;
        state.effect(Effect::Mouse(state.uses_mouse));
    }
    let key = Key::from(event);
    if !state.layers.is_empty() {
        return overlay::press(state, key);
    }
    match state.focus {
        Focus::Prompt => prompting::press(state, event),
        Focus::Reading => act_by_key(state, Context::Reading, key),
        Focus::List if state.list.is_filtering => slots::filter(state, key),
        Focus::List => act_by_key(state, Context::List, key),
    }
}

/// Performs the action of a key, if it has one.
fn act_by_key(state: &mut State, context: Context, key: Key) -> Vec<Request> {
    let action = state.keys.action(context, key);
    action.map(|action| perform_in(state, action, context)).unwrap_or_default()
}
