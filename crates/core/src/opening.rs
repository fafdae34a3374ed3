//! The limits of what stands for the covered part of a session: summary, ledger and the user's prompts.
//!
//! Together they take at most a quarter of the threshold, so that a compaction leaves room for new turns. They follow from the threshold
//! alone, so the opening of a context stays the same until the next compaction or a change of the threshold.

use crate::Threshold;

/// The limits without a small threshold, in characters: summary, prompts, ledger.
const SUMMARY: u64 = 4_000;
const PROMPTS: u64 = 20_000;
const LEDGER: u64 = 12_000;
/// A smaller threshold than this has the limits of this one: there must be room for a few lines.
const LEAST_THRESHOLD: u64 = 8_000;

/// The most characters of each part of an opening, headings included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpeningLimits {
    /// The summary.
    pub summary: usize,
    /// The user's prompts, without the one of a turn that continues.
    pub prompts: usize,
    /// The ledger.
    pub ledger: usize,
}

impl OpeningLimits {
    /// Returns the limits for a threshold.
    ///
    /// ```
    /// use azureal_core::{OpeningLimits, Threshold};
    ///
    /// let usual = OpeningLimits::of(Threshold::default());
    /// assert_eq!((usual.summary, usual.prompts, usual.ledger), (4_000, 20_000, 12_000));
    /// let small = OpeningLimits::of(Threshold::Chars(20_000));
    /// assert!(small.summary + small.prompts + small.ledger <= 5_000);
    /// ```
    pub fn of(threshold: Threshold) -> Self {
        let room = threshold.chars().max(LEAST_THRESHOLD) / 4;
        let all = SUMMARY + PROMPTS + LEDGER;
        let part = |most: u64| usize::try_from(most * room.min(all) / all).unwrap_or(usize::MAX);
        Self { summary: part(SUMMARY), prompts: part(PROMPTS), ledger: part(LEDGER) }
    }

    /// Returns the limits beside a summary of so many characters. One that is longer than its part, from the time of another
    /// threshold, takes the room of the others.
    pub(crate) fn beside(self, summary: usize) -> Self {
        let over = summary.saturating_sub(self.summary);
        let others = self.prompts + self.ledger;
        let left = others.saturating_sub(over);
        Self {
            prompts: self.prompts * left / others.max(1),
            ledger: self.ledger * left / others.max(1),
            ..self
        }
    }

    /// Returns the most characters of a summary: one that was written under another threshold may take all of the room.
    pub(crate) fn longest_summary(self) -> usize {
        self.summary + self.prompts + self.ledger
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_shrink_in_proportion_and_never_below_a_few_lines() {
        let of = |chars| OpeningLimits::of(Threshold::Chars(chars));
        assert_eq!(of(144_000), of(u64::MAX));
        assert_eq!(of(72_000), OpeningLimits { summary: 2_000, prompts: 10_000, ledger: 6_000 });
        assert_eq!(of(20_000), OpeningLimits { summary: 555, prompts: 2_777, ledger: 1_666 });
        assert_eq!(of(1), of(8_000));
        assert_eq!(OpeningLimits::of(Threshold::Tokens(5_000)), of(20_000));
    }

    #[test]
    fn a_summary_that_is_too_long_takes_the_room_of_the_others() {
        let limits = OpeningLimits { summary: 500, prompts: 2_500, ledger: 1_500 };
        assert_eq!(limits.beside(400), limits);
        assert_eq!(limits.beside(1_300), OpeningLimits { prompts: 2_000, ledger: 1_200, ..limits });
        assert_eq!(limits.beside(9_000), OpeningLimits { prompts: 0, ledger: 0, ..limits });
    }
}
