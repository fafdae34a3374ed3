//! The children that azureal starts of its own program: the bridge, the built-in agent, and the one that fills in templates.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use azureal_agents::offline::{self, Persona, answer, line_of};
use azureal_core::agent::AgentOutput;
use azureal_engine::{BRIDGE_SUBCOMMAND, bridge_main};

use crate::config::bounded;
use crate::environment::Environment;

/// The pace of fast speech.
const BETWEEN_WORDS: Duration = Duration::from_millis(4);
/// The exit status for arguments that are wrong.
const USAGE: u8 = 2;

/// Runs as a child of azureal, if the arguments of this process ask for one; `None` if they do not.
///
/// azureal starts its own program again for agents that are no program of their own, or do not answer one prompt and exit, and to fill in
/// templates within bounds.
/// A front end calls this first thing in `main`, with the arguments and the variables of its process, and names its program with
/// [`Environment::with_own_program`](crate::Environment::with_own_program). Without that, or with the program `azureal` named
/// there, it need not. It does not serve recall:
/// [`Workspace::set_recall_service`](crate::Workspace::set_recall_service) does.
///
/// ```
/// # use std::process::ExitCode;
/// fn main() -> ExitCode {
///     if let Some(status) = azureal::child_main(std::env::args_os(), std::env::vars_os()) {
///         return status;
///     }
///     // The front end.
///     ExitCode::SUCCESS
/// }
/// ```
pub fn child_main(
    args: impl IntoIterator<Item = OsString>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    let subcommand = args.next()?;
    if subcommand == BRIDGE_SUBCOMMAND {
        return Some(bridge_main(variables.into_iter().collect()));
    }
    if subcommand == bounded::SUBCOMMAND {
        return Some(fill_in_main(&Environment::new(variables)));
    }
    (subcommand == offline::SUBCOMMAND).then(|| offline_main(args.next().as_deref()))
}

/// Fills in one template: reads a request from standard input, and answers on standard output.
fn fill_in_main(environment: &Environment) -> ExitCode {
    match bounded::answer(&mut io::stdin().lock(), &mut io::stdout().lock(), environment) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(error.message());
            if error.kind() == "usage" { USAGE.into() } else { ExitCode::FAILURE }
        }
    }
}

/// Is the built-in agent: reads a prompt from standard input, and answers as a stream of events.
fn offline_main(persona: Option<&OsStr>) -> ExitCode {
    let Some(persona) = persona.and_then(OsStr::to_str).and_then(Persona::named) else {
        report("azureal starts this command itself, with the name of a persona");
        return USAGE.into();
    };
    match speak(persona) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Writes an error to standard error, which the turn keeps.
fn report(error: &str) {
    // There is nobody else to tell.
    drop(writeln!(io::stderr(), "{error}"));
}

fn speak(persona: Persona) -> io::Result<()> {
    let mut frame = Vec::new();
    io::stdin().lock().read_to_end(&mut frame)?;
    let frame = String::from_utf8_lossy(&frame);
    // The directory of the turn is the one that it was started in.
    let directory = Path::new(".").canonicalize().unwrap_or_default();
    let mut stdout = io::stdout().lock();
    for output in answer(persona, &directory.display().to_string(), &frame) {
        writeln!(stdout, "{}", line_of(&output))?;
        stdout.flush()?;
        if matches!(output, AgentOutput::Delta(_)) {
            thread::sleep(BETWEEN_WORDS);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_start_is_no_child() {
        for args in
            [&["azureal"][..], &[], &["azureal", "run"], &["__bridge"], &["azureal", "run", "__bridge"]]
        {
            let args = args.iter().map(OsString::from);
            assert!(child_main(args, []).is_none());
        }
    }
}
