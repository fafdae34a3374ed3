//! Private keys: blocks of base64 between two markers, also without one of them.
//!
//! The lines of a key can have anything between them that a program puts there: line breaks, `\n` of a JSON text, quotation
//! marks, line numbers, a note about omitted lines. So a key is read as words: long ones of base64 belong to it, short ones
//! only if more of it follows.

use std::ops::Range;

use memchr::memmem;

/// What both markers have.
const MARKER: &str = "PRIVATE KEY";
/// The beginning of the secret part of a PuTTY key, which has no markers.
const PUTTY: &str = "Private-Lines:";
/// A word of base64 that is at least so long is no ordinary word.
const LONG: usize = 20;
/// The largest number of other words between two parts of a key.
const MOST_BETWEEN: usize = 12;
/// The longest of those words, in bytes.
const LONGEST_BETWEEN: usize = 48;

/// Finds the private keys of a text, with their markers.
pub(super) fn find(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut done = 0;
    for position in memmem::find_iter(text.as_bytes(), MARKER) {
        if position < done {
            continue;
        }
        let Some(marker) = Marker::around(text, position) else { continue };
        let range = if marker.is_begin {
            body_after(text, marker.range.end).map(|end| marker.range.start..end)
        } else {
            body_before(text, marker.range.start, done).map(|start| start..marker.range.end)
        };
        if let Some(range) = range {
            done = range.end;
            found.push(range);
        }
    }
    let mut done_with_putty = 0;
    for position in memmem::find_iter(text.as_bytes(), PUTTY) {
        let start = position + PUTTY.len();
        if start < done_with_putty {
            continue;
        }
        if let Some(end) = body_after(text, start) {
            done_with_putty = end;
            found.push(start..end);
        }
    }
    found
}

/// A line such as `-----BEGIN RSA PRIVATE KEY-----`.
struct Marker {
    range: Range<usize>,
    is_begin: bool,
}

impl Marker {
    /// Reads the marker around the words that both have.
    fn around(text: &str, position: usize) -> Option<Self> {
        // Before them is the kind of the key, in a few capital letters.
        let is_kind = |byte: &&u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || **byte == b' ';
        let before = text.as_bytes().get(..position)?.iter().rev();
        let words = before.take(LONGEST_BETWEEN).take_while(is_kind).count();
        let words = text.get(position - words..position)?;
        let (is_begin, word) = if words.trim_start().starts_with("BEGIN ") {
            (true, "BEGIN ")
        } else if words.trim_start().starts_with("END ") {
            (false, "END ")
        } else {
            return None;
        };
        let start = position - words.len() + words.find(word)?;
        let start = text.get(..start)?.trim_end_matches(['-', ' ']).len();
        let after = text.get(position + MARKER.len()..)?;
        let rest = after.strip_prefix(" BLOCK").unwrap_or(after);
        let dashes = rest.len() - rest.trim_start_matches([' ', '-']).len();
        let closing = rest.get(..dashes)?.trim_end();
        if !closing.contains("--") {
            return None;
        }
        let end = text.len() - rest.len() + closing.len();
        Some(Self { range: skip_spaces(text, start)..end, is_begin })
    }
}

fn skip_spaces(text: &str, start: usize) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    text.len() - rest.trim_start_matches(' ').len()
}

/// Returns the end of the key whose body begins here; `None` if there is no body.
fn body_after(text: &str, start: usize) -> Option<usize> {
    let mut end = None;
    let mut between = 0;
    let mut at = start;
    while between <= MOST_BETWEEN {
        let Some(word) = next_word(text, at) else { break };
        let content = text.get(word.clone())?;
        if content.starts_with("--") {
            // Either the marker at the end, or that of another key.
            let rest = text.get(word.start..)?.trim_start_matches(['-', ' ']);
            if rest.starts_with("END ") && end.is_some() {
                // It is near, or cut off.
                let near = rest
                    .as_bytes()
                    .iter()
                    .take(LONGEST_BETWEEN)
                    .position(|byte| *byte == b'\n' || *byte == b'\\');
                let near = rest.as_bytes().get(..near.unwrap_or(LONGEST_BETWEEN).min(rest.len()))?;
                let marker = memmem::find(near, MARKER.as_bytes())
                    .and_then(|found| Marker::around(text, text.len() - rest.len() + found));
                end = marker.filter(|marker| !marker.is_begin).map(|marker| marker.range.end).or(end);
            }
            break;
        }
        let long = content.bytes().take_while(|byte| is_base64(*byte)).count();
        if long >= LONG {
            let body = word.end - content.len() + long;
            end = Some(body);
            if long < content.len() {
                break;
            }
            between = 0;
        } else if content.len() > LONGEST_BETWEEN {
            break;
        } else {
            between += 1;
        }
        at = word.end;
    }
    end
}

/// Returns the start of the key whose body ends here. Looks back to `least` at most.
fn body_before(text: &str, end: usize, least: usize) -> Option<usize> {
    let mut start = None;
    let mut is_last = true;
    let mut rest = text.get(least..end)?;
    loop {
        rest = without_separators(rest);
        let word_start = rest.rfind(is_separator).map_or(0, |found| found + separator_len(rest, found));
        let word = without_number(rest.get(word_start..)?);
        let is_body = !word.is_empty() && word.bytes().all(is_base64);
        if !is_body || (word.len() < LONG && !is_last) {
            return start;
        }
        if word.len() >= LONG {
            start = Some(least + rest.len() - word.len());
        }
        is_last = false;
        rest = rest.get(..rest.len() - word.len())?;
    }
}

/// Removes separators and escape sequences from the end of a text.
fn without_separators(text: &str) -> &str {
    let mut rest = text.trim_end_matches(is_separator);
    while let Some(shorter) = rest.strip_suffix(['n', 'r', 't']).filter(|shorter| shorter.ends_with('\\')) {
        rest = shorter.trim_end_matches(is_separator);
    }
    rest
}

fn separator_len(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8)
}

/// Returns the next word: what stands between separators and escape sequences, without the number of its line. A long word
/// is cut off some way behind its base64.
fn next_word(text: &str, mut at: usize) -> Option<Range<usize>> {
    loop {
        let rest = text.get(at..)?;
        let skipped = rest.len() - rest.trim_start_matches(is_separator).len();
        at += skipped;
        let is_escape = skipped > 0 && text.as_bytes().get(at.wrapping_sub(1)) == Some(&b'\\');
        let letter = text.as_bytes().get(at).copied()?;
        if is_escape && matches!(letter, b'n' | b'r' | b't') {
            at += 1;
            continue;
        }
        let rest = without_number(text.get(at..)?);
        let base64 = rest.bytes().take_while(|byte| is_base64(*byte)).count();
        let other: usize = rest
            .get(base64..)?
            .chars()
            .take(LONGEST_BETWEEN + 1)
            .take_while(|c| !is_separator(*c))
            .map(char::len_utf8)
            .sum();
        let start = text.len() - rest.len();
        return Some(start..start + base64 + other);
    }
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',' | ';' | '\\' | '|' | '>' | '#' | '*' | '(' | ')')
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// Takes the number of a line from its beginning, as tools put it there: `12→`, `12:`.
fn without_number(word: &str) -> &str {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == word.len() {
        return word;
    }
    ["→", ":"].iter().find_map(|mark| rest.strip_prefix(mark)).unwrap_or(word)
}
