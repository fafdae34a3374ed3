//! The help texts are the reference page, so the page is made from them.

use std::fs;
use std::path::Path;

use crate::world::World;

pub(crate) const COMMANDS: &[&str] = &[
    "run",
    "list",
    "show",
    "search",
    "original",
    "diff",
    "undo",
    "context",
    "compact",
    "tokens",
    "stats",
    "rename",
    "rm",
    "purge",
    "fork",
    "open",
    "import",
    "export",
    "copy",
    "backup",
    "restore",
    "ps",
    "cancel",
    "mcp",
    "agents",
    "config",
    "trust",
    "doctor",
    "demo",
    "completions",
    "help",
];

fn page() -> String {
    let world = World::new();
    let help = |arguments: &[&str]| {
        // Clap leaves spaces at the end of some lines.
        let text = world.run(arguments).quiet();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n").trim_end().to_owned()
    };
    let mut page = String::from(
        "# Commands\n\nThis page is made from the program's own help texts; a test keeps it up to date.\n",
    );
    let mut section = |title: &str, text: &str| {
        page.push_str(&format!("\n## {title}\n\n```text\n{text}\n```\n"));
    };
    section("azureal", &help(&["--help"]));
    for command in COMMANDS {
        section(&format!("azureal {command}"), &help(&[command, "--help"]));
    }
    page
}

#[test]
fn the_reference_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/cli.md is not what the program says; `UPDATE_DOCS=1 cargo test -p azureal-cli docs` writes it anew"
    );
}

#[test]
fn every_command_is_on_the_page() {
    let world = World::new();
    let help = world.run(&["--help"]).quiet();
    let commands: Vec<&str> = help
        .split("Commands:\n")
        .nth(1)
        .unwrap()
        .lines()
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(commands, COMMANDS);
}
