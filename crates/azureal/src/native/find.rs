//! Finds native sessions: in the homes of the programs, in a file or in a folder.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use azureal_agents::native::{NativeError, NativeSession};
use azureal_exchange::{ImportError, recognise_native};

use super::{
    FoundSession, LeftOutReason, LeftOutSession, NativeScope, NativeSessions, NativeSource, OpenHome,
    homes_of, project_around, sources,
};
use crate::error::{Error, shown};
use crate::project::Project;
use crate::workspace::Workspace;

/// The number of sessions by which the format of a folder is recognised.
const PROBES: usize = 8;

impl NativeSessions {
    /// Finds the sessions of agents in their homes. Reads the beginning of each. The ones that were used last are last.
    pub fn find(
        sources: &[&'static dyn NativeSource],
        workspace: &Workspace,
        scope: NativeScope<'_>,
    ) -> Self {
        let mut sessions = Self::default();
        for source in sources {
            for home in homes_of(*source, workspace) {
                sessions.add_place(*source, &home, workspace);
            }
        }
        if let NativeScope::Project(project) = scope {
            for found in std::mem::take(&mut sessions.found) {
                if found.is_of(project) {
                    sessions.found.push(found);
                } else if found.directory().is_some() {
                    sessions.elsewhere += 1;
                } else {
                    let (path, reason) = (found.session.path, LeftOutReason::NoDirectory);
                    sessions.left_out.push(LeftOutSession { path, reason });
                }
            }
        }
        sessions.sort();
        sessions
    }

    /// Finds the sessions in a file or folder that the user named, also by a link; `None` if it is in none of these formats. `source` is
    /// the format, if it is known.
    pub fn in_place(
        place: &Path,
        source: Option<&'static dyn NativeSource>,
        workspace: &Workspace,
    ) -> Result<Option<Self>, Error> {
        // A link that the user names is one to the file that the user wants; the links in a folder may lead anywhere.
        let linked = place.is_symlink().then(|| fs::canonicalize(place).ok()).flatten();
        let place = linked.as_deref().unwrap_or(place);
        let recognise =
            || recognise_native(place, &workspace.environment().temporary()).map_err(ImportError::from);
        let source = match source {
            Some(source) if place.is_dir() => Some(source),
            Some(source) => {
                match recognise()? {
                    Some(found) if found.agent() != source.agent() => {
                        let (path, found_in, asked) = (shown(place), found.program(), source.program());
                        let what = format!("{path} is a session of {found_in}, not of {asked}");
                        let hint = format!("leave `--format` out, or pass `--format {}`", found.agent());
                        return Err(Error::new("not_recognised", what).with_hint(hint));
                    }
                    Some(_) => {}
                    // The beginning does not show a format. The user may know it.
                    None if has_turn(source, place, workspace) => {}
                    None => {
                        return Err(
                            ImportError::UnknownFormat { path: place.to_owned(), source: None }.into()
                        );
                    }
                }
                Some(source)
            }
            None if place.is_dir() => source_of_folder(place, workspace),
            None => recognise()?,
        };
        let Some(source) = source else { return Ok(None) };
        let mut sessions = Self::default();
        sessions.add_place(source, place, workspace);
        // A database may have others that the user does not think of.
        if let ([found], false) = (sessions.found.as_mut_slice(), place.is_dir()) {
            found.is_named = true;
        }
        sessions.sort();
        Ok(Some(sessions))
    }

    /// Sorts the sessions by the time of their last use, and finds out which begin with the same entry.
    fn sort(&mut self) {
        self.found.sort_by_key(FoundSession::last_used);
        for FoundSession { head, .. } in &self.found {
            let Some(first) = &head.first else { continue };
            let family = self.families.entry(first.clone()).or_default();
            family.extend([head.copied_from.as_ref(), Some(&head.id)].into_iter().flatten().cloned());
        }
    }

    fn add_place(&mut self, source: &'static dyn NativeSource, place: &Path, workspace: &Workspace) {
        self.add_some(source, place, workspace, |_| true);
    }

    /// Adds the sessions of a place that are wanted, by their names and metadata.
    fn add_some(
        &mut self,
        source: &'static dyn NativeSource,
        place: &Path,
        workspace: &Workspace,
        is_wanted: impl Fn(&NativeSession) -> bool,
    ) {
        let left_out = |error: NativeError| match error {
            NativeError::NoConversation { path } => {
                LeftOutSession { path, reason: LeftOutReason::NoConversation }
            }
            error => {
                let reason = LeftOutReason::Unreadable(error.to_string());
                LeftOutSession { path: error.path().to_owned(), reason }
            }
        };
        let home = match source.open(place, &workspace.environment().temporary()) {
            Ok(home) => home,
            Err(error) => return self.left_out.push(left_out(error)),
        };
        let mut projects: HashMap<PathBuf, Option<Project>> = HashMap::new();
        let wanted = |found: &Result<NativeSession, _>| found.as_ref().map_or(true, &is_wanted);
        for session in home.sessions(None).filter(wanted) {
            let read = session.and_then(|session| Ok((home.head(&session)?, session)));
            let (head, session) = match read {
                Ok(read) => read,
                Err(error) => {
                    self.left_out.push(left_out(error));
                    continue;
                }
            };
            let project = head
                .cwd
                .as_ref()
                .and_then(|cwd| projects.entry(cwd.clone()).or_insert_with(|| project_around(cwd)).clone());
            self.found.push(FoundSession { home: self.homes.len(), session, head, project, is_named: false });
        }
        self.homes.push(OpenHome { source, home });
    }
    /// Finds the session that is in a file of this format.
    pub(crate) fn in_file(file: &Path, source: &'static dyn NativeSource, workspace: &Workspace) -> Self {
        let mut sessions = Self::default();
        sessions.add_place(source, file, workspace);
        sessions
    }

    /// Finds the session of this id in a home.
    pub(crate) fn of_id(
        id: &str,
        source: &'static dyn NativeSource,
        home: &Path,
        workspace: &Workspace,
    ) -> Self {
        let mut sessions = Self::default();
        sessions.add_some(source, home, workspace, |session| session.id == id);
        sessions
    }
}

/// Finds the source whose sessions a folder has.
fn source_of_folder(folder: &Path, workspace: &Workspace) -> Option<&'static dyn NativeSource> {
    let is_of = |source: &&&'static dyn NativeSource| {
        let Ok(home) = source.open(folder, &workspace.environment().temporary()) else { return false };
        let is_of_source = |session: NativeSession| {
            recognise_native(&session.path, &workspace.environment().temporary())
                .is_ok_and(|found| found.is_some_and(|found| found.agent() == source.agent()))
        };
        home.sessions(None).take(PROBES).filter_map(Result::ok).any(is_of_source)
    };
    sources().iter().find(is_of).copied()
}

/// Returns whether a file has a turn in a format.
fn has_turn(source: &dyn NativeSource, file: &Path, workspace: &Workspace) -> bool {
    let Ok(home) = source.open(file, &workspace.environment().temporary()) else { return false };
    let has_turn = |session: NativeSession| {
        let Ok(mut turns) = home.turns(&session) else { return false };
        std::iter::from_fn(|| turns.next_turn().ok().flatten()).any(|turn| !turn.events.is_empty())
    };
    home.sessions(None).filter_map(Result::ok).any(has_turn)
}
