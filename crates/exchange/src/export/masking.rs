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
            let optional = [&mut counts.preview, &mut counts.last_prompt].into_iter().flatten();
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
        let masked = match &stored.json {
            Ok(json) => owned(redactor.redact_event_json(json)).map(Ok),
            Err(Damage(why)) => owned(redactor.redact(why)).map(|why| Err(Damage(why))),
        };
        let Some(json) = masked else { return Cow::Borrowed(stored) };
        self.count += 1;
        Cow::Owned(StoredEvent { seq: stored.seq, kind: stored.kind.clone(), json })
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
