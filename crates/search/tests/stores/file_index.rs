//! An index in a file: made again when it has to be, and never a reason for a wrong answer.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use azureal_core::IndexKind::{Substrings, Words};
use azureal_core::{Event, NewSession, NewTurn, SearchIndex, Seq, SessionId, SessionStore};
use azureal_search::{Case, FileIndex, Filters, Found, Query, Searcher, is_damage};
use azureal_store::MemoryStore;
use azureal_store::sqlite::{SqliteOptions, SqliteStore};
use azureal_testkit::thorough;
use futures_executor::block_on;

use crate::contract::{filters, searcher};
use crate::world::{Random, change, query};

fn session(store: &dyn SessionStore, texts: &[&str]) -> SessionId {
    let id = block_on(store.create(NewSession::default())).unwrap();
    append(store, id, texts);
    id
}

fn append(store: &dyn SessionStore, id: SessionId, texts: &[&str]) {
    let events = texts.iter().map(|text| Event::user(*text));
    block_on(store.append(id, NewTurn::verbatim(events))).unwrap();
}

fn found(store: &dyn SessionStore, index: Option<&dyn SearchIndex>, text: &str) -> Found {
    let query = Query::words(text).unwrap();
    block_on(searcher(store, index).search(&query, &Filters::default(), &mut |_| ())).unwrap()
}

fn count(store: &dyn SessionStore, index: &FileIndex, text: &str) -> usize {
    let found = found(store, Some(index), text);
    assert!(found.index_error.is_none(), "{:?}", found.index_error);
    found.hits.len()
}

#[test]
fn a_turn_of_long_ago_that_is_imported_now_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = MemoryStore::default();
    let earlier = session(&store, &["first"]);
    for _ in 0..40 {
        session(&store, &["another"]);
    }
    let index = FileIndex::open(&folder.path().join("search"), Words, "x").unwrap();
    assert_eq!(count(&store, &index, "imported"), 0);
    let happened_at = Some("2020-01-31T09:30:00Z".to_owned());
    let turn = NewTurn { happened_at, ..NewTurn::verbatim([Event::user("imported")]) };
    block_on(store.append(earlier, turn)).unwrap();
    assert_eq!(count(&store, &index, "imported"), 1);
}

#[test]
fn an_index_in_a_file_is_private_and_survives() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("search");
    let store = MemoryStore::default();
    session(&store, &["one token"]);
    let index = FileIndex::open(&place, Words, "x").unwrap();
    assert_eq!(count(&store, &index, "token"), 1);
    for entry in fs::read_dir(&place).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
    }
    assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700);
    drop(index);
    let index = FileIndex::open(&place, Words, "x").unwrap();
    assert_eq!(block_on(index.states(None)).unwrap().len(), 1);
    // Of another store it is made again.
    drop(index);
    let index = FileIndex::open(&place, Words, "y").unwrap();
    assert_eq!(block_on(index.states(None)).unwrap().len(), 0);
    assert_eq!(count(&store, &index, "token"), 1);
    FileIndex::delete(&place, Words).unwrap();
    FileIndex::delete(&place, Words).unwrap();
    assert!(!place.exists());
}

#[test]
fn a_damaged_or_foreign_file_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("search");
    let file = place.join("words.sqlite");
    let store = MemoryStore::default();
    let texts: Vec<String> =
        (0..2000).map(|number| format!("token number{number} and word{}", number * 7)).collect();
    session(&store, &texts.iter().map(String::as_str).collect::<Vec<_>>());
    let fresh = || {
        let index = FileIndex::open(&place, Words, "x").unwrap();
        assert_eq!(count(&store, &index, "token number5"), 1);
        index
    };
    let sqlite = |sql: &str| {
        let connection = rusqlite::Connection::open(&file).unwrap();
        connection.execute_batch(sql).unwrap();
    };
    for damage in 0..7 {
        drop(fresh());
        match damage {
            0 => fs::write(&file, "no database").unwrap(),
            1 => fs::write(&file, "").unwrap(),
            2 => sqlite("PRAGMA user_version = 7"),
            3 => sqlite("CREATE TRIGGER t AFTER INSERT ON blocks BEGIN DELETE FROM sessions; END"),
            4 => sqlite("CREATE TABLE more (x)"),
            5 => {
                sqlite("DROP TABLE blocks; CREATE TABLE blocks (first, count, session, seq, agent, indexed)");
            }
            _ => {
                let bytes = fs::read(&file).unwrap();
                fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
            }
        }
        // A file that is cut may still open: then the first query finds it out, and the events are read.
        let index = FileIndex::open(&place, Words, "x").unwrap();
        let result = found(&store, Some(&index), "token number5");
        assert_eq!(result.hits.len(), 1, "damage {damage}");
        if let Some(error) = &result.index_error {
            assert!(is_damage(error), "{error}");
            drop(index);
            FileIndex::delete(&place, Words).unwrap();
        }
    }
    // Every page in turn is zeroed: the answer is right, whatever the index does.
    drop(fresh());
    sqlite("PRAGMA wal_checkpoint(TRUNCATE)");
    let bytes = fs::read(&file).unwrap();
    for page in 1..bytes.len() / 4096 {
        for companion in ["-wal", "-shm"] {
            fs::remove_file(place.join(format!("words.sqlite{companion}"))).ok();
        }
        let mut damaged = bytes.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0);
        fs::write(&file, damaged).unwrap();
        let Ok(index) = FileIndex::open(&place, Words, "x") else { panic!("page {page}") };
        let query = Query::words("number1500").unwrap();
        let result =
            block_on(searcher(&store, Some(&index)).search(&query, &Filters::default(), &mut |_| ()));
        let result = result.unwrap();
        assert_eq!(result.hits.len(), 1, "page {page}: {:?}", result.index_error);
    }
}

#[test]
fn two_indexes_share_a_folder_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("search");
    let store = MemoryStore::default();
    session(&store, &["fn foo(a) -> Bar", "bar"]);
    let search = |text: &str, case: Case| {
        let index = FileIndex::open(&place, Substrings, "x").unwrap();
        let query = Query::fixed(text, case).unwrap();
        let found = block_on(searcher(&store, Some(&index)).search(&query, &Filters::default(), &mut |_| ()))
            .unwrap();
        assert!(found.index_error.is_none(), "{:?}", found.index_error);
        (found.hits.len(), found.scanned)
    };
    // The last number is that of the sessions that were read.
    for (text, case, expected) in [
        ("oo(a) -> ", Case::Sensitive, (1, 0)),
        ("bar", Case::Sensitive, (1, 0)),
        ("BAR", Case::Ignored, (2, 0)),
        ("foo(b", Case::Sensitive, (0, 0)),
        // Too short for an index.
        ("->", Case::Sensitive, (1, 1)),
    ] {
        assert_eq!(search(text, case), expected, "{text}");
    }
    assert!(!FileIndex::path(&place, Words).exists());
    assert_eq!(count(&store, &FileIndex::open(&place, Words, "x").unwrap(), "bar"), 2);
    // A file of the other kind is made again.
    fs::copy(FileIndex::path(&place, Words), FileIndex::path(&place, Substrings)).unwrap();
    assert_eq!(search("oo(a) -> ", Case::Sensitive), (1, 0));
    FileIndex::delete(&place, Words).unwrap();
    assert!(!FileIndex::path(&place, Words).exists() && FileIndex::path(&place, Substrings).exists());
    FileIndex::delete(&place, Substrings).unwrap();
    assert!(!place.exists());
}

#[test]
fn an_index_that_does_not_narrow_down_loses_no_hit() {
    let folder = tempfile::tempdir().unwrap();
    let store = MemoryStore::default();
    let index = FileIndex::open(&folder.path().join("search"), Substrings, "x").unwrap();
    session(&store, &["the abcdef is oldest"]);
    // They have the same trigrams, and are newer.
    let others = vec!["abcde bcdef abcdXef"; 6_000];
    session(&store, &others);
    let query = Query::fixed("abcdef", Case::Sensitive).unwrap();
    let mut limited = searcher(&store, Some(&index));
    limited.limit = Some(5);
    let found = block_on(limited.search(&query, &Filters::default(), &mut |_| ())).unwrap();
    assert_eq!((found.hits.len(), found.total.events, found.total.is_least), (1, 1, false));
}

#[test]
fn of_many_events_that_are_read_the_newest_are_kept() {
    let store = MemoryStore::default();
    session(&store, &["oldest ->"]);
    session(&store, &vec!["a -> b"; 6_000]);
    let query = Query::fixed("->", Case::Sensitive).unwrap();
    let mut limited = searcher(&store, None);
    limited.limit = Some(2);
    let found = block_on(limited.search(&query, &Filters::default(), &mut |_| ())).unwrap();
    let places: Vec<(u32, u64)> = found.hits.iter().map(|hit| (hit.session.id.number(), hit.seq.0)).collect();
    assert_eq!((places.as_slice(), found.total.events), (&[(2, 6_000), (2, 5_999)][..], 6_001));
}

#[test]
fn a_hit_whose_event_is_gone_or_another_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let store = MemoryStore::default();
    let index = FileIndex::open(&folder.path().join("search"), Words, "x").unwrap();
    let (first, second, third) = (
        session(&store, &["token a"]),
        session(&store, &["token b", "token c"]),
        session(&store, &["token d"]),
    );
    assert_eq!(count(&store, &index, "token"), 4);
    block_on(store.delete(first)).unwrap();
    block_on(store.clear(second)).unwrap();
    block_on(store.clear(third)).unwrap();
    append(&store, third, &["something else"]);
    assert_eq!(count(&store, &index, "token"), 0);
    assert_eq!(count(&store, &index, "something"), 1);
    // As many events as before, and the last one is the same: the log is another one all the same.
    append(&store, second, &["new words", "token c"]);
    assert_eq!(count(&store, &index, "token"), 1);
    assert_eq!(count(&store, &index, "new words"), 1);
}

#[test]
fn an_index_ranks_as_a_scan_does() {
    for seed in 1..=2 {
        let folder = tempfile::tempdir().unwrap();
        let store = MemoryStore::default();
        let index = FileIndex::open(&folder.path().join("search"), Words, "x").unwrap();
        let (mut random, mut sessions, mut hits) = (Random::new(seed), Vec::new(), 0);
        for _ in 0..400 {
            change(&store, &mut sessions, &mut random);
        }
        for _ in 0..thorough(300, 3_000) {
            let (text, Ok(query @ Query::Words(_))) = query(&mut random) else { continue };
            // The others leave out whole sessions: a scan does not know how rare a word is in all of them.
            let filters = Filters {
                sessions: None,
                without: None,
                worktree: None,
                since: None,
                ..filters(&mut random, &[])
            };
            let scores = |index: Option<&dyn SearchIndex>| {
                let found = block_on(searcher(&store, index).search(&query, &filters, &mut |_| ())).unwrap();
                let hits = found.hits.into_iter().map(|hit| ((hit.session.id, hit.seq), hit.score));
                hits.collect::<BTreeMap<_, _>>()
            };
            let (by_index, by_scan) = (scores(Some(&index)), scores(None));
            hits += by_index.len();
            let is_same = |place: &(SessionId, Seq)| {
                // Not exactly: the two searches take place at different times.
                by_scan.get(place).is_some_and(|score| (score / by_index[place] - 1.0).abs() < 1e-5)
            };
            assert!(
                by_index.len() == by_scan.len() && by_index.keys().all(is_same),
                "{text} {filters:?}: {by_index:?} by the index, {by_scan:?} by a scan"
            );
        }
        assert!(hits > 1000, "{hits}");
    }
}

#[test]
fn sessions_that_are_gone_or_back_are_noticed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("x.azs"), folder.path().join("copy.azs"));
    let open = || SqliteStore::open(&file, SqliteOptions::default()).unwrap();
    let store = open();
    let ids: Vec<SessionId> =
        (0..40).map(|number| session(&store, &[&format!("token number{number}")])).collect();
    let index = FileIndex::open(&folder.path().join("search"), Words, "x").unwrap();
    let total = |store: &SqliteStore, text: &str| {
        let query = Query::words(text).unwrap();
        let limited = Searcher { limit: Some(1), ..searcher(store, Some(&index)) };
        let found = block_on(limited.search(&query, &Filters::default(), &mut |_| ())).unwrap();
        assert!(found.index_error.is_none(), "{:?}", found.index_error);
        (found.total.events, found.total.is_least)
    };
    assert_eq!(total(&store, "token"), (40, false));
    block_on(store.close()).unwrap();
    fs::copy(&file, &copy).unwrap();
    let store = open();
    for id in ids.iter().take(3) {
        block_on(store.delete(*id)).unwrap();
    }
    assert_eq!((total(&store, "token"), total(&store, "number1")), ((37, false), (0, false)));
    block_on(store.close()).unwrap();
    fs::copy(&copy, &file).unwrap();
    let store = open();
    assert_eq!((total(&store, "number1"), total(&store, "token")), ((1, false), (40, false)));
}

#[test]
fn events_that_the_index_has_lost_are_found() {
    for (lost, session_found) in [
        ("DELETE FROM blocks WHERE session = 3", "number2"),
        ("DELETE FROM tokens WHERE rowid BETWEEN 2 AND 3", "number1"),
        ("DELETE FROM sessions", "number0"),
        ("DELETE FROM tokens; DELETE FROM blocks", "number4"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("search");
        let store = MemoryStore::default();
        for number in 0..5 {
            session(&store, &[&format!("token number{number}")]);
        }
        assert_eq!(count(&store, &FileIndex::open(&place, Words, "x").unwrap(), "token"), 5);
        let file = rusqlite::Connection::open(FileIndex::path(&place, Words)).unwrap();
        file.execute_batch(lost).unwrap();
        drop(file);
        let index = FileIndex::open(&place, Words, "x").unwrap();
        let found = found(&store, Some(&index), session_found);
        assert_eq!(found.hits.len(), 1, "{lost}");
        assert!(found.index_error.as_ref().is_none_or(is_damage), "{lost}: {:?}", found.index_error);
    }
}

#[test]
fn sessions_that_are_not_indexed_in_time_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = MemoryStore::default();
    let index = FileIndex::open(&folder.path().join("search"), Words, "x").unwrap();
    for number in 0..20 {
        session(&store, &[&format!("token {number}"), "other"]);
    }
    let query = Query::words("token").unwrap();
    let mut hurried = searcher(&store, Some(&index));
    hurried.catch_up = Duration::ZERO;
    let found = block_on(hurried.search(&query, &Filters::default(), &mut |_| ())).unwrap();
    assert_eq!((found.hits.len(), found.scanned, found.not_searched), (20, 20, 0));
    hurried.scan = Duration::ZERO;
    let found = block_on(hurried.search(&query, &Filters::default(), &mut |_| ())).unwrap();
    assert_eq!((found.hits.len(), found.not_searched, found.total.is_least), (0, 20, true));
    assert_eq!(count(&store, &index, "token"), 20);
}

#[test]
fn a_long_session_is_indexed_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let store = MemoryStore::default();
    let index = FileIndex::open(&folder.path().join("search"), Words, "x").unwrap();
    let id = session(&store, &["first"]);
    let long = "word ".repeat(20_000);
    for number in 0..120 {
        append(&store, id, &[&format!("{long} token{number}")]);
    }
    assert_eq!(count(&store, &index, "token*"), 120);
    assert_eq!(count(&store, &index, "token77"), 1);
    let state = block_on(index.states(Some(&[id]))).unwrap().pop().unwrap().1;
    assert_eq!(state.through, Seq(121));
    append(&store, id, &["token77 again"]);
    assert_eq!(count(&store, &index, "token77"), 2);
}

#[test]
fn two_processes_index_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("search");
    let file = folder.path().join("x.azs");
    let store = SqliteStore::open(&file, SqliteOptions::default()).unwrap();
    let ids: Vec<SessionId> = (0..30).map(|number| session(&store, &[&format!("token {number}")])).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = SqliteStore::open(&file, SqliteOptions::default()).unwrap();
                let index = FileIndex::open(&place, Words, "x").unwrap();
                for (round, id) in ids.iter().take(10).enumerate() {
                    let found = found(&store, Some(&index), "token");
                    assert!(found.index_error.is_none(), "{:?}", found.index_error);
                    assert!(found.hits.len() >= 30, "round {round}: {}", found.hits.len());
                    append(&store, *id, &["token more"]);
                }
            });
        }
    });
    let index = FileIndex::open(&place, Words, "x").unwrap();
    assert_eq!(count(&store, &index, "token"), 70);
    assert_eq!(found(&store, None, "token").hits.len(), 70);
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error_and_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    let open_to_others = folder.path().join("open");
    fs::create_dir(&open_to_others).unwrap();
    fs::set_permissions(&open_to_others, fs::Permissions::from_mode(0o777)).unwrap();
    let places: [&Path; 3] = [&link, &open_to_others, &folder.path().join("missing/search")];
    for place in places {
        let Err(error) = FileIndex::open(place, Words, "x") else { panic!("{}", place.display()) };
        assert!(!is_damage(&error), "{error}");
    }
}
