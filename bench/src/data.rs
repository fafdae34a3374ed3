//! The data that `gen.py` makes, as our own messages.

use std::fs::File;
use std::io::{BufRead, BufReader};

use anyhow::{Context, Result};
use azureal_core::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::scratch;

/// Reads the first `count` turns, each a list of six messages.
pub(crate) fn turns(count: usize) -> Result<Vec<Vec<Message>>> {
    conversations("turns.jsonl", count)
}

/// Reads the first `count` messages, turn by turn; the last turn may be cut short.
pub(crate) fn turns_of_messages(count: usize) -> Result<Vec<Vec<Message>>> {
    let mut left = count;
    let mut turns = turns(count)?;
    for turn in &mut turns {
        turn.truncate(left);
        left -= turn.len();
    }
    turns.retain(|turn| !turn.is_empty());
    Ok(turns)
}

/// Reads the small sessions, each a list of four messages.
pub(crate) fn sessions() -> Result<Vec<Vec<Message>>> {
    conversations("sessions.jsonl", usize::MAX)
}

fn conversations(name: &str, count: usize) -> Result<Vec<Vec<Message>>> {
    let path = scratch::data(name)?;
    let file = File::open(&path).with_context(|| format!("{}: run gen.py first", path.display()))?;
    BufReader::new(file)
        .lines()
        .take(count)
        .map(|line| messages_of_line(&line?).with_context(|| path.display().to_string()))
        .collect()
}

fn messages_of_line(line: &str) -> Result<Vec<Message>> {
    #[derive(Deserialize)]
    struct Line {
        messages: Vec<Message>,
    }
    // Only a line with a picture takes the long way round; the others stay what they were to the byte.
    let line: Line = if line.contains(r#""source":"#) {
        let mut tree: Value = serde_json::from_str(line)?;
        flatten_images(&mut tree);
        serde_json::from_str(&tree.to_string())?
    } else {
        serde_json::from_str(line)?
    };
    Ok(line.messages)
}

/// Brings pictures from the form of Anthropic's API, which keeps their bytes in `source`, into ours.
fn flatten_images(tree: &mut Value) {
    match tree {
        Value::Object(fields) => {
            if fields.get("type") == Some(&json!("image"))
                && let Some(Value::Object(source)) = fields.remove("source")
            {
                let of_ours = |(name, _): &(String, Value)| name == "media_type" || name == "data";
                fields.extend(source.into_iter().filter(of_ours));
            }
            fields.values_mut().for_each(flatten_images);
        }
        Value::Array(items) => items.iter_mut().for_each(flatten_images),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::{Block, Image, MediaType, OutputPart, Role, ToolOutput};

    use super::*;

    #[test]
    fn pictures_become_blocks_of_ours() {
        let line = r#"{"i":0,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t",
            "content":[{"type":"text","text":"screenshot"},
            {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AQID"}}],"is_error":false}]}]}"#;
        let image = Image { media_type: MediaType::Png, data: vec![1, 2, 3] };
        let result = Block::ToolResult {
            tool_use_id: "t".into(),
            content: ToolOutput::Parts(vec![OutputPart::Text("screenshot".into()), OutputPart::Image(image)]),
            is_error: false,
        };
        assert_eq!(messages_of_line(line).unwrap(), [Message::new(Role::User, [result])]);
    }
}
