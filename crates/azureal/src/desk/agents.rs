//! The agents of this machine.

use std::sync::Arc;
use std::thread;

use azureal_agents::registry;
use azureal_core::agent::{Agent, Program};

use super::shared::Shared;
use super::{AgentLine, News};
use crate::agents::version::{Answer, Versions, ask};
use crate::agents::{ProgramFile, problem_of, program_of};

impl Shared {
    /// Sends the agents, with the versions that are known; and again when those that are not have been asked.
    pub(super) fn find_agents(self: &Arc<Self>) {
        let environment = self.workspace.environment();
        let cache = Versions::load(environment.cache());
        let mut found: Vec<Found> =
            registry::all().iter().map(|agent| Found::of(*agent, self, &cache)).collect();
        let is_asked = |found: &Found| found.answer.is_none() && found.file.is_some();
        let lines = |found: &[Found]| News::Agents(found.iter().map(|found| found.line(self)).collect());
        self.outbox.send(lines(&found));
        if !found.iter().any(is_asked) {
            return;
        }
        let directory = self.workspace.project.directory();
        thread::scope(|scope| {
            for found in found.iter_mut().filter(|found| is_asked(found)) {
                scope.spawn(move || {
                    if let Some(file) = &found.program {
                        found.answer = Some(ask(file, directory, environment, &|| false));
                    }
                });
            }
        });
        let mut cache = Versions::load(environment.cache());
        for found in &found {
            if let (Some(Answer::Version(version)), Some(file)) = (&found.answer, &found.file) {
                cache.add(file.clone(), version.clone());
            }
        }
        cache.save();
        self.outbox.send(lines(&found));
    }
}

/// An agent, and what is known of its program.
struct Found {
    agent: &'static dyn Agent,
    program: Option<std::path::PathBuf>,
    /// The file of the program; `None` for a built-in agent.
    file: Option<ProgramFile>,
    answer: Option<Answer>,
}

impl Found {
    fn of(agent: &'static dyn Agent, shared: &Shared, cache: &Versions) -> Self {
        let program = program_of(agent, shared.workspace.environment()).and_then(Result::ok);
        let is_named = matches!(agent.program(), Program::Named(_));
        let file = program.as_deref().filter(|_| is_named).and_then(ProgramFile::of);
        let answer = file.as_ref().and_then(|file| cache.get(file)).map(Answer::Version);
        Self { agent, program, file, answer }
    }

    fn line(&self, shared: &Shared) -> AgentLine {
        let is_built_in = self.agent.program() == Program::Ourselves;
        let version = match &self.answer {
            Some(Answer::Version(version)) => Some(version.clone()),
            _ if is_built_in => Some("built in".to_owned()),
            // Installed, and its version is not known yet.
            _ => self.program.as_ref().map(|_| String::new()),
        };
        let problem = match self.answer {
            None if self.program.is_some() => None,
            _ => {
                let environment = shared.workspace.environment();
                problem_of(self.agent, self.program.as_deref(), self.answer.as_ref(), environment)
            }
        };
        AgentLine {
            name: self.agent.name().to_owned(),
            version,
            models: self.agent.models().iter().map(|model| (*model).to_owned()).collect(),
            hint: problem.map(|(_, hint)| hint.unwrap_or_else(|| "not installed".to_owned())),
        }
    }
}
