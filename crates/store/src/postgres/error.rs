//! Errors of the server, the driver and the network, as errors of a store.

use std::error::Error;
use std::time::Duration;

use azureal_core::{StoreError, Uuid};
use deadpool::managed::PoolError;
use tokio_postgres::error::{DbError, SqlState};

use crate::server::{Retry, Transient};

/// The error of one attempt.
#[derive(Debug)]
pub(super) enum Fault {
    Driver(tokio_postgres::Error),
    /// The name of a host cannot be looked up.
    Lookup(std::io::Error),
    /// The server does not answer.
    Silent,
    /// A change was sent, and no answer came.
    Unknown {
        operation: Option<Uuid>,
        last: Box<Fault>,
    },
    /// The store has been closed meanwhile.
    Closed,
    /// Notifications do not arrive: a pooler gives each transaction another server connection.
    Undelivered,
    /// An error of the pool that is not about a connection.
    Pool(String),
    /// An answer of another form than that of the statement: another program has changed the functions.
    Answer(String),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::Lookup(error)
    }
}

impl From<PoolError<Fault>> for Fault {
    fn from(error: PoolError<Fault>) -> Self {
        match error {
            PoolError::Backend(fault) => fault,
            PoolError::Closed => Self::Closed,
            PoolError::Timeout(_) => Self::Silent,
            PoolError::NoRuntimeSpecified => Self::Pool("it has no runtime".to_owned()),
            PoolError::PostCreateHook(_) => Self::Pool("a hook failed".to_owned()),
        }
    }
}

impl Transient for Fault {
    fn kind(&self) -> &'static str {
        match self {
            Self::Driver(error) if error.is_closed() => "connection closed",
            Self::Driver(_) => "driver",
            Self::Lookup(_) => "lookup",
            Self::Silent => "silent",
            Self::Unknown { .. } => "outcome unknown",
            Self::Closed => "closed",
            Self::Undelivered => "undelivered",
            Self::Pool(_) => "pool",
            Self::Answer(_) => "answer",
        }
    }

    fn is_transient(&self) -> bool {
        let error = match self {
            Self::Driver(error) => error,
            Self::Lookup(_) | Self::Silent => return true,
            Self::Unknown { .. } | Self::Closed | Self::Undelivered | Self::Pool(_) | Self::Answer(_) => {
                return false;
            }
        };
        match error.as_db_error() {
            Some(said) => is_transient_state(said),
            // The connection broke, or could not be opened. Errors of the driver itself are permanent.
            None => error.is_closed() || io_error(error).is_some(),
        }
    }

    /// The server checks values more carefully in a retry.
    fn retry(&self, is_retry: bool) -> Retry {
        match self {
            _ if self.is_about_values() && !is_retry => Retry::AtOnce,
            _ if self.is_transient() => Retry::AfterDelay,
            _ => Retry::No,
        }
    }
}

impl Fault {
    /// Returns whether the connection broke or its peer is silent.
    pub(super) fn is_about_connection(&self) -> bool {
        match self {
            Self::Driver(error) => error.as_db_error().is_none_or(|said| is_connection_state(said.code())),
            Self::Lookup(_) | Self::Silent => true,
            Self::Unknown { .. } | Self::Closed | Self::Undelivered | Self::Pool(_) | Self::Answer(_) => {
                false
            }
        }
    }

    /// Returns whether the server refuses a value: an event is JSON, but `jsonb` cannot hold it.
    fn is_about_values(&self) -> bool {
        let Self::Driver(error) = self else { return false };
        // What is wrong with the data, a limit of the server, and what it does not do.
        error.code().is_some_and(|code| ["22", "54", "0A"].iter().any(|class| code.code().starts_with(class)))
    }

    /// Returns whether the schema is not there yet.
    pub(super) fn is_missing_schema(&self) -> bool {
        let state = match self {
            Self::Driver(error) => error.code(),
            Self::Lookup(_)
            | Self::Silent
            | Self::Unknown { .. }
            | Self::Closed
            | Self::Undelivered
            | Self::Pool(_)
            | Self::Answer(_) => None,
        };
        matches!(state, Some(&SqlState::UNDEFINED_TABLE | &SqlState::INVALID_SCHEMA_NAME))
    }

    /// Returns whether the server has refused to write.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self, Self::Driver(error) if error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION))
    }

    /// Adds the name of the store. `waited` is the time that was spent on retries.
    pub(super) fn at(self, place: &str, waited: Duration) -> StoreError {
        let place = place.to_owned();
        if self.is_read_only() {
            return StoreError::ReadOnly { place };
        }
        let is_transient = self.is_transient();
        let error = match self {
            Self::Driver(error) => error,
            Self::Lookup(error) => {
                return StoreError::Unreachable { place, why: plain(&error), seconds: waited.as_secs() };
            }
            Self::Silent => {
                let why = "it does not answer".to_owned();
                return StoreError::Unreachable { place, why, seconds: waited.as_secs() };
            }
            Self::Unknown { operation, last } => {
                let why = match last.at(&place, waited) {
                    StoreError::Unreachable { why, .. } | StoreError::Denied { why, .. } => why,
                    other => other.to_string(),
                };
                return StoreError::OutcomeUnknown { place, operation, why, seconds: waited.as_secs() };
            }
            Self::Closed => return StoreError::Closed,
            Self::Undelivered => {
                let why = "notifications do not arrive: a pooler is in transaction mode";
                return StoreError::Other { place, source: why.into() };
            }
            Self::Pool(why) | Self::Answer(why) => return StoreError::Other { place, source: why.into() },
        };
        let Some(said) = error.as_db_error() else {
            // The driver has no kind for it.
            if error.to_string().contains("password missing")
                || innermost(&error).contains("password missing")
            {
                let why = "it asks for a password, and there is none".to_owned();
                return StoreError::Denied { place, why };
            }
            let why = io_error(&error).map_or_else(|| innermost(&error), plain);
            return match is_transient {
                true => StoreError::Unreachable { place, why, seconds: waited.as_secs() },
                false => StoreError::Other { place, source: why.into() },
            };
        };
        let why = said.message().to_owned();
        match said.code() {
            code if code.code().starts_with("28") => StoreError::Denied { place, why },
            &SqlState::INSUFFICIENT_PRIVILEGE | &SqlState::INVALID_CATALOG_NAME => {
                StoreError::Denied { place, why }
            }
            &SqlState::DISK_FULL => StoreError::Full { place },
            &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED => StoreError::Corrupt { place, why },
            _ if is_transient => StoreError::Unreachable { place, why, seconds: waited.as_secs() },
            code => StoreError::Other { place, source: format!("{why} ({})", code.code()).into() },
        }
    }
}

/// Returns whether a connection broke, or a server starts or stops.
fn is_connection_state(code: &SqlState) -> bool {
    ["08", "57P"].iter().any(|class| code.code().starts_with(class))
}

fn is_transient_state(said: &DbError) -> bool {
    let code = said.code();
    is_connection_state(code)
        || [
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            // A server that was the primary until now: the next connection may find the new one.
            SqlState::READ_ONLY_SQL_TRANSACTION,
        ]
        .contains(code)
        // An earlier attempt of the same operation has just succeeded: the next one gets its answer.
        || (*code == SqlState::UNIQUE_VIOLATION && said.constraint() == Some("operations_pkey"))
}

/// Returns The error of the system, where that is the reason.
fn io_error(error: &tokio_postgres::Error) -> Option<&std::io::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        match error.downcast_ref::<std::io::Error>() {
            // Errors of a TLS library have the same type, and are permanent.
            Some(io) if io.get_ref().is_none_or(|inner| !inner.is::<rustls::Error>()) => return Some(io),
            Some(_) | None => cause = error.source(),
        }
    }
    None
}

/// Returns the message of the system without its number, in lower case.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.rfind(" (os error ").and_then(|end| text.get(..end)).unwrap_or(&text);
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// Returns the innermost cause, which is the most specific.
fn innermost(error: &tokio_postgres::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Returns what a user can do about an error of PostgreSQL.
pub(crate) fn hint(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::Denied { .. } => Some(
            "check the user, the password and the name of the database, and what the user may do; a password comes \
             from the URL, the environment or a file: docs/postgres.md",
        ),
        StoreError::ReadOnly { .. } => Some(
            "reading still works; if it is a replica, name the others too: `host1,host2/…?target_session_attrs=read-write`",
        ),
        _ => None,
    }
}
