//! Named configurations of cllm: `review.Cllmfile.yml` in place of `Cllmfile.yml`, in the same folders.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::settings::nearest;
use crate::environment::Environment;
use crate::error::{Error, quoted};

/// The environment variable that chooses a named configuration of cllm.
pub const CLLM_CONFIG: &str = "AZUREAL_CLLM_CONFIG";

/// The name of cllm's file without a name, and the end of the others.
const FILE: &str = "Cllmfile.yml";
/// The largest number of files of a folder that are looked at for their names.
const MOST_FILES: usize = 10_000;

/// The chosen configuration of cllm; `None` for the one without a name.
#[derive(Debug, Clone, Default)]
pub(super) struct CllmName(Option<String>);

impl CllmName {
    /// Reads the environment. An empty variable is unset.
    pub(super) fn of(environment: &Environment) -> Result<Self, Error> {
        let name = environment.variable(CLLM_CONFIG).filter(|name| !name.trim().is_empty());
        match name {
            Some(name) if name.contains(['/', '\0']) || name.starts_with('.') => Err(Error::usage(format!(
                "{} is not a name of a configuration of cllm: {}.{FILE} would be another folder's or hidden",
                quoted(name),
                name
            ))),
            name => Ok(Self(name.map(str::to_owned))),
        }
    }

    /// Returns the name of its file.
    pub(super) fn file(&self) -> String {
        self.0.as_ref().map_or_else(|| FILE.to_owned(), |name| format!("{name}.{FILE}"))
    }

    /// Returns the error of a name without a file.
    pub(super) fn missing(&self, worktree: &Path, environment: &Environment) -> Option<Error> {
        let name = self.0.as_deref()?;
        let names = names(worktree, environment);
        let meant = nearest(name, names.iter().map(String::as_str));
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {}?", quoted(meant)));
        let hint = if names.is_empty() {
            "`azureal config` shows the files that are read".to_owned()
        } else {
            format!("there are {}", names.into_iter().collect::<Vec<_>>().join(", "))
        };
        let message = format!("there is no configuration {} of cllm{meant}", quoted(name));
        Some(Error::new("config", message).with_hint(hint))
    }
}

/// Returns the names of the configurations of cllm that are here.
pub(super) fn names(worktree: &Path, environment: &Environment) -> BTreeSet<String> {
    let own = environment.home().map(|home| home.join(".cllm"));
    let folders = [Some(worktree.to_owned()), Some(worktree.join(".cllm")), own];
    let entries = folders.into_iter().flatten().filter_map(|folder| fs::read_dir(folder).ok());
    entries
        .flat_map(|entries| entries.take(MOST_FILES).flatten())
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let name = file.strip_suffix(FILE)?.strip_suffix('.')?;
            (!name.is_empty() && !name.starts_with('.')).then(|| name.to_owned())
        })
        .collect()
}
