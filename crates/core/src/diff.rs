//! Changes of files as lines of a unified diff.

use serde_json::Value;
use similar::{Algorithm, ChangeTag, TextDiff};

use crate::Json;

/// The unchanged lines around a change.
const CONTEXT: usize = 3;
/// The largest text that is compared line by line, in bytes. Of a larger one all lines are removed and added.
const LARGEST: usize = 256 << 10;

/// The line between two changes whose places are not known.
pub const BETWEEN: &str = "@@";

/// Returns the diff of a call that replaces texts in a file; empty if the input does not have them.
pub fn edit_lines(input: &Json) -> Vec<String> {
    let Ok(Value::Object(fields)) = input.read::<Value>() else { return Vec::new() };
    let text = |object: &serde_json::Map<String, Value>, name: &str| {
        object.get(name).and_then(Value::as_str).map(str::to_owned)
    };
    let pair = |object: &serde_json::Map<String, Value>| {
        let (old, new) = (text(object, "old_string"), text(object, "new_string"));
        (old.is_some() || new.is_some()).then(|| (old.unwrap_or_default(), new.unwrap_or_default()))
    };
    let several = fields.get("edits").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let pairs = pair(&fields).into_iter().chain(several.iter().filter_map(Value::as_object).filter_map(pair));
    let mut lines = Vec::new();
    for (old, new) in pairs {
        let changed = changed_lines(&old, &new);
        if !lines.is_empty() && !changed.is_empty() {
            lines.push(BETWEEN.to_owned());
        }
        lines.extend(changed);
    }
    lines
}

/// Returns the diff of a call that writes a whole file; empty if the input does not have its text.
pub fn written_lines(input: &Json) -> Vec<String> {
    all_lines(&input.string_field("content").unwrap_or_default(), '+')
}

/// Returns the diff of a file that is added (`+`) or deleted (`-`) whole; empty for an empty text.
pub fn all_lines(content: &str, sign: char) -> Vec<String> {
    let mut lines: Vec<String> = content.lines().map(|line| format!("{sign}{line}")).collect();
    if !lines.is_empty() {
        let count = lines.len();
        let header =
            if sign == '-' { format!("@@ -1,{count} +0,0 @@") } else { format!("@@ -0,0 +1,{count} @@") };
        lines.insert(0, header);
    }
    lines
}

/// Returns the lines that change, with those around them and [`BETWEEN`] between two places.
pub fn changed_lines(old: &str, new: &str) -> Vec<String> {
    if old.len() + new.len() > LARGEST {
        let removed = old.lines().map(|line| format!("-{line}"));
        return removed.chain(new.lines().map(|line| format!("+{line}"))).collect();
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let diff = TextDiff::configure().algorithm(Algorithm::Patience).diff_slices(&old, &new);
    let mut lines = Vec::new();
    for group in diff.grouped_ops(CONTEXT) {
        if !lines.is_empty() {
            lines.push(BETWEEN.to_owned());
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let mark = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            lines.push(format!("{mark}{}", change.value()));
        }
    }
    lines
}

/// Finds the place of a diff of one change in the numbered lines that a tool returned, and adds it as a header.
pub fn number(lines: &mut Vec<String>, output: &str) {
    if lines.iter().any(|line| line.starts_with("@@")) {
        return;
    }
    let new: Vec<&str> =
        lines.iter().filter(|line| !line.starts_with('-')).filter_map(|line| line.get(1..)).collect();
    let numbered: Vec<(u64, &str)> = output.lines().filter_map(numbered_line).collect();
    if new.is_empty() || numbered.len() < new.len() {
        return;
    }
    let mut places = numbered
        .windows(new.len())
        .filter(|window| window.iter().map(|(_, text)| *text).eq(new.iter().copied()));
    // A text that is there twice has no place that is known.
    let (Some(place), None) = (places.next(), places.next()) else { return };
    let Some((first, _)) = place.first() else { return };
    let count = |other: char| lines.iter().filter(|line| !line.starts_with(other)).count();
    lines.insert(0, format!("@@ -{first},{} +{first},{} @@", count('+'), count('-')));
}

/// Parses a line of `cat -n`: its number and its text.
fn numbered_line(line: &str) -> Option<(u64, &str)> {
    let line = line.trim_start_matches(' ');
    let end = line.find(|c: char| !c.is_ascii_digit())?;
    let (number, rest) = line.split_at_checked(end)?;
    let text = rest.strip_prefix('\t').or_else(|| rest.strip_prefix('→'))?;
    Some((number.parse().ok()?, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str) -> Vec<String> {
        edit_lines(&serde_json::json!({"file_path": "/a", "old_string": old, "new_string": new}).into())
    }

    #[test]
    fn an_edit_has_the_lines_around_its_changes() {
        assert_eq!(edit("a\nb\nc\n", "a\nB\nc\n"), [" a", "-b", "+B", " c"]);
        assert_eq!(edit("", "a\n"), ["+a"]);
        assert!(edit("a", "a").is_empty());
        let old: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let old = old.join("\n");
        let new = old.replacen("2\n", "two\n", 1).replace("18", "eighteen");
        let lines = edit(&old, &new);
        assert_eq!(lines.iter().filter(|line| line.starts_with(['+', '-'])).count(), 4);
        assert_eq!(lines.iter().filter(|line| *line == BETWEEN).count(), 1);
    }

    #[test]
    fn several_edits_are_one_diff() {
        let input = serde_json::json!({"edits": [
            {"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": ""}, {"x": 1}]});
        assert_eq!(edit_lines(&input.into()), ["-a", "+b", "@@", "-c"]);
        assert!(edit_lines(&Json::empty_object()).is_empty());
        assert!(edit_lines(&serde_json::json!([1]).into()).is_empty());
    }

    #[test]
    fn a_place_is_known_if_the_tool_shows_it_once() {
        let mut lines = edit("a\nb", "a\nB");
        number(&mut lines, "The file has been updated:\n   117→x\n   118→a\n   119→B\n   120→y\n");
        assert_eq!(lines.first().map(String::as_str), Some("@@ -118,2 +118,2 @@"));
        let mut lines = edit("b", "B");
        number(&mut lines, "1\tB\n2\tB\n");
        assert_eq!(lines, ["-b", "+B"]);
    }

    #[test]
    fn a_written_file_is_added_from_its_first_line() {
        let lines = written_lines(&serde_json::json!({"content": "x\ny\n"}).into());
        assert_eq!(lines, ["@@ -0,0 +1,2 @@", "+x", "+y"]);
        assert_eq!(all_lines("x", '-'), ["@@ -1,1 +0,0 @@", "-x"]);
        assert!(all_lines("", '+').is_empty());
    }
}
