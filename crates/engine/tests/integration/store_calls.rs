//! How often a turn asks its store: on a server each call is a round trip.

use std::sync::Arc;

use azureal_agents::offline::Offline;
use azureal_core::agent::{Agent, AgentCommand, AgentError, AgentOutput, AgentParser, AgentRequest, Program};
use azureal_core::event::{Init, Outcome};
use azureal_core::{ContextCommand, Event, NewSession, OnFailure};
use azureal_engine::{
    Briefing, Engine, FinishedTurn, SessionTarget, TurnError, TurnEvent, TurnOptions, TurnRequest,
};
use futures_executor::block_on;

use crate::counting_store::CountingStore;
use azureal_testkit::until;

use crate::harness::{DONE, Project, drive, leak, says, waits_for};

/// An agent that notes among the calls of the store when it is asked for its command: right before the spawn.
struct Noting {
    store: Arc<CountingStore>,
    script: String,
}

/// Stands among the calls for the start of the agent's program.
const SPAWN: &str = "(spawn)";
/// Stands among the calls for its end, which comes only after this.
const EXIT: &str = "(exit)";

impl Agent for Noting {
    fn name(&self) -> &'static str {
        "noting"
    }
    fn program(&self) -> Program {
        Program::Named("sh")
    }
    fn answers_for(&self, _: &str) -> bool {
        false
    }
    fn command(&self, turn: &AgentRequest) -> Result<AgentCommand, AgentError> {
        self.store.note(SPAWN);
        Ok(AgentCommand {
            args: vec!["-c".into(), self.script.clone()],
            stdin: turn.frame.clone().into_text().into_bytes(),
            ..AgentCommand::default()
        })
    }
    fn parser(&self) -> Box<dyn AgentParser> {
        Offline.parser()
    }
}

/// A project on a server.
struct Server {
    store: Arc<CountingStore>,
    project: Project,
    engine: Engine,
}

impl Server {
    fn new() -> Self {
        Self::of(CountingStore::default())
    }

    fn of(store: CountingStore) -> Self {
        let store = Arc::new(store);
        let project = Project::in_temporary(tempfile::tempdir().unwrap(), Arc::clone(&store) as _);
        let engine = project.engine();
        Self { store, project, engine }
    }

    /// Runs a turn, and returns the calls: of a front end before the turn, and of the turn.
    fn run(
        &self,
        session: impl Into<SessionTarget>,
        briefing: Briefing,
    ) -> (FinishedTurn, Vec<&'static str>) {
        let init = Init { agent_session: Some("uuid-1".into()), ..Init::default() };
        let script = format!(
            "rm -f gate; printf '%s\\n' '{}'; {}; {}; {DONE}",
            Event::Init(init).to_json(),
            says("hello"),
            waits_for("gate")
        );
        let agent = leak(Noting { store: Arc::clone(&self.store), script });
        let options = TurnOptions { briefing, ..TurnOptions::new(agent, "/bin/sh") };
        self.store.take_calls();
        // What a front end does before a turn.
        block_on(self.engine.recover()).unwrap();
        block_on(self.project.store.last_used("here")).unwrap();
        let request =
            TurnRequest { used_in: Some("here".into()), ..TurnRequest::new(session, "hi", options) };
        let finished = drive(self.engine.submit(request), |event, _| {
            if let TurnEvent::Output(output) = event
                && *output == AgentOutput::Event(Event::assistant("hello"))
            {
                // The run is noted as soon as the agent has named it, which it has.
                until("the run is noted", || self.store.has_been_called("note_run").then_some(()));
                self.store.note(EXIT);
                std::fs::write(self.project.path("gate"), "").unwrap();
            }
        });
        (finished.unwrap(), self.store.take_calls())
    }
}

const FRONT_END: [&str; 2] = ["noted_runs", "last_used"];
const AFTER_EXIT: [&str; 3] = ["append", "remove_mark", "release"];

/// Says which calls a turn makes that makes these before the spawn.
fn expected(before_spawn: &[&'static str]) -> Vec<&'static str> {
    [&FRONT_END, before_spawn, &[SPAWN, "note_run", EXIT], &AFTER_EXIT].concat()
}

#[test]
fn a_turn_asks_its_store_six_times_before_the_agent_runs_and_three_times_after() {
    let server = Server::new();
    let session = server.project.session;
    server.project.append([Event::user("before"), Event::assistant("now")]);
    for _ in 0..2 {
        let (finished, calls) = server.run(session, Briefing::default());
        assert_eq!(finished.complete.outcome, Some(Outcome::Done));
        assert_eq!(calls, expected(&["get", "read", "take", "get"]));
        assert!(calls.iter().position(|call| *call == SPAWN).unwrap() <= 6);
        assert_eq!(block_on(server.project.store.last_used("here")).unwrap(), Some(session));
    }
}

#[test]
fn an_original_is_one_more_call_after_the_agent() {
    let server = Server::of(CountingStore::with_originals());
    server.project.append([Event::user("before"), Event::assistant("now")]);
    let (finished, calls) = server.run(server.project.session, Briefing::default());
    assert_eq!(finished.complete.outcome, Some(Outcome::Done));
    let (before, after) = calls.split_at(calls.iter().position(|call| *call == EXIT).unwrap() + 1);
    assert_eq!(after, ["append", "put", "remove_mark", "release"]);
    assert_eq!([before, &AFTER_EXIT].concat(), expected(&["get", "read", "take", "get"]));
}

#[test]
fn a_new_session_with_a_system_message_takes_no_more_calls() {
    let server = Server::new();
    let briefing = Briefing { system: Some("Be brief.".into()), ..Briefing::default() };
    let (_, calls) = server.run(SessionTarget::New(NewSession::default()), briefing.clone());
    assert_eq!(calls, expected(&["create", "take", "get", "append"]));
    let named = |name: &str| NewSession { name: Some(name.into()), ..NewSession::default() };
    let (_, calls) = server.run(SessionTarget::New(named("one")), briefing.clone());
    assert_eq!(calls, expected(&["create", "find", "take", "get", "append"]));
    let (finished, calls) = server.run(SessionTarget::Named(named("two")), briefing.clone());
    assert_eq!(calls, expected(&["find_or_create", "take", "get", "append"]));
    let (again, calls) = server.run(SessionTarget::Named(named("two")), briefing);
    assert_eq!(calls, expected(&["find_or_create", "take", "get", "read"]));
    assert_eq!(again.session, finished.session);
}

#[test]
fn a_turn_that_a_context_command_refuses_makes_no_store_call() {
    let server = Server::new();
    let failing = ContextCommand { on_failure: OnFailure::Fail, ..ContextCommand::new("must", "exit 7") };
    let briefing = Briefing { commands: vec![failing], ..Briefing::default() };
    let agent = leak(Noting { store: Arc::clone(&server.store), script: String::new() });
    let options = TurnOptions { briefing, ..TurnOptions::new(agent, "/bin/sh") };
    let request = TurnRequest::new(SessionTarget::New(NewSession::default()), "hi", options);
    server.store.take_calls();
    let error = server.engine.submit(request).result().unwrap_err();
    assert!(matches!(error, TurnError::NotGathered { .. }), "{error:?}");
    assert_eq!(server.store.take_calls(), [""; 0]);
}

#[test]
fn a_session_is_deleted_before_its_lease_is_released() {
    let server = Server::new();
    let briefing =
        Briefing { commands: vec![ContextCommand::new("slow", "sleep 1000")], ..Briefing::default() };
    let agent = leak(Noting { store: Arc::clone(&server.store), script: String::new() });
    let options = TurnOptions { briefing, ..TurnOptions::new(agent, "/bin/sh") };
    let request = TurnRequest::new(SessionTarget::New(NewSession::default()), "hi", options);
    let error = drive(server.engine.submit(request), |event, controls| {
        if matches!(event, TurnEvent::Command(_)) {
            controls.cancel();
        }
    });
    assert!(matches!(error, Err(TurnError::NotGathered { .. })), "{error:?}");
    let calls = server.store.take_calls();
    assert!(calls.ends_with(&["delete", "release"]), "{calls:?}");
}
