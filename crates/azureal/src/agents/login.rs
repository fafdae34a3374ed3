//! Traces of a login to an agent, found without the network and without running it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use azureal_agents::registry;
use azureal_core::agent::Login;
use azureal_core::event::ErrorEvent;

use crate::environment::Environment;

/// The bytes of a settings file that are searched.
const SETTINGS_BYTES: u64 = 1 << 20;

/// Returns whether a login has left a trace. Where it may be out of sight, the answer is yes.
pub fn is_logged_in(login: &Login, environment: &Environment) -> bool {
    let variable = |name: &str| environment.value(name).map(OsStr::to_owned);
    (login.in_keychain && cfg!(target_os = "macos"))
        || is_seen_in(login, &variable, environment.home().as_deref())
}

/// Returns how to log in, if the error of an agent means that its login is missing or was refused.
pub fn login_hint(agent: &str, error: &ErrorEvent) -> Option<String> {
    let login = registry::find(agent).ok()?.needs()?.login;
    let key =
        login.variables.first().map_or_else(String::new, |key| format!(", or set `{key}` to a valid key"));
    login.is_missing_in(error).then(|| format!("run `{}` in a terminal{key}", login.command))
}

fn is_seen_in(login: &Login, variable: &dyn Fn(&str) -> Option<OsString>, home: Option<&Path>) -> bool {
    let value = |name: &str| variable(name).filter(|value| !value.is_empty());
    if login.variables.iter().any(|name| value(name).is_some()) {
        return true;
    }
    let folder = value(login.variable).map(PathBuf::from).or_else(|| Some(home?.join(login.home)));
    let Some(folder) = folder else { return false };
    login.files.iter().any(|file| folder.join(file).exists())
        || login.settings.iter().any(|(file, words)| mentions(&folder.join(file), words))
}

/// Returns whether a settings file contains one of these words. Their exact use is up to the program.
fn mentions(file: &Path, words: &[&str]) -> bool {
    if !file.is_file() {
        return false;
    }
    let mut text = Vec::new();
    let read = File::open(file).and_then(|file| file.take(SETTINGS_BYTES).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    read.is_ok() && words.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_error_of_a_missing_login_names_the_command() {
        let hint = |agent, kind: &str, message: &str| {
            login_hint(agent, &ErrorEvent { kind: kind.to_owned(), message: message.to_owned() })
        };
        assert_eq!(
            hint("claude", "authentication_failed", "Not logged in").as_deref(),
            Some("run `claude /login` in a terminal, or set `ANTHROPIC_API_KEY` to a valid key")
        );
        assert_eq!(
            hint("codex", "turn_failed", "unexpected status 401 Unauthorized: x").as_deref(),
            Some("run `codex login` in a terminal, or set `CODEX_API_KEY` to a valid key")
        );
        for (agent, kind, message) in [
            ("claude", "server_error", "API Error: Unable to connect"),
            ("codex", "turn_failed", "Connection failed"),
            ("offline", "authentication_failed", ""),
            ("eliza", "authentication_failed", ""),
        ] {
            assert_eq!(hint(agent, kind, message), None, "{agent}: {message}");
        }
    }

    #[test]
    fn each_trace_of_a_login_is_enough() {
        for (agent, variables, files, expected) in [
            ("claude", &[][..], &[][..], false),
            ("claude", &[("ANTHROPIC_API_KEY", "k")], &[], true),
            ("claude", &[("ANTHROPIC_API_KEY", "")], &[], false),
            ("claude", &[("OPENAI_API_KEY", "k")], &[], false),
            ("claude", &[], &[(".claude/.credentials.json", "{}")], true),
            ("claude", &[], &[(".claude/settings.json", r#"{"apiKeyHelper": "x"}"#)], true),
            ("claude", &[], &[(".claude/settings.json", r#"{"model": "opus"}"#)], false),
            ("claude", &[], &[(".claude.json", r#"{"oauthAccount": {}}"#)], true),
            ("claude", &[], &[(".claude.json", r#"{"numStartups": 3}"#)], false),
            ("codex", &[], &[], false),
            ("codex", &[("CODEX_API_KEY", "k")], &[], true),
            ("codex", &[], &[(".codex/auth.json", "{}")], true),
            ("codex", &[], &[(".codex/config.toml", "model = \"x\"")], false),
            ("codex", &[], &[(".codex/config.toml", "model_provider = \"local\"")], true),
        ] {
            let home = tempfile::tempdir().unwrap();
            fs::create_dir(home.path().join(".claude")).unwrap();
            for (file, text) in files {
                let file = home.path().join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            };
            let login = registry::find(agent).unwrap().needs().unwrap().login;
            let seen = is_seen_in(&login, &variable, Some(home.path()));
            assert_eq!(seen, expected, "{agent} {variables:?} {files:?}");
        }
    }

    #[test]
    fn the_folder_of_an_agent_can_be_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("auth.json"), "{}").unwrap();
        let login = registry::find("codex").unwrap().needs().unwrap().login;
        let elsewhere = |name: &str| (name == "CODEX_HOME").then(|| folder.path().into());
        assert!(is_seen_in(&login, &elsewhere, Some(Path::new("/nowhere"))));
        assert!(!is_seen_in(&login, &|_| None, None));
    }
}
