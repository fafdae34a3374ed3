//! What a Redis server has of a store: its keys, its settings, its users, its certificates, its cluster.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::certificates::certificates;
use crate::cuts::lease;
use azureal_store::core::{
    Compaction, CrashNotes, Event, LARGEST_EVENT, Leases, ListQuery, NewEvent, NewLease, NewMark, NewSession,
    NewTurn, Page, Seq, SessionId, SessionRecord, SessionStore, StoreError, Taken, Tokens, WorktreeFilter,
};
use azureal_store::redis::{Durability, RedisAddress, RedisOptions, RedisStore};
use azureal_store::{ServerAddress, ServerStore};
use azureal_testkit::servers::RedisServer;
use azureal_testkit::until;
use futures_executor::block_on;

fn open(url: &str) -> Result<RedisStore, StoreError> {
    let address: RedisAddress = url.parse().unwrap();
    block_on(RedisStore::open(&address, RedisOptions { retry_budget: Duration::from_secs(2) }))
}

fn of_project(server: &RedisServer, project: &str) -> String {
    format!("{}?project={project}", server.url())
}

fn new_session(store: &RedisStore) -> SessionId {
    block_on(store.create(NewSession::default())).unwrap()
}

fn append(store: &RedisStore, id: SessionId, text: &str) -> Result<Seq, StoreError> {
    let turn = NewTurn { tokens: Tokens::new(1, 1), ..NewTurn::verbatim([Event::user(text)]) };
    Ok(block_on(store.append(id, turn))?.last)
}

/// Does everything that writes a key.
fn use_all_keys(store: &RedisStore) {
    let id = new_session(store);
    block_on(async {
        let mark = Some(NewMark { name: "mark".to_owned(), note: String::new() });
        store.append(id, NewTurn { mark, ..NewTurn::verbatim([Event::user("Hello")]) }).await.unwrap();
        store.add_compaction(id, &Compaction::new(Seq(1), "summary")).await.unwrap();
        store.note_run(id, Some("run")).await.unwrap();
        assert_eq!(store.take(id, &lease()).await.unwrap(), Taken::Ours);
        store.fork(id, Seq(1), NewSession::default()).await.unwrap();
    });
}

#[test]
fn sessions_that_were_claimed_and_not_settled_are_found() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let former = open(&of_project(&server, "team%2Fengine")).unwrap();
    let id = new_session(&former);
    append(&former, id, "hello").unwrap();
    // As a client leaves it that is killed between its two scripts.
    let name = "git.example/team/engine";
    server.command(&["HSET", "azureal:{team/engine}", "claimed_by", name]);
    let mut address: RedisAddress = of_project(&server, "git.example%2Fteam%2Fengine").parse().unwrap();
    address.set_former_project("team/engine");
    let opened = || block_on(RedisStore::open(&address, RedisOptions::default())).unwrap();
    let store = opened();
    assert_eq!((store.former_project(), store.project()), (None, "team/engine"));
    assert_eq!(block_on(store.list(&ListQuery::default())).unwrap().len(), 1);
    // Who names the project finds them too, from then on.
    let named = open(&of_project(&server, "git.example%2Fteam%2Fengine")).unwrap();
    assert_eq!(block_on(named.list(&ListQuery::default())).unwrap().len(), 1);
    // Another repository does not get them.
    address.set_project("elsewhere.example/team/engine").unwrap();
    let other = block_on(RedisStore::open(&address, RedisOptions::default())).unwrap();
    assert_eq!(
        (other.former_project(), block_on(other.list(&ListQuery::default())).unwrap().len()),
        (None, 0)
    );
}

#[test]
fn an_unsettled_claim_hides_no_sessions_that_were_made_since() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let former = open(&of_project(&server, "team%2Fengine")).unwrap();
    new_session(&former);
    let name = "git.example/team/engine";
    server.command(&["HSET", "azureal:{team/engine}", "claimed_by", name]);
    // A user who names the project goes on before the next client that would settle the claim.
    let named = open(&of_project(&server, "git.example%2Fteam%2Fengine")).unwrap();
    let ids = [new_session(&named), new_session(&named)];
    let mut address: RedisAddress = of_project(&server, "git.example%2Fteam%2Fengine").parse().unwrap();
    address.set_former_project("team/engine");
    let store = block_on(RedisStore::open(&address, RedisOptions::default())).unwrap();
    assert_eq!((store.former_project(), store.project()), (None, name));
    assert_eq!(block_on(store.list(&ListQuery::default())).unwrap().len(), ids.len());
    assert_eq!(server.command(&["HGET", "azureal:{git.example/team/engine}", "kept_as"]), "");
    assert_eq!(block_on(former.list(&ListQuery::default())).unwrap().len(), 1);
}

#[test]
fn a_password_that_changes_is_read_again() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    server.command(&["ACL", "SETUSER", "rotating", "on", ">one", "~*", "&*", "+@all"]);
    let text = Arc::new(Mutex::new("one\n"));
    let url = format!("redis://rotating@127.0.0.1:{}?loss=accepted&project=rotating", server.port());
    let mut address: RedisAddress = url.parse().unwrap();
    let read = Arc::clone(&text);
    address.set_password_file("", Arc::new(move || Some((*read.lock().unwrap()).to_owned())));
    let store = block_on(RedisStore::open(&address, RedisOptions::default())).unwrap();
    let id = new_session(&store);
    server.command(&["ACL", "SETUSER", "rotating", "resetpass", ">two"]);
    *text.lock().unwrap() = "two\n";
    server.command(&["CLIENT", "KILL", "USER", "rotating"]);
    assert_eq!(append(&store, id, "hello").unwrap(), Seq(1));
}

#[test]
fn projects_keep_apart_and_have_one_hash_tag_each() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let [one, other] =
        ["team%2Fengine", "%7Da%7Bb"].map(|project| open(&of_project(&server, project)).unwrap());
    use_all_keys(&one);
    assert_eq!(block_on(other.list(&ListQuery::default())).unwrap(), []);
    assert_eq!(block_on(other.mark("mark")).unwrap(), None);
    assert_eq!(new_session(&other).number(), 1, "numbers are a project's own");
    use_all_keys(&other);
    let keys = server.command(&["KEYS", "*"]);
    let tags: BTreeSet<&str> = keys.lines().map(|key| &key[..=key.find('}').unwrap()]).collect();
    assert_eq!(Vec::from_iter(tags), ["azureal:{%7Da%7Bb}", "azureal:{team/engine}"], "{keys}");
    // Whether a turn is stored once depends on no time: what was done is forgotten with its session.
    let expiring: Vec<&str> = keys.lines().filter(|key| server.command(&["TTL", key]) != "-1").collect();
    assert_eq!(expiring, [""; 0]);
}

#[test]
fn opening_writes_only_an_id_and_what_is_newer_is_left_alone() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let url = of_project(&server, "newer");
    let store = open(&url).unwrap();
    assert_eq!(server.command(&["KEYS", "*"]), "azureal:{newer}");
    assert_eq!(server.command(&["HKEYS", "azureal:{newer}"]), "id");
    let id = new_session(&store);
    append(&store, id, "before").unwrap();
    server.command(&["HSET", "azureal:{newer}", "format", "99"]);
    let before = server.command(&["DBSIZE"]);
    // Those who come now are told, and those who are there already.
    let refused = [
        open(&url).err().unwrap(),
        append(&store, id, "after").unwrap_err(),
        block_on(store.create(NewSession::default())).unwrap_err(),
        block_on(store.delete(id)).unwrap_err(),
        block_on(store.take(id, &lease())).unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(&error, StoreError::Newer { found, known: 4, .. } if found == "99"), "{error}");
    }
    assert_eq!(server.command(&["DBSIZE"]), before);
    assert_eq!(block_on(store.get(id)).unwrap().counts.events, 1);
}

#[test]
fn what_a_server_keeps_is_said_and_one_that_evicts_is_refused() {
    let Some(server) = RedisServer::start() else { return };
    let durability = || open(&server.url()).unwrap().durability();
    let set = |name: &str, value: &str| assert_eq!(server.command(&["CONFIG", "SET", name, value]), "OK");
    assert_eq!((durability(), durability().warning()), (Durability::Everything, None));
    let rows = [
        ("appendfsync", "everysec", Durability::AllButASecond),
        ("appendfsync", "no", Durability::WhatTheSystemWrote),
        ("appendonly", "no", Durability::Snapshots),
    ];
    for (name, value, expected) in rows {
        set(name, value);
        assert_eq!(durability(), expected);
        let warning = expected.warning().unwrap();
        assert!(warning.contains(&format!("{name} is {value}")), "{warning}");
    }
    for policy in ["allkeys-lru", "volatile-ttl"] {
        set("maxmemory-policy", policy);
        let error = open(&server.url()).err().unwrap();
        assert!(matches!(&error, StoreError::Forgetful { why, .. } if why.contains(policy)), "{error}");
        assert!(azureal_store::hint(&error).unwrap().contains("noeviction"));
        assert!(open(&format!("{}?loss=accepted", server.url())).is_ok());
    }
}

#[test]
fn a_user_who_may_not_see_the_settings_can_use_a_store() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    server.command(&[
        "ACL",
        "SETUSER",
        "ada",
        "on",
        ">p@ss",
        "~azureal:{mine}*",
        "+@all",
        "-@admin",
        "-@dangerous",
    ]);
    let url =
        |user: &str, project: &str| format!("redis://{user}@127.0.0.1:{}?project={project}", server.port());
    let store = open(&url("ada:p%40ss", "mine")).unwrap();
    assert_eq!(store.durability(), Durability::Unknown);
    use_all_keys(&store);
    for url in
        [url("ada:p%40ss", "theirs"), url("ada:wrong", "mine"), url("bob:p%40ss", "mine"), url("", "mine")]
    {
        let error = open(&url).err().unwrap();
        assert!(matches!(error, StoreError::Denied { .. }), "{url}: {error}");
        let told = format!("{error} {error:?}");
        assert!(!told.contains("p@ss") && !told.contains("wrong"), "{told}");
    }
}

#[test]
fn a_user_who_may_not_do_all_of_a_change_does_none() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let url = format!("redis://ada:p@127.0.0.1:{}?project=mine", server.port());
    let allow = |rights: &[&str]| {
        let user =
            ["ACL", "SETUSER", "ada", "reset", "on", ">p", "~azureal:*", "+@all", "-@admin", "-@dangerous"];
        assert_eq!(server.command(&[&user, rights].concat()), "OK");
    };
    for command in ["ZADD", "XADD", "RENAME", "COPY", "UNLINK", "MULTI", "EXEC"] {
        allow(&[&format!("-{}", command.to_lowercase())]);
        let error = open(&url).err().unwrap();
        assert!(
            matches!(&error, StoreError::Denied { why, .. } if why.contains(command)),
            "{command}: {error}"
        );
    }
    // Who loses a right later is told that, and not that something is wrong with the store.
    allow(&[]);
    let store = open(&url).unwrap();
    let id = new_session(&store);
    allow(&["-hincrby"]);
    let error = block_on(store.clear(id)).unwrap_err();
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
}

#[test]
fn the_largest_event_comes_back_and_pages_stay_small() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let store = open(&server.url()).unwrap();
    let id = new_session(&store);
    let mut largest = Event::user("large").to_json();
    largest.extend(std::iter::repeat_n(' ', LARGEST_EVENT - largest.len()));
    let events = [Event::user("small").to_json(), largest.clone()];
    let events = events.map(|text| NewEvent::verbatim(text).unwrap()).into();
    block_on(store.append(id, NewTurn { events, ..NewTurn::default() })).unwrap();
    let page = block_on(store.read(id, Page::last(9))).unwrap();
    assert_eq!(page.len(), 1, "a page is full with the largest event");
    assert!(page[0].json.as_ref().unwrap() == &largest, "it came back changed");
    let error = append(&store, id, &"x".repeat(LARGEST_EVENT)).unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    assert_eq!(block_on(store.get(id)).unwrap().counts.events, 2);
}

#[test]
fn a_full_server_takes_no_part_of_a_turn() {
    let settings = [("appendonly", "no"), ("maxmemory", "6mb")];
    let Some(server) = RedisServer::start_with(&settings, &[]) else { return };
    let store = open(&server.url()).unwrap();
    let id = new_session(&store);
    let text = "x".repeat(100_000);
    let mut stored = 0;
    let error = loop {
        match append(&store, id, &text) {
            Ok(last) => stored = last.0,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("memory is full"), "{error}");
    assert!(stored > 1);
    let record = block_on(store.get(id)).unwrap();
    assert_eq!((record.counts.events, record.tokens.input), (stored, stored));
    assert_eq!(block_on(store.read(id, Page::last(1))).unwrap()[0].seq.0, stored);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(append(&store, id, "again").unwrap().0, stored + 1);
}

#[test]
fn a_server_that_only_reads_says_so_and_is_asked_again() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let store = open(&server.url()).unwrap();
    let id = new_session(&store);
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = append(&store, id, "x").unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
    assert_eq!(block_on(store.list(&ListQuery::default())).unwrap().len(), 1, "reading works");
    // The one that takes over writes, and the store finds it by itself.
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| append(&store, id, "y"));
        std::thread::sleep(Duration::from_millis(300));
        server.command(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(appending.join().unwrap().unwrap(), Seq(1));
    });
}

#[test]
fn a_server_that_is_gone_is_an_error_once_patience_ends() {
    let Some(mut server) = RedisServer::start() else { return };
    let store = open(&server.url()).unwrap();
    let id = new_session(&store);
    server.kill();
    let error = append(&store, id, "x").unwrap_err();
    // It was sent on the connection that broke.
    assert!(matches!(error, StoreError::OutcomeUnknown { seconds: 1.., .. }), "it was not retried: {error}");
    assert!(open(&server.url()).is_err());
    server.start_again();
    assert_eq!(append(&store, id, "y").unwrap(), Seq(1), "what was in vain came later");
}

#[test]
fn a_server_that_lost_its_memory_begins_again() {
    let Some(mut server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let store = open(&server.url()).unwrap();
    let ids = [new_session(&store), new_session(&store)];
    server.kill();
    server.start_again();
    assert!(matches!(append(&store, ids[1], "x"), Err(StoreError::NoSuchSession(_))));
    assert_eq!(new_session(&store), ids[0]);
    append(&store, ids[0], "x").unwrap();
}

#[test]
fn a_lease_that_the_server_forgot_is_nobodys_and_its_turn_is_refused() {
    let Some(mut server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let store = open(&server.url()).unwrap();
    let id = new_session(&store);
    server.command(&["SAVE"]);
    let (forgotten, next) = (lease(), lease());
    let under = |lease: &NewLease| NewTurn {
        lease: Some(lease.id.clone()),
        ..NewTurn::verbatim([Event::user("under a lease")])
    };
    block_on(async {
        assert_eq!(store.take(id, &forgotten).await.unwrap(), Taken::Ours);
        server.kill();
        server.start_again();
        assert_eq!(store.held().await.unwrap(), []);
        assert!(!store.renew(id, &forgotten.id, forgotten.lasts).await.unwrap());
        // The server cannot know that nobody came in between, and neither can anybody else.
        let refused = store.append(id, under(&forgotten)).await;
        assert!(matches!(refused, Err(StoreError::Fenced(_))), "{refused:?}");
        assert_eq!(store.take(id, &next).await.unwrap(), Taken::Ours);
        assert_eq!(store.append(id, under(&next)).await.unwrap().last, Seq(1));
    });
}

#[test]
fn a_turn_is_heard_when_it_lands_and_not_at_the_next_look() {
    let Some(server) = RedisServer::shared() else { return };
    let store = open(&of_project(server, "heard")).unwrap();
    let id = new_session(&store);
    let mut watch = block_on(store.watch(id)).unwrap().unwrap();
    let mut round = |number| {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                assert!(block_on(watch.changed(Duration::from_secs(60))).unwrap());
                Instant::now()
            });
            // So that it waits already, most of the time. It is heard in either case.
            std::thread::sleep(Duration::from_millis(20));
            append(&store, id, &format!("turn {number}")).unwrap();
            let landed = Instant::now();
            waiting.join().unwrap().saturating_duration_since(landed)
        })
    };
    let mut times: Vec<Duration> = (0..9).map(&mut round).collect();
    times.sort();
    // It looks once in a second.
    assert!(times[4] < Duration::from_secs(1) / 2, "{times:?}");
}

#[test]
fn whoever_watches_goes_on_when_the_server_was_gone() {
    let Some(mut server) = RedisServer::start() else { return };
    let store = open(&server.url()).unwrap();
    let id = new_session(&store);
    let mut watch = block_on(store.watch(id)).unwrap().unwrap();
    let mut changed = || block_on(watch.changed(Duration::from_millis(100))).unwrap();
    assert!(!changed());
    server.kill();
    assert!(changed(), "what cannot be heard may have happened");
    server.start_again();
    until("it hears again", || (!changed()).then_some(()));
    append(&store, id, "after").unwrap();
    assert!(changed());
}

fn of_worktree(worktree: &str) -> NewSession {
    NewSession { worktree: worktree.to_owned(), ..NewSession::default() }
}

fn in_worktree(worktree: &str) -> WorktreeFilter {
    WorktreeFilter { names: vec![worktree.to_owned()], last_part: worktree.to_owned() }
}

fn numbers_of(listed: &[SessionRecord]) -> Vec<u32> {
    listed.iter().map(|record| record.id.number()).collect()
}

#[test]
fn a_session_that_is_damaged_is_left_out_of_the_list() {
    let Some(server) = RedisServer::shared() else { return };
    let store = open(&of_project(server, "damaged")).unwrap();
    for _ in 0..4 {
        block_on(store.create(of_worktree("here"))).unwrap();
    }
    server.command(&["DEL", "azureal:{damaged}:session:3"]);
    let rows =
        [(None, vec![4, 2, 1]), (Some(2), vec![4, 2]), (Some(3), vec![4, 2, 1]), (Some(9), vec![4, 2, 1])];
    for (limit, expected) in rows {
        for worktree in [None, Some(in_worktree("here"))] {
            let query = ListQuery { limit, worktree, ..ListQuery::default() };
            assert_eq!(numbers_of(&block_on(store.list(&query)).unwrap()), expected, "{query:?}");
        }
    }
}

#[test]
fn the_last_session_of_a_worktree_is_found_without_reading_all() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let store = open(&server.url()).unwrap();
    for number in 1..=3300 {
        let worktree = if number % 1650 == 0 { "here" } else { "there" };
        block_on(store.create(of_worktree(worktree))).unwrap();
    }
    let looked_at = |worktree: &str, limit: Option<usize>| {
        server.command(&["CONFIG", "RESETSTAT"]);
        let query = ListQuery { limit, worktree: Some(in_worktree(worktree)), ..ListQuery::default() };
        let listed = block_on(store.list(&query)).unwrap();
        let stats = server.command(&["INFO", "commandstats"]);
        let calls = stats.split_once("cmdstat_hmget:calls=").unwrap().1.split_once(',').unwrap().0;
        (numbers_of(&listed), calls.parse().unwrap())
    };
    assert_eq!(looked_at("here", Some(1)), (vec![3300], 50));
    assert_eq!(looked_at("here", Some(2)), (vec![3300, 1650], 2000));
    assert_eq!(looked_at("nowhere", Some(1)), (vec![], 3300), "none is read twice");
    assert_eq!(looked_at("there", Some(60)).1, 240);
}

#[test]
fn nothing_that_lies_about_takes_the_place_of_a_history() {
    let Some(server) = RedisServer::start_with(&[("appendonly", "no")], &[]) else { return };
    let store = open(&of_project(&server, "leftover")).unwrap();
    let id = new_session(&store);
    append(&store, id, "kept").unwrap();
    server.command(&["XADD", "azureal:{leftover}:aside", "9999999999999999-7", "kind", "", "json", ""]);
    let late = NewTurn { after: Some(Seq(9)), ..NewTurn::verbatim([Event::user("late")]) };
    assert!(matches!(block_on(store.append(id, late)), Err(StoreError::Moved { .. })));
    // A server that has forgotten the script runs what follows it all the same.
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(append(&store, id, "after").unwrap(), Seq(2));
    let events = block_on(store.read(id, Page::last(9))).unwrap();
    let texts: Vec<_> = events.iter().map(|event| event.event().unwrap()).collect();
    assert_eq!(texts, [Event::user("kept"), Event::user("after")]);
    let keys = server.command(&["KEYS", "azureal:{leftover}:aside:*"]);
    assert_eq!(keys, "", "something was left aside");
}

#[test]
fn the_stream_of_a_fork_is_one_that_never_went_on() {
    let Some(server) = RedisServer::shared() else { return };
    let store = open(&of_project(server, "forked")).unwrap();
    let origin = new_session(&store);
    for text in ["one", "two"] {
        append(&store, origin, text).unwrap();
    }
    // What the server notes of a stream, but for how it lies in memory.
    let noted = |id: SessionId| {
        let info =
            server.command(&["XINFO", "STREAM", &format!("azureal:{{forked}}:events:{}", id.number())]);
        let lines: Vec<String> = info.lines().map(str::to_owned).collect();
        let of = |name: &str| lines[lines.iter().position(|line| line == name).unwrap() + 1].clone();
        ["last-generated-id", "max-deleted-entry-id", "entries-added", "length"].map(of)
    };
    let before = noted(origin);
    append(&store, origin, "three").unwrap();
    let fork = block_on(store.fork(origin, Seq(2), NewSession::default())).unwrap();
    assert_eq!(noted(fork), before);
    assert_eq!(append(&store, fork, "another").unwrap(), Seq(3));
    assert_eq!(noted(fork), noted(origin));
}

#[test]
fn a_failure_to_make_a_copy_leaves_nothing_of_it() {
    // As a server that is too old for it, which does not know the command.
    let Some(server) = RedisServer::start_with(&[("appendonly", "no"), ("rename-command", "COPY \"\"")], &[])
    else {
        return;
    };
    let store = open(&server.url()).unwrap();
    let id = new_session(&store);
    append(&store, id, "x").unwrap();
    let before = server.command(&["DBSIZE"]);
    assert!(block_on(store.fork(id, Seq::END, NewSession::default())).is_err());
    assert_eq!(server.command(&["DBSIZE"]), before);
    assert_eq!(new_session(&store).number(), 2, "the number was not used");
}

#[test]
fn a_cluster_is_followed_to_the_server_that_has_the_project() {
    let start = || {
        let bus = free_port().to_string();
        let settings = [("appendonly", "no"), ("cluster-enabled", "yes"), ("cluster-port", &bus)];
        Some((RedisServer::start_with(&settings, &[])?, bus))
    };
    let (Some((one, _)), Some((other, bus))) = (start(), start()) else { return };
    one.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]);
    other.command(&["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]);
    one.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string(), &bus]);
    let is_ok = |server: &RedisServer| server.command(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
    until("the cluster comes together", || (is_ok(&one) && is_ok(&other)).then_some(()));
    for project in 0..8 {
        let url = of_project(&one, &format!("project-{project}"));
        use_all_keys(&open(&url).unwrap());
        let listed = block_on(open(&url).unwrap().list(&ListQuery::default())).unwrap();
        assert_eq!(listed.iter().map(|record| record.counts.events).collect::<Vec<_>>(), [1, 1]);
    }
    assert!([&one, &other].iter().all(|server| server.command(&["DBSIZE"]) != "0"), "one server has it all");
}

/// Returns a port that nobody listens at.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

#[test]
fn an_encrypted_connection_is_one_to_the_right_server() {
    let (authority, certificate, key) = certificates("localhost");
    let (stranger, _, _) = certificates("localhost");
    let port = free_port();
    let settings = [
        ("appendonly", "no"),
        ("tls-port", &port.to_string()),
        ("tls-cert-file", "server.crt"),
        ("tls-key-file", "server.key"),
        ("tls-ca-cert-file", "authority.crt"),
    ];
    let files = [("server.crt", certificate.as_str()), ("server.key", &key), ("authority.crt", &authority)];
    let Some(server) = RedisServer::start_with(&settings, &files) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name).display().to_string()
    };
    let (ours, theirs) = (file("ours.pem", &authority), file("theirs.pem", &stranger));
    let who = format!("&sslcert={}&sslkey={}", file("me.pem", &certificate), file("me.key", &key));
    let password = server.password();
    // By the name that the certificate has, or by the address of the same machine.
    let rows = [
        ("localhost", &ours, who.as_str(), true),
        ("localhost", &theirs, &who, false),
        ("127.0.0.1", &ours, &who, false),
        // This server wants to know who we are.
        ("localhost", &ours, "", false),
        ("localhost", &format!("{ours}.not"), &who, false),
    ];
    for (host, roots, who, is_right) in rows {
        let opened = open(&format!("rediss://:{password}@{host}:{port}?sslrootcert={roots}{who}"));
        let said = opened.as_ref().err().map(|error| format!("{error} {error:?}")).unwrap_or_default();
        assert_eq!(opened.is_ok(), is_right, "{host} {roots} {who}: {said}");
        assert!(!said.contains(password), "{said}");
        // A certificate that is wrong does not become right: it is not tried until the budget ends.
        assert!(!matches!(opened, Err(StoreError::Unreachable { .. })), "it was retried: {said}");
        if let Ok(store) = opened {
            use_all_keys(&store);
        }
    }
}
