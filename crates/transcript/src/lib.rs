//! What a session looks like: one model for all that show one.
//!
//! - [`Transcript`] folds events into [`Block`]s: messages, tool calls with their state and output, notices.
//! - [`rows`] lays a block out at a width. A [`Row`] is styled text with the place in its source, for copies and searches.
//!
//! Nothing here knows a terminal: a front end maps each [`Tone`] to a colour.

pub mod ansi;
mod block;
mod call;
mod call_rows;
mod code;
mod diff;
mod ending;
mod growing;
mod highlight;
mod layout;
mod markdown;
mod row;
mod transcript;
mod wrap;

pub use block::{Author, Block, Call, CallState, Content, Level, Text};
pub use call::Places;
pub use code::{CodePart, apply_tones, code_parts};
pub use ending::{ending, short_count};
pub use growing::GrowingText;
pub use highlight::Highlighter;
pub use layout::{printed_rows, rows};
pub use row::{Change, Fold, Layout, Row, Span, Style, Tone};
pub use transcript::Transcript;
