//! Full text search over the sessions of a store.
//!
//! The index is a cache in a file of its own, or in the database of a server. It is brought up to date by each search, and made again if it is
//! missing, damaged or of another version. Without it every event is read, which gives the same answers.
//!
//! ```
//! use azureal::search::{Filters, Query, SearchOptions};
//! # use azureal::{ContextStore, Environment, Message, Options, SessionContext, Workspace};
//! # azureal::block_on(async {
//! # let folder = tempfile::tempdir().unwrap();
//! # let workspace = Workspace::open(folder.path(), &Environment::default(), &Options::default())?;
//! # SessionContext::open(workspace.store.clone(), "greeting")?.append(Message::user("Hello world")).await?;
//!
//! let query = Query::words("hello wor*").unwrap();
//! let found = workspace.search(&query, &Filters::default(), &SearchOptions::default(), |_| ()).await?;
//! let hit = &found.hits[0];
//! assert_eq!((hit.session.id.to_string().as_str(), hit.seq.0, hit.snippet.text().as_str()), ("S1", 1, "Hello world"));
//! # Ok::<(), azureal::Error>(())
//! # }).unwrap();
//! ```

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use azureal_agents::registry;
use azureal_core::{
    EventSource, IndexKind, Redactor, SearchIndex, SessionId, SessionStore, StoreError, async_trait,
};
use azureal_engine::FullHistory;
pub use azureal_search::{
    Case, Filters, Found, Hit, Progress, Query, QueryError, SearchRole, Snippet, SnippetPiece, Step, Total,
};
use azureal_search::{FileIndex, OpenSource, Searcher, is_damage};
use azureal_store::ServerAddress;
use serde::Serialize;
use tracing::{debug, info};

use crate::config::shell_quoted;
use crate::error::{Error, quoted};
use crate::since::parse_since;
use crate::workspace::{StoreChoice, Workspace};

/// The version of the tables is checked by the index. A store at another place is another one only by its sessions.
const OF_FILE: &str = "file";

/// How a search is done.
#[derive(Clone)]
pub struct SearchOptions<'a> {
    /// The most hits; all if `None`.
    pub limit: Option<usize>,
    /// The longest time for bringing the index up to date. Sessions that are left are read.
    pub catch_up: Duration,
    /// The longest time for reading sessions that are not indexed. [`Found::not_searched`] counts those that are left.
    pub scan: Duration,
    /// Whether to search the output of turns as the agents printed it, instead of the stored events. All of it is read.
    pub full: bool,
    /// Masks secrets in what is found. An event that matches only in a secret is no hit.
    pub mask: Option<&'a Redactor>,
    /// Whether the search is still wanted.
    pub is_wanted: &'a (dyn Fn() -> bool + Sync),
}

impl Default for SearchOptions<'_> {
    fn default() -> Self {
        Self {
            limit: Some(20),
            catch_up: Duration::from_secs(60),
            scan: Duration::from_secs(600),
            full: false,
            mask: None,
            is_wanted: &|| true,
        }
    }
}

impl Workspace {
    /// Searches all sessions of the store, and reports the steps to a function: the first search of a large store takes a while.
    pub async fn search(
        &self,
        query: &Query,
        filters: &Filters,
        options: &SearchOptions<'_>,
        mut report: impl FnMut(Step) + Send,
    ) -> Result<Found, Error> {
        let full = FullSource(Arc::clone(&self.store));
        let mut searcher = Searcher {
            store: &*self.store,
            index: None,
            source: options.full.then_some(&full as &dyn OpenSource),
            mask: options.mask,
            catch_up: options.catch_up,
            scan: options.scan,
            limit: options.limit,
            is_wanted: options.is_wanted,
        };
        let kind = match query.required() {
            Some((kind, _)) if !options.full => kind,
            _ => return Ok(searcher.search(query, filters, &mut report).await?),
        };
        if let Some(index) = self.store.search_index().await?
            && index.kind() == kind
        {
            searcher.index = Some(index);
            return Ok(searcher.search(query, filters, &mut report).await?);
        }
        let index = match self.file_index(kind) {
            Ok(index) => index,
            Err(error) => {
                let mut found = searcher.search(query, filters, &mut report).await?;
                found.index_error = Some(error);
                return Ok(found);
            }
        };
        searcher.index = index.as_deref().map(|index| index as &dyn SearchIndex);
        let found = searcher.search(query, filters, &mut report).await?;
        if !found.index_error.as_ref().is_some_and(is_damage) {
            return Ok(found);
        }
        info!("the search index is damaged and is made again");
        // The answer is there already: the events were read.
        if let Err(error) = self.delete_search_index(kind) {
            debug!(%error, "the search index cannot be removed");
        }
        Ok(Found { index_error: None, ..found })
    }

    /// Removes an index in a file. The next search that needs it makes it again.
    fn delete_search_index(&self, kind: IndexKind) -> Result<(), StoreError> {
        self.lock_indexes().remove(&kind);
        match self.search_folder() {
            Some(folder) => FileIndex::delete(&folder, kind),
            None => Ok(()),
        }
    }

    /// Removes a session that was deleted from the indexes that there are. Not more than an attempt: a search never returns
    /// a session that is not in the store, and the next comparison with the store removes it.
    pub(crate) async fn forget_in_search(&self, session: SessionId) {
        let mut results = Vec::new();
        match self.store.search_index().await {
            Ok(Some(index)) => results.push(index.remove(&[session]).await),
            Ok(None) => {}
            Err(error) => results.push(Err(error)),
        }
        if let Some(folder) = self.search_folder() {
            for kind in FileIndex::KINDS {
                if !FileIndex::path(&folder, kind).exists() {
                    continue;
                }
                results.push(match self.file_index(kind) {
                    Ok(Some(index)) => index.remove(&[session]).await,
                    Ok(None) => Ok(()),
                    Err(error) => Err(error),
                });
            }
        }
        for error in results.into_iter().filter_map(Result::err) {
            debug!(%error, "a deleted session is still in a search index");
        }
    }

    /// Opens an index in a file; `None` if the store has none.
    fn file_index(&self, kind: IndexKind) -> Result<Option<Arc<FileIndex>>, StoreError> {
        let mut open = self.lock_indexes();
        if let Some(index) = open.get(&kind) {
            return Ok(Some(Arc::clone(index)));
        }
        let Some(folder) = self.search_folder() else { return Ok(None) };
        if self.is_on_server() {
            make_parents(&folder)?;
        }
        let index = Arc::new(FileIndex::open(&folder, kind, OF_FILE)?);
        open.insert(kind, Arc::clone(&index));
        Ok(Some(index))
    }

    fn lock_indexes(&self) -> MutexGuard<'_, BTreeMap<IndexKind, Arc<FileIndex>>> {
        self.search_indexes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make_parents(folder: &Path) -> Result<(), StoreError> {
    let Some(parent) = folder.parent() else { return Ok(()) };
    DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(|error| StoreError::Other {
        place: format!("the folder {}", crate::error::shown(parent)),
        source: error.into(),
    })
}

/// The events of sessions in their full form.
struct FullSource(Arc<dyn SessionStore>);

#[async_trait]
impl OpenSource for FullSource {
    async fn open(&self, session: SessionId) -> Result<Box<dyn EventSource>, StoreError> {
        Ok(Box::new(FullHistory::open(Arc::clone(&self.0), registry::all(), session).await?))
    }
}

/// Parses a query that is typed in an interface: words, the last of which may be unfinished, and filters: `agent:codex`, `role:user`,
/// `tool:Bash`, `session:S3`, `since:7d`.
pub fn typed(text: &str) -> Result<(Query, Filters), Error> {
    let mut filters = Filters::default();
    let mut words = Vec::new();
    let mut is_in_phrase = false;
    for word in text.split(' ') {
        let (name, value) = word.split_once(':').unwrap_or((word, ""));
        let follows_in_phrase = is_in_phrase;
        is_in_phrase ^= word.matches('"').count() % 2 == 1;
        match name {
            // Neither `session::new` nor a part of a phrase is a filter.
            _ if value.is_empty() || value.starts_with(':') || follows_in_phrase => words.push(word),
            "agent" => filters.agents.push(value.to_owned()),
            "tool" => filters.tools.push(value.to_owned()),
            "since" => filters.since = Some(parse_since(value)?.as_second()),
            "role" => match SearchRole::named(value) {
                Some(role) => filters.roles.push(role),
                None => {
                    let names = SearchRole::ALL.map(SearchRole::as_str).join(", ");
                    return Err(Error::usage(format!("{} is no role: {names}", quoted(value))));
                }
            },
            "session" => {
                let wrong = |_| Error::usage(format!("{} is no session number", quoted(value)));
                filters.sessions.get_or_insert_default().push(value.parse().map_err(wrong)?);
            }
            _ => words.push(word),
        }
    }
    let query = Query::typed(&words.join(" ")).map_err(|error| Error::usage(error.to_string()))?;
    Ok((query, filters))
}

/// The public JSON shape of what was found. Fields may be added, never removed.
#[derive(Debug, Serialize)]
pub struct FoundLine<'a> {
    /// The number of events that match.
    pub total: u64,
    /// Whether there may be more than that.
    pub total_is_least: bool,
    /// The number of sessions that were not searched, as the time was over.
    pub not_searched: u64,
    /// The number of events that cannot be read, among those that this search has read or indexed.
    pub damaged_events: u64,
    /// The hits, the best one first.
    pub hits: Vec<HitLine<'a>>,
}

/// The public JSON shape of a hit.
#[derive(Debug, Serialize)]
pub struct HitLine<'a> {
    /// The session.
    pub session: String,
    /// The name of the session.
    pub name: &'a str,
    /// The place of the event in the session.
    pub seq: u64,
    /// The author of the text: `user`, `assistant`, `thinking`, `tool`, `files` or `error`.
    pub role: &'static str,
    /// The tool of a call or a result.
    pub tool: Option<&'a str>,
    /// The agent that ran.
    pub agent: Option<&'a str>,
    /// The worktree of the session.
    pub worktree: &'a str,
    /// The time of the session's last activity.
    pub last_active: &'a str,
    /// The text around the matches, in pieces.
    pub snippet: Vec<PieceLine<'a>>,
    /// The rank.
    pub score: f64,
    /// The command that shows the event.
    pub show: String,
}

/// The public JSON shape of a piece of a snippet.
#[derive(Debug, Serialize)]
pub struct PieceLine<'a> {
    /// The text.
    pub text: &'a str,
    /// Whether the query matches here.
    #[serde(rename = "match")]
    pub is_match: bool,
}

impl<'a> FoundLine<'a> {
    /// Returns the shape of a result.
    ///
    /// `program` begins the commands: [`program_with`].
    pub fn of(found: &'a Found, program: &str) -> Self {
        Self {
            total: found.total.events,
            total_is_least: found.total.is_least,
            not_searched: found.not_searched,
            damaged_events: found.damaged,
            hits: found.hits.iter().map(|hit| HitLine::of(hit, program)).collect(),
        }
    }
}

impl<'a> HitLine<'a> {
    /// Returns the shape of a hit.
    ///
    /// `program` begins the command: [`program_with`].
    pub fn of(hit: &'a Hit, program: &str) -> Self {
        let piece = |piece: &'a SnippetPiece| PieceLine { text: &piece.text, is_match: piece.is_match };
        Self {
            session: hit.session.id.to_string(),
            name: &hit.session.name,
            seq: hit.seq.0,
            role: hit.role.as_str(),
            tool: hit.tool.as_deref(),
            agent: hit.agent.as_deref(),
            worktree: &hit.session.worktree,
            last_active: hit.session.active_at(),
            snippet: hit.snippet.pieces.iter().map(piece).collect(),
            score: hit.score,
            show: show_command(hit, program),
        }
    }
}

/// Returns the command that shows a hit.
pub fn show_command(hit: &Hit, program: &str) -> String {
    // Without the option it may not be in what is shown.
    let full = if hit.is_full { " --full" } else { "" };
    format!("{program} show {} --seq {}{full}", hit.session.id, hit.seq)
}

/// Returns the beginning of a command for a shell: the program, with the options for this directory and this store. An address with a password is
/// cut behind its scheme.
pub fn program_with(directory: Option<&Path>, store: Option<&Path>) -> String {
    let mut program = "azureal".to_owned();
    let store = store.map(|store| match StoreChoice::of(store) {
        Ok(StoreChoice::Postgres(address)) if address.has_password() => "postgres://…".into(),
        Ok(StoreChoice::Redis(address)) if address.has_password() => "redis://…".into(),
        _ => store.to_string_lossy(),
    });
    for (option, value) in [("-C", directory.map(Path::to_string_lossy)), ("--store", store)] {
        if let Some(value) = value {
            program.push_str(&format!(" {option} {}", shell_quoted(&value)));
        }
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_leads_to_the_same_store_and_has_no_password() {
        for (directory, store, expected) in [
            (None, None, "azureal"),
            (Some("my project"), Some("a.azs"), "azureal -C 'my project' --store a.azs"),
            (None, Some("redis://h/1?project=x"), "azureal --store 'redis://h/1?project=x'"),
            (None, Some("redis://:secret@h"), "azureal --store 'redis://…'"),
            (None, Some("postgres://u@h/d"), "azureal --store postgres://u@h/d"),
            (None, Some("postgres://h/d?user=u&password=secret"), "azureal --store 'postgres://…'"),
        ] {
            assert_eq!(program_with(directory.map(Path::new), store.map(Path::new)), expected);
        }
    }

    #[test]
    fn filters_can_be_typed() {
        let (query, filters) =
            typed("agent:codex tok role:user since:7d std::fs session::new tool:Bash session:S3 buck")
                .unwrap();
        assert!(query.matches("a token of std::fs: tok, bucket, Session::new"));
        assert_eq!((filters.agents, filters.tools), (vec!["codex".to_owned()], vec!["Bash".to_owned()]));
        assert_eq!(
            (filters.roles, filters.sessions),
            (vec![SearchRole::User], Some(vec!["S3".parse().unwrap()]))
        );
        assert!(filters.since.is_some());
        let (query, filters) = typed("\"set agent:codex first\" agent:claude").unwrap();
        assert!(query.matches("to set agent: codex first") && !query.matches("set first"));
        assert_eq!(filters.agents, ["claude"]);
        for text in ["role:x a", "since:x a", "session:x a", "role:user", "->"] {
            assert!(typed(text).is_err(), "{text}");
        }
    }
}
