//! The connection to the server, on its own thread, with reconnects.
//!
//! One connection serves all calls: requests follow each other without waiting for answers, and the server does one
//! thing at a time anyway. The driver's own connection manager is not used, because it always reconnects to the given
//! address: in a cluster another server may have the project, and names itself in a redirect.
//!
//! A call is retried while its error is transient. That is safe because every call reads, or is idempotent by the
//! name of its operation.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use azureal_core::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, ServerErrorKind, Value,
};
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;
use tracing::{debug, info};

use super::RedisOptions;
use super::address::{RedisAddress, TlsFiles};
use super::error::Fault;
use super::frames::Values;
use super::scripts::{Effect, Prepared};
use crate::server::{
    self, ANSWER_TIMEOUT, Bounded, CONNECT_TIMEOUT, LARGEST_CERTIFICATES, Overflow, OwnThread,
    TIMEOUT_PER_MIB, Transient, retry_with_backoff, too_large,
};

/// The time limit of a page, which can hold 64 MiB. A small request precedes each, so that a dead connection is
/// noticed there.
const PAGE_TIMEOUT: Duration = Duration::from_secs(25);
/// The shortest time limit of an attempt: enough to distinguish a dead server from a slow one.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(500);

/// A request to the server. It may be sent more than once.
pub(super) enum Request {
    /// A script, which changes something or reads several things at one time.
    Script(Prepared),
    /// Commands that read. The answer is the list of theirs.
    Commands(Pipeline),
    /// Commands that read a page of events.
    Page(Pipeline),
}

impl Request {
    fn effect(&self) -> Effect {
        match self {
            Self::Script(call) => call.effect,
            Self::Commands(_) | Self::Page(_) => Effect::None,
        }
    }
}

/// The connection of a store.
pub(super) struct Connections {
    place: String,
    retry_budget: Duration,
    line: Arc<Line>,
    thread: Arc<OwnThread>,
}

impl Connections {
    /// Starts the thread. Does not connect yet.
    pub(super) fn start(address: &RedisAddress, options: RedisOptions) -> Result<Self, StoreError> {
        let place = address.to_string();
        let tls = address.tls.as_ref().map(client_config).transpose();
        let tls = tls.map_err(|fault| fault.at(&place, Duration::ZERO))?;
        let line = Line::new(address.clone(), tls);
        let thread = OwnThread::start("azureal-redis")
            .map_err(|error| StoreError::Other { place: place.clone(), source: error.into() })?;
        Ok(Self { place, retry_budget: options.retry_budget, line: Arc::new(line), thread: Arc::new(thread) })
    }

    /// Returns a second connection to the same server, on the same thread. Closing the other closes this one too.
    pub(super) fn another(&self) -> Self {
        let line = Line::new(self.line.address.clone(), self.line.tls.clone());
        Self {
            place: self.place.clone(),
            retry_budget: self.retry_budget,
            line: Arc::new(line),
            thread: Arc::clone(&self.thread),
        }
    }

    /// Waits for a while.
    pub(super) async fn wait(&self, time: Duration) -> Result<(), StoreError> {
        self.thread.run(async move { tokio::time::sleep(time).await }).await.ok_or(StoreError::Closed)
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn is_closed(&self) -> bool {
        self.thread.is_closed()
    }

    /// Closes the connection; returns whether it was open.
    pub(super) async fn close(&self) -> bool {
        let line = Arc::clone(&self.line);
        let was_open = self.thread.run(async move { line.hang_up().await }).await.is_some();
        self.thread.close() && was_open
    }

    /// Asks the server; retries while that may help.
    pub(super) async fn ask(&self, request: Request) -> Result<Value, StoreError> {
        self.ask_for(request, self.retry_budget).await
    }

    /// Like [`ask`](Self::ask), with this retry budget.
    pub(super) async fn ask_for(&self, request: Request, budget: Duration) -> Result<Value, StoreError> {
        let line = Arc::clone(&self.line);
        self.on_thread(async move {
            let may_be_done = AtomicBool::new(false);
            let answer = retry_with_backoff(budget, |_| line.attempt(&request, &may_be_done)).await;
            answer.map_err(|(fault, waited)| match request.effect() {
                Effect::Change(operation) if may_be_done.into_inner() => {
                    (Fault::Unknown { operation, last: Box::new(fault) }, waited)
                }
                Effect::Change(_) | Effect::None => (fault, waited),
            })
        })
        .await
    }

    /// Like [`ask_for`](Self::ask_for), but a running attempt ends with the budget too.
    pub(super) async fn ask_within(&self, request: Request, time: Duration) -> Result<Value, StoreError> {
        let line = Arc::clone(&self.line);
        self.on_thread(async move {
            let began = Instant::now();
            let attempt = |_| async {
                let left = time.saturating_sub(began.elapsed()).max(SHORTEST_ATTEMPT);
                // Only requests that read have so little time.
                let ignored = AtomicBool::new(false);
                let answer = tokio::time::timeout(left, line.attempt(&request, &ignored)).await;
                answer.unwrap_or(Err(Fault::Silent(time)))
            };
            retry_with_backoff(time, attempt).await
        })
        .await
    }

    async fn on_thread(
        &self,
        asking: impl Future<Output = Result<Value, (Fault, Duration)>> + Send + 'static,
    ) -> Result<Value, StoreError> {
        let answer = self.thread.run(asking).await.unwrap_or(Err((Fault::Closed, Duration::ZERO)));
        answer.map_err(|(fault, waited)| fault.at(&self.place, waited))
    }
}

/// The one connection, whether it is there or not.
struct Line {
    address: RedisAddress,
    tls: Option<Arc<ClientConfig>>,
    overflow: Overflow,
    /// Held while connecting, so that all who miss the connection wait for the same one.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<MultiplexedConnection>,
    /// Counts connections, so that only the one that broke is thrown away.
    number: u64,
    /// The server of a cluster that has the project, if it is not the one of the address.
    moved_to: Option<(String, u16)>,
}

impl Line {
    fn new(address: RedisAddress, tls: Option<Arc<ClientConfig>>) -> Self {
        Self { address, tls, overflow: Overflow::default(), state: Mutex::default() }
    }

    /// Sets `may_be_done` if the request was sent and its answer is lost.
    async fn attempt(&self, request: &Request, may_be_done: &AtomicBool) -> Result<Value, Fault> {
        match self.try_once(request, may_be_done).await {
            // We have ended the connection ourselves, and would do it again.
            Err(_) if self.overflow.take() => Err(Fault::Answer(too_large())),
            other => other,
        }
    }

    async fn try_once(&self, request: &Request, may_be_done: &AtomicBool) -> Result<Value, Fault> {
        let (connection, number) = self.connection().await?;
        let answer = run(connection, request).await;
        let is_lost = answer.as_ref().is_err_and(Fault::is_about_connection);
        may_be_done.fetch_or(is_lost, Ordering::Relaxed);
        match answer {
            Err(fault) if fault.is_transient() => {
                let mut state = self.state.lock().await;
                if state.number == number {
                    state.open = None;
                    // Whatever is wrong here, the address was right once.
                    state.moved_to = fault.moved_to().map(|to| self.address_of(to));
                    match &state.moved_to {
                        Some((host, port)) => {
                            info!(host, port, "another server of the cluster has the project");
                        }
                        None => debug!(connection = number, error = fault.kind(), "drops the connection"),
                    }
                }
                Err(fault)
            }
            other => other,
        }
    }

    /// A server that does not know its own name leaves the host out.
    fn address_of(&self, (host, port): (String, u16)) -> (String, u16) {
        if host.is_empty() { (self.address.host.clone(), port) } else { (host, port) }
    }

    async fn connection(&self) -> Result<(MultiplexedConnection, u64), Fault> {
        let mut state = self.state.lock().await;
        if let Some(open) = &state.open {
            return Ok((open.clone(), state.number));
        }
        let here = || (self.address.host.clone(), self.address.port);
        let (host, port) = state.moved_to.take().unwrap_or_else(here);
        let made = self.connect(host, port).await?;
        state.number += 1;
        debug!(connection = state.number, tls = self.tls.is_some(), "connected to Redis");
        state.open = Some(made.clone());
        Ok((made, state.number))
    }

    async fn connect(&self, host: String, port: u16) -> Result<MultiplexedConnection, Fault> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.connect_without_limit(host, port)).await {
            Ok(connected) => connected,
            Err(_) => Err(Fault::Silent(CONNECT_TIMEOUT)),
        }
    }

    async fn connect_without_limit(&self, host: String, port: u16) -> Result<MultiplexedConnection, Fault> {
        let socket = TcpStream::connect((host.as_str(), port)).await.map_err(RedisError::from)?;
        socket.set_nodelay(true).map_err(RedisError::from)?;
        let Some(tls) = &self.tls else { return self.log_in(socket).await };
        let name = ServerName::try_from(host).map_err(|error| Fault::Tls(error.to_string()))?;
        let connector = TlsConnector::from(Arc::clone(tls));
        self.log_in(connector.connect(name, socket).await.map_err(RedisError::from)?).await
    }

    async fn log_in<S>(&self, stream: S) -> Result<MultiplexedConnection, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut login =
            RedisConnectionInfo::default().set_db(self.address.database.into()).set_skip_set_lib_name();
        if let Some(user) = &self.address.user {
            login = login.set_username(user);
        }
        if let Some(password) = self.address.password_now() {
            login = login.set_password(password);
        }
        // The driver waits half a second for an answer, which is less than a disk may take. We count ourselves.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let stream = Bounded::new(stream, Values::default(), self.overflow.clone());
        let (connection, driver) = MultiplexedConnection::new_with_config(&login, stream, config).await?;
        // Ends with the last copy of the connection.
        tokio::spawn(driver);
        Ok(connection)
    }

    async fn hang_up(&self) {
        self.state.lock().await.open = None;
    }
}

async fn run(mut connection: MultiplexedConnection, request: &Request) -> Result<Value, Fault> {
    let limit = match request {
        Request::Script(call) => {
            ANSWER_TIMEOUT + TIMEOUT_PER_MIB * u32::try_from(call.size >> 20).unwrap_or(u32::MAX)
        }
        Request::Commands(_) => ANSWER_TIMEOUT,
        Request::Page(_) => PAGE_TIMEOUT,
    };
    let answer = tokio::time::timeout(limit, async {
        match request {
            Request::Commands(commands) | Request::Page(commands) => {
                commands.query_async(&mut connection).await
            }
            Request::Script(call) => match run_script(&mut connection, call).await {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    debug!("the server does not have a script: loads it");
                    call.script.load_async(&mut connection).await?;
                    run_script(&mut connection, call).await
                }
                other => other,
            },
        }
    });
    Ok(answer.await.map_err(|_| Fault::Silent(limit))??)
}

/// Runs a script and what follows it, and returns what the script answers.
async fn run_script(connection: &mut MultiplexedConnection, call: &Prepared) -> Result<Value, RedisError> {
    let answers: Value = call.commands.query_async(connection).await.map_err(why_it_was_refused)?;
    match answers {
        Value::Array(answers) => match answers.into_iter().next().unwrap_or_default() {
            Value::ServerError(error) => Err(error.into()),
            answer => Ok(answer),
        },
        other => Ok(other),
    }
}

/// Returns the reason why the server rejected a transaction: the error of the first refused command.
fn why_it_was_refused(error: RedisError) -> RedisError {
    if error.kind() != ErrorKind::Server(ServerErrorKind::ExecAbort) {
        return error;
    }
    match error.clone().into_server_errors().as_deref() {
        Some([(_, refused), ..]) => refused.clone().into(),
        Some([]) | None => error,
    }
}

/// Reads the files that an encrypted connection needs.
fn client_config(files: &TlsFiles) -> Result<Arc<ClientConfig>, Fault> {
    let failed = |error: rustls::Error| Fault::Tls(error.to_string());
    let root_file = files.root_certificates.as_ref().map(|path| path.to_string_lossy());
    let roots = server::roots(root_file.as_deref()).map_err(Fault::Tls)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_root_certificates(roots);
    let config = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            let unusable = |path: &Path| {
                let path = path.display().to_string();
                move |error: rustls::pki_types::pem::Error| Fault::Tls(format!("{path}: {error}"))
            };
            let chain = CertificateDer::pem_slice_iter(&read(certificate)?)
                .collect::<Result<Vec<_>, _>>()
                .map_err(unusable(certificate))?;
            let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(unusable(key))?;
            config.with_client_auth_cert(chain, key).map_err(failed)?
        }
        (None, None) => config.with_no_client_auth(),
        (_, _) => return Err(Fault::Tls("sslcert and sslkey belong together".to_owned())),
    };
    Ok(Arc::new(config))
}

fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(LARGEST_CERTIFICATES).read_to_end(&mut bytes))
        .map_err(|error| Fault::Tls(format!("{}: {error}", path.display())))?;
    Ok(bytes)
}
