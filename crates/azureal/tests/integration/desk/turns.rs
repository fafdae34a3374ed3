//! Turns that the interface starts.

use std::fs;

use azureal::desk::{News, PaneId, Request, TurnNews};
use azureal::{Seq, block_on};
use azureal_testkit::until;

use super::{CLAUDE, PANE, WAITING_CLAUDE, World, said, session};

#[test]
fn a_turn_is_reported_in_order_and_ends_once() {
    let world = World::new(CLAUDE);
    for desk in [world.desk_in_memory(), world.desk()] {
        desk.send("Why?");
        let told: Vec<String> = desk.turn().into_iter().filter(|word| word != "meter").collect();
        let expected =
            ["accepted S1 claude", "began at 1, ours: Why?", "output", "stored S1 1-4 done", "over"];
        assert_eq!(told, expected);
        assert_eq!(desk.texts(session(1)), ["Why?", "Fixed.", "(done)"]);
        // The pane has its session now, and nothing of the turn comes a second time.
        desk.send("And now?");
        let told = desk.turn();
        assert!(told.contains(&"began at 5, ours: And now?".to_owned()), "{told:?}");
        assert_eq!(desk.rest(), [""; 0]);
    }
}

#[test]
fn what_is_wrong_with_a_turn_is_in_its_end_with_the_prompt() {
    let world = World::new(CLAUDE);
    let desk = world.desk();
    let send = |agent: &str| {
        let agent = Some(agent.to_owned());
        desk.desk.perform(Request::Send { pane: PANE, prompt: "Why?".into(), agent, model: None });
    };
    send("nobody");
    assert_eq!(desk.turn(), ["over: unknown_agent Why?"]);
    send("codex");
    assert_eq!(desk.turn(), ["over: not_installed Why?"]);
    assert!(block_on(desk.workspace.list_sessions()).unwrap().is_empty());
}

#[test]
fn a_second_prompt_is_refused_with_its_text_and_a_cancelled_turn_is_stored() {
    let world = World::new(WAITING_CLAUDE);
    for desk in [world.desk_in_memory(), world.desk()] {
        desk.send("Why?");
        desk.until_turn("output", |news| match news {
            TurnNews::Output(outputs) => (said(&outputs) == ["Half."]).then_some(()),
            _ => None,
        });
        desk.send("Too early");
        desk.until("refusal", |news| match news {
            News::Failed { pane: Some(PANE), error, unsent } => {
                assert_eq!((error.kind(), unsent.as_deref()), ("busy", Some("Too early")));
                assert!(error.hint().is_some());
                Some(())
            }
            _ => None,
        });
        desk.desk.perform(Request::Cancel { pane: PANE });
        let told = desk.turn();
        assert!(told.ends_with(&["stored S1 1-4 cancelled".to_owned(), "over".to_owned()]), "{told:?}");
        assert_eq!(desk.texts(session(1)), ["Why?", "Half.", "(cancelled)"]);
        fs::remove_file(world.path("running")).unwrap();
    }
}

#[test]
fn a_closed_pane_is_silent_and_its_turn_continues() {
    let world = World::new(WAITING_CLAUDE);
    let desk = world.desk();
    desk.send("Why?");
    until("the agent runs", || world.path("running").exists().then_some(()));
    desk.desk.perform(Request::Close { pane: PANE });
    world.release();
    let is_of_pane = |news: &String| news.contains("PaneId(1)");
    while desk.news.try_recv().is_ok() {}
    until("it is stored", || (desk.texts(session(1)).len() == 4).then_some(()));
    assert_eq!(desk.rest().into_iter().filter(is_of_pane).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(desk.texts(session(1)), ["Why?", "Half.", "Whole.", "(done)"]);
}

#[test]
fn turns_of_two_panes_run_at_once() {
    let world = World::new(WAITING_CLAUDE);
    let desk = world.desk();
    for pane in [PaneId(1), PaneId(2)] {
        desk.desk.perform(Request::Send { pane, prompt: "Why?".into(), agent: None, model: None });
    }
    let mut began = Vec::new();
    desk.until("both began", |news| match news {
        News::Turn { pane, news } => {
            if let TurnNews::Began { first: Seq(1), .. } = *news {
                began.push(pane);
            }
            (began.len() == 2).then_some(())
        }
        _ => None,
    });
    world.release();
    let mut over = Vec::new();
    desk.until("both are over", |news| match news {
        News::Turn { pane, news } => {
            over.extend(matches!(*news, TurnNews::Over { error: None, .. }).then_some(pane));
            (over.len() == 2).then_some(())
        }
        _ => None,
    });
    assert_eq!(block_on(desk.workspace.list_sessions()).unwrap().len(), 2);
}

#[test]
fn a_stopped_desk_has_stored_its_turns() {
    let world = World::new(WAITING_CLAUDE);
    let desk = world.desk();
    desk.send("Why?");
    until("the agent runs", || world.path("running").exists().then_some(()));
    let workspace = desk.workspace;
    assert!(desk.desk.stop(super::LIMIT));
    assert_eq!(super::texts(&workspace, session(1)), ["Why?", "Half.", "(cancelled)"]);
    // The last news is the end of the turn.
    let last = desk.news.try_iter().filter_map(|news| match news {
        News::Turn { news, .. } => Some(super::word(&news)),
        _ => None,
    });
    assert_eq!(last.last().as_deref(), Some("over"));
}

#[test]
fn the_output_of_a_fast_agent_comes_in_few_batches_and_in_order() {
    let claude = r#"
[ "$1" = --version ] && echo 2.1.197 && exit
cat > /dev/null
i=0
while [ $i -lt 2000 ]; do
    echo '{"type":"assistant","message":{"id":"m'$i'","role":"assistant","content":[{"type":"text","text":"line '$i'"}]}}'
    i=$((i+1))
done
echo '{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"x"}'"#;
    let world = World::new(claude);
    let desk = world.desk();
    let began = std::time::Instant::now();
    desk.send("Why?");
    let (mut texts, mut batches) = (Vec::new(), 0_u128);
    desk.until_turn("end", |news| {
        if let TurnNews::Output(outputs) = &news {
            batches += 1;
            texts.extend(said(outputs));
        }
        matches!(news, TurnNews::Over { error: None, .. }).then_some(())
    });
    assert_eq!(texts, (0..2000).map(|n| format!("line {n}")).collect::<Vec<_>>());
    let most = 10 + began.elapsed().as_millis() / 33;
    assert!(batches <= most, "{batches} batches, allowed are {most}");
}
