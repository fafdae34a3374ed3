//! The switch to another turn of ours, some time after the shown one has ended.

use azureal::desk::PaneId;

use super::slots;
use crate::keys::{Action, Context};
use crate::state::{Focus, State};

/// How long a turn that has ended stays shown: time to read its answer, or to begin the next prompt.
const STAYS_MS: u64 = 20_000;
/// How long Enter does nothing after the switch: the user may have meant the session before.
const GUARD_MS: u64 = 2_000;

/// A switch that comes unless the user does something.
#[derive(Debug, Clone)]
pub(crate) struct Switch {
    /// The pane whose turn has ended.
    from: PaneId,
    /// The pane that is shown then.
    to: PaneId,
    /// When.
    pub(crate) at_ms: u64,
    /// The notice that says it.
    notice: String,
}

/// The turn of a pane has ended: announces that the last one of ours that still runs is shown, if the user neither types nor reads.
pub(super) fn announce(state: &mut State, ended: PaneId) {
    if state.switch.as_ref().is_some_and(|switch| switch.to == ended) {
        stay(state);
    }
    if !state.settings.auto_switch || state.is_quitting || ended != state.shown || !is_free(state) {
        return;
    }
    let ours = slots::running_here(state);
    let Some(to) = state.order.iter().copied().rfind(|pane| *pane != ended && ours.contains(pane)) else {
        return;
    };
    let name = slots::short_name(state, to);
    let notice = format!("{name} still runs and is shown in {} s; any key stays", STAYS_MS / 1_000);
    let at_ms = state.now_ms.saturating_add(STAYS_MS);
    state.notices.add_until(&notice, at_ms);
    state.switch = Some(Switch { from: ended, to, at_ms, notice });
}

/// Returns whether the user does nothing in the shown slot.
fn is_free(state: &State) -> bool {
    state.focus == Focus::Prompt
        && state.layers.is_empty()
        && state.slot().is_some_and(|slot| {
            !slot.is_running() && slot.prompt.is_empty() && slot.waiting.is_empty() && !slot.needs_user
        })
}

/// The user does something: there is no switch.
pub(super) fn stay(state: &mut State) {
    if let Some(switch) = state.switch.take() {
        state.notices.remove(&switch.notice);
    }
}

/// Switches when it is time.
pub(super) fn tick(state: &mut State) {
    if state.guard_until_ms.is_some_and(|until| until <= state.now_ms) {
        state.guard_until_ms = None;
    }
    if state.switch.as_ref().is_none_or(|switch| switch.at_ms > state.now_ms) {
        return;
    }
    let Some(Switch { from, to, notice, .. }) = state.switch.take() else { return };
    state.notices.remove(&notice);
    if state.shown != from || !is_free(state) || !slots::running_here(state).contains(&to) {
        return;
    }
    if let Some(slot) = state.slots.get_mut(&from) {
        slot.is_unread = true;
    }
    let (ended_name, next_name) = (slots::name(state, from), slots::name(state, to));
    let number = state.number_of(from);
    slots::show(state, to);
    state.guard_until_ms = Some(state.now_ms.saturating_add(GUARD_MS));
    let back = u8::try_from(number)
        .ok()
        .and_then(|number| state.keys.label(Context::Anywhere, Action::Slot(number)));
    let back = back.map(|key| format!(". {key} goes back")).unwrap_or_default();
    state.inform(&format!("{ended_name} has ended; {next_name} still runs and is shown{back}"));
}
