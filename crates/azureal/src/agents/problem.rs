//! Why an agent cannot be used.

use std::path::Path;

use azureal_core::agent::{Agent, Program};
use azureal_core::visible_line;
use serde::Serialize;

use super::is_logged_in;
use super::version::{Answer, LIMIT, numbers};
use crate::environment::Environment;

/// Why an agent cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    /// It is not on the path.
    NotInstalled,
    /// It does not print its version.
    NoVersion,
    /// Its output is not known.
    TooOld,
    /// There is no trace of a login.
    NotLoggedIn,
}

/// Returns why an agent cannot be used and what to do about it; `None` if it can. `answer` is that of its program to the question for its
/// version.
pub fn problem_of(
    agent: &dyn Agent,
    program: Option<&Path>,
    answer: Option<&Answer>,
    environment: &Environment,
) -> Option<(Problem, Option<String>)> {
    if agent.program() == Program::Ourselves {
        return None;
    }
    let Some(program) = program else { return Some((Problem::NotInstalled, None)) };
    let version = match answer {
        Some(Answer::Version(version)) => version,
        Some(Answer::TooSlow) => {
            let hint = format!("no answer to `--version` within {} s", LIMIT.as_secs());
            return Some((Problem::NoVersion, Some(hint)));
        }
        Some(Answer::Failed) | None => {
            let command = visible_line(&program.to_string_lossy()).into_owned();
            return Some((Problem::NoVersion, Some(format!("see why: `{command} --version`"))));
        }
    };
    let needs = agent.needs()?;
    if numbers(version).is_some_and(|found| found.as_slice() < needs.version) {
        let oldest: Vec<String> = needs.version.iter().map(u64::to_string).collect();
        return Some((
            Problem::TooOld,
            Some(format!("too old: at least version {} works", oldest.join("."))),
        ));
    }
    if !is_logged_in(&needs.login, environment) {
        return Some((Problem::NotLoggedIn, Some(format!("no login found: run `{}`", needs.login.command))));
    }
    None
}
