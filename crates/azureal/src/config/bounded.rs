//! Filling in templates within bounds.
//!
//! The template engine counts steps, not bytes: a template of a kilobyte can double a string forty times, or nest
//! lists so that comparing them takes years. So each template is rendered by a child process, this program started
//! again, which limits its own memory and time before it reads the template. Any failure there is an error here.
//!
//! Linux enforces both limits. macOS enforces only the time.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::settings::Variable;
use super::template::{self, Variables};
use crate::environment::Environment;
use crate::error::Error;

/// The hidden command that starts this program for one template.
pub(crate) const SUBCOMMAND: &str = "__fill_in";

/// The memory limit of a template, in bytes, including the stack of its renderer.
const MEMORY: u64 = 128 << 20;
/// The limit of its processor time, in seconds.
const SECONDS: u64 = 2;

/// The request to the process. The environment is inherited.
#[derive(Serialize, Deserialize)]
struct Request {
    command: String,
    given: Vec<(String, String)>,
    declared: Vec<(String, Variable)>,
}

/// Its answer.
#[derive(Serialize, Deserialize)]
enum Answer {
    Filled(String),
    Failed { is_variable: bool, message: String, hint: Option<String> },
}

/// Fills in the variables of a command, as [`template::fill_in`] does.
pub(super) fn fill_in(command: &str, variables: &Variables<'_>) -> Result<String, Error> {
    if !template::is_template(command) {
        return template::fill_in(command, variables);
    }
    let declared = variables.declared.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    let request = Request {
        command: command.to_owned(),
        given: variables.given.to_vec(),
        declared: declared.collect(),
    };
    match ask(&request, variables.environment)
        .map_err(|error| unusable(&format!("the template could not be filled in: {error}")))??
    {
        Answer::Filled(filled) => Ok(filled),
        Answer::Failed { is_variable, message, hint } => {
            let failure = Error::new(if is_variable { "variable" } else { "template" }, message);
            Err(match hint {
                Some(hint) => failure.with_hint(hint),
                None => failure,
            })
        }
    }
}

fn ask(request: &Request, environment: &Environment) -> io::Result<Result<Answer, Error>> {
    let program = match environment.own_program() {
        Ok(program) => program,
        Err(error) => return Ok(Err(error)),
    };
    let mut child = Command::new(program)
        .arg(SUBCOMMAND)
        .env_clear()
        .envs(environment.variables())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // When memory runs out, the runtime reports it there.
        .stderr(Stdio::null())
        .spawn()?;
    let sent = child.stdin.take().map_or(Ok(()), |mut stdin| {
        serde_json::to_writer(&mut stdin, request).map_err(io::Error::from).and_then(|()| stdin.flush())
    });
    let output = child.wait_with_output()?;
    if let Some(signal) = output.status.signal() {
        let limit = if signal == Signal::XCPU.as_raw() {
            format!("{SECONDS} s")
        } else {
            format!("{} MiB of memory", MEMORY >> 20)
        };
        return Ok(Err(unusable(&format!("the template takes more than {limit}"))));
    }
    sent?;
    Ok(Ok(serde_json::from_slice(&output.stdout)?))
}

fn unusable(message: &str) -> Error {
    Error::new("template", message).with_hint("put what is long into a script, and run that")
}

/// Answers one request: what the process does that fills in a template. `input` and `output` are its standard streams.
pub(crate) fn answer(
    input: &mut dyn Read,
    output: &mut dyn Write,
    environment: &Environment,
) -> Result<(), Error> {
    let failed = |error: io::Error| Error::new("template", error.to_string()).with_source(error);
    let mut text = String::new();
    input.read_to_string(&mut text).map_err(failed)?;
    let request: Request = serde_json::from_str(&text)
        .map_err(|error| Error::usage(format!("azureal starts this command itself: {error}")))?;
    let declared = request.declared.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let variables = Variables { given: &request.given, environment, declared };
    for (resource, most) in
        [(Resource::Data, MEMORY), (Resource::As, 8 * MEMORY), (Resource::Cpu, SECONDS), (Resource::Core, 0)]
    {
        limit(resource, most).map_err(failed)?;
    }
    let answer = match template::fill_in(&request.command, &variables) {
        Ok(filled) => Answer::Filled(filled),
        Err(failure) => Answer::Failed {
            is_variable: failure.kind() == "variable",
            message: failure.message().to_owned(),
            hint: failure.hint().map(str::to_owned),
        },
    };
    serde_json::to_writer(&mut *output, &answer).map_err(io::Error::from).map_err(failed)?;
    output.flush().map_err(failed)
}

/// Limits what this process may take. A lower limit that is there already stays.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(resource);
    let current = Some(current.map_or(most, |current| current.min(most)));
    Ok(setrlimit(resource, Rlimit { current, maximum })?)
}
