//! Finds the files of sessions, from names and metadata alone.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

use super::{NativeError, NativeSession};

/// The number of entries of one folder that are read. A folder with more is no folder of sessions.
const MOST_ENTRIES: usize = 200_000;

/// Returns the homes of a program: the folder that a variable names, or folders in the user's home directory.
pub(crate) fn homes(
    variable: &dyn Fn(&str) -> Option<OsString>,
    name: &str,
    below_home: &[&str],
) -> Vec<PathBuf> {
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(own) = folder(name) {
        return vec![own];
    }
    let Some(home) = folder("HOME").filter(|home| home.is_absolute()) else { return Vec::new() };
    below_home.iter().map(|below| home.join(below)).collect()
}

/// Returns a directory as Claude Code and Qwen Code write it in the name of a folder: all but letters and digits of ASCII is a `-`, and what
/// JavaScript counts as two characters is two.
pub(crate) fn with_dashes(directory: &Path) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let text = directory.to_string_lossy();
    text.chars().flat_map(|c| std::iter::repeat_n(plain(c), c.len_utf16())).collect()
}

/// Returns the folders in a folder, in the order of their names, with an error for a link to one; none if it cannot be read.
pub(crate) fn folders(parent: &Path) -> Vec<Result<PathBuf, NativeError>> {
    let entries = fs::read_dir(parent).into_iter().flatten().take(MOST_ENTRIES).filter_map(Result::ok);
    let is_folder = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let of = |entry: DirEntry| match is_folder(&entry) {
        true => Some(Ok(entry.path())),
        false => is_linked_folder(&entry).then(|| Err(NativeError::LinkedFolder { path: entry.path() })),
    };
    let mut folders: Vec<_> = entries.filter_map(of).collect();
    folders.sort_by(|a, b| path_of(a).cmp(path_of(b)));
    folders
}

fn is_linked_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_symlink()) && entry.path().is_dir()
}

fn path_of(folder: &Result<PathBuf, NativeError>) -> &Path {
    folder.as_deref().unwrap_or_else(|error| error.path())
}

/// The place of sessions below the folders of projects: `<home>/<projects>/<project>/<sessions>`.
pub(crate) struct ProjectFolders {
    /// The folder of projects in a home.
    pub(crate) projects: &'static str,
    /// The folder of sessions in that of a project; empty if it is the same.
    pub(crate) sessions: &'static str,
    /// Returns the id of a session from the name of its file; `None` for another file.
    pub(crate) id_of: fn(&str) -> Option<&str>,
}

impl ProjectFolders {
    /// Lists the sessions of the projects in a home whose folders are wanted. A place that is no home is the folder of projects or
    /// one below it, or a file.
    pub(crate) fn list<'a>(
        &self,
        place: &Path,
        is_wanted: impl Fn(&Path) -> bool + 'a,
    ) -> Box<dyn Iterator<Item = Result<NativeSession, NativeError>> + 'a> {
        let Self { projects, sessions, id_of } = *self;
        let projects = place.join(projects);
        if !projects.is_dir() {
            let depth = if sessions.is_empty() { 1 } else { 2 };
            return Box::new(FileListing::of(place, depth, id_of));
        }
        let folders = folders(&projects).into_iter().filter(move |folder| is_wanted(path_of(folder)));
        Box::new(folders.flat_map(move |folder| -> Box<dyn Iterator<Item = _>> {
            match folder.map(|folder| if sessions.is_empty() { folder } else { folder.join(sessions) }) {
                Ok(folder) if folder.is_dir() => Box::new(FileListing::of(&folder, 0, id_of)),
                Ok(_) => Box::new(std::iter::empty()),
                Err(link) => Box::new(std::iter::once(Err(link))),
            }
        }))
    }
}

/// The sessions of a file, or of the files in a folder and in the folders below it.
pub(crate) struct FileListing {
    /// The files of the folder that is being read, the last one first.
    files: Vec<PathBuf>,
    /// The folders that are to be read, each with the depth that is left below it, the next one last.
    folders: Vec<(PathBuf, usize)>,
    /// Returns the id of a session from the name of its file; `None` for another file.
    id_of: fn(&str) -> Option<&str>,
    /// Whether the user named the file, so that its name need not be that of a session.
    is_named: bool,
}

impl FileListing {
    /// Lists a place: a file, or the files in a folder and in folders so deep below it.
    pub(crate) fn of(place: &Path, depth: usize, id_of: fn(&str) -> Option<&str>) -> Self {
        let is_named = !place.is_dir();
        let (files, folders) = match is_named {
            true => (vec![place.to_owned()], Vec::new()),
            false => (Vec::new(), vec![(place.to_owned(), depth)]),
        };
        Self { files, folders, id_of, is_named }
    }

    /// Reads the next folder. Returns an error if it cannot be read.
    fn read_folder(&mut self, folder: &Path, depth: usize) -> Result<(), NativeError> {
        let failed = NativeError::file(folder);
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(folder).map_err(&failed)?.take(MOST_ENTRIES) {
            let entry = entry.map_err(&failed)?;
            let name = entry.file_name();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if depth > 0 {
                    folders.push((entry.path(), depth - 1));
                }
            } else if self.id(&name).is_some() || (depth > 0 && is_linked_folder(&entry)) {
                files.push(entry.path());
            }
        }
        files.sort_by(|a, b| b.cmp(a));
        folders.sort_by(|a, b| b.cmp(a));
        self.files = files;
        self.folders.extend(folders);
        Ok(())
    }

    fn id<'a>(&self, name: &'a OsStr) -> Option<&'a str> {
        let name = name.to_str()?;
        match (self.id_of)(name) {
            None if self.is_named => Some(name.split('.').next().unwrap_or(name)),
            id => id,
        }
    }

    fn session(&self, path: PathBuf) -> Result<NativeSession, NativeError> {
        let found = fs::symlink_metadata(&path).map_err(NativeError::file(&path))?;
        if path.is_dir() {
            return Err(NativeError::LinkedFolder { path });
        }
        if !found.is_file() {
            return Err(NativeError::NotAPlainFile { path });
        }
        if found.len() == 0 {
            return Err(NativeError::Empty { path });
        }
        let id = self.id(path.file_name().unwrap_or_default()).unwrap_or_default().to_owned();
        Ok(NativeSession { id, changed: found.modified().ok(), size: found.len(), path })
    }
}

impl Iterator for FileListing {
    type Item = Result<NativeSession, NativeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(path) = self.files.pop() {
                return Some(self.session(path));
            }
            let (folder, depth) = self.folders.pop()?;
            if let Err(error) = self.read_folder(&folder, depth) {
                return Some(Err(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_listed_by_their_names_and_refused_if_they_are_not_plain() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("below/deep")).unwrap();
        for (name, text) in [
            ("b.jsonl", "xy"),
            ("empty.jsonl", ""),
            ("other.txt", "x"),
            ("below/a.jsonl", "x"),
            ("below/deep/c.jsonl", "x"),
        ] {
            fs::write(path(name), text).unwrap();
        }
        symlink(path("b.jsonl"), path("link.jsonl")).unwrap();
        symlink(path("below"), path("linked")).unwrap();
        let list = |place: &Path, depth| -> Vec<String> {
            FileListing::of(place, depth, |name| name.strip_suffix(".jsonl"))
                .map(|found| match found {
                    Ok(session) => format!("{} {}", session.id, session.size),
                    Err(error) => error.to_string().replace(&format!("{}/", folder.path().display()), ""),
                })
                .collect()
        };
        assert_eq!(list(folder.path(), 0), ["b 2", "empty.jsonl is empty", "link.jsonl is not a plain file"]);
        assert_eq!(list(folder.path(), 1).last().unwrap(), "a 1");
        let linked = "linked is a link, which is not followed";
        assert!(list(folder.path(), 1).iter().any(|found| found == linked));
        assert_eq!(list(&path("other.txt"), 0), ["other 1"], "a named file");
        let projects = |sessions| {
            ProjectFolders { projects: "projects", sessions, id_of: |name| name.strip_suffix(".jsonl") }
                .list(folder.path(), |_| true)
                .filter_map(Result::ok)
                .map(|session| session.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(projects(""), ["b", "a"], "the folder of the folders of projects");
        let home = path("home");
        fs::create_dir_all(home.join("projects/p")).unwrap();
        fs::write(home.join("projects/p/d.jsonl"), "x").unwrap();
        symlink(path("below"), home.join("projects/linked")).unwrap();
        let listing =
            ProjectFolders { projects: "projects", sessions: "", id_of: |name| name.strip_suffix(".jsonl") };
        let found: Vec<Option<String>> =
            listing.list(&home, |_| true).map(|found| found.ok().map(|session| session.id)).collect();
        assert_eq!(found, [None, Some("d".to_owned())], "a link to a folder is an error");
        assert_eq!(projects("chats"), ["b", "a", "c"], "whose sessions are in folders of their own");
        assert!(list(&path("none"), 0)[0].contains("none"));
    }
}
