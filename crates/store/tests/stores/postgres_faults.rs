//! PostgreSQL that goes away: connections cut at every byte of an append, and a server that is killed while
//! thirty-two clients write. Nothing that was acknowledged is lost, nothing is there twice or in part.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::scratch::{self, wait, worker};
use azureal_store::core::{
    Compaction, Event, Holder, LeaseId, ListQuery, NewLease, NewMark, NewSession, Page, Seq, SessionId,
    SessionStore, StoreError, Taken, Tokens, Turn,
};
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use azureal_testkit::servers::{Cut, CuttingProxy, Direction, PostgresServer};

const EVENTS: usize = 3;
const PROCESSES: usize = 4;
const CLIENTS: usize = 8;
const SESSIONS: u32 = 4;
const KILLS: u32 = 10;

fn open(url: &str, options: PostgresOptions) -> PostgresStore {
    let address: PostgresAddress = url.parse().unwrap();
    wait(PostgresStore::open(&address, options)).unwrap()
}

/// Opens the store as somebody does who starts the program until it starts.
fn open_while_killed(url: &str) -> PostgresStore {
    let address: PostgresAddress = url.parse().unwrap();
    loop {
        match wait(PostgresStore::open(&address, patient())) {
            Ok(store) => return store,
            Err(StoreError::Unreachable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// One connection, so that the one that is cut is the one that is used.
fn patient() -> PostgresOptions {
    PostgresOptions { connections: 1, ..PostgresOptions::default() }
}

fn impatient() -> PostgresOptions {
    PostgresOptions { connections: 1, patience: Duration::ZERO }
}

fn turn_of(name: &str) -> Turn {
    Turn {
        mark: Some(NewMark { name: name.to_owned(), note: String::new() }),
        tokens: Tokens::new(1, 2),
        ..Turn::verbatim((0..EVENTS).map(|event| Event::user(format!("{name}/{event}"))))
    }
}

/// Returns the turns of a session, in order, having checked that each is whole and the numbers have no gap.
fn turns_in(store: &PostgresStore, id: SessionId) -> Vec<String> {
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

/// Whether a test may take its time. The short run samples the same places.
fn is_thorough() -> bool {
    ["AZUREAL_THOROUGH", "CI"].iter().any(|name| std::env::var_os(name).is_some())
}

#[test]
fn an_append_that_is_cut_anywhere_is_there_whole_and_once() {
    let Some(server) = PostgresServer::start_with(&[("fsync", "off")], &[]) else { return };
    let proxy = CuttingProxy::start(server.port());
    let url = format!("{}?sslmode=disable", server.url_at(proxy.port()));
    let direct = open(&server.url(), PostgresOptions::default());
    let id = wait(direct.create(NewSession::default())).unwrap();

    // How long the conversation of one append is, both ways, once its statement is prepared. All names are of one
    // length, and so are all these conversations.
    let store = open(&url, patient());
    let lease = NewLease {
        id: LeaseId::random(),
        holder: Holder {
            user: "ada".into(),
            host: "here".into(),
            pid: 1,
            agent: "claude".into(),
            since: "2026-01-31T09:30:00Z".into(),
        },
        lasts: Duration::from_secs(3600),
        instead_of: None,
    };
    assert_eq!(wait(direct.take_lease(id, &lease)).unwrap(), Taken::Ours);
    let mut expected: Vec<String> = Vec::new();
    let mut append = || {
        let name = format!("{:08}", expected.len());
        // As the program appends: under its lease, and after what it has read.
        let after = Some(Seq((expected.len() * EVENTS) as u64));
        let turn = Turn { lease: Some(lease.id.clone()), after, ..turn_of(&name) };
        let appended = wait(store.append(id, turn)).unwrap_or_else(|error| panic!("{name}: {error}"));
        expected.push(name);
        assert_eq!(appended.last.0 as usize, expected.len() * EVENTS);
        assert_eq!(appended.first.0, appended.last.0 - EVENTS as u64 + 1);
    };
    append();
    proxy.arm(None);
    append();
    let (to_server, to_client) = proxy.passed();
    assert!(to_server > 300 && to_client > 50, "{to_server} {to_client}");

    let step = if is_thorough() { 1 } else { 9 };
    let cuts: Vec<Cut> = (0..to_server)
        .step_by(step)
        .map(|after| Cut { direction: Direction::ToServer, after })
        .chain((0..to_client).step_by(step.min(3)).map(|after| Cut { direction: Direction::ToClient, after }))
        .collect();
    for cut in &cuts {
        // On a connection on which the statement is prepared.
        append();
        proxy.arm(Some(*cut));
        append();
    }
    assert_eq!(proxy.cuts(), cuts.len());
    assert_eq!(turns_in(&direct, id), expected);
    let record = wait(direct.get(id)).unwrap();
    assert_eq!(record.counts.messages as usize, expected.len() * EVENTS);
    assert_eq!(record.tokens.input as usize, expected.len(), "tokens of a turn that was tried twice");

    // Who does not try again is told, and then it is there whole or not at all.
    let other = wait(direct.create(NewSession::default())).unwrap();
    assert_eq!(wait(direct.take_lease(other, &lease)).unwrap(), Taken::Ours);
    let (mut there, mut not_there) = (0, 0);
    for cut in &cuts {
        let store = open(&url, impatient());
        wait(store.append(other, turn_of("--before"))).unwrap();
        let before = turns_in(&direct, other).len();
        proxy.arm(Some(*cut));
        let after = Some(Seq((before * EVENTS) as u64));
        let turn = Turn { lease: Some(lease.id.clone()), after, ..turn_of("-the-cut") };
        let answer = wait(store.append(other, turn));
        assert!(matches!(answer, Err(StoreError::Unreachable { .. })), "{cut:?}: {answer:?}");
        // The server may notice the cut later than we do. What it does now it does before it takes the lock again.
        wait(direct.append(other, turn_of("---after"))).unwrap();
        match &turns_in(&direct, other)[before..] {
            [after] if after == "---after" => not_there += 1,
            [cut, after] if cut == "-the-cut" && after == "---after" => there += 1,
            turns => panic!("{cut:?}: {turns:?}"),
        }
    }
    assert!(there > 0 && not_there > 0, "{there} {not_there}");
    println!("{} cuts twice: {to_server} bytes there, {to_client} back", cuts.len());
}

#[test]
fn every_change_is_made_once_though_its_answer_is_lost() {
    let Some(server) = PostgresServer::start_with(&[("fsync", "off")], &[]) else { return };
    let proxy = CuttingProxy::start(server.port());
    let store = open(&format!("{}?sslmode=disable", server.url_at(proxy.port())), patient());
    let named = |name: &str| NewSession { name: Some(name.to_owned()), ..NewSession::default() };
    let sessions = || wait(store.list(&ListQuery::default())).unwrap().len();
    let made: Vec<SessionId> = (0..2).map(|_| wait(store.create(named("one"))).unwrap()).collect();
    // Each is done twice: the first prepares its statement on the connection, of the second's answer not a byte arrives.
    let twice = |change: &dyn Fn(SessionId)| {
        change(made[0]);
        proxy.arm(Some(Cut { direction: Direction::ToClient, after: 0 }));
        change(made[1]);
    };
    twice(&|_| assert!(wait(store.create(named("one"))).is_ok()));
    assert_eq!(sessions(), 4);
    twice(&|id| {
        let mark = NewMark { name: format!("import {id}"), note: String::new() };
        let turn = Turn { mark: Some(mark), ..turn_of("imported") };
        wait(store.create_with(named("two"), turn, Vec::new())).unwrap();
    });
    assert_eq!(sessions(), 6);
    twice(&|id| assert!(wait(store.append(id, turn_of(&format!("turn of {id}")))).is_ok()));
    twice(&|id| assert!(wait(store.fork(id, Seq::END, named("three"))).is_ok()));
    assert_eq!(sessions(), 8);
    twice(&|id| wait(store.add_tokens(id, Tokens::new(10, 0))).unwrap());
    for id in &made {
        let record = wait(store.get(*id)).unwrap();
        assert_eq!((record.counts.events, record.tokens.input), (EVENTS as u64, 11));
    }
    twice(&|id| wait(store.add_compaction(id, &Compaction::new(Seq(1), "summary"))).unwrap());
    twice(&|id| assert!(wait(store.remove_compaction(id, Seq(1))).unwrap()));
    twice(&|id| assert!(wait(store.remove_mark(&format!("turn of {id}"))).unwrap()));
    twice(&|id| wait(store.clear(id)).unwrap());
    twice(&|id| wait(store.delete(id)).unwrap());
    assert_eq!(sessions(), 6);
    assert_eq!(proxy.cuts(), 10);
}

#[test]
fn a_watch_hears_again_after_the_server_was_killed() {
    let Some(mut server) = PostgresServer::start_with(&[("fsync", "off")], &[]) else { return };
    let store = open(&server.url(), PostgresOptions::default());
    let id = wait(store.create(NewSession::default())).unwrap();
    let mut watch = wait(store.watch(id)).unwrap().unwrap();
    for kill in 0..3 {
        // What cannot hear says each time that there may be something.
        let began = Instant::now();
        while wait(watch.changed(Duration::from_millis(100))).unwrap() {
            assert!(began.elapsed() < Duration::from_secs(30), "it does not hear after {kill} kills");
        }
        wait(store.append(id, turn_of(&kill.to_string()))).unwrap();
        assert!(wait(watch.changed(Duration::from_secs(30))).unwrap());
        server.kill();
        assert!(wait(watch.changed(Duration::from_secs(30))).unwrap(), "nothing is wrong, it says");
        server.start_again();
    }
}

#[test]
fn clients_go_on_by_themselves_while_the_server_is_killed_ten_times() {
    if let Some((process, place)) = scratch::role() {
        let (url, enough) = place.to_str().unwrap().rsplit_once(' ').unwrap();
        return be_clients(&process, url, Path::new(enough));
    }
    // Syncing makes no difference to who is killed while the machine goes on, and without it the server is back
    // within the time that the clients should have between two kills.
    let Some(mut server) = PostgresServer::start_with(&[("fsync", "off")], &[]) else { return };
    let seconds: u32 = std::env::var("AZUREAL_STORM_SECONDS").map_or(30, |seconds| seconds.parse().unwrap());
    let store = open(&server.url(), PostgresOptions::default());
    for _ in 0..SESSIONS {
        wait(store.create(NewSession::default())).unwrap();
    }
    let test = "postgres_faults::clients_go_on_by_themselves_while_the_server_is_killed_ten_times";
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
    for kill in 1..=KILLS {
        let due = Duration::from_secs(seconds.into()) * kill / (KILLS + 1);
        // However slow the machine, clients have some time between two kills.
        std::thread::sleep(due.saturating_sub(began.elapsed()).max(Duration::from_millis(300)));
        server.kill();
        server.start_again();
    }
    std::thread::sleep(Duration::from_secs(seconds.into()).saturating_sub(began.elapsed()));
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
    assert!(found.len() > PROCESSES * CLIENTS, "only {} turns in {seconds} s", found.len());
    let (turns, clients, time) = (found.len(), PROCESSES * CLIENTS, began.elapsed().as_secs_f32());
    println!("{turns} turns of {clients} clients in {time:.1} s, {KILLS} kills");
}

/// Reads the place and the name of a turn from a line of [`be_clients`]. The first one stands behind what the test
/// harness says.
fn stored(line: &str) -> Option<(&str, &str)> {
    line.split_once("stored ")?.1.split_once(' ')
}

/// Appends until it is enough, with eight clients, and prints what was acknowledged.
fn be_clients(process: &str, url: &str, enough: &Path) {
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                let store = open_while_killed(url);
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
