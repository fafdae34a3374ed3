//! Repositories that want to be executed, or to read and write elsewhere; and unusual ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use azureal_snapshots::{Error, SkipReason, Worktree};

use crate::place::{Place, link, shown, take};

/// A program that leaves a file when it is run.
struct Canary {
    program: PathBuf,
    trace: PathBuf,
}

impl Canary {
    fn new(place: &Place) -> Self {
        let (program, trace) = (place.folder.path().join("canary"), place.folder.path().join("was-executed"));
        let script = format!("#!/bin/sh\necho \"$0 $*\" >> '{}'\ncat\n", trace.display());
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { program, trace }
    }

    /// Returns settings that make git run it, whatever git does.
    fn settings(&self) -> String {
        let program = self.program.display();
        format!(
            "[core]\nfsmonitor = {program}\nsshCommand = {program}\npager = {program}\neditor = {program}\n\
             hooksPath = {hooks}\ngitProxy = {program}\n\
             [filter \"evil\"]\nclean = {program}\nsmudge = {program}\nrequired = true\n\
             [filter \"process\"]\nprocess = {program}\nrequired = true\n\
             [diff]\nexternal = {program}\n[diff \"evil\"]\ntextconv = {program}\ncommand = {program}\n\
             [merge \"evil\"]\ndriver = {program}\n[uploadpack]\npackObjectsHook = {program}\n\
             [remote \"origin\"]\npromisor = true\nurl = ext::{program}\n[protocol]\nallow = always\n\
             [gpg]\nprogram = {program}\n[credential]\nhelper = !{program}\n[status]\nsubmoduleSummary = true\n",
            hooks = self.program.parent().unwrap().join("hooks").display(),
        )
    }

    fn infect(&self, git_dir: &Path) {
        let config = git_dir.join("config");
        let text = fs::read_to_string(&config).unwrap();
        fs::write(&config, text + &self.settings()).unwrap();
        fs::create_dir_all(git_dir.join("hooks")).unwrap();
        let elsewhere = self.program.parent().unwrap().join("hooks");
        fs::create_dir_all(&elsewhere).unwrap();
        for hook in
            ["post-index-change", "reference-transaction", "pre-commit", "fsmonitor-watchman", "pre-auto-gc"]
        {
            fs::copy(&self.program, git_dir.join("hooks").join(hook)).unwrap();
            fs::copy(&self.program, elsewhere.join(hook)).unwrap();
        }
    }

    #[track_caller]
    fn check(&self) {
        let trace = fs::read_to_string(&self.trace).unwrap_or_default();
        assert_eq!(trace, "", "a program of the repository was executed");
    }
}

const ATTRIBUTES: &str =
    "*.evil filter=evil diff=evil merge=evil\n*.proc filter=process\n*.rs diff=evil ident text\n";

#[test]
fn a_hostile_repository_executes_nothing_and_is_not_changed() {
    let place = Place::new();
    place
        .write(".gitattributes", ATTRIBUTES)
        .write("a.evil", "1\n")
        .write("b.proc", "2\n")
        .write("id.rs", "$Id$\n");
    let nested = place.path("nested");
    fs::create_dir(&nested).unwrap();
    place.git_in(&nested, &["init", "-q"]);
    fs::write(nested.join("inner"), "x").unwrap();
    place.git_in(&nested, &["add", "-A"]);
    place.git_in(&nested, &["commit", "-qm", "x"]);
    let library = place.folder.path().join("library");
    fs::create_dir(&library).unwrap();
    place.git_in(&library, &["init", "-q"]);
    fs::write(library.join("lib"), "x").unwrap();
    place.git_in(&library, &["add", "-A"]);
    place.git_in(&library, &["commit", "-qm", "x"]);
    place.git(&["submodule", "--quiet", "add", "--", library.to_str().unwrap(), "sub"]);
    place.git(&["add", "-A", "--", ":!nested"]);
    place.git(&["commit", "-qm", "x"]);
    let canary = Canary::new(&place);
    canary.infect(&place.path(".git"));
    canary.infect(&nested.join(".git"));
    canary.infect(&place.path(".git/modules/sub"));
    fs::write(place.folder.path().join("home/.gitconfig"), canary.settings()).unwrap();
    fs::write(place.path(".git/info/attributes"), "* filter=evil diff=evil\n").unwrap();
    // The settings work, and the file of the trace is where it is looked for.
    place.command(&place.root, &["status"]).output().unwrap();
    assert!(canary.trace.exists());
    fs::remove_file(&canary.trace).unwrap();
    place.command(&nested, &["status"]).output().unwrap();
    assert!(canary.trace.exists());
    fs::remove_file(&canary.trace).unwrap();
    let git_before = place.git_files();

    let worktree = place.worktree();
    let first = take(&worktree);
    place
        .write("a.evil", "1\n2\n")
        .write("b.proc", "3\n")
        .write("id.rs", "$Id: x $\n")
        .write("src/a.rs", "new\n");
    place.write("nested/inner", "changed").write("sub/lib", "changed").write("c.evil", "new\n");
    fs::remove_file(place.path("README")).unwrap();
    let second = take(&worktree);
    let changes = shown(&worktree.compare(&first.tree, &second.tree).unwrap());
    let expected = [
        "D README +0 -1",
        "M a.evil +1 -0",
        "M b.proc +1 -1",
        "A c.evil +1 -0",
        "M id.rs +1 -1",
        "M src/a.rs +1 -1",
    ];
    assert_eq!(changes, expected);
    let diff = worktree.diff(&first.tree, &second.tree, 100_000).unwrap();
    assert!(diff.text().contains("+$Id: x $\n"), "{}", diff.text());
    let mut skipped: Vec<_> =
        first.skipped.iter().map(|skipped| (skipped.path.to_str().unwrap(), skipped.why)).collect();
    skipped.sort_by_key(|skipped| skipped.0);
    assert_eq!(skipped, [("nested", SkipReason::Repository), ("sub", SkipReason::Repository)]);
    canary.check();
    assert!(place.git_files() == git_before, "the project's git directory was changed");
}

#[test]
fn our_own_repository_may_have_come_with_a_download() {
    let place = Place::new();
    let canary = Canary::new(&place);
    take(&place.worktree());
    let home = place.path(".git/azureal/snapshots");
    canary.infect(&home);
    fs::write(home.join("info/attributes"), "* filter=evil\n").unwrap();
    fs::write(home.join("objects/info/alternates"), "/nonexistent\n").unwrap();
    fs::write(home.join("commondir"), "../..\n").unwrap();
    place.write("src/a.rs", "x\n");
    take(&place.worktree());
    canary.check();
    let config = fs::read_to_string(home.join("config")).unwrap();
    assert!(!config.contains("canary"), "{config}");
    // A folder that others can write to is refused.
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(place.worktree().take("s", &azureal_snapshots::Limits::default(), &|| false).is_err());
}

#[test]
fn our_files_are_private() {
    let place = Place::new();
    place.write("x", "y");
    take(&place.worktree());
    let mut open = Vec::new();
    let mut folders = vec![place.path(".git/azureal")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode();
            if mode & 0o077 != 0 {
                open.push((entry.path(), format!("{mode:o}")));
            }
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    assert_eq!(open, []);
}

#[test]
fn a_git_file_cannot_name_the_repository_of_another_project() {
    let victim = Place::new();
    let open = |root: &Path| Worktree::open(root, &victim.program()).unwrap().is_some();
    let other = victim.folder.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join(".git"), format!("gitdir: {}\n", victim.path(".git").display())).unwrap();
    assert!(!open(&other));
    victim.git(&["worktree", "add", "-q", "../linked"]);
    assert!(open(&victim.folder.path().join("linked")));
    let pointer = fs::read_to_string(victim.folder.path().join("linked/.git")).unwrap();
    fs::write(other.join(".git"), pointer).unwrap();
    assert!(!open(&other));
    fs::remove_file(other.join(".git")).unwrap();
    link(victim.path(".git"), &other.join(".git"));
    assert!(!open(&other));
}

#[test]
fn bytes_are_kept_whatever_the_attributes_say() {
    let place = Place::new();
    place.write(
        ".gitattributes",
        "*.txt text=auto eol=crlf\n*.utf working-tree-encoding=UTF-16\n*.id ident\n",
    );
    place.write("crlf.txt", "one\r\ntwo\r\n").write("key.id", "$Id$\n").write("lf.txt", "x\n");
    place.write("wide.utf", [0xff, 0xfe, b'a', 0, b'\n', 0]);
    place.write("large.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n");
    place.commit();
    // As after a checkout with a filter: another content, and an index that says that it is clean.
    place.git(&["checkout", "-q", "--", "."]);
    fs::remove_file(place.path("key.id")).unwrap();
    place.git(&["checkout", "-q", "--", "key.id"]);
    assert!(fs::read_to_string(place.path("key.id")).unwrap().len() > 10);
    place.git(&["config", "filter.lfs.smudge", "printf 'the content'"]);
    place.git(&["config", "filter.lfs.clean", "git cat-file blob HEAD:large.bin"]);
    place.write(".git/info/attributes", "*.bin filter=lfs\n");
    fs::remove_file(place.path("large.bin")).unwrap();
    place.git(&["checkout", "-q", "--", "large.bin"]);
    assert_eq!(fs::read(place.path("large.bin")).unwrap(), b"the content");
    place.git(&["status"]);
    let worktree = place.worktree();
    let snapshot = take(&worktree);
    for name in ["crlf.txt", "key.id", "wide.utf", "large.bin", "lf.txt"] {
        let home = worktree.folder().to_owned();
        let output = place
            .command(&home, &["cat-file", "blob", &format!("{}:{name}", snapshot.tree)])
            .env("GIT_DIR", &home)
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", place.path(".git/objects"))
            .output()
            .unwrap();
        assert_eq!(output.stdout, fs::read(place.path(name)).unwrap(), "{name}");
    }
    assert_eq!(take(&worktree).tree, snapshot.tree);
}

#[test]
fn a_filter_that_keeps_the_size_is_seen_wherever_it_is_named() {
    type Prepare = fn(&Place);
    const RULE: &str = "*.rot filter=rot\n";
    const ENCODING: &str = "*.rot working-tree-encoding=IBM1047\n";
    let home = |place: &Place| place.folder.path().join("home");
    let cases: [(&str, Prepare); 10] = [
        ("tracked", |place| {
            place.write(".gitattributes", RULE).git(&["add", ".gitattributes"]);
        }),
        ("untracked", |place| {
            place.write(".gitattributes", RULE);
        }),
        ("ignored", |place| {
            place.write("d/.gitattributes", RULE).write(".gitignore", ".gitattributes\n");
        }),
        ("a macro", |place| {
            place.write(".gitattributes", "[attr]m filter=rot\n*.rot m\n");
        }),
        ("an encoding", |place| {
            place.write(".gitattributes", ENCODING);
        }),
        ("of the project", |place| {
            place.write(".git/info/attributes", RULE);
        }),
        ("of the user", |place| {
            let folder = place.folder.path().join("home/.config/git");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("attributes"), RULE).unwrap();
        }),
        ("in a file of the user", |place| {
            let home = place.folder.path().join("home");
            fs::write(home.join("mine"), RULE).unwrap();
            place.git(&["config", "--global", "core.attributesFile", "~/mine"]);
        }),
        ("in a file of the project", |place| {
            fs::write(place.folder.path().join("theirs"), RULE).unwrap();
            place.git(&["config", "core.attributesFile", "../theirs"]);
        }),
        ("in a tree", |place| {
            place.write(".gitattributes", RULE);
            place.commit();
            place.git(&["config", "attr.tree", "HEAD"]);
            fs::remove_file(place.path(".gitattributes")).unwrap();
        }),
    ];
    for (name, prepare) in cases {
        let place = Place::new();
        fs::write(home(&place).join(".gitconfig"), "").unwrap();
        place.git(&["config", "filter.rot.smudge", "tr a-z n-za-m"]);
        place.git(&["config", "filter.rot.clean", "tr a-z n-za-m"]);
        prepare(&place);
        place.write("d/secret.rot", "uryyb\n");
        place.git(&["add", "d/secret.rot"]);
        place.git(&["commit", "-qm", "x"]);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        place.git(&["status"]);
        let worktree = place.worktree();
        let before = take(&worktree);
        place.write("d/secret.rot", "other\n");
        let after = take(&worktree);
        worktree.undo("s", &before.tree, &after.tree, false).unwrap();
        assert_eq!(fs::read_to_string(place.path("d/secret.rot")).unwrap(), "uryyb\n", "{name}");
    }
}

#[test]
fn a_file_of_the_size_of_its_lfs_pointer_is_kept() {
    let place = Place::new();
    let content = "x".repeat(128);
    // In place of LFS: a pointer of the same size, and back.
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 128\n", "0".repeat(64));
    assert_eq!(pointer.len(), content.len());
    fs::write(place.folder.path().join("pointer"), &pointer).unwrap();
    place.git(&["config", "filter.lfs.clean", "cat ../pointer"]);
    place.git(&["config", "filter.lfs.smudge", "printf 'x%.0s' $(seq 128)"]);
    place.write(".gitattributes", "*.bin filter=lfs\n").write("small.bin", &content);
    place.commit();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    place.git(&["status"]);
    let worktree = place.worktree();
    let before = take(&worktree);
    place.write("small.bin", "other\n");
    let after = take(&worktree);
    worktree.undo("s", &before.tree, &after.tree, false).unwrap();
    assert_eq!(fs::read_to_string(place.path("small.bin")).unwrap(), content);
}

#[test]
fn unusual_indexes_are_read() {
    type Prepare = fn(&Place);
    let cases: [(&str, Prepare); 9] = [
        ("split", |place| {
            place.git(&["update-index", "--split-index"]);
            place.write("src/a.rs", "in the split part\n");
            place.git(&["add", "-A"]);
        }),
        ("version 4", |place| {
            place.git(&["update-index", "--index-version", "4"]);
        }),
        ("assume-unchanged", |place| {
            place.git(&["update-index", "--assume-unchanged", "src/a.rs"]);
        }),
        ("skip-worktree", |place| {
            place.git(&["update-index", "--skip-worktree", "src/a.rs", "src/b.rs"]);
            fs::remove_file(place.path("src/b.rs")).unwrap();
        }),
        ("intent to add", |place| {
            place.write("later", "x\n");
            place.git(&["add", "-N", "later"]);
        }),
        ("locked", |place| {
            place.write(".git/index.lock", "");
        }),
        ("untracked cache and monitor", |place| {
            place.git(&["update-index", "--untracked-cache"]);
            place.git(&["status"]);
        }),
        ("sparse", |place| {
            place.write("other/c", "c\n").write("src/deep/d", "d\n");
            place.commit();
            place.git(&["sparse-checkout", "set", "--sparse-index", "src"]);
        }),
        ("unmerged", |place| {
            place.git(&["checkout", "-qb", "one"]);
            place.write("src/a.rs", "one\n");
            place.commit();
            place.git(&["checkout", "-q", "main"]);
            place.write("src/a.rs", "two\n");
            place.commit();
            assert!(!place.command(&place.root, &["merge", "one"]).status().unwrap().success());
        }),
    ];
    for (name, prepare) in cases {
        let place = Place::new();
        prepare(&place);
        let git_before = place.git_files();
        let worktree = place.worktree();
        let first = take(&worktree);
        assert_eq!(take(&worktree), first, "{name}");
        // The tree has exactly the files of the worktree.
        let home = worktree.folder().to_owned();
        let listed = place
            .command(&home, &["ls-tree", "-r", "--name-only", &first.tree])
            .env("GIT_DIR", &home)
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", place.path(".git/objects"))
            .output()
            .unwrap();
        let mut found: Vec<_> = place
            .files()
            .into_iter()
            .filter(|(_, (_, mode))| mode & 0o170_000 != 0o040_000)
            .map(|(path, _)| path)
            .collect();
        found.sort();
        let mut listed: Vec<_> =
            String::from_utf8(listed.stdout).unwrap().lines().map(|line| place.path(line)).collect();
        listed.sort();
        assert_eq!(listed, found, "{name}");
        place.write("src/a.rs", "changed by the turn\n").write("src/b.rs", "changed too\n");
        let second = take(&worktree);
        let changes = worktree.compare(&first.tree, &second.tree).unwrap();
        assert_eq!(changes.len(), 2, "{name}: {changes:?}");
        assert!(place.git_files() == git_before, "{name}: the project's git directory was changed");
    }
}

#[test]
fn a_repository_with_sha256_has_snapshots_with_sha256() {
    let place = Place::with(&["--object-format=sha256"]);
    let worktree = place.worktree();
    let first = take(&worktree);
    assert_eq!(first.tree.len(), 64);
    place.write("src/a.rs", "changed\n").write("new", "x\n");
    let second = take(&worktree);
    let changes = shown(&worktree.compare(&first.tree, &second.tree).unwrap());
    assert_eq!(changes, ["A new +1 -0", "M src/a.rs +1 -1"]);
}

#[test]
fn linked_worktrees_share_the_folder_and_not_the_index() {
    let place = Place::new();
    place.git(&["worktree", "add", "-q", "../linked"]);
    let root = place.folder.path().join("linked");
    let linked = Worktree::open(&root, &place.program()).unwrap().unwrap();
    let main = place.worktree();
    assert_eq!(linked.folder(), main.folder());
    let (first, of_main) = (take(&linked), take(&main));
    assert_eq!(first.tree, of_main.tree);
    fs::write(root.join("only-here"), "x\n").unwrap();
    let second = take(&linked);
    assert_eq!(shown(&linked.compare(&first.tree, &second.tree).unwrap()), ["A only-here +1 -0"]);
    assert_eq!(take(&main).tree, of_main.tree);
}

#[test]
fn a_partial_clone_fetches_nothing() {
    let origin = Place::new();
    origin.git(&["config", "uploadpack.allowFilter", "true"]);
    let clone = origin.folder.path().join("clone");
    let url = format!("file://{}", origin.root.display());
    origin.git(&["clone", "-q", "--no-checkout", "--filter=blob:none", &url, clone.to_str().unwrap()]);
    origin.git_in(&clone, &["sparse-checkout", "set", "--no-cone", "src/a.rs"]);
    origin.git_in(&clone, &["checkout", "-q", "main"]);
    let canary = Canary::new(&origin);
    canary.infect(&clone.join(".git"));
    let worktree = Worktree::open(&clone, &origin.program()).unwrap().unwrap();
    let first = take(&worktree);
    fs::write(clone.join("src/a.rs"), "changed\n").unwrap();
    fs::write(clone.join("README"), "new here\n").unwrap();
    let second = take(&worktree);
    let changes = shown(&worktree.compare(&first.tree, &second.tree).unwrap());
    assert_eq!(changes, ["A README +1 -0", "M src/a.rs +1 -1"]);
    canary.check();
}

#[test]
fn a_pipe_in_the_place_of_attributes_blocks_no_snapshot() {
    let place = Place::new();
    let worktree = place.worktree();
    let before = take(&worktree);
    let pipe = place.path(".gitattributes");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    place.write("src/a.rs", "changed\n");
    let after = take(&worktree);
    assert_eq!(shown(&worktree.compare(&before.tree, &after.tree).unwrap()), ["M src/a.rs +1 -1"]);
}

#[test]
fn a_git_in_the_worktree_is_not_run() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let canary = place.folder.path().join("canary");
    place.write("git", format!("#!/bin/sh\ntouch {}\n", canary.display()));
    fs::set_permissions(place.path("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut program = place.program();
    let path = std::env::var("PATH").unwrap();
    for relative in [".", "", "../project"] {
        program.environment.set("PATH", format!("{relative}:{path}"));
        let worktree = Worktree::open(&place.root, &program).unwrap().unwrap();
        take(&worktree);
        assert!(!canary.exists(), "{relative}");
    }
    program.environment.set("PATH", ".");
    assert!(matches!(Worktree::open(&place.root, &program), Err(Error::NoGit { .. })));
}
