//! Rows as text for a terminal that prints lines, in its 16 colours.

use crate::row::{Change, Row, Style, Tone};

/// What the terminal is sent besides text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// Colours, bold and the like.
    pub has_styles: bool,
    /// Addresses that can be clicked (OSC 8).
    pub has_links: bool,
}

/// Returns a row as a line, without its end. Blanks at its end are left out.
pub fn line(row: &Row, features: Features) -> String {
    let last = row.spans.iter().rposition(|span| !span.text.trim_end().is_empty());
    let mut out = String::new();
    let Some(last) = last else { return out };
    // The codes that are in effect: neighbours often have the same.
    let mut in_effect = Vec::new();
    for (index, span) in row.spans.iter().enumerate().take(last + 1) {
        let text = if index == last { span.text.trim_end() } else { &span.text };
        let codes = if features.has_styles { codes(span.style) } else { Vec::new() };
        // The address continues in the next row: this is only a part of it.
        let is_part = row.is_soft && index == last;
        let is_link = features.has_links && !is_part && is_address(text);
        if codes != in_effect {
            if !in_effect.is_empty() {
                out.push_str("\x1b[0m");
            }
            if !codes.is_empty() {
                out.push_str(&format!("\x1b[{}m", codes.join(";")));
            }
            in_effect = codes;
        }
        if is_link {
            out.push_str(&format!("\x1b]8;;{text}\x1b\\{text}\x1b]8;;\x1b\\"));
        } else {
            out.push_str(text);
        }
    }
    if !in_effect.is_empty() {
        out.push_str("\x1b[0m");
    }
    out
}

/// Returns whether a text is an address that is safe in a sequence: printable ASCII.
fn is_address(text: &str) -> bool {
    (text.starts_with("https://") || text.starts_with("http://"))
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns the SGR codes of a style.
fn codes(style: Style) -> Vec<&'static str> {
    let is_bold = style.bold || matches!(style.tone, Tone::Name | Tone::Heading);
    let is_underlined = style.underline || style.tone == Tone::Link;
    let flags = [(is_bold, "1"), (style.italic, "3"), (is_underlined, "4"), (style.strike, "9")];
    let mut codes: Vec<&'static str> =
        flags.iter().filter(|(is_set, _)| *is_set).map(|(_, code)| *code).collect();
    let tone = match style.change {
        Some(Change::Added) => Tone::Added,
        Some(Change::Removed) => Tone::Removed,
        Some(Change::Unchanged) | None => style.tone,
    };
    codes.extend(colour(tone));
    codes
}

/// Returns the SGR code of a tone. Bright black, black, white and blue carry no meaning: on some backgrounds they cannot be read. Faint takes weight
/// from what is indented anyway: a terminal without it loses nothing.
fn colour(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Plain | Tone::Name => None,
        Tone::Quiet => Some("2"),
        Tone::Bad | Tone::Removed => Some("31"),
        Tone::Literal | Tone::Good | Tone::Added => Some("32"),
        Tone::Code | Tone::Caution => Some("33"),
        Tone::Keyword | Tone::Comment => Some("35"),
        Tone::User | Tone::Heading | Tone::Link | Tone::Definition => Some("36"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Span;

    fn row(spans: &[(&str, Style)]) -> Row {
        Row::decoration(spans.iter().map(|(text, style)| Span::new(*text, *style)).collect())
    }

    #[test]
    fn a_line_has_codes_only_if_the_terminal_understands_them() {
        let row = row(&[
            ("▸ ", Style::default()),
            ("Read", Style::from(Tone::Name)),
            (" x", Style::from(Tone::Bad)),
            ("  ", Style::default()),
        ]);
        assert_eq!(line(&row, Features::default()), "▸ Read x");
        let styled = Features { has_styles: true, ..Features::default() };
        assert_eq!(line(&row, styled), "▸ \x1b[1mRead\x1b[0m\x1b[31m x\x1b[0m");
        let changed = Style { change: Some(Change::Added), ..Style::from(Tone::Keyword) };
        assert_eq!(line(&self::row(&[("fn", changed)]), styled), "\x1b[32mfn\x1b[0m");
    }

    #[test]
    fn a_whole_address_can_be_clicked_if_that_is_asked_for() {
        let links = Features { has_styles: false, has_links: true };
        let mut row = row(&[("see ", Style::default()), ("https://example.com/a", Style::from(Tone::Link))]);
        assert_eq!(
            line(&row, links),
            "see \x1b]8;;https://example.com/a\x1b\\https://example.com/a\x1b]8;;\x1b\\"
        );
        row.is_soft = true;
        assert_eq!(line(&row, links), "see https://example.com/a");
        assert_eq!(
            line(&self::row(&[("https://x\u{202e}y", Style::default())]), links),
            "https://x\u{202e}y"
        );
    }
}
