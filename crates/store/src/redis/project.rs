//! The project of a store: its format, and the name under which its sessions are kept.
//!
//! The first release left the host out of a project's name. Its keys are not moved: the hash of the new name has
//! `kept_as`, and that of the old one `claimed_by`, so that no second project takes it. Keys of two names may be on
//! two servers of a cluster, so keys are never moved.

use std::sync::atomic::Ordering;

use azureal_core::{StoreError, Uuid, async_trait};
use redis::Pipeline;
use tracing::warn;

use super::error::Fault;
use super::keys::Keys;
use super::{FORMAT, RedisStore, replies, scripts};
use crate::server::ServerStore;

#[async_trait]
impl ServerStore for RedisStore {
    fn project(&self) -> &str {
        &self.project
    }

    fn former_project(&self) -> Option<&str> {
        self.former.as_deref()
    }

    async fn settle_former_project(&mut self, is_ours: bool) -> Result<(), StoreError> {
        let Some(former) = self.former.clone() else { return Ok(()) };
        let mut kept_as = self.project.clone();
        if is_ours {
            let claim = self.look_in(&former, &scripts::CLAIM).with(self.project.as_str());
            let mut answer = self.run_as_it_is(claim).await?;
            // Another project may have claimed them meanwhile.
            if self.read(answer.next_text())? == self.project {
                kept_as = former;
            }
        }
        let kept_as = self.settle(kept_as).await?;
        self.former = None;
        self.keep_as(kept_as).await?;
        self.give_id().await
    }
}

impl RedisStore {
    fn look_in(&self, project: &str, script: &'static redis::Script) -> scripts::Call {
        scripts::Call::new(script, &Keys::of(project).of_script(None, None))
    }

    /// Notes where the sessions of the project are kept; returns what is noted.
    async fn settle(&self, kept_as: String) -> Result<String, StoreError> {
        let settle = self.look_in(&self.project, &scripts::SETTLE).with(kept_as);
        let mut answer = self.run_as_it_is(settle).await?;
        self.read(answer.next_text())
    }

    /// Uses the keys of another name.
    async fn keep_as(&mut self, name: String) -> Result<(), StoreError> {
        self.keys = Keys::of(&name);
        self.project = name;
        self.look_at_project().await.map(|_| ())
    }

    /// Finds the keys of the project.
    pub(super) async fn look_for_project(&mut self, former: Option<&str>) -> Result<(), StoreError> {
        if let Some(kept_as) = self.look_at_project().await? {
            if kept_as != self.project {
                self.keep_as(kept_as).await?;
            }
            return Ok(());
        }
        let Some(former) = former.filter(|former| *former != self.project) else { return Ok(()) };
        let [claimed_by] = self.fields(&Keys::of(former).project(), ["claimed_by"]).await?;
        if claimed_by.as_deref() == Some(&self.project) {
            if self.has_sessions(&self.project).await? {
                // Somebody who names the project made them meanwhile. They must not vanish behind those that were claimed.
                warn!(
                    project = self.project,
                    former, "both names of the project have sessions: the former ones are not taken"
                );
                return Ok(());
            }
            // A client claimed the sessions and ended before it noted that here. The two keys may be on two servers of a
            // cluster, so no script can write both.
            let kept_as = match self.settle(former.to_owned()).await {
                // A user that may only read finds them too.
                Err(StoreError::Denied { .. } | StoreError::ReadOnly { .. }) => former.to_owned(),
                settled => settled?,
            };
            return self.keep_as(kept_as).await;
        }
        if claimed_by.is_none()
            && !self.has_sessions(&self.project).await?
            && self.has_sessions(former).await?
        {
            self.former = Some(former.to_owned());
        }
        Ok(())
    }

    /// Finds the id of the store, or gives it one. A user that may only read does without.
    pub(super) async fn give_id(&mut self) -> Result<(), StoreError> {
        let project = self.keys.project();
        let [mut found] = self.fields(&project, ["id"]).await?;
        if found.is_none() {
            let mut give = Pipeline::new();
            give.cmd("HSETNX").arg(&project).arg("id").arg(Uuid::new_v4().to_string()).ignore_errors();
            self.answers(give).await?;
            [found] = self.fields(&project, ["id"]).await?;
        }
        let id = found.map(|id| id.parse()).transpose();
        self.id = id.map_err(|_| self.other("the id of the store is not a UUID"))?;
        Ok(())
    }

    async fn has_sessions(&self, project: &str) -> Result<bool, StoreError> {
        let mut look = Pipeline::new();
        look.cmd("ZCARD").arg(Keys::of(project).active());
        let answer = self.answers(look).await?.into_iter().next().unwrap_or_default();
        let count = self.read(replies::text(answer).and_then(|count| replies::number(&count)))?;
        Ok(count > 0)
    }

    /// Checks the format of the project, and remembers which number was given last; returns the name under which its
    /// sessions are kept, if that is settled.
    pub(super) async fn look_at_project(&self) -> Result<Option<String>, StoreError> {
        let fields = ["format", "last_session", "upgrading", "kept_as"];
        let [format, last, upgrading, kept_as] = self.fields(&self.keys.project(), fields).await?;
        let number = |text: Option<&str>| self.read(text.map_or(Ok(0), replies::number));
        let (found, last) = (number(format.as_deref())?, number(last.as_deref())?);
        if found > FORMAT.into() {
            return Err(self.newer(found.to_string()));
        }
        let is_older = self.read(is_older(format.as_deref(), upgrading.as_deref()))?;
        self.is_older.store(is_older, Ordering::Relaxed);
        self.last_number.store(u32::try_from(last).unwrap_or(u32::MAX), Ordering::Relaxed);
        Ok(kept_as)
    }
}

/// Returns whether a project must be upgraded, from fields of its hash. One without a format does not exist yet.
pub(super) fn is_older(format: Option<&str>, upgrading: Option<&str>) -> Result<bool, Fault> {
    let format = format.map(replies::number).transpose()?;
    Ok(upgrading.is_some() || format.is_some_and(|format| format < FORMAT.into()))
}
