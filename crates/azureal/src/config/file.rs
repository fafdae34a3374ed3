//! A configuration file, read once and with bounds.
//!
//! The bytes that are checked, shown, approved and used are the same: the file is opened once and never read again.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::node::{Lines, Problem};
use super::settings::Settings;
use super::{azufig, cllmfile};
use crate::error::shown;
use crate::error::{Error, quoted};

/// The largest configuration file.
const LARGEST: u64 = 1024 * 1024;

/// A configuration file with its settings.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    leads_to: Option<PathBuf>,
    pub(super) format: Format,
    owner: Owner,
    hash: blake3::Hash,
    pub(super) settings: Settings,
}

/// In what a file is written, and whose keys it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `azufig.toml`: ours.
    Azufig,
    /// `Cllmfile.yml`: that of cllm, of which we take what concerns context.
    Cllmfile,
}

/// The origin of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// It came with the project, and counts when it is trusted.
    Project,
    /// It is the user's own.
    User,
}

/// The detail of an error about a file of a project that is not trusted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// The place, and the value that is wrong: for commands that show the files.
    Content,
    /// The position alone: a command with another purpose repeats nothing of the file.
    Position,
}

impl ConfigFile {
    /// Reads a file of the user. `None` if there is no such file.
    pub(super) fn of_user(path: PathBuf, format: Format) -> Result<Option<Self>, Error> {
        let Some(file) = open(&path)? else { return Ok(None) };
        Self::read(file, path, format, Owner::User, Detail::Content).map(Some)
    }

    /// Reads a file of a project. `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// Its name leads out of the worktree. Such a link could make us read any file of the user.
    pub(super) fn of_project(
        worktree: &Path,
        name: &str,
        format: Format,
        detail: Detail,
    ) -> Result<Option<Self>, Error> {
        let path = worktree.join(name);
        let leads_out = || {
            Error::refused("config", format!("{} leads out of the project", quoted(shown(&path))))
                .with_hint("replace the link by a plain file; nothing of it was read")
        };
        let real = match fs::canonicalize(&path) {
            Ok(real) => real,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(Error::file(&path, &error)),
        };
        // Before it is opened: opening a device can have an effect.
        if !fs::canonicalize(worktree).is_ok_and(|worktree| real.starts_with(worktree)) {
            return Err(leads_out());
        }
        let Some(file) = open(&path)? else { return Ok(None) };
        if !is_at(&file, &real) {
            // A link took its place in between.
            return Err(leads_out());
        }
        Self::read(file, path, format, Owner::Project, detail).map(Some)
    }

    fn read(file: File, path: PathBuf, format: Format, owner: Owner, detail: Detail) -> Result<Self, Error> {
        let bytes = content(&path, file)?;
        let settings = settings(format, owner, &bytes).map_err(|problem| misread(&path, &problem, detail))?;
        let real = fs::canonicalize(&path).ok();
        Ok(Self {
            leads_to: real.filter(|real| *real != path),
            hash: blake3::hash(&bytes),
            path,
            format,
            owner,
            settings,
        })
    }

    /// Returns where it was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where it really is, if its name leads elsewhere.
    pub fn leads_to(&self) -> Option<&Path> {
        self.leads_to.as_deref()
    }

    /// Returns the fingerprint of its content.
    pub fn hash(&self) -> blake3::Hash {
        self.hash
    }

    /// Returns whether it came with the project.
    pub fn is_of_project(&self) -> bool {
        self.owner == Owner::Project
    }
}

/// Opens a file. `None` if there is no such file.
fn open(path: &Path) -> Result<Option<File>, Error> {
    let opened = OpenOptions::new()
        .read(true)
        // A pipe would wait for a writer.
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(Error::file(path, &error)),
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Returns whether an open file is the one at a path in which no part is a link.
fn is_at(file: &File, path: &Path) -> bool {
    let is_same = |one: &Metadata, other: &Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    fs::canonicalize(path).is_ok_and(|real| real == path)
        && matches!((file.metadata(), fs::symlink_metadata(path)), (Ok(one), Ok(other)) if is_same(&one, &other))
}

/// Reads all of a file, if it is a plain one and not too large.
fn content(path: &Path, file: File) -> Result<Vec<u8>, Error> {
    let metadata = file.metadata().map_err(|error| Error::file(path, &error))?;
    if !metadata.is_file() {
        return Err(Error::new("config", format!("{} is not a plain file", path.display()))
            .with_hint("a configuration file is a plain file; move this away"));
    }
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| Error::file(path, &error))?;
    if bytes.len() as u64 > LARGEST {
        return Err(Error::new("config", format!("{} has more than {LARGEST} bytes", path.display()))
            .with_hint("a configuration file may have up to 1 MiB"));
    }
    Ok(bytes)
}

fn settings(format: Format, owner: Owner, bytes: &[u8]) -> Result<Settings, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = String::from_utf8_lossy(bytes.get(..error.valid_up_to()).unwrap_or_default());
        Problem::new(Lines::of(&before).place(before.len()), "this is not text in UTF-8")
    })?;
    // Some editors put a mark at the beginning.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match format {
        Format::Azufig => Settings::of_azufig(&azufig::parse(text)?, owner),
        Format::Cllmfile => Settings::of_cllmfile(&cllmfile::parse(text)?),
    }
}

/// Creates the error of a file, with its position.
fn misread(path: &Path, problem: &Problem, detail: Detail) -> Error {
    let (what, hint) = match detail {
        Detail::Content => (
            problem.message.as_str(),
            "`azureal config --help` shows what a configuration file may hold; nothing was run",
        ),
        Detail::Position => (
            "this is not a configuration that azureal understands",
            "`azureal config` says what is wrong there",
        ),
    };
    Error::new("config", format!("{}:{}: {what}", path.display(), problem.place)).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is cut off or put in, the answer is an answer.
    #[test]
    fn damaged_files_are_read_or_refused() {
        let files = [
            (Format::Azufig, crate::config::STARTER.replace("\n#", "\n")),
            (Format::Cllmfile, include_str!("../../tests/fixtures/cllm/templated.Cllmfile.yml").to_owned()),
            (Format::Cllmfile, include_str!("../../tests/fixtures/cllm/structured.Cllmfile.yml").to_owned()),
        ];
        for (format, text) in files {
            let put_in =
                ["\0", "*", "&a ", "[", "{", "\"", "'", "\n", "\t", ": ", "!!", "- "].map(str::as_bytes);
            for (end, put_in) in (0..=text.len()).zip(put_in.iter().cycle()) {
                let (start, rest) = text.as_bytes().split_at(end);
                drop(settings(format, Owner::Project, start));
                drop(settings(format, Owner::User, &[start, put_in, rest].concat()));
                assert!(settings(format, Owner::User, &[start, b"\xff", rest].concat()).is_err());
            }
        }
    }
}
