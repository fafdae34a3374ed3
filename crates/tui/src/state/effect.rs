//! What the loop of the terminal does besides drawing.

/// Something for the loop of the terminal: it needs the terminal or the process, not the desk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// End the interface. Turns that run are left running.
    Quit,
    /// Suspend the process, as the shell expects it.
    Suspend,
    /// Draw every cell again.
    Redraw,
    /// Tell the user, who is looking elsewhere: by BEL and OSC 9, with this text.
    Bell(String),
    /// Put this text into the clipboard of the terminal, by OSC 52.
    Copy(String),
    /// Use the mouse, or leave it to the terminal.
    Mouse(bool),
}
