//! OpenAI's rules, by token prefix, as published for models before GPT-5.6.
//!
//! - The prompt is the output format, tools, instructions and input, in this order.
//! - A request reads the longest prefix that it has in common with an earlier one of the same model, from 1,024 tokens
//!   on in steps of 128. All of a prompt is written; writing costs nothing extra.
//! - A prefix expires after 5 minutes without use, the shortest time that is published, or after 24 hours if the
//!   request says so (`prompt_cache_retention`).
//! - [`CacheKeys`] decides what `prompt_cache_key` does. Without a key, requests share a cache.
//!
//! Later models have breakpoints, another lifetime and a price for writing; they are left out.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde_json::Value;

use super::count::{Piece, TOKEN_BYTES, pieces};
use super::{Cache, CacheKeys, Key, Measured, USUAL_MINIMUM, hash, items};
use crate::model_server::answer::Usage;

const STEP: u64 = 128;
const IN_MEMORY: Duration = Duration::from_secs(5 * 60);
const EXTENDED: Duration = Duration::from_secs(24 * 60 * 60);

/// A prompt as a stream of tokens, with a key for each length at which it can be cached.
struct Tokens {
    hasher: DefaultHasher,
    count: u64,
    keys: Vec<Key>,
}

impl Tokens {
    fn new(seed: Key) -> Self {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        Self { hasher, count: 0, keys: Vec::new() }
    }

    /// Adds an item. `header` is part of the key, but not counted.
    fn add(&mut self, header: &str, item: &Value) {
        header.hash(&mut self.hasher);
        for piece in pieces(item) {
            match piece {
                Piece::Text(text) => {
                    let mut rest = text.as_bytes();
                    while !rest.is_empty() {
                        let room = usize::try_from(self.room()).unwrap() * TOKEN_BYTES;
                        let (now, later) = rest.split_at(room.min(rest.len()));
                        self.hasher.write(now);
                        self.advance(now.len().div_ceil(TOKEN_BYTES) as u64);
                        rest = later;
                    }
                }
                Piece::Image(ref json) => {
                    json.hash(&mut self.hasher);
                    let mut left = piece.tokens();
                    while left > 0 {
                        let now = left.min(self.room());
                        self.advance(now);
                        left -= now;
                    }
                }
            }
            // What is in one piece differs from the same in two.
            self.hasher.write_u8(0xff);
        }
    }

    /// Returns the tokens up to the next step.
    fn room(&self) -> u64 {
        STEP - self.count % STEP
    }

    fn advance(&mut self, tokens: u64) {
        self.count += tokens;
        if self.count.is_multiple_of(STEP) && self.count >= USUAL_MINIMUM {
            self.keys.push(hash((self.hasher.finish(), self.count)));
        }
    }
}

pub(super) fn look_up(cache: &mut Cache, body: &Value) -> Measured {
    let key = match cache.keys {
        CacheKeys::Separate => body["prompt_cache_key"].as_str(),
        CacheKeys::Shared => None,
    };
    let mut tokens = Tokens::new(hash(("responses", body["model"].as_str(), key)));
    tokens.add("format", &body["text"]["format"]);
    for tool in items(&body["tools"]) {
        tokens.add("tool", tool);
    }
    tokens.add("instructions", &body["instructions"]);
    if body["input"].is_string() {
        tokens.add("user", &body["input"]);
    }
    for item in items(&body["input"]) {
        let name = |field: &str| item[field].as_str().unwrap_or_default();
        // An item with a role is a message, also without a type.
        let is_message = item["type"].is_null() || item["type"] == "message";
        let header =
            if is_message { name("role").into() } else { format!("{} {}", name("type"), name("call_id")) };
        tokens.add(&header, if is_message { &item["content"] } else { item });
    }

    let arrived = cache.clock.now();
    let read = tokens.keys.iter().rposition(|key| cache.has(*key)).map_or(0, |last| last + 1);
    for key in &tokens.keys[..read] {
        cache.refresh(*key, arrived);
    }
    let cache_read = if read == 0 { 0 } else { USUAL_MINIMUM + STEP * (read as u64 - 1) };
    let input = tokens.count - cache_read;
    let usage = Usage { input, cache_read, ..Usage::ZERO };
    let lifetime = if body["prompt_cache_retention"] == "24h" { EXTENDED } else { IN_MEMORY };
    Measured { usage, arrived, writes: tokens.keys.into_iter().map(|key| (key, lifetime)).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::IMAGE_TOKENS;
    use super::*;
    use crate::model_server::cache::Clock;

    /// Sends a request and returns the tokens read and plain.
    fn ask(cache: &mut Cache, body: &Value) -> [u64; 2] {
        let measured = look_up(cache, body);
        cache.write(&measured);
        [measured.usage.cache_read, measured.usage.input]
    }

    fn user(text: &str) -> Value {
        json!({"model": "m", "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}]})
    }

    /// A text of this many tokens.
    fn tokens(count: usize) -> String {
        (0..count).map(|index| format!("{:04}", index % 10_000)).collect()
    }

    #[test]
    fn a_common_prefix_is_read_in_steps_of_128_from_1024_on() {
        for (common, read) in [(1_023, 0), (1_024, 1_024), (1_151, 1_024), (1_152, 1_152), (3_000, 2_944)] {
            let mut cache = Cache::new(&Clock::new());
            let first = tokens(common) + "the first end";
            assert_eq!(ask(&mut cache, &user(&first)), [0, common as u64 + 4]);
            // In the middle of one text, which only grows.
            let second = tokens(common) + "another end";
            assert_eq!(
                ask(&mut cache, &user(&second)),
                [read, common as u64 + 3 - read],
                "{common} in common"
            );
        }
    }

    #[test]
    fn an_equal_request_is_read_up_to_the_last_step() {
        let mut cache = Cache::new(&Clock::new());
        let body = user(&tokens(1_200));
        ask(&mut cache, &body);
        assert_eq!(ask(&mut cache, &body), [1_152, 48]);
    }

    #[test]
    fn tools_and_instructions_come_before_the_input() {
        let body = |tool: &str, instructions: &str, input: &str| {
            json!({"model": "m", "instructions": instructions.repeat(4_096), "input": input.repeat(4_096),
                // `{"name":""}` has 11 bytes.
                "tools": [{"name": tool.repeat(8_192 - 11)}]})
        };
        let mut cache = Cache::new(&Clock::new());
        assert_eq!(ask(&mut cache, &body("t", "s", "u")), [0, 4_096]);
        assert_eq!(ask(&mut cache, &body("t", "s", "x")), [3_072, 1_024]);
        assert_eq!(ask(&mut cache, &body("t", "x", "u")), [2_048, 2_048]);
        assert_eq!(ask(&mut cache, &body("x", "s", "u")), [0, 4_096]);
    }

    #[test]
    fn a_conversation_that_grows_by_items_is_read() {
        let message = |role: &str, text: &str| json!({"role": role, "content": text});
        let call = json!({"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"});
        let output = |text: &str| json!({"type": "function_call_output", "call_id": "c", "output": text});
        let body = |items: &[Value]| json!({"model": "m", "input": items});
        let mut cache = Cache::new(&Clock::new());
        let first = [message("user", &tokens(2_048)), call.clone(), output("abcdefgh")];
        ask(&mut cache, &body(&first));
        let second = [&first[..], &[message("assistant", &tokens(512))]].concat();
        assert_eq!(ask(&mut cache, &body(&second))[0], 2_048);
        // Who says it matters.
        assert_eq!(ask(&mut cache, &body(&[message("developer", &tokens(2_048)), call]))[0], 0);
    }

    #[test]
    fn an_image_counts_the_same_whatever_its_size() {
        let body = |data: &str| {
            let image = json!({"type": "input_image", "image_url": data});
            json!({"model": "m", "input": [{"type": "message", "role": "user", "content": [
                image, {"type": "input_text", "text": "abcd"}]}]})
        };
        let mut cache = Cache::new(&Clock::new());
        assert_eq!(ask(&mut cache, &body(&"A".repeat(100_000))), [0, IMAGE_TOKENS + 1]);
        assert_eq!(ask(&mut cache, &body(&"A".repeat(100_000))), [1_536, IMAGE_TOKENS + 1 - 1_536]);
        assert_eq!(ask(&mut cache, &body("B")), [0, IMAGE_TOKENS + 1]);
    }

    #[test]
    fn keys_are_separate_or_shared() {
        let body = |key: Option<&str>, model: &str| {
            let mut body = user(&tokens(1_024));
            body["model"] = json!(model);
            body["prompt_cache_key"] = json!(key);
            body
        };
        for (keys, other_key) in [(CacheKeys::Separate, 0), (CacheKeys::Shared, 1_024)] {
            let mut cache = Cache::new(&Clock::new()).keys(keys);
            ask(&mut cache, &body(Some("one"), "m"));
            assert_eq!(ask(&mut cache, &body(Some("one"), "m"))[0], 1_024);
            assert_eq!(ask(&mut cache, &body(Some("two"), "m"))[0], other_key);
            assert_eq!(ask(&mut cache, &body(None, "m"))[0], other_key);
            assert_eq!(ask(&mut cache, &body(None, "m"))[0], 1_024);
            assert_eq!(ask(&mut cache, &body(Some("one"), "n"))[0], 0);
        }
    }

    #[test]
    fn a_prefix_lives_for_five_minutes_after_its_last_use_or_for_a_day() {
        let clock = Clock::new();
        let mut cache = Cache::new(&clock);
        let mut body = user(&tokens(1_024));
        ask(&mut cache, &body);
        for (wait, read) in [(299, 1_024), (299, 1_024), (300, 0)] {
            clock.advance(Duration::from_secs(wait));
            assert_eq!(ask(&mut cache, &body)[0], read);
        }
        clock.advance(Duration::from_secs(300));
        body["prompt_cache_retention"] = json!("24h");
        for (wait, read) in [(0, 0), (86_399, 1_024), (86_400, 0)] {
            clock.advance(Duration::from_secs(wait));
            assert_eq!(ask(&mut cache, &body)[0], read);
        }
    }

    #[test]
    fn a_prefix_is_not_shared_before_the_response_begins() {
        let mut cache = Cache::new(&Clock::new());
        let body = user(&tokens(1_024));
        let measured = look_up(&mut cache, &body);
        assert_eq!(look_up(&mut cache, &body).usage.cache_read, 0);
        cache.write(&measured);
        assert_eq!(look_up(&mut cache, &body).usage.cache_read, 1_024);
    }
}
