//! Tables that the first release made in PostgreSQL: upgraded when they are opened, nothing lost.

use std::collections::BTreeSet;

use azureal_store::core::{
    Event, ListQuery, NewSession, NewTurn, Page, Seq, SessionId, SessionRecord, SessionStore, Tokens,
};
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use azureal_testkit::servers::PostgresServer;
use futures_executor::block_on;

/// The tables and functions of the first release.
const FIRST_RELEASE: &str = include_str!("../../src/postgres/schema/0001.sql");
/// What made them those of the second.
const SECOND_RELEASE: &str = include_str!("../../src/postgres/schema/0002.sql");

fn open(server: &PostgresServer, schema: &str, project: &str) -> PostgresStore {
    let url = format!("{}?schema={schema}&project={project}", server.url());
    let address: PostgresAddress = url.parse().unwrap();
    block_on(PostgresStore::open(&address, PostgresOptions::default())).unwrap()
}

fn list(store: &PostgresStore) -> Vec<SessionRecord> {
    block_on(store.list(&ListQuery::default())).unwrap()
}

/// Makes a store as the first release did, with its functions.
fn make_first_release(server: &PostgresServer, schema: &str) {
    server.sql(&format!(
        "CREATE SCHEMA {schema}; CREATE TABLE {schema}.format (version integer NOT NULL);
         INSERT INTO {schema}.format VALUES (1);"
    ));
    server.sql(&FIRST_RELEASE.replace("@schema@", schema));
    let create = |project: &str, name: &str| {
        server.sql(&format!(
            "SELECT {schema}.create_session('{project}', gen_random_uuid(), false, '{name}', '.', '2026-01-31T09:30:00Z')"
        ));
    };
    let append = |project: &str, session: u32, agent: &str, model: &str, events: &[(&str, String)]| {
        let list = |texts: Vec<&str>| {
            let quoted = texts.iter().map(|text| format!("'{}'", text.replace('\'', "''")));
            format!("ARRAY[{}]", quoted.collect::<Vec<_>>().join(","))
        };
        let (kinds, texts): (Vec<&str>, Vec<&str>) =
            events.iter().map(|(kind, text)| (*kind, text.as_str())).unzip();
        server.sql(&format!(
            "SELECT outcome FROM {schema}.append_turn('{project}', gen_random_uuid(), false, {session}, NULL, NULL,
               {}, {}, ARRAY[1,1,1,1,1,1,1,1], ARRAY[2,2,2,2,2,2,2,2]::smallint[],
               ARRAY['p','p','p','p','p','p','p','p'], {agent}, {model}, 10, NULL, true, 5, 0.25, 3, 4, NULL, '')",
            list(kinds),
            list(texts)
        ));
    };
    let user = |text: &str| ("UserMessage", Event::user(text).to_json());
    let answer = ("AssistantText", Event::assistant("hi").to_json());
    let init = |agent: &str, model: &str| {
        ("Init", format!(r#"{{"Init":{{"cwd":"/p","model":"{model}","agent":"{agent}"}}}}"#))
    };
    create("p", "two agents");
    append("p", 1, "'claude'", "'opus'", &[user("first"), init("claude", "opus"), answer.clone()]);
    append("p", 1, "'codex'", "NULL", &[user(&"second ".repeat(40)), init("codex", ""), answer]);
    server.sql(&format!(
        "SELECT {schema}.add_compaction('p', 1, 3, E'sum\x1a0mary', '2026-02-01T00:00:00Z', 7);
         SELECT {schema}.take_lease('p', 1, 'lease', '{{}}', 1000, NULL);"
    ));
    create("p", "unanswered");
    append("p", 2, "NULL", "NULL", &[user("nobody is there")]);
    create("other", "elsewhere");
    create("other", "empty");
    append("other", 1, "NULL", "NULL", &[("ToolCall", r#"{"ToolCall":{"tool_name":"Bash"}}"#.to_owned())]);
}

#[test]
fn tables_of_the_first_release_are_upgraded_and_lose_nothing() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = "first_release";
    make_first_release(server, schema);
    server.sql(&format!(
        "UPDATE {schema}.sessions SET created_at = '2026-01-30T09:30:00Z' WHERE name = 'unanswered';
         UPDATE {schema}.sessions SET created_at = '2999-01-30T09:30:00Z' WHERE name = 'empty'"
    ));
    let everything = format!(
        "SELECT string_agg(concat_ws('|', project, session, name, worktree, created_at, active, completed, duration_ms,
           cost_usd, tokens_in, tokens_out, last_seq, messages, preview, agent, told, lease), E'\\n'
           ORDER BY project, session) FROM {schema}.sessions;
         SELECT string_agg(concat_ws('|', project, session, seq, kind, json, data), E'\\n'
           ORDER BY project, session, seq) FROM {schema}.events;"
    );
    let before = server.sql(&everything);

    // However many open it at once.
    let stores = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..4).map(|_| scope.spawn(|| open(server, schema, "p"))).collect();
        opening.into_iter().map(|store| store.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(server.sql(&everything), before);
    assert_eq!(server.sql(&format!("SELECT version FROM {schema}.format")), "6");
    let listed = list(&stores[0]);
    let [unanswered, two_agents] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!(unanswered.counts.last_prompt.as_deref(), Some("nobody is there"));
    assert!(!unanswered.counts.answered && two_agents.counts.answered);
    let prompt = two_agents.counts.last_prompt.as_deref().unwrap();
    assert!(prompt.starts_with("second second") && prompt.len() < 200, "{prompt}");
    // Codex said nothing of its model, and opus was Claude's.
    assert_eq!(
        (two_agents.counts.agent.as_deref(), two_agents.counts.model.as_deref()),
        (Some("codex"), None)
    );
    assert_eq!((two_agents.covered, two_agents.opening), (7, "sum\0mary".len() as u64));
    let others = list(&open(server, schema, "other"));
    // Neither before the session that was active before it, nor in the future.
    let times = listed.iter().chain(&others).map(|each| each.last_active.as_str()).collect::<Vec<_>>();
    let created = "2026-01-31T09:30:00Z";
    assert_eq!(times, [created, created, created, ""]);
    assert_eq!(others.iter().map(|each| each.counts.answered).collect::<Vec<_>>(), [true, false]);
    let identities: BTreeSet<_> = listed.iter().chain(&others).map(|each| each.uuid.unwrap()).collect();
    assert_eq!(identities.len(), 4);

    // It continues as a new one would.
    let id = SessionId::new(1).unwrap();
    let turn = NewTurn { used_in: Some(".".to_owned()), ..NewTurn::verbatim([Event::user("third")]) };
    assert_eq!(block_on(stores[1].append(id, turn)).unwrap().last, Seq(7));
    assert_eq!(block_on(stores[0].last_used(".")).unwrap(), Some(id));
    let fork = block_on(stores[0].fork(id, Seq(3), NewSession::default())).unwrap();
    let fork = block_on(stores[0].get(fork)).unwrap();
    assert_eq!((fork.forked_from, fork.counts.model.as_deref()), (two_agents.uuid, Some("opus")));
    assert_eq!(block_on(stores[2].read(id, Page::last(1))).unwrap().len(), 1);
}

#[test]
fn a_role_that_may_use_the_tables_may_use_the_new_ones() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = "granted";
    make_first_release(server, schema);
    server.sql(&format!(
        "CREATE ROLE \"A Writer\" LOGIN PASSWORD '{}'; GRANT USAGE ON SCHEMA {schema} TO \"A Writer\";
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO \"A Writer\";
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO \"A Writer\"",
        server.password()
    ));
    drop(open(server, schema, "p"));
    let url = format!("{}?schema={schema}&project=p", server.url().replace("tester:", "A%20Writer:"));
    let address: PostgresAddress = url.parse().unwrap();
    let store = block_on(PostgresStore::open(&address, PostgresOptions::default())).unwrap();
    let id = SessionId::new(1).unwrap();
    let turn = NewTurn { used_in: Some(".".to_owned()), ..NewTurn::verbatim([Event::assistant("hi")]) };
    block_on(store.append(id, turn)).unwrap();
    assert_eq!(block_on(store.last_used(".")).unwrap(), Some(id));
    block_on(store.delete(id)).unwrap();
}

#[test]
fn tables_of_the_second_release_gain_what_their_turns_reported_of_the_cache() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = "second_release";
    server.sql(&format!(
        "CREATE SCHEMA {schema}; CREATE TABLE {schema}.format (version integer NOT NULL);
         INSERT INTO {schema}.format VALUES (2);"
    ));
    server.sql(&FIRST_RELEASE.replace("@schema@", schema));
    server.sql(&SECOND_RELEASE.replace("@schema@", schema));
    let usage = |input: &str, cache: &str| {
        format!(
            r#"{{"Complete":{{"success":true,"usage":{{"input_tokens":{input},"output_tokens":4{cache}}}}}}}"#
        )
    };
    let (written, read) =
        (r#","cache_write_tokens":900"#, r#","cache_read_tokens":1500,"cache_write_tokens":400"#);
    // How much input was counted, and the ends of the turns.
    let sessions = [
        (3050, vec![usage("1000", written), usage("2000", read)]),
        // As a fork, whose first events are those of another session.
        (2000, vec![usage("1000", written), usage("2000", read)]),
        // The first end is another program's.
        (5000, vec![usage("-7", r#","cache_read_tokens":-3,"cache_write_tokens":[1]"#), usage("2000", read)]),
        (5000, vec![r#"{"Complete":{"success":true}}"#.to_owned()]),
        (5000, Vec::new()),
    ];
    for (number, (tokens_in, ends)) in (1..).zip(&sessions) {
        server.sql(&format!(
            "SELECT {schema}.create_session('p', gen_random_uuid(), false, 's{number}', '.', '2026-01-31T09:30:00Z',
               gen_random_uuid(), NULL, '2026-01-31T09:30:00Z');
             UPDATE {schema}.sessions SET tokens_in = {tokens_in}, tokens_out = 8, last_seq = {}
             WHERE session = {number}",
            ends.len()
        ));
        for (seq, json) in (1..).zip(ends) {
            server.sql(&format!(
                "INSERT INTO {schema}.events (project, session, seq, kind, json, data)
                 VALUES ('p', {number}, {seq}, 'Complete', '{json}', '{json}')"
            ));
        }
    }
    let store = open(server, schema, "p");
    assert_eq!(server.sql(&format!("SELECT version FROM {schema}.format")), "6");
    let found: Vec<(u64, u64)> = list(&store)
        .iter()
        .rev()
        .map(|record| (record.tokens.cache_read, record.tokens.cache_write))
        .collect();
    assert_eq!(found, [(1500, 1300), (0, 0), (1500, 400), (0, 0), (0, 0)]);
    let id = SessionId::new(1).unwrap();
    let tokens = Tokens { cache_read: 80, cache_write: 10, ..Tokens::new(100, 1) };
    block_on(store.append(id, NewTurn { tokens, ..NewTurn::verbatim([Event::user("more")]) })).unwrap();
    let expected = Tokens { cache_read: 1580, cache_write: 1310, ..Tokens::new(3150, 9) };
    assert_eq!(block_on(store.get(id)).unwrap().tokens, expected);
}
