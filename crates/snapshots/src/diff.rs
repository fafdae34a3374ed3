//! The text of a comparison.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use azureal_process::Excerpt;

/// The line of a diff about a file that is not stored.
const NOT_STORED: &[u8] = b"too large or unreadable, not recorded\n";
/// The beginning of a file's part. Lines of files begin with another character.
const HEADER: &[u8] = b"diff --git ";

/// The text of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    /// A unified diff, which ends with a whole line. Its lines have the encoding of their files.
    pub bytes: Vec<u8>,
    /// The number of bytes that were left out at its end.
    pub left_out: u64,
}

impl Diff {
    /// Returns the diff as text, to be shown: bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Returns the part of each file, with the path in the later snapshot if that has it. The last one may be cut. A file that
    /// becomes a link, or the reverse, has two parts.
    pub fn files(&self) -> Vec<(PathBuf, &[u8])> {
        let mut starts = Vec::new();
        let mut at = 0;
        for line in self.bytes.split_inclusive(|byte| *byte == b'\n') {
            if line.starts_with(HEADER) {
                starts.push(at);
            }
            at += line.len();
        }
        let ends = starts.iter().skip(1).copied().chain([self.bytes.len()]);
        let parts = starts.iter().zip(ends).filter_map(|(start, end)| self.bytes.get(*start..end));
        parts.filter_map(|part| Some((PathBuf::from(OsString::from_vec(path_of(part)?)), part))).collect()
    }

    /// Takes the beginning of git's output, up to a number of bytes.
    pub(crate) fn of(output: &Excerpt, limit: usize) -> Self {
        let (kept, left_out) = whole_lines(output, limit);
        Self { bytes: without_marks(kept), left_out }
    }
}

/// A comparison that `git apply` can apply, byte for byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// The patch, with the contents of binary files. It ends with a whole line.
    pub bytes: Vec<u8>,
    /// The number of bytes that were left out at its end.
    pub left_out: u64,
    /// The number of files that it does not have, because a version of them is not stored.
    pub not_stored: usize,
}

impl Patch {
    /// Takes the beginning of git's output, up to a number of bytes.
    pub(crate) fn of(output: &Excerpt, limit: usize) -> Self {
        let (kept, left_out) = whole_lines(output, limit);
        let mut patch = Self { left_out, ..Self::default() };
        let mut file = Vec::new();
        for line in kept.split_inclusive(|byte| *byte == b'\n') {
            if line.starts_with(HEADER) {
                patch.push_file(&std::mem::take(&mut file));
            }
            file.extend(line);
        }
        patch.push_file(&file);
        patch
    }

    /// Adds the lines of a file, unless a version of it is not stored.
    fn push_file(&mut self, lines: &[u8]) {
        // A line of a file has another first character than the lines of a header.
        let mut header = lines.split(|byte| *byte == b'\n').take_while(|line| !line.starts_with(b"@@ "));
        if header.any(|line| marked_mode(line).is_some()) {
            self.not_stored += 1;
        } else {
            self.bytes.extend(lines);
        }
    }
}

/// Returns the whole lines of an output that have room, and the number of bytes after them.
fn whole_lines(output: &Excerpt, limit: usize) -> (&[u8], u64) {
    let total = output.beginning.len() as u64 + output.left_out + output.end.len() as u64;
    let mut kept = output.beginning.get(..limit.min(output.beginning.len())).unwrap_or_default();
    if (kept.len() as u64) < total {
        let end = kept.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        kept = kept.get(..end).unwrap_or_default();
    }
    (kept, total - kept.len() as u64)
}

/// Returns the beginning of a line of a header that ends with the mode of a file that is not stored.
fn marked_mode(line: &[u8]) -> Option<&[u8]> {
    let has_mode = ["index ", "new file mode ", "deleted file mode ", "old mode ", "new mode "]
        .iter()
        .any(|beginning| line.starts_with(beginning.as_bytes()));
    line.trim_ascii_end().strip_suffix(b"160000").filter(|_| has_mode)
}

/// Returns the path of a file's part, from its header.
fn path_of(part: &[u8]) -> Option<Vec<u8>> {
    let mut lines = part.split(|byte| *byte == b'\n');
    let names = lines.next()?.strip_prefix(HEADER)?;
    let header = lines.take_while(|line| !line.starts_with(b"@@ "));
    if let Some(to) = header.into_iter().find_map(|line| line.strip_prefix(b"rename to ")) {
        return unquoted(to);
    }
    // Without a rename, the path is there twice: `a/path b/path`.
    let (from, to) = names.split_at_checked(names.len() / 2)?;
    let (from, to) = (unquoted(from)?, unquoted(to.strip_prefix(b" ")?)?);
    let (from, to) = (from.strip_prefix(b"a/")?, to.strip_prefix(b"b/")?);
    (from == to).then(|| to.to_vec())
}

/// Returns a name that git quotes if it has special characters.
fn unquoted(name: &[u8]) -> Option<Vec<u8>> {
    let Some(quoted) = name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")) else {
        return Some(name.to_vec());
    };
    let mut bytes = quoted.iter().copied();
    let mut plain = Vec::with_capacity(quoted.len());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        plain.push(match bytes.next()? {
            b'a' => 7,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            first @ b'0'..=b'3' => {
                let digits = [first, bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 8).ok()?
            }
            other => other,
        });
    }
    Some(plain)
}

/// Says of files that are not stored that they are not, in the place of the ids that stand for them.
fn without_marks(diff: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(diff.len());
    let (mut in_header, mut is_marked, mut is_said) = (false, false, false);
    for line in diff.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(HEADER) {
            (in_header, is_marked, is_said) = (true, false, false);
        } else if line.starts_with(b"@@ ") {
            in_header = false;
        }
        match marked_mode(line).filter(|_| in_header) {
            Some(mode) => {
                is_marked = true;
                // The line with the ids is left out.
                if mode.ends_with(b"mode ") {
                    text.extend(mode);
                    text.extend(b"100644\n");
                }
            }
            None if is_marked && (line.starts_with(b"-") || line.starts_with(b"+")) => {
                if !is_said && !in_header {
                    text.extend(NOT_STORED);
                    is_said = true;
                }
            }
            None if is_marked && (line.starts_with(b"@") || line.starts_with(b"i")) => {}
            None => text.extend(line),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_looks_like_a_mark_stays_as_it_is() {
        let diff = b"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n 160000\n-Subproject commit 1\n\
                    +index 1..2 160000\n\\ No newline at end of file\n";
        assert_eq!(without_marks(diff), diff);
        let named = b"diff --git a/160000 b/a 160000\nrename from 160000\nrename to a 160000\nindex 1..2 100644\n--- a/160000\n\
                     +++ b/a 160000\n@@ -1 +1 @@\n-a\n+b\n";
        assert_eq!(without_marks(named), named);
    }

    #[test]
    fn each_part_has_the_path_of_its_file() {
        let text = "diff --git a/x b/x b/x b/x\nold mode 100644\nnew mode 100755\n\
                    diff --git a/old b/new\nsimilarity index 90%\nrename from old\nrename to new\n@@ -1 +1 @@\n-rename to y\n+b\n\
                    diff --git \"a/t\\tq\\\"\\303\" \"b/t\\tq\\\"\\303\"\nnew file mode 100644\n\
                    diff --git a/one b/two\nBinary files differ\n";
        let diff = Diff { bytes: text.into(), left_out: 0 };
        let files = diff.files();
        let paths: Vec<_> = files.iter().map(|(path, _)| path.as_os_str().as_encoded_bytes()).collect();
        // The last header is none of git's.
        assert_eq!(paths, [&b"x b/x"[..], b"new", b"t\tq\"\xc3"]);
        assert!(files[1].1.ends_with(b"+b\n"));
        assert_eq!(Diff::default().files(), []);
    }
}
