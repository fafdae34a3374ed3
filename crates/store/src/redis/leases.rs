//! Leases: the right to run a turn in a session, by the clock of the server.
//!
//! Keys that expire (`SET NX PX`) are not enough: the name of the last granted lease must be there for as long as a
//! turn may be appended under an older one. (`docs/decisions/0007-leases.md` has more.)

use std::time::Duration;

use azureal_core::{Holder, LeaseId, Leases, NewLease, SessionId, StoreError, Taken, async_trait};
use redis::{Pipeline, Script};

use super::error::Fault;
use super::scripts::Call;
use super::{FORMAT, RedisStore, countable, replies, scripts};

impl RedisStore {
    /// Begins a call about a lease.
    fn about(&self, script: &'static Script, id: SessionId, lease: &LeaseId) -> Call {
        self.look(script, Some(id)).writing().with(FORMAT).with(id.number()).with(lease.as_str())
    }
}

#[async_trait]
impl Leases for RedisStore {
    async fn take(&self, id: SessionId, new: &NewLease) -> Result<Taken, StoreError> {
        let call = self
            .about(&scripts::TAKE_LEASE, id, &new.id)
            .with(new.holder.to_json())
            .with(milliseconds(new.lasts))
            .with_optional(new.instead_of.as_ref().map(LeaseId::as_str));
        let mut answer = self.run(call).await?;
        match answer.outcome.as_str() {
            "done" => Ok(Taken::Ours),
            "theirs" => Ok(Taken::Theirs(self.read(answer.next_text().and_then(|text| holder_of(&text)))?)),
            "absent" => Err(StoreError::NoSuchSession(id)),
            _ => Err(self.unknown(&answer)),
        }
    }

    async fn renew(&self, id: SessionId, lease: &LeaseId, lasts: Duration) -> Result<bool, StoreError> {
        let answer = self.run(self.about(&scripts::RENEW_LEASE, id, lease).with(milliseconds(lasts))).await?;
        match answer.outcome.as_str() {
            "done" => Ok(true),
            "lost" => Ok(false),
            "absent" => Err(StoreError::NoSuchSession(id)),
            _ => Err(self.unknown(&answer)),
        }
    }

    async fn release(&self, id: SessionId, lease: &LeaseId) -> Result<(), StoreError> {
        self.change(id, self.about(&scripts::RELEASE_LEASE, id, lease)).await
    }

    async fn held(&self) -> Result<Vec<(SessionId, Holder)>, StoreError> {
        let mut look = Pipeline::new();
        look.cmd("TIME").cmd("HGETALL").arg(self.keys.leases());
        let mut answers = self.answers(look).await?.into_iter();
        let mut next = || self.read(replies::texts(answers.next().unwrap_or_default()));
        let (time, leases) = (next()?, next()?);
        self.read(leased_at(&time, &leases))
    }
}

/// Reads who has a lease from the answers to `TIME` and `HGETALL`.
fn leased_at(time: &[String], leases: &[String]) -> Result<Vec<(SessionId, Holder)>, Fault> {
    let [seconds, microseconds] = time else {
        return Err(Fault::Answer("it does not say the time".to_owned()));
    };
    let now = replies::number(seconds)? * 1000 + replies::number(microseconds)? / 1000;
    let mut leased = Vec::new();
    for (session, lease) in leases.iter().step_by(2).zip(leases.iter().skip(1).step_by(2)) {
        let (ends_at, holder) = lease.split_once(' ').unwrap_or_default();
        if replies::number(ends_at)? >= now {
            leased.push((replies::session_id(session)?, holder_of(holder)?));
        }
    }
    leased.sort_by_key(|(session, _)| *session);
    Ok(leased)
}

fn holder_of(stored: &str) -> Result<Holder, Fault> {
    Holder::from_json(stored).ok_or_else(|| Fault::Answer("a lease does not say who has it".to_owned()))
}

fn milliseconds(time: Duration) -> u64 {
    countable(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
