//! The whole outputs that an agent's program keeps in files beside its transcript, as a part of the original of their turn.
//!
//! They follow the output of the agent, in lines of azureal:
//!
//! ```text
//! {"azureal":{"output":{"tool_use_id":"…","file":"…","text":"…"}}}
//! {"azureal":{"left_out":{"tool_use_id":"…","file":"…","why":"…"}}}
//! ```
//!
//! A long output has several lines. The header of the original has the number of the agent's own lines, so no line of an agent is
//! taken for one of azureal.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::io::{self, BufRead, ErrorKind, Read};
use std::path::{Path, PathBuf};

use azureal_core::agent::{KeptOutput, KeptOutputs};
use azureal_core::io_error_text;
use azureal_files::open_foreign;
use azureal_process::LINE_LIMIT;
use serde::{Deserialize, Serialize};

/// The most that is kept of a turn: 64 MiB.
const LARGEST_OF_TURN: u64 = 64 << 20;
/// The most that is kept of an original with many turns: 512 MiB.
const LARGEST_OF_ORIGINAL: u64 = 512 << 20;
/// The most files of an original that are read.
const MOST_FILES: usize = 20_000;
/// The longest text of a line. Escaped it can be six times as long, and a line is read up to [`LINE_LIMIT`].
const PIECE: usize = 8 << 20;

/// A line of azureal in an original.
#[derive(Debug, Serialize, Deserialize)]
struct OwnLine {
    azureal: OwnContent,
}

/// The content of a line of azureal.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OwnContent {
    /// A part of a whole output.
    Output { tool_use_id: String, file: String, text: String },
    /// An output that is not kept.
    LeftOut { tool_use_id: String, file: String, why: String },
}

impl OwnContent {
    /// Reads a line; `None` if it is of a later version, or damaged.
    pub(crate) fn read(line: &[u8]) -> Option<Self> {
        Some(serde_json::from_slice::<OwnLine>(line).ok()?.azureal)
    }

    fn line(self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(&OwnLine { azureal: self })?;
        line.push(b'\n');
        Ok(line)
    }
}

/// The output of an agent, or its transcript, searched for files with whole outputs.
#[derive(Debug)]
pub struct OutputScan {
    /// The number of its lines.
    pub lines: u64,
    /// Its length.
    pub bytes: u64,
    has_last_newline: bool,
    named: Vec<KeptOutput>,
}

impl OutputScan {
    /// Reads an output or a transcript to its end.
    pub fn read(content: &mut dyn BufRead, outputs: &KeptOutputs) -> io::Result<Self> {
        let mut scan = Self { lines: 0, bytes: 0, has_last_newline: true, named: Vec::new() };
        let (mut line, mut calls) = (Vec::new(), HashSet::new());
        loop {
            line.clear();
            let read = Read::take(&mut *content, LINE_LIMIT).read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(scan);
            }
            scan.lines += 1;
            scan.bytes += read as u64;
            scan.has_last_newline = line.ends_with(b"\n");
            if !scan.has_last_newline && read as u64 == LINE_LIMIT {
                // No parser reads it either.
                scan.bytes += content.skip_until(b'\n')? as u64;
                continue;
            }
            let room = MOST_FILES.saturating_sub(scan.named.len());
            let is_new = |kept: &KeptOutput| calls.insert(kept.tool_use_id.clone());
            scan.named.extend((outputs.named)(&line).into_iter().filter(is_new).take(room));
        }
    }

    /// Returns whether there is a file with a whole output.
    pub fn names_any(&self) -> bool {
        !self.named.is_empty()
    }

    /// Reads the files, which are looked for beside this transcript.
    pub fn whole_outputs(self, outputs: &KeptOutputs, transcript: Option<&Path>) -> WholeOutputs {
        let mut lines = VecDeque::new();
        if !self.has_last_newline {
            lines.push_back(b"\n".to_vec());
        }
        WholeOutputs {
            folder: transcript.and_then(|transcript| SessionFolder::beside(transcript, outputs)),
            named: self.named.into_iter(),
            lines,
            read: HashMap::new(),
            left_out: Vec::new(),
        }
    }
}

/// The folder with the files of a session, found from the place of its transcript.
struct SessionFolder {
    base: PathBuf,
    names: Vec<String>,
}

impl SessionFolder {
    fn beside(transcript: &Path, outputs: &KeptOutputs) -> Option<Self> {
        let names = (outputs.folder)(transcript.file_name()?.to_str()?)?;
        let base = match transcript.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        Some(Self { base, names })
    }

    /// Reads a file of at most so many bytes. Bytes that are not UTF-8 become U+FFFD, as in the agent's own output.
    fn read(&self, file: &str, limit: u64) -> Result<String, LeftOutput> {
        let folders: Vec<&OsStr> = self.names.iter().map(OsStr::new).collect();
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => LeftOutput::Missing,
            _ => LeftOutput::Unreadable(io_error_text(&error)),
        };
        let opened = open_foreign(&self.base, &folders, OsStr::new(file)).map_err(failed)?;
        let mut content = Vec::new();
        opened.take(limit.saturating_add(1)).read_to_end(&mut content).map_err(failed)?;
        if content.len() as u64 > limit {
            return Err(LeftOutput::TooLarge);
        }
        Ok(String::from_utf8(content)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }
}

/// Why a whole output is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LeftOutput {
    Missing,
    TooLarge,
    Unreadable(String),
}

impl LeftOutput {
    fn why(&self) -> String {
        match self {
            Self::Missing => "its file does not exist any more".to_owned(),
            Self::TooLarge => format!("a turn keeps at most {} MiB of such outputs", LARGEST_OF_TURN >> 20),
            Self::Unreadable(why) => format!("its file {why}"),
        }
    }
}

/// The lines that follow an output in its original: one file at a time is in memory.
pub struct WholeOutputs {
    folder: Option<SessionFolder>,
    named: std::vec::IntoIter<KeptOutput>,
    /// The lines of the file that was read last.
    lines: VecDeque<Vec<u8>>,
    /// The bytes that were read, by turn.
    read: HashMap<String, u64>,
    left_out: Vec<(String, LeftOutput)>,
}

impl WholeOutputs {
    /// Returns the outputs that were left out so far, for people: the file and the reason. Files that do not exist any more are among
    /// them if `with_missing` is set.
    pub fn left_out(&self, with_missing: bool) -> Vec<String> {
        let is_told = |why: &LeftOutput| with_missing || *why != LeftOutput::Missing;
        let told = self.left_out.iter().filter(|(_, why)| is_told(why));
        told.map(|(file, why)| format!("the whole output in `{file}` is not kept: {}", why.why())).collect()
    }

    /// Returns the next line, with its line break; `None` at the end.
    pub fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        while self.lines.is_empty() {
            let Some(kept) = self.named.next() else { return Ok(None) };
            let KeptOutput { tool_use_id, file, turn } = kept;
            match self.read(&file, turn) {
                Ok(text) => {
                    for part in pieces(&text) {
                        let (tool_use_id, file) = (tool_use_id.clone(), file.clone());
                        let output = OwnContent::Output { tool_use_id, file, text: part.to_owned() };
                        self.lines.push_back(output.line()?);
                    }
                }
                Err(left) => {
                    let why = left.why();
                    self.left_out.push((file.clone(), left));
                    self.lines.push_back(OwnContent::LeftOut { tool_use_id, file, why }.line()?);
                }
            }
        }
        Ok(self.lines.pop_front())
    }

    fn read(&mut self, file: &str, turn: String) -> Result<String, LeftOutput> {
        let of_all = LARGEST_OF_ORIGINAL.saturating_sub(self.read.values().sum());
        let of_turn = self.read.entry(turn).or_default();
        let limit = LARGEST_OF_TURN.saturating_sub(*of_turn).min(of_all);
        let text = self.folder.as_ref().ok_or(LeftOutput::Missing)?.read(file, limit)?;
        *of_turn = of_turn.saturating_add(text.len() as u64);
        Ok(text)
    }
}

/// Cuts a text into pieces, at line breaks where there are some: what masks secrets for a server sees one piece at a time.
fn pieces(mut text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while text.len() > PIECE {
        let window = text.get(..text.floor_char_boundary(PIECE)).unwrap_or(text);
        let end = window.rfind('\n').map_or(window.len(), |line_break| line_break + 1);
        let (piece, rest) = text.split_at(end);
        pieces.push(piece);
        text = rest;
    }
    pieces.push(text);
    pieces
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const OUTPUTS: KeptOutputs = KeptOutputs { folder, named };

    fn folder(transcript: &str) -> Option<Vec<String>> {
        Some(vec![transcript.strip_suffix(".jsonl")?.to_owned(), "outputs".to_owned()])
    }

    /// A line is the call, the file and the turn.
    fn named(line: &[u8]) -> Vec<KeptOutput> {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_whitespace().map(str::to_owned);
        match (words.next(), words.next()) {
            (Some(tool_use_id), Some(file)) => {
                vec![KeptOutput { tool_use_id, file, turn: words.next().unwrap_or_default() }]
            }
            _ => Vec::new(),
        }
    }

    struct World(tempfile::TempDir);

    impl World {
        fn new() -> Self {
            let world = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(world.path("s1/outputs")).unwrap();
            world
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn file(&self, name: &str, bytes: usize) {
            fs::write(self.path(name), vec![b'a'; bytes]).unwrap();
        }

        /// The lines that follow an output, shortened, and what was left out.
        fn lines(&self, output: &str) -> (Vec<String>, Vec<String>) {
            let scan = OutputScan::read(&mut output.as_bytes(), &OUTPUTS).unwrap();
            assert_eq!(scan.bytes, output.len() as u64);
            let mut whole = scan.whole_outputs(&OUTPUTS, Some(&self.path("s1.jsonl")));
            let mut lines = Vec::new();
            while let Some(line) = whole.next_line().unwrap() {
                lines.push(match OwnContent::read(&line) {
                    Some(OwnContent::Output { tool_use_id, text, .. }) if text.len() < 100 => {
                        format!("{tool_use_id}: {text}")
                    }
                    Some(OwnContent::Output { tool_use_id, text, .. }) => {
                        format!("{tool_use_id}: {} bytes", text.len())
                    }
                    Some(OwnContent::LeftOut { tool_use_id, why, .. }) => {
                        format!("{tool_use_id}: not kept, {why}")
                    }
                    None => format!("{:?}", String::from_utf8(line).unwrap()),
                });
            }
            (lines, whole.left_out(false))
        }
    }

    #[test]
    fn the_files_that_an_output_names_follow_it() {
        let world = World::new();
        fs::write(world.path("s1/outputs/a.txt"), "whole\noutput\n").unwrap();
        fs::write(world.path("s1/outputs/b.txt"), b"not \xff UTF-8").unwrap();
        let (lines, left_out) = world.lines("one a.txt\nx\none b.txt\ntwo b.txt");
        assert_eq!(lines, ["\"\\n\"", "one: whole\noutput\n", "two: not \u{fffd} UTF-8"]);
        assert_eq!(left_out, [""; 0]);
        assert_eq!(world.lines("one a.txt\n").0.len(), 1, "the output has its last line break");
    }

    #[test]
    fn nothing_outside_of_the_sessions_own_folder_is_read() {
        let world = World::new();
        fs::create_dir_all(world.path("s2/outputs")).unwrap();
        fs::write(world.path("s2/outputs/other.txt"), "of another session").unwrap();
        fs::write(world.path("credentials"), "secret").unwrap();
        symlink(world.path("credentials"), world.path("s1/outputs/link.txt")).unwrap();
        fs::create_dir(world.path("s1/outputs/folder.txt")).unwrap();
        let names =
            ["other.txt", "../../s2/outputs/other.txt", "../../credentials", "link.txt", "folder.txt"];
        let output: String =
            names.iter().enumerate().map(|(call, name)| format!("{call} {name}\n")).collect();
        let (lines, left_out) = world.lines(&output);
        let not_kept = |why: &str| format!("not kept, its file {why}");
        let expected = [
            not_kept("does not exist any more"),
            not_kept("is no name of a file"),
            not_kept("is no name of a file"),
            not_kept("is no plain file"),
            not_kept("is no plain file"),
        ];
        let expected: Vec<String> =
            expected.iter().enumerate().map(|(call, line)| format!("{call}: {line}")).collect();
        assert_eq!(lines, expected);
        assert_eq!(left_out.len(), 4, "a file that is gone is not told: {left_out:?}");
        assert_eq!(left_out[2], "the whole output in `link.txt` is not kept: its file is no plain file");
        // The folder itself is no link either.
        fs::rename(world.path("s1"), world.path("moved")).unwrap();
        symlink(world.path("moved"), world.path("s1")).unwrap();
        assert_eq!(world.lines("1 other.txt\n").0, ["1: not kept, its file is no folder"]);
    }

    #[test]
    fn a_turn_keeps_64_mib() {
        let world = World::new();
        world.file("s1/outputs/a.txt", 40 << 20);
        world.file("s1/outputs/b.txt", 24 << 20);
        world.file("s1/outputs/c.txt", (64 << 20) + 1);
        fs::write(world.path("s1/outputs/d.txt"), "small").unwrap();
        let (lines, left_out) =
            world.lines("1 a.txt t\n2 a.txt t\n3 b.txt t\n4 d.txt t\n5 c.txt u\n6 d.txt u\n");
        let why = "not kept, a turn keeps at most 64 MiB of such outputs";
        let piece = |call: u32| format!("{call}: {PIECE} bytes");
        let mut expected = vec![piece(1); 5];
        expected.push(format!("2: {why}"));
        expected.extend(vec![piece(3); 3]);
        expected.extend([format!("4: {why}"), format!("5: {why}"), "6: small".to_owned()]);
        assert_eq!(lines, expected);
        assert_eq!(left_out.len(), 3);
    }

    #[test]
    fn a_long_output_is_cut_at_a_line_break() {
        let text = "äbc\n".repeat(PIECE / 2);
        let cut = pieces(&text);
        assert_eq!(cut.concat(), text);
        assert!(cut.len() > 1 && cut.iter().all(|piece| piece.len() <= PIECE && piece.ends_with('\n')));
        let line = "ä".repeat(PIECE);
        assert_eq!(pieces(&line).concat(), line);
        assert_eq!(pieces(""), [""]);
    }
}
