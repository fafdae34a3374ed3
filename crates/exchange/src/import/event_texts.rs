//! The events of an incoming session, read in pieces: a session may be larger than the memory.

use std::fmt;
use std::sync::Arc;

use azureal_core::{NewEvent, PAGE_EVENTS, Page, Seq, SessionId};
use serde_json::Value;

use super::ImportError;
use super::source_store::SourceStore;

/// The largest number of events in a piece.
pub(super) const PIECE_EVENTS: usize = 8192;
/// The number of bytes that ends a piece.
const PIECE_BYTES: usize = 8 << 20;

/// The texts of the readable events of a session.
pub(crate) struct EventTexts {
    pub(crate) count: usize,
    /// The hash over all of them.
    pub(crate) hash: String,
    location: TextLocation,
}

enum TextLocation {
    Memory(Vec<String>),
    Store(Arc<SourceStore>, SessionId),
}

impl fmt::Debug for EventTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventTexts").field("count", &self.count).field("hash", &self.hash).finish()
    }
}

impl EventTexts {
    pub(super) fn in_memory(texts: Vec<String>) -> Self {
        let mut hash = LogHash::default();
        texts.iter().for_each(|text| hash.add(text));
        Self { count: texts.len(), hash: hash.text(), location: TextLocation::Memory(texts) }
    }

    /// Names the first `count` readable events of a stored session.
    pub(super) fn in_store(store: Arc<SourceStore>, id: SessionId, count: usize, hash: &LogHash) -> Self {
        Self { count, hash: hash.text(), location: TextLocation::Store(store, id) }
    }

    /// Returns the store that has the session; `None` if it comes from no store.
    pub(crate) fn stored(&self) -> Option<(&SourceStore, SessionId)> {
        match &self.location {
            TextLocation::Memory(_) => None,
            TextLocation::Store(source, id) => Some((source, *id)),
        }
    }

    /// Returns a reader at the first text.
    pub(crate) fn reader(&self) -> TextReader<'_> {
        TextReader { texts: self, read: 0, hash: LogHash::default(), after: Seq::START }
    }
}

/// Reads texts in their order, and hashes them.
pub(crate) struct TextReader<'a> {
    texts: &'a EventTexts,
    read: usize,
    hash: LogHash,
    /// The last event that was read from a store.
    after: Seq,
}

impl TextReader<'_> {
    /// Returns the number of texts so far.
    pub(crate) fn read(&self) -> usize {
        self.read
    }

    /// Returns the hash over the texts so far.
    pub(crate) fn hash(&self) -> String {
        self.hash.text()
    }

    /// Reads the next piece; empty at the end. Returns an error if the source has fewer events than were counted.
    pub(super) async fn piece(&mut self) -> Result<Vec<NewEvent>, ImportError> {
        let (mut piece, mut bytes) = (Vec::new(), 0);
        while piece.len() < PIECE_EVENTS && bytes < PIECE_BYTES {
            let page = self.page(self.read + PIECE_EVENTS - piece.len()).await?;
            if page.is_empty() {
                break;
            }
            bytes += page.iter().map(|new| new.json().len()).sum::<usize>();
            piece.extend(page);
        }
        if piece.is_empty() && self.read < self.texts.count {
            return Err(ImportError::EventsRemoved);
        }
        Ok(piece)
    }

    /// Skips texts until `count` of them have been read, or all.
    pub(crate) async fn skip_to(&mut self, count: usize) -> Result<(), ImportError> {
        while !self.page(count).await?.is_empty() {}
        Ok(())
    }

    /// Reads the next page, which ends at `until` at the latest; empty at the end.
    async fn page(&mut self, until: usize) -> Result<Vec<NewEvent>, ImportError> {
        let most = until.min(self.texts.count).saturating_sub(self.read).min(PAGE_EVENTS);
        let mut page = Vec::new();
        // All events of a page in a store may be unreadable.
        while page.is_empty() && most > 0 {
            page = match &self.texts.location {
                TextLocation::Memory(texts) => {
                    let texts = texts.iter().skip(self.read).take(most);
                    texts.map(|text| NewEvent::verbatim(text.clone())).collect::<Result<_, _>>()?
                }
                TextLocation::Store(source, id) => {
                    let read = source.store().read(*id, Page::After(self.after, most)).await;
                    let stored = read.map_err(|error| source.error(error))?;
                    let Some(last) = stored.last() else { break };
                    self.after = last.seq;
                    stored
                        .into_iter()
                        .filter_map(|stored| NewEvent::verbatim(stored.json.ok()?).ok())
                        .collect()
                }
            };
        }
        page.iter().for_each(|new| self.hash.add(&new.json()));
        self.read += page.len();
        Ok(page)
    }
}

/// A hash over a list of texts.
#[derive(Default)]
pub(super) struct LogHash(Box<blake3::Hasher>);

impl LogHash {
    /// Adds the text of an event: its value, so that a log that went through a formatter is the same one. A text that cannot be parsed, as one
    /// with half of a character, counts by its bytes.
    pub(super) fn add(&mut self, text: &str) {
        match serde_json::from_str(text) {
            Ok(value) => self.add_text(&canonical(value).to_string()),
            Err(_) => self.add_text(text),
        }
    }

    /// Adds a text by its bytes and its length.
    pub(super) fn add_text(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }

    /// Returns the hash of the texts so far.
    pub(super) fn text(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }
}

/// Returns whether two texts are the same JSON, whatever spaces, escapes, forms of numbers and orders of keys they have.
pub(super) fn is_same_json(one: &str, other: &str) -> bool {
    let value = |text| serde_json::from_str(text).ok().map(canonical);
    one == other || value(one).is_some_and(|one| value(other) == Some(one))
}

/// Orders the keys of a value, and brings its numbers into one form. Depth is bounded by the parser.
fn canonical(value: Value) -> Value {
    /// The greatest float that stands for one whole number alone.
    const LARGEST_WHOLE: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < LARGEST_WHOLE => {
                Value::from(float as i64)
            }
            _ => Value::Number(number),
        },
        Value::Array(values) => Value::Array(values.into_iter().map(canonical).collect()),
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> =
                fields.into_iter().map(|(key, value)| (key, canonical(value))).collect();
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(fields.into_iter().collect())
        }
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::Event;
    use futures_executor::block_on;

    use super::*;

    #[test]
    fn texts_are_hashed_with_their_bounds() {
        let hash = |texts: &[&str]| {
            let mut hash = LogHash::default();
            texts.iter().for_each(|text| hash.add(text));
            hash.text()
        };
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&[""]), hash(&[]));
    }

    #[test]
    fn a_log_is_the_same_whatever_formatted_its_events() {
        let hash = |text: &str| EventTexts::in_memory(vec![text.to_owned()]).hash;
        let text = r#"{"ToolCall":{"tool_name":"é","input":{"b":[1.0,0.1,1e2],"a":null}}}"#;
        for same in [
            "{\n  \"ToolCall\": {\"tool_name\": \"\\u00e9\", \"input\": {\"a\": null, \"b\": [1, 0.10, 100]}}}",
            r#"{"ToolCall":{"input":{"b":[1,1e-1,100.0],"a":null},"tool_name":"é"}}"#,
        ] {
            assert_eq!(hash(same), hash(text), "{same}");
            assert!(is_same_json(same, text));
        }
        for other in [
            text.replace("null", "0"),
            text.replace("[1.0,0.1,", "[0.1,1.0,"),
            text.replace("1e2", "\"100\""),
            text.replace('é', "e"),
            text.replace("1e2", "100.5"),
        ] {
            assert_ne!(hash(&other), hash(text), "{other}");
            assert!(!is_same_json(&other, text));
        }
        let large = |number: &str| hash(&format!(r#"{{"K":{number}}}"#));
        assert_ne!(large("9007199254740993"), large("9007199254740992"));
        // What cannot be parsed is compared by its bytes.
        let half = r#"{"UserMessage":{"content":"\ud83d"}}"#;
        assert_eq!(hash(half), hash(half));
        assert_ne!(hash(half), hash(&half.replace(':', ": ")));
    }

    #[test]
    fn pieces_together_are_the_whole() {
        let texts: Vec<String> =
            (0..PIECE_EVENTS * 2 + 7).map(|n| Event::user(n.to_string()).to_json()).collect();
        let whole = EventTexts::in_memory(texts.clone());
        for begin in [0, 1, PAGE_EVENTS, PIECE_EVENTS + 3, texts.len()] {
            let mut reader = whole.reader();
            block_on(reader.skip_to(begin)).unwrap();
            assert_eq!(
                (reader.read(), reader.hash()),
                (begin, EventTexts::in_memory(texts[..begin].to_vec()).hash)
            );
            let mut rest = Vec::new();
            loop {
                let piece = block_on(reader.piece()).unwrap();
                assert!(piece.len() <= PIECE_EVENTS);
                if piece.is_empty() {
                    break;
                }
                rest.extend(piece.iter().map(|new| new.json().into_owned()));
            }
            assert_eq!(rest, texts[begin..]);
            assert_eq!(reader.hash(), whole.hash);
        }
    }

    #[test]
    fn a_piece_of_large_events_is_a_short_one() {
        let large = Event::user("x".repeat(1 << 16)).to_json();
        let texts = EventTexts::in_memory(vec![large; 600]);
        assert_eq!(block_on(texts.reader().piece()).unwrap().len(), PAGE_EVENTS);
    }
}
