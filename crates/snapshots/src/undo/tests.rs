//! Random turns and their undo, killed at every step.

#![expect(clippy::disallowed_methods, reason = "tests find git in the PATH of this process")]

mod changed;
mod ended;
mod random;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use azureal_process::ChildEnvironment;
use proptest::prelude::*;
use proptest::test_runner::Config;

use super::journal::About;
use super::*;
use crate::{GitProgram, Limits, Taken};

const SESSION: &str = "s";
const NOTE: &str = "a note";

struct Place {
    _folder: tempfile::TempDir,
    root: PathBuf,
    worktree: Worktree,
}

/// The files and links of a worktree, with contents and modes. Without folders: git has none.
type Files = BTreeMap<PathBuf, (Vec<u8>, u32)>;

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let git = |args: &[&str]| {
            let mut command = Command::new("git");
            command.args(["-c", "user.name=A", "-c", "user.email=a@b.example"]).args(args);
            assert!(command.current_dir(&root).status().unwrap().success());
        };
        git(&["init", "-q"]);
        for (name, text) in [
            ("a", "one\n"),
            ("d/b", "two\n"),
            ("d/e/c", "three\n"),
            ("x/y/z", "\0binary\n"),
            ("ignored/.gitignore", "*\n!.gitignore\n"),
        ] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        git(&["add", "-A"]);
        git(&["commit", "-qm", "x"]);
        fs::write(root.join("untracked"), "four\n").unwrap();
        fs::set_permissions(root.join("untracked"), Permissions::from_mode(0o600)).unwrap();
        symlink("a", root.join("link")).unwrap();
        fs::write(root.join("ignored/file"), "mine\n").unwrap();
        let environment = ChildEnvironment::from_iter([("PATH", std::env::var_os("PATH").unwrap())]);
        let program = GitProgram { program: "git".into(), environment };
        let worktree = Worktree::open(&root, &program).unwrap().unwrap();
        Self { _folder: folder, root, worktree }
    }

    fn take(&self) -> String {
        let limits = Limits { time: WAIT, ..Limits::default() };
        match self.worktree.take(SESSION, &limits, &|| false).unwrap() {
            Taken::Whole(snapshot) => snapshot.tree,
            other => panic!("{other:?}"),
        }
    }

    fn files(&self) -> Files {
        let mut files = Files::new();
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let found = fs::symlink_metadata(&path).unwrap();
                if path.ends_with(".git") {
                } else if found.is_dir() {
                    folders.push(path);
                } else if found.is_symlink() {
                    let target = fs::read_link(&path).unwrap();
                    files.insert(path, (target.as_os_str().as_bytes().to_vec(), 0));
                } else {
                    let bytes = fs::read(&path).unwrap();
                    // Git knows of the modes only whether a file can be executed.
                    files.insert(path, (bytes, found.mode() & 0o100));
                }
            }
        }
        files
    }

    /// Carries out an undo that is killed before its step `kill`. Returns whether it was.
    fn undo_killed(&self, before: &str, after: &str, kill: usize) -> bool {
        let home = self.worktree.open_home().unwrap();
        let _lock = home.lock(WAIT).unwrap();
        let prepared = self.worktree.prepare(&home, before, after, None).unwrap();
        assert_eq!(prepared.plan.conflicts, []);
        let mut count = 0;
        let mut hook = |_: &str| {
            count += 1;
            if count > kill { Err(moves::Killed) } else { Ok(()) }
        };
        let mut journal = Journal::new(prepared.steps, prepared.began);
        journal.about = About { session: SESSION.into(), after: before.into(), note: NOTE.into() };
        journal.carry_out(&self.worktree, &home, &prepared.blobs, &mut hook).is_err()
    }

    /// Recovers, and removes the journal.
    fn recover(&self) -> Option<Recovered> {
        let recovered = self.worktree.recover().unwrap()?;
        assert_eq!(self.worktree.recover().unwrap().unwrap_or_default(), recovered);
        self.worktree.forget_undo(&recovered.id).unwrap();
        self.assert_no_journal();
        Some(recovered)
    }

    #[track_caller]
    fn assert_no_journal(&self) {
        assert!(!Worktree::has_interrupted_undo(&self.root));
        let names = self.worktree.open_home().unwrap().own.names().unwrap();
        let is_left = |name: &&OsString| name.to_string_lossy().starts_with("undo");
        assert_eq!(names.iter().find(is_left), None);
    }

    /// Recovers, and is killed before its step `kill`. Returns whether it was.
    fn recover_killed(&self, kill: usize) -> bool {
        let home = self.worktree.open_home().unwrap();
        let _lock = home.lock(WAIT).unwrap();
        let mut count = 0;
        let mut hook = |_: &str| {
            count += 1;
            if count > kill { Err(moves::Killed) } else { Ok(()) }
        };
        Journal::recover(&self.worktree, &home, &mut hook).is_err()
    }
}

/// A change that a turn or a user makes.
#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Delete(usize),
    Rename(usize, usize),
    Mode(usize, bool),
    Link(usize, &'static str),
    /// A file becomes a folder with a file, and the reverse.
    Folder(usize),
    Flatten(usize),
}

const NAMES: [&str; 10] =
    ["a", "d/b", "d/e/c", "x/y/z", "untracked", "link", "new", "d/new", "p/q/r/new", "li\nne"];

fn change() -> impl Strategy<Value = Change> {
    let name = || 0..NAMES.len();
    let text = prop_oneof![
        Just(Vec::new()),
        "[a-c\n]{0,20}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..30)
    ];
    prop_oneof![
        4 => (name(), text).prop_map(|(name, text)| Change::Write(name, text)),
        2 => name().prop_map(Change::Delete),
        2 => (name(), name()).prop_map(|(from, to)| Change::Rename(from, to)),
        1 => (name(), any::<bool>()).prop_map(|(name, mode)| Change::Mode(name, mode)),
        2 => (name(), prop_oneof![Just("a"), Just("/etc/passwd"), Just("../outside"), Just("d")]).prop_map(|(name, to)| Change::Link(name, to)),
        1 => name().prop_map(Change::Folder),
        1 => name().prop_map(Change::Flatten),
    ]
}

/// Makes a change, as far as it is possible now. A turn can do what it likes; what is not possible is left out.
fn make(root: &Path, change: &Change) {
    let path = |name: &usize| root.join(NAMES[*name]);
    // Nothing is written through a link to outside.
    let is_inside = |path: &Path| {
        let parent = path.parent().unwrap();
        fs::create_dir_all(parent).is_ok()
            && fs::canonicalize(parent).is_ok_and(|parent| parent.starts_with(root))
    };
    match change {
        Change::Write(name, text) => {
            let path = path(name);
            if is_inside(&path) && !fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
                fs::write(path, text).ok();
            }
        }
        Change::Delete(name) => drop(fs::remove_file(path(name))),
        Change::Rename(from, to) => {
            if is_inside(&path(to)) && is_inside(&path(from)) {
                fs::rename(path(from), path(to)).ok();
            }
        }
        Change::Mode(name, is_executable) => {
            let path = path(name);
            if fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
                let mode = if *is_executable { 0o755 } else { 0o644 };
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            }
        }
        Change::Link(name, target) => {
            let path = path(name);
            if is_inside(&path) {
                fs::remove_file(&path).ok();
                symlink(target, path).ok();
            }
        }
        Change::Folder(name) => {
            let path = path(name);
            fs::remove_file(&path).ok();
            if is_inside(&path) && fs::create_dir(&path).is_ok() {
                fs::write(path.join("inside"), "inside\n").unwrap();
            }
        }
        Change::Flatten(name) => {
            let folder = path(name).parent().unwrap().to_owned();
            if folder != root && fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) {
                fs::remove_dir_all(&folder).unwrap();
                fs::write(folder, "a file now\n").unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 48, failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_undo_of_any_turn_restores_every_file_to_the_byte_or_changes_nothing(
        turn in prop::collection::vec(change(), 1..12),
        since in prop::collection::vec(change(), 0..2),
    ) {
        let place = Place::new();
        let original = place.files();
        let before = place.take();
        turn.iter().for_each(|change| make(&place.root, change));
        let after = place.take();
        let changed = place.files();
        since.iter().for_each(|change| make(&place.root, change));
        let now = place.files();
        let plan = place.worktree.plan_undo(&before, &after).unwrap();
        prop_assert!(place.files() == now, "a plan changes nothing");
        match place.worktree.undo(SESSION, &before, &after, false) {
            Ok(undone) => {
                prop_assert!(plan.conflicts.is_empty());
                prop_assert_eq!(&plan.files, &undone.files);
                if now == changed {
                    prop_assert_eq!(place.files(), original);
                    prop_assert_eq!(&undone.after, &before);
                }
                // The undo can be undone.
                place.worktree.undo(SESSION, &undone.before, &undone.after, false).unwrap();
                prop_assert_eq!(place.files(), now);
            }
            Err(Error::Conflicts(_)) => {
                prop_assert!(!plan.conflicts.is_empty());
                prop_assert!(now != changed, "there is no conflict without a change: {:?}", plan.conflicts);
                prop_assert_eq!(place.files(), now);
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
}

#[test]
fn a_kill_at_any_step_leaves_all_or_nothing() {
    let place = Place::new();
    let original = place.files();
    let before = place.take();
    let turn = [
        Change::Write(0, b"changed\n".to_vec()),
        Change::Rename(1, 7),
        Change::Folder(4),
        Change::Flatten(3),
        Change::Write(8, b"deep\n".to_vec()),
        Change::Link(5, "/etc/passwd"),
        Change::Mode(2, true),
    ];
    let prepare = || {
        turn.iter().for_each(|change| make(&place.root, change));
        (place.take(), place.files())
    };
    let (after, changed) = prepare();
    let mut kills = 0;
    let (mut finished, mut taken_back) = (0, 0);
    loop {
        assert_eq!(place.files(), changed);
        let was_killed = place.undo_killed(&before, &after, kills);
        // The recovery is killed too, at each of its steps.
        let mut second = 0;
        while was_killed && place.recover_killed(second) {
            second += 1;
            assert!(second < 200, "killed at step {kills}: {:?}", place.worktree.recover());
        }
        let files = place.files();
        let is_undone = files == original;
        let names = |files: &Files| {
            files.iter().map(|(path, file)| format!("{path:?} {file:?}\n")).collect::<String>()
        };
        assert!(
            is_undone || files == changed,
            "killed at step {kills}: {}\n\n{}",
            names(&files),
            names(&changed)
        );
        // The first kill comes before the journal.
        let recovered = place.recover();
        assert_eq!(recovered.is_some(), kills > 0, "killed at step {kills}");
        if let Some(recovered) = recovered {
            let kept = Vec::new();
            let expected = Recovered { id: recovered.id.clone(), is_undone, kept, note: NOTE.into() };
            assert_eq!(recovered, expected, "killed at step {kills}");
        }
        if is_undone {
            finished += 1;
            let again = prepare();
            assert_eq!(again, (after.clone(), changed.clone()), "killed at step {kills}");
        } else {
            taken_back += 1;
        }
        if !was_killed {
            break;
        }
        kills += 1;
    }
    assert!(kills > 30 && finished > 10 && taken_back > 5, "{kills} {finished} {taken_back}");
}

#[test]
fn an_undo_that_cannot_be_finished_is_taken_back() {
    let place = Place::new();
    let before = place.take();
    make(&place.root, &Change::Write(0, b"changed\n".to_vec()));
    make(&place.root, &Change::Delete(1));
    make(&place.root, &Change::Write(8, b"deep\n".to_vec()));
    let after = place.take();
    // A file appears at every moment between the plan and the move.
    let mut was_taken_back = 0;
    for moment in 0..12 {
        let changed = place.files();
        let home = place.worktree.open_home().unwrap();
        let _lock = home.lock(WAIT).unwrap();
        let prepared = place.worktree.prepare(&home, &before, &after, None).unwrap();
        let mut count = 0;
        let obstacle = place.root.join("d/b");
        let mut hook = |_: &str| {
            count += 1;
            if count == moment && !obstacle.exists() {
                fs::write(&obstacle, "of another process\n").unwrap();
            }
            Ok(())
        };
        let done = Journal::new(prepared.steps, prepared.began).carry_out(
            &place.worktree,
            &home,
            &prepared.blobs,
            &mut hook,
        );
        let mut files = place.files();
        if done.is_err() {
            was_taken_back += 1;
            assert_eq!(files.remove(&obstacle).unwrap().0, b"of another process\n");
            assert_eq!(files, changed, "moment {moment}");
            fs::remove_file(&obstacle).unwrap();
        } else {
            make(&place.root, &Change::Write(0, b"changed\n".to_vec()));
            make(&place.root, &Change::Delete(1));
            make(&place.root, &Change::Write(8, b"deep\n".to_vec()));
        }
        assert_eq!(place.files(), changed);
    }
    assert!(was_taken_back > 3, "{was_taken_back}");
}

#[test]
fn a_journal_that_names_other_files_is_refused() {
    let place = Place::new();
    place.take();
    let home = place.worktree.open_home().unwrap();
    for path in [".git/config", "../outside", "/etc/passwd", "a/../../x", ".azureal/x", ".GIT/hooks/x"] {
        let step = Step {
            path: path.into(),
            restored: None,
            left: None,
            place: Vec::new(),
            present: None,
            staged: None,
        };
        let mut kill = 0;
        let mut hook = |_: &str| {
            kill += 1;
            if kill > 1 { Err(moves::Killed) } else { Ok(()) }
        };
        let blobs = place.worktree.blobs(&home, BTreeSet::new()).unwrap();
        assert!(
            Journal::new(vec![step], Began(None))
                .carry_out(&place.worktree, &home, &blobs, &mut hook)
                .is_err()
        );
        home.own.rename("undo.prepared".as_ref(), "undo.forward".as_ref()).unwrap();
        assert!(matches!(place.worktree.recover(), Err(Error::BadJournal(_))), "{path}");
        home.own.remove("undo.forward".as_ref()).unwrap();
    }
}
