//! Diffs of the snapshots of a turn, put on the events that made the changes.

use std::collections::{HashMap, HashSet};

use super::{MOST_CHARS, bounded_diff, is_shortened};
use crate::event::ToolResult;
use crate::{Event, Tool};

/// The length of a changed line that tells where it is from, in bytes.
const TELLING: usize = 8;

/// Puts the diffs of a turn's files on the events of the turn, and returns those that no event covers.
///
/// `diffs` are paths below the root of the worktree, with `/`, and the unified diff of each from the snapshots before and
/// after the turn. A diff goes to the last result of an edit or a patch that succeeded, names this path and has no detail
/// yet, as of an agent that prints paths alone. It is shortened to [`MOST_CHARS`].
///
/// A file whose edits have details of their own is covered if these have every changed line. If they do not, something
/// else changed the file too (`sed -i`, a formatter, a person), and the diff is returned. So are the diffs of files that no
/// event names. [`changes_detail`] joins them for [`Changes::detail`](crate::event::Changes::detail).
///
/// A path in an event may be absolute or relative to the directory of the last `Init` before it. As a worktree may be
/// reached through links, an absolute path is compared by its end, and what is in front of it must be the directory of the
/// run or one above it.
///
/// ```
/// use azureal_core::{Event, detail::attach_diffs};
///
/// let mut turn = [
///     r#"{"Init":{"cwd":"/p/src"}}"#,
///     r#"{"ToolResult":{"tool_name":"Edit","file_path":"/p/src/a.rs","content":"file changed"}}"#,
/// ]
/// .map(|json| Event::from_json(json).unwrap());
/// let diffs = [("src/a.rs".to_owned(), "+x".to_owned()), ("b.txt".to_owned(), "+y".to_owned())];
/// assert_eq!(attach_diffs(&mut turn, &diffs), [("b.txt".to_owned(), "+y".to_owned())]);
/// assert_eq!(turn[1].detail(), Some("+x"));
/// ```
pub fn attach_diffs(events: &mut [Event], diffs: &[(String, String)]) -> Vec<(String, String)> {
    // The results that changed each path, in their order.
    let mut results: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut cwd = "";
    for (index, event) in events.iter().enumerate() {
        match event {
            Event::Init(init) => cwd = &init.cwd,
            Event::ToolResult(result) => {
                let path = changed_path(result).map(|path| parts(cwd, path));
                let named = path.and_then(|path| {
                    let named = diffs.iter().filter(|(diff_path, _)| names(&path, diff_path, cwd));
                    // `src/a.rs` and not `a.rs`.
                    named.max_by_key(|(diff_path, _)| diff_path.len())
                });
                if let Some((path, _)) = named {
                    results.entry(path).or_default().push(index);
                }
            }
            _ => {}
        }
    }
    let mut left = Vec::new();
    for (path, diff) in diffs {
        let indexes = results.get(path.as_str()).map(Vec::as_slice).unwrap_or_default();
        let detail_of = |index: &usize| events.get(*index).and_then(Event::detail);
        let free = indexes.iter().rev().copied().find(|index| detail_of(index).is_none());
        match free {
            Some(index) => {
                if let Some(detail) = events.get_mut(index).and_then(Event::detail_mut) {
                    *detail = Some(bounded_diff(diff, MOST_CHARS));
                }
            }
            None => {
                let details: Vec<&str> = indexes.iter().filter_map(detail_of).collect();
                left.extend(untold(diff, &details).map(|untold| (path.clone(), untold)));
            }
        }
    }
    left
}

/// Joins the diffs that no event of a turn covers, in at most [`MOST_CHARS`] characters; `None` without any.
pub fn changes_detail(diffs: &[(String, String)]) -> Option<String> {
    let mut text = String::new();
    for (_, diff) in diffs {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(diff.trim_end_matches('\n'));
    }
    Some(bounded_diff(&text, MOST_CHARS)).filter(|text| !text.is_empty())
}

/// Returns the file that a result changed. What a subagent did is no part of the context, so its results cover nothing.
fn changed_path(result: &ToolResult) -> Option<&str> {
    let has_changed = !result.is_error && result.subagent.is_none() && Tool::changes_files(&result.tool_name);
    result.file_path.as_deref().filter(|_| has_changed)
}

/// Returns the parts of a path, from the root; those of a path whose root is not known.
fn parts<'a>(cwd: &'a str, path: &'a str) -> Vec<&'a str> {
    let base = if path.starts_with('/') { "" } else { cwd };
    let mut parts = Vec::new();
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts
}

/// Returns whether a path is this path below some root, which the run is in.
fn names(path: &[&str], below_root: &str, cwd: &str) -> bool {
    let below: Vec<&str> = below_root.split('/').collect();
    let Some(root) = path.len().checked_sub(below.len()).and_then(|at| path.split_at_checked(at)) else {
        return false;
    };
    let (root, end) = root;
    end == below && (cwd.is_empty() || parts("", cwd).starts_with(root))
}

/// Returns the part of a diff that details do not have; `None` if they have all of it.
///
/// Of a shortened detail the rest is not known, and its mark says so. A hunk that it has in part is told, and one that it does not
/// have at all is not.
fn untold(diff: &str, details: &[&str]) -> Option<String> {
    let lines_of = |details: &mut dyn Iterator<Item = &&str>| -> HashSet<String> {
        details.flat_map(|detail| changed_lines(detail)).map(str::to_owned).collect()
    };
    let told = lines_of(&mut details.iter());
    let in_part = lines_of(&mut details.iter().filter(|detail| is_shortened(detail)));
    let is_told = |part: &str| changed_lines(part).all(|line| told.contains(line));
    if !details.is_empty() && is_told(diff) {
        return None;
    }
    if in_part.is_empty() {
        return Some(diff.to_owned());
    }
    let is_told_in_part = |hunk: &str| {
        // Short lines are in many places.
        changed_lines(hunk).any(|line| line.trim().len() > TELLING && in_part.contains(line))
    };
    let starts: Vec<usize> = diff.match_indices("\n@@").map(|(at, _)| at + 1).collect();
    let header = diff.get(..starts.first().copied().unwrap_or(0)).unwrap_or_default();
    let starts = if starts.is_empty() { vec![0] } else { starts };
    let ends = starts.iter().skip(1).copied().chain([diff.len()]);
    let hunks = starts.iter().zip(ends).filter_map(|(start, end)| diff.get(*start..end));
    let left: String = hunks.filter(|hunk| !is_told(hunk) && !is_told_in_part(hunk)).collect();
    (!left.is_empty()).then(|| format!("{header}{left}"))
}

fn changed_lines(diff: &str) -> impl Iterator<Item = &str> {
    diff.lines().filter(|line| is_change(line))
}

fn is_change(line: &str) -> bool {
    line.starts_with(['+', '-']) && !line.starts_with("+++ ") && !line.starts_with("--- ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Init;

    fn init(cwd: &str) -> Event {
        Event::Init(Init { cwd: cwd.into(), ..Init::default() })
    }

    fn edited(tool: &str, path: &str, detail: Option<&str>) -> Event {
        Event::ToolResult(ToolResult {
            tool_name: tool.into(),
            file_path: Some(path.into()),
            content: "file changed".into(),
            detail: detail.map(str::to_owned),
            ..ToolResult::default()
        })
    }

    fn diffs(diffs: &[(&str, &str)]) -> Vec<(String, String)> {
        diffs.iter().map(|(path, diff)| ((*path).to_owned(), (*diff).to_owned())).collect()
    }

    /// Attaches diffs, and returns the details of the events and the paths that are left.
    fn attached(events: &mut [Event], all: &[(&str, &str)]) -> (Vec<Option<String>>, Vec<String>) {
        let left = attach_diffs(events, &diffs(all));
        let details = events.iter().map(|event| event.detail().map(str::to_owned)).collect();
        (details, left.into_iter().map(|(path, _)| path).collect())
    }

    #[test]
    fn a_diff_goes_to_the_last_edit_that_succeeded() {
        let mut failed = edited("Edit", "/p/a", None);
        if let Event::ToolResult(result) = &mut failed {
            result.is_error = true;
        }
        let mut subagents = edited("Edit", "/p/b", None);
        if let Event::ToolResult(result) = &mut subagents {
            result.subagent = Some("t".into());
        }
        let mut turn = [
            init("/p"),
            edited("Edit", "/p/a", None),
            edited("Edit", "a", None),
            failed,
            subagents,
            edited("Read", "/p/c", None),
            edited("Delete", "/p/d", None),
        ];
        let (details, left) = attached(&mut turn, &[("a", "+1"), ("b", "+2"), ("c", "+3"), ("d", "-4")]);
        let at = |index: usize| details.get(index).cloned().flatten();
        assert_eq!((at(1), at(2), at(3), at(6)), (None, Some("+1".into()), None, Some("-4".into())));
        assert_eq!(left, ["b", "c"]);
        // A second time there is no place left, and the details say the same.
        assert_eq!(attached(&mut turn[2..], &[("a", "+1"), ("d", "-4")]).1, [""; 0]);
    }

    #[test]
    fn a_path_is_found_below_the_root_wherever_the_run_is() {
        for (cwd, path, diff) in [
            ("/p", "/p/src/a.rs", "src/a.rs"),
            ("/p/src", "a.rs", "src/a.rs"),
            ("/p/src", "../a.rs", "a.rs"),
            ("/p/src", "/p/a.rs", "a.rs"),
            ("/p/", "./src//a.rs", "src/a.rs"),
            ("", "src/a.rs", "src/a.rs"),
            ("", "/anywhere/src/a.rs", "src/a.rs"),
        ] {
            let mut turn = [init(cwd), edited("Write", path, None)];
            assert_eq!(attached(&mut turn, &[(diff, "+x")]).1, [""; 0], "{cwd} {path}");
        }
        for (cwd, path, diff) in [
            ("/p", "/p/src/a.rs", "a.rs"),
            ("/p", "/q/a.rs", "a.rs"),
            ("/p", "/p/ba.rs", "a.rs"),
            ("/p", "/a", "b/a"),
        ] {
            let mut turn = [init(cwd), edited("Write", path, None)];
            assert_eq!(attached(&mut turn, &[(diff, "+x")]).1, [diff], "{cwd} {path}");
        }
        // The longer of two paths that it may be.
        let mut turn = [init("/p/src"), edited("Write", "/p/src/a.rs", None)];
        assert_eq!(attached(&mut turn, &[("a.rs", "+x"), ("src/a.rs", "+y")]).1, ["a.rs"]);
        assert_eq!(turn[1].detail(), Some("+y"));
    }

    #[test]
    fn a_file_that_something_else_changed_too_is_not_covered_by_its_edits() {
        let edit = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+ONE";
        let mut turn = [init("/p"), edited("Edit", "/p/a", Some(edit))];
        let same = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n-one\n+ONE\n two";
        assert_eq!(attached(&mut turn, &[("a", same)]).1, [""; 0]);
        let more = format!("{same}\n-three\n+THREE");
        assert_eq!(attached(&mut turn, &[("a", &more)]).1, ["a"]);
    }

    #[test]
    fn a_shortened_detail_covers_the_hunks_that_it_begins_and_no_other() {
        let told = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one long line\n+ONE LONG LINE\n[9 lines omitted]";
        let mut turn = [init("/p"), edited("Edit", "/p/a", Some(told))];
        let header = "diff --git a/a b/a\n--- a/a\n+++ b/a\n";
        let first = "@@ -1,2 +1,2 @@\n-one long line\n+ONE LONG LINE\n two\n+and more\n";
        let second = "@@ -90,2 +90,2 @@\n-by another program\n+By another program\n+}\n";
        assert_eq!(attach_diffs(&mut turn, &diffs(&[("a", &format!("{header}{first}"))])), []);
        let left = attach_diffs(&mut turn, &diffs(&[("a", &format!("{header}{first}{second}"))]));
        assert_eq!(left, diffs(&[("a", &format!("{header}{second}"))]));
        // A line of one character is in many places.
        let mut short = [init("/p"), edited("Write", "/p/a", Some("+x\n[9 lines omitted]"))];
        assert_eq!(attached(&mut short, &[("a", "+x\n+y")]).1, ["a"]);
    }

    #[test]
    fn diffs_of_changes_are_bounded_one_by_one_and_together() {
        let long = format!("--- a/a\n+++ b/a\n@@ -1 +1 @@\n{}", "+x\n".repeat(5_000));
        let mut turn = [init("/p"), edited("Edit", "/p/a", None)];
        let left = attach_diffs(&mut turn, &diffs(&[("a", &long), ("b", &long), ("c", "+c")]));
        assert!(turn[1].detail().is_some_and(|detail| detail.chars().count() <= MOST_CHARS));
        let detail = changes_detail(&left).unwrap();
        assert!(detail.chars().count() <= MOST_CHARS && detail.ends_with(" lines omitted]"), "{detail}");
        assert_eq!(changes_detail(&diffs(&[("a", "+a\n"), ("b", "+b\n")])).as_deref(), Some("+a\n+b"));
        assert_eq!(changes_detail(&[]), None);
    }
}
