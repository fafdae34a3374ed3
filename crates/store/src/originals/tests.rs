//! Originals in files: every step, and every step that is interrupted.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use futures_executor::block_on;
use tempfile::TempDir;

use super::*;

const SESSION: Uuid = Uuid::from_u128(7);
const OTHER: Uuid = Uuid::from_u128(8);

struct World {
    folder: TempDir,
    originals: FileOriginals,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let originals = FileOriginals::new(folder.path().join("originals"), true);
        Self { folder, originals }
    }

    /// A finished spool.
    fn spool(&self, run: &str, first: u64, output: &str) -> NewOriginal {
        let spools = self.folder.path().join("spool");
        Folder::open_or_create(&spools).unwrap();
        let file = |kind: &str, text: &str| {
            let path = spools.join(format!("{run}.{kind}"));
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            path
        };
        NewOriginal {
            run: run.to_owned(),
            first: Seq(first),
            last: Seq(first + 3),
            header: file("turn", &format!("{{\"run\":\"{run}\"}}\n")),
            output: file("jsonl", output),
            more: None,
        }
    }

    fn text(&self, session: Uuid, run: &str) -> Option<(String, String)> {
        let mut open = self.originals.open_run(session, run).unwrap()?;
        let mut output = Vec::new();
        while let Some(piece) = block_on(open.output.next()).unwrap() {
            output.extend(piece);
        }
        Some((open.header, String::from_utf8(output).unwrap()))
    }

    fn files(&self, folder: &str) -> Vec<String> {
        let names = fs::read_dir(self.folder.path().join("originals").join(folder));
        let mut names: Vec<String> = names
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn finish(&self) {
        for session in self.originals.deleted_sessions().unwrap() {
            self.originals.finish_deleted(session, true).unwrap();
        }
        self.originals.finish().unwrap();
    }
}

#[test]
fn an_original_reads_the_same_before_and_after_it_is_compressed() {
    let world = World::new();
    let output = "line\n".repeat(500_000);
    world.originals.put(SESSION, &world.spool("a", 1, &output)).unwrap();
    assert!(world.files("../spool").is_empty(), "the files were moved");
    let before = world.text(SESSION, "a").unwrap();
    assert_eq!(before, ("{\"run\":\"a\"}\n".to_owned(), output.clone()));
    let [listed] = &world.originals.list(SESSION).unwrap()[..] else { panic!() };
    assert!(listed.bytes > 2_500_000 && listed.covers(Seq(4)) && !listed.covers(Seq(5)));
    world.finish();
    assert_eq!(world.files("new"), [""; 0]);
    assert_eq!(world.files(&SESSION.to_string()), ["1-4-a.zst"]);
    assert_eq!(world.text(SESSION, "a").unwrap(), before);
    let [listed] = &world.originals.list(SESSION).unwrap()[..] else { panic!() };
    assert!(listed.bytes < 10_000, "{listed:?}");
    assert_eq!(world.text(OTHER, "a"), None);
}

#[test]
fn what_follows_an_output_is_read_after_it() {
    let world = World::new();
    let more = world.spool("more", 1, "two\n").output;
    let new = NewOriginal { more: Some(more.clone()), ..world.spool("a", 1, "one\n") };
    world.originals.put(SESSION, &new).unwrap();
    assert!(!more.exists() && !new.output.exists(), "the files were moved");
    let whole = ("{\"run\":\"a\"}\n".to_owned(), "one\ntwo\n".to_owned());
    let [listed] = &world.originals.list(SESSION).unwrap()[..] else { panic!() };
    assert_eq!((listed.bytes, world.text(SESSION, "a").unwrap()), (20, whole.clone()));
    world.originals.fork(SESSION, Seq(2), OTHER).unwrap();
    // A `put` that was interrupted is completed.
    world.originals.put(SESSION, &new).unwrap();
    world.finish();
    assert_eq!(world.files("new"), [""; 0]);
    assert_eq!(world.text(SESSION, "a").unwrap(), whole);
    assert_eq!(world.text(OTHER, "a").unwrap(), whole);
}

#[test]
fn originals_are_private() {
    let world = World::new();
    world.originals.put(SESSION, &world.spool("a", 1, "x\n")).unwrap();
    world.finish();
    let mode = |path: &str| {
        let path = world.folder.path().join("originals").join(path);
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode(""), mode("new"), mode(&SESSION.to_string())), (0o700, 0o700, 0o700));
    assert_eq!(mode(&format!("{SESSION}/1-4-a.zst")), 0o600);
}

#[test]
fn a_put_that_was_interrupted_is_completed() {
    let world = World::new();
    let new = world.spool("a", 1, "x\n");
    world.originals.put(SESSION, &world.spool("b", 5, "y\n")).unwrap();
    // The output was moved and the header was not.
    let into = world.folder.path().join("originals/new").join(format!("{SESSION}.1-4-a.jsonl"));
    fs::rename(&new.output, into).unwrap();
    world.originals.put(SESSION, &new).unwrap();
    world.finish();
    assert_eq!(world.text(SESSION, "a").unwrap(), ("{\"run\":\"a\"}\n".to_owned(), "x\n".to_owned()));
    // The same once more, when it is compressed.
    world.originals.put(SESSION, &new).unwrap();
    world.finish();
    assert_eq!(world.files(&SESSION.to_string()), ["1-4-a.zst", "5-8-b.zst"]);
}

#[test]
fn an_original_whose_header_is_on_its_way_is_left_alone() {
    let world = World::new();
    let new = world.spool("a", 1, "x\n");
    world.originals.put(SESSION, &world.spool("b", 5, "y\n")).unwrap();
    let into = world.folder.path().join("originals/new").join(format!("{SESSION}.1-4-a.jsonl"));
    fs::rename(&new.output, into).unwrap();
    world.finish();
    assert_eq!(world.files(&SESSION.to_string()), ["5-8-b.zst"]);
    world.originals.put(SESSION, &new).unwrap();
    world.finish();
    assert_eq!(world.text(SESSION, "a").unwrap(), ("{\"run\":\"a\"}\n".to_owned(), "x\n".to_owned()));
}

#[test]
fn a_folder_that_takes_no_new_ones_keeps_those_that_are_there() {
    let mut world = World::new();
    world.originals.put(SESSION, &world.spool("a", 1, "x\n")).unwrap();
    world.originals.takes_new = false;
    let new = world.spool("b", 5, "y\n");
    world.originals.put(SESSION, &new).unwrap();
    assert!(new.output.exists());
    assert_eq!(world.originals.list(SESSION).unwrap().len(), 1);
    assert!(world.originals.delete(SESSION).unwrap() > 0);
}

#[test]
fn compression_that_was_interrupted_is_repeated() {
    let world = World::new();
    world.originals.put(SESSION, &world.spool("a", 1, "x\n")).unwrap();
    let own = world.folder.path().join("originals").join(SESSION.to_string());
    Folder::open_or_create(&own).unwrap();
    fs::write(own.join("a.tmp"), "half").unwrap();
    fs::set_permissions(own.join("a.tmp"), fs::Permissions::from_mode(0o600)).unwrap();
    world.finish();
    assert_eq!(world.files(&SESSION.to_string()), ["1-4-a.zst"]);
    // The second form is complete, and a part of the first is still there.
    fs::write(world.folder.path().join("originals/new").join(format!("{SESSION}.1-4-a.turn")), "x").unwrap();
    world.finish();
    assert_eq!(world.files("new"), [""; 0]);
    assert_eq!(world.text(SESSION, "a").unwrap().1, "x\n");
}

#[test]
fn writers_of_the_same_original_do_not_disturb_each_other() {
    let world = World::new();
    let content = "line\n".repeat(10_000);
    let original = Original { run: "a".to_owned(), first: Seq(1), last: Seq(4), bytes: 0 };
    let whole = format!("{{\"run\":\"a\"}}\n\n{content}");
    for _ in 0..20 {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| world.originals.put_copy(SESSION, &original, &mut whole.as_bytes()).unwrap());
            }
        });
        assert_eq!(world.files(&SESSION.to_string()), ["1-4-a.zst"]);
        assert_eq!(world.text(SESSION, "a").unwrap().1, content);
    }
}

#[test]
fn a_fork_gets_the_originals_of_its_events() {
    let world = World::new();
    world.originals.put(SESSION, &world.spool("a", 1, "x\n")).unwrap();
    world.finish();
    world.originals.put(SESSION, &world.spool("b", 5, "y\n")).unwrap();
    world.originals.put(SESSION, &world.spool("c", 9, "z\n")).unwrap();
    world.originals.fork(SESSION, Seq(6), OTHER).unwrap();
    assert_eq!(world.files(&OTHER.to_string()), ["1-4-a.zst", "5-6-b.zst"], "of its events");
    assert_eq!(world.text(OTHER, "b"), world.text(SESSION, "b"));
    assert_eq!(world.text(OTHER, "a"), world.text(SESSION, "a"));
}

#[test]
fn deleted_originals_are_gone_and_an_interrupted_deletion_is_completed() {
    let world = World::new();
    for (session, run) in [(SESSION, "a"), (OTHER, "b")] {
        world.originals.put(session, &world.spool(run, 1, "x\n")).unwrap();
        world.finish();
        world.originals.put(session, &world.spool(&format!("{run}2"), 5, "y\n")).unwrap();
    }
    assert!(world.originals.delete(SESSION).unwrap() > 0);
    assert_eq!(world.originals.list(SESSION).unwrap(), []);
    assert_eq!(world.originals.list(OTHER).unwrap().len(), 2);
    // Killed after it was set aside: the session is still there, or it is not.
    let held = world.originals.set_aside(OTHER).unwrap();
    assert!(world.originals.hold_deletions().unwrap().is_none(), "another process completes no deletion");
    drop(held);
    assert!(world.originals.hold_deletions().unwrap().is_some());
    assert_eq!(world.originals.deleted_sessions().unwrap(), [OTHER]);
    assert_eq!(world.originals.list(OTHER).unwrap(), []);
    world.finish();
    assert_eq!(world.originals.list(OTHER).unwrap().len(), 2);
    world.originals.set_aside(OTHER).unwrap();
    world.originals.finish_deleted(OTHER, false).unwrap();
    assert_eq!(world.originals.list(OTHER).unwrap(), []);
    assert_eq!(world.files("deleted"), [""; 0]);
}

#[test]
fn old_originals_expire() {
    let world = World::new();
    let now = SystemTime::now();
    world.originals.put(SESSION, &world.spool("a", 1, "x\n")).unwrap();
    world.finish();
    world.originals.expire(30, now).unwrap();
    assert_eq!(world.originals.list(SESSION).unwrap().len(), 1);
    let later = now + 31 * DAY;
    world.originals.expire(30, later).unwrap();
    assert_eq!(world.originals.list(SESSION).unwrap(), []);
}

#[test]
fn files_that_are_not_ours_are_not_read() {
    let world = World::new();
    world.originals.put(SESSION, &world.spool("a", 1, "x\n")).unwrap();
    world.finish();
    let own = world.folder.path().join("originals").join(SESSION.to_string());
    for name in ["x.zst", "1-2.zst", "1-2-../a.zst", "1-2-a.txt", "9-9-b.zst.tmp"] {
        drop(fs::write(own.join(name), "x"));
    }
    assert_eq!(world.originals.list(SESSION).unwrap().len(), 1);
    // A damaged one is an error, never other text.
    fs::write(own.join("1-4-a.zst"), "no frame").unwrap();
    assert!(world.originals.open_run(SESSION, "a").is_err());
    fs::remove_file(own.join("1-4-a.zst")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", own.join("1-4-a.zst")).unwrap();
    assert!(world.originals.open_run(SESSION, "a").is_err());
    let bad = NewOriginal { run: "../a".to_owned(), ..world.spool("c", 1, "x\n") };
    assert!(world.originals.put(SESSION, &bad).is_err());
}

#[cfg(feature = "sqlite")]
#[test]
fn originals_of_a_former_folder_are_moved_or_read_there() {
    let world = World::new();
    world.originals.put(SESSION, &world.spool("a", 1, "x\n")).unwrap();
    world.finish();
    world.originals.put(SESSION, &world.spool("b", 5, "y\n")).unwrap();
    drop(world.originals.set_aside(OTHER).unwrap());
    let (before, new) = (world.originals.list(SESSION).unwrap(), world.folder.path().join("git"));
    let former = world.folder.path().join("originals");
    // Where it cannot be moved to, it is read.
    fs::write(&new, "in the way").unwrap();
    let blocked = FileOriginals::new(new.join("originals"), true).with_former(Some(former.clone()));
    assert!(blocked.list(SESSION).is_err() || blocked.list(SESSION).unwrap() == before);
    fs::remove_file(&new).unwrap();
    Folder::open_or_create(&new).unwrap();
    let moved = FileOriginals::new(new.join("originals"), true).with_former(Some(former.clone()));
    assert_eq!(moved.list(SESSION).unwrap(), before);
    assert!(!former.exists());
    assert_eq!(moved.open_run(SESSION, "b").unwrap().unwrap().header, "{\"run\":\"b\"}\n");
    moved.finish().unwrap();
    assert_eq!(moved.list(SESSION).unwrap().len(), 2);
    assert_eq!(moved.deleted_sessions().unwrap(), [OTHER]);
}
