//! Searches by an index and by reading all events give the same answers, on every store.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot continue has failed"
)]

mod contract;
mod file_index;
mod world;

use std::sync::atomic::{AtomicU32, Ordering};

use azureal_core::{Event, IndexKind, NewSession, NewTurn, SessionStore};
use azureal_search::{FileIndex, Filters, Query};
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use azureal_store::redis::{RedisAddress, RedisOptions, RedisStore};
use azureal_store::sqlite::{SqliteOptions, SqliteStore};
use azureal_store::{MemoryStore, ServerAddress};
use azureal_testkit::servers::{PostgresServer, RedisServer};
use azureal_testkit::thorough;
use futures_executor::block_on;
use tempfile::TempDir;

use crate::contract::{search_contract, searcher};

static PROJECTS: AtomicU32 = AtomicU32::new(1);

fn project() -> String {
    format!("search {}", PROJECTS.fetch_add(1, Ordering::Relaxed))
}

fn indexes(folder: &TempDir) -> (FileIndex, FileIndex) {
    let open = |kind| FileIndex::open(&folder.path().join("search"), kind, "x").unwrap();
    (open(IndexKind::Words), open(IndexKind::Substrings))
}

#[test]
fn a_search_of_sqlite_is_a_scan() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("x.azs"), SqliteOptions::default()).unwrap();
    let (words, substrings) = indexes(&folder);
    search_contract(&store, &words, &substrings, thorough(1_000, 4_000));
}

#[test]
fn a_search_of_memory_is_a_scan() {
    let folder = tempfile::tempdir().unwrap();
    let (words, substrings) = indexes(&folder);
    search_contract(&MemoryStore::default(), &words, &substrings, thorough(2_000, 4_000));
}

#[test]
fn a_search_of_redis_is_a_scan() {
    let Some(server) = RedisServer::shared() else { return };
    let mut address: RedisAddress = server.url().parse().unwrap();
    address.set_project(&project()).unwrap();
    let store = block_on(RedisStore::open(&address, RedisOptions::default())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (words, substrings) = indexes(&folder);
    search_contract(&store, &words, &substrings, thorough(300, 4_000));
}

#[test]
fn a_search_of_postgres_is_a_scan() {
    let Some(server) = PostgresServer::shared() else { return };
    let mut address: PostgresAddress = server.url().parse().unwrap();
    address.set_project(&project()).unwrap();
    let store = block_on(PostgresStore::open(&address, PostgresOptions::default())).unwrap();
    let words = block_on(store.search_index()).unwrap().unwrap();
    let folder = tempfile::tempdir().unwrap();
    search_contract(&store, words, &indexes(&folder).1, thorough(300, 4_000));
}

#[test]
fn a_turn_that_postgres_commits_after_later_ones_is_found() {
    let Some(server) = PostgresServer::shared() else { return };
    let mut address: PostgresAddress = server.url().parse().unwrap();
    let project = project();
    address.set_project(&project).unwrap();
    let store = block_on(PostgresStore::open(&address, PostgresOptions::default())).unwrap();
    let index = block_on(store.search_index()).unwrap().unwrap();
    let turn = |text: &str| NewTurn::verbatim([Event::user(text)]);
    let sessions: Vec<_> = (0..6).map(|_| block_on(store.create(NewSession::default())).unwrap()).collect();
    let count = |text: &str| {
        let query = Query::words(text).unwrap();
        let found =
            block_on(searcher(&store, Some(index)).search(&query, &Filters::default(), &mut |_| ())).unwrap();
        assert!(found.index_error.is_none(), "{:?}", found.index_error);
        found.hits.len()
    };
    assert_eq!(count("token"), 0);
    // The place in the list is that of the moment before the others. They commit, and are indexed.
    let late = sessions[2].number();
    let of_late = format!("FROM azureal.sessions WHERE project = '{project}' AND session = {late}");
    let place = server.sql(&format!("SELECT active {of_late}"));
    for session in &sessions[3..] {
        block_on(store.append(*session, turn("an early token"))).unwrap();
    }
    assert_eq!(count("token"), 3);
    block_on(store.append(sessions[2], turn("a late token"))).unwrap();
    server.sql(&format!(
        "UPDATE azureal.sessions SET active = {place} WHERE project = '{project}' AND session = {late}"
    ));
    assert_eq!(count("token"), 4);
}

#[test]
fn an_event_with_more_tokens_than_postgres_can_hold_is_found() {
    let Some(server) = PostgresServer::shared() else { return };
    let mut address: PostgresAddress = server.url().parse().unwrap();
    address.set_project(&project()).unwrap();
    let store = block_on(PostgresStore::open(&address, PostgresOptions::default())).unwrap();
    let session = block_on(store.create(NewSession::default())).unwrap();
    let words: Vec<String> = (0..200_000).map(|number| format!("w{number:x}ord")).collect();
    let events = [Event::user(words.join(" ")), Event::user("wffffford"), Event::user("nothing")];
    block_on(store.append(session, NewTurn::verbatim(events))).unwrap();
    let index = block_on(store.search_index()).unwrap().unwrap();
    for (text, expected) in [
        ("wffford", 1),
        ("wff*", 2),
        ("nothing", 1),
        ("absent", 0),
        ("\"w1ord w2ord\"", 1),
        ("\"w2ord w1ord\"", 0),
    ] {
        let query = Query::words(text).unwrap();
        let found =
            block_on(searcher(&store, Some(index)).search(&query, &Filters::default(), &mut |_| ())).unwrap();
        assert!(found.index_error.is_none(), "{:?}", found.index_error);
        assert_eq!(found.hits.len(), expected, "{text}");
    }
}

#[test]
fn events_that_the_index_in_postgres_has_lost_are_indexed_again() {
    let Some(server) = PostgresServer::shared() else { return };
    let mut address: PostgresAddress = server.url().parse().unwrap();
    let project = project();
    address.set_project(&project).unwrap();
    let store = block_on(PostgresStore::open(&address, PostgresOptions::default())).unwrap();
    let index = block_on(store.search_index()).unwrap().unwrap();
    for number in 0..5 {
        let session = block_on(store.create(NewSession::default())).unwrap();
        // The last event has no words.
        let events = [Event::user(format!("token number{number}")), Event::Compacted];
        block_on(store.append(session, NewTurn::verbatim(events))).unwrap();
    }
    let search = |text: &str| {
        let query = Query::words(text).unwrap();
        let found =
            block_on(searcher(&store, Some(index)).search(&query, &Filters::default(), &mut |_| ())).unwrap();
        (found.hits.len(), found.index_error.map(|error| error.to_string()))
    };
    assert_eq!(search("token"), (5, None));
    assert_eq!(search("absent"), (0, None));
    let lost = server.sql(&format!(
        "WITH lost AS (DELETE FROM azureal.search_events WHERE project = '{project}' AND session < 3 RETURNING seq)
         SELECT count(*) FROM lost WHERE seq > 0"
    ));
    assert_eq!(lost, "2");
    let (found, error) = search("number1");
    let error = error.unwrap_or_default();
    assert!(found == 1 && error.contains("lacks the events of 2 sessions"), "{found}: {error}");
    assert_eq!((search("number1"), search("token")), ((1, None), (5, None)));
}

#[test]
fn a_user_who_may_only_read_has_no_index_in_postgres() {
    let Some(server) = PostgresServer::shared() else { return };
    let mut address: PostgresAddress = server.url().parse().unwrap();
    address.set_project(&project()).unwrap();
    let store = block_on(PostgresStore::open(&address, PostgresOptions::default())).unwrap();
    let session = block_on(store.create(NewSession::default())).unwrap();
    block_on(store.append(session, NewTurn::verbatim([Event::user("one token")]))).unwrap();
    server.sql(&format!(
        "CREATE ROLE searcher LOGIN PASSWORD '{}'; GRANT USAGE ON SCHEMA azureal TO searcher;
         GRANT SELECT ON ALL TABLES IN SCHEMA azureal TO searcher",
        server.password()
    ));
    let address: PostgresAddress = server.url().replace("tester:", "searcher:").parse().unwrap();
    let store = block_on(PostgresStore::open(&address, PostgresOptions::default())).unwrap();
    assert!(block_on(store.search_index()).unwrap().is_none());
}
