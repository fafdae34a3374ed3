//! Redis that goes away: connections cut at every byte of an append, and a server that is killed while thirty-two
//! clients write. Nothing that was acknowledged is lost, nothing is there twice or in part.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cuts::{a_lost_answer_is_no_second_turn, append_is_cut_anywhere, lease};
use crate::scratch::wait;
use crate::storm::{EVENTS, storm, turn_of, turns_in};
use azureal_store::core::{
    self, Compaction, CrashNotes, Leases, ListQuery, NewMark, NewOriginal, NewSession, NewTurn, Seq,
    SessionId, SessionStore, StoreError, Taken, Tokens,
};
use azureal_store::redis::{RedisAddress, RedisOptions, RedisStore};
use azureal_testkit::servers::{Cut, CuttingProxy, Direction, RedisServer};

fn open(url: &str, options: RedisOptions) -> RedisStore {
    let address: RedisAddress = url.parse().unwrap();
    wait(RedisStore::open(&address, options)).unwrap()
}

fn patient() -> RedisOptions {
    RedisOptions::default()
}

fn impatient() -> RedisOptions {
    RedisOptions { retry_budget: Duration::ZERO }
}

#[test]
fn an_append_that_is_cut_anywhere_is_there_whole_and_once() {
    let Some(server) = RedisServer::shared() else { return };
    let proxy = CuttingProxy::start(server.port());
    let url = server.url_at(proxy.port());
    let direct = open(&server.url(), patient());
    append_is_cut_anywhere(&proxy, &direct, || open(&url, patient()), || open(&url, impatient()));
}

#[test]
fn a_turn_whose_answer_is_lost_for_days_is_stored_once() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let proxy = CuttingProxy::start(server.port());
    let url = server.url_at(proxy.port());
    let direct = open(&server.url(), patient());
    // The server knows the script from now on: whoever gives it to a server needs an answer.
    let other = wait(direct.create(NewSession::default())).unwrap();
    wait(direct.append(other, turn_of("other"))).unwrap();
    let forget = || {
        for key in server.command(&["KEYS", "*"]).lines() {
            if server.command(&["TTL", key]) != "-1" {
                server.command(&["DEL", key]);
            }
        }
    };
    a_lost_answer_is_no_second_turn(
        &proxy,
        &direct,
        (open(&url, patient()), open(&url, impatient())),
        forget,
    );
}

#[test]
fn every_change_is_made_once_though_its_answer_is_lost() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let proxy = CuttingProxy::start(server.port());
    let store = open(&server.url_at(proxy.port()), patient());
    let named = |name: &str| NewSession { name: Some(name.to_owned()), ..NewSession::default() };
    let sessions = || wait(store.list(&ListQuery::default())).unwrap().len();
    let made: Vec<SessionId> = (0..2).map(|_| wait(store.create(named("one"))).unwrap()).collect();
    // Each is done twice: the first gives the server its script, of the second's answer not a byte arrives.
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
    twice(&|id| assert!(wait(store.find_or_create(named(&format!("of {id}")))).is_ok()));
    assert_eq!(sessions(), 8);
    let held = lease();
    twice(&|id| assert_eq!(wait(store.take(id, &held)).unwrap(), Taken::Ours));
    twice(&|id| {
        let turn = NewTurn {
            lease: Some(held.id.clone()),
            after: Some(Seq::START),
            ..turn_of(&format!("turn of {id}"))
        };
        assert_eq!(wait(store.append(id, turn)).unwrap().last, Seq(EVENTS as u64));
    });
    twice(&|id| assert!(wait(store.renew(id, &held.id, held.lasts)).unwrap()));
    twice(&|id| wait(store.release(id, &held.id)).unwrap());
    twice(&|id| assert!(wait(store.fork(id, Seq::END, named("three"))).is_ok()));
    assert_eq!(sessions(), 10);
    twice(&|id| wait(store.add_tokens(id, Tokens::new(10, 0))).unwrap());
    for id in &made {
        let record = wait(store.get(*id)).unwrap();
        assert_eq!((record.counts.events, record.tokens.input), (EVENTS as u64, 11));
        assert_eq!(turns_in(&store, *id), [format!("turn of {id}")]);
    }
    twice(&|id| wait(store.set_tokens(id, Tokens::default())).unwrap());
    twice(&|id| wait(store.rename(id, "renamed")).unwrap());
    twice(&|id| wait(store.note_run(id, Some("run"))).unwrap());
    // What a summary covers is read before. It is the last answer of which not all arrives.
    let summarize = |id| wait(store.add_compaction(id, &Compaction::new(Seq(1), "summary"))).unwrap();
    summarize(made[0]);
    proxy.arm(None);
    summarize(made[0]);
    let (_, answered) = proxy.passed();
    proxy.arm(Some(Cut { direction: Direction::ToClient, after: answered - 1 }));
    summarize(made[1]);
    twice(&|id| assert!(wait(store.remove_compaction(id, Seq(1))).unwrap()));
    twice(&|id| assert!(wait(store.remove_mark(&format!("turn of {id}"))).unwrap()));
    twice(&|id| wait(store.clear(id)).unwrap());
    twice(&|id| wait(store.delete(id)).unwrap());
    assert_eq!(sessions(), 8);
    assert_eq!(proxy.cuts(), 17);
}

#[test]
fn outputs_go_with_their_session_though_the_answer_of_the_deletion_is_lost() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let private = Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new().permissions(private).tempdir().unwrap();
    let proxy = CuttingProxy::start(server.port());
    let with_originals =
        |url: &str| open(url, impatient()).with_originals(folder.path().join("originals"), true);
    let store = with_originals(&server.url_at(proxy.port()));
    let file = |name: String| {
        let path = folder.path().join(name);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(b"{}\n").unwrap();
        path
    };
    let made = [0, 1, 2].map(|number| {
        let id = wait(store.create(NewSession::default())).unwrap();
        let run = format!("run{number}");
        let [header, output] = ["turn", "jsonl"].map(|kind| file(format!("{run}.{kind}")));
        let new = NewOriginal { run, first: Seq(1), last: Seq(2), header, output, more: None };
        wait(core::Originals::put(&store, id, new)).unwrap();
        id
    });
    // The first gives the server its scripts. Of the last, all but the end of its last answer arrives.
    wait(store.delete(made[0])).unwrap();
    proxy.arm(None);
    wait(store.delete(made[1])).unwrap();
    let (_, answered) = proxy.passed();
    proxy.arm(Some(Cut { direction: Direction::ToClient, after: answered - 1 }));
    let deleted = wait(store.delete(made[2]));
    assert!(matches!(deleted, Err(StoreError::OutcomeUnknown { .. })), "{deleted:?}");
    let direct = with_originals(&server.url());
    assert!(matches!(wait(direct.get(made[2])), Err(StoreError::NoSuchSession(_))));
    wait(core::Originals::finish(&direct)).unwrap();
    let left: Vec<_> = walk(&folder.path().join("originals"));
    assert!(left.is_empty(), "{left:?}");
}

/// Returns the files below a folder, but for locks.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] });
    below.filter(|path| fs::metadata(path).unwrap().len() > 0).collect()
}

/// Passes bytes on to a server until it is told that its connections are dead: from then on it swallows what comes on those
/// that are there, and neither side hears of that. New ones work.
struct DeadLine {
    port: u16,
    is_dead: Arc<AtomicBool>,
}

impl DeadLine {
    fn start(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_dead = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_dead);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) =
                    (client.unwrap(), TcpStream::connect((Ipv4Addr::LOCALHOST, server)).unwrap());
                // One that comes when others are dead already is not.
                let dies = !told.load(Ordering::SeqCst);
                for (mut from, mut to) in
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
                {
                    let told = Arc::clone(&told);
                    std::thread::spawn(move || {
                        let mut buffer = [0; 1 << 16];
                        while let Ok(count @ 1..) = from.read(&mut buffer) {
                            if !(dies && told.load(Ordering::SeqCst))
                                && to.write_all(&buffer[..count]).is_err()
                            {
                                return;
                            }
                        }
                    });
                }
            }
        });
        Self { port, is_dead }
    }
}

#[test]
fn a_connection_that_went_dead_is_left_for_a_new_one() {
    let Some(server) = RedisServer::shared() else { return };
    let line = DeadLine::start(server.port());
    let store = open(&format!("{}?project=dead", server.url_at(line.port)), patient());
    let id = wait(store.create(NewSession::default())).unwrap();
    wait(store.append(id, turn_of("before"))).unwrap();
    line.is_dead.store(true, Ordering::SeqCst);
    wait(store.append(id, turn_of("after"))).unwrap();
    assert_eq!(turns_in(&store, id), ["before", "after"]);
}

#[test]
fn opening_gives_a_silent_server_up_in_its_own_time() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    // With a password it is silent while the connection is made, without one when it is asked.
    for who in ["", ":secret@"] {
        let address: RedisAddress = format!("redis://{who}127.0.0.1:{port}").parse().unwrap();
        let error = wait(RedisStore::open(&address, patient())).err().unwrap();
        // Three seconds, and not the retry budget.
        assert!(
            matches!(&error, StoreError::Unreachable { why, seconds: 2..10, .. } if why.contains("said nothing")),
            "{error}"
        );
    }
}

#[test]
fn clients_go_on_by_themselves_while_the_server_is_killed_ten_times() {
    let test = "redis_faults::clients_go_on_by_themselves_while_the_server_is_killed_ten_times";
    let start = RedisServer::start;
    storm(test, start, |url| wait(RedisStore::open(&url.parse::<RedisAddress>().unwrap(), patient())));
}
