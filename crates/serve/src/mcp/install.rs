//! The entry of the recall server in the configuration of an agent.
//!
//! An agent that has a command for it is asked to write its own configuration. For the others, whose configuration is one JSON file, the entry is added to the text
//! of the file, of which every other byte stays. A file with comments is no JSON: then the entry is shown, for the user to add.
//!
//! An entry of another kind is replaced, and in one of another place of the program, what differs. What a user has added to ours stays: such an entry is installed.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use azureal::error::shown;
use azureal::{Environment, Error};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toml::de::DeTable;

use super::NAME;

/// The agents that the server can be installed for.
pub const AGENTS: [&str; 7] = ["claude", "codex", "gemini", "qwen", "opencode", "goose", "copilot"];

/// The largest configuration file that is read, in bytes.
const LARGEST: u64 = 16 << 20;
/// The mode of a new file: it may get keys later.
const PRIVATE: u32 = 0o600;

/// How the server is installed for an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Installation {
    /// Commands of the agent's program do it.
    Commands {
        /// The program.
        program: String,
        /// The arguments of each command.
        commands: Vec<Vec<String>>,
    },
    /// An entry in this file.
    Entry(Entry),
    /// The user adds this text to this file.
    Manual {
        /// The file.
        file: PathBuf,
        /// The text.
        text: String,
        /// Why azureal does not.
        why: &'static str,
    },
    /// It is there already.
    Installed {
        /// The file.
        file: PathBuf,
    },
}

/// An entry in a JSON file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The file, which may not exist yet.
    pub file: PathBuf,
    /// The text of the entry that is replaced; `None` if there is none.
    pub former: Option<String>,
    /// The table that the entry is added to.
    table: &'static str,
    entry: Value,
    /// The text of the file with the entry.
    text: String,
}

/// What a user can do about a file that is not used as it is.
const REPAIR: &str = "repair it, and run the command again";

impl Entry {
    /// Returns the text that is added, for people.
    pub fn text(&self) -> String {
        entry_text(self.table, &self.entry)
    }

    /// Writes the file. It is replaced as a whole, or stays as it is.
    ///
    /// It is read again: since the plan, which a user has thought about, the agent may have saved its settings.
    ///
    /// # Errors
    ///
    /// The file has another entry of this name now, or cannot be read or written.
    pub fn write(self) -> Result<(), Error> {
        let Self { file, former, table, entry, .. } = self;
        match plan_entry(file.clone(), table, entry)? {
            Installation::Entry(now) if now.former == former => {
                replace(&file, &now.text).map_err(|error| Error::file(&file, &error))
            }
            Installation::Installed { .. } => Ok(()),
            _ => Err(Error::new("conflict", format!("{} has changed meanwhile", shown(&file)))
                .with_hint("run the command again")),
        }
    }
}

/// Plans the installation for an agent. `program` is the program `azureal`.
///
/// # Errors
///
/// There is no such agent, the user has no home, or the file of the agent cannot be read.
pub fn plan(agent: &str, program: &Path, environment: &Environment) -> Result<Installation, Error> {
    let home = environment.home().ok_or_else(|| Error::new("no_home", "your home directory is not known"))?;
    let folder = |variable: &str, usual: &str| {
        environment.value(variable).map_or_else(|| home.join(usual), PathBuf::from)
    };
    let config = |name: &str| folder("XDG_CONFIG_HOME", ".config").join(name);
    let program = program.to_str().ok_or_else(|| {
        Error::new("not_text", format!("{} is no UTF-8, which configuration files need", shown(program)))
    })?;
    let stdio = json!({"command": program, "args": ["mcp"]});
    match agent {
        "claude" => {
            let folder = environment.value("CLAUDE_CONFIG_DIR").map_or_else(|| home.clone(), PathBuf::from);
            let file = folder.join(".claude.json");
            let all: Value = match read_text(&file)?.filter(|text| !text.trim().is_empty()) {
                // Claude Code replaces such a file by a new one.
                Some(text) => serde_json::from_str(&text).map_err(|_| {
                    Error::new("agent_config", format!("{} is no JSON", shown(&file))).with_hint(REPAIR)
                })?,
                None => Value::Null,
            };
            let found = all.get("mcpServers").and_then(|servers| servers.get(NAME));
            // Claude Code shows a model only the names of tools, unless they are always loaded.
            let server = json!({"type": "stdio", "command": program, "args": ["mcp"], "alwaysLoad": true});
            if found.is_some_and(|found| is_ours(found, &server)) {
                return Ok(Installation::Installed { file });
            }
            // It refuses to add an entry of the same name.
            let remove = found.is_some().then_some(&["mcp", "remove", "--scope", "user", NAME][..]);
            let server = kept(found.unwrap_or_default(), server).to_string();
            let add = ["mcp", "add-json", "--scope", "user", NAME, &server];
            Ok(commands("claude", remove.into_iter().chain([&add[..]])))
        }
        "codex" => {
            let file = folder("CODEX_HOME", ".codex").join("config.toml");
            let text = read_text(&file)?.unwrap_or_default();
            if is_in_codex(&text, program) == Some(true) {
                return Ok(Installation::Installed { file });
            }
            // It replaces an entry of the same name.
            Ok(commands("codex", [&["mcp", "add", NAME, "--", program, "mcp"][..]]))
        }
        "gemini" => plan_entry(home.join(".gemini/settings.json"), "mcpServers", stdio),
        "qwen" => {
            // As with Claude Code. Here the tools would have to be searched for first.
            let server = json!({"command": program, "args": ["mcp"], "alwaysLoadTools": true});
            plan_entry(home.join(".qwen/settings.json"), "mcpServers", server)
        }
        "copilot" => {
            let server = json!({"type": "local", "command": program, "args": ["mcp"], "tools": ["*"]});
            plan_entry(folder("COPILOT_HOME", ".copilot").join("mcp-config.json"), "mcpServers", server)
        }
        "opencode" => {
            let server = json!({"type": "local", "command": [program, "mcp"], "enabled": true});
            let with_comments = config("opencode").join("opencode.jsonc");
            let plain = config("opencode").join("opencode.json");
            plan_entry(if with_comments.exists() { with_comments } else { plain }, "mcp", server)
        }
        "goose" => Ok(Installation::Manual {
            file: config("goose").join("config.yaml"),
            text: format!(
                "extensions:\n  {NAME}:\n    enabled: true\n    type: stdio\n    name: {NAME}\n    cmd: {}\n    args: [mcp]\n    timeout: 60\n",
                json!(program)
            ),
            why: "azureal does not write YAML, which would lose its comments",
        }),
        _ => Err(Error::usage(format!("no recall for `{agent}`"))
            .with_hint(format!("one of: {}", AGENTS.join(", ")))),
    }
}

fn commands<'a>(program: &str, commands: impl IntoIterator<Item = &'a [&'a str]>) -> Installation {
    let texts = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect();
    Installation::Commands {
        program: program.to_owned(),
        commands: commands.into_iter().map(texts).collect(),
    }
}

/// Returns whether a configuration of Codex has the entry of this program; `None` if it has none, or cannot be read.
fn is_in_codex(text: &str, program: &str) -> Option<bool> {
    let all = DeTable::parse(text).ok()?;
    let servers = all.get_ref().get("mcp_servers")?.get_ref().as_table()?;
    let entry = servers.get(NAME)?.get_ref().as_table()?;
    let [arg] = entry.get("args")?.get_ref().as_array()?.get(..)? else { return Some(false) };
    Some(entry.get("command")?.get_ref().as_str() == Some(program) && arg.get_ref().as_str() == Some("mcp"))
}

/// Returns whether an entry is this one, perhaps with more in it.
fn is_ours(found: &Value, entry: &Value) -> bool {
    entry.as_object().is_some_and(|entry| entry.iter().all(|(key, value)| found.get(key) == Some(value)))
}

/// Returns the entry of a server, with what a user has added to a former one. One without a command is of another kind, and has nothing for this.
fn kept(former: &Value, entry: Value) -> Value {
    match (former, entry) {
        (Value::Object(former), Value::Object(entry)) if former.contains_key("command") => {
            let mut kept = former.clone();
            kept.extend(entry);
            Value::Object(kept)
        }
        (_, entry) => entry,
    }
}

/// Plans an entry in a JSON file.
fn plan_entry(file: PathBuf, table: &'static str, entry: Value) -> Result<Installation, Error> {
    let text = read_text(&file)?.filter(|text| !text.trim().is_empty()).unwrap_or_else(|| "{}\n".to_owned());
    let Some(all) = Object::in_text(&text, 0..text.len()) else {
        let text = entry_text(table, &entry);
        return Ok(Installation::Manual { file, text, why: "it has comments, or is no JSON" });
    };
    let unit = all.indentation();
    let Some(servers) = all.place(table) else {
        let text = all.with(table, &json!({ NAME: entry }), &unit, 1);
        return Ok(Installation::Entry(Entry { file, former: None, table, entry, text }));
    };
    let not_a_table =
        || Error::new("agent_config", format!("`{table}` in {} is no table", shown(&file))).with_hint(REPAIR);
    let servers = Object::in_text(&text, servers).ok_or_else(not_a_table)?;
    let former = servers.place(NAME).and_then(|place| text.get(place)).map(str::to_owned);
    let found: Value =
        former.as_deref().and_then(|found| serde_json::from_str(found).ok()).unwrap_or_default();
    if is_ours(&found, &entry) {
        return Ok(Installation::Installed { file });
    }
    let entry = kept(&found, entry);
    let text = servers.with(NAME, &entry, &unit, 2);
    Ok(Installation::Entry(Entry { file, former, table, entry, text }))
}

fn entry_text(table: &str, entry: &Value) -> String {
    serde_json::to_string_pretty(&json!({table: {NAME: entry}})).unwrap_or_default()
}

/// An object of a JSON text, with the places of its members.
struct Object<'t> {
    text: &'t str,
    place: Range<usize>,
    members: BTreeMap<String, &'t RawValue>,
}

impl<'t> Object<'t> {
    /// Returns the object at a place of a text; `None` if it is none.
    fn in_text(text: &'t str, place: Range<usize>) -> Option<Self> {
        let members = serde_json::from_str(text.get(place.clone())?).ok()?;
        Some(Self { text, place, members })
    }

    /// Returns the place of the value of a member.
    fn place(&self, key: &str) -> Option<Range<usize>> {
        self.members.get(key).map(|value| self.place_of(value))
    }

    fn place_of(&self, value: &RawValue) -> Range<usize> {
        let start = value.get().as_ptr().addr() - self.text.as_ptr().addr();
        start..start + value.get().len()
    }

    /// Returns the white space in front of a member of the outermost object, or what is usual.
    fn indentation(&self) -> String {
        let inner =
            self.text.get(self.place.clone()).unwrap_or_default().trim_start().trim_start_matches('{');
        let white = inner.get(..inner.len() - inner.trim_start().len()).unwrap_or_default();
        match white.rsplit_once('\n') {
            Some((_, indentation)) if !indentation.is_empty() && !self.members.is_empty() => {
                indentation.to_owned()
            }
            _ => "  ".to_owned(),
        }
    }

    /// Returns the whole text with this value of a member, which is replaced or added behind the others. All other bytes stay.
    fn with(&self, key: &str, value: &Value, unit: &str, depth: usize) -> String {
        let mut pretty = Vec::new();
        let formatter = serde_json::ser::PrettyFormatter::with_indent(unit.as_bytes());
        // Writing to memory does not fail.
        drop(serde::Serialize::serialize(
            value,
            &mut serde_json::Serializer::with_formatter(&mut pretty, formatter),
        ));
        let indentation = unit.repeat(depth);
        let value = String::from_utf8_lossy(&pretty).replace('\n', &format!("\n{indentation}"));
        let member = format!("\n{indentation}{}: {value}", json!(key));
        let last = self.members.values().map(|value| self.place_of(value).end).max();
        let (place, new) = match (self.place(key), last) {
            (Some(place), _) => (place, value),
            (None, Some(last)) => (last..last, format!(",{member}")),
            (None, None) => {
                let whole = self.text.get(self.place.clone()).unwrap_or_default();
                let start = self.place.start + whole.len() - whole.trim_start().len();
                let closing = unit.repeat(depth - 1);
                (start..start + whole.trim().len(), format!("{{{member}\n{closing}}}"))
            }
        };
        let mut text = self.text.to_owned();
        text.replace_range(place, &new);
        text
    }
}

/// Reads a text file of bounded size; `None` if there is none.
fn read_text(file: &Path) -> Result<Option<String>, Error> {
    let failed = |error: &io::Error| Error::file(file, error);
    let unusable =
        |why: &str| Error::new("agent_config", format!("{} is {why}", shown(file))).with_hint(REPAIR);
    // Never waits for the other end of a pipe.
    match fs::metadata(file) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(unusable("no file")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return match fs::symlink_metadata(file) {
                Err(_) => Ok(None),
                Ok(_) => Err(unusable("a link to a missing file")),
            };
        }
        Err(error) => return Err(failed(&error)),
    }
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| failed(&error))?;
    opened.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    if text.len() as u64 > LARGEST {
        return Err(unusable(&format!("larger than {LARGEST} bytes")));
    }
    Ok(Some(text))
}

/// Replaces a file, which keeps its mode. Behind a link it is the file that the link leads to: people keep their configuration elsewhere and link to it.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let file = match fs::canonicalize(file) {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => file.to_owned(),
        Err(error) => return Err(error),
    };
    let folder = file.parent().ok_or(ErrorKind::InvalidInput)?;
    fs::create_dir_all(folder)?;
    let mode = fs::metadata(&file).map_or(PRIVATE, |metadata| metadata.permissions().mode() & 0o777);
    // To replace it, the folder would be enough.
    if mode & 0o200 == 0 {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let name = file.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    let new = folder.join(format!("{name}.azureal-new"));
    // Of an installation that was killed.
    drop(fs::remove_file(&new));
    let written = (|| {
        let mut out = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(&new)?;
        out.write_all(text.as_bytes())?;
        // The mode of a new file is what the umask leaves of it.
        out.set_permissions(Permissions::from_mode(mode))?;
        out.sync_all()?;
        fs::rename(&new, &file)
    })();
    if written.is_err() {
        // What is left of it is of no use.
        drop(fs::remove_file(&new));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(home: &Path) -> Environment {
        Environment::new([("HOME".into(), home.into())])
    }

    fn planned(agent: &str, home: &Path) -> Installation {
        plan(agent, Path::new("/bin/azureal"), &environment(home)).unwrap()
    }

    /// Plans and writes an entry for Gemini into a file with this text, and returns the new text.
    #[track_caller]
    fn written(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let file = home.join(".gemini/settings.json");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        let Installation::Entry(entry) = planned("gemini", home) else { panic!("{text}") };
        assert!(entry.text().contains("/bin/azureal"), "{}", entry.text());
        entry.write().unwrap();
        assert_eq!(planned("gemini", home), Installation::Installed { file: file.clone() });
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        fs::read_to_string(&file).unwrap()
    }

    #[test]
    fn an_entry_is_added_and_every_other_byte_stays() {
        let entry = |unit: &str| {
            let line = |depth: usize, text: &str| format!("\n{}{text}", unit.repeat(depth));
            let inner = [
                line(3, "\"command\": \"/bin/azureal\","),
                line(3, "\"args\": ["),
                line(4, "\"mcp\""),
                line(3, "]"),
            ];
            format!("{}{}{}", line(2, "\"azureal\": {"), inner.concat(), line(2, "}"))
        };
        let table = |unit: &str| format!("\n{unit}\"mcpServers\": {{{}\n{unit}}}", entry(unit));
        for (before, after) in [
            ("", format!("{{{}\n}}\n", table("  "))),
            (" {\n} ", format!(" {{{}\n}} ", table("  "))),
            ("{\n\t\"a\": 1e5\n}", format!("{{\n\t\"a\": 1e5,{}\n}}", table("\t"))),
            (
                "{\n    \"b\": [1,  2], \"a\": 12345678901234567890123,\n    \"mcpServers\": { }\n}\n",
                format!(
                    "{{\n    \"b\": [1,  2], \"a\": 12345678901234567890123,\n    \"mcpServers\": {{{}\n    }}\n}}\n",
                    entry("    ")
                ),
            ),
            (
                "{\"mcpServers\":{\"x}\\\"\":{\"azureal\":1}} ,\"z\":\"\\u00e9\"}",
                format!(
                    "{{\"mcpServers\":{{\"x}}\\\"\":{{\"azureal\":1}},{}}} ,\"z\":\"\\u00e9\"}}",
                    entry("  ")
                ),
            ),
        ] {
            assert_eq!(written(before), after, "{before}");
        }
    }

    #[test]
    fn an_entry_of_another_kind_is_replaced_and_an_extended_one_is_ours() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let files = [".gemini/settings.json", ".claude.json"].map(|file| home.join(file));
        fs::create_dir_all(files[0].parent().unwrap()).unwrap();
        let write = |entry: &str| {
            for file in &files {
                fs::write(file, format!("{{\"mcpServers\":{{\"azureal\":{entry},\"z\":1}}}}")).unwrap();
            }
        };
        write(r#"{"url":"http://x"}"#);
        let Installation::Entry(entry) = planned("gemini", home) else { panic!() };
        assert_eq!(entry.former.as_deref(), Some(r#"{"url":"http://x"}"#));
        entry.write().unwrap();
        let text = fs::read_to_string(&files[0]).unwrap();
        assert!(!text.contains("url") && text.ends_with(",\"z\":1}}"), "{text}");
        let Installation::Commands { commands, .. } = planned("claude", home) else { panic!() };
        assert_eq!(commands[0], ["mcp", "remove", "--scope", "user", "azureal"]);
        assert_eq!(commands.len(), 2);
        write(r#"{"type":"stdio","command":"/bin/azureal","args":["mcp"],"alwaysLoad":true,"trust":true}"#);
        for agent in ["gemini", "claude"] {
            assert!(matches!(planned(agent, home), Installation::Installed { .. }), "{agent}");
        }
        let codex = home.join(".codex/config.toml");
        fs::create_dir_all(codex.parent().unwrap()).unwrap();
        for (text, is_installed) in [
            (
                "[mcp_servers.azureal]\ncommand = \"/bin/azureal\"\nargs = ['mcp'] # mine\n[mcp_servers.azureal.env]\nA = 'b'\n",
                true,
            ),
            ("mcp_servers = { azureal = { command = \"/bin/azureal\", args = [\"mcp\"] } }", true),
            ("# [mcp_servers.azureal]", false),
            ("[mcp_servers.azureal]\nurl = \"http://x\"", false),
            ("[mcp_servers.azureal]\ncommand = \"/old/azureal\"\nargs = [\"mcp\"]", false),
            ("[[", false),
        ] {
            fs::write(&codex, text).unwrap();
            assert_eq!(
                matches!(planned("codex", home), Installation::Installed { .. }),
                is_installed,
                "{text}"
            );
        }
    }

    #[test]
    fn what_a_user_has_added_to_an_entry_stays_when_the_program_has_moved() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let files = [".gemini/settings.json", ".claude.json"].map(|file| home.join(file));
        fs::create_dir_all(files[0].parent().unwrap()).unwrap();
        for file in &files {
            let former = r#"{"env":{"A":"b"},"command":"/old/azureal","args":["old"],"trust":true}"#;
            fs::write(file, format!("{{\"mcpServers\":{{\"azureal\":{former}}}}}")).unwrap();
        }
        let Installation::Entry(entry) = planned("gemini", home) else { panic!() };
        entry.write().unwrap();
        let settings: Value = serde_json::from_str(&fs::read_to_string(&files[0]).unwrap()).unwrap();
        let expected = json!({"env": {"A": "b"}, "command": "/bin/azureal", "args": ["mcp"], "trust": true});
        assert_eq!(settings["mcpServers"]["azureal"], expected);
        let Installation::Commands { commands, .. } = planned("claude", home) else { panic!() };
        let added: Value = serde_json::from_str(commands[1].last().unwrap()).unwrap();
        assert_eq!((&added["env"]["A"], &added["command"]), (&json!("b"), &json!("/bin/azureal")));
    }

    #[test]
    fn what_an_agent_saves_while_the_user_thinks_stays() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let file = home.join(".gemini/settings.json");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "{\"theme\":\"dark\"}").unwrap();
        let Installation::Entry(entry) = planned("gemini", home) else { panic!() };
        fs::write(&file, "{\"theme\":\"dark\",\"security\":{\"auth\":1}}").unwrap();
        entry.clone().write().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("{\"theme\":\"dark\",\"security\":{\"auth\":1},"), "{text}");
        assert!(matches!(planned("gemini", home), Installation::Installed { .. }), "{text}");
        // Another entry than the one that was shown, and what is no JSON.
        for text in [r#"{"mcpServers":{"azureal":{"url":"http://x"}}}"#, "{"] {
            fs::write(&file, text).unwrap();
            let error = entry.clone().write().unwrap_err();
            assert_eq!((error.kind(), fs::read_to_string(&file).unwrap().as_str()), ("conflict", text));
        }
    }

    #[test]
    fn a_new_file_is_private_and_a_linked_one_stays_linked() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let Installation::Entry(entry) = planned("opencode", home) else { panic!() };
        let file = entry.file.clone();
        entry.write().unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let real = home.join("dotfiles.json");
        fs::write(&real, "{}").unwrap();
        // More than a umask leaves, and what a killed installation leaves.
        fs::set_permissions(&real, Permissions::from_mode(0o666)).unwrap();
        fs::write(home.join("dotfiles.json.azureal-new"), "{").unwrap();
        let link = home.join(".qwen/settings.json");
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let Installation::Entry(entry) = planned("qwen", home) else { panic!() };
        entry.write().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o666);
        assert!(fs::read_to_string(&real).unwrap().contains("azureal"));
    }

    #[test]
    fn a_file_that_cannot_be_written_back_is_left_to_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let file = home.join(".gemini/settings.json");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        for text in ["// mine\n{}", "[]", "{\"mcpServers\""] {
            fs::write(&file, text).unwrap();
            assert!(matches!(planned("gemini", home), Installation::Manual { .. }), "{text}");
        }
        fs::write(&file, r#"{"mcpServers":[]}"#).unwrap();
        assert!(plan("gemini", Path::new("/bin/azureal"), &environment(home)).is_err());
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(home.join("missing"), &file).unwrap();
        let error = plan("gemini", Path::new("/bin/azureal"), &environment(home)).unwrap_err();
        assert!(error.message().ends_with("is a link to a missing file"), "{error:?}");
        fs::remove_file(&file).unwrap();
        fs::write(&file, "{}").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
        let Installation::Entry(entry) = planned("gemini", home) else { panic!() };
        assert_eq!(entry.write().unwrap_err().kind(), "permission");
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
        assert!(matches!(planned("goose", home), Installation::Manual { .. }));
        // Claude Code would replace it by a new one.
        fs::write(home.join(".claude.json"), "{ mine").unwrap();
        let error = plan("claude", Path::new("/bin/azureal"), &environment(home)).unwrap_err();
        assert!(error.message().ends_with(".claude.json is no JSON"), "{error:?}");
        let error = plan("nobody", Path::new("/bin/azureal"), &environment(home)).unwrap_err();
        assert_eq!(error.kind(), "usage");
    }

    #[test]
    fn an_agent_with_a_command_for_it_writes_its_own_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let Installation::Commands { program, commands } = planned("claude", home) else { panic!() };
        assert_eq!((program.as_str(), commands.len()), ("claude", 1));
        assert!(commands[0].last().unwrap().contains("\"alwaysLoad\":true"), "{commands:?}");
        let Installation::Commands { commands, .. } = planned("codex", home) else { panic!() };
        assert_eq!(commands[0].join(" "), "mcp add azureal -- /bin/azureal mcp");
    }
}
