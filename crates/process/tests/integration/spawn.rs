//! What a child is given, and how its end is told.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::scratch::{
    Scratch, assert_success, in_own_process, own_environment, own_kib, role, run_in_role, until, wait,
};
use azureal_process::{
    ChildEnvironment, Excerpt, Exit, Marker, ProcessIdentity, Spawn, SpawnError, Stream, find_marked,
};

/// Bytes of every value, in an order that shows a piece that is lost or doubled.
fn prompt(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

#[test]
fn the_child_runs_as_it_was_told() {
    let scratch = Scratch::new();
    let mut spawn =
        scratch.sh("pwd -P; echo \"$1 $GIVEN ${HOME-none} $AZUREAL_RUN_ID\"; ps -o pgid= -p $$; echo $$");
    spawn.args.extend(["sh".into(), "one".into()]);
    spawn.environment.set("GIVEN", "two");
    spawn.environment.set("AZUREAL_RUN_ID", "not this");
    spawn.environment.remove("HOME");
    let child = spawn.start().unwrap();
    assert_eq!(wait(&child), Exit::Code(0), "{}", child.stderr());

    let text = scratch.text();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let folder = fs::canonicalize(scratch.folder.path()).unwrap();
    let pid = child.pid().to_string();
    let environment = format!("one two none {}", scratch.marker.value());
    assert_eq!(lines, [folder.to_str().unwrap(), &environment, &pid, &pid]);
    assert_eq!(child.identity().pid, child.pid());
    assert_eq!(child.marker(), &scratch.marker);
}

#[test]
fn a_child_has_the_variables_that_it_was_given_and_no_other() {
    assert!(std::env::vars_os().count() > 2, "this process has others");
    let scratch = Scratch::new();
    let mut spawn = scratch.spawn("env", &[]);
    spawn.environment = ChildEnvironment::from_iter([("PATH", "/usr/bin:/bin"), ("EMPTY", "")]);
    let child = spawn.start().unwrap();
    assert_eq!(wait(&child), Exit::Code(0), "{}", child.stderr());
    let text = scratch.text();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let marker = format!("AZUREAL_RUN_ID={}", scratch.marker.value());
    assert_eq!(lines, [&marker, "EMPTY=", "PATH=/usr/bin:/bin"]);
}

#[test]
fn a_name_is_looked_for_in_the_path_of_the_child() {
    let scratch = Scratch::new();
    let (ours, theirs) = (scratch.path("ours"), scratch.path("theirs"));
    for folder in [&ours, &theirs] {
        fs::create_dir(folder).unwrap();
    }
    std::os::unix::fs::symlink("/bin/echo", ours.join("azureal-only-here")).unwrap();
    let start = |program: &str, path: &PathBuf| {
        let mut spawn = scratch.spawn(program, &["found"]);
        spawn.environment = ChildEnvironment::from_iter([("PATH", path)]);
        spawn.start()
    };
    assert_eq!(wait(&start("azureal-only-here", &ours).unwrap()), Exit::Code(0));
    assert_eq!(scratch.text(), "found\n");
    // This process would find it.
    let error = start("echo", &theirs).unwrap_err();
    assert!(matches!(error, SpawnError::ProgramNotFound { .. }), "{error}");
}

#[test]
fn an_end_is_a_code_or_a_signal() {
    for (script, exit) in [
        ("exit 0", Exit::Code(0)),
        ("exit 7", Exit::Code(7)),
        ("kill -TERM $$", Exit::Signal(15)),
        ("kill -KILL $$", Exit::Signal(9)),
    ] {
        let scratch = Scratch::new();
        let child = scratch.sh(script).start().unwrap();
        assert_eq!(wait(&child), exit, "{script}");
        assert_eq!((child.wait(), child.try_wait()), (exit, Some(exit)), "and stays so");
        assert_eq!(exit.success(), exit == Exit::Code(0));
        assert!(!child.identity().is_alive());
    }
}

#[test]
fn a_child_that_runs_has_not_ended() {
    let scratch = Scratch::new();
    let child = scratch.sh("echo $$ >> pids; exec sleep 1000").start().unwrap();
    assert_eq!(scratch.pids(1), [child.identity().clone()]);
    assert_eq!(child.try_wait(), None);
    let start = Instant::now();
    assert_eq!(child.wait_timeout(Duration::from_millis(30)), None);
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert!(child.identity().is_alive());
    assert_eq!(find_marked(&scratch.marker), [child.identity().clone()]);
}

#[test]
fn ten_megabytes_of_input_arrive_as_they_are() {
    let scratch = Scratch::new();
    let mut spawn = scratch.spawn("cat", &[]);
    spawn.stdin = prompt(10_000_000);
    let child = spawn.start().unwrap();
    assert_eq!(wait(&child), Exit::Code(0));
    assert!(fs::read(scratch.spool()).unwrap() == prompt(10_000_000));
}

#[test]
fn a_child_may_speak_before_it_listens() {
    let scratch = Scratch::new();
    // More than any pipe holds, both ways.
    let mut spawn = scratch.sh("head -c 3000000 /dev/zero >&2; cat | wc -c");
    spawn.stdin = prompt(3_000_000);
    let child = spawn.start().unwrap();
    assert_eq!(wait(&child), Exit::Code(0));
    assert_eq!(scratch.text().trim(), "3000000");
}

#[test]
fn a_child_whose_parent_is_killed_has_its_whole_input() {
    if let Some((_, folder)) = role() {
        let marker =
            Marker::new("AZUREAL_RUN_ID", fs::read_to_string(folder.join("value")).unwrap()).unwrap();
        let output = File::create(folder.join("spool.jsonl")).unwrap();
        let mut spawn = Spawn::new("/bin/sh", &folder, own_environment(), output, marker);
        // It begins to read when its parent is gone.
        let script = "echo $$ >> pids; while [ ! -e gate ]; do sleep 0.01; done; cat; touch read";
        spawn.args = vec!["-c".into(), script.into()];
        spawn.stdin = prompt(3_000_000);
        let _child = spawn.start().unwrap();
        std::process::abort();
    }
    let scratch = Scratch::new();
    fs::write(scratch.path("value"), scratch.marker.value()).unwrap();
    let test = "spawn::a_child_whose_parent_is_killed_has_its_whole_input";
    assert!(!in_own_process(test, scratch.folder.path()).status.success(), "it was aborted");
    scratch.pids(1);
    fs::write(scratch.path("gate"), "").unwrap();
    until("the child has read its input", || scratch.path("read").exists());
    assert!(fs::read(scratch.spool()).unwrap() == prompt(3_000_000));
}

#[test]
fn input_of_every_length_arrives_as_it_is_and_no_process_is_left() {
    // Around what a pipe holds, and what it holds at most.
    for length in [1, 4_096, 65_535, 65_536, 65_537, 1 << 20, (1 << 20) + 1, (1 << 20) + 70_000] {
        let scratch = Scratch::new();
        let mut spawn = scratch.sh("test -p /dev/stdin && cat");
        spawn.stdin = prompt(length);
        assert_eq!(wait(&spawn.start().unwrap()), Exit::Code(0), "{length}");
        assert!(fs::read(scratch.spool()).unwrap() == prompt(length), "{length}");
        assert_eq!(find_marked(&scratch.marker), [], "{length}");
    }
}

#[test]
fn a_child_has_a_session_of_its_own_and_no_terminal() {
    let scratch = Scratch::new();
    let child = scratch.sh("ps -o sid=,tty= -p $$; : < /dev/tty").start().unwrap();
    assert!(!wait(&child).success());
    let words = format!("{} ?", child.pid());
    assert_eq!(scratch.text().split_whitespace().collect::<Vec<_>>().join(" "), words);
    assert!(child.stderr().to_string().contains("/dev/tty"), "{}", child.stderr());
}

#[test]
fn input_that_nobody_reads_holds_nothing_up() {
    let scratch = Scratch::new();
    for script in ["exit 3", "exec <&-; exit 3", "read first; exit 3", "(sleep 1000 &) ; exit 3"] {
        let mut spawn = scratch.sh(script);
        spawn.stdin = prompt(10_000_000);
        let child = spawn.start().unwrap();
        assert_eq!(wait(&child), Exit::Code(3), "{script}");
    }
    // The sleeper has our pipe, and yet no thread of ours is left with it.
    assert_eq!(find_marked(&scratch.marker).len(), 1);
}

#[test]
fn without_input_there_is_an_end_and_not_a_silence() {
    let scratch = Scratch::new();
    let child = scratch.sh("cat; test -p /dev/stdin && echo pipe").start().unwrap();
    assert_eq!(wait(&child), Exit::Code(0));
    assert_eq!(scratch.text(), "pipe\n");
}

#[test]
fn what_is_read_from_input_stands_in_no_argument() {
    let scratch = Scratch::new();
    let mut spawn = scratch.sh("echo $$ >> pids; exec sleep 1000");
    spawn.stdin = b"a secret question".repeat(100_000);
    let child = spawn.start().unwrap();
    scratch.pids(1);
    let seen =
        Command::new("ps").args(["-o", "args=", "-ww", "-p", &child.pid().to_string()]).output().unwrap();
    assert!(seen.status.success());
    assert!(seen.stdout.len() < 4096);
    assert!(!String::from_utf8_lossy(&seen.stdout).contains("secret"));
}

#[test]
fn errors_are_kept_in_the_order_they_came() {
    let scratch = Scratch::new();
    let child = scratch.sh("echo one >&2; echo out; echo two >&2").start().unwrap();
    wait(&child);
    assert_eq!(child.stderr(), Excerpt { beginning: b"one\ntwo\n".to_vec(), ..Excerpt::default() });
    assert_eq!(scratch.text(), "out\n");
}

#[test]
fn fifty_megabytes_of_errors_leave_both_ends_and_no_trace_in_memory() {
    if role().is_some() {
        let before = own_kib("VmHWM");
        let scratch = Scratch::new();
        let mut spawn = scratch.sh("echo first >&2; head -c 50000000 /dev/zero >&2; echo last >&2");
        spawn.stderr = Stream::Keep(1000);
        let child = spawn.start().unwrap();
        assert_eq!(wait(&child), Exit::Code(0));
        let stderr = child.stderr();
        assert!(stderr.beginning.starts_with(b"first\n") && stderr.end.ends_with(b"\0last\n"));
        assert_eq!((stderr.beginning.len(), stderr.end.len()), (500, 500));
        assert_eq!(stderr.left_out, 6 + 50_000_000 + 5 - 1000);
        if let Some((before, after)) = before.zip(own_kib("VmHWM")) {
            assert!(after - before < 10_000, "grew from {before} to {after} KiB");
        }
        return;
    }
    let scratch = Scratch::new();
    let test = "spawn::fifty_megabytes_of_errors_leave_both_ends_and_no_trace_in_memory";
    assert_success(&in_own_process(test, scratch.folder.path()));
}

#[test]
fn errors_can_go_to_a_file_that_outlives_us() {
    let scratch = Scratch::new();
    let path = scratch.path("errors");
    let mut spawn = scratch.sh("echo one >&2");
    spawn.stderr = Stream::File(File::create(&path).unwrap());
    let child = spawn.start().unwrap();
    wait(&child);
    assert!(child.stderr().is_empty());
    assert_eq!(Excerpt::of_file(&File::open(path).unwrap(), 100).unwrap().to_string(), "one\n");
}

#[test]
fn somebody_who_goes_on_writing_errors_holds_nobody_up() {
    let scratch = Scratch::new();
    let child = scratch.sh("echo mine >&2; (yes endless >&2 &) ; exit 4").start().unwrap();
    assert_eq!(wait(&child), Exit::Code(4));
    assert!(child.stderr().beginning.starts_with(b"mine\n"));
}

#[test]
fn output_can_be_kept_beside_the_errors() {
    let scratch = Scratch::new();
    let mut spawn = scratch.sh("echo out; echo err >&2; head -c 1000000 /dev/zero; echo more >&2; echo end");
    spawn.stdout = Stream::Keep(100);
    let child = spawn.start().unwrap();
    assert_eq!(wait(&child), Exit::Code(0));
    let stdout = child.stdout();
    assert!(stdout.beginning.starts_with(b"out\n\0") && stdout.end.ends_with(b"\0end\n"), "{stdout:?}");
    assert_eq!(stdout.left_out, 4 + 1_000_000 + 4 - 100);
    assert_eq!(child.stderr().to_string(), "err\nmore\n");
}

#[test]
fn somebody_who_holds_the_output_open_holds_nobody_up() {
    let scratch = Scratch::new();
    let mut spawn = scratch.sh("echo mine; (sleep 1000 &) ; (yes &) ; exit 0");
    spawn.stdout = Stream::Keep(1000);
    let child = spawn.start().unwrap();
    assert_eq!(wait(&child), Exit::Code(0));
    assert!(child.stdout().beginning.starts_with(b"mine\n"));
}

#[test]
fn what_cannot_be_started_is_named() {
    let scratch = Scratch::new();
    let file = |name: &str, text: &str, mode: u32| {
        fs::write(scratch.path(name), text).unwrap();
        fs::set_permissions(scratch.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    file("plain", "#!/bin/sh\n", 0o644);
    file("script", "#!/no/such/interpreter\n", 0o755);
    let error = |program: &str| scratch.spawn(program, &[]).start().unwrap_err();

    for program in ["azureal-no-such-program", "/no/such/program", "./missing", "./plain/inside"] {
        let error = error(program);
        assert!(matches!(error, SpawnError::ProgramNotFound { .. }), "{error:?}");
        assert_eq!(error.to_string(), format!("there is no program `{program}`"));
        assert_eq!(error.hint(), Some("install it, or add its folder to PATH"));
    }
    assert!(matches!(error("./script"), SpawnError::InterpreterNotFound { .. }));
    for program in ["./plain", "/"] {
        let error = error(program);
        assert!(matches!(error, SpawnError::NotExecutable { .. }), "{error:?}");
    }
    let mut long = scratch.spawn("true", &[]);
    long.args = vec!["x".repeat(8_000_000).into()];
    let error = long.start().unwrap_err();
    assert!(matches!(error, SpawnError::ArgumentsTooLong { .. }), "{error:?}");
    assert_eq!(find_marked(&scratch.marker), []);
}

#[test]
fn a_path_is_taken_from_the_folder_to_run_in() {
    let scratch = Scratch::new();
    std::os::unix::fs::symlink("/bin/echo", scratch.path("speak")).unwrap();
    let child = scratch.spawn("./speak", &["here"]).start().unwrap();
    assert_eq!((wait(&child), scratch.text()), (Exit::Code(0), "here\n".to_owned()));
}

#[test]
fn a_folder_that_cannot_be_entered_is_named() {
    let scratch = Scratch::new();
    let start = |directory: PathBuf| {
        let mut spawn = scratch.sh("true");
        spawn.directory = directory;
        spawn.start().unwrap_err()
    };
    let missing = start(scratch.path("missing"));
    assert!(matches!(missing, SpawnError::DirectoryNotFound { .. }), "{missing:?}");
    assert_eq!(missing.to_string(), format!("there is no folder {}", scratch.path("missing").display()));
    let file = start(scratch.spool());
    assert!(matches!(file, SpawnError::DirectoryNotEntered { .. }), "{file:?}");
    let inside = start(scratch.spool().join("inside"));
    assert!(matches!(inside, SpawnError::DirectoryNotEntered { .. }), "{inside:?}");
}

#[test]
fn a_child_that_nobody_waits_for_is_collected() {
    let scratch = Scratch::new();
    let child = scratch.sh("echo $$ >> pids; read line").start().unwrap();
    let identity = child.identity().clone();
    drop(child);
    until("it is gone without a trace", || ProcessIdentity::of(identity.pid).as_ref() != Some(&identity));
}

#[test]
fn a_program_that_is_told_to_ignore_its_children_still_learns_of_their_end() {
    if role().is_some() {
        let scratch = Scratch::new();
        let child = scratch.sh("echo $$ >> pids; exec sleep 0.2").start().unwrap();
        assert_eq!(wait(&child), Exit::Unknown);
        assert!(!child.identity().is_alive());
        return;
    }
    let scratch = Scratch::new();
    let test = "spawn::a_program_that_is_told_to_ignore_its_children_still_learns_of_their_end";
    // Not every `sh` does as it is told here.
    if Command::new("bash").args(["-c", "true"]).status().is_err() {
        eprintln!("\n*** SKIPPED: bash is missing, so this test was not run ***\n");
        return;
    }
    let mut command = Command::new("bash");
    command.args(["-c", "trap '' CHLD; exec \"$0\" --exact \"$1\" --nocapture"]);
    command.arg(std::env::current_exe().unwrap()).arg(test);
    assert_success(&run_in_role(command, scratch.folder.path()));
}

#[test]
fn eight_children_at_once_do_not_get_into_each_others_way() {
    let scratches: Vec<Scratch> = (0..8).map(|_| Scratch::new()).collect();
    let children: Vec<_> = scratches
        .iter()
        .map(|scratch| {
            let mut spawn = scratch.sh("cat; echo $AZUREAL_RUN_ID >&2");
            spawn.stdin = prompt(1_000_000);
            spawn.start().unwrap()
        })
        .collect();
    for (scratch, child) in scratches.iter().zip(&children) {
        assert_eq!(wait(child), Exit::Code(0));
        assert!(fs::read(scratch.spool()).unwrap() == prompt(1_000_000));
        assert_eq!(child.stderr().to_string(), format!("{}\n", scratch.marker.value()));
    }
}

#[test]
fn a_child_can_be_talked_to_over_pipes() {
    let scratch = Scratch::new();
    let (stdin, mut to_child) = std::io::pipe().unwrap();
    let (from_child, stdout) = std::io::pipe().unwrap();
    let mut spawn = scratch.sh("while read -r line; do echo \"heard $line\"; done; exit 3");
    spawn.stdout = Stream::File(File::from(std::os::fd::OwnedFd::from(stdout)));
    let child = spawn.start_reading(stdin).unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(from_child));
    for word in ["one", "two"] {
        std::io::Write::write_all(&mut to_child, format!("{word}\n").as_bytes()).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), format!("heard {word}"));
    }
    drop(to_child);
    assert!(lines.next().is_none());
    assert_eq!(child.wait(), Exit::Code(3));
}
