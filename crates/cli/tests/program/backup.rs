//! Backups: everything is there again, nothing is overwritten in silence, and what was there is kept.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::json;

use crate::servers::{Server, on_every_server, run_on};
use crate::terminal::answering;
use crate::world::{World, assistant, user};

/// A session from elsewhere, and one with two turns and their output.
fn world() -> World {
    let world = World::new();
    world.session("imported", &[user("Hello"), assistant("Hi")]);
    for prompt in ["one", "two"] {
        assert_eq!(world.run(&["run", "-s", "talk", "-a", "offline", prompt]).code, 0);
    }
    world
}

/// All that is shown of the sessions, and the output of the turns.
fn content(world: &World, store: &[&str]) -> Vec<String> {
    let run = |arguments: &[&str]| world.run(&[store, arguments].concat()).stdout;
    vec![
        run(&["list", "--all", "--json"]),
        run(&["show", "--json", "S1"]),
        run(&["show", "--json", "S2"]),
        run(&["original", "S2", "--seq", "3"]),
        run(&["original", "S2", "--seq", "7"]),
    ]
}

fn backup_originals(backup: &Path) -> PathBuf {
    PathBuf::from(format!("{}.originals", backup.display()))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn folders_and_files_of_the_user_beside_a_backup_stay() {
    let world = world();
    for path in
        ["backups/azureal-2026-11-18/notes", "backups/azureal-1-x/notes", "backups/today.azs.new-999999-11"]
    {
        world.file(path, "precious");
    }
    for folder in ["azureal-2026-11-18", "azureal-1-x"] {
        let folder = world.path("backups").join(folder);
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let before = world.snapshot("backups");
    let backup = world.path("backups/today.azs");
    let path = backup.to_str().unwrap();
    for arguments in [&["backup", path][..], &["import", path], &["backup", "--force", path]] {
        assert_eq!(world.run(arguments).code, 0);
        let after = world.snapshot("backups");
        for found in &before {
            assert!(after.contains(found), "{} after {arguments:?}", found.0.display());
        }
    }
}

/// As when a turn ends between the copy of the file and that of the outputs.
#[test]
fn a_backup_has_no_output_of_turns_that_it_does_not_have() {
    let world = World::new();
    assert_eq!(world.run(&["run", "-s", "talk", "-a", "offline", "one"]).code, 0);
    let earlier = fs::read(world.store()).unwrap();
    assert_eq!(world.run(&["run", "-s", "talk", "-a", "offline", "two"]).code, 0);
    fs::write(world.store(), earlier).unwrap();
    let backup = world.path("backup.azs");
    let path = backup.to_str().unwrap();
    let ran = world.run(&["backup", path, "--json"]);
    assert_eq!((ran.code, &ran.json()["events"]), (0, &json!(4)), "{ran}");
    let doctor = world.run(&["--store", path, "doctor", "--json"]);
    assert_eq!((doctor.code, &doctor.json()["findings"]), (0, &json!([])), "{doctor}");
    let original = world.run(&["--store", path, "original", "talk", "--seq", "3"]);
    assert!(original.code == 0 && original.stdout.contains("one"), "{original}");
}

#[test]
fn a_backup_is_a_store_with_everything_and_is_put_back() {
    let world = world();
    let before = content(&world, &[]);
    assert!(before[4].contains("two"), "{}", before[4]);
    let backup = world.path("backup.azs");
    let path = backup.to_str().unwrap();
    let ran = world.run(&["backup", path, "--json"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!((&ran.json()["sessions"], &ran.json()["events"]), (&json!(2), &json!(10)), "{ran}");
    assert!(ran.json()["originals_bytes"].as_u64() > Some(0), "{ran}");
    let originals = world.path("backup.azs.originals");
    assert_eq!((mode(&backup), mode(&originals)), (0o600, 0o700));
    assert_eq!(content(&world, &["--store", path])[1..], before[1..]);
    let doctor = world.run(&["--store", path, "doctor", "--json"]);
    assert_eq!((doctor.code, &doctor.json()["findings"]), (0, &json!([])), "{doctor}");

    // Not overwritten in silence.
    let refused = world.run(&["backup", path]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains("is there already"), "{refused}");
    assert_eq!(world.run(&["backup", path, "--force"]).code, 0);
    let folder = world.path("backups");
    fs::create_dir(&folder).unwrap();
    world.run(&["backup", folder.to_str().unwrap()]);
    let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let socket = world.path("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let refused = world.run(&["backup", "--force", socket.to_str().unwrap()]);
    assert!(refused.code == 2 && refused.stderr.contains("is no file"), "{refused}");
    let own = world.store();
    assert_eq!(world.run(&["backup", "--force", own.to_str().unwrap()]).code, 2);

    // Changed, and put back.
    world.run(&["run", "-s", "talk", "-a", "offline", "three"]);
    world.run(&["rm", "S1", "--yes"]);
    let changed = world.run(&["list", "--all", "--json"]).stdout;
    let refused = world.run(&["restore", path]);
    assert_eq!(refused.code, 3, "{refused}");
    let identity = fs::metadata(world.store()).unwrap().ino();
    let ran = world.run(&["restore", path, "--yes", "--json"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(content(&world, &[])[1..], before[1..]);
    assert_eq!(fs::metadata(world.store()).unwrap().ino(), identity, "the file keeps both its names");
    let kept = ran.json()["kept"].as_str().unwrap().replace("[folder]", world.path("").to_str().unwrap());
    let list = world.run(&["--store", &kept, "list", "--all", "--json"]).stdout;
    let without_sizes = |text: &str| text.split("\"id\"").count();
    assert_eq!(without_sizes(&list), without_sizes(&changed));
    assert!(world.run(&["--store", &kept, "show", "talk"]).stdout.contains("three"));
    let doctor = world.run(&["doctor", "--json"]);
    assert_eq!((doctor.code, &doctor.json()["findings"]), (0, &json!([])), "{doctor}");
    // The next turn continues it, and a purge leaves no copy.
    assert_eq!(world.run(&["run", "-s", "talk", "-a", "offline", "four"]).code, 0);
    assert_eq!(world.run(&["purge", "--yes"]).code, 0);
    let left: Vec<_> =
        fs::read_dir(world.path("p/.azureal")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".gitignore"]);
}

#[test]
fn a_backup_is_restored_to_another_place_and_over_a_store_that_cannot_be_read() {
    let world = world();
    let before = content(&world, &[]);
    let backup = world.path("backup.azs");
    let path = backup.to_str().unwrap();
    assert_eq!(world.run(&["backup", path]).code, 0);
    // Twice, perhaps in one second: each time the former store is kept.
    for _ in 0..2 {
        assert_eq!(world.run(&["restore", path, "--yes"]).code, 0);
    }
    // Where `git clean -fdx` does not delete it.
    let kept = fs::read_dir(world.path("p/.git/azureal")).unwrap().map(|entry| entry.unwrap().file_name());
    let kept = kept.filter(|name| name.to_string_lossy().contains("before-restore"));
    assert_eq!(kept.count(), 4, "two files, two folders");
    // A new project.
    fs::create_dir(world.path("q")).unwrap();
    let elsewhere = world.path("q");
    let elsewhere = elsewhere.to_str().unwrap();
    let ran = world.run(&["-C", elsewhere, "restore", path, "--yes"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(content(&world, &["-C", elsewhere])[1..], before[1..]);
    // A file.
    assert_eq!(world.run(&["--store", "other.azs", "restore", path, "--yes"]).code, 0);
    assert_eq!(content(&world, &["--store", "other.azs"])[1..], before[1..]);
    // A store that is no store any more.
    fs::write(world.store(), "x".repeat(9_000)).unwrap();
    assert_eq!(world.run(&["list"]).code, 1);
    let ran = world.run(&["restore", path, "--yes"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(content(&world, &[])[1..], before[1..]);
    let doctor = world.run(&["doctor", "--json"]);
    assert_eq!((doctor.code, &doctor.json()["findings"]), (0, &json!([])), "{doctor}");
}

/// As when the process is killed before the transaction and after it: the output of the backup is beside that of the store.
#[test]
fn a_restore_that_was_killed_is_completed_or_taken_back_by_the_next_command() {
    let world = world();
    let before = content(&world, &[]);
    let backup = world.path("backup.azs");
    let path = backup.to_str().unwrap();
    assert_eq!(world.run(&["backup", path]).code, 0);
    assert_eq!(world.run(&["run", "-s", "talk", "-a", "offline", "three"]).code, 0);
    let now = content(&world, &[]);
    let (originals, staged) =
        (world.path("p/.git/azureal/originals"), world.path("p/.git/azureal/originals.restored"));
    let stage = || {
        let copied =
            std::process::Command::new("cp").arg("-a").args([&backup_originals(&backup), &staged]).status();
        assert!(copied.unwrap().success());
        // Only a folder with its mark is one of ours.
        let inode = fs::metadata(&staged).unwrap().ino().to_string();
        fs::write(staged.join(".azureal-temporary"), inode).unwrap();
    };
    fs::create_dir_all(&staged).unwrap();
    fs::set_permissions(&staged, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(staged.join("notes"), "of the user").unwrap();
    assert_eq!(content(&world, &[]), now);
    let refused = world.run(&["restore", path, "--yes"]);
    assert!(refused.code == 1 && refused.stderr.contains("is none of azureal's folders"), "{refused}");
    assert_eq!(fs::read(staged.join("notes")).unwrap(), b"of the user");
    fs::remove_dir_all(&staged).unwrap();
    stage();
    let found = world.run(&["doctor", "--json"]);
    assert_eq!(found.json()["findings"][0]["kind"], "interrupted_restore", "{found}");
    assert_eq!(content(&world, &[]), now);
    assert!(!staged.exists());
    // After the transaction, the store says that it is that of the backup.
    let third = world.run(&["original", "S2", "--seq", "11"]).stdout;
    assert!(third.contains("three"), "{third}");
    let identity = fs::metadata(world.store()).unwrap().ino();
    let restored = fs::read(&backup).unwrap();
    fs::write(world.store(), restored).unwrap();
    let connection = Connection::open(world.store()).unwrap();
    connection.execute("INSERT INTO meta VALUES ('restored', '.before-restore-x')", []).unwrap();
    drop(connection);
    stage();
    let fixed = world.run(&["doctor", "--fix", "--json"]);
    assert_eq!((fixed.code, &fixed.json()["findings"]), (0, &json!([])), "{fixed}");
    assert_eq!(content(&world, &[])[1..], before[1..]);
    assert_eq!(fs::metadata(world.store()).unwrap().ino(), identity);
    assert!(!staged.exists() && originals.exists());
    assert!(!originals.join(".azureal-temporary").exists());
    let kept = world.path("p/.git/azureal/sessions.azs.before-restore-x.originals");
    let in_folders =
        fs::read_dir(&kept).unwrap().flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    assert_eq!(in_folders.count(), 3, "the output of the former store is kept");
}

#[test]
fn a_backup_that_is_damaged_or_none_is_not_restored() {
    let world = world();
    let before = world.run(&["show", "--json", "S2"]).stdout;
    let backup = world.path("backup.azs");
    let path = backup.to_str().unwrap();
    assert_eq!(world.run(&["backup", path]).code, 0);
    let length = fs::metadata(&backup).unwrap().len();
    fs::OpenOptions::new().write(true).open(&backup).unwrap().set_len(length - 5_000).unwrap();
    for (path, why) in
        [(path, "the file cannot be used"), ("nowhere.azs", "no such file"), (".", "is no file")]
    {
        let ran = world.run(&["restore", path, "--yes"]);
        assert!(ran.code > 0 && ran.stderr.contains(why), "{path}: {ran}");
    }
    let second = world.path("second.azs");
    fs::hard_link(world.store(), &second).unwrap();
    for own in [world.store(), second.clone()] {
        assert_eq!(world.run(&["restore", own.to_str().unwrap(), "--yes"]).code, 2);
    }
    fs::remove_file(second).unwrap();
    assert_eq!(world.run(&["show", "--json", "S2"]).stdout, before);
    let none = World::new();
    let ran = none.run(&["backup", "x.azs"]);
    assert!(ran.code == 1 && ran.stderr.contains("no store to back up"), "{ran}");
    assert_eq!(none.run(&["--store", "memory:", "backup", "x.azs"]).code, 2);
}

#[test]
fn a_backup_while_another_process_holds_a_write_ahead_log_has_its_turns() {
    let world = world();
    let open = Connection::open(world.store()).unwrap();
    open.pragma_update(None, "journal_mode", "wal").unwrap();
    open.execute_batch("UPDATE sessions SET name = 'in the log' WHERE id = 1").unwrap();
    assert_eq!(world.run(&["backup", "../backup.azs"]).code, 0);
    drop(open);
    assert!(!world.path("backup.azs-wal").exists());
    assert!(world.run(&["--store", "../backup.azs", "list", "--all"]).stdout.contains("in the log"));
}

on_every_server! {
    a_store_on_a_server_is_checked_and_backed_up_to_a_file
}

fn a_store_on_a_server_is_checked_and_backed_up_to_a_file<S: Server>() {
    let Some(server) = S::shared() else { return };
    let (world, store) = (World::new(), server.store("backed-up"));
    for prompt in ["one", "two"] {
        assert_eq!(run_on(&world, &store, &["run", "-s", "talk", "-a", "offline", prompt]).code, 0);
    }
    let doctor = run_on(&world, &store, &["doctor", "--json"]);
    assert_eq!((doctor.code, &doctor.json()["sessions"]), (0, &json!(1)), "{doctor}");
    assert_eq!(doctor.json()["findings"], json!([]), "{doctor}");
    let ran = run_on(&world, &store, &["backup", "../backup.azs", "--json"]);
    assert_eq!(ran.code, 0, "{ran}");
    let show = |store: &str| run_on(&world, store, &["show", "--json", "talk"]).stdout;
    assert_eq!(show("../backup.azs"), show(&store));
    let refused = run_on(&world, &store, &["restore", "../backup.azs", "--yes"]);
    assert!(refused.code == 2 && refused.stderr.contains("azureal copy --from"), "{refused}");
}

#[test]
fn damaged_sessions_on_postgres_are_named() {
    use azureal_testkit::servers::PostgresServer;
    let Some(server) = PostgresServer::shared() else { return };
    let (world, store) = (World::new(), Server::store(server, "damaged"));
    for prompt in ["one", "two"] {
        run_on(&world, &store, &["run", "-s", "talk", "-a", "offline", prompt]);
    }
    server.sql("UPDATE azureal.sessions SET messages = messages + 1 WHERE project = 'damaged'");
    server.sql("UPDATE azureal.events SET json = 'x' WHERE project = 'damaged' AND seq = 3");
    server.sql("DELETE FROM azureal.events WHERE project = 'damaged' AND seq = 5");
    let ran = run_on(&world, &store, &["doctor", "--json"]);
    let report = ran.json();
    let mut kinds: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["kind"].as_str().unwrap())
        .collect();
    kinds.sort();
    assert_eq!((ran.code, kinds), (1, vec!["counts", "gap", "undecodable_event"]), "{ran}");
}

#[test]
fn damaged_sessions_on_redis_are_named() {
    use azureal_testkit::servers::RedisServer;
    let Some(server) = RedisServer::shared() else { return };
    let (world, store) = (World::new(), Server::store(server, "damaged"));
    run_on(&world, &store, &["run", "-s", "talk", "-a", "offline", "one"]);
    let keys = server.command(&["KEYS", "azureal:{damaged}*"]);
    let session =
        keys.lines().find(|key| server.command(&["HEXISTS", key, "messages"]).as_str() == "1").unwrap();
    server.command(&["HINCRBY", session, "messages", "1"]);
    let ran = run_on(&world, &store, &["doctor", "--json"]);
    assert_eq!((ran.code, &ran.json()["findings"][0]["kind"]), (1, &json!("counts")), "{ran}");
}

#[test]
fn sessions_that_were_deleted_since_the_backup_are_named_and_come_back() {
    let world = world();
    let backup = world.path("backup.azs");
    let path = backup.to_str().unwrap();
    assert_eq!(world.run(&["backup", path]).code, 0);
    assert_eq!(world.run(&["run", "-s", "later", "-a", "offline", "three"]).code, 0);
    assert_eq!(world.run(&["rm", "S1", "S3", "--yes"]).code, 0);
    let (code, shown) = answering(world.command(&["restore", path]), "n\n");
    assert!(code == 130 && shown.contains("S1 imported was deleted since and comes back"), "{shown}");
    let restored = world.run(&["restore", path, "--yes", "--json"]);
    assert_eq!((restored.code, &restored.json()["revived"]), (0, &json!(["S1"])), "{restored}");
    assert_eq!(world.run(&["show", "S1"]).code, 0);
    // S3 is in the kept store, and no other session gets its number.
    let next = world.run(&["run", "-s", "next", "-a", "offline", "four", "--json"]);
    assert!(next.code == 0 && next.stdout.contains("S4") && !next.stdout.contains("S3"), "{next}");
    let again = world.run(&["restore", path, "--yes"]);
    assert!(again.code == 0 && !again.stderr.contains("comes back"), "{again}");
}

#[test]
fn the_question_says_what_is_replaced() {
    let world = world();
    let backup = world.path("backup.azs");
    let path = backup.to_str().unwrap();
    assert_eq!(world.run(&["backup", path]).code, 0);
    assert_eq!(world.run(&["run", "-s", "newer", "-a", "offline", "three"]).code, 0);
    let (code, shown) = answering(world.command(&["restore", path]), "n\n");
    assert_eq!(code, 130, "{shown}");
    for part in ["Restore 2 sessions with 10 events to ", "There are 3 sessions with 14 events now"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(world.run(&["list", "--json"]).json().as_array().unwrap().len(), 3);
    let (code, shown) = answering(world.command(&["restore", path]), "y\n");
    assert_eq!(code, 0, "{shown}");
    assert_eq!(world.run(&["list", "--json"]).json().as_array().unwrap().len(), 2);
}

/// `strace` makes the last step of a backup fail, or kills the program at it.
#[test]
fn a_backup_that_fails_or_is_killed_leaves_the_former_one_with_its_outputs() {
    let world = world();
    let backup = world.path("backup.azs");
    let path = backup.to_str().unwrap();
    assert_eq!(world.run(&["backup", path]).code, 0);
    let before = content(&world, &["--store", path]);
    assert!(before[4].contains("two"), "{}", before[4]);
    // The store has one output, which the former backup does not have, and lacks those that it has.
    assert_eq!(world.run(&["rm", "S2", "--yes"]).code, 0);
    assert_eq!(world.run(&["run", "-s", "fresh", "-a", "offline", "three"]).code, 0);
    let traced = |to: &str, fault: Option<&str>| {
        let command = world.with_programs(&["backup", "--force", to]);
        let mut strace = std::process::Command::new("strace");
        strace.args(["-f", "-qq", "-e", "trace=rename", "-o"]).arg(world.path("strace"));
        strace.args(fault.map(|fault| format!("--inject=rename:{fault}")));
        strace.arg(command.get_program()).args(command.get_args());
        strace.current_dir(world.path("p")).env_clear();
        strace.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        (strace.output().unwrap(), fs::read_to_string(world.path("strace")).unwrap())
    };
    // A file gets its name in the last step. How many calls there are, a backup to another place shows.
    let other = world.path("other.azs");
    assert_eq!(world.run(&["backup", other.to_str().unwrap()]).code, 0);
    let (_, log) = traced(other.to_str().unwrap(), None);
    let last = log.matches("rename(").count();
    for fault in ["error=EIO", "signal=SIGKILL"] {
        let (output, log) = traced(path, Some(&format!("{fault}:when={last}")));
        assert!(!output.status.success(), "{fault}: {output:?}");
        assert!(log.lines().filter(|line| line.contains(&format!(", \"{path}\""))).count() == 1, "{log}");
        assert_eq!(content(&world, &["--store", path]), before, "after {fault}");
    }
    assert_eq!(world.run(&["backup", "--force", path]).code, 0);
    let fresh = world.run(&["--store", path, "original", "fresh"]);
    assert!(fresh.code == 0 && fresh.stdout.contains("three"), "{fresh}");
    let folders = fs::read_dir(backup_originals(&backup)).unwrap().map(|folder| folder.unwrap().path());
    let outputs: Vec<_> =
        folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path()).collect();
    assert_eq!(outputs.len(), 1, "those of the former backup are removed: {outputs:?}");
    let doctor = world.run(&["--store", path, "doctor", "--json"]);
    assert_eq!((doctor.code, &doctor.json()["findings"]), (0, &json!([])), "{doctor}");
}
