//! Repairs.

use std::fs;
use std::path::{Path, PathBuf};

use azureal_core::counted;
use azureal_store::sqlite::FileNotice;
use azureal_store::sqlite::health::{NameState, NewUuid, inspect, name_again, names, repair, sessions_now};
use futures_executor::block_on;

use super::{Doctor, Progress, Report, index, modes, originals, snapshots, spools};
use crate::backup;
use crate::error::{Error, shown};
use crate::git_folder::StoreLayout;
use crate::project::Project;
use crate::workspace::{Notice, StoreChoice, Workspace};

/// The result of a repair.
#[derive(Debug, Default)]
pub struct Fixed {
    /// What was done, in words.
    pub done: Vec<String>,
    /// The copy of the store before the repair; `None` if its file was not changed.
    pub backup: Option<PathBuf>,
    /// The file with the rows that were set aside, and their number.
    pub set_aside: Option<(PathBuf, u64)>,
    /// What could not be repaired, and why.
    pub failed: Vec<String>,
}

impl Doctor<'_> {
    /// Repairs what a check has found, as far as that is possible. A copy of the store is made before its file is changed.
    ///
    /// # Errors
    ///
    /// A turn runs; the project belongs to another user; or the repair of the store's file failed. What was repaired before stays repaired.
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
        spools::fix(&spools, fixed)?;
        if backup::is_unfinished(&layout.folders) {
            backup::finish_restore(path, &layout.folders)?;
            fixed.done.push("the restore that was interrupted is complete".to_owned());
        }
        let second = layout.second_name.as_deref().ok();
        let state = second.map(|second| names(path, second)).transpose().map_err(at)?.flatten();
        let mut is_damaged = report.fixable().any(|finding| STORE_KINDS.contains(&finding.kind));
        if state == Some(NameState::NoFirstName) {
            self.put_back(path, fixed)?;
            is_damaged = path.exists() && !inspect(path, progress)?.problems.is_empty();
        }
        let mut new_uuids = Vec::new();
        if is_damaged {
            let originals = originals::folders(&layout.folders);
            let repaired = repair(path, second, &originals, progress)?;
            fixed.done.extend(repaired.problems.iter().map(|problem| format!("repaired: {problem}")));
            if repaired.unreadable > 0 {
                fixed.done.push(format!("not readable any more: {}", counted(repaired.unreadable, "row")));
            }
            fixed.backup = Some(repaired.backup);
            fixed.set_aside = repaired.set_aside;
            new_uuids = repaired.new_uuids;
            // A repaired session keeps its place in the list, where a search does not look for changes.
            index::remove(&layout.folders).map_err(at)?;
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
        if path.exists()
            && let Ok(sessions) = sessions_now(path, None)
        {
            originals::fix(&layout, &spools, &sessions, fixed, progress);
            match index::fix(&layout, &sessions) {
                Ok(removed) => {
                    let done = |path: &PathBuf| format!("removed the search index {}", shown(path));
                    fixed.done.extend(removed.iter().map(done));
                }
                Err(error) => {
                    let error = Error::file(&layout.folders.search, &error);
                    fixed.failed.push(error.message().to_owned());
                }
            }
        }
        if layout.file == self.project.store_path() {
            snapshots::fix(&self.project, self.environment, report, fixed);
        }
        self.recover(fixed)
    }

    /// Puts back the first name of the store's file. A damaged file gets it too, so that what can be read of it is saved.
    fn put_back(&self, path: &Path, fixed: &mut Fixed) -> Result<(), Error> {
        // Opening the store puts it back after a check, and sets it aside if it is damaged.
        let workspace = Workspace::open(&self.directory, self.environment, &self.options)?;
        for notice in workspace.notices() {
            if let Notice::File(FileNotice::Damaged { kept, .. }) = notice {
                // Not over a new store.
                let put_back = fs::hard_link(kept, path).and_then(|()| fs::remove_file(kept));
                put_back.map_err(|error| Error::file(kept, &error))?;
                fixed.done.push(format!("{}: it was deleted, and is back", shown(path)));
            } else {
                fixed.done.push(notice.to_string());
            }
        }
        Ok(())
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
