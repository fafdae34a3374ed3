//! Unfinished turns and leases.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use azureal_engine::{SpoolState, Spools};
use azureal_files::Folder;
use azureal_store::sqlite::StoreFolders;

use super::{Finding, Fixed, Severity};
use crate::error::{Error, shown};
use crate::project::Project;
use crate::server_folder::{ServerFolder, turns_elsewhere};

/// The ending of a file that is set aside.
const SET_ASIDE: &str = ".damaged";

/// Returns the spools of a store in a file.
pub(super) fn of(folders: &StoreFolders) -> Spools {
    Spools::new(&folders.spools).with_former(folders.former_spools.clone())
}

/// Checks spools and leases. A turn that runs is no finding.
pub(super) fn check(spools: &Spools) -> Vec<Finding> {
    let found = match spools.inspect() {
        Ok(found) => found,
        Err(error) => {
            let finding = Finding::at("spool", Severity::Error, &error.path, error.source.to_string());
            return vec![finding];
        }
    };
    found.iter().filter_map(finding).collect()
}

/// Finds interrupted turns of stores on servers that this command does not open.
pub(super) fn elsewhere(project: &Project, open: Option<&ServerFolder>) -> Vec<Finding> {
    let found = turns_elsewhere(project, open).into_iter();
    found
        .map(|found| {
            let (store, runs) = (found.store(), &found.runs);
            let turns = if runs.len() == 1 { "an interrupted turn waits" } else { "interrupted turns wait" };
            let message = format!("{turns} here for {store}: {}", runs.join(", "));
            Finding::at("turn_elsewhere", Severity::Warning, &found.folder, message)
                .advise("`azureal --store URL list` with the URL of that store stores what waits")
        })
        .collect()
}

fn finding(state: &SpoolState) -> Option<Finding> {
    let aside = "renames it, so that no turn is looked for in it";
    Some(match state {
        SpoolState::Ended(turn) => {
            let message = "its last turn was interrupted and is not stored yet";
            Finding::new("interrupted_turn", Severity::Warning, format!("S{}", turn.session), message)
                .fixed_by("stores it, as every other command does")
        }
        SpoolState::LostSummary(turn) => {
            let message = format!("{} writes a summary for an azureal that has ended", turn.agent);
            Finding::new("lost_summary", Severity::Warning, format!("S{}", turn.session), message)
                .fixed_by("stops it, as every other command does")
        }
        SpoolState::Unreadable(path) => {
            let message = "the header of an unfinished turn cannot be read";
            Finding::at("spool", Severity::Error, path, message).fixed_by(aside)
        }
        SpoolState::WithoutHeader(path) => {
            let message = "the output of a turn without its header: its session is not known";
            Finding::at("spool", Severity::Error, path, message).fixed_by(aside)
        }
        SpoolState::StaleLease(path) => {
            Finding::at("stale_lease", Severity::Warning, path, "the lease of a process that has ended")
                .fixed_by("removes it, as every other command does")
        }
        _ => return None,
    })
}

/// Refuses if a turn runs.
pub(super) fn check_idle(spools: &Spools) -> Result<(), Error> {
    let found = spools.inspect().map_err(|error| Error::file(&error.path, &error.source))?;
    let running = found.iter().find_map(|state| match state {
        SpoolState::Running(turn) => Some(format!("S{}", turn.session)),
        SpoolState::Leased(path) => {
            let name = path.file_stem().map(OsStr::to_string_lossy);
            Some(name.unwrap_or_default().into_owned())
        }
        _ => None,
    });
    match running {
        Some(session) => Err(Error::new("busy", format!("a turn of {session} is running")).with_hint(
            format!("wait for it, or end it with `azureal cancel {session}`; nothing was changed"),
        )),
        None => Ok(()),
    }
}

/// Sets files aside that belong to no turn. One that fails does not stop the others.
pub(super) fn fix(spools: &Spools, fixed: &mut Fixed) -> Result<(), Error> {
    let found = spools.inspect().map_err(|error| Error::file(&error.path, &error.source))?;
    for state in found {
        match state {
            SpoolState::Unreadable(path) | SpoolState::WithoutHeader(path) => match set_aside(&path) {
                Ok(()) => {
                    fixed.done.push(format!("{}: renamed, with the ending `{SET_ASIDE}`", shown(&path)));
                }
                Err(error) => fixed.failed.push(Error::file(&path, &error).message().to_owned()),
            },
            // The recovery that follows stops it, and removes the note.
            SpoolState::LostSummary(turn) => {
                fixed.done.push(format!("S{}: stopped {}, which wrote a summary", turn.session, turn.agent));
            }
            // The recovery that follows removes it.
            SpoolState::StaleLease(path) => fixed.done.push(format!("{}: removed", shown(&path))),
            _ => {}
        }
    }
    Ok(())
}

/// Renames a header with its output and errors, or an output.
fn set_aside(path: &Path) -> io::Result<()> {
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else { return Ok(()) };
    let folder = Folder::open(folder)?;
    for name in folder.names()? {
        if Path::new(&name).file_stem() == Some(stem) {
            folder.set_aside(&name, SET_ASIDE)?;
        }
    }
    folder.sync()
}
