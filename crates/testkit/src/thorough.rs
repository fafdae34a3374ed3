//! The effort of a test: small for every change, or as large as a night allows.

/// The one variable that every count depends on. `.ci/full` sets it.
const VARIABLE: &str = "AZUREAL_THOROUGH";

/// Returns the count for every change, or the larger one if `AZUREAL_THOROUGH` is set.
///
/// ```text
/// for kill in 0..thorough(20, 1_000) { … }
/// ```
pub fn thorough<T>(usual: T, thorough: T) -> T {
    if std::env::var_os(VARIABLE).is_some() { thorough } else { usual }
}
