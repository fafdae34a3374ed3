//! A prompt is shown as it was typed. What azureal adds for the agent is on no screen: the wrappers of the history and of the turn, the
//! output of dynamic context commands, the prompts of a compaction.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use azureal_core::SUMMARY_PROMPT;
use azureal_testkit::model_server::{Answer, Gate, ModelServer, Request};
use azureal_testkit::pty::PtyProgram;
use azureal_testkit::until;
use serde_json::json;

use crate::real_agents::{Real, choose};

const F3: &str = "\x1bOR";

/// The output of a dynamic command. The text of the command does not have it.
const CONTEXT_COMMAND: &str = "printf 'run-time-fact-%s' $((4700 + 11))";
const CONTEXT: &str = "run-time-fact-4711";

/// The beginning of the prompt with which azureal continues a turn.
const GO_ON: &str = "Go on with the work where the record ends";

const PROMPT: &str = "Do all the steps";

/// The texts that the agent receives and nobody sees.
fn hidden() -> [&'static str; 5] {
    ["azureal-session-context>", "azureal-turn-context>", CONTEXT, GO_ON, &SUMMARY_PROMPT[..60]]
}

/// Returns a text without blanks, line breaks and the like: a screen may break a line anywhere.
fn squeezed(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}

#[track_caller]
fn assert_hides(what: &str, shown: &str) {
    let squeezed_text = squeezed(shown);
    for text in hidden() {
        assert!(!squeezed_text.contains(&squeezed(text)), "{what} has `{text}`:\n{shown}");
    }
}

/// Asserts that no screen so far has anything that is hidden.
#[track_caller]
fn assert_screens_hide(what: &str, program: &PtyProgram) {
    let screens = program.screens();
    assert!(screens.len() > 2, "{what} has {} screens", screens.len());
    for screen in &screens {
        assert_hides(what, screen);
    }
}

/// Reads a session from its beginning to its end.
fn read_all(program: &PtyProgram) {
    program.send("\tgz");
    program.wait_for(PROMPT);
    // One screen at a time, until the screen does not change any more.
    let mut before = String::new();
    while program.screen() != before {
        before = program.screen();
        program.send("\x1b[6~");
        thread::sleep(Duration::from_millis(200));
    }
    program.send("Gi");
}

/// A model that works in steps until the session is too long, and stops in the middle of the answers to later prompts.
fn worker(recovered: Gate, lost: Gate) -> impl Fn(&Request) -> Answer + Send + 'static {
    move |request| {
        let said = request.user_texts().join("\n");
        match () {
            () if said.contains(SUMMARY_PROMPT) => Answer::from("The first steps are done; one is left."),
            () if said.contains("Prompt of the plain view") => Answer::from("The plain answer."),
            () if said.contains("Prompt of a lost output") => {
                Answer::new().text("Half of it is lost.").hold(&lost).text("All of it is there.")
            }
            () if said.contains(GO_ON) => {
                Answer::new().text("After the compaction.").hold(&recovered).text("The last step is done.")
            }
            () => {
                let step =
                    format!("Step {}. {}", request.tool_results().len(), "I think about it. ".repeat(60));
                let (tool, input) = match request.tools().contains(&"Bash") {
                    true => ("Bash", json!({"command": "echo step", "description": "work"})),
                    false => ("exec_command", json!({"cmd": "echo step"})),
                };
                Answer::new().text(&step).tool(tool, input)
            }
        }
    }
}

fn nothing_hidden_is_shown(agent: &str) {
    let (recovered, lost) = (Gate::new(), Gate::new());
    let server = ModelServer::answering(worker(recovered.clone(), lost.clone()));
    let Some(real) = Real::new(&server) else { return };
    real.configure(&format!(
        "[turn]\npermission = \"all\"\n[compaction]\nthreshold_characters = 6000\n\
         [[context_commands]]\nname = \"Clock\"\ncommand = \"{CONTEXT_COMMAND}\"\ndynamic = true\n"
    ));

    // Live, with a compaction in the middle of the turn.
    let mut program = real.open(&[]);
    program.record();
    choose(&program, agent);
    program.send(&format!("{PROMPT}\r"));
    program.wait_for("After the compaction.");
    assert_screens_hide("the live screen", &program);
    let screens = program.screens();
    let typed = screens.iter().skip_while(|screen| !screen.contains(PROMPT));
    let until_first_step: Vec<&String> = typed.take_while(|screen| !screen.contains("Step 0.")).collect();
    assert!(!until_first_step.is_empty());
    for screen in until_first_step {
        assert!(screen.contains(PROMPT), "the prompt is gone:\n{screen}");
    }

    // azureal is killed in the middle of it, and the next one shows it from the spool.
    program.kill("KILL");
    program.wait_for_exit();
    let program = real.open(&["-s", "S1"]);
    program.record();
    program.wait_for("After the compaction.");
    recovered.open();
    program.wait_for("The last step is done.");
    until("the recovered turn", || (real.prompts("S1") == [PROMPT]).then_some(()));
    program.send(F3);
    program.wait_for("filter");
    program.send("\x1b");
    read_all(&program);
    assert_screens_hide("the recovered screen", &program);
    let screens = program.screens();
    assert!(!screens.iter().any(|screen| screen.contains("interrupted")), "the turn was not: {screens:#?}");

    // The output of a turn is lost with its azureal: it comes from the transcript of the agent, which has everything.
    let mut program = program;
    program.send("Prompt of a lost output\r");
    program.wait_for("Half of it is lost.");
    real.wait_for_note();
    assert_screens_hide("the live screen of a later turn", &program);
    program.kill("KILL");
    program.wait_for_exit();
    let spool = real.home.project().join(".git/azureal/spool");
    let spool = if spool.exists() { spool } else { real.home.project().join(".azureal/spool") };
    fs::remove_dir_all(&spool).unwrap();
    lost.open();
    let program = real.open(&["-s", "S1"]);
    program.record();
    program.wait_for("All of it is there.");
    let prompts = [PROMPT, "Prompt of a lost output"];
    until("the turn of the transcript", || (real.prompts("S1") == prompts).then_some(()));
    read_all(&program);
    assert_screens_hide("the screen after a lost output", &program);
    drop(program);

    // Reopened, in both views and on a narrow screen.
    let program = real.open_at(&["-s", "S1"], 50, 20);
    program.record();
    program.wait_for("All of it is there.");
    read_all(&program);
    assert_screens_hide("the reopened screen", &program);
    drop(program);
    let mut plain = real.command(&["-s", "S1", "--plain"]);
    let mut plain =
        plain.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    plain.stdin.take().unwrap().write_all(b"Prompt of the plain view\n").unwrap();
    let plain = plain.wait_with_output().unwrap();
    let printed = String::from_utf8(plain.stdout).unwrap() + &String::from_utf8(plain.stderr).unwrap();
    assert!(printed.contains("The plain answer."), "{printed}");
    assert_hides("the plain view", &printed);

    // All that `show` has.
    for arguments in [
        &["show", "S1"][..],
        &["show", "S1", "--full"],
        &["show", "S1", "--json"],
        &["list"],
        &["list", "--json"],
    ] {
        let output = real.command(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.is_empty(), "{arguments:?}");
        assert_hides(&arguments.join(" "), &text);
        let mut command = real.command(arguments);
        command.env("TERM", "xterm-256color").env("PAGER", "cat");
        let mut terminal = PtyProgram::start(&command, 80, 500);
        terminal.wait_for_exit();
        assert_hides(&format!("{} on a terminal", arguments.join(" ")), &terminal.screen());
    }

    // The agent has received it all.
    let received: Vec<String> =
        server.requests().iter().map(|request| request.user_texts().join("\n")).collect();
    for text in hidden() {
        assert!(received.iter().any(|request| request.contains(text)), "{agent} did not receive `{text}`");
    }
}

#[test]
fn nothing_hidden_is_shown_with_claude() {
    nothing_hidden_is_shown("claude");
}

#[test]
fn nothing_hidden_is_shown_with_codex() {
    nothing_hidden_is_shown("codex");
}
