//! The known agents, by name and by model.

use azureal_core::agent::Agent;

use crate::claude::Claude;
use crate::codex::Codex;
use crate::offline::Offline;

/// Every agent, in the order in which they are preferred. A new one is a line here.
static AGENTS: &[&dyn Agent] = &[&Claude, &Codex, &Offline];

/// An agent, and the model that it is to be asked for.
#[derive(Clone)]
pub struct Choice {
    /// The agent.
    pub agent: &'static dyn Agent,
    /// The model, without the agent's name; the agent's own choice without one.
    pub model: Option<String>,
}

/// A name that belongs to no agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownAgent {
    /// There is no agent of this name.
    #[error("there is no agent {name:?}; there are {}", names())]
    Name {
        /// The name that was asked for.
        name: String,
    },
    /// There is no agent that answers for this model.
    #[error("no agent is known to answer for the model {model:?}; there are {}", names())]
    Model {
        /// The model that was asked for.
        model: String,
    },
}

impl UnknownAgent {
    /// Returns what a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Name { .. } => "`azureal agents` shows which are installed",
            Self::Model { .. } => "say both, as in `codex/gpt-5.4` or `claude/opus`",
        }
    }
}

fn names() -> String {
    AGENTS.iter().map(|agent| agent.name()).collect::<Vec<_>>().join(", ")
}

/// Returns every agent, in the order in which they are preferred.
pub fn all() -> &'static [&'static dyn Agent] {
    AGENTS
}

/// Finds an agent by its name.
///
/// ```
/// use azureal_agents::registry;
///
/// assert_eq!(registry::find("codex")?.name(), "codex");
/// let error = registry::find("eliza").err().map(|error| error.to_string());
/// assert_eq!(error.as_deref(), Some("there is no agent \"eliza\"; there are claude, codex, offline"));
/// # Ok::<(), registry::UnknownAgent>(())
/// ```
pub fn find(name: &str) -> Result<&'static dyn Agent, UnknownAgent> {
    named(name).ok_or_else(|| UnknownAgent::Name { name: name.to_owned() })
}

/// Finds the agent for a model: `opus`, `gpt-5.4`, or both in one, `offline/ada`.
///
/// A name without a model, `codex` or `codex/`, leaves the model to the agent.
///
/// ```
/// use azureal_agents::registry;
///
/// let choice = registry::for_model("sonnet")?;
/// assert_eq!((choice.agent.name(), choice.model.as_deref()), ("claude", Some("sonnet")));
/// let choice = registry::for_model("codex/my-own")?;
/// assert_eq!((choice.agent.name(), choice.model.as_deref()), ("codex", Some("my-own")));
/// # Ok::<(), registry::UnknownAgent>(())
/// ```
pub fn for_model(model: &str) -> Result<Choice, UnknownAgent> {
    let (name, rest) = model.split_once('/').unwrap_or((model, ""));
    if let Some(agent) = named(name) {
        let model = (!rest.is_empty()).then(|| rest.to_owned());
        return Ok(Choice { agent, model });
    }
    let agent = AGENTS.iter().copied().find(|agent| agent.answers_for(model));
    let agent = agent.ok_or_else(|| UnknownAgent::Model { model: model.to_owned() })?;
    Ok(Choice { agent, model: Some(model.to_owned()) })
}

fn named(name: &str) -> Option<&'static dyn Agent> {
    AGENTS.iter().copied().find(|agent| agent.name().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_chooses_its_agent() {
        for (model, agent, rest) in [
            ("opus", "claude", Some("opus")),
            ("sonnet[1m]", "claude", Some("sonnet[1m]")),
            ("Haiku", "claude", Some("Haiku")),
            ("claude-opus-4-8", "claude", Some("claude-opus-4-8")),
            ("gpt-5.4", "codex", Some("gpt-5.4")),
            ("o3", "codex", Some("o3")),
            ("o4-mini", "codex", Some("o4-mini")),
            ("codex-mini-latest", "codex", Some("codex-mini-latest")),
            ("codex/gpt-5.4", "codex", Some("gpt-5.4")),
            ("codex/opus", "codex", Some("opus")),
            ("claude/vendor/model", "claude", Some("vendor/model")),
            ("ada", "offline", Some("ada")),
            ("offline/ben", "offline", Some("ben")),
            ("codex", "codex", None),
            ("claude/", "claude", None),
            ("OFFLINE", "offline", None),
        ] {
            let choice = for_model(model).unwrap();
            assert_eq!((choice.agent.name(), choice.model.as_deref()), (agent, rest), "{model}");
        }
    }

    #[test]
    fn what_is_not_known_is_answered_with_what_there_is() {
        for model in ["", "/", "llama-3", "o", "opera", "gpt", "vendor/opus", "claude4"] {
            let error = for_model(model).err().unwrap();
            assert!(error.to_string().ends_with("there are claude, codex, offline"), "{error}");
        }
        assert_eq!(find("gpt-5").err(), Some(UnknownAgent::Name { name: "gpt-5".into() }));
    }

    #[test]
    fn names_are_found_and_stand_alone() {
        for agent in all() {
            assert_eq!(find(agent.name()).unwrap().name(), agent.name());
            assert_eq!(all().iter().filter(|other| other.name() == agent.name()).count(), 1);
        }
    }
}
