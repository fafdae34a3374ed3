//! The environment of this process, for the library.

use azureal::Environment;

/// Reads the variables of this process, and where its program is.
pub(crate) fn environment() -> Environment {
    let environment = Environment::new(std::env::vars_os());
    match std::env::current_exe() {
        Ok(program) => environment.with_own_program(program),
        Err(_) => environment,
    }
}
