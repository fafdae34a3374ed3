//! What the redactor finds and what it masks wrongly, measured.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test reports")]
#![expect(clippy::disallowed_macros, reason = "the figures are for the documentation")]

mod chance;
mod kinds;
mod ordinary;
mod places;
mod rules;
