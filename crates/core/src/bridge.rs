//! The bridge, as data: its task, the lines that it writes, and the questions that it relays.
//!
//! The bridge is a child process of azureal that talks to an agent which does not answer one prompt and exit: an agent
//! that speaks JSON-RPC over its pipes, or a model behind HTTP. Its standard output is the spool, so every message is in
//! a file before anybody parses it, and [`AgentParser`](crate::agent::AgentParser) reads the same lines live, stored and
//! after a crash. `azureal-engine` runs it; an agent describes the exchange in its
//! [`AgentCommand`](crate::agent::AgentCommand).
//!
//! A message of the agent stands inside `{"message":…}`. So no agent can write a line that passes for one of the bridge.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::event::Outcome;

/// The protocol between the bridge and an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exchange {
    /// The program of the agent speaks JSON-RPC, one message per line, over its standard input and output.
    JsonRpc(JsonRpcExchange),
    /// A server answers one request with a stream.
    Http(HttpExchange),
}

/// A conversation in JSON-RPC: `initialize`, `session/new`, `session/prompt`, whose response ends the turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsonRpcExchange {
    /// The parameters of `initialize`.
    pub initialize: Value,
    /// The parameters of `session/new`. A missing `cwd` defaults to the directory of the turn.
    pub session: Value,
    /// The content blocks of `session/prompt`.
    pub prompt: Value,
    /// The answers to permission questions that need no person.
    pub policy: PermissionPolicy,
}

/// The permission questions that are answered without asking a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermissionPolicy {
    /// The kinds of tools that are allowed, such as `read`. The agent names the kind of each call.
    pub allowed_kinds: Vec<String>,
    /// The answer for all other kinds.
    pub otherwise: Consent,
}

/// An answer to a permission question that a policy gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consent {
    /// Ask a person, over the control channel.
    Ask,
    /// Refuse.
    #[default]
    Refuse,
    /// Allow.
    Allow,
}

/// One request whose response is a stream: server-sent events, JSON lines, or one JSON document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpExchange {
    /// The URL: plain HTTP to a loopback address.
    pub url: String,
    /// Further headers, such as a key.
    pub headers: Vec<(String, String)>,
    /// The body of the request, which is a POST.
    pub body: Value,
}

/// The task of a bridge, which it reads from its standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeTask {
    /// The name of the run, which every process of it carries.
    pub run: String,
    /// The variable that carries it.
    pub marker: String,
    /// The program of the agent. An HTTP exchange has none.
    pub program: Option<AgentProgram>,
    /// The path of the control socket; without one, no question is asked and only a signal cancels.
    pub control: Option<PathBuf>,
    /// The limits.
    pub limits: BridgeLimits,
    /// The exchange with the agent.
    pub exchange: Exchange,
}

/// The program of an agent that a bridge starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentProgram {
    /// Its path.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that are set in its environment.
    pub env: Vec<(String, String)>,
}

/// The tools that an agent behind a bridge may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeLimits {
    /// The longest message, in bytes. A longer one is replaced by its beginning.
    pub message_bytes: u64,
    /// The most messages of one turn.
    pub messages: u64,
    /// The most bytes that a turn may print, standard output and standard error together.
    pub output_bytes: u64,
    /// The longest turn, in milliseconds.
    pub turn_ms: u64,
    /// The longest wait for the answer to a question, in milliseconds. Then it is refused.
    pub question_ms: u64,
}

impl Default for BridgeLimits {
    /// Messages of 16 MiB, a million of them, 4 GiB in all, a day for a turn and an hour for an answer.
    fn default() -> Self {
        Self {
            message_bytes: 16 << 20,
            messages: 1_000_000,
            output_bytes: 4 << 30,
            turn_ms: 24 * 3_600_000,
            question_ms: 3_600_000,
        }
    }
}

impl BridgeLimits {
    /// Returns the longest turn.
    pub fn turn(&self) -> Duration {
        Duration::from_millis(self.turn_ms)
    }

    /// Returns the longest wait for an answer.
    pub fn question(&self) -> Duration {
        Duration::from_millis(self.question_ms)
    }
}

/// A line that a bridge writes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BridgeLine {
    /// A message of the agent, as it arrived.
    Message(Box<RawValue>),
    /// A message of the agent that is no JSON, or too long.
    Unreadable(UnreadableMessage),
    /// A permission question is open. A reader shows [`Question`] as the control channel returns it, not this line: the
    /// spool is a file that an agent may be able to write to.
    Question(Question),
    /// A permission question is closed.
    Answer(Answered),
    /// The last line: how the run ended.
    End(BridgeEnd),
}

impl BridgeLine {
    /// Reads a line.
    pub fn read(line: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }
}

/// A message that could not be recorded as it arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableMessage {
    /// Its length in bytes.
    pub bytes: u64,
    /// The reason why it is not recorded.
    pub why: String,
    /// Its beginning.
    pub text: String,
}

/// A permission question of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Names the question within its run.
    pub id: String,
    /// The tool call as the agent describes it to people.
    pub title: String,
    /// The kind of tool, such as `execute`; empty if the agent does not say.
    pub kind: String,
    /// The input of the tool, as JSON, whole.
    pub input: String,
    /// The possible answers.
    pub options: Vec<QuestionOption>,
}

/// A possible answer to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionOption {
    /// Names it within the question.
    pub id: String,
    /// The label for people.
    pub label: String,
    /// Its effect.
    pub kind: OptionKind,
}

/// The effect of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptionKind {
    /// Allows this call.
    AllowOnce,
    /// Allows this call and later ones like it.
    AllowAlways,
    /// Refuses this call.
    RejectOnce,
    /// Refuses this call and later ones like it.
    RejectAlways,
    /// Unknown to this version.
    #[serde(other)]
    Other,
}

impl OptionKind {
    /// Returns whether the answer allows the call.
    pub fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowAlways)
    }
}

/// A question that is closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// The question.
    pub question: String,
    /// The tool call that it was about.
    pub title: String,
    /// The chosen option; `None` if the question was withdrawn.
    pub option: Option<String>,
    /// Whether the call was allowed.
    pub allowed: bool,
    /// The author of the answer.
    pub by: AnsweredBy,
}

/// The author of an answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnsweredBy {
    /// A person, over the control channel.
    Person,
    /// The policy of the turn.
    Policy,
    /// The bridge: the question timed out.
    Timeout,
    /// The bridge: the question was too large to be shown, or too many were open.
    Limit,
    /// The bridge: the turn was cancelled, or ended.
    End,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeEnd {
    /// The outcome.
    pub outcome: Outcome,
    /// The reason, if the outcome does not show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The exit status of the agent's program, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal that ended the agent's program, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

impl BridgeEnd {
    /// An end without a reason.
    pub fn new(outcome: Outcome) -> Self {
        Self { outcome, reason: None, code: None, signal: None }
    }

    /// A failure.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..Self::new(Outcome::Failed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_comes_back() {
        let question = Question {
            id: "q1".into(),
            title: "run `ls`".into(),
            kind: "execute".into(),
            input: r#"{"command":"ls"}"#.into(),
            options: vec![QuestionOption {
                id: "a".into(),
                label: "Allow".into(),
                kind: OptionKind::AllowOnce,
            }],
        };
        let answered = Answered {
            question: "q1".into(),
            title: "run `ls`".into(),
            option: Some("a".into()),
            allowed: true,
            by: AnsweredBy::Person,
        };
        let unreadable = UnreadableMessage { bytes: 3, why: "is no JSON".into(), text: "abc".into() };
        let raw = RawValue::from_string(r#"{"n":1.10,"n":2}"#.to_owned()).unwrap();
        for line in [
            BridgeLine::Message(raw),
            BridgeLine::Unreadable(unreadable),
            BridgeLine::Question(question),
            BridgeLine::Answer(answered),
            BridgeLine::End(BridgeEnd { signal: Some(9), ..BridgeEnd::new(Outcome::Interrupted) }),
        ] {
            let text = serde_json::to_string(&line).unwrap();
            let read = BridgeLine::read(text.as_bytes()).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
    }

    #[test]
    fn a_message_cannot_pass_for_a_line_of_the_bridge() {
        let forged = RawValue::from_string(r#"{"end":{"outcome":"done"}}"#.to_owned()).unwrap();
        let text = serde_json::to_string(&BridgeLine::Message(forged)).unwrap();
        assert!(matches!(BridgeLine::read(text.as_bytes()).unwrap(), BridgeLine::Message(_)));
        // Two keys in one line: neither is believed.
        assert!(BridgeLine::read(br#"{"message":{},"end":{"outcome":"done"}}"#).is_err());
    }

    #[test]
    fn an_option_of_an_unknown_kind_allows_nothing() {
        let kind: OptionKind = serde_json::from_str(r#""allow_everything""#).unwrap();
        assert_eq!(kind, OptionKind::Other);
        assert!(!kind.allows());
    }
}
