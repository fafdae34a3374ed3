//! What the redactor finds and what it masks wrongly, measured.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test reports"
)]

mod chance;
mod kinds;
mod ordinary;
mod places;
mod rules;
