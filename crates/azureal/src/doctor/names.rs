//! The names of the store's file.

use azureal_files::as_argument;
use azureal_store::sqlite::health::{NameState, damage_of_second, names};

use super::{Finding, Severity};
use crate::error::shown;
use crate::git_folder::StoreLayout;

pub(super) const KIND: &str = "second_name";

/// Checks that the file has the names that it should have.
pub(super) fn check(layout: &StoreLayout) -> Option<Finding> {
    let second = layout.second_name.as_ref().ok()?;
    let finding = |severity, message: String| Finding::at(KIND, severity, &layout.file, message);
    let state = match names(&layout.file, second) {
        Ok(state) => state?,
        Err(error) => return Some(finding(Severity::Error, format!("its names cannot be read: {error}"))),
    };
    let (second_name, second) = (second, shown(second));
    Some(match state {
        NameState::Named => return None,
        NameState::NotNamed => {
            let message = format!(
                "it has no second name in the git directory ({second}), so `git clean -fdx` would delete it"
            );
            finding(Severity::Warning, message).fixed_by("gives it its second name")
        }
        NameState::OtherFile => {
            let message = format!("its second name, {second}, is another file, as after copying a project");
            finding(Severity::Warning, message)
                .fixed_by("keeps that file under a new name, and gives the store its second name")
        }
        NameState::NoFirstName => match damage_of_second(second_name) {
            Ok(None) => {
                let message = format!("it was deleted; {second} still has all sessions");
                finding(Severity::Error, message).fixed_by("puts it back")
            }
            Ok(Some(why)) => {
                let message = format!("it was deleted, and {second} is damaged: {why}");
                finding(Severity::Error, message).fixed_by("puts it back, with every row that can be read")
            }
            Err(error) => Finding::of(&error.into(), second),
        },
        NameState::MoreNames => {
            let own = format!("{}.own", as_argument(&layout.file));
            let file = as_argument(&layout.file);
            let message = "it has further names (hard links), as after `cp -al`, so it is not used";
            finding(Severity::Error, message.to_owned())
                .advise(format!("`cp -p {file} {own} && mv {own} {file}` makes it a file of its own"))
        }
    })
}
