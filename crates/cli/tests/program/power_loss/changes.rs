//! Loss of power at every point of turns that change files: whatever was acknowledged can be shown and undone.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

use azureal_testkit::thorough;

use super::disk::{Disk, Image};
use super::trace::{Op, trace};
use crate::changes::repository;
use crate::world::World;

/// How many images are read.
const IMAGES: usize = 60;
const THOROUGH: usize = 600;
/// The turn changes a tracked file, an untracked one and a new one, and deletes one.
const AGENT: &str = r#"n=$(cat turn 2>/dev/null || echo 0); n=$((n + 1)); echo $n > turn
echo "turn $n" >> a.txt; echo "turn $n" >> notes.txt; echo "turn $n" > d/$n; rm -f d/$((n - 1))"#;

/// The files of a worktree.
type Files = BTreeMap<String, String>;

/// What was recorded: the disk before the first turn, the calls, and the files before the first turn and after each.
struct Recorded {
    root: std::path::PathBuf,
    ops: Vec<Op>,
    files: Vec<Files>,
    /// The world with the disk before the first turn.
    before: World,
}

static RECORDED: LazyLock<Option<Recorded>> = LazyLock::new(|| {
    if Command::new("strace").arg("-V").output().is_err() {
        let required = std::env::var_os("AZUREAL_REQUIRE_TOOLS").is_some();
        assert!(!required, "strace is needed for this test, and AZUREAL_REQUIRE_TOOLS is set");
        eprintln!("\n*** SKIPPED: strace is missing, so this test was not run ***\n");
        return None;
    }
    let world = repository(AGENT);
    world.file("p/notes.txt", "untracked\n");
    world.file("p/d/0", "untracked\n");
    let before = World::new();
    fs::remove_dir_all(before.path("p")).unwrap();
    copy(&world.path("p"), &before.path("p"));
    let root = fs::canonicalize(world.path("p")).unwrap();
    let config = world.file("config/azureal/azufig.toml", "[changes]\nenabled = true\n");
    let mut ops = Vec::new();
    let mut files = vec![files_of(&world)];
    for (arguments, inject) in [
        (&["run", "-a", "claude", "--json", "one"][..], None),
        (&["run", "-c", "-a", "claude", "--json", "two"], None),
        // The user changes a file between two turns.
        (&[], None),
        (&["run", "-c", "-a", "claude", "--json", "three"], None),
        // Killed at one of its last syncs: the next command recovers it.
        (&["run", "-c", "-a", "claude", "--json", "four"], Some("fsync:signal=SIGKILL:when=5")),
        (&["list", "--json"], None),
    ] {
        let mut command = world.with_programs(arguments);
        if arguments.is_empty() {
            command = Command::new("/bin/sh");
            command.args(["-c", "echo user >> notes.txt; echo user >> src/b.txt"]).current_dir(&root);
        }
        command.env("XDG_CONFIG_HOME", config.parent().unwrap().parent().unwrap());
        let calls = trace(&command, &root, &world.path("strace"), inject);
        if arguments.is_empty() || calls.iter().any(|op| matches!(op, Op::Acknowledged)) {
            files.push(files_of(&world));
        }
        ops.extend(calls);
    }
    assert_eq!(ops.iter().filter(|op| matches!(op, Op::Acknowledged)).count(), 3);
    Some(Recorded { root, ops, files, before })
});

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Returns the files of the worktree, without those of git and of azureal.
fn files_of(world: &World) -> Files {
    let root = world.path("p");
    let mut files = Files::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with(".git") || path.ends_with(".azureal") {
                continue;
            } else if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    files
}

fn put(world: &World, files: &Files) {
    for name in files_of(world).into_keys() {
        fs::remove_file(world.path("p").join(name)).unwrap();
    }
    for (name, text) in files {
        world.file(&format!("p/{name}"), text);
    }
}

/// Creates the world of an image.
fn world_of(image: &Image) -> World {
    let world = repository(AGENT);
    fs::remove_dir_all(world.path("p")).unwrap();
    DirBuilder::new().mode(0o700).create(world.path("p")).unwrap();
    for folder in &image.folders {
        DirBuilder::new().mode(0o700).create(world.path("p").join(folder)).unwrap();
    }
    let mut names = BTreeMap::new();
    for (path, inode, content) in &image.files {
        let path = world.path("p").join(path);
        if let Some(first) = names.get(inode) {
            fs::hard_link(first, path).unwrap();
            continue;
        }
        fs::write(&path, content.as_slice()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        names.insert(*inode, path);
    }
    world
}

/// Has the program read an image: each acknowledged turn can be shown, the last one undone, and recording continues.
fn check(image: &Image, recorded: &Recorded) -> Result<(), String> {
    let world = world_of(image);
    let run = |arguments: &[&str]| {
        let ran = world.ran(world.with_programs(arguments).output().unwrap());
        if ran.code == 0 { Ok(ran) } else { Err(format!("{arguments:?}: {ran}")) }
    };
    run(&["list", "--json", "--all"])?;
    for turn in 1..=image.acknowledged {
        let diff = run(&["diff", "S1", "--turn", &turn.to_string()])?;
        let names = ["a.txt", "notes.txt", &format!("d/{turn}"), "turn"];
        let is_whole = names.iter().all(|name| diff.stdout.contains(&format!("+++ b/{name}\n")));
        if !is_whole || diff.stdout.matches(&format!("+turn {turn}\n")).count() != 3 {
            return Err(format!("turn {turn}: {diff}"));
        }
    }
    if image.acknowledged > 0 {
        let turn = image.acknowledged;
        // The user changed files before the third turn.
        let (before, after) = match turn {
            3 => (3, 4),
            turn => (turn - 1, turn),
        };
        put(&world, &recorded.files[after]);
        run(&["undo", "S1", "--turn", &turn.to_string()])?;
        if files_of(&world) != recorded.files[before] {
            return Err(format!("after the undo of turn {turn}: {:?}", files_of(&world)));
        }
    }
    let next = run(&["run", "-a", "claude", "next"])?;
    let is_recorded = next.stderr.contains("files changed") && !next.stderr.contains("not recorded");
    if is_recorded { Ok(()) } else { Err(format!("the next turn: {next}")) }
}

/// Checks images on all cores, and returns what is wrong with them, at most `enough` of it.
fn faults(images: &[Image], recorded: &Recorded, enough: usize) -> Vec<String> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(image) = images.get(next.fetch_add(1, Ordering::Relaxed))
                    && found.lock().unwrap().len() < enough
                {
                    if let Err(story) = check(image, recorded) {
                        found.lock().unwrap().push(format!("{}\n{story}", image.cut));
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

fn images(recorded: &Recorded, count: usize, is_lost: impl Fn(&Path) -> bool) -> Vec<Image> {
    Disk::read(&fs::canonicalize(recorded.before.path("p")).unwrap()).at(&recorded.root).random_images(
        &recorded.ops,
        count,
        is_lost,
    )
}

#[test]
fn a_loss_of_power_at_any_point_loses_no_undo_of_an_acknowledged_turn() {
    let Some(recorded) = &*RECORDED else { return };
    let images = images(recorded, thorough(IMAGES, THOROUGH), |_| false);
    let of_turns = images.iter().filter(|image| image.acknowledged > 0).count();
    let found = faults(&images, recorded, usize::MAX);
    eprintln!(
        "{} calls, {} images, {of_turns} with turns: {} faults",
        recorded.ops.len(),
        images.len(),
        found.len()
    );
    assert!(of_turns > images.len() / 3, "only {of_turns} images have a turn");
    assert!(found.is_empty(), "{} of {} images, the first: {}", found.len(), images.len(), found[0]);
}

/// The harness must bite: each sync of the snapshots prevents a loss.
#[test]
fn without_the_syncs_of_snapshots_an_undo_is_lost() {
    let Some(recorded) = &*RECORDED else { return };
    let is_in_snapshots = |path: &Path| path.components().any(|part| part.as_os_str() == "snapshots");
    let ends = |path: &Path, ending: &str| path.to_string_lossy().ends_with(ending);
    for (what, is_lost) in [
        ("packs", &(|path: &Path| ends(path, ".pack")) as &dyn Fn(&Path) -> bool),
        ("their folder", &|path| is_in_snapshots(path) && path.ends_with("pack")),
    ] {
        let found = faults(&images(recorded, IMAGES, is_lost), recorded, 1);
        assert!(!found.is_empty(), "without the sync of {what} nothing is lost");
    }
}
