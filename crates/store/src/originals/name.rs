//! The names of original files.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};

use azureal_core::{Original, Seq, Uuid};

const OUTPUT: &str = "jsonl";
const MORE: &str = "more";
const HEADER: &str = "turn";
const PACKED: &str = "zst";

/// The name of a compressed original in the folder of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackedName {
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) run: String,
}

/// The name of an original that is not compressed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewName {
    pub(super) session: Uuid,
    pub(super) packed: PackedName,
}

impl PackedName {
    pub(super) fn of(original: &Original) -> Self {
        Self { first: original.first, last: original.last, run: original.run.clone() }
    }

    /// Refuses the name of a run that is no plain word: it becomes part of a path.
    pub(super) fn check(&self) -> io::Result<()> {
        let is_plain = !self.run.is_empty() && self.run.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_plain { Ok(()) } else { Err(ErrorKind::InvalidInput.into()) }
    }

    fn stem(&self) -> String {
        format!("{}-{}-{}", self.first, self.last, self.run)
    }

    pub(super) fn file(&self) -> String {
        format!("{}.{PACKED}", self.stem())
    }

    pub(super) fn parse(file: &OsStr) -> Option<Self> {
        Self::of_stem(file.to_str()?.strip_suffix(PACKED)?.strip_suffix('.')?)
    }

    fn of_stem(stem: &str) -> Option<Self> {
        let mut parts = stem.splitn(3, '-');
        let mut number = || parts.next()?.parse().ok().map(Seq);
        let (first, last) = (number()?, number()?);
        let name = Self { first, last, run: parts.next()?.to_owned() };
        name.check().ok().map(|()| name)
    }

    pub(super) fn original(self, bytes: u64) -> Original {
        Original { run: self.run, first: self.first, last: self.last, bytes }
    }
}

impl NewName {
    pub(super) fn output(&self) -> String {
        format!("{}.{}.{OUTPUT}", self.session, self.packed.stem())
    }

    pub(super) fn more(&self) -> String {
        format!("{}.{}.{MORE}", self.session, self.packed.stem())
    }

    pub(super) fn header(&self) -> String {
        format!("{}.{}.{HEADER}", self.session, self.packed.stem())
    }

    /// Reads the name of an output, of what follows it, or of a header.
    pub(super) fn parse(file: &OsStr) -> Option<Self> {
        let (session, rest) = file.to_str()?.split_once('.')?;
        let (stem, kind) = rest.rsplit_once('.')?;
        let is_ours = kind == OUTPUT || kind == MORE || kind == HEADER;
        let packed = PackedName::of_stem(stem).filter(|_| is_ours)?;
        Some(Self { session: session.parse().ok()?, packed })
    }
}
