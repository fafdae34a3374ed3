//! What a turn changed, and its undo: `azureal diff` and `azureal undo`.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::run::{fake_claude, wait_until};
use crate::world::{Ran, World};

/// A repository with two committed files, and an agent that runs this script.
pub(crate) fn repository(script: &str) -> World {
    let world = World::new();
    fs::remove_dir_all(world.path("p")).unwrap();
    world.file("p/a.txt", "one\ntwo\n");
    world.file("p/src/b.txt", "b\n");
    world.file("p/.gitignore", "/target\n/gate\n/begun\n");
    for arguments in [&["init", "-q"][..], &["add", "-A"], &["commit", "-qm", "first"]] {
        git(&world, arguments);
    }
    fake_claude(&world, script);
    world
}

#[track_caller]
pub(crate) fn git(world: &World, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=n", "-c", "user.email=e"])
        .args(arguments)
        .current_dir(world.path("p"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn azureal(world: &World, arguments: &[&str]) -> Ran {
    world.ran(world.with_programs(arguments).output().unwrap())
}

#[track_caller]
pub(crate) fn turn(world: &World) {
    let ran = azureal(world, &["run", "-a", "claude", "go"]);
    assert_eq!(ran.code, 0, "{ran}");
}

pub(crate) fn read(world: &World, path: &str) -> Option<String> {
    fs::read_to_string(world.path("p").join(path)).ok()
}

const EDITS: &str = "echo three >> a.txt; rm src/b.txt; mkdir d; echo new > d/c.txt; chmod +x a.txt";

#[test]
fn the_end_of_run_and_show_say_how_many_files_changed() {
    let world = repository(EDITS);
    let ran = azureal(&world, &["run", "-a", "claude", "go"]);
    assert_eq!(ran.stderr.lines().last(), Some("3 files changed, +2 −1 · azureal diff S1"), "{ran}");
    let shown = world.run(&["show", "S1"]).quiet();
    assert!(shown.contains("[3 files changed, +2 −1 · azureal diff S1 --turn 1]"), "{shown}");
    let context = world.run(&["context", "S1"]).quiet();
    let expected = "## Changes during this turn\n- modified a.txt +1 −0\n- added d/c.txt +1 −0\n- deleted src/b.txt +0 −1";
    assert!(context.contains(expected), "{context}");
}

#[test]
fn a_diff_applies_and_names_its_turn() {
    let world = repository(EDITS);
    turn(&world);
    let after = git(&world, &["diff", "HEAD"]);
    let diff = azureal(&world, &["diff"]).quiet();
    assert!(diff.contains("+three") && diff.contains("old mode 100644\nnew mode 100755"), "{diff}");
    // What git says itself, but for the new file, which it does not know.
    for line in after.lines().filter(|line| line.starts_with(['+', '-'])) {
        assert!(diff.contains(line), "{line}: {diff}");
    }
    let patch = world.file("patch", &diff);
    git(&world, &["apply", "-R", patch.to_str().unwrap()]);
    assert_eq!((read(&world, "a.txt"), read(&world, "d/c.txt")), (Some("one\ntwo\n".into()), None));
    let stat = azureal(&world, &["diff", "S1", "--turn", "1", "--stat"]).quiet();
    assert_eq!(
        stat,
        "S1 · turn 1 · 3 files changed, +2 −1\n  modified a.txt +1 −0\n  added d/c.txt +1 −0\n  deleted src/b.txt +0 −1\n"
    );
    let json: Value = azureal(&world, &["diff", "--stat", "--json"]).json();
    assert_eq!((&json["turn"], &json["undone"], &json["diff"]), (&1.into(), &false.into(), &Value::Null));
    assert_eq!(json["files"][0]["path"], "a.txt");
}

#[test]
fn a_diff_of_binary_files_and_of_names_and_lines_that_are_no_text_applies() {
    let world = repository(
        "printf '\\000\\001\\377' > binary; printf 'caf\\351\\n' > latin1; printf x > \"$(printf 'n\\377me')\"; ln -s /etc link",
    );
    fs::write(world.path("p/binary"), [0, 255, 10, 0]).unwrap();
    git(&world, &["add", "-A"]);
    git(&world, &["commit", "-qm", "second"]);
    turn(&world);
    let output = world.with_programs(&["diff"]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let patch = world.path("patch");
    fs::write(&patch, &output.stdout).unwrap();
    let changed = fs::read(world.path("p/binary")).unwrap();
    git(&world, &["apply", "-R", patch.to_str().unwrap()]);
    assert_eq!(git(&world, &["status", "--short"]), "");
    git(&world, &["apply", patch.to_str().unwrap()]);
    assert_eq!(fs::read(world.path("p/binary")).unwrap(), changed);
    assert_eq!(fs::read(world.path("p/latin1")).unwrap(), b"caf\xe9\n");
}

#[test]
fn the_changes_of_a_turn_that_was_compacted_in_the_middle_are_one() {
    let world = repository("echo three >> a.txt; echo one > first; echo both > same");
    turn(&world);
    fake_claude(&world, "echo four >> a.txt; rm first; echo BOTH > same; echo two > second");
    assert_eq!(azureal(&world, &["run", "-c", "-a", "claude", "go on"]).code, 0);
    // As it is stored: one prompt, two parts with an end each.
    let mut exported = azureal(&world, &["export", "S1", "--format", "json", "--raw"]).json();
    let events = exported["events"].as_array_mut().unwrap();
    let second = events.iter().rposition(|event| event["kind"] == "UserMessage").unwrap();
    events[second]["kind"] = "Compacted".into();
    events[second]["data"] = serde_json::json!({"trigger": "auto"});
    exported["session"]["name"] = "both parts".into();
    exported["session"]["uuid"] = Value::Null;
    let file = world.file("in.json", &exported.to_string());
    let imported = azureal(&world, &["import", file.to_str().unwrap()]);
    assert_eq!(imported.code, 0, "{imported}");
    let stat = azureal(&world, &["diff", "S2", "--turn", "1", "--stat"]).quiet();
    let files = "  modified a.txt +2 −0\n  added same +1 −0\n  added second +1 −0\n";
    assert!(stat.ends_with(files) && stat.contains("turn 1 · 3 files changed, +4 −0"), "{stat}");
    let diff = azureal(&world, &["diff", "S2"]).quiet();
    assert!(diff.contains("+three\n+four\n") && !diff.contains("first"), "{diff}");
    let undone = azureal(&world, &["undo", "S2"]);
    assert_eq!(undone.code, 0, "{undone}");
    assert_eq!(git(&world, &["status", "--short"]), "", "{undone}");
    let twice = azureal(&world, &["undo", "S2"]);
    assert!(twice.stderr.contains("turn 1 of S2 is undone already"), "{twice}");
}

#[test]
fn turns_without_changes_say_so() {
    let world = repository("true");
    turn(&world);
    let none = azureal(&world, &["diff"]);
    assert_eq!((none.code, none.stdout.as_str()), (1, ""), "{none}");
    assert!(none.stderr.starts_with("error: no changes of S1 are recorded\n"), "{none}");
    let none = azureal(&world, &["undo", "S1", "--turn", "1"]);
    assert!(none.stderr.starts_with("error: no changes of turn 1 of S1 are recorded\n"), "{none}");
    let missing = azureal(&world, &["diff", "--turn", "7"]);
    assert!(missing.stderr.starts_with("error: S1 has no turn 7\n"), "{missing}");
}

#[test]
fn changes_are_not_recorded_if_the_user_does_not_want_it_and_for_an_ephemeral_turn() {
    let world = repository("echo x >> a.txt");
    assert_eq!(azureal(&world, &["run", "-a", "claude", "--ephemeral", "go"]).code, 0);
    world.file("config/azureal/azufig.toml", "[changes]\nenabled = false\n");
    let mut command = world.with_programs(&["run", "-a", "claude", "go"]);
    let ran = world.ran(command.env("XDG_CONFIG_HOME", world.path("config")).output().unwrap());
    assert!(ran.code == 0 && !ran.stderr.contains("changed"), "{ran}");
    assert!(!world.path("p/.git/azureal/snapshots").exists());
}

#[test]
fn an_undo_restores_the_files_and_is_told_to_the_next_agent_and_can_be_undone() {
    let world = repository(EDITS);
    turn(&world);
    let plan = azureal(&world, &["undo", "S1", "--dry-run"]).quiet();
    assert_eq!(
        plan,
        "the undo of turn 1 of S1 changes 3 files\n  restore a.txt\n  delete d/c.txt\n  restore src/b.txt\nnothing was changed\n"
    );
    assert_eq!(read(&world, "a.txt").unwrap(), "one\ntwo\nthree\n");
    let undone = azureal(&world, &["undo", "S1"]);
    assert_eq!(undone.code, 0, "{undone}");
    assert!(undone.stdout.starts_with("S1: undid turn 1: 3 files changed, +1 −2\n"), "{undone}");
    assert_eq!(git(&world, &["status", "--short"]), "", "as it was committed");
    assert!(!world.path("p/d").exists(), "a folder of new files alone is gone too");
    assert_eq!(world.run(&["list", "--json"]).json()[0]["completed"], true, "the turn is still done");
    let context = world.run(&["context", "S1"]).quiet();
    assert!(context.contains("## Undo\nThe user undid the changes of turn 1."), "{context}");
    let twice = azureal(&world, &["undo", "S1"]);
    assert!(twice.stderr.starts_with("error: turn 1 of S1 is undone already\n"), "{twice}");
    // Its hint takes it back.
    let hint = twice.stderr.split('`').nth(1).unwrap();
    let arguments: Vec<&str> = hint.split(' ').skip(1).collect();
    let redone = azureal(&world, &arguments);
    assert_eq!(redone.code, 0, "{hint}: {redone}");
    assert!(redone.stdout.starts_with("S1: took back the undo of turn 1: 3 files changed"), "{redone}");
    let context = world.run(&["context", "S1"]).quiet();
    assert!(context.contains("The user took back the undo of turn 1."), "{context}");
    assert_eq!(read(&world, "a.txt").unwrap(), "one\ntwo\nthree\n");
    assert_eq!(read(&world, "d/c.txt").unwrap(), "new\n");
    assert!(azureal(&world, &["undo", "S1"]).code == 0, "and it can be undone again");
    assert_eq!(git(&world, &["status", "--short"]), "");
}

#[test]
fn an_undo_is_refused_if_a_file_was_changed_since() {
    let world = repository(EDITS);
    turn(&world);
    world.file("p/a.txt", "mine\n");
    let refused = azureal(&world, &["undo", "S1"]);
    assert_eq!(refused.code, 3, "{refused}");
    assert!(refused.stderr.contains("a.txt: changed since the turn"), "{refused}");
    assert_eq!(
        (read(&world, "a.txt").unwrap().as_str(), read(&world, "src/b.txt")),
        ("mine\n", None),
        "none of them"
    );
    let plan = azureal(&world, &["undo", "S1", "--dry-run"]).quiet();
    assert!(
        plan.contains("changes 2 files\n") && plan.contains("  a.txt: changed since the turn\n"),
        "{plan}"
    );
    let plan = azureal(&world, &["undo", "S1", "--dry-run", "--force"]).quiet();
    assert!(plan.contains("changes 3 files\n  restore a.txt\n") && !plan.contains("refused"), "{plan}");
    let forced = azureal(&world, &["undo", "S1", "--force"]);
    assert_eq!(forced.code, 0, "{forced}");
    assert_eq!(git(&world, &["status", "--short"]), "");
    // What it overwrote comes back.
    let seq = azureal(&world, &["show", "S1", "--json"]).json_lines().last().unwrap()["seq"].to_string();
    assert_eq!(azureal(&world, &["undo", "S1", "--seq", &seq]).code, 0);
    assert_eq!(read(&world, "a.txt").unwrap(), "mine\n");
}

#[test]
fn an_undo_is_refused_while_a_turn_runs_in_the_worktree() {
    let world = repository(EDITS);
    turn(&world);
    fake_claude(
        &world,
        "touch begun; n=0; while [ ! -e gate ] && [ $n -lt 1200 ]; do sleep 0.05; n=$((n+1)); done",
    );
    let running = world
        .with_programs(&["run", "-a", "claude", "other"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the other turn", || world.path("p/begun").exists());
    let refused = azureal(&world, &["undo", "S1"]);
    world.file("p/gate", "");
    let _ = running.wait_with_output().unwrap();
    assert!(refused.code != 0 && refused.stderr.contains("runs in this worktree"), "{refused}");
    assert_eq!(read(&world, "a.txt").unwrap(), "one\ntwo\nthree\n");
}

#[test]
fn an_undo_is_refused_if_another_session_ran_meanwhile() {
    let world = repository(
        "echo a > by-a; touch begun; n=0; while [ ! -e gate ] && [ $n -lt 1200 ]; do sleep 0.05; n=$((n+1)); done",
    );
    let first = world
        .with_programs(&["run", "-a", "claude", "go"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    wait_until("the first turn", || world.path("p/begun").exists());
    fake_claude(&world, "echo b > by-b");
    assert_eq!(azureal(&world, &["run", "-a", "claude", "go"]).code, 0);
    world.file("p/gate", "");
    let _ = first.unwrap().wait_with_output().unwrap();
    let refused = azureal(&world, &["undo", "S1"]);
    assert_eq!(refused.code, 3, "{refused}");
    assert!(refused.stderr.contains("1 other session ran in this worktree during turn 1"), "{refused}");
    assert!(read(&world, "by-a").is_some() && read(&world, "by-b").is_some());
    assert_eq!(azureal(&world, &["undo", "S1", "--force"]).code, 0);
    assert!(read(&world, "by-a").is_none() && read(&world, "by-b").is_none());
}

#[test]
fn a_diff_without_its_snapshots_says_where_they_are() {
    let world = repository(EDITS);
    turn(&world);
    fs::remove_dir_all(world.path("p/.git/azureal/snapshots")).unwrap();
    let gone = azureal(&world, &["diff"]);
    assert_eq!(gone.code, 1, "{gone}");
    assert!(gone.stderr.contains("no longer stored") && gone.stderr.contains("--stat"), "{gone}");
    assert!(azureal(&world, &["diff", "--stat"]).quiet().contains("modified a.txt"));
}

#[test]
fn the_repository_of_the_project_is_not_touched() {
    let world = repository(EDITS);
    let files = |world: &World| {
        let mut files = world.snapshot("p/.git");
        files.retain(|(path, _)| !path.to_string_lossy().contains("/azureal"));
        files
    };
    let before = files(&world);
    turn(&world);
    assert_eq!(azureal(&world, &["undo", "S1"]).code, 0);
    assert!(files(&world) == before);
}

#[test]
fn a_deleted_session_and_a_purge_leave_no_version_of_a_file() {
    let world = repository("echo a-secret-line >> a.txt");
    turn(&world);
    let objects = |world: &World| {
        let files = world.snapshot("p/.git/azureal/snapshots/objects");
        files.iter().filter(|(path, _)| path.is_file()).count()
    };
    assert!(objects(&world) > 0);
    assert_eq!(azureal(&world, &["rm", "S1", "--yes"]).code, 0);
    let left =
        git(&world, &["--git-dir", ".git/azureal/snapshots", "cat-file", "--batch-all-objects", "--batch"]);
    assert!(!left.contains("a-secret-line"), "{left}");
    turn(&world);
    let purged = azureal(&world, &["purge", "--yes"]);
    assert_eq!(purged.code, 0, "{purged}");
    assert!(!world.path("p/.git/azureal/snapshots").exists());
}

#[test]
fn a_turn_whose_first_snapshot_was_lost_with_the_power_says_so() {
    let wait = "n=0; while [ ! -e gate ] && [ $n -lt 1200 ]; do sleep 0.05; n=$((n+1)); done";
    let world = repository(&format!("echo a > by-a; touch begun; {wait}"));
    world.file("p/untracked", "no commit has this tree\n");
    let mut killed = world.with_programs(&["run", "-a", "claude", "go"]);
    let mut killed = killed.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the turn", || world.path("p/begun").exists());
    killed.kill().unwrap();
    killed.wait().unwrap();
    // Objects in no pack are not synced.
    for folder in fs::read_dir(world.path("p/.git/azureal/snapshots/objects")).unwrap() {
        let folder = folder.unwrap().path();
        if folder.file_name().unwrap().len() == 2 {
            fs::remove_dir_all(folder).unwrap();
        }
    }
    world.file("p/gate", "");
    let recovered = azureal_testkit::until("the turn is recovered", || {
        let listed = azureal(&world, &["list"]);
        listed.stderr.contains("recovered the last turn of S1").then_some(listed)
    });
    let expected = "; its changes are not recorded: the snapshot from before it was not on the disk yet when the machine stopped";
    assert!(recovered.stderr.contains(expected), "{recovered}");
    // The next turn is recorded.
    fake_claude(&world, "echo b > by-b");
    let next = azureal(&world, &["run", "-c", "-a", "claude", "go"]);
    assert!(next.stderr.contains("1 file changed"), "{next}");
}

#[test]
fn the_next_command_finishes_an_undo_that_was_interrupted() {
    let world = repository(EDITS);
    turn(&world);
    let folder = world.path("p/.git/azureal/snapshots/worktrees/main");
    assert!(folder.is_dir());
    // A journal that was not written completely: no file was touched.
    world.file("p/.git/azureal/snapshots/worktrees/main/undo.prepared", "");
    fs::set_permissions(folder.join("undo.prepared"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    assert_eq!(azureal(&world, &["list"]).code, 0);
    assert!(!folder.join("undo.prepared").exists(), "the next command looked at it");
    assert_eq!(azureal(&world, &["undo", "S1"]).code, 0);
}

#[test]
fn a_turn_whose_changes_are_not_recorded_is_named_too() {
    let wait = "n=0; while [ ! -e gate ] && [ $n -lt 1200 ]; do sleep 0.05; n=$((n+1)); done";
    let world = repository(&format!("echo a > by-a; touch begun; {wait}"));
    let first = world
        .with_programs(&["run", "-a", "claude", "go"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    wait_until("the first turn", || world.path("p/begun").exists());
    fake_claude(&world, "echo b > by-b");
    assert_eq!(azureal(&world, &["run", "-a", "claude", "--ephemeral", "go"]).code, 0);
    world.file("p/gate", "");
    let _ = first.unwrap().wait_with_output().unwrap();
    let refused = azureal(&world, &["undo", "S1"]);
    assert_eq!(refused.code, 3, "{refused}");
    assert!(refused.stderr.contains("1 other session ran in this worktree"), "{refused}");
    assert!(read(&world, "by-b").is_some());
}

#[test]
fn an_undo_in_another_worktree_than_that_of_the_turn_needs_force() {
    let world = repository("echo three >> a.txt");
    git(&world, &["worktree", "add", "-q", "../linked"]);
    let mut command = world.with_programs(&["run", "-a", "claude", "go"]);
    assert_eq!(world.ran(command.current_dir(world.path("linked")).output().unwrap()).code, 0);
    let refused = azureal(&world, &["undo", "S1"]);
    assert!(refused.stderr.starts_with("error: turn 1 of S1 ran in [folder]/linked\n"), "{refused}");
    // Its files are in this worktree now, and the other one is gone.
    world.file("p/a.txt", "one\ntwo\nthree\n");
    git(&world, &["worktree", "remove", "--force", "../linked"]);
    let refused = azureal(&world, &["undo", "S1"]);
    assert_eq!(refused.code, 3, "{refused}");
    assert!(refused.stderr.contains("which is not there any more"), "{refused}");
    assert_eq!(read(&world, "a.txt").unwrap(), "one\ntwo\nthree\n");
    assert_eq!(azureal(&world, &["undo", "S1", "--force"]).code, 0);
    assert_eq!(read(&world, "a.txt").unwrap(), "one\ntwo\n");
}

#[test]
fn a_file_that_was_ignored_before_the_turn_is_neither_told_nor_deleted() {
    let world = repository("echo '#' > .gitignore; echo more >> a.txt");
    world.file("p/.gitignore", ".env\n/gate\n/begun\n");
    git(&world, &["commit", "-qam", "rules"]);
    world.file("p/.env", "SECRET=1\n");
    turn(&world);
    let context = world.run(&["context", "S1"]).quiet();
    assert!(context.contains("+more") && !context.contains("SECRET"), "{context}");
    assert!(!azureal(&world, &["diff"]).stdout.contains("SECRET"));
    let stat = azureal(&world, &["diff", "--stat"]).quiet();
    assert!(stat.contains("not recorded: .env (ignored before the turn)"), "{stat}");
    let undone = azureal(&world, &["undo", "S1"]);
    assert_eq!(read(&world, ".env").as_deref(), Some("SECRET=1\n"), "{undone}");
    let plan = azureal(&world, &["undo", "S1", "--dry-run", "--json"]).json();
    assert_eq!(plan["conflicts"][0]["can_be_forced"], false, "{plan}");
    let forced = azureal(&world, &["undo", "S1", "--force"]);
    assert_eq!(read(&world, ".env").as_deref(), Some("SECRET=1\n"), "{forced}");
    assert_eq!(read(&world, "a.txt").as_deref(), Some("one\ntwo\n"), "{undone}{forced}");
}

#[test]
fn an_old_git_is_told_once_in_a_worktree_and_not_outside_one() {
    let world = repository(EDITS);
    world.program("git", "echo git version 2.31.8");
    let said = |ran: &Ran| ran.stderr.contains("git 2.31.8 is too old to record the changes of turns");
    let run = |world: &World| azureal(world, &["run", "-a", "claude", "go"]);
    let (first, second) = (run(&world), run(&world));
    assert!(first.code == 0 && said(&first), "{first}");
    assert!(second.code == 0 && !said(&second), "{second}");
    let outside = World::new();
    fs::remove_dir_all(outside.path("p/.git")).unwrap();
    fake_claude(&outside, "true");
    outside.program("git", "echo git version 2.31.8");
    let ran = run(&outside);
    assert!(ran.code == 0 && !ran.stderr.contains("git"), "{ran}");
}

#[test]
fn an_older_turn_is_undone_only_by_its_number_if_a_later_one_may_have_changed_files() {
    let world = repository("echo first > a.txt");
    turn(&world);
    // A turn that runs a command, and whose changes are not recorded.
    world.file("config/azureal/azufig.toml", "[changes]\nenabled = false\n");
    let call = r#"{"type":"assistant","message":{"id":"m2","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}]}}"#;
    fake_claude(&world, &format!("echo second > a.txt; echo '{call}'"));
    let mut command = world.with_programs(&["run", "-c", "-a", "claude", "go on"]);
    let ran = world.ran(command.env("XDG_CONFIG_HOME", world.path("config")).output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    let refused = azureal(&world, &["undo", "S1"]);
    assert_eq!(refused.code, 3, "{refused}");
    assert!(
        refused.stderr.contains("turn 2 of S1 ran commands or edits") && refused.stderr.contains("--turn 1"),
        "{refused}"
    );
    assert_eq!(read(&world, "a.txt").as_deref(), Some("second\n"));
    let conflict = azureal(&world, &["undo", "S1", "--turn", "1"]);
    assert!(conflict.stderr.contains("a.txt"), "{conflict}");
}

#[test]
fn a_forced_undo_that_can_restore_nothing_is_refused_and_can_be_tried_again() {
    let world = repository("rm -r src");
    turn(&world);
    fs::write(world.path("p/src"), "a file of the user\n").unwrap();
    let refused = azureal(&world, &["undo", "S1", "--force"]);
    assert_eq!(refused.code, 3, "{refused}");
    assert!(refused.stderr.contains("nothing was undone: 1 file cannot be restored"), "{refused}");
    fs::remove_file(world.path("p/src")).unwrap();
    let undone = azureal(&world, &["undo", "S1"]);
    assert_eq!((undone.code, read(&world, "src/b.txt").as_deref()), (0, Some("b\n")), "{undone}");
}

#[test]
fn ignored_files_that_a_turn_changed_are_named_and_left() {
    let world = repository("echo three >> a.txt; echo SECRET=2 > .env; rm old.key; echo SECRET > new.key");
    world.file("p/.gitignore", ".env\n*.key\nbuilt/\n");
    world.file("p/.env", "SECRET=1\n");
    world.file("p/old.key", "SECRET\n");
    let ran = azureal(&world, &["run", "-a", "claude", "go"]);
    let last = "1 file changed, +1 −0; changed, not recorded: .env, old.key · azureal diff S1";
    assert_eq!(ran.stderr.lines().last(), Some(last), "{ran}");
    let diff = azureal(&world, &["diff", "S1"]);
    assert!(diff.stderr.contains("changed, not recorded: .env, old.key"), "{diff}");
    assert!(!diff.stdout.contains("SECRET"), "{diff}");
    let lines = "  changed, not recorded: .env (ignored)\n  changed, not recorded: old.key (ignored)\n";
    let stat = azureal(&world, &["diff", "S1", "--stat"]).quiet();
    assert!(stat.ends_with(lines), "{stat}");
    let plan = azureal(&world, &["undo", "S1", "--dry-run"]).quiet();
    assert!(plan.contains(lines), "{plan}");
    let context = world.run(&["context", "S1"]).quiet();
    assert!(!context.contains("SECRET") && !context.contains(".env"), "{context}");
    let undone = azureal(&world, &["undo", "S1"]);
    assert!(undone.code == 0 && undone.stdout.contains(lines), "{undone}");
    assert_eq!(read(&world, ".env").as_deref(), Some("SECRET=2\n"));
    // A turn that changes nothing else has nothing to undo, and the one before it is not in question.
    fake_claude(&world, "echo SECRET=3 > .env");
    let ran = azureal(&world, &["run", "-c", "-a", "claude", "again"]);
    assert_eq!(ran.stderr.lines().last(), Some("changed, not recorded: .env · azureal diff S1"), "{ran}");
    let refused = azureal(&world, &["undo", "S1", "--turn", "2"]);
    let words = "error: there is nothing to undo in turn 2 of S1: changed, not recorded: .env";
    assert!(refused.code != 0 && refused.stderr.starts_with(words), "{refused}");
    let twice = azureal(&world, &["undo", "S1"]);
    assert!(twice.stderr.starts_with("error: turn 1 of S1 is undone already\n"), "{twice}");
}

#[test]
fn a_file_over_the_size_limit_is_refused_by_an_undo_and_left_by_a_forced_one_and_both_say_so() {
    let world = repository("echo three >> a.txt; printf x >> large");
    fs::File::create(world.path("p/large")).unwrap().set_len(11_000_000).unwrap();
    let ran = azureal(&world, &["run", "-a", "claude", "go"]);
    let last = "2 files changed, +1 −0; changed, not recorded: large · azureal diff S1";
    assert_eq!(ran.stderr.lines().last(), Some(last), "{ran}");
    let stat = azureal(&world, &["diff", "S1", "--stat"]).quiet();
    assert!(stat.contains("  changed, not recorded: large (too large)\n"), "{stat}");
    let refused = azureal(&world, &["undo", "S1"]);
    let words = "  large: its content is not recorded: it is over the size limit, or could not be read\n";
    assert!(refused.code != 0 && refused.stderr.contains(words), "{refused}");
    assert_eq!(read(&world, "a.txt").unwrap(), "one\ntwo\nthree\n");
    let forced = azureal(&world, &["undo", "S1", "--force"]);
    assert!(
        forced.code == 0 && forced.stdout.contains(&format!("  left as it is:{}", &words[1..])),
        "{forced}"
    );
    assert_eq!(read(&world, "a.txt").unwrap(), "one\ntwo\n");
    assert_eq!(fs::metadata(world.path("p/large")).unwrap().len(), 11_000_001);
}

#[test]
fn rules_that_ignored_themselves_and_are_gone_delete_no_file_of_the_user() {
    let world = World::new();
    fs::remove_dir_all(world.path("p")).unwrap();
    world.file("p/.gitignore", "*.env\n");
    world.file("p/secret", "SECRET\n");
    git(&world, &["init", "-q"]);
    fake_claude(&world, "printf '*\\n!src\\n' > .gitignore");
    turn(&world);
    fake_claude(&world, "mv .gitignore x; echo 'lib/*' > .gitignore");
    assert_eq!(azureal(&world, &["run", "-c", "-a", "claude", "again"]).code, 0);
    for arguments in [
        &["undo", "S1"][..],
        &["undo", "S1", "--turn", "2", "--force"],
        &["undo", "S1", "--turn", "1", "--force"],
    ] {
        azureal(&world, arguments);
        assert_eq!(read(&world, "secret").as_deref(), Some("SECRET\n"), "{arguments:?}");
    }
    let context = world.run(&["context", "S1"]).quiet();
    assert!(!context.contains("SECRET"), "{context}");
}

#[test]
fn an_undo_of_a_removed_link_in_the_place_of_rules_can_be_taken_back() {
    let world = repository("rm src/.gitignore; echo z >> m");
    std::os::unix::fs::symlink("x", world.path("p/src/.gitignore")).unwrap();
    git(&world, &["add", "-A"]);
    git(&world, &["commit", "-qm", "a link"]);
    turn(&world);
    let undone = azureal(&world, &["undo", "S1"]);
    assert_eq!(undone.code, 0, "{undone}");
    assert!(world.path("p/src/.gitignore").is_symlink());
    for _ in 0..2 {
        let twice = azureal(&world, &["undo", "S1"]);
        let hint = twice.stderr.split('`').nth(1).unwrap().to_owned();
        let arguments: Vec<&str> = hint.split(' ').skip(1).collect();
        let redone = azureal(&world, &arguments);
        assert_eq!(redone.code, 0, "{redone}");
        assert!(!world.path("p/src/.gitignore").is_symlink() && world.path("p/m").exists());
        assert_eq!(azureal(&world, &["undo", "S1"]).code, 0);
    }
}
