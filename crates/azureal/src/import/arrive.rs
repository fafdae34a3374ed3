//! The last step of an import: into the store, once.
//!
//! What was imported from where is remembered as a mark, set in the same transaction as the events: how many
//! there were and what they hash to. A second import finds it and changes nothing. A source that has grown
//! continues its session, as long as nobody else has. Anything else is another session, and gets the next
//! free mark of that origin: two files that say they are the same session can be imported again and again,
//! in any order, without one pushing out the other.

use azureal_core::{
    NewEvent, NewMark, NewSession, Page, Seq, SessionId, SessionStore, StoreError, Tokens, Turn, check_name,
    normal_timestamp,
};
use serde::{Deserialize, Serialize};

use super::Arrival;
use crate::failure::{Failure, quoted};

/// How many events of the store are read at a time.
const PAGE: usize = 512;

/// What became of a session that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is a new session of so many events.
    New(SessionId, usize),
    /// It had been imported before, and so many events are new.
    Continued(SessionId, usize),
    /// It had been imported before, all of it.
    Unchanged(SessionId),
}

/// What a mark remembers of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    events: usize,
    hash: String,
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
}

/// Puts a session into the store, unless it is there.
pub(crate) async fn arrive(
    store: &dyn SessionStore,
    worktree: &str,
    arrival: &mut Arrival,
) -> Result<Outcome, Failure> {
    let note = Note {
        events: arrival.events.len(),
        hash: hash(&arrival.events),
        input_tokens: arrival.tokens.input,
        output_tokens: arrival.tokens.output,
    };
    let mut copy: u64 = 1;
    loop {
        let name = match copy {
            1 => format!("import:{}", arrival.origin),
            copy => format!("import:{}#{copy}", arrival.origin),
        };
        match compare(store, &name, arrival, &note).await? {
            Found::Nothing => {
                return create(store, worktree, arrival, NewMark { name, note: text(&note)? }).await;
            }
            Found::All(id) => return Ok(Outcome::Unchanged(id)),
            Found::Beginning(id, old) => {
                return go_on(store, id, arrival, &old, NewMark { name, note: text(&note)? }).await;
            }
            Found::Another => copy += 1,
        }
    }
}

/// What a mark says about an arrival.
enum Found {
    /// No session has this mark.
    Nothing,
    /// The session that has it holds all of this.
    All(SessionId),
    /// The session that has it holds the beginning of this, and nothing else.
    Beginning(SessionId, Note),
    /// The session that has it is another one.
    Another,
}

async fn compare(
    store: &dyn SessionStore,
    mark: &str,
    arrival: &Arrival,
    note: &Note,
) -> Result<Found, Failure> {
    let Some(mark) = store.mark(mark).await? else {
        return Ok(Found::Nothing);
    };
    let id = mark.session;
    let record = match store.get(id).await {
        Err(StoreError::NoSuchSession(_)) => return Ok(Found::Nothing),
        record => record?,
    };
    let Ok(old) = serde_json::from_str::<Note>(&mark.note) else {
        return Ok(Found::Another);
    };
    if (old.events, &old.hash) == (note.events, &note.hash) {
        return Ok(Found::All(id));
    }
    if note.events <= old.events {
        // An older state of the source: all of it is there if the session begins with it.
        let is_there = stored_hash(store, id, note.events).await? == Some(note.hash.clone());
        return Ok(if is_there { Found::All(id) } else { Found::Another });
    }
    let is_beginning = arrival.events.get(..old.events).is_some_and(|beginning| hash(beginning) == old.hash);
    let untouched = record.counts.events == old.events as u64
        && stored_hash(store, id, old.events).await?.as_ref() == Some(&old.hash);
    Ok(if is_beginning && untouched { Found::Beginning(id, old) } else { Found::Another })
}

/// Brings a time of another program into the form that is stored; nothing if it is no time.
fn to_the_second(time: &str) -> Option<String> {
    let time: jiff::Timestamp = normal_timestamp(time).parse().ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

async fn create(
    store: &dyn SessionStore,
    worktree: &str,
    arrival: &mut Arrival,
    mark: NewMark,
) -> Result<Outcome, Failure> {
    if let Some(name) = arrival.name.take_if(|name| check_name(name).is_err()) {
        let problem = format!("{} cannot be the name of a session; it has none now", quoted(&name));
        arrival.problems.push(problem);
    }
    let created_at = arrival.created_at.as_deref().and_then(to_the_second);
    let new = NewSession {
        created_at,
        name: arrival.name.clone(),
        worktree: arrival.worktree.clone().unwrap_or_else(|| worktree.to_owned()),
    };
    let id = store.create(new).await?;
    let turn = Turn { events: new_events(&arrival.events)?, tokens: arrival.tokens, mark: Some(mark) };
    if let Err(error) = store.append(id, turn).await {
        // An import is whole or not at all. If this fails too, an empty session is left, and the next
        // import does not mind it.
        drop(store.delete(id).await);
        return Err(error.into());
    }
    add_compactions(store, id, arrival).await?;
    Ok(Outcome::New(id, arrival.events.len()))
}

async fn go_on(
    store: &dyn SessionStore,
    id: SessionId,
    arrival: &Arrival,
    old: &Note,
    mark: NewMark,
) -> Result<Outcome, Failure> {
    let tail = arrival.events.get(old.events..).unwrap_or(&[]);
    let turn = Turn {
        events: new_events(tail)?,
        tokens: Tokens {
            input: arrival.tokens.input.saturating_sub(old.input_tokens),
            output: arrival.tokens.output.saturating_sub(old.output_tokens),
        },
        mark: Some(mark),
    };
    store.append(id, turn).await?;
    add_compactions(store, id, arrival).await?;
    Ok(Outcome::Continued(id, tail.len()))
}

async fn add_compactions(store: &dyn SessionStore, id: SessionId, arrival: &Arrival) -> Result<(), Failure> {
    if arrival.compactions.is_empty() {
        return Ok(());
    }
    let known = store.compactions(id).await?;
    for summary in &arrival.compactions {
        let after = Seq(summary.covers as u64);
        if after > Seq::START && known.iter().all(|known| known.after_seq != after) {
            store.add_compaction(id, after, &summary.text).await?;
        }
    }
    Ok(())
}

fn new_events(texts: &[String]) -> Result<Vec<NewEvent>, Failure> {
    texts
        .iter()
        .map(|text| {
            NewEvent::verbatim(text.clone())
                .map_err(|error| Failure::new("broken", format!("an event cannot be read: {error}")))
        })
        .collect()
}

fn text(note: &Note) -> Result<String, Failure> {
    crate::output::to_json(note)
}

/// Returns one hash for a list of texts; where one ends and the next begins counts.
fn hash<T: AsRef<str>>(texts: &[T]) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        add_to_hash(&mut hasher, text.as_ref());
    }
    hasher.finalize().to_hex().to_string()
}

fn add_to_hash(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

/// Returns the hash of the first events of a session; nothing if there are fewer, or one cannot be read.
async fn stored_hash(
    store: &dyn SessionStore,
    id: SessionId,
    count: usize,
) -> Result<Option<String>, Failure> {
    let mut hasher = blake3::Hasher::new();
    let (mut after, mut left) = (Seq::START, count);
    while left > 0 {
        let page = store.read(id, Page::After(after, left.min(PAGE))).await?;
        let Some(last) = page.last() else {
            return Ok(None);
        };
        after = last.seq;
        left = left.saturating_sub(page.len());
        for stored in &page {
            match &stored.json {
                Ok(json) => add_to_hash(&mut hasher, json),
                Err(_) => return Ok(None),
            }
        }
    }
    Ok(Some(hasher.finalize().to_hex().to_string()))
}

#[cfg(test)]
mod tests {
    use azureal_core::{Event, SessionRecord, append_events};
    use azureal_store::MemoryStore;
    use futures_executor::block_on;

    use super::*;

    fn arrival(texts: &[&str]) -> Arrival {
        Arrival {
            source: "test".into(),
            origin: "test:1".into(),
            name: Some("n".into()),
            worktree: None,
            created_at: None,
            events: texts.iter().map(|text| Event::user(*text).to_json()).collect(),
            compactions: Vec::new(),
            tokens: Tokens { input: texts.len() as u64 * 10, output: 0 },
            problems: Vec::new(),
        }
    }

    struct Bench(MemoryStore);

    impl Bench {
        fn import(&self, texts: &[&str]) -> Outcome {
            block_on(arrive(&self.0, ".", &mut arrival(texts))).unwrap()
        }

        fn get(&self, id: SessionId) -> SessionRecord {
            block_on(self.0.get(id)).unwrap()
        }
    }

    fn id(number: u32) -> SessionId {
        SessionId::new(number).unwrap()
    }

    #[test]
    fn the_same_thing_twice_changes_nothing() {
        let bench = Bench(MemoryStore::default());
        assert_eq!(bench.import(&["a", "b"]), Outcome::New(id(1), 2));
        assert_eq!(bench.import(&["a", "b"]), Outcome::Unchanged(id(1)));
        // An older state of the same source brings nothing either.
        assert_eq!(bench.import(&["a"]), Outcome::Unchanged(id(1)));
        assert_eq!(bench.import(&[]), Outcome::Unchanged(id(1)));
    }

    #[test]
    fn a_source_that_has_grown_continues_its_session() {
        let bench = Bench(MemoryStore::default());
        bench.import(&["a"]);
        assert_eq!(bench.import(&["a", "b", "c"]), Outcome::Continued(id(1), 2));
        assert_eq!(bench.import(&["a", "b", "c"]), Outcome::Unchanged(id(1)));
        let record = bench.get(id(1));
        assert_eq!((record.counts.events, record.tokens.input), (3, 30));
    }

    #[test]
    fn a_session_that_went_on_here_is_left_alone() {
        let bench = Bench(MemoryStore::default());
        bench.import(&["a"]);
        block_on(append_events(&bench.0, id(1), [Event::user("mine")])).unwrap();
        assert_eq!(bench.import(&["a"]), Outcome::Unchanged(id(1)));
        assert_eq!(bench.import(&["a", "b"]), Outcome::New(id(2), 2));
        assert_eq!(bench.import(&["a", "b"]), Outcome::Unchanged(id(2)));
        assert_eq!(bench.import(&["a", "b", "c"]), Outcome::Continued(id(2), 1));
        assert_eq!(bench.get(id(1)).counts.events, 2);
    }

    #[test]
    fn two_sources_of_one_origin_do_not_push_each_other_out() {
        let bench = Bench(MemoryStore::default());
        assert_eq!(bench.import(&["x", "1"]), Outcome::New(id(1), 2));
        assert_eq!(bench.import(&["x", "2"]), Outcome::New(id(2), 2));
        assert_eq!(bench.import(&["x", "1"]), Outcome::Unchanged(id(1)));
        assert_eq!(bench.import(&["x", "2"]), Outcome::Unchanged(id(2)));
    }

    #[test]
    fn what_was_deleted_can_be_imported_again() {
        let bench = Bench(MemoryStore::default());
        bench.import(&["a"]);
        block_on(bench.0.delete(id(1))).unwrap();
        assert_eq!(bench.import(&["a"]), Outcome::New(id(2), 1));
        assert_eq!(bench.import(&["a"]), Outcome::Unchanged(id(2)));
    }

    #[test]
    fn texts_are_hashed_with_their_bounds() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&[""]), hash::<&str>(&[]));
    }
}
