//! Leases: three columns in the row of a session, by the clock of the server.
//!
//! Not a lock of PostgreSQL's own: it belongs to one connection, which a pooler may give to another client and a
//! restart of the server ends. A machine that is switched off would hold it until TCP times out.
//! (`docs/decisions/0007-leases.md` has more.)

use std::time::Duration;

use azureal_core::{Holder, LeaseId, Leases, NewLease, SessionId, StoreError, Taken, async_trait};
use tokio_postgres::types::Type;

use super::error::Fault;
use super::{PostgresStore, rows, two};

#[async_trait]
impl Leases for PostgresStore {
    async fn take(&self, id: SessionId, new: &NewLease) -> Result<Taken, StoreError> {
        let call = self
            .function("take_lease")
            .named("in_session", Type::INT4, rows::number(id))
            .named("in_lease", Type::TEXT, new.id.as_str().to_owned())
            .named("in_holder", Type::TEXT, new.holder.to_json())
            .named("in_seconds", Type::FLOAT8, new.lasts.as_secs_f64())
            .named(
                "in_instead_of",
                Type::TEXT,
                new.instead_of.as_ref().map(|lease| lease.as_str().to_owned()),
            );
        let (outcome, holder): (String, Option<String>) = self.one(call, |row| two(row)).await?;
        match outcome.as_str() {
            "ours" => Ok(Taken::Ours),
            "theirs" => Ok(Taken::Theirs(self.placed(holder_of(holder.as_deref()))?)),
            "absent" => Err(StoreError::NoSuchSession(id)),
            other => Err(self.unknown(other)),
        }
    }

    async fn renew(&self, id: SessionId, lease: &LeaseId, lasts: Duration) -> Result<bool, StoreError> {
        let call = self
            .call(
                "WITH renewed AS (
                   UPDATE @schema@.sessions SET lease_until = clock_timestamp() + make_interval(secs => $4)
                   WHERE project = $1 AND session = $2 AND lease = $3 AND lease_holder IS NOT NULL RETURNING 1)
                 SELECT EXISTS (SELECT 1 FROM renewed) FROM @schema@.sessions WHERE project = $1 AND session = $2",
            )
            .with(Type::INT4, rows::number(id))
            .with(Type::TEXT, lease.as_str().to_owned())
            .with(Type::FLOAT8, lasts.as_secs_f64());
        let found = self.rows(call).await?;
        let row = found.first().ok_or(StoreError::NoSuchSession(id))?;
        self.placed(row.try_get(0).map_err(Fault::from))
    }

    async fn release(&self, id: SessionId, lease: &LeaseId) -> Result<(), StoreError> {
        let call = self
            .call(
                "WITH released AS (
                   UPDATE @schema@.sessions SET lease_holder = NULL, lease_until = NULL
                   WHERE project = $1 AND session = $2 AND lease = $3 AND lease_holder IS NOT NULL)
                 SELECT session FROM @schema@.sessions WHERE project = $1 AND session = $2",
            )
            .with(Type::INT4, rows::number(id))
            .with(Type::TEXT, lease.as_str().to_owned());
        self.change(id, call).await
    }

    async fn held(&self) -> Result<Vec<(SessionId, Holder)>, StoreError> {
        let call = self.call(
            "SELECT session, lease_holder FROM @schema@.sessions
             WHERE project = $1 AND lease_holder IS NOT NULL AND lease_until >= clock_timestamp() ORDER BY session",
        );
        let found = self.rows(call).await?;
        let leased = found.iter().map(|row| {
            let (session, holder): (i32, Option<String>) = two(row)?;
            Ok((rows::session_id(session)?, holder_of(holder.as_deref())?))
        });
        self.placed(leased.collect())
    }
}

fn holder_of(stored: Option<&str>) -> Result<Holder, Fault> {
    let holder = stored.and_then(Holder::from_json);
    holder.ok_or_else(|| Fault::Answer("a lease does not say who has it".to_owned()))
}
