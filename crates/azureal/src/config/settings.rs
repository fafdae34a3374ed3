//! The settings of a configuration file.

use std::fmt;
use std::time::Duration;

use azureal_agents::registry;
use azureal_core::agent::Permission;
use azureal_core::{ContextCommand, OnFailure, Redactor, Threshold, check_pattern};
use azureal_engine::OutputLimit;
use serde::{Deserialize, Serialize};

use super::file::Owner;
use super::node::{ConfigPosition, Entry, Node, Problem, Value};
use super::ui::UiSettings;
use crate::error::quoted;

/// The longest time limit of a context command.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);
/// The largest number of context commands in one file: all of them run at once.
const MOST_COMMANDS: usize = 64;
/// The largest number of variables in one file.
const MOST_VARIABLES: usize = 256;
/// The longest name of a context command.
const LONGEST_NAME: usize = 200;

/// The settings of one file; `None` for a setting that it does not have.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Settings {
    pub(super) agent: Option<Located<String>>,
    pub(super) model: Option<Located<String>>,
    pub(super) default_system_message: Option<Located<String>>,
    pub(super) threshold: Option<Located<Threshold>>,
    pub(super) output_limit: Option<Located<OutputLimit>>,
    pub(super) permission: Option<Located<Permission>>,
    pub(super) timeout: Option<Located<Duration>>,
    pub(super) claude_cache: Option<Located<Caching>>,
    pub(super) keep_originals: Option<Located<KeepOriginals>>,
    pub(super) share_originals: Option<Located<bool>>,
    pub(super) redact_patterns: Option<Located<Vec<String>>>,
    pub(super) record_changes: Option<Located<bool>>,
    pub(super) changes_size: Option<Located<u64>>,
    pub(super) recall: Option<Located<bool>>,
    pub(super) variables: Vec<(String, Located<Variable>)>,
    pub(super) context_commands: Option<Vec<Located<ContextCommand>>>,
    pub(super) ui: UiSettings,
}

/// Whether histories are sent to Claude Code in a form that the provider's prompt cache recognises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Caching {
    /// In blocks that it recognises.
    #[default]
    Auto,
    /// In one piece.
    Off,
}

impl Caching {
    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
        }
    }
}

/// The time for which the output of turns is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeepOriginals {
    /// For ever.
    #[default]
    Forever,
    /// So many days.
    Days(u32),
    /// Not at all.
    Off,
}

impl fmt::Display for KeepOriginals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forever => f.write_str("forever"),
            Self::Days(1) => f.write_str("1 day"),
            Self::Days(days) => write!(f, "{days} days"),
            Self::Off => f.write_str("off"),
        }
    }
}

/// A value and the line that it stands in.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) line: usize,
}

/// The declaration of a variable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Variable {
    /// It must be given.
    Required,
    /// A truth value.
    Switch(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Fraction(f64),
    /// A text.
    Text(String),
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Required => f.write_str("must be given"),
            Self::Switch(is_on) => write!(f, "{is_on}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Fraction(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Settings {
    /// Returns whether there is anything in it that could have an effect.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads our own format, in which every key must be known: a misspelt one would have no effect, silently.
    pub(super) fn of_azufig(root: &Node, owner: Owner) -> Result<Self, Problem> {
        const KEYS: [&str; 14] = [
            "agent",
            "model",
            "default_system_message",
            "turn",
            "claude",
            "compaction",
            "originals",
            "changes",
            "recall",
            "redact",
            "variables",
            "context_commands",
            "ui",
            "keys",
        ];
        let mut settings = Self::default();
        for entry in of_file(root)? {
            let Entry { key, place, node } = entry;
            match key.as_str() {
                "agent" => settings.agent = Some(located(*place, agent(node)?)),
                "model" => settings.model = Some(located(*place, node.text(key)?.to_owned())),
                "turn" => settings.take_turn(node, owner)?,
                "claude" => settings.claude_cache = claude_cache(node)?,
                "compaction" => settings.threshold = threshold(node)?,
                "originals" => settings.take_originals(*place, node, owner)?,
                "changes" => settings.take_changes(node)?,
                "recall" => settings.take_recall(*place, node, owner)?,
                "ui" => settings.ui.take(*place, node, owner)?,
                "keys" => settings.ui.take_keys(*place, node, owner)?,
                "redact" => settings.redact_patterns = redact_patterns(node, *place, owner)?,
                _ if settings.take_shared(entry, Strictness::EveryKey)? => {}
                _ => return Err(Problem::new(*place, unknown(key, &KEYS))),
            }
        }
        Ok(settings)
    }

    /// Reads cllm's format, of which most keys concern only cllm.
    pub(super) fn of_cllmfile(root: &Node) -> Result<Self, Problem> {
        let mut settings = Self::default();
        for entry in of_file(root)? {
            settings.take_shared(entry, Strictness::KnownKeys)?;
        }
        Ok(settings)
    }

    /// Takes what holds for every turn.
    fn take_turn(&mut self, node: &Node, owner: Owner) -> Result<(), Problem> {
        const KEYS: [&str; 3] = ["permission", "timeout", "output_limit_mib"];
        for Entry { key, place, node } in node.table("turn")? {
            match key.as_str() {
                "permission" => self.permission = Some(located(*place, permission(node, owner)?)),
                "timeout" => self.timeout = Some(located(*place, turn_timeout(node)?)),
                "output_limit_mib" => self.output_limit = Some(located(*place, output_limit(node)?)),
                _ => return Err(Problem::new(*place, unknown(key, &KEYS))),
            }
        }
        Ok(())
    }

    /// Takes what holds for the originals of turns. They hold every file that an agent has read, so a project cannot decide where
    /// they go, nor that they are gone.
    fn take_originals(&mut self, place: ConfigPosition, node: &Node, owner: Owner) -> Result<(), Problem> {
        const KEYS: [&str; 2] = ["keep", "share"];
        if owner == Owner::Project {
            let message = "a project's file cannot have `[originals]`; set it in your own azufig.toml";
            return Err(Problem::new(place, message));
        }
        for Entry { key, place, node } in node.table("originals")? {
            match key.as_str() {
                "keep" => self.keep_originals = Some(located(*place, keep_originals(node)?)),
                "share" => match node.value {
                    Value::Switch(is_on) => self.share_originals = Some(located(*place, is_on)),
                    _ => return Err(node.is_not(key, "true or false")),
                },
                _ => return Err(Problem::new(*place, unknown(key, &KEYS))),
            }
        }
        Ok(())
    }

    /// Takes what holds for the snapshots of the worktree around turns.
    fn take_changes(&mut self, node: &Node) -> Result<(), Problem> {
        const KEYS: [&str; 2] = ["enabled", "max_size"];
        for Entry { key, place, node } in node.table("changes")? {
            match key.as_str() {
                "enabled" => self.record_changes = Some(located(*place, node.switch(key)?)),
                "max_size" => self.changes_size = Some(located(*place, size(node)?)),
                _ => return Err(Problem::new(*place, unknown(key, &KEYS))),
            }
        }
        Ok(())
    }

    /// Takes whether agents can look things up in the stored sessions. A project cannot decide that they read other sessions.
    fn take_recall(&mut self, place: ConfigPosition, node: &Node, owner: Owner) -> Result<(), Problem> {
        const KEYS: [&str; 1] = ["enabled"];
        if owner == Owner::Project {
            let message = "a project's file cannot have `[recall]`; set it in your own azufig.toml";
            return Err(Problem::new(place, message));
        }
        for Entry { key, place, node } in node.table("recall")? {
            match key.as_str() {
                "enabled" => self.recall = Some(located(*place, node.switch(key)?)),
                _ => return Err(Problem::new(*place, unknown(key, &KEYS))),
            }
        }
        Ok(())
    }

    /// Takes a key that both formats have; returns whether it is one.
    fn take_shared(
        &mut self,
        Entry { key, place, node }: &Entry,
        strictness: Strictness,
    ) -> Result<bool, Problem> {
        match key.as_str() {
            // YAML's `key:` without a value is an unset key.
            "default_system_message" | "variables" | "context_commands" if node.value == Value::Nothing => {}
            "default_system_message" => match &node.value {
                // An empty one is how a project does without that of the user.
                Value::Text(text) => self.default_system_message = Some(located(*place, text.clone())),
                _ => return Err(node.is_not(key, "a text")),
            },
            "variables" => {
                let entries = node.table(key)?;
                at_most(MOST_VARIABLES, entries.len(), key, *place)?;
                self.variables = entries.iter().map(variable).collect::<Result<_, _>>()?;
            }
            "context_commands" => {
                let nodes = node.list(key)?;
                at_most(MOST_COMMANDS, nodes.len(), key, *place)?;
                let commands = nodes.iter().map(|node| context_command(node, strictness));
                self.context_commands = Some(commands.collect::<Result<_, _>>()?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The action for an unknown key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strictness {
    /// It is an error.
    EveryKey,
    /// It belongs to another program.
    KnownKeys,
}

pub(super) fn located<T>(place: ConfigPosition, value: T) -> Located<T> {
    Located { value, line: place.line }
}

pub(super) fn at_most(most: usize, count: usize, key: &str, place: ConfigPosition) -> Result<(), Problem> {
    if count > most {
        return Err(Problem::new(place, format!("{} has {count}; allowed are {most}", quoted(key))));
    }
    Ok(())
}

/// Returns the keys of a file. An empty one has none.
fn of_file(root: &Node) -> Result<&[Entry], Problem> {
    root.table("").map_err(|problem| {
        let message = format!("the file is {}; allowed is a table of keys and values", root.value);
        Problem { message, ..problem }
    })
}

fn keep_originals(node: &Node) -> Result<KeepOriginals, Problem> {
    let days = |days: i64| u32::try_from(days).ok().filter(|days| *days > 0).map(KeepOriginals::Days);
    let found = match &node.value {
        Value::Text(word) if word == "forever" => Some(KeepOriginals::Forever),
        Value::Text(word) if word == "off" => Some(KeepOriginals::Off),
        Value::Integer(number) => days(*number),
        _ => None,
    };
    found.ok_or_else(|| node.is_not("keep", "\"forever\", \"off\" or a number of days"))
}

/// Reads a size such as "2 GB". Units are powers of 1000, as disks are sold.
fn size(node: &Node) -> Result<u64, Problem> {
    const UNITS: [(&str, u64); 3] = [("MB", 1_000_000), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000)];
    let found = match &node.value {
        Value::Text(text) => UNITS.iter().find_map(|(unit, bytes)| {
            let number: u64 = text.trim().strip_suffix(unit)?.trim_end().parse().ok()?;
            number.checked_mul(*bytes).filter(|size| *size > 0)
        }),
        _ => None,
    };
    found.ok_or_else(|| node.is_not("max_size", "a size such as \"500 MB\" or \"2 GB\""))
}

fn agent(node: &Node) -> Result<String, Problem> {
    match &node.value {
        Value::Text(name) if registry::find(name).is_ok() => Ok(name.clone()),
        _ => Err(node.is_not("agent", &one_of(&agent_names()))),
    }
}

pub(super) fn agent_names() -> Vec<&'static str> {
    registry::all().iter().map(|agent| agent.name()).collect()
}

/// The names of the permissions.
pub(super) const PERMISSIONS: [&str; 3] = ["read", "edit", "all"];

/// Finds the permission that a word stands for.
pub(super) fn permission_named(word: &str) -> Option<Permission> {
    match word {
        "read" => Some(Permission::Read),
        "edit" => Some(Permission::Edit),
        "all" => Some(Permission::All),
        _ => None,
    }
}

/// Returns the word for a permission.
pub fn permission_name(permission: Permission) -> &'static str {
    match permission {
        Permission::Answer | Permission::Read => "read",
        Permission::Edit => "edit",
        Permission::All => "all",
    }
}

fn permission(node: &Node, owner: Owner) -> Result<Permission, Problem> {
    let found = match &node.value {
        Value::Text(word) => permission_named(word),
        _ => None,
    };
    match (found, owner) {
        (Some(permission), Owner::User) | (Some(permission @ Permission::Read), Owner::Project) => {
            Ok(permission)
        }
        // The user who cloned a project has not decided that its agents may change files.
        (Some(_), Owner::Project) => Err(Problem::new(
            node.place,
            "a project's file can only set `permission` to \"read\"; set more in your own azufig.toml, in \
             AZUREAL_PERMISSION or with `--permission`",
        )),
        (None, Owner::User) => Err(node.is_not("permission", &one_of(&PERMISSIONS))),
        (None, Owner::Project) => Err(node.is_not("permission", "read")),
    }
}

fn turn_timeout(node: &Node) -> Result<Duration, Problem> {
    number_of_seconds(node).ok_or_else(|| node.is_not("timeout", "a number of seconds above 0"))
}

/// Reads a number of seconds, as the command line has it.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.trim().parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "not a number of seconds above 0".to_owned())
}

fn number_of_seconds(node: &Node) -> Option<Duration> {
    let time = match node.value {
        Value::Integer(seconds) => u64::try_from(seconds).ok().map(Duration::from_secs),
        Value::Fraction(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        _ => None,
    };
    time.filter(|time| !time.is_zero())
}

fn threshold(node: &Node) -> Result<Option<Located<Threshold>>, Problem> {
    const KEYS: [&str; 2] = ["threshold_characters", "threshold_tokens"];
    let mut found: Option<Located<Threshold>> = None;
    for Entry { key, place, node } in node.table("compaction")? {
        let kind = match key.as_str() {
            "threshold_characters" => Threshold::Chars,
            "threshold_tokens" => Threshold::Tokens,
            _ => return Err(Problem::new(*place, unknown(key, &KEYS))),
        };
        if found.is_some() {
            return Err(Problem::new(
                *place,
                format!("{} is a second threshold; allowed is one", quoted(key)),
            ));
        }
        let count = match node.value {
            Value::Integer(count) => u64::try_from(count).ok().filter(|count| *count > 0),
            _ => None,
        };
        let count = count.ok_or_else(|| node.is_not(key, "a whole number above 0"))?;
        found = Some(located(*place, kind(count)));
    }
    Ok(found)
}

fn claude_cache(node: &Node) -> Result<Option<Located<Caching>>, Problem> {
    const KEYS: [&str; 1] = ["cache"];
    let mut found = None;
    for Entry { key, place, node } in node.table("claude")? {
        if key != "cache" {
            return Err(Problem::new(*place, unknown(key, &KEYS)));
        }
        let words = [Caching::Auto, Caching::Off];
        let said = words.into_iter().find(|caching| node.value == Value::Text(caching.name().to_owned()));
        let said = said.ok_or_else(|| node.is_not(key, &one_of(&words.map(Caching::name))))?;
        found = Some(located(*place, said));
    }
    Ok(found)
}

/// Reads the user's own patterns of secrets. A project's file has none: a pattern that is too wide would hide from the user what an
/// export has.
fn redact_patterns(
    node: &Node,
    place: ConfigPosition,
    owner: Owner,
) -> Result<Option<Located<Vec<String>>>, Problem> {
    const KEYS: [&str; 1] = ["patterns"];
    if owner == Owner::Project {
        let message = "a project's file cannot set `redact`; set it in your own azufig.toml";
        return Err(Problem::new(place, message));
    }
    let mut found = None;
    for Entry { key, place, node } in node.table("redact")? {
        if key != "patterns" {
            return Err(Problem::new(*place, unknown(key, &KEYS)));
        }
        let mut patterns = Vec::new();
        for node in node.list(key)? {
            let pattern = node.text(key)?;
            check_pattern(pattern).map_err(|error| Problem::new(node.place, error.to_string()))?;
            patterns.push(pattern.to_owned());
        }
        at_most(Redactor::MOST_PATTERNS, patterns.len(), key, *place)?;
        found = Some(located(*place, patterns));
    }
    Ok(found)
}

fn output_limit(node: &Node) -> Result<OutputLimit, Problem> {
    let mib = match node.value {
        Value::Integer(mib) => u64::try_from(mib).ok().filter(|mib| *mib > 0),
        _ => None,
    };
    let mib = mib.ok_or_else(|| node.is_not("output_limit_mib", "a whole number of MiB above 0"))?;
    Ok(OutputLimit::of_mib(mib))
}

fn variable(Entry { key, place, node }: &Entry) -> Result<(String, Located<Variable>), Problem> {
    if !is_variable_name(key) {
        let message = format!("{} is not a name for a variable; {VARIABLE_NAME}", quoted(key));
        return Err(Problem::new(*place, message));
    }
    let variable = match &node.value {
        Value::Nothing => Variable::Required,
        Value::Switch(is_on) => Variable::Switch(*is_on),
        Value::Integer(number) => Variable::Integer(*number),
        Value::Fraction(number) => Variable::Fraction(*number),
        Value::Text(text) => Variable::Text(text.clone()),
        // TOML has no null value.
        Value::Table(entries) if is_required(entries) => Variable::Required,
        Value::Other(_) | Value::List(_) | Value::Table(_) => {
            let allowed = "a text, a number, true or false; null in YAML and { required = true } in TOML \
                           for one that must be given";
            return Err(node.is_not(key, allowed));
        }
    };
    Ok((key.clone(), located(*place, variable)))
}

fn is_required(entries: &[Entry]) -> bool {
    matches!(entries, [Entry { key, node, .. }] if key == "required" && node.value == Value::Switch(true))
}

/// The rule for the name of a variable, for errors.
pub(super) const VARIABLE_NAME: &str = "allowed are letters, digits and _, not beginning with a digit";

/// Returns whether a template could ask for a variable of this name.
pub(super) fn is_variable_name(name: &str) -> bool {
    let may_stand = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(may_stand) && name.starts_with(|c: char| !c.is_ascii_digit())
}

fn context_command(node: &Node, strictness: Strictness) -> Result<Located<ContextCommand>, Problem> {
    const KEYS: [&str; 5] = ["name", "command", "on_failure", "timeout", "dynamic"];
    let mut command = ContextCommand::new("", "");
    let Value::Table(entries) = &node.value else {
        return Err(node.is_not("context_commands", "a list of tables, each with a name and a command"));
    };
    for Entry { key, place, node } in entries {
        match key.as_str() {
            "name" => command.name = name(node)?,
            "command" => command.command = shell_command(node)?,
            "on_failure" => command.on_failure = on_failure(node)?,
            "timeout" => command.timeout = timeout(node)?,
            "dynamic" => command.dynamic = node.switch(key)?,
            _ if strictness == Strictness::KnownKeys => {}
            _ => return Err(Problem::new(*place, unknown(key, &KEYS))),
        }
    }
    for (key, value) in [("name", &command.name), ("command", &command.command)] {
        if value.is_empty() {
            let message = format!("this context command has no {}; it must have one", quoted(key));
            return Err(Problem::new(node.place, message));
        }
    }
    Ok(located(node.place, command))
}

/// A name stands in the line that begins a block, so it must not end that line.
fn name(node: &Node) -> Result<String, Problem> {
    let name = node.text("name")?.trim();
    if name.chars().count() > LONGEST_NAME || name.contains(char::is_control) {
        return Err(node.is_not("name", &format!("one line of up to {LONGEST_NAME} characters")));
    }
    Ok(name.to_owned())
}

fn shell_command(node: &Node) -> Result<String, Problem> {
    let command = node.text("command")?;
    if command.contains('\0') {
        return Err(node.is_not("command", "a text without null characters"));
    }
    Ok(command.to_owned())
}

fn on_failure(node: &Node) -> Result<OnFailure, Problem> {
    let word = match &node.value {
        Value::Text(word) => word.to_lowercase(),
        _ => String::new(),
    };
    match word.as_str() {
        "warn" => Ok(OnFailure::Warn),
        "ignore" => Ok(OnFailure::Ignore),
        "fail" => Ok(OnFailure::Fail),
        _ => Err(node.is_not("on_failure", &one_of(&["warn", "ignore", "fail"]))),
    }
}

fn timeout(node: &Node) -> Result<Duration, Problem> {
    number_of_seconds(node).filter(|time| *time <= LONGEST_TIMEOUT).ok_or_else(|| {
        let longest = LONGEST_TIMEOUT.as_secs();
        node.is_not("timeout", &format!("a number of seconds above 0 and up to {longest}"))
    })
}

/// Creates the error of an unknown key, with the known ones and the nearest.
pub(super) fn unknown(key: &str, known: &[&str]) -> String {
    let meant = nearest(key, known.iter().copied());
    let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {}?", quoted(meant)));
    format!("{} is not a key here; allowed: {}{meant}", quoted(key), known.join(", "))
}

pub(super) fn one_of(words: &[&str]) -> String {
    format!("one of {}", words.join(", "))
}

/// Finds the nearest known name.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let distance = |known: &str| strsim::damerau_levenshtein(&name, &known.to_lowercase());
    let near = known.map(|known| (distance(known), known)).min_by_key(|(distance, _)| *distance);
    near.filter(|(distance, _)| *distance <= 1 + name.chars().count() / 4).map(|(_, known)| known)
}
