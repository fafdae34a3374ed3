//! Owners and modes of everything that azureal keeps.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use azureal_files::{OURS, as_argument};

use super::{Finding, Severity};
use crate::config::owner::Owners;
use crate::environment::Environment;
use crate::error::shown;
use crate::git_folder::StoreLayout;
use crate::project::Project;

/// The folder with the versions of files. What is in it has the modes that git gives it, so that the folder itself protects it.
const SNAPSHOTS: &str = "snapshots";
/// The most files that are looked at.
const MOST_FILES: usize = 200_000;

/// Checks that the project belongs to this user, or that this user has allowed it.
pub(super) fn check_owners(project: &Project, environment: &Environment) -> Vec<Finding> {
    let foreign = Owners::of(environment).foreign(project).into_iter().filter(|foreign| !foreign.is_allowed);
    foreign
        .map(|foreign| {
            let message = format!("it belongs to another user (user id {})", foreign.uid);
            Finding::at("owner", Severity::Error, &foreign.path, message)
                .advise("`azureal trust --owner` allows the project, if you know it")
        })
        .collect()
}

/// Checks that only this user can read the store and what belongs to it.
pub(super) fn check(layout: &StoreLayout) -> Vec<Finding> {
    let wrong = wrong(layout);
    let ours = rustix::process::geteuid().as_raw();
    let finding = |(path, found): (PathBuf, Metadata)| match found.uid() == ours {
        true => {
            let message = format!("others can use it: its mode is {:o}", found.mode() & 0o7777);
            Finding::at("mode", Severity::Warning, &path, message)
                .fixed_by("takes the permissions of others away")
        }
        false => {
            let message = format!("it belongs to another user (user id {})", found.uid());
            Finding::at("owner", Severity::Error, &path, message)
                .advise(format!("`sudo chown {ours} {}` makes it yours", as_argument(&path)))
        }
    };
    wrong.into_iter().map(finding).collect()
}

/// Takes the permissions of others away, as far as the files are this user's. Returns the changed paths.
pub(super) fn fix(layout: &StoreLayout) -> io::Result<Vec<String>> {
    let ours = rustix::process::geteuid().as_raw();
    let mut fixed = Vec::new();
    for (path, found) in wrong(layout) {
        if found.uid() == ours {
            fs::set_permissions(&path, Permissions::from_mode(found.mode() & 0o700))?;
            fixed.push(shown(&path));
        }
    }
    Ok(fixed)
}

/// Returns what others own or can use. Links are not followed.
fn wrong(layout: &StoreLayout) -> Vec<(PathBuf, Metadata)> {
    let ours = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    let is_wrong = |metadata: &Metadata| metadata.uid() != ours || metadata.mode() & 0o077 != 0;
    let mut look = |path: &Path| {
        if let Ok(metadata) = fs::symlink_metadata(path)
            && !metadata.is_symlink()
            && is_wrong(&metadata)
        {
            found.push((path.to_owned(), metadata));
        }
    };
    // A folder without a store may have come with the project, for its configuration.
    let is_ours =
        |folder: &&Path| folder.file_name().is_some_and(|name| name == OURS) && layout.file.exists();
    if let Some(folder) = layout.file.parent().filter(is_ours) {
        look(folder);
    }
    for path in beside(&layout.file) {
        look(&path);
    }
    let folders = &layout.folders;
    // Also if it is not used for that reason.
    if let Some(in_git) = &layout.in_git {
        look(in_git);
        look(&in_git.join(SNAPSHOTS));
    }
    let mut left = MOST_FILES;
    for folder in [
        Some(&folders.spools),
        folders.former_spools.as_ref(),
        Some(&folders.originals),
        folders.former_originals.as_ref(),
    ]
    .into_iter()
    .flatten()
    {
        walk(folder, &mut left, &mut look);
    }
    found
}

/// Returns the file and everything whose name begins with its name.
fn beside(file: &Path) -> Vec<PathBuf> {
    let Some(name) = file.file_name() else { return Vec::new() };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_ours = |entry: &fs::DirEntry| {
        let found = entry.file_name();
        let rest = found.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"-") || rest.starts_with(b"."))
    };
    let mut paths: Vec<PathBuf> = entries.filter(is_ours).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn walk(path: &Path, left: &mut usize, look: &mut dyn FnMut(&Path)) {
    if *left == 0 || fs::symlink_metadata(path).is_err() {
        return;
    }
    *left -= 1;
    look(path);
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            walk(&entry.path(), left, look);
        }
    }
}
