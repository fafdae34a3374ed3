//! Upgrading a project of an older format. In format 2 sessions have no order of times, in format 1 also no identity, and fewer
//! counts.
//!
//! It happens before the first write. First it raises the format, which stops every client of the older one: each of
//! their scripts checks it. Then it upgrades one session after the other, and at last removes the note that the
//! upgrade is running. A client that finds that note runs the upgrade again; upgraded sessions stay as they are.
//! Reading writes nothing.

use std::sync::atomic::Ordering;

use azureal_core::{ListOrder, Seq, SessionId, StoreError, Uuid};
use tracing::info;

use super::{FORMAT, RedisStore, countable, scripts};
use crate::timestamp::{ActivityTimes, seconds};

impl RedisStore {
    /// Upgrades the project.
    pub(super) async fn upgrade(&self) -> Result<(), StoreError> {
        let answer = self.run_as_it_is(self.look(&scripts::BEGIN_UPGRADE, None).with(FORMAT)).await?;
        match answer.outcome.as_str() {
            "none" => {}
            "done" => {
                let sessions = self.in_order(ListOrder::Changes, usize::MAX).await?.unwrap_or_default();
                info!(to = FORMAT, sessions = sessions.len(), "upgrades the project");
                let mut times = ActivityTimes::new();
                for id in sessions.into_iter().rev() {
                    self.upgrade_session(id, &mut times).await?;
                }
                self.run_as_it_is(self.look(&scripts::FINISH_UPGRADE, None)).await?;
            }
            _ => return Err(self.unknown(&answer)),
        }
        self.is_older.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn upgrade_session(&self, id: SessionId, times: &mut ActivityTimes) -> Result<(), StoreError> {
        let Some(record) = self.records(&[id]).await?.pop().flatten() else { return Ok(()) };
        let last_active = times.next(&record.last_active, &record.created_at);
        let mut call = self
            .look(&scripts::UPGRADE_SESSION, Some(id))
            .with(id.number())
            .with(last_active.as_str())
            .with(seconds(&last_active));
        if record.uuid.is_none() {
            // No client appends meanwhile.
            let counts = match self.count(id, Seq(record.counts.events)).await {
                Err(StoreError::NoSuchSession(_)) => return Ok(()),
                counted => counted?.1.counts,
            };
            call = call
                .with(Uuid::new_v4().to_string())
                .with_optional(counts.agent)
                .with_optional(counts.model)
                .with_optional(counts.requested_model)
                .with_optional(counts.last_prompt)
                .with_optional(counts.answered.then_some(1))
                .with(countable(counts.rendered_chars.saturating_sub(record.counts.rendered_chars)));
        }
        let answer = self.run_as_it_is(call).await?;
        match answer.outcome.as_str() {
            "done" | "absent" => Ok(()),
            _ => Err(self.unknown(&answer)),
        }
    }
}
