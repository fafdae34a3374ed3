//! The parts of the screen.

use ratatui::layout::Rect;

use super::text::wrap;
use crate::state::{Focus, State};

/// From this width on, the list is beside the pane.
const WIDE: u16 = 110;
/// Below this width or height, headers are one line.
const SMALL: (u16, u16) = (60, 16);
/// The columns of the list beside the pane.
const LIST_WIDTH: u16 = 42;
/// The rows below the list: facts of the selected session, and keys.
const DETAILS: u16 = 5;
/// The most rows of a notice.
pub(crate) const NOTICE_ROWS: u16 = 3;
/// The most rows of waiting prompts.
const WAITING_ROWS: u16 = 3;

/// The parts of the screen. A part without room is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Areas {
    /// The header of the project; `None` on small screens.
    pub(crate) header: Option<Rect>,
    /// The filter of the list.
    pub(crate) filter: Option<Rect>,
    /// The rows of the list, if it is on the screen.
    pub(crate) list: Option<Rect>,
    /// Facts of the selected session.
    pub(crate) details: Rect,
    /// The slots, below the list.
    pub(crate) slots: Rect,
    /// The line between list and pane.
    pub(crate) divider: Rect,
    /// The header of the session.
    pub(crate) title: Rect,
    /// The session pane.
    pub(crate) pane: Rect,
    /// What is below the view, while the user reads.
    pub(crate) below: Rect,
    /// The newest notice.
    pub(crate) notice: Rect,
    /// The waiting prompts.
    pub(crate) waiting: Rect,
    /// The prompt box.
    pub(crate) prompt: Rect,
    /// The line of keys.
    pub(crate) status: Rect,
}

/// Returns whether headers are one line.
pub(crate) fn is_small(state: &State) -> bool {
    state.size.0 < SMALL.0 || state.size.1 < SMALL.1
}

/// Returns whether the list is beside the pane.
pub(crate) fn is_wide(state: &State) -> bool {
    state.size.0 >= WIDE
}

impl Areas {
    /// Divides the screen.
    pub(crate) fn of(state: &State) -> Self {
        let mut rest = Rect::new(0, 0, state.size.0, state.size.1);
        let mut areas = Self::default();
        let is_list_alone = state.focus == Focus::List && !is_wide(state);
        if !is_small(state) || is_list_alone {
            areas.header = Some(take_top(&mut rest, 1));
        }
        if is_list_alone {
            areas.status = take_bottom(&mut rest, 1);
            areas.put_notice(state, &mut rest);
            areas.details = take_bottom(&mut rest, u16::from(!is_small(state)));
            areas.put_list(state, rest);
            return areas;
        }
        if is_wide(state) {
            // A column before the divider is empty.
            let mut column = Rect { width: LIST_WIDTH.saturating_sub(1), ..rest };
            areas.divider = Rect { x: LIST_WIDTH, width: 1, ..rest };
            let left = LIST_WIDTH.saturating_add(2);
            rest = Rect { x: left, width: rest.width.saturating_sub(left), ..rest };
            areas.slots = take_bottom(&mut column, 1);
            let details = if column.height > DETAILS.saturating_mul(2) { DETAILS } else { 0 };
            areas.details = take_bottom(&mut column, details);
            areas.put_list(state, column);
        }
        areas.put_pane(state, rest);
        areas
    }

    fn put_list(&mut self, state: &State, mut rest: Rect) {
        if state.list.is_filtering || !state.list.filter.is_empty() {
            self.filter = Some(take_top(&mut rest, 1));
        }
        self.list = Some(rest);
    }

    fn put_notice(&mut self, state: &State, rest: &mut Rect) {
        if let Some(notice) = state.notices.shown() {
            let rows =
                wrap(&notice.text, rest.width.saturating_sub(2), NOTICE_ROWS.into(), &state.theme).len();
            let rows = spare(rest, u16::try_from(rows).unwrap_or(NOTICE_ROWS));
            self.notice = take_bottom(rest, rows);
        }
    }

    /// Divides the column of the pane. What is most important has its place first.
    fn put_pane(&mut self, state: &State, mut rest: Rect) {
        let Some(slot) = state.slot() else { return };
        let height = rest.height;
        if height >= 2 {
            self.status = take_bottom(&mut rest, 1);
        }
        let most = (height / 3).clamp(1, 12);
        let prompt_height = slot.prompt.height(rest.width, most);
        self.prompt = take_bottom(&mut rest, prompt_height);
        if rest.height >= 2 {
            self.title = take_top(&mut rest, 1);
        }
        let waiting = slot.waiting.height(spare(&rest, WAITING_ROWS));
        self.waiting = take_bottom(&mut rest, waiting);
        self.put_notice(state, &mut rest);
        if !slot.pane.position().is_following {
            let rows = spare(&rest, 1);
            self.below = take_bottom(&mut rest, rows);
        }
        self.pane = rest;
    }
}

/// Returns the rows that a part can have: the pane has at least as many.
fn spare(rest: &Rect, most: u16) -> u16 {
    most.min(rest.height / 2)
}

fn take_top(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    let top = Rect { height, ..*rest };
    rest.y = rest.y.saturating_add(height);
    rest.height = rest.height.saturating_sub(height);
    top
}

fn take_bottom(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    rest.height = rest.height.saturating_sub(height);
    Rect { y: rest.y.saturating_add(rest.height), height, ..*rest }
}
