//! What a session looks like: one model for all that show one.
//!
//! - [`Transcript`] folds events into [`Block`]s: messages, tool calls with their state and output, notices.
//! - [`rows`] lays a block out at a width. A [`Row`] is styled text with the place in its source, for copies and searches.
//!
//! - [`GrowingText`] lays out a text that is being written, and [`Highlighter`] finds the tones of code.
//! - [`ansi`] writes rows as lines for a terminal.
//!
//! Nothing here knows a terminal: a front end maps each [`Tone`] to a colour.
//!
//! ```
//! use azureal_core::{Event, Seq};
//! use azureal_transcript::{Fold, Layout, Transcript, rows};
//!
//! let mut transcript = Transcript::default();
//! transcript.push(Seq(1), &Event::user("Why?"));
//! transcript.push(Seq(2), &Event::assistant("Because **two** refreshes race."));
//! let layout = Layout { width: 24, fold: Fold::Open, is_ascii: false };
//! let shown: Vec<String> =
//!     transcript.blocks().iter().flat_map(|block| rows(block, &layout)).map(|row| row.text()).collect();
//! assert_eq!(shown, ["you", "  Why?", "agent", "  Because two refreshes", "  race."]);
//! ```
//!
//! # Cost
//!
//! Measured on two cores by `cargo run --release -p azureal-transcript --example measure`: the grammars load in 23 ms, once. Rust is coloured at
//! 0.3 MB/s, Markdown laid out at 10 MB/s. A delta of 40 bytes at the end of an answer of 36 KB takes 14 µs.

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
mod token_counts;
mod transcript;
mod wrap;

pub use block::{Author, Block, Call, CallState, Content, Level, Text};
pub use call::Places;
pub use code::{CodePart, apply_tones, code_parts};
pub use ending::ending;
pub use growing::GrowingText;
pub use highlight::Highlighter;
pub use layout::{ascii_marks, printed_rows, rows};
pub use row::{Change, Fold, Layout, Row, Span, Style, Tone};
pub use token_counts::{cost_text, short_count, tokens_in_detail};
pub use transcript::Transcript;
