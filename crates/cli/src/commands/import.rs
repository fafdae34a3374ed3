use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use azureal::Workspace;
use azureal::exchange::{
    ImportFormat, ImportOptions, ImportOutcome, ImportPaths, ImportReport, ImportStep, IncomingSession,
};
use azureal::sessions::called;
use azureal_core::{SessionId, SessionRecord, visible_line};
use clap::ValueEnum;

use crate::failure::Failure;
use crate::output::{Output, counted, warn};

/// Import sessions of other programs and stores
///
/// The format of a file is detected from its content. Of a folder, every file that can be imported is. Files are only
/// read.
///
/// Importing the same session again changes nothing. If it has grown, azureal adds what is new. If it was also continued
/// here, it becomes a new session; with a UUID, which exports and stores of azureal have, a fork of the one here. A
/// session that was cleared here gets its events back. If another session has its name, it is named `NAME-2`. Data
/// that cannot be imported unchanged is reported on standard error.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal import ~/.cllm/conversations
  azureal import ../other-project/.azureal/sessions.azs
  azureal import messages.json axio.db --json")]
pub(crate) struct Args {
    /// The files and folders
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// The format of the files
    #[arg(short, long, value_enum, default_value = "auto")]
    format: FormatArgument,
}

/// The value of `--format`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormatArgument {
    /// Detect it from the content
    Auto,
    /// Another store of azureal, or of the program whose format it shares (`.azs`)
    Azs,
    /// Output of `azureal export --format json`
    Json,
    /// A conversation of cllm (`~/.cllm/conversations/*.json`)
    Cllm,
    /// A list of messages of axio as JSON, or its SQLite database
    Axio,
}

impl From<FormatArgument> for ImportFormat {
    fn from(argument: FormatArgument) -> Self {
        match argument {
            FormatArgument::Auto => Self::Auto,
            FormatArgument::Azs => Self::Azs,
            FormatArgument::Json => Self::Json,
            FormatArgument::Cllm => Self::Cllm,
            FormatArgument::Axio => Self::Axio,
        }
    }
}

pub(crate) async fn run(args: &Args, place: &Workspace, out: &mut Output) -> Result<(), Failure> {
    let options = ImportOptions {
        format: args.format.into(),
        worktree: &place.project.worktree(),
        temporary: &std::env::temp_dir(),
        is_own_store: &|path| place.owns(path),
        progress: &|_| ControlFlow::Continue(()),
    };
    let mut import = ImportPaths::new(&*place.store, options, args.paths.iter().cloned());
    let mut printer =
        Printer { report: ImportReport::default(), failures: Vec::new(), progress: Progress::new() };
    let done = printer.print_all(&mut import, out).await;
    printer.progress.clear();
    let Printer { report, mut failures, .. } = printer;
    if out.is_json() {
        out.json(&report)?;
    }
    out.flush()?;
    // An error that stopped the import comes before the errors of single files.
    done?;
    match failures.len() {
        0 => Ok(()),
        1 => failures.pop().map_or(Ok(()), Err),
        count => {
            for failure in &failures {
                warn(failure.message());
            }
            Err(Failure::new("import", format!("{count} things could not be imported")))
        }
    }
}

/// Prints the steps of an import.
struct Printer {
    report: ImportReport,
    failures: Vec<Failure>,
    progress: Progress,
}

impl Printer {
    async fn print_all(&mut self, import: &mut ImportPaths<'_>, out: &mut Output) -> Result<(), Failure> {
        while let Some(step) = import.next().await? {
            self.report.add(&step);
            self.print(step, out)?;
        }
        Ok(())
    }

    fn print(&mut self, step: ImportStep, out: &mut Output) -> Result<(), Failure> {
        match step {
            ImportStep::OtherFiles { folder, count } => {
                warn(&format!("{}: {} passed over", folder.display(), counted(count, "other file")));
            }
            // The user named the folder, not this file: it is no failure if the rest can be imported.
            ImportStep::DamagedFile { error, .. } => {
                self.progress.clear();
                warn(&error.to_string());
            }
            ImportStep::Failed { error, .. } => self.failures.push(error.into()),
            ImportStep::Imported { session, outcome, record } => {
                self.progress.tick();
                if !out.is_json() {
                    self.progress.clear();
                    out.line(&line(&session, outcome, record.as_deref()))?;
                }
                // An earlier import has printed the messages of an unchanged session.
                if !matches!(outcome, ImportOutcome::Unchanged { .. }) {
                    self.progress.clear();
                    warn_of(&session);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Prints the notices and problems of a session.
pub(super) fn warn_of(session: &IncomingSession) {
    for notice in session.notices() {
        warn(&format!("{}: {notice}", session.label()));
    }
    for problem in session.problems() {
        warn(&format!("{}: {problem}", session.label()));
    }
}

/// Returns the line about a session.
fn line(session: &IncomingSession, outcome: ImportOutcome, record: Option<&SessionRecord>) -> String {
    let source = visible_line(session.label());
    let name = record.map_or_else(|| outcome.session().to_string(), called);
    match outcome {
        ImportOutcome::New { events, .. } => {
            format!("{name} with {}, from {source}", counted(events as u64, "event"))
        }
        ImportOutcome::Forked { events, from, .. } => {
            format!("{name} with {}, from {source}, {}", counted(events as u64, "event"), diverged(from))
        }
        ImportOutcome::Continued { added, .. } => format!("{name} has {added}, from {source}"),
        ImportOutcome::Unchanged { .. } => format!("{name} is unchanged, from {source}"),
    }
}

/// Returns the text about a session that became a fork.
pub(super) fn diverged(from: SessionId) -> String {
    format!("a fork of {from}: their logs differ")
}

/// A count on a terminal, for imports of more than a second.
struct Progress {
    terminal: bool,
    since: Instant,
    shown: Option<Instant>,
    count: u64,
}

impl Progress {
    fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), since: Instant::now(), shown: None, count: 0 }
    }

    fn tick(&mut self) {
        self.count += 1;
        let last = self.shown.unwrap_or(self.since);
        if self.terminal && last.elapsed() > Duration::from_secs(1) {
            self.shown = Some(Instant::now());
            // An error of the terminal must not stop the import.
            drop(write!(io::stderr(), "\r{} sessions …", self.count));
        }
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() {
            drop(write!(io::stderr(), "\r\x1b[K"));
        }
    }
}
