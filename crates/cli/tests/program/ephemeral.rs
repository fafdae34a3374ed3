//! `run --ephemeral`, and what it leaves on the disk.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use azureal_testkit::model_server::{Answer, Gate, ModelServer};
use azureal_testkit::real_agents::assert_nobody_else_was_asked;
use azureal_testkit::until;
use flate2::read::MultiGzDecoder;
use serde_json::json;

use crate::real_agents::{Real, finish};
use crate::world::World;

/// Texts that stand nowhere else: in the prompt, in a file that the agent reads, and in one that it changes.
const PROMPT: &str = "quokka-7f3a91-prompt";
const READ: &str = "quokka-7f3a91-read";
const CHANGED: &str = "quokka-7f3a91-changed";

/// Returns the files below a folder that contain a text, also if the whole file is compressed. SQLite files and their
/// journals contain texts as they are.
fn holding(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            found.extend(holding(&path, text));
        } else if kind.is_file() {
            let mut bytes = fs::read(&path).unwrap();
            let mut plain = Vec::new();
            match bytes.as_slice() {
                [0x1f, 0x8b, ..] => {
                    drop(MultiGzDecoder::new(File::open(&path).unwrap()).read_to_end(&mut plain));
                }
                [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                    plain = zstd::decode_all(File::open(&path).unwrap()).unwrap_or_default();
                }
                _ => {}
            }
            bytes.extend(plain);
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path);
            }
        }
    }
    found
}

/// A file of the project that the agent changes. Its text stands where the user has put it.
const NOTES: &str = "notes.txt";

/// Prepares a project in git with a file in it. Returns `None` where the agents are not installed.
fn project(server: &ModelServer) -> Option<Real> {
    let real = Real::new(server)?;
    let folder = real.home.project();
    assert!(Command::new("git").args(["init", "-q"]).current_dir(&folder).status().unwrap().success());
    fs::write(folder.join(NOTES), format!("{CHANGED}\nwrong\n")).unwrap();
    Some(real)
}

/// Returns the files of a test that contain a text: in the home, the folders of the agents, the project and the temporary
/// folder.
fn left(real: &Real, text: &str) -> Vec<PathBuf> {
    let project = real.home.project();
    let mut found = holding(project.parent().unwrap(), text);
    found.retain(|path| *path != project.join(NOTES));
    found
}

fn run(real: &Real, agent: &str, more: &[&str]) -> Command {
    real.command(&[&["run", "-a", agent, "--permission", "all", PROMPT], more].concat())
}

/// Has the model read and change a file before it answers.
fn script(server: &ModelServer, real: &Real, agent: &str) {
    let print = format!("echo {READ}");
    if agent == "claude" {
        let file = real.home.project().join(NOTES);
        server.push(Answer::new().tool("Read", json!({"file_path": file})));
        server.push(Answer::new().tool("Bash", json!({"command": print, "description": "Print it"})));
        let edit = json!({"file_path": file, "old_string": "wrong", "new_string": "right"});
        server.push(Answer::new().tool("Edit", edit));
    } else {
        let patch = format!("*** Begin Patch\n*** Update File: {NOTES}\n@@\n-wrong\n+right\n*** End Patch\n");
        server.push(Answer::new().tool("exec_command", json!({"cmd": format!("cat {NOTES}; {print}")})));
        server.push(Answer::new().custom_tool("apply_patch", &patch));
    }
    server.push(format!("{READ} is done.").as_str());
}

#[test]
fn an_ephemeral_turn_of_a_real_agent_is_found_nowhere() {
    for agent in ["claude", "codex"] {
        let server = ModelServer::scripted::<Answer>([]);
        let Some(real) = project(&server) else { return };
        script(&server, &real, agent);
        let ran = finish(run(&real, agent, &["--ephemeral"]).spawn().unwrap());
        assert_eq!(ran.code, 0, "{ran}");
        assert!(ran.stdout.ends_with(&format!("{READ} is done.\n")), "{ran}");
        let notes = fs::read_to_string(real.home.project().join(NOTES)).unwrap();
        assert!(notes.contains("right"), "{agent} has worked: {notes}");
        let requests = server.requests();
        assert!(requests.last().unwrap().user_texts().join("\n").contains(PROMPT), "{agent} was asked");
        for text in [PROMPT, READ, CHANGED] {
            assert_eq!(left(&real, text), [] as [PathBuf; 0], "{agent}: {text}");
        }
        assert_nobody_else_was_asked(&server);

        // The same turn without the option is found by the same search, in our store and in the agent's own.
        script(&server, &real, agent);
        assert_eq!(finish(run(&real, agent, &[]).spawn().unwrap()).code, 0);
        let found = left(&real, PROMPT);
        let own = if agent == "claude" { real.home.claude_config_dir() } else { real.home.codex_home() };
        for folder in [own, real.home.project()] {
            assert!(found.iter().any(|path| path.starts_with(&folder)), "{agent}: {found:?}");
        }
    }
}

#[test]
fn an_ephemeral_turn_that_is_stopped_or_killed_is_found_nowhere() {
    for (agent, is_killed) in [("claude", false), ("codex", false), ("claude", true), ("codex", true)] {
        let gate = Gate::new();
        let server =
            ModelServer::scripted([Answer::new().text("Half an answer.").hold(&gate).text("The rest.")]);
        let Some(real) = project(&server) else { return };
        let mut azureal = run(&real, agent, &["--ephemeral"]).spawn().unwrap();
        let temporary = real.home.project().with_file_name("temp");
        until("the first half", || (!holding(&temporary, "Half an answer.").is_empty()).then_some(()));
        assert_eq!(left(&real, PROMPT), [] as [PathBuf; 0], "{agent}: while it runs");
        if is_killed {
            azureal.kill().unwrap();
            azureal.wait().unwrap();
            gate.open();
            until("the end of the agent", || real.processes().is_empty().then_some(()));
        } else {
            let pid = azureal.id().to_string();
            assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
            let ran = finish(azureal);
            assert_eq!(ran.code, 130, "{ran}");
            assert_eq!(holding(&temporary, "Half an answer."), [] as [PathBuf; 0], "{agent}");
        }
        assert_eq!(left(&real, PROMPT), [] as [PathBuf; 0], "{agent}, killed: {is_killed}");
        // The next run removes the folder that was left behind.
        server.push("Fine.");
        assert_eq!(finish(run(&real, agent, &["--ephemeral"]).spawn().unwrap()).code, 0);
        assert_eq!(holding(&temporary, "Half an answer."), [] as [PathBuf; 0], "{agent}");
    }
}

#[test]
fn a_program_that_cannot_run_without_a_transcript_is_not_asked() {
    let world = World::new();
    let asked = world.path("asked");
    let prints = |version: &str| {
        let script = format!("[ \"$1\" = --version ] || touch '{}'\n{version}", asked.display());
        world.program("claude", &script);
        let mut run = world.with_programs(&["run", "--ephemeral", "-a", "claude", "My secret"]);
        world.ran(run.env("TMPDIR", world.path("tmp")).output().unwrap())
    };
    fs::create_dir(world.path("tmp")).unwrap();
    insta::assert_snapshot!(prints("echo '2.0.62 (Claude Code)'"), @r"
    exit code 1
    --- stderr
    error: claude is too old for `--ephemeral`: version `2.0.62 (Claude Code)` stores the prompt in a transcript of its own
    hint: update claude to version 2.0.64 or later, or name another agent with `-a`
    ");
    assert!(!asked.exists());
    let unknown = prints("exit 1");
    assert!(unknown.stderr.contains("the version of claude is unknown; before 2.0.64"), "{unknown}");
    assert!(asked.exists());
}
