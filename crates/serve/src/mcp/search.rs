//! The search over sessions.

use azureal::Error;

use super::Server;
use super::arguments::Arguments;

/// The most hits of one answer.
pub(super) const MOST: usize = 50;

impl Server<'_> {
    pub(super) async fn search_sessions(&self, arguments: &Arguments<'_>) -> Result<String, Error> {
        let _ = arguments;
        Err(Error::new("todo", "search"))
    }
}
