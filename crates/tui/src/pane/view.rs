//! The place that a pane shows.
//!
//! It is a row of a block, or the end. Rows are only counted from there, a screen up and a screen down.

use azureal::Seq;

use super::Pane;
use super::blocks::Key;

/// The place that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// The end: what is added scrolls in.
    End,
    /// The first row on the screen.
    At(Anchor),
}

/// A row of a block that keeps its text when the block is laid out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) key: Key,
    /// The place in the source where a row begins.
    pub(super) at: Option<usize>,
    /// The number of rows after that row, or after the beginning of the block.
    rows: usize,
}

/// A row of a block: the number of the block, and the number of the row in it.
pub(super) type Spot = (usize, usize);

/// The reading cursor: a row of a block.
pub(super) type Cursor = Anchor;

/// A row on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ViewRow {
    /// The number of the block.
    pub(super) index: usize,
    pub(super) key: Key,
    /// The number of the row in it. After the last one comes a blank row if one belongs there.
    pub(super) row: usize,
}

/// The place of the view in the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Whether the view follows the end.
    pub is_following: bool,
    /// The number of events that came since the user has left the end.
    pub new_events: u64,
    /// The last event on the screen.
    pub seq: Seq,
    /// The number of events of the session, those of the running turn included.
    pub events: u64,
}

impl Pane {
    /// Returns the place of the view in the session.
    pub fn position(&self) -> Position {
        let newest = self.newest();
        let is_growing = self.live.as_ref().is_some_and(|live| !live.growing.is_empty());
        let is_following = self.place == Place::End;
        let new_events = match is_following {
            true => 0,
            false => newest.0.saturating_sub(self.seen.0) + u64::from(is_growing),
        };
        let block = self.view.last().and_then(|row| self.blocks.get(row.index));
        let seq = block.map_or(newest, |block| block.seq.min(newest));
        Position { is_following, new_events, seq: if is_following { newest } else { seq }, events: newest.0 }
    }

    /// Returns the event of the first row on the screen; `None` if the view follows the end.
    pub fn first_shown(&self) -> Option<Seq> {
        let row = self.view.first().filter(|_| self.place != Place::End)?;
        self.blocks.get(row.index).map(|block| block.seq)
    }

    /// Returns the event whose turn's changes the user wants to see; `None` at the end, for those of the last turn that has any.
    pub fn changes_at(&self) -> Option<Seq> {
        let index = self.cursor.and_then(|_| self.cursor_index())?;
        let block = self.blocks.get(index).filter(|block| block.seq <= self.stored)?;
        let is_prompt = |index: usize| self.blocks.get(index).is_some_and(super::act::is_prompt);
        let is_last = self.window.is_at_end && !(index + 1..self.blocks.len()).any(is_prompt);
        (!is_last || self.blocks.is_change(block)).then_some(block.seq)
    }

    /// Lays a block out if necessary. Returns the number of its rows, with the blank row after it.
    pub(super) fn height_of(&mut self, index: usize) -> usize {
        let Some(block) = self.blocks.get(index) else { return 0 };
        let layout = self.layout(self.folds.of(block));
        let hint = self.blocks.is_change(block).then(|| {
            self.labels.changes.as_ref().map(|key| format!(" · {key} shows them")).unwrap_or_default()
        });
        let rows = self.cache.lay(block, &layout, hint.as_deref());
        if rows == 0 {
            return 0;
        }
        let has_gap = self.blocks.get(index + 1).is_some_and(|next| block.has_gap_after(next));
        rows + usize::from(has_gap)
    }

    /// Goes rows up. Returns the row and how far it is.
    pub(super) fn up(&mut self, (mut index, row): Spot, count: usize) -> (Spot, usize) {
        if row >= count {
            return ((index, row - count), count);
        }
        let mut moved = row;
        let mut spot = (index, 0);
        while moved < count && index > 0 {
            index -= 1;
            let height = self.height_of(index);
            if height == 0 {
                continue;
            }
            let step = height.min(count - moved);
            moved += step;
            spot = (index, height - step);
        }
        (spot, moved)
    }

    /// Goes rows down. Returns the row and how far it is.
    pub(super) fn down(&mut self, (mut index, row): Spot, count: usize) -> (Spot, usize) {
        let left = self.height_of(index).saturating_sub(row + 1);
        if left >= count {
            return ((index, row + count), count);
        }
        let mut moved = left;
        let mut spot = (index, row + left);
        while moved < count && index + 1 < self.blocks.len() {
            index += 1;
            let height = self.height_of(index);
            if height == 0 {
                continue;
            }
            let step = height.min(count - moved);
            moved += step;
            spot = (index, step - 1);
        }
        (spot, moved)
    }

    /// Returns the last row.
    fn last_spot(&mut self) -> Option<Spot> {
        let mut index = self.blocks.len();
        while let Some(before) = index.checked_sub(1) {
            index = before;
            let height = self.height_of(index);
            if height > 0 {
                return Some((index, height - 1));
            }
        }
        None
    }

    /// Returns the first row on the screen if the last row is at its bottom.
    fn end_top(&mut self) -> Option<Spot> {
        let last = self.last_spot()?;
        Some(self.up(last, usize::from(self.height).saturating_sub(1)).0)
    }

    /// Returns the first row on the screen. Follows the end if there are no rows below the screen.
    pub(super) fn top(&mut self) -> Option<Spot> {
        let Place::At(anchor) = self.place.clone() else { return self.end_top() };
        let spot = self.spot_of(anchor)?;
        let height = usize::from(self.height);
        let is_gone = self.is_gone(anchor.key);
        let was_last = is_gone && self.blocks.get(spot.0).is_some_and(|block| block.last < anchor.key.0);
        if was_last || self.window.is_at_end && self.down(spot, height).1 < height {
            self.place = Place::End;
            return self.end_top();
        }
        if is_gone {
            // A block that gets its number later is another one: it must not move the reader.
            self.place = self.anchor(spot).map_or(Place::End, Place::At);
        }
        Some(spot)
    }

    /// Returns whether a block does not exist any more, such as one of a turn that was not stored. A block that is only not held can be read again.
    fn is_gone(&self, key: Key) -> bool {
        if self.blocks.is_exact(key) {
            return false;
        }
        let is_after = self.window.last().is_none_or(|last| last < key.0);
        let is_dropped = self.live.as_ref().is_some_and(|live| {
            live.dropped > 0 && live.first.is_some_and(|first| first <= key.0 && key.0 < live.next)
        });
        !is_dropped && (self.window.holds(key.0) || self.window.is_at_end && is_after)
    }

    /// Finds the row of an anchor.
    pub(super) fn spot_of(&mut self, anchor: Anchor) -> Option<Spot> {
        let index = self.blocks.find(anchor.key)?;
        let height = self.height_of(index);
        let key = self.blocks.key(index)?;
        if key != anchor.key {
            return Some((index, 0));
        }
        let rows = self.cache.rows(key);
        let start = match anchor.at {
            None => 0,
            Some(at) => {
                let holder = rows.iter().position(|row| row.source.contains(&at));
                let before = || rows.iter().rposition(|row| !row.source.is_empty() && row.source.start <= at);
                holder.or_else(before).unwrap_or(0)
            }
        };
        Some((index, (start + anchor.rows).min(height.saturating_sub(1))))
    }

    /// Makes an anchor of a row.
    pub(super) fn anchor(&mut self, (index, row): Spot) -> Option<Anchor> {
        self.height_of(index);
        let key = self.blocks.key(index)?;
        let rows = self.cache.rows(key);
        let above = rows.get(..=row).unwrap_or(rows);
        Some(match above.iter().rposition(|row| !row.source.is_empty()) {
            // A row whose place in the source is not its own, such as a second row of a key, counts from the first such row.
            Some(start) => {
                let at = rows.get(start)?.source.start;
                let holder = rows.iter().position(|row| row.source.contains(&at)).unwrap_or(start);
                Anchor { key, at: Some(at), rows: row - holder }
            }
            None => Anchor { key, at: None, rows: row },
        })
    }

    /// Returns the text of the first row on the screen, if the end is not followed.
    pub(super) fn row_at_top(&mut self) -> Option<(Key, String)> {
        let Place::At(anchor) = self.place else { return None };
        let (_, row) = self.spot_of(anchor)?;
        Some((anchor.key, self.cache.rows(anchor.key).get(row)?.text()))
    }

    /// Shows the row with this text at the top, if the block still has it: its source was replaced.
    pub(super) fn keep_row_at_top(&mut self, key: Key, text: &str) {
        let Some(index) = self.blocks.find(key) else { return };
        self.height_of(index);
        if let Some(row) = self.cache.rows(key).iter().position(|row| row.text() == text)
            && let Some(anchor) = self.anchor((index, row))
        {
            self.place = Place::At(anchor);
        }
    }

    /// Finds the rows on the screen, and lays out a screen above and below.
    pub(super) fn lay_out(&mut self) {
        self.view.clear();
        let height = usize::from(self.height);
        let Some(top) = self.top() else {
            self.needs = (true, true);
            self.cursor = None;
            return;
        };
        let mut spot = top;
        for _ in 0..height {
            let Some(key) = self.blocks.key(spot.0) else { break };
            self.view.push(ViewRow { index: spot.0, key, row: spot.1 });
            let (next, moved) = self.down(spot, 1);
            if moved == 0 {
                break;
            }
            spot = next;
        }
        let bottom = self.view.last().map_or(top, |row| (row.index, row.row));
        let ((first, _), above) = self.up(top, height);
        let ((last, _), below) = self.down(bottom, height);
        self.needs = (above < height, below < height);
        let keys: Vec<Key> = (first..=last).filter_map(|index| self.blocks.key(index)).collect();
        self.cache.keep(&keys);
        self.asked.tones.retain(|key| keys.binary_search(key).is_ok());
        let ends = |index| self.blocks.get(index).map(|block| (block.seq, block.last));
        if let (Some((from, _)), Some((_, to))) = (ends(first), ends(last)) {
            // The state of the turn is after all events, and notices may be too.
            self.near = from.min(self.newest())..=to.min(self.newest());
        }
        if self.place == Place::End {
            self.seen = self.newest();
        }
        self.keep_cursor_inside();
    }

    /// Moves the reading cursor to the nearest row on the screen. Without one, it is at the end.
    fn keep_cursor_inside(&mut self) {
        let (Some(first), Some(last)) = (self.view.first().copied(), self.view.last().copied()) else {
            return;
        };
        let (top, bottom) = ((first.index, first.row), (last.index, last.row));
        let Some(cursor) = self.cursor else {
            if self.place != Place::End {
                self.cursor = self.anchor(bottom);
            }
            return;
        };
        let Some(spot) = self.spot_of(cursor) else { return };
        // A block without rows is on no screen, and the mark of the cursor is not drawn in a blank row.
        let shown: Vec<Spot> = self
            .view
            .iter()
            .filter(|row| self.cache.rows(row.key).len() > row.row)
            .map(|row| (row.index, row.row))
            .collect();
        let is_blank_after = |last: &Spot| last.0 == spot.0 && spot <= bottom;
        let inside = match shown.iter().rfind(|row| **row <= spot) {
            Some(last) if is_blank_after(last) => spot,
            Some(last) => *last,
            None => shown.first().copied().unwrap_or(top),
        };
        if inside != spot || !self.blocks.is_exact(cursor.key) {
            self.cursor = self.anchor(inside);
        }
    }

    /// Scrolls by rows, down if positive. The reading cursor goes with it.
    pub(super) fn scroll(&mut self, rows: isize) {
        self.refresh();
        let Some(top) = self.top() else { return };
        let count = rows.unsigned_abs();
        let bottom = self.down(top, usize::from(self.height).saturating_sub(1)).0;
        let cursor = self.cursor.and_then(|cursor| self.spot_of(cursor)).unwrap_or(bottom);
        let (cursor, moved) = if rows < 0 { self.up(cursor, count) } else { self.down(cursor, count) };
        if rows < 0 {
            let (spot, moved) = self.up(top, count);
            if moved > 0 {
                self.leave_end(spot);
            }
        } else if self.place != Place::End {
            let (spot, _) = self.down(top, count);
            self.leave_end(spot);
            // Ends at the end.
            self.top();
        }
        let is_at_end = rows > 0 && moved < count && self.place == Place::End;
        self.cursor = if is_at_end { None } else { self.anchor(cursor) };
    }

    /// Shows a row at the top of the screen.
    pub(super) fn leave_end(&mut self, spot: Spot) {
        if let Some(anchor) = self.anchor(spot) {
            if self.place == Place::End {
                self.seen = self.newest();
            }
            self.place = Place::At(anchor);
        }
    }

    /// Shows the block of an event, with rows above it.
    pub(super) fn go_to(&mut self, seq: Seq, above: usize) {
        if let Some(index) = self.blocks.at_seq(seq) {
            self.show_spot((index, 0), above);
        }
    }

    /// Shows a row, with rows above it, and puts the reading cursor there.
    pub(super) fn show_spot(&mut self, spot: Spot, above: usize) {
        self.cursor = self.anchor(spot);
        let (top, _) = self.up(spot, above);
        self.leave_end(top);
    }
}
