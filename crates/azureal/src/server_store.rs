//! Stores on a server: which project of it is meant, with which password, and what this machine keeps for it.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use azureal_store::postgres::{AddressError, PostgresAddress};
use azureal_store::sqlite::make_folder_of;

use crate::failure::Failure;
use crate::output::{shown, warn};
use crate::project::Project;

/// Says what is wrong with an address, without repeating any of it.
pub(crate) fn misread(error: &AddressError) -> Failure {
    Failure::usage(error.to_string()).with_hint(error.hint())
}

/// Adds to an address what its URL does not say: the project, and the password as PostgreSQL's own programs find it.
pub(crate) fn complete(address: &mut PostgresAddress, project: &Project) -> Result<(), Failure> {
    if address.project().is_none() {
        address.set_project(&project.shared_name()).map_err(|error| misread(&error))?;
    }
    if address.has_password() {
        return Ok(());
    }
    if let Some(password) = std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty()) {
        address.set_password(&password);
        return Ok(());
    }
    let passfile = match std::env::var_os("PGPASSFILE") {
        Some(path) => Some(PathBuf::from(path)),
        None => std::env::home_dir().map(|home| home.join(".pgpass")),
    };
    if let Some(password) = passfile.and_then(|path| address.password_in(&read_private(&path)?)) {
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

/// Returns the folder in which this machine keeps what belongs to a store elsewhere.
///
/// It has one of its own in the project, since sessions of every store have the same numbers.
pub(crate) fn folder(address: &PostgresAddress, project: &Project) -> PathBuf {
    let store = format!("{address} {} {}", address.schema(), address.project().unwrap_or_default());
    let hash = blake3::hash(store.as_bytes()).to_hex();
    let name = format!("postgres-{}", hash.get(..16).unwrap_or(&hash));
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
