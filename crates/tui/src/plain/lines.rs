//! Lines that the user types: prompts, commands, answers.

use std::io;

use azureal::desk::{EditPurpose, Request};

use super::Plain;
use crate::Message;
use crate::keys::{Action, Context, Entry, TABLE};
use crate::update::{perform_in, send};

/// The commands: rows of the table of keys that need no screen. The first row of an action counts.
fn commands() -> impl Iterator<Item = (&'static str, &'static Entry)> {
    let needs_no_screen = |entry: &&Entry| {
        matches!(
            (entry.action, entry.context),
            (
                Action::Sessions
                    | Action::New
                    | Action::Agents
                    | Action::Context
                    | Action::Compact
                    | Action::Fork
                    | Action::Rename
                    | Action::OpenPager
                    | Action::OpenEditor
                    | Action::OpenInAgent
                    | Action::Trust
                    | Action::Answer
                    | Action::Close
                    | Action::Quit
                    | Action::Slot(_),
                Context::Menu
            ) | (Action::AllWorktrees | Action::Delete, Context::List)
                | (Action::Send | Action::Queue | Action::EditInEditor, Context::Prompt)
        )
    };
    TABLE.iter().filter(needs_no_screen).map(|entry| (name(entry), entry))
}

/// Returns the name of a command: that of its keys, without the menu.
fn name(entry: &Entry) -> &'static str {
    entry.name.strip_prefix("menu-").unwrap_or(entry.name)
}

impl Plain<'_> {
    /// Takes a line: an answer to a menu, a command, or a line of a prompt.
    pub(super) fn line(&mut self, line: &str) -> io::Result<()> {
        if self.unfinished.is_empty() {
            if let Some(command) = line.strip_prefix(['/', ':']) {
                return self.command(command);
            }
            if self.answer(line)? {
                return Ok(());
            }
        }
        if let Some(line) = line.strip_suffix('\\') {
            self.unfinished.push_str(line);
            self.unfinished.push('\n');
            return Ok(());
        }
        let prompt = std::mem::take(&mut self.unfinished) + line;
        if !prompt.trim().is_empty() {
            self.send(&prompt, false);
        }
        Ok(())
    }

    /// Sends a prompt, or queues it.
    fn send(&mut self, prompt: &str, is_queued: bool) {
        let state = &mut self.conversation.state;
        let Some(slot) = state.slots.get_mut(&state.shown) else { return };
        // A draft is not lost.
        slot.prompt.clear_into(&mut state.history);
        slot.prompt.set_text(prompt);
        let requests = send(state, is_queued);
        self.conversation.perform(requests);
    }

    fn command(&mut self, command: &str) -> io::Result<()> {
        let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
        // `/slot 2` is the action `slot-2`.
        let numbered = format!("slot-{}", rest.trim());
        let name = if name == "slot" && !rest.trim().is_empty() { numbered.as_str() } else { name };
        match name {
            "help" | "?" => return self.help(),
            "quit" | "q" => {
                self.act(Action::Quit, Context::Menu);
                return Ok(());
            }
            "cancel" => {
                self.act(Action::Back, Context::Prompt);
                return Ok(());
            }
            _ => {}
        }
        let Some((_, entry)) = commands().find(|(known, _)| *known == name) else {
            return self.say(&format!("There is no command /{name}. /help lists them."));
        };
        match entry.action {
            Action::Sessions => self.list_sessions(),
            Action::Agents => self.list_agents(),
            Action::Send => {
                let text = self.draft();
                if text.is_empty() {
                    return self.say("There is no draft to send.");
                }
                self.send(&text, false);
                Ok(())
            }
            Action::EditInEditor => {
                let text = self.draft();
                self.conversation.perform(vec![Request::Edit { text, purpose: EditPurpose::Prompt }]);
                Ok(())
            }
            Action::Queue if rest.is_empty() => self.say("Type the prompt behind /queue."),
            Action::Queue => {
                self.send(rest, true);
                Ok(())
            }
            Action::Delete => {
                // The list has its own choice; here it is the session that is shown.
                if let Some(session) = self.conversation.state.shown_session() {
                    self.conversation.state.list.select(session);
                    self.act(Action::Delete, Context::List);
                }
                Ok(())
            }
            action => {
                self.act(action, entry.context);
                Ok(())
            }
        }
    }

    /// Returns the text in the prompt box: of an earlier view, or of the editor.
    pub(super) fn draft(&self) -> String {
        self.conversation.state.slot().map(|slot| slot.prompt.text()).unwrap_or_default()
    }

    fn act(&mut self, action: Action, context: Context) {
        let requests = perform_in(&mut self.conversation.state, action, context);
        self.conversation.perform(requests);
        // Whatever the action has led to is handled as after any message.
        self.conversation.update(Message::Tick);
    }

    fn help(&mut self) -> io::Result<()> {
        self.say("A line is a prompt; with a backslash at its end it continues on the next line. Commands begin with / or :.")?;
        self.say("/help: This list")?;
        self.say("/cancel: Cancel the turn")?;
        for (name, entry) in commands() {
            match entry.action {
                // One line for all of them.
                Action::Slot(1) => self.say("/slot N: Show the slot with this number")?,
                Action::Slot(_) => {}
                _ => self.say(&format!("/{name}: {}", entry.long))?,
            }
        }
        self.say("Ctrl-C cancels the turn; twice, it quits. Ctrl-D quits when the turns have ended.")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn commands_have_different_names() {
        let names: Vec<&str> = commands().map(|(name, _)| name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        for name in ["sessions", "agents", "quit", "queue", "slot-2", "delete"] {
            assert!(names.contains(&name), "{name}");
        }
    }
}
