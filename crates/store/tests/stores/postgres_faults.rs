//! PostgreSQL that goes away: connections cut at every byte of an append, and a server that is killed while
//! thirty-two clients write. Nothing that was acknowledged is lost, nothing is there twice or in part.

use std::time::Duration;

use crate::cuts::{a_lost_answer_is_no_second_turn, append_is_cut_anywhere};
use crate::scratch::wait;
use crate::storm::{EVENTS, storm, turn_of};
use azureal_store::core::{
    Compaction, CrashNotes, ListQuery, NewMark, NewSession, NewTurn, Seq, SessionId, SessionStore, Tokens,
};
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use azureal_testkit::servers::{Cut, CuttingProxy, Direction, PostgresServer};
use azureal_testkit::until;

fn open(url: &str, options: PostgresOptions) -> PostgresStore {
    let address: PostgresAddress = url.parse().unwrap();
    wait(PostgresStore::open(&address, options)).unwrap()
}

/// One connection, so that the one that is cut is the one that is used.
fn patient() -> PostgresOptions {
    PostgresOptions { connections: 1, ..PostgresOptions::default() }
}

fn impatient() -> PostgresOptions {
    PostgresOptions { connections: 1, retry_budget: Duration::ZERO, ..PostgresOptions::default() }
}

#[test]
fn an_append_that_is_cut_anywhere_is_there_whole_and_once() {
    let Some(server) = PostgresServer::start_with(&[("fsync", "off")], &[]) else { return };
    let proxy = CuttingProxy::start(server.port());
    let url = format!("{}?sslmode=disable", server.url_at(proxy.port()));
    let direct = open(&server.url(), PostgresOptions::default());
    append_is_cut_anywhere(&proxy, &direct, || open(&url, patient()), || open(&url, impatient()));
}

#[test]
fn a_turn_whose_answer_is_lost_for_days_is_stored_once() {
    let Some(server) = PostgresServer::start_with(&[("fsync", "off")], &[]) else { return };
    let proxy = CuttingProxy::start(server.port());
    let url = format!("{}?sslmode=disable", server.url_at(proxy.port()));
    let direct = open(&server.url(), PostgresOptions::default());
    // Nothing goes by time: `operations_go_only_with_their_session`.
    a_lost_answer_is_no_second_turn(&proxy, &direct, (open(&url, patient()), open(&url, impatient())), || {});
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
        let mut changed = || wait(watch.changed(Duration::from_millis(100))).unwrap();
        until(&format!("it hears after {kill} kills"), || (!changed()).then_some(()));
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
