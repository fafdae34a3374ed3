//! Questions to the user.

use azureal::core::bridge::Question;
use azureal::desk::PaneId;
use azureal::transcript::Tone;

use super::Confirm;
use super::view::{View, back, bold, choose, keys, paragraph, plain, scrolls, toned};
use crate::draw::text::one_line;
use crate::state::State;
use crate::theme::Mark;

/// The most rows of the files that are shown before they are trusted: more than any file may have.
const MOST_ROWS: usize = 100_000;
/// The most rows of the input of a tool.
const INPUT_ROWS: usize = 12;

/// The answers to the question whether to quit while turns run: key, words.
pub(super) const QUIT_ANSWERS: [(char, &str); 3] =
    [('l', "leave them running"), ('c', "cancel them, then quit"), ('s', "stay")];

/// Returns the files that are not trusted yet, and the question.
pub(super) fn trust(state: &State, width: u16, scroll: u16) -> View {
    let title = "Trust the configuration of this project?".to_owned();
    let Some(content) = &state.untrusted else {
        return View {
            title,
            rows: vec![vec![plain("The configuration of this project is trusted, or there is none.")]],
            keys: keys(state, &[&back(state, "back")]),
            ..View::default()
        };
    };
    let note = "These files came with the project. They can run commands and change what agents may do. They have no effect before you trust them.";
    let mut rows = paragraph(state, note, width, 4);
    rows.push(Vec::new());
    rows.extend(paragraph(state, content, width, MOST_ROWS));
    View {
        title,
        rows,
        scroll,
        keys: keys(state, &["y trust", "n not now", &scrolls(state)]),
        ..View::default()
    }
}

/// Returns a question with the answers yes and no.
pub(super) fn confirm(state: &State, confirm: &Confirm, width: u16) -> View {
    let rows = confirm.lines.iter().flat_map(|line| paragraph(state, &one_line(line), width, 4)).collect();
    let yes = format!("y {}", confirm.yes);
    View { title: confirm.title.to_owned(), rows, keys: keys(state, &[&yes, "n back"]), ..View::default() }
}

/// Returns the question whether to quit while turns run.
pub(super) fn quit(state: &State, chosen: usize, width: u16) -> View {
    let running = state.slots.values().filter(|slot| slot.is_running()).count();
    let text = match running {
        1 => "A turn is running:".to_owned(),
        _ => format!("{running} turns are running:"),
    };
    let mut rows = paragraph(state, &text, width, 2);
    let mut chosen_row = None;
    for (index, (key, words)) in QUIT_ANSWERS.iter().enumerate() {
        if index == chosen {
            chosen_row = Some(rows.len());
        }
        rows.push(vec![bold(format!("{key} ")), plain(*words)]);
    }
    rows.push(Vec::new());
    rows.extend(paragraph(
        state,
        "A turn that is left running is shown and stored by the next azureal.",
        width,
        3,
    ));
    View {
        title: "Quit".to_owned(),
        rows,
        chosen: chosen_row,
        keys: keys(state, &[&choose(state, "↵ choose"), &back(state, "stay")]),
        ..View::default()
    }
}

/// Returns a question of an agent.
pub(super) fn question(state: &State, pane: PaneId, question: &Question, chosen: usize, width: u16) -> View {
    let turn = state.slots.get(&pane).and_then(|slot| slot.pane.turn());
    let agent = turn.map_or("the agent", |turn| turn.agent.as_str());
    let mut rows = paragraph(state, &format!("{agent} asks: {}", question.title), width, 4);
    rows.extend(paragraph(state, &question.input, width, INPUT_ROWS));
    rows.push(Vec::new());
    let first = rows.len();
    for (index, option) in question.options.iter().enumerate() {
        let number = index.saturating_add(1);
        let (mark, tone) = match option.kind.allows() {
            true => (state.theme.mark(Mark::Good), Tone::Good),
            false => (state.theme.mark(Mark::Bad), Tone::Bad),
        };
        rows.push(vec![
            bold(format!("{number} ")),
            toned(state, mark, tone),
            plain(format!(" {}", one_line(&option.label))),
        ]);
    }
    let last = question.options.len().saturating_sub(1);
    View {
        title: "Question of the agent".to_owned(),
        chosen: (!question.options.is_empty()).then_some(first.saturating_add(chosen.min(last))),
        rows,
        keys: keys(state, &[&choose(state, "↵ choose"), "n refuse", &back(state, "later")]),
        ..View::default()
    }
}
