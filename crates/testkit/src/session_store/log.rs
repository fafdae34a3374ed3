//! Appending turns and reading them back.

use azureal_core::event::{Complete, Init, MessageEvent, ModelSwitch, ToolCall, ToolResult};
use azureal_core::{
    Appended, Block, ListQuery, Mark, MediaType, Message, NewEvent, NewMark, PAGE_EVENTS, Role, Tokens,
    TurnIndex, append_events, events_of_message, fold, read_history,
};

use super::*;

pub(super) async fn events_are_numbered_from_one_without_gaps(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let other = session_of_prompts(&store, 5).await;
    let rows = [(2, 1, 2), (0, 3, 2), (1, 3, 3), (4, 4, 7)];
    for (count, first, last) in rows {
        let events = (0..count).map(|index| Event::user(format!("{count}.{index}")));
        let appended = store.append(id, NewTurn::verbatim(events)).await.unwrap();
        let expected = Appended { first: Seq(first), last: Seq(last) };
        assert_eq!(appended, expected, "a turn of {count} events");
    }
    let read = read_all(&store, id).await;
    let numbers: Vec<u64> = read.iter().map(|event| event.seq.0).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
    let said: Vec<Event> = read.iter().map(|event| event.event().unwrap()).collect();
    let expected = ["2.0", "2.1", "1.0", "4.0", "4.1", "4.2", "4.3"].map(Event::user);
    assert_eq!(said, expected);
    assert_eq!(read_all(&store, other).await.len(), 5);
}

/// One event of each kind that matters for counting.
pub(super) fn varied_events() -> Vec<Event> {
    let call = |id: &str, starts| {
        Event::ToolCall(ToolCall {
            tool_use_id: id.to_owned(),
            tool_name: "Bash".to_owned(),
            input: r#"{"command": "ls"}"#.parse().unwrap(),
            starts,
            ..ToolCall::default()
        })
    };
    let result = |id: &str, subagent: Option<&str>| {
        Event::ToolResult(ToolResult {
            tool_use_id: id.to_owned(),
            content: "ok".to_owned(),
            subagent: subagent.map(str::to_owned),
            ..ToolResult::default()
        })
    };
    vec![
        Event::from_json(r#"{"SystemMessage":{"content":"be kind"}}"#).unwrap(),
        Event::Init(Init {
            cwd: "/p".to_owned(),
            model: "opus".to_owned(),
            agent: Some("claude".to_owned()),
            ..Init::default()
        }),
        Event::user("ä".repeat(90)),
        Event::assistant("on it"),
        call("t1", None),
        result("t1", None),
        result("inner", Some("t1")),
        result("t2", None),
        call("t3", Some(true)),
        Event::ModelSwitch(ModelSwitch::reported("haiku")),
        Event::ModelSwitch(ModelSwitch::chosen("codex", None)),
        Event::from_json(r#"{"Future":{"n":1}}"#).unwrap(),
        Event::error("agent", "it broke"),
        Event::Compacted,
        Event::user("second"),
    ]
}

pub(super) async fn what_is_appended_is_counted(store: Store) {
    let events = varied_events();
    // Cut into turns at every point, since the counts of the first continue with those of the second.
    for cut in 0..=events.len() {
        let id = store.create(unnamed()).await.unwrap();
        let (first, second) = events.split_at(cut);
        for turn in [first, second] {
            let turn = NewTurn::verbatim(turn.iter().cloned());
            store.append(id, turn).await.unwrap();
        }
        let record = store.get(id).await.unwrap();
        assert_eq!(record.counts, counts_of(&events), "cut at {cut}");
    }
}

pub(super) async fn the_preview_and_the_messages_are_those_of_the_fold(store: Store) {
    let histories = [
        vec![],
        vec![Message::assistant("only me")],
        vec![Message::user("ü".repeat(200)), Message::user("b")],
        vec![Message::new(Role::User, []), Message::user("b")],
        vec![Message::new(Role::User, [Block::text(""), Block::text("b")])],
        vec![
            Message::system("frame"),
            Message::new(Role::User, [Block::tool_result("t", "r"), Block::text("text")]),
            Message::user("b"),
        ],
        vec![
            Message::new(Role::User, [Block::image(MediaType::Png, [1]), Block::text("a picture")]),
            Message::new(Role::Assistant, [Block::text("x"), Block::text("y")]),
            Message::assistant("z"),
        ],
        vec![Message::new(Role::User, [Block::tool_result("t", "r")]), Message::user("b")],
    ];
    for history in histories {
        let id = store.create(unnamed()).await.unwrap();
        for message in &history {
            let turn = NewTurn::verbatim(events_of_message(message.clone()));
            store.append(id, turn).await.unwrap();
        }
        let first = history.iter().find(|message| message.role == Role::User);
        let text = first.and_then(Message::first_text).unwrap_or("");
        let preview: String = text.chars().take(80).collect();
        let counts = store.get(id).await.unwrap().counts;
        assert_eq!(
            (counts.messages, counts.preview_text()),
            (history.len() as u64, preview.as_str()),
            "{history:?}"
        );
    }
}

pub(super) async fn the_totals_of_turns_add_up(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let complete = |success, duration_ms, cost_usd| {
        Event::Complete(Complete { success, duration_ms, cost_usd, ..Complete::default() })
    };
    let rows = [
        (vec![Event::user("a")], None, 0, 0.0),
        (vec![Event::user("b"), complete(true, 5, 0.5)], Some(true), 5, 0.5),
        // No events, no outcome.
        (vec![], Some(true), 5, 0.5),
        (vec![Event::user("c"), complete(false, 7, 0.25)], Some(false), 12, 0.75),
        // New content opens the session again.
        (vec![Event::assistant("d")], None, 12, 0.75),
        (vec![complete(true, 1, 1.0), complete(true, 1, 1.0)], Some(true), 14, 2.75),
    ];
    for (events, completed, duration_ms, cost_usd) in rows {
        store.append(id, NewTurn::verbatim(events.clone())).await.unwrap();
        let record = store.get(id).await.unwrap();
        assert_eq!(
            (record.completed, record.duration_ms, record.cost_usd),
            (completed, duration_ms, cost_usd),
            "after {events:?}"
        );
    }
}

pub(super) async fn a_turn_without_events_adds_its_tokens_and_sets_its_mark(store: Store) {
    let id = session_of_prompts(&store, 2).await;
    let before = store.get(id).await.unwrap();
    let turn = NewTurn {
        events: Vec::new(),
        tokens: Tokens::new(3, 4),
        mark: Some(NewMark { name: "empty".to_owned(), note: "nothing to say".to_owned() }),
        ..NewTurn::default()
    };
    let appended = store.append(id, turn).await.unwrap();
    assert_eq!((appended.first, appended.last), (Seq(3), Seq(2)));
    let expected = SessionRecord { tokens: Tokens::new(3, 4), revision: before.revision + 1, ..before };
    assert_eq!(store.get(id).await.unwrap(), expected);
    let mark = Mark { session: id, note: "nothing to say".to_owned() };
    let expected = store.crash_notes().is_some().then_some(mark);
    assert_eq!(store.mark("empty").await.unwrap(), expected);
    assert_eq!(read_all(&store, id).await.len(), 2);
}

pub(super) async fn tokens_are_added_and_overwritten(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let other = store.create(unnamed()).await.unwrap();
    let tokens = |input, output| Tokens::new(input, output);
    store.add_tokens(id, tokens(100, 50)).await.unwrap();
    store.add_tokens(id, tokens(200, 80)).await.unwrap();
    assert_eq!(store.get(id).await.unwrap().tokens, tokens(300, 130));
    store.set_tokens(id, tokens(7, 8)).await.unwrap();
    assert_eq!(store.get(id).await.unwrap().tokens, tokens(7, 8));
    let turn = NewTurn { tokens: tokens(1, 2), ..prompt("hello") };
    store.append(id, turn).await.unwrap();
    assert_eq!(store.get(id).await.unwrap().tokens, tokens(8, 10));
    // More than 32 bits hold.
    store.set_tokens(id, tokens(1 << 40, 1 << 41)).await.unwrap();
    store.add_tokens(id, tokens(1, 1)).await.unwrap();
    assert_eq!(store.get(id).await.unwrap().tokens, tokens((1 << 40) + 1, (1 << 41) + 1));
    assert_eq!(store.get(other).await.unwrap().tokens, tokens(0, 0));
}

pub(super) async fn tokens_of_the_cache_are_summed_with_the_others(store: Store) {
    let cached = |input, cache_read, cache_write| Tokens { input, output: 1, cache_read, cache_write };
    let turn = |tokens| NewTurn { tokens, ..prompt("hello") };
    let id = store.create_with(unnamed(), turn(cached(1000, 0, 900)), Vec::new()).await.unwrap();
    let is = async |id, expected: Tokens| {
        let record = store.get(id).await.unwrap();
        assert_eq!(record.tokens, expected);
        let listed = store.list(&ListQuery::default()).await.unwrap();
        assert_eq!(listed.iter().find(|listed| listed.id == id), Some(&record));
    };
    is(id, cached(1000, 0, 900)).await;
    store.append(id, turn(cached(2000, 1500, 400))).await.unwrap();
    store.add_tokens(id, cached(10, 7, 2)).await.unwrap();
    store.append(id, NewTurn { events: Vec::new(), ..turn(cached(5, 4, 1)) }).await.unwrap();
    is(id, Tokens { output: 4, ..cached(3015, 1511, 1303) }).await;
    // A fork has not sent anything yet.
    let fork = store.fork(id, Seq::END, unnamed()).await.unwrap();
    is(fork, Tokens::default()).await;
    // They are totals, of what was paid: clearing does not give it back.
    store.clear(id).await.unwrap();
    is(id, Tokens { output: 4, ..cached(3015, 1511, 1303) }).await;
    store.set_tokens(id, cached(1 << 41, 1 << 40, 1 << 39)).await.unwrap();
    store.add_tokens(id, cached(1, 1, 1)).await.unwrap();
    is(id, Tokens { output: 2, ..cached((1 << 41) + 1, (1 << 40) + 1, (1 << 39) + 1) }).await;
    store.set_tokens(id, Tokens::new(7, 8)).await.unwrap();
    is(id, Tokens::new(7, 8)).await;
}

async fn numbers(store: &Store, id: SessionId, page: Page) -> Vec<u64> {
    let page = store.read(id, page).await.unwrap();
    page.iter().map(|event| event.seq.0).collect()
}

pub(super) async fn pages_go_forward(store: Store) {
    let id = session_of_prompts(&store, 10).await;
    for size in [1, 3, 4, 10, 11] {
        let mut seen = Vec::new();
        let mut after = Seq::START;
        loop {
            let page = page_after(&store, id, after, size).await;
            let Some(last) = page.last() else { break };
            after = last.seq;
            seen.extend(page.iter().map(|event| event.seq.0));
        }
        assert_eq!(seen, (1..=10).collect::<Vec<_>>(), "in pages of {size}");
    }
}

pub(super) async fn pages_go_backward(store: Store) {
    let id = session_of_prompts(&store, 10).await;
    for size in [1, 3, 4, 10, 11] {
        let mut seen = Vec::new();
        let mut before = Seq::END;
        loop {
            let page = page_before(&store, id, before, size).await;
            let Some(first) = page.first() else { break };
            before = first.seq;
            seen.splice(0..0, page.iter().map(|event| event.seq.0));
        }
        assert_eq!(seen, (1..=10).collect::<Vec<_>>(), "in pages of {size}");
    }
}

pub(super) async fn prompts_are_found_from_a_point_backwards(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let turn = [
        Event::user("one"),
        Event::assistant("two"),
        Event::error("kind", "three"),
        Event::user("four"),
        Event::Message(MessageEvent { role: Role::User, content: vec![Block::text("five")] }),
        Event::Compacting,
    ];
    store.append(id, NewTurn::verbatim(turn)).await.unwrap();
    store.append(session_of_prompts(&store, 3).await, prompt("of another session")).await.unwrap();
    for (until, limit, expected) in [
        (Seq::END, 9, &[5, 4, 1][..]),
        (Seq(6), 2, &[5, 4]),
        (Seq(5), 1, &[5]),
        (Seq(4), 9, &[4, 1]),
        (Seq(3), usize::MAX, &[1]),
        (Seq(1), 9, &[1]),
        (Seq::START, 9, &[]),
        (Seq::END, 0, &[]),
    ] {
        let found = store.read_prompts(id, until, limit).await.unwrap();
        let places: Vec<u64> = found.iter().map(|stored| stored.seq.0).collect();
        assert_eq!(places, expected, "{limit} up to {until}");
        for stored in found {
            assert_eq!(store.read(id, Page::Before(stored.seq.next(), 1)).await.unwrap(), [stored]);
        }
    }
    let log = store.read(id, Page::After(Seq::START, usize::MAX)).await.unwrap();
    let turns = TurnIndex::read(&*store, id).await.unwrap();
    assert_eq!((turns.count(), &turns), (3, &TurnIndex::of(&log)));
    // More than are read at a time.
    let many = session_of_prompts(&store, 600).await;
    let turns = TurnIndex::read(&*store, many).await.unwrap();
    assert_eq!((turns.count(), turns.first_event(300)), (600, Some(Seq(300))));
}

pub(super) async fn the_use_of_turns_is_read_by_its_kinds(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let end = |duration_ms| Event::Complete(Complete { duration_ms, ..Complete::default() });
    let turn = [
        Event::user("one"),
        Event::Init(Init { model: "opus".into(), ..Init::default() }),
        Event::assistant("Complete"),
        Event::ModelSwitch(ModelSwitch::reported("haiku")),
        end(5),
        Event::Compacted,
        end(6),
    ];
    store.append(id, NewTurn::verbatim(turn)).await.unwrap();
    store.append(session_of_prompts(&store, 3).await, NewTurn::verbatim([end(7)])).await.unwrap();
    for (after, limit, expected) in [
        (Seq::START, 9, &[2, 4, 5, 7][..]),
        (Seq::START, 1, &[2]),
        (Seq(2), 2, &[4, 5]),
        (Seq(3), usize::MAX, &[4, 5, 7]),
        (Seq(6), 9, &[7]),
        (Seq(7), 9, &[]),
        (Seq::END, 9, &[]),
    ] {
        let found = store.read_usage(id, after, limit).await.unwrap();
        let places: Vec<u64> = found.iter().map(|stored| stored.seq.0).collect();
        assert_eq!(places, expected, "{limit} after {after}");
        for stored in found {
            assert_eq!(store.read(id, Page::Before(stored.seq.next(), 1)).await.unwrap(), [stored]);
        }
    }
    // More than are read at a time, and far apart.
    let many = (0..PAGE_EVENTS as u64 + 3).flat_map(|number| [Event::user("x"), end(number)]);
    let many = store.create_with(unnamed(), NewTurn::verbatim(many), Vec::new()).await.unwrap();
    assert_eq!(store.read_usage(many, Seq::START, usize::MAX).await.unwrap().len(), PAGE_EVENTS + 3);
    assert_eq!(store.read_usage(many, Seq(2), 1).await.unwrap()[0].seq, Seq(4));
}

pub(super) async fn a_page_ends_where_the_log_does(store: Store) {
    let id = session_of_prompts(&store, 5).await;
    let rows: [(Page, &[u64]); 16] = [
        (Page::After(Seq::START, 2), &[1, 2]),
        (Page::After(Seq(3), 9), &[4, 5]),
        (Page::After(Seq(3), 1), &[4]),
        (Page::After(Seq(3), 0), &[]),
        (Page::After(Seq(5), 9), &[]),
        (Page::After(Seq(6), 9), &[]),
        (Page::After(Seq::END, 9), &[]),
        (Page::After(Seq::START, usize::MAX), &[1, 2, 3, 4, 5]),
        (Page::last(2), &[4, 5]),
        (Page::last(0), &[]),
        (Page::last(usize::MAX), &[1, 2, 3, 4, 5]),
        (Page::Before(Seq(4), 2), &[2, 3]),
        (Page::Before(Seq(2), 9), &[1]),
        (Page::Before(Seq(1), 9), &[]),
        (Page::Before(Seq::START, 9), &[]),
        (Page::Before(Seq(9), 2), &[4, 5]),
    ];
    for (page, expected) in rows {
        assert_eq!(numbers(&store, id, page).await, expected, "{page:?}");
    }
}

pub(super) async fn event_texts_come_back_byte_for_byte(store: Store) {
    let rows = [
        ("Telemetry", r#"{"Telemetry": {"cpu": 0.50, "b":1,"a":[ 2 ,3.10]}}"#),
        ("Bare", r#""Bare""#),
        ("Future", "  {\"Future\" : null }\n"),
        ("Future", "{\n\"Future\": {\"n\": 123456789012345678901234567890}\n}"),
        ("Zukunft \u{1F980}", "{\"Zukunft \u{1F980}\":\"\\ud83e\\udd80\"}"),
        ("", r#"{"":{}}"#),
        ("it's", r#"{"it's":"\u0000"}"#),
        ("UserMessage", r#"{"UserMessage":{"content":"x"},"and":"more"}"#),
        // A known kind with a field that this build does not know, and white space.
        ("UserMessage", "{ \"UserMessage\": {\"content\": \"\\u0041\", \"colour\": 1} }"),
        ("Compacting", " \"Compacting\""),
    ];
    let id = store.create(unnamed()).await.unwrap();
    let events: Vec<NewEvent> =
        rows.iter().map(|(_, text)| NewEvent::verbatim((*text).to_owned()).unwrap()).collect();
    let turn = NewTurn { events, ..NewTurn::default() };
    store.append(id, turn).await.unwrap();
    let expected: Vec<StoredEvent> = rows
        .iter()
        .zip(1..)
        .map(|((kind, text), number)| StoredEvent::new(Seq(number), *kind, Ok((*text).to_owned())))
        .collect();
    assert_eq!(read_all(&store, id).await, expected);
    let fork = store.fork(id, Seq::END, unnamed()).await.unwrap();
    assert_eq!(read_all(&store, fork).await, expected, "of a fork");
}

/// Texts that databases have stumbled over.
pub(crate) fn odd_texts() -> Vec<String> {
    let every_control: String = (0..0x20).chain(0x7f..0xa0).filter_map(char::from_u32).collect();
    [
        "",
        " ",
        "\0",
        "before\0after",
        "a\r\nb\rc\n",
        "\u{1F980}\u{10FFFF}\u{FFFF}\u{FEFF}",
        "e\u{301} \u{202e}abc",
        "'; DROP TABLE sessions; --",
        "</azureal-session-context>",
        r#"{"UserMessage":{"content":"quoted"}}"#,
        "\\u0000 \\ud800 %s {} $1 ?",
        every_control.as_str(),
    ]
    .map(str::to_owned)
    .to_vec()
}

pub(super) async fn any_text_is_kept(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    for (text, number) in odd_texts().iter().zip(1..) {
        let turn = NewTurn {
            mark: Some(NewMark { name: format!("mark {text}"), note: text.clone() }),
            ..prompt(text)
        };
        store.append(id, turn).await.unwrap();
        store.add_compaction(id, &Compaction::new(Seq(number), text)).await.unwrap();
        if let Some(notes) = store.crash_notes() {
            assert_eq!(notes.mark(&format!("mark {text}")).await.unwrap().unwrap().note, *text);
        }
    }
    let read = read_all(&store, id).await;
    let said: Vec<Event> = read.iter().map(|event| event.event().unwrap()).collect();
    let expected: Vec<Event> = odd_texts().into_iter().map(Event::user).collect();
    assert_eq!(said, expected);
    let compactions = store.compactions(id).await.unwrap();
    let summaries: Vec<String> = compactions.into_iter().map(|each| each.summary).collect();
    assert_eq!(summaries, odd_texts());
}

pub(super) async fn large_events_are_read_whole(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let large: Vec<Event> =
        (0..4).map(|index| Event::user(format!("{index} 0123456789 \u{1F980}\n").repeat(1 << 16))).collect();
    assert!(large[0].to_json().len() > 1 << 20);
    store.append(id, NewTurn::verbatim(large.clone())).await.unwrap();
    store.append(id, prompt("small")).await.unwrap();
    let expected: Vec<Event> = large.into_iter().chain([Event::user("small")]).collect();
    let events =
        |read: &[StoredEvent]| -> Vec<Event> { read.iter().map(|event| event.event().unwrap()).collect() };
    // Not with `assert_eq!`, which would print megabytes.
    assert!(events(&read_all(&store, id).await) == expected, "read forward");

    let mut backward: Vec<StoredEvent> = Vec::new();
    loop {
        let before = backward.first().map_or(Seq::END, |event| event.seq);
        let page = page_before(&store, id, before, 1000).await;
        if page.is_empty() {
            break;
        }
        backward.splice(0..0, page);
    }
    assert!(events(&backward) == expected, "read backward");
}

pub(super) async fn a_long_log_is_read_whole(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let count = 2500;
    let turn = NewTurn::verbatim((0..count).map(|number| Event::user(number.to_string())));
    let appended = store.append(id, turn).await.unwrap();
    assert_eq!((appended.first, appended.last), (Seq(1), Seq(count)));
    store.append(id, prompt("last")).await.unwrap();
    let history = read_history(store.as_ref(), id).await.unwrap();
    let expected: Vec<Message> =
        (0..count).map(|number| Message::user(number.to_string())).chain([Message::user("last")]).collect();
    assert_eq!(history, expected);
    assert_eq!(store.get(id).await.unwrap().counts.messages, count + 1);
    let last = store.read(id, Page::last(1)).await.unwrap();
    assert_eq!(last[0].seq, Seq(count + 1));
}

pub(super) async fn only_what_an_agent_reported_is_cut_down(store: Store) {
    let id = store.create(unnamed()).await.unwrap();
    let result = Event::ToolResult(ToolResult {
        tool_use_id: "t".to_owned(),
        tool_name: "Bash".to_owned(),
        content: "1\n2\n3\n4".to_owned(),
        ..ToolResult::default()
    });
    store.append(id, NewTurn::verbatim([result.clone()])).await.unwrap();
    append_events(store.as_ref(), id, [result.clone()]).await.unwrap();
    let read = read_all(&store, id).await;
    let kept = fold([read[1].event().unwrap()]);
    assert_eq!(read[0].event().unwrap(), result);
    let expected = Block::tool_result("t", "[2 lines omitted]\n3\n4");
    assert_eq!(kept, [Message::new(Role::User, [expected])]);
}
