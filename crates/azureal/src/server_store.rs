//! Stores on a server: which project of it is meant, and with which password.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azureal_store::postgres::PostgresAddress;
use azureal_store::redis::RedisAddress;
use azureal_store::{AddressError, ServerAddress, ServerStore};
use tracing::info;

use crate::environment::Environment;
use crate::error::{Error, quoted};
use crate::project::{Project, SharedName};
use crate::workspace::{Notice, on_own_thread};

/// What this crate adds to the address of a store on a server.
pub(crate) trait Address: ServerAddress {
    /// What its kind is called in the name of a folder.
    const KIND: &str;

    /// Adds the password from where programs without one find it: the environment, or a file.
    fn add_password(&mut self, environment: &Environment, notices: &mut Vec<Notice>);

    /// Returns what else tells this store from others on its server.
    fn part(&self) -> &str {
        ""
    }
}

impl Address for PostgresAddress {
    const KIND: &str = "postgres";

    /// As PostgreSQL's own programs find it.
    fn add_password(&mut self, environment: &Environment, notices: &mut Vec<Notice>) {
        let variable = |name: &str| environment.variable(name).filter(|value| !value.is_empty());
        if let Some(password) = variable("PGPASSWORD") {
            return self.set_password(password);
        }
        let in_home = || environment.home().map(|home| home.join(".pgpass"));
        if let Some(passfile) = environment.value("PGPASSFILE").map(PathBuf::from).or_else(in_home) {
            let login = variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_default();
            set_password_file(self, login, passfile, notices);
        }
    }

    fn part(&self) -> &str {
        self.schema()
    }
}

impl Address for RedisAddress {
    const KIND: &str = "redis";

    /// There is no file that all programs for Redis know, so ours is named.
    fn add_password(&mut self, environment: &Environment, notices: &mut Vec<Notice>) {
        let password = environment.variable("AZUREAL_REDIS_PASSWORD").filter(|value| !value.is_empty());
        if let Some(password) = password {
            self.set_password(password);
        } else if let Some(file) = environment.value("AZUREAL_REDIS_PASSWORD_FILE") {
            set_password_file(self, "", file.into(), notices);
        }
    }
}

/// Has the password read from a file for every new connection. What keeps the file from being used is said once.
fn set_password_file(
    address: &mut impl ServerAddress,
    login: &str,
    file: PathBuf,
    notices: &mut Vec<Notice>,
) {
    read_private(&file, notices);
    address.set_password_file(login, Arc::new(move || read_private(&file, &mut Vec::new())));
}

/// Says what is wrong with an address, without repeating any of it.
pub(crate) fn misread<A: ServerAddress>(error: &AddressError) -> Error {
    Error::usage(error.to_string()).with_hint(A::hint(error))
}

/// Adds to an address what its URL does not say: the project and the password.
pub(crate) fn complete<A: Address>(
    address: &mut A,
    project: &Project,
    environment: &Environment,
    notices: &mut Vec<Notice>,
) -> Result<(), Error> {
    if address.project().is_none() {
        let SharedName { name, former } = project.shared_name();
        address.set_project(&name).map_err(|error| misread::<A>(&error))?;
        if let Some(former) = former {
            address.set_former_project(&former);
        }
    }
    if !address.has_password() {
        address.add_password(environment, notices);
    }
    info!(kind = A::KIND, %address, project = address.project(), "uses a store on a server");
    Ok(())
}

/// The largest part of a password file that is read, in bytes.
const LARGEST_PASSWORD_FILE: u64 = 1 << 20;

/// Reads a file that only its owner may read. One that others can read is not used, as PostgreSQL does not.
fn read_private(path: &Path, notices: &mut Vec<Notice>) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_file() {
        return None;
    }
    if metadata.mode() & 0o077 != 0 {
        info!(?path, "ignored a password file: other users can read it");
        notices.push(Notice::OpenPasswordFile(path.to_owned()));
        return None;
    }
    let mut text = String::new();
    let file = File::open(path).and_then(|file| file.take(LARGEST_PASSWORD_FILE).read_to_string(&mut text));
    match file {
        Ok(_) => Some(text),
        Err(error) => {
            notices.push(Notice::UnreadablePasswordFile(Error::file(path, &error)));
            None
        }
    }
}

/// A decision that only the user can make: whose the sessions are that the server has under the name that the first release
/// gave this project, without the host of its repository. They may be those of a repository elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address} has sessions of {former:?}, and it is not known whether they are those of the project {project:?}"
)]
pub struct ProjectNameRequired {
    /// The address of the store, without its password.
    pub address: String,
    /// The name that the sessions are under.
    pub former: String,
    /// The name of this project.
    pub project: String,
}

/// Settles whose those sessions are, if that is open and the answer is known. It is settled once for everybody.
pub(crate) fn settle_name(
    store: &mut impl ServerStore,
    address: &impl Address,
    is_ours: Option<bool>,
) -> Result<(), Error> {
    let Some(former) = store.former_project() else { return Ok(()) };
    if let Some(is_ours) = is_ours {
        return Ok(on_own_thread(store.settle_former_project(is_ours))?);
    }
    let (former, project) = (former.to_owned(), store.project().to_owned());
    // What would end the value in a URL.
    let [old, new] = [&former, &project].map(|name| name.replace('%', "%25").replace('&', "%26"));
    let [old, new] = [old, new].map(|name| quoted(format_args!("project={name}")));
    let hint = format!(
        "run `azureal list` in a terminal, which asks; or name the project in the store's URL: {old} if \
         they are this project's, {new} if not"
    );
    let message = format!(
        "{address} has sessions of {}, and it is not known whether they are this project's, {}",
        quoted(&former),
        quoted(&project)
    );
    let required = ProjectNameRequired { address: address.to_string(), former, project };
    Err(Error::refused("project_name", message).with_hint(hint).with_source(required))
}
