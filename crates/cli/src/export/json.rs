//! A session as one JSON object, with everything that is stored of it.
//!
//! ```json
//! {"format":"azureal-session","version":1,"session":{…},
//!  "events":[{"seq":1,"kind":"UserMessage","data":{"content":"…"}}],
//!  "compactions":[{"after_seq":1,"summary":"…","created":"…","writer":"claude/haiku","opening_chars":1200}]}
//! ```
//!
//! Kind and data give the stored text of nearly every event back. Where they do not, `text` holds it.

use std::borrow::Cow;
use std::io::Write;

use azureal_core::{SessionRecord, SessionStore};
use serde::Serialize;
use serde_json::json;

use crate::damage::Damaged;
use crate::failure::Failure;
use crate::import::Identity;
use crate::output::{escaped_json, to_json};
use azureal::json::SessionLine;
use azureal::json::{Content, EventLine, event_text};
use azureal_core::{EventRange, each_page};

/// What the object calls itself.
pub(crate) const FORMAT: &str = "azureal-session";
/// The version of its shape.
pub(crate) const VERSION: u64 = 1;

#[derive(Serialize)]
struct ExportedEvent<'a> {
    #[serde(flatten)]
    line: EventLine<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

pub(super) async fn write(
    store: &dyn SessionStore,
    record: &SessionRecord,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let Identity { uuid, .. } = Identity::of(store, record).await?;
    let session = to_json(&SessionLine::exported(&SessionRecord { uuid, ..record.clone() }))?;
    write!(out, "{{\"format\":\"{FORMAT}\",\"version\":{VERSION},\n\"session\":{session},\n\"events\":[")?;
    let mut damaged = Damaged::default();
    let mut separator = "\n";
    each_page(store, record.id, EventRange::All, |page| {
        for stored in &page {
            let line = EventLine::of(stored);
            if let Some(why) = line.damage() {
                damaged.note(stored, why);
            }
            let text = stored.json.as_deref().ok().filter(|text| !says_all(&line, text));
            let event = to_json(&ExportedEvent { line, text })?;
            write!(out, "{separator}{event}")?;
            separator = ",\n";
        }
        Ok::<(), Failure>(())
    })
    .await?;
    damaged.report(record.id);
    let compactions: Vec<_> = store
        .compactions(record.id)
        .await?
        .into_iter()
        .map(|compaction| {
            json!({
                "after_seq": compaction.after_seq.0,
                "summary": compaction.summary,
                "created": compaction.created_at,
                "writer": compaction.writer,
                "opening_chars": compaction.opening_chars,
            })
        })
        .collect();
    writeln!(out, "\n],\n\"compactions\":{}}}", to_json(&compactions)?)?;
    Ok(())
}

/// Says whether the stored text can be had back from kind and data, once both have been written and read.
fn says_all(line: &EventLine<'_>, text: &str) -> bool {
    match &line.content {
        Content::Error(_) => true,
        Content::Data(data) => {
            let data = data.filter(|data| data.get() != "null");
            // What is escaped on the way out comes back escaped.
            let stays = matches!(escaped_json(text), Cow::Borrowed(_));
            stays && text == event_text(line.kind, data)
        }
    }
}
