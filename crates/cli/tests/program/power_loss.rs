//! Loss of power at every point of a turn, on a disk where each folder is durable only by its own sync.
//!
//! The real program runs under strace. From its calls the images are built that a loss of power may leave, and the
//! program reads each of them: every acknowledged turn is there, none stands twice, and the store opens.

mod changes;
mod disk;
mod trace;

use std::collections::HashMap;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

use azureal_testkit::thorough;
use serde_json::Value;

use crate::world::World;
use disk::{Disk, Image};
use trace::{Op, trace};

const PROMPTS: [&str; 3] = ["the first prompt", "the second prompt", "the third prompt"];
/// How many images are read, unless `AZUREAL_THOROUGH` is set.
const IMAGES: usize = 300;

/// The calls of two turns, of one that is killed after its transaction, and of the command that recovers it.
static OPS: LazyLock<Option<(World, Vec<Op>)>> = LazyLock::new(|| {
    let world = World::new();
    if Command::new("strace").arg("-V").output().is_err() {
        let required = std::env::var_os("AZUREAL_REQUIRE_TOOLS").is_some();
        assert!(!required, "strace is needed for this test, and AZUREAL_REQUIRE_TOOLS is set");
        eprintln!("\n*** SKIPPED: strace is missing, so this test was not run ***\n");
        return None;
    }
    let root = fs::canonicalize(world.path("p")).unwrap();
    let [first, second, third] = PROMPTS;
    // The hundreds of calls of snapshots would hide those of the turn: `changes` has them.
    world.file("config/azureal/azufig.toml", "[changes]\nenabled = false\n");
    let mut ops = Vec::new();
    for (arguments, inject) in [
        (&["run", "-a", "offline", "--json", first][..], None),
        (&["run", "-c", "-a", "offline", "--json", second], None),
        // The first file that a turn removes is the journal of its transaction: the second comes after that.
        (&["run", "-c", "-a", "offline", "--json", third], Some("unlink,unlinkat:signal=SIGKILL:when=2")),
        (&["list", "--json"], None),
    ] {
        let mut command = world.command(arguments);
        command.env("XDG_CONFIG_HOME", world.path("config"));
        ops.extend(trace(&command, &root, &world.path("strace"), inject));
    }
    assert_eq!(ops.iter().filter(|op| matches!(op, Op::Acknowledged)).count(), 2);
    Some((world, ops))
});

/// What is wrong with an image.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Unopened,
    Lost,
    Torn,
    Doubled,
    /// The output of a turn is not there, and nothing says so.
    Output,
}

/// Has the program read an image.
fn check(image: &Image) -> Result<(), (Fault, String)> {
    let world = World::new();
    for folder in &image.folders {
        DirBuilder::new().mode(0o700).create(world.path("p").join(folder)).unwrap();
    }
    let mut names: HashMap<usize, PathBuf> = HashMap::new();
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
    let listed = world.run(&["list", "--json", "--all"]);
    if listed.code != 0 {
        return Err((Fault::Unopened, listed.to_string()));
    }
    let mut events = Vec::new();
    for session in listed.json().as_array().unwrap() {
        let id = session["id"].as_str().unwrap();
        let shown = world.run(&["show", "--json", id]);
        if shown.code != 0 {
            return Err((Fault::Unopened, shown.to_string()));
        }
        for answer in shown.json_lines().iter().filter(|event| event["kind"] == "AssistantText") {
            let original = world.run(&["original", id, "--seq", &answer["seq"].to_string()]);
            let is_there = original.stdout.contains(&answer["data"]["text"].to_string());
            if !is_there && original.stderr.is_empty() {
                return Err((Fault::Output, format!("{answer}: {original}")));
            }
        }
        events.extend(shown.json_lines());
    }
    let kinds: Vec<&str> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    for (number, prompt) in PROMPTS.iter().enumerate() {
        let is_prompt = |event: &Value| event["data"]["content"] == **prompt;
        let places: Vec<usize> = (0..events.len()).filter(|at| is_prompt(&events[*at])).collect();
        let story = || format!("{prompt}: {kinds:?}");
        match places.as_slice() {
            [] if number < image.acknowledged => return Err((Fault::Lost, story())),
            [] => {}
            [at] => {
                let turn = &kinds[*at..];
                let is_whole = turn.starts_with(&["UserMessage", "Init", "AssistantText", "Complete"]);
                if number < image.acknowledged && !is_whole {
                    return Err((Fault::Torn, story()));
                }
            }
            _ => return Err((Fault::Doubled, story())),
        }
    }
    Ok(())
}

/// Checks images on all cores and returns what is wrong with them, at most `enough` of it.
fn faults(images: &[Image], enough: usize) -> Vec<(Fault, String)> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(image) = images.get(next.fetch_add(1, Ordering::Relaxed))
                    && found.lock().unwrap().len() < enough
                {
                    if let Err((fault, story)) = check(image) {
                        found.lock().unwrap().push((fault, format!("{}\n{story}", image.cut)));
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// Returns `limit` of the images, evenly spread.
fn sample(images: Vec<Image>, limit: usize) -> Vec<Image> {
    let step = images.len().div_ceil(limit).max(1);
    images.into_iter().step_by(step).collect()
}

#[test]
fn a_loss_of_power_at_any_point_loses_no_turn_and_doubles_none() {
    let Some((world, ops)) = &*OPS else { return };
    let root = fs::canonicalize(world.path("p")).unwrap();
    let images = Disk::images(&root, ops, &[]);
    let all = images.len();
    let images = sample(images, thorough(IMAGES, all));
    let found = faults(&images, usize::MAX);
    let count = |fault| found.iter().filter(|(found, _)| *found == fault).count();
    eprintln!(
        "{} calls, {all} distinct images, {} read: {} doubled, {} lost, {} torn, {} without output, {} unopened",
        ops.len(),
        images.len(),
        count(Fault::Doubled),
        count(Fault::Lost),
        count(Fault::Torn),
        count(Fault::Output),
        count(Fault::Unopened)
    );
    assert!(images.len() > 100, "only {} images: the calls are not traced", images.len());
    assert!(found.is_empty(), "{} of {} images, the first: {:?}", found.len(), images.len(), found[0]);
}

/// The harness must bite: without the syncs of a folder it finds what they prevent.
#[test]
fn without_the_sync_of_the_folder_of_the_store_a_turn_is_lost_or_stands_twice() {
    let Some((world, ops)) = &*OPS else { return };
    let root = fs::canonicalize(world.path("p")).unwrap();
    let images = Disk::images(&root, ops, &[".azureal"]);
    let found = faults(&sample(images, IMAGES), 1);
    assert!(
        found.iter().any(|(fault, _)| matches!(fault, Fault::Doubled | Fault::Lost)),
        "nothing is lost or doubled: {found:?}"
    );
}

/// A spool that is there again is one operation of the store, which has it already.
#[test]
fn without_the_sync_of_the_folders_of_a_spool_no_turn_is_lost_or_stands_twice() {
    let Some((world, ops)) = &*OPS else { return };
    let root = fs::canonicalize(world.path("p")).unwrap();
    // A move is durable with either of its folders.
    let images = Disk::images(&root, ops, &["spool", "new"]);
    let found = faults(&sample(images, IMAGES), 1);
    let is_grave = |fault: &Fault| matches!(fault, Fault::Doubled | Fault::Lost);
    assert!(!found.iter().any(|(fault, _)| is_grave(fault)), "{found:?}");
}
