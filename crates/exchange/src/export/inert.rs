//! Markdown of a session within a document: it keeps its form, and cannot change the rest.
//!
//! Headings become smaller than those of the document, HTML is shown as it is written, images are links, and a code block that
//! is left open is closed.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// The longest text that is read as Markdown.
const LONGEST: usize = 512 * 1024;

/// Returns a text of a model for a place in a document below a heading of the second level.
pub(super) fn inert(text: &str) -> String {
    let text = text.trim_end();
    if text.len() > LONGEST {
        return super::markdown::fenced(text);
    }
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut open_fence = None;
    // A code block in a quote or a list ends with that.
    let mut containers = 0;
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        let written = text.get(range.clone()).unwrap_or_default();
        match event {
            Event::Start(Tag::Heading { .. }) => edits.extend(heading(written, range.start)),
            Event::Html(_) | Event::InlineHtml(_) => {
                let places = written.match_indices('<').map(|(at, _)| range.start + at);
                edits.extend(places.map(|at| (at..at + 1, "&lt;".to_owned())));
            }
            Event::Start(Tag::Image { .. }) => edits.push((range.start..range.start, "\\".to_owned())),
            Event::Start(Tag::BlockQuote(_) | Tag::List(_)) => containers += 1,
            Event::End(TagEnd::BlockQuote(_) | TagEnd::List(_)) => containers -= 1,
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) if containers == 0 => {
                open_fence = fence_of(written).filter(|fence| !is_closed(written, fence));
            }
            _ => {}
        }
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut out = String::with_capacity(text.len() + 16);
    let mut at = 0;
    for (range, replacement) in edits {
        if range.start < at {
            continue;
        }
        out.push_str(text.get(at..range.start).unwrap_or_default());
        out.push_str(&replacement);
        at = range.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    if let Some(fence) = open_fence {
        out.push_str(&format!("\n{fence}"));
    }
    out
}

/// Returns the edits that put a heading below those of the document.
fn heading(written: &str, start: usize) -> Vec<(Range<usize>, String)> {
    let level = written.bytes().take_while(|byte| *byte == b'#').count();
    if level > 0 {
        // Six is the smallest.
        let more = 2.min(6usize.saturating_sub(level));
        return vec![(start..start, "#".repeat(more))];
    }
    // A heading that is underlined: over one line or more.
    let trimmed = written.trim_end();
    let (title, _) = trimmed.rsplit_once('\n').unwrap_or((trimmed, ""));
    let title: Vec<&str> = title.lines().map(|line| line.trim_start_matches(['>', ' ']).trim()).collect();
    vec![(start..start + trimmed.len(), format!("#### {}", title.join(" ")))]
}

/// Returns the fence that a code block begins with.
fn fence_of(written: &str) -> Option<String> {
    let written = written.trim_start();
    let first = written.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    Some(written.chars().take_while(|c| *c == first).collect())
}

/// Returns whether a code block ends with its fence.
fn is_closed(written: &str, fence: &str) -> bool {
    let mut lines = written.lines();
    lines.next();
    let last = lines.next_back().unwrap_or_default().trim();
    last.starts_with(fence) && last.chars().all(|c| fence.starts_with(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_form_and_its_place() {
        for (text, expected) in [
            ("plain *text*", "plain *text*"),
            ("# One\n\n## Two\n\n###### Six", "### One\n\n#### Two\n\n###### Six"),
            ("Title\n=====\n\ntext", "#### Title\n\ntext"),
            ("Two\nlines\n---", "#### Two lines"),
            ("> # Quoted", "> ### Quoted"),
            ("a <b>c</b> <!-- d -->", "a &lt;b>c&lt;/b> &lt;!-- d -->"),
            ("<details>\n<summary>x</summary>\n\ntext", "&lt;details>\n&lt;summary>x&lt;/summary>\n\ntext"),
            ("`<b>` and\n\n```\n<script>\n```", "`<b>` and\n\n```\n<script>\n```"),
            ("```\nopen", "```\nopen\n```"),
            ("~~~~rust\nopen ~~~", "~~~~rust\nopen ~~~\n~~~~"),
            ("```\na\n```\n\nb", "```\na\n```\n\nb"),
            ("> ```\n> open", "> ```\n> open"),
            ("- a\n  ```\n  open", "- a\n  ```\n  open"),
            ("![x](https://e.example/p.png)", "\\![x](https://e.example/p.png)"),
            ("[a](javascript:alert(1))", "[a](javascript:alert(1))"),
        ] {
            assert_eq!(inert(text), expected, "{text}");
            // What is inert stays so.
            if !text.contains('#') {
                assert_eq!(inert(&inert(text)).matches('<').count(), expected.matches('<').count(), "{text}");
            }
        }
    }
}
