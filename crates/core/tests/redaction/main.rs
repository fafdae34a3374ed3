//! What the redactor finds and what it masks wrongly, measured.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test reports")]
#![expect(clippy::disallowed_macros, reason = "the figures are for the documentation")]

mod chance;
mod kinds;
mod ordinary;
mod places;
mod rules;
mod slow;

/// Returns the count for every change, or the larger one if `AZUREAL_THOROUGH` is set. As in the testkit, which depends on this crate.
#[expect(clippy::disallowed_methods, reason = "the one variable of tests")]
fn thorough<T>(usual: T, thorough: T) -> T {
    if std::env::var_os("AZUREAL_THOROUGH").is_some() { thorough } else { usual }
}
