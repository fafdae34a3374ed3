//! The names of a store's file.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use azureal_core::StoreError;

use super::super::file::Identity;
use super::super::second_name::{SecondName, Soundness, check_content};
use super::super::{FileNotice, connection, error};

/// The state of the names of a store's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameState {
    /// It has its second name.
    Named,
    /// It has no second name, and could have one.
    NotNamed,
    /// Another file has the second name.
    OtherFile,
    /// It has further names, as after `cp -al`.
    MoreNames,
    /// It has no first name, but the second.
    NoFirstName,
}

/// Returns the state of the names of a store's file; `None` if there is no file. Changes nothing.
pub fn names(store: &Path, second_name: &Path) -> io::Result<Option<NameState>> {
    let found = |path: &Path| match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    };
    Ok(match (found(store)?, found(second_name)?) {
        (None, None) => None,
        (None, Some(_)) => Some(NameState::NoFirstName),
        // Of a link, the names say nothing.
        (Some(first), _) if !first.is_file() => None,
        (Some(first), _) if first.nlink() > 2 => Some(NameState::MoreNames),
        (Some(first), Some(second)) if Identity::of(&first) == Identity::of(&second) => {
            Some(NameState::Named)
        }
        (Some(first), _) if first.nlink() > 1 => Some(NameState::MoreNames),
        (Some(_), Some(_)) => Some(NameState::OtherFile),
        (Some(_), None) => Some(NameState::NotNamed),
    })
}

/// Gives a store's file its second name. A file that has the name is kept under a new one.
pub fn name_again(store: &Path, second_name: &Path) -> io::Result<Option<FileNotice>> {
    let found = fs::symlink_metadata(store)?;
    if !found.is_file() {
        return Err(ErrorKind::InvalidInput.into());
    }
    let Some(second) = SecondName::new(second_name.to_owned()) else { return Ok(None) };
    second.renew(store, Identity::of(&found))
}

/// Returns the damage of a file that has the second name of a store alone; `None` if it has all its sessions.
///
/// Nothing is changed and no lock is taken, so a file that a process writes at this moment can look damaged.
pub fn damage_of_second(second_name: &Path) -> Result<Option<String>, StoreError> {
    if fs::symlink_metadata(second_name).is_ok_and(|found| found.len() == 0) {
        return Ok(Some("it is empty".to_owned()));
    }
    let checked = connection::open_foreign_unused(second_name).and_then(|connection| {
        connection::check_foreign(second_name, &connection)?;
        check_content(&connection).map_err(|error| error::from_sqlite(second_name, error))
    });
    match checked {
        Ok(Soundness::Sound { .. }) => Ok(None),
        Ok(Soundness::Damaged(why)) => Ok(Some(why)),
        Err(StoreError::Corrupt { why, .. } | StoreError::NotAStore { why, .. }) => Ok(Some(why)),
        Err(error) => Err(error),
    }
}
