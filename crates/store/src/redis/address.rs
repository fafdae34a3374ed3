//! The address of a Redis store, parsed from a URL.
//!
//! An address may hold a password. So it is never shown as it was typed: neither by `Debug` nor in an error, not even
//! in part, since an unreadable URL may have been cut in the middle of the password.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::server::{AddressError, ProjectName, ReadFile, ServerAddress, decoded, options, project_hint};

/// The port of a URL that names none.
const DEFAULT_PORT: u16 = 6379;

/// The address of a Redis store.
///
/// ```
/// use azureal_store::ServerAddress;
/// use azureal_store::redis::RedisAddress;
///
/// let address: RedisAddress = "rediss://ada:secret@cache.example/2?project=engine".parse()?;
/// assert_eq!(address.project(), Some("engine"));
/// assert_eq!(address.to_string(), "rediss://cache.example:6379/2");
/// assert!(!format!("{address:?}").contains("secret"));
/// # Ok::<(), azureal_store::AddressError>(())
/// ```
#[derive(Clone)]
pub struct RedisAddress {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: u32,
    pub(super) user: Option<String>,
    password: Option<String>,
    /// The file whose first line is the password, if the URL has none.
    password_file: Option<ReadFile>,
    /// The files for encryption; `None` without encryption.
    pub(super) tls: Option<TlsFiles>,
    pub(super) accepts_loss: bool,
    pub(super) project: ProjectName,
}

/// The files that an encrypted connection needs; without them the system's authorities vouch for the server.
#[derive(Clone, Default)]
pub(super) struct TlsFiles {
    /// The certificates to trust.
    pub(super) root_certificates: Option<PathBuf>,
    /// The client certificate, if the server asks for one.
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

impl RedisAddress {
    /// Returns the password for a new connection.
    pub(super) fn password_now(&self) -> Option<String> {
        let read = || Some(self.password_file.as_ref()?()?.lines().next().unwrap_or_default().to_owned());
        self.password.clone().or_else(read)
    }

    /// Returns whether the user accepts that the server may lose what it stored.
    pub fn accepts_loss(&self) -> bool {
        self.accepts_loss
    }
}

impl ServerAddress for RedisAddress {
    fn project(&self) -> Option<&str> {
        self.project.name.as_deref()
    }

    fn set_project(&mut self, project: &str) -> Result<(), AddressError> {
        self.project.set(project)
    }

    fn set_former_project(&mut self, former: &str) {
        self.project.former = Some(former.to_owned());
    }

    fn has_password(&self) -> bool {
        self.password.is_some()
    }

    fn set_password(&mut self, password: &str) {
        self.password = Some(password.to_owned());
    }

    fn set_password_file(&mut self, _login: &str, read: ReadFile) {
        self.password_file = Some(read);
    }

    fn hint(error: &AddressError) -> String {
        match error {
            AddressError::Unreadable | AddressError::NoHost => {
                "it looks like redis://user@host:6379/0?project=name, with rediss:// where it is encrypted; in a \
                 password, write characters such as @ : / ? # as %40 %3A %2F %3F %23"
                    .to_owned()
            }
            AddressError::UnknownOption => {
                "known are project and loss, and for rediss:// also sslrootcert, sslcert and sslkey".to_owned()
            }
            AddressError::UnusableValue("project") => project_hint(),
            AddressError::UnusableValue("loss") => {
                "`loss=accepted` says that the server may lose what it was given".to_owned()
            }
            AddressError::UnusableValue(_) => "see docs/redis.md".to_owned(),
        }
    }
}

impl FromStr for RedisAddress {
    type Err = AddressError;

    fn from_str(url: &str) -> Result<Self, AddressError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (tls, rest) = match (base.strip_prefix("redis://"), base.strip_prefix("rediss://")) {
            (Some(rest), _) => (None, rest),
            (None, Some(rest)) => (Some(TlsFiles::default()), rest),
            (None, None) => return Err(AddressError::Unreadable),
        };
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        // A second @, or a #, means that the password has one, and what is left of it would be taken for the host.
        if rest.matches('@').count() > 1 || rest.contains('#') || database.contains('@') {
            return Err(AddressError::Unreadable);
        }
        let (credentials, server) = match authority.split_once('@') {
            Some((credentials, server)) => (Some(credentials), server),
            None => (None, authority),
        };
        let (user, password) = match credentials.map(|both| both.split_once(':').unwrap_or((both, ""))) {
            Some((user, password)) => (decoded(user)?, decoded(password)?),
            None => (String::new(), String::new()),
        };
        let (host, port) = host_and_port(server)?;
        let database = match database {
            "" => 0,
            number => number.parse().map_err(|_| AddressError::Unreadable)?,
        };
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let mut address = Self {
            host,
            port,
            database,
            user: given(user),
            password: given(password),
            password_file: None,
            tls,
            accepts_loss: false,
            project: ProjectName::default(),
        };
        for option in options(query) {
            let (name, value) = option?;
            address.set(name, value)?;
        }
        Ok(address)
    }
}

impl RedisAddress {
    fn set(&mut self, option: &str, value: String) -> Result<(), AddressError> {
        match (option, &mut self.tls) {
            ("project", _) => self.project.set(&value)?,
            ("loss", _) if value == "accepted" => self.accepts_loss = true,
            ("loss", _) => return Err(AddressError::UnusableValue("loss")),
            ("sslrootcert", Some(tls)) => tls.root_certificates = Some(value.into()),
            ("sslcert", Some(tls)) => tls.certificate = Some(value.into()),
            ("sslkey", Some(tls)) => tls.key = Some(value.into()),
            (_, _) => return Err(AddressError::UnknownOption),
        }
        Ok(())
    }
}

/// Takes a host apart from its port. The address of a host may hold colons and then stands in brackets.
fn host_and_port(server: &str) -> Result<(String, u16), AddressError> {
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or(AddressError::Unreadable)?,
        None => server.split_at(server.find(':').unwrap_or(server.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().map_err(|_| AddressError::Unreadable)?,
        None if port.is_empty() => DEFAULT_PORT,
        None => return Err(AddressError::Unreadable),
    };
    match decoded(host)? {
        host if host.is_empty() => Err(AddressError::NoHost),
        host => Ok((host, port)),
    }
}

/// Shows the server and the database, and no secret.
impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}/{}", self.host, self.port, self.database)
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisAddress")
            .field("server", &self.to_string())
            .field("project", &self.project.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::address_tests::{check_no_password_is_shown, check_refused};

    fn parsed(url: &str) -> Result<RedisAddress, AddressError> {
        url.parse()
    }

    #[test]
    fn a_url_says_where_the_store_is() {
        let rows = [
            ("redis://h", "redis://h:6379/0", None, None),
            ("redis://h/", "redis://h:6379/0", None, None),
            ("redis://:p%40ss@h:1/3", "redis://h:1/3", None, Some("p@ss")),
            ("rediss://u:p@h", "rediss://h:6379/0", Some("u"), Some("p")),
            ("redis://u@h", "redis://h:6379/0", Some("u"), None),
            ("redis://[::1]:7/1", "redis://[::1]:7/1", None, None),
            ("redis://[::1]", "redis://[::1]:6379/0", None, None),
        ];
        for (url, shown, user, password) in rows {
            let address = parsed(url).unwrap();
            assert_eq!(address.to_string(), shown, "{url}");
            assert_eq!((address.user.as_deref(), address.password.as_deref()), (user, password), "{url}");
        }
        let full = parsed("rediss://h?project=team%2Fengine&loss=accepted&sslrootcert=%2Fca.pem").unwrap();
        assert_eq!((full.project(), full.accepts_loss), (Some("team/engine"), true));
        assert_eq!(full.tls.unwrap().root_certificates.unwrap().to_str(), Some("/ca.pem"));
    }

    #[test]
    fn what_cannot_be_an_address_is_refused() {
        use AddressError as Error;
        let rows = [
            ("mysql://h", Error::Unreadable),
            ("redis:h", Error::Unreadable),
            ("redis://u:p@ss@h", Error::Unreadable),
            ("redis://u:p/ss@h", Error::Unreadable),
            ("redis://h:port", Error::Unreadable),
            ("redis://h/zero", Error::Unreadable),
            ("redis://[::1", Error::Unreadable),
            ("redis://[::1]7", Error::Unreadable),
            ("redis://", Error::NoHost),
            ("redis://u:p@/1", Error::NoHost),
            ("redis://h?colour=red", Error::UnknownOption),
            ("redis://h?project", Error::UnknownOption),
            ("redis://h?sslcert=x", Error::UnknownOption),
            ("redis://h?project=", Error::UnusableValue("project")),
            ("redis://h?project=a%00b", Error::UnusableValue("project")),
            ("redis://h?loss=maybe", Error::UnusableValue("loss")),
        ];
        check_refused::<RedisAddress>(&rows);
    }

    #[test]
    fn no_part_of_a_password_is_ever_shown() {
        check_no_password_is_shown::<RedisAddress>(|password| {
            vec![
                format!("redis://u:{password}@h/1"),
                format!("rediss://:{password}@h?project=p"),
                format!("redis://u:{password}@[::1]:7"),
            ]
        });
    }
}
