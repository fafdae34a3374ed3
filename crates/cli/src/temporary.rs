//! Folders in the temporary folder of the system.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::failure::Failure;

/// A private folder that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct TemporaryFolder(azureal::exchange::TemporaryFolder);

impl TemporaryFolder {
    /// Creates a folder, and removes those of killed processes.
    pub(crate) fn create() -> Result<Self, Failure> {
        let parent = std::env::temp_dir();
        let created = azureal::exchange::TemporaryFolder::create_in(&parent);
        created.map(Self).map_err(|error| Failure::file(&parent, &error))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Creates a folder that only its owner can enter.
pub(crate) fn private_folder_in(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)
}
