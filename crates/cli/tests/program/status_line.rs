//! The status line on a terminal: one row, whatever its label and the width of the terminal.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use serde_json::json;
use unicode_width::UnicodeWidthStr;

use crate::run::fake_claude;
use crate::terminal::Terminal;
use crate::world::World;

/// A turn in which the agent runs a command that is longer than any terminal is wide, until the gate opens.
struct LongCommand {
    world: World,
}

impl LongCommand {
    fn new() -> Self {
        let world = World::new();
        let command = "cargo test --workspace 修复 ".repeat(20);
        let call = json!({
            "type": "assistant",
            "message": {
                "id": "m9",
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t9", "name": "Bash", "input": {"command": command}}],
            },
        });
        let call = world.file("bin/call.jsonl", &format!("{call}\n"));
        let gate = world.path("gate");
        // The gate has a limit, so that a test that fails ends.
        let wait = format!(
            "i=0; while [ ! -e '{}' ] && [ $i -lt 400 ]; do sleep 0.05; i=$((i+1)); done",
            gate.display()
        );
        fake_claude(&world, &format!("cat '{}'\n{wait}", call.display()));
        Self { world }
    }

    fn open_gate(&self) {
        fs::write(self.world.path("gate"), "").unwrap();
    }

    /// Runs the turn on a terminal of each of these widths in turn, and returns the frames that were drawn at each.
    fn frames(&self, widths: &[u16], term: &str) -> Vec<Vec<String>> {
        let terminal = Terminal::open();
        terminal.resize(widths[0]);
        let mut command = self.world.with_programs(&["run", "-a", "claude", "hi"]);
        command.env("TERM", term).stdout(Stdio::null()).stderr(terminal.side_of_the_program());
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut screen = terminal.into_our_side();
        let mut frames = Vec::new();
        let mut piece = [0; 4096];
        for (index, width) in widths.iter().enumerate() {
            if index > 0 {
                Terminal::resize_side(&screen, *width);
            }
            let mut drawn = String::new();
            // The first frame after a resize may be on its way already.
            while drawn.matches("Bash").count() < 4 {
                let length = screen.read(&mut piece).unwrap();
                drawn.push_str(&String::from_utf8_lossy(&piece[..length]));
            }
            // What is behind the last frame may be the beginning of another.
            let is_whole = |frame: &&str| frame.contains("Bash") && frame.ends_with(ERASE);
            let drawn = drawn.split('\r').filter(is_whole);
            frames.push(drawn.skip(usize::from(index > 0)).map(str::to_owned).collect());
        }
        self.open_gate();
        // Ends with an error where others end with nothing.
        drop(screen.read_to_end(&mut Vec::new()));
        assert!(child.wait().unwrap().success());
        frames
    }
}

/// Erases the rest of the screen, which is how a frame ends.
const ERASE: &str = "\u{1b}[J";

#[test]
fn the_status_line_stays_on_one_row_of_a_terminal_that_becomes_narrower() {
    let widths = [120, 80, 50, 20];
    for (width, frames) in widths.iter().zip(LongCommand::new().frames(&widths, "xterm-256color")) {
        assert!(frames.len() > 1, "{frames:?}");
        for frame in frames {
            let text = frame.replace(ERASE, "");
            assert!(!text.contains(['\u{1b}', '\n']), "{frame:?}");
            // A terminal wraps when something is written behind its last column.
            assert!(text.width() < usize::from(*width), "{width} columns: {frame:?}");
            assert!(text.ends_with(" s"), "the time is still there: {frame:?}");
        }
    }
}

#[test]
fn a_dumb_terminal_gets_no_status_line() {
    let turn = LongCommand::new();
    turn.open_gate();
    let terminal = Terminal::open();
    let mut command = turn.world.with_programs(&["run", "-a", "claude", "hi"]);
    command.env("TERM", "dumb").stdout(Stdio::null()).stderr(terminal.side_of_the_program());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut shown = Vec::new();
    drop(terminal.into_our_side().read_to_end(&mut shown));
    assert!(child.wait().unwrap().success());
    // The terminal itself writes a carriage return before each line feed.
    let shown = String::from_utf8_lossy(&shown).replace("\r\n", "\n");
    assert!(shown.starts_with("S1 · claude\n") && !shown.contains(['\u{1b}', '\r', '⠋']), "{shown:?}");
}
