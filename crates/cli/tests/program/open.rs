//! `azureal open`: a session in the own interface of an agent's program, and back.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use azureal_testkit::model_server::{Answer, ModelServer, Request};
use azureal_testkit::project::git_repository;
use azureal_testkit::pty::PtyProgram;
use azureal_testkit::real_agents::{AgentHome, Agents, KEY};
use azureal_testkit::servers::CuttingProxy;
use azureal_testkit::{thorough, until};
use serde_json::{Value, json};

use crate::real_agents::Real;
use crate::servers::{Server, on_every_server};
use crate::world::{Ran, World, assistant, exported, user};

/// A program that resumes a session as Claude Code does, and answers each line that is typed. `back` continues after the first answer,
/// `delete` removes the session, `fail` ends with an error, `stop` stops the program, `leave` leaves a command behind.
const CLAUDE: &str = r#"
[ "$1" = --version ] && { echo '2.1.197 (Claude Code)'; exit; }
[ "$1" = --resume ] || exit 2
file=$(ls "$HOME"/.claude/projects/*/"$2".jsonl) || exit 2
number=$(wc -l < "$file")
echo "$@" > "$HOME/arguments"
env > "$HOME/environment"
echo "opened $number lines"
line() {
    printf '{"type":"%s","uuid":"%s","parentUuid":"%s","sessionId":"%s","timestamp":"'"$(date -u +%Y-%m-%dT%H:%M:%SZ)"'","cwd":"/p","message":%s}\n' "$1" "$2" "$3" "$4" "$5" >> "$file"
}
while read -r typed; do
    last=$(grep -o '"uuid":"[^"]*"' "$file" | tail -n 1 | cut -d '"' -f 4)
    case "$typed" in
        quit) exit 0 ;;
        fail) exit 3 ;;
        stop) kill -STOP $$; echo continued; continue ;;
        delete) rm "$file"; exit 0 ;;
        leave) setsid sh -c 'echo $$ > "$HOME/left"; exec sleep 100' < /dev/null > /dev/null 2>&1 & continue ;;
        count)
            kept="${file%.jsonl}/tool-results"; mkdir -p "$kept"; seq 1 60000 > "$kept/b1.txt"
            line user uc "$last" "$2" '{"role":"user","content":"count"}'
            line assistant ac uc "$2" '{"id":"mc","role":"assistant","model":"opus","stop_reason":"tool_use","content":[{"type":"tool_use","id":"call","name":"Bash","input":{"command":"seq 1 60000"}}]}'
            line user rc ac "$2" '{"role":"user","content":[{"type":"tool_result","tool_use_id":"call","content":"1\\n2\\n3"}]},"toolUseResult":{"stdout":"1","persistedOutputPath":"'"$kept/b1.txt"'"}'
            line assistant zc rc "$2" '{"id":"mz","role":"assistant","model":"opus","stop_reason":"end_turn","content":[{"type":"text","text":"Yes, count"}]}'
            echo "answered count"; continue ;;
        back) last=$(grep -o '"uuid":"[^"]*"' "$file" | sed -n 2p | cut -d '"' -f 4) ;;
    esac
    number=$((number + 1))
    line user "u$number" "$last" "$2" '{"role":"user","content":"'"$typed"'"}'
    line assistant "a$number" "u$number" "$2" '{"id":"m'$number'","role":"assistant","model":"opus","stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":1},"content":[{"type":"text","text":"Yes, '"$typed"'"}]}'
    echo "$typed" >> "$HOME/answered"
    echo "answered $typed"
done
"#;

/// A project with a session of two turns, and the program.
fn project() -> World {
    let world = World::new();
    world.program("claude", CLAUDE);
    fs::create_dir(world.path("home")).unwrap();
    let call = json!({"ToolCall": {"tool_use_id": "t1", "tool_name": "Bash", "input": {"command": "ls"}}});
    let result = json!({"ToolResult": {"tool_use_id": "t1", "tool_name": "Bash", "content": "a.txt", "is_error": false}});
    world.session(
        "work",
        &[user("One"), assistant("First."), user("Two"), call, result, assistant("Second.")],
    );
    world
}

fn azureal(world: &World, arguments: &[&str]) -> Command {
    let mut command = world.with_programs(arguments);
    command.env("HOME", world.path("home")).env("TERM", "xterm").env("AZUREAL_STORE", world.store());
    command
}

fn run(world: &World, arguments: &[&str]) -> Ran {
    world.ran(azureal(world, arguments).output().unwrap())
}

fn open(world: &World, arguments: &[&str]) -> PtyProgram {
    PtyProgram::start(&azureal(world, &[&["open"], arguments].concat()), 120, 40)
}

/// Returns the prompts and answers of a session.
fn texts(world: &World, session: &str) -> Vec<String> {
    texts_in(run(world, &["show", session, "--json"]).json_lines())
}

fn texts_in(events: Vec<Value>) -> Vec<String> {
    let text = |event: Value| match event["kind"].as_str() {
        Some("UserMessage") => event["data"]["content"].as_str().map(str::to_owned),
        Some("AssistantText") => event["data"]["text"].as_str().map(str::to_owned),
        _ => None,
    };
    events.into_iter().filter_map(text).collect()
}

/// The folder of the originals.
const ORIGINALS: &str = "p/.git/azureal/originals";
const BEFORE: [&str; 4] = ["One", "First.", "Two", "Second."];

/// Asserts that a session has its turns and these.
#[track_caller]
fn assert_added(world: &World, added: &[&str]) {
    assert_eq!(texts(world, "S1"), [&BEFORE[..], added].concat());
}

/// Returns the files in a folder and below it.
fn files(folder: PathBuf) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

/// Asserts that neither the program nor azureal has a trace of the opening.
#[track_caller]
fn assert_no_trace(world: &World) {
    for folder in ["home/.claude", "home/.local/state/azureal/opened"] {
        assert_eq!(files(world.path(folder)), Vec::<PathBuf>::new());
    }
    assert_eq!(run(world, &["ps", "--json"]).json(), Value::Array(Vec::new()));
}

#[test]
fn what_is_added_in_the_interface_becomes_turns_of_the_session() {
    let world = project();
    let mut claude = open(&world, &["S1", "-a", "claude", "--", "--model", "opus"]);
    claude.wait_for("opened ");
    claude.send("Three\r");
    claude.wait_for("answered Three");
    let arguments = fs::read_to_string(world.path("home/arguments")).unwrap();
    assert!(arguments.ends_with(" --model opus\n"), "{arguments}");
    let environment = fs::read_to_string(world.path("home/environment")).unwrap();
    assert!(!environment.contains("AZUREAL_STORE"), "the store is no business of agents: {environment}");

    // Nothing else happens in the session meanwhile.
    let active = run(&world, &["ps", "--json"]).json();
    assert_eq!((&active[0]["session"], &active[0]["interface"]), (&"S1".into(), &true.into()), "{active}");
    let ps = run(&world, &["ps"]).stdout;
    assert!(ps.contains("S1 · claude since") && ps.contains("in its own interface"), "{ps}");
    for (arguments, expected) in [
        (&["run", "-s", "S1", "-a", "offline", "no"][..], "S1 is open in the interface of claude"),
        // It is the session that is used here.
        (&["run", "-c", "-a", "offline", "no"], "hint: quit it there"),
        (&["rm", "S1", "--yes"], "S1 work is open in the interface of claude"),
        (&["cancel", "S1"], "S1 work is open in the interface of claude"),
        (&["compact", "S1"], ""),
    ] {
        let ran = run(&world, arguments);
        assert_eq!(ran.code == 1, !expected.is_empty(), "{ran}");
        assert!(ran.stderr.contains(expected), "{ran}");
    }
    let second = open(&world, &["S1"]);
    second.wait_for("S1 is open in the interface of claude");

    claude.send("Four\rquit\r");
    assert_eq!(claude.wait_for_exit(), Some(0));
    assert!(claude.screen().contains("S1 work: 2 turns added in Claude Code"), "{}", claude.screen());
    assert_added(&world, &["Three", "Yes, Three", "Four", "Yes, Four"]);
    assert_no_trace(&world);
    let session = &run(&world, &["list", "--json"]).json()[0];
    assert_eq!((&session["agent"], &session["input_tokens"]), (&"claude".into(), &20.into()), "{session}");
    let again = run(&world, &["run", "-c", "-a", "offline", "Five"]);
    assert_eq!(again.code, 0, "{again}");
    assert_eq!(texts(&world, "S1").len(), 10, "it is the session that was used last");
}

#[test]
fn the_program_gets_the_turns_as_turns() {
    let world = project();
    let mut claude = open(&world, &["-a", "claude", "--keep"]);
    claude.wait_for("opened ");
    let written = files(world.path("home/.claude"));
    let [file] = &written[..] else { panic!("{written:?}") };
    let text = fs::read_to_string(file).unwrap();
    for part in ["\"One\"", "First.", "\"tool_use\"", "\"tool_result\"", "a.txt", "Second."] {
        assert!(text.contains(part), "{part}: {text}");
    }
    claude.send("Three\rquit\r");
    assert_eq!(claude.wait_for_exit(), Some(0));
    assert_added(&world, &["Three", "Yes, Three"]);
    assert!(claude.screen().contains("Claude Code keeps the session in"), "{}", claude.screen());
    assert!(files(world.path("home/.local/state/azureal/opened")).is_empty());
    // An import knows it.
    let imported = run(&world, &["import", "--from", "claude", "--json"]);
    assert_eq!(imported.code, 0, "{imported}");
    assert_added(&world, &["Three", "Yes, Three"]);
    assert_eq!(run(&world, &["list", "--json"]).json().as_array().unwrap().len(), 1);
}

#[test]
fn whole_outputs_that_the_program_keeps_come_along() {
    let world = project();
    let mut claude = open(&world, &["S1", "-a", "claude"]);
    claude.wait_for("opened ");
    claude.send("count\rquit\r");
    assert_eq!(claude.wait_for_exit(), Some(0));
    assert_added(&world, &["count", "Yes, count"]);
    assert_no_trace(&world);
    let shown = run(&world, &["show", "S1", "--full"]).quiet();
    assert!(shown.contains("    31337\n") && shown.contains("    60000\n"), "{shown}");
    // The part of the file that was there before belongs to no turn of Claude Code, and is not missing.
    run(&world, &["original", "S1"]).quiet();
}

#[test]
fn a_program_that_adds_nothing_leaves_nothing() {
    let world = project();
    for (typed, code, message) in [
        ("quit\r", 0, "S1 work: no turn was added in Claude Code"),
        ("fail\r", 1, "Claude Code ended with exit status: 3"),
        ("delete\r", 0, "S1 work: no turn was added in Claude Code"),
    ] {
        let mut claude = open(&world, &["S1", "-a", "claude"]);
        claude.wait_for("opened ");
        claude.send(typed);
        assert_eq!(claude.wait_for_exit(), Some(code));
        assert!(claude.screen().contains(message), "{}", claude.screen());
        assert_added(&world, &[]);
        assert_no_trace(&world);
    }
}

#[test]
fn an_original_that_cannot_be_stored_keeps_the_written_session() {
    let world = project();
    fs::write(world.path(ORIGINALS), "in the way").unwrap();
    let mut claude = open(&world, &["S1", "-a", "claude"]);
    claude.wait_for("opened ");
    claude.send("Three\rquit\r");
    assert_eq!(claude.wait_for_exit(), Some(0));
    let screen = claude.screen();
    assert!(screen.contains("its file is not kept as its original"), "{screen}");
    assert!(screen.contains("Claude Code keeps the session in") && !screen.contains("deleted"), "{screen}");
    assert_added(&world, &["Three", "Yes, Three"]);
    let written = files(world.path("home/.claude"));
    let [file] = &written[..] else { panic!("{written:?}") };
    assert!(fs::read_to_string(file).unwrap().contains("Yes, Three"));
    assert!(files(world.path("home/.local/state/azureal/opened")).is_empty());
    // An import knows its turns.
    let imported = run(&world, &["import", "--from", "claude", "--json"]);
    assert_eq!(imported.code, 0, "{imported}");
    assert_added(&world, &["Three", "Yes, Three"]);
}

#[test]
fn a_user_who_goes_back_in_the_program_gets_a_fork() {
    let world = project();
    let mut claude = open(&world, &["S1", "-a", "claude"]);
    claude.wait_for("opened ");
    claude.send("back\r");
    claude.wait_for("answered back");
    claude.send("quit\r");
    assert_eq!(claude.wait_for_exit(), Some(0));
    assert!(claude.screen().contains("1 turn added in Claude Code went to S2"), "{}", claude.screen());
    assert_added(&world, &[]);
    assert_eq!(texts(&world, "S2"), ["One", "First.", "back", "Yes, back"]);
    assert_no_trace(&world);
}

#[test]
fn the_fork_of_a_user_who_goes_back_has_what_the_program_was_told_before_the_first_prompt() {
    let world = project();
    let said = |number: &str| [user(number), assistant(&format!("Answer {number}"))];
    let system = json!({"SystemMessage": {"content": "Be brief."}});
    let events =
        [vec![system], ["One", "Two", "Three", "Four"].iter().flat_map(|number| said(number)).collect()];
    let mut session = exported("long", &events.concat());
    session["compactions"] = json!([{"after_seq": 3, "summary": "They began."}]);
    let session = world.file("in/long.json", &session.to_string());
    let ran = run(&world, &["import", session.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran}");
    let mut claude = open(&world, &["S2", "-a", "claude"]);
    claude.wait_for("opened ");
    // After the first turn behind the summary, and once more.
    claude.send("back\rFive\rquit\r");
    assert_eq!(claude.wait_for_exit(), Some(0));
    assert!(claude.screen().contains("2 turns added in Claude Code went to S3"), "{}", claude.screen());
    let added = ["back", "Yes, back", "Five", "Yes, Five"];
    let before = ["One", "Answer One", "Two", "Answer Two"];
    assert_eq!(texts(&world, "S3"), [before, added].concat());
    let context = run(&world, &["context", "S3"]).stdout;
    assert!(context.contains("Be brief.") && context.contains("They began."), "{context}");
    assert_eq!(texts(&world, "S2").len(), 8);
    assert_no_trace(&world);
}

#[test]
fn what_cannot_be_opened_is_said() {
    let world = project();
    let ran = run(&world, &["open", "S1", "-a", "claude"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("needs a terminal"), "{ran}");
    for (arguments, message) in [
        (&["S1", "-a", "codex"][..], "codex is not installed"),
        (&["S1", "-a", "nobody"], "nobody"),
        (&["S9"], "no session S9"),
        (&["wor"], "wor"),
    ] {
        let mut refused = open(&world, arguments);
        assert_ne!(refused.wait_for_exit(), Some(0));
        assert!(refused.screen().contains(message), "{}", refused.screen());
    }
    assert_no_trace(&world);
}

/// Returns a shell with these arguments, and the command that opens the session.
fn shell(world: &World, arguments: &[&str]) -> Command {
    let command = azureal(world, &["open", "S1", "-a", "claude"]);
    let mut shell = Command::new("/bin/sh");
    shell.args(arguments).arg(command.get_program()).args(command.get_args());
    shell.current_dir(world.path("p")).env_clear();
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

#[test]
fn a_program_that_stops_itself_leaves_the_user_to_the_shell() {
    let world = project();
    // `-m`: a shell with job control, which waits for azureal and then for a line of the user.
    let script = "\"$0\" \"$@\"; echo \"the shell: $?\"; read line; fg >/dev/null; echo \"ended with $?\"";
    let mut shell = PtyProgram::start(&shell(&world, &["-m", "-c", script]), 120, 40);
    shell.wait_for("opened ");
    shell.send("stop\r");
    shell.wait_for("the shell: 1");
    shell.send("\r");
    shell.wait_for("continued");
    shell.send("Three\r");
    shell.wait_for("answered Three");
    shell.send("quit\r");
    shell.wait_for("ended with 0");
    shell.wait_for_exit();
    assert_added(&world, &["Three", "Yes, Three"]);
    // Where no shell could continue it, the program continues.
    let mut claude = open(&world, &["S1", "-a", "claude"]);
    claude.wait_for("opened ");
    claude.send("stop\r");
    claude.wait_for("continued");
    claude.send("quit\r");
    assert_eq!(claude.wait_for_exit(), Some(0));
    assert_no_trace(&world);
}

/// Returns the process that `azureal ps` shows.
fn shown_process(world: &World) -> u64 {
    run(world, &["ps", "--json"]).json()[0]["pid"].as_u64().unwrap()
}

fn parent_of(process: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

fn kill(process: u64) {
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
}

/// Asserts that the session is open, and that no command takes it back.
#[track_caller]
fn assert_open(world: &World) {
    let refused = run(world, &["run", "-s", "S1", "-a", "offline", "no"]);
    assert_eq!(refused.code, 1, "{refused}");
    let hint = format!("`kill {}` if its terminal is gone", shown_process(world));
    for part in ["S1 is open in the interface of claude", &hint] {
        assert!(refused.stderr.contains(part), "{refused}");
    }
    assert_added(world, &[]);
}

#[test]
fn a_killed_azureal_leaves_the_session_to_the_program_and_its_turns_to_the_next_command() {
    for has_launcher in [false, true] {
        let world = project();
        if has_launcher {
            launched(&world);
        }
        // In a shell, which keeps the terminal open.
        let script = "\"$0\" \"$@\"; echo \"ended with $?\"; cat";
        let claude = PtyProgram::start(&shell(&world, &["-c", script]), 120, 40);
        claude.wait_for("opened ");
        claude.send("Three\r");
        claude.wait_for("answered Three");
        let started = shown_process(&world);
        kill(parent_of(started));
        claude.wait_for("ended with 137");
        assert_open(&world);
        kill(started);
        if has_launcher {
            assert_open(&world);
            kill(shown_process(&world));
        }
        until("the next command takes it back", || {
            let ran = run(&world, &["list"]);
            ran.stderr.contains("recovered S1: 1 turn added in claude").then_some(())
        });
        assert_added(&world, &["Three", "Yes, Three"]);
        assert_no_trace(&world);
    }
}

/// Puts a launcher in front of the program, which waits for it.
fn launched(world: &World) {
    world.program("claude-itself", CLAUDE);
    world.program("claude", "claude-itself \"$@\"; exit $?");
}

#[test]
fn a_program_without_its_launcher_is_waited_for_and_not_the_commands_that_it_leaves() {
    let world = project();
    launched(&world);
    let mut claude = open(&world, &["S1", "-a", "claude"]);
    claude.wait_for("opened ");
    claude.send("leave\r");
    let left = until("the command that is left", || {
        fs::read_to_string(world.path("home/left")).ok()?.trim().parse::<u64>().ok()
    });
    kill(shown_process(&world));
    claude.wait_for("Claude Code still runs");
    assert_open(&world);
    claude.send("Three\rquit\r");
    assert_eq!(claude.wait_for_exit(), Some(0));
    assert!(claude.screen().contains("1 turn added in Claude Code"), "{}", claude.screen());
    assert_added(&world, &["Three", "Yes, Three"]);
    assert_no_trace(&world);
    kill(left);
}

on_every_server! {
    a_session_on_a_server_is_opened_and_taken_back
    a_session_is_taken_back_when_its_server_has_another_address
}

/// Kills azureal and the program in an open session, and takes it back from the store at its new place.
fn taken_back_at_another_place(world: &World, before: &str, after: &str, move_it: impl Fn()) {
    let command = |store: &str, arguments: &[&str]| {
        let mut command = azureal(world, arguments);
        command.env("AZUREAL_STORE", store);
        command
    };
    let run = |store: &str, arguments: &[&str]| world.ran(command(store, arguments).output().unwrap());
    let session =
        world.file("in/work.json", &exported("work", &[user("One"), assistant("First.")]).to_string());
    let ran = run(before, &["import", session.to_str().unwrap(), "--yes"]);
    assert_eq!(ran.code, 0, "{ran}");
    let claude = PtyProgram::start(&command(before, &["open", "S1", "-a", "claude"]), 120, 40);
    claude.wait_for("opened ");
    claude.send("Three\r");
    claude.wait_for("answered Three");
    let program = run(before, &["ps", "--json"]).json()[0]["pid"].as_u64().unwrap();
    kill(parent_of(program));
    drop(claude);
    until("the end of the program", || {
        (!std::path::Path::new(&format!("/proc/{program}/fd")).exists()).then_some(())
    });
    move_it();
    // Under another address of a server, which may be that of a copy, nothing says that the holder of the lease has died on this
    // machine: the lease has to expire.
    until("the session is taken back", || {
        run(after, &["list"]).stderr.contains("recovered S1: 1 turn added in claude").then_some(())
    });
    assert_eq!(texts_in(run(after, &["show", "S1", "--json"]).json_lines())[2..], ["Three", "Yes, Three"]);
}

#[test]
fn a_session_is_taken_back_when_its_store_was_moved() {
    let world = project();
    let [before, after] = ["before/sessions.azs", "after/sessions.azs"].map(|path| world.path(path));
    fs::create_dir(world.path("before")).unwrap();
    let [before, after] = [&before, &after].map(|path| path.to_str().unwrap());
    taken_back_at_another_place(&world, before, after, || {
        fs::rename(world.path("before"), world.path("after")).unwrap();
    });
    // Nor does another store at the old place get what belongs to it.
    fs::create_dir(world.path("before")).unwrap();
    let mut other = azureal(&world, &["run", "-a", "offline", "Hello"]);
    let ran = world.ran(other.env("AZUREAL_STORE", before).output().unwrap());
    assert!(ran.code == 0 && !ran.stderr.contains("recovered"), "{ran}");
}

fn a_session_is_taken_back_when_its_server_has_another_address<S: Server>() {
    let Some(server) = S::shared() else { return };
    let (world, proxy) = (project(), CuttingProxy::start(server.own_port()));
    let (before, after) = (server.store_at(proxy.port(), "open-moved"), server.store("open-moved"));
    taken_back_at_another_place(&world, &before, &after, || {});
}

fn a_session_on_a_server_is_opened_and_taken_back<S: Server>() {
    let Some(server) = S::shared() else { return };
    let (world, store) = (project(), server.store("opened"));
    let command = |arguments: &[&str]| {
        let mut command = azureal(&world, arguments);
        command.env("AZUREAL_STORE", &store);
        command
    };
    let run = |arguments: &[&str]| world.ran(command(arguments).output().unwrap());
    let session =
        world.file("in/work.json", &exported("work", &[user("One"), assistant("First.")]).to_string());
    let ran = run(&["import", session.to_str().unwrap(), "--yes"]);
    assert_eq!(ran.code, 0, "{ran}");
    let open = || PtyProgram::start(&command(&["open", "S1", "-a", "claude"]), 120, 40);
    let texts = || texts_in(run(&["show", "S1", "--json"]).json_lines());

    let mut claude = open();
    claude.wait_for("opened ");
    let environment = fs::read_to_string(world.path("home/environment")).unwrap();
    assert!(!environment.contains(&store), "the store is no business of agents: {environment}");
    // Another home has no note of it, and the lease is in the store.
    let mut elsewhere = command(&["run", "-s", "S1", "-a", "offline", "no"]);
    let refused = world.ran(elsewhere.env("HOME", world.path("other")).output().unwrap());
    assert!(refused.code == 1 && refused.stderr.contains("a turn of S1 is running"), "{refused}");
    claude.send("Two\rquit\r");
    assert_eq!(claude.wait_for_exit(), Some(0));
    assert_eq!(texts(), ["One", "First.", "Two", "Yes, Two"]);

    let claude = open();
    claude.wait_for("opened ");
    claude.send("Three\r");
    claude.wait_for("answered Three");
    let program = run(&["ps", "--json"]).json()[0]["pid"].as_u64().unwrap();
    kill(parent_of(program));
    // Its terminal has gone.
    drop(claude);
    until("the next command takes it back", || {
        run(&["list"]).stderr.contains("recovered S1: 1 turn added in claude").then_some(())
    });
    assert_eq!(texts()[4..], ["Three", "Yes, Three"]);
    for folder in ["home/.claude", "home/.local/state/azureal/opened"] {
        assert_eq!(files(world.path(folder)), Vec::<PathBuf>::new());
    }
}

/// The calls that change a file, or make a change durable.
const CALLS: &str =
    "rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,write,pwrite64,ftruncate,fsync,fdatasync";

/// Runs an opening under strace, with these arguments of it, and types a turn. Returns the log of the calls.
fn traced(world: &World, typed: &str, arguments: &[&str]) -> String {
    let log = world.path("strace");
    let command = azureal(world, &["open", "S1", "-a", "claude"]);
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-y", "-e", "signal=none"]).args(arguments).arg("-o").arg(&log);
    strace.arg(command.get_program()).args(command.get_args()).current_dir(world.path("p")).env_clear();
    strace.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut opened = PtyProgram::start(&strace, 120, 40);
    // Typed ahead: the program reads it if it is started.
    opened.send(&format!("{typed}\rquit\r"));
    opened.wait_for_exit();
    fs::read_to_string(log).unwrap()
}

/// Kills an opening at its steps, and has the next commands finish it. `check` gets the fault and whether the program had answered.
fn kill_at_any_step(typed: &str, steps: usize, check: impl Fn(&World, &str, bool)) {
    let calls = format!("trace={CALLS}");
    let log = {
        let world = project();
        let log = traced(&world, typed, &["-e", &calls]);
        check(&world, "no fault", true);
        log
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for line in log.lines() {
        let Some((name, _)) = line.split_once('(') else { continue };
        let count = counts.entry(name).or_default();
        *count += 1;
        if !line.contains(" = -1 ") {
            faults.push(format!("{name}:signal=SIGKILL:when={count}"));
        }
    }
    assert!(faults.len() > 20, "{log}");
    // Each takes about a second; all of them where time does not matter.
    let step = thorough(faults.len() / steps, 1).max(1);
    for fault in faults.iter().step_by(step) {
        let world = project();
        traced(&world, typed, &["-e", &calls, "-e", &format!("inject={fault}")]);
        // The program may have outlived azureal for a moment.
        until(fault, || {
            run(&world, &["list"]);
            files(world.path("home/.local/state/azureal/opened")).is_empty().then_some(())
        });
        check(&world, fault, world.path("home/answered").exists());
    }
}

fn sessions(world: &World) -> usize {
    run(world, &["list", "--json"]).json().as_array().unwrap().len()
}

#[test]
fn an_opening_that_is_killed_at_any_step_loses_and_doubles_nothing() {
    kill_at_any_step("Three", 12, |world, fault, has_answered| {
        let found = texts(world, "S1");
        let added: Vec<&str> = found.iter().skip(BEFORE.len()).map(String::as_str).collect();
        assert!(added == ["Three", "Yes, Three"] || added.is_empty() && !has_answered, "{fault}: {found:?}");
        assert_eq!(sessions(world), 1, "{fault}");
        // The whole output of the turn is kept.
        let last = run(world, &["show", "S1", "--json"]).json_lines().len().to_string();
        let original = run(world, &["original", "S1", "--seq", &last]);
        assert!(added.is_empty() || original.stdout.contains("Yes, Three"), "{fault}: {original}");
        assert_no_trace(world);
    });
}

#[test]
fn the_recovery_of_an_opening_that_was_killed_before_it_had_an_original_keeps_one() {
    let world = project();
    let originals = world.path(ORIGINALS);
    // Also the threads, which write originals: the first call in the folder.
    let fault =
        ["-f", "-P", originals.to_str().unwrap(), "-e", "inject=openat,mkdirat:signal=SIGKILL:when=1"];
    let log = traced(&world, "Three", &fault);
    assert!(log.contains("originals"), "{log}");
    let ran = run(&world, &["list"]);
    assert!(ran.stderr.contains("recovered S1: 1 turn added in claude"), "{ran}");
    assert_added(&world, &["Three", "Yes, Three"]);
    let last = run(&world, &["show", "S1", "--json"]).json_lines().len().to_string();
    let original = run(&world, &["original", "S1", "--seq", &last]);
    assert!(original.code == 0 && original.stdout.contains("Yes, Three"), "{original}");
    assert_no_trace(&world);
}

#[test]
fn an_opening_of_a_user_who_goes_back_is_killed_at_any_step_and_loses_nothing() {
    kill_at_any_step("back", 6, |world, fault, has_answered| {
        assert_eq!(texts(world, "S1"), BEFORE, "{fault}");
        let count = sessions(world);
        assert!(count == 2 || count == 1 && !has_answered, "{fault}: {count} sessions");
        if count == 2 {
            assert_eq!(texts(world, "S2"), ["One", "First.", "back", "Yes, back"], "{fault}");
        }
    });
}

/// Answers the questions that the programs ask a new user.
fn be_known(real: &Real) {
    let project = fs::canonicalize(real.home.project()).unwrap();
    let project = project.to_str().unwrap();
    let claude = json!({
        "hasCompletedOnboarding": true,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY], "rejected": []},
        "projects": {project: {"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}},
    });
    fs::write(real.home.claude_config_dir().join(".claude.json"), claude.to_string()).unwrap();
    let config = real.home.codex_home().join("config.toml");
    let known = fs::read_to_string(&config).unwrap();
    fs::write(config, format!("{known}\n[projects.\"{project}\"]\ntrust_level = \"trusted\"\n")).unwrap();
}

/// Types a text until the interface shows this. A program that has just drawn its history may not read keys yet.
fn type_until(opened: &PtyProgram, typed: &str, shown: &str) {
    until("the text is typed", || {
        // Without what an earlier attempt has left.
        opened.send(&format!("\x15{typed}"));
        (0..30).find_map(|_| {
            std::thread::sleep(Duration::from_millis(100));
            opened.screen().contains(shown).then_some(())
        })
    });
}

/// Types a prompt into an interface that shows a history, and quits it after the answer.
#[track_caller]
fn type_and_quit(opened: &mut PtyProgram, history: &str, answer: &str, quit: &str) {
    until("the history", || {
        // An advertisement, which may not read keys yet.
        if opened.screen().contains("Use existing model") {
            opened.send("2");
            std::thread::sleep(Duration::from_millis(500));
        }
        opened.screen().contains(history).then_some(())
    });
    type_until(opened, "Go further", "Go further");
    opened.send("\r");
    opened.wait_for(answer);
    let is_over = |opened: &PtyProgram| opened.screen().contains(" work: ");
    for _ in 0..60 {
        if is_over(opened) {
            break;
        }
        opened.send(quit);
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(is_over(opened), "{}", opened.screen());
    assert_eq!(opened.wait_for_exit(), Some(0));
}

/// Makes a session with one agent, opens it in the interface of the other and types a prompt there.
#[track_caller]
fn open_for_real(by: &str, agent: &str, call: Answer) {
    let server = ModelServer::scripted::<Answer>([]);
    let Some(real) = Real::new(&server) else { return };
    be_known(&real);
    assert!(
        Command::new("git").args(["init", "-q"]).current_dir(real.home.project()).status().unwrap().success()
    );
    // Codex has a database of its sessions as soon as it was used.
    server.push("Hello.");
    let ran = real.run(&["run", "-s", "other", "-a", agent, "--permission", "read", "Hello?"]);
    assert_eq!(ran.code, 0, "{ran}");
    server.push(call);
    server.push("The code is 48151.");
    let ran = real.run(&["run", "-s", "work", "-a", by, "--permission", "all", "Read the code"]);
    assert_eq!(ran.code, 0, "{ran}");
    let before = texts_of(&real);

    let mut command = real.command(&["open", "work", "-a", agent]);
    command.env("TERM", "xterm-256color");
    // Codex may also ask for a title.
    server.push("Opened and answered.");
    server.push("Opened and answered.");
    let mut opened = PtyProgram::start(&command, 120, 40);
    let quit = if agent == "claude" { "\x03" } else { "\x04" };
    type_and_quit(&mut opened, "The code is 48151.", "Opened and answered.", quit);
    let request = request_of(&server, "Go further");
    let told = format!("{:?} {:?}", request.user_texts(), request.tool_results());
    assert!(told.contains("Read the code") && told.contains("code-in-the-file"), "{told}");
    let added = ["Go further", "Opened and answered."].map(str::to_owned);
    assert_eq!(texts_of(&real), [&before[..], &added].concat());
    let homes = [real.home.claude_config_dir().join("projects"), real.home.codex_home().join("sessions")];
    let left: Vec<PathBuf> = homes.into_iter().flat_map(files).collect();
    assert_eq!(left.len(), 2, "only those of the turns before: {left:?}");

    // The session continues with either.
    server.push("Still here.");
    let ran = real.run(&["run", "-s", "work", "-a", by, "--permission", "read", "And now?"]);
    assert_eq!(ran.code, 0, "{ran}");
    let told = request_of(&server, "And now?").user_texts().join("\n");
    assert!(told.contains("Opened and answered."), "{told}");
}

/// Returns the last request with a prompt, which is no request for a title.
#[track_caller]
fn request_of(server: &ModelServer, prompt: &str) -> Arc<Request> {
    let is_it = |found: &str| found.ends_with(prompt) && !found.contains("task title");
    let has_prompt = |request: &&Arc<Request>| request.prompt().is_some_and(is_it);
    server.requests().iter().rev().find(has_prompt).unwrap().clone()
}

fn texts_of(real: &Real) -> Vec<String> {
    texts_in(real.run(&["show", "work", "--json"]).json_lines())
}

#[test]
fn a_session_of_claude_is_opened_in_codex() {
    open_for_real(
        "claude",
        "codex",
        Answer::new().tool("Bash", json!({"command": "echo code-in-the-file", "description": "Read"})),
    );
}

#[test]
fn a_session_of_codex_is_opened_in_claude() {
    open_for_real(
        "codex",
        "claude",
        Answer::new().tool("exec_command", json!({"cmd": "echo code-in-the-file"})),
    );
}

/// Opens a session of two turns in the real Claude Code.
fn open_in_claude(server: &ModelServer) -> Option<(Real, PtyProgram)> {
    let real = Real::new(server)?;
    be_known(&real);
    fs::write(real.home.project().join("notes.txt"), "a note\n").unwrap();
    git_repository(&real.home.project());
    let events = [
        json!({"SystemMessage": {"content": "Be brief."}}),
        user("One"),
        assistant("The first answer."),
        user("Two"),
        assistant("The second answer."),
    ];
    let session = real.home.home().join("session.json");
    fs::write(&session, exported("work", &events).to_string()).unwrap();
    let ran = real.run(&["import", session.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran}");
    let mut command = real.command(&["open", "work", "-a", "claude"]);
    command.env("TERM", "xterm-256color");
    let opened = PtyProgram::start(&command, 120, 40);
    opened.wait_for("The second answer.");
    Some((real, opened))
}

#[test]
fn a_user_who_goes_back_in_claude_gets_a_fork() {
    let server = ModelServer::always("As I said.");
    let Some((real, mut opened)) = open_in_claude(&server) else { return };
    type_until(&opened, "/rewind", "/rewind");
    // A menu that was just drawn may not read keys yet.
    for (key, before, after) in [
        ("\r", "/rewind", "❯ (current)"),
        ("\x1b[A", "❯ (current)", "❯ Two\n    ⚠"),
        ("\r", "❯ Two\n    ⚠", "❯ 1. Restore conversation"),
        ("\r", "❯ 1. Restore conversation", "● The first answer.\n\n───"),
    ] {
        until(after, || {
            let screen = opened.screen();
            if screen.contains(before) {
                opened.send(key);
            }
            std::thread::sleep(Duration::from_millis(500));
            opened.screen().contains(after).then_some(())
        });
    }
    type_and_quit(&mut opened, "The first answer.", "As I said.", "\x03");
    let before = ["One", "The first answer.", "Two", "The second answer."];
    assert_eq!(texts_of(&real), before);
    let fork = real.run(&["show", "S2", "--json"]).json_lines();
    assert_eq!(fork[0]["data"]["content"], "Be brief.");
    assert_eq!(texts_in(fork), ["One", "The first answer.", "Go further", "As I said."]);
}

#[test]
fn a_session_that_is_begun_in_claude_meanwhile_is_one_of_claude() {
    let server = ModelServer::always("As I said.");
    let Some((real, mut opened)) = open_in_claude(&server) else { return };
    type_until(&opened, "/clear", "/clear");
    opened.send("\r");
    until("the history is gone", || (!opened.screen().contains("The second answer.")).then_some(()));
    type_and_quit(&mut opened, "/clear", "As I said.", "\x03");
    assert!(opened.screen().contains("S1 work: no turn was added in Claude Code"), "{}", opened.screen());
    let ran = real.run(&["import", "--from", "claude"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(texts_of(&real).len(), 4);
    assert_eq!(texts_in(real.run(&["show", "S2", "--json"]).json_lines()), ["Go further", "As I said."]);
}

/// Opens a session in the interface of a program that azureal does not run itself.
#[track_caller]
fn open_in(program: &'static str, arguments: &[&str]) {
    let Some(agents) = Agents::find(&[program]) else { return };
    let server = ModelServer::always("As I said.");
    let real = Real { home: AgentHome::new(&agents, &server) };
    fs::write(real.home.project().join("notes.txt"), "a note\n").unwrap();
    git_repository(&real.home.project());
    let session = real.home.home().join("session.json");
    fs::write(&session, exported("work", &[user("One"), assistant("The first answer.")]).to_string())
        .unwrap();
    let ran = real.run(&["import", session.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran}");
    let mut command = real.command(&[&["open", "work", "-a", program], arguments].concat());
    command.env("TERM", "xterm-256color");
    let mut opened = PtyProgram::start(&command, 120, 40);
    type_and_quit(&mut opened, "The first answer.", "As I said.", "\x03");
    assert_eq!(texts_of(&real), ["One", "The first answer.", "Go further", "As I said."]);
    // Nothing of it is left to import.
    let ran = real.run(&["import", "--from", program, "--json"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(real.run(&["list", "--json"]).json().as_array().unwrap().len(), 1);
}

#[test]
fn a_session_is_opened_in_gemini() {
    open_in("gemini", &["--", "--skip-trust"]);
}

#[test]
fn a_session_is_opened_in_qwen() {
    open_in("qwen", &["--", "--auth-type", "openai"]);
}

#[test]
fn a_session_is_opened_in_opencode() {
    open_in("opencode", &["--", "-m", "testkit/m1"]);
}
