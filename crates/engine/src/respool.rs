//! A spool that was deleted while its agent ran, as `git clean -fdx` does where spools are in the worktree.
//!
//! Header and output are still open, so all that the agent has printed is there. It is written to new files of the same names
//! before the turn is stored.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Seek};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use azureal_files::Folder;

use crate::spool::{READ_AND_APPEND, Spool, SpoolError, UNFINISHED, at, name_of};

impl Spool {
    /// Writes the spool again if its files were deleted; returns whether they were. Call it when the agent has ended.
    ///
    /// Only for a turn that this process has run from its beginning: another process has nothing open.
    pub(crate) fn put_back(&mut self) -> Result<bool, SpoolError> {
        let Some(output) = &self.output_file else { return Ok(false) };
        if self.folder.has(name_of(&self.output_path), output)
            && self.folder.has(name_of(&self.header_path), &self.header)
        {
            return Ok(false);
        }
        let Some(path) = self.header_path.parent().map(Path::to_owned) else { return Ok(false) };
        let folder = open_or_create(&path).map_err(at(&path))?;
        let output = copy_to(&folder, &self.output_path, output).map_err(at(&self.output_path))?;
        let unfinished = self.header_path.with_extension(UNFINISHED);
        let header = copy_to(&folder, &unfinished, &self.header).map_err(at(&unfinished))?;
        // Locked before it has its name, so that no process can find it without an owner.
        header.lock().map_err(at(&unfinished))?;
        folder.rename(name_of(&unfinished), name_of(&self.header_path)).map_err(at(&self.header_path))?;
        self.folder = folder;
        self.header = header;
        self.output_file = Some(output);
        Ok(true)
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

/// Writes the content of an open file to a new one. What is left of an earlier attempt is replaced.
fn copy_to(folder: &Folder, path: &Path, from: &File) -> io::Result<File> {
    let name = name_of(path);
    folder.remove(name)?;
    let mut copy = folder.create_file(name, READ_AND_APPEND)?;
    let mut from = from.try_clone()?;
    from.rewind()?;
    io::copy(&mut from, &mut copy)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use crate::spool::tests::turn;
    use crate::{FoundSpool, Spools};

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
                matches!(&found[..], [FoundSpool::Owned(found, None, _)] if **found == turn("a")),
                "{found:?}"
            );
            drop(spool);
            let Some(FoundSpool::Orphan(spool)) = spools.find().unwrap().pop() else { panic!() };
            spool.take().unwrap().unwrap().remove().unwrap();
            assert!(spools.find().unwrap().is_empty());
        }
    }
}
