//! The contract of a search: an index changes no answer.

use std::collections::BTreeSet;
use std::time::Duration;

use azureal_core::{IndexKind, SearchIndex, Seq, SessionId, SessionStore, WorktreeFilter};
use azureal_search::{Filters, Found, SearchRole, Searcher};
use azureal_testkit::thorough;
use futures_executor::block_on;

use crate::world::{AGENTS, Random, TIMES, TOOLS, change, query};

pub(crate) fn searcher<'a>(store: &'a dyn SessionStore, index: Option<&'a dyn SearchIndex>) -> Searcher<'a> {
    Searcher {
        store,
        index,
        source: None,
        mask: None,
        catch_up: Duration::from_secs(600),
        scan: Duration::from_secs(600),
        limit: None,
        is_wanted: &|| true,
    }
}

pub(crate) fn places(found: &Found) -> BTreeSet<(SessionId, Seq)> {
    found.hits.iter().map(|hit| (hit.session.id, hit.seq)).collect()
}

/// Returns filters, often several.
pub(crate) fn filters(random: &mut Random, sessions: &[SessionId]) -> Filters {
    let mut filters = Filters::default();
    for _ in 0..random.below(4) {
        match random.below(8) {
            0 => filters.roles = vec![random.one(&SearchRole::ALL), random.one(&SearchRole::ALL)],
            1 => filters.tools = vec![random.one(&TOOLS).to_uppercase()],
            2 => {
                filters.without_tools =
                    [random.one(&TOOLS), random.one(&TOOLS)].map(str::to_uppercase).into();
            }
            3 => filters.agents = vec![random.one(&AGENTS).to_uppercase()],
            4 => filters.sessions = sessions.iter().take(random.below(4)).copied().collect::<Vec<_>>().into(),
            5 => filters.without = sessions.first().copied(),
            6 => {
                filters.worktree =
                    Some(WorktreeFilter { names: vec!["../feat".into()], last_part: "feat".into() });
            }
            _ => filters.since = Some(random.one(&TIMES).1),
        }
    }
    filters
}

/// Searches a store while it changes, by its indexes and without them: as many random queries as given.
pub(crate) fn search_contract(
    store: &dyn SessionStore,
    words: &dyn SearchIndex,
    substrings: &dyn SearchIndex,
    all_queries: usize,
) {
    assert_eq!((words.kind(), substrings.kind()), (IndexKind::Words, IndexKind::Substrings));
    let mut random = Random::new(17);
    let mut sessions = Vec::new();
    // The number of queries of words, of others that an index narrows down, and of others; and of hits.
    let (mut queries, mut hits) = ([0; 3], [0; 3]);
    let rounds = thorough(20, 60);
    for _ in 0..rounds {
        for _ in 0..12 {
            change(store, &mut sessions, &mut random);
        }
        for _ in 0..all_queries / rounds {
            let (text, query) = query(&mut random);
            let Ok(query) = query else { continue };
            let filters = filters(&mut random, &sessions);
            let (sort, index) = match query.required() {
                Some((IndexKind::Words, _)) => (0, words),
                Some((IndexKind::Substrings, _)) => (1, substrings),
                None => (2, substrings),
            };
            let mut indexed = searcher(store, Some(index));
            let by_index = block_on(indexed.search(&query, &filters, &mut |_| ())).unwrap();
            let by_scan = block_on(searcher(store, None).search(&query, &filters, &mut |_| ())).unwrap();
            assert!(by_index.index_error.is_none(), "{:?}", by_index.index_error);
            assert!(by_index.scanned == 0 || sort == 2, "the index has all sessions");
            assert_eq!(places(&by_index), places(&by_scan), "{text} {filters:?}");
            assert_eq!(by_index.total.events, by_scan.total.events, "{text}");
            let agents = |found: &Found| {
                let agents = found.hits.iter().map(|hit| (hit.session.id, hit.seq, hit.agent.clone()));
                agents.collect::<BTreeSet<_>>()
            };
            assert_eq!(agents(&by_index), agents(&by_scan), "{text}");
            // With a limit: as many as there are, the best ones of the same events.
            indexed.limit = Some(3);
            let few = block_on(indexed.search(&query, &filters, &mut |_| ())).unwrap();
            assert_eq!(few.hits.len(), by_index.hits.len().min(3), "{text}");
            let first = |found: &Found| {
                found.hits.iter().take(3).map(|hit| (hit.session.id, hit.seq)).collect::<Vec<_>>()
            };
            assert_eq!(first(&few), first(&by_index), "{text}");
            indexed.limit = Some(0);
            let none = block_on(indexed.search(&query, &filters, &mut |_| ())).unwrap();
            assert_eq!((none.hits.len(), none.total.events > 0), (0, !by_index.hits.is_empty()), "{text}");
            if sort > 0 {
                // All have the same rank, so the order is that of the scan too.
                assert_eq!(first(&by_index), first(&by_scan), "{text}");
            }
            queries[sort] += 1;
            hits[sort] += by_index.hits.len();
        }
    }
    let least = [all_queries / 2, 20, 10];
    let is_enough = (0..3).all(|sort| queries[sort] > least[sort] && hits[sort] > queries[sort]);
    assert!(is_enough, "{hits:?} hits of {queries:?} queries");
}
