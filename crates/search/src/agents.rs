//! Which agent an event goes with. A prompt goes with the agent that answers it, which the log names after it.

use azureal_core::event::{Init, ModelSwitch};
use azureal_core::{Event, Role};

/// The agent at a place of a log.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    /// In lower case.
    current: Option<String>,
    /// The number of prompts whose agent is not named yet.
    waiting: usize,
}

impl Agents {
    pub(crate) fn new(current: Option<String>) -> Self {
        Self { current, waiting: 0 }
    }

    /// Returns the agent, as far as it is known.
    pub(crate) fn current(&self) -> Option<&String> {
        self.current.as_ref()
    }

    /// Returns whether the next event may name the agent of the last prompt.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Notes the next event. If it names the agent of prompts, sets it for them: the last ones of the items.
    pub(crate) fn note<T>(&mut self, event: &Event, items: &mut [T], set: impl Fn(&mut T, Option<String>)) {
        match event {
            Event::Init(Init { agent: Some(agent), .. })
            | Event::ModelSwitch(ModelSwitch { agent: Some(agent), .. }) => {
                self.current = Some(agent.to_lowercase());
                for item in items.iter_mut().rev().take(self.waiting) {
                    set(item, self.current.clone());
                }
                self.waiting = 0;
            }
            event if is_silent(event) => {}
            // Also a prompt: the one before it has no agent of its own.
            _ => self.waiting = 0,
        }
    }

    /// Returns whether an event after this one may name the agent of a prompt before it.
    pub(crate) fn may_be_named_after(event: &Event) -> bool {
        is_prompt(event) || is_silent(event)
    }

    /// Notes that the event is the last item now.
    pub(crate) fn pushed(&mut self, event: &Event) {
        self.waiting = if is_prompt(event) { self.waiting + 1 } else { 0 };
    }
}

/// Returns whether an event may stand between a prompt and the name of its agent.
fn is_silent(event: &Event) -> bool {
    matches!(event, Event::Init(_) | Event::ModelSwitch(_) | Event::SystemMessage(_) | Event::Hook(_))
}

fn is_prompt(event: &Event) -> bool {
    match event {
        Event::UserMessage(_) | Event::Command(_) => true,
        Event::Message(message) => message.role == Role::User,
        _ => false,
    }
}
