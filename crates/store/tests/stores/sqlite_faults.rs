//! What breaks: the process is killed at every system call that changes a file, the disk is full, a write or
//! a sync fails. What was acknowledged is there afterwards, whole, and nothing is there by half.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::scratch::{self, Project, append, have, new_session, read_all, role, wait, worker};
use azureal_store::core::{Event, NewSession, NewTurn, SessionStore, StoreError};
use azureal_store::sqlite::{FileNotice, SqliteStore};

const EVENTS: usize = 3;
/// How many turns a worker tries to append.
const TURNS: usize = 3;

/// The turns of these tests: large enough to touch several pages, and recognisable.
fn turn(number: usize) -> NewTurn {
    NewTurn::verbatim(
        (0..EVENTS).map(|event| Event::user(format!("{number} {event} {}", noise(number * 7 + event)))),
    )
}

/// Text that does not compress, the same each time.
fn noise(seed: usize) -> String {
    let mut state = seed as u64 + 1;
    (0..1500)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'a' + (state >> 59) as u8 % 26)
        })
        .collect()
}

/// Appends turns and says of each what became of it. Runs in a process of its own, under strace.
fn appending_worker(path: &Path) {
    let say = |line: String| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n@ {line}").unwrap();
        out.flush().unwrap();
    };
    let store = match SqliteStore::open(path, scratch::options(path)) {
        Ok(store) => store,
        Err(error) => return say(format!("unopened {}", error.kind())),
    };
    let id = match wait(store.find_or_create(NewSession {
        name: Some("s".into()),
        worktree: ".".into(),
        ..NewSession::default()
    })) {
        Ok(id) => id,
        Err(error) => return say(format!("unmade {}", error.kind())),
    };
    say("made".into());
    for number in 0..TURNS {
        match wait(store.append(id, turn(number))) {
            Ok(_) => say(format!("acknowledged {number}")),
            Err(error) => say(format!("failed {number} {}", error.kind())),
        }
    }
    drop(store);
    say("done".into());
}

/// What a worker said before it ended.
#[derive(Debug, Default)]
struct Said {
    made: bool,
    acknowledged: Vec<usize>,
    failed: Vec<(usize, String)>,
    done: bool,
    all: String,
}

/// Runs a worker with a fault at the `nth` call of `syscall`.
fn run_with(test: &str, path: &Path, syscall: &str, fault: &str, nth: usize) -> Said {
    let command = worker(test, "append", path);
    let mut strace = Command::new("strace");
    // Not with --seccomp-bpf, which is quicker and silently injects no signals.
    strace
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "signal=none"])
        .args(["-e", &format!("trace={syscall}"), "-e", &format!("inject={syscall}:{fault}:when={nth}")])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null());
    for (key, value) in command.get_envs() {
        strace.env(key, value.unwrap());
    }
    let output = strace.output().unwrap();
    let mut said = Said { all: scratch::text(&output), ..Said::default() };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["@", "made"] => said.made = true,
            ["@", "acknowledged", number] => said.acknowledged.push(number.parse().unwrap()),
            ["@", "failed", number, kind] => said.failed.push((number.parse().unwrap(), (*kind).to_owned())),
            ["@", "done"] => said.done = true,
            _ => {}
        }
    }
    said
}

/// Checks that the file is sound and holds whole turns; returns which.
fn whole_turns(project: &Project) -> Vec<usize> {
    let store = project.store();
    let Some(id) = wait(store.find("s")).unwrap().first().copied() else {
        return Vec::new();
    };
    let texts: Vec<String> = read_all(&store, id)
        .into_iter()
        .map(|stored| match stored.event().unwrap() {
            Event::UserMessage(message) => message.content,
            other => panic!("{other:?}"),
        })
        .collect();
    let turns = texts
        .chunks(EVENTS)
        .map(|events| {
            let number: usize = events[0].split(' ').next().unwrap().parse().unwrap();
            let expected: Vec<String> = turn(number)
                .events
                .iter()
                .map(|new| match new.event() {
                    Event::UserMessage(message) => message.content.clone(),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert!(events == expected, "half a turn, or another one");
            number
        })
        .collect();
    let counts = wait(store.get(id)).unwrap().counts;
    assert_eq!(counts.events as usize, texts.len());
    drop(store);
    let sound: String = project.raw().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    turns
}

/// Injects `fault` at the first, second, third … call of each kind until a run is not hit any more, and has
/// `check` look at what each run said. Returns how many runs were hit.
fn at_every_call(
    test: &str,
    make: impl Fn() -> Project,
    syscalls: &[&str],
    fault: &str,
    check: impl Fn(&Project, &Said),
) -> usize {
    let mut points = 0;
    for syscall in syscalls {
        for nth in 1.. {
            assert!(nth < 400, "{syscall} never ends");
            let project = make();
            let said = run_with(test, &project.path(), syscall, fault, nth);
            check(&project, &said);
            if said.done && said.failed.is_empty() {
                break;
            }
            points += 1;
        }
    }
    points
}

const CHANGING: [&str; 8] =
    ["openat", "pwrite64", "fsync", "fdatasync", "ftruncate", "unlink", "rename", "renameat2"];

/// After a kill: everything acknowledged is there, at most one more turn, and the next one can be appended.
fn check_after_kill(project: &Project, said: &Said) {
    if !project.path().exists() {
        assert!(!said.made, "{}", said.all);
        return;
    }
    let turns = whole_turns(project);
    assert!(turns.starts_with(&said.acknowledged), "{turns:?} {}", said.all);
    assert!(turns.len() <= said.acknowledged.len() + 1, "{turns:?} {}", said.all);
    let store = project.store();
    let id = wait(store.find_or_create(NewSession {
        name: Some("s".into()),
        worktree: ".".into(),
        ..NewSession::default()
    }))
    .unwrap();
    wait(store.append(id, turn(9))).unwrap();
    drop(store);
    assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
}

#[test]
fn a_kill_at_any_call_of_an_append_loses_nothing() {
    if let Some((_, path)) = role() {
        return appending_worker(&path);
    }
    if !have("strace") {
        return;
    }
    let with_history = || {
        let project = Project::new();
        let store = project.store();
        let id = wait(store.create(NewSession {
            name: Some("other".into()),
            worktree: ".".into(),
            ..NewSession::default()
        }))
        .unwrap();
        append(&store, id, (0..200).map(|number| Event::user(noise(number))));
        wait(store.create(NewSession {
            name: Some("s".into()),
            worktree: ".".into(),
            ..NewSession::default()
        }))
        .unwrap();
        project
    };
    let test = "sqlite_faults::a_kill_at_any_call_of_an_append_loses_nothing";
    let points = at_every_call(test, with_history, &CHANGING, "signal=SIGKILL", check_after_kill);
    eprintln!("killed at {points} points");
    assert!(points > 30, "only {points} points: the fault is not injected");
}

#[test]
fn a_kill_at_any_call_of_the_first_append_leaves_a_whole_store_or_none() {
    if let Some((_, path)) = role() {
        return appending_worker(&path);
    }
    if !have("strace") {
        return;
    }
    let test = "sqlite_faults::a_kill_at_any_call_of_the_first_append_leaves_a_whole_store_or_none";
    let points = at_every_call(test, Project::new, &CHANGING, "signal=SIGKILL", check_after_kill);
    eprintln!("killed at {points} points");
    assert!(points > 30, "only {points} points: the fault is not injected");
}

/// The calls that change a file or one of its names.
const RENAMING: [&str; 11] = [
    "openat",
    "pwrite64",
    "fsync",
    "fdatasync",
    "ftruncate",
    "unlink",
    "rename",
    "renameat2",
    "link",
    "linkat",
    "mkdirat",
];

/// Deletes the folder of the store, as `git clean -fdx` does, and returns what opening it again reports.
fn clean_and_reopen(project: &Project) -> Option<FileNotice> {
    std::fs::remove_dir_all(project.path().parent().unwrap()).ok();
    let notices = project.store().notices().take();
    assert!(notices.len() <= 1, "{notices:?}");
    notices.into_iter().next()
}

#[test]
fn a_kill_at_any_call_and_a_clean_afterwards_lose_nothing_that_is_not_reported() {
    if let Some((_, path)) = role() {
        return appending_worker(&path);
    }
    if !have("strace") {
        return;
    }
    let test = "sqlite_faults::a_kill_at_any_call_and_a_clean_afterwards_lose_nothing_that_is_not_reported";
    let damaged = std::cell::Cell::new(0);
    let points = at_every_call(test, Project::in_git, &RENAMING, "signal=SIGKILL", |project, said| {
        let has_second_name = project.second_name().exists();
        match clean_and_reopen(project) {
            // Killed in the middle of a commit.
            Some(FileNotice::Damaged { kept, .. }) => {
                assert!(kept.exists() && !said.done, "{}", said.all);
                damaged.set(damaged.get() + 1);
            }
            Some(FileNotice::PutBack { lacks_log: false, .. }) => {
                let turns = whole_turns(project);
                assert!(turns.starts_with(&said.acknowledged), "{turns:?} {}", said.all);
            }
            Some(other) => panic!("{other:?}"),
            // Killed before it had its second name.
            None => assert!(!has_second_name && !said.made, "{}", said.all),
        }
        let store = project.store();
        new_session(&store);
        drop(store);
        assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
    });
    eprintln!("killed at {points} points, {} times in a commit", damaged.get());
    assert!(points > 40 && damaged.get() < points / 4, "{points} points, {} damaged", damaged.get());
}

#[test]
fn a_kill_at_any_call_of_putting_the_store_back_leaves_it_to_the_next() {
    if let Some((_, path)) = role() {
        return appending_worker(&path);
    }
    if !have("strace") {
        return;
    }
    let cleaned = || {
        let project = Project::in_git();
        let store = project.store();
        let id = wait(store.create(NewSession {
            name: Some("s".into()),
            worktree: ".".into(),
            ..NewSession::default()
        }))
        .unwrap();
        wait(store.append(id, turn(7))).unwrap();
        drop(store);
        std::fs::remove_dir_all(project.path().parent().unwrap()).unwrap();
        project
    };
    let test = "sqlite_faults::a_kill_at_any_call_of_putting_the_store_back_leaves_it_to_the_next";
    let points = at_every_call(test, cleaned, &RENAMING, "signal=SIGKILL", |project, said| {
        let mut turns = whole_turns(project);
        assert_eq!(turns.remove(0), 7);
        assert!(turns.starts_with(&said.acknowledged), "{turns:?} {}", said.all);
        new_session(&project.store());
        assert_eq!(project.files(), [".gitignore", "sessions.azs"]);
        assert_eq!(std::fs::read_dir(project.second_name().parent().unwrap()).unwrap().count(), 1);
    });
    eprintln!("killed at {points} points");
    assert!(points > 40, "only {points} points: the fault is not injected");
}

#[test]
fn a_write_or_sync_that_fails_is_an_error_and_the_next_turn_is_stored() {
    if let Some((_, path)) = role() {
        return appending_worker(&path);
    }
    if !have("strace") {
        return;
    }
    let with_session = || {
        let project = Project::new();
        wait(project.store().create(NewSession {
            name: Some("s".into()),
            worktree: ".".into(),
            ..NewSession::default()
        }))
        .unwrap();
        project
    };
    let test = "sqlite_faults::a_write_or_sync_that_fails_is_an_error_and_the_next_turn_is_stored";
    let mut points = 0;
    for (syscalls, fault, kind) in [
        (&["pwrite64"][..], "error=ENOSPC", Some("full")),
        (&["pwrite64"][..], "error=EIO", None),
        (&["fsync", "fdatasync"][..], "error=EIO", None),
    ] {
        points += at_every_call(test, with_session, syscalls, fault, |project, said| {
            assert!(said.done, "{}", said.all);
            assert!(said.failed.len() <= 1, "{}", said.all);
            if let (Some((_, failed)), Some(kind)) = (said.failed.first(), kind) {
                assert_eq!(failed, kind, "{}", said.all);
            }
            // What failed is not there, unless its fate was decided before the error: never by half.
            let turns = whole_turns(project);
            let stored: Vec<usize> =
                turns.iter().copied().filter(|number| said.acknowledged.contains(number)).collect();
            assert_eq!(stored, said.acknowledged, "{turns:?} {}", said.all);
        });
    }
    eprintln!("failed at {points} points");
    assert!(points > 20, "only {points} points: the fault is not injected");
}

#[test]
fn a_full_disk_is_said_and_writing_goes_on_when_there_is_room() {
    let project = Project::new();
    let folder = project.folder.path().to_owned();
    let mount = |options: &str| {
        Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "azureal-test"])
            .arg(&folder)
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    if !mount("size=512k") {
        eprintln!("\n*** SKIPPED: no right to mount a small disk; the injected faults cover the rest ***\n");
        return;
    }
    let filled = std::panic::catch_unwind(|| {
        let store = project.store();
        let id = new_session(&store);
        let mut stored = 0;
        let error = loop {
            match wait(store.append(id, turn(stored))) {
                Ok(_) => stored += 1,
                Err(error) => break error,
            }
            assert!(stored < 1000, "the disk never fills");
        };
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(azureal_store::hint(&error).is_some_and(|hint| hint.contains("make room")));
        assert_eq!(read_all(&store, id).len(), stored * EVENTS);
        assert!(mount("remount,size=8m"));
        for number in stored..stored + 20 {
            wait(store.append(id, turn(number))).unwrap();
        }
        assert_eq!(read_all(&store, id).len(), (stored + 20) * EVENTS);
        assert!(stored > 10, "only {stored} turns fitted");
    });
    assert!(Command::new("umount").arg(&folder).status().unwrap().success());
    filled.unwrap();
}

#[test]
fn the_check_finds_half_a_turn() {
    let project = Project::new();
    let store = project.store();
    let id = wait(store.create(NewSession {
        name: Some("s".into()),
        worktree: ".".into(),
        ..NewSession::default()
    }))
    .unwrap();
    let half =
        NewTurn { events: turn(0).events.into_iter().take(EVENTS - 1).collect(), ..NewTurn::default() };
    wait(store.append(id, half)).unwrap();
    drop(store);
    assert!(std::panic::catch_unwind(|| whole_turns(&project)).is_err());
}
