//! A configuration file, read once and with care.
//!
//! What is looked at, shown, approved and used are the same bytes: the file is opened once, and nobody goes
//! back to it.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::node::{Lines, Problem};
use super::settings::Settings;
use super::{azufig, cllmfile};
use crate::failure::Failure;

/// How large a configuration file may be.
const LARGEST: u64 = 1024 * 1024;

/// A configuration file with what it says.
#[derive(Debug)]
pub(crate) struct ConfigFile {
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

/// Who brought a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// It came with the project, and counts when it is trusted.
    Project,
    /// It is the user's own.
    User,
}

impl ConfigFile {
    /// Reads a file; nothing if there is none.
    pub(super) fn read(path: PathBuf, format: Format, owner: Owner) -> Result<Option<Self>, Failure> {
        let Some(bytes) = content(&path)? else { return Ok(None) };
        let settings = settings(format, owner, &bytes).map_err(|problem| refused(&path, &problem))?;
        let real = fs::canonicalize(&path).ok();
        Ok(Some(Self {
            leads_to: real.filter(|real| *real != path),
            hash: blake3::hash(&bytes),
            path,
            format,
            owner,
            settings,
        }))
    }

    /// Returns where it was found.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where it really is, if its name leads elsewhere.
    pub(crate) fn leads_to(&self) -> Option<&Path> {
        self.leads_to.as_deref()
    }

    /// Returns the fingerprint of its content.
    pub(crate) fn hash(&self) -> blake3::Hash {
        self.hash
    }

    /// Says whether it came with the project.
    pub(crate) fn is_of_project(&self) -> bool {
        self.owner == Owner::Project
    }
}

/// Reads all of a file, unless it is none that could be meant.
fn content(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    let opened = OpenOptions::new()
        .read(true)
        // A pipe would wait for a writer.
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(Failure::file(path, &error)),
    };
    let metadata = file.metadata().map_err(|error| Failure::file(path, &error))?;
    if !metadata.is_file() {
        return Err(Failure::new("config", format!("{} is not a plain file", path.display()))
            .with_hint("a configuration file is a plain file; move this away"));
    }
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| Failure::file(path, &error))?;
    if bytes.len() as u64 > LARGEST {
        return Err(Failure::new("config", format!("{} has more than {LARGEST} bytes", path.display()))
            .with_hint("a configuration file may have up to 1 MiB"));
    }
    Ok(Some(bytes))
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

/// Says what is wrong with a file and where.
fn refused(path: &Path, problem: &Problem) -> Failure {
    Failure::new("config", format!("{}:{}: {}", path.display(), problem.place, problem.message))
        .with_hint("`azureal config --help` shows what a configuration file may hold; nothing was run")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is cut off or put in, the answer is an answer.
    #[test]
    fn damaged_files_are_read_or_refused() {
        let files = [
            (Format::Azufig, include_str!("starter.toml").replace("\n#", "\n")),
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
