//! A PgBouncer before a PostgreSQL server, for tests.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::OnceLock;

use super::keeper::{Keeper, servants_folder};
use super::postgres::{PASSWORD, USER};
use super::{PostgresServer, find, free_port, hand_over, skip};
use crate::until::until_or;

/// The time for which a client holds a server connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolMode {
    /// Until it disconnects.
    Session,
    /// For one transaction. The next one may get another.
    Transaction,
}

impl PoolMode {
    fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
        }
    }

    /// The number of server connections: enough for every client, or so few that clients have to share.
    fn connections(self) -> u32 {
        match self {
            Self::Session => 90,
            Self::Transaction => 3,
        }
    }
}

/// A real PgBouncer with its own folder and port, stopped when it is dropped or the test ends.
#[derive(Debug)]
pub struct PgBouncer {
    _keeper: Keeper,
    port: u16,
}

impl PgBouncer {
    /// Starts a pooler before a server. `None` means that the test has been reported as skipped, and should return.
    ///
    /// # Panics
    ///
    /// If PgBouncer is missing where `AZUREAL_REQUIRE_TOOLS` is set, or is there and does not start.
    pub fn start(server: &PostgresServer, mode: PoolMode) -> Option<Self> {
        let Some(program) = find("pgbouncer") else {
            skip("PgBouncer (pgbouncer) is missing");
            return None;
        };
        let folder = match servants_folder("azureal-pgbouncer-") {
            Ok(folder) => folder,
            Err(error) => {
                skip(&format!("there is no folder for PgBouncer ({error})"));
                return None;
            }
        };
        let port = free_port();
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = scram-sha-256\nauth_file = {}/users\nmax_client_conn = 500\n\
             pool_mode = {}\ndefault_pool_size = {}\n",
            server.port(),
            folder.display(),
            mode.name(),
            mode.connections()
        );
        let users = format!("\"{USER}\" \"{PASSWORD}\"\n");
        for (name, text) in [("pgbouncer.ini", config), ("users", users)] {
            fs::write(folder.join(name), text).unwrap();
            hand_over(&folder, &folder.join(name));
        }
        let command = [program.display().to_string(), folder.join("pgbouncer.ini").display().to_string()];
        let mut keeper = Keeper::killing_with("KILL", folder, &command);
        keeper.start();
        let log = || fs::read_to_string(keeper.folder().join("log")).unwrap_or_default();
        until_or(
            || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok(),
            || format!("the start of PgBouncer: {}", log()),
        );
        Some(Self { _keeper: keeper, port })
    }

    /// Returns one pooler of each mode that all tests of a program share, before [`PostgresServer::shared`].
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn shared(mode: PoolMode) -> Option<&'static Self> {
        static SESSION: OnceLock<Option<PgBouncer>> = OnceLock::new();
        static TRANSACTION: OnceLock<Option<PgBouncer>> = OnceLock::new();
        let shared = match mode {
            PoolMode::Session => &SESSION,
            PoolMode::Transaction => &TRANSACTION,
        };
        let server = PostgresServer::shared()?;
        let shared = shared.get_or_init(|| Self::start(server, mode)).as_ref();
        if shared.is_none() {
            skip("PgBouncer is missing");
        }
        shared
    }

    /// Returns the URL of the server's database by way of the pooler, password included.
    pub fn url(&self) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/postgres", self.port)
    }
}
