//! Deleting for good: a session, and everything of a project.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use azureal_testkit::until;

use crate::run::signal;
use crate::world::World;

const SECRET: &str = "only-in-this-prompt";

/// Returns the files below a folder whose bytes have the prompt.
fn holding(world: &World, folder: &str) -> Vec<String> {
    let needle = SECRET.as_bytes();
    let files = world.snapshot(folder);
    let holds = |bytes: &[u8]| bytes.windows(needle.len()).any(|part| part == needle);
    let plain = files.iter().filter(|(_, bytes)| holds(bytes)).map(|(path, _)| path.display().to_string());
    plain.collect()
}

/// A program that keeps a transcript of its own, as Claude Code does.
fn with_transcript(world: &World) {
    let id = "0d3f1c5e-2a77-4f6b-9a51-3a1b8e6d7c10";
    let lines = [
        format!(r#"{{"type":"system","subtype":"init","cwd":"/p","session_id":"{id}","model":"opus"}}"#),
        format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"seen {SECRET}"}}]}},"session_id":"{id}"}}"#
        ),
        format!(
            r#"{{"type":"result","subtype":"success","is_error":false,"session_id":"{id}","result":"x"}}"#
        ),
    ];
    let folder = world.path("user/.claude/projects/p");
    world.program(
        "claude",
        &format!(
            "cat > /dev/null\nmkdir -p '{0}'\ntouch '{0}/{id}.jsonl'\nprintf '%s\\n' '{1}'",
            folder.display(),
            lines.join("' '")
        ),
    );
}

fn run(world: &World, arguments: &[&str]) -> crate::world::Ran {
    world.ran(world.with_programs(arguments).env("HOME", world.path("user")).output().unwrap())
}

fn ask(world: &World) {
    let ran = run(world, &["run", "-s", "work", "-a", "claude", SECRET]);
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn a_deleted_session_leaves_nothing_and_the_transcript_of_its_agent_is_named() {
    let world = World::new();
    with_transcript(&world);
    ask(&world);
    assert_eq!(run(&world, &["run", "-a", "offline", "another"]).code, 0);
    let ran = run(&world, &["rm", "work", "--yes"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "deleted S1 work\n"), "{ran}");
    assert!(ran.stderr.contains("transcript stays: [folder]/user/.claude/projects/p/0d3f1c5e"), "{ran}");
    assert_eq!(holding(&world, "p"), [""; 0]);
    world.file("p/.git/azureal/sessions-damaged-20260131T093000Z.azs", "x");
    let again = run(&world, &["rm", "S2", "--yes"]);
    assert!(again.stderr.contains("may have a copy: [folder]/p/.git/azureal/sessions-damaged"), "{again}");
    let left = world.snapshot("p/.git/azureal/originals");
    assert_eq!(left.len(), 0, "{left:?}");
}

#[test]
fn a_purge_deletes_all_of_a_project_but_its_configuration() {
    let world = World::new();
    with_transcript(&world);
    ask(&world);
    ask(&world);
    world.file("p/.azureal/azufig.toml", "agent = \"offline\"\n");
    world.file("p/.git/azureal/sessions-2026-01-31T09-30-00Z.azs", SECRET);
    world.file("p/.azureal/postgres-0123456789abcdef/x.jsonl", SECRET);
    assert!(!holding(&world, "p").is_empty());
    let ran = run(&world, &["purge"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.stderr.contains("`--yes` deletes without asking") && world.store().exists(), "{ran}");

    let ran = run(&world, &["purge", "--yes"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stdout.starts_with("deleted 1 session and all that belongs to them ("), "{ran}");
    assert!(ran.stderr.contains("transcript stays: [folder]/user/.claude/projects/p/0d3f1c5e"), "{ran}");
    let left: Vec<String> = world
        .snapshot("p")
        .iter()
        .map(|(path, _)| path.strip_prefix(world.path("p")).unwrap().display().to_string())
        .collect();
    assert_eq!(left, [".azureal/.gitignore", ".azureal/azufig.toml", ".git/HEAD"]);

    // Nothing comes back, and numbers begin again: it is another store.
    assert_eq!(run(&world, &["list", "--json", "--all"]).json().as_array().unwrap().len(), 0);
    let ran = run(&world, &["purge"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "there is nothing to delete\n"), "{ran}");
}

#[test]
fn a_purge_says_what_it_deleted_to_programs() {
    let world = World::new();
    assert_eq!(run(&world, &["run", "-a", "offline", SECRET]).code, 0);
    let report = run(&world, &["purge", "--yes", "--json"]).json();
    assert_eq!(report["sessions"], 1);
    let parts: Vec<&str> =
        report["deleted"].as_array().unwrap().iter().map(|part| part["what"].as_str().unwrap()).collect();
    assert_eq!(
        parts,
        ["sessions", "output of turns", "versions of files, for diff and undo", "unfinished turns"]
    );
    assert!(report["bytes"].as_u64().unwrap() > 10_000, "{report}");
    assert_eq!(report["agent_files"].as_array().unwrap().len(), 0);
}

#[test]
fn nothing_is_purged_while_a_turn_runs() {
    let world = World::new();
    world.program("claude", "cat > /dev/null\ntouch started\nsleep 60");
    let mut child = world.with_programs(&["run", "-a", "claude", "hi"]).spawn().unwrap();
    until("the agent runs", || world.path("p/started").exists().then_some(()));
    let before = fs::metadata(world.store()).unwrap().len();
    let ran = run(&world, &["purge", "--yes"]);
    assert!(ran.code == 1 && ran.stderr.contains("a turn of S1 is running"), "{ran}");
    assert_eq!(fs::metadata(world.store()).unwrap().len(), before);
    signal(&child, "-INT");
    child.wait().unwrap();
    assert_eq!(run(&world, &["purge", "--yes"]).code, 0);
    assert!(!world.store().exists());
}

#[test]
fn folders_that_are_not_ours_stay() {
    let world = World::new();
    for file in ["p/postgres-data/db", "p/redis-notes", "p/.azureal/postgres-data/db", "p/other.azs.new-1-0"]
    {
        world.file(file, "precious");
    }
    world.file("p/.azureal/redis-0123456789abcdef/x", "x");
    assert_eq!(world.run(&["--store", "./old.azs", "run", "-a", "offline", "hi"]).code, 0);
    assert_eq!(world.run(&["run", "-a", "offline", "hi"]).code, 0);
    assert_eq!(world.run(&["--store", "./old.azs", "purge", "--yes"]).code, 0);
    assert!(!world.path("p/old.azs").exists() && world.store().exists());
    assert_eq!(world.run(&["purge", "--yes"]).code, 0);
    let precious = world.snapshot("p").into_iter().filter(|(_, content)| content == b"precious");
    assert_eq!(precious.count(), 4);
    assert!(!world.path("p/.azureal/redis-0123456789abcdef").exists());
}

#[test]
fn a_process_that_has_the_store_open_brings_no_session_back() {
    let world = World::new();
    assert_eq!(world.run(&["run", "-a", "offline", SECRET]).code, 0);
    let mut child =
        world.command(&["show", "-f", "S1"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(world.run(&["purge", "--yes"]).code, 0);
    std::thread::sleep(std::time::Duration::from_secs(1));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(world.run(&["list", "--json", "--all"]).json().as_array().unwrap().len(), 0);
    assert_eq!(holding(&world, "p"), [""; 0]);
}

#[test]
fn what_could_not_be_stored_is_deleted_with_its_session() {
    let world = World::new();
    assert_eq!(world.run(&["run", "-s", "work", "-a", "offline", "one"]).code, 0);
    let originals = world.path("p/.git/azureal/originals");
    fs::set_permissions(&originals, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = world.run(&["run", "-s", "work", "-a", "offline", SECRET]);
    assert!(ran.code == 0 && ran.stderr.contains("the turn is stored, but its output is still in"), "{ran}");
    fs::set_permissions(&originals, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(world.run(&["rm", "work", "--yes"]).code, 0);
    assert_eq!(holding(&world, "p"), [""; 0]);
}

#[test]
fn a_store_on_a_server_or_in_memory_is_not_purged() {
    let world = World::new();
    let ran = world.run(&["--store", "memory:", "purge", "--yes"]);
    assert!(ran.code == 2 && ran.stderr.contains("only a store in a file can be purged"), "{ran}");
}
