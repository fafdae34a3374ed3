//! The output of turns.

use std::path::{Path, PathBuf};

use azureal_engine::{Leased, Spools, this_process};
use azureal_store::sqlite::StoreFolders;
use azureal_store::sqlite::health::{CheckedSession, OriginalProblem, inspect_originals, sessions_now};

use super::{Finding, Fixed, Progress, Severity};
use crate::error::{Error, shown};
use crate::git_folder::StoreLayout;

/// Returns the folders with the output of turns.
pub(super) fn folders(folders: &StoreFolders) -> Vec<&Path> {
    [Some(&folders.originals), folders.former_originals.as_ref()]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect()
}

/// Checks the output of turns of these sessions.
pub(super) fn check(
    folders: &StoreFolders,
    sessions: &[CheckedSession],
    progress: Progress<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in self::folders(folders) {
        match inspect_originals(folder, sessions, progress) {
            Ok(problems) => findings.extend(problems.iter().map(finding)),
            Err(error) => {
                let message = format!("the output of turns cannot be read: it {error}");
                findings.push(Finding::at("original", Severity::Error, folder, message));
            }
        }
    }
    findings
}

/// Repairs what can be repaired. Holds what a turn holds of the session, whose last event is read again then: turns may have ended since
/// the sessions were read. One that fails does not stop the others.
pub(super) fn fix(
    layout: &StoreLayout,
    spools: &Spools,
    sessions: &[CheckedSession],
    fixed: &mut Fixed,
    progress: Progress<'_>,
) {
    for folder in folders(&layout.folders) {
        let problems = match inspect_originals(folder, sessions, progress) {
            Ok(problems) => problems,
            Err(error) => {
                fixed.failed.push(Error::file(folder, &error).message().to_owned());
                continue;
            }
        };
        for problem in problems {
            let (Some(repair), Some(path)) = (problem.repair(), problem.path()) else { continue };
            match fix_one(&problem, path, &layout.file, spools) {
                Ok(true) => fixed.done.push(format!("{}: {repair}", shown(path))),
                Ok(false) => {}
                Err(error) => fixed.failed.push(error.message().to_owned()),
            }
        }
    }
}

/// Repairs a problem; returns whether it still was one.
fn fix_one(problem: &OriginalProblem, path: &Path, store: &Path, spools: &Spools) -> Result<bool, Error> {
    let mut _held = None;
    if let Some(session) = problem.session() {
        match spools.lease(session, &this_process("azureal doctor")) {
            Ok(Leased::Ours(lease)) => _held = Some(lease),
            Ok(Leased::Theirs(_)) => {
                let message = format!("{}: busy, because a turn of {session} is running", shown(path));
                return Err(Error::new("busy", message));
            }
            Err(error) => return Err(Error::file(&error.path, &error.source)),
        }
        let now = sessions_now(store, Some(session))?;
        if !now.iter().any(|now| problem.is_one_with(now)) {
            return Ok(false);
        }
    }
    problem.fix().map(|()| true).map_err(|error| Error::file(path, &error))
}

fn finding(problem: &OriginalProblem) -> Finding {
    let (kind, severity) = match problem {
        OriginalProblem::Missing { .. } => ("missing_original", Severity::Note),
        // It may be all that is left of a session, so nothing is done about it.
        OriginalProblem::OtherSession { .. } => ("foreign_original", Severity::Note),
        OriginalProblem::Unreadable { .. } => ("unreadable_original", Severity::Error),
        _ => ("foreign_original", Severity::Warning),
    };
    let finding = match problem.path() {
        Some(path) => Finding::at(kind, severity, path, problem.to_string()),
        None => {
            let text = problem.to_string();
            let (place, message) = text.split_once(": ").unwrap_or(("", &text));
            Finding::new(kind, severity, place, message)
        }
    };
    match (problem.repair(), problem.path()) {
        (Some(repair), _) => finding.fixed_by(repair),
        (None, Some(_)) if matches!(problem, OriginalProblem::OtherSession { .. }) => finding.advise(
            "it is kept, and `zstdcat` shows its files; a backup or another store may have the session",
        ),
        (None, Some(_)) => finding.advise("move it elsewhere; azureal does not use it"),
        (None, None) => finding,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::ops::ControlFlow;

    use azureal_core::{Event, NewOriginal, NewSession, NewTurn, Seq, SessionId, SessionStore};
    use azureal_files::Folder;
    use azureal_store::SqliteStore;
    use azureal_store::sqlite::SqliteOptions;
    use futures_executor::block_on;
    use rustix::fs::OFlags;
    use tempfile::TempDir;

    use super::*;

    const QUIET: Progress<'static> = &|_| ControlFlow::Continue(());

    struct World {
        folder: TempDir,
        layout: StoreLayout,
        spools: Spools,
        session: SessionId,
    }

    impl World {
        /// A session without events, and no output.
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let layout = StoreLayout::of(&folder.path().join("x.azs"));
            let spools = Spools::new(&layout.folders.spools);
            let session = block_on(store(&layout).create(NewSession::default())).unwrap();
            Self { folder, layout, spools, session }
        }

        /// Stores the output of a turn.
        fn put(&self, run: &str, first: u64, last: u64) {
            self.put_in(self.session, "\"session\":1", run, (first, last));
        }

        /// Stores the output of a turn of a session, with these fields of its header.
        fn put_in(&self, session: SessionId, turn: &str, run: &str, (first, last): (u64, u64)) {
            let folder = Folder::open_or_create(&self.folder.path().join("turn")).unwrap();
            let file = |name: &str, content: &str| {
                let mut file = folder.create_file(name.as_ref(), OFlags::WRONLY).unwrap();
                file.write_all(content.as_bytes()).unwrap();
                folder.join(name)
            };
            let (first, last) = (Seq(first), Seq(last));
            let header = file("header", &format!("{{\"turn\":{{\"run\":\"{run}\",{turn}}}}}\n"));
            let new = NewOriginal {
                run: run.to_owned(),
                first,
                last,
                header,
                output: file("output", "x\n"),
                more: None,
            };
            let store = store(&self.layout);
            block_on(store.originals().unwrap().put(session, new)).unwrap();
            block_on(store.originals().unwrap().finish()).unwrap();
        }

        fn sessions(&self) -> Vec<CheckedSession> {
            sessions_now(&self.layout.file, None).unwrap()
        }

        /// The ranges of events of the outputs, by run.
        fn outputs(&self) -> Vec<(String, u64, u64)> {
            let store = store(&self.layout);
            let found = block_on(store.originals().unwrap().list(self.session)).unwrap();
            let mut found: Vec<_> =
                found.into_iter().map(|output| (output.run, output.first.0, output.last.0)).collect();
            found.sort();
            found
        }

        fn fix(&self, sessions: &[CheckedSession]) -> Fixed {
            let mut fixed = Fixed::default();
            fix(&self.layout, &self.spools, sessions, &mut fixed, QUIET);
            fixed
        }
    }

    fn store(layout: &StoreLayout) -> SqliteStore {
        let originals = Some(layout.folders.originals.clone());
        SqliteStore::open(&layout.file, SqliteOptions { originals, ..SqliteOptions::default() }).unwrap()
    }

    fn output(run: &str, first: u64, last: u64) -> (String, u64, u64) {
        (run.to_owned(), first, last)
    }

    #[test]
    fn the_output_of_a_turn_that_ended_after_the_check_stays_in_its_place() {
        let world = World::new();
        let before = world.sessions();
        let turn = NewTurn::verbatim([Event::user("a"), Event::assistant("b")]);
        block_on(store(&world.layout).append(world.session, turn)).unwrap();
        world.put("new", 1, 2);
        world.put("foreign", 8, 9);
        assert_eq!(check(&world.layout.folders, &before, QUIET).len(), 2);
        let fixed = world.fix(&before);
        assert_eq!((fixed.done.len(), fixed.failed), (1, Vec::new()));
        assert_eq!(world.outputs(), [output("foreign", 0, 0), output("new", 1, 2)]);
        assert!(check(&world.layout.folders, &world.sessions(), QUIET).is_empty());
    }

    #[test]
    fn the_output_of_a_session_from_another_store_is_its_own_and_that_of_another_session_is_not() {
        let world = World::new();
        let made = world.sessions()[0].created_at.clone();
        let new = |created_at: &str| {
            let new = NewSession { created_at: Some(created_at.to_owned()), ..NewSession::default() };
            let session = block_on(store(&world.layout).create(new)).unwrap();
            block_on(store(&world.layout).append(session, NewTurn::verbatim([Event::user("a")]))).unwrap();
            session
        };
        // Both were S1 where their turns ran.
        let named = format!("\"session\":1,\"session_made\":\"{made}\"");
        world.put_in(new(&made), &named, "own", (1, 1));
        world.put_in(new("2020-01-01T00:00:00Z"), &named, "other", (1, 1));
        let found = check(&world.layout.folders, &world.sessions(), QUIET);
        let [found] = &found[..] else { panic!("{found:?}") };
        assert!(found.place.ends_with("1-1-other.zst"), "{found:?}");
    }

    #[test]
    fn nothing_is_repaired_in_a_session_with_a_running_turn() {
        let world = World::new();
        world.put("foreign", 8, 9);
        let Leased::Ours(lease) = world.spools.lease(world.session, &this_process("x")).unwrap() else {
            panic!()
        };
        let fixed = world.fix(&world.sessions());
        assert!(fixed.done.is_empty() && fixed.failed[0].contains("busy, because a turn of S1"), "{fixed:?}");
        assert_eq!(world.outputs(), [output("foreign", 8, 9)]);
        drop(lease);
        assert_eq!(world.fix(&world.sessions()).done.len(), 1);
        assert_eq!(world.outputs(), [output("foreign", 0, 0)]);
    }

    #[test]
    fn a_name_that_is_taken_is_no_obstacle() {
        let world = World::new();
        world.put("foreign", 8, 9);
        world.put("other", 8, 9);
        // The name is taken, also by the name that is next.
        let uuid = world.sessions()[0].uuid.unwrap().to_string();
        let folder = world.layout.folders.originals.join(uuid);
        for name in ["0-0-foreign.zst", "8-9-foreign.zst.damaged"] {
            fs::copy(folder.join("8-9-foreign.zst"), folder.join(name)).unwrap();
        }
        let fixed = world.fix(&world.sessions());
        assert_eq!((fixed.done.len(), fixed.failed), (2, Vec::new()));
        assert!(folder.join("8-9-foreign.zst.2.damaged").exists());
        assert_eq!(world.outputs(), [output("foreign", 0, 0), output("other", 0, 0)]);
    }
}
