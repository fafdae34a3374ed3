//! The blocks of a request of the Messages API, its breakpoints, and what the API refuses about them.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Value, json};

use super::count::tokens;
use super::items;

const MOST_BREAKPOINTS: usize = 4;
pub(super) const FIVE_MINUTES: Duration = Duration::from_secs(5 * 60);
pub(super) const ONE_HOUR: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Tools,
    System,
    Messages,
}

/// A block of a prompt, with its place as the API names it in errors.
pub(super) struct Block<'a> {
    pub(super) section: Section,
    pub(super) role: &'a str,
    path: String,
    pub(super) value: Cow<'a, Value>,
}

impl<'a> Block<'a> {
    fn new(section: Section, role: &'a str, path: String, value: Cow<'a, Value>) -> Self {
        Self { section, role, path, value }
    }

    pub(super) fn kind(&self) -> &str {
        self.value["type"].as_str().unwrap_or_default()
    }

    /// Returns the marks of a block, each with the block that has it: those inside a tool result come first.
    fn marks(&self) -> Vec<Mark<'_>> {
        let mut marks = Vec::new();
        if self.kind() == "tool_result" {
            for (index, inner) in items(&self.value["content"]).iter().enumerate() {
                marks.extend(Mark::of(format!("{}.content.{index}", self.path), inner));
            }
        }
        marks.extend(Mark::of(self.path.clone(), &self.value));
        marks
    }

    fn is_cacheable(&self) -> bool {
        check_markable(&self.path, &self.value).is_ok()
    }
}

/// Returns an error, as the API words it, if this block cannot have a mark.
fn check_markable(path: &str, block: &Value) -> Result<(), String> {
    match block["type"].as_str() {
        Some(kind @ ("thinking" | "redacted_thinking")) => {
            Err(format!("{path}.{kind}.cache_control: Extra inputs are not permitted"))
        }
        Some("text") if block["text"].as_str().is_none_or(str::is_empty) => {
            Err(format!("{path}.text: cache_control cannot be set for empty text blocks"))
        }
        _ => Ok(()),
    }
}

/// A `cache_control`.
struct Mark<'a> {
    path: String,
    block: &'a Value,
    control: &'a Value,
}

impl<'a> Mark<'a> {
    fn of(path: String, block: &'a Value) -> Option<Self> {
        let control = block.get("cache_control").filter(|control| !control.is_null())?;
        Some(Self { path, block, control })
    }

    /// Returns the requested lifetime. The error describes the mark's fault, as the API does.
    fn lifetime(&self) -> Result<Duration, String> {
        let path = &self.path;
        check_markable(path, self.block)?;
        match self.control["type"].as_str() {
            Some("ephemeral") => {}
            Some(other) => {
                return Err(format!(
                    "{path}.cache_control: Input tag '{other}' found using 'type' does not match any of the \
                     expected tags: 'ephemeral'"
                ));
            }
            None => return Err(format!("{path}.cache_control.type: Field required")),
        }
        match &self.control["ttl"] {
            Value::Null => Ok(FIVE_MINUTES),
            ttl if ttl == "5m" => Ok(FIVE_MINUTES),
            ttl if ttl == "1h" => Ok(ONE_HOUR),
            _ => Err(format!("{path}.cache_control.ephemeral.ttl: Input should be '5m' or '1h'")),
        }
    }
}

/// Returns the blocks of a prompt in the order in which they are cached.
pub(super) fn blocks(body: &Value) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    for (index, tool) in items(&body["tools"]).iter().enumerate() {
        if tool["defer_loading"] == true {
            continue;
        }
        blocks.push(Block::new(Section::Tools, "", format!("tools.{index}"), Cow::Borrowed(tool)));
    }
    content(&mut blocks, Section::System, "", "system", &body["system"]);
    for (index, message) in items(&body["messages"]).iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        let path = format!("messages.{index}.content");
        content(&mut blocks, Section::Messages, role, &path, &message["content"]);
    }
    blocks
}

fn content<'a>(blocks: &mut Vec<Block<'a>>, section: Section, role: &'a str, path: &str, content: &'a Value) {
    match content {
        Value::String(text) => {
            let block = json!({"type": "text", "text": text});
            blocks.push(Block::new(section, role, path.to_owned(), Cow::Owned(block)));
        }
        content => {
            for (index, block) in items(content).iter().enumerate() {
                blocks.push(Block::new(section, role, format!("{path}.{index}"), Cow::Borrowed(block)));
            }
        }
    }
}

/// Returns the number of breakpoints that a request asks for, the one at the top level included.
pub(in crate::model_server) fn count_breakpoints(body: &Value) -> usize {
    let blocks = blocks(body);
    let explicit: usize = blocks.iter().map(|block| block.marks().len()).sum();
    explicit + usize::from(matches!(automatic(body, &blocks), Ok(Some(_))))
}

/// Returns the number of tokens of a prompt.
pub(in crate::model_server) fn count_tokens(body: &Value) -> u64 {
    blocks(body).iter().map(|block| tokens(&block.value)).sum()
}

/// A mark of a block, or of the top level.
pub(super) struct Breakpoint {
    /// The index of its block.
    pub(super) block: usize,
    pub(super) lifetime: Duration,
    path: String,
}

/// Returns the breakpoint that a `cache_control` at the top level adds. `None` if there is no such field, or no
/// block that can have it, or if the block has one already.
fn automatic(body: &Value, blocks: &[Block<'_>]) -> Result<Option<Breakpoint>, String> {
    let Some(control) = body.get("cache_control").filter(|control| !control.is_null()) else {
        return Ok(None);
    };
    let lifetime = Mark { path: "top-level".into(), block: &Value::Null, control }.lifetime()?;
    let Some(block) = blocks.iter().rposition(Block::is_cacheable) else { return Ok(None) };
    let path = blocks[block].path.clone();
    match blocks[block].marks().last() {
        None => Ok(Some(Breakpoint { block, lifetime, path })),
        Some(mark) if mark.lifetime()? == lifetime => Ok(None),
        Some(_) => Err(format!("{path}.cache_control.ttl: differs from that of the top-level cache_control")),
    }
}

/// Returns the breakpoints of a request in order. The error is the message of a refusal.
pub(super) fn breakpoints(body: &Value, blocks: &[Block<'_>]) -> Result<Vec<Breakpoint>, String> {
    let mut breakpoints = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        for mark in block.marks() {
            breakpoints.push(Breakpoint { block: index, lifetime: mark.lifetime()?, path: mark.path });
        }
    }
    if let Some(last) = automatic(body, blocks)? {
        let at = breakpoints.partition_point(|breakpoint| breakpoint.block <= last.block);
        breakpoints.insert(at, last);
    }
    if breakpoints.len() > MOST_BREAKPOINTS {
        return Err(format!(
            "A maximum of {MOST_BREAKPOINTS} blocks with cache_control may be provided. Found {}.",
            breakpoints.len()
        ));
    }
    for pair in breakpoints.windows(2) {
        if pair[0].lifetime < pair[1].lifetime {
            return Err(format!(
                "{}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' \
                 cache_control block. Note that blocks are processed in the following order: `tools`, `system`, \
                 `messages`.",
                pair[1].path
            ));
        }
    }
    Ok(breakpoints)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Value {
        json!({"type": "ephemeral"})
    }

    fn text(control: &Value) -> Value {
        json!({"type": "text", "text": "Hello", "cache_control": control})
    }

    fn refusal(body: &Value) -> Option<String> {
        breakpoints(body, &blocks(body)).err()
    }

    /// A request with this many breakpoints, each in another kind of place.
    fn marked(count: usize) -> Value {
        let control = |index: usize| if index < count { mark() } else { Value::Null };
        json!({
            "tools": [{"name": "Bash", "cache_control": control(0)}],
            "system": [{"type": "text", "text": "Be kind.", "cache_control": control(1)}],
            "messages": [
                {"role": "user", "content": [text(&control(2))]},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "name": "Bash", "input": {"cache_control": mark()}, "cache_control": control(3)}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "content": [text(&control(4))], "cache_control": control(5)}]},
            ],
        })
    }

    #[test]
    fn more_than_four_breakpoints_are_refused_wherever_they_are() {
        for count in 0..=6 {
            let body = marked(count);
            assert_eq!(count_breakpoints(&body), count);
            let expected = (count > 4)
                .then(|| format!("A maximum of 4 blocks with cache_control may be provided. Found {count}."));
            assert_eq!(refusal(&body), expected);
        }
    }

    #[test]
    fn a_mark_at_the_top_level_is_a_breakpoint_on_the_last_block_that_can_have_one() {
        let mut body = json!({"cache_control": mark(), "messages": [{"role": "assistant", "content": [
            {"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "text", "text": ""},
            {"type": "thinking", "thinking": "hm"}]}]});
        let found = breakpoints(&body, &blocks(&body)).unwrap();
        assert_eq!(found.iter().map(|found| found.block).collect::<Vec<_>>(), [1]);
        assert_eq!(count_breakpoints(&body), 1);

        // The block has the same mark already, or another one.
        body["messages"][0]["content"][1]["cache_control"] = mark();
        assert_eq!((count_breakpoints(&body), refusal(&body)), (1, None));
        body["cache_control"]["ttl"] = json!("1h");
        let message =
            "messages.0.content.1.cache_control.ttl: differs from that of the top-level cache_control";
        assert_eq!(refusal(&body).as_deref(), Some(message));

        // It is one of the four.
        let mut body = marked(4);
        body["cache_control"] = mark();
        assert_eq!(count_breakpoints(&body), 5);
        assert!(refusal(&body).unwrap().ends_with("Found 5."));
    }

    #[test]
    fn an_hour_after_five_minutes_is_refused() {
        let [short, long] = ["5m", "1h"].map(|ttl| json!({"type": "ephemeral", "ttl": ttl}));
        let body = |first: &Value, second: &Value| json!({"system": [text(first)], "messages": [{"role": "user", "content": [text(second)]}]});
        for (first, second) in [(&long, &short), (&long, &mark()), (&long, &long), (&short, &mark())] {
            assert_eq!(refusal(&body(first, second)), None);
        }
        let message = "messages.0.content.0.cache_control.ttl: a ttl='1h' cache_control block must not come after \
                       a ttl='5m' cache_control block. Note that blocks are processed in the following order: \
                       `tools`, `system`, `messages`.";
        for first in [&short, &mark()] {
            assert_eq!(refusal(&body(first, &long)).as_deref(), Some(message));
        }
    }

    #[test]
    fn marks_that_the_api_does_not_know_are_refused() {
        let unknown = "messages.0.content.0.cache_control: Input tag 'persistent' found using 'type' does not match \
                       any of the expected tags: 'ephemeral'";
        for (block, expected) in [
            (text(&json!({"type": "persistent"})), unknown),
            (text(&json!({})), "messages.0.content.0.cache_control.type: Field required"),
            (
                text(&json!({"type": "ephemeral", "ttl": 300})),
                "messages.0.content.0.cache_control.ephemeral.ttl: Input should be '5m' or '1h'",
            ),
            (
                json!({"type": "text", "text": "", "cache_control": mark()}),
                "messages.0.content.0.text: cache_control cannot be set for empty text blocks",
            ),
            (
                json!({"type": "thinking", "thinking": "hm", "cache_control": mark()}),
                "messages.0.content.0.thinking.cache_control: Extra inputs are not permitted",
            ),
            (
                json!({"type": "tool_result", "content": [{"type": "text", "text": "", "cache_control": mark()}]}),
                "messages.0.content.0.content.0.text: cache_control cannot be set for empty text blocks",
            ),
        ] {
            let body = json!({"messages": [{"role": "user", "content": [block]}]});
            assert_eq!(refusal(&body).as_deref(), Some(expected));
        }
    }

    #[test]
    fn tokens_are_those_of_tools_system_and_messages() {
        let body = json!({
            "model": "m", "max_tokens": 1,
            "tools": [{"name": "a"}],
            "system": "Be kind.",
            "messages": [{"role": "user", "content": "abcde"}, {"role": "assistant", "content": [
                {"type": "text", "text": "abcd", "cache_control": mark()}]}],
        });
        assert_eq!(count_tokens(&body), 3 + 2 + 2 + 1);
    }

    #[test]
    fn a_body_of_another_form_has_no_blocks() {
        for body in
            [json!(null), json!("text"), json!([1]), json!({"tools": 1, "system": 2, "messages": [3]})]
        {
            assert_eq!((count_tokens(&body), count_breakpoints(&body), refusal(&body)), (0, 0, None));
        }
    }
}
