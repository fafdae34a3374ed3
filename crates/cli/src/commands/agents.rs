use azureal::agents::{AgentState, Problem, survey};
use azureal_core::visible_line;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::environment::environment;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::output::Output;

/// Show which agents can be used
///
/// In order of preference, with version and location. For an agent that cannot be used it says why: it is not installed,
/// it is too old, it does not say its version, or no login was found. Logins are looked for in the environment and in
/// the agent's own files. Nothing is sent over the network, so an expired login only shows in a turn.
///
/// Versions are cached for an hour, unless the program changes. The built-in offline agent can always be used.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal agents
  azureal agents --json | jq -r '.[] | select(.usable) | .agent'")]
pub(crate) struct Args {}

/// The shape of one agent. Fields may be added, never removed.
#[derive(Serialize)]
struct Line {
    agent: &'static str,
    installed: bool,
    built_in: bool,
    version: Option<String>,
    path: Option<String>,
    usable: bool,
    problem: Option<Problem>,
    hint: Option<String>,
}

pub(crate) fn run(_: &Args, out: &mut Output) -> Result<(), Failure> {
    let lines: Vec<Line> = states()?.into_iter().map(Line::of).collect();
    if out.is_json() {
        return out.json(&lines);
    }
    let columns = |of: &dyn Fn(&Line) -> usize| lines.iter().map(of).max().unwrap_or(0);
    let name = columns(&|line| line.agent.width());
    let version = columns(&|line| line.shown_version().width());
    let paint = out.paint();
    for line in &lines {
        let mark = if line.usable { paint.success("✓") } else { paint.danger("✗") };
        let shown = line.shown_version();
        let pad = " ".repeat(version - shown.width());
        let path = line.path.as_deref().filter(|_| !line.built_in).unwrap_or_default();
        let text = format!("{:<name$}  {shown}{pad}  {}", line.agent, visible_line(path));
        let text = text.trim_end();
        let text = if line.installed { text.to_owned() } else { paint.quiet(text) };
        out.line(&format!("{mark} {text}"))?;
        if let Some(hint) = &line.hint {
            out.line(&format!("  {:<name$}  {hint}", ""))?;
        }
    }
    Ok(())
}

/// Finds the state of all agents. A program that hangs does not outlive us.
fn states() -> Result<Vec<AgentState>, Failure> {
    let interrupts = Interrupts::listen()?;
    let interrupted = interrupts.on_interrupt(|| {});
    let states = survey(&environment(), &|| interrupted.has_happened());
    interrupts.rest();
    states.ok_or_else(|| Failure::cancelled("cancelled"))
}

impl Line {
    fn of(state: AgentState) -> Self {
        let AgentState { agent, program, is_built_in, version, problem, hint } = state;
        Self {
            agent,
            installed: program.is_some(),
            built_in: is_built_in,
            version: if is_built_in { Some(env!("AZUREAL_VERSION").to_owned()) } else { version },
            path: program.map(|program| program.display().to_string()),
            usable: problem.is_none(),
            problem,
            hint,
        }
    }

    fn shown_version(&self) -> String {
        match &self.version {
            _ if self.built_in => "built in".to_owned(),
            Some(version) => visible_line(version).into_owned(),
            None if self.installed => "unknown version".to_owned(),
            None => "not installed".to_owned(),
        }
    }
}
