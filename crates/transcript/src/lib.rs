//! What a session looks like: one model for all that show one.
//!
//! - [`Transcript`] folds events into [`Block`]s: messages, tool calls with their state and output, notices.
//! - [`rows`] lays a block out at a width. A [`Row`] is styled text with the place in its source, for copies and searches.
//!
//! Nothing here knows a terminal: a front end maps each [`Tone`] to a colour.

mod block;
mod row;

pub use block::{Author, Block, Call, CallState, Content, Level, Text, Transcript};
pub use row::{Fold, Layout, Row, Span, Style, Tone, rows};
