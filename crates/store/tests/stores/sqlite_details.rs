//! The size of a session with details, in a file that an azureal without details writes too.

use crate::scratch::{Project, append, new_session, wait};
use azureal_store::core::event::ToolResult;
use azureal_store::core::{Compaction, Event, ListQuery, Seq, SessionId, SessionStore, rendered_chars};

/// The result of an edit, with or without its detail.
fn edited(detail: Option<&str>) -> Event {
    let detail = detail.map(str::to_owned);
    Event::ToolResult(ToolResult {
        tool_name: "Edit".into(),
        content: "ok".into(),
        detail,
        ..ToolResult::default()
    })
}

/// Does to a file what an azureal without details does when it appends a prompt: it counts in its own columns.
fn append_without_details(project: &Project, session: i64, text: &str) {
    let client = project.raw();
    let (seq, id): (i64, i64) = client
        .query_row(
            "SELECT (SELECT ifnull(max(seq), 0) + 1 FROM events WHERE session_id = ?1),
                    (SELECT ifnull(max(id), 0) + 1 FROM events)",
            [session],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    let event = Event::user(text);
    client
        .execute(
            "INSERT INTO events (id, session_id, seq, kind, data) VALUES (?1, ?2, ?3, 'UserMessage', ?4)",
            (id, session, seq, event.to_json()),
        )
        .unwrap();
    client
        .execute(
            "UPDATE sessions SET counted_seq = ?2, tallied_seq = ?2, last_event = ?3, told = ifnull(told, 0) + ?4,
               event_count = ifnull(event_count, 0) + 1, message_count = ifnull(message_count, 0) + 1,
               open_message = 'prompt', answered = 0, preview = ifnull(preview, 'first'), last_prompt = ?5,
               active = (SELECT max(active) + 1 FROM sessions)
             WHERE id = ?1",
            (session, seq, id, rendered_chars(&event).cast_signed(), text),
        )
        .unwrap();
}

#[test]
fn an_older_azureal_finds_the_size_without_details_and_its_turns_are_counted() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    let detail = "--- a/x\n+++ b/x\n@@\n+a long line that only this version counts";
    append(&store, id, vec![Event::user("first"), edited(Some(detail))]);
    wait(store.add_compaction(id, &Compaction::new(Seq(2), "both"))).unwrap();
    let size = |events: &[Event]| events.iter().map(rendered_chars).sum::<u64>();
    let plain = size(&[Event::user("first"), edited(None)]);
    let told = || -> (i64, i64) {
        let sql = "SELECT told, (SELECT covers FROM compactions) FROM sessions";
        project.raw().query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    assert_eq!(told(), (plain.cast_signed(), plain.cast_signed()), "as the older one counts");

    let first = [Event::user("first"), edited(Some(detail))];
    let check = |more: &[&str]| {
        let prompts: Vec<Event> = more.iter().copied().map(Event::user).collect();
        for record in
            [wait(store.get(id)).unwrap(), wait(store.list(&ListQuery::default())).unwrap()[0].clone()]
        {
            assert_eq!(record.counts.rendered_chars, size(&first) + size(&prompts));
            assert_eq!(record.covered, size(&first));
        }
    };
    append_without_details(&project, 1, "second");
    check(&["second"]);
    append(&store, id, vec![Event::user("third")]);
    check(&["second", "third"]);
    // The older one writes a summary, of which it measures less.
    project
        .raw()
        .execute_batch(&format!(
            "DELETE FROM compactions;
             INSERT INTO compactions (session_id, after_seq, summary, covers) VALUES (1, 2, 'both', {plain});"
        ))
        .unwrap();
    check(&["second", "third"]);
}

#[test]
fn a_session_that_an_older_azureal_forked_or_cleared_is_counted_again() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    let events = vec![Event::user("first"), edited(Some("--- a/x\n+++ b/x\n@@\n+y, with a detail"))];
    append(&store, id, events.clone());
    let size = events.iter().map(rendered_chars).sum::<u64>();
    project
        .raw()
        .execute_batch(
            "INSERT INTO sessions (id, name, worktree, created, counted_seq, tallied_seq, event_count, message_count, told,
               open_message, last_event, active)
             SELECT 2, 'fork', worktree, created, counted_seq, tallied_seq, event_count, message_count, told, open_message,
               last_event + 2, active + 1 FROM sessions WHERE id = 1;
             INSERT INTO events (session_id, seq, kind, data) SELECT 2, seq, kind, data FROM events WHERE session_id = 1;",
        )
        .unwrap();
    let fork = SessionId::new(2).unwrap();
    let sizes = || -> Vec<u64> {
        let listed = wait(store.list(&ListQuery::default())).unwrap();
        listed.iter().map(|record| record.counts.rendered_chars).collect()
    };
    assert_eq!(sizes(), [size, size]);
    assert_eq!(wait(store.get(fork)).unwrap().counts.rendered_chars, size);
    append(&store, fork, vec![Event::user("more")]);
    let more = rendered_chars(&Event::user("more"));
    assert_eq!(sizes(), [size + more, size]);
    let detailed: i64 = project
        .raw()
        .query_row("SELECT details FROM sessions WHERE id = 2 AND detailed_seq = counted_seq", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert!(detailed > 0);

    project
        .raw()
        .execute_batch(
            "DELETE FROM events WHERE session_id = 2;
             UPDATE sessions SET counted_seq = 0, tallied_seq = 0, event_count = 0, message_count = 0, told = 0,
               open_message = 'nothing', last_event = NULL WHERE id = 2;",
        )
        .unwrap();
    assert_eq!(sizes(), [0, size]);
    append(&store, fork, vec![Event::user("more")]);
    assert_eq!(sizes(), [more, size]);
}

#[test]
fn a_file_without_details_is_read_as_it_is_and_gains_the_columns() {
    let project = Project::new();
    let store = project.store();
    let id = new_session(&store);
    append(&store, id, vec![Event::user("first"), Event::assistant("ok")]);
    wait(store.add_compaction(id, &Compaction::new(Seq(1), "one"))).unwrap();
    append(&store, id, vec![Event::user("second"), Event::assistant("ok")]);
    let before = wait(store.list(&ListQuery::default())).unwrap();
    drop(store);
    project
        .raw()
        .execute_batch(
            "ALTER TABLE sessions DROP COLUMN details; ALTER TABLE sessions DROP COLUMN detailed_seq;
             ALTER TABLE compactions DROP COLUMN covered_details;",
        )
        .unwrap();
    let bytes = std::fs::read(project.path()).unwrap();
    let store = project.store();
    assert_eq!(wait(store.list(&ListQuery::default())).unwrap(), before);
    assert_eq!(wait(store.get(id)).unwrap(), before[0]);
    assert_eq!(std::fs::read(project.path()).unwrap(), bytes, "reading changes nothing");
    append(&store, id, vec![edited(Some("--- a/x\n+++ b/x\n@@\n+y"))]);
    let added = rendered_chars(&edited(Some("--- a/x\n+++ b/x\n@@\n+y")));
    let after = wait(store.get(id)).unwrap();
    assert_eq!(after.counts.rendered_chars, before[0].counts.rendered_chars + added);
    assert_eq!(after.covered, before[0].covered);
}
