//! Taking, comparing and showing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use azureal_snapshots::{Error, GitProgram, Limits, SkipReason, Taken, Worktree};

use crate::place::{Place, SESSION, link, os, shown, take};

#[test]
fn every_kind_of_change_is_listed_with_its_lines() {
    let place = Place::new();
    place.write("bin", [0u8, 1, 2]).write("moved", "1\n2\n3\n4\n5\n6\n7\n8\n9\n").write("run.sh", "x\n");
    place.commit();
    place.write("untracked", "a\n");
    let before = place.take();
    assert_eq!(before.skipped, []);
    place.write("src/b.rs", "one\n2\nthree\nfour\n").write("new/deep/file", "1\n2\n").write("bin", [0u8, 9]);
    place.write("untracked", "a\nb\n");
    fs::remove_file(place.path("README")).unwrap();
    fs::rename(place.path("moved"), place.path("elsewhere")).unwrap();
    fs::set_permissions(place.path("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(place.path("src/a.rs")).unwrap();
    link("/etc/passwd", &place.path("src/a.rs"));
    let after = place.take();
    let worktree = place.worktree();
    let expected = [
        "D README +0 -1",
        "M bin ? ?",
        "R moved -> elsewhere +0 -0",
        "A new/deep/file +2 -0",
        "mode run.sh +0 -0",
        "type src/a.rs +1 -1",
        "M src/b.rs +2 -1",
        "M untracked +1 -0",
    ];
    assert_eq!(shown(&worktree.compare(&before.tree, &after.tree).unwrap()), expected);
    assert_eq!(worktree.compare(&after.tree, &after.tree).unwrap(), []);
    let diff = worktree.diff(&before.tree, &after.tree, 10_000).unwrap();
    assert!(
        diff.text().contains("-two\n+2\n three\n+four\n") && diff.text().contains("+b\n"),
        "{}",
        diff.text()
    );
    let mut parts: Vec<_> = diff.files().iter().map(|(path, _)| path.to_str().unwrap().to_owned()).collect();
    parts.dedup();
    let paths =
        ["README", "bin", "elsewhere", "new/deep/file", "run.sh", "src/a.rs", "src/b.rs", "untracked"];
    assert_eq!((parts, diff.left_out), (paths.map(str::to_owned).to_vec(), 0));
    let all = worktree.diff(&before.tree, &after.tree, 10_000).unwrap();
    assert!(
        all.text().contains("rename to elsewhere") && all.text().contains("old mode 100644\nnew mode 100755")
    );
    let cut = worktree.diff(&before.tree, &after.tree, 100).unwrap();
    assert!(cut.text().len() <= 100 && cut.text().ends_with('\n'));
    assert_eq!(cut.text().len() as u64 + cut.left_out, all.text().len() as u64);
    assert!(all.text().starts_with(&*cut.text()));
}

#[test]
fn unchanged_files_give_the_same_snapshot() {
    let place = Place::new();
    let first = place.take();
    assert_eq!(place.take(), first);
    place.write("src/a.rs", "changed\n");
    assert_ne!(place.take(), first);
    place.write("src/a.rs", "fn a() {}\n");
    assert_eq!(place.take(), first);
    // The tree of the first snapshot is that of the commit.
    assert_eq!(place.git(&["rev-parse", "HEAD^{tree}"]).trim(), first.tree);
}

#[test]
fn an_edit_of_the_same_size_within_a_clock_tick_is_seen() {
    let place = Place::new();
    let mut last = place.take();
    for round in 0..20 {
        place.write("src/a.rs", format!("fn a{round:02}() {{}}\n"));
        let next = place.take();
        assert_ne!(next.tree, last.tree, "round {round}");
        last = next;
    }
    // Also one that git's own index may not show: it is copied with its time.
    let place = Place::new();
    while UNIX_EPOCH.elapsed().unwrap().subsec_millis() > 300 {
        thread::sleep(Duration::from_millis(10));
    }
    place.write("same", "aaaa\n");
    place.git(&["add", "same"]);
    place.write("same", "bbbb\n");
    // A copy with a later time would make the file look old.
    thread::sleep(Duration::from_millis(1100));
    let found = place.take();
    let worktree = place.worktree();
    let text =
        worktree.diff(&found.tree, &take_with(&place, "same", "cccc\n"), 10_000).unwrap().text().into_owned();
    assert!(text.contains("-bbbb\n+cccc\n"), "{text}");
}

fn take_with(place: &Place, name: &str, text: &str) -> String {
    place.write(name, text);
    place.take().tree
}

#[test]
fn ignored_files_and_ours_are_left_out() {
    let place = Place::new();
    place.write(".gitignore", "*.log\n!.azureal\n!*.mine\n").write(".git/info/exclude", "*.project\n");
    fs::write(place.folder.path().join("home/.gitconfig"), "[core]\nexcludesFile = ~/ignored\n").unwrap();
    fs::write(place.folder.path().join("home/ignored"), "*.user\n*.mine\n").unwrap();
    let before = place.take();
    for name in ["a.log", "a.project", "a.user", ".azureal/sessions.azs", "sub/.azureal/x", "sub/a.log"] {
        place.write(name, "x");
    }
    assert_eq!(place.take().tree, before.tree);
    place.write("a.mine", "x");
    let after = place.take();
    assert_eq!(shown(&place.worktree().compare(&before.tree, &after.tree).unwrap()), ["A a.mine +1 -0"]);
    // Tracked files are ours to leave out too.
    let place = Place::new();
    place.write(".azureal/config", "x");
    place.git(&["add", "-f", ".azureal/config"]);
    let before = place.take();
    place.write(".azureal/config", "y");
    assert_eq!(place.take().tree, before.tree);
}

#[test]
fn large_files_are_named_and_not_stored() {
    let place = Place::new();
    place.write("tracked", "x".repeat(3000));
    place.commit();
    let worktree = place.worktree();
    let limits =
        Limits { new_file: 1000, known_file: 2000, time: Duration::from_secs(60), ..Limits::default() };
    let take = || match worktree.take(SESSION, &limits, &|| false).unwrap() {
        Taken::Whole(snapshot) => snapshot,
        other => panic!("{other:?}"),
    };
    let compare = |before: &str, after: &str| shown(&worktree.compare(before, after).unwrap());
    place.write("new", "y".repeat(1001)).write("small", "z".repeat(1000));
    let first = take();
    let names: Vec<_> =
        first.skipped.iter().map(|skipped| (skipped.path.to_str().unwrap(), skipped.why)).collect();
    assert_eq!(names, [("new", SkipReason::TooLarge)]);
    assert_eq!(take(), first);
    place.write("new", "Y".repeat(1002)).write("tracked", "X".repeat(3001)).write("small", "z".repeat(1500));
    let second = take();
    let changes = compare(&first.tree, &second.tree);
    assert_eq!(changes, ["M new ? ? not stored", "M small +1 -1", "M tracked ? ? not stored"]);
    assert_eq!(second.skipped.len(), 2);
    // They become files again, and vanish.
    place.write("new", "1\n").write("tracked", "2\n");
    let third = take();
    assert_eq!(third.skipped, []);
    assert_eq!(compare(&second.tree, &third.tree), ["M new ? ? not stored", "M tracked ? ? not stored"]);
    place.write("new", "y".repeat(5000));
    let fourth = take();
    fs::remove_file(place.path("new")).unwrap();
    let fifth = take();
    assert_eq!(compare(&fourth.tree, &fifth.tree), ["D new ? ? not stored"]);
    let diff = |before: &str, after: &str| worktree.diff(before, after, 100_000).unwrap().text().into_owned();
    let said = "too large or unreadable, not recorded\n";
    let deleted = format!("diff --git a/new b/new\ndeleted file mode 100644\n{said}");
    assert_eq!(diff(&fourth.tree, &fifth.tree), deleted);
    let changed = diff(&first.tree, &second.tree);
    assert!(
        changed.starts_with(&format!("diff --git a/new b/new\n{said}diff --git a/small b/small\n")),
        "{changed}"
    );
    assert!(changed.ends_with(&format!("new file mode 100644\n{said}")), "{changed}");
    let patch = worktree.patch(&first.tree, &second.tree, 100_000).unwrap();
    let text = String::from_utf8(patch.bytes).unwrap();
    assert!(patch.not_stored > 0 && text.starts_with("diff --git a/small b/small\n"), "{text}");
    assert!(!text.contains("160000") && !text.contains("/new"), "{text}");
    let again = diff(&second.tree, &third.tree);
    assert!(again.contains(said) && again.contains("\n+1\n") && !again.contains("Subproject"), "{again}");
    let total: u64 = fs::read_dir(worktree.folder().join("objects/pack")).unwrap().count() as u64;
    assert!(total <= 8, "{total}");
}

#[test]
fn files_folders_and_links_take_each_others_place() {
    let place = Place::new();
    let worktree = place.worktree();
    let first = take(&worktree);
    fs::remove_dir_all(place.path("src")).unwrap();
    place.write("src", "a file\n");
    fs::remove_file(place.path("README")).unwrap();
    place.write("README/inside", "x\n");
    let second = take(&worktree);
    let changes = shown(&worktree.compare(&first.tree, &second.tree).unwrap());
    assert_eq!(
        changes,
        ["D README +0 -1", "A README/inside +1 -0", "A src +1 -0", "D src/a.rs +0 -1", "D src/b.rs +0 -3"]
    );
    fs::remove_file(place.path("src")).unwrap();
    fs::create_dir(place.path("other")).unwrap();
    place.write("other/a.rs", "behind a link\n");
    link("other", &place.path("src"));
    let third = take(&worktree);
    let changes = shown(&worktree.compare(&first.tree, &third.tree).unwrap());
    assert!(
        changes.contains(&"A src +1 -0".to_owned()) && changes.contains(&"D src/a.rs +0 -1".to_owned()),
        "{changes:?}"
    );
    fs::remove_file(place.path("src")).unwrap();
    fs::remove_dir_all(place.path("README")).unwrap();
    fs::remove_dir_all(place.path("other")).unwrap();
    place.git(&["checkout", "-q", "--", "."]);
    assert_eq!(take(&worktree).tree, first.tree);
    // A folder of tracked files becomes a link to a folder outside, with files of the same names.
    let outside = place.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a.rs"), "outside\n").unwrap();
    fs::remove_dir_all(place.path("src")).unwrap();
    link(&outside, &place.path("src"));
    let fourth = take(&worktree);
    let diff = worktree.diff(&first.tree, &fourth.tree, 10_000).unwrap().text().into_owned();
    assert!(diff.contains("deleted file mode") && !diff.contains("+outside\n"), "{diff}");
}

#[test]
fn both_versions_survive_a_garbage_collection_of_the_project() {
    let place = Place::new();
    place.write("deep/er/file", "old\n");
    place.commit();
    let worktree = place.worktree();
    let before = take(&worktree);
    place.write("deep/er/file", "new\n");
    fs::remove_file(place.path("README")).unwrap();
    let after = take(&worktree);
    // All of the history is gone.
    fs::remove_dir_all(place.path(".git/refs/heads")).unwrap();
    fs::create_dir(place.path(".git/refs/heads")).unwrap();
    place.git(&["read-tree", "--empty"]);
    place.git(&["reflog", "expire", "--expire=now", "--all"]);
    place.git(&["gc", "-q", "--prune=now"]);
    assert_eq!(place.git(&["count-objects", "-v"]).lines().next(), Some("count: 0"));
    let changes = shown(&worktree.compare(&before.tree, &after.tree).unwrap());
    assert_eq!(changes, ["D README +0 -1", "M deep/er/file +1 -1"]);
    let diff = worktree.diff(&before.tree, &after.tree, 10_000).unwrap().text().into_owned();
    assert!(diff.contains("-old\n+new\n") && diff.contains("-read\n"), "{diff}");
    // And the next one can be taken.
    place.write("deep/er/file", "newer\n");
    let next = take(&worktree);
    assert_eq!(shown(&worktree.compare(&after.tree, &next.tree).unwrap()), ["M deep/er/file +1 -1"]);
}

#[test]
fn names_are_bytes() {
    let place = Place::new();
    let names: [&[u8]; 5] =
        [b"new\nline", b"latin\xe9", b"tab\t\"quote\"", " sp ace ".as_bytes(), "ü→".as_bytes()];
    let before = place.take();
    for name in names {
        fs::write(place.root.join(os(name)), "1\n").unwrap();
    }
    let after = place.take();
    let worktree = place.worktree();
    let mut expected: Vec<_> = names.iter().map(|name| Path::new(os(name)).to_owned()).collect();
    expected.sort();
    let changes = worktree.compare(&before.tree, &after.tree).unwrap();
    assert_eq!(changes.iter().map(|change| change.path.clone()).collect::<Vec<_>>(), expected);
    assert!(changes.iter().all(|change| change.added == Some(1)));
    let diff = worktree.diff(&before.tree, &after.tree, 10_000).unwrap();
    assert_eq!(diff.files().into_iter().map(|(path, _)| path).collect::<Vec<_>>(), expected);
}

#[test]
fn outside_git_there_are_no_snapshots() {
    let place = Place::new();
    let open = |path: &Path| Worktree::open(path, &place.program()).unwrap().is_some();
    assert!(open(&place.root));
    assert!(!open(place.folder.path()));
    assert!(!open(&place.path("src")), "only the top counts");
    assert!(!open(Path::new("/nonexistent")));
    // Nothing is created by opening.
    assert!(!place.path(".git/azureal").exists());
}

#[test]
fn a_missing_or_old_git_is_an_error_of_its_own() {
    let place = Place::new();
    let none = GitProgram { program: "no-such-git".into(), ..place.program() };
    assert!(matches!(Worktree::open(&place.root, &none), Err(Error::NoGit { .. })));
    let old = place.folder.path().join("old-git");
    fs::write(&old, "#!/bin/sh\necho git version 2.31.8\n").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
    let old = GitProgram { program: old, ..place.program() };
    let error = Worktree::open(&place.root, &old).unwrap_err();
    assert!(error.to_string().contains("git 2.31.8 is too old"), "{error}");
}

#[test]
fn a_missing_or_old_git_is_told_once_in_a_worktree() {
    let place = Place::new();
    let linked = place.folder.path().join("linked");
    place.git(&["worktree", "add", "-q", linked.to_str().unwrap()]);
    let snapshots = place.worktree().folder().to_owned();
    let tell = |root: &Path, error: Error| Worktree::tell_once(root, &snapshots, &error);
    let missing = || Error::NoGit { program: "git".into() };
    let old = |version: &str| Error::OldGit { version: version.into() };
    assert!(tell(&place.root, missing()) && !tell(&place.root, missing()));
    assert!(tell(&linked, missing()), "another worktree");
    assert!(tell(&place.root, old("2.31.8")) && !tell(&place.root, old("2.31.8")), "another trouble");
    assert!(tell(&place.root, Error::Busy) && tell(&place.root, Error::Busy), "a turn of its own");
    assert!(!tell(place.folder.path(), missing()), "outside a repository");
    // A snapshot does not forget it.
    take(&place.worktree());
    assert!(!tell(&place.root, old("2.31.8")));
}

#[test]
fn an_unknown_snapshot_is_an_error() {
    let place = Place::new();
    let worktree = place.worktree();
    let unknown = "0123456789012345678901234567890123456789";
    assert!(matches!(worktree.compare(unknown, unknown), Ok(changes) if changes.is_empty()));
    let other = "1123456789012345678901234567890123456789";
    assert!(matches!(worktree.compare(unknown, other), Err(Error::Gone(_))));
    let first = take(&worktree);
    assert!(matches!(worktree.compare(&first.tree, other), Err(Error::Gone(gone)) if gone == other));
    assert!(matches!(worktree.diff("--output=x", other, 9), Err(Error::NoSnapshot(_))));
}

#[test]
fn a_snapshot_whose_index_is_removed_before_its_tree_is_written_has_all_files() {
    let place = Place::new();
    let tree = place.take().tree;
    place.write("README", "changed\n");
    // As another process, or a person, removes it at that moment.
    let index = place.worktree().folder().join("worktrees/main/index");
    let (script, done) = (place.folder.path().join("git"), place.folder.path().join("done"));
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in *write-tree*) [ -e '{done}' ] || {{ : > '{done}'; rm '{index}'; }};; esac\nexec git \"$@\"\n",
        done = done.display(),
        index = index.display(),
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    let program = GitProgram { program: script, ..place.program() };
    let worktree = Worktree::open(&place.root, &program).unwrap().unwrap();
    let changed = take(&worktree).tree;
    assert!(done.exists());
    assert_eq!(shown(&worktree.compare(&tree, &changed).unwrap()), ["M README +1 -1"]);
}
