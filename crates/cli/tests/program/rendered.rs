//! Turns and sessions as a terminal shows them.

use std::fs;
use std::io::Read;
use std::process::Command;

use serde_json::{Value, json};

use crate::run::{SAYS_VERSION, fake_claude};
use crate::terminal::{Terminal, shown_on};
use crate::world::{World, assistant, user};

/// What the real program printed: reasoning, texts, results of many tools, edits, failures.
const MANY_TOOLS: &str =
    include_str!("../../../agents/tests/fixtures/claude/current/multi-tool/stdout.jsonl");

/// Returns it for a project with a short name.
fn many_tools() -> String {
    let mut lines = MANY_TOOLS.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let folder = lines.find_map(|line| line["cwd"].as_str().map(str::to_owned)).unwrap();
    MANY_TOOLS.replace(&folder, "/project")
}

fn answering(lines: &str) -> World {
    let world = World::new();
    let path = world.file("bin/answer.jsonl", lines);
    world.program("claude", &format!("{SAYS_VERSION}\ncat > /dev/null\ncat '{}'", path.display()));
    world
}

/// Runs a command whose output is a terminal with colours. Returns what was written, with a visible sign for an escape.
fn painted(mut command: Command, columns: u16) -> String {
    let terminal = Terminal::open();
    terminal.resize(columns);
    command.env("TERM", "xterm-256color").env("PAGER", "cat").stdout(terminal.side_of_the_program());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut shown = Vec::new();
    drop(terminal.into_our_side().read_to_end(&mut shown));
    assert!(child.wait().unwrap().success());
    String::from_utf8(shown).unwrap().replace("\r\n", "\n").replace('\u{1b}', "␛")
}

/// Removes the codes of colours and weights. Any other sequence stays.
fn unpainted(text: &str) -> String {
    let mut parts = text.split("␛[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| match part.split_once('m') {
        Some((code, rest)) if code.chars().all(|c| c.is_ascii_digit() || c == ';') => text + rest,
        _ => format!("{text}␛[{part}"),
    })
}

#[test]
fn a_turn_of_a_real_agent_is_rendered_to_the_width_of_the_terminal() {
    for columns in [80, 50] {
        let world = answering(&many_tools());
        let ran = painted(world.with_programs(&["run", "-a", "claude", "hi"]), columns);
        insta::assert_snapshot!(format!("run_{columns}"), ran);
        let shown = painted(world.command(&["show", "S1"]), columns);
        let (header, shown) = shown.split_once("\n\n").unwrap();
        assert!(unpainted(header).starts_with("S1 · claude · "), "{header}");
        insta::assert_snapshot!(format!("show_{columns}"), shown);
        for line in unpainted(&ran).lines().chain(unpainted(shown).lines()) {
            assert!(unicode_width::UnicodeWidthStr::width(line) <= usize::from(columns), "{line}");
            assert!(!line.contains('␛'), "{line}");
        }
    }
}

/// A message of Claude Code.
fn message(role: &str, content: &Value) -> String {
    json!({"type": role, "message": {"id": "m", "role": role, "content": content}}).to_string() + "\n"
}

/// Two calls of which the second ends first, an edit, and an answer.
fn overlapping(project: &str) -> String {
    let bash = |id: &str, command: &str| json!({"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}});
    let result = |id: &str, text: &str| json!([{"type": "tool_result", "tool_use_id": id, "content": text}]);
    let input = json!({"file_path": format!("{project}/src/a.rs"), "old_string": "one", "new_string": "two"});
    [
        json!({"type": "system", "subtype": "init", "cwd": project, "session_id": "s", "model": "opus"})
            .to_string()
            + "\n",
        message("assistant", &json!([bash("a", "make slow"), bash("b", "make fast")])),
        message("user", &result("b", "1\n2\n3\n4\n5\n6\n7")),
        message("user", &result("a", "slow")),
        message("assistant", &json!([{"type": "tool_use", "id": "c", "name": "Edit", "input": input}])),
        message("user", &result("c", "The file has been updated.")),
        message("assistant", &json!([{"type": "text", "text": "# Done\n\n- `two` is *there*, and all words of this item are kept whole\n"}])),
        json!({"type": "result", "subtype": "success", "is_error": false, "duration_ms": 5, "result": ""})
            .to_string()
            + "\n",
    ]
    .concat()
}

#[test]
fn a_result_is_under_its_call_also_when_calls_overlap() {
    let world = World::new();
    let project = fs::canonicalize(world.path("p")).unwrap();
    let path = world.file("bin/answer.jsonl", &overlapping(project.to_str().unwrap()));
    world.program("claude", &format!("{SAYS_VERSION}\ncat > /dev/null\ncat '{}'", path.display()));
    world.file("p/src/a.rs", "zero\ntwo\n");
    // As they end, while the turn runs. Then the edited file tells the numbers of its lines.
    insta::assert_snapshot!(shown_on(world.with_programs(&["run", "-a", "claude", "Go"]), 50), @r"
    ✓ Bash make fast                           7 lines
      1
      … 3 more lines
      5
      6
      7
    ✓ Bash make slow                            1 line
      slow
    ✓ Edit src/a.rs                              +1 −1
      2 - one
      2 + two

    claude opus
      Done

      • two is there, and all words of this item are
        kept whole

    ");
    // In the order of the calls, once it is stored.
    let shown = shown_on(world.command(&["show", "S1", "--no-pager"]), 50);
    let (_, shown) = shown.split_once("\n\n").unwrap();
    insta::assert_snapshot!(shown, @r"
    you  turn 1, event 1
      Go

    ✓ Bash make slow                            1 line
      slow
    ✓ Bash make fast                           7 lines
      1
      … 3 more lines
      5
      6
      7
    ✓ Edit src/a.rs                              +1 −1
      - one
      + two

    claude opus
      Done

      • two is there, and all words of this item are
        kept whole

    ✓ done in 0.0 s
    ");
    // Piped, a text is as it was written.
    let piped = world.run(&["show", "S1"]).quiet();
    assert!(
        piped.contains("\n# Done\n\n- `two` is *there*, and all words of this item are kept whole\n"),
        "{piped}"
    );
    assert!(piped.contains("> Bash make slow\n    slow\n> Bash make fast\n"), "{piped}");
}

#[test]
fn a_text_is_seen_while_it_is_written_and_stays_once() {
    let world = World::new();
    let gate = world.path("gate");
    let wait = format!(
        "i=0; while [ ! -e '{}' ] && [ $i -lt 400 ]; do sleep 0.05; i=$((i+1)); done",
        gate.display()
    );
    fake_claude(&world, &wait);
    let terminal = Terminal::open();
    terminal.resize(60);
    let mut command = world.with_programs(&["run", "-a", "claude", "hi"]);
    command
        .env("TERM", "xterm-256color")
        .stdout(terminal.side_of_the_program())
        .stderr(terminal.side_of_the_program());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut screen = terminal.into_our_side();
    let (mut shown, mut piece) = (String::new(), [0; 4096]);
    // The gate is closed: the text is not finished.
    while !shown.contains("I will run a command.") {
        let length = screen.read(&mut piece).unwrap();
        shown.push_str(&String::from_utf8_lossy(&piece[..length]));
    }
    assert!(!gate.exists());
    fs::write(&gate, "").unwrap();
    let mut rest = Vec::new();
    drop(screen.read_to_end(&mut rest));
    assert!(child.wait().unwrap().success());
    let shown = shown + &String::from_utf8_lossy(&rest);
    // A draft is erased before it is drawn again; what is printed ends with a line feed of its own.
    assert_eq!(shown.matches("\r\u{1b}[J  I will run a command.\r\n").count(), 1, "{shown:?}");
    assert!(
        shown.contains("streamed output here\u{1b}[0m\r\n") && shown.contains("  Finished streaming."),
        "{shown:?}"
    );
}

#[test]
fn nothing_that_an_agent_says_acts_on_the_terminal() {
    let world = World::new();
    let hostile = "a\u{1b}[2Jb\u{7}c\u{202e}d";
    world.session(
        "hostile",
        &[user(hostile), assistant(&format!("# {hostile}\n\n`{hostile}`\n\n```sh\n{hostile}\n```"))],
    );
    let shown = painted(world.command(&["show", "hostile"]), 80);
    let plain = unpainted(&shown);
    assert!(plain.contains("a␛[2Jb␇c") && !shown.contains(['\u{7}', '\u{202e}']), "{plain}");
    let mut command = world.command(&["show", "hostile"]);
    command.env("TERM", "xterm-256color").env("PAGER", "cat");
    // Only colours and weights are sent.
    let raw = shown_on(command, 80);
    assert!(!raw.contains(['\u{1b}', '\u{7}', '\u{202e}']) && raw.contains("a␛[2Jb␇c"), "{raw:?}");
}

#[test]
fn marks_are_ascii_where_the_locale_is_or_the_user_wants_it() {
    let world = answering(&many_tools());
    let wish = |is_ascii: bool| {
        world.file("home/.config/azureal/azufig.toml", &format!("[ui]\nascii = {is_ascii}\n"));
    };
    let check = |arguments: &[&str], locale: &str, is_ascii: bool| {
        let mut command = world.with_programs(arguments);
        command.env("LANG", locale).env("HOME", world.path("home"));
        let shown = shown_on(command, 80);
        let marks = if is_ascii { ["\n+ Bash ", "\nx Bash "] } else { ["\n✓ Bash ", "\n✗ Bash "] };
        assert!(marks.iter().all(|mark| shown.contains(mark)), "{arguments:?} {locale}: {shown}");
        assert_eq!(shown.contains('▌') || shown.contains('✓'), !is_ascii, "{arguments:?} {locale}: {shown}");
    };
    for arguments in [&["run", "-a", "claude", "hi"][..], &["show", "S1", "--no-pager"]] {
        check(arguments, "C", true);
        check(arguments, "C.UTF-8", false);
    }
    for arguments in [&["run", "-a", "claude", "hi"][..], &["show", "S1", "--no-pager"]] {
        wish(true);
        check(arguments, "C.UTF-8", true);
        wish(false);
        check(arguments, "C", false);
    }
}
