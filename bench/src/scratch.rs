//! The folders below `$BENCH_SCRATCH`, and stores in them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use azureal_core::{Message, NewSession, NewTurn, SessionId, SessionStore, events_of_message};
use azureal_store::SqliteStore;
use azureal_store::sqlite::{Journal, SqliteOptions, Work};
use futures_executor::block_on;

/// Returns the file of this name among the data.
pub(crate) fn data(name: &str) -> Result<PathBuf> {
    Ok(folder()?.join("data").join(name))
}

/// Returns the file of this name among what we write.
pub(crate) fn work(name: &str) -> Result<PathBuf> {
    let ours = folder()?.join("work").join("azureal");
    fs::create_dir_all(&ours).with_context(|| ours.display().to_string())?;
    Ok(ours.join(name))
}

fn folder() -> Result<PathBuf> {
    let folder = std::env::var_os("BENCH_SCRATCH").context("BENCH_SCRATCH is not set")?;
    // A store may want to know the folder it lies in, whatever the current one is.
    std::path::absolute(&folder).context("BENCH_SCRATCH")
}

/// What SQLite may leave beside a file.
const COMPANIONS: [&str; 4] = ["", "-wal", "-shm", "-journal"];

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes a store with everything that lies beside it.
pub(crate) fn remove(path: &Path) -> Result<()> {
    for suffix in COMPANIONS {
        match fs::remove_file(with_suffix(path, suffix)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| path.display().to_string());
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Returns the bytes of a store on the disk.
pub(crate) fn size(path: &Path) -> u64 {
    let sizes = COMPANIONS.map(|suffix| fs::metadata(with_suffix(path, suffix)).map_or(0, |file| file.len()));
    sizes.iter().sum()
}

/// Opens a store.
pub(crate) fn open(path: &Path, journal: Journal) -> Result<SqliteStore> {
    // As the program's own commands do: they do one thing after the other.
    Ok(SqliteStore::open(
        path,
        SqliteOptions { journal, work: Work::WhereCalled, ..SqliteOptions::default() },
    )?)
}

/// Removes what is there and opens a store with one session.
pub(crate) fn fresh(name: &str, journal: Journal) -> Result<(PathBuf, SqliteStore, SessionId)> {
    let path = work(name)?;
    remove(&path)?;
    let store = open(&path, journal)?;
    let id = block_on(store.create(session()))?;
    Ok((path, store, id))
}

/// Says what a session of the benchmark is made with.
pub(crate) fn session() -> NewSession {
    NewSession { name: None, worktree: ".".into(), ..NewSession::default() }
}

/// Makes a turn of these messages, nothing shortened.
pub(crate) fn turn(messages: impl IntoIterator<Item = Message>) -> NewTurn {
    NewTurn::verbatim(messages.into_iter().flat_map(events_of_message))
}

/// A store that is made once and measured often.
pub(crate) struct Prepared {
    pub(crate) path: PathBuf,
    /// Its first session.
    pub(crate) id: SessionId,
}

/// Returns a store that holds these sessions, each a list of turns, and makes it if need be.
pub(crate) fn prepared(
    name: &str,
    sessions: impl FnOnce() -> Result<Vec<Vec<Vec<Message>>>>,
) -> Result<Prepared> {
    let path = work(name)?;
    if !path.exists() {
        // In memory where that is possible and as WAL: the tens of thousands of syncs that a durable store
        // asks for are not what is measured here. It gets its name when it is whole.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory } else { Path::new("") };
        let making = work("")?.join(parent).join(format!("azureal-bench-{}.azs", std::process::id()));
        remove(&making)?;
        fill(&making, sessions()?)?;
        let whole = work(&format!("{name}.new"))?;
        fs::copy(&making, &whole)?;
        remove(&making)?;
        fs::rename(&whole, &path)?;
    }
    let id = SessionId::new(1).context("there is no session 1")?;
    Ok(Prepared { path, id })
}

fn fill(path: &Path, sessions: Vec<Vec<Vec<Message>>>) -> Result<()> {
    let store = open(path, Journal::Wal)?;
    for turns in sessions {
        let id = block_on(store.create(session()))?;
        for messages in turns {
            block_on(store.append(id, turn(messages)))?;
        }
    }
    block_on(store.close())?;
    drop(store);
    let left = size(path) - fs::metadata(path)?.len();
    ensure!(left == 0, "the store was closed and {left} bytes lie beside it");
    Ok(())
}
