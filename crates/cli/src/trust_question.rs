//! Asking whether the files of a project may take effect.

use azureal::config::{Config, trust};

use crate::confirm::{Answer, ask};
use crate::failure::Failure;
use crate::output::warn;

/// Makes sure that the files of the project are trusted: asks on a terminal, after showing what they say.
///
/// Where nobody can be asked it is an error, exit code 3, and nothing may be run. The caller adds a hint.
pub(crate) fn require(config: &mut Config) -> Result<(), Failure> {
    let Some(open) = trust::required(config) else { return Ok(()) };
    let question = format!("{}\nTrust this, so that it is in effect? [y/N] ", open.content);
    match ask(&question) {
        Answer::Yes => Ok(trust::approve(config)?),
        answer => {
            let failure = Failure::refused("untrusted", format!("{}; nothing was run", open.message));
            Err(if answer == Answer::No { failure.declined() } else { failure })
        }
    }
}

/// Tells that the files of the project are left out, if they are.
pub(crate) fn note_ignored(config: &Config) {
    if let Some(open) = trust::required(config) {
        warn(&format!("{}, so nothing in there is in effect; `azureal trust` shows it", open.message));
    }
}
