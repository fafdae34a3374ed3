//! A session as one JSON object, with all that is stored of it. [`crate::json`] describes its shape.

use std::borrow::Cow;
use std::io::Write;

use azureal_core::{EventRange, SessionRecord, each_page, to_visible_json, visible_json};
use serde::Serialize;
use serde_json::json;

use super::masking::Masking;
use super::{ExportError, Source};
use crate::DamagedEvents;
use crate::identity::SessionIdentity;
use crate::json::{Content, EventLine, SESSION_FORMAT, SESSION_VERSION, SessionLine, event_text};

#[derive(Serialize)]
struct ExportedEvent<'a> {
    #[serde(flatten)]
    line: EventLine<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

pub(super) async fn write(
    source: &Source<'_>,
    record: &SessionRecord,
    masking: &mut Masking<'_>,
    out: &mut impl Write,
) -> Result<DamagedEvents, ExportError> {
    let SessionIdentity { uuid, .. } = SessionIdentity::of(source.store, record).await?;
    let session = to_visible_json(&SessionLine::<()>::exported(&SessionRecord { uuid, ..record.clone() }))?;
    write!(
        out,
        "{{\"format\":\"{SESSION_FORMAT}\",\"version\":{SESSION_VERSION},\n\"session\":{session},\n\"events\":["
    )?;
    let mut damaged = DamagedEvents::default();
    let mut separator = "\n";
    each_page(source, record.id, EventRange::All, |page| {
        for stored in &page {
            let stored = &*masking.event(stored);
            let mut line = EventLine::of(stored);
            let mut text = stored.json.as_deref().ok().filter(|text| !is_reproducible(&line, text));
            if let Err(why) = stored.event() {
                let why = why.to_string();
                damaged.add(stored, &why);
                // JSON, but not with the fields of its kind. An import takes the text.
                if line.damage().is_none() {
                    text = stored.json.as_deref().ok();
                    line.content = Content::Error(why);
                }
            }
            let event = to_visible_json(&ExportedEvent { line, text })?;
            write!(out, "{separator}{event}")?;
            separator = ",\n";
        }
        Ok::<(), ExportError>(())
    })
    .await?;
    let compactions: Vec<_> = source
        .store
        .compactions(record.id)
        .await?
        .into_iter()
        .map(|compaction| {
            json!({
                "after_seq": compaction.after_seq.0,
                "summary": masking.text(&compaction.summary),
                "created": compaction.created_at,
                "writer": compaction.writer.as_deref().map(|writer| masking.name(writer)),
                "opening_chars": compaction.opening_chars,
            })
        })
        .collect();
    writeln!(out, "\n],\n\"compactions\":{}}}", to_visible_json(&compactions)?)?;
    Ok(damaged)
}

/// Says whether an import can reproduce the stored text from the exported kind and data.
fn is_reproducible(line: &EventLine<'_>, text: &str) -> bool {
    match &line.content {
        Content::Error(_) => true,
        Content::Data(data) => {
            let data = data.filter(|data| data.get() != "null");
            // An escaped character stays escaped when it is read.
            let has_no_escapes = matches!(visible_json(text), Cow::Borrowed(_));
            has_no_escapes && text == event_text(line.kind, data)
        }
    }
}
