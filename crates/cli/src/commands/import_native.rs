//! The import of sessions that agents' programs keep themselves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use azureal::exchange::{ImportReport, NativeImported, NativeOutcome, NativeReady, NativeStep};
use azureal::native::{
    FoundSession, LeftOutReason, LeftOutSession, NativeSessions, NativeTarget, OriginalWriter, StoredRuns,
};
use azureal::sessions::called;
use azureal::{Error, Options, StoreChoice, Workspace};
use azureal_core::visible_line;
use unicode_width::UnicodeWidthStr;

use super::import::Args;
use crate::cli::finish_originals;
use crate::confirm::{Answer, ask};
use crate::failure::Failure;
use crate::interrupts::{Interrupted, Interrupts};
use crate::output::{Output, Paint, counted, fit, warn};
use crate::spinner::{Spinner, bar};

/// The number of sessions that are named because they cannot be read, and of problems that are told of one session.
const MOST_NAMED: usize = 20;

/// The number of new sessions that are stored in one transaction, and the size of their events.
const BATCH_SESSIONS: usize = 64;
const BATCH_BYTES: usize = 8 << 20;
/// The kinds of errors that concern one source.
const UNREAD_KINDS: [&str; 5] = ["import", "file", "not_found", "not_recognised", "conflict"];

pub(super) async fn run(
    args: &Args,
    place: &Workspace,
    store: Option<&Path>,
    sessions: &NativeSessions,
    report: &mut ImportReport,
    out: &mut Output,
) -> Result<(), Failure> {
    let targets = Targets { args, place, store };
    let (wanted, gone): (Vec<_>, Vec<_>) = sessions
        .found()
        .iter()
        .map(|found| (found, targets.of(found)))
        .partition(|(_, target)| target.is_some());
    let wanted: Vec<(&FoundSession, TargetStore)> =
        wanted.into_iter().filter_map(|(found, target)| Some((found, target?))).collect();
    let mut opened = HashMap::new();
    if !args.dry_run && !args.yes {
        confirm(&targets, sessions, &wanted, &mut opened).await?;
    }
    if args.dry_run {
        report.set_dry_run();
    }
    let interrupts = Interrupts::listen()?;
    let mut import = Import {
        targets,
        sessions,
        opened,
        total: wanted.iter().map(|(found, _)| found.size()).sum(),
        done: 0,
        interrupted: interrupts.on_interrupt(|| {}),
        spinner: Spinner::start("importing"),
        report,
        tally: Tally::default(),
        originals: OriginalWriter::new(),
        batch: Batch::default(),
    };
    import.tell_unread(sessions);
    for (found, _) in &gone {
        import.leave_out(found, gone_reason(found));
    }
    let done = import.all(&wanted, out).await;
    import.finish(done.is_ok(), out).await?;
    done?;
    match import.opened.values().filter(|opened| opened.is_err()).count() {
        0 => Ok(()),
        count => {
            let projects = counted(count as u64, "project");
            Err(Failure::new("import", format!("the sessions of {projects} could not be stored")))
        }
    }
}

/// The store that a session goes to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum TargetStore {
    /// The one of this command.
    Here,
    /// The one of the project with this root.
    Project(PathBuf),
    /// The one for sessions without a project.
    Into,
}

struct Targets<'a> {
    args: &'a Args,
    place: &'a Workspace,
    store: Option<&'a Path>,
}

impl Targets<'_> {
    /// Returns the store of a session; `None` if its project is gone.
    fn of(&self, found: &FoundSession) -> Option<TargetStore> {
        if !self.args.all_projects || self.is_one_file() {
            return Some(TargetStore::Here);
        }
        match found.project() {
            _ if found.is_of(&self.place.project) => Some(TargetStore::Here),
            Some(project) => Some(TargetStore::Project(project.root().to_owned())),
            None => self.args.into.is_some().then_some(TargetStore::Into),
        }
    }

    /// Returns whether the user named one file for everything.
    fn is_one_file(&self) -> bool {
        let named = self.store.filter(|named| !named.as_os_str().is_empty());
        named.is_some_and(|named| {
            matches!(StoreChoice::of(named), Ok(StoreChoice::File(_) | StoreChoice::Memory))
        })
    }

    /// Opens a store other than that of this command.
    fn open(&self, target: &TargetStore) -> Result<Workspace, Failure> {
        let (directory, store) = match target {
            TargetStore::Project(root) => (root.as_path(), self.store.map(Path::to_owned)),
            TargetStore::Into | TargetStore::Here => (self.place.project.directory(), self.args.into.clone()),
        };
        let options = Options { store, may_block: true, ..Options::default() };
        Ok(Workspace::open(directory, self.place.environment(), &options)?)
    }

    /// Opens a store, and reads its runs if one of the sessions may be one of them. A project whose store cannot be opened is a reason to
    /// leave its sessions out.
    async fn open_with_runs(
        &self,
        target: &TargetStore,
        wanted: &[(&FoundSession, TargetStore)],
    ) -> Result<Result<OpenTarget, String>, Failure> {
        match self.try_open(target, wanted).await {
            Err(failure) if matches!(target, TargetStore::Project(_)) => {
                Ok(Err(failure.message().to_owned()))
            }
            opened => opened.map(Ok),
        }
    }

    async fn try_open(
        &self,
        target: &TargetStore,
        wanted: &[(&FoundSession, TargetStore)],
    ) -> Result<OpenTarget, Failure> {
        let workspace = match target {
            TargetStore::Here => None,
            other => Some(self.open(other)?),
        };
        let into = workspace.as_ref().unwrap_or(self.place);
        let may_be_ours = wanted.iter().any(|(found, other)| other == target && found.may_be_ours());
        let runs = if may_be_ours { StoredRuns::of(&*into.store).await? } else { StoredRuns::default() };
        if into.keeps_originals() && !self.args.dry_run {
            into.prepare_spools()?;
        }
        Ok(OpenTarget { workspace, runs })
    }

    /// Returns the server that a store is on, for people; `None` if it is a file.
    fn server(&self, target: &TargetStore) -> Option<String> {
        let named = match target {
            TargetStore::Into => self.args.into.as_deref(),
            TargetStore::Here | TargetStore::Project(_) => self.store.filter(|_| self.place.is_on_server()),
        };
        server_of(named?)
    }
}

/// Returns the server that a store is on, for people; `None` if it is a file.
fn server_of(store: &Path) -> Option<String> {
    match StoreChoice::of(store) {
        Ok(StoreChoice::Postgres(address)) => Some(address.to_string()),
        Ok(StoreChoice::Redis(address)) => Some(address.to_string()),
        Ok(StoreChoice::Memory | StoreChoice::File(_)) | Err(_) => None,
    }
}

/// Asks before the sessions in files of other formats are stored where other people can read them; an error is a no.
pub(super) fn confirm_files(store: Option<&Path>, paths: &[PathBuf]) -> Result<(), Failure> {
    let Some(host) = store.and_then(server_of) else { return Ok(()) };
    let files = match paths {
        [only] => visible_line(&only.display().to_string()).into_owned(),
        paths => counted(paths.len() as u64, "path"),
    };
    share(&format!("the sessions in {files}"), &host, "`--yes` imports without asking")
}

fn share(sessions: &str, hosts: &str, hint: &str) -> Result<(), Failure> {
    let become_readable = format!("{sessions} become readable for everybody with access to {hosts}");
    match ask(&format!("{become_readable}. Import them? [y/N] ")) {
        Answer::Yes => Ok(()),
        Answer::No => Err(Failure::cancelled("nothing was imported")),
        Answer::Nobody => Err(Failure::refused(
            "not_confirmed",
            format!("{become_readable}, and there is no terminal to ask on"),
        )
        .with_hint(hint)),
    }
}

/// Asks before sessions are stored where other people can read them; an error is a no. Sessions that are there already do not
/// count.
async fn confirm(
    targets: &Targets<'_>,
    sessions: &NativeSessions,
    wanted: &[(&FoundSession, TargetStore)],
    opened: &mut HashMap<TargetStore, Result<OpenTarget, String>>,
) -> Result<(), Failure> {
    let (mut count, mut projects, mut hosts) = (0, BTreeSet::new(), BTreeSet::new());
    for (found, target) in wanted {
        let Some(host) = targets.server(target) else { continue };
        if !opened.contains_key(target) {
            opened.insert(target.clone(), targets.open_with_runs(target, wanted).await?);
        }
        // A store that cannot be opened is reported later.
        let Some(Ok(open)) = opened.get(target) else { continue };
        let into = open.workspace.as_ref().unwrap_or(targets.place);
        let (runs, originals) = (&open.runs, &mut OriginalWriter::new());
        let Args { dry_run: is_dry, again, .. } = *targets.args;
        let store = NativeTarget { into, runs, originals, is_dry, again, is_over: false, used_in: None };
        if sessions.adds_nothing(found, &store).await? {
            continue;
        }
        count += 1;
        // A project that is gone is known by its folder.
        projects.insert(found.project().map(azureal::Project::root).or(found.directory()));
        hosts.insert(host);
    }
    if count == 0 {
        return Ok(());
    }
    let (sessions, projects) = (counted(count, "session"), counted(projects.len() as u64, "project"));
    let hosts = hosts.into_iter().collect::<Vec<_>>().join(" and ");
    let hint = "`--yes` imports without asking; `--dry-run` shows what it would import";
    share(&format!("{sessions} of {projects}"), &hosts, hint)
}

fn gone_reason(found: &FoundSession) -> String {
    match found.directory() {
        Some(cwd) => format!("its folder {} is gone; `--into STORE` imports it", cwd.display()),
        None => "it does not say in which folder it ran; `--into STORE` imports it".to_owned(),
    }
}

/// An open store, and the runs that it has.
struct OpenTarget {
    /// `None` for the store of this command.
    workspace: Option<Workspace>,
    runs: StoredRuns,
}

/// Renders the result of one session: its name, and facts that end with its first prompt, cut to a width.
fn session_line(name: &str, parts: &[String], paint: Paint, width: Option<usize>) -> String {
    let (name, facts) = (visible_line(name), parts.join(" · "));
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(name.width() + 2));
    format!("{}  {}\n", paint.heading(&name), fit(&visible_line(&facts), room))
}

/// The results, counted.
#[derive(Default)]
struct Tally {
    new: u64,
    continued: u64,
    forked: u64,
    unchanged: u64,
    unread: u64,
    /// Sessions that are left out, by reason.
    left_out: BTreeMap<String, u64>,
    turns: u64,
}

/// An import in progress.
struct Import<'a> {
    targets: Targets<'a>,
    sessions: &'a NativeSessions,
    opened: HashMap<TargetStore, Result<OpenTarget, String>>,
    /// The size of all sessions, and of those that are done.
    total: u64,
    done: u64,
    interrupted: Interrupted,
    spinner: Spinner,
    report: &'a mut ImportReport,
    tally: Tally,
    originals: OriginalWriter,
    batch: Batch<'a>,
}

/// New sessions that are stored together.
#[derive(Default)]
struct Batch<'a> {
    target: Option<&'a TargetStore>,
    ready: Vec<(&'a FoundSession, NativeReady)>,
    /// The size of their events.
    size: usize,
}

impl Batch<'_> {
    fn is_full(&self) -> bool {
        self.ready.len() >= BATCH_SESSIONS || self.size >= BATCH_BYTES
    }

    /// Returns whether one of them has this name.
    fn has_name(&self, name: Option<&str>) -> bool {
        name.is_some_and(|name| self.ready.iter().any(|(_, ready)| ready.name() == Some(name)))
    }
}

impl<'a> Import<'a> {
    async fn all(
        &mut self,
        wanted: &'a [(&'a FoundSession, TargetStore)],
        out: &mut Output,
    ) -> Result<(), Failure> {
        for (found, target) in wanted {
            if self.interrupted.has_happened() {
                self.store_batch(out).await?;
                return Err(Failure::cancelled("the import was stopped")
                    .with_hint("run the command again to continue where it stopped"));
            }
            let progress = bar(self.done, self.total);
            let name = found.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.spinner.relabel(&format!("{progress} {}", visible_line(&name)));
            self.one(found, target, wanted, out).await?;
            self.done += found.size();
        }
        self.store_batch(out).await
    }

    async fn one(
        &mut self,
        found: &'a FoundSession,
        target: &'a TargetStore,
        wanted: &[(&FoundSession, TargetStore)],
        out: &mut Output,
    ) -> Result<(), Failure> {
        if self.batch.target.is_some_and(|other| other != target) {
            self.store_batch(out).await?;
        }
        if !self.opened.contains_key(target) {
            let opened = self.targets.open_with_runs(target, wanted).await?;
            self.opened.insert(target.clone(), opened);
        }
        if let Some(Err(reason)) = self.opened.get(target) {
            let reason = reason.clone();
            self.leave_out(found, reason);
            return Ok(());
        }
        let step = match self.step(found, target, true).await {
            Ok(Some(NativeStep::Ready(ready))) if !self.batch.has_name(ready.name()) => {
                self.batch.target = Some(target);
                self.batch.size += ready.size;
                self.batch.ready.push((found, *ready));
                return if self.batch.is_full() { self.store_batch(out).await } else { Ok(()) };
            }
            // Sessions are stored in the order of their times.
            Ok(Some(NativeStep::Ready(_) | NativeStep::Alone)) => {
                self.store_batch(out).await?;
                self.step(found, target, false).await
            }
            step => step,
        };
        match step {
            Ok(Some(NativeStep::Done(imported))) => self.tell_imported(found, target, &imported, out).await,
            Ok(_) => Ok(()),
            // A source that cannot be read does not stop the others; a store that cannot be written does.
            Err(error) if UNREAD_KINDS.contains(&error.kind()) => {
                let message = error.message().to_owned();
                self.unread(&found.path().display().to_string(), message);
                Ok(())
            }
            Err(error) => self.give_up(target, &[found], error),
        }
    }

    /// Leaves these and all later sessions of a project out, because its store cannot be written. Another store was named by the user: its
    /// error ends the import.
    fn give_up(
        &mut self,
        target: &TargetStore,
        sessions: &[&FoundSession],
        error: Error,
    ) -> Result<(), Failure> {
        if !matches!(target, TargetStore::Project(_)) {
            return Err(error.into());
        }
        let reason = error.message().to_owned();
        for found in sessions {
            self.leave_out(found, reason.clone());
        }
        self.opened.insert(target.clone(), Err(reason));
        Ok(())
    }

    /// Imports a session, or reads it for a batch; `None` if its store is not open.
    async fn step(
        &mut self,
        found: &FoundSession,
        target: &TargetStore,
        in_batches: bool,
    ) -> Result<Option<NativeStep>, Error> {
        let Some(Ok(opened)) = self.opened.get(target) else { return Ok(None) };
        let Args { dry_run: is_dry, again, .. } = *self.targets.args;
        let into = opened.workspace.as_ref().unwrap_or(self.targets.place);
        let (runs, originals) = (&opened.runs, &mut self.originals);
        let (is_over, used_in) = (false, None);
        let mut store = NativeTarget { into, runs, originals, is_dry, again, is_over, used_in };
        match in_batches {
            true => self.sessions.import(found, &mut store).await.map(Some),
            false => {
                let imported = self.sessions.import_now(found, &mut store).await?;
                Ok(Some(NativeStep::Done(imported)))
            }
        }
    }

    /// Stores the sessions that were read, and tells the results.
    async fn store_batch(&mut self, out: &mut Output) -> Result<(), Failure> {
        let Batch { target, ready, .. } = std::mem::take(&mut self.batch);
        let Some(target) = target else { return Ok(()) };
        let Some(Ok(opened)) = self.opened.get(target) else { return Ok(()) };
        let into = opened.workspace.as_ref().unwrap_or(self.targets.place);
        let found: Vec<&FoundSession> = ready.iter().map(|(found, _)| *found).collect();
        let (runs, originals, again) = (&opened.runs, &mut self.originals, self.targets.args.again);
        let (is_dry, is_over, used_in) = (false, false, None);
        let mut store = NativeTarget { into, runs, originals, is_dry, again, is_over, used_in };
        let imported = match self.sessions.store_all(ready, &mut store).await {
            Ok(imported) => imported,
            Err(error) => return self.give_up(target, &found, error),
        };
        for (found, imported) in found.into_iter().zip(imported) {
            self.tell_imported(found, target, &imported, out).await?;
        }
        Ok(())
    }

    /// Tells the result of one session, with its name in the store.
    async fn tell_imported(
        &mut self,
        found: &FoundSession,
        target: &TargetStore,
        imported: &NativeImported,
        out: &mut Output,
    ) -> Result<(), Failure> {
        let is_changed =
            !matches!(imported.outcome, NativeOutcome::Unchanged { .. } | NativeOutcome::LeftOut(_));
        let name = match imported.outcome.session().filter(|_| is_changed) {
            Some(id) => {
                let opened = self.opened.get(target).and_then(|opened| opened.as_ref().ok());
                let into = opened.and_then(|opened| opened.workspace.as_ref()).unwrap_or(self.targets.place);
                Some(called(&into.store.get(id).await?))
            }
            None => None,
        };
        let project = match target {
            TargetStore::Project(root) => Some(root.display().to_string()),
            TargetStore::Here | TargetStore::Into => None,
        };
        self.tell(found, imported, name, project, out)
    }

    /// Tells the result of one session.
    fn tell(
        &mut self,
        found: &FoundSession,
        imported: &NativeImported,
        name: Option<String>,
        project: Option<String>,
        out: &mut Output,
    ) -> Result<(), Failure> {
        let agent = self.sessions.source_of(found).map_or("", |source| source.agent());
        let source = found.path().display().to_string();
        self.report.add_native(agent, source.clone(), imported, name.clone(), project.clone());
        let (turns, _) = imported.outcome.added();
        self.tally.turns += turns;
        let fork_of = match imported.outcome {
            NativeOutcome::Forked { from, .. } => Some(format!("fork of {from}")),
            _ => None,
        };
        let (count, added) = match imported.outcome {
            NativeOutcome::New { .. } => (&mut self.tally.new, Some(counted(turns, "turn"))),
            NativeOutcome::Continued { .. } => (&mut self.tally.continued, Some(counted(turns, "new turn"))),
            NativeOutcome::Forked { .. } => (&mut self.tally.forked, Some(counted(turns, "turn"))),
            NativeOutcome::Unchanged { .. } => (&mut self.tally.unchanged, None),
            NativeOutcome::LeftOut(why) => {
                (self.tally.left_out.entry(why.reason().to_owned()).or_default(), None)
            }
        };
        *count += 1;
        self.spinner.hide();
        if let Some(added) = added.filter(|_| !out.is_json()) {
            let name = name.unwrap_or_else(|| "new".to_owned());
            let parts =
                [Some(agent.to_owned()), Some(added), fork_of, project, Some(imported.preview.clone())];
            let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
            out.own_text(&session_line(&name, &parts, out.paint(), out.width()))?;
            out.flush()?;
        }
        let messages = imported.messages();
        for message in messages.iter().take(MOST_NAMED) {
            warn(&format!("{source}: {message}"));
        }
        if let Some(more @ 1..) = messages.len().checked_sub(MOST_NAMED) {
            warn(&format!("{source}: {} more; `--json` lists them", counted(more as u64, "problem")));
        }
        self.spinner.show();
        Ok(())
    }

    /// Tells which files could not be opened.
    fn tell_unread(&mut self, sessions: &NativeSessions) {
        for left_out in sessions.left_out() {
            let source = left_out.path.display().to_string();
            match &left_out.reason {
                LeftOutReason::Unreadable(reason) => self.unread(&source, reason.clone()),
                // There are many of them in the home of an agent.
                reason => {
                    let reason = reason.to_string();
                    *self.tally.left_out.entry(reason.clone()).or_default() += 1;
                    self.report.add_left_out(source, reason);
                }
            }
        }
    }

    fn unread(&mut self, source: &str, message: String) {
        self.tally.unread += 1;
        if self.tally.unread <= MOST_NAMED as u64 {
            self.spinner.hide();
            warn(&message);
            self.spinner.show();
        }
        self.report.add_problem(source.to_owned(), message);
    }

    /// Leaves a session out because of its project.
    fn leave_out(&mut self, found: &FoundSession, reason: String) {
        let count = self.tally.left_out.entry(PROJECT_GONE.to_owned()).or_default();
        *count += 1;
        if *count <= MOST_NAMED as u64 {
            self.spinner.hide();
            warn(&format!("{}: {reason}", found.path().display()));
            self.spinner.show();
        }
        self.report.add_left_out(found.path().display().to_string(), reason);
    }

    /// Completes the originals of all stores, and tells the sums.
    async fn finish(&mut self, is_done: bool, out: &mut Output) -> Result<(), Failure> {
        self.spinner.relabel("keeping the files as originals");
        for LeftOutSession { path, reason } in std::mem::take(&mut self.originals).finish().await {
            let source = path.display().to_string();
            self.spinner.hide();
            warn(&format!("{source}: {reason}"));
            self.report.add_problem(source, reason.to_string());
        }
        for opened in self.opened.values().flatten() {
            if let Some(workspace) = &opened.workspace {
                finish_originals(workspace).await;
            }
        }
        self.spinner.hide();
        // An import that stopped before the first session has no sums.
        if out.is_json() || !(is_done || self.tally.has_any()) {
            return Ok(());
        }
        out.line(&self.tally.text(self.targets.args.dry_run, self.sessions.elsewhere()))?;
        out.flush()
    }
}

const PROJECT_GONE: &str = "the project is gone, or its store cannot be opened or written";

impl Tally {
    fn has_any(&self) -> bool {
        let Self { new, continued, forked, unchanged, unread, left_out, turns: _ } = self;
        *new + *continued + *forked + *unchanged + *unread > 0 || !left_out.is_empty()
    }

    /// Returns the sums in one sentence.
    fn text(&self, is_dry: bool, elsewhere: u64) -> String {
        let Self { new, continued, forked, unchanged, unread, left_out, turns } = self;
        let mut parts = Vec::new();
        let mut add = |count: u64, what: &str| {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        };
        add(*new, "new");
        add(*continued, "continued");
        add(*forked, "forked");
        add(*unchanged, "unchanged");
        for (reason, count) in left_out {
            add(*count, &format!("left out ({reason})"));
        }
        add(*unread, "not readable");
        let start = if is_dry { "would import " } else { "" };
        let turns = if *turns > 0 { format!(", with {}", counted(*turns, "turn")) } else { String::new() };
        let others = counted(elsewhere, "session");
        let others =
            format!("`--all-projects` imports {others} of other projects, each into the store of its own");
        match (parts.is_empty(), elsewhere) {
            (true, 0) => "there are no sessions to import".to_owned(),
            (true, _) => format!("there are no sessions of this project; {others}"),
            // The user may be in the wrong folder.
            (false, 1..) if *new + *continued + *forked + *unchanged == 0 => {
                format!("sessions: {}; {others}", parts.join(", "))
            }
            (false, _) => format!("{start}sessions: {}{turns}", parts.join(", ")),
        }
    }
}
