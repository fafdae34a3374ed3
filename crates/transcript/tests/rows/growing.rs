//! A text that grows has the rows of the whole text, at every cut.

use azureal_transcript::{Author, Content, GrowingText, Text};
use proptest::prelude::*;

use super::*;

fn unfinished(source: &str) -> Text {
    Text { is_finished: false, has_heading: true, ..Text::new(Author::Agent, source) }
}

fn whole(text: &Text, layout: &Layout) -> Vec<Row> {
    rows(&Block::new(Seq(1), 0, Content::Text(text.clone())), layout)
}

/// Grows a text by the pieces between these cuts, and compares it with the whole at each.
fn grow(source: &str, cuts: impl IntoIterator<Item = usize>, layout: &Layout) {
    let mut growing = GrowingText::new(*layout);
    let mut stable: Vec<Row> = Vec::new();
    for cut in cuts {
        let Some(part) = source.get(..cut) else { continue };
        let text = unfinished(part);
        growing.update(&text);
        assert_eq!(super::text(growing.rows()), super::text(&whole(&text, layout)), "{part:?}");
        let whole = whole(&text, layout);
        for (growing, whole) in growing.rows().iter().zip(&whole) {
            assert_eq!(growing, whole, "{part:?}");
        }
        let is_defined = part.contains("]:") || part.contains('\r');
        if !is_defined {
            assert_eq!(
                growing.rows().get(..stable.len()),
                Some(stable.as_slice()),
                "stable rows changed: {part:?}"
            );
        }
        stable = growing.rows().iter().take(growing.stable_rows()).cloned().collect();
    }
}

/// What has gone wrong in programs that lay out Markdown piece by piece.
const NASTY: &str = "Intro *with* emphasis\nand a second line\n\ntext\n#hash\n#\n# Heading\nSetext\n===\ntext\n- not a heading\n\n  - indented list\n  - sibling\n    - nested\n\n  loose\n\n1. one\n1) another list\n\n10. ten\n    para\n\n    code?\n\n> quote\nlazy\n\n> > deep\n> back\n\n```rust\nfn main() {\n\n\tlet x = 1;\n``\n````\n~~~\n```\nrest\n~~~ sh `x`\necho\n```\n~~~\n    indented code\n\n    more\n\n| a | b |\n|---|:-:|\n| 1 | 2 |\n| 3 | **4** |\nafter\n\npara\n| x | y |\n|---|---|\n| 1 |\n\n---\n***\n- - -\n<div>\nhtml\n\n</div>\n<!-- comment\n\nstill -->\n\n- [x] done\n- [ ] open\n\n* a\n\n  b\n* c\n+ d\n\n\\\nHard  \nbreak `code\nspan` &amp; <b>x</b>\r\n\r\nCRLF\r\n```\r\ncode\r\n\r\n```\r\n日本語\n\n  ```\n  indented fence\n ```\nlast";

/// From here on earlier blocks can change.
const DEFINED: &str = "See [ref] and [text][ref] and note[^n].\n\n- [ref]\n\n```\n[ref]: no\n```\n\n[ref]: https://example.com 'title'\n\nmore [ref]\n\n[^n]: The note\n    goes on\n\nend";

#[test]
fn a_growing_text_equals_the_whole_at_every_cut_of_nasty_markdown() {
    for layout in
        [layout(80, Fold::Open), layout(17, Fold::Open), Layout { is_ascii: true, ..layout(40, Fold::Open) }]
    {
        for source in [NASTY, DEFINED, &format!("{NASTY}\n\n{DEFINED}")] {
            grow(source, 0..=source.len(), &layout);
        }
    }
}

#[test]
fn lines_of_an_open_code_block_are_stable() {
    let mut growing = GrowingText::new(layout(80, Fold::Open));
    growing.update(&unfinished("Look:\n\n```rust\nfn a() {}\nfn b() {}\nfn c("));
    let rows: Vec<String> = growing.rows().iter().map(Row::text).collect();
    assert_eq!(rows, ["agent", "  Look:", "", "    fn a() {}", "    fn b() {}", "    fn c("]);
    assert_eq!(growing.stable_rows(), 5);
}

#[test]
fn a_table_is_not_stable_before_something_follows_it() {
    let mut growing = GrowingText::new(layout(80, Fold::Open));
    growing.update(&unfinished("a\n\n|x|y|\n|-|-|\n|1|2|\n"));
    assert_eq!(growing.stable_rows(), 2);
    growing.update(&unfinished("a\n\n|x|y|\n|-|-|\n|1|2|\n\nb\n"));
    assert_eq!(growing.stable_rows(), 6);
}

#[test]
fn a_text_that_changes_elsewhere_is_laid_out_again() {
    let mut growing = GrowingText::new(layout(80, Fold::Open));
    growing.update(&unfinished("one\n\ntwo\n\nthree"));
    growing.update(&unfinished("ONE\n\ntwo"));
    assert_eq!(growing.rows(), whole(&unfinished("ONE\n\ntwo"), &layout(80, Fold::Open)));
    let finished = Text { is_finished: true, ..unfinished("ONE\n\ntwo\n\nend") };
    growing.update(&finished);
    assert_eq!(growing.rows(), whole(&finished, &layout(80, Fold::Open)));
}

fn piece() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        "\n",
        "\n\n",
        "\n",
        "\n\n",
        " ",
        "  ",
        "    ",
        "\t",
        "- ",
        "* ",
        "+ ",
        "1. ",
        "2) ",
        "> ",
        "# ",
        "### ",
        "===\n",
        "---\n",
        "```\n",
        "```rust\n",
        "~~~\n",
        "`",
        "``",
        "```",
        "**",
        "*",
        "_",
        "~~",
        "|",
        "| a | b |\n|---|---|\n",
        "| 1 | 2 |\n",
        "[a](b)",
        "[x]",
        "[^1]",
        "<div>\n",
        "</div>\n",
        "<!--",
        "-->",
        "<b>",
        "\\",
        "&amp;",
        "word",
        "two words",
        "a longer run of words that wraps",
        "日本",
        "\r\n",
        "a\rb",
        "- [ ] ",
        "***\n",
        "![i](u)",
        "https://x.y",
    ]);
    let definition = prop::sample::select(vec!["[x]: /u\n", "[^1]: note\n"]);
    prop_oneof![40 => fixed.prop_map(str::to_owned), 1 => definition.prop_map(str::to_owned)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_growing_text_equals_the_whole(pieces in prop::collection::vec(piece(), 0..40), width in 10_u16..90) {
        let source: String = pieces.concat();
        let mut cuts = Vec::new();
        let mut end = 0;
        for piece in &pieces {
            cuts.push(end + piece.len() / 2);
            end += piece.len();
            cuts.push(end);
        }
        grow(&source, cuts, &layout(width, Fold::Open));
    }
}
