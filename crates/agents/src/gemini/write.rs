//! Writes a session as Gemini CLI records it.
//!
//! A call and its result are in one record. Gemini CLI also records the results as a message of their own, but gives the model
//! both when it resumes a session.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use azureal_core::{ToolOutput, Uuid};
use serde_json::{Value, json};

use super::index::Metadata;
use super::parts::{TOOLS, prompt_parts, result_parts};
use super::{CHATS, NAME, PROJECTS, ROOT, directories, root_of, session_name};
use crate::native::files::{FileListing, folders};
use crate::native::lines::beginning;
use crate::native::pieces::{
    CallResult, Piece, Stamp, Stamps, Step, iso, pieces, results_by_call, with_fields, write_line,
};
use crate::native::tools::theirs;
use crate::native::{BEGINNING, NativeConversation, NativeWriter, Placement};
use crate::wire::Fields;

/// The writer of Gemini CLI's sessions.
#[derive(Debug, Clone, Copy)]
pub struct GeminiWriter;

/// The number of folders that are tried for a project without one.
const MOST_FOLDERS: usize = 1_000;

impl NativeWriter for GeminiWriter {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn session_id(&self, uuid: Uuid) -> String {
        uuid.to_string()
    }

    fn write(&self, session: &NativeConversation<'_>, out: &mut dyn Write) -> io::Result<()> {
        let header = json!({
            "sessionId": session.id,
            // Gemini CLI writes a hash of the directory, and reads nothing from it.
            "projectHash": "azureal",
            "startTime": iso(session.started),
            "lastUpdated": iso(session.updated),
            "kind": "main",
        });
        let header = match session.title {
            Some(title) => with_fields(header, [("summary", title.into())]),
            None => header,
        };
        write_line(out, &header)?;
        let results = results_by_call(session.messages);
        let mut stamps = Stamps::of(session);
        for piece in pieces(session.messages) {
            match piece {
                Piece::Prompt(prompt) => {
                    write_line(out, &record(&stamps.next(), "user", &prompt_parts(&prompt)))?;
                }
                Piece::Answer(steps) => {
                    for part in steps.chunk_by(|_, next| matches!(next, Step::Call { .. })) {
                        write_line(out, &answer(&stamps.next(), part, &results))?;
                    }
                }
                // They are in the record of the answer.
                Piece::Results(_) => {}
            }
        }
        Ok(())
    }

    fn placement(&self, home: &Path, session: &NativeConversation<'_>) -> io::Result<Placement> {
        let name = session.id.get(..8).unwrap_or(session.id);
        // A run of Gemini CLI that resumes this session leaves an empty file `session-<minute>-<id8>.jsonl`. The next run takes that for
        // damaged, and deletes it with every file that ends with the same id. What has the id in its name belongs to the current session.
        let name = format!("session-{}-{name}-azureal.jsonl", session.started.as_millisecond());
        Ok(Placement::File(folder(home, session.cwd)?.join(CHATS).join(name)))
    }

    fn companions(&self, file: &Path, session: &NativeConversation<'_>) -> Vec<(PathBuf, Vec<u8>)> {
        let folder = file.parent().and_then(Path::parent);
        let root = folder.map(|folder| folder.join(ROOT));
        root.map(|root| (root, session.cwd.to_string_lossy().into_owned().into_bytes())).into_iter().collect()
    }

    fn resume(&self, _: &Path, id: &str) -> Vec<OsString> {
        vec!["-r".into(), id.into()]
    }

    fn leftovers(&self, file: &Path) -> Vec<PathBuf> {
        // Every start of Gemini CLI creates a file for the session, which stays empty if it resumes another file.
        let (Some(folder), Some(id)) = (file.parent(), header_id(file)) else { return Vec::new() };
        let files = FileListing::of(folder, 0, session_name).filter_map(Result::ok).map(|found| found.path);
        files.filter(|path| path != file && header_id(path).as_ref() == Some(&id)).collect()
    }
}

/// Returns the id of a session from its header.
fn header_id(file: &Path) -> Option<String> {
    let beginning = beginning(file, BEGINNING).ok()?;
    let line = beginning.split(|byte| *byte == b'\n').next()?;
    let metadata = Fields::of(str::from_utf8(line).ok()?)?.read::<Metadata>()?;
    Some(metadata.session_id).filter(|id| !id.is_empty())
}

/// Returns the folder of a project: the one that it has, or a new one, which Gemini CLI takes by the file in it that names the
/// directory.
fn folder(home: &Path, cwd: &Path) -> io::Result<PathBuf> {
    let projects = home.join(PROJECTS);
    let listed = directories(home).into_iter().find(|(_, directory)| directory == cwd);
    if let Some((name, _)) = listed.filter(|(name, _)| !name.is_empty() && !name.contains(['/', '\\'])) {
        return Ok(projects.join(name));
    }
    if let Some(found) =
        folders(&projects).into_iter().flatten().find(|folder| root_of(folder).as_deref() == Some(cwd))
    {
        return Ok(found);
    }
    let name = cwd.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = name.chars().map(plain).collect();
    let name = Some(name.trim_matches('-')).filter(|name| !name.is_empty()).unwrap_or("project");
    let numbered = (0..MOST_FOLDERS).map(|number| match number {
        0 => projects.join(name),
        number => projects.join(format!("{name}-{number}")),
    });
    let mut free = numbered.filter(|folder| folder.symlink_metadata().is_err());
    free.next().ok_or_else(|| io::Error::other(format!("all names for a folder of {name} are taken")))
}

fn record(stamp: &Stamp, kind: &str, content: &Value) -> Value {
    json!({"id": stamp.id.to_string(), "timestamp": stamp.iso(), "type": kind, "content": content})
}

/// Returns the record of a part of an answer: at most one text, then calls.
fn answer(stamp: &Stamp, steps: &[Step<'_>], results: &HashMap<&str, CallResult<'_>>) -> Value {
    let text = steps.iter().find_map(|step| match step {
        Step::Text(text) => Some(text.as_ref()),
        Step::Call { .. } => None,
    });
    let record = record(stamp, "gemini", &json!(text.unwrap_or_default()));
    let call = |step: &Step<'_>| match step {
        Step::Text(_) => None,
        Step::Call { id, name, input } => {
            let (name, result) = (theirs(TOOLS, name), results.get(id));
            Some(json!({
                "id": id,
                "name": name,
                "args": input,
                "result": result.map(|result| result_parts(name, result)),
                "status": if result.is_none_or(|result| result.is_error) { "error" } else { "success" },
                "timestamp": stamp.iso(),
                "resultDisplay": result.map(|result| ToolOutput::text(result.content)),
            }))
        }
    };
    let calls: Vec<Value> = steps.iter().filter_map(call).collect();
    match calls.is_empty() {
        true => record,
        false => with_fields(record, [("toolCalls", calls.into())]),
    }
}
