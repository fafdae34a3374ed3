//! The use of turns: the agent and model of each, and what its end says of tokens, cost and time.

use crate::event::{Complete, Init, ModelSwitch};
use crate::{Event, Page, Seq, SessionId, SessionStore, StoreError, StoredEvent};

/// The kinds of events that say what the turns of a session used.
pub const USAGE_KINDS: [&str; 3] = ["Complete", "Init", "ModelSwitch"];

/// A turn, or a part of one that continues after a compaction.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnUsage {
    /// The agent; `None` if it is not known.
    pub agent: Option<String>,
    /// The model that answered; `None` if it is not known.
    pub model: Option<String>,
    /// The end.
    pub complete: Complete,
}

/// Finds the turns in a log, from its events of the [`USAGE_KINDS`]; others are ignored.
///
/// ```
/// use azureal_core::{Event, TurnUsages};
///
/// let mut usages = TurnUsages::default();
/// let turns: Vec<_> = [
///     r#"{"Init":{"agent":"claude","model":"opus"}}"#,
///     r#"{"Complete":{"success":true,"duration_ms":5}}"#,
/// ]
/// .iter()
/// .filter_map(|json| usages.push(Event::from_json(json).ok()?))
/// .collect();
/// assert_eq!((turns.len(), turns[0].model.as_deref(), turns[0].complete.duration_ms), (1, Some("opus"), 5));
/// ```
#[derive(Debug, Clone, Default)]
pub struct TurnUsages {
    agent: Option<String>,
    model: Option<String>,
}

impl TurnUsages {
    /// Takes the next event, and returns the turn that ends with it.
    pub fn push(&mut self, event: Event) -> Option<TurnUsage> {
        match event {
            Event::Init(Init { agent, model, .. }) => {
                if agent.is_some() {
                    if self.agent != agent {
                        // The model of one agent has no meaning for another.
                        self.model = None;
                    }
                    self.agent = agent;
                }
                if !model.is_empty() {
                    self.model = Some(model);
                }
            }
            // The user's choice for the next turn. The agent says then which model answers.
            Event::ModelSwitch(ModelSwitch { agent: Some(_), .. }) => {}
            Event::ModelSwitch(ModelSwitch { model, agent: None }) => self.model = Some(model),
            Event::Complete(complete) => {
                return Some(TurnUsage { agent: self.agent.clone(), model: self.model.clone(), complete });
            }
            _ => {}
        }
        None
    }
}

/// Looks for the events of the [`USAGE_KINDS`] after a place by reading all of them: what a store does that cannot select them.
pub(crate) async fn scan_usage<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    after: Seq,
    limit: usize,
) -> Result<Vec<StoredEvent>, StoreError> {
    let (mut found, mut after) = (Vec::new(), after);
    while found.len() < limit {
        let page = store.read(id, Page::After(after, crate::PAGE_EVENTS)).await?;
        let Some(last) = page.last().map(|stored| stored.seq) else { break };
        after = last;
        found.extend(page.into_iter().filter(|stored| USAGE_KINDS.contains(&stored.kind.as_str())));
    }
    found.truncate(limit);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_the_agent_and_the_model_that_answered() {
        let mut usages = TurnUsages::default();
        let mut turns = Vec::new();
        for json in [
            r#"{"Complete":{"duration_ms":1}}"#,
            r#"{"Init":{"agent":"claude","model":"opus","requested_model":"best"}}"#,
            r#"{"AssistantText":{"text":"x"}}"#,
            r#"{"Complete":{"duration_ms":2}}"#,
            r#"{"ModelSwitch":{"model":"gpt-9","agent":"codex"}}"#,
            r#"{"Init":{"agent":"codex"}}"#,
            r#"{"Complete":{"duration_ms":3}}"#,
            r#"{"Init":{"agent":"codex","model":"gpt-5"}}"#,
            r#"{"ModelSwitch":{"model":"gpt-5-mini"}}"#,
            r#"{"Complete":{"duration_ms":4}}"#,
            r#"{"Init":{"model":"other"}}"#,
            r#"{"Complete":{"duration_ms":5}}"#,
        ] {
            turns.extend(usages.push(Event::from_json(json).unwrap()));
        }
        let found: Vec<_> = turns
            .iter()
            .map(|turn| (turn.agent.as_deref(), turn.model.as_deref(), turn.complete.duration_ms))
            .collect();
        assert_eq!(
            found,
            [
                (None, None, 1),
                (Some("claude"), Some("opus"), 2),
                (Some("codex"), None, 3),
                (Some("codex"), Some("gpt-5-mini"), 4),
                (Some("codex"), Some("other"), 5)
            ]
        );
    }
}
