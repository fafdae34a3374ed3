//! Random keys, sizes and news: no panic, the cursor is inside, and no typed text is lost.

use std::collections::BTreeMap;

use azureal::Error;
use azureal::core::event::Complete;
use azureal::desk::{News, PaneId, Request, TurnNews};
use azureal_tui::{Focus, Message};
use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use proptest::prelude::*;

use crate::harness::{COLOURS, Screen};
use crate::world::*;

/// Keys that delete no text.
const KEYS: [&str; 51] = [
    "enter", "ctrl-t", "esc", "ctrl-c", "alt-up", "up", "down", "tab", "pageup", "pagedown", "f1", "f2",
    "f3", "f5", "ctrl-x", "alt-1", "alt-2", "alt-3", "ctrl-j", "left", "right", "home", "end", "ctrl-l",
    "f9", "g", "G", "j", "k", "i", "n", "f", "r", "d", "/", ":", "?", "y", "[", "]", "{", "}", "z", "space",
    "s", "x", "q", "1", "l", "u", "v",
];
/// Keys that may delete text.
const DELETING: [&str; 10] =
    ["ctrl-u", "ctrl-k", "ctrl-w", "backspace", "delete", "ctrl-y", "ctrl-r", "alt-z", "alt-y", "@"];

#[derive(Debug, Clone)]
enum Step {
    Key(usize),
    Delete(usize),
    /// Types a word that occurs once, if the prompt box takes the keys.
    Word,
    Paste(String),
    Resize(u16, u16),
    Wait(u64),
    Mouse(u8, u16, u16),
    Focus(bool),
    /// News of a turn that runs.
    Turn(u8, u8),
    /// Other news.
    News(u8, u8),
}

fn steps(deletes: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..KEYS.len()).prop_map(Step::Key),
        (if deletes { 3 } else { 0 }) => (0..DELETING.len()).prop_map(Step::Delete),
        5 => Just(Step::Word),
        1 => ".{0,40}".prop_map(Step::Paste),
        2 => (0_u16..160, 0_u16..50).prop_map(|(width, height)| Step::Resize(width, height)),
        2 => (0_u64..3_000).prop_map(Step::Wait),
        1 => (0_u8..6, 0_u16..160, 0_u16..50).prop_map(|(kind, x, y)| Step::Mouse(kind, x, y)),
        1 => any::<bool>().prop_map(Step::Focus),
        6 => (any::<u8>(), 0_u8..8).prop_map(|(pane, kind)| Step::Turn(pane, kind)),
        3 => (any::<u8>(), 0_u8..8).prop_map(|(pane, kind)| Step::News(pane, kind)),
    ];
    prop::collection::vec(step, 1..120)
}

/// A desk without a store: it knows which prompts run, and which are stored.
#[derive(Default)]
struct FakeDesk {
    running: BTreeMap<PaneId, String>,
    stored: Vec<String>,
    /// What was kept last.
    kept: String,
}

impl FakeDesk {
    fn take(&mut self, screen: &mut Screen) {
        for request in screen.take_requests() {
            match request {
                Request::Send { pane, prompt, .. } => {
                    assert!(!self.running.contains_key(&pane), "two turns in one pane");
                    self.running.insert(pane, prompt);
                }
                Request::Keep(kept) => self.kept = format!("{kept:?}"),
                Request::Open { pane, session, .. } => {
                    let number = session.number();
                    if [7, 9, 11, 12, 14].contains(&number) {
                        screen.news(opened(pane, number));
                    }
                }
                Request::Changes { pane, at } => {
                    let changes = Ok(Box::new(file_changes()));
                    screen.news(News::Changes { pane, at, changes });
                }
                Request::PlanUndo { pane, .. } => {
                    screen.news(News::UndoPlanned { pane, question: Box::new(undo_question()) });
                }
                _ => {}
            }
        }
    }

    fn turn(&mut self, screen: &mut Screen, pick: u8, kind: u8) {
        let count = self.running.len().max(1);
        let Some((pane, prompt)) = self.running.iter().nth(usize::from(pick) % count) else { return };
        let (pane, prompt) = (*pane, prompt.clone());
        match kind {
            0 => screen.news(accepted(pane, 12)),
            1 => screen.news(began(pane, &prompt, 121)),
            2 => screen.news(delta(pane, "some *text*\n\n```\ncode")),
            3 => screen.news(turn(pane, TurnNews::Question(question()))),
            4 => screen.news(turn(pane, TurnNews::Compacting { agent: "claude".into() })),
            5 => {
                self.running.remove(&pane);
                let error = Some(Error::new("x", "it did not work"));
                screen.news(turn(pane, TurnNews::Over { is_ours: true, error, unsent: Some(prompt) }))
            }
            kind => {
                self.running.remove(&pane);
                self.stored.push(prompt);
                let complete = Box::new(Complete { success: kind == 6, ..Complete::default() });
                let (first, last) = (None, None);
                screen.news(turn(
                    pane,
                    TurnNews::Stored { session: id(12), first, last, complete, refused: Vec::new() },
                ));
                screen.news(over(pane))
            }
        };
    }

    fn other(&mut self, screen: &mut Screen, pick: u8, kind: u8) {
        let pane = PaneId(u32::from(pick % 4));
        match kind {
            0 => screen.news(sessions()),
            1 => screen.news(News::Sessions(vec![line(12)])),
            2 => screen.news(agents()),
            3 => screen.news(News::Changed { pane }),
            4 => screen.news(News::Notice("something\nhappened".into())),
            5 => screen.news(News::TrustRequired { content: "azufig.toml".into() }),
            6 if !self.running.contains_key(&pane) => screen.news(News::Deleted { pane }),
            _ => screen.news(News::Forked { session: id(9), from: id(12) }),
        };
    }

    fn has(&self, word: &str) -> bool {
        let mut texts = self.running.values().chain(&self.stored).chain([&self.kept]);
        texts.any(|text| without_keys(text).contains(word))
    }
}

/// Returns a word of letters that are no keys.
fn word(mut number: usize) -> String {
    let mut word = "w".to_owned();
    loop {
        word.push(['a', 'b', 'c', 'e', 'h'][number % 5]);
        number /= 5;
        if number == 0 {
            word.push('w');
            return word;
        }
    }
}

/// Returns a text without the characters that single keys type, which may be inside a word, and without line breaks.
fn without_keys(text: &str) -> String {
    text.chars().filter(|c| !" \n\\".contains(*c) && !KEYS.contains(&c.to_string().as_str())).collect()
}

fn mouse(kind: u8, column: u16, row: u16) -> Message {
    let kind = match kind {
        0 => MouseEventKind::ScrollUp,
        1 => MouseEventKind::ScrollDown,
        2 => MouseEventKind::Down(MouseButton::Left),
        3 => MouseEventKind::Up(MouseButton::Left),
        4 => MouseEventKind::Down(MouseButton::Right),
        _ => MouseEventKind::Moved,
    };
    Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
}

/// Plays steps. Returns the words that were typed into prompt boxes, and the desk.
fn play(steps: Vec<Step>) -> (Vec<String>, FakeDesk) {
    let mut screen = Screen::new((80, 24), COLOURS);
    let mut desk = FakeDesk::default();
    let mut words = Vec::new();
    screen.news(agents()).news(sessions());
    for step in steps {
        match step {
            Step::Key(index) => {
                screen.key(KEYS[index]);
            }
            Step::Delete(index) => {
                screen.key(DELETING[index]);
            }
            Step::Word if screen.state.focus() == Some(Focus::Prompt) => {
                let word = word(words.len());
                // Not inside another word.
                screen.key("end").type_text(&word);
                words.push(word);
            }
            Step::Paste(text) if screen.state.focus() == Some(Focus::Prompt) => {
                screen.key("end").message(Message::Paste(text));
            }
            Step::Word | Step::Paste(_) => {}
            Step::Resize(width, height) => {
                screen.message(Message::Resize(width, height));
            }
            Step::Wait(ms) => {
                screen.wait(ms);
            }
            Step::Mouse(kind, x, y) => {
                screen.message(mouse(kind, x, y));
            }
            Step::Focus(has_focus) => {
                screen.message(Message::Focus(has_focus));
            }
            Step::Turn(pane, kind) => desk.turn(&mut screen, pane, kind),
            Step::News(pane, kind) => desk.other(&mut screen, pane, kind),
        }
        desk.take(&mut screen);
        let (buffer, cursor) = screen.draw();
        if let Some(cursor) = cursor {
            assert!(buffer.area.contains(cursor), "{cursor:?} in {:?}", buffer.area);
        }
        desk.take(&mut screen);
    }
    screen.wait(2_000);
    desk.take(&mut screen);
    (words, desk)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_keys_sizes_and_news_never_panic(steps in steps(true)) {
        play(steps);
    }

    #[test]
    fn typed_text_is_sent_or_kept(steps in steps(false)) {
        let (words, desk) = play(steps);
        for word in words {
            prop_assert!(desk.has(&word), "{word} is lost; kept: {}", desk.kept);
        }
    }
}
