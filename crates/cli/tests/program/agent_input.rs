//! What an agent is given when it starts: its whole prompt, or it is not started. And no terminal.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::Instant;

use azureal_testkit::pty::PtyProgram;
use azureal_testkit::thorough;

use crate::run::{SAYS_VERSION, wait_until};
use crate::world::{World, assistant, user};

/// A Codex that begins to read a moment after it has started, as a real program does, and keeps what it read.
fn codex_that_reads_late(world: &World) {
    let log = world.path("log");
    fs::create_dir_all(&log).unwrap();
    let script = format!(
        "[ \"$1\" = --version ] && echo 'codex-cli 0.169.0' && exit 0\n\
         cd '{}'\n: > begun.$$\nsleep 0.2\ncat > part.$$\nmv part.$$ in.$$\n\
         echo '{{\"type\":\"thread.started\",\"thread_id\":\"0199a213-81c0-7800-8aa1-bbab2a035a53\"}}'\n\
         echo '{{\"type\":\"item.completed\",\"item\":{{\"id\":\"item_0\",\"type\":\"agent_message\",\"text\":\"done\"}}}}'\n\
         echo '{{\"type\":\"turn.completed\",\"usage\":{{\"input_tokens\":1,\"cached_input_tokens\":0,\"output_tokens\":1}}}}'",
        log.display()
    );
    world.program("codex", &script);
}

fn logged(world: &World, beginning: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(world.path("log")).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(beginning)).collect()
}

#[test]
fn an_agent_whose_azureal_is_killed_has_received_its_whole_prompt() {
    let world = World::new();
    codex_that_reads_late(&world);
    // Several times what a pipe holds.
    let long = "please delete the old files. ".repeat(8_000);
    world.session("long", &[user("plan the clean-up"), assistant(&long)]);
    let prompt = "Do NOT delete anything; only list the files. OMEGA";
    let start = || {
        let mut command = world.with_programs(&["run", "-s", "long", "-a", "codex", prompt]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    // Until the agent runs, without a kill.
    let began = Instant::now();
    let mut child = start();
    wait_until("the agent runs", || !logged(&world, "begun").is_empty());
    let until_start = began.elapsed();
    assert!(child.wait().unwrap().success());

    let moments = thorough(50, 200);
    for moment in 0..moments {
        let mut child = start();
        // To a while after the start: the agent does not read yet.
        thread::sleep(until_start.mul_f64(0.4 + 0.8 * f64::from(moment) / f64::from(moments)));
        child.kill().unwrap();
        child.wait().unwrap();
        // A session has one agent at a time.
        wait_until("the agent has read", || logged(&world, "begun").len() == logged(&world, "in").len());
    }
    let inputs = logged(&world, "in");
    for input in &inputs {
        let text = fs::read_to_string(input).unwrap();
        assert!(text.contains(&long) && text.ends_with(prompt), "{} bytes of the input", text.len());
    }
    assert!(inputs.len() > 1, "no agent was started before its azureal was killed");
}

#[test]
fn a_program_of_an_agent_that_asks_the_terminal_gets_an_error_and_the_turn_ends() {
    let world = World::new();
    let answer = world.file("bin/answer.jsonl", crate::run::RECORDED);
    let asked = world.path("asked");
    world.program(
        "claude",
        &format!(
            "{SAYS_VERSION}\ncat > /dev/null\n\
             (printf 'Enter passphrase: ' > /dev/tty && read answer < /dev/tty) 2> '{}'\ncat '{}'",
            asked.display(),
            answer.display()
        ),
    );
    let mut program = PtyProgram::start(&world.with_programs(&["run", "-a", "claude", "hi"]), 80, 24);
    program.wait_until("the end of the turn", |screen| screen.contains("done in"));
    assert_eq!(program.wait_for_exit(), Some(0));
    assert!(!program.screen().contains("passphrase"), "{}", program.screen());
    assert!(fs::read_to_string(asked).unwrap().contains("/dev/tty"));
}
