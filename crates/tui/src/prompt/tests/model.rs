//! Random keys, pastes, sizes and history: the text is that of a simple editor, nothing is lost, and the cursor is inside.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use unicode_segmentation::UnicodeSegmentation;

use super::*;

/// A step of the editor that the reference knows.
#[derive(Debug, Clone)]
enum Edit {
    Type(char),
    Paste(String),
    Large(usize),
    Left,
    Right,
    Home,
    End,
    Backspace,
    Delete,
    ToEnd,
    ToStart,
}

/// Characters that join others, are wide, have no width, act on terminals, or mean something to the box.
const ODD: &[char] = &[
    'a', 'B', ' ', '\n', '\t', '\r', '\\', '"', '@', '/', '日', 'é', '\u{301}', '\u{200d}', '👩', '👧', '🇩',
    '🇪', '\u{1b}', '\u{202e}', '\u{fffc}', '\u{ff9e}', 'ᄒ', 'ᅡ', '\u{0}', '\u{7f}', '\u{200b}', 'क', '्', 'ष',
];

fn odd_text() -> impl Strategy<Value = String> {
    vec(prop::sample::select(ODD), 0..12).prop_map(|chars| chars.into_iter().collect())
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        6 => prop::sample::select(ODD).prop_map(Edit::Type),
        2 => odd_text().prop_map(Edit::Paste),
        1 => (11_usize..40).prop_map(Edit::Large),
        2 => Just(Edit::Left),
        2 => Just(Edit::Right),
        1 => Just(Edit::Home),
        1 => Just(Edit::End),
        2 => Just(Edit::Backspace),
        1 => Just(Edit::Delete),
        1 => Just(Edit::ToEnd),
        1 => Just(Edit::ToStart),
    ]
}

/// A text with a cursor, without any cleverness. A large paste is a character of its own.
#[derive(Default)]
struct Reference {
    text: String,
    cursor: usize,
    pastes: Vec<String>,
}

/// The character of the first paste: one of the private ones that nobody types here.
const FIRST: u32 = 0xE000;

impl Reference {
    fn paste_of(&self, c: char) -> Option<&String> {
        let index = u32::from(c).checked_sub(FIRST)?;
        self.pastes.get(index as usize)
    }

    fn boundaries(&self) -> BTreeSet<usize> {
        let mut found = BTreeSet::from([0, self.text.len()]);
        let mut start = 0;
        for (at, c) in self.text.char_indices() {
            if self.paste_of(c).is_some() {
                found.extend(self.text[start..at].grapheme_indices(true).map(|(offset, _)| start + offset));
                found.insert(at);
                start = at + c.len_utf8();
            }
        }
        found.extend(self.text[start..].grapheme_indices(true).map(|(offset, _)| start + offset));
        found
    }

    fn left(&self) -> usize {
        self.boundaries().range(..self.cursor).next_back().copied().unwrap_or(0)
    }

    fn right(&self) -> usize {
        self.boundaries().range(self.cursor + 1..).next().copied().unwrap_or(self.cursor)
    }

    fn home(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    fn replace(&mut self, start: usize, end: usize, with: &str) {
        self.text.replace_range(start..end, with);
        let cursor = start + with.len();
        self.cursor = self.boundaries().range(cursor..).next().copied().unwrap_or(cursor);
    }

    fn apply(&mut self, edit: &Edit) {
        let cursor = self.cursor;
        match edit {
            Edit::Type('\r') => self.replace(cursor, cursor, "\n"),
            Edit::Type(c) => self.replace(cursor, cursor, &c.to_string()),
            Edit::Paste(text) => {
                let text = text.replace("\r\n", "\n").replace('\r', "\n");
                self.replace(cursor, cursor, &text);
            }
            Edit::Large(lines) => {
                let c = char::from_u32(FIRST + self.pastes.len() as u32).unwrap();
                self.pastes.push(large(*lines));
                self.replace(cursor, cursor, &c.to_string());
            }
            Edit::Left => self.cursor = self.left(),
            Edit::Right => self.cursor = self.right(),
            Edit::Home => self.cursor = self.home(),
            Edit::End => self.cursor = self.end(),
            Edit::Backspace => self.replace(self.left(), cursor, ""),
            Edit::Delete => self.replace(cursor, self.right(), ""),
            Edit::ToEnd if self.end() == cursor => self.replace(cursor, self.right(), ""),
            Edit::ToEnd => self.replace(cursor, self.end(), ""),
            Edit::ToStart if self.home() == cursor => self.replace(self.left(), cursor, ""),
            Edit::ToStart => self.replace(self.home(), cursor, ""),
        }
    }

    fn expanded(&self, range: Range<usize>) -> String {
        let chars = self.text[range].chars();
        chars.map(|c| self.paste_of(c).cloned().unwrap_or_else(|| c.to_string())).collect()
    }
}

fn large(lines: usize) -> String {
    "é\u{1b}x\n".repeat(lines)
}

fn apply(fixture: &mut Fixture, edit: &Edit) {
    match edit {
        Edit::Type(c) => drop(fixture.prompt.insert(*c)),
        Edit::Paste(text) => drop(fixture.prompt.paste(text)),
        Edit::Large(lines) => drop(fixture.prompt.paste(&large(*lines))),
        Edit::Left => drop(fixture.key(KeyCode::Left)),
        Edit::Right => drop(fixture.key(KeyCode::Right)),
        Edit::Home => drop(fixture.key(KeyCode::Home)),
        Edit::End => drop(fixture.act(Action::LineEnd)),
        Edit::Backspace => drop(fixture.key(KeyCode::Backspace)),
        Edit::Delete => drop(fixture.key(KeyCode::Delete)),
        Edit::ToEnd => drop(fixture.act(Action::DeleteToEnd)),
        Edit::ToStart => drop(fixture.act(Action::DeleteToStart)),
    }
}

/// Draws everything, and checks that the cursor is inside and that no cell has a character that a terminal acts on.
fn check_drawing(fixture: &Fixture, waiting: &Waiting, (width, most): (u16, u16)) {
    let height = fixture.prompt.height(width, most);
    assert!((1..=most).contains(&height));
    let mut buffer = Buffer::empty(Rect::new(0, 0, width + 2, height + 12));
    let area = Rect::new(1, 11, width, height);
    let cursor = fixture.prompt.draw(area, &mut buffer, &THEME).unwrap();
    assert!(area.contains(cursor), "{cursor} is not in {area}");
    fixture.prompt.draw_popup(Rect::new(1, 0, width, 8), &mut buffer, &THEME);
    waiting.draw(Rect::new(1, 8, width, 3), "Alt-↑ edit", &mut buffer, &THEME);
    let cells = buffer.content();
    assert!(cells.iter().all(|cell| azureal::visible_line(cell.symbol()) == cell.symbol()));
    let margin = (0..buffer.area.height).flat_map(|y| [(0, y), (width + 1, y)]);
    assert!(margin.into_iter().all(|at| buffer[at].symbol() == " "), "drawn outside: {:?}", rows(&buffer));
}

proptest! {
    #[test]
    fn the_text_and_the_cursor_are_those_of_a_simple_editor(edits in vec(edit(), 1..60)) {
        let (mut fixture, mut reference) = (Fixture::default(), Reference::default());
        for edit in &edits {
            apply(&mut fixture, edit);
            reference.apply(edit);
            prop_assert_eq!(fixture.text(), reference.expanded(0..reference.text.len()), "{:?}", edit);
            let editor = &fixture.prompt.editor;
            let before = editor.text().slice(0..editor.cursor()).expanded();
            prop_assert_eq!(before, reference.expanded(0..reference.cursor), "the cursor after {:?}", edit);
            prop_assert_eq!(editor.text().expanded_len(), fixture.text().len());
        }
        let end = fixture.text();
        while fixture.prompt.editor.undo() {}
        prop_assert_eq!(fixture.text(), "");
        while fixture.prompt.editor.redo() {}
        prop_assert_eq!(fixture.text(), end);
    }

    #[test]
    fn moving_by_rows_ends_at_the_first_and_last_row(text in vec(odd_text(), 0..12), width in 1_u16..40) {
        let mut fixture = Fixture::default();
        fixture.prompt.set_text(&text.concat());
        let text = fixture.text();
        fixture.drawn(width, 9);
        let count = fixture.prompt.layout(usize::MAX).rows().len();
        let mut up = 0;
        while fixture.act(Action::Up) != PromptOutcome::Ignored {
            up += 1;
        }
        prop_assert_eq!(up, count - 1);
        let mut down = 0;
        while fixture.act(Action::Down) != PromptOutcome::Ignored {
            down += 1;
        }
        prop_assert_eq!(down, count - 1);
        prop_assert_eq!(fixture.text(), text);
    }
}

/// A step of a user of the whole box. Each typed or pasted text has a character that no other has, so that it can be looked for.
#[derive(Debug, Clone)]
enum Step {
    Type,
    Odd(char),
    Paste { is_large: bool },
    Edit(Edit),
    Act(Action),
    Key(KeyCode),
    Tick(u64),
    Paths(Vec<String>),
    Clear,
    Stage,
    Queue,
    EditWaiting,
    GoesOut,
    Resize(u16, u16),
}

fn step() -> impl Strategy<Value = Step> {
    let actions = [
        Action::Newline,
        Action::WordLeft,
        Action::WordRight,
        Action::DeleteWord,
        Action::PutBack,
        Action::Undo,
        Action::Redo,
        Action::Up,
        Action::Down,
        Action::HistorySearch,
        Action::CompletePath,
    ];
    prop_oneof![
        6 => Just(Step::Type),
        2 => prop::sample::select(ODD).prop_map(Step::Odd),
        2 => any::<bool>().prop_map(|is_large| Step::Paste { is_large }),
        3 => edit().prop_filter_map("motions and deletions", |edit| match edit {
            Edit::Type(_) | Edit::Paste(_) | Edit::Large(_) => None,
            edit => Some(Step::Edit(edit)),
        }),
        8 => prop::sample::select(actions.to_vec()).prop_map(Step::Act),
        2 => prop::sample::select(vec![KeyCode::Enter, KeyCode::Esc, KeyCode::Tab]).prop_map(Step::Key),
        1 => (0_u64..30).prop_map(Step::Tick),
        1 => vec(odd_text(), 0..12).prop_map(Step::Paths),
        1 => Just(Step::Clear),
        1 => Just(Step::Stage),
        1 => Just(Step::Queue),
        1 => Just(Step::EditWaiting),
        1 => Just(Step::GoesOut),
        1 => (1_u16..50, 1_u16..6).prop_map(|(width, most)| Step::Resize(width, most)),
    ]
}

/// A user, with everything that has text of theirs.
#[derive(Default)]
struct User {
    fixture: Fixture,
    waiting: Waiting,
    sent: Vec<String>,
    now_ms: u64,
    typed: u32,
    prefix: String,
}

impl User {
    /// Returns a character that was not typed before.
    fn next_char(&mut self) -> char {
        self.typed += 1;
        char::from_u32(0x4E00 + self.typed).unwrap()
    }

    fn texts(&self) -> String {
        let mut texts = self.fixture.history.kept();
        texts.push(self.fixture.text());
        texts.extend(self.fixture.prompt.parked.values().map(|editor| editor.text().expanded()));
        texts.extend(self.waiting.kept());
        texts.extend(self.sent.iter().cloned());
        texts.join("\n")
    }

    /// Returns the typed characters that are in any of the texts.
    fn marks(&self) -> BTreeSet<char> {
        self.texts().chars().filter(|c| ('\u{4E01}'..='\u{5E00}').contains(c)).collect()
    }

    /// Does a step. Returns the typed characters that must be somewhere after it.
    fn step(&mut self, step: &Step) -> BTreeSet<char> {
        let mut expected = self.marks();
        let is_searching = self.fixture.prompt.layer() == Layer::Search;
        let before = self.fixture.text();
        match step {
            Step::Type => {
                let c = self.next_char();
                if !is_searching {
                    expected.insert(c);
                }
                self.fixture.prompt.tick(self.now_ms);
                let outcome = self.fixture.key(KeyCode::Char(c));
                self.take(outcome);
            }
            Step::Odd(c) => {
                let outcome = self.fixture.prompt.insert(*c);
                self.take(outcome);
            }
            Step::Paste { is_large } => {
                let c = self.next_char();
                if !is_searching || *is_large {
                    expected.insert(c);
                }
                let text = if *is_large { format!("{c}\n").repeat(20) } else { c.to_string() };
                self.fixture.prompt.paste(&text);
            }
            Step::Edit(edit) => {
                apply(&mut self.fixture, edit);
                self.undo_returns_to(&before, is_searching, &mut expected);
            }
            Step::Act(action) => {
                let outcome = self.fixture.act(*action);
                self.take(outcome);
                if matches!(action, Action::DeleteWord | Action::Undo | Action::Redo) {
                    self.undo_returns_to(&before, is_searching, &mut expected);
                }
            }
            Step::Key(key) => {
                let outcome = self.fixture.key(*key);
                self.take(outcome);
            }
            Step::Tick(ms) => {
                self.now_ms += ms;
                let outcome = self.fixture.prompt.tick(self.now_ms);
                self.take(outcome);
            }
            Step::Paths(paths) => {
                let prefix = self.prefix.clone();
                let paths = paths.iter().map(|path| format!("{prefix}{path}")).collect();
                self.fixture.prompt.paths(&prefix, paths);
            }
            Step::Clear => drop(self.fixture.prompt.clear_into(&mut self.fixture.history)),
            Step::Stage => {
                let text = self.fixture.prompt.take(&mut self.fixture.history);
                self.waiting.stage(text);
            }
            Step::Queue => {
                let text = self.fixture.prompt.take(&mut self.fixture.history);
                self.waiting.queue(text);
            }
            Step::EditWaiting => {
                self.waiting.edit_last(&mut self.fixture.prompt, &mut self.fixture.history);
            }
            Step::GoesOut => self.sent.extend(self.waiting.take_next()),
            Step::Resize(..) => {}
        }
        expected
    }

    fn take(&mut self, outcome: PromptOutcome) {
        match outcome {
            PromptOutcome::Send | PromptOutcome::Queue => {
                self.sent.push(self.fixture.prompt.take(&mut self.fixture.history));
            }
            PromptOutcome::Complete { prefix } => self.prefix = prefix,
            _ => {}
        }
    }

    /// A step that removes text on purpose can be undone, or redone.
    fn undo_returns_to(&self, before: &str, was_searching: bool, expected: &mut BTreeSet<char>) {
        let after = self.fixture.text();
        if was_searching {
            // The step is on the entry that it takes.
            *expected = self.marks();
        }
        if was_searching || after == before {
            return;
        }
        let is_before = |editor: &Editor| editor.text().expanded() == before;
        let (mut undone, mut redone) =
            (self.fixture.prompt.editor.clone(), self.fixture.prompt.editor.clone());
        let can_return = (undone.undo() && is_before(&undone)) || (redone.redo() && is_before(&redone));
        // Of several deletions, one undo brings all back; then the text before is one of its parts.
        let has_all = before
            .chars()
            .all(|c| undone.text().expanded().contains(c) || redone.text().expanded().contains(c));
        assert!(can_return || has_all, "{before:?} became {after:?} for good");
        *expected = self.marks();
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_and_the_cursor_is_inside(steps in vec(step(), 1..80)) {
        let mut user = User::default();
        let mut size = (30, 4);
        for step in &steps {
            if let Step::Resize(width, most) = step {
                size = (*width, *most);
            }
            let expected = user.step(step);
            let there = user.marks();
            prop_assert!(expected.is_subset(&there), "{:?} lost {:?}", step, expected.difference(&there));
            check_drawing(&user.fixture, &user.waiting, size);
        }
    }
}
