//! Keeps the sources of imported sessions as their originals.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use azureal_agents::native;
use azureal_core::{
    ORIGINAL_PIECE, OpenOriginal, Original, OriginalReader, Seq, SessionId, SessionStore, StoreError, Uuid,
    async_trait,
};
use azureal_engine::ImportedRecord;
use azureal_exchange::{ImportError, finish_native_run, has_finished_native_run};
use futures_executor::block_on;

use super::{LeftOutReason, LeftOutSession};
use crate::error::Error;

/// The largest source that is kept as the original of its session: 512 MiB.
const LARGEST_ORIGINAL: u64 = 512 << 20;
/// The first bytes of an SQLite database.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// The number of threads that write originals. They wait for the disk most of the time, and it syncs several files in one go.
const WRITERS: usize = 12;

/// Keeps the sources of imported sessions as their originals, on threads of its own.
pub struct OriginalWriter {
    jobs: Option<SyncSender<NewSource>>,
    threads: Vec<JoinHandle<()>>,
    pub(super) problems: Arc<Mutex<Vec<LeftOutSession>>>,
    /// The name of this run of the import.
    pub(super) run: String,
    /// Whether earlier runs have kept all their sources.
    finished: HashMap<String, bool>,
    /// The stores, each with a session of this run.
    stores: Vec<(Arc<dyn SessionStore>, SessionId)>,
}

/// A source that becomes an original.
pub(super) struct NewSource {
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) session: SessionId,
    pub(super) range: (Seq, Seq),
    pub(super) agent: &'static str,
    pub(super) id: String,
    pub(super) path: PathBuf,
    pub(super) size: u64,
    pub(super) read_before: u64,
}

impl OriginalWriter {
    /// Prepares the writer. It starts threads when they are needed.
    pub fn new() -> Self {
        let run = Uuid::new_v4().simple().to_string();
        let (threads, finished, stores) = (Vec::new(), HashMap::new(), Vec::new());
        Self { jobs: None, threads, problems: Arc::default(), run, finished, stores }
    }

    /// Returns the events of a session whose source an earlier run was to keep, and has not, because it was killed.
    pub(super) async fn missing(
        &mut self,
        store: &Arc<dyn SessionStore>,
        session: SessionId,
        run: &str,
        last: Seq,
    ) -> Result<Option<(Seq, Seq)>, Error> {
        let is_finished = match self.finished.get(run) {
            Some(is_finished) => *is_finished,
            None => has_finished_native_run(&**store, run).await?,
        };
        self.finished.insert(run.to_owned(), is_finished);
        let Some(originals) = store.originals().filter(|_| !is_finished) else { return Ok(None) };
        let kept = originals.list(session).await?;
        if kept.iter().any(|original| original.covers(last)) {
            return Ok(None);
        }
        let before = kept.iter().map(|original| original.last).filter(|kept| *kept < last).max();
        Ok(Some((before.unwrap_or(Seq::START).next(), last)))
    }

    pub(super) fn write(&mut self, source: NewSource) {
        if !self.stores.iter().any(|(store, _)| Arc::ptr_eq(store, &source.store)) {
            self.stores.push((Arc::clone(&source.store), source.session));
        }
        if self.jobs.is_none() {
            let (sender, receiver) = mpsc::sync_channel(WRITERS);
            let receiver = Arc::new(Mutex::new(receiver));
            for _ in 0..WRITERS {
                let (receiver, problems) = (Arc::clone(&receiver), Arc::clone(&self.problems));
                self.threads.push(thread::spawn(move || write_all(&receiver, &problems)));
            }
            self.jobs = Some(sender);
        }
        if let Some(jobs) = &self.jobs {
            // The threads end with the sender, so they receive it.
            jobs.send(source).ok();
        }
    }

    /// Waits until all of them are written, and returns those that could not be, with the reasons. The next import of a session tries
    /// again.
    pub async fn finish(mut self) -> Vec<LeftOutSession> {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has lost its source, which is still where it was.
            thread.join().ok();
        }
        let problems = std::mem::take(&mut *self.problems.lock().unwrap_or_else(PoisonError::into_inner));
        if problems.is_empty() {
            for (store, session) in &self.stores {
                // Without the mark, the next import looks for the originals.
                finish_native_run(&**store, &self.run, *session).await.ok();
            }
        }
        problems
    }
}

impl Default for OriginalWriter {
    fn default() -> Self {
        Self::new()
    }
}

fn write_all(jobs: &Mutex<Receiver<NewSource>>, problems: &Mutex<Vec<LeftOutSession>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(source) = next else { return };
        if let Err(error) = block_on(source.put()) {
            not_kept(problems, &source.path, &error);
        }
    }
}

pub(super) fn not_kept(problems: &Mutex<Vec<LeftOutSession>>, path: &Path, error: &Error) {
    let reason = LeftOutReason::Unreadable(format!("its file is not kept as its original: {error}"));
    let problem = LeftOutSession { path: path.to_owned(), reason };
    problems.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
}

impl NewSource {
    /// Keeps the source: all of it, or what was added since it was read before.
    async fn put(&self) -> Result<(), Error> {
        let path = &self.path;
        let Some(originals) = self.store.originals() else { return Ok(()) };
        if self.size > LARGEST_ORIGINAL {
            return Err(Error::new("too_large", format!("it has {} MiB", self.size >> 20)));
        }
        let open = || native::open_content(path).map_err(ImportError::from);
        let mut content = open()?;
        let failed = |error: io::Error| Error::file(path, &error);
        // A database has other sessions too.
        if content.fill_buf().map_err(failed)?.starts_with(SQLITE) {
            return Ok(());
        }
        let is_compressed = path.extension().is_some_and(|extension| extension == "zst");
        if self.read_before > 0 && !is_compressed {
            let mut last = Vec::new();
            io::copy(&mut content.by_ref().take(self.read_before - 1), &mut io::sink()).map_err(failed)?;
            content.by_ref().take(1).read_to_end(&mut last).map_err(failed)?;
            if last != b"\n" {
                content = open()?;
            }
        }
        let (agent, bytes) = (self.agent, self.size);
        let record = ImportedRecord { agent: agent.to_owned(), file: path.clone(), bytes };
        let header = record.header().map_err(failed)?;
        let run = blake3::hash(format!("{agent} {} {bytes}", self.id).as_bytes()).to_hex();
        let run = run.get(..32).unwrap_or(&run).to_owned();
        let (first, last) = self.range;
        let original = Original { run, first, last, bytes };
        let output = Box::new(SourceReader { content, path: path.clone() });
        originals.copy(self.session, &original, OpenOriginal { header, output }).await?;
        Ok(())
    }
}

/// Reads a source as an original.
struct SourceReader {
    content: Box<dyn BufRead + Send>,
    path: PathBuf,
}

#[async_trait]
impl OriginalReader for SourceReader {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let mut piece = Vec::new();
        let read = self.content.by_ref().take(ORIGINAL_PIECE as u64).read_to_end(&mut piece);
        read.map_err(|error| StoreError::other(format!("{}: {error}", self.path.display())))?;
        Ok((!piece.is_empty()).then_some(piece))
    }
}
