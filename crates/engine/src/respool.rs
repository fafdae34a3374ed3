//! A spool that was deleted while its agent ran, as `git clean -fdx` does where spools are in the worktree.
//!
//! Header and output are still open, so all that the agent has printed is there. What is missing is written again before the turn
//! is stored: a copy under another name, which then gets the name of the file. A file that is there is not touched: it may be the
//! only copy. The copy of the header is locked before it has content, so no process takes it for a leftover.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;

use azureal_files::Folder;

use crate::spool::{COPY, READ_AND_APPEND, Spool, SpoolError, UNFINISHED, at, create_locked, name_of};

impl Spool {
    /// Writes those files of the spool again that were deleted; returns whether one was. Call it when the agent has ended. If it
    /// fails, everything is as it was.
    ///
    /// Only for a turn that this process has run from its beginning: another process has nothing open.
    pub(crate) fn put_back(&mut self) -> Result<bool, SpoolError> {
        let Some(output) = &self.output_file else { return Ok(false) };
        let has_output = self.folder.has(name_of(&self.output_path), output);
        let has_header = self.folder.has(name_of(&self.header_path), &self.header);
        if has_output && has_header {
            return Ok(false);
        }
        let Some(path) = self.header_path.parent().map(Path::to_owned) else { return Ok(false) };
        let folder = open_or_create(&path).map_err(at(&path))?;
        let (unfinished, copy) =
            (self.header_path.with_extension(UNFINISHED), self.header_path.with_extension(COPY));
        let put_back = self.put_back_in(&folder, has_header, has_output);
        if put_back.is_err() {
            // What does not go either is a leftover for the next command.
            drop(folder.remove(name_of(&copy)));
            if !has_header {
                drop(folder.remove(name_of(&unfinished)));
            }
        }
        put_back.map(|()| true)
    }

    fn put_back_in(&mut self, folder: &Folder, has_header: bool, has_output: bool) -> Result<(), SpoolError> {
        let unfinished = self.header_path.with_extension(UNFINISHED);
        let header = match has_header {
            true => None,
            false => {
                let header = create_locked(folder, &unfinished)?;
                copy_to(&self.header, &header).map_err(at(&unfinished))?;
                Some(header)
            }
        };
        if !has_output && let Some(output) = &self.output_file {
            let copy_path = self.header_path.with_extension(COPY);
            // Left over from an attempt that failed.
            folder.remove(name_of(&copy_path)).map_err(at(&copy_path))?;
            let copy = folder.create_file(name_of(&copy_path), READ_AND_APPEND).map_err(at(&copy_path))?;
            copy_to(output, &copy).map_err(at(&copy_path))?;
            folder.rename(name_of(&copy_path), name_of(&self.output_path)).map_err(at(&self.output_path))?;
            self.output_file = Some(copy);
        }
        if let Some(header) = header {
            let cancel = self.cancel.written_again(folder, name_of(&unfinished)).map_err(at(&unfinished))?;
            folder.rename(name_of(&unfinished), name_of(&self.header_path)).map_err(at(&self.header_path))?;
            (self.header, self.cancel) = (header, cancel);
        }
        self.folder = folder.clone();
        Ok(())
    }
}

/// Opens the folder of the spools, and creates it with the folder that it is in.
fn open_or_create(path: &Path) -> io::Result<Folder> {
    match Folder::open_or_create(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let Some(parent) = path.parent() else { return Err(error) };
            match DirBuilder::new().mode(0o700).create(parent) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
            Folder::open_or_create(path)
        }
        opened => opened,
    }
}

/// Copies the content of an open file, from its beginning, to another one.
fn copy_to(from: &File, mut to: &File) -> io::Result<()> {
    let (mut piece, mut at) = (vec![0; 64 << 10], 0);
    loop {
        let read = match from.read_at(&mut piece, at) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        io::Write::write_all(&mut to, piece.get(..read).unwrap_or_default())?;
        at += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use crate::spool::tests::{taken, turn};
    use crate::spool::{COPY, OUTPUT, UNFINISHED};
    use crate::{FoundSpool, SpoolOwner, Spools};

    #[test]
    fn a_spool_that_is_deleted_while_it_is_written_is_put_back() {
        for is_folder_gone in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let spools = Spools::new(folder.path().join(".azureal/spool"));
            fs::create_dir(folder.path().join(".azureal")).unwrap();
            let mut spool = spools.begin(turn("a")).unwrap();
            let mut output = spool.output().unwrap();
            output.write_all(b"one\n").unwrap();
            assert!(!spool.put_back().unwrap(), "it is there");
            if is_folder_gone {
                fs::remove_dir_all(folder.path().join(".azureal")).unwrap();
            } else {
                fs::remove_file(spool.output_path()).unwrap();
            }
            output.write_all(b"two\n").unwrap();
            assert!(spool.put_back().unwrap());
            assert_eq!(fs::read_to_string(spool.output_path()).unwrap(), "one\ntwo\n");
            let found = spools.find().unwrap();
            assert!(
                matches!(&found[..], [FoundSpool::Owned(found, None, SpoolOwner::Runs)] if **found == turn("a")),
                "{found:?}"
            );
            drop(spool);
            let Some(FoundSpool::Orphan(spool)) = spools.find().unwrap().pop() else { panic!() };
            spool.take().unwrap().unwrap().remove().unwrap();
            assert!(spools.find().unwrap().is_empty());
        }
    }

    fn spooled(folder: &std::path::Path) -> (Spools, crate::Spool) {
        let spools = Spools::new(folder.join("spool"));
        let spool = spools.begin(turn("a")).unwrap();
        spool.output().unwrap().write_all(b"one\n").unwrap();
        (spools, spool)
    }

    #[test]
    fn an_output_that_is_there_is_not_copied_when_the_header_alone_was_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let (spools, mut spool) = spooled(folder.path());
        let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(spool.output_path()).unwrap());
        let before = inode();
        fs::remove_file(&spool.header_path).unwrap();
        let path = spool.output_path().to_owned();
        assert!(spool.put_back().unwrap());
        assert_eq!(std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap()), before);
        spools.cancel(&turn("a")).unwrap();
        assert!(spool.is_cancelled(), "a cancel is found in the new header");
        drop(spool);
        taken(&spools).remove().unwrap();
    }

    #[test]
    fn a_spool_that_cannot_be_put_back_is_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (_, mut spool) = spooled(folder.path());
        fs::remove_file(&spool.header_path).unwrap();
        // Where its copy would be.
        let unfinished = spool.header_path.with_extension(UNFINISHED);
        fs::create_dir(&unfinished).unwrap();
        spool.put_back().unwrap_err();
        assert_eq!(fs::read_to_string(spool.output_path()).unwrap(), "one\n");
        fs::remove_dir(unfinished).unwrap();
        assert!(spool.put_back().unwrap(), "the next attempt finds all that it needs");
    }

    #[test]
    fn an_azureal_that_dies_while_it_puts_a_spool_back_loses_no_output() {
        let folder = tempfile::tempdir().unwrap();
        let (spools, spool) = spooled(folder.path());
        let (header, unfinished) = (spool.header_path.clone(), spool.header_path.with_extension(UNFINISHED));
        let whole = fs::read(&header).unwrap();
        // The header was deleted. At every byte of its copy, the process dies.
        drop(spool);
        for cut in 0..=whole.len() {
            fs::rename(&header, &unfinished).unwrap();
            fs::write(&unfinished, &whole[..cut]).unwrap();
            let found = spools.find().unwrap();
            assert_eq!(fs::read_to_string(header.with_extension(OUTPUT)).unwrap(), "one\n", "{cut}");
            assert_eq!(found.is_empty(), cut < whole.len() - 1, "{cut}: {found:?}");
            if found.is_empty() {
                fs::rename(&unfinished, &header).unwrap();
            }
        }
        // Of an output, a copy that is not whole: its owner is gone, and with it what was not copied.
        fs::write(header.with_extension(COPY), "on").unwrap();
        fs::remove_file(&header).unwrap();
        assert!(spools.find().unwrap().is_empty());
        assert!(!header.with_extension(COPY).exists());
    }
}
