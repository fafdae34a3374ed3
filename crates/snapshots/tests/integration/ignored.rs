//! Files that a turn makes visible: they were ignored before it, and may have secrets.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use azureal_snapshots::{ConflictReason, Error, GitProgram, SkipReason, UndoPlan, Worktree};

use crate::place::{Place, SESSION, os, shown, take};

fn conflicts(plan: &UndoPlan) -> Vec<(&str, ConflictReason)> {
    plan.conflicts.iter().map(|conflict| (conflict.path.to_str().unwrap(), conflict.why)).collect()
}

/// Returns the files that were ignored before, and the other changes.
fn split(worktree: &Worktree, before: &str, after: &str) -> (Vec<String>, Vec<String>) {
    let (ignored, files): (Vec<_>, Vec<_>) =
        worktree.compare(before, after).unwrap().into_iter().partition(|file| file.ignored_before);
    (ignored.iter().map(|file| file.path.display().to_string()).collect(), shown(&files))
}

/// Checks that files stay as they are and their content is in no diff, and returns the other changes.
#[track_caller]
fn check_hidden(place: &Place, before: &str, after: &str, hidden: &[&str]) -> Vec<String> {
    let worktree = place.worktree();
    let (ignored, changes) = split(&worktree, before, after);
    assert_eq!(ignored, hidden);
    let diff = worktree.diff(before, after, 1 << 20).unwrap();
    assert!(!diff.text().contains("SECRET"), "{}", diff.text());
    let plan = worktree.plan_undo(before, after).unwrap();
    for name in hidden {
        assert!(conflicts(&plan).contains(&(name, ConflictReason::WasThere)), "{:?}", plan.conflicts);
    }
    let contents = || hidden.iter().map(|name| fs::read(place.path(name)).unwrap()).collect::<Vec<_>>();
    let now = contents();
    assert!(matches!(worktree.undo(SESSION, before, after, false), Err(Error::Conflicts(_))));
    worktree.undo(SESSION, before, after, true).unwrap();
    assert_eq!(contents(), now);
    changes
}

#[test]
fn an_ignored_file_that_is_written_again_by_a_new_file_was_there() {
    let place = Place::new();
    place.write(".gitignore", ".env\n").write(".env", "SECRET=1\n");
    place.commit();
    let before = place.take().tree;
    // As `sed -i` does it.
    place.write(".gitignore", "").write("x", "SECRET=2\n");
    fs::rename(place.path("x"), place.path(".env")).unwrap();
    let after = place.take().tree;
    let changes = check_hidden(&place, &before, &after, &[".env"]);
    assert_eq!(changes, ["M .gitignore +0 -1"]);
}

#[test]
fn an_ignored_file_is_no_rename_of_one_that_is_like_it() {
    let place = Place::new();
    let lines: String = (0..40).map(|line| format!("KEY_{line}=\n")).collect();
    place.write(".gitignore", ".env\nempty\n").write(".env.example", &lines);
    place.write(".env", format!("{lines}TOKEN=SECRET\n")).write("empty", "").write("also-empty", "");
    place.write("same", "x\n");
    place.commit();
    let before = place.take().tree;
    fs::remove_file(place.path(".env.example")).unwrap();
    place.write(".gitignore", "");
    let after = place.take().tree;
    let changes = check_hidden(&place, &before, &after, &[".env", "empty"]);
    assert_eq!(changes, ["D .env.example +0 -40", "M .gitignore +0 -2"]);
    assert_eq!(fs::read_to_string(place.path(".env.example")).unwrap(), lines);
}

#[test]
fn what_happens_to_the_file_later_changes_nothing() {
    let place = Place::new();
    place.write(".gitignore", ".env\n").write(".env", "SECRET\n");
    let worktree = place.worktree();
    let before = take(&worktree).tree;
    place.write(".gitignore", "").write("README", "edited\n");
    let after = take(&worktree).tree;
    let expected = split(&worktree, &before, &after);
    assert_eq!(expected.0, [".env"]);
    // A copy has another time, and a file that is gone has none.
    fs::copy(place.path(".env"), place.path("x")).unwrap();
    fs::rename(place.path("x"), place.path(".env")).unwrap();
    assert_eq!(split(&worktree, &before, &after), expected);
    assert_eq!(
        conflicts(&worktree.plan_undo(&before, &after).unwrap()),
        [(".env", ConflictReason::WasThere)]
    );
    fs::remove_file(place.path(".env")).unwrap();
    assert_eq!(split(&worktree, &before, &after), expected);
    assert!(!worktree.diff(&before, &after, 10_000).unwrap().text().contains("SECRET"));
    worktree.undo(SESSION, &before, &after, false).unwrap();
    assert!(!place.path(".env").exists());
}

#[test]
fn rules_of_every_source_are_those_of_their_time() {
    let place = Place::new();
    let home = place.folder.path().join("home");
    fs::create_dir_all(home.join(".config/git")).unwrap();
    fs::write(home.join(".config/git/ignore"), "*.user\n").unwrap();
    place.write(".git/info/exclude", "*.project\n").write("deep/.gitignore", "*.deep\n!keep.deep\n");
    // A folder of rules that ignore themselves, as tools create it.
    place.write("cache/.gitignore", "*\n").write("cache/inner/data", "SECRET\n");
    place.write(".gitignore", "/built/\n").write("built/.gitignore", "!*\n").write("built/out", "SECRET\n");
    for name in ["a.user", "a.project", "deep/er/a.deep"] {
        place.write(name, "SECRET\n");
    }
    fs::create_dir(place.path("nested")).unwrap();
    place.git_in(&place.path("nested"), &["init", "-q"]);
    place.write("nested/deep/file", "SECRET\n");
    let before = place.take();
    assert_eq!(place.take(), before);
    fs::write(home.join(".config/git/ignore"), "").unwrap();
    place.write(".git/info/exclude", "").write("deep/.gitignore", "").write(".gitignore", "");
    fs::remove_file(place.path("cache/.gitignore")).unwrap();
    fs::remove_dir_all(place.path("nested/.git")).unwrap();
    place.write("deep/keep.deep", "new\n").write("b.other", "new\n").write("cached", "new\n");
    let after = place.take();
    let hidden = [
        "a.project",
        "a.user",
        "built/.gitignore",
        "built/out",
        "cache/inner/data",
        "deep/er/a.deep",
        "nested/deep/file",
    ];
    let changes = check_hidden(&place, &before.tree, &after.tree, &hidden);
    assert_eq!(
        changes,
        [
            "M .gitignore +0 -1",
            "A b.other +1 -0",
            "A cached +1 -0",
            "M deep/.gitignore +0 -2",
            "A deep/keep.deep +1 -0"
        ]
    );
}

#[test]
fn rules_that_ignore_themselves_are_no_files_of_a_snapshot() {
    let place = Place::new();
    let worktree = place.worktree();
    let before = take(&worktree);
    place.write("cache/.gitignore", "*\n").write("cache/data", "x\n").write("plain/.gitignore", "no\n");
    let after = take(&worktree);
    assert_eq!(shown(&worktree.compare(&before.tree, &after.tree).unwrap()), ["A plain/.gitignore +1 -0"]);
    worktree.undo(SESSION, &before.tree, &after.tree, false).unwrap();
    assert!(place.path("cache/.gitignore").exists() && !place.path("plain").exists());
}

#[test]
fn a_file_at_a_new_path_is_new_wherever_it_comes_from() {
    let place = Place::new();
    let lines: String = (0..100).map(|line| format!("{line}\n")).collect();
    place.write("foo.js", lines).write(".gitignore", "kept\n").write("kept", "x\n");
    place.commit();
    fs::write(place.folder.path().join("older"), "older\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let worktree = place.worktree();
    let before = take(&worktree).tree;
    fs::rename(place.path("foo.js"), place.path("foo.ts")).unwrap();
    place.write("foo.ts", "export const x = 1\n");
    fs::rename(place.folder.path().join("older"), place.path("moved-in")).unwrap();
    let after = take(&worktree).tree;
    let changes = shown(&worktree.compare(&before, &after).unwrap());
    assert_eq!(changes, ["D foo.js +0 -100", "A foo.ts +1 -0", "A moved-in +1 -0"]);
    worktree.undo(SESSION, &before, &after, false).unwrap();
    assert!(!place.path("moved-in").exists() && !place.path("foo.ts").exists());
}

#[test]
fn a_snapshot_of_another_worktree_makes_no_file_old() {
    let place = Place::new();
    let worktree = place.worktree();
    let before = take(&worktree).tree;
    place.write("n", "n\n");
    std::thread::sleep(Duration::from_millis(50));
    // With the files of before the turn, but later than the turn's file.
    let linked = place.folder.path().join("linked");
    place.git(&["worktree", "add", "-q", linked.to_str().unwrap()]);
    let other = Worktree::open(&linked, &place.program()).unwrap().unwrap();
    assert_eq!(take(&other).tree, before);
    let after = take(&worktree).tree;
    take(&other);
    take(&worktree);
    assert_eq!(shown(&worktree.compare(&before, &after).unwrap()), ["A n +1 -0"]);
    assert_eq!(split(&worktree, &before, &after).0, Vec::<String>::new());
    worktree.undo(SESSION, &before, &after, false).unwrap();
    assert!(!place.path("n").exists());
}

#[test]
fn a_file_in_the_place_of_a_folder_does_not_show_the_files_that_were_ignored_there() {
    let place = Place::new();
    place.write(".gitignore", "a/key\nb.log\n").write("a", "a\n").write("z", "z\n").write("old", "1\n2\n3\n");
    let before = place.take().tree;
    fs::remove_file(place.path("a")).unwrap();
    place.write("a/key", "SECRET\n").write("z", "y\n").write("b.log", "SECRET\n");
    fs::rename(place.path("old"), place.path("new")).unwrap();
    place.write(".gitignore", "");
    let after = place.take().tree;
    let diff = place.worktree().diff(&before, &after, 10_000).unwrap();
    assert!(diff.text().contains("rename from old\nrename to new\n"), "{}", diff.text());
    let changes = check_hidden(&place, &before, &after, &["a/key", "b.log"]);
    assert_eq!(changes, ["M .gitignore +0 -2", "D a +0 -1", "R old -> new +0 -0", "M z +1 -1"]);
    // The folder stands in the way.
    assert!(place.path("a/key").exists());
}

#[test]
fn a_file_that_is_ignored_from_now_on_is_not_deleted_and_not_overwritten() {
    let place = Place::new();
    place.write("notes", "mine\n").write("tracked.log", "1\n");
    place.git(&["add", "tracked.log"]);
    let worktree = place.worktree();
    let before = take(&worktree).tree;
    place.write(".gitignore", "notes\n*.log\n");
    let after = take(&worktree).tree;
    assert_eq!(shown(&worktree.compare(&before, &after).unwrap()), ["A .gitignore +2 -0"]);
    place.write("notes", "edited\n");
    worktree.undo(SESSION, &before, &after, false).unwrap();
    assert_eq!(fs::read_to_string(place.path("notes")).unwrap(), "edited\n");
    // One that is really deleted comes back, though its name is ignored now.
    let before = take(&worktree).tree;
    place.write(".gitignore", "notes\n*.log\n");
    fs::remove_file(place.path("notes")).unwrap();
    fs::remove_file(place.path("tracked.log")).unwrap();
    let after = take(&worktree).tree;
    let changes = shown(&worktree.compare(&before, &after).unwrap());
    assert_eq!(changes, ["A .gitignore +2 -0", "D notes +0 -1", "D tracked.log +0 -1"]);
    worktree.undo(SESSION, &before, &after, false).unwrap();
    assert_eq!(fs::read_to_string(place.path("notes")).unwrap(), "edited\n");
    assert!(place.path("tracked.log").exists());
}

#[test]
fn names_of_ignored_files_are_bytes_and_nothing_is_executed() {
    let place = Place::new();
    let names: [&[u8]; 6] = [b"new\nline", b"latin\xe9", b"tab\t\"quote\"", b" sp ace ", b":(glob)*", b"-x"];
    place.write(".gitignore", "hidden/\n");
    fs::create_dir_all(place.path("hidden/deep")).unwrap();
    for name in names {
        fs::create_dir(place.path("hidden").join(os(name))).unwrap();
        fs::write(place.path("hidden").join(os(name)).join(os(name)), "SECRET\n").unwrap();
        fs::create_dir(place.root.join(os(name))).unwrap();
        fs::write(place.root.join(os(name)).join(".gitignore"), "secret\n").unwrap();
        fs::write(place.root.join(os(name)).join("secret"), "SECRET\n").unwrap();
    }
    let trace = place.folder.path().join("was-executed");
    let program = place.folder.path().join("canary");
    fs::write(&program, format!("#!/bin/sh\ntouch '{}'\n", trace.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    place.git(&["config", "core.fsmonitor", program.to_str().unwrap()]);
    fs::remove_file(&trace).ok();
    let worktree = place.worktree();
    let before = take(&worktree).tree;
    place.write(".gitignore", "");
    for name in names {
        fs::write(place.root.join(os(name)).join(".gitignore"), "").unwrap();
        fs::write(place.root.join(os(name)).join("new"), "1\n").unwrap();
    }
    let after = take(&worktree).tree;
    let (ignored, files) = split(&worktree, &before, &after);
    assert_eq!((ignored.len(), files.len()), (12, 13));
    let diff = worktree.diff(&before, &after, 100_000).unwrap();
    assert!(!diff.text().contains("SECRET") && diff.files().len() == 13, "{}", diff.text());
    assert!(!trace.exists());
    // No folder of a comparison is left.
    assert_eq!(fs::read_dir(worktree.folder().join("scratch")).unwrap().count(), 0);
}

#[test]
fn the_rules_survive_a_garbage_collection_and_a_prune() {
    let place = Place::new();
    place.write("deep/.gitignore", "*.key\n").write("deep/a.key", "SECRET\n").write(".gitignore", "other\n");
    place.commit();
    let worktree = place.worktree();
    let before = take(&worktree).tree;
    place.write("deep/.gitignore", "").write("deep/new", "1\n");
    let after = take(&worktree).tree;
    place.write(".git/info/exclude", "x\n");
    take(&worktree);
    let expected = split(&worktree, &before, &after);
    assert_eq!(expected.0, ["deep/a.key"]);
    fs::remove_dir_all(place.path(".git/refs/heads")).unwrap();
    fs::create_dir(place.path(".git/refs/heads")).unwrap();
    place.git(&["read-tree", "--empty"]);
    place.git(&["reflog", "expire", "--expire=now", "--all"]);
    place.git(&["gc", "-q", "--prune=now"]);
    worktree.prune(u64::MAX).unwrap();
    assert_eq!(split(&worktree, &before, &after), expected);
}

#[test]
fn without_stored_rules_the_present_ones_count() {
    let place = Place::new();
    place.write(".gitignore", "*.tree\n").write(".git/info/exclude", "*.project\n");
    let worktree = place.worktree();
    let before = take(&worktree).tree;
    place.write(".gitignore", "!*.project\n");
    place.write("a.tree", "1\n").write("a.project", "2\n").write("new", "3\n");
    let after = take(&worktree).tree;
    worktree.remove_session(SESSION).unwrap();
    let (ignored, files) = split(&worktree, &before, &after);
    assert_eq!(
        (ignored, files),
        (
            vec!["a.project".into(), "a.tree".into()],
            vec!["M .gitignore +1 -1".to_owned(), "A new +1 -0".to_owned()]
        )
    );
}

#[test]
fn the_list_of_files_does_not_wait_for_their_lines() {
    let place = Place::new();
    let worktree = place.worktree();
    let before = take(&worktree).tree;
    place.write("a-b", "1\n").write("a/b", "2\n").write("README", "edited\n");
    fs::remove_file(place.path("src/a.rs")).unwrap();
    let after = take(&worktree).tree;
    let hasty = worktree.comparing_within(Duration::ZERO);
    let changes = shown(&hasty.compare(&before, &after).unwrap());
    assert_eq!(changes, ["M README ? ?", "A a-b ? ?", "A a/b ? ?", "D src/a.rs ? ?"]);
    assert!(matches!(hasty.diff(&before, &after, 10_000), Err(Error::Slow { .. })));
    // The order is that of git.
    let diff = worktree.diff(&before, &after, 10_000).unwrap();
    let paths: Vec<_> = diff.files().iter().map(|(path, _)| path.to_str().unwrap().to_owned()).collect();
    assert_eq!(paths, ["README", "a-b", "a/b", "src/a.rs"]);
    let changes = shown(&worktree.compare(&before, &after).unwrap());
    assert_eq!(changes, ["M README +1 -1", "A a-b +1 -0", "A a/b +1 -0", "D src/a.rs +0 -1"]);
}

#[test]
fn a_diff_of_any_encoding_can_be_applied() {
    let place = Place::new();
    place.write("latin", b"caf\xe9\none\n");
    let worktree = place.worktree();
    let before = take(&worktree).tree;
    place.write("latin", b"caf\xe9\ntwo\xff\n");
    let after = take(&worktree).tree;
    let diff = worktree.diff(&before, &after, 10_000).unwrap();
    place.write("latin", b"caf\xe9\none\n");
    let patch = place.folder.path().join("patch");
    fs::write(&patch, &diff.bytes).unwrap();
    let applied: std::process::ExitStatus =
        Command::status(place.command(&place.root, &["apply", "--"]).arg(&patch)).unwrap();
    assert!(applied.success());
    assert_eq!(fs::read(place.path("latin")).unwrap(), b"caf\xe9\ntwo\xff\n");
}

#[test]
fn all_that_a_turn_adds_is_hidden_if_the_rules_from_before_it_cannot_be_read() {
    let place = Place::new();
    place.write(".git/info/exclude", "secret\n").write("secret", "SECRET\n");
    let before = place.take().tree;
    place.write(".git/info/exclude", "").write("new", "SECRET\n").write("README", "changed\n");
    let after = place.take().tree;
    let worktree = place.worktree();
    assert_eq!(split(&worktree, &before, &after).0, ["secret"]);
    let packs = worktree.folder().join("objects/pack");
    let notes = packs.join(format!("notes-{SESSION}"));
    let text = fs::read_to_string(&notes).unwrap();
    // A line that is no note stands for one that named other rules.
    fs::write(&notes, format!("no note\n{text}")).unwrap();
    assert_eq!(split(&worktree, &before, &after).0, ["new", "secret"]);
    fs::write(&notes, &text).unwrap();
    let record = text.lines().next().unwrap().rsplit(' ').next().unwrap();
    fs::remove_file(worktree.folder().join("objects").join(&record[..2]).join(&record[2..])).unwrap();
    assert_eq!(worktree.check_snapshots().unwrap().lost, [(SESSION.to_owned(), 1)]);
    assert_eq!(check_hidden(&place, &before, &after, &["new", "secret"]), ["M README +1 -1"]);
}

#[test]
fn what_was_in_a_folder_that_could_not_be_read_is_hidden() {
    let place = Place::new();
    let (script, is_closed) = (place.folder.path().join("git"), place.folder.path().join("closed"));
    // As git does it for a user who cannot read the folder. This test may run as root.
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in *--others*) [ -e '{}' ] && {{ cat '{0}' >&2; exec git \"$@\" -x private; }};; esac\nexec git \"$@\"\n",
        is_closed.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    let program = GitProgram { program: script, ..place.program() };
    for (name, hidden) in [("private/", &["private/key"][..]), ("pri?vate/", &["new", "private/key"])] {
        fs::write(&is_closed, format!("warning: could not open directory '{name}': Permission denied\n"))
            .unwrap();
        place.write("private/key", "SECRET\n").write("README", "read\n");
        fs::remove_file(place.path("new")).ok();
        let worktree = Worktree::open(&place.root, &program).unwrap().unwrap();
        let before = take(&worktree);
        assert_eq!(
            before.skipped.iter().map(|skipped| skipped.why).collect::<Vec<_>>(),
            [SkipReason::Unreadable]
        );
        fs::remove_file(&is_closed).unwrap();
        place.write("README", "changed\n").write("new", "new\n");
        let after = take(&worktree).tree;
        let changes = check_hidden(&place, &before.tree, &after, hidden);
        assert_eq!(changes.contains(&"A new +1 -0".to_owned()), !hidden.contains(&"new"), "{changes:?}");
        fs::remove_dir_all(worktree.folder()).unwrap();
    }
}
