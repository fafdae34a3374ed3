//! Spools: the output of an agent, in a file from its first byte, and the owner of the file.
//!
//! The program's standard output is a file, so that no output is lost if azureal is slow or dies. Beside it is a
//! header that describes the turn. The process that runs the turn, or stores it after a crash, holds a lock on the
//! header. A spool without a lock is an orphan, and the system frees the lock of a process that dies. Header and
//! output are removed only when the turn is in the store. [`crate::header`] describes the header.

use std::any::Any;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use azureal_core::agent::{Agent, Ending};
use azureal_core::{NewOriginal, Seq, SessionId};
use azureal_files::Folder;
use azureal_process::{Excerpt, FollowError, Marker, ProcessIdentity};
use rustix::fs::OFlags;

use crate::bridge::{BridgeHost, Channel, Control};
use crate::cancel::CancelSign;
use crate::header::{HeaderLine, SpooledEnding, SpooledProcess, SpooledTurn, StoredTurn};
use crate::opened::OpenedSessions;
use crate::watch::Watcher;

/// The folder of the spools.
#[derive(Debug, Clone)]
pub struct Spools {
    pub(crate) folder: PathBuf,
    /// The folder of earlier versions. Their turns may still run there; no turn begins there.
    pub(crate) former: Option<PathBuf>,
    keeps_prompts: bool,
    pub(crate) keeps_originals: bool,
    bridges: Option<BridgeHost>,
    /// The sessions of the store that are open in an agent's own interface.
    opened: Option<OpenedSessions>,
    /// Kept as long as the folder is used.
    temporary: Option<Arc<dyn Any + Send + Sync>>,
}

/// A spool of this process: no other process touches it while we hold this.
#[derive(Debug)]
pub struct Spool {
    /// Locked as long as it is open.
    pub(crate) header: File,
    pub(crate) folder: Folder,
    pub(crate) header_path: PathBuf,
    pub(crate) output_path: PathBuf,
    /// The output, as long as this process has run the turn from its beginning.
    pub(crate) output_file: Option<File>,
    pub(crate) turn: SpooledTurn,
    pub(crate) cancel: CancelSign,
    pub(crate) process: Option<SpooledProcess>,
    pub(crate) ended: Option<SpooledEnding>,
    pub(crate) stored: Option<StoredTurn>,
    pub(crate) is_idle: bool,
    pub(crate) keeps_original: bool,
}

/// An error of a spool.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct SpoolError {
    /// The file or folder.
    pub path: PathBuf,
    /// The error of the system.
    pub source: io::Error,
}

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> SpoolError {
    let path = path.to_owned();
    move |source| SpoolError { path, source }
}

/// The variable that names the session that a process works for.
pub(crate) const SESSION_MARKER: &str = "AZUREAL_SESSION";

pub(crate) const HEADER: &str = "turn";
pub(crate) const OUTPUT: &str = "jsonl";
pub(crate) const ERRORS: &str = "err";
/// What follows the output in the original of a turn.
const MORE: &str = "more";
pub(crate) const UNFINISHED: &str = "new";
/// The time to wait for a cleanup of the folder to end.
const CLEANUP: Duration = Duration::from_secs(10);
/// A copy of an output that was deleted, until it is whole.
pub(crate) const COPY: &str = "copy";

impl Spools {
    /// Uses this folder, which is created with the first spool.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            former: None,
            keeps_prompts: true,
            keeps_originals: true,
            bridges: None,
            opened: None,
            temporary: None,
        }
    }

    /// Also finds the turns and respects the leases of earlier versions, which used this folder.
    #[must_use]
    pub fn with_former(mut self, folder: impl Into<Option<PathBuf>>) -> Self {
        self.former = folder.into();
        self
    }

    /// Stores no prompt in spools: for turns that are not stored.
    #[must_use]
    pub fn without_prompts(mut self) -> Self {
        self.keeps_prompts = false;
        self
    }

    /// Removes the output of stored turns, instead of putting it into the [originals](azureal_core::Originals) of the store.
    #[must_use]
    pub fn without_originals(mut self) -> Self {
        self.keeps_originals = false;
        self
    }

    /// Keeps the temporary folder that the spools are in, until the last clone of this is dropped.
    #[must_use]
    pub fn in_temporary(mut self, folder: Arc<dyn Any + Send + Sync>) -> Self {
        self.temporary = Some(folder);
        self
    }

    /// Starts bridges this way, for agents that need one; `None` if that is not possible.
    #[must_use]
    pub fn with_bridges(mut self, host: impl Into<Option<BridgeHost>>) -> Self {
        self.bridges = host.into();
        self
    }

    /// Gives out no lease of a session that is open in an agent's own interface, according to these notes.
    #[must_use]
    pub fn with_opened(mut self, opened: impl Into<Option<OpenedSessions>>) -> Self {
        self.opened = opened.into();
        self
    }

    /// Returns the notes of sessions that are open in an agent's own interface.
    pub fn opened(&self) -> Option<&OpenedSessions> {
        self.opened.as_ref()
    }

    pub(crate) fn bridges(&self) -> Option<&BridgeHost> {
        self.bridges.as_ref()
    }

    /// Returns the control channel of the run of this name, in whichever process: it answers questions and cancels. `None` if
    /// bridges are not used here.
    pub fn control(&self, run: &str) -> Option<Control> {
        Some(Control::new(self.bridges.as_ref()?.socket(run, Channel::Control)?))
    }

    /// Removes the sockets that a killed process has left.
    pub(crate) fn remove_sockets(&self, run: &str) {
        for channel in [Channel::Control, Channel::Recall] {
            if let Some(socket) = self.bridges.as_ref().and_then(|host| host.socket(run, channel)) {
                // One that is not there is as good as removed.
                drop(fs::remove_file(socket));
            }
        }
    }

    /// Creates the spool of a new turn, and owns it.
    pub fn begin(&self, turn: SpooledTurn) -> Result<Spool, SpoolError> {
        let folder = self.open_folder()?;
        let path = |kind: &str| folder.join(format!("{}.{kind}", turn.run));
        let (header, parts) = (path(HEADER), [path(UNFINISHED), path(OUTPUT), path(ERRORS)]);
        let begun = self.begin_with(&folder, turn, header, &parts);
        if begun.is_err() {
            // What has not become a spool would never be found. If it does not go either, that is no news.
            parts.iter().for_each(|part| drop(folder.remove(name_of(part))));
        }
        begun
    }

    fn begin_with(
        &self,
        folder: &Folder,
        turn: SpooledTurn,
        header_path: PathBuf,
        [unfinished, output_path, errors_path]: &[PathBuf; 3],
    ) -> Result<Spool, SpoolError> {
        let create = |path: &PathBuf| folder.create_file(name_of(path), READ_AND_APPEND).map_err(at(path));
        let mut header = create_locked(folder, unfinished)?;
        let mut kept = turn.clone();
        if !self.keeps_prompts {
            kept.prompt.clear();
        }
        add_line(&mut header, &HeaderLine::Turn(kept), unfinished)?;
        let first_line = header.metadata().map_err(at(unfinished))?.len();
        let cancel = CancelSign::of(folder, name_of(unfinished), first_line).map_err(at(unfinished))?;
        let output_file = Some(create(output_path)?);
        create(errors_path)?;
        folder.rename(name_of(unfinished), name_of(&header_path)).map_err(at(unfinished))?;
        Ok(Spool {
            header,
            folder: folder.clone(),
            header_path,
            output_path: output_path.clone(),
            output_file,
            turn,
            cancel,
            process: None,
            ended: None,
            stored: None,
            is_idle: false,
            keeps_original: self.keeps_originals,
        })
    }

    /// Watches a turn of another process, or of none, from its first line.
    pub fn watch(
        &self,
        turn: &SpooledTurn,
        agent: &dyn Agent,
        process: Option<ProcessIdentity>,
    ) -> Result<Watcher, FollowError> {
        Watcher::of_turn(&self.folder_of(turn).join(format!("{}.{OUTPUT}", turn.run)), agent, turn, process)
    }

    /// Returns the folder with the files of a turn.
    pub(crate) fn folder_of(&self, turn: &SpooledTurn) -> &Path {
        let header = format!("{}.{HEADER}", turn.run);
        match &self.former {
            Some(former) if is_there(&former.join(&header)) && !is_there(&self.folder.join(&header)) => {
                former
            }
            _ => &self.folder,
        }
    }

    /// Returns the number of bytes that a turn of another process, or of none, has printed.
    pub fn printed(&self, turn: &SpooledTurn) -> u64 {
        let folder = self.folder_of(turn);
        [OUTPUT, ERRORS].iter().map(|kind| length(&folder.join(format!("{}.{kind}", turn.run)))).sum()
    }

    /// Returns the marker of every process of this session's turns, so that one is found even if its spool is gone.
    /// `None` if there is no folder for spools yet.
    pub fn session_marker(&self, session: SessionId) -> Option<Marker> {
        marker_of(&self.folder, session)
    }

    /// Returns the markers of this session's turns, those of earlier versions too. Empty if no turn ever ran here.
    pub(crate) fn session_markers(&self, session: SessionId) -> Vec<Marker> {
        self.folders().filter_map(|folder| marker_of(folder, session)).collect()
    }

    /// Returns whether there is a folder to look into.
    pub fn exist(&self) -> bool {
        self.folders().any(Path::is_dir)
    }

    /// Returns the folders that may have spools.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.folder).chain(&self.former).map(PathBuf::as_path)
    }

    pub(crate) fn former_folder(&self) -> Option<&Path> {
        self.former.as_deref()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Opens the folder, and creates it if there is none.
    pub(crate) fn open_folder(&self) -> Result<Folder, SpoolError> {
        Folder::open_or_create(&self.folder).map_err(at(&self.folder))
    }
}

/// Returns the marker of a session whose spools are in this folder.
///
/// A folder's inode is unique on this machine, whatever its path. It is that of the parent: the folder itself is removed when
/// it is cleaned up by hand.
fn marker_of(folder: &Path, session: SessionId) -> Option<Marker> {
    let folder = fs::metadata(folder.parent()?).ok()?;
    Marker::new(SESSION_MARKER, format!("{session}@{}-{}", folder.dev(), folder.ino())).ok()
}

/// Returns whether a path has something, which is not looked at.
pub(crate) fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

impl Spool {
    /// Returns the turn.
    pub fn turn(&self) -> &SpooledTurn {
        &self.turn
    }

    /// Returns the process, if one was started.
    pub fn process(&self) -> Option<&SpooledProcess> {
        self.process.as_ref()
    }

    /// Returns whether no process carried the marker of the run when the spool was found. None can start afterwards,
    /// because the owner of the turn has released the spool.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Returns the end of the process, if it was recorded.
    pub fn ended(&self) -> Option<Ending> {
        self.ended.clone().map(Ending::from)
    }

    /// Returns the path of the output.
    pub fn output_path(&self) -> &Path {
        &self.output_path
    }

    /// Opens the output for the process that is to write it.
    pub fn output(&self) -> Result<File, SpoolError> {
        let append = OFlags::WRONLY | OFlags::APPEND;
        self.folder.open_file(name_of(&self.output_path), append).map_err(at(&self.output_path))
    }

    fn errors_path(&self) -> PathBuf {
        self.header_path.with_extension(ERRORS)
    }

    /// Opens what the process writes to standard error. A file like the output: it outlives us.
    pub fn errors(&self) -> Result<File, SpoolError> {
        let path = self.errors_path();
        self.folder.open_file(name_of(&path), READ_AND_APPEND).map_err(at(&path))
    }

    /// Returns the number of bytes that the process wrote to standard output.
    pub(crate) fn output_length(&self) -> u64 {
        length(&self.output_path)
    }

    /// Returns the number of bytes that the process wrote to standard output and standard error.
    pub(crate) fn printed(&self) -> u64 {
        length(&self.output_path).saturating_add(length(&self.errors_path()))
    }

    /// Returns the beginning and the end of what was written to standard error, at most so many bytes.
    pub fn errors_text(&self, limit: usize) -> String {
        // Only for a message: if it cannot be read, it counts as empty.
        self.errors()
            .ok()
            .and_then(|file| Excerpt::of_file(&file, limit).ok())
            .map(|excerpt| excerpt.to_string())
            .unwrap_or_default()
    }

    /// Notes which process runs the turn.
    pub fn note_process(&mut self, process: SpooledProcess) -> Result<(), SpoolError> {
        self.process = Some(process.clone());
        self.write(&HeaderLine::Process(process))
    }

    /// Notes how the process ended.
    pub fn note_ended(&mut self, ending: &Ending) -> Result<(), SpoolError> {
        let ended = SpooledEnding::from(ending);
        self.ended = Some(ended.clone());
        self.write(&HeaderLine::Ended(ended))
    }

    /// Notes where the turn is in the store.
    pub(crate) fn note_stored(&mut self, stored: StoredTurn) -> Result<(), SpoolError> {
        self.stored = Some(stored.clone());
        self.write(&HeaderLine::Stored(stored))
    }

    /// Returns the place of the turn in the store, if it was noted.
    pub(crate) fn stored(&self) -> Option<&StoredTurn> {
        self.stored.as_ref()
    }

    /// Returns the files that become the original of the turn; `None` if it gets none.
    pub(crate) fn original(&self, first: Seq, last: Seq) -> Option<NewOriginal> {
        // An agent that printed nothing leaves no original. One whose output was moved has one already.
        let is_empty = fs::symlink_metadata(&self.output_path).is_ok_and(|found| found.len() == 0);
        (self.keeps_original && !is_empty).then(|| NewOriginal {
            run: self.turn.run.clone(),
            first,
            last,
            header: self.header_path.clone(),
            output: self.output_path.clone(),
            more: Some(self.more_path()).filter(|more| is_there(more)),
        })
    }

    fn more_path(&self) -> PathBuf {
        self.header_path.with_extension(MORE)
    }

    /// Opens the output to read it from its beginning.
    pub(crate) fn read_output(&self) -> Result<File, SpoolError> {
        self.folder.open_file(name_of(&self.output_path), OFlags::RDONLY).map_err(at(&self.output_path))
    }

    /// Writes the lines that follow the output in the original of the turn. What an earlier attempt has left is replaced.
    pub(crate) fn write_more(
        &self,
        mut next_line: impl FnMut() -> io::Result<Option<Vec<u8>>>,
    ) -> Result<u64, SpoolError> {
        let path = self.more_path();
        let name = name_of(&path);
        let mut write = || {
            self.folder.remove(name)?;
            let mut file = self.folder.create_file(name, OFlags::WRONLY)?;
            let mut bytes = 0;
            while let Some(line) = next_line()? {
                file.write_all(&line)?;
                bytes += line.len() as u64;
            }
            Ok(bytes)
        };
        write().map_err(at(&path))
    }

    /// Removes what was to follow the output.
    pub(crate) fn remove_more(&self) -> Result<(), SpoolError> {
        let path = self.more_path();
        self.folder.remove(name_of(&path)).map_err(at(&path))
    }

    /// Removes what the process wrote to standard error: the header has what is kept of it.
    pub(crate) fn remove_errors(&self) -> Result<(), SpoolError> {
        let path = self.errors_path();
        self.folder.remove(name_of(&path)).map_err(at(&path))
    }

    /// Removes the spool: the turn is in the store, and its files that became the original are elsewhere. Returns whether the
    /// removal is durable.
    ///
    /// The output is removed first. If azureal dies in between, the next one finds the header alone, and the store
    /// shows that it has the turn.
    pub fn remove(self) -> Result<bool, SpoolError> {
        for path in [&self.output_path, &self.errors_path(), &self.more_path(), &self.header_path] {
            self.folder.remove(name_of(path)).map_err(at(path))?;
        }
        Ok(self.folder.sync().is_ok())
    }

    /// Removes all but the output, and returns where that is: the turn is in the store, but not all that was
    /// printed could be read.
    pub fn keep_output(self) -> Result<PathBuf, SpoolError> {
        for path in [&self.errors_path(), &self.header_path] {
            self.folder.remove(name_of(path)).map_err(at(path))?;
        }
        Ok(self.output_path.clone())
    }

    pub(crate) fn write(&mut self, line: &HeaderLine) -> Result<(), SpoolError> {
        add_line(&mut self.header, line, &self.header_path)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // Not by closing it: for a moment, any process that another thread starts has it open too, and would be taken for the
        // owner.
        drop(self.header.unlock());
    }
}

/// Creates an unfinished header, which is locked before it has content: no process can find it without an owner.
pub(crate) fn create_locked(folder: &Folder, path: &Path) -> Result<File, SpoolError> {
    // A cleanup would take it for a leftover before it is locked.
    let _creating = folder.lock(CLEANUP).map_err(at(path))?;
    loop {
        let header = folder.create_file(name_of(path), READ_AND_APPEND).map_err(at(path))?;
        header.lock().map_err(at(path))?;
        // Another process may have taken it for a leftover before it was locked.
        if folder.has(name_of(path), &header) {
            return Ok(header);
        }
    }
}

/// Adds a line to a header, in one write: other processes add lines too. A line before it that was cut, because the disk was full,
/// is ended.
pub(crate) fn add_line(header: &mut File, line: &HeaderLine, path: &Path) -> Result<(), SpoolError> {
    let mut text = line_of(line, path)?;
    if !ends_with_line(header).map_err(at(path))? {
        text.insert(0, '\n');
    }
    header.write_all(text.as_bytes()).map_err(at(path))
}

/// Returns whether a file is empty, or its last line is whole.
fn ends_with_line(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(true) };
    let mut byte = [b'\n'];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte == *b"\n")
}

fn line_of(line: &HeaderLine, path: &Path) -> Result<String, SpoolError> {
    let text = serde_json::to_string(line).map_err(|error| at(path)(error.into()))?;
    Ok(text + "\n")
}

/// Returns the length of a file; 0 if it does not exist.
fn length(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |file| file.len())
}

pub(crate) const READ_AND_APPEND: OFlags = OFlags::RDWR.union(OFlags::APPEND);

/// Returns the name of a file in its folder.
pub(crate) fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Seek;

    use azureal_core::agent::Exit;
    use azureal_core::event::Outcome;

    use super::*;
    use crate::header::{Header, LARGEST_HEADER};
    use crate::{CancelNoted, FoundSpool, SpoolOwner};

    pub(crate) fn turn(run: &str) -> SpooledTurn {
        SpooledTurn {
            run: run.into(),
            session: 3,
            session_made: String::new(),
            after: 0,
            generation: None,
            prompt: "do \"it\"\nnow".into(),
            goes_on: false,
            agent: "claude".into(),
            model: None,
            switches_model: false,
            used_in: None,
            directory: "/p".into(),
            started_at: "2026-01-31T09:30:00Z".into(),
        }
    }

    /// Finds the one spool there is, and becomes its owner.
    pub(crate) fn taken(spools: &Spools) -> Spool {
        let mut found = spools.find().unwrap();
        let Some(FoundSpool::Orphan(orphan)) = found.pop() else { panic!("{found:?}") };
        orphan.take().unwrap().expect("no other process has it")
    }

    fn ending() -> Ending {
        Ending {
            exit: Some(Exit::Signal(9)),
            stderr: "ouch".into(),
            duration: Duration::from_millis(1500),
            stopped: Some(Outcome::Cancelled),
            ..Ending::default()
        }
    }

    #[test]
    fn a_spool_that_is_let_go_is_found_with_all_that_was_noted() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        assert!(spools.find().unwrap().is_empty());
        let mut spool = spools.begin(turn("a")).unwrap();
        spool.output().unwrap().write_all(b"line\n").unwrap();
        let process = SpooledProcess { pid: 7, began: "123".into(), before: None };
        spool.note_process(process.clone()).unwrap();

        // Another process sees whose it is, and leaves it alone.
        assert!(
            matches!(&spools.find().unwrap()[..], [FoundSpool::Owned(found, Some(_), SpoolOwner::Runs)] if **found == turn("a"))
        );
        spool.note_ended(&ending()).unwrap();
        assert!(matches!(&spools.find().unwrap()[..], [FoundSpool::Owned(_, _, SpoolOwner::Stores)]));
        drop(spool);
        let spool = taken(&spools);
        assert_eq!(
            (spool.turn(), spool.process(), spool.ended()),
            (&turn("a"), Some(&process), Some(ending()))
        );
        assert_eq!(fs::read(spool.output_path()).unwrap(), b"line\n");
        spool.remove().unwrap();
        assert_eq!(fs::read_dir(folder.path().join("spool")).unwrap().count(), 0);
    }

    #[test]
    fn a_turn_of_another_process_can_be_cancelled_until_its_end_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let process = SpooledProcess { pid: 7, began: "123".into(), before: None };
        for is_late in [false, true] {
            let mut spool = spools.begin(turn("a")).unwrap();
            spool.note_process(process.clone()).unwrap();
            let cancel = || spools.cancel(&turn("a")).unwrap();
            assert!(!spool.is_cancelled());
            if !is_late {
                assert_eq!(cancel(), CancelNoted::InTime(Some(process.clone())));
                assert!(spool.is_cancelled() && spool.cancel_sign().is_set_by_another());
            }
            let done = Ending { stopped: None, ..ending() };
            let expected = (!is_late).then_some(Outcome::Cancelled);
            assert_eq!(spool.close(done).0.stopped, expected);
            if is_late {
                assert_eq!(cancel(), CancelNoted::TooLate);
            }
            assert_eq!(spool.is_cancelled(), !is_late);
            drop(spool);
            // Whichever process stores it.
            let mut spool = taken(&spools);
            assert_eq!(spool.close(Ending::default()).0.stopped, expected);
            spool.remove().unwrap();
            assert_eq!(cancel(), CancelNoted::Gone);
            assert!(spools.find().unwrap().is_empty(), "one that is gone stays so");
        }
    }

    #[test]
    fn a_cancel_of_its_own_process_is_none_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let mut spool = spools.begin(turn("a")).unwrap();
        spool.cancel().unwrap();
        assert!(spool.is_cancelled() && !spool.cancel_sign().is_set_by_another());
        spools.cancel(&turn("a")).unwrap();
        assert!(spool.cancel_sign().is_set_by_another());
    }

    #[test]
    fn to_look_at_an_orphan_takes_it_from_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        drop(spools.begin(turn("a")).unwrap());
        let (one, other) = (spools.find().unwrap().pop().unwrap(), spools.find().unwrap().pop().unwrap());
        let (FoundSpool::Orphan(one), FoundSpool::Orphan(other)) = (one, other) else { panic!() };
        let mut spool = one.take().unwrap().unwrap();
        assert!(other.take().unwrap().is_none(), "it has an owner now");
        spool.close(Ending::default()).1.unwrap();
        assert!(matches!(&spools.find().unwrap()[..], [FoundSpool::Owned(_, _, SpoolOwner::Stores)]));
        let third = || spools.find().unwrap().pop().unwrap();
        drop(spool);
        let FoundSpool::Orphan(third) = third() else { panic!() };
        assert!(third.take().unwrap().unwrap().ended().is_some(), "what was noted since is known");
    }

    #[test]
    fn spools_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let spool = spools.begin(turn("a")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&folder.path().join("spool")), 0o700);
        assert_eq!((mode(spool.output_path()), mode(&spool.header_path)), (0o600, 0o600));
        assert!(spools.begin(turn("a")).is_err(), "a run has one spool");
    }

    #[test]
    fn a_header_that_was_cut_says_what_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let mut spool = spools.begin(turn("a")).unwrap();
        spool.note_process(SpooledProcess { pid: 7, began: "1".into(), before: None }).unwrap();
        let path = spool.header_path.clone();
        drop(spool);
        let whole = fs::read(&path).unwrap();
        let first_line = whole.iter().position(|byte| *byte == b'\n').unwrap();
        for cut in 1..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let found = spools.find().unwrap().pop().unwrap();
            match found {
                FoundSpool::Unreadable(_) => assert!(cut < first_line),
                FoundSpool::Orphan(spool) => {
                    let spool = spool.take().unwrap().unwrap();
                    assert!(cut >= first_line);
                    assert_eq!(spool.turn(), &turn("a"));
                    assert_eq!(spool.process().is_some(), cut >= whole.len() - 1, "{cut}");
                }
                FoundSpool::Owned(..) => panic!("nobody owns it"),
            }
        }
    }

    #[test]
    fn what_is_noted_after_a_line_that_was_cut_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let mut spool = spools.begin(turn("a")).unwrap();
        // The disk was full for a moment.
        let mut header = fs::OpenOptions::new().append(true).open(&spool.header_path).unwrap();
        header.write_all(b"{\"process\":{\"pid\":7,").unwrap();
        assert_eq!(spools.cancel(&turn("a")).unwrap(), CancelNoted::InTime(None));
        assert!(spool.is_cancelled() && spool.cancel_sign().is_set_by_another());
        header.write_all(b"{\"proc").unwrap();
        spool.note_ended(&ending()).unwrap();
        drop(spool);
        assert_eq!(taken(&spools).ended(), Some(ending()));
    }

    #[test]
    fn an_empty_header_is_a_turn_that_never_began_unless_there_is_output() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let spool = spools.begin(turn("a")).unwrap();
        let (header, output) = (spool.header_path.clone(), spool.output_path.clone());
        fs::write(&header, "").unwrap();
        assert!(
            matches!(&spools.find().unwrap()[..], [FoundSpool::Unreadable(_)]),
            "somebody holds it, so it is left alone"
        );
        drop(spool);
        fs::write(&output, "line\n").unwrap();
        assert!(matches!(&spools.find().unwrap()[..], [FoundSpool::Unreadable(path)] if *path == header));
        fs::write(&output, "").unwrap();
        assert!(spools.find().unwrap().is_empty());
        assert_eq!(fs::read_dir(folder.path().join("spool")).unwrap().count(), 0);
    }

    #[test]
    fn a_header_is_read_up_to_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let spool = spools.begin(turn("a")).unwrap();
        let sparse = |start: &str| {
            fs::write(&spool.header_path, start).unwrap();
            let file = fs::OpenOptions::new().write(true).open(&spool.header_path).unwrap();
            file.set_len(20 << 30).unwrap();
            let mut file = File::open(&spool.header_path).unwrap();
            Header::read(&file).unwrap();
            assert!(file.stream_position().unwrap() <= LARGEST_HEADER);
            spools.find().unwrap().pop().unwrap()
        };
        assert!(matches!(sparse(""), FoundSpool::Unreadable(_)));
        assert!(matches!(sparse("{\"turn\":\""), FoundSpool::Unreadable(_)));
        let whole = line_of(&HeaderLine::Turn(turn("a")), &spool.header_path).unwrap();
        assert!(matches!(sparse(&whole), FoundSpool::Owned(found, None, _) if *found == turn("a")));
        assert!(!spool.is_cancelled());
    }

    #[test]
    fn a_header_that_names_the_files_of_another_run_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let spool = spools.begin(turn("a")).unwrap();
        let header = spool.header_path.clone();
        drop(spool);
        let forged = line_of(&HeaderLine::Turn(turn("../../precious")), &header).unwrap();
        fs::write(&header, forged).unwrap();
        assert!(matches!(&spools.find().unwrap()[..], [FoundSpool::Unreadable(path)] if *path == header));
    }

    #[test]
    fn output_with_a_second_name_elsewhere_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        let spool = spools.begin(turn("a")).unwrap();
        fs::hard_link(spool.output_path(), folder.path().join("elsewhere")).unwrap();
        let error = spool.output().unwrap_err().to_string();
        assert!(error.ends_with("has another name elsewhere (a hard link)"), "{error}");
    }

    #[test]
    fn one_of_many_who_look_at_once_gets_an_orphan() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"));
        for round in 0..50 {
            drop(spools.begin(turn(&round.to_string())).unwrap());
            let barrier = std::sync::Barrier::new(4);
            let stored: usize = std::thread::scope(|scope| {
                let seekers: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            barrier.wait();
                            let mut stored = 0;
                            for found in spools.find().unwrap() {
                                let FoundSpool::Orphan(orphan) = found else { continue };
                                if let Some(spool) = orphan.take().unwrap() {
                                    stored += 1;
                                    spool.remove().unwrap();
                                }
                            }
                            stored
                        })
                    })
                    .collect();
                seekers.into_iter().map(|seeker| seeker.join().unwrap()).sum()
            });
            assert_eq!(stored, 1);
        }
    }
}
