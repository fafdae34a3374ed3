//! The address of a PostgreSQL store, parsed from a URL.
//!
//! An address may hold a password. So it is never shown as it was typed: neither by `Debug` nor in an error, not even
//! in part, since an unreadable URL may have been cut in the middle of the password.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio_postgres::config::{Host, SslMode};

use super::passfile;
use crate::server::{AddressError, ProjectName, ReadFile, ServerAddress, options, project_hint};

/// The schema of the tables if the URL names none.
const DEFAULT_SCHEMA: &str = "azureal";
/// The options of a URL that are passed on to the driver as they are.
const DRIVER_OPTIONS: [&str; 9] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "host",
    "keepalives_idle",
    "options",
    "password",
    "target_session_attrs",
    "user",
];

/// The address of a PostgreSQL store.
///
/// ```
/// use azureal_store::ServerAddress;
/// use azureal_store::postgres::PostgresAddress;
///
/// let address: PostgresAddress = "postgres://ada:secret@db.example/team?project=engine".parse()?;
/// assert_eq!(address.project(), Some("engine"));
/// assert_eq!(address.to_string(), "postgres://db.example:5432/team");
/// assert!(!format!("{address:?}").contains("secret"));
/// # Ok::<(), azureal_store::AddressError>(())
/// ```
#[derive(Clone)]
pub struct PostgresAddress {
    pub(super) config: tokio_postgres::Config,
    pub(super) tls: TlsMode,
    /// The certificates to trust: a file, or `system`.
    pub(super) root_certificates: Option<String>,
    pub(super) schema: String,
    pub(super) project: ProjectName,
    /// The passwords of hosts, if the URL has none.
    pub(super) passfile: Option<Passfile>,
}

/// A password file, as PostgreSQL's own programs read it.
#[derive(Clone)]
pub(super) struct Passfile {
    read: ReadFile,
    /// The user's name on this machine, which is also the name on the server unless the URL has another.
    login: String,
}

impl Passfile {
    /// Returns the password for the one host of a configuration.
    pub(super) fn password(&self, config: &tokio_postgres::Config) -> Option<String> {
        let user = config.get_user().unwrap_or(&self.login);
        let host = match config.get_hosts().first()? {
            Host::Tcp(host) => host.as_str(),
            #[cfg(unix)]
            Host::Unix(_) => "localhost",
        };
        let login = passfile::Login {
            host,
            port: config.get_ports().first().copied().unwrap_or(5432),
            database: config.get_dbname().unwrap_or(user),
            user,
        };
        passfile::find(&(self.read)()?, &login)
    }
}

/// The encryption of a connection, as in PostgreSQL's own `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsMode {
    Disable,
    /// If the server can; any server, unless root certificates are named.
    Prefer,
    /// Always; any server, unless root certificates are named.
    Require,
    /// With a server that a trusted authority vouches for.
    VerifyCa,
    /// With a server that a trusted authority vouches for under this name.
    VerifyFull,
}

impl PostgresAddress {
    /// Returns the schema of the tables.
    pub fn schema(&self) -> &str {
        &self.schema
    }
}

impl ServerAddress for PostgresAddress {
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
        self.config.get_password().is_some()
    }

    fn set_password(&mut self, password: &str) {
        self.config.password(password);
    }

    fn set_password_file(&mut self, login: &str, read: ReadFile) {
        self.passfile = Some(Passfile { read, login: login.to_owned() });
    }

    fn hint(error: &AddressError) -> String {
        match error {
            AddressError::Unreadable | AddressError::NoHost => {
                "it looks like postgres://user@host:5432/database?project=name; in a password, write characters such \
                 as @ : / ? # as %40 %3A %2F %3F %23"
                    .to_owned()
            }
            AddressError::UnknownOption => {
                let known = ["project", "schema", "sslmode", "sslrootcert"].into_iter().chain(DRIVER_OPTIONS);
                format!("known are {}", known.collect::<Vec<_>>().join(", "))
            }
            AddressError::UnusableValue("schema") => {
                "a schema is lower-case letters, digits and _, not beginning with a digit".to_owned()
            }
            AddressError::UnusableValue("project") => project_hint(),
            AddressError::UnusableValue("sslmode") => {
                "it is one of disable, prefer, require, verify-ca and verify-full".to_owned()
            }
            AddressError::UnusableValue("sslrootcert") => {
                "`sslrootcert=system` needs `sslmode=verify-full`; else name a file of certificates".to_owned()
            }
            AddressError::UnusableValue(_) => "see docs/postgres.md".to_owned(),
        }
    }
}

impl FromStr for PostgresAddress {
    type Err = AddressError;

    fn from_str(url: &str) -> Result<Self, AddressError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        // The driver takes what stands before the first @ for the credentials. A second one means that the
        // password has one, and what is left of it would be taken for the host, and shown.
        let is_ours = base.starts_with("postgres://") || base.starts_with("postgresql://");
        if !is_ours || base.matches('@').count() > 1 {
            return Err(AddressError::Unreadable);
        }
        let mut tls = TlsMode::Prefer;
        let (mut root_certificates, mut schema) = (None, DEFAULT_SCHEMA.to_owned());
        let mut project = ProjectName::default();
        let mut passed_on = Vec::new();
        for option in options(query) {
            let (name, value) = option?;
            match name {
                "project" => project.set(&value)?,
                "schema" => schema = checked_schema(&value)?,
                "sslmode" => tls = TlsMode::named(&value).ok_or(AddressError::UnusableValue("sslmode"))?,
                "sslrootcert" => root_certificates = Some(value),
                known if DRIVER_OPTIONS.contains(&known) => {
                    passed_on.push(format!("{known}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC)));
                }
                _ => return Err(AddressError::UnknownOption),
            }
        }
        // As in libpq: every public authority is no authority for anything but a name.
        if root_certificates.as_deref() == Some("system") && tls != TlsMode::VerifyFull {
            return Err(AddressError::UnusableValue("sslrootcert"));
        }
        let url = format!("{base}?{}", passed_on.join("&"));
        let mut config: tokio_postgres::Config = url.parse().map_err(|_| AddressError::Unreadable)?;
        if config.get_hosts().is_empty() {
            return Err(AddressError::NoHost);
        }
        config.ssl_mode(match tls {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        Ok(Self { config, tls, root_certificates, schema, project, passfile: None })
    }
}

/// A schema's name goes into the text of statements, so only names that need no quotes are taken.
fn checked_schema(name: &str) -> Result<String, AddressError> {
    let is_plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if name.is_empty() || name.len() > 63 || !is_plain || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(AddressError::UnusableValue("schema"));
    }
    Ok(name.to_owned())
}

impl TlsMode {
    fn named(name: &str) -> Option<Self> {
        match name {
            "disable" => Some(Self::Disable),
            // `allow` means encryption only if the server insists, which is never needed.
            "allow" | "prefer" => Some(Self::Prefer),
            "require" => Some(Self::Require),
            "verify-ca" => Some(Self::VerifyCa),
            "verify-full" => Some(Self::VerifyFull),
            _ => None,
        }
    }
}

/// Shows the server and the database, and no secret.
impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        let ports = self.config.get_ports();
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(host) => write!(f, "{comma}{host}:{port}")?,
                #[cfg(unix)]
                Host::Unix(path) => write!(f, "{comma}{}:{port}", path.display())?,
            }
        }
        write!(f, "/{}", self.config.get_dbname().unwrap_or(""))
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresAddress")
            .field("server", &self.to_string())
            .field("schema", &self.schema)
            .field("project", &self.project.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::address_tests::{check_no_password_is_shown, check_refused};

    fn parsed(url: &str) -> Result<PostgresAddress, AddressError> {
        url.parse()
    }

    #[test]
    fn a_url_says_where_the_store_is() {
        let rows = [
            ("postgres://h/d", "postgres://h:5432/d"),
            ("postgresql://u:p%40ss@h:1/d", "postgres://h:1/d"),
            ("postgres://u@a:1,b:2/d", "postgres://a:1,b:2/d"),
            ("postgres://u@%2Frun%2Fpg/d", "postgres:///run/pg:5432/d"),
            ("postgres:///d?host=%2Frun%2Fpg&user=u%40x", "postgres:///run/pg:5432/d"),
            ("postgres://h", "postgres://h:5432/"),
        ];
        for (url, shown) in rows {
            assert_eq!(parsed(url).unwrap().to_string(), shown, "{url}");
        }
        let full =
            parsed("postgres://h/d?project=team%2Fengine&schema=s_1&sslmode=verify-full&sslrootcert=system");
        let full = full.unwrap();
        assert_eq!((full.project(), full.schema()), (Some("team/engine"), "s_1"));
        assert_eq!((full.tls, full.root_certificates.as_deref()), (TlsMode::VerifyFull, Some("system")));
    }

    #[test]
    fn what_cannot_be_an_address_is_refused() {
        use AddressError as Error;
        let rows = [
            ("mysql://h/d", Error::Unreadable),
            ("postgres://u:p@ss@h/d", Error::Unreadable),
            ("postgres://h:port/d", Error::Unreadable),
            ("postgres:///d", Error::NoHost),
            ("postgres://h/d?colour=red", Error::UnknownOption),
            ("postgres://h/d?project", Error::UnknownOption),
            ("postgres://h/d?sslmode=maybe", Error::UnusableValue("sslmode")),
            ("postgres://h/d?sslmode=require&sslrootcert=system", Error::UnusableValue("sslrootcert")),
            ("postgres://h/d?project=", Error::UnusableValue("project")),
            ("postgres://h/d?project=a%00b", Error::UnusableValue("project")),
            ("postgres://h/d?schema=Azureal", Error::UnusableValue("schema")),
            ("postgres://h/d?schema=a%22;drop", Error::UnusableValue("schema")),
        ];
        check_refused::<PostgresAddress>(&rows);
    }

    #[test]
    fn no_part_of_a_password_is_ever_shown() {
        check_no_password_is_shown::<PostgresAddress>(|password| {
            vec![
                format!("postgres://u:{password}@h/d"),
                format!("postgres://u:{password}@h/d?project=p"),
                format!("postgres://h/d?password={password}"),
            ]
        });
        // One that is not a host either.
        for password in ["hun@ter2", "hun/ter2", "hun?ter2", "hun:ter2", "hun#ter2", "hun%ter2"] {
            if let Err(error) = parsed(&format!("postgres://{password}")) {
                let shown = format!("{error} {error:?} {}", PostgresAddress::hint(&error));
                assert!(!shown.contains("ter2"), "{password}: {shown}");
            }
        }
    }
}
