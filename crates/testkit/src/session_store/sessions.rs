//! Making, naming, finding, listing and deleting sessions.

use std::time::Duration;

use azureal_core::{
    Counts, Event, Holder, LeaseId, ListOrder, ListQuery, NameFilter, NewLease, NewMark, NewTurn, Page, Seq,
    SessionId, SessionRecord, Tokens, Uuid, WorktreeFilter, normal_timestamp,
};

use super::*;

/// A number that no store gives out in a test.
fn nobody() -> SessionId {
    SessionId::new(1_999_999_999).unwrap()
}

pub(super) async fn a_number_is_never_used_twice(store: Store) {
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(store.create(unnamed()).await.unwrap());
    }
    // The newest, then all of them: neither the greatest existing number nor an empty store is enough.
    store.delete(seen[2]).await.unwrap();
    seen.push(store.create(unnamed()).await.unwrap());
    for id in [seen[0], seen[1], seen[3]] {
        store.delete(id).await.unwrap();
    }
    seen.push(store.find_or_create(named("by name")).await.unwrap());
    seen.push(store.fork(seen[4], Seq::END, unnamed()).await.unwrap());
    let mut numbers: Vec<u32> = seen.iter().map(|id| id.number()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), seen.len(), "{seen:?}");
    assert_eq!(store.count().await.unwrap(), 2);
}

pub(super) async fn a_new_session_is_empty(store: Store) {
    let new = NewSession { worktree: "../feat".to_owned(), ..named("a name") };
    let id = store.create(new).await.unwrap();
    let record = store.get(id).await.unwrap();
    let created_at = record.created_at.clone();
    assert!(
        created_at.is_empty() || (created_at.len() == 20 && created_at.ends_with('Z')),
        "created at {created_at:?}"
    );
    assert_eq!(created_at, normal_timestamp(&created_at));
    let expected = SessionRecord {
        id,
        name: "a name".to_owned(),
        named_at: record.named_at.clone(),
        worktree: "../feat".to_owned(),
        created_at,
        uuid: record.uuid,
        last_active: record.last_active.clone(),
        ..SessionRecord::new(id)
    };
    assert!(record.uuid.is_some());
    assert_eq!(record, expected);
    assert_eq!(store.list(&ListQuery::default()).await.unwrap(), [expected]);
    assert_eq!(read_all(&store, id).await, []);
    assert_eq!(store.compactions(id).await.unwrap(), []);
}

pub(super) async fn a_session_from_elsewhere_keeps_the_time_it_was_made(store: Store) {
    let new = NewSession { created_at: Some("2024-02-29T12:00:00Z".to_owned()), ..unnamed() };
    let id = store.create(new).await.unwrap();
    assert_eq!(store.get(id).await.unwrap().created_at, "2024-02-29T12:00:00Z");
    let happened_at = Some("2024-02-29T13:00:00Z".to_owned());
    let turn = NewTurn { happened_at, ..NewTurn::verbatim([Event::user("Earlier")]) };
    store.append(id, turn).await.unwrap();
    let last_active = store.get(id).await.unwrap().last_active;
    assert!(last_active.is_empty() || last_active == "2024-02-29T13:00:00Z", "{last_active}");
    store.append(id, NewTurn::verbatim([Event::user("Now")])).await.unwrap();
    let last_active = store.get(id).await.unwrap().last_active;
    assert!(last_active.is_empty() || last_active.as_str() > "2024-02-29T13:00:00Z", "{last_active}");
}

pub(super) async fn a_session_without_a_name_is_called_by_its_number(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let name = store.get(id).await.unwrap().name;
    assert_eq!(name, id.to_string());
    assert_eq!(store.find(&name).await.unwrap(), [id]);
}

pub(super) async fn sessions_of_one_name_are_found_by_activity(store: Store) {
    let first = store.create(named("twin")).await.unwrap();
    let second = store.create(named("twin")).await.unwrap();
    let other = store.create(named("other")).await.unwrap();
    assert_eq!(store.find("twin").await.unwrap(), [second, first]);
    store.append(first, prompt("hello")).await.unwrap();
    assert_eq!(store.find("twin").await.unwrap(), [first, second]);
    assert_eq!(store.find_or_create(named("twin")).await.unwrap(), first);
    assert_eq!(store.find("other").await.unwrap(), [other]);
    assert_eq!(store.find("nobody").await.unwrap(), []);
}

pub(super) async fn a_name_is_compared_to_the_byte(store: Store) {
    let long = "long ".repeat(200);
    let names = [
        "name",
        "Name",
        "name ",
        " name",
        "n_me",
        "n%",
        "*",
        "n\u{e4}me",
        "na\u{308}me",
        "\u{1F980}",
        "a\0b",
        "a",
        "it's \"quoted\" \\",
        "two\nlines",
        "--flag",
        "\u{202e}eman",
        "3",
        &long,
    ];
    let mut made = Vec::new();
    for name in names {
        made.push(store.create(named(name)).await.unwrap());
    }
    for (name, id) in names.into_iter().zip(made) {
        assert_eq!(store.get(id).await.unwrap().name, name);
        assert_eq!(store.find(name).await.unwrap(), [id], "{name:?}");
        assert_eq!(store.find_or_create(named(name)).await.unwrap(), id, "{name:?}");
        let other = format!(" {name}.");
        store.rename(id, &other).await.unwrap();
        assert_eq!(store.get(id).await.unwrap().name, other);
        assert_eq!(store.find(&other).await.unwrap(), [id], "{other:?}");
        assert_eq!(store.find(name).await.unwrap(), [], "{name:?}");
    }
}

pub(super) async fn names_that_could_be_numbers_are_refused(store: Store) {
    let id = store.create(named("good")).await.unwrap();
    for name in ["", "  ", "S3", "s12", "S007"] {
        assert_unusable(&store.create(named(name)).await, name);
        assert_unusable(&store.find_or_create(named(name)).await, name);
        assert_unusable(&store.rename(id, name).await, name);
        assert_unusable(&store.fork(id, Seq::END, named(name)).await, name);
    }
    assert_eq!(list_ids(&store).await, [id], "a refused session was made");
    assert_eq!(store.get(id).await.unwrap().name, "good");
}

pub(super) async fn find_or_create_makes_one_session_and_finds_it_again(store: Store) {
    let id = store.find_or_create(named("mine")).await.unwrap();
    let later = store.create(named("later")).await.unwrap();
    let elsewhere = NewSession { worktree: "../elsewhere".to_owned(), ..named("mine") };
    assert_eq!(store.find_or_create(elsewhere).await.unwrap(), id);
    assert_eq!(store.get(id).await.unwrap().worktree, ".");
    assert_eq!(list_ids(&store).await, [later, id], "finding is no activity");
    store.delete(id).await.unwrap();
    assert_ne!(store.find_or_create(named("mine")).await.unwrap(), id);
}

pub(super) async fn find_or_create_needs_a_name(store: Store) {
    assert_unusable(&store.find_or_create(unnamed()).await, "");
    assert_eq!(list_ids(&store).await, []);
}

pub(super) async fn renaming_changes_the_name_and_nothing_else(store: Store) {
    let id = session_of_prompts(&store, 2).await;
    let later = store.create(unnamed()).await.unwrap();
    let before = store.get(id).await.unwrap();
    store.rename(id, "a better name").await.unwrap();
    let revision = before.revision + 1;
    let after = store.get(id).await.unwrap();
    let named_at = after.named_at.clone();
    let expected = SessionRecord { name: "a better name".to_owned(), named_at, revision, ..before.clone() };
    assert_eq!(after, expected);
    assert_eq!(store.find("a better name").await.unwrap(), [id]);
    assert_eq!(store.find(&before.name).await.unwrap(), []);
    assert_eq!(list_ids(&store).await, [later, id], "a rename is no activity");
    assert_eq!(texts(&store, id).await.len(), 2);
}

pub(super) async fn the_session_that_was_active_last_is_listed_first(store: Store) {
    let a = store.create(unnamed()).await.unwrap();
    let b = store.create(unnamed()).await.unwrap();
    let c = store.create(unnamed()).await.unwrap();
    assert_eq!(list_ids(&store).await, [c, b, a]);
    store.append(a, prompt("hello")).await.unwrap();
    assert_eq!(list_ids(&store).await, [a, c, b]);
    store.append(b, prompt("hello")).await.unwrap();
    assert_eq!(list_ids(&store).await, [b, a, c]);
    store.append(a, NewTurn::default()).await.unwrap();
    assert_eq!(list_ids(&store).await, [b, a, c], "a turn without events is no activity");
    let fork = store.fork(c, Seq::END, unnamed()).await.unwrap();
    assert_eq!(list_ids(&store).await, [fork, b, a, c], "the fork is active, its origin is not");

    store.read(c, Page::last(1)).await.unwrap();
    store.rename(c, "other").await.unwrap();
    store.set_tokens(c, Tokens::new(1, 1)).await.unwrap();
    store.add_tokens(c, Tokens::new(1, 1)).await.unwrap();
    store.add_compaction(b, &Compaction::new(Seq(1), "summary")).await.unwrap();
    store.remove_compaction(b, Seq(1)).await.unwrap();
    store.clear(b).await.unwrap();
    assert_eq!(list_ids(&store).await, [fork, b, a, c], "none of this is activity");
    store.delete(fork).await.unwrap();
    assert_eq!(list_ids(&store).await, [b, a, c]);
}

/// A turn from elsewhere.
fn prompt_at(time: &str) -> NewTurn {
    NewTurn { happened_at: Some(time.to_owned()), ..prompt("Earlier") }
}

async fn listed(store: &Store, order: ListOrder) -> Vec<SessionId> {
    ids(&store.list(&ListQuery { order, ..ListQuery::default() }).await.unwrap())
}

pub(super) async fn a_list_is_ordered_by_the_times_of_activity_or_by_changes(store: Store) {
    let [a, b, c] = [
        store.create(named("twin")).await.unwrap(),
        store.create(named("twin")).await.unwrap(),
        store.create(unnamed()).await.unwrap(),
    ];
    store.append(a, prompt_at("2024-02-29T12:00:00Z")).await.unwrap();
    store.append(b, prompt_at("2023-01-31T09:30:00Z")).await.unwrap();
    assert_eq!(listed(&store, ListOrder::Activity).await, [c, a, b]);
    assert_eq!(listed(&store, ListOrder::Changes).await, [b, a, c]);
    assert_eq!(store.find("twin").await.unwrap(), [b, a], "names are found by what was done here");
    assert_eq!(store.find_or_create(named("twin")).await.unwrap(), b);

    store.append(b, prompt_at("2024-02-29T12:00:00Z")).await.unwrap();
    assert_eq!(listed(&store, ListOrder::Activity).await, [c, b, a], "of equal times, the last change");
    store.append(c, prompt_at("2022-01-31T09:30:00Z")).await.unwrap();
    assert_eq!(listed(&store, ListOrder::Activity).await, [b, a, c], "a turn with an older time");
    let imported = store.create_with(named("imported"), prompt_at("2024-02-29T11:59:59Z"), vec![]).await;
    let imported = imported.unwrap();
    store.append(a, prompt("Now")).await.unwrap();
    store.append(b, NewTurn { events: vec![], ..prompt_at("1999-12-31T23:59:59Z") }).await.unwrap();
    let [by_time, by_change] = [[a, b, imported, c], [a, imported, c, b]];
    for (order, all) in [(ListOrder::Activity, by_time), (ListOrder::Changes, by_change)] {
        let twins: Vec<SessionId> = all.into_iter().filter(|id| [a, b].contains(id)).collect();
        for limit in 0..=all.len() {
            let query = ListQuery { order, limit: Some(limit), ..ListQuery::default() };
            assert_eq!(ids(&store.list(&query).await.unwrap()), all[..limit], "{query:?}");
            let query = ListQuery { order, limit: Some(limit), ..ListQuery::named("twin") };
            assert_eq!(ids(&store.list(&query).await.unwrap()), twins[..limit.min(2)], "{query:?}");
            let name = Some(NameFilter::Prefix("tw".to_owned()));
            let query = ListQuery { name, ..query };
            assert_eq!(ids(&store.list(&query).await.unwrap()), twins[..limit.min(2)], "{query:?}");
        }
    }
    let fork = store.fork(c, Seq::END, unnamed()).await.unwrap();
    store.delete(b).await.unwrap();
    assert_eq!(listed(&store, ListOrder::Activity).await, [fork, a, imported, c]);
    assert_eq!(listed(&store, ListOrder::Changes).await, [fork, a, imported, c]);
}

pub(super) async fn a_time_in_the_future_is_first_only_until_the_next_turn(store: Store) {
    let [a, b] = [store.create(unnamed()).await.unwrap(), store.create(unnamed()).await.unwrap()];
    store.append(a, prompt_at("9998-12-31T23:59:59Z")).await.unwrap();
    store.append(b, prompt("hello")).await.unwrap();
    assert_eq!(listed(&store, ListOrder::Activity).await, [b, a]);
}

pub(super) async fn a_list_is_cut_to_its_limit_and_worktree(store: Store) {
    let mut made = Vec::new();
    for worktree in [".", "../feat", "feat-branch", "/old/place/feat", "/old/place/other"] {
        let new = NewSession { name: None, worktree: worktree.to_owned(), ..NewSession::default() };
        made.push(store.create(new).await.unwrap());
    }
    let [main, path, branch, absolute, other] = made[..] else { unreachable!() };
    let feat = WorktreeFilter {
        names: vec!["../feat".to_owned(), "feat-branch".to_owned()],
        last_part: "feat".to_owned(),
    };
    let rows: [(Option<WorktreeFilter>, Option<usize>, &[SessionId]); 8] = [
        (None, None, &[other, absolute, branch, path, main]),
        (None, Some(2), &[other, absolute]),
        (None, Some(0), &[]),
        (None, Some(usize::MAX), &[other, absolute, branch, path, main]),
        (Some(feat.clone()), None, &[absolute, branch, path]),
        // The limit is one on what is listed, not on what is looked at.
        (Some(feat.clone()), Some(2), &[absolute, branch]),
        (Some(feat), Some(9), &[absolute, branch, path]),
        (Some(WorktreeFilter::default()), None, &[]),
    ];
    for (worktree, limit, expected) in rows {
        for order in [ListOrder::Activity, ListOrder::Changes] {
            let query = ListQuery { worktree: worktree.clone(), order, limit, ..ListQuery::default() };
            let listed = store.list(&query).await.unwrap();
            assert_eq!(ids(&listed), expected, "{query:?}");
            for record in listed {
                assert_eq!(store.get(record.id).await.unwrap(), record);
            }
        }
    }
}

pub(super) async fn sessions_are_listed_by_name_and_by_prefix(store: Store) {
    // Longer than an index holds, and different only behind that.
    let long = ["one", "two"].map(|end| format!("{}{end}", "ä".repeat(150)));
    let mut made = Vec::new();
    for name in
        ["log", "login", "logout", "Login", "l%g", "l_g", "log\0in", "Sam", "\u{10ffff}x", &long[0], &long[1]]
    {
        let worktree = if name == "logout" { "../feat" } else { "." };
        made.push(store.create(NewSession { worktree: worktree.to_owned(), ..named(name) }).await.unwrap());
    }
    let without_name = store.create(unnamed()).await.unwrap();
    let [log, login, logout, upper, percent, underscore, nul, sam, last, long_one, long_two] = made[..]
    else {
        unreachable!()
    };
    // Active last, so that the order is not that of the names or of the numbers.
    store.append(log, prompt("hello")).await.unwrap();
    let exact = |name: &str| Some(NameFilter::Exact(name.to_owned()));
    let prefix = |text: &str| Some(NameFilter::Prefix(text.to_owned()));
    let all_named = [log, long_two, long_one, last, sam, nul, underscore, percent, upper, logout, login];
    let rows: [(Option<NameFilter>, &[SessionId]); 15] = [
        (exact("login"), &[login]),
        (exact("lo"), &[]),
        (exact(&without_name.to_string()), &[without_name]),
        (prefix("lo"), &[log, nul, logout, login]),
        (prefix("log"), &[log, nul, logout, login]),
        (prefix("log\0"), &[nul]),
        (prefix("logi"), &[login]),
        (prefix("l%"), &[percent]),
        (prefix("l_"), &[underscore]),
        (prefix("*"), &[]),
        // A session without a name does not match the prefix S.
        (prefix("S"), &[sam]),
        (prefix("\u{10ffff}"), &[last]),
        (prefix(&"ä".repeat(120)), &[long_two, long_one]),
        (prefix(&long[0]), &[long_one]),
        (prefix(""), &all_named),
    ];
    for (name, expected) in rows {
        for limit in [None, Some(1), Some(100)] {
            let query = ListQuery { name: name.clone(), limit, ..ListQuery::default() };
            let listed = store.list(&query).await.unwrap();
            let expected = expected.get(..limit.unwrap_or(usize::MAX).min(expected.len())).unwrap();
            assert_eq!(ids(&listed), expected, "{query:?}");
            for record in listed {
                assert_eq!(store.get(record.id).await.unwrap(), record);
            }
        }
    }
    let feat = WorktreeFilter { names: vec!["../feat".to_owned()], last_part: "feat".to_owned() };
    for name in [prefix("log"), exact("logout")] {
        let query = ListQuery { worktree: Some(feat.clone()), name, limit: Some(1), ..ListQuery::default() };
        assert_eq!(ids(&store.list(&query).await.unwrap()), [logout], "{query:?}");
    }
    let gone = ListQuery { worktree: Some(feat), name: exact("login"), ..ListQuery::default() };
    assert_eq!(store.list(&gone).await.unwrap(), []);
    store.rename(login, "sign in").await.unwrap();
    store.delete(log).await.unwrap();
    let query = ListQuery { name: prefix("log"), ..ListQuery::default() };
    assert_eq!(ids(&store.list(&query).await.unwrap()), [nul, logout], "a renamed and a deleted one");
}

pub(super) async fn a_session_that_is_not_there_is_an_error_everywhere(store: Store) {
    let deleted = session_of_prompts(&store, 1).await;
    store.delete(deleted).await.unwrap();
    let marked = || NewTurn {
        mark: Some(NewMark { name: "mark".to_owned(), note: String::new() }),
        ..prompt("hello")
    };
    for id in [deleted, nobody()] {
        assert_no_such_session(&store.get(id).await, id);
        assert_no_such_session(&store.rename(id, "name").await, id);
        assert_no_such_session(&store.delete(id).await, id);
        assert_no_such_session(&store.append(id, marked()).await, id);
        assert_no_such_session(&store.append(id, NewTurn::default()).await, id);
        assert_no_such_session(&store.read(id, Page::last(1)).await, id);
        assert_no_such_session(&store.read_prompts(id, Seq::END, 1).await, id);
        assert_no_such_session(&store.read_usage(id, Seq::START, 1).await, id);
        assert_no_such_session(&store.read(id, Page::After(Seq::START, 0)).await, id);
        assert_no_such_session(&store.clear(id).await, id);
        assert_no_such_session(&store.fork(id, Seq::END, unnamed()).await, id);
        assert_no_such_session(&store.set_tokens(id, Tokens::default()).await, id);
        assert_no_such_session(&store.add_tokens(id, Tokens::default()).await, id);
        assert_no_such_session(&store.compactions(id).await, id);
        assert_no_such_session(&store.add_compaction(id, &Compaction::new(Seq(1), "summary")).await, id);
        assert_no_such_session(&store.remove_compaction(id, Seq(1)).await, id);
        if let Some(notes) = store.crash_notes() {
            assert_no_such_session(&notes.note_run(id, Some("run")).await, id);
            assert_no_such_session(&notes.clear_original_run(id, "run").await, id);
        }
        if let Some(leases) = store.leases() {
            assert_no_such_session(&leases.take(id, &lease()).await, id);
            assert_no_such_session(&leases.renew(id, &lease().id, Duration::ZERO).await, id);
            assert_no_such_session(&leases.release(id, &lease().id).await, id);
        }
        assert_no_such_session(&store.watch(id).await.map(|_| ()), id);
    }
    assert_eq!(list_ids(&store).await, [], "an error made a session");
    assert_eq!(store.mark("mark").await.unwrap(), None, "an error set a mark");
}

fn lease() -> NewLease {
    let (user, host, agent, since) = Default::default();
    let holder = Holder { user, host, pid: 1, agent, since };
    NewLease { id: LeaseId::random(), holder, lasts: Duration::from_secs(60), instead_of: None }
}

pub(super) async fn a_deleted_session_leaves_nothing(store: Store) {
    let kept = session_of_prompts(&store, 2).await;
    let id = store.create(named("to go")).await.unwrap();
    let turn = NewTurn {
        events: vec![Event::user("secret").into()],
        tokens: Tokens::new(1, 2),
        mark: Some(NewMark { name: "done".to_owned(), note: "note".to_owned() }),
        ..NewTurn::default()
    };
    store.append(id, turn).await.unwrap();
    store.add_compaction(id, &Compaction::new(Seq(1), "summary")).await.unwrap();
    store.delete(id).await.unwrap();

    assert_no_such_session(&store.get(id).await, id);
    assert_no_such_session(&store.read(id, Page::last(9)).await, id);
    assert_no_such_session(&store.compactions(id).await, id);
    assert_no_such_session(&store.delete(id).await, id);
    assert_eq!(store.find("to go").await.unwrap(), []);
    assert_eq!(store.mark("done").await.unwrap(), None);
    assert_eq!(list_ids(&store).await, [kept]);
    let again = store.create(named("to go")).await.unwrap();
    assert_eq!(store.get(again).await.unwrap().counts, Counts::default());
    assert_eq!(read_all(&store, again).await, []);
    assert_eq!(store.compactions(again).await.unwrap(), []);
    assert_eq!(texts(&store, kept).await.len(), 2, "another session was touched");
}

pub(super) async fn a_session_has_one_identity_from_birth(store: Store) {
    let [a, b] = [session_of_prompts(&store, 2).await, store.create(named("b")).await.unwrap()];
    let uuid = async |id| store.get(id).await.unwrap().uuid.unwrap();
    let (first, second) = (uuid(a).await, uuid(b).await);
    assert_ne!(first, second);
    assert_eq!(store.get(a).await.unwrap().forked_from, None);
    store.rename(a, "renamed").await.unwrap();
    store.append(a, prompt("more")).await.unwrap();
    store.clear(a).await.unwrap();
    assert_eq!(uuid(a).await, first);
    assert_eq!(store.find_uuid(first).await.unwrap(), Some(a));
    assert_eq!(store.find_uuid(second).await.unwrap(), Some(b));
    assert_eq!(store.find_uuid(Uuid::new_v4()).await.unwrap(), None);
    let fork = store.fork(b, Seq::END, NewSession { uuid: Some(second), ..unnamed() }).await.unwrap();
    assert_ne!(uuid(fork).await, second, "a fork is another session");
    assert_eq!(store.get(fork).await.unwrap().forked_from, Some(second));
    store.delete(b).await.unwrap();
    assert_eq!(store.find_uuid(second).await.unwrap(), None);
    let made = store.find_or_create(named("made")).await.unwrap();
    let listed = store.list(&ListQuery::default()).await.unwrap();
    for (id, record) in [made, fork, a].into_iter().zip(&listed) {
        assert_eq!((record.id, record.uuid), (id, Some(uuid(id).await)));
    }
}

pub(super) async fn a_session_from_elsewhere_keeps_its_identity(store: Store) {
    let [uuid, parent, other] = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()];
    let from_elsewhere =
        |uuid| NewSession { uuid: Some(uuid), forked_from: Some(parent), ..named("from elsewhere") };
    let id = store.create_with(from_elsewhere(uuid), prompt("hello"), vec![]).await.unwrap();
    let created = store.create(from_elsewhere(other)).await.unwrap();
    for (id, uuid) in [(id, uuid), (created, other)] {
        let record = store.get(id).await.unwrap();
        assert_eq!((record.uuid, record.forked_from), (Some(uuid), Some(parent)));
        assert_eq!(store.find_uuid(uuid).await.unwrap(), Some(id));
    }
    assert_eq!(store.find_uuid(parent).await.unwrap(), None, "the parent is not here");
}

pub(super) async fn the_session_that_was_used_last_is_known_by_worktree(store: Store) {
    let turn = |used_in: &str, events: Vec<Event>| NewTurn {
        used_in: Some(used_in.to_owned()),
        ..NewTurn::verbatim(events)
    };
    let answered = |used_in: &str| turn(used_in, vec![Event::user("hello"), Event::assistant("hi")]);
    let failed = |used_in: &str| turn(used_in, vec![Event::user("hello"), Event::error("agent", "no")]);
    let last = async |used_in: &str| store.last_used(used_in).await.unwrap();
    assert_eq!(last(".").await, None);
    let [a, b, c] = [(); 3].map(|()| unnamed());
    let [a, b, c] =
        [store.create(a).await.unwrap(), store.create(b).await.unwrap(), store.create(c).await.unwrap()];
    store.append(a, failed(".")).await.unwrap();
    assert_eq!(last(".").await, Some(a), "a first turn without an answer is a try");
    store.append(b, answered(".")).await.unwrap();
    assert_eq!(last(".").await, Some(b));
    store.append(a, turn(".", vec![])).await.unwrap();
    assert_eq!(last(".").await, Some(a));
    store.append(b, answered("../feat")).await.unwrap();
    store.append(c, prompt("elsewhere")).await.unwrap();
    assert_eq!((last(".").await, last("../feat").await), (Some(a), Some(b)));
    store.append(c, failed(".")).await.unwrap();
    assert_eq!(last(".").await, Some(c), "a turn without an answer");
    store.append(b, failed(".")).await.unwrap();
    assert_eq!(last(".").await, Some(b), "an answer came earlier");
    store.append(a, answered("")).await.unwrap();
    assert_eq!((last("").await, last("\0*:").await), (Some(a), None));
    store.delete(b).await.unwrap();
    assert_eq!((last(".").await, last("../feat").await, last("").await), (None, None, Some(a)));
}

pub(super) async fn a_run_that_is_not_stored_yet_is_noted(store: Store) {
    if store.crash_notes().is_none() {
        return;
    }
    let [a, b] = [session_of_prompts(&store, 1).await, session_of_prompts(&store, 1).await];
    let before = store.list(&ListQuery::default()).await.unwrap();
    store.note_run(a, Some("run-a")).await.unwrap();
    store.note_run(b, Some("run-b")).await.unwrap();
    store.note_run(a, Some("run-c")).await.unwrap();
    let noted = |id, run: &str| (id, run.to_owned());
    assert_eq!(store.noted_runs().await.unwrap(), [noted(a, "run-c"), noted(b, "run-b")]);
    assert_eq!(store.list(&ListQuery::default()).await.unwrap(), before, "a note is no activity");
    store.note_run(a, None).await.unwrap();
    store.note_run(a, None).await.unwrap();
    store.note_run(a, Some("")).await.unwrap();
    assert_eq!(store.noted_runs().await.unwrap(), [noted(b, "run-b")]);
    store.delete(b).await.unwrap();
    assert_eq!(store.noted_runs().await.unwrap(), []);
    assert_no_such_session(&store.note_run(b, Some("run")).await, b);
}

pub(super) async fn a_closed_store_says_so_everywhere(store: Store) {
    let id = session_of_prompts(&store, 1).await;
    let watch = store.watch(id).await.unwrap();
    let has_id = store.store_id().await.unwrap().is_some();
    store.close().await.unwrap();
    assert_closed(&store.create(unnamed()).await);
    if has_id {
        assert_closed(&store.store_id().await);
        assert_closed(&store.tombstones(None, 1).await);
    }
    assert_closed(&store.find_or_create(named("name")).await);
    assert_closed(&store.find("name").await);
    assert_closed(&store.find_uuid(Uuid::nil()).await);
    assert_closed(&store.last_used(".").await);
    assert_closed(&store.get(id).await);
    assert_closed(&store.list(&ListQuery::default()).await);
    assert_closed(&store.count().await);
    assert_closed(&store.rename(id, "name").await);
    assert_closed(&store.delete(id).await);
    assert_closed(&store.append(id, prompt("hello")).await);
    assert_closed(&store.read(id, Page::last(1)).await);
    assert_closed(&store.read_prompts(id, Seq::END, 1).await);
    assert_closed(&store.read_usage(id, Seq::START, 1).await);
    assert_closed(&store.clear(id).await);
    assert_closed(&store.fork(id, Seq::END, unnamed()).await);
    assert_closed(&store.set_tokens(id, Tokens::default()).await);
    assert_closed(&store.add_tokens(id, Tokens::default()).await);
    assert_closed(&store.compactions(id).await);
    assert_closed(&store.add_compaction(id, &Compaction::new(Seq(1), "summary")).await);
    assert_closed(&store.remove_compaction(id, Seq(1)).await);
    assert_closed(&store.create_with(unnamed(), NewTurn::default(), vec![]).await);
    if let Some(notes) = store.crash_notes() {
        assert_closed(&notes.mark("mark").await);
        assert_closed(&notes.remove_mark("mark").await);
        assert_closed(&notes.note_run(id, None).await);
        assert_closed(&notes.noted_runs().await);
        assert_closed(&notes.clear_original_run(id, "run").await);
    }
    if let Some(leases) = store.leases() {
        assert_closed(&leases.take(id, &lease()).await);
        assert_closed(&leases.renew(id, &lease().id, Duration::ZERO).await);
        assert_closed(&leases.release(id, &lease().id).await);
        assert_closed(&leases.held().await);
    }
    assert_closed(&store.watch(id).await.map(|_| ()));
    assert_closed(&store.watch_all().await.map(|_| ()));
    if let Some(mut watch) = watch {
        assert_closed(&watch.changed(Duration::ZERO).await);
    }
    assert_closed(&store.close().await);
}
