//! What holds of a store on every server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use azureal_testkit::servers::{PostgresServer, RedisServer};
use serde_json::json;

use crate::import::CLLM;
use crate::run::{fake_claude, signal, wait_until};
use crate::world::{Ran, World, assistant, exported, user};

/// A server with the stores of many projects.
pub(crate) trait Server: Sized + 'static {
    /// Returns the server of all tests.
    fn shared() -> Option<&'static Self>;

    /// Returns the URL of a project's store.
    fn store(&self, project: &str) -> String {
        self.store_at(self.own_port(), project)
    }

    /// Returns the same by way of another port, where a proxy listens.
    fn store_at(&self, port: u16, project: &str) -> String;

    fn own_port(&self) -> u16;
}

impl Server for PostgresServer {
    fn shared() -> Option<&'static Self> {
        Self::shared()
    }

    fn store_at(&self, port: u16, project: &str) -> String {
        format!("{}?project={project}", self.url_at(port))
    }

    fn own_port(&self) -> u16 {
        self.port()
    }
}

impl Server for RedisServer {
    fn shared() -> Option<&'static Self> {
        Self::shared()
    }

    /// The server that all tests share keeps nothing, which is not what they are about.
    fn store_at(&self, port: u16, project: &str) -> String {
        format!("{}?loss=accepted&project={project}", self.url_at(port))
    }

    fn own_port(&self) -> u16 {
        self.port()
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

/// Checks that every command says of a store what it says of a file, and does what it does to one.
pub(crate) fn answers_as_a_file_does(world: &World, store: &str) {
    let talk = [user("Hello\0there"), assistant("Hi"), json!({"Telemetry": {"cpu": 0.5}})];
    let talk = world.file("in/talk.json", &exported("talk", &talk).to_string());
    let long = (1..=5).flat_map(|number| {
        let answer = format!("Answer {number}. {}", "It took a while. ".repeat(100));
        [user(&format!("Prompt {number}")), assistant(&answer)]
    });
    let long = world.file("in/long.json", &exported("long", &long.collect::<Vec<_>>()).to_string());
    let cllm = world.file("in/cllm.json", CLLM);
    let old = run_on(world, "in/old.azs", &["run", "-a", "offline", "--name", "old", "In another file"]);
    assert_eq!(old.code, 0, "{old}");
    let [talk, long, cllm] = [&talk, &long, &cllm].map(|path| path.to_str().unwrap());
    // Each with its exit code.
    let steps: &[(i32, &[&str])] = &[
        (0, &["list"]),
        // From elsewhere, once.
        (0, &["import", "--yes", talk]),
        (0, &["import", "--yes", talk]),
        (0, &["import", "--yes", "in/old.azs", "--json"]),
        (0, &["import", "--yes", "in/old.azs"]),
        (0, &["import", "--yes", cllm, long]),
        (0, &["list", "--json"]),
        (0, &["show", "talk", "--json"]),
        (0, &["show", "S1", "--last", "1"]),
        (0, &["show", "conv-1"]),
        (0, &["show", "old", "--digest"]),
        // One hit each, as equal ranks are ordered by times.
        (0, &["search", "hello"]),
        (0, &["search", "\"prompt 3\"", "--role", "user"]),
        (0, &["search", "\"3 prompt\""]),
        (0, &["show", "talk", "--seq", "2"]),
        // What the next agent is told.
        (0, &["context", "S1"]),
        (0, &["context", "conv-1"]),
        (0, &["context", "S1", "--stats"]),
        (0, &["context", "long", "--stats", "--json"]),
        // Branches and turns.
        (0, &["fork", "S1", "--at", "2", "--name", "branch"]),
        (1, &["fork", "S1", "--at", "99"]),
        (0, &["rename", "S1", "conversation"]),
        (1, &["rename", "S1", "S9"]),
        (0, &["run", "-s", "branch", "-a", "offline", "What was said?"]),
        (0, &["run", "-c", "-a", "offline", "--json", "And then?"]),
        (0, &["run", "-s", "new", "-a", "offline", "--system=Be brief", "--exec=echo from it", "A prompt"]),
        (0, &["run", "-s", "new", "-a", "offline", "--exec", "echo not run again", "Another"]),
        (0, &["run", "-a", "offline", "--ephemeral", "Not stored"]),
        (1, &["run", "-s", "S99", "-a", "offline", "Nowhere"]),
        (0, &["context", "new"]),
        (0, &["tokens", "new"]),
        (0, &["tokens", "conv-1", "--json"]),
        (0, &["list", "-n", "2", "--json"]),
        (0, &["show", "branch"]),
        (0, &["export", "conversation", "--format", "json"]),
        (0, &["export", "branch", "--format", "markdown"]),
        (0, &["export", "new", "--format", "cllm"]),
        (0, &["export", "long", "--format", "axio"]),
        // Summaries, and without them again.
        (0, &["compact", "long", "-a", "offline", "--preview"]),
        (0, &["compact", "long", "-a", "offline"]),
        (0, &["compact", "long", "--list"]),
        (0, &["compact", "long", "--list", "--json"]),
        (0, &["context", "long"]),
        (0, &["tokens", "long"]),
        (0, &["fork", "long", "--name", "with a summary"]),
        (0, &["compact", "with a summary", "--list"]),
        (0, &["export", "long"]),
        (0, &["compact", "long", "--undo"]),
        (1, &["compact", "long", "--undo"]),
        (0, &["compact", "long", "--list"]),
        (0, &["context", "long", "--stats"]),
        (0, &["stats", "--json", "--all", "--by", "agent,model,day,worktree,session"]),
        // Nothing runs.
        (0, &["ps"]),
        (0, &["ps", "--json"]),
        (1, &["cancel", "S2"]),
        // What is gone is gone.
        (0, &["rm", "S2", "--yes"]),
        (1, &["show", "S2"]),
        (1, &["cancel", "S2"]),
        (0, &["list", "--all", "--json"]),
    ];
    for (code, step) in steps {
        let expected = run_on(world, "other.azs", step);
        assert_eq!(expected.code, *code, "{step:?}: {expected}");
        let ran = run_on(world, store, step);
        assert_eq!(comparable(&ran), comparable(&expected), "{step:?}");
    }
    // Away, once, and back again.
    let away = |store: &str, copy: &str| {
        let steps: [(&str, &[&str]); 5] = [
            (store, &["copy", "--to", copy]),
            (store, &["copy", "--to", copy]),
            (store, &["copy", "--from", copy]),
            (copy, &["list", "--all", "--json"]),
            (copy, &["export", "conversation"]),
        ];
        steps.map(|(store, step)| {
            let ran = run_on(world, store, step);
            assert_eq!(ran.code, 0, "{step:?}: {ran}");
            comparable(&ran).replace(copy, "[copy]")
        })
    };
    assert_eq!(away(store, "from-server.azs"), away("other.azs", "from-file.azs"));
}

/// What two runs have in common: how long each took is its own, and a server gets no output of turns by default.
fn comparable(ran: &Ran) -> String {
    let without = |text: &str, field: &str| {
        let mut parts = text.split(field);
        let first = parts.next().unwrap_or_default().to_owned();
        let is_number = |c: char| c == ' ' || c.is_ascii_digit();
        parts.fold(first, |text, part| text + "[number]" + part.trim_start_matches(is_number))
    };
    let text = without(&without(&ran.to_string(), "\"duration_ms\":"), "\"original_bytes\":");
    // As it is told to people, in seconds.
    let is_fraction = |word: &str| word.contains('.') && word.parse::<f64>().is_ok();
    text.split(' ')
        .map(|word| if is_fraction(word) { "[seconds]" } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Checks that a turn whose azureal is killed is stored by the next one, once.
pub(crate) fn recovers_a_turn(world: &World, store: &str) {
    let (begun, go_on) = (world.path("begun"), world.path("go on"));
    let waits =
        format!("touch '{}'; while [ ! -e '{}' ]; do sleep 0.05; done", begun.display(), go_on.display());
    fake_claude(world, &waits);
    let mut command = world.with_programs(&["run", "Do it"]);
    command.env("AZUREAL_STORE", store).stdout(Stdio::null()).stderr(Stdio::null());
    let mut azureal = command.spawn().unwrap();
    // Before that it is a turn too, of an azureal that has not started its agent yet.
    wait_until("a running agent", || begun.exists());
    assert!(run_on(world, store, &["ps", "--json"]).json()[0]["pid"].is_u64());
    // Another store of the same project has nothing to do with it.
    assert_eq!(world.run(&["ps", "--json"]).json(), json!([]));
    signal(&azureal, "-KILL");
    azureal.wait().unwrap();
    fs::write(&go_on, "").unwrap();
    wait_until("the recovery", || {
        run_on(world, store, &["list"]).stderr.contains("recovered the last turn of S1")
    });
    let shown = run_on(world, store, &["show", "S1", "--json"]).json_lines();
    assert_eq!(shown.last().unwrap()["data"]["outcome"], "done");
    assert_eq!(run_on(world, store, &["list"]).stderr, "", "recovered twice");
    // What lay on this machine meanwhile was private, and out of the reach of git.
    assert_eq!(fs::metadata(world.path("p/.git/azureal")).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(!world.path("p/.azureal").exists());
}

/// A recorded turn with many tools, whose results are stored short.
pub(crate) fn recording() -> PathBuf {
    let fixtures = "../agents/tests/fixtures/claude/current/multi-tool/stdout.jsonl";
    Path::new(env!("CARGO_MANIFEST_DIR")).join(fixtures)
}

/// A machine on which the agent prints that turn.
fn machine(share: bool) -> World {
    let world = World::new();
    world.program("claude", &format!("cat > /dev/null\ncat '{}'", recording().display()));
    world.file("home/.config/azureal/azufig.toml", &format!("[originals]\nshare = {share}\n"));
    world
}

/// Runs the program with the configuration of the machine's user.
pub(crate) fn run_at_home(world: &World, store: &str, arguments: &[&str]) -> Ran {
    let mut command = world.with_programs(arguments);
    world.ran(command.env("AZUREAL_STORE", store).env("HOME", world.path("home")).output().unwrap())
}

/// Returns the files below a folder that a machine keeps for a server, without locks.
fn kept(world: &World, folder: &str) -> Vec<String> {
    let paths = world.snapshot("p").into_iter().map(|(path, _)| path.display().to_string());
    let is_of_server = |path: &String| path.contains("/postgres-") || path.contains("/redis-");
    let is_lock = |path: &String| path.ends_with(".lock") || path.ends_with("lease");
    let paths = paths.filter(is_of_server).filter(|path| !is_lock(path));
    paths.filter(|path| path.contains(&format!("/{folder}/"))).collect()
}

fn ask(world: &World, store: &str) {
    let ran = run_at_home(world, store, &["run", "-s", "work", "-a", "claude", "hi"]);
    assert_eq!(ran.code, 0, "{ran}");
}

/// Checks that the output of a turn is not kept unless the user shares it.
pub(crate) fn keeps_no_output_unless_it_is_shared(store: &str) {
    let world = machine(false);
    ask(&world, store);
    assert_eq!((kept(&world, "spool"), kept(&world, "originals")), (vec![], vec![]));
    let ran = run_at_home(&world, store, &["original", "work"]);
    assert!(ran.code == 1 && ran.stderr.contains("no output of S1 work is kept"), "{ran}");
    let ran = run_at_home(&world, store, &["show", "work", "--full"]);
    assert!(ran.code == 0 && ran.stdout.contains("[4 lines omitted]"), "{ran}");
    // A copy does not bring it either.
    let ran = run_at_home(&world, "file.azs", &["run", "-s", "copied", "-a", "claude", "hi"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_ne!(run_at_home(&world, "file.azs", &["original", "copied"]).quiet(), "");
    assert_eq!(run_at_home(&world, store, &["copy", "--from", "file.azs"]).code, 0);
    assert_eq!(run_at_home(&world, store, &["original", "copied"]).code, 1);
    assert_eq!(kept(&world, "originals"), [""; 0]);
}

/// Checks what the same machine sees of an output that is shared, up to its deletion with the session. Returns the machine.
pub(crate) fn keeps_output_that_is_shared(store: &str) -> World {
    let world = machine(true);
    ask(&world, store);
    assert_eq!(kept(&world, "spool"), [""; 0]);
    let printed = fs::read_to_string(recording()).unwrap();
    assert_eq!(run_at_home(&world, store, &["original", "work"]).quiet(), printed);
    let full = run_at_home(&world, store, &["show", "work", "--full"]).quiet();
    assert!(full.contains("logo.png") && !full.contains("omitted"), "{full}");
    let bytes = run_at_home(&world, store, &["list", "--json"]).json()[0]["original_bytes"].as_u64();
    assert!(bytes > Some(0), "{bytes:?}");
    run_at_home(&world, store, &["fork", "work", "--name", "forked"]).quiet();
    assert_eq!(run_at_home(&world, store, &["original", "forked"]).quiet(), printed);
    run_at_home(&world, store, &["rm", "forked", "--yes"]).quiet();
    // To a file and back, where the output has to come from the file.
    run_at_home(&world, store, &["copy", "--to", "file.azs"]).quiet();
    assert_eq!(run_at_home(&world, "file.azs", &["original", "work"]).quiet(), printed);
    run_at_home(&world, store, &["rm", "work", "--yes"]).quiet();
    assert_eq!(kept(&world, "originals"), [""; 0]);
    run_at_home(&world, store, &["copy", "--from", "file.azs"]).quiet();
    assert_eq!(run_at_home(&world, store, &["original", "work"]).quiet(), printed);
    world
}

/// Returns the output that another machine has of the same session.
pub(crate) fn output_on_another_machine(store: &str) -> Ran {
    run_at_home(&machine(true), store, &["original", "work"])
}

/// Returns what another machine shows of the same session.
pub(crate) fn full_on_another_machine(store: &str) -> String {
    run_at_home(&machine(true), store, &["show", "work", "--full"]).quiet()
}

/// Returns the output of the recorded turn.
pub(crate) fn recorded_output() -> String {
    fs::read_to_string(recording()).unwrap()
}

/// Returns the originals that a machine keeps as files.
pub(crate) fn local_originals(world: &World) -> Vec<String> {
    kept(world, "originals")
}
