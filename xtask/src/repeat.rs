//! `cargo xtask repeat`: one set of tests, many times, beside processes that keep the machine busy.
//!
//! A test that fails in one run of twenty has found something. One run of everything says nothing about it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{root, tools};

/// What to repeat.
pub(crate) struct Repeat {
    pub(crate) times: u32,
    /// How many processes compute beside it.
    pub(crate) load: u32,
    /// The package with the tests.
    pub(crate) package: String,
    /// Only tests with one of these in their name; all if empty.
    pub(crate) filters: Vec<String>,
}

impl Repeat {
    /// Reads `PACKAGE TIMES LOAD [FILTER ...]`.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let [package, times, load, filters @ ..] = words else { return None };
        Some(Self {
            times: times.parse().ok()?,
            load: load.parse().ok()?,
            package: (*package).to_owned(),
            filters: filters.iter().map(|filter| (*filter).to_owned()).collect(),
        })
    }
}

/// Builds the tests once, runs them so many times, and names each run that failed.
pub(crate) fn run(repeat: &Repeat) -> Result<()> {
    let programs = build(&repeat.package)?;
    let _load = Load::start(repeat.load)?;
    let started = Instant::now();
    let mut failed = 0;
    for time in 1..=repeat.times {
        for program in &programs {
            let output = Command::new(&program.path)
                .args(&repeat.filters)
                .current_dir(&program.directory)
                .stdin(Stdio::null())
                .output()
                .with_context(|| format!("cannot start {}", program.path.display()))?;
            if output.status.success() {
                continue;
            }
            failed += 1;
            println!("run {time} of {} failed:", program.path.display());
            println!("{}", String::from_utf8_lossy(&output.stdout));
        }
    }
    let seconds = started.elapsed().as_secs();
    println!("{} runs beside {} processes in {seconds} s: {failed} failed", repeat.times, repeat.load);
    if failed > 0 { bail!("{failed} runs failed") } else { Ok(()) }
}

/// A program with tests, and the folder that cargo runs it in.
struct TestProgram {
    path: PathBuf,
    directory: PathBuf,
}

fn build(package: &str) -> Result<Vec<TestProgram>> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
        manifest_path: Option<PathBuf>,
        profile: Option<Profile>,
    }
    #[derive(Deserialize)]
    struct Profile {
        test: bool,
    }

    let output = tools::cargo()
        .args(["test", "--no-run", "--message-format=json", "--package", package])
        .current_dir(root()?)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the tests of {package} do not compile");
    }
    let mut programs = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: Message = serde_json::from_str(line).context("a message of cargo")?;
        let is_test = message.profile.is_some_and(|profile| profile.test);
        if let (true, Some(path), Some(manifest)) = (is_test, message.executable, message.manifest_path) {
            let directory = manifest.parent().context("a package has a folder")?.to_owned();
            programs.push(TestProgram { path, directory });
        }
    }
    Ok(programs)
}

/// Processes that compute until this is dropped.
struct Load(Vec<Child>);

impl Load {
    fn start(count: u32) -> Result<Self> {
        let mut load = Self(Vec::new());
        for _ in 0..count {
            let busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
            load.0.push(busy.context("cannot start sh")?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for process in &mut self.0 {
            drop(process.kill());
            drop(process.wait());
        }
    }
}
