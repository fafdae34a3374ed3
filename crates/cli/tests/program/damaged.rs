//! One cell of the store with a wrong value: every other session can still be listed and shown, and the damage is reported.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::Connection;

use crate::world::{Ran, World, assistant, user};

/// The tables of a store, and the rows of the damaged session in them. A mark is a row of no session.
const ROWS: [(&str, &str); 4] = [
    ("sessions", "id = 2"),
    ("events", "session_id = 2 AND seq = 2"),
    ("compactions", "session_id = 2"),
    ("meta", "key = 'mark:x'"),
];
const VALUES: [&str; 6] = ["NULL", "-1", "9223372036854775807", "1.5", "'text'", "x'ff00'"];
/// A value that is larger than SQLite may load here, for one column of each use.
const HUGE: &str = "printf('%.*c', 70000000, 'x')";
const HUGE_COLUMNS: [(&str, &str); 7] = [
    ("sessions", "name"),
    ("sessions", "preview"),
    ("sessions", "active"),
    ("events", "seq"),
    ("events", "kind"),
    ("events", "data"),
    ("compactions", "summary"),
];

struct Case {
    table: &'static str,
    rows: &'static str,
    column: String,
    declared: String,
    value: &'static str,
}

/// Two sessions, of which the second has a summary.
fn template() -> World {
    let world = World::new();
    world.session("other", &[user("Hello"), assistant("Hi!"), user("again")]);
    world.session("damaged", &[user("one"), assistant("two"), user("three")]);
    Connection::open(world.store())
        .unwrap()
        .execute_batch(
            "INSERT INTO compactions (session_id, after_seq, summary, covers) VALUES (2, 1, 'sum', 5);
             INSERT INTO meta VALUES ('mark:x', '2 note');",
        )
        .unwrap();
    world
}

fn cases(store: &Connection) -> Vec<Case> {
    let mut cases = Vec::new();
    for (table, rows) in ROWS {
        let mut columns = store.prepare("SELECT name, type FROM pragma_table_info(?1)").unwrap();
        let columns = columns.query_map([table], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        for (column, declared) in columns.map(|row| row.unwrap()).collect::<Vec<(String, String)>>() {
            let is_huge = HUGE_COLUMNS.contains(&(table, column.as_str()));
            for value in VALUES.into_iter().chain(is_huge.then_some(HUGE)) {
                cases.push(Case { table, rows, column: column.clone(), declared: declared.clone(), value });
            }
        }
    }
    cases
}

/// Puts the value into its cell; `None` if the schema does not allow it. Returns its type.
fn damage(world: &World, case: &Case) -> Option<String> {
    let Case { table, rows, column, value, .. } = case;
    let store = Connection::open(world.store()).unwrap();
    store.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF;").unwrap();
    let sql = format!("UPDATE {table} SET {column} = {value} WHERE {rows} RETURNING typeof({column})");
    store.query_row(&sql, [], |row| row.get(0)).ok()
}

/// Says whether the damage of a case has to be reported: a value that the session needs cannot be read.
fn is_to_be_reported(case: &Case, stored: &str) -> bool {
    let fits = match case.declared.as_str() {
        "TEXT" => ["null", "text"].contains(&stored) && case.value != HUGE,
        "INTEGER" => ["null", "integer"].contains(&stored),
        "REAL" => ["null", "integer", "real"].contains(&stored),
        other => panic!("{other}"),
    };
    match (case.table, case.column.as_str()) {
        // No session has that number, or none at all: the row belongs to nobody.
        ("sessions", "id") | ("events" | "compactions", "session_id" | "id") | ("meta", _) => false,
        // Nothing reads these, or what they say is measured again.
        ("events", "kind" | "char_len" | "operation" | "entry" | "removed")
        | ("sessions", "details" | "detailed_seq" | "copied_seq")
        | ("compactions", "created" | "covers" | "covered_details" | "writer" | "opening") => false,
        ("sessions", "uuid" | "forked_from") => stored != "null",
        ("events", "data") => true,
        ("events", "seq") => !fits || ["-1", "9223372036854775807"].contains(&case.value),
        _ => !fits,
    }
}

#[test]
fn one_damaged_cell_does_not_keep_other_sessions_from_being_read() {
    let template = template();
    let listed = |ran: &Ran, id: &str| {
        let found = ran.json().as_array().unwrap().iter().find(|session| session["id"] == id).cloned();
        found.map(|session| session.to_string())
    };
    let before = template.run(&["list", "--json", "--all"]);
    let (other, shown) = (listed(&before, "S1"), template.run(&["show", "--json", "S1"]).quiet());
    let cases = cases(&Connection::open(template.store()).unwrap());
    assert!(cases.len() > 250, "{}", cases.len());
    let (next, tried) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let check = |case: &Case| {
        let world = World::new();
        fs::create_dir(world.path("p/.azureal")).unwrap();
        fs::copy(template.store(), world.store()).unwrap();
        let Some(stored) = damage(&world, case) else { return };
        tried.fetch_add(1, Ordering::Relaxed);
        let what = format!("{}.{} = {} ({stored})", case.table, case.column, case.value);
        let list = world.run(&["list", "--json", "--all"]);
        assert_eq!(list.code, 0, "{what}: {list}");
        assert_eq!(listed(&list, "S1"), other, "{what}: {list}");
        let show = world.run(&["show", "--json", "S1"]);
        assert_eq!((show.code, &show.stdout), (0, &shown), "{what}: {show}");
        // The session itself is there as far as it can be read.
        let damaged = world.run(&["show", "--json", "S2"]);
        let is_gone = case.table == "sessions" && case.column == "id";
        assert!(damaged.code == 0 || is_gone, "{what}: {damaged}");
        let has_warned = [&list, &damaged].iter().any(|ran| ran.stderr.contains("warning"));
        assert!(has_warned || !is_to_be_reported(case, &stored), "{what}: {list}{damaged}");
        // And it can be written to, which counts again what was damaged.
        if case.column != "id" && case.value != HUGE {
            let fork = world.run(&["fork", "S2"]);
            assert_eq!(fork.code, 0, "{what}: {fork}");
            let list = world.run(&["list", "--json", "--all"]);
            assert_eq!((list.code, listed(&list, "S1")), (0, other.clone()), "{what}: {list}");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(case);
                }
            });
        }
    });
    let tried = tried.into_inner();
    eprintln!("{tried} of {} cases", cases.len());
    assert!(tried > 200, "the schema refuses too much: {tried}");
}
