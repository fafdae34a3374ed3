//! Objects of ours that are in no pack yet.
//!
//! Git writes them without a sync. So one that this process did not see being written may be empty or cut after a power loss, and git takes
//! any file of the right name for the object. They are provisional: each process checks them once, and the end of a turn puts them into a pack.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};

use azureal_files::Folder;
use azureal_process::Stream;
use flate2::Compression;
use flate2::bufread::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rustix::fs::OFlags;

use crate::error::{At, Error};
use crate::git::{Deadline, args};
use crate::prune::is_fan_out;
use crate::worktree::{Home, Worktree};

/// The bound on the kind and the size at the beginning of an object.
const HEADER: usize = 64;
/// The contents of copied objects, while they are copied.
const COPIES: &str = "copies";

/// What is found in the place of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Sound,
    /// It is empty, cut or another content.
    Damaged,
    /// Another process has packed it and removed the file.
    Gone,
}

/// A file of an object.
pub(crate) struct Loose {
    pub(crate) folder: Folder,
    pub(crate) name: OsString,
    pub(crate) id: String,
}

impl Loose {
    pub(crate) fn size(&self) -> u64 {
        self.folder.size(&self.name)
    }

    pub(crate) fn remove(&self) -> Result<(), Error> {
        self.folder.remove(&self.name).at(&self.folder.join(&self.name))
    }

    /// Returns whether the file has a whole object. A file that cannot be opened may have one: that is an error, and no damage.
    pub(crate) fn condition(&self, deadline: Deadline<'_>) -> Result<Condition, Error> {
        let path = self.folder.join(&self.name);
        let file = match self.folder.open_shared_file(&self.name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Condition::Gone),
            opened => opened.at(&path)?,
        };
        let length = file.metadata().at(&path)?.len();
        let mut decoder = ZlibDecoder::new(BufReader::new(file));
        let Some(size) = read_header(&mut decoder) else { return Ok(Condition::Damaged) };
        let (mut read, mut piece) = (0, vec![0; 64 * 1024]);
        loop {
            if deadline.is_over() {
                return Err(Error::Slow { command: "objects".to_owned(), after: deadline.limit });
            }
            match decoder.read(&mut piece) {
                // The end of the stream has a checksum.
                Ok(0) if read == size && decoder.total_in() == length => return Ok(Condition::Sound),
                Ok(more) if more > 0 => read += more as u64,
                _ => return Ok(Condition::Damaged),
            }
            if read > size {
                return Ok(Condition::Damaged);
            }
        }
    }
}

/// Reads the kind and the size, and returns the size.
fn read_header(object: &mut impl Read) -> Option<u64> {
    let mut header = Vec::new();
    let mut byte = [0];
    loop {
        object.read_exact(&mut byte).ok()?;
        match byte {
            [0] => break,
            [byte] if header.len() < HEADER => header.push(byte),
            _ => return None,
        }
    }
    let (kind, size) = std::str::from_utf8(&header).ok()?.split_once(' ')?;
    ["blob", "tree", "commit", "tag"].contains(&kind).then(|| size.parse().ok())?
}

/// Lists the objects that are in no pack. Only names that git gives to objects count.
pub(crate) fn loose(objects: &Folder) -> Result<Vec<Loose>, Error> {
    let mut found = Vec::new();
    for fan_out in objects.names().at(&objects.join(""))? {
        if !is_fan_out(&fan_out) {
            continue;
        }
        let Ok(folder) = objects.open_folder(&fan_out) else { continue };
        for name in folder.names().at(&folder.join(""))? {
            let id = format!("{}{}", fan_out.display(), name.display());
            if crate::is_id(&id) {
                found.push(Loose { folder: folder.clone(), name, id });
            }
        }
    }
    Ok(found)
}

/// Removes objects that are in no pack. The folders stay: another process may be about to write into one that is empty.
pub(crate) fn remove(objects: &[Loose]) -> Result<(), Error> {
    objects.iter().try_for_each(Loose::remove)
}

impl Worktree {
    /// Copies objects of the project to objects of ours.
    pub(crate) fn copy_objects(&self, ids: &[String], deadline: Deadline<'_>) -> Result<(), Error> {
        let home = self.open_home()?;
        let (name, path) = (OsStr::new(COPIES), home.own.join(COPIES));
        home.own.remove(name).at(&path)?;
        let mut file = home.own.create_file(name, OFlags::RDWR | OFlags::APPEND).at(&path)?;
        // Without a name, it is gone with this process.
        home.own.remove(name).at(&path)?;
        let list: String = ids.iter().flat_map(|id| [id.as_str(), "\n"]).collect();
        let stdout = Stream::File(file.try_clone().at(&path)?);
        let command = args(["cat-file", "--batch", "--buffer"]);
        self.borrowing().start_into(&command, list.into_bytes(), stdout)?.finish(deadline)?;
        file.rewind().at(&path)?;
        let mut reader = BufReader::new(file);
        let mut header = String::new();
        while (&mut reader).take(200).read_line(&mut header).at(&path)? > 0 {
            if deadline.is_over() {
                return Err(Error::Slow { command: "cat-file".to_owned(), after: deadline.limit });
            }
            let words: Vec<&str> = header.split_whitespace().collect();
            if let [id, kind, size] = words.as_slice()
                && let Ok(size) = size.parse::<u64>()
            {
                write_object(&home, id, kind, &mut (&mut reader).take(size), size).at(&path)?;
                reader.read_exact(&mut [0]).at(&path)?;
            }
            header.clear();
        }
        Ok(())
    }
}

/// Writes an object as git does.
fn write_object(home: &Home, id: &str, kind: &str, content: &mut impl Read, size: u64) -> io::Result<()> {
    let (fan_out, name) = id.split_at_checked(2).ok_or(io::ErrorKind::InvalidData)?;
    let folder = home.objects.open_or_create_folder(OsStr::new(fan_out))?;
    let temporary = OsString::from(format!("tmp_obj_{}-{name}", std::process::id()));
    folder.remove(&temporary)?;
    let file = folder.create_file(&temporary, OFlags::WRONLY)?;
    let mut encoder = ZlibEncoder::new(file, Compression::fast());
    write!(encoder, "{kind} {size}\0")?;
    if io::copy(content, &mut encoder)? != size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let file: File = encoder.finish()?;
    drop(file);
    folder.rename(&temporary, OsStr::new(name))
}
