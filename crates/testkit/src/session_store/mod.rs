//! The contract of every [`SessionStore`].

mod as_context;
mod changes;
mod check;
mod concurrency;
mod leases;
mod log;
mod operations;
mod originals;
mod sessions;
mod snapshot;
mod traces;
mod watch;
mod watch_all;

use std::sync::Arc;

use azureal_core::{
    Compaction, Counts, Event, NewSession, NewTurn, Page, Seq, SessionId, SessionRecord, SessionStore,
    StoreError, StoredEvent, Tally,
};

crate::contract::contract! {
    $
    /// The contract of every [`SessionStore`], case by case.
    const SESSION_STORE_CASES: SessionStore;
    /// Runs the contract of a [`SessionStore`](azureal_core::SessionStore): one test for each of
    /// [`SESSION_STORE_CASES`], in a module of the name given.
    ///
    /// The expression is a future of a pair: an empty store, and a value that has to outlive it, such as a temporary
    /// folder. It is evaluated again for each case. If the store needs a server that may be missing (see
    /// [`servers`](crate::servers)) it may be an `Option` of that pair, and the case is skipped if it is `None`.
    ///
    /// ```text
    /// azureal_testkit::session_store_contract!(my_store, async {
    ///     let folder = tempfile::tempdir().unwrap();
    ///     (MyStore::open(folder.path()).await.unwrap(), folder)
    /// });
    /// ```
    macro session_store_contract, run by run_session_store_case;
    sessions {
        a_number_is_never_used_twice,
        a_new_session_is_empty,
        a_session_has_one_identity_from_birth,
        a_session_from_elsewhere_keeps_its_identity,
        the_session_that_was_used_last_is_known_by_worktree,
        a_session_from_elsewhere_keeps_the_time_it_was_made,
        a_session_without_a_name_is_called_by_its_number,
        sessions_of_one_name_are_found_by_activity,
        a_name_is_compared_to_the_byte,
        names_that_could_be_numbers_are_refused,
        find_or_create_makes_one_session_and_finds_it_again,
        find_or_create_needs_a_name,
        renaming_changes_the_name_and_nothing_else,
        the_session_that_was_active_last_is_listed_first,
        a_list_is_ordered_by_the_times_of_activity_or_by_changes,
        a_time_in_the_future_is_first_only_until_the_next_turn,
        a_list_is_cut_to_its_limit_and_worktree,
        sessions_are_listed_by_name_and_by_prefix,
        a_session_that_is_not_there_is_an_error_everywhere,
        a_deleted_session_leaves_nothing,
        a_run_that_is_not_stored_yet_is_noted,
        a_closed_store_says_so_everywhere,
    }
    log {
        events_are_numbered_from_one_without_gaps,
        what_is_appended_is_counted,
        the_preview_and_the_messages_are_those_of_the_fold,
        the_totals_of_turns_add_up,
        a_turn_without_events_adds_its_tokens_and_sets_its_mark,
        tokens_are_added_and_overwritten,
        tokens_of_the_cache_are_summed_with_the_others,
        pages_go_forward,
        pages_go_backward,
        prompts_are_found_from_a_point_backwards,
        the_use_of_turns_is_read_by_its_kinds,
        a_page_ends_where_the_log_does,
        event_texts_come_back_byte_for_byte,
        any_text_is_kept,
        large_events_are_read_whole,
        a_long_log_is_read_whole,
        only_what_an_agent_reported_is_cut_down,
    }
    changes {
        a_history_from_elsewhere_arrives_whole_and_once,
        a_turn_may_say_what_it_comes_after,
        what_could_not_be_read_again_is_refused,
        a_turn_that_ends_its_run_removes_the_note_of_it,
        a_refused_turn_leaves_the_note_of_its_run,
        the_revision_grows_with_every_change,
        compactions_are_ordered_by_how_far_they_reach,
        a_compaction_replaces_one_that_ends_where_it_does,
        a_compaction_ends_at_an_event,
        a_compaction_changes_no_event,
        a_compaction_says_who_wrote_it_and_how_large_it_is,
        what_is_told_is_counted_and_how_much_of_it_is_covered,
        the_size_of_a_session_includes_details_changes_and_undos,
        what_the_model_had_before_it_is_known_until_something_comes_after,
        a_fork_at_every_point_is_what_was_there_then,
        a_fork_beyond_the_end_is_refused,
        a_fork_and_its_origin_go_their_own_ways,
        clearing_removes_the_log_and_keeps_the_session,
        a_mark_is_set_with_its_turn,
        a_mark_belongs_to_the_session_that_set_it_last,
        a_lasting_mark_loses_its_note_when_its_session_is_deleted,
        marks_outlive_a_clear_and_are_not_forked,
    }
    operations {
        an_operation_that_is_sent_again_is_appended_once,
        a_repeat_is_answered_whatever_came_after_it,
        an_operation_is_refused_after_a_clear,
        an_operation_goes_with_its_session_and_not_to_its_fork,
        an_operation_needs_an_event,
        an_operation_that_is_sent_at_once_by_many_is_appended_once,
    }
    traces {
        a_store_has_one_id_from_its_first_write,
        a_deleted_session_leaves_a_tombstone,
        tombstones_are_read_in_pages,
        a_session_that_comes_back_revives_its_tombstone,
        a_session_of_two_with_one_uuid_leaves_no_tombstone,
        each_session_that_comes_back_does_so_later_than_the_one_before,
        a_name_has_the_time_at_which_it_was_given,
        a_session_from_elsewhere_keeps_its_last_activity_without_events,
        a_new_generation_begins_with_each_clear,
        an_event_keeps_its_entry_and_the_time_of_its_removal,
    }
    concurrency {
        sessions_made_at_once_have_numbers_of_their_own,
        one_session_is_made_however_many_ask_for_its_name,
        turns_appended_at_once_stay_whole,
        tokens_added_at_once_all_count,
    }
    leases {
        a_session_is_leased_to_one_at_a_time,
        a_lease_that_is_given_back_is_free,
        a_lease_that_is_not_renewed_ends,
        a_lease_that_ended_goes_on_unless_somebody_was_let_in,
        a_lease_may_take_the_place_of_one_whose_holder_is_no_more,
        a_turn_under_a_lost_lease_is_refused,
        a_turn_without_a_lease_is_nobodys_business,
        leases_are_listed_with_who_has_them,
        a_lease_goes_with_its_session_and_not_to_its_fork,
        of_many_who_ask_at_once_one_is_given_the_lease,
    }
    originals {
        an_original_comes_back_byte_for_byte,
        an_original_that_is_put_twice_is_there_once,
        the_original_of_an_event_is_found,
        originals_are_deleted_alone,
        originals_go_with_their_session,
        a_cleared_session_has_no_originals,
        a_fork_has_the_originals_of_its_events,
        an_original_is_copied_from_another_store,
        originals_are_measured,
        old_originals_expire,
    }
    watch {
        what_is_done_to_a_watched_session_is_heard,
        a_change_is_heard_while_waiting_for_it,
        a_wait_ends_when_its_time_is_over,
        each_of_several_who_watch_hears,
    }
    watch_all {
        whatever_is_done_in_a_watched_store_is_heard,
        a_wait_for_any_change_ends_when_its_time_is_over,
        each_of_several_who_watch_a_store_hears,
    }
    snapshot {
        a_snapshot_of_an_empty_session_is_empty,
        a_snapshot_tells_the_beginning_of_a_session,
        a_snapshot_of_a_long_session_reads_it_whole,
        a_snapshot_of_a_compacted_session_begins_with_its_summary,
        a_cached_ledger_is_that_of_the_events_and_is_found_until_the_session_is_changed,
        the_size_of_an_opening_is_stored_again_when_the_threshold_is_another,
        a_snapshot_takes_the_first_event_that_is_appended,
    }
    check {
        a_sound_store_passes_its_check,
        sessions_with_one_uuid_are_found_by_the_check,
    }
    as_context {
        a_conversation_is_made_at_its_first_append,
        a_conversation_is_opened_by_its_number,
        an_unknown_number_is_an_error,
        an_unknown_name_is_an_empty_conversation,
        a_shared_name_is_the_session_that_was_active_last,
        a_forked_conversation_has_an_id_and_a_life_of_its_own,
        a_compacted_history_is_system_message_summary_and_the_rest,
        a_summary_goes_with_what_the_user_asked,
        a_turn_that_goes_on_after_the_summary_keeps_its_prompt_whole,
        sealed_segments_stay_until_a_compaction,
        what_the_user_asked_is_bounded,
        a_summary_goes_with_the_ledger_of_its_part,
        what_stands_for_a_covered_part_takes_a_quarter_of_the_threshold,
        a_conversation_keeps_the_summary_that_is_laid_over_it,
        a_system_message_of_several_blocks_stays_whole,
        a_conversation_is_opened_by_its_uuid,
        each_listed_id_opens_its_conversation,
        a_conversation_is_made_of_messages_and_of_another,
        conversations_are_listed_as_their_logs_are,
        a_conversation_whose_tokens_are_set_has_none_of_the_cache,
    }
}

pub(crate) use log::odd_texts;

type Store = Arc<dyn SessionStore>;

fn unnamed() -> NewSession {
    NewSession { name: None, worktree: ".".to_owned(), ..NewSession::default() }
}

fn named(name: &str) -> NewSession {
    NewSession { name: Some(name.to_owned()), ..unnamed() }
}

/// Creates a session with numbered prompts, one turn each.
async fn session_of_prompts(store: &Store, count: u64) -> SessionId {
    let id = store.create(unnamed()).await.unwrap();
    for number in 1..=count {
        store.append(id, prompt(&number.to_string())).await.unwrap();
    }
    id
}

fn prompt(text: &str) -> NewTurn {
    NewTurn::verbatim([Event::user(text)])
}

/// Reads a whole session, page by page.
async fn read_all(store: &Store, id: SessionId) -> Vec<StoredEvent> {
    let mut all: Vec<StoredEvent> = Vec::new();
    loop {
        let end = all.last().map_or(Seq::START, |event| event.seq);
        let mut page = page_after(store, id, end, 1000).await;
        if page.is_empty() {
            return all;
        }
        all.append(&mut page);
    }
}

/// Reads a page forward. That it gets on is checked here, or a wrong store would be read for ever.
async fn page_after(store: &Store, id: SessionId, after: Seq, limit: usize) -> Vec<StoredEvent> {
    let page = store.read(id, Page::After(after, limit)).await.unwrap();
    check_order(&page, limit);
    assert!(page.iter().all(|event| event.seq > after), "a page after {after} begins before it");
    page
}

/// Reads a page backward, and checks that it gets on.
async fn page_before(store: &Store, id: SessionId, before: Seq, limit: usize) -> Vec<StoredEvent> {
    let page = store.read(id, Page::Before(before, limit)).await.unwrap();
    check_order(&page, limit);
    assert!(page.iter().all(|event| event.seq < before), "a page before {before} ends after it");
    page
}

fn check_order(page: &[StoredEvent], limit: usize) {
    assert!(page.len() <= limit, "{} events, {limit} were asked for", page.len());
    assert!(page.windows(2).all(|pair| pair[0].seq < pair[1].seq), "a page is not in order");
}

/// Reads the texts of a whole session.
async fn texts(store: &Store, id: SessionId) -> Vec<String> {
    let all = read_all(store, id).await;
    all.into_iter().map(|event| event.json.unwrap()).collect()
}

/// Counts events that begin at number 1.
fn counts_of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Counts {
    let mut tally = Tally::default();
    for (event, number) in events.into_iter().zip(1..) {
        tally.add(Seq(number), Some(event));
    }
    tally.counts
}

fn ids(records: &[SessionRecord]) -> Vec<SessionId> {
    records.iter().map(|record| record.id).collect()
}

async fn list_ids(store: &Store) -> Vec<SessionId> {
    ids(&store.list(&Default::default()).await.unwrap())
}

#[track_caller]
fn assert_no_such_session<T: std::fmt::Debug>(answer: &Result<T, StoreError>, id: SessionId) {
    assert!(
        matches!(answer, Err(StoreError::NoSuchSession(missing)) if *missing == id),
        "{id} is not there, and yet: {answer:?}"
    );
}

#[track_caller]
fn assert_no_such_event<T: std::fmt::Debug>(answer: &Result<T, StoreError>, expected: (SessionId, Seq, Seq)) {
    match answer {
        Err(StoreError::NoSuchEvent { session, seq, last }) => assert_eq!((*session, *seq, *last), expected),
        other => panic!("{expected:?} has no event, and yet: {other:?}"),
    }
}

#[track_caller]
fn assert_unusable<T: std::fmt::Debug>(answer: &Result<T, StoreError>, name: &str) {
    assert!(
        matches!(answer, Err(StoreError::UnusableName(refused)) if refused == name),
        "{name:?} cannot be a name, and yet: {answer:?}"
    );
}

#[track_caller]
fn assert_closed<T: std::fmt::Debug>(answer: &Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Closed)), "the store is closed, and yet: {answer:?}");
}
