//! The switcher of agent and model.

use azureal::desk::{AgentLine, NextAgent};
use azureal::transcript::Tone;

use super::Picker;
use super::view::{View, back, choose, keys, picker_input, plain, toned};
use crate::draw::text::{pad, wrap};
use crate::state::State;
use crate::theme::Mark;

/// Below this width, versions are not shown.
const NARROW: u16 = 50;

/// An agent and model that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentOption {
    pub(super) next: NextAgent,
    /// The version; `None` if the agent is not installed.
    version: Option<String>,
    /// How to install it, if it is not.
    pub(super) hint: Option<String>,
    is_typed: bool,
}

/// Returns the agents and models that match the typed text, and the typed model itself.
pub(super) fn options(state: &State, picker: &Picker) -> Vec<AgentOption> {
    let agents = state.agents.as_deref().unwrap_or_default();
    let typed = picker.input.text();
    let typed = typed.trim();
    let lower = typed.to_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let mut options = Vec::new();
    // Those that can be used come first.
    let (installed, missing): (Vec<_>, Vec<_>) = agents.iter().partition(|agent| agent.version.is_some());
    for agent in installed.into_iter().chain(missing) {
        for model in std::iter::once(None).chain(agent.models.iter().map(Some)) {
            let text = format!("{} {}", agent.name, model.map_or("", String::as_str)).to_lowercase();
            if words.iter().all(|word| text.contains(word)) {
                options.push(option(agent, model.cloned(), false));
            }
        }
    }
    if let Some(free) = typed_model(state, agents, typed)
        && !options.iter().any(|option| option.next == free.next)
    {
        options.push(free);
    }
    options
}

fn option(agent: &AgentLine, model: Option<String>, is_typed: bool) -> AgentOption {
    AgentOption {
        next: NextAgent { agent: Some(agent.name.clone()), model },
        version: agent.version.clone(),
        hint: agent.hint.clone(),
        is_typed,
    }
}

/// Returns the model that was typed: after the name of an agent, or for the agent of the next turn.
fn typed_model(state: &State, agents: &[AgentLine], typed: &str) -> Option<AgentOption> {
    let (first, rest) = typed.split_once(' ').unwrap_or((typed, ""));
    let named = agents.iter().find(|agent| agent.name == first);
    let current = state.slot().and_then(|slot| slot.pane.next_agent().agent.clone());
    let current = agents
        .iter()
        .find(|agent| Some(&agent.name) == current.as_ref())
        .or_else(|| agents.iter().find(|agent| agent.version.is_some()));
    let (agent, model) = match named {
        Some(agent) => (agent, rest.trim()),
        None => (current?, typed),
    };
    let is_model = !model.is_empty() && !model.contains(char::is_whitespace);
    is_model.then(|| option(agent, Some(model.to_owned()), true))
}

/// Returns a picker in which the agent and model of the next turn are chosen.
pub(crate) fn picker(state: &State) -> Picker {
    let mut picker = Picker::default();
    let current = state.slot().map(|slot| slot.pane.next_agent());
    let options = options(state, &picker);
    picker.chosen = options.iter().position(|option| Some(&option.next) == current).unwrap_or(0);
    picker
}

/// Returns the number in a version: agents print their names with it.
pub(crate) fn version_number(version: &str) -> &str {
    let is_number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    version.split_whitespace().find(is_number).unwrap_or(version)
}

/// Returns the switcher.
pub(super) fn view(state: &State, picker: &Picker, width: u16) -> View {
    let options = options(state, picker);
    let theme = &state.theme;
    let current = state.slot().map(|slot| slot.pane.next_agent().clone()).unwrap_or_default();
    let name_width = 10.min(width / 4);
    // On a narrow screen the names of models need the room of the versions.
    let has_versions = width >= NARROW;
    let beside = if has_versions { 20 } else { 7 };
    let model_width = width.saturating_sub(name_width).saturating_sub(beside).min(40);
    let mut rows: Vec<_> = options
        .iter()
        .map(|option| {
            let model = match (&option.next.model, option.is_typed) {
                (Some(model), true) => format!("{model} (as typed)"),
                (Some(model), false) => model.clone(),
                (None, _) => "default model".to_owned(),
            };
            let (mark, tone, version) = match &option.version {
                Some(version) => (theme.mark(Mark::Good), Tone::Good, version_number(version).to_owned()),
                None => (theme.mark(Mark::Bad), Tone::Bad, "not installed".to_owned()),
            };
            let now = if option.next == current { " now" } else { "" };
            let version = if has_versions { pad(&format!(" {version}"), 14, theme) } else { String::new() };
            vec![
                plain(pad(option.next.agent.as_deref().unwrap_or_default(), name_width, theme)),
                plain(" "),
                plain(pad(&model, model_width, theme)),
                plain(" "),
                toned(state, mark, tone),
                plain(version),
                plain(now),
            ]
        })
        .collect();
    let chosen = picker.chosen.min(options.len().saturating_sub(1));
    if state.agents.is_none() {
        rows.push(vec![plain("The agents are being found.")]);
    }
    if let Some(hint) = options.get(chosen).and_then(|option| option.hint.as_ref()) {
        rows.push(Vec::new());
        rows.extend(wrap(hint, width, 3, theme).into_iter().map(|line| vec![plain(line)]));
    }
    View {
        title: "Agent and model of the next turn".to_owned(),
        input: picker_input("filter, or a model: ", picker),
        rows,
        chosen: (!options.is_empty()).then_some(chosen),
        keys: keys(state, &[&choose(state, "choose"), "↵ use", &back(state, "back")]),
        ..View::default()
    }
}
