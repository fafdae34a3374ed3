//! A copy takes the place of a store: nothing of the store is lost, and what followed from it stays true.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use azureal_store::core::{
    Event, ListQuery, NewSession, NewTurn, Operation, Page, Seq, SessionId, SessionStore, StoreError, Uuid,
};
use azureal_store::sqlite::health::{
    ExistingCopy, Progress, back_up, deleted_since, forget_restored, restored, restoring,
};
use azureal_store::sqlite::{Journal, SqliteOptions, SqliteStore, rusqlite};
use tempfile::TempDir;

use crate::scratch::{ORIGINAL_OPEN, append, new_session, original_append, original_session, read_all, wait};

const QUIET: Progress<'static> = &|_| ControlFlow::Continue(());

struct Folder(TempDir);

impl Folder {
    /// A store of three sessions, and a copy of it.
    fn with_copy() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let store = folder.open();
        for name in ["one", "two", "three"] {
            let new = NewSession { name: Some(name.to_owned()), ..NewSession::default() };
            let id = wait(store.create(new)).unwrap();
            append(&store, id, [Event::user(name), Event::assistant("ok")]);
        }
        drop(store);
        back_up(&folder.path("x.azs"), &folder.path("copy"), ExistingCopy::Keep, QUIET).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn open(&self) -> SqliteStore {
        open(&self.path("x.azs"))
    }

    /// Puts the copy back; the former store is kept as `kept`.
    fn restore(&self) {
        assert!(self.try_restore().unwrap());
    }

    fn try_restore(&self) -> Result<bool, StoreError> {
        let mut restoring = restoring(&self.path("copy"), &self.path("x.azs"), "note", QUIET)?;
        restoring.replace(&self.path("kept"), QUIET)
    }
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

fn id(number: u32) -> SessionId {
    SessionId::new(number).unwrap()
}

/// Returns the texts of the prompts of a session.
fn prompts(store: &SqliteStore, session: SessionId) -> Vec<String> {
    let text = |event| match event {
        Event::UserMessage(prompt) => Some(prompt.content),
        _ => None,
    };
    read_all(store, session).iter().filter_map(|stored| text(stored.event().unwrap())).collect()
}

#[test]
fn a_restored_store_has_the_content_of_the_copy_for_processes_that_have_it_open() {
    let folder = Folder::with_copy();
    let before = fs::read(folder.path("copy")).unwrap();
    let store = folder.open();
    wait(store.delete(id(1))).unwrap();
    append(&store, id(2), [Event::user("gone")]);
    folder.restore();
    assert_eq!(prompts(&store, id(1)), ["one"]);
    assert_eq!(prompts(&store, id(2)), ["two"]);
    append(&store, id(1), [Event::user("next")]);
    drop(store);
    let kept = open(&folder.path("kept"));
    assert_eq!(prompts(&kept, id(2)), ["two", "gone"]);
    assert!(matches!(wait(kept.get(id(1))), Err(StoreError::NoSuchSession(_))));
    drop(kept);
    assert!(fs::read(folder.path("copy")).unwrap() == before, "the copy is not changed");
    assert_eq!(restored(&folder.path("x.azs")).unwrap().as_deref(), Some("note"));
    forget_restored(&folder.path("x.azs")).unwrap();
    assert_eq!(restored(&folder.path("x.azs")).unwrap(), None);
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(folder.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["copy", "kept", "x.azs"], "no companion and no temporary file stays");
    // To a place where there is no store.
    let mut elsewhere = restoring(&folder.path("copy"), &folder.path("y.azs"), "note", QUIET).unwrap();
    assert!(!elsewhere.replace(&folder.path("not kept"), QUIET).unwrap());
    drop(elsewhere);
    assert_eq!(prompts(&open(&folder.path("y.azs")), id(2)), ["two"]);
    assert_eq!(fs::metadata(folder.path("y.azs")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(names(), ["copy", "kept", "x.azs", "y.azs"]);
}

/// Stores turns as fast as it can while a copy is put back.
fn turns_during_a_restore(journal: Journal, pause: Duration) {
    let folder = Folder::with_copy();
    let options = SqliteOptions { journal, ..SqliteOptions::default() };
    let store = SqliteStore::open(folder.path("x.azs"), options).unwrap();
    append(&store, id(2), [Event::user("0")]);
    let is_over = AtomicBool::new(false);
    let acknowledged = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut acknowledged = Vec::new();
            for number in 1.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let text = number.to_string();
                wait(store.append(id(2), NewTurn::verbatim([Event::user(&text)]))).unwrap();
                acknowledged.push(text);
                thread::sleep(pause);
            }
            acknowledged
        });
        while wait(store.get(id(2))).unwrap().counts.events < 10 {}
        let replaced = folder.try_restore();
        let events = || wait(store.get(id(2))).unwrap().counts.events;
        let last = events();
        while replaced.is_ok() && events() < last + 3 {}
        is_over.store(true, Ordering::Relaxed);
        replaced.unwrap();
        writer.join().unwrap()
    });
    assert!(acknowledged.len() >= 10);
    let now = prompts(&store, id(2));
    let kept = prompts(&open(&folder.path("kept")), id(2));
    let lost: Vec<&String> =
        acknowledged.iter().filter(|turn| !now.contains(turn) && !kept.contains(turn)).collect();
    assert!(lost.is_empty(), "{} of {} turns are nowhere: {lost:?}", lost.len(), acknowledged.len());
    assert!(kept.len() > 7 && now.len() < acknowledged.len(), "{} and {}", kept.len(), now.len());
}

#[test]
fn a_turn_that_is_stored_during_a_restore_is_in_the_store_or_in_the_kept_one() {
    for _ in 0..5 {
        turns_during_a_restore(Journal::Delete, Duration::ZERO);
    }
}

#[test]
fn a_turn_that_is_stored_in_a_log_during_a_restore_is_in_the_store_or_in_the_kept_one() {
    for _ in 0..5 {
        turns_during_a_restore(Journal::Wal, Duration::from_millis(40));
    }
}

#[test]
fn a_restored_store_keeps_its_id_and_gives_no_number_again() {
    let folder = Folder::with_copy();
    let store = folder.open();
    let store_id = wait(store.store_id()).unwrap();
    for _ in 0..3 {
        new_session(&store);
    }
    wait(store.delete(id(6))).unwrap();
    drop(store);
    folder.restore();
    let store = folder.open();
    assert_eq!(wait(store.count()).unwrap(), 3);
    assert_eq!(new_session(&store), id(7), "S4 to S6 are in the kept store");
    assert_eq!(wait(store.store_id()).unwrap(), store_id);
    drop(store);
    // The copy of another store takes over the id of the store that it replaces.
    let other = Folder::with_copy();
    fs::copy(other.path("copy"), folder.path("copy")).unwrap();
    fs::remove_file(folder.path("kept")).unwrap();
    folder.restore();
    assert_eq!(wait(folder.open().store_id()).unwrap(), store_id);
}

#[test]
fn sessions_that_were_deleted_since_are_named_and_revived() {
    let folder = Folder::with_copy();
    let store = folder.open();
    let uuid = |session| wait(store.get(session)).unwrap().uuid.unwrap();
    let (one, two) = (uuid(id(1)), uuid(id(2)));
    assert_eq!(deleted_since(&folder.path("copy"), &folder.path("x.azs")).unwrap(), []);
    let later = new_session(&store);
    let of_later = uuid(later);
    for session in [id(1), later] {
        wait(store.delete(session)).unwrap();
    }
    let deleted = deleted_since(&folder.path("copy"), &folder.path("x.azs")).unwrap();
    assert_eq!(deleted, [(id(1), "one".to_owned())]);
    folder.restore();
    let tombstones = wait(store.tombstones(None, 9)).unwrap();
    assert_eq!(tombstones.len(), 2, "the tombstones stay");
    for tombstone in &tombstones {
        match &tombstone.revived_at {
            Some(revived_at) => assert!(tombstone.uuid == one && *revived_at > tombstone.deleted_at),
            None => assert_eq!(tombstone.uuid, of_later),
        }
    }
    assert_eq!(wait(store.find_uuid(two)).unwrap(), Some(id(2)));
    assert_eq!(deleted_since(&folder.path("copy"), &folder.path("x.azs")).unwrap(), []);
}

#[test]
fn an_operation_of_a_log_that_a_restore_replaced_is_refused() {
    let folder = Folder::with_copy();
    let store = folder.open();
    let operation = |session| Operation::new(Uuid::new_v4(), &wait(store.get(session)).unwrap());
    let (of_changed, of_same) = (operation(id(1)), operation(id(3)));
    let turn = |operation| NewTurn { operation: Some(operation), ..NewTurn::verbatim([Event::user("once")]) };
    wait(store.append(id(1), turn(of_changed))).unwrap();
    folder.restore();
    // Whether it was stored cannot be told: it was, and is gone.
    let again = wait(store.append(id(1), turn(of_changed)));
    assert!(matches!(again, Err(StoreError::Cleared(_))), "{again:?}");
    assert_eq!(wait(store.append(id(3), turn(of_same))).unwrap().first, Seq(3));
}

#[test]
fn a_copy_takes_the_place_of_a_store_of_the_original_program() {
    let folder = Folder::with_copy();
    fs::remove_file(folder.path("x.azs")).unwrap();
    let original = rusqlite::Connection::open(folder.path("x.azs")).unwrap();
    original.execute_batch(ORIGINAL_OPEN).unwrap();
    for _ in 0..5 {
        let session = original_session(&original, ".");
        original_append(&original, session, &[Event::user("theirs")]);
    }
    drop(original);
    folder.restore();
    let store = folder.open();
    assert_eq!(wait(store.list(&ListQuery::default())).unwrap().len(), 3);
    assert_eq!(new_session(&store), id(6));
    let kept = open(&folder.path("kept"));
    assert_eq!(wait(kept.read(id(5), Page::last(1))).unwrap().len(), 1);
}

/// A store whose index has another definition: it cannot be used, and all of it can be read.
fn damage(store: &Path) {
    let connection = rusqlite::Connection::open(store).unwrap();
    connection
        .execute_batch(
            "PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = 'CREATE INDEX idx_sessions_name ON sessions(worktree)'
             WHERE name = 'idx_sessions_name';",
        )
        .unwrap();
}

#[test]
fn a_restore_that_fails_removes_no_file_that_it_has_not_written() {
    let folder = Folder::with_copy();
    damage(&folder.path("x.azs"));
    fs::write(folder.path("kept"), "the only copy").unwrap();
    assert!(folder.try_restore().is_err());
    assert_eq!(fs::read(folder.path("kept")).unwrap(), b"the only copy");
}

#[test]
fn a_store_that_cannot_be_used_is_kept_as_it_is_and_never_without_a_file_in_its_place() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::with_copy();
    let store = folder.path("x.azs");
    fs::create_dir(folder.path("git")).unwrap();
    let second = folder.path("git/x.azs");
    fs::hard_link(&store, &second).unwrap();
    append(&open(&folder.path("copy")), id(1), [Event::user("of the copy")]);
    damage(&store);
    let former = fs::metadata(&store).unwrap().ino();
    let mut putting_back = restoring(&folder.path("copy"), &store, "note", QUIET).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert!(store.exists(), "there is no store");
            }
        });
        assert!(putting_back.replace(&folder.path("kept"), QUIET).is_err());
        putting_back.replace_unusable(&folder.path("kept"), Some(&second)).unwrap();
        is_over.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
    drop(putting_back);
    assert_eq!(fs::metadata(folder.path("kept")).unwrap().ino(), former);
    assert!(!second.exists(), "the second name is that of the former file");
    assert_eq!(prompts(&folder.open(), id(1)), ["one", "of the copy"]);
    // A name that something has is not taken.
    damage(&store);
    let mut again = restoring(&folder.path("copy"), &store, "note", QUIET).unwrap();
    assert!(again.replace_unusable(&folder.path("kept"), None).is_err());
    assert_eq!(fs::metadata(folder.path("kept")).unwrap().ino(), former);
}

#[test]
fn a_store_of_a_newer_version_is_not_rewritten_in_place() {
    for (key, version) in [("schema_version", "4"), ("azureal_format", "2")] {
        let folder = Folder::with_copy();
        let connection = rusqlite::Connection::open(folder.path("x.azs")).unwrap();
        connection.execute("UPDATE meta SET value = ?2 WHERE key = ?1", [key, version]).unwrap();
        drop(connection);
        let before = fs::read(folder.path("x.azs")).unwrap();
        assert!(matches!(folder.try_restore(), Err(StoreError::Newer { .. })), "{key}");
        let forgotten = forget_restored(&folder.path("x.azs"));
        assert!(matches!(forgotten, Err(StoreError::Newer { .. })), "{key}");
        assert!(fs::read(folder.path("x.azs")).unwrap() == before, "{key}");
        assert!(!folder.path("kept").exists(), "{key}");
    }
}

/// As when the upgrade comes after the first copy of the store.
#[test]
fn a_store_that_a_newer_azureal_upgrades_during_a_restore_is_not_rewritten() {
    let folder = Folder::with_copy();
    let upgrade = || {
        let connection = rusqlite::Connection::open(folder.path("x.azs")).unwrap();
        connection.execute("UPDATE meta SET value = '2' WHERE key = 'azureal_format'", []).unwrap();
        ControlFlow::Continue(())
    };
    let mut putting_back = restoring(&folder.path("copy"), &folder.path("x.azs"), "note", QUIET).unwrap();
    // The first thing that is heard is the check of the copy that was made of the store.
    let is_upgraded = AtomicBool::new(false);
    let replaced = putting_back.replace(&folder.path("kept"), &|what| {
        let is_check = what == "the file" && !is_upgraded.swap(true, Ordering::Relaxed);
        if is_check { upgrade() } else { ControlFlow::Continue(()) }
    });
    assert!(is_upgraded.into_inner());
    assert!(matches!(replaced, Err(StoreError::Newer { .. })), "{replaced:?}");
    let connection = rusqlite::Connection::open(folder.path("x.azs")).unwrap();
    let format = "SELECT value FROM meta WHERE key = 'azureal_format'";
    assert_eq!(connection.query_row(format, [], |row| row.get::<_, String>(0)).unwrap(), "2");
}

/// Damages the first page, such that SQLite opens the file no more.
fn damage_header(store: &Path) {
    use std::os::unix::fs::FileExt;
    fs::OpenOptions::new().write(true).open(store).unwrap().write_all_at(b"no header", 0).unwrap();
}

#[test]
fn what_can_be_read_of_a_store_that_cannot_be_used_stays_true() {
    for (damage, is_readable) in [(damage as fn(&Path), true), (damage_header, false)] {
        let folder = Folder::with_copy();
        let store = folder.open();
        let store_id = wait(store.store_id()).unwrap();
        let deleted = wait(store.get(id(1))).unwrap().uuid.unwrap();
        for _ in 0..3 {
            new_session(&store);
        }
        wait(store.delete(id(6))).unwrap();
        wait(store.delete(id(1))).unwrap();
        drop(store);
        damage(&folder.path("x.azs"));
        let mut putting_back = restoring(&folder.path("copy"), &folder.path("x.azs"), "note", QUIET).unwrap();
        assert!(putting_back.replace(&folder.path("kept"), QUIET).is_err());
        putting_back.replace_unusable(&folder.path("kept"), None).unwrap();
        drop(putting_back);
        let store = folder.open();
        assert_eq!(new_session(&store), id(7), "S4 to S6 are in the kept store");
        if is_readable {
            assert_eq!(wait(store.store_id()).unwrap(), store_id);
            let tombstones = wait(store.tombstones(None, 9)).unwrap();
            assert_eq!(tombstones.len(), 2, "the tombstones stay");
            let revived = tombstones.iter().find(|tombstone| tombstone.revived_at.is_some());
            assert_eq!(revived.unwrap().uuid, deleted, "the copy brings it back");
        }
    }
}
