//! The search over all sessions.

use azureal::core::counted;
use azureal::desk::{Request, SearchNews};
use azureal::search::{Hit, Snippet};
use azureal::transcript::Tone;
use ratatui::style::{Modifier, Style};

use super::Picker;
use super::view::{View, back, bold, choose, keys, picker_input, plain, toned};
use crate::draw::text::{Piece, fit, one_line, pad, width as width_of};
use crate::state::State;
use crate::theme::Mark;

/// From this width on, rows have the role of the text.
const WIDE: u16 = 60;

/// The search over all sessions: what is typed, and what was found.
#[derive(Debug, Default)]
pub(crate) struct SearchLayer {
    /// The typed text and the chosen hit.
    pub(crate) picker: Picker,
    /// What was found last; it may be that of an earlier text.
    found: Option<Box<SearchNews>>,
}

impl SearchLayer {
    /// Returns the request for the typed text, if it is another one than before.
    pub(crate) fn asked(&mut self, before: &str) -> Vec<Request> {
        let text = self.picker.input.text();
        if text == before {
            return Vec::new();
        }
        if text.trim().is_empty() {
            self.found = None;
        }
        vec![Request::Search { text }]
    }

    /// Takes what was found, if the user still waits for it.
    pub(crate) fn take(&mut self, found: SearchNews) {
        if found.text == self.picker.input.text() {
            self.found = Some(Box::new(found));
        }
    }

    fn hits(&self) -> &[Hit] {
        self.found.as_ref().map_or(&[], |found| &found.hits)
    }

    /// Returns the number of hits.
    pub(crate) fn hit_count(&self) -> usize {
        self.hits().len()
    }

    /// Returns the chosen hit.
    pub(crate) fn chosen_hit(&self) -> Option<&Hit> {
        self.hits().get(self.picker.chosen.min(self.hit_count().saturating_sub(1)))
    }

    /// Returns the number of hits in words.
    fn summary(&self) -> String {
        let text = self.picker.input.text();
        if text.trim().is_empty() {
            return "words, \"a phrase\", begin*; agent: role: tool: session: since:".to_owned();
        }
        let Some(found) = self.found.as_ref().filter(|found| found.text == text) else {
            return "searching".to_owned();
        };
        if let Some(problem) = &found.problem {
            return one_line(problem);
        }
        let more = if found.total.is_least && found.is_over { "more than " } else { "" };
        let count = match found.total.events {
            0 if found.is_over => "no hit".to_owned(),
            1 => "1 hit".to_owned(),
            count => format!("{count} hits"),
        };
        match found.not_searched {
            0 if found.damaged > 0 => {
                format!("{more}{count}; {} cannot be read", counted(found.damaged, "event"))
            }
            0 => format!("{more}{count}"),
            1 => format!("{count}, 1 session is still being read"),
            left => format!("{count}, {left} sessions are still being read"),
        }
    }

    /// Returns what is shown.
    pub(super) fn view(&self, state: &State, width: u16) -> View {
        let mut rows: Vec<Vec<Piece>> = self.hits().iter().map(|hit| row(state, hit, width)).collect();
        let chosen = (!rows.is_empty()).then(|| self.picker.chosen.min(rows.len().saturating_sub(1)));
        // Below the hits, where the chosen row does not hide it.
        if rows.is_empty() {
            rows.push(vec![plain(fit(&self.summary(), width, &state.theme))]);
        }
        let title = match chosen {
            Some(_) => format!("Search all sessions: {}", self.summary()),
            None => "Search all sessions".to_owned(),
        };
        View {
            title,
            input: picker_input("//", &self.picker),
            rows,
            chosen,
            keys: keys(state, &[&choose(state, "choose"), "↵ open at the hit", &back(state, "back")]),
            ..View::default()
        }
    }
}

/// Returns the row of a hit: its session, the author, and the text around the match.
fn row(state: &State, hit: &Hit, width: u16) -> Vec<Piece> {
    let theme = &state.theme;
    let mut row = vec![bold(pad(&hit.session.id.to_string(), 5, theme)), plain(" ")];
    let mut used = 6;
    if width >= WIDE {
        let author = hit.tool.as_deref().unwrap_or(hit.role.as_str());
        row.push(toned(state, pad(&one_line(author), 9, theme), Tone::Quiet));
        row.push(plain(" "));
        used += 10;
    }
    row.extend(snippet(state, &hit.snippet, width.saturating_sub(used)));
    row
}

/// Returns a snippet with its matches marked. The first match is in the first half.
fn snippet(state: &State, snippet: &Snippet, width: u16) -> Vec<Piece> {
    let found = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    let lead = usize::from(width / 3);
    let mut pieces: Vec<Piece> = Vec::new();
    let mut is_cut = snippet.is_cut_before;
    for (index, piece) in snippet.pieces.iter().enumerate() {
        let text = one_line(&piece.text);
        if index == 0 && !piece.is_match && usize::from(width_of(&text)) > lead {
            let skipped = text.chars().count().saturating_sub(lead);
            pieces.push(plain(text.chars().skip(skipped).collect::<String>()));
            is_cut = true;
        } else {
            pieces.push((text, if piece.is_match { found } else { Style::new() }));
        }
    }
    if is_cut {
        pieces.insert(0, plain(state.theme.mark(Mark::More)));
    }
    pieces
}
