//! A store on a server: the same answers, and no word of its password.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use azureal_testkit::servers::PostgresServer;
use serde_json::json;

use crate::servers::{
    answers_as_a_file_does, full_on_another_machine, keeps_no_output_unless_it_is_shared,
    keeps_output_that_is_shared, local_originals, output_on_another_machine, recorded_output, recording,
    recovers_a_turn, run_at_home, run_on,
};
use crate::world::World;

fn url(server: &PostgresServer, project: &str) -> String {
    format!("{}?project={project}", server.url())
}

#[test]
fn postgres_answers_as_a_file_does() {
    let Some(server) = PostgresServer::shared() else { return };
    let (world, store) = (World::new(), url(server, "answers"));
    answers_as_a_file_does(&world, &store);
    // Who has the same database with another project sees nothing of it.
    assert_eq!(run_on(&world, &url(server, "elsewhere"), &["list", "--all", "--json"]).json(), json!([]));
    // Nor does one schema of another.
    let other = format!("{store}&schema=team_2");
    assert_eq!(run_on(&world, &other, &["list", "--all", "--json"]).json(), json!([]));
}

#[test]
fn a_turn_whose_azureal_was_killed_is_recovered_into_postgres() {
    let Some(server) = PostgresServer::shared() else { return };
    recovers_a_turn(&World::new(), &url(server, "recovery"));
}

#[test]
fn the_project_is_called_by_its_repository() {
    let Some(server) = PostgresServer::shared() else { return };
    let world = World::new();
    world.file("p/.git/config", "[remote \"origin\"]\n\turl = git@host.example:team/engine.git\n");
    run_on(&world, &server.url(), &["run", "-a", "offline", "--name", "mine", "Hello"]);
    let named = format!("{}?project=host.example%2Fteam%2Fengine", server.url());
    assert_eq!(run_on(&world, &named, &["list", "--all", "--json"]).json()[0]["name"], "mine");
}

#[test]
fn a_password_comes_from_the_environment_or_a_file() {
    let Some(server) = PostgresServer::shared() else { return };
    let world = World::new();
    let list = |variable: &str, value: &str| {
        let mut command = world.command(&["list", "--all"]);
        command.env("AZUREAL_STORE", format!("{}?project=passwords", server.url_without_password()));
        world.ran(command.env(variable, value).output().unwrap())
    };
    let line = format!("*:{}:*:*:{}\n", server.port(), server.password());
    let passfile = world.file("person/.pgpass", &line);
    let set_mode = |mode| fs::set_permissions(&passfile, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o600);
    let home = world.path("person");
    assert_eq!(list("NOTHING", "").code, 1);
    assert_eq!(list("PGPASSWORD", server.password()).code, 0);
    assert_eq!(list("PGPASSFILE", passfile.to_str().unwrap()).code, 0);
    assert_eq!(list("HOME", home.to_str().unwrap()).code, 0);
    // Of several hosts each has its own line.
    let mut command = world.command(&["list", "--all"]);
    let both = server.url_without_password().replace("@", "@127.0.0.1:1,");
    let ran = command.env("AZUREAL_STORE", format!("{both}?project=passwords")).env("HOME", &home).output();
    assert_eq!(world.ran(ran.unwrap()).code, 0);
    set_mode(0o644);
    let ran = list("HOME", home.to_str().unwrap());
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("[folder]/person/.pgpass is not used: others can read it"), "{ran}");
}

#[test]
fn no_error_tells_a_password() {
    let Some(server) = PostgresServer::shared() else { return };
    let world = World::new();
    let (port, secret) = (server.port(), server.password());
    let rows = [
        (format!("postgres://tester:{secret}x@127.0.0.1:{port}/postgres"), "denied"),
        (format!("postgres://nobody:{secret}@127.0.0.1:{port}/postgres"), "denied"),
        (format!("postgres://tester:{secret}@127.0.0.1:{port}/nowhere"), "denied"),
        (format!("postgres://tester:{secret}@127.0.0.1:1/postgres"), "unreachable"),
        (format!("postgres://tester:{secret}@nowhere.invalid/postgres"), "unreachable"),
        (format!("postgres://tester:{secret}@127.0.0.1:{port}/postgres?sslmode=require"), "store"),
        (format!("postgres://tester:{secret}@127.0.0.1:{port}/postgres?sslmode=maybe"), "usage"),
        (format!("postgres://tester:{secret}@127.0.0.1:{port}/postgres?colour={secret}"), "usage"),
        (format!("postgres://tester:{secret}@127.0.0.1:{secret}/postgres"), "usage"),
        (format!("postgres://tester:a@{secret}@127.0.0.1:{port}/postgres"), "usage"),
    ];
    for (url, kind) in rows {
        for arguments in [&["list", "--json"][..], &["run", "-a", "offline", "--json", "Hello"]] {
            let ran = run_on(&world, &url, arguments);
            assert!(!ran.to_string().contains(secret), "{ran}");
            let error: serde_json::Value = serde_json::from_str(ran.stderr.lines().last().unwrap()).unwrap();
            assert_eq!(error["error"]["kind"], kind, "{ran}");
            assert_eq!(ran.code, if kind == "usage" { 2 } else { 1 }, "{ran}");
        }
    }
    let ran = run_on(&world, "postgres://u:secret@127.0.0.1:1/d", &["list"]).to_string();
    insta::assert_snapshot!(ran.replace("for 3 s", "for 2 s"), @r"
    exit code 1
    --- stderr
    error: postgres://127.0.0.1:1/d cannot be reached (tried for 2 s): connection refused
    hint: see that the server runs and that its address is right, then do it again
    ");
}

#[test]
fn nothing_is_missing_of_an_output_whose_secrets_are_masked() {
    let Some(server) = PostgresServer::shared() else { return };
    let store = format!("{}&schema=masked", url(server, "masked"));
    let world = World::new();
    let secret = "sk-ant-api03-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefghijklmn-opqrstuv";
    let recording = fs::read_to_string(recording()).unwrap();
    let first = recording.lines().next().unwrap();
    let line = format!(r#"{{"type":"system","subtype":"status","session_id":"x","note":"{secret}"}}"#);
    let printed = world.file("printed", &recording.replacen(first, &format!("{first}\n{line}"), 1));
    world.program("claude", &format!("cat > /dev/null\ncat '{}'", printed.display()));
    world.file("home/.config/azureal/azufig.toml", "[originals]\nshare = true\n");
    assert_eq!(run_at_home(&world, &store, &["run", "-s", "work", "-a", "claude", "hi"]).code, 0);
    let ran = run_at_home(&world, &store, &["original", "work"]);
    assert!(!ran.stdout.contains(secret) && ran.stdout.len() < fs::read(&printed).unwrap().len(), "{ran}");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let full = run_at_home(&world, &store, &["show", "work", "--full"]).quiet();
    assert!(full.contains("logo.png") && !full.contains("omitted"), "{full}");
}

#[test]
fn postgres_keeps_no_output_unless_it_is_shared() {
    let Some(server) = PostgresServer::shared() else { return };
    let store = format!("{}&schema=unshared", url(server, "unshared"));
    keeps_no_output_unless_it_is_shared(&store);
    assert_eq!(server.sql("SELECT count(*) FROM unshared.original_pieces"), "0");
}

#[test]
fn every_machine_has_the_output_that_is_shared_in_postgres() {
    let Some(server) = PostgresServer::shared() else { return };
    let store = format!("{}&schema=shared", url(server, "shared"));
    let world = keeps_output_that_is_shared(&store);
    assert_eq!(local_originals(&world), [""; 0], "it was uploaded");
    assert_eq!(server.sql("SELECT count(*) FROM shared.original_pieces"), "1");
    assert_eq!(output_on_another_machine(&store).quiet(), recorded_output());
    let full = full_on_another_machine(&store);
    assert!(full.contains("logo.png") && !full.contains("omitted"), "{full}");
    run_at_home(&world, &store, &["original", "work", "--forget", "--yes"]).quiet();
    assert_eq!(server.sql("SELECT count(*) FROM shared.original_pieces"), "0");
    assert_eq!(output_on_another_machine(&store).code, 1);
}
