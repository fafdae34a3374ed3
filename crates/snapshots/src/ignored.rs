//! The files that appear in a snapshot though they may have been there before: the earlier snapshot left them out.
//!
//! A file that only the later of two snapshots has was absent at the earlier one, unless the rules of that time ignored it or
//! it was in a nested repository. The rules are those of the stored snapshot, so the answer stays the same whatever happens to the file.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::beneath::is_forbidden;
use crate::compare::{MARKED, RawChange, TIME};
use crate::error::{At, Error};
use crate::git::{Deadline, Git, args};
use crate::prune::pins;
use crate::rules::Rules;
use crate::scratch::Scratch;
use crate::worktree::{EXCLUDE, Home, Worktree};

const IGNORE: &[u8] = b".gitignore";
const HERE: &[u8] = b"./";
const WORKTREE: &str = "worktree";
/// The bound on the arguments of a command.
const ARGUMENTS: usize = 64 * 1024;
/// The number of different rules that a snapshot of the same files had at different times. All of them count.
const MOST_RULES: usize = 16;

/// A `.gitignore` file of a snapshot.
struct IgnoreFile {
    path: Vec<u8>,
    /// `None` if it is not stored.
    id: Option<String>,
}

/// Paths whose rules are known, or not.
#[derive(Default)]
struct Known {
    files: Vec<(Vec<u8>, Vec<u8>)>,
    /// Folders whose rules are not known any more: all in them may have been ignored. The top is the empty path.
    unknown: Vec<Vec<u8>>,
}

impl Worktree {
    /// Returns which of the files that only the later snapshot has may have been there at the earlier one.
    pub(crate) fn ignored_before(
        &self,
        home: &Home,
        before: &str,
        changes: &[RawChange],
    ) -> Result<BTreeSet<Vec<u8>>, Error> {
        let added = changes.iter().filter(|change| change.before.is_none());
        // No path of a snapshot is forbidden. A tree that is none may have one, and here paths become folders.
        let (mut ignored, added): (BTreeSet<Vec<u8>>, BTreeSet<Vec<u8>>) =
            added.map(|change| change.path.clone()).partition(|path| is_forbidden(path));
        if added.is_empty() {
            return Ok(ignored);
        }
        let known = self.known_rules(before, &added)?;
        ignored.extend(added.iter().filter(|path| known.unknown.iter().any(|it| is_in(path, it))).cloned());
        for rules in self.rules_of(home, before)? {
            let in_repository = |path: &&Vec<u8>| rules.repositories.iter().any(|it| is_in(path, it));
            ignored.extend(added.iter().filter(in_repository).cloned());
            let open: Vec<&[u8]> =
                added.iter().filter(|path| !ignored.contains(*path)).map(Vec::as_slice).collect();
            ignored.extend(self.check_ignore(home, &known, &rules, &open)?);
        }
        Ok(ignored)
    }

    /// Returns the ids of the `.gitignore` files that decide about paths, as far as they are stored.
    pub(crate) fn ignore_file_ids(
        &self,
        tree: &str,
        added: &BTreeSet<Vec<u8>>,
        deadline: Deadline<'_>,
    ) -> Result<impl Iterator<Item = String> + use<>, Error> {
        Ok(self.ignore_files(tree, added, deadline)?.into_iter().filter_map(|file| file.id))
    }

    /// Finds the rules that snapshots with this tree had, the newest first.
    fn rules_of(&self, home: &Home, tree: &str) -> Result<BTreeSet<Rules>, Error> {
        let mut ids: Vec<String> = Vec::new();
        for id in pins(home)?.into_iter().filter(|pin| pin.tree == tree).filter_map(|pin| pin.rules) {
            if ids.len() < MOST_RULES && !ids.contains(&id) {
                ids.push(id);
            }
        }
        let contents = self.contents(&ids)?;
        let rules: BTreeSet<Rules> =
            contents.into_iter().filter_map(|content| Rules::parse(&content?)).collect();
        if rules.is_empty() {
            // An old snapshot, or one of a deleted session.
            return Ok([Rules { exclude: self.excludes(), ..Rules::default() }].into());
        }
        Ok(rules)
    }

    /// Reads the `.gitignore` files of a tree that decide about paths.
    fn known_rules(&self, tree: &str, added: &BTreeSet<Vec<u8>>) -> Result<Known, Error> {
        let (stored, marked): (Vec<_>, Vec<_>) = self
            .ignore_files(tree, added, Deadline::after(TIME))?
            .into_iter()
            .partition(|file| file.id.is_some());
        let ids: Vec<String> = stored.iter().filter_map(|file| file.id.clone()).collect();
        let mut known = Known::default();
        let contents = match self.contents(&ids) {
            Err(Error::TooMuch { .. }) => vec![None; ids.len()],
            contents => contents?,
        };
        for (file, content) in stored.into_iter().zip(contents) {
            match content {
                Some(content) => known.files.push((file.path, content)),
                None => known.unknown.push(parent(&file.path).to_vec()),
            }
        }
        known.unknown.extend(marked.iter().map(|file| parent(&file.path).to_vec()));
        Ok(known)
    }

    /// Lists the `.gitignore` files of a tree in the folders above these paths.
    fn ignore_files(
        &self,
        tree: &str,
        added: &BTreeSet<Vec<u8>>,
        deadline: Deadline<'_>,
    ) -> Result<Vec<IgnoreFile>, Error> {
        let mut wanted: BTreeSet<Vec<u8>> = BTreeSet::new();
        for path in added {
            let mut folder = parent(path);
            while wanted.insert(in_folder(folder, IGNORE)) && !folder.is_empty() {
                folder = parent(folder);
            }
        }
        let mut files = Vec::new();
        let mut wanted = wanted.into_iter().peekable();
        let mut length = 0;
        let mut command = Vec::new();
        while let Some(path) = wanted.next() {
            if command.is_empty() {
                command = args(["ls-tree", "-z", "--full-tree"]);
                command.extend([tree.into(), "--".into()]);
            }
            length += path.len() + 16;
            command.push(OsStr::from_bytes(&path).to_owned());
            if length < ARGUMENTS && wanted.peek().is_some() {
                continue;
            }
            let output = self.borrowing().run(&std::mem::take(&mut command), Vec::new(), deadline)?;
            length = 0;
            files.extend(output.split(|byte| *byte == 0).filter_map(ignore_file));
        }
        Ok(files)
    }

    /// Reads objects, in the order of their ids. `None` for one that is not stored.
    fn contents(&self, ids: &[String]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let list: String = ids.iter().flat_map(|id| [id.as_str(), "\n"]).collect();
        let command = args(["cat-file", "--batch", "--buffer"]);
        let output = self.borrowing().run(&command, list.into_bytes(), Deadline::after(TIME))?;
        let mut rest = output.as_slice();
        let mut contents = Vec::with_capacity(ids.len());
        for _ in ids {
            // The id, the kind and the size, or the id and `missing`.
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let (header, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            let size = header.split(|byte| *byte == b' ').nth(2);
            let size = size.and_then(|size| std::str::from_utf8(size).ok()?.parse::<usize>().ok());
            contents.push(size.and_then(|size| rest.get(..size)).map(<[u8]>::to_vec));
            rest = size.and_then(|size| rest.get(size + 1..)).unwrap_or(rest);
        }
        Ok(contents)
    }

    /// Lets git decide which paths rules ignore: in a folder that has these rules, and no other file.
    fn check_ignore(
        &self,
        home: &Home,
        known: &Known,
        rules: &Rules,
        paths: &[&[u8]],
    ) -> Result<Vec<Vec<u8>>, Error> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let scratch = Scratch::new(home)?;
        let top = scratch.join(WORKTREE);
        fs::create_dir(&top).at(&top)?;
        let exclude = scratch.join(EXCLUDE);
        fs::write(&exclude, &rules.exclude).at(&exclude)?;
        // A file of the tree was not ignored.
        for (path, content) in rules.files.iter().chain(&known.files) {
            if is_forbidden(path) {
                continue;
            }
            let file = top.join(OsStr::from_bytes(path));
            let folder = file.parent().unwrap_or(&top);
            fs::create_dir_all(folder).and_then(|()| fs::write(&file, content)).at(&file)?;
        }
        let git = self.git.with("GIT_WORK_TREE", &top).with("GIT_INDEX_FILE", scratch.join("index"));
        ignored(&git.in_directory(&top), &exclude, paths, Deadline::after(TIME))
    }
}

/// Asks git which paths are ignored in its worktree, with a file of rules beside those of the worktree.
pub(crate) fn ignored(
    git: &Git,
    exclude: &Path,
    paths: &[&[u8]],
    deadline: Deadline<'_>,
) -> Result<Vec<Vec<u8>>, Error> {
    let git = git
        .with("GIT_CONFIG_COUNT", "1")
        .with("GIT_CONFIG_KEY_0", "core.excludesFile")
        .with("GIT_CONFIG_VALUE_0", exclude)
        // This command does not know it. A path with a dot in front of it has no other meaning.
        .with("GIT_LITERAL_PATHSPECS", "0");
    let command = args(["check-ignore", "-z", "--stdin", "--no-index"]);
    let input = paths.iter().flat_map(|path| [HERE, path, b"\0"]).collect::<Vec<_>>().concat();
    match git.run(&command, input, deadline) {
        // None is.
        Err(Error::Git { message, .. }) if message == "Code(1)" => Ok(Vec::new()),
        output => {
            let output = output?;
            let paths = output.split(|byte| *byte == 0).filter_map(|path| path.strip_prefix(HERE));
            Ok(paths.map(<[u8]>::to_vec).collect())
        }
    }
}

/// Parses an entry of a list of trees. A link is no file of rules for git.
fn ignore_file(entry: &[u8]) -> Option<IgnoreFile> {
    let tab = entry.iter().position(|byte| *byte == b'\t')?;
    let (state, path) = (std::str::from_utf8(entry.get(..tab)?).ok()?, entry.get(tab + 1..)?.to_vec());
    let mut words = state.split(' ');
    let mode = u32::from_str_radix(words.next()?, 8).ok()?;
    let id = words.nth(1)?.to_owned();
    match mode {
        0o100_644 | 0o100_755 => Some(IgnoreFile { path, id: Some(id) }),
        MARKED => Some(IgnoreFile { path, id: None }),
        _ => None,
    }
}

fn in_folder(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

/// Returns the folder of a path. The top is the empty path.
fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').and_then(|end| path.get(..end)).unwrap_or_default()
}

/// Returns whether a path is in a folder.
fn is_in(path: &[u8], folder: &[u8]) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/"))
}
