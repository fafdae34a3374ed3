//! Feeds messages into the interface and reads its screen.

use std::fmt::Write;

use azureal::desk::{News, Request};
use azureal_tui::keys::{Key, Keys};
use azureal_tui::theme::Theme;
use azureal_tui::{Effect, Message, Settings, State, draw, prepare, update};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Position;
use ratatui::style::{Color, Modifier};

/// The time at which every test begins: 2026-11-16T14:02:42Z.
pub(crate) const START_MS: u64 = 1_794_837_762_000;
/// The time between two keys: nobody types so fast that it looks like a paste.
const BETWEEN_KEYS_MS: u64 = 150;

/// The sizes that every screen is drawn at.
pub(crate) const SIZES: [(u16, u16); 3] = [(120, 40), (80, 24), (40, 12)];

/// Colours and marks.
pub(crate) const COLOURS: Theme = Theme { has_colours: true, background: None, is_ascii: false };
/// `NO_COLOR`.
pub(crate) const NO_COLOURS: Theme = Theme { has_colours: false, background: None, is_ascii: false };
/// `[ui] ascii`.
pub(crate) const ASCII: Theme = Theme { has_colours: true, background: None, is_ascii: true };

/// An interface without a terminal and without a desk.
pub(crate) struct Screen {
    pub(crate) state: State,
    pub(crate) now_ms: u64,
    pub(crate) size: (u16, u16),
    /// The requests since they were last taken.
    pub(crate) requests: Vec<Request>,
    pub(crate) effects: Vec<Effect>,
}

impl Screen {
    pub(crate) fn new(size: (u16, u16), theme: Theme) -> Self {
        Self::with(size, theme, settings(), Keys::default())
    }

    pub(crate) fn with(size: (u16, u16), theme: Theme, settings: Settings, keys: Keys) -> Self {
        let mut state = State::new(settings, theme, keys, size, START_MS);
        let requests = state.start(None);
        Self { state, now_ms: START_MS, size, requests, effects: Vec::new() }
    }

    pub(crate) fn message(&mut self, message: Message) -> &mut Self {
        if let Message::Resize(width, height) = message {
            self.size = (width, height);
        }
        self.requests.extend(update(&mut self.state, message, self.now_ms));
        self.effects.extend(self.state.take_effects());
        self
    }

    pub(crate) fn news(&mut self, news: News) -> &mut Self {
        self.message(Message::News(news))
    }

    /// Lets time pass, with the ticks that the interface asks for.
    pub(crate) fn wait(&mut self, ms: u64) -> &mut Self {
        let end = self.now_ms + ms;
        while let Some(tick) = self.state.next_tick().filter(|tick| *tick <= end) {
            self.now_ms = tick.max(self.now_ms + 1);
            self.message(Message::Tick);
        }
        self.now_ms = end;
        self
    }

    /// Presses keys by their names, separated by spaces. Words in quotes are typed: `f3 / 'login' enter`.
    pub(crate) fn keys(&mut self, script: &str) -> &mut Self {
        let mut rest = script.trim_start();
        while !rest.is_empty() {
            if let Some(quoted) = rest.strip_prefix('\'') {
                let (text, after) = quoted.split_once('\'').expect("a closing quote");
                self.type_text(text);
                rest = after.trim_start();
            } else {
                let (name, after) = rest.split_once(' ').unwrap_or((rest, ""));
                self.key(name);
                rest = after.trim_start();
            }
        }
        self
    }

    pub(crate) fn type_text(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            self.press(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
        }
        self
    }

    pub(crate) fn key(&mut self, name: &str) -> &mut Self {
        let key: Key = name.parse().unwrap_or_else(|problem| panic!("{problem}"));
        self.press(key.event())
    }

    fn press(&mut self, event: KeyEvent) -> &mut Self {
        self.now_ms += BETWEEN_KEYS_MS;
        self.message(Message::Key(event))
    }

    pub(crate) fn take_requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.requests)
    }

    /// Returns the requests since they were last taken, without those that keep drafts and read events.
    pub(crate) fn asked(&mut self) -> Vec<Request> {
        let mut requests = self.take_requests();
        requests.retain(|request| {
            let is_reading = matches!(
                request,
                Request::ReadBefore { .. }
                    | Request::ReadAfter { .. }
                    | Request::ReadFull { .. }
                    | Request::Highlight { .. }
            );
            !is_reading && !matches!(request, Request::Keep(_))
        });
        requests
    }

    /// Draws the screen. Returns its cells and the place of the cursor.
    pub(crate) fn draw(&mut self) -> (Buffer, Option<Position>) {
        self.requests.extend(prepare(&mut self.state));
        let mut terminal = Terminal::new(TestBackend::new(self.size.0, self.size.1)).unwrap();
        let mut cursor = None;
        terminal
            .draw(|frame| {
                draw(&self.state, frame);
                cursor = cursor_of(frame);
            })
            .unwrap();
        (terminal.backend().buffer().clone(), cursor)
    }

    /// Returns the text of the screen.
    pub(crate) fn text(&mut self) -> String {
        rows(&self.draw().0).join("\n")
    }

    /// Returns the screen with its styles and the place of the cursor.
    pub(crate) fn styled(&mut self) -> String {
        let (buffer, cursor) = self.draw();
        let mut out = rows(&buffer).join("\n");
        out.truncate(out.trim_end().len());
        out.push_str("\n--- styles\n");
        for row in 0..buffer.area.height {
            let runs = style_runs(&buffer, row);
            if !runs.is_empty() {
                writeln!(out, "{row}: {}", runs.join(", ")).unwrap();
            }
        }
        match cursor {
            Some(Position { x, y }) => writeln!(out, "cursor {x},{y}").unwrap(),
            None => writeln!(out, "no cursor").unwrap(),
        }
        out
    }
}

fn cursor_of(frame: &ratatui::Frame<'_>) -> Option<Position> {
    // The only way to read it: the debug form names it.
    let text = format!("{frame:?}");
    let at = text.find("cursor_position: Some(Position { x: ")?;
    let mut numbers =
        text.get(at..)?.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    Some(Position { x: numbers.next()?.parse().ok()?, y: numbers.next()?.parse().ok()? })
}

pub(crate) fn settings() -> Settings {
    Settings {
        project: "api".into(),
        branch: Some("main".into()),
        store: ".azureal/sessions.azs".into(),
        has_motion: false,
        ..Settings::default()
    }
}

/// Returns the rows of a buffer without the spaces at their ends.
pub(crate) fn rows(buffer: &Buffer) -> Vec<String> {
    (0..buffer.area.height)
        .map(|y| {
            let mut row = String::new();
            let mut hidden = 0;
            for x in 0..buffer.area.width {
                let symbol = buffer[(x, y)].symbol();
                if hidden > 0 {
                    hidden -= 1;
                    continue;
                }
                row.push_str(symbol);
                hidden = ratatui::buffer::CellWidth::cell_width(symbol).saturating_sub(1);
            }
            row.truncate(row.trim_end().len());
            row
        })
        .collect()
}

/// Returns the runs of cells that are not plain: `0-8 bold`, `60-62 green bold`.
fn style_runs(buffer: &Buffer, y: u16) -> Vec<String> {
    let mut runs: Vec<(u16, u16, String)> = Vec::new();
    for x in 0..buffer.area.width {
        let style = style_name(buffer, x, y);
        match runs.last_mut() {
            Some((_, end, last)) if *last == style && *end + 1 == x => *end = x,
            _ => runs.push((x, x, style)),
        }
    }
    runs.retain(|(.., style)| !style.is_empty());
    runs.into_iter().map(|(start, end, style)| format!("{start}-{end} {style}")).collect()
}

fn style_name(buffer: &Buffer, x: u16, y: u16) -> String {
    let cell = &buffer[(x, y)];
    let mut names = Vec::new();
    if cell.fg != Color::Reset {
        names.push(format!("{:?}", cell.fg).to_lowercase());
    }
    if cell.bg != Color::Reset {
        names.push(format!("on {:?}", cell.bg).to_lowercase());
    }
    for (modifier, name) in [
        (Modifier::BOLD, "bold"),
        (Modifier::DIM, "dim"),
        (Modifier::ITALIC, "italic"),
        (Modifier::UNDERLINED, "underlined"),
        (Modifier::REVERSED, "reversed"),
        (Modifier::CROSSED_OUT, "struck"),
    ] {
        if cell.modifier.contains(modifier) {
            names.push(name.to_owned());
        }
    }
    names.join(" ")
}
