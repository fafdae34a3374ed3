use std::path::{Path, PathBuf};
use std::thread;

use azureal_agents::registry;
use azureal_core::agent::{Agent, Program};
use azureal_core::visible_line;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::environment::environment;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::output::Output;
use azureal::agents::version::{Answer, Versions, ask};
use azureal::agents::{Problem, ProgramFile, problem_of, program_of};

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
    let programs: Vec<Option<PathBuf>> =
        registry::all().iter().map(|agent| program_of(*agent, &environment()).and_then(Result::ok)).collect();
    let external = registry::all().iter().zip(&programs).map(|(agent, program)| match agent.program() {
        Program::Named(_) => program.as_deref(),
        Program::Ourselves => None,
    });
    let answers = versions(&external.collect::<Vec<_>>())?;
    let agents = registry::all().iter().zip(programs).zip(answers);
    let lines: Vec<Line> =
        agents.map(|((agent, program), answer)| Line::of(*agent, program, answer)).collect();
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

/// Finds the versions of programs: in the cache, else by asking them, all at the same time.
fn versions(programs: &[Option<&Path>]) -> Result<Vec<Option<Answer>>, Failure> {
    let environment = environment();
    let mut cache = Versions::load(environment.cache());
    let asked: Vec<Option<ProgramFile>> =
        programs.iter().map(|program| ProgramFile::of((*program)?)).collect();
    let mut answers: Vec<Option<Answer>> =
        asked.iter().map(|asked| cache.get(asked.as_ref()?).map(Answer::Version)).collect();
    let missing: Vec<(usize, &Path)> = programs
        .iter()
        .enumerate()
        .filter(|(index, _)| answers.get(*index).is_some_and(Option::is_none))
        .filter_map(|(index, program)| Some((index, (*program)?)))
        .collect();
    if missing.is_empty() {
        return Ok(answers);
    }
    // A program that hangs must not outlive us.
    let interrupts = Interrupts::listen()?;
    let interrupted = interrupts.on_interrupt(|| {});
    let said: Vec<(usize, Answer)> = thread::scope(|scope| {
        let (interrupted, environment) = (&interrupted, &environment);
        let asking: Vec<_> = missing
            .into_iter()
            .map(|(index, program)| {
                scope.spawn(move || {
                    let is_cancelled = || interrupted.has_happened();
                    (index, ask(program, Path::new("."), environment, &is_cancelled))
                })
            })
            .collect();
        asking.into_iter().filter_map(|asking| asking.join().ok()).collect()
    });
    interrupts.rest();
    if interrupted.has_happened() {
        return Err(Failure::cancelled("cancelled"));
    }
    for (index, answer) in said {
        if let (Answer::Version(version), Some(Some(asked))) = (&answer, asked.get(index)) {
            cache.add(asked.clone(), version.clone());
        }
        if let Some(place) = answers.get_mut(index) {
            *place = Some(answer);
        }
    }
    cache.save();
    Ok(answers)
}

impl Line {
    fn of(agent: &dyn Agent, program: Option<PathBuf>, answer: Option<Answer>) -> Self {
        let built_in = agent.program() == Program::Ourselves;
        let (problem, hint) = problem_of(agent, program.as_deref(), answer.as_ref(), &environment()).unzip();
        let version = match answer {
            _ if built_in => Some(env!("AZUREAL_VERSION").to_owned()),
            Some(Answer::Version(version)) => Some(version),
            Some(Answer::Failed | Answer::TooSlow) | None => None,
        };
        Self {
            agent: agent.name(),
            installed: program.is_some(),
            built_in,
            version,
            path: program.map(|program| program.display().to_string()),
            usable: problem.is_none(),
            problem,
            hint: hint.flatten(),
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
