//! Prompts: typed, sent, staged, queued; and the ladders of Esc and Ctrl-C.

use azureal::desk::{EditPurpose, NextAgent, PaneId, Request};
use crossterm::event::{KeyCode, KeyEvent};

use super::{actions, commands, slots, switching};
use crate::keys::{Action, Context, Key};
use crate::overlay::{self, Layer};
use crate::prompt::{self, PromptOutcome};
use crate::state::{Cancelled, Effect, Focus, QUIT_AGAIN_MS, Slot, State};

/// The most characters of a prompt that is a title.
const TITLE_CHARS: usize = 200;

/// The notices while a turn is being cancelled.
const CANCELLING: &str = "cancelling the turn";
const CANCELLING_WITH_PROMPTS: &str = "cancelling the turn; waiting prompts stay";
/// The beginning of the notice while another process runs a turn.
const WAITS: &str = "the prompt waits: ";

/// Takes a key in the prompt box.
pub(super) fn press(state: &mut State, event: KeyEvent) -> Vec<Request> {
    let now_ms = state.now_ms;
    let Some(slot) = state.slot_mut() else { return Vec::new() };
    // An Enter that was held back sends the text as it was before this key.
    let ticked = slot.prompt.tick(now_ms);
    let mut requests = take(state, ticked);
    requests.extend(act(state, event));
    requests
}

fn act(state: &mut State, event: KeyEvent) -> Vec<Request> {
    let key = Key::from(event);
    let action = state.keys.action(Context::Prompt, key);
    let history = &state.history;
    let Some(slot) = state.slots.get_mut(&state.shown) else { return Vec::new() };
    let layer = slot.prompt.layer();
    let outcome = match action {
        Some(Action::Send | Action::Queue) if slot.prompt.is_empty() && layer == prompt::Layer::Text => {
            return send_waiting(state);
        }
        Some(Action::EditWaiting) => return edit_waiting(state),
        Some(Action::EditInEditor) => {
            return vec![Request::Edit { text: slot.prompt.text(), purpose: EditPurpose::Prompt }];
        }
        Some(Action::Read) if layer == prompt::Layer::Paths => slot.prompt.act(Action::CompletePath, history),
        Some(action) => match as_key(action) {
            Some(code) => slot.prompt.key(code.into(), history),
            None => match slot.prompt.act(action, history) {
                PromptOutcome::Ignored => return actions::perform_in(state, action, Context::Prompt),
                outcome => outcome,
            },
        },
        None => slot.prompt.key(event, history),
    };
    state.keeper.touch(state.now_ms);
    take(state, outcome)
}

/// Returns the key that the box knows an action by.
fn as_key(action: Action) -> Option<KeyCode> {
    Some(match action {
        Action::Left => KeyCode::Left,
        Action::Right => KeyCode::Right,
        Action::Backspace => KeyCode::Backspace,
        Action::DeleteForward => KeyCode::Delete,
        _ => return None,
    })
}

/// Takes a pasted text.
pub(super) fn paste(state: &mut State, text: &str) -> Vec<Request> {
    if let Some(requests) = overlay::paste(state, text) {
        return requests;
    }
    if state.focus == Focus::List && state.list.is_filtering {
        state.list.filter.insert(text);
        return Vec::new();
    }
    state.focus = Focus::Prompt;
    let now_ms = state.now_ms;
    let Some(slot) = state.slot_mut() else { return Vec::new() };
    slot.prompt.tick(now_ms);
    let outcome = slot.prompt.paste(text);
    state.keeper.touch(now_ms);
    take(state, outcome)
}

/// Ends what the prompt box waits for.
pub(super) fn tick(state: &mut State) -> Vec<Request> {
    let now_ms = state.now_ms;
    if state.prompt_due_ms.is_none_or(|due| due > now_ms) {
        return Vec::new();
    }
    state.prompt_due_ms = None;
    let outcome = state.slot_mut().map(|slot| slot.prompt.tick(now_ms));
    outcome.map(|outcome| take(state, outcome)).unwrap_or_default()
}

/// Does what the prompt box asks for.
fn take(state: &mut State, outcome: PromptOutcome) -> Vec<Request> {
    match outcome {
        PromptOutcome::Done | PromptOutcome::Ignored => Vec::new(),
        // The text stays in the box.
        PromptOutcome::Send | PromptOutcome::Queue if state.guard_until_ms.is_some() => Vec::new(),
        PromptOutcome::Send => commands::take(state).unwrap_or_else(|| send(state, false)),
        PromptOutcome::Queue => commands::take(state).unwrap_or_else(|| send(state, true)),
        PromptOutcome::Complete { prefix } => vec![Request::CompletePath { prefix }],
        PromptOutcome::Wait { until_ms } => {
            state.prompt_due_ms = Some(until_ms);
            Vec::new()
        }
        PromptOutcome::Refused(text) => {
            state.warn(&text);
            Vec::new()
        }
    }
}

/// Sends the prompt of the box. While a turn runs, the prompt is staged and the turn cancelled, or the prompt is queued.
pub(crate) fn send(state: &mut State, is_queued: bool) -> Vec<Request> {
    let pane = state.shown;
    let is_foreign = state.slot().is_some_and(|slot| state.is_foreign(slot));
    let Some(slot) = state.slots.get_mut(&pane) else { return Vec::new() };
    let text = slot.prompt.take(&mut state.history);
    state.notices.dismiss();
    state.keeper.hurry(state.now_ms);
    if !slot.is_running() && slot.awaits_lease {
        slot.waiting.stage(text);
        return Vec::new();
    }
    if !slot.is_running() {
        return submit(state, pane, text);
    }
    // The turn of another process is not cancelled for a prompt.
    if is_queued || is_foreign {
        slot.waiting.queue(text);
        return Vec::new();
    }
    slot.waiting.stage(text);
    let was = slot.cancelled.replace(Cancelled::ForPrompt);
    if was.is_some() { Vec::new() } else { vec![Request::Cancel { pane }] }
}

/// Enter in an empty box: lets the waiting prompts go out, if no turn runs.
fn send_waiting(state: &mut State) -> Vec<Request> {
    let pane = state.shown;
    let Some(slot) = state.slots.get_mut(&pane).filter(|slot| !slot.is_running()) else { return Vec::new() };
    slot.waiting.release();
    if slot.awaits_lease { Vec::new() } else { send_next(state, pane) }
}

/// Starts a turn with the prompt that goes out next, if there is one.
fn send_next(state: &mut State, pane: PaneId) -> Vec<Request> {
    let next = state.slots.get_mut(&pane).and_then(|slot| slot.waiting.take_next());
    next.map(|text| submit(state, pane, text)).unwrap_or_default()
}

/// Starts a turn.
fn submit(state: &mut State, pane: PaneId, prompt: String) -> Vec<Request> {
    let now_ms = state.now_ms;
    if pane == state.shown {
        switching::stay(state);
    }
    let Some(slot) = state.slots.get_mut(&pane) else { return Vec::new() };
    slot.pane.set_now(now_ms);
    slot.pane.sent(&prompt);
    if slot.pane.session().is_none() {
        slot.first_prompt = Some(azureal::visible_line(&prompt).chars().take(TITLE_CHARS).collect());
    }
    (slot.is_sent, slot.needs_user, slot.cancelled, slot.has_failed) = (true, false, None, false);
    let NextAgent { agent, model } = slot.chosen.take().unwrap_or_default();
    state.keeper.hurry(now_ms);
    vec![Request::Send { pane, prompt, agent, model }]
}

/// Takes the last waiting prompt back into the box.
fn edit_waiting(state: &mut State) -> Vec<Request> {
    let Some(slot) = state.slots.get_mut(&state.shown) else { return Vec::new() };
    if slot.waiting.edit_last(&mut slot.prompt, &mut state.history) {
        state.keeper.touch(state.now_ms);
    } else {
        state.inform("no prompt waits");
    }
    Vec::new()
}

/// Removes the notice that a turn is being cancelled: it is stored or over.
pub(super) fn end_cancelling(state: &mut State, pane: PaneId) {
    if state.slots.get(&pane).is_some_and(|slot| slot.cancelled == Some(Cancelled::ByUser)) {
        state.notices.remove(CANCELLING);
        state.notices.remove(CANCELLING_WITH_PROMPTS);
    }
}

/// A turn of a pane is over. If this interface started it and it failed, or the user cancelled it, the prompts wait for a key. Others go out:
/// at once after a turn of this interface, else when its process has released the session.
pub(super) fn over(
    state: &mut State,
    pane: PaneId,
    error: Option<&azureal::Error>,
    is_ours: bool,
) -> Vec<Request> {
    let Some(slot) = state.slots.get_mut(&pane) else { return Vec::new() };
    slot.is_sent &= !is_ours;
    let cancelled = slot.cancelled.take();
    let has_failed = std::mem::take(&mut slot.has_failed) && cancelled != Some(Cancelled::ForPrompt);
    let unsent = slot.pane.take_unsent();
    let busy = error.filter(|error| unsent.is_some() && error.kind() == "busy");
    let is_cancelled = cancelled == Some(Cancelled::ByUser);
    slot.needs_user = is_cancelled || (is_ours && busy.is_none() && (error.is_some() || has_failed));
    let mut requests = Vec::new();
    match (unsent, busy) {
        (Some(unsent), Some(busy)) => requests = wait(state, pane, unsent, busy),
        (Some(unsent), None) => give_back(state, pane, unsent),
        (None, _) => {}
    }
    let Some(slot) = state.slots.get_mut(&pane) else { return requests };
    if slot.needs_user {
        slot.waiting.hold();
    }
    if state.is_quitting || slot.awaits_lease || !slot.waiting.has_next() {
        requests
    } else if is_ours {
        send_next(state, pane)
    } else {
        slot.awaits_lease = true;
        vec![Request::AwaitLease { pane }]
    }
}

/// Puts a prompt that was not sent where the user sees it.
fn give_back(state: &mut State, pane: PaneId, unsent: String) {
    let Some(slot) = state.slots.get_mut(&pane) else { return };
    match slot.prompt.is_empty() {
        true => slot.prompt.set_text(&unsent),
        false => slot.waiting.put_back(unsent),
    }
    state.keeper.hurry(state.now_ms);
}

/// Another process runs a turn in the session of a pane: the prompt goes out after its end, before the others that wait.
pub(super) fn wait(state: &mut State, pane: PaneId, prompt: String, error: &azureal::Error) -> Vec<Request> {
    let Some(slot) = state.slots.get_mut(&pane) else { return Vec::new() };
    slot.is_sent = false;
    slot.waiting.put_back(prompt);
    let is_asked = std::mem::replace(&mut slot.awaits_lease, true);
    state.warn(&format!("{WAITS}{}", error.message()));
    state.keeper.hurry(state.now_ms);
    if is_asked { Vec::new() } else { vec![Request::AwaitLease { pane }] }
}

/// No process runs a turn in the session of a pane: the prompt that waits goes out. While one is still shown, its end is yet to come.
pub(super) fn lease_free(state: &mut State, pane: PaneId) -> Vec<Request> {
    let Some(slot) = state.slots.get_mut(&pane) else { return Vec::new() };
    slot.awaits_lease = false;
    state.notices.remove_all(WAITS);
    if slot.is_running() || state.is_quitting { Vec::new() } else { send_next(state, pane) }
}

/// Chooses the agent and model of the next turn.
pub(crate) fn choose_agent(state: &mut State, next: NextAgent) -> Vec<Request> {
    let pane = state.shown;
    let agents = state.agents.as_deref().unwrap_or_default();
    let line = agents.iter().find(|line| Some(&line.name) == next.agent.as_ref());
    if let Some(line) = line.filter(|line| line.version.is_none()) {
        let text = match &line.hint {
            Some(hint) => format!("{} is not installed: {hint}", line.name),
            None => format!("{} is not installed", line.name),
        };
        state.warn(&text);
        return Vec::new();
    }
    let Some(slot) = state.slots.get_mut(&pane) else { return Vec::new() };
    slot.pane.set_next_agent(next.clone());
    slot.chosen = Some(next.clone());
    let NextAgent { agent, model } = next;
    let name = agent.clone().unwrap_or_default();
    let text = match &model {
        Some(model) => format!("the next turn is with {name} {model}"),
        None => format!("the next turn is with {name}"),
    };
    state.inform(&text);
    agent.map(|agent| Request::Switch { pane, agent, model }).into_iter().collect()
}

/// Esc, after the layers: a list in the prompt box, then reading, then the turn. Deletes no text.
pub(super) fn back(state: &mut State) -> Vec<Request> {
    if state.focus != Focus::Prompt {
        if state.focus == Focus::List && !state.list.filter.is_empty() {
            state.list.filter = overlay::Input::default();
        } else {
            state.focus = Focus::Prompt;
        }
        return Vec::new();
    }
    if state.slot_mut().is_some_and(|slot| slot.prompt.escape()) {
        return Vec::new();
    }
    cancel(state)
}

/// Cancels the turn that is shown. If a turn of another process that is not shown is waited for, lets the prompts wait for a key.
fn cancel(state: &mut State) -> Vec<Request> {
    let pane = state.shown;
    let waits = |slot: &&mut Slot| !slot.is_running() && slot.awaits_lease && slot.waiting.has_next();
    if let Some(slot) = state.slots.get_mut(&pane).filter(waits) {
        slot.waiting.hold();
        return Vec::new();
    }
    let Some(slot) = state.slots.get_mut(&pane).filter(|slot| slot.is_running()) else { return Vec::new() };
    let was = slot.cancelled.replace(Cancelled::ByUser);
    let text = if slot.waiting.is_empty() { CANCELLING } else { CANCELLING_WITH_PROMPTS };
    state.inform(text);
    if was.is_some() { Vec::new() } else { vec![Request::Cancel { pane }] }
}

/// Ctrl-C: clears the box into the history, else cancels the turn, else quits if it is pressed twice.
pub(super) fn cancel_or_quit(state: &mut State) -> Vec<Request> {
    let Some(slot) = state.slots.get_mut(&state.shown) else { return Vec::new() };
    if slot.prompt.escape() {
        return Vec::new();
    }
    if slot.prompt.clear_into(&mut state.history) {
        state.keeper.hurry(state.now_ms);
        let up = state.keys.label(Context::Prompt, Action::Up).unwrap_or_default();
        state.inform(&format!("cleared; {up} brings it back"));
        return Vec::new();
    }
    let is_cancelled = slot.cancelled == Some(Cancelled::ByUser);
    if slot.is_running() && !is_cancelled {
        return cancel(state);
    }
    if state.quit_until_ms.take().is_some() {
        return quit(state);
    }
    state.quit_until_ms = Some(state.now_ms.saturating_add(QUIT_AGAIN_MS));
    Vec::new()
}

/// Quits, or asks first if turns run.
pub(super) fn quit(state: &mut State) -> Vec<Request> {
    if slots::running_here(state).is_empty() {
        state.keeper.hurry(state.now_ms);
        state.effect(Effect::Quit);
    } else if !state.layers.iter().any(|layer| matches!(layer, Layer::Quit { .. })) {
        state.layers.push(Layer::Quit { chosen: 0 });
    }
    Vec::new()
}

/// Takes the answer to the question whether to quit: leave them running, cancel them, stay.
pub(crate) fn quit_answered(state: &mut State, answer: usize) -> Vec<Request> {
    match answer {
        0 => {
            state.keeper.hurry(state.now_ms);
            state.effect(Effect::Quit);
            Vec::new()
        }
        1 => {
            state.is_quitting = true;
            state.inform("cancelling; azureal quits when the turns are stored");
            let running = slots::running_here(state);
            for pane in &running {
                if let Some(slot) = state.slots.get_mut(pane) {
                    slot.cancelled = Some(Cancelled::ByUser);
                }
            }
            running.into_iter().map(|pane| Request::Cancel { pane }).collect()
        }
        _ => Vec::new(),
    }
}
