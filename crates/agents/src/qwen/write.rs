//! Writes a session as Qwen Code records it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use azureal_core::Uuid;
use serde_json::{Value, json};

use super::{CHATS, NAME, PROJECTS, folder_name};
use crate::gemini::parts::{TOOLS, prompt_parts, result_parts, text_part};
use crate::native::pieces::{Piece, Stamps, Step, pieces, with_fields, write_line};
use crate::native::tools::theirs;
use crate::native::{NativeConversation, NativeWriter, Placement};

/// The writer of Qwen Code's sessions.
#[derive(Debug, Clone, Copy)]
pub struct QwenWriter;

impl NativeWriter for QwenWriter {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn session_id(&self, uuid: Uuid) -> String {
        uuid.to_string()
    }

    fn write(&self, session: &NativeConversation<'_>, out: &mut dyn Write) -> io::Result<()> {
        let mut records = Records { session, stamps: Stamps::of(session), parent: Value::Null, out };
        if let Some(title) = session.title {
            let title = json!({"customTitle": title});
            records.record(
                "system",
                json!({"subtype": "custom_title", "provenance": "system", "systemPayload": title}),
            )?;
        }
        let mut tools = HashMap::new();
        for piece in pieces(session.messages) {
            match piece {
                Piece::Prompt(prompt) => {
                    records.message("user", "user", &prompt_parts(&prompt), Value::Null)?;
                }
                Piece::Answer(steps) => {
                    let part = |step: &Step<'_>| match step {
                        Step::Text(text) => text_part(text),
                        Step::Call { id, name, input } => {
                            json!({"functionCall": {"id": id, "name": theirs(TOOLS.iter().rev(), name), "args": input}})
                        }
                    };
                    let parts: Value = steps.iter().map(part).collect();
                    tools.extend(steps.iter().filter_map(|step| match step {
                        Step::Call { id, name, .. } => Some((*id, theirs(TOOLS.iter().rev(), name))),
                        Step::Text(_) => None,
                    }));
                    records.message("assistant", "model", &parts, Value::Null)?;
                }
                Piece::Results(results) => {
                    for result in results {
                        let name = tools.get(result.id).copied().unwrap_or_default();
                        let status = if result.is_error { "error" } else { "success" };
                        let shown = json!({"callId": result.id, "status": status, "resultDisplay": result.content.text()});
                        records.message("tool_result", "user", &result_parts(name, &result), shown)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn placement(&self, home: &Path, session: &NativeConversation<'_>) -> io::Result<Placement> {
        let folder = home.join(PROJECTS).join(folder_name(session.cwd)).join(CHATS);
        Ok(Placement::File(folder.join(format!("{}.jsonl", session.id))))
    }

    fn resume(&self, _: &Path, id: &str) -> Vec<OsString> {
        vec!["-r".into(), id.into()]
    }

    fn leftovers(&self, file: &Path) -> Vec<PathBuf> {
        // The process that has the session open, or had it.
        vec![file.with_extension("runtime.json")]
    }
}

/// The records that are being written: each names the one before it.
struct Records<'a> {
    session: &'a NativeConversation<'a>,
    stamps: Stamps,
    parent: Value,
    out: &'a mut dyn Write,
}

impl Records<'_> {
    fn message(&mut self, kind: &str, role: &str, parts: &Value, result: Value) -> io::Result<()> {
        let fields = json!({"message": {"role": role, "parts": parts}});
        let fields = match result {
            Value::Null => fields,
            result => with_fields(fields, [("toolCallResult", result)]),
        };
        self.record(kind, fields)
    }

    fn record(&mut self, kind: &str, fields: Value) -> io::Result<()> {
        let stamp = self.stamps.next();
        let id = Value::from(stamp.id.to_string());
        let parent = std::mem::replace(&mut self.parent, id.clone());
        let common = [
            ("uuid", id),
            ("parentUuid", parent),
            ("sessionId", self.session.id.into()),
            ("timestamp", stamp.iso().into()),
            ("type", kind.into()),
            ("cwd", self.session.cwd.to_string_lossy().into()),
        ];
        write_line(self.out, &with_fields(fields, common))
    }
}
