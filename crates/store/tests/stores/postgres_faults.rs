//! PostgreSQL that goes away: connections cut at every byte of an append, and a server that is killed while
//! thirty-two clients write. Nothing that was acknowledged is lost, nothing is there twice or in part.

use std::time::{Duration, Instant};

use crate::scratch::wait;
use crate::storm::{EVENTS, storm, turn_of, turns_in};
use azureal_store::core::{
    Compaction, CrashNotes, Holder, LeaseId, Leases, ListQuery, NewLease, NewMark, NewSession, NewTurn, Seq,
    SessionId, SessionStore, StoreError, Taken, Tokens,
};
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use azureal_testkit::servers::{Cut, CuttingProxy, Direction, PostgresServer};

fn open(url: &str, options: PostgresOptions) -> PostgresStore {
    let address: PostgresAddress = url.parse().unwrap();
    wait(PostgresStore::open(&address, options)).unwrap()
}

/// One connection, so that the one that is cut is the one that is used.
fn patient() -> PostgresOptions {
    PostgresOptions { connections: 1, ..PostgresOptions::default() }
}

fn impatient() -> PostgresOptions {
    PostgresOptions { connections: 1, retry_budget: Duration::ZERO }
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
    assert_eq!(wait(direct.take(id, &lease)).unwrap(), Taken::Ours);
    let mut expected: Vec<String> = Vec::new();
    let mut append = || {
        let name = format!("{:08}", expected.len());
        // As the program appends: under its lease, and after what it has read.
        let after = Some(Seq((expected.len() * EVENTS) as u64));
        let turn = NewTurn { lease: Some(lease.id.clone()), after, ends_run: true, ..turn_of(&name) };
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
    assert_eq!(wait(direct.take(other, &lease)).unwrap(), Taken::Ours);
    let (mut there, mut not_there) = (0, 0);
    for cut in &cuts {
        let store = open(&url, impatient());
        wait(store.append(other, turn_of("--before"))).unwrap();
        wait(direct.note_run(other, Some("run"))).unwrap();
        let before = turns_in(&direct, other).len();
        proxy.arm(Some(*cut));
        let after = Some(Seq((before * EVENTS) as u64));
        let turn = NewTurn { lease: Some(lease.id.clone()), after, ends_run: true, ..turn_of("-the-cut") };
        let answer = wait(store.append(other, turn));
        assert!(matches!(answer, Err(StoreError::Unreachable { .. })), "{cut:?}: {answer:?}");
        // The server may notice the cut later than we do. What it does now it does before it takes the lock again.
        wait(direct.append(other, turn_of("---after"))).unwrap();
        let is_noted = !wait(direct.noted_runs()).unwrap().is_empty();
        match &turns_in(&direct, other)[before..] {
            [after] if after == "---after" && is_noted => not_there += 1,
            [cut, after] if cut == "-the-cut" && after == "---after" && !is_noted => there += 1,
            turns => panic!("{cut:?}: {turns:?}, noted: {is_noted}"),
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
        let turn = NewTurn { mark: Some(mark), ..turn_of("imported") };
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
    let test = "postgres_faults::clients_go_on_by_themselves_while_the_server_is_killed_ten_times";
    // Syncing makes no difference while the machine keeps running. Without it the server is back within the time that the
    // clients should have between two kills.
    let start = || PostgresServer::start_with(&[("fsync", "off")], &[]);
    storm(test, start, |url| wait(PostgresStore::open(&url.parse::<PostgresAddress>().unwrap(), patient())));
}
