//! The terminal interface.
//!
//! `update(&mut State, Message) -> Vec<Request>` decides, `draw(&State, &mut Frame)` shows. Neither reads a clock, a file or a terminal. The
//! library performs the requests ([`azureal::desk`]).

pub mod keys;
pub mod prompt;
pub mod terminal;
pub mod theme;
