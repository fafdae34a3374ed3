//! What others have laid down is read up to a bound, and never waited for.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rusqlite::Connection;

use crate::world::{Ran, World};

/// Runs a command that has to end soon, also on a slow machine, and with little memory.
#[track_caller]
fn soon(world: &World, arguments: &[&str]) -> Ran {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 2000000; exec timeout 20 \"$0\" \"$@\"", env!("CARGO_BIN_EXE_azureal")]);
    command.args(arguments).current_dir(world.path("p")).env_clear().env("HOME", world.path("own"));
    let ran = world.ran(command.output().unwrap());
    // The exit status of `timeout` for a command that it had to end.
    assert_ne!(ran.code, 124, "{arguments:?}: {ran}");
    ran
}

/// A file of 10 GB that takes no room on the disk.
fn sparse(world: &World, path: &str, start: &[u8]) {
    let path = world.file(path, "");
    fs::write(&path, start).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    OpenOptions::new().write(true).open(path).unwrap().set_len(10_000_000_000).unwrap();
}

fn with_session() -> World {
    let world = World::new();
    assert_eq!(world.run(&["run", "-a", "offline", "hello"]).code, 0);
    world
}

#[test]
fn a_huge_header_is_unreadable_at_once() {
    let world = with_session();
    for start in [&b""[..], b"{\"turn\":{\"prompt\":\""] {
        sparse(&world, "p/.git/azureal/spool/huge.turn", start);
        let ran = soon(&world, &["list"]);
        assert!(
            ran.code == 0 && ran.stderr.contains("huge.turn` does not say which turn it belongs to"),
            "{ran}"
        );
    }
}

#[test]
fn a_huge_lease_is_taken_all_the_same() {
    let world = with_session();
    sparse(&world, "p/.git/azureal/spool/S1.lease", b"");
    let ran = soon(&world, &["run", "-s", "S1", "-a", "offline", "more"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(!world.path("p/.git/azureal/spool/S1.lease").exists());
}

#[test]
fn a_huge_file_is_not_imported() {
    let world = World::new();
    sparse(&world, "p/huge.json", b"[{\"role\":\"user\"");
    insta::assert_snapshot!(soon(&world, &["import", "huge.json"]), @r"
    exit code 1
    --- stderr
    error: `huge.json` has more than 1024 MiB
    hint: `azureal copy` has no such limit, between two stores
    ");
    sparse(&world, "p/folder/huge.json", b"[{\"role\":\"user\"");
    let ran = soon(&world, &["import", "folder"]);
    assert!(ran.stderr.contains("huge.json` has more than 1024 MiB"), "{ran}");
}

#[test]
fn a_pipe_beside_a_database_is_not_waited_for() {
    let world = with_session();
    fs::copy(world.store(), world.path("p/other.azs")).unwrap();
    for store in [".azureal/sessions.azs", "other.azs"] {
        for suffix in ["-journal", "-wal", "-shm"] {
            let pipe = world.path("p").join(format!("{store}{suffix}"));
            assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            let mut commands =
                vec![vec!["list", "--store", store], vec!["copy", "--from", store, "--to", "new.azs"]];
            if store == "other.azs" {
                commands.push(vec!["import", store]);
            }
            for arguments in commands {
                let ran = soon(&world, &arguments);
                assert_eq!(ran.code, 3, "{suffix} {arguments:?}: {ran}");
                assert!(ran.stderr.contains("not a plain file"), "{suffix} {arguments:?}: {ran}");
            }
            fs::remove_file(pipe).unwrap();
        }
    }
}

#[test]
fn thousands_of_orphans_are_looked_at_in_time() {
    let world = with_session();
    for number in 0..3000 {
        let run = format!("{number:032x}");
        let turn = format!(
            r#"{{"turn":{{"run":"{run}","session":7,"prompt":"x","agent":"claude","model":null,"directory":"/","started_at":""}}}}"#
        );
        let header = world.file(&format!("p/.git/azureal/spool/{run}.turn"), &turn);
        fs::set_permissions(header, Permissions::from_mode(0o600)).unwrap();
    }
    let ran = soon(&world, &["list"]);
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn thousands_of_notes_are_looked_at_in_time() {
    let world = with_session();
    let mut store = Connection::open(world.store()).unwrap();
    let transaction = store.transaction().unwrap();
    for number in 0..20_000 {
        let run = format!("{number:08x}-0000-0000-0000-000000000000");
        transaction
            .execute("INSERT INTO sessions (name, worktree, run) VALUES (?1, '.', ?1)", [run])
            .unwrap();
    }
    transaction.commit().unwrap();
    let ran = soon(&world, &["list", "-n", "1"]);
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn thousands_of_sessions_of_another_program_are_listed_in_time() {
    let world = with_session();
    let mut store = Connection::open(world.store()).unwrap();
    let transaction = store.transaction().unwrap();
    for _ in 0..16_000 {
        // As that program inserts them: nobody has counted their events.
        transaction.execute("INSERT INTO sessions (name, worktree) VALUES ('', '.')", []).unwrap();
    }
    transaction.commit().unwrap();
    let listed = soon(&world, &["list", "--json"]).json();
    let ids: Vec<&str> =
        listed.as_array().unwrap().iter().map(|session| session["id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), ids[0], ids[15_999], ids[16_000]), (16_001, "S16001", "S2", "S1"));
}

#[test]
fn a_limit_on_the_size_of_files_is_reported() {
    let world = World::new();
    let text =
        format!(r#"[{{"role":"user","content":[{{"type":"text","text":"{}"}}]}}]"#, random_text(400_000));
    world.file("p/large.json", &text);
    let mut command = Command::new("sh");
    // In blocks of 512 bytes.
    command.args(["-c", "ulimit -f 300; exec \"$0\" import large.json", env!("CARGO_BIN_EXE_azureal")]);
    let ran = world.ran(command.current_dir(world.path("p")).env_clear().output().unwrap());
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("`ulimit -f`"), "{ran}");
    // Whatever there is now can be read.
    assert_eq!(world.run(&["list"]).code, 0);
    assert_eq!(world.run(&["import", "large.json"]).code, 0);
}

/// Text that cannot be compressed much.
fn random_text(length: usize) -> String {
    let mut state: u64 = 7;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap())
    };
    (0..length).map(|_| letter()).collect()
}
