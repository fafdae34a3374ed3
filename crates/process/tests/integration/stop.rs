//! Nothing of a run is left, whatever it does against it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::scratch::{Scratch, in_own_process, own_environment, role, until, wait};
use azureal_process::{
    Child, Exit, Marker, MarkersInUse, ProcessIdentity, StopReport, StopTimeouts, Stopped, end_marked,
    find_marked, stop,
};

/// Short steps, so that the tests are quick; what happens in them is the same.
fn timeouts() -> StopTimeouts {
    StopTimeouts {
        interrupt: Duration::from_millis(300),
        terminate: Duration::from_millis(300),
        ..StopTimeouts::default()
    }
}

/// Starts a run, waits until `count` of its processes have said that they run, stops it, and looks for survivors.
#[track_caller]
fn check(scratch: &Scratch, script: &str, count: usize, expected: Stopped) -> (StopReport, Exit) {
    let child = scratch.sh(script).start().unwrap();
    let processes = scratch.pids(count);
    let report = child.stop(&timeouts());
    assert_eq!(report.stopped, expected, "{report:?}");
    assert_eq!(report.survivors, []);
    assert_gone(scratch, &child, &processes);
    (report, child.try_wait().expect("ended, and collected"))
}

#[track_caller]
fn assert_gone(scratch: &Scratch, child: &Child, processes: &[ProcessIdentity]) {
    assert_eq!(find_marked(&scratch.marker), []);
    for process in processes {
        assert!(!process.is_alive(), "{process}");
    }
    // Not even as a zombie.
    assert_ne!(ProcessIdentity::of(child.pid()).as_ref(), Some(child.identity()));
}

#[test]
fn an_agent_that_listens_is_only_interrupted() {
    let scratch = Scratch::new();
    let script = "trap 'echo cleaned; exit 0' INT; echo $$ >> pids; while :; do sleep 0.01; done";
    let (report, exit) = check(&scratch, script, 1, Stopped::Interrupted);
    assert_eq!(exit, Exit::Code(0));
    assert_eq!(scratch.text(), "cleaned\n");
    assert!(report.strays <= 1, "at most the sleep that was just running");
}

#[test]
fn one_that_ignores_the_interrupt_is_terminated() {
    let scratch = Scratch::new();
    let script = "trap '' INT; echo $$ >> pids; while :; do sleep 0.01; done";
    let (_, exit) = check(&scratch, script, 1, Stopped::Terminated);
    assert_eq!(exit, Exit::Signal(15));
}

#[test]
fn one_that_ignores_everything_is_killed() {
    let scratch = Scratch::new();
    let script = "trap '' INT TERM HUP; echo $$ >> pids; while :; do sleep 0.01; done";
    let (_, exit) = check(&scratch, script, 1, Stopped::Killed);
    assert_eq!(exit, Exit::Signal(9));
}

#[test]
fn one_that_stops_itself_is_woken_to_hear_it() {
    let scratch = Scratch::new();
    let script =
        "trap 'echo cleaned; exit 0' INT; echo $$ >> pids; kill -STOP $$; while :; do sleep 0.01; done";
    let child = scratch.sh(script).start().unwrap();
    let processes = scratch.pids(1);
    until("it has stopped", || {
        let state =
            Command::new("ps").args(["-o", "stat=", "-p", &child.pid().to_string()]).output().unwrap();
        state.stdout.starts_with(b"T")
    });
    assert_eq!(child.stop(&timeouts()).stopped, Stopped::Interrupted);
    assert_gone(&scratch, &child, &processes);
    assert_eq!(scratch.text(), "cleaned\n");
}

#[test]
fn a_kill_reaches_the_family_and_a_sweep_the_rest_of_several_runs() {
    let scratch = Scratch::new();
    let script = "trap '' INT TERM; echo $$ >> pids
        sh -c 'trap \"\" TERM; echo $$ >> pids; exec sleep 1000' &
        env -i setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
        setsid sh -c 'setsid sh -c \"trap : TERM; echo \\$\\$ >> pids; while :; do sleep 0.01; done\" &'
        while :; do sleep 0.01; done";
    let children = [1, 2].map(|_| scratch.sh(script).start().unwrap());
    let processes = scratch.pids(8);
    for child in &children {
        child.kill();
        assert_eq!(wait(child), Exit::Signal(9));
    }
    let report = end_marked(&scratch.marker, &timeouts());
    assert_eq!((report.stopped, report.survivors), (Stopped::Already, vec![]));
    assert!(report.strays >= 2, "those that had left");
    for child in &children {
        assert_gone(&scratch, child, &processes);
    }
    children[0].kill();
    let nothing = StopReport { stopped: Stopped::Already, strays: 0, survivors: vec![] };
    assert_eq!(end_marked(&scratch.marker, &timeouts()), nothing);
}

#[test]
fn fifty_children_that_ignore_everything_are_gone() {
    let scratch = Scratch::new();
    let script = "trap '' INT TERM; i=0
        while [ $i -lt 50 ]; do i=$((i+1)); sh -c 'echo $$ >> pids; exec sleep 1000' & done
        echo $$ >> pids; wait";
    check(&scratch, script, 51, Stopped::Killed);
}

#[test]
fn children_of_one_that_leaves_at_once_are_gone() {
    let scratch = Scratch::new();
    let script = "i=0
        while [ $i -lt 50 ]; do i=$((i+1)); sh -c 'trap \"\" TERM; echo $$ >> pids; sleep 1000' & done
        echo $$ >> pids; wait";
    let (report, exit) = check(&scratch, script, 51, Stopped::Interrupted);
    assert_eq!(exit, Exit::Signal(2));
    assert!(report.strays >= 50, "{report:?}");
}

#[test]
fn one_that_has_left_its_parents_is_gone() {
    let scratch = Scratch::new();
    let script = "(sh -c 'echo $$ >> pids; exec sleep 1000' &) ; echo $$ >> pids; exec sleep 1000";
    let (report, _) = check(&scratch, script, 2, Stopped::Interrupted);
    assert_eq!(report.strays, 1);
}

/// Becomes a process in a session of its own, as agents start their tools, and stays.
fn live_in_a_session_of_its_own(folder: &Path) {
    rustix::process::setsid().unwrap();
    let mut pids = OpenOptions::new().append(true).create(true).open(folder.join("pids")).unwrap();
    writeln!(pids, "{}", std::process::id()).unwrap();
    loop {
        thread::park();
    }
}

/// A command for the shell that runs the given test of this program as a worker.
fn worker_command(test: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!("'{}' --exact {test} --nocapture", program.display())
}

#[test]
fn one_in_a_session_of_its_own_is_gone() {
    if let Some((_, folder)) = role() {
        return live_in_a_session_of_its_own(&folder);
    }
    let test = "stop::one_in_a_session_of_its_own_is_gone";
    for (orphan, leader, stopped) in [
        ("&", "exec sleep 1000", Stopped::Interrupted),
        ("&", "trap '' INT TERM; while :; do sleep 0.01; done", Stopped::Killed),
        // Its parent gone as well: only the marker leads to it.
        ("orphan", "exec sleep 1000", Stopped::Interrupted),
    ] {
        let scratch = Scratch::new();
        let set = format!(
            "export AZUREAL_TEST_ROLE=session AZUREAL_TEST_PATH='{}'",
            scratch.folder.path().display()
        );
        let tool = worker_command(test);
        let tool = if orphan == "orphan" { format!("({tool} &)") } else { format!("{tool} &") };
        let script = format!("{set}; echo $$ >> pids; {tool}\n{leader}");
        let (report, _) = check(&scratch, &script, 2, stopped);
        assert!(stopped == Stopped::Killed || report.strays == 1, "{report:?}");
    }
}

#[test]
fn a_tool_without_the_marker_is_known_by_its_parents() {
    if let Some((_, folder)) = role() {
        return live_in_a_session_of_its_own(&folder);
    }
    let scratch = Scratch::new();
    let worker = worker_command("stop::a_tool_without_the_marker_is_known_by_its_parents");
    let folder = scratch.folder.path().display();
    let script = format!(
        "echo $$ >> pids; env -i AZUREAL_TEST_ROLE=session AZUREAL_TEST_PATH='{folder}' {worker} & wait"
    );
    let child = scratch.sh(&script).start().unwrap();
    let processes = scratch.pids(2);
    assert_eq!(find_marked(&scratch.marker), [child.identity().clone()]);
    let report = child.stop(&timeouts());
    assert_eq!(report, StopReport { stopped: Stopped::Interrupted, strays: 1, survivors: vec![] });
    assert_gone(&scratch, &child, &processes);
}

#[test]
fn the_child_below_a_wrapper_is_asked_to_end() {
    let scratch = Scratch::new();
    // A wrapper that does not hand signals on, and a native child that ends well when asked to.
    let native = "trap 'echo native ended; exit 0' TERM; echo $$ >> pids; while :; do sleep 0.01; done";
    fs::write(scratch.path("native"), native).unwrap();
    let script = "trap '' INT; trap ':' TERM; echo $$ >> pids; sh ./native & while kill -0 $! 2>/dev/null; do wait; done; exit 5";
    let (_, exit) = check(&scratch, script, 2, Stopped::Terminated);
    assert_eq!(exit, Exit::Code(5));
    assert_eq!(scratch.text(), "native ended\n");
}

#[test]
fn each_harder_step_is_logged_without_the_command() {
    let scratch = Scratch::new();
    let path = scratch.path("log");
    let script = "a_secret=1; trap '' INT TERM; echo $$ >> pids; while :; do sleep 0.01; done";
    let log = tracing_subscriber::fmt().with_ansi(false).without_time();
    let log = log.with_writer(std::sync::Mutex::new(fs::File::create(&path).unwrap())).finish();
    tracing::subscriber::with_default(log, || check(&scratch, script, 1, Stopped::Killed));
    let log = fs::read_to_string(&path).unwrap();
    for part in [
        "still running after SIGINT: sends SIGTERM pid=",
        "still running after SIGTERM: kills the process group pid=",
        "stopped=Killed",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(!log.contains("a_secret") && !log.contains("sleep"), "{log}");
}

#[test]
fn a_child_that_does_not_read_ten_megabytes_is_gone() {
    let scratch = Scratch::new();
    let mut spawn = scratch.sh("trap '' INT TERM; echo $$ >> pids; while :; do sleep 0.01; done");
    spawn.stdin = vec![b'x'; 10_000_000];
    let child = spawn.start().unwrap();
    let processes = scratch.pids(1);
    assert_eq!(child.stop(&timeouts()).stopped, Stopped::Killed);
    assert_gone(&scratch, &child, &processes);
}

#[test]
fn what_a_run_left_behind_when_it_ended_is_gone() {
    let scratch = Scratch::new();
    let child =
        scratch.sh("(sh -c 'echo $$ >> pids; exec sleep 1000' &) ; read line; exit 7").start().unwrap();
    let processes = scratch.pids(1);
    assert_eq!(wait(&child), Exit::Code(7));
    assert!(processes[0].is_alive());
    let report = child.stop(&timeouts());
    assert_eq!(report, StopReport { stopped: Stopped::Already, strays: 1, survivors: vec![] });
    assert_gone(&scratch, &child, &processes);
    let again = child.stop(&timeouts());
    assert_eq!(again, StopReport { stopped: Stopped::Already, strays: 0, survivors: vec![] });
}

#[test]
fn one_that_forks_without_end_is_gone() {
    let scratch = Scratch::new();
    // Each one starts the next in a new shell and goes away, so that it is never the same process.
    fs::write(scratch.path("next"), "trap '' TERM INT; sleep 0.005; sh ./next & exit").unwrap();
    let script = "sh ./next & echo $$ >> pids; exec sleep 1000";
    let (report, _) = check(&scratch, script, 1, Stopped::Interrupted);
    assert!(report.strays >= 1, "{report:?}");
}

#[test]
fn by_default_it_takes_no_three_seconds_and_a_half() {
    let scratch = Scratch::new();
    let script = "trap '' INT TERM; echo $$ >> pids; sh -c 'echo $$ >> pids; sleep 1000' & while :; do sleep 0.01; done";
    let child = scratch.sh(script).start().unwrap();
    let processes = scratch.pids(2);
    let start = Instant::now();
    let report = child.stop(&StopTimeouts::default());
    assert!(start.elapsed() < Duration::from_millis(3500), "{:?}", start.elapsed());
    assert_eq!(report.stopped, Stopped::Killed);
    assert_gone(&scratch, &child, &processes);
}

#[test]
fn a_run_of_another_program_is_stopped_by_what_is_known_of_it() {
    if let Some((_, folder)) = role() {
        // Starts a run and dies, as a program does that crashes.
        let value = fs::read_to_string(folder.join("value")).unwrap();
        let output = fs::File::create(folder.join("spool.jsonl")).unwrap();
        let marker = Marker::new("AZUREAL_RUN_ID", value).unwrap();
        let mut spawn = azureal_process::Spawn::new("/bin/sh", &folder, own_environment(), output, marker);
        spawn.args = vec!["-c".into(), "echo $$ >> pids; exec sh ./agent".into()];
        let child = spawn.start().unwrap();
        fs::write(folder.join("started"), &child.identity().started).unwrap();
        // Until the agent runs, since what was not fed would be missing to it.
        until("the agent runs", || {
            fs::read_to_string(folder.join("pids")).is_ok_and(|pids| pids.lines().count() == 2)
        });
        std::process::abort();
    }
    for (trap, stopped) in [
        ("", Stopped::Interrupted),
        ("trap '' INT", Stopped::Terminated),
        ("trap '' INT TERM", Stopped::Killed),
    ] {
        let scratch = Scratch::new();
        fs::write(scratch.path("value"), scratch.marker.value()).unwrap();
        let tool = "sh -c 'echo $$ >> pids; exec sleep 1000' &";
        let agent = format!("{trap}\n{tool}\nwhile :; do sleep 0.01; done");
        fs::write(scratch.path("agent"), agent).unwrap();
        let test = "stop::a_run_of_another_program_is_stopped_by_what_is_known_of_it";
        assert!(!in_own_process(test, scratch.folder.path()).status.success());

        let processes = scratch.pids(2);
        let started = fs::read_to_string(scratch.path("started")).unwrap();
        let identity = ProcessIdentity { pid: processes[0].pid, started };
        assert_eq!(identity, processes[0], "the same in every program");
        let report = stop(&identity, &scratch.marker, &timeouts());
        assert_eq!((report.stopped, report.survivors), (stopped, vec![]), "{trap}");
        assert!(stopped != Stopped::Interrupted || report.strays >= 1);
        assert_eq!(find_marked(&scratch.marker), []);
        assert!(processes.iter().all(|process| !process.is_alive()));
    }
}

#[test]
fn a_number_that_has_become_anothers_is_left_alone() {
    let scratch = Scratch::new();
    let mut bystander = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
    let identity = ProcessIdentity::of(bystander.id()).unwrap();
    let run = ProcessIdentity { started: format!("{}1", identity.started), ..identity.clone() };
    let report = stop(&run, &scratch.marker, &timeouts());
    assert_eq!(report, StopReport { stopped: Stopped::Already, strays: 0, survivors: vec![] });
    assert!(bystander.try_wait().unwrap().is_none(), "it lives");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn somebody_elses_run_is_left_alone() {
    let (first, second) = (Scratch::new(), Scratch::new());
    let script = "echo $$ >> pids; exec sleep 1000";
    let (one, other) = (first.sh(script).start().unwrap(), second.sh(script).start().unwrap());
    first.pids(1);
    second.pids(1);
    one.stop(&timeouts());
    assert!(other.identity().is_alive());
    assert_eq!(find_marked(&second.marker), [other.identity().clone()]);
    let in_use = MarkersInUse::of(&[second.marker.key()]);
    assert!(in_use.contains(&second.marker) && !in_use.contains(&first.marker));
    other.stop(&timeouts());
}

#[test]
fn one_thread_may_wait_while_others_stop() {
    let scratch = Scratch::new();
    let child = scratch.sh("trap '' INT; echo $$ >> pids; exec sleep 1000").start().unwrap();
    let processes = scratch.pids(1);
    let waiting = child.clone();
    let waiter = thread::spawn(move || waiting.wait());
    let stopping: Vec<_> = (0..3)
        .map(|_| {
            let child = child.clone();
            thread::spawn(move || child.stop(&timeouts()))
        })
        .collect();
    for stopping in stopping {
        assert_eq!(stopping.join().unwrap().survivors, []);
    }
    assert_eq!(waiter.join().unwrap(), Exit::Signal(15));
    assert_gone(&scratch, &child, &processes);
}
