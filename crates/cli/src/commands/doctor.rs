use std::path::Path;

use azureal::Options;
use azureal::agents::{AgentState, Problem};
use azureal::doctor::{Doctor, Finding, Fixed, Report, Severity};
use azureal::error::shown;
use azureal_core::visible_line;
use serde::Serialize;

use crate::environment::environment;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::output::{Output, counted};
use crate::spinner::Spinner;

/// Check the store and its surroundings, and repair them
///
/// Checks the file of the store, its rows, the events, numbers and counts of every session, UUIDs, the output of turns, versions of
/// files, the search index, unfinished turns, leases, both names of the file, owners and modes, room on the disk, configuration, trust and
/// agents. Says what is wrong and what `--fix` would do. Without `--fix` nothing is changed, but SQLite takes a half-written change back
/// as for every reader. Of a store on a server, the sessions are checked, and what this machine keeps for it.
///
/// `--fix` first copies the store to `<store>.backup-<time>`. Rows that cannot stay are moved to `<store>.damaged-<time>.jsonl`. Of a file
/// that SQLite cannot use, every row that can be read moves to a new file, and the old one is kept as `<store>.damaged-<time>`. A repair
/// does not begin while a turn runs.
///
/// Exit code 0 if nothing is wrong (notes do not count), else 1.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal doctor
  azureal doctor --fix
  azureal doctor --json | jq -r '.findings[] | \"\\(.severity) \\(.kind) \\(.place)\"'")]
pub(crate) struct Args {
    /// Repair what can be repaired, after a copy of the store is made
    #[arg(long)]
    fix: bool,
}

/// The shape of a check. Fields may be added, never removed.
#[derive(Serialize)]
struct Shape<'a> {
    healthy: bool,
    store: &'a str,
    sessions: Option<u64>,
    events: Option<u64>,
    /// With `--fix`, those that are left.
    findings: &'a [Finding],
    agents: Vec<AgentLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fixed: Option<FixedShape<'a>>,
}

/// The shape of a repair.
#[derive(Serialize)]
struct FixedShape<'a> {
    /// The findings before the repair.
    findings: &'a [Finding],
    done: &'a [String],
    failed: &'a [String],
    backup: Option<String>,
    set_aside: Option<String>,
}

#[derive(Serialize)]
struct AgentLine<'a> {
    agent: &'a str,
    installed: bool,
    version: Option<&'a str>,
    usable: bool,
    problem: Option<Problem>,
}

/// Checks the store `named`, or else the project's.
pub(crate) fn run(args: &Args, named: Option<&Path>, out: &mut Output) -> Result<(), Failure> {
    let environment = environment();
    let options = Options { store: named.map(Path::to_owned), may_block: true, ..Options::default() };
    let doctor = Doctor::new(Path::new("."), &environment, &options);
    let interrupts = Interrupts::listen()?;
    let interrupted = interrupts.on_interrupt(|| {});
    let is_cancelled = || interrupted.has_happened();
    let spinner = Spinner::start("checking");
    let progress = |step: &str| spinner.relabel(&format!("checking: {step}"));
    let before = doctor.examine(&progress, &is_cancelled)?;
    let (report, fixed) = if args.fix && before.fixable().next().is_some() {
        let fixed = doctor.fix(&before, &|step| spinner.step(&format!("repairing: {step}")))?;
        (doctor.examine(&progress, &is_cancelled)?, Some((before, fixed)))
    } else {
        (before, None)
    };
    drop(spinner);
    interrupts.rest();
    if out.is_json() {
        out.json(&shape(&report, fixed.as_ref()))?;
    } else {
        if let Some((_, fixed)) = &fixed {
            print_fixed(fixed, out)?;
        }
        print(&report, out)?;
    }
    out.flush()?;
    conclude(&report)
}

fn shape<'a>(report: &'a Report, fixed: Option<&'a (Report, Fixed)>) -> Shape<'a> {
    let path = |path: &Path| path.display().to_string();
    Shape {
        healthy: report.is_healthy(),
        store: &report.store,
        sessions: report.sessions,
        events: report.events,
        findings: &report.findings,
        agents: report.agents.iter().map(agent_line).collect(),
        fixed: fixed.map(|(before, fixed)| FixedShape {
            findings: &before.findings,
            done: &fixed.done,
            failed: &fixed.failed,
            backup: fixed.backup.as_deref().map(path),
            set_aside: fixed.set_aside.as_ref().map(|(file, _)| path(file)),
        }),
    }
}

fn agent_line(state: &AgentState) -> AgentLine<'_> {
    AgentLine {
        agent: state.agent,
        installed: state.program.is_some(),
        version: state.version.as_deref(),
        usable: state.problem.is_none(),
        problem: state.problem,
    }
}

fn print_fixed(fixed: &Fixed, out: &mut Output) -> Result<(), Failure> {
    if let Some(backup) = &fixed.backup {
        out.line(&format!("the store as it was: {}", shown(backup)))?;
    }
    let paint = out.paint();
    for line in &fixed.done {
        out.line(&format!("{} {}", paint.success("✓"), visible_line(line)))?;
    }
    for line in &fixed.failed {
        out.line(&format!("{} not repaired: {}", paint.danger("✗"), visible_line(line)))?;
    }
    if let Some((path, rows)) = &fixed.set_aside {
        out.line(&format!("{} set aside: {}", counted(*rows, "row"), shown(path)))?;
    }
    Ok(())
}

fn print(report: &Report, out: &mut Output) -> Result<(), Failure> {
    let paint = out.paint();
    for Finding { severity, place, message, fix, advice, .. } in &report.findings {
        let mark = match severity {
            Severity::Error => paint.danger("✗"),
            Severity::Warning => paint.caution("!"),
            Severity::Note => paint.quiet("·"),
        };
        let place = if place.is_empty() { String::new() } else { format!("{}: ", visible_line(place)) };
        out.line(&format!("{mark} {place}{}", visible_line(message)))?;
        if let Some(fix) = fix {
            out.line(&format!("  {} {}", paint.quiet("--fix"), visible_line(fix)))?;
        }
        if let Some(advice) = advice {
            out.line(&format!("  {}", visible_line(advice)))?;
        }
    }
    let content = match (report.sessions, report.events) {
        (Some(sessions), Some(events)) => {
            format!("{}, {}", counted(sessions, "session"), counted(events, "event"))
        }
        (Some(sessions), None) => counted(sessions, "session"),
        (None, _) => "no session could be read".to_owned(),
    };
    let store = visible_line(&report.store);
    out.line(&match (report.is_healthy(), report.sessions) {
        (true, None) => "nothing is wrong: there is no store yet".to_owned(),
        (true, Some(_)) => format!("nothing is wrong in {store}: {content}"),
        (false, _) => format!("checked {store}: {content}"),
    })?;
    let agents: Vec<String> = report
        .agents
        .iter()
        .filter(|state| state.program.is_some() || state.is_built_in)
        .map(agent_text)
        .collect();
    out.line(&visible_line(&format!("agents: {}", agents.join(", "))))
}

/// Returns an agent that is there with its version, and why it cannot be used.
fn agent_text(state: &AgentState) -> String {
    // Programs print their names beside it.
    let mut words = state.version.iter().flat_map(|version| version.split_whitespace());
    let number = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let version = number.map_or_else(String::new, |number| format!(" {number}"));
    let problem = match state.problem {
        Some(Problem::NotLoggedIn) => " (no login found)",
        Some(Problem::TooOld) => " (too old)",
        Some(Problem::NoVersion | Problem::NotInstalled) => " (cannot be used)",
        None if state.is_built_in => " (built in)",
        None => "",
    };
    format!("{}{version}{problem}", state.agent)
}

/// Returns an error if something is wrong.
fn conclude(report: &Report) -> Result<(), Failure> {
    if report.is_healthy() {
        return Ok(());
    }
    let is_wrong = |finding: &&Finding| finding.severity != Severity::Note;
    let wrong = report.findings.iter().filter(is_wrong).map(|finding| finding.count).sum();
    let fixable = report.fixable().filter(is_wrong).map(|finding| finding.count).sum();
    let failure = Failure::new("unhealthy", format!("{} found", counted(wrong, "problem")));
    Err(match fixable {
        0 => failure,
        count => failure.with_hint(format!("`azureal doctor --fix` repairs {}", counted(count, "problem"))),
    })
}
