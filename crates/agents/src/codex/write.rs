//! Writes a session as a rollout of Codex.
//!
//! A rollout has everything twice: as the items that the model receives, and as the events that the interface shows.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use azureal_core::{Image, Json, OutputPart, ToolOutput, Uuid};
use serde::Serialize;
use serde_json::{Value, json};

use super::NAME;
use super::native::SESSIONS;
use super::provider;
use crate::native::pieces::{CallResult, Piece, Prompt, Stamps, Step, exit_code, iso, pieces, write_line};
use crate::native::{NativeConversation, NativeWriter, Placement};

/// The writer of Codex's rollouts.
#[derive(Debug, Clone, Copy)]
pub struct CodexWriter;

/// The provider without a configuration.
const OPENAI: &str = "openai";
/// The socket of the server that runs turns in the background.
const SERVER: &str = "app-server-control/app-server-control.sock";

impl NativeWriter for CodexWriter {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn session_id(&self, uuid: Uuid) -> String {
        uuid.to_string()
    }

    fn write(&self, session: &NativeConversation<'_>, out: &mut dyn Write) -> io::Result<()> {
        let mut rollout = Rollout { out, stamps: Stamps::of(session), turn: None, commands: HashSet::new() };
        let meta = json!({
            "id": session.id,
            "timestamp": iso(session.started),
            "cwd": session.cwd.to_string_lossy(),
            "originator": "azureal",
            "cli_version": env!("CARGO_PKG_VERSION"),
            // Codex's list leaves out sessions of runs without its interface.
            "source": "cli",
            // Its interface refuses a session of another provider than the configured one.
            "model_provider": session.settings.and_then(provider::named).unwrap_or_else(|| OPENAI.to_owned()),
        });
        rollout.line("session_meta", &meta)?;
        for piece in pieces(session.messages) {
            match piece {
                Piece::Prompt(prompt) => rollout.prompt(&prompt)?,
                Piece::Answer(steps) => {
                    for step in &steps {
                        rollout.step(step)?;
                    }
                }
                Piece::Results(results) => {
                    for result in &results {
                        rollout.result(result)?;
                    }
                }
            }
        }
        rollout.end_turn()
    }

    fn placement(&self, home: &Path, session: &NativeConversation<'_>) -> io::Result<Placement> {
        // Codex names days in local time, and finds a rollout of any day.
        let name = session.started.strftime("%Y/%m/%d/rollout-%Y-%m-%dT%H-%M-%S-");
        Ok(Placement::File(home.join(SESSIONS).join(format!("{name}{}.jsonl", session.id))))
    }

    fn resume(&self, home: &Path, id: &str) -> Vec<OsString> {
        // Without a server in the background, the turns end with the interface. If one runs, Codex would ask about the difference.
        let alone: &[&str] =
            if self.may_outlive_interface(home) { &[] } else { &["-c", "features.daemon_auto_start=false"] };
        ["resume"].iter().chain(alone).chain([&id]).map(OsString::from).collect()
    }

    fn delete(&self, id: &str) -> Vec<String> {
        ["delete", "--force", id].map(str::to_owned).to_vec()
    }

    fn may_outlive_interface(&self, home: &Path) -> bool {
        UnixStream::connect(home.join(SERVER)).is_ok()
    }
}

/// A rollout that is being written.
struct Rollout<'a> {
    out: &'a mut dyn Write,
    stamps: Stamps,
    /// The id of the turn that has begun.
    turn: Option<String>,
    /// The ids of the calls that are commands.
    commands: HashSet<&'a str>,
}

#[derive(Serialize)]
struct Line<'a> {
    timestamp: String,
    #[serde(rename = "type")]
    kind: &'a str,
    payload: &'a Value,
}

impl<'a> Rollout<'a> {
    fn line(&mut self, kind: &str, payload: &Value) -> io::Result<()> {
        let timestamp = self.stamps.next().iso();
        write_line(self.out, &Line { timestamp, kind, payload })
    }

    fn event(&mut self, payload: &Value) -> io::Result<()> {
        self.line("event_msg", payload)
    }

    fn item(&mut self, payload: &Value) -> io::Result<()> {
        self.line("response_item", payload)
    }

    fn prompt(&mut self, Prompt { text, pictures }: &Prompt<'_>) -> io::Result<()> {
        self.end_turn()?;
        let turn = self.stamps.next().id.to_string();
        self.event(&json!({"type": "task_started", "turn_id": turn, "model_context_window": null}))?;
        self.turn = Some(turn);
        let text_part = (!text.is_empty()).then(|| text_part(text));
        let content: Value =
            text_part.into_iter().chain(pictures.iter().map(|image| image_part(image))).collect();
        self.item(&json!({"type": "message", "role": "user", "content": content}))?;
        self.event(&json!({"type": "user_message", "message": text, "images": []}))
    }

    /// Ends the turn that has begun.
    fn end_turn(&mut self) -> io::Result<()> {
        match self.turn.take() {
            Some(turn) => {
                self.event(&json!({"type": "task_complete", "turn_id": turn, "last_agent_message": null}))
            }
            None => Ok(()),
        }
    }

    fn step(&mut self, step: &Step<'a>) -> io::Result<()> {
        match step {
            Step::Text(text) => {
                self.event(&json!({"type": "agent_message", "message": text}))?;
                let content = json!([{"type": "output_text", "text": text}]);
                self.item(&json!({"type": "message", "role": "assistant", "content": content}))
            }
            Step::Call { id, name, input } => {
                let command = input.string_field("command").filter(|_| *name == "Bash");
                let (name, arguments) = match command {
                    Some(command) => {
                        self.commands.insert(id);
                        ("exec_command", Json::from_fields([("cmd", Value::from(command))]))
                    }
                    None => (*name, (*input).clone()),
                };
                let arguments = arguments.as_str();
                self.item(
                    &json!({"type": "function_call", "name": name, "arguments": arguments, "call_id": id}),
                )
            }
        }
    }

    fn result(&mut self, result: &CallResult<'a>) -> io::Result<()> {
        let is_command = self.commands.contains(result.id);
        let output = match result.content {
            ToolOutput::Text(text) => json!(report(text, result.is_error, is_command)),
            ToolOutput::Parts(parts) => parts
                .iter()
                .map(|part| match part {
                    OutputPart::Text(text) => text_part(&report(text, result.is_error, is_command)),
                    OutputPart::Image(image) => image_part(image),
                })
                .collect(),
        };
        self.item(&json!({"type": "function_call_output", "call_id": result.id, "output": output}))
    }
}

/// Returns the result of a call as the model reads it: a rollout has no field for a failure.
fn report(text: &str, is_error: bool, is_command: bool) -> String {
    match (exit_code(text), is_command) {
        (Some((code, output)), true) if is_error => {
            format!("Wall time: 0.0000 seconds\nProcess exited with code {code}\nOutput:\n{output}")
        }
        (_, true) if !is_error => {
            format!("Wall time: 0.0000 seconds\nProcess exited with code 0\nOutput:\n{text}")
        }
        // Codex writes the reason for which a command did not run as it is.
        (_, true) => text.to_owned(),
        _ if is_error => format!("Error: {text}"),
        _ => text.to_owned(),
    }
}

fn text_part(text: &str) -> Value {
    json!({"type": "input_text", "text": text})
}

fn image_part(image: &Image) -> Value {
    match image.is_picture() {
        true => json!({"type": "input_image", "image_url": image.data_url()}),
        false => text_part(&image.note()),
    }
}
