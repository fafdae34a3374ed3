//! Actions: what a key, the menu or the palette does.

use azureal::Seq;
use azureal::desk::{ReadWith, Request};

use super::{prompting, slots};
use crate::keys::{Action, Context};
use crate::overlay::{self, ChangesLayer, Confirm, Input, Layer, Picker, SearchLayer};
use crate::state::{Effect, Focus, MOST_SESSIONS, State};

/// The most characters of the prompt that a turn is named by.
const TURN_CHARS: usize = 200;

/// Performs an action where the focus is.
pub(crate) fn perform(state: &mut State, action: Action) -> Vec<Request> {
    perform_in(state, action, context(state))
}

/// Returns the context of the part with the focus.
pub(super) fn context(state: &State) -> Context {
    match state.focus {
        Focus::Prompt => Context::Prompt,
        Focus::Reading => Context::Reading,
        Focus::List => Context::List,
    }
}

/// Performs an action of a context.
pub(crate) fn perform_in(state: &mut State, action: Action, context: Context) -> Vec<Request> {
    match action {
        Action::Help => push(state, Layer::Help { scroll: 0 }),
        Action::Agents => {
            let picker = overlay::agent_picker(state);
            push(state, Layer::Agents(picker));
            return vec![Request::Agents];
        }
        Action::Search => push(state, Layer::Search(SearchLayer::default())),
        Action::Palette => push(state, Layer::Palette(Picker::default())),
        Action::Menu => {
            let since_ms = state.now_ms;
            push(state, Layer::Menu { since_ms });
        }
        Action::Context => return show_context(state),
        Action::Changes => return show_changes(state, false),
        Action::UndoTurn => return show_changes(state, true),
        Action::Trust => push(state, Layer::Trust { scroll: 0 }),
        Action::Answer => answer(state),
        Action::Sessions => toggle_list(state),
        Action::Mouse => {
            state.uses_mouse = !state.uses_mouse;
            state.effect(Effect::Mouse(state.uses_mouse));
            let text = match state.uses_mouse {
                true => "the mouse scrolls and folds here; select with Shift",
                false => "the mouse belongs to the terminal",
            };
            state.inform(text);
        }
        Action::Suspend => state.effect(Effect::Suspend),
        Action::Redraw => state.effect(Effect::Redraw),
        Action::Back => return prompting::back(state),
        Action::Cancel => return prompting::cancel_or_quit(state),
        Action::Quit => return prompting::quit(state),
        Action::Compact => return compact(state),
        Action::Read => state.focus = Focus::Reading,
        Action::Write => state.focus = Focus::Prompt,
        Action::New => return slots::open_new(state),
        Action::Close => return slots::close_shown(state),
        Action::Slot(number) => slots::show_number(state, number.into()),
        Action::NextSlot => slots::step(state, 1),
        Action::PreviousSlot => slots::step(state, -1),
        Action::OpenPager => return read_with(state, ReadWith::Pager),
        Action::OpenEditor => return read_with(state, ReadWith::Editor),
        Action::OpenInAgent => return open_in_agent(state),
        Action::Open => return slots::open_selected(state),
        Action::Filter => {
            state.focus = Focus::List;
            state.list.is_filtering = true;
        }
        Action::AllWorktrees => {
            state.list.all_worktrees = !state.list.all_worktrees;
            return vec![Request::List { all_worktrees: state.list.all_worktrees, limit: MOST_SESSIONS }];
        }
        Action::Rename => rename(state, context),
        Action::Fork => fork(state, context),
        Action::Delete => delete(state),
        _ if context == Context::List => slots::move_in_list(state, action),
        _ => return read(state, action, context),
    }
    Vec::new()
}

fn push(state: &mut State, layer: Layer) {
    state.layers.push(layer);
}

/// Gives an action to the pane.
fn read(state: &mut State, action: Action, context: Context) -> Vec<Request> {
    let is_page = matches!(action, Action::PageUp | Action::PageDown);
    if context != Context::Reading && is_page {
        state.focus = Focus::Reading;
    }
    let Some(slot) = state.slot_mut() else { return Vec::new() };
    let outcome = slot.pane.act(action);
    let mut requests = outcome.requests;
    if let Some(text) = outcome.copy {
        requests.push(Request::Copy { text });
    }
    if let Some(at) = outcome.fork_at {
        ask_fork(state, at);
    }
    if outcome.opens_search {
        push(state, Layer::Find(Input::default()));
    }
    if let Some(note) = outcome.note {
        state.inform(&note);
    }
    requests
}

/// Asks whether the shown session is to be forked after an event, the end of the turn at the reading cursor.
pub(super) fn ask_fork(state: &mut State, at: Seq) {
    let Some(slot) = state.slot_mut() else { return };
    let Some(session) = slot.pane.session() else { return };
    // A running turn is not copied: then the last event is that of the turn before it.
    let is_copied = slot.pane.turn().is_none() || at < slot.pane.last_stored();
    let turn = is_copied.then(|| slot.pane.act(Action::CopyTurn).copy).flatten();
    let turn = turn
        .and_then(|text| text.lines().next().map(|line| line.chars().take(TURN_CHARS).collect::<String>()));
    overlay::ask_fork(state, session, at, turn.as_deref());
}

/// Shows the list of sessions, or leaves it.
fn toggle_list(state: &mut State) {
    if state.focus == Focus::List {
        state.focus = Focus::Prompt;
        return;
    }
    state.focus = Focus::List;
    if let Some(session) = state.shown_session() {
        state.list.select(session);
    }
}

fn show_context(state: &mut State) -> Vec<Request> {
    let pane = state.shown;
    push(state, Layer::Context { pane, context: None, scroll: 0 });
    vec![Request::Context { pane }]
}

/// Shows the changes of the turn that the user reads, and asks whether to undo them if that is wanted.
fn show_changes(state: &mut State, asks_undo: bool) -> Vec<Request> {
    if state.shown_session().is_none() {
        state.inform("a new conversation has no changes yet");
        return Vec::new();
    }
    let pane = state.shown;
    let at = state.slot().and_then(|slot| slot.pane.changes_at());
    push(state, Layer::Changes(ChangesLayer::new(pane, at, asks_undo)));
    vec![Request::Changes { pane, at }]
}

fn answer(state: &mut State) {
    let shown = state.shown;
    let open = |(pane, slot): (&azureal::desk::PaneId, &crate::state::Slot)| {
        slot.pane.turn()?.question.clone().map(|question| (*pane, question))
    };
    let here = state.slots.get_key_value(&shown).and_then(open);
    match here.or_else(|| state.slots.iter().find_map(open)) {
        Some((pane, question)) => {
            push(state, Layer::Question { pane, question: Box::new(question), chosen: 0 });
        }
        None => state.inform("no question is open"),
    }
}

fn compact(state: &mut State) -> Vec<Request> {
    if state.shown_session().is_none() {
        state.inform("a new conversation has nothing to compact");
        return Vec::new();
    }
    state.inform("compacting: older events become a summary");
    vec![Request::Compact { pane: state.shown }]
}

fn open_in_agent(state: &mut State) -> Vec<Request> {
    if state.shown_session().is_none() {
        state.inform("a new conversation has nothing to open");
        return Vec::new();
    }
    vec![Request::OpenInAgent { pane: state.shown }]
}

fn read_with(state: &mut State, with: ReadWith) -> Vec<Request> {
    if state.shown_session().is_none() {
        state.inform("a new conversation has nothing to read");
        return Vec::new();
    }
    let at = state.slot().and_then(|slot| slot.pane.first_shown());
    vec![Request::Read { pane: state.shown, at, with }]
}

/// Returns the session that an action is about: the selected one in the list, else the shown one. With its title and its last event.
fn subject(state: &mut State, context: Context) -> Option<(azureal::SessionId, String, String, Seq)> {
    let line = if context == Context::List {
        state.list.selected()
    } else {
        state.shown_session().and_then(|session| state.list.line(session))
    };
    let found = line.map(|line| {
        let record = &line.record;
        let events = Seq(record.counts.events);
        (record.id, record.name.clone(), crate::list::title(record).to_owned(), events)
    });
    let shown = || {
        let record = state.slot()?.pane.record()?;
        let events = Seq(record.counts.events);
        Some((record.id, record.name.clone(), crate::list::title(record).to_owned(), events))
    };
    let found = found.or_else(|| if context == Context::List { None } else { shown() });
    if found.is_none() {
        state.inform("there is no session here");
    }
    found
}

fn rename(state: &mut State, context: Context) {
    if let Some((session, name, ..)) = subject(state, context) {
        // A session without a name of its own is called by its number.
        let name = if name == session.to_string() { Input::default() } else { Input::new(&name) };
        push(state, Layer::Rename { session, name });
    }
}

fn fork(state: &mut State, context: Context) {
    if let Some((session, _, title, at)) = subject(state, context) {
        // A pane knows of its own turn before the list does.
        let slot = state.pane_of(session).and_then(|pane| state.slots.get(&pane));
        let at = slot.map_or(at, |slot| at.max(slot.pane.last_stored()));
        push(state, Layer::Confirm(Confirm::fork(session, at, &title, None)));
    }
}

fn delete(state: &mut State) {
    let Some((session, _, title, _)) = subject(state, Context::List) else { return };
    let Some(line) = state.list.line(session) else { return };
    if line.active.is_some() || state.pane_of(session).is_some_and(|pane| slots::is_running(state, pane)) {
        state.warn(&format!("a turn is running in {session}: cancel it before you delete the session"));
        return;
    }
    let counts = &line.record.counts;
    let lines = vec![
        format!("Delete {session} {title}?"),
        format!("{} messages, {} events. They cannot be restored.", counts.messages, counts.events),
    ];
    push(
        state,
        Layer::Confirm(Confirm {
            title: "Delete",
            lines,
            yes: "delete",
            request: Request::Delete { session },
        }),
    );
}
