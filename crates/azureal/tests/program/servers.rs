//! What holds of a store on every server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::json;

use crate::import::CLLM;
use crate::run::{fake_claude, signal, wait_until};
use crate::world::{Ran, World, assistant, exported, user};

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
    let steps: &[&[&str]] = &[
        &["list"],
        // From elsewhere, once.
        &["import", talk],
        &["import", talk],
        &["import", "in/old.azs", "--json"],
        &["import", "in/old.azs"],
        &["import", cllm, long],
        &["list", "--json"],
        &["show", "talk", "--json"],
        &["show", "S1", "--last", "1"],
        &["show", "conv-1"],
        &["show", "old", "--digest"],
        // What the next agent is told.
        &["context", "S1"],
        &["context", "conv-1"],
        &["context", "S1", "--stats"],
        &["context", "long", "--stats", "--json"],
        &["list", "--context", "--json"],
        // Branches and turns.
        &["fork", "S1", "--at", "2", "--name", "branch"],
        &["fork", "S1", "--at", "99"],
        &["rename", "S1", "conversation"],
        &["rename", "S1", "S9"],
        &["run", "-s", "branch", "-a", "offline", "What was said?"],
        &["run", "-c", "-a", "offline", "--json", "And then?"],
        &[
            "run",
            "-s",
            "new",
            "-a",
            "offline",
            "--system",
            "Be brief",
            "--exec",
            "echo from a command",
            "A prompt",
        ],
        &["run", "-s", "new", "-a", "offline", "--exec", "echo not run again", "Another"],
        &["run", "-s", "new", "-a", "offline", "--ephemeral", "Not stored"],
        &["run", "-s", "S99", "-a", "offline", "Nowhere"],
        &["context", "new"],
        &["tokens", "new"],
        &["tokens", "conv-1", "--json"],
        &["list", "-n", "2", "--json"],
        &["show", "branch"],
        &["export", "conversation", "--format", "json"],
        &["export", "branch", "--format", "markdown"],
        &["export", "new", "--format", "cllm"],
        &["export", "long", "--format", "axio"],
        // Summaries, and without them again.
        &["compact", "long", "-a", "offline", "--preview"],
        &["compact", "long", "-a", "offline"],
        &["compact", "long", "--list"],
        &["compact", "long", "--list", "--json"],
        &["context", "long"],
        &["tokens", "long"],
        &["fork", "long", "--name", "with a summary"],
        &["compact", "with a summary", "--list"],
        &["export", "long"],
        &["compact", "long", "--undo"],
        &["compact", "long", "--undo"],
        &["compact", "long", "--list"],
        &["context", "long", "--stats"],
        // Nothing runs.
        &["ps"],
        &["ps", "--json"],
        &["cancel", "S2"],
        // What is gone is gone.
        &["rm", "S2", "--yes"],
        &["show", "S2"],
        &["cancel", "S2"],
        &["list", "--all", "--json"],
    ];
    for step in steps {
        let expected = run_on(world, "other.azs", step);
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
        steps.map(|(store, step)| comparable(&run_on(world, store, step)).replace(copy, "[copy]"))
    };
    assert_eq!(away(store, "from-server.azs"), away("other.azs", "from-file.azs"));
}

/// What two runs have in common: how long each took is its own.
fn comparable(ran: &Ran) -> String {
    let text = ran.to_string();
    let mut parts = text.split("\"duration_ms\":");
    let first = parts.next().unwrap_or_default().to_owned();
    let is_number = |c: char| c == ' ' || c.is_ascii_digit();
    let text = parts.fold(first, |text, part| text + "[duration]" + part.trim_start_matches(is_number));
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
