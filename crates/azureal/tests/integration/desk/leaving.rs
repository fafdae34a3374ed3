//! Leaving with a turn running: in a process of its own, as an interface is one.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use azureal::desk::{News, Request, TurnNews};
use azureal_testkit::until;

use super::{Listener, WAITING_CLAUDE, World, said, session};

/// The folder of the world, for the process that leaves.
const WORLD: &str = "AZUREAL_TEST_DESK_WORLD";
/// How it leaves.
const HOW: &str = "AZUREAL_TEST_DESK_LEAVES";

/// Runs a test again in a process of its own, which leaves a desk with a turn running.
fn leave_in_process(world: &World, test: &str, how: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(WORLD, world.folder.path())
        .env(HOW, how)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("left with the agent running"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Is the process that leaves; returns whether this is one.
fn is_leaving() -> bool {
    let Some(folder) = std::env::var_os(WORLD) else { return false };
    let folder = Path::new(&folder);
    let desk = Listener::of(World::workspace_in(folder));
    desk.send("Why?");
    until("the agent runs", || folder.join("running").exists().then_some(()));
    println!("left with the agent running");
    if std::env::var_os(HOW).is_some_and(|how| how == "killed") {
        std::process::abort();
    }
    desk.desk.leave();
    // Without waiting for any thread.
    std::process::exit(0);
}

/// Checks that a turn without its azureal is shown live and stored exactly once.
fn check(world: &World) {
    let pid: u32 = fs::read_to_string(world.path("running")).unwrap().trim().parse().unwrap();
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "the agent continues");
    let desk = world.desk();
    let shown = desk.until("what was kept", |news| match news {
        News::Restored(kept) => Some(kept.shown),
        _ => None,
    });
    let record = futures_executor::block_on(world.workspace().store.get(session(1))).unwrap();
    assert_eq!(shown, record.uuid.map(|uuid| uuid.to_string()), "it is shown first");
    assert!(shown.is_some());
    desk.open(session(1));
    desk.until_turn("the output so far", |news| match news {
        TurnNews::Output(outputs) => said(&outputs).contains(&"Half.".to_owned()).then_some(()),
        _ => None,
    });
    world.release();
    let mut told = Vec::new();
    desk.until_turn("the end", |news| {
        told.push(super::word(&news));
        if let TurnNews::Output(outputs) = &news {
            told.extend(said(outputs));
        }
        matches!(news, TurnNews::Over { .. }).then_some(())
    });
    assert!(told.contains(&"Whole.".to_owned()), "{told:?}");
    assert!(told.contains(&"stored S1 1-5 done".to_owned()), "{told:?}");
    assert_eq!(desk.texts(session(1)), ["Why?", "Half.", "Whole.", "(done)"]);
    drop(desk);
    let third = world.desk();
    third.open(session(1));
    let news = third.rest();
    assert!(!news.iter().any(|news| news.starts_with("Turn")), "{news:?}");
    assert_eq!(third.texts(session(1)), ["Why?", "Half.", "Whole.", "(done)"]);
    let spools = fs::read_dir(world.path("project/.azureal/spool")).map_or(0, Iterator::count);
    assert_eq!(spools, 0, "nothing of it is left to be stored");
}

#[test]
fn a_turn_continues_when_its_desk_is_left_and_the_next_desk_shows_and_stores_it() {
    if is_leaving() {
        return;
    }
    let world = World::new(WAITING_CLAUDE);
    let test = "desk::leaving::a_turn_continues_when_its_desk_is_left_and_the_next_desk_shows_and_stores_it";
    leave_in_process(&world, test, "left");
    check(&world);
}

#[test]
fn a_turn_continues_when_its_process_is_killed() {
    if is_leaving() {
        return;
    }
    let world = World::new(WAITING_CLAUDE);
    leave_in_process(&world, "desk::leaving::a_turn_continues_when_its_process_is_killed", "killed");
    check(&world);
}

#[test]
fn the_turn_of_a_process_that_is_gone_is_stored_though_nobody_has_it_open() {
    if is_leaving() {
        return;
    }
    let world = World::new(WAITING_CLAUDE);
    let test = "desk::leaving::the_turn_of_a_process_that_is_gone_is_stored_though_nobody_has_it_open";
    leave_in_process(&world, test, "left");
    let desk = world.desk();
    desk.desk.perform(Request::List { all_worktrees: false, limit: 10 });
    desk.until("the running turn in the list", |news| match news {
        News::Sessions(lines) => {
            lines[0].active.as_ref().filter(|turn| turn.orphan && turn.agent == "claude").map(drop)
        }
        _ => None,
    });
    world.release();
    desk.until("the stored turn in the list", |news| match news {
        News::Sessions(lines) => {
            (lines[0].active.is_none() && lines[0].record.completed == Some(true)).then_some(())
        }
        _ => None,
    });
    assert_eq!(desk.texts(session(1)), ["Why?", "Half.", "Whole.", "(done)"]);
}

#[test]
fn the_turn_of_a_process_that_is_gone_can_be_cancelled() {
    if is_leaving() {
        return;
    }
    let world = World::new(WAITING_CLAUDE);
    let test = "desk::leaving::the_turn_of_a_process_that_is_gone_can_be_cancelled";
    leave_in_process(&world, test, "left");
    let desk = world.desk();
    desk.open(session(1));
    desk.until_turn("begin", |news| matches!(news, TurnNews::Began { is_ours: false, .. }).then_some(()));
    // Opened again, it is shown again from its beginning.
    desk.open(session(1));
    desk.until_turn("end", |news| matches!(news, TurnNews::Over { .. }).then_some(()));
    desk.until_turn("begin", |news| matches!(news, TurnNews::Began { is_ours: false, .. }).then_some(()));
    desk.desk.perform(Request::Cancel { pane: super::PANE });
    let told = desk.turn();
    assert!(told.ends_with(&["stored S1 1-4 cancelled".to_owned(), "over".to_owned()]), "{told:?}");
    assert_eq!(desk.texts(session(1)), ["Why?", "Half.", "(cancelled)"]);
}

/// Runs a test in a process of its own, whose threads it counts. Returns the world in that process.
#[cfg(target_os = "linux")]
fn in_own_process(test: &str, prepare: impl FnOnce(&World)) -> Option<std::ffi::OsString> {
    if let Some(folder) = std::env::var_os(WORLD) {
        return Some(folder);
    }
    let world = World::new("");
    prepare(&world);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(WORLD, world.folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    None
}

/// A process that is idle is not woken: the count of its waits does not grow.
#[cfg(target_os = "linux")]
fn assert_idle() {
    // What a change has set off is over after a while.
    std::thread::sleep(std::time::Duration::from_secs(3));
    // This thread sleeps, and the first one waits for it.
    let ours = fs::read_link("/proc/thread-self").unwrap();
    let ours = [ours.file_name().unwrap().to_owned(), std::process::id().to_string().into()];
    let waits = || -> Vec<(String, String)> {
        let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap());
        let others = tasks.filter(|task| !ours.contains(&task.file_name()));
        let waits = |task: fs::DirEntry| {
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
            Some((value("Name:")?.trim().to_owned(), value("voluntary_ctxt_switches:")?.trim().to_owned()))
        };
        let mut waits: Vec<(String, String)> = others.filter_map(waits).collect();
        waits.sort();
        waits
    };
    let before = waits();
    assert!(before.len() >= 3, "{before:?}");
    std::thread::sleep(std::time::Duration::from_secs(10));
    assert_eq!(waits(), before, "the threads of the desk and the store");
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_desk_wakes_up_for_nothing() {
    let test = "desk::leaving::an_idle_desk_wakes_up_for_nothing";
    let create = |world: &World| {
        azureal::block_on(world.workspace().create_session("first")).unwrap();
    };
    let Some(folder) = in_own_process(test, create) else { return };
    let desk = Listener::of(World::workspace_in(Path::new(&folder)));
    desk.desk.perform(Request::List { all_worktrees: false, limit: 10 });
    desk.open(session(1));
    desk.until("opened", |news| matches!(news, News::Opened(_)).then_some(()));
    desk.desk.perform(Request::Keep(Box::default()));
    assert_idle();
}

#[cfg(target_os = "linux")]
#[test]
fn a_desk_without_a_store_wakes_up_when_another_process_creates_one() {
    let test = "desk::leaving::a_desk_without_a_store_wakes_up_when_another_process_creates_one";
    let Some(folder) = in_own_process(test, |_| {}) else { return };
    let desk = Listener::of(World::workspace_in(Path::new(&folder)));
    desk.desk.perform(Request::List { all_worktrees: false, limit: 10 });
    let sessions = |count: usize| {
        desk.until("sessions", |news| match news {
            News::Sessions(lines) => (lines.len() == count).then_some(()),
            _ => None,
        });
    };
    sessions(0);
    assert_idle();
    let other = World::workspace_in(Path::new(&folder));
    for count in 1..=2 {
        azureal::block_on(other.create_session(&format!("session {count}"))).unwrap();
        sessions(count);
    }
    assert_idle();
}
