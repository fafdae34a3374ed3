//! The programs that the checks call: whether they are there, and how they get there.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::root;

/// Whether programs that are missing may be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Installing {
    Allowed,
    No,
}

impl Installing {
    /// Nobody asks for it on a machine that is only there for the checks, so there it is always allowed.
    pub(crate) fn from_environment() -> Self {
        if is_ci() { Self::Allowed } else { Self::No }
    }
}

/// Says whether this is a machine of the continuous integration.
pub(crate) fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// A program that the checks call.
struct Tool {
    name: &'static str,
    /// A call that succeeds where the program is there.
    probe: &'static [&'static str],
    source: Source,
    /// What does not happen without it.
    lost: &'static str,
}

enum Source {
    /// The Debian package of this name.
    Apt(&'static str),
    /// The component of the Rust toolchain of this name.
    Rustup(&'static str),
}

const RUSTFMT: Tool = Tool {
    name: "rustfmt",
    probe: &["cargo", "fmt", "--version"],
    source: Source::Rustup("rustfmt"),
    lost: "the format is not checked",
};
const CLIPPY: Tool = Tool {
    name: "clippy",
    probe: &["cargo", "clippy", "--version"],
    source: Source::Rustup("clippy"),
    lost: "the lints are not checked",
};
const STRACE: Tool = Tool {
    name: "strace",
    probe: &["strace", "-V"],
    source: Source::Apt("strace"),
    lost: "the tests that kill or starve an append at each of its system calls are skipped",
};
const SQLITE3: Tool = Tool {
    name: "sqlite3",
    probe: &["sqlite3", "-version"],
    source: Source::Apt("sqlite3"),
    lost: "the tests that open our files with the plain SQLite shell are skipped",
};
const GIT: Tool = Tool {
    name: "git",
    probe: &["git", "--version"],
    source: Source::Apt("git"),
    lost: "the tests that need a repository with worktrees are skipped",
};
const NPM: Tool = Tool {
    name: "npm",
    probe: &["npm", "--version"],
    source: Source::Apt("npm"),
    lost: "the tests with the real Claude Code and Codex are skipped",
};
const POSTGRESQL: Tool = Tool {
    name: "postgresql",
    // The server's own programs lie in a folder of their version, on no path.
    probe: &["sh", "-c", "ls /usr/lib/postgresql/*/bin/initdb || command -v initdb"],
    source: Source::Apt("postgresql"),
    lost: "the tests of the PostgreSQL store are skipped",
};

const REDIS: Tool = Tool {
    name: "redis",
    probe: &["redis-server", "--version"],
    source: Source::Apt("redis-server"),
    lost: "the tests of the Redis store are skipped",
};
const PGBOUNCER: Tool = Tool {
    name: "pgbouncer",
    // Debian puts it where only root's path leads.
    probe: &["sh", "-c", "ls /usr/sbin/pgbouncer || command -v pgbouncer"],
    source: Source::Apt("pgbouncer"),
    lost: "the tests of the PostgreSQL store behind a pooler are skipped",
};
const CHROMIUM: Tool = Tool {
    name: "chromium",
    probe: &["sh", "-c", "command -v chromium || command -v chromium-browser || command -v google-chrome"],
    source: Source::Apt("chromium"),
    lost: "the tests of exported pages in a real browser are skipped",
};

/// What there is to run the checks with.
pub(crate) struct Present {
    pub(crate) rustfmt: bool,
    pub(crate) clippy: bool,
    pub(crate) npm: bool,
    /// What is lost for lack of a program.
    pub(crate) notices: Vec<String>,
}

/// Makes sure of the programs: installs what is missing if that is allowed, or says what is lost without it.
///
/// What is missing on a machine of the continuous integration is an error: there nobody reads notices.
pub(crate) fn ensure(installing: Installing) -> Result<Present> {
    let is_missing = |tool: &&Tool| !tool.is_present();
    let mut missing: Vec<&Tool> =
        [&RUSTFMT, &CLIPPY, &STRACE, &SQLITE3, &GIT, &NPM, &POSTGRESQL, &PGBOUNCER, &REDIS, &CHROMIUM]
            .into_iter()
            .filter(is_missing)
            .collect();
    if !missing.is_empty() && installing == Installing::Allowed {
        // Judged by what is there afterwards: a mirror that is out of date matters only if it kept us
        // from what we need.
        if let Err(error) = install(&missing) {
            loudly(&format!("cannot install: {error:#}"));
        }
        missing.retain(is_missing);
    }
    if missing.is_empty() {
        println!(
            "rustfmt, clippy, strace, sqlite3, git, npm, postgresql, pgbouncer, redis and chromium are there"
        );
    }
    let mut notices = Vec::new();
    for tool in &missing {
        let notice = format!("{} is missing: {}", tool.name, tool.lost);
        loudly(&notice);
        notices.push(notice);
    }
    if is_ci() && !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|tool| tool.name).collect();
        bail!("missing: {}", names.join(", "));
    }
    let is_there = |name: &str| !missing.iter().any(|tool| tool.name == name);
    Ok(Present {
        rustfmt: is_there(RUSTFMT.name),
        clippy: is_there(CLIPPY.name),
        npm: is_there(NPM.name),
        notices,
    })
}

impl Tool {
    fn is_present(&self) -> bool {
        succeeds(self.probe)
    }
}

fn install(missing: &[&Tool]) -> Result<()> {
    let package = |tool: &&Tool| match tool.source {
        Source::Apt(package) => Some(package),
        Source::Rustup(_) => None,
    };
    let packages: Vec<&str> = missing.iter().filter_map(package).collect();
    if !packages.is_empty() {
        apt_get(&["update"])?;
        apt_get(&[&["install", "--yes"], packages.as_slice()].concat())?;
    }
    for tool in missing {
        if let Source::Rustup(component) = tool.source {
            finish(command_of(&["rustup", "component", "add", component])?)?;
        }
    }
    Ok(())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    // `sudo -n` rather than a password prompt: this runs unattended.
    let user = Command::new("id").arg("-u").output().context("cannot start `id`")?;
    let sudo: &[&str] = match user.stdout.trim_ascii() {
        b"0" => &[],
        _ if succeeds(&["sudo", "-n", "true"]) => &["sudo", "-n"],
        _ => bail!("apt-get needs root or a sudo that asks for no password"),
    };
    let call = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"];
    finish(command_of(&[sudo, &call, arguments].concat())?)
}

/// Shows a command, runs it to its end and says whether it was content.
pub(crate) fn finish(mut command: Command) -> Result<()> {
    let shown = shown(&command);
    println!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

fn succeeds(call: &[&str]) -> bool {
    command_of(call).is_ok_and(|mut command| {
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    })
}

fn command_of(call: &[&str]) -> Result<Command> {
    let (program, arguments) = call.split_first().context("no program to call")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// Returns the cargo that runs this, so that the checks use the same toolchain.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What cargo tells of this package would be told to build scripts of others: ring, and all that uses it, would
    // be built anew in turns with a cargo that somebody types.
    for (name, _) in std::env::vars_os() {
        let about_us = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if about_us.iter().any(|about_us| name.to_string_lossy().starts_with(about_us)) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// The version that is installed where there is none; the form of `deny.toml` changes between versions.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// Finds cargo-deny on the path or among our own tools, and installs it there if that is allowed.
pub(crate) fn cargo_deny(installing: Installing) -> Result<Option<PathBuf>> {
    if succeeds(&["cargo-deny", "--version"]) {
        return Ok(Some("cargo-deny".into()));
    }
    let tools = root()?.join("target").join("tools");
    let ours = tools.join("bin").join("cargo-deny");
    if !ours.is_file() {
        if installing == Installing::No {
            return Ok(None);
        }
        let mut install = cargo();
        install.args(["install", "--locked", "--root"]).arg(&tools);
        install.args(["cargo-deny", "--version", CARGO_DENY_VERSION]);
        finish(install)?;
    }
    Ok(Some(ours))
}

/// Runs a command that may hang, and says whether it succeeded within the limit.
pub(crate) fn finishes_within(mut command: Command, limit: Duration) -> Result<bool> {
    let shown = shown(&command);
    println!("$ {shown}");
    let mut child = command.spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        thread::sleep(Duration::from_millis(50));
    }
    child.kill()?;
    child.wait()?;
    Ok(false)
}

/// Returns a command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    // The folder of the program says nothing to the reader and differs on every machine.
    let program = program.file_name().unwrap_or(command.get_program());
    let words: Vec<_> =
        std::iter::once(program).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

/// Says something that must not be overlooked among pages of output.
pub(crate) fn loudly(notice: &str) {
    println!("\n!!!!\n!!!! {notice}\n!!!!\n");
}
