//! The context meter: a bar and a number.

use azureal::meter::Meter;
use ratatui::style::Style;

use super::text::Piece;
use crate::state::State;
use crate::theme::{Mark, Theme};

/// Returns the bar and the number: `▓▓▓▓▓▓░░░░ 61%`. The colour says nothing that the number does not.
pub(crate) fn pieces(state: &State, meter: &Meter, bar: u16) -> Vec<Piece> {
    let theme = &state.theme;
    let style = theme.tone(Theme::fill_tone(meter.percent));
    let full = meter.percent.min(100).saturating_mul(bar.into()).saturating_add(50) / 100;
    let full = usize::try_from(full).unwrap_or(0).min(bar.into());
    let empty = usize::from(bar).saturating_sub(full);
    vec![
        (theme.mark(Mark::Full).repeat(full), style),
        (theme.mark(Mark::Empty).repeat(empty), Style::new()),
        (format!("{}{}%", if bar > 0 { " " } else { "" }, meter.percent), style),
    ]
}
