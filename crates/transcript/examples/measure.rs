//! Measures layout and highlighting: `cargo run --release -p azureal-transcript --example measure`.
#![allow(clippy::disallowed_macros, reason = "it prints its measurements")]

use std::time::Instant;

use azureal_core::Seq;
use azureal_transcript::{
    Author, Block, Content, Fold, GrowingText, Highlighter, Layout, Text, Transcript, rows,
};

const CODE: &str = include_str!("../src/wrap.rs");

fn main() {
    let layout = Layout { width: 100, fold: Fold::Open, is_ascii: false };
    let prose = "Two refreshes **race** on the same `token` row, and the [second](https://example.com) one wins.\n\n- one\n- two\n\n";
    let answer = format!("{}```rust\n{CODE}\n```\n", prose.repeat(200));

    let highlighter = Highlighter::new();
    measure("first tones (loads the grammars)", 1, || drop(highlighter.tones("rust", "fn main() {}")));
    let bytes = CODE.len();
    measure(&format!("tones of {bytes} bytes of Rust"), 5, || drop(highlighter.tones("rust", CODE)));

    let block = Block::new(Seq(1), 0, Content::Text(Text::new(Author::Agent, answer.clone())));
    measure(&format!("rows of {} bytes of Markdown", answer.len()), 20, || drop(rows(&block, &layout)));

    let pieces: Vec<&str> =
        answer.as_bytes().chunks(40).filter_map(|bytes| std::str::from_utf8(bytes).ok()).collect();
    measure(&format!("{} deltas of 40 bytes, each laid out", pieces.len()), 1, || {
        let mut transcript = Transcript::default();
        let mut growing = GrowingText::new(layout);
        for piece in &pieces {
            transcript.push_delta(Seq(1), piece);
            if let Some(Content::Text(text)) = transcript.blocks().last().map(|block| &block.content) {
                growing.update(text);
            }
        }
    });
}

fn measure(what: &str, times: u32, mut work: impl FnMut()) {
    let start = Instant::now();
    (0..times).for_each(|_| work());
    println!("{what}: {:?}", start.elapsed() / times);
}
