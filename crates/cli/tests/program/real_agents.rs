//! run with the real Claude Code and the real Codex, where something goes wrong on the way.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use azureal_core::SUMMARY_PROMPT;
use azureal_process::{Marker, find_marked};
use azureal_testkit::model_server::{Answer, Api, Gate, ModelServer, Request, StreamPosition, Usage};
use azureal_testkit::real_agents::{AgentHome, Agents};
use azureal_testkit::until;
use serde_json::{Value, json};

use crate::world::Ran;

/// A port that nobody listens at, and that the system gives to nobody.
const NOBODY: &str = "http://127.0.0.1:9";

/// Which process of an agent is killed: the one that was started, or the one that it has started in turn.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Started,
    Below,
}

/// A project in the home of the real agents, and the program run in it.
pub(crate) struct Real {
    pub(crate) home: AgentHome,
}

impl Real {
    /// Nothing where the agents are not installed, which is said loudly.
    pub(crate) fn new(server: &ModelServer) -> Option<Self> {
        Some(Self { home: AgentHome::new(&Agents::find(&["claude", "codex"])?, server) })
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.command(env!("CARGO_BIN_EXE_azureal"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        finish(self.command(arguments).spawn().unwrap())
    }

    /// Asks an agent in the one session of this project.
    pub(crate) fn asking(&self, agent: &str, prompt: &str, more: &[&str]) -> Command {
        let arguments = ["run", "-s", "work", "-a", agent, "--permission", "read", prompt];
        self.command(&[&arguments[..], more].concat())
    }

    pub(crate) fn ask(&self, agent: &str, prompt: &str, more: &[&str]) -> Ran {
        finish(self.asking(agent, prompt, more).spawn().unwrap())
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        self.run(&["show", "work", "--json"]).json_lines()
    }

    /// Asserts that the last turn of the session has failed, in the list and in the log.
    #[track_caller]
    fn assert_failed(&self, outcome: &str) {
        let list = self.run(&["list"]).stdout;
        assert!(list.contains("S1  ✗  work"), "{list}");
        assert_eq!(self.run(&["list", "--json"]).json()[0]["completed"], false);
        assert_eq!(self.events().pop().unwrap()["data"]["outcome"], outcome);
    }

    /// Returns the processes that were started from this home, and what they have started.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let home = self.home.home().into_os_string().into_string().unwrap();
        find_marked(&Marker::new("HOME", home).unwrap()).iter().map(|process| process.pid).collect()
    }

    /// Returns the number of a process of the agent that `azureal` runs.
    #[track_caller]
    fn agent_process(&self, azureal: &Child, which: Victim) -> u32 {
        let running = self.run(&["ps", "--json"]).json();
        let first = u32::try_from(running[0]["pid"].as_u64().unwrap()).unwrap();
        match which {
            Victim::Started => first,
            Victim::Below => {
                // It starts others too, which come and go.
                let is_agent = |pid: &u32| {
                    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
                    ![first, azureal.id()].contains(pid) && program.ends_with("codex")
                };
                self.processes().into_iter().find(is_agent).unwrap()
            }
        }
    }

    /// Waits until the agent has printed this.
    #[track_caller]
    fn wait_for_output(&self, text: &str) {
        wait_until(text, || {
            let Ok(entries) = fs::read_dir(self.home.project().join(".azureal/spool")) else {
                return false;
            };
            let paths = entries.map(|entry| entry.unwrap().path());
            let mut spools = paths.filter(|path| path.extension().is_some_and(|found| found == "jsonl"));
            spools.any(|path| fs::read_to_string(path).is_ok_and(|printed| printed.contains(text)))
        });
    }
}

pub(crate) fn finish(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    until(what, || is_so().then_some(()));
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

/// What goes wrong, and what is told of it with Claude and with Codex.
const FAILURES: [(u16, [&str; 2]); 4] = [
    (400, ["400 the model says no", "the model says no"]),
    (401, ["401 the model says no", "401 Unauthorized: the model says no"]),
    (429, ["(429) · the model says no", "429 Too Many Requests"]),
    (500, ["500 the model says no", "currently experiencing high demand"]),
];

/// Asserts that a turn has failed for the reason that is told, that the prompt is kept, and that the next one
/// works and has all of that in its context.
#[track_caller]
fn assert_goes_on(real: &Real, server: &ModelServer, agent: &str, failed: &Ran, told: &str) {
    assert_eq!(failed.code, 1, "{failed}");
    // Once: a retry says why it is one, and the end only that it failed.
    let errors = failed.stderr.lines().filter(|line| line.contains(told) && !line.contains(": retry "));
    assert_eq!(errors.count(), 1, "{failed}");
    assert!(failed.stderr.lines().any(|line| line == "error: the turn of S1 failed"), "{failed}");
    real.assert_failed("failed");
    let asked = server.request_count();

    server.push("Better now.");
    let next = real.ask(agent, "The second prompt", &[]);
    assert_eq!((next.code, next.stdout.as_str()), (0, "Better now.\n"), "{next}");
    let requests = server.requests();
    assert_eq!(requests.len(), asked + 1);
    let context = requests[asked].user_texts().join("\n");
    for part in ["The first prompt", told, "The second prompt"] {
        assert!(context.contains(part), "{part} is not in the context:\n{context}");
    }
    let prompts: Vec<_> = real.events().into_iter().filter(|event| event["kind"] == "UserMessage").collect();
    let prompts: Vec<_> = prompts.iter().map(|event| &event["data"]["content"]).collect();
    assert_eq!(prompts, ["The first prompt", "The second prompt"]);
    assert_eq!(real.run(&["list", "--json"]).json()[0]["completed"], true);
}

fn check_failures(agent: &str, column: usize) {
    for (status, told) in FAILURES {
        let server = ModelServer::always(Answer::error(status, "the model says no"));
        let Some(real) = Real::new(&server) else { return };
        let failed = real.ask(agent, "The first prompt", &[]);
        assert_goes_on(&real, &server, agent, &failed, told[column]);
        let login = ["hint: run `claude /login` in a terminal", "hint: run `codex login` in a terminal"];
        assert_eq!(failed.stderr.contains(login[column]), status == 401, "{failed}");
    }
}

#[test]
fn a_model_that_refuses_claude_is_told_stored_and_gone_on_from() {
    check_failures("claude", 0);
}

#[test]
fn both_agents_say_how_large_their_last_request_was() {
    for agent in ["claude", "codex"] {
        let used = |input| Usage { input, output: 50, ..Usage::default() };
        let tool = match agent {
            "claude" => Answer::new().tool("Read", json!({"file_path": "/dev/null"})),
            _ => Answer::new().tool("exec_command", json!({"cmd": "true"})),
        };
        let server =
            ModelServer::scripted([tool.usage(used(1_000)), Answer::from("Done.").usage(used(3_000))]);
        let Some(real) = Real::new(&server) else { return };
        let ran = real.ask(agent, "Look", &[]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let usage = real.events().pop().unwrap()["data"]["usage"].clone();
        assert_eq!(
            (&usage["input_tokens"], &usage["context_tokens"]),
            (&json!(4_000), &json!(3_050)),
            "{agent}: {usage}"
        );
    }
}

#[test]
fn a_model_that_refuses_codex_is_told_stored_and_gone_on_from() {
    check_failures("codex", 1);
}

#[test]
fn a_model_that_cannot_be_reached_ends_the_turn() {
    for (agent, told) in [("claude", "Unable to connect"), ("codex", "Connection failed")] {
        let server = ModelServer::scripted::<Answer>([]);
        let Some(mut real) = Real::new(&server) else { return };
        real.home.talk_to(NOBODY);
        let failed = real.ask(agent, "The first prompt", &[]);
        real.home.talk_to(&server.url());
        assert_goes_on(&real, &server, agent, &failed, told);
    }
}

#[test]
fn what_came_before_the_connection_broke_is_stored() {
    // Claude Code prints words as they come, Codex only whole items, and those again when it asks again.
    let claude = (
        Answer::new().text("Once upon a time there was").cut(StreamPosition::InBlock(0)),
        "\"a \"",
        "Once upon a ",
    );
    let codex = (
        Answer::new().text("Once upon a time.").text("There was").cut(StreamPosition::InBlock(1)),
        "a time.",
        "Once upon a time.",
    );
    for (agent, (answer, printed, came), told) in
        [("claude", claude, "onnection"), ("codex", codex, "stream disconnected")]
    {
        let gate = Gate::new();
        let server = ModelServer::always(answer.hold(&gate));
        let Some(real) = Real::new(&server) else { return };
        let child = real.asking(agent, "The first prompt", &[]).spawn().unwrap();
        real.wait_for_output(printed);
        gate.open();
        let failed = finish(child);
        let texts: Vec<_> =
            real.events().into_iter().filter(|event| event["kind"] == "AssistantText").collect();
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert_eq!(texts[0]["data"]["text"], came, "{failed}");
        assert_goes_on(&real, &server, agent, &failed, told);
    }
}

/// A model that has said something and then waits for a gate that may never open.
fn in_mid_answer(gate: &Gate) -> Answer {
    Answer::new().text("Half an answer.").hold(gate).text("The other half.")
}

#[test]
fn an_agent_that_is_killed_leaves_what_it_said() {
    // The program `codex` is a wrapper: killed itself, it leaves the real one behind.
    for (agent, victim) in [("claude", Victim::Started), ("codex", Victim::Started), ("codex", Victim::Below)]
    {
        let gate = Gate::new();
        let server = ModelServer::scripted([in_mid_answer(&gate)]);
        let Some(real) = Real::new(&server) else { return };
        let child = real.asking(agent, "The first prompt", &["--json"]).spawn().unwrap();
        real.wait_for_output("Half an answer.");
        kill(real.agent_process(&child, victim));
        let ran = finish(child);
        assert_eq!(ran.code, 1, "{ran}");
        let error: Value = serde_json::from_str(ran.stderr.lines().last().unwrap()).unwrap();
        assert_eq!(error["error"]["kind"], "interrupted", "{ran}");
        assert!(error["error"]["message"].as_str().unwrap().contains("SIGKILL"), "{ran}");
        real.assert_failed("interrupted");
        assert_eq!(real.processes(), [] as [u32; 0]);
        let said: Vec<_> =
            real.events().into_iter().filter(|event| event["kind"] == "AssistantText").collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!(said[0]["data"]["text"], "Half an answer.");

        server.push("Better now.");
        let next = real.ask(agent, "The second prompt", &[]);
        assert_eq!((next.code, next.stdout.as_str()), (0, "Better now.\n"), "{next}");
        let context = server.requests().last().unwrap().user_texts().join("\n");
        assert!(context.contains("The first prompt") && context.contains("Half an answer."), "{context}");
    }
}

#[test]
fn a_model_that_never_answers_is_waited_for_as_long_as_was_said() {
    for agent in ["claude", "codex"] {
        let server = ModelServer::always(Answer::new().stall(StreamPosition::Events(2)));
        let Some(real) = Real::new(&server) else { return };
        let start = Instant::now();
        let ran = real.ask(agent, "The first prompt", &["--timeout", "2", "--json"]);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert_eq!(ran.code, 1, "{ran}");
        let error: Value = serde_json::from_str(ran.stderr.lines().last().unwrap()).unwrap();
        assert_eq!(error["error"]["kind"], "timeout", "{ran}");
        assert!(error["error"]["message"].as_str().unwrap().contains("time limit of 2 s"), "{ran}");
        real.assert_failed("timeout");
        assert_eq!(real.processes(), [] as [u32; 0]);
        assert_eq!(real.events()[0]["data"]["content"], "The first prompt");
    }
}

#[test]
fn a_turn_whose_azureal_is_killed_is_finished_by_its_agent_and_recovered() {
    for agent in ["claude", "codex"] {
        let gate = Gate::new();
        let server = ModelServer::scripted([in_mid_answer(&gate)]);
        let Some(real) = Real::new(&server) else { return };
        let mut child = real.asking(agent, "The first prompt", &[]).spawn().unwrap();
        real.wait_for_output("Half an answer.");
        child.kill().unwrap();
        child.wait().unwrap();
        let goes_on = format!("S1: {agent} is still running in the background (");
        let listed = real.run(&["list"]);
        assert!(listed.stderr.starts_with(&goes_on), "{listed}");

        gate.open();
        let mut recovered = String::new();
        wait_until("the recovery", || {
            recovered = real.run(&["list"]).stderr;
            !recovered.starts_with(&goes_on)
        });
        assert_eq!(recovered, "recovered the last turn of S1 (complete)\n", "{agent}");
        assert_eq!(real.run(&["list"]).stderr, "", "it is told once");
        let events = real.events();
        let kinds: Vec<_> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["UserMessage", "Init", "AssistantText", "AssistantText", "Complete"]);
        assert_eq!(events[0]["data"]["content"], "The first prompt");
        assert_eq!(events[2]["data"]["text"], "Half an answer.");
        assert_eq!(events[3]["data"]["text"], "The other half.");
        assert_eq!(events[4]["data"]["outcome"], "done");
        assert_eq!(real.processes(), [] as [u32; 0]);
    }
}

#[test]
fn a_question_to_claude_is_answered_and_codex_fixes_it_with_the_permission_to_edit() {
    const QUESTION: &str = "azureal run -a claude \"Why does the login test fail?\"";
    const FIX: &str = "azureal run -c -a codex --permission edit \"Fix it\"";
    let patch = "*** Begin Patch\n*** Update File: login.txt\n@@\n-wrong\n+right\n*** End Patch\n";
    let server = ModelServer::scripted::<Answer>([]);
    let Some(real) = Real::new(&server) else { return };
    let file = real.home.project().join("login.txt");
    fs::write(&file, "wrong\n").unwrap();
    assert!(
        Command::new("git").args(["init", "-q"]).current_dir(real.home.project()).status().unwrap().success()
    );
    let typed = |line: &str| {
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_azureal"));
        let mut shell = real.home.command("/bin/sh");
        let path = format!("PATH={}:$PATH; {line}", program.parent().unwrap().display());
        shell.args(["-c", &path]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(shell.spawn().unwrap())
    };

    server.push(Answer::new().tool("Read", json!({"file_path": file})));
    server.push(Answer::new().tool("Bash", json!({"command": "make test", "description": "Run the test"})));
    server.push("It says wrong.");
    let asked = typed(QUESTION);
    assert_eq!(asked.code, 0, "{asked}");
    assert!(asked.stdout.contains("✓ Read") && asked.stdout.ends_with("It says wrong.\n"), "{asked}");
    let hint = "claude was refused Bash. Allow commands with `--permission all`";
    assert_eq!(asked.stderr.lines().last(), Some(hint), "{asked}");

    // Without it Codex only reads, and that is said.
    server.push(Answer::new().custom_tool("apply_patch", patch));
    server.push("I may not.");
    let refused = typed(&FIX.replace(" --permission edit", ""));
    assert_eq!((refused.code, fs::read_to_string(&file).unwrap().as_str()), (0, "wrong\n"), "{refused}");
    let hint = "codex was refused Edit. Allow edits with `--permission edit`";
    assert_eq!(refused.stderr.lines().last(), Some(hint), "{refused}");

    server.push(Answer::new().custom_tool("apply_patch", patch));
    server.push("Fixed.");
    let fixed = typed(FIX);
    assert_eq!((fixed.code, fs::read_to_string(&file).unwrap().as_str()), (0, "right\n"), "{fixed}");
    assert!(fixed.stdout.ends_with("Fixed.\n") && !fixed.stderr.contains("refused"), "{fixed}");
    let context = server.requests().last().unwrap().user_texts().join("\n");
    assert!(
        context.contains("Why does the login test fail?") && context.contains("It says wrong."),
        "{context}"
    );
}

#[test]
fn eight_turns_of_claude_at_once_keep_apart() {
    let server = ModelServer::answering(|request| {
        let prompt = request.prompt().unwrap_or_default();
        Answer::from(format!("You said {prompt}").as_str())
    });
    let Some(real) = Real::new(&server) else { return };
    let prompts: Vec<String> = (1..=8).map(|number| format!("prompt {number}")).collect();
    let start =
        |prompt: &String| real.command(&["run", "-a", "claude", "--permission", "read", prompt]).spawn();
    let children: Vec<Child> = prompts.iter().map(|prompt| start(prompt).unwrap()).collect();
    for (prompt, child) in prompts.iter().zip(children) {
        let ran = finish(child);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, format!("You said {prompt}\n").as_str()), "{ran}");
    }
    let list = real.run(&["list", "--json"]);
    assert_eq!(list.stderr, "");
    let list = list.json();
    assert_eq!(list.as_array().unwrap().len(), 8);
    let mut found = Vec::new();
    for session in list.as_array().unwrap() {
        assert_eq!((&session["completed"], &session["running"]), (&json!(true), &json!(false)));
        let events = real.run(&["show", session["id"].as_str().unwrap(), "--json"]).json_lines();
        let kinds: Vec<_> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["UserMessage", "Init", "AssistantText", "Complete"]);
        let prompt = events[0]["data"]["content"].as_str().unwrap().to_owned();
        assert_eq!(events[2]["data"]["text"], format!("You said {prompt}"));
        found.push(prompt);
    }
    found.sort();
    assert_eq!(found, prompts);
    assert_eq!(server.request_count(), 8);
}

/// A model that works at length, writes a summary when it is asked for one, and ends when it is told to go on.
pub(crate) fn long_worker(request: &Request) -> Answer {
    let said = request.user_texts().join("\n");
    let is_claude = request.tools().contains(&"Bash") || said.contains(SUMMARY_PROMPT);
    match () {
        () if said.contains(SUMMARY_PROMPT) => Answer::from("The first steps are done; the last is left."),
        () if said.contains("Go on with the work") => Answer::from("The last step is done."),
        () => {
            let step = format!("Step {}. {}", request.tool_results().len(), "I think about it. ".repeat(60));
            let (tool, input) = match is_claude {
                true => ("Bash", json!({"command": "echo step", "description": "work"})),
                false => ("exec_command", json!({"cmd": "echo step"})),
            };
            Answer::new().text(&step).tool(tool, input)
        }
    }
}

#[test]
fn a_session_that_becomes_too_long_in_mid_turn_is_compacted_and_goes_on_by_itself() {
    for agent in ["claude", "codex"] {
        let server = ModelServer::answering(long_worker);
        let Some(real) = Real::new(&server) else { return };
        // The user's own configuration needs no trust.
        let config = real.home.home().join(".config/azureal/azufig.toml");
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        fs::write(&config, "[compaction]\nthreshold_characters = 6000\n").unwrap();

        // Codex acts only where there is a repository.
        let git = real.home.project().join(".git");
        fs::create_dir_all(git.join("refs")).unwrap();
        fs::create_dir_all(git.join("objects")).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let arguments = ["run", "-s", "work", "-a", agent, "--permission", "all", "Do all the steps"];
        let ran = real.run(&arguments);
        assert_eq!(ran.code, 0, "{agent}: {ran}");
        assert!(ran.stdout.ends_with("The last step is done.\n"), "{agent}: {ran}");
        assert!(ran.stderr.contains(&format!("summary by {agent}")), "{agent}: {ran}");
        assert!(ran.stderr.trim_end().ends_with("% full"), "{agent}: {ran}");

        let told: Vec<String> =
            server.requests().iter().map(|request| request.user_texts().join("\n")).collect();
        let is_summary = |text: &String| text.contains(SUMMARY_PROMPT);
        let goes_on = |text: &String| text.contains("Go on with the work");
        let asked = told.iter().position(is_summary).unwrap();
        assert!(
            told[..asked].iter().all(|text| text.contains("Do all the steps") && !goes_on(text)),
            "{agent}"
        );
        assert_eq!(told.iter().filter(|text| is_summary(text)).count(), 1, "{agent}");
        assert_eq!(told.len(), asked + 2, "{agent}: the summary, then the one that goes on");
        let last = told.last().unwrap();
        assert!(goes_on(last) && last.contains("The first steps are done"), "{agent}: {last}");
        assert!(last.contains("Do all the steps") && last.contains("I think about it."), "{agent}: {last}");

        let events = real.events();
        let prompts: Vec<&Value> = events.iter().filter(|event| event["kind"] == "UserMessage").collect();
        assert_eq!(prompts.len(), 1, "{agent}: nobody else said anything");
        let shown = real.run(&["show", "work"]).stdout;
        assert!(!shown.contains("Go on with the work"), "{agent}: {shown}");
        assert_eq!(events.last().unwrap()["data"]["outcome"], "done", "{agent}");
    }
}

#[test]
fn agents_that_cannot_write_a_summary_are_asked_no_more_than_twice() {
    let server = ModelServer::answering(|request| {
        if request.user_texts().join("\n").contains(SUMMARY_PROMPT) {
            return Answer::error(500, "out of order");
        }
        Answer::from("I looked at it. ".repeat(200).as_str())
    });
    let Some(real) = Real::new(&server) else { return };
    // As people have it: without a word on retries, of which there are then thirty.
    let config = real.home.codex_home().join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    let plain: Vec<&str> = text.lines().filter(|line| !line.contains("_max_retries")).collect();
    fs::write(&config, plain.join("\n")).unwrap();
    for number in 1..=5 {
        assert_eq!(real.ask("claude", &format!("Look at it, number {number}"), &[]).code, 0);
    }
    let before = server.requests().len();
    let compacted = real.run(&["compact", "work", "--json"]).json();
    assert_eq!(compacted["written_by"], "digest", "{compacted}");
    let asked = server.requests().split_off(before);
    for api in [Api::Messages, Api::Responses] {
        assert_eq!(asked.iter().filter(|request| request.api == api).count(), 2, "{api:?}");
    }
}
