//! Texts that try to act on the terminal, or to break the layout.

use azureal_core::event::{Complete, ErrorEvent, Hook, ToolCall, ToolResult};
use azureal_transcript::{Author, CallState, Content, Level, Text};

use super::*;

/// What hostile texts are made of.
const PIECES: [&str; 60] = [
    "\u{1b}[2J",
    "\u{1b}]0;title\u{7}",
    "\u{1b}]52;c;eA==\u{7}",
    "\u{1b}P+q\u{1b}\\",
    "\u{9b}31m",
    "\u{9d}8;;x\u{9c}",
    "\u{0}",
    "\u{7}",
    "\u{8}",
    "\r",
    "\r\n",
    "\n",
    "\n\n",
    "\t",
    "\u{b}",
    "\u{c}",
    "\u{7f}",
    "\u{85}",
    "\u{2028}",
    "\u{2029}",
    "\u{202e}",
    "\u{2066}",
    "\u{2069}",
    "\u{200f}",
    "\u{61c}",
    "\u{200b}",
    "\u{200d}",
    "\u{feff}",
    "\u{ad}",
    "\u{301}",
    "e\u{301}\u{302}\u{303}",
    "👨‍👩‍👧‍👦",
    "🏳️‍🌈",
    "🇩🇪",
    "🇩",
    "日本",
    "。",
    "ﷺ",
    "ﬁ",
    "\u{1f1e6}\u{200d}",
    "\u{e0001}",
    "\u{fe0f}",
    "⚠️",
    "word ",
    " ",
    "    ",
    "# ",
    "- ",
    "1. ",
    "> ",
    "```",
    "```rust\n",
    "| a | b |\n|---|--:|\n| ",
    "|",
    "[a](",
    "](b)",
    "**",
    "&#x1b;",
    "&#8238;",
    "<b>\u{1b}</b>",
];

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn text(&mut self) -> String {
        let count = self.below(24);
        let mut text: String =
            (0..count).filter_map(|_| PIECES.get(self.below(PIECES.len())).copied()).collect();
        if self.below(50) == 0 {
            text.push_str(&format!("x{}", "\u{301}".repeat(300)));
        }
        if self.below(50) == 0 {
            text.push_str(&"W".repeat(600));
        }
        text
    }
}

/// Returns blocks with a text in every place.
fn blocks(text: &str) -> Vec<Block> {
    let input = serde_json::json!({"command": text, "file_path": text, "old_string": text, "new_string": format!("{text}\nx"), "content": text});
    let call = |id: &str, tool: &str| {
        Event::ToolCall(ToolCall {
            tool_use_id: id.into(),
            tool_name: tool.into(),
            input: input.clone().into(),
            subagent: id.starts_with('s').then(|| text.to_owned()),
            ..ToolCall::default()
        })
    };
    let result = |id: &str, is_error: bool| {
        Event::ToolResult(ToolResult {
            tool_use_id: id.into(),
            content: text.into(),
            is_error,
            ..ToolResult::default()
        })
    };
    let events = [
        Event::user(text),
        Event::assistant(text),
        call("a", "Bash"),
        call("s", "Edit"),
        call("b", "Write"),
        call("c", text),
        result("a", true),
        result("s", false),
        result("c", false),
        Event::Error(ErrorEvent { message: text.into(), kind: text.into() }),
        Event::Hook(Hook { name: text.into(), output: text.into() }),
        Event::Complete(Complete::default()),
    ];
    let mut blocks = folded(&events).blocks().to_vec();
    let mut named = Text { has_heading: true, model: Some(text.into()), ..Text::new(Author::Agent, text) };
    named.agent = Some(text.into());
    blocks.push(Block::new(Seq(20), 0, Content::Text(named)));
    blocks.push(Block::new(Seq(21), 0, Content::Notice(Level::Warning, text.into())));
    blocks
}

#[test]
fn hostile_texts_neither_act_nor_overflow() {
    let mut random = Random(7);
    for index in 0..5_000 {
        let text = random.text();
        let width = [10, 11, 20, 40, 80, 120, 3][index % 7];
        let fold = [Fold::Open, Fold::Preview, Fold::Closed][index % 3];
        for block in blocks(&text) {
            check(&block, &layout(width, fold));
        }
    }
}

#[test]
fn a_huge_line_is_cut_with_its_size() {
    let event = |is_error| {
        Event::ToolResult(ToolResult {
            tool_use_id: "a".into(),
            tool_name: "Bash".into(),
            content: "x".repeat(1_000_000),
            is_error,
            ..ToolResult::default()
        })
    };
    for is_error in [false, true] {
        let transcript = folded(&[event(is_error)]);
        let block = &transcript.blocks()[0];
        check(block, &layout(80, Fold::Open));
        let rows = rows(block, &layout(80, Fold::Open));
        assert!(rows.len() < 100, "{}", rows.len());
        assert!(rows.last().unwrap().text().ends_with("… 1.0 MB"));
    }
    let block = Block::prompt(Seq(1), "y".repeat(1_000_000));
    assert!(rows(&block, &layout(80, Fold::Open)).len() < 1_000);
}

#[test]
fn a_huge_block_has_a_bounded_number_of_rows() {
    let lines = |count: usize| (0..count).map(|n| format!("line {n}\n")).collect::<String>();
    let result = Event::ToolResult(ToolResult {
        tool_use_id: "a".into(),
        tool_name: "Bash".into(),
        content: lines(200_000),
        ..ToolResult::default()
    });
    let events = [
        Event::user(lines(50_000)),
        Event::assistant(lines(50_000)),
        result,
        Event::error("x", lines(50_000)),
    ];
    for block in folded(&events).blocks() {
        let rows = rows(block, &layout(80, Fold::Open));
        assert!((9_000..=10_002).contains(&rows.len()), "{}", rows.len());
        let last = rows.last().unwrap().text();
        assert!(last.ends_with("more lines"), "{last}");
    }
}

#[test]
fn a_call_that_is_still_running_is_hostile_too() {
    for block in blocks("\u{1b}[2J\u{202e}") {
        if let Content::Call(mut call) = block.content {
            call.state = CallState::Running;
            check(&Block::new(Seq(1), 0, Content::Call(call)), &layout(30, Fold::Preview));
        }
    }
}

#[test]
fn deep_nesting_takes_bounded_work() {
    for source in [
        "> ".repeat(20_000),
        "- ".repeat(20_000),
        "[".repeat(20_000),
        "*".repeat(20_000),
        "| ".repeat(20_000),
    ] {
        let text = Text::new(Author::Agent, format!("{source}x\n"));
        check(&Block::new(Seq(1), 0, Content::Text(text)), &layout(40, Fold::Open));
    }
}
