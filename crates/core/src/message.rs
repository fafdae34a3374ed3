//! Messages: a role and blocks of content.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Block;

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The person, or the tools that answer the model.
    User,
    /// The model.
    Assistant,
    /// The frame of the conversation.
    System,
}

/// A role and its content, as a list of blocks.
///
/// ```
/// use azureal_core::{Block, Message, Role};
///
/// let message = Message::new(Role::User, [Block::text("Hello")]);
/// assert_eq!(message, Message::user("Hello"));
/// assert_eq!(
///     serde_json::to_string(&message)?,
///     r#"{"role":"user","content":[{"type":"text","text":"Hello"}]}"#,
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The content; may be empty.
    #[serde(default)]
    pub content: Vec<Block>,
}

impl Message {
    /// Creates a message of these blocks.
    pub fn new(role: Role, content: impl Into<Vec<Block>>) -> Self {
        Self { role, content: content.into() }
    }

    /// Creates a user message of one text block.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, [Block::text(text)])
    }

    /// Creates an assistant message of one text block.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, [Block::text(text)])
    }

    /// Creates a system message of one text block.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, [Block::text(text)])
    }

    /// Returns the first text block.
    pub fn first_text(&self) -> Option<&str> {
        self.content.iter().find_map(Block::as_text)
    }
}

impl Role {
    /// Every role there is.
    pub const ALL: [Self; 3] = [Self::User, Self::Assistant, Self::System];

    /// Returns the heading above a message of this role in a document for people.
    pub fn heading(self) -> &'static str {
        match self {
            Self::User => "## User",
            Self::Assistant => "## Assistant",
            Self::System => "## System",
        }
    }

    /// Returns the role's name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| UnknownRole(text.to_owned()))
    }
}

/// A role that is none of [`Role::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown role `{0}`, expected user, assistant or system")]
pub struct UnknownRole(pub String);

impl Serialize for Role {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_role_is_named() {
        let error = serde_json::from_str::<Message>(r#"{"role":"tool","content":[]}"#).unwrap_err();
        assert!(error.to_string().contains("unknown role `tool`"), "{error}");
    }
}
