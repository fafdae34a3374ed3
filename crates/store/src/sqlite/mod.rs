//! Sessions in one SQLite file.
/// Keeps sessions in one SQLite file.
#[derive(Debug, Default)]
pub struct SqliteStore;
