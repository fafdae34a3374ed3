//! Reading in the interface: folds, the editor, the mouse.

use std::thread;
use std::time::Duration;

use azureal_testkit::model_server::{Answer, ModelServer};
use azureal_testkit::pty::PtyProgram;
use azureal_testkit::until;
use serde_json::json;

use crate::place::Place;
use crate::real_agents::{Real, choose};

const F9: &str = "\x1b[20~";

/// Moves the reading cursor down until its block begins with a text.
#[track_caller]
fn go_to(program: &PtyProgram, text: &str) {
    let is_there =
        |screen: &str| screen.lines().filter(|row| row.contains('▌')).take(2).any(|row| row.contains(text));
    until(&format!("a block with `{text}`"), || {
        if is_there(&program.screen()) {
            return Some(());
        }
        // Within a block, the screen stays the same.
        program.send("j");
        thread::sleep(Duration::from_millis(60));
        None
    });
}

fn folds_survive_a_resize(agent: &str, tool: Answer) {
    let paragraphs: Vec<String> = (1..=9).map(|number| format!("Paragraph {number} of the text.")).collect();
    let server = ModelServer::scripted([tool, Answer::from(paragraphs.join("\n\n").as_str())]);
    let Some(real) = Real::new(&server) else { return };
    real.configure("[turn]\npermission = \"all\"\n");
    let program = real.open_at(&[], 100, 60);
    choose(&program, agent);
    program.send("Read it\r");
    program.wait_for("Paragraph 9");
    until("the stored turn", || (real.prompts("S1") == ["Read it"]).then_some(()));

    // The last command of a turn shows some of its output; unfolded, all of it.
    let sizes = [(70, 50), (140, 60), (100, 60)];
    program.send("\tg");
    go_to(&program, "seq -f");
    program.wait_for("more lines");
    program.wait_for_no("output 7");
    program.send(" ");
    program.wait_for("output 7");
    for (columns, rows) in sizes {
        program.resize(columns, rows);
        program.wait_until("the unfolded call in the new size", |screen| {
            screen.lines().count() == usize::from(rows) && screen.contains("output 7") && screen.contains('▾')
        });
    }
    program.send(" ");
    program.wait_for_no("output 7");

    // A text is whole; folded, it is its beginning.
    go_to(&program, "Paragraph 1");
    program.send(" ");
    program.wait_for_no("Paragraph 9");
    for (columns, rows) in sizes {
        program.resize(columns, rows);
        program.wait_until("the folded text in the new size", |screen| {
            screen.lines().count() == usize::from(rows)
                && screen.contains("Paragraph 1")
                && !screen.contains("Paragraph 9")
        });
    }
    program.send(" ");
    program.wait_for("Paragraph 9");

    // All at once, and back.
    program.send("z");
    program.wait_for("output 7");
    program.send("z");
    program.wait_for_no("output 7");
    program.assert_listed();
}

#[test]
fn folds_of_a_turn_of_claude_survive_a_resize() {
    let command = "seq -f 'output %g' 1 12";
    let input = json!({"command": command, "description": "count"});
    folds_survive_a_resize("claude", Answer::new().tool("Bash", input));
}

#[test]
fn folds_of_a_turn_of_codex_survive_a_resize() {
    let input = json!({"cmd": "seq -f 'output %g' 1 12"});
    folds_survive_a_resize("codex", Answer::new().tool("exec_command", input));
}

#[test]
fn a_session_is_read_in_the_users_editor_and_pager() {
    let place = Place::new();
    place.session("work", &["What is this?", "It is **a test**."]);
    for (key, variable) in [("e", "EDITOR"), ("o", "PAGER")] {
        // It asks, as an editor would: an interface that still reads would take the answer.
        let mut command = place.command(&["-s", "work"]);
        command.env(variable, "program --").env("TMPDIR", place.path("home"));
        place.program("program", "shift; cat \"$1\"; printf 'press: '; read -r key; echo \"$key\" > \"$1\"");
        let program = PtyProgram::start(&command, 80, 24);
        program.wait_for("It is a test.");
        program.send(&format!("\t{key}"));
        program.wait_for("press:");
        assert!(!program.modes().alternate_screen, "{key}");
        let screen = program.screen();
        assert!(screen.contains("What is this?") && screen.contains("It is **a test**."), "{screen}");
        program.send("something else\r");
        program.wait_for("It is a test.");
        program.wait_until("the interface", |screen| screen.contains('›') && !screen.contains("something"));
        assert!(program.modes().alternate_screen, "{key}");
        // Still reading, and nothing of it is changed.
        program.send("i");
        program.send("typed");
        program.wait_for("› typed");
        program.assert_listed();
    }
    assert_eq!(place.events("work").len(), 2);
    let left = std::fs::read_dir(place.path("home")).unwrap().flatten();
    let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().ends_with(".md")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Resumes a session as Claude Code does, and adds a turn.
const CLAUDE: &str = r#"
[ "$1" = --version ] && { echo '2.1.197 (Claude Code)'; exit; }
file=$(ls "$HOME"/.claude/projects/*/"$2".jsonl) || exit 2
last=$(grep -o '"uuid":"[^"]*"' "$file" | tail -n 1 | cut -d '"' -f 4)
printf 'your prompt: '
read -r typed
[ "$typed" = fail ] && { echo 'it has failed'; exit 3; }
line() {
    printf '{"type":"%s","uuid":"%s","parentUuid":"%s","sessionId":"%s","timestamp":"2026-01-31T09:30:00Z","cwd":"/p","message":%s}\n' "$1" "$2" "$3" "$4" "$5" >> "$file"
}
line user u1 "$last" "$2" '{"role":"user","content":"'"$typed"'"}'
line assistant a1 u1 "$2" '{"id":"m1","role":"assistant","model":"opus","stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":1},"content":[{"type":"text","text":"Yes, '"$typed"'"}]}'
"#;

#[test]
fn a_session_is_opened_in_the_agents_own_interface_and_the_turns_of_it_are_shown() {
    let place = Place::new();
    place.session("work", &["What is this?", "It is **a test**."]);
    place.program("claude", CLAUDE);
    let program = PtyProgram::start(&place.command(&["-s", "work"]), 80, 24);
    program.wait_for("It is a test.");
    program.send("\tO");
    program.wait_for("your prompt:");
    assert!(!program.modes().alternate_screen);
    program.send("Try again\r");
    program.wait_for("Yes, Try again");
    assert!(program.modes().alternate_screen);
    // What is wrong can be read before the interface takes the terminal back.
    program.send("O");
    program.wait_for("your prompt:");
    program.send("fail\r");
    program.wait_for("Press Enter to return to azureal.");
    let screen = program.screen();
    assert!(screen.contains("it has failed") && screen.contains("error:"), "{screen}");
    program.send("\r");
    program.wait_until("the interface", |screen| screen.contains('›') && !screen.contains("failed"));
    program.assert_listed();
    assert_eq!(place.prompts("work"), ["What is this?", "Try again"]);
}

#[test]
fn f9_leaves_the_mouse_to_the_terminal_and_takes_it_back() {
    let place = Place::new();
    let program = place.open(&[]);
    until("the mouse", || program.modes().mouse.then_some(()));
    program.send(F9);
    program.wait_for("the mouse belongs to the terminal");
    until("no mouse", || (!program.modes().mouse).then_some(()));
    program.send("typed");
    program.wait_for("› typed");
    assert!(!program.modes().mouse, "a key does not take it back");
    program.send(F9);
    program.wait_for("the mouse scrolls");
    until("the mouse again", || program.modes().mouse.then_some(()));
    program.assert_listed();

    let place = Place::new();
    place.file("home/.config/azureal/azufig.toml", "[ui]\nmouse = false\n");
    let program = place.open(&[]);
    program.send("typed");
    program.wait_for("› typed");
    assert!(!program.modes().mouse);
}
