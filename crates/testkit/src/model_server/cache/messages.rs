//! Anthropic's rules, block by block.
//!
//! - The prompt is tools, system and messages, in this order. An entry is keyed by everything up to and including
//!   its block, the model included, without the marks. A string as content is the same as one text block.
//! - What else breaks the cache, as published: `speed` from the system prompt on; `tool_choice`, `thinking`,
//!   `output_config` and the presence of images from the messages on.
//! - A `cache_control` is a breakpoint, 4 at most. One at the top level is a breakpoint on the last block that can
//!   have one. One inside a tool result is a breakpoint on the whole result.
//! - An entry is written at each breakpoint, and nowhere else. A request reads the longest entry that ends at one of
//!   its breakpoints or shortly before one: 20 positions are checked, the breakpoint's own being the first of them. A run of
//!   consecutive `tool_use` blocks is one position, and so is a run of `tool_result` blocks.
//! - Entries expire after 5 minutes or 1 hour without use, each counted from the start of a request.
//!
//! - A tool with `defer_loading` is not part of the prompt.
//!
//! Left out are rules that depend on the model: older models drop thinking blocks of earlier turns, and some place
//! the thinking parameters before the tools. The billing header, a system block of Claude Code that depends on the
//! first characters of the first prompt, is a block like any other: no published rule makes an exception of it.

use std::time::Duration;

use serde_json::Value;

use super::breakpoints::{Block, FIVE_MINUTES, ONE_HOUR, Section, blocks, breakpoints};
use super::count::{tokens, without_mark};
use super::{Cache, Key, Measured, hash, items};
use crate::model_server::answer::Usage;

/// The number of positions that are checked for an entry, from a breakpoint on backwards.
const LOOK_BACK: usize = 20;

/// A place where an entry can end: after a block.
struct BlockPosition {
    key: Key,
    /// The tokens up to here.
    tokens: u64,
    /// The position as the look-back counts.
    position: usize,
}

fn places(body: &Value, blocks: &[Block<'_>]) -> Vec<BlockPosition> {
    let has_image = |block: &Block<'_>| {
        let is_image = |value: &Value| value["type"] == "image";
        is_image(&block.value) || items(&block.value["content"]).iter().any(is_image)
    };
    let has_images = blocks.iter().any(has_image);
    let mut places: Vec<BlockPosition> = Vec::new();
    let mut section = Section::Tools;
    let (mut key, mut total) = (hash(("messages", body["model"].as_str())), 0);
    for (index, block) in blocks.iter().enumerate() {
        if section == Section::Tools && block.section != Section::Tools {
            key = hash((key, body["speed"].to_string()));
        }
        if section != Section::Messages && block.section == Section::Messages {
            let parameters = [&body["tool_choice"], &body["thinking"], &body["output_config"]];
            key = hash((key, parameters.map(Value::to_string), has_images));
        }
        section = block.section;
        key = hash((key, block.role, without_mark(&block.value).to_string()));
        total += tokens(&block.value);
        let continues_run = index > 0
            && matches!(block.kind(), "tool_use" | "tool_result")
            && blocks[index - 1].kind() == block.kind();
        let position = places.last().map_or(0, |last| last.position + usize::from(!continues_run));
        places.push(BlockPosition { key, tokens: total, position });
    }
    places
}

/// Returns the last of these places that has an entry, of those that the look-back from the last one reaches.
fn longest_entry(cache: &Cache, places: &[BlockPosition]) -> Option<usize> {
    let last = places.last()?.position;
    let start = places.partition_point(|place| place.position + LOOK_BACK <= last);
    places[start..].iter().rposition(|place| cache.has(place.key)).map(|at| start + at)
}

pub(super) fn look_up(cache: &mut Cache, body: &Value) -> Result<Measured, String> {
    let blocks = blocks(body);
    let mut breakpoints = breakpoints(body, &blocks)?;
    let places = places(body, &blocks);
    // A breakpoint at the end of too short a prefix is ignored. So no entry is shorter than the minimum.
    breakpoints.retain(|breakpoint| places[breakpoint.block].tokens >= cache.minimum);

    let reached = breakpoints.iter().map(|breakpoint| &places[..=breakpoint.block]);
    let read = reached.filter_map(|places| longest_entry(cache, places)).max();
    let arrived = cache.clock.now();
    for place in read.map_or(&places[..0], |read| &places[..=read]) {
        // All of the prefix is used, also where entries of other requests end.
        cache.refresh(place.key, arrived);
    }

    let total = places.last().map_or(0, |place| place.tokens);
    let read = read.map_or(0, |read| places[read].tokens);
    // What is written ends at the last breakpoint; for an hour, at the last one of an hour.
    let end = |least: Duration| {
        let last = breakpoints.iter().rfind(|breakpoint| breakpoint.lifetime >= least);
        last.map_or(read, |last| places[last.block].tokens.max(read))
    };
    let usage = Usage {
        input: total - end(FIVE_MINUTES),
        cache_read: read,
        cache_write: end(FIVE_MINUTES) - read,
        cache_write_1h: end(ONE_HOUR) - read,
        ..Usage::ZERO
    };
    let writes = breakpoints.iter().map(|breakpoint| (places[breakpoint.block].key, breakpoint.lifetime));
    Ok(Measured { usage, arrived, writes: writes.collect() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model_server::cache::Clock;

    /// A cache whose clock the test moves.
    struct Provider {
        clock: Clock,
        cache: Cache,
    }

    impl Provider {
        fn new() -> Self {
            let clock = Clock::new();
            Self { cache: Cache::new(&clock), clock }
        }

        /// Sends a request and returns the tokens read, written and plain.
        fn ask(&mut self, body: &Value) -> [u64; 3] {
            let usage = self.usage(body);
            [usage.cache_read, usage.cache_write, usage.input]
        }

        fn usage(&mut self, body: &Value) -> Usage {
            let measured = look_up(&mut self.cache, body).unwrap();
            self.cache.write(&measured);
            measured.usage
        }

        fn wait(&self, seconds: u64) {
            self.clock.advance(Duration::from_secs(seconds));
        }
    }

    /// A text of this many tokens, of which `mark` names each one that has another content.
    fn text(tokens: usize, mark: char) -> Value {
        json!({"type": "text", "text": mark.to_string().repeat(4 * tokens)})
    }

    fn marked(mut block: Value) -> Value {
        block["cache_control"] = json!({"type": "ephemeral"});
        block
    }

    fn for_an_hour(mut block: Value) -> Value {
        block["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"});
        block
    }

    fn user(blocks: &[Value]) -> Value {
        json!({"model": "m", "messages": [{"role": "user", "content": blocks}]})
    }

    #[test]
    fn what_one_request_writes_the_next_one_reads() {
        let mut provider = Provider::new();
        let first = user(&[text(2_000, 'a'), marked(text(500, 'b')), text(30, 'c')]);
        assert_eq!(provider.ask(&first), [0, 2_500, 30]);
        assert_eq!(provider.ask(&first), [2_500, 0, 30]);
        let longer = user(&[text(2_000, 'a'), text(500, 'b'), text(30, 'c'), marked(text(70, 'd'))]);
        assert_eq!(provider.ask(&longer), [2_500, 100, 0]);
        assert_eq!(provider.ask(&longer), [2_600, 0, 0]);
    }

    #[test]
    fn without_a_breakpoint_nothing_is_written_or_read() {
        let mut provider = Provider::new();
        provider.ask(&user(&[marked(text(2_000, 'a'))]));
        assert_eq!(provider.ask(&user(&[text(2_000, 'a')])), [0, 0, 2_000]);
    }

    #[test]
    fn an_entry_ends_at_a_breakpoint_and_nowhere_else() {
        let mut provider = Provider::new();
        provider.ask(&user(&[text(2_000, 'a'), text(500, 'b'), marked(text(100, 'c'))]));
        // The first two blocks are the same, but nobody has written an entry there.
        let other = user(&[text(2_000, 'a'), text(500, 'b'), marked(text(100, 'x'))]);
        assert_eq!(provider.ask(&other), [0, 2_600, 0]);
        // A block that has grown is another block.
        let mut provider = Provider::new();
        provider.ask(&user(&[marked(text(2_000, 'a'))]));
        assert_eq!(provider.ask(&user(&[marked(text(2_001, 'a'))])), [0, 2_001, 0]);
    }

    #[test]
    fn every_breakpoint_writes_an_entry_of_its_own() {
        let mut provider = Provider::new();
        provider.ask(&user(&[marked(text(2_000, 'a')), marked(text(500, 'b')), marked(text(100, 'c'))]));
        let other = |end| user(&[text(2_000, 'a'), text(500, end), marked(text(100, 'x'))]);
        assert_eq!(provider.ask(&other('b')), [2_500, 100, 0]);
        assert_eq!(provider.ask(&other('x')), [2_000, 600, 0]);
    }

    #[test]
    fn the_order_is_tools_then_system_then_messages() {
        let body = |tool: &str, system: char, message: char| {
            json!({
                "model": "m",
                "messages": [{"role": "user", "content": [marked(text(1_000, message))]}],
                "system": [marked(text(1_000, system))],
                // `{"name":""}` has 11 bytes.
                "tools": [marked(json!({"name": tool.repeat(8_000 - 11)}))],
            })
        };
        let mut provider = Provider::new();
        assert_eq!(provider.ask(&body("t", 's', 'm')), [0, 4_000, 0]);
        assert_eq!(provider.ask(&body("t", 's', 'x')), [3_000, 1_000, 0]);
        assert_eq!(provider.ask(&body("t", 'x', 'm')), [2_000, 2_000, 0]);
        assert_eq!(provider.ask(&body("x", 's', 'm')), [0, 4_000, 0]);
    }

    #[test]
    fn an_entry_is_found_from_20_positions_on_and_no_further() {
        // With `after` blocks behind the entry, the entry is at position `after + 1` of the look-back.
        let grown = |after: usize| {
            let mut blocks = vec![text(2_000, 'a')];
            blocks.extend((1..after).map(|_| text(1, 'b')));
            blocks.push(marked(text(1, 'b')));
            user(&blocks)
        };
        for (after, read) in [(1, 2_000), (19, 2_000), (20, 0), (21, 0)] {
            let mut provider = Provider::new();
            provider.ask(&user(&[marked(text(2_000, 'a'))]));
            assert_eq!(provider.ask(&grown(after))[0], read, "{after} blocks after the entry");
        }
        // A second breakpoint has a look-back of its own.
        let mut provider = Provider::new();
        provider.ask(&user(&[marked(text(2_000, 'a'))]));
        let mut body = grown(30);
        body["messages"][0]["content"][15]["cache_control"] = json!({"type": "ephemeral"});
        assert_eq!(provider.ask(&body), [2_000, 30, 0]);
    }

    #[test]
    fn a_run_of_tool_calls_or_of_their_results_is_one_position() {
        let body = |kind: &str| {
            let of_kind =
                |index: usize| json!({"type": kind, "id": index, "content": "x", "name": "x", "input": {}});
            let mut blocks = vec![text(2_000, 'a')];
            blocks.extend((0..40).map(of_kind));
            blocks.push(marked(text(1, 'b')));
            user(&blocks)
        };
        for (kind, read) in [("tool_use", 2_000), ("tool_result", 2_000), ("server_tool_use", 0)] {
            let mut provider = Provider::new();
            provider.ask(&user(&[marked(text(2_000, 'a'))]));
            assert_eq!(provider.ask(&body(kind))[0], read, "{kind}");
        }
    }

    #[test]
    fn a_prefix_below_the_minimum_is_neither_written_nor_read() {
        let mut provider = Provider::new();
        let body = |tokens| user(&[marked(text(tokens, 'a')), text(1, 'b')]);
        assert_eq!(provider.ask(&body(1_023)), [0, 0, 1_024]);
        assert_eq!(provider.ask(&body(1_023)), [0, 0, 1_024]);
        assert_eq!(provider.ask(&body(1_024)), [0, 1_024, 1]);
        assert_eq!(provider.ask(&body(1_024)), [1_024, 0, 1]);

        let mut provider = Provider::new();
        provider.cache = provider.cache.minimum(4_096);
        assert_eq!(provider.ask(&body(4_095)), [0, 0, 4_096]);
        assert_eq!(provider.ask(&body(4_096)), [0, 4_096, 1]);
    }

    #[test]
    fn an_entry_lives_for_five_minutes_after_its_last_use() {
        let mut provider = Provider::new();
        let body = user(&[marked(text(2_000, 'a'))]);
        assert_eq!(provider.ask(&body), [0, 2_000, 0]);
        provider.wait(299);
        assert_eq!(provider.ask(&body), [2_000, 0, 0]);
        provider.wait(299);
        assert_eq!(provider.ask(&body), [2_000, 0, 0]);
        provider.wait(300);
        assert_eq!(provider.ask(&body), [0, 2_000, 0]);
    }

    #[test]
    fn reading_a_longer_entry_keeps_the_shorter_ones_alive() {
        let mut provider = Provider::new();
        let short = user(&[marked(text(2_000, 'a'))]);
        let long = user(&[text(2_000, 'a'), marked(text(10, 'b'))]);
        provider.ask(&short);
        provider.ask(&long);
        provider.wait(200);
        assert_eq!(provider.ask(&long), [2_010, 0, 0]);
        provider.wait(200);
        assert_eq!(provider.ask(&short), [2_000, 0, 0]);
    }

    #[test]
    fn an_hour_is_asked_for_and_reported_apart() {
        let mut provider = Provider::new();
        let body = user(&[for_an_hour(text(2_000, 'a')), marked(text(500, 'b')), text(30, 'c')]);
        let usage = provider.usage(&body);
        assert_eq!((usage.cache_write, usage.cache_write_1h, usage.input), (2_500, 2_000, 30));
        provider.wait(301);
        let usage = provider.usage(&body);
        assert_eq!((usage.cache_read, usage.cache_write, usage.cache_write_1h), (2_000, 500, 0));
        provider.wait(3_599);
        assert_eq!(provider.ask(&body)[0], 2_000);
        provider.wait(3_600);
        assert_eq!(provider.ask(&body)[0], 0);
    }

    #[test]
    fn a_lifetime_starts_with_the_request_and_not_with_its_response() {
        let mut provider = Provider::new();
        let body = user(&[marked(text(2_000, 'a'))]);
        let measured = look_up(&mut provider.cache, &body).unwrap();
        provider.wait(100);
        // Before its response begins, nobody else can read it.
        assert_eq!(look_up(&mut provider.cache, &body).unwrap().usage.cache_read, 0);
        provider.cache.write(&measured);
        provider.wait(199);
        assert_eq!(look_up(&mut provider.cache, &body).unwrap().usage.cache_read, 2_000);
        let mut provider = Provider::new();
        let measured = look_up(&mut provider.cache, &body).unwrap();
        provider.wait(100);
        provider.cache.write(&measured);
        provider.wait(200);
        assert_eq!(look_up(&mut provider.cache, &body).unwrap().usage.cache_read, 0);
    }

    #[test]
    fn parameters_break_what_comes_after_them() {
        let mut body = user(&[marked(text(1_000, 'm'))]);
        body["system"] = json!([marked(text(1_000, 's'))]);
        // `{"name":""}` has 11 bytes.
        body["tools"] = json!([marked(json!({"name": "t".repeat(8_000 - 11)}))]);
        let mut with_image = body.clone();
        let image = json!({"type": "image", "source": {"type": "base64", "data": ""}});
        with_image["messages"].as_array_mut().unwrap().push(json!({"role": "user", "content": [image]}));
        let with = |field: &str, value: Value| {
            let mut body = body.clone();
            body[field] = value;
            body
        };
        for (changed, read) in [
            (with("max_tokens", json!(7)), 4_000),
            (with("tool_choice", json!({"type": "any"})), 3_000),
            (with("thinking", json!({"type": "adaptive"})), 3_000),
            (with("output_config", json!({"effort": "low"})), 3_000),
            (with_image, 3_000),
            (with("speed", json!("fast")), 2_000),
            (with("model", json!("n")), 0),
        ] {
            let mut provider = Provider::new();
            provider.ask(&body);
            assert_eq!(provider.ask(&changed)[0], read, "{changed:.200}");
        }
    }

    #[test]
    fn a_text_and_a_list_with_one_text_are_the_same() {
        let string = "a".repeat(8_000);
        let mut provider = Provider::new();
        provider.ask(&user(&[marked(text(2_000, 'a'))]));
        let later = json!({"model": "m", "messages": [
            {"role": "user", "content": string},
            {"role": "assistant", "content": [marked(text(1, 'b'))]}]});
        assert_eq!(provider.ask(&later), [2_000, 1, 0]);
        // Who says it matters.
        let other =
            json!({"model": "m", "messages": [{"role": "assistant", "content": [marked(text(2_000, 'a'))]}]});
        assert_eq!(provider.ask(&other)[0], 0);
    }

    #[test]
    fn a_deferred_tool_is_not_part_of_the_prompt() {
        let mut body = user(&[marked(text(2_000, 'a'))]);
        body["tools"] = json!([{"name": "a"}]);
        let mut provider = Provider::new();
        assert_eq!(provider.ask(&body), [0, 2_003, 0]);
        body["tools"] = json!([{"name": "a"}, {"name": "b", "defer_loading": true}]);
        assert_eq!(provider.ask(&body), [2_003, 0, 0]);
        body["tools"] = json!([{"name": "a"}, {"name": "b"}]);
        assert_eq!(provider.ask(&body), [0, 2_006, 0]);
    }
}
