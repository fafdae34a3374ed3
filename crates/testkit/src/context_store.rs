//! The contract of every [`ContextStore`], including those with only the two required methods.
//!
//! If the trait leaves a choice, to support something or to report that it is not supported, either passes. No case
//! appends more than [`MOST_MESSAGES`]: a store that returns only the relevant part of a long history passes if it
//! returns a short one whole.

use std::sync::Arc;

use azureal_core::ContextStore;

/// The longest history that the contract makes.
pub const MOST_MESSAGES: usize = 32;

crate::contract::contract! {
    $
    /// The contract of every [`ContextStore`], case by case.
    const CONTEXT_STORE_CASES: ContextStore;
    /// Runs the contract of a [`ContextStore`](azureal_core::ContextStore): one test for each of
    /// [`CONTEXT_STORE_CASES`], in a module of the name given.
    ///
    /// The expression is a future of a pair: an empty conversation, and a value that has to outlive it, such as a
    /// temporary folder. It is evaluated again for each case.
    ///
    /// ```
    /// azureal_testkit::context_store_contract!(memory, async {
    ///     (azureal_core::MemoryContextStore::default(), ())
    /// });
    /// # fn main() {}
    /// ```
    macro context_store_contract, run by run_context_store_case;
    cases {
        a_new_conversation_is_empty,
        the_id_stays_the_same,
        messages_come_back_in_their_order,
        every_block_comes_back,
        an_empty_message_is_a_message,
        messages_of_one_role_stay_apart,
        any_text_comes_back,
        any_input_comes_back,
        a_large_message_comes_back,
        reading_changes_nothing,
        a_fork_is_an_independent_copy,
        a_fork_has_an_id_of_its_own,
        clearing_works_or_is_not_supported,
        tokens_are_kept_or_stay_zero,
        the_conversation_lists_itself,
        the_preview_is_the_first_text_of_the_first_user_message,
        a_first_user_message_without_text_has_no_preview,
        it_serves_as_a_bound_and_as_an_object,
        messages_appended_at_once_are_all_kept,
        closing_succeeds,
    }
}

/// Checks the contract of [`from_history`](ContextStore::from_history) and
/// [`from_context`](ContextStore::from_context), for stores with a default; panics if it is broken.
///
/// ```
/// # futures_executor::block_on(
/// azureal_testkit::context_store_from_history::<azureal_core::MemoryContextStore>()
/// # );
/// ```
pub async fn context_store_from_history<S: ContextStore + Default>() {
    use azureal_core::Message;

    let messages = vec![Message::user("Hello"), Message::assistant("Hi!")];
    let first = S::from_history(messages.clone()).await.unwrap();
    assert_eq!(first.get_history().await.unwrap(), messages);
    let second = S::from_context(&first as &dyn ContextStore).await.unwrap();
    assert_eq!(second.get_history().await.unwrap(), messages);
    second.append(Message::user("more")).await.unwrap();
    assert_eq!(first.get_history().await.unwrap(), messages);
    let empty = S::from_history(Vec::new()).await.unwrap();
    assert_eq!(empty.get_history().await.unwrap(), []);
}

mod cases {
    use std::thread;

    use azureal_core::{
        Block, Image, Json, MediaType, MemoryContextStore, Message, OutputPart, Role, SessionInfo,
        StoreError, ToolOutput,
    };
    use futures_executor::block_on;

    use super::*;
    use crate::session_store::odd_texts;

    type Store = Arc<dyn ContextStore>;

    /// Appends messages and checks that exactly these come back.
    async fn check(store: &Store, messages: Vec<Message>) {
        assert!(messages.len() <= MOST_MESSAGES);
        for message in &messages {
            store.append(message.clone()).await.unwrap();
        }
        assert_eq!(store.get_history().await.unwrap(), messages);
    }

    /// Returns the entry of the conversation in its own list.
    async fn listed(store: &Store) -> SessionInfo {
        let list = store.list_sessions().await.unwrap();
        let mut own = list.iter().filter(|info| info.session_id == store.session_id());
        let found = own.next().cloned();
        assert!(own.next().is_none(), "listed twice: {list:?}");
        found.unwrap_or_else(|| panic!("{} is not in {list:?}", store.session_id()))
    }

    pub(super) async fn a_new_conversation_is_empty(store: Store) {
        assert_eq!(store.get_history().await.unwrap(), []);
        assert_eq!(store.get_context_tokens().await.unwrap(), (0, 0));
    }

    pub(super) async fn the_id_stays_the_same(store: Store) {
        let id = store.session_id().into_owned();
        assert!(!id.is_empty());
        store.append(Message::user("Hello")).await.unwrap();
        assert_eq!(store.session_id(), id);
        store.get_history().await.unwrap();
        drop(store.fork().await.unwrap());
        assert_eq!(store.session_id(), id);
    }

    pub(super) async fn messages_come_back_in_their_order(store: Store) {
        let messages = (0..MOST_MESSAGES).map(|number| match number % 2 {
            0 => Message::user(format!("Message {number}")),
            _ => Message::assistant(format!("Message {number}")),
        });
        check(&store, messages.collect()).await;
    }

    pub(super) async fn every_block_comes_back(store: Store) {
        let bytes: Vec<u8> = (0..=255).collect();
        let image = |media_type| Image { media_type, data: bytes.clone() };
        let result =
            |content, is_error| Block::ToolResult { tool_use_id: "t1".to_owned(), content, is_error };
        let mut messages = vec![
            Message::system("be kind"),
            Message::user("Hello"),
            Message::new(
                Role::Assistant,
                [
                    Block::text("I will look"),
                    Block::tool_use("t1", "Bash", json(r#"{"command":"ls"}"#)),
                    Block::tool_use("t2", "Read", json("{}")),
                    Block::text("and read"),
                ],
            ),
            Message::new(
                Role::User,
                [
                    result(ToolOutput::Text("a\nb\nc\nd\ne\nf\ng".to_owned()), false),
                    result(ToolOutput::Text(String::new()), true),
                ],
            ),
            Message::new(
                Role::User,
                [
                    result(
                        ToolOutput::Parts(vec![
                            OutputPart::Text("see".to_owned()),
                            OutputPart::Image(image(MediaType::Png)),
                            OutputPart::Text(String::new()),
                        ]),
                        true,
                    ),
                    result(ToolOutput::Parts(Vec::new()), false),
                    Block::text("what is this?"),
                ],
            ),
            // No program sends these, but they are allowed.
            Message::new(Role::User, [Block::tool_use("odd", "Bash", json("{}"))]),
            Message::new(Role::Assistant, [result(ToolOutput::Text("odd".to_owned()), false)]),
            Message::new(Role::System, [Block::text("one"), Block::text("two")]),
            Message::new(Role::System, [Block::Image(image(MediaType::Gif))]),
        ];
        for media_types in MediaType::ALL.chunks(6) {
            let media = media_types.iter().map(|media_type| Block::Image(image(*media_type)));
            let content: Vec<Block> = [Block::text("media")].into_iter().chain(media).collect();
            messages.push(Message::new(Role::User, content));
        }
        messages.push(Message::new(Role::User, [Block::image(MediaType::Jpeg, [])]));
        check(&store, messages).await;
    }

    pub(super) async fn an_empty_message_is_a_message(store: Store) {
        let messages = Role::ALL
            .into_iter()
            .flat_map(|role| [Message::new(role, []), Message::new(role, [Block::text("")])]);
        check(&store, messages.collect()).await;
    }

    pub(super) async fn messages_of_one_role_stay_apart(store: Store) {
        let results = |id: &str| Message::new(Role::User, [Block::tool_result(id, "ok")]);
        let call = |id: &str| Message::new(Role::Assistant, [Block::tool_use(id, "Bash", json("{}"))]);
        let messages = vec![
            Message::user("one"),
            Message::user("two"),
            Message::new(Role::User, [Block::text("three"), Block::text("four")]),
            results("a"),
            results("b"),
            Message::user("five"),
            Message::new(Role::User, [Block::tool_result("c", "ok"), Block::text("six")]),
            Message::assistant("seven"),
            Message::assistant("eight"),
            call("d"),
            call("e"),
            Message::new(Role::Assistant, [Block::text("nine"), Block::text("ten")]),
            Message::system("eleven"),
            Message::system("twelve"),
        ];
        check(&store, messages).await;
    }

    pub(super) async fn any_text_comes_back(store: Store) {
        let texts = odd_texts();
        let blocks: Vec<Block> = texts.iter().map(Block::text).collect();
        let mut messages: Vec<Message> = texts.iter().map(Message::user).collect();
        messages.push(Message::new(Role::Assistant, blocks));
        let results: Vec<Block> = texts.iter().map(|text| Block::tool_result(text, text)).collect();
        messages.push(Message::new(Role::User, results));
        check(&store, messages).await;
    }

    pub(super) async fn any_input_comes_back(store: Store) {
        let inputs = [
            "{}",
            r#"{"a":1,"b":[true,null,-0.5,1e300],"c":{"d":{"e":[[],{}]}}}"#,
            r#"{"big":123456789012345678901234567890,"exact":0.1}"#,
            "{\"\":\"\",\"\u{1F980}\":\"\\u0000\",\"quote\\\"\":\"\\\\\"}",
            "null",
            "[1,2]",
            "\"text\"",
        ];
        let blocks: Vec<Block> =
            inputs.into_iter().map(|input| Block::tool_use("t", "any", json(input))).collect();
        let messages = [Role::Assistant, Role::User].map(|role| Message::new(role, blocks.clone()));
        check(&store, messages.to_vec()).await;
        // Numbers are equal when they are equal as floats, so the digits are looked at too.
        let history = store.get_history().await.unwrap();
        let digits = "123456789012345678901234567890";
        for message in history {
            let kept = message.content.iter().any(
                |block| matches!(block, Block::ToolUse { input, .. } if input.as_str().contains(digits)),
            );
            assert!(kept, "digits were lost: {message:?}");
        }
    }

    pub(super) async fn a_large_message_comes_back(store: Store) {
        let text = "0123456789 \u{1F980}\n".repeat(1 << 16);
        let messages =
            [Message::user(&text), Message::new(Role::User, [Block::image(MediaType::Png, text.as_bytes())])];
        for message in &messages {
            store.append(message.clone()).await.unwrap();
        }
        // Not with `assert_eq!`, which would print megabytes.
        assert!(store.get_history().await.unwrap() == messages);
    }

    pub(super) async fn reading_changes_nothing(store: Store) {
        let messages = vec![Message::user("Hello"), Message::assistant("Hi!")];
        check(&store, messages.clone()).await;
        store.list_sessions().await.unwrap();
        store.get_context_tokens().await.unwrap();
        drop(store.fork().await.unwrap());
        assert_eq!(store.get_history().await.unwrap(), messages);
        store.append(Message::user("more")).await.unwrap();
        assert_eq!(store.get_history().await.unwrap().len(), 3);
    }

    pub(super) async fn a_fork_is_an_independent_copy(store: Store) {
        let shared = vec![Message::user("one"), Message::assistant("two")];
        check(&store, shared.clone()).await;
        let fork = store.fork().await.unwrap();
        assert_eq!(fork.get_history().await.unwrap(), shared);
        fork.append(Message::user("of the fork")).await.unwrap();
        store.append(Message::user("of the origin")).await.unwrap();
        store.append(Message::user("and more")).await.unwrap();
        fork.add_context_tokens(5, 5).await.unwrap();

        let with = |more: &[&str]| -> Vec<Message> {
            let more = more.iter().copied().map(Message::user);
            shared.iter().cloned().chain(more).collect()
        };
        assert_eq!(fork.get_history().await.unwrap(), with(&["of the fork"]));
        assert_eq!(store.get_history().await.unwrap(), with(&["of the origin", "and more"]));
        assert_eq!(store.get_context_tokens().await.unwrap(), (0, 0));
        let of_fork = fork.fork().await.unwrap();
        assert_eq!(of_fork.get_history().await.unwrap(), with(&["of the fork"]));
    }

    pub(super) async fn a_fork_has_an_id_of_its_own(store: Store) {
        let of_empty = store.fork().await.unwrap();
        assert_eq!(of_empty.get_history().await.unwrap(), []);
        store.append(Message::user("Hello")).await.unwrap();
        assert_eq!(of_empty.get_history().await.unwrap(), []);
        let first = store.fork().await.unwrap();
        let second = store.fork().await.unwrap();
        let third = second.fork().await.unwrap();
        let mut ids = [
            store.session_id(),
            of_empty.session_id(),
            first.session_id(),
            second.session_id(),
            third.session_id(),
        ];
        assert!(ids.iter().all(|id| !id.is_empty()), "{ids:?}");
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    }

    pub(super) async fn clearing_works_or_is_not_supported(store: Store) {
        let messages = vec![Message::user("one"), Message::assistant("two")];
        check(&store, messages.clone()).await;
        store.set_context_tokens(5, 7).await.unwrap();
        let tokens = store.get_context_tokens().await.unwrap();
        let id = store.session_id().into_owned();
        let fork = store.fork().await.unwrap();
        match store.clear().await {
            Ok(()) => {
                assert_eq!(store.get_context_tokens().await.unwrap(), (0, 0), "tokens are cleared too");
                assert_eq!(store.get_history().await.unwrap(), []);
                let info = listed(&store).await;
                assert_eq!((info.message_count, info.preview.as_str()), (0, ""));
                store.append(Message::user("anew")).await.unwrap();
                assert_eq!(store.get_history().await.unwrap(), [Message::user("anew")]);
                assert_eq!(listed(&store).await.preview, "anew");
            }
            Err(StoreError::NotSupported(_)) => {
                assert_eq!(store.get_history().await.unwrap(), messages);
                assert_eq!(store.get_context_tokens().await.unwrap(), tokens);
            }
            Err(error) => panic!("clear: {error}"),
        }
        assert_eq!(store.session_id(), id);
        assert_eq!(fork.get_history().await.unwrap(), messages, "forks stay");
        assert_eq!(fork.get_context_tokens().await.unwrap(), tokens, "with the tokens of their origin");
    }

    pub(super) async fn tokens_are_kept_or_stay_zero(store: Store) {
        store.append(Message::user("Hello")).await.unwrap();
        store.set_context_tokens(40, 2).await.unwrap();
        let kept = match store.get_context_tokens().await.unwrap() {
            (40, 2) => true,
            (0, 0) => false,
            other => panic!("set to (40, 2), and now {other:?}"),
        };
        let rows = [((100, 50), (140, 52)), ((200, 80), (340, 132)), ((0, 0), (340, 132))];
        for ((input, output), total) in rows {
            store.add_context_tokens(input, output).await.unwrap();
            let expected = if kept { total } else { (0, 0) };
            assert_eq!(store.get_context_tokens().await.unwrap(), expected);
            let info = listed(&store).await;
            assert_eq!((info.input_tokens, info.output_tokens), expected);
        }
        store.set_context_tokens(1, 2).await.unwrap();
        let expected = if kept { (1, 2) } else { (0, 0) };
        assert_eq!(store.get_context_tokens().await.unwrap(), expected);
        assert_eq!(store.get_history().await.unwrap(), [Message::user("Hello")]);
    }

    pub(super) async fn the_conversation_lists_itself(store: Store) {
        let messages = [
            Message::user("What is the capital of France?"),
            Message::new(Role::Assistant, [Block::text("Let me"), Block::text("think")]),
            Message::assistant("Paris"),
            Message::user("Thanks"),
        ];
        for (message, count) in messages.into_iter().zip(1..) {
            store.append(message).await.unwrap();
            let info = listed(&store).await;
            assert_eq!(
                (info.message_count, info.preview.as_str()),
                (count, "What is the capital of France?")
            );
        }
    }

    pub(super) async fn the_preview_is_the_first_text_of_the_first_user_message(store: Store) {
        store.append(Message::system("frame")).await.unwrap();
        store.append(Message::assistant("before")).await.unwrap();
        assert_eq!(listed(&store).await.preview, "");
        let text = "\u{1F980}".repeat(79) + "ab";
        let first = [Block::tool_result("t", "result"), Block::text(&text), Block::text("more")];
        store.append(Message::new(Role::User, first)).await.unwrap();
        store.append(Message::user("later")).await.unwrap();
        let expected = "\u{1F980}".repeat(79) + "a";
        assert_eq!(listed(&store).await.preview, expected, "80 characters");
    }

    pub(super) async fn a_first_user_message_without_text_has_no_preview(store: Store) {
        store.append(Message::new(Role::User, [])).await.unwrap();
        store.append(Message::user("later")).await.unwrap();
        assert_eq!(listed(&store).await.preview, "");
    }

    async fn say_hello(store: &impl ContextStore) {
        store.append(Message::user("Hello")).await.unwrap();
    }

    pub(super) async fn it_serves_as_a_bound_and_as_an_object(store: Store) {
        let id = store.session_id().into_owned();
        let boxed: Box<dyn ContextStore> = Box::new(Arc::clone(&store));
        say_hello(&boxed).await;
        say_hello(&store).await;
        let copy = MemoryContextStore::from_context(&*boxed).await.unwrap();
        assert_eq!(boxed.session_id(), id);
        let expected = [Message::user("Hello"), Message::user("Hello")];
        assert_eq!(copy.get_history().await.unwrap(), expected);
        assert_eq!(store.get_history().await.unwrap(), expected);
    }

    pub(super) async fn messages_appended_at_once_are_all_kept(store: Store) {
        const THREADS: usize = 4;
        let each = MOST_MESSAGES / THREADS;
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let store = &store;
                scope.spawn(move || {
                    for number in 0..each {
                        block_on(store.append(Message::user(format!("{thread}.{number}")))).unwrap();
                    }
                });
            }
        });
        let history = store.get_history().await.unwrap();
        assert_eq!(history.len(), THREADS * each);
        for thread in 0..THREADS {
            let prefix = format!("{thread}.");
            let of_thread: Vec<&str> = history
                .iter()
                .filter_map(Message::first_text)
                .filter(|text| text.starts_with(&prefix))
                .collect();
            let expected: Vec<String> = (0..each).map(|number| format!("{prefix}{number}")).collect();
            assert_eq!(of_thread, expected, "each in its own order");
        }
    }

    pub(super) async fn closing_succeeds(store: Store) {
        store.append(Message::user("Hello")).await.unwrap();
        store.close().await.unwrap();
    }

    fn json(text: &str) -> Json {
        text.parse().unwrap()
    }
}
