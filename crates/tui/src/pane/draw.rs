//! The cells of a pane.

use std::ops::Range;

use azureal::transcript::{CallState, Content, Row, Span, Tone};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use unicode_width::UnicodeWidthStr;

use super::Pane;
use super::blocks::STATUS;
use super::live::Phase;
use super::view::ViewRow;
use crate::theme::Theme;

/// The columns in front of all rows, for the mark of the reading cursor.
pub(super) const GUTTER: u16 = 1;

impl Pane {
    /// Draws the rows that [`prepare`](Self::prepare) has laid out.
    pub fn draw(&self, area: Rect, buf: &mut Buffer, theme: &Theme, now_ms: u64) {
        let area = area.intersection(buf.area);
        if area.is_empty() {
            return;
        }
        if self.view.is_empty() {
            self.draw_empty(area, buf);
            return;
        }
        let cursor = self.cursor_index().filter(|_| self.is_reading).and_then(|index| self.blocks.key(index));
        for (shown, y) in self.view.iter().zip(area.top()..area.bottom()) {
            if let Some(row) = self.cache.rows(shown.key).get(shown.row) {
                self.draw_row(row, shown, Rect { y, height: 1, ..area }, buf, theme);
                self.draw_clock(row, shown, Rect { y, height: 1, ..area }, buf, theme, now_ms);
                if cursor == Some(shown.key) {
                    let mark = if theme.is_ascii { "|" } else { "▌" };
                    buf.set_stringn(area.x, y, mark, usize::from(GUTTER), theme.tone(Tone::User));
                }
            }
        }
    }

    fn draw_row(&self, row: &Row, shown: &ViewRow, line: Rect, buf: &mut Buffer, theme: &Theme) {
        let end = line.right();
        let mut x = line.x.saturating_add(GUTTER);
        for span in &row.spans {
            if x >= end {
                break;
            }
            let style = theme.style(span.style);
            let hits = self.marks(shown.key);
            for (text, mark) in marked(span, hits) {
                let style = match mark {
                    Mark::None => style,
                    Mark::Hit => style.add_modifier(Modifier::REVERSED),
                    Mark::Current => {
                        style.add_modifier(Modifier::REVERSED | Modifier::BOLD | Modifier::UNDERLINED)
                    }
                };
                (x, _) = buf.set_stringn(x, line.y, text, usize::from(end.saturating_sub(x)), style);
            }
        }
    }

    /// Draws how long a turn or a call runs, at the right, if there is room.
    fn draw_clock(
        &self,
        row: &Row,
        shown: &ViewRow,
        line: Rect,
        buf: &mut Buffer,
        theme: &Theme,
        now_ms: u64,
    ) {
        let Some(live) = &self.live else { return };
        let since = if shown.key == STATUS {
            live.turn.since_ms.filter(|_| live.turn.phase == Phase::Running)
        } else if shown.row == 0
            && let Some(block) = self.blocks.get(shown.index)
            && let Content::Call(call) = &block.content
            && call.state == CallState::Running
        {
            live.calls.get(&call.id).copied()
        } else {
            None
        };
        let Some(since) = since else { return };
        let clock = clock(now_ms.saturating_sub(since) / 1_000);
        let width: usize = row.spans.iter().map(|span| span.text.width()).sum();
        let used = usize::from(GUTTER) + width + 1;
        let Some(room) = usize::from(line.width).checked_sub(used + clock.len()) else { return };
        let x = if shown.key == STATUS { used } else { used + room };
        let x = line.x.saturating_add(u16::try_from(x).unwrap_or(u16::MAX));
        buf.set_stringn(x, line.y, &clock, clock.len(), theme.tone(Tone::Quiet));
    }

    fn draw_empty(&self, area: Rect, buf: &mut Buffer) {
        // A session that is being read has its own first rows in a moment.
        if !self.window.is_at_start || !self.window.is_at_end || self.asked.jump.is_some() {
            return;
        }
        let key = self.labels.send.as_ref().map(|key| format!(" and press {key}")).unwrap_or_default();
        let text = format!("type a prompt{key}");
        let x = area.x.saturating_add(GUTTER);
        buf.set_stringn(x, area.y, text, usize::from(area.right().saturating_sub(x)), Style::new());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    None,
    Hit,
    Current,
}

/// Splits a span at the hits of a search.
fn marked<'a>(span: &'a Span, hits: impl Iterator<Item = (&'a Range<usize>, bool)>) -> Vec<(&'a str, Mark)> {
    let source = &span.source;
    if source.is_empty() {
        return vec![(&span.text, Mark::None)];
    }
    let hits = hits.filter(|(hit, _)| hit.start < source.end && source.start < hit.end);
    let mut parts = Vec::new();
    let mut done = 0;
    for (hit, is_current) in hits {
        let mark = if is_current { Mark::Current } else { Mark::Hit };
        if !span.is_exact {
            // Its characters differ from those of the source: it is marked as a whole.
            return vec![(&span.text, mark)];
        }
        let start = hit.start.saturating_sub(source.start);
        let end = (hit.end.min(source.end)) - source.start;
        parts.push((span.text.get(done..start).unwrap_or_default(), Mark::None));
        parts.push((span.text.get(start..end).unwrap_or_default(), mark));
        done = end;
    }
    parts.push((span.text.get(done..).unwrap_or_default(), Mark::None));
    parts
}

/// Writes a time in seconds as a clock.
fn clock(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}
