//! The scripts that the server runs: each is one change of the store, whole or not at all.
//!
//! A server runs one script at a time, so there are no locks. It remembers the scripts that it has been sent; one that
//! was restarted has forgotten them, and is sent them again.

use std::fmt;
use std::sync::LazyLock;

use azureal_core::Uuid;
use redis::{Cmd, Pipeline, Script, ToRedisArgs};

/// Builds a script from files: a prelude, and the script itself.
macro_rules! scripts {
    ($($name:ident: $($file:literal)*;)*) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!($(include_str!(concat!("scripts/", $file, ".lua"))),*))
        });)*
    };
}

scripts! {
    RIGHTS: "rights";
    CREATE: "keys" "format" "change" "index" "times" "tombstones" "make" "create";
    CREATE_WITH: "keys" "format" "change" "index" "times" "tombstones" "make" "sums" "turn" "cover" "create_with";
    FIND_OR_CREATE: "keys" "format" "change" "index" "times" "tombstones" "make" "named" "find_or_create";
    FIND: "keys" "index" "named" "find";
    FIND_PREFIX: "keys" "index" "named" "find_prefix";
    FIND_UUID: "keys" "index" "named" "find_uuid";
    RENAME: "keys" "format" "change" "index" "times" "rename";
    DELETE: "keys" "format" "change" "index" "times" "tombstones" "named" "delete";
    APPEND: "keys" "format" "change" "index" "sums" "turn" "append";
    CLEAR: "keys" "format" "change" "clear";
    FORK: "keys" "format" "change" "index" "times" "tombstones" "make" "cover" "fork";
    SET_TOKENS: "keys" "format" "change" "set_tokens";
    ADD_TOKENS: "keys" "format" "change" "sums" "add_tokens";
    COMPACTIONS: "keys" "compactions";
    ADD_COMPACTION: "keys" "format" "change" "cover" "add_compaction";
    REMOVE_COMPACTION: "keys" "format" "change" "cover" "remove_compaction";
    MARK: "keys" "mark";
    REMOVE_MARK: "keys" "format" "change" "remove_mark";
    NOTE_RUN: "keys" "format" "change" "note_run";
    CLAIM: "keys" "claim";
    SETTLE: "keys" "settle";
    BEGIN_UPGRADE: "keys" "begin_upgrade";
    UPGRADE_SESSION: "keys" "index" "cover" "upgrade_session";
    FINISH_UPGRADE: "keys" "finish_upgrade";
    TAKE_LEASE: "keys" "format" "lease" "take_lease";
    RENEW_LEASE: "keys" "format" "lease" "renew_lease";
    RELEASE_LEASE: "keys" "format" "lease" "release_lease";
}

/// A script with its keys and values, and what follows it in the same transaction.
pub(super) struct Call {
    script: &'static Script,
    command: Cmd,
    followed_by: Vec<Cmd>,
    /// Whether it changes something.
    pub(super) writes: bool,
    effect: Effect,
    /// The bytes that are sent, without small values.
    pub(super) size: usize,
}

/// A call that is ready to be run, more than once if need be.
pub(super) struct Prepared {
    pub(super) script: &'static Script,
    pub(super) commands: Pipeline,
    pub(super) size: usize,
    pub(super) effect: Effect,
}

/// What a lost answer leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing: it reads, or it is asked for again in any case.
    None,
    /// Whether the change was made. The id is that of the caller's operation.
    Change(Option<Uuid>),
}

impl Call {
    pub(super) fn new(script: &'static Script, keys: &[String]) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.get_hash()).arg(keys.len()).arg(keys);
        Self { script, command, followed_by: Vec::new(), writes: false, effect: Effect::None, size: 0 }
    }

    /// Notes that a lost answer leaves the outcome open.
    pub(super) fn with_effect(mut self, operation: Option<Uuid>) -> Self {
        self.effect = Effect::Change(operation);
        self
    }

    /// Notes that it changes something.
    pub(super) fn writing(mut self) -> Self {
        self.writes = true;
        self
    }

    /// Adds a command that follows the script in the same transaction. `size` is the length of the command.
    pub(super) fn followed_by(mut self, command: Cmd, size: usize) -> Self {
        self.followed_by.push(command);
        self.size += size;
        self
    }

    pub(super) fn prepare(self) -> Prepared {
        let mut commands = Pipeline::with_capacity(1 + self.followed_by.len());
        // If the script refuses, the commands that follow have no effect, and one of them returns an error.
        commands.ignore_errors();
        if !self.followed_by.is_empty() {
            commands.atomic();
        }
        commands.add_command(self.command);
        for command in self.followed_by {
            commands.add_command(command);
        }
        Prepared { script: self.script, commands, size: self.size, effect: self.effect }
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

    /// Adds an optional value: `None` is empty, and any other value has a prefix.
    pub(super) fn with_optional(self, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(format!("+{value}")),
            None => self.with(""),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn rights_are_asked_for_every_command_that_a_script_runs() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis/scripts");
        let mut run: BTreeSet<String> = ["MULTI", "EXEC"].map(str::to_owned).into();
        for file in std::fs::read_dir(folder).unwrap() {
            let script = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let calls = script.split("call('").skip(1);
            run.extend(calls.map(|call| call.split('\'').next().unwrap().to_owned()));
        }
        let asked =
            include_str!("scripts/rights.lua").split("[[").nth(1).unwrap().split("]]").next().unwrap();
        assert_eq!(asked.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>(), run);
    }
}
