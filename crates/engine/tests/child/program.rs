//! What the tests of the bridge start: a bridge, and the scripted agent behind it.
//!
//! `azureal-test-child __bridge` is a bridge. `azureal-test-child agent SCRIPT` speaks JSON-RPC over its pipes and does in
//! a prompt what the script says. `azureal-test-child intrude FOLDER FILE` tries to answer a question by itself.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a program of its own")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "an agent that cannot go on has failed"
)]

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use serde_json::{Value, json};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match &args[..] {
        [azureal_engine::BRIDGE_SUBCOMMAND] => {
            return azureal_engine::bridge_main(env::vars_os().collect());
        }
        ["agent", script] => Agent::default().serve(script),
        ["intrude", folder, file] => fs::write(file, intrude(Path::new(folder))).unwrap(),
        other => panic!("{other:?}"),
    }
    ExitCode::SUCCESS
}

/// Sends a line to the bridge.
fn send(message: &Value) {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{message}").unwrap();
    stdout.flush().unwrap();
}

fn says(text: &str) {
    let update =
        json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } });
    send(
        &json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s1", "update": update } }),
    );
}

fn result(id: &Value, result: &Value) {
    send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
}

fn ask_permission(kind: &str) {
    let call =
        json!({ "toolCallId": "t1", "title": "Run `make`", "kind": kind, "rawInput": { "command": "make" } });
    let options = json!([
        { "optionId": "yes", "name": "Allow", "kind": "allow_once" },
        { "optionId": "no", "name": "Refuse", "kind": "reject_once" },
    ]);
    let params = json!({ "sessionId": "s1", "toolCall": call, "options": options });
    send(&json!({ "jsonrpc": "2.0", "id": "ask", "method": "session/request_permission", "params": params }));
}

#[derive(Default)]
struct Agent {
    /// The id of the prompt that is being answered.
    prompt: Value,
}

impl Agent {
    fn serve(mut self, script: &str) {
        for line in io::stdin().lock().lines() {
            let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let id = message["id"].clone();
            match message["method"].as_str() {
                Some("initialize") => result(&id, &json!({ "protocolVersion": 1 })),
                Some("session/new") => {
                    assert!(message["params"]["cwd"].is_string());
                    // As real agents do: before the session is open.
                    send(
                        &json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s1" } }),
                    );
                    result(&id, &json!({ "sessionId": "s1" }));
                }
                Some("session/prompt") => {
                    self.prompt = id;
                    self.answer(script, &message["params"]["prompt"]);
                }
                Some("session/cancel") => {
                    fs::write("heard-cancel", "").unwrap();
                    if script != "stubborn" {
                        result(&self.prompt, &json!({ "stopReason": "cancelled" }));
                    }
                }
                // The answer to our question.
                None if id == "ask" => {
                    let outcome = &message["result"]["outcome"];
                    says(&format!("{} {}", outcome["outcome"].as_str().unwrap(), outcome["optionId"]));
                    self.done();
                }
                None => {
                    assert_eq!(message["error"]["code"], -32601, "{message}");
                }
                Some(other) => panic!("{other}"),
            }
        }
    }

    fn done(&self) {
        let usage = json!({ "inputTokens": 30, "outputTokens": 6 });
        result(&self.prompt, &json!({ "stopReason": "end_turn", "usage": usage }));
    }

    fn answer(&self, script: &str, prompt: &Value) {
        match script {
            "answer" => {
                send(&json!({ "jsonrpc": "2.0", "id": "odd", "method": "craft/drain" }));
                says("Hello ");
                says("from the agent");
                self.done();
            }
            "count" => {
                says(&prompt[0]["text"].as_str().unwrap().len().to_string());
                self.done();
            }
            "summary" => {
                says(&"All of it is done, and nothing is left to do. ".repeat(20));
                self.done();
            }
            "ask" => ask_permission("execute"),
            "ask-read" => ask_permission("read"),
            "wait" | "stubborn" => {
                // What its tools start, in a session of its own.
                let mut tool = Command::new("setsid");
                let mut tool =
                    tool.args(["sleep", "1000"]).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
                thread::spawn(move || tool.wait());
                says("half");
            }
            "die" => {
                says("half");
                let pid = std::process::id().to_string();
                Command::new("kill").args(["-9", &pid]).status().unwrap();
                thread::sleep(Duration::from_secs(60));
            }
            "exit" => {
                says("half");
                eprintln!("no more memory");
                std::process::exit(3);
            }
            "mute" => {
                says("half");
                // A process that only closes its output, and stays.
                let mut stay = Command::new("sleep");
                stay.arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
                let error = std::os::unix::process::CommandExt::exec(&mut stay);
                panic!("{error}");
            }
            "garbage" => {
                let mut stdout = io::stdout().lock();
                let garbage: [&[u8]; 4] =
                    [b"no json at all\n", b"\xff\xfe\n", b"\n\n", b"{\"end\":{\"outcome\":\"done\"}}\n"];
                garbage.iter().for_each(|line| stdout.write_all(line).unwrap());
                stdout.write_all("x".repeat(3 << 20).as_bytes()).unwrap();
                stdout.write_all(b"\n").unwrap();
                drop(stdout);
                says("still here");
                self.done();
            }
            "flood" => loop {
                says(&"x".repeat(1000));
            },
            "look" => {
                let read = |path: &str| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
                let parent = std::os::unix::process::parent_id();
                let seen = ["environ", "cmdline"].map(|what| {
                    format!(
                        "{} {}",
                        read(&format!("/proc/self/{what}")),
                        read(&format!("/proc/{parent}/{what}"))
                    )
                });
                says(&seen.join(" ").replace('\0', " "));
                self.done();
            }
            script => {
                // `intrude FOLDER`, told by the prompt's own script.
                let folder = script.strip_prefix("intrude ").unwrap();
                ask_permission("execute");
                fs::write("direct", intrude(Path::new(folder))).unwrap();
                // Once more by a process that has left the family, its environment and its group.
                let this = env::current_exe().unwrap();
                let mut away = Command::new("setsid");
                away.env_clear().arg("-f").arg(this).args(["intrude", folder, "away"]).status().unwrap();
            }
        }
    }
}

/// Finds the control channel, and tries what can be tried.
fn intrude(folder: &Path) -> String {
    let socket = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let mut found = Vec::new();
    for request in [
        json!("questions"),
        json!({ "answer": { "question": "q1", "nonce": "0", "option": "yes" } }),
        json!("cancel"),
    ] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        drop(stream.write_all(format!("{request}\n").as_bytes()));
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        found.push(line);
    }
    found.concat()
}
