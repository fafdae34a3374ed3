//! The requests to the model, in a form that a test can query.

use serde_json::Value;

use super::cache::count_breakpoints;

/// Headers that carry a secret. They are not kept: a failing test prints what was kept.
const SECRET: [&str; 6] =
    ["api-key", "authorization", "cookie", "proxy-authorization", "x-api-key", "x-goog-api-key"];

/// The end of the path of a Gemini request that wants a stream.
const STREAMING: &str = ":streamGenerateContent";

/// The subject of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// An answer, by the Messages API of Anthropic.
    Messages,
    /// An answer, by the Responses API of OpenAI.
    Responses,
    /// An answer, by the Chat completions API of OpenAI.
    Chat,
    /// An answer, by the Gemini API of Google.
    Gemini,
    /// The number of tokens in a prompt (`/v1/messages/count_tokens`, `…:countTokens`).
    CountTokens,
    /// Anything else: probes, lists of models, and what a program should not have asked for.
    Other,
}

impl Api {
    pub(super) fn of(method: &str, path: &str) -> Self {
        let path = path.split('?').next().unwrap_or(path);
        match method {
            "POST" if path.ends_with("/messages") => Self::Messages,
            "POST" if path.ends_with("/responses") => Self::Responses,
            "POST" if path.ends_with("/chat/completions") => Self::Chat,
            "POST" if path.ends_with(":generateContent") || path.ends_with(STREAMING) => Self::Gemini,
            "POST" if path.ends_with("/count_tokens") || path.ends_with(":countTokens") => Self::CountTokens,
            _ => Self::Other,
        }
    }

    /// Returns whether this asks the model for an answer.
    pub fn wants_answer(self) -> bool {
        match self {
            Self::Messages | Self::Responses | Self::Chat | Self::Gemini => true,
            Self::CountTokens | Self::Other => false,
        }
    }
}

/// A request that has arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The number of this request among those that want an answer, from 1; of another one, the last number before it.
    pub number: usize,
    /// The API that it uses.
    pub api: Api,
    /// `POST`, `GET` …
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers in order, names in lower case, without keys and cookies.
    pub headers: Vec<(String, String)>,
    /// The body; a string if it is not JSON, null if there is none.
    pub body: Value,
}

impl Request {
    pub(super) fn new(
        method: String,
        path: String,
        mut headers: Vec<(String, String)>,
        body: &[u8],
        number: usize,
    ) -> Self {
        headers.retain(|(name, _)| !SECRET.contains(&name.as_str()));
        let body = match body {
            [] => Value::Null,
            bytes => serde_json::from_slice(bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned())),
        };
        Self { number, api: Api::of(&method, &path), method, path, headers, body }
    }

    /// Returns the first header of this name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the name of the model that is asked for.
    pub fn model(&self) -> Option<&str> {
        match self.api {
            // `/v1beta/models/NAME:generateContent`
            Api::Gemini => self.path.rsplit('/').next()?.split(':').next(),
            _ => self.body["model"].as_str(),
        }
    }

    /// Returns whether the answer is to be streamed.
    pub fn streams(&self) -> bool {
        match self.api {
            Api::Gemini => self.path.contains(STREAMING),
            _ => self.body["stream"] == true,
        }
    }

    /// Returns the names of the tools that the model may call.
    pub fn tools(&self) -> Vec<&str> {
        let tools = items(&self.body["tools"]).iter();
        match self.api {
            Api::Gemini => tools
                .flat_map(|tool| items(&tool["functionDeclarations"]))
                .filter_map(|tool| tool["name"].as_str())
                .collect(),
            Api::Chat => tools.filter_map(|tool| tool["function"]["name"].as_str()).collect(),
            _ => tools.filter_map(|tool| tool["name"].as_str().or(tool["type"].as_str())).collect(),
        }
    }

    /// Returns the program's instructions before the conversation: the system prompt or instructions.
    pub fn system(&self) -> String {
        match self.api {
            Api::Messages => texts(&self.body["system"]).concat(),
            Api::Chat => self.texts_of("system").concat(),
            Api::Gemini => texts(&self.body["systemInstruction"]["parts"]).concat(),
            _ => texts(&self.body["instructions"]).concat(),
        }
    }

    /// Returns every text in the name of the user, oldest first: prompts, and context that the program adds.
    pub fn user_texts(&self) -> Vec<&str> {
        self.texts_of("user")
    }

    /// Returns every text in the name of the model, oldest first.
    pub fn assistant_texts(&self) -> Vec<&str> {
        self.texts_of(if self.api == Api::Gemini { "model" } else { "assistant" })
    }

    /// Returns the user's last prompt: the last user text that is no `<system-reminder>`, which Claude Code puts
    /// beside it.
    pub fn prompt(&self) -> Option<&str> {
        let mut texts = self.user_texts();
        texts.retain(|text| !text.trim_start().starts_with("<system-reminder>"));
        texts.pop()
    }

    /// Returns the text of every result of a tool, oldest first.
    pub fn tool_results(&self) -> Vec<String> {
        let mut results = Vec::new();
        for message in self.conversation() {
            for block in items(&message["content"]) {
                if block["type"] == "tool_result" {
                    results.push(texts(&block["content"]).concat());
                }
            }
            if message["role"] == "tool" {
                results.push(texts(&message["content"]).concat());
            }
            for part in items(&message["parts"]) {
                match &part["functionResponse"]["response"] {
                    Value::Null => {}
                    // What a tool returns is any object; Gemini CLI puts a text under `output`.
                    response => results.push(
                        response["output"].as_str().map_or_else(|| response.to_string(), str::to_owned),
                    ),
                }
            }
            // `function_call_output` and its kind are items of their own.
            if message["type"].as_str().is_some_and(|kind| kind.ends_with("_output")) {
                results.push(texts(&message["output"]).concat());
            }
        }
        results
    }

    /// Returns the number of cache breakpoints (`cache_control`) in a request of the Messages API.
    pub fn breakpoints(&self) -> usize {
        if self.api == Api::Messages { count_breakpoints(&self.body) } else { 0 }
    }

    fn texts_of(&self, role: &str) -> Vec<&str> {
        let said = self.conversation().iter().filter(|message| message["role"] == role);
        let content = if self.api == Api::Gemini { "parts" } else { "content" };
        said.flat_map(|message| texts(&message[content])).collect()
    }

    fn conversation(&self) -> &[Value] {
        items(match self.api {
            Api::Messages | Api::Chat => &self.body["messages"],
            Api::Gemini => &self.body["contents"],
            _ => &self.body["input"],
        })
    }
}

/// Returns the items of a list, or none.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the texts of a content, which is one text or a list of blocks.
fn texts(content: &Value) -> Vec<&str> {
    match content {
        Value::String(text) => vec![text],
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(path: &str, body: &Value) -> Request {
        let headers = vec![("x-api-key".into(), "secret".into()), ("user-agent".into(), "test".into())];
        Request::new("POST".into(), path.into(), headers, body.to_string().as_bytes(), 1)
    }

    #[test]
    fn all_apis_are_asked_alike() {
        let messages = request(
            "/v1/messages?beta=true",
            &json!({"model": "m", "stream": true, "system": [{"type": "text", "text": "Be kind."}],
            "tools": [{"name": "Bash"}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "<system-reminder>x"}, {"type": "text", "text": "Hello"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "Looking."}, {"type": "tool_use"}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "content": "a"},
                    {"type": "tool_result", "content": [{"type": "text", "text": "b"}]}]},
            ]}),
        );
        let responses = request(
            "/v1/responses",
            &json!({"model": "m", "stream": true, "instructions": "Be kind.",
            "tools": [{"type": "function", "name": "Bash"}],
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<system-reminder>x"}]},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]},
                {"type": "function_call", "name": "Bash"},
                {"type": "function_call_output", "output": "a"},
                {"type": "custom_tool_call_output", "output": [{"type": "input_text", "text": "b"}]},
            ]}),
        );
        let chat = request(
            "/v1/chat/completions",
            &json!({"model": "m", "stream": true, "tools": [{"type": "function", "function": {"name": "Bash"}}],
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "<system-reminder>x"}, {"type": "text", "text": "Hello"}]},
                {"role": "assistant", "content": "Looking.", "tool_calls": [{"id": "1"}, {"id": "2"}]},
                {"role": "tool", "tool_call_id": "1", "content": "a"},
                {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "b"}]},
            ]}),
        );
        let gemini = request(
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            &json!({"systemInstruction": {"parts": [{"text": "Be kind."}]},
            "tools": [{"functionDeclarations": [{"name": "Bash"}]}],
            "contents": [
                {"role": "user", "parts": [{"text": "<system-reminder>x"}, {"text": "Hello"}]},
                {"role": "model", "parts": [{"text": "Looking."}, {"functionCall": {"name": "Bash"}}]},
                {"role": "user", "parts": [
                    {"functionResponse": {"name": "Bash", "response": {"output": "a"}}},
                    {"functionResponse": {"name": "Bash", "response": {"output": "b"}}}]},
            ]}),
        );
        for request in [messages, responses, chat, gemini] {
            assert!(request.api.wants_answer() && request.streams());
            assert_eq!(request.model(), Some("m"));
            assert_eq!(request.tools(), ["Bash"]);
            assert_eq!(request.system(), "Be kind.");
            assert_eq!(request.prompt(), Some("Hello"));
            assert_eq!(request.user_texts(), ["<system-reminder>x", "Hello"]);
            assert_eq!(request.assistant_texts(), ["Looking."]);
            assert_eq!(request.tool_results(), ["a", "b"]);
            assert_eq!(request.headers, [("user-agent".into(), "test".into())]);
        }
    }

    #[test]
    fn what_is_no_json_is_kept_as_text() {
        let request = Request::new("POST".into(), "/v1/messages".into(), Vec::new(), b"{", 1);
        assert_eq!(request.body, "{");
        assert_eq!(request.prompt(), None);
        assert_eq!(Api::of("GET", "/v1/messages"), Api::Other);
        assert_eq!(Api::of("POST", "/v1/messages/count_tokens?beta=true"), Api::CountTokens);
        assert_eq!(Api::of("POST", "/v1beta/models/m:countTokens"), Api::CountTokens);
    }
}
