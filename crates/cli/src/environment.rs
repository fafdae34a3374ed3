//! The environment of this process, for the library.

use std::path::Path;

use azureal::Environment;
use azureal::config::CLLM_CONFIG;
use azureal_files::as_argument;

/// Reads the variables of this process, and where its program is.
pub(crate) fn environment() -> Environment {
    let environment = Environment::new(std::env::vars_os());
    match std::env::current_exe() {
        Ok(program) => environment.with_own_program(program),
        Err(_) => environment,
    }
}

/// The choice of a named configuration of cllm.
#[derive(Debug, clap::Args)]
pub(crate) struct CllmConfig {
    /// Use cllm's configuration `NAME.Cllmfile.yml` in place of `Cllmfile.yml`; also `AZUREAL_CLLM_CONFIG`
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    cllm_config: Option<String>,
}

impl CllmConfig {
    /// Returns the choice as it follows a command in a hint; empty without one.
    pub(crate) fn as_arguments(&self) -> String {
        let name = self.cllm_config.as_deref().map(Path::new).map(as_argument);
        name.map(|name| format!(" --cllm-config {name}")).unwrap_or_default()
    }

    /// Returns the environment with this choice.
    pub(crate) fn environment(&self) -> Environment {
        match &self.cllm_config {
            Some(name) => environment().with_variable(CLLM_CONFIG, name),
            None => environment(),
        }
    }
}
