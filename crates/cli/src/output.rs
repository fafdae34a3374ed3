//! Standard output and standard error.
//!
//! Data goes to standard output through [`Output`], everything else to standard error through [`tell`].
//! Text from outside is made visible before it is printed for people, and escaped in JSON, so that nothing
//! that a model or a file says can act on a terminal.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use azureal_core::{to_visible_json, visible_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::failure::Failure;
use crate::marks::with_marks;
use crate::pager::Pager;

pub(crate) use azureal_core::counted;

/// Standard output, as the user wants it.
pub(crate) struct Output {
    out: BufWriter<Sink>,
    format: Format,
    terminal: bool,
    /// Whether standard output was closed when the program was started: see `closed_stdout.c`.
    is_closed: bool,
}

/// Where output goes.
enum Sink {
    Stdout(StdoutLock<'static>),
    Pager(Pager),
}

impl Sink {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Stdout(stdout) => stdout,
            Self::Pager(pager) => pager,
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}

/// The bytes that are written at a time.
const BUFFER: usize = 64 * 1024;

/// For whom output is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    People,
    Json,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        let stdout = io::stdout();
        Self {
            terminal: stdout.is_terminal(),
            is_closed: is_closed(),
            out: BufWriter::with_capacity(BUFFER, Sink::Stdout(stdout.lock())),
            format,
        }
    }

    /// Says whether a program reads the output.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Sends what follows through the user's pager, if people read it on a terminal.
    pub(crate) fn begin_pager(&mut self) -> Result<(), Failure> {
        if self.terminal && !self.is_json() && !self.is_closed {
            self.flush()?;
            if let Some(pager) = Pager::start() {
                self.out = BufWriter::with_capacity(BUFFER, Sink::Pager(pager));
            }
        }
        Ok(())
    }

    /// Waits until the user has left the pager, if there is one, so that messages do not appear in the middle of it.
    pub(crate) fn end_pager(&mut self) -> Result<(), Failure> {
        if matches!(self.out.get_ref(), Sink::Pager(_)) {
            let flushed = self.flush();
            self.out = BufWriter::with_capacity(BUFFER, Sink::Stdout(io::stdout().lock()));
            flushed?;
        }
        Ok(())
    }

    /// Returns how styled text is to be written.
    pub(crate) fn paint(&self) -> Paint {
        Paint { on: AutoStream::choice(&io::stdout()) != ColorChoice::Never }
    }

    /// Returns how wide a line may be; any width when it is not a terminal that shows it.
    pub(crate) fn width(&self) -> Option<usize> {
        if !self.terminal {
            return None;
        }
        terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
    }

    /// Writes text that is safe to show.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        Ok(self.write_all(text.as_bytes())?)
    }

    /// Writes text of our own, with the marks of the terminal.
    pub(crate) fn own_text(&mut self, text: &str) -> Result<(), Failure> {
        self.text(&if self.terminal { with_marks(text) } else { text.into() })
    }

    /// Writes a line of text that is safe to show.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.text(text)?;
        self.text("\n")
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = to_json(value)?;
        self.line(&text)
    }

    /// Hands everything on that was written.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_closed {
            return Err(io::Error::other("standard output is closed"));
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Says whether standard output cannot be written because it was closed, or opened for reading only.
fn is_closed() -> bool {
    let flags = rustix::fs::fcntl_getfl(rustix::stdio::stdout());
    flags.is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDONLY)
}

/// Returns a size for people: `640 B`, `1.2 kB`, `34 MB`.
pub(crate) fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1_000.0;
    let mut units = UNITS.iter();
    let mut unit = units.next().unwrap_or(&"kB");
    while size >= 999.5
        && let Some(next) = units.next()
    {
        size /= 1_000.0;
        unit = next;
    }
    if size < 9.95 { format!("{size:.1} {unit}") } else { format!("{size:.0} {unit}") }
}

/// Serializes a value as one line of JSON that is safe to show.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String, Failure> {
    to_visible_json(value)
        .map_err(|error| Failure::new("output", format!("this cannot be written as JSON: {error}")))
}

/// Says whether nobody reads standard output any more.
pub(crate) fn is_unheard() -> bool {
    let stdout = io::stdout();
    let mut waited_for = [PollFd::new(&stdout, PollFlags::empty())];
    matches!(poll(&mut waited_for, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
}

/// Truncates a text to a number of columns of a terminal. A truncated text ends with an ellipsis.
pub(crate) fn fit(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let mut short: String = text
        .chars()
        .take_while(|c| match left.checked_sub(c.width().unwrap_or(0)) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        })
        .collect();
    if width > 0 {
        short.push('…');
    }
    short
}

/// Puts parts behind each other, with as many on a row as fit. The rows after the first are indented.
pub(crate) fn in_rows(parts: &[String], width: usize) -> String {
    let mut rows = String::new();
    let mut taken = 0;
    for part in parts {
        let (between, start) = match taken {
            0 => ("", 0),
            taken if taken + 3 + part.width() <= width => (" · ", taken + 3),
            _ => ("\n  ", 2),
        };
        rows.extend([between, part]);
        taken = start + part.width();
    }
    rows
}

/// Returns the width of the terminal that shows standard error; `None` if it is none, or does not say.
pub(crate) fn error_width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| usize::from(width.0))
}

/// Text in colours and weights, or plain where those would be noise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { on: false };

    pub(crate) fn is_on(self) -> bool {
        self.on
    }

    fn styled(self, style: Style, text: &str) -> String {
        if self.on && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// A heading.
    pub(crate) fn heading(self, text: &str) -> String {
        self.styled(Style::new().bold(), text)
    }

    /// What was searched for.
    pub(crate) fn found(self, text: &str) -> String {
        self.styled(AnsiColor::Yellow.on_default().bold(), text)
    }

    /// What need not be read.
    pub(crate) fn quiet(self, text: &str) -> String {
        self.styled(Style::new().dimmed(), text)
    }

    /// The bar of a chart.
    pub(crate) fn bar(self, text: &str) -> String {
        self.styled(AnsiColor::Cyan.on_default(), text)
    }

    /// What went well.
    pub(crate) fn success(self, text: &str) -> String {
        self.styled(AnsiColor::Green.on_default(), text)
    }

    /// What went well only in part.
    pub(crate) fn caution(self, text: &str) -> String {
        self.styled(AnsiColor::Yellow.on_default(), text)
    }

    /// What went wrong.
    pub(crate) fn danger(self, text: &str) -> String {
        self.styled(AnsiColor::Red.on_default(), text)
    }
}

/// Returns how styled text is to be written to standard error.
pub(crate) fn on_stderr() -> Paint {
    Paint { on: AutoStream::choice(&io::stderr()) != ColorChoice::Never }
}

/// Marks a word of a message on standard error as bad news.
pub(crate) fn alarm(text: &str) -> String {
    on_stderr().danger(text)
}

/// Marks a word of a message on standard error.
pub(crate) fn emphasis(text: &str) -> String {
    on_stderr().heading(text)
}

/// Writes a line that is safe to show to standard error.
pub(crate) fn tell(line: &str) {
    // If standard error is closed there is nobody left to tell.
    let line = if io::stderr().is_terminal() { with_marks(line) } else { line.into() };
    drop(writeln!(io::stderr(), "{line}"));
}

/// Tells of something that the user should know and that stopped nothing, in one line.
pub(crate) fn warn(message: &str) {
    tell(&warning(message));
}

/// Returns a line that tells of something that stopped nothing.
pub(crate) fn warning(message: &str) -> String {
    format!("{} {}", emphasis("warning:"), visible_line(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_short() {
        let sizes = [0, 999, 1_000, 9_949, 9_960, 999_400, 999_600, 34_000_000, 5_000_000_000_000];
        let texts = ["0 B", "999 B", "1.0 kB", "9.9 kB", "10 kB", "999 kB", "1.0 MB", "34 MB", "5.0 TB"];
        assert_eq!(sizes.map(bytes_text), texts);
    }

    #[test]
    fn a_text_is_truncated_by_columns() {
        for (text, width, expected) in [
            ("hello", 5, "hello"),
            ("hello", 4, "hel…"),
            ("hello", 1, "…"),
            ("hello", 0, ""),
            ("修复登录", 8, "修复登录"),
            ("修复登录", 7, "修复登…"),
            ("修复登录", 6, "修复…"),
        ] {
            assert_eq!(fit(text, width), expected);
        }
    }
}
