use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use azureal::Workspace;
use azureal::error::shown;
use azureal::opened::{InterfaceCommand, InterfaceRun, KeptSession, TakeBack, TakenBack};
use azureal::sessions::{called, resolve, resolve_to_read};
use azureal_agents::native::writers;
use azureal_core::SessionRecord;
use azureal_engine::Recovered;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT};
use signal_hook::flag::register_conditional_default;

use crate::failure::Failure;
use crate::foreground::wait_in_foreground;
use crate::output::{Output, tell, warn};

/// How often a program is looked at that still runs.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Open a session in the own interface of an agent's program
///
/// The session is written into the home of the program under a new id, with its turns and tool calls, and the program is started on it. What you do there
/// becomes part of the session when you quit: turns, tokens, tool calls. The written copy is then deleted.
///
/// No other turn runs in the session meanwhile. If azureal is killed, the next azureal command takes back what was added.
///
/// The program gets the context of the session: its newest summary, if it has one, and everything after it. Results of tools are as short as
/// they are stored. Files that change meanwhile are not recorded: `azureal diff` and `undo` know the turns of `azureal run` only.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal open S3               in the program of its last agent
  azureal open S3 -a claude     in Claude Code, whichever agents wrote it
  azureal open -a codex --keep  the last session; Codex keeps its copy
  azureal open S3 -a claude -- --model opus")]
pub(crate) struct Args {
    /// The session: its number (S3) or its whole name; the last one of this worktree by default
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// The agent whose program is started; by default that of the last turn, else the configured one, else the first that is installed
    #[arg(short, long, value_name = "PROGRAM", value_parser = programs())]
    agent: Option<String>,
    /// Leave the copy in the home of the program
    #[arg(long)]
    keep: bool,
    /// Further arguments of the program
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// The agents whose programs can open a session.
fn programs() -> PossibleValuesParser {
    PossibleValuesParser::new(writers().iter().map(|writer| writer.agent()))
}

pub(crate) async fn run(
    args: &Args,
    place: &Workspace,
    found: &[Recovered],
    out: &mut Output,
) -> Result<(), Failure> {
    // Turns are added to it, so that a prefix of a name is not enough.
    let record = match &args.session {
        Some(session) => resolve(&*place.store, session).await?,
        None => resolve_to_read(place, found, None).await?,
    };
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failure::usage("the interface of an agent needs a terminal").with_hint(format!(
            "`azureal run -s {id}` sends a prompt without one, `azureal export {id} --format claude` writes the session",
            id = record.id
        )));
    }
    let run = place.open_in_agent(&record, args.agent.as_deref(), args.keep, &args.arguments).await?;
    let name = run.command.name;
    // Signals of the terminal are for the program, which shares it with us. We end when it does. A handler, unlike an ignored signal, is
    // not inherited.
    let signals_are_ours = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGQUIT, SIGHUP] {
        if let Err(error) = register_conditional_default(signal, Arc::clone(&signals_are_ours)) {
            run.discard().await;
            return Err(Failure::new("signals", format!("signals cannot be heard: {error}")));
        }
    }
    let (run, exit) = start(run).await?;
    let taken = take_back(run, &signals_are_ours).await?;
    report(&record, name, &taken, out)?;
    match exit.filter(|exit| !exit.success() && taken.turns == 0) {
        Some(exit) => Err(Failure::new("agent_failed", format!("{name} ended with {exit}"))),
        None => Ok(()),
    }
}

/// Runs the program until the user quits it.
async fn start(mut run: InterfaceRun<'_>) -> Result<(InterfaceRun<'_>, Option<ExitStatus>), Failure> {
    let InterfaceCommand { program, arguments, directory, environment, name, .. } = &run.command;
    let variables = environment.iter();
    let started =
        Command::new(program).args(arguments).current_dir(directory).env_clear().envs(variables).spawn();
    let child = match started {
        Ok(child) => child,
        Err(error) => {
            let failure = Failure::new("not_started", format!("{name} does not start: {error}"))
                .with_hint(format!("`{}` is the program", shown(program)));
            run.discard().await;
            return Err(failure);
        }
    };
    let noted = run.started(child.id());
    let exit = wait_in_foreground(child);
    if let Err(error) = noted {
        warn(error.message());
    }
    Ok((run, exit.ok()))
}

/// Takes back what was added. Waits for a program that still runs, in the background or without its launcher: then the signals of the terminal
/// are for us.
async fn take_back(mut run: InterfaceRun<'_>, signals_are_ours: &AtomicBool) -> Result<TakenBack, Failure> {
    // Helpers of a program may end a moment after it.
    let mut is_first_look = true;
    loop {
        let name = run.command.name;
        run = match run.take_back().await? {
            TakeBack::Done(taken) => return Ok(taken),
            TakeBack::Running(run) => *run,
        };
        if !std::mem::take(&mut is_first_look) && !signals_are_ours.swap(true, Ordering::SeqCst) {
            tell(&format!(
                "{name} still runs. Waiting for its end; after Ctrl-C a later azureal command takes back what was added"
            ));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn report(record: &SessionRecord, name: &str, taken: &TakenBack, out: &mut Output) -> Result<(), Failure> {
    for problem in &taken.problems {
        warn(problem);
    }
    if out.is_json() {
        return out.json(&json!({
            "session": taken.session.to_string(),
            "turns": taken.turns,
            "events": taken.events,
            "added_to": taken.other.unwrap_or(taken.session).to_string(),
            "kept": taken.kept.as_ref().map(KeptSession::place),
        }));
    }
    out.line(&taken.message(&called(record), name))?;
    match &taken.kept {
        Some(kept @ KeptSession::File(_)) => {
            out.line(&format!("{name} keeps the session in {}", kept.place()))
        }
        Some(kept @ KeptSession::Id(_)) => out.line(&format!("{name} keeps the session as {}", kept.place())),
        None => Ok(()),
    }
}
