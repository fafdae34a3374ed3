//! A project that the first release keeps on a Redis server: opened, upgraded by the first write, nothing lost.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use azureal_store::core::event::ToolResult;
use azureal_store::core::{
    Compaction, CrashNotes, Event, ListOrder, ListQuery, NewSession, NewTurn, Page, Seq, SessionId,
    SessionRecord, SessionStore, StoredEvent, Tokens, rendered_chars,
};
use azureal_store::redis::{RedisAddress, RedisOptions, RedisStore};
use azureal_testkit::servers::RedisServer;
use futures_executor::block_on;

/// The commands that make the keys of a small project, which the first release has written.
const FIRST_RELEASE: &str = include_str!("../fixtures/redis-format-1.jsonl");

/// Writes the project under another name, and opens it.
fn opened(server: &RedisServer, project: &str) -> RedisStore {
    let commands = FIRST_RELEASE.lines().map(|line| {
        let line = line.replace("{team/engine}", &format!("{{{project}}}"));
        serde_json::from_str::<Vec<String>>(&line).unwrap()
    });
    let login = vec!["AUTH".to_owned(), server.password().to_owned()];
    let mut request = String::new();
    for command in std::iter::once(login).chain(commands).chain([vec!["QUIT".to_owned()]]) {
        write!(request, "*{}\r\n", command.len()).unwrap();
        command.iter().for_each(|word| write!(request, "${}\r\n{word}\r\n", word.len()).unwrap());
    }
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    let mut answers = String::new();
    connection.read_to_string(&mut answers).unwrap();
    assert!(!answers.lines().any(|line| line.starts_with('-')), "{answers}");
    open(server, project)
}

fn open(server: &RedisServer, project: &str) -> RedisStore {
    let address: RedisAddress = format!("{}?loss=accepted&project={project}", server.url()).parse().unwrap();
    block_on(RedisStore::open(&address, RedisOptions::default())).unwrap()
}

fn ids_of(records: &[SessionRecord]) -> Vec<SessionId> {
    records.iter().map(|record| record.id).collect()
}

fn list(store: &RedisStore) -> Vec<SessionRecord> {
    block_on(store.list(&ListQuery::default())).unwrap()
}

type Logs = Vec<(Vec<StoredEvent>, Vec<Compaction>)>;

fn logs(store: &RedisStore) -> Logs {
    let log = |record: &SessionRecord| {
        let events = block_on(store.read(record.id, Page::last(1000))).unwrap();
        (events, block_on(store.compactions(record.id)).unwrap())
    };
    list(store).iter().map(log).collect()
}

fn field(server: &RedisServer, project: &str, name: &str) -> String {
    server.command(&["HGET", &format!("azureal:{{{project}}}"), name])
}

/// Checks that all is there that the first release wrote, and what was not counted then.
fn check_upgraded(store: &RedisStore, before: &[SessionRecord]) {
    let after = list(store);
    let identities: BTreeSet<_> = after.iter().map(|record| record.uuid.unwrap()).collect();
    assert_eq!(identities.len(), 3);
    for (record, before) in after.iter().zip(before) {
        let prompt = record.counts.last_prompt.clone().unwrap();
        let expected = if record.name == "second" { "Ünïcode prompt" } else { "Question 4: xxx" };
        assert!(prompt.starts_with(expected), "{prompt}");
        assert!(record.counts.answered);
        assert_eq!(block_on(store.find_uuid(record.uuid.unwrap())).unwrap(), Some(record.id));
        let summary = block_on(store.compactions(record.id)).unwrap().pop();
        assert_eq!(record.opening, summary.map_or(0, |summary| summary.summary.chars().count() as u64));
        assert!(!record.last_active.is_empty());
        let mut kept = record.clone();
        kept.last_active.clone_from(&before.last_active);
        (kept.uuid, kept.opening, kept.counts.answered, kept.counts.last_prompt) = (None, 0, false, None);
        // What was written to have it upgraded may be a change.
        assert!(kept.revision >= before.revision);
        kept.revision = before.revision;
        kept.named_at.clone_from(&before.named_at);
        assert_eq!(kept, *before);
    }
}

#[test]
fn a_project_of_the_first_release_is_upgraded_by_the_first_write_and_loses_nothing() {
    let Some(server) = RedisServer::shared() else { return };
    let store = opened(server, "upgraded");
    let (before, logs_before) = (list(&store), logs(&store));
    assert_eq!(before.iter().map(|record| record.counts.events).collect::<Vec<_>>(), [20, 4, 20]);
    assert!(before.iter().all(|record| record.uuid.is_none()));
    assert_eq!(field(server, "upgraded", "format"), "1", "reading has written");

    block_on(store.note_run(before[0].id, None)).unwrap();
    assert_eq!(field(server, "upgraded", "format"), "4");
    assert_eq!(field(server, "upgraded", "upgrading"), "");
    check_upgraded(&store, &before);
    assert_eq!(logs(&store), logs_before);
    assert_eq!(block_on(store.find("first")).unwrap(), [SessionId::new(1).unwrap()]);

    let identities = |store: &RedisStore| list(store).iter().map(|each| each.uuid).collect::<Vec<_>>();
    let again = open(server, "upgraded");
    assert_eq!(identities(&again), identities(&store));
    block_on(again.append(before[0].id, NewTurn::verbatim([Event::user("more")]))).unwrap();
    let fork = block_on(again.fork(before[1].id, Seq(2), NewSession::default())).unwrap();
    assert_eq!(block_on(again.get(fork)).unwrap().forked_from, list(&store)[2].uuid);
}

#[test]
fn an_upgrade_that_was_interrupted_is_completed() {
    let Some(server) = RedisServer::shared() else { return };
    // As a client of this version leaves it, or of the second release.
    for (project, format) in [("interrupted", "4"), ("interrupted-before", "2")] {
        let before = list(&opened(server, project));
        server.command(&["HSET", &format!("azureal:{{{project}}}"), "format", format, "upgrading", "1"]);
        let store = open(server, project);
        assert_eq!(list(&store), before, "what is half upgraded can be read");
        block_on(store.rename(before[0].id, &before[0].name)).unwrap();
        check_upgraded(&store, &before);
    }
}

#[test]
fn a_project_without_an_order_of_times_is_listed_by_them_and_gets_it() {
    let Some(server) = RedisServer::shared() else { return };
    let before = open(server, "by-time");
    let ids =
        ["2026-03-10T08:00:00Z", "2026-01-10T08:00:00Z", "2026-01-10T08:00:00Z", "2026-02-10T08:00:00Z"].map(
            |time| {
                let turn =
                    NewTurn { happened_at: Some(time.to_owned()), ..NewTurn::verbatim([Event::user("x")]) };
                let new = NewSession { name: Some("twin".to_owned()), ..NewSession::default() };
                block_on(before.create_with(new, turn, Vec::new())).unwrap()
            },
        );
    let expected = [ids[0], ids[3], ids[2], ids[1]];
    // As the second release leaves it.
    server.command(&["HSET", "azureal:{by-time}", "format", "2"]);
    assert_eq!(server.command(&["DEL", "azureal:{by-time}:by-time"]), "1");
    // One store was opened before that.
    for store in [&before, &open(server, "by-time")] {
        let listed = |query: &ListQuery| ids_of(&block_on(store.list(query)).unwrap());
        assert_eq!(listed(&ListQuery::default()), expected);
        assert_eq!(listed(&ListQuery { limit: Some(2), ..ListQuery::default() }), expected[..2]);
        let changes = ListQuery { order: ListOrder::Changes, ..ListQuery::default() };
        assert_eq!(listed(&changes), [ids[3], ids[2], ids[1], ids[0]]);
    }
    let store = open(server, "by-time");
    let named = ListQuery::named("twin");
    assert_eq!(ids_of(&block_on(store.list(&named)).unwrap()), expected);
    block_on(store.note_run(ids[0], None)).unwrap();
    assert_eq!(server.command(&["ZCARD", "azureal:{by-time}:by-time"]), "4");
    assert_eq!(ids_of(&list(&store)), expected);
    assert_eq!(ids_of(&block_on(store.list(&named)).unwrap()), expected);
    block_on(store.delete(ids[0])).unwrap();
    assert_eq!(server.command(&["ZCARD", "azureal:{by-time}:by-time"]), "3");
}

#[test]
fn however_many_write_first_each_session_has_one_identity() {
    let Some(server) = RedisServer::shared() else { return };
    let before = list(&opened(server, "together"));
    let stores: Vec<RedisStore> = (0..6).map(|_| open(server, "together")).collect();
    std::thread::scope(|scope| {
        for store in &stores {
            let id = before[0].id;
            scope.spawn(move || block_on(store.append(id, NewTurn::verbatim([Event::user("x")]))).unwrap());
        }
    });
    let members = server.command(&["ZCARD", "azureal:{together}:uuids"]);
    assert_eq!(members, "3");
    let record = block_on(stores[0].get(before[0].id)).unwrap();
    assert_eq!(record.counts.events, before[0].counts.events + 6);
    assert_eq!(record.counts.last_prompt.as_deref(), Some("x"));
}

#[test]
fn a_session_from_before_the_totals_of_the_cache_begins_at_none() {
    let Some(server) = RedisServer::shared() else { return };
    let store = open(server, "cache");
    let tokens = Tokens { cache_read: 80, cache_write: 10, ..Tokens::new(100, 1) };
    let turn = || NewTurn { tokens, ..NewTurn::verbatim([Event::user("hello")]) };
    let id = block_on(store.create_with(NewSession::default(), turn(), Vec::new())).unwrap();
    let key = format!("azureal:{{cache}}:session:{}", id.number());
    assert_eq!(server.command(&["HDEL", &key, "cache_read", "cache_write"]), "2");
    assert_eq!(block_on(store.get(id)).unwrap().tokens, Tokens::new(100, 1));
    block_on(store.append(id, turn())).unwrap();
    let expected = Tokens { cache_read: 80, cache_write: 10, ..Tokens::new(200, 2) };
    assert_eq!(block_on(store.get(id)).unwrap().tokens, expected);
}

#[test]
fn an_older_client_finds_the_size_without_details_and_its_changes_are_noticed() {
    let Some(server) = RedisServer::shared() else { return };
    let store = open(server, "details");
    let edited = |detail: Option<&str>| {
        let detail = detail.map(str::to_owned);
        let content = "ok".to_owned();
        Event::ToolResult(ToolResult { tool_name: "Edit".into(), content, detail, ..ToolResult::default() })
    };
    let long = edited(Some("--- a/x\n+++ b/x\n@@\n+a line that only newer clients count"));
    let turn = NewTurn::verbatim([Event::user("go"), long.clone()]);
    let id = block_on(store.create_with(NewSession::default(), turn, Vec::new())).unwrap();
    block_on(store.add_compaction(id, &Compaction::new(Seq(2), "both"))).unwrap();
    let key = format!("azureal:{{details}}:session:{}", id.number());
    let size = |events: &[Event]| events.iter().map(rendered_chars).sum::<u64>();
    let (all, plain) = (size(&[Event::user("go"), long]), size(&[Event::user("go"), edited(None)]));
    for field in ["told", "covered"] {
        assert_eq!(server.command(&["HGET", &key, field]), plain.to_string(), "{field}");
    }
    let sizes = || {
        let record = block_on(store.get(id)).unwrap();
        (record.counts.rendered_chars, record.covered)
    };
    assert_eq!(sizes(), (all, all));
    // A turn of an older client.
    server.command(&["HINCRBY", &key, "told", "100"]);
    assert_eq!(sizes(), (all + 100, all));
    // A summary of it, which covers another part.
    server.command(&["HSET", &key, "covered", "7"]);
    assert_eq!(sizes(), (all + 100, 7));
    // It clears the session, and appends.
    server.command(&["HDEL", &key, "told", "covered", "opening", "last_seq"]);
    server.command(&["HINCRBY", &key, "generation", "1"]);
    assert_eq!(sizes(), (0, 0));
    server.command(&["HSET", &key, "told", "50"]);
    assert_eq!(sizes(), (50, 0));
}
