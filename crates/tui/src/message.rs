//! Messages to the interface.

use azureal::desk::News;
use crossterm::event::{KeyEvent, MouseEvent};

use crate::theme::Background;

/// A message to the interface: input of the terminal, news of the desk, or the time.
#[derive(Debug)]
pub enum Message {
    /// A key.
    Key(KeyEvent),
    /// A text that was pasted.
    Paste(String),
    /// A wheel or a click.
    Mouse(MouseEvent),
    /// The size of the terminal: columns and rows.
    Resize(u16, u16),
    /// Whether the terminal has the focus.
    Focus(bool),
    /// The background of the terminal.
    Background(Background),
    /// News of the desk.
    News(News),
    /// The time that [`State::next_tick`](crate::State::next_tick) named has come.
    Tick,
}
