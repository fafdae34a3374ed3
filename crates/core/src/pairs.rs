//! Tool calls and their results as pairs, so that no cut goes between the two.

use std::collections::HashMap;

/// The pairs of a history; its parts are looked at in their order.
///
/// A result belongs to the newest call of its id before it; ids may be used again. A result without a call
/// and a call without a result are no pair.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    calls: HashMap<String, usize>,
    /// The calls without a result.
    open: HashMap<String, usize>,
    /// From the call to its result.
    spans: Vec<(usize, usize)>,
}

impl Pairs {
    /// A tool is called in part `index`.
    pub(crate) fn call(&mut self, index: usize, id: &str) {
        self.calls.insert(id.to_owned(), index);
        self.open.insert(id.to_owned(), index);
    }

    /// A tool answers in part `index`.
    pub(crate) fn result(&mut self, index: usize, id: &str) {
        if let Some(call) = self.calls.get(id) {
            self.spans.push((*call, index));
            self.open.remove(id);
        }
    }

    /// Returns the first part from `index` on that holds a call without a result.
    pub(crate) fn first_open(&self, index: usize) -> Option<usize> {
        self.open.values().copied().filter(|call| *call >= index).min()
    }

    /// Returns the nearest cut at or before `cut` that parts no pair. A cut at 3 leaves the parts 0, 1 and 2
    /// on one side.
    pub(crate) fn cut_before(&self, cut: usize) -> usize {
        self.settle(cut, |(call, _)| call)
    }

    /// Returns the nearest cut at or after `cut` that parts no pair.
    pub(crate) fn cut_after(&self, cut: usize) -> usize {
        self.settle(cut, |(_, result)| result + 1)
    }

    fn settle(&self, mut cut: usize, leave: impl Fn((usize, usize)) -> usize) -> usize {
        // Pairs overlap when tools run at once, so leaving one may lead into the next.
        while let Some(parted) = self.spans.iter().find(|(call, result)| *call < cut && cut <= *result) {
            cut = leave(*parted);
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_leaves_every_pair_whole() {
        let mut pairs = Pairs::default();
        // 0: call a, 1: call b, 2: result a, 3: call a again, 4: result b, 5: result a, 6: result of nobody.
        pairs.call(0, "a");
        pairs.call(1, "b");
        pairs.result(2, "a");
        pairs.call(3, "a");
        pairs.result(4, "b");
        pairs.result(5, "a");
        pairs.result(6, "c");
        for (cut, before, after) in [(0, 0, 0), (1, 0, 6), (3, 0, 6), (5, 0, 6), (6, 6, 6), (7, 7, 7)] {
            assert_eq!((pairs.cut_before(cut), pairs.cut_after(cut)), (before, after), "{cut}");
        }
    }
}
