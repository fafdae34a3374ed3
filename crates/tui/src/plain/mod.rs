//! The plain view: the same state, printed as lines. For screen readers, slow connections and simple terminals.
//!
//! It moves no cursor and needs no colour. Texts are printed whole, each with its author. The terminal edits the lines that are typed.

mod lines;
mod menu;
mod printer;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use azureal::SessionId;
use azureal::desk::Desk;
use azureal::transcript::Level;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use self::menu::Menu;
use self::printer::Printer;
use crate::run::Conversation;
use crate::terminal::{Input, PlainTerminal, TerminalEvent};
use crate::{Effect, Ended, Inbox, Message, State};

/// Time that the first line waits for the list and the session.
const FIRST_LINE: Duration = Duration::from_secs(5);
/// Columns of what the state lays out. Nothing is cut at it.
const WIDTH: u16 = 200;

/// Runs the plain view on standard input and output until the user quits, the input ends or a signal comes.
///
/// When the input ends, the view waits for the turns that it has started.
pub fn run(
    state: State,
    desk: &Desk,
    inbox: &Arc<Inbox>,
    session: Option<SessionId>,
    out: &mut dyn Write,
) -> io::Result<Ended> {
    let events = Arc::clone(inbox);
    let mut terminal = PlainTerminal::open(move |event| events.add_event(event))?;
    let mut conversation = Conversation::new(state, desk, inbox);
    // A line that is being typed is not known before its end: it must not go to another session.
    conversation.state.settings.auto_switch = false;
    conversation.update(Message::Resize(WIDTH, 50));
    let requests = conversation.state.start(session);
    conversation.perform(requests);
    let mut plain = Plain {
        conversation,
        out,
        printer: Printer::default(),
        menu: None,
        unfinished: String::new(),
        shown: None,
        drafted: String::new(),
        warned: false,
        has_ended: false,
        mark: if io::stdin().is_terminal() { Mark::Absent } else { Mark::Unused },
    };
    plain.say("azureal, plain view. Type a prompt, or /help for the commands.")?;
    let signal = plain.run(&mut terminal)?;
    plain.conversation.keep();
    Ok(Ended { session: plain.conversation.state.shown_session(), signal })
}

struct Plain<'a> {
    conversation: Conversation<'a>,
    out: &'a mut dyn Write,
    printer: Printer,
    /// The menu that a number answers.
    menu: Option<Menu>,
    /// Lines of a prompt that ended with a backslash.
    unfinished: String,
    /// The pane and session that were named last.
    shown: Option<(azureal::desk::PaneId, Option<SessionId>)>,
    /// The text in the prompt box that was named last.
    drafted: String,
    /// Whether the user was told that another Ctrl-C quits.
    warned: bool,
    /// Whether the input has ended.
    has_ended: bool,
    mark: Mark,
}

/// The mark in front of a line that is to be typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// No terminal is typed on: lines are read from a file or a program.
    Unused,
    Absent,
    /// The line that is being typed begins with it.
    Printed,
}

impl Plain<'_> {
    /// Runs until the end, and returns the signal that asked for it.
    fn run(&mut self, terminal: &mut PlainTerminal) -> io::Result<Option<i32>> {
        let begins = Instant::now() + FIRST_LINE;
        loop {
            let inbox = self.conversation.inbox;
            // What is typed before is about the session that is being opened.
            let is_ready = self.conversation.is_ready() || Instant::now() >= begins;
            if is_ready {
                self.mark()?;
                inbox.wait(self.conversation.next_tick());
            } else {
                inbox.wait_for_news(Some(begins));
            }
            while is_ready && let Some(event) = inbox.next_event() {
                match event {
                    TerminalEvent::Input(Input::Line(line)) => {
                        // The terminal has ended the line.
                        if self.mark == Mark::Printed {
                            self.mark = Mark::Absent;
                        }
                        self.line(&line)?;
                    }
                    TerminalEvent::Interrupt => {
                        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
                        self.conversation.update(Message::Key(key));
                    }
                    TerminalEvent::End(signal) => return Ok(Some(signal)),
                    TerminalEvent::Gone => self.has_ended = true,
                    _ => {}
                }
                if self.follow(terminal)? {
                    return Ok(None);
                }
            }
            while let Some(news) = inbox.next_news() {
                let lines = self.printer.take(&news, self.conversation.state.shown);
                self.conversation.take_one(news);
                self.print(&lines)?;
                if self.follow(terminal)? {
                    return Ok(None);
                }
            }
            self.conversation.tick();
            if self.follow(terminal)? || (is_ready && self.has_ended && !self.is_running()) {
                return Ok(None);
            }
        }
    }

    /// Prints what has changed, and does what the state asks for. Returns whether that is the end.
    fn follow(&mut self, terminal: &mut PlainTerminal) -> io::Result<bool> {
        for notice in self.conversation.state.notices.take_all() {
            let label = match notice.level {
                Level::Info => "notice",
                Level::Warning => "warning",
                Level::Error => "error",
            };
            self.say(&format!("{label}: {}", notice.text))?;
        }
        self.name_session()?;
        self.name_draft()?;
        self.show_layer()?;
        let is_asked = self.conversation.state.quit_until_ms.is_some();
        if is_asked && !std::mem::replace(&mut self.warned, is_asked) {
            self.say("Ctrl-C again quits.")?;
        }
        self.warned = is_asked;
        for effect in self.conversation.state.take_effects() {
            match effect {
                Effect::Quit => return Ok(true),
                Effect::Copy(_) => self.say("warning: not copied: a plain terminal has no clipboard")?,
                // The end of every turn has its bell.
                Effect::Bell(_) | Effect::Suspend | Effect::Redraw | Effect::Mouse(_) => {}
            }
        }
        while !self.conversation.for_terminal.is_empty() {
            let request = self.conversation.for_terminal.remove(0);
            terminal.lend(|| self.conversation.perform_in_terminal(request));
        }
        Ok(false)
    }

    /// Says which session is shown, when that has changed.
    fn name_session(&mut self) -> io::Result<()> {
        let state = &self.conversation.state;
        let shown = (state.shown, state.shown_session());
        if self.shown == Some(shown) {
            return Ok(());
        }
        let record = state.slot().and_then(|slot| slot.pane.record());
        let text = match record {
            Some(record) => format!("session: {} {}", record.id, crate::list::title(record)),
            // The first line has said so.
            None if self.shown.is_none() => String::new(),
            None => "session: a new conversation".to_owned(),
        };
        self.shown = Some(shown);
        if text.is_empty() { Ok(()) } else { self.say(&text) }
    }

    /// Says that a text waits in the prompt box: of an earlier view, of the editor, or of a turn that could not begin.
    fn name_draft(&mut self) -> io::Result<()> {
        let draft = self.draft();
        if draft == self.drafted {
            return Ok(());
        }
        self.drafted.clone_from(&draft);
        if draft.is_empty() { Ok(()) } else { self.say(&format!("draft: {draft}\n/send sends it.")) }
    }

    fn is_running(&self) -> bool {
        let state = &self.conversation.state;
        state.slots.values().any(|slot| slot.is_running() || slot.waiting.has_next())
    }

    /// Prints the mark when a line is expected: the agent has answered, or asks something.
    fn mark(&mut self) -> io::Result<()> {
        if self.mark != Mark::Absent || self.has_ended || (self.is_running() && self.menu.is_none()) {
            return Ok(());
        }
        self.mark = Mark::Printed;
        write!(self.out, "> ")?;
        self.out.flush()
    }

    fn print(&mut self, lines: &[String]) -> io::Result<()> {
        lines.iter().try_for_each(|line| self.say(line))
    }

    /// Prints a text that may have several lines. Control characters become visible.
    fn say(&mut self, text: &str) -> io::Result<()> {
        // A bell at the end of a turn is ours.
        let (text, bell) = match text.strip_suffix('\x07') {
            Some(text) => (text, "\x07"),
            None => (text, ""),
        };
        if self.mark == Mark::Printed {
            self.mark = Mark::Absent;
            writeln!(self.out)?;
        }
        writeln!(self.out, "{}{bell}", azureal::visible(text))?;
        self.out.flush()
    }
}
