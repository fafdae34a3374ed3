//! Files of rules and attributes that are links, pipes, folders, unreadable or huge.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use azureal_snapshots::{GitProgram, Limits, Taken, Worktree};

use crate::place::{Place, SESSION, begin, end, link, shown, take};

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Records a turn, undoes it, and takes that back. Returns its changes.
#[track_caller]
fn recorded(place: &Place, worktree: &Worktree, turn: impl FnOnce()) -> Vec<String> {
    let files = place.files();
    let before = begin(worktree);
    turn();
    let changed = place.files();
    let after = end(worktree, &before);
    let changes = shown(&worktree.compare(&before, &after).unwrap());
    let undone = worktree.undo(SESSION, &before, &after, false).unwrap();
    assert_eq!(place.files(), files);
    worktree.of_undo(true).undo(SESSION, &undone.before, &undone.after, false).unwrap();
    assert_eq!(place.files(), changed);
    changes
}

#[test]
fn a_link_in_the_place_of_a_file_of_rules_is_not_followed_and_ends_no_recording() {
    let place = Place::new();
    let worktree = place.worktree();
    place.write("rules", "*.log\n").write("a.log", "1\n");
    let changes = recorded(&place, &worktree, || {
        link("rules", &place.path(".gitignore"));
        link("/etc/hostname", &place.path("src/.gitignore"));
        link(".gitignore", &place.path(".gitattributes"));
    });
    assert_eq!(changes, ["A .gitattributes +1 -0", "A .gitignore +1 -0", "A src/.gitignore +1 -0"]);
    // And so are the turns after it, also one that removes the links.
    let changes = recorded(&place, &worktree, || {
        fs::remove_file(place.path("src/.gitignore")).unwrap();
        place.write("a.log", "2\n").write("b.log", "new\n");
    });
    assert_eq!(changes, ["M a.log +1 -1", "A b.log +1 -0", "D src/.gitignore +0 -1"]);
}

#[test]
fn a_folder_in_the_place_of_a_file_of_rules_has_no_rules() {
    let place = Place::new();
    let worktree = place.worktree();
    let changes = recorded(&place, &worktree, || {
        place
            .write(".gitignore/.gitignore", "a.log\n")
            .write(".gitattributes/x", "1\n")
            .write("b.log", "1\n");
    });
    assert_eq!(changes, ["A .gitattributes/x +1 -0", "A .gitignore/.gitignore +1 -0", "A b.log +1 -0"]);
    let changes = recorded(&place, &worktree, || {
        place.write("c.log", "1\n");
    });
    assert_eq!(changes, ["A c.log +1 -0"]);
}

#[test]
fn a_pipe_in_the_place_of_a_file_of_rules_stops_nothing_and_no_git_stays() {
    let place = Place::new();
    let worktree = place.worktree();
    for name in [".gitignore", "src/.gitignore", "src/.gitattributes"] {
        pipe(&place.path(name));
    }
    fs::remove_file(place.path(".git/info/exclude")).unwrap();
    pipe(&place.path(".git/info/exclude"));
    pipe(&place.path(".git/info/attributes"));
    let began = Instant::now();
    let limits = Limits { drops_ignored: true, ..Limits::default() };
    let mut trees = Vec::new();
    for turn in 0..3 {
        place.write("README", format!("{turn}\n")).write(&format!("src/{turn}.log"), "new\n");
        match worktree.take(SESSION, &limits, &|| false).unwrap() {
            Taken::Whole(snapshot) => trees.push(snapshot.tree),
            other => panic!("{other:?} after {:?}", began.elapsed()),
        }
    }
    let changes = shown(&worktree.compare(&trees[0], &trees[2]).unwrap());
    assert_eq!(changes, ["M README +1 -1", "A src/1.log +1 -0", "A src/2.log +1 -0"]);
    assert_eq!(running(&place), Vec::<String>::new());
}

#[test]
fn git_ends_with_the_time_of_its_snapshot() {
    let place = Place::new();
    let worktree = place.worktree();
    begin(&worktree);
    pipe(&place.path(".gitignore"));
    // Not long enough to look for pipes.
    let limits = Limits { time: Duration::from_millis(200), drops_ignored: true, ..Limits::default() };
    let taken = worktree.take(SESSION, &limits, &|| false).unwrap();
    assert_eq!(taken, Taken::TooSlow { now_off: false });
    let began = Instant::now();
    while !running(&place).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", running(&place));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Lists the processes that run in the worktree.
fn running(place: &Place) -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_here =
        |path: &Path| fs::read_link(path.join("cwd")).is_ok_and(|found| found.starts_with(&place.root));
    let found = processes.map(|entry| entry.path()).filter(|path| is_here(path));
    found
        .map(|path| fs::read_to_string(path.join("cmdline")).unwrap_or_default().replace('\0', " "))
        .collect()
}

#[test]
fn rules_of_many_megabytes_count_in_the_tree_and_outside_of_it() {
    let place = Place::new();
    let worktree = place.worktree();
    let rules = |rule: &str| format!("{rule}\n{}", "# a comment that fills the file\n".repeat(400_000));
    place.write(".git/info/exclude", rules("*.project")).write(".gitignore", rules("*.tree"));
    place.write("own/.gitignore", rules("*"));
    for name in ["a.project", "a.tree", "own/secret"] {
        place.write(name, "SECRET\n");
    }
    let before = begin(&worktree);
    place
        .write(".git/info/exclude", "")
        .write(".gitignore", "")
        .write("own/.gitignore", "")
        .write("new", "1\n");
    let after = end(&worktree, &before);
    let (hidden, files): (Vec<_>, Vec<_>) =
        worktree.compare(&before, &after).unwrap().into_iter().partition(|file| file.ignored_before);
    let hidden: Vec<_> = hidden.iter().map(|file| file.path.to_str().unwrap()).collect();
    assert_eq!(hidden, ["a.project", "a.tree", "own/.gitignore", "own/secret"]);
    assert_eq!(shown(&files), ["M .gitignore ? ? not stored", "A new +1 -0"]);
}

#[test]
fn rules_outside_the_tree_may_be_a_link_a_folder_or_missing() {
    let place = Place::new();
    let worktree = place.worktree();
    let elsewhere = place.folder.path().join("rules");
    fs::write(&elsewhere, "*.linked\n").unwrap();
    let exclude = place.path(".git/info/exclude");
    fs::remove_file(&exclude).unwrap();
    link(&elsewhere, &exclude);
    // Here git does follow a link.
    let changes = recorded(&place, &worktree, || {
        place.write("a", "1\n");
    });
    assert_eq!(changes, ["A a +1 -0"]);
    place.write("a.linked", "SECRET\n");
    let before = begin(&worktree);
    fs::remove_file(&exclude).unwrap();
    fs::create_dir(&exclude).unwrap();
    let after = end(&worktree, &before);
    let files = worktree.compare(&before, &after).unwrap();
    assert!(files.len() == 1 && files[0].ignored_before, "{files:?}");
    fs::remove_dir(&exclude).unwrap();
    let changes = recorded(&place, &worktree, || {
        place.write("b", "1\n");
    });
    assert_eq!(changes, ["A b +1 -0"]);
}

#[test]
fn the_file_of_ignore_rules_is_the_one_that_git_finds() {
    let place = Place::new();
    let (home, other) = (place.folder.path().join("home"), place.folder.path().join("other"));
    let files = |program: GitProgram| {
        let worktree = Worktree::open(&place.root, &program).unwrap().unwrap();
        let tree = take(&worktree).tree;
        let git_dir = format!("--git-dir={}", worktree.folder().display());
        let listed = place.git(&[&git_dir, "ls-tree", "--name-only", &tree]);
        listed.lines().filter(|name| name.starts_with("secret")).map(str::to_owned).collect::<Vec<_>>()
    };
    for name in ["secret-1", "secret-2", "secret-3"] {
        place.write(name, "SECRET");
        fs::write(home.join(name), format!("{name}\n")).unwrap();
    }
    let setting = |name: &str| format!("[core]\nexcludesFile = {}\n", home.join(name).display());
    // A file that is included for this folder alone.
    fs::write(home.join("included"), setting("secret-1")).unwrap();
    let included = format!("[includeIf \"gitdir:{}/\"]\npath = included\n", place.root.display());
    fs::write(home.join(".gitconfig"), included).unwrap();
    assert_eq!(files(place.program()), ["secret-2", "secret-3"]);
    // A file that a variable names.
    fs::write(&other, setting("secret-2")).unwrap();
    let mut program = place.program();
    program.environment.set("GIT_CONFIG_GLOBAL", &other);
    fs::remove_dir_all(place.worktree().folder()).unwrap();
    assert_eq!(files(program), ["secret-1", "secret-3"]);
    // The project's own setting.
    place.git(&["config", "core.excludesFile", home.join("secret-3").to_str().unwrap()]);
    fs::remove_dir_all(place.worktree().folder()).unwrap();
    assert_eq!(files(place.program()), ["secret-1", "secret-2"]);
}
