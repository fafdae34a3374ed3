//! The diff that Claude Code prints with the result of an edit, for its own display.

use azureal_core::detail;
use azureal_core::event::FileStatus;
use serde_json::value::RawValue;

use super::wire::{Edited, Hunk};
use crate::calls::Reported;
use crate::wire::{elements, kept, read};

/// Returns the diff in the program's own form of a result, for the file of this path. `cwd` is the directory of the run.
pub(super) fn diff(own: &RawValue, path: &str, cwd: &str) -> Reported {
    // A text where the tool failed, or another form.
    let Some(edited) = read::<Edited<'_>>(own) else { return Reported::Unknown };
    if edited.new_source.is_some() {
        return Reported::Diff(detail::of_edit("NotebookEdit", &kept(Some(own)), "", cwd));
    }
    let Some(hunks) = edited.patch.and_then(elements) else { return Reported::Unknown };
    if hunks.is_empty() && edited.kind != "update" {
        // A new file: all of it is in the input of the call.
        return Reported::Unknown;
    }
    let mut lines = Vec::new();
    for hunk in hunks.into_iter().filter_map(read::<Hunk>) {
        let Hunk { old_start, old_lines, new_start, new_lines, lines: changed } = hunk;
        lines.push(format!("@@ -{old_start},{old_lines} +{new_start},{new_lines} @@"));
        lines.extend(changed);
    }
    Reported::Diff(detail::of_patch(path, cwd, FileStatus::Modified, &lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(own: &str) -> Option<Option<String>> {
        let own: &RawValue = serde_json::from_str(own).unwrap();
        match diff(own, "/p/a.rs", "/p") {
            Reported::Unknown => None,
            Reported::Diff(diff) => Some(diff),
        }
    }

    #[test]
    fn a_patch_has_its_places_and_the_lines_around() {
        let own = r#"{"filePath":"/p/a.rs","structuredPatch":[
            {"oldStart":7,"oldLines":3,"newStart":7,"newLines":3,"lines":[" a","-b","+B"," c"]},
            {"oldStart":90,"oldLines":1,"newStart":90,"newLines":2,"lines":[" x","+y"]}, 7]}"#;
        let expected = "--- a/a.rs\n+++ b/a.rs\n@@ -7,3 +7,3 @@\n a\n-b\n+B\n c\n@@ -90,1 +90,2 @@\n x\n+y";
        assert_eq!(reported(own), Some(Some(expected.to_owned())));
    }

    #[test]
    fn a_new_file_is_in_the_call_and_one_written_as_it_was_has_no_diff() {
        assert_eq!(reported(r#"{"type":"create","structuredPatch":[]}"#), None);
        assert_eq!(reported(r#"{"type":"update","structuredPatch":[]}"#), Some(None));
        for other in [r#""Error: no""#, "[]", "{}", r#"{"structuredPatch":7}"#] {
            assert_eq!(reported(other), None, "{other}");
        }
    }

    #[test]
    fn a_cell_of_a_notebook_has_its_old_source() {
        let own = r#"{"notebook_path":"/p/n.ipynb","cell_id":"c1","edit_mode":"replace","old_source":"1","new_source":"2"}"#;
        let expected = "--- a/n.ipynb\n+++ b/n.ipynb\n@@ cell c1 @@\n-1\n+2";
        assert_eq!(reported(own), Some(Some(expected.to_owned())));
    }
}
