//! The palette: actions by their words.

use azureal::transcript::Tone;

use super::Picker;
use super::view::{View, back, choose, keys, picker_input, plain, toned};
use crate::draw::text::{pad, pad_left};
use crate::keys::{Action, Context, Entry};
use crate::state::State;

/// Returns the actions that the typed words are found in. Actions on the text of the prompt are left out: they mean nothing here.
pub(super) fn entries<'s>(state: &'s State, picker: &Picker) -> Vec<&'s Entry> {
    let typed = picker.input.text().to_lowercase();
    let words: Vec<&str> = typed.split_whitespace().collect();
    let mut found: Vec<&Entry> = Vec::new();
    for context in [Context::Anywhere, Context::Menu, Context::Reading, Context::List] {
        for (entry, _) in state.keys.rows(context) {
            let text = format!("{} {}", entry.long, entry.short).to_lowercase();
            let is_known = found.iter().any(|other| other.action == entry.action);
            let is_here = !matches!(
                entry.action,
                Action::Palette
                    | Action::Menu
                    | Action::Back
                    | Action::Cancel
                    | Action::Slot(_)
                    | Action::Open
                    | Action::RowUp
                    | Action::RowDown
            );
            if is_here && !is_known && words.iter().all(|word| text.contains(word)) {
                found.push(entry);
            }
        }
    }
    found
}

/// Returns all actions of the palette.
pub(crate) fn all(state: &State) -> Vec<&Entry> {
    entries(state, &Picker::default())
}

/// Returns the palette.
pub(super) fn view(state: &State, picker: &Picker, width: u16) -> View {
    let entries = entries(state, picker);
    let label_width = 18.min(width / 3);
    let words_width = width.saturating_sub(label_width).saturating_sub(4);
    let rows = entries
        .iter()
        .map(|entry| {
            let label = label(state, entry);
            vec![
                plain(pad(entry.long, words_width, &state.theme)),
                plain(" "),
                toned(state, pad_left(&label, label_width, &state.theme), Tone::User),
            ]
        })
        .collect();
    View {
        title: "Commands".to_owned(),
        input: picker_input(":", picker),
        rows,
        chosen: Some(picker.chosen.min(entries.len().saturating_sub(1))),
        keys: keys(state, &[&choose(state, "choose"), "↵ do it", &back(state, "back")]),
        ..View::default()
    }
}

/// Returns the key of an action, with the place where it is one.
fn label(state: &State, entry: &Entry) -> String {
    let Some(label) = state.keys.label(entry.context, entry.action) else { return String::new() };
    match entry.context {
        Context::Menu => {
            let menu = state.keys.label(Context::Anywhere, Action::Menu).unwrap_or_default();
            format!("{menu} {label}")
        }
        Context::Reading => format!("reading: {label}"),
        Context::List => format!("list: {label}"),
        Context::Prompt | Context::Anywhere => label,
    }
}
