//! The JSON shapes of sessions and events, the same for every front end. Fields may be added, never removed.
//!
//! [`ExportFormat::Json`](crate::ExportFormat::Json) is one object of both:
//!
//! ```json
//! {"format":"azureal-session","version":1,"session":{…},
//!  "events":[{"seq":1,"kind":"UserMessage","data":{"content":"…"}}],
//!  "compactions":[{"after_seq":1,"summary":"…","created":"…","writer":"claude/haiku","opening_chars":1200}]}
//! ```
//!
//! [`SESSION_SCHEMA`] describes it. Kind and data reproduce the stored text of nearly every event. Where they do not, `text` holds it.

mod event;
mod session;

pub use event::{Content, EventLine, ParsedEventLine, event_text};
pub use session::SessionLine;

/// The JSON Schema of an exported session.
pub const SESSION_SCHEMA: &str = include_str!("session.schema.json");
/// The `format` of an exported session.
pub const SESSION_FORMAT: &str = "azureal-session";
/// The newest `version` of the format.
pub const SESSION_VERSION: u64 = 1;
