//! What the state looks like. Nothing here changes it.

pub(crate) mod areas;
mod header;
mod list;
pub(crate) mod meter;
mod overlay;
mod status;
pub(crate) mod text;
mod welcome;

pub(crate) use overlay::{code_width, scroll_end as overlay_scroll_end, visible_rows as overlay_rows};

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::keys::{Action, Context};
use crate::state::{Focus, State};
use crate::theme::Mark;
use areas::Areas;

/// Draws the state. [`prepare`](crate::prepare) comes before it.
pub fn draw(state: &State, frame: &mut Frame<'_>) {
    let areas = Areas::of(state);
    let buf = frame.buffer_mut();
    if let Some(area) = areas.header {
        header::project(state, area, buf);
    }
    let mut cursor = list::draw(state, &areas, buf);
    status::notice(state, areas.notice, buf);
    let divider = state.theme.mark(Mark::Divider).to_owned();
    for row in 0..areas.divider.height {
        text::write(buf, areas.divider, row, &[(divider.clone(), Style::new())]);
    }
    if areas.slots.height > 0 {
        status::slots(state, areas.slots, buf);
    }
    if let Some(slot) = state.slot().filter(|_| areas.prompt.height > 0) {
        header::session(state, slot, areas.title, buf);
        if slot.is_untouched() || (slot.pane.session().is_none() && !slot.is_running()) {
            welcome::draw(state, areas.pane, buf);
        } else {
            slot.pane.draw(areas.pane, buf, &state.theme, state.now_ms);
        }
        status::below(state, slot, areas.below, buf);
        let edit = state.keys.hint(Context::Prompt, Action::EditWaiting).unwrap_or_default();
        slot.waiting.draw(areas.waiting, &edit, buf, &state.theme);
        let place = slot.prompt.draw(areas.prompt, buf, &state.theme);
        if state.focus == Focus::Prompt {
            cursor = place;
            let above = Rect { height: areas.prompt.y.saturating_sub(areas.pane.y), ..areas.pane };
            if slot.prompt.popup_height() > 0 {
                let height = slot.prompt.popup_height().min(above.height);
                let popup = Rect { y: above.bottom().saturating_sub(height), height, ..above };
                text::clear(buf, popup);
                slot.prompt.draw_popup(above, buf, &state.theme);
            }
        }
    }
    status::status(state, areas.status, buf);
    for layer in &state.layers {
        cursor = overlay::draw(state, layer, buf).or(if state.layers.is_empty() { cursor } else { None });
    }
    if let Some(place) = cursor.filter(|place| frame.area().contains(*place)) {
        frame.set_cursor_position(place);
    }
}
