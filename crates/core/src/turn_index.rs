//! The turns of a session, by their numbers.
//!
//! Turn n begins at the n-th prompt of the session, and ends before the next one. What comes before the first prompt, such as a
//! system message, belongs to no turn.

use crate::prompts::{PROMPT_KINDS, begins_turn};
use crate::{Event, Seq, SessionId, SessionStore, StoreError, StoredEvent};

/// The number of prompts that are read at a time.
const PAGE: usize = 256;

/// The events at which the turns of a session begin.
///
/// ```
/// use azureal_core::{Event, Seq, StoredEvent, TurnIndex};
///
/// let stored = |seq, event: Event| StoredEvent::new(Seq(seq), event.kind(), Ok(event.to_json()));
/// let log = [stored(1, Event::user("a")), stored(2, Event::assistant("b")), stored(3, Event::user("c"))];
/// let turns = TurnIndex::of(&log);
/// assert_eq!((turns.count(), turns.first_event(2), turns.last_event(1)), (2, Some(Seq(3)), Some(Seq(2))));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnIndex {
    /// In the order of the log.
    begins: Vec<Seq>,
}

impl TurnIndex {
    /// Finds the turns of a session. The cost is that of its prompts, not of the events between them.
    pub async fn read<S: SessionStore + ?Sized>(store: &S, id: SessionId) -> Result<Self, StoreError> {
        let (mut begins, mut until) = (Vec::new(), Seq::END);
        loop {
            let page = store.read_prompts(id, until, PAGE).await?;
            let Some(oldest) = page.last().map(|stored| stored.seq) else { break };
            begins.extend(page.iter().filter(|stored| stored.begins_turn()).map(|stored| stored.seq));
            until = Seq(oldest.0.saturating_sub(1));
        }
        begins.reverse();
        Ok(Self { begins })
    }

    /// Finds the turns of a log.
    pub fn of<'a>(log: impl IntoIterator<Item = &'a StoredEvent>) -> Self {
        let begins = log.into_iter().filter(|stored| stored.begins_turn()).map(|stored| stored.seq);
        Self { begins: begins.collect() }
    }

    /// Returns the number of turns.
    pub fn count(&self) -> usize {
        self.begins.len()
    }

    /// Returns the prompt of a turn; `None` if there is no such turn. The first one is turn 1.
    pub fn first_event(&self, turn: usize) -> Option<Seq> {
        self.begins.get(turn.checked_sub(1)?).copied()
    }

    /// Returns the last event of a turn, which is [`Seq::END`] for the last turn; `None` if there is no such turn.
    pub fn last_event(&self, turn: usize) -> Option<Seq> {
        self.first_event(turn)?;
        let next = self.first_event(turn.saturating_add(1));
        Some(next.map_or(Seq::END, |next| Seq(next.0.saturating_sub(1))))
    }

    /// Returns the event after which the last turns begin, at most so many: [`Seq::START`] for all of them, [`Seq::END`] for none.
    pub fn before_last(&self, turns: usize) -> Seq {
        if turns == 0 {
            return Seq::END;
        }
        let skipped = self.count().saturating_sub(turns);
        self.last_event(skipped).unwrap_or(Seq::START)
    }
}

impl StoredEvent {
    /// Returns whether a turn begins with this event: it holds a prompt of the user.
    ///
    /// A `UserMessage` that cannot be read counts as one, so that damage does not change the numbers of turns.
    pub fn begins_turn(&self) -> bool {
        // Most events are of other kinds, and need not be parsed for this.
        PROMPT_KINDS.contains(&self.kind.as_str())
            && self.event().map_or(self.kind == "UserMessage", |event| event.begins_turn())
    }
}

impl Event {
    /// Returns whether a turn begins with this event: it holds a prompt of the user.
    pub fn begins_turn(&self) -> bool {
        begins_turn(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::MessageEvent;
    use crate::{Block, Damage, Role, ToolOutput};

    fn stored(seq: u64, event: &Event) -> StoredEvent {
        StoredEvent::new(Seq(seq), event.kind(), Ok(event.to_json()))
    }

    fn damaged(seq: u64, kind: &str) -> StoredEvent {
        StoredEvent::new(Seq(seq), kind, Err(Damage("torn".into())))
    }

    fn message(role: Role, block: Block) -> Event {
        Event::Message(MessageEvent { role, content: vec![block] })
    }

    #[test]
    fn a_turn_begins_at_a_prompt_and_ends_before_the_next() {
        let text = |text: &str| Block::Text { text: text.into() };
        let result = Block::ToolResult {
            tool_use_id: "t".into(),
            content: ToolOutput::Text("x".into()),
            is_error: false,
        };
        let Event::UserMessage(mut continued) = Event::user("continues the results") else { unreachable!() };
        continued.starts = Some(false);
        let log = [
            stored(1, &Event::Compacted),
            stored(2, &Event::user("one")),
            stored(3, &Event::assistant("a")),
            // Messages that hold no prompt: results, an agent's, and text behind results.
            stored(4, &message(Role::User, result)),
            stored(5, &message(Role::Assistant, text("b"))),
            stored(6, &Event::UserMessage(continued)),
            stored(7, &message(Role::User, text("two"))),
            damaged(8, "UserMessage"),
            damaged(9, "Message"),
            damaged(10, "AssistantText"),
        ];
        let turns = TurnIndex::of(&log);
        let places: Vec<_> = (0..5).map(|turn| (turns.first_event(turn), turns.last_event(turn))).collect();
        let place = |first, last| (Some(Seq(first)), Some(last));
        assert_eq!(
            places,
            [(None, None), place(2, Seq(6)), place(7, Seq(7)), place(8, Seq::END), (None, None)]
        );
        assert_eq!((turns.first_event(usize::MAX), turns.last_event(usize::MAX)), (None, None));
        let before: Vec<_> = (0..5).map(|count| turns.before_last(count)).collect();
        assert_eq!(before, [Seq::END, Seq(7), Seq(6), Seq::START, Seq::START]);
        let none = TurnIndex::default();
        assert_eq!((none.before_last(0), none.before_last(1)), (Seq::END, Seq::START));
    }
}
