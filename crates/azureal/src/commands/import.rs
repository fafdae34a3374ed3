use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use azureal_core::{SessionRecord, visible_line};
use serde::Serialize;

use crate::failure::Failure;
use crate::import::{Arrival, Format, Gained, Outcome, Source, arrive, look_into};
use crate::output::{Output, counted, warn};
use crate::place::Place;
use crate::resolve::called;

/// Take over sessions of other programs and stores
///
/// What a file is, is told by its content. Of a folder, every file in it that can be imported is. Files are
/// only read.
///
/// Importing the same thing again changes nothing. If it has grown since, what is new is added to its
/// session, or, if that session has gone on here, all of it becomes a new one. Of a session that was cleared
/// here, the events come back. What cannot be taken over as it is, is reported on standard error.
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
    /// What the files are
    #[arg(short, long, value_enum, default_value = "auto")]
    format: Format,
}

pub(crate) async fn run(args: &Args, place: &Place, out: &mut Output) -> Result<(), Failure> {
    let mut import = Import {
        place,
        format: args.format,
        report: Report::default(),
        failures: Vec::new(),
        progress: Progress::new(),
    };
    let mut done = Ok(());
    for path in &args.paths {
        done = import.path(path, out).await;
        if done.is_err() {
            break;
        }
    }
    import.progress.clear();
    let Import { report, mut failures, .. } = import;
    if out.is_json() {
        out.json(&report)?;
    }
    out.flush()?;
    // What stopped all of it comes before what went wrong with one.
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

/// An import in progress.
struct Import<'a> {
    place: &'a Place,
    format: Format,
    report: Report,
    failures: Vec<Failure>,
    progress: Progress,
}

/// What an import did, for programs.
#[derive(Debug, Default, Serialize)]
struct Report {
    imported: Vec<Imported>,
    unchanged: Vec<Known>,
    problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
struct Imported {
    id: String,
    source: String,
    events: usize,
    name: String,
    /// Whether the events were added to a session that had been imported before.
    continued: bool,
}

#[derive(Debug, Serialize)]
struct Known {
    id: String,
    source: String,
}

#[derive(Debug, Serialize)]
struct Problem {
    source: String,
    message: String,
}

impl Import<'_> {
    /// Imports a file, or the files of a folder. What goes wrong with one does not stop the others.
    async fn path(&mut self, path: &Path, out: &mut Output) -> Result<(), Failure> {
        if !path.is_dir() {
            return self.file(path, out).await;
        }
        let folder = match look_into(path) {
            Ok(folder) => folder,
            Err(failure) => {
                self.failed(path, failure);
                return Ok(());
            }
        };
        if folder.files.is_empty() {
            let message = format!("{} holds nothing that can be imported", path.display());
            let failure = Failure::new("not_recognised", message);
            self.failed(path, failure.with_hint("`azureal import --help` lists what can be"));
        } else if folder.others > 0 {
            warn(&format!("{}: {} passed over", path.display(), counted(folder.others, "other file")));
        }
        for (file, failure) in folder.broken {
            // The folder was named, not this file: the rest can be imported, and that is no failure.
            self.broken(&file, &failure);
        }
        for file in folder.files {
            if !self.place.owns(&file) {
                self.file(&file, out).await?;
            }
        }
        Ok(())
    }

    async fn file(&mut self, path: &Path, out: &mut Output) -> Result<(), Failure> {
        if self.place.owns(path) {
            let message = format!("{} is the store that would be imported into", path.display());
            let failure = Failure::new("same_store", message);
            self.failed(path, failure.with_hint("`--store` names another one to import into"));
            return Ok(());
        }
        let mut source = match Source::open(path, self.format).await {
            Ok(source) => source,
            Err(failure) => {
                self.failed(path, failure);
                return Ok(());
            }
        };
        while let Some(arrival) = source.next().await {
            self.progress.tick();
            match arrival {
                Ok(mut arrival) => {
                    let worktree = self.place.project.worktree();
                    // What the store refuses for one it will refuse for all.
                    let outcome = arrive(&*self.place.store, &worktree, &mut arrival, &|_| Ok(())).await?;
                    self.arrived(&arrival, outcome, out).await?;
                }
                Err(failure) => self.failed(path, failure),
            }
        }
        Ok(())
    }

    async fn arrived(
        &mut self,
        arrival: &Arrival,
        outcome: Outcome,
        out: &mut Output,
    ) -> Result<(), Failure> {
        let source = visible_line(&arrival.source);
        let line = match outcome {
            Outcome::New(id, events) => {
                let record = self.place.store.get(id).await?;
                self.imported(arrival, &record, Gained { events, summaries: 0 }, false);
                format!("{} with {}, from {source}", called(&record), counted(events as u64, "event"))
            }
            Outcome::Continued(id, gained) => {
                // It may have got another name since it came.
                let record = self.place.store.get(id).await?;
                self.imported(arrival, &record, gained, true);
                format!("{} has {}, from {source}", called(&record), gained.in_words())
            }
            Outcome::Unchanged(id) => {
                self.report.unchanged.push(Known { id: id.to_string(), source: arrival.source.clone() });
                format!("{id} is unchanged, from {source}")
            }
        };
        if !out.is_json() {
            self.progress.clear();
            out.line(&line)?;
        }
        // What was said of a session when it came is not said again.
        if !matches!(outcome, Outcome::Unchanged(_)) {
            for problem in &arrival.problems {
                self.problem(&arrival.source, problem);
            }
        }
        Ok(())
    }

    fn imported(&mut self, arrival: &Arrival, record: &SessionRecord, gained: Gained, continued: bool) {
        self.report.imported.push(Imported {
            id: record.id.to_string(),
            source: arrival.source.clone(),
            events: gained.events,
            name: record.name.clone(),
            continued,
        });
    }

    fn problem(&mut self, source: &str, message: &str) {
        self.progress.clear();
        warn(&format!("{source}: {message}"));
        self.report.problems.push(Problem { source: source.to_owned(), message: message.to_owned() });
    }

    /// Notes a file that cannot be imported.
    fn broken(&mut self, file: &Path, failure: &Failure) {
        self.progress.clear();
        warn(failure.message());
        self.note(file, failure);
    }

    /// Notes a path that cannot be imported, although it was named.
    fn failed(&mut self, path: &Path, failure: Failure) {
        self.note(path, &failure);
        self.failures.push(failure);
    }

    fn note(&mut self, path: &Path, failure: &Failure) {
        self.report
            .problems
            .push(Problem { source: path.display().to_string(), message: failure.message().to_owned() });
    }
}

/// A count on a terminal, of an import that takes its time.
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
            // A count that cannot be shown is not worth an error.
            drop(write!(io::stderr(), "\r{} sessions …", self.count));
        }
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() {
            drop(write!(io::stderr(), "\r\x1b[K"));
        }
    }
}
