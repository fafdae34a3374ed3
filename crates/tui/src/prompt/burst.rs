//! Pastes in terminals that do not mark them: characters that arrive faster than anybody types.
//!
//! Enter in the middle of such a burst is a line break. An Enter that directly follows a fast character is held for a moment: it is a line
//! break if another key follows at once, and it sends otherwise. So keys that a program types, such as `tmux send-keys text Enter`, are sent.

/// Characters at most this many milliseconds apart are one burst. Keys that repeat are at least 15 ms apart.
const GAP_MS: u64 = 5;
/// How long an Enter is held, in milliseconds, and after which time a burst is over.
const HOLD_MS: u64 = 10;

/// The keys of the last moments.
#[derive(Debug, Clone, Default)]
pub(super) struct Burst {
    /// The time of the keys that follow; `None` if the caller gives no times, or if the terminal marks pastes.
    now_ms: Option<u64>,
    is_off: bool,
    keys: Option<Keys>,
}

/// The keys of a burst.
#[derive(Debug, Clone, Copy)]
struct Keys {
    last_ms: u64,
    /// Where in the text it began.
    start: usize,
    chars: usize,
    lines: usize,
    held_until_ms: Option<u64>,
}

/// The meaning of an Enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enter {
    Sends,
    /// It stands for this many line breaks: its own, and that of an Enter before it that was held.
    Breaks(usize),
    Held {
        until_ms: u64,
    },
}

/// The end of a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// Where in the text it began, if it was more than a character.
    pub(super) start: usize,
    pub(super) chars: usize,
    pub(super) lines: usize,
    /// Whether an Enter was held.
    pub(super) was_held: bool,
}

impl Burst {
    pub(super) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = Some(now_ms).filter(|_| !self.is_off);
    }

    /// Stops looking for bursts: the terminal marks pastes.
    pub(super) fn turn_off(&mut self) {
        *self = Self { is_off: true, ..Self::default() };
    }

    /// Notes a character that is inserted at this place. Returns whether a held Enter is a line break before it.
    pub(super) fn character(&mut self, at: usize) -> bool {
        let Some(now) = self.now_ms else { return false };
        let keys = self.keys.get_or_insert(Keys {
            last_ms: now,
            start: at,
            chars: 0,
            lines: 0,
            held_until_ms: None,
        });
        let breaks = keys.held_until_ms.take().is_some();
        keys.chars += 1;
        keys.lines += usize::from(breaks);
        keys.last_ms = now;
        breaks
    }

    pub(super) fn enter(&mut self) -> Enter {
        let (Some(now), Some(keys)) = (self.now_ms, &mut self.keys) else { return Enter::Sends };
        keys.last_ms = now;
        let held = usize::from(keys.held_until_ms.take().is_some());
        if held + keys.lines > 0 {
            keys.lines += 1 + held;
            return Enter::Breaks(1 + held);
        }
        let until_ms = now + HOLD_MS;
        keys.held_until_ms = Some(until_ms);
        Enter::Held { until_ms }
    }

    /// Ends the burst if the keys that follow are too late for it.
    pub(super) fn end_if_late(&mut self) -> Option<Ended> {
        let keys = self.keys?;
        let now = self.now_ms?;
        let is_late = match keys.held_until_ms {
            Some(until) => now >= until,
            None => now.saturating_sub(keys.last_ms) > GAP_MS,
        };
        is_late.then(|| self.end()).flatten()
    }

    /// Ends the burst: another key follows.
    pub(super) fn end(&mut self) -> Option<Ended> {
        let Keys { start, chars, lines, held_until_ms, .. } = self.keys.take()?;
        Some(Ended { start, chars, lines, was_held: held_until_ms.is_some() })
    }

    /// Returns the place, the characters and the line breaks of the burst, if it is more than a character.
    pub(super) fn size(&self) -> Option<(usize, usize, usize)> {
        self.keys.filter(|keys| keys.chars > 1).map(|keys| (keys.start, keys.chars, keys.lines))
    }

    /// Returns the time after which the burst is over.
    pub(super) fn over_ms(&self) -> Option<u64> {
        self.keys.map(|keys| keys.last_ms + HOLD_MS)
    }
}
