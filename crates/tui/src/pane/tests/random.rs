//! Random actions, sizes, pages and live events.

use std::collections::HashSet;

use azureal::transcript::{Author, Block, CallState, Content};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::pane::act::is_prompt;
use crate::pane::blocks::{PROMPT, STATUS};
use crate::pane::rows::Folds;
use crate::pane::view::{Place, ViewRow};
use crate::pane::window::{MOST_BYTES, MOST_EVENTS};

/// Something that happens to a pane.
#[derive(Debug, Clone)]
enum Step {
    Act(Action),
    Click(u16),
    Search(&'static str),
    Resize(u16, u16),
    Hide,
    Show,
    /// Another process stores events.
    Append(u8),
    Send,
    Begin,
    Output(u8),
    Delta(&'static str),
    Notice,
    Store,
    StoreDifferently,
    Over,
    Change,
}

const ACTIONS: [Action; 20] = [
    Action::RowUp,
    Action::RowDown,
    Action::HalfUp,
    Action::HalfDown,
    Action::PageUp,
    Action::PageUp,
    Action::PageUp,
    Action::PageDown,
    Action::Top,
    Action::Bottom,
    Action::PromptBefore,
    Action::PromptAfter,
    Action::Fold,
    Action::FoldAll,
    Action::FindNext,
    Action::FindPrevious,
    Action::CopyBlock,
    Action::CopyTurn,
    Action::CopyCode,
    Action::ForkHere,
];

const DELTAS: [&str; 6] =
    ["word ", "\n\n", "```rust\nlet x = 1;\n", "```\n", "| a | b |\n|---|---|\n| 日本 | 2 |\n", "- *item*\n"];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => select(ACTIONS.to_vec()).prop_map(Step::Act),
        2 => (0_u16..50).prop_map(Step::Click),
        1 => select(vec!["word", "event 7", "日本", ""]).prop_map(Step::Search),
        2 => (0_u16..130, 0_u16..45).prop_map(|(width, height)| Step::Resize(width, height)),
        1 => Just(Step::Hide),
        2 => Just(Step::Show),
        3 => (1_u8..80).prop_map(Step::Append),
        2 => Just(Step::Send),
        3 => Just(Step::Begin),
        6 => (0_u8..20).prop_map(Step::Output),
        6 => select(DELTAS.to_vec()).prop_map(Step::Delta),
        1 => Just(Step::Notice),
        2 => Just(Step::Store),
        1 => Just(Step::StoreDifferently),
        1 => Just(Step::Over),
        1 => Just(Step::Change),
    ]
}

fn event_of(seq: u64) -> Event {
    match seq % 11 {
        1 => Event::user(format!("Prompt of event {seq}\nwith a second line, 日本語 and 👩‍👩‍👧 in it")),
        2 => init(),
        3 => Event::Reasoning(azureal::core::event::Reasoning {
            text: "Thinking.\n\nMore.".into(),
            subagent: None,
        }),
        4 => Event::assistant(format!(
            "Event {seq}: {}",
            "words that are wrapped ".repeat((seq % 40) as usize)
        )),
        5 => call(&format!("t{seq}"), "Bash", r#"{"command":"cargo test"}"#),
        6 => Event::assistant(
            "| a | b |\n|---|---|\n| 1 | 2 |\n\n```rust\nfn main() {}\n```\n\n1. one\n2. two\n".to_owned(),
        ),
        7 => result(&format!("t{}", seq - 2), "Bash", &"line\n".repeat((seq % 30) as usize)),
        8 => Event::error("k", "an error\x1b[2J with control characters"),
        9 => call(
            &format!("e{seq}"),
            "Edit",
            r#"{"file_path":"/p/a","old_string":"a\nb","new_string":"a\nc"}"#,
        ),
        10 => result(&format!("e{}", seq - 1), "Edit", "ok"),
        _ => complete(),
    }
}

/// Returns whether a block is a command in a turn whose end is not there yet. At the end, some output of the last one is shown.
fn is_open_command(pane: &Pane, index: usize) -> bool {
    let is_command = |block: &Block| matches!(&block.content, Content::Call(call) if call.tool == "Bash");
    // Events of another process may come before a prompt that is no event yet.
    let ends =
        |block: &Block| matches!(block.content, Content::End(_)) || is_prompt(block) && block.seq != PROMPT.0;
    pane.blocks.get(index).is_some_and(is_command)
        && !(index + 1..pane.blocks.len()).any(|after| pane.blocks.get(after).is_some_and(ends))
}

/// Returns the screen of a reader, if no block on it is expected to change.
fn reading(desk: &mut Desk) -> Option<Vec<String>> {
    desk.frame();
    let pane = &desk.pane;
    let is_stable = |index| {
        pane.blocks.get(index).is_some_and(|block| match &block.content {
            // A result may come after the end of the turn.
            Content::Call(call) => {
                call.state != CallState::NoResult && block.is_stable() && !is_open_command(pane, index)
            }
            // A notice of a turn that is not stored goes below the next turn.
            Content::Notice(..) => block.seq.0 <= desk.stored,
            _ => block.is_stable(),
        })
    };
    let is_read = pane.place != Place::End
        && !pane.view.is_empty()
        && pane.view.iter().all(|row| row.key != STATUS && row.key != PROMPT && is_stable(row.index));
    // The blank row after a block belongs to what comes below.
    let is_last_blank = |row: &ViewRow| pane.cache.rows(row.key).get(row.row).is_none();
    let rows = pane.view.len() - usize::from(pane.view.last().is_some_and(is_last_blank));
    is_read.then(|| desk.screen()[..rows].to_vec())
}

/// Returns the folds that the user has chosen.
fn chosen(folds: &Folds) -> Folds {
    let mut folds = folds.clone();
    folds.set_last_commands(HashSet::new());
    folds
}

struct Play {
    desk: Desk,
    /// The first event of the running turn, and the number of its events.
    turn: Option<(u64, u64)>,
}

impl Play {
    fn began(&mut self) {
        if self.turn.is_none() {
            let first = self.desk.stored + 1;
            self.turn = Some((first, 1));
            let prompt = Some("Go".to_owned());
            self.desk.turn(TurnNews::Began { prompt, first: Seq(first), since_ms: 1, is_ours: true });
        }
    }

    fn store(&mut self, more: u64) {
        let Some((first, count)) = self.turn.take() else { return };
        let last = first + count + more;
        self.desk.stored = last;
        let complete = Box::new(Complete::default());
        let (first, last) = (Some(Seq(first)), Some(Seq(last)));
        self.desk.turn(TurnNews::Stored { session: session(), first, last, complete, refused: Vec::new() });
    }

    fn play(&mut self, step: &Step) {
        let desk = &mut self.desk;
        match step {
            Step::Act(action) => {
                let requests = desk.pane.act(*action).requests;
                let is_jump = !requests.is_empty();
                desk.perform(requests);
                let requests = desk.pane.prepare();
                let is_full = desk.pane.view.len() == usize::from(desk.pane.height);
                let is_known = desk.pane.view.iter().all(|row| {
                    desk.pane.blocks.get(row.index).is_some_and(|block| match &block.content {
                        // Its result or the call itself may be on a page that is read later: then its line has them.
                        Content::Call(call) => {
                            matches!(call.state, CallState::Done | CallState::Failed)
                                && !call.key.is_empty()
                                && !is_open_command(&desk.pane, row.index)
                        }
                        // So may be the name of the agent.
                        Content::Text(text) => {
                            !text.has_heading || text.agent.is_some() || text.author == Author::User
                        }
                        _ => true,
                    })
                });
                let screen = (0..desk.pane.height).map(|y| line(&desk.buffer(), y)).collect::<Vec<_>>();
                desk.perform(requests);
                desk.frame();
                if is_full && is_known && !is_jump && !desk.pane.view.is_empty() {
                    assert_eq!(desk.screen(), screen, "pages that are read later move nothing");
                }
            }
            Step::Click(row) => {
                desk.pane.click(*row, 3);
            }
            Step::Search(text) => desk.search(text),
            Step::Resize(width, height) => desk.resize(*width, *height),
            Step::Hide => desk.pane.set_shown(false),
            Step::Show => desk.pane.set_shown(true),
            Step::Append(count) => {
                // Not while a turn runs: it has the lease.
                if self.turn.is_none() {
                    desk.stored += u64::from(*count);
                    let first = desk.stored + 1 - u64::from(*count);
                    desk.tell_of(first);
                }
            }
            Step::Send => {
                if self.turn.is_none() {
                    desk.pane.sent("Go");
                }
            }
            Step::Begin => self.began(),
            Step::Output(n) => {
                self.began();
                if let Some((first, count)) = &mut self.turn {
                    *count += 1;
                    let event = event_of(*first + *count + u64::from(*n));
                    self.desk.outputs(vec![AgentOutput::Event(event)]);
                }
            }
            Step::Delta(text) => {
                self.began();
                self.desk.outputs(vec![AgentOutput::Delta((*text).to_owned())]);
            }
            Step::Notice => desk.turn(TurnNews::Notice("a notice".into())),
            Step::Store => self.store(0),
            Step::StoreDifferently => self.store(3),
            Step::Over => {
                self.turn = None;
                desk.turn(TurnNews::Over { is_ours: true, error: None, unsent: None });
            }
            Step::Change => {
                let requests = desk.pane.news(&News::Changed { pane: PaneId(1) });
                desk.perform(requests);
            }
        }
        self.desk.frame();
    }

    fn check(&mut self) {
        let pane = &self.desk.pane;
        assert!(pane.view.len() <= usize::from(pane.height));
        assert!(pane.window.len() <= MOST_EVENTS && pane.window.bytes() <= MOST_BYTES);
        for row in &pane.view {
            assert_eq!(pane.blocks.key(row.index), Some(row.key));
            assert!(row.row <= pane.cache.rows(row.key).len());
        }
        for pair in pane.view.windows(2) {
            assert!((pair[0].index, pair[0].row) < (pair[1].index, pair[1].row));
        }
        if let Some(cursor) = pane.cursor.filter(|_| !pane.view.is_empty()) {
            assert!(pane.view.iter().any(|row| row.key == cursor.key), "the cursor is on the screen");
        }
        self.desk.screen();
    }
}

/// Other cases in every run. A failure prints its steps; `PROPTEST_RNG_SEED` repeats a run, and `PROPTEST_CASES` makes it longer.
fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn nothing_that_happens_panics_or_moves_a_reader(
        stored in 0_u64..600,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut play = Play { desk: Desk::open_long(stored, event_of, 60, 15), turn: None };
        for step in &steps {
            let before = reading(&mut play.desk);
            let anchor = play.desk.pane.place.clone();
            let folds = play.desk.pane.folds.clone();
            play.play(step);
            play.check();
            match step {
                Step::Append(_) | Step::Output(_) | Step::Delta(_) | Step::Begin => {
                    if let Some(before) = before {
                        // The mark of the cursor may move, the text may not.
                        let rows = |screen: &[String]| screen.iter().map(|row| row.replace('▌', " ")).collect::<Vec<_>>();
                        prop_assert_eq!(rows(&play.desk.screen()[..before.len()]), rows(&before), "{:?}", step);
                    }
                }
                Step::Resize(..) if !play.desk.pane.view.is_empty() => {
                    if let Place::At(now) = &play.desk.pane.place {
                        prop_assert_eq!(&Place::At(*now), &anchor);
                        // A turn that is stored differently may not have the block any more.
                        if play.desk.pane.blocks.is_exact(now.key) {
                            prop_assert_eq!(play.desk.pane.view[0].key, now.key);
                        }
                    }
                }
                Step::Act(action @ (Action::Fold | Action::FoldAll)) => {
                    play.desk.act(*action);
                    prop_assert_eq!(chosen(&play.desk.pane.folds), chosen(&folds));
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_resize_there_and_back_changes_nothing(
        stored in 100_u64..300,
        actions in proptest::collection::vec(select(ACTIONS[..14].to_vec()), 1..12),
        width in 20_u16..130,
    ) {
        let mut desk = Desk::open_long(stored, event_of, 60, 15);
        desk.acts(&actions);
        // The cursor goes with the screen.
        desk.pane.set_reading(false);
        if desk.pane.place != Place::End {
            let before = desk.screen();
            desk.resize(width, 15);
            if desk.pane.place != Place::End {
                desk.resize(60, 15);
                prop_assert_eq!(desk.screen(), before);
            }
        }
    }

    #[test]
    fn a_fold_there_and_back_changes_nothing(
        stored in 200_u64..300,
        actions in proptest::collection::vec(select(ACTIONS[..12].to_vec()), 4..12),
        action in select(vec![Action::Fold, Action::FoldAll]),
    ) {
        let mut desk = Desk::open_long(stored, event_of, 60, 15);
        desk.acts(&actions);
        desk.act(action);
        desk.act(action);
        // From here on, the block at the cursor begins on the screen.
        let before = desk.screen();
        desk.act(action);
        let was_at_end = desk.pane.place == Place::End;
        desk.act(action);
        if !was_at_end {
            prop_assert_eq!(desk.screen(), before);
        }
    }
}
