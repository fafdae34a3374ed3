//! News of the desk.

use azureal::Outcome;
use azureal::desk::{Draft, EditPurpose, Kept, News, NextAgent, PaneId, Request, TurnNews};
use azureal::transcript::ascii_marks;

use super::{actions, prompting, slots, switching};
use crate::keys::Action;
use crate::overlay::{self, ContextParts, Layer};
use crate::prompt::History;
use crate::state::{Effect, Focus, State};

/// Takes news.
pub(super) fn take(state: &mut State, news: News) -> Vec<Request> {
    let now_ms = state.now_ms;
    let mut requests = Vec::new();
    for slot in
        state.slots.values_mut().filter(|slot| pane_of(&news).is_none_or(|pane| pane == slot.pane.id()))
    {
        slot.pane.set_now(now_ms);
        requests.extend(slot.pane.news(&news));
    }
    if let Some(note) = state.slot_mut().and_then(|slot| slot.pane.take_note()) {
        state.inform(&note);
    }
    // Unless the user does something else meanwhile.
    let fork_at = state.slot_mut().and_then(|slot| slot.pane.take_fork_at());
    if let Some(at) = fork_at.filter(|_| state.layers.is_empty()) {
        actions::ask_fork(state, at);
    }
    requests.extend(act(state, news));
    slots::saw_shown(state);
    requests
}

/// Returns the pane that news are for; `None` if they are for all.
fn pane_of(news: &News) -> Option<PaneId> {
    match news {
        News::Opened(opened) => Some(opened.pane),
        News::Page { pane, .. }
        | News::Full { pane, .. }
        | News::Found { pane, .. }
        | News::Highlighted { pane, .. }
        | News::Appended { pane, .. }
        | News::NextAgent { pane, .. }
        | News::Counted { pane, .. }
        | News::Changed { pane }
        | News::Deleted { pane }
        | News::LeaseFree { pane }
        | News::Turn { pane, .. }
        | News::Changes { pane, .. }
        | News::UndoPlanned { pane, .. }
        | News::Undone { pane, .. }
        | News::Context { pane, .. } => Some(*pane),
        News::Failed { pane, .. } => *pane,
        _ => None,
    }
}

/// Takes the part of news that concerns more than a pane.
fn act(state: &mut State, news: News) -> Vec<Request> {
    match news {
        News::Sessions(lines) => {
            state.list.set(lines);
            return open_last_shown(state);
        }
        News::Opened(opened) => {
            let key = Kept::key(&opened.record);
            if let Some(draft) = state.keeper.take_draft(&key) {
                put_draft(state, opened.pane, &draft);
            }
            if let Some(offer) = opened.offer {
                state.keeper.received(offer.number);
                put_draft(state, opened.pane, &Draft { text: String::new(), queued: offer.prompts });
            }
            state.list.select(opened.record.id);
        }
        News::LeaseFree { pane } => return prompting::lease_free(state, pane),
        News::Turn { pane, news } => return turn(state, pane, *news),
        News::Deleted { pane } if state.slots.contains_key(&pane) => {
            state.inform("the session was deleted");
            // A user who deletes in the list stays in the list.
            let is_in_list = state.focus == Focus::List;
            let requests = slots::close(state, pane);
            if is_in_list {
                state.focus = Focus::List;
            }
            return requests;
        }
        News::Forked { session, from } => {
            state.inform(&format!("{session} is a fork of {from}"));
            return slots::open(state, session);
        }
        News::Context { pane, parts, text, meter } => {
            for layer in &mut state.layers {
                if let Layer::Context { pane: wanted, context, .. } = layer
                    && *wanted == pane
                {
                    *context = Some(ContextParts { parts, text, meter });
                    break;
                }
            }
        }
        News::Changes { pane, at, changes } => return changes_read(state, pane, at, changes),
        News::UndoPlanned { pane, question } => {
            // Unless the user does something else meanwhile.
            if matches!(state.layers.last(), Some(Layer::Changes(layer)) if layer.pane == pane) {
                state.layers.push(Layer::Undo { pane, question, scroll: 0 });
            }
        }
        News::Undone { pane, summary } => {
            let name =
                if pane == state.shown { String::new() } else { format!("{}: ", slots::name(state, pane)) };
            let key = state.keys.label(actions::context(state), Action::UndoTurn);
            let back = key.map(|key| format!("; {key} takes it back")).unwrap_or_default();
            let summary = if state.theme.is_ascii { ascii_marks(&summary) } else { summary };
            state.inform(&format!("{name}{summary}{back}"));
        }
        News::Agents(agents) => state.agents = Some(agents),
        News::Paths { prefix, paths } => {
            if let Some(slot) = state.slot_mut() {
                slot.prompt.paths(&prefix, paths);
            }
        }
        News::SearchFound(found) => {
            let mut layers = state.layers.iter_mut();
            if let Some(layer) = layers.find_map(|layer| match layer {
                Layer::Search(layer) => Some(layer),
                _ => None,
            }) {
                layer.take(*found);
            }
        }
        News::TrustRequired { content } => {
            state.untrusted = Some(content);
            let key = state.keys.label(crate::keys::Context::Anywhere, Action::Trust).unwrap_or_default();
            state.warn(&format!(
                "the configuration of this project is not trusted and has no effect: {key} shows it"
            ));
        }
        News::Copied { by, text } => {
            let count = text.chars().count();
            match by {
                Some(program) => state.inform(&format!("{count} characters copied with {program}")),
                None => {
                    state.inform(&format!("{count} characters copied by the terminal (OSC 52)"));
                    state.effect(Effect::Copy(text));
                }
            }
        }
        News::Edited { text: Some(text), purpose: EditPurpose::Prompt } => {
            state.focus = Focus::Prompt;
            if let Some(slot) = state.slot_mut() {
                slot.prompt.set_text(text.trim_end_matches('\n'));
            }
            state.keeper.hurry(state.now_ms);
        }
        News::Restored(kept) => restore(state, *kept),
        News::Notice(text) => state.inform(&text),
        News::Failed { error, pane, unsent } => {
            // It would cover the notice.
            if let Some(pane) = pane {
                overlay::close_changes(state, pane);
            }
            // Another turn began in the moment of Enter: the prompt is sent after it.
            match pane.filter(|pane| state.slots.contains_key(pane)).zip(unsent) {
                Some((pane, prompt)) => return prompting::wait(state, pane, prompt, &error),
                None => state.notices.add_error(&error, state.now_ms),
            }
        }
        News::Edited { .. }
        | News::Deleted { .. }
        | News::Page { .. }
        | News::Full { .. }
        | News::Found { .. }
        | News::Highlighted { .. }
        | News::Appended { .. }
        | News::NextAgent { .. }
        | News::Counted { .. }
        | News::Changed { .. } => {}
    }
    Vec::new()
}

/// Takes the changes of a turn, if the user still waits for them.
fn changes_read(
    state: &mut State,
    pane: PaneId,
    at: Option<azureal::Seq>,
    changes: Result<Box<azureal::desk::FileChanges>, azureal::Error>,
) -> Vec<Request> {
    let is_wanted =
        |layer: &&mut Layer| matches!(layer, Layer::Changes(layer) if (layer.pane, layer.at) == (pane, at));
    let Some(Layer::Changes(layer)) = state.layers.iter_mut().find(is_wanted) else { return Vec::new() };
    match changes {
        Ok(changes) => layer.take(changes).into_iter().collect(),
        Err(error) => {
            overlay::close_changes(state, pane);
            state.notices.add_error(&error, state.now_ms);
            Vec::new()
        }
    }
}

/// Takes what an earlier interface kept.
fn restore(state: &mut State, kept: Kept) {
    let mut history = History::from_kept(&kept.history);
    for prompt in state.history.kept() {
        history.add(&prompt);
    }
    state.history = history;
    state.keeper.restore(kept);
    if let Some(draft) = state.keeper.take_draft("") {
        put_draft(state, state.shown, &draft);
    }
}

/// Puts a draft into the box of a pane. Text that is there already stays; then the draft goes to the history. Its queued prompts wait for a key.
fn put_draft(state: &mut State, pane: PaneId, draft: &Draft) {
    let Some(slot) = state.slots.get_mut(&pane) else { return };
    if slot.prompt.is_empty() {
        slot.prompt.set_text(&draft.text);
    } else {
        state.history.add(&draft.text);
    }
    if !draft.queued.is_empty() {
        slot.waiting.offer(&draft.queued);
        state.keeper.hurry(state.now_ms);
    }
}

/// Opens the session that was shown last, once, unless the user has done something already.
fn open_last_shown(state: &mut State) -> Vec<Request> {
    if !std::mem::take(&mut state.keeper.is_start_open) {
        return Vec::new();
    }
    let is_untouched = state.slots.len() == 1 && state.slot().is_some_and(crate::state::Slot::is_untouched);
    let last = state.keeper.last_shown().and_then(|key| {
        state.list.lines().iter().find(|line| Kept::key(&line.record) == key).map(|line| line.record.id)
    });
    match last {
        Some(session) if is_untouched => slots::open(state, session),
        _ => Vec::new(),
    }
}

/// Takes news of a turn.
fn turn(state: &mut State, pane: PaneId, news: TurnNews) -> Vec<Request> {
    match news {
        TurnNews::Accepted { record, agent, model } => {
            // Unless another one was chosen since the prompt was sent, the next turn is with the same agent.
            if let Some(slot) = state.slots.get_mut(&pane).filter(|slot| slot.chosen.is_none()) {
                slot.pane.set_next_agent(NextAgent { agent: Some(agent), model });
            }
            if state.shown == pane {
                state.list.select(record.id);
            }
        }
        TurnNews::Output(outputs) => {
            let answered = outputs.iter().any(|output| matches!(output, azureal::AgentOutput::Answered(_)));
            if answered {
                state
                    .layers
                    .retain(|layer| !matches!(layer, Layer::Question { pane: other, .. } if *other == pane));
            }
            for output in outputs {
                if let azureal::AgentOutput::Question(question) = output {
                    ask(state, pane, question);
                }
            }
        }
        TurnNews::Question(question) => ask(state, pane, question),
        TurnNews::Stored { complete, .. } => {
            prompting::end_cancelling(state, pane);
            if let Some(slot) = state.slots.get_mut(&pane) {
                slot.has_failed = complete.ending() != Outcome::Done;
            }
        }
        TurnNews::Began { prompt: Some(prompt), is_ours: true, .. } => state.history.mark_sent(&prompt),
        TurnNews::Over { is_ours, error, .. } => return over(state, pane, error.as_ref(), is_ours),
        TurnNews::Notice(text) if pane != state.shown => {
            let name = slots::name(state, pane);
            state.inform(&format!("{name}: {text}"));
        }
        _ => {}
    }
    Vec::new()
}

/// Shows a question of an agent, unless the user is typing or another layer is open.
fn ask(state: &mut State, pane: PaneId, question: azureal::core::bridge::Question) {
    let is_open = state
        .layers
        .iter()
        .any(|layer| matches!(layer, Layer::Question { question: open, .. } if open.id == question.id));
    if is_open {
        return;
    }
    let is_free = pane == state.shown
        && state.layers.is_empty()
        && state.slot().is_some_and(|slot| slot.prompt.is_empty());
    if is_free {
        state.layers.push(Layer::Question { pane, question: Box::new(question), chosen: 0 });
        return;
    }
    let key = state.keys.label(crate::keys::Context::Anywhere, Action::Answer).unwrap_or_default();
    let name = slots::name(state, pane);
    state.warn(&format!("{name}: the agent asks something: {key} answers"));
    bell(state, &format!("{name}: the agent asks something"));
}

/// A turn is over.
fn over(state: &mut State, pane: PaneId, error: Option<&azureal::Error>, is_ours: bool) -> Vec<Request> {
    state.layers.retain(|layer| !matches!(layer, Layer::Question { pane: other, .. } if *other == pane));
    let name = slots::name(state, pane);
    // The shown pane has a line of its own for it.
    if let Some(error) = error.filter(|_| pane != state.shown) {
        state.warn(&format!("{name}: {}", error.message()));
    }
    prompting::end_cancelling(state, pane);
    let requests = prompting::over(state, pane, error, is_ours);
    if !slots::is_running(state, pane) {
        let end = if error.is_some() { "the turn failed" } else { "the turn has ended" };
        bell(state, &format!("{name}: {end}"));
    }
    switching::announce(state, pane);
    if state.is_quitting && slots::running_here(state).is_empty() {
        state.keeper.hurry(state.now_ms);
        state.effect(Effect::Quit);
    }
    requests
}

/// Tells the user who looks elsewhere.
fn bell(state: &mut State, text: &str) {
    if !state.has_focus {
        state.effect(Effect::Bell(azureal::visible_line(text).into_owned()));
    }
}
