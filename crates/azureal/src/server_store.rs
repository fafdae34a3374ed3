//! Stores on a server: which project of it is meant, with which password, and what this machine keeps for it.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use azureal_store::postgres::PostgresAddress;
use azureal_store::redis::RedisAddress;
use azureal_store::sqlite::make_folder_of;
use azureal_store::{AddressError, ServerAddress, ServerStore};
use futures_executor::block_on;

use crate::confirm::{Answer, ask};
use crate::failure::{Failure, quoted};
use crate::output::{shown, warn};
use crate::project::{Project, SharedName};

/// What the program adds to the address of a store on a server.
pub(crate) trait Address: ServerAddress {
    /// What its kind is called in the name of a folder.
    const KIND: &str;

    /// Finds the password where it lies for programs that have none: in the environment, or in a file.
    fn find_password(&self) -> Option<String>;

    /// Returns what else tells this store from others on its server.
    fn part(&self) -> &str {
        ""
    }
}

impl Address for PostgresAddress {
    const KIND: &str = "postgres";

    /// As PostgreSQL's own programs find it.
    fn find_password(&self) -> Option<String> {
        variable("PGPASSWORD").or_else(|| {
            let passfile = match std::env::var_os("PGPASSFILE") {
                Some(path) => PathBuf::from(path),
                None => std::env::home_dir()?.join(".pgpass"),
            };
            let login = variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_default();
            self.password_in(&read_private(&passfile)?, &login)
        })
    }

    fn part(&self) -> &str {
        self.schema()
    }
}

impl Address for RedisAddress {
    const KIND: &str = "redis";

    /// There is no file that all programs for Redis know, so ours is named.
    fn find_password(&self) -> Option<String> {
        variable("AZUREAL_REDIS_PASSWORD").or_else(|| {
            let file = std::env::var_os("AZUREAL_REDIS_PASSWORD_FILE")?;
            let text = read_private(Path::new(&file))?;
            Some(text.lines().next().unwrap_or_default().to_owned())
        })
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Says what is wrong with an address, without repeating any of it.
pub(crate) fn misread<A: ServerAddress>(error: &AddressError) -> Failure {
    Failure::usage(error.to_string()).with_hint(A::hint(error))
}

/// Adds to an address what its URL does not say: the project and the password.
pub(crate) fn complete<A: Address>(address: &mut A, project: &Project) -> Result<(), Failure> {
    if address.project().is_none() {
        let SharedName { name, former } = project.shared_name();
        address.set_project(&name).map_err(|error| misread::<A>(&error))?;
        if let Some(former) = former {
            address.set_former_project(&former);
        }
    }
    if !address.has_password()
        && let Some(password) = address.find_password()
    {
        address.set_password(&password);
    }
    Ok(())
}

/// Reads a file that only its owner may read. One that others can read is not used, as PostgreSQL does not.
fn read_private(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_file() {
        return None;
    }
    if metadata.mode() & 0o077 != 0 {
        warn(&format!("{} is not used: others can read it (`chmod 600` takes that from them)", shown(path)));
        return None;
    }
    match fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) => {
            warn(Failure::file(path, &error).message());
            None
        }
    }
}

/// Asks whose the sessions are that the server has under the name that the first release gave this project: without the
/// host of its repository, so that they may be those of a repository elsewhere. Asked once for everybody.
pub(crate) fn settle_name(store: &mut impl ServerStore, address: &impl Address) -> Result<(), Failure> {
    let Some(former) = store.former_project() else { return Ok(()) };
    let (old, new) = (quoted(former), quoted(store.project()));
    let question = format!(
        "{address} has sessions of {old}, without the host of the repository; this project is now called {new}.\n\
         Are they this project's? [y/N] "
    );
    match ask(&question) {
        Answer::Yes => Ok(block_on(store.settle_former_project(true))?),
        Answer::No => Ok(block_on(store.settle_former_project(false))?),
        Answer::Nobody => {
            // What would end the value in a URL.
            let [old, new] =
                [former, store.project()].map(|name| name.replace('%', "%25").replace('&', "%26"));
            let [old, new] = [old, new].map(|name| quoted(format_args!("project={name}")));
            let hint = format!(
                "run `azureal list` in a terminal, which asks; or name the project in the store's URL: {old} if \
                 they are this project's, {new} if not"
            );
            let message = format!(
                "{address} has sessions of {}, and it is not known whether they are this project's, {}",
                quoted(former),
                quoted(store.project())
            );
            Err(Failure::refused("project_name", message).with_hint(hint))
        }
    }
}

/// Returns the folder in which this machine keeps what belongs to a store elsewhere. `kept_as` is the name of the project
/// there.
///
/// It has one of its own in the project, since sessions of every store have the same numbers.
pub(crate) fn folder<A: Address>(address: &A, kept_as: &str, project: &Project) -> PathBuf {
    let store = format!("{address} {} {kept_as}", address.part());
    let hash = blake3::hash(store.as_bytes()).to_hex();
    let name = format!("{}-{}", A::KIND, hash.get(..16).unwrap_or(&hash));
    project.store_path().with_file_name(name)
}

/// Makes that folder, and the one around it as the project's own store would.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Failure> {
    make_folder_of(folder)?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(Failure::file(folder, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
