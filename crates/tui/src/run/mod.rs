//! The loop of the interface: input first, then news, then a frame.

mod backlog;
mod conversation;
mod inbox;
mod pace;

pub use inbox::Inbox;

pub(crate) use conversation::Conversation;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use azureal::SessionId;
use azureal::desk::Desk;

use self::pace::Pace;
use crate::terminal::{CLIPBOARD_LIMIT, Input, PASTE_LIMIT, Terminal, TerminalEvent, TerminalSettings};
use crate::{Effect, Message, State, draw, prepare};

/// Time for news before input is looked for again.
const NEWS_SHARE: Duration = Duration::from_millis(4);

/// How an interface ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The session that was shown last; `None` for a new conversation.
    pub session: Option<SessionId>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// Runs an interface on the terminal of standard input and output until the user quits or a signal ends it.
///
/// `inbox` is where the desk sends its news. When this returns, the terminal is as it was before.
pub fn run(
    state: State,
    desk: &Desk,
    inbox: &Arc<Inbox>,
    settings: TerminalSettings,
    session: Option<SessionId>,
) -> io::Result<Ended> {
    let events = Arc::clone(inbox);
    let mut terminal = Terminal::take(settings, move |event| events.add_event(event))?;
    let mut conversation = Conversation::new(state, desk, inbox);
    conversation.resize(&terminal);
    let requests = conversation.state.start(session);
    conversation.perform(requests);
    let signal = conversation.run(&mut terminal)?;
    conversation.keep();
    Ok(Ended { session: conversation.state.shown_session(), signal })
}

/// Why the loop ends.
enum End {
    Quit,
    Signal(i32),
}

impl Conversation<'_> {
    /// Runs until the end, and returns the signal that asked for it.
    fn run(&mut self, terminal: &mut Terminal) -> io::Result<Option<i32>> {
        let mut has_asked = false;
        loop {
            self.inbox.wait(self.deadline());
            let end = self.take_events(terminal)?.or(self.take_news(terminal)?);
            match end {
                Some(End::Quit) => return Ok(None),
                Some(End::Signal(signal)) => return Ok(Some(signal)),
                None => {}
            }
            self.tick();
            if let Some(end) = self.take_effects(terminal)? {
                return Ok(match end {
                    End::Quit => None,
                    End::Signal(signal) => Some(signal),
                });
            }
            self.lend(terminal)?;
            if self.pace.is_due(Instant::now()) {
                self.draw(terminal)?;
                if !has_asked {
                    has_asked = true;
                    // After the first frame: nobody waits for the replies.
                    terminal.ask()?;
                }
            }
        }
    }

    /// Handles everything that the terminal sent.
    fn take_events(&mut self, terminal: &mut Terminal) -> io::Result<Option<End>> {
        while let Some(event) = self.inbox.next_event() {
            match event {
                TerminalEvent::Input(input) => self.take_input(input, terminal)?,
                TerminalEvent::Resized => self.resize(terminal),
                TerminalEvent::Continued => {
                    terminal.continued()?;
                    self.resize(terminal);
                }
                TerminalEvent::Panicked(message) => {
                    self.inform(format!("a part of azureal stopped working: {message}"));
                }
                TerminalEvent::End(signal) => return Ok(Some(End::Signal(signal))),
                // Only a plain terminal sends it.
                TerminalEvent::Interrupt => {}
                // As a shell does whose terminal is gone.
                TerminalEvent::Gone => return Ok(Some(End::Signal(signal_hook::consts::SIGHUP))),
            }
            if let Some(end) = self.take_effects(terminal)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn take_input(&mut self, input: Input, terminal: &mut Terminal) -> io::Result<()> {
        let message = match input {
            Input::Key(key) => Message::Key(key),
            Input::Mouse(mouse) => Message::Mouse(mouse),
            Input::Paste(text) => Message::Paste(text),
            Input::Focus(has_focus) => Message::Focus(has_focus),
            // Only a plain terminal sends them.
            Input::Line(_) => return Ok(()),
            Input::PasteTruncated => {
                self.inform(format!("the pasted text was cut after {} MB", PASTE_LIMIT >> 20));
                return Ok(());
            }
            Input::Reply(reply) => match terminal.reply(reply)? {
                Some(background) => Message::Background(background),
                None => return Ok(()),
            },
        };
        self.update(message);
        self.pace.hurry();
        Ok(())
    }

    /// Handles news, until there is input or the time for news is over.
    fn take_news(&mut self, terminal: &mut Terminal) -> io::Result<Option<End>> {
        let until = Instant::now() + NEWS_SHARE;
        while let Some(news) = self.inbox.next_news() {
            self.take_one(news);
            if self.inbox.has_events()
                && let Some(end) = self.take_events(terminal)?
            {
                return Ok(Some(end));
            }
            if Instant::now() >= until {
                break;
            }
        }
        Ok(None)
    }

    fn resize(&mut self, terminal: &Terminal) {
        let (columns, rows) = terminal.size();
        self.update(Message::Resize(columns, rows));
        self.pace.hurry();
    }

    fn take_effects(&mut self, terminal: &mut Terminal) -> io::Result<Option<End>> {
        for effect in self.state.take_effects() {
            match effect {
                Effect::Quit => return Ok(Some(End::Quit)),
                Effect::Suspend => {
                    if !terminal.suspend()? {
                        self.inform("there is no shell to return to".to_owned());
                    }
                }
                Effect::Redraw => {
                    terminal.forget();
                    self.pace.hurry();
                }
                Effect::Bell(text) => terminal.bell(&text)?,
                Effect::Copy(text) => {
                    if !terminal.copy(&text)? {
                        let limit = CLIPBOARD_LIMIT / 1000;
                        self.inform(format!("not copied: a terminal takes at most {limit} kB"));
                    }
                }
                Effect::Mouse(uses_mouse) => terminal.set_mouse(uses_mouse)?,
            }
        }
        Ok(None)
    }

    /// Performs the requests that need the terminal.
    fn lend(&mut self, terminal: &mut Terminal) -> io::Result<()> {
        while !self.for_terminal.is_empty() {
            let request = self.for_terminal.remove(0);
            terminal.lend(|| self.perform_in_terminal(request))?;
            self.resize(terminal);
        }
        Ok(())
    }

    fn draw(&mut self, terminal: &mut Terminal) -> io::Result<()> {
        let requests = prepare(&mut self.state);
        self.perform(requests);
        terminal.draw(|frame| draw(&self.state, frame))?;
        self.pace.drawn(Instant::now());
        Ok(())
    }

    /// Returns when the loop has to do something by itself; `None` if it can sleep.
    fn deadline(&self) -> Option<Instant> {
        let frame = self.pace.next_frame();
        [frame, self.next_tick()].into_iter().flatten().min()
    }
}
