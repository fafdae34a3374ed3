//! Numbered menus: what the screen shows as a list or a layer.

use std::io;

use azureal::SessionId;
use azureal::desk::NextAgent;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::Plain;
use crate::keys::{Action, Context};
use crate::list::title;
use crate::overlay::{self, Input, Layer, View};
use crate::state::clock;
use crate::update::{choose_agent, perform_in};
use crate::{Message, State};

/// A menu that a number answers.
#[derive(Debug)]
pub(super) enum Menu {
    /// Sessions to open.
    Sessions(Vec<SessionId>),
    /// The sessions are not read yet: the menu follows.
    AwaitedSessions,
    /// Agents and models for the next turn.
    Agents(Vec<NextAgent>),
    /// The agents are asked for: the menu follows.
    AwaitedAgents,
    /// The answers to a layer, by their keys.
    Keys(Vec<char>),
    /// A layer that takes a text.
    Text,
    /// The context is being rendered.
    AwaitedContext,
}

impl Plain<'_> {
    /// Prints the sessions.
    pub(super) fn list_sessions(&mut self) -> io::Result<()> {
        let state = &self.conversation.state;
        if !state.list.is_loaded {
            self.menu = Some(Menu::AwaitedSessions);
            return Ok(());
        }
        let lines = state.list.lines();
        let texts: Vec<String> = lines.iter().map(|line| session_line(state, line)).collect();
        let sessions = lines.iter().map(|line| line.record.id).collect();
        if texts.is_empty() {
            self.menu = None;
            return self.say("There are no sessions in this worktree.");
        }
        self.say("Sessions. A number opens one.")?;
        self.numbered(&texts)?;
        self.menu = Some(Menu::Sessions(sessions));
        Ok(())
    }

    /// Prints the agents, or asks for them.
    pub(super) fn list_agents(&mut self) -> io::Result<()> {
        let Some(agents) = &self.conversation.state.agents else {
            self.menu = Some(Menu::AwaitedAgents);
            return Ok(());
        };
        let mut texts = Vec::new();
        let mut choices = Vec::new();
        for agent in agents {
            for model in std::iter::once(None).chain(agent.models.iter().cloned().map(Some)) {
                let version = agent.version.as_deref().unwrap_or("not installed");
                let words = model.as_deref().unwrap_or("default model");
                texts.push(format!("{}, {words}, {version}", agent.name));
                choices.push(NextAgent { agent: Some(agent.name.clone()), model });
            }
        }
        self.say("Agents and models. A number chooses for the next turn.")?;
        self.numbered(&texts)?;
        self.menu = Some(Menu::Agents(choices));
        Ok(())
    }

    fn numbered(&mut self, texts: &[String]) -> io::Result<()> {
        for (index, text) in texts.iter().enumerate() {
            self.say(&format!("{}. {text}", index + 1))?;
        }
        Ok(())
    }

    /// Prints the topmost layer when it is new.
    pub(super) fn show_layer(&mut self) -> io::Result<()> {
        if matches!(self.menu, Some(Menu::AwaitedAgents)) && self.conversation.state.agents.is_some() {
            return self.list_agents();
        }
        if matches!(self.menu, Some(Menu::AwaitedSessions)) && self.conversation.state.list.is_loaded {
            return self.list_sessions();
        }
        let state = &self.conversation.state;
        let Some(layer) = state.layers.last() else {
            if matches!(self.menu, Some(Menu::Keys(_) | Menu::Text | Menu::AwaitedContext)) {
                self.menu = None;
            }
            return Ok(());
        };
        let (answers, menu): (&[&str], _) = match layer {
            _ if matches!(self.menu, Some(Menu::Keys(_) | Menu::Text)) => return Ok(()),
            Layer::Context { context: None, .. } => {
                self.menu = Some(Menu::AwaitedContext);
                return Ok(());
            }
            Layer::Context { .. } => {
                let view = overlay::view(state, layer, super::WIDTH);
                self.conversation.state.layers.pop();
                self.menu = None;
                return view.map_or(Ok(()), |view| self.print(&rows(&view)));
            }
            Layer::Confirm(_) | Layer::Trust { .. } => (&["yes", "no"], Menu::Keys(vec!['y', 'n'])),
            // Their rows begin with their keys.
            Layer::Quit { .. } => (&[], Menu::Keys(vec!['l', 'c', 's'])),
            Layer::Question { question, .. } => {
                let count = u32::try_from(question.options.len()).unwrap_or(0).min(9);
                let digits = (1..=count).filter_map(|digit| char::from_digit(digit, 10));
                (&["n refuses."], Menu::Keys(digits.collect()))
            }
            Layer::Rename { .. } => (&["Type the new name."], Menu::Text),
            // The commands of this view open no other layer.
            _ => {
                self.conversation.state.layers.pop();
                return Ok(());
            }
        };
        let lines = overlay::view(state, layer, super::WIDTH).map(|view| rows(&view)).unwrap_or_default();
        self.print(&lines)?;
        match &menu {
            Menu::Keys(keys) if keys.len() == answers.len() => {
                self.numbered(&answers.iter().map(|answer| (*answer).to_owned()).collect::<Vec<_>>())?;
            }
            _ => {
                for answer in answers {
                    self.say(answer)?;
                }
            }
        }
        self.menu = Some(menu);
        Ok(())
    }

    /// Answers the menu that is open. Returns whether the line was an answer.
    pub(super) fn answer(&mut self, line: &str) -> io::Result<bool> {
        let chosen = line.trim().parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let Some(menu) = &self.menu else { return Ok(false) };
        match (menu, chosen) {
            (Menu::Sessions(sessions), Some(chosen)) => {
                let Some(session) = sessions.get(chosen).copied() else { return self.no_such_number() };
                self.conversation.state.list.select(session);
                let requests = perform_in(&mut self.conversation.state, Action::Open, Context::List);
                self.conversation.perform(requests);
                self.menu = None;
            }
            (Menu::Agents(choices), Some(chosen)) => {
                let Some(next) = choices.get(chosen).cloned() else { return self.no_such_number() };
                let requests = choose_agent(&mut self.conversation.state, next);
                self.conversation.perform(requests);
                self.menu = None;
            }
            (Menu::Keys(keys), _) => {
                let letter = line.trim().chars().next();
                let by_letter = letter.filter(|letter| keys.contains(letter) || *letter == 'n');
                let key = chosen.map_or(by_letter, |chosen| keys.get(chosen).copied());
                let Some(key) = key else {
                    self.say("Type a number of the list.")?;
                    return Ok(true);
                };
                self.menu = None;
                self.press(KeyCode::Char(key));
            }
            (Menu::Text, _) => {
                if let Some(Layer::Rename { name, .. }) = self.conversation.state.layers.last_mut() {
                    *name = Input::new(line.trim());
                }
                self.menu = None;
                self.press(KeyCode::Enter);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn no_such_number(&mut self) -> io::Result<bool> {
        self.say("There is no such number.")?;
        Ok(true)
    }

    pub(super) fn press(&mut self, code: KeyCode) {
        self.conversation.update(Message::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
}

/// Returns the title and the rows of a layer as lines.
fn rows(view: &View) -> Vec<String> {
    let text = |row: &Vec<(String, ratatui::style::Style)>| {
        let text: String = row.iter().map(|(text, _)| text.as_str()).collect();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let rows = view.rows.iter().map(text).filter(|row| !row.is_empty());
    std::iter::once(format!("{}.", view.title.trim_end_matches(['?', '.']))).chain(rows).collect()
}

/// Returns a session as a sentence.
fn session_line(state: &State, line: &azureal::desk::SessionLine) -> String {
    let record = &line.record;
    let mut parts = vec![format!("{} {}", record.id, title(record))];
    if let Some(active) = &line.active {
        parts.push(format!("{} is running", active.agent));
    }
    if let Some(then) = clock::parse_ms(record.active_at()) {
        parts.push(match clock::ago(then, state.now_ms).as_str() {
            "now" => "just now".to_owned(),
            ago => format!("{ago} ago"),
        });
    }
    parts.join(", ")
}
