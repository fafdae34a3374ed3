//! A session of the store as a conversation: what [`SessionContext`] and the store promise together.

use azureal_core::event::{Changes, Complete, FileChange, MessageEvent, ToolCall, ToolResult};
use azureal_core::{
    Block, ContextStore, Json, Laid, MediaType, Message, Role, SessionContext, Threshold, Tokens,
    build_context, read_context, read_context_for,
};

use super::*;

fn open(store: &Store, id: &str) -> SessionContext<dyn SessionStore> {
    SessionContext::open(Arc::clone(store), id).unwrap()
}

pub(super) async fn a_conversation_is_made_at_its_first_append(store: Store) {
    let context = open(&store, "my-session").in_worktree("../feat");
    assert_eq!(context.session_id(), "my-session");
    assert_eq!(context.number().await.unwrap(), None);
    assert_eq!(context.get_history().await.unwrap(), []);
    assert_eq!(list_ids(&store).await, [], "opening and reading make nothing");

    context.append(Message::user("Hello")).await.unwrap();
    context.append(Message::assistant("Hi!")).await.unwrap();
    let made = list_ids(&store).await;
    assert_eq!(store.find("my-session").await.unwrap(), made);
    assert_eq!(context.number().await.unwrap(), Some(made[0]));
    assert_eq!(store.get(made[0]).await.unwrap().worktree, "../feat");
    let expected = [Message::user("Hello"), Message::assistant("Hi!")];
    assert_eq!(context.get_history().await.unwrap(), expected);
    let again = open(&store, "my-session");
    assert_eq!(again.get_history().await.unwrap(), expected);
    assert_eq!(made.len(), 1);
}

pub(super) async fn a_conversation_is_opened_by_its_number(store: Store) {
    let id = store.create(named("has a name too")).await.unwrap();
    let context = open(&store, &id.to_string());
    assert_eq!(context.session_id(), id.to_string());
    context.append(Message::user("Hello")).await.unwrap();
    let by_name = open(&store, "has a name too");
    assert_eq!(by_name.get_history().await.unwrap(), [Message::user("Hello")]);
    assert_eq!(list_ids(&store).await, [id]);
}

pub(super) async fn an_unknown_number_is_an_error(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    store.delete(id).await.unwrap();
    let context = open(&store, &id.to_string());
    assert_no_such_session(&context.append(Message::user("Hello")).await, id);
    assert_no_such_session(&context.get_history().await, id);
    assert_no_such_session(&context.get_context_tokens().await, id);
    assert_no_such_session(&context.clear().await, id);
    assert_no_such_session(&context.fork().await.map(drop), id);
    assert_eq!(list_ids(&store).await, []);
}

pub(super) async fn an_unknown_name_is_an_empty_conversation(store: Store) {
    let context = open(&store, "nobody");
    assert_eq!(context.get_history().await.unwrap(), []);
    assert_eq!(context.get_context_tokens().await.unwrap(), (0, 0));
    context.clear().await.unwrap();
    assert_eq!(list_ids(&store).await, []);
    context.add_context_tokens(1, 2).await.unwrap();
    assert_eq!(context.get_context_tokens().await.unwrap(), (1, 2));
    assert_unusable(&SessionContext::open(Arc::clone(&store), " ").map(|_| ()), " ");
}

pub(super) async fn a_shared_name_is_the_session_that_was_active_last(store: Store) {
    let first = store.create(named("twin")).await.unwrap();
    let second = store.create(named("twin")).await.unwrap();
    let context = open(&store, "twin");
    context.append(Message::user("to the second")).await.unwrap();
    assert_eq!(store.get(second).await.unwrap().counts.messages, 1);
    store.append(first, prompt("hello")).await.unwrap();
    assert_eq!(context.get_history().await.unwrap(), [Message::user("hello")]);
}

pub(super) async fn a_forked_conversation_has_an_id_and_a_life_of_its_own(store: Store) {
    let context = open(&store, "origin").in_worktree("../feat");
    for text in ["one", "two", "three"] {
        context.append(Message::user(text)).await.unwrap();
    }
    let id = context.number().await.unwrap().unwrap();
    store.add_compaction(id, &Compaction::new(Seq(2), "we counted")).await.unwrap();
    let fork = context.fork().await.unwrap();
    let number: SessionId = fork.session_id().parse().unwrap();
    assert_ne!(number, id);
    assert_eq!(store.get(number).await.unwrap().worktree, "../feat");
    assert_eq!(
        fork.get_history().await.unwrap(),
        context.get_history().await.unwrap(),
        "compactions come along"
    );
    fork.append(Message::user("branch")).await.unwrap();
    assert_eq!(context.get_history().await.unwrap().len(), 3);
    assert_eq!(fork.get_history().await.unwrap().len(), 4);
    let of_fork = fork.fork().await.unwrap();
    assert_ne!(of_fork.session_id(), fork.session_id());

    let empty = open(&store, "not made yet").fork().await.unwrap();
    assert_eq!(empty.get_history().await.unwrap(), []);
    empty.append(Message::user("first")).await.unwrap();
    assert_eq!(open(&store, "not made yet").get_history().await.unwrap(), []);
}

pub(super) async fn a_compacted_history_is_system_message_summary_and_the_rest(store: Store) {
    let context = open(&store, "compacted");
    let rest = [Message::user("three"), Message::assistant("four")];
    let all = [
        Message::system("be kind"),
        Message::user("one"),
        Message::assistant("two"),
        rest[0].clone(),
        rest[1].clone(),
    ];
    for message in all.clone() {
        context.append(message).await.unwrap();
    }
    let id = context.number().await.unwrap().unwrap();
    assert_eq!(context.get_history().await.unwrap(), all);

    // The one that ends last counts, whenever it was created.
    store.add_compaction(id, &Compaction::new(Seq(3), "they met")).await.unwrap();
    store.add_compaction(id, &Compaction::new(Seq(2), "too old")).await.unwrap();
    let history = context.get_history().await.unwrap();
    let [system, summary, acknowledged, kept @ ..] = history.as_slice() else { panic!("{history:?}") };
    assert_eq!(*system, all[0]);
    assert_eq!((summary.role, acknowledged.role), (Role::User, Role::Assistant));
    assert!(summary.first_text().unwrap().contains("they met"), "{summary:?}");
    assert_eq!(kept, rest);
    let events: Vec<Event> = ["three", "four"]
        .into_iter()
        .zip([Event::user as fn(_) -> _, Event::assistant])
        .map(|(text, event)| event(text))
        .collect();
    let told = read_context(store.as_ref(), id).await.unwrap().into_string();
    let without_prompts = build_context(Some("be kind"), Some("they met"), &events);
    let (before, after) = without_prompts.split_once("they met").unwrap();
    assert!(told.starts_with(before) && told.ends_with(after), "{told}");
    let asked = "## What the user asked in that part, newest first\n\n### Prompt, event 2\none";
    assert_eq!(told, format!("{before}they met\n\n{asked}{after}"));

    store.add_compaction(id, &Compaction::new(Seq(5), "all of it")).await.unwrap();
    assert_eq!(context.get_history().await.unwrap().len(), 3);
    for seq in [5, 3, 2] {
        assert!(store.remove_compaction(id, Seq(seq)).await.unwrap());
    }
    assert_eq!(context.get_history().await.unwrap(), all, "it can be undone");
}

pub(super) async fn a_summary_goes_with_what_the_user_asked(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let image = Block::image(MediaType::Png, [1, 2, 3]);
    let turn = [
        Event::user("first"),
        Event::assistant("answer"),
        Event::Message(MessageEvent { role: Role::User, content: vec![Block::text("look"), image] }),
        Event::Message(MessageEvent {
            role: Role::User,
            content: vec![Block::tool_result("t", "no prompt")],
        }),
        Event::user("ü".repeat(700)),
        Event::assistant("another answer"),
        Event::user("the newest"),
        Event::assistant("stays"),
    ];
    store.append(id, NewTurn::verbatim(turn)).await.unwrap();
    store.add_compaction(id, &Compaction::new(Seq(6), "the summary")).await.unwrap();
    let told = read_context(store.as_ref(), id).await.unwrap().into_string();
    let (_, told) = told.split_once("## Summary of what happened before\n").unwrap();
    let expected = format!(
        "the summary\n\n## What the user asked in that part, newest first\n\n\
         ### Prompt, event 5\n{}… [200 more characters]\n\n\
         ### Prompt, event 3\nlook\n\n[image: image/png, 3 bytes]\n\n\
         ### Prompt, event 1\nfirst\n\n\
         ## User\nthe newest\n\n## Assistant\nstays",
        "ü".repeat(500)
    );
    assert_eq!(told, expected);
    let before = read_context(store.as_ref(), id).await.unwrap().into_string();
    store.append(id, prompt("more")).await.unwrap();
    let after = read_context(store.as_ref(), id).await.unwrap().into_string();
    assert!(after.starts_with(&before), "what was told is how it begins");
}

pub(super) async fn a_turn_that_goes_on_after_the_summary_keeps_its_prompt_whole(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let long = "word ".repeat(400);
    let turn = [
        Event::user("first"),
        Event::assistant("done"),
        Event::user(&long),
        Event::assistant("begun"),
        Event::Compacting,
        Event::assistant("goes on"),
    ];
    store.append(id, NewTurn::verbatim(turn)).await.unwrap();
    store.add_compaction(id, &Compaction::new(Seq(4), "the summary")).await.unwrap();
    let told = read_context(store.as_ref(), id).await.unwrap().into_string();
    let rest = format!("### Prompt, event 1\nfirst\n\n## User\n{long}\n\n## Assistant\ngoes on");
    assert!(told.ends_with(&rest), "{told}");
    // Later events do not change the rendered text.
    store.append(id, NewTurn::verbatim([Event::assistant("and on"), Event::user("next")])).await.unwrap();
    assert!(read_context(store.as_ref(), id).await.unwrap().starts_with(&told));
    assert!(store.remove_compaction(id, Seq(4)).await.unwrap());
    assert!(!read_context(store.as_ref(), id).await.unwrap().contains("### Prompt"));
}

pub(super) async fn sealed_segments_stay_until_a_compaction(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let mut before: Vec<String> = Vec::new();
    for number in 1..=9 {
        let end = Event::Complete(Complete::default());
        let said = [Event::user("go"), Event::assistant(format!("{number} ").repeat(3_000)), end];
        store.append(id, NewTurn::verbatim(said)).await.unwrap();
        if number == 6 {
            // Up to the last text of turn 5.
            store.add_compaction(id, &Compaction::new(Seq(14), "they met ".repeat(600))).await.unwrap();
            before.clear();
        }
        let context = read_context(store.as_ref(), id).await.unwrap();
        let sealed: Vec<String> = context.sealed().map(str::to_owned).collect();
        assert!(sealed.starts_with(&before), "turn {number}");
        assert_eq!(sealed.concat() + context.rest(), context.as_str());
        assert_eq!(context.rest(), "", "every turn is over");
        // After the compaction: the opening and turn 6.
        assert_eq!(sealed.len(), if number < 6 { number } else { number - 4 }, "turn {number}");
        before = sealed;
    }
}

pub(super) async fn what_the_user_asked_is_bounded(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let turn = (1..=1200).map(|number| Event::user(format!("{number}: {}", "x".repeat(number % 600))));
    store.append(id, NewTurn::verbatim(turn)).await.unwrap();
    store.add_compaction(id, &Compaction::new(Seq(1200), "the summary")).await.unwrap();
    let told = read_context(store.as_ref(), id).await.unwrap().into_string();
    let (_, prompts) = told.split_once("newest first\n\n").unwrap();
    assert!((19_000..=20_000).contains(&prompts.chars().count()), "{}", prompts.chars().count());
    assert!(prompts.starts_with("### Prompt, event 1200\n1200: "), "{prompts}");
    assert!(prompts.ends_with("[earlier prompts are left out]"), "{prompts}");
}

/// A call of a command and its result, as two events.
fn ran(command: &str, is_error: bool, content: &str) -> [Event; 2] {
    let call = ToolCall {
        tool_use_id: "t".into(),
        tool_name: "Bash".into(),
        input: format!(r#"{{"command":"{command}"}}"#).parse().unwrap(),
        ..ToolCall::default()
    };
    let content = content.to_owned();
    let result = ToolResult { tool_use_id: "t".into(), content, is_error, ..ToolResult::default() };
    [Event::ToolCall(call), Event::ToolResult(result)]
}

fn changed(path: String) -> Event {
    let files = vec![FileChange { path, ..FileChange::default() }];
    Event::Changes(Changes { files, ..Changes::default() })
}

pub(super) async fn a_summary_goes_with_the_ledger_of_its_part(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let end = || Event::Complete(Complete { success: true, ..Complete::default() });
    let mut turn = vec![Event::user("first")];
    turn.extend(ran("make", true, "error: no rule"));
    turn.extend([changed("src/a.rs".into()), end(), Event::user("second")]);
    turn.extend(ran("make lint", false, "fine"));
    turn.push(end());
    let covered = turn.len() as u64;
    store.append(id, NewTurn::verbatim(turn)).await.unwrap();
    store.append(id, NewTurn::verbatim([Event::user("third"), Event::assistant("kept")])).await.unwrap();
    let whole = read_context(store.as_ref(), id).await.unwrap().into_string();
    store.add_compaction(id, &Compaction::new(Seq(covered), "the summary")).await.unwrap();
    let told = read_context(store.as_ref(), id).await.unwrap().into_string();
    let (_, opening) = told.split_once("## Summary of what happened before\n").unwrap();
    assert_eq!(
        opening,
        "the summary\n\n## Files, commands and failures of that part\n\
         Failures that nothing fixed:\n- `make`: failed, error: no rule\n\n\
         Files touched:\n- src: edited a.rs\n\n\
         Commands, and how the last run of each ended:\n- `make lint`: ok\n\n\
         ## What the user asked in that part, newest first\n\n\
         ### Prompt, event 6\nsecond\n\n### Prompt, event 1\nfirst\n\n## User\nthird\n\n## Assistant\nkept"
    );
    // Later events change nothing of it, also if they repair a failure.
    let mut later = vec![end(), Event::user("fourth")];
    later.extend(ran("make", false, "done"));
    store.append(id, NewTurn::verbatim(later)).await.unwrap();
    assert!(read_context(store.as_ref(), id).await.unwrap().starts_with(&told));
    assert!(store.remove_compaction(id, Seq(covered)).await.unwrap());
    assert!(read_context(store.as_ref(), id).await.unwrap().starts_with(&whole), "nothing of it is stored");
}

pub(super) async fn what_stands_for_a_covered_part_takes_a_quarter_of_the_threshold(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let mut events = Vec::new();
    for number in 0..700 {
        events.push(Event::user(format!("Prompt {number}: {}", "x".repeat(100))));
        events.extend(ran(&format!("make target{number}"), number % 2 == 0, "error: no rule"));
        events.push(changed(format!("dir{}/file{number}.rs", number % 9)));
    }
    let covered = events.len() as u64;
    store.append(id, NewTurn::verbatim(events)).await.unwrap();
    for (threshold, summary) in [(20_000, 555), (60_000, 1_600), (400_000, 4_000), (20_000, 4_000)] {
        let summary = "word ".repeat(summary / 5);
        store.add_compaction(id, &Compaction::new(Seq(covered), summary)).await.unwrap();
        let told = read_context_for(store.as_ref(), id, Threshold::Chars(threshold)).await.unwrap();
        let (_, opening) = told.split_once("\n\n## Summary of what happened before\n").unwrap();
        let (chars, room) = (opening.chars().count() as u64, (threshold / 4).min(36_000));
        assert!(chars <= room && chars > room * 8 / 10, "{chars} of {room}: {opening}");
        for mark in ["[older events are not in these lists]", "[earlier prompts are left out]"] {
            assert!(opening.contains(mark), "{mark} is missing: {opening}");
        }
        let again = read_context_for(store.as_ref(), id, Threshold::Chars(threshold)).await.unwrap();
        assert_eq!(told, again);
    }
}

pub(super) async fn a_conversation_keeps_the_summary_that_is_laid_over_it(store: Store) {
    let context = open(&store, "long");
    let call = Message::new(
        Role::Assistant,
        [Block::text("I look"), Block::tool_use("t", "Bash", Json::empty_object())],
    );
    let result = Message::new(Role::User, [Block::tool_result("t", "ok")]);
    let all = [
        Message::system("be kind"),
        Message::user("one"),
        call,
        result,
        Message::assistant("two"),
        Message::user("three"),
    ];
    for message in all.clone() {
        context.append(message).await.unwrap();
    }
    let id = context.number().await.unwrap().unwrap();
    let events = texts(&store, id).await;
    assert_eq!(context.lay_summary(&all[1..3], "not the beginning").await.unwrap(), Laid::Changed);
    assert_eq!(context.lay_summary(&all[..4], "they met").await.unwrap(), Laid::Kept);
    let once = context.get_history().await.unwrap();
    assert_eq!((once.len(), &once[0], &once[3..]), (5, &all[0], &all[4..]));
    assert_eq!(store.compactions(id).await.unwrap()[0].after_seq, Seq(5), "all events of the four messages");
    // The next summary is written from the visible history.
    context.append(Message::assistant("four")).await.unwrap();
    assert_eq!(context.lay_summary(&once, "they met again").await.unwrap(), Laid::Kept);
    assert_eq!(context.lay_summary(&once, "too late").await.unwrap(), Laid::Changed);
    let twice = context.get_history().await.unwrap();
    assert_eq!((twice.len(), &twice[0], &twice[3..]), (4, &all[0], &[Message::assistant("four")][..]));
    assert!(texts(&store, id).await.starts_with(&events), "the events are untouched");
    assert_eq!(open(&store, "nobody").lay_summary(&all[..1], "of nothing").await.unwrap(), Laid::Changed);
}

pub(super) async fn a_system_message_of_several_blocks_stays_whole(store: Store) {
    let context = open(&store, "framed");
    let system = Message::new(Role::System, [Block::text("be kind"), Block::text("be brief")]);
    for message in [system.clone(), Message::user("one"), Message::user("two")] {
        context.append(message).await.unwrap();
    }
    let id = context.number().await.unwrap().unwrap();
    store.add_compaction(id, &Compaction::new(Seq(2), "they met")).await.unwrap();
    assert_eq!(context.get_history().await.unwrap()[0], system);
    let told = read_context(store.as_ref(), id).await.unwrap().into_string();
    assert!(told.contains("be kind") && told.contains("be brief"), "{told}");
}

pub(super) async fn a_conversation_is_opened_by_its_uuid(store: Store) {
    let id = store.create(named("twin")).await.unwrap();
    store.create(named("twin")).await.unwrap();
    let uuid = store.get(id).await.unwrap().uuid.unwrap();
    let context = open(&store, &uuid.to_string());
    assert_eq!(context.session_id(), uuid.to_string());
    context.append(Message::user("to the first")).await.unwrap();
    assert_eq!(store.get(id).await.unwrap().counts.messages, 1);
    // One that no session has is an id of the caller's own, and becomes its name.
    let own = "0123456789abcdef0123456789abcdef";
    open(&store, own).append(Message::user("Hello")).await.unwrap();
    assert_eq!(store.find(own).await.unwrap().len(), 1);
    assert_eq!(open(&store, own).get_history().await.unwrap(), [Message::user("Hello")]);
}

pub(super) async fn each_listed_id_opens_its_conversation(store: Store) {
    for name in ["twin", "twin", "only"] {
        store.create(named(name)).await.unwrap();
    }
    store.create(unnamed()).await.unwrap();
    let all = list_ids(&store).await;
    let listed = open(&store, "only").list_sessions().await.unwrap();
    assert_eq!(listed.len(), all.len());
    for (info, id) in listed.iter().zip(all) {
        let context = open(&store, &info.session_id);
        assert_eq!(context.session_id(), info.session_id);
        assert_eq!(context.number().await.unwrap(), Some(id), "{info:?}");
    }
    let ids: Vec<&str> = listed.iter().map(|info| info.session_id.as_str()).collect();
    assert!(ids.contains(&"only") && !ids.contains(&"twin"), "{ids:?}");
}

pub(super) async fn a_conversation_is_made_of_messages_and_of_another(store: Store) {
    let messages = [Message::system("be kind"), Message::user("one"), Message::assistant("two")];
    let first = SessionContext::from_history(Arc::clone(&store), "first", messages.clone()).await.unwrap();
    assert_eq!(first.get_history().await.unwrap(), messages);
    let second = SessionContext::from_context(Arc::clone(&store), "second", &first).await.unwrap();
    assert_eq!(second.get_history().await.unwrap(), messages);
    assert_eq!(list_ids(&store).await.len(), 2);
    let again = SessionContext::from_history(Arc::clone(&store), "first", messages.clone()).await;
    assert!(matches!(again, Err(StoreError::Moved { .. })), "{:?}", again.map(drop));
    assert_eq!(first.get_history().await.unwrap(), messages, "nothing was added");
}

pub(super) async fn conversations_are_listed_as_their_logs_are(store: Store) {
    let context = open(&store, "mine");
    context.append(Message::system("frame")).await.unwrap();
    context.append(Message::user("ü".repeat(100))).await.unwrap();
    context.append(Message::new(Role::Assistant, [Block::text("a"), Block::text("b")])).await.unwrap();
    context.add_context_tokens(3, 4).await.unwrap();
    let id = context.number().await.unwrap().unwrap();
    store.add_compaction(id, &Compaction::new(Seq(3), "summary")).await.unwrap();
    let other = store.create(unnamed()).await.unwrap();
    store.set_tokens(other, Tokens::new(1, 1)).await.unwrap();

    let listed = context.list_sessions().await.unwrap();
    let rows: Vec<_> = listed
        .iter()
        .map(|info| {
            (
                info.session_id.as_str(),
                info.message_count,
                info.preview.clone(),
                (info.input_tokens, info.output_tokens),
            )
        })
        .collect();
    let number = other.to_string();
    let expected = [
        (number.as_str(), 0, String::new(), (1, 1)),
        // Of the log, not of what the summary leaves of it.
        ("mine", 3, "ü".repeat(80), (3, 4)),
    ];
    assert_eq!(rows, expected);
}

pub(super) async fn a_conversation_whose_tokens_are_set_has_none_of_the_cache(store: Store) {
    let context = open(&store, "cached");
    context.append(Message::user("Hello")).await.unwrap();
    let id = context.number().await.unwrap().unwrap();
    let cached = Tokens { cache_read: 900, cache_write: 50, ..Tokens::new(1000, 10) };
    store.add_tokens(id, cached).await.unwrap();
    let tokens = async |id| store.get(id).await.unwrap().tokens;
    // What is added was not cached; a fork takes all totals along.
    context.add_context_tokens(100, 1).await.unwrap();
    assert_eq!(tokens(id).await, cached + Tokens::new(100, 1));
    let fork = context.fork().await.unwrap();
    let fork = store.find(&fork.session_id()).await.unwrap()[0];
    assert_eq!(tokens(fork).await, cached + Tokens::new(100, 1));
    context.set_context_tokens(40, 2).await.unwrap();
    assert_eq!(tokens(id).await, Tokens::new(40, 2));
}
