//! Measures azureal.
fn main() {}
