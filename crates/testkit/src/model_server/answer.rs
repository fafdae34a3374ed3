//! The answers of the model, as a test writes them.

use std::iter::Sum;
use std::ops::Add;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::Value;

/// The largest number of deltas of a text, so that a long one is not a million lines.
const MOST_DELTAS: usize = 64;

/// One answer of the model: its blocks, in order, and its faults.
///
/// The same answer serves every API. Without any block it is an empty answer.
///
/// ```
/// use std::time::Duration;
///
/// use azureal_testkit::model_server::{Answer, StreamPosition};
/// use serde_json::json;
///
/// let works = Answer::new()
///     .thinking("I should look first.")
///     .text("Let me look.")
///     .tool("Bash", json!({"command": "ls"}));
/// let breaks_off = Answer::new().text("Once upon a time").cut(StreamPosition::InBlock(0));
/// let refuses = Answer::error(429, "slow down").retry_after(Duration::from_secs(1));
/// # drop((works, breaks_off, refuses));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub(super) blocks: Vec<Block>,
    pub(super) failure: Option<Failure>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) delay: Duration,
    pub(super) pace: Duration,
    pub(super) usage: Usage,
    pub(super) stop_reason: Option<String>,
    pub(super) ending: Ending,
    /// The condition before the next block; at the end, the one before the end.
    pub(super) next: Wait,
}

/// A part of an answer: a content block, an output item, or some chunks of the APIs that know neither.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) content: Content,
    pub(super) wait: Wait,
}

/// A condition for the stream to continue.
#[derive(Debug, Clone, Default)]
pub(super) struct Wait {
    pub(super) time: Duration,
    pub(super) gate: Option<Gate>,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    Text(Vec<String>),
    Thinking(Vec<String>),
    Tool { name: String, input: Value },
    CustomTool { name: String, input: String },
    Raw(Value),
}

/// A status other than 200, instead of an answer.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) message: String,
    /// `None`: the API's default for this status.
    pub(super) body: Option<Value>,
}

#[derive(Debug, Clone, Default)]
pub(super) enum Ending {
    #[default]
    Whole,
    Cut(StreamPosition),
    Stall(StreamPosition),
    Error {
        place: StreamPosition,
        kind: String,
        message: String,
    },
}

/// A place in a stream, where it is cut or stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamPosition {
    /// After this many events. The Messages API begins with `message_start` and `ping`, the Responses API with
    /// `response.created` and `response.in_progress`, so 2 is before any block with either. The Chat completions API
    /// begins with one chunk that has only the role, the Gemini API with the first block.
    Events(usize),
    /// In the middle of the block with this index: half of its deltas are sent.
    InBlock(usize),
    /// Right after the block with this index is complete.
    AfterBlock(usize),
}

/// The tokens that an answer reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt that came from no cache.
    pub input: u64,
    /// Tokens of the answer, reasoning included.
    pub output: u64,
    /// Tokens of the prompt that were read from a cache.
    pub cache_read: u64,
    /// Tokens of the prompt that were written to a cache; only the Messages API reports them.
    pub cache_write: u64,
    /// Those of [`cache_write`](Self::cache_write) that were written for an hour instead of 5 minutes.
    pub cache_write_1h: u64,
    /// Tokens of reasoning; the Messages API does not report them.
    pub reasoning: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self { input: 100, output: 20, cache_read: 0, cache_write: 0, cache_write_1h: 0, reasoning: 0 }
    }
}

impl Usage {
    /// A usage of 0 tokens, to add others to.
    pub const ZERO: Self =
        Self { input: 0, output: 0, cache_read: 0, cache_write: 0, cache_write_1h: 0, reasoning: 0 };

    /// Returns all tokens of the prompt.
    pub fn whole_input(&self) -> u64 {
        self.input + self.cache_read + self.cache_write
    }

    /// Returns the price of the prompt, in tokens at the plain price of the model: read 0.1, written 1.25, written
    /// for an hour 2, all others 1.
    pub fn weighted_input(&self) -> f64 {
        let written = 125 * (self.cache_write - self.cache_write_1h) + 200 * self.cache_write_1h;
        (100 * self.input + 10 * self.cache_read + written) as f64 / 100.0
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input: self.input + other.input,
            output: self.output + other.output,
            cache_read: self.cache_read + other.cache_read,
            cache_write: self.cache_write + other.cache_write,
            cache_write_1h: self.cache_write_1h + other.cache_write_1h,
            reasoning: self.reasoning + other.reasoning,
        }
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(usages: I) -> Self {
        usages.fold(Self::ZERO, Self::add)
    }
}

impl Answer {
    /// Creates an empty answer.
    pub fn new() -> Self {
        Self::default()
    }

    /// A refusal with this status, in the form that the API has for it.
    pub fn error(status: u16, message: &str) -> Self {
        let failure = Failure { status, message: message.into(), body: None };
        Self { failure: Some(failure), ..Self::default() }
    }

    /// Adds `text`, in deltas of a word or more.
    pub fn text(self, text: &str) -> Self {
        self.block(Content::Text(deltas(text)))
    }

    /// Adds a text in exactly these deltas.
    pub fn text_in<T: Into<String>>(self, deltas: impl IntoIterator<Item = T>) -> Self {
        self.block(Content::Text(deltas.into_iter().map(Into::into).collect()))
    }

    /// Thinks aloud: a thinking block, a reasoning item with this as its summary, `reasoning_content`, or a thought.
    pub fn thinking(self, text: &str) -> Self {
        self.block(Content::Thinking(deltas(text)))
    }

    /// Calls a tool: `tool_use`, or a function call with `input` as its arguments.
    pub fn tool(self, name: &str, input: Value) -> Self {
        self.block(Content::Tool { name: name.into(), input })
    }

    /// Calls a tool that takes text as it stands, as `apply_patch` of Codex does: `custom_tool_call`.
    ///
    /// The other APIs have no such thing; there it is a plain call whose input has `text` under `input`.
    pub fn custom_tool(self, name: &str, text: &str) -> Self {
        self.block(Content::CustomTool { name: name.into(), input: text.into() })
    }

    /// Sends a content block, an output item, a delta (Chat completions) or a part (Gemini) as it stands, for what
    /// has no method here.
    pub fn raw(self, block: Value) -> Self {
        self.block(Content::Raw(block))
    }

    /// Waits before the next block begins; after the last block, before the end or the cut.
    pub fn pause(mut self, time: Duration) -> Self {
        self.next.time += time;
        self
    }

    /// Waits, before the next block or the end as [`pause`](Self::pause) does, until the test opens the gate.
    ///
    /// An answer that is not streamed does not wait.
    pub fn hold(mut self, gate: &Gate) -> Self {
        self.next.gate = Some(gate.clone());
        self
    }

    /// Waits before the first byte.
    pub fn delay(mut self, time: Duration) -> Self {
        self.delay = time;
        self
    }

    /// Waits between any two events of the stream.
    pub fn pace(mut self, time: Duration) -> Self {
        self.pace = time;
        self
    }

    /// Adds a header to the response.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Asks the client to come back after this time, in whole seconds.
    pub fn retry_after(self, time: Duration) -> Self {
        self.header("retry-after", &time.as_secs().to_string())
    }

    /// Sends this body with a refusal instead of the usual one; without effect on an answer.
    pub fn body(mut self, body: Value) -> Self {
        if let Some(failure) = &mut self.failure {
            failure.body = Some(body);
        }
        self
    }

    /// Sets the tokens that the answer reports.
    ///
    /// A server with a cache measures the input and takes only output and reasoning from here.
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Overrides the stop reason of the Messages API, with `max_tokens` for example.
    ///
    /// In the Responses API `max_tokens` is an answer that ends with `response.incomplete`; the other APIs have their
    /// own word for it.
    pub fn stop_reason(mut self, reason: &str) -> Self {
        self.stop_reason = Some(reason.into());
        self
    }

    /// Closes the connection there, without the end of the stream.
    ///
    /// A client that finds the last events and the end of the connection at once may drop the events. Where
    /// they matter, [`hold`](Self::hold) the cut until the client has shown them.
    ///
    /// Of an answer that is not streamed, half of the body is sent.
    pub fn cut(mut self, place: StreamPosition) -> Self {
        self.ending = Ending::Cut(place);
        self
    }

    /// Sends nothing more from there on and holds the connection open, until the client closes it or the server is
    /// dropped. With [`hold`](Self::hold) after it, the gate shows that this has begun.
    ///
    /// Of an answer that is not streamed, half of the body is sent.
    pub fn stall(mut self, place: StreamPosition) -> Self {
        self.ending = Ending::Stall(place);
        self
    }

    /// Ends the stream there with an error of this type, `overloaded_error` or `server_is_overloaded` for example.
    ///
    /// An answer that is not streamed is sent whole.
    pub fn error_in_stream(mut self, place: StreamPosition, kind: &str, message: &str) -> Self {
        self.ending = Ending::Error { place, kind: kind.into(), message: message.into() };
        self
    }

    fn block(mut self, content: Content) -> Self {
        let wait = std::mem::take(&mut self.next);
        self.blocks.push(Block { content, wait });
        self
    }
}

impl From<&str> for Answer {
    /// A plain text.
    fn from(text: &str) -> Self {
        Self::new().text(text)
    }
}

/// A place in a stream where the test decides when it continues. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    inner: Arc<(Mutex<GateState>, Condvar)>,
}

#[derive(Debug, Default)]
struct GateState {
    is_reached: bool,
    is_open: bool,
}

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets every stream through that waits here, or will.
    pub fn open(&self) {
        self.inner.0.lock().unwrap().is_open = true;
        self.inner.1.notify_all();
    }

    /// Waits until a stream has got here: what stands before it is sent.
    ///
    /// # Panics
    ///
    /// If that takes longer than `within`.
    #[track_caller]
    pub fn wait_until_reached(&self, within: Duration) {
        let (state, changed) = &*self.inner;
        let state = state.lock().unwrap();
        let (state, _) = changed.wait_timeout_while(state, within, |state| !state.is_reached).unwrap();
        assert!(state.is_reached, "no stream has reached the gate within {within:?}");
    }

    /// Notes that a stream is here and waits for a while; returns whether it may continue.
    pub(super) fn pass(&self, within: Duration) -> bool {
        let (state, changed) = &*self.inner;
        let mut state = state.lock().unwrap();
        if !state.is_reached {
            state.is_reached = true;
            changed.notify_all();
        }
        changed.wait_timeout_while(state, within, |state| !state.is_open).unwrap().0.is_open
    }
}

/// Splits a text before words, into not too many parts; joined they are the text again.
pub(super) fn deltas(text: &str) -> Vec<String> {
    let least = text.len().div_ceil(MOST_DELTAS);
    let mut deltas: Vec<String> = Vec::new();
    for word in text.split_inclusive(char::is_whitespace) {
        match deltas.last_mut() {
            Some(last) if last.len() < least => last.push_str(word),
            _ => deltas.push(word.into()),
        }
    }
    deltas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_of_an_input_is_its_price() {
        let used = Usage { input: 1_000, cache_read: 1_000, cache_write: 1_000, ..Usage::default() };
        assert_eq!(used.weighted_input(), 1_000.0 + 100.0 + 1_250.0);
        assert_eq!(Usage { cache_write_1h: 400, ..used }.weighted_input(), 1_100.0 + 750.0 + 800.0);
        assert_eq!(used.whole_input(), 3_000);
        let sum: Usage = [used, used].into_iter().sum();
        assert_eq!((sum.cache_write, sum.output, sum.weighted_input()), (2_000, 40, 4_700.0));
    }

    #[test]
    fn deltas_joined_are_the_text() {
        for text in ["", " ", "one", "one two\n three  ", "日本 語\u{2028}x", &"word ".repeat(10_000)] {
            let deltas = deltas(text);
            assert_eq!(deltas.concat(), text);
            assert!(deltas.len() <= MOST_DELTAS, "{}", deltas.len());
            assert!(deltas.iter().all(|delta| !delta.is_empty()));
        }
        assert_eq!(deltas("Once upon a"), ["Once ", "upon ", "a"]);
    }
}
