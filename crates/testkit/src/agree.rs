//! Stores agree: the same operations give the same answers.
//!
//! The contract checks chosen cases. This checks random ones, in two ways: many short sequences of operations on a
//! reference store and on another one, shrunk to the shortest that shows a difference, and one long sequence on any
//! number of stores.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use azureal_core::event::{
    AssistantText, Complete, Init, MessageEvent, ModelSwitch, ToolResult, Usage, UserMessage,
};
use azureal_core::{
    Block, Compaction, Event, ListOrder, ListQuery, NameFilter, NewEvent, NewMark, NewSession, NewTurn, Page,
    Role, Seq, SessionId, SessionRecord, SessionStore, StoreError, Tokens, Uuid, WorktreeFilter,
};
use futures_executor::block_on;
use futures_util::future::join_all;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::session_store::odd_texts;

/// The number of runs, and the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runs {
    /// The number of sequences, each on fresh stores.
    pub cases: u32,
    /// The seed of the random numbers; a random one if `None`.
    pub seed: Option<u64>,
}

impl Runs {
    /// So many sequences, other ones each time.
    pub fn random(cases: u32) -> Self {
        Self { cases, seed: None }
    }

    /// So many sequences, always the same.
    pub fn seeded(cases: u32, seed: u64) -> Self {
        Self { cases, seed: Some(seed) }
    }
}

/// Does the same random operations on two stores and panics if they answer differently, with the shortest sequence
/// that shows it.
///
/// `reference` and `other` create a pair of an empty store and a value that has to outlive it. Session numbers may
/// differ between the two, as a database may leave some out; timestamps are not compared.
///
/// ```text
/// random_operations_agree(
///     || async { (MemoryStore::default(), ()) },
///     || async { (MyStore::open_empty().await, ()) },
///     Runs::random(64),
/// );
/// ```
pub fn random_operations_agree<A, AK, AF, B, BK, BF>(
    reference: impl Fn() -> AF,
    other: impl Fn() -> BF,
    runs: Runs,
) where
    A: SessionStore + 'static,
    B: SessionStore + 'static,
    AF: Future<Output = (A, AK)>,
    BF: Future<Output = (B, BK)>,
{
    let config = Config {
        cases: runs.cases,
        // A failing sequence is printed whole; there is no source file beside which to store it.
        failure_persistence: None,
        rng_seed: runs.seed.map_or(RngSeed::Random, RngSeed::Fixed),
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&vec(operation(), 1..50), |operations| {
        block_on(async {
            let (reference, reference_kept) = reference().await;
            let (other, other_kept) = other().await;
            let mut reference = Side::new(Arc::new(reference));
            let mut other = Side::new(Arc::new(other));
            for operation in &operations {
                let expected = reference.apply(operation).await;
                let answer = other.apply(operation).await;
                prop_assert_eq!(expected, answer, "answers to {:?}", operation);
                prop_assert_eq!(
                    reference.list(&ListQuery::default()).await,
                    other.list(&ListQuery::default()).await,
                    "lists after {:?}",
                    operation
                );
            }
            prop_assert_eq!(reference.describe().await, other.describe().await);
            drop((reference, reference_kept, other, other_kept));
            Ok(())
        })
    });
    if let Err(error) = outcome {
        panic!("the stores do not agree: {error}");
    }
}

/// One long sequence of random operations, always the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence {
    /// The number of operations.
    pub operations: usize,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The number of operations between two comparisons of the stores' lists.
    pub lists_every: usize,
    /// The number of operations between two full comparisons; there is one at the end as well.
    pub all_every: usize,
}

/// Does one random sequence of operations on several empty stores side by side, and panics where one of them
/// answers otherwise than the first or is in another state.
///
/// The stores have names, for the message. As with [`random_operations_agree`], session numbers and timestamps are
/// not compared.
///
/// ```text
/// long_sequence_agrees(
///     &[("memory", Arc::new(MemoryStore::default())), ("mine", Arc::new(my_store))],
///     Sequence { operations: 10_000, seed: 1, lists_every: 100, all_every: 2_000 },
/// );
/// ```
pub fn long_sequence_agrees(stores: &[(&str, Arc<dyn SessionStore>)], sequence: Sequence) {
    let config = Config { rng_seed: RngSeed::Fixed(sequence.seed), ..Config::default() };
    let mut runner = TestRunner::new(config);
    let names: Vec<&str> = stores.iter().map(|(name, _)| *name).collect();
    let mut sides: Vec<Side> = stores.iter().map(|(_, store)| Side::new(Arc::clone(store))).collect();
    let everything = ListQuery::default();
    block_on(async {
        for number in 1..=sequence.operations {
            let operation = operation().new_tree(&mut runner).unwrap().current();
            let after = format!("operation {number}, {operation:?}");
            let answers = join_all(sides.iter_mut().map(|side| side.apply(&operation))).await;
            assert_all_equal(&names, &answers, &format!("answers to {after}"));
            if number % sequence.lists_every == 0 {
                let lists = join_all(sides.iter().map(|side| side.list(&everything))).await;
                assert_all_equal(&names, &lists, &format!("lists after {after}"));
            }
            if number % sequence.all_every == 0 || number == sequence.operations {
                let all = join_all(sides.iter().map(Side::describe)).await;
                assert_all_equal(&names, &all, &format!("states after {after}"));
            }
        }
    });
}

#[track_caller]
fn assert_all_equal<T: PartialEq + fmt::Debug>(names: &[&str], values: &[T], what: &str) {
    for (name, value) in names.iter().zip(values) {
        assert_eq!(*value, values[0], "{name} and {}: {what}", names[0]);
    }
}

/// An operation on a store. The first number chooses the session, see [`Side::id`].
#[derive(Debug, Clone)]
enum Operation {
    Create(NewSession),
    FindOrCreate(NewSession),
    Find(String),
    Rename(usize, String),
    Delete(usize),
    Append(usize, Vec<NewEvent>, Tokens, Option<(String, String)>, Option<String>, Option<String>),
    Read(usize, Page),
    ReadPrompts(usize, Seq, usize),
    List(ListQuery),
    Clear(usize),
    Fork(usize, Seq, NewSession),
    SetTokens(usize, Tokens),
    AddTokens(usize, Tokens),
    AddCompaction(usize, Compaction),
    RemoveCompaction(usize, Seq),
    RemoveMark(String),
}

/// The number of choices of a session: the last two are a deleted one and one that never existed.
const CHOICES: usize = 16;
const MARKS: [&str; 3] = ["m1", "m2", "m\0\u{1F980}"];
const WORKTREES: [&str; 4] = [".", "../feat", "/old/feat", "/old/feat/"];
/// Some that are long ago, whatever clock a store has.
const TIMES: [&str; 3] = ["2024-02-29T12:00:00Z", "2024-02-29T12:00:01Z", "1999-12-31T23:59:59Z"];
const NAMES: [&str; 5] = ["a", "b", "A", "a ", "\u{1F980}"];

fn operation() -> impl Strategy<Value = Operation> {
    use Operation as Op;

    let session = || 0..CHOICES;
    let name = || select(&NAMES[..]).prop_map(str::to_owned);
    let any_name = || {
        prop_oneof![
            6 => name(),
            1 => select(&["", " ", "S1", "s9"][..]).prop_map(str::to_owned),
        ]
    };
    let worktree = || select(&WORKTREES[..]).prop_map(str::to_owned);
    let new = move || {
        (proptest::option::of(any_name()), worktree()).prop_map(|(name, worktree)| NewSession {
            name,
            worktree,
            ..NewSession::default()
        })
    };
    let usable = move || {
        (proptest::option::of(name()), worktree()).prop_map(|(name, worktree)| NewSession {
            name,
            worktree,
            ..NewSession::default()
        })
    };
    let tokens = || {
        let count = || 0..1000_u64;
        (count(), count(), count(), count()).prop_map(|(input, output, cache_read, cache_write)| Tokens {
            input,
            output,
            cache_read,
            cache_write,
        })
    };
    let seq = || {
        prop_oneof![
            12 => (0..9_u64).prop_map(Seq),
            1 => Just(Seq::END),
            1 => Just(Seq(1_000_000)),
        ]
    };
    let mark = || select(&MARKS[..]).prop_map(str::to_owned);
    let limit = || prop_oneof![0..6_usize, Just(usize::MAX)];
    let page = (seq(), limit(), any::<bool>()).prop_map(|(seq, limit, forward)| {
        if forward { Page::After(seq, limit) } else { Page::Before(seq, limit) }
    });
    let filter = || Just(WorktreeFilter { names: vec!["../feat".to_owned()], last_part: "feat".to_owned() });
    let by_name = || {
        // Whole names, and their beginnings.
        (select(&NAMES[..]), 0..4_usize).prop_map(|(name, cut)| match cut {
            0 => NameFilter::Exact(name.to_owned()),
            cut => NameFilter::Prefix(name.chars().take(name.chars().count() / cut).collect()),
        })
    };
    let query = (
        proptest::option::of(filter()),
        proptest::option::weighted(0.3, by_name()),
        select(&[ListOrder::Activity, ListOrder::Changes][..]),
        proptest::option::of(limit()),
    )
        .prop_map(|(worktree, name, order, limit)| ListQuery { worktree, name, order, limit });
    prop_oneof![
        4 => new().prop_map(Op::Create),
        2 => new().prop_map(Op::FindOrCreate),
        1 => any_name().prop_map(Op::Find),
        1 => (session(), any_name()).prop_map(|(session, name)| Op::Rename(session, name)),
        1 => session().prop_map(Op::Delete),
        8 => (
            session(),
            vec(event(), 0..5),
            tokens(),
            proptest::option::of((mark(), text())),
            proptest::option::of(worktree()),
            proptest::option::weighted(0.3, select(&TIMES[..]).prop_map(str::to_owned)),
        )
            .prop_map(|(session, events, tokens, mark, used_in, happened_at)| {
                Op::Append(session, events, tokens, mark, used_in, happened_at)
            }),
        2 => (session(), page).prop_map(|(session, page)| Op::Read(session, page)),
        2 => (session(), seq(), limit())
            .prop_map(|(session, until, limit)| Op::ReadPrompts(session, until, limit)),
        1 => query.prop_map(Op::List),
        1 => session().prop_map(Op::Clear),
        3 => (session(), seq(), usable()).prop_map(|(session, at, new)| Op::Fork(session, at, new)),
        1 => (session(), tokens()).prop_map(|(session, tokens)| Op::SetTokens(session, tokens)),
        1 => (session(), tokens()).prop_map(|(session, tokens)| Op::AddTokens(session, tokens)),
        3 => (session(), seq(), text(), proptest::option::of(text()), proptest::option::of(0..9_u64))
            .prop_map(|(session, seq, text, writer, opening_chars)| {
                let compaction = Compaction { writer, opening_chars, ..Compaction::new(seq, text) };
                Op::AddCompaction(session, compaction)
            }),
        1 => (session(), seq()).prop_map(|(session, seq)| Op::RemoveCompaction(session, seq)),
        1 => mark().prop_map(Op::RemoveMark),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        vec(any::<char>(), 0..8).prop_map(String::from_iter),
        select(odd_texts()),
        Just("long ".repeat(40)),
    ]
}

fn event() -> impl Strategy<Value = NewEvent> {
    let starts = || proptest::option::of(any::<bool>());
    let known = prop_oneof![
        (text(), starts()).prop_map(|(content, starts)| Event::UserMessage(UserMessage { content, starts })),
        (text(), starts(), proptest::option::of(text())).prop_map(|(text, starts, subagent)| {
            Event::AssistantText(AssistantText { text, starts, subagent })
        }),
        (text(), starts()).prop_map(|(content, starts)| {
            Event::ToolResult(ToolResult { content, starts, ..ToolResult::default() })
        }),
        // Quarters add up exactly, in any order and form.
        (any::<bool>(), 0..100_u64, 0..8_u8, proptest::option::of(0..9_u64)).prop_map(
            |(success, duration_ms, quarters, context_tokens)| {
                Event::Complete(Complete {
                    success,
                    duration_ms,
                    cost_usd: f64::from(quarters) / 4.0,
                    usage: Some(Usage { context_tokens, ..Usage::default() }),
                    ..Complete::default()
                })
            }
        ),
        (text(), proptest::option::of(text()), proptest::option::of(text())).prop_map(
            |(model, agent, requested_model)| {
                Event::Init(Init { model, agent, requested_model, ..Init::default() })
            }
        ),
        (text(), proptest::option::of(text()))
            .prop_map(|(model, agent)| Event::ModelSwitch(ModelSwitch { model, agent })),
        (select(&Role::ALL[..]), vec(text().prop_map(Block::text), 0..3))
            .prop_map(|(role, content)| Event::Message(MessageEvent { role, content })),
        text().prop_map(|message| Event::error("kind", message)),
        Just(Event::Compacting),
    ];
    let texts = [
        r#"{"Telemetry": {"cpu": 0.50}}"#,
        " \"Bare\"\n",
        r#"{ "UserMessage": {"content": "\u0041", "new": 1} }"#,
    ];
    let verbatim =
        select(texts.to_vec()).prop_filter_map("an event", |text| NewEvent::verbatim(text.to_owned()).ok());
    prop_oneof![6 => known.prop_map(NewEvent::from), 1 => verbatim]
}

/// One of the stores, and how its session numbers are called here.
struct Side {
    store: Arc<dyn SessionStore>,
    /// Every session, in the order of creation.
    made: Vec<SessionId>,
    /// Those that still exist, in that order.
    living: Vec<SessionId>,
    /// The one that was deleted last.
    deleted: Option<SessionId>,
}

/// The answer of a store, with the numbers of sessions replaced by their order of creation.
#[derive(PartialEq)]
struct Said(String);

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Side {
    fn new(store: Arc<dyn SessionStore>) -> Self {
        Self { store, made: Vec::new(), living: Vec::new(), deleted: None }
    }

    /// Returns the session of a choice below [`CHOICES`]; a number without a session if there is none.
    fn id(&self, choice: usize) -> SessionId {
        let chosen = match CHOICES - choice {
            1 => None,
            2 => self.deleted,
            // Mostly one that is there, or little would ever happen.
            _ => self.living.iter().cycle().nth(choice).copied(),
        };
        chosen.unwrap_or_else(|| SessionId::new(1_999_999_999).unwrap())
    }

    fn place(&self, id: SessionId) -> String {
        let place = self.made.iter().position(|made| *made == id);
        place.map_or_else(|| "unknown".to_owned(), |place| format!("#{place}"))
    }

    async fn apply(&mut self, operation: &Operation) -> Said {
        let store = Arc::clone(&self.store);
        match operation.clone() {
            Operation::Create(new) => {
                let answer = store.create(new).await;
                self.say_made(answer)
            }
            Operation::FindOrCreate(new) => {
                let answer = store.find_or_create(new).await;
                self.say_made(answer)
            }
            Operation::Fork(session, at, new) => {
                let answer = store.fork(self.id(session), at, new).await;
                self.say_made(answer)
            }
            Operation::Find(name) => {
                let answer = store.find(&name).await;
                self.say(answer.map(|found| self.places(&found)))
            }
            Operation::Rename(session, name) => {
                // Of two faults either may be returned.
                if store.get(self.id(session)).await.is_err() {
                    return Said("skipped".to_owned());
                }
                self.say(store.rename(self.id(session), &name).await)
            }
            Operation::Delete(session) => {
                let id = self.id(session);
                let answer = store.delete(id).await;
                if answer.is_ok() {
                    self.living.retain(|living| *living != id);
                    self.deleted = Some(id);
                }
                self.say(answer)
            }
            Operation::Append(session, events, tokens, mark, used_in, happened_at) => {
                let mark = mark.map(|(name, note)| NewMark { name, note });
                let turn = NewTurn { events, tokens, mark, used_in, happened_at, ..NewTurn::default() };
                self.say(store.append(self.id(session), turn).await)
            }
            Operation::Read(session, page) => self.say(store.read(self.id(session), page).await),
            Operation::ReadPrompts(session, until, limit) => {
                self.say(store.read_prompts(self.id(session), until, limit).await)
            }
            Operation::List(query) => self.list(&query).await,
            Operation::Clear(session) => self.say(store.clear(self.id(session)).await),
            Operation::SetTokens(session, tokens) => {
                self.say(store.set_tokens(self.id(session), tokens).await)
            }
            Operation::AddTokens(session, tokens) => {
                self.say(store.add_tokens(self.id(session), tokens).await)
            }
            Operation::AddCompaction(session, compaction) => {
                self.say(store.add_compaction(self.id(session), &compaction).await)
            }
            Operation::RemoveCompaction(session, seq) => {
                self.say(store.remove_compaction(self.id(session), seq).await)
            }
            Operation::RemoveMark(name) => self.say(store.remove_mark(&name).await),
        }
    }

    fn say<T: fmt::Debug>(&self, answer: Result<T, StoreError>) -> Said {
        Said(match answer {
            Ok(value) => format!("{value:?}"),
            Err(StoreError::NoSuchSession(id)) => format!("no session {}", self.place(id)),
            Err(StoreError::NoSuchEvent { session, seq, last }) => {
                format!("no event {seq} in {}, the last is {last}", self.place(session))
            }
            Err(StoreError::UnusableName(name)) => format!("unusable name {name:?}"),
            Err(error) => format!("{}: {error}", error.kind()),
        })
    }

    /// Tells of an answer that is a session, perhaps a new one.
    fn say_made(&mut self, answer: Result<SessionId, StoreError>) -> Said {
        if let Ok(id) = &answer
            && !self.made.contains(id)
        {
            self.made.push(*id);
            self.living.push(*id);
        }
        self.say(answer.map(|id| self.place(id)))
    }

    fn places(&self, ids: &[SessionId]) -> Vec<String> {
        ids.iter().map(|id| self.place(*id)).collect()
    }

    async fn list(&self, query: &ListQuery) -> Said {
        let answer = self.store.list(query).await;
        let records = |records: Vec<SessionRecord>| -> Vec<String> {
            records.into_iter().map(|record| self.tell(record)).collect()
        };
        self.say(answer.map(records))
    }

    fn tell(&self, mut record: SessionRecord) -> String {
        let place = self.place(record.id);
        if record.name == record.id.to_string() {
            record.name = "its number".to_owned();
        }
        (record.created_at, record.last_active, record.named_at) =
            (String::new(), String::new(), String::new());
        // Random, so that only its presence can be compared.
        record.uuid = record.uuid.map(|_| Uuid::nil());
        record.forked_from = record.forked_from.map(|_| Uuid::nil());
        // The number itself may differ.
        let told = format!("{record:?}");
        told.replacen(&format!("{:?}", record.id), &place, 1)
    }

    /// Tells everything that can be asked of the store.
    async fn describe(&self) -> BTreeMap<String, Said> {
        let mut all = BTreeMap::new();
        all.insert("their number".to_owned(), self.say(self.store.count().await));
        for id in &self.made {
            let place = self.place(*id);
            let get = self.store.get(*id).await.map(|record| self.tell(record));
            all.insert(format!("{place} itself"), self.say(get));
            let events = self.store.read(*id, Page::After(Seq::START, 10_000)).await;
            all.insert(format!("{place} events"), self.say(events));
            let compactions = self.store.compactions(*id).await.map(|compactions| {
                let timeless = |each| Compaction { created_at: String::new(), ..each };
                compactions.into_iter().map(timeless).collect::<Vec<_>>()
            });
            all.insert(format!("{place} compactions"), self.say(compactions));
        }
        for name in NAMES {
            let found = self.store.find(name).await.map(|found| self.places(&found));
            all.insert(format!("called {name:?}"), self.say(found));
        }
        for worktree in WORKTREES {
            let last = self.store.last_used(worktree).await.map(|id| id.map(|id| self.place(id)));
            all.insert(format!("last used in {worktree:?}"), self.say(last));
        }
        for name in MARKS {
            let mark = self.store.mark(name).await;
            let mark = mark.map(|mark| mark.map(|mark| (self.place(mark.session), mark.note)));
            all.insert(format!("mark {name:?}"), self.say(mark));
        }
        all
    }
}
