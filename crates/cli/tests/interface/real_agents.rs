//! The interface with the real Claude Code and the real Codex, in front of a model server.

use azureal_testkit::model_server::{Answer, Gate, ModelServer};
use azureal_testkit::pty::PtyProgram;
use azureal_testkit::real_agents::{AgentHome, Agents};
use azureal_testkit::until;
use serde_json::{Value, json};

const F2: &str = "\x1bOQ";

/// A project in the home of the real agents.
struct Real {
    home: AgentHome,
}

impl Real {
    fn new(server: &ModelServer) -> Option<Self> {
        let home = AgentHome::new(&Agents::find()?, server);
        // Codex does not run outside a repository.
        assert!(home.command("git").args(["init", "--quiet"]).status().unwrap().success());
        Some(Self { home })
    }

    fn open(&self, arguments: &[&str]) -> PtyProgram {
        let mut command = self.home.command(env!("CARGO_BIN_EXE_azureal"));
        command.args(arguments).env("TERM", "xterm-256color");
        let program = PtyProgram::start(&command, 120, 40);
        program.wait_for("›");
        program
    }

    fn prompts(&self, session: &str) -> Vec<String> {
        let mut command = self.home.command(env!("CARGO_BIN_EXE_azureal"));
        let output = command.args(["show", session, "--json"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let prompts = events.filter(|event| event["kind"] == "UserMessage");
        prompts.map(|event| event["data"]["content"].as_str().unwrap().to_owned()).collect()
    }
}

/// Chooses the agent of the next turn.
fn choose(program: &PtyProgram, agent: &str) {
    program.send(F2);
    program.wait_for("Agent and model");
    // The installed agents are looked for in the background.
    program.wait_for(agent);
    program.send(agent);
    program.send("\r");
    program.wait_for(&format!("the next turn is with {agent}"));
}

/// An answer that stops in the middle until the gate opens.
fn halves(name: &str, gate: &Gate) -> Answer {
    Answer::new().text(&format!("Half of {name}.")).hold(gate).text(&format!("End of {name}."))
}

fn a_day(agent: &str, other: &str, read: Answer) {
    let gates: [Gate; 4] = std::array::from_fn(|_| Gate::new());
    let [first, cancelled, replaced, queued] = &gates;
    let server = ModelServer::scripted([
        read,
        halves("one", first),
        halves("two", cancelled),
        halves("three", replaced),
        Answer::from("Answer to four."),
        halves("five", queued),
        Answer::from("Answer to six."),
        Answer::from("Answer to seven."),
    ]);
    let Some(real) = Real::new(&server) else { return };
    let program = real.open(&[]);
    choose(&program, agent);

    // A prompt, a tool call and a stream.
    program.send("Prompt one\r");
    program.wait_for("Half of one.");
    program.wait_for("Prompt one");
    first.open();
    program.wait_for("End of one.");
    until("the stored turn", || (real.prompts("S1") == ["Prompt one"]).then_some(()));

    // Esc cancels.
    program.send("Prompt two\r");
    program.wait_for("Half of two.");
    program.send("\x1b");
    program.wait_for("cancelled");

    // Enter while a turn runs cancels it and sends the prompt after it.
    program.send("Prompt three\r");
    program.wait_for("Half of three.");
    program.send("Prompt four\r");
    program.wait_for("Answer to four.");

    // A queued prompt waits for the end of the turn.
    program.send("Prompt five\r");
    program.wait_for("Half of five.");
    program.send("Prompt six\x14");
    program.wait_for("queued");
    queued.open();
    program.wait_for("Answer to six.");

    // Another agent continues, and knows everything.
    until("the end of the turn", || (real.prompts("S1").len() == 6).then_some(()));
    choose(&program, other);
    program.send("Prompt seven\r");
    program.wait_for("Answer to seven.");
    let prompts: Vec<String> =
        ["one", "two", "three", "four", "five", "six", "seven"].map(|name| format!("Prompt {name}")).into();
    until("all prompts", || (real.prompts("S1") == prompts).then_some(()));
    let context = server.requests().last().unwrap().user_texts().join("\n");
    for part in ["Prompt one", "End of one.", "Half of two.", "Answer to six."] {
        assert!(context.contains(part), "{part} is not in the context:\n{context}");
    }

    // A fork has the same history.
    program.send("\x18f");
    program.wait_for("new session");
    program.send("y");
    until("the fork", || (real.prompts("S2") == prompts).then_some(()));
    program.assert_listed();
    for gate in &gates {
        gate.open();
    }
}

#[test]
fn a_day_that_begins_with_claude() {
    a_day("claude", "codex", Answer::new().tool("Read", json!({"file_path": "/etc/hostname"})));
}

#[test]
fn a_day_that_begins_with_codex() {
    a_day("codex", "claude", Answer::new().tool("exec_command", json!({"cmd": "echo from the tool"})));
}

#[test]
fn a_turn_that_is_left_running_goes_on_and_is_stored_by_the_next_interface() {
    for agent in ["claude", "codex"] {
        let gate = Gate::new();
        let server = ModelServer::scripted([halves("one", &gate)]);
        let Some(real) = Real::new(&server) else { return };
        let mut program = real.open(&[]);
        choose(&program, agent);
        program.send("Prompt one\r");
        program.wait_for("Half of one.");
        program.send("\x18q");
        program.wait_for("leave them running");
        program.send("l");
        assert_eq!(program.wait_for_exit(), Some(0));

        let program = real.open(&["-s", "S1"]);
        program.wait_for("Half of one.");
        gate.open();
        program.wait_for("End of one.");
        until("the stored turn", || (real.prompts("S1") == ["Prompt one"]).then_some(()));
    }
}
