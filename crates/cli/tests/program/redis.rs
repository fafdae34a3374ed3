//! A store on Redis: the same answers, no word of its password, and a word of what it may lose.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use azureal_testkit::servers::RedisServer;
use serde_json::json;

use crate::servers::{
    Server, answers_as_a_file_does, keeps_no_output_unless_it_is_shared, keeps_output_that_is_shared,
    local_originals, output_on_another_machine, recovers_a_turn, run_at_home, run_on,
};
use crate::world::World;

#[test]
fn redis_answers_as_a_file_does() {
    let Some(server) = RedisServer::shared() else { return };
    let world = World::new();
    answers_as_a_file_does(&world, &server.store("answers"));
    // Who has the same server with another project sees nothing of it.
    assert_eq!(run_on(&world, &server.store("elsewhere"), &["list", "--all", "--json"]).json(), json!([]));
}

#[test]
fn a_turn_whose_azureal_was_killed_is_recovered_into_redis() {
    let Some(server) = RedisServer::shared() else { return };
    recovers_a_turn(&World::new(), &server.store("recovery"));
}

#[test]
fn a_password_for_redis_comes_from_the_environment_or_a_file() {
    let Some(server) = RedisServer::shared() else { return };
    let world = World::new();
    let list = |variable: &str, value: &str| {
        let mut command = world.command(&["list", "--all"]);
        let store = format!("{}?loss=accepted&project=passwords", server.url_without_password());
        world.ran(command.env("AZUREAL_STORE", store).env(variable, value).output().unwrap())
    };
    let file = world.file("person/redis-password", &format!("{}\n", server.password()));
    let set_mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o600);
    assert_eq!(list("NOTHING", "").code, 1);
    assert_eq!(list("AZUREAL_REDIS_PASSWORD", server.password()).code, 0);
    assert_eq!(list("AZUREAL_REDIS_PASSWORD_FILE", file.to_str().unwrap()).code, 0);
    set_mode(0o644);
    let ran = list("AZUREAL_REDIS_PASSWORD_FILE", file.to_str().unwrap());
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("[folder]/person/redis-password is not used: others can read it"), "{ran}");
}

#[test]
fn no_error_tells_a_password_for_redis() {
    let Some(server) = RedisServer::shared() else { return };
    let world = World::new();
    let (port, secret) = (server.port(), server.password());
    let rows = [
        (format!("redis://:{secret}x@127.0.0.1:{port}"), "denied"),
        (format!("redis://nobody:{secret}@127.0.0.1:{port}"), "denied"),
        (format!("redis://:{secret}@127.0.0.1:{port}/99"), "store"),
        (format!("redis://:{secret}@127.0.0.1:1"), "unreachable"),
        (format!("redis://:{secret}@nowhere.invalid"), "unreachable"),
        (format!("rediss://:{secret}@127.0.0.1:{port}"), "unreachable"),
        (format!("redis://:{secret}@127.0.0.1:{port}?loss={secret}"), "usage"),
        (format!("redis://:{secret}@127.0.0.1:{port}?colour={secret}"), "usage"),
        (format!("redis://:{secret}@127.0.0.1:{secret}"), "usage"),
        (format!("redis://:a@{secret}@127.0.0.1:{port}"), "usage"),
    ];
    for (url, kind) in rows {
        let ran = run_on(&world, &url, &["run", "-a", "offline", "--json", "Hello"]);
        assert!(!ran.to_string().contains(secret), "{ran}");
        let error: serde_json::Value = serde_json::from_str(ran.stderr.lines().last().unwrap()).unwrap();
        assert_eq!(error["error"]["kind"], kind, "{ran}");
        assert_eq!(ran.code, if kind == "usage" { 2 } else { 1 }, "{ran}");
    }
}

#[test]
fn what_redis_may_lose_is_said() {
    let Some(server) = RedisServer::start() else { return };
    let world = World::new();
    let list = |options: &str| {
        let ran = run_on(&world, &format!("{}?project=p{options}", server.url()), &["list", "--all"]);
        ran.to_string().replace(&server.port().to_string(), "[port]")
    };
    assert!(!list("").contains("warning"), "{}", list(""));
    server.command(&["CONFIG", "SET", "appendfsync", "everysec"]);
    insta::assert_snapshot!(list(""), @r"
    exit code 0
    --- stderr
    warning: redis://127.0.0.1:[port]/0 may lose the last second of what it acknowledged when it crashes (appendfsync is everysec); `loss=accepted` in its URL says that this is known
    no sessions yet; `azureal import --from all --all-projects` imports those that agents keep, of all projects
    ");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    insta::assert_snapshot!(list(""), @r"
    exit code 3
    --- stderr
    error: redis://127.0.0.1:[port]/0 may throw history away: its maxmemory-policy is allkeys-lru
    hint: `CONFIG SET maxmemory-policy noeviction` on the server makes it keep what it has, and `loss=accepted` in the URL takes it as it is; nothing was changed
    ");
    assert!(!list("&loss=accepted").contains("warning"));
}

#[test]
fn redis_keeps_no_output_unless_it_is_shared() {
    let Some(server) = RedisServer::shared() else { return };
    keeps_no_output_unless_it_is_shared(&server.store("unshared"));
}

#[test]
fn output_that_is_shared_with_redis_stays_on_its_machine() {
    let Some(server) = RedisServer::shared() else { return };
    let store = server.store("shared");
    let world = keeps_output_that_is_shared(&store);
    assert_eq!(local_originals(&world).len(), 1);
    assert_eq!(output_on_another_machine(&store).code, 1);
    run_at_home(&world, &store, &["rm", "work", "--yes"]).quiet();
    assert_eq!(local_originals(&world), [""; 0]);
}

#[test]
fn the_search_index_of_a_server_is_in_the_cache_of_the_user() {
    let Some(server) = RedisServer::shared() else { return };
    let world = World::new();
    let store = server.store("search");
    assert_eq!(run_at_home(&world, &store, &["run", "-a", "offline", "Where is the token?"]).code, 0);
    for _ in 0..2 {
        let ran = run_at_home(&world, &store, &["search", "token", "--role", "user", "--json"]);
        assert_eq!((ran.code, ran.json()["total"].as_u64()), (0, Some(1)), "{ran}");
    }
    let folder = world.path("home/.cache/azureal/search");
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let index = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path().join("words.sqlite");
    assert_eq!(fs::metadata(index).unwrap().permissions().mode() & 0o777, 0o600);
}
