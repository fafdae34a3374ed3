//! Checks of the owner of a project.
//!
//! A folder above the current one can belong to another user, as `/tmp` or a shared disk does. A `.git` or `.azureal`
//! that this user puts there would decide where our history is stored and which folder agents work in. The rule is
//! git's: a project of another owner is refused unless this user has allowed its folder. `safe.directory` in the user's
//! own git configuration allows it, and so does `azureal trust --owner`. Under `sudo`, the files of the user who called
//! it are fine too.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::info;

use super::trust;
use crate::environment::Environment;
use crate::error::shown;
use crate::error::{Error, quoted};
use crate::git_config::{self, Entry};
use crate::project::Project;

/// The owners that are accepted, and the folders of others that the user has allowed.
#[derive(Debug)]
pub struct Owners {
    /// The ids of the users whose files are accepted.
    uids: Vec<u32>,
    environment: Environment,
}

/// A part of a project that belongs to another user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// The folder that has to be allowed.
    pub folder: PathBuf,
    /// The file or folder in there that belongs to the other user.
    pub path: PathBuf,
    /// The user id of the other user.
    pub uid: u32,
    /// Whether the user has allowed the folder.
    pub is_allowed: bool,
}

/// The content of an approval, for people: only its name counts.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    folder: String,
    uid: u32,
    approved_at: String,
}

impl Owners {
    /// Finds out who the user is: the one of this process, and with `sudo` the one who called it.
    pub fn of(environment: &Environment) -> Self {
        Self::new(rustix::process::geteuid().as_raw(), environment.clone())
    }

    fn new(euid: u32, environment: Environment) -> Self {
        let mut uids = vec![euid];
        if euid == 0 {
            uids.extend(environment.variable("SUDO_UID").and_then(|uid| uid.parse::<u32>().ok()));
        }
        Self { uids, environment }
    }

    /// Returns an error if part of the project belongs to another user and its folder is not allowed.
    pub fn check(&self, project: &Project) -> Result<(), Error> {
        match self.foreign(project).into_iter().find(|foreign| !foreign.is_allowed) {
            Some(foreign) => Err(foreign.refusal()),
            None => Ok(()),
        }
    }

    /// Finds what belongs to other users: at most one entry for each folder of the project.
    pub fn foreign(&self, project: &Project) -> Vec<Foreign> {
        let mut found: Vec<Foreign> = Vec::new();
        for (folder, parts) in project.claims() {
            let foreign = parts.into_iter().find_map(|path| {
                let uid = owners_of(&path).find(|uid| !self.uids.contains(uid))?;
                Some((path, uid))
            });
            if let Some((path, uid)) = foreign
                && found.iter().all(|known| known.folder != folder)
            {
                let is_allowed = self.is_approved(folder) || self.is_safe_for_git(folder);
                info!(?path, uid, is_allowed, "part of the project belongs to another user");
                found.push(Foreign { folder: folder.to_owned(), path, uid, is_allowed });
            }
        }
        found
    }

    /// Allows a folder from now on.
    pub fn approve(&self, foreign: &Foreign) -> Result<(), Error> {
        let record = Record {
            folder: foreign.folder.to_string_lossy().into_owned(),
            uid: foreign.uid,
            approved_at: trust::now(),
        };
        trust::keep(trust::folder_of(&self.environment).as_deref(), &name_of(&foreign.folder), &record)
    }

    /// Removes the approvals of a project's folders, and returns their number.
    pub fn revoke(&self, project: &Project) -> Result<usize, Error> {
        let Some(folder) = trust::folder_of(&self.environment) else { return Ok(0) };
        let mut folders: Vec<&Path> = project.claims().into_iter().map(|(folder, _)| folder).collect();
        folders.dedup();
        let mut removed = 0;
        for claimed in folders {
            removed += usize::from(trust::remove(&folder.join(name_of(claimed)))?);
        }
        Ok(removed)
    }

    fn is_approved(&self, folder: &Path) -> bool {
        trust::folder_of(&self.environment)
            .is_some_and(|approvals| trust::read_own(&approvals.join(name_of(folder))).is_ok())
    }

    /// Returns whether `safe.directory` in the user's own git configuration names a folder.
    fn is_safe_for_git(&self, folder: &Path) -> bool {
        let mut is_safe = false;
        for file in self.environment.git_configurations() {
            for Entry { section, name, value } in git_config::entries(&git_config::read(&file)) {
                if section.eq_ignore_ascii_case("safe") && name.eq_ignore_ascii_case("directory") {
                    // An empty value resets the list.
                    is_safe = !value.is_empty() && (is_safe || self.names(&value, folder));
                }
            }
        }
        is_safe
    }

    /// Returns whether a value of `safe.directory` names a folder: `*` all of them, `DIR/*` those below `DIR`.
    fn names(&self, value: &str, folder: &Path) -> bool {
        if value == "*" {
            return true;
        }
        let (value, is_for_those_below) = match value.strip_suffix("/*") {
            Some(parent) => (parent, true),
            None => (value, false),
        };
        let named = match (value.strip_prefix("~/"), self.environment.home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(value),
        };
        if !named.is_absolute() {
            return false;
        }
        let named = fs::canonicalize(&named).unwrap_or(named);
        if is_for_those_below { folder != named && folder.starts_with(&named) } else { folder == named }
    }
}

impl Foreign {
    fn refusal(&self) -> Error {
        Error::refused("owner", format!("{self}; this project is not used"))
            .with_hint(format!("`azureal trust --owner` allows {} all the same", quoted(shown(&self.folder))))
    }
}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} belongs to another user (uid {})", quoted(shown(&self.path)), self.uid)
    }
}

/// Returns the owner of a path and, if it is a link, of its target. Empty if the path does not exist.
fn owners_of(path: &Path) -> impl Iterator<Item = u32> {
    let found = [fs::symlink_metadata(path), fs::metadata(path)];
    found.into_iter().flatten().map(|found| found.uid())
}

/// Returns the name of the file that holds the approval of a folder.
fn name_of(folder: &Path) -> String {
    format!("owner-{}.json", blake3::hash(folder.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const OTHER: u32 = 54321;

    /// A repository of the user who runs the tests, and that user's home.
    struct Folders {
        folder: TempDir,
        project: Project,
    }

    impl Folders {
        fn new() -> Self {
            let folder = TempDir::new().unwrap();
            for path in ["p/.git", "p/.azureal", "h/.config/git"] {
                fs::create_dir_all(folder.path().join(path)).unwrap();
            }
            fs::write(folder.path().join("p/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
            let project = Project::of_any_owner(&folder.path().join("p"));
            Self { folder, project }
        }

        fn path(&self, path: &str) -> PathBuf {
            fs::canonicalize(self.folder.path()).unwrap().join(path)
        }

        /// The owners that count for the user `euid`.
        fn owners(&self, euid: u32, environment: &[(&str, &str)]) -> Owners {
            let home = self.path("h");
            let mut variables = vec![("HOME", home.to_str().unwrap())];
            variables.extend(environment);
            Owners::new(euid, Environment::from(variables.as_slice()))
        }

        fn is_used_by(&self, euid: u32, environment: &[(&str, &str)]) -> bool {
            self.owners(euid, environment).check(&self.project).is_ok()
        }
    }

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn a_project_of_another_user_is_refused() {
        let folders = Folders::new();
        assert!(folders.is_used_by(me(), &[]));
        let failure = folders.owners(OTHER, &[]).check(&folders.project).unwrap_err();
        let expected = format!(
            "`{}` belongs to another user (uid {}); this project is not used",
            folders.path("p").display(),
            me()
        );
        assert_eq!((failure.kind(), failure.message()), ("owner", expected.as_str()));
    }

    #[test]
    fn sudo_accepts_the_files_of_its_caller_and_only_root_is_under_sudo() {
        let folders = Folders::new();
        let sudo = me().to_string();
        assert!(folders.is_used_by(0, &[("SUDO_UID", &sudo)]));
        assert!(!folders.is_used_by(OTHER, &[("SUDO_UID", &sudo)]));
        assert_eq!(folders.owners(0, &[("SUDO_UID", "x")]).uids, [0]);
    }

    #[test]
    fn what_git_calls_safe_is_used() {
        let folders = Folders::new();
        let project = folders.path("p");
        let (project, parent) = (project.to_str().unwrap(), project.parent().unwrap().to_str().unwrap());
        for (text, is_used) in [
            ("[safe]\n\tdirectory = *\n".to_owned(), true),
            (format!("[safe]\n\tdirectory = /elsewhere\n\tdirectory = {project}\n"), true),
            (format!("[SAFE] Directory = \"{project}/\"\n"), true),
            (format!("[safe]\n\tdirectory = {parent}/*\n"), true),
            ("[safe]\n\tdirectory = ~/../p\n".to_owned(), true),
            (format!("[safe]\n\tdirectory = {project}\n\tdirectory =\n"), false),
            (format!("[safe]\n\tdirectory = {parent}\n"), false),
            (format!("[safe]\n\tdirectory = {project}/*\n"), false),
            (format!("[other]\n\tdirectory = {project}\n"), false),
            ("[safe]\n\tdirectory\n".to_owned(), false),
        ] {
            for file in ["h/.gitconfig", "h/.config/git/config"] {
                fs::write(folders.path(file), &text).unwrap();
                assert_eq!(folders.is_used_by(OTHER, &[]), is_used, "{file}: {text}");
                fs::remove_file(folders.path(file)).unwrap();
            }
        }
    }

    #[test]
    fn every_folder_of_a_linked_worktree_is_looked_at() {
        let folders = Folders::new();
        let git_dir = folders.path("p/.git/worktrees/w");
        fs::create_dir_all(&git_dir).unwrap();
        fs::create_dir(folders.path("w")).unwrap();
        fs::write(folders.path("w/.git"), format!("gitdir: {}\n", git_dir.display())).unwrap();
        fs::write(git_dir.join("gitdir"), folders.path("w/.git").to_str().unwrap()).unwrap();
        fs::write(git_dir.join("commondir"), "../..\n").unwrap();
        let project = Project::of_any_owner(&folders.path("w"));
        let foreign = folders.owners(OTHER, &[]).foreign(&project);
        let found: Vec<&Path> = foreign.iter().map(|foreign| foreign.folder.as_path()).collect();
        assert_eq!(found, [folders.path("w"), folders.path("p")]);
        // Allowing the one does not allow the other.
        fs::write(
            folders.path("h/.gitconfig"),
            format!("[safe]\ndirectory = {}\n", folders.path("w").display()),
        )
        .unwrap();
        let failure = folders.owners(OTHER, &[]).check(&project).unwrap_err();
        assert!(failure.message().starts_with(&format!("`{}` ", folders.path("p").display())), "{failure:?}");
    }

    #[test]
    fn outside_git_the_store_must_be_ours_and_the_folder_need_not() {
        let folders = Folders::new();
        fs::remove_dir_all(folders.path("p/.git")).unwrap();
        let project = Project::of_any_owner(&folders.path("p"));
        let parts = |project: &Project| {
            let claims = project.claims();
            claims.into_iter().map(|(folder, parts)| (folder.to_owned(), parts)).collect::<Vec<_>>()
        };
        assert_eq!(
            parts(&project),
            [(folders.path("p"), vec![folders.path("p/.azureal"), folders.path("p/.azureal/sessions.azs")])]
        );
        assert!(folders.owners(OTHER, &[]).check(&project).is_err());
        fs::remove_dir(folders.path("p/.azureal")).unwrap();
        assert!(folders.owners(OTHER, &[]).check(&project).is_ok());
    }
}
