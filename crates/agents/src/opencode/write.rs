//! Writes a session as `opencode export` does, for `opencode import`.
//!
//! The messages name no model. So the interface of opencode uses the model that the user has set, and `opencode run` has to be
//! given one with `-m`.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use azureal_core::{Image, Uuid, to_visible_json};
use serde_json::{Value, json};

use super::{NAME, TOOLS};
use crate::native::pieces::{
    CallResult, Piece, Prompt, Stamps, Step, exit_code, iso, pictures, pieces, results_by_call, with_fields,
};
use crate::native::tools::translate_back;
use crate::native::{NativeConversation, NativeWriter, Placement};

/// The writer of opencode's exports.
#[derive(Debug, Clone, Copy)]
pub struct OpencodeWriter;

/// The agent of opencode that new sessions begin with.
const AGENT: &str = "build";

impl NativeWriter for OpencodeWriter {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn session_id(&self, uuid: Uuid) -> String {
        format!("ses_{}", uuid.simple())
    }

    fn write(&self, session: &NativeConversation<'_>, out: &mut dyn Write) -> io::Result<()> {
        let began = session.started.as_millisecond();
        let title =
            session.title.map_or_else(|| format!("New session - {}", iso(session.started)), str::to_owned);
        let info = json!({
            "id": session.id,
            "slug": session.id,
            "projectID": "global",
            "directory": session.cwd.to_string_lossy(),
            "title": title,
            "version": env!("CARGO_PKG_VERSION"),
            "time": {"created": began, "updated": session.updated.as_millisecond()},
        });
        // One message at a time: the document may be large.
        write!(out, "{{\"info\":{},\"messages\":[", to_visible_json(&info)?)?;
        let mut export = Export {
            session,
            results: results_by_call(session.messages),
            stamps: Stamps::of(session),
            parts: 0,
            prompt: String::new(),
            messages: 0,
            out,
        };
        for piece in pieces(session.messages) {
            match piece {
                Piece::Prompt(prompt) => export.prompt(&prompt)?,
                Piece::Answer(steps) => export.answer(&steps)?,
                // They are in the parts of the answer.
                Piece::Results(_) => {}
            }
        }
        writeln!(export.out, "]}}")
    }

    fn wrote(&self, session: &str, turn: &str) -> bool {
        let numbered = turn.strip_prefix("msg_").and_then(|id| id.get(12..));
        numbered.is_some() && numbered == session.strip_prefix("ses_")
    }

    fn placement(&self, _: &Path, _: &NativeConversation<'_>) -> io::Result<Placement> {
        Ok(Placement::Import(vec!["import".into()]))
    }

    fn resume(&self, _: &Path, id: &str) -> Vec<OsString> {
        vec!["-s".into(), id.into()]
    }

    fn delete(&self, id: &str) -> Vec<String> {
        ["session", "delete", id].map(str::to_owned).to_vec()
    }
}

/// The messages of an export that is being written.
struct Export<'a> {
    session: &'a NativeConversation<'a>,
    results: HashMap<&'a str, CallResult<'a>>,
    stamps: Stamps,
    /// The number of parts.
    parts: usize,
    /// The id of the last prompt, which answers name.
    prompt: String,
    /// The number of messages.
    messages: usize,
    out: &'a mut dyn Write,
}

impl Export<'_> {
    /// Returns an id. Ids are unique in the whole database, and those of later messages are greater, as opencode requires it.
    fn id(&self, kind: &str, number: usize) -> String {
        format!("{kind}_{number:012x}{}", self.session.id.trim_start_matches("ses_"))
    }

    /// Begins a message, and returns its id and its time.
    fn begin(&mut self) -> (String, i64) {
        self.messages += 1;
        (self.id("msg", self.messages), self.stamps.next().time.as_millisecond())
    }

    /// Writes a message, the last one that began.
    fn message(&mut self, info: &Value, parts: &[Value]) -> io::Result<()> {
        let separator = if self.messages > 1 { "," } else { "" };
        write!(self.out, "{separator}{}", to_visible_json(&json!({"info": info, "parts": parts}))?)
    }

    fn part(&mut self, message: &str, part: Value) -> Value {
        self.parts += 1;
        let id = self.id("prt", self.parts);
        with_fields(
            part,
            [("id", id.into()), ("sessionID", self.session.id.into()), ("messageID", message.into())],
        )
    }

    fn prompt(&mut self, Prompt { text, pictures }: &Prompt<'_>) -> io::Result<()> {
        let (id, time) = self.begin();
        let mut parts = vec![self.part(&id, json!({"type": "text", "text": text}))];
        parts.extend(pictures.iter().map(|image| self.part(&id, file(image))));
        let info = json!({
            "id": id,
            "sessionID": self.session.id,
            "role": "user",
            "time": {"created": time},
            "agent": AGENT,
            "model": {"providerID": "", "modelID": ""},
        });
        self.prompt = id;
        self.message(&info, &parts)
    }

    fn answer(&mut self, steps: &[Step<'_>]) -> io::Result<()> {
        let (id, time) = self.begin();
        let parts: Vec<Value> = steps.iter().map(|step| self.step(&id, time, step)).collect();
        let calls = steps.iter().any(|step| matches!(step, Step::Call { .. }));
        let cwd = self.session.cwd.to_string_lossy();
        let info = json!({
            "id": id,
            "sessionID": self.session.id,
            "parentID": self.prompt,
            "role": "assistant",
            "time": {"created": time, "completed": time},
            "agent": AGENT,
            "mode": AGENT,
            "modelID": "",
            "providerID": "",
            "path": {"cwd": cwd, "root": cwd},
            "cost": 0,
            "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
            "finish": if calls { "tool-calls" } else { "stop" },
        });
        self.message(&info, &parts)
    }

    fn step(&mut self, message: &str, time: i64, step: &Step<'_>) -> Value {
        match step {
            Step::Text(text) => self
                .part(message, json!({"type": "text", "text": text, "time": {"start": time, "end": time}})),
            Step::Call { id, name, input } => {
                let (tool, input) = translate_back(TOOLS, name, input);
                let state = json!({"input": input, "time": {"start": time, "end": time}});
                let result = self.results.get(id).copied();
                let text = result.map(|result| result.content.text()).unwrap_or_default();
                let has_failed = result.is_none_or(|result| result.is_error);
                let exit = exit_code(&text).filter(|_| has_failed && tool == "bash");
                let state = if has_failed && exit.is_none() {
                    with_fields(state, [("status", "error".into()), ("error", text.into())])
                } else {
                    let (code, output) = exit.unwrap_or((0, &text));
                    let metadata = if tool == "bash" { json!({"exit": code}) } else { json!({}) };
                    let fields =
                        [("status", "completed".into()), ("output", output.into()), ("title", "".into())];
                    let state = with_fields(with_fields(state, fields), [("metadata", metadata)]);
                    let images = result.into_iter().flat_map(|result| pictures(result.content));
                    let attachments: Vec<Value> =
                        images.map(|image| self.part(message, file(image))).collect();
                    match attachments.is_empty() {
                        true => state,
                        false => with_fields(state, [("attachments", attachments.into())]),
                    }
                };
                self.part(message, json!({"type": "tool", "tool": tool, "callID": id, "state": state}))
            }
        }
    }
}

fn file(image: &Image) -> Value {
    json!({"type": "file", "mime": image.media_type.as_str(), "url": image.data_url()})
}
