//! What holds of a store on every server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use azureal_testkit::servers::{PostgresServer, RedisServer};
use serde_json::json;

use crate::run::{fake_claude, signal, wait_until};
use crate::world::{Ran, World, assistant, exported, user};

/// A server with the stores of many projects.
pub(crate) trait Server: Sized + 'static {
    /// Returns the server of all tests.
    fn shared() -> Option<&'static Self>;

    /// Returns the URL of a project's store.
    fn store(&self, project: &str) -> String;
}

impl Server for PostgresServer {
    fn shared() -> Option<&'static Self> {
        Self::shared()
    }

    fn store(&self, project: &str) -> String {
        format!("{}?project={project}", self.url())
    }
}

impl Server for RedisServer {
    fn shared() -> Option<&'static Self> {
        Self::shared()
    }

    /// The server that all tests share keeps nothing, which is not what they are about.
    fn store(&self, project: &str) -> String {
        format!("{}?loss=accepted&project={project}", self.url())
    }
}

/// Makes tests of functions that are about any [`Server`], one for each.
macro_rules! on_every_server {
    ($($case:ident)*) => {
        mod on_postgres {
            $(#[test] fn $case() { super::$case::<azureal_testkit::servers::PostgresServer>(); })*
        }
        mod on_redis {
            $(#[test] fn $case() { super::$case::<azureal_testkit::servers::RedisServer>(); })*
        }
    };
}
pub(crate) use on_every_server;

/// Runs the program with a store that its environment names.
pub(crate) fn run_on(world: &World, store: &str, arguments: &[&str]) -> Ran {
    world.ran(world.with_programs(arguments).env("AZUREAL_STORE", store).output().unwrap())
}

/// Checks that every command says of a store what it says of a file.
pub(crate) fn answers_as_a_file_does(world: &World, store: &str) {
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
    for step in steps {
        let expected = run_on(world, "other.azs", step);
        let ran = run_on(world, store, step);
        assert_eq!(without_durations(&ran), without_durations(&expected), "{step:?}");
    }
}

/// What two runs have in common: how long each took is its own.
fn without_durations(ran: &Ran) -> String {
    let text = ran.to_string();
    let mut parts = text.split("\"duration_ms\":");
    let first = parts.next().unwrap_or_default().to_owned();
    let digits = |c: char| c.is_ascii_digit();
    let text = parts.fold(first, |text, part| text + "[duration]" + part.trim_start_matches(digits));
    // As it is told to people, in seconds.
    let is_fraction = |word: &str| word.contains('.') && word.parse::<f64>().is_ok();
    text.split(' ')
        .map(|word| if is_fraction(word) { "[seconds]" } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Checks that a turn whose azureal is killed is stored by the next one, once.
pub(crate) fn recovers_a_turn(world: &World, store: &str) {
    let go_on = world.path("go on");
    fake_claude(world, &format!("while [ ! -e '{}' ]; do sleep 0.05; done", go_on.display()));
    let mut command = world.with_programs(&["run", "Do it"]);
    command.env("AZUREAL_STORE", store).stdout(Stdio::null()).stderr(Stdio::null());
    let mut azureal = command.spawn().unwrap();
    wait_until("a running turn", || run_on(world, store, &["ps", "--json"]).json()[0]["pid"].is_u64());
    // Another store of the same project has nothing to do with it.
    assert_eq!(world.run(&["ps", "--json"]).json(), json!([]));
    signal(&azureal, "-KILL");
    azureal.wait().unwrap();
    fs::write(&go_on, "").unwrap();
    wait_until("the recovery", || {
        run_on(world, store, &["list"]).stderr.contains("recovered the turn of S1")
    });
    let shown = run_on(world, store, &["show", "S1", "--json"]).json_lines();
    assert_eq!(shown.last().unwrap()["data"]["outcome"], "done");
    assert_eq!(run_on(world, store, &["list"]).stderr, "", "recovered twice");
    // What lay on this machine meanwhile was private, and is hidden from git.
    let hidden = fs::read_to_string(world.path("p/.azureal/.gitignore")).unwrap();
    assert!(hidden.contains('*'), "{hidden}");
    assert_eq!(fs::metadata(world.path("p/.azureal")).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(!world.store().exists());
}
