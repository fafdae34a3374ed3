//! Colours of code change no height.

use azureal_transcript::{
    Author, Call, CallState, Change, Content, Highlighter, Text, apply_tones, code_parts,
};

use super::*;

static HIGHLIGHTER: Highlighter = Highlighter::new();

/// Returns the rows of a block with the tones of its code.
fn coloured(block: &Block, layout: &Layout) -> Vec<Row> {
    let mut shown = rows(block, layout);
    for part in code_parts(block) {
        let source = block.source();
        assert_eq!(source.get(part.at..part.at + part.code.len()).map(str::len), Some(part.code.len()));
        let tones = HIGHLIGHTER.tones(&part.language, &part.code);
        for row in &mut shown {
            apply_tones(row, part.at, &tones);
        }
    }
    shown
}

fn answer(source: &str) -> Block {
    Block::new(Seq(1), 0, Content::Text(Text::new(Author::Agent, source)))
}

#[test]
fn colours_change_neither_texts_nor_heights() {
    let source = "Look at `fn` here:\n\n```rust\n// wés\nfn main() {\n\tlet x = \"\u{1b}[1m\";\n}\n```\n\n- item\n\n  ```py\n  def f():\n      return 1\n  ```\n\n> ```sh\n> echo 'x'\n> ```\n";
    for width in [80, 40, 12] {
        let (plain, shown) = (
            rows(&answer(source), &layout(width, Fold::Open)),
            coloured(&answer(source), &layout(width, Fold::Open)),
        );
        assert_eq!(text(&plain), text(&shown));
        for (plain, shown) in plain.iter().zip(&shown) {
            assert_eq!((&plain.source, plain.is_soft), (&shown.source, shown.is_soft));
            for span in &shown.spans {
                assert!(
                    !span.is_exact || source.get(span.source.clone()) == Some(span.text.as_str()),
                    "{span:?}"
                );
            }
        }
    }
    insta::assert_snapshot!(styled(&coloured(&answer(source), &layout(40, Fold::Open))), @r#"
    Look at <Code:fn> here:

      <Comment:// wés>
      <Keyword:fn> <Definition:main>() {
      <Code:    ><Keyword:let> x = <Literal:"><Code:␛><Literal:[1m">;
      }

    <Quiet:• >item

        <Keyword:def> <Definition:f>():
            <Keyword:return> <Literal:1>

    <Quiet:│ >  <Definition:echo> <Literal:'x'>
    "#);
}

#[test]
fn code_without_a_language_is_not_asked_for() {
    assert!(code_parts(&answer("```\nx\n```\n\n    y\n")).is_empty());
    assert!(code_parts(&answer("```rust\n```\n")).is_empty());
    assert!(code_parts(&Block::prompt(Seq(1), "```rust\nx\n```")).is_empty());
}

#[test]
fn a_diff_is_coloured_by_its_file_and_keeps_its_changes() {
    let call = Call {
        id: "a".into(),
        tool: "Edit".into(),
        key: "src/token.rs".into(),
        state: CallState::Done,
        summary: "+1 −1".into(),
        diff: ["@@ -7,2 +7,2 @@", "-    let row = \"old\";", "+    let row = \"new\";", " }"]
            .map(str::to_owned)
            .to_vec(),
        output: String::new(),
        omitted: 0,
        is_subagents: false,
    };
    let block = Block::new(Seq(1), 0, Content::Call(call));
    let shown = coloured(&block, &layout(60, Fold::Open));
    assert_eq!(text(&shown), text(&rows(&block, &layout(60, Fold::Open))));
    let literal = |row: &Row, literal: &str, change: Change| {
        row.spans.iter().any(|span| {
            span.text == literal && span.style.tone == Tone::Literal && span.style.change == Some(change)
        })
    };
    assert!(literal(&shown[1], "\"old\"", Change::Removed), "{:?}", shown[1]);
    assert!(literal(&shown[2], "\"new\"", Change::Added), "{:?}", shown[2]);
}
