//! Many at once: processes that write, readers that stop, and users who may only read.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Child;

use crate::scratch::{
    self, Project, append, new_session, original_append, original_session, read_all, wait, worker, worker_of,
};
use azureal_store::core::{
    Event, ListQuery, NewSession, NewTurn, Page, Seq, SessionId, SessionStore, StoreError, read_history,
};
use azureal_store::sqlite::{SqliteOptions, SqliteStore};
use azureal_testkit::thorough;

const PROCESSES: usize = 8;
const EVENTS: usize = 3;

/// The turns of each process.
fn turns() -> usize {
    thorough(300, 1_500)
}

fn join(children: Vec<Child>) {
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", scratch::text(&output));
    }
}

#[test]
fn eight_processes_append_to_one_session() {
    let first = SessionId::new(1).unwrap();
    if let Some((role, path)) = scratch::role() {
        let store = SqliteStore::open(path, SqliteOptions::default()).unwrap();
        for turn in 0..turns() {
            let events = (0..EVENTS).map(|event| Event::user(format!("{role} {turn} {event}")));
            wait(store.append(first, NewTurn::verbatim(events))).unwrap();
        }
        return;
    }
    let project = Project::new();
    assert_eq!(new_session(&project.store()), first);
    let test = "sqlite_together::eight_processes_append_to_one_session";
    let children =
        (0..PROCESSES).map(|n| worker(test, &n.to_string(), &project.path()).spawn().unwrap()).collect();
    join(children);

    let store = project.store();
    let events = read_all(&store, first);
    assert_eq!(events.len(), PROCESSES * turns() * EVENTS);
    let mut next_turn = [0; PROCESSES];
    for (index, turn) in events.chunks(EVENTS).enumerate() {
        // Whole, in one piece, and each process's own turns in the order in which it made them.
        let texts: Vec<String> = turn.iter().map(|event| text_of(&event.event().unwrap())).collect();
        let (process, _) = texts[0].split_once(' ').unwrap();
        let process: usize = process.parse().unwrap();
        let expected: Vec<String> =
            (0..EVENTS).map(|event| format!("{process} {} {event}", next_turn[process])).collect();
        assert_eq!(texts, expected);
        next_turn[process] += 1;
        for (offset, event) in turn.iter().enumerate() {
            assert_eq!(event.seq.0 as usize, index * EVENTS + offset + 1);
        }
    }
    assert_eq!(next_turn, [turns(); PROCESSES]);
    assert_eq!(wait(store.get(first)).unwrap().counts.messages as usize, events.len());
}

fn text_of(event: &Event) -> String {
    match event {
        Event::UserMessage(message) => message.content.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn processes_that_start_at_once_make_one_store_and_one_session_of_a_name() {
    if let Some((_, path)) = scratch::role() {
        let store = SqliteStore::open(path, SqliteOptions::default()).unwrap();
        let new = NewSession { name: Some("shared".into()), worktree: ".".into(), ..NewSession::default() };
        let id = wait(store.find_or_create(new)).unwrap();
        wait(store.append(id, NewTurn::verbatim([Event::user("here")]))).unwrap();
        wait(store.create(NewSession::default())).unwrap();
        return;
    }
    let test = "sqlite_together::processes_that_start_at_once_make_one_store_and_one_session_of_a_name";
    for _ in 0..5 {
        let project = Project::new();
        join((0..16).map(|_| worker(test, "any", &project.path()).spawn().unwrap()).collect());
        let store = project.store();
        assert_eq!(wait(store.find("shared")).unwrap().len(), 1);
        let listed = wait(store.list(&ListQuery::default())).unwrap();
        assert_eq!(listed.len(), 17);
        assert_eq!(listed.iter().map(|record| record.counts.events).sum::<u64>(), 16);
        assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
    }
}

#[test]
fn a_reader_that_is_stopped_between_pages_stops_no_writer() {
    let first = SessionId::new(1).unwrap();
    if let Some((_, path)) = scratch::role() {
        let store = SqliteStore::open(path, SqliteOptions::default()).unwrap();
        let mut after = Seq::START;
        loop {
            let page = wait(store.read(first, Page::After(after, 10))).unwrap();
            let Some(last) = page.last() else { return };
            after = last.seq;
            // Into a pipe that nobody reads: this blocks in the middle of the session.
            let line = "x".repeat(1 << 20);
            std::io::stdout().write_all(line.as_bytes()).unwrap();
        }
    }
    let project = Project::new();
    let store = project.store();
    assert_eq!(new_session(&store), first);
    append(&store, first, (0..1000).map(|number| Event::user(number.to_string())));
    let test = "sqlite_together::a_reader_that_is_stopped_between_pages_stops_no_writer";
    let mut reader = worker(test, "reader", &project.path()).spawn().unwrap();
    let mut output = reader.stdout.take().unwrap();
    let mut some = [0; 4096];
    output.read_exact(&mut some).unwrap(); // it is in the middle of its first page now
    // A writer that is kept out gives up with an error.
    for _ in 0..20 {
        append(&store, first, [Event::user("meanwhile")]);
    }
    assert!(reader.try_wait().unwrap().is_none(), "the reader was not stopped");
    reader.kill().unwrap();
    reader.wait().unwrap();
}

#[test]
fn who_cannot_write_can_still_read() {
    if let Some((role, path)) = scratch::role() {
        let store = SqliteStore::open(path, SqliteOptions::default()).unwrap();
        let listed = wait(store.list(&ListQuery::default())).unwrap();
        let id = listed[0].id;
        assert_eq!(listed[0].counts.preview_text(), "hello", "{role}");
        assert_eq!(wait(store.get(id)).unwrap().counts.messages, 2);
        assert_eq!(wait(read_history(&store, id)).unwrap().len(), 2);
        assert_eq!(wait(store.find("S1")).unwrap(), [id]);
        for error in [
            wait(store.append(id, NewTurn::verbatim([Event::user("x")]))).unwrap_err(),
            wait(store.rename(id, "x")).unwrap_err(),
            wait(store.create(NewSession::default())).unwrap_err(),
        ] {
            assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
            assert!(azureal_store::hint(&error).is_some());
        }
        return;
    }
    let talk = [Event::user("hello"), Event::assistant("hi")];
    let ours = Project::new();
    let store = ours.store();
    append(&store, new_session(&store), talk.clone());
    drop(store);
    let original = Project::new();
    let connection = original.original();
    original_append(&connection, original_session(&connection, "main"), &talk);
    drop(connection);
    for (role, project) in [("ours", ours), ("original", original)] {
        let set = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let folder = project.path().parent().unwrap().to_owned();
        set(&project.path(), 0o444);
        set(&folder, 0o555);
        set(project.folder.path(), 0o755);
        let before = std::fs::read(project.path()).unwrap();
        // Root may write everywhere, so somebody else has to try, with a copy that they can reach.
        let program = project.folder.path().join("reader");
        azureal_testkit::programs::copy(&std::env::current_exe().unwrap(), &program);
        let mut reader =
            worker_of(&program, "sqlite_together::who_cannot_write_can_still_read", role, &project.path());
        if is_root() {
            reader.uid(65534).gid(65534);
        }
        let output = reader.output().unwrap();
        set(&folder, 0o755);
        assert!(output.status.success(), "{role}: {}", scratch::text(&output));
        assert!(std::fs::read(project.path()).unwrap() == before, "{role}");
    }
}

#[test]
fn what_cannot_be_read_is_not_called_unwritable() {
    if let Some((_, path)) = scratch::role() {
        let error = SqliteStore::open(path, SqliteOptions::default()).err().unwrap();
        assert!(matches!(error, StoreError::Unreadable { .. }), "{error:?}");
        return;
    }
    // The file itself, or only the folder that it lies in.
    for (file_mode, folder_mode) in [(0o000, 0o755), (0o600, 0o700)] {
        let project = Project::new();
        append(&project.store(), new_session(&project.store()), [Event::user("mine")]);
        let set = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(&project.path(), file_mode);
        set(project.folder.path(), 0o755);
        let program = project.folder.path().join("reader");
        azureal_testkit::programs::copy(&std::env::current_exe().unwrap(), &program);
        let test = "sqlite_together::what_cannot_be_read_is_not_called_unwritable";
        let mut reader = worker_of(&program, test, "reader", &project.path());
        if is_root() {
            reader.uid(65534).gid(65534);
        } else if folder_mode == 0o700 {
            continue; // our own folder is never closed to us
        }
        set(project.path().parent().unwrap(), folder_mode);
        let output = reader.output().unwrap();
        assert!(output.status.success(), "{file_mode:o}: {}", scratch::text(&output));
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1)) == Some("0")
}

#[test]
fn a_process_that_stops_while_it_writes_is_waited_for() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    let holder = project.raw();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| append(&store, id, [Event::user("patient")]));
        // So that it waits already. It must wait in either case.
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!appending.is_finished(), "it did not wait");
        holder.execute_batch("COMMIT").unwrap();
        appending.join().unwrap();
    });
    assert_eq!(read_all(&store, id).len(), 1);
}
