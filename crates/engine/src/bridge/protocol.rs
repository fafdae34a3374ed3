//! A protocol as a machine: what happens goes in, steps come out as data.
//!
//! Like [`TurnMachine`](crate::TurnMachine), a protocol neither waits nor writes; the bridge does what the steps say. A new protocol is
//! this trait and a transport that delivers its messages.

use azureal_core::bridge::{Answered, AnsweredBy, BridgeEnd, Question};

/// An action for the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send a message to the agent.
    Send(String),
    /// Open a question, and wait for its answer.
    Ask(Question),
    /// Record that a question is closed.
    Record(Answered),
    /// End the run.
    Finish(BridgeEnd),
}

/// A conversation with an agent.
pub(crate) trait Protocol {
    /// Begins the conversation.
    fn open(&mut self) -> Vec<Step>;

    /// Takes a message of the agent, which is JSON and is recorded already.
    fn receive(&mut self, message: &str) -> Vec<Step>;

    /// Takes the end of the agent's output, with an error if it did not end well.
    fn closed(&mut self, error: Option<String>) -> Vec<Step>;

    /// Answers an open question with one of its options.
    fn answer(&mut self, question: &str, option: &str) -> Vec<Step>;

    /// Refuses an open question without a person.
    fn refuse(&mut self, question: &str, by: AnsweredBy) -> Vec<Step>;

    /// Asks the agent to stop. Without a [`Step::Finish`], the bridge waits for the agent to do so.
    fn cancel(&mut self) -> Vec<Step>;
}
