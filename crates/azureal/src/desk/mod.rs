//! The desk of an interface: performs its requests on threads of its own, and sends it news.
//!
//! An interface is a loop over a state: it names no store, starts no process and never waits. [`Request`] is all that it asks for, [`News`]
//! all that it learns.

mod news;
mod request;

pub use news::{AgentLine, News, NextAgent, Opened, SessionLine, TurnNews};
pub use request::{EditPurpose, PaneId, ReadWith, Request};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What an interface keeps for the next one, per store: nothing that was typed is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// The text of prompt boxes, by the UUID of the session; empty for a new session.
    pub drafts: BTreeMap<String, Draft>,
    /// The prompts that were sent, oldest first, over all sessions.
    pub history: Vec<String>,
    /// The session that was shown last, by its UUID.
    pub shown: Option<String>,
    /// The last event that the user has seen, by the UUID of the session.
    pub seen: BTreeMap<String, u64>,
}

/// Text that was typed in a session and is not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Draft {
    /// The text of the prompt box, with pasted text in full.
    pub text: String,
    /// Prompts that wait for the end of the turn, in order.
    pub queued: Vec<String>,
}
