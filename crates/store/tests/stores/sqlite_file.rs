//! The file itself: what it holds, when it is there, who may use it, and which files are left alone.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use crate::scratch::{
    self, Project, append, have, new_session, original_append, original_session, read_all, wait,
};
use azureal_store::core::event::Complete;
use azureal_store::core::{
    Compaction, Event, ListOrder, ListQuery, NewSession, NewTurn, Page, Seq, SessionId, SessionStore,
    StoreError, Tokens, read_context,
};
use azureal_store::sqlite::{FileNotice, Journal, SqliteOptions, SqliteStore, rusqlite};

fn talk(prompt: &str) -> [Event; 2] {
    [Event::user(prompt), Event::assistant("ok")]
}

#[test]
fn the_file_appears_with_its_first_session_and_not_before() {
    let project = Project::new();
    let store = project.store();
    let id = SessionId::new(1).unwrap();
    assert_eq!(wait(store.list(&ListQuery::default())).unwrap(), []);
    assert!(matches!(wait(store.get(id)), Err(StoreError::NoSuchSession(_))));
    assert!(matches!(
        wait(store.append(id, NewTurn::verbatim(talk("x")))),
        Err(StoreError::NoSuchSession(_))
    ));
    assert!(!project.path().parent().unwrap().exists());
    assert_eq!(new_session(&store), id);
    assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
    let ignored = std::fs::read_to_string(project.path().with_file_name(".gitignore")).unwrap();
    assert!(ignored.lines().any(|line| line == "*") && ignored.lines().any(|line| line == "!azufig.toml"));
}

#[test]
fn what_we_make_is_private_from_the_start() {
    let project = Project::new();
    append(&project.store(), new_session(&project.store()), talk("secret"));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&project.path()), 0o600);
    assert_eq!(mode(project.path().parent().unwrap()), 0o700);
}

#[test]
fn a_file_with_wide_modes_is_made_private() {
    let project = Project::new();
    drop(project.original());
    let set = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(&project.path(), 0o644);
    set(project.path().parent().unwrap(), 0o755);
    drop(project.store());
    assert_eq!(std::fs::metadata(project.path()).unwrap().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(project.path().parent().unwrap()).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn any_client_can_read_it_and_finds_four_tables() {
    let project = Project::new();
    let store = project.store();
    append(&store, new_session(&store), talk("hello"));
    drop(store);
    let raw = project.raw();
    let tables: Vec<String> = raw
        .prepare(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
        )
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(tables, ["compactions", "events", "meta", "sessions"]);
    let mode: String = raw.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete");
    let (version, format): (String, String) = raw
        .query_row(
            "SELECT (SELECT value FROM meta WHERE key = 'schema_version'),
                    (SELECT value FROM meta WHERE key = 'azureal_format')",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!((version.as_str(), format.as_str()), ("3", "1"));
    let (data, char_len): (Vec<u8>, i64) = raw
        .query_row("SELECT data, char_len FROM events WHERE seq = 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    let json = String::from_utf8(zstd::stream::decode_all(&data[..]).unwrap()).unwrap();
    assert_eq!(json, r#"{"UserMessage":{"content":"hello"}}"#);
    assert_eq!(char_len as usize, json.chars().count());
    assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
}

#[test]
fn the_sqlite3_shell_opens_it() {
    if !have("sqlite3") {
        return;
    }
    let project = Project::new();
    let store = project.store();
    append(&store, new_session(&store), talk("hello"));
    drop(store);
    let output = Command::new("sqlite3")
        .arg(project.path())
        .arg("PRAGMA integrity_check; PRAGMA journal_mode; SELECT id, name, worktree, completed FROM sessions; SELECT seq, kind FROM events;")
        .output()
        .unwrap();
    assert_eq!(scratch::text(&output).trim(), "ok\ndelete\n1|S1|.|\n1|UserMessage\n2|AssistantText");
}

#[test]
fn numbers_are_never_used_again() {
    let project = Project::new();
    let store = project.store();
    for _ in 0..3 {
        append(&store, new_session(&store), talk("x"));
    }
    let third = SessionId::new(3).unwrap();
    wait(store.add_compaction(third, &Compaction::new(Seq(1), "summary"))).unwrap();
    wait(store.delete(third)).unwrap();
    assert_eq!(new_session(&store).to_string(), "S4");
    let raw = project.raw();
    for table in ["events", "compactions"] {
        let left: i64 = raw
            .query_row(&format!("SELECT count(*) FROM {table} WHERE session_id = 3"), [], |row| row.get(0))
            .unwrap();
        assert_eq!(left, 0, "{table}");
    }
}

#[test]
fn numbers_that_are_used_up_are_no_full_disk() {
    for last in [i64::MAX, i64::from(u32::MAX)] {
        let project = Project::new();
        let store = project.store();
        let first = new_session(&store);
        append(&store, first, talk("x"));
        let client = rusqlite::Connection::open(project.path()).unwrap();
        client.execute("INSERT INTO sessions (id, name) VALUES (?1, 'last')", [last]).unwrap();
        let created = wait(store.create(NewSession::default()));
        assert!(matches!(created, Err(StoreError::NumbersUsedUp)), "{created:?}");
        let forked = wait(store.fork(first, Seq(2), NewSession::default()));
        assert!(matches!(forked, Err(StoreError::NumbersUsedUp)), "{forked:?}");
        assert_eq!(read_all(&store, first).len(), 2, "and nothing else is lost");
    }
}

#[test]
fn a_file_of_the_original_program_opens_lists_and_continues() {
    let project = Project::new();
    let original = project.original();
    original_session(&original, "main");
    let second = original_session(&original, "feature");
    original_append(&original, second, &talk("from the original"));
    original
        .execute(
            "INSERT INTO compactions (session_id, after_seq, summary) VALUES (?1, 1, 'we met')",
            [second],
        )
        .unwrap();
    original
        .execute("UPDATE sessions SET completed = 1, duration_ms = 5, cost_usd = 0.5 WHERE id = ?1", [second])
        .unwrap();
    drop(original);

    let store = project.store();
    let listed = wait(store.list(&ListQuery::default())).unwrap();
    assert_eq!(listed.len(), 2);
    let session = &listed[0];
    assert_eq!((session.name.as_str(), session.worktree.as_str()), ("S2", "feature"));
    assert_eq!((session.completed, session.duration_ms, session.cost_usd), (Some(true), 5, 0.5));
    assert_eq!((session.counts.events, session.counts.messages), (2, 2));
    assert_eq!(session.counts.preview_text(), "from the original");
    assert!(
        session.created_at.ends_with('Z') && session.created_at.as_bytes()[10] == b'T',
        "{}",
        session.created_at
    );

    append(&store, session.id, talk("from us"));
    assert_eq!(read_all(&store, session.id).len(), 4);
    assert!(wait(read_context(&store, session.id)).unwrap().contains("we met"));
    assert_eq!(wait(store.find("S2")).unwrap(), [session.id]);
    // Deleting the newest must not free its number, not even for the original program.
    wait(store.delete(session.id)).unwrap();
    assert_eq!(original_session(&project.original(), "main"), 3);
    assert_eq!(new_session(&store).to_string(), "S4");
}

#[test]
fn the_first_versions_of_the_original_program_are_read() {
    let project = Project::new();
    std::fs::create_dir_all(project.path().parent().unwrap()).unwrap();
    project
        .raw()
        .execute_batch(
            r#"CREATE TABLE sessions (id INTEGER PRIMARY KEY, name TEXT NOT NULL DEFAULT '',
                 worktree TEXT NOT NULL DEFAULT '', created TEXT NOT NULL DEFAULT (datetime('now')));
               CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT,
                 session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, seq INTEGER NOT NULL,
                 kind TEXT NOT NULL, data TEXT NOT NULL, char_len INTEGER NOT NULL DEFAULT 0, UNIQUE(session_id, seq));
               CREATE TABLE compactions (id INTEGER PRIMARY KEY AUTOINCREMENT,
                 session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
                 after_seq INTEGER NOT NULL, summary TEXT NOT NULL, created TEXT NOT NULL DEFAULT (datetime('now')));
               CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
               INSERT INTO meta VALUES ('schema_version', '1');
               INSERT INTO sessions (name) VALUES ('old');
               INSERT INTO events (session_id, seq, kind, data)
                 VALUES (1, 1, 'UserMessage', '{"UserMessage":{"content":"plain"}}');"#,
        )
        .unwrap();
    let store = project.store();
    let listed = wait(store.list(&ListQuery::default())).unwrap();
    assert_eq!((listed[0].name.as_str(), listed[0].counts.preview_text()), ("old", "plain"));
    append(&store, listed[0].id, talk("more"));
    assert_eq!(read_all(&store, listed[0].id).len(), 3);
}

#[test]
fn upgrading_keeps_columns_that_we_do_not_know() {
    let project = Project::new();
    let original = project.original();
    original
        .execute_batch("ALTER TABLE sessions ADD COLUMN \"odd name\" TEXT NOT NULL DEFAULT 'x';")
        .unwrap();
    original_session(&original, "main");
    drop(original);
    drop(project.store());
    let odd: String =
        project.raw().query_row("SELECT \"odd name\" FROM sessions", [], |row| row.get(0)).unwrap();
    assert_eq!(odd, "x");
}

#[test]
fn a_file_without_the_index_of_prompts_gets_it_and_is_read_until_then() {
    let project = Project::new();
    let (id, last) = {
        let store = project.store();
        let id = new_session(&store);
        for number in 1..=3 {
            append(&store, id, talk(&format!("prompt {number}")));
        }
        wait(store.add_compaction(id, &Compaction::new(Seq(4), "the summary"))).unwrap();
        (id, wait(read_context(&store, id)).unwrap())
    };
    assert!(last.contains("### Prompt, event 3\nprompt 2"), "{last}");
    let client = || rusqlite::Connection::open(project.path()).unwrap();
    client().execute_batch("DROP INDEX idx_events_prompts").unwrap();
    let index = |client: &rusqlite::Connection| -> bool {
        client
            .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'idx_events_prompts'", [], |row| {
                row.get(0)
            })
            .unwrap()
    };
    // Reading leaves the file as it is: slower, and the same.
    let store = project.store();
    assert_eq!(wait(read_context(&store, id)).unwrap(), last);
    assert!(!index(&client()));
    wait(store.rename(id, "renamed")).unwrap();
    assert!(index(&client()), "the first change brings the file up to date");
    // Another client drops it while the store is open.
    client().execute_batch("DROP INDEX idx_events_prompts").unwrap();
    assert_eq!(wait(read_context(&store, id)).unwrap(), last);
}

#[test]
fn the_original_program_and_we_use_one_file_in_turns() {
    let project = Project::new();
    let store = project.store();
    let mine = new_session(&store);
    append(&store, mine, talk("mine"));
    let original = project.original();
    let theirs = original_session(&original, "main");
    original_append(&original, theirs, &talk("theirs"));
    let order = |store: &SqliteStore| -> Vec<(String, u64)> {
        let listed = wait(store.list(&ListQuery { limit: Some(2), ..ListQuery::default() })).unwrap();
        listed.iter().map(|record| (record.id.to_string(), record.counts.messages)).collect()
    };
    assert_eq!(order(&store), [("S2".into(), 2), ("S1".into(), 2)]);
    original_append(&original, 1, &[Event::user("into yours")]);
    assert_eq!(order(&store), [("S1".into(), 3), ("S2".into(), 2)]);
    assert_eq!(wait(store.get(mine)).unwrap().counts.messages, 3);
    // Appending to the other one must not make us forget what they did to this one.
    append(&store, SessionId::new(2).unwrap(), talk("into theirs"));
    assert_eq!(order(&store), [("S2".into(), 4), ("S1".into(), 3)]);
    original_append(&original, theirs, &[Event::user("x")]);
    let fork = wait(store.fork(mine, Seq::END, NewSession::default())).unwrap();
    assert_eq!(wait(store.get(fork)).unwrap().counts.messages, 3);
    assert_eq!(order(&store), [("S3".into(), 3), ("S2".into(), 5)]);
    // The original program deletes and vacuums.
    original.execute_batch("PRAGMA foreign_keys=ON; DELETE FROM sessions WHERE id = 3; VACUUM;").unwrap();
    assert_eq!(order(&store), [("S2".into(), 5), ("S1".into(), 3)]);
    append(&store, mine, talk("y"));
    assert_eq!(order(&store), [("S1".into(), 5), ("S2".into(), 5)]);
}

/// Returns the numbers of the sessions and the times of their last activity, as they are listed.
fn times(store: &SqliteStore) -> Vec<(u32, String)> {
    let listed = wait(store.list(&ListQuery::default())).unwrap();
    listed.into_iter().map(|record| (record.id.number(), record.last_active)).collect()
}

#[test]
fn sessions_of_the_original_program_are_listed_by_their_last_events_and_get_times() {
    let project = Project::new();
    let original = project.original();
    for (session, created) in [
        (1, "2020-01-10 08:00:00"),
        (2, "2020-02-10 08:00:00"),
        (3, "2020-03-10 08:00:00"),
        (4, "2999-04-10 08:00:00"),
    ] {
        original
            .execute(
                "INSERT INTO sessions (id, worktree, created) VALUES (?1, 'main', ?2)",
                (session, created),
            )
            .unwrap();
    }
    // The first was active after the second was created.
    for session in [4, 2, 1, 3] {
        original_append(&original, session, &talk("x"));
    }
    let store = project.store();
    let unknown = [3, 1, 2, 4].map(|session| (session, String::new()));
    assert_eq!(times(&store), unknown, "read as it is");
    wait(store.rename(SessionId::new(2).unwrap(), "the first change upgrades the file")).unwrap();
    let [february, march] = ["2020-02-10T08:00:00Z", "2020-03-10T08:00:00Z"].map(str::to_owned);
    let filled = [(3, march), (1, february.clone()), (2, february), (4, String::new())];
    assert_eq!(times(&store), filled);

    // It appends, and creates sessions; what is counted first is what was active last.
    original_append(&original, 2, &talk("y"));
    let theirs = original_session(&original, "main");
    original_append(&original, theirs, &talk("z"));
    let order =
        |store: &SqliteStore| times(store).into_iter().map(|(session, _)| session).collect::<Vec<_>>();
    assert_eq!(order(&store), [5, 2, 3, 1, 4]);
    append(&store, SessionId::new(4).unwrap(), talk("ours"));
    assert_eq!(order(&store), [4, 5, 2, 3, 1]);
    assert!(times(&store)[..3].iter().all(|(_, time)| *time > filled[0].1), "{:?}", times(&store));
    assert_eq!(times(&store)[3..], filled[..2]);
}

#[test]
fn a_file_without_the_index_of_times_is_listed_by_them_and_gets_it() {
    let project = Project::new();
    let store = project.store();
    let ids = ["2020-03-10T08:00:00Z", "2020-02-10T08:00:00Z", "2020-01-10T08:00:00Z"].map(|time| {
        let id = new_session(&store);
        let turn = NewTurn { happened_at: Some(time.to_owned()), ..NewTurn::verbatim(talk("x")) };
        wait(store.append(id, turn)).unwrap();
        id
    });
    drop(store);
    // The first release recorded no times.
    project
        .raw()
        .execute_batch(
            "DROP INDEX idx_sessions_last_active; UPDATE sessions SET last_active = NULL WHERE id = 3",
        )
        .unwrap();
    let bytes = std::fs::read(project.path()).unwrap();
    let store = project.store();
    let order = |order| {
        let listed = wait(store.list(&ListQuery { order, ..ListQuery::default() })).unwrap();
        listed.iter().map(|record| record.id.number()).collect::<Vec<_>>()
    };
    assert_eq!(order(ListOrder::Activity), [1, 2, 3]);
    assert_eq!(order(ListOrder::Changes), [3, 2, 1]);
    assert_eq!(std::fs::read(project.path()).unwrap(), bytes, "reading changes nothing");
    wait(store.rename(ids[0], "the first change upgrades the file")).unwrap();
    let created = wait(store.get(ids[2])).unwrap().created_at;
    assert_eq!(times(&store)[0], (3, created), "all that is known of it");
    let indexes = "SELECT count(*) FROM sqlite_schema WHERE name = 'idx_sessions_last_active'";
    assert_eq!(project.raw().query_row(indexes, [], |row| row.get(0)), Ok(1));
}

#[test]
fn totals_of_a_fork_that_the_original_program_overwrote_are_those_of_its_own_turns() {
    let project = Project::new();
    let store = project.store();
    let end = |cost_usd, duration_ms| {
        let complete = Complete { success: true, cost_usd, duration_ms, ..Complete::default() };
        [Event::user("x"), Event::Complete(complete)]
    };
    let id = new_session(&store);
    append(&store, id, end(4.0, 400));
    append(&store, id, end(8.0, 800));
    let forks = [Seq::END, Seq(2)].map(|at| wait(store.fork(id, at, NewSession::default())).unwrap());
    let totals = |id| {
        let record = wait(store.get(id)).unwrap();
        let all = wait(store.list(&ListQuery::default())).unwrap();
        assert_eq!(all.iter().find(|listed| listed.id == id), Some(&record));
        (record.cost_usd, record.duration_ms)
    };
    let original = project.raw();
    let overwrite = |id: SessionId| {
        original_append(&original, id.number().into(), &end(0.25, 25));
        let sql = "UPDATE sessions SET cost_usd = 0.25, duration_ms = 25 WHERE id = ?1";
        original.execute(sql, [id.number()]).unwrap();
    };
    for fork in forks {
        append(&store, fork, end(1.5, 150));
        overwrite(fork);
        assert_eq!(totals(fork), (1.75, 175));
        // The next turn stores the sum.
        append(&store, fork, end(1.0, 100));
        assert_eq!(totals(fork), (2.75, 275));
        assert_eq!(totals(id), (12.0, 1200));
    }
    // A cleared fork keeps its totals, and all that it has then is its own.
    wait(store.clear(forks[0])).unwrap();
    append(&store, forks[0], end(2.0, 200));
    assert_eq!(totals(forks[0]), (4.75, 475));
    overwrite(forks[0]);
    assert_eq!(totals(forks[0]), (2.25, 225), "the cleared turns are known nowhere else");
    // Of a fork of an earlier version nobody knows where its own turns begin.
    original.execute_batch("ALTER TABLE sessions DROP COLUMN copied_seq").unwrap();
    let store = project.store();
    overwrite(forks[1]);
    assert_eq!(wait(store.get(forks[1])).unwrap().cost_usd, 0.25);
    overwrite(id);
    assert_eq!(wait(store.get(id)).unwrap().cost_usd, 12.25);
}

#[test]
fn a_summary_of_the_original_program_is_measured_like_ours() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    append(&store, id, [talk("first"), talk("second")].concat());
    wait(store.add_compaction(id, &Compaction::new(Seq(2), "ours"))).unwrap();
    let ours = wait(store.get(id)).unwrap();
    assert!(ours.covered > 0 && ours.covered < ours.counts.rendered_chars, "{ours:?}");
    let lay = |after: u32| {
        let original = project.original();
        original.execute("DELETE FROM compactions", []).unwrap();
        original
            .execute(
                "INSERT INTO compactions (session_id, after_seq, summary) VALUES (1, ?1, 'ours')",
                [after],
            )
            .unwrap();
    };
    lay(2);
    assert_eq!(wait(store.get(id)).unwrap(), ours);
    assert_eq!(wait(store.list(&ListQuery::default())).unwrap(), std::slice::from_ref(&ours));
    lay(4);
    assert_eq!(wait(store.get(id)).unwrap().chars_since_compaction(), 0);
    // A fork of it is measured too, and so is what came before our columns.
    let fork = wait(store.fork(id, Seq::END, NewSession::default())).unwrap();
    assert_eq!(wait(store.get(fork)).unwrap().covered, ours.counts.rendered_chars);
    drop(store);
    let client = rusqlite::Connection::open(project.path()).unwrap();
    client
        .execute_batch("ALTER TABLE compactions DROP COLUMN covers; ALTER TABLE sessions DROP COLUMN told;")
        .unwrap();
    let store = project.store();
    let check = || {
        for session in [id, fork] {
            let record = wait(store.get(session)).unwrap();
            assert_eq!(
                (record.counts.rendered_chars, record.covered),
                (ours.counts.rendered_chars, ours.counts.rendered_chars)
            );
        }
    };
    check();
    wait(store.rename(id, "the first change upgrades the file")).unwrap();
    check();
}

#[test]
fn a_newer_file_is_refused_and_not_touched() {
    for (key, value) in [("schema_version", "4"), ("azureal_format", "2"), ("azureal_format", "5000000000")] {
        let project = Project::new();
        let store = project.store();
        append(&store, new_session(&store), talk("x"));
        drop(store);
        project.raw().execute("INSERT OR REPLACE INTO meta VALUES (?1, ?2)", [key, value]).unwrap();
        let before = std::fs::read(project.path()).unwrap();
        let error = SqliteStore::open(project.path(), SqliteOptions::default()).err().unwrap();
        assert!(matches!(&error, StoreError::Newer { found, .. } if found == value), "{error}");
        assert!(error.to_string().contains(key) && azureal_store::hint(&error).is_some(), "{error}");
        assert!(std::fs::read(project.path()).unwrap() == before);
    }
}

#[test]
fn what_is_no_store_is_refused_and_not_touched() {
    let foreign = Project::new();
    std::fs::create_dir_all(foreign.path().parent().unwrap()).unwrap();
    foreign.raw().execute_batch("CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine');").unwrap();
    let foreign = std::fs::read(foreign.path()).unwrap();
    for (what, content) in
        [("an empty file", Vec::new()), ("a text", b"hello".repeat(2000)), ("a database", foreign)]
    {
        let project = Project::new();
        std::fs::create_dir_all(project.path().parent().unwrap()).unwrap();
        std::fs::write(project.path(), &content).unwrap();
        let error = SqliteStore::open(project.path(), SqliteOptions::default()).err().unwrap();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{what}: {error}");
        assert!(std::fs::read(project.path()).unwrap() == content, "{what}");
    }
}

#[test]
fn links_and_other_things_in_its_place_are_refused() {
    let elsewhere = Project::new();
    append(&elsewhere.store(), new_session(&elsewhere.store()), talk("x"));
    let refused = |project: &Project| {
        let opened = SqliteStore::open(project.path(), SqliteOptions::default());
        let error = opened.err().or_else(|| {
            let store = SqliteStore::open(project.path(), SqliteOptions::default()).ok()?;
            wait(store.create(NewSession::default())).err()
        });
        assert!(matches!(error, Some(StoreError::Unsafe { .. })), "{error:?}");
    };
    let before = std::fs::read(elsewhere.path()).unwrap();

    let project = Project::new();
    symlink(elsewhere.path().parent().unwrap(), project.folder.path().join(".azureal")).unwrap();
    refused(&project);

    let project = Project::new();
    symlink("/nowhere", project.folder.path().join(".azureal")).unwrap();
    refused(&project);

    type Place = fn(&std::path::Path, &std::path::Path);
    let places: [Place; 4] = [
        |target, path| symlink(target, path).unwrap(),
        |_, path| symlink("/nowhere", path).unwrap(),
        |target, path| std::fs::hard_link(target, path).unwrap(),
        |_, path| std::fs::create_dir(path).unwrap(),
    ];
    for place in places {
        let project = Project::new();
        std::fs::create_dir(project.path().parent().unwrap()).unwrap();
        place(&elsewhere.path(), &project.path());
        refused(&project);
        let _ = std::fs::remove_file(project.path());
    }

    for companion in ["sessions.azs-journal", "sessions.azs-wal"] {
        let project = Project::new();
        append(&project.store(), new_session(&project.store()), talk("x"));
        let victim = project.folder.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        symlink(&victim, project.path().with_file_name(companion)).unwrap();
        refused(&project);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    }
    assert!(std::fs::read(elsewhere.path()).unwrap() == before);
}

#[test]
fn a_project_below_a_link_of_the_user_works() {
    let project = Project::new();
    let link = project.folder.path().join("link");
    let real = project.folder.path().join("real");
    std::fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    let store = SqliteStore::open(link.join(".azureal/sessions.azs"), SqliteOptions::default()).unwrap();
    append(&store, new_session(&store), talk("x"));
    drop(store);
    assert!(real.join(".azureal/sessions.azs").exists());
    let store = SqliteStore::open(link.join(".azureal/sessions.azs"), SqliteOptions::default()).unwrap();
    assert_eq!(wait(store.list(&ListQuery::default())).unwrap().len(), 1);
}

#[test]
fn a_damaged_row_is_reported_and_the_rest_is_readable() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    for word in ["one", "two", "three"] {
        append(&store, id, talk(word));
    }
    let bomb = zstd::bulk::compress(&vec![b' '; 80 << 20], 3).unwrap();
    let raw = project.raw();
    for (seq, data) in [(2, vec![0_u8; 5]), (3, b"{\"UserMessage\":{\"content\":".to_vec()), (4, bomb)] {
        raw.execute("UPDATE events SET data = ?1 WHERE seq = ?2", rusqlite::params![data, seq]).unwrap();
    }
    let readable: Vec<u64> = read_all(&store, id)
        .into_iter()
        .filter(|stored| stored.event().is_ok())
        .map(|stored| stored.seq.0)
        .collect();
    assert_eq!(readable, [1, 5, 6]);
    let context = wait(read_context(&store, id)).unwrap();
    for seq in [2, 3, 4] {
        assert!(context.contains(&format!("event {seq} of session S1 is damaged")), "{context}");
    }
    assert!(context.contains("one") && context.contains("three"));
    append(&store, id, talk("goes on"));
}

#[test]
fn the_last_events_are_read_without_the_rest() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    append(&store, id, (0..500).map(|number| Event::user(number.to_string())));
    // Everything but the last is made unreadable: reading the last must not come by it.
    project.raw().execute("UPDATE events SET data = x'00' WHERE seq <= 490", []).unwrap();
    let page = wait(store.read(id, Page::last(10))).unwrap();
    assert_eq!(page.iter().map(|event| event.seq.0).collect::<Vec<_>>(), (491..=500).collect::<Vec<_>>());
    assert!(page.iter().all(|event| event.event().is_ok()));
}

#[test]
fn a_page_of_large_events_is_cut_and_the_next_goes_on() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    let large = "x".repeat(30 << 20);
    for _ in 0..5 {
        append(&store, id, [Event::user(&large)]);
    }
    let page = wait(store.read(id, Page::After(Seq::START, 100))).unwrap();
    assert!((1..5).contains(&page.len()), "{}", page.len());
    assert_eq!(read_all(&store, id).len(), 5);
    let last = wait(store.read(id, Page::last(100))).unwrap();
    assert_eq!(last.last().unwrap().seq, Seq(5));
    assert!(last.len() < 5);
}

#[test]
fn a_write_ahead_log_is_gone_when_the_last_one_closes() {
    let project = Project::new();
    let wal = || {
        SqliteStore::open(project.path(), SqliteOptions { journal: Journal::Wal, ..SqliteOptions::default() })
            .unwrap()
    };
    let id = new_session(&project.store());
    let first = wal();
    append(&first, id, talk("x"));
    let second = project.store(); // by default it goes along with what it finds
    append(&second, id, talk("y"));
    assert!(project.files().contains(&"sessions.azs-wal".to_owned()));
    drop(first);
    append(&second, id, talk("z"));
    drop(second);
    assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
    let mode: String = project.raw().pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete");
    assert_eq!(read_all(&project.store(), id).len(), 6);
}

#[test]
fn a_store_that_was_removed_while_it_is_open_is_written_again() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    append(&store, id, talk("x"));
    std::fs::remove_dir_all(project.path().parent().unwrap()).unwrap();
    // Not stored in a file that nobody can find any more.
    append(&store, id, talk("y"));
    assert!(matches!(&store.notices().take()[..], [FileNotice::Rewritten { .. }]));
    assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
    assert_eq!(read_all(&project.store(), id).len(), 4);
    // Without a process that has it open, it is gone.
    drop(store);
    std::fs::remove_dir_all(project.path().parent().unwrap()).unwrap();
    let error = wait(project.store().append(id, NewTurn::verbatim(talk("y")))).unwrap_err();
    assert!(matches!(error, StoreError::NoSuchSession(_)), "{error}");
}

#[test]
fn leftovers_of_a_killed_creation_are_removed() {
    let project = Project::new();
    std::fs::create_dir(project.path().parent().unwrap()).unwrap();
    let left = project.path().with_file_name("left");
    std::fs::write(&left, "half").unwrap();
    let inode = std::fs::metadata(&left).unwrap().ino();
    std::fs::rename(&left, left.with_file_name(format!("sessions.azs.new-999999999-{inode}"))).unwrap();
    new_session(&project.store());
    assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
}

#[test]
fn a_file_of_the_user_is_no_leftover_whatever_its_name_is() {
    let project = Project::new();
    std::fs::create_dir(project.path().parent().unwrap()).unwrap();
    let theirs =
        ["sessions.azs.new-999999999-0", "sessions.azs.new-999999999-11", "sessions.azs.new-999999999"];
    for name in theirs {
        std::fs::write(project.path().with_file_name(name), "precious").unwrap();
    }
    let inode = std::fs::metadata(project.path().with_file_name(theirs[0])).unwrap().ino();
    let copied = format!("sessions.azs.new-999999999-{inode}");
    std::fs::write(project.path().with_file_name(&copied), "of another file").unwrap();
    append(&project.store(), new_session(&project.store()), talk("x"));
    for name in theirs.into_iter().chain([copied.as_str()]) {
        assert!(project.files().contains(&name.to_owned()), "{name}");
    }
}

#[test]
fn tokens_of_a_turn_are_added_with_it() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    let turn = NewTurn { tokens: Tokens::new(10, 3), ..NewTurn::verbatim(talk("x")) };
    wait(store.append(id, turn.clone())).unwrap();
    wait(store.append(id, turn)).unwrap();
    assert_eq!(wait(store.get(id)).unwrap().tokens, Tokens::new(20, 6));
}

#[test]
fn events_that_were_left_behind_go_to_no_new_session() {
    let project = Project::new();
    let original = project.original();
    for _ in 0..2 {
        original_append(&original, original_session(&original, "main"), &talk("old"));
    }
    original.execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM sessions WHERE id = 2;").unwrap();
    drop(original);
    let store = project.store();
    let id = new_session(&store);
    assert_eq!(id.to_string(), "S3");
    assert_eq!(read_all(&store, id), []);
}

#[test]
fn a_column_that_somebody_dropped_comes_back() {
    let project = Project::new();
    let store = project.store();
    append(&store, new_session(&store), talk("hello"));
    drop(store);
    project.raw().execute_batch("ALTER TABLE sessions DROP COLUMN preview;").unwrap();
    let listed = wait(project.store().list(&ListQuery::default())).unwrap();
    assert_eq!((listed.len(), listed[0].counts.messages), (1, 2));
}

#[test]
fn a_refused_file_is_not_touched_by_a_store_that_would_use_a_log() {
    for sql in ["UPDATE meta SET value = '4' WHERE key = 'schema_version'", "DROP TABLE events"] {
        let project = Project::new();
        let store = project.store();
        append(&store, new_session(&store), talk("x"));
        drop(store);
        project.raw().execute_batch(sql).unwrap();
        std::fs::set_permissions(project.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
        let before = std::fs::read(project.path()).unwrap();
        let options = SqliteOptions { journal: Journal::Wal, ..SqliteOptions::default() };
        assert!(SqliteStore::open(project.path(), options).is_err());
        assert!(std::fs::read(project.path()).unwrap() == before, "{sql}");
        assert_eq!(std::fs::metadata(project.path()).unwrap().mode() & 0o777, 0o644, "{sql}");
    }
}

#[test]
fn numbers_that_grow_too_large_stop_there() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    let complete =
        Event::Complete(Complete { duration_ms: u64::MAX, cost_usd: f64::MAX, ..Default::default() });
    for _ in 0..3 {
        let tokens = Tokens { cache_read: u64::MAX, cache_write: u64::MAX, ..Tokens::new(u64::MAX, 1) };
        wait(store.add_tokens(id, tokens)).unwrap();
        append(&store, id, [complete.clone()]);
    }
    let listed = wait(store.list(&ListQuery::default())).unwrap();
    let most = i64::MAX as u64;
    assert_eq!((listed[0].tokens.input, listed[0].duration_ms), (most, most));
    assert_eq!((listed[0].tokens.cache_read, listed[0].tokens.cache_write), (most, most));
    assert!(listed[0].cost_usd.is_finite());
}

#[test]
fn one_odd_row_does_not_keep_the_others_from_being_listed() {
    let project = Project::new();
    let store = project.store();
    for _ in 0..3 {
        append(&store, new_session(&store), talk("x"));
    }
    project
        .raw()
        .execute_batch(
            "UPDATE sessions SET worktree = x'ff00', cost_usd = 'much', duration_ms = 1e30, name = 7 WHERE id = 1;
             INSERT INTO sessions (id, name, active) VALUES (99999999999, 'too large', 99);",
        )
        .unwrap();
    let listed = wait(store.list(&ListQuery::default())).unwrap();
    assert_eq!(listed.len(), 3);
    assert_eq!((listed[2].name.as_str(), listed[2].cost_usd), ("7", 0.0));
}

#[test]
fn a_damaged_row_counts_as_the_message_that_stands_for_it() {
    let project = Project::new();
    let original = project.original();
    let session = original_session(&original, "main");
    original_append(&original, session, &[Event::user("a"), Event::assistant("b"), Event::assistant("c")]);
    original.execute("UPDATE events SET data = x'00' WHERE seq = 2", []).unwrap();
    drop(original);
    let store = project.store();
    let id = SessionId::new(1).unwrap();
    let history = wait(azureal_core::read_history(&store, id)).unwrap();
    assert_eq!(wait(store.get(id)).unwrap().counts.messages, history.len() as u64);
}

#[test]
fn opening_a_store_a_second_time_keeps_the_locks_of_the_first() {
    let project = Project::new();
    let store = project.store();
    append(&store, new_session(&store), talk("x"));
    let holder = project.raw();
    holder.execute_batch("BEGIN IMMEDIATE; INSERT INTO meta VALUES ('k', 'v');").unwrap();
    std::fs::set_permissions(project.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let locks = || {
        let inode = std::fs::metadata(project.path()).unwrap().ino();
        let all = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        all.lines().filter(|line| line.contains(&format!(":{inode} "))).count()
    };
    let before = locks();
    let second = project.store();
    assert_eq!(locks(), before);
    assert_eq!(std::fs::metadata(project.path()).unwrap().mode() & 0o777, 0o600);
    drop(second);
}

#[test]
fn a_store_of_the_original_program_is_hidden_from_git_too() {
    let project = Project::new();
    drop(project.original());
    let ignore = project.path().with_file_name(".gitignore");
    drop(project.store());
    assert!(std::fs::read_to_string(&ignore).unwrap().contains("!azufig.toml"));
    // What a killed process left empty is written again, what a person wrote stays.
    std::fs::write(&ignore, "").unwrap();
    drop(project.store());
    assert!(!std::fs::read_to_string(&ignore).unwrap().is_empty());
    std::fs::write(&ignore, "mine\n").unwrap();
    drop(project.store());
    assert_eq!(std::fs::read_to_string(&ignore).unwrap(), "mine\n");
    assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
}

#[test]
fn the_system_message_stays_though_an_agent_began_before_it() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    let event = |json: &str| Event::from_json(json).unwrap();
    append(
        &store,
        id,
        [
            event(r#"{"Init":{"cwd":"/","model":"m"}}"#),
            event(r#"{"SystemMessage":{"content":"be kind"}}"#),
            Event::user("a"),
            Event::assistant("b"),
        ],
    );
    wait(store.add_compaction(id, &Compaction::new(Seq(3), "we met"))).unwrap();
    let context = wait(read_context(&store, id)).unwrap();
    assert_eq!(context.matches("be kind").count(), 1, "{context}");
    assert!(context.starts_with("## System message\nbe kind"), "{context}");
}

#[test]
fn an_upgrade_measures_summaries_again_and_resurrects_no_count_of_tokens() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    let system =
        Event::from_json(r#"{"SystemMessage":{"content":"a long rule, told at every turn"}}"#).unwrap();
    append(&store, id, vec![system]);
    let complete = Event::from_json(
        r#"{"Complete":{"success":true,"duration_ms":1,"cost_usd":0.0,"usage":{"input_tokens":1,"output_tokens":1,"context_tokens":150000}}}"#,
    );
    append(&store, id, [talk("first"), talk("second")].concat());
    append(&store, id, vec![complete.unwrap()]);
    wait(store.add_compaction(id, &Compaction::new(Seq(3), "the summary"))).unwrap();
    let before = wait(store.get(id)).unwrap();
    assert_eq!(before.counts.context_tokens, None, "something else is sent now");
    drop(store);
    // As the first release leaves it: without our later columns, and the system message not counted.
    project
        .raw()
        .execute_batch(
            "DROP INDEX idx_sessions_stale; ALTER TABLE sessions DROP COLUMN tallied_seq;
             UPDATE sessions SET told = told - 20; UPDATE compactions SET covers = covers - 20;",
        )
        .unwrap();
    let store = project.store();
    assert_eq!(wait(store.get(id)).unwrap().counts.context_tokens, None);
    wait(store.rename(id, "the first change upgrades the file")).unwrap();
    let after = wait(store.get(id)).unwrap();
    assert_eq!((after.counts, after.covered), (before.counts, before.covered));
}

#[test]
fn a_file_of_the_second_release_gains_what_its_turns_reported_of_the_cache() {
    let project = Project::new();
    let store = project.store();
    let end = |input, cache: &str| {
        let json = format!(
            r#"{{"Complete":{{"success":true,"usage":{{"input_tokens":{input},"output_tokens":4{cache}}}}}}}"#
        );
        Event::from_json(&json).unwrap()
    };
    let ends = [
        end(1000, r#","cache_write_tokens":900"#),
        end(2000, r#","cache_read_tokens":1500,"cache_write_tokens":400"#),
    ];
    // A summary used 50 more.
    let ids = [3050, 2000].map(|input| {
        let id = new_session(&store);
        append(&store, id, ends.clone());
        wait(store.set_tokens(id, Tokens::new(input, 8))).unwrap();
        id
    });
    let before = wait(store.list(&ListQuery::default())).unwrap();
    drop(store);
    project
        .raw()
        .execute_batch(
            "ALTER TABLE sessions DROP COLUMN cache_read; ALTER TABLE sessions DROP COLUMN cache_write;",
        )
        .unwrap();

    let bytes = std::fs::read(project.path()).unwrap();
    let store = project.store();
    assert_eq!(wait(store.list(&ListQuery::default())).unwrap(), before, "all but the cache is known");
    let uuid = before[0].uuid.unwrap();
    assert_eq!(wait(store.find_uuid(uuid)).unwrap(), Some(before[0].id));
    assert!(std::fs::read(project.path()).unwrap() == bytes, "reading has written");

    wait(store.rename(ids[1], "the first change upgrades the file")).unwrap();
    let cache = |id| {
        let tokens = wait(store.get(id)).unwrap().tokens;
        (tokens.cache_read, tokens.cache_write)
    };
    assert_eq!(cache(ids[0]), (1500, 1300));
    assert_eq!(cache(ids[1]), (0, 0), "more was reported than counted, as in a fork");
    assert_eq!(wait(project.store().get(ids[0])).unwrap().counts, before[1].counts);
}

#[test]
fn a_file_of_the_second_release_is_not_counted_again() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    append(&store, id, talk("hello"));
    drop(store);
    // A count that differs from the events shows whether it was made again.
    project
        .raw()
        .execute_batch(
            "ALTER TABLE sessions DROP COLUMN cache_write; UPDATE sessions SET message_count = 99;",
        )
        .unwrap();
    let store = project.store();
    assert_eq!(wait(store.list(&ListQuery::default())).unwrap()[0].counts.messages, 99);
    wait(store.rename(id, "upgraded")).unwrap();
    assert_eq!(wait(store.get(id)).unwrap().counts.messages, 99);
    let tokens = Tokens { cache_read: 1, cache_write: 2, ..Tokens::new(3, 4) };
    wait(store.add_tokens(id, tokens)).unwrap();
    assert_eq!(wait(store.get(id)).unwrap().tokens, tokens);
}

#[test]
fn a_file_from_before_revisions_is_read_as_it_is_and_upgraded_by_the_first_change() {
    let project = Project::new();
    let id = new_session(&project.store());
    append(&project.store(), id, [Event::user("one"), Event::assistant("two")]);
    project.raw().execute_batch("ALTER TABLE sessions DROP COLUMN changes").unwrap();
    let before = std::fs::read(project.path()).unwrap();
    let store = project.store();
    assert_eq!(wait(store.get(id)).unwrap().revision, 2);
    assert_eq!(wait(store.list(&ListQuery::default())).unwrap()[0].revision, 2);
    assert!(std::fs::read(project.path()).unwrap() == before, "reading has written");
    wait(store.rename(id, "name")).unwrap();
    assert_eq!(wait(store.get(id)).unwrap().revision, 3);
    // The original program does not know of it, and what it appends is a change all the same.
    let original = project.raw();
    original_append(&original, 1, &[Event::user("three")]);
    assert_eq!(wait(store.get(id)).unwrap().revision, 4);
    assert_eq!(wait(store.list(&ListQuery::default())).unwrap()[0].revision, 4);
    wait(store.clear(id)).unwrap();
    assert_eq!(wait(store.get(id)).unwrap().revision, 5);
}
