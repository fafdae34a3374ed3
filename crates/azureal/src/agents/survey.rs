//! The state of all agents of this machine.

use std::path::{Path, PathBuf};
use std::thread;

use azureal_agents::registry;
use azureal_core::agent::Program;

use super::version::{Answer, Versions, ask};
use super::{Problem, ProgramFile, problem_of, program_of};
use crate::environment::Environment;

/// The state of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentState {
    /// Its name.
    pub agent: &'static str,
    /// Its program; `None` if it is not installed.
    pub program: Option<PathBuf>,
    /// Whether azureal itself is the agent.
    pub is_built_in: bool,
    /// The version that its program says; `None` if it says none, and of a built-in agent.
    pub version: Option<String>,
    /// The reason why it cannot be used.
    pub problem: Option<Problem>,
    /// What to do about that.
    pub hint: Option<String>,
}

/// Finds the state of all agents, in the order of preference. Asks programs whose version is not in the cache, all at the same time;
/// `None` if that was cancelled.
pub fn survey(
    environment: &Environment,
    is_cancelled: &(dyn Fn() -> bool + Sync),
) -> Option<Vec<AgentState>> {
    let programs: Vec<Option<PathBuf>> =
        registry::all().iter().map(|agent| program_of(*agent, environment).and_then(Result::ok)).collect();
    let external = registry::all().iter().zip(&programs).map(|(agent, program)| match agent.program() {
        Program::Named(_) => program.as_deref(),
        Program::Ourselves => None,
    });
    let answers = versions(&external.collect::<Vec<_>>(), environment, is_cancelled)?;
    let agents = registry::all().iter().zip(programs).zip(answers);
    let state = agents.map(|((agent, program), answer)| {
        let problem = problem_of(*agent, program.as_deref(), answer.as_ref(), environment);
        let (problem, hint) = problem.unzip();
        let version = match answer {
            Some(Answer::Version(version)) => Some(version),
            Some(Answer::Failed | Answer::TooSlow) | None => None,
        };
        let is_built_in = agent.program() == Program::Ourselves;
        AgentState { agent: agent.name(), program, is_built_in, version, problem, hint: hint.flatten() }
    });
    Some(state.collect())
}

/// Finds the versions of programs: in the cache, else by asking them.
fn versions(
    programs: &[Option<&Path>],
    environment: &Environment,
    is_cancelled: &(dyn Fn() -> bool + Sync),
) -> Option<Vec<Option<Answer>>> {
    let mut cache = Versions::load(environment.cache());
    let asked: Vec<Option<ProgramFile>> =
        programs.iter().map(|program| ProgramFile::of((*program)?)).collect();
    let mut answers: Vec<Option<Answer>> =
        asked.iter().map(|asked| cache.get(asked.as_ref()?).map(Answer::Version)).collect();
    let missing: Vec<(usize, &Path)> = programs
        .iter()
        .enumerate()
        .filter(|(index, _)| answers.get(*index).is_some_and(Option::is_none))
        .filter_map(|(index, program)| Some((index, (*program)?)))
        .collect();
    if missing.is_empty() {
        return Some(answers);
    }
    let said: Vec<(usize, Answer)> = thread::scope(|scope| {
        let asking: Vec<_> = missing
            .into_iter()
            .map(|(index, program)| {
                scope.spawn(move || (index, ask(program, Path::new("."), environment, &|| is_cancelled())))
            })
            .collect();
        asking.into_iter().filter_map(|asking| asking.join().ok()).collect()
    });
    if is_cancelled() {
        return None;
    }
    for (index, answer) in said {
        if let (Answer::Version(version), Some(Some(asked))) = (&answer, asked.get(index)) {
            cache.add(asked.clone(), version.clone());
        }
        if let Some(place) = answers.get_mut(index) {
            *place = Some(answer);
        }
    }
    cache.save();
    Some(answers)
}
