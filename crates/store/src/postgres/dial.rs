//! Opening a connection: the hosts of the address are tried one after the other, each with its share of the time.
//!
//! The driver bounds each host alone. So a first host that drops packets would use up the whole attempt, although
//! the second one answers.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use deadpool::managed::{self, Manager, Metrics, RecycleError, RecycleResult};
use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, Connection, Socket};
use tracing::debug;

use super::address::{Passfile, PostgresAddress};
use super::connection::within;
use super::error::Fault;
use super::tls::{Connector, Stream};
use crate::server::{OPEN_TIMEOUT, Overflow, Transient};

/// The time for all hosts together. Opening a store waits no longer, and a host that answers later is as good as away.
const ALL_HOSTS: Duration = OPEN_TIMEOUT;
/// The least time for one host, however many there are.
const ONE_HOST: Duration = Duration::from_secs(1);
/// The time after which a silent peer is given up. Well below the retry budget of a store, so that there is time for
/// another connection.
const SILENCE: Duration = Duration::from_secs(10);

/// A connection of the pool.
pub(super) type Object = managed::Object<Dialer>;

/// Opens connections to the hosts of an address.
pub(super) struct Dialer {
    /// The configuration of each host, in the order of the address.
    hosts: Vec<Config>,
    connector: Connector,
    passfile: Option<Passfile>,
    /// The host that answered last.
    answered: Mutex<Option<Target>>,
}

/// A host, or one of its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target {
    host: usize,
    address: Option<IpAddr>,
}

/// A client whose connection ends with it.
pub(super) struct Line {
    client: Client,
    _driver: JoinSet<()>,
}

impl Deref for Line {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Line {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Dialer {
    pub(super) fn new(
        address: &PostgresAddress,
        overflow: Overflow,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let connector = Connector::new(address, overflow)?;
        let hosts = (0..address.config.get_hosts().len()).filter_map(|host| of_host(&address.config, host));
        let (hosts, passfile) = (hosts.collect(), address.passfile.clone());
        Ok(Self { hosts, connector, passfile, answered: Mutex::default() })
    }

    /// Opens a connection. It does no work unless its second half is polled.
    pub(super) async fn dial(&self) -> Result<(Client, Connection<Socket, Stream>), Fault> {
        let began = Instant::now();
        let answered = *self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let all = (0..self.hosts.len()).map(|host| Target { host, address: None });
        let others = all.filter(|target| Some(*target) != answered);
        let mut left: VecDeque<Target> = answered.into_iter().chain(others).collect();
        let mut failed: Option<Fault> = None;
        while let Some(target) = left.pop_front() {
            let Some(config) = self.hosts.get(target.host) else { continue };
            let time_left = ALL_HOSTS.saturating_sub(began.elapsed());
            let share = time_left / u32::try_from(left.len() + 1).unwrap_or(u32::MAX);
            let share = config.get_connect_timeout().copied().unwrap_or(share.max(ONE_HOST));
            let tried = match name_of(config).filter(|_| target.address.is_none()) {
                Some((name, port)) => match within(share, lookup_host((name, port))).await {
                    Ok(found) => {
                        let found = found.map(|found| Target { address: Some(found.ip()), ..target });
                        // The one that answered last has been tried.
                        let found: Vec<_> = found.filter(|found| Some(*found) != answered).collect();
                        found.into_iter().rev().for_each(|found| left.push_front(found));
                        continue;
                    }
                    Err(fault) => Err(fault),
                },
                None => within(share, self.connect(config, target)).await,
            };
            match tried {
                Ok(connected) => {
                    *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
                    return Ok(connected);
                }
                Err(fault) => {
                    debug!(
                        host = target.host,
                        error = fault.kind(),
                        ?share,
                        "a host of the store did not let us in"
                    );
                    failed = Some(match failed {
                        Some(kept) if says_more(&kept, &fault) => kept,
                        _ => fault,
                    });
                }
            }
        }
        Err(failed.unwrap_or(Fault::Silent))
    }

    async fn connect(
        &self,
        config: &Config,
        target: Target,
    ) -> Result<(Client, Connection<Socket, Stream>), Fault> {
        let mut config = config.clone();
        if let Some(password) = self.passfile.as_ref().and_then(|file| file.password(&config))
            && config.get_password().is_none()
        {
            config.password(password);
        }
        if let Some(address) = target.address {
            config.hostaddr(address);
        }
        let connector = self.connector.for_host(&mut config);
        Ok(config.connect(connector).await?)
    }
}

/// Returns whether the first of two faults is the one to report: an error that stays before one that may pass, and
/// anything before silence.
fn says_more(one: &Fault, other: &Fault) -> bool {
    !one.is_transient() || matches!(other, Fault::Silent)
}

/// Returns the name of a host that must be looked up, with its port.
fn name_of(config: &Config) -> Option<(&str, u16)> {
    match config.get_hosts().first()? {
        Host::Tcp(name) if name.parse::<IpAddr>().is_err() => {
            Some((name, config.get_ports().first().copied().unwrap_or(5432)))
        }
        _ => None,
    }
}

/// Returns the configuration of one host.
fn of_host(all: &Config, host: usize) -> Option<Config> {
    let mut config = Config::new();
    match all.get_hosts().get(host)? {
        Host::Tcp(name) => config.host(name),
        #[cfg(unix)]
        Host::Unix(path) => config.host_path(path),
    };
    let ports = all.get_ports();
    config.port(ports.get(host).or(ports.first()).copied().unwrap_or(5432));
    config.ssl_mode(all.get_ssl_mode());
    config.channel_binding(all.get_channel_binding());
    config.target_session_attrs(all.get_target_session_attrs());
    config.application_name(all.get_application_name().unwrap_or("azureal"));
    all.get_user().map(|user| config.user(user));
    all.get_password().map(|password| config.password(password));
    all.get_dbname().map(|name| config.dbname(name));
    all.get_options().map(|options| config.options(options));
    all.get_connect_timeout().map(|time| config.connect_timeout(*time));
    let is_default = all.get_keepalives_idle() == Config::new().get_keepalives_idle();
    config.keepalives_idle(if is_default { SILENCE } else { all.get_keepalives_idle() });
    config.tcp_user_timeout(SILENCE);
    Some(config)
}

impl Manager for Dialer {
    type Type = Line;
    type Error = Fault;

    async fn create(&self) -> Result<Line, Fault> {
        let (client, connection) = self.dial().await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            if let Err(error) = connection.await {
                debug!(error = Fault::from(error).kind(), "a connection ended");
            }
        });
        Ok(Line { client, _driver: driver })
    }

    /// A connection is not asked whether it is well: that would be a round trip for every call. One that turns out not
    /// to be is thrown away.
    async fn recycle(&self, line: &mut Line, _: &Metrics) -> RecycleResult<Fault> {
        if line.client.is_closed() { Err(RecycleError::message("closed")) } else { Ok(()) }
    }
}
