//! The choice of the agent, and the path of its program.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use azureal_agents::registry::{self, UnknownAgent};
use azureal_core::agent::{Agent, Program};
use rustix::fs::{Access, access};
use tracing::info;

use crate::environment::Environment;
use crate::error::{Error, quoted};

/// The agent that answers, the model that it is asked for, and its program.
pub struct AgentChoice {
    /// The agent.
    pub agent: &'static dyn Agent,
    /// The model; `None` for the agent's own choice.
    pub model: Option<String>,
    /// The program.
    pub program: PathBuf,
    /// Whether no agent is installed, and the built-in one answers instead, which has no model behind it.
    pub is_fallback: bool,
}

/// The named, last and configured agents and models.
#[derive(Debug, Default)]
pub struct Wanted<'a> {
    /// The agent that the user names now, such as `claude` or `claude/opus`.
    pub agent: Option<&'a str>,
    /// The model that the user names now.
    pub model: Option<&'a str>,
    /// The agent of the session's last turn.
    pub last_agent: Option<&'a str>,
    /// The model that was asked for in that turn.
    pub last_model: Option<&'a str>,
    /// The configured agent.
    pub configured_agent: Option<&'a str>,
    /// The configured model.
    pub configured_model: Option<&'a str>,
}

/// Asks for no model: the agent's own choice.
const DEFAULT_MODEL: &str = "default";

/// Chooses the agent: the one that is named, else the session's last one, else the configured one, else the first that is
/// installed, else the one that is built in.
pub fn choose(wanted: &Wanted<'_>, environment: &Environment) -> Result<AgentChoice, Error> {
    let (agent, model) = match (wanted.agent, wanted.model) {
        (Some(name), None) => named(name)?,
        (Some(name), Some(DEFAULT_MODEL)) => (named(name)?.0, None),
        (Some(name), Some(model)) => with_model(name, model)?,
        (None, Some(DEFAULT_MODEL)) => (usual(wanted, environment)?, None),
        (None, Some(model)) => {
            let choice = registry::for_model(model)?;
            (choice.agent, choice.model)
        }
        (None, None) => (usual(wanted, environment)?, None),
    };
    let is_last = wanted.last_agent == Some(agent.name());
    let model = match wanted.model {
        Some(DEFAULT_MODEL) => None,
        _ => model
            .or_else(|| wanted.last_model.filter(|_| is_last).map(str::to_owned))
            .or_else(|| configured_model(agent, wanted)),
    };
    let is_fallback = agent.program() == Program::Ourselves
        && [wanted.agent, wanted.model.filter(|model| *model != DEFAULT_MODEL), wanted.configured_model]
            .iter()
            .all(Option::is_none)
        && known(wanted).is_none();
    let because = reason(wanted);
    info!(agent = agent.name(), has_model = model.is_some(), is_fallback, because, "chose the agent");
    let program = program_of(agent, environment).ok_or_else(|| {
        Error::new("not_installed", format!("{} is not installed: it is not on the PATH", agent.name()))
            .with_hint("install it, or name another with `-a`; `azureal agents` shows which there are")
    })??;
    Ok(AgentChoice { agent, model, program, is_fallback })
}

/// Returns why an agent is chosen, for the log.
fn reason(wanted: &Wanted<'_>) -> &'static str {
    let is_known = |name: Option<&str>| name.is_some_and(|name| registry::find(name).is_ok());
    match wanted {
        Wanted { agent: Some(_), .. } => "named",
        Wanted { model: Some(model), .. } if *model != DEFAULT_MODEL => "the model was named",
        Wanted { last_agent, .. } if is_known(*last_agent) => "the last agent of the session",
        Wanted { configured_agent, .. } if is_known(*configured_agent) => "configured",
        Wanted { configured_model: Some(_), .. } => "the model is configured",
        _ => "the first that is installed",
    }
}

/// Reads `claude`, or both in one, `claude/opus`.
fn named(name: &str) -> Result<(&'static dyn Agent, Option<String>), Error> {
    let (name, model) = name.split_once('/').unwrap_or((name, ""));
    let agent = registry::find(name)?;
    Ok((agent, (!model.is_empty()).then(|| model.to_owned())))
}

/// Reads an agent and a model. The agent is given, so the model may be an unknown one.
fn with_model(name: &str, model: &str) -> Result<(&'static dyn Agent, Option<String>), Error> {
    let (agent, _) = named(name)?;
    let names_agent = model.split('/').next().is_some_and(|first| registry::find(first).is_ok());
    if !names_agent {
        return Ok((agent, Some(model.to_owned())));
    }
    let choice = registry::for_model(model)?;
    if choice.agent.name() != agent.name() {
        let message = format!("{} is not a model of {}", quoted(model), agent.name());
        return Err(Error::usage(message).with_hint("`-m` alone chooses the agent too"));
    }
    Ok((agent, choice.model))
}

/// Returns the configured model, if it is one of this agent's.
fn configured_model(agent: &dyn Agent, wanted: &Wanted<'_>) -> Option<String> {
    let model = wanted.configured_model?;
    match registry::for_model(model) {
        Ok(choice) if choice.agent.name() == agent.name() => choice.model,
        // The model is unknown, but the configuration names its agent.
        Err(_) if wanted.configured_agent == Some(agent.name()) => Some(model.to_owned()),
        Ok(_) | Err(_) => None,
    }
}

/// Returns the agent of the session, else the configured one.
fn known(wanted: &Wanted<'_>) -> Option<&'static dyn Agent> {
    let mut named = [wanted.last_agent, wanted.configured_agent].into_iter().flatten();
    named.find_map(|name| registry::find(name).ok())
}

fn usual(wanted: &Wanted<'_>, environment: &Environment) -> Result<&'static dyn Agent, Error> {
    if let Some(agent) = known(wanted) {
        return Ok(agent);
    }
    if let Some(model) = wanted.configured_model {
        return Ok(registry::for_model(model)?.agent);
    }
    let installed = registry::all().iter().copied().find(|agent| program_of(*agent, environment).is_some());
    // The built-in one is always there, and the last of them.
    Ok(installed.unwrap_or(&azureal_agents::offline::Offline))
}

impl From<UnknownAgent> for Error {
    fn from(error: UnknownAgent) -> Self {
        Self::new("unknown_agent", error.to_string()).with_hint(error.hint())
    }
}

/// Returns the program of an agent; `None` if it is not installed.
pub fn program_of(agent: &dyn Agent, environment: &Environment) -> Option<Result<PathBuf, Error>> {
    match agent.program() {
        Program::Named(name) => on_path(name, environment.value("PATH")).map(Ok),
        Program::Ourselves => Some(environment.own_program().map(Path::to_owned)),
    }
}

/// Finds a program in the folders of a PATH. Only absolute ones count: the others depend on where one is.
pub(crate) fn on_path(name: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    path?
        .as_bytes()
        .split(|byte| *byte == b':')
        .map(|folder| Path::new(OsStr::from_bytes(folder)))
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_is_an_executable_file_in_an_absolute_folder() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a", "b"].map(|name| folder.path().join(name));
        for folder in [&first, &second] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("x"), "").unwrap();
        }
        let path = std::env::join_paths([Path::new(""), Path::new("."), &first, &second]).unwrap();
        assert_eq!(on_path("x", Some(&path)), None);
        fs::set_permissions(second.join("x"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(on_path("x", Some(&path)), Some(second.join("x")));
        assert_eq!(on_path("a", Some(folder.path().as_os_str())), None, "a folder is no program");
        assert_eq!(on_path("x", None), None);
    }

    #[test]
    fn the_choice_is_logged_with_its_reason() {
        let wanted = Wanted { last_agent: Some("codex"), model: Some("a-secret/model"), ..Wanted::default() };
        let named = Wanted { agent: Some("claude/a-secret"), ..Wanted::default() };
        let last = Wanted { last_agent: Some("codex"), last_model: Some("a-secret"), ..Wanted::default() };
        let log = azureal_testkit::captured_log(|| {
            for wanted in [wanted, named, last] {
                assert!(choose(&wanted, &Environment::default()).is_err(), "nothing is installed");
            }
        });
        for part in [
            r#"chose the agent agent="claude" has_model=true is_fallback=false because="named""#,
            r#"chose the agent agent="codex" has_model=true is_fallback=false because="the last agent of the session""#,
        ] {
            assert!(log.contains(part), "{part}: {log}");
        }
        assert!(!log.contains("a-secret"), "{log}");
    }

    #[test]
    fn what_is_configured_counts_where_nobody_says_otherwise() {
        let chosen = |wanted: Wanted<'_>| {
            let agent = usual(&wanted, &Environment::default()).unwrap();
            (agent.name(), configured_model(agent, &wanted))
        };
        let configured =
            |agent, model| Wanted { configured_agent: agent, configured_model: model, ..Wanted::default() };
        assert_eq!(chosen(configured(Some("codex"), None)), ("codex", None));
        assert_eq!(chosen(configured(None, Some("opus"))), ("claude", Some("opus".into())));
        assert_eq!(chosen(configured(Some("codex"), Some("own"))), ("codex", Some("own".into())));
        let last = |last_agent| Wanted { last_agent: Some(last_agent), ..configured(None, Some("opus")) };
        assert_eq!(chosen(last("codex")), ("codex", None), "it is no model of this one");
        assert_eq!(chosen(last("claude")), ("claude", Some("opus".into())));
        assert_eq!(chosen(configured(None, Some("claude/x"))), ("claude", Some("x".into())));
        let unknown = usual(&configured(None, Some("unheard-of")), &Environment::default()).err().unwrap();
        assert_eq!(unknown.kind(), "unknown_agent");
    }

    #[test]
    fn agent_and_model_are_read_together() {
        let read = |agent, model| with_model(agent, model).map(|(agent, model)| (agent.name(), model));
        assert_eq!(read("codex", "my-own").unwrap(), ("codex", Some("my-own".into())));
        assert_eq!(read("codex", "codex/x").unwrap(), ("codex", Some("x".into())));
        assert_eq!(read("codex", "claude/x").unwrap_err().kind(), "usage");
        let (agent, model) = named("claude/opus").unwrap();
        assert_eq!((agent.name(), model.as_deref()), ("claude", Some("opus")));
        assert_eq!(named("eliza").err().unwrap().kind(), "unknown_agent");
    }
}
