//! The output of turns as the agents printed it: kept, shown, copied, deleted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::world::{Ran, World};

/// A recorded turn with many tools.
fn recording() -> PathBuf {
    let fixtures = "../agents/tests/fixtures/claude/current/multi-tool/stdout.jsonl";
    Path::new(env!("CARGO_MANIFEST_DIR")).join(fixtures)
}

/// A project in which a turn with that output was run.
fn world() -> World {
    let world = World::new();
    world.program("claude", &format!("cat > /dev/null\ncat '{}'", recording().display()));
    ask(&world);
    world
}

fn ask(world: &World) {
    let ran = run(world, &["run", "-s", "work", "-a", "claude", "hi"]);
    assert_eq!(ran.code, 0, "{ran}");
}

fn run(world: &World, arguments: &[&str]) -> Ran {
    world.ran(world.with_programs(arguments).output().unwrap())
}

/// The names of the files in the folder of originals.
fn files(world: &World) -> Vec<String> {
    let folder = world.path("p/.git/azureal/originals");
    let mut names: Vec<String> = world
        .snapshot("p/.git/azureal/originals")
        .iter()
        .map(|(path, _)| path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

fn lines(text: &str, kind: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["kind"] == kind).collect()
}

#[test]
fn everything_that_an_agent_printed_is_kept_and_can_be_shown() {
    let world = world();
    let printed = fs::read_to_string(recording()).unwrap();
    assert_eq!(run(&world, &["original", "S1"]).quiet(), printed);
    let [original] = &files(&world)[..] else { panic!("{:?}", files(&world)) };
    assert!(original.ends_with(".zst"), "{original}");
    let path = world.path("p/.git/azureal/originals").join(original);
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);

    // Short without `--full`, whole with it, in both forms.
    let short = run(&world, &["show", "S1"]).quiet();
    assert!(short.contains("[4 lines omitted]\n    src\n") && !short.contains("logo.png"), "{short}");
    let full = run(&world, &["show", "S1", "--full"]).quiet();
    assert!(!full.contains("omitted"), "{full}");
    assert!(full.contains("    hello.txt\n    logo.png\n    notes.md\n    src\n    two words\n"), "{full}");
    assert!(full.contains("/new.txt\n    @@ -0,0 +1,2 @@\n    +alpha\n    +beta\n"), "{full}");
    let full = run(&world, &["show", "S1", "--full", "--json"]).quiet();
    let result = &lines(&full, "ToolResult")[0];
    assert_eq!(result["data"]["content"], "analysis.ipynb\nhello.txt\nlogo.png\nnotes.md\nsrc\ntwo words");

    // The line behind an event.
    let line = run(&world, &["original", "S1", "--seq", &result["seq"].to_string()]).quiet();
    assert!(line.lines().count() == 1 && printed.contains(&line) && line.contains("logo.png"), "{line}");
    // The prompt is no line of the agent's.
    let ran = run(&world, &["original", "S1", "--seq", "1"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, printed.as_str()), "{ran}");
    assert!(ran.stderr.contains("the output of its whole turn"), "{ran}");
    let ran = run(&world, &["original", "S1", "--seq", "99"]);
    assert!(ran.code == 1 && ran.stderr.contains("session S1 has no event 99"), "{ran}");
}

#[test]
fn the_size_of_originals_is_listed() {
    let world = world();
    ask(&world);
    let listed = run(&world, &["original", "--json"]).json();
    let bytes: u64 =
        listed.as_array().unwrap().iter().map(|original| original["bytes"].as_u64().unwrap()).sum();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!(listed[1]["first_seq"].as_u64(), listed[0]["last_seq"].as_u64().map(|last| last + 1));
    assert_eq!(run(&world, &["list", "--json"]).json()[0]["original_bytes"], bytes);
}

#[test]
fn a_fork_and_a_copy_take_originals_along() {
    let world = world();
    let printed = fs::read_to_string(recording()).unwrap();
    run(&world, &["fork", "S1", "--at", "6"]).quiet();
    assert_eq!(run(&world, &["original", "S2"]).quiet(), printed);
    let target = world.path("copy.azs");
    let target = target.to_str().unwrap();
    for _ in 0..2 {
        assert_eq!(run(&world, &["copy", "--to", target]).code, 0);
        assert_eq!(run(&world, &["--store", target, "original", "S1"]).quiet(), printed);
    }
    let full = |arguments: &[&str]| run(&world, arguments).quiet();
    assert_eq!(
        full(&["--store", target, "show", "S1", "--full", "--json"]),
        full(&["show", "S1", "--full", "--json"])
    );
    // And back, from the file to a project.
    run(&world, &["rm", "S1", "S2", "--yes"]).quiet();
    assert_eq!(files(&world), [""; 0]);
    assert_eq!(run(&world, &["copy", "--from", target]).code, 0);
    assert_eq!(run(&world, &["original", "S3"]).quiet(), printed);
}

#[test]
fn an_imported_store_and_an_imported_backup_bring_their_originals() {
    let world = world();
    let printed = fs::read_to_string(recording()).unwrap();
    let full = run(&world, &["show", "S1", "--full"]).quiet();
    let backup = world.path("backup.azs");
    let backup = backup.to_str().unwrap();
    run(&world, &["backup", backup]).quiet();
    for (source, target) in [("../p/.azureal/sessions.azs", "q"), (backup, "r")] {
        world.file(&format!("{target}/.git/HEAD"), "ref: refs/heads/main\n");
        let there = |arguments: &[&str]| {
            world.ran(world.command(arguments).current_dir(world.path(target)).output().unwrap())
        };
        let before = world.snapshot("p");
        there(&["import", source]).quiet();
        assert_eq!(there(&["original", "S1"]).quiet(), printed, "{source}");
        assert_eq!(there(&["show", "S1", "--full"]).quiet(), full, "{source}");
        assert_eq!(world.snapshot("p"), before, "the source is only read");
        // What an earlier import left out comes with the next one; nothing comes twice.
        let originals = world.path(target).join(".git/azureal/originals");
        let count = || world.snapshot(originals.to_str().unwrap()).len();
        there(&["original", "S1", "--forget", "--yes"]).quiet();
        assert_eq!(count(), 0);
        for _ in 0..2 {
            assert!(there(&["import", source]).quiet().contains("unchanged"));
            assert_eq!(count(), 1, "{source}");
        }
    }
}

#[test]
fn an_original_that_cannot_be_imported_is_named() {
    let world = world();
    let [original] = &files(&world)[..] else { panic!() };
    let original = world.path("p/.git/azureal/originals").join(original);
    let whole = fs::read(&original).unwrap();
    fs::write(&original, &whole[..whole.len() / 2]).unwrap();
    let import = || run(&world, &["--store", "other.azs", "import", ".azureal/sessions.azs", "--json"]);
    let ran = import();
    assert_eq!((ran.code, ran.json()["imported"].as_array().unwrap().len()), (0, 1), "{ran}");
    assert!(ran.stderr.contains("the output of its turns was not copied whole"), "{ran}");
    assert_eq!(ran.json()["problems"].as_array().unwrap().len(), 1, "{ran}");
    // It is not lost: the next import brings it.
    fs::write(&original, &whole).unwrap();
    assert_eq!(import().json()["problems"].as_array().unwrap().len(), 0);
    let printed = fs::read_to_string(recording()).unwrap();
    assert_eq!(run(&world, &["--store", "other.azs", "original", "S1"]).quiet(), printed);
}

#[test]
fn originals_are_deleted_alone_and_with_their_session() {
    let world = world();
    run(&world, &["fork", "S1"]).quiet();
    let ran = run(&world, &["original", "S1", "--forget"]);
    assert!(ran.code == 3 && ran.stderr.contains("`--yes` deletes without asking"), "{ran}");
    let ran = run(&world, &["original", "S1", "--forget", "--yes"]).quiet();
    assert!(ran.starts_with("deleted the output of S1 work ("), "{ran}");
    assert_eq!(files(&world).len(), 1);
    let ran = run(&world, &["original", "S1"]);
    assert!(ran.code == 1 && ran.stderr.contains("no output of S1 work is kept"), "{ran}");
    let ran = run(&world, &["show", "S1", "--full"]);
    assert!(ran.code == 0 && ran.stdout.contains("[4 lines omitted]"), "{ran}");
    assert!(ran.stderr.contains("the output of the turn is not kept for 3 events"), "{ran}");
    run(&world, &["rm", "S2", "--yes"]).quiet();
    assert_eq!(files(&world), [""; 0]);
}

#[test]
fn the_user_says_how_long_originals_are_kept() {
    let world = World::new();
    world.program("claude", &format!("cat > /dev/null\ncat '{}'", recording().display()));
    let configured = |keep: &str, arguments: &[&str]| {
        world.file("home/.config/azureal/azufig.toml", &format!("[originals]\nkeep = {keep}\n"));
        world.ran(world.with_programs(arguments).env("HOME", world.path("home")).output().unwrap())
    };
    let turn = ["run", "-s", "work", "-a", "claude", "hi"];
    assert_eq!(configured("\"off\"", &turn).code, 0);
    assert!(!world.path("p/.git/azureal/originals").exists());
    assert_eq!(world.snapshot("p/.git/azureal/spool"), []);
    assert_eq!(configured("\"forever\"", &turn).code, 0);
    assert_eq!(files(&world).len(), 1);
    let path = world.path("p/.git/azureal/originals").join(&files(&world)[0]);
    let aged = std::time::SystemTime::now() - std::time::Duration::from_secs(8 * 24 * 60 * 60);
    fs::File::options().write(true).open(&path).unwrap().set_modified(aged).unwrap();
    assert_eq!(configured("7", &["list"]).code, 0);
    assert!(!path.exists());
    for wrong in ["0", "-1", "\"ever\"", "true"] {
        let ran = configured(wrong, &["config"]);
        assert!(ran.code == 1 && ran.stderr.contains("\"forever\", \"off\" or a number of days"), "{ran}");
    }
    let told = configured("7", &["config"]).quiet();
    assert!(told.contains("keep originals") && told.contains("7 days"), "{told}");
    // A project decides neither.
    world.file("p/.azureal/azufig.toml", "[originals]\nshare = true\n");
    let ran = configured("7", &["config"]);
    assert!(ran.code == 1 && ran.stderr.contains("a project's file cannot have `[originals]`"), "{ran}");
}

#[test]
fn an_ephemeral_turn_has_no_original() {
    let world = world();
    // A turn in a worktree with snapshots is noted, so that the undo of another one knows of it: with numbers, and no text.
    let files = || {
        let mut files = world.snapshot("p");
        files.retain(|(path, _)| !path.to_string_lossy().contains("/snapshots/worktrees/main/turns"));
        files
    };
    let before = files();
    let ran = run(&world, &["run", "--ephemeral", "-a", "claude", "a prompt of mine"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(files() == before);
    let noted = world.snapshot("p/.git/azureal/snapshots/worktrees/main/turns");
    assert!(noted.iter().all(|(_, bytes)| !String::from_utf8_lossy(bytes).contains("prompt")));
}

#[test]
fn a_project_that_becomes_a_repository_keeps_its_originals() {
    let world = World::new();
    fs::remove_dir_all(world.path("p/.git")).unwrap();
    world.program("claude", &format!("cat > /dev/null\ncat '{}'", recording().display()));
    ask(&world);
    let printed = fs::read_to_string(recording()).unwrap();
    assert!(world.path("p/.azureal/originals").exists());
    world.file("p/.git/HEAD", "ref: refs/heads/main\n");
    assert_eq!(run(&world, &["original", "S1"]).quiet(), printed);
    assert!(!world.path("p/.azureal/originals").exists());
    assert_eq!(files(&world).len(), 1);
}

#[test]
fn a_user_who_keeps_no_originals_gets_none_by_a_copy_an_import_or_a_fork() {
    let world = world();
    let source = world.store();
    let other = world.path("other.azs");
    world.file("user/.config/azureal/azufig.toml", "[originals]\nkeep = \"off\"\n");
    let off = |arguments: &[&str]| {
        let ran = world.ran(world.with_programs(arguments).env("HOME", world.path("user")).output().unwrap());
        assert_eq!(ran.code, 0, "{ran}");
    };
    off(&["copy", "--from", source.to_str().unwrap(), "--to", other.to_str().unwrap()]);
    off(&["--store", "another.azs", "import", source.to_str().unwrap()]);
    assert!(!world.path("other.azs.originals").exists() && !world.path("p/another.azs.originals").exists());
    off(&["fork", "S1"]);
    assert_eq!(files(&world).len(), 1, "that of the origin");
}
