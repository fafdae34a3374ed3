//! What a front end hears that watches a store in a file: the turns that run in it.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use azureal_core::{NewSession, SessionStore, Watch};
use azureal_engine::{Leased, SpooledTurn, Spools, this_process};
use azureal_store::SqliteStore;
use azureal_store::sqlite::{SqliteOptions, StoreFolders};
use futures_executor::block_on;

/// Longer than anything takes to be heard.
const LONG: Duration = Duration::from_secs(30);
/// So short that it is over soon.
const SHORT: Duration = Duration::from_millis(100);

#[track_caller]
fn hears(watch: &mut dyn Watch, what: &str) {
    assert!(block_on(watch.changed(LONG)).unwrap(), "{what}");
    // All that belongs to it.
    while block_on(watch.changed(SHORT)).unwrap() {}
}

#[test]
fn who_watches_a_store_hears_when_a_turn_begins_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.azs");
    let store = SqliteStore::open(&file, SqliteOptions::default()).unwrap();
    let session = block_on(store.create(NewSession::default())).unwrap();
    let mut watch = block_on(store.watch_all()).unwrap().unwrap();
    while block_on(watch.changed(SHORT)).unwrap() {}

    let spools = Spools::new(StoreFolders::of(&file, None).spools);
    let Leased::Ours(lease) = spools.lease(session, &this_process("claude")).unwrap() else { panic!() };
    hears(&mut *watch, "a lease, in a folder that was not there");
    let turn = SpooledTurn {
        run: "run".to_owned(),
        session: session.number(),
        session_made: String::new(),
        after: 0,
        generation: None,
        prompt: "Go".to_owned(),
        goes_on: false,
        agent: "claude".to_owned(),
        model: None,
        switches_model: false,
        used_in: None,
        directory: PathBuf::from("/p"),
        started_at: String::new(),
    };
    let spool = spools.begin(turn.clone()).unwrap();
    hears(&mut *watch, "a turn");

    // Looking is not heard: a front end that looks when it hears would never come to rest. Nor is what the agent says.
    assert_eq!(spools.find().unwrap().len(), 1);
    spool.output().unwrap().write_all(b"line\n").unwrap();
    assert!(!block_on(watch.changed(SHORT)).unwrap());

    spools.cancel(&turn).unwrap();
    hears(&mut *watch, "a cancel");
    assert!(spool.remove().unwrap());
    hears(&mut *watch, "the end of the turn");
    drop(lease);
    hears(&mut *watch, "a released lease");
}
