//! An answer as a list of events, which is what both APIs make of one.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::answer::{StreamPosition, Wait};

/// An answer in the format of one API.
pub(super) struct Rendered {
    /// The events for a client that wants a stream.
    pub(super) events: Vec<Event>,
    /// The body for a client that does not.
    pub(super) whole: Value,
}

/// One event of a stream.
pub(super) struct Event {
    name: &'static str,
    data: Value,
    /// The block that it belongs to.
    block: Option<usize>,
    pub(super) wait: Wait,
}

impl Event {
    /// Creates an event that belongs to no block. The name is written into the data too, as both APIs do.
    pub(super) fn new(name: &'static str, mut data: Value) -> Self {
        let mut named = json!({"type": name});
        if let (Value::Object(named), Value::Object(data)) = (&mut named, &mut data) {
            named.append(data);
        }
        Self { name, data: named, block: None, wait: Wait::default() }
    }

    pub(super) fn after(mut self, wait: &Wait) -> Self {
        self.wait = wait.clone();
        self
    }

    pub(super) fn of_block(mut self, block: usize) -> Self {
        self.block = Some(block);
        self
    }

    fn is_delta(&self) -> bool {
        self.name.ends_with("delta")
    }

    /// Returns the event as it goes over the line.
    pub(super) fn line(&self) -> String {
        format!("event: {}\ndata: {}\n\n", self.name, self.data)
    }
}

impl StreamPosition {
    /// Returns the number of events before this place.
    ///
    /// # Panics
    ///
    /// If the answer has no such block: then the test is wrong.
    pub(super) fn position(self, events: &[Event]) -> usize {
        let of_block = |block: usize| -> Vec<usize> {
            let places = events.iter().enumerate().filter(|(_, event)| event.block == Some(block));
            let places: Vec<usize> = places.map(|(at, _)| at).collect();
            assert!(!places.is_empty(), "the answer has no block {block}");
            places
        };
        match self {
            Self::Events(count) => count.min(events.len()),
            Self::AfterBlock(block) => of_block(block).last().map_or(0, |at| at + 1),
            Self::InBlock(block) => {
                let places = of_block(block);
                let deltas: Vec<usize> = places.iter().copied().filter(|at| events[*at].is_delta()).collect();
                // A block without deltas, or with a single one, is still cut after it has begun.
                let last_sent = deltas.get(deltas.len().div_ceil(2).wrapping_sub(1)).unwrap_or(&places[0]);
                last_sent + 1
            }
        }
    }
}

/// Returns an id that no other thing in this process has, nor in another of the same time.
pub(super) fn id(prefix: &str) -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    format!("{prefix}{:08x}{number:016x}", std::process::id())
}
