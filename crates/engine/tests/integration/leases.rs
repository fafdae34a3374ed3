//! Many processes that want the lease of one session, some of which are killed.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use azureal_core::{Holder, SessionId};
use azureal_engine::{Leased, Spools, this_process};

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
    let kills = if std::env::var_os("AZUREAL_THOROUGH").is_some() { 1_000 } else { 20 };
    let folder = tempfile::tempdir().unwrap();
    let spools = Spools::new(folder.path().join("spool"));
    fs::write(folder.path().join("inside"), "").unwrap();
    let mut processes: Vec<Child> = (0..PROCESSES).map(|_| competitor(folder.path())).collect();
    let taken = || fs::metadata(folder.path().join("taken")).map_or(0, |taken| taken.len());
    for number in 0..kills {
        // Some progress between two kills, so that they hit every step.
        let before = taken();
        while taken() < before + 10 {
            for process in &mut processes {
                assert_eq!(process.try_wait().unwrap(), None, "a process ended: its output says why");
            }
            thread::sleep(Duration::from_millis(1));
            assert!(spools.find().unwrap().is_empty());
        }
        let killed = &mut processes[number % PROCESSES];
        killed.kill().unwrap();
        killed.wait().unwrap();
        *killed = competitor(folder.path());
    }
    fs::write(folder.path().join("stop"), "").unwrap();
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
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

/// Takes and releases the lease in several threads until there is a file `stop`.
fn compete(folder: &Path) {
    // Opened before any lease: a process that is killed closes its files in their order, so this lock goes first.
    let inside: Vec<File> = (0..THREADS).map(|_| File::open(folder.join("inside")).unwrap()).collect();
    thread::scope(|scope| {
        for (number, inside) in inside.iter().enumerate() {
            scope.spawn(move || compete_in_thread(folder, number, inside));
        }
    });
}

fn compete_in_thread(folder: &Path, number: usize, inside: &File) {
    let spools = Spools::new(folder.join("spool"));
    let session = SessionId::new(1).unwrap();
    let us = Holder { user: format!("thread {number}"), ..this_process("claude") };
    let mut taken = OpenOptions::new().create(true).append(true).open(folder.join("taken")).unwrap();
    while !folder.join("stop").exists() {
        if number == 0 {
            // Cleans up, as every command does.
            assert!(spools.find().unwrap().is_empty());
        }
        let Leased::Ours(lease) = spools.lease(session, &us).unwrap() else { continue };
        assert!(inside.try_lock().is_ok(), "two processes hold the lease");
        let again = spools.lease(session, &us).unwrap();
        assert!(
            matches!(&again, Leased::Theirs(Some(holder)) if *holder == us),
            "lost while held: {again:?}"
        );
        taken.write_all(b".").unwrap();
        inside.unlock().unwrap();
        drop(lease);
    }
}
