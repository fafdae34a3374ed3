use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use azureal_agents::registry;
use azureal_core::agent::{Agent, Program};
use azureal_core::visible_line;
use serde::Serialize;

use crate::agent_choice::program_of;
use crate::failure::Failure;
use crate::output::Output;

/// How long a program may take to say its version.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of what it says is read.
const SAID_BYTES: u64 = 4096;

/// Show which agents are installed
///
/// In the order in which they are preferred, with what they say of their version and where they are. The built-in
/// offline agent is always there.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal agents
  azureal agents --json | jq -r '.[] | select(.installed) | .agent'")]
pub(crate) struct Args {}

/// The shape of one agent. Fields may be added, never removed.
#[derive(Serialize)]
struct Line {
    agent: &'static str,
    installed: bool,
    built_in: bool,
    version: Option<String>,
    path: Option<String>,
}

pub(crate) fn run(_: &Args, out: &mut Output) -> Result<(), Failure> {
    let lines: Vec<Line> = thread::scope(|scope| {
        // Each of them may take its time; together they take no longer.
        let asked: Vec<_> = registry::all().iter().map(|agent| scope.spawn(|| look_at(*agent))).collect();
        asked.into_iter().filter_map(|asked| asked.join().ok()).collect()
    });
    if out.is_json() {
        return out.json(&lines);
    }
    for line in &lines {
        let version = match (&line.version, line.built_in, line.installed) {
            (_, true, _) => "built in",
            (Some(version), _, _) => version,
            (None, _, true) => "does not say its version",
            (None, _, false) => "not installed",
        };
        let path = line.path.as_deref().filter(|_| !line.built_in).unwrap_or_default();
        let text = format!("{:<8} {:<28} {}", line.agent, visible_line(version), visible_line(path));
        let text = text.trim_end();
        let text = if line.installed { text.to_owned() } else { out.paint().quiet(text) };
        out.line(&text)?;
    }
    Ok(())
}

fn look_at(agent: &dyn Agent) -> Line {
    let program = program_of(agent).and_then(Result::ok);
    let built_in = agent.program() == Program::Ourselves;
    let version = match &program {
        _ if built_in => Some(env!("AZUREAL_VERSION").to_owned()),
        Some(program) => version_of(program),
        None => None,
    };
    let path = program.map(|program| program.display().to_string());
    Line { agent: agent.name(), installed: path.is_some(), built_in, version, path }
}

/// Asks a program for its version, and does not wait for ever.
fn version_of(program: &Path) -> Option<String> {
    let mut said = tempfile::tempfile().ok()?;
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(said.try_clone().ok()?)
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if started.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(10)),
            Ok(None) | Err(_) => break None,
        }
    };
    if status.is_none() {
        // It may have ended just now, which is as good.
        drop(child.kill());
        drop(child.wait());
    }
    status.filter(std::process::ExitStatus::success)?;
    first_line(&mut said)
}

fn first_line(file: &mut File) -> Option<String> {
    let mut bytes = Vec::new();
    file.rewind().ok()?;
    file.take(SAID_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.to_owned())
}
