use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azureal::exchange::{CopyReport, ImportOutcome, SourceStore, copy_session, originals_problem};
use azureal::sessions::{called, resolve};
use azureal::{Project, StoreChoice, StoreLayout, Workspace};
use azureal_core::{SessionRecord, SessionStore, visible_line};
use futures_executor::block_on;

use super::import::{diverged, warn_of};
use crate::cli::finish_originals;
use crate::environment::environment;
use crate::failure::Failure;
use crate::interrupts::{Interrupted, Interrupts};
use crate::open::{LateNotices, open_workspace};
use crate::output::{Output, counted, warn};
use crate::spinner::{Spinner, bar};

/// Copy sessions from one store to another
///
/// Copies events to the byte, with the session's UUID, name, worktree, time, summaries, tokens and totals. The copy has
/// a number of its own, which is printed. Afterwards azureal reads both sides again and compares them.
///
/// A session is identified by its UUID. Copying again adds only what is new, also after an interruption, and also back to
/// the store that a session comes from. A session that was continued in both stores is not mixed: it arrives as a new one,
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
    let _notices = LateNotices(&to);
    if to.keeps_originals() {
        to.prepare_spools()?;
    }
    let done = block_on(copy(Arc::new(source), &*to.store, &args.sessions, out));
    block_on(finish_originals(&to));
    done
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
        report: CopyReport::default(),
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
    // An error that stopped the copy comes before the errors of single sessions.
    done?;
    match failures.len() {
        0 if report.is_complete() => Ok(()),
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

/// Opens both stores. They must be different.
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
            let layout = StoreLayout::of(&path);
            if !path.exists() && layout.folders.second_name.as_ref().is_some_and(|second| second.exists()) {
                // It was deleted. Opening it puts it back.
                drop(open_workspace(Some(&path))?);
            }
            let originals = layout.folders.originals;
            Ok((SourceStore::in_file(&path, originals, &std::env::temp_dir())?, place))
        }
        StoreChoice::Postgres(address) => from_server(from, to, address.to_string(), same),
        StoreChoice::Redis(address) => from_server(from, to, address.to_string(), same),
    }
}

/// Opens a store on a server to copy from, and the store to copy to.
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
    Ok((SourceStore::in_place(source.store, address), place))
}

/// Returns the sessions to copy, in the order of their creation.
async fn wanted(source: &SourceStore, named: &[String]) -> Result<Vec<SessionRecord>, Failure> {
    if named.is_empty() {
        return Ok(source.sessions().await?);
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
    /// The number of events of all sessions, and of the sessions that are done.
    total: u64,
    done: u64,
    interrupted: Interrupted,
    spinner: Spinner,
    report: CopyReport,
    failures: Vec<Failure>,
}

impl Copy<'_> {
    async fn all(&mut self, records: &[SessionRecord], out: &mut Output) -> Result<(), Failure> {
        for record in records {
            self.one(record, out).await?;
            self.done += record.counts.events;
        }
        Ok(())
    }

    /// Copies a session. An error of the copy stops all, a difference does not.
    async fn one(&mut self, record: &SessionRecord, out: &mut Output) -> Result<(), Failure> {
        let progress = |events| self.progress(record, events);
        let copied = copy_session(&self.source, self.to, record, &progress).await?;
        self.spinner.hide();
        self.report.add(record, &copied);
        warn_of(&copied.session);
        if let Err(error) = &copied.originals {
            warn(&format!("{}: {}", record.id, originals_problem(error)));
        }
        match copied.comparison {
            Ok(()) if !out.is_json() => {
                out.line(&line(record, copied.outcome))?;
                out.flush()?;
            }
            Ok(()) => {}
            Err(error) => self.failures.push(error.into()),
        }
        self.spinner.show();
        Ok(())
    }

    /// Shows the progress, unless the user has interrupted the copy.
    fn progress(&self, record: &SessionRecord, events: usize) -> ControlFlow<()> {
        if self.interrupted.has_happened() {
            return ControlFlow::Break(());
        }
        let done = bar(self.done + events as u64, self.total);
        self.spinner.relabel(&format!("{done} {}", visible_line(&called(record))));
        ControlFlow::Continue(())
    }
}

/// Returns the line about a copied session.
fn line(record: &SessionRecord, outcome: ImportOutcome) -> String {
    let new = match outcome {
        ImportOutcome::New { events, .. } => counted(events as u64, "event"),
        ImportOutcome::Forked { events, from, .. } => {
            format!("{}, {}", counted(events as u64, "event"), diverged(from))
        }
        ImportOutcome::Continued { added, .. } => added.to_string(),
        ImportOutcome::Unchanged { .. } => "unchanged".to_owned(),
    };
    format!("{} -> {}, {new}", called(record), outcome.session())
}
