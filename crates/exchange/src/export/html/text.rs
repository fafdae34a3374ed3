//! Texts of a session as HTML. Everything that comes from a session passes here.

use azureal_core::visible;

use crate::export::sequences::without_sequences;

/// Returns a text as HTML text, also within an attribute in double quotes. Characters that act on a display become visible.
pub(in crate::export) fn escaped(text: &str) -> String {
    let text = without_sequences(text);
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for c in visible(&text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Returns a code block. A diff has coloured lines.
pub(super) fn code_block(text: &str, is_diff: bool) -> String {
    let text = text.trim_end_matches(['\n', '\r']);
    if !is_diff {
        return format!("<pre><code>{}</code></pre>", escaped(text));
    }
    let lines: String = text
        .lines()
        .map(|line| {
            let class = match line.as_bytes() {
                [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => "file",
                [b'+', ..] => "add",
                [b'-', ..] => "del",
                [b'@', b'@', ..] => "hunk",
                _ => "same",
            };
            // The line break is in the element, so that a copied diff has its lines.
            format!("<span class=\"{class}\">{}\n</span>", escaped(line))
        })
        .collect();
    format!("<pre class=\"diff\"><code>{lines}</code></pre>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_markup() {
        assert_eq!(escaped("<b a=\"x\" b='y'>&amp;"), "&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt;&amp;amp;");
        assert_eq!(escaped("a\u{202e}b\u{0}c"), "a&lt;U+202E&gt;b\u{2400}c");
    }

    #[test]
    fn a_diff_has_its_lines() {
        let html = code_block("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-<old>\n+new\n same", true);
        assert!(html.contains("<span class=\"del\">-&lt;old&gt;\n</span>"), "{html}");
        assert!(html.contains("<span class=\"file\">--- a/x\n</span>"), "{html}");
    }
}
