//! How large a session may become, for commands that only look.

use azureal::Project;
use azureal::config::Config;
use azureal_core::Threshold;

use crate::environment::environment;
use crate::output::warn;

/// Returns how large a session may become before it is compacted, as it is configured. For commands that only look:
/// they do not fail over a file that cannot be read, nor ask for trust.
pub(crate) fn threshold(project: &Project) -> Threshold {
    match Config::load(project, &environment()) {
        Ok(config) => config.compaction_threshold(),
        Err(error) => {
            warn(error.message());
            Threshold::default()
        }
    }
}
