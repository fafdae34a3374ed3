//! Where the user is, and the store that goes with it.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azureal_core::SessionStore;
use azureal_engine::Spools;
use azureal_store::postgres::{PostgresAddress, PostgresOptions};
use azureal_store::redis::{RedisAddress, RedisOptions};
use azureal_store::sqlite::{SqliteOptions, Work};
use azureal_store::{MemoryStore, PostgresStore, RedisStore, ServerStore, SqliteStore};
use futures_executor::block_on;

use crate::failure::{Failure, quoted};
use crate::one_turn::ourselves;
use crate::output::warn;
use crate::project::Project;
use crate::server_store;

/// A project and its store.
pub(crate) struct Place {
    /// The store that was asked for, or the project's.
    pub(crate) store: Arc<dyn SessionStore>,
    /// The project around the current directory.
    pub(crate) project: Project,
    lies: Lies,
}

/// Where a store lies.
enum Lies {
    /// In this process, and gone with it.
    InMemory,
    /// In this file.
    InFile(PathBuf),
    /// On a server. What this machine keeps for it lies in this folder.
    OnServer(PathBuf),
}

impl Place {
    /// Opens the store that `choice` names, or else the project's. No file is made by that.
    pub(crate) fn open(choice: Option<&Path>) -> Result<Self, Failure> {
        let project = Project::around(Path::new("."))?;
        let choice = choice.filter(|choice| !choice.as_os_str().is_empty());
        let (store, lies) = match choice.map(StoreChoice::of).transpose()? {
            Some(StoreChoice::Memory) => (memory(), Lies::InMemory),
            Some(StoreChoice::File(path)) => (in_file(&path)?, Lies::InFile(path)),
            Some(StoreChoice::Postgres(mut address)) => {
                server_store::complete(&mut *address, &project)?;
                let mut store = block_on(PostgresStore::open(&address, PostgresOptions::default()))?;
                server_store::settle_name(&mut store, &*address)?;
                let folder = server_store::folder(&*address, store.project(), &project);
                (Arc::new(store) as Arc<dyn SessionStore>, Lies::OnServer(folder))
            }
            Some(StoreChoice::Redis(mut address)) => {
                server_store::complete(&mut *address, &project)?;
                let mut store = block_on(RedisStore::open(&address, RedisOptions::default()))?;
                server_store::settle_name(&mut store, &*address)?;
                let folder = server_store::folder(&*address, store.project(), &project);
                if let Some(warning) = store.durability().warning().filter(|_| !address.accepts_loss()) {
                    warn(&format!("{address} {warning}; `loss=accepted` in its URL says that this is known"));
                }
                (Arc::new(store) as Arc<dyn SessionStore>, Lies::OnServer(folder))
            }
            None => {
                if let Some(warning) = project.warning() {
                    warn(warning);
                }
                let path = project.store_path();
                (in_file(&path)?, Lies::InFile(path))
            }
        };
        Ok(Self { store, project, lies })
    }

    /// Returns the same place with a store that is empty, and gone afterwards.
    pub(crate) fn ephemeral(&self) -> Self {
        Self { store: memory(), project: self.project.clone(), lies: Lies::InMemory }
    }

    /// Returns where the output of running turns is kept; nothing for a store in memory.
    ///
    /// The project's store has the folder `spool` beside it, every other file one that is called after
    /// it: sessions of two stores in one folder have the same numbers.
    pub(crate) fn spools(&self) -> Option<Spools> {
        let folder = match &self.lies {
            Lies::InMemory => return None,
            Lies::OnServer(folder) => folder.join("spool"),
            Lies::InFile(file) => match file.file_name()? {
                name if name == "sessions.azs" => file.with_file_name("spool"),
                name => {
                    let mut name = name.to_owned();
                    name.push(".spool");
                    file.with_file_name(name)
                }
            },
        };
        Some(Spools::new(folder))
    }

    /// Returns the key under which the store remembers the last session: the worktree, on a server of this user.
    pub(crate) fn used_in(&self) -> String {
        let worktree = self.project.worktree();
        match self.lies {
            Lies::InMemory | Lies::InFile(_) => worktree,
            Lies::OnServer(_) => format!("{} {worktree}", ourselves("").user),
        }
    }

    /// Says whether other machines may have the same store.
    pub(crate) fn is_on_server(&self) -> bool {
        matches!(self.lies, Lies::OnServer(_))
    }

    /// Makes the folder that turns are about to be kept in. A store in a file has made it with its first session.
    pub(crate) fn prepare_spools(&self) -> Result<(), Failure> {
        match &self.lies {
            Lies::InMemory | Lies::InFile(_) => Ok(()),
            Lies::OnServer(folder) => server_store::make_folder(folder),
        }
    }
}

fn memory() -> Arc<dyn SessionStore> {
    Arc::new(MemoryStore::default())
}

fn in_file(path: &Path) -> Result<Arc<dyn SessionStore>, Failure> {
    // These commands do one thing after the other, so nobody is kept waiting.
    let options = SqliteOptions { work: Work::WhereCalled, ..SqliteOptions::default() };
    Ok(Arc::new(SqliteStore::open(path, options)?))
}

/// What SQLite puts beside a file.
const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];

impl Place {
    /// Says whether a path leads to the store or to a file that belongs to it, however it is spelt.
    pub(crate) fn owns(&self, path: &Path) -> bool {
        let Lies::InFile(store) = &self.lies else {
            return false;
        };
        is_same_file(path, store)
            || COMPANIONS.iter().any(|companion| {
                let mut name = store.as_os_str().to_owned();
                name.push(companion);
                is_same_file(path, Path::new(&name))
            })
    }
}

impl Place {
    /// Says whether both are the same store of a server, as far as its address tells.
    pub(crate) fn is_same_server_store(&self, other: &Self) -> bool {
        matches!((&self.lies, &other.lies), (Lies::OnServer(one), Lies::OnServer(other)) if one == other)
    }
}

/// Says whether two paths lead to one file, or would if it were there.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let is_same = |one: &Metadata, other: &Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => is_same(&one, &other),
        // A companion that is not there now may be in a moment.
        (Err(_), Err(_)) if one.file_name() == other.file_name() => {
            let folders = (fs::metadata(folder_of(one)), fs::metadata(folder_of(other)));
            matches!(folders, (Ok(one), Ok(other)) if is_same(&one, &other))
        }
        _ => false,
    }
}

/// Returns the folder that a file lies in.
pub(crate) fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// What `--store` can name.
#[derive(Debug)]
pub(crate) enum StoreChoice {
    Memory,
    File(PathBuf),
    Postgres(Box<PostgresAddress>),
    Redis(Box<RedisAddress>),
}

impl StoreChoice {
    pub(crate) fn of(choice: &Path) -> Result<Self, Failure> {
        let Some(text) = choice.to_str() else {
            return Ok(Self::File(choice.to_owned()));
        };
        if text == "memory:" {
            return Ok(Self::Memory);
        }
        // Only the scheme is repeated: what follows may hold a password.
        match text.split_once("://") {
            Some(("postgres" | "postgresql", _)) => match text.parse() {
                Ok(address) => Ok(Self::Postgres(Box::new(address))),
                Err(error) => Err(server_store::misread::<PostgresAddress>(&error)),
            },
            Some(("redis" | "rediss", _)) => match text.parse() {
                Ok(address) => Ok(Self::Redis(Box::new(address))),
                Err(error) => Err(server_store::misread::<RedisAddress>(&error)),
            },
            Some((scheme, _)) if !scheme.contains('/') => {
                Err(Failure::usage(format!("{} is not a kind of store", quoted(format_args!("{scheme}://"))))
                    .with_hint("a store is a file, `postgres://…`, `redis://…` or `memory:`"))
            }
            None if ["postgres:", "postgresql:", "redis:", "rediss:"]
                .iter()
                .any(|scheme| text.starts_with(scheme)) =>
            {
                let scheme = text.split(':').next().unwrap_or_default();
                Err(Failure::usage(format!("the URL of a store begins with `{scheme}://`"))
                    .with_hint(format!("for a file of that name, `./{scheme}:…`")))
            }
            _ => Ok(Self::File(choice.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_file_a_server_or_memory() {
        for (text, expected) in [
            ("memory:", "memory"),
            ("a/b.azs", "file a/b.azs"),
            ("memory", "file memory"),
            ("./x://y", "file ./x://y"),
            ("postgres://u:secret@h/d", "postgres://h:5432/d"),
            ("rediss://:secret@h", "rediss://h:6379/0"),
        ] {
            let choice = match StoreChoice::of(Path::new(text)).unwrap() {
                StoreChoice::Memory => "memory".to_owned(),
                StoreChoice::File(path) => format!("file {}", path.display()),
                StoreChoice::Postgres(address) => address.to_string(),
                StoreChoice::Redis(address) => address.to_string(),
            };
            assert_eq!(choice, expected);
        }
    }

    #[test]
    fn a_password_is_not_repeated() {
        for url in
            ["postgres://u:secret@h:x/d", "redis://:secret@h:x", "mysql://u:secret@h", "postgres:u:secret@h"]
        {
            let failure = StoreChoice::of(Path::new(url)).unwrap_err();
            assert!(!failure.message().contains("secret"), "{}", failure.message());
        }
    }
}
