//! The prompt caches of both providers, applied to the requests that really arrive: see [`Cache`].

mod breakpoints;
mod count;
mod messages;
mod responses;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::answer::Usage;
use super::request::{Api, Request, items};

pub(super) use breakpoints::{count_breakpoints, count_tokens};
pub use count::IMAGE_TOKENS;

/// The minimum of most models of Anthropic, and of all of OpenAI.
const USUAL_MINIMUM: u64 = 1_024;

/// The time of a [`Cache`], which stands still until the test moves it. Clones are the same clock.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    now: Arc<Mutex<Duration>>,
}

impl Clock {
    /// Creates a clock.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward.
    pub fn advance(&self, time: Duration) {
        *self.now.lock().unwrap() += time;
    }

    fn now(&self) -> Duration {
        *self.now.lock().unwrap()
    }
}

/// The effect of `prompt_cache_key` in the Responses API.
///
/// The key steers routing: requests with equal keys go to the same machine, requests with different keys may go to
/// different ones, each with a cache of its own. A real service is somewhere between the two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CacheKeys {
    /// Each key has a cache of its own: the worst case.
    #[default]
    Separate,
    /// All requests share one cache, whatever their keys: the best case.
    Shared,
}

/// A prompt cache for a [`ModelServer`](super::ModelServer), by the published rules of both providers.
///
/// With [`ModelServer::with_cache`](super::ModelServer::with_cache) the usage in every answer is a measurement:
///
/// ```
/// use std::time::Duration;
///
/// use azureal_testkit::model_server::{Cache, Clock, ModelServer};
///
/// let clock = Clock::new();
/// let server = ModelServer::always("Hello.").with_cache(Cache::new(&clock));
/// // … run an agent twice …
/// clock.advance(Duration::from_secs(301)); // now its entries have expired
/// // … and again …
/// let cost: f64 = server.served().iter().filter_map(|served| served.usage).map(|used| used.weighted_input()).sum();
/// assert!(server.most_breakpoints() <= 4);
/// # assert_eq!(cost, 0.0);
/// ```
///
/// Tokens are counted by a simple rule instead of a tokenizer: 4 bytes of UTF-8 to a token, rounded up for each
/// block; an image or a file has [`IMAGE_TOKENS`]. Counted are tools, system prompt and messages: the text of text
/// blocks and of tool results, the name and input of a tool call, and of everything else its JSON.
/// Never counted is `cache_control` itself.
///
/// [Anthropic's rules](https://platform.claude.com/docs/en/build-with-claude/prompt-caching) are in `messages.rs`
/// and `breakpoints.rs`, [OpenAI's](https://developers.openai.com/api/docs/guides/prompt-caching) in
/// `responses.rs`. With both, a request is looked up when it arrives, and its own entries exist from the moment
/// at which its response begins. Two requests at the same time do not share. A refused request writes nothing.
#[derive(Debug)]
pub struct Cache {
    clock: Clock,
    minimum: u64,
    keys: CacheKeys,
    entries: HashMap<Key, Entry>,
}

/// The hash of a prompt up to a place in it, and of all else that an entry depends on.
type Key = u64;

#[derive(Debug, Clone, Copy)]
struct Entry {
    lifetime: Duration,
    expires: Duration,
}

/// The input of one request, measured when it arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Measured {
    /// Only what concerns the input.
    usage: Usage,
    arrived: Duration,
    writes: Vec<(Key, Duration)>,
}

impl Measured {
    /// Returns the usage to report: the measured input, with the output that the answer states.
    pub(super) fn usage(&self, stated: Usage) -> Usage {
        Usage { output: stated.output, reasoning: stated.reasoning, ..self.usage }
    }
}

impl Cache {
    /// Creates an empty cache.
    pub fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            minimum: USUAL_MINIMUM,
            keys: CacheKeys::default(),
            entries: HashMap::new(),
        }
    }

    /// Sets how many tokens a prefix needs in the Messages API: less is neither written nor read.
    ///
    /// It depends on the model: 512, 1,024 (the default), 2,048 or 4,096.
    #[must_use]
    pub fn minimum(mut self, tokens: u64) -> Self {
        self.minimum = tokens;
        self
    }

    /// Sets the effect of `prompt_cache_key` in the Responses API.
    #[must_use]
    pub fn keys(mut self, keys: CacheKeys) -> Self {
        self.keys = keys;
        self
    }

    /// Measures a request of an API whose cache this is; `None` for the others. The error is the message of a refusal
    /// with status 400.
    pub(super) fn look_up(&mut self, request: &Request) -> Option<Result<Measured, String>> {
        match request.api {
            Api::Messages => Some(messages::look_up(self, &request.body)),
            Api::Responses => Some(Ok(responses::look_up(self, &request.body))),
            Api::Chat | Api::Gemini | Api::CountTokens | Api::Other => None,
        }
    }

    /// Adds the entries of a request whose response begins.
    ///
    /// A lifetime is counted from the start of the request, not from that of its response.
    pub(super) fn write(&mut self, measured: &Measured) {
        let now = self.clock.now();
        for &(key, lifetime) in &measured.writes {
            if !self.refresh(key, measured.arrived) {
                self.entries.insert(key, Entry { lifetime, expires: measured.arrived + lifetime });
            }
        }
        self.entries.retain(|_, entry| now < entry.expires);
    }

    /// Returns whether there is an entry.
    fn has(&self, key: Key) -> bool {
        let now = self.clock.now();
        self.entries.get(&key).is_some_and(|entry| now < entry.expires)
    }

    /// Renews an entry that is used, for the lifetime that it was written with. Returns false if there is none.
    fn refresh(&mut self, key: Key, used: Duration) -> bool {
        let now = self.clock.now();
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| now < entry.expires) else {
            return false;
        };
        entry.expires = entry.expires.max(used + entry.lifetime);
        true
    }
}

fn hash(parts: impl Hash) -> Key {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}
