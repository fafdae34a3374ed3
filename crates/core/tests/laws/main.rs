//! What holds for every input of the pure functions.
#![expect(clippy::disallowed_methods, reason = "a test asks where temporary files go")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod compaction;
mod ledger;
mod properties;

use proptest::test_runner::Config;

/// Returns how often a property is tried: ten times as often if `AZUREAL_THOROUGH` is set. What failed is printed, and
/// goes into a test with a name.
fn tried(cases: u32) -> Config {
    let factor = if std::env::var_os("AZUREAL_THOROUGH").is_some() { 10 } else { 1 };
    Config { cases: cases * factor, failure_persistence: None, ..Config::default() }
}
