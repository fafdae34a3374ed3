//! A store on a server: the same answers, and no word of its password.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use azureal_testkit::servers::PostgresServer;
use serde_json::json;

use crate::run::{fake_claude, signal, wait_until};
use crate::world::{Ran, World, assistant, exported, user};

/// Runs the program with a store that its environment names.
fn run_on(world: &World, store: &str, arguments: &[&str]) -> Ran {
    world.ran(world.with_programs(arguments).env("AZUREAL_STORE", store).output().unwrap())
}

fn url(server: &PostgresServer, project: &str) -> String {
    format!("{}?project={project}", server.url())
}

#[test]
fn a_store_on_a_server_answers_as_a_file_does() {
    let Some(server) = PostgresServer::shared() else { return };
    let world = World::new();
    let talk = [user("Hello\0there"), assistant("Hi"), json!({"Telemetry": {"cpu": 0.5}})];
    let file = world.file("in/talk.json", &exported("talk", &talk).to_string());
    let import = ["import", file.to_str().unwrap()];
    let steps: [&[&str]; 21] = [
        &["list"],
        &import,
        &import,
        &["list", "--json"],
        &["show", "talk", "--json"],
        &["show", "S1", "--last", "1"],
        &["context", "S1"],
        &["fork", "S1", "--at", "2", "--name", "branch"],
        &["rename", "S1", "conversation"],
        &["run", "-s", "branch", "-a", "offline", "What was said?"],
        &["run", "-c", "-a", "offline", "--json", "And then?"],
        &["run", "-s", "new", "-a", "offline", "A prompt"],
        &["list", "-n", "2", "--json"],
        &["show", "branch"],
        &["export", "conversation", "--format", "json"],
        &["export", "branch", "--format", "markdown"],
        &["ps"],
        &["cancel", "S2"],
        &["rm", "S2", "--yes"],
        &["show", "S2"],
        &["list", "--all", "--json"],
    ];
    let on_server = url(server, "answers");
    for step in steps {
        let expected = run_on(&world, "other.azs", step);
        let ran = run_on(&world, &on_server, step);
        assert_eq!(without_durations(&ran), without_durations(&expected), "{step:?}");
    }
    // Who has the same database with another project sees nothing of it.
    assert_eq!(run_on(&world, &url(server, "elsewhere"), &["list", "--all", "--json"]).json(), json!([]));
    // Nor does one schema of another.
    let other = format!("{on_server}&schema=team_2");
    assert_eq!(run_on(&world, &other, &["list", "--all", "--json"]).json(), json!([]));
}

/// What two runs have in common: how long each took is its own.
fn without_durations(ran: &Ran) -> String {
    let text = ran.to_string();
    let mut words = text.split("\"duration_ms\":");
    let first = words.next().unwrap_or_default().to_owned();
    let text = words.fold(first, |text, word| {
        text + "[duration]" + word.trim_start_matches(|c: char| c.is_ascii_digit())
    });
    // For people: `0.4 s`.
    let words: Vec<&str> = text.split(' ').collect();
    let is_duration = |index: usize| {
        let number = words[index];
        let unit = words.get(index + 1).is_some_and(|unit| unit.starts_with('s'));
        unit && number.contains('.') && number.parse::<f64>().is_ok()
    };
    let words = (0..words.len()).map(|index| if is_duration(index) { "[duration]" } else { words[index] });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_turn_whose_azureal_was_killed_is_recovered_into_a_store_on_a_server() {
    let Some(server) = PostgresServer::shared() else { return };
    let world = World::new();
    let go_on = world.path("go on");
    fake_claude(&world, &format!("while [ ! -e '{}' ]; do sleep 0.05; done", go_on.display()));
    let store = url(server, "recovery");
    let mut command = world.with_programs(&["run", "Do it"]);
    command.env("AZUREAL_STORE", &store).stdout(Stdio::null()).stderr(Stdio::null());
    let mut azureal = command.spawn().unwrap();
    wait_until("a running turn", || run_on(&world, &store, &["ps", "--json"]).json()[0]["pid"].is_u64());
    // Another store of the same project has nothing to do with it.
    assert_eq!(world.run(&["ps", "--json"]).json(), json!([]));
    signal(&azureal, "-KILL");
    azureal.wait().unwrap();
    fs::write(&go_on, "").unwrap();
    wait_until("the recovery", || {
        run_on(&world, &store, &["list"]).stderr.contains("recovered the turn of S1")
    });
    let shown = run_on(&world, &store, &["show", "S1", "--json"]).json_lines();
    assert_eq!(shown.last().unwrap()["data"]["outcome"], "done");
    assert_eq!(run_on(&world, &store, &["list"]).stderr, "", "recovered twice");
    // What lay on this machine meanwhile was private, and is hidden from git.
    let hidden = fs::read_to_string(world.path("p/.azureal/.gitignore")).unwrap();
    assert!(hidden.contains('*'), "{hidden}");
    assert_eq!(fs::metadata(world.path("p/.azureal")).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(!world.store().exists());
}

#[test]
fn the_project_is_called_by_its_repository() {
    let Some(server) = PostgresServer::shared() else { return };
    let world = World::new();
    world.file("p/.git/config", "[remote \"origin\"]\n\turl = git@host.example:team/engine.git\n");
    run_on(&world, &server.url(), &["run", "-a", "offline", "--name", "mine", "Hello"]);
    let named = format!("{}?project=team%2Fengine", server.url());
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
