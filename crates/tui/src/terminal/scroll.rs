//! Finds rows that moved up or down between two screens. A terminal moves them by itself, for a few bytes.

use std::hash::{DefaultHasher, Hash, Hasher};

use ratatui::buffer::{Buffer, Cell};

use super::encode::row;

/// The most rows to move by.
const MOST: u16 = 12;
/// Cells that must be saved.
const WORTH: i64 = 80;

/// Rows that move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scroll {
    /// The first row that takes part.
    pub(super) top: u16,
    /// The row behind the last one.
    pub(super) bottom: u16,
    /// The number of rows that they move by.
    pub(super) by: u16,
    /// Whether they move up.
    pub(super) is_up: bool,
}

impl Scroll {
    /// Returns the move that leaves the fewest cells to write, if it is worth it.
    pub(super) fn find(shown: &Buffer, next: &Buffer) -> Option<Self> {
        let height = next.area.height;
        let (shown, next) = (Marks::of(shown), Marks::of(next));
        let mut best: Option<(i64, Self)> = None;
        for by in 1..=MOST.min(height.saturating_sub(2)) {
            for is_up in [true, false] {
                let gain = |y: u16| {
                    let from = if is_up { y + by } else { y };
                    let to = if is_up { y } else { y + by };
                    equal(shown.row(from), next.row(to)) - equal(shown.row(to), next.row(to))
                };
                // The best run of rows: a maximal sum.
                let (mut sum, mut start) = (0_i64, 0);
                for y in 0..height - by {
                    if sum <= 0 {
                        (sum, start) = (0, y);
                    }
                    sum += gain(y);
                    if best.is_none_or(|(most, _)| sum > most) {
                        best = Some((sum, Self { top: start, bottom: y + by + 1, by, is_up }));
                    }
                }
            }
        }
        best.filter(|(gain, _)| *gain >= WORTH).map(|(_, scroll)| scroll)
    }

    /// Moves the rows of a buffer, as the terminal does.
    pub(super) fn apply(self, buffer: &mut Buffer) {
        let Self { top, bottom, by, is_up } = self;
        let width = usize::from(buffer.area.width);
        let place = |y: u16| usize::from(y) * width;
        let Some(rows) = buffer.content.get_mut(place(top)..place(bottom)) else { return };
        let moved = (usize::from(by) * width).min(rows.len());
        let blank = if is_up {
            rows.rotate_left(moved);
            rows.len() - moved..rows.len()
        } else {
            rows.rotate_right(moved);
            0..moved
        };
        for cell in rows.get_mut(blank).unwrap_or_default() {
            *cell = Cell::EMPTY;
        }
    }
}

/// A hash of each cell, so that cells are compared quickly.
struct Marks {
    width: usize,
    cells: Vec<u64>,
}

impl Marks {
    fn of(buffer: &Buffer) -> Self {
        let rows = buffer.area.top()..buffer.area.bottom();
        let cells = rows.flat_map(|y| row(buffer, y)).map(mark).collect();
        Self { width: usize::from(buffer.area.width), cells }
    }

    fn row(&self, y: u16) -> &[u64] {
        let from = usize::from(y) * self.width;
        self.cells.get(from..from + self.width).unwrap_or_default()
    }
}

fn mark(cell: &Cell) -> u64 {
    let mut hasher = DefaultHasher::new();
    (cell.symbol(), cell.fg, cell.bg, cell.modifier).hash(&mut hasher);
    hasher.finish()
}

fn equal(first: &[u64], second: &[u64]) -> i64 {
    let equal = first.iter().zip(second).filter(|(first, second)| first == second).count();
    i64::try_from(equal).unwrap_or(i64::MAX)
}
