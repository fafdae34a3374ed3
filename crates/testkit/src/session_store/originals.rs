//! Originals: the output of turns as the agents printed it.
//!
//! A store need not keep any. Then each case checks that it does not claim to.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use azureal_core::{
    NewOriginal, ORIGINAL_PIECE, OpenOriginal, Original, OriginalReader, Originals, async_trait,
};
use tempfile::TempDir;

use super::*;

/// The finished spools of turns.
struct Spools(TempDir);

impl Spools {
    /// A store refuses files from a folder that others may write to.
    fn new() -> Self {
        let private = Permissions::from_mode(0o700);
        Self(tempfile::Builder::new().permissions(private).tempdir().unwrap())
    }

    /// Writes a private file.
    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(content).unwrap();
        path
    }

    /// Writes the spool of a turn.
    fn turn(&self, run: &str, events: (u64, u64), output: &[u8]) -> NewOriginal {
        NewOriginal {
            run: run.to_owned(),
            first: Seq(events.0),
            last: Seq(events.1),
            header: self.file(&format!("{run}.turn"), header(run).as_bytes()),
            output: self.file(&format!("{run}.jsonl"), output),
            more: None,
        }
    }
}

fn header(run: &str) -> String {
    format!("{{\"run\":\"{run}\"}}\n{{\"prompt\":\"\u{1f600}\"}}\n")
}

/// Creates a session of nine prompts; `None` if the store has no originals.
async fn session(store: &Store) -> Option<SessionId> {
    let id = session_of_prompts(store, 9).await;
    store.originals().is_some().then_some(id)
}

fn originals(store: &Store) -> &dyn Originals {
    store.originals().unwrap()
}

/// Puts three originals: of the first six events, of the seventh and eighth, and of a turn whose place is not known.
async fn put_three(store: &Store, id: SessionId) {
    let spools = Spools::new();
    for (run, events) in [("late", (7, 8)), ("early", (1, 6)), ("lost", (0, 0))] {
        originals(store).put(id, spools.turn(run, events, run.as_bytes())).await.unwrap();
    }
}

/// Reads an original; checks the size of its pieces.
async fn read(store: &Store, id: SessionId, run: &str) -> Option<(String, Vec<u8>)> {
    let mut open = originals(store).open(id, run).await.unwrap()?;
    let mut output = Vec::new();
    while let Some(piece) = open.output.next().await.unwrap() {
        assert!((1..=ORIGINAL_PIECE).contains(&piece.len()));
        output.extend(piece);
    }
    Some((open.header, output))
}

async fn runs(store: &Store, id: SessionId) -> Vec<(String, u64, u64)> {
    let listed = originals(store).list(id).await.unwrap();
    assert!(listed.iter().all(|original| original.bytes > 0), "{listed:?}");
    listed.into_iter().map(|original| (original.run, original.first.0, original.last.0)).collect()
}

fn run(name: &str, first: u64, last: u64) -> (String, u64, u64) {
    (name.to_owned(), first, last)
}

/// Three MiB that do not compress to one piece, with every byte.
fn noise() -> Vec<u8> {
    let mut state: u32 = 1;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(3 << 20).collect()
}

pub(super) async fn an_original_comes_back_byte_for_byte(store: Store) {
    let Some(id) = session(&store).await else { return };
    let spools = Spools::new();
    let outputs: [(&str, &[u8]); 4] = [
        ("noise", &noise()),
        ("empty", b""),
        ("lines", b"\n\n{\"a\":1}\r\n\nno end \xff\0"),
        ("long", &vec![b'x'; (2 << 20) + 1]),
    ];
    for (number, (run, output)) in (1..).zip(outputs) {
        originals(&store).put(id, spools.turn(run, (number, number), output)).await.unwrap();
    }
    assert_eq!(fs::read_dir(spools.0.path()).unwrap().count(), 0, "the files of the spools are still there");
    // Empty lines of a header need not come back. Its other lines do, and the output is not taken for one.
    let header_file = spools.file("odd.turn", b"\n{\"run\":1}\n\n{\"prompt\":2}");
    let odd = spools.turn("odder", (5, 5), b"{\"output\":3}");
    originals(&store).put(id, NewOriginal { run: "odd".into(), header: header_file, ..odd }).await.unwrap();
    for _ in 0..2 {
        for (run, output) in outputs {
            let (found, content) = read(&store, id, run).await.unwrap();
            assert_eq!(found, header(run));
            assert!(content == output, "{run}: {} bytes instead of {}", content.len(), output.len());
        }
        let (found, content) = read(&store, id, "odd").await.unwrap();
        let lines: Vec<&str> = found.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines, ["{\"run\":1}", "{\"prompt\":2}"]);
        assert_eq!(content, b"{\"output\":3}");
        assert_eq!(read(&store, id, "missing").await, None);
        // The same afterwards.
        originals(&store).finish().await.unwrap();
        originals(&store).finish().await.unwrap();
    }
}

pub(super) async fn an_original_that_is_put_twice_is_there_once(store: Store) {
    let Some(id) = session(&store).await else { return };
    let spools = Spools::new();
    let new = spools.turn("one", (1, 2), b"output");
    originals(&store).put(id, new.clone()).await.unwrap();
    originals(&store).put(id, new.clone()).await.unwrap();
    assert_eq!(runs(&store, id).await, [run("one", 1, 2)]);
    originals(&store).finish().await.unwrap();
    originals(&store).put(id, new).await.unwrap();
    originals(&store).finish().await.unwrap();
    assert_eq!(runs(&store, id).await, [run("one", 1, 2)]);
    assert_eq!(read(&store, id, "one").await.unwrap(), (header("one"), b"output".to_vec()));
    let other = session_of_prompts(&store, 1).await;
    assert_eq!(runs(&store, other).await, []);
    assert_eq!(read(&store, other, "one").await, None);
}

pub(super) async fn the_original_of_an_event_is_found(store: Store) {
    let Some(id) = session(&store).await else { return };
    put_three(&store, id).await;
    for _ in 0..2 {
        assert_eq!(runs(&store, id).await, [run("lost", 0, 0), run("early", 1, 6), run("late", 7, 8)]);
        for (seq, expected) in [(1, "early"), (6, "early"), (7, "late"), (8, "late")] {
            let found = originals(&store).find(id, Seq(seq)).await.unwrap();
            assert_eq!(found.map(|original| original.run).as_deref(), Some(expected), "{seq}");
        }
        for seq in [Seq::START, Seq(9)] {
            assert_eq!(originals(&store).find(id, seq).await.unwrap(), None);
        }
        originals(&store).finish().await.unwrap();
    }
    let absent = SessionId::new(1_000).unwrap();
    assert_no_such_session(&originals(&store).list(absent).await, absent);
    assert_no_such_session(&originals(&store).delete(absent).await, absent);
    let opened = originals(&store).open(absent, "early").await.map(|original| original.is_some());
    assert_no_such_session(&opened, absent);
}

pub(super) async fn originals_are_deleted_alone(store: Store) {
    let Some(id) = session(&store).await else { return };
    let other = session_of_prompts(&store, 1).await;
    originals(&store).put(other, Spools::new().turn("others", (1, 1), b"output")).await.unwrap();
    for is_finished in [false, true] {
        put_three(&store, id).await;
        if is_finished {
            originals(&store).finish().await.unwrap();
        }
        let bytes = originals(&store).size(id).await.unwrap();
        assert_eq!(originals(&store).delete(id).await.unwrap(), bytes);
        assert_eq!(runs(&store, id).await, []);
        assert_eq!(read(&store, id, "early").await, None);
        assert_eq!(originals(&store).delete(id).await.unwrap(), 0);
    }
    assert_eq!(read_all(&store, id).await.len(), 9, "the session has changed");
    assert_eq!(runs(&store, other).await, [run("others", 1, 1)]);
}

pub(super) async fn originals_go_with_their_session(store: Store) {
    let Some(id) = session(&store).await else { return };
    let uuid = store.get(id).await.unwrap().uuid;
    put_three(&store, id).await;
    originals(&store).finish().await.unwrap();
    originals(&store).put(id, Spools::new().turn("new", (9, 9), b"output")).await.unwrap();
    store.delete(id).await.unwrap();
    assert_no_such_session(&originals(&store).list(id).await, id);
    // Not even for a session of the same identity.
    let back = store.create(NewSession { uuid, ..unnamed() }).await.unwrap();
    originals(&store).finish().await.unwrap();
    assert_eq!(runs(&store, back).await, []);
}

pub(super) async fn a_cleared_session_has_no_originals(store: Store) {
    let Some(id) = session(&store).await else { return };
    put_three(&store, id).await;
    originals(&store).finish().await.unwrap();
    originals(&store).put(id, Spools::new().turn("new", (9, 9), b"output")).await.unwrap();
    store.clear(id).await.unwrap();
    originals(&store).finish().await.unwrap();
    assert_eq!(runs(&store, id).await, [], "the next events would be taken for those of the old turns");
}

pub(super) async fn a_fork_has_the_originals_of_its_events(store: Store) {
    let Some(id) = session(&store).await else { return };
    for is_finished in [false, true] {
        put_three(&store, id).await;
        if is_finished {
            originals(&store).finish().await.unwrap();
        }
        let whole = store.fork(id, Seq::END, unnamed()).await.unwrap();
        assert_eq!(runs(&store, whole).await, [run("early", 1, 6), run("late", 7, 8)]);
        // In the middle of a turn: its next event is another one.
        let part = store.fork(id, Seq(4), unnamed()).await.unwrap();
        assert_eq!(runs(&store, part).await, [run("early", 1, 4)]);
        let empty = store.fork(id, Seq::START, unnamed()).await.unwrap();
        assert_eq!(runs(&store, empty).await, []);
        assert_eq!(runs(&store, id).await.len(), 3);
        originals(&store).delete(id).await.unwrap();
        originals(&store).finish().await.unwrap();
        for fork in [whole, part] {
            assert_eq!(read(&store, fork, "early").await.unwrap(), (header("early"), b"early".to_vec()));
        }
    }
}

/// An output in memory, in pieces of a size that no store has.
struct Pieces(Vec<Vec<u8>>);

#[async_trait]
impl OriginalReader for Pieces {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(if self.0.is_empty() { None } else { Some(self.0.remove(0)) })
    }
}

pub(super) async fn an_original_is_copied_from_another_store(store: Store) {
    let Some(id) = session(&store).await else { return };
    let noise = noise();
    let copy = |run: &str, output: &[u8]| {
        let original = Original { run: run.to_owned(), first: Seq(1), last: Seq(3), bytes: 1 };
        let pieces = Pieces(output.chunks(700_001).map(<[u8]>::to_vec).collect());
        (original, OpenOriginal { header: header(run), output: Box::new(pieces) })
    };
    for (run, output) in [("noise", &noise[..]), ("short", b"short"), ("short", b"other")] {
        let (original, content) = copy(run, output);
        originals(&store).copy(id, &original, content).await.unwrap();
    }
    for _ in 0..2 {
        assert_eq!(runs(&store, id).await, [run("noise", 1, 3), run("short", 1, 3)]);
        let (found, content) = read(&store, id, "noise").await.unwrap();
        assert_eq!(found, header("noise"));
        assert!(content == noise);
        assert_eq!(read(&store, id, "short").await.unwrap(), (header("short"), b"short".to_vec()));
        originals(&store).finish().await.unwrap();
        let (original, content) = copy("short", b"other");
        originals(&store).copy(id, &original, content).await.unwrap();
    }
}

pub(super) async fn originals_are_measured(store: Store) {
    let Some(id) = session(&store).await else { return };
    let other = session_of_prompts(&store, 1).await;
    let spools = Spools::new();
    originals(&store).put(id, spools.turn("noise", (1, 2), &noise())).await.unwrap();
    originals(&store).put(id, spools.turn("zeros", (3, 4), &vec![0; 1 << 20])).await.unwrap();
    for _ in 0..2 {
        let size = originals(&store).size(id).await.unwrap();
        assert!(size > 3 << 20, "{size}");
        let absent = SessionId::new(1_000).unwrap();
        assert_eq!(originals(&store).sizes(&[other, id, absent]).await.unwrap(), [0, size, 0]);
        originals(&store).finish().await.unwrap();
    }
    let size = originals(&store).size(id).await.unwrap();
    assert!(size < (3 << 20) + (1 << 19), "they are not compressed: {size}");
}

pub(super) async fn old_originals_expire(store: Store) {
    let Some(id) = session(&store).await else { return };
    put_three(&store, id).await;
    originals(&store).finish().await.unwrap();
    // The clock of a file system may be coarse.
    thread::sleep(Duration::from_millis(1_100));
    originals(&store).expire(0).await.unwrap();
    assert_eq!(runs(&store, id).await, []);
    put_three(&store, id).await;
    originals(&store).finish().await.unwrap();
    // It was done today.
    originals(&store).expire(1).await.unwrap();
    assert_eq!(runs(&store, id).await.len(), 3);
    assert_eq!(read_all(&store, id).await.len(), 9);
}
