//! The events of an arrival, a piece at a time: a session may be longer than memory is large.

use std::sync::Arc;

use azureal_core::event::EventError;
use azureal_core::{NewEvent, Page, Seq, SessionId};

use super::stored::SourceStore;
use crate::failure::Failure;
use azureal_core::PAGE_EVENTS as PAGE;

/// How many events go into a store at a time, and are in memory.
pub(super) const PIECE_EVENTS: usize = 8192;
/// How large a piece may become, in bytes, before it is one.
const PIECE_BYTES: usize = 8 << 20;

/// The texts of the events of a session; each of them can be read.
pub(super) struct Texts {
    pub(super) count: usize,
    /// What all of them hash to.
    pub(super) hash: String,
    kept: Kept,
}

/// Where the texts are.
enum Kept {
    AtHand(Vec<String>),
    InStore(Arc<SourceStore>, SessionId),
}

impl Texts {
    pub(super) fn at_hand(texts: Vec<String>) -> Self {
        let mut hash = Hash::default();
        texts.iter().for_each(|text| hash.add(text));
        Self { count: texts.len(), hash: hash.text(), kept: Kept::AtHand(texts) }
    }

    /// Takes the first `count` events of a stored session that can be read.
    pub(super) fn in_store(store: Arc<SourceStore>, id: SessionId, count: usize, hash: &Hash) -> Self {
        Self { count, hash: hash.text(), kept: Kept::InStore(store, id) }
    }

    /// Begins to read them.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { texts: self, read: 0, hash: Hash::default(), after: Seq::START }
    }
}

/// Reads texts in their order, and knows what those so far hash to.
pub(super) struct Reader<'a> {
    texts: &'a Texts,
    read: usize,
    hash: Hash,
    /// The last event that was read, where they are in a store.
    after: Seq,
}

impl Reader<'_> {
    /// Returns how many have been read.
    pub(super) fn read(&self) -> usize {
        self.read
    }

    /// Returns what those that have been read hash to.
    pub(super) fn hash(&self) -> String {
        self.hash.text()
    }

    /// Reads the next piece, which is empty at the end.
    ///
    /// A source that has lost events since they were counted is an error.
    pub(super) async fn piece(&mut self) -> Result<Vec<NewEvent>, Failure> {
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
            return Err(Failure::new("conflict", "its events were removed while they were read")
                .with_hint("do it again; nothing is there twice"));
        }
        Ok(piece)
    }

    /// Passes over the texts until `count` of them have been read, or all.
    pub(super) async fn skip_to(&mut self, count: usize) -> Result<(), Failure> {
        while !self.page(count).await?.is_empty() {}
        Ok(())
    }

    /// Reads on, a page at most and not beyond the first `until`; an empty page is the end.
    async fn page(&mut self, until: usize) -> Result<Vec<NewEvent>, Failure> {
        let most = until.min(self.texts.count).saturating_sub(self.read).min(PAGE);
        let mut page = Vec::new();
        // A page of a store may hold nothing but events that cannot be read.
        while page.is_empty() && most > 0 {
            page = match &self.texts.kept {
                Kept::AtHand(texts) => {
                    let texts = texts.iter().skip(self.read).take(most);
                    texts
                        .map(|text| NewEvent::verbatim(text.clone()))
                        .collect::<Result<_, _>>()
                        .map_err(|error| broken(&error))?
                }
                Kept::InStore(source, id) => {
                    let read = source.store().read(*id, Page::After(self.after, most)).await;
                    let stored = read.map_err(|error| source.failure(error))?;
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

fn broken(error: &EventError) -> Failure {
    Failure::new("broken", format!("an event cannot be read: {error}"))
}

/// One hash for a list of texts; where one ends and the next begins counts.
#[derive(Default)]
pub(super) struct Hash(Box<blake3::Hasher>);

impl Hash {
    pub(super) fn add(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }

    /// Returns the hash of the texts so far.
    pub(super) fn text(&self) -> String {
        self.0.finalize().to_hex().to_string()
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
            let mut hash = Hash::default();
            texts.iter().for_each(|text| hash.add(text));
            hash.text()
        };
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&[""]), hash(&[]));
    }

    #[test]
    fn pieces_together_are_the_whole() {
        let texts: Vec<String> =
            (0..PIECE_EVENTS * 2 + 7).map(|n| Event::user(n.to_string()).to_json()).collect();
        let whole = Texts::at_hand(texts.clone());
        for begin in [0, 1, PAGE, PIECE_EVENTS + 3, texts.len()] {
            let mut reader = whole.reader();
            block_on(reader.skip_to(begin)).unwrap();
            assert_eq!((reader.read(), reader.hash()), (begin, Texts::at_hand(texts[..begin].to_vec()).hash));
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
        let texts = Texts::at_hand(vec![large; 600]);
        assert_eq!(block_on(texts.reader().piece()).unwrap().len(), PAGE);
    }
}
