//! Writes a session as a transcript of Claude Code.
//!
//! Answers have the model of Claude Code's own texts: it does not change the model that the user has set, and warns of a model
//! that it does not know.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use azureal_core::Uuid;
use serde::Serialize;
use serde_json::{Value, json};

use super::NAME;
use super::api_block::{call_block, image_block, result_block, text_block};
use super::native::{LONGEST_NAME, PROJECTS, folder_name};
use super::parser::{API_ID, SYNTHETIC};
use crate::native::pieces::{CallResult, Piece, Prompt, Stamps, Step, pieces, write_line};
use crate::native::{NativeConversation, NativeWriter, Placement};

/// The writer of Claude Code's transcripts.
#[derive(Debug, Clone, Copy)]
pub struct ClaudeWriter;

impl NativeWriter for ClaudeWriter {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn session_id(&self, uuid: Uuid) -> String {
        uuid.to_string()
    }

    fn write(&self, session: &NativeConversation<'_>, out: &mut dyn Write) -> io::Result<()> {
        if let Some(title) = session.title {
            let title = json!({"type": "custom-title", "customTitle": title, "sessionId": session.id});
            write_line(out, &title)?;
        }
        let mut stamps = Stamps::of(session);
        let mut parent = None;
        for piece in pieces(session.messages) {
            let stamp = stamps.next();
            let (kind, message) = match piece {
                Piece::Prompt(prompt) => {
                    ("user", json!({"role": "user", "content": prompt_content(&prompt)}))
                }
                Piece::Results(results) => {
                    let block =
                        |result: CallResult<'_>| result_block(result.id, result.content, result.is_error);
                    let content: Value = results.into_iter().map(block).collect();
                    ("user", json!({"role": "user", "content": content}))
                }
                Piece::Answer(steps) => ("assistant", answer(stamp.id, &steps)),
            };
            let entry = Entry {
                parent_uuid: parent,
                is_sidechain: false,
                user_type: "external",
                cwd: &session.cwd.to_string_lossy(),
                session_id: session.id,
                kind,
                message,
                uuid: stamp.id.to_string(),
                timestamp: stamp.iso(),
            };
            write_line(out, &entry)?;
            parent = Some(stamp.id.to_string());
        }
        Ok(())
    }

    fn placement(&self, home: &Path, session: &NativeConversation<'_>) -> io::Result<Placement> {
        let folder = folder_name(session.cwd);
        if folder.len() >= LONGEST_NAME {
            let reason = "Claude Code shortens the name of so long a directory in a way of its own";
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, reason));
        }
        Ok(Placement::File(home.join(PROJECTS).join(folder).join(format!("{}.jsonl", session.id))))
    }

    fn resume(&self, _: &Path, id: &str) -> Vec<OsString> {
        vec!["--resume".into(), id.into()]
    }

    fn leftovers(&self, file: &Path) -> Vec<PathBuf> {
        // The transcripts of subagents, and results that are too long for the transcript.
        vec![file.with_extension("")]
    }
}

/// An entry of a transcript.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    parent_uuid: Option<String>,
    is_sidechain: bool,
    user_type: &'static str,
    cwd: &'a str,
    session_id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    message: Value,
    uuid: String,
    timestamp: String,
}

fn prompt_content(Prompt { text, pictures }: &Prompt<'_>) -> Value {
    if pictures.is_empty() {
        return json!(text);
    }
    let text = (!text.is_empty()).then(|| text_block(text));
    text.into_iter().chain(pictures.iter().map(|image| image_block(image))).collect()
}

fn answer(id: Uuid, steps: &[Step<'_>]) -> Value {
    let block = |step: &Step<'_>| match step {
        Step::Text(text) => text_block(text),
        Step::Call { id, name, input } => call_block(id, name, input),
    };
    let calls = steps.iter().any(|step| matches!(step, Step::Call { .. }));
    json!({
        "id": format!("{API_ID}{}", id.simple()),
        "type": "message",
        "role": "assistant",
        "model": SYNTHETIC,
        "content": steps.iter().map(block).collect::<Value>(),
        "stop_reason": if calls { "tool_use" } else { "end_turn" },
    })
}
