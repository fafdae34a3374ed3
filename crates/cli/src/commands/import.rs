use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use azureal::exchange::{
    ImportError, ImportFormat, ImportOptions, ImportOutcome, ImportPaths, ImportReport, ImportStep,
    IncomingSession, originals_problem,
};
use azureal::native::{self, NativeScope, NativeSessions, NativeSource};
use azureal::sessions::called;
use azureal::{StoreLayout, Workspace};
use azureal_core::{SessionId, SessionRecord, StoreError, visible_line};
use clap::builder::PossibleValuesParser;
use clap::{ValueEnum, ValueHint};

use super::import_native;
use crate::failure::Failure;
use crate::output::{Output, counted, warn};
use crate::spinner::Spinner;

/// The number of unchanged sessions that have a line each. A second import of a large store would print thousands.
const UNCHANGED_ONE_BY_ONE: u64 = 20;

/// Import sessions of agents, other programs and other stores
///
/// `--from` finds the sessions that an agent's program keeps itself, such as Claude Code, and imports those of this
/// project: the ones that ran in any of its worktrees. With `--all-projects`, each session goes into the store of the
/// project that it ran in. A PATH is a file or a folder; the format of a file is detected from its content. Of a folder,
/// every file that can be imported is. Files are only read.
///
/// Importing again adds only what is new: a session that has grown gets its new turns. If it was also continued here,
/// the new turns go into a fork of it, so that nothing is mixed. Sessions that azureal itself ran are left out. A session
/// that was cleared here gets its events back. One that was deleted here stays deleted, unless you name its file or pass
/// `--again`. If another session has its name, it is named `NAME-2`. Whatever cannot be imported unchanged is reported on standard error.
///
/// The file of an agent's session is kept, compressed, as the original of its turns (`azureal original`), because the
/// programs delete their files after a while.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  azureal import --from claude --dry-run    see which sessions of this project would be imported
  azureal import --from claude,codex        import them
  azureal import --from all --all-projects  import everything, each session into its own project
  azureal import ~/.claude/projects/-work-app/0a1b2c3d-0000-4000-8000-000000000000.jsonl
  azureal import ~/.cllm/conversations
  azureal import ../other-project/.azureal/sessions.azs
  azureal import messages.json axio.db --json")]
pub(crate) struct Args {
    /// The files and folders
    #[arg(value_name = "PATH", required_unless_present = "from", conflicts_with = "from")]
    paths: Vec<PathBuf>,
    /// Import the sessions of these agents' programs, or of `all`
    #[arg(long, value_name = "AGENT", value_delimiter = ',', value_parser = agent_names())]
    from: Vec<String>,
    /// Import sessions of all projects, each into the store of its own project
    #[arg(long)]
    pub(super) all_projects: bool,
    /// With `--all-projects`: the store for sessions whose folder is gone
    #[arg(long, value_name = "STORE", requires = "all_projects", value_hint = ValueHint::FilePath)]
    pub(super) into: Option<PathBuf>,
    /// Say what would be imported, and store nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Also import sessions of agents' programs that were deleted here
    #[arg(long)]
    pub(super) again: bool,
    /// Do not ask before sessions are stored on a server
    #[arg(short, long)]
    pub(super) yes: bool,
    /// The format of the files
    #[arg(short, long, value_enum, default_value = "auto", conflicts_with = "from")]
    format: FormatArgument,
}

/// The names that `--from` takes.
fn agent_names() -> PossibleValuesParser {
    PossibleValuesParser::new(native::sources().iter().map(|source| source.agent()).chain(["all"]))
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
    /// A session of Claude Code (`~/.claude/projects/*/*.jsonl`)
    Claude,
    /// A rollout of Codex (`~/.codex/sessions/**/*.jsonl`)
    Codex,
    /// A session of Gemini CLI (`~/.gemini/tmp/*/chats/*.jsonl`)
    Gemini,
    /// A session of Qwen Code (`~/.qwen/projects/*/chats/*.jsonl`)
    Qwen,
    /// A session of GitHub Copilot CLI (`~/.copilot/session-state/*/events.jsonl`)
    Copilot,
    /// The database of opencode (`opencode.db`)
    Opencode,
    /// The database of goose (`sessions.db`)
    Goose,
}

impl FormatArgument {
    /// Returns the format of an agent's program, if it is one.
    fn source(self) -> Option<&'static dyn NativeSource> {
        let name = self.to_possible_value()?;
        native::sources().iter().copied().find(|source| source.agent() == name.get_name())
    }
}

impl From<FormatArgument> for ImportFormat {
    fn from(argument: FormatArgument) -> Self {
        match argument {
            FormatArgument::Azs => Self::Azs,
            FormatArgument::Json => Self::Json,
            FormatArgument::Cllm => Self::Cllm,
            FormatArgument::Axio => Self::Axio,
            // Files of agents' programs were read before.
            _ => Self::Auto,
        }
    }
}

pub(crate) async fn run(
    args: &Args,
    place: &Workspace,
    store: Option<&Path>,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut report = ImportReport::default();
    if !args.from.is_empty() {
        let is_wanted = |source: &&&'static dyn NativeSource| {
            args.from.iter().any(|agent| agent == "all" || agent == source.agent())
        };
        let sources: Vec<_> = native::sources().iter().filter(is_wanted).copied().collect();
        let scope = if args.all_projects { NativeScope::All } else { NativeScope::Project(&place.project) };
        let spinner = Spinner::start("looking for sessions");
        let sessions = NativeSessions::find(&sources, place, scope);
        drop(spinner);
        import_native::run(args, place, store, &sessions, &mut report, out).await?;
        return if out.is_json() { out.json(&report) } else { Ok(()) };
    }
    let (sessions, paths) = recognise(args, place)?;
    if let Some(sessions) = &sessions {
        import_native::run(args, place, store, sessions, &mut report, out).await?;
    }
    if args.dry_run && !paths.is_empty() {
        return Err(Failure::usage("`--dry-run` is for sessions of agents' programs")
            .with_hint("leave it out: an import that is repeated adds nothing twice"));
    }
    if !args.yes && !paths.is_empty() {
        import_native::confirm_files(store.filter(|_| place.is_on_server()), &paths)?;
    }
    import_paths(args, place, paths, report, out).await
}

/// Separates the paths with sessions of agents' programs from the others.
fn recognise(args: &Args, place: &Workspace) -> Result<(Option<NativeSessions>, Vec<PathBuf>), Failure> {
    let (mut sessions, mut others): (Option<NativeSessions>, Vec<PathBuf>) = (None, Vec::new());
    let source = args.format.source();
    let may_be_native = source.is_some() || matches!(args.format, FormatArgument::Auto);
    for path in &args.paths {
        let found = match may_be_native {
            true => NativeSessions::in_place(path, source, place),
            false => Ok(None),
        };
        match (found, &mut sessions) {
            (Ok(Some(found)), Some(sessions)) => sessions.extend(found),
            (Ok(Some(found)), None) => sessions = Some(found),
            (Err(error), _) if source.is_some() => return Err(error.into()),
            // The import of files says what is wrong with it.
            (Ok(None) | Err(_), _) => others.push(path.clone()),
        }
    }
    Ok((sessions, others))
}

async fn import_paths(
    args: &Args,
    place: &Workspace,
    paths: Vec<PathBuf>,
    report: ImportReport,
    out: &mut Output,
) -> Result<(), Failure> {
    let options = ImportOptions {
        format: args.format.into(),
        worktree: &place.project.worktree(),
        originals: &|path| StoreLayout::of(path).folders.originals,
        temporary: &std::env::temp_dir(),
        is_own_store: &|path| place.owns(path),
        progress: &|_| ControlFlow::Continue(()),
    };
    let mut import = ImportPaths::new(&*place.store, options, paths);
    let mut printer = Printer { report, failures: Vec::new(), progress: Progress::new(), unchanged: 0 };
    let done = printer.print_all(&mut import, out).await;
    printer.progress.clear();
    let Printer { report, mut failures, unchanged, .. } = printer;
    if let Some(more) = unchanged.checked_sub(UNCHANGED_ONE_BY_ONE).filter(|more| *more > 0)
        && !out.is_json()
    {
        out.line(&format!("{} unchanged", counted(more, "more session")))?;
    }
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

const DAMAGED_SOURCE: &str = "get a whole copy of it; of a store of azureal, `azureal doctor --fix --store FILE` saves every row that can be read";

/// Prints the steps of an import.
struct Printer {
    report: ImportReport,
    failures: Vec<Failure>,
    progress: Progress,
    /// The number of unchanged sessions.
    unchanged: u64,
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
            ImportStep::Failed { error, .. } => {
                let is_damaged = matches!(error, ImportError::Store(StoreError::Corrupt { .. }));
                let failure = Failure::from(error);
                // It is not the store of this command.
                self.failures.push(if is_damaged { failure.with_hint(DAMAGED_SOURCE) } else { failure });
            }
            ImportStep::Imported { session, outcome, record, originals } => {
                self.progress.tick();
                let is_unchanged = matches!(outcome, ImportOutcome::Unchanged { .. });
                self.unchanged += u64::from(is_unchanged);
                let is_one_of_many = is_unchanged && self.unchanged > UNCHANGED_ONE_BY_ONE;
                if !out.is_json() && !is_one_of_many {
                    self.progress.clear();
                    out.line(&line(&session, outcome, record.as_deref()))?;
                }
                // An earlier import has printed the messages of an unchanged session.
                if !is_unchanged {
                    self.progress.clear();
                    warn_of(&session);
                }
                if let Err(error) = originals {
                    self.progress.clear();
                    warn(&format!("{}: {}", session.label(), originals_problem(&error)));
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
