//! Commands that are typed in the prompt box: `/help`, `/sessions`.

use azureal::desk::Request;

use super::actions;
use crate::keys::{Action, Context};
use crate::overlay;
use crate::state::State;

/// Performs the command in the box, if its text is one. A word that is none is sent if the user sends it twice.
pub(super) fn take(state: &mut State) -> Option<Vec<Request>> {
    let text = state.slot()?.prompt.text();
    let text = text.trim();
    let name =
        text.strip_prefix('/').filter(|name| !name.is_empty() && !name.contains(char::is_whitespace))?;
    let Some((action, context)) = find(state, name) else {
        if state.refused_command.take().as_deref() == Some(text) {
            return None;
        }
        let enter = state.keys.label(Context::Prompt, Action::Send).unwrap_or_default();
        state.inform(&format!("no command {text}; {enter} again sends it to the agent"));
        state.refused_command = Some(text.to_owned());
        return Some(Vec::new());
    };
    state.slot_mut()?.prompt.set_text("");
    state.keeper.touch(state.now_ms);
    // The list has its own choice; here it is the session that is shown.
    if let Some(session) = state.shown_session().filter(|_| action == Action::Delete) {
        state.list.select(session);
    }
    Some(actions::perform_in(state, action, context))
}

/// Returns the action with a name: the name of its keys, without the menu.
fn find(state: &State, name: &str) -> Option<(Action, Context)> {
    match name {
        "?" | "keys" => return Some((Action::Help, Context::Anywhere)),
        "q" | "exit" => return Some((Action::Quit, Context::Menu)),
        "model" | "agent" => return Some((Action::Agents, Context::Menu)),
        "diff" => return Some((Action::Changes, Context::Menu)),
        "cancel" => return Some((Action::Back, Context::Prompt)),
        _ => {}
    }
    let palette = overlay::all_actions(state).into_iter();
    let slots = state.keys.rows(Context::Menu).map(|(entry, _)| entry);
    let named =
        palette.chain(slots).find(|entry| entry.name.strip_prefix("menu-").unwrap_or(entry.name) == name);
    named.map(|entry| (entry.action, entry.context))
}
