//! Tests of the box as a whole.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::{Buffer, CellWidth};
use ratatui::layout::{Position, Rect};

use super::text::STEPS;
use super::*;
use crate::keys::Action;
use crate::theme::Theme;

mod editing;
mod model;
mod pasting;
mod recalling;
mod screens;

const THEME: Theme = Theme { has_colours: true, background: None, is_ascii: false };

/// A box with its history, as a state has them.
#[derive(Default)]
struct Fixture {
    prompt: PromptBox,
    history: History,
}

impl Fixture {
    fn with_history(entries: &[&str]) -> Self {
        let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        Self { prompt: PromptBox::new(), history: History::from_kept(&entries) }
    }

    fn typed(text: &str) -> Self {
        let mut fixture = Self::default();
        fixture.type_text(text);
        fixture
    }

    fn type_text(&mut self, text: &str) {
        for c in text.chars() {
            self.prompt.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE), &self.history);
        }
    }

    fn key(&mut self, code: KeyCode) -> PromptOutcome {
        self.key_with(code, KeyModifiers::NONE)
    }

    fn key_with(&mut self, code: KeyCode, modifiers: KeyModifiers) -> PromptOutcome {
        self.prompt.key(KeyEvent::new(code, modifiers), &self.history)
    }

    fn act(&mut self, action: Action) -> PromptOutcome {
        self.prompt.act(action, &self.history)
    }

    fn acts(&mut self, actions: &[Action]) {
        for action in actions {
            self.act(*action);
        }
    }

    fn text(&self) -> String {
        self.prompt.text()
    }

    /// Draws the box alone. Returns the rows, and the cursor as (column, row).
    fn drawn(&self, width: u16, most: u16) -> (Vec<String>, (u16, u16)) {
        let height = self.prompt.height(width, most);
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        let Position { x, y } = self.prompt.draw(area, &mut buffer, &THEME).expect("the area is not empty");
        (rows(&buffer), (x, y))
    }
}

/// Returns the rows without the cells that wide characters cover.
fn rows(buffer: &Buffer) -> Vec<String> {
    let row = |y| {
        let (mut x, mut row) = (buffer.area.left(), String::new());
        while x < buffer.area.right() {
            let symbol = buffer[(x, y)].symbol();
            row.push_str(symbol);
            x += symbol.cell_width().max(1);
        }
        row.trim_end().to_owned()
    };
    (buffer.area.top()..buffer.area.bottom()).map(row).collect()
}

/// Returns the units of text that were looked at.
fn steps(mut work: impl FnMut()) -> usize {
    STEPS.set(0);
    work();
    STEPS.get()
}
