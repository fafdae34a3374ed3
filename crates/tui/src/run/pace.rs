//! The pace of frames.

use std::time::{Duration, Instant};

use azureal::desk::{News, PaneId, Request};

/// The shortest time between two frames that news cause.
const FRAME: Duration = Duration::from_millis(33);
/// The same for news of panes that are not shown: only counters change.
const QUIET_FRAME: Duration = Duration::from_millis(100);
/// Time that the first frame waits for the list and the opened session, so that it is not empty.
const FIRST_FRAME: Duration = Duration::from_millis(60);

/// Decides when a frame is drawn: at once after input, a few times a second for news, never without a reason.
#[derive(Debug)]
pub(super) struct Pace {
    /// When the next frame is drawn; `None` if nothing has changed.
    due: Option<Instant>,
    last: Option<Instant>,
    first: First,
}

/// What the first frame waits for.
#[derive(Debug, Default)]
struct First {
    is_listed: bool,
    opening: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self { due: Some(Instant::now() + FIRST_FRAME), last: None, first: First::default() }
    }
}

impl Pace {
    /// Draws at the next opportunity.
    pub(super) fn hurry(&mut self) {
        if self.last.is_some() {
            self.due = Some(Instant::now());
        }
    }

    pub(super) fn note_request(&mut self, request: &Request) {
        if matches!(request, Request::Open { .. }) {
            self.first.opening = self.first.opening.saturating_add(1);
        }
    }

    /// Notes news, which may change the screen.
    pub(super) fn note_news(&mut self, news: &News, shown: PaneId) {
        let Some(last) = self.last else {
            match news {
                News::Sessions(_) => self.first.is_listed = true,
                News::Opened(_) | News::Failed { .. } => {
                    self.first.opening = self.first.opening.saturating_sub(1);
                }
                _ => {}
            }
            return;
        };
        let pause = match news {
            News::Turn { pane, .. } | News::Appended { pane, .. } if *pane != shown => QUIET_FRAME,
            _ => FRAME,
        };
        let due = last + pause;
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
    }

    /// Returns when the next frame is due; `None` if none is.
    pub(super) fn next_frame(&self) -> Option<Instant> {
        self.due
    }

    /// Returns whether the list and the sessions that were asked for before the first frame are there.
    pub(super) fn is_ready(&self) -> bool {
        self.first.is_listed && self.first.opening == 0
    }

    /// Returns whether a frame is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.last.is_none() && self.is_ready() || self.due.is_some_and(|due| due <= now)
    }

    pub(super) fn drawn(&mut self, now: Instant) {
        self.last = Some(now);
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: PaneId = PaneId(1);

    fn appended(pane: PaneId) -> News {
        News::Appended { pane, events: Vec::new() }
    }

    #[test]
    fn the_first_frame_waits_for_the_list_and_the_session_but_not_long() {
        let mut pace = Pace::default();
        let began = Instant::now();
        pace.note_request(&Request::Agents);
        pace.note_request(&Request::Open { pane: SHOWN, session: "S1".parse().unwrap(), last: 64 });
        pace.note_news(&News::Sessions(Vec::new()), SHOWN);
        pace.hurry();
        assert!(!pace.is_due(began));
        assert!(pace.is_due(began + FIRST_FRAME + Duration::from_millis(1)));
        pace.note_news(
            &News::Failed { pane: Some(SHOWN), error: azureal::Error::usage("gone"), unsent: None },
            SHOWN,
        );
        assert!(pace.is_due(began));
    }

    #[test]
    fn nothing_new_is_no_frame() {
        let mut pace = Pace::default();
        let now = Instant::now();
        pace.drawn(now);
        assert_eq!(pace.next_frame(), None);
        assert!(!pace.is_due(now + Duration::from_secs(60)));
    }

    #[test]
    fn input_is_drawn_at_once_and_news_at_most_thirty_times_a_second() {
        let mut pace = Pace::default();
        let now = Instant::now();
        pace.drawn(now);
        pace.note_news(&appended(PaneId(2)), SHOWN);
        assert_eq!(pace.next_frame(), Some(now + QUIET_FRAME));
        pace.note_news(&appended(SHOWN), SHOWN);
        pace.note_news(&appended(PaneId(2)), SHOWN);
        assert_eq!(pace.next_frame(), Some(now + FRAME));
        assert!(!pace.is_due(now));
        pace.hurry();
        assert!(pace.is_due(Instant::now()));
    }
}
