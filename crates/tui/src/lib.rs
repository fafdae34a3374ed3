//! The terminal interface.
//!
//! `update(&mut State, Message) -> Vec<Request>` decides, `draw(&State, &mut Frame)` shows. Neither reads a clock, a file or a terminal. The
//! library performs the requests ([`azureal::desk`]).
//!
//! The loop of a terminal: messages that are there go to [`update`], the requests that it returns to the desk, [`State::take_effects`] to the
//! terminal. Then [`prepare`], its requests, and [`draw()`]. [`State::next_tick`] says when to come back without a message.

mod draw;
pub mod keys;
mod list;
mod message;
mod overlay;
pub mod pane;
pub mod plain;
pub mod prompt;
mod run;
mod state;
pub mod terminal;
pub mod theme;
mod update;

pub use draw::draw;
pub use message::Message;
pub use run::{Ended, Inbox, run};
pub use state::{Effect, Focus, Settings, State};
pub use update::{prepare, update};
