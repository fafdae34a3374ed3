//! Compactions, forks, clearing and marks.

use azureal_core::event::{Complete, Usage};
use azureal_core::{LASTING_MARKS, ListQuery, Mark, NewMark, Tokens, rendered_chars};

use super::log::varied_events;
use super::*;

/// Returns the compactions as (place, summary).
async fn summaries(store: &Store, id: SessionId) -> Vec<(u64, String)> {
    let compactions = store.compactions(id).await.unwrap();
    compactions.into_iter().map(|each| (each.after_seq.0, each.summary)).collect()
}

fn pairs(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(seq, summary)| (*seq, (*summary).to_owned())).collect()
}

fn marked(name: &str, note: &str) -> NewTurn {
    NewTurn { mark: Some(NewMark { name: name.to_owned(), note: note.to_owned() }), ..prompt("hello") }
}

pub(super) async fn a_history_from_elsewhere_arrives_whole_and_once(store: Store) {
    let mark = NewMark { name: "import:a".to_owned(), note: "note".to_owned() };
    let turn = || NewTurn {
        mark: Some(mark.clone()),
        ..NewTurn::verbatim([Event::user("a"), Event::assistant("b")])
    };
    let summary = |after_seq| Compaction::new(Seq(after_seq), "we met");
    // A refused request leaves nothing behind, not even a session.
    let refused = store.create_with(named("mine"), turn(), vec![summary(3)]).await;
    assert!(matches!(refused, Err(StoreError::NoSuchEvent { .. })), "{refused:?}");
    assert_eq!(list_ids(&store).await, []);
    assert_eq!(store.mark("import:a").await.unwrap(), None);

    let id = store.create_with(named("mine"), turn(), vec![summary(1)]).await.unwrap();
    assert_eq!(texts(&store, id).await.len(), 2);
    assert_eq!(summaries(&store, id).await.len(), 1);
    assert_eq!(store.get(id).await.unwrap().counts.messages, 2);
    if store.crash_notes().is_none() {
        return;
    }
    let again = store.create_with(named("mine"), turn(), vec![]).await;
    assert!(matches!(&again, Err(StoreError::Marked(mark)) if mark.session == id), "{again:?}");
    assert_eq!(list_ids(&store).await, [id]);
    store.delete(id).await.unwrap();
    assert!(store.create_with(named("mine"), turn(), vec![]).await.is_ok(), "its mark went with it");
}

pub(super) async fn a_turn_may_say_what_it_comes_after(store: Store) {
    let id = session_of_prompts(&store, 2).await;
    let after = |seq| NewTurn { after: Some(Seq(seq)), ..NewTurn::verbatim([Event::user("next")]) };
    let moved = store.append(id, after(1)).await;
    assert!(matches!(moved, Err(StoreError::Moved { expected: Seq(1), last: Seq(2), .. })), "{moved:?}");
    assert_eq!(texts(&store, id).await.len(), 2);
    assert_eq!(store.append(id, after(2)).await.unwrap().last, Seq(3));
    assert!(store.append(id, after(2)).await.is_err());
}

pub(super) async fn what_could_not_be_read_again_is_refused(store: Store) {
    let id = session_of_prompts(&store, 1).await;
    let large = Event::user("x".repeat(azureal_core::LARGEST_EVENT));
    let refused = store.append(id, NewTurn::verbatim([Event::user("small"), large])).await;
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{refused:?}");
    assert_eq!(texts(&store, id).await.len(), 1, "the whole turn is refused");
}

pub(super) async fn a_turn_that_ends_its_run_removes_the_note_of_it(store: Store) {
    let ends_run = |turn| NewTurn { ends_run: true, ..turn };
    let [id, other] = [session_of_prompts(&store, 1).await, session_of_prompts(&store, 1).await];
    if store.crash_notes().is_none() {
        store.append(id, ends_run(prompt("stored"))).await.unwrap();
        return;
    }
    let noted = |id, run: &str| (id, run.to_owned());
    store.note_run(id, Some("run")).await.unwrap();
    store.note_run(other, Some("another")).await.unwrap();
    store.append(id, prompt("no end")).await.unwrap();
    assert_eq!(store.noted_runs().await.unwrap(), [noted(id, "run"), noted(other, "another")]);
    let before = store.get(id).await.unwrap().revision;
    store.append(id, ends_run(prompt("stored"))).await.unwrap();
    assert_eq!(store.noted_runs().await.unwrap(), [noted(other, "another")]);
    assert_eq!(store.get(id).await.unwrap().revision, before + 1, "one change");
    store.append(id, ends_run(prompt("without a note"))).await.unwrap();
    assert_eq!(texts(&store, id).await.len(), 4);
    // Also a turn without events.
    store.append(other, ends_run(NewTurn::default())).await.unwrap();
    assert_eq!(store.noted_runs().await.unwrap(), []);
    store.note_run(id, Some("next")).await.unwrap();
    assert_eq!(store.noted_runs().await.unwrap(), [noted(id, "next")]);
    let made = store.create_with(unnamed(), ends_run(prompt("new")), vec![]).await.unwrap();
    assert_eq!(store.noted_runs().await.unwrap(), [noted(id, "next")]);
    store.note_run(made, Some("first")).await.unwrap();
    assert_eq!(store.noted_runs().await.unwrap(), [noted(id, "next"), noted(made, "first")]);
}

pub(super) async fn a_refused_turn_leaves_the_note_of_its_run(store: Store) {
    let id = session_of_prompts(&store, 1).await;
    store.note_run(id, Some("run")).await.unwrap();
    let before = store.noted_runs().await.unwrap();
    let refused = |turn| store.append(id, NewTurn { ends_run: true, ..turn });
    let moved = refused(NewTurn { after: Some(Seq(7)), ..prompt("too late") }).await;
    assert!(matches!(moved, Err(StoreError::Moved { .. })), "{moved:?}");
    let too_large = refused(prompt(&"x".repeat(azureal_core::LARGEST_EVENT))).await;
    assert!(matches!(too_large, Err(StoreError::TooLarge { .. })), "{too_large:?}");
    assert_eq!(store.noted_runs().await.unwrap(), before);
    assert_eq!(before.len(), usize::from(store.crash_notes().is_some()));
}

pub(super) async fn the_revision_grows_with_every_change(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let other = session_of_prompts(&store, 1).await;
    let of_other = store.get(other).await.unwrap();
    let mut last = store.get(id).await.unwrap().revision;
    macro_rules! changes {
        ($($what:literal: $change:expr),+ $(,)?) => {
            $({
                $change.await.unwrap();
                let record = store.get(id).await.unwrap();
                assert!(record.revision > last, "{}: {} after {last}", $what, record.revision);
                assert_eq!(store.list(&ListQuery::default()).await.unwrap().iter().find(|each| each.id == id), Some(&record));
                last = record.revision;
            })+
        };
    }
    changes! {
        "a turn": store.append(id, prompt("one")),
        "another": store.append(id, prompt("two")),
        "a turn without events": store.append(id, NewTurn { tokens: Tokens::new(1, 1), ..NewTurn::default() }),
        "a name": store.rename(id, "name"),
        "tokens": store.add_tokens(id, Tokens::new(1, 1)),
        "other tokens": store.set_tokens(id, Tokens::new(9, 9)),
        "a summary": store.add_compaction(id, &Compaction::new(Seq(1), "summary")),
        "another summary": store.add_compaction(id, &Compaction::new(Seq(1), "other summary")),
        "a summary that is removed": store.remove_compaction(id, Seq(1)),
        "a clear": store.clear(id),
        "a turn after it": store.append(id, prompt("three")),
        "a clear of one event": store.clear(id),
        "a clear of none": store.clear(id),
    }
    // Neither reading nor a refusal is a change, nor what is done to another session.
    store.read(id, Page::last(1)).await.unwrap();
    assert!(!store.remove_compaction(id, Seq(1)).await.unwrap());
    assert!(store.append(id, NewTurn { after: Some(Seq(7)), ..prompt("refused") }).await.is_err());
    store.note_run(id, Some("run")).await.unwrap();
    let fork = store.fork(id, Seq::END, unnamed()).await.unwrap();
    assert_eq!(store.get(id).await.unwrap().revision, last);
    assert_eq!(store.get(other).await.unwrap(), of_other);
    let before = store.get(fork).await.unwrap().revision;
    store.append(fork, prompt("four")).await.unwrap();
    assert!(store.get(fork).await.unwrap().revision > before);
}

pub(super) async fn compactions_are_ordered_by_how_far_they_reach(store: Store) {
    let id = session_of_prompts(&store, 5).await;
    let other = session_of_prompts(&store, 5).await;
    for (seq, summary) in [(4, "to four"), (2, "to two"), (5, "to five")] {
        store.add_compaction(id, &Compaction::new(Seq(seq), summary)).await.unwrap();
    }
    store.add_compaction(other, &Compaction::new(Seq(3), "another's")).await.unwrap();
    assert_eq!(summaries(&store, id).await, pairs(&[(2, "to two"), (4, "to four"), (5, "to five")]));
    assert!(store.remove_compaction(id, Seq(5)).await.unwrap());
    assert!(!store.remove_compaction(id, Seq(5)).await.unwrap(), "twice");
    assert!(!store.remove_compaction(id, Seq(3)).await.unwrap(), "never there");
    assert_eq!(summaries(&store, id).await, pairs(&[(2, "to two"), (4, "to four")]));
    assert_eq!(summaries(&store, other).await, pairs(&[(3, "another's")]));
}

pub(super) async fn a_compaction_replaces_one_that_ends_where_it_does(store: Store) {
    let id = session_of_prompts(&store, 3).await;
    store.add_compaction(id, &Compaction::new(Seq(2), "first")).await.unwrap();
    store.add_compaction(id, &Compaction::new(Seq(2), "second")).await.unwrap();
    assert_eq!(summaries(&store, id).await, pairs(&[(2, "second")]));
    assert!(store.remove_compaction(id, Seq(2)).await.unwrap());
    assert_eq!(summaries(&store, id).await, [], "the first came back");
    let from_elsewhere =
        Compaction { created_at: "2026-01-31T09:30:00Z".to_owned(), ..Compaction::new(Seq(1), "old") };
    store.add_compaction(id, &from_elsewhere).await.unwrap();
    assert_eq!(store.compactions(id).await.unwrap(), [from_elsewhere], "it keeps its time");
}

pub(super) async fn a_compaction_ends_at_an_event(store: Store) {
    let id = session_of_prompts(&store, 3).await;
    for seq in [Seq::START, Seq(4), Seq::END] {
        let answer = store.add_compaction(id, &Compaction::new(seq, "summary")).await;
        assert_no_such_event(&answer, (id, seq, Seq(3)));
    }
    let empty = store.create(unnamed()).await.unwrap();
    let answer = store.add_compaction(empty, &Compaction::new(Seq(1), "summary")).await;
    assert_no_such_event(&answer, (empty, Seq(1), Seq::START));
    assert_eq!(summaries(&store, id).await, []);
    store.add_compaction(id, &Compaction::new(Seq(1), "the first")).await.unwrap();
    store.add_compaction(id, &Compaction::new(Seq(3), "the last")).await.unwrap();
}

pub(super) async fn a_compaction_changes_no_event(store: Store) {
    let id = session_of_prompts(&store, 4).await;
    let before = (store.get(id).await.unwrap(), read_all(&store, id).await);
    store.add_compaction(id, &Compaction::new(Seq(3), "summary")).await.unwrap();
    let after = (store.get(id).await.unwrap(), read_all(&store, id).await);
    let covered = after.0.covered;
    let opening = "summary".len() as u64;
    let revision = before.0.revision + 1;
    assert_eq!(after, (SessionRecord { covered, opening, revision, ..before.0 }, before.1));
}

pub(super) async fn a_compaction_says_who_wrote_it_and_how_large_it_is(store: Store) {
    let by = |seq, writer: &str| Compaction {
        created_at: "2026-01-31T09:30:00Z".to_owned(),
        writer: Some(writer.to_owned()),
        opening_chars: Some(1_000 + seq),
        ..Compaction::new(Seq(seq), "summary")
    };
    let id = session_of_prompts(&store, 4).await;
    store.add_compaction(id, &by(1, "claude/opus")).await.unwrap();
    store.add_compaction(id, &by(3, "digest")).await.unwrap();
    let all = [by(1, "claude/opus"), by(3, "digest")];
    assert_eq!(store.compactions(id).await.unwrap(), all);
    assert_eq!(store.get(id).await.unwrap().opening, 1_003);
    let fork = store.fork(id, Seq(2), unnamed()).await.unwrap();
    assert_eq!(store.compactions(fork).await.unwrap(), all[..1]);
    assert_eq!(store.get(fork).await.unwrap().opening, 1_001);
    let turn = NewTurn::verbatim([Event::user("a")]);
    let copy = store.create_with(unnamed(), turn, vec![by(1, "codex")]).await.unwrap();
    assert_eq!(store.compactions(copy).await.unwrap(), [by(1, "codex")]);
    let listed = store.list(&ListQuery::default()).await.unwrap();
    let openings: Vec<u64> = listed.iter().map(|record| record.opening).collect();
    assert_eq!(openings, [1_001, 1_001, 1_003]);
    assert!(store.remove_compaction(id, Seq(3)).await.unwrap());
    assert_eq!(store.get(id).await.unwrap().opening, 1_001);
}

pub(super) async fn what_is_told_is_counted_and_how_much_of_it_is_covered(store: Store) {
    let events = varied_events();
    let told = |events: &[Event]| events.iter().map(rendered_chars).sum::<u64>();
    let id = store.create(unnamed()).await.unwrap();
    for event in &events {
        store.append(id, NewTurn::verbatim([event.clone()])).await.unwrap();
    }
    let all = told(&events);
    assert!(all > 0);
    let covered = async |covered: u64| {
        let record = store.get(id).await.unwrap();
        assert_eq!(store.list(&ListQuery::default()).await.unwrap(), std::slice::from_ref(&record));
        assert_eq!(record.covered, covered);
        (record.counts.rendered_chars, record.chars_since_compaction())
    };
    assert_eq!(covered(0).await, (all, all));
    let (two, four) = (told(&events[..2]), told(&events[..4]));
    store.add_compaction(id, &Compaction::new(Seq(4), "to four")).await.unwrap();
    assert_eq!(covered(four).await, (all, all - four));
    store.add_compaction(id, &Compaction::new(Seq(2), "to two")).await.unwrap();
    covered(four).await;
    store.remove_compaction(id, Seq(4)).await.unwrap();
    covered(two).await;
    store.append(id, prompt("more")).await.unwrap();
    let more = told(&[Event::user("more")]);
    assert_eq!(covered(two).await, (all + more, all + more - two));
    store.remove_compaction(id, Seq(2)).await.unwrap();
    covered(0).await;
}

pub(super) async fn the_size_of_a_session_includes_details_changes_and_undos(store: Store) {
    let events: Vec<Event> = [
        r#"{"UserMessage":{"content":"fix it"}}"#,
        // Longer than the content whose place it takes, and shorter.
        r#"{"ToolResult":{"tool_name":"Edit","content":"ok","detail":"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+ü"}}"#,
        r#"{"ToolResult":{"tool_name":"Write","content":"the file was created successfully","detail":"+y"}}"#,
        r#"{"Changes":{"files":[{"path":"b","added":3}],"detail":"+z"}}"#,
        r#"{"Undo":{"turn":1,"files":[{"path":"b"}]}}"#,
        r#"{"AssistantText":{"text":"done"}}"#,
    ]
    .iter()
    .map(|json| Event::from_json(json).unwrap())
    .collect();
    let size = |events: &[Event]| events.iter().map(rendered_chars).sum::<u64>();
    let id = store.create(unnamed()).await.unwrap();
    for turn in events.chunks(2) {
        store.append(id, NewTurn::verbatim(turn.to_vec())).await.unwrap();
    }
    store.add_compaction(id, &Compaction::new(Seq(3), "to three")).await.unwrap();
    store.append(id, prompt("more")).await.unwrap();
    let sizes = async |id| {
        let record = store.get(id).await.unwrap();
        let listed = store.list(&ListQuery::default()).await.unwrap();
        assert!(listed.contains(&record), "{record:?} is not as it is listed: {listed:?}");
        (record.counts.rendered_chars, record.covered)
    };
    let all = size(&events) + size(&[Event::user("more")]);
    assert_eq!(sizes(id).await, (all, size(&events[..3])));
    let half = store.fork(id, Seq(4), unnamed()).await.unwrap();
    assert_eq!(sizes(half).await, (size(&events[..4]), size(&events[..3])));
    let whole = store.fork(id, Seq::END, unnamed()).await.unwrap();
    assert_eq!(sizes(whole).await, (all, size(&events[..3])));
    let turn = NewTurn::verbatim(events.clone());
    let copy = store.create_with(unnamed(), turn, vec![Compaction::new(Seq(2), "s")]).await.unwrap();
    assert_eq!(sizes(copy).await, (size(&events), size(&events[..2])));
    store.clear(id).await.unwrap();
    assert_eq!(sizes(id).await, (0, 0));
    store.append(id, NewTurn::verbatim(events[1..4].to_vec())).await.unwrap();
    assert_eq!(sizes(id).await, (size(&events[1..4]), 0));
}

pub(super) async fn what_the_model_had_before_it_is_known_until_something_comes_after(store: Store) {
    let done = |context_tokens| {
        let usage = Some(Usage { input_tokens: 7, context_tokens, ..Usage::default() });
        NewTurn::verbatim([Event::user("go"), Event::Complete(Complete { usage, ..Complete::default() })])
    };
    let id = store.create(unnamed()).await.unwrap();
    let known = async || {
        let record = store.get(id).await.unwrap();
        assert_eq!(store.list(&ListQuery::default()).await.unwrap().last(), Some(&record));
        record.counts.context_tokens
    };
    assert_eq!(known().await, None);
    store.append(id, done(Some(1234))).await.unwrap();
    assert_eq!(known().await, Some(1234));
    store.append(id, NewTurn::default()).await.unwrap();
    store.rename(id, "renamed").await.unwrap();
    assert_eq!(known().await, Some(1234), "nothing came");
    store.append(id, done(None)).await.unwrap();
    assert_eq!(known().await, None, "not counted");
    store.append(id, done(Some(5))).await.unwrap();
    store.add_compaction(id, &Compaction::new(Seq(2), "summary")).await.unwrap();
    assert_eq!(known().await, None, "there is a summary now");
    store.append(id, done(Some(6))).await.unwrap();
    assert!(!store.remove_compaction(id, Seq(1)).await.unwrap());
    assert_eq!(known().await, Some(6), "nothing was removed");
    assert!(store.remove_compaction(id, Seq(2)).await.unwrap());
    assert_eq!(known().await, None, "there is no summary any more");
    store.append(id, done(Some(u64::from(u32::MAX)))).await.unwrap();
    assert_eq!(known().await, Some(u64::from(u32::MAX)));
    store.append(id, prompt("more")).await.unwrap();
    assert_eq!(known().await, None, "there is a new prompt");

    let elsewhere = store.create_with(unnamed(), done(Some(8)), Vec::new()).await.unwrap();
    assert_eq!(store.get(elsewhere).await.unwrap().counts.context_tokens, Some(8));
    let summary = Compaction::new(Seq(1), "s");
    let elsewhere = store.create_with(unnamed(), done(Some(8)), vec![summary]).await.unwrap();
    let record = store.get(elsewhere).await.unwrap();
    assert_eq!((record.counts.context_tokens, record.covered), (None, rendered_chars(&Event::user("go"))));
}

pub(super) async fn a_fork_at_every_point_is_what_was_there_then(store: Store) {
    let mut events = varied_events();
    events.push(Event::Complete(Complete {
        success: true,
        duration_ms: 5,
        cost_usd: 0.5,
        usage: Some(Usage { context_tokens: Some(9), ..Usage::default() }),
        ..Complete::default()
    }));
    let length = events.len() as u64;
    let id = store.create(named("origin")).await.unwrap();
    let turn = NewTurn { tokens: Tokens::new(1, 2), ..NewTurn::verbatim(events.clone()) };
    store.append(id, turn).await.unwrap();
    let laid = [(1, "to one"), (6, "to six"), (length, "to the end")];
    for (seq, summary) in laid {
        store.add_compaction(id, &Compaction::new(Seq(seq), summary)).await.unwrap();
    }
    let whole = texts(&store, id).await;
    let before = store.get(id).await.unwrap();

    for at in (0..=length).map(Seq).chain([Seq::END]) {
        let new = NewSession { worktree: "../fork".to_owned(), ..named(&format!("fork at {at}")) };
        let fork = store.fork(id, at, new).await.unwrap();
        let kept = at.0.min(length);
        assert_eq!(
            texts(&store, fork).await,
            whole.iter().take(kept as usize).cloned().collect::<Vec<_>>(),
            "at {at}"
        );
        let within: Vec<_> = laid.into_iter().filter(|(seq, _)| *seq <= kept).collect();
        assert_eq!(summaries(&store, fork).await, pairs(&within), "at {at}");
        let record = store.get(fork).await.unwrap();
        let expected = SessionRecord {
            id: fork,
            name: format!("fork at {at}"),
            named_at: record.named_at.clone(),
            worktree: "../fork".to_owned(),
            created_at: record.created_at.clone(),
            uuid: record.uuid,
            forked_from: before.uuid,
            last_active: record.last_active.clone(),
            opening: within.last().map_or(0, |(_, summary)| summary.chars().count() as u64),
            counts: Counts { context_tokens: None, ..counts_of(events.iter().take(kept as usize)) },
            covered: within
                .last()
                .map_or(0, |(seq, _)| counts_of(events.iter().take(*seq as usize)).rendered_chars),
            revision: kept,
            ..SessionRecord::new(fork)
        };
        assert_ne!(record.uuid, before.uuid, "at {at}");
        assert_eq!(record, expected, "at {at}");
    }
    assert_eq!(store.get(id).await.unwrap(), before, "the origin was changed");
    assert_eq!(texts(&store, id).await, whole, "the origin was changed");
}

pub(super) async fn a_fork_beyond_the_end_is_refused(store: Store) {
    let id = session_of_prompts(&store, 3).await;
    for seq in [Seq(4), Seq(1000)] {
        let answer = store.fork(id, seq, unnamed()).await;
        assert_no_such_event(&answer, (id, seq, Seq(3)));
    }
    assert_eq!(list_ids(&store).await, [id], "a refused fork was made");
    let empty = store.create(unnamed()).await.unwrap();
    let answer = store.fork(empty, Seq(1), unnamed()).await;
    assert_no_such_event(&answer, (empty, Seq(1), Seq::START));
    let fork = store.fork(empty, Seq::END, unnamed()).await.unwrap();
    assert_eq!(store.get(fork).await.unwrap().name, fork.to_string());
    assert_eq!(read_all(&store, fork).await, []);
}

pub(super) async fn a_fork_and_its_origin_go_their_own_ways(store: Store) {
    let origin = session_of_prompts(&store, 2).await;
    store.add_compaction(origin, &Compaction::new(Seq(1), "summary")).await.unwrap();
    let fork = store.fork(origin, Seq::END, unnamed()).await.unwrap();
    let of_fork = store.append(fork, prompt("fork")).await.unwrap();
    let of_origin = store.append(origin, prompt("origin")).await.unwrap();
    assert_eq!((of_fork.first, of_origin.first), (Seq(3), Seq(3)));
    store.add_compaction(origin, &Compaction::new(Seq(1), "another")).await.unwrap();
    assert_eq!(summaries(&store, fork).await, pairs(&[(1, "summary")]));
    store.clear(origin).await.unwrap();
    store.delete(origin).await.unwrap();
    let said: Vec<Event> = read_all(&store, fork).await.iter().map(|event| event.event().unwrap()).collect();
    assert_eq!(said, ["1", "2", "fork"].map(Event::user));
    assert_eq!(summaries(&store, fork).await, pairs(&[(1, "summary")]));
}

pub(super) async fn clearing_removes_the_log_and_keeps_the_session(store: Store) {
    let id = store.create(named("mine")).await.unwrap();
    let mut events = varied_events();
    events.push(Event::Complete(Complete {
        success: true,
        duration_ms: 5,
        cost_usd: 0.5,
        ..Complete::default()
    }));
    let turn = NewTurn { tokens: Tokens::new(1, 2), ..NewTurn::verbatim(events) };
    store.append(id, turn).await.unwrap();
    store.add_compaction(id, &Compaction::new(Seq(2), "summary")).await.unwrap();
    let before = store.get(id).await.unwrap();
    let other = session_of_prompts(&store, 2).await;

    store.clear(id).await.unwrap();
    assert_eq!(read_all(&store, id).await, []);
    assert_eq!(summaries(&store, id).await, []);
    assert_eq!(before.counts.agent.as_deref(), Some("codex"));
    let revision = before.revision + 1;
    let counts = Counts::default();
    let generation = before.generation + 1;
    let mut expected =
        SessionRecord { counts, completed: None, covered: 0, opening: 0, revision, generation, ..before };
    assert_eq!(store.get(id).await.unwrap(), expected);
    store.clear(id).await.unwrap();
    expected.revision += 1;
    expected.generation += 1;
    assert_eq!(store.get(id).await.unwrap(), expected, "cleared twice");

    let answer = store.add_compaction(id, &Compaction::new(Seq(1), "summary")).await;
    assert_no_such_event(&answer, (id, Seq(1), Seq::START));
    let appended = store.append(id, prompt("anew")).await.unwrap();
    assert_eq!((appended.first, appended.last), (Seq(1), Seq(1)));
    let counts = store.get(id).await.unwrap().counts;
    assert_eq!((counts.events, counts.messages, counts.preview_text()), (1, 1, "anew"));
    assert_eq!(texts(&store, other).await.len(), 2, "another session was touched");
}

pub(super) async fn a_mark_is_set_with_its_turn(store: Store) {
    if store.crash_notes().is_none() {
        return;
    }
    let id = store.create(unnamed()).await.unwrap();
    assert_eq!(store.mark("done").await.unwrap(), None);
    assert!(!store.remove_mark("done").await.unwrap());
    store.append(id, marked("done", "first")).await.unwrap();
    store.append(id, marked("Done", "another")).await.unwrap();
    let mark = |note: &str| Some(Mark { session: id, note: note.to_owned() });
    assert_eq!(store.mark("done").await.unwrap(), mark("first"));
    store.append(id, marked("done", "second")).await.unwrap();
    store.append(id, prompt("without a mark")).await.unwrap();
    assert_eq!(store.mark("done").await.unwrap(), mark("second"));
    assert!(store.remove_mark("done").await.unwrap());
    assert_eq!(store.mark("done").await.unwrap(), None);
    assert!(!store.remove_mark("done").await.unwrap());
    assert_eq!(store.mark("Done").await.unwrap(), mark("another"));
    assert_eq!(read_all(&store, id).await.len(), 4, "removing a mark removes no turn");
}

pub(super) async fn a_mark_belongs_to_the_session_that_set_it_last(store: Store) {
    if store.crash_notes().is_none() {
        return;
    }
    let first = store.create(unnamed()).await.unwrap();
    let second = store.create(unnamed()).await.unwrap();
    store.append(first, marked("shared", "of first")).await.unwrap();
    store.append(second, marked("shared", "of second")).await.unwrap();
    store.delete(first).await.unwrap();
    let expected = Mark { session: second, note: "of second".to_owned() };
    assert_eq!(store.mark("shared").await.unwrap(), Some(expected));
    store.delete(second).await.unwrap();
    assert_eq!(store.mark("shared").await.unwrap(), None);
}

pub(super) async fn a_lasting_mark_loses_its_note_when_its_session_is_deleted(store: Store) {
    if store.crash_notes().is_none() {
        return;
    }
    let (kept, deleted) = (store.create(unnamed()).await.unwrap(), store.create(unnamed()).await.unwrap());
    let (name, other) = (format!("{LASTING_MARKS}agent:a"), format!("{LASTING_MARKS}agent:b"));
    store.append(kept, marked(&other, "of another")).await.unwrap();
    store.append(deleted, marked(&name, "secret")).await.unwrap();
    store.delete(deleted).await.unwrap();
    let expected = Mark { session: deleted, note: String::new() };
    assert_eq!(store.mark(&name).await.unwrap(), Some(expected.clone()));
    let expected_other = Mark { session: kept, note: "of another".to_owned() };
    assert_eq!(store.mark(&other).await.unwrap(), Some(expected_other));
    let again = store.create_with(unnamed(), marked(&name, "again"), vec![]).await;
    assert!(matches!(&again, Err(StoreError::Marked(mark)) if *mark == expected), "{again:?}");
    assert!(store.remove_mark(&name).await.unwrap());
    assert!(store.create_with(unnamed(), marked(&name, "again"), vec![]).await.is_ok());
}

pub(super) async fn marks_outlive_a_clear_and_are_not_forked(store: Store) {
    if store.crash_notes().is_none() {
        return;
    }
    let origin = store.create(unnamed()).await.unwrap();
    store.append(origin, marked("done", "note")).await.unwrap();
    let fork = store.fork(origin, Seq::END, unnamed()).await.unwrap();
    store.clear(origin).await.unwrap();
    store.delete(fork).await.unwrap();
    let expected = Mark { session: origin, note: "note".to_owned() };
    assert_eq!(store.mark("done").await.unwrap(), Some(expected));
}
