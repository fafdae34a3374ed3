//! Context commands as real processes, the worst ones included.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use azureal_core::{ContextCommand, OnFailure};
use azureal_engine::{
    CONTEXT_MARKER, CommandEnd, CommandProgress, CommandRun, CommandStop, CommandsEnded, OUTPUT_BYTES,
    run_commands,
};
use azureal_process::{Marker, find_marked};
use azureal_testkit::until;
use tempfile::TempDir;

use crate::harness::own_environment;
use crate::machine::{alone, busy, is_own_process, own_memory};

/// A folder to run in, and a marker that no other test has.
struct StreamPosition {
    folder: TempDir,
    marker: Marker,
}

impl StreamPosition {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let marker = Marker::new(CONTEXT_MARKER, format!("{}-{number}", std::process::id())).unwrap();
        Self { folder: tempfile::tempdir().unwrap(), marker }
    }

    fn run(&self, commands: &[ContextCommand]) -> Result<Vec<CommandRun>, CommandsEnded> {
        run_commands(
            commands,
            self.folder.path(),
            own_environment(),
            &self.marker,
            &CommandStop::default(),
            &mut |_| {},
        )
    }

    #[track_caller]
    fn one(&self, command: ContextCommand) -> CommandRun {
        self.run(&[command]).unwrap().remove(0)
    }

    fn survivors(&self) -> usize {
        find_marked(&self.marker).len()
    }
}

fn command(text: &str) -> ContextCommand {
    ContextCommand { timeout: Duration::from_secs(20), ..ContextCommand::new(text, text) }
}

fn with_timeout(text: &str, seconds: f64) -> ContextCommand {
    ContextCommand { timeout: Duration::from_secs_f64(seconds), ..command(text) }
}

/// Counts the processes that have this among their arguments.
fn running(argument: &str) -> usize {
    // Only where there is such a folder can be said more than what the markers say.
    let folder = std::fs::read_dir("/proc").into_iter().flatten();
    let processes = folder.filter_map(|entry| {
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()).then_some(())
    });
    processes.count()
}

#[test]
fn twenty_hostile_commands_take_no_longer_than_the_longest_timeout_and_leave_nothing() {
    let _alone = alone();
    const TIMEOUT: f64 = 1.5;
    let place = StreamPosition::new();
    let timed_out = |text| (with_timeout(text, TIMEOUT), CommandEnd::TimedOut);
    let code = |text, code| (with_timeout(text, TIMEOUT), CommandEnd::Code(code));
    let signal = |text, signal| (with_timeout(text, TIMEOUT), CommandEnd::Signal(signal));
    let cases = [
        // They hang.
        timed_out("sleep 1000"),
        timed_out("trap '' TERM INT HUP; while :; do sleep 0.05; done"),
        timed_out("kill -STOP $$"),
        timed_out("sh -c 'sh -c \"sleep 1000; :\"; :'; :"),
        // They flood.
        timed_out("yes"),
        timed_out("yes >&2"),
        code("head -c 3000000 /dev/zero | tr '\\0' x", 0),
        // They leave daemons behind, which hold their pipes.
        code("sleep 1000 & echo 'left one'", 0),
        code("setsid sleep 1000 & echo 'left a session'", 0),
        code("(setsid sh -c 'trap \"\" TERM; (sleep 1000; :) & wait' &) ; echo 'left a stubborn one'", 0),
        code("(yes &) ; echo 'left a flood'", 0),
        timed_out("setsid sh -c 'setsid sleep 1000 &' ; sleep 1000"),
        timed_out("env -i setsid sleep 1000.4321"),
        // They fail.
        code("echo half; echo why >&2; exit 1", 1),
        code("exit 255", 255),
        signal("echo dying; kill -9 $$", 9),
        signal("kill -SEGV $$", 11),
        code("azureal-no-such-program", 127),
        code("if", 2),
        // This one is honest.
        code("echo ok", 0),
    ];
    assert_eq!(cases.len(), 20);
    let (commands, ends): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    let started = Instant::now();
    let runs = place.run(&commands).unwrap();
    let took = started.elapsed();
    eprintln!("twenty hostile commands took {took:?}");
    assert_eq!(place.survivors(), 0);
    assert_eq!(running("1000.4321"), 0, "nor one that has thrown its marker away");
    assert!(took < Duration::from_secs_f64(TIMEOUT + 0.5), "{took:?}");

    for ((run, end), command) in runs.iter().zip(ends).zip(&commands) {
        assert_eq!((&run.command, &run.end), (command, &end), "in their order");
        assert!(run.output.len() < OUTPUT_BYTES + 100);
        let block = run.block().unwrap();
        let kind = if end == CommandEnd::Code(0) { "--- Context: " } else { "--- Context Error: " };
        assert!(block.starts_with(kind) && block.ends_with("\n--- End Context ---"), "{block}");
    }
    let body = |index: usize| runs[index].block().unwrap().lines().skip(1).collect::<Vec<_>>().join("\n");
    assert_eq!(body(0), "Command timed out after 1.5 seconds\n--- End Context ---");
    assert!(body(4).starts_with("Command timed out after 1.5 seconds\nPartial output:\ny\ny\n"));
    let cut = body(6);
    assert!(
        cut.starts_with("xxx")
            && cut.contains(&format!("\n[{} bytes left out]\nxxx", 3_000_000 - OUTPUT_BYTES))
    );
    assert_eq!(body(8), "left a session\n--- End Context ---");
    assert_eq!(body(13), "Command exited with code 1\nPartial output:\nhalf\nwhy\n--- End Context ---");
    assert_eq!(body(15), "Command was ended by signal 9\nPartial output:\ndying\n--- End Context ---");
    assert!(
        body(17).contains("code 127\nPartial output:\n") && body(17).contains("not found"),
        "{}",
        body(17)
    );
    assert_eq!(body(19), "ok\n--- End Context ---");
}

#[test]
fn what_is_printed_is_text_whatever_it_is() {
    let place = StreamPosition::new();
    for (script, output) in [
        ("printf 'a\\377b'", "a\u{fffd}b"),
        ("printf 'a\\000b'", "a\0b"),
        ("printf '\\033[2J\\007'", "\u{1b}[2J\u{7}"),
        ("cat", ""),
        ("pwd -P", &format!("{}\n", std::fs::canonicalize(place.folder.path()).unwrap().display())),
        ("exec >&- ; echo lost", ""),
        ("echo 'ä€😀'", "ä€😀\n"),
    ] {
        let run = place.one(ContextCommand { on_failure: OnFailure::Ignore, ..command(script) });
        assert_eq!(run.output, output, "{script}");
    }
    let version = place.one(command("echo 'version 7' >&2"));
    assert!(version.block().unwrap().contains("\nversion 7\n"), "some programs answer there");
    assert!(place.one(command("true")).block().unwrap().contains("\n(no output)\n"));
}

#[test]
fn a_flood_costs_no_memory() {
    let _busy = busy();
    if !is_own_process("context_commands::a_flood_costs_no_memory") {
        return;
    }
    let place = StreamPosition::new();
    let before = own_memory("VmHWM");
    let run = place.one(command("head -c 300000000 /dev/zero"));
    assert_eq!((&run.end, run.output.matches("bytes left out").count()), (&CommandEnd::Code(0), 1));
    if let Some((before, after)) = before.zip(own_memory("VmHWM")) {
        assert!(after - before < 50 << 20, "grew from {before} to {after} bytes");
    }
}

#[test]
fn failures_are_told_ignored_or_final() {
    let place = StreamPosition::new();
    let with = |text: &str, on_failure| ContextCommand { on_failure, ..command(text) };
    let runs = place.run(&[with("exit 3", OnFailure::Warn), with("exit 4", OnFailure::Ignore)]).unwrap();
    assert!(runs[0].block().unwrap().contains("Command exited with code 3"));
    assert_eq!(runs[1].block(), None);
    assert_eq!(runs[1].record().exit_code, Some(4), "that it ran is kept all the same");

    // Whoever waits for the others finds what they leave behind.
    let commands = [
        with("sleep 15; touch ended", OnFailure::Fail),
        with("exit 5", OnFailure::Fail),
        with("sleep 15; touch ended", OnFailure::Warn),
    ];
    let Err(CommandsEnded::ByFailure(run)) = place.run(&commands) else { panic!("it must not go on") };
    assert_eq!((run.command.command.as_str(), run.end), ("exit 5", CommandEnd::Code(5)));
    assert!(!place.folder.path().join("ended").exists(), "the others are not waited for");
    assert_eq!(place.survivors(), 0);
}

#[test]
fn commands_that_are_stopped_leave_nothing_and_say_so() {
    let place = StreamPosition::new();
    let stop = CommandStop::default();
    let commands = [command("sleep 1000"), command("setsid sleep 1000 & sleep 1000"), command("echo done")];
    let mut ended = Vec::new();
    let ran = run_commands(
        &commands,
        place.folder.path(),
        own_environment(),
        &place.marker,
        &stop,
        &mut |progress| {
            if let CommandProgress::Ended(run) = progress {
                ended.push(run.command.command);
                // The other two run, or are about to.
                stop.stop();
            }
        },
    );
    assert_eq!((ran, ended), (Err(CommandsEnded::ByStop), vec!["echo done".to_owned()]));
    assert_eq!(place.survivors(), 0);
    let again =
        run_commands(&commands, place.folder.path(), own_environment(), &place.marker, &stop, &mut |_| {});
    assert_eq!(again, Err(CommandsEnded::ByStop), "nor does any run after that");
}

#[test]
fn a_folder_that_is_gone_is_a_failure_of_the_command() {
    let place = StreamPosition::new();
    let stop = CommandStop::default();
    let nowhere = Path::new("/no/such/folder");
    let runs =
        run_commands(&[command("true")], nowhere, own_environment(), &place.marker, &stop, &mut |_| {})
            .unwrap();
    assert!(
        matches!(&runs[0].end, CommandEnd::NotStarted(why) if why.contains("/no/such/folder")),
        "{runs:?}"
    );
    assert_eq!(runs[0].record().exit_code, None);
}

/// Runs commands and returns how long that took altogether.
fn time(place: &StreamPosition, commands: &[ContextCommand]) -> Duration {
    let started = Instant::now();
    let runs = place.run(commands).unwrap();
    assert!(runs.iter().all(|run| run.failure().is_none()), "{runs:?}");
    started.elapsed()
}

#[test]
fn verify_parallel_execution_faster_than_sequential() {
    let _alone = alone();
    let place = StreamPosition::new();
    let nap = || command("sleep 0.2");
    // Others use this machine as well, so it is tried again: what is slow by nature is slow each time.
    let (one, ten) = (0..10)
        .map(|_| (time(&place, &[nap()]), time(&place, &std::array::from_fn::<_, 10, _>(|_| nap()))))
        .find(|(one, ten)| *ten <= one.mul_f64(1.3))
        .expect("ten commands take more than 1.3 times as long as one of them");
    let sequential: Duration = (0..10).map(|_| time(&place, &[nap()])).sum();
    eprintln!("one {one:?}, ten at once {ten:?}, ten after each other {sequential:?}");
    assert!(sequential > ten * 5, "{sequential:?} after each other, {ten:?} at once");
}

#[test]
fn commands_run_at_the_same_time() {
    let place = StreamPosition::new();
    // Each waits for the other: neither ends unless both run.
    let meet =
        |own: &str, other: &str| command(&format!("touch {own}; until test -e {other}; do sleep 0.01; done"));
    let runs = place.run(&[meet("a", "b"), meet("b", "a")]).unwrap();
    assert!(runs.iter().all(|run| run.end == CommandEnd::Code(0)), "{runs:?}");
}

#[test]
fn a_stop_from_another_thread_is_heard_while_all_hang() {
    let place = StreamPosition::new();
    let stop = CommandStop::default();
    let ended = thread::scope(|scope| {
        let stop = &stop;
        let place = &place;
        let running = scope.spawn(move || {
            run_commands(
                &[command("sleep 1000")],
                place.folder.path(),
                own_environment(),
                &place.marker,
                stop,
                &mut |_| {},
            )
        });
        until("the command runs", || (place.survivors() > 0).then_some(()));
        stop.stop();
        running.join().unwrap()
    });
    assert_eq!(ended, Err(CommandsEnded::ByStop));
}
