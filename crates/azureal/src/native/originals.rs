//! Keeps the sources of imported sessions as their originals.

use std::collections::HashMap;
use std::io::{self, BufRead, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use azureal_agents::native::{self, NativeSource};
use azureal_core::agent::KeptOutputs;
use azureal_core::{
    ORIGINAL_PIECE, OpenOriginal, Original, OriginalReader, Seq, SessionId, SessionStore, StoreError, Uuid,
    async_trait,
};
use azureal_engine::{ImportedRecord, OutputScan, WholeOutputs};
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
    pub(super) source: &'static dyn NativeSource,
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
        match block_on(source.put()) {
            Ok(left_out) => left_out.into_iter().for_each(|why| add(problems, &source.path, why)),
            Err(error) => not_kept(problems, &source.path, &error),
        }
    }
}

pub(super) fn not_kept(problems: &Mutex<Vec<LeftOutSession>>, path: &Path, error: &Error) {
    add(problems, path, format!("its file is not kept as its original: {error}"));
}

fn add(problems: &Mutex<Vec<LeftOutSession>>, path: &Path, reason: String) {
    let problem = LeftOutSession { path: path.to_owned(), reason: LeftOutReason::Unreadable(reason) };
    problems.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
}

impl NewSource {
    /// Keeps the source: all of it, or what was added since it was read before. Returns the whole outputs that were left out.
    async fn put(&self) -> Result<Vec<String>, Error> {
        let path = &self.path;
        let Some(originals) = self.store.originals() else { return Ok(Vec::new()) };
        if self.size > LARGEST_ORIGINAL {
            return Err(Error::new("too_large", format!("it has {} MiB", self.size >> 20)));
        }
        let (mut content, read_before) = self.open()?;
        let failed = |error: io::Error| Error::file(path, &error);
        // A database has other sessions too.
        if content.fill_buf().map_err(failed)?.starts_with(SQLITE) {
            return Ok(Vec::new());
        }
        let outputs = self.source.kept_outputs().filter(|outputs| has_kept_outputs(path, outputs));
        let scan = match outputs {
            Some(outputs) => OutputScan::read(&mut content, &outputs).map(Some).map_err(failed)?,
            None => None,
        };
        let agent = self.source.agent();
        let (mut bytes, mut lines, mut whole) = (self.size.saturating_sub(read_before), None, None);
        if let Some((scan, outputs)) = scan.filter(OutputScan::names_any).zip(outputs) {
            (bytes, lines) = (scan.bytes, Some(scan.lines));
            whole = Some(scan.whole_outputs(&outputs, Some(path)));
        }
        // What the program adds meanwhile belongs to the next import: the number of lines is known.
        let content: Box<dyn BufRead + Send> = match lines {
            Some(_) => Box::new(self.open()?.0.take(bytes)),
            None if outputs.is_some() => self.open()?.0,
            None => content,
        };
        let record = ImportedRecord { agent: agent.to_owned(), file: path.clone(), bytes, lines };
        let header = record.header().map_err(failed)?;
        let run = blake3::hash(format!("{agent} {} {}", self.id, self.size).as_bytes()).to_hex();
        let run = run.get(..32).unwrap_or(&run).to_owned();
        let (first, last) = self.range;
        let original = Original { run, first, last, bytes };
        let whole = Arc::new(Mutex::new(whole));
        let output = Box::new(SourceReader { content, path: path.clone(), whole: Arc::clone(&whole) });
        originals.copy(self.session, &original, OpenOriginal { header, output }).await?;
        let whole = whole.lock().unwrap_or_else(PoisonError::into_inner);
        // That an output was deleted before, the transcript shows itself.
        Ok(whole.as_ref().map(|whole| whole.left_out(false)).unwrap_or_default())
    }

    /// Opens the source behind what was read before, and returns how much that is.
    fn open(&self) -> Result<(Box<dyn BufRead + Send>, u64), Error> {
        let open = || native::open_content(&self.path).map_err(ImportError::from);
        let failed = |error: io::Error| Error::file(&self.path, &error);
        let mut content = open()?;
        let is_compressed = self.path.extension().is_some_and(|extension| extension == "zst");
        if self.read_before > 0 && !is_compressed {
            let mut last = Vec::new();
            io::copy(&mut content.by_ref().take(self.read_before - 1), &mut io::sink()).map_err(failed)?;
            content.by_ref().take(1).read_to_end(&mut last).map_err(failed)?;
            if last != b"\n" {
                return Ok((open()?, 0));
            }
            return Ok((content, self.read_before));
        }
        Ok((content, 0))
    }
}

/// Returns whether a session has a folder of large outputs. Most have none, and are read once.
fn has_kept_outputs(path: &Path, outputs: &KeptOutputs) -> bool {
    let names = path.file_name().and_then(|name| (outputs.folder)(name.to_str()?));
    names.is_some_and(|names| path.with_file_name(names.iter().collect::<PathBuf>()).is_dir())
}

/// Reads a source as an original.
struct SourceReader {
    content: Box<dyn BufRead + Send>,
    path: PathBuf,
    /// The whole outputs that follow it.
    whole: Arc<Mutex<Option<WholeOutputs>>>,
}

#[async_trait]
impl OriginalReader for SourceReader {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let failed = |error: io::Error| StoreError::other(format!("{}: {error}", self.path.display()));
        let mut piece = Vec::new();
        self.content.by_ref().take(ORIGINAL_PIECE as u64).read_to_end(&mut piece).map_err(failed)?;
        if !piece.is_empty() {
            return Ok(Some(piece));
        }
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(whole) = whole.as_mut() else { return Ok(None) };
        let Some(line) = whole.next_line().map_err(failed)? else { return Ok(None) };
        self.content = Box::new(Cursor::new(line));
        self.content.by_ref().take(ORIGINAL_PIECE as u64).read_to_end(&mut piece).map_err(failed)?;
        Ok(Some(piece))
    }
}
