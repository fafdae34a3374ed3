//! Errors of the server, the driver and the network, as errors of a store.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use azureal_core::{StoreError, Uuid};
use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::server::Transient;

/// The error of one attempt.
#[derive(Debug)]
pub(super) enum Fault {
    Driver(RedisError),
    /// The server accepted a connection and did not answer.
    Silent(Duration),
    /// A change was sent, and no answer came.
    Unknown {
        operation: Option<Uuid>,
        last: Box<Fault>,
    },
    /// The store has been closed meanwhile.
    Closed,
    /// A file that the connection needs cannot be used.
    Tls(String),
    /// A reply of another form than that of the scripts: another program writes to our keys.
    Answer(String),
}

impl From<RedisError> for Fault {
    fn from(error: RedisError) -> Self {
        // Of the errors of several commands, the first counts.
        let said = error.clone().into_server_errors().and_then(|said| Some(said.first()?.1.clone()));
        Self::Driver(said.map_or(error, RedisError::from))
    }
}

impl Transient for Fault {
    fn kind(&self) -> &'static str {
        match self {
            Self::Driver(error) if error.is_io_error() => "io",
            Self::Driver(_) => "driver",
            Self::Silent(_) => "silent",
            Self::Unknown { .. } => "outcome unknown",
            Self::Closed => "closed",
            Self::Tls(_) => "tls",
            Self::Answer(_) => "answer",
        }
    }

    fn is_transient(&self) -> bool {
        match self {
            Self::Silent(_) => true,
            Self::Unknown { .. } | Self::Closed | Self::Tls(_) | Self::Answer(_) => false,
            Self::Driver(error) => match error.kind() {
                ErrorKind::Io => !is_about_tls(error),
                // An answer that was cut off in the middle.
                ErrorKind::Parse => true,
                ErrorKind::Server(kind) => is_transient_kind(kind, error),
                // A server without a free client slot answers the first command with this error.
                _ => matches!(error.code(), Some("BUSY")) || is_full_of_clients(error),
            },
        }
    }
}

impl Fault {
    /// Returns whether the connection broke or the server is silent, so that it is not known whether it did what it was asked.
    pub(super) fn is_about_connection(&self) -> bool {
        match self {
            Self::Driver(error) => matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse),
            Self::Silent(_) => true,
            Self::Unknown { .. } | Self::Closed | Self::Tls(_) | Self::Answer(_) => false,
        }
    }

    /// Returns the server that has what was asked for, where this one of a cluster has not.
    pub(super) fn moved_to(&self) -> Option<(String, u16)> {
        let Self::Driver(error) = self else { return None };
        if error.kind() != ErrorKind::Server(ServerErrorKind::Moved) {
            return None;
        }
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
    }

    /// Adds the name of the store. `waited` is the time that was spent on retries.
    pub(super) fn at(self, place: &str, waited: Duration) -> StoreError {
        let (place, seconds) = (place.to_owned(), waited.as_secs());
        let is_transient = self.is_transient();
        let error = match self {
            Self::Driver(error) => error,
            Self::Unknown { operation, last } => {
                let why = match last.at(&place, waited) {
                    StoreError::Unreachable { why, .. } | StoreError::Denied { why, .. } => why,
                    other => other.to_string(),
                };
                return StoreError::OutcomeUnknown { place, operation, why, seconds };
            }
            Self::Closed => return StoreError::Closed,
            Self::Silent(limit) => {
                let why = format!("it has said nothing for {} s", limit.as_secs());
                return StoreError::Unreachable { place, why, seconds };
            }
            Self::Tls(why) | Self::Answer(why) => return StoreError::Other { place, source: why.into() },
        };
        let why = said(&error);
        match (error.kind(), error.code()) {
            (ErrorKind::AuthenticationFailed, _)
            | (ErrorKind::Server(ServerErrorKind::NoPerm), _)
            | (_, Some("NOAUTH" | "WRONGPASS" | "DENIED")) => StoreError::Denied { place, why },
            (_, _) if is_denied_in_script(&why) => StoreError::Denied { place, why },
            (ErrorKind::Server(ServerErrorKind::ReadOnly), _) => StoreError::ReadOnly { place },
            (_, Some("MISCONF")) if why.contains("No space left") => StoreError::Full { place },
            (_, Some("OOM")) => {
                let why = "its memory is full (`maxmemory`); nothing was changed";
                StoreError::Other { place, source: why.into() }
            }
            (_, _) if is_transient => StoreError::Unreachable { place, why, seconds },
            (_, _) => StoreError::Other { place, source: why.into() },
        }
    }
}

fn is_transient_kind(kind: ServerErrorKind, error: &RedisError) -> bool {
    match kind {
        ServerErrorKind::BusyLoading
        | ServerErrorKind::Moved
        | ServerErrorKind::Ask
        | ServerErrorKind::TryAgain
        | ServerErrorKind::ClusterDown
        | ServerErrorKind::MasterDown
        // A server that was the primary until now: soon it is known which one is.
        | ServerErrorKind::ReadOnly => true,
        _ => is_full_of_clients(error),
    }
}

/// Returns whether a command of a script was not allowed. Servers have no code for that, and two forms of saying it.
fn is_denied_in_script(said: &str) -> bool {
    said.contains("The user executing the script can't") || said.contains("ACL failure in script")
}

fn is_full_of_clients(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("max number of clients"))
}

/// Returns whether the two sides did not agree on how to encrypt, which does not go away.
fn is_about_tls(error: &RedisError) -> bool {
    matches!(io_error(error).and_then(io::Error::get_ref), Some(inner) if inner.is::<rustls::Error>())
}

/// Returns The error of the system, where that is the reason. The driver shares its causes.
fn io_error(error: &RedisError) -> Option<&io::Error> {
    let shared: &Arc<dyn Error + Send + Sync> = error.source()?.downcast_ref()?;
    shared.downcast_ref()
}

/// Returns the message, without the driver's own text around it.
fn said(error: &RedisError) -> String {
    match (io_error(error), error.code(), error.detail()) {
        (Some(io), _, _) => io.to_string(),
        (None, _, _) if error.kind() == ErrorKind::Parse => "its answer cannot be read".to_owned(),
        (None, Some(code), Some(detail)) => format!("{code} {detail}"),
        (None, _, _) => error.to_string(),
    }
}

/// Returns what a user can do about an error of Redis.
pub(crate) fn hint(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::Denied { .. } => Some(
            "check the user, the password and the number of the database, and what the user may do; a password comes \
             from the URL, the environment or a file: docs/redis.md",
        ),
        StoreError::Forgetful { .. } => Some(
            "`CONFIG SET maxmemory-policy noeviction` on the server makes it keep what it has, and `loss=accepted` \
             in the URL takes it as it is; nothing was changed",
        ),
        StoreError::ReadOnly { .. } => {
            Some("reading still works; if it is a replica, name the primary instead")
        }
        _ => None,
    }
}
