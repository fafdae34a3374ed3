//! The files that appear in a snapshot though they may have been there before: the earlier snapshot left them out.
//!
//! A file that only the later of two snapshots has was absent at the earlier one, unless the rules of that time ignored it, its name was recorded,
//! or it was in a nested repository. The rules are those of the stored snapshot, so the answer stays the same whatever happens to the file.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::beneath::is_forbidden;
use crate::compare::{MARKED, RawChange, TIME};
use crate::error::{At, Error};
use crate::git::{Deadline, Git, OUTPUT, args};
use crate::names::{Name, There};
use crate::notes::{Notes, Pin, pins};
use crate::rules::Rules;
use crate::scratch::Scratch;
use crate::worktree::{EXCLUDE, Home, Worktree};

const IGNORE: &[u8] = b".gitignore";
const HERE: &[u8] = b"./";
const WORKTREE: &str = "worktree";
/// The bound on the arguments of a command.
const ARGUMENTS: usize = 64 * 1024;
/// The number of records of each of two snapshots that count: the same files may be taken at different times, under different rules.
const MOST_RULES: usize = 16;

/// A `.gitignore` file of a snapshot.
struct IgnoreFile {
    path: Vec<u8>,
    /// `None` if it is not stored.
    id: Option<String>,
}

/// The `.gitignore` files of a tree.
#[derive(Default)]
struct TreeRules {
    files: Vec<(Vec<u8>, Vec<u8>)>,
    /// The folders of those whose content is no longer stored.
    missing: Vec<Vec<u8>>,
    /// The folders of those that were named and not stored. The record has their rules.
    marked: Vec<Vec<u8>>,
}

/// Files that only the later of two snapshots has, and that are hidden.
#[derive(Default)]
pub(crate) struct Hidden {
    /// They may have been there at the earlier one.
    pub(crate) before: BTreeSet<Vec<u8>>,
    /// They were ignored at the later one, so they are no changes.
    pub(crate) after: BTreeSet<Vec<u8>>,
}

impl Hidden {
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        self.before.contains(path) || self.after.contains(path)
    }
}

/// The records of the rules of two snapshots. Those of the earlier one are as many as it was taken under different rules.
#[derive(Default)]
struct Records {
    before: BTreeSet<Rules>,
    after: BTreeSet<Rules>,
}

impl Worktree {
    /// Returns which of the files that only the later snapshot has are hidden.
    pub(crate) fn hidden(
        &self,
        home: &Home,
        before: &str,
        after: &str,
        changes: &[RawChange],
    ) -> Result<Hidden, Error> {
        let added = changes.iter().filter(|change| change.before.is_none());
        // No path of a snapshot is forbidden. A tree that is none may have one, and here paths become folders.
        let (ignored, added): (BTreeSet<Vec<u8>>, BTreeSet<Vec<u8>>) =
            added.map(|change| change.path.clone()).partition(|path| is_forbidden(path));
        let mut hidden = Hidden { before: ignored, ..Hidden::default() };
        if added.is_empty() || self.is_of_undo {
            return Ok(hidden);
        }
        let mut records = self.records(home, before, after)?;
        let late: BTreeSet<Vec<u8>> = records.after.into_iter().flat_map(|rules| rules.late).collect();
        let of_tree = self.tree_rules(before, &added)?;
        // A later snapshot of the same files, before an undo, says nothing of the turn.
        if records.before.iter().any(|rules| rules.there.is_some()) {
            records.before.retain(|rules| rules.there.is_some() || *rules == all_unknown());
        }
        if records.before.is_empty() {
            // An old snapshot, or one of a deleted session.
            let unknown = of_tree.marked.clone();
            records.before.insert(Rules { exclude: self.excludes()?, unknown, ..Rules::default() });
        }
        let mut checked = BTreeSet::new();
        for rules in records.before {
            let there = There::new(rules.there.as_deref().unwrap_or_default(), self.places.case);
            let is_hidden =
                |path: &&Vec<u8>| there.has(path) || rules.repositories.iter().any(|it| self.is_in(path, it));
            hidden.before.extend(added.iter().filter(is_hidden).cloned());
            // The names differ with each turn, and the rules mostly do not.
            checked.insert(Rules { there: None, late: Vec::new(), ..rules });
        }
        for rules in checked {
            let ignored = self.ignored_by(home, &of_tree, &rules, &added, &hidden.before)?;
            hidden.before.extend(ignored);
        }
        hidden.after =
            late.into_iter().filter(|path| added.contains(path) && !hidden.before.contains(path)).collect();
        Ok(hidden)
    }

    /// Returns which paths rules ignore, but for those that are known already.
    fn ignored_by(
        &self,
        home: &Home,
        of_tree: &TreeRules,
        rules: &Rules,
        paths: &BTreeSet<Vec<u8>>,
        known: &BTreeSet<Vec<u8>>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let unknown: Vec<&Vec<u8>> = rules.unknown.iter().chain(&of_tree.missing).collect();
        let open = paths.iter().filter(|path| !known.contains(*path));
        let (mut ignored, open): (Vec<Vec<u8>>, Vec<Vec<u8>>) =
            open.cloned().partition(|path| unknown.iter().any(|folder| self.is_in(path, folder)));
        ignored.extend(self.check_ignore(home, of_tree, rules, &open)?);
        Ok(ignored)
    }

    /// Returns whether a path is in a folder.
    fn is_in(&self, path: &[u8], folder: &[u8]) -> bool {
        is_in(&self.places.case.fold(path), &self.places.case.fold(folder))
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

    /// Finds the rules of two snapshots. The same files may have been recorded at many times: those count that were taken one after the other in one session.
    fn records(&self, home: &Home, before: &str, after: &str) -> Result<Records, Error> {
        let Notes { mut pins, unreadable, damaged } = Notes::read(&home.packs)?;
        // The oldest come first.
        pins.reverse();
        pins.sort_by(|one, other| one.session.cmp(&other.session));
        let (mut earlier, mut later) = (Vec::new(), Vec::new());
        let mut first: Option<&Pin> = None;
        for pin in &pins {
            if pin.tree == before {
                first = Some(pin);
            } else if pin.tree == after
                && let Some(first) = first.filter(|first| first.session == pin.session)
            {
                earlier.push(first.rules.clone());
                later.push(pin.rules.clone());
            }
        }
        if earlier.is_empty() {
            earlier = pins.iter().filter(|pin| pin.tree == before).map(|pin| pin.rules.clone()).collect();
        }
        let [earlier, later] = [earlier, later].map(newest);
        let ids: Vec<String> = earlier.iter().chain(&later).cloned().collect();
        let mut contents = self.contents(&ids)?.into_iter().map(|content| Rules::parse(&content?));
        let read = contents.by_ref().take(earlier.len());
        let mut before: BTreeSet<Rules> = read.map(|rules| rules.unwrap_or_else(all_unknown)).collect();
        if !(unreadable.is_empty() && damaged.is_empty()) {
            // A note that is lost may have named further rules.
            before.insert(all_unknown());
        }
        Ok(Records { before, after: contents.flatten().collect() })
    }

    /// Finds the names that were there when the last turn of a session began with this tree.
    pub(crate) fn last_names(&self, home: &Home, session: &str, tree: &str) -> Result<Vec<Name>, Error> {
        let pins = pins(home)?;
        let own = pins.into_iter().filter(|pin| pin.tree == tree && pin.session == session);
        let ids: Vec<String> = own.filter_map(|pin| pin.rules).take(MOST_RULES).collect();
        let mut rules = self.contents(&ids)?.into_iter().filter_map(|content| Rules::parse(&content?));
        Ok(rules.find_map(|rules| rules.there).unwrap_or_default())
    }

    /// Reads the `.gitignore` files of a tree that decide about paths.
    fn tree_rules(&self, tree: &str, added: &BTreeSet<Vec<u8>>) -> Result<TreeRules, Error> {
        let (stored, marked): (Vec<_>, Vec<_>) = self
            .ignore_files(tree, added, Deadline::after(TIME))?
            .into_iter()
            .partition(|file| file.id.is_some());
        let ids: Vec<String> = stored.iter().filter_map(|file| file.id.clone()).collect();
        let mut rules = TreeRules::default();
        let contents = match self.contents(&ids) {
            Err(Error::TooMuch { .. }) => vec![None; ids.len()],
            contents => contents?,
        };
        for (file, content) in stored.into_iter().zip(contents) {
            match content {
                Some(content) => rules.files.push((file.path, content)),
                None => rules.missing.push(parent(&file.path).to_vec()),
            }
        }
        rules.marked.extend(marked.iter().map(|file| parent(&file.path).to_vec()));
        Ok(rules)
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
        of_tree: &TreeRules,
        rules: &Rules,
        paths: &[Vec<u8>],
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
        for (path, content) in rules.files.iter().chain(&of_tree.files) {
            if is_forbidden(path) {
                continue;
            }
            let file = top.join(OsStr::from_bytes(path));
            let folder = file.parent().unwrap_or(&top);
            fs::create_dir_all(folder).and_then(|()| fs::write(&file, content)).at(&file)?;
        }
        let git = self.git.with("GIT_WORK_TREE", &top).with("GIT_INDEX_FILE", scratch.join("index"));
        let paths: Vec<&[u8]> = paths.iter().map(Vec::as_slice).collect();
        ignored(&git.in_directory(&top), &exclude, &paths, Deadline::after(TIME))
    }
}

/// Returns the rules of a record that cannot be read: any file may have been there, and ignored.
fn all_unknown() -> Rules {
    Rules { unknown: vec![Vec::new()], ..Rules::default() }
}

/// Returns the newest ids of a list with the oldest first, each once.
fn newest(ids: Vec<Option<String>>) -> Vec<String> {
    let mut newest = Vec::new();
    for id in ids.into_iter().rev().flatten() {
        if newest.len() < MOST_RULES && !newest.contains(&id) {
            newest.push(id);
        }
    }
    newest
}

/// Asks git which paths are ignored in its worktree, with a file of rules beside those of the worktree.
pub(crate) fn ignored(
    git: &Git,
    exclude: &Path,
    paths: &[&[u8]],
    deadline: Deadline<'_>,
) -> Result<Vec<Vec<u8>>, Error> {
    let git = git
        .with("GIT_CONFIG_COUNT", "2")
        .with("GIT_CONFIG_KEY_1", "core.excludesFile")
        .with("GIT_CONFIG_VALUE_1", exclude)
        // This command does not know it. A path with a dot in front of it has no other meaning.
        .with("GIT_LITERAL_PATHSPECS", "0");
    let command = args(["check-ignore", "-z", "--stdin", "--no-index"]);
    let input = paths.iter().flat_map(|path| [HERE, path, b"\0"]).collect::<Vec<_>>().concat();
    // Git warns of a link in the place of a file of rules.
    let output = git.start(&command, input, OUTPUT)?.finish_search(deadline)?;
    let paths = output.split(|byte| *byte == 0).filter_map(|path| path.strip_prefix(HERE));
    Ok(paths.map(<[u8]>::to_vec).collect())
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
pub(crate) fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').and_then(|end| path.get(..end)).unwrap_or_default()
}

/// Returns whether a path is in a folder.
fn is_in(path: &[u8], folder: &[u8]) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/"))
}
