//! What the environment says: variables, and where the user's own files are.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// The environment of a process, read once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surroundings {
    variables: HashMap<OsString, OsString>,
}

impl Surroundings {
    /// Reads the environment that this program was started in.
    pub(crate) fn of_this_process() -> Self {
        Self { variables: std::env::vars_os().collect() }
    }

    /// Returns a variable, if it is text.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name.as_ref() as &std::ffi::OsStr)?.to_str()
    }

    /// Says whether a variable switches something on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        let value = self.variables.get(name.as_ref() as &std::ffi::OsStr);
        value.is_some_and(|value| {
            !["", "0", "false", "no", "off"].iter().any(|off| value.eq_ignore_ascii_case(off))
        })
    }

    /// Replaces `${NAME}` by the variable of that name; one that is not set stays as it is written.
    pub(super) fn expand(&self, text: &str) -> String {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some((before, (name, after))) =
            rest.split_once("${").and_then(|(before, after)| Some((before, after.split_once('}')?)))
        {
            expanded.push_str(before);
            match self.variable(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.push_str(&format!("${{{name}}}")),
            }
            rest = after;
        }
        expanded + rest
    }

    /// Returns the user's home.
    pub(super) fn home(&self) -> Option<PathBuf> {
        self.folder("HOME")
    }

    /// Returns where the user's own configuration of azureal is.
    pub(super) fn configuration(&self) -> Option<PathBuf> {
        let folder = self.folder("XDG_CONFIG_HOME").or_else(|| Some(self.home()?.join(".config")))?;
        Some(folder.join("azureal"))
    }

    /// Returns the user's own configuration files of git, in the order in which git reads them.
    pub(super) fn git_configurations(&self) -> Vec<PathBuf> {
        let folder = self.folder("XDG_CONFIG_HOME").or_else(|| Some(self.home()?.join(".config")));
        let files =
            [folder.map(|folder| folder.join("git/config")), self.home().map(|home| home.join(".gitconfig"))];
        files.into_iter().flatten().collect()
    }

    /// Returns where azureal keeps what belongs to the user and to no project.
    pub(super) fn data(&self) -> Option<PathBuf> {
        let folder = self.folder("XDG_DATA_HOME").or_else(|| Some(self.home()?.join(".local/share")))?;
        Some(folder.join("azureal"))
    }

    /// Returns where azureal keeps what it can find out again.
    pub(crate) fn cache(&self) -> Option<PathBuf> {
        let folder = self.folder("XDG_CACHE_HOME").or_else(|| Some(self.home()?.join(".cache")))?;
        Some(folder.join("azureal"))
    }

    /// Returns where azureal keeps its log.
    pub(crate) fn state(&self) -> Option<PathBuf> {
        let folder = self.folder("XDG_STATE_HOME").or_else(|| Some(self.home()?.join(".local/state")))?;
        Some(folder.join("azureal"))
    }

    /// Returns a folder that a variable names. A relative one would lead into the project, and the standard
    /// says that it does not count.
    fn folder(&self, name: &str) -> Option<PathBuf> {
        let folder = PathBuf::from(self.variables.get(name.as_ref() as &std::ffi::OsStr)?);
        folder.is_absolute().then_some(folder)
    }
}

#[cfg(test)]
impl From<&[(&str, &str)]> for Surroundings {
    fn from(variables: &[(&str, &str)]) -> Self {
        Self { variables: variables.iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Surroundings {
    fn from(variables: [(&str, &str); N]) -> Self {
        Self::from(variables.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_users_folders_are_where_the_standard_says() {
        let usual = Surroundings::from([("HOME", "/h")]);
        assert_eq!(usual.configuration().as_deref(), Some(Path::new("/h/.config/azureal")));
        assert_eq!(usual.data().as_deref(), Some(Path::new("/h/.local/share/azureal")));
        assert_eq!(usual.cache().as_deref(), Some(Path::new("/h/.cache/azureal")));
        let moved = [("XDG_CONFIG_HOME", "/c"), ("XDG_DATA_HOME", "/d"), ("XDG_CACHE_HOME", "/k")];
        let moved = Surroundings::from(moved);
        assert_eq!(moved.cache().as_deref(), Some(Path::new("/k/azureal")));
        assert_eq!(moved.configuration().as_deref(), Some(Path::new("/c/azureal")));
        assert_eq!(moved.data().as_deref(), Some(Path::new("/d/azureal")));
    }

    #[test]
    fn variables_are_filled_in_where_they_are_set() {
        let surroundings = Surroundings::from([("A", "x"), ("B", "${A}")]);
        for (text, expected) in [
            ("", ""),
            ("${A}", "x"),
            ("a ${A}${A} ${C} $A {A}", "a xx ${C} $A {A}"),
            ("${B}", "${A}"),
            ("${A", "${A"),
            ("$${A}", "$x"),
            ("${} ${ A }", "${} ${ A }"),
        ] {
            assert_eq!(surroundings.expand(text), expected, "{text}");
        }
    }

    #[test]
    fn a_relative_folder_does_not_count() {
        let relative = Surroundings::from([("HOME", "."), ("XDG_CONFIG_HOME", "c"), ("XDG_DATA_HOME", "")]);
        assert_eq!((relative.configuration(), relative.data()), (None, None));
    }
}
