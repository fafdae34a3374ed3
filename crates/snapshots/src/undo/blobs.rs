//! The contents of many objects, in one file.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::FileExt;

use azureal_process::Stream;
use rustix::fs::OFlags;

use crate::error::{At, Error};
use crate::git::{Deadline, PATIENT, args};
use crate::worktree::{Home, Worktree};

pub(crate) const FILE: &str = "undo.blobs";
/// The bound on all contents together.
const TOTAL: u64 = 4_000_000_000;
const PIECE: usize = 64 * 1024;

/// Contents by object id.
pub(crate) struct Blobs {
    file: File,
    places: BTreeMap<String, (u64, u64)>,
}

impl Worktree {
    /// Reads objects. Those that are no longer stored are left out.
    pub(crate) fn blobs(&self, home: &Home, ids: BTreeSet<String>) -> Result<Blobs, Error> {
        let path = home.own.join(FILE);
        let name = OsStr::new(FILE);
        home.own.remove(name).at(&path)?;
        let mut file = home.own.create_file(name, OFlags::RDWR | OFlags::APPEND).at(&path)?;
        // Without a name, it is gone with this process.
        home.own.remove(name).at(&path)?;
        let found = self.sizes(&self.borrowing(), ids, Deadline::after(PATIENT))?.found;
        if found.iter().map(|(_, size)| *size).sum::<u64>() > TOTAL {
            return Err(Error::TooMuch { command: "cat-file".to_owned(), limit: TOTAL as usize });
        }
        let list: String = found.iter().flat_map(|(id, _)| [id.as_str(), "\n"]).collect();
        if !list.is_empty() {
            let stdout = Stream::File(file.try_clone().at(&path)?);
            let command = args(["cat-file", "--batch", "--buffer"]);
            self.borrowing()
                .start_into(&command, list.into_bytes(), stdout)?
                .finish(Deadline::after(PATIENT))?;
        }
        file.rewind().at(&path)?;
        let places = parse(&file).at(&path)?;
        Ok(Blobs { file, places })
    }
}

/// Reads the headers: the id, the kind and the size, before each content.
fn parse(file: &File) -> io::Result<BTreeMap<String, (u64, u64)>> {
    let mut reader = BufReader::new(file);
    let mut places = BTreeMap::new();
    let mut at = 0;
    loop {
        let mut header = Vec::new();
        let read = (&mut reader).take(200).read_until(b'\n', &mut header)?;
        if read == 0 {
            return Ok(places);
        }
        let header = String::from_utf8_lossy(&header).into_owned();
        at += read as u64;
        let words: Vec<&str> = header.split_whitespace().collect();
        if let [id, kind, size] = words.as_slice() {
            let size: u64 = size.parse().map_err(io::Error::other)?;
            if *kind == "blob" {
                places.insert((*id).to_owned(), (at, size));
            }
            at += size + 1;
            reader.seek(io::SeekFrom::Start(at))?;
        }
    }
}

impl Blobs {
    pub(crate) fn has(&self, id: &str) -> bool {
        self.places.contains_key(id)
    }

    /// Returns whether a file has exactly this content.
    pub(crate) fn is_content_of(&self, id: &str, file: &mut impl Read, length: u64) -> io::Result<bool> {
        let Some((_, size)) = self.places.get(id) else { return Ok(false) };
        if *size != length {
            return Ok(false);
        }
        let mut theirs = vec![0; PIECE];
        let mut is_same = true;
        self.each_piece(id, |ours| {
            let theirs = theirs.get_mut(..ours.len()).unwrap_or_default();
            match file.read_exact(theirs) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => is_same = false,
                read => read?,
            }
            is_same &= theirs == ours;
            Ok(is_same)
        })?;
        // It may have grown meanwhile.
        Ok(is_same && file.read(theirs.get_mut(..1).unwrap_or_default())? == 0)
    }

    /// Writes a content to a file.
    pub(crate) fn write(&self, id: &str, file: &mut impl Write) -> io::Result<()> {
        self.each_piece(id, |piece| file.write_all(piece).map(|()| true))
    }

    /// Returns a short content, such as the target of a link.
    pub(crate) fn read(&self, id: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.each_piece(id, |piece| {
            bytes.extend(piece);
            Ok(bytes.len() <= PIECE)
        })?;
        Ok(bytes)
    }

    fn each_piece(&self, id: &str, mut work: impl FnMut(&[u8]) -> io::Result<bool>) -> io::Result<()> {
        let (at, size) = self.places.get(id).copied().ok_or(io::ErrorKind::NotFound)?;
        let mut piece = vec![0; PIECE];
        let mut done = 0;
        while done < size {
            let length = PIECE.min(usize::try_from(size - done).unwrap_or(PIECE));
            let part = piece.get_mut(..length).unwrap_or_default();
            self.file.read_exact_at(part, at + done)?;
            done += length as u64;
            if !work(part)? {
                break;
            }
        }
        Ok(())
    }
}
