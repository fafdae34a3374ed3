//! Unified diffs as a text with a bound.

use std::borrow::Cow;

use super::{MOST_CHARS, omitted_lines, short_line};
use crate::event::FileStatus;
use crate::{Json, Tool, diff};

/// The characters that are left free for the mark of omitted lines.
const MARK_CHARS: usize = 32;

/// Returns the unified diff of an edit that was made, from the input of its call and the output of its tool; `None` if the
/// input does not have the change. `cwd` is the directory of the run, empty if it is unknown.
///
/// The places of the lines are known only if the output has numbered lines; else a hunk begins with `@@` alone.
///
/// ```
/// use azureal_core::detail;
///
/// let input = serde_json::json!({"file_path": "/p/a.rs", "old_string": "let x = 1;", "new_string": "let x = 2;"});
/// let diff = detail::of_edit("Edit", &input.into(), "", "/p").unwrap();
/// assert_eq!(diff, "--- a/a.rs\n+++ b/a.rs\n@@\n-let x = 1;\n+let x = 2;");
/// ```
pub fn of_edit(tool_name: &str, input: &Json, output: &str, cwd: &str) -> Option<String> {
    let (status, lines) = match Tool::named(tool_name) {
        Tool::Edit => {
            let mut lines = diff::edit_lines(input);
            diff::number(&mut lines, output);
            (FileStatus::Modified, lines)
        }
        Tool::Write => (FileStatus::Added, diff::written_lines(input)),
        _ if tool_name.eq_ignore_ascii_case("NotebookEdit") => (FileStatus::Modified, notebook_lines(input)),
        _ => return None,
    };
    let path =
        ["file_path", "notebook_path", "path"].into_iter().find_map(|name| input.string_field(name))?;
    of_patch(&path, cwd, status, &lines)
}

/// Returns the lines of a notebook's cell. The old ones are known if the tool reports them, in `old_source`.
fn notebook_lines(input: &Json) -> Vec<String> {
    let text = |name| input.string_field(name).unwrap_or_default();
    let (old, new) = (text("old_source"), text("new_source"));
    let new = if text("edit_mode") == "delete" { String::new() } else { new };
    let mut lines = diff::changed_lines(&old, &new);
    let cell: String = text("cell_id").chars().filter(|c| !c.is_control()).take(40).collect();
    if !lines.is_empty() && !cell.is_empty() {
        lines.insert(0, format!("@@ cell {cell} @@"));
    }
    lines
}

/// Returns the unified diff of a file from its lines, each with its sign, and the headers of the hunks; `None` if no line
/// changes. A path below `cwd` is relative to it.
pub fn of_patch(path: &str, cwd: &str, status: FileStatus, lines: &[impl AsRef<str>]) -> Option<String> {
    if !lines.iter().any(|line| line.as_ref().starts_with(['+', '-'])) {
        return None;
    }
    let path = header_path(path, cwd);
    let side = |letter: char| match path.starts_with('/') {
        true => path.clone(),
        false => format!("{letter}/{path}"),
    };
    let (old, new) = match status {
        FileStatus::Added => ("/dev/null".to_owned(), side('b')),
        FileStatus::Deleted => (side('a'), "/dev/null".to_owned()),
        FileStatus::Modified | FileStatus::Renamed | FileStatus::Mode => (side('a'), side('b')),
    };
    let headers = [format!("--- {old}"), format!("+++ {new}")];
    let hunk = lines.first().filter(|line| !line.as_ref().starts_with("@@")).map(|_| diff::BETWEEN);
    let lines = headers.iter().map(String::as_str).chain(hunk).chain(lines.iter().map(AsRef::as_ref));
    Some(bounded(lines, MOST_CHARS))
}

/// Returns a path as the header of a diff has it: below the directory of the run, on one line.
fn header_path(path: &str, cwd: &str) -> String {
    let cwd = cwd.trim_end_matches('/');
    let below = path.strip_prefix(cwd).and_then(|rest| rest.strip_prefix('/')).filter(|_| !cwd.is_empty());
    let path = below.unwrap_or(path);
    path.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// Shortens a unified diff to `most` characters, at the end of a line or of a hunk, with a mark for the omitted lines. A
/// diff that is short enough stays as it is.
pub fn bounded_diff(diff: &str, most: usize) -> String {
    bounded(diff.lines(), most)
}

fn bounded<'a>(lines: impl Iterator<Item = &'a str>, most: usize) -> String {
    // The lines that are kept if this is all, and the shorter part that leaves room for the mark.
    let (mut kept, mut length): (Vec<Cow<'_, str>>, usize) = (Vec::new(), 0);
    let mut with_mark = 0;
    let mut lines = lines.map(short_line);
    for line in lines.by_ref() {
        let longer = length + line.chars().count() + usize::from(!kept.is_empty());
        if longer > most {
            // Without a header whose lines are all omitted.
            while with_mark > 0 && kept.get(with_mark - 1).is_some_and(|line| is_header(line)) {
                with_mark -= 1;
            }
            let omitted = kept.len() - with_mark + 1 + lines.count();
            kept.truncate(with_mark);
            kept.push(omitted_lines(omitted).into());
            break;
        }
        length = longer;
        kept.push(line);
        if length + MARK_CHARS <= most {
            with_mark = kept.len();
        }
    }
    kept.join("\n")
}

fn is_header(line: &str) -> bool {
    line.starts_with("@@")
}

/// Returns whether lines of a diff, or parts of them, are left out.
pub fn is_shortened(diff: &str) -> bool {
    let is_mark = |line: &str| line.starts_with('[') && line.ends_with(" omitted]");
    let is_cut = |line: &str| line.len() > 300 && line.contains(" characters omitted]");
    diff.lines().any(|line| is_mark(line) || is_cut(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(tool: &str, input: &str, output: &str) -> Option<String> {
        of_edit(tool, &input.parse().unwrap(), output, "/p/")
    }

    #[test]
    fn each_tool_that_changes_a_file_has_a_diff() {
        let edit = r#"{"file_path":"/p/src/a.rs","old_string":"a\nb","new_string":"a\nB"}"#;
        let expected = "--- a/src/a.rs\n+++ b/src/a.rs\n@@\n a\n-b\n+B";
        assert_eq!(made("Edit", edit, "").as_deref(), Some(expected));
        assert_eq!(
            made("Edit", edit, "updated:\n  7→a\n  8→B\n").as_deref(),
            Some("--- a/src/a.rs\n+++ b/src/a.rs\n@@ -7,2 +7,2 @@\n a\n-b\n+B"),
        );
        let several = r#"{"file_path":"b","edits":[{"old_string":"a","new_string":"b"},{"old_string":"c","new_string":""}]}"#;
        assert_eq!(made("MultiEdit", several, "").as_deref(), Some("--- a/b\n+++ b/b\n@@\n-a\n+b\n@@\n-c"),);
        assert_eq!(
            made("Write", r#"{"file_path":"/etc/new","content":"x\ny\n"}"#, "").as_deref(),
            Some("--- /dev/null\n+++ /etc/new\n@@ -0,0 +1,2 @@\n+x\n+y"),
        );
        assert_eq!(
            made("NotebookEdit", r#"{"notebook_path":"/p/n.ipynb","cell_id":"c1","new_source":"print(2)","old_source":"print(1)"}"#, "")
                .as_deref(),
            Some("--- a/n.ipynb\n+++ b/n.ipynb\n@@ cell c1 @@\n-print(1)\n+print(2)"),
        );
        // A call that was cut down, one of another tool, and one that changes nothing.
        for (tool, input) in [
            ("Write", r#"{"file_path":"/p/a","line_count":3,"first_line":"x"}"#),
            ("Edit", r#"{"file_path":"/p/a"}"#),
            ("Edit", r#"{"file_path":"/p/a","old_string":"x","new_string":"x"}"#),
            ("Edit", r#"{"old_string":"x","new_string":"y"}"#),
            ("Read", r#"{"file_path":"/p/a","content":"x"}"#),
        ] {
            assert_eq!(made(tool, input, ""), None, "{tool} {input}");
        }
    }

    #[test]
    fn a_path_in_a_header_is_one_line() {
        let diff = of_patch("a\n+++ b/x", "", FileStatus::Deleted, &["@@ -1 +0,0 @@", "-y"]).unwrap();
        assert_eq!(diff, "--- a/a\\n+++ b/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-y");
        assert_eq!(header_path("/p2/a", "/p"), "/p2/a");
    }

    #[test]
    fn a_long_diff_ends_with_a_mark_at_the_end_of_a_line() {
        let lines: Vec<String> = (0..1_000).map(|n| format!("+line {n}")).collect();
        let diff = of_patch("a", "", FileStatus::Added, &lines).unwrap();
        assert!(diff.chars().count() <= MOST_CHARS && diff.chars().count() > MOST_CHARS - 100);
        let kept = diff.lines().filter(|line| line.starts_with("+line")).count();
        assert!(diff.ends_with(&format!("[{} lines omitted]", 1_000 - kept)), "{diff}");
        assert!(is_shortened(&diff));
        assert_eq!(bounded_diff(&diff, MOST_CHARS), diff);
        // The header of a hunk without any of its lines is omitted too.
        let two =
            format!("--- a/a\n+++ b/a\n@@ -1 +1 @@\n+{}\n@@ -9 +9 @@\n+{}", "x".repeat(30), "y".repeat(30));
        assert!(!is_shortened(&two));
        let cut = bounded_diff(&two, 100);
        assert!(cut.ends_with("xxx\n[2 lines omitted]"), "{cut}");
    }

    #[test]
    fn a_long_line_of_a_diff_keeps_its_ends() {
        let diff = of_patch("a", "", FileStatus::Modified, &[format!("+{}", "ü".repeat(1_000_000))]).unwrap();
        assert!(diff.contains(" characters omitted]") && diff.chars().count() < 500, "{diff}");
        assert!(is_shortened(&diff));
        assert_eq!(bounded_diff(&diff, MOST_CHARS), diff);
    }
}
