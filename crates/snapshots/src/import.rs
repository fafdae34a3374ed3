//! The first index of a worktree's snapshots: a copy of the project's.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::OFlags;

use crate::attributes::Doubt;
use crate::beneath::{Beneath, Found, is_forbidden};
use crate::error::{At, Error};
use crate::git::{Deadline, OUTPUT, Running, args};
use crate::places::read_start;
use crate::project_index::{Entry, ProjectIndex, REGULAR, hex};
use crate::worktree::{Home, Worktree};

/// The bound on an index.
const INDEX: u64 = 1024 * 1024 * 1024;
/// Every LFS pointer is smaller.
const LFS_POINTER: u32 = 1024;
/// The name of the index until it is complete.
pub(crate) const DRAFT: &str = "index.draft";
/// The name of the index.
pub(crate) const NAME: &str = "index";

/// A copy of the project's index that is not in use yet.
pub(crate) struct Draft {
    pub(crate) index: ProjectIndex,
    pub(crate) path: PathBuf,
    /// The time of the project's index. Git reads files that are not older than it, since a later change need not show in
    /// their time.
    time: SystemTime,
    /// Prints the size of each blob.
    sizes: Option<Running>,
}

/// An index in use.
pub(crate) struct Imported {
    /// Files that are hashed again.
    pub(crate) converted: Vec<Vec<u8>>,
    /// The tree of the index, if the project's index says it.
    pub(crate) tree: Option<String>,
}

impl Worktree {
    /// Copies the project's index, and starts to look up the sizes of its blobs.
    pub(crate) fn import(
        &self,
        home: &Home,
        beneath: &mut Beneath,
        deadline: Deadline<'_>,
    ) -> Result<Draft, Error> {
        let asked = self.ask_attributes()?;
        let mut draft = self.read_project(home, beneath, deadline)?;
        // A filter can write a file of the same size as its blob.
        let is_doubtful: fn(&Entry) -> bool = match self.doubt(asked, &draft.index, beneath, deadline) {
            Doubt::None => |_| false,
            Doubt::Pointers => |entry| entry.size() < LFS_POINTER,
            Doubt::All => |_| true,
        };
        let mut doubtful = draft.index.entries.iter_mut().filter(|entry| is_doubtful(entry)).peekable();
        if doubtful.peek().is_some() {
            doubtful.for_each(Entry::forget);
            draft.write(self, home)?;
        }
        let mut ids = String::new();
        for entry in draft.index.entries.iter().filter(|entry| entry.is_regular()) {
            ids.push_str(&hex(entry.id(self.places.format)));
            ids.push('\n');
        }
        let sizes = (!ids.is_empty()).then(|| {
            let command = args(["cat-file", "--batch-check=%(objectsize)", "--buffer"]);
            self.borrowing().start(&command, ids.into_bytes(), OUTPUT)
        });
        Ok(Draft { sizes: sizes.transpose()?, ..draft })
    }

    /// Copies the project's index to a file of ours.
    pub(crate) fn read_project(
        &self,
        home: &Home,
        beneath: &mut Beneath,
        deadline: Deadline<'_>,
    ) -> Result<Draft, Error> {
        let source = self.places.git_dir.join("index");
        let format = self.places.format;
        let bad = |why| Error::BadIndex { path: source.clone(), why };
        let (bytes, mut time) = match fs::metadata(&source) {
            Ok(found) => {
                let time = found.modified().at(&source)?;
                (read_start(&source, INDEX).ok_or_else(|| bad("it is no plain file, or too large"))?, time)
            }
            // A new repository.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                (ProjectIndex::default().write(format), SystemTime::now())
            }
            Err(error) => return Err(error).at(&source),
        };
        let mut is_there = |path: &[u8]| {
            matches!(beneath.look(path), Ok(Found::File(_) | Found::Link(_) | Found::Unreadable(_)))
        };
        let mut index = ProjectIndex::parse(&bytes, format, &mut is_there, is_forbidden).map_err(bad)?;
        if let Some(shared) = &index.shared {
            let joined;
            (joined, time) = self.join_shared(home, &bytes, time, shared, deadline)?;
            index = ProjectIndex::parse(&joined, format, &mut is_there, is_forbidden).map_err(bad)?;
        }
        let draft = Draft { index, path: home.own.join(DRAFT), time, sizes: None };
        draft.write(self, home)?;
        Ok(draft)
    }

    /// Lets git join an index with its shared index, both as copies of ours.
    fn join_shared(
        &self,
        home: &Home,
        bytes: &[u8],
        time: SystemTime,
        shared: &[u8],
        deadline: Deadline<'_>,
    ) -> Result<(Vec<u8>, SystemTime), Error> {
        let name = format!("sharedindex.{}", hex(shared));
        let source = self.places.git_dir.join(&name);
        let bad = |path: &Path, why| Error::BadIndex { path: path.to_owned(), why };
        let base = read_start(&source, INDEX).ok_or_else(|| bad(&source, "it is missing or too large"))?;
        let copy = home.repository.join(&name);
        create(&home.repository, &name, &base).at(&copy)?;
        create(&home.own, DRAFT, bytes).and_then(|file| file.set_modified(time)).at(&home.own.join(DRAFT))?;
        let path = home.own.join(DRAFT);
        let command = args(["update-index", "--no-split-index", "--force-write-index"]);
        let joined = self.in_worktree(&path).run(&command, Vec::new(), deadline);
        home.repository.remove(OsStr::new(&name)).at(&copy)?;
        joined?;
        let bytes = read_start(&path, INDEX).ok_or_else(|| bad(&path, "it is too large"))?;
        // Git has marked the files that a change need not show of.
        Ok((bytes, fs::metadata(&path).and_then(|found| found.modified()).at(&path)?))
    }
}

impl Draft {
    /// Takes the index into use. Files whose blob has another size are hashed again: line endings, filters and
    /// keywords make a blob that is not the bytes of the file.
    pub(crate) fn finish(
        mut self,
        worktree: &Worktree,
        home: &Home,
        deadline: Deadline<'_>,
    ) -> Result<Imported, Error> {
        let output = self.sizes.take().map_or_else(|| Ok(Vec::new()), |sizes| sizes.finish(deadline))?;
        let mut sizes = output.split(|byte| *byte == b'\n');
        let mut converted = Vec::new();
        for entry in self.index.entries.iter_mut().filter(|entry| entry.is_regular()) {
            // A blob that is missing has no size.
            let size = sizes.next().and_then(|size| std::str::from_utf8(size).ok()?.parse::<u64>().ok());
            if size.is_none_or(|size| size & u64::from(u32::MAX) != u64::from(entry.size())) {
                converted.push(entry.path.clone());
                entry.forget();
            }
        }
        if !converted.is_empty() {
            self.write(worktree, home)?;
        }
        home.own.rename(OsStr::new(DRAFT), OsStr::new(NAME)).at(&self.path)?;
        Ok(Imported { converted, tree: self.index.tree(worktree.places.format) })
    }

    fn write(&self, worktree: &Worktree, home: &Home) -> Result<(), Error> {
        let bytes = self.index.write(worktree.places.format);
        create(&home.own, DRAFT, &bytes).and_then(|file| file.set_modified(self.time)).at(&self.path)
    }
}

impl Entry {
    fn is_regular(&self) -> bool {
        self.mode() & 0o170_000 == REGULAR
    }
}

fn create(folder: &azureal_files::Folder, name: &str, bytes: &[u8]) -> std::io::Result<File> {
    folder.remove(OsStr::new(name))?;
    let mut file = folder.create_file(OsStr::new(name), OFlags::WRONLY)?;
    file.write_all(bytes)?;
    Ok(file)
}
