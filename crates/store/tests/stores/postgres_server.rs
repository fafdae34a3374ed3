//! What a PostgreSQL server has of a store: its tables, its plans, its settings, its certificates.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::certificates::certificates;
use azureal_store::core::{
    CrashNotes, Event, Holder, LeaseId, Leases, ListOrder, ListQuery, NameFilter, NewEvent, NewLease,
    NewSession, NewTurn, Operation, Page, Seq, SessionId, SessionStore, StoreError, Tokens, Uuid, Watch,
    WorktreeFilter,
};
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use azureal_testkit::servers::PostgresServer;
use azureal_testkit::until;
use futures_executor::block_on;
use tokio::runtime::Runtime;
use tokio_postgres::{AsyncMessage, Client};

fn open(url: &str) -> Result<PostgresStore, StoreError> {
    let address: PostgresAddress = url.parse().unwrap();
    let options = PostgresOptions {
        connections: 2,
        retry_budget: Duration::from_secs(2),
        ..PostgresOptions::default()
    };
    block_on(PostgresStore::open(&address, options))
}

/// Returns the name of a schema that no other test uses.
fn new_schema() -> String {
    static SCHEMAS: AtomicU32 = AtomicU32::new(1);
    format!("schema_{}", SCHEMAS.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn however_many_start_at_once_the_tables_are_made_once() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = new_schema();
    let url = format!("{}?schema={schema}", server.url());
    let together = std::sync::Barrier::new(16);
    std::thread::scope(|scope| {
        for client in 0..16 {
            let (url, together) = (&url, &together);
            scope.spawn(move || {
                together.wait();
                let store =
                    block_on(PostgresStore::open(&url.parse().unwrap(), PostgresOptions::default())).unwrap();
                let new = NewSession { name: Some(format!("of {client}")), ..NewSession::default() };
                block_on(store.create(new)).unwrap();
            });
        }
    });
    assert_eq!(server.sql(&format!("SELECT version FROM {schema}.format")), "6");
    assert_eq!(block_on(open(&url).unwrap().list(&ListQuery::default())).unwrap().len(), 16);
}

#[test]
fn what_is_newer_or_somebody_elses_is_left_alone() {
    let Some(server) = PostgresServer::shared() else { return };
    let newer = new_schema();
    let url = format!("{}?schema={newer}", server.url());
    let store = open(&url).unwrap();
    block_on(store.create(NewSession::default())).unwrap();
    server.sql(&format!("UPDATE {newer}.format SET version = 99"));
    let error = open(&url).err().unwrap();
    assert!(matches!(&error, StoreError::Newer { found, .. } if found == "99"), "{error}");
    assert_eq!(server.sql(&format!("SELECT version FROM {newer}.format")), "99");

    let other = new_schema();
    server.sql(&format!("CREATE SCHEMA {other}; CREATE TABLE {other}.sessions (mine text)"));
    let error = open(&format!("{}?schema={other}", server.url())).err().unwrap();
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    let tables = format!("SELECT string_agg(tablename, ',') FROM pg_tables WHERE schemaname = '{other}'");
    assert_eq!(server.sql(&tables), "sessions", "something was made beside it");

    server.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    let latin = server.url().trim_end_matches("/postgres").to_owned() + "/latin";
    let error = open(&latin).err().unwrap();
    assert!(error.to_string().contains("encoding LATIN1"), "{error}");
}

#[test]
fn no_function_runs_what_others_put_in_the_path() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = new_schema();
    let url = format!("{}?schema={schema}", server.url());
    drop(open(&url).unwrap());
    let unpinned = server.sql(&format!(
        "SELECT string_agg(proname, ',') FROM pg_proc JOIN pg_language ON pg_language.oid = prolang
         WHERE pronamespace = '{schema}'::regnamespace AND lanname <> 'sql'
           AND (proconfig IS NULL OR NOT 'search_path=pg_catalog, pg_temp' = ANY (proconfig))"
    ));
    assert_eq!(unpinned, "");
    // An exact match is found before the one of the system that takes any array.
    server.sql(
        "CREATE SCHEMA attacker; CREATE TABLE attacker.seen (events text[]);
         CREATE FUNCTION attacker.cardinality(events text[]) RETURNS integer LANGUAGE plpgsql AS
           'BEGIN INSERT INTO attacker.seen VALUES (events); RETURN array_length(events, 1); END'",
    );
    let store = open(&format!("{url}&options=-csearch_path%3Dattacker")).unwrap();
    let id = block_on(store.create(NewSession::default())).unwrap();
    block_on(store.append(id, NewTurn::verbatim([Event::user("private")]))).unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM attacker.seen"), "0");
}

#[test]
fn operations_go_only_with_their_session() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = new_schema();
    let store = open(&format!("{}?schema={schema}", server.url())).unwrap();
    let forgetting = server.sql(&format!(
        "SELECT string_agg(proname, ',') FROM pg_proc
         WHERE pronamespace = '{schema}'::regnamespace AND prosrc LIKE '%DELETE FROM {schema}.operations%'"
    ));
    assert_eq!(forgetting, "delete_session");
    let id = block_on(store.create(NewSession::default())).unwrap();
    block_on(store.append(id, NewTurn::verbatim([Event::user("x")]))).unwrap();
    let operations = || server.sql(&format!("SELECT count(*) FROM {schema}.operations"));
    assert_eq!(operations(), "1");
    block_on(store.delete(id)).unwrap();
    assert_eq!(operations(), "0");
}

#[test]
fn a_name_is_on_the_disk_where_the_server_was_told_that_this_is_not_needed() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = new_schema();
    drop(open(&format!("{}?schema={schema}&project=p", server.url())).unwrap());
    let made = "find_or_create('p', 'a', NULL, '', '2026-01-31T09:30:00Z', gen_random_uuid(), NULL, '')";
    for (change, answer) in [(made, "1"), ("rename_session('p', 1, 'b')", "t")] {
        let shown = server.sql(&format!(
            "SET synchronous_commit = off; BEGIN; SELECT {schema}.{change}; SHOW synchronous_commit; COMMIT;"
        ));
        let lines: Vec<&str> = shown.lines().filter(|line| [answer, "on", "off"].contains(line)).collect();
        assert_eq!(lines, [answer, "on"], "{change}: {shown}");
    }
}

#[test]
fn events_can_be_asked_for_as_json() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = new_schema();
    let store = open(&format!("{}?schema={schema}&project=p", server.url())).unwrap();
    let id = block_on(store.create(NewSession::default())).unwrap();
    let odd = [
        r#"{"Odd":"\u0000"}"#.to_owned(),
        r#"{"Odd":"\ud800"}"#.to_owned(),
        r#"{"Odd":1e999999}"#.to_owned(),
    ];
    let plain = [Event::user("where is it?").to_json(), r#"{"Telemetry": {"cpu": 0.50}}"#.to_owned()];
    let texts: Vec<String> = plain.iter().chain(&odd).cloned().collect();
    let events = texts.iter().filter_map(|text| NewEvent::verbatim(text.clone()).ok()).collect::<Vec<_>>();
    let stored = events.len();
    assert!(stored > plain.len());
    block_on(store.append(id, NewTurn { events: events.clone(), ..NewTurn::default() })).unwrap();
    let read = block_on(store.read(id, Page::last(9))).unwrap();
    assert!(read.iter().all(|event| texts.contains(event.json.as_ref().unwrap())));
    let asked = |sql: &str| server.sql(&sql.replace("events", &format!("{schema}.events")));
    assert_eq!(
        asked("SELECT data #>> '{UserMessage,content}' FROM events WHERE kind = 'UserMessage'"),
        "where is it?"
    );
    assert_eq!(asked("SELECT seq FROM events WHERE data @> '{\"Telemetry\":{\"cpu\":0.5}}'"), "2");
    let odd_ones = "SELECT count(*) FROM events WHERE data IS NULL";
    assert_eq!(asked(odd_ones), (stored - plain.len()).to_string());
    // As a history from elsewhere it is the same.
    let turn = NewTurn { events, ..NewTurn::default() };
    let copy = block_on(store.create_with(NewSession::default(), turn, Vec::new())).unwrap();
    assert_eq!(block_on(store.read(copy, Page::last(9))).unwrap(), read);
    assert_eq!(asked(odd_ones), (2 * (stored - plain.len())).to_string());
}

#[test]
fn no_statement_reads_a_whole_table() {
    let settings = [
        ("fsync", "off"),
        ("session_preload_libraries", "auto_explain"),
        ("auto_explain.log_min_duration", "0"),
        ("auto_explain.log_nested_statements", "on"),
    ];
    let Some(server) = PostgresServer::start_with(&settings, &[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = open(&format!("{}?project=p3", server.url())).unwrap();
    let store = store.with_originals(folder.path().join("originals"), true, None);
    let without_originals = open(&format!("{}?project=p3", server.url())).unwrap();
    server.sql(
        "INSERT INTO azureal.projects SELECT 'p' || p, 1000 FROM generate_series(1, 5) p;
         INSERT INTO azureal.sessions (project, session, name, worktree, created_at, last_seq, noted_run)
           SELECT 'p' || p, s, 'name ' || s, '.', '', 30, CASE WHEN s = 7 THEN 'run' END
           FROM generate_series(1, 5) p, generate_series(1, 1000) s;
         INSERT INTO azureal.events
           SELECT 'p' || p, s, e, 'UserMessage', '{\"UserMessage\":{\"content\":\"x\"}}', NULL
           FROM generate_series(1, 5) p, generate_series(1, 1000) s, generate_series(1, 30) e;
         INSERT INTO azureal.marks SELECT 'p' || p, 'mark ' || m, 1, ''
           FROM generate_series(1, 5) p, generate_series(1, 1000) m;
         INSERT INTO azureal.compactions SELECT 'p' || p, s, 1, '', '', 0
           FROM generate_series(1, 5) p, generate_series(1, 1000) s;
         INSERT INTO azureal.last_used SELECT 'p' || p, 'place ' || u, u
           FROM generate_series(1, 5) p, generate_series(1, 1000) u;
         INSERT INTO azureal.operations SELECT 'p' || p, gen_random_uuid(), '{}', 1, 0
           FROM generate_series(1, 5) p, generate_series(1, 1000) o;
         INSERT INTO azureal.tombstones SELECT 'p' || p, gen_random_uuid(), 1000 + t, '', 0, NULL, NULL, gen_random_uuid()
           FROM generate_series(1, 5) p, generate_series(1, 1000) t;
         INSERT INTO azureal.originals SELECT 'p' || p, s, 'run', 1, 3, 3
           FROM generate_series(1, 5) p, generate_series(1, 1000) s;
         INSERT INTO azureal.original_pieces SELECT 'p' || p, s, 'run', 0, 'abc'
           FROM generate_series(1, 5) p, generate_series(1, 1000) s;
         ANALYZE;",
    );
    // Creating the tables, and filling them here, is another matter.
    let prepared = server.log().len();
    let id = SessionId::new(500).unwrap();
    let filter = WorktreeFilter { names: vec![".".to_owned()], last_part: "x".to_owned() };
    // From the sixth time on PostgreSQL may use one plan for all values of a statement inside a function.
    for _ in 0..8 {
        block_on(async {
            for worktree in [None, Some(filter.clone())] {
                for order in [ListOrder::Activity, ListOrder::Changes] {
                    let worktree = worktree.clone();
                    let query = ListQuery { worktree, order, limit: Some(50), ..ListQuery::default() };
                    store.list(&query).await.unwrap();
                }
            }
            store.read(id, Page::last(20)).await.unwrap();
            store.read(id, Page::After(Seq(3), 20)).await.unwrap();
            store.read_prompts(id, Seq::END, 20).await.unwrap();
            store.get(id).await.unwrap();
            store.find("name 3").await.unwrap();
            let prefix = Some(NameFilter::Prefix("name 33".to_owned()));
            let listed = store.list(&ListQuery { name: prefix, ..ListQuery::default() }).await.unwrap();
            assert_eq!(listed.len(), 11);
            let used_in = Some("place 3".to_owned());
            let operation = Some(Operation::new(Uuid::new_v4(), &store.get(id).await.unwrap()));
            let turn = NewTurn { used_in, operation, ..NewTurn::verbatim([Event::assistant("x")]) };
            store.append(id, turn).await.unwrap();
            assert_eq!(store.last_used("place 3").await.unwrap(), Some(id));
            let uuid = store.get(id).await.unwrap().uuid.unwrap();
            assert_eq!(store.find_uuid(uuid).await.unwrap(), Some(id));
            store.add_tokens(id, Tokens::default()).await.unwrap();
            store.rename(id, "another").await.unwrap();
            store.compactions(id).await.unwrap();
            store.mark("mark 3").await.unwrap();
            store.noted_runs().await.unwrap();
            let (user, host, agent, since) = Default::default();
            let holder = Holder { user, host, pid: 1, agent, since };
            let lasts = Duration::from_secs(60);
            let lease = NewLease { id: LeaseId::random(), holder, lasts, instead_of: None };
            store.take(id, &lease).await.unwrap();
            store.renew(id, &lease.id, lasts).await.unwrap();
            store.held().await.unwrap();
            store.release(id, &lease.id).await.unwrap();
            let mut watch = store.watch(id).await.unwrap().unwrap();
            while watch.changed(Duration::from_millis(100)).await.unwrap() {}
            let new = || NewSession { name: Some("name 4".to_owned()), ..NewSession::default() };
            store.find_or_create(new()).await.unwrap();
            let fork = store.fork(id, Seq(3), new()).await.unwrap();
            let originals = store.originals().unwrap();
            assert_eq!(originals.sizes(&[id, fork]).await.unwrap(), [3, 3]);
            assert!(originals.open(fork, "run").await.is_err(), "it is not compressed");
            originals.expire(30).await.unwrap();
            let other = store.fork(id, Seq(3), new()).await.unwrap();
            assert_eq!(originals.delete(other).await.unwrap(), 3);
            store.clear(fork).await.unwrap();
            store.delete(fork).await.unwrap();
            assert!(without_originals.delete(fork).await.is_err());
            assert_eq!(store.tombstones(Some(uuid), 3).await.unwrap().len(), 3);
        });
    }
    let log = server.log().split_off(prepared);
    let indexes = [
        "events_pkey",
        "sessions_by_activity",
        "sessions_by_last_active",
        "sessions_by_name",
        "sessions_by_prefix",
        "sessions_by_uuid",
        "marks_by_name",
        "last_used_by_place",
        "operations_pkey",
        "tombstones_pkey",
        "tombstones_by_session",
        "originals_pkey",
        "original_pieces_pkey",
        "originals_by_time",
    ];
    for index in indexes {
        assert!(log.contains(index), "nothing used {index}");
    }
    let scans: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("Seq Scan on"))
        // One row each.
        .filter(|line| {
            !["format", "projects"].iter().any(|table| line.contains(&format!("Seq Scan on {table}")))
        })
        .collect();
    assert!(scans.is_empty(), "{scans:#?}");
}

#[test]
fn a_server_that_only_reads_says_so_and_is_asked_again() {
    let Some(server) = PostgresServer::start_with(&[("fsync", "off")], &[]) else { return };
    let store = open(&server.url()).unwrap();
    let id = block_on(store.create(NewSession::default())).unwrap();
    let read_only = |value: &str| {
        server.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}"));
        server.sql("SELECT pg_reload_conf()");
    };
    read_only("on");
    until("the server only reads", || block_on(store.rename(id, "too soon")).err());
    let error = block_on(store.append(id, NewTurn::verbatim([Event::user("x")]))).unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
    assert_eq!(block_on(store.list(&ListQuery::default())).unwrap().len(), 1, "reading works");
    // The one that takes over writes, and the store finds it by itself.
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| block_on(store.append(id, NewTurn::verbatim([Event::user("y")]))));
        std::thread::sleep(Duration::from_millis(300));
        read_only("off");
        assert_eq!(appending.join().unwrap().unwrap().last, Seq(1));
    });
}

#[test]
fn connections_are_encrypted_as_sslmode_says() {
    let (authority, certificate, key) = certificates("localhost");
    let (stranger, _, _) = certificates("localhost");
    let settings = [("fsync", "off"), ("ssl", "on")];
    let files = [("server.crt", certificate.as_str()), ("server.key", &key)];
    let Some(server) = PostgresServer::start_with(&settings, &files) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (folder.path().join("ours.pem"), folder.path().join("theirs.pem"));
    std::fs::write(&ours, authority).unwrap();
    std::fs::write(&theirs, stranger).unwrap();

    let by_name = server.url().replace("127.0.0.1", "localhost");
    let opened = |url: &str, mode: &str, roots: Option<&std::path::Path>| {
        let roots = roots.map(|roots| format!("&sslrootcert={}", roots.display())).unwrap_or_default();
        open(&format!("{url}?sslmode={mode}{roots}"))
    };
    let encrypted = || {
        let ask = "SELECT coalesce(bool_and(ssl), false) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                   WHERE application_name = 'azureal'";
        server.sql(ask) == "t"
    };
    // The name that we connect by is the certificate's, or only the address of the same machine.
    let by_address = server.url();
    let missing = folder.path().join("missing.pem");
    let rows = [
        (&by_name, "disable", Some(&theirs), Some(false)),
        (&by_name, "prefer", None, Some(true)),
        (&by_name, "prefer", Some(&ours), Some(true)),
        (&by_name, "prefer", Some(&theirs), None),
        (&by_name, "require", None, Some(true)),
        (&by_name, "require", Some(&ours), Some(true)),
        (&by_address, "require", Some(&ours), Some(true)),
        (&by_name, "require", Some(&theirs), None),
        (&by_name, "require", Some(&missing), None),
        (&by_name, "verify-ca", Some(&ours), Some(true)),
        (&by_name, "verify-ca", Some(&theirs), None),
        (&by_address, "verify-ca", Some(&ours), Some(true)),
        (&by_name, "verify-full", Some(&ours), Some(true)),
        (&by_name, "verify-full", Some(&theirs), None),
        (&by_address, "verify-full", Some(&ours), None),
        (&by_name, "verify-full", Some(&missing), None),
    ];
    for (url, mode, roots, expected) in rows {
        let store = opened(url, mode, roots.map(|roots| &**roots));
        let found = store.as_ref().ok().map(|_| encrypted());
        let said = store.as_ref().err().map(|error| format!("{error} {error:?}")).unwrap_or_default();
        assert_eq!(found, expected, "{mode} {roots:?} {said}");
        if roots == Some(&missing) {
            assert!(said.contains("missing.pem` (sslrootcert) cannot be read"), "{said}");
        }
        assert!(!said.contains(server.password()), "{said}");
        // A certificate that is wrong does not become right: it is not tried until the budget ends.
        assert!(!matches!(store, Err(StoreError::Unreachable { .. })), "{mode} was retried: {said}");
        drop(store);
        let connected = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'azureal'";
        until("a closed store disconnects", || (server.sql(connected) == "0").then_some(()));
    }
    // A socket in a folder needs none of that.
    let socket = server.socket_folder().display().to_string().replace('/', "%2F");
    open(&server.url().replace("127.0.0.1", &socket)).unwrap();
}

/// How often `show --follow` looks at a store that tells nothing.
const PACE: Duration = Duration::from_millis(300);

/// Waits until a watch hears, and there is nothing to hear.
fn is_quiet(watch: &mut dyn Watch) {
    let mut changed = || block_on(watch.changed(Duration::from_millis(100))).unwrap();
    until("the watch hears", || (!changed()).then_some(()));
}

#[test]
fn a_turn_of_another_client_is_heard_before_one_would_look() {
    let Some(server) = PostgresServer::shared() else { return };
    let url = format!("{}?schema={}", server.url(), new_schema());
    let (store, other) = (open(&url).unwrap(), open(&url).unwrap());
    let id = block_on(store.create(NewSession::default())).unwrap();
    let mut watch = block_on(store.watch(id)).unwrap().unwrap();
    is_quiet(&mut *watch);
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            block_on(other.append(id, NewTurn::verbatim([Event::user("hello")]))).unwrap();
            let began = Instant::now();
            assert!(block_on(watch.changed(Duration::from_secs(20))).unwrap());
            assert_eq!(block_on(store.read(id, Page::last(1))).unwrap().len(), 1);
            began.elapsed()
        })
        .collect();
    times.sort();
    // Looking would take half of it on average. What is heard takes a millisecond, on a machine that has nothing else to do.
    assert!(times[4] < PACE / 3, "{times:?}");
}

/// Hears what is said of a session, beside any store.
struct Listener {
    runtime: Runtime,
    client: Client,
    heard: Arc<AtomicUsize>,
}

impl Listener {
    fn start(url: &str, listen: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let heard = Arc::new(AtomicUsize::new(0));
        let client = runtime.block_on(async {
            let (client, mut connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
            let heard = Arc::clone(&heard);
            tokio::spawn(async move {
                while let Some(Ok(said)) = poll_fn(|context| connection.poll_message(context)).await {
                    let is_news = matches!(said, AsyncMessage::Notification(_));
                    heard.fetch_add(usize::from(is_news), Ordering::Relaxed);
                }
            });
            client.batch_execute(listen).await.unwrap();
            client
        });
        Self { runtime, client, heard }
    }

    /// Says how often it was told something. What was committed before is told before the answer to a question.
    fn heard(&self) -> usize {
        self.runtime.block_on(self.client.batch_execute("SELECT 1")).unwrap();
        self.heard.load(Ordering::Relaxed)
    }
}

#[test]
fn nothing_is_said_of_a_session_that_nobody_watches() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = new_schema();
    let store = open(&format!("{}?schema={schema}&project=p", server.url())).unwrap();
    let id = block_on(store.create(NewSession::default())).unwrap();
    let append = |turn| assert!(block_on(store.append(id, turn)).is_ok());
    let hello = || NewTurn::verbatim([Event::user("hello")]);
    let heard_while = |change: &dyn Fn()| {
        let listening = Listener::start(&server.url(), &format!("SELECT {schema}.listen_to('p', 1)"));
        change();
        listening.heard()
    };
    assert_eq!(heard_while(&|| append(hello())), 0);
    let mut watch = block_on(store.watch(id)).unwrap().unwrap();
    is_quiet(&mut *watch);
    assert_eq!(heard_while(&|| [hello(), hello()].into_iter().for_each(append)), 2);
    // A turn without events is nothing to see.
    assert_eq!(heard_while(&|| append(NewTurn::default())), 0);
    drop(watch);
    server.sql(&format!("UPDATE {schema}.sessions SET watched_until = clock_timestamp()"));
    assert_eq!(heard_while(&|| append(hello())), 0, "it is not watched any more");
}

#[test]
fn a_user_who_may_only_read_polls() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = new_schema();
    let url = format!("{}?schema={schema}", server.url());
    let id = block_on(open(&url).unwrap().create(NewSession::default())).unwrap();
    server.sql(&format!(
        "CREATE ROLE reader LOGIN PASSWORD '{}'; GRANT USAGE ON SCHEMA {schema} TO reader;
         GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader",
        server.password()
    ));
    let store = open(&url.replace("tester:", "reader:")).unwrap();
    assert!(
        block_on(store.watch(id)).unwrap().is_none(),
        "it would wait for notifications that never arrive"
    );
    let refused = server.log().matches("permission denied for table sessions").count();
    assert_eq!(refused, 1, "it retries what it may not do");
}

#[test]
fn an_append_that_is_asked_again_while_it_commits_is_answered_as_what_it_is() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = new_schema();
    let store = open(&format!("{}?schema={schema}&project=p", server.url())).unwrap();
    // As the program appends: after an event, and under a lease.
    for (number, after, lease) in [(1, "0", "NULL"), (2, "NULL", "'mine'")] {
        let id = block_on(store.create(NewSession::default())).unwrap();
        assert_eq!(id.number(), number);
        server.sql(&format!("UPDATE {schema}.sessions SET lease = 'mine' WHERE session = {number}"));
        let append = |is_repeated: bool| {
            format!(
                "SELECT outcome, starts_at, ends_at FROM {schema}.append_turn('p',
                   '01a1de0a-5dc4-79a1-9d42-9ba53a380f0{number}', {is_repeated}, {number}, {after}, {lease}, NULL,
                   ARRAY['UserMessage'], ARRAY['{{\"UserMessage\":{{\"content\":\"x\"}}}}'], NULL, NULL,
                   ARRAY[1,1,1,1,1,1,1,1], ARRAY[2,2,2,2,2,2,2,2]::smallint[], ARRAY['x','x','x','x','x','x','x','x'],
                   NULL, NULL, true, NULL, NULL, NULL, 'x', false, '2026-01-31T09:30:00Z', 10, NULL, true, 1, 0, 1, 1, 0, 0,
                   NULL, NULL, '', false)"
            )
        };
        std::thread::scope(|scope| {
            // Its lease is given to somebody else with it, as if that came right after.
            let slow = format!(
                "BEGIN; {}; UPDATE {schema}.sessions SET lease = 'theirs' WHERE session = {number}; SELECT pg_sleep(1.5); COMMIT;",
                append(false)
            );
            scope.spawn(move || server.sql(&slow));
            std::thread::sleep(Duration::from_millis(600));
            assert_eq!(server.sql(&append(true)), "done|1|1");
        });
        assert_eq!(block_on(store.read(id, Page::last(9))).unwrap().len(), 1);
    }
}

#[test]
fn what_listens_and_says_nothing_is_soon_given_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let error = open(&format!("postgres://u:p@127.0.0.1:{port}/d")).err().unwrap();
    assert!(matches!(error, StoreError::Unreachable { seconds: 0..10, .. }), "{error:?}");
}

#[test]
fn questions_about_what_is_in_events_have_an_index() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = new_schema();
    drop(open(&format!("{}?schema={schema}", server.url())).unwrap());
    // Of an empty table the planner would rather read all.
    let plan = server.sql(&format!(
        "SET enable_seqscan = off; SET enable_indexscan = off;
         EXPLAIN SELECT session, seq FROM {schema}.events WHERE data @> '{{\"ToolCall\":{{\"tool_name\":\"Bash\"}}}}'"
    ));
    assert!(plan.contains("events_by_data"), "{plan}");
}
