//! The interface with the real Claude Code and the real Codex, in front of a model server.

use std::fs;
use std::process::{Command, Stdio};

use azureal_testkit::model_server::{Answer, Gate, ModelServer};
use azureal_testkit::pty::PtyProgram;
use azureal_testkit::real_agents::{AgentHome, Agents};
use azureal_testkit::until;
use serde_json::{Value, json};

const F2: &str = "\x1bOQ";

/// A project in the home of the real agents.
pub(crate) struct Real {
    pub(crate) home: AgentHome,
}

impl Real {
    pub(crate) fn new(server: &ModelServer) -> Option<Self> {
        let home = AgentHome::new(&Agents::find(&["claude", "codex"])?, server);
        // Codex does not run outside a repository.
        assert!(home.command("git").args(["init", "--quiet"]).status().unwrap().success());
        Some(Self { home })
    }

    /// Writes the user's own configuration, which needs no trust.
    pub(crate) fn configure(&self, text: &str) {
        let file = self.home.home().join(".config/azureal/azufig.toml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// Returns the program, ready to run in the project.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.command(env!("CARGO_BIN_EXE_azureal"));
        command.args(arguments).stdin(Stdio::null());
        command
    }

    pub(crate) fn open(&self, arguments: &[&str]) -> PtyProgram {
        self.open_at(arguments, 120, 40)
    }

    pub(crate) fn open_at(&self, arguments: &[&str], columns: u16, rows: u16) -> PtyProgram {
        let mut command = self.command(arguments);
        command.env("TERM", "xterm-256color");
        let program = PtyProgram::start(&command, columns, rows);
        program.wait_for("›");
        program
    }

    pub(crate) fn prompts(&self, session: &str) -> Vec<String> {
        let output = self.command(&["show", session, "--json"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let prompts = events.filter(|event| event["kind"] == "UserMessage");
        prompts.map(|event| event["data"]["content"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until the agent's own name of its run is noted: without the spool, it leads to the agent's transcript.
    pub(crate) fn wait_for_note(&self) {
        let store = self.home.project().join(".azureal/sessions.azs");
        let store = rusqlite::Connection::open(store).unwrap();
        let note = || store.query_row("SELECT run FROM sessions", [], |row| row.get::<_, String>(0)).ok();
        until("the run is noted", || note().filter(|note| !note.is_empty()));
    }
}

/// Chooses the agent of the next turn.
pub(crate) fn choose(program: &PtyProgram, agent: &str) {
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
    program.wait_for_no("Esc cancel");
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
