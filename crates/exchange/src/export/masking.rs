//! Masking of secrets in an export.

use std::borrow::Cow;

use azureal_core::{Damage, Redactor, SessionRecord, StoredEvent};

/// Masks what is exported, and counts it. Without a redactor, everything stays as it is.
pub(super) struct Masking<'r> {
    redactor: Option<&'r Redactor>,
    count: u64,
}

impl<'r> Masking<'r> {
    pub(super) fn new(redactor: Option<&'r Redactor>) -> Self {
        Self { redactor, count: 0 }
    }

    /// Returns whether secrets are masked.
    pub(super) fn is_on(&self) -> bool {
        self.redactor.is_some()
    }

    /// Returns the number of events and summaries that were masked.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Masks the texts of a session's record, which repeat those of its events.
    pub(super) fn record(&self, record: &SessionRecord) -> SessionRecord {
        let mut masked = record.clone();
        if let Some(redactor) = self.redactor {
            let counts = &mut masked.counts;
            let optional =
                [&mut counts.preview, &mut counts.last_prompt, &mut counts.agent, &mut counts.model];
            let optional = optional.into_iter().flatten();
            for text in [&mut masked.name, &mut masked.worktree].into_iter().chain(optional) {
                if let Cow::Owned(safe) = redactor.redact(text) {
                    *text = safe;
                }
            }
        }
        masked
    }

    pub(super) fn event<'e>(&mut self, stored: &'e StoredEvent) -> Cow<'e, StoredEvent> {
        let Some(redactor) = self.redactor else { return Cow::Borrowed(stored) };
        let kind = owned(redactor.redact(&stored.kind));
        let masked = match &stored.json {
            // The name of a kind is the key of the event too.
            Ok(json) if kind.is_some() => {
                Some(Ok(redactor.redact(&redactor.redact_event_json(json)).into_owned()))
            }
            Ok(json) => owned(redactor.redact_event_json(json)).map(Ok),
            Err(Damage(why)) => owned(redactor.redact(why)).map(|why| Err(Damage(why))),
        };
        if masked.is_none() && kind.is_none() {
            return Cow::Borrowed(stored);
        }
        self.count += 1;
        Cow::Owned(StoredEvent {
            kind: kind.unwrap_or_else(|| stored.kind.clone()),
            json: masked.unwrap_or_else(|| stored.json.clone()),
            ..stored.clone()
        })
    }

    /// Masks a name that is shown beside an event or a summary, and counts with that.
    pub(super) fn name<'t>(&self, name: &'t str) -> Cow<'t, str> {
        self.redactor.map_or(Cow::Borrowed(name), |redactor| redactor.redact(name))
    }

    pub(super) fn text<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        let masked = self.redactor.map_or(Cow::Borrowed(text), |redactor| redactor.redact(text));
        self.count += u64::from(matches!(masked, Cow::Owned(_)));
        masked
    }
}

fn owned(text: Cow<'_, str>) -> Option<String> {
    match text {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => Some(text),
    }
}
