//! What the environment says: variables, and where the user's own files are.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use azureal_engine::BridgeHost;
use azureal_process::ChildEnvironment;

use crate::error::Error;

/// The environment that a front end passes in: variables, and the program that is started for children of azureal's own.
///
/// Nothing else of the process is read, and child processes get exactly these variables.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: ChildEnvironment,
    own_program: Option<PathBuf>,
}

impl Environment {
    /// Creates an environment of these variables.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self { variables: variables.into_iter().collect(), own_program: None }
    }

    /// Sets the program `azureal`, which is started again for the built-in agent and for templates, and for recall if the front end has set
    /// [`Workspace::set_recall_service`](crate::Workspace::set_recall_service).
    #[must_use]
    pub fn with_own_program(mut self, program: PathBuf) -> Self {
        self.own_program = Some(program);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.set(name, value);
        self
    }

    /// Returns that program.
    pub fn own_program(&self) -> Result<&Path, Error> {
        self.own_program.as_deref().ok_or_else(|| {
            Error::new("not_started", "the program azureal itself is not known, and has to be started")
        })
    }

    /// Returns all variables.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables.iter()
    }

    /// Returns the environment of child processes: all variables, and no other.
    pub fn for_children(&self) -> &ChildEnvironment {
        &self.variables
    }

    /// Returns a variable, whatever its bytes are; `None` if it is unset or empty.
    pub fn value(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(name).filter(|value| !value.is_empty())
    }

    /// Returns whether the user's locale has no characters but ASCII.
    pub fn has_ascii_locale(&self) -> bool {
        has_ascii_locale(|name| self.variable(name).map(str::to_owned))
    }

    /// Returns a variable, if it is text.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name)?.to_str()
    }

    /// Says whether a variable whose name begins like this switches something on.
    pub(crate) fn is_any_on(&self, prefix: &str) -> bool {
        let off = ["", "0", "false", "no", "off"];
        self.variables.iter().any(|(name, value)| {
            name.as_encoded_bytes().starts_with(prefix.as_bytes())
                && !off.iter().any(|off| value.eq_ignore_ascii_case(off))
        })
    }

    /// Replaces `${NAME}` by the variable of that name; one that is not set stays as it is written.
    pub(crate) fn expand(&self, text: &str) -> String {
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
    pub fn home(&self) -> Option<PathBuf> {
        self.folder("HOME")
    }

    /// Returns where the user's own configuration of azureal is.
    pub fn configuration(&self) -> Option<PathBuf> {
        let folder = self.folder("XDG_CONFIG_HOME").or_else(|| Some(self.home()?.join(".config")))?;
        Some(folder.join("azureal"))
    }

    /// Returns the user's own configuration files of git, in the order in which git reads them.
    pub(crate) fn git_configurations(&self) -> Vec<PathBuf> {
        let folder = self.folder("XDG_CONFIG_HOME").or_else(|| Some(self.home()?.join(".config")));
        let files =
            [folder.map(|folder| folder.join("git/config")), self.home().map(|home| home.join(".gitconfig"))];
        files.into_iter().flatten().collect()
    }

    /// Returns where azureal keeps what belongs to the user and to no project.
    pub fn data(&self) -> Option<PathBuf> {
        let folder = self.folder("XDG_DATA_HOME").or_else(|| Some(self.home()?.join(".local/share")))?;
        Some(folder.join("azureal"))
    }

    /// Returns where azureal keeps what it can find out again.
    pub fn cache(&self) -> Option<PathBuf> {
        let folder = self.folder("XDG_CACHE_HOME").or_else(|| Some(self.home()?.join(".cache")))?;
        Some(folder.join("azureal"))
    }

    /// Returns where the control channels of running agents are: in the runtime directory, or else with the state of the user.
    /// Never in a project, whose agents could reach them there.
    pub fn control(&self) -> Option<PathBuf> {
        if let Some(folder) = self.folder("XDG_RUNTIME_DIR") {
            return Some(folder.join("azureal"));
        }
        let folder = self.folder("XDG_STATE_HOME").or_else(|| Some(self.home()?.join(".local/state")))?;
        Some(folder.join("azureal/control"))
    }

    /// Returns how bridges to agents are started and reached; `None` if the own program or the folder is not known.
    pub fn bridges(&self) -> Option<BridgeHost> {
        Some(BridgeHost { program: self.own_program.clone()?, control: self.control()? })
    }

    /// Returns the folder for temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.value("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
    }

    /// Returns where azureal keeps its log.
    pub fn state(&self) -> Option<PathBuf> {
        let folder = self.folder("XDG_STATE_HOME").or_else(|| Some(self.home()?.join(".local/state")))?;
        Some(folder.join("azureal"))
    }

    /// Returns a folder that a variable names. A relative one would lead into the project, and the standard
    /// says that it does not count.
    fn folder(&self, name: &str) -> Option<PathBuf> {
        let folder = PathBuf::from(self.variables.get(name)?);
        folder.is_absolute().then_some(folder)
    }
}

#[cfg(test)]
impl From<&[(&str, &str)]> for Environment {
    fn from(variables: &[(&str, &str)]) -> Self {
        Self::new(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        Self::from(variables.as_slice())
    }
}

/// Returns whether the locale in these variables has no characters but ASCII. Without any locale the terminal decides, and all have UTF-8
/// today.
fn has_ascii_locale(variable: impl Fn(&str) -> Option<String>) -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let locale = names.into_iter().filter_map(variable).find(|locale| !locale.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        !locale.contains("utf-8") && !locale.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locale_without_utf_8_is_ascii() {
        let is_ascii = |set: &[(&str, &str)]| Environment::from(set).has_ascii_locale();
        assert!(is_ascii(&[("LANG", "C")]) && is_ascii(&[("LC_ALL", "POSIX"), ("LANG", "en_US.UTF-8")]));
        assert!(!is_ascii(&[]) && !is_ascii(&[("LANG", "C.UTF-8")]) && !is_ascii(&[("LANG", "de_DE.utf8")]));
        assert!(!is_ascii(&[("LC_ALL", ""), ("LC_CTYPE", "en_GB.UTF-8"), ("LANG", "C")]));
    }

    #[test]
    fn the_users_folders_are_where_the_standard_says() {
        let usual = Environment::from([("HOME", "/h")]);
        assert_eq!(usual.configuration().as_deref(), Some(Path::new("/h/.config/azureal")));
        assert_eq!(usual.data().as_deref(), Some(Path::new("/h/.local/share/azureal")));
        assert_eq!(usual.cache().as_deref(), Some(Path::new("/h/.cache/azureal")));
        let moved = [("XDG_CONFIG_HOME", "/c"), ("XDG_DATA_HOME", "/d"), ("XDG_CACHE_HOME", "/k")];
        let moved = Environment::from(moved);
        assert_eq!(moved.cache().as_deref(), Some(Path::new("/k/azureal")));
        assert_eq!(moved.configuration().as_deref(), Some(Path::new("/c/azureal")));
        assert_eq!(moved.data().as_deref(), Some(Path::new("/d/azureal")));
        assert_eq!(usual.control().as_deref(), Some(Path::new("/h/.local/state/azureal/control")));
        let session = Environment::from([("HOME", "/h"), ("XDG_RUNTIME_DIR", "/run/user/7")]);
        assert_eq!(session.control().as_deref(), Some(Path::new("/run/user/7/azureal")));
        assert_eq!(session.bridges(), None, "no program is named");
        let host = session.with_own_program("/bin/azureal".into()).bridges().unwrap();
        assert_eq!(host.program, Path::new("/bin/azureal"));
    }

    #[test]
    fn variables_are_filled_in_where_they_are_set() {
        let environment = Environment::from([("A", "x"), ("B", "${A}")]);
        for (text, expected) in [
            ("", ""),
            ("${A}", "x"),
            ("a ${A}${A} ${C} $A {A}", "a xx ${C} $A {A}"),
            ("${B}", "${A}"),
            ("${A", "${A"),
            ("$${A}", "$x"),
            ("${} ${ A }", "${} ${ A }"),
        ] {
            assert_eq!(environment.expand(text), expected, "{text}");
        }
    }

    #[test]
    fn a_relative_folder_does_not_count() {
        let relative = Environment::from([("HOME", "."), ("XDG_CONFIG_HOME", "c"), ("XDG_DATA_HOME", "")]);
        assert_eq!((relative.configuration(), relative.data()), (None, None));
    }
}
