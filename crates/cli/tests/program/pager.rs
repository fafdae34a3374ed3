//! The pager of `show` and `context`.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use crate::terminal::Terminal;
use crate::world::{World, assistant, user};

fn long_session() -> World {
    let world = World::new();
    let turns = (1..=2_000).flat_map(|n| [user(&format!("Prompt {n}")), assistant(&format!("Answer {n}"))]);
    world.session("work", &turns.collect::<Vec<_>>());
    world.program(
        "pager",
        &format!("echo \"$LESS\" > '{0}/less'; cat > '{0}/paged'; echo paged", world.path("").display()),
    );
    world.program("quitter", "head -n 1; exit 3");
    world
}

/// Runs a command with output to a terminal; returns its exit code, what the terminal showed, and standard error.
fn on_a_terminal(mut command: Command) -> (Option<i32>, String, String) {
    let terminal = Terminal::open();
    terminal.resize(80);
    command.stdout(terminal.side_of_the_program()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut shown = Vec::new();
    drop(terminal.into_our_side().read_to_end(&mut shown));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let shown = String::from_utf8_lossy(&shown).replace("\r\n", "\n");
    (child.wait().unwrap().code(), shown, said)
}

fn paging(world: &World, arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = world.with_programs(arguments);
    command.env("TERM", "xterm").envs(variables.iter().copied());
    on_a_terminal(command)
}

#[test]
fn people_read_long_output_through_their_pager() {
    let world = long_session();
    for arguments in [&["show", "work"][..], &["context", "work"], &["show", "work", "--digest"]] {
        for (variable, pager) in [("PAGER", "pager"), ("AZUREAL_PAGER", "pager -x"), ("PAGER", "pager | cat")]
        {
            let ran = paging(&world, arguments, &[(variable, pager)]);
            assert_eq!(ran, (Some(0), "paged\n".to_owned(), String::new()), "{arguments:?} {pager}");
            let paged = fs::read_to_string(world.path("paged")).unwrap();
            assert!(paged.contains("Prompt 2000"), "{arguments:?} {pager}: {paged}");
            fs::remove_file(world.path("paged")).unwrap();
        }
        assert_eq!(fs::read_to_string(world.path("less")).unwrap(), "FRX\n");
    }
    paging(&world, &["show", "work"], &[("PAGER", "pager"), ("LESS", "-i")]);
    assert_eq!(fs::read_to_string(world.path("less")).unwrap(), "-i\n", "the user's own options");
    let paged = fs::read_to_string(world.path("paged")).unwrap();
    assert!(paged.contains("\u{1b}[1;36myou\u{1b}[0m"), "it has colours: {paged}");
}

#[test]
fn the_nearest_wish_for_a_pager_counts() {
    let world = long_session();
    let paged = |variables: &[(&str, &str)]| {
        paging(&world, &["show", "work", "--last", "1"], variables).1 == "paged\n"
    };
    assert!(paged(&[("PAGER", "quitter"), ("AZUREAL_PAGER", "pager")]));
    for none in [
        &[("AZUREAL_PAGER", ""), ("PAGER", "pager")][..],
        &[("PAGER", "cat")],
        &[("PAGER", "no-such-pager")],
        &[("PAGER", "no-such-pager | cat")],
        &[("PAGER", "pager"), ("TERM", "dumb")],
    ] {
        let (code, shown, said) = paging(&world, &["show", "work", "--last", "1"], none);
        assert!((code, said.as_str()) == (Some(0), "") && shown.contains("Prompt 2000"), "{none:?}: {shown}");
    }
}

#[test]
fn some_output_never_goes_through_a_pager() {
    let world = long_session();
    for arguments in [
        &["show", "work", "--last", "1", "--no-pager"][..],
        &["show", "work", "--last", "1", "--json"],
        &["show", "work", "--last", "1", "--raw"],
        &["context", "work", "--stats"],
        &["context", "work", "--no-pager"],
        &["list"],
    ] {
        let (code, shown, _) = paging(&world, arguments, &[("PAGER", "pager")]);
        assert!(code == Some(0) && !shown.contains("paged"), "{arguments:?}: {shown}");
        assert!(!world.path("paged").exists(), "{arguments:?}");
    }
    // Neither does what is piped.
    let ran = world.ran(world.with_programs(&["show", "work"]).env("PAGER", "pager").output().unwrap());
    assert!(ran.stdout.ends_with("Answer 2000\n"), "{ran}");
}

#[test]
fn a_pager_that_is_left_early_is_no_error() {
    let world = long_session();
    let (code, shown, said) = paging(&world, &["show", "work"], &[("PAGER", "quitter")]);
    assert_eq!((code, shown.lines().count(), said.as_str()), (Some(0), 1, ""), "{shown}");
}

#[test]
fn messages_come_after_the_pager() {
    let world = long_session();
    let database = rusqlite::Connection::open(world.store()).unwrap();
    database.execute("UPDATE events SET data = x'00ff00' WHERE seq = 5", []).unwrap();
    drop(database);
    let terminal = Terminal::open();
    let mut command = world.with_programs(&["show", "work"]);
    command
        .envs([("TERM", "xterm"), ("PAGER", "pager")])
        .stdout(terminal.side_of_the_program())
        .stderr(terminal.side_of_the_program());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut shown = Vec::new();
    drop(terminal.into_our_side().read_to_end(&mut shown));
    assert!(child.wait().unwrap().success());
    let shown = String::from_utf8_lossy(&shown);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2, "{shown}");
    assert!(lines[0].starts_with("paged") && lines[1].contains("one event of S1 cannot be read"), "{shown}");
}

#[test]
fn ctrl_c_is_for_the_pager() {
    let world = long_session();
    // As `less` does, it survives Ctrl-C; a shell would call an azureal that did not 130.
    world.program("survivor", "trap '' INT; kill -INT $PPID; sleep 0.2; cat > /dev/null; echo survived");
    let (code, shown, said) = paging(&world, &["show", "work"], &[("PAGER", "survivor")]);
    assert_eq!((code, shown.as_str(), said.as_str()), (Some(0), "survived\n", ""));
}
