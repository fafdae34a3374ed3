//! Full text search over sessions.
//!
//! [`Query::matches`] defines what an event matches. A scan applies it to every event. An index ([`SearchIndex`](azureal_core::SearchIndex)) finds the events that may match,
//! and each is read from the store and compared before it is returned. So both give the same answers. `docs/search.md` is the page for users.

mod agents;
mod catch_up;
mod file_index;
mod query;
mod rank;
mod required;
mod search;
mod snippet;
mod text;
mod time;
mod tokens;
mod trigrams;

pub use catch_up::{Behind, Progress, catch_up};
pub use file_index::{FileIndex, is_damage};
pub use query::{Case, Clause, Pattern, Query, QueryError};
pub use search::{Filters, Found, Hit, OpenSource, Searcher, Step, Total};
pub use snippet::{Snippet, SnippetPiece};
pub use text::{SearchRole, SearchedText, searched_text};
pub use tokens::tokens;
