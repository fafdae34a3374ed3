//! The variables that a child starts with.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// The environment of a child: exactly these variables. Cloning it is cheap.
///
/// No variable of this process is added, so the caller decides which ones reach a child.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChildEnvironment(Arc<BTreeMap<OsString, OsString>>);

impl ChildEnvironment {
    /// Returns a variable, even if it is not UTF-8; `None` if it is not set.
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.0.get(name.as_ref()).map(OsString::as_os_str)
    }

    /// Returns all variables, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Sets a variable. Clones of this environment stay as they are.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        Arc::make_mut(&mut self.0).insert(name.into(), value.into());
    }

    /// Removes a variable.
    pub fn remove(&mut self, name: impl AsRef<OsStr>) {
        if self.0.contains_key(name.as_ref()) {
            Arc::make_mut(&mut self.0).remove(name.as_ref());
        }
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for ChildEnvironment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self(Arc::new(variables.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_is_not_changed() {
        let given = ChildEnvironment::from_iter([("A", "1"), ("B", "2")]);
        let mut changed = given.clone();
        changed.set("A", "3");
        changed.remove("B");
        changed.remove("C");
        assert_eq!(changed, ChildEnvironment::from_iter([("A", "3")]));
        assert_eq!(given.get("A"), Some(OsStr::new("1")));
        assert_eq!(given.iter().count(), 2);
    }
}
