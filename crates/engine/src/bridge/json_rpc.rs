//! JSON-RPC over the pipes of a program: `initialize`, `session/new`, `session/prompt`.
//!
//! The agent sends notifications such as `session/update`, and the request `session/request_permission`. The response
//! to `session/prompt` is the end of the turn, in this file alone. Messages that are not expected are recorded and
//! change nothing: agents send updates before the session is open, and requests that only their own client knows, which
//! are answered with an error.

use azureal_core::bridge::{
    Answered, AnsweredBy, BridgeEnd, Consent, JsonRpcExchange, OptionKind, Question, QuestionOption,
};
use azureal_core::event::Outcome;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::protocol::{Protocol, Step};

/// The ids of our requests.
const INITIALIZE: u64 = 0;
const NEW_SESSION: u64 = 1;
const PROMPT: u64 = 2;

/// The error code of JSON-RPC for an unknown method.
const NO_SUCH_METHOD: i64 = -32601;
/// The most questions that are open at once.
const MOST_OPEN: usize = 16;
/// The most options of a question.
const MOST_OPTIONS: usize = 16;
/// The largest tool call that is shown to a person, in bytes. A larger one is refused, because no one could check it.
const LARGEST_CALL: usize = 1 << 20;
/// The longest id that is sent back to the agent, in bytes.
const LONGEST_ID: usize = 256;
/// The characters of an agent's text that are shown in a line.
const SHOWN: usize = 500;

/// The state of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Initializing,
    OpeningSession,
    Prompting,
    Cancelling,
    Finished,
}

/// One conversation.
pub(crate) struct JsonRpc {
    exchange: JsonRpcExchange,
    /// The directory of the turn.
    directory: String,
    /// Whether a person can be asked.
    can_ask: bool,
    state: State,
    session: String,
    open: Vec<Open>,
    asked: u64,
}

/// A question that waits for its answer.
struct Open {
    /// The id of the agent's request.
    request: Value,
    question: Question,
}

/// A message, as far as it matters here.
#[derive(Deserialize)]
struct RpcMessage<'a> {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
    #[serde(default, borrow)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    #[serde(default)]
    code: Value,
    #[serde(default)]
    message: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PermissionParams<'a> {
    #[serde(borrow)]
    tool_call: &'a RawValue,
    options: Vec<PermissionOption>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ToolCall {
    title: String,
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PermissionOption {
    option_id: String,
    #[serde(default)]
    name: String,
    kind: OptionKind,
}

impl JsonRpc {
    pub(crate) fn new(exchange: JsonRpcExchange, directory: String, can_ask: bool) -> Self {
        Self {
            exchange,
            directory,
            can_ask,
            state: State::Initializing,
            session: String::new(),
            open: Vec::new(),
            asked: 0,
        }
    }

    /// Takes the response to one of our requests.
    fn response(&mut self, id: &Value, message: &RpcMessage<'_>) -> Vec<Step> {
        let expected = match self.state {
            State::Initializing => INITIALIZE,
            State::OpeningSession => NEW_SESSION,
            State::Prompting | State::Cancelling => PROMPT,
            State::Finished => return Vec::new(),
        };
        if id.as_u64() != Some(expected) {
            return Vec::new();
        }
        if let Some(error) = &message.error {
            if self.state == State::Cancelling {
                return self.finish(BridgeEnd::new(Outcome::Cancelled));
            }
            let text = error.message.as_str().map_or_else(|| error.message.to_string(), str::to_owned);
            let method = method_of(expected);
            let why = format!("the agent refused `{method}`: {} ({})", cut(&text), error.code);
            return self.finish(BridgeEnd::failed(why));
        }
        let result = message.result.map_or("null", RawValue::get);
        match self.state {
            State::Initializing => {
                self.state = State::OpeningSession;
                let mut session = std::mem::take(&mut self.exchange.session);
                if session.is_null() {
                    session = json!({});
                }
                if let Some(fields) = session.as_object_mut()
                    && !fields.contains_key("cwd")
                {
                    fields.insert("cwd".to_owned(), json!(self.directory));
                }
                vec![request(NEW_SESSION, &session)]
            }
            State::OpeningSession => self.prompt(result),
            State::Prompting | State::Cancelling | State::Finished => {
                #[derive(Deserialize, Default)]
                #[serde(rename_all = "camelCase", default)]
                struct Stopped {
                    stop_reason: String,
                }
                let stopped: Stopped = serde_json::from_str(result).unwrap_or_default();
                let is_cancelled = stopped.stop_reason == "cancelled" || self.state == State::Cancelling;
                let outcome = if is_cancelled { Outcome::Cancelled } else { Outcome::Done };
                self.finish(BridgeEnd::new(outcome))
            }
        }
    }

    fn prompt(&mut self, result: &str) -> Vec<Step> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct NewSession {
            session_id: String,
        }
        let Ok(session) = serde_json::from_str::<NewSession>(result) else {
            return self.finish(BridgeEnd::failed("the agent opened a session without a `sessionId`"));
        };
        self.session = session.session_id;
        self.state = State::Prompting;
        let prompt = std::mem::take(&mut self.exchange.prompt);
        vec![request(PROMPT, &json!({ "sessionId": self.session, "prompt": prompt }))]
    }

    /// Takes a request of the agent.
    fn requested(&mut self, id: Value, method: &str, params: Option<&RawValue>) -> Vec<Step> {
        if method != "session/request_permission" {
            let message = format!("`{}` is not supported", cut(method));
            let error = json!({ "code": NO_SUCH_METHOD, "message": message });
            return vec![Step::Send(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string())];
        }
        if self.state != State::Prompting {
            return vec![withdraw(&id)];
        }
        let params = params.map_or("null", RawValue::get);
        let Ok(params) = serde_json::from_str::<PermissionParams<'_>>(params) else {
            let error = json!({ "code": -32602, "message": "no tool call, or no options" });
            return vec![Step::Send(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string())];
        };
        let call: ToolCall = serde_json::from_str(params.tool_call.get()).unwrap_or_default();
        self.asked += 1;
        let options = params.options.into_iter().filter(|option| option.option_id.len() <= LONGEST_ID);
        let options = options.take(MOST_OPTIONS).map(|option| QuestionOption {
            id: option.option_id,
            label: cut(&option.name),
            kind: option.kind,
        });
        let input = params.tool_call.get();
        let is_shown = input.len() <= LARGEST_CALL && self.open.len() < MOST_OPEN;
        let question = Question {
            id: format!("q{}", self.asked),
            title: cut(&call.title),
            kind: cut(&call.kind),
            input: if is_shown { input.to_owned() } else { String::new() },
            options: options.collect(),
        };
        let policy = &self.exchange.policy;
        let consent =
            if policy.allowed_kinds.contains(&call.kind) { Consent::Allow } else { policy.otherwise };
        let open = Open { request: id, question };
        match consent {
            Consent::Allow => close_by_kind(&open, true, AnsweredBy::Policy),
            Consent::Ask if self.can_ask && is_shown => {
                let ask = Step::Ask(open.question.clone());
                self.open.push(open);
                vec![ask]
            }
            Consent::Ask if self.can_ask => close_by_kind(&open, false, AnsweredBy::Limit),
            Consent::Ask | Consent::Refuse => close_by_kind(&open, false, AnsweredBy::Policy),
        }
    }

    fn take_open(&mut self, question: &str) -> Option<Open> {
        let at = self.open.iter().position(|open| open.question.id == question)?;
        Some(self.open.remove(at))
    }

    /// Withdraws all questions.
    fn withdraw_all(&mut self) -> Vec<Step> {
        let withdrawn = |open: Open| {
            let answered = answered(&open.question, None, AnsweredBy::End);
            [withdraw(&open.request), Step::Record(answered)]
        };
        self.open.drain(..).flat_map(withdrawn).collect()
    }

    fn finish(&mut self, end: BridgeEnd) -> Vec<Step> {
        self.state = State::Finished;
        let mut steps = self.withdraw_all();
        steps.push(Step::Finish(end));
        steps
    }
}

impl Protocol for JsonRpc {
    fn open(&mut self) -> Vec<Step> {
        vec![request(INITIALIZE, &std::mem::take(&mut self.exchange.initialize))]
    }

    fn receive(&mut self, message: &str) -> Vec<Step> {
        // What is JSON and no message of ours is recorded and ignored.
        let Ok(mut message) = serde_json::from_str::<RpcMessage<'_>>(message) else { return Vec::new() };
        match (message.id.take().filter(is_id), message.method.take()) {
            (Some(id), Some(method)) => self.requested(id, &method, message.params),
            (Some(id), None) => self.response(&id, &message),
            (None, _) => Vec::new(),
        }
    }

    fn closed(&mut self, _: Option<String>) -> Vec<Step> {
        // The exit status of the program is more specific.
        Vec::new()
    }

    fn answer(&mut self, question: &str, option: &str) -> Vec<Step> {
        let Some(open) = self.take_open(question) else { return Vec::new() };
        let option = open.question.options.iter().find(|known| known.id == option);
        match option {
            Some(option) => close(&open, Some(option), AnsweredBy::Person),
            None => close_by_kind(&open, false, AnsweredBy::Person),
        }
    }

    fn refuse(&mut self, question: &str, by: AnsweredBy) -> Vec<Step> {
        self.take_open(question).map_or_else(Vec::new, |open| close_by_kind(&open, false, by))
    }

    fn cancel(&mut self) -> Vec<Step> {
        match self.state {
            State::Prompting => {
                self.state = State::Cancelling;
                let mut steps = self.withdraw_all();
                let cancel = json!({
                    "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": self.session }
                });
                steps.push(Step::Send(cancel.to_string()));
                steps
            }
            State::Initializing | State::OpeningSession => self.finish(BridgeEnd::new(Outcome::Cancelled)),
            State::Cancelling | State::Finished => Vec::new(),
        }
    }
}

/// Returns whether a value can be the id of a request.
fn is_id(id: &Value) -> bool {
    id.is_number() || id.as_str().is_some_and(|id| id.len() <= LONGEST_ID)
}

fn method_of(id: u64) -> &'static str {
    match id {
        INITIALIZE => "initialize",
        NEW_SESSION => "session/new",
        _ => "session/prompt",
    }
}

fn request(id: u64, params: &Value) -> Step {
    let method = method_of(id);
    Step::Send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string())
}

fn withdraw(request: &Value) -> Step {
    let result = json!({ "outcome": { "outcome": "cancelled" } });
    Step::Send(json!({ "jsonrpc": "2.0", "id": request, "result": result }).to_string())
}

/// Closes a question by the first option that allows or refuses, once rather than always.
fn close_by_kind(open: &Open, allow: bool, by: AnsweredBy) -> Vec<Step> {
    let wanted = if allow {
        [OptionKind::AllowOnce, OptionKind::AllowAlways]
    } else {
        [OptionKind::RejectOnce, OptionKind::RejectAlways]
    };
    let options = &open.question.options;
    let option = wanted.iter().find_map(|kind| options.iter().find(|option| option.kind == *kind));
    close(open, option, by)
}

/// Closes a question. Without an option it is withdrawn, which ends the turn of the agent.
fn close(open: &Open, option: Option<&QuestionOption>, by: AnsweredBy) -> Vec<Step> {
    let send = match option {
        Some(option) => {
            let outcome = json!({ "outcome": "selected", "optionId": option.id });
            let result = json!({ "outcome": outcome });
            Step::Send(json!({ "jsonrpc": "2.0", "id": open.request, "result": result }).to_string())
        }
        None => withdraw(&open.request),
    };
    vec![send, Step::Record(answered(&open.question, option, by))]
}

fn answered(question: &Question, option: Option<&QuestionOption>, by: AnsweredBy) -> Answered {
    Answered {
        question: question.id.clone(),
        title: question.title.clone(),
        option: option.map(|option| option.id.clone()),
        allowed: option.is_some_and(|option| option.kind.allows()),
        by,
    }
}

/// Returns the beginning of a text.
fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::bridge::PermissionPolicy;

    use super::*;

    fn machine(policy: PermissionPolicy) -> JsonRpc {
        let exchange = JsonRpcExchange {
            initialize: json!({ "protocolVersion": 1 }),
            session: json!({ "mcpServers": [] }),
            prompt: json!([{ "type": "text", "text": "hi" }]),
            policy,
        };
        JsonRpc::new(exchange, "/p".to_owned(), true)
    }

    fn prompting(policy: PermissionPolicy) -> JsonRpc {
        let mut machine = machine(policy);
        machine.open();
        machine.receive(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
        machine.receive(r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#);
        assert_eq!(machine.state, State::Prompting);
        machine
    }

    fn ask() -> PermissionPolicy {
        PermissionPolicy { allowed_kinds: vec!["read".into()], otherwise: Consent::Ask }
    }

    fn permission(id: &str, kind: &str) -> String {
        json!({
            "jsonrpc": "2.0", "id": id, "method": "session/request_permission",
            "params": {
                "sessionId": "s",
                "toolCall": { "toolCallId": "t", "title": "run", "kind": kind, "rawInput": { "command": "ls" } },
                "options": [
                    { "optionId": "always", "name": "Always", "kind": "allow_always" },
                    { "optionId": "yes", "name": "Yes", "kind": "allow_once" },
                    { "optionId": "no", "name": "No", "kind": "reject_once" },
                ],
            },
        })
        .to_string()
    }

    fn sent(step: &Step) -> Value {
        let Step::Send(line) = step else { panic!("{step:?}") };
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn a_conversation_has_its_order() {
        let mut machine = machine(ask());
        let [open] = &machine.open()[..] else { panic!() };
        assert_eq!(sent(open)["params"]["protocolVersion"], 1);
        // Updates come before the session is open, and responses to requests that nobody has sent.
        assert!(machine.receive(r#"{"method":"session/update","params":{}}"#).is_empty());
        assert!(machine.receive(r#"{"id":7,"result":{}}"#).is_empty());
        let [session] = &machine.receive(r#"{"id":0,"result":{}}"#)[..] else { panic!() };
        assert_eq!(sent(session)["params"], json!({ "mcpServers": [], "cwd": "/p" }));
        let [prompt] = &machine.receive(r#"{"id":1,"result":{"sessionId":"s"}}"#)[..] else { panic!() };
        let expected = json!({ "sessionId": "s", "prompt": [{ "type": "text", "text": "hi" }] });
        assert_eq!(sent(prompt)["params"], expected);
        let end = machine.receive(r#"{"id":2,"result":{"stopReason":"end_turn"}}"#);
        assert_eq!(end, [Step::Finish(BridgeEnd::new(Outcome::Done))]);
        assert!(machine.receive(r#"{"id":2,"result":{}}"#).is_empty(), "it ends once");
    }

    #[test]
    fn an_error_ends_it_with_its_reason() {
        let mut machine = machine(ask());
        machine.open();
        let steps = machine.receive(r#"{"id":0,"error":{"code":-32000,"message":"log in first"}}"#);
        let why = "the agent refused `initialize`: log in first (-32000)";
        assert_eq!(steps, [Step::Finish(BridgeEnd::failed(why))]);
        let mut machine = self::machine(ask());
        machine.open();
        machine.receive(r#"{"id":0,"result":{}}"#);
        let steps = machine.receive(r#"{"id":1,"result":{}}"#);
        assert!(matches!(&steps[..], [Step::Finish(end)] if end.outcome == Outcome::Failed));
    }

    #[test]
    fn a_question_is_answered_by_kind_and_never_by_place() {
        let mut machine = prompting(ask());
        let allowed = machine.receive(&permission("r", "read"));
        assert_eq!(sent(&allowed[0])["result"]["outcome"]["optionId"], "yes");
        let asked = machine.receive(&permission("x", "execute"));
        let [Step::Ask(question)] = &asked[..] else { panic!("{asked:?}") };
        assert!(question.input.contains("\"command\":\"ls\""));
        let refused = machine.refuse(&question.id, AnsweredBy::Timeout);
        assert_eq!(sent(&refused[0])["id"], "x");
        assert_eq!(sent(&refused[0])["result"]["outcome"]["optionId"], "no");
        assert!(matches!(&refused[1], Step::Record(answered) if !answered.allowed));
        assert!(machine.answer(&question.id, "yes").is_empty(), "it is closed");
    }

    #[test]
    fn nobody_is_asked_where_nobody_can_answer() {
        let mut machine = prompting(ask());
        machine.can_ask = false;
        let refused = machine.receive(&permission("x", "execute"));
        assert_eq!(sent(&refused[0])["result"]["outcome"]["optionId"], "no");
    }

    #[test]
    fn what_cannot_be_shown_is_refused() {
        let mut machine = prompting(ask());
        let large = permission("x", "execute").replace("\"ls\"", &format!("\"{}\"", "x".repeat(2 << 20)));
        let refused = machine.receive(&large);
        assert!(
            matches!(&refused[1], Step::Record(answered) if answered.by == AnsweredBy::Limit && !answered.allowed)
        );
        for number in 0..MOST_OPEN {
            let asked = machine.receive(&permission(&number.to_string(), "execute"));
            assert!(matches!(&asked[..], [Step::Ask(_)]));
        }
        let refused = machine.receive(&permission("many", "execute"));
        assert!(matches!(&refused[1], Step::Record(answered) if answered.by == AnsweredBy::Limit));
    }

    #[test]
    fn a_cancel_withdraws_questions_and_waits_for_the_agent() {
        let mut machine = prompting(ask());
        machine.receive(&permission("x", "execute"));
        let steps = machine.cancel();
        assert_eq!(sent(&steps[0])["result"]["outcome"]["outcome"], "cancelled");
        assert!(matches!(&steps[1], Step::Record(answered) if answered.by == AnsweredBy::End));
        assert_eq!(sent(&steps[2])["method"], "session/cancel");
        let late = machine.receive(&permission("y", "read"));
        assert_eq!(sent(&late[0])["result"]["outcome"]["outcome"], "cancelled");
        let end = machine.receive(r#"{"id":2,"result":{"stopReason":"end_turn"}}"#);
        assert_eq!(end, [Step::Finish(BridgeEnd::new(Outcome::Cancelled))]);
        let mut machine = self::machine(ask());
        machine.open();
        assert_eq!(machine.cancel(), [Step::Finish(BridgeEnd::new(Outcome::Cancelled))]);
    }

    #[test]
    fn an_unknown_request_gets_an_error_and_odd_messages_none() {
        let mut machine = prompting(ask());
        let steps = machine.receive(r#"{"id":"a-b","method":"craft/drain","params":{}}"#);
        assert_eq!(sent(&steps[0])["error"]["code"], NO_SUCH_METHOD);
        assert_eq!(sent(&steps[0])["id"], "a-b");
        for odd in [
            "[]",
            "3",
            "{}",
            r#"{"id":null}"#,
            r#"{"method":5}"#,
            r#"[{"id":2,"result":{}}]"#,
            r#"{"id":{},"method":"a"}"#,
        ] {
            assert!(machine.receive(odd).is_empty(), "{odd}");
        }
        let odd = r#"{"id":1,"method":"session/request_permission","params":{"options":[]}}"#;
        assert_eq!(sent(&machine.receive(odd)[0])["error"]["code"], -32602);
    }
}
