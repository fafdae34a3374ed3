//! A session as the messages of Anthropic's API.

use std::io::Write;

use azureal_agents::claude::api_block;
use azureal_core::{Message, SessionRecord, to_visible_json};
use serde_json::{Value, json};

use super::masking::Masking;
use super::provider::{Conversation, conversation};
use super::{ExportError, Source};
use crate::DamagedEvents;

pub(super) async fn write(
    source: &Source<'_>,
    record: &SessionRecord,
    masking: &mut Masking<'_>,
    out: &mut impl Write,
) -> Result<DamagedEvents, ExportError> {
    let (Conversation { system, messages }, damaged) = conversation(source, record, masking).await?;
    write!(out, "{{")?;
    if !system.is_empty() {
        writeln!(out, "\"system\":{},", to_visible_json(&system)?)?;
    }
    write!(out, "\"messages\":[")?;
    for (index, Message { role, content }) in messages.iter().enumerate() {
        let separator = if index == 0 { "\n" } else { ",\n" };
        let content: Vec<Value> = content.iter().map(api_block).collect();
        write!(out, "{separator}{}", to_visible_json(&json!({"role": role, "content": content}))?)?;
    }
    writeln!(out, "\n]}}")?;
    Ok(damaged)
}
