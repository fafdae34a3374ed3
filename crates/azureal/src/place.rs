//! Where the user is, and the store that goes with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use azureal_core::SessionStore;
use azureal_engine::Spools;
use azureal_store::sqlite::{SqliteOptions, Work};
use azureal_store::{MemoryStore, SqliteStore};

use crate::failure::{Failure, quoted};
use crate::project::Project;

/// A project and its store.
pub(crate) struct Place {
    /// The store that was asked for, or the project's.
    pub(crate) store: Arc<dyn SessionStore>,
    /// The project around the current directory.
    pub(crate) project: Project,
    /// The file that the store is, if it is one.
    pub(crate) store_file: Option<PathBuf>,
}

impl Place {
    /// Opens the store that `choice` names, or else the project's. No file is made by that.
    pub(crate) fn open(choice: Option<&Path>) -> Result<Self, Failure> {
        let project = Project::around(Path::new("."));
        let choice = choice.filter(|choice| !choice.as_os_str().is_empty());
        let file = match choice.map(StoreChoice::of).transpose()? {
            Some(StoreChoice::Memory) => None,
            Some(StoreChoice::File(path)) => Some(path),
            None => Some(project.store_path()),
        };
        let store: Arc<dyn SessionStore> = match &file {
            Some(path) => {
                // These commands do one thing after the other, so nobody is kept waiting.
                let options = SqliteOptions { work: Work::WhereCalled, ..SqliteOptions::default() };
                Arc::new(SqliteStore::open(path, options)?)
            }
            None => Arc::new(MemoryStore::default()),
        };
        Ok(Self { store, project, store_file: file })
    }

    /// Returns where the output of running turns is kept; nothing for a store in memory.
    ///
    /// The project's store has the folder `spool` beside it, every other file one that is called after
    /// it: sessions of two stores in one folder have the same numbers.
    pub(crate) fn spools(&self) -> Option<Spools> {
        let file = self.store_file.as_deref()?;
        let folder = match file.file_name()? {
            name if name == "sessions.azs" => "spool".into(),
            name => {
                let mut name = name.to_owned();
                name.push(".spool");
                name
            }
        };
        Some(Spools::new(file.with_file_name(folder)))
    }
}

/// What `--store` can name.
#[derive(Debug, PartialEq, Eq)]
enum StoreChoice {
    Memory,
    File(PathBuf),
}

impl StoreChoice {
    fn of(choice: &Path) -> Result<Self, Failure> {
        let Some(text) = choice.to_str() else {
            return Ok(Self::File(choice.to_owned()));
        };
        if text == "memory:" {
            return Ok(Self::Memory);
        }
        // Only the scheme is repeated: what follows may hold a password.
        match text.split_once("://") {
            Some((scheme @ ("postgres" | "postgresql" | "redis" | "rediss"), _)) => Err(Failure::new(
                "not_supported",
                format!("stores at {scheme}:// are not supported by this build yet"),
            )
            .with_hint("name a file, or leave `--store` and AZUREAL_STORE out for the project's own")),
            Some((scheme, _)) if !scheme.contains('/') => {
                Err(Failure::usage(format!("{} is not a kind of store", quoted(format_args!("{scheme}://"))))
                    .with_hint("a store is a file or `memory:`"))
            }
            _ => Ok(Self::File(choice.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_file_or_memory() {
        let file = |text: &str| StoreChoice::File(text.into());
        for (text, expected) in [
            ("memory:", StoreChoice::Memory),
            ("a/b.azs", file("a/b.azs")),
            ("memory", file("memory")),
            ("./x://y", file("./x://y")),
        ] {
            assert_eq!(StoreChoice::of(Path::new(text)).unwrap(), expected);
        }
    }

    #[test]
    fn a_password_is_not_repeated() {
        for url in ["postgres://u:secret@h/d", "redis://:secret@h", "mysql://u:secret@h"] {
            let failure = StoreChoice::of(Path::new(url)).unwrap_err();
            assert!(!failure.message().contains("secret"), "{}", failure.message());
        }
    }
}
