//! A store on several hosts, some of them silent, and passwords that change.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use azureal_store::ServerAddress;
use azureal_store::core::{Event, ListQuery, NewSession, NewTurn, Seq, SessionStore, StoreError};
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use azureal_testkit::servers::{CuttingProxy, PostgresServer};
use azureal_testkit::until;

use crate::scratch::wait;

fn open(url: &str) -> Result<PostgresStore, StoreError> {
    wait(PostgresStore::open(&url.parse().unwrap(), PostgresOptions::default()))
}

/// Returns the URL of the server's database with other hosts, in front of the server or instead of it.
fn with_hosts(server: &PostgresServer, hosts: &[String]) -> String {
    let only = format!("127.0.0.1:{}", server.port());
    server.url().replace(&only, &hosts.join(","))
}

/// Listens and never answers: the system accepts connections, and nothing reads them.
fn silent_host() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let host = format!("127.0.0.1:{}", listener.local_addr().unwrap().port());
    (listener, host)
}

/// Accepts connections, and never says a word.
fn mute_host() -> String {
    let (listener, host) = silent_host();
    thread::spawn(move || {
        let accepted: Vec<_> = listener.incoming().collect();
        drop(accepted);
    });
    host
}

#[test]
fn a_silent_first_host_keeps_nobody_from_the_second() {
    let Some(server) = PostgresServer::shared() else { return };
    let (_listener, silent) = silent_host();
    let live = format!("127.0.0.1:{}", server.port());
    let rows = [
        vec![silent.clone(), live.clone()],
        vec![mute_host(), live.clone()],
        // A name has several addresses, and is one host.
        vec![silent, live.replace("127.0.0.1", "localhost")],
    ];
    for hosts in rows {
        let url = format!("{}?target_session_attrs=read-write&project=hosts", with_hosts(server, &hosts));
        let began = Instant::now();
        let store = open(&url).unwrap();
        let id = wait(store.create(NewSession::default())).unwrap();
        wait(store.append(id, NewTurn::verbatim([Event::user("hello")]))).unwrap();
        assert!(!wait(store.list(&ListQuery::default())).unwrap().is_empty());
        assert!(began.elapsed() < Duration::from_secs(3), "{hosts:?}: {:?}", began.elapsed());
        // More connections go to the host that answered.
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| wait(store.get(id)).unwrap());
            }
        });
        assert!(began.elapsed() < Duration::from_secs(1), "{hosts:?}: {:?}", began.elapsed());
    }
}

#[test]
fn silent_hosts_alone_are_an_error_after_seconds() {
    let Some(server) = PostgresServer::shared() else { return };
    let hosts = [mute_host(), mute_host()];
    let began = Instant::now();
    let error = open(&with_hosts(server, &hosts)).err().unwrap();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
}

#[test]
fn a_host_that_falls_silent_in_mid_turn_is_replaced_by_the_second() {
    let Some(server) = PostgresServer::shared() else { return };
    let (first, second) = (CuttingProxy::start(server.port()), CuttingProxy::start(server.port()));
    let hosts = [&first, &second].map(|proxy| format!("127.0.0.1:{}", proxy.port()));
    let store = open(&format!("{}?project=mid-turn", with_hosts(server, &hosts))).unwrap();
    let id = wait(store.create(NewSession::default())).unwrap();
    // Several connections, all of them to the first.
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| wait(store.get(id)).unwrap());
        }
    });
    first.set_silent(true);
    let began = Instant::now();
    let appended = wait(store.append(id, NewTurn::verbatim([Event::user("hello")]))).unwrap();
    assert_eq!(appended.last, Seq(1));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let began = Instant::now();
    assert_eq!(wait(store.get(id)).unwrap().counts.events, 1);
    assert!(began.elapsed() < Duration::from_secs(1), "another dead connection: {:?}", began.elapsed());
}

#[test]
fn a_password_that_changes_is_read_again() {
    let Some(server) = PostgresServer::shared() else { return };
    server.sql("CREATE ROLE rotating LOGIN PASSWORD 'one'; GRANT ALL ON DATABASE postgres TO rotating");
    let text = Arc::new(Mutex::new("*:*:*:rotating:one\n".to_owned()));
    let url = format!("postgres://rotating@127.0.0.1:{}/postgres?schema=rotating", server.port());
    let mut address: PostgresAddress = url.parse().unwrap();
    let read = Arc::clone(&text);
    address.set_password_file("", Arc::new(move || Some(read.lock().unwrap().clone())));
    let store = wait(PostgresStore::open(&address, PostgresOptions::default())).unwrap();
    let id = wait(store.create(NewSession::default())).unwrap();
    server.sql("ALTER ROLE rotating PASSWORD 'two'");
    *text.lock().unwrap() = "*:*:*:rotating:two\n".to_owned();
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotating'");
    let appended = wait(store.append(id, NewTurn::verbatim([Event::user("hello")]))).unwrap();
    assert_eq!(appended.last, Seq(1));
}

#[test]
fn clients_that_start_at_once_make_the_tables_under_any_default_isolation() {
    for isolation in ["repeatable read", "serializable"] {
        let settings = [("fsync", "off"), ("default_transaction_isolation", isolation)];
        let Some(server) = PostgresServer::start_with(&settings, &[]) else { return };
        let together = std::sync::Barrier::new(6);
        thread::scope(|scope| {
            for client in 0..6 {
                let (server, together) = (&server, &together);
                scope.spawn(move || {
                    together.wait();
                    let store = open(&server.url()).unwrap_or_else(|error| panic!("{isolation}: {error}"));
                    let new = NewSession { name: Some(format!("of {client}")), ..NewSession::default() };
                    let id = wait(store.create(new)).unwrap();
                    wait(store.append(id, NewTurn::verbatim([Event::user("hello")]))).unwrap();
                });
            }
        });
        assert_eq!(wait(open(&server.url()).unwrap().list(&ListQuery::default())).unwrap().len(), 6);
    }
}

/// Reports of waits, by the place that they are about.
static REPORTS: Mutex<BTreeMap<String, Vec<String>>> = Mutex::new(BTreeMap::new());

fn report(line: &str) {
    let place = line.split(": ").next().unwrap().to_owned();
    REPORTS.lock().unwrap().entry(place).or_default().push(line.to_owned());
}

#[test]
fn tables_are_made_with_a_word_and_a_limit() {
    let Some(server) = PostgresServer::start_with(&[("fsync", "off")], &[]) else { return };
    let proxy = CuttingProxy::start(server.port());
    let url = format!("{}?sslmode=disable", server.url_at(proxy.port()));
    let options =
        PostgresOptions { report_wait: report, retry_budget: Duration::ZERO, ..PostgresOptions::default() };
    let is_there = |sql: &str| (server.sql(sql) != "0").then_some(());
    let other = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    thread::scope(|scope| {
        scope.spawn(|| server.sql("BEGIN; CREATE SCHEMA azureal; SELECT pg_sleep(5); ROLLBACK"));
        until("somebody who makes the schema", || is_there(other));
        let opening = scope.spawn(|| wait(PostgresStore::open(&url.parse().unwrap(), options)).err());
        until("an upgrade that waits", || is_there(waits));
        // From now on the server says nothing, also not that the wait is over.
        proxy.set_swallows_answers(true);
        let error = opening.join().unwrap();
        assert!(matches!(error, Some(StoreError::Unreachable { .. })), "{error:?}");
    });
    let place = format!("postgres://127.0.0.1:{}/postgres", proxy.port());
    let reports = REPORTS.lock().unwrap().remove(&place).unwrap_or_default();
    assert!(reports.len() == 1 && reports[0].contains("creating or upgrading the tables"), "{reports:?}");
}

#[test]
fn an_upgrade_waits_for_another_with_a_word_and_a_limit() {
    let Some(server) = PostgresServer::start_with(&[("fsync", "off")], &[]) else { return };
    let sleeping = |seconds: u32| {
        let key = i64::from_be_bytes(*b"azureal\0");
        format!("BEGIN; SELECT pg_advisory_xact_lock({key}); SELECT pg_sleep({seconds}); COMMIT")
    };
    let held = || server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted") != "0";
    let options = PostgresOptions {
        report_wait: report,
        retry_budget: Duration::from_secs(3),
        ..PostgresOptions::default()
    };
    let opened = || wait(PostgresStore::open(&server.url().parse().unwrap(), options));
    let place = format!("postgres://127.0.0.1:{}/postgres", server.port());
    thread::scope(|scope| {
        scope.spawn(|| server.sql(&sleeping(6)));
        until("another client upgrades", || held().then_some(()));
        let began = Instant::now();
        let error = opened().err().unwrap().to_string();
        assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
        let named = ["process ", " of tester on 127.0.0.1, for ", " is upgrading the tables; waited 3 s"];
        assert!(named.iter().all(|part| error.contains(part)), "{error}");
        let reports = REPORTS.lock().unwrap().remove(&place).unwrap_or_default();
        assert!(reports.len() == 1 && reports[0].contains("waiting up to 3 s: process "), "{reports:?}");
    });
    opened().unwrap();
}
