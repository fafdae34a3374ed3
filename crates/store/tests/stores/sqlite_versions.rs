//! A file that another version writes, and what this version adds to it.

use azureal_store::core::{
    Compaction, CrashNotes, Event, ListQuery, NewEvent, NewSession, NewTurn, Operation, Seq, SessionStore,
    StoreError, Tokens, Uuid,
};
use azureal_store::sqlite::SqliteStore;
use azureal_store::sqlite::rusqlite::Connection;

use crate::scratch::{
    ORIGINAL_OPEN, Project, append, new_session, original_append, original_session, read_all, wait,
};

fn raise(project: &Project, key: &str, version: &str) {
    project.raw().execute("INSERT OR REPLACE INTO meta VALUES (?1, ?2)", [key, version]).unwrap();
}

/// Returns the answer of every call that writes.
fn write_all(store: &SqliteStore) -> Vec<(&'static str, Result<(), StoreError>)> {
    let id = "S1".parse().unwrap();
    let turn = || NewTurn::verbatim([Event::user("more")]);
    let new = NewSession::default;
    let summary = Compaction::new(Seq(1), "summary");
    vec![
        ("append", wait(store.append(id, turn())).map(drop)),
        ("create", wait(store.create(new())).map(drop)),
        ("create_with", wait(store.create_with(new(), turn(), vec![])).map(drop)),
        (
            "find_or_create",
            wait(store.find_or_create(NewSession { name: Some("x".to_owned()), ..new() })).map(drop),
        ),
        ("rename", wait(store.rename(id, "y"))),
        ("fork", wait(store.fork(id, Seq::END, new())).map(drop)),
        ("set_tokens", wait(store.set_tokens(id, Tokens::new(1, 2)))),
        ("add_tokens", wait(store.add_tokens(id, Tokens::new(1, 2)))),
        ("add_compaction", wait(store.add_compaction(id, &summary))),
        ("remove_compaction", wait(store.remove_compaction(id, Seq(1))).map(drop)),
        ("note_run", wait(store.note_run(id, Some("run")))),
        ("remove_mark", wait(store.remove_mark("mark")).map(drop)),
        ("clear_original_run", wait(store.clear_original_run(id, "run")).map(drop)),
        ("clear", wait(store.clear(id))),
        ("delete", wait(store.delete(id))),
    ]
}

#[test]
fn an_open_store_writes_nothing_once_a_newer_azureal_has_upgraded_the_file() {
    for (key, version) in [("schema_version", "4"), ("azureal_format", "2")] {
        let project = Project::new();
        let store = project.store();
        append(&store, new_session(&store), [Event::user("hello")]);
        raise(&project, key, version);
        let before = std::fs::read(project.path()).unwrap();
        for (call, answer) in write_all(&store) {
            assert!(
                matches!(&answer, Err(StoreError::Newer { found, .. }) if found == version),
                "{call} with {key} {version}: {answer:?}"
            );
        }
        assert!(std::fs::read(project.path()).unwrap() == before, "{key}");
        // With the former version it would be ours again.
        raise(&project, key, if key == "schema_version" { "3" } else { "1" });
        for (call, answer) in write_all(&store) {
            assert!(answer.is_ok(), "{call}: {answer:?}");
        }
    }
}

#[test]
fn an_upgrade_does_not_take_back_that_of_a_newer_azureal() {
    let project = Project::new();
    let original = project.original();
    let session = original_session(&original, ".");
    original_append(&original, session, &[Event::user("hello")]);
    drop(original);
    let store = project.store();
    raise(&project, "azureal_format", "2");
    let refused = wait(store.rename("S1".parse().unwrap(), "a name"));
    assert!(matches!(refused, Err(StoreError::Newer { .. })), "{refused:?}");
    let format = "SELECT value FROM meta WHERE key = 'azureal_format'";
    assert_eq!(project.raw().query_row(format, [], |row| row.get::<_, String>(0)).unwrap(), "2");
}

/// Takes what the last upgrade added out of a file.
fn downgrade(file: &Connection) {
    file.execute_batch(
        "DROP INDEX idx_events_operation;
         ALTER TABLE events DROP COLUMN operation; ALTER TABLE events DROP COLUMN entry;
         ALTER TABLE events DROP COLUMN removed;
         ALTER TABLE sessions DROP COLUMN named_at; ALTER TABLE sessions DROP COLUMN generation;
         DELETE FROM meta WHERE key = 'store_uuid';",
    )
    .unwrap();
}

#[test]
fn a_file_without_ids_and_times_is_read_as_it_is_and_gets_them_with_the_first_change() {
    let project = Project::new();
    let store = project.store();
    let id =
        wait(store.create(NewSession { name: Some("a name".to_owned()), ..NewSession::default() })).unwrap();
    append(&store, id, [Event::user("one"), Event::assistant("two")]);
    drop(store);
    downgrade(&project.raw());
    let before = std::fs::read(project.path()).unwrap();
    let store = project.store();
    let record = wait(store.get(id)).unwrap();
    assert_eq!((record.named_at.as_str(), record.generation), ("", 0));
    assert_eq!(wait(store.list(&ListQuery::default())).unwrap(), std::slice::from_ref(&record));
    let events = read_all(&store, id);
    assert!(events.iter().all(|event| event.entry.is_none() && event.removed_at.is_none()), "{events:?}");
    assert_eq!(wait(store.read_prompts(id, Seq::END, 9)).unwrap(), events[..1]);
    assert_eq!(wait(store.store_id()).unwrap(), None);
    assert_eq!(wait(store.tombstones(None, 9)).unwrap(), []);
    assert!(std::fs::read(project.path()).unwrap() == before, "reading has written");

    let operation = Some(Operation::new(Uuid::from_u128(7), &record));
    let turn = NewTurn { operation, ..NewTurn::verbatim([Event::user("three")]) };
    let appended = wait(store.append(id, turn.clone())).unwrap();
    assert_eq!(wait(store.append(id, turn)).unwrap(), appended);
    let store_id = wait(store.store_id()).unwrap();
    assert!(store_id.is_some());
    drop(store);
    let store = project.store();
    assert_eq!(wait(store.store_id()).unwrap(), store_id);
    wait(store.clear(id)).unwrap();
    assert_eq!(wait(store.get(id)).unwrap().generation, 1);
}

#[test]
fn the_original_program_writes_to_a_file_with_our_additions() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    let record = wait(store.get(id)).unwrap();
    let entry = NewEvent::from(Event::user("ours")).with_entry(Some("call_1".to_owned()));
    let operation = Some(Operation::new(Uuid::from_u128(7), &record));
    let turn = NewTurn { events: vec![entry], operation, ..NewTurn::default() };
    let appended = wait(store.append(id, turn.clone())).unwrap();
    let store_id = wait(store.store_id()).unwrap();

    let original = project.raw();
    original.execute_batch(ORIGINAL_OPEN).unwrap();
    original_append(&original, 1, &[Event::user("theirs")]);
    let theirs = original_session(&original, "branch");
    original_append(&original, theirs, &[Event::user("a"), Event::assistant("b")]);
    drop(original);

    assert_eq!(wait(store.append(id, turn)).unwrap(), appended);
    let entries: Vec<_> = read_all(&store, id).into_iter().map(|event| event.entry).collect();
    assert_eq!(entries, [Some("call_1".to_owned()), None]);
    assert_eq!(wait(store.store_id()).unwrap(), store_id);
    // Its session has an identity to be known by once it is deleted.
    let theirs = format!("S{theirs}").parse().unwrap();
    wait(store.delete(theirs)).unwrap();
    let tombstones = wait(store.tombstones(None, 9)).unwrap();
    assert_eq!(tombstones.iter().map(|tombstone| tombstone.events).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_tombstone_that_is_damaged_still_keeps_its_session_away() {
    let project = Project::new();
    let store = project.store();
    let uuid = Uuid::from_u128(7);
    let new = || NewSession { uuid: Some(uuid), ..NewSession::default() };
    let id = wait(store.create(new())).unwrap();
    wait(store.delete(id)).unwrap();
    for value in ["''", "'9'", "x'ff'", "zeroblob(1000000)", "'2026-01-31T09:30:00Z x'"] {
        let raw = project.raw();
        raw.execute_batch(&format!("UPDATE meta SET value = {value} WHERE key LIKE 'deleted:%'")).unwrap();
        raw.execute_batch("INSERT OR REPLACE INTO meta VALUES ('deleted:none', 'x')").unwrap();
        let tombstones = wait(store.tombstones(None, 9)).unwrap();
        assert_eq!(tombstones.iter().map(|found| found.uuid).collect::<Vec<_>>(), [uuid], "{value}");
        let id = wait(store.create(new())).unwrap();
        assert!(wait(store.tombstones(None, 9)).unwrap()[0].revived_at.is_some(), "{value}");
        wait(store.delete(id)).unwrap();
        assert!(wait(store.tombstones(None, 9)).unwrap()[0].revived_at.is_none(), "{value}");
    }
}
