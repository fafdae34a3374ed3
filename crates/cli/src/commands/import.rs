use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use azureal_core::{SessionRecord, visible_line};
use serde::Serialize;

use crate::failure::Failure;
use crate::import::{Arrival, Format, Outcome, Source, arrive, diverged, look_into};
use crate::output::{Output, counted, warn};
use azureal::Workspace;
use azureal::sessions::called;

/// Take over sessions of other programs and stores
///
/// What a file is, is told by its content. Of a folder, every file in it that can be imported is. Files are
/// only read.
///
/// Importing the same session again changes nothing. If it has grown, azureal adds what is new. If it was also continued
/// here, it becomes a new session; with a UUID, which exports and stores of azureal have, a fork of the one here. A
/// session that was cleared here gets its events back. If another session has its name, it is named `NAME-2`. What cannot
/// be imported as it is, is reported on standard error.
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

pub(crate) async fn run(args: &Args, place: &Workspace, out: &mut Output) -> Result<(), Failure> {
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
    place: &'a Workspace,
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
    notices: Vec<Message>,
    problems: Vec<Message>,
}

#[derive(Debug, Serialize)]
struct Imported {
    id: String,
    source: String,
    events: usize,
    name: String,
    /// Whether the events were added to a session that had been imported before.
    continued: bool,
    /// The session here that has the same UUID and another log.
    #[serde(skip_serializing_if = "Option::is_none")]
    diverged_from: Option<String>,
}

#[derive(Debug, Serialize)]
struct Known {
    id: String,
    source: String,
}

#[derive(Debug, Serialize)]
struct Message {
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
                self.imported(arrival, &record, events, outcome);
                format!("{} with {}, from {source}", called(&record), counted(events as u64, "event"))
            }
            Outcome::Forked(id, events, from) => {
                let record = self.place.store.get(id).await?;
                self.imported(arrival, &record, events, outcome);
                let events = counted(events as u64, "event");
                format!("{} with {events}, from {source}, {}", called(&record), diverged(from))
            }
            Outcome::Continued(id, gained) => {
                // It may have got another name since it came.
                let record = self.place.store.get(id).await?;
                self.imported(arrival, &record, gained.events, outcome);
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
            self.progress.clear();
            let message = |message: &String| {
                warn(&format!("{}: {message}", arrival.source));
                Message { source: arrival.source.clone(), message: message.clone() }
            };
            self.report.notices.extend(arrival.notices.iter().map(message));
            self.report.problems.extend(arrival.problems.iter().map(message));
        }
        Ok(())
    }

    fn imported(&mut self, arrival: &Arrival, record: &SessionRecord, events: usize, outcome: Outcome) {
        self.report.imported.push(Imported {
            id: record.id.to_string(),
            source: arrival.source.clone(),
            events,
            name: record.name.clone(),
            continued: matches!(outcome, Outcome::Continued(..)),
            diverged_from: match outcome {
                Outcome::Forked(_, _, from) => Some(from.to_string()),
                _ => None,
            },
        });
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
            .push(Message { source: path.display().to_string(), message: failure.message().to_owned() });
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
