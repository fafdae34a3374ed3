//! The start of a run, completed: where the agent runs, which agent it is, and which model was requested.
//!
//! Live events and stored events both come through [`TurnParser`], so they agree.

use azureal_core::Event;
use azureal_core::agent::{Agent, AgentOutput, AgentParser, Ending};
use azureal_core::event::{Init, ModelSwitch};

use crate::header::SpooledTurn;

/// The start of a run as far as we know it ourselves.
pub(crate) struct RunStart {
    known: Init,
    /// Stored before the first start of the run.
    switch: Option<ModelSwitch>,
    has_begun: bool,
}

impl RunStart {
    pub(crate) fn of(turn: &SpooledTurn) -> Self {
        Self {
            known: Init {
                cwd: turn.directory.display().to_string(),
                model: turn.model.clone().unwrap_or_default(),
                agent: Some(turn.agent.clone()),
                agent_session: None,
                requested_model: turn.model.clone(),
            },
            switch: turn
                .switches_model
                .then(|| ModelSwitch::reported(turn.model.as_deref().unwrap_or(ModelSwitch::DEFAULT))),
            has_begun: false,
        }
    }

    /// Completes the start that the agent reports.
    fn reported(&mut self, init: Init) -> Vec<Event> {
        self.has_begun = true;
        let or_known = |said: String, known: &str| if said.is_empty() { known.to_owned() } else { said };
        let init = Init {
            cwd: or_known(init.cwd, &self.known.cwd),
            model: or_known(init.model, &self.known.model),
            agent: init.agent.or_else(|| self.known.agent.clone()),
            agent_session: init.agent_session,
            requested_model: self.known.requested_model.clone(),
        };
        self.switch.take().map(Event::ModelSwitch).into_iter().chain([Event::Init(init)]).collect()
    }

    /// Returns the start of a run that never reported one, so that its agent is still the session's last agent.
    pub(crate) fn unreported(&mut self) -> Vec<Event> {
        if self.has_begun { Vec::new() } else { self.reported(Init::default()) }
    }
}

/// Parses the output of one turn.
pub(crate) struct TurnParser {
    agent: Box<dyn AgentParser>,
    start: RunStart,
}

impl TurnParser {
    pub(crate) fn new(agent: &dyn Agent, turn: &SpooledTurn) -> Self {
        Self { agent: agent.parser(), start: RunStart::of(turn) }
    }

    /// Parses from where the program was started a second time: what comes before the first start is known.
    pub(crate) fn has_switched(&mut self) {
        self.start.switch = None;
    }
}

impl AgentParser for TurnParser {
    fn line(&mut self, line: &[u8]) -> Vec<AgentOutput> {
        let outputs = self.agent.line(line).into_iter();
        let complete = |output| match output {
            AgentOutput::Event(Event::Init(init)) => {
                self.start.reported(init).into_iter().map(AgentOutput::Event).collect()
            }
            other => vec![other],
        };
        outputs.flat_map(complete).collect()
    }

    fn end(&mut self, ending: &Ending) -> Vec<AgentOutput> {
        let start = self.start.unreported().into_iter().map(AgentOutput::Event);
        start.chain(self.agent.end(ending)).collect()
    }
}
