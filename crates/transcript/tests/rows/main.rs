//! Blocks of whole turns, and their rows at widths.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "the helpers are parts of tests")]

mod colours;
mod folding;
mod growing;
mod hostile;
mod layouts;
mod recordings;
mod taking;

use azureal_core::{Event, Seq};
use azureal_transcript::{Block, Fold, Layout, Places, Row, Tone, Transcript, rows};

fn places() -> Places {
    Places { project: Some("/users/dev/project".into()), home: Some("/users/dev".into()) }
}

/// Folds events that are numbered from 1.
fn folded(events: &[Event]) -> Transcript {
    let mut transcript = Transcript::new(places());
    for (event, seq) in events.iter().zip(1..) {
        transcript.push(Seq(seq), event);
    }
    transcript
}

fn layout(width: u16, fold: Fold) -> Layout {
    Layout { width, fold, is_ascii: false }
}

/// Returns the rows as text. Soft breaks end with `↩`.
fn text(rows: &[Row]) -> String {
    let line = |row: &Row| format!("{}{}\n", row.text(), if row.is_soft { "↩" } else { "" });
    rows.iter().map(line).collect()
}

/// Returns the rows with marks around each span that has a style.
fn styled(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        for span in &row.spans {
            let mut name =
                if span.style.tone == Tone::Plain { String::new() } else { format!("{:?}", span.style.tone) };
            for (is_set, letter) in [
                (span.style.bold, "b"),
                (span.style.italic, "i"),
                (span.style.underline, "u"),
                (span.style.strike, "s"),
            ] {
                if is_set {
                    name.push_str(&format!("+{letter}"));
                }
            }
            match name.as_str() {
                "" => out.push_str(&span.text),
                name => out.push_str(&format!("<{name}:{}>", span.text)),
            }
        }
        out.push_str(if row.is_soft { "↩\n" } else { "\n" });
    }
    out
}

/// Lays out all blocks, with the rows that keep them apart.
fn screen(blocks: &[Block], layout: &Layout) -> Vec<Row> {
    let mut all = Vec::new();
    let mut before: Option<&Block> = None;
    for block in blocks {
        if before.is_some_and(|before| before.has_gap_after(block)) {
            all.push(Row::default());
        }
        before = Some(block);
        all.extend(rows(block, layout));
    }
    all
}

/// Checks what holds for all rows of a block.
#[track_caller]
fn check(block: &Block, layout: &Layout) {
    let source = block.source();
    for row in rows(block, layout) {
        let width = row.width();
        assert!(width <= usize::from(layout.width.max(10)), "{width} in {layout:?}: {:?}", row.text());
        assert!(source.get(row.source.clone()).is_some(), "{:?} of {} bytes", row.source, source.len());
        for span in &row.spans {
            assert!(!span.text.contains(azureal_core::acts_on_terminal), "{:?}", span.text);
            let written = source.get(span.source.clone());
            assert!(written.is_some(), "{span:?}");
            if span.is_exact {
                assert_eq!(written, Some(span.text.as_str()));
            }
            if !span.source.is_empty() {
                assert!(
                    row.source.start <= span.source.start && span.source.end <= row.source.end,
                    "{row:?}"
                );
            }
        }
    }
}
