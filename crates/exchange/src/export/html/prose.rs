//! Markdown as HTML.
//!
//! Only the elements of this file are written, never those of the text: HTML in a text is shown as it is written, links lead to the web or to a mail
//! address and nowhere else, and images become links, because a page that is opened must not tell anybody so.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::code::coloured;
use super::text::{code_block, escaped};

/// The deepest nesting of elements. Browsers stop at some hundred.
const DEPTH: usize = 40;
/// The longest code that gets colours.
const LONGEST_CODE: usize = 64 * 1024;
/// The longest text that is read as Markdown.
const LONGEST: usize = 512 * 1024;

/// Renders a text of a model.
pub(super) fn prose(text: &str) -> String {
    if text.len() > LONGEST {
        return code_block(text, false);
    }
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = Writer::default();
    for event in Parser::new_ext(text, options) {
        writer.add(event);
    }
    writer.out
}

/// Returns the address of a link that may be followed.
fn safe_address(address: &str) -> Option<&str> {
    let address = address.trim();
    let has_scheme =
        |scheme: &str| address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    ["http://", "https://", "mailto:"].into_iter().any(has_scheme).then_some(address)
}

#[derive(Default)]
struct Writer {
    out: String,
    /// The end of each open element; empty for one that is not written.
    open: Vec<&'static str>,
    /// The language and the text of the code block that is read.
    code: Option<(String, String)>,
    alignments: Vec<Alignment>,
    column: usize,
    is_in_head: bool,
}

impl Writer {
    fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(code) => {
                self.out.push_str("<code>");
                self.text(&code);
                self.out.push_str("</code>");
            }
            Event::Html(html) | Event::InlineHtml(html) => self.text(&html),
            Event::InlineMath(math) | Event::DisplayMath(math) => self.text(&math),
            Event::FootnoteReference(name) => self.text(&name),
            Event::SoftBreak => self.out.push('\n'),
            Event::HardBreak => self.out.push_str("<br>\n"),
            Event::Rule => self.out.push_str("<hr>\n"),
            Event::TaskListMarker(is_done) => {
                // The box stands in the place of the bullet.
                if let Some(at) = self.out.rfind("<li>").filter(|at| self.out.len() - at <= "<li><p>".len()) {
                    self.out.insert_str(at + "<li".len(), " class=\"task\"");
                }
                self.out.push_str(if is_done { "☑ " } else { "☐ " });
            }
        }
    }

    fn text(&mut self, text: &str) {
        match &mut self.code {
            Some((_, code)) => code.push_str(text),
            None => self.out.push_str(&escaped(text)),
        }
    }

    /// Writes an element, unless it is nested too deeply.
    fn element(&mut self, start: &str, end: &'static str) {
        let is_written = self.open.len() < DEPTH;
        if is_written {
            self.out.push_str(start);
        }
        self.open.push(if is_written { end } else { "" });
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.element("<p>", "</p>\n"),
            // Two levels of headings of the page stand above those of a text.
            Tag::Heading { level: HeadingLevel::H1, .. } => self.element("<h3>", "</h3>\n"),
            Tag::Heading { level: HeadingLevel::H2, .. } => self.element("<h4>", "</h4>\n"),
            Tag::Heading { level: HeadingLevel::H3, .. } => self.element("<h5>", "</h5>\n"),
            Tag::Heading { .. } => self.element("<h6>", "</h6>\n"),
            // Their marks and columns are on the side where the language begins.
            Tag::BlockQuote(_) => self.element("<blockquote dir=\"auto\">\n", "</blockquote>\n"),
            Tag::CodeBlock(kind) => {
                let language = match kind {
                    CodeBlockKind::Fenced(info) => {
                        info.split_whitespace().next().unwrap_or_default().to_owned()
                    }
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
            }
            Tag::List(None) => self.element("<ul dir=\"auto\">\n", "</ul>\n"),
            Tag::List(Some(first)) => {
                self.element(&format!("<ol dir=\"auto\" start=\"{first}\">\n"), "</ol>\n");
            }
            Tag::Item => self.element("<li>", "</li>\n"),
            Tag::Table(alignments) => {
                self.alignments = alignments;
                self.element("<div class=\"wide\"><table dir=\"auto\">\n", "</tbody></table></div>\n");
            }
            Tag::TableHead => {
                self.is_in_head = true;
                self.column = 0;
                self.element("<thead><tr>", "</tr></thead><tbody>\n");
            }
            Tag::TableRow => {
                self.column = 0;
                self.element("<tr>", "</tr>\n");
            }
            Tag::TableCell => {
                let class = match self.alignments.get(self.column) {
                    Some(Alignment::Right) => " class=\"right\"",
                    Some(Alignment::Center) => " class=\"center\"",
                    _ => "",
                };
                self.column += 1;
                let (name, end) = if self.is_in_head { ("th", "</th>") } else { ("td", "</td>") };
                self.element(&format!("<{name}{class}>"), end);
            }
            Tag::Emphasis => self.element("<em>", "</em>"),
            Tag::Strong => self.element("<strong>", "</strong>"),
            Tag::Strikethrough => self.element("<s>", "</s>"),
            Tag::Link { dest_url, .. } => self.link(&dest_url, ""),
            Tag::Image { dest_url, .. } => self.link(&dest_url, "🖼 "),
            // Not enabled, or without an element of their own.
            _ => self.open.push(""),
        }
    }

    fn link(&mut self, address: &str, mark: &str) {
        match safe_address(address) {
            Some(address) => {
                let address = escaped(address);
                self.element(
                    &format!("<a href=\"{address}\" rel=\"noreferrer noopener nofollow\">{mark}"),
                    "</a>",
                );
            }
            None => self.element(mark, ""),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        if tag == TagEnd::CodeBlock {
            if let Some((language, code)) = self.code.take() {
                let is_diff = matches!(language.as_str(), "diff" | "patch");
                let short = (code.len() <= LONGEST_CODE).then(|| code.trim_end_matches('\n'));
                match short.and_then(|code| coloured(&language, code)) {
                    Some(html) => self.out.push_str(&format!("<pre><code>{html}</code></pre>")),
                    None => self.out.push_str(&code_block(&code, is_diff)),
                }
                self.out.push('\n');
            }
            return;
        }
        if tag == TagEnd::TableHead {
            self.is_in_head = false;
        }
        self.out.push_str(self.open.pop().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_rendered() {
        for (text, expected) in [
            (
                "# Title\n\nSome *text* with `code`.",
                "<h3>Title</h3>\n<p>Some <em>text</em> with <code>code</code>.</p>\n",
            ),
            ("1. a\n2. b", "<ol dir=\"auto\" start=\"1\">\n<li>a</li>\n<li>b</li>\n</ol>\n"),
            ("- [x] done", "<ul dir=\"auto\">\n<li class=\"task\">☑ done</li>\n</ul>\n"),
            ("```rust\nfn a() {}\n```", "<pre><code><i class=\"k\">fn</i> a() {}</code></pre>\n"),
            ("```\nfn a() {}\n```", "<pre><code>fn a() {}</code></pre>\n"),
            (
                "|a|b|\n|-|-:|\n|1|2|",
                "<div class=\"wide\"><table dir=\"auto\">\n<thead><tr><th>a</th><th class=\"right\">b</th></tr></thead><tbody>\n<tr><td>1</td><td class=\"right\">2</td></tr>\n</tbody></table></div>\n",
            ),
            (
                "[a](https://x.example/?a=1&b=\"2\")",
                "<p><a href=\"https://x.example/?a=1&amp;b=&quot;2&quot;\" rel=\"noreferrer noopener nofollow\">a</a></p>\n",
            ),
        ] {
            assert_eq!(prose(text), expected, "{text}");
        }
    }

    #[test]
    fn nothing_of_a_text_is_an_element() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "[a](javascript:alert(1))",
            "[a](JaVaScRiPt:alert(1))",
            "[a](data:text/html,x)",
            "[a](//evil.example)",
            "![a](file:///etc/passwd)",
            "<javascript:alert(1)>",
            "[x]: javascript:alert(1)\n[x]",
            "```\"><script>\nx\n```",
            "| <b> |\n|-|\n| <i> |",
        ] {
            let html = prose(text);
            let elements: Vec<&str> =
                html.split('<').skip(1).map(|rest| rest.split(['>', ' ']).next().unwrap()).collect();
            let known = ["p", "pre", "code", "div", "table", "thead", "tbody", "tr", "th", "td"];
            assert!(
                elements.iter().all(|name| known.contains(&name.trim_start_matches('/'))),
                "{text}: {html}"
            );
        }
        let image = prose("![pixel](https://x.example/p.png)");
        assert!(!image.contains("<img") && image.contains("href=\"https://x.example/p.png\""), "{image}");
    }

    #[test]
    fn nesting_has_an_end() {
        let deep = format!("{}x", "> ".repeat(5000));
        let html = prose(&deep);
        assert_eq!(html.matches("<blockquote ").count(), html.matches("</blockquote>").count());
        assert!(html.matches("<blockquote ").count() <= DEPTH);
        assert!(prose(&"a".repeat(LONGEST + 1)).starts_with("<pre>"));
    }
}
