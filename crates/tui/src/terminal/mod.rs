//! The terminal: modes, input, signals, frames.
//!
//! [`Terminal`] is the guard: dropped, it gives the terminal back as it was. A panic and a signal do so too. Only frames reach the
//! terminal in between, and the few sequences of `outside.rs`.

mod canvas;
mod decode;
mod encode;
mod input;
mod lines;
mod modes;
mod outside;
mod scroll;
mod sequences;
mod signals;

pub use decode::{Input, PASTE_LIMIT, Reply};
pub use encode::{BEGIN_FRAME, END_FRAME, Screen};
pub use outside::CLIPBOARD_LIMIT;

use std::io;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::Frame;
use rustix::process::{Signal, kill_current_process_group};

use self::canvas::Canvas;
use self::decode::Decoder;
use self::input::Reader;
use self::lines::Lines;
use self::signals::Asked;
use crate::theme::Background;

/// Time that replies of the terminal are waited for, before another program gets the terminal.
const REPLY_LIMIT: Duration = Duration::from_millis(100);

/// Something that happens to the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    /// Input.
    Input(Input),
    /// The terminal has another size.
    Resized,
    /// The process was stopped, and continues.
    Continued,
    /// The process has to end, by this signal.
    End(i32),
    /// Ctrl-C on a terminal that edits lines itself.
    Interrupt,
    /// The terminal is gone, or the input has ended.
    Gone,
    /// A thread of the process has panicked, with this message.
    Panicked(String),
}

/// What is known of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TerminalSettings {
    /// Whether the mouse is used.
    pub uses_mouse: bool,
    /// Whether tmux is between the interface and the terminal.
    pub is_in_tmux: bool,
    /// Whether the terminal may be asked questions.
    pub takes_questions: bool,
    /// Whether the background of the terminal decides about colours.
    pub uses_background: bool,
}

/// The terminal, taken by the interface.
pub struct Terminal {
    settings: TerminalSettings,
    reader: Reader,
    canvas: Canvas,
    screen: Screen,
    /// When questions were asked, until the last one was answered.
    asked: Option<Instant>,
    is_answered: Arc<AtomicBool>,
    _guard: GiveBack,
}

impl Terminal {
    /// Takes the terminal of standard input and output. `send` gets its events from other threads.
    pub fn take(
        settings: TerminalSettings,
        send: impl Fn(TerminalEvent) + Clone + Send + Sync + 'static,
    ) -> io::Result<Self> {
        restore_on_panic(send.clone());
        let signalled = send.clone();
        signals::listen(move |asked| {
            signalled(match asked {
                Asked::Resized => TerminalEvent::Resized,
                Asked::Continued => TerminalEvent::Continued,
                Asked::End(signal) => TerminalEvent::End(signal),
                Asked::Interrupt => TerminalEvent::Interrupt,
            });
        })?;
        let guard = GiveBack;
        modes::take(settings.uses_mouse)?;
        let is_answered = Arc::new(AtomicBool::new(false));
        let answered = Arc::clone(&is_answered);
        let reader = Reader::start(Decoder::default(), move |input| {
            if input == Some(Input::Reply(Reply::Attributes)) {
                answered.store(true, Ordering::SeqCst);
            }
            send(input.map_or(TerminalEvent::Gone, TerminalEvent::Input));
        })?;
        Ok(Self {
            settings,
            reader,
            canvas: Canvas::new(modes::size()),
            screen: Screen::default(),
            asked: None,
            is_answered,
            _guard: guard,
        })
    }

    /// Returns the columns and rows.
    pub fn size(&self) -> (u16, u16) {
        modes::size()
    }

    /// Draws a frame, in one write. Returns the number of its bytes.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<usize> {
        let size = modes::size();
        if self.canvas.size() != size {
            self.canvas = Canvas::new(size);
        }
        let (cells, cursor) = self.canvas.draw(draw);
        let bytes = self.screen.frame(cells, cursor);
        modes::write(bytes)?;
        Ok(bytes.len())
    }

    /// Draws every cell in the next frame.
    pub fn forget(&mut self) {
        self.screen.forget();
    }

    /// Asks the terminal for its background and its keyboard. Replies are input, whenever they come.
    pub fn ask(&mut self) -> io::Result<()> {
        if !self.settings.takes_questions {
            return Ok(());
        }
        self.asked = Some(Instant::now());
        self.is_answered.store(false, Ordering::SeqCst);
        modes::write(outside::QUESTIONS.as_bytes())
    }

    /// Takes a reply. Returns the background, if that is the reply.
    pub fn reply(&mut self, reply: Reply) -> io::Result<Option<Background>> {
        match reply {
            Reply::Background(red, green, blue) => {
                let background = outside::background(red, green, blue);
                return Ok(Some(background).filter(|_| self.settings.uses_background));
            }
            Reply::Keyboard => modes::use_keyboard()?,
            Reply::Attributes => self.asked = None,
        }
        Ok(None)
    }

    /// Gives the terminal back while another program uses it.
    pub fn lend<T>(&mut self, work: impl FnOnce() -> T) -> io::Result<T> {
        self.await_replies();
        self.reader.pause();
        modes::give_back();
        let result = work();
        let taken = self.continued();
        self.reader.resume();
        taken.map(|()| result)
    }

    /// Stops the process group, as Ctrl-Z does. [`TerminalEvent::Continued`] follows. Returns whether a shell is there that can continue it.
    pub fn suspend(&mut self) -> io::Result<bool> {
        if !signals::has_shell() {
            return Ok(false);
        }
        self.await_replies();
        kill_current_process_group(Signal::TSTP)?;
        Ok(true)
    }

    /// Takes the terminal again after the process was stopped.
    pub fn continued(&mut self) -> io::Result<()> {
        modes::take(self.settings.uses_mouse)?;
        self.screen.forget();
        // The keyboard protocol ends with the screen: it is asked for again.
        self.ask()
    }

    /// Switches the mouse.
    pub fn set_mouse(&mut self, uses_mouse: bool) -> io::Result<()> {
        self.settings.uses_mouse = uses_mouse;
        modes::set_mouse(uses_mouse)
    }

    /// Puts a text into the clipboard of the terminal. Returns whether it is small enough.
    pub fn copy(&mut self, text: &str) -> io::Result<bool> {
        let Some(sequence) = outside::copy(text, self.settings.is_in_tmux) else { return Ok(false) };
        modes::write(sequence.as_bytes())?;
        Ok(true)
    }

    /// Tells a user who looks elsewhere.
    pub fn bell(&mut self, text: &str) -> io::Result<()> {
        modes::write(outside::bell(text).as_bytes())
    }

    /// Waits for replies that are on their way: another program would take them for keys.
    fn await_replies(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        while !self.is_answered.swap(false, Ordering::SeqCst) && asked.elapsed() < REPLY_LIMIT {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.await_replies();
        self.reader.pause();
    }
}

/// A terminal that is left as it is: lines are read from it, and signals are handled.
pub struct PlainTerminal {
    reader: Reader,
}

impl PlainTerminal {
    /// Begins to read lines. `send` gets them from another thread, as [`Input::Line`].
    pub fn open(send: impl Fn(TerminalEvent) + Clone + Send + Sync + 'static) -> io::Result<Self> {
        let signalled = send.clone();
        signals::listen_to_ends(move |asked| {
            signalled(match asked {
                Asked::Interrupt => TerminalEvent::Interrupt,
                Asked::End(signal) => TerminalEvent::End(signal),
                Asked::Resized | Asked::Continued => return,
            });
        })?;
        let reader = Reader::start(Lines::default(), move |input| {
            send(input.map_or(TerminalEvent::Gone, TerminalEvent::Input));
        })?;
        Ok(Self { reader })
    }

    /// Reads nothing while another program uses the terminal.
    pub fn lend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.reader.pause();
        let result = work();
        self.reader.resume();
        result
    }
}

/// Gives the terminal back when it is dropped.
struct GiveBack;

impl Drop for GiveBack {
    fn drop(&mut self) {
        modes::give_back();
    }
}

/// Gives the terminal back before a panic of this thread is reported. The message of another thread would be lost on the screen, so it
/// is an event.
fn restore_on_panic(send: impl Fn(TerminalEvent) + Send + Sync + 'static) {
    let ours = thread::current().id();
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if thread::current().id() == ours || !modes::is_ours() {
            modes::give_back();
            report(panic);
        } else {
            send(TerminalEvent::Panicked(panic.to_string()));
        }
    }));
}
