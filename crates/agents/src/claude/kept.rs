//! The files in which Claude Code keeps outputs that are too large for its transcript: `<session>/tool-results/<id>.txt` beside
//! `<session>.jsonl`.
//!
//! Stream and transcript name such a file by its path: in the program's own form of the result (`persistedOutputPath`), or in the
//! text for the model (`<persisted-output>`). Only the last part of it counts.

use std::path::Path;

use azureal_core::agent::{KeptOutput, KeptOutputs};
use serde::Deserialize;

use super::native::session_id;
use super::wire::{Block, WireTurn};
use crate::wire::{Fields, elements, lenient, output_text, read};

/// The outputs that are kept beside a transcript.
pub(super) const KEPT_OUTPUTS: KeptOutputs = KeptOutputs { folder, named };

/// The folder of a session's outputs, in the folder of its name.
const FOLDER: &str = "tool-results";
/// The beginning of a text for the model in the place of an output.
const TAG: &str = "<persisted-output>";
/// The words before the path, in that text.
const SAVED_TO: &str = "saved to: ";
/// The field of the program's own form.
const FIELD: &str = "persistedOutputPath";

/// The program's own form of a result.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnResult {
    /// The result of a command has it.
    #[serde(default, deserialize_with = "lenient")]
    stdout: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    persisted_output_path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LineTurn {
    /// The prompt that a line of a transcript belongs to.
    #[serde(default, deserialize_with = "lenient")]
    prompt_id: String,
}

fn folder(transcript: &str) -> Option<Vec<String>> {
    let session = session_id(transcript).filter(|session| !session.starts_with('.'))?;
    Some(vec![session.to_owned(), FOLDER.to_owned()])
}

fn named(line: &[u8]) -> Vec<KeptOutput> {
    let text = String::from_utf8_lossy(line);
    if !text.contains(FIELD) && !text.contains(TAG) {
        return Vec::new();
    }
    let Some(fields) = Fields::of(&text) else { return Vec::new() };
    let turn = fields.read::<LineTurn>().map(|line| line.prompt_id).unwrap_or_default();
    let Some(line) = fields.read::<WireTurn<'_>>() else { return Vec::new() };
    let own = line.tool_use_result.and_then(read::<OwnResult>);
    let blocks = line.message.0.and_then(|message| message.content).and_then(elements).unwrap_or_default();
    let results: Vec<Block<'_>> = blocks
        .into_iter()
        .filter_map(read::<Block<'_>>)
        .filter(|block| !block.tool_use_id.is_empty())
        .collect();
    let is_single = results.len() == 1;
    let output = |block: Block<'_>| {
        let path = match &own {
            // It belongs to the one result of its line.
            Some(own) if is_single && !own.persisted_output_path.is_empty() => {
                own.persisted_output_path.clone()
            }
            // A command can print the tag itself.
            Some(OwnResult { stdout: Some(_), .. }) => return None,
            _ => path_in(&block.content.map(output_text)?)?.to_owned(),
        };
        Some(KeptOutput { file: file_name(&path)?, tool_use_id: block.tool_use_id, turn: turn.clone() })
    };
    results.into_iter().filter_map(output).collect()
}

/// Returns the path in a text for the model.
fn path_in(text: &str) -> Option<&str> {
    let line = text.strip_prefix(TAG)?.trim_start().lines().next()?;
    Some(line.split_once(SAVED_TO)?.1.trim_end())
}

/// Returns the last part of a path, if it is the name of an output.
fn file_name(path: &str) -> Option<String> {
    let name = Path::new(path).file_name()?.to_str()?;
    let (stem, ending) = name.rsplit_once('.')?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_output = ["txt", "json"].contains(&ending) && !stem.is_empty() && stem.chars().all(is_plain);
    is_output.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(content: &str, own: &Value) -> Vec<(String, String)> {
        let result = json!({"type": "tool_result", "tool_use_id": "call", "content": content});
        let line = json!({"type": "user", "message": {"content": [result]}, "tool_use_result": own});
        named(line.to_string().as_bytes()).into_iter().map(|kept| (kept.tool_use_id, kept.file)).collect()
    }

    fn saved(path: &str) -> String {
        format!(
            "<persisted-output>\nOutput too large (340.7KB). Full output saved to: {path}\n\nPreview (first 2KB):\n1"
        )
    }

    #[test]
    fn an_output_is_named_by_the_last_part_of_its_path() {
        let named = [("call".to_owned(), "b1.txt".to_owned())];
        let own =
            json!({"stdout": "1", "persistedOutputPath": "/h/.claude/projects/p/s/tool-results/b1.txt"});
        assert_eq!(line("1", &own), named);
        assert_eq!(
            line(&saved("/h/s/tool-results/b1.txt"), &Value::Null),
            named,
            "of another tool than Bash"
        );
        assert_eq!(
            line(&saved("/h/s/tool-results/b1.txt"), &json!({"stdout": "1"})),
            [],
            "a command printed it"
        );
        assert_eq!(line("1\n<persisted-output>", &Value::Null), []);
        for path in ["/h/.claude/.credentials.json", "/etc/passwd", "/h/s/..", "", "/h/a b.txt", "/h/.txt"] {
            assert_eq!(line("1", &json!({"stdout": "1", "persistedOutputPath": path})), [], "{path}");
        }
    }

    #[test]
    fn a_transcript_says_the_turn_of_an_output() {
        let result = json!({"type": "tool_result", "tool_use_id": "call", "content": "1"});
        let own = json!({"persistedOutputPath": "/x/b1.txt"});
        let line =
            json!({"type": "user", "promptId": "p", "message": {"content": [result]}, "toolUseResult": own});
        assert_eq!(named(line.to_string().as_bytes())[0].turn, "p");
    }

    #[test]
    fn the_folder_follows_from_the_name_of_the_transcript() {
        assert_eq!(folder("s1.jsonl"), Some(vec!["s1".to_owned(), FOLDER.to_owned()]));
        assert_eq!(folder("s1.jsonl.zst"), Some(vec!["s1".to_owned(), FOLDER.to_owned()]));
        assert_eq!((folder("agent-x.jsonl"), folder("..jsonl"), folder("notes.txt")), (None, None, None));
    }
}
