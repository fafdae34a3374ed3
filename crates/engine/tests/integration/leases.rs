//! Many processes that want the lease of one session, some of which are killed.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use azureal_core::{Holder, SessionId};
use azureal_engine::{Leased, Spools, this_process};
use azureal_testkit::thorough;

use crate::machine::busy;

/// Names the folder to a process that competes.
const FOLDER: &str = "AZUREAL_TEST_LEASES";
const PROCESSES: usize = 6;
const THREADS: usize = 4;

#[test]
fn one_of_many_processes_holds_a_lease_whoever_is_killed() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return compete(Path::new(&folder));
    }
    let _busy = busy();
    let kills = thorough(20, 1_000);
    let folder = tempfile::tempdir().unwrap();
    let spools = Spools::new(folder.path().join("spool"));
    fs::write(folder.path().join("inside"), "0").unwrap();
    let mut processes: Vec<Child> = (0..PROCESSES).map(|_| competitor(folder.path())).collect();
    let taken = || fs::metadata(folder.path().join("taken")).map_or(0, |taken| taken.len());
    for number in 0..kills {
        // Some progress between two kills, so that they hit every step.
        let before = taken();
        while taken() < before + 10 {
            assert_none_failed(folder.path());
            thread::sleep(Duration::from_millis(1));
            assert!(spools.find().unwrap().is_empty());
        }
        let killed = &mut processes[number % PROCESSES];
        fs::write(folder.path().join(format!("killed-{}", killed.id())), "").unwrap();
        killed.kill().unwrap();
        killed.wait().unwrap();
        *killed = competitor(folder.path());
    }
    fs::write(folder.path().join("stop"), "").unwrap();
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    assert_none_failed(folder.path());
    eprintln!("{} leases, {kills} kills", taken());
    assert!(spools.find().unwrap().is_empty());
    assert_eq!(fs::read_dir(folder.path().join("spool")).unwrap().count(), 0, "files are left");
}

fn competitor(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "leases::one_of_many_processes_holds_a_lease_whoever_is_killed", "--nocapture"])
        .env(FOLDER, folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[track_caller]
fn assert_none_failed(folder: &Path) {
    let failed = fs::read_to_string(folder.join("failed")).unwrap_or_default();
    assert!(failed.is_empty(), "{failed}");
}

/// Takes and releases the lease in several threads until there is a file `stop`.
fn compete(folder: &Path) {
    // Also of a process that is killed afterwards.
    let failed = folder.join("failed");
    std::panic::set_hook(Box::new(move |panic| fs::write(&failed, panic.to_string()).unwrap()));
    thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || compete_in_thread(folder, number));
        }
    });
}

fn compete_in_thread(folder: &Path, number: usize) {
    let spools = Spools::new(folder.join("spool"));
    let session = SessionId::new(1).unwrap();
    let us = Holder { user: format!("thread {number}"), ..this_process("claude") };
    let inside = File::options().read(true).write(true).open(folder.join("inside")).unwrap();
    let mut taken = File::options().create(true).append(true).open(folder.join("taken")).unwrap();
    while !folder.join("stop").exists() {
        if number == 0 {
            // Cleans up, as every command does.
            assert!(spools.find().unwrap().is_empty());
        }
        let Leased::Ours(lease) = spools.lease(session, &us).unwrap() else { continue };
        let before = exchange(&inside, us.pid);
        let is_left = before == 0 || folder.join(format!("killed-{before}")).exists();
        assert!(is_left, "{before} holds the lease too");
        let again = spools.lease(session, &us).unwrap();
        assert!(
            matches!(&again, Leased::Theirs(Some(holder)) if *holder == us),
            "lost while held: {again:?}"
        );
        taken.write_all(b".").unwrap();
        assert_eq!(exchange(&inside, 0), us.pid, "another one came in");
        drop(lease);
    }
}

/// Writes which process is inside, and returns which was before; 0 if none.
fn exchange(inside: &File, pid: u32) -> u32 {
    let mut before = [0; 20];
    let length = inside.read_at(&mut before, 0).unwrap();
    let before = std::str::from_utf8(&before[..length]).unwrap().trim().parse().unwrap();
    assert_eq!(inside.write_at(format!("{pid:<20}").as_bytes(), 0).unwrap(), 20);
    before
}
