//! The help and the menu, from the table of keys.

use azureal::transcript::Tone;

use super::view::{View, back, bold, keys, plain, scrolls, toned};
use crate::draw::text::{Piece, pad, wrap};
use crate::keys::Context;
use crate::state::State;

/// The columns of keys.
const KEYS_WIDTH: u16 = 26;

/// Returns the help: every row of the table.
pub(super) fn view(state: &State, width: u16, scroll: u16) -> View {
    let mut rows: Vec<Vec<Piece>> = Vec::new();
    for context in Context::ALL {
        if !rows.is_empty() {
            rows.push(Vec::new());
        }
        let menu = state.keys.label(Context::Anywhere, crate::keys::Action::Menu).unwrap_or_default();
        rows.push(vec![match context {
            Context::Menu => bold(format!("{}, after {menu}", context.heading())),
            _ => bold(context.heading()),
        }]);
        for (entry, bound) in state.keys.rows(context).filter(|row| !row.1.is_empty()) {
            let labels: Vec<String> = bound.iter().map(|key| state.keys.shown(*key)).collect();
            let keys_width = KEYS_WIDTH.min(width / 3);
            let words = wrap(entry.long, width.saturating_sub(keys_width).saturating_sub(2), 6, &state.theme);
            let keys = wrap(&labels.join(" "), keys_width, 6, &state.theme);
            for index in 0..words.len().max(keys.len()) {
                let of = |lines: &[String]| lines.get(index).cloned().unwrap_or_default();
                rows.push(vec![
                    plain(" "),
                    toned(state, pad(&of(&keys), keys_width, &state.theme), Tone::User),
                    plain(" "),
                    plain(of(&words)),
                ]);
            }
        }
    }
    rows.push(Vec::new());
    rows.extend(super::view::paragraph(state, NOTES, width, 20));
    View {
        title: "Keys".to_owned(),
        rows,
        scroll,
        keys: keys(state, &[&scrolls(state), &back(state, "back")]),
        ..View::default()
    }
}

/// What is good to know besides the keys.
const NOTES: &str = "Keys are changed in `[keys]` of azufig.toml.\n\
    Select text with the mouse while Shift is held.\n\
    For lines in the scrollback of the terminal: `azureal run -c`, `azureal show --follow`, `azureal --plain`.";

/// Returns the menu.
pub(super) fn menu(state: &State, width: u16) -> View {
    let entries: Vec<String> = state
        .keys
        .rows(Context::Menu)
        .filter(|(entry, bound)| !bound.is_empty() && !entry.name.starts_with("menu-slot-"))
        .map(|(entry, bound)| {
            let key = bound.first().map(|key| state.keys.shown(*key)).unwrap_or_default();
            format!("{key} {}", entry.short)
        })
        .chain(["1-9 slot".to_owned()])
        .collect();
    let columns = usize::from((width / 18).clamp(1, 3));
    let column_width = 17.min(width);
    let height = entries.len().div_ceil(columns).max(1);
    let rows = (0..height)
        .map(|row| {
            let cells = entries.iter().skip(row).step_by(height);
            cells.map(|text| plain(pad(text, column_width, &state.theme))).collect()
        })
        .collect();
    View { title: "Menu".to_owned(), rows, keys: keys(state, &[&back(state, "back")]), ..View::default() }
}
