//! Markdown of a session within a document: it keeps its form, and cannot change the rest.
//!
//! Headings become smaller than those of the document, HTML is shown as it is written, images are links, links have their address with them and
//! lead to the web, and a code block that is left open is closed. What is still not inert after that is a code block as a whole.

use std::ops::Range;

use azureal_core::visible;
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd};

use super::markdown::fenced;
use super::sequences::without_sequences;

/// The longest text that is read as Markdown.
const LONGEST: usize = 512 * 1024;
/// How often a text is changed at most. What was in HTML becomes Markdown when that does not count any more.
const MOST_PASSES: usize = 8;

/// A part of a text, and what replaces it.
type Edit = (Range<usize>, String);

/// What becomes of a line break within a paragraph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineBreaks {
    /// The lines are one paragraph, as a model means it.
    Flow,
    /// The lines stay lines, as a person has typed them.
    Stay,
}

/// Returns a text for a place in a document below a heading of the second level.
pub(super) fn inert(text: &str, breaks: LineBreaks) -> String {
    // First, because a carriage return is a line break for some readers of Markdown.
    let text = without_sequences(text);
    let text = visible(&text);
    let text = text.trim_end();
    let inert = if text.len() <= LONGEST { edited(&without_blanks(text), breaks) } else { None };
    inert.unwrap_or_else(|| fenced(text))
}

/// Removes the blanks at the ends of lines, but for two that break the line: readers do not agree on tabs behind the end of a code block, and
/// on blanks in an empty line of an item.
fn without_blanks(text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| {
            let shown = line.trim_end_matches([' ', '\t']);
            let breaks =
                !shown.is_empty() && line.get(shown.len()..).is_some_and(|rest| rest.starts_with("  "));
            format!("{shown}{}", if breaks { "  " } else { "" })
        })
        .collect();
    lines.join("\n")
}

/// Changes a text until it is inert; `None` if it never is.
fn edited(text: &str, breaks: LineBreaks) -> Option<String> {
    let mut inert = text.to_owned();
    let mut reading = Reading::of(&inert);
    for _ in 0..MOST_PASSES {
        if reading.edits.is_empty() {
            break;
        }
        inert = apply(&inert, reading.edits);
        reading = Reading::of(&inert);
    }
    if !reading.headings.is_empty() {
        inert = apply(&inert, reading.headings);
        reading = Reading::of(&inert);
    }
    if breaks == LineBreaks::Stay && !reading.breaks.is_empty() {
        // Spaces and not backslashes: the document is read as text too.
        let hard = reading.breaks.into_iter().map(|at| (at..at, "  ".to_owned())).collect();
        inert = apply(&inert, hard);
        reading = Reading::of(&inert);
    }
    if let Some(fence) = &reading.open_fence {
        inert.push_str(&format!("\n{fence}"));
        reading = Reading::of(&inert);
    }
    let is_inert = reading.edits.is_empty() && !reading.has_large_heading && reading.open_fence.is_none();
    is_inert.then_some(inert)
}

fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by(|(a, to), (b, other)| (a.start, a.end, to).cmp(&(b.start, b.end, other)));
    // What two readings find is one edit.
    edits.dedup();
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
    out
}

/// What a text has that is not inert.
#[derive(Default)]
struct Reading {
    /// The edits of everything but headings and code blocks.
    edits: Vec<Edit>,
    headings: Vec<Edit>,
    /// The line breaks within paragraphs.
    breaks: Vec<usize>,
    /// Whether a heading is as large as those of the document.
    has_large_heading: bool,
    /// The end of a code block that has none.
    open_fence: Option<String>,
}

impl Reading {
    /// Reads a text with and without tables: readers of Markdown do not agree on where one begins and ends. What is a row for one is a paragraph for
    /// another.
    fn of(text: &str) -> Self {
        // Without task lists: their boxes are text of an item, and this parser takes one for the whole item. What follows would be code for it,
        // and the next block of the item for others.
        let options = Options::ENABLE_STRIKETHROUGH | Options::ENABLE_FOOTNOTES;
        let mut without = Self::default();
        without.read(text, options);
        let Self { edits, has_large_heading, .. } = without;
        let mut reading = Self { edits, has_large_heading, ..Self::default() };
        reading.read(text, options | Options::ENABLE_TABLES);
        reading
    }

    fn read(&mut self, text: &str, options: Options) {
        let reading = self;
        let mut is_code = false;
        // Some readers make a link of an address in a text. It continues up to a space, also through the marks of code.
        let mut is_in_address = false;
        // A code block in a quote or a list ends with that.
        let mut containers = 0;
        let mut events = Parser::new_ext(text, options).into_offset_iter();
        // A definition would count for the whole document.
        for (_, definition) in events.reference_definitions().iter() {
            reading.escape(definition.span.start);
        }
        for (event, range) in &mut events {
            let written = text.get(range.clone()).unwrap_or_default();
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    reading.has_large_heading |= matches!(level, HeadingLevel::H1 | HeadingLevel::H2);
                    reading.headings.extend(heading(written, range.start));
                }
                Event::Html(_) | Event::InlineHtml(_) => {
                    let places = written.match_indices('<').map(|(at, _)| range.start + at);
                    reading.edits.extend(places.map(|at| (at..at + 1, "&lt;".to_owned())));
                }
                Event::Text(_) if !is_code => {
                    reading.read_text(text, &range);
                    let last = written.rsplit(|c: char| c.is_ascii_whitespace()).next().unwrap_or_default();
                    is_in_address &= last.len() == written.len();
                    is_in_address |= last.contains("www.") || last.contains("://");
                }
                Event::SoftBreak => {
                    reading.breaks.push(range.start);
                    is_in_address = false;
                }
                Event::Start(Tag::Image { .. } | Tag::FootnoteDefinition(_))
                | Event::FootnoteReference(_) => {
                    reading.escape(range.start);
                }
                Event::Start(Tag::Link { dest_url, .. }) if !is_safe(&dest_url) => {
                    // A backslash would belong to an address before it: `www.e.example\<data:x>`.
                    match written.strip_prefix('<') {
                        Some(_) => reading.edits.push((range.start..range.start + 1, "&lt;".to_owned())),
                        None => reading.escape(range.start),
                    }
                }
                Event::Start(Tag::Link { link_type, dest_url, .. }) => {
                    reading.edits.extend(with_address(text, &range, link_type, &dest_url));
                }
                Event::Start(Tag::BlockQuote(_) | Tag::List(_)) => containers += 1,
                Event::End(TagEnd::BlockQuote(_) | TagEnd::List(_)) => containers -= 1,
                Event::Start(Tag::CodeBlock(kind)) => {
                    is_code = true;
                    if matches!(kind, CodeBlockKind::Fenced(_)) && containers == 0 {
                        reading.open_fence = fence_of(written).filter(|fence| !is_closed(written, fence));
                    }
                }
                Event::End(TagEnd::CodeBlock) => is_code = false,
                Event::Code(_) => {
                    if is_in_address {
                        reading.edits.push((range.start..range.start, " ".to_owned()));
                    }
                    is_in_address = false;
                }
                Event::HardBreak
                | Event::End(TagEnd::Paragraph | TagEnd::Heading(_) | TagEnd::Item | TagEnd::TableCell) => {
                    is_in_address = false;
                }
                _ => {}
            }
        }
    }

    /// Adds edits to what is text for this parser: others do not agree in every case on where a tag or a definition can begin.
    fn read_text(&mut self, text: &str, range: &Range<usize>) {
        for at in range.clone() {
            let is_escaped = at == range.start && text.get(..at).is_some_and(|before| before.ends_with('\\'));
            match text.as_bytes().get(at..) {
                // A backslash would belong to an address before it: `www.e.example\<b>`.
                Some([b'<', b'/' | b'!' | b'?' | b'a'..=b'z' | b'A'..=b'Z', ..]) => {
                    self.edits.push((at - usize::from(is_escaped)..at + 1, "&lt;".to_owned()));
                }
                Some([b']', b'(', ..]) => self.escape(at + 1),
                Some([b'[', rest @ ..]) if !is_escaped => {
                    let end = rest.iter().position(|byte| matches!(byte, b'[' | b']'));
                    if end.is_some_and(|end| rest.get(end..).is_some_and(|rest| rest.starts_with(b"]:"))) {
                        self.escape(at);
                    }
                }
                _ => {}
            }
        }
    }

    /// Adds the edit that takes the meaning from a character.
    fn escape(&mut self, at: usize) {
        self.edits.push((at..at, "\\".to_owned()));
    }
}

/// Returns whether an address leads to the web, to a mail address, or to a place beside the document.
fn is_safe(address: &str) -> bool {
    match address.split_once(':') {
        Some((scheme, _)) if !scheme.contains(['/', '?', '#']) => {
            ["http", "https", "mailto"].iter().any(|safe| scheme.trim().eq_ignore_ascii_case(safe))
        }
        _ => true,
    }
}

/// Returns the edit that gives a link its address, if that is in a definition.
fn with_address(text: &str, range: &Range<usize>, link: LinkType, address: &str) -> Option<Edit> {
    let label = match link {
        LinkType::Reference => range.start + text.get(range.clone())?.rfind('[')?..range.end,
        // The parser leaves the brackets behind it out.
        LinkType::Collapsed if text.get(range.end..)?.starts_with("[]") => range.end..range.end + 2,
        LinkType::Collapsed | LinkType::Shortcut => range.end..range.end,
        _ => return None,
    };
    let mut target = String::new();
    for c in address.chars() {
        match c {
            '<' | '>' | '\\' => target.push_str(&format!("%{:02X}", u32::from(c))),
            c => target.push(c),
        }
    }
    Some((label, format!("(<{target}>)")))
}

/// Returns the edits that put a heading below those of the document.
fn heading(written: &str, start: usize) -> Vec<Edit> {
    let level = written.bytes().take_while(|byte| *byte == b'#').count();
    if level > 0 && written.as_bytes().get(level).is_none_or(u8::is_ascii_whitespace) {
        // Six is the smallest.
        let more = 2.min(6usize.saturating_sub(level));
        return vec![(start..start, "#".repeat(more))];
    }
    // A heading that is underlined, over one line or more: its lines become one, and the last is the underline.
    let trimmed = written.trim_end();
    let mut edits = vec![(start..start, "#### ".to_owned())];
    let breaks: Vec<usize> = trimmed.match_indices('\n').map(|(at, _)| at).collect();
    for (number, at) in breaks.iter().enumerate() {
        let after = trimmed.get(at + 1..).unwrap_or_default();
        let indent = after.len() - after.trim_start_matches(['>', ' ', '\t']).len();
        edits.push(match number + 1 == breaks.len() {
            true => (start + at..start + trimmed.len(), String::new()),
            false => (start + at..start + at + 1 + indent, " ".to_owned()),
        });
    }
    edits
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
    let last = lines.next_back().unwrap_or_default();
    // A line that is indented further is code.
    let is_indented = last.starts_with("    ") || last.trim_start_matches(' ').starts_with('\t');
    // No other white space: it is text, and the block continues.
    let last = last.trim_matches([' ', '\t']);
    !is_indented && last.starts_with(fence) && last.chars().all(|c| fence.starts_with(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flowing(text: &str) -> String {
        inert(text, LineBreaks::Flow)
    }

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
            ("```\na\n   ```", "```\na\n   ```"),
            ("```\na\n    ```", "```\na\n    ```\n```"),
            ("> ```\n> open", "> ```\n> open"),
            ("- a\n  ```\n  open", "- a\n  ```\n  open"),
            ("![x](https://e.example/p.png)", "\\![x](https://e.example/p.png)"),
            ("[a](javascript:alert(1)) <data:x>", "\\[a]\\(javascript:alert(1)) &lt;data:x>"),
            ("[a](docs/a.md#x:y) <https://e.example>", "[a](docs/a.md#x:y) <https://e.example>"),
            (
                "[a][1] [1][] [1]\n\n[1]: http://e.example/<",
                "[a](<http://e.example/%3C>) [1](<http://e.example/%3C>) [1](<http://e.example/%3C>)\n\n\\[1]: http://e.example/<",
            ),
            ("a[^1]\n\n[^1]: note", "a\\[^1]\n\n\\[^1]: note"),
            ("<div>\n# One\n![x](y)\n</div>", "&lt;div>\n### One\n\\![x](y)\n&lt;/div>"),
            ("#One <b>\n===", "#### #One &lt;b>"),
            ("- [x]\n\n    ## User", "- [x]\n\n    #### User"),
            ("- [ ]\n\n    ![x](y) <b>", "- [ ]\n\n    \\![x](y) &lt;b>"),
            ("1 < 2 <- \\<b> \\\\<b> <b", "1 < 2 <- &lt;b> \\\\&lt;b> &lt;b"),
            ("www.e.example`<b>`, `<b>`", "www.e.example `<b>`, `<b>`"),
            ("```\na\n``` \t\n# b", "```\na\n```\n### b"),
            ("```\na\n\u{a0}```", "```\na\n\u{a0}```\n```"),
            ("> One\n> ![x](y)\n> ===", "> #### One \\![x](y)"),
        ] {
            assert_eq!(flowing(text), expected, "{text}");
            // What is inert stays so, but for headings, which become smaller.
            if !expected.contains('#') {
                assert_eq!(flowing(expected), expected, "{text}");
            }
        }
    }

    #[test]
    fn lines_that_a_person_has_typed_stay_lines() {
        for (text, expected) in [
            ("a\nb  \nc\\\nd\n\ne", "a  \nb  \nc\\\nd\n\ne"),
            ("- a\n  b\n- c", "- a  \n  b\n- c"),
            ("```\na\nb\n```", "```\na\nb\n```"),
            ("One\nTwo\n---\na\nb", "#### One Two\na  \nb"),
            ("|a|\n|-|\n|b|", "|a|\n|-|\n|b|"),
        ] {
            assert_eq!(inert(text, LineBreaks::Stay), expected, "{text}");
        }
    }

    #[test]
    fn no_text_is_more_than_its_place() {
        let parts = [
            "```",
            "~~~~",
            "> ",
            "- ",
            "1. ",
            "# a",
            "a\n===",
            "a\n---",
            "<div>",
            "</div>",
            "<!--",
            "-->",
            "<pre>",
            "<?",
            "|a|\n|-|\n|b|",
            "![x](y)",
            "[a](javascript:b)",
            "[a]: http://b",
            "[a]",
            "![a]",
            "[^1]",
            "[^1]: b",
            "    ",
            "\t",
            "\\",
            "`",
            "\r",
            "\u{b}",
            "\u{1b}[1m",
            "word",
            "\n",
            "\n\n",
        ];
        let mut fenced = 0;
        let mut state = 1u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..8 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(parts[(state >> 33) as usize % parts.len()]);
                text.push_str(["", "\n", " "][(state >> 45) as usize % 3]);
            }
            let inert = inert(&text, LineBreaks::Stay);
            let reading = Reading::of(&inert);
            assert!(
                reading.edits.is_empty() && !reading.has_large_heading && reading.open_fence.is_none(),
                "{text:?}: {inert:?}"
            );
            let text = visible(&without_sequences(&text)).trim_end().to_owned();
            fenced += u32::from(edited(&without_blanks(&text), LineBreaks::Stay).is_none());
        }
        assert!(fenced < 300, "few texts lose their form: {fenced}");
    }
}
