//! Files from elsewhere: what they define does not run, and takes neither time nor memory.

use crate::scratch::{Project, append, new_session, original_append, original_session, read_all, wait};
use azureal_store::core::{
    Event, LARGEST_EVENT, ListQuery, NewSession, NewTurn, SessionId, SessionStore, StoreError,
};
use azureal_store::sqlite::{SqliteOptions, SqliteStore, check_foreign, open_foreign, rusqlite};

fn talk(prompt: &str) -> [Event; 2] {
    [Event::user(prompt), Event::assistant("ok")]
}

/// A project with one session of two events, and what `sql` then does to its file.
fn changed_by(sql: &str) -> Project {
    let project = Project::new();
    let store = project.store();
    append(&store, new_session(&store), talk("hello"));
    drop(store);
    project.raw().execute_batch(sql).unwrap();
    project
}

#[test]
fn a_file_with_expressions_of_others_is_refused_and_not_touched() {
    // If it were evaluated, its own failure would be the error.
    const FAILING: &str = "abs(-9223372036854775807 - 1)";
    for (sql, what) in [
        (
            format!(
                "ALTER TABLE sessions DROP COLUMN preview;
                 ALTER TABLE sessions ADD COLUMN preview TEXT GENERATED ALWAYS AS ({FAILING});"
            ),
            "a generated column in the table `sessions`",
        ),
        (
            format!("ALTER TABLE events ADD COLUMN x AS ({FAILING}) VIRTUAL;"),
            "a generated column in the table `events`",
        ),
        (
            // SQLite would check one that fails against the rows at once.
            "ALTER TABLE meta ADD COLUMN x CHECK (hex(x) <> '41');".to_owned(),
            "a CHECK constraint in the table `meta`",
        ),
        (format!("CREATE TABLE y (x DEFAULT ({FAILING}));"), "a computed default in the table `y`"),
        (
            "CREATE INDEX x ON sessions(hex(worktree));".to_owned(),
            "an expression in the index `x`",
        ),
        (
            "CREATE INDEX x ON events(seq) WHERE length(hex(data)) > 9;".to_owned(),
            "an expression in the index `x`",
        ),
        (
            "DROP INDEX idx_events_prompts;
             CREATE INDEX idx_events_prompts ON events(session_id, seq) WHERE kind IN ('UserMessage', hex('x'));"
                .to_owned(),
            "an expression in the index `idx_events_prompts`",
        ),
        (
            "CREATE TRIGGER evil AFTER INSERT ON events BEGIN DELETE FROM sessions; END;".to_owned(),
            "the trigger `evil`",
        ),
        ("CREATE VIEW seen AS SELECT load_extension('x') FROM events;".to_owned(), "the view `seen`"),
        (
            "DROP TABLE compactions; CREATE VIEW compactions AS SELECT 1 AS summary, 2 AS covers;".to_owned(),
            "the view `compactions`",
        ),
        ("CREATE VIRTUAL TABLE found USING fts5(x);".to_owned(), "the virtual table `found`"),
        // The name says one thing, and the text that SQLite executes another.
        (
            "CREATE TABLE x (a, b); PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = 'CREATE TABLE x (a, b /*(*/ aS /*)*/ (1))' WHERE name = 'x';"
                .to_owned(),
            "a generated column in the table `x`",
        ),
    ] {
        let project = changed_by(&sql);
        let before = std::fs::read(project.path()).unwrap();
        let error = SqliteStore::open(project.path(), SqliteOptions::default()).err().unwrap();
        assert!(
            matches!(&error, StoreError::UnknownDefinition { what: found, .. } if found == what),
            "{what}: {error}"
        );
        assert!(error.to_string().contains("sessions.azs") && azureal_store::hint(&error).is_some(), "{error}");
        assert!(std::fs::read(project.path()).unwrap() == before, "{what}");
    }
}

#[test]
fn plain_tables_columns_and_indexes_of_others_are_ignored_and_kept() {
    let project = changed_by(
        "ALTER TABLE sessions ADD COLUMN \"check\" TEXT NOT NULL DEFAULT 'as (1)';
         ALTER TABLE events ADD COLUMN note VARCHAR(80) DEFAULT -1;
         CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT, at TEXT DEFAULT CURRENT_TIMESTAMP,
           session REFERENCES sessions(id) ON DELETE CASCADE);
         INSERT INTO notes (text, session) VALUES ('mine', 1);
         CREATE INDEX by_name ON sessions(worktree COLLATE NOCASE DESC, created);
         CREATE UNIQUE INDEX by_note ON notes(text);
         ANALYZE;",
    );
    let schema = || -> Vec<String> {
        let raw = project.raw();
        let mut statement = raw.prepare("SELECT ifnull(sql, '') FROM sqlite_schema ORDER BY name").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let before = schema();
    let store = project.store();
    let id = SessionId::new(1).unwrap();
    append(&store, id, talk("more"));
    assert_eq!(wait(store.list(&ListQuery::default())).unwrap()[0].counts.messages, 4);
    assert_eq!(read_all(&store, id).len(), 4);
    drop(store);
    assert_eq!(schema(), before);
    let kept: (String, String) = project
        .raw()
        .query_row("SELECT \"check\", text FROM sessions, notes", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(kept, ("as (1)".to_owned(), "mine".to_owned()));
}

#[test]
fn a_file_of_another_program_may_have_triggers_but_no_computed_columns() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str, sql: &str| {
        let path = folder.path().join(name);
        rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        check_foreign(&path, &open_foreign(&path).unwrap())
    };
    let theirs =
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, role TEXT CHECK (role <> ''), at DEFAULT (random()));
                  CREATE TRIGGER t AFTER INSERT ON messages BEGIN SELECT 1; END;
                  CREATE VIEW v AS SELECT 1;";
    assert!(open("theirs", theirs).is_ok());
    let error = open("computed", "CREATE TABLE messages (a, b AS (hex(zeroblob(50000000))))").unwrap_err();
    assert!(matches!(error, StoreError::UnknownDefinition { .. }), "{error}");
}

#[test]
fn nothing_of_a_hostile_file_runs_while_it_is_upgraded() {
    let project = Project::new();
    let original = project.original();
    let session = original_session(&original, "main");
    original_append(&original, session, &talk("precious"));
    // A name that ends where SQL would begin, if it became SQL, and a table that is in the way.
    original
        .execute_batch(
            "ALTER TABLE sessions ADD COLUMN \"
)); DELETE FROM events; INSERT INTO meta VALUES('pwned','yes'); COMMIT; --\" TEXT DEFAULT 'x) --';
             CREATE TABLE sessions_numbered (left_over);",
        )
        .unwrap();
    drop(original);
    let store = project.store();
    assert_eq!(read_all(&store, SessionId::new(1).unwrap()).len(), 2);
    wait(store.create(NewSession::default())).unwrap();
    let pwned: i64 = project
        .raw()
        .query_row("SELECT count(*) FROM meta WHERE key = 'pwned'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(pwned, 0);
}

#[test]
fn the_largest_event_is_stored_though_it_does_not_compress() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    let length = LARGEST_EVENT - Event::user("").to_json().len();
    let mut noise = String::with_capacity(LARGEST_EVENT);
    let mut state = 1_u64;
    while noise.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Printable characters that JSON does not escape.
        noise.extend((state >> 8).to_le_bytes().map(|byte| char::from(b']' + byte % 32)));
    }
    noise.truncate(length);
    let event = Event::user(noise);
    let json = event.to_json();
    assert_eq!(json.len(), LARGEST_EVENT);
    wait(store.append(id, NewTurn::verbatim([event]))).unwrap();
    assert!(read_all(&store, id)[0].json.as_ref().unwrap() == &json);
}
