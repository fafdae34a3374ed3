//! What an overlay shows: a title, rows and a line of keys.

use azureal::meter::grouped;
use azureal::transcript::Tone;
use ratatui::style::{Modifier, Style};

use super::{ContextParts, Layer, Picker, agents, changes, help, palette, questions};
use crate::draw::meter;
use crate::draw::text::{Piece, fit, one_line, pad_left, wrap};
use crate::keys::{Action, Context};
use crate::state::State;

/// What an overlay shows.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// The title.
    pub(crate) title: String,
    /// A line that the user types in: its label, its text and the column of the cursor in it.
    pub(crate) input: Option<(String, String, u16)>,
    /// The rows: all of them, or those near the first row that is drawn.
    pub(crate) rows: Vec<Vec<Piece>>,
    /// The number of rows before them.
    pub(crate) first: usize,
    /// The number of all rows, if `rows` has only some of them.
    pub(crate) count: Option<usize>,
    /// The chosen row.
    pub(crate) chosen: Option<usize>,
    /// The first row that is drawn.
    pub(crate) scroll: u16,
    /// The line of keys.
    pub(crate) keys: String,
}

impl View {
    /// Returns the number of all rows.
    pub(crate) fn row_count(&self) -> u16 {
        u16::try_from(self.count.unwrap_or(self.rows.len())).unwrap_or(u16::MAX)
    }
}

/// Returns what a layer shows at a width; `None` if it is not drawn yet.
pub(crate) fn view(state: &State, layer: &Layer, width: u16) -> Option<View> {
    Some(match layer {
        Layer::Help { scroll } => help::view(state, width, *scroll),
        Layer::Agents(picker) => agents::view(state, picker, width),
        Layer::Context { context, scroll, .. } => context_view(state, context.as_ref(), width, *scroll),
        Layer::Changes(layer) => layer.view(state),
        Layer::Undo { question, scroll, .. } => changes::question(state, question, width, *scroll),
        Layer::Trust { scroll } => questions::trust(state, width, *scroll),
        Layer::Confirm(confirm) => questions::confirm(state, confirm, width),
        Layer::Rename { session, name } => View {
            title: format!("Rename {session}"),
            input: Some(("name ".to_owned(), one_line(&name.text()), name.column())),
            keys: keys(state, &["↵ rename", &back(state, "back")]),
            ..View::default()
        },
        Layer::Find(text) => View {
            title: "Search the session".to_owned(),
            input: Some(("/".to_owned(), one_line(&text.text()), text.column())),
            keys: keys(state, &["↵ find", &next_hits(state), &back(state, "back")]),
            ..View::default()
        },
        Layer::Search(layer) => layer.view(state, width),
        Layer::Quit { chosen } => questions::quit(state, *chosen, width),
        Layer::Question { question, chosen, pane } => {
            questions::question(state, *pane, question, *chosen, width)
        }
        Layer::Palette(picker) => palette::view(state, picker, width),
        Layer::Menu { since_ms } => {
            let waits = state.now_ms.saturating_sub(*since_ms) < crate::state::MENU_DELAY_MS;
            return (!waits).then(|| help::menu(state, width));
        }
    })
}

/// Joins hints. Empty ones are left out: an action may have no key.
pub(super) fn keys(state: &State, hints: &[&str]) -> String {
    let dot = state.theme.mark(crate::theme::Mark::Dot);
    let hints: Vec<&str> = hints.iter().copied().filter(|hint| !hint.is_empty()).collect();
    let text = hints.join(&format!(" {dot} "));
    // Enter answers in every overlay, whatever it does elsewhere.
    if state.theme.is_ascii { text.replace('↵', "Enter") } else { text }
}

/// Returns the hint of the key that closes an overlay.
pub(super) fn back(state: &State, words: &str) -> String {
    let label = |action| state.keys.label(Context::Anywhere, action);
    hint(label(Action::Back).or_else(|| label(Action::Cancel)), words)
}

/// Returns the hint of the keys that choose a row.
pub(super) fn choose(state: &State, words: &str) -> String {
    hint(pair(state, Context::Prompt, [Action::Up, Action::Down]), words)
}

/// Returns the hint of the keys that scroll.
pub(super) fn scrolls(state: &State) -> String {
    hint(pair(state, Context::Reading, [Action::PageUp, Action::PageDown]), "scroll")
}

/// Returns the keys of two actions; `None` if one of them has none.
fn pair(state: &State, context: Context, [one, other]: [Action; 2]) -> Option<String> {
    let (one, other) = (state.keys.label(context, one)?, state.keys.label(context, other)?);
    let gap =
        if one.chars().count() == 1 && other.chars().count() == 1 && !one.is_ascii() { "" } else { " " };
    Some(format!("{one}{gap}{other}"))
}

/// Returns the hint of the keys that go to another hit of a search.
fn next_hits(state: &State) -> String {
    hint(pair(state, Context::Reading, [Action::FindNext, Action::FindPrevious]), "next, previous")
}

/// Returns a hint; empty if the action has no key.
pub(super) fn hint(keys: Option<String>, words: &str) -> String {
    keys.map(|keys| format!("{keys} {words}")).unwrap_or_default()
}

/// Returns the line that a picker is typed in.
pub(super) fn picker_input(label: &str, picker: &Picker) -> Option<(String, String, u16)> {
    Some((label.to_owned(), one_line(&picker.input.text()), picker.input.column()))
}

/// Returns a piece in a tone.
pub(super) fn toned(state: &State, text: impl Into<String>, tone: Tone) -> Piece {
    (text.into(), state.theme.tone(tone))
}

/// Returns a bold piece.
pub(super) fn bold(text: impl Into<String>) -> Piece {
    (text.into(), Style::new().add_modifier(Modifier::BOLD))
}

/// Returns a plain piece.
pub(super) fn plain(text: impl Into<String>) -> Piece {
    (text.into(), Style::new())
}

/// Returns a text as plain rows.
pub(super) fn paragraph(state: &State, text: &str, width: u16, most: usize) -> Vec<Vec<Piece>> {
    wrap(text, width, most, &state.theme).into_iter().map(|row| vec![plain(row)]).collect()
}

fn context_view(state: &State, context: Option<&ContextParts>, width: u16, scroll: u16) -> View {
    let title = "Context of the next agent".to_owned();
    let Some(ContextParts { parts, meter: size, .. }) = context else {
        return View {
            title,
            rows: vec![vec![plain("It is being rendered.")]],
            keys: keys(state, &[&back(state, "back")]),
            ..View::default()
        };
    };
    let name_width = width.saturating_sub(20).min(57);
    let mut rows: Vec<Vec<Piece>> = parts
        .iter()
        .map(|(name, chars)| {
            let share = chars.saturating_mul(100).checked_div(size.chars).unwrap_or(0);
            vec![
                plain(crate::draw::text::pad(name, name_width, &state.theme)),
                plain(pad_left(&grouped(*chars), 12, &state.theme)),
                plain(pad_left(&format!("{share}%"), 6, &state.theme)),
            ]
        })
        .collect();
    rows.push(Vec::new());
    let mut total = meter::pieces(state, size, 20);
    let limit = match size.threshold_tokens {
        Some(tokens) => format!(" of {} tokens", grouped(tokens)),
        None => format!(" of {} characters", grouped(size.threshold)),
    };
    total.push(plain(limit));
    rows.push(total);
    let tokens = format!("{} characters, tokens: {}", grouped(size.chars), size.tokens_line());
    rows.extend(paragraph(state, &fit(&tokens, width.saturating_mul(2), &state.theme), width, 2));
    if size.percent >= 100 {
        rows.push(vec![plain(
            "The session is compacted before the next turn: older events become a summary.",
        )]);
    }
    View {
        title,
        rows,
        scroll,
        keys: keys(state, &["v whole text", &back(state, "back")]),
        ..View::default()
    }
}
