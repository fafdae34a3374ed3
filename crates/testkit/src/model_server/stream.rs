//! An answer as a list of events, which is what every API makes of one.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::answer::{Answer, StreamPosition, Wait};

/// The form of answers and errors in one API.
pub(super) struct Format {
    /// An answer of this model.
    pub(super) render: fn(&Answer, &str) -> Rendered,
    /// The body of a refusal, by its status and message.
    pub(super) error_body: fn(u16, &str) -> Value,
    /// An error in a stream, by its type and message.
    pub(super) error_event: fn(&str, &str) -> Event,
}

/// An answer in the format of one API.
pub(super) struct Rendered {
    /// The events for a client that wants a stream.
    pub(super) events: Vec<Event>,
    /// The body for a client that does not.
    pub(super) whole: Value,
}

/// One event of a stream.
pub(super) struct Event {
    /// `None` in the APIs that name no events.
    name: Option<&'static str>,
    data: String,
    /// Whether it carries a part of a block.
    is_delta: bool,
    /// The block that it belongs to.
    block: Option<usize>,
    pub(super) wait: Wait,
}

impl Event {
    /// Creates an event that belongs to no block. The name is written into the data too, as the APIs that name
    /// events do.
    pub(super) fn new(name: &'static str, mut data: Value) -> Self {
        let mut named = json!({"type": name});
        if let (Value::Object(named), Value::Object(data)) = (&mut named, &mut data) {
            named.append(data);
        }
        let is_delta = name.ends_with("delta");
        Self { name: Some(name), is_delta, ..Self::text(named.to_string()) }
    }

    /// Creates an event without a name that belongs to no block.
    pub(super) fn unnamed(data: &Value) -> Self {
        Self::text(data.to_string())
    }

    /// Creates an event whose data is this text, which need not be JSON.
    pub(super) fn text(data: impl Into<String>) -> Self {
        Self { name: None, data: data.into(), is_delta: false, block: None, wait: Wait::default() }
    }

    /// Marks an event without a name as one that carries a part of a block.
    pub(super) fn delta(mut self) -> Self {
        self.is_delta = true;
        self
    }

    pub(super) fn after(mut self, wait: &Wait) -> Self {
        self.wait = wait.clone();
        self
    }

    pub(super) fn of_block(mut self, block: usize) -> Self {
        self.block = Some(block);
        self
    }

    /// Returns the event as it goes over the line.
    pub(super) fn line(&self) -> String {
        let name = self.name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        format!("{name}data: {}\n\n", self.data)
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
                let deltas: Vec<usize> = places.iter().copied().filter(|at| events[*at].is_delta).collect();
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
