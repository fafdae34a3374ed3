//! The JSON shapes of sessions and events, the same for every front end. Fields may be added, never removed.

mod event;
mod session;

pub use event::{Content, EventLine, ReadLine, event_text};
pub use session::SessionLine;
