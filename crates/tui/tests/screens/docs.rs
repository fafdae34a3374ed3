//! The documentation is made from the table of keys and from the screens, so it cannot go stale.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use azureal_tui::keys::{Context, Key, TABLE};

use crate::harness::{COLOURS, Screen};
use crate::looks::played;
use crate::scenes::{SCENES, Scene, in_two_slots};
use crate::svg::picture;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Compares a file with what it should be, or writes it if `UPDATE_DOCS` is set.
fn check(name: &str, expected: &str) {
    let path = docs().join(name);
    #[expect(clippy::disallowed_methods, reason = "the one variable of these tests")]
    let writes = std::env::var_os("UPDATE_DOCS").is_some();
    if writes {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/{name} is out of date: `UPDATE_DOCS=1 cargo test -p azureal-tui --test screens docs` writes it"
    );
}

#[test]
fn docs_keys_md_has_every_key() {
    let mut out = String::from(KEYS_HEAD);
    for context in Context::ALL {
        let note = match context {
            Context::Menu => ", after Ctrl-X",
            _ => "",
        };
        writeln!(out, "\n## {}{note}\n\n| keys | action | name |\n|---|---|---|", context.heading()).unwrap();
        for entry in TABLE.iter().filter(|entry| entry.context == context) {
            let keys: Vec<String> = entry.keys.iter().map(|key| shown(key)).collect();
            writeln!(out, "| {} | {} | `{}` |", keys.join(" "), entry.long, entry.name).unwrap();
        }
    }
    check("keys.md", &out);
}

/// Returns a key for people, as code of Markdown.
fn shown(key: &str) -> String {
    let key: Key = key.parse().unwrap();
    let text = key.to_string();
    if text == "|" { r"`\|`".to_owned() } else { format!("`{text}`") }
}

const KEYS_HEAD: &str = "\
# Keys

All keys of the terminal interface. F1 shows the same list, with your changes. This file is written by a test from the table of keys
(`crates/tui/src/keys/table.rs`).

`[keys]` of your own `azufig.toml` changes them, by the names in the last column. The keys of an action replace its default keys; an empty list
switches the action off.

```toml
[keys]
queue = [\"f6\", \"alt-q\"]
fold-all = [\"z\", \"Z\"]
suspend = []
```

Keys are written as `ctrl-x`, `alt-enter`, `shift-tab`, `f5`, `pageup`, `space`, `g`, `G`. In the prompt and anywhere, a key without Ctrl or Alt types
a character, so it cannot be bound there. Two actions with the same key in the same place are an error that names both.

Ctrl-B, Ctrl-O, Ctrl-S, Ctrl-Q and Ctrl-M are not used: terminals and multiplexers keep them for themselves, and Ctrl-M is Enter.
";

#[test]
fn docs_tui_md_shows_the_screens() {
    let mut out = String::from(TUI_HEAD);
    for scene in SCENES.iter().filter(|scene| !scene.heading.is_empty()) {
        let size = if matches!(scene.name, "new_conversation" | "slots") { (120, 30) } else { (80, 24) };
        writeln!(out, "\n## {}\n\n{}\n", scene.heading, scene.words).unwrap();
        if !scene.keys.is_empty() {
            writeln!(out, "After `{}`:\n", scene.keys).unwrap();
        }
        writeln!(out, "```text\n{}\n```", short(&played(scene, size, COLOURS).text())).unwrap();
    }
    out.push_str(TUI_TAIL);
    let small = SCENES.iter().find(|scene| scene.name == "running").unwrap();
    writeln!(out, "\n```text\n{}\n```", played(small, (40, 12), COLOURS).text()).unwrap();
    check("tui.md", &out);
}

/// Leaves out rows of a screen that are empty, where there are many.
fn short(text: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    let mut empty = 0;
    for line in text.lines() {
        let is_empty = line.trim().is_empty() || line.trim() == "│";
        empty = if is_empty { empty + 1 } else { 0 };
        if empty <= 2 {
            out.push(line);
        }
    }
    out.join("\n")
}

const TUI_HEAD: &str = "\
# The terminal interface

`azureal` without a command opens the interface on a terminal; `azureal -s S12` opens it with a session. The screens below are made by the tests of the
interface, with the keys that lead to them; rows without text are left out.

Everything is reachable by keyboard. F1 lists all keys ([keys.md](keys.md)), and the last line of the screen names those for the moment. Nothing that you
type is lost: drafts, waiting prompts and the history are on disk within a second. A turn does not need the interface: quit, and it continues.
A text from `$EDITOR` (Ctrl-G) is in the prompt box also if the editor fails or is killed, or if the text is not UTF-8; then its file is kept and named, and Alt-Z brings the former text back.
";

const TUI_TAIL: &str = "
## Small terminals and plain ones

Below 60 columns or 16 rows, headers are one line and overlays fill the screen. From 110 columns on, the list is beside the conversation. State is never
only a colour: it has a mark and a word, and the meter has its number. `NO_COLOR` and `[ui] theme = \"none\"` switch colours off, `[ui] ascii` uses marks of
ASCII, `[ui] motion` lets marks move, `[ui] mouse` uses the wheel and clicks ([configuration](configuration.md)). `azureal --plain` prints lines instead, for screen readers and slow
connections.

The screen of a turn at 40 columns:
";

#[test]
fn pictures_show_the_screens() {
    let scene = |name: &str| SCENES.iter().find(|scene| scene.name == name).unwrap();
    let mut session = Screen::new((120, 30), COLOURS);
    in_two_slots(&mut session);
    session.type_text("Then update the docs.").key("ctrl-t");
    let draw = |scene: &Scene| played(scene, (96, 24), COLOURS).draw().0;
    for (name, title, buffer) in [
        ("session.svg", "A session beside the list of sessions, while two turns run", session.draw().0),
        ("agents.svg", "The agent and model of the next turn", draw(scene("agents"))),
        ("list.svg", "The list of sessions", draw(scene("list"))),
    ] {
        let picture = picture(&buffer, title);
        assert!(picture.len() < 30_000, "{name} has {} bytes", picture.len());
        check(&format!("pictures/{name}"), &picture);
    }
}
