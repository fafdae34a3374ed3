//! Completion of paths of the project.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::News;
use super::shared::Shared;
use crate::agents::on_path;

/// The most paths that are offered.
const MOST_OFFERED: usize = 50;
/// The time for a list of all files, and how long it is used.
const LIST_TIME: Duration = Duration::from_millis(1_500);
const LIST_AGE: Duration = Duration::from_secs(5);
/// The most that is read of such a list, in bytes, and the most paths.
const LIST_BYTES: u64 = 32 << 20;
const MOST_PATHS: usize = 200_000;
/// The most folders that are looked into without git, and how deep.
const MOST_FOLDERS: usize = 2_000;
const DEEPEST: usize = 12;

/// The files of a project, and the completion that is asked for.
#[derive(Default)]
pub(super) struct Paths {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listed: Option<(Instant, Arc<Vec<String>>)>,
    wanted: Option<String>,
    is_running: bool,
}

impl Paths {
    /// Completes a prefix, on a thread of its own. One that is asked for meanwhile takes its place.
    pub(super) fn complete(shared: &Arc<Shared>, prefix: String) {
        let mut state = shared.paths.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.wanted = Some(prefix);
        if std::mem::replace(&mut state.is_running, true) {
            return;
        }
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            while let Some(prefix) = shared.paths.next() {
                let all = shared.paths.all(&shared);
                let paths = best(&all, &prefix);
                shared.outbox.send(News::Paths { prefix, paths });
            }
        });
    }

    /// Returns the prefix that is asked for; without one, the thread ends.
    fn next(&self) -> Option<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = state.wanted.take();
        state.is_running = wanted.is_some();
        wanted
    }

    fn all(&self, shared: &Shared) -> Arc<Vec<String>> {
        {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, paths)) = state.listed.as_ref().filter(|(at, _)| at.elapsed() < LIST_AGE) {
                return Arc::clone(paths);
            }
        }
        let paths = Arc::new(list(shared));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.listed = Some((Instant::now(), Arc::clone(&paths)));
        paths
    }
}

/// Lists the files of the project and their folders: by git, which leaves ignored ones out, or else by looking.
fn list(shared: &Shared) -> Vec<String> {
    let project = &shared.workspace.project;
    let listed = if project.is_in_git() { list_by_git(shared) } else { None };
    let mut paths = listed.unwrap_or_else(|| walk(project.directory()));
    let folders: Vec<String> = paths.iter().flat_map(|path| folders_of(path)).collect();
    paths.extend(folders);
    paths.sort_unstable();
    paths.dedup();
    paths.truncate(MOST_PATHS);
    paths
}

/// Returns the folders that a path leads through, each with a slash at its end.
fn folders_of(path: &str) -> impl Iterator<Item = String> {
    path.match_indices('/').filter_map(|(at, _)| path.get(..=at)).map(str::to_owned)
}

fn list_by_git(shared: &Shared) -> Option<Vec<String>> {
    let environment = shared.workspace.environment();
    let mut command = Command::new(on_path("git", environment.value("PATH"))?);
    // No program that the repository names is run.
    command.args([
        "-c",
        "core.fsmonitor=false",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    command.env_clear().envs(environment.variables()).env("GIT_OPTIONAL_LOCKS", "0");
    command.current_dir(shared.workspace.project.directory());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let output = child.stdout.take()?;
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        drop(output.take(LIST_BYTES).read_to_end(&mut bytes));
        bytes
    });
    let deadline = Instant::now() + LIST_TIME;
    while !reader.is_finished() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
    }
    let is_whole = reader.is_finished();
    // What it has printed by then is used.
    drop(child.kill());
    let status = child.wait();
    let bytes = reader.join().ok()?;
    if bytes.is_empty() && !(is_whole && status.is_ok_and(|status| status.success())) {
        return None;
    }
    let paths = bytes.split(|byte| *byte == 0).filter_map(|path| std::str::from_utf8(path).ok());
    Some(paths.filter(|path| !path.is_empty()).take(MOST_PATHS).map(str::to_owned).collect())
}

/// Lists files without following links, within bounds.
fn walk(root: &Path) -> Vec<String> {
    let (mut paths, mut folders) = (Vec::new(), vec![(String::new(), 0)]);
    let (mut looked_into, deadline) = (0, Instant::now() + LIST_TIME);
    while let Some((folder, depth)) = folders.pop() {
        looked_into += 1;
        if looked_into > MOST_FOLDERS || paths.len() > MOST_PATHS || Instant::now() > deadline {
            break;
        }
        let Ok(entries) = std::fs::read_dir(root.join(&folder)) else { continue };
        for entry in entries.flatten().take(MOST_PATHS) {
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else { continue };
            if kind.is_dir() && depth < DEEPEST && name != ".git" {
                folders.push((format!("{folder}{name}/"), depth + 1));
            } else if kind.is_file() {
                paths.push(format!("{folder}{name}"));
            }
        }
    }
    paths
}

/// Returns the paths that have the characters of a prefix in their order, the best first.
fn best(paths: &[String], prefix: &str) -> Vec<String> {
    let wanted: Vec<char> = prefix.chars().flat_map(char::to_lowercase).collect();
    let mut found: Vec<(i64, &String)> =
        paths.iter().filter_map(|path| Some((score(path, &wanted)?, path))).collect();
    found.sort_by(|(one, path), (other, other_path)| {
        other.cmp(one).then(path.len().cmp(&other_path.len())).then(path.cmp(other_path))
    });
    found.into_iter().take(MOST_OFFERED).map(|(_, path)| path.clone()).collect()
}

/// Rates how well a path matches; `None` if it does not. Characters that stand together, at the beginning of a word or in the last part
/// of the path count more.
fn score(path: &str, wanted: &[char]) -> Option<i64> {
    let chars: Vec<char> = path.chars().collect();
    let name = path
        .trim_end_matches('/')
        .rfind('/')
        .map_or(0, |at| path.get(..=at).map_or(0, |folder| folder.chars().count()));
    // From the last part if all of it is there, else from the beginning.
    [name, 0].into_iter().filter_map(|from| score_from(&chars, from, wanted, name)).max()
}

fn score_from(chars: &[char], from: usize, wanted: &[char], name: usize) -> Option<i64> {
    let (mut score, mut last) = (0_i64, None);
    let mut at = from;
    for wanted in wanted {
        let is_it = |c: &char| c.to_lowercase().eq(std::iter::once(*wanted));
        at += chars.get(at..)?.iter().position(is_it)?;
        let is_next = last.is_some_and(|last| last + 1 == at);
        let before = at.checked_sub(1).and_then(|before| chars.get(before));
        let begins_word = before.is_none_or(|before| !before.is_alphanumeric());
        score += 1
            + if is_next { 8 } else { 0 }
            + if begins_word { 6 } else { 0 }
            + if at >= name { 4 } else { 0 };
        last = Some(at);
        at += 1;
    }
    Some(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_match_is_first() {
        let paths: Vec<String> =
            ["src/main.rs", "src/domain/area.rs", "docs/mainly.md", "src/", "README.md", "a/Ä.rs"]
                .map(str::to_owned)
                .into();
        let best = |prefix: &str| best(&paths, prefix);
        assert_eq!(best("main")[..2], ["src/main.rs", "docs/mainly.md"]);
        assert_eq!(best("smain")[0], "src/main.rs");
        assert_eq!(best("src/")[0], "src/");
        assert_eq!(best("readme"), ["README.md"]);
        assert_eq!(best("ä"), ["a/Ä.rs"]);
        assert_eq!(best("xyz"), [""; 0]);
        assert_eq!(best("").len(), paths.len());
        assert_eq!(best("mainly.md")[0], "docs/mainly.md");
    }

    #[test]
    fn a_folder_without_git_is_walked_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        std::fs::create_dir_all(folder.path().join(".git")).unwrap();
        for file in ["x", "a/y", "a/b/z", ".git/config"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        std::os::unix::fs::symlink("/", folder.path().join("root")).unwrap();
        let mut paths = walk(folder.path());
        paths.sort();
        assert_eq!(paths, ["a/b/z", "a/y", "x"]);
        assert_eq!(folders_of("a/b/z").collect::<Vec<_>>(), ["a/", "a/b/"]);
    }
}
