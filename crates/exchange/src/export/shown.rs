//! What the documents for people show alike.

use azureal_core::Json;

/// The longest prompt that is shown unfolded, in lines and bytes.
const LONGEST_PROMPT: (usize, usize) = (60, 6000);
/// The longest title, in characters.
pub(super) const TITLE: usize = 90;

/// Returns the first line of a text, cut.
pub(super) fn title(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let start: String = line.chars().take(TITLE).collect();
    let more = if start.len() < line.len() { "…" } else { "" };
    format!("{start}{more}")
}

/// Returns the number of lines of a prompt that is folded; `None` for one that is shown as it is.
pub(super) fn lines_of_long_prompt(text: &str) -> Option<u64> {
    let lines = text.lines().count();
    (lines > LONGEST_PROMPT.0 || text.len() > LONGEST_PROMPT.1).then_some(lines as u64)
}

/// Returns whether a text is a unified diff.
pub(super) fn is_diff(text: &str) -> bool {
    let mut lines = text.lines();
    matches!((lines.next(), lines.next()), (Some(from), Some(to)) if from.starts_with("--- ") && to.starts_with("+++ "))
        || text.starts_with("diff --git ")
}

/// Returns JSON over several lines, or as it is where it cannot be read.
pub(super) fn indented(input: &Json) -> String {
    let value = serde_json::from_str::<serde_json::Value>(input.as_str());
    value
        .ok()
        .and_then(|value| serde_json::to_string_pretty(&value).ok())
        .unwrap_or_else(|| input.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_first_line_with_a_text() {
        assert_eq!(title(" \n  First\nSecond"), "First");
        assert_eq!(title(&"é".repeat(TITLE + 1)), format!("{}…", "é".repeat(TITLE)));
    }

    #[test]
    fn a_diff_begins_with_its_files() {
        assert!(
            is_diff("--- a\n+++ b\n") && is_diff("diff --git a b") && !is_diff("--- a\nb") && !is_diff("x")
        );
    }
}
