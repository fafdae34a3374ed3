//! The search over sessions.

use std::cmp::Reverse;
use std::time::Duration;

use azureal::core::{counted, visible_line};
use azureal::search::{Filters, Found, Hit, Query, QueryError, SearchOptions};
use azureal::sessions::called;
use azureal::{Error, parse_since};

use super::arguments::Arguments;
use super::{RECORD, Server, tools};

/// The most hits of one answer.
pub(super) const MOST: usize = 50;
/// The number of hits without a limit.
const USUAL: usize = 10;
/// The longest time that a call reads sessions: agents give up a tool after a minute.
const TIME: Duration = Duration::from_secs(20);

impl Server<'_> {
    pub(super) async fn search_sessions(&self, arguments: &Arguments<'_>) -> Result<String, Error> {
        let missing = || Error::usage("`query` is missing").with_hint("a few words that must all occur");
        let query =
            Query::words(&arguments.text("query")?.ok_or_else(missing)?).map_err(|error| unusable(&error))?;
        let session = match arguments.text("session")? {
            Some(session) => Some(self.session(&session).await?.id),
            None => None,
        };
        let filters = Filters {
            agents: arguments.text("agent")?.into_iter().collect(),
            sessions: session.map(|session| vec![session]),
            // What the agent was told already. Asked for by name, it is searched.
            without: self.current.filter(|current| session != Some(*current)),
            // An earlier search says the words of the query again, in a short text and a later session than the one that it looked for.
            without_tools: tools::names_in_sessions(),
            since: arguments
                .text("since")?
                .as_deref()
                .map(parse_since)
                .transpose()?
                .map(jiff::Timestamp::as_second),
            ..Filters::default()
        };
        let limit = arguments.number("limit")?.map_or(USUAL, |limit| usize::try_from(limit).unwrap_or(MOST));
        let options = SearchOptions {
            limit: Some(limit.clamp(1, MOST)),
            catch_up: TIME,
            scan: TIME,
            full: arguments.switch("original")?,
            mask: Some(self.redactor),
            ..SearchOptions::default()
        };
        let found = self.workspace.search(&query, &filters, &options, |_| ()).await?;
        Ok(self.found(&found, options.full))
    }

    /// Returns what was found, for a model.
    fn found(&self, found: &Found, is_full: bool) -> String {
        let mut text = String::new();
        if found.hits.is_empty() {
            text.push_str("Nothing was found. Try fewer words, or the beginning of a word (tok*)");
            text.push_str(if is_full { "." } else { ", or original=true for the whole output of tools." });
        } else {
            // An original has more than the stored event.
            let original = if is_full { ", with original=true" } else { "" };
            text.push_str(&format!("{RECORD} Read around a hit with read_session{original}.\n"));
        }
        // The best hits, and of these the newest first: a later session may have overruled an earlier one.
        let mut hits: Vec<&Hit> = found.hits.iter().collect();
        hits.sort_by_key(|&hit| Reverse((hit.session.active_at(), hit.session.id, hit.seq)));
        for hit in hits {
            text.push_str(&self.lines_of(hit));
        }
        let more = found.total.events.saturating_sub(found.hits.len() as u64);
        if more > 0 {
            let more = counted(more, "weaker hit");
            let least = if found.total.is_least { "at least " } else { "" };
            text.push_str(&format!("\n{least}{more} left out; more words or `since` narrow them down.\n"));
        }
        if found.damaged > 0 {
            text.push_str(&format!("\n{} cannot be read.\n", counted(found.damaged, "event")));
        }
        if found.not_searched > 0 {
            text.push_str(&format!(
                "\nThe time was over: {} sessions were not searched.\n",
                found.not_searched
            ));
        }
        text
    }

    /// Returns the lines of a hit.
    fn lines_of(&self, hit: &Hit) -> String {
        let mut parts =
            vec![called(&hit.session), format!("event {}", hit.seq), hit.role.as_str().to_owned()];
        parts.extend([&hit.tool, &hit.agent].into_iter().flatten().cloned());
        parts.push(hit.session.active_at().to_owned());
        format!("\n{}\n  {}\n", self.line_of(parts), visible_line(&hit.snippet.text()))
    }
}

fn unusable(error: &QueryError) -> Error {
    Error::usage(error.to_string()).with_hint("a few words that must all occur")
}
