//! Checks and repairs of damaged files: everything that can be read stays.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use azureal_core::{Event, NewSession, NewTurn, Page, Seq, SessionId, SessionStore};
use azureal_store::SqliteStore;
use azureal_store::sqlite::health::{
    ExistingCopy, Progress, Repaired, StoreProblem, back_up, inspect, name_again, names, repair,
};
use azureal_store::sqlite::{SqliteOptions, rusqlite::Connection};
use futures_executor::block_on;
use tempfile::TempDir;

use crate::scratch::ORIGINAL_OPEN;

const QUIET: Progress<'static> = &|_| ControlFlow::Continue(());
const SESSIONS: u32 = 12;
const TURNS: u64 = 40;

struct Folder(TempDir);

impl Folder {
    /// A store with sessions whose events fill many pages.
    fn with_store() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let store = SqliteStore::open(folder.store(), SqliteOptions::default()).unwrap();
        for number in 1..=SESSIONS {
            let id = block_on(store.create(NewSession::default())).unwrap();
            for turn in 1..=TURNS {
                // Not compressible, so that it takes room.
                let noise: String = (0..40).map(|part| format!("{:x}", hash(number, turn, part))).collect();
                let events = [Event::user(format!("prompt {turn}")), Event::assistant(noise)];
                block_on(store.append(id, NewTurn::verbatim(events))).unwrap();
            }
        }
        block_on(store.close()).unwrap();
        folder
    }

    /// A copy of another store.
    fn copy_of(template: &Self) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::copy(template.store(), folder.store()).unwrap();
        folder
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("x.azs")
    }

    fn sql(&self, sql: &str) {
        let connection = Connection::open(self.store()).unwrap();
        connection.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        connection.execute_batch(sql).unwrap();
    }

    /// Overwrites a page, counted from 1.
    fn overwrite(&self, page: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(self.store()).unwrap();
        file.write_all_at(bytes, (page - 1) * 4096).unwrap();
    }

    fn kinds(&self) -> Vec<&'static str> {
        let mut kinds: Vec<_> =
            inspect(&self.store(), QUIET).unwrap().problems.iter().map(StoreProblem::kind).collect();
        kinds.dedup();
        kinds
    }

    fn repair(&self) -> Repaired {
        let repaired = repair(&self.store(), None, &[], QUIET).unwrap();
        let again = inspect(&self.store(), QUIET).unwrap();
        assert_eq!(again.problems, [], "after the repair");
        for path in [Some(&repaired.backup), repaired.set_aside.as_ref().map(|(path, _)| path)] {
            let Some(path) = path else { continue };
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
        }
        repaired
    }

    /// The texts of all events that can be read, by session and number.
    fn events(&self) -> BTreeSet<(u32, u64, String)> {
        let store = SqliteStore::open(self.store(), SqliteOptions::default()).unwrap();
        let mut found = BTreeSet::new();
        for record in block_on(store.list(&Default::default())).unwrap() {
            for stored in block_on(store.read(record.id, Page::After(Seq::START, 10_000))).unwrap() {
                if let Ok(json) = &stored.json {
                    found.insert((record.id.number(), stored.seq.0, json.clone()));
                }
            }
        }
        found
    }
}

fn hash(number: u32, turn: u64, part: u64) -> u64 {
    let mut state = u64::from(number) * 1_000_003 + turn * 7_919 + part + 1;
    for _ in 0..3 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    state
}

fn number(id: u32) -> SessionId {
    SessionId::new(id).unwrap()
}

#[test]
fn a_sound_store_has_no_problem_and_is_not_changed() {
    let folder = Folder::with_store();
    folder.sql("UPDATE sessions SET told = told + 7, details = -7 WHERE id = 3");
    let before = fs::read(folder.store()).unwrap();
    let inspection = inspect(&folder.store(), QUIET).unwrap();
    assert_eq!(inspection.problems, []);
    assert_eq!(inspection.readable_events, u64::from(SESSIONS) * TURNS * 2);
    assert_eq!(inspection.sessions.len(), SESSIONS as usize);
    assert!(fs::read(folder.store()).unwrap() == before);
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 1);
}

#[test]
fn each_damaged_row_is_named_and_repaired() {
    let template = Folder::with_store();
    let before = template.events();
    for (sql, kind) in [
        ("UPDATE sessions SET tokens_in = 'many' WHERE id = 3", "row_type"),
        ("UPDATE sessions SET name = x'ff00' WHERE id = 3", "row_type"),
        ("UPDATE sessions SET counted_seq = 'x' WHERE id = 3", "row_type"),
        ("UPDATE sessions SET cost_usd = -1, tokens_in = -7 WHERE id = 3", "row_type"),
        ("UPDATE sessions SET cost_usd = 9e999 WHERE id = 3", "row_type"),
        ("UPDATE sessions SET active = -1, changes = -5, last_event = -1 WHERE id = 3", "row_type"),
        ("UPDATE events SET char_len = -1 WHERE session_id = 3 AND seq = 4", "row_type"),
        ("UPDATE events SET kind = x'00' WHERE session_id = 3 AND seq = 4", "row_type"),
        ("UPDATE events SET kind = 'UserMessagE' WHERE session_id = 3 AND seq = 5", "row_type"),
        ("UPDATE events SET seq = 'x' WHERE session_id = 3 AND seq = 80", "row_type"),
        ("UPDATE events SET data = x'28b52ffd00' WHERE session_id = 3 AND seq = 4", "undecodable_event"),
        ("DELETE FROM events WHERE session_id = 3 AND seq BETWEEN 4 AND 9", "gap"),
        (
            "UPDATE sessions SET uuid = (SELECT uuid FROM sessions WHERE id = 1) WHERE id = 3",
            "duplicate_uuid",
        ),
        ("UPDATE sessions SET uuid = 'x' WHERE id = 3", "no_uuid"),
        ("UPDATE sessions SET uuid = NULL WHERE id = 3", "no_uuid"),
        ("UPDATE sessions SET event_count = 7, preview = 'no' WHERE id = 3", "counts"),
        ("UPDATE sessions SET told = told + 1 WHERE id = 3", "counts"),
        ("DELETE FROM sessions WHERE id = 3", "orphan_events"),
        ("UPDATE events SET session_id = 'x' WHERE session_id = 3", "orphan_events"),
        ("UPDATE events SET session_id = x'ff00' WHERE session_id = 3 AND seq = 80", "orphan_events"),
        ("INSERT INTO compactions (session_id, after_seq, summary) VALUES (99, 1, 's')", "orphan_events"),
        ("INSERT INTO compactions (session_id, after_seq, summary) VALUES (3, 500, 's')", "summary"),
        ("INSERT INTO compactions (session_id, after_seq, summary) VALUES (3, 5, x'00')", "summary"),
        ("UPDATE sessions SET id = -5 WHERE id = 3", "row_type"),
        ("INSERT INTO meta VALUES (x'00', 'x')", "row_type"),
        ("UPDATE sqlite_sequence SET seq = 9223372036854775807 WHERE name = 'sessions'", "row_type"),
    ] {
        let folder = Folder::copy_of(&template);
        folder.sql(sql);
        let damaged = folder.events();
        let kinds = folder.kinds();
        assert!(kinds.contains(&kind), "{sql}: {kinds:?}");
        let repaired = folder.repair();
        assert!(repaired.problems.iter().any(|problem| problem.kind() == kind), "{sql}: {repaired:?}");
        let after = folder.events();
        for event in &damaged {
            assert!(after.contains(event), "{sql}: lost {event:?}");
        }
        // The copy has the store as it was before.
        let copy = Connection::open(&repaired.backup).unwrap();
        let rows: i64 = copy.query_row("SELECT count(*) FROM events", [], |row| row.get(0)).unwrap();
        assert!(rows as usize >= damaged.len(), "{sql}");
        if kind == "orphan_events" && sql.starts_with("DELETE") {
            assert!(after == before, "{sql}: the events of a lost session are back");
        }
        // The store can be used.
        let store = SqliteStore::open(folder.store(), SqliteOptions::default()).unwrap();
        block_on(store.append(number(1), NewTurn::verbatim([Event::user("next")]))).unwrap();
        let new = block_on(store.create(NewSession::default())).unwrap();
        assert!(new > number(SESSIONS), "{sql}: {new}");
        drop(store);
        assert_eq!(folder.kinds(), Vec::<&str>::new(), "{sql}");
    }
}

#[test]
fn a_gap_and_an_undecodable_event_keep_the_numbers_of_the_others() {
    let folder = Folder::with_store();
    folder.sql(
        "DELETE FROM events WHERE session_id = 3 AND seq BETWEEN 4 AND 9;
         UPDATE events SET data = 'no json' WHERE session_id = 3 AND seq = 20;",
    );
    let repaired = folder.repair();
    let store = SqliteStore::open(folder.store(), SqliteOptions::default()).unwrap();
    let events = block_on(store.read(number(3), Page::After(Seq::START, 1_000))).unwrap();
    assert_eq!(events.len(), 80);
    assert!(events[3].json.as_ref().unwrap().contains("an event is missing here"));
    assert!(events[19].json.as_ref().unwrap().contains("was set aside"));
    assert!(events[20].json.as_ref().unwrap().contains("prompt 11"), "{:?}", events[20]);
    let (path, rows) = repaired.set_aside.unwrap();
    assert_eq!(rows, 1);
    assert!(fs::read_to_string(path).unwrap().contains(r#""data":"no json""#));
}

#[test]
fn events_get_back_the_numbers_that_their_neighbours_show() {
    let template = Folder::with_store();
    let all = template.events();
    // Without the constraint, as another program may leave the table.
    template.sql(
        "CREATE TABLE copy AS SELECT * FROM events; DROP TABLE events;
         CREATE TABLE events (id INTEGER PRIMARY KEY, session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
           seq INTEGER NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL, char_len INTEGER NOT NULL DEFAULT 0);
         INSERT INTO events SELECT id, session_id, seq, kind, data, char_len FROM copy; DROP TABLE copy;",
    );
    for (seq, of) in [("'x'", 80), ("-92", 27), ("'x'", 1), ("9", 10), ("11", 10), ("5", 40), ("79", 80)] {
        let folder = Folder::copy_of(&template);
        folder.sql(&format!("UPDATE events SET seq = {seq} WHERE session_id = 3 AND seq = {of}"));
        let repaired = folder.repair();
        assert!(folder.events() == all, "{of} as {seq}");
        assert_eq!(repaired.set_aside.map(|(_, rows)| rows), Some(1), "{of} as {seq}");
    }
}

#[test]
fn a_damaged_file_is_replaced_by_one_with_every_row_that_can_be_read() {
    let template = Folder::with_store();
    let all = template.events();
    let pages = fs::metadata(template.store()).unwrap().len() / 4096;
    assert!(pages > 60, "{pages}");
    let text = "This is a page of another file. ".repeat(128);
    let mut lost = Vec::new();
    // Every page takes a minute.
    let is_tried = |page: &u64| azureal_testkit::thorough(false, true) || *page < 6 || page.is_multiple_of(9);
    for page in (1..=pages).filter(is_tried) {
        for (what, bytes) in [("zeros", vec![0; 4096]), ("text", text.as_bytes().to_vec())] {
            let folder = Folder::copy_of(&template);
            folder.overwrite(page, &bytes);
            let kinds = folder.kinds();
            assert!(kinds.contains(&"integrity"), "{what} on page {page}: {kinds:?}");
            let repaired = folder.repair();
            assert!(repaired.backup.exists());
            let after = folder.events();
            let missing = all.iter().filter(|event| !after.contains(event)).count();
            lost.push(missing);
            // At most what one page holds.
            assert!(missing <= 20, "{what} on page {page}: lost {missing}");
        }
    }
    assert!(lost.iter().any(|lost| *lost > 0), "no page of events was damaged");
}

#[test]
fn of_a_cut_file_every_row_before_the_cut_stays() {
    let template = Folder::with_store();
    let length = fs::metadata(template.store()).unwrap().len();
    let all = template.events();
    for part in 1..8 {
        let folder = Folder::copy_of(&template);
        let cut = length * part / 8 - 100;
        OpenOptions::new().write(true).open(folder.store()).unwrap().set_len(cut).unwrap();
        assert!(folder.kinds().contains(&"integrity"), "{part}");
        folder.repair();
        let after = folder.events().iter().filter(|event| all.contains(event)).count() as u64;
        let least = (all.len() as u64 * part / 8).saturating_sub(190);
        assert!(after >= least, "{part} eighths: {after} of {}", all.len());
    }
}

#[test]
fn damaged_definitions_and_versions_lose_no_row() {
    let template = Folder::with_store();
    template.sql("UPDATE sessions SET worktree = 'w' || id");
    let all = template.events();
    let file = fs::read(template.store()).unwrap();
    let damages: [(&[u8], &[u8]); 7] = [
        (b"worktree TEXT", b"worktr\xf4e TEXT"),
        (b"worktree TEXT", b"worktrea TEXT"),
        (b"  data       TEXT", b"  dbta       TEXT"),
        (b"  seq        INT", b"  s\xffq        INT"),
        (b"tableeventsevents", b"tableevextsevents"),
        (b"schema_version3", b"schema_versionx"),
        (b"  key   TEXT", b"  kez   TEXT"),
    ];
    for (from, to) in damages {
        let what = String::from_utf8_lossy(to);
        let at = file.windows(from.len()).position(|found| found == from).expect("it is in the file");
        let folder = Folder::copy_of(&template);
        OpenOptions::new().write(true).open(folder.store()).unwrap().write_all_at(to, at as u64).unwrap();
        let error = SqliteStore::open(folder.store(), SqliteOptions::default()).err();
        assert!(error.is_some_and(|error| ["damaged", "not_a_store"].contains(&error.kind())), "{what}");
        assert_eq!(folder.kinds(), ["integrity"], "{what}");
        let repaired = folder.repair();
        assert_eq!((repaired.set_aside, repaired.unreadable), (None, 0), "{what}");
        assert!(folder.events() == all, "{what}");
        let sql = "SELECT count(*) FROM sessions WHERE worktree = 'w' || id";
        let store = Connection::open(folder.store()).unwrap();
        let rows: u32 = store.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(rows, SESSIONS, "{what}");
    }
}

/// The root of one table in the place of that of another: it leads to all rows of its table.
#[test]
fn rows_are_recognised_where_a_page_leads_to_those_of_another_table() {
    let template = Folder::with_store();
    let all = template.events();
    let root = |table: &str| {
        let store = Connection::open(template.store()).unwrap();
        let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
        u64::from(store.query_row(sql, [table], |row| row.get::<_, u32>(0)).unwrap())
    };
    let mut page = [0; 4096];
    File::open(template.store()).unwrap().read_exact_at(&mut page, (root("events") - 1) * 4096).unwrap();
    for table in ["sessions", "compactions", "meta", "sqlite_sequence"] {
        let folder = Folder::copy_of(&template);
        folder.overwrite(root(table), &page);
        assert!(folder.kinds().contains(&"integrity"), "{table}");
        folder.repair();
        assert!(folder.events() == all, "{table}");
    }
}

#[test]
fn a_row_without_values_does_not_keep_others_from_being_recovered() {
    let folder = Folder::with_store();
    let all = folder.events();
    folder.sql(
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, ' NOT NULL', '') WHERE name = 'meta'",
    );
    folder.sql(
        "INSERT INTO meta VALUES (NULL, NULL); UPDATE meta SET value = 'x' WHERE key = 'schema_version'",
    );
    assert_eq!(folder.kinds(), ["integrity"]);
    assert_eq!(folder.repair().set_aside.map(|(_, rows)| rows), Some(1));
    assert!(folder.events() == all);
}

/// A change that was killed in the middle, and whose journal is gone.
#[test]
fn a_file_without_its_hot_journal_is_recovered() {
    let folder = Folder::with_store();
    let before = folder.events();
    let connection = Connection::open(folder.store()).unwrap();
    connection.execute_batch("PRAGMA cache_size = 5; BEGIN").unwrap();
    connection
        .execute_batch(
            "INSERT INTO events (session_id, seq, kind, data, char_len)
               SELECT session_id, seq + 1000, kind, data, char_len FROM events WHERE session_id < 9;
             UPDATE sessions SET preview = printf('%.*c', 3000, 'x');",
        )
        .unwrap();
    let half = Folder::copy_of(&folder);
    drop(connection);
    assert!(half.kinds().contains(&"integrity"), "{:?}", half.kinds());
    half.repair();
    let after = half.events();
    let kept = before.iter().filter(|event| after.contains(event)).count();
    assert!(kept * 10 >= before.len() * 9, "{kept} of {}", before.len());
}

#[test]
fn damaged_indexes_are_written_again_in_place() {
    let folder = Folder::with_store();
    let before = folder.events();
    // The entries of one index go to another file, so that the file has fewer than rows.
    let connection = Connection::open(folder.store()).unwrap();
    connection.execute_batch("PRAGMA writable_schema = ON").unwrap();
    let (root, sql): (i64, String) = connection
        .query_row("SELECT rootpage, sql FROM sqlite_schema WHERE name = 'idx_sessions_name'", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    connection.execute("DELETE FROM sqlite_schema WHERE name = 'idx_sessions_name'", []).unwrap();
    drop(connection);
    let connection = Connection::open(folder.store()).unwrap();
    connection.execute_batch("PRAGMA writable_schema = ON; UPDATE sessions SET name = 'a' || name").unwrap();
    connection
        .execute(
            "INSERT INTO sqlite_schema VALUES ('index', 'idx_sessions_name', 'sessions', ?1, ?2)",
            (root, sql),
        )
        .unwrap();
    drop(connection);
    // Another process has a change in a write-ahead log.
    let log = Connection::open(folder.store()).unwrap();
    log.pragma_update(None, "journal_mode", "wal").unwrap();
    log.execute_batch("PRAGMA wal_autocheckpoint = 0; UPDATE sessions SET worktree = 'log' WHERE id = 1")
        .unwrap();
    assert!(folder.kinds().contains(&"integrity"));
    let found = inspect(&folder.store(), QUIET).unwrap().problems;
    assert_eq!(found[0].repair().as_deref(), Some("writes the indexes again"));
    let identity = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let file = identity(&folder.store());
    let repaired = folder.repair();
    assert_eq!(identity(&folder.store()), file, "the file stays the same");
    assert!(folder.events() == before);
    let copy = Connection::open(repaired.backup).unwrap();
    let sql = "SELECT worktree FROM sessions WHERE id = 1";
    assert_eq!(copy.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap(), "log");
    drop(log);
}

#[test]
fn rows_on_pages_that_are_free_by_mistake_are_used_and_deleted_ones_are_set_aside() {
    let folder = Folder::with_store();
    // Written without overwriting it, as the original program does.
    folder.sql("PRAGMA secure_delete = OFF; DELETE FROM events WHERE session_id = 12; DELETE FROM sessions WHERE id = 12");
    let all = folder.events();
    let mut file = fs::read(folder.store()).unwrap();
    let number = |file: &[u8], at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let trunk = (number(&file, 32) - 1) * 4096;
    let mut free =
        (0..number(&file, trunk + 4)).map(|index| (number(&file, trunk + 8 + 4 * index) - 1) * 4096);
    let free = free.find(|page| file[*page] == 13).unwrap();
    // A leaf of events is there, and no longer in its place.
    let connection = Connection::open(folder.store()).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'events'";
    let root: u32 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    drop(connection);
    let root = (root as usize - 1) * 4096;
    let child = root + usize::from(u16::from_be_bytes([file[root + 12], file[root + 13]]));
    let leaf = (number(&file, child) - 1) * 4096;
    assert_eq!((file[root], file[leaf]), (5, 13));
    file.copy_within(leaf..leaf + 4096, free);
    file[leaf..leaf + 4096].fill(0);
    fs::write(folder.store(), file).unwrap();
    assert!(folder.kinds().contains(&"integrity"));
    let repaired = folder.repair();
    assert!(folder.events() == all);
    let (path, rows) = repaired.set_aside.unwrap();
    let aside = fs::read_to_string(path).unwrap();
    assert!(rows > 0 && aside.lines().all(|line| line.contains("\"session_id\":12,")), "{aside}");
}

#[test]
fn an_empty_store_takes_the_place_of_a_file_without_rows() {
    let template = Folder::with_store();
    for length in [0, 1, 100, 512, 4_095, 4_096] {
        let folder = Folder(tempfile::tempdir().unwrap());
        // By its name, it is a store; with the definitions of its tables, by its content.
        let ours = folder.0.path().join(".azureal");
        fs::create_dir(&ours).unwrap();
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o700)).unwrap();
        let store = ours.join("sessions.azs");
        let content = fs::read(template.store()).unwrap();
        fs::write(&store, &content[..length]).unwrap();
        let problems = inspect(&store, QUIET).unwrap().problems;
        let is_named = matches!(problems[..], [StoreProblem::WithoutRows { is_ours: true, .. }]);
        assert!(is_named, "{length}: {problems:?}");
        let repaired = repair(&store, None, &[], QUIET).unwrap();
        assert!(fs::read(&repaired.backup).unwrap() == content[..length], "{length}");
        let inspection = inspect(&store, QUIET).unwrap();
        assert_eq!((inspection.problems, inspection.sessions.len()), (Vec::new(), 0), "{length}");
        assert_eq!(fs::read_dir(&ours).unwrap().count(), 2, "{length}: the store and the damaged file");
        // Elsewhere it may be another file.
        let elsewhere = folder.0.path().join("x");
        fs::write(&elsewhere, &content[..length]).unwrap();
        let problems = inspect(&elsewhere, QUIET).unwrap().problems;
        let [StoreProblem::WithoutRows { is_ours, .. }] = problems[..] else {
            panic!("{length}: {problems:?}")
        };
        assert_eq!(is_ours, [0, 4_095, 4_096].contains(&length), "{length}");
        assert_eq!(problems[0].repair().is_some(), is_ours, "{length}");
        assert_eq!(repair(&elsewhere, None, &[], QUIET).is_ok(), is_ours, "{length}");
    }
}

#[test]
fn a_store_whose_first_page_is_that_of_another_database_loses_no_event() {
    let folder = Folder::with_store();
    let all = folder.events();
    let other = folder.0.path().join("other");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE a (b); CREATE TABLE c (d)").unwrap();
    folder.overwrite(1, &fs::read(&other).unwrap()[..4096]);
    assert_eq!(folder.kinds(), ["integrity"]);
    folder.repair();
    assert!(folder.events() == all);
    // The other one itself is left alone.
    let error = inspect(&other, QUIET).unwrap_err();
    assert_eq!(error.kind(), "not_a_store");
}

#[test]
fn a_link_is_no_store_and_gets_no_second_name() {
    let folder = Folder::with_store();
    let (link, second) = (folder.0.path().join("link"), folder.0.path().join("git/azureal/sessions.azs"));
    std::os::unix::fs::symlink(folder.store(), &link).unwrap();
    fs::create_dir_all(second.parent().unwrap()).unwrap();
    assert_eq!(inspect(&link, QUIET).unwrap_err().kind(), "unsafe");
    assert_eq!(names(&link, &second).unwrap(), None);
    assert!(name_again(&link, &second).is_err());
    assert!(!second.exists());
}

#[test]
fn a_damaged_file_of_the_original_program_needs_one_repair() {
    let folder = Folder(tempfile::tempdir().unwrap());
    folder.sql(ORIGINAL_OPEN);
    folder.sql(
        "INSERT INTO sessions (worktree) VALUES ('a'), ('b'), ('c');
         WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 50)
         INSERT INTO events (session_id, seq, kind, data)
           SELECT id, n, 'UserMessage', '{\"UserMessage\":{\"content\":\"' || hex(randomblob(300)) || '\"}}'
           FROM sessions, numbers;",
    );
    let all = folder.events();
    assert_eq!(all.len(), 150);
    folder.sql("UPDATE meta SET value = 'x' WHERE key = 'schema_version'");
    folder.repair();
    assert!(folder.events() == all);
}

/// SQLite's own check does not look at such a page.
#[test]
fn a_damaged_page_of_an_empty_index_is_found() {
    let folder = Folder::with_store();
    let all = folder.events();
    for index in ["idx_sessions_stale", "idx_sessions_noted_run"] {
        let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
        let store = Connection::open(folder.store()).unwrap();
        let page = store.query_row(sql, [index], |row| row.get::<_, u32>(0)).unwrap();
        drop(store);
        // An inner page instead of a leaf.
        folder.overwrite(page.into(), &[2]);
        assert_eq!(folder.kinds(), ["integrity"], "{index}");
        folder.repair();
        assert!(folder.events() == all, "{index}");
    }
}

#[test]
fn a_file_that_is_no_store_is_left_alone() {
    let folder = Folder(tempfile::tempdir().unwrap());
    fs::write(folder.store(), "Dear diary, ".repeat(2_000)).unwrap();
    assert_eq!(folder.kinds(), ["integrity"]);
    let error = repair(&folder.store(), None, &[], QUIET).unwrap_err().to_string();
    assert!(error.contains("no row of it can be read"), "{error}");
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 1);
    let other = folder.0.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    assert!(inspect(&other, QUIET).is_err());
}

#[test]
fn a_copy_is_consistent_while_others_write() {
    let folder = Folder::with_store();
    let copy = |number: usize| folder.0.path().join(format!("copy-{number}"));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let store = SqliteStore::open(folder.store(), SqliteOptions::default()).unwrap();
            for turn in 0..200 {
                let events = [Event::user(format!("more {turn}")), Event::assistant("x".repeat(2_000))];
                block_on(store.append(number(1 + turn % SESSIONS), NewTurn::verbatim(events))).unwrap();
            }
        });
        let mut count = 0;
        while !writer.is_finished() || count < 3 {
            back_up(&folder.store(), &copy(count), ExistingCopy::Keep, QUIET).unwrap();
            let inspection = inspect(&copy(count), QUIET).unwrap();
            assert_eq!(inspection.problems, [], "copy {count}");
            assert_eq!(inspection.readable_events % 2, 0, "a turn is whole");
            count += 1;
        }
        writer.join().unwrap();
    });
    let error = back_up(&folder.store(), &copy(0), ExistingCopy::Keep, QUIET).unwrap_err().to_string();
    assert!(error.contains("exists"), "{error}");
    back_up(&folder.store(), &copy(0), ExistingCopy::Replace, QUIET).unwrap();
    assert_eq!(fs::metadata(copy(0)).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(inspect(&copy(0), QUIET).unwrap().readable_events, u64::from(SESSIONS) * TURNS * 2 + 400);
}

/// Returns whether a process has a lock for writing on the file.
#[cfg(target_os = "linux")]
fn is_locked(inode: u64) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|lock| {
        lock.contains("POSIX") && lock.contains(" WRITE ") && lock.contains(&format!(":{inode} "))
    })
}

#[cfg(target_os = "linux")]
#[test]
fn no_other_process_writes_to_a_damaged_file_until_it_is_replaced() {
    use std::cell::Cell;
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::with_store();
    folder.overwrite(20, &[0; 4096]);
    let inode = fs::metadata(folder.store()).unwrap().ino();
    let was_locked = Cell::new(false);
    // The last thing that is heard is the check of the new file.
    let note = |_: &str| {
        was_locked.set(is_locked(inode));
        ControlFlow::Continue(())
    };
    let repaired = repair(&folder.store(), None, &[], &note).unwrap();
    assert_eq!(fs::metadata(&repaired.backup).unwrap().ino(), inode, "the file was replaced");
    assert!(was_locked.get(), "the lock was lost");
    assert!(!is_locked(inode));
}

#[test]
fn a_damaged_file_that_another_process_writes_to_is_not_replaced() {
    let folder = Folder::with_store();
    folder.overwrite(20, &[0; 4096]);
    let writer = Connection::open(folder.store()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let before = fs::read(folder.store()).unwrap();
    let refused = repair(&folder.store(), None, &[], QUIET);
    assert!(matches!(refused, Err(azureal_core::StoreError::Busy { .. })), "{refused:?}");
    assert!(fs::read(folder.store()).unwrap() == before);
}
