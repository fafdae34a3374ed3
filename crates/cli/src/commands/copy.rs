use std::path::{Path, PathBuf};
use std::sync::Arc;

use azureal_core::{SessionRecord, SessionStore, visible_line};
use futures_executor::block_on;
use serde::Serialize;

use crate::environment::environment;
use crate::failure::Failure;
use crate::import::{Outcome, SourceStore, arrive, diverged, verify, verify_record};
use crate::interrupts::{Interrupted, Interrupts};
use crate::open::open_workspace;
use crate::output::{Output, counted, warn};
use crate::spinner::{Spinner, bar};
use azureal::Project;
use azureal::sessions::{called, resolve};
use azureal::{StoreChoice, Workspace};

/// Copy sessions from one store to another
///
/// Copies events to the byte, with the session's UUID, name, worktree, time, summaries, tokens and totals. The copy has
/// a number of its own, which is printed. Afterwards azureal reads both sides again and compares them.
///
/// A session is known by its UUID. Copying again adds what is new and nothing twice, also after an interruption, and also
/// back to where a session comes from. A session that was continued in both stores is not mixed: it arrives as a new one,
/// a fork of the other, and only once. If another session has its name, the copy is named `NAME-2`, with a notice.
///
/// The store that is copied from is not changed: a file is read from a private copy, which takes as much room in the
/// folder for temporary files. A session that is renamed or cleared there later keeps its name and its events in
/// the copy.
///
/// An event that cannot be read is left out and named; the rest is copied, and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal copy --to postgres://ada@db.example/team
  azureal copy --from postgres://ada@db.example/team --to backup.azs
  azureal copy --from old.azs --to new.azs --session S3 --session fix-login")]
pub(crate) struct Args {
    /// The store to copy from; without it, the one that other commands use
    #[arg(long, value_name = "STORE", required_unless_present = "to")]
    from: Option<PathBuf>,
    /// The store to copy to; without it, the one that other commands use
    #[arg(long, value_name = "STORE", required_unless_present = "from")]
    to: Option<PathBuf>,
    /// Only this session, by its number or name; can be given several times
    #[arg(long = "session", value_name = "SESSION")]
    sessions: Vec<String>,
}

/// Copies; `usual` is the store that other commands use.
pub(crate) fn run(args: &Args, usual: Option<&Path>, out: &mut Output) -> Result<(), Failure> {
    let (from, to) = (args.from.as_deref().or(usual), args.to.as_deref().or(usual));
    let (source, to) = open(from, to)?;
    block_on(copy(Arc::new(source), &*to.store, &args.sessions, out))
}

async fn copy(
    source: Arc<SourceStore>,
    to: &dyn SessionStore,
    sessions: &[String],
    out: &mut Output,
) -> Result<(), Failure> {
    let records = wanted(&source, sessions).await?;
    let interrupts = Interrupts::listen()?;
    let mut copy = Copy {
        source,
        to,
        total: records.iter().map(|record| record.counts.events).sum(),
        done: 0,
        interrupted: interrupts.on_interrupt(|| {}),
        spinner: Spinner::start("copying"),
        report: Report::default(),
        failures: Vec::new(),
    };
    let done = copy.all(&records, out).await;
    let Copy { report, mut failures, spinner, .. } = copy;
    drop(spinner);
    if out.is_json() {
        out.json(&report)?;
    } else if records.is_empty() {
        out.line("there are no sessions to copy")?;
    }
    out.flush()?;
    // What stopped all of it comes before what went wrong with one.
    done?;
    match failures.len() {
        0 if report.problems.is_empty() => Ok(()),
        0 => {
            let message = "not everything could be copied as it is";
            Err(Failure::new("incomplete", message)
                .with_hint("the warnings say what; everything else is there, and was compared"))
        }
        1 => failures.pop().map_or(Ok(()), Err),
        count => {
            for failure in &failures {
                warn(failure.message());
            }
            Err(Failure::new("differs", format!("{count} sessions were not copied")))
        }
    }
}

/// Opens both stores, which must be two.
fn open(from: Option<&Path>, to: Option<&Path>) -> Result<(SourceStore, Workspace), Failure> {
    let choice = |named: Option<&Path>| match named.filter(|named| !named.as_os_str().is_empty()) {
        Some(named) => StoreChoice::of(named),
        None => Ok(StoreChoice::File(Project::around(Path::new("."), &environment())?.store_path())),
    };
    if matches!(choice(to)?, StoreChoice::Memory) {
        return Err(Failure::usage("a store in memory is gone when the copy is done")
            .with_hint("name a file or a server with `--to`"));
    }
    let same = || {
        Failure::usage("the sessions would be copied to where they are")
            .with_hint("name one store with `--from` and another with `--to`")
    };
    match choice(from)? {
        StoreChoice::Memory => Err(Failure::usage("a store in memory is empty: there is nothing to copy")
            .with_hint("name a file or a server with `--from`")),
        StoreChoice::File(path) => {
            let place = open_workspace(to)?;
            if place.owns(&path) {
                return Err(same());
            }
            Ok((SourceStore::in_file(&path)?, place))
        }
        StoreChoice::Postgres(address) => from_server(from, to, address.to_string(), same),
        StoreChoice::Redis(address) => from_server(from, to, address.to_string(), same),
    }
}

/// Opens a store on a server to be copied from, and the one to be copied to.
fn from_server(
    from: Option<&Path>,
    to: Option<&Path>,
    address: String,
    same: impl Fn() -> Failure,
) -> Result<(SourceStore, Workspace), Failure> {
    let (source, place) = (open_workspace(from)?, open_workspace(to)?);
    if place.is_same_server_store(&source) {
        return Err(same());
    }
    Ok((SourceStore::elsewhere(source.store, address), place))
}

/// Returns the sessions that are to be copied, in the order in which they were made.
async fn wanted(source: &SourceStore, named: &[String]) -> Result<Vec<SessionRecord>, Failure> {
    if named.is_empty() {
        return source.sessions().await;
    }
    let mut records = Vec::new();
    for name in named {
        records.push(resolve(source.store(), name).await?);
    }
    records.sort_by_key(|record| record.id);
    records.dedup_by_key(|record| record.id);
    Ok(records)
}

/// A copy in progress.
struct Copy<'a> {
    source: Arc<SourceStore>,
    to: &'a dyn SessionStore,
    /// How many events there are to be copied, and how many the sessions had that are done.
    total: u64,
    done: u64,
    interrupted: Interrupted,
    spinner: Spinner,
    report: Report,
    failures: Vec<Failure>,
}

/// What a copy did, for programs.
#[derive(Debug, Default, Serialize)]
struct Report {
    sessions: Vec<Copied>,
    notices: Vec<Message>,
    problems: Vec<Message>,
}

#[derive(Debug, Serialize)]
struct Copied {
    from: String,
    to: String,
    name: String,
    outcome: &'static str,
    /// How many are new in the store that was copied to.
    events: usize,
    /// The session there that has the same UUID and another log.
    #[serde(skip_serializing_if = "Option::is_none")]
    diverged_from: Option<String>,
}

#[derive(Debug, Serialize)]
struct Message {
    session: String,
    message: String,
}

impl Copy<'_> {
    async fn all(&mut self, records: &[SessionRecord], out: &mut Output) -> Result<(), Failure> {
        for record in records {
            self.one(record, out).await?;
            self.done += record.counts.events;
        }
        Ok(())
    }

    /// Copies a session and compares it. What stops it stops all; what differs does not.
    async fn one(&mut self, record: &SessionRecord, out: &mut Output) -> Result<(), Failure> {
        self.progress(record, 0)?;
        let mut arrival = self.source.arrival(record).await?;
        let progress = |events| self.progress(record, events);
        // Without a worktree it stays: it is not one of the folder that we happen to be in.
        let outcome = arrive(self.to, "", &mut arrival, &progress).await?;
        let verified = match (verify(self.to, &arrival, outcome.session()).await, outcome) {
            (Ok(()), _) if outcome.is_new() => verify_record(self.to, &arrival, record, outcome).await,
            (verified, _) => verified,
        };
        self.spinner.hide();
        let message = |message: String| {
            warn(&format!("{}: {message}", arrival.source));
            Message { session: record.id.to_string(), message }
        };
        self.report.notices.extend(arrival.notices.iter().cloned().map(message));
        self.report.problems.extend(arrival.problems.iter().cloned().map(message));
        match verified {
            Ok(()) => self.copied(record, outcome, out)?,
            Err(failure) => self.failures.push(failure),
        }
        self.spinner.show();
        Ok(())
    }

    fn copied(&mut self, record: &SessionRecord, outcome: Outcome, out: &mut Output) -> Result<(), Failure> {
        let (word, events, new) = match outcome {
            Outcome::New(_, events) => ("new", events, counted(events as u64, "event")),
            Outcome::Forked(_, events, from) => {
                ("forked", events, format!("{}, {}", counted(events as u64, "event"), diverged(from)))
            }
            Outcome::Continued(_, gained) => ("continued", gained.events, gained.in_words()),
            Outcome::Unchanged(_) => ("unchanged", 0, "unchanged".to_owned()),
        };
        let to = outcome.session();
        if !out.is_json() {
            out.line(&format!("{} -> {to}, {new}", called(record)))?;
            out.flush()?;
        }
        self.report.sessions.push(Copied {
            from: record.id.to_string(),
            to: to.to_string(),
            name: record.name.clone(),
            outcome: word,
            events,
            diverged_from: match outcome {
                Outcome::Forked(_, _, from) => Some(from.to_string()),
                _ => None,
            },
        });
        Ok(())
    }

    /// Shows how far it is, unless it is to end.
    fn progress(&self, record: &SessionRecord, events: usize) -> Result<(), Failure> {
        if self.interrupted.has_happened() {
            return Err(Failure::cancelled("the copy was stopped")
                .with_hint("started again, it goes on where it was"));
        }
        let done = bar(self.done + events as u64, self.total);
        self.spinner.relabel(&format!("{done} {}", visible_line(&called(record))));
        Ok(())
    }
}
