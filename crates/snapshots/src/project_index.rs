//! The project's index, read without git, and written as the first index of the snapshots.
//!
//! The index says which files are tracked, and with which size and time each had which content. A snapshot that starts from it
//! reads only files that changed. The format is `gitformat-index(5)`, versions 2 to 4.

use std::ops::Range;

use crate::places::ObjectFormat;

/// The bytes of an entry before its object id: times, device, inode, mode, owner, size.
const STAT: usize = 40;
const MODE: Range<usize> = 24..28;
const SIZE: Range<usize> = 36..40;
const EXTENDED: u16 = 0x4000;
const STAGE: u16 = 0x3000;
const NAME: u16 = 0x0fff;
const SKIP_WORKTREE: u16 = 0x4000;
const INTENT_TO_ADD: u16 = 0x2000;
const GITLINK: u32 = 0o160_000;
const SPARSE_DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
pub(crate) const REGULAR: u32 = 0o100_000;

/// An index, as entries in its order.
#[derive(Default)]
pub(crate) struct ProjectIndex {
    pub(crate) entries: Vec<Entry>,
    /// The ids of the trees that the entries make, as git has them. `None` if the entries are others now.
    trees: Option<Vec<u8>>,
    /// The id of the index that has the other entries. `None` if this one has all.
    pub(crate) shared: Option<Vec<u8>>,
}

/// A tracked file.
pub(crate) struct Entry {
    stat: [u8; STAT],
    id: [u8; 32],
    pub(crate) path: Vec<u8>,
}

impl Entry {
    pub(crate) fn mode(&self) -> u32 {
        number(&self.stat, MODE)
    }

    /// Returns the size of the file that git saw last, modulo 2³².
    pub(crate) fn size(&self) -> u32 {
        number(&self.stat, SIZE)
    }

    /// Makes git hash the file again: no file has this time and size.
    pub(crate) fn forget(&mut self) {
        for range in [0..16, SIZE] {
            self.stat.get_mut(range).unwrap_or_default().fill(0);
        }
    }

    /// Returns its object id.
    pub(crate) fn id(&self, format: ObjectFormat) -> &[u8] {
        self.id.get(..format.length()).unwrap_or_default()
    }
}

/// Returns an object id as text.
pub(crate) fn hex(id: &[u8]) -> String {
    let mut text = String::with_capacity(id.len() * 2 + 1);
    for digit in id.iter().flat_map(|byte| [byte >> 4, byte & 15]) {
        text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
    }
    text
}

impl ProjectIndex {
    /// Parses an index. `is_there` says whether a path is in the worktree, and `is_left_out`
    /// whether it belongs into no snapshot.
    pub(crate) fn parse(
        bytes: &[u8],
        format: ObjectFormat,
        mut is_there: impl FnMut(&[u8]) -> bool,
        is_left_out: impl Fn(&[u8]) -> bool,
    ) -> Result<Self, &'static str> {
        let mut reader = Reader { bytes, at: 0 };
        let (version, count) = reader.header()?;
        let mut index = Self { entries: Vec::with_capacity(count.min(1 << 20) as usize), ..Self::default() };
        let mut path = Vec::new();
        let mut is_changed = false;
        for _ in 0..count {
            let (mut entry, flags, more) = reader.entry(version, format, &mut path)?;
            let stage = flags & STAGE;
            let is_special = stage != 0 || more & (SKIP_WORKTREE | INTENT_TO_ADD) != 0;
            // Submodules, folders outside a sparse checkout, and versions of a merge that are no file now.
            let is_no_file =
                matches!(entry.mode(), GITLINK | SPARSE_DIRECTORY) || (is_special && !is_there(&entry.path));
            is_changed |= is_special;
            if is_no_file || is_left_out(&entry.path) {
                is_changed = true;
                continue;
            }
            if is_special {
                entry.forget();
            }
            match index.entries.last_mut() {
                Some(last) if stage != 0 && last.path == entry.path => *last = entry,
                _ => index.entries.push(entry),
            }
        }
        while let Some((name, data)) = reader.extension(format)? {
            match name {
                b"TREE" if !is_changed => index.trees = Some(data.to_vec()),
                b"link" => {
                    let id = data.get(..format.length()).ok_or(CUT)?;
                    index.shared = id.iter().any(|byte| *byte != 0).then(|| id.to_vec());
                }
                _ => {}
            }
        }
        Ok(index)
    }

    /// Returns whether the entries are such as git writes them: of files, in the order of their paths.
    pub(crate) fn is_sound(&self) -> bool {
        let is_file = |entry: &Entry| {
            matches!(entry.mode(), 0o100_644 | 0o100_755 | LINK) && entry.id.iter().any(|byte| *byte != 0)
        };
        self.entries.iter().all(is_file) && self.entries.is_sorted_by(|one, other| one.path < other.path)
    }

    /// Returns the id of the tree that all entries make, if the index says it.
    pub(crate) fn tree(&self, format: ObjectFormat) -> Option<String> {
        // An empty path, the number of entries and of subtrees, and the id. The number is negative if a change was made since.
        let rest = self.trees.as_ref()?.strip_prefix(b"\0")?;
        let line = rest.split(|byte| *byte == b'\n').next()?;
        let count: i64 = std::str::from_utf8(line).ok()?.split(' ').next()?.parse().ok()?;
        let id = rest.get(line.len() + 1..line.len() + 1 + format.length())?;
        (usize::try_from(count) == Ok(self.entries.len())).then(|| hex(id))
    }

    /// Writes the index in version 2. Its checksum is zero, which stands for none; git does not verify it.
    pub(crate) fn write(&self, format: ObjectFormat) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.entries.len() * 112);
        bytes.extend(b"DIRC");
        bytes.extend(2u32.to_be_bytes());
        bytes.extend(u32::try_from(self.entries.len()).unwrap_or(0).to_be_bytes());
        for entry in &self.entries {
            let start = bytes.len();
            bytes.extend(entry.stat);
            bytes.extend(entry.id(format));
            let length = u16::try_from(entry.path.len()).unwrap_or(NAME).min(NAME);
            bytes.extend(length.to_be_bytes());
            bytes.extend(&entry.path);
            let length = bytes.len() - start;
            bytes.resize(start + padded(length), 0);
        }
        if let Some(trees) = &self.trees {
            bytes.extend(b"TREE");
            bytes.extend(u32::try_from(trees.len()).unwrap_or(0).to_be_bytes());
            bytes.extend(trees);
        }
        bytes.resize(bytes.len() + format.length(), 0);
        bytes
    }
}

/// Returns the length of an entry with the NULs after its path: at least one, up to a multiple of eight.
fn padded(length: usize) -> usize {
    (length + 8) & !7
}

const CUT: &str = "it is cut short";

/// The name and the data of an extension.
type Extension<'a> = (&'a [u8], &'a [u8]);

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let end = self.at.checked_add(length).ok_or(CUT)?;
        let taken = self.bytes.get(self.at..end).ok_or(CUT)?;
        self.at = end;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, &'static str> {
        Ok(number(self.take(4)?, 0..4))
    }

    fn short(&mut self) -> Result<u16, &'static str> {
        Ok(self.take(2)?.iter().fold(0, |number, byte| number << 8 | u16::from(*byte)))
    }

    fn header(&mut self) -> Result<(u32, u32), &'static str> {
        if self.take(4)? != b"DIRC" {
            return Err("it is no index");
        }
        let version = self.number()?;
        if !(2..=4).contains(&version) {
            return Err("its version is not known");
        }
        Ok((version, self.number()?))
    }

    /// Reads an entry with its two sets of flags. `path` is that of the entry before it.
    fn entry(
        &mut self,
        version: u32,
        format: ObjectFormat,
        path: &mut Vec<u8>,
    ) -> Result<(Entry, u16, u16), &'static str> {
        let start = self.at;
        let stat: [u8; STAT] = self.take(STAT)?.try_into().map_err(|_| CUT)?;
        let mut id = [0; 32];
        id.get_mut(..format.length()).ok_or(CUT)?.copy_from_slice(self.take(format.length())?);
        let flags = self.short()?;
        let more = if version > 2 && flags & EXTENDED != 0 { self.short()? } else { 0 };
        let removed = if version == 4 { self.offset()? } else { path.len() };
        let kept = path.len().checked_sub(removed).ok_or("a path has a negative length")?;
        path.truncate(kept);
        let rest = self.bytes.get(self.at..).ok_or(CUT)?;
        let length = rest.iter().position(|byte| *byte == 0).ok_or(CUT)?;
        path.extend(self.take(length)?);
        if version == 4 {
            self.take(1)?;
        } else {
            let length = padded(self.at - start);
            self.at = start;
            self.take(length)?;
        }
        Ok((Entry { stat, id, path: path.clone() }, flags, more))
    }

    /// Reads a number of variable length, as in the offsets of packs.
    fn offset(&mut self) -> Result<usize, &'static str> {
        let mut byte = self.byte()?;
        let mut value = usize::from(byte & 127);
        while byte & 128 != 0 {
            byte = self.byte()?;
            value = (value + 1).checked_mul(128).ok_or(CUT)? | usize::from(byte & 127);
        }
        Ok(value)
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        self.take(1)?.first().copied().ok_or(CUT)
    }

    /// Reads the next extension. `None` if only the checksum is left.
    fn extension(&mut self, format: ObjectFormat) -> Result<Option<Extension<'a>>, &'static str> {
        if self.bytes.len() < self.at + format.length() + 8 {
            return Ok(None);
        }
        let name = self.take(4)?;
        let length = self.number()? as usize;
        Ok(Some((name, self.take(length)?)))
    }
}

fn number(bytes: &[u8], range: Range<usize>) -> u32 {
    bytes.get(range).unwrap_or_default().iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An index of version 2 with these paths.
    fn index(paths: &[&str]) -> Vec<u8> {
        let entry = |path: &&str| Entry { stat: [7; STAT], id: [5; 32], path: path.as_bytes().to_vec() };
        let trees = Some(b"\x002 0\n01234567890123456789".to_vec());
        let entries = paths.iter().map(entry).collect();
        ProjectIndex { entries, trees, shared: None }.write(ObjectFormat::Sha1)
    }

    fn parse(bytes: &[u8]) -> Result<ProjectIndex, &'static str> {
        ProjectIndex::parse(bytes, ObjectFormat::Sha1, |_| true, |path| path == b"left out")
    }

    #[test]
    fn a_written_index_is_read_again() {
        let long = "x".repeat(5000);
        let bytes = index(&["a", &long]);
        let read = parse(&bytes).unwrap();
        assert_eq!(read.entries.iter().map(|entry| entry.path.len()).collect::<Vec<_>>(), [1, 5000]);
        assert_eq!(read.tree(ObjectFormat::Sha1), Some(hex(b"01234567890123456789")));
        assert_eq!(read.write(ObjectFormat::Sha1), bytes);
        // The trees are no longer those of the entries.
        let fewer = parse(&index(&["a", "left out"])).unwrap();
        assert_eq!((fewer.entries.len(), fewer.tree(ObjectFormat::Sha1)), (1, None));
    }

    proptest! {
        #[test]
        fn a_damaged_index_is_an_error_or_another_index(
            at in 0usize..300, byte: u8, length in 0usize..300, version in 0u8..6
        ) {
            let mut bytes = index(&["a/b/c", "a/b/d", "e"]);
            bytes[7] = version;
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            bytes.truncate(length);
            // Neither panics.
            for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
                ProjectIndex::parse(&bytes, format, |_| true, |_| false).ok();
            }
        }
    }
}
