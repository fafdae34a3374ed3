//! What the tests of both servers share: turns that are recognised, and clients that write while their server is killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use azureal_store::core::{
    Event, NewMark, NewSession, NewTurn, Page, Seq, SessionId, SessionStore, StoreError, Tokens,
};
use azureal_testkit::servers::{PostgresServer, RedisServer};
use azureal_testkit::thorough;

use crate::scratch::{self, wait, worker};

/// The events of each turn.
pub(crate) const EVENTS: usize = 3;
const PROCESSES: usize = 4;
const CLIENTS: usize = 8;
const SESSIONS: u32 = 4;
/// How long clients are at work for each kill of their server.
const PACE: Duration = Duration::from_secs(3);

/// A server that can be killed.
pub(crate) trait Killable {
    fn url(&self) -> String;
    fn kill(&mut self);
    fn start_again(&mut self);
}

macro_rules! killable {
    ($($server:ty),+) => {
        $(impl Killable for $server {
            fn url(&self) -> String {
                self.url()
            }

            fn kill(&mut self) {
                self.kill();
            }

            fn start_again(&mut self) {
                self.start_again();
            }
        })+
    };
}

killable!(PostgresServer, RedisServer);

pub(crate) fn turn_of(name: &str) -> NewTurn {
    NewTurn {
        mark: Some(NewMark { name: name.to_owned(), note: String::new() }),
        tokens: Tokens::new(1, 2),
        ..NewTurn::verbatim((0..EVENTS).map(|event| Event::user(format!("{name}/{event}"))))
    }
}

/// Returns the turns of a session, in order, having checked that each is whole and the numbers have no gap.
pub(crate) fn turns_in(store: &dyn SessionStore, id: SessionId) -> Vec<String> {
    let mut texts = Vec::new();
    loop {
        let page = wait(store.read(id, Page::After(Seq(texts.len() as u64), 1000))).unwrap();
        if page.is_empty() {
            break;
        }
        for event in page {
            assert_eq!(event.seq.0 as usize, texts.len() + 1);
            let Event::UserMessage(message) = event.event().unwrap() else { panic!("{event:?}") };
            texts.push(message.content);
        }
    }
    let whole = texts.chunks(EVENTS).map(|turn| {
        let name = turn[0].strip_suffix("/0").unwrap_or_else(|| panic!("torn: {turn:?}"));
        let expected: Vec<String> = (0..EVENTS).map(|event| format!("{name}/{event}")).collect();
        assert_eq!(turn, expected, "torn");
        name.to_owned()
    });
    whole.collect()
}

/// Has thirty-two clients in four processes append while their server is killed, ten times or more. `test` is the path of the test
/// that calls this; `start` and `open` are those of its server.
pub(crate) fn storm<S: Killable, D: SessionStore>(
    test: &str,
    start: impl FnOnce() -> Option<S>,
    open: impl Fn(&str) -> Result<D, StoreError> + Sync,
) {
    if let Some((process, place)) = scratch::role() {
        let (url, enough) = place.to_str().unwrap().rsplit_once(' ').unwrap();
        return be_clients(&process, Path::new(enough), || open_while_killed(url, &open));
    }
    let Some(mut server) = start() else { return };
    let kills = thorough(10, 50);
    let store = open(&server.url()).unwrap();
    for _ in 0..SESSIONS {
        wait(store.create(NewSession::default())).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let enough = folder.path().join("enough");
    let place = format!("{} {}", server.url(), enough.display());
    let processes: Vec<_> = (0..PROCESSES)
        .map(|process| worker(test, &process.to_string(), Path::new(&place)).spawn().unwrap())
        .collect();
    let outputs: Vec<_> = processes
        .into_iter()
        .map(|process| std::thread::spawn(move || process.wait_with_output().unwrap()))
        .collect();
    let began = Instant::now();
    for kill in 1..=kills {
        let due = PACE * kill;
        // However slow the machine, clients have some time between two kills.
        std::thread::sleep(due.saturating_sub(began.elapsed()).max(Duration::from_millis(300)));
        server.kill();
        server.start_again();
    }
    std::thread::sleep(PACE);
    std::fs::write(enough, "").unwrap();
    let mut acknowledged = BTreeMap::new();
    for output in outputs {
        let output = output.join().unwrap();
        assert!(output.status.success(), "{}", scratch::text(&output));
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            if let Some((place, name)) = stored(line) {
                assert_eq!(acknowledged.insert(name.to_owned(), place.to_owned()), None, "{name} twice");
            }
        }
    }

    let mut found = BTreeMap::new();
    for session in (1..=SESSIONS).filter_map(SessionId::new) {
        let turns = turns_in(&store, session);
        assert_eq!(wait(store.get(session)).unwrap().counts.events as usize, turns.len() * EVENTS);
        for (turn, index) in turns.into_iter().zip(0..) {
            let place = format!("{session}:{}", index * EVENTS + 1);
            assert_eq!(found.insert(turn.clone(), place), None, "{turn} is there twice");
        }
    }
    let lost: Vec<_> = acknowledged.iter().filter(|(turn, place)| found.get(*turn) != Some(place)).collect();
    assert!(lost.is_empty(), "acknowledged, and not where it was said: {lost:?}");
    // Nobody gave up, so there is nothing that was not acknowledged.
    assert_eq!(found.len(), acknowledged.len());
    assert!(found.len() > PROCESSES * CLIENTS, "only {} turns", found.len());
    let (turns, clients, time) = (found.len(), PROCESSES * CLIENTS, began.elapsed().as_secs_f32());
    println!("{turns} turns of {clients} clients in {time:.1} s, {kills} kills");
}

/// Reads the place and the name of a turn from a line of [`be_clients`]. The first one stands behind what the test
/// harness says.
fn stored(line: &str) -> Option<(&str, &str)> {
    line.split_once("stored ")?.1.split_once(' ')
}

/// Appends until it is enough, with eight clients, and prints what was acknowledged.
fn be_clients<D: SessionStore>(process: &str, enough: &Path, open: impl Fn() -> D + Sync) {
    let open = &open;
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                let store = open();
                for number in 0_u32.. {
                    if enough.exists() {
                        return;
                    }
                    let session = SessionId::new((client as u32 + number) % SESSIONS + 1).unwrap();
                    let name = format!("{process}.{client}.{number}");
                    let appended = wait(store.append(session, turn_of(&name))).unwrap();
                    println!("stored {session}:{} {name}", appended.first);
                }
            });
        }
    });
}

/// Opens the store as a user does who starts the program until it starts.
fn open_while_killed<D>(url: &str, open: impl Fn(&str) -> Result<D, StoreError>) -> D {
    loop {
        match open(url) {
            Ok(store) => return store,
            Err(StoreError::Unreachable { .. } | StoreError::OutcomeUnknown { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
