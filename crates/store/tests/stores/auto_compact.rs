//! Conversations that keep themselves short, over every store there is here.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use azureal_core::event::MessageEvent;
use azureal_core::{
    AutoCompactStore, Block, CompactError, Compaction, ContextStore, Event, Json, MemoryContextStore,
    Message, NewSession, NewTurn, Page, Role, Seq, SessionContext, SessionStore, StubTransport, read_context,
};
use azureal_store::MemoryStore;
use azureal_store::sqlite::{Journal, SqliteOptions, SqliteStore, Work};
use azureal_testkit::{context_store_contract, thorough};
use futures_executor::block_on;
use tempfile::TempDir;

/// Wraps a store so that it compacts at the slightest use, if it is given answers.
fn auto<C: ContextStore>(inner: C, answers: usize) -> AutoCompactStore<C> {
    let answers = (1..=answers).map(|number| format!("summary {number}"));
    AutoCompactStore::new(inner, Arc::new(StubTransport::new(answers))).max_tokens(10).keep_recent(4)
}

fn in_memory() -> SessionContext<MemoryStore> {
    SessionContext::open(Arc::new(MemoryStore::default()), "my-session").unwrap()
}

fn sqlite() -> (Arc<SqliteStore>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    // One sync per message instead of five: thousands are written here.
    let options =
        SqliteOptions { work: Work::WhereCalled, journal: Journal::Wal, ..SqliteOptions::default() };
    (Arc::new(SqliteStore::open(folder.path().join("sessions.azs"), options).unwrap()), folder)
}

context_store_contract!(auto_over_memory_context, async { (auto(MemoryContextStore::default(), 0), ()) });

context_store_contract!(auto_over_session_of_memory, async { (auto(in_memory(), 0), ()) });

context_store_contract!(auto_over_sqlite, async {
    let (store, folder) = sqlite();
    (auto(SessionContext::open(store, "my-session").unwrap(), 0), folder)
});

context_store_contract!(fork_of_auto, async { (auto(in_memory(), 0).fork().await.unwrap(), ()) });

/// Runs a test on each store.
fn on_every_store(test: impl Fn(AutoCompactStore<Box<dyn ContextStore>>)) {
    let (store, _folder) = sqlite();
    let inners: [Box<dyn ContextStore>; 3] = [
        Box::new(MemoryContextStore::default()),
        Box::new(in_memory()),
        Box::new(SessionContext::open(store, "my-session").unwrap()),
    ];
    for inner in inners {
        test(auto(inner, 3));
    }
}

fn numbered(numbers: std::ops::Range<usize>) -> Vec<Message> {
    let message = |number: usize| match number % 2 {
        0 => Message::user(format!("<{number}>")),
        _ => Message::assistant(format!("<{number}>")),
    };
    numbers.map(message).collect()
}

async fn append(store: &dyn ContextStore, messages: Vec<Message>) {
    for message in messages {
        store.append(message).await.unwrap();
    }
}

#[test]
fn a_system_message_is_there_exactly_once_however_often_it_is_compacted() {
    on_every_store(|store| {
        block_on(async {
            store.append(Message::system("be kind")).await.unwrap();
            append(&store, numbered(0..10)).await;
            store.add_context_tokens(11, 1).await.unwrap();
            append(&store, numbered(10..20)).await;
            store.add_context_tokens(11, 1).await.unwrap();
            let history = store.get_history().await.unwrap();
            assert_eq!(history[0], Message::system("be kind"));
            assert_eq!(history.iter().filter(|message| message.role == Role::System).count(), 1);
            assert!(history[1].first_text().unwrap().ends_with("summary 2"), "{history:?}");
            assert_eq!((history[2].role, &history[3..]), (Role::Assistant, &numbered(16..20)[..]));
            assert_eq!(store.get_context_tokens().await.unwrap(), (22, 2), "totals are kept");
            assert_eq!(store.list_sessions().await.unwrap()[0].message_count, 21, "of the log");
        });
    });
}

#[test]
fn a_summary_that_fails_changes_nothing_and_fails_nothing() {
    let store = auto(MemoryContextStore::new(numbered(0..10)), 0);
    block_on(async {
        store.add_context_tokens(11, 1).await.unwrap();
        assert_eq!(store.get_history().await.unwrap(), numbered(0..10));
        assert!(
            matches!(store.last_failure(), Some(CompactError::NoAnswer { model, .. }) if model == "stub")
        );
        assert!(store.last_failure().is_none());
        assert_eq!(store.get_context_tokens().await.unwrap(), (11, 1));
        let blank = AutoCompactStore::new(
            MemoryContextStore::new(numbered(0..10)),
            Arc::new(StubTransport::new([" \n"])),
        );
        assert!(matches!(blank.compact().await, Err(CompactError::Empty { .. })));
        assert_eq!(blank.get_history().await.unwrap(), numbered(0..10));
    });
}

#[test]
fn the_limit_is_a_part_of_the_window_unless_it_is_said() {
    let compacts = |window: Option<u64>, threshold: f64, max: Option<u64>, tokens: u64| {
        let mut transport = StubTransport::new(["a summary"]);
        if let Some(window) = window {
            transport = transport.with_context_window(window);
        }
        let mut store = AutoCompactStore::new(MemoryContextStore::new(numbered(0..20)), Arc::new(transport))
            .threshold(threshold);
        if let Some(max) = max {
            store = store.max_tokens(max);
        }
        block_on(store.add_context_tokens(tokens, 0)).unwrap();
        block_on(store.get_history()).unwrap().len() < 20
    };
    for (window, threshold, max, limit) in [
        (None, 0.75, None, 96_000),
        (Some(200_000), 0.75, None, 150_000),
        (Some(200_000), 0.5, None, 100_000),
        (Some(200_000), 0.5, Some(60_000), 60_000),
    ] {
        assert!(!compacts(window, threshold, max, limit), "{limit}");
        assert!(compacts(window, threshold, max, limit + 1), "{limit}");
    }
}

#[test]
fn a_summary_is_not_summarised_again_and_again() {
    let transport = Arc::new(StubTransport::new(["one", "two"]));
    let store = AutoCompactStore::new(in_memory(), Arc::clone(&transport)).max_tokens(10).keep_recent(4);
    block_on(async {
        append(&store, numbered(0..10)).await;
        for _ in 0..5 {
            store.add_context_tokens(11, 1).await.unwrap();
        }
    });
    assert_eq!(
        transport.requests().len(),
        1,
        "what stays may be too large, which no further summary changes"
    );
}

#[test]
fn a_fork_keeps_settings_and_summary_and_goes_its_own_way() {
    on_every_store(|store| {
        block_on(async {
            append(&store, numbered(0..10)).await;
            store.add_context_tokens(11, 1).await.unwrap();
            let shown = store.get_history().await.unwrap();
            let fork = store.fork().await.unwrap();
            assert_eq!(fork.get_history().await.unwrap(), shown);
            append(&fork, numbered(10..20)).await;
            fork.add_context_tokens(11, 1).await.unwrap();
            let history = fork.get_history().await.unwrap();
            assert!(
                history[0].first_text().unwrap().ends_with("summary 2"),
                "it compacts by the same settings"
            );
            assert_eq!(history[2..], numbered(16..20));
            assert_eq!(store.get_history().await.unwrap(), shown);
        });
    });
}

#[test]
fn clearing_takes_the_summary_along() {
    on_every_store(|store| {
        block_on(async {
            append(&store, numbered(0..10)).await;
            store.add_context_tokens(11, 1).await.unwrap();
            store.clear().await.unwrap();
            assert_eq!(store.get_history().await.unwrap(), []);
            append(&store, numbered(0..3)).await;
            assert_eq!(store.get_history().await.unwrap(), numbered(0..3));
        });
    });
}

#[test]
fn over_a_session_the_events_stay_and_a_compaction_is_written() {
    let sessions = Arc::new(MemoryStore::default());
    let store = auto(SessionContext::open(Arc::clone(&sessions), "mine").unwrap(), 1);
    block_on(async {
        append(&store, numbered(0..10)).await;
        let id = sessions.find("mine").await.unwrap()[0];
        let before = sessions.read(id, Page::last(100)).await.unwrap();
        store.add_context_tokens(11, 1).await.unwrap();
        assert_eq!(sessions.read(id, Page::last(100)).await.unwrap(), before);
        let compactions = sessions.compactions(id).await.unwrap();
        assert_eq!(
            (compactions.len(), compactions[0].after_seq, compactions[0].summary.as_str()),
            (1, Seq(6), "summary 1")
        );
        assert!(read_context(sessions.as_ref(), id).await.unwrap().contains("summary 1"));
        assert!(sessions.remove_compaction(id, Seq(6)).await.unwrap());
        assert_eq!(store.get_history().await.unwrap(), numbered(0..10), "it can be undone");
    });
}

#[test]
fn a_call_is_never_parted_from_its_result() {
    let call = |id: &str| Message::new(Role::Assistant, [Block::tool_use(id, "Bash", Json::empty_object())]);
    let result = |id: &str| Message::new(Role::User, [Block::tool_result(id, "ok")]);
    let messages = vec![
        Message::user("0"),
        call("a"),
        call("b"),
        result("a"),
        result("b"),
        Message::assistant("5"),
        call("a"),
        result("a"),
        Message::assistant("8"),
    ];
    for (keep, stay) in [(0, 0), (1, 1), (2, 3), (3, 3), (4, 4), (5, 8), (6, 8), (7, 8), (8, 8), (9, 9)] {
        let store = auto(MemoryContextStore::new(messages.clone()), 1).keep_recent(keep);
        let compacted = block_on(store.compact()).unwrap();
        let history = block_on(store.get_history()).unwrap();
        let expected = &messages[messages.len() - stay..];
        assert_eq!((compacted, &history[history.len() - stay..]), (stay < 9, expected), "keep {keep}");
        assert_eq!(history.len(), if compacted { stay + 2 } else { 9 }, "keep {keep}");
    }
}

/// Whole numbers that only look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

/// Lets the others go first, once.
async fn pause() {
    let mut paused = false;
    poll_fn(|_| if std::mem::replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Polls the tasks in an order that the dice say until all are done.
fn run_interleaved(mut tasks: Vec<Task<'_>>, dice: &mut Dice) {
    let mut context = Context::from_waker(Waker::noop());
    while !tasks.is_empty() {
        let chosen = dice.below(tasks.len());
        if tasks[chosen].as_mut().poll(&mut context).is_ready() {
            drop(tasks.swap_remove(chosen));
        }
    }
}

/// Returns the numbers of the messages in a text.
fn numbers(text: &str) -> Vec<usize> {
    text.split('<').filter_map(|part| part.split('>').next()?.parse().ok()).collect()
}

/// Appends while summaries are being made, and checks that every message is either shown or was told to the summariser.
fn nothing_is_lost(inner: impl ContextStore, seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (before, during) = (dice.below(12), 1 + dice.below(8));
    let transport =
        Arc::new(StubTransport::new((0..9).map(|n| format!("summary {n}"))).with_pauses(dice.below(6)));
    let store = AutoCompactStore::new(inner, Arc::clone(&transport)).max_tokens(0).keep_recent(dice.below(7));
    block_on(append(&store, numbered(0..before)));
    let (writer, reader) = (&store, &store);
    let mut tasks: Vec<Task<'_>> = vec![
        Box::pin(async move {
            for message in numbered(before..before + during) {
                writer.append(message).await.unwrap();
                pause().await;
            }
        }),
        Box::pin(async move {
            for _ in 0..3 {
                let told: Vec<usize> = reader
                    .get_history()
                    .await
                    .unwrap()
                    .iter()
                    .flat_map(|message| numbers(message.first_text().unwrap()))
                    .collect();
                assert!(told.windows(2).all(|pair| pair[0] + 1 == pair[1]), "a hole: {told:?}");
                pause().await;
            }
        }),
    ];
    for _ in 0..1 + dice.below(2) {
        tasks.push(Box::pin(async { store.add_context_tokens(1, 1).await.unwrap() }));
    }
    run_interleaved(tasks, &mut dice);
    let history = block_on(store.get_history()).unwrap();
    let shown: Vec<usize> =
        history.iter().flat_map(|message| numbers(message.first_text().unwrap())).collect();
    let summarised: Vec<usize> =
        transport.requests().iter().flat_map(|request| numbers(request[1].first_text().unwrap())).collect();
    let total = before + during;
    let first_shown = shown.first().copied().unwrap_or(total);
    assert_eq!(shown, (first_shown..total).collect::<Vec<_>>(), "seed {seed}");
    for covered in 0..first_shown {
        assert!(summarised.contains(&covered), "seed {seed}: {covered} is gone");
    }
    let is_compacted = history.first().is_some_and(|first| first.first_text().unwrap().contains("summary "));
    assert_eq!(is_compacted, first_shown > 0, "seed {seed}: {history:?}");
}

#[test]
fn what_is_appended_while_a_summary_is_made_is_there_afterwards() {
    for seed in 0..thorough(10_000, 100_000) {
        nothing_is_lost(MemoryContextStore::default(), seed);
    }
    for seed in 0..thorough(2_000, 20_000) {
        nothing_is_lost(in_memory(), seed);
    }
}

#[test]
fn what_is_appended_while_a_summary_is_made_is_there_afterwards_in_sqlite() {
    let (store, _folder) = sqlite();
    for seed in 0..thorough(500, 5_000) {
        nothing_is_lost(SessionContext::open(Arc::clone(&store), &format!("session {seed}")).unwrap(), seed);
    }
}

#[test]
fn a_summary_of_what_was_cleared_meanwhile_is_not_kept() {
    on_every_store(|store| {
        let transport = Arc::new(StubTransport::new(["late"]).with_pauses(1));
        let store = AutoCompactStore::new(store, transport).max_tokens(0).keep_recent(1);
        block_on(append(&store, numbered(0..5)));
        let mut compacting = Box::pin(store.compact());
        let mut context = Context::from_waker(Waker::noop());
        assert!(compacting.as_mut().poll(&mut context).is_pending());
        block_on(store.clear()).unwrap();
        block_on(append(&store, numbered(1..7)));
        assert!(matches!(block_on(compacting), Err(CompactError::Changed)));
        assert_eq!(block_on(store.get_history()).unwrap(), numbered(1..7));
    });
}

#[test]
fn a_session_that_another_program_appends_to_is_compacted_where_it_was_read() {
    let sessions = Arc::new(MemoryStore::default());
    let id = block_on(sessions.create(NewSession::default())).unwrap();
    let transport = Arc::new(StubTransport::new(["a summary"]).with_pauses(1));
    let store = AutoCompactStore::new(
        SessionContext::open(Arc::clone(&sessions), &id.to_string()).unwrap(),
        transport,
    )
    .keep_recent(2);
    block_on(append(&store, numbered(0..6)));
    let mut compacting = Box::pin(store.compact());
    assert!(compacting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    block_on(sessions.append(id, NewTurn::verbatim([Event::user("from elsewhere")]))).unwrap();
    assert!(block_on(compacting).unwrap());
    let history = block_on(store.get_history()).unwrap();
    assert_eq!((history.len(), &history[4]), (5, &Message::user("from elsewhere")));
}

/// A summary over the first events of a log, and the context of the rest under it.
fn context_after(events: Vec<Event>, covered: u64) -> String {
    let store = MemoryStore::default();
    block_on(async {
        let id = store.create(NewSession::default()).await.unwrap();
        store.append(id, NewTurn::verbatim(events)).await.unwrap();
        store.add_compaction(id, &Compaction::new(Seq(covered), "the summary")).await.unwrap();
        read_context(&store, id).await.unwrap().into_string()
    })
}

#[test]
fn the_prompt_of_a_turn_that_goes_on_is_found_however_much_came_of_it() {
    let round = |number: usize| {
        let id = number.to_string();
        [
            Message::new(Role::Assistant, vec![Block::tool_use(&id, "Bash", Json::empty_object())]),
            Message::new(Role::User, vec![Block::tool_result(&id, "x")]),
        ]
    };
    let rounds = || (0..1_200).flat_map(round);
    let rounds = || rounds().map(|Message { role, content }| Event::Message(MessageEvent { role, content }));
    let mut events = vec![Event::user("The first thing")];
    events.extend(rounds());
    events.push(Event::user("Never touch main.rs"));
    events.extend(rounds());
    let covered = events.len() as u64;
    events.push(Event::assistant("And on it goes"));
    let context = context_after(events, covered);
    assert!(context.contains("## User\nNever touch main.rs\n"), "{context}");
    // What was not looked for is said to be left out.
    assert!(context.contains("newest first\n\n[earlier prompts are left out]"), "{context}");
}

#[test]
fn what_says_nothing_does_not_hide_that_a_turn_goes_on() {
    let long = format!("Do it. {}", "And do it well. ".repeat(60));
    let mut events = vec![Event::user(&long), Event::assistant("I begin")];
    events.extend((0..900).map(|_| Event::Compacting));
    events.push(Event::error("api_error", "too many requests"));
    let context = context_after(events, 2);
    assert!(context.contains(&format!("## User\n{long}")), "{context}");
}
