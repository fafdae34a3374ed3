//! The rows of a database file, read page by page without SQLite.
//!
//! SQLite stops at the first damaged page. Rows are on pages of their own, so those of all other pages can still be read. The format
//! is described at <https://sqlite.org/fileformat2.html>: a leaf page of a table has an array of cells, each with a row number
//! and a record, and the end of a long record is on overflow pages.
//!
//! Everything is read as hostile input: each offset and length is checked, and chains are bounded.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rusqlite::types::Value;

/// The largest record that is read: an event, and what its row adds.
const LARGEST_RECORD: u64 = azureal_core::LARGEST_EVENT as u64 + (64 << 10);
/// The most columns of a record.
const MOST_COLUMNS: usize = 2_000;
/// The page size of a database, unless its creator chose another one.
const DEFAULT_SIZE: usize = 4_096;
/// The number of pages that are looked at to find the page size.
const MOST_PROBED: u32 = 2_000;
const HEADER: usize = 100;
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Page kinds: a leaf and an inner page of a table.
const LEAF: u8 = 13;
const INNER: u8 = 5;

/// A row of a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RawRow {
    /// The row number, which is the value of an `INTEGER PRIMARY KEY`.
    pub(super) rowid: i64,
    pub(super) values: Vec<Value>,
}

/// The rows of a page.
#[derive(Debug, Default)]
pub(super) struct PageRows {
    pub(super) rows: Vec<RawRow>,
    /// The number of cells that cannot be read.
    pub(super) unreadable: usize,
}

/// A file of pages. It is borrowed: closing any descriptor of a file ends the locks that this process has on it.
pub(super) struct Pages<'a> {
    file: &'a File,
    size: usize,
    /// The part of a page that has content.
    usable: usize,
    /// The number of whole pages; a cut page at the end counts.
    pub(super) count: u32,
    /// Whether the first page is that of a database.
    pub(super) has_header: bool,
}

impl<'a> Pages<'a> {
    /// Opens a file. Without a header, the page size is the one under which most pages look like leaves of tables.
    pub(super) fn open(file: &'a File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mut header = [0; HEADER];
        let read = read_up_to(file, &mut header, 0)?;
        let claimed = match u16_at(&header, 16) {
            Some(1) => 65_536,
            Some(size) => usize::from(size),
            None => 0,
        };
        let has_header =
            read == HEADER && header.starts_with(MAGIC) && claimed >= 512 && claimed.is_power_of_two();
        let mut pages = Self { file, size: claimed, usable: claimed, count: 0, has_header };
        if has_header {
            let reserved = header.get(20).copied().map_or(0, usize::from);
            pages.set_size(claimed, length);
            pages.usable = claimed - reserved.min(claimed - 480);
            return Ok(pages);
        }
        let sizes = [512, 1_024, 2_048, 8_192, 16_384, 32_768, 65_536, DEFAULT_SIZE];
        // Of two sizes with as many leaves, the last one.
        let best = sizes.into_iter().max_by_key(|size| {
            pages.set_size(*size, length);
            (2..=pages.count.min(MOST_PROBED)).filter(|number| pages.is_whole_leaf(*number)).count()
        });
        pages.set_size(best.unwrap_or(DEFAULT_SIZE), length);
        Ok(pages)
    }

    fn set_size(&mut self, size: usize, length: u64) {
        (self.size, self.usable) = (size, size);
        self.count = u32::try_from(length.div_ceil(size as u64)).unwrap_or(u32::MAX);
    }

    /// Reads a page; what is missing at the end of a cut file is zero.
    fn page(&self, number: u32) -> Option<Vec<u8>> {
        let index = number.checked_sub(1)?;
        if index >= self.count {
            return None;
        }
        let mut page = vec![0; self.size];
        read_up_to(self.file, &mut page, u64::from(index) * self.size as u64).ok()?;
        Some(page)
    }

    /// Returns the offset of the header of a b-tree page.
    fn start(&self, number: u32) -> usize {
        if number == 1 && self.has_header { HEADER } else { 0 }
    }

    fn kind(&self, number: u32) -> Option<u8> {
        self.page(number)?.get(self.start(number)).copied()
    }

    /// Returns whether a page is a leaf of a table.
    pub(super) fn is_leaf(&self, number: u32) -> bool {
        self.kind(number) == Some(LEAF)
    }

    /// Returns whether a page is a leaf of a table whose rows can all be read. With a wrong page size, there is hardly one.
    fn is_whole_leaf(&self, number: u32) -> bool {
        self.is_leaf(number) && {
            let PageRows { rows, unreadable } = self.rows(number);
            unreadable == 0 && !rows.is_empty()
        }
    }

    /// Returns the leaves of the table with this root, as far as its inner pages can be read.
    pub(super) fn leaves(&self, root: u32) -> Vec<u32> {
        let (mut leaves, mut seen, mut rest) = (Vec::new(), BTreeSet::new(), vec![root]);
        while let Some(number) = rest.pop() {
            if !seen.insert(number) {
                continue;
            }
            let Some(page) = self.page(number) else { continue };
            let start = self.start(number);
            match page.get(start) {
                Some(&LEAF) => leaves.push(number),
                Some(&INNER) => {
                    rest.extend(u32_at(&page, start + 8));
                    let cells = cells(&page, start, 12).into_iter().rev();
                    rest.extend(cells.filter_map(|cell| u32_at(&page, cell)));
                }
                _ => {}
            }
        }
        leaves
    }

    /// Returns the free pages, whose content was deleted.
    pub(super) fn free(&self) -> BTreeSet<u32> {
        let mut free = BTreeSet::new();
        let header = if self.has_header { self.page(1) } else { None };
        let mut trunk = header.and_then(|header| u32_at(&header, 32)).unwrap_or(0);
        while trunk != 0 && free.insert(trunk) {
            let Some(page) = self.page(trunk) else { break };
            let count = u32_at(&page, 4).unwrap_or(0).min((self.size / 4) as u32);
            free.extend((0..count).filter_map(|index| u32_at(&page, 8 + 4 * index as usize)));
            trunk = u32_at(&page, 0).unwrap_or(0);
        }
        free
    }

    /// Reads the rows of a leaf.
    pub(super) fn rows(&self, number: u32) -> PageRows {
        let mut found = PageRows::default();
        let Some(page) = self.page(number) else { return found };
        for cell in cells(&page, self.start(number), 8) {
            match self.row(&page, cell) {
                Some(row) => found.rows.push(row),
                None => found.unreadable += 1,
            }
        }
        found
    }

    /// Reads a cell: the length of its record, its row number, the record.
    fn row(&self, page: &[u8], cell: usize) -> Option<RawRow> {
        let mut reader = Reader { bytes: page.get(..self.usable)?, at: cell };
        let length = reader.varint()?.cast_unsigned();
        let rowid = reader.varint()?;
        if length == 0 || length > LARGEST_RECORD {
            return None;
        }
        let length = usize::try_from(length).ok()?;
        let local = self.local(length);
        let mut record = reader.take(local)?.to_vec();
        if local < length {
            let next = u32_at(reader.bytes, reader.at)?;
            self.read_overflow(next, length, &mut record)?;
        }
        Some(RawRow { rowid, values: values(&record)? })
    }

    /// Returns the length of the part of a record that is on the leaf.
    fn local(&self, length: usize) -> usize {
        let most = self.usable.saturating_sub(35);
        if length <= most {
            return length;
        }
        let least = (self.usable.saturating_sub(12)) * 32 / 255 - 23;
        let rest = least + (length - least) % (self.usable - 4);
        if rest <= most { rest } else { least }
    }

    fn read_overflow(&self, first: u32, length: usize, record: &mut Vec<u8>) -> Option<()> {
        let mut next = first;
        // Each page adds content, so a chain that runs in a circle ends too.
        while record.len() < length {
            let page = self.page(next)?;
            next = u32_at(&page, 0)?;
            let content = page.get(4..self.usable)?;
            record.extend(content.iter().take(length - record.len()));
        }
        Some(())
    }
}

/// Returns the offsets of the cells of a b-tree page. `header` is the length of its header.
fn cells(page: &[u8], start: usize, header: usize) -> Vec<usize> {
    let count = u16_at(page, start + 3).map_or(0, usize::from).min(page.len() / 2);
    let offset = |index| u16_at(page, start + header + 2 * index).map(usize::from);
    (0..count).filter_map(offset).collect()
}

/// Reads the values of a record.
fn values(record: &[u8]) -> Option<Vec<Value>> {
    let mut header = Reader { bytes: record, at: 0 };
    let length = usize::try_from(header.varint()?).ok()?;
    let mut body = Reader { bytes: record, at: length };
    header.bytes = record.get(..length)?;
    let mut values = Vec::new();
    while header.at < length {
        if values.len() == MOST_COLUMNS {
            return None;
        }
        values.push(body.value(header.varint()?)?);
    }
    Some(values)
}

/// Reads from the beginning to the end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    /// Reads an integer of one to nine bytes: seven bits each, the ninth has eight.
    fn varint(&mut self) -> Option<i64> {
        let mut value: u64 = 0;
        for index in 0..9 {
            let byte = *self.take(1)?.first()?;
            if index == 8 {
                return Some((value << 8 | u64::from(byte)).cast_signed());
            }
            value = value << 7 | u64::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                return Some(value.cast_signed());
            }
        }
        None
    }

    /// Reads a value of a serial type.
    fn value(&mut self, kind: i64) -> Option<Value> {
        let integer = |bytes: &[u8]| {
            let first = bytes.first().copied().unwrap_or(0);
            let sign = if first & 0x80 == 0 { 0_i64 } else { -1 };
            bytes.iter().fold(sign, |value, byte| value << 8 | i64::from(*byte))
        };
        Some(match kind {
            0 => Value::Null,
            1..=4 => Value::Integer(integer(self.take(usize::try_from(kind).ok()?)?)),
            5 => Value::Integer(integer(self.take(6)?)),
            6 => Value::Integer(integer(self.take(8)?)),
            7 => Value::Real(f64::from_bits(integer(self.take(8)?).cast_unsigned())),
            8 | 9 => Value::Integer(kind - 8),
            12.. if kind % 2 == 0 => Value::Blob(self.take(usize::try_from((kind - 12) / 2).ok()?)?.to_vec()),
            13.. => {
                let bytes = self.take(usize::try_from((kind - 13) / 2).ok()?)?;
                match String::from_utf8(bytes.to_vec()) {
                    Ok(text) => Value::Text(text),
                    // Damaged text stays as it is.
                    Err(error) => Value::Blob(error.into_bytes()),
                }
            }
            _ => return None,
        })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Reads until the buffer is full or the file ends, and returns the length.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// Every value that a record can have, and records from one byte to many pages.
    #[test]
    fn rows_are_read_as_sqlite_reads_them() {
        for size in [512, 1_024, 4_096, 65_536] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("x");
            let connection = Connection::open(&path).unwrap();
            connection
                .execute_batch(&format!("PRAGMA page_size = {size}; CREATE TABLE t (a, b, c)"))
                .unwrap();
            let lengths = [0, 1, 30, 400, 470, 471, 472, 473, 474, 475, 476, 477, 478, 479, 500, 508, 1_000];
            let lengths =
                lengths.into_iter().chain([4_055, 4_056, 4_057, 4_058, 4_059, 4_060, 4_061, 4_062, 70_000]);
            for (row, length) in lengths.enumerate() {
                let number = [0, 1, -1, 127, -128, 32_768, 8_388_608, i64::MAX, i64::MIN, 1 << 40][row % 10];
                let text: String = "añ".chars().cycle().take(length).collect();
                connection
                    .execute("INSERT INTO t VALUES (?1, ?2, ?3)", (number, text.as_bytes(), 1.5 * row as f64))
                    .unwrap();
                connection.execute("INSERT INTO t VALUES (NULL, ?1, x'ff')", [text]).unwrap();
            }
            let mut select = connection.prepare("SELECT rowid, a, b, c FROM t ORDER BY rowid").unwrap();
            let expected: Vec<RawRow> = select
                .query_map([], |row| {
                    Ok(RawRow { rowid: row.get(0)?, values: vec![row.get(1)?, row.get(2)?, row.get(3)?] })
                })
                .unwrap()
                .map(Result::unwrap)
                .collect();
            let file = File::open(&path).unwrap();
            let pages = Pages::open(&file).unwrap();
            let schema: Vec<RawRow> =
                pages.leaves(1).into_iter().flat_map(|leaf| pages.rows(leaf).rows).collect();
            let Value::Integer(root) = schema[0].values[3] else { panic!("{schema:?}") };
            let mut found: Vec<RawRow> =
                pages.leaves(root as u32).into_iter().flat_map(|leaf| pages.rows(leaf).rows).collect();
            found.sort_by_key(|row| row.rowid);
            // A real that is whole is stored as an integer.
            for row in &mut found {
                if let [_, _, Value::Integer(number)] = row.values[..] {
                    row.values[2] = Value::Real(number as f64);
                }
            }
            assert!(found == expected, "page size {size}");
        }
    }

    #[test]
    fn deleted_rows_are_on_free_pages() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch("CREATE TABLE t (a); PRAGMA secure_delete = OFF").unwrap();
        for _ in 0..2_000 {
            connection.execute("INSERT INTO t VALUES ('some text that takes room in a page')", []).unwrap();
        }
        connection.execute("DELETE FROM t WHERE rowid > 10", []).unwrap();
        let file = File::open(&path).unwrap();
        let pages = Pages::open(&file).unwrap();
        let free = pages.free();
        assert!(free.len() > 10, "{}", free.len());
        let leaves = (2..=pages.count).filter(|page| !free.contains(page) && pages.is_leaf(*page));
        assert_eq!(leaves.map(|leaf| pages.rows(leaf).rows.len()).sum::<usize>(), 10);
    }

    #[test]
    fn random_bytes_are_survived() {
        let mut state = 7_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        for round in 0..50 {
            let mut bytes: Vec<u8> = (0..8 * 512).map(|_| random() as u8).collect();
            if round % 2 == 0 {
                bytes[..16].copy_from_slice(MAGIC);
                bytes[16..18].copy_from_slice(&[2, 0]);
            }
            for page in 0..8 {
                bytes[page * 512] = if random() % 2 == 0 { LEAF } else { INNER };
            }
            std::fs::write(&path, &bytes).unwrap();
            let file = File::open(&path).unwrap();
            let pages = Pages::open(&file).unwrap();
            for page in 0..=pages.count + 1 {
                pages.rows(page);
                pages.leaves(page);
            }
            pages.free();
        }
    }
}
