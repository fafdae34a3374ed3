//! The parts of an address that do not depend on the server.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

/// The project of an address that names none.
const DEFAULT_PROJECT: &str = "default";
/// The longest name of a project, in bytes. It is part of every key.
const LONGEST_PROJECT: usize = 200;

/// Reads the text of a file; `None` if it is missing or must not be used.
pub type ReadFile = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The address of a store on a server, parsed from a URL.
///
/// It may hold a password, so it is never shown as it was typed: neither by `Debug` nor in an error.
pub trait ServerAddress: FromStr<Err = AddressError> + Display {
    /// Returns the project that the sessions belong to, if the address names one.
    fn project(&self) -> Option<&str>;

    /// Sets the project that the sessions belong to.
    fn set_project(&mut self, project: &str) -> Result<(), AddressError>;

    /// Sets the name that the first release gave the project. If the store has sessions under that name and none under the
    /// other, the caller is to ask whose they are.
    fn set_former_project(&mut self, former: &str);

    /// Returns whether the address has a password.
    fn has_password(&self) -> bool;

    /// Sets the password, where it comes from elsewhere.
    fn set_password(&mut self, password: &str);

    /// Sets the file that has the password. It is read for every new connection: a password may be replaced while the store
    /// is open. `login` is the user's name on this machine.
    fn set_password_file(&mut self, login: &str, read: ReadFile);

    /// Returns what a user can do about an address that is refused.
    fn hint(error: &AddressError) -> String;
}

/// The reason why a URL is not the address of a store. It repeats no part of the URL: an unreadable one may have been
/// cut in the middle of its password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The URL has another form.
    #[error("the store's URL cannot be read")]
    Unreadable,
    /// The URL names no host.
    #[error("the store's URL names no host")]
    NoHost,
    /// An option is unknown.
    #[error("the store's URL has an option that is not known")]
    UnknownOption,
    /// The value of an option is not valid.
    #[error("the store's URL has a value for `{0}` that cannot be one")]
    UnusableValue(&'static str),
}

/// The name of a project, and the one that the first release gave it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProjectName {
    pub(crate) name: Option<String>,
    pub(crate) former: Option<String>,
}

impl ProjectName {
    pub(crate) fn set(&mut self, name: &str) -> Result<(), AddressError> {
        let is_usable =
            !name.trim().is_empty() && name.len() <= LONGEST_PROJECT && !name.contains(char::is_control);
        if !is_usable {
            return Err(AddressError::UnusableValue("project"));
        }
        self.name = Some(name.to_owned());
        Ok(())
    }

    pub(crate) fn name_or_default(&self) -> &str {
        self.name.as_deref().unwrap_or(DEFAULT_PROJECT)
    }
}

/// Returns the hint for the name of a project that is refused.
pub(crate) fn project_hint() -> String {
    format!("a project is a name of at most {LONGEST_PROJECT} bytes without control characters")
}

/// Returns the options in the query of a URL: names, and values without percent encoding.
pub(crate) fn options(query: &str) -> impl Iterator<Item = Result<(&str, String), AddressError>> {
    query.split('&').filter(|option| !option.is_empty()).map(|option| {
        let (name, value) = option.split_once('=').ok_or(AddressError::UnknownOption)?;
        Ok((name, decoded(value)?))
    })
}

/// Removes the percent encoding of a part of a URL.
pub(crate) fn decoded(text: &str) -> Result<String, AddressError> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| AddressError::Unreadable)?;
    Ok(decoded.into_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks that URLs are refused for these reasons, each with a hint.
    pub(crate) fn check_refused<A: ServerAddress>(rows: &[(&str, AddressError)]) {
        for (url, error) in rows {
            assert_eq!(url.parse::<A>().err().as_ref(), Some(error), "{url}");
            assert!(!A::hint(error).is_empty());
        }
    }

    /// Checks that no part of a password is ever shown, however it breaks the URL. `urls` returns the URLs with a
    /// password.
    pub(crate) fn check_no_password_is_shown<A: ServerAddress + std::fmt::Debug>(
        urls: impl Fn(&str) -> Vec<String>,
    ) {
        for password in ["hunter2", "hun@ter2", "hun/ter2", "hun?ter2", "hun:ter2", "hun#ter2", "hun%ter2"] {
            for url in urls(password) {
                let shown = match url.parse::<A>() {
                    Ok(address) => format!("{address} {address:?}"),
                    Err(error) => format!("{error} {error:?} {}", A::hint(&error)),
                };
                assert!(!shown.contains("ter2"), "{url}: {shown}");
                assert!(!shown.contains("hun"), "{url}: {shown}");
            }
        }
    }

    #[test]
    fn a_project_is_a_short_printable_name() {
        let mut project = ProjectName::default();
        assert_eq!(project.name_or_default(), "default");
        for name in ["", " ", "a\0b", &"x".repeat(201)] {
            assert_eq!(project.set(name), Err(AddressError::UnusableValue("project")), "{name:?}");
        }
        assert_eq!(project.set(&"x".repeat(200)), Ok(()));
        assert_eq!(project.set("team/engine"), Ok(()));
        assert_eq!(project.name_or_default(), "team/engine");
    }
}
