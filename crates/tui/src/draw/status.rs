//! The slots, the notice and the line of keys.

use azureal::transcript::{Level, Tone};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::areas::{NOTICE_ROWS, is_small, is_wide};
use super::header::turn_state;
use super::text::{Piece, fit, width, wrap, write, write_both};
use crate::keys::{Action, Context};
use crate::state::{Cancelled, Focus, Slot, State};
use crate::theme::Mark;

/// Draws the newest notice.
pub(super) fn notice(state: &State, area: Rect, buf: &mut Buffer) {
    let Some(notice) = state.notices.shown().filter(|_| area.height > 0) else { return };
    let theme = &state.theme;
    let (mark, tone) = match notice.level {
        Level::Info => (theme.mark(Mark::Dot), Tone::Plain),
        Level::Warning => ("!", Tone::Caution),
        Level::Error => (theme.mark(Mark::Bad), Tone::Bad),
    };
    let most = area.height.min(NOTICE_ROWS);
    let rows = wrap(&notice.text, area.width.saturating_sub(2), most.into(), theme);
    for (row, text) in (0..area.height).zip(rows) {
        let mark = if row == 0 { mark } else { " " };
        write(buf, area, row, &[(format!("{mark} "), theme.tone(tone)), (text, theme.tone(tone))]);
    }
}

/// Draws what is below the view.
pub(super) fn below(state: &State, slot: &Slot, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let position = slot.pane.position();
    // While the focus is elsewhere, the key of reading comes first: alone, it would type a letter or move in the list.
    let label = |action| state.keys.label(Context::Reading, action);
    let first = match state.focus {
        Focus::Reading => Some(String::new()),
        Focus::Prompt => state.keys.label(Context::Prompt, Action::Read).map(|read| format!("{read} ")),
        Focus::List => None,
    };
    let follows = first.zip(label(Action::Bottom)).map(|(first, end)| format!("{first}{end} follows "));
    let arrow = theme.mark(Mark::Below);
    let (dot, events) = (theme.mark(Mark::Dot), position.events);
    let place = format!(" event {} of {events} ", position.seq);
    let text = match (position.new_events, follows) {
        (0, follows) => follows.unwrap_or_default(),
        (count, Some(follows)) => format!("{arrow} {count} new {dot} {follows}"),
        (count, None) => format!("{arrow} {count} new "),
    };
    let style = theme.tone(if position.new_events > 0 { Tone::Caution } else { Tone::Plain });
    write_both(buf, area, 0, &[(place, Style::new())], &[(text, style)]);
}

/// Draws the slots below the list.
pub(super) fn slots(state: &State, area: Rect, buf: &mut Buffer) {
    let mut pieces = vec![(" slots ".to_owned(), Style::new())];
    pieces.extend(slot_pieces(state, true, area.width));
    write(buf, area, 0, &pieces);
}

/// Returns the slots: their numbers, sessions and states. The shown one is reversed.
fn slot_pieces(state: &State, has_clock: bool, room: u16) -> Vec<Piece> {
    let theme = &state.theme;
    let is_small = is_small(state);
    let mut pieces: Vec<Piece> = Vec::new();
    let mut taken = 0_u16;
    for (index, pane) in state.order.iter().enumerate() {
        let Some(slot) = state.slots.get(pane) else { continue };
        let number = index.saturating_add(1);
        let name = match slot.pane.session() {
            Some(session) => session.to_string(),
            None => "new".to_owned(),
        };
        let mut text = if is_small { number.to_string() } else { format!("{number} {name}") };
        let is_running = slot.is_running();
        if is_running {
            text.push_str(theme.mark(Mark::Running));
        } else if slot.has_unread() {
            text.push_str(theme.mark(Mark::Unread));
        }
        if has_clock && is_running {
            text.push_str(&turn_state(state, slot).unwrap_or_default());
        }
        let style =
            if *pane == state.shown { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        let gap = if is_small { "" } else { " " };
        taken = taken.saturating_add(width(&text)).saturating_add(width(gap));
        if taken > room {
            pieces.push((theme.mark(Mark::More).to_owned(), Style::new()));
            break;
        }
        pieces.push((text, style));
        pieces.push((gap.to_owned(), Style::new()));
    }
    pieces
}

/// Draws the line of keys, after the slots if they have no place of their own.
pub(super) fn status(state: &State, area: Rect, buf: &mut Buffer) {
    let mut pieces: Vec<Piece> = Vec::new();
    let is_alone = !is_wide(state);
    let lead = if is_small(state) || !is_alone { "" } else { " " };
    pieces.push((lead.to_owned(), Style::new()));
    if is_alone
        && state.focus != Focus::List
        && (state.order.len() > 1 || state.slot().is_some_and(Slot::is_running))
    {
        pieces.extend(slot_pieces(state, false, area.width / 2));
        pieces.push((" ".to_owned(), Style::new()));
    }
    let taken: u16 = pieces.iter().map(|(text, _)| width(text)).sum();
    let mut room = area.width.saturating_sub(taken);
    let dot = if is_small(state) { "  ".to_owned() } else { format!(" {} ", state.theme.mark(Mark::Dot)) };
    for (index, hint) in hints(state).into_iter().enumerate() {
        let gap = if index == 0 { "" } else { &dot };
        let needed = width(gap).saturating_add(width(&hint));
        if needed > room {
            if index == 0 {
                pieces.push((fit(&hint, room, &state.theme), Style::new()));
            }
            break;
        }
        room = room.saturating_sub(needed);
        pieces.push((format!("{gap}{hint}"), Style::new()));
    }
    write(buf, area, 0, &pieces);
}

/// Returns the hints for what the user can do now, the most important first.
fn hints(state: &State) -> Vec<String> {
    let of = |context: Context, actions: &[Action]| -> Vec<String> {
        actions.iter().filter_map(|action| state.keys.hint(context, *action)).collect()
    };
    let label = |context, action| state.keys.label(context, action).unwrap_or_default();
    if state.quit_until_ms.is_some() {
        return vec![format!("{} again quits", label(Context::Anywhere, Action::Cancel))];
    }
    if state.guard_until_ms.is_some() && state.focus == Focus::Prompt {
        let enter = label(Context::Prompt, Action::Send);
        return vec![format!("{enter} does nothing for 2 s: another session is shown")];
    }
    match state.focus {
        Focus::List if state.list.is_filtering => {
            return vec![
                format!("{} open", label(Context::List, Action::Open)),
                format!("{} all sessions", label(Context::Anywhere, Action::Back)),
            ];
        }
        Focus::List => {
            use Action::{AllWorktrees, Back, Delete, Filter, Fork, Help, New, Open, Rename};
            return of(Context::List, &[Open, Back, New, Filter, Rename, Fork, Delete, AllWorktrees, Help]);
        }
        Focus::Reading => {
            use Action::{
                Bottom, Changes, CopyBlock, Find, Fold, ForkHere, Help, OpenPager, PromptBefore, Write,
            };
            return of(
                Context::Reading,
                &[Write, Fold, Find, Bottom, CopyBlock, Changes, PromptBefore, ForkHere, OpenPager, Help],
            );
        }
        Focus::Prompt => {}
    }
    let Some(slot) = state.slot() else { return Vec::new() };
    let enter = label(Context::Prompt, Action::Send);
    let mut hints = Vec::new();
    if slot.is_running() && !slot.prompt.is_empty() {
        if !state.is_foreign(slot) {
            hints.push(format!("{enter} cancels the turn and sends"));
            hints.extend(state.keys.label(Context::Prompt, Action::Queue).map(|key| format!("{key} queues")));
        } else {
            hints.push(format!("{enter} queues: this turn runs in the background"));
        }
    } else if slot.cancelled == Some(Cancelled::ForPrompt) {
        hints.push(format!("{} keeps the prompt waiting", label(Context::Anywhere, Action::Back)));
    } else if slot.is_running() && slot.cancelled.is_none() {
        let words = if is_small(state) { "cancel" } else { "cancels the turn" };
        hints.push(format!("{} {words}", label(Context::Anywhere, Action::Back)));
    } else if !slot.is_running() && slot.awaits_lease && slot.waiting.has_next() {
        hints.push("waits for a turn of another process".to_owned());
        hints.push(format!("{} holds the prompt", label(Context::Anywhere, Action::Back)));
        hints.extend(of(Context::Prompt, &[Action::EditWaiting]));
    } else if !slot.is_running() && slot.prompt.is_empty() && !slot.waiting.is_empty() {
        let prompts = if slot.waiting.len() == 1 { "prompt" } else { "prompts" };
        hints.push(format!("{enter} sends the waiting {prompts}"));
        hints.extend(of(Context::Prompt, &[Action::EditWaiting]));
    } else if !slot.is_running() {
        hints.extend(of(Context::Prompt, &[Action::Send]));
    }
    use Action::{Agents, Context as NextContext, Help, Menu, Newline, Read, Sessions};
    hints.extend(of(Context::Prompt, &[Read]));
    if !slot.prompt.is_empty() {
        hints.extend(of(Context::Prompt, &[Newline]));
    }
    if !is_wide(state) {
        hints.extend(of(Context::Prompt, &[Sessions]));
    }
    hints.extend(of(Context::Prompt, &[Agents, NextContext, Menu]));
    if is_small(state) {
        hints.insert(hints.len().min(2), state.keys.hint(Context::Anywhere, Help).unwrap_or_default());
    }
    hints
}
