//! The scripts that the server runs: each is one change of the store, whole or not at all.
//!
//! A server runs one script at a time, so there are no locks. It remembers the scripts that it has been sent; one that
//! was restarted has forgotten them, and is sent them again.

use std::fmt;
use std::sync::LazyLock;

use redis::{Cmd, Script, ToRedisArgs};

/// Makes a script of files: what it begins with, and itself.
macro_rules! scripts {
    ($($name:ident: $($file:literal)*;)*) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!($(include_str!(concat!("scripts/", $file, ".lua"))),*))
        });)*
    };
}

scripts! {
    CREATE: "keys" "once" "index" "make" "create";
    CREATE_WITH: "keys" "once" "index" "make" "sums" "turn" "cover" "create_with";
    FIND_OR_CREATE: "keys" "once" "index" "make" "named" "find_or_create";
    FIND: "keys" "index" "named" "find";
    RENAME: "keys" "once" "index" "rename";
    DELETE: "keys" "once" "index" "delete";
    APPEND: "keys" "once" "index" "sums" "turn" "append";
    CLEAR: "keys" "once" "clear";
    FORK: "keys" "once" "index" "make" "cover" "fork";
    SET_TOKENS: "keys" "once" "set_tokens";
    ADD_TOKENS: "keys" "once" "sums" "add_tokens";
    COMPACTIONS: "keys" "compactions";
    ADD_COMPACTION: "keys" "once" "cover" "add_compaction";
    REMOVE_COMPACTION: "keys" "once" "cover" "remove_compaction";
    MARK: "keys" "mark";
    REMOVE_MARK: "keys" "once" "remove_mark";
    NOTE_RUN: "keys" "once" "note_run";
}

/// A script with its keys and values. It may be run more than once.
pub(super) struct Call {
    pub(super) script: &'static Script,
    pub(super) command: Cmd,
    /// How much is sent, in bytes, without what is small.
    pub(super) size: usize,
}

impl Call {
    pub(super) fn new(script: &'static Script, keys: &[String]) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.get_hash()).arg(keys.len()).arg(keys);
        Self { script, command, size: 0 }
    }

    /// Adds a value, in the order in which the script takes them.
    pub(super) fn with(mut self, value: impl ToRedisArgs) -> Self {
        self.command.arg(value);
        self
    }

    /// Adds a text that may be large.
    pub(super) fn with_text(mut self, text: &str) -> Self {
        self.size += text.len();
        self.with(text)
    }

    /// Adds a value that may be missing: nothing is empty, and anything else stands behind a sign.
    pub(super) fn with_optional(self, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(format!("+{value}")),
            None => self.with(""),
        }
    }
}
