//! Colours and marks.

use azureal::transcript::{Change, Style as TextStyle, Tone};
use ratatui::style::{Color, Modifier, Style};

/// The colours and marks of the interface.
///
/// Colours are those of the terminal, so that they fit its background. Bright black, faint, black, white and blue carry no meaning: on some
/// backgrounds they cannot be read. A state has a mark and a word too, never only a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// Whether colours are used.
    pub has_colours: bool,
    /// The background of the terminal, if it is known: then lines of a diff get one of their own.
    pub background: Option<Background>,
    /// Whether marks are ASCII.
    pub is_ascii: bool,
}

/// The background of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    /// Dark.
    Dark,
    /// Light.
    Light,
}

impl Theme {
    /// Returns the style of a text.
    pub fn style(&self, text: TextStyle) -> Style {
        let change = match text.change {
            Some(Change::Added) => Some(self.tone(Tone::Added)),
            Some(Change::Removed) => Some(self.tone(Tone::Removed)),
            Some(Change::Unchanged) | None => None,
        };
        // The colours of code are shown only where they leave the colour of the change.
        let mut style = match change {
            Some(change) if change.bg.is_some() && !matches!(text.tone, Tone::Added | Tone::Removed) => {
                self.tone(text.tone).patch(change)
            }
            Some(change) => change,
            None => self.tone(text.tone),
        };
        for (is_set, modifier) in [
            (text.bold, Modifier::BOLD),
            (text.italic, Modifier::ITALIC),
            (text.underline, Modifier::UNDERLINED),
            (text.strike, Modifier::CROSSED_OUT),
        ] {
            if is_set {
                style = style.add_modifier(modifier);
            }
        }
        style
    }

    /// Returns the style of a tone.
    pub fn tone(&self, tone: Tone) -> Style {
        let style = match tone {
            Tone::Name | Tone::Heading => Style::new().add_modifier(Modifier::BOLD),
            Tone::Link => Style::new().add_modifier(Modifier::UNDERLINED),
            _ => Style::new(),
        };
        if !self.has_colours {
            return style;
        }
        match tone {
            Tone::Plain | Tone::Name | Tone::Quiet => style,
            Tone::User | Tone::Heading | Tone::Link | Tone::Definition => style.fg(Color::Cyan),
            Tone::Code | Tone::Caution => style.fg(Color::Yellow),
            Tone::Keyword | Tone::Comment => style.fg(Color::Magenta),
            Tone::Literal | Tone::Good => style.fg(Color::Green),
            Tone::Bad => style.fg(Color::Red),
            Tone::Added => self.diff_line(style, Color::Green, [(20, 50, 25), (215, 245, 220)]),
            Tone::Removed => self.diff_line(style, Color::Red, [(60, 20, 22), (252, 222, 222)]),
        }
    }

    /// Colours a line of a diff: its background if that of the terminal is known, else its text.
    fn diff_line(&self, style: Style, text: Color, [dark, light]: [(u8, u8, u8); 2]) -> Style {
        match self.background {
            Some(Background::Dark) => style.bg(Color::Rgb(dark.0, dark.1, dark.2)),
            Some(Background::Light) => style.bg(Color::Rgb(light.0, light.1, light.2)),
            None => style.fg(text),
        }
    }

    /// Returns a mark.
    pub fn mark(&self, mark: Mark) -> &'static str {
        let (drawn, ascii) = match mark {
            Mark::Running => ("●", "*"),
            Mark::Unread => ("◐", "o"),
            Mark::Good => ("✓", "+"),
            Mark::Bad => ("✗", "x"),
            Mark::Prompt => ("›", ">"),
            Mark::Chosen => ("▸", ">"),
            Mark::Full => ("▓", "#"),
            Mark::Empty => ("░", "."),
            Mark::Divider => ("│", "|"),
            Mark::Rule => ("─", "-"),
            Mark::Dot => ("·", "-"),
            Mark::More => ("…", "~"),
            Mark::Below => ("↓", "v"),
        };
        if self.is_ascii { ascii } else { drawn }
    }

    /// Returns the style of the chosen row of a list. It is reversed and has a mark, so that it needs no colour.
    pub fn chosen(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Returns the tone of a context meter: green below 60 %, yellow to 89 %, red from 90 %.
    pub fn fill_tone(percent: u64) -> Tone {
        match percent {
            0..60 => Tone::Good,
            60..90 => Tone::Caution,
            _ => Tone::Bad,
        }
    }
}

/// A mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A turn runs.
    Running,
    /// There is something new.
    Unread,
    /// The last turn succeeded.
    Good,
    /// The last turn failed.
    Bad,
    /// Before the prompt.
    Prompt,
    /// Before the chosen row.
    Chosen,
    /// A full part of a meter.
    Full,
    /// An empty part of a meter.
    Empty,
    /// Between the list and the pane.
    Divider,
    /// A line across.
    Rule,
    /// Between parts of a line.
    Dot,
    /// At the end of a shortened text.
    More,
    /// Something is below.
    Below,
}
