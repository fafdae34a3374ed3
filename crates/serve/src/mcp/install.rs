//! The entry of the recall server in the configuration of an agent.
//!
//! An agent that has a command for it is asked to write its own configuration. For the others, whose configuration is one JSON file, the entry is added here and
//! everything else in the file stays as it is. A file with comments is no JSON that can be written back: then the entry is shown, for the user to add.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use azureal::error::shown;
use azureal::{Environment, Error};
use serde_json::{Map, Value, json};

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
    /// This command of the agent's program does it.
    Command {
        /// The program.
        program: String,
        /// Its arguments.
        args: Vec<String>,
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
    /// The table that the entry is added to.
    table: &'static str,
    entry: Value,
    /// What the file has.
    found: Map<String, Value>,
}

impl Entry {
    /// Returns the text that is added, for people.
    pub fn text(&self) -> String {
        entry_text(self.table, &self.entry)
    }

    /// Writes the file. It is replaced as a whole, or stays as it is.
    pub fn write(mut self) -> Result<(), Error> {
        let failed = |error: &io::Error| Error::file(&self.file, error);
        match self.found.entry(self.table).or_insert_with(|| json!({})) {
            Value::Object(table) => {
                table.insert(NAME.to_owned(), self.entry);
            }
            _ => return Err(not_a_table(&self.file, self.table)),
        }
        let mut text = serde_json::to_string_pretty(&self.found).unwrap_or_default();
        text.push('\n');
        replace(&self.file, &text).map_err(|error| failed(&error))
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
            let has_entry = read_json(&file)?.is_ok_and(|found| has(&found, "mcpServers"));
            // Claude Code shows a model only the names of tools, unless they are always loaded.
            let server = json!({"type": "stdio", "command": program, "args": ["mcp"], "alwaysLoad": true});
            let args = ["mcp", "add-json", "--scope", "user", NAME, &server.to_string()];
            Ok(command_unless(has_entry, file, "claude", &args))
        }
        "codex" => {
            let file = folder("CODEX_HOME", ".codex").join("config.toml");
            let has_entry =
                read_text(&file)?.is_some_and(|text| text.contains(&format!("[mcp_servers.{NAME}]")));
            Ok(command_unless(has_entry, file, "codex", &["mcp", "add", NAME, "--", program, "mcp"]))
        }
        "gemini" => entry(home.join(".gemini/settings.json"), "mcpServers", stdio),
        "qwen" => {
            // As with Claude Code. Here the tools would have to be searched for first.
            let server = json!({"command": program, "args": ["mcp"], "alwaysLoadTools": true});
            entry(home.join(".qwen/settings.json"), "mcpServers", server)
        }
        "copilot" => {
            let server = json!({"type": "local", "command": program, "args": ["mcp"], "tools": ["*"]});
            entry(folder("COPILOT_HOME", ".copilot").join("mcp-config.json"), "mcpServers", server)
        }
        "opencode" => {
            let server = json!({"type": "local", "command": [program, "mcp"], "enabled": true});
            let with_comments = config("opencode").join("opencode.jsonc");
            let plain = config("opencode").join("opencode.json");
            entry(if with_comments.exists() { with_comments } else { plain }, "mcp", server)
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

fn command_unless(is_there: bool, file: PathBuf, program: &str, args: &[&str]) -> Installation {
    if is_there {
        return Installation::Installed { file };
    }
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Installation::Command { program: program.to_owned(), args }
}

/// Plans an entry in a JSON file.
fn entry(file: PathBuf, table: &'static str, entry: Value) -> Result<Installation, Error> {
    let Ok(found) = read_json(&file)? else {
        let text = entry_text(table, &entry);
        return Ok(Installation::Manual { file, text, why: "it has comments, or is no JSON" });
    };
    match found.get(table) {
        Some(Value::Object(servers)) if servers.get(NAME) == Some(&entry) => {
            return Ok(Installation::Installed { file });
        }
        None | Some(Value::Object(_)) => {}
        Some(_) => return Err(not_a_table(&file, table)),
    }
    Ok(Installation::Entry(Entry { file, table, entry, found }))
}

fn entry_text(table: &str, entry: &Value) -> String {
    serde_json::to_string_pretty(&json!({table: {NAME: entry}})).unwrap_or_default()
}

fn not_a_table(file: &Path, table: &str) -> Error {
    Error::new("agent_config", format!("`{table}` in {} is no table", shown(file)))
}

fn has(found: &Map<String, Value>, table: &str) -> bool {
    found.get(table).and_then(|servers| servers.get(NAME)).is_some()
}

/// Reads a file of tables; an empty table if there is none. The inner error is a file that is no such JSON.
fn read_json(file: &Path) -> Result<Result<Map<String, Value>, ()>, Error> {
    let Some(text) = read_text(file)? else { return Ok(Ok(Map::new())) };
    if text.trim().is_empty() {
        return Ok(Ok(Map::new()));
    }
    Ok(serde_json::from_str(&text).map_err(|_| ()))
}

/// Reads a text file of bounded size; `None` if there is none.
fn read_text(file: &Path) -> Result<Option<String>, Error> {
    let failed = |error: &io::Error| Error::file(file, error);
    // Never waits for the other end of a pipe.
    match fs::metadata(file) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(Error::new("agent_config", format!("{} is no file", shown(file)))),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&error)),
    }
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| failed(&error))?;
    opened.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    if text.len() as u64 > LARGEST {
        return Err(Error::new("agent_config", format!("{} is larger than {LARGEST} bytes", shown(file))));
    }
    Ok(Some(text))
}

/// Replaces a file. Behind a link it is the file that the link leads to: people keep their configuration elsewhere and link to it.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let file = match fs::canonicalize(file) {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => file.to_owned(),
        Err(error) => return Err(error),
    };
    let folder = file.parent().ok_or(ErrorKind::InvalidInput)?;
    fs::create_dir_all(folder)?;
    let mode = fs::metadata(&file).map_or(PRIVATE, |metadata| metadata.permissions().mode() & 0o777);
    let name = file.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    let new = folder.join(format!("{name}.azureal-new"));
    let written = (|| {
        let mut out = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        out.write_all(text.as_bytes())?;
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

    #[test]
    fn an_entry_is_added_and_everything_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let file = home.join(".gemini/settings.json");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, r#"{"theme":"dark","mcpServers":{"other":{"url":"x"}},"z":1}"#).unwrap();
        let Installation::Entry(entry) = planned("gemini", home) else { panic!() };
        assert!(entry.text().contains("/bin/azureal"), "{}", entry.text());
        entry.write().unwrap();
        let written: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(
            written,
            json!({"theme": "dark", "mcpServers": {"other": {"url": "x"}, "azureal": {"command": "/bin/azureal", "args": ["mcp"]}}, "z": 1})
        );
        assert_eq!(planned("gemini", home), Installation::Installed { file: file.clone() });
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
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
        let link = home.join(".qwen/settings.json");
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let Installation::Entry(entry) = planned("qwen", home) else { panic!() };
        entry.write().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
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
        assert!(matches!(planned("goose", home), Installation::Manual { .. }));
        let error = plan("nobody", Path::new("/bin/azureal"), &environment(home)).unwrap_err();
        assert_eq!(error.kind(), "usage");
    }

    #[test]
    fn an_agent_with_a_command_for_it_writes_its_own_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let Installation::Command { program, args } = planned("claude", home) else { panic!() };
        assert_eq!(program, "claude");
        assert!(args.last().unwrap().contains("\"alwaysLoad\":true"), "{args:?}");
        let Installation::Command { args, .. } = planned("codex", home) else { panic!() };
        assert_eq!(args.join(" "), "mcp add azureal -- /bin/azureal mcp");
        fs::write(home.join(".claude.json"), r#"{"mcpServers":{"azureal":{}}}"#).unwrap();
        assert!(matches!(planned("claude", home), Installation::Installed { .. }));
    }
}
