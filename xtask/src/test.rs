//! `cargo xtask test`: every check that a change has to pass, in the order in which they are quick to fail.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::agents;
use crate::root;
use crate::tools::{self, Installing, finish};

/// How long the advisory database may take to arrive before it counts as unreachable.
const FETCH_LIMIT: Duration = Duration::from_secs(120);

/// Runs all steps and stops at the first that fails.
pub(crate) fn run(installing: Installing) -> Result<()> {
    let ci = tools::is_ci();
    let mut steps = Steps::default();

    let present = steps.step("programs that the checks need", || tools::ensure(installing))?;
    if present.rustfmt {
        steps.step("rustfmt", || finish(cargo(&["fmt", "--all", "--check"])?))?;
    }
    if present.clippy {
        steps.step("clippy", || {
            let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
            finish(cargo(&arguments)?)
        })?;
    }
    let no_agents = match present.npm {
        true => steps.step("the real agents", agents::ensure)?,
        // Then it has been said that npm is missing.
        false => None,
    };
    steps.step("tests, those in the documentation included", || {
        let mut command = cargo(&["test", "--workspace"])?;
        if ci {
            // Where a program is missing a test may skip itself with a notice; here nobody would read it.
            command.env("AZUREAL_REQUIRE_TOOLS", "1");
        }
        finish(command)
    })?;
    steps.step("documentation", || {
        let mut command = cargo(&["doc", "--workspace", "--no-deps"])?;
        command.env("RUSTDOCFLAGS", "-Dwarnings");
        finish(command)
    })?;
    let unchecked = steps.step("supply chain", || supply_chain(installing))?;

    let mut notices = present.notices;
    notices.extend(no_agents);
    notices.extend(unchecked.map(str::to_owned));
    steps.summary(&notices);
    Ok(())
}

/// Checks licences, sources and known advisories of everything that is linked; returns what was left out.
fn supply_chain(installing: Installing) -> Result<Option<&'static str>> {
    let Some(deny) = tools::cargo_deny(installing)? else {
        let notice = "cargo-deny is not installed: the SUPPLY CHAIN IS NOT CHECKED (--install installs it)";
        tools::loudly(notice);
        return Ok(Some(notice));
    };
    let deny = |arguments: &[&str]| -> Result<Command> {
        let mut command = Command::new(&deny);
        command.args(arguments).current_dir(root()?);
        Ok(command)
    };
    finish(deny(&["check", "bans", "licenses", "sources"])?)?;

    // Fetching stands apart from checking: a database that cannot be reached says nothing about our
    // dependencies, an advisory that is found in it does.
    if !tools::finishes_within(deny(&["fetch", "db"])?, FETCH_LIMIT)? {
        let notice = "the advisory database cannot be reached: KNOWN ADVISORIES ARE NOT CHECKED";
        tools::loudly(notice);
        return Ok(Some(notice));
    }
    finish(deny(&["--offline", "check", "advisories"])?)?;
    Ok(None)
}

fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut command = tools::cargo();
    command.args(arguments).current_dir(root()?);
    Ok(command)
}

/// The steps that are done, with the time that each took.
#[derive(Default)]
struct Steps {
    done: Vec<(&'static str, Duration)>,
}

impl Steps {
    fn step<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("\n=== {name} ===");
        let start = Instant::now();
        let result =
            work().with_context(|| format!("{name}: after {:.1} s", start.elapsed().as_secs_f64()))?;
        self.done.push((name, start.elapsed()));
        Ok(result)
    }

    /// Says it all once more at the end, where it is read.
    fn summary(&self, notices: &[String]) {
        let but = if notices.is_empty() { "" } else { ", but not everything was checked" };
        println!("\n=== all checks passed{but} ===");
        for notice in notices {
            println!("!!!! {notice}");
        }
        for (name, time) in &self.done {
            println!("{:>8.1} s  {name}", time.as_secs_f64());
        }
    }
}
