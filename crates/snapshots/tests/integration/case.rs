//! Names that differ by case, where git or the file system ignores it.

use std::fs;

use crate::place::{Place, SESSION, begin, end, shown};

/// Returns a repository where names that differ by case are one file. `None` if the temporary folder is not on such a file system.
fn one_file() -> Option<Place> {
    let place = Place::new();
    if place.path("readme").exists() {
        return Some(place);
    }
    let required = std::env::var_os("AZUREAL_REQUIRE_CASE").is_some();
    assert!(!required, "the temporary folder does not ignore case, and AZUREAL_REQUIRE_CASE is set");
    None
}

/// Renames by case. Linux does nothing if both names are one file.
fn rename(place: &Place, from: &str, to: &str) {
    fs::rename(place.path(from), place.path("between")).unwrap();
    fs::rename(place.path("between"), place.path(to)).unwrap();
}

fn names(place: &Place) -> Vec<String> {
    let root = place.root.clone();
    place.files().keys().map(|path| path.strip_prefix(&root).unwrap().display().to_string()).collect()
}

#[test]
fn rules_and_names_ignore_case_where_git_does() {
    let place = Place::new();
    place.git(&["config", "core.ignoreCase", "true"]);
    place.write(".gitignore", "secrets/\n*.KEY\n").write("SECRETS/a", "SECRET\n").write("b.key", "SECRET\n");
    let worktree = place.worktree();
    let before = begin(&worktree);
    place.write(".gitignore", "").write("SECRETS/new", "1\n").write("new", "1\n");
    let after = end(&worktree, &before);
    let (hidden, files): (Vec<_>, Vec<_>) =
        worktree.compare(&before, &after).unwrap().into_iter().partition(|file| file.ignored_before);
    let hidden: Vec<_> = hidden.iter().map(|file| file.path.to_str().unwrap()).collect();
    // What was ignored by these rules cannot be told from what was there.
    assert_eq!(hidden, ["SECRETS/a", "SECRETS/new", "b.key"]);
    assert_eq!(shown(&files), ["M .gitignore +0 -2", "A new +1 -0"]);
    // In the next turn they are files as others.
    let before = begin(&worktree);
    place.git(&["config", "core.ignoreCase", "false"]);
    place.write("b.key", "SECRET 2\n");
    let worktree = place.worktree();
    let after = end(&worktree, &before);
    assert_eq!(shown(&worktree.compare(&before, &after).unwrap()), ["M b.key +1 -1"]);
}

#[test]
fn two_names_of_one_inode_stay_two_files_where_case_counts() {
    let place = Place::new();
    if place.path("readme").exists() {
        return;
    }
    place.write("a", "1\n");
    fs::hard_link(place.path("a"), place.path("A")).unwrap();
    place.commit();
    place.git(&["config", "core.ignoreCase", "true"]);
    let worktree = place.worktree();
    let before = begin(&worktree);
    place.write("a", "2\n");
    let after = end(&worktree, &before);
    assert_eq!(shown(&worktree.compare(&before, &after).unwrap()), ["M A +1 -1", "M a +1 -1"]);
    worktree.undo(SESSION, &before, &after, false).unwrap();
    assert_eq!(names(&place), ["A", "README", "a", "src", "src/a.rs", "src/b.rs"]);
    assert_eq!(fs::read_to_string(place.path("A")).unwrap(), "1\n");
    assert_eq!(fs::read_to_string(place.path("a")).unwrap(), "1\n");
}

#[test]
fn a_rename_by_case_is_one_change_and_its_undo_deletes_nothing() {
    let Some(place) = one_file() else { return };
    place.write("dir/Mixed", "mixed\n").write("untracked", "mine\n");
    place.git(&["add", "dir"]);
    let worktree = place.worktree();
    let (files, before) = (place.files(), begin(&worktree));
    for (from, to) in [("README", "ReadMe"), ("dir/Mixed", "dir/mixed"), ("untracked", "UNTRACKED")] {
        rename(&place, from, to);
    }
    place.write("UNTRACKED", "edited\n");
    let (changed, after) = (place.files(), end(&worktree, &before));
    let changes = shown(&worktree.compare(&before, &after).unwrap());
    assert_eq!(
        changes,
        [
            "R README -> ReadMe +0 -0",
            "A UNTRACKED +1 -0",
            "R dir/Mixed -> dir/mixed +0 -0",
            "D untracked +0 -1"
        ]
    );
    assert_eq!(begin(&worktree), after);
    for _ in 0..2 {
        let undone = worktree.undo(SESSION, &before, &after, false).unwrap();
        assert_eq!(place.files(), files);
        worktree.of_undo(true).undo(SESSION, &undone.before, &undone.after, false).unwrap();
        assert_eq!(place.files(), changed);
    }
}

#[test]
fn a_folder_that_is_renamed_by_case_keeps_its_files() {
    let Some(place) = one_file() else { return };
    let worktree = place.worktree();
    let before = begin(&worktree);
    rename(&place, "src", "Src");
    place.write("Src/a.rs", "edited\n").write("Src/new", "new\n");
    let after = end(&worktree, &before);
    let undone = worktree.undo(SESSION, &before, &after, false).unwrap();
    assert_eq!(fs::read_to_string(place.path("src/a.rs")).unwrap(), "fn a() {}\n");
    assert!(place.path("src/b.rs").exists() && !place.path("src/new").exists());
    worktree.of_undo(true).undo(SESSION, &undone.before, &undone.after, false).unwrap();
    assert_eq!(fs::read_to_string(place.path("src/a.rs")).unwrap(), "edited\n");
    assert!(place.path("src/new").exists());
}

#[test]
fn an_ignored_file_whose_name_changes_by_case_was_there() {
    let Some(place) = one_file() else { return };
    place.write(".gitignore", ".env\n").write(".env", "SECRET\n");
    let worktree = place.worktree();
    let before = begin(&worktree);
    rename(&place, ".env", ".ENV");
    place.write(".gitignore", "");
    let after = end(&worktree, &before);
    assert!(!worktree.diff(&before, &after, 10_000).unwrap().text().contains("SECRET"));
    worktree.undo(SESSION, &before, &after, true).unwrap();
    assert!(place.path(".env").exists());
}
