//! An undo of the real program that is killed at each of its system calls, or whose calls fail, and the command after it.
//!
//! `strace` sends the signal, so the program has no code for this test.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use azureal_testkit::thorough;

use crate::changes::{azureal, git, repository, turn};
use crate::world::{Ran, World, assistant, user};

/// Every call that changes a file or a folder, or makes a change durable.
const CALLS: &str = "rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,symlink,symlinkat,link,linkat,write,pwrite64,\
                     ftruncate,fchmod,fsync,fdatasync";
/// The folder of the journal.
const OWN: &str = "p/.git/azureal/snapshots/worktrees/main";
/// The number of files in its event.
const FILES: usize = 9;
/// A turn with each kind of change.
const TURN: &str = "echo three >> a.txt; rm src/b.txt; mkdir d; echo new > d/c.txt; chmod +x run; mv old moved; rm link; ln -s d link; \
                    printf '\\000\\001' > binary; rm folder; mkdir folder; echo in > folder/file";

/// A project with a turn to undo. Copies of it are killed.
fn project() -> World {
    let world = repository(TURN);
    for (name, text) in [("run", "run\n"), ("old", "renamed\n"), ("folder", "a file\n")] {
        world.file(&format!("p/{name}"), text);
    }
    fs::write(world.path("p/binary"), [0, 255, 10]).unwrap();
    std::os::unix::fs::symlink("a.txt", world.path("p/link")).unwrap();
    git(&world, &["add", "-A"]);
    git(&world, &["commit", "-qm", "second"]);
    turn(&world);
    world
}

fn copy_of(world: &World) -> World {
    let copy = World::new();
    fs::remove_dir_all(copy.path("p")).unwrap();
    let copied = Command::new("cp").arg("-a").arg(world.path("p")).arg(copy.path("p")).status().unwrap();
    assert!(copied.success());
    copy
}

/// The files and links of the project, with contents and the permission to execute them.
type Files = BTreeMap<PathBuf, (Vec<u8>, bool)>;

fn files(world: &World) -> Files {
    let root = world.path("p");
    let (mut files, mut folders) = (Files::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(&root).unwrap().to_owned();
            if name == Path::new(".git") || name == Path::new(".azureal") {
            } else if found.is_dir() {
                folders.push(path);
            } else if found.is_symlink() {
                files.insert(
                    name,
                    (fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(), false),
                );
            } else {
                files.insert(name, (fs::read(&path).unwrap(), found.mode() & 0o100 != 0));
            }
        }
    }
    files
}

/// Runs the program under strace, with faults as strace writes them. Only its main thread is traced, and no git.
fn traced(world: &World, arguments: &[&str], faults: &[&str]) -> (Ran, String) {
    let command = world.with_programs(arguments);
    let log = world.path("strace");
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-y", "-e", "signal=none", "-e", &format!("trace={CALLS}")]).arg("-o").arg(&log);
    for fault in faults {
        strace.args(["-e", &format!("inject={fault}")]);
    }
    strace.arg(command.get_program()).args(command.get_args()).current_dir(world.path("p")).env_clear();
    strace.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = strace.output().unwrap();
    (world.ran(output), fs::read_to_string(log).unwrap())
}

/// Lists one fault for each call of a log that changes something: the program is killed before it.
fn kills(log: &str) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut kills = Vec::new();
    for line in log.lines() {
        let Some((name, _)) = line.split_once('(') else { continue };
        let count = counts.entry(name).or_default();
        *count += 1;
        if !line.contains(" = -1 ") {
            kills.push(format!("{name}:signal=SIGKILL:when={count}"));
        }
    }
    kills
}

/// The end of an undo, as the user sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// It was never begun, or taken back.
    Before,
    Undone,
}

/// Runs a check for each fault, on all cores, and counts the ends.
fn ends(faults: &[String], check: impl Fn(&str) -> End + Sync) -> BTreeMap<End, usize> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let end = check(fault);
                    *found.lock().unwrap().entry(end).or_default() += 1;
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// A project after a turn, and its files then and before it.
struct Case {
    template: World,
    changed: Files,
    original: Files,
    /// The calls of the undo.
    log: String,
}

/// Undoes the turn of a project once. `None` without strace.
fn case() -> Option<Case> {
    if Command::new("strace").arg("-V").output().is_err() {
        let required = std::env::var_os("AZUREAL_REQUIRE_TOOLS").is_some();
        assert!(!required, "strace is needed for this test, and AZUREAL_REQUIRE_TOOLS is set");
        eprintln!("\n*** SKIPPED: strace is missing, so this test was not run ***\n");
        return None;
    }
    let template = project();
    let changed = files(&template);
    let whole = copy_of(&template);
    let (ran, log) = traced(&whole, &["undo", "S1"], &[]);
    assert_eq!((ran.code, git(&whole, &["status", "--short"]).as_str()), (0, ""), "{ran}");
    let case = Case { template, changed, original: files(&whole), log };
    assert_eq!(case.check(&whole, "without a fault"), End::Undone);
    Some(case)
}

impl Case {
    /// Returns a copy of the project whose undo had these faults.
    fn undone_with(&self, faults: &[&str]) -> (World, Ran) {
        let world = copy_of(&self.template);
        let (ran, _) = traced(&world, &["undo", "S1"], faults);
        assert_ne!(ran.code, 0, "{faults:?}: {ran}");
        (world, ran)
    }

    /// Runs the next command, and checks the project after it.
    fn check(&self, world: &World, what: &str) -> End {
        let next = azureal(world, &["list"]);
        assert_eq!(next.code, 0, "{what}: {next}");
        self.check_after(world, &next.stderr, what)
    }

    /// Checks that all files are of one whole result, that the session says so, and that nothing is left.
    fn check_after(&self, world: &World, said: &str, what: &str) -> End {
        let now = files(world);
        let is_undone = now == self.original;
        assert!(is_undone || now == self.changed, "{what}: {now:#?}");
        let shown = azureal(world, &["show", "S1", "--json"]);
        let shown = shown.quiet();
        let undos: Vec<&str> = shown.lines().filter(|line| line.contains("\"kind\":\"Undo\"")).collect();
        assert_eq!(undos.len(), usize::from(is_undone), "{what}: {said}");
        assert!(undos.iter().all(|undo| undo.matches("\"path\"").count() == FILES), "{what}: {undos:?}");
        // Silence means that the undo had ended, or had not begun.
        let words = if is_undone {
            "finished. S1: undid turn 1: 9 files changed"
        } else {
            "taken back: it changed no file"
        };
        assert!(
            said.is_empty() || said.contains(&format!("an undo that was interrupted is {words}")),
            "{what}: {said}"
        );
        assert_eq!(left(world), Vec::<String>::new(), "{what}");
        if is_undone { End::Undone } else { End::Before }
    }
}

/// Lists what an undo keeps of itself in the folder of its journal.
fn left(world: &World) -> Vec<String> {
    let own = fs::read_dir(world.path(OWN)).unwrap();
    let names = own.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("undo.")).collect()
}

/// Returns at most so many of the faults, evenly spread.
fn some(faults: Vec<String>, limit: usize) -> Vec<String> {
    let step = faults.len().div_ceil(limit).max(1);
    faults.into_iter().step_by(step).collect()
}

#[test]
fn an_undo_that_is_killed_at_any_call_is_whole_or_never_was_and_its_session_says_which() {
    let Some(case) = case() else { return };
    let found = ends(&kills(&case.log), |kill| {
        let (world, _) = case.undone_with(&[kill]);
        case.check(&world, kill)
    });
    assert!(found.get(&End::Before) > Some(&20) && found.get(&End::Undone) > Some(&20), "{found:?}");
}

#[test]
fn a_recovery_that_is_killed_at_any_call_is_continued_by_the_next_command() {
    let Some(case) = case() else { return };
    // Without the eighth move the undo cannot be finished, and goes back.
    let fails = "renameat2:error=EIO:when=8";
    let (back, ran) = case.undone_with(&[fails]);
    assert!(ran.stderr.contains("Input/output error") && case.check(&back, fails) == End::Before, "{ran}");
    let mut faults = Vec::new();
    for (state, fault) in
        [("prepared", None), ("forward", None), ("done", None), ("undone", None), ("back", Some(fails))]
    {
        // Before each change of the journal's name, and in the store.
        let moments = kills(&case.log).into_iter();
        let moments = moments.filter(|kill| kill.starts_with("renameat:") || kill.starts_with("pwrite64:"));
        let found = moments.into_iter().find_map(|kill| {
            let first: Vec<String> = fault.map(str::to_owned).into_iter().chain([kill]).collect();
            let (world, _) = case.undone_with(&first.iter().map(String::as_str).collect::<Vec<_>>());
            left(&world).contains(&format!("undo.{state}")).then_some((first, world))
        });
        let (first, world) = found.unwrap_or_else(|| panic!("no kill leaves the state {state}"));
        let (_, log) = traced(&world, &["list"], &[]);
        let kills = some(kills(&log), thorough(10, usize::MAX));
        faults.extend(kills.into_iter().map(|kill| format!("{} {kill}", first.join(" "))));
    }
    let found = ends(&faults, |faults| {
        let words: Vec<&str> = faults.split(' ').collect();
        let (kill, first) = words.split_last().unwrap();
        let (world, _) = case.undone_with(first);
        let (ran, _) = traced(&world, &["list"], &[kill]);
        assert_ne!(ran.code, 0, "{faults}: {ran}");
        case.check(&world, faults)
    });
    assert!(found.get(&End::Before) > Some(&8) && found.get(&End::Undone) > Some(&8), "{found:?}");
}

#[test]
fn an_undo_whose_event_cannot_be_stored_is_in_its_session_after_the_next_command() {
    let Some(case) = case() else { return };
    // Only the store writes at a place of a file.
    let (world, ran) = case.undone_with(&["pwrite64:error=ENOSPC"]);
    assert!(
        ran.stderr.starts_with("error: the files are restored, but the session does not say so yet: "),
        "{ran}"
    );
    assert!(ran.stderr.contains("hint: the next command of azureal in this worktree adds it"), "{ran}");
    let next = azureal(&world, &["undo", "S1"]);
    assert!(next.stderr.contains("is undone already"), "{next}");
    assert_eq!(case.check_after(&world, "", "without a place in the store"), End::Undone);
}

/// Returns a project whose undo is finished, but not in its session.
fn untold() -> Option<World> {
    Some(case()?.undone_with(&["pwrite64:error=ENOSPC"]).0)
}

#[test]
fn an_undo_of_a_session_in_another_store_is_told_and_forgotten() {
    let Some(world) = untold() else { return };
    let ran = azureal(&world, &["--store", "../other.azs", "list"]);
    let said = "an undo that was interrupted is finished, but S1 does not have it: it is in another store";
    assert!(ran.code == 0 && ran.stderr.contains(said), "{ran}");
    assert_eq!(left(&world), Vec::<String>::new());
    assert_eq!(azureal(&world, &["show", "S1", "--json"]).quiet().matches("\"Undo\"").count(), 0);
}

#[test]
fn an_undo_of_a_session_that_is_gone_is_told_and_forgotten() {
    let Some(world) = untold() else { return };
    // Both names of the store, and one session of the same number.
    fs::remove_file(world.store()).unwrap();
    for entry in fs::read_dir(world.path("p/.git/azureal")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::remove_file(path).unwrap();
        }
    }
    let path = world.session_file("other", &[user("hello"), assistant("hi")]);
    let ran = azureal(&world, &["import", path.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran}");
    // The import has created another store, with an id of its own, before the undo is told.
    assert!(ran.stderr.contains("S1 does not have it: it is in another store"), "{ran}");
    assert_eq!(left(&world), Vec::<String>::new());
    assert_eq!(azureal(&world, &["list"]).quiet().lines().count(), 2);
}
