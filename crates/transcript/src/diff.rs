//! Changes of files as lines of a unified diff: what they count, and where they are.

use azureal_core::detail;
use azureal_core::diff::BETWEEN;

/// Returns the lines of the detail of an edit, without the headers that name its file; empty if it is no diff.
pub(crate) fn of_detail(detail: &str) -> Vec<String> {
    let is_header = |line: &&str| !line.starts_with("@@");
    if !detail.lines().any(|line| line.starts_with("@@")) {
        return Vec::new();
    }
    let mut lines: Vec<String> = detail.lines().skip_while(is_header).map(str::to_owned).collect();
    // Without a place it says nothing before the first change.
    if lines.first().is_some_and(|line| line == BETWEEN) {
        lines.remove(0);
    }
    lines
}

/// Returns whether lines of a diff are left out.
pub(crate) fn is_shortened(lines: &[String]) -> bool {
    lines.iter().any(|line| detail::is_shortened(line))
}

/// Returns the number of lines that are left out at the end of a diff.
pub(crate) fn omitted(lines: &[String]) -> u64 {
    let mark = lines.last().filter(|line| is_mark(line));
    let count = mark.and_then(|mark| mark.strip_prefix('[')?.split(' ').next()?.parse().ok());
    count.unwrap_or(0)
}

/// Returns whether a line stands for those that are left out.
pub(crate) fn is_mark(line: &str) -> bool {
    line.starts_with('[')
}

/// Returns the number of lines that a diff adds and removes: `+4 −1`.
pub(crate) fn stat(lines: &[String]) -> String {
    let count = |mark: char| lines.iter().filter(|line| line.starts_with(mark)).count() as u64;
    let (mut added, mut removed) = (count('+'), count('-'));
    let mut more = "";
    if omitted(lines) > 0 {
        // The header of a whole file counts its lines; those of another that are left out may be of any kind.
        match lines.first().and_then(|line| sizes(line)) {
            Some((0, all)) => added = all,
            Some((all, 0)) => removed = all,
            _ => more = " …",
        }
    }
    match (added, removed) {
        (added, 0) => format!("+{added}{more}"),
        (0, removed) => format!("−{removed}{more}"),
        (added, removed) => format!("+{added} −{removed}{more}"),
    }
}

/// Parses the header of a hunk: the number of old and of new lines.
fn sizes(line: &str) -> Option<(u64, u64)> {
    let mut words = line.strip_prefix("@@ ")?.split(' ');
    let mut size = || words.next()?.split_once(',').map_or(Some(1_u64), |(_, size)| size.parse().ok());
    Some((size()?, size()?))
}

/// Parses the header of a hunk: the first old and the first new line.
pub(crate) fn header(line: &str) -> Option<(u64, u64)> {
    let mut words = line.strip_prefix("@@ ")?.split(' ');
    let mut start =
        |mark: char| -> Option<u64> { words.next()?.strip_prefix(mark)?.split(',').next()?.parse().ok() };
    Some((start('-')?, start('+')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(detail: &str) -> Vec<String> {
        of_detail(detail)
    }

    #[test]
    fn a_detail_has_its_hunks() {
        let diff = lines("--- a/x\n+++ b/x\n@@ -118,2 +118,2 @@\n a\n--- b\n+B\n@@ -200 +200 @@\n-c");
        assert_eq!(diff, ["@@ -118,2 +118,2 @@", " a", "--- b", "+B", "@@ -200 +200 @@", "-c"]);
        assert_eq!(diff.iter().filter_map(|line| header(line)).collect::<Vec<_>>(), [(118, 118), (200, 200)]);
        assert_eq!(stat(&diff), "+1 −2");
        assert_eq!(lines("--- a/x\n+++ b/x\n@@\n-a\n@@\n+b"), ["-a", "@@", "+b"]);
        assert!(lines("error: no diff").is_empty() && lines("").is_empty());
    }

    #[test]
    fn a_shortened_diff_says_what_is_missing() {
        let new = lines("--- /dev/null\n+++ b/x\n@@ -0,0 +1,90 @@\n+a\n[89 lines omitted]");
        assert_eq!((stat(&new).as_str(), omitted(&new), is_shortened(&new)), ("+90", 89, true));
        let gone = lines("--- a/x\n+++ /dev/null\n@@ -1,90 +0,0 @@\n-a\n[89 lines omitted]");
        assert_eq!(stat(&gone), "−90");
        let changed = lines("--- a/x\n+++ b/x\n@@ -1,90 +1,80 @@\n-a\n+b\n[89 lines omitted]");
        assert_eq!(stat(&changed), "+1 −1 …");
        let whole = lines("--- a/x\n+++ b/x\n@@\n+[1 line omitted]");
        assert_eq!((stat(&whole).as_str(), omitted(&whole), is_shortened(&whole)), ("+1", 0, false));
    }
}
