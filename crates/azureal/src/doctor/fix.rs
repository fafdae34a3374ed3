//! Repairs.

use std::path::{Path, PathBuf};

use azureal_core::counted;
use azureal_store::sqlite::health::{NameState, NewUuid, name_again, names, repair};
use futures_executor::block_on;

use super::{Doctor, Progress, Report, Sessions, file, index, modes, originals, spools};
use crate::error::{Error, shown};
use crate::git_folder::StoreLayout;
use crate::project::Project;
use crate::workspace::{StoreChoice, Workspace};

/// The result of a repair.
#[derive(Debug, Default)]
pub struct Fixed {
    /// What was done, in words.
    pub done: Vec<String>,
    /// The copy of the store before the repair; `None` if its file was not changed.
    pub backup: Option<PathBuf>,
    /// The file with the rows that were set aside, and their number.
    pub set_aside: Option<(PathBuf, u64)>,
}

impl Doctor<'_> {
    /// Repairs what a check has found, as far as that is possible. A copy of the store is made before its file is changed.
    ///
    /// # Errors
    ///
    /// A turn runs; the project belongs to another user; or a repair failed. What was repaired before stays repaired.
    pub fn fix(&self, report: &Report, progress: Progress<'_>) -> Result<Fixed, Error> {
        let mut fixed = Fixed::default();
        if report.fixable().next().is_none() {
            return Ok(fixed);
        }
        Project::around(&self.directory, self.environment)?;
        match self.choice()? {
            StoreChoice::File(path) => self.fix_file(&path, report, &mut fixed, progress)?,
            StoreChoice::Postgres(_) | StoreChoice::Redis(_) => self.recover(&mut fixed)?,
            StoreChoice::Memory => {}
        }
        Ok(fixed)
    }

    fn fix_file(
        &self,
        path: &Path,
        report: &Report,
        fixed: &mut Fixed,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let at = |error: std::io::Error| Error::file(path, &error);
        // Files that others can write are not looked at, so this comes first.
        let modes = modes::fix(&StoreLayout::of(path)).map_err(at)?;
        fixed.done.extend(modes.iter().map(|path| format!("{path}: others cannot use it any more")));
        let layout = StoreLayout::of(path);
        let spools = spools::of(&layout.folders);
        spools::check_idle(&spools)?;
        fixed.done.extend(spools::fix(&spools)?);
        let second = layout.second_name.as_deref().ok();
        let state = second.map(|second| names(path, second)).transpose().map_err(at)?.flatten();
        if state == Some(NameState::NoFirstName) {
            // Opening it puts it back, after a check.
            let workspace = Workspace::open(&self.directory, self.environment, &self.options)?;
            fixed.done.extend(workspace.notices().iter().map(ToString::to_string));
        }
        let is_store = |kind: &str| STORE_KINDS.contains(&kind);
        let mut new_uuids = Vec::new();
        if report.fixable().any(|finding| is_store(finding.kind)) {
            let originals = originals::folders(&layout.folders);
            let repaired = repair(path, second, &originals, progress)?;
            fixed.done.extend(repaired.problems.iter().map(|problem| format!("repaired: {problem}")));
            if repaired.unreadable > 0 {
                fixed.done.push(format!("not readable any more: {}", counted(repaired.unreadable, "row")));
            }
            fixed.backup = Some(repaired.backup);
            fixed.set_aside = repaired.set_aside;
            new_uuids = repaired.new_uuids;
        }
        if let Some(second) = second
            && path.exists()
            && matches!(
                names(path, second).map_err(at)?,
                Some(NameState::NotNamed | NameState::OtherFile | NameState::NoFirstName)
            )
        {
            let notice = name_again(path, second).map_err(at)?;
            fixed.done.push(format!("{}: it has its second name, {}", shown(path), shown(second)));
            fixed.done.extend(notice.map(|notice| notice.to_string()));
        }
        self.copy_originals(&new_uuids)?;
        if let Some(sessions) = self.sessions(path, progress) {
            fixed.done.extend(originals::fix(&layout.folders, &sessions, progress).map_err(at)?);
            for path in index::fix(&layout.folders, &sessions).map_err(at)? {
                fixed.done.push(format!("removed the search index {}", shown(&path)));
            }
        }
        self.recover(fixed)
    }

    fn sessions(&self, path: &Path, progress: Progress<'_>) -> Option<Sessions> {
        file::check(path, &mut Report::default(), progress)
    }

    /// Gives a session with a new UUID the output of its turns, which is under the former one.
    fn copy_originals(&self, new_uuids: &[NewUuid]) -> Result<(), Error> {
        if new_uuids.is_empty() {
            return Ok(());
        }
        let workspace = Workspace::open(&self.directory, self.environment, &self.options)?;
        let store = &workspace.store;
        let Some(kept) = store.originals() else { return Ok(()) };
        block_on(async {
            for NewUuid { session, former, .. } in new_uuids {
                let Some(origin) = store.find_uuid(*former).await? else { continue };
                let last = store.get(*session).await?.counts.events;
                for original in kept.list(origin).await? {
                    if original.last.0 <= last
                        && let Some(content) = kept.open(origin, &original.run).await?
                    {
                        kept.copy(*session, &original, content).await?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Stores interrupted turns and removes stale leases, as every command does.
    fn recover(&self, fixed: &mut Fixed) -> Result<(), Error> {
        let workspace = Workspace::open(&self.directory, self.environment, &self.options)?;
        let found = block_on(workspace.recover())?;
        fixed.done.extend(found.iter().map(ToString::to_string));
        block_on(workspace.finish_originals())?;
        fixed.done.extend(workspace.take_notices().iter().map(ToString::to_string));
        Ok(())
    }
}

/// The kinds of findings that are in the file of the store.
const STORE_KINDS: [&str; 10] = [
    "integrity",
    "undecodable_event",
    "gap",
    "duplicate_seq",
    "counts",
    "row_type",
    "summary",
    "no_uuid",
    "duplicate_uuid",
    "orphan_events",
];
