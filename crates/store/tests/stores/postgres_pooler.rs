//! PostgreSQL behind a pooler: a real PgBouncer, in session and in transaction mode.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use azureal_store::ServerAddress;
use azureal_store::core::{Event, NewSession, NewTurn, Page, Seq, SessionId, SessionStore};
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use azureal_testkit::servers::{CuttingProxy, PgBouncer, PoolMode, PostgresServer};
use azureal_testkit::session_store_contract;
use futures_executor::block_on;
use tempfile::TempDir;

async fn open(url: &str, project: &str) -> PostgresStore {
    let mut address: PostgresAddress = url.parse().unwrap();
    address.set_project(project).unwrap();
    PostgresStore::open(&address, PostgresOptions::default()).await.unwrap()
}

/// Opens a store that no other test uses, by way of a pooler.
async fn behind(mode: PoolMode) -> Option<PostgresStore> {
    static PROJECTS: AtomicU32 = AtomicU32::new(1);
    let project = format!("pooled project {}", PROJECTS.fetch_add(1, Ordering::Relaxed));
    Some(open(&PgBouncer::shared(mode)?.url(), &project).await)
}

/// The same, with originals.
async fn with_originals(mode: PoolMode) -> Option<(PostgresStore, TempDir)> {
    let folder = tempfile::tempdir().unwrap();
    Some((behind(mode).await?.with_originals(folder.path().join("originals"), true, None), folder))
}

session_store_contract!(behind_a_pool_of_sessions, with_originals(PoolMode::Session));

session_store_contract!(behind_a_pool_of_transactions, with_originals(PoolMode::Transaction));

fn hello(text: &str) -> NewTurn {
    NewTurn::verbatim([Event::user(text)])
}

#[test]
fn many_clients_share_a_few_server_connections() {
    let Some(pooler) = PgBouncer::shared(PoolMode::Transaction) else { return };
    let (clients, turns) = (12, 20);
    let store = block_on(open(&pooler.url(), "shared connections"));
    let id = block_on(store.create(NewSession::default())).unwrap();
    std::thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || {
                let store = block_on(open(&pooler.url(), "shared connections"));
                for turn in 0..turns {
                    block_on(store.append(id, hello(&format!("{client} {turn}")))).unwrap();
                }
            });
        }
    });
    let events = block_on(store.read(id, Page::last(1000))).unwrap();
    let texts: BTreeSet<String> = events.into_iter().map(|event| event.json.unwrap()).collect();
    assert_eq!(texts.len(), clients * turns);
}

#[test]
fn a_store_listens_where_a_connection_keeps_its_server_and_nowhere_else() {
    let hears = |mode: PoolMode| {
        let store = block_on(behind(mode))?;
        let id = block_on(store.create(NewSession::default())).unwrap();
        Some(block_on(store.watch(id)).unwrap().map(|mut watch| {
            while block_on(watch.changed(Duration::from_millis(100))).unwrap() {}
            block_on(store.append(id, hello("hello"))).unwrap();
            block_on(watch.changed(Duration::from_secs(20))).unwrap()
        }))
    };
    let Some(in_sessions) = hears(PoolMode::Session) else { return };
    assert_eq!(in_sessions, Some(true));
    assert_eq!(hears(PoolMode::Transaction), Some(None), "it would wait for what never arrives");
}

#[test]
fn every_call_is_one_round_trip_also_the_first_of_a_connection() {
    let Some(server) = PostgresServer::shared() else { return };
    let proxy = CuttingProxy::start(server.port());
    let url = format!("{}?sslmode=disable&project=round-trips", server.url_at(proxy.port()));
    let address: PostgresAddress = url.parse().unwrap();
    let options = PostgresOptions { connections: 1, ..PostgresOptions::default() };
    let store = block_on(PostgresStore::open(&address, options)).unwrap();
    let id = SessionId::new(1).unwrap();
    let calls: [(&str, &dyn Fn()); 4] = [
        ("create", &|| assert_eq!(block_on(store.create(NewSession::default())).unwrap(), id)),
        ("append", &|| assert_eq!(block_on(store.append(id, hello("one"))).unwrap().last, Seq(1))),
        ("append again", &|| assert_eq!(block_on(store.append(id, hello("two"))).unwrap().last, Seq(2))),
        ("read", &|| assert_eq!(block_on(store.read(id, Page::last(9))).unwrap().len(), 2)),
    ];
    for (name, call) in calls {
        proxy.arm(None);
        call();
        assert_eq!(proxy.round_trips(), 1, "{name}");
    }
}
