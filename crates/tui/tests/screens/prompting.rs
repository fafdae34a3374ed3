//! Sending, staging, queueing; Esc, Ctrl-C and quitting; what is kept.

use azureal::Error;
use azureal::core::event::{Complete, Outcome};
use azureal::desk::{Draft, Kept, News, NextAgent, Offer, PaneId, Request, TurnNews};
use azureal::turns::ActiveTurn;
use azureal_tui::{Effect, Message};

use crate::harness::{COLOURS, Screen};
use crate::scenes::in_two_slots;
use crate::world::*;

const SIZE: (u16, u16) = (80, 24);

fn screen(before: fn(&mut Screen)) -> Screen {
    let mut screen = Screen::new(SIZE, COLOURS);
    before(&mut screen);
    screen.asked();
    screen
}

fn send(pane: PaneId, prompt: &str) -> Request {
    Request::Send { pane, prompt: prompt.into(), agent: None, model: None }
}

fn end_turn(screen: &mut Screen, success: bool, outcome: Option<Outcome>) {
    let complete = Box::new(Complete { success, outcome, ..Complete::default() });
    let (first, last) = (None, None);
    screen.news(turn(PANE, TurnNews::Stored { session: id(12), first, last, complete, refused: Vec::new() }));
    screen.news(over(PANE));
}

fn failure() -> Error {
    Error::new("login", "codex is not logged in")
}

fn prompt_row(screen: &mut Screen) -> String {
    let text = screen.text();
    text.lines().rev().find(|line| line.starts_with('›')).unwrap_or_default().to_owned()
}

#[test]
fn enter_sends_the_prompt_which_appears_at_once() {
    let mut screen = screen(in_session);
    screen.keys("'Also check logout.' enter");
    assert_eq!(screen.asked(), [send(PANE, "Also check logout.")]);
    assert!(screen.text().contains("   Also check logout."));
    assert_eq!(prompt_row(&mut screen), "›");
}

#[test]
fn an_empty_box_sends_nothing() {
    let mut screen = screen(in_session);
    screen.keys("enter ' ' enter ctrl-t");
    assert_eq!(screen.asked(), []);
}

#[test]
fn sending_while_a_turn_runs_cancels_it_and_sends_the_prompt_after_it() {
    let mut screen = screen(in_turn);
    screen.keys("'Stop.'");
    assert!(screen.text().contains("↵ cancels the turn and sends · Ctrl-T queues"));
    screen.keys("enter");
    assert_eq!(screen.asked(), [Request::Cancel { pane: PANE }]);
    assert!(screen.text().contains("staged"));
    // A second prompt does not cancel a second time.
    screen.keys("'And rest.' enter");
    assert_eq!(screen.asked(), []);
    end_turn(&mut screen, false, Some(Outcome::Cancelled));
    assert_eq!(screen.asked(), [send(PANE, "Stop.")]);
    assert!(screen.text().contains("And rest."));
    end_turn(&mut screen, true, None);
    assert_eq!(screen.asked(), [send(PANE, "And rest.")]);
}

#[test]
fn queued_prompts_are_sent_one_after_the_other_without_a_cancel() {
    let mut screen = screen(in_turn);
    screen.keys("'One.' ctrl-t 'Two.' ctrl-t");
    assert_eq!(screen.asked(), []);
    end_turn(&mut screen, true, None);
    assert_eq!(screen.asked(), [send(PANE, "One.")]);
    end_turn(&mut screen, true, None);
    assert_eq!(screen.asked(), [send(PANE, "Two.")]);
}

#[test]
fn after_an_error_or_an_esc_waiting_prompts_wait_for_the_user() {
    for ending in ["esc", "error", "failed"] {
        let mut screen = screen(in_turn);
        screen.keys("'Later.' ctrl-t");
        match ending {
            "esc" => {
                screen.keys("esc");
                assert_eq!(screen.asked(), [Request::Cancel { pane: PANE }]);
                end_turn(&mut screen, false, Some(Outcome::Cancelled));
            }
            "error" => {
                screen
                    .news(turn(PANE, TurnNews::Over { is_ours: true, error: Some(failure()), unsent: None }));
            }
            _ => end_turn(&mut screen, false, None),
        }
        assert_eq!(screen.asked(), [], "{ending}");
        screen.wait(60_000);
        let text = screen.text();
        assert!(text.contains("Later.") && text.contains("↵ sends the waiting prompt"), "{ending}:\n{text}");
        screen.keys("enter");
        assert_eq!(screen.asked(), [send(PANE, "Later.")], "{ending}");
    }
}

#[test]
fn a_waiting_prompt_is_edited_in_the_box() {
    let mut screen = screen(in_turn);
    screen.keys("'Later.' ctrl-t alt-up");
    assert_eq!(prompt_row(&mut screen), "› Later.");
    end_turn(&mut screen, true, None);
    assert_eq!(screen.asked(), []);
    screen.keys("alt-up");
    assert!(screen.text().contains("no prompt waits"));
}

#[test]
fn a_prompt_that_was_not_sent_returns_to_the_box_or_waits_where_it_is_seen() {
    let mut screen = screen(in_session);
    screen.keys("'First.' enter");
    screen.news(not_sent(failure(), "First."));
    assert_eq!(prompt_row(&mut screen), "› First.");
    assert!(screen.text().contains("codex is not logged in"));
    screen.keys("enter 'Second'").asked();
    screen.news(not_sent(failure(), "First."));
    assert_eq!(prompt_row(&mut screen), "› Second");
    assert!(screen.text().contains("held until you send it: First."), "{}", screen.text());
    screen.keys("ctrl-c enter");
    assert_eq!(screen.asked(), [send(PANE, "First.")]);
}

fn not_sent(error: Error, prompt: &str) -> News {
    turn(PANE, TurnNews::Over { is_ours: true, error: Some(error), unsent: Some(prompt.into()) })
}

fn busy() -> Error {
    Error::new("busy", "a turn of S12 is running: claude 3 s, run by process 7").with_hint("wait for it")
}

const AWAIT: Request = Request::AwaitLease { pane: PANE };
const FREE: News = News::LeaseFree { pane: PANE };

#[test]
fn a_prompt_that_the_desk_refuses_waits_for_the_turn() {
    let mut screen = screen(in_session);
    screen.keys("'First.' enter");
    screen.asked();
    screen.news(News::Failed { pane: Some(PANE), error: busy(), unsent: Some("First.".into()) });
    assert!(screen.text().contains("staged, goes out when this turn has ended: First."));
    assert_eq!(screen.asked(), [AWAIT]);
    screen.news(over_elsewhere(PANE));
    assert_eq!(screen.asked(), [], "it is asked for already");
    screen.news(FREE);
    assert_eq!(screen.asked(), [send(PANE, "First.")]);
}

#[test]
fn a_prompt_that_another_turn_is_in_the_way_of_goes_out_once_when_the_lease_is_free() {
    let mut screen = screen(in_turn);
    screen.keys("'First.' ctrl-t 'Second.' ctrl-t").news(over(PANE));
    assert_eq!(screen.asked(), [send(PANE, "First.")]);
    screen.news(not_sent(busy(), "First."));
    assert_eq!(screen.asked(), [AWAIT]);
    assert_eq!(prompt_row(&mut screen), "›");
    let text = screen.text();
    assert!(text.contains("the prompt waits: a turn of S12 is running: claude 3 s"), "{text}");
    assert!(!text.contains("✗ a turn"), "that is no failure: {text}");
    assert!(text.contains("waits for a turn of another process"), "{text}");
    screen.keys("enter");
    assert_eq!(screen.asked(), [], "it waits already");
    // Another process was faster again.
    screen.news(FREE);
    assert_eq!(screen.asked(), [send(PANE, "First.")], "before the second");
    assert!(!screen.text().contains("the prompt waits"), "it does not any more");
    screen.news(not_sent(busy(), "First."));
    assert_eq!(screen.asked(), [AWAIT]);
    // A turn that is shown is still to end, also if its process is gone.
    screen.news(began_elsewhere(PANE, "From elsewhere.", 125)).news(FREE);
    assert_eq!(screen.asked(), []);
    screen.news(over_elsewhere(PANE));
    assert_eq!(screen.asked(), [AWAIT]);
    screen.news(FREE);
    assert_eq!(screen.asked(), [send(PANE, "First.")]);
    screen.news(FREE);
    assert_eq!(screen.asked(), [], "a turn runs");
    end_turn(&mut screen, true, None);
    assert_eq!(screen.asked(), [send(PANE, "Second.")]);
}

#[test]
fn a_prompt_that_is_typed_while_another_one_waits_for_a_turn_elsewhere_goes_out_after_it() {
    let mut screen = screen(in_session);
    screen.keys("'First.' enter").news(not_sent(busy(), "First.")).keys("'Second.' enter").asked();
    screen.news(FREE);
    assert_eq!(screen.asked(), [send(PANE, "First.")]);
    end_turn(&mut screen, true, None);
    assert_eq!(screen.asked(), [send(PANE, "Second.")]);
}

#[test]
fn a_held_prompt_goes_out_only_by_a_key() {
    for elsewhere in ["turn", "failed turn", "lease", "compaction", "own prompt"] {
        let mut screen = screen(in_turn);
        screen.keys("'Deploy.' ctrl-t esc").asked();
        end_turn(&mut screen, false, Some(Outcome::Cancelled));
        assert!(screen.text().contains("held until you send it: Deploy."), "{}", screen.text());
        match elsewhere {
            "turn" => drop(screen.news(began_elsewhere(PANE, "A question.", 125)).news(over_elsewhere(PANE))),
            "failed turn" => {
                screen.news(began_elsewhere(PANE, "A question.", 125));
                let complete = Box::new(Complete { success: false, ..Complete::default() });
                let (session, refused) = (id(12), Vec::new());
                let stored = TurnNews::Stored { session, first: None, last: None, complete, refused };
                screen.news(turn(PANE, stored)).news(over_elsewhere(PANE));
            }
            "lease" => drop(screen.news(FREE)),
            "compaction" => drop(screen.keys("'/compact' enter").news(over(PANE))),
            _ => {
                screen.keys("'A question.' enter");
                end_turn(&mut screen, true, None);
            }
        }
        let asked = screen.asked();
        assert!(!asked.contains(&send(PANE, "Deploy.")) && !asked.contains(&AWAIT), "{elsewhere}: {asked:?}");
        screen.keys("enter");
        assert_eq!(screen.asked(), [send(PANE, "Deploy.")], "{elsewhere}");
    }
}

#[test]
fn a_turn_of_another_process_that_fails_holds_no_prompt() {
    let mut screen = screen(in_session);
    screen.news(began_elsewhere(PANE, "From elsewhere.", 121)).keys("'Mine.' enter").asked();
    let complete = Box::new(Complete { success: false, ..Complete::default() });
    let (session, refused) = (id(12), Vec::new());
    screen.news(turn(PANE, TurnNews::Stored { session, first: None, last: None, complete, refused }));
    screen.news(over_elsewhere(PANE));
    assert_eq!(screen.asked(), [AWAIT]);
    screen.news(FREE);
    assert_eq!(screen.asked(), [send(PANE, "Mine.")]);
}

#[test]
fn esc_holds_a_prompt_that_waits_for_a_turn_elsewhere() {
    let mut screen = screen(in_session);
    screen.keys("'First.' enter").news(not_sent(busy(), "First.")).keys("esc").asked();
    screen.news(FREE);
    assert_eq!(screen.asked(), []);
    assert!(screen.text().contains("held until you send it: First."));
    screen.keys("enter");
    assert_eq!(screen.asked(), [send(PANE, "First.")]);
}

#[test]
fn prompts_that_an_interface_left_are_offered_and_wait_for_a_key() {
    let mut screen = screen(in_session);
    screen.news(began_elsewhere(PANE, "From elsewhere.", 121)).keys("'Mine.' enter").asked();
    let News::Opened(mut again) = opened(PANE, 12) else { panic!("a session") };
    again.offer = Some(Offer { number: 7, prompts: vec!["One.".into(), "Two.".into()] });
    screen.news(News::Opened(again));
    assert!(screen.text().contains("held until you send it: One."), "{}", screen.text());
    let requests = screen.take_requests();
    let kept = requests.iter().rev().find_map(|request| match request {
        Request::Keep(kept) => Some(kept),
        _ => None,
    });
    let kept = kept.expect("it is kept at once");
    assert_eq!((kept.drafts["S12"].queued.len(), kept.offers.as_slice()), (3, [7].as_slice()));
    screen.news(over_elsewhere(PANE)).asked();
    screen.news(FREE);
    assert_eq!(screen.asked(), [send(PANE, "Mine.")]);
    end_turn(&mut screen, true, None);
    assert_eq!(screen.asked(), []);
    screen.keys("enter");
    assert_eq!(screen.asked(), [send(PANE, "One.")]);
    end_turn(&mut screen, true, None);
    assert_eq!(screen.asked(), [send(PANE, "Two.")], "the key was for all of them");
}

#[test]
fn what_is_kept_has_no_prompt_that_is_being_sent() {
    let mut screen = screen(in_turn);
    screen.keys("'First.' ctrl-t").take_requests();
    screen.news(over(PANE));
    let requests = screen.take_requests();
    let [Request::Keep(kept), .., Request::Send { prompt, .. }] = requests.as_slice() else {
        panic!("{requests:?}")
    };
    assert_eq!((prompt.as_str(), kept.drafts.get("S12")), ("First.", None));
    assert!(kept.history.contains(&"First.".to_owned()));
}

#[test]
fn a_command_in_the_prompt_is_performed_and_not_sent() {
    let mut screen = screen(in_session);
    for (typed, shown) in [
        ("/help", "Send the prompt. While a turn runs"),
        ("/model", "Agent and model of the next turn"),
        ("/rename", "Rename S12"),
        ("/sessions", "↵ open"),
        ("/delete", "Delete S12 fix-login-race?"),
    ] {
        screen.type_text(typed).key("enter");
        assert!(screen.text().contains(shown), "{typed}: {}", screen.text());
        screen.keys("esc");
        assert_eq!(prompt_row(&mut screen), "›", "{typed}");
    }
    screen.asked();
    screen.keys("'/compact' enter");
    assert_eq!(screen.asked(), [Request::Compact { pane: PANE }]);
    screen.keys("'/quit' enter");
    assert_eq!(screen.effects, [Effect::Quit]);
}

#[test]
fn an_unknown_command_is_sent_only_if_the_user_sends_it_twice() {
    let mut screen = screen(in_session);
    screen.keys("'/xyz' enter");
    assert_eq!(screen.asked(), []);
    assert!(screen.text().contains("no command /xyz; ↵ again sends it to the agent"));
    assert_eq!(prompt_row(&mut screen), "› /xyz");
    screen.keys("'z' enter");
    assert_eq!(screen.asked(), [], "another word");
    screen.keys("enter");
    assert_eq!(screen.asked(), [send(PANE, "/xyzz")]);
}

#[test]
fn a_prompt_that_begins_with_a_path_is_sent() {
    let mut screen = screen(in_session);
    screen.keys("'/etc/hosts is wrong' enter");
    assert_eq!(screen.asked(), [send(PANE, "/etc/hosts is wrong")]);
}

#[test]
fn esc_and_ctrl_x_in_one_key_type_nothing() {
    let mut screen = screen(in_session);
    screen.keys("ctrl-alt-x");
    assert_eq!(prompt_row(&mut screen), "›");
}

#[test]
fn a_turn_whose_azureal_is_gone_is_cancelled_for_a_prompt() {
    let mut screen = screen(in_session);
    let News::Sessions(mut lines) = sessions() else { panic!("the sessions") };
    let mut active = ActiveTurn::new(id(12), "codex", "2026-11-16T14:02:00Z");
    active.orphan = true;
    lines[0].active = Some(active);
    let (prompt, since_ms) = (Some("Before.".into()), screen.now_ms);
    let began = TurnNews::Began { prompt, first: azureal::Seq(121), since_ms, is_ours: false };
    screen.news(News::Sessions(lines)).news(turn(PANE, began)).keys("'Mine.'");
    assert!(screen.text().contains("↵ cancels the turn and sends"), "{}", screen.text());
    screen.keys("enter");
    assert_eq!(screen.asked(), [Request::Cancel { pane: PANE }]);
}

#[test]
fn the_turn_of_another_process_is_not_cancelled_for_a_prompt() {
    let mut screen = screen(in_session);
    let began = TurnNews::Began {
        prompt: Some("From elsewhere.".into()),
        first: azureal::Seq(121),
        since_ms: screen.now_ms,
        is_ours: false,
    };
    screen.news(turn(PANE, began)).keys("'Mine.'");
    assert!(screen.text().contains("↵ queues: this turn runs in the background"));
    screen.keys("enter");
    assert_eq!(screen.asked(), []);
    screen.news(over_elsewhere(PANE));
    assert_eq!(screen.asked(), [AWAIT], "its process may still hold the lease");
    screen.news(FREE);
    assert_eq!(screen.asked(), [send(PANE, "Mine.")]);
}

#[test]
fn esc_closes_layers_then_leaves_reading_then_cancels_and_deletes_no_text() {
    let mut screen = screen(in_turn);
    screen.keys("'draft' tab f2 f1");
    screen.keys("esc");
    assert!(screen.text().contains("Agent and model"), "only the topmost layer is closed");
    screen.keys("esc");
    assert!(screen.text().contains("i write"));
    screen.keys("esc");
    assert_eq!(screen.asked().len(), 1, "F2 asked for the agents, and nothing was cancelled");
    screen.keys("esc");
    assert_eq!(screen.asked(), [Request::Cancel { pane: PANE }]);
    screen.keys("esc esc");
    assert_eq!(screen.asked(), [], "one cancel is enough");
    assert_eq!(prompt_row(&mut screen), "› draft");
}

#[test]
fn ctrl_c_clears_then_cancels_then_quits_if_pressed_twice() {
    let mut screen = screen(in_turn);
    screen.keys("'draft' ctrl-c");
    assert_eq!(prompt_row(&mut screen), "›");
    assert_eq!(screen.asked(), []);
    screen.keys("ctrl-c");
    assert_eq!(screen.asked(), [Request::Cancel { pane: PANE }]);
    end_turn(&mut screen, false, Some(Outcome::Cancelled));
    screen.keys("ctrl-c");
    assert!(screen.text().contains("Ctrl-C again quits"));
    screen.wait(1_000);
    assert!(!screen.text().contains("again quits"), "only for a second");
    screen.keys("ctrl-c");
    assert_eq!(screen.effects, []);
    screen.keys("ctrl-c");
    assert_eq!(screen.effects, [Effect::Quit]);
    screen.keys("up");
    assert_eq!(prompt_row(&mut screen), "› draft", "cleared text is in the history");
}

#[test]
fn quitting_with_running_turns_asks() {
    let quit = |answer: &str| {
        let mut screen = screen(in_two_slots);
        screen.keys("ctrl-x q").keys(answer);
        let asked = screen.asked();
        (screen, asked)
    };
    let (screen, asked) = quit("l");
    assert_eq!((screen.effects, asked), (vec![Effect::Quit], vec![]), "left running");
    let (screen, asked) = quit("s");
    assert_eq!((screen.effects, asked), (vec![], vec![]));
    let (mut screen, asked) = quit("down enter");
    assert_eq!(asked, [Request::Cancel { pane: PANE }, Request::Cancel { pane: PaneId(2) }]);
    screen.news(over(PANE));
    assert_eq!(screen.effects, []);
    screen.news(over(PaneId(2)));
    assert_eq!(screen.effects, [Effect::Quit], "when all turns are stored");
}

#[test]
fn drafts_are_kept_at_most_once_a_second_and_on_every_send() {
    let kept = |requests: Vec<Request>| -> Vec<Kept> {
        requests
            .into_iter()
            .filter_map(|request| match request {
                Request::Keep(kept) => Some(*kept),
                _ => None,
            })
            .collect()
    };
    let mut screen = screen(in_session);
    screen.wait(5_000);
    screen.take_requests();
    // Twenty keys in three seconds.
    screen.type_text("abcdefghijklmnopqrst");
    let while_typing = kept(screen.take_requests());
    assert!((2..=4).contains(&while_typing.len()), "{}", while_typing.len());
    screen.wait(1_000);
    let after = kept(screen.take_requests());
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].drafts["S12"].text, "abcdefghijklmnopqrst");
    screen.wait(10_000);
    assert_eq!(kept(screen.take_requests()), [], "nothing new, no write");
    screen.keys("! enter");
    let sent = kept(screen.take_requests());
    let last = sent.last().unwrap();
    assert_eq!(last.history, ["abcdefghijklmnopqrst!"]);
    assert_eq!((last.drafts.get("S12"), last.shown.as_deref()), (None, Some("S12")));
    screen.keys("'queued' ctrl-t");
    let queued = kept(screen.take_requests());
    assert_eq!(queued.last().unwrap().drafts["S12"].queued, ["queued"]);
}

#[test]
fn what_was_kept_is_there_again() {
    let draft = |text: &str, queued: &[&str]| Draft {
        text: text.into(),
        queued: queued.iter().map(ToString::to_string).collect(),
    };
    let kept = Kept {
        drafts: [("S12".to_owned(), draft("half a prompt", &["later"])), (String::new(), draft("", &[]))]
            .into(),
        history: vec!["old".into(), "older".into()],
        shown: Some("S12".into()),
        seen: [("S11".to_owned(), 100)].into(),
        ..Kept::default()
    };
    let mut screen = Screen::new(SIZE, COLOURS);
    screen.news(News::Restored(Box::new(kept))).news(sessions());
    let open = Request::Open { pane: PANE, session: id(12), last: 64 };
    assert!(screen.asked().contains(&open), "the session that was shown last");
    screen.news(opened(PANE, 12));
    let text = screen.text();
    assert!(text.contains("› half a prompt") && text.contains("held until you send it: later"), "{text}");
    assert!(text.contains("1 unread"), "S11 has grown since it was seen: {text}");
    screen.keys("ctrl-c up up");
    assert_eq!(prompt_row(&mut screen), "› older");
}

#[test]
fn a_new_conversation_that_was_typed_in_is_not_replaced_by_the_last_session() {
    let mut screen = Screen::new(SIZE, COLOURS);
    screen.news(News::Restored(Box::new(Kept { shown: Some("S12".into()), ..Kept::default() })));
    screen.type_text("Hello").news(sessions());
    assert!(!screen.asked().iter().any(|request| matches!(request, Request::Open { .. })));
}

#[test]
fn a_chosen_agent_goes_with_the_first_prompt_of_a_new_conversation() {
    let mut screen = Screen::new(SIZE, COLOURS);
    screen.news(agents()).news(sessions()).asked();
    screen.keys("f2 'codex gpt' enter");
    let (agent, model) = ("codex".to_owned(), Some("gpt-5.5".to_owned()));
    assert_eq!(
        screen.asked(),
        [Request::Agents, Request::Switch { pane: PANE, agent: agent.clone(), model: model.clone() }]
    );
    // The desk says what is chosen, as for a session.
    let next = NextAgent { agent: Some("claude".into()), model: Some("opus".into()) };
    screen.news(News::NextAgent { pane: PANE, next });
    assert!(screen.text().contains("new conversation   claude opus"), "{}", screen.text());
    let next = NextAgent { agent: Some(agent), model: model.clone() };
    screen.news(News::NextAgent { pane: PANE, next });
    screen.keys("'Hi' enter");
    let agent = Some("codex".into());
    assert_eq!(screen.asked(), [Request::Send { pane: PANE, prompt: "Hi".into(), agent, model }]);
}

#[test]
fn a_chosen_agent_of_a_session_is_stored_and_any_model_can_be_typed() {
    let mut screen = screen(in_session);
    screen.keys("f2 'claude haiku-5' enter");
    let (agent, model) = ("claude".to_owned(), Some("haiku-5".to_owned()));
    assert_eq!(
        screen.asked(),
        [Request::Agents, Request::Switch { pane: PANE, agent: agent.clone(), model: model.clone() }]
    );
    assert!(screen.text().contains("S12 fix-login-race   claude haiku-5"));
    screen.keys("f2 'gemini' enter");
    assert!(screen.text().contains("gemini is not installed: install it with"));
    screen.asked();
    screen.keys("'Hi' enter");
    assert_eq!(
        screen.asked(),
        [Request::Send { pane: PANE, prompt: "Hi".into(), agent: Some(agent), model }]
    );
    // The session has it from then on.
    let next = NextAgent { agent: Some("claude".into()), model: Some("haiku-5".into()) };
    end_turn(&mut screen, true, None);
    screen.keys("'Again' enter");
    assert_eq!(screen.asked(), [send(PANE, "Again")], "{next:?}");
}

#[test]
fn a_question_is_answered_by_a_number_or_stays_open() {
    let mut screen = screen(in_turn);
    screen.news(turn(PANE, TurnNews::Question(question()))).keys("esc");
    assert_eq!(screen.asked(), [], "Esc neither answers nor cancels");
    screen.keys("ctrl-x a 2");
    let option = Some("always".to_owned());
    assert_eq!(screen.asked(), [Request::Answer { pane: PANE, question: "q1".into(), option }]);
    screen.keys("'typing'").news(turn(PANE, TurnNews::Question(question())));
    assert!(
        screen.text().contains("Ctrl-X a answers"),
        "a question does not take the keys of someone who types"
    );
    assert_eq!(prompt_row(&mut screen), "› typing");
    screen.keys("ctrl-x a n");
    assert_eq!(screen.asked(), [Request::Answer { pane: PANE, question: "q1".into(), option: None }]);
}

#[test]
fn a_user_who_looks_elsewhere_is_told_when_a_turn_ends() {
    let mut screen = screen(in_turn);
    end_turn(&mut screen, true, None);
    assert_eq!(screen.effects, []);
    let mut screen = self::screen(in_turn);
    screen.message(Message::Focus(false));
    end_turn(&mut screen, true, None);
    assert_eq!(screen.effects, [Effect::Bell("S12 fix-login-race: the turn has ended".into())]);
}

#[test]
fn a_pasted_text_goes_into_the_box_from_everywhere() {
    let mut screen = screen(in_session);
    screen.keys("tab").message(Message::Paste("from\nelsewhere".into()));
    assert!(screen.text().contains("› from\n  elsewhere"));
    screen.keys("f2").message(Message::Paste("opus".into()));
    assert!(screen.text().contains("filter, or a model: opus"));
}

#[test]
fn a_turn_that_is_stored_or_over_is_not_being_cancelled_any_more() {
    for is_stored in [true, false] {
        for waits in [false, true] {
            let mut screen = screen(in_turn);
            if waits {
                screen.keys("'Later.' ctrl-t");
            }
            screen.keys("esc");
            assert!(screen.text().contains("· cancelling the turn"), "{}", screen.text());
            match is_stored {
                true => end_turn(&mut screen, false, Some(Outcome::Cancelled)),
                false => drop(screen.news(over(PANE))),
            }
            assert!(!screen.text().contains("cancelling"), "{}", screen.text());
        }
    }
}
